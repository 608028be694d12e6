//! The simulation against closed formulas, and what holds for every run.

use proptest::prelude::*;
use stokehold_scale::{
    Algorithm, BACKWARD, Bucket, Cause, Checkpoints, Cluster, Draws, INSIDE, Machines, Network, Run,
    Simulation, Size, predict,
};

const STEP: f64 = 0.25;

/// Steps that all take as long.
fn even() -> Run {
    Run {
        images: 100_000,
        batch: 100,
        step_seconds: vec![STEP; 20],
        parameters: 25_600_000,
        ..Run::default()
    }
}

fn cluster(machines: &[u64]) -> Cluster {
    Cluster {
        machines: machines.to_vec(),
        network: Network::ethernet(10).unwrap(),
        ..Cluster::default()
    }
}

fn only(run: &Run, cluster: &Cluster) -> Size {
    let mut prediction = predict(run, cluster).unwrap();
    assert_eq!(prediction.sizes.len(), 1);
    prediction.sizes.remove(0)
}

#[track_caller]
fn close(found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(off < 1e-9 * expected.max(1e-3), "{found} is not {expected}");
}

#[test]
fn without_overlap_a_step_is_computing_and_reduce() {
    for algorithm in Algorithm::ALL {
        let machines = Machines { machines: 8, gpus: 4 };
        let cluster = Cluster {
            gpus: 4,
            algorithm: Some(algorithm),
            ..cluster(&[8])
        };
        let size = only(&even(), &cluster);
        let bucket = 25.0 * 1024.0 * 1024.0;
        let sizes = [bucket, bucket, bucket, 102.4e6 - 3.0 * bucket];
        let reduce: f64 = sizes
            .into_iter()
            .map(|bytes| algorithm.seconds(bytes, machines, cluster.network, INSIDE))
            .sum();
        close(size.seconds_per_step, STEP + reduce);
        close(size.seconds_per_epoch, 100_000.0 / 3200.0 * (STEP + reduce));
        assert_eq!(
            (size.algorithm, size.steps, size.ranks, size.batch),
            (Some(algorithm), 32, 32, 3200)
        );
        assert_eq!(size.limit, Some(Cause::Reduce));
    }
}

#[test]
fn with_full_overlap_a_step_is_the_longer_of_the_two() {
    let draws = Draws::new(&[STEP; 3], 8, 1);
    for seconds in [0.0, 0.1, STEP * BACKWARD, 0.5] {
        let buckets = [Bucket { ready: 0.0, seconds }];
        let simulation = Simulation {
            together: 1,
            buckets: &buckets,
            ..Simulation::of(&draws, 8)
        };
        let forward = STEP * (1.0 - BACKWARD);
        close(simulation.seconds_per_step(), STEP.max(forward + seconds));
        let behind = Simulation {
            backward: 0.0,
            ..simulation
        };
        close(behind.seconds_per_step(), STEP + seconds);
    }
}

/// Two buckets: the first is ready in the middle of the backward pass, the second at its end and after the first.
#[test]
fn buckets_wait_for_one_another() {
    let draws = Draws::new(&[STEP], 2, 1);
    let buckets = [0.5, 1.0].map(|ready| Bucket { ready, seconds: 0.1 });
    let simulation = Simulation {
        together: 1,
        buckets: &buckets,
        ..Simulation::of(&draws, 2)
    };
    let first = STEP * (1.0 - BACKWARD / 2.0) + 0.1;
    close(simulation.seconds_per_step(), first.max(STEP) + 0.1);
}

#[test]
fn a_slow_loader_decides_the_step() {
    let run = Run {
        loader_rate: Some(80.0),
        parameters: 0,
        ..even()
    };
    for size in predict(&run, &cluster(&[1, 4, 16])).unwrap().sizes {
        close(size.seconds_per_step, 100.0 / 80.0);
        close(size.efficiency, 1.0);
        assert_eq!(size.limit, Some(Cause::Loader));
        // A quarter more than the trainer takes is enough.
        close(size.lifts[0].seconds_per_epoch, size.computing_seconds);
    }
}

#[test]
fn shared_storage_decides_the_step_of_many() {
    let run = Run {
        image_bytes: Some(110e3),
        parameters: 0,
        ..even()
    };
    let limited = Cluster {
        storage_limit: Some(100e6),
        ..cluster(&[1, 2, 4, 16])
    };
    let sizes = predict(&run, &limited).unwrap().sizes;
    for size in &sizes {
        close(
            size.seconds_per_step,
            STEP.max(size.ranks as f64 * 100.0 * 110e3 / 100e6),
        );
    }
    assert_eq!(sizes[0].limit, None);
    assert_eq!(sizes[3].limit, Some(Cause::Storage));
    close(sizes[3].lifts[0].efficiency, 1.0);
}

#[test]
fn checkpoints_take_their_time_on_any_number_of_machines() {
    let run = Run {
        parameters: 0,
        checkpoints: Some(Checkpoints {
            per_epoch: 2.0,
            seconds: 5.0,
        }),
        ..even()
    };
    let size = only(&run, &cluster(&[10]));
    close(size.seconds_per_epoch, 25.0 + 10.0);
    close(size.efficiency, 260.0 / 350.0);
    assert_eq!(size.limit, Some(Cause::Checkpoints));
    close(size.lifts[0].seconds_per_epoch, 25.0);
}

/// The mean of the largest order statistic of n draws.
#[test]
fn the_slowest_of_n_ranks_is_the_largest_of_n_steps() {
    let steps: Vec<f64> = (0..2000)
        .map(|k| 0.2 + 0.1 * (f64::from(k) / 2000.0).powi(3))
        .collect();
    for ranks in [1, 2, 8, 64] {
        let draws = Draws::new(&steps, ranks, 7);
        let simulation = Simulation {
            together: 1,
            ..Simulation::of(&draws, ranks)
        };
        let (count, power) = (steps.len() as f64, ranks as i32);
        let expected: f64 = (1..)
            .zip(&steps)
            .map(|(k, step)| {
                let k = f64::from(k);
                step * ((k / count).powi(power) - ((k - 1.0) / count).powi(power))
            })
            .sum();
        let found = simulation.seconds_per_step();
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{ranks}: {found} is not {expected}"
        );
        let alone = Simulation {
            together: 0,
            ..simulation
        };
        close(alone.seconds_per_step(), draws.mean());
    }
}

#[test]
fn a_limit_names_what_would_lift_it() {
    let size = only(&even(), &cluster(&[8]));
    let found = |part: &str| size.lifts.iter().find(|lift| lift.change.contains(part)).unwrap();
    for part in ["100 Gbit/s", "backward pass", "after 4 batches"] {
        let lift = found(part);
        assert!(
            lift.seconds_per_epoch < size.seconds_per_epoch && lift.efficiency > size.efficiency,
            "{lift:?}"
        );
    }
    // What a lift says is what a prediction with it says.
    let faster = Cluster {
        network: Network::ethernet(100).unwrap(),
        ..cluster(&[8])
    };
    close(
        found("100 Gbit/s").seconds_per_epoch,
        only(&even(), &faster).seconds_per_epoch,
    );
    let limited = size.limited();
    assert!(
        limited.starts_with("8 machines: reducing gradients takes "),
        "{limited}"
    );
    let one = only(&even(), &cluster(&[1]));
    assert_eq!(
        one.limited(),
        "1 machine: computing limits; nothing else takes 1 % of an epoch"
    );
    assert!(one.lifts.is_empty() && one.algorithm.is_none());
}

/// Reduce alone takes as long as the loader, so a better loader gains nothing, and a better network does.
#[test]
fn a_cause_behind_another_one_is_lifted_by_the_other() {
    let run = Run {
        loader_rate: Some(100.0 / (STEP + 0.08)),
        ..even()
    };
    let size = only(&run, &cluster(&[2]));
    assert_eq!(size.limit, Some(Cause::Loader), "{size:?}");
    assert!(
        size.lifts.iter().any(|lift| lift.change.contains("100 Gbit/s")),
        "{size:?}"
    );
    assert!(
        size.lifts.iter().all(|lift| !lift.change.contains("loader")),
        "{size:?}"
    );
}

#[test]
fn an_epoch_of_fewer_images_than_a_step_is_one_step() {
    let run = Run {
        images: 150,
        parameters: 0,
        ..even()
    };
    let prediction = predict(&run, &cluster(&[1, 4])).unwrap();
    close(prediction.sizes[0].seconds_per_epoch, 1.5 * STEP);
    close(prediction.sizes[1].seconds_per_epoch, STEP);
    assert!(
        prediction
            .assumptions
            .last()
            .unwrap()
            .contains("fewer than a step of 4 GPUs")
    );
}

#[test]
fn what_is_out_of_range_is_refused() {
    let said = |run: Run, cluster: Cluster| predict(&run, &cluster).unwrap_err().to_string();
    let of = |change: &dyn Fn(&mut Run)| {
        let mut run = even();
        change(&mut run);
        said(run, cluster(&[1]))
    };
    for (said, expected) in [
        (of(&|run| run.images = 0), "images of an epoch: is 0"),
        (of(&|run| run.batch = u64::MAX), "images of a step"),
        (of(&|run| run.parameters = u64::MAX), "2^53"),
        (of(&|run| run.step_seconds = vec![]), "there are none"),
        (of(&|run| run.step_seconds = vec![1.0, f64::NAN]), "no numbers"),
        (of(&|run| run.step_seconds = vec![0.0]), "no time"),
        (of(&|run| run.between_seconds = -1.0), "is -1 s"),
        (of(&|run| run.loader_rate = Some(0.0)), "loader's rate: is 0"),
        (of(&|run| run.loader_rate = Some(1e-300)), "1e-6 to 1e15"),
        (of(&|run| run.image_bytes = Some(f64::INFINITY)), "is inf"),
        (said(even(), cluster(&[5000])), "1 to 4096 GPUs"),
        (
            said(
                even(),
                Cluster {
                    storage_limit: Some(1e9),
                    ..cluster(&[1])
                },
            ),
            "how many bytes an image has",
        ),
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
}

fn any_run() -> impl Strategy<Value = Run> {
    let checkpoints = prop::option::of((0.0..50.0, 0.0..20.0));
    let loading = (prop::option::of(1.0..1000.0_f64), 1..5_usize, 1e3..1e6);
    let computing = (
        prop::collection::vec(0.001..1.0_f64, 1..40),
        0.0..0.1_f64,
        any::<bool>(),
    );
    (
        1..1_000_000_u64,
        1..300_u64,
        computing,
        0..300_000_000_u64,
        loading,
        checkpoints,
    )
        .prop_map(
            |(images, batch, (step_seconds, between_seconds, overlap), parameters, loading, checkpoints)| {
                Run {
                    images,
                    batch,
                    step_seconds,
                    between_seconds,
                    parameters,
                    overlap,
                    loader_rate: loading.0,
                    prefetch: loading.1,
                    image_bytes: Some(loading.2),
                    checkpoints: checkpoints.map(|(per_epoch, seconds)| Checkpoints { per_epoch, seconds }),
                    recorded_seconds: None,
                }
            },
        )
}

fn any_cluster() -> impl Strategy<Value = Cluster> {
    let network = (0.0..1e-3, 1e8..1e11).prop_map(|(alpha_seconds, bytes_per_second)| Network {
        alpha_seconds,
        bytes_per_second,
    });
    let algorithm = prop::option::of(prop::sample::select(Algorithm::ALL.to_vec()));
    (
        prop::collection::vec(1..12_u64, 1..4),
        1..9_u64,
        network,
        algorithm,
        prop::option::of(1e6..1e10),
    )
        .prop_map(|(machines, gpus, network, algorithm, storage_limit)| Cluster {
            machines,
            gpus,
            network,
            algorithm,
            storage_limit,
            price: Some(3.0),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn efficiency_is_at_most_1_and_all_time_has_a_cause(run in any_run(), mut cluster in any_cluster()) {
        cluster.machines.push(1);
        let sizes = predict(&run, &cluster).unwrap().sizes;
        prop_assert!(sizes.is_sorted_by_key(|size| size.machines));
        let one = sizes[0].images_per_second;
        for size in &sizes {
            prop_assert!(size.efficiency > 0.0 && size.efficiency <= 1.0, "{size:?}");
            let against = size.images_per_second / (one * size.machines as f64);
            prop_assert!((against - size.efficiency).abs() < 1e-9, "{against} {size:?}");
            prop_assert!(size.lost.iter().all(|lost| lost.seconds >= 0.0), "{size:?}");
            let sum = size.computing_seconds + size.lost.iter().map(|lost| lost.seconds).sum::<f64>();
            prop_assert!((sum / size.seconds_per_epoch - 1.0).abs() < 1e-9, "{sum} {size:?}");
            for lift in &size.lifts {
                prop_assert!(lift.efficiency > 0.0 && lift.efficiency <= 1.0, "{lift:?}");
                prop_assert!(lift.seconds_per_epoch < size.seconds_per_epoch);
            }
            let cost = size.cost_per_epoch.unwrap();
            prop_assert!((cost / (size.machines as f64 * size.seconds_per_epoch / 1200.0) - 1.0).abs() < 1e-9);
        }
    }
}
