//! How far ahead the workers are, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use stokehold_loader::{BadImagePolicy, LoaderError, Stage};
use stokehold_storage::{SampleBytes, Source, StorageError};

use crate::source::{Images, content, contents, loader, try_loader, workers};

/// Threads of this process whose name begins with "loader-".
#[cfg(target_os = "linux")]
fn loader_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("loader-")).count()
}

#[test]
fn no_more_than_prefetch_batches_are_ahead() {
    // 0 stands for 2, or for enough places: 9 workers at 4 images a batch need 3 batches, and one to be finished.
    for (count, prefetch, ahead) in [(4, 3, 3), (1, 2, 2), (5, 1, 1), (2, 0, 2), (9, 0, 4)] {
        let images = Arc::new(Images::new(80));
        let loader = try_loader(images.clone(), |o| {
            o.workers = workers(count);
            o.prefetch = prefetch;
        })
        .unwrap();
        assert_eq!(loader.prefetch(), ahead);
        let mut batches = loader.epoch(0);
        for taken in 0..4 {
            // All that may be read is read soon; what may not is not read later either.
            let allowed = (taken + ahead) * 4;
            images.wait_for_reads(allowed);
            thread::sleep(Duration::from_millis(30));
            assert_eq!(images.reads.load(Ordering::SeqCst), allowed);
            batches.next().unwrap().unwrap();
        }
    }
}

#[test]
fn a_source_is_told_of_as_many_samples_as_it_reaches() {
    let announced = |options_size, given: Option<usize>| {
        let images = Arc::new(Images {
            reach: 10,
            ..Images::new(400)
        });
        let loader = try_loader(images.clone(), |o| {
            o.shuffle = false;
            o.batch_size = options_size;
            o.prefetch = 2;
        })
        .unwrap();
        let (give, coming) = crossbeam_channel::unbounded();
        for first in (0..400).step_by(given.unwrap_or(400)) {
            give.send((first..first + given.unwrap_or(400)).collect())
                .unwrap();
        }
        drop(give);
        let mut batches = match given {
            Some(_) => loader.given(0, 0, coming).unwrap(),
            None => loader.epoch(0),
        };
        let begun = images.expected.lock().unwrap().len();
        batches.next().unwrap().unwrap();
        let then = images.expected.lock().unwrap().clone();
        assert_eq!(then, (0..then.len()).collect::<Vec<_>>());
        (begun, then.len())
    };
    // Two batches are open, and whole batches of at least 10 samples are announced after them.
    assert_eq!(announced(4, None), (20, 24));
    assert_eq!(announced(16, None), (48, 64));
    // Batches that are given have sizes of their own.
    assert_eq!(announced(1, Some(8)), (32, 40));
    assert_eq!(announced(50, Some(1)), (12, 13));
}

#[test]
fn a_panic_while_an_image_is_made_is_that_images_fault() {
    for workers in [1, 2, 5].map(workers) {
        let images = Images {
            panics: Some(9),
            ..Images::new(20)
        };
        let skips = loader(images, |o| {
            o.shuffle = false;
            o.workers = workers;
        });
        let good = loader(Images::new(20), |o| o.shuffle = false);
        for epoch in 0..2 {
            let (mut batches, mut whole) = (skips.epoch(epoch), good.epoch(epoch));
            for first in [0, 4, 8, 12, 16] {
                let (batch, whole) = (batches.next().unwrap().unwrap(), whole.next().unwrap().unwrap());
                if first != 8 {
                    // The worker continues as if nothing had been.
                    assert!(content(&batch) == content(&whole), "{first}");
                    continue;
                }
                assert_eq!(batch.samples, [8, 10, 11]);
                if epoch == 0 {
                    assert_eq!(
                        (batch.bad[0].sample, batch.bad[0].name.as_str()),
                        (9, "images/9.png")
                    );
                    let reason = &batch.bad[0].reason;
                    assert!(reason.starts_with("sample 9 panics (a panic"), "{reason}");
                }
            }
            assert!(batches.next().is_none());
        }
        assert_eq!(skips.bad_images().len(), 1);
    }
}

#[test]
fn a_panic_ends_the_epoch_where_bad_images_do() {
    let images = Images {
        panics: Some(9),
        ..Images::new(20)
    };
    let loader = loader(images, |o| {
        o.shuffle = false;
        o.bad_images = BadImagePolicy::Error;
    });
    let error = loader.epoch(0).find_map(Result::err).unwrap();
    assert!(
        matches!(&error, LoaderError::BadImage(bad) if bad.sample == 9),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("images/9.png: sample 9 panics"),
        "{error}"
    );
}

#[test]
fn a_panic_while_a_batch_is_put_together_is_an_error_too() {
    let images = Images {
        panics_late: Some((5, AtomicBool::new(false))),
        ..Images::new(20)
    };
    let loader = loader(images, |o| o.shuffle = false);
    let mut batches = loader.epoch(0);
    assert_eq!(batches.next().unwrap().unwrap().samples, [0, 1, 2, 3]);
    let error = batches.next().unwrap().unwrap_err();
    assert!(
        matches!(&error, LoaderError::WorkerPanicked { message } if message == "the class of 5 panics"),
        "{error}"
    );
}

/// After a slow read the source hears a batch ahead what will be read.
#[test]
fn slow_sources_hear_what_is_read_next() {
    let images = Arc::new(Images {
        latency: Duration::from_millis(2),
        ..Images::new(30)
    });
    let loader = try_loader(images.clone(), |o| o.workers = workers(1)).unwrap();
    let samples: Vec<usize> = loader
        .epoch(0)
        .flat_map(|batch| batch.unwrap().samples)
        .map(|sample| sample as usize)
        .collect();
    // All but the first batch, and the place of the second batch that the first read of all would have spoken for.
    assert_eq!(*images.expected.lock().unwrap(), samples[5..]);
}

/// One worker takes long over the first image of a batch, until every other is begun: the others finish the batch's rest and continue
/// to the next.
#[test]
fn a_slow_image_holds_up_nothing_but_itself() {
    let images = Images {
        last: Some(0),
        ..Images::new(12)
    };
    let loader = loader(images, |o| {
        o.shuffle = false;
        o.workers = workers(3);
        o.prefetch = 3;
    });
    let samples: Vec<u64> = loader.epoch(0).flat_map(|batch| batch.unwrap().samples).collect();
    assert_eq!(samples, (0..12).collect::<Vec<u64>>());
}

/// The reported one of several failures does not depend on which thread met it first.
#[test]
fn the_first_failure_of_a_batch_is_its_error() {
    for count in [1, 2, 8] {
        let images = Images {
            bad: vec![2, 3, 5, 6],
            panics: Some(7),
            slow: Some((2, Duration::from_millis(20))),
            ..Images::new(8)
        };
        let loader = loader(images, |o| {
            o.batch_size = 8;
            o.shuffle = false;
            o.bad_images = BadImagePolicy::Error;
            o.workers = workers(count);
        });
        let error = loader.epoch(0).next().unwrap().unwrap_err();
        assert!(
            matches!(&error, LoaderError::BadImage(bad) if bad.sample == 2),
            "{count} workers: {error}"
        );
    }
}

#[test]
fn dropping_in_the_middle_of_a_batch_does_not_finish_it() {
    let images = Arc::new(Images {
        latency: Duration::from_millis(20),
        ..Images::new(4000)
    });
    // All images are one batch, which is begun and not finished.
    let loader = try_loader(images.clone(), |o| {
        o.batch_size = 4000;
        o.workers = workers(4);
    })
    .unwrap();
    let batches = loader.epoch(0);
    images.wait_for_reads(1);
    drop(batches);
    let read = images.reads.load(Ordering::SeqCst);
    assert!(read < 4000, "{read} images were read");
}

#[cfg(target_os = "linux")]
#[test]
fn threads_end_with_their_epoch() {
    // Other tests of this process have loader threads too; theirs come and go, so wait for a quiet moment.
    let quiet = || {
        let start = Instant::now();
        while loader_threads() > 0 {
            if start.elapsed() > Duration::from_secs(60) {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    };
    let loader = loader(Images::new(40), |o| o.workers = workers(3));
    let mut kept = Vec::new();
    for epoch in 0..5 {
        let mut batches = loader.epoch(epoch);
        batches.by_ref().for_each(|batch| drop(batch.unwrap()));
        kept.push(batches);
    }
    assert!(
        quiet(),
        "{} threads are left of finished epochs",
        loader_threads()
    );
}

#[test]
fn every_stage_is_timed() {
    let images = Images {
        latency: Duration::from_millis(3),
        ..Images::new(8)
    };
    let loader = loader(images, |_| {});
    for batch in loader.epoch(0) {
        let batch = batch.unwrap();
        let of = |stage| {
            batch
                .spans
                .iter()
                .filter(|span| span.stage == stage)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Stage::Read).len(), 4);
        assert_eq!(of(Stage::Decode).len(), 4);
        assert_eq!(of(Stage::Augment).len(), 4);
        assert!(
            of(Stage::Read)
                .iter()
                .all(|span| span.duration >= Duration::from_millis(3))
        );
        let [whole] = of(Stage::Batch)[..] else {
            panic!("one span for the batch")
        };
        assert!(batch.spans.iter().all(|span| {
            span.start >= whole.start && span.start + span.duration <= whole.start + whole.duration
        }));
    }
}

/// A source whose reads wait until it is opened.
struct Gated {
    images: Images,
    open: AtomicBool,
}

impl Source for Gated {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.images.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.images.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        while !self.open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        self.images.read(sample, into)
    }
}

#[test]
fn polling_changes_no_batch() {
    let gated = Arc::new(Gated {
        images: Images::new(22),
        open: AtomicBool::new(false),
    });
    let patient = try_loader(gated.clone(), |_| {}).unwrap();
    let mut batches = patient.epoch(1);
    for _ in 0..3 {
        assert!(batches.next_within(Duration::ZERO).is_pending());
    }
    assert_eq!(batches.state().batch, 0);
    gated.open.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let mut seen = Vec::new();
    loop {
        assert!(start.elapsed() < Duration::from_secs(60), "no batch comes");
        match batches.next_within(Duration::from_millis(1)) {
            Poll::Pending => {}
            Poll::Ready(Some(batch)) => seen.push(content(&batch.unwrap())),
            Poll::Ready(None) => break,
        }
    }
    assert_eq!(seen, contents(loader(Images::new(22), |_| {}).epoch(1)));
    assert!(batches.next_within(Duration::ZERO).is_ready());
}
