//! A table, made once and written as text, Markdown and HTML.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::svg::escape;

/// A longer cell stands out of its column. Formats of more than 65535 characters panic.
const WIDEST: usize = 1000;

/// Rows of cells under headings. Columns of words stand to the left, columns of numbers to the right.
#[derive(Debug, Clone)]
pub struct Table {
    head: Vec<String>,
    words: Vec<usize>,
    rows: Vec<Vec<String>>,
    /// Where cells lead to, by row and column.
    links: BTreeMap<(usize, usize), String>,
}

impl Table {
    /// A table with these headings; columns named in `words` hold text, the others numbers.
    pub fn new(head: &[&str], words: &[usize]) -> Self {
        Self {
            head: head.iter().map(|&text| text.to_owned()).collect(),
            words: words.to_vec(),
            rows: Vec::new(),
            links: BTreeMap::new(),
        }
    }

    /// Adds a row, with a cell for each heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Makes a cell a link to another page, as HTML; text and Markdown show the cell alone. Rows and columns count from 0.
    pub fn link(&mut self, row: usize, column: usize, to: &str) {
        self.links.insert((row, column), to.to_owned());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Columns that stand under each other, for a terminal. Lines end in no spaces.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]);
            let widths = cells.map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
            widths.max().unwrap_or(0).min(WIDEST)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells = std::iter::zip(row, &widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| match self.words.contains(&column) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// As GitHub's Markdown.
    pub fn markdown(&self) -> String {
        // A cell stays in its row, and is text.
        let escaped = |cell: &String| {
            let text = cell
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('|', "\\|");
            text.lines().collect::<Vec<_>>().join("<br>")
        };
        let line = |cells: &[String]| {
            format!(
                "| {} |\n",
                cells.iter().map(escaped).collect::<Vec<_>>().join(" | ")
            )
        };
        let rule = (0..self.head.len()).map(|column| match self.words.contains(&column) {
            true => "---".to_owned(),
            false => "---:".to_owned(),
        });
        let rows = self.rows.iter().map(|row| line(row));
        line(&self.head) + &line(&rule.collect::<Vec<_>>()) + &rows.collect::<String>()
    }

    /// As HTML. A cell of several lines shows them below each other. On a narrow screen a row becomes a list whose entries have
    /// their headings next to them.
    pub fn html(&self) -> String {
        let row = |cells: &[String], tag: &str, number: Option<usize>| {
            let mut html = "<tr>".to_owned();
            for (column, cell) in cells.iter().enumerate() {
                let class = match self.words.contains(&column) {
                    true => " class=\"word\"",
                    false => "",
                };
                let scope = if tag == "th" { " scope=\"col\"" } else { "" };
                let label = match (tag, self.head.get(column)) {
                    ("td", Some(head)) if !head.is_empty() => format!(" data-is=\"{}\"", escape(head)),
                    _ => String::new(),
                };
                let lines: Vec<String> = cell.lines().map(escape).collect();
                let mut text = lines.join("<br/>");
                if let Some(to) = number.and_then(|number| self.links.get(&(number, column))) {
                    text = format!("<a href=\"{}\">{text}</a>", escape(to));
                }
                let _ = write!(html, "<{tag}{scope}{class}{label}>{text}</{tag}>");
            }
            html + "</tr>\n"
        };
        let rows: String = self
            .rows
            .iter()
            .enumerate()
            .map(|(number, cells)| row(cells, "td", Some(number)))
            .collect();
        format!(
            "<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
            row(&self.head, "th", None)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_any_length_is_written() {
        let mut table = Table::new(&["name", "count"], &[0]);
        table.row(["x".repeat(70_000), "1".to_owned()]);
        table.row(["y".to_owned(), "2".repeat(70_000)]);
        assert!(table.text().lines().all(|line| line.len() <= 71_002));
    }

    fn table() -> Table {
        let mut table = Table::new(&["name", "count"], &[0]);
        table.row(["<b>", "1"]);
        table.row(["longer", "100"]);
        table
    }

    #[test]
    fn text_stands_in_columns() {
        assert_eq!(table().text(), "name    count\n<b>         1\nlonger    100\n");
    }

    #[test]
    fn a_cell_of_markdown_stays_in_its_row() {
        let mut table = Table::new(&["what"], &[0]);
        table.row(["a | b\nc & <script>"]);
        assert!(
            table.markdown().ends_with("| a \\| b<br>c &amp; &lt;script> |\n"),
            "{}",
            table.markdown()
        );
    }

    #[test]
    fn markdown_says_how_columns_stand() {
        let expected = "| name | count |\n| --- | ---: |\n| &lt;b> | 1 |\n| longer | 100 |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn a_cell_may_be_a_link() {
        let mut table = table();
        table.link(0, 1, "a/\"b\".html");
        let html = table.html();
        assert!(
            html.contains("<td data-is=\"count\"><a href=\"a/&quot;b&quot;.html\">1</a></td>"),
            "{html}"
        );
        assert_eq!(html.matches("<a ").count(), 1);
        assert_eq!(table.text(), self::table().text());
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
