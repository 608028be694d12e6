//! One line of the protocol.

use crate::recording::{Span, span};

/// The longest line, bytes, its end included.
pub const LONGEST: usize = 1024;
/// The longest name, bytes.
const LONGEST_NAME: usize = 128;
/// Later than any moment that is meant, in unix seconds (the year 5138): beyond it somebody wrote milliseconds.
pub(crate) const LATEST: f64 = 1e11;

/// Reads a line without its end: `NAME START END [step=N] [worker=N] [bytes=N]`. [`Span::name`] of the result is 0, the
/// name is beside it.
///
/// # Errors
/// What is wrong with the line.
pub fn parse(line: &[u8]) -> Result<(&str, Span), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let mut words = line.split_ascii_whitespace();
    let name = match words.next().ok_or("empty")? {
        "step" => span::STEP,
        "wait" => span::WAIT,
        name if name.len() > LONGEST_NAME => return Err("the name is longer than 128 bytes"),
        name if name.contains(char::is_control) => return Err("the name has control characters"),
        name => name,
    };
    let mut moment = || {
        let word = words.next().ok_or("no start and end behind the name")?;
        let time: f64 = word.parse().map_err(|_| "start or end is not a number")?;
        // Not a number fails this too.
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
    Ok((name, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_protocol_offers() {
        let (name, span) = parse(b"augment 1795266180.25 1795266180.5 step=7 worker=3 bytes=4096").unwrap();
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
            assert_eq!(parse(line.as_bytes()).unwrap().0, long);
        }
        // Python's str of a float may have an exponent; spaces do not matter.
        assert_eq!(parse(b"x  1e9 1.5e9 \r").unwrap().1.duration, 5e8);
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
            (b"a\x07 1 2", "the name has control characters"),
        ] {
            assert_eq!(parse(line), Err(reason), "{:?}", String::from_utf8_lossy(line));
        }
        let name = "n".repeat(129);
        assert!(parse(format!("{name} 1 2").as_bytes()).is_err());
        assert!(parse(format!("{} 1 2", &name[1..]).as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_span_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, span)) = parse(&bytes) {
                prop_assert!(span.start >= 0.0 && span.duration >= 0.0 && span.end().is_finite());
            }
        }
    }
}
