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
use stokehold_base::lock;
use stokehold_diagnose::{curves, events};
use stokehold_page::Table;
use stokehold_page::words::{digits, duration, moment};
use stokehold_profile::{About, FOLDER, Recording};
use stokehold_train::RunSummary;
use stokehold_train::progress::Scores;
use stokehold_train::run::{MetricsLine, RunFolder, RunRecord, read_metrics};

use crate::failure::Usage;
use crate::local::Local;
use crate::shell;
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

/// A run, as far as its folder says.
struct Run {
    folder: PathBuf,
    record: Option<RunRecord>,
    summary: Option<RunSummary>,
    about: Option<About>,
    in_use: bool,
}

impl Run {
    /// The run in a folder; `None` if there is none.
    fn of(folder: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        let run = RunFolder::new(folder);
        let record = run.read_record()?;
        let about = About::read(&folder.join(FOLDER))?;
        if record.is_none() && about.is_none() {
            return Ok(None);
        }
        let locks = [folder.join("lock"), folder.join(FOLDER).join("lock")];
        let held = |path: &PathBuf| lock::is_held(path).unwrap_or(false);
        Ok(Some(Self {
            folder: folder.to_owned(),
            summary: run.read_summary()?,
            record,
            about,
            in_use: locks.iter().any(held),
        }))
    }

    /// As [`of`](Self::of).
    ///
    /// # Errors
    /// [`Usage`] where there is none.
    fn there(folder: &Path) -> Result<Self, Box<dyn Error>> {
        Self::of(folder)?.ok_or_else(|| {
            let text = format!(
                "{}: no run is there: it has neither a run.json nor a recording",
                folder.display()
            );
            Usage(text).into()
        })
    }

    fn began(&self) -> Option<f64> {
        let record = self.record.as_ref().map(|record| record.created as f64);
        record.or_else(|| self.about.as_ref().map(|about| about.started))
    }

    fn what(&self) -> String {
        match (&self.record, &self.about) {
            (Some(record), _) => format!("train {}", record.config.arch),
            (None, Some(about)) => {
                let word = about.command.first().map(String::as_str).unwrap_or_default();
                let name = Path::new(word).file_name().unwrap_or_default();
                format!("profile {}", name.to_string_lossy())
            }
            (None, None) => String::new(),
        }
    }

    fn state(&self) -> &'static str {
        match (&self.record, &self.summary, &self.about) {
            _ if self.in_use => "running",
            (Some(_), Some(summary), _) if summary.interrupted => "interrupted",
            (Some(record), Some(summary), _) if summary.epochs < record.config.epochs => "interrupted",
            (Some(_), Some(_), _) => "finished",
            // Its recording has an end: it was not killed, but ended with an error.
            (Some(_), None, Some(about)) if about.ended.is_some() => "failed",
            (Some(_), None, _) => "cut off",
            (None, _, Some(about)) if about.ended.is_some() => match about.exit_code {
                Some(0) | None => "finished",
                Some(_) => "failed",
            },
            _ => "cut off",
        }
    }

    fn epochs(&self) -> String {
        let Some(record) = &self.record else {
            return String::new();
        };
        let summary = self.summary.as_ref().filter(|_| !self.in_use);
        let done = match summary {
            Some(summary) => summary.epochs,
            None => read_metrics(&RunFolder::new(&self.folder).metrics())
                .unwrap_or_default()
                .iter()
                .rev()
                .find_map(|line| match line {
                    MetricsLine::Epoch { epoch, .. } => Some(*epoch),
                    MetricsLine::Train { .. } => None,
                })
                .unwrap_or(0),
        };
        format!("{done}/{}", record.config.epochs)
    }

    /// The figures, by name.
    fn results(&self) -> BTreeMap<&'static str, f64> {
        let mut results = BTreeMap::new();
        if let Some(summary) = &self.summary {
            results.insert("images/s", summary.images_per_second);
            results.insert("wait share", summary.wait_share);
            results.insert("epochs", summary.epochs as f64);
            results.extend(
                summary
                    .seconds_per_epoch
                    .map(|seconds| ("seconds per epoch", seconds)),
            );
            results.extend(summary.train_loss.map(|loss| ("training loss", loss)));
            if let Some(validation) = &summary.validation {
                results.insert("validation loss", validation.loss);
                match validation.scores {
                    Scores::Images { top1, topk, .. } => {
                        results.insert("top-1", top1);
                        results.insert("top-k", topk);
                    }
                    Scores::Pixels { miou, .. } => {
                        results.insert("mIoU", miou);
                    }
                }
            }
        } else if let Some(workload) = self.about.as_ref().and_then(|about| about.workload.as_ref()) {
            results.insert("wait share", workload.wait_share);
            results.extend(
                workload
                    .seconds_per_epoch
                    .map(|seconds| ("seconds per epoch", seconds)),
            );
        }
        results
    }

    /// The settings as plain values, by name; of a command that was profiled, the command.
    fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = BTreeMap::new();
        let config = self
            .record
            .as_ref()
            .and_then(|record| serde_json::to_value(&record.config).ok());
        flattened("", config.unwrap_or_default(), &mut settings);
        if let (None, Some(about)) = (&self.record, &self.about) {
            settings.insert("command".to_owned(), about.command.join(" ").into());
        }
        let machine = self.about.as_ref().map(|about| &about.machine);
        let machine = self.record.as_ref().map(|record| &record.machine).or(machine);
        let machine = machine.and_then(|machine| serde_json::to_value(machine).ok());
        flattened("machine", machine.unwrap_or_default(), &mut settings);
        settings
    }

    fn json(&self) -> Value {
        json!({
            "run": self.folder,
            "what": self.what(),
            "state": self.state(),
            "began": self.began(),
            "results": self.results(),
            "settings": self.settings(),
        })
    }
}

/// A value's members with the path to each as their names; lists stay whole.
fn flattened(name: &str, value: Value, all: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let path = if name.is_empty() {
                    member
                } else {
                    format!("{name}.{member}")
                };
                flattened(&path, value, all);
            }
        }
        Value::Null => {}
        value => {
            all.insert(name.to_owned(), value);
        }
    }
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
        let best = ["top-1", "mIoU"]
            .into_iter()
            .find_map(|name| Some((name, of(name)?)));
        table.row([
            run.folder.display().to_string(),
            run.what(),
            run.began().map(moment).unwrap_or_default(),
            run.state().to_owned(),
            run.epochs(),
            of("seconds per epoch").map(digits).unwrap_or_default(),
            of("wait share")
                .map(|share| format!("{:.0} %", 100.0 * share))
                .unwrap_or_default(),
            best.map(|(name, value)| format!("{name} {value:.4}"))
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
    let run = Run::there(&args.run)?;
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
    if run.record.is_some() && run.state() != "running" {
        let go_on = shell::again(["train".as_ref(), "--resume".as_ref(), run.folder.as_os_str()]);
        let how = if run.state() == "finished" {
            format!("{go_on} --epochs N")
        } else {
            go_on
        };
        writeln!(out, "to go on: {how}")?;
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
        let run = Run::there(&folder)?;
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
    let (a, b) = (Run::there(&args.a)?, Run::there(&args.b)?);
    let (of_a, of_b) = (a.settings(), b.settings());
    let mut names: Vec<&String> = of_a.keys().chain(of_b.keys()).collect();
    names.sort();
    names.dedup();
    let differing = names
        .into_iter()
        .filter(|name| of_a.get(*name) != of_b.get(*name));
    let settings: Vec<(&String, Option<&Value>, Option<&Value>)> = differing
        .map(|name| (name, of_a.get(name), of_b.get(name)))
        .collect();
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
        let settings: BTreeMap<&String, Value> = settings
            .iter()
            .map(|(name, a, b)| (*name, json!([a, b])))
            .collect();
        terminal::json(&json!({"a": a.folder, "b": b.folder, "settings": settings, "results": results}))?;
        return Ok(());
    }
    let mut out = terminal::out();
    let cell = |value: Option<&Value>| value.map_or("-".to_owned(), plain);
    let mut table = Table::new(&["setting", "A", "B"], &[0, 1, 2]);
    for (name, a, b) in settings {
        table.row([name.clone(), cell(a), cell(b)]);
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
    let run = Run::there(&args.run)?;
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
