//! How long other programs kept this process's threads from running on a core.
//!
//! For every thread the kernel counts how long it was ready to run but had no core: the second field of
//! `/proc/self/task/<tid>/schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst). A measurement
//! on a shared machine needs it: wall time alone cannot tell a program that computes on one core from one
//! that wanted two and got one.
//!
//! But the threads of a process also wait for each other, for example a pool with a thread per core for the
//! thread that feeds it: on two otherwise idle cores ResNet-18 waits 0.4 s per second of CPU time in this
//! way. So the waiting counts only up to the CPU time that other programs used meanwhile: the busy time of
//! `/proc/stat` that this process did not use.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

use crate::Machine;
use crate::kernel::{lines, number, words};

/// The counters at one moment. Differences are valid while no thread ends.
#[derive(Debug, Clone, Copy)]
pub struct Contention {
    /// When.
    at: Instant,
    /// Time ready to run without a core, summed over the threads that live now.
    waited: Duration,
    /// CPU time of all programs.
    machine: Duration,
    /// CPU time of this process.
    own: Duration,
    /// Whether this process may use every core of the machine.
    everywhere: bool,
}

impl Contention {
    /// The counters now; `None` if the kernel does not provide them.
    pub fn now() -> Option<Self> {
        let stat = fs::read("/proc/stat").ok()?;
        Some(Self {
            at: Instant::now(),
            waited: waited(Path::new("/proc/self/task"))?,
            machine: busy(&stat)?,
            own: ProcessTime::try_now().ok()?.as_duration(),
            everywhere: Machine::here().cores >= cores(&stat),
        })
    }

    /// The time, summed over threads, in which this process was ready to run and other programs had the
    /// cores. The kernel counts their CPU time in ticks of 10 ms.
    pub fn delay_until(self, now: Self) -> Duration {
        now.waited.saturating_sub(self.waited).min(self.others_until(now))
    }

    /// The number of cores that other programs kept busy between the two, on average; `None` if this process
    /// may not use all cores of the machine, because the other programs may then use different ones.
    pub fn others_cores_until(self, now: Self) -> Option<f64> {
        let wall = now.at.saturating_duration_since(self.at).as_secs_f64();
        self.everywhere
            .then(|| self.others_until(now).as_secs_f64() / wall.max(1e-9))
    }

    /// CPU time of other programs between the two.
    fn others_until(self, now: Self) -> Duration {
        let own = now.own.saturating_sub(self.own);
        now.machine.saturating_sub(self.machine).saturating_sub(own)
    }
}

fn waited(tasks: &Path) -> Option<Duration> {
    let mut nanoseconds = None;
    for task in fs::read_dir(tasks).ok()? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        let waited: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        nanoseconds = Some(nanoseconds.unwrap_or(0) + waited);
    }
    nanoseconds.map(Duration::from_nanos)
}

/// The busy time of all cores in the first line of `/proc/stat`: `cpu user nice system idle iowait irq
/// softirq ..`.
fn busy(stat: &[u8]) -> Option<Duration> {
    let mut words = words(lines(stat).next()?);
    if words.next() != Some(b"cpu") {
        return None;
    }
    let mut ticks = 0u64;
    for field in 0..7 {
        let count = number(words.next()?)?;
        if field != 3 && field != 4 {
            ticks = ticks.checked_add(count)?;
        }
    }
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The number of cores with a line in `/proc/stat`: `cpu0 ..`, `cpu1 ..`
fn cores(stat: &[u8]) -> usize {
    lines(stat)
        .filter(|line| line.starts_with(b"cpu") && line.get(3).is_some_and(u8::is_ascii_digit))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_and_nonsense_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(waited(dir.path()), None);
        for (task, text) in [("1", "500 2000 3\n"), ("2", "70 1000 1\n")] {
            fs::create_dir(dir.path().join(task)).unwrap();
            fs::write(dir.path().join(task).join("schedstat"), text).unwrap();
        }
        // One that has just ended.
        fs::create_dir(dir.path().join("3")).unwrap();
        assert_eq!(waited(dir.path()), Some(Duration::from_nanos(3000)));
        fs::write(dir.path().join("3/schedstat"), "70 many 1\n").unwrap();
        assert_eq!(waited(dir.path()), None);
        assert_eq!(waited(&dir.path().join("nowhere")), None);
    }

    #[test]
    fn idle_cores_are_not_busy() {
        let second = rustix::param::clock_ticks_per_second();
        let text = format!("cpu  {second} 0 {second} 9000 500 0 {second} 7 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n");
        assert_eq!(busy(text.as_bytes()), Some(Duration::from_secs(3)));
        assert_eq!(cores(text.as_bytes()), 1);
        for text in [
            "",
            "cpu 1 2 3 4 5 6",
            "cpu 1 2 3 4 5 6 x",
            "cpu0 1 2 3 4 5 6 7",
            "intr 1 2 3 4 5 6 7",
        ] {
            assert_eq!(busy(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn no_more_than_others_had_counts() {
        let begin = Instant::now();
        let at = |waited, machine, own| Contention {
            at: begin + Duration::from_secs(own),
            waited: Duration::from_secs(waited),
            machine: Duration::from_secs(machine),
            own: Duration::from_secs(own),
            everywhere: true,
        };
        let before = at(5, 1000, 10);
        let delay = |after| before.delay_until(after).as_secs();
        // Its own threads wait for each other on an idle machine.
        assert_eq!(delay(at(8, 1010, 20)), 0);
        assert_eq!(delay(at(8, 1012, 20)), 2);
        // Others are busy on cores that it does not want.
        assert_eq!(delay(at(6, 1030, 20)), 1);
        // Ticks are coarse: a process may seem to have used more than the machine.
        assert_eq!(delay(at(8, 1009, 20)), 0);
        // In 10 s others had 15 s of CPU time: one and a half of the cores.
        assert_eq!(before.others_cores_until(at(8, 1025, 20)), Some(1.5));
        assert_eq!(before.others_cores_until(at(8, 1009, 20)), Some(0.0));
        assert_eq!(before.others_cores_until(before), Some(0.0));
        // Cores that this process may not use are none that it lost.
        let part = Contention {
            everywhere: false,
            ..before
        };
        assert_eq!(part.others_cores_until(at(8, 1025, 20)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn more_threads_than_cores_wait_for_each_other() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let Some(before) = Contention::now() else { return };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let over = AtomicBool::new(false);
        let (waited, used, delay) = std::thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // A quarter of a core each at best: while a thread computed for 100 ms, others waited for at
            // least as long.
            let seen = loop {
                let now = Contention::now().unwrap();
                let (waited, used) = (now.waited.saturating_sub(before.waited), now.own - before.own);
                if used > Duration::from_millis(100 * cores as u64) {
                    break (waited, used, before.delay_until(now));
                }
            };
            over.store(true, Ordering::Relaxed);
            seen
        });
        assert!(waited > used / 2, "{waited:?} in {used:?} of CPU time");
        assert!(delay <= waited);
    }
}
