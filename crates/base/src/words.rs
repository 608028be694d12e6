//! Words for a number of things, and texts as fields of CSV.

/// A number of things: `1 epoch`, `2 epochs`, `3 classes`.
pub fn plural(count: usize, of: &str) -> String {
    let ending = match count {
        1 => "",
        _ if of.ends_with("ss") || of.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{count} {of}{ending}")
}

/// A text as a field of CSV (RFC 4180): commas, quotes and line ends are quoted. One that a spreadsheet would compute, because it
/// begins as a formula does and is no number, gets an apostrophe before it.
pub fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let text = match is_formula {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_in_english() {
        let said = [(1, "epoch"), (2, "epoch"), (0, "batch"), (3, "class")].map(|(n, of)| plural(n, of));
        assert_eq!(said, ["1 epoch", "2 epochs", "0 batches", "3 classes"]);
    }

    #[test]
    fn a_field_is_a_text_that_no_spreadsheet_computes() {
        for (text, shown) in [
            ("cat", "cat"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("=1+1", "'=1+1"),
            ("+x", "'+x"),
            ("-x", "'-x"),
            ("@x", "'@x"),
            ("\tx", "'\tx"),
            ("\rx", "\"'\rx\""),
            ("=a,b", "\"'=a,b\""),
            ("-0.5e-3", "-0.5e-3"),
            ("", ""),
        ] {
            assert_eq!(field(text), shown, "{text:?}");
        }
    }
}
