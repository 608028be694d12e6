//! When packing may continue.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

/// How long the process is watched before the use of the cores is known. The kernel counts that of the machine in ticks of 10 ms.
const WINDOW: Duration = Duration::from_millis(100);
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
    ticks: Option<Ticks>,
    /// The part of the cores' time that this process or all of them used in the last window, whichever is more: one that others keep
    /// from running has no idle cores.
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
            ticks: Ticks::now(),
            used: 1.0,
            credit: 0.0,
        }
    }

    /// Whether there is time to spare. `resting` is the number of idle workers, minus the threads that already pack in their place.
    pub fn spare(&mut self, resting: isize) -> bool {
        self.watch();
        self.used < HALF || (resting > 0 && self.used < NEARLY_ALL)
    }

    /// Whether packing may continue at the cost of others.
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
        let own = match (now, self.cpu) {
            (Some(now), Some(before)) => {
                now.duration_since(before).as_secs_f64() / (elapsed.as_secs_f64() * self.cores)
            }
            _ => 1.0,
        };
        let ticks = Ticks::now();
        let all = ticks.zip(self.ticks).map(|(now, before)| now.busy_since(before));
        self.used = own.max(all.unwrap_or(0.0));
        // Of what the process gets, which may be far less than its cores where others use them too.
        let got = own.min(1.0) * self.cores * elapsed.as_secs_f64();
        self.credit = (self.credit + self.share * got).min(KEPT);
        (self.since, self.cpu, self.ticks) = (Instant::now(), now, ticks);
    }
}

/// What the cores did that this process may use, in the kernel's ticks since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// None where the kernel does not say it.
    fn now() -> Option<Self> {
        #[cfg(target_os = "linux")]
        {
            let stat = std::fs::read_to_string("/proc/stat").ok()?;
            let mine = rustix::thread::sched_getaffinity(None).ok()?;
            Some(Self::of(&stat, |core| {
                core < rustix::thread::CpuSet::MAX_CPU && mine.is_set(core)
            }))
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Of the lines of /proc/stat, `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`; a guest's time is in the
    /// user's, too.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    fn of(stat: &str, is_mine: impl Fn(usize) -> bool) -> Self {
        let mut sum = Self::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let core = words
                .next()
                .and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            if !core.is_some_and(&is_mine) {
                continue;
            }
            for (place, word) in words.take(8).enumerate() {
                let ticks: u64 = word.parse().unwrap_or(0);
                sum.all += ticks;
                // Waiting for a disk leaves the core free.
                if matches!(place, 3 | 4) {
                    sum.idle += ticks;
                }
            }
        }
        sum
    }

    /// The busy part of the time since then.
    fn busy_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        if all == 0 {
            return 0.0;
        }
        1.0 - idle.min(all) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_others_do_not_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 0 80 10 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\ncpu12 40 5 5 25 5 5 5 10 40 0\nintr 1 2\n";
        let first = Ticks::of(stat, |core| core == 0);
        assert_eq!(first, Ticks { idle: 90, all: 100 });
        let both = Ticks::of(stat, |core| core != 1);
        assert_eq!(both, Ticks { idle: 120, all: 200 });
        assert!((both.busy_since(first) - 0.7).abs() < 1e-9);
        assert_eq!(first.busy_since(first), 0.0);
    }
}
