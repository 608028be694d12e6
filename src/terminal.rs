//! Standard output and standard error, as text that cannot control a terminal.
//!
//! Names of files, samples and processes come from outside and may contain anything: an escape sequence that
//! clears the screen, a text direction that reverses a line. All output for people goes through [`Plain`],
//! which escapes such characters (`\x1b`, `\u{202e}`); JSON goes through [`json`], which escapes them as JSON
//! does. The output of a job's script is not escaped.

use std::fmt::Write as _;
use std::io::{self, Stderr, Stdout, Write};

pub use stokehold_base::shell::plain;
use stokehold_base::shell::written_out;

/// Standard output for people.
pub fn out() -> Plain<Stdout> {
    Plain::new(io::stdout())
}

/// Standard error for people.
pub fn err() -> Plain<Stderr> {
    Plain::new(io::stderr())
}

/// Prints JSON on standard output.
///
/// # Errors
/// If it cannot be written.
pub fn json(value: &impl serde::Serialize) -> io::Result<()> {
    json_text(&serde_json::to_string_pretty(value)?)
}

/// Prints a JSON text on standard output.
///
/// # Errors
/// If it cannot be written.
pub fn json_text(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", legal_json(text))
}

/// A JSON text with every character escaped that would control a terminal; outside of strings JSON has none
/// except line ends.
fn legal_json(text: &str) -> String {
    written_out(text, |plain, c| write!(plain, "\\u{:04x}", u32::from(c)))
}

/// Prints a message on standard error. The reader may be gone; ignore that.
///
/// A message of several lines is one message: its other lines are indented, so that none looks like the start
/// of another message, whatever a name contains.
pub fn note_line(text: &str) {
    let text = plain(text.trim_end());
    let (before, message) = text.split_at(text.len() - text.trim_start_matches('\n').len());
    let mut lines = message.lines();
    let mut out = format!("{before}{}\n", lines.next().unwrap_or_default());
    for line in lines {
        let indent = if line.starts_with(' ') || line.is_empty() {
            ""
        } else {
            "  "
        };
        out += &format!("{indent}{line}\n");
    }
    // One call per message: other threads and processes write too.
    let _ = io::stderr().write_all(out.as_bytes());
}

/// Prints a line on standard error, as `eprintln` does.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::terminal::note_line(&format!($($text)*))
    };
}
pub(crate) use note;

/// A writer that escapes characters that would control a terminal; line ends and tabs stay.
#[derive(Debug)]
pub struct Plain<W> {
    to: W,
    /// The beginning of a character whose other bytes have not come yet.
    begun: Vec<u8>,
}

impl<W> Plain<W> {
    /// Writes to `to`.
    pub fn new(to: W) -> Self {
        Self {
            to,
            begun: Vec::new(),
        }
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = Vec::new();
        let mut chunks = self.begun.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text += chunk.valid();
            let is_last = chunks.peek().is_none();
            let is_begun =
                is_last && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
            match chunk.invalid() {
                [] => {}
                // Cut off in the middle of a character: the rest comes with the next bytes.
                begun if is_begun => rest = begun.to_vec(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.begun = rest;
        self.to.write_all(plain(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        let shown = plain("a\x1b[2Jb\rc\u{9b}31m\u{202e}gpj.\u{7f}\u{2028}d\te é 日\u{61c}\n");
        assert_eq!(
            shown,
            "a\\x1b[2Jb\\x0dc\\u{9b}31m\\u{202e}gpj.\\x7f\\u{2028}d\te é 日\\u{61c}\n"
        );
    }

    #[test]
    fn characters_may_come_in_parts() {
        let mut to = Plain::new(Vec::new());
        let text = "日\u{9b}é\x1b";
        for byte in text.as_bytes() {
            to.write_all(&[*byte]).unwrap();
        }
        to.write_all(b"\xff!").unwrap();
        assert_eq!(String::from_utf8(to.to).unwrap(), "日\\u{9b}é\\x1b\u{fffd}!");
    }

    #[test]
    fn json_stays_json() {
        let name = "a\u{7f}\u{202e}\u{9b}\x1bb";
        let text = legal_json(&serde_json::to_string_pretty(&[name]).unwrap());
        assert_eq!(plain(&text), text);
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }
}
