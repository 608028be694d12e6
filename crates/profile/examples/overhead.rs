//! What recording costs: `bench/profiler.sh` runs this.
//!
//! ```sh
//! overhead cost NVML SECONDS      # a machine of 64 cores in files, 8 GPUs in the library NVML, sampled in real time
//! overhead real SECONDS           # this machine
//! overhead week NVML INTERVAL_MS  # the ticks of a week, as fast as they can be taken
//! ```

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use stokehold_profile::system::Options;
use stokehold_profile::{Ending, Recorder, Settings, Tree};

const CORES: u64 = 64;
/// Processes of the machine, and of the tree that is followed.
const PROCESSES: u32 = 600;
const TREE: u32 = 72;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["cost", nvml, seconds] => {
            for interval in [500, 100] {
                let dir = tempfile::tempdir().expect("a temporary folder");
                fake_machine(dir.path(), 0);
                let mut settings = settings(interval, dir.path());
                settings.sources.nvml = nvml.into();
                let stop = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    // The counters grow, in a thread whose time does not count.
                    scope.spawn(|| {
                        for time in 1.. {
                            if stop.load(Ordering::Relaxed) {
                                break;
                            }
                            counters(dir.path(), time);
                            processes(dir.path(), time);
                            std::thread::sleep(Duration::from_millis(interval / 3));
                        }
                    });
                    cost(settings, number(seconds));
                    stop.store(true, Ordering::Relaxed);
                });
            }
        }
        ["real", seconds] => {
            for interval in [500, 100] {
                let mut settings = Settings::new(Tree::Of(std::process::id()), Vec::new());
                settings.interval = Duration::from_millis(interval);
                cost(settings, number(seconds));
            }
        }
        ["week", nvml, interval] => week(nvml, number(interval)),
        _ => eprintln!("cost NVML SECONDS | real SECONDS | week NVML INTERVAL_MS"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn settings(interval: u64, proc: &Path) -> Settings {
    let mut settings = Settings::new(Tree::Of(1000), Vec::new());
    settings.interval = Duration::from_millis(interval);
    settings.sources.proc = proc.to_owned();
    settings
}

/// CPU time of the recorder's threads as a share of one core.
fn cost(settings: Settings, seconds: u64) {
    let interval = settings.interval;
    let out = tempfile::tempdir().expect("a temporary folder");
    let sampler = Recorder::open(out.path(), settings)
        .and_then(Recorder::start)
        .expect("a recorder");
    // Series are added and buffers grow in the first ticks.
    std::thread::sleep(Duration::from_secs(3));
    let (before, begin) = (threads(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, passed) = (threads(), begin.elapsed().as_nanos() as f64);
    let share = |name: &str| {
        let of = |all: &[(String, u64)]| {
            all.iter()
                .filter(|(thread, _)| thread == name)
                .map(|(_, ns)| ns)
                .sum::<u64>()
        };
        100.0 * of(&after).saturating_sub(of(&before)) as f64 / passed
    };
    let (sampler_share, gpus_share) = (share("system-sampler"), share("sample-gpus"));
    let summary = sampler.stop(Ending::default()).expect("a summary");
    println!(
        "every {interval:?}: {:.2} % of a core (sampler {sampler_share:.2}, GPUs {gpus_share:.2}); {} ticks, {:.1} KB each, RSS {} KB",
        sampler_share + gpus_share,
        summary.ticks,
        bytes(out.path()) as f64 / 1e3 / summary.ticks as f64,
        rss()
    );
}

/// A week's ticks with a simulated clock, through the same code.
fn week(nvml: &str, interval: u64) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fake_machine(dir.path(), 0);
    let out = tempfile::tempdir().expect("a temporary folder");
    let mut settings = settings(interval, dir.path());
    settings.sources.nvml = nvml.into();
    settings.files = Options {
        limit: 256 << 20,
        gzip: true,
        ..Options::default()
    };
    let mut recorder = Recorder::open(out.path(), settings).expect("a recorder");
    let (start, wall) = (Instant::now(), SystemTime::now());
    let ticks = 7 * 86_400_000 / interval;
    let mut most = 0;
    for tick in 1..=ticks {
        counters(dir.path(), tick);
        if tick % 50 == 0 {
            // A worker ends and another begins.
            let old = 1000 + 8 + (tick / 50 - 1) as u32 % 64;
            fs::remove_dir_all(dir.path().join(old.to_string())).expect("a process that ends");
            processes(dir.path(), tick);
        }
        let passed = Duration::from_millis(interval * tick);
        recorder.tick(start + passed, wall + passed).expect("a tick");
        if tick % (ticks / 14) == 0 {
            let disk = bytes(out.path());
            most = most.max(disk);
            println!(
                "day {:4.1}: RSS {} KB, disk {:.0} MB",
                7.0 * tick as f64 / ticks as f64,
                rss(),
                disk as f64 / 1e6
            );
        }
    }
    println!(
        "{ticks} ticks in {:.0} s, {:.2} ms each; disk at most {:.0} MB",
        start.elapsed().as_secs_f64(),
        1e3 * start.elapsed().as_secs_f64() / ticks as f64,
        most as f64 / 1e6
    );
    recorder.finish(Ending::default()).expect("an end");
}

/// Writes a `/proc` of 64 cores, 20 disks, and 600 processes, 72 of them in the tree.
fn fake_machine(root: &Path, time: u64) {
    counters(root, time);
    processes(root, time);
}

/// Writes a file in place: who has it open reads the new text, and never an empty one.
fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    let write = || {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    };
    if write().is_err() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        write().expect("a file");
    }
}

/// The counters of the machine.
fn counters(root: &Path, time: u64) {
    let mut stat = String::from("cpu  1 2 3 4 5 6 7 0 0 0\n");
    for core in 0..CORES {
        let _ = writeln!(
            stat,
            "cpu{core} {} 123 {} {} 7888 0 2524 4976 0 0",
            759_053 + 31 * time,
            78_012 + time,
            413_995 + 11 * time
        );
    }
    let _ = writeln!(
        stat,
        "intr 9337149{}\nctxt 1\nbtime 1700000000",
        " 0".repeat(4000)
    );
    file(root, "stat", &stat);
    file(
        root,
        "meminfo",
        &format!(
            "MemTotal: 24684084 kB\nMemFree: 1 kB\nMemAvailable: 23614948 kB\n{}SwapTotal: 0 kB\nSwapFree: 0 kB\n",
            "Filler: 1 kB\n".repeat(50)
        ),
    );
    let mut disks = String::new();
    for disk in 0..20 {
        let _ = writeln!(
            disks,
            " 259 {disk} nvme{disk}n1 5043779 146276 {} 8117016 229989 428557 {} 1042797 0 330848 9212067 127019 171 118911264 50591 16291 1661",
            216_668_874 + time,
            196_918_144 + time
        );
    }
    file(root, "diskstats", &disks);
    file(
        root,
        "net/dev",
        &format!(
            "Inter-| Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: {} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0\n",
            7_955_696_575 + time,
            7_923_770 + time
        ),
    );
    for name in ["cpu", "memory", "io"] {
        file(
            root,
            &format!("pressure/{name}"),
            &format!(
                "some avg10=89.17 avg60=79.44 avg300=64.46 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
                7_809_414_931 + time
            ),
        );
    }
}

/// The processes; only the tree is written again.
fn processes(root: &Path, time: u64) {
    for process in 0..PROCESSES {
        let (pid, parent) = match process {
            0 => (1000, 1),
            1..TREE => (1000 + process, 1000),
            _ => (10_000 + process, 1),
        };
        if time == 0 || process < TREE {
            file(
                root,
                &format!("{pid}/stat"),
                &format!(
                    "{pid} (python3) S {parent} 1 1 0 -1 4194304 101 0 0 0 {} {time} 0 0 20 0 1 0 1276363 3133440 394 18446744073709551615 1 1 1 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
                    time * u64::from(process)
                ),
            );
            file(
                root,
                &format!("{pid}/io"),
                &format!(
                    "rchar: {}\nwchar: 0\nsyscr: {time}\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n",
                    6976 * time
                ),
            );
            file(root, &format!("{pid}/status"), "Cpus_allowed_list:\t0-63\n");
        }
    }
}

/// CPU time of each thread of this process, nanoseconds.
fn threads() -> Vec<(String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    tasks
        .flatten()
        .filter_map(|task| {
            let read = |name| fs::read_to_string(task.path().join(name)).ok();
            let time = read("schedstat")?.split(' ').next()?.parse().ok()?;
            Some((read("comm")?.trim().to_owned(), time))
        })
        .collect()
}

fn rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}
