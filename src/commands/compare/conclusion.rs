//! The results in plain sentences, without overstating them.

use stokehold_pipeline::Executor;
use stokehold_train::AnyExecutor;
use stokehold_train::model::Arch;

use super::report::{Cell, Report, Trial};
use super::trial_name;
use super::verdict::{Verdict, mean_of};

/// The conclusion, one paragraph per item; empty without cells.
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
    lines.extend(models.iter().filter_map(|&model| disturbed(report, model)));
    if let Some(cell) = report.cells_of(first).last() {
        lines.extend(costs(report, cell));
    }
    lines.extend(equal_work(report));
    lines.push(test());
    lines
}

/// One line for every model, over all its loads.
pub fn headline(report: &Report) -> Option<String> {
    let of = |model: Arch| {
        let cells = report.cells_of(model);
        let [a, b] = [0, 1].map(|trial| mean_of(&cells, trial));
        let what = match Verdict::of_model(report, model) {
            Verdict::Faster(_) => format!("{:.2} s of {a:.2} s per epoch saved", a - b),
            Verdict::Slower(_) => format!("no better, {:.2} s more per epoch", b - a),
            Verdict::Unclear(_) | Verdict::Unknown(_) => "A and B cannot be told apart".to_owned(),
        };
        format!("{model}, {}: {what}", loads(&cells))
    };
    let models: Vec<String> = report.models().into_iter().map(of).collect();
    (!models.is_empty()).then(|| models.join("; "))
}

/// `load 4`, or `loads 1, 4`.
fn loads(cells: &[&Cell]) -> String {
    let each: Vec<String> = cells.iter().map(|cell| cell.load.to_string()).collect();
    let word = if each.len() == 1 { "load" } else { "loads" };
    format!("{word} {}", each.join(", "))
}

/// The result of a model over its loads, and at each.
fn of_model(report: &Report, model: Arch) -> Option<String> {
    let cells = report.cells_of(model);
    let (lowest, highest) = (*cells.first()?, *cells.last()?);
    let [a, b] = names(report);
    let [mean_a, mean_b] = [0, 1].map(|trial| mean_of(&cells, trial));
    let saved = mean_a - mean_b;
    let percent = 100.0 * saved / mean_a;
    let took = format!("{b} took {mean_b:.2} s per epoch, {a} {mean_a:.2} s");
    let what = match Verdict::of_model(report, model) {
        Verdict::Faster(p) => {
            format!(
                "{took}. {b} saved {saved:.2} s per epoch ({percent:.1} %, {}).",
                chance(p)
            )
        }
        Verdict::Slower(p) => format!(
            "{b} is not better. It took {mean_b:.2} s per epoch, {:.2} s more than {a} ({:.1} %, {}).",
            -saved,
            -percent,
            chance(p)
        ),
        Verdict::Unclear(p) => format!(
            "A and B cannot be told apart. {took}, and chance may have made the difference ({}).",
            chance(p)
        ),
        Verdict::Unknown(why) => format!("A and B cannot be told apart: {why}. {took}."),
    };
    let mut text = format!("{model}, {}: {what}", loads(&cells));
    if lowest.load < highest.load {
        let [low_a, low_b] = seconds(lowest);
        let [high_a, high_b] = seconds(highest);
        text += &format!(
            " From load {} to {}, an epoch of {a} went from {low_a:.2} to {high_a:.2} s, one of {b} from {low_b:.2} to \
             {high_b:.2} s.",
            lowest.load, highest.load
        );
        text += &over_loads(report, &cells);
    }
    Some(text)
}

/// `p = 0.012`.
fn chance(p: f64) -> String {
    if p < 0.001 {
        "p < 0.001".to_owned()
    } else {
        format!("p = {p:.3}")
    }
}

/// The loads at which B's epochs are shorter or longer than A's, and those at which the two cannot be told
/// apart.
fn over_loads(report: &Report, cells: &[&Cell]) -> String {
    let mut parts = [
        ("shorter", Vec::new()),
        ("longer", Vec::new()),
        ("indistinguishable", Vec::new()),
    ];
    for cell in cells {
        let part = match Verdict::of_cell(report, cell) {
            Verdict::Faster(_) => 0,
            Verdict::Slower(_) => 1,
            Verdict::Unclear(_) | Verdict::Unknown(_) => 2,
        };
        parts[part].1.push(cell.load.to_string());
    }
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, loads)| !loads.is_empty())
        .map(|(what, loads)| format!("{what} at load {}", loads.join(", ")))
        .collect();
    let b = &names(report)[1];
    format!(" Load by load, the epochs of {b} are {}.", parts.join(", "))
}

/// How differences are tested.
fn test() -> String {
    "One test decides everywhere whether A and B differ: Welch's two-sided t-test of their epochs at 5 %. It assumes that \
     runs differ from each other as much as the trainer alone did between the runs of a model. The 5 % are divided among the \
     models in the headline, and among the cells in the table."
        .to_owned()
}

/// The fastest and the slowest measurement of a model's trainer alone, which does the same work in every run.
fn trainer_alone(report: &Report, model: Arch) -> Option<(f64, f64)> {
    let trials = report.cells_of(model).into_iter().flat_map(|cell| &cell.trials);
    let rates = trials.filter_map(|trial| trial.summary.trainer_ceiling);
    rates.fold(None, |range, rate| {
        let (low, high) = range.unwrap_or((rate, rate));
        Some((f64::min(low, rate), f64::max(high, rate)))
    })
}

/// A warning if measurements of the same work differ by more than a tenth.
fn unquiet(report: &Report, model: Arch) -> Option<String> {
    let (low, high) = trainer_alone(report, model)?;
    (high > 1.1 * low).then(|| {
        format!(
            "The machine was not quiet: the trainer alone, which is the same in every run of {model}, took from \
             {low:.1} to {high:.1} images/s. The test takes differences of that size for chance."
        )
    })
}

/// Fewer cores of other programs are not mentioned.
const NOTICED: f64 = 0.1;
/// Trials that other programs disturbed by more than this many cores differently are not comparable by time.
const ALIKE: f64 = 0.25;

/// What other programs took while a model's runs were trained.
fn disturbed(report: &Report, model: Arch) -> Option<String> {
    let cells = report.cells_of(model);
    let others = |trial: usize| {
        let cores = cells.iter().map(|cell| cell.trials[trial].summary.others_cores);
        let cores = cores.collect::<Option<Vec<f64>>>()?;
        (!cores.is_empty()).then(|| cores.iter().sum::<f64>() / cores.len() as f64)
    };
    let (of_a, of_b) = (others(0)?, others(1)?);
    if of_a.max(of_b) < NOTICED {
        return None;
    }
    let [a, b] = names(report);
    let mut text = format!(
        "Other programs took {of_a:.1} of {} cores while {a} trained {model}, and {of_b:.1} while {b} did.",
        report.machine.cores
    );
    let free = report.machine.cores as f64 - of_a.max(of_b);
    if of_a.min(of_b) > ALIKE {
        text += &format!(
            " The times are those of a machine with {:.1} free cores; the CPU time per image holds for any.",
            free.max(0.0)
        );
    }
    if (of_a - of_b).abs() > ALIKE {
        text += " So the machine was not the same for both: compare again on a quiet machine, or go by the CPU time per image.";
    }
    Some(text)
}

/// The costs of loader and trainer alone.
fn costs(report: &Report, cell: &Cell) -> Vec<String> {
    let [a, b] = names(report);
    let [trial_a, trial_b] = &cell.trials;
    let waited = |trial: &Trial| 100.0 * trial.summary.wait_share;
    let mut lines = Vec::new();
    if let (Some(ms_a), Some(ms_b)) = (report.core_ms(trial_a), report.core_ms(trial_b)) {
        let mut text = format!(
            "What it costs ({} at load {}): alone, the loader spends {ms_a:.1} ms of a core on an image with {a} and \
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
                " The device is this CPU, so trainer and loader share its cores, and preprocessing takes CPU \
                 time from training: {:.1} ms for each of {images} images are {expected:.2} s of {cores} cores, \
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
    // Each beside the trainer as it was right after that run: the machine changes over a comparison.
    if let (Some(alone_a), Some(alone_b)) = (trial_a.summary.trainer_ceiling, trial_b.summary.trainer_ceiling)
    {
        let reached = |trial: &Trial, alone: f64| 100.0 * trial.summary.images_per_second / alone;
        lines.push(format!(
            "With batches at hand the trainer took {alone_a:.1} images/s after the run of {a}, which reached {:.0} % of \
             that, and {alone_b:.1} images/s after the run of {b}, which reached {:.0} %.",
            reached(trial_a, alone_a),
            reached(trial_b, alone_b)
        ));
    }
    lines
}

/// How similarly the two trials learnt.
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
    use crate::commands::compare::table;

    #[test]
    fn a_gain_is_told_in_seconds() {
        let report = published_report();
        let lines = of(&report);
        assert_eq!(
            lines[0],
            "resnet18, loads 1, 4, 8, 12: B (fused) took 21.27 s per epoch, A (per-op) 57.84 s. B (fused) saved 36.57 s \
             per epoch (63.2 %, p < 0.001). From load 1 to 12, an epoch of A (per-op) went from 41.67 to 77.82 s, one of B \
             (fused) from 21.30 to 21.33 s. Load by load, the epochs of B (fused) are shorter at load 1, 4, 8, 12."
        );
        assert_eq!(
            headline(&report).unwrap(),
            "resnet18, loads 1, 4, 8, 12: 36.57 s of 57.84 s per epoch saved; resnet50, loads 1, 4, 8, 12: 33.32 s of \
             79.49 s per epoch saved; resnet152, loads 1, 4, 8, 12: 52.89 s of 169.71 s per epoch saved"
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
        assert!(lines.iter().any(|line| line.contains("at most 0.00 %")));
        assert!(lines.last().unwrap().contains("Welch's two-sided t-test"));
    }

    #[test]
    fn headline_table_and_text_claim_the_same() {
        // Epochs of 9.5 and 10.5 s against 9 and 10 s; against 11.5 and 12.5 s; and 39.5 and 40.5 s against 19.5 and 20.5 s.
        for (a, b, in_headline, in_text, in_table) in [
            (
                10.0,
                9.5,
                "A and B cannot be told apart",
                "A and B cannot be told apart. B",
                "no",
            ),
            (
                10.0,
                12.0,
                "A and B cannot be told apart",
                "A and B cannot be told apart. B",
                "no",
            ),
            (
                40.0,
                20.0,
                "20.00 s of 40.00 s per epoch saved",
                "B (fused) saved 20.00 s",
                "yes",
            ),
            (
                20.0,
                40.0,
                "no better, 20.00 s more",
                "B (fused) is not better",
                "yes",
            ),
        ] {
            let report = report(vec![cell(Arch::Resnet18, 4, a, b)]);
            let headline = headline(&report).unwrap();
            assert!(headline.starts_with("resnet18, load 4: "), "{headline}");
            assert!(headline.contains(in_headline), "{headline}");
            let text = &of(&report)[0];
            assert!(text.contains(in_text) && !text.contains("From load"), "{text}");
            assert_eq!(table::published(&report).rows()[0][5], in_table);
        }
    }

    #[test]
    fn each_trial_stands_beside_the_trainer_after_it() {
        let mut report = report(vec![
            cell(Arch::Resnet18, 1, 94.69, 94.69),
            cell(Arch::Resnet18, 12, 94.69, 94.69),
        ]);
        // A quick moment in another run says nothing of these.
        report.cells[0].trials[1].summary.trainer_ceiling = Some(400.0);
        for (trial, alone) in report.cells[1].trials.iter_mut().zip([125.0, 200.0]) {
            trial.summary.trainer_ceiling = Some(alone);
        }
        let text = of(&report).join("\n");
        assert!(
            text.contains(
                "125.0 images/s after the run of A (per-op), which reached 80 % of that, and 200.0 images/s"
            ),
            "{text}"
        );
        assert!(text.contains("B (fused), which reached 50 %."), "{text}");
    }

    #[test]
    fn other_programs_are_told_where_they_took_cores() {
        let told = |others: [Option<f64>; 2]| {
            let mut report = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
            for (trial, others) in report.cells[0].trials.iter_mut().zip(others) {
                trial.summary.others_cores = others;
            }
            disturbed(&report, Arch::Resnet18)
        };
        assert_eq!(told([None, Some(1.0)]), None);
        assert_eq!(told([Some(0.05), Some(0.09)]), None);
        let alike = told([Some(1.0), Some(1.2)]).unwrap();
        assert!(
            alike.contains("took 1.0 of") && alike.ends_with("and 1.2 while B (fused) did. The times are those of a machine with 6.8 free cores; the CPU time per image holds for any."),
            "{alike}"
        );
        let unlike = told([Some(1.7), Some(0.2)]).unwrap();
        assert!(unlike.contains("not the same for both"), "{unlike}");
    }

    #[test]
    fn nothing_is_claimed_that_the_epochs_do_not_show() {
        let mixed = [(1, 20.0, 40.0), (4, 10.0, 9.5), (8, 40.0, 20.0)];
        let mixed = report(mixed.map(|(load, a, b)| cell(Arch::Resnet18, load, a, b)).into());
        let lines = of(&mixed);
        let expected = "shorter at load 8, longer at load 1, indistinguishable at load 4.";
        assert!(lines[0].ends_with(expected), "{}", lines[0]);
        assert!(
            headline(&mixed)
                .unwrap()
                .ends_with("A and B cannot be told apart")
        );
        let mut once = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
        for trial in &mut once.cells[0].trials {
            trial.epoch_seconds.truncate(1);
        }
        assert!(headline(&once).unwrap().ends_with("A and B cannot be told apart"));
        assert!(
            of(&once)[0].contains("told apart: it takes two epochs"),
            "{}",
            of(&once)[0]
        );
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
        // 20 s of 40 s, where the same takes 30 s or 21 s: the headline claims no more than the text.
        assert!(
            headline(&report)
                .unwrap()
                .ends_with("A and B cannot be told apart")
        );
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
            lines[3].contains("A (per-op), which reached 24 % of that")
                && lines[3].ends_with("which reached 47 %."),
            "{}",
            lines[3]
        );
    }
}
