//! When packing may go on.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

/// How long the process is watched before its use of the cores is known.
const WINDOW: Duration = Duration::from_millis(50);
/// Below this share of its cores' time, some cores are idle.
const HALF: f64 = 0.5;
/// With workers that have nothing to do, it may use up to this. The rest stays free, so that other threads get a core at once.
const NEARLY_ALL: f64 = 0.85;
/// The most unused share that is kept, in seconds of a core.
const KEPT: f64 = 0.1;

/// Watches the process's use of its cores, and keeps account of the share that packing may take in any case.
#[derive(Debug)]
pub(crate) struct Pace {
    cores: f64,
    share: f64,
    since: Instant,
    cpu: Option<ProcessTime>,
    /// The part of the cores' time that the process used in the last window.
    used: f64,
    /// Seconds of a core.
    credit: f64,
}

impl Pace {
    pub fn new(cores: usize, share: f64) -> Self {
        Self {
            cores: cores as f64,
            share,
            since: Instant::now(),
            cpu: ProcessTime::try_now().ok(),
            used: 1.0,
            credit: 0.0,
        }
    }

    /// Whether there is time to spare. `resting` is the number of idle workers, minus the threads that already pack in their place.
    pub fn spare(&mut self, resting: isize) -> bool {
        self.watch();
        self.used < HALF || (resting > 0 && self.used < NEARLY_ALL)
    }

    /// Whether packing may go on at the cost of others.
    pub fn may_take(&mut self) -> bool {
        self.watch();
        self.credit > 0.0
    }

    /// Counts what was taken at the cost of others.
    pub fn took(&mut self, cpu: Duration) {
        self.credit -= cpu.as_secs_f64();
    }

    fn watch(&mut self) {
        let elapsed = self.since.elapsed();
        if elapsed < WINDOW {
            return;
        }
        let now = ProcessTime::try_now().ok();
        // Without a clock of the process, only the share is taken.
        self.used = match (now, self.cpu) {
            (Some(now), Some(before)) => {
                now.duration_since(before).as_secs_f64() / (elapsed.as_secs_f64() * self.cores)
            }
            _ => 1.0,
        };
        // Of what the process gets, which may be far less than its cores where others use them too.
        let got = self.used.min(1.0) * self.cores * elapsed.as_secs_f64();
        self.credit = (self.credit + self.share * got).min(KEPT);
        (self.since, self.cpu) = (Instant::now(), now);
    }
}
