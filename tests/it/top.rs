//! `stokehold top` on a terminal of its own: it draws, leaves when asked to, and puts the screen back.
//!
//! The terminal is that of util-linux's `script`.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// No machine is slower than this.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program on a terminal, and what it writes there; `None` where there is no `script`.
fn on_a_terminal() -> Option<(Child, Receiver<String>)> {
    let program = format!("{} top", env!("CARGO_BIN_EXE_stokehold"));
    let child = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &program,
            "/dev/null",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            stokehold_untested::skip(format_args!(
                "no terminal to be had from util-linux's script: {error}"
            ));
            return None;
        }
    };
    let mut out = child.stdout.take().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut bytes) {
            let _ = sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
        }
    });
    Some((child, receiver))
}

/// Reads until a text has come.
fn until(receiver: &Receiver<String>, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let more = receiver.recv_timeout(PATIENCE);
        all += &more.unwrap_or_else(|_| panic!("{text:?} did not come: {all:?}"));
    }
    all
}

/// What is pressed, and the exit code.
fn leaves(key: &[u8], code: i32) {
    let Some((mut child, receiver)) = on_a_terminal() else {
        return;
    };
    let drawn = until(&receiver, "this machine");
    assert!(drawn.contains("\x1b[?1049h"), "another screen: {drawn:?}");
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(key).unwrap();
    until(&receiver, "\x1b[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(code));
}

#[test]
fn q_leaves() {
    leaves(b"q", 0);
}

#[test]
fn escape_leaves() {
    leaves(b"\x1b", 0);
}

#[test]
fn ctrl_c_leaves_and_the_screen_is_put_back() {
    leaves(b"\x03", 130);
}
