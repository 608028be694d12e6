//! Assigns samples to batches.
//!
//! An epoch's samples are those that [`crate::sampler`] chooses: by default a permutation of all samples, drawn from
//! (seed, epoch) with Fisher and Yates' shuffle. Every rank draws the same ones. Rank r of R takes the places r, r + R, r + 2R, .. of it, as PyTorch's
//! `DistributedSampler` does, so all ranks get equally many samples. If the samples do not divide evenly, the
//! order continues from its beginning (up to R - 1 samples occur twice in the epoch), or with `drop_last` the
//! rest is skipped. A rank's samples are then divided into batches.

/// One epoch's order for one rank.
#[derive(Debug)]
pub(crate) struct Order {
    /// The samples; `None` if they keep their own order.
    chosen: Option<Vec<usize>>,
    /// For each of them, how often it was there before; empty if every sample is there once.
    again: Vec<u32>,
    layout: Layout,
}

/// A place of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
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
}

impl Layout {
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
    pub(crate) fn new(layout: Layout, chosen: Option<Vec<usize>>) -> Self {
        Self {
            again: chosen.as_deref().map(before).unwrap_or_default(),
            chosen,
            layout,
        }
    }

    /// The samples of a batch, `batch` below [`Layout::batches`].
    pub(crate) fn batch(&self, batch: u64) -> Vec<usize> {
        self.places(batch).into_iter().map(|place| place.sample).collect()
    }

    /// The places of a batch, `batch` below [`Layout::batches`].
    pub(crate) fn places(&self, batch: u64) -> Vec<Place> {
        let Layout {
            samples,
            batch_size,
            rank,
            world_size,
            ..
        } = self.layout;
        let first = batch as usize * batch_size;
        let end = (first + batch_size).min(self.layout.samples_per_rank());
        (first..end)
            .map(|place| {
                let place = (place * world_size + rank) % samples;
                Place {
                    sample: self.chosen.as_ref().map_or(place, |chosen| chosen[place]),
                    again: self.again.get(place).copied().unwrap_or(0),
                }
            })
            .collect()
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
                (0..layout.batches()).map(|batch| order.batch(batch)).collect()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn ranks_share_an_epoch_fairly(
            samples in 1usize..300, batch_size in 1usize..20, world_size in 1usize..9,
            shuffle: bool, drop_last: bool, seed: u64, epoch in 0u64..5,
        ) {
            let layout = Layout { samples, batch_size, drop_last, rank: 0, world_size };
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
        fn one_rank_alone_sees_every_sample_once(samples in 1usize..500, batch_size in 1usize..40, seed: u64) {
            let layout = Layout { samples, batch_size, drop_last: false, rank: 0, world_size: 1 };
            let mut all = epochs(layout, true, seed, 3).concat().concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
        }
    }
}
