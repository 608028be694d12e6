//! The page of each pair of trials in a cell: trial A next to another one, with cores, accelerator and steps over time.
//!
//! The machine is recorded once for the whole comparison. A trial's own recording is cut out of it: the samples within
//! its rounds, moved onto a clock of its own on which its rounds follow each other.
//!
//! ```text
//!  the machine   A1 ▓▓▓▓  B1 ░░  B2 ░░  A2 ▓▓▓▓
//!  trial A       A1 ▓▓▓▓A2 ▓▓▓▓
//!  trial B       B1 ░░B2 ░░
//! ```
//!
//! The recorder follows this process and those that it has started. In a trial's rounds the others stand still, so what it
//! counts as "this run" is that trial.

use std::path::{Path, PathBuf};

use stokehold_base::words::plural;
use stokehold_diagnose::advice::verdict;
use stokehold_diagnose::report::{self, Contents, Heading};
use stokehold_diagnose::rules::{Parameters, judge};
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, Node, Recording, Series, Span, dimension, span};
use stokehold_train::TrainerChoice;

use crate::CompareError;
use crate::report::{Cell, Measured, Report, Round, Sample};
use crate::steps::StepTimes;
use crate::verdict::Verdict;

/// The folder of the pages.
const FOLDER: &str = "pairs";
/// The name of a page, as [`report::write_pair`] gives it.
const PAGE: &str = "profiler-comparison.html";
/// The sampling interval of a recording that does not say it, milliseconds.
const INTERVAL_MS: u64 = 100;

/// The machine's recording, and its samples as the comparison uses them.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub recording: Recording,
    pub samples: Vec<Sample>,
}

/// Writes the pages of a cell: each trial but A that has rounds, next to A.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(report: &Report, cell: &Cell, machine: &Machine, out: &Path) -> Result<(), CompareError> {
    let steps = StepTimes::read(cell, out);
    let parameters = Parameters::default();
    let judged = |trial: usize| {
        let recording = of_trial(report, cell, trial, machine, &steps);
        let findings = judge(&recording, &parameters);
        let verdict = verdict(&recording, &findings, None, &[]);
        (recording, findings, verdict)
    };
    let others = others(cell);
    if others.is_empty() {
        return Ok(());
    }
    let fed = match cell.images_per_second {
        Some(_) => ", fed to an emulated accelerator",
        None => "",
    };
    let a = judged(0);
    for trial in others {
        let b = judged(trial);
        let contents = [&a, &b].map(|(recording, findings, verdict)| Contents {
            recording,
            findings,
            verdict,
            advice: &[],
            machines: None,
            curves: &[],
            currency: "",
        });
        let heading = Heading {
            eyebrow: &format!("Stokehold compare: {}{fed}", label(report, cell)),
            headline: &headline(&cell.trials[0], &cell.trials[trial]),
        };
        let folder = out.join(folder(cell, trial));
        report::write_pair_under(&heading, [&contents[0], &contents[1]], &folder)?;
    }
    Ok(())
}

/// Whether all pages of a cell are there.
pub(crate) fn are_there(cell: &Cell, out: &Path) -> bool {
    others(cell)
        .iter()
        .all(|&trial| out.join(page(cell, trial)).is_file())
}

/// The page of a trial next to A, relative to the comparison's folder; `None` for A itself and where there is none.
pub(crate) fn link(cell: &Cell, trial: usize, out: &Path) -> Option<String> {
    let page = page(cell, trial);
    let there = others(cell).contains(&trial) && out.join(&page).is_file();
    there.then(|| page.to_string_lossy().into_owned())
}

/// The places of the trials that have a page: those with rounds, if A has some too.
fn others(cell: &Cell) -> Vec<usize> {
    let has_rounds = |&trial: &usize| !cell.trials[trial].rounds.is_empty();
    match cell.trials.first() {
        Some(a) if !a.rounds.is_empty() => (1..cell.trials.len()).filter(has_rounds).collect(),
        _ => Vec::new(),
    }
}

/// `resnet18 at load 12`.
pub(crate) fn label(report: &Report, cell: &Cell) -> String {
    match report.plan.pipeline {
        Some(_) => cell.model.to_string(),
        None => format!("{} at load {}", cell.model, cell.load),
    }
}

fn folder(cell: &Cell, trial: usize) -> PathBuf {
    Path::new(FOLDER).join(format!("{}-{}", cell.file_name(), cell.trials[trial].trial))
}

fn page(cell: &Cell, trial: usize) -> PathBuf {
    folder(cell, trial).join(PAGE)
}

/// The result of a pair, as the comparison judges it.
fn headline(a: &Measured, b: &Measured) -> String {
    let (of_a, of_b) = (a.trial, b.trial);
    let times = match (a.summary, b.summary) {
        (Some(a), Some(b)) => format!(
            "{:.2} s instead of {:.2} s per epoch",
            b.seconds_per_epoch, a.seconds_per_epoch
        ),
        _ => return format!("{of_a} and {of_b} side by side"),
    };
    let Some(gain) = b.summary.and_then(|summary| summary.gain) else {
        return format!("{of_b}, {times}; there is no common pair of rounds to judge by");
    };
    let by = gain.better_by.abs();
    match gain.verdict {
        Verdict::Faster => format!("{of_b} takes {by:.1} % less time than {of_a}: {times}"),
        Verdict::Slower => format!("{of_b} takes {by:.1} % more time than {of_a}: {times}"),
        Verdict::NotTheSameWork => format!("{of_b} did not do the same work as {of_a}: {times}"),
        Verdict::CannotBeToldApart => format!("{of_a} and {of_b} cannot be told apart: {times}"),
    }
}

/// A trial's own clock: its rounds follow each other from the begin of the first on.
struct Clock {
    /// Where each round begins, unix seconds.
    begins: Vec<f64>,
    /// Where the last one ends.
    end: f64,
}

impl Clock {
    fn of(rounds: &[Round]) -> Self {
        let mut end = rounds.first().map_or(0.0, |round| round.began);
        let begins = rounds
            .iter()
            .map(|round| {
                let begin = end;
                end += round.length();
                begin
            })
            .collect();
        Self { begins, end }
    }
}

/// The recording of a trial by itself.
fn of_trial(report: &Report, cell: &Cell, trial: usize, machine: &Machine, steps: &StepTimes) -> Recording {
    let measured = &cell.trials[trial];
    let rounds = &measured.rounds;
    let clock = Clock::of(rounds);
    let whole = machine.recording.nodes.first();
    let mut node = Node {
        name: whole.map_or("algo-1", |node| &node.name).to_owned(),
        ..Node::default()
    };
    let mut ticks = Vec::new();
    let mut places = Vec::new();
    for (number, place) in Sample::places(&machine.samples, rounds) {
        let (round, sample) = (&rounds[number], &machine.samples[place]);
        let own = |time: f64| clock.begins[number] + (time - round.began).clamp(0.0, round.length());
        let (since, time) = (own(sample.since), own(sample.time));
        if time > since && node.ticks.last().is_none_or(|last| time > *last) {
            node.ticks.push(time);
            ticks.push(Tick { number, since, time });
            places.push(place);
        }
    }
    node.series = whole.map_or_else(Vec::new, |whole| {
        let cut = whole.series.iter().map(|series| Series {
            values: places.iter().map(|&place| series.values[place]).collect(),
            ..series.clone()
        });
        // The processes of other cells were not there yet, or any more.
        cut.filter(|series| series.values.iter().any(|value| value.is_finite()))
            .collect()
    });
    let spans = spans(rounds, &clock, |round| steps.of(trial, round));
    let mut notes = vec![format!(
        "{}: cut out of the recording of the whole comparison. Its {} follow each other here, without the turns of the other \
         trials between them.",
        measured.trial,
        plural(rounds.len(), "round")
    )];
    if let Some(images_per_second) = cell.images_per_second {
        let name = free_name(&node);
        let taken = match spans.untimed {
            0 => "its steps",
            _ => "its steps, or of the whole round where they are not known,",
        };
        notes.push(format!(
            "{}: {name} is emulated. It takes batches at {images_per_second:.0} images per second and computes nothing; how busy it \
             was follows from the times of {taken} and is not measured.",
            measured.trial
        ));
        let values = busy(&ticks, rounds, &spans);
        if !values.is_empty() {
            node.series.push(Series {
                kind: "gpu".to_owned(),
                name,
                dimension: dimension::GPU.to_owned(),
                values,
            });
        }
    }
    if spans.untimed > 0 {
        notes.push(format!(
            "{}: the times of the steps are not known of {} of {}.",
            measured.trial,
            spans.untimed,
            plural(rounds.len(), "round")
        ));
    }
    let whole = &machine.recording.about;
    notes.extend(whole.iter().flat_map(|about| about.notes.iter().cloned()));
    let (wait, step) = (node.name(span::WAIT), node.name(span::STEP));
    for timed in &spans.steps {
        let common = |name, start, duration| Span {
            name,
            start,
            duration,
            step: Some(timed.number),
            worker: None,
            bytes: None,
        };
        node.spans
            .push(common(wait, timed.asked, timed.there - timed.asked));
        node.spans
            .push(common(step, timed.there, timed.end - timed.there));
    }
    let started = clock.begins.first().copied().unwrap_or(clock.end);
    let mut recording = Recording {
        // What the page calls it.
        path: measured.trial.name().into(),
        about: Some(About {
            stokehold: report.plan.stokehold.clone(),
            command: vec![format!("{}, {}", measured.trial, label(report, cell))],
            started,
            ended: Some(clock.end),
            exit_code: None,
            interval_ms: whole.as_ref().map_or(INTERVAL_MS, |about| about.interval_ms),
            machine: report.machine.clone(),
            workload: Some(workload(report, cell, measured)),
            paused: None,
            idle_seconds: 0.0,
            notes,
        }),
        nodes: vec![node],
        problems: machine.recording.problems.clone(),
    };
    recording.sort();
    recording
}

/// A GPU's name that the machine's own GPUs do not have.
fn free_name(node: &Node) -> String {
    let is_free = |name: &String| node.series.iter().all(|series| &series.name != name);
    let mut names = (0..).map(|number: u32| format!("gpu{number}"));
    names.find(is_free).unwrap_or_default()
}

/// What the trial did and how fast.
fn workload(report: &Report, cell: &Cell, measured: &Measured) -> Workload {
    let device = match (&report.plan.trainer_of(cell.model), &measured.ready) {
        (TrainerChoice::Emulated { label, .. }, _) => label.clone(),
        (TrainerChoice::Burn, Some(ready)) => ready.device.clone(),
        (TrainerChoice::Burn, None) => String::new(),
    };
    let summary = measured.summary;
    Workload {
        images: cell.epoch_images,
        batch_size: report.plan.batch_size as u64,
        num_workers: report.plan.workers as u64,
        cores: report.machine.cores as u64,
        others_cores: summary.and_then(|summary| summary.others_cores),
        executor: measured.trial.name().to_owned(),
        device,
        seconds_per_epoch: summary.map(|summary| summary.seconds_per_epoch),
        wait_share: summary.map_or(0.0, |summary| summary.waited),
        ..Workload::default()
    }
}

/// A sample that is kept: its round's place, its begin and its end on the trial's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tick {
    number: usize,
    since: f64,
    time: f64,
}

/// The steps of a trial on its own clock.
struct Spans {
    steps: Vec<Timed>,
    /// Where those of each round lie in `steps`.
    of_round: Vec<std::ops::Range<usize>>,
    /// The number of rounds without the times of all their steps.
    untimed: usize,
}

/// A step, unix seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timed {
    number: u64,
    /// When the trainer asked for the batch, when it had it, and when the step was over.
    asked: f64,
    there: f64,
    end: f64,
}

/// Places the steps of the rounds one after the other, numbered through from 1: the same number has the same images in every
/// trial.
fn spans<'a>(rounds: &'a [Round], clock: &Clock, times: impl Fn(&'a Round) -> &'a [[f64; 2]]) -> Spans {
    let mut spans = Spans {
        steps: Vec::new(),
        of_round: Vec::new(),
        untimed: 0,
    };
    let mut before = 0;
    for (round, &begin) in rounds.iter().zip(&clock.begins) {
        let first = spans.steps.len();
        let end = begin + round.length();
        let mut at = begin;
        let times = times(round);
        for (number, [without, step]) in (before + 1..).zip(times) {
            // A file may say anything; no step lasts beyond its round.
            let there = (at + without.max(0.0)).min(end);
            let timed = Timed {
                number,
                asked: at,
                there,
                end: (there + step.max(0.0)).min(end),
            };
            at = timed.end;
            spans.steps.push(timed);
        }
        spans.of_round.push(first..spans.steps.len());
        spans.untimed += usize::from((times.len() as u64) < round.totals.steps);
        before += round.totals.steps;
    }
    spans
}

/// The busy share of an emulated accelerator at each tick, percent.
///
/// A trial says how long the accelerator was busy in a round. That time is laid over its steps, which are a little shorter or
/// longer, as a thread never sleeps exactly as long as it wants to. Where the steps are not known, it is laid over the
/// whole round.
fn busy(ticks: &[Tick], rounds: &[Round], spans: &Spans) -> Vec<f32> {
    let seconds = |steps: &[Timed], from: f64, to: f64| -> f64 {
        let first = steps.partition_point(|step| step.end <= from);
        let within = steps[first..].iter().take_while(|step| step.there < to);
        within.map(|step| step.end.min(to) - step.there.max(from)).sum()
    };
    let share = |tick: &Tick| {
        let round = &rounds[tick.number];
        let steps = &spans.steps[spans.of_round[tick.number].clone()];
        let in_steps = seconds(steps, f64::NEG_INFINITY, f64::INFINITY);
        let share = if (steps.len() as u64) < round.totals.steps || in_steps <= 0.0 {
            round.busy_share()
        } else {
            seconds(steps, tick.since, tick.time) / (tick.time - tick.since) * (round.totals.busy / in_steps)
        };
        (100.0 * share).clamp(0.0, 100.0) as f32
    };
    ticks.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stokehold_train::model::Arch;

    use super::*;
    use crate::report::tests::{cell, report};

    /// A machine with two cores, sampled every 0.1 s from 1000 s on: at each tick the first core's value is the tick's number.
    fn machine(ticks: usize) -> Machine {
        let series = |kind: &str, name: &str, dimension: &str, of: &dyn Fn(usize) -> f32| Series {
            kind: kind.to_owned(),
            name: name.to_owned(),
            dimension: dimension.to_owned(),
            values: (0..ticks).map(of).collect(),
        };
        let node = Node {
            name: "algo-1".to_owned(),
            ticks: (1..=ticks).map(|tick| 1000.0 + 0.1 * tick as f64).collect(),
            series: vec![
                series("cpu", "cpu0", dimension::CPU, &|tick| tick as f32),
                series("cpu", "cpu1", dimension::CPU, &|_| 50.0),
                series("process", "7 early", dimension::PROCESS_CPU, &|tick| match tick {
                    0 => 99.0,
                    _ => f32::NAN,
                }),
            ],
            ..Node::default()
        };
        let recording = Recording {
            nodes: vec![node],
            ..Recording::default()
        };
        Machine {
            samples: Sample::all(&recording),
            recording,
        }
    }

    /// A cell of two trials with two rounds each, in turns: A at 1001 and 1004 s for 1 s, B at 1002.5 and 1003 s for 0.3 s.
    fn two_rounds() -> (Report, StepTimes) {
        let mut cell = cell(Arch::Resnet18, 12, 10.0, &[3.0]);
        cell.images_per_second = Some(320.0);
        let mut steps = StepTimes::default();
        for (trial, begins, seconds) in [(0, [1001.0, 1004.0], 1.0), (1, [1002.5, 1003.0], 0.3)] {
            let rounds = &mut cell.trials[trial].rounds;
            rounds.truncate(2);
            for (round, began) in rounds.iter_mut().zip(begins) {
                (round.began, round.ended) = (began, began + seconds);
                (round.totals.steps, round.totals.seconds) = (2, seconds);
                // Each step waits for three quarters of its time.
                round.totals.busy = seconds / 4.0;
                let half = seconds / 2.0;
                steps.add(trial, began, vec![[0.75 * half, 0.25 * half]; 2]);
            }
        }
        cell.summarize();
        (report(vec![cell]), steps)
    }

    fn values<'a>(recording: &'a Recording, dimension: &'a str) -> Vec<&'a [f32]> {
        recording.nodes[0]
            .of(dimension)
            .map(|series| series.values.as_slice())
            .collect()
    }

    fn near(values: &[f64], expected: &[f64]) -> bool {
        values.len() == expected.len() && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn a_trial_is_cut_out_of_the_machine() {
        let (report, steps) = two_rounds();
        let machine = machine(60);
        let [a, b] = [0, 1].map(|trial| of_trial(&report, &report.cells[0], trial, &machine, &steps));
        // A's rounds: ticks 11 to 20 and 41 to 50 of the machine, one after the other.
        let ticks: Vec<f64> = (1..=20).map(|tick| 1001.0 + 0.1 * f64::from(tick)).collect();
        assert!(near(&a.nodes[0].ticks, &ticks), "{:?}", a.nodes[0].ticks);
        let first: Vec<f32> = (10..20).chain(40..50).map(|tick| tick as f32).collect();
        assert_eq!(values(&a, dimension::CPU), [&first[..], &[50.0; 20]]);
        assert_eq!(
            values(&b, dimension::CPU)[0],
            [25.0, 26.0, 27.0, 30.0, 31.0, 32.0]
        );
        assert!(
            values(&a, dimension::PROCESS_CPU).is_empty(),
            "a process of another time"
        );
        // The job is as long as the rounds, and no longer.
        let about = b.about.unwrap();
        assert!(near(&[about.started, about.ended.unwrap()], &[1002.5, 1003.1]));
        assert_eq!(about.command, ["fused, resnet18 at load 12"]);
        let workload = about.workload.unwrap();
        assert_eq!((workload.images, workload.executor.as_str()), (1000, "fused"));
        let seconds = report.cells[0].trials[1].summary.unwrap().seconds_per_epoch;
        assert_eq!(workload.seconds_per_epoch, Some(seconds));
    }

    #[test]
    fn steps_follow_each_other_without_the_turns_of_others() {
        let (report, steps) = two_rounds();
        let a = of_trial(&report, &report.cells[0], 0, &machine(60), &steps);
        let of = |name: &str| -> Vec<(Option<u64>, f64, f64)> {
            let spans = a.nodes[0].spans_of(name);
            spans.map(|span| (span.step, span.start, span.end())).collect()
        };
        let (waits, steps) = (of(span::WAIT), of(span::STEP));
        for (number, (wait, step)) in waits.iter().zip(&steps).enumerate() {
            let from = 1001.0 + 0.5 * number as f64;
            assert_eq!(
                (wait.0, step.0),
                (Some(number as u64 + 1), Some(number as u64 + 1))
            );
            let times = [wait.1, wait.2, step.1, step.2];
            assert!(
                near(&times, &[from, from + 0.375, from + 0.375, from + 0.5]),
                "{times:?}"
            );
        }
        assert_eq!((waits.len(), steps.len()), (4, 4));
    }

    #[test]
    fn an_emulated_accelerator_is_a_gpu_with_a_note() {
        let (mut report, steps) = two_rounds();
        let made =
            |report: &Report, steps: &StepTimes| of_trial(report, &report.cells[0], 0, &machine(60), steps);
        let notes = |recording: &Recording| recording.about.as_ref().unwrap().notes.join("\n");
        let a = made(&report, &steps);
        // A step lies in the last quarter of each half second.
        let each = [0.0, 0.0, 0.0, 25.0, 100.0];
        let busy = values(&a, dimension::GPU);
        assert_eq!((busy.len(), busy[0].len()), (1, 20));
        for (number, value) in busy[0].iter().enumerate() {
            assert!((value - each[number % 5]).abs() < 0.01, "{number}: {value}");
        }
        assert!(notes(&a).contains("gpu0 is emulated. It takes batches at 320 images per second"));
        assert!(!notes(&a).contains("not known"));

        // Half of a step's time may be the accelerator's, where copying takes longer than training.
        report.cells[0].trials[0].rounds[0].totals.busy /= 2.0;
        assert!((values(&made(&report, &steps), dimension::GPU)[0][4] - 50.0).abs() < 0.01);
        report.cells[0].trials[0].rounds[0].totals.busy *= 2.0;

        // Without the times of the steps the round's share is all that is known.
        let a = made(&report, &StepTimes::default());
        let busy = values(&a, dimension::GPU)[0];
        assert!(busy.iter().all(|value| (value - 25.0).abs() < 0.01), "{busy:?}");
        assert!(a.nodes[0].spans.is_empty());
        assert!(notes(&a).contains("the times of the steps are not known of 2 of 2 rounds"));

        // A GPU of the machine keeps its name; a real trainer has no emulated one.
        let mut with_gpu = machine(60);
        let gpu = Series {
            kind: "gpu".to_owned(),
            name: "gpu0".to_owned(),
            dimension: dimension::GPU.to_owned(),
            values: vec![1.0; 60],
        };
        with_gpu.recording.nodes[0].series.push(gpu);
        let a = of_trial(&report, &report.cells[0], 0, &with_gpu, &steps);
        let names: Vec<&str> = a.nodes[0]
            .of(dimension::GPU)
            .map(|gpu| gpu.name.as_str())
            .collect();
        assert_eq!(names, ["gpu0", "gpu1"]);
        report.cells[0].images_per_second = None;
        let a = made(&report, &steps);
        assert!(values(&a, dimension::GPU).is_empty() && !notes(&a).contains("emulated"));
    }

    /// What a file says of steps is not trusted: spans stay within their round.
    #[test]
    fn steps_that_cannot_be_do_no_harm() {
        let (report, _) = two_rounds();
        let mut steps = StepTimes::default();
        steps.add(
            0,
            1001.0,
            vec![[-5.0, 1e308], [1e308, f64::MIN_POSITIVE], [f64::NAN, 3.0]],
        );
        let a = of_trial(&report, &report.cells[0], 0, &machine(60), &steps);
        for span in &a.nodes[0].spans {
            assert!(span.start >= 1001.0 && span.end() <= 1002.0 + 1e-9, "{span:?}");
            assert!(span.duration >= 0.0, "{span:?}");
        }
    }

    #[test]
    fn a_cell_has_a_page_for_every_trial_but_a() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = report(vec![cell(Arch::Resnet18, 12, 10.0, &[4.0, 10.0, 12.0])]);
        report.cells[0].trials[3].rounds.clear();
        report.cells[0].summarize();
        let cell = &report.cells[0];
        assert!(!are_there(cell, dir.path()));
        assert_eq!(link(cell, 1, dir.path()), None);
        // Also where the machine was not recorded.
        write(&report, cell, &Machine::default(), dir.path()).unwrap();
        assert!(are_there(cell, dir.path()));
        let pages: Vec<Option<String>> = (0..4).map(|trial| link(cell, trial, dir.path())).collect();
        let of = |trial: &str| Some(format!("pairs/resnet18-load12-{trial}/profiler-comparison.html"));
        assert_eq!(pages, [None, of("fused"), of("gpu"), None]);
        let read =
            |page: &Option<String>| fs::read_to_string(dir.path().join(page.as_ref().unwrap())).unwrap();
        let (faster, same) = (read(&pages[1]), read(&pages[2]));
        for text in [
            "Stokehold compare: resnet18 at load 12, fed to an emulated accelerator</p>",
            "<h1>fused takes 60.0 % less time than per-op: 4.01 s instead of 10.02 s per epoch</h1>",
            "Trial A: per-op",
            "Trial B: fused",
            "per-op: the times of the steps are not known of 8 of 8 rounds.",
        ] {
            assert!(faster.contains(text), "{text}");
        }
        assert!(
            same.contains("<h1>per-op and gpu cannot be told apart: "),
            "{same}"
        );
    }
}
