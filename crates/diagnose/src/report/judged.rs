//! The rules' results: a table of all of them, and details of each that fired.

use std::fmt::Write;

use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_page::html::{paragraph, section};
use stokehold_page::svg::escape;
use stokehold_page::words::{clipped, duration, name};
use stokehold_profile::Recording;

use super::figures::Job;
use crate::rules::{Finding, Rule};

/// The most characters of a summary; some have a clause for each machine. The JSON files have all of it.
const SUMMARY: usize = 2000;
/// The most pieces of evidence that are shown for a finding.
const EVIDENCE: usize = 12;

pub fn rules(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return section("Rules", &paragraph("note", "No rule has judged this run."));
    }
    let (fired, others): (Vec<&Finding>, Vec<&Finding>) = ordered(findings)
        .into_iter()
        .partition(|finding| finding.triggered);
    let mut body = match fired.is_empty() {
        true => paragraph("note", "No rule fired."),
        false => table(&fired),
    };
    if !others.is_empty() {
        let _ = write!(
            body,
            "<details><summary>{} did not fire</summary>\n{}</details>\n",
            plural(others.len(), "rule"),
            table(&others)
        );
    }
    section("Rules", &body)
}

fn table(findings: &[&Finding]) -> String {
    let mut table = Table::new(
        &[
            "Rule",
            "Triggered",
            "Violations",
            "Datapoints",
            "Finding",
            "Parameters",
        ],
        &[0, 1, 4, 5],
    );
    for finding in findings {
        let parameters: Vec<String> = finding
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        table.row([
            finding.rule.to_owned(),
            outcome(finding).to_owned(),
            finding.violations.to_string(),
            finding.datapoints.to_string(),
            described(finding),
            parameters.join("\n"),
        ]);
    }
    format!("<div class=\"wrap rules\">{}</div>\n", table.html())
}

/// Whether a rule fired.
fn outcome(finding: &Finding) -> &'static str {
    match (finding.triggered, finding.judged) {
        (true, _) => "yes",
        (false, true) => "no",
        (false, false) => "not judged",
    }
}

/// What a rule detects, what it found, and its recommendation.
fn described(finding: &Finding) -> String {
    let rule = Rule::ALL.iter().find(|rule| rule.name == finding.rule);
    let detects = rule.map_or(String::new(), |rule| format!("Detects {}.", rule.detects));
    let lines = [&detects, &summary(finding), &finding.recommendation];
    lines.map(String::as_str).join("\n").trim().to_owned()
}

/// What a rule found, in a length that a page can show.
pub fn summary(finding: &Finding) -> String {
    clipped(&finding.summary, SUMMARY)
}

/// Rules that fired, then those that did not, then those that could not be evaluated.
pub fn ordered(findings: &[Finding]) -> Vec<&Finding> {
    let mut ordered: Vec<&Finding> = findings.iter().collect();
    ordered.sort_by_key(|finding| (!finding.triggered, !finding.judged));
    ordered
}

/// Each rule that fired, with times and places.
pub fn details(findings: &[Finding], recording: &Recording) -> String {
    let start = Job::of(recording).map_or(0.0, |job| job.start);
    let mut html = String::new();
    for finding in findings.iter().filter(|finding| finding.triggered) {
        let mut body = paragraph("", &summary(finding));
        if !finding.recommendation.is_empty() {
            body += &paragraph("do", &finding.recommendation);
        }
        if !finding.evidence.is_empty() {
            let mut table = Table::new(&["From", "To", "For", "Where", "Node", "Steps"], &[3, 4]);
            for evidence in finding.evidence.iter().take(EVIDENCE) {
                table.row([
                    after(evidence.from - start),
                    after(evidence.to - start),
                    duration((evidence.to - evidence.from).max(0.0)),
                    name(&evidence.what),
                    name(&evidence.node),
                    evidence
                        .steps
                        .map_or("–".to_owned(), |(first, last)| format!("{first}–{last}")),
                ]);
            }
            body += &table.html();
            if finding.evidence.len() > EVIDENCE {
                let more = finding.evidence.len() - EVIDENCE;
                body += &paragraph("note", &format!("And {more} more."));
            }
            let _ = writeln!(
                body,
                "<p><button type=\"button\" class=\"show\" data-rule=\"{}\">Show in the heat map</button></p>",
                escape(finding.rule)
            );
        }
        html += &format!(
            "<section class=\"finding\" id=\"{rule}\">\n<h2>{rule}</h2>\n{body}</section>\n",
            rule = escape(finding.rule)
        );
    }
    html
}

/// Time after the start, `1:02:03.4`.
fn after(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "" };
    let tenths = (seconds.abs() * 10.0).round() as u64;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{sign}{hours}:{minutes:02}:{seconds:02}.{tenth}")
    } else {
        format!("{sign}{minutes}:{seconds:02}.{tenth}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_the_start() {
        assert_eq!(
            [0.0, 59.96, 3723.4, -1.5].map(after),
            ["0:00.0", "1:00.0", "1:02:03.4", "−0:01.5"]
        );
    }
}
