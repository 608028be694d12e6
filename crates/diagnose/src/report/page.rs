//! The page of one run.

use std::collections::HashSet;
use std::fmt::Write;

use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_page::html::{figure, paragraph, section};
use stokehold_page::svg::{escape, escape_with_code};
use stokehold_page::words::{clipped, digits, duration, moment, name, share};
use stokehold_profile::{Recording, dimension};

use super::figures::{self, Job, Spread, Step};
use super::pictures::{self, ChartSeries};
use super::{Contents, data, judged, shown, tables};
use crate::advice::{Advice, amount, misfit, order};
use crate::curves::{Curve, Subject};
use crate::rules::Finding;

/// The most problems that are shown.
const PROBLEMS: usize = 40;

pub fn page(contents: &Contents<'_>) -> String {
    let recording = contents.recording;
    let runs: Vec<_> = data::of(recording, contents.findings, "").into_iter().collect();
    let body = [
        header(contents),
        advice(contents),
        job(recording),
        heat(recording, !runs.is_empty()),
        curves(contents),
        tiles(recording, contents.findings),
        stages(recording),
        tables::usage(contents.findings, recording),
        tables::percentiles(recording),
        tables::processes(recording),
        tables::framework(recording),
        judged::rules(contents.findings),
        judged::details(contents.findings, recording),
        notes(&[recording]),
    ];
    super::document("Stokehold: profile of a run", &body.concat(), &runs)
}

fn header(contents: &Contents<'_>) -> String {
    let mut html = "<header>\n<p class=\"eyebrow\">Stokehold profile</p>\n".to_owned();
    let (headline, rest) = headline(contents.verdict);
    let _ = writeln!(html, "<h1>{}</h1>", escape_with_code(headline));
    if !rest.is_empty() {
        let _ = writeln!(html, "<p class=\"lead\">{}</p>", escape_with_code(&rest));
    }
    for fact in facts(contents.recording) {
        html += &paragraph("", &fact);
    }
    html + "</header>\n"
}

/// The most characters of a headline that has several parts: three lines on a telephone.
const HEADLINE: usize = 120;

/// A verdict's first parts, as many as a headline has room for, and the others as a sentence.
fn headline(verdict: &str) -> (&str, String) {
    let mut ends = verdict
        .match_indices("; ")
        .map(|(at, _)| at)
        .chain([verdict.len()]);
    let first = ends.next().unwrap_or(verdict.len());
    let end = ends.take_while(|end| *end <= HEADLINE).last().unwrap_or(first);
    let mut rest = verdict[end..].trim_start_matches("; ").to_owned();
    // Names such as num_workers=4 stay as they are.
    let word = rest.split(' ').next().unwrap_or_default();
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        rest[..1].make_ascii_uppercase();
    }
    (&verdict[..end], rest)
}

/// The command, the machine and the time, in sentences.
pub fn facts(recording: &Recording) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(about) = &recording.about {
        facts.push(format!("Command: {}", name(&about.command.join(" "))));
        let machine = &about.machine;
        facts.push(format!(
            "{}, {} cores, sampled every {}, Stokehold {}.{}",
            name(machine.cpu.as_deref().unwrap_or("Processor unknown")),
            machine.cores,
            match recording.intervals() {
                // Half longer than the usual interval: it was changed during the run.
                Some((least, most)) if most > 1.5 * least =>
                    format!("{} to {}", duration(least), duration(most)),
                _ => duration(about.interval_ms as f64 / 1000.0),
            },
            name(&about.stokehold),
            match about.exit_code {
                Some(0) | None => String::new(),
                Some(code) => format!(" The command ended with exit code {code}."),
            }
        ));
    } else {
        facts.push(
            "Recorded by another program, which left no description of machine and command.".to_owned(),
        );
    }
    let (cores, gpus, samples) = extent(recording);
    facts.push(if samples == 0 {
        "No sample of the machine was recorded.".to_owned()
    } else {
        let machines = plural(recording.nodes.len(), "machine");
        let (cores, gpus) = (plural(cores, "core"), plural(gpus, "GPU"));
        format!(
            "{} of {cores} and {gpus} on {machines}.",
            plural(samples, "sample")
        )
    });
    let (all, shown) = (recording.nodes.len(), shown(recording).len());
    if shown < all {
        facts.push(format!(
            "The first {shown} machines by name are shown one by one, and {} not; the rules judged all {all}, and \
             totals are over all.",
            match all - shown {
                1 => "1 more is".to_owned(),
                more => format!("{more} more are"),
            }
        ));
    }
    facts
}

/// The numbers of cores, GPUs and ticks of all nodes.
fn extent(recording: &Recording) -> (usize, usize, usize) {
    let count = |of: &'static str| recording.nodes.iter().map(|node| node.of(of).count()).sum();
    let ticks = recording.nodes.iter().map(|node| node.ticks.len()).sum();
    (count(dimension::CPU), count(dimension::GPU), ticks)
}

fn advice(contents: &Contents<'_>) -> String {
    let about = contents.recording.about.as_ref();
    let workload = about.and_then(|about| about.workload.as_ref());
    if contents.advice.is_empty() {
        let why = match workload.map(misfit) {
            Some(Some(misfit)) => format!("{}{}.", misfit[..1].to_uppercase(), &misfit[1..]),
            Some(None) => "No change that Stokehold can make is predicted to make this run faster.".to_owned(),
            None => "What a change would gain is predicted for runs of stokehold train and compare, and for PyTorch scripts that \
                     train. For this run the findings below say what to look at."
                .to_owned(),
        };
        return section("Advice", &paragraph("note", &why));
    }
    let (worth, others): (Vec<&Advice>, Vec<&Advice>) =
        contents.advice.iter().partition(|advice| advice.is_worth_it());
    let mut body = if worth.is_empty() {
        paragraph(
            "",
            "No tested change would gain more than the difference between two equal runs.",
        )
    } else {
        format!(
            "<div class=\"wrap advice\">{}</div>\n",
            changes(&worth, contents.currency)
        )
    };
    body += &workload
        .and_then(order)
        .map_or(String::new(), |order| paragraph("note", &order));
    if !others.is_empty() {
        let _ = write!(
            body,
            "<details><summary>Changes without a significant gain</summary>\n<div class=\"wrap advice\">{}</div></details>\n",
            changes(&others, contents.currency)
        );
    }
    if let Some(machines) = contents.machines {
        let _ = write!(
            body,
            "<details><summary>{}</summary>\n<div class=\"wrap\">{}</div>{}</details>\n",
            machines.heading(),
            machines.table().html(),
            paragraph(
                "note",
                &[format!("Ranges are extrapolated. Prices: {}", machines.prices)]
                    .iter()
                    .chain(&machines.notes)
                    .map(|note| clipped(note, 400) + ". ")
                    .collect::<String>()
            )
        );
    }
    section("Advice", &body)
}

fn changes(advice: &[&Advice], currency: &str) -> String {
    let mut table = Table::new(
        &[
            "Change",
            "Predicted s/epoch",
            "Gain s/epoch",
            "Gain",
            "Cost per epoch",
            "Why",
        ],
        &[0, 5],
    );
    for advice in advice {
        table.row([
            name(&advice.title),
            match advice.seconds_at_best {
                Some(best) => format!("{best:.2} to {:.2}", advice.seconds_per_epoch),
                None => format!("{:.2}", advice.seconds_per_epoch),
            },
            format!("{:.2}", advice.gain_seconds),
            format!("{:.0} %", advice.gain_percent),
            advice
                .cost_per_epoch
                .map_or("–".to_owned(), |cost| amount(cost, &name(currency))),
            match advice.flags.as_slice() {
                [] => advice.why.clone(),
                flags => format!("{}\n{}", advice.why, flags.join(" ")),
            },
        ]);
    }
    table.html()
}

fn job(recording: &Recording) -> String {
    let Some(job) = Job::of(recording) else {
        return section(
            "Job summary",
            &paragraph(
                "note",
                "No moment of this run was recorded: there is neither a sample nor a span.",
            ),
        );
    };
    let mut table = Table::new(&["", "", "Share"], &[0]);
    table.row(["Start".to_owned(), moment(job.start), String::new()]);
    let unfinished = recording
        .about
        .as_ref()
        .is_some_and(|about| about.ended.is_none());
    let end = match unfinished {
        true => format!("not recorded; last known {}", moment(job.end)),
        false => moment(job.end),
    };
    table.row(["End".to_owned(), end, String::new()]);
    table.row([
        "Duration".to_owned(),
        duration(job.duration()),
        share(job.duration(), job.duration()),
    ]);
    let mut bar = String::new();
    let missing = if let Some(parts) = job.parts() {
        for (number, (part, seconds)) in parts.into_iter().enumerate() {
            let of = share(seconds, job.duration());
            let width = 100.0 * seconds / job.duration().max(1e-9);
            let _ = write!(
                bar,
                "<div class=\"part p{number}\" style=\"width:{width:.3}%\" title=\"{part}: {}, {of}\"></div>",
                duration(seconds),
            );
            table.row([part.to_owned(), format!("{seconds:.1} s"), of]);
        }
        bar = format!(
            "<div class=\"bar\">{bar}</div>\n<p class=\"keys\">{}</p>\n",
            ["Initialisation", "Training loop", "Finalisation"]
                .iter()
                .enumerate()
                .map(|(number, part)| format!(
                    "<span class=\"key\"><span class=\"swatch p{number}\"></span>{part}</span>"
                ))
                .collect::<String>()
        );
        String::new()
    } else {
        paragraph(
            "note",
            "No steps were recorded, so initialisation, training and finalisation are not told apart. A program marks \
             its steps through STOKEHOLD_TIMELINE.",
        )
    };
    let waited = figures::wait_share(recording).map_or(String::new(), |share| {
        paragraph(
            "",
            &format!(
                "In the training loop the trainer waited for data {:.1} % of the time.",
                100.0 * share
            ),
        )
    });
    section("Job summary", &(bar + &table.html() + &waited + &missing))
}

/// The element for the heat map; the script draws it.
pub fn heat(recording: &Recording, known: bool) -> String {
    let (cores, gpus, samples) = extent(recording);
    let heading = if gpus > 0 {
        "Cores and GPUs over time"
    } else {
        "Cores over time"
    };
    if !known || (samples == 0 && recording.nodes.iter().all(|node| node.spans.is_empty())) {
        return section(
            heading,
            &paragraph("note", "No sample was recorded, so there is nothing to draw."),
        );
    }
    let mut words = String::new();
    if samples == 0 {
        words += "No sample of the machine was recorded; only steps are drawn. ";
    } else if cores == 0 {
        words += "No core was sampled. ";
    }
    if gpus == 0 && samples > 0 {
        words += "No GPU was recorded. ";
    }
    words += "A row for each; the darker, the busier. Drag over a time to look closer, twice-click or press 0 to see all; \
              + − and arrow keys work too. Where a column of pixels holds several samples it shows their mean, or the \
              least or largest of them.";
    figure(heading, &words, &heat_box(""))
}

/// The element that the script draws a run's heat map into.
pub fn heat_box(label: &str) -> String {
    format!(
        "<div class=\"heat\" data-run=\"{label}\"></div>\n<noscript><p class=\"note\">The heat map needs \
         JavaScript; the tables and the other pictures do not.</p></noscript>\n"
    )
}

/// The most curves in one chart, and the most charts of numbers that stand alone.
const TOGETHER: usize = pictures::COLOURS;
const ALONE: usize = 12;

/// The numbers that the run reported, on the time axis of the heat map: losses together, accuracies together, the rest alone.
fn curves(contents: &Contents<'_>) -> String {
    let Some(job) = Job::of(contents.recording) else {
        return String::new();
    };
    let of = |subject: Subject| -> Vec<&Curve> {
        let curves = contents.curves.iter();
        curves.filter(|curve| curve.subject() == subject).collect()
    };
    let mut tiles = String::new();
    let mut tile = |heading: &str, together: &[&Curve]| {
        let keys: String = together
            .iter()
            .enumerate()
            .map(|(place, curve)| {
                let best = curve.best().map_or(String::new(), |best| {
                    let at = best
                        .step
                        .map_or(String::new(), |step| format!(" at {} {step}", curve.counts));
                    format!(", best {}{at}", digits(best.value))
                });
                format!(
                    "<span class=\"key\"><span class=\"swatch c{place}\"></span>{}{best}</span> ",
                    escape(&name(&curve.name))
                )
            })
            .collect();
        let picture = pictures::curves(together, [job.start, job.end]);
        tiles += &figure(heading, "", &format!("<p class=\"keys\">{keys}</p>\n{picture}"));
    };
    for (subject, heading) in [(Subject::Loss, "Losses"), (Subject::Accuracy, "Accuracies")] {
        for together in of(subject).chunks(TOGETHER) {
            tile(heading, together);
        }
    }
    let others = of(Subject::Rate).into_iter().chain(of(Subject::Other));
    for curve in others.take(ALONE) {
        tile(&name(&curve.name), &[curve]);
    }
    if tiles.is_empty() {
        return String::new();
    }
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

/// Histograms, box plots and step durations, as far as there is data.
fn tiles(recording: &Recording, findings: &[Finding]) -> String {
    let mut tiles = String::new();
    let series = |of: &'static str| recording.nodes.iter().flat_map(move |node| node.of(of));
    for (of, class, heading, what) in [
        (
            dimension::CPU,
            "heat-cpu",
            "How busy cores were",
            "utilisation of a core",
        ),
        (
            dimension::GPU,
            "heat-gpu",
            "How busy GPUs were",
            "utilisation of a GPU",
        ),
        (
            dimension::GPU_MEMORY,
            "heat-gpu",
            "GPU memory",
            "memory of a GPU in use",
        ),
    ] {
        let counts = figures::histogram(series(of));
        if counts.iter().sum::<u64>() > 0 {
            let part = ChartSeries {
                class,
                name: "",
                of: &counts,
            };
            let sentence = "Share of all samples in each class of five points.";
            tiles += &figure(heading, sentence, &pictures::histogram(&[part], what));
        }
    }
    let boxes = gpu_boxes(recording, "heat-gpu", "");
    tiles += &gpu_figure(&boxes);
    let deviations = deviations(findings);
    for node in shown(recording) {
        let Some((mode, steps)) = figures::steps(node) else {
            continue;
        };
        let (sentence, limit) = step_sentence(&steps, deviations);
        let part = ChartSeries {
            class: "b",
            name: "",
            of: steps.as_slice(),
        };
        let heading = match recording.nodes.len() {
            1 => format!("Durations of {} steps", mode_name(&mode)),
            _ => format!("Durations of {} steps on {}", mode_name(&mode), name(&node.name)),
        };
        tiles += &figure(&heading, &sentence, &pictures::steps(&[part], &[limit]));
    }
    if tiles.is_empty() {
        return String::new();
    }
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

/// The figure of box plots of GPUs; empty without GPUs.
pub fn gpu_figure(boxes: &[(&'static str, String, [f64; 7])]) -> String {
    if boxes.is_empty() {
        return String::new();
    }
    let sentence = "Box: 25th to 75th percentile, with the median. Whiskers: 5th and 95th. Dots: extremes.";
    figure(
        "GPU utilisation",
        sentence,
        &pictures::boxes(boxes, "utilisation of a GPU"),
    )
}

/// The box plots of GPUs, with the node's name if there are several nodes.
pub fn gpu_boxes(
    recording: &Recording,
    class: &'static str,
    before: &str,
) -> Vec<(&'static str, String, [f64; 7])> {
    let mut boxes = Vec::new();
    for node in shown(recording) {
        for series in node.of(dimension::GPU) {
            if let Some(at) = figures::box_plot(series.values.iter().copied()) {
                let name = match recording.nodes.len() {
                    1 => format!("{before}{}", series.name),
                    _ => format!("{before}{} {}", node.name, series.name),
                };
                boxes.push((class, name, at));
            }
        }
    }
    boxes
}

/// The number of standard deviations above which the rule calls a step an outlier.
pub fn deviations(findings: &[Finding]) -> f64 {
    let rule = findings.iter().find(|finding| finding.rule == "StepOutlier");
    let value = rule.and_then(|rule| rule.parameters.iter().find(|(name, _)| *name == "stddev"));
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(3.0)
}

/// The durations of steps in a sentence, and the duration above which a step is an outlier.
pub fn step_sentence(steps: &[Step], deviations: f64) -> (String, f64) {
    let limit = figures::outlier_from(steps, deviations);
    let outliers = steps.iter().filter(|step| step.duration > limit).count();
    let spread = Spread::of(steps.iter().map(|step| step.duration as f32));
    let sentence = spread.map_or(String::new(), |spread| {
        format!(
            "{}: median {}, mean {}, longest {}. {}.",
            plural(steps.len(), "step"),
            duration(spread.p50),
            duration(spread.mean),
            duration(spread.max),
            match outliers {
                0 => format!("None is longer than mean + {deviations} standard deviations"),
                1 => format!(
                    "1 is longer than {}, mean + {deviations} standard deviations",
                    duration(limit)
                ),
                many => format!(
                    "{many} are longer than {}, mean + {deviations} standard deviations",
                    duration(limit)
                ),
            }
        )
    });
    (sentence, limit)
}

fn mode_name(mode: &str) -> String {
    match mode {
        "TRAIN" => "training".to_owned(),
        "EVAL" => "validation".to_owned(),
        other => name(other),
    }
}

fn stages(recording: &Recording) -> String {
    if recording.nodes.iter().all(|node| node.steps().next().is_none()) {
        return String::new();
    }
    figure(
        "Stages of a step",
        "From the wait for its batch to its end: what the trainer did, and what the loader's workers did meanwhile.",
        "<div class=\"gantt\"></div>\n",
    )
}

/// Notes about the recordings themselves; what holds for several of them stands once.
pub fn notes(recordings: &[&Recording]) -> String {
    let mut all: Vec<&String> = Vec::new();
    let mut seen = HashSet::new();
    for recording in recordings {
        let noted = recording.about.iter().flat_map(|about| &about.notes);
        all.extend(noted.chain(&recording.problems).filter(|&note| seen.insert(note)));
    }
    if all.is_empty() {
        return String::new();
    }
    let mut list: String = all
        .iter()
        .take(PROBLEMS)
        .map(|text| format!("<li>{}</li>\n", escape_with_code(&clipped(text, 400))))
        .collect();
    if all.len() > PROBLEMS {
        let _ = writeln!(list, "<li>And {} more.</li>", all.len() - PROBLEMS);
    }
    section("About the recording", &format!("<ul>\n{list}</ul>\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_has_the_first_parts_of_a_verdict() {
        let whole = |verdict: &str| assert_eq!(headline(verdict), (verdict, String::new()));
        whole("Short; and whole.");
        whole(&"y".repeat(300));
        for (begin, shown) in [("the", "The"), ("num_workers=4", "num_workers=4")] {
            let long = format!("First; second; {begin} {}; last.", "x".repeat(110));
            let (headline, rest) = headline(&long);
            assert_eq!(headline, "First; second");
            assert_eq!(rest, format!("{shown} {}; last.", "x".repeat(110)));
        }
    }
}
