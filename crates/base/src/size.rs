//! Sizes as people write them.

/// A number of bytes; kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB of 1024.
///
/// # Errors
/// What a size must be, if the text is none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err("must be a number of bytes, such as 150MB or 1GiB".into()),
    };
    let size = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    match size {
        Some(size) if size > 0 => Ok(size),
        _ => Err("must be a number of bytes above 0, such as 150MB or 1GiB".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("150MB"), Ok(150_000_000));
        assert_eq!(parse_size("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_size("7"), Ok(7));
        for wrong in ["", "MB", "0", "1.5GB", "-1", "10 apples", "99999999999GB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
