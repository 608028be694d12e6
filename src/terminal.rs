//! Standard output and standard error, as text that cannot steer a terminal.
//!
//! Names of files, samples and processes come from elsewhere and may hold anything: an escape sequence that clears the
//! screen, a text direction that turns a line round. Whatever people read goes through [`Plain`], which writes
//! such characters out (`\x1b`, `\u{202e}`). What a job's script prints is the script's own and passes unchanged.

use std::fmt::Write as _;
use std::io::{self, Stderr, Stdout, Write};

/// Standard output for people.
pub fn out() -> Plain<Stdout> {
    Plain::new(io::stdout())
}

/// Standard error for people.
pub fn err() -> Plain<Stderr> {
    Plain::new(io::stderr())
}

/// Prints a line on standard error. A reader that went away is no reason to end.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::terminal::err(), $($text)*);
    }};
}
pub(crate) use note;

/// A writer that writes characters out which would steer a terminal; line ends and tabs stay.
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
        let whole = match std::str::from_utf8(&self.begun) {
            // Cut off in the middle of a character: the rest of it comes with the next bytes.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.begun.len(),
        };
        let rest = self.begun.split_off(whole);
        let text = std::mem::replace(&mut self.begun, rest);
        self.to
            .write_all(plain(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A text with everything written out that would steer a terminal.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => plain.push(c),
            c if c.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(plain, "\\x{:02x}", u32::from(c));
            }
            // Control characters of 8 bits, line and paragraph separators, and what sets the direction of a text.
            '\u{80}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(plain, "\\u{{{:x}}}", u32::from(c));
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        let shown = plain("a\x1b[2Jb\rc\u{9b}31m\u{202e}gpj.\u{7f}\u{2028}d\te é 日\n");
        assert_eq!(
            shown,
            "a\\x1b[2Jb\\x0dc\\u{9b}31m\\u{202e}gpj.\\x7f\\u{2028}d\te é 日\n"
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
}
