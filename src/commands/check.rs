//! `stokehold check -- COMMAND`: what Stokehold can do for each loader of a PyTorch script, and why not.

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitCode};

use clap::Args as ClapArgs;
use serde::Serialize;
use stokehold_base::shell;
use stokehold_diagnose::advice::Advice;
use stokehold_script::{Changes, Script, Unserved, starts_no_hook};

use super::profile::{RecordingOptions, record};
use crate::failure::Usage;
use crate::interrupt;
use crate::supervise::Signals;
use crate::terminal;

/// How long the script trains, where no number of steps is given, seconds.
const SECONDS: f64 = 5.0;

/// Say what Stokehold can do for each DataLoader of a PyTorch script, and why not.
///
/// The script runs until it has trained for 5 seconds, and on at least ten batches. Some of these are fetched with fast images, which have
/// the same pixels. Files that the script writes are written as usual.
#[derive(Debug, ClapArgs)]
#[command(override_usage = "stokehold check [OPTIONS] [--] COMMAND ..")]
pub struct Args {
    /// Batches after which the script ends [default: as many as take 5 s, at least 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    steps: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The script, with its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required = true)]
    command: Vec<OsString>,
}

/// A loader of the script, or several that are alike.
#[derive(Debug, Serialize)]
struct Checked {
    /// How many they are.
    loaders: u64,
    /// The class of its data set.
    dataset: String,
    batch_size: Option<u64>,
    num_workers: u64,
    /// Batches that were trained on, and others.
    trained: u64,
    validated: u64,
    /// CPU time of an image in a worker, seconds.
    image_cpu_seconds: Option<f64>,
    fast_images: Served,
    swap_loader: Served,
}

/// Whether something serves a loader.
#[derive(Debug, PartialEq, Serialize)]
struct Served {
    /// `None` if that is not known.
    serves: Option<bool>,
    /// The share of an image's CPU time that is left, where it was measured.
    cpu_left: Option<f64>,
    /// Every reason why not.
    why_not: Option<String>,
}

impl Served {
    /// That it does not serve a loader, or that nothing tells, and why.
    fn unserved(&self) -> String {
        let answer = match self.serves {
            Some(_) => "no",
            None => "not known",
        };
        match &self.why_not {
            Some(why) => format!("{answer}: {why}\n"),
            None => format!("{answer}\n"),
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// A Python that starts no hook, a script that failed, and one that iterates over no DataLoader.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(why) = starts_no_hook(&args.command) {
        return Err(Usage(why).into());
    }
    let signals = Signals::block()?;
    let folder = tempfile::tempdir()?;
    let changes = Changes {
        convert: true,
        compare_images: true,
        steps: args.steps,
        seconds: args.steps.is_none().then_some(SECONDS),
        ..Changes::default()
    };
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let seen = record(
        command,
        folder.path(),
        RecordingOptions::default(),
        Some(&changes),
        &signals,
    )?;
    if seen.interrupted {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    if !seen.started() {
        return Err(Usage("the script did not start".to_owned()).into());
    }
    if seen.code != 0 {
        return Err(format!("the script ended with exit code {}", seen.code).into());
    }
    if seen.loaders.is_empty() {
        let mut text = "no process of the script iterated over a DataLoader of torch".to_owned();
        for note in &seen.notes {
            text += &format!("; {note}");
        }
        return Err(Usage(text).into());
    }
    let mut all: Vec<Checked> = Vec::new();
    for one in seen.loaders.iter().map(checked) {
        match all.iter_mut().find(|other| other.is_like(&one)) {
            Some(other) => other.join(one),
            None => all.push(one),
        }
    }
    if args.json {
        terminal::json_text(&serde_json::to_string_pretty(
            &serde_json::json!({ "loaders": all }),
        )?)?;
    } else {
        write!(terminal::out(), "{}", text(&all, &args.command))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// More of an image's CPU time than this is no gain: two equal runs differ by as much.
const WORTH: f64 = 1.0 - Advice::WORTH_PERCENT / 100.0;

impl Checked {
    fn is_like(&self, other: &Self) -> bool {
        (
            &self.dataset,
            self.batch_size,
            self.num_workers,
            &self.swap_loader,
        ) == (
            &other.dataset,
            other.batch_size,
            other.num_workers,
            &other.swap_loader,
        )
    }

    /// Counts another loader, too; of both what is known of fast images.
    fn join(&mut self, other: Self) {
        self.loaders += other.loaders;
        self.trained += other.trained;
        self.validated += other.validated;
        if self.fast_images.cpu_left.is_none() {
            (self.fast_images, self.image_cpu_seconds) = (other.fast_images, other.image_cpu_seconds);
        }
    }
}

fn checked(script: &Script) -> Checked {
    let loader = &script.loader;
    let fast = script.with_fast_images();
    Checked {
        loaders: loader.loaders.max(1),
        dataset: loader.dataset.clone(),
        batch_size: loader.batch_size,
        num_workers: loader.num_workers,
        trained: loader.train.batches,
        validated: loader.evaluate.batches,
        image_cpu_seconds: script.image_cpu_seconds(),
        fast_images: Served {
            serves: match &fast {
                Ok(left) => Some(*left <= WORTH),
                Err(Unserved::Refused(_)) => Some(false),
                Err(Unserved::Unknown(_)) => None,
            },
            cpu_left: fast.as_ref().ok().copied(),
            why_not: fast.err().map(|why| why.to_string()),
        },
        swap_loader: Served {
            serves: match (&loader.pipeline, &loader.swap_refused) {
                (Some(_), _) => Some(true),
                (None, Some(_)) => Some(false),
                (None, None) => None,
            },
            cpu_left: None,
            why_not: loader.swap_refused.clone(),
        },
    }
}

fn text(all: &[Checked], command: &[OsString]) -> String {
    let again = |option: &str| {
        let words = ["run", option, "--"].map(OsString::from);
        shell::again(words.into_iter().chain(command.iter().cloned()))
    };
    let mut text = String::new();
    for loader in all {
        let batch = loader
            .batch_size
            .map_or(String::new(), |size| format!(", batches of {size}"));
        let several = match loader.loaders {
            1 => String::new(),
            n => format!("{n} loaders, "),
        };
        text += &format!(
            "DataLoader over {}{batch}, num_workers={}: {several}{} batches trained on, {} others\n",
            loader.dataset, loader.num_workers, loader.trained, loader.validated
        );
        text += "  fast images         ";
        text += &match (loader.fast_images.cpu_left, loader.image_cpu_seconds) {
            (Some(left), Some(cpu)) if loader.fast_images.serves != Some(true) => format!(
                "no gain: an image costs {:.2} ms of CPU time with them and {:.2} ms without\n",
                1e3 * cpu * left,
                1e3 * cpu
            ),
            (Some(left), Some(cpu)) => format!(
                "yes: an image costs {:.2} ms of CPU time instead of {:.2} ms\n                      {}\n",
                1e3 * cpu * left,
                1e3 * cpu,
                again("--fast-images")
            ),
            _ => loader.fast_images.unserved(),
        };
        text += "  Stokehold's loader  ";
        text += &match &loader.swap_loader.why_not {
            None if loader.swap_loader.serves == Some(true) => {
                format!("yes\n                      {}\n", again("--swap-loader"))
            }
            // A line for each of several reasons.
            _ => loader
                .swap_loader
                .unserved()
                .replace(" \n-", "\n-")
                .replace("\n-", "\n                      -"),
        };
    }
    text
}
