//! The files of a comparison.

use std::error::Error;
use std::path::Path;

use super::report::{Report, Samples};
use super::{conclusion, html, table};
use crate::files;

/// Writes the report in all formats.
pub fn write(report: &Report, out: &Path) -> Result<(), Box<dyn Error>> {
    files::write(&out.join("compare.json"), report.json()?)?;
    files::write(&out.join("compare.csv"), table::csv(report))?;
    files::write(&out.join("compare.md"), markdown(report))?;
    let samples: Vec<Samples> = report
        .cells
        .iter()
        .map(|cell| cell.samples(out))
        .collect::<Result<_, _>>()?;
    files::write(&out.join("compare.html"), html::page(report, &samples))?;
    Ok(())
}

fn markdown(report: &Report) -> String {
    let paragraphs = |lines: Vec<String>| lines.join("\n\n");
    format!(
        "# Stokehold: {}\n\n{}\n\n{}\n{}\n{}\n",
        report.title(),
        paragraphs(report.what()),
        table::published(report).markdown(),
        table::details(report).markdown(),
        paragraphs(conclusion::of(report))
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::commands::compare::report::tests::published_report;

    #[test]
    fn every_form_is_written() {
        let dir = tempfile::tempdir().unwrap();
        write(&published_report(), dir.path()).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("compare.md").contains("| resnet18 | 12 | 77.82 | 21.33 | 72.59 % | yes |"));
        assert!(read("compare.csv").starts_with("model,load,a,b,a_seconds_per_epoch,"));
        let before: Report = serde_json::from_str(&read("compare.json")).unwrap();
        assert_eq!(before.cells.len(), 12);
    }
}
