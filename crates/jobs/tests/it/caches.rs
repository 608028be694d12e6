//! Mode Cache: what was read is kept, for the next epoch, the next job and the one next to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stokehold_jobs::{Job, Record, Status, Store, run};

use stokehold_untested::{needs::can_mount, until};

use crate::Bench;
use crate::mounts::{Killed, Place, Unmounted, completed, contents, sum};

/// The sums of all files, in the order of their names.
const READ_ALL: &str = "cd $SM_CHANNEL_TRAIN && for f in *; do md5sum < $f; done";

fn job(bench: &Bench, place: &Place, script: &str) -> Job {
    let mut job = place.job(bench, script, &[("train", "s3://bucket/train,mode=Cache")]);
    job.cache_dir = Some(bench.dir.path().join("cache"));
    job
}

/// Twelve objects, one of them in several pieces; 7.6 MB.
fn fill(place: &Place) -> Vec<String> {
    let size = |i: u64| {
        if i == 5 {
            5_000_000
        } else {
            50_000 + 30_000 * i as usize
        }
    };
    let keys = (0..12).map(|i| {
        let key = format!("train/{i:02}");
        place.put(&key, &contents(i, size(i)));
        key
    });
    keys.map(|key| sum(&place.folder.join(key))).collect()
}

/// Whether a job printed the sums, and nothing that went wrong.
fn is_right(bench: &Bench, record: &Record, sums: &[String]) {
    completed(record, bench);
    let expected: Vec<String> = sums.iter().map(|sum| format!("algo-1 out {sum}  -")).collect();
    assert_eq!(bench.printed(), expected);
}

/// Bytes of all files below a folder.
fn held(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => held(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

#[test]
fn what_was_read_is_not_fetched_again() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let mut sums = fill(&place);
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    let before = place.requests();
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    assert_eq!(place.requests() - before, 1, "the list, and nothing else");
    // Another version is another object.
    place.put("train/03", &contents(77, 1234));
    sums[3] = sum(&place.folder.join("train/03"));
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    assert_eq!(place.requests() - before, 3, "two lists and the new object");
    // A damaged piece is fetched again.
    let pieces = bench.dir.path().join("cache/objects/pieces");
    let folder = fs::read_dir(&pieces).unwrap().flatten().next().unwrap().path();
    let piece = fs::read_dir(folder).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&piece).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&piece, bytes).unwrap();
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    assert!(
        place.requests() - before <= 5,
        "three lists, the new object, and the piece if it is of the present version"
    );
    let config = bench
        .base(&bench.store.list().unwrap()[0], "algo-1")
        .join("input/config/inputdataconfig.json");
    assert!(
        fs::read_to_string(config)
            .unwrap()
            .contains("\"TrainingInputMode\":\"File\"")
    );
}

#[test]
fn a_part_that_is_read_brings_its_piece_and_no_more() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let bytes = contents(1, 12_000_000);
    place.put("train/big", &bytes);
    let script = "dd if=$SM_CHANNEL_TRAIN/big bs=1000 skip=9000000 count=1 iflag=skip_bytes status=none > $SM_OUTPUT_DIR/part";
    let record = bench.run(&job(&bench, &place, script));
    completed(&record, &bench);
    let part = fs::read(bench.base(&record, "algo-1").join("output/part")).unwrap();
    assert!(part == bytes[9_000_000..9_001_000]);
    let held = held(&bench.dir.path().join("cache/objects/pieces"));
    assert!((3_000_000..5_000_000).contains(&held), "{held}");
}

#[test]
fn the_bound_holds_and_every_byte_is_right() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let sums = fill(&place);
    for _ in 0..2 {
        let mut job = job(&bench, &place, READ_ALL);
        job.cache_gigabytes = Some(0.001);
        is_right(&bench, &bench.run(&job), &sums);
        let held = held(&bench.dir.path().join("cache/objects/pieces"));
        assert!((200_000..=1_000_000).contains(&held), "{held}");
    }
}

#[test]
fn two_jobs_at_once_share_a_cache() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let sums = fill(&place);
    place.server.faults().latency_ms.store(5, Ordering::SeqCst);
    let script = format!("({READ_ALL}); ({READ_ALL})");
    let mut names = Vec::new();
    for name in ["one", "two"] {
        let mut job = job(&bench, &place, &script);
        job.name = Some(name.to_owned());
        names.push(bench.store.create(&job).unwrap());
    }
    let records: Vec<Record> = thread::scope(|scope| {
        let running: Vec<_> = names
            .iter()
            .map(|name| {
                let claim = bench.store.claim(name).unwrap();
                scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap())
            })
            .collect();
        running.into_iter().map(|job| job.join().unwrap()).collect()
    });
    let twice: Vec<String> = sums.iter().chain(&sums).map(|sum| format!("{sum}  -")).collect();
    for record in records {
        assert_eq!(record.status, Status::Completed, "{record:?}");
        let (log, _) = bench.store.log(&record.name, 0).unwrap();
        let read: Vec<&str> = log
            .lines()
            .filter_map(|line| line.split_once(" out "))
            .map(|(_, text)| text)
            .collect();
        assert_eq!(read, twice, "{log}");
    }
}

/// This test runs itself in another process, and kills that.
#[test]
fn a_job_that_is_killed_while_it_fills_the_cache_harms_nobody() {
    if let Some(root) = std::env::var_os("STOKEHOLD_TEST_CACHE_RUNNER") {
        let store = Store::new(root.as_ref()).unwrap();
        let name = std::env::var("STOKEHOLD_TEST_CACHE_JOB").unwrap();
        // It may be killed at any moment, and has nothing more to say.
        let _ = run(store.claim(&name).unwrap(), &AtomicBool::new(false), &|_| {});
        return;
    }
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _guard = Unmounted(bench.dir.path().to_owned());
    let place = Place::new(&bench);
    let sums = fill(&place);
    place.server.faults().latency_ms.store(10, Ordering::SeqCst);
    let pieces = bench.dir.path().join("cache/objects/pieces");
    for (number, enough) in [(1, 1), (2, 300_000), (3, 1_500_000)] {
        let name = format!("victim-{number}");
        let mut job = job(
            &bench,
            &place,
            &format!("while true; do ({READ_ALL}) > /dev/null; sleep 0.1; done"),
        );
        job.name = Some(name.clone());
        bench.store.create(&job).unwrap();
        let runner = Command::new(std::env::current_exe().unwrap())
            .args(["a_job_that_is_killed_while_it_fills", "--nocapture"])
            .env("STOKEHOLD_TEST_CACHE_RUNNER", bench.store.root())
            .env("STOKEHOLD_TEST_CACHE_JOB", &name)
            .spawn();
        let mut runner = Killed(runner.unwrap());
        until("the cache fills", || pieces.exists() && held(&pieces) >= enough);
        runner.0.kill().unwrap();
        runner.0.wait().unwrap();
        // A process that it was just starting has its lock until it is another program.
        until("the job is seen to have failed", || {
            bench.store.get(&name).unwrap().status == Status::Failed
        });
    }
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    let before = place.requests();
    is_right(&bench, &bench.run(&job(&bench, &place, READ_ALL)), &sums);
    assert_eq!(place.requests() - before, 1, "all of it is kept now");
}

/// A small file system in memory, where mounting one is permitted.
struct Small(PathBuf);

impl Small {
    fn new(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(&folder)
            .output();
        let can = mount.is_ok_and(|output| output.status.success());
        if !can {
            stokehold_untested::skip("this machine does not permit mounting");
        }
        can.then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_costs_speed_and_a_line_in_the_log() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(_small) = Small::new(bench.dir.path().join("cache")) else {
        return;
    };
    let place = Place::new(&bench);
    let sums = fill(&place);
    let mut job = job(&bench, &place, READ_ALL);
    job.cache_gigabytes = Some(1.0);
    let record = bench.run(&job);
    completed(&record, &bench);
    let printed = bench.printed();
    for sum in sums {
        assert!(printed.contains(&format!("algo-1 out {sum}  -")), "{printed:?}");
    }
    let told =
        |line: &&String| line.starts_with("stokehold err channel train: ") && line.contains("cannot be kept");
    assert_eq!(printed.iter().filter(told).count(), 1, "{printed:?}");
    let aside = bench.dir.path().join("cache/objects/aside");
    assert_eq!(held(&aside), 0, "nothing half-written is left");
}
