//! Assigns samples to batches.
//!
//! An epoch's samples are those that [`crate::sampler`] chooses: by default a permutation of all samples, drawn from
//! (seed, epoch) with Fisher and Yates' shuffle. Every rank draws the same ones. Rank r of R takes the places r, r + R, r + 2R, .. of it, as PyTorch's
//! `DistributedSampler` does, so all ranks get equally many samples. If the samples do not divide evenly, the
//! order continues from its beginning (up to R - 1 samples occur twice in the epoch), or with `drop_last` the
//! rest is skipped. A rank's samples are then divided into batches.
//!
//! With [`Parts`] the whole batches are made first, and then divided: part p of P has the places p, p + P, p + 2P, ..
//! of each batch. So the samples of a whole batch do not depend on the number of parts, and a run can continue with
//! another number.
//!
//! The batches of a [given](Order::given) epoch come from outside while it runs.

use std::collections::{HashMap, VecDeque};
use std::task::Poll;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use serde::{Deserialize, Serialize};

/// The parts of every batch that a loader yields, one after the other.
///
/// Part p of P has the places p, p + P, p + 2P, .. of the whole batch. It may be empty where the last batch of an
/// epoch has fewer samples than there are parts, and where images are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The first part.
    pub first: usize,
    /// How many parts, at least 1.
    pub count: usize,
    /// Parts of a whole batch, at least `first + count`.
    pub of: usize,
}

impl Parts {
    /// The whole batch.
    pub const WHOLE: Self = Self {
        first: 0,
        count: 1,
        of: 1,
    };

    /// Whether a batch is yielded as it is.
    pub(crate) fn are_whole(self) -> bool {
        self == Self::WHOLE
    }
}

/// One epoch's order for one rank.
#[derive(Debug)]
pub(crate) enum Order {
    /// The samples are known when the epoch begins.
    Chosen(Chosen),
    /// The batches come one by one.
    Given(Given),
}

#[derive(Debug)]
pub(crate) struct Chosen {
    /// The samples; `None` if they keep their own order.
    samples: Option<Vec<usize>>,
    /// For each of them, how often it was there before; empty if every sample is there once.
    again: Vec<u32>,
    layout: Layout,
}

#[derive(Debug)]
pub(crate) struct Given {
    /// `None` once the giver has ended the epoch.
    coming: Option<Receiver<Vec<usize>>>,
    /// The batches from number `first` on that have come.
    batches: VecDeque<Vec<SampleOccurrence>>,
    first: u64,
    /// How often each sample has come.
    times: HashMap<usize, u32>,
}

/// What a place of a batch has: a sample of the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleOccurrence {
    pub sample: usize,
    /// How often the epoch had the sample before.
    pub again: u32,
}

/// How samples are divided among ranks and batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Samples of an epoch, on all ranks.
    pub samples: usize,
    pub batch_size: usize,
    pub drop_last: bool,
    pub rank: usize,
    pub world_size: usize,
    pub parts: Parts,
}

impl Layout {
    /// What is yielded in an epoch: its batches, or parts of them. The same on every rank.
    pub(crate) fn yields(&self) -> u64 {
        self.batches() * self.parts.count as u64
    }

    /// The most samples of what is yielded.
    pub(crate) fn part_size(&self) -> usize {
        self.batch_size.div_ceil(self.parts.of)
    }

    /// Batches of an epoch, the same on every rank.
    pub(crate) fn batches(&self) -> u64 {
        let batches = if self.drop_last {
            self.samples / self.world_size / self.batch_size
        } else {
            self.samples.div_ceil(self.world_size).div_ceil(self.batch_size)
        };
        batches as u64
    }

    /// Samples of one rank before they are divided into batches.
    fn samples_per_rank(&self) -> usize {
        if self.drop_last {
            self.samples / self.world_size
        } else {
            self.samples.div_ceil(self.world_size)
        }
    }
}

impl Order {
    /// The order of an epoch with these samples, as many as the layout has; `None` for 0, 1, ..
    pub(crate) fn new(layout: Layout, samples: Option<Vec<usize>>) -> Self {
        Self::Chosen(Chosen {
            again: samples.as_deref().map(before).unwrap_or_default(),
            samples,
            layout,
        })
    }

    /// An epoch with the batches that come, until the other end of the channel is dropped.
    pub(crate) fn given(coming: Receiver<Vec<usize>>) -> Self {
        Self::Given(Given {
            coming: Some(coming),
            batches: VecDeque::new(),
            first: 0,
            times: HashMap::new(),
        })
    }

    /// What is yielded in the epoch: its batches, or parts of them; of a given one, those that have come.
    pub(crate) fn yields(&self) -> u64 {
        match self {
            Self::Chosen(chosen) => chosen.layout.yields(),
            Self::Given(given) => given.first + given.batches.len() as u64,
        }
    }

    /// Whether the epoch is given batch by batch.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Given(_))
    }

    /// Whether more batches may come.
    pub(crate) fn grows(&self) -> bool {
        matches!(self, Self::Given(Given { coming: Some(_), .. }))
    }

    /// Takes in the batches that have come.
    pub(crate) fn receive(&mut self) {
        let Self::Given(given) = self else { return };
        while let Some(coming) = &given.coming {
            match coming.try_recv() {
                Ok(batch) => given.add(batch),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => given.coming = None,
            }
        }
    }

    /// Waits until another batch has come, or the end of the epoch; pending if `deadline` comes first.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Poll<()> {
        let Self::Given(given) = self else {
            return Poll::Ready(());
        };
        let Some(coming) = &given.coming else {
            return Poll::Ready(());
        };
        let received = match deadline {
            Some(deadline) => coming.recv_deadline(deadline),
            None => coming.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(batch) => given.add(batch),
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => given.coming = None,
        }
        Poll::Ready(())
    }

    /// Forgets the batches before this one, which are not asked for again.
    pub(crate) fn forget(&mut self, before: u64) {
        if let Self::Given(given) = self {
            while given.first < before && given.batches.pop_front().is_some() {
                given.first += 1;
            }
        }
    }

    /// The samples of a batch or part, `batch` below [`Order::yields`].
    pub(crate) fn batch(&self, batch: u64) -> Vec<usize> {
        self.places(batch).into_iter().map(|place| place.sample).collect()
    }

    /// The places of a batch or part, `batch` below [`Order::yields`].
    pub(crate) fn places(&self, batch: u64) -> Vec<SampleOccurrence> {
        match self {
            Self::Chosen(chosen) => chosen.places(batch),
            Self::Given(given) => given.batches[(batch - given.first) as usize].clone(),
        }
    }
}

impl Given {
    fn add(&mut self, batch: Vec<usize>) {
        let place = |sample| {
            let times = self.times.entry(sample).or_insert(0);
            *times += 1;
            SampleOccurrence {
                sample,
                again: *times - 1,
            }
        };
        self.batches.push_back(batch.into_iter().map(place).collect());
    }
}

impl Chosen {
    fn places(&self, batch: u64) -> Vec<SampleOccurrence> {
        let Layout {
            samples,
            batch_size,
            rank,
            world_size,
            parts,
            ..
        } = self.layout;
        let (whole, part) = (batch as usize / parts.count, batch as usize % parts.count);
        let first = whole * batch_size;
        let end = (first + batch_size).min(self.layout.samples_per_rank());
        (first..end)
            .skip(parts.first + part)
            .step_by(parts.of)
            .map(|place| self.place((place * world_size + rank) % samples))
            .collect()
    }

    fn place(&self, place: usize) -> SampleOccurrence {
        SampleOccurrence {
            sample: self.samples.as_ref().map_or(place, |samples| samples[place]),
            again: self.again.get(place).copied().unwrap_or(0),
        }
    }
}

/// For each place, how often its sample was there before; nothing if every sample is there once.
fn before(chosen: &[usize]) -> Vec<u32> {
    let mut times = vec![0; chosen.iter().max().map_or(0, |most| most + 1)];
    let again: Vec<u32> = chosen
        .iter()
        .map(|&sample| {
            times[sample] += 1;
            times[sample] - 1
        })
        .collect();
    match again.iter().all(|&again| again == 0) {
        true => Vec::new(),
        false => again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::tests::permutation;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Every rank's epoch, batch after batch.
    fn epochs(layout: Layout, shuffle: bool, seed: u64, epoch: u64) -> Vec<Vec<Vec<usize>>> {
        (0..layout.world_size)
            .map(|rank| {
                let chosen = shuffle.then(|| permutation(layout.samples, seed, epoch));
                let order = Order::new(Layout { rank, ..layout }, chosen);
                (0..layout.yields()).map(|batch| order.batch(batch)).collect()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn ranks_share_an_epoch_fairly(
            samples in 1usize..300, batch_size in 1usize..20, world_size in 1usize..9,
            shuffle: bool, drop_last: bool, seed: u64, epoch in 0u64..5,
        ) {
            let layout = Layout { samples, batch_size, drop_last, rank: 0, world_size, parts: Parts::WHOLE };
            let ranks = epochs(layout, shuffle, seed, epoch);
            let mut times = BTreeMap::new();
            for rank in &ranks {
                // Equal batch counts and equal batch sizes, place by place.
                prop_assert_eq!(
                    rank.iter().map(Vec::len).collect::<Vec<_>>(),
                    ranks[0].iter().map(Vec::len).collect::<Vec<_>>()
                );
                let full = rank.len().saturating_sub(usize::from(!drop_last));
                prop_assert!(rank[..full].iter().all(|batch| batch.len() == batch_size));
                prop_assert!(rank.iter().all(|batch| (1..=batch_size).contains(&batch.len())));
                for &sample in rank.iter().flatten() {
                    *times.entry(sample).or_insert(0) += 1;
                }
            }
            let total: usize = times.values().sum();
            prop_assert!(times.keys().all(|&sample| sample < samples));
            if drop_last {
                // No sample twice; less than one batch a rank, and less than one sample a rank, left out.
                prop_assert!(times.values().all(|&count| count == 1));
                prop_assert_eq!(total, samples / world_size / batch_size * batch_size * world_size);
            } else {
                // Every sample, and the padding is less than one sample a rank, spread as evenly as it goes.
                prop_assert_eq!(times.len(), samples);
                prop_assert_eq!(total, samples.div_ceil(world_size) * world_size);
                let most = *times.values().max().unwrap();
                prop_assert!(times.values().all(|&count| count + 1 >= most));
            }
        }

        #[test]
        fn parts_are_the_whole_batches(
            samples in 1usize..200, batch_size in 1usize..20, of in 1usize..9, split in 0usize..8, drop_last: bool,
        ) {
            let whole = Layout { samples, batch_size, drop_last, rank: 0, world_size: 1, parts: Parts::WHOLE };
            prop_assume!(whole.batches() > 0);
            let chosen = Some(permutation(samples, 5, 1));
            let order = Order::new(whole, chosen.clone());
            // Two loaders have all parts of a batch between them.
            let split = 1 + split % of;
            let parts = [
                Parts { first: 0, count: split, of },
                Parts { first: split, count: of - split, of },
            ];
            for batch in 0..whole.batches() {
                let mut places: Vec<Vec<usize>> = Vec::new();
                for parts in parts.into_iter().filter(|parts| parts.count > 0) {
                    let layout = Layout { parts, ..whole };
                    let of_parts = Order::new(layout, chosen.clone());
                    prop_assert_eq!(layout.yields(), whole.batches() * parts.count as u64);
                    let first = batch * parts.count as u64;
                    places.extend((first..first + parts.count as u64).map(|part| of_parts.batch(part)));
                }
                let expected = order.batch(batch);
                for (part, samples) in places.iter().enumerate() {
                    prop_assert!(samples.len() <= whole.batch_size.div_ceil(of));
                    let own: Vec<usize> = expected.iter().copied().skip(part).step_by(of).collect();
                    prop_assert_eq!(samples, &own);
                }
                prop_assert_eq!(places.concat().len(), expected.len());
            }
        }

        #[test]
        fn a_given_epoch_has_its_batches(batches in prop::collection::vec(prop::collection::vec(0usize..9, 0..6), 0..9), early in 0usize..9) {
            let (giver, coming) = crossbeam_channel::unbounded();
            let mut order = Order::given(coming);
            let early = early.min(batches.len());
            let give = |batches: &[Vec<usize>]| batches.iter().for_each(|batch| giver.send(batch.clone()).unwrap());
            give(&batches[..early]);
            order.receive();
            prop_assert_eq!((order.yields(), order.grows()), (early as u64, true));
            prop_assert_eq!(order.wait(Some(Instant::now())), Poll::Pending);
            give(&batches[early..]);
            drop(giver);
            while order.grows() {
                prop_assert_eq!(order.wait(None), Poll::Ready(()));
            }
            prop_assert_eq!(order.yields(), batches.len() as u64);
            let mut times = [0; 9];
            for (number, batch) in batches.iter().enumerate() {
                order.forget(number as u64);
                prop_assert_eq!(&order.batch(number as u64), batch);
                for place in order.places(number as u64) {
                    prop_assert_eq!(place.again, times[place.sample]);
                    times[place.sample] += 1;
                }
            }
        }

        #[test]
        fn one_rank_alone_sees_every_sample_once(samples in 1usize..500, batch_size in 1usize..40, seed: u64) {
            let layout = Layout { samples, batch_size, drop_last: false, rank: 0, world_size: 1, parts: Parts::WHOLE };
            let mut all = epochs(layout, true, seed, 3).concat().concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
        }
    }
}
