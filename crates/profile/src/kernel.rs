//! The kernel's counters: reading `/proc` and the text formats in it (see proc(5)).
//!
//! The parsers take text, so that they are tested on any platform with files of other machines.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ProfileError;

/// A `/proc` file system; its root differs only in tests.
pub(crate) struct ProcFs {
    root: PathBuf,
}

/// One core's counters since boot, in kernel ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoreTicks {
    pub core: u32,
    /// Neither idle nor idle while storage is awaited.
    pub busy: u64,
    pub total: u64,
}

/// Everything one sample needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters {
    /// The cores this process may run on, in ascending order.
    pub cores: Vec<CoreTicks>,
    /// Resident memory of this process, bytes.
    pub rss: u64,
    /// Bytes this process made the storage deliver, since it started; page-cache hits do not count. `None`
    /// where the kernel keeps no account of it.
    pub read: Option<u64>,
}

impl ProcFs {
    pub fn system() -> Self {
        Self::at("/proc")
    }

    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Reads the counters now.
    pub fn counters(&self) -> Result<Counters, ProfileError> {
        let stat = self.root.join("stat");
        let status = self.root.join("self/status");
        let all = parse_stat(&read(&stat)?).map_err(|reason| malformed(&stat, reason))?;
        let (allowed, rss) = parse_status(&read(&status)?).map_err(|reason| malformed(&status, reason))?;
        // A sandbox may forbid the account of reads alone; the rest is still worth having.
        let read = fs::read_to_string(self.root.join("self/io"))
            .ok()
            .and_then(|text| parse_io(&text));
        let cores = all
            .into_iter()
            .filter(|core| allowed.contains(core.core))
            .collect();
        Ok(Counters { cores, rss, read })
    }

    /// The most memory this process ever had resident, in bytes, where the platform tells.
    pub fn peak_rss(&self) -> Option<u64> {
        let status = fs::read_to_string(self.root.join("self/status")).ok()?;
        kibibytes(&status, "VmHWM:")
    }

    /// The name of the processor and the bytes of memory, where the platform tells.
    pub fn machine(&self) -> (Option<String>, Option<u64>) {
        let text = |name| fs::read_to_string(self.root.join(name)).ok();
        let cpu = text("cpuinfo").and_then(|text| parse_cpu_model(&text));
        let memory = text("meminfo").and_then(|text| kibibytes(&text, "MemTotal:"));
        (cpu, memory)
    }
}

/// Share of the time between two readings that the core was busy, in percent.
pub(crate) fn busy_percent(before: CoreTicks, after: CoreTicks) -> f64 {
    // The kernel corrects some counters downwards; that must not wrap.
    let total = after.total.saturating_sub(before.total);
    let busy = after.busy.saturating_sub(before.busy).min(total);
    if total == 0 {
        0.0
    } else {
        100.0 * busy as f64 / total as f64
    }
}

fn read(path: &Path) -> Result<String, ProfileError> {
    fs::read_to_string(path).map_err(|error| ProfileError::NotSupported {
        what: path.to_owned(),
        reason: error.to_string(),
    })
}

fn malformed(path: &Path, reason: String) -> ProfileError {
    ProfileError::Malformed {
        path: path.to_owned(),
        reason,
    }
}

/// `/proc/stat`: `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`, where guest time is
/// already part of user time. Old kernels end the line earlier.
fn parse_stat(text: &str) -> Result<Vec<CoreTicks>, String> {
    let mut cores = Vec::new();
    for line in text.lines() {
        let Some((name, values)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        if name.is_empty() {
            continue; // the sum over all cores
        }
        let core = name.parse().map_err(|_| format!("`cpu{name}` is not a core"))?;
        let ticks: Vec<u64> = values
            .split_ascii_whitespace()
            .take(8)
            .map(|value| {
                value
                    .parse()
                    .map_err(|_| format!("cpu{core}: `{value}` is not a count of ticks"))
            })
            .collect::<Result<_, _>>()?;
        if ticks.len() < 4 {
            return Err(format!(
                "cpu{core}: {} counters where at least 4 are expected",
                ticks.len()
            ));
        }
        let total: u64 = ticks.iter().sum();
        let idle = ticks[3] + ticks.get(4).copied().unwrap_or(0);
        cores.push(CoreTicks {
            core,
            busy: total - idle,
            total,
        });
    }
    if cores.is_empty() {
        return Err("no line of a core".to_owned());
    }
    Ok(cores)
}

/// Cores a process may run on, such as `0-3,8`.
struct CoreList(Vec<(u32, u32)>);

impl CoreList {
    fn contains(&self, core: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&core))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a core number"));
        text.split(',')
            .map(|range| match range.split_once('-') {
                Some((first, last)) => Ok((number(first)?, number(last)?)),
                None => number(range).map(|core| (core, core)),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn parse_status(text: &str) -> Result<(CoreList, u64), String> {
    let allowed = field(text, "Cpus_allowed_list:").ok_or("no line Cpus_allowed_list")?;
    let rss = kibibytes(text, "VmRSS:").ok_or("no line VmRSS in kB")?;
    Ok((CoreList::parse(allowed)?, rss))
}

fn parse_io(text: &str) -> Option<u64> {
    field(text, "read_bytes:")?.parse().ok()
}

/// x86 says `model name : ..` for every core; ARM has no such line.
fn parse_cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The value of a line `Name:   123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    value.checked_mul(1024)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  200 0 100 1600 100 0 0 0 50 0\n\
        cpu0 100 0 50 800 50 0 0 0 25 0\n\
        cpu1 100 0 50 800 50 0 0 0 25 0\n\
        cpu10 7 1 2 30\n\
        intr 12345 0 0\nctxt 99\nbtime 1700000000\n";

    #[test]
    fn stat_counts_waiting_for_storage_as_idle_and_guests_once() {
        let cores = parse_stat(STAT).unwrap();
        assert_eq!(
            cores[0],
            CoreTicks {
                core: 0,
                busy: 150,
                total: 1000
            }
        );
        assert_eq!(
            cores[2],
            CoreTicks {
                core: 10,
                busy: 10,
                total: 40
            }
        );
        assert_eq!(cores.len(), 3);
    }

    #[test]
    fn stat_of_another_form_says_what_is_wrong() {
        assert_eq!(parse_stat("intr 1\n").unwrap_err(), "no line of a core");
        assert_eq!(
            parse_stat("cpu0 1 x 3 4\n").unwrap_err(),
            "cpu0: `x` is not a count of ticks"
        );
        assert!(parse_stat("cpu0 1 2\n").unwrap_err().contains("2 counters"));
    }

    #[test]
    fn busy_share_survives_counters_that_step_back() {
        let at = |busy, total| CoreTicks { core: 0, busy, total };
        assert_eq!(busy_percent(at(10, 100), at(13, 110)), 30.0);
        assert_eq!(busy_percent(at(10, 100), at(9, 110)), 0.0);
        assert_eq!(busy_percent(at(10, 100), at(30, 110)), 100.0);
        assert_eq!(busy_percent(at(10, 100), at(10, 100)), 0.0);
    }

    #[test]
    fn status_gives_cores_and_memory() {
        let (allowed, rss) =
            parse_status("Name:\tx\nVmRSS:\t    2048 kB\nCpus_allowed_list:\t0-1,5\n").unwrap();
        assert_eq!(rss, 2048 * 1024);
        let cores: Vec<u32> = (0..8).filter(|&core| allowed.contains(core)).collect();
        assert_eq!(cores, [0, 1, 5]);
        assert!(parse_status("VmRSS: 1 kB\n").is_err());
    }

    #[test]
    fn reads_the_account_of_reads_and_the_processor() {
        assert_eq!(
            parse_io("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n"),
            Some(4096)
        );
        assert_eq!(
            parse_cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n").as_deref(),
            Some("A CPU @ 2 GHz")
        );
        assert_eq!(parse_cpu_model("processor\t: 0\nBogoMIPS\t: 50\n"), None);
    }

    #[test]
    fn without_proc_it_is_not_supported() {
        let empty = tempfile::tempdir().unwrap();
        let error = ProcFs::at(empty.path()).counters().unwrap_err();
        assert!(matches!(error, ProfileError::NotSupported { .. }), "{error}");
        assert!(error.to_string().contains("not supported here"), "{error}");
        assert_eq!(ProcFs::at(empty.path()).machine(), (None, None));
        assert_eq!(ProcFs::at(empty.path()).peak_rss(), None);
    }
}
