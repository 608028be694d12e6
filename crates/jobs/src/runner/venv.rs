//! `requirements.txt`: a virtual environment, made once per text and interpreter.
//!
//! ```text
//! JOBS/.environments/<key>/        an environment; the key is a hash of interpreter and text
//! JOBS/.environments/<key>/ready   written last: without it, the environment was cut short and is made again
//! JOBS/.environments/<key>.lock    held by the process that makes it
//! ```
//!
//! It is made at its final path and not renamed, because the programs of an environment contain its path.
//!
//! It sees the packages of its interpreter: in a SageMaker container the framework is already there, and
//! requirements.txt adds to it. Versions that the text does not pin are those of the index when the
//! environment was made; remove the folder to have it made again.
//!
//! It is made in a [room](crate::runner::room) and with a [home](crate::runner::home) of its own, because installing a
//! package runs its author's code.
//!
//! A text that refers to files next to it (`./package`, `-r more.txt`) does not determine their content, so
//! its environment is not shared: it belongs to the job.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;
use stokehold_base::lock;
use stokehold_base::there::if_there;

use crate::runner::home::{Home, show_packages};
use crate::runner::lines::Lines;
use crate::runner::process::{exit_code, signal_group};
use crate::runner::room::Room;
use crate::{Job, JobError};

/// The file's name.
pub(crate) const REQUIREMENTS: &str = "requirements.txt";

/// A program that asks the interpreter about itself and the text.
const ASK: &str = "import hashlib, json, sys\n\
    packages = [p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]\n\
    about = json.dumps([sys.version, sys.prefix, packages]).encode()\n\
    text = open(sys.argv[1], 'rb').read()\n\
    print(json.dumps({'key': hashlib.sha256(about + text).hexdigest()[:32], 'packages': packages}))\n";

#[derive(Deserialize)]
struct Answer {
    key: String,
    /// Folders of packages that the interpreter sees.
    packages: Vec<String>,
}

/// Makes environments, and reports progress.
pub(crate) struct Maker<'a> {
    pub job: &'a Job,
    /// The folder of all jobs.
    pub jobs: &'a Path,
    /// The job's folder.
    pub folder: &'a Path,
    pub lines: &'a Lines<'a>,
    pub home: &'a Home,
    pub stop: &'a AtomicBool,
}

impl Maker<'_> {
    /// The environment for the requirements in a code folder.
    pub fn environment(&self, code: &Path) -> Result<PathBuf, JobError> {
        let requirements = code.join(REQUIREMENTS);
        let text = fs::read_to_string(&requirements).map_err(JobError::io(&requirements))?;
        let answer = self.ask(&requirements)?;
        if !is_self_contained(&text) {
            let own = self.folder.join("environment");
            self.make(&own, code, &answer)?;
            return Ok(own);
        }
        let all = self.jobs.join(".environments");
        fs::create_dir_all(&all).map_err(JobError::io(&all))?;
        let (path, ready) = (all.join(&answer.key), all.join(&answer.key).join("ready"));
        let _lock = self.lock(&all.join(format!("{}.lock", answer.key)))?;
        tracing::info!(environment = %path.display(), kept = ready.exists(), "requirements");
        if !ready.exists() {
            self.make(&path, code, &answer)?;
            fs::write(&ready, "").map_err(JobError::io(&ready))?;
        }
        Ok(path)
    }

    fn ask(&self, requirements: &Path) -> Result<Answer, JobError> {
        let python = &self.job.python;
        let mut command = Command::new(python);
        // With the user's home: this asks which packages are visible there.
        command
            .envs(&self.job.environment)
            .arg("-c")
            .arg(ASK)
            .arg(requirements);
        let answer = command.output().map_err(JobError::io(python))?;
        serde_json::from_slice(&answer.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&answer.stderr);
            let last = said.lines().last().unwrap_or("it says nothing").to_owned();
            JobError::Requirements(format!(
                "{} cannot be asked for its version: {last}",
                python.display()
            ))
        })
    }

    fn lock(&self, path: &Path) -> Result<File, JobError> {
        // Another job may be making it, which takes as long as its downloads.
        while !self.stop.load(Ordering::SeqCst) {
            let moment = Duration::from_millis(50);
            if let Some(file) = lock::open(path, moment).map_err(JobError::io(path))? {
                return Ok(file);
            }
        }
        Err(JobError::Requirements("stopped".to_owned()))
    }

    fn make(&self, path: &Path, code: &Path, answer: &Answer) -> Result<(), JobError> {
        // Remove what an interrupted run left.
        if_there(fs::remove_dir_all(path)).map_err(JobError::io(path))?;
        // Without its own pip, which would take seconds: the interpreter's pip is visible, and installs here.
        let mut venv = self.python(&self.job.python);
        venv.args(["-m", "venv", "--without-pip"]).arg(path);
        fs::create_dir_all(path).map_err(JobError::io(path))?;
        self.step("venv", venv, path)?;
        show(path, &answer.packages).map_err(JobError::io(path))?;
        let mut pip = self.python(&path.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "-r",
            REQUIREMENTS,
        ]);
        pip.current_dir(code);
        self.step("pip", pip, path)
    }

    fn python(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .envs(self.home.variables())
            .env("PIP_CACHE_DIR", self.cache())
            .envs(&self.job.environment)
            .env("PYTHONUNBUFFERED", "1");
        command
    }

    /// Pip's download cache, for all jobs.
    fn cache(&self) -> PathBuf {
        self.jobs.join(".pip")
    }

    /// Runs a program to its end, with its lines among the job's. In its room it can write only to the
    /// environment, the job's folder and temporary folders.
    fn step(&self, what: &str, mut command: Command, environment: &Path) -> Result<(), JobError> {
        let system = |source| JobError::Requirements(format!("{what}: {source}"));
        let from = self.lines.end();
        let cache = self.cache();
        fs::create_dir_all(&cache).map_err(JobError::io(&cache))?;
        let (reader, writer) = std::io::pipe().map_err(system)?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(system)?)
            .stderr(writer)
            .process_group(0);
        let room = Room {
            read_only: vec![PathBuf::from("/")],
            writable: vec![environment.to_owned(), self.folder.to_owned(), cache],
            ..Room::default()
        };
        // Both branches drop the command, which holds the pipe's writing end.
        let spawned = match self.job.opt_ml {
            true => room.spawn(command),
            false => {
                let spawned = command.spawn();
                drop(command);
                spawned
            }
        };
        let mut child = spawned.map_err(system)?;
        let group = i32::try_from(child.id()).unwrap_or_default();
        let quit = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| self.lines.read(&crate::contract::host(0), "out", reader, &quit));
            let ended = loop {
                match child.try_wait() {
                    Ok(None) if self.stop.load(Ordering::SeqCst) => signal_group(group, Signal::KILL),
                    Ok(None) => {}
                    ended => break ended,
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            signal_group(group, Signal::KILL);
            quit.store(true, Ordering::SeqCst);
            ended
        });
        match ended.map_err(system)?.map(exit_code) {
            Some(0) => Ok(()),
            code => Err(JobError::Requirements(format!(
                "{what} ended with exit code {}: {}",
                code.unwrap_or_default(),
                cause(&self.lines.since(from))
            ))),
        }
    }
}

/// The lines of an installation that say why it failed.
///
/// The output of a package's own code precedes pip's end mark, with its last line last, and the line that
/// names the step comes before it; errors that pip itself finds are marked as errors. Pip's last lines only
/// refer to those.
fn cause(lines: &[String]) -> String {
    let bare = |line: &String| line.trim_start_matches([' ', '|', '│']).trim_end().to_owned();
    if let Some(end) = lines.iter().rposition(|line| bare(line) == "[end of output]") {
        let failed = |line: &&String| line.contains("did not run successfully");
        let step = lines[..end].iter().rfind(failed);
        let step = step.map(|line| {
            line.trim_start_matches([' ', '×', 'x'])
                .trim_end_matches('.')
                .to_owned()
        });
        let said = lines[..end].iter().rev().map(bare).find(|line| !line.is_empty());
        return [step, said].into_iter().flatten().collect::<Vec<_>>().join(": ");
    }
    let errors: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ERROR: "))
        .collect();
    match errors.is_empty() {
        true => lines[lines.len().saturating_sub(5)..].join("\n"),
        false => errors.join("\n"),
    }
}

/// Makes an environment see folders of packages after its own.
fn show(environment: &Path, packages: &[String]) -> std::io::Result<()> {
    for entry in fs::read_dir(environment.join("lib"))? {
        let own = entry?.path().join("site-packages");
        if own.is_dir() {
            show_packages(&own, packages)?;
        }
    }
    Ok(())
}

/// Whether the requirements are complete by themselves: names, versions, URLs and absolute paths.
fn is_self_contained(text: &str) -> bool {
    text.lines().all(|line| {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.starts_with('#') || line.is_empty() {
            return true;
        }
        if let Some(option) = line.strip_prefix('-') {
            let (name, value) = option.split_once([' ', '=']).unwrap_or((option, ""));
            let beside = ["r", "c", "e", "-requirement", "-constraint", "-editable"];
            let place = ["f", "-find-links"].contains(&name);
            let value = value.trim();
            return !beside.contains(&name) && (!place || value.starts_with('/') || value.contains("://"));
        }
        let packed = [".whl", ".gz", ".zip"].iter().any(|end| line.ends_with(end));
        line.contains("://") && !line.contains("file:")
            || !packed && !line.contains('/') && !line.starts_with('.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refers_to_files_beside_it_is_told_apart() {
        for text in [
            "",
            "# nothing\n\n",
            "numpy==2.0  # because\ntorch>=2 ; python_version < '4'\nx[extra]~=1.0",
            "--index-url https://host/simple\n--no-index\n-f /wheels\n--find-links=https://host/x\nx",
            "x @ https://host/x-1.whl\ngit+https://host/x.git",
            "x==1 \\\n    --hash=sha256:00",
        ] {
            assert!(is_self_contained(text), "{text}");
        }
        for text in [
            "-r more.txt",
            "--requirement=more.txt",
            "-c pins.txt",
            "-e .",
            ".",
            "./package",
            "wheels/x-1.whl",
            "x-1.whl",
            "/abs/package",
            "x @ file:///abs/x",
            "--find-links wheels\nx",
            "-f wheels\nx",
        ] {
            assert!(!is_self_contained(text), "{text}");
        }
    }
}
