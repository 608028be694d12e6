//! `compare.html`: one page of charts and tables that needs no script, no network and no other file.
//!
//! It is well-formed XML as well as HTML, so that any XML parser reads it.

mod bars;
mod heat;
mod lines;

use stokehold_page::html::{document, noted, paragraph, section};
use stokehold_page::svg::escape;

use crate::report::{Cell, Report, Sample};
use crate::table;

/// The style of this page, in addition to that of all reports.
const STYLE: &str = include_str!("page/style.css");

/// The page of a report; `samples` are those of the machine, oldest first. `link` is the page of a cell's trial next to A,
/// relative to this one, if there is one.
pub fn page(report: &Report, samples: &[Sample], link: &dyn Fn(&Cell, usize) -> Option<String>) -> String {
    let paragraphs =
        |lines: Vec<String>| -> String { lines.iter().map(|line| paragraph("", line)).collect() };
    // A sentence for each network, of which one is enough for a headline.
    let mut sentences = report.headline().into_iter();
    let headline = sentences.next().unwrap_or_else(|| report.title());
    let others: String = sentences.map(|sentence| paragraph("lead", &sentence)).collect();
    let header = format!(
        "<header>\n<p class=\"eyebrow\">Stokehold compare: {}</p>\n<h1>{}</h1>\n{others}{}{}</header>\n",
        escape(&report.title()),
        escape(&headline),
        key(report),
        paragraphs(report.what()),
    );
    let optional = |heading: &str, note: &str, table: stokehold_page::Table| match table.is_empty() {
        true => String::new(),
        false => noted(heading, note, &table.html()),
    };
    let body = [
        header,
        result(report, link),
        optional(
            "Not measured",
            "The other trials were measured without these.",
            table::failures(report),
        ),
        format!(
            "<div class=\"pair\">\n{}{}</div>\n",
            bars::figure(report),
            lines::figure(report)
        ),
        format!(
            "<section class=\"conclusion\">\n<h2>What follows</h2>\n{}</section>\n",
            paragraphs(report.conclusion())
        ),
        heat::figure(report, samples),
        optional("How busy cores and accelerator were", USAGE, table::usage(report)),
        optional("Every trial", COLUMNS, table::details(report)),
        optional("Versions", "What did the work.", table::versions(report)),
    ];
    document(
        &format!("Stokehold: {}", report.title()),
        STYLE,
        &body.concat(),
        "",
    )
}

/// The table of the result. Where a pair has a page, its gain opens it.
fn result(report: &Report, link: &dyn Fn(&Cell, usize) -> Option<String>) -> String {
    let heading = "Seconds per epoch";
    let mut table = table::result(report);
    let mut linked = false;
    for (row, (cell, trial)) in table::rows_of_result(report).enumerate() {
        if let Some(page) = link(cell, trial) {
            table.link(row, table::GAIN, &page);
            linked = true;
        }
    }
    // Where there is little room, a row's cells stand below each other, and its verdict in sight.
    let table = format!("<div class=\"wrap\">{}</div>\n", table.html());
    match linked {
        true => noted(heading, PAIRS, &table),
        false => section(heading, &table),
    }
}

/// An explanation of the links in the table of the result.
const PAIRS: &str = "The figure of better by opens the page of its pair: cores, accelerator and steps over time, side by side.";

/// An explanation of the columns of the table of trials.
const COLUMNS: &str = "Per core-second: images for each second of CPU time, loader and trainer together. Waited and busy: shares of the \
                       trainer's time without a batch and in steps; in the rest its thread had no core. Shortest to longest: rounds, as seconds per epoch. Others' cores: \
                       what other programs kept busy meanwhile.";

/// An explanation of the table of percentiles.
const USAGE: &str = "Percentiles over the samples within a trial's rounds. Cores: the mean of all. Accelerator: an emulated one's busy \
                     share, by rounds. GPU memory: in use, of the device's.";

/// The class of a trial's colour.
fn colour(number: usize) -> String {
    match number {
        0 => "a".to_owned(),
        1 => "b".to_owned(),
        // As many as there are trials.
        _ => format!("m{}", number - 1),
    }
}

/// The legend of the trials' colours.
fn key(report: &Report) -> String {
    let item = |(number, trial): (usize, &crate::Trial)| {
        format!(
            "<span class=\"key\"><span class=\"swatch {}\"></span>{trial}</span>",
            colour(number)
        )
    };
    let items: String = report.plan.trials.iter().enumerate().map(item).collect();
    format!("<p class=\"keys\">{items}</p>\n")
}

#[cfg(test)]
mod tests {
    use stokehold_train::model::Arch;

    use super::*;
    use crate::report::Failure;
    use crate::report::tests::{cell, report};

    fn samples(report: &Report, cores: usize) -> Vec<Sample> {
        let rounds = report
            .cells
            .iter()
            .flat_map(|cell| &cell.trials)
            .flat_map(|trial| &trial.rounds);
        let (first, last) = rounds.fold((f64::INFINITY, 0.0), |(first, last), round| {
            (f64::min(first, round.began), f64::max(last, round.ended))
        });
        let count = if last > first {
            ((last - first) * 10.0).min(1e5) as usize
        } else {
            0
        };
        (0..count)
            .map(|tick| Sample {
                since: first + tick as f64 / 10.0,
                time: first + (tick + 1) as f64 / 10.0,
                cores: (0..cores)
                    .map(|core| ((tick * 7 + core * 31) % 101) as f64)
                    .collect(),
                gpus: vec![50.0],
                gpu_memory: vec![10.0],
            })
            .collect()
    }

    fn whole() -> Report {
        let cells = [Arch::Resnet18, Arch::Resnet50]
            .into_iter()
            .flat_map(|model| [1, 12].map(|load| cell(model, load, 5.0 + f64::from(load), &[4.0, 4.5])));
        report(cells.collect())
    }

    /// Checks that every element is closed in order and attributes are quoted, as XML asks.
    fn assert_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
        for (number, part) in body.split('<').enumerate().skip(1) {
            let (tag, text) = part
                .split_once('>')
                .unwrap_or_else(|| panic!("part {number}: {part}"));
            assert!(!text.contains('&') || text.contains(';'), "{text}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "part {number}");
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let outside: String = tag.split('"').step_by(2).collect();
            assert_eq!(
                outside.matches('=').count() * 2,
                tag.matches('"').count(),
                "{tag}"
            );
            if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().unwrap());
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_else() {
        let mut named = whole();
        named.plan.data = "data/<photos> & \"more\"".into();
        let mut failed = whole();
        failed.cells[0].trials[0].rounds.clear();
        failed.cells[0].trials[0].failure = Some(Failure::of("<b> & no".to_owned()));
        failed.cells[0].summarize();
        for report in [
            named,
            failed,
            report(vec![cell(Arch::Resnet18, 0, 10.0, &[12.0])]),
            report(Vec::new()),
        ] {
            for samples in [samples(&report, 8), Vec::new()] {
                let page = page(&report, &samples, &|cell, _| {
                    Some(format!("pairs/{}/x&\"<y>.html", cell.load))
                });
                assert_well_formed(&page);
                for word in [
                    "http:", "https:", "NaN", "inf\"", "<script", "url(", "@import", " src=",
                ] {
                    assert!(!page.contains(word), "{word}");
                }
            }
        }
    }

    #[test]
    fn the_page_shows_every_cell_in_every_picture() {
        let mut report = whole();
        let samples = samples(&report, 4);
        for cell in &mut report.cells {
            cell.measure_usage(&samples);
        }
        let page = page(&report, &samples, &|cell, trial| {
            (trial == 1).then(|| format!("pairs/{}-{trial}/page.html", cell.file_name()))
        });
        for text in [
            "fused takes 33 to 76 % less time than per-op in each of 4 cells.",
            "resnet50 at load 12, fused: 4.01 s per epoch",
            "gpu 50: better by 73.5 % at load 12",
            "resnet18 at load 1, per-op: cores",
            "<td class=\"word\" data-is=\"of\">gpu memory</td>",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(
            page.contains(
                "data-is=\"better by\"><a href=\"pairs/resnet50-load12-1/page.html\">76.5 %</a></td>"
            )
        );
        assert_eq!(
            page.matches("<a href=").count(),
            4,
            "a link for each cell that has a page"
        );
        assert_eq!(page.matches("class=\"range\"").count(), 12, "bars");
        assert_eq!(page.matches("class=\"strip\"").count(), 12, "heat maps");
        assert!(page.len() < 1_000_000, "{}", page.len());
    }
}
