//! The few things that all pictures of reports need.

use std::fmt::{Display, Write};

/// Text for XML content and attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // Not allowed in XML, or turning round what stands next to them; names of files and processes may hold them.
            '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.push('\u{fffd}')
            }
            c if c.is_control() && c != '\n' && c != '\t' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The same for the content of HTML, with what stands between backticks as code.
pub fn escape_with_code(text: &str) -> String {
    let mut html = String::new();
    let mut parts = text.split('`');
    html += &escape(parts.next().unwrap_or_default());
    while let Some(code) = parts.next() {
        match parts.next() {
            Some(after) => html += &format!("<code>{}</code>{}", escape(code), escape(after)),
            None => html += &escape(&format!("`{code}")),
        }
    }
    html
}

/// A picture under construction, in its own units: one is about a pixel at full width.
pub struct Svg {
    width: f64,
    body: String,
}

impl Svg {
    /// An empty picture, so wide in its own units.
    pub fn new(width: f64) -> Self {
        Self {
            width,
            body: String::new(),
        }
    }

    /// A rectangle, with a text that shows under the pointer.
    pub fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4], title: &str) {
        let title = match title {
            "" => "/>".to_owned(),
            text => format!("><title>{}</title></rect>", escape(text)),
        };
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{title}"
        );
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A text; the class says by which end it hangs: `end`, `middle`, or else its start.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], text: impl Display) {
        let text = escape(&text.to_string());
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        );
    }

    /// A line through points.
    pub fn polyline(&mut self, class: &str, points: &[[f64; 2]]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    /// A dot, with a text that shows under the pointer.
    pub fn circle(&mut self, class: &str, [x, y]: [f64; 2], title: &str) {
        let _ = writeln!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escape(title)
        );
    }

    /// The picture; `description` is what it shows, for those who do not see it.
    pub fn finish(self, height: f64, description: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width,
            escape(description),
            self.body
        )
    }
}

/// Round numbers, about `count` and at least two of them, from at most `low` to at least `high`.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let span = (high - low).max(1e-9);
    let rough = span / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step).floor() as i64, (high / step - 1e-9).ceil() as i64);
    (first..=last.max(first + 1))
        .map(|tick| tick as f64 * step)
        .collect()
}

/// A tick's number, without digits that say nothing.
pub fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_stands_between_backticks() {
        assert_eq!(
            escape_with_code("run `a <b>` now"),
            "run <code>a &lt;b&gt;</code> now"
        );
        assert_eq!(escape_with_code("`a``b`"), "<code>a</code><code>b</code>");
        assert_eq!(escape_with_code("one ` alone"), "one ` alone");
        assert_eq!(escape_with_code(""), "");
    }

    #[test]
    fn ticks_are_round_and_enclose() {
        assert_eq!(ticks(0.0, 77.82, 5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(0.0, 173.18, 5), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert_eq!(ticks(-3.0, 12.0, 5), [-5.0, 0.0, 5.0, 10.0, 15.0]);
        assert_eq!(ticks(0.0, 80.0, 4), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(0.0, 0.0, 5).len(), 2);
        let tiny = ticks(0.0, 0.07, 5);
        assert!(tiny[0] == 0.0 && *tiny.last().unwrap() >= 0.07, "{tiny:?}");
        assert_eq!([0.02, 20.0, -0.0].map(short), ["0.02", "20", "0"]);
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(
            escape("<a & \"b\">\u{1}\u{202e}\u{ffff}"),
            "&lt;a &amp; &quot;b&quot;&gt;\u{fffd}\u{fffd}\u{fffd}"
        );
    }
}
