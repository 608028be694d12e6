//! Memory over many epochs.

/// Other tests of this binary take memory too, so the measurement has a process of its own.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_flat_over_twenty_epochs() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::alone", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// Twenty epochs with large batches: after the first few the process must not grow.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by memory_stays_flat_over_twenty_epochs, alone in a process"]
fn alone() {
    use crate::source::{Images, workers};
    use std::sync::Arc;
    use stokehold_loader::{Loader, LoaderOptions};
    use stokehold_pipeline::Pipeline;

    /// Resident bytes of this process.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

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
        after.push(resident());
    }
    let settled = after[..5].iter().max().unwrap();
    let last = after[15..].iter().min().unwrap();
    // An epoch is 6 batches of 4.9 MB; one kept in each of 15 epochs would be 74 MB.
    assert!(
        *last < settled + 3 * batch_bytes,
        "resident bytes after each epoch: {after:?}"
    );
    // And what is held is the prefetch, not the epochs: four batches in work or ready, and the allocator's slack.
    assert!(
        *last < 64 * batch_bytes / 2,
        "resident bytes after each epoch: {after:?}"
    );
}
