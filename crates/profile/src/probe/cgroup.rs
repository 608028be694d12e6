//! A cgroup's CPU quota, and how long it throttled its tasks: `cpu.max` or `cpu.cfs_*`, and `cpu.stat` (the kernel's documentation,
//! sched-bwc).

use std::fs;
use std::path::{Path, PathBuf};

use super::Board;
use crate::dimension;
use crate::kernel::{KernelFile, field, rate};
use crate::system::SeriesId;

/// The cgroup of a process and its ancestors, each of which may have a quota.
pub(crate) struct Cgroup {
    levels: Vec<Level>,
    buffer: Vec<u8>,
    place: SeriesId,
}

struct Level {
    file: KernelFile,
    before: Option<Throttled>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Throttled {
    /// Periods with tasks to run, and those among them in which the quota was used up.
    periods: u64,
    throttled: u64,
    /// Throttled time of all cores together, microseconds.
    time: u64,
}

impl Cgroup {
    pub fn open(proc: &Path, process: &str, board: &mut Board) -> Option<Self> {
        let mut levels = Vec::new();
        let mut buffer = Vec::new();
        for folder in folders(proc, process)? {
            if let Ok(file) = KernelFile::open(folder.join("cpu.stat"))
                && file.read_at_once(&mut buffer).ok().and_then(throttled).is_some()
            {
                levels.push(Level { file, before: None });
            }
        }
        (!levels.is_empty()).then(|| Self {
            levels,
            buffer,
            place: board.add("cgroup", "cpu", dimension::THROTTLED),
        })
    }

    pub fn sample(&mut self, board: &mut Board, elapsed: f64) {
        let mut most = f64::NAN;
        for level in &mut self.levels {
            let now = level.file.read_at_once(&mut self.buffer).ok().and_then(throttled);
            if let Some((before, now)) = level.before.zip(now) {
                most = most.max(share(before, now, elapsed));
            }
            level.before = now;
        }
        board.set(self.place, most);
    }
}

/// The cores that the quotas of a process's cgroup and of those above it leave it; `None` if there are none.
pub(crate) fn quota(proc: &Path, process: &str) -> Option<f64> {
    let of_folder = |folder: &Path| -> Option<f64> {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let both = match text("cpu.max") {
            Some(both) => both,
            None => format!(
                "{} {}",
                text("cpu.cfs_quota_us")?.trim(),
                text("cpu.cfs_period_us")?
            ),
        };
        let mut numbers = both.split_whitespace().map(str::parse::<f64>);
        // Without a quota it is "max", or -1.
        let (quota, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    let each = folders(proc, process)?;
    each.iter()
        .filter_map(|folder| of_folder(folder))
        .reduce(f64::min)
}

/// The folders of a process's cgroup and of those above it.
fn folders(proc: &Path, process: &str) -> Option<Vec<PathBuf>> {
    let groups = fs::read_to_string(proc.join(process).join("cgroup")).ok()?;
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    let (mount, folder) = locate(&groups, &mounts)?;
    let all = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
    Some(all.map(Path::to_owned).collect())
}

/// Percent of the time. The throttled time is summed over cores, so it is too high where several cores were
/// throttled; the share of periods is too high where the quota was used up just before their ends. Both are
/// upper bounds, so take the lower.
fn share(before: Throttled, now: Throttled, elapsed: f64) -> f64 {
    let periods = now.periods.saturating_sub(before.periods);
    let throttled = now.throttled.saturating_sub(before.throttled).min(periods);
    let of_periods = 100.0 * throttled as f64 / periods.max(1) as f64;
    // Unlike `min`, `clamp` keeps NaN.
    (rate(before.time, now.time, elapsed) / 1e4).clamp(0.0, of_periods)
}

fn throttled(text: &[u8]) -> Option<Throttled> {
    // Version 2 counts microseconds, version 1 nanoseconds.
    let time = field(text, "throttled_usec").or_else(|| Some(field(text, "throttled_time")? / 1000))?;
    Some(Throttled {
        periods: field(text, "nr_periods")?,
        throttled: field(text, "nr_throttled")?,
        time,
    })
}

/// The mount point of the CPU controller's file system, and the process's folder in it. A line of `groups` is
/// `number:controllers:path`, with 0 and no controllers for version 2; a line of `mounts` is `id parent
/// device root point options .. - type source options` (proc(5)).
fn locate(groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let mounted = |version: &str, controller: Option<&str>| {
        mounts.lines().find_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mut words = system.split(' ');
            let is_it = words.next()? == version
                && controller.is_none_or(|name| {
                    words
                        .nth(1)
                        .is_some_and(|all| all.split(',').any(|it| it == name))
                });
            let mut words = mount.split(' ').skip(3);
            is_it.then_some((words.next()?, Path::new(words.next()?)))
        })
    };
    let group = |is_it: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            is_it(number, controllers).then_some(path)
        })
    };
    let first = group(&|_, controllers| controllers.split(',').any(|name| name == "cpu"))
        .and_then(|path| Some((path, mounted("cgroup", Some("cpu"))?)));
    let (path, (root, mount)) = first.or_else(|| {
        let path = group(&|number, controllers| number == "0" && controllers.is_empty())?;
        Some((path, mounted("cgroup2", None)?))
    })?;
    // A container sees a part of the tree, and may know its root by the name outside.
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    Some((mount.to_owned(), mount.join(below.trim_start_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let found = |groups: &str, mounts: &str| {
            locate(groups, mounts).map(|(_, folder)| folder.display().to_string())
        };
        assert_eq!(
            found("4:memory:/a\n2:cpu,cpuacct:/jobs/7\n0::/x\n", mounts).as_deref(),
            Some("/sys/fs/cgroup/cpu/jobs/7")
        );
        assert_eq!(
            found("0::/user.slice/one\n", mounts).as_deref(),
            Some("/sys/fs/cgroup/unified/user.slice/one")
        );
        let container = "41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(
            found("0::/docker/abc\n", container).as_deref(),
            Some("/sys/fs/cgroup/")
        );
        assert_eq!(found("what", mounts), None);
        assert_eq!(found("0::/x", ""), None);
    }

    #[test]
    fn the_share_is_of_the_time_at_any_level() {
        let mut fake = Fake::new();
        let mount = fake.root().join("cgroup");
        fake.file("self/cgroup", "0::/jobs/one\n");
        fake.file(
            "self/mountinfo",
            &format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", mount.display()),
        );
        let stat = |fake: &Fake, periods: u64, throttled: u64, time: u64| {
            fake.file(
                "cgroup/jobs/one/cpu.stat",
                "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            );
            // The quota is that of the folder above.
            let text = format!(
                "usage_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {time}\n"
            );
            fake.file("cgroup/jobs/cpu.stat", &text);
        };
        stat(&fake, 100, 0, 0);
        let root = fake.dir.path().to_owned();
        let mut cgroup = Cgroup::open(&root, "self", &mut fake.board).unwrap();
        for (periods, throttled, time) in [
            (100, 0, 0),
            (110, 5, 200_000),
            (120, 6, 1_200_000),
            (120, 6, 1_200_000),
        ] {
            stat(&fake, periods, throttled, time);
            cgroup.sample(&mut fake.board, 1.0);
            fake.tick();
        }
        // The first reading is what the second is compared with; a tick without a value is not there.
        // 0.2 s of 1 s; 1 of 10 periods, in which several cores together stood for 1 s.
        assert_eq!(
            fake.read()["cpu ThrottledPercent"],
            [Some(20.0), Some(10.0), Some(0.0)]
        );
    }

    #[test]
    fn the_smallest_quota_counts() {
        let fake = Fake::new();
        let root = fake.dir.path().to_owned();
        let mount = fake.root().join("cgroup");
        fake.file("self/cgroup", "0::/jobs/one\n");
        let mounted = |version: &str, options: &str| {
            fake.file(
                "self/mountinfo",
                &format!(
                    "41 31 0:38 / {} rw - {version} {version} {options}\n",
                    mount.display()
                ),
            );
        };
        mounted("cgroup2", "rw");
        fake.file("cgroup/jobs/one/cpu.max", "max 100000\n");
        assert_eq!(quota(&root, "self"), None);
        fake.file("cgroup/jobs/cpu.max", "150000 100000\n");
        assert_eq!(quota(&root, "self"), Some(1.5));
        fake.file("cgroup/jobs/one/cpu.max", "50000 100000\n");
        assert_eq!(quota(&root, "self"), Some(0.5));
        // The first version.
        fake.file("self/cgroup", "3:cpu,cpuacct:/old/one\n");
        mounted("cgroup", "rw,cpu,cpuacct");
        for (name, text) in [("quota", "-1\n"), ("period", "100000\n")] {
            fake.file(&format!("cgroup/old/one/cpu.cfs_{name}_us"), text);
        }
        assert_eq!(quota(&root, "self"), None);
        fake.file("cgroup/old/one/cpu.cfs_quota_us", "25000\n");
        assert_eq!(quota(&root, "self"), Some(0.25));
        assert_eq!(quota(&root, "7"), None);
    }

    #[test]
    fn version_1_counts_nanoseconds() {
        let text = b"nr_periods 4\nnr_throttled 3\nthrottled_time 5000000\n";
        assert_eq!(
            throttled(text),
            Some(Throttled {
                periods: 4,
                throttled: 3,
                time: 5000
            })
        );
        assert_eq!(throttled(b"usage_usec 9\n"), None);
    }
}
