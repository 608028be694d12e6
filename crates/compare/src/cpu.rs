//! The CPU time of a process group, from `/proc`.
//!
//! A trial's processes form a group: the program, and the workers that it forks. A worker that ends adds its
//! time to the process that waits for it, so the sum over the living members, with what they have taken over,
//! misses only workers that have ended and are not waited for yet. The kernel counts in ticks of 10 ms.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;

/// CPU time so far of all processes of a group; `None` where there is no `/proc`.
pub fn of_group(group: Pid) -> Option<Duration> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        if !name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // A process may end meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", name.to_string_lossy())) else {
            continue;
        };
        ticks += of_stat(&stat, group.as_raw()).unwrap_or(0);
    }
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The ticks of a process, with those of the children that it has waited for; `None` if it is not of the group.
fn of_stat(stat: &str, group: i32) -> Option<u64> {
    // proc(5): the name in parentheses may hold anything; after it come state, ppid, pgrp (fields 3, 4, 5), ..
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    if fields.get(2)?.parse() != Ok(group) {
        return None;
    }
    // .. utime, stime, cutime, cstime (14 to 17).
    fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_count_with_what_they_took_over() {
        let stat = "12 (a) b) R 1 77 77 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 1 0 100";
        assert_eq!(of_stat(stat, 77), Some(26));
        assert_eq!(of_stat(stat, 78), None);
        assert_eq!(of_stat("12 (a", 77), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_group_has_used_time() {
        let begin = std::time::Instant::now();
        let group = nix::unistd::getpgrp();
        let before = of_group(group).unwrap();
        while of_group(group).unwrap() <= before {
            assert!(begin.elapsed() < Duration::from_secs(60), "no tick was counted");
            std::hint::black_box((0..1_000_000).sum::<u64>());
        }
    }
}
