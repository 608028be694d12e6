//! Batches by their numbers, and epochs whose batches come from elsewhere.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use stokehold_loader::{
    BadImagePolicy, Batch, Elsewhere, Loader, LoaderError, LoaderOptions, Parts, Sampler, Supply, WorkerPool,
    Workers,
};

use crate::source::{Images, content, loader, try_loader, workers};

fn pool(workers: usize) -> WorkerPool {
    WorkerPool::start(Workers::Count(NonZeroUsize::new(workers).unwrap())).unwrap()
}

type Numbered = (u64, Result<Batch, LoaderError>);

/// A supply that has the batches made in the given order, and hands them over in the epoch's.
struct Made {
    _pool: WorkerPool,
    made: Mutex<Receiver<Numbered>>,
    early: BTreeMap<u64, Result<Batch, LoaderError>>,
    left: usize,
}

fn elsewhere(loader: &Loader, epoch: u64, numbers: impl Iterator<Item = u64>) -> Made {
    let (pool, (send, made)) = (pool(3), mpsc::channel());
    let (numbered, mut left) = (loader.numbered(epoch), 0);
    for number in numbers {
        let send = send.clone();
        left += 1;
        pool.make(&numbered, number, move |batch| {
            let _ = send.send((number, batch));
        })
        .unwrap();
    }
    Made {
        _pool: pool,
        made: Mutex::new(made),
        early: BTreeMap::new(),
        left,
    }
}

impl Supply for Made {
    fn take(&mut self, batch: u64, deadline: Option<Instant>) -> Result<Option<Batch>, LoaderError> {
        loop {
            if let Some(made) = self.early.remove(&batch) {
                self.left -= 1;
                return made.map(Some);
            }
            let deadline = deadline.unwrap_or(Instant::now() + Duration::from_secs(60));
            let left = deadline.saturating_duration_since(Instant::now());
            match self.made.lock().unwrap().recv_timeout(left) {
                Ok((number, made)) => self.early.insert(number, made),
                Err(_) => return Ok(None),
            };
        }
    }

    fn in_flight(&self) -> usize {
        self.left
    }

    fn loading(&self) -> usize {
        self.left - self.early.len()
    }
}

/// Has the last batches made first, and odd ones before even ones.
#[derive(Debug)]
struct Disordered;

impl Elsewhere for Disordered {
    fn begin(&self, loader: &Loader, epoch: u64, batches: Range<u64>) -> Box<dyn Supply> {
        let mut numbers: Vec<u64> = batches.rev().collect();
        numbers.sort_by_key(|number| number % 2 == 0);
        Box::new(elsewhere(loader, epoch, numbers.into_iter()))
    }

    fn made(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Has the second batch made only.
#[derive(Debug)]
struct Second;

impl Elsewhere for Second {
    fn begin(&self, loader: &Loader, epoch: u64, _: Range<u64>) -> Box<dyn Supply> {
        Box::new(elsewhere(loader, epoch, 1..2))
    }

    fn made(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// The epochs 0 and 1 both ways, the second from its third batch on.
fn both_ways(images: impl Fn() -> Images, change: impl Fn(&mut LoaderOptions)) {
    let usual = loader(images(), &change);
    let other = loader(images(), |options| {
        change(options);
        options.elsewhere = Some(Arc::new(Disordered));
    });
    for (epoch, first) in [(0, 0), (1, 2)] {
        let mut state = usual.start_of(epoch);
        state.batch = first;
        let mut expected = usual.resume(state.clone()).unwrap();
        let mut supplied = other.resume(state).unwrap();
        loop {
            match (expected.next(), supplied.next()) {
                (None, None) => break,
                (Some(Ok(expected)), Some(Ok(made))) => {
                    assert_eq!(content(&made), content(&expected));
                    let rest = |batch: Batch| (batch.masks, batch.bad, batch.again);
                    assert_eq!(rest(made), rest(expected));
                }
                (Some(Err(expected)), Some(Err(error))) => {
                    assert_eq!(error.to_string(), expected.to_string());
                }
                (expected, made) => panic!("{expected:?} and {made:?}"),
            }
            assert_eq!(supplied.state(), expected.state());
        }
        assert_eq!(supplied.unreported(), expected.unreported());
    }
}

#[test]
fn batches_by_number_are_those_of_the_epoch() {
    both_ways(|| Images::new(41), |_| ());
    both_ways(
        || Images::new(41),
        |options| {
            options.drop_last = true;
            options.shuffle = false;
            options.rank = 1;
            options.world_size = 2;
        },
    );
    for (first, count, of) in [(0, 1, 3), (1, 2, 3)] {
        both_ways(
            || Images::new(41),
            |options| options.parts = Parts { first, count, of },
        );
    }
    both_ways(
        || Images::new(41),
        |options| options.sampler = Sampler::Repeated(3.try_into().unwrap()),
    );
}

#[test]
fn bad_images_are_reported_once_and_in_order() {
    let images = || Images {
        bad: vec![0, 3, 4, 5, 6, 7, 20, 40],
        ..Images::new(41)
    };
    for policy in [
        BadImagePolicy::Skip,
        BadImagePolicy::Substitute,
        BadImagePolicy::Error,
    ] {
        both_ways(images, |options| options.bad_images = policy);
        both_ways(images, |options| {
            (options.bad_images, options.shuffle) = (policy, false);
        });
        both_ways(images, |options| {
            (options.bad_images, options.bad_image_limit) = (policy, 3);
        });
    }
    let panics = || Images {
        panics: Some(9),
        ..Images::new(20)
    };
    both_ways(panics, |_| ());
}

#[test]
fn one_pool_serves_many_loaders_by_turns() {
    let (pool, (send, made)) = (pool(2), mpsc::channel());
    let loaders: Vec<Loader> = (0..3)
        .map(|rank| {
            loader(Images::new(30), |options| {
                (options.rank, options.world_size) = (rank, 3);
            })
        })
        .collect();
    for number in 0..3 {
        for (rank, loader) in loaders.iter().enumerate() {
            for epoch in 0..2 {
                let send = send.clone();
                let taker = move |batch: Result<Batch, LoaderError>| {
                    let _ = send.send(((rank, epoch, number), batch.unwrap()));
                };
                pool.make(&loader.numbered(epoch), number, taker).unwrap();
            }
        }
    }
    drop(send);
    let made: BTreeMap<_, _> = made.iter().collect();
    assert_eq!(made.len(), 18);
    for (rank, loader) in loaders.iter().enumerate() {
        for epoch in 0..2 {
            for (number, batch) in loader.epoch(epoch).enumerate() {
                let (batch, made) = (batch.unwrap(), &made[&(rank, epoch, number as u64)]);
                assert_eq!((&batch.samples, &batch.labels), (&made.samples, &made.labels));
                assert!(batch.pixels.numbers() == made.pixels.numbers());
            }
        }
    }
}

#[test]
fn a_number_beyond_the_epoch_is_refused_and_a_dropped_pool_ends() {
    let images = Arc::new(Images {
        latency: Duration::from_millis(5),
        ..Images::new(400)
    });
    let loader = try_loader(images.clone(), |options| options.workers = workers(1)).unwrap();
    let pool = pool(1);
    let epoch = loader.numbered(0);
    assert_eq!(epoch.batches(), 100);
    let error = pool.make(&epoch, 100, drop).unwrap_err().to_string();
    assert_eq!(error, "batch 100: the epoch has 100, counted from 0");
    let taken = Arc::new(());
    for number in 0..100 {
        let taken = Arc::clone(&taken);
        pool.make(&epoch, number, move |_| drop(taken)).unwrap();
    }
    drop(pool);
    let read = images.reads.load(Ordering::SeqCst);
    assert!(read < 400, "the pool made all batches before it ended");
    assert_eq!(
        Arc::strong_count(&taken),
        1,
        "what would have taken a batch is gone"
    );
}

#[test]
fn a_supply_may_say_not_yet() {
    let loader = loader(Images::new(8), |options| {
        options.elsewhere = Some(Arc::new(Second))
    });
    let mut batches = loader.epoch(0);
    assert!(matches!(
        batches.next_within(Duration::from_millis(20)),
        Poll::Pending
    ));
    assert_eq!((batches.state().batch, batches.in_flight()), (0, 1));
}

/// Threads are added where reads wait and batches wait for a thread, as in an epoch; the batches are the same.
#[test]
fn a_pool_adds_threads_where_reads_wait() {
    let late = Images {
        latency: Duration::from_millis(20),
        ..Images::new(300)
    };
    let (slow, usual) = (
        loader(late, |o| o.workers = Workers::Auto),
        loader(Images::new(300), |_| {}),
    );
    let pool = WorkerPool::start(Workers::Auto).unwrap();
    let cores = Workers::Auto.resolve();
    assert_eq!(pool.workers(), cores);
    let (numbered, (send, made)) = (slow.numbered(0), mpsc::channel());
    for number in 0..numbered.batches() {
        let send = send.clone();
        let taker = move |batch: Result<Batch, LoaderError>| {
            let _ = send.send((number, batch.is_ok()));
        };
        pool.make(&numbered, number, taker).unwrap();
    }
    drop(send);
    let mut numbers: Vec<(u64, bool)> = made.iter().collect();
    numbers.sort_unstable();
    assert!(numbers.iter().all(|(_, is_made)| *is_made));
    assert_eq!(numbers.len() as u64, usual.numbered(0).batches());
    assert!(cores >= 4 || pool.workers() > cores, "{} threads", pool.workers());
}
