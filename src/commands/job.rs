//! `stokehold job`: runs a training script as SageMaker would, and shows jobs.
//!
//! Everything here calls the library `stokehold-jobs`, and formats its results for a terminal.

pub mod at_sagemaker;
pub mod at_slurm;
mod fetch;
mod import;
mod profiler;
mod run;
mod show;
mod trainer;

use crate::terminal;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, Subcommand};
use stokehold_base::shell;
use stokehold_jobs::{Job, Line, Record, Status, Store};
use stokehold_sagemaker::section;

pub use at_sagemaker::At;

use crate::failure::Usage;
use crate::local::{Local, check_variable};
use crate::{files, interrupt};

/// Run a training script as SageMaker would, and look at what was run.
///
/// A job is a folder: its state, its lines, its data and its results. It ends with 0 when it was completed, 1 when it failed
/// or its time was over, 130 when it was stopped.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The folder of all jobs [default: $STOKEHOLD_JOBS, or stokehold/jobs where the user's data lies]
    #[arg(long, value_name = "DIR", global = true)]
    jobs: Option<Local>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job and wait for its end, or leave it in the background.
    Run(Box<run::Args>),
    /// The process that runs a job in the background.
    #[command(hide = true)]
    Runner(run::RunnerArgs),
    /// The process that stands for an instance on another node.
    #[command(hide = true)]
    Instance(at_slurm::InstanceArgs),
    /// List all jobs, the oldest first; of those on SageMaker the newest hundred.
    List {
        /// Print the states as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// Say what is known of a job, and where its files are.
    Show {
        /// The job's name
        name: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// Print the lines of a job.
    Logs {
        /// The job's name
        name: String,
        /// Continue until the job ends
        #[arg(short, long)]
        follow: bool,
        /// Only the lines of one instance, such as algo-1
        #[arg(long)]
        host: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Tell a job to stop: SIGTERM to its script, and SIGKILL when its stop-seconds are over.
    Stop {
        /// The job's name
        name: String,
        /// SIGKILL at once
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        at: At,
    },
    /// Wait for a job to end, and exit with its exit code.
    Wait {
        /// The job's name
        name: String,
        /// Give up (exit code 1) after this time, such as 10m
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        timeout: Option<Duration>,
        /// Print the state as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// Unpack the model of a job into a folder; of one on SageMaker, fetch it first.
    Fetch {
        /// The job's name
        name: String,
        /// The folder, which does not exist yet [default: one of the job's name, here]
        #[arg(value_name = "DIR")]
        folder: Option<Local>,
        #[command(flatten)]
        at: At,
    },
    /// Turn the profiler of a job that runs on or off, or give it another interval.
    Profiler(profiler::Args),
    /// Remove jobs that have ended, with everything in their folders.
    Rm {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Turn a training job of SageMaker into a job file.
    Import(import::Args),
    /// Write a job file with every key explained.
    Init {
        /// The file
        #[arg(default_value = "job.toml")]
        file: Local,
    },
    /// Print the JSON schema of job files, for editors.
    Schema,
    /// Train with Stokehold's own trainer, as the script of a job.
    ///
    /// The channel train, with val if there is one, is the data set, and hyperparameters are options of `stokehold train`. The
    /// run is kept with the checkpoints and resumed from there; at the end the model is in SM_MODEL_DIR, and the run without its
    /// checkpoints in SM_OUTPUT_DATA_DIR.
    Trainer,
}

/// How often to poll a job of another process.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand.
///
/// # Errors
/// Invalid input (exit code 2); files that cannot be read or written (1).
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let store = || -> Result<Store, Box<dyn Error>> {
        let Some(root) = &args.jobs else {
            check_variable("STOKEHOLD_JOBS")?;
            return Ok(Store::of_user()?);
        };
        Ok(Store::new(root)?)
    };
    match args.command {
        Command::Run(asked) => run::run(&store, *asked),
        Command::Runner(asked) => run::runner(&store()?, &asked),
        Command::Instance(asked) => at_slurm::instance(&asked),
        Command::List { json, at } => {
            if let Some(client) = at.client()? {
                return at_sagemaker::list(&client, json);
            }
            let (records, errors) = store()?.list_readable()?;
            match json {
                true => terminal::json(&records)?,
                false => write!(terminal::out(), "{}", show::list(&records))?,
            }
            for error in &errors {
                writeln!(terminal::err(), "error: {error}")?;
            }
            Ok(if errors.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Show { name, json, at } => {
            if let Some(client) = at.client()? {
                return at_sagemaker::show(&client, &name, json);
            }
            let store = store()?;
            let (record, job) = (store.get(&name)?, store.job(&name)?.without_secrets());
            let folder = store.path(&name);
            match json {
                true => terminal::json(&serde_json::json!({"folder": folder, "job": job, "record": record}))?,
                false => write!(terminal::out(), "{}", show::job(&folder, &job, &record))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Logs {
            name,
            follow,
            host,
            at,
        } => match at.client()? {
            Some(client) => at_sagemaker::logs(&client, &name, follow, host.as_deref()),
            None => logs(&store()?, &name, follow, host.as_deref()),
        },
        Command::Stop { name, now, at } => {
            if let Some(client) = at.client()? {
                return at_sagemaker::stop(&client, &name, now);
            }
            let store = store()?;
            let record = if now {
                store.kill(&name)?
            } else {
                store.stop(&name)?
            };
            if record.status.is_final() {
                writeln!(
                    terminal::err(),
                    "job {name} had ended already: {:?}",
                    record.status
                )?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Wait {
            name,
            timeout,
            json,
            at,
        } => match at.client()? {
            Some(client) => at_sagemaker::wait(&client, &name, timeout, json),
            None => wait(&store()?, &name, timeout, json),
        },
        Command::Fetch { name, folder, at } => {
            let into = folder.map_or_else(|| PathBuf::from(&name), |folder| folder.to_path_buf());
            match at.client()? {
                Some(client) => fetch::of_sagemaker(&client, &name, &into),
                None => fetch::of_store(&store()?, &name, &into),
            }
        }
        Command::Profiler(asked) => profiler::run(&asked, &store),
        Command::Rm { names } => {
            let store = store()?;
            for name in &names {
                store.remove(name)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Import(asked) => import::run(&asked),
        Command::Init { file } => init(&file),
        Command::Schema => {
            terminal::json(&section::in_schema(Job::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Trainer => trainer::run(),
    }
}

/// The exit code for a job's end.
fn code(record: &Record) -> ExitCode {
    use stokehold_jobs::Secondary::{MaxRuntimeExceeded, MaxWaitTimeExceeded};
    let is_late = matches!(record.secondary, MaxRuntimeExceeded | MaxWaitTimeExceeded);
    match record.status {
        Status::Completed => ExitCode::SUCCESS,
        Status::Stopped if !is_late => ExitCode::from(interrupt::EXIT_CODE),
        _ => ExitCode::FAILURE,
    }
}

/// Prints a line to the stream that the script printed it to. Its reader may be gone; ignore that.
fn print(line: &Line<'_>) -> io::Result<()> {
    match line.stream {
        "err" => writeln!(io::stderr(), "[{}] {}", line.host, line.text),
        _ => writeln!(io::stdout(), "[{}] {}", line.host, line.text),
    }
}

fn logs(store: &Store, name: &str, follow: bool, host: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let hosts: Vec<String> = (0..store.job(name)?.instances)
        .map(stokehold_jobs::contract::host)
        .collect();
    if let Some(host) = host.filter(|host| !hosts.iter().any(|known| known == host)) {
        let text = format!("job {name} has no instance {host}; it has {}", hosts.join(", "));
        return Err(Usage(text).into());
    }
    let stop = interrupt::flag_for("leaving; the job continues")?;
    let mut from = 0;
    loop {
        // Checked before reading the lines, so that the last lines are not missed.
        let ended = store.get(name)?.status.is_final();
        loop {
            let (text, next) = store.log(name, from)?;
            for line in text.lines().filter_map(Line::parse) {
                if host.is_none_or(|host| line.host == host) {
                    print(&line)?;
                }
            }
            if next == from {
                break;
            }
            from = next;
        }
        if ended || !follow {
            return Ok(ExitCode::SUCCESS);
        }
        if stop.load(Ordering::SeqCst) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        std::thread::sleep(LOOK);
    }
}

fn wait(
    store: &Store,
    name: &str,
    timeout: Option<Duration>,
    json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let record = ended(
        name,
        LOOK,
        timeout,
        || Ok(store.get(name)?),
        |record| (record.status.is_final(), format!("{:?}", record.secondary)),
    )?;
    match json {
        true => terminal::json(&record)?,
        false => writeln!(terminal::out(), "{}", show::end(store, &record))?,
    }
    Ok(code(&record))
}

/// Asks for a job every `look` until it has ended. Ctrl-C ends the program: there is nothing to keep. `state` is whether it has, and what it is in a word.
///
/// # Errors
/// It cannot be asked for, or has not ended after `timeout`.
fn ended<T>(
    name: &str,
    look: Duration,
    timeout: Option<Duration>,
    ask: impl Fn() -> Result<T, Box<dyn Error>>,
    state: impl Fn(&T) -> (bool, String),
) -> Result<T, Box<dyn Error>> {
    interrupt::leave("leaving; the job continues")?;
    let began = Instant::now();
    loop {
        let job = ask()?;
        let (has_ended, word) = state(&job);
        if has_ended {
            return Ok(job);
        }
        let next = Instant::now() + look;
        while Instant::now() < next {
            if let Some(timeout) = timeout.filter(|timeout| began.elapsed() >= *timeout) {
                let timeout = humantime::format_duration(timeout);
                let text = format!("job {name} has not ended after {timeout}; it is {word}");
                return Err(io::Error::other(text).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn init(file: &std::path::Path) -> Result<ExitCode, Box<dyn Error>> {
    files::write_new(file, &section::template())?;
    writeln!(
        terminal::err(),
        "{} is written; this runs it: {}",
        file.display(),
        shell::again([OsStr::new("job"), OsStr::new("run"), file.as_os_str()])
    )?;
    Ok(ExitCode::SUCCESS)
}
