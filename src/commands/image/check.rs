//! Runs an image's entry point on an `/opt/ml` that is made of the context's job file.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;

use stokehold_jobs::container::{BASE_VARIABLE, PROGRAM_VARIABLE};
use stokehold_jobs::contract::{self, Instance};
use stokehold_jobs::{Job, Place};
use tempfile::TempDir;

use super::{Builder, started};
use crate::failure::Usage;
use crate::files::named;
use crate::interrupt;
use crate::terminal::{self, note};

/// Hyperparameters by which this program says where the code is. A request of another client has none of them, and the image
/// knows by itself.
const OF_THE_CODE: [&str; 2] = ["sagemaker_program", "sagemaker_submit_directory"];

/// Checks the image; `built` is what built it, and its name.
///
/// # Errors
/// The job file is wrong, or names data that is not on this machine; the entry point failed, or left no mark of its success.
pub fn run(dir: &Path, built: Option<(Builder, &str)>) -> Result<ExitCode, Box<dyn Error>> {
    let job = Job::read(&dir.join("job.toml"))?;
    job.check()?;
    let made = Made::new(&job)?;
    let mut command = match built {
        Some((Builder::Docker, tag)) => made.in_docker(tag, &job)?,
        _ => made.here(dir, &job)?,
    };
    if !matches!(built, Some((Builder::Docker, _))) {
        note!(
            "note: the entry point runs here, without a container: with this machine's programs, user and files, and its code, \
             configuration and folders below {}",
            made.base.display()
        );
    }
    let stop = interrupt::flag_for("stopping; the made folder is removed")?;
    let ran = started(&mut command);
    let kept = ran.and_then(|()| verdict(&made));
    made.remove(match built {
        Some((Builder::Docker, tag)) => Some(tag),
        _ => None,
    });
    if stop.load(Ordering::SeqCst) {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    kept.map(|()| ExitCode::SUCCESS)
}

/// Whether the entry point kept the contract.
fn verdict(made: &Made) -> Result<(), Box<dyn Error>> {
    let there = |file: &str| made.base.join(file).exists();
    if !there("output/success") || there("output/failure") {
        return Err("the entry point ended with 0, and left no output/success, or an output/failure".into());
    }
    let model = below(&made.base.join("model"))?;
    match model.is_empty() {
        true => note!("note: the script left nothing in SM_MODEL_DIR, so there is no model.tar.gz"),
        false => writeln!(terminal::out(), "model: {}", model.join(", "))?,
    }
    writeln!(terminal::out(), "the entry point keeps the contract")?;
    Ok(())
}

/// A made `/opt/ml`, which is removed when it is dropped.
struct Made {
    folder: TempDir,
    base: PathBuf,
    /// Channels: their names, and folders of this machine.
    channels: Vec<(String, PathBuf)>,
}

impl Made {
    fn new(job: &Job) -> Result<Self, Box<dyn Error>> {
        let mut channels = Vec::new();
        for (name, channel) in &job.channels {
            match fs::canonicalize(&channel.uri) {
                Ok(path) if path.is_dir() => channels.push((name.clone(), path)),
                _ => {
                    let text = format!(
                        "channel {name}: {} is no folder of this machine; put a small data set there, or name one in job.toml",
                        channel.uri
                    );
                    return Err(Usage(text).into());
                }
            }
        }
        let folder = tempfile::Builder::new().prefix("stokehold-image-").tempdir()?;
        // A container's user has to get into it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let base = folder.path().canonicalize()?;
        let place = Place::here();
        let instance = Instance {
            job: job.name_or_made(),
            rank: 0,
            base: base.clone(),
            cpus: place.cores.len(),
            gpus: place.gpus.len(),
            address: contract::host(0),
            port: 0,
            interface: "lo".to_owned(),
        };
        for folder in instance.folders() {
            fs::create_dir_all(&folder).map_err(|error| named(&folder, &error))?;
        }
        let one = Job {
            instances: 1,
            ..job.clone()
        };
        for (file, mut value) in contract::configuration(&one, &instance) {
            if let Some(all) = value.as_object_mut() {
                all.retain(|name, _| !OF_THE_CODE.contains(&name.as_str()));
            }
            let path = base.join("input/config").join(file);
            fs::write(&path, value.to_string()).map_err(|error| named(&path, &error))?;
        }
        Ok(Self {
            folder,
            base,
            channels,
        })
    }

    /// The image's entry point as SageMaker starts it. /opt/ml/code is the image's own.
    fn in_docker(&self, tag: &str, job: &Job) -> Result<Command, Box<dyn Error>> {
        let mut command = Command::new("docker");
        command
            .args(["run", "--rm", "--env-file"])
            .arg(self.variables_file(job)?);
        let mut mount = |from: &Path, to: String| {
            let mut word = OsString::from("type=bind,source=");
            word.push(from);
            word.push(format!(",target=/opt/ml/{to}"));
            command.arg("--mount").arg(word);
        };
        for folder in ["input/config", "model", "output", "checkpoints"] {
            mount(&self.base.join(folder), folder.to_owned());
        }
        for (name, folder) in &self.channels {
            mount(folder, format!("input/data/{name},readonly"));
        }
        command.args([tag, "train"]);
        Ok(command)
    }

    /// A file of the container's variables. Secrets are in no argument of docker, and no variable of the job is one of docker
    /// itself, such as `DOCKER_HOST`.
    fn variables_file(&self, job: &Job) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.folder.path().join("variables");
        let mut text = String::new();
        for (name, value) in variables(job) {
            if [&name, &value].iter().any(|text| text.contains(['\n', '\r'])) {
                let text = format!(
                    "[environment] {name:?}: it has several lines, which docker cannot take from a file; leave it out, or \
                     check without --build"
                );
                return Err(Usage(text).into());
            }
            text += &format!("{name}={value}\n");
        }
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| named(&path, &error))?;
        Ok(path)
    }

    /// Removes it. After a container of this image it has files of the container's users, which only root may remove, as
    /// the container's root may let this user do.
    fn remove(self, image: Option<&str>) {
        if let Some(tag) = image {
            let mut word = OsString::from("type=bind,source=");
            word.push(&self.base);
            word.push(",target=/made");
            let mut free = Command::new("docker");
            free.args([
                "run",
                "--rm",
                "--user",
                "root",
                "--entrypoint",
                "chmod",
                "--mount",
            ])
            .arg(word)
            .args([tag, "-R", "a+rwX", "/made"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
            // If it fails, what cannot be removed is named.
            let _ = free.status();
        }
        if let Err(error) = self.folder.close() {
            note!(
                "note: {} is left behind ({error}); remove it as root",
                self.base.display()
            );
        }
    }

    /// The entry point without a container.
    fn here(&self, dir: &Path, job: &Job) -> Result<Command, Box<dyn Error>> {
        for (name, folder) in &self.channels {
            let link = self.base.join("input/data").join(name);
            symlink(folder, &link).map_err(|error| named(&link, &error))?;
        }
        let code = self.base.join("code");
        copy(&dir.join("code"), &code)?;
        let own = dir.join("stokehold");
        let program = if own.is_file() {
            own.canonicalize()?
        } else {
            env::current_exe()?
        };
        // The script starts it by its name, too.
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = program
            .parent()
            .map(Path::to_owned)
            .into_iter()
            .chain(env::split_paths(&path));
        let path = env::join_paths(folders)?;
        let mut command = Command::new(program);
        command
            .args(["job", "container", "train"])
            .envs(variables(job))
            .env(BASE_VARIABLE, &self.base)
            .env(PROGRAM_VARIABLE, job.entry_point.name())
            .env("PATH", path);
        Ok(command)
    }
}

/// The variables of the container beside those of its image.
fn variables(job: &Job) -> Vec<(String, String)> {
    let name = ("TRAINING_JOB_NAME".to_owned(), job.name_or_made());
    let own = job
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    std::iter::once(name).chain(own).collect()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to).map_err(|error| named(to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| named(from, &error))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &target)?,
            false => fs::copy(&path, &target)
                .map(drop)
                .map_err(|error| named(&path, &error))?,
        }
    }
    Ok(())
}

/// The names of all files below a folder, in their order.
fn below(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(|error| named(&next, &error))? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => names.push(path.strip_prefix(folder).unwrap_or(&path).display().to_string()),
            }
        }
    }
    names.sort();
    Ok(names)
}
