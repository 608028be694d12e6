//! A run that is cut and continued equals the one that was not: losses, metrics and the final model to the bit.

use std::fs;
use std::path::Path;
use std::process::Command;

use stokehold_base::fault::Fault;
use stokehold_pipeline::SampleType;
use stokehold_train::ema::EmaConfig;
use stokehold_train::mix::Mix;
use stokehold_train::optim::OptimizerConfig;
use stokehold_train::run::{MetricsLine, RunFolder, read_metrics};
use stokehold_train::sampling::SamplerConfig;
use stokehold_train::{Precision, TrainConfig};

use super::tiny::{EPOCHS, End, STEPS_PER_EPOCH, config, run, write_data};

/// What a run computed: everything in its metrics but times, its model, and the moving average if there is one.
pub fn computed(config: &TrainConfig) -> (Vec<String>, Vec<u8>) {
    let folder = RunFolder::new(&config.run_dir);
    let line = |line: MetricsLine| match line {
        MetricsLine::Train {
            epoch,
            step,
            loss,
            lr,
            ..
        } => format!("train {epoch} {step} {loss:?} {lr:e}"),
        MetricsLine::Epoch {
            epoch,
            step,
            loss,
            lr,
            val_loss,
            top1,
            topk,
            ema_loss,
            ema_top1,
            miou,
            ema_miou,
            ..
        } => {
            format!(
                "epoch {epoch} {step} {loss:?} {lr:e} {val_loss:?} {top1:?} {topk:?} {ema_loss:?} {ema_top1:?} {miou:?} {ema_miou:?}"
            )
        }
    };
    let metrics = read_metrics(&folder.metrics())
        .unwrap()
        .into_iter()
        .map(line)
        .collect();
    let mut weights = fs::read(folder.model()).unwrap();
    if config.ema.is_some() {
        weights.extend(fs::read(folder.ema()).unwrap());
    }
    (metrics, weights)
}

/// Cuts a run at `end`, continues it, and compares it with the uninterrupted run.
pub fn assert_exact(dir: &Path, whole: &TrainConfig, losses: &[u32], name: &str, end: End, cut_at: u64) {
    let cut = TrainConfig {
        run_dir: dir.join(name),
        ..whole.clone()
    };
    let (summary, first) = run(&cut, false, end);
    assert!(summary.unwrap().interrupted, "{name}");
    let (summary, second) = run(&cut, true, End::Never);
    let summary = summary.unwrap();
    assert!(
        !summary.interrupted && summary.steps == EPOCHS * STEPS_PER_EPOCH,
        "{name}: {summary}"
    );
    assert_eq!(second.resumed_at, Some(cut_at), "{name}");
    assert_eq!(
        [first.losses, second.losses].concat(),
        losses,
        "{name}: the losses differ"
    );
    let ((metrics, model), (whole_metrics, whole_model)) = (computed(&cut), computed(whole));
    assert_eq!(metrics, whole_metrics, "{name}");
    assert!(model == whole_model, "{name}: the final models differ");
}

#[test]
fn an_interrupted_run_continues_exactly_wherever_it_was_stopped() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let whole = config(dir.path(), &dir.path().join("whole"));
    let (summary, recorded) = run(&whole, false, End::Never);
    assert!(!summary.unwrap().interrupted);
    assert_eq!(recorded.losses.len() as u64, EPOCHS * STEPS_PER_EPOCH);

    for (name, end, cut_at) in [
        ("first-step", End::AfterStep(1), 1),
        (
            "mid-epoch",
            End::AfterStep(STEPS_PER_EPOCH + 2),
            STEPS_PER_EPOCH + 2,
        ),
        (
            "last-step-of-epoch",
            End::AfterStep(STEPS_PER_EPOCH),
            STEPS_PER_EPOCH,
        ),
        ("validation", End::WithinValidation(1), STEPS_PER_EPOCH),
        (
            "last-step",
            End::AfterStep(EPOCHS * STEPS_PER_EPOCH),
            EPOCHS * STEPS_PER_EPOCH,
        ),
    ] {
        assert_exact(dir.path(), &whole, &recorded.losses, name, end, cut_at);
    }
}

#[test]
fn adamw_and_mixed_batches_continue_exactly_too_with_another_number_of_workers() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let mut whole = config(dir.path(), &dir.path().join("whole"));
    (whole.optimizer, whole.lr) = (OptimizerConfig::ADAMW, 1e-3);
    whole.mix = Mix {
        mixup_alpha: 0.4,
        cutmix_alpha: 1.0,
    };
    let (summary, recorded) = run(&whole, false, End::Never);
    summary.unwrap();
    let cut = TrainConfig {
        workers: "3".parse().unwrap(),
        run_dir: dir.path().join("cut"),
        ..whole.clone()
    };
    let (summary, first) = run(&cut, false, End::AfterStep(5));
    assert!(summary.unwrap().interrupted);
    let cut = TrainConfig {
        workers: "1".parse().unwrap(),
        ..cut
    };
    let (summary, second) = run(&cut, true, End::Never);
    summary.unwrap();
    assert_eq!([first.losses, second.losses].concat(), recorded.losses);
    assert!(computed(&cut) == computed(&whole));
}

#[test]
fn a_moving_average_continues_exactly() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let mut whole = config(dir.path(), &dir.path().join("whole"));
    // It keeps 1 - 0.1 x 4 x 2 / 3 of itself.
    whole.ema = Some(EmaConfig { decay: 0.9, steps: 2 });
    let (summary, recorded) = run(&whole, false, End::Never);
    let summary = summary.unwrap();
    assert!(
        summary.ema.is_some() && summary.ema != summary.validation,
        "{summary}"
    );
    assert!(summary.to_string().contains("of the average"), "{summary}");
    let folder = RunFolder::new(&whole.run_dir);
    assert!(fs::read(folder.model()).unwrap() != fs::read(folder.ema()).unwrap());
    for (name, end, cut_at) in [
        ("first-step", End::AfterStep(1), 1),
        (
            "mid-epoch",
            End::AfterStep(STEPS_PER_EPOCH + 2),
            STEPS_PER_EPOCH + 2,
        ),
        // The second validation of an epoch is that of the average.
        ("validation", End::WithinValidation(2), STEPS_PER_EPOCH),
    ] {
        assert_exact(dir.path(), &whole, &recorded.losses, name, end, cut_at);
        let checkpoints = dir.path().join(name).join("checkpoints");
        let of_cut = fs::read_dir(checkpoints).unwrap().next().unwrap().unwrap().path();
        assert!(of_cut.join("ema.safetensors").exists());
    }
    // Another run has another average, and says so.
    let without = TrainConfig {
        ema: None,
        ..whole.clone()
    };
    let message = run(&without, true, End::Never).0.unwrap_err().to_string();
    assert!(message.contains("ema was"), "{message}");
}

#[test]
fn every_precision_and_sample_type_continues_exactly() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let mut full: Vec<f32> = Vec::new();
    for (name, precision, sample_type) in [
        ("f32", Precision::F32, SampleType::F32),
        ("bytes", Precision::F32, SampleType::U8),
        ("halves", Precision::F32, SampleType::F16),
        ("bf16", Precision::Bf16, SampleType::Bf16),
    ] {
        let mut whole = config(dir.path(), &dir.path().join(name));
        (whole.precision, whole.sample_type) = (precision, sample_type);
        let (summary, recorded) = run(&whole, false, End::Never);
        summary.unwrap();
        let cut_name = format!("{name}-cut");
        let end = End::AfterStep(STEPS_PER_EPOCH + 2);
        assert_exact(
            dir.path(),
            &whole,
            &recorded.losses,
            &cut_name,
            end,
            STEPS_PER_EPOCH + 2,
        );
        let losses: Vec<f32> = recorded.losses.iter().map(|&bits| f32::from_bits(bits)).collect();
        if full.is_empty() {
            full = losses;
            continue;
        }
        // Of the first step, before small differences grow.
        let first = (losses[0] - full[0]).abs();
        match sample_type {
            // The same images, to the last bits of f32.
            SampleType::U8 => assert!(first < 1e-4, "{name}: {losses:?} {full:?}"),
            _ => assert!(first < 0.05 && losses != full, "{name}: {losses:?} {full:?}"),
        }
    }
    let mut other = config(dir.path(), &dir.path().join("bf16"));
    other.precision = Precision::F32;
    let message = run(&other, true, End::Never).0.unwrap_err().to_string();
    assert!(
        message.contains("precision was \"bf16\" and is \"f32\" now"),
        "{message}"
    );
}

#[test]
fn every_sampler_continues_exactly_and_another_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let name = |number: usize| format!("{}/{}.png", ["across", "down"][number / 5], number % 5);
    let weights: String = (0..10)
        .map(|number| format!("{} {number}\n", name(number)))
        .collect();
    let subset: String = (0..10).map(|number| format!("{}\n", name(9 - number))).collect();
    let weights = file("weights", &weights);
    let samplers = [
        SamplerConfig::ClassBalanced { replacement: true },
        SamplerConfig::Weighted {
            weights: weights.clone(),
            replacement: true,
        },
        SamplerConfig::Subset {
            images: file("subset", &subset),
        },
        SamplerConfig::Repeated {
            times: 3.try_into().unwrap(),
        },
    ];
    for (number, sampler) in samplers.into_iter().enumerate() {
        let mut whole = config(dir.path(), &dir.path().join(format!("whole-{number}")));
        whole.sampler = sampler;
        let (summary, recorded) = run(&whole, false, End::Never);
        summary.unwrap();
        let cut = format!("cut-{number}");
        assert_exact(dir.path(), &whole, &recorded.losses, &cut, End::AfterStep(4), 4);
    }
    // Stopped between two epochs, where the checkpoint has no position in the data.
    let mut first = config(dir.path(), &dir.path().join("changed"));
    first.sampler = SamplerConfig::Weighted {
        weights: weights.clone(),
        replacement: true,
    };
    let (summary, _) = run(&first, false, End::WithinValidation(1));
    assert!(summary.unwrap().interrupted);
    let text = fs::read_to_string(&weights).unwrap();
    fs::write(&weights, text.replace("across/1.png 1\n", "across/1.png 2\n")).unwrap();
    let error = run(&first, true, End::Never).0.unwrap_err();
    assert!(error.is_input());
    let message = error.to_string();
    assert!(message.contains("the sampler was weighted (hash "), "{message}");
    let every = TrainConfig {
        sampler: SamplerConfig::Every,
        ..first
    };
    let message = run(&every, true, End::Never).0.unwrap_err().to_string();
    assert!(
        message.contains("sampler was {\"kind\":\"weighted\""),
        "{message}"
    );
}

/// With AdamW and a moving average, which have a state in the checkpoint.
fn to_be_killed(dir: &Path, name: &str) -> TrainConfig {
    TrainConfig {
        optimizer: OptimizerConfig::adamw(0.02),
        ema: Some(EmaConfig { decay: 0.9, steps: 1 }),
        checkpoint_steps: Some(2),
        ..config(dir, &dir.join(name))
    }
}

/// The process that [`a_killed_run_continues_exactly`] starts.
#[test]
#[ignore = "not a test of its own: it ends its process in the middle of a run"]
fn killed_process() {
    let Some(dir) = std::env::var_os("STOKEHOLD_TEST_KILLED_RUN") else {
        return;
    };
    let dir = Path::new(&dir);
    let config = to_be_killed(dir, "killed");
    let _ = run(&config, false, End::AbortAfterStep(STEPS_PER_EPOCH + 2));
}

#[test]
fn a_killed_run_continues_exactly() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let whole = to_be_killed(dir.path(), "whole");
    let (summary, recorded) = run(&whole, false, End::Never);
    summary.unwrap();

    // Killed after step 5 with checkpoints after steps 2, 3 (the end of the epoch) and 4.
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "run::resume::killed_process",
            "--ignored",
            "--test-threads=1",
        ])
        .env("STOKEHOLD_TEST_KILLED_RUN", dir.path())
        .output()
        .unwrap();
    assert!(!status.status.success());
    let killed = to_be_killed(dir.path(), "killed");
    assert!(
        !RunFolder::new(&killed.run_dir).summary().exists(),
        "the process was not killed"
    );

    // What a kill within the writing of a checkpoint leaves is ignored, and removed.
    let half_written = killed
        .run_dir
        .join("checkpoints/.writing-epoch-0001-step-00000005");
    fs::create_dir(&half_written).unwrap();
    fs::write(half_written.join("model.safetensors"), [0; 100]).unwrap();

    let (summary, second) = run(&killed, true, End::Never);
    summary.unwrap();
    assert_eq!(second.resumed_at, Some(4));
    assert_eq!(second.losses, recorded.losses[4..]);
    assert!(computed(&killed) == computed(&whole));
    assert!(!half_written.exists());
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_taken() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        checkpoint_steps: Some(1),
        ..config(dir.path(), &dir.path().join("run"))
    };
    let (summary, first) = run(&config, false, End::AfterStep(5));
    assert!(summary.unwrap().interrupted);
    let checkpoint = |name| config.run_dir.join("checkpoints").join(name);
    let (last, before) = (
        checkpoint("epoch-0001-step-00000005"),
        checkpoint("epoch-0001-step-00000004"),
    );
    // As long as it was, with one byte that is another.
    let file = last.join("optimizer.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.len() - 2;
    bytes[place] ^= 0x10;
    fs::write(&file, bytes).unwrap();

    let (summary, second) = run(&config, true, End::Never);
    summary.unwrap();
    assert_eq!(second.resumed_at, Some(4));
    assert_eq!(second.losses[0], first.losses[4]);
    let told = second.warnings.iter().filter(|warning| {
        [
            &*last.to_string_lossy(),
            "optimizer.safetensors",
            &*before.to_string_lossy(),
        ]
        .iter()
        .all(|part| warning.contains(part))
    });
    assert_eq!(told.count(), 1, "{:?}", second.warnings);
}

#[test]
fn another_configuration_or_other_data_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let first = config(dir.path(), &dir.path().join("run"));
    let (summary, _) = run(&first, false, End::AfterStep(1));
    summary.unwrap();

    let mut other = TrainConfig {
        batch_size: 5,
        arch: stokehold_train::model::Arch::Resnet50,
        ..first.clone()
    };
    other.workers = "2".parse().unwrap();
    other.pipeline = stokehold_pipeline::Pipeline::imagenet_train(64);
    let (refused, _) = run(&other, true, End::Never);
    let error = refused.unwrap_err();
    let message = error.to_string();
    assert!(error.is_input());
    for part in [
        "arch was \"resnet18\" and is \"resnet50\" now",
        "batch_size was 4 and is 5 now",
        "pipeline is another one",
        "cannot be continued",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert!(!message.contains("workers"), "{message}");

    fs::remove_file(dir.path().join("train/down/0.png")).unwrap();
    let (refused, _) = run(&first, true, End::Never);
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("there were 10 training images and are 9 now"),
        "{message}"
    );
}

#[test]
fn a_run_is_not_overwritten_and_a_finished_one_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        epochs: 1,
        ..config(dir.path(), &dir.path().join("run"))
    };
    // There is nothing to resume yet: the run begins.
    let (first, recorded) = run(&config, true, End::Never);
    assert_eq!(
        (recorded.losses.len() as u64, recorded.resumed_at),
        (STEPS_PER_EPOCH, None)
    );
    let (again, recorded) = run(&config, true, End::Never);
    assert!(recorded.losses.is_empty());
    assert_eq!(again.unwrap(), first.unwrap());
    let message = run(&config, false, End::Never).0.unwrap_err().to_string();
    assert!(
        message.contains("there is a run in this folder; resume it"),
        "{message}"
    );
    fs::remove_file(config.run_dir.join("run.json")).unwrap();
    let message = run(&config, true, End::Never).0.unwrap_err().to_string();
    for part in [
        "run.json: missing, and yet a run has written here: checkpoints, metrics.jsonl, model.safetensors",
        "restore run.json from a copy, move the rest out of the folder, or give another name",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn results_without_their_record_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = TrainConfig {
        epochs: 1,
        ..config(dir.path(), &dir.path().join("run"))
    };
    for name in [
        "model.safetensors",
        "summary.json",
        "summary.txt",
        "metrics.jsonl",
        "profiler-output",
    ] {
        let path = config.run_dir.join(name);
        fs::create_dir_all(&config.run_dir).unwrap();
        fs::write(&path, "precious").unwrap();
        for resuming in [false, true] {
            let error = run(&config, resuming, End::Never).0.unwrap_err();
            let said = format!("run.json: missing, and yet a run has written here: {name};");
            assert!(error.is_input() && error.to_string().contains(&said), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"precious");
            assert!(!config.run_dir.join("run.json").exists());
        }
        fs::remove_dir_all(&config.run_dir).unwrap();
    }
    // Other files are no run's.
    fs::create_dir_all(config.run_dir.join("checkpoints")).unwrap();
    fs::write(config.run_dir.join("notes.txt"), "precious").unwrap();
    run(&config, false, End::Never).0.unwrap();
    assert_eq!(fs::read(config.run_dir.join("notes.txt")).unwrap(), b"precious");
}

#[test]
fn a_summary_that_cannot_be_read_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = config(dir.path(), &dir.path().join("run"));
    let path = config.run_dir.join("summary.json");
    let damage = |bytes: &[u8], end| {
        fs::write(&path, bytes).unwrap();
        let (summary, recorded) = run(&config, true, end);
        assert!(recorded.resumed_at.is_some());
        let said = &recorded.warnings[0];
        assert!(
            said.contains("summary.json: not of the form") && said.contains("writes it again"),
            "{said}"
        );
        let summary = summary.unwrap();
        let written = RunFolder::new(&config.run_dir).read_summary().unwrap();
        assert_eq!(written.as_ref(), Some(&summary));
        summary
    };
    assert!(run(&config, false, End::AfterStep(1)).0.unwrap().interrupted);
    assert!(damage(b"", End::AfterStep(2)).interrupted);
    assert!(!damage(b"{\"run_dir\": \xff", End::Never).interrupted);
    let (metrics, model) = computed(&config);
    // A finished run has nothing left to do but this.
    damage(b"{}", End::Never);
    assert!(computed(&config) == (metrics, model));
}
