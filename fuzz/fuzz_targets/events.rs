//! Any bytes as a trace file and as lines of spans.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_profile::timeline::line;
use stokehold_profile::{Span, events};

fn sound(span: &Span) {
    assert!(
        span.start >= 0.0 && span.duration >= 0.0 && span.end() < 3e11,
        "{span:?}"
    );
}

fn spans(bytes: &[u8], growing: bool) -> Vec<(String, Span)> {
    let mut spans = Vec::new();
    events::parse(bytes, growing, |name, span| {
        sound(&span);
        spans.push((name.into_owned(), span));
        true
    });
    spans
}

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Ok((name, span)) = line::parse(line) {
            assert!(!name.is_empty() && !name.contains(char::is_whitespace));
            sound(&span);
        }
    }
    // What was cut off is missing, and nothing else is.
    let whole = spans(bytes, false);
    let cut = spans(&bytes[..bytes.len() / 2], true);
    assert!(whole.starts_with(&cut), "{cut:?} {whole:?}");
});
