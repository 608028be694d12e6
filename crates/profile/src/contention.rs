//! How long this process's threads were ready to run and had no core.
//!
//! The kernel counts it for every thread in the second field of `/proc/self/task/<tid>/schedstat`, in nanoseconds
//! (Documentation/scheduler/sched-stats.rst). A measurement on a machine that others use needs it: wall time alone cannot tell
//! a program that computes on one core from one that wanted two and got one.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The sum over the threads that live now; differences mean something while no thread ends. `None` where the kernel does not tell.
pub fn waited_for_core() -> Option<Duration> {
    of_tasks(Path::new("/proc/self/task"))
}

fn of_tasks(tasks: &Path) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_and_nonsense_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of_tasks(dir.path()), None);
        for (task, text) in [("1", "500 2000 3\n"), ("2", "70 1000 1\n")] {
            fs::create_dir(dir.path().join(task)).unwrap();
            fs::write(dir.path().join(task).join("schedstat"), text).unwrap();
        }
        // One that has just ended.
        fs::create_dir(dir.path().join("3")).unwrap();
        assert_eq!(of_tasks(dir.path()), Some(Duration::from_nanos(3000)));
        fs::write(dir.path().join("3/schedstat"), "70 many 1\n").unwrap();
        assert_eq!(of_tasks(dir.path()), None);
        assert_eq!(of_tasks(&dir.path().join("nowhere")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn more_threads_than_cores_wait_for_each_other() {
        let Some(before) = waited_for_core() else { return };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let begin = std::time::Instant::now();
        let spin = || while begin.elapsed() < Duration::from_millis(200) {};
        std::thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(spin);
            }
            std::thread::sleep(Duration::from_millis(150));
            let waited = waited_for_core().unwrap() - before;
            // A quarter of a core each at best, for 150 ms.
            assert!(waited > Duration::from_millis(100), "{waited:?}");
        });
    }
}
