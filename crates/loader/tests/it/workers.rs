//! The number of workers, where the loader chooses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stokehold_loader::{Loader, Workers};

use crate::source::{Content, Images, content, loader, try_loader, workers};

fn late(len: usize) -> Images {
    Images {
        latency: Duration::from_millis(20),
        ..Images::new(len)
    }
}

fn epoch(loader: &Loader, epoch: u64) -> Vec<Content> {
    loader
        .epoch(epoch)
        .map(|batch| content(&batch.unwrap()))
        .collect()
}

#[test]
fn auto_adds_workers_where_reads_wait_and_changes_no_batch() {
    let cores = Workers::Auto.resolve();
    let auto = loader(late(300), |o| o.workers = Workers::Auto);
    assert_eq!(auto.workers(), cores);
    assert!(
        auto.workers_why()
            .unwrap()
            .starts_with("one for each of the cores")
    );
    let fixed = loader(Images::new(300), |o| o.workers = workers(3));
    assert_eq!(epoch(&auto, 0), epoch(&fixed, 0));
    // A read takes hundreds of times as long as making an image of 8x8, where the compiler has optimised that.
    let most = match cfg!(debug_assertions) {
        true => auto.workers(),
        false => cores.max(128),
    };
    assert!(auto.workers() == most && (most > cores || cores >= 128));
    assert_eq!(auto.prefetch(), 1 + most.div_ceil(4));
    let why = auto.workers_why().unwrap();
    assert!(cores >= 128 || why.starts_with("a read waits 2"), "{why}");
    let costs = auto.costs();
    assert_eq!(costs.images, 300);
    assert!((0.02..0.2).contains(&costs.wait_seconds().unwrap()), "{costs:?}");
    assert!(costs.cpu_seconds().unwrap() < 0.01, "{costs:?}");
    // The next epoch begins with them, and a resume in its middle yields its rest.
    let whole = epoch(&auto, 1);
    assert_eq!(whole, epoch(&fixed, 1));
    let mut batches = auto.epoch(1);
    batches.by_ref().take(7).for_each(|batch| drop(batch.unwrap()));
    let state = batches.state();
    drop(batches);
    let again = loader(late(300), |o| o.workers = Workers::Auto);
    let rest: Vec<Content> = again
        .resume(state)
        .unwrap()
        .map(|batch| content(&batch.unwrap()))
        .collect();
    assert_eq!(rest, whole[7..]);
}

/// Files in memory, on cores that other programs use too: a read that computes waits for a core, and more workers would not help.
#[test]
#[cfg(target_os = "linux")]
fn a_wait_for_a_core_adds_no_worker() {
    let cores = Workers::Auto.resolve();
    let auto = loader(
        Images {
            work: 1_000_000,
            ..Images::new(60)
        },
        |o| o.workers = Workers::Auto,
    );
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 * cores {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        epoch(&auto, 0);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(auto.workers(), cores, "{:?}", auto.costs());
}

#[test]
fn a_number_stays_what_it_is() {
    let fixed = loader(late(24), |o| o.workers = workers(2));
    epoch(&fixed, 0);
    assert_eq!((fixed.workers(), fixed.prefetch()), (2, 2));
    assert_eq!(fixed.workers_why(), None);
}

/// However many workers there are, no more than `prefetch` batches are in work or ready.
#[test]
fn memory_stays_bounded_while_workers_are_added() {
    for prefetch in [0, 2] {
        let images = Arc::new(late(200));
        let auto = try_loader(images.clone(), |o| {
            o.workers = Workers::Auto;
            o.prefetch = prefetch;
        })
        .unwrap();
        let mut taken = 0;
        for batch in auto.epoch(0) {
            batch.unwrap();
            taken += 1;
            let read = images.reads.load(Ordering::SeqCst);
            let allowed = 4 * (taken + auto.prefetch());
            assert!(read <= allowed, "{read} reads, {allowed} allowed");
            assert!(prefetch == 0 || auto.prefetch() == 2);
        }
        assert_eq!(taken, 50);
    }
}
