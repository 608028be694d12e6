//! Memory over many epochs, and with many workers.

use std::sync::Arc;

use stokehold_loader::{Loader, LoaderOptions};
use stokehold_pipeline::Pipeline;

use crate::source::{Images, workers};

/// Other tests of this binary take memory too, so a measurement has a process of its own.
fn in_a_process(test: &str) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// A line of this process's status, in bytes: VmRSS is what it has resident, VmHWM the most that it ever had.
fn resident(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    let kibibytes = line.trim_matches(|c: char| !c.is_ascii_digit());
    kibibytes.parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_stays_flat_over_twenty_epochs() {
    in_a_process("memory::twenty_epochs");
}

/// Twenty epochs with large batches: after the first few the process must not grow.
#[test]
#[ignore = "run by memory_stays_flat_over_twenty_epochs, alone in a process"]
fn twenty_epochs() {
    let options = LoaderOptions {
        batch_size: 16,
        workers: workers(2),
        prefetch: 4,
        ..LoaderOptions::default()
    };
    let images = Images {
        bad: (0..90).step_by(10).collect(),
        ..Images::new(90)
    };
    let loader = Loader::new(Arc::new(images), Pipeline::published(0, 160), options).unwrap();
    let batch_bytes = 16 * 3 * 160 * 160 * 4;
    let mut after = Vec::new();
    for epoch in 0..20 {
        loader.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
        after.push(resident("VmRSS:"));
    }
    let settled = after[..5].iter().max().unwrap();
    let last = after[15..].iter().min().unwrap();
    // An epoch is 6 batches of 4.9 MB; one kept in each of 15 epochs would be 74 MB.
    assert!(
        *last < settled + 3 * batch_bytes,
        "resident bytes after each epoch: {after:?}"
    );
    // And what is held is the prefetch and the consumer's batch, next to a program of some MB.
    assert!(
        *last < 5 * batch_bytes + (24 << 20),
        "resident bytes after each epoch: {after:?}"
    );
}

#[test]
fn eight_workers_need_two_batches() {
    in_a_process("memory::eight_workers");
}

/// 64 images of 224x224 are 38.5 MB. Two batches of them in work keep eight workers busy, and a third is in the
/// consumer's hand for a moment.
#[test]
#[ignore = "run by eight_workers_need_two_batches, alone in a process"]
fn eight_workers() {
    let options = LoaderOptions {
        batch_size: 64,
        workers: workers(8),
        ..LoaderOptions::default()
    };
    let loader = Loader::new(Arc::new(Images::new(640)), Pipeline::published(0, 224), options).unwrap();
    assert_eq!(loader.prefetch(), 2);
    for epoch in 0..2 {
        loader.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
    }
    let (peak, batch_bytes) = (resident("VmHWM:"), 64 * 3 * 224 * 224 * 4);
    // Next to the three, a program of some MB, and what eight threads' allocators hold: not yet a batch more.
    assert!(peak < 4 * batch_bytes + (24 << 20), "{peak} bytes at most");
}
