//! `stokehold profile`: record a command, a process, or change a recording that runs.
//!
//! A command runs as a child in our process group, with our input and output. Terminals send their signals to
//! the whole group, so the command gets those directly; signals that are sent to this process alone are
//! forwarded. The command's orphans become our children (`PR_SET_CHILD_SUBREAPER`), so that none leaves the
//! tree that is followed. A Python command has a hook, which says when its loaders and optimizers do what.
use stokehold_base::shell;
use stokehold_base::words::plural;

use crate::terminal::note;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args as ClapArgs, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stokehold_diagnose::advice::{Prices, advise, verdict};
use stokehold_profile::timeline::{Spans, VARIABLE};
use stokehold_profile::workload::Workload;
use stokehold_profile::{
    Change, Ending, FOLDER, ProfileError, Recorder, Recording, Settings, SystemSummary, Tree,
};
use stokehold_script::{Changes, Recorded, Seen, Watched};

use crate::failure::Usage;
use crate::local::Local;
use crate::supervise::{self, Ended, Signals};

/// Record what the machine does while a command runs, whatever it is.
///
/// Signals and the exit code of the command pass through: 128 + the signal that ended it, 127 where there is no such
/// command, 126 where it cannot be run.
#[derive(Debug, ClapArgs)]
#[command(override_usage = "stokehold profile [OPTIONS] [--] COMMAND ..\n       \
    stokehold profile [OPTIONS] --pid PID\n       \
    stokehold profile --attach RUN [--sampling on|off] [--interval TIME]")]
pub struct Args {
    /// Record this process and its descendants until it ends, or until Ctrl-C.
    #[arg(long, conflicts_with_all = ["attach", "command"])]
    pid: Option<u32>,
    /// Change the recording that is being made in this folder.
    #[arg(long, value_name = "RUN", conflicts_with = "command")]
    attach: Option<Local>,
    /// With --attach: whether it takes samples.
    #[arg(long, value_name = "on|off")]
    sampling: Option<Switch>,
    /// Time between two samples, 100ms to 60s [default: 500ms].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    /// The folder of the recording [default: runs/NAME-TIME].
    #[arg(short, long, value_name = "DIR", conflicts_with = "attach")]
    output: Option<Local>,
    /// What the samples may take of the disk; the oldest go first.
    #[arg(long, value_name = "MIB", default_value_t = 8192, conflicts_with = "attach")]
    limit: u64,
    /// Compress hours that are over. SageMaker Debugger's readers do not read those.
    #[arg(long, conflicts_with = "attach")]
    gzip: bool,
    /// Leave Python programs as they are: no steps, waits and advice for PyTorch scripts.
    #[arg(long, conflicts_with_all = ["attach", "pid"])]
    no_python_hook: bool,
    /// Fetch a few batches of a PyTorch script with fast images, of the same pixels, to tell what these would save. The script's Python
    /// needs the package stokehold.
    #[arg(long, conflicts_with_all = ["attach", "pid", "no_python_hook"])]
    fast_images: bool,
    /// The command, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Whether a recording takes samples.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// How often to poll a process that is not our child.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand.
///
/// # Errors
/// Errors of the options, and the reason why nothing can be recorded.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(run) = &args.attach {
        return attach(run, &args);
    }
    if args.sampling.is_some() {
        return Err(Usage(
            "--sampling changes a recording that runs: say which with --attach RUN".to_owned(),
        )
        .into());
    }
    // Before the first thread is started: threads inherit the blocked signals.
    let signals = Signals::block()?;
    match (args.pid, args.command.is_empty()) {
        (Some(pid), _) => record_process(pid, &args, &signals),
        (None, false) => record_command(&args, &signals),
        (None, true) => Err(Usage("what to record? Give a command, or --pid PID".to_owned()).into()),
    }
}

/// Changes a running recording.
fn attach(run: &Path, args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let change = Change {
        on: args.sampling.map(|switch| matches!(switch, Switch::On)),
        interval_ms: args.interval.map(|interval| interval.as_millis() as u64),
    };
    if change == Change::default() {
        return Err(Usage(
            "what to change? Give --sampling on, --sampling off or --interval TIME".to_owned(),
        )
        .into());
    }
    let folder = Some(run.join(FOLDER)).filter(|folder| folder.is_dir());
    change.send(folder.as_deref().unwrap_or(run))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command and records it.
fn record_command(args: &Args, signals: &Signals) -> Result<ExitCode, Box<dyn Error>> {
    let name = Path::new(&args.command[0]).file_name().unwrap_or_default();
    let dir = Output::of(args, &name.to_string_lossy())?;
    let changes = (!args.no_python_hook).then(|| Changes {
        compare_images: args.fast_images,
        ..Changes::default()
    });
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let done = record(
        command,
        &dir.run,
        args.recording_options(),
        changes.as_ref(),
        signals,
    )?;
    match &done.workload {
        Some(workload) => note!("stokehold: {}", summary(workload)),
        None => done.notes.iter().for_each(|note| note!("stokehold: {note}")),
    }
    if let Some(done_recording) = done.recording {
        dir.tell(done_recording);
    }
    Ok(ExitCode::from(done.code))
}

/// How the script spent its time, in a line.
fn summary(workload: &Workload) -> String {
    let advice = advise(workload, &Prices::built_in());
    verdict(&Recording::default(), &[], Some(workload), &advice)
}

/// What a recording keeps.
#[derive(Debug, Clone, Copy)]
pub struct RecordingOptions {
    pub interval: Duration,
    /// Bytes of samples.
    pub limit: u64,
    pub gzip: bool,
}

/// A Python that starts its hook has done so by then.
const HOOK_STARTS: Duration = Duration::from_secs(15);

/// Runs a command, and records it into the folder of a run; with a hook that makes `changes` in Python programs, if they are
/// given.
///
/// # Errors
/// The folder cannot be written; no thread or process can be started for the recording; a Python that the hook was to end did not
/// start it.
pub fn record(
    mut command: Command,
    run: &Path,
    options: RecordingOptions,
    changes: Option<&Changes>,
    signals: &Signals,
) -> Result<Recorded, Box<dyn Error>> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<OsString> = words.map(OsStr::to_owned).collect();
    supervise::adopt_orphans()?;
    let shown = words.iter().map(|word| word.to_string_lossy().into_owned());
    let recorder = options.open(run, Tree::Below(std::process::id()), shown.collect())?;
    let spans = Spans::take(recorder.folder());
    command.env(VARIABLE, spans.address());
    let watched = changes.map(|changes| Watched::begin(&words, &run.join(FOLDER), changes));
    if let Some(watched) = &watched {
        watched.set(&mut command);
    }
    let watching = watched.as_ref();
    let child = match signals.restore_in(&mut command).spawn() {
        Ok(child) => child,
        Err(error) => {
            drop((spans, watched));
            if let Err(error) = recorder.take_back() {
                note!("stokehold: {error}");
            }
            return Ok(Recorded {
                code: supervise::not_started(&words[0], &error),
                interrupted: false,
                workload: None,
                loaders: Vec::new(),
                notes: Vec::new(),
                recording: None,
            });
        }
    };
    let sampler = recorder.start()?;
    let only_a_part = changes.is_some_and(Changes::ends_the_script);
    let (ended, unseen) = follow(&child, signals, watching.filter(|_| only_a_part));
    let Ended { code, interrupted } = ended?;
    if changes.is_some_and(Changes::ends_the_script) {
        supervise::end_orphans();
    }
    let Seen {
        workload,
        loaders,
        notes,
    } = watching.map_or_else(Seen::default, Watched::finish);
    let mut all = spans.finish();
    all.extend(notes.iter().cloned());
    let done = sampler.stop(Ending {
        exit_code: Some(i32::from(code)),
        workload: workload.clone(),
        notes: all,
    });
    if unseen && !interrupted {
        return Err(Usage(notes.join("; ")).into());
    }
    Ok(Recorded {
        code,
        interrupted,
        workload,
        loaders,
        notes,
        recording: Some(done),
    })
}

/// Follows a command to its end. Ends a Python whose hook was to end it and has not started; returns whether it did.
fn follow(child: &Child, signals: &Signals, watched: Option<&Watched>) -> (nix::Result<Ended>, bool) {
    let pid = Pid::from_raw(child.id() as i32);
    thread::scope(|scope| {
        let (done, ends) = mpsc::channel::<()>();
        let guard = scope.spawn(move || {
            let waits = ends.recv_timeout(HOOK_STARTS) == Err(RecvTimeoutError::Timeout);
            waits && watched.is_some_and(Watched::lacks_the_hook) && kill(pid, Signal::SIGTERM).is_ok()
        });
        let ended = supervise::follow(child, signals);
        drop(done);
        (ended, guard.join().unwrap_or_default())
    })
}

impl RecordingOptions {
    /// Opens the recording.
    fn open(self, run: &Path, tree: Tree, command: Vec<String>) -> Result<Recorder, ProfileError> {
        let mut settings = Settings::new(tree, command);
        settings.interval = self.interval;
        settings.files.limit = self.limit;
        settings.files.gzip = self.gzip;
        Recorder::open(&run.join(FOLDER), settings)
    }
}

impl Default for RecordingOptions {
    fn default() -> Self {
        Self {
            interval: Settings::INTERVAL,
            limit: 8192 << 20,
            gzip: false,
        }
    }
}

impl Args {
    fn recording_options(&self) -> RecordingOptions {
        RecordingOptions {
            interval: self.interval.unwrap_or(Settings::INTERVAL),
            limit: self.limit.saturating_mul(1 << 20),
            gzip: self.gzip,
        }
    }
}

/// Records a running process.
fn record_process(pid: u32, args: &Args, signals: &Signals) -> Result<ExitCode, Box<dyn Error>> {
    let proc = Path::new("/proc").join(pid.to_string());
    let Some((name, began)) = process(&proc) else {
        let text = format!("there is no process {pid}; `ps -e` lists the running processes");
        return Err(Usage(text).into());
    };
    if let Err(error) = fs::read(proc.join("io"))
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        let text = format!("process {pid} belongs to another user: run this as that user, or as root");
        return Err(Usage(text).into());
    }
    let dir = Output::of(args, &name)?;
    let command = fs::read(proc.join("cmdline")).unwrap_or_default();
    let words = command
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let recorder = args
        .recording_options()
        .open(&dir.run, Tree::Of(pid), words.collect())?;
    let sampler = recorder.start()?;
    note!("stokehold: recording process {pid} ({name}) until it ends; Ctrl-C ends the recording");
    while process(&proc).is_some_and(|(_, still)| still == began) {
        let signal = signals.wait(Some(LOOK))?.map(|signal| signal.number);
        match signal {
            Some(Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT) => break,
            Some(Signal::SIGTSTP) => kill(Pid::this(), Signal::SIGSTOP)?,
            _ => {}
        }
    }
    let done = sampler.stop(Ending::default());
    let failed = done.is_err();
    dir.tell(done);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Name and start time of a process that has not ended.
fn process(proc: &Path) -> Option<(String, u64)> {
    let stat = fs::read(proc.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (head, tail) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split(' ').collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    // proc(5): field 22; this part of the line begins with field 3.
    let began = fields.get(19)?.parse().ok()?;
    (!ended).then_some((name, began))
}

/// The folder of a recording.
struct Output {
    run: PathBuf,
    began: Instant,
}

impl Output {
    fn of(args: &Args, name: &str) -> Result<Self, Box<dyn Error>> {
        let run = args
            .output
            .clone()
            .map_or_else(|| default_folder(name), PathBuf::from);
        if run.is_file() {
            return Err(Usage(format!("{} is a file; -o takes a folder", run.display())).into());
        }
        stokehold_profile::check_free(&run.join(FOLDER))?;
        if run.join(FOLDER).join(stokehold_profile::About::FILE).exists() {
            let text = format!(
                "{} holds a recording already; give another folder with -o",
                run.display()
            );
            return Err(Usage(text).into());
        }
        Ok(Self {
            run,
            began: Instant::now(),
        })
    }

    /// Prints where the recording is, or why it failed.
    fn tell(&self, done: Result<SystemSummary, ProfileError>) {
        let run = self.run.display();
        let told = match done {
            Ok(summary) => format!(
                "stokehold: {} of {:.1} s are in {run}; {} shows them",
                plural(summary.ticks as usize, "sample"),
                self.began.elapsed().as_secs_f64(),
                shell::again([OsStr::new("report"), self.run.as_os_str()])
            ),
            Err(error) => format!("stokehold: the recording in {run} is not whole: {error}"),
        };
        note!("{told}");
    }
}

/// `runs/NAME-TIME`, with a name that does not exist yet.
fn default_folder(name: &str) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    let stem = format!("{plain}-{}", time.replace(':', ""));
    let path = |number: u32| match number {
        1 => Path::new("runs").join(&stem),
        _ => Path::new("runs").join(format!("{stem}-{number}")),
    };
    (1..).map(path).find(|path| !path.exists()).unwrap_or_default()
}
