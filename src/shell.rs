//! Commands to copy into a shell.

use std::ffi::{OsStr, OsString};

use stokehold_base::shell::quoted;

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
