//! Pieces of the pages: tables, sections, times, the frame around it all.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::data;
use super::pictures::clipped;
use super::svg::escape;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Names in tables are no longer than this.
const NAME: usize = 90;

/// A whole page. `runs` is what the script draws.
pub fn document(title: &str, body: &str, runs: &[Value]) -> String {
    let base = super::STYLE;
    let data = data::script(&Value::Array(runs.to_vec()));
    // The data comes last: what is above it is read and painted first.
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{base}{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script id=\"data\" type=\"application/json\">{data}</script>\n\
         <script>//<![CDATA[\n{SCRIPT}//]]></script>\n</body>\n</html>\n",
        title = escape(title)
    )
}

/// A card with a heading.
pub fn section(heading: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(heading))
}

/// A picture with its heading and a sentence.
pub fn figure(heading: &str, sentence: &str, picture: &str) -> String {
    format!(
        "<figure>\n<figcaption><h2>{}</h2>\n<p class=\"note\">{}</p></figcaption>\n{picture}</figure>\n",
        escape(heading),
        escape(sentence)
    )
}

/// A sentence.
pub fn paragraph(class: &str, text: &str) -> String {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    format!("<p{class}>{}</p>\n", escape(text))
}

/// A table whose first `words` columns, and the last where `tail`, are words; the others are numbers. A cell that holds
/// several lines shows them below each other.
pub struct Table {
    head: Vec<String>,
    words: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; columns named in `words` hold text, the others numbers.
    pub fn new(head: &[&str], words: &[usize]) -> Self {
        Self {
            head: head.iter().map(|&text| text.to_owned()).collect(),
            words: words.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As HTML.
    pub fn html(&self) -> String {
        let row = |cells: &[String], tag: &str| {
            let mut html = "<tr>".to_owned();
            for (column, cell) in cells.iter().enumerate() {
                let class = if self.words.contains(&column) {
                    " class=\"word\""
                } else {
                    ""
                };
                let scope = if tag == "th" { " scope=\"col\"" } else { "" };
                // On a narrow screen a row becomes a list, whose entries say themselves what they are.
                let label = match (tag, self.head.get(column)) {
                    ("td", Some(head)) if !head.is_empty() => format!(" data-is=\"{}\"", escape(head)),
                    _ => String::new(),
                };
                let lines: Vec<String> = cell.lines().map(escape).collect();
                let _ = write!(
                    html,
                    "<{tag}{scope}{class}{label}>{}</{tag}>",
                    lines.join("<br/>")
                );
            }
            html + "</tr>\n"
        };
        let rows: String = self.rows.iter().map(|cells| row(cells, "td")).collect();
        format!(
            "<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
            row(&self.head, "th")
        )
    }
}

/// A name from a recording, of a length that a page can bear.
pub fn name(text: &str) -> String {
    clipped(text, NAME)
}

/// A moment, `2026-11-21 12:56:32 UTC`.
pub fn moment(unix: f64) -> String {
    // To the end of the year 9999, which is as far as the format goes.
    if !(0.0..253_402_300_800.0).contains(&unix) {
        return format!("{unix:.0} s after 1970");
    }
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs_f64(unix)).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// A share of something in percent; a dash where there is nothing to share.
pub fn share(part: f64, of: f64) -> String {
    if of > 0.0 {
        format!("{:.1} %", 100.0 * part / of)
    } else {
        "–".to_owned()
    }
}

/// A number of things.
pub fn plural(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// A number that a JSON file has, in units of `scale`, with two decimals; a dash where it has none.
pub fn number(value: Option<&Value>, scale: f64) -> String {
    value
        .and_then(Value::as_f64)
        .map_or("–".to_owned(), |value| format!("{:.2}", value / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(1_591_748_109.23), "2020-06-10 00:15:09 UTC");
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(moment(odd).ends_with("after 1970"));
        }
    }

    #[test]
    fn cells_are_escaped_and_lines_kept() {
        let mut table = Table::new(&["a", "b"], &[0]);
        table.row(["<b>\nx", "1"]);
        let html = table.html();
        assert!(
            html.contains("<td class=\"word\" data-is=\"a\">&lt;b&gt;<br/>x</td><td data-is=\"b\">1</td>"),
            "{html}"
        );
    }
}
