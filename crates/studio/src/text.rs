//! Texts from files, made fit for a page.
//!
//! The page shows them as text, so markup needs no care here. Control characters do: they would be invisible, or turn the order of
//! what follows. So do lines of any length.

/// The most characters of a line of a log.
pub const LINE: usize = 4096;

/// A line as it is shown: without colours of terminals, and as a progress bar last left it. Longer ones are cut, and say so.
pub fn line(text: &str) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    let last = text.rsplit('\r').next().unwrap_or(text);
    let plain = without_escapes(last);
    let mut shown: String = plain.chars().take(LINE).map(visible).collect();
    let rest = plain.chars().skip(LINE).count();
    if rest > 0 {
        shown += &format!(" … and {rest} more characters");
    }
    shown
}

/// A name or a sentence of at most `most` characters, with visible characters only.
pub fn short(text: &str, most: usize) -> String {
    let shown: String = text.chars().take(most).map(visible).collect();
    match text.chars().nth(most) {
        Some(_) => shown + "…",
        None => shown,
    }
}

/// What somebody has written to be read, at most `most` characters: with the marks that some scripts need, and without what controls
/// a terminal or turns the order of what follows.
pub fn written(text: &str, most: usize) -> String {
    text.chars().take(most).map(plain).collect()
}

/// Tabs and line ends stay; what else controls a terminal or turns the order of text becomes U+FFFD.
fn plain(c: char) -> char {
    match c {
        '\t' | '\n' => c,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// As [`plain`], and what would be invisible becomes U+FFFD too.
fn visible(c: char) -> char {
    match c {
        '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => '\u{fffd}',
        c => plain(c),
    }
}

/// Without the sequences of ECMA-48 that begin with ESC [ and end with a letter, by which programs colour their lines, and those from
/// ESC ] to BEL or ESC \, by which they name windows and make links.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len().min(2 * LINE));
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        plain += &rest[..at];
        let (escape, after) = rest[at..].split_at(1);
        if let Some(parameters) = after.strip_prefix('[') {
            let end = parameters.find(|c: char| !matches!(c, '0'..='?' | ' '..='/'));
            rest = end.map_or("", |end| {
                let last = parameters[end..].chars().next().map_or(0, char::len_utf8);
                &parameters[end + last..]
            });
        } else if let Some(string) = after.strip_prefix(']') {
            let ends = ["\u{7}", "\u{1b}\\"].iter();
            let end = ends
                .filter_map(|end| string.find(end).map(|at| at + end.len()))
                .min();
            rest = end.map_or("", |end| &string[end..]);
        } else {
            plain += escape;
            rest = after;
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_what_would_be_invisible_is_seen() {
        assert_eq!(line("\u{1b}[1;31mloss\u{1b}[0m 0.5\n"), "loss 0.5");
        assert_eq!(
            line("a\u{7}b\u{202e}c\td\u{1b}x"),
            "a\u{fffd}b\u{fffd}c\td\u{fffd}x"
        );
        assert_eq!(line("10 %\r 50 %\r100 %"), "100 %");
        assert_eq!(line("\u{1b}[31"), "");
        assert_eq!(line("\u{1b}]0;title\u{7}text"), "text");
        assert_eq!(
            line("a \u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\ b"),
            "a link b"
        );
    }

    #[test]
    fn a_line_of_a_megabyte_is_cut() {
        let shown = line(&"ä".repeat(1 << 20));
        assert!(
            shown.ends_with("… and 1044480 more characters"),
            "{}",
            &shown[8190..]
        );
        assert_eq!(short("abcdef", 3), "abc…");
        assert_eq!(short("abc", 3), "abc");
    }
}
