//! What workers spend on images, and how many of them `auto` makes of it.
//!
//! A worker that reads from storage which answers late does not compute meanwhile. So a worker for each core
//! leaves cores idle, and the more so the longer a read waits. Every worker therefore measures both parts: its
//! CPU time per image, t, and the time per image, w, that it spent in a read without computing and without waiting for a core,
//! which Linux counts (`delay.rs`). While it is at work it uses t / (t + w) of a core, so
//!
//! ```text
//! workers = cores + 1.5 w x min(cores / t, r)
//! ```
//!
//! keep all cores busy, or a consumer that takes r images per second where it never waits: by Little's law, w x rate
//! images are being read at a time. No more workers than there are cores compute at once (`gate.rs`). The factor of
//! 1.5 is for chance: with exactly as many as needed on average, often more of them wait than that, and a core is idle.
//! Without waits it is a worker for each core.
//!
//! Workers that are too many cost little and those that are missing cost much, but a wait must be certain before
//! it adds one. Where a hypervisor takes the core in the middle of a short read, that looks like a wait, too. It is rare
//! and long, while storage that answers late does so in many reads: a wait counts where its mean is above zero by
//! two standard errors, and above a twentieth of the CPU time.
//!
//! A loader begins with a worker for each core. While the consumer waits for a batch, and only then, it adds what
//! is missing, up to [`MOST`]; this takes the first few reads. The next epoch begins with what the last one
//! measured, which may be fewer. Neither the order nor the draws depend on any of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most workers that `auto` starts. Each of them holds the file and the buffers of one image.
pub(crate) const MOST: usize = 128;
/// Images that say whether reads wait.
const LEAST: u64 = 4;
/// Waits below this share of the CPU time do not count.
const SHARE: f64 = 0.05;
/// What is needed on average, times this, is needed with chance.
const CHANCE: f64 = 1.5;

/// What workers spent on images that became part of a batch, summed over them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Costs {
    /// Images.
    pub images: u64,
    /// CPU time, reads included.
    pub cpu: Duration,
    /// Time in reads without computing: waits for storage, and where the platform does not count them also those for a core.
    pub waited: Duration,
    /// The sum of the squares of the waits, square microseconds.
    squares: u64,
}

impl Costs {
    /// CPU time per image, seconds; `None` before the first, and where the platform does not measure it.
    pub fn cpu_seconds(&self) -> Option<f64> {
        Some(self.cpu.as_secs_f64() / self.images as f64).filter(|cpu| cpu.is_finite() && *cpu > 0.0)
    }

    /// Time per image in reads without computing, seconds; `None` where [`Costs::cpu_seconds`] is.
    pub fn wait_seconds(&self) -> Option<f64> {
        self.cpu_seconds()?;
        Some(self.waited.as_secs_f64() / self.images as f64)
    }

    /// Workers that keep `cores` cores busy, at least one for each, or a consumer that takes `rate` images per second.
    pub(crate) fn workers(&self, cores: usize, rate: f64) -> usize {
        let (Some(cpu), Some(wait)) = (self.cpu_seconds(), self.wait_seconds()) else {
            return cores;
        };
        let images = self.images as f64;
        let square = self.squares as f64 * 1e-12 / images;
        let error = ((square - wait * wait).max(0.0) / images).sqrt();
        if self.images < LEAST || wait - 2.0 * error < SHARE * cpu {
            return cores;
        }
        let rate = (cores as f64 / cpu).min(rate);
        let workers = (cores as f64 + CHANCE * wait * rate).ceil();
        (workers as usize).min(MOST).max(cores)
    }

    /// What came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            images: self.images.saturating_sub(before.images),
            cpu: self.cpu.saturating_sub(before.cpu),
            waited: self.waited.saturating_sub(before.waited),
            squares: self.squares.saturating_sub(before.squares),
        }
    }
}

/// The time of the consumer between two waits for a batch, while it is added up.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    images: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Demand {
    /// Adds a batch of this many images, with which the consumer was busy for so long.
    pub(crate) fn add(&self, busy: Duration, images: usize) {
        self.images.fetch_add(images as u64, Ordering::Relaxed);
        self.nanoseconds
            .fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Images per second of a consumer that never waits; `None` before its first batch.
    pub(crate) fn rate(&self) -> Option<f64> {
        let images = self.images.load(Ordering::Relaxed);
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9;
        (images > 0).then(|| images as f64 / seconds.max(1e-9))
    }
}

/// The sums, while workers add to them.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    images: AtomicU64,
    cpu: AtomicU64,
    waited: AtomicU64,
    squares: AtomicU64,
}

impl Meter {
    /// Adds an image.
    pub(crate) fn add(&self, cpu: Duration, waited: Duration) {
        let micros = waited.as_micros() as u64;
        self.cpu.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        self.waited.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        self.squares
            .fetch_add(micros.saturating_mul(micros), Ordering::Relaxed);
        self.images.fetch_add(1, Ordering::Relaxed);
    }

    /// The sums so far. An image that is being added may be in some of them.
    pub(crate) fn costs(&self) -> Costs {
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Costs {
            images: load(&self.images),
            cpu: Duration::from_nanos(load(&self.cpu)),
            waited: Duration::from_nanos(load(&self.waited)),
            squares: load(&self.squares),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(cpu_us: u64, waits_us: &[u64]) -> Costs {
        let meter = Meter::default();
        for &wait in waits_us {
            meter.add(Duration::from_micros(cpu_us), Duration::from_micros(wait));
        }
        meter.costs()
    }

    #[test]
    fn waits_make_workers() {
        // 20 ms next to 2 ms of CPU time: 2 x (1 + 1.5 x 10).
        assert_eq!(costs(2000, &[20_000; 4]).workers(2, f64::INFINITY), 32);
        assert_eq!(costs(20_000, &[20_000; 4]).workers(4, f64::INFINITY), 10);
        // A consumer that takes 100 images a second has three of them read, and two cores.
        assert_eq!(costs(2000, &[20_000; 4]).workers(2, 100.0), 5);
        // A tenth: 8 x 1.15, rounded up.
        assert_eq!(costs(2000, &[200; 4]).workers(8, f64::INFINITY), 10);
        // No more than the bound, which does not take a core's worker away.
        assert_eq!(costs(500, &[50_000; 8]).workers(2, f64::INFINITY), MOST);
        assert_eq!(costs(500, &[50_000; 8]).workers(160, f64::INFINITY), 160);
    }

    #[test]
    fn short_or_rare_waits_add_no_worker() {
        assert_eq!(Costs::default().workers(3, f64::INFINITY), 3);
        assert_eq!(
            costs(2000, &[20_000; 3]).workers(2, f64::INFINITY),
            2,
            "too few images"
        );
        assert_eq!(
            costs(2000, &[60; 100]).workers(2, f64::INFINITY),
            2,
            "a copy from memory"
        );
        // Once in 64 reads another thread had the core for 12 ms: a mean of 0.19 ms that two standard errors, 0.37 ms, cover.
        let mut waits = [0; 64];
        waits[17] = 12_000;
        assert_eq!(costs(2000, &waits).workers(2, f64::INFINITY), 2);
        // Every second read of 64 is from a disk that takes 4 ms.
        let waits: Vec<u64> = (0..64).map(|read| 4000 * (read % 2)).collect();
        assert_eq!(costs(2000, &waits).workers(2, f64::INFINITY), 5);
        // The platform measures no CPU time.
        assert_eq!(costs(0, &[20_000; 8]).workers(2, f64::INFINITY), 2);
    }

    #[test]
    fn demand_is_of_the_consumers_own_time() {
        let demand = Demand::default();
        assert_eq!(demand.rate(), None);
        demand.add(Duration::from_millis(100), 32);
        demand.add(Duration::from_millis(60), 32);
        assert!((demand.rate().unwrap() - 400.0).abs() < 1e-9);
    }

    #[test]
    fn sums_can_be_taken_apart() {
        let meter = Meter::default();
        meter.add(Duration::from_millis(2), Duration::from_millis(10));
        let before = meter.costs();
        meter.add(Duration::from_millis(4), Duration::from_millis(30));
        let after = meter.costs();
        assert_eq!(after.images, 2);
        assert!((after.wait_seconds().unwrap() - 0.02).abs() < 1e-12);
        let since = after.since(&before);
        assert_eq!((since.images, since.cpu), (1, Duration::from_millis(4)));
        assert!((since.wait_seconds().unwrap() - 0.03).abs() < 1e-12);
    }
}
