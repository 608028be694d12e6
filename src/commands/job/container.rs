//! `stokehold job container`: the entry point of an image. It runs the script that SageMaker's `/opt/ml` describes.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use stokehold_jobs::container::{BASE, BASE_VARIABLE, Container};

use crate::failure::Usage;
use crate::files::named;
use crate::supervise::{self, Ended, Signals};
use crate::terminal::note;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What SageMaker wants of the container
    #[arg(value_name = "WHAT", value_enum, default_value_t = What::Train)]
    what: What,
    /// The user that the script runs as; this command needs to be root then, which SageMaker's /opt/ml belongs to
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// The word with which SageMaker starts an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A training job.
    Train,
}

/// How long the other machines of a job may take until their names are known; the toolkit's limit.
const LATEST: Duration = Duration::from_secs(15 * 60);

/// How often preparation looks whether it is to end, and whether a step is done.
const LOOK: Duration = Duration::from_millis(50);

/// How long the script's last lines may take after its end; something that it left behind may keep the pipe open.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs the script, and leaves `output/success` or `output/failure`, which SageMaker reads.
///
/// # Errors
/// The configuration, the code or its requirements are not there or not right.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let base = std::env::var_os(BASE_VARIABLE).map_or_else(|| PathBuf::from(BASE), PathBuf::from);
    // First of all: the first process of a container gets no signal that it does not ask for.
    let signals = Signals::block()?;
    match work(&base, args, &signals) {
        Ok((ended, reason)) => {
            match (ended.code, ended.interrupted) {
                (0, _) => leave(&base, "success", ""),
                (_, false) => leave(&base, "failure", &reason),
                // Who stops a job knows why it ends.
                (_, true) => {}
            }
            Ok(ExitCode::from(ended.code))
        }
        Err(error) => {
            leave(&base, "failure", &error.to_string());
            Err(error)
        }
    }
}

/// Runs the script. Returns how it ended, and that in words.
fn work(base: &Path, args: &Args, signals: &Signals) -> Result<(Ended, String), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let container = Container::read(base, variable)?;
    let instance = &container.instance;
    for folder in instance.folders() {
        fs::create_dir_all(&folder).map_err(|error| named(&folder, &error))?;
    }
    if let Some(signal) = prepare(&container, signals)? {
        let code = 128 + signal as i32 as u8;
        let ended = Ended {
            code,
            interrupted: true,
        };
        note!("stopped by {signal} before the script began");
        return Ok((ended, String::new()));
    }
    let words = container.command();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .envs(container.variables())
        .current_dir(instance.code())
        .stderr(Stdio::piped());
    if let Some(name) = &args.user {
        become_user(&mut command, name, base)?;
    }
    let mut child = match signals.restore_in(&mut command).spawn() {
        Ok(child) => child,
        Err(error) => return Err(named(Path::new(&words[0]), &error).into()),
    };
    let last = child.stderr.take().map(copied);
    let ended = supervise::follow(&child, signals)?;
    let line = last
        .and_then(|last| last.recv_timeout(LAST_LINES).ok())
        .unwrap_or_default();
    let mut reason = format!("{} ended with exit code {}", instance.host(), ended.code);
    if !line.is_empty() {
        reason += &format!(": {line}");
    }
    Ok((ended, reason))
}

/// Brings the code, installs its requirements and waits for the other machines, in a thread beside this one, which hears signals
/// meanwhile. Returns the signal that ended it.
fn prepare(container: &Container, signals: &Signals) -> Result<Option<Signal>, Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    let steps = || -> Result<(), Failure> {
        // What an image has beside its own code is installed in it already.
        if container.fetch(&stop)?
            && let Some(requirements) = container.requirements()
        {
            install(&container.job.python, &requirements, signals, &stop)?;
        }
        Ok(container.wait_for_machines(LATEST, &stop)?)
    };
    thread::scope(|scope| {
        let work = scope.spawn(steps);
        let mut ended_by = None;
        while !work.is_finished() {
            if let Some(arrived) = signals.wait(Some(LOOK))?.filter(|arrived| arrived.ends())
                && ended_by.is_none()
            {
                stop.store(true, Ordering::SeqCst);
                ended_by = Some(arrived.number);
            }
        }
        match (ended_by, work.join()) {
            // What it fails with then is only that it was stopped.
            (Some(signal), _) => Ok(Some(signal)),
            (None, Ok(done)) => done.map(|()| None).map_err(|error| error as Box<dyn Error>),
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}

/// An error that another thread can return.
type Failure = Box<dyn Error + Send + Sync>;

/// Installs what submitted code asks for, as SageMaker's toolkit does, and ends that when `stop` is set.
fn install(python: &Path, requirements: &Path, signals: &Signals, stop: &AtomicBool) -> Result<(), Failure> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--no-cache-dir", "--requirement"])
        .arg(requirements);
    // The folder in which this process began may be one that the submitted code has replaced.
    if let Some(folder) = requirements.parent() {
        pip.current_dir(folder);
    }
    let mut pip = signals
        .restore_in(&mut pip)
        .spawn()
        .map_err(|error| named(python, &error))?;
    let status = loop {
        if let Some(status) = pip.try_wait()? {
            break status;
        }
        if stop.load(Ordering::SeqCst) {
            pip.kill()?;
        }
        thread::sleep(LOOK);
    };
    match status {
        status if status.success() => Ok(()),
        status => Err(format!("{}: pip could not install it ({status})", requirements.display()).into()),
    }
}

/// Lets a command run as a user, who may write to the job's results and its code.
fn become_user(command: &mut Command, name: &str, base: &Path) -> Result<(), Box<dyn Error>> {
    let Some(user) = User::from_name(name)? else {
        return Err(Usage(format!("--user {name}: there is no such user in this image")).into());
    };
    if geteuid() == user.uid {
        return Ok(());
    }
    if !geteuid().is_root() {
        let text = format!(
            "--user {name}: only root can become another user; leave it out, or start the container as root"
        );
        return Err(Usage(text).into());
    }
    for folder in ["model", "output", "checkpoints", "code"] {
        give(&base.join(folder), &user)?;
    }
    command
        .uid(user.uid.as_raw())
        .gid(user.gid.as_raw())
        .env("HOME", &user.dir)
        .env("USER", name);
    Ok(())
}

/// Gives a folder and all below it to a user. Links are not followed.
fn give(path: &Path, user: &User) -> io::Result<()> {
    lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(|error| named(path, &error))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path).map_err(|error| named(path, &error))? {
            give(&entry?.path(), user)?;
        }
    }
    Ok(())
}

/// Copies a script's standard error to this one's. The receiver gets its last line at its end.
fn copied(from: ChildStderr) -> mpsc::Receiver<String> {
    let (send, last) = mpsc::channel();
    thread::spawn(move || {
        let (mut from, mut line, mut kept) = (BufReader::new(from), Vec::new(), Vec::new());
        // A line without an end is cut, so that its length is bounded.
        while let Ok(1..) = io::Read::take(&mut from, LONGEST).read_until(b'\n', &mut line) {
            // The log may be gone; the script goes on.
            let _ = io::stderr().write_all(&line);
            if !line.trim_ascii().is_empty() {
                kept.clone_from(&line);
            }
            line.clear();
        }
        let _ = send.send(String::from_utf8_lossy(kept.trim_ascii()).into_owned());
    });
    last
}

/// The longest piece of a line, in bytes.
const LONGEST: u64 = 64 << 10;

/// Writes a mark of the end, unless the script did. A link that the script's user left in its place is not followed: this process
/// may be root.
fn leave(base: &Path, name: &str, text: &str) {
    let output = base.join("output");
    let path = output.join(name);
    if !output.is_dir() {
        return;
    }
    match File::create_new(&path).and_then(|mut mark| mark.write_all(text.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => note!("{}: {error}", path.display()),
        _ => {}
    }
}
