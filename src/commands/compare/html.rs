//! `compare.html`: one page of charts and tables that needs no script, no network and no other file.
//!
//! It is well-formed XML as well as HTML, so that any XML parser reads it.

mod bars;
mod heat;
mod lines;

use stokehold_page::html::{document, noted, paragraph, section};
use stokehold_page::svg::escape;

use super::report::{Report, Samples};
use super::{LETTERS, conclusion, table};

/// The style of this page, in addition to that of all reports.
const STYLE: &str = include_str!("html/style.css");

/// The page of a report; `samples` are in the order of the cells.
pub fn page(report: &Report, samples: &[Samples]) -> String {
    let headline = conclusion::headline(report).unwrap_or_else(|| report.title());
    let paragraphs =
        |lines: Vec<String>| -> String { lines.iter().map(|line| paragraph("", line)).collect() };
    let header = format!(
        "<header>\n<p class=\"eyebrow\">Stokehold compare: {}</p>\n<h1>{}</h1>\n{}{}</header>\n",
        escape(&report.title()),
        escape(&headline),
        key(report),
        paragraphs(report.what()),
    );
    let body = [
        header,
        format!(
            "<section class=\"conclusion\">\n<h2>Conclusion</h2>\n{}</section>\n",
            paragraphs(conclusion::of(report))
        ),
        format!(
            "<div class=\"pair\">\n{}{}</div>\n",
            bars::figure(report),
            lines::figure(report)
        ),
        heat::figure(report, samples),
        section("Seconds per epoch", &table::published(report).html()),
        noted("Every run", COLUMNS, &table::details(report).html()),
    ];
    document(
        &format!("Stokehold: {}", report.title()),
        STYLE,
        &body.concat(),
        "",
    )
}

/// An explanation of the columns of the table of runs.
const COLUMNS: &str = "Images/s over the whole run; loader and trainer are the speeds of each without the other, in images/s; waited is \
                       the trainer's share of time without a batch; CPU ms/image is the CPU time of loader and trainer together; CPU \
                       p50/95/99 are percentiles of the share of all cores that was busy; loss and top-1 are the last epoch's, in training \
                       and in validation, the latter over the given number of images (of how many, where some were bad).";

/// The legend of the trials' colours.
fn key(report: &Report) -> String {
    let item = |trial: usize| {
        format!(
            "<span class=\"key\"><span class=\"swatch {}\"></span>Trial {}: {}</span>",
            ["a", "b"][trial],
            LETTERS[trial],
            report.executor(trial)
        )
    };
    format!("<p class=\"keys\">{}{}</p>\n", item(0), item(1))
}

#[cfg(test)]
mod tests {
    use stokehold_train::model::Arch;

    use super::*;
    use crate::commands::compare::report::Sample;
    use crate::commands::compare::report::tests::{cell, published_report, report};

    fn samples(report: &Report, cores: usize) -> Vec<Samples> {
        let run = |seconds: f64| -> Vec<Sample> {
            let at = |number: usize| Sample {
                since: 1e9 + number as f64 / 10.0,
                time: 1e9 + (number + 1) as f64 / 10.0,
                cpu: (0..cores)
                    .map(|core| ((number * 7 + core * 31) % 101) as f64)
                    .collect(),
            };
            (0..(seconds * 10.0) as usize).map(at).collect()
        };
        let both = |cell: &super::super::report::Cell| {
            cell.trials.each_ref().map(|trial| run(trial.seconds_per_epoch()))
        };
        report.cells.iter().map(both).collect()
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
        let mut named = published_report();
        named.settings.data = "data/<photos> & \"more\"".into();
        let one = report(vec![cell(Arch::Resnet18, 0, 10.0, 12.0)]);
        for report in [named, one, report(Vec::new())] {
            for samples in [samples(&report, 8), samples(&report, 0)] {
                let page = page(&report, &samples);
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
        let report = published_report();
        let page = page(&report, &samples(&report, 64));
        for text in [
            "<h1>resnet18, loads 1, 4, 8, 12: 36.57 s of 57.84 s per epoch saved; resnet50",
            "resnet152 at load 12, B (fused): 114.38 s per epoch",
            "resnet50 at load 8: better by 43.01 %",
            "resnet152 at load 1, trial A: cores",
            "<td data-is=\"better by\">72.59 %</td>",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<circle").count(), 12);
        assert_eq!(page.matches("class=\"range\"").count(), 24);
        assert_eq!(page.matches("class=\"strip\"").count(), 24);
        // 64 cores of noise, where no two neighbours are of one shade.
        assert!(page.len() < 3_000_000, "{}", page.len());
    }
}
