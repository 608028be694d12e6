//! `stokehold job import`: a job file of a training job that was on SageMaker.

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_base::regular;
use stokehold_page::words::plural;
use stokehold_sagemaker::{Client, Imported};

use super::at_sagemaker::At;
use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};
use crate::{files, shell};

/// Turn a training job of SageMaker, or the Python program that makes one, into a job file.
///
/// The file runs on this machine, and on SageMaker. What it has no key for is a comment in it.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// With --on sagemaker a job's name or ARN; else a Python file or a notebook that makes a PyTorch, TensorFlow or Estimator of
    /// SageMaker's SDK, which is read and not run
    #[arg(value_name = "NAME|ARN|FILE")]
    what: String,
    /// The job file
    #[arg(value_name = "FILE", default_value = "job.toml")]
    file: Local,
    #[command(flatten)]
    at: At,
}

/// Runs the subcommand.
///
/// # Errors
/// The job or the program cannot be read, or the job file is there already (exit code 2).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let (region, name) = named(&args.what)?;
    let imported = match args.at.client_for(region)? {
        Some(client) => of_sagemaker(&client, name)?,
        None if region.is_some() => {
            return Err(Usage(format!("{} is on SageMaker: add --on sagemaker", args.what)).into());
        }
        None => of_program(Path::new(&args.what))?,
    };
    files::write_new(&args.file, &imported.text)?;
    let mut err = terminal::err();
    let file = args.file.display();
    match imported.remarks {
        0 => writeln!(err, "{file} is written")?,
        remarks => writeln!(
            err,
            "{file} is written, with {} on what it has no counterpart for",
            plural(remarks, "comment")
        )?,
    }
    for problem in &imported.problems {
        writeln!(err, "to do: {problem}")?;
    }
    if imported.runs_here {
        let again = shell::again([OsStr::new("job"), OsStr::new("run"), args.file.as_os_str()]);
        writeln!(err, "this runs it here: {again}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The region of an ARN, and the job's name.
fn named(what: &str) -> Result<(Option<&str>, &str), Usage> {
    let Some(rest) = what.strip_prefix("arn:") else {
        return Ok((None, what));
    };
    // arn:aws:sagemaker:REGION:ACCOUNT:training-job/NAME
    let parts: Vec<&str> = rest.split(':').collect();
    match parts[..] {
        [_, "sagemaker", region, _, job] if !region.is_empty() => job
            .strip_prefix("training-job/")
            .map(|name| (Some(region), name)),
        _ => None,
    }
    .ok_or_else(|| {
        Usage(format!(
            "{what} is the ARN of no training job; give one as arn:aws:sagemaker:REGION:ACCOUNT:training-job/NAME"
        ))
    })
}

fn of_sagemaker(client: &Client, name: &str) -> Result<Imported, Box<dyn Error>> {
    let description = client.description(name)?;
    let arn = description["TrainingJobArn"].as_str().unwrap_or_default();
    let tags = match client.tags(arn) {
        Ok(tags) => Some(tags),
        Err(error) => {
            note!("note: the job's labels are not read: {error}");
            None
        }
    };
    Ok(Imported::of_description(&description, tags.as_ref())?)
}

fn of_program(path: &Path) -> Result<Imported, Box<dyn Error>> {
    let named = path.display().to_string();
    let bytes = regular::read(path).map_err(|error| {
        Usage(format!(
            "{named}: {error}; give a Python file or a notebook, or a job of SageMaker with --on sagemaker"
        ))
    })?;
    let text = String::from_utf8(bytes).map_err(|_| Usage(format!("{named}: this is no text in UTF-8")))?;
    Ok(Imported::of_estimator(&text, &named, Path::new("python3"))?)
}
