//! `stokehold tune`: find the hyperparameters of a job.
//!
//! Everything here calls the libraries `stokehold-tune` and `stokehold-trials`, and formats their results for a terminal.

mod at_sagemaker;
mod at_slurm;
mod place;
mod watch;

use crate::terminal;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Args as ClapArgs, Subcommand};
use stokehold_base::shell;
use stokehold_trials::run::{self, Ending, Room};
use stokehold_trials::{Plan, TrialsError, report};
use stokehold_tune::{History, Limits, Outcome, Study, Torn, in_words, short, to_csv, to_json};

use self::place::{On, PlaceArgs};
use super::prepare::Show;
use crate::failure::Usage;
use crate::local::Local;
use crate::{files, interrupt};

/// Find the hyperparameters of a job.
///
/// A study is a folder: its journal, and the jobs of its trials. It ends with 0 when it is over and a trial was completed, 1 when none was,
/// 130 when it was interrupted; then `tune resume` continues it.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a study and run it to its end.
    Run {
        /// The study's file; `stokehold tune init` writes one
        #[arg(value_name = "TUNE.toml")]
        file: Local,
        /// The folder that is made [default: TUNE.study, next to the file]
        #[arg(long, value_name = "DIR")]
        study: Option<Local>,
        #[command(flatten)]
        limits: Changed,
        #[command(flatten)]
        place: PlaceArgs,
        /// With --on sagemaker: print the request for the first trial as JSON, without values that look like secrets, and send
        /// nothing
        #[arg(long, requires = "on")]
        dry_run: bool,
    },
    /// Continue a study, after a crash or Ctrl-C, with more jobs, or next to another process.
    ///
    /// Trials whose process is gone continue first, under their numbers and with their checkpoints. Given the
    /// study's file, the study must match it, and the file's limits hold.
    Resume {
        /// The study's folder, or its file
        #[arg(value_name = "STUDY|TUNE.toml")]
        study: Local,
        /// Run one trial at a time here, on all cores and GPUs that this process may use: for workers on machines of their own
        #[arg(long, conflicts_with = "on")]
        one_at_a_time: bool,
        #[command(flatten)]
        limits: Changed,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Say how far a study is, and what was best.
    Status {
        /// The study's folder, or its file
        #[arg(value_name = "STUDY|TUNE.toml")]
        study: Local,
    },
    /// Print all trials for other programs.
    Export {
        /// The study's folder, or its file
        #[arg(value_name = "STUDY|TUNE.toml")]
        study: Local,
        /// One line a trial
        #[arg(long, required_unless_present = "json")]
        csv: bool,
        /// Everything, with every report of each trial
        #[arg(long, conflicts_with = "csv")]
        json: bool,
    },
    /// Explain a study on one page: what was best, how it was found, which parameters matter.
    Report {
        /// The study's folder, or its file
        #[arg(value_name = "STUDY|TUNE.toml")]
        study: Local,
        /// The page [default: STUDY/report.html]
        #[arg(long, value_name = "FILE")]
        output: Option<Local>,
    },
    /// Write a study's file with every key explained.
    Init {
        /// The file
        #[arg(default_value = "tune.toml")]
        file: Local,
    },
}

/// Limits instead of the study's own.
#[derive(Debug, ClapArgs)]
struct Changed {
    /// Trials in all
    #[arg(long, value_name = "N")]
    max_jobs: Option<usize>,
    /// Trials at once
    #[arg(long, value_name = "N")]
    max_parallel_jobs: Option<usize>,
    /// Seconds from the study's start
    #[arg(long, value_name = "SECONDS")]
    max_run_seconds: Option<f64>,
    /// An objective that is good enough
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    target: Option<f64>,
}

impl Changed {
    fn change(&self, limits: &mut Limits) {
        limits.max_jobs = self.max_jobs.unwrap_or(limits.max_jobs);
        limits.max_parallel_jobs = self.max_parallel_jobs.unwrap_or(limits.max_parallel_jobs);
        limits.max_run_seconds = self.max_run_seconds.or(limits.max_run_seconds);
        limits.target = self.target.or(limits.target);
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Invalid input (exit code 2); files that cannot be read or written (1).
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    match args.command {
        Command::Run {
            file,
            study,
            limits,
            place,
            dry_run,
        } => {
            let mut plan = Plan::read(&file)?;
            limits.change(&mut plan.study.limits);
            let folder = study.map_or_else(|| beside(&file), PathBuf::from);
            let on = place.on()?;
            let client = match on {
                Some(On::Sagemaker) => Some(at_sagemaker::client(&plan, place.region())?),
                _ if dry_run => return Err(Usage("--dry-run is for --on sagemaker".to_owned()).into()),
                _ => None,
            };
            if let Some(client) = &client {
                at_sagemaker::check(&plan, client)?;
                if dry_run {
                    return at_sagemaker::dry_run(&plan, &folder, client);
                }
            }
            let mut shows = BTreeMap::new();
            let created = run::create(&plan, &folder, stop_at(on)?, &mut |channel, at| {
                let new = || Show::new(format!("preparing {channel}"));
                shows.entry(channel.to_owned()).or_insert_with(new).at(at);
            });
            shows.values().for_each(Show::done);
            match created {
                Err(error @ TrialsError::Interrupted) => {
                    writeln!(terminal::err(), "{error}")?;
                    Ok(ExitCode::from(interrupt::EXIT_CODE))
                }
                created => {
                    created?;
                    if let Some(client) = &client {
                        at_sagemaker::settle(&folder, client.region())?;
                    }
                    match on {
                        Some(On::Slurm) => at_slurm::run(&folder, place.sbatch()),
                        Some(On::Sagemaker) => at_sagemaker::run(&folder, None, None),
                        None => work(&folder, Room::Shared, None),
                    }
                }
            }
        }
        Command::Resume {
            study,
            one_at_a_time,
            limits,
            place,
        } => {
            let folder = folder(&study);
            let on = place.on()?;
            let mut open = Study::open(&folder)?;
            at_sagemaker::check_place(&folder, open.history(), on == Some(On::Sagemaker))?;
            let mut new = open.history().spec.limits.clone();
            if study.is_file() {
                let plan = Plan::read(&study)?;
                open.fits(&plan.study)?;
                new = plan.study.limits;
            }
            limits.change(&mut new);
            if new != open.history().spec.limits {
                open.set_limits(new)?;
            }
            let torn = open.torn().cloned();
            drop(open);
            match on {
                Some(On::Slurm) => at_slurm::run(&folder, place.sbatch()),
                Some(On::Sagemaker) => at_sagemaker::run(&folder, place.region(), torn),
                None if one_at_a_time => work(&folder, Room::Whole, torn),
                None => work(&folder, Room::Shared, torn),
            }
        }
        Command::Status { study } => {
            let history = Study::look(&folder(&study))?;
            write!(terminal::out(), "{}", watch::status(&history))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Export { study, json, .. } => {
            let history = Study::look(&folder(&study))?;
            match json {
                true => terminal::json(&to_json(&history))?,
                false => write!(io::stdout(), "{}", to_csv(&history))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Report { study, output } => {
            let folder = folder(&study);
            let history = Study::look(&folder)?;
            let page = output.map_or_else(|| folder.join("report.html"), PathBuf::from);
            files::write(&page, report::page(&name(&folder), &history))?;
            writeln!(terminal::out(), "{}", page.display())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Init { file } => init(&file),
    }
}

/// The folder for the study of a file.
fn beside(file: &Path) -> PathBuf {
    file.with_extension("study")
}

fn folder(study: &Path) -> PathBuf {
    match study.is_file() {
        true => beside(study),
        false => study.to_owned(),
    }
}

fn name(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute
        .file_stem()
        .unwrap_or(absolute.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// `torn` is what was removed from the journal's end before.
fn work(folder: &Path, room: Room, torn: Option<Torn>) -> Result<ExitCode, Box<dyn Error>> {
    let plan = Plan::load(folder)?;
    let study = Study::open(folder)?;
    let mut watch = watch::Watch::new();
    say_beginning(&watch, &study, torn.as_ref());
    let ending = run::run(study, &plan, folder, room, stop()?, &mut |news, history| {
        watch.see(&news, history)
    });
    drop(watch);
    let ending = ending?;
    let history = Study::look(folder)?;
    match ending {
        Ending::Interrupted => interrupted(folder, &[]),
        Ending::Finished(end) => finished_here(folder, &history, &format!("over: {end}")),
    }
}

/// Says what was removed from a journal's end, and upon what the study builds.
fn say_beginning(watch: &watch::Watch, study: &Study, torn: Option<&Torn>) {
    if let Some(torn) = torn.or(study.torn()) {
        watch.say(&torn.to_string());
    }
    for parent in &study.history().parents {
        watch.say(&match parent.unfit {
            0 => format!("builds upon {} results of {}", parent.results.len(), parent.name),
            unfit => format!(
                "builds upon {} results of {}; {unfit} more are outside of the ranges",
                parent.results.len(),
                parent.name
            ),
        });
    }
}

fn interrupted(folder: &Path, options: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let words = [OsStr::new("tune"), OsStr::new("resume"), folder.as_os_str()];
    let words = words.into_iter().chain(options.iter().map(OsStr::new));
    writeln!(
        terminal::err(),
        "interrupted; this continues the study: {}",
        shell::again(words)
    )?;
    Ok(ExitCode::from(interrupt::EXIT_CODE))
}

/// The end of a study whose jobs are in its folder.
fn finished_here(folder: &Path, history: &History, how: &str) -> Result<ExitCode, Box<dyn Error>> {
    let best = history.best().map(|best| run::job_name(best.number));
    let jobs = run::jobs(folder)?;
    finished(
        history,
        how,
        best.map(|job| jobs.path(&job).display().to_string()),
    )
}

/// `job` is the best trial's job.
fn finished(history: &History, how: &str, job: Option<String>) -> Result<ExitCode, Box<dyn Error>> {
    write!(terminal::out(), "{}", watch::status(history))?;
    writeln!(terminal::out(), "{how}")?;
    Ok(match job {
        Some(job) => {
            writeln!(terminal::out(), "the best trial's job: {job}")?;
            ExitCode::SUCCESS
        }
        None => {
            writeln!(terminal::err(), "error: {}", why_none(history))?;
            ExitCode::FAILURE
        }
    })
}

fn stop() -> io::Result<&'static AtomicBool> {
    interrupt::flag_for("stopping; press Ctrl-C again to end at once")
}

/// The flag that Ctrl-C sets, for trials that run there.
fn stop_at(on: Option<On>) -> io::Result<&'static AtomicBool> {
    match on {
        Some(On::Sagemaker) => at_sagemaker::stop(),
        Some(On::Slurm) | None => stop(),
    }
}

fn why_none(history: &History) -> String {
    let reason = history
        .trials
        .iter()
        .rev()
        .find_map(|trial| match &trial.outcome {
            Some(Outcome::Failed { reason }) => Some(format!("; trial {}: {reason}", trial.number)),
            _ => None,
        });
    format!("no trial was completed{}", reason.unwrap_or_default())
}

fn init(file: &Path) -> Result<ExitCode, Box<dyn Error>> {
    files::write_new(file, Plan::template())?;
    writeln!(
        terminal::err(),
        "{} is written; this runs it: {}",
        file.display(),
        shell::again([OsStr::new("tune"), OsStr::new("run"), file.as_os_str()])
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The best so far in a few words.
fn best_so_far(history: &History) -> String {
    match history.overall_best() {
        None => "no result yet".to_owned(),
        Some((parent, values, value)) => {
            let whose = parent.map(|name| format!(" of {name}")).unwrap_or_default();
            format!("best {}{whose} with {}", short(value), in_words(values))
        }
    }
}
