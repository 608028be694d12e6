//! `stokehold top`: shows a run, or this machine, live in the terminal.
//!
//! Every second the last minutes of the recording are read again. Only the files of the run are needed, so
//! any run can be watched, from any machine with access to its folder. Without a run, this machine is
//! recorded into a temporary folder, and shown in the same way.

mod frame;
mod keys;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use stokehold_base::clock::unix_now;
use stokehold_diagnose::curves::Following;
use stokehold_diagnose::report::run_folder;
use stokehold_diagnose::rules::{Defaults, Parameters, judge};
use stokehold_profile::{FOLDER, Recording, Sampler, Settings, Tree};
use tempfile::TempDir;

use crate::interrupt;
use crate::local::Local;
use view::Now;

/// The time range of the heat map, seconds.
const WINDOW: f64 = 180.0;
/// The most disk space for the recording of this machine, bytes.
const OWN_BYTES: u64 = 64 << 20;
/// Time between two updates.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The run's folder; this machine without one.
    run: Option<Local>,
}

/// Runs the subcommand.
///
/// # Errors
/// A folder that is not a run (exit code 2); a terminal or a temporary folder that cannot be used (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("leaving")?;
    let mut watched = Watched::new(args.run.as_deref())?;
    let mut terminal = match io::stdout().is_terminal() {
        true => Some(keys::Terminal::enter()?),
        false => None,
    };
    let mut told = String::new();
    loop {
        let now = watched.look()?;
        let looked = Instant::now();
        match &mut terminal {
            Some(terminal) => terminal.draw(|width, height| view::draw(&now, width, height))?,
            None => {
                let line = view::line(&now);
                // A run that is switched off has no news: print its line once.
                if line != told {
                    writeln!(io::stdout(), "{line}")?;
                    told = line;
                }
                if now.ended {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        while looked.elapsed() < EVERY {
            if stop.load(Ordering::SeqCst) {
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            match &mut terminal {
                Some(terminal) => {
                    if terminal.asks_to_leave() {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// What is watched.
struct Watched {
    folder: PathBuf,
    title: String,
    parameters: Parameters,
    /// The numbers that the run reports.
    following: Following,
    /// A run that had ended before it was first read.
    old: Option<Recording>,
    /// The recording of this machine, if no run was named.
    _own: Option<Own>,
}

impl Watched {
    fn new(run: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let (own, folder, title) = match run {
            Some(run) => (None, run.to_owned(), run.display().to_string()),
            None => {
                let own = Own::start()?;
                let folder = own.folder.path().to_owned();
                (Some(own), folder, "this machine".to_owned())
            }
        };
        let mut watched = Self {
            following: Following::new(run_folder(&folder)),
            folder,
            title,
            parameters: Parameters::new(Defaults::default()),
            old: None,
            _own: own,
        };
        let recent = Recording::open_since(&watched.folder, unix_now() - WINDOW)?;
        if recent.extent().is_none() {
            // Nothing recent: a past run, or one without its first sample.
            let whole = Recording::open(&watched.folder)?;
            watched.old = Some(whole).filter(|run| run.extent().is_some());
        }
        Ok(watched)
    }

    fn look(&mut self) -> Result<Now, Box<dyn Error>> {
        let recent = Recording::open_since(&self.folder, unix_now() - WINDOW)?;
        if recent.extent().is_some() {
            self.old = None;
        }
        let recording = self.old.as_ref().unwrap_or(&recent);
        let to = recording
            .nodes
            .iter()
            .filter_map(|node| node.ticks.last().copied());
        // If nothing is sampled, only spans give the time.
        let to = to.reduce(f64::max).or(recording.extent().map(|extent| extent.1));
        let mut recording = recording.after(to.unwrap_or(0.0) - WINDOW);
        // Even for an old run, the folder says whether it is running now.
        recording.about = recent.about;
        let findings = judge(&recording, &self.parameters);
        let now = unix_now();
        // Numbers that cannot be read now are read at the next look.
        let _ = self.following.look(&|_| Some(now), &mut |_| {});
        let curves = self.following.curves();
        Ok(Now::of(&self.title, &recording, &findings, curves, now, WINDOW))
    }
}

/// A recording of this machine, made to be shown.
struct Own {
    /// Dropped before the folder: it stops writing before the folder is removed.
    _sampler: Sampler,
    folder: TempDir,
}

impl Own {
    fn start() -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::Builder::new().prefix("stokehold-top-").tempdir()?;
        let mut settings = Settings::of_this_program(Tree::Machine);
        settings.files.limit = OWN_BYTES;
        let sampler = Sampler::start(&folder.path().join(FOLDER), settings)?;
        Ok(Self {
            _sampler: sampler,
            folder,
        })
    }
}
