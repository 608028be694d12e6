//! Times, shares and names in the words of a page.

use stokehold_base::clock::Utc;
use stokehold_base::shell::plain;

use crate::svg::short;

/// Names in tables are no longer than this.
const NAME: usize = 90;

/// A duration with a unit that suits it.
pub fn duration(seconds: f64) -> String {
    let (minutes, hours) = (seconds / 60.0, seconds / 3600.0);
    if seconds == 0.0 {
        "0 s".to_owned()
    } else if seconds < 1e-3 {
        format!("{} µs", digits(seconds * 1e6))
    } else if seconds < 1.0 {
        format!("{} ms", digits(seconds * 1e3))
    } else if seconds < 600.0 {
        format!("{} s", digits(seconds))
    } else if hours < 2.0 {
        format!("{minutes:.1} min")
    } else {
        format!("{hours:.1} h")
    }
}

/// About three digits of a number.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => short((value * 10.0).round() / 10.0),
        _ => short((value * 100.0).round() / 100.0),
    }
}

/// About three digits, also of a small number: `5.1e-3`.
pub fn significant(value: f64) -> String {
    match value.abs() {
        size if size > 0.0 && size < 0.1 => format!("{value:.2e}"),
        _ => digits(value),
    }
}

/// A name that fits; names come from files and may be of any length.
pub fn clipped(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// A name that fits, whose end stays: that of a machine's GPU is what tells it from the next.
pub fn shortened(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let (before, after) = (most / 2, most - most / 2 - 1);
    let first = name.chars().take(before).chain(['…']);
    first.chain(name.chars().skip(length - after)).collect()
}

/// A name for a table cell, on one line: line ends, tabs and what would control a terminal are escaped.
pub fn cell(name: &str) -> String {
    plain(name).replace('\n', "\\n").replace('\t', "\\t")
}

/// A name from elsewhere, of a length that a page can bear.
pub fn name(text: &str) -> String {
    clipped(text, NAME)
}

/// A moment, `2026-11-21 12:56:32 UTC`.
pub fn moment(unix: f64) -> String {
    // To the end of the year 9999, which is as far as the format goes.
    if !(0.0..253_402_300_800.0).contains(&unix) {
        return format!("{unix:.0} s after 1970");
    }
    Utc(unix).to_string()
}

/// A share of something in percent; a dash where there is nothing to share.
pub fn share(part: f64, of: f64) -> String {
    if of > 0.0 {
        format!("{:.1} %", 100.0 * part / of)
    } else {
        "–".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_breaks_no_table() {
        assert_eq!(cell("cat\n\tdog\x1b"), "cat\\n\\tdog\\x1b");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(1_591_748_109.23), "2020-06-10 00:15:09 UTC");
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(moment(odd).ends_with("after 1970"));
        }
    }

    #[test]
    fn durations_have_units() {
        let texts = [0.0, 12e-6, 0.0123, 0.9996, 1.5, 99.96, 600.0, 7300.0].map(duration);
        let expected = [
            "0 s", "12 µs", "12.3 ms", "1000 ms", "1.5 s", "100 s", "10.0 min", "2.0 h",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!(clipped("gpu0", 8), "gpu0");
        assert_eq!(clipped("äöüäöüäöü", 8), "äöüäöüä…");
        assert_eq!(shortened("gpu0", 8), "gpu0");
        assert_eq!(shortened("machine-with-a-name gpu0", 11), "machi… gpu0");
    }
}
