//! Words for a number of things.

/// A number of things: `1 epoch`, `2 epochs`, `3 classes`.
pub fn plural(count: usize, of: &str) -> String {
    let ending = match count {
        1 => "",
        _ if of.ends_with("ss") || of.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{count} {of}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_in_english() {
        let said = [(1, "epoch"), (2, "epoch"), (0, "batch"), (3, "class")].map(|(n, of)| plural(n, of));
        assert_eq!(said, ["1 epoch", "2 epochs", "0 batches", "3 classes"]);
    }
}
