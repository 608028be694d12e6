//! Which batches come, whatever the threads do.

use std::time::Duration;

use proptest::prelude::*;
use stokehold_loader::{BadImagePolicy, Batch, Parts, State};
use stokehold_pipeline::SampleType;

use crate::source::{Images, content, contents, loader, workers};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn workers_and_prefetch_change_nothing(
        len in 1usize..40, batch_size in 1usize..9, count in 2usize..17, prefetch in 0usize..7,
        seed: u64, epoch in 0u64..4, shuffle: bool,
    ) {
        let epoch_of = |count, prefetch| {
            let loader = loader(Images::new(len), |o| {
                o.batch_size = batch_size;
                o.workers = workers(count);
                o.prefetch = prefetch;
                o.seed = seed;
                o.shuffle = shuffle;
            });
            assert_eq!(loader.batches_per_epoch(), len.div_ceil(batch_size));
            contents(loader.epoch(epoch))
        };
        let one = epoch_of(1, 1);
        let mut samples: Vec<u64> = one.iter().flat_map(|batch| batch.0.clone()).collect();
        prop_assert!(shuffle || samples.is_sorted());
        samples.sort_unstable();
        prop_assert_eq!(samples, (0..len as u64).collect::<Vec<_>>());
        prop_assert_eq!(one, epoch_of(count, prefetch));
    }

    /// What is given comes, whenever it is given, and what an ordinary epoch has is that epoch.
    #[test]
    fn given_batches_are_yielded_as_they_are(
        len in 1usize..40, batch_size in 1usize..9, count in 1usize..9, seed: u64, epoch: u64, first in 0u64..5, early in 0usize..9,
    ) {
        let loader = loader(Images::new(len), |o| {
            o.batch_size = batch_size;
            o.workers = workers(count);
            o.seed = seed;
        });
        let given = |batches: &[Vec<usize>], first| {
            let (giver, coming) = crossbeam_channel::unbounded();
            batches.iter().for_each(|batch| giver.send(batch.clone()).unwrap());
            (giver, loader.given(epoch, first, coming).unwrap())
        };
        let order = loader.order(epoch);
        let batches: Vec<Vec<usize>> = order.chunks(batch_size).map(<[usize]>::to_vec).collect();
        let first = first.min(batches.len() as u64);
        let expected = contents(loader.epoch(epoch));
        let (giver, yielded) = given(&batches, first);
        drop(giver);
        prop_assert_eq!(&contents(yielded)[..], &expected[first as usize..]);
        // Uneven ones, samples twice, and larger ones than the options say; some of them given when all before were taken.
        let uneven: Vec<Vec<usize>> = (0..7).map(|n| order.iter().copied().take(n % (2 * batch_size)).collect()).collect();
        let early = early.min(uneven.len());
        let (giver, mut yielded) = given(&uneven[..early], 0);
        let mut giver = Some(giver);
        for (number, expected) in uneven.iter().enumerate() {
            if number >= early {
                prop_assert!(yielded.next_within(Duration::ZERO).is_pending());
                giver.as_ref().unwrap().send(expected.clone()).unwrap();
            }
            let batch = yielded.next().unwrap().unwrap();
            let samples: Vec<usize> = batch.samples.iter().map(|&sample| sample as usize).collect();
            prop_assert_eq!(&samples, expected);
            prop_assert_eq!(yielded.state().batch, number as u64 + 1);
        }
        prop_assert!(yielded.next_within(Duration::ZERO).is_pending());
        giver.take();
        prop_assert!(yielded.next().is_none());
        let (giver, mut refused) = given(&[vec![0], vec![len]], 0);
        prop_assert!(refused.next().unwrap().is_err());
        prop_assert!(refused.next().is_none());
        drop(refused);
        prop_assert!(giver.send(vec![0]).is_err());
    }

    /// Bad images anywhere, by every policy, in every type: the same batches, the same reports and the same error.
    #[test]
    fn workers_change_nothing_about_bad_images(
        len in 1usize..40, batch_size in 1usize..9, count in 2usize..9, prefetch in 0usize..4, seed: u64,
        bad in prop::collection::btree_set(0usize..40, 0..12), limit in 0usize..12,
        policy in prop::sample::select(vec![BadImagePolicy::Error, BadImagePolicy::Skip, BadImagePolicy::Substitute]),
        sample_type in prop::sample::select(vec![SampleType::F32, SampleType::F16, SampleType::Bf16]),
    ) {
        let epochs_of = |count, prefetch| {
            let images = Images { bad: bad.iter().copied().collect(), ..Images::new(len) };
            let loader = loader(images, |o| {
                o.batch_size = batch_size;
                o.workers = workers(count);
                o.prefetch = prefetch;
                o.seed = seed;
                o.bad_images = policy;
                o.bad_image_limit = limit;
                o.sample_type = sample_type;
            });
            let told = |batch: Batch| {
                assert_eq!(batch.pixels.numbers().unwrap().sample_type(), sample_type);
                (content(&batch), batch.bad)
            };
            let epochs: Vec<_> = (0..2)
                .map(|epoch| {
                    let batches = loader.epoch(epoch).map(|batch| batch.map(told).map_err(|error| error.to_string()));
                    batches.collect::<Vec<_>>()
                })
                .collect();
            (epochs, loader.bad_images())
        };
        prop_assert_eq!(epochs_of(1, 1), epochs_of(count, prefetch));
    }

    #[test]
    fn resume_at_any_batch_gives_the_remainder(
        len in 1usize..40, batch_size in 1usize..9, seed: u64, epoch in 0u64..4, drop_last: bool, taken in 0usize..12,
        counts in prop::array::uniform3(1usize..9),
    ) {
        prop_assume!(!drop_last || len >= batch_size);
        let make = |count| loader(Images::new(len), |o| {
            o.batch_size = batch_size;
            o.workers = workers(count);
            o.seed = seed;
            o.drop_last = drop_last;
        });
        let whole = contents(make(counts[0]).epoch(epoch));
        let taken = taken.min(whole.len());
        let mut before = make(counts[1]).epoch(epoch);
        let mut joined = contents(before.by_ref().take(taken));
        let saved = serde_json::to_string(&before.state()).unwrap();
        drop(before);
        let state: State = serde_json::from_str(&saved).unwrap();
        prop_assert_eq!(state.batch, taken as u64);
        joined.extend(contents(make(counts[2]).resume(state).unwrap()));
        prop_assert_eq!(joined, whole);
    }

    /// Ranks have the parts of the same batches, and others of another number of ranks continue where they stopped.
    #[test]
    fn parts_are_the_batches_also_after_a_resume_with_others(
        len in 1usize..40, size in 5usize..9, seed: u64, taken in 0usize..9,
        bad in prop::collection::btree_set(0usize..40, 0..6), ranks in prop::array::uniform2(1usize..4),
    ) {
        let make = |parts| loader(Images { bad: bad.iter().copied().collect(), ..Images::new(len) }, |o| {
            o.batch_size = size;
            o.seed = seed;
            o.parts = parts;
        });
        // Every sample with its image, by batch; within a batch in the order of their numbers.
        let of_batch = |batches: &[Batch]| {
            let mut samples: Vec<_> = batches.iter().flat_map(|batch| {
                let images = batch.pixels.clone().into_f32().unwrap();
                assert_eq!(batch.shape[0], batch.samples.len());
                let image = images.len() / batch.samples.len().max(1);
                let image = |place: usize| images[place * image..][..image].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                batch.samples.iter().enumerate().map(|(place, &sample)| (sample, image(place))).collect::<Vec<_>>()
            }).collect();
            samples.sort();
            samples
        };
        let batches = len.div_ceil(size);
        // Each rank's own batches are in two parts.
        let of_ranks = |ranks: usize, from: u64, to: u64| {
            let mut whole = vec![Vec::new(); (to - from) as usize];
            for rank in 0..ranks {
                let parts = match 2 * ranks <= size {
                    true => Parts { first: 2 * rank, count: 2, of: 2 * ranks },
                    false => Parts { first: rank, count: 1, of: ranks },
                };
                let loader = make(parts);
                let mut state = loader.start_of(1);
                state.batch = from;
                let mut coming = loader.resume(state).unwrap();
                for (place, batch) in whole.iter_mut().enumerate() {
                    for part in 0..parts.count {
                        assert_eq!(coming.state().batch, from + place as u64, "in part {part}");
                        batch.push(coming.next().unwrap().unwrap());
                    }
                }
                assert_eq!(coming.state().batch, to);
                if to == batches as u64 {
                    assert!(coming.next().is_none());
                }
            }
            whole.iter().map(|batches| of_batch(batches)).collect::<Vec<_>>()
        };
        prop_assume!(bad.range(..len).count() < len);
        let expected = of_ranks(1, 0, batches as u64);
        let plain: Vec<_> = make(Parts::WHOLE).epoch(1).map(|batch| of_batch(&[batch.unwrap()])).collect();
        let full: Vec<_> = expected.iter().filter(|batch| !batch.is_empty()).cloned().collect();
        prop_assert_eq!(full, plain);
        let middle = taken.min(batches) as u64;
        let mut joined = of_ranks(ranks[0], 0, middle);
        joined.extend(of_ranks(ranks[1], middle, batches as u64));
        prop_assert_eq!(joined, expected);
    }
}

#[test]
fn ranks_cover_the_epoch_together() {
    let of_rank = |rank| {
        let loader = loader(Images::new(23), |o| (o.rank, o.world_size) = (rank, 3));
        assert_eq!(loader.batches_per_epoch(), 2);
        contents(loader.epoch(1))
            .iter()
            .flat_map(|batch| batch.0.clone())
            .collect::<Vec<_>>()
    };
    let mut all: Vec<u64> = (0..3).flat_map(of_rank).collect();
    assert_eq!(all.len(), 24);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..23).collect::<Vec<_>>());
}

#[test]
fn images_differ_between_epochs_and_not_between_runs() {
    let of = |epoch| contents(loader(Images::new(8), |o| o.shuffle = false).epoch(epoch));
    assert_eq!(of(0), of(0));
    let (first, second) = (of(0), of(1));
    assert_eq!(first[0].0, second[0].0, "the same samples in the same order");
    assert_ne!(first[0].3, second[0].3, "but other crops of them");
}

#[test]
fn a_state_of_other_data_or_options_is_refused() {
    let state = loader(Images::new(20), |_| {}).epoch(3).state();
    let refused = |loader: stokehold_loader::Loader, state: &State| match loader.resume(state.clone()) {
        Ok(_) => panic!("resumed"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        refused(loader(Images::new(21), |_| {}), &state),
        "cannot resume: number of images was 20 when the state was saved and is 21 now"
    );
    assert!(
        refused(
            loader(
                Images {
                    classes: 4,
                    ..Images::new(20)
                },
                |_| {}
            ),
            &state
        )
        .contains("classes of the")
    );
    assert!(refused(loader(Images::new(20), |o| o.seed = 1), &state).contains("seed was 0"));
    assert!(refused(loader(Images::new(20), |o| o.batch_size = 5), &state).contains("batch size was 4"));
    assert!(refused(loader(Images::new(20), |o| o.world_size = 2), &state).contains("world size was 1"));
    assert!(refused(loader(Images::new(20), |o| o.shuffle = false), &state).contains("shuffling was true"));
    assert!(refused(loader(Images::new(20), |o| o.drop_last = true), &state).contains("drop-last was false"));
    let beyond = State {
        batch: 6,
        ..state.clone()
    };
    assert!(refused(loader(Images::new(20), |_| {}), &beyond).contains("is at most 5 now"));
    // Another number of workers or another rank is the same position.
    assert!(
        loader(Images::new(20), |o| o.workers = workers(1))
            .resume(state)
            .is_ok()
    );
}
