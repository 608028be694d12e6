//! `stokehold runs`: what there is in a folder of runs, and what two runs differ in.
//!
//! A run is a folder with the `run.json` of `stokehold train`, or with a recording. Nothing else is listed, and nothing else is
//! removed.

mod export;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use stokehold_base::shell;
use stokehold_diagnose::runs::{Run, differing};
use stokehold_diagnose::{curves, events};
use stokehold_page::Table;
use stokehold_page::words::{digits, duration, moment};
use stokehold_profile::{FOLDER, Recording};

use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};
use export::{Exported, Format};

#[derive(Debug, Subcommand)]
pub enum Args {
    /// The runs in a folder, the latest first.
    List(List),
    /// A run's settings and results.
    Show(Show),
    /// Remove runs: what Stokehold has written into their folders, and the folders if nothing else is there.
    Rm(Remove),
    /// What two runs differ in: settings, and results side by side.
    Diff(Diff),
    /// A run's numbers for TensorBoard or MLflow.
    Export(Export),
}

#[derive(Debug, ClapArgs)]
pub struct List {
    /// The folder of the runs.
    #[arg(default_value = "runs")]
    runs: Local,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Show {
    /// The run's folder.
    run: Local,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Remove {
    /// The runs' folders.
    #[arg(required = true)]
    runs: Vec<Local>,
}

#[derive(Debug, ClapArgs)]
pub struct Diff {
    /// The first run.
    a: Local,
    /// The second run.
    b: Local,
    /// Print the differences as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Export {
    /// The run's folder.
    run: Local,
    /// The folder that is written: the logdir of TensorBoard, or the file store of MLflow.
    dir: Local,
    /// For which program.
    #[arg(long, value_enum)]
    format: Format,
}

/// Runs the subcommand.
///
/// # Errors
/// A folder that is no run, or one that is in use (exit code 2); a file that cannot be read or removed (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    match args {
        Args::List(list) => self::list(list)?,
        Args::Show(show) => self::show(show)?,
        Args::Rm(remove) => self::remove(remove)?,
        Args::Diff(diff) => self::diff(diff)?,
        Args::Export(export) => self::export(export)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The run in a folder.
///
/// # Errors
/// [`Usage`] where there is none.
fn there(folder: &Path) -> Result<Run, Box<dyn Error>> {
    Run::of(folder)?.ok_or_else(|| {
        let text = format!(
            "{}: no run is there: it has neither a run.json nor a recording",
            folder.display()
        );
        Usage(text).into()
    })
}

fn list(args: &List) -> Result<(), Box<dyn Error>> {
    let entries = match fs::read_dir(&args.runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Usage(format!("{}: there is no such folder", args.runs.display())).into());
        }
        Err(error) => return Err(format!("{}: {error}", args.runs.display()).into()),
    };
    let mut runs = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        match Run::of(&folder) {
            Ok(run) => runs.extend(run),
            // One that cannot be read hides no other.
            Err(error) => note!("{}: {error}", folder.display()),
        }
    }
    runs.sort_by(|a, b| b.began().unwrap_or(0.0).total_cmp(&a.began().unwrap_or(0.0)));
    if args.json {
        let all: Vec<Value> = runs.iter().map(Run::json).collect();
        terminal::json(&Value::from(all))?;
        return Ok(());
    }
    let mut table = Table::new(
        &[
            "run", "what", "began", "state", "epochs", "s/epoch", "waits", "result",
        ],
        &[0, 1, 2, 3, 4, 7],
    );
    for run in &runs {
        let results = run.results();
        let of = |name| results.get(name).copied();
        table.row([
            run.folder.display().to_string(),
            run.what(),
            run.began().map(moment).unwrap_or_default(),
            run.state().to_owned(),
            run.epochs()
                .map(|epochs| format!("{}/{}", epochs.done, epochs.of))
                .unwrap_or_default(),
            of("seconds per epoch").map(digits).unwrap_or_default(),
            of("wait share")
                .map(|share| format!("{:.0} %", 100.0 * share))
                .unwrap_or_default(),
            run.score()
                .map(|(name, value)| format!("{name} {value:.4}"))
                .unwrap_or_default(),
        ]);
    }
    match table.is_empty() {
        true => note!("{}: no run is there", args.runs.display()),
        false => write!(terminal::out(), "{}", table.text())?,
    }
    Ok(())
}

fn show(args: &Show) -> Result<(), Box<dyn Error>> {
    let run = there(&args.run)?;
    if args.json {
        terminal::json(&run.json())?;
        return Ok(());
    }
    let mut out = terminal::out();
    writeln!(out, "{}: {}, {}", run.folder.display(), run.what(), run.state())?;
    let ended = run
        .about
        .as_ref()
        .and_then(|about| Some(about.ended? - about.started));
    if let Some(began) = run.began() {
        let took = ended.map(|seconds| format!(", from its begin to its last end {}", duration(seconds)));
        writeln!(out, "began {}{}", moment(began), took.unwrap_or_default())?;
    }
    writeln!(out, "{} MB", digits(bytes_below(&run.folder) as f64 / 1e6))?;
    for (name, value) in run.results() {
        writeln!(out, "  {name:<18} {}", digits(value))?;
    }
    writeln!(out, "settings")?;
    for (name, value) in run.settings() {
        writeln!(out, "  {name:<28} {}", plain(&value))?;
    }
    if run.is_training() && run.state() != "running" {
        let go_on = shell::again(["train".as_ref(), "--resume".as_ref(), run.folder.as_os_str()]);
        let how = if run.state() == "finished" {
            format!("{go_on} --epochs N")
        } else {
            go_on
        };
        writeln!(out, "to continue: {how}")?;
    }
    Ok(())
}

/// What Stokehold writes into a run's folder; nothing else of it is removed.
const OWN: [&str; 14] = [
    "run.json",
    "lock",
    "metrics.jsonl",
    "summary.json",
    "summary.txt",
    "model.safetensors",
    "ema.safetensors",
    "checkpoints",
    "ranks",
    "output.log",
    "prediction.json",
    FOLDER,
    "rule-output",
    "evaluation",
];

fn remove(args: &Remove) -> Result<(), Box<dyn Error>> {
    // All of them are looked at before the first is removed.
    let mut folders = Vec::new();
    for named in &args.runs {
        let refused = |why: &str| Usage(format!("{}: {why}; nothing is removed", named.display()));
        // Without a slash at its end, which would follow a link.
        let folder: PathBuf = named.components().collect();
        if folder.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
            return Err(refused("it is a link; name the folder itself").into());
        }
        let run = there(&folder)?;
        if run.in_use {
            return Err(refused("it is running").into());
        }
        folders.push(folder);
    }
    for folder in folders {
        let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let own = OWN.map(|name| folder.join(name)).into_iter();
        for path in own.chain(events::found(&folder)) {
            let Ok(about) = path.symlink_metadata() else {
                continue;
            };
            match about.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            }
            .map_err(|error| failed(&path, error))?;
        }
        match fs::remove_dir(&folder) {
            Ok(()) => note!("{}: removed", folder.display()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                note!(
                    "{}: the run is removed; other files are left in the folder",
                    folder.display()
                );
            }
            Err(error) => {
                note!(
                    "{}: the run is removed, and the folder is not: {error}",
                    folder.display()
                );
            }
        }
    }
    Ok(())
}

fn diff(args: &Diff) -> Result<(), Box<dyn Error>> {
    let (a, b) = (there(&args.a)?, there(&args.b)?);
    let (of_a, of_b) = (a.settings(), b.settings());
    let settings = differing(&of_a, &of_b);
    let (results_a, results_b) = (a.results(), b.results());
    let results: BTreeMap<&str, [Option<f64>; 2]> = results_a
        .keys()
        .chain(results_b.keys())
        .map(|name| {
            (
                *name,
                [results_a.get(name).copied(), results_b.get(name).copied()],
            )
        })
        .collect();
    if args.json {
        let settings: BTreeMap<&str, Value> =
            settings.iter().map(|(name, pair)| (*name, json!(pair))).collect();
        terminal::json(&json!({"a": a.folder, "b": b.folder, "settings": settings, "results": results}))?;
        return Ok(());
    }
    let mut out = terminal::out();
    let cell = |value: Option<&Value>| value.map_or("-".to_owned(), plain);
    let mut table = Table::new(&["setting", "A", "B"], &[0, 1, 2]);
    for (name, [a, b]) in settings {
        table.row([name.to_owned(), cell(a), cell(b)]);
    }
    match table.is_empty() {
        true => writeln!(out, "the settings are the same")?,
        false => write!(out, "{}", table.text())?,
    }
    let mut table = Table::new(&["result", "A", "B", "B - A"], &[0]);
    let number = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    for (name, [a, b]) in results {
        let gap = a.zip(b).map(|(a, b)| b - a);
        table.row([name.to_owned(), number(a), number(b), number(gap)]);
    }
    if !table.is_empty() {
        write!(out, "\n{}", table.text())?;
    }
    Ok(())
}

fn export(args: &Export) -> Result<(), Box<dyn Error>> {
    let run = there(&args.run)?;
    // Of a run without a recording the times of steps are not known.
    let recording = Recording::open(&run.folder)?;
    let (curves, bad) = curves::read(&run.folder, &recording)?;
    if bad > 0 {
        note!(
            "{}: {bad} lines of metrics.jsonl could not be read",
            run.folder.display()
        );
    }
    if curves.is_empty() {
        return Err(Usage(format!("{}: it has reported no numbers", run.folder.display())).into());
    }
    let place = fs::canonicalize(&run.folder)?;
    let name = place
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let exported = Exported {
        name: &name,
        place: &place,
        began: run.began().unwrap_or(0.0),
        ended: run.about.as_ref().and_then(|about| about.ended),
        finished: run.state() == "finished",
        running: run.in_use,
        curves: &curves,
        settings: &run.settings(),
    };
    let failed = |error: io::Error| format!("{}: {error}", args.dir.display());
    let written = match args.format {
        Format::Tensorboard => export::tensorboard(&exported, &args.dir).map_err(failed)?,
        Format::Mlflow => export::mlflow(&exported, &args.dir).map_err(failed)?,
    };
    writeln!(terminal::out(), "{}", written.display())?;
    Ok(())
}

/// A value without quotes; long ones are cut.
fn plain(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// The bytes of all files below a folder, as far as they can be read; links count as themselves.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => bytes_below(&entry.path()),
            Ok(about) => about.len(),
            Err(_) => 0,
        })
        .sum()
}
