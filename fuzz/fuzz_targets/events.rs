//! Any bytes as a trace file and as lines of spans.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_profile::timeline::line::{self, Said};
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
        let name = match line::parse(line) {
            Ok(Said::Span(name, span)) => {
                sound(&span);
                name
            }
            Ok(Said::Metric { name, .. }) => name,
            Err(_) => continue,
        };
        assert!((1..=128).contains(&name.len()) && !name.contains(|c: char| c.is_whitespace() || c.is_control()));
    }
    // What was cut off is missing, and nothing else is.
    let whole = spans(bytes, false);
    let cut = spans(&bytes[..bytes.len() / 2], true);
    assert!(whole.starts_with(&cut), "{cut:?} {whole:?}");
});
