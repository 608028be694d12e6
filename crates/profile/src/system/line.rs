//! One line of a file: the value of a series at one time.
//!
//! [`parse`] takes any JSON object with the six keys. [`Fast`] takes lines with the key order that we and
//! SageMaker Debugger write, after `parse` has seen one of the series; it is several times as fast, and
//! leaves every other line to `parse`.

use std::borrow::Cow;

use serde::Deserialize;

/// One value of one series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event<'a> {
    /// The kind of device: `cpu`, `gpu`, ..
    #[serde(rename = "Type", borrow)]
    pub kind: Cow<'a, str>,
    /// The device: `cpu5`.
    #[serde(rename = "Name", borrow)]
    pub name: Cow<'a, str>,
    /// What was measured: one of [`dimension`](crate::dimension), or another program's.
    #[serde(rename = "Dimension", borrow, default)]
    pub dimension: Cow<'a, str>,
    /// The value: within the range of `f32`.
    #[serde(rename = "Value")]
    pub value: f64,
    /// The machine.
    #[serde(rename = "NodeId", borrow)]
    pub node: Cow<'a, str>,
    /// Unix seconds.
    #[serde(rename = "Timestamp")]
    pub time: f64,
}

/// Reads a line.
///
/// # Errors
/// Why it is not an event: not JSON, a missing key, a value beyond `f32`, or a time out of the range of
/// ten-digit file names (2001 to 2286).
pub fn parse(line: &[u8]) -> Result<Event<'_>, String> {
    let event: Event<'_> = serde_json::from_slice(line).map_err(|error| {
        // The parser counts lines within the text.
        let text = error.to_string();
        text.split(" at line ").next().unwrap_or_default().to_owned()
    })?;
    check(event.value, event.time)?;
    Ok(event)
}

fn check(value: f64, time: f64) -> Result<(), String> {
    if !(value as f32).is_finite() {
        return Err(format!("the value {value:e} is beyond any that is measured"));
    }
    if !(1e9..1e10).contains(&time) {
        return Err(format!("the timestamp {time:e} is not in unix seconds"));
    }
    Ok(())
}

/// The parts of a line with the usual key order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fast<'a> {
    /// The part before the value: the same for every line of a series.
    pub head: &'a [u8],
    pub value: f64,
    /// The part between value and timestamp: the same for every line of a node.
    pub middle: &'a [u8],
    pub time: f64,
}

// Quotes within a string are escaped, so these never match inside one.
const VALUE: &[u8] = b",\"Value\":";
const TIME: &[u8] = b",\"Timestamp\":";

impl<'a> Fast<'a> {
    /// Splits a line; `None` if it has another form. The contents of `head` and `middle` are known once
    /// [`parse`] has read a line with the same two.
    pub fn split(line: &'a [u8]) -> Option<Self> {
        let at = find(line, VALUE)? + VALUE.len();
        let (head, rest) = line.split_at(at);
        let (value, used) = number(rest)?;
        let rest = &rest[used..];
        let at = find(rest, TIME)? + TIME.len();
        let (middle, rest) = rest.split_at(at);
        let (time, used) = number(rest)?;
        // A nested object may have a key of the same name.
        let nested = head[1..]
            .iter()
            .chain(middle)
            .any(|byte| matches!(byte, b'{' | b'['));
        (&rest[used..] == b"}" && !nested && check(value, time).is_ok()).then_some(Self {
            head,
            value,
            middle,
            time,
        })
    }
}

/// The position of `needle`, which begins with `,`, in `line`.
fn find(line: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = line[from..].iter().position(|&byte| byte == b',') {
        if line[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// The number that `text` begins with, in JSON syntax, and its length.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| {
        let count = text[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        (count > 0).then_some(from + count)
    };
    let whole = usize::from(text.first() == Some(&b'-'));
    let mut end = digits(whole)?;
    if text[whole] == b'0' && end > whole + 1 {
        return None;
    }
    if text.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((value, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"{"Type":"cpu","Name":"cpu5","Dimension":"CPUUtilization","Value":1.36,"NodeId":"algo-1","Timestamp":1591748109.2321954}"#;

    #[test]
    fn reads_the_published_line_in_any_order_of_keys() {
        let event = parse(LINE.as_bytes()).unwrap();
        assert_eq!(
            (&*event.kind, &*event.name, &*event.dimension, &*event.node),
            ("cpu", "cpu5", "CPUUtilization", "algo-1")
        );
        assert_eq!((event.value, event.time), (1.36, 1_591_748_109.232_195_4));
        let other = r#" {"Timestamp": 1591748109.2321954, "Future": [1], "NodeId": "algo-1", "Value": 1.36,
            "Name": "cpu5", "Dimension": "CPUUtilization", "Type": "cpu"}"#;
        assert_eq!(parse(other.as_bytes()).unwrap(), event);
        assert_eq!(Fast::split(other.as_bytes()), None);
        let fast = Fast::split(LINE.as_bytes()).unwrap();
        assert_eq!((fast.value, fast.time), (event.value, event.time));
        assert_eq!(fast.middle, b",\"NodeId\":\"algo-1\",\"Timestamp\":");
    }

    #[test]
    fn what_is_no_value_is_told() {
        for (from, to, reason) in [
            ("1.36", "NaN", "expected"),
            ("1.36", "null", "invalid type"),
            ("1.36", "\"1.36\"", "invalid type"),
            ("1.36", "1e999", "out of range"),
            ("1.36", "1e39", "beyond any"),
            ("1.36", "-1e300", "beyond any"),
            ("1.36", "01.36", "number"),
            ("1591748109.2321954", "1591748109232195", "not in unix seconds"),
            ("1591748109.2321954", "-1591748109", "not in unix seconds"),
            ("1591748109.2321954", "0", "not in unix seconds"),
            (",\"NodeId\":\"algo-1\"", "", "missing field"),
            ("}", "", "EOF"),
        ] {
            let line = LINE.replace(from, to);
            assert_ne!(line, LINE);
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
            assert_eq!(
                Fast::split(line.as_bytes()).map(|fast| fast.value),
                None.or_else(|| {
                    // A node that is missing shows in the middle, which the reader compares.
                    (reason == "missing field").then_some(1.36)
                }),
                "{line}"
            );
        }
    }

    proptest! {
        /// Oracle: `parse`, which is serde_json. Where both take a line whose head and middle are known, they agree.
        #[test]
        fn the_fast_way_reads_what_serde_reads(
            value in prop_oneof![any::<f64>().prop_map(|v| format!("{v:?}")), "-?[0-9]{1,20}(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?", "[-+.0-9eENa]{0,8}"],
            time in prop_oneof!["[0-9]{10}\\.[0-9]{1,9}", "-?[0-9.e]{0,14}"],
            cut in 0usize..200,
        ) {
            let line = LINE.replace("1.36", &value).replace("1591748109.2321954", &time);
            let known = Fast::split(LINE.as_bytes()).unwrap();
            for line in [&line[..], &line[..cut.min(line.len())]] {
                let slow = parse(line.as_bytes());
                if let Some(fast) = Fast::split(line.as_bytes())
                    && (fast.head, fast.middle) == (known.head, known.middle)
                {
                    let slow = slow.unwrap();
                    prop_assert_eq!((fast.value.to_bits(), fast.time.to_bits()), (slow.value.to_bits(), slow.time.to_bits()));
                } else if let Ok(event) = slow {
                    prop_assert!(false, "the slow way alone took {}: {:?}", line, event);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = Fast::split(&bytes);
        }
    }
}
