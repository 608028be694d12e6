//! Words of commands that a message prints for a shell.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// A word for a shell: unchanged if that is safe, else quoted.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(byte);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(|byte| is_plain(&byte)) => text.to_owned(),
        Some(text) if !text.contains(|c| matches!(c, '\n' | '\t') || steers(c)) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        // Bytes that are not text, or would control the terminal.
        _ => {
            let bytes = word.as_encoded_bytes().iter().map(|byte| match is_plain(byte) {
                true => char::from(*byte).to_string(),
                false => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", bytes.collect::<String>())
        }
    }
}

/// A command that continues this one: this program, as it was called, with other arguments.
pub fn again<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> String {
    let program = std::env::args_os().next();
    let mut command = quoted(program.unwrap_or_else(|| OsString::from("stokehold")));
    for word in words {
        command.push(' ');
        command += &quoted(word.as_ref());
    }
    command
}

/// Whether a character would control a terminal: control characters, line and paragraph separators, and characters that set the text
/// direction; line ends and tabs do not.
pub fn steers(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// A text with every character escaped that would control a terminal; line ends and tabs stay.
pub fn plain(text: &str) -> String {
    written_out(text, |plain, c| match c.is_ascii() {
        true => write!(plain, "\\x{:02x}", u32::from(c)),
        false => write!(plain, "\\u{{{:x}}}", u32::from(c)),
    })
}

/// A text in which `write` replaces the characters that would control a terminal.
pub fn written_out(text: &str, write: impl Fn(&mut String, char) -> std::fmt::Result) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            // Writing to a string cannot fail.
            true => write(&mut plain, c).unwrap_or_default(),
            false => plain.push(c),
        }
    }
    plain
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    #[test]
    fn a_shell_reads_what_was_meant() {
        let words = [
            OsStr::new("plain-1.0/x"),
            OsStr::new(""),
            OsStr::new("two words"),
            OsStr::new("it's $HOME `x` \"y\" \\ * é"),
            OsStr::new("line\nbreak\x1b[0m"),
            OsStr::new("turned \u{202e}gpj.a"),
            OsStr::from_bytes(b"no\xfftext\\x41"),
        ];
        let line: Vec<String> = words.iter().map(quoted).collect();
        let script = format!("printf '%s\\0' {}", line.join(" "));
        let said = Command::new("bash")
            .args(["-c", &script])
            .output()
            .unwrap()
            .stdout;
        let read: Vec<&[u8]> = said
            .strip_suffix(b"\0")
            .unwrap()
            .split(|&byte| byte == 0)
            .collect();
        assert_eq!(read, words.map(OsStr::as_bytes));
        assert_eq!(quoted("plain-1.0/x"), "plain-1.0/x");
    }
}
