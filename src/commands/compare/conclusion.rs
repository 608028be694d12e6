//! What the numbers say, in plain sentences, and not more than they say.

use stokehold_pipeline::Executor;
use stokehold_train::AnyExecutor;
use stokehold_train::model::Arch;

use super::report::{Cell, Report, Trial};
use super::trial_name;

/// The conclusion, a paragraph each; nothing without cells.
pub fn of(report: &Report) -> Vec<String> {
    let Some(first) = report.models().first().copied() else {
        return Vec::new();
    };
    let models = report.models();
    let mut lines: Vec<String> = models
        .iter()
        .filter_map(|&model| of_model(report, model))
        .collect();
    lines.extend(models.iter().filter_map(|&model| unquiet(report, model)));
    if let Some(cell) = report.cells_of(first).last() {
        lines.extend(why(report, cell));
    }
    lines.extend(equal_work(report));
    lines
}

/// The first model at its highest load, in a line.
pub fn headline(report: &Report) -> Option<String> {
    let cell = *report.cells_of(*report.models().first()?).last()?;
    let [a, b] = seconds(cell);
    let what = match verdict(cell) {
        Verdict::Faster => format!("{:.2} s of {a:.2} s per epoch saved", a - b),
        Verdict::Slower => format!("no better, {:.2} s more per epoch", b - a),
        Verdict::Unclear => "no difference shown".to_owned(),
    };
    Some(format!("{}, load {}: {what}", cell.model, cell.load))
}

/// Whether the epochs of two trials can be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Each of B's epochs was shorter than each of A's.
    Faster,
    /// Each of B's epochs was longer than each of A's.
    Slower,
    /// They overlap.
    Unclear,
}

/// Compares all epochs of one trial with all of the other.
fn verdict(cell: &Cell) -> Verdict {
    let [a, b] = [cell.trials[0].range(), cell.trials[1].range()];
    if b.1 < a.0 {
        Verdict::Faster
    } else if b.0 > a.1 {
        Verdict::Slower
    } else {
        Verdict::Unclear
    }
}

/// How a model fared at its highest load, and over the loads.
fn of_model(report: &Report, model: Arch) -> Option<String> {
    let cells = report.cells_of(model);
    let (lowest, cell) = (*cells.first()?, *cells.last()?);
    let [a, b] = names(report);
    let [seconds_a, seconds_b] = seconds(cell);
    let (model, load) = (cell.model, cell.load);
    let saved = seconds_a - seconds_b;
    let range = |trial: &Trial| {
        let (low, high) = trial.range();
        format!("{low:.2} to {high:.2} s")
    };
    let mut text = match verdict(cell) {
        Verdict::Faster => format!(
            "{model} at load {load}: {b} took {seconds_b:.2} s per epoch, {a} {seconds_a:.2} s. {b} saved \
             {saved:.2} s per epoch ({:.1} %).",
            cell.better_by
        ),
        Verdict::Slower => format!(
            "{model} at load {load}: {b} is not better. It took {seconds_b:.2} s per epoch, {:.2} s more than {a} \
             ({:.1} %).",
            -saved, -cell.better_by
        ),
        Verdict::Unclear => format!(
            "{model} at load {load}: no difference is shown. Epochs took {} with {a} and {} with {b}, which \
             overlap.",
            range(&cell.trials[0]),
            range(&cell.trials[1])
        ),
    };
    if report.settings.epochs == 1 {
        text += " With one epoch each, how far chance goes is not known.";
    }
    if lowest.load < load {
        let [low_a, low_b] = seconds(lowest);
        text += &format!(
            " From load {} to {load}, an epoch of {a} went from {low_a:.2} to {seconds_a:.2} s, one of {b} from \
             {low_b:.2} to {seconds_b:.2} s.",
            lowest.load
        );
        text += &over_loads(report, &cells);
    }
    Some(text)
}

/// At which loads B's epochs were shorter or longer than A's, each of them, and at which they overlap.
fn over_loads(report: &Report, cells: &[&Cell]) -> String {
    let loads = |wanted: Verdict| {
        let loads = cells.iter().filter(|cell| verdict(cell) == wanted);
        loads.map(|cell| cell.load.to_string()).collect::<Vec<_>>()
    };
    let part = |wanted, what: &str| {
        let loads = loads(wanted);
        (!loads.is_empty()).then(|| format!("{what} at load {}", loads.join(", ")))
    };
    let parts = [
        part(Verdict::Faster, "shorter"),
        part(Verdict::Slower, "longer"),
        part(Verdict::Unclear, "not to be told apart"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!(" The epochs of {} are {}.", names(report)[1], parts.join(", "))
}

/// The fastest and the slowest measurement of a model's trainer alone, which is the same in every run.
fn trainer_alone(report: &Report, model: Arch) -> Option<(f64, f64)> {
    let trials = report.cells_of(model).into_iter().flat_map(|cell| &cell.trials);
    let rates = trials.filter_map(|trial| trial.summary.trainer_ceiling);
    rates.fold(None, |range, rate| {
        let (low, high) = range.unwrap_or((rate, rate));
        Some((f64::min(low, rate), f64::max(high, rate)))
    })
}

/// A warning where one and the same thing was measured at speeds that differ by more than a tenth.
fn unquiet(report: &Report, model: Arch) -> Option<String> {
    let (low, high) = trainer_alone(report, model)?;
    (high > 1.1 * low).then(|| {
        format!(
            "The machine was not quiet: the trainer alone, which is the same in every run of {model}, took from \
             {low:.1} to {high:.1} images/s. Differences of that size in seconds per epoch say nothing."
        )
    })
}

/// Where the difference comes from, by what loader and trainer do alone.
fn why(report: &Report, cell: &Cell) -> Vec<String> {
    let [a, b] = names(report);
    let [trial_a, trial_b] = &cell.trials;
    let waited = |trial: &Trial| 100.0 * trial.summary.wait_share;
    let mut lines = Vec::new();
    if let (Some(ms_a), Some(ms_b)) = (report.core_ms(trial_a), report.core_ms(trial_b)) {
        let mut text = format!(
            "Why ({} at load {}): alone, the loader spends {ms_a:.1} ms of a core on an image with {a} and \
             {ms_b:.1} ms with {b}. The trainer waited {:.1} % of the time with {a} and {:.1} % with {b}.",
            cell.model,
            cell.load,
            waited(trial_a),
            waited(trial_b)
        );
        if report.on_cpu() {
            let (images, cores) = (report.dataset.train, report.machine.cores);
            let expected = (ms_a - ms_b) * images as f64 / 1e3 / cores as f64;
            let [seconds_a, seconds_b] = seconds(cell);
            text += &format!(
                " The device is this CPU, so trainer and loader share its cores, and what preprocessing takes, \
                 training lacks: {:.1} ms for each of {images} images are {expected:.2} s of {cores} cores, \
                 against {:.2} s measured.",
                ms_a - ms_b,
                seconds_a - seconds_b
            );
        }
        lines.push(text);
    }
    if let (Some(ms_a), Some(ms_b)) = (trial_a.cpu_time.ms_per_image(), trial_b.cpu_time.ms_per_image()) {
        lines.push(format!(
            "In training, loader and trainer together spent {ms_a:.1} ms of CPU time on an image with {a} and \
             {ms_b:.1} ms with {b}. Other work on the machine disturbs this less than seconds per epoch."
        ));
    }
    // Whatever else the machine does only makes it slower.
    if let Some((_, ceiling)) = trainer_alone(report, cell.model) {
        let reached = |trial: &Trial| 100.0 * trial.summary.images_per_second / ceiling;
        lines.push(format!(
            "With batches at hand the trainer takes {ceiling:.1} images/s: {a} reached {:.0} % of that, {b} \
             {:.0} %.",
            reached(trial_a),
            reached(trial_b)
        ));
    }
    lines
}

/// How alike the two trials learnt.
fn equal_work(report: &Report) -> Option<String> {
    let [a, b] = [report.executor(0), report.executor(1)];
    let difference = |cell: &Cell| {
        let [a, b] = &cell.trials;
        Some(100.0 * (a.summary.train_loss? - b.summary.train_loss?).abs() / a.summary.train_loss?)
    };
    let largest = report.cells.iter().filter_map(difference).reduce(f64::max)?;
    let per_op = AnyExecutor::Cpu(Executor::PerOp);
    let reason = if a == b {
        "Both trials are the same, so every difference above is noise".to_owned()
    } else if a != per_op && b != per_op {
        format!("{a} and {b} make the same pixels to the bit: what differs is the order of a device's sums")
    } else {
        let once = if a == per_op { b } else { a };
        format!("{once} resamples once where per-op does so at every rotation, so pixels differ slightly")
    };
    Some(format!(
        "Final training losses of A and B differ by at most {largest:.2} %. {reason}."
    ))
}

fn names(report: &Report) -> [String; 2] {
    [0, 1].map(|trial| trial_name(trial, report.executor(trial)))
}

fn seconds(cell: &Cell) -> [f64; 2] {
    [0, 1].map(|trial| cell.trials[trial].seconds_per_epoch())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::compare::report::tests::{cell, published_report, report};

    #[test]
    fn a_gain_is_told_in_seconds() {
        let lines = of(&published_report());
        assert_eq!(
            lines[0],
            "resnet18 at load 12: B (fused) took 21.33 s per epoch, A (per-op) 77.82 s. B (fused) saved 56.49 s per \
             epoch (72.6 %). From load 1 to 12, an epoch of A (per-op) went from 41.67 to 77.82 s, one of B (fused) \
             from 21.30 to 21.33 s. The epochs of B (fused) are shorter at load 1, 4, 8, 12."
        );
        // 8 loader threads, 9469 images in 77.82 s: 65.7 ms of a core each.
        assert!(
            lines[3].contains("65.7 ms of a core on an image with A (per-op) and 18.0 ms"),
            "{}",
            lines[3]
        );
        assert!(
            !lines[3].contains("share its cores"),
            "a GPU has its own: {}",
            lines[3]
        );
        assert!(lines.last().unwrap().contains("at most 0.00 %"));
    }

    #[test]
    fn nothing_is_claimed_that_the_epochs_do_not_show() {
        // Epochs of 9.5 and 10.5 s against 9 and 10 s.
        let lines = of(&report(vec![cell(Arch::Resnet18, 4, 10.0, 9.5)]));
        assert!(
            lines[0].starts_with("resnet18 at load 4: no difference is shown."),
            "{}",
            lines[0]
        );
        assert!(
            !lines[0].contains("saved") && !lines[0].contains("From load"),
            "{}",
            lines[0]
        );
        let lines = of(&report(vec![cell(Arch::Resnet18, 4, 10.0, 12.0)]));
        assert!(
            lines[0].contains("B (fused) is not better. It took 12.00 s per epoch, 2.00 s more"),
            "{}",
            lines[0]
        );
        let mixed = [(1, 10.0, 12.0), (4, 10.0, 9.5), (8, 10.0, 8.0)];
        let lines = of(&report(
            mixed.map(|(load, a, b)| cell(Arch::Resnet18, load, a, b)).into(),
        ));
        let expected = "shorter at load 8, longer at load 1, not to be told apart at load 4.";
        assert!(lines[0].ends_with(expected), "{}", lines[0]);
        assert_eq!(of(&report(Vec::new())), Vec::<String>::new());
    }

    #[test]
    fn a_busy_machine_is_told() {
        let mut report = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
        report.cells[0].trials[0].summary.trainer_ceiling = Some(21.0);
        report.cells[0].trials[1].summary.trainer_ceiling = Some(23.0);
        assert!(!of(&report).concat().contains("not quiet"));
        report.cells[0].trials[1].summary.trainer_ceiling = Some(30.0);
        assert!(of(&report)[1].contains("took from 21.0 to 30.0 images/s"));
    }

    #[test]
    fn a_cpu_is_shared() {
        let mut report = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
        for trial in &mut report.cells[0].trials {
            trial.summary.device = "Flex".into();
            trial.summary.trainer_ceiling = Some(1000.0);
        }
        let lines = of(&report);
        // 40 and 20 s of the loader alone on 8 cores are 20 s of difference.
        assert!(
            lines[1].contains("are 20.00 s of 8 cores, against 20.00 s measured"),
            "{}",
            lines[1]
        );
        assert!(
            lines[3].contains("A (per-op) reached 24 % of that, B (fused) 47 %"),
            "{}",
            lines[3]
        );
    }
}
