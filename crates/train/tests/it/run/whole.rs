//! What a run leaves, and what its numbers mean.

use std::fs;

use burn::tensor::Device;
use stokehold_base::fault::Fault;
use stokehold_diagnose::advice;
use stokehold_loader::BadImagePolicy;
use stokehold_profile::{About, Recording, dimension, span};
use stokehold_train::Stage;
use stokehold_train::model::{Arch, ResNet};
use stokehold_train::progress::Scores;
use stokehold_train::run::{MetricsLine, RunFolder, read_metrics};
use stokehold_train::weights::load_weights;
use stokehold_train::{TrainConfig, TrainError};

use super::tiny::{BATCH, End, IMAGES, STEPS_PER_EPOCH, VAL_IMAGES, config, run, write_data};

const EPOCHS: u64 = 14;

#[test]
fn a_run_learns_and_leaves_its_record() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let mut config = config(dir.path(), &dir.path().join("runs/one"));
    // The same views of ten images, again and again: a few epochs are enough.
    config.pipeline = config.eval_pipeline.clone();
    (config.epochs, config.label_smoothing, config.ceiling_batches) = (EPOCHS, 0.0, 2);
    config.keep_checkpoints = 0;
    let (summary, recorded) = run(&config, false, End::Never);
    let summary = summary.unwrap();
    let steps = EPOCHS * STEPS_PER_EPOCH;
    assert_eq!(
        (summary.epochs, summary.steps, summary.images),
        (EPOCHS, steps, EPOCHS * 2 * IMAGES as u64)
    );
    assert_eq!(recorded.losses.len() as u64, steps);

    // Chance is ln 2 = 0.69 and one in two.
    let validation = summary.validation.unwrap();
    let Scores::Images { top1, topk, k } = validation.scores else {
        panic!("{validation:?}");
    };
    assert!(
        summary.train_loss.unwrap() < 0.6,
        "it did not learn ten images: {summary}"
    );
    assert!(top1 > 0.5, "it did not learn to tell stripes apart: {summary}");
    assert_eq!((validation.images, k, topk), (2 * VAL_IMAGES as u64, 2, 1.0));

    let folder = RunFolder::new(&config.run_dir);
    let record = folder.read_record().unwrap().unwrap();
    assert_eq!(record.config, config);
    assert_eq!(record.dataset.classes, ["across", "down"]);
    assert_eq!(
        (record.dataset.train, record.dataset.val),
        (2 * IMAGES, Some(2 * VAL_IMAGES))
    );
    assert!(record.machine.cores >= 1);
    assert_eq!(folder.read_summary().unwrap().unwrap(), summary);

    let lines = read_metrics(&folder.metrics()).unwrap();
    let epochs = lines
        .iter()
        .filter(|line| matches!(line, MetricsLine::Epoch { .. }))
        .count();
    // Steps 2, 4, 6, ..: in every second epoch the last interval is a single step.
    assert_eq!(
        (epochs, lines.len() - epochs),
        (EPOCHS as usize, 2 * EPOCHS as usize)
    );
    let Some(MetricsLine::Epoch { loss, top1: last, .. }) = lines.last() else {
        panic!("{lines:?}")
    };
    assert_eq!((*loss, *last), (summary.train_loss, Some(top1)));

    // Every image was read, decoded and augmented once an epoch, and every step waited for and made once.
    let spans = |stage| summary.stages[&stage].spans;
    assert_eq!(
        [Stage::Read, Stage::Decode, Stage::Augment].map(spans),
        [EPOCHS * 2 * IMAGES as u64; 3]
    );
    assert_eq!([Stage::Wait, Stage::Step].map(spans), [steps; 2]);
    let recording = Recording::open(folder.path()).unwrap();
    assert_eq!(recording.problems, [""; 0]);
    let [node] = &recording.nodes[..] else { panic!() };
    for stage in Stage::ALL {
        assert_eq!(
            node.spans_of(stage.span()).count() as u64,
            spans(stage),
            "{stage}"
        );
    }
    // Steps and waits take turns, and what the workers did for a step was done before it.
    let numbered = |name| -> Vec<_> { node.spans_of(name).map(|span| (span.step, span.start)).collect() };
    let (waits, made) = (numbered(span::WAIT), numbered(span::STEP));
    for (number, (wait, step)) in (1..=steps).zip(waits.iter().zip(&made)) {
        assert_eq!((wait.0, step.0), (Some(number), Some(number)));
        assert!(wait.1 <= step.1);
    }
    for name in [span::WORKER, span::READ, span::DECODE, span::AUGMENT] {
        for work in node.spans_of(name) {
            let step = work.step.and_then(|step| made.get(step as usize - 1)).unwrap();
            // Times are whole microseconds.
            assert!(
                work.worker.is_some() && work.end() <= step.1 + 2e-6,
                "{name} {work:?}"
            );
        }
    }
    assert!(
        node.spans_of(span::READ)
            .all(|read| read.bytes.is_some_and(|bytes| bytes > 100))
    );
    let numbers = |name| {
        node.spans_of(name)
            .filter_map(|span| span.step)
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(span::EPOCH), (1..=EPOCHS).collect::<Vec<_>>());
    assert_eq!(node.spans_of(span::LOADER_START).count() as u64, EPOCHS);
    let validations: Vec<_> = (1..=EPOCHS).map(|epoch| epoch * STEPS_PER_EPOCH).collect();
    assert_eq!(numbers(span::VALIDATION), validations);
    assert!(node.steps().filter(|(mode, _)| *mode == "EVAL").count() as u64 >= EPOCHS);
    if cfg!(target_os = "linux") {
        assert!(node.of(dimension::CPU).count() >= 1);
        assert!(recording.about.unwrap().ended.is_some());
        assert!(summary.cpu.is_some() && summary.peak_rss.is_some());
    }
    assert!(summary.loader_ceiling.unwrap() > 0.0 && summary.trainer_ceiling.unwrap() > 0.0);
    assert!((0.0..=1.0).contains(&summary.wait_share));
    // What predictions start from.
    let recording = folder.recording();
    let workload = About::read(&recording).unwrap().unwrap().workload.unwrap();
    assert_eq!(
        (
            workload.images,
            workload.batch_size,
            workload.executor.as_str(),
            workload.device.as_str()
        ),
        (2 * IMAGES as u64, BATCH as u64, "fused", "cpu")
    );
    assert!(workload.num_workers >= 1 && workload.cores >= 1 && !workload.shards);
    assert!(workload.loader_cpu_seconds.unwrap() > 0.0 && workload.trainer_cpu_seconds.unwrap() > 0.0);
    let stages: Vec<_> = workload.stage_seconds.keys().map(String::as_str).collect();
    assert_eq!(stages, ["augment", "decode", "read"]);
    assert!(advice::fit(&workload).is_some(), "{workload:?}");
    if cfg!(target_os = "linux") {
        assert!(workload.others_cores.is_none_or(|others| others >= 0.0));
        assert!(summary.gain().is_some(), "{summary}");
    }
    let stepping = summary.stages[&Stage::Step].seconds / EPOCHS as f64;
    assert!(summary.seconds_per_epoch.unwrap() >= stepping, "{summary}");

    // The final model loads into a new one.
    let model = ResNet::new(Arch::Resnet18, 2, 1, &Device::flex());
    assert_eq!(
        load_weights(model, &folder.model()).unwrap().1.replaced_head,
        None
    );
}

#[test]
fn the_validation_loss_does_not_depend_on_the_batch_size() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    // A frozen backbone and next to no learning rate: the model stays what it was.
    let validate = |batch_size| {
        let run_dir = dir.path().join(format!("batch-{batch_size}"));
        let config = TrainConfig {
            epochs: 1,
            batch_size,
            freeze_backbone: true,
            lr: 1e-30,
            keep_checkpoints: 0,
            ..config(dir.path(), &run_dir)
        };
        let summary = run(&config, false, End::Never).0.unwrap();
        assert!(!RunFolder::new(&run_dir).checkpoints().exists());
        summary.validation.unwrap()
    };
    let (by_one, by_four) = (validate(1), validate(4));
    assert!(
        (by_one.loss - by_four.loss).abs() < 1e-6,
        "{by_one:?} {by_four:?}"
    );
    assert_eq!((by_one.scores, by_one.images), (by_four.scores, by_four.images));
}

#[test]
fn bad_images_are_named_once_over_all_sittings() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    fs::write(dir.path().join("train/across/0.png"), b"").unwrap();
    fs::write(dir.path().join("val/down/1.png"), b"\x89PNG\r\n\x1a\nno more").unwrap();
    let config = config(dir.path(), &dir.path().join("run"));
    let (summary, first) = run(&config, false, End::AfterStep(STEPS_PER_EPOCH + 1));
    assert!(summary.unwrap().interrupted);
    assert_eq!(first.bad.len(), 2, "{:?}", first.bad);
    let (summary, second) = run(&config, true, End::Never);
    let summary = summary.unwrap();
    assert_eq!(second.bad, Vec::<String>::new());
    assert_eq!((summary.bad_images, summary.bad_val_images), (1, 1));
    assert_eq!(summary.validation.unwrap().images, 2 * VAL_IMAGES as u64 - 1);

    let strict = TrainConfig {
        bad_images: BadImagePolicy::Error,
        run_dir: dir.path().join("strict"),
        ..config.clone()
    };
    let error = run(&strict, false, End::Never).0.unwrap_err();
    assert!(error.is_input() && error.to_string().contains("0.png"), "{error}");
}

/// The last validation image is a batch of its own, and none comes behind it.
#[test]
fn a_bad_image_behind_the_last_batch_is_told_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let last = fs::read_dir(dir.path().join("val/down"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max();
    fs::write(last.unwrap(), b"").unwrap();
    let all = 2 * VAL_IMAGES as u64;
    let config = TrainConfig {
        batch_size: all as usize - 1,
        epochs: 1,
        ..config(dir.path(), &dir.path().join("run"))
    };
    let (summary, told) = run(&config, false, End::Never);
    let summary = summary.unwrap();
    assert_eq!((told.bad.len(), summary.bad_val_images), (1, 1), "{:?}", told.bad);
    let validation = summary.validation.unwrap();
    assert_eq!((validation.images, validation.of), (all - 1, all));
    assert_eq!(validation.over(), format!("over {} of {all} images", all - 1));
    let lines = read_metrics(&RunFolder::new(&config.run_dir).metrics()).unwrap();
    let Some(MetricsLine::Epoch { val_images, .. }) = lines.last() else {
        panic!("{lines:?}")
    };
    assert_eq!(*val_images, Some(all - 1));
}

#[test]
fn transfer_starts_from_weights_of_other_classes_and_moves_the_head_only() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let weights = dir.path().join("five-classes.safetensors");
    let model = ResNet::new(Arch::Resnet18, 5, 3, &Device::flex());
    stokehold_train::weights::save_safetensors(&model, &weights, Default::default()).unwrap();
    let config = TrainConfig {
        weights: Some(weights.clone()),
        freeze_backbone: true,
        epochs: 1,
        ..config(dir.path(), &dir.path().join("run"))
    };
    let (summary, recorded) = run(&config, false, End::Never);
    summary.unwrap();
    assert_eq!(recorded.classes_replaced, Some(5));
    let read = |path: &std::path::Path| fs::read(path).unwrap();
    let (before, after) = (read(&weights), read(&RunFolder::new(&config.run_dir).model()));
    let tensors = |bytes| safetensors::SafeTensors::deserialize(bytes).unwrap();
    for (name, tensor) in tensors(&before)
        .iter()
        .filter(|(name, _)| !name.starts_with("fc."))
    {
        assert!(
            tensors(&after).tensor(name).unwrap().data() == tensor.data(),
            "{name} moved"
        );
    }

    let wrong = TrainConfig {
        arch: Arch::Resnet50,
        run_dir: dir.path().join("wrong"),
        ..config
    };
    let error = run(&wrong, false, End::Never).0.unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("another architecture"),
        "{error}"
    );
    assert!(!wrong.run_dir.exists(), "a run that never began leaves nothing");
}

#[test]
fn numbers_out_of_range_are_named_with_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let message = |change: fn(&mut TrainConfig)| {
        let mut config = config(dir.path(), &dir.path().join("run"));
        change(&mut config);
        let error = run(&config, false, End::Never).0.unwrap_err();
        assert!(error.is_input(), "{error}");
        error.to_string()
    };
    assert_eq!(message(|c| c.epochs = 0), "epochs: must be at least 1");
    assert_eq!(message(|c| c.lr = f64::NAN), "learning rate: must be above 0");
    assert_eq!(
        message(|c| c.label_smoothing = 1.0),
        "label smoothing: must be 0 up to below 1"
    );
    assert_eq!(
        message(|c| c.mix.mixup_alpha = f64::NAN),
        "alpha of MixUp: must be 0 to 4"
    );
    assert_eq!(
        message(|c| c.mix.cutmix_alpha = 11.0),
        "alpha of CutMix: must be 0 to 4"
    );
    assert_eq!(
        message(|c| c.clip_norm = Some(0.0)),
        "norm to clip to: must be above 0"
    );
    assert_eq!(
        message(|c| c.pipeline = stokehold_pipeline::Pipeline::imagenet_train(16)),
        "pipeline: makes images of 16x16; the networks need 32x32 or more"
    );
}

#[test]
fn a_diverging_run_ends_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        lr: 1e30,
        clip_norm: None,
        ..config(dir.path(), &dir.path().join("run"))
    };
    let error = run(&config, false, End::Never).0.unwrap_err();
    assert!(matches!(error, TrainError::Diverged { .. }), "{error}");
    assert!(error.to_string().contains("lower it"), "{error}");
}
