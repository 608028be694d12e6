//! Jobs as text for people.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use stokehold_base::shell;
use stokehold_jobs::{Bill, Distribution, Job, Kept, Record, Secondary, Status, Store, Written, contract};

use stokehold_diagnose::curves::{self, Curve, Point};
use stokehold_page::words::significant;
use stokehold_profile::Recording;

/// Characters of a curve.
const SPARK: usize = 40;

/// The end of a job, in one or two lines.
pub fn end(store: &Store, record: &Record) -> String {
    let mut text = format!("job {} {}", record.name, state(record));
    if let Some(reason) = record.failure_reason.as_ref().or(record.stopped_by.as_ref()) {
        text += &format!(": {reason}");
    }
    if (record.status, record.secondary) == (Status::Stopped, Secondary::Interrupted) {
        let mut words = vec![OsStr::new("job")];
        // It is outside the default folder, so say where.
        if Store::of_user().is_ok_and(|usual| usual.root() != store.root()) {
            words.extend([OsStr::new("--jobs"), store.root().as_os_str()]);
        }
        words.extend(["run", "--resume", &record.name].map(OsStr::new));
        text += &format!("\nto continue: {}", shell::again(words));
    }
    if let Some(model) = &record.model {
        text += &format!("\nmodel: {model}");
    }
    if let Some(bill) = &record.spot {
        text += &format!("\nspot: {}", self::bill(bill));
    }
    if let Some(report) = &record.report {
        text += &format!("\nreport: {}", report.display());
    }
    text
}

/// A table of all jobs.
pub fn list(records: &[Record]) -> String {
    let mut rows = vec![["NAME", "STATE", "CREATED", "TOOK", "RESULT"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        [
            record.name.clone(),
            state(record),
            date(record.created),
            took(record),
            result(record),
        ]
    }));
    table(&rows)
}

/// Rows with their columns side by side.
pub fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    // Nothing stands next to the last one.
    let widths: Vec<usize> = (0..COLUMNS - 1)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths.iter().chain([&0])) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Everything about a job.
pub fn job(folder: &Path, job: &Job, record: &Record) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<12}{}", value.replace('\n', INDENTED));
        }
    };
    let each = |values: Vec<String>| values.join(", ");
    row("name", &record.name);
    row("state", &state(record));
    let reason = record.failure_reason.as_ref().or(record.stopped_by.as_ref());
    row("reason", reason.map(String::as_str).unwrap_or_default());
    row(
        "exit code",
        &record.exit_code.map(|code| code.to_string()).unwrap_or_default(),
    );
    row(
        "slurm",
        &record
            .slurm
            .as_ref()
            .map(|slurm| format!("job {}", slurm.id))
            .unwrap_or_default(),
    );
    row("created", &date(record.created));
    row("took", &took(record));
    row("states", &states(record));
    row("runs", &runs(job));
    row(
        "arguments",
        &contract::arguments(&contract::hyperparameters(job)).join(" "),
    );
    for (name, channel) in &job.channels {
        row(
            "channel",
            &format!("{name}: {} ({:?})", channel.uri, channel.mode()),
        );
    }
    row(
        "variables",
        &each(
            job.environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
    );
    row("metrics", &each(metrics(record)));
    let (curves, _) = curves::read(folder, &Recording::default()).unwrap_or_default();
    row("curves", &sparks(&curves).join("\n"));
    row("model", record.model.as_deref().unwrap_or_default());
    row("output", record.output.as_deref().unwrap_or_default());
    row(
        "checkpoints",
        &record.checkpoints.as_ref().map(kept).unwrap_or_default(),
    );
    for (name, written) in &record.writes {
        row("written", &format!("{name}: {}", self::written(written)));
    }
    row("spot", &record.spot.as_ref().map(bill).unwrap_or_default());
    let path = |path: &Option<PathBuf>| {
        path.as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default()
    };
    row("recording", &path(&record.profile));
    row("report", &path(&record.report));
    row("folder", &folder.display().to_string());
    text
}

fn kept(kept: &Kept) -> String {
    let mut text = format!("{} files, {} bytes at {}", kept.files, kept.bytes, kept.uri);
    if kept.waiting > 0 {
        text += &format!(", {} wait", kept.waiting);
    }
    if let Some(trouble) = &kept.trouble {
        text += &format!(": {trouble}");
    }
    text
}

fn written(written: &Written) -> String {
    let mut text = format!(
        "{} files, {} bytes to {}, {} removed",
        written.files, written.bytes, written.uri, written.removed
    );
    if written.waiting > 0 {
        text += &format!(", {} wait", written.waiting);
    }
    if written.refused > 0 {
        text += &format!(", {} refused", written.refused);
    }
    if let Some(trouble) = &written.trouble {
        text += &format!(": {trouble}");
    }
    text
}

/// The bill in SageMaker's format for managed spot training, and the cost.
fn bill(bill: &Bill) -> String {
    let mut text = format!(
        "{} interruptions, {:.0} s in all, training seconds: {:.0}, billable seconds: {:.0}",
        bill.interruptions, bill.wall_seconds, bill.training_seconds, bill.billable_seconds
    );
    if let Some(savings) = bill.savings {
        text += &format!(", savings: {:.1}%", 100.0 * savings);
    }
    if let (Some(cost), Some(full)) = (bill.cost, bill.full_cost) {
        text += &format!(", cost: {cost:.4} instead of {full:.4}");
    }
    text
}

/// The prefix of the second line of a value.
const INDENTED: &str = "\n            ";

fn runs(job: &Job) -> String {
    let mut text = job.entry_point.name();
    if let Some(source) = &job.source_dir {
        text += &format!(" in {}", source.display());
    }
    if job.instances > 1 || job.distribution != Distribution::None {
        text += &format!(", {} instances", job.instances);
    }
    match job.distribution {
        Distribution::None => {}
        Distribution::Torch => text += ", torch",
        Distribution::Mpi => text += ", mpi",
        Distribution::Smdistributed => text += ", smdistributed",
    }
    text
}

/// The status, with the detailed state or the reason of the end if that adds something.
pub fn state(record: &Record) -> String {
    let at_slurm = record.slurm.as_ref().and_then(|slurm| slurm.state.as_ref());
    match (record.status, record.secondary) {
        (Status::InProgress, at) if at_slurm.is_some() => {
            format!("{at:?}: Slurm has it as {}", at_slurm.map_or("", String::as_str))
        }
        (Status::InProgress, at) => format!("{at:?}"),
        (Status::Stopped, _) if record.stopped_by.is_some() => "Stopped (by a rule)".to_owned(),
        (Status::Stopped, Secondary::MaxRuntimeExceeded) => "Stopped (its time was over)".to_owned(),
        (Status::Stopped, Secondary::MaxWaitTimeExceeded) => {
            "Stopped (its time and its pauses were over)".to_owned()
        }
        (Status::Stopped, Secondary::Interrupted) => "Stopped (interrupted)".to_owned(),
        (status, _) => format!("{status:?}"),
    }
}

fn states(record: &Record) -> String {
    let ends = record
        .transitions
        .iter()
        .skip(1)
        .map(|next| Some(next.start))
        .chain([None]);
    let each = record.transitions.iter().zip(ends).map(|(state, end)| match end {
        Some(end) => format!("{:?} {}", state.status, duration(end - state.start)),
        None => format!("{:?}", state.status),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn took(record: &Record) -> String {
    let last = record.transitions.last().filter(|_| record.status.is_final());
    let end = last.map_or_else(stokehold_base::clock::unix_now, |last| last.start);
    duration(end - record.created)
}

/// The last metrics, or the reason of the failure.
fn result(record: &Record) -> String {
    match &record.failure_reason {
        Some(reason) => reason.replace('\n', " ").chars().take(60).collect(),
        None => metrics(record).join(" "),
    }
}

fn metrics(record: &Record) -> Vec<String> {
    let each = record.metrics.iter();
    each.map(|metric| format!("{}={}", metric.name, metric.value))
        .collect()
}

/// A line for each number that came more than once: its name, its course, and its first and last value.
fn sparks(curves: &[Curve]) -> Vec<String> {
    let several = || curves.iter().filter(|curve| curve.points.len() > 1);
    let width = several()
        .map(|curve| curve.name.chars().count())
        .max()
        .unwrap_or(0)
        .min(SPARK);
    several()
        .map(|curve| {
            let end = |point: Option<&Point>| point.map_or(f64::NAN, |point| point.value);
            let best = match curve.best() {
                Some(best) => format!(", best {}", significant(best.value)),
                None => String::new(),
            };
            format!(
                "{:<width$}  {}  {} to {}{best}",
                curve.name,
                curve.spark(SPARK),
                significant(end(curve.points.first())),
                significant(end(curve.points.last())),
            )
        })
        .collect()
}

/// A time for people.
pub fn date(unix: f64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(unix.max(0.0) as u64);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Whole seconds above ten, else with one decimal.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds < 10.0 {
        true => format!("{seconds:.1}s"),
        false => humantime::format_duration(Duration::from_secs(seconds.round() as u64)).to_string(),
    }
}
