//! Formats values as Python does: the variables of the contract are results of `json.dumps` and `str`.

use serde_json::{Number, Value};

/// `json.dumps(value, sort_keys=True, separators=(",", ":"))`: keys in order, ASCII only.
pub(crate) fn json(value: &Value) -> String {
    let mut text = String::new();
    write_json(value, &mut text);
    text
}

fn write_json(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&self::number(number)),
        Value::String(inner) => write_string(inner, text),
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_json(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_string(key, text);
                text.push(':');
                write_json(item, text);
            }
            text.push('}');
        }
    }
}

fn write_string(inner: &str, text: &mut String) {
    text.push('"');
    for c in inner.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

/// `repr` of an int or a float.
fn number(number: &Number) -> String {
    let Some(value) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// A command line argument: `str(value)`, but an empty text for None, and `k=v,k2=v2` for a mapping.
pub(crate) fn argument(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let pairs: Vec<_> = entries
                .into_iter()
                .map(|(key, value)| format!("{key}={}", str(value)))
                .collect();
            pairs.join(",")
        }
        other => str(other),
    }
}

/// `str(value)`.
fn str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => repr(other),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => self::number(number),
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut quoted = String::from(quote);
            for c in text.chars() {
                match c {
                    '\n' => quoted.push_str("\\n"),
                    '\r' => quoted.push_str("\\r"),
                    '\t' => quoted.push_str("\\t"),
                    '\\' => quoted.push_str("\\\\"),
                    c if c == quote => quoted.extend(['\\', c]),
                    c if c.is_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
                    c => quoted.push(c),
                }
            }
            quoted.push(quote);
            quoted
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", repr(&Value::String(key.clone())), repr(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The right-hand sides are what CPython 3.11 prints.
    #[test]
    fn writes_what_python_writes() {
        for (value, dumped, shown) in [
            (json!(1e16), "1e+16", "1e+16"),
            (json!(1.5e-5), "1.5e-05", "1.5e-05"),
            (json!(0.0001), "0.0001", "0.0001"),
            (json!(-1e300), "-1e+300", "-1e+300"),
            (json!(1000.0), "1000.0", "1000.0"),
            (json!(-0.0), "-0.0", "-0.0"),
            (json!(7), "7", "7"),
            (json!(true), "true", "True"),
            (
                json!("é\u{1f600}\u{7f}\n\"\\"),
                r#""\u00e9\ud83d\ude00\u007f\n\"\\""#,
                "é\u{1f600}\u{7f}\n\"\\",
            ),
            (
                json!([1, null, "it's", "a\"b'"]),
                r#"[1,null,"it's","a\"b'"]"#,
                r#"[1, None, "it's", 'a"b\'']"#,
            ),
            (
                json!({"b": {"x": 1}, "a": null}),
                r#"{"a":null,"b":{"x":1}}"#,
                "a=None,b={'x': 1}",
            ),
        ] {
            assert_eq!(json(&value), dumped);
            assert_eq!(argument(&value), shown);
        }
        assert_eq!(argument(&Value::Null), "");
    }
}
