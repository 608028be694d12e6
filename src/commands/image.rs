//! `stokehold image`: a Dockerfile and its context for a training job, built and checked where that is possible.
//!
//! ```text
//! DIR/Dockerfile, .dockerignore
//! DIR/stokehold, or *.whl      this program, or the Python package with it: the entry point is in both
//! DIR/code/                    train.sh, which starts Stokehold's trainer, or the script's folder
//! DIR/job.toml                 a job with this code, for `stokehold job run` here and on SageMaker, and for --check
//! ```

mod check;
mod context;
mod requirements;

use std::env;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args as ClapArgs;
use stokehold_jobs::EntryPoint;

use crate::failure::Usage;
use crate::local::Local;
use crate::shell;
use crate::terminal::note;

use context::{Context, Script};

/// Write a Dockerfile and its context for training on SageMaker, with Stokehold's trainer or a script.
///
/// Its entry point keeps SageMaker's contract for training jobs (see docs/image.md). A folder that has a Dockerfile is used as
/// it is, with --build and --check.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The folder of the Dockerfile; made if needed
    dir: Local,
    /// The script's folder, with its requirements.txt; without it, the image has Stokehold's own trainer
    #[arg(long, value_name = "DIR", requires_all = ["entry_point", "wheel"])]
    script: Option<Local>,
    /// What runs of the script's folder: a .py file
    #[arg(long, value_name = "FILE", value_parser = EntryPoint::parse, requires = "script")]
    entry_point: Option<EntryPoint>,
    /// The Python package stokehold, which `python/build` makes
    #[arg(long, value_name = "FILE", requires = "script")]
    wheel: Option<Local>,
    /// The image to build on, with apt and glibc; for a script with Python [default: debian:12.11-slim, for a script
    /// python:3.12.11-slim-bookworm]
    #[arg(long, value_name = "IMAGE")]
    base: Option<String>,
    /// Build the image under this name, with docker or buildah, whichever is installed
    #[arg(long, value_name = "NAME:TAG", value_parser = tagged)]
    build: Option<String>,
    /// Run the image's entry point on an /opt/ml that is made of DIR/job.toml: in a container after --build with docker,
    /// else without one, here
    #[arg(long)]
    check: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The script, the wheel or the folder is not right (exit code 2); nothing is installed that builds images (2); the build or
/// the check failed (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    if args.dir.join("Dockerfile").exists() {
        if args.script.is_some() || args.base.is_some() || (args.build.is_none() && !args.check) {
            let text = format!(
                "{} has a Dockerfile already; --build and --check use it as it is, and another folder gets a new one",
                args.dir.display()
            );
            return Err(Usage(text).into());
        }
    } else {
        let script = match (&args.script, &args.entry_point, &args.wheel) {
            (Some(folder), Some(entry_point), Some(wheel)) => Some(Script::new(folder, entry_point, wheel)?),
            _ => None,
        };
        let context = Context::new(args.base.as_deref(), script)?;
        for text in context.write(&args.dir)? {
            note!("note: {text}");
        }
        note!("{} has the Dockerfile and its context", args.dir.display());
    }
    let mut built = None;
    if let Some(tag) = &args.build {
        built = Some((build(&args.dir, tag)?, tag.as_str()));
    }
    if args.check {
        return check::run(&args.dir, built);
    }
    Ok(ExitCode::SUCCESS)
}

/// An image's name with a tag, so that a job says which one it means.
fn tagged(text: &str) -> Result<String, String> {
    match text.starts_with('-') || !text.rsplit('/').next().unwrap_or_default().contains(':') {
        true => Err("give a name and a tag, as flowers:1".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// What builds images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Builder {
    Docker,
    Buildah,
}

impl Builder {
    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Buildah => "buildah",
        }
    }
}

/// Builds the image with what is installed.
fn build(dir: &Path, tag: &str) -> Result<Builder, Box<dyn Error>> {
    let installed = [Builder::Docker, Builder::Buildah]
        .into_iter()
        .find(|builder| on_path(builder.name()).is_some());
    let Some(builder) = installed else {
        let text = format!(
            "neither docker nor buildah is installed (Debian: apt-get install buildah); {} can be built elsewhere: docker build \
             --tag {tag} .",
            dir.display()
        );
        return Err(Usage(text).into());
    };
    let mut command = Command::new(builder.name());
    command.args(["build", "--tag", tag]).arg(dir);
    started(&mut command)?;
    Ok(builder)
}

/// Prints a command and runs it.
///
/// # Errors
/// It does not start, or fails.
fn started(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(shell::quoted).collect();
    note!("{}", words.join(" "));
    let name = command.get_program().to_string_lossy().into_owned();
    match command
        .status()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?
    {
        status if status.success() => Ok(()),
        status => Err(format!("{name} failed ({status}); its messages say why").into()),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
