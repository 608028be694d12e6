//! `stokehold report`: explain a recorded run on one page, or put two runs side by side.

#[cfg(feature = "full")]
mod live;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};
use stokehold_advise::measure::{self, Remote};
use stokehold_base::uri;
use stokehold_diagnose::advice::{Advice, Machines, Prices, advise, machines, verdict};
use stokehold_diagnose::curves::{self, Curve};
use stokehold_diagnose::report::{self, Contents};
use stokehold_diagnose::rules::{Defaults, Finding, Parameters, judge};
use stokehold_profile::Recording;
use stokehold_train::run::RunFolder;

#[cfg(feature = "full")]
use super::job::at_sagemaker::At;
use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};
use crate::{elsewhere, interrupt};

/// The number of changes that the terminal shows; the page has all of them.
const ADVICE: usize = 3;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The run's folder: one of stokehold profile or train, or one of SageMaker Debugger; or where it lies:
    /// s3://BUCKET/PREFIX; with --on sagemaker the name of a job.
    run: PathBuf,

    /// A second run: both are put side by side.
    #[cfg_attr(feature = "full", arg(conflicts_with = "on"))]
    run_b: Option<PathBuf>,

    #[cfg(feature = "full")]
    #[command(flatten)]
    at: At,

    /// With --on sagemaker: write the page again with what came since, until the job ends.
    #[cfg(feature = "full")]
    #[arg(long, requires = "on")]
    follow: bool,

    /// With --follow: the time between two pages.
    #[cfg(feature = "full")]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "30s", requires = "follow")]
    every: std::time::Duration,

    /// Defaults of the rules' parameters: stokehold, rulesconfig or guide.
    #[arg(long, value_name = "SET", default_value = "stokehold")]
    defaults: Defaults,

    /// Set a parameter of a rule, such as CPUBottleneck_threshold=40; can be given several times.
    #[arg(long, value_name = "RULE_PARAM=X")]
    set: Vec<String>,

    /// Read parameters from a TOML file; --set comes after it.
    #[arg(long, value_name = "FILE")]
    rules: Option<Local>,

    /// Folder for the page and the JSON files [default: rule-output/ProfilerReport-<the run's begin>/profiler-output of
    /// the run, or of the current folder for a run elsewhere].
    #[arg(short, long, value_name = "DIR")]
    output: Option<Local>,

    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A folder that is not a run, or an unknown parameter (exit code 2); a file that cannot be written (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut parameters = Parameters::new(args.defaults);
    if let Some(file) = &args.rules {
        parameters.load(file)?;
    }
    for text in &args.set {
        parameters.set(text)?;
    }
    #[cfg(feature = "full")]
    if let Some(client) = args.at.client()? {
        return live::run(&client, args, &parameters);
    }
    let comparison = [Some(&args.run), args.run_b.as_ref()].into_iter().flatten();
    if let Some(pages) = comparison.into_iter().find_map(|run| pages_of(run)) {
        return Err(Usage(pages).into());
    }
    let prices = Prices::built_in();
    let first = Judged::of(&args.run, &parameters, &prices)?;
    let folder = match (&args.output, uri::remote(&args.run)) {
        (Some(output), _) => output.to_path_buf(),
        (None, Some(_)) => report::folder_in(Path::new("."), &first.recording),
        (None, None) => report::folder_in(&first.recording.path, &first.recording),
    };
    let Some(second) = &args.run_b else {
        let page = report::write(&first.contents(&prices), &folder)?;
        return show(args.json, &[("", &first)], &page);
    };
    let second = Judged::of(second, &parameters, &prices)?;
    let page = report::write_pair([&first.contents(&prices), &second.contents(&prices)], &folder)?;
    show(args.json, &[("A", &first), ("B", &second)], &page)
}

/// Where the pages are if the folder is a comparison, which has no runs to report on; `None` if it is not.
fn pages_of(folder: &Path) -> Option<String> {
    if !folder.join("compare.json").is_file() {
        return None;
    }
    let mut pages: Vec<PathBuf> = fs::read_dir(folder.join("pairs"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("profiler-comparison.html")))
        .filter(|page| page.is_file())
        .collect();
    pages.sort();
    let mut text = format!(
        "{}: a comparison, whose rounds are no runs; its page is {}",
        folder.display(),
        folder.join("compare.html").display()
    );
    text += match pages.is_empty() {
        true => ", and no cell is finished yet",
        false => ", and that of each pair of trials:",
    };
    for page in pages {
        text += &format!("\n  {}", page.display());
    }
    Some(text)
}

/// A run with its findings, verdict and advice.
struct Judged {
    recording: Recording,
    findings: Vec<Finding>,
    advice: Vec<Advice>,
    /// The whole training here and elsewhere, if something is predicted of the run.
    machines: Option<Machines>,
    curves: Vec<Curve>,
    verdict: String,
    /// Measurements for the advice that could not be made, and why.
    notes: Vec<String>,
}

/// Makes the missing measurements for advice, if this is a run of `stokehold train` on this machine.
fn measure_once(recording: &mut Recording) -> Vec<String> {
    let Some(about) = recording.about.as_mut() else {
        return Vec::new();
    };
    let folder = recording.path.parent().unwrap_or(Path::new("."));
    match RunFolder::new(folder).read_record() {
        Ok(Some(record)) => measure::once(&record, &recording.path, about, Remote::Leave, &mut |text| {
            note!("{text}")
        }),
        // A run of another program, or a copy from elsewhere without the run's own files.
        Ok(None) => Vec::new(),
        Err(error) => vec![format!("no advice is measured: {error}")],
    }
}

impl Judged {
    fn of(run: &Path, parameters: &Parameters, prices: &Prices) -> Result<Self, Box<dyn Error>> {
        let stop = interrupt::flag_for("stopping; nothing is written")?;
        let recording = elsewhere::recording(run, stop)?;
        Ok(Self::of_recording(recording, parameters, prices))
    }

    fn of_recording(mut recording: Recording, parameters: &Parameters, prices: &Prices) -> Self {
        let mut notes = measure_once(&mut recording);
        let folder = recording.path.parent().unwrap_or(Path::new("."));
        let curves = match curves::read(folder, &recording) {
            Ok((curves, 0)) => curves,
            Ok((curves, bad)) => {
                notes.push(format!("{bad} lines of metrics.jsonl could not be read"));
                curves
            }
            Err(error) => {
                notes.push(format!("{}: {error}", folder.join("metrics.jsonl").display()));
                Vec::new()
            }
        };
        let findings = judge(&recording, parameters);
        let about = recording.about.as_ref();
        let workload = about.and_then(|about| about.workload.as_ref());
        let prices = match about {
            Some(about) => prices.clone().on(&about.machine),
            None => prices.clone(),
        };
        let advice = workload.map_or_else(Vec::new, |workload| advise(workload, &prices));
        let record = RunFolder::new(folder).read_record().ok().flatten();
        let epochs = record.map_or(1, |record| record.config.epochs);
        let machines = workload
            .and_then(|workload| machines(workload, about.map(|about| &about.machine), epochs, &prices));
        let verdict = verdict(&recording, &findings, workload, &advice);
        Self {
            recording,
            findings,
            advice,
            machines,
            curves,
            verdict,
            notes,
        }
    }

    fn contents<'a>(&'a self, prices: &'a Prices) -> Contents<'a> {
        Contents {
            recording: &self.recording,
            findings: &self.findings,
            verdict: &self.verdict,
            advice: &self.advice,
            machines: self.machines.as_ref(),
            curves: &self.curves,
            currency: &prices.currency,
        }
    }

    fn json(&self) -> Value {
        let findings: Map<String, Value> = self
            .findings
            .iter()
            .map(|finding| (finding.rule.to_owned(), finding.published()))
            .collect();
        json!({
            "run": self.recording.path,
            "verdict": self.verdict,
            "advice": self.advice,
            "machines": self.machines,
            "findings": findings,
            "problems": self.recording.problems,
            "notes": self.notes,
        })
    }
}

/// Prints the most important results.
fn show(as_json: bool, runs: &[(&str, &Judged)], page: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = terminal::out();
    if as_json {
        let each: Vec<Value> = runs.iter().map(|(_, run)| run.json()).collect();
        terminal::json(&json!({"page": page, "runs": each}))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (letter, run) in runs {
        if letter.is_empty() {
            writeln!(out, "{}", run.verdict)?;
        } else {
            writeln!(out, "{letter}: {}", run.verdict)?;
        }
        let fired = run.findings.iter().filter(|finding| finding.triggered);
        for finding in fired {
            writeln!(out, "  {}: {}", finding.rule, finding.summary)?;
        }
        let worth = run.advice.iter().filter(|advice| advice.is_worth_it());
        for advice in worth.take(ADVICE) {
            let range = advice
                .seconds_at_best
                .map_or(String::new(), |best| format!("{best:.2} to "));
            writeln!(
                out,
                "  advice: {}: {range}{:.2} s per epoch, {}{:.2} s less ({:.0} %)",
                advice.title,
                advice.seconds_per_epoch,
                if range.is_empty() { "" } else { "at least " },
                advice.gain_seconds,
                advice.gain_percent
            )?;
        }
        for note in &run.notes {
            writeln!(out, "  note: {note}")?;
        }
        match run.recording.problems.as_slice() {
            [] => {}
            [only] => writeln!(out, "  could not be read: {only}")?,
            [first, rest @ ..] => writeln!(
                out,
                "  could not be read: {}; and {} more problems, which the page lists",
                first,
                rest.len()
            )?,
        }
    }
    writeln!(out, "{}", page.display())?;
    Ok(ExitCode::SUCCESS)
}
