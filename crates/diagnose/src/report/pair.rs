//! Two runs on one page, with the same scales.

use serde_json::Value;
use stokehold_base::student::{LEVEL, welch};
use stokehold_page::Table;
use stokehold_page::html::{figure, paragraph, section};
use stokehold_page::svg::{escape, escape_with_code};
use stokehold_page::words::{duration, name};
use stokehold_profile::{Recording, dimension};

use super::figures::{self, Job, Spread};
use super::judged::{ordered, summary};
use super::page::{deviations, facts, gpu_boxes, gpu_figure, heat_box, notes, step_sentence};
use super::pictures::{self, ChartSeries};
use super::tables::{self, METRICS};
use super::{Contents, Heading, data, run_folder};
use crate::rules::Finding;

const LETTERS: [&str; 2] = ["A", "B"];
const CLASSES: [&str; 2] = ["a", "b"];

pub fn page(heading: Option<&Heading<'_>>, pair: [&Contents<'_>; 2]) -> String {
    let recordings = pair.map(|contents| contents.recording);
    let runs: Vec<Value> = std::iter::zip(pair, LETTERS)
        .filter_map(|(contents, letter)| {
            data::of(contents.recording, contents.findings, &format!("Trial {letter}"))
        })
        .collect();
    let body = [
        header(heading, pair),
        verdicts(pair),
        figures_table(pair, heading.is_none()),
        heat(&runs),
        tiles(pair),
        usage(pair),
        rules(pair.map(|contents| contents.findings)),
        notes(&recordings),
    ];
    super::document(&title(recordings), &body.concat(), &runs)
}

fn title(recordings: [&Recording; 2]) -> String {
    let names = recordings.map(|recording| {
        let run = run_folder(&recording.path).file_name().unwrap_or_default();
        name(&run.to_string_lossy())
    });
    format!("Stokehold: {} and {} side by side", names[0], names[1])
}

fn header(heading: Option<&Heading<'_>>, pair: [&Contents<'_>; 2]) -> String {
    let (eyebrow, headline) = match heading {
        Some(heading) => (heading.eyebrow, heading.headline.to_owned()),
        None => ("Stokehold profile: two runs side by side", headline(pair)),
    };
    let key = |number: usize| {
        format!(
            "<span class=\"key\"><span class=\"swatch {}\"></span>Trial {}: {}</span>",
            CLASSES[number],
            LETTERS[number],
            escape(&name(
                &run_folder(&pair[number].recording.path).display().to_string()
            ))
        )
    };
    format!(
        "<header>\n<p class=\"eyebrow\">{}</p>\n<h1>{}</h1>\n<p class=\"keys\">{}{}</p>\n</header>\n",
        escape(eyebrow),
        escape(&headline),
        key(0),
        key(1)
    )
}

/// What the two recordings say of the difference.
fn headline(pair: [&Contents<'_>; 2]) -> String {
    let seconds = pair.map(|contents| figures::seconds_per_epoch(contents.recording));
    let durations = pair.map(|contents| Job::of(contents.recording).map(|job| job.duration()));
    match (other_work(pair), seconds, durations) {
        (Some(other), ..) => format!("Not the same work: {other}"),
        (None, [Some(a), Some(b)], _) if a > 0.0 => {
            let claim = saved(a, b, "per epoch");
            let epochs = pair.map(|contents| figures::epochs(contents.recording));
            match welch([&epochs[0], &epochs[1]]) {
                Some(p) if p <= LEVEL => claim,
                Some(_) => format!("{claim}; epochs of one run differ as much, so it may be chance"),
                None => format!("{claim}; with less than two epochs of each it may be chance"),
            }
        }
        (None, _, [Some(a), Some(b)]) if a > 0.0 => {
            format!("{}; one run of each, so it may be chance", saved(a, b, "in all"))
        }
        _ => "Two runs side by side".to_owned(),
    }
}

/// The differences in what the two runs trained on, which make their times incomparable; `None` if there are
/// none.
fn other_work(pair: [&Contents<'_>; 2]) -> Option<String> {
    let [a, b] = pair.map(|contents| contents.recording.about.as_ref()?.workload.as_ref());
    let (a, b) = (a?, b?);
    let differ = |what: &str, a: &dyn ToString, b: &dyn ToString| {
        let (a, b) = (a.to_string(), b.to_string());
        (a != b).then(|| format!("A has {a} {what}, B {b}"))
    };
    differ("images an epoch", &a.images, &b.images).or_else(|| differ("as device", &a.device, &b.device))
}

/// The saving of B compared to A, in a phrase.
fn saved(a: f64, b: f64, what: &str) -> String {
    let percent = 100.0 * (a - b) / a;
    let (a, b) = (duration(a), duration(b));
    if percent.abs() < 0.5 {
        format!("B takes as long as A: {b} against {a} {what}")
    } else if percent > 0.0 {
        format!("B takes {b} instead of {a} {what}, {percent:.1} % less")
    } else {
        format!("B takes {b} instead of {a} {what}, {:.1} % more", -percent)
    }
}

fn verdicts(pair: [&Contents<'_>; 2]) -> String {
    let mut body = String::new();
    for (contents, letter) in std::iter::zip(pair, LETTERS) {
        body += &format!(
            "<p><strong>{letter}:</strong> {}</p>\n",
            escape_with_code(contents.verdict)
        );
        for fact in facts(contents.recording) {
            body += &paragraph("note", &fact);
        }
    }
    section("Verdicts", &body)
}

/// The numbers of both runs, and the difference of B; with their parts if they are whole jobs.
fn figures_table(pair: [&Contents<'_>; 2], are_whole: bool) -> String {
    let recordings = pair.map(|contents| contents.recording);
    let mut table = Table::new(&["", "A", "B", "B against A"], &[0]);
    let mut row = |what: &str, values: [Option<f64>; 2], show: fn(f64) -> String| {
        if values.iter().any(Option::is_some) {
            let difference = match values {
                [Some(a), Some(b)] if a != 0.0 => format!("{:+.1} %", 100.0 * (b - a) / a),
                _ => "–".to_owned(),
            };
            let [a, b] = values.map(|value| value.map_or("–".to_owned(), show));
            table.row([what.to_owned(), a, b, difference]);
        }
    };
    row(
        "Seconds per epoch",
        recordings.map(figures::seconds_per_epoch),
        |s| format!("{s:.2} s"),
    );
    let jobs = recordings.map(Job::of);
    row("Duration", jobs.map(|job| Some(job?.duration())), duration);
    for (place, part) in ["Initialisation", "Training loop", "Finalisation"]
        .into_iter()
        .enumerate()
        .filter(|_| are_whole)
    {
        let seconds = jobs.map(|job| Some(job?.parts()?[place].1));
        row(part, seconds, duration);
    }
    row(
        "Trainer waited for data",
        recordings.map(figures::wait_share),
        |share| format!("{:.1} %", 100.0 * share),
    );
    let steps = recordings.map(|recording| {
        let all = recording.nodes.iter().filter_map(figures::steps);
        Spread::of(all.flat_map(|(_, steps)| steps).map(|step| step.duration as f32))
    });
    row("Steps", steps.map(|steps| Some(steps?.count as f64)), |count| {
        format!("{count:.0}")
    });
    row("Step, median", steps.map(|steps| Some(steps?.p50)), duration);
    row("Step, p95", steps.map(|steps| Some(steps?.p95)), duration);
    row("Step, longest", steps.map(|steps| Some(steps?.max)), duration);
    for (of, name) in [
        (dimension::CPU, "Core busy"),
        (dimension::IO_WAIT, "Core, I/O wait"),
        (dimension::GPU, "GPU busy"),
        (dimension::GPU_MEMORY, "GPU memory"),
        (dimension::MEMORY, "Memory in use"),
    ] {
        let means = recordings.map(|recording| {
            let series = recording.nodes.iter().flat_map(|node| node.of(of));
            let known = series
                .flat_map(|series| &series.values)
                .filter(|value| value.is_finite());
            let (sum, count) = known.fold((0.0, 0u64), |(sum, count), value| {
                (sum + f64::from(*value), count + 1)
            });
            (count > 0).then(|| sum / count as f64)
        });
        row(&format!("{name}, mean"), means, |value| format!("{value:.1} %"));
    }
    if table.is_empty() {
        return section(
            "Figures",
            &paragraph("note", "Nothing was recorded in either run."),
        );
    }
    section("Figures", &table.html())
}

fn heat(runs: &[Value]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    figure(
        "Cores and GPUs over time",
        "Both runs from their own start, on the same scale of time and of colour. Drag over a time to look closer, \
         twice-click or press 0 to see all.",
        &heat_box(""),
    )
}

fn tiles(pair: [&Contents<'_>; 2]) -> String {
    let recordings = pair.map(|contents| contents.recording);
    let mut tiles = String::new();
    for (of, heading, what) in [
        (dimension::CPU, "How busy cores were", "utilisation of a core"),
        (dimension::GPU, "How busy GPUs were", "utilisation of a GPU"),
        (dimension::GPU_MEMORY, "GPU memory", "memory of a GPU in use"),
    ] {
        let counts = recordings
            .map(|recording| figures::histogram(recording.nodes.iter().flat_map(|node| node.of(of))));
        if counts.iter().flatten().sum::<u64>() > 0 {
            let parts = [0, 1].map(|number| ChartSeries {
                class: CLASSES[number],
                name: ["A: ", "B: "][number],
                of: &counts[number],
            });
            let sentence = "Share of all samples in each class of five points.";
            tiles += &figure(heading, sentence, &pictures::histogram(&parts, what));
        }
    }
    let boxes: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|number| gpu_boxes(recordings[number], CLASSES[number], ["A ", "B "][number]))
        .collect();
    tiles += &gpu_figure(&boxes);
    let steps = pair.map(|contents| {
        let all = contents.recording.nodes.iter().filter_map(figures::steps);
        let mut steps: Vec<_> = all.flat_map(|(_, steps)| steps).collect();
        steps.sort_by(|a, b| a.start.total_cmp(&b.start));
        (steps, deviations(contents.findings))
    });
    if steps.iter().any(|(steps, _)| !steps.is_empty()) {
        let of_each = steps
            .each_ref()
            .map(|(steps, deviations)| step_sentence(steps, *deviations));
        let parts = [0, 1].map(|number| ChartSeries {
            class: CLASSES[number],
            name: ["A: ", "B: "][number],
            of: steps[number].0.as_slice(),
        });
        let sentence = format!("A: {} B: {}", or_none(&of_each[0].0), or_none(&of_each[1].0));
        let limits = of_each.map(|(_, limit)| limit);
        tiles += &figure("Durations of steps", &sentence, &pictures::steps(&parts, &limits));
    }
    if tiles.is_empty() {
        return String::new();
    }
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

fn or_none(sentence: &str) -> &str {
    if sentence.is_empty() {
        "no steps."
    } else {
        sentence
    }
}

/// The figures of the published report: percentiles of CPU, GPU, memory and I/O of both runs.
fn usage(pair: [&Contents<'_>; 2]) -> String {
    let details = pair.map(|contents| {
        let rule = contents
            .findings
            .iter()
            .find(|finding| finding.rule == "OverallSystemUsage");
        rule.map_or(&Value::Null, |rule| &rule.details)
    });
    let mut table = Table::new(
        &["Node", "Metric", "", "max", "p99", "p95", "p50", "min"],
        &[0, 1, 2],
    );
    for (metric, unit, scale) in METRICS {
        let nodes = details.map(|details| details.get(metric).and_then(Value::as_object));
        let mut names: Vec<&String> = nodes
            .into_iter()
            .flatten()
            .flat_map(|nodes| nodes.keys())
            .filter(|node| {
                let mut recordings = pair.iter().map(|contents| contents.recording);
                recordings.any(|recording| tables::is_shown(recording, node))
            })
            .collect();
        names.sort();
        names.dedup();
        for node in names {
            for (of, letter) in std::iter::zip(nodes, LETTERS) {
                let values = of.and_then(|of| of.get(node));
                let cells = ["max", "p99", "p95", "p50", "min"]
                    .map(|column| tables::number(values.and_then(|values| values.get(column)), scale));
                let start = [name(node), format!("{metric}, {unit}"), letter.to_owned()];
                table.row(start.into_iter().chain(cells));
            }
        }
    }
    if table.is_empty() {
        return section("System usage", &paragraph("note", "Nothing was sampled."));
    }
    section("System usage", &table.html())
}

fn rules(findings: [&[Finding]; 2]) -> String {
    let mut table = Table::new(&["Rule", "A", "B"], &[0, 1, 2]);
    let mut names: Vec<&str> = findings
        .into_iter()
        .flat_map(ordered)
        .map(|finding| finding.rule)
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    for name in names {
        let cells = findings.map(|findings| {
            let finding = findings.iter().find(|finding| finding.rule == name);
            finding.map_or("not judged".to_owned(), |finding| {
                match (finding.triggered, finding.judged) {
                    (true, _) => format!("yes: {}", summary(finding)),
                    (false, true) => format!("no: {}", summary(finding)),
                    (false, false) => summary(finding),
                }
            })
        });
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    if table.is_empty() {
        return String::new();
    }
    section("Rules", &format!("<div class=\"wrap\">{}</div>\n", table.html()))
}
