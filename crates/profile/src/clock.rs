//! The recording's clock: unix seconds that never decrease.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Takes the wall time at the start, and follows the monotonic clock from there.
///
/// The wall clock may be set at any time, and Linux's monotonic clock stops while the machine is suspended.
/// So when the wall clock is ahead by more than a second, the recording's clock follows it; when it is
/// behind, it does not.
pub(crate) struct Clock {
    anchor: (Instant, f64),
    /// How far the wall clock was ahead at the last note, seconds; negative if it was behind.
    told: f64,
}

/// The difference between wall clock and recording that is reported, seconds.
const TOLERANCE: f64 = 1.0;

impl Clock {
    pub fn new(now: Instant, wall: SystemTime) -> Self {
        Self {
            anchor: (now, unix(wall)),
            told: 0.0,
        }
    }

    /// The recording's time at a moment that both clocks showed, and a note if there is something to report.
    pub fn time(&mut self, now: Instant, wall: SystemTime) -> (f64, Option<String>) {
        let passed = now.saturating_duration_since(self.anchor.0);
        let time = self.anchor.1 + passed.as_secs_f64();
        let ahead = unix(wall) - time;
        if ahead > TOLERANCE {
            *self = Self::new(now, wall);
            let note = format!(
                "at {time:.0} the clock went {ahead:.1} s ahead, suspended or set; so do the samples"
            );
            return (self.anchor.1, Some(note));
        }
        let note = ((ahead - self.told).abs() > TOLERANCE).then(|| {
            self.told = ahead;
            format!(
                "at {time:.0} the clock was {:.1} s behind the samples, whose time continues as before",
                -ahead
            )
        });
        (time, note)
    }
}

fn unix(wall: SystemTime) -> f64 {
    wall.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_follows_a_jump_ahead_and_never_goes_back() {
        let start = (Instant::now(), UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        let mut clock = Clock::new(start.0, start.1);
        let mut at = |monotonic: f64, wall: f64| {
            let (time, note) = clock.time(
                start.0 + Duration::from_secs_f64(monotonic),
                UNIX_EPOCH + Duration::from_secs_f64(1.6e9 + wall),
            );
            (((time - 1.6e9) * 1e3).round() / 1e3, note.is_some())
        };
        assert_eq!(at(0.0, 0.0), (0.0, false));
        assert_eq!(at(10.0, 10.4), (10.0, false));
        assert_eq!(at(11.0, 4000.0), (4000.0, true), "suspended");
        assert_eq!(at(12.0, 4001.0), (4001.0, false));
        assert_eq!(at(13.0, 100.0), (4002.0, true), "set back");
        assert_eq!(at(14.0, 101.0), (4003.0, false), "told once");
        assert_eq!(at(15.0, 50.0), (4004.0, true), "set back further");
        assert_eq!(at(16.0, 4005.0), (4005.0, true), "right again");
        assert_eq!(at(16.5, -1e9), (4005.5, true), "before 1970 even");
    }
}
