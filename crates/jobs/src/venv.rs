//! `requirements.txt`: a virtual environment, made once for the same text and the same interpreter.
//!
//! ```text
//! JOBS/.environments/<key>/        an environment; the key is a hash of interpreter and text
//! JOBS/.environments/<key>/ready   written last: without it, the environment was cut short and is made anew
//! JOBS/.environments/<key>.lock    held by the process that makes it
//! ```
//!
//! It is made in its place and not renamed into it, because the programs of an environment hold its path.
//!
//! It sees the packages of the interpreter that it is made of: in a container of SageMaker the framework is there already, and
//! requirements.txt adds to it. What the text does not pin is what the index had when the environment was made; removing
//! the folder has it made anew.
//!
//! A text that refers to files beside it (`./package`, `-r more.txt`) says nothing about their content, so its environment
//! is not kept: it belongs to the job.

use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use crate::lines::Lines;
use crate::process::{exit_code, signal_group};
use crate::{Job, JobError};

/// The file's name.
pub(crate) const REQUIREMENTS: &str = "requirements.txt";

/// What the interpreter says of itself and the text.
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

/// Where environments are made, and who hears of it.
pub(crate) struct Maker<'a> {
    pub job: &'a Job,
    /// The folder of all jobs.
    pub jobs: &'a Path,
    /// The job's folder.
    pub folder: &'a Path,
    pub lines: &'a Lines<'a>,
    pub stop: &'a AtomicBool,
}

impl Maker<'_> {
    /// The environment of the requirements in a code folder.
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
        if !ready.exists() {
            self.make(&path, code, &answer)?;
            fs::write(&ready, "").map_err(JobError::io(&ready))?;
        }
        Ok(path)
    }

    fn ask(&self, requirements: &Path) -> Result<Answer, JobError> {
        let python = &self.job.python;
        let answer = self.python(python).arg("-c").arg(ASK).arg(requirements).output();
        let answer = answer.map_err(JobError::io(python))?;
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
        let open = File::options().create(true).append(true).open(path);
        let file = open.map_err(JobError::io(path))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(JobError::io(path)(error)),
            }
            // Another job makes it; that may take as long as downloads take.
            if self.stop.load(Ordering::SeqCst) {
                return Err(JobError::Requirements("stopped".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn make(&self, path: &Path, code: &Path, answer: &Answer) -> Result<(), JobError> {
        // What was cut short.
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JobError::io(path)(error));
            }
            _ => {}
        }
        // Without a pip of its own, which takes seconds: the interpreter's is seen, and installs here.
        let mut venv = self.python(&self.job.python);
        venv.args(["-m", "venv", "--without-pip"]).arg(path);
        self.step("venv", venv)?;
        show_packages(path, &answer.packages).map_err(JobError::io(path))?;
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
        self.step("pip", pip)
    }

    fn python(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(&self.job.environment).env("PYTHONUNBUFFERED", "1");
        command
    }

    /// Runs a program to its end, its lines among the job's.
    fn step(&self, what: &str, mut command: Command) -> Result<(), JobError> {
        let system = |source| JobError::Requirements(format!("{what}: {source}"));
        let (reader, writer) = std::io::pipe().map_err(system)?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(system)?)
            .stderr(writer)
            .process_group(0);
        let mut child = command.spawn().map_err(system)?;
        // It holds the pipe's writing end, too.
        drop(command);
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
                "{what} ended with exit code {}:\n{}",
                code.unwrap_or_default(),
                self.lines.tail(5)
            ))),
        }
    }
}

/// Has an environment see folders of packages behind its own.
fn show_packages(environment: &Path, packages: &[String]) -> std::io::Result<()> {
    let mut text = String::new();
    for folder in packages {
        // A line that begins with `import` is run; this way links of those folders count, too.
        text += &format!(
            "import site; site.addsitedir({})\n",
            crate::python::json(&folder.as_str().into())
        );
    }
    for entry in fs::read_dir(environment.join("lib"))? {
        let packages = entry?.path().join("site-packages");
        if packages.is_dir() {
            fs::write(packages.join("stokehold_outer.pth"), &text)?;
        }
    }
    Ok(())
}

/// Whether requirements say all by themselves: names, versions, URLs and places that are absolute.
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
