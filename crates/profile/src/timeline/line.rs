//! One line of the protocol.

use crate::recording::{Span, span};

/// The longest line, bytes, its end included.
pub const LONGEST: usize = 1024;
/// The longest name, bytes.
const LONGEST_NAME: usize = 128;
/// Later times are rejected, in unix seconds (the year 5138): they must be milliseconds.
pub(crate) const LATEST: f64 = 1e11;

/// The contents of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Said<'a> {
    /// A span; [`Span::name`] is 0, its name is the first value.
    Span(&'a str, Span),
    /// A metric of the program.
    Metric {
        /// The metric's name.
        name: &'a str,
        /// Its value, which may be NaN or infinite.
        value: f64,
        /// The step or epoch that it belongs to.
        step: Option<u64>,
    },
}

/// Parses a line without its end: `NAME START END [step=N] [worker=N] [bytes=N]` or `metric NAME VALUE
/// [step=N]`.
///
/// # Errors
/// What is wrong with the line.
pub fn parse(line: &[u8]) -> Result<Said<'_>, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let mut words = line.split_ascii_whitespace();
    match words.next().ok_or("empty")? {
        "metric" => metric(words),
        "step" => span(span::STEP, words),
        "wait" => span(span::WAIT, words),
        name => span(checked(name)?, words),
    }
}

fn checked(name: &str) -> Result<&str, &'static str> {
    match name {
        name if name.len() > LONGEST_NAME => Err("the name is longer than 128 bytes"),
        name if name.contains(|c: char| c.is_control() || c.is_whitespace()) => {
            Err("the name has control characters or white space")
        }
        name => Ok(name),
    }
}

fn metric<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Said<'a>, &'static str> {
    let name = checked(words.next().ok_or("no name behind metric")?)?;
    let value = words.next().ok_or("no value behind the metric's name")?;
    let value = value.parse().map_err(|_| "the metric's value is not a number")?;
    let mut step = None;
    for word in words {
        let number = word.strip_prefix("step=").and_then(|number| number.parse().ok());
        step = Some(number.ok_or("something behind the metric's value is no step=number")?);
    }
    Ok(Said::Metric { name, value, step })
}

fn span<'a>(name: &'a str, mut words: impl Iterator<Item = &'a str>) -> Result<Said<'a>, &'static str> {
    let mut moment = || {
        let word = words.next().ok_or("no start and end behind the name")?;
        let time: f64 = word.parse().map_err(|_| "start or end is not a number")?;
        // NaN fails this test too.
        (0.0..LATEST)
            .contains(&time)
            .then_some(time)
            .ok_or("start or end is not a time in unix seconds")
    };
    let (start, end) = (moment()?, moment()?);
    if end < start {
        return Err("it ends before it starts");
    }
    let mut span = Span {
        name: 0,
        start,
        duration: end - start,
        step: None,
        worker: None,
        bytes: None,
    };
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or("something behind the times is no key=number")?;
        let value: u64 = value
            .parse()
            .map_err(|_| "something behind the times is no key=number")?;
        match key {
            "step" => span.step = Some(value),
            "worker" => {
                span.worker = Some(u32::try_from(value).map_err(|_| "the worker's number is too large")?)
            }
            "bytes" => span.bytes = Some(value),
            _ => return Err("a key is none of step, worker, bytes"),
        }
    }
    Ok(Said::Span(name, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_span(line: &[u8]) -> (&str, Span) {
        match parse(line) {
            Ok(Said::Span(name, span)) => (name, span),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_what_the_protocol_offers() {
        let (name, span) = parse_span(b"augment 1795266180.25 1795266180.5 step=7 worker=3 bytes=4096");
        assert_eq!(
            (name, span.start, span.duration),
            ("augment", 1_795_266_180.25, 0.25)
        );
        assert_eq!(
            (span.step, span.worker, span.bytes),
            (Some(7), Some(3), Some(4096))
        );
        for (short, long) in [("step", span::STEP), ("wait", span::WAIT)] {
            let line = format!("{short} 1 2");
            assert_eq!(parse_span(line.as_bytes()).0, long);
        }
        // Python's str of a float may have an exponent; spaces do not matter.
        assert_eq!(parse_span(b"x  1e9 1.5e9 \r").1.duration, 5e8);
    }

    #[test]
    fn reads_metrics() {
        for (line, name, value, step) in [
            ("metric loss 0.25 step=3", "loss", 0.25, Some(3)),
            ("metric  val:top-1 -1e-3", "val:top-1", -1e-3, None),
            ("metric metric inf", "metric", f64::INFINITY, None),
            ("metric 1 2", "1", 2.0, None),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Said::Metric { name, value, step }));
        }
        // What Python prints of a loss that is gone.
        assert!(matches!(parse(b"metric loss nan"), Ok(Said::Metric { value, .. }) if value.is_nan()));
    }

    #[test]
    fn refuses_what_is_no_span() {
        for (line, reason) in [
            (&b""[..], "empty"),
            (b"step", "no start and end behind the name"),
            (b"step 1", "no start and end behind the name"),
            (b"step one 2", "start or end is not a number"),
            (b"step 2 1", "it ends before it starts"),
            (b"step nan 1", "start or end is not a time in unix seconds"),
            (b"step 1 inf", "start or end is not a time in unix seconds"),
            (b"step -1 1", "start or end is not a time in unix seconds"),
            (
                b"step 1795266180000 1795266180001",
                "start or end is not a time in unix seconds",
            ),
            (b"step 1 2 7", "something behind the times is no key=number"),
            (b"step 1 2 step=-7", "something behind the times is no key=number"),
            (b"step 1 2 worker=4294967296", "the worker's number is too large"),
            (b"step 1 2 rank=0", "a key is none of step, worker, bytes"),
            (b"\xff 1 2", "not UTF-8"),
            (b"a\x07 1 2", "the name has control characters or white space"),
            (
                "a\u{a0}b 1 2".as_bytes(),
                "the name has control characters or white space",
            ),
            (b"metric", "no name behind metric"),
            (
                b"metric a\x07 1",
                "the name has control characters or white space",
            ),
            (b"metric loss", "no value behind the metric's name"),
            (b"metric loss low", "the metric's value is not a number"),
            (
                b"metric loss 1 2",
                "something behind the metric's value is no step=number",
            ),
            (
                b"metric loss 1 step=-1",
                "something behind the metric's value is no step=number",
            ),
        ] {
            assert_eq!(parse(line), Err(reason), "{:?}", String::from_utf8_lossy(line));
        }
        let name = "n".repeat(129);
        assert!(parse(format!("{name} 1 2").as_bytes()).is_err());
        assert!(parse(format!("{} 1 2", &name[1..]).as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Said::Span(_, span)) = parse(&bytes) {
                prop_assert!(span.start >= 0.0 && span.duration >= 0.0 && span.end().is_finite());
            }
        }

        /// A metric comes out as it was put in, whatever stands in its value.
        #[test]
        fn metrics_are_read_as_they_were_written(value in any::<f64>(), step in any::<u64>()) {
            let line = format!("metric loss {value} step={step}");
            let Ok(Said::Metric { name: "loss", value: read, step: Some(at) }) = parse(line.as_bytes()) else {
                return Err(TestCaseError::fail(line));
            };
            prop_assert!((read == value || read.is_nan() && value.is_nan()) && at == step);
        }
    }
}
