//! The time of day.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time now, in seconds since 1970-01-01 00:00 UTC; 0 where the machine's clock is earlier.
pub fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// A time in seconds since 1970, which prints as `2026-11-22 10:04:31 UTC`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utc(pub f64);

impl fmt::Display for Utc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0.0) as u64;
        let (year, month, day) = civil(seconds / 86_400);
        let of_day = seconds % 86_400;
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(
            out,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )
    }
}

/// Year, month and day of a number of days since 1970-01-01: `civil_from_days` of Howard Hinnant's
/// <https://howardhinnant.github.io/date_algorithms.html>.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_the_calendar_has_them() {
        // date -u -d @N '+%F %T UTC'
        for (seconds, text) in [
            (0.0, "1970-01-01 00:00:00 UTC"),
            (951_782_399.9, "2000-02-28 23:59:59 UTC"),
            (951_782_400.0, "2000-02-29 00:00:00 UTC"),
            (1_795_341_871.0, "2026-11-22 10:04:31 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00:00 UTC"),
            (-5.0, "1970-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc(seconds).to_string(), text);
        }
    }
}
