//! Channels that are mounted: real FUSE, a real S3 server, and readers that are other processes than the one that serves them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use stokehold_untested::until;

use stokehold_jobs::{Channel, Job, Record, Status, Store, run};
use stokehold_s3_server::Server;
use stokehold_untested::needs::can_mount;

use crate::Bench;

/// A server with the bucket `bucket`.
pub(crate) struct Place {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn new(bench: &Bench) -> Self {
        let folder = bench.dir.path().join("s3/bucket");
        fs::create_dir_all(&folder).unwrap();
        let server = Server::start(&bench.dir.path().join("s3")).unwrap();
        Self { server, folder }
    }

    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.folder.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn job(&self, bench: &Bench, script: &str, channels: &[(&str, &str)]) -> Job {
        let mut job = bench.job("run.sh", script);
        job.environment.extend(self.server.settings());
        for (name, channel) in channels {
            job.channels
                .insert((*name).to_owned(), Channel::parse(channel).unwrap());
        }
        job
    }

    pub(crate) fn requests(&self) -> u64 {
        self.server.faults().requests.load(Ordering::SeqCst)
    }
}

/// Bytes that repeat nowhere near.
pub(crate) fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .take(length)
        .collect()
}

/// FUSE mounts below a folder, as the kernel lists them.
fn mounted(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_ours = |line: &&str| line.contains(folder.to_str().unwrap()) && line.contains("stokehold");
    mounts.lines().filter(is_ours).map(str::to_owned).collect()
}

/// Unmounts what a test leaves, also one that fails.
pub(crate) struct Unmounted(pub(crate) PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        for line in mounted(&self.0) {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(line.split(' ').nth(4).unwrap())
                .status();
        }
    }
}

/// A process that is killed at the end, also of a test that fails.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `md5sum` says of a file.
pub(crate) fn sum(path: &Path) -> String {
    let output = Command::new("md5sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..32].to_owned()
}

pub(crate) fn completed(record: &Record, bench: &Bench) {
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(
        mounted(bench.dir.path()),
        Vec::<String>::new(),
        "a mount was left"
    );
}

const SIZES: [usize; 9] = [0, 1, 4095, 4096, 4097, 100_000, 1 << 20, (4 << 20) + 1, 9_000_000];

#[test]
fn every_byte_of_every_file_is_there() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let mut keys: Vec<String> = (0..40)
        .map(|i| format!("train/class {}/{i:02}.jpg", i % 3))
        .collect();
    keys.push("train/deep/er/x".to_owned());
    for (i, key) in keys.iter().enumerate() {
        let size = if i < SIZES.len() { SIZES[i] } else { 1000 + 777 * i };
        place.put(key, &contents(i as u64, size));
    }
    let faults = place.server.faults();
    faults.latency_ms.store(3, Ordering::SeqCst);
    faults.truncated.store(3, Ordering::SeqCst);
    let script = "cd $SM_CHANNEL_TRAIN && find . -type f | sort | while read -r f; do md5sum \"$f\"; done\n\
        ls -R . | wc -l; touch new 2>/dev/null || echo read-only; cat deep 2>&1 | grep -o 'Is a directory'; stat -c %s deep/er/x; \
        [ -e nothing ] || echo nothing";
    let record = bench.run(&place.job(&bench, script, &[("train", "s3://bucket/train,mode=FastFile")]));
    completed(&record, &bench);
    let mut expected: Vec<String> = keys
        .iter()
        .map(|key| {
            let below = key.strip_prefix("train/").unwrap();
            format!("algo-1 out {}  ./{below}", sum(&place.folder.join(key)))
        })
        .collect();
    expected.sort_by_key(|line| line[11 + 32..].to_owned());
    let printed = bench.printed();
    assert_eq!(printed[..keys.len()], expected);
    assert_eq!(
        printed[keys.len() + 1..],
        [
            "read-only",
            "Is a directory",
            &(1000 + 777 * 40).to_string(),
            "nothing"
        ]
        .map(|line| format!("algo-1 out {line}"))
    );
    let config = bench
        .base(&record, "algo-1")
        .join("input/config/inputdataconfig.json");
    assert!(
        fs::read_to_string(config)
            .unwrap()
            .contains("\"TrainingInputMode\":\"FastFile\"")
    );
}

#[test]
fn any_part_of_a_file_can_be_read() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let bytes = contents(1, 10_000_000);
    place.put("train/big", &bytes);
    let parts = [
        (5_000_000, 100),
        (0, 10),
        (9_999_990, 10),
        (4_194_300, 8),
        (1_234_567, 200_000),
        (5_000_050, 4096),
    ];
    let reads: Vec<String> = parts
        .iter()
        .map(|(at, length)| {
            format!("dd if=$SM_CHANNEL_TRAIN/big bs={length} skip={at} count=1 iflag=skip_bytes status=none >> $SM_OUTPUT_DIR/parts")
        })
        .collect();
    let record = bench.run(&place.job(
        &bench,
        &reads.join("\n"),
        &[("train", "s3://bucket/train,mode=FastFile")],
    ));
    completed(&record, &bench);
    let read = fs::read(bench.base(&record, "algo-1").join("output/parts")).unwrap();
    let expected: Vec<u8> = parts
        .iter()
        .flat_map(|(at, length)| &bytes[*at..at + length])
        .copied()
        .collect();
    assert!(read == expected, "the parts differ");
}

#[test]
fn instances_and_channels_see_their_own() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for i in 0..10 {
        place.put(&format!("train/{i}"), i.to_string().as_bytes());
        place.put(&format!("val/{i}"), b"v");
    }
    let script = "echo $(cat $SM_CHANNEL_TRAIN/*) $(cat $SM_CHANNEL_VAL/*)";
    let mut job = place.job(
        &bench,
        script,
        &[
            (
                "train",
                "s3://bucket/train,mode=FastFile,distribution=ShardedByS3Key",
            ),
            ("val", "s3://bucket/val,mode=FastFile"),
        ],
    );
    job.instances = 2;
    completed(&bench.run(&job), &bench);
    let mut printed = bench.printed();
    printed.sort();
    assert_eq!(
        printed,
        ["algo-1 out 02468 vvvvvvvvvv", "algo-2 out 13579 vvvvvvvvvv"]
    );
}

#[test]
fn what_cannot_be_read_is_an_error_for_the_script_and_a_line_in_the_log() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", &contents(1, 1000));
    place.put("train/b", &contents(2, 1000));
    place.put("train/c", &contents(3, 1000));
    let go = bench.dir.path().join("go");
    // Between its first read and the others an object is written again and another removed.
    let script = format!(
        "cd $SM_CHANNEL_TRAIN; md5sum < a; touch $SM_OUTPUT_DIR/first\n\
         while [ ! -e {0} ]; do sleep 0.05; done\n\
         cat b 2>&1 > /dev/null | grep -o 'Input/output error'; cat c 2>&1 > /dev/null | grep -o 'Input/output error'; \
         stat -c %s b",
        go.display()
    );
    let mut job = place.job(&bench, &script, &[("train", "s3://bucket/train,mode=FastFile")]);
    job.name = Some("reader".to_owned());
    let name = bench.store.create(&job).unwrap();
    let record = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let claim = bench.store.claim(&name).unwrap();
            bench.run_again(claim)
        });
        let first = bench.store.path(&name).join("algo-1/output/first");
        until("the script has read", || first.exists());
        place.put("train/b", &contents(7, 2000));
        fs::remove_file(place.folder.join("train/c")).unwrap();
        fs::write(&go, "").unwrap();
        running.join().unwrap()
    });
    completed(&record, &bench);
    let printed = bench.printed();
    let said = |what: &str| printed.iter().any(|line| line.contains(what));
    assert!(said(&sum(&place.folder.join("train/a"))), "{printed:?}");
    assert_eq!(
        printed
            .iter()
            .filter(|line| line.ends_with("Input/output error"))
            .count(),
        2,
        "{printed:?}"
    );
    assert!(said("algo-1 out 1000"), "{printed:?}");
    assert!(
        said("stokehold err channel train: s3://bucket/train/b: it was written anew since it was listed"),
        "{printed:?}"
    );
    assert!(
        said("stokehold err channel train: s3://bucket/train/c: "),
        "{printed:?}"
    );
    let (log, _) = bench.store.log(&name, 0).unwrap();
    assert!(log.contains("channel train: s3://bucket/train/b"), "{log}");
}

#[test]
fn a_refusal_is_told_and_a_server_that_comes_back_is_waited_for() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", &contents(1, 50_000));
    place.put("train/b", &contents(2, 50_000));
    let marks = bench.dir.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let script = format!(
        "cd $SM_CHANNEL_TRAIN; mark() {{ touch {0}/$1; while [ ! -e {0}/$1.done ]; do sleep 0.05; done; }}\n\
         mark refuse; cat a 2>&1 > /dev/null | grep -o 'Input/output error'; mark gone; md5sum < b; md5sum < a",
        marks.display()
    );
    let job = place.job(&bench, &script, &[("train", "s3://bucket/train,mode=FastFile")]);
    let name = bench.store.create(&job).unwrap();
    let address = place.server.address();
    let done = |mark: &str| fs::write(marks.join(format!("{mark}.done")), "").unwrap();
    let (record, _again) = thread::scope(|scope| {
        let running = scope.spawn(|| bench.run_again(bench.store.claim(&name).unwrap()));
        until("the script asks for a refusal", || marks.join("refuse").exists());
        place.server.faults().expired.store(u64::MAX, Ordering::SeqCst);
        done("refuse");
        until("the script asks for a server that is gone", || {
            marks.join("gone").exists()
        });
        let root = place.folder.parent().unwrap().to_owned();
        drop(place);
        done("gone");
        // It begins to read from a server that is not there, most likely; both orders are right.
        thread::sleep(Duration::from_millis(200));
        let again = Server::start_at(&root, address).unwrap();
        (running.join().unwrap(), again)
    });
    let train = bench.dir.path().join("s3/bucket/train");
    completed(&record, &bench);
    let printed = bench.printed();
    let said = |what: &str| printed.iter().any(|line| line.contains(what));
    assert!(said("algo-1 out Input/output error"), "{printed:?}");
    assert!(
        said("channel train: s3://bucket/train/a: ") && said("ExpiredToken"),
        "{printed:?}"
    );
    for key in ["a", "b"] {
        assert!(said(&sum(&train.join(key))), "{printed:?}");
    }
}

#[test]
fn sequential_reads_prefetch_across_files() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for i in 0..100 {
        place.put(&format!("many/{i:03}"), &contents(i, 5000));
    }
    place.put("one/big", &contents(1, 30_000_000));
    for (channel, read, ahead) in [
        ("s3://bucket/many,mode=FastFile", "cat 000 001 002", 50),
        ("s3://bucket/one,mode=FastFile", "head -c 6000000 big", 3),
    ] {
        // The script reads a part, and waits until more has come than it can have asked for.
        let mark = bench.dir.path().join(format!("enough-{ahead}"));
        let script = format!(
            "cd $SM_CHANNEL_TRAIN; {read} > /dev/null; while [ ! -e {0} ]; do sleep 0.05; done",
            mark.display()
        );
        let before = place.requests();
        let job = place.job(&bench, &script, &[("train", channel)]);
        let name = bench.store.create(&job).unwrap();
        let record = thread::scope(|scope| {
            let running = scope.spawn(|| bench.run_again(bench.store.claim(&name).unwrap()));
            // One request for the list.
            until("it was read ahead", || place.requests() - before > ahead);
            fs::write(&mark, "").unwrap();
            running.join().unwrap()
        });
        completed(&record, &bench);
    }
}

#[test]
fn large_files_in_any_order_do_not_pay_for_their_neighbours() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for i in 0..8 {
        place.put(&format!("train/{i}"), &contents(i, 40_000_000));
    }
    let script = "cd $SM_CHANNEL_TRAIN; for i in 6 1 4; do head -c 1000000 $i | wc -c; done";
    let record = bench.run(&place.job(&bench, script, &[("train", "s3://bucket/train,mode=FastFile")]));
    completed(&record, &bench);
    // The list, and the first 4 MiB of three objects; a request may have been tried again.
    assert!(
        (4..8).contains(&place.requests()),
        "{} requests",
        place.requests()
    );
}

#[test]
fn a_process_that_got_away_keeps_no_mount_and_no_job() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _guard = Unmounted(bench.dir.path().to_owned());
    let place = Place::new(&bench);
    place.put("train/a", &contents(1, 10_000_000));
    // In a session of its own it is in no group of the job's, and keeps the file open.
    let script = "setsid sh -c 'exec 3< $SM_CHANNEL_TRAIN/a; head -c 10 <&3 > /dev/null; echo $$ > $SM_MODEL_DIR/pid; \
                  exec sleep 100' > /dev/null 2>&1 & while [ ! -s $SM_MODEL_DIR/pid ]; do sleep 0.05; done";
    let record = bench.run(&place.job(&bench, script, &[("train", "s3://bucket/train,mode=FastFile")]));
    let pid = fs::read_to_string(bench.base(&record, "algo-1").join("model/pid")).unwrap();
    let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    completed(&record, &bench);
    assert!(killed.success());
}

/// This test runs itself in another process, and kills that.
#[test]
fn the_mount_of_a_runner_that_was_killed_is_removed() {
    if let Some(root) = std::env::var_os("STOKEHOLD_TEST_MOUNT_RUNNER") {
        let store = Store::new(root.as_ref()).unwrap();
        let never = AtomicBool::new(false);
        // It may be killed at any moment, and has nothing more to say.
        let _ = run(store.claim("victim").unwrap(), &never, &|_| {});
        return;
    }
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _guard = Unmounted(bench.dir.path().to_owned());
    let place = Place::new(&bench);
    place.put("train/a", &contents(1, 1000));
    let script = "c=$SAGEMAKER_BASE_DIR/checkpoints/1; md5sum < $SM_CHANNEL_TRAIN/a; [ -e $c ] && exit 0; touch $c; \
                  while cat $SM_CHANNEL_TRAIN/a > /dev/null; do sleep 0.1; done";
    let mut job = place.job(&bench, script, &[("train", "s3://bucket/train,mode=FastFile")]);
    job.name = Some("victim".to_owned());
    bench.store.create(&job).unwrap();
    let runner = Command::new(std::env::current_exe().unwrap())
        .args(["the_mount_of_a_runner_that_was_killed", "--nocapture"])
        .env("STOKEHOLD_TEST_MOUNT_RUNNER", bench.store.root())
        .spawn();
    let mut runner = Killed(runner.unwrap());
    let checkpoint = bench.store.path("victim").join("algo-1/checkpoints/1");
    until("the script runs", || checkpoint.exists());
    assert_eq!(mounted(bench.dir.path()).len(), 1);
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    assert_eq!(
        mounted(bench.dir.path()).len(),
        1,
        "a killed runner cannot unmount"
    );
    // The next process that reads the job removes it.
    let record = bench.store.get("victim").unwrap();
    assert_eq!(record.status, Status::Failed);
    assert_eq!(mounted(bench.dir.path()), Vec::<String>::new());
    let record = bench.run_again(bench.store.resume("victim").unwrap());
    completed(&record, &bench);
}

#[test]
fn a_view_that_cannot_be_mounted_fails_its_job() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", b"a");
    let mut job = place.job(&bench, "true", &[("train", "s3://bucket/train,mode=FastFile")]);
    job.name = Some("blocked".to_owned());
    bench.store.create(&job).unwrap();
    // A file is no place for a view.
    let data = bench.store.path("blocked").join("algo-1/input/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("train"), "in the way").unwrap();
    let record = bench.run_again(bench.store.claim("blocked").unwrap());
    assert_eq!(record.status, Status::Failed);
    let reason = record.failure_reason.unwrap();
    assert!(reason.contains("algo-1/input/data/train"), "{reason}");
    assert_eq!(mounted(bench.dir.path()), Vec::<String>::new());
}
