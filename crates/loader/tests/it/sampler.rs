//! Which samples come, and that they come again after a resume.

use std::process::Command;

use proptest::prelude::*;
use stokehold_loader::{BadImagePolicy, Sampler, State};
use stokehold_untested::needs;

use crate::source::{Images, contents, loader, workers};

/// One of each kind, for `len` samples.
fn sampler(way: usize, len: usize) -> Sampler {
    match way {
        0 => Sampler::Every,
        1 => Sampler::Subset((0..len).filter(|sample| sample % 2 == 0).collect()),
        2 => Sampler::Repeated(3.try_into().unwrap()),
        3 | 4 => Sampler::Weighted {
            weights: (0..len).map(|sample| sample as f64 + 0.5).collect(),
            replacement: way == 3,
        },
        _ => Sampler::ClassBalanced {
            replacement: way == 5,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn resume_at_any_batch_gives_the_remainder_with_every_sampler(
        len in 1usize..30, batch_size in 1usize..9, seed: u64, epoch in 0u64..4, way in 0usize..7, taken in 0usize..12,
        counts in prop::array::uniform3(1usize..9), bad in prop::collection::btree_set(0usize..30, 0..4),
    ) {
        let make = |count| {
            let images = Images { bad: bad.iter().copied().filter(|&sample| sample > 2).collect(), ..Images::new(len) };
            loader(images, |o| {
                o.batch_size = batch_size;
                o.workers = workers(count);
                o.seed = seed;
                o.sampler = sampler(way, len);
                o.bad_images = BadImagePolicy::Substitute;
            })
        };
        let one = make(counts[0]);
        let whole: Vec<_> = one.epoch(epoch).collect();
        // A class whose only image in the subset is bad has no substitute; that is not what is tested here.
        prop_assume!(whole.iter().all(Result::is_ok));
        let whole = contents(whole.into_iter());
        let taken = taken.min(whole.len());
        let mut before = make(counts[1]).epoch(epoch);
        let mut joined = contents(before.by_ref().take(taken));
        let saved = serde_json::to_string(&before.state()).unwrap();
        drop(before);
        let state: State = serde_json::from_str(&saved).unwrap();
        joined.extend(contents(make(counts[2]).resume(state).unwrap()));
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn ranks_divide_what_was_chosen(len in 1usize..40, world_size in 1usize..5, way in 0usize..7, seed: u64) {
        let order = |rank, world_size| {
            loader(Images::new(len), |o| {
                (o.rank, o.world_size, o.seed) = (rank, world_size, seed);
                o.sampler = sampler(way, len);
            })
            .order(2)
        };
        let whole = order(0, 1);
        let ranks: Vec<_> = (0..world_size).map(|rank| order(rank, world_size)).collect();
        for (place, sample) in whole.iter().enumerate() {
            prop_assert_eq!(ranks[place % world_size][place / world_size], *sample);
        }
    }
}

#[test]
fn a_repeated_sample_is_another_crop_each_time() {
    let repeated = loader(Images::new(2), |o| {
        o.sampler = Sampler::Repeated(3.try_into().unwrap());
        o.epoch_samples = Some(6);
        o.batch_size = 1;
    });
    let batches = contents(repeated.epoch(0));
    let samples: Vec<u64> = batches.iter().map(|batch| batch.0[0]).collect();
    assert!(
        samples == [0, 0, 0, 1, 1, 1] || samples == [1, 1, 1, 0, 0, 0],
        "{samples:?}"
    );
    for row in batches.chunks(3) {
        assert!(row[0].3 != row[1].3 && row[0].3 != row[2].3 && row[1].3 != row[2].3);
    }
    // The first time is that of an epoch that has every sample once.
    let once = contents(loader(Images::new(2), |o| o.batch_size = 1).epoch(0));
    let of = |sample: u64| once.iter().find(|batch| batch.0[0] == sample).unwrap();
    assert_eq!(&batches[0], of(samples[0]));
}

#[test]
fn a_substitute_is_one_of_the_subset() {
    // Samples 0, 3, 6, .. have class 0.
    let images = Images {
        bad: vec![0],
        ..Images::new(30)
    };
    let subset = loader(images, |o| {
        o.sampler = Sampler::Subset([0, 1, 2, 9].into());
        o.bad_images = BadImagePolicy::Substitute;
    });
    for epoch in 0..5 {
        let mut samples = contents(subset.epoch(epoch)).remove(0).0;
        samples.sort_unstable();
        assert_eq!(samples, [1, 2, 9, 9]);
    }
}

#[test]
fn a_state_of_another_sampler_is_refused() {
    let state = |way| {
        loader(Images::new(20), |o| o.sampler = sampler(way, 20))
            .epoch(1)
            .state()
    };
    for saved in 0..7 {
        for now in 0..7 {
            let now_loader = loader(Images::new(20), |o| o.sampler = sampler(now, 20));
            match now_loader.resume(state(saved)) {
                Ok(_) => assert_eq!(saved, now),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        saved != now && error.contains("cannot resume: sampler was "),
                        "{error}"
                    );
                }
            }
        }
    }
    let weights = |last| {
        loader(Images::new(3), |o| {
            o.sampler = Sampler::Weighted {
                weights: [1.0, 1.0, last].into(),
                replacement: true,
            };
        })
    };
    assert!(weights(1.0).resume(weights(2.0).start_of(0)).is_err());
    let longer = loader(Images::new(20), |o| o.epoch_samples = Some(10));
    let error = longer.resume(state(0)).err().unwrap().to_string();
    assert_eq!(
        error,
        "cannot resume: sampler was every sample when the state was saved and is every sample, 10 in an epoch now"
    );
}

/// Oracle: `torch.utils.data.WeightedRandomSampler`: how often it has each sample, at the first three places.
#[test]
fn draws_have_the_distribution_of_pytorchs_sampler() {
    const EPOCHS: u64 = 4000;
    const WEIGHTS: [f64; 5] = [1.0, 0.0, 2.5, 4.0, 0.5];
    const PLACES: usize = 3;
    let Some(python) = needs::torch() else { return };
    let script = format!(
        "import torch, json
from torch.utils.data import WeightedRandomSampler as S
torch.manual_seed(1)
count = lambda r: torch.stack([torch.bincount(torch.tensor(p), minlength=5) for p in zip(*[list(S({WEIGHTS:?}, {PLACES}, r)) for _ in range({EPOCHS})])]).tolist()
print(json.dumps([count(True), count(False)]))"
    );
    let asked = Command::new(python).args(["-c", &script]).output().unwrap();
    assert!(
        asked.status.success(),
        "{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let theirs: [[[u32; 5]; PLACES]; 2] = serde_json::from_slice(&asked.stdout).unwrap();
    for (replacement, theirs) in [true, false].into_iter().zip(theirs) {
        let loader = loader(Images::new(5), |o| {
            o.sampler = Sampler::Weighted {
                weights: WEIGHTS.into(),
                replacement,
            };
            o.epoch_samples = Some(PLACES);
        });
        let mut ours = [[0u32; 5]; PLACES];
        for epoch in 0..EPOCHS {
            for (place, sample) in loader.order(epoch).into_iter().enumerate() {
                ours[place][sample] += 1;
            }
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            // Two samples of the same distribution: chi-squared with 3 degrees of freedom, below 21.1 with
            // probability 0.9999.
            let term = |(&ours, &theirs): (&u32, &u32)| match ours + theirs {
                0 => 0.0,
                both => f64::from(ours.abs_diff(theirs)).powi(2) / f64::from(both),
            };
            let chi_squared: f64 = ours.iter().zip(theirs).map(term).sum();
            assert!(
                chi_squared < 21.1,
                "{replacement} {ours:?} {theirs:?}: {chi_squared}"
            );
        }
    }
}
