//! Runs of a segmenter on pairs of images and masks.

use std::sync::Arc;

use stokehold_base::fault::Fault;
use stokehold_pipeline::Pipeline;
use stokehold_pipeline::op::Size;
use stokehold_storage::Dataset;
use stokehold_train::device::DeviceChoice;
use stokehold_train::ema::EmaConfig;
use stokehold_train::infer::{Classifier, Given, InferOptions, evaluate, evaluate_pixels};
use stokehold_train::mix::Mix;
use stokehold_train::model::Arch;
use stokehold_train::progress::Scores;
use stokehold_train::run::{MetricsLine, RunFolder, read_metrics};
use stokehold_train::sampling::SamplerConfig;
use stokehold_train::{ClassWeights, TrainConfig};

use super::resume::{assert_exact, computed};
use super::tiny::{End, config, config_of_pairs, run, write_data, write_pairs};

#[test]
fn a_segmenter_learns_which_half_is_light_and_its_file_says_what_training_said() {
    let dir = tempfile::tempdir().unwrap();
    write_pairs(dir.path());
    let config = TrainConfig {
        epochs: 10,
        batch_size: 3,
        lr: 0.1,
        pipeline: Pipeline::pairs_train(Size::Side(64)),
        eval_pipeline: Pipeline::pairs_eval(Size::HeightWidth([64, 96])),
        ..config_of_pairs(dir.path(), &dir.path().join("run"))
    };
    let (summary, _) = run(&config, false, End::Never);
    let summary = summary.unwrap();
    let validation = summary.validation.unwrap();
    let Scores::Pixels { miou, pixel_accuracy } = validation.scores else {
        panic!("{validation:?}");
    };
    // A guess of one class has 0.25 and 0.5.
    assert!(miou > 0.6 && pixel_accuracy > 0.75, "{summary}");
    assert!(summary.to_string().contains("mIoU"), "{summary}");

    let folder = RunFolder::new(&config.run_dir);
    assert_eq!(folder.read_summary().unwrap().unwrap(), summary);
    let lines = read_metrics(&folder.metrics()).unwrap();
    let mious = lines.iter().filter_map(|line| match line {
        MetricsLine::Epoch {
            epoch, miou, top1, ..
        } => {
            assert_eq!(*top1, None);
            Some((*epoch, miou.unwrap()))
        }
        MetricsLine::Train { .. } => None,
    });
    let mious: Vec<(u64, f64)> = mious.collect();
    assert_eq!((mious.len(), mious[9].1), (10, miou));
    let best = mious.iter().map(|(_, miou)| *miou).fold(0.0, f64::max);
    let first = mious.iter().find(|(_, miou)| *miou == best).unwrap().0;
    // Among equals the lower loss decides.
    let equals = mious.iter().filter(|(_, miou)| *miou == best).count();
    assert!(equals > 1 || summary.best.unwrap().epoch == first, "{mious:?}");

    let model = Classifier::open(&config.run_dir, Given::default(), DeviceChoice::Cpu).unwrap();
    assert_eq!(model.facts().classes[3], "road");
    let images = Arc::new(Dataset::open(dir.path(), None, 0).unwrap().val.unwrap());
    let mut done = Vec::new();
    let mut each = |count: u64, _: Option<&_>| done.push(count);
    let options = InferOptions {
        batch_size: 3,
        ..InferOptions::default()
    };
    let evaluation = evaluate_pixels(&model, &images, &options, &mut each).unwrap();
    assert_eq!(
        (evaluation.miou, evaluation.pixel_accuracy),
        (miou, pixel_accuracy)
    );
    assert!((evaluation.loss - validation.loss).abs() < 1e-4 * (1.0 + validation.loss));
    assert_eq!(
        (evaluation.images, evaluation.worst.len(), done),
        (4, 4, vec![3, 4])
    );
    assert!(evaluation.pixels < 4 * 64 * 96, "pixels without a class count");
    assert_eq!(
        evaluation.classes.iter().map(|class| class.pixels).sum::<u64>(),
        evaluation.pixels
    );
    assert!(evaluation.worst.is_sorted_by(|a, b| a.miou <= b.miou));
    let error = evaluate(&model, &images, &options, 5, &mut |_, _| {}).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("classif"),
        "{error}"
    );
}

#[test]
fn a_segmenter_continues_exactly_with_its_average_and_weights_of_classes() {
    let dir = tempfile::tempdir().unwrap();
    write_pairs(dir.path());
    let whole = TrainConfig {
        class_weights: ClassWeights::Balanced,
        ema: Some(EmaConfig { decay: 0.9, steps: 2 }),
        ..config_of_pairs(dir.path(), &dir.path().join("whole"))
    };
    let (summary, recorded) = run(&whole, false, End::Never);
    let summary = summary.unwrap();
    assert!(
        summary.ema.is_some() && summary.ema != summary.validation,
        "{summary}"
    );
    for (name, end, cut_at) in [
        ("mid-epoch", End::AfterStep(5), 5),
        ("validation", End::WithinValidation(2), 3),
    ] {
        assert_exact(dir.path(), &whole, &recorded.losses, name, end, cut_at);
    }
    // Weights of classes change the result.
    let even = TrainConfig {
        class_weights: ClassWeights::Even,
        run_dir: dir.path().join("even"),
        ..whole.clone()
    };
    run(&even, false, End::Never).0.unwrap();
    assert!(computed(&even).0 != computed(&whole).0);
}

#[test]
fn a_segmenter_rejects_options_of_classifiers_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (pairs, images) = (dir.path().join("pairs"), dir.path().join("images-of-classes"));
    write_pairs(&pairs);
    write_data(&images);
    let good = config_of_pairs(&pairs, &dir.path().join("run"));
    let of_classes = config(&images, &dir.path().join("run"));
    let mix = |mixup_alpha, cutmix_alpha| Mix {
        mixup_alpha,
        cutmix_alpha,
    };
    let balanced = SamplerConfig::ClassBalanced { replacement: true };
    let deeplab = Arch::Deeplabv3Resnet50;
    let cases: [(TrainConfig, &str); 10] = [
        (
            TrainConfig {
                mix: mix(0.2, 0.0),
                ..good.clone()
            },
            "MixUp and CutMix",
        ),
        (
            TrainConfig {
                mix: mix(0.0, 1.0),
                ..good.clone()
            },
            "MixUp and CutMix",
        ),
        (
            TrainConfig {
                label_smoothing: 0.1,
                ..good.clone()
            },
            "label smoothing",
        ),
        (
            TrainConfig {
                sampler: balanced,
                ..good.clone()
            },
            "class-balanced",
        ),
        (
            TrainConfig {
                class_weights: ClassWeights::Each(vec![1.0, 2.0]),
                ..good.clone()
            },
            "have 11 classes",
        ),
        (
            TrainConfig {
                class_weights: ClassWeights::Balanced,
                ..of_classes.clone()
            },
            "those of pixels",
        ),
        (
            TrainConfig {
                arch: Arch::Resnet18,
                ..good.clone()
            },
            "resnet18 classifies images; choose one of fcn-resnet18",
        ),
        (
            TrainConfig {
                arch: Arch::FcnResnet18,
                label_smoothing: 0.0,
                ..of_classes.clone()
            },
            "no masks, and fcn-resnet18",
        ),
        (
            TrainConfig {
                arch: deeplab,
                ..good.clone()
            },
            "a last batch of one image (9 images, 4 in a batch); leave that batch out (--drop-last)",
        ),
        (
            TrainConfig {
                arch: deeplab,
                batch_size: 1,
                ..good.clone()
            },
            "at least 2",
        ),
    ];
    for (config, part) in cases {
        let error = run(&config, false, End::Never).0.unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains(part),
            "{part}: {error}"
        );
        assert!(!config.run_dir.exists(), "{part}: something is left");
    }
}
