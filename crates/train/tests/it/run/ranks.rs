//! Ranks together compute what one computes alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stokehold_base::fault::Fault;
use stokehold_train::ema::EmaConfig;
use stokehold_train::optim::OptimizerConfig;
use stokehold_train::run::{RunFolder, read_metrics};
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};
use stokehold_train::{Event, Observer, Ranks, RunSummary, TrainConfig, TrainError, fit_on, resume_on};

use super::tiny::{End, config, config_of_pairs, open, run, write_data, write_pairs};

/// Remembers rank 0's losses, and asks one rank to stop after a step.
struct Losses {
    losses: Vec<f32>,
    warnings: Vec<String>,
    bad: Vec<String>,
    stop_after: Option<usize>,
    stop: Arc<AtomicBool>,
}

impl Observer for Losses {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Step { loss, .. } => self.losses.push(loss),
            Event::Warning(text) => self.warnings.push(text),
            Event::BadImage(image) => self.bad.push(image.name.clone()),
            _ => {}
        }
        if self.stop_after == Some(self.losses.len()) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Trains on `size` ranks; the last of them is asked to stop after so many steps. Results by rank, and what rank 0 observed.
fn together(
    size: usize,
    config: &TrainConfig,
    resumed: bool,
    stop_after: Option<usize>,
) -> (Vec<Result<RunSummary, TrainError>>, Losses) {
    each(size, &vec![config.clone(); size], resumed, stop_after)
}

fn each(
    size: usize,
    configs: &[TrainConfig],
    resumed: bool,
    stop_after: Option<usize>,
) -> (Vec<Result<RunSummary, TrainError>>, Losses) {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = Ranks::threads_with(size, Duration::from_secs(60))
        .into_iter()
        .zip(configs.to_vec())
        .map(|(ranks, config)| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let of_rank = match ranks.rank() + 1 == ranks.size() {
                    true => Arc::clone(&stop),
                    false => Arc::default(),
                };
                let mut losses = Losses {
                    losses: Vec::new(),
                    warnings: Vec::new(),
                    bad: Vec::new(),
                    stop_after: stop_after.filter(|_| ranks.is_first()),
                    stop,
                };
                let work = if resumed { resume_on } else { fit_on };
                let result = work(&ranks, &config, open(&config), &mut losses, &of_rank);
                (result, losses)
            })
        })
        .collect();
    let (results, mut losses): (Vec<_>, Vec<_>) =
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip();
    (results, losses.swap_remove(0))
}

fn named(dir: &Path, name: &str, of: &TrainConfig) -> TrainConfig {
    TrainConfig {
        run_dir: dir.join(name),
        ..of.clone()
    }
}

fn assert_close(one: &[f32], other: &[f32], bound: f32, what: &str) {
    assert_eq!(one.len(), other.len(), "{what}");
    for (step, (a, b)) in one.iter().zip(other).enumerate() {
        assert!((a - b).abs() <= bound, "{what}: step {}: {a} and {b}", step + 1);
    }
}

/// 26 steps of batches of 6, 4 at the end of each epoch.
fn long(dir: &Path) -> TrainConfig {
    TrainConfig {
        epochs: 13,
        batch_size: 6,
        ..config(dir, &dir.join("runs"))
    }
}

#[test]
fn pieces_of_a_batch_are_ranks() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    // Small enough that the rounding of sums in another order does not grow from step to step.
    let config = TrainConfig {
        epochs: 7,
        lr: 1e-3,
        ..long(dir.path())
    };
    let pieces = TrainConfig {
        accumulate: 4,
        ..named(dir.path(), "pieces", &config)
    };
    let (_, expected) = together(1, &pieces, false, None);
    assert_eq!(expected.losses.len(), 14);
    let ranks = named(dir.path(), "ranks", &config);
    let (results, losses) = together(4, &ranks, false, None);
    assert_close(&losses.losses, &expected.losses, 1e-5, "four ranks");
    // All ranks have the summary of the whole, and rank 0 wrote it.
    let summaries: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    let folder = RunFolder::new(&ranks.run_dir);
    let written = folder.read_summary().unwrap().unwrap();
    for summary in &summaries {
        assert_eq!(summary.images, summaries[0].images);
        assert_eq!(summary.validation, summaries[0].validation);
    }
    assert_eq!(written.images, 10 * config.epochs);
    assert_eq!(written.ranks.as_ref().unwrap().times.len(), 4);
    assert!(folder.of_rank(1).recording().is_dir());
    assert!(!folder.of_rank(1).model().exists());
    assert_eq!(folder.read_record().unwrap().unwrap().ranks.len(), 4);
}

/// Only the last layer learns, so nothing is normalised by the batch. Three ranks have parts of 2, and of 2, 1 and 1.
#[test]
fn without_batch_norm_ranks_compute_what_one_does() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        epochs: 6,
        freeze_backbone: true,
        ema: Some(EmaConfig { decay: 0.9, steps: 2 }),
        ..long(dir.path())
    };
    let alone = named(dir.path(), "alone", &config);
    let (summary, expected) = run(&alone, false, End::Never);
    let (summary, expected): (_, Vec<f32>) = (
        summary.unwrap(),
        expected.losses.into_iter().map(f32::from_bits).collect(),
    );
    for (ranks, accumulate) in [(2, 2), (3, 1), (4, 1)] {
        let config = TrainConfig {
            accumulate,
            ..named(dir.path(), &format!("ranks-{ranks}-{accumulate}"), &config)
        };
        let (results, losses) = together(ranks, &config, false, None);
        assert_close(
            &losses.losses,
            &expected,
            1e-5,
            &format!("{ranks} ranks, {accumulate} pieces"),
        );
        let own = results.into_iter().next().unwrap().unwrap();
        assert_eq!(own.validation.unwrap().scores, summary.validation.unwrap().scores);
        assert!((own.validation.unwrap().loss - summary.validation.unwrap().loss).abs() < 1e-4);
        assert_eq!(own.ema.unwrap().scores, summary.ema.unwrap().scores);
        assert_eq!((own.images, own.steps), (summary.images, summary.steps));
        let steps = |config: &TrainConfig| {
            let lines = read_metrics(&RunFolder::new(&config.run_dir).metrics()).unwrap();
            lines.len()
        };
        assert_eq!(steps(&config), steps(&alone));
    }
}

/// A small learning rate, at which rounding does not grow from step to step.
#[test]
fn with_synchronised_batch_norm_ranks_compute_what_one_does() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        epochs: 3,
        lr: 1e-4,
        sync_batch_norm: true,
        ..long(dir.path())
    };
    let alone = named(dir.path(), "alone", &config);
    let (_, expected) = run(&alone, false, End::Never);
    let expected: Vec<f32> = expected.losses.into_iter().map(f32::from_bits).collect();
    for ranks in [2, 4] {
        let config = named(dir.path(), &format!("ranks-{ranks}"), &config);
        let (results, losses) = together(ranks, &config, false, None);
        results.into_iter().for_each(|result| drop(result.unwrap()));
        assert_close(&losses.losses, &expected, 2e-3, &format!("{ranks} ranks"));
    }
    let apart = TrainConfig {
        sync_batch_norm: false,
        ..named(dir.path(), "apart", &config)
    };
    let (_, losses) = together(2, &apart, false, None);
    let far = losses
        .losses
        .iter()
        .zip(&expected)
        .any(|(a, b)| (a - b).abs() > 2e-2);
    assert!(far, "the bound above tells the two apart");
}

/// Rank 0 of four hears from the last one that it is to stop. Three continue, and then one alone.
#[test]
fn another_number_of_ranks_goes_on_with_the_same_batches() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    for optimizer in [OptimizerConfig::SGD, OptimizerConfig::ADAMW] {
        let config = TrainConfig {
            freeze_backbone: true,
            epochs: 5,
            optimizer,
            batch_size: 4,
            schedule: ScheduleConfig {
                kind: ScheduleKind::Cosine { final_factor: 0.0 },
                warmup_epochs: 0.5,
            },
            ..long(dir.path())
        };
        let alone = named(dir.path(), &format!("alone-{optimizer:?}"), &config);
        let (_, expected) = run(&alone, false, End::Never);
        let expected: Vec<f32> = expected.losses.into_iter().map(f32::from_bits).collect();
        let cut = named(dir.path(), &format!("cut-{optimizer:?}"), &config);
        let mut losses = Vec::new();
        // Within the first epoch, at the end of an epoch, and to the end.
        for (ranks, resumed, stop_after) in [(4, false, Some(2)), (3, true, Some(4)), (1, true, None)] {
            let (results, heard) = together(ranks, &cut, resumed, stop_after);
            for result in results {
                assert_eq!(result.unwrap().interrupted, stop_after.is_some());
            }
            assert_eq!(heard.warnings, Vec::<String>::new());
            // The ranks agree at the end of a step; rank 0 saw it before, or one step later.
            losses.extend(heard.losses);
        }
        assert_close(&losses, &expected, 1e-5, "cut and continued");
    }
}

#[test]
fn pixels_count_by_their_weights_in_every_part() {
    let dir = tempfile::tempdir().unwrap();
    write_pairs(dir.path());
    let config = TrainConfig {
        freeze_backbone: true,
        epochs: 2,
        class_weights: stokehold_train::ClassWeights::Balanced,
        ..config_of_pairs(dir.path(), &dir.path().join("runs"))
    };
    let pieces = TrainConfig {
        accumulate: 3,
        ..named(dir.path(), "pieces", &config)
    };
    let (_, expected) = together(1, &pieces, false, None);
    let ranks = named(dir.path(), "ranks", &config);
    let (results, losses) = together(3, &ranks, false, None);
    results.into_iter().for_each(|result| drop(result.unwrap()));
    assert_close(&losses.losses, &expected.losses, 1e-5, "ranks");
}

#[test]
fn bad_images_of_all_ranks_are_in_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    for (class, number) in [("across", 1), ("down", 0), ("down", 3)] {
        fs::write(dir.path().join(format!("train/{class}/{number}.png")), b"nothing").unwrap();
    }
    let config = TrainConfig {
        freeze_backbone: true,
        ..long(dir.path())
    };
    let config = TrainConfig { epochs: 2, ..config };
    let alone = named(dir.path(), "alone", &config);
    let (summary, expected) = run(&alone, false, End::Never);
    let expected: Vec<f32> = expected.losses.into_iter().map(f32::from_bits).collect();
    assert_eq!(summary.unwrap().bad_images, 3);
    let ranks = named(dir.path(), "ranks", &config);
    let (results, losses) = together(4, &ranks, false, None);
    for result in results {
        assert_eq!(result.unwrap().bad_images, 3);
    }
    assert_close(&losses.losses, &expected, 1e-5, "images that are missing");
    let few = TrainConfig {
        bad_image_limit: 2,
        ..named(dir.path(), "few", &config)
    };
    let (results, _) = together(4, &few, false, None);
    for result in results {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("more than 2"), "{error}");
    }
}

#[test]
fn ranks_that_are_not_of_one_run_are_refused_and_say_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = long(dir.path());
    let mut configs = vec![config.clone(); 3];
    configs[1].lr = 0.5;
    configs[2].epochs = 1;
    let (results, _) = each(3, &configs, false, None);
    for result in results {
        let error = result.unwrap_err();
        assert!(error.is_input());
        let said = error.to_string();
        assert!(
            said.contains("rank 1 on thread 1: lr is 0.5, and rank 0's is 0.02"),
            "{said}"
        );
        assert!(
            said.contains("rank 2 on thread 2: epochs is 1, and rank 0's is 13"),
            "{said}"
        );
    }
    assert!(!config.run_dir.exists());
    // Other data.
    let other = tempfile::tempdir().unwrap();
    write_data(other.path());
    fs::remove_file(other.path().join("train/across/0.png")).unwrap();
    let mut configs = vec![config.clone(); 2];
    configs[1].data = other.path().to_owned();
    let (results, _) = each(2, &configs, false, None);
    let said = results.into_iter().next().unwrap().unwrap_err().to_string();
    assert!(
        said.contains("the number of its training images is 9, and rank 0's is 10"),
        "{said}"
    );
    // What makes whole batches only.
    let auto = TrainConfig {
        executor: None,
        ..config.clone()
    };
    let (results, _) = together(2, &auto, false, None);
    for result in results {
        let said = result.unwrap_err().to_string();
        assert!(said.contains("executor: must be fused or per-op"), "{said}");
    }
    // Too many ranks.
    let small = TrainConfig {
        batch_size: 2,
        ..config
    };
    let (results, _) = together(3, &small, false, None);
    for result in results {
        let said = result.unwrap_err().to_string();
        assert!(
            said.contains("2 images are fewer than the parts that 3 ranks make"),
            "{said}"
        );
    }
}
