//! Hyperparameters as the training toolkit decodes them: Python's JSON, or else the text itself.

use serde_json::Value;

use crate::runner::python;

/// What a hyperparameter's text stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// A value of JSON, or the text itself.
    Value(Value),
    /// A value that has a number which JSON has not, or a whole one of more than 64 bits: what the script gets on its command line
    /// for it, such as `nan` or `[nan, 1]`.
    Text(String),
}

impl Decoded {
    /// The value; where JSON has none, the text of the command line.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value,
            Self::Text(text) => Value::String(text),
        }
    }
}

/// Decodes a hyperparameter of SageMaker's, which are texts, as its training toolkit does: a text that Python's JSON reads is that
/// value, and any other is itself. The reverse of how they are sent.
#[must_use]
pub fn decode_hyperparameter(text: &str) -> Decoded {
    let mut reader = Reader { rest: text };
    let read = reader.part(0).filter(|_| reader.is_at_end());
    match read {
        None => Decoded::Value(text.into()),
        Some(part) => match part.value() {
            Some(value) => Decoded::Value(value),
            None => Decoded::Text(part.argument()),
        },
    }
}

/// Lists and tables within each other, as many as are read elsewhere, too.
const DEEPEST: usize = 127;

/// A value of Python's JSON.
enum Part {
    Value(Value),
    /// As Python writes it.
    Number(String),
    List(Vec<Part>),
    /// In the order of the text, as Python keeps them.
    Table(Vec<(String, Part)>),
}

impl Part {
    fn value(&self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value.clone()),
            Self::Number(_) => None,
            Self::List(parts) => parts.iter().map(Self::value).collect(),
            Self::Table(entries) => {
                let each = entries
                    .iter()
                    .map(|(key, part)| Some((key.clone(), part.value()?)));
                each.collect::<Option<_>>().map(Value::Object)
            }
        }
    }

    /// As the toolkit puts it on a command line.
    fn argument(&self) -> String {
        let Self::Table(entries) = self else {
            return self.str();
        };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key);
        let pairs: Vec<_> = entries
            .iter()
            .map(|(key, part)| format!("{key}={}", part.str()))
            .collect();
        pairs.join(",")
    }

    /// Python's `str`.
    fn str(&self) -> String {
        match self {
            Self::Value(Value::String(text)) => text.clone(),
            other => other.repr(),
        }
    }

    /// Python's `repr`.
    fn repr(&self) -> String {
        match self {
            Self::Value(value) => python::repr(value),
            Self::Number(number) => number.clone(),
            Self::List(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::repr).collect();
                format!("[{}]", parts.join(", "))
            }
            Self::Table(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, part)| format!("{}: {}", python::repr(&key.as_str().into()), part.repr()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

/// What was not read yet.
struct Reader<'a> {
    rest: &'a str,
}

const SPACES: [char; 4] = [' ', '\t', '\n', '\r'];

impl Reader<'_> {
    fn is_at_end(&mut self) -> bool {
        self.rest.trim_start_matches(SPACES).is_empty()
    }

    /// Takes a sign, and the space before it.
    fn sign(&mut self, sign: char) -> bool {
        let found = self.rest.trim_start_matches(SPACES).strip_prefix(sign);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn part(&mut self, depth: usize) -> Option<Part> {
        if depth > DEEPEST {
            return None;
        }
        if self.sign('[') {
            let mut parts = Vec::new();
            while !(parts.is_empty() && self.sign(']')) {
                parts.push(self.part(depth + 1)?);
                match (self.sign(','), self.sign(']')) {
                    (true, false) => {}
                    (false, true) => break,
                    _ => return None,
                }
            }
            return Some(Part::List(parts));
        }
        if self.sign('{') {
            let mut entries: Vec<(String, Part)> = Vec::new();
            while !(entries.is_empty() && self.sign('}')) {
                let key = self.text()?;
                let part = if self.sign(':') {
                    self.part(depth + 1)?
                } else {
                    return None;
                };
                match entries.iter_mut().find(|(known, _)| *known == key) {
                    Some(known) => known.1 = part,
                    None => entries.push((key, part)),
                }
                match (self.sign(','), self.sign('}')) {
                    (true, false) => {}
                    (false, true) => break,
                    _ => return None,
                }
            }
            return Some(Part::Table(entries));
        }
        self.rest = self.rest.trim_start_matches(SPACES);
        if self.rest.starts_with('"') {
            return self.text().map(|text| Part::Value(text.into()));
        }
        let end = |c: char| SPACES.contains(&c) || matches!(c, ',' | ':' | ']' | '}');
        let (word, rest) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = rest;
        match word {
            "null" => Some(Part::Value(Value::Null)),
            "true" | "false" => Some(Part::Value((word == "true").into())),
            "NaN" => Some(Part::Number("nan".to_owned())),
            "Infinity" => Some(Part::Number("inf".to_owned())),
            "-Infinity" => Some(Part::Number("-inf".to_owned())),
            number => self::number(number),
        }
    }

    fn text(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start_matches(SPACES);
        let mut is_escaped = false;
        let is_end = |(place, byte): (usize, u8)| {
            let ends = place > 0 && byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        };
        let last = self.rest.bytes().enumerate().position(is_end)?;
        let (text, rest) = self.rest.split_at(last + 1);
        self.rest = rest;
        serde_json::from_str(text).ok()
    }
}

fn number(word: &str) -> Option<Part> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let is_whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_whole {
        return match serde_json::from_str::<f64>(word) {
            Ok(number) => Some(Part::Value(number.into())),
            // What JSON has and a float has not: only such a number is refused, and read by Rust as infinite.
            Err(error) if error.to_string().starts_with("number out of range") => {
                let sign = if word.starts_with('-') { "-" } else { "" };
                Some(Part::Number(format!("{sign}inf")))
            }
            Err(_) => None,
        };
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    let (signed, unsigned) = (word.parse::<i64>(), word.parse::<u64>());
    Some(match (signed, unsigned) {
        // Python's -0 is 0.
        (Ok(number), _) => Part::Value(number.into()),
        (_, Ok(number)) => Part::Value(number.into()),
        _ => Part::Number(word.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::contract;
    use serde_json::json;

    /// The right sides are what the toolkit makes of them, by `str(json.loads(text))` of Python 3.11.
    #[test]
    fn values_are_read_as_python_reads_them() {
        for (text, argument) in [
            ("NaN", "nan"),
            ("Infinity", "inf"),
            ("-Infinity", "-inf"),
            ("1e999", "inf"),
            ("-1e999", "-inf"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            (
                "-123456789012345678901234567890",
                "-123456789012345678901234567890",
            ),
            ("18446744073709551615", "18446744073709551615"),
            ("-0", "0"),
            ("-0.0", "-0.0"),
            (" 7 ", "7"),
            ("007", "007"),
            ("1e5", "100000.0"),
            ("nan", "nan"),
            ("-", "-"),
            ("", ""),
            ("\"-0\"", "-0"),
            ("[NaN, 1]", "[nan, 1]"),
            (r#"{"a":1e400}"#, "a=inf"),
            ("[12345678901234567890123]", "[12345678901234567890123]"),
            (
                r#"{"b": -Infinity, "a": ["it's", {"z": NaN, "y": null}], "a": [true, {"z": NaN, "y": 0.5}], "c": "\" ]"}"#,
                r#"a=[True, {'z': nan, 'y': 0.5}],b=-inf,c=" ]"#,
            ),
            ("[-0, [ ] ,{}]", "[0, [], {}]"),
            ("[1,]", "[1,]"),
            ("[,1]", "[,1]"),
            ("{1: NaN}", "{1: NaN}"),
            ("{\"a\" NaN}", "{\"a\" NaN}"),
            ("[NaN] x", "[NaN] x"),
            ("[1 2]", "[1 2]"),
            ("[1e999", "[1e999"),
            ("\u{feff}1", "\u{feff}1"),
        ] {
            let value = decode_hyperparameter(text).into_value();
            let arguments = contract::arguments(&BTreeMap::from([("x".to_owned(), value)]));
            assert_eq!(arguments, ["-x", argument], "{text}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(matches!(
            decode_hyperparameter(&deep(100)),
            Decoded::Value(Value::Array(_))
        ));
        assert_eq!(
            decode_hyperparameter(&deep(100_000)).into_value(),
            json!(deep(100_000))
        );
    }

    proptest::proptest! {
        /// What JSON has and Python reads as JSON does is the same value.
        #[test]
        fn what_is_json_is_its_value(text in r#"[\[\]{}:, a-c0-2e.\\"-]{0,12}"#) {
            let ours = decode_hyperparameter(&text);
            match serde_json::from_str::<Value>(&text) {
                Ok(value) if !text.contains("-0") && ours != Decoded::Value(value.clone()) => {
                    // A number that a float has not all digits of.
                    proptest::prop_assert!(matches!(ours, Decoded::Text(_)), "{text}: {ours:?}, {value}");
                }
                Ok(_) => {}
                Err(error) if error.to_string().starts_with("number out of range") => {}
                Err(_) => proptest::prop_assert_eq!(ours, Decoded::Value(json!(text))),
            }
        }
    }
}
