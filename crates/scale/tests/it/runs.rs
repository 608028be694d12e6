//! Recorded runs, written as files.

use std::fs;
use std::path::Path;

use stokehold_profile::{FOLDER, Span, events, span};
use stokehold_scale::{Run, Settings};

const BEGIN: f64 = 1_767_225_600.0;

/// A span of the trainer.
struct At(&'static str, f64, f64, Option<u64>);

fn record(folder: &Path, spans: &[At]) {
    let options = events::Options::new(BEGIN);
    let mut writer = events::Writer::new(&folder.join(FOLDER), options);
    for &At(name, start, duration, step) in spans {
        let bytes = (name == span::READ).then_some(50_000);
        let worker = (name == span::READ).then_some(1);
        let start = BEGIN + start;
        writer
            .write(
                name,
                &Span {
                    name: 0,
                    start,
                    duration,
                    step,
                    worker,
                    bytes,
                },
            )
            .unwrap();
    }
    writer.finish().unwrap();
}

/// Steps of 100 ms after `wait` s of waiting, and 10 ms between two of them; the first takes a second.
fn steps(count: u64, wait: f64) -> Vec<At> {
    let mut now = 0.0;
    let mut spans = Vec::new();
    for step in 1..=count {
        let seconds = if step == 1 { 1.0 } else { 0.1 };
        spans.push(At(span::WAIT, now, wait, Some(step)));
        spans.push(At(span::READ, now, 0.001, Some(step)));
        spans.push(At(span::STEP, now + wait, seconds, Some(step)));
        now += wait + seconds + 0.01;
    }
    spans
}

const SAID: Settings = Settings {
    images: Some(1000),
    batch: Some(10),
    parameters: Some(1000),
    loader_rate: None,
    image_bytes: None,
    overlap: None,
};

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
}

#[test]
fn a_script_is_read_by_its_steps() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &steps(40, 0.001));
    let run = Run::read(dir.path(), &SAID).unwrap();
    assert_eq!(run.step_seconds.len(), 35);
    run.step_seconds.iter().for_each(|&step| close(step, 0.1));
    close(run.between_seconds, 0.01);
    assert_eq!((run.loader_rate, run.checkpoints, run.prefetch), (None, None, 2));
    assert!(run.overlap, "PyTorch's DistributedDataParallel overlaps");
    assert_eq!(run.image_bytes, Some(50_000.0));
    let said = Settings {
        overlap: Some(false),
        loader_rate: Some(7.0),
        image_bytes: Some(3.0),
        ..SAID
    };
    let run = Run::read(dir.path(), &said).unwrap();
    assert_eq!(
        (run.overlap, run.loader_rate, run.image_bytes),
        (false, Some(7.0), Some(3.0))
    );

    let error = Run::read(dir.path(), &Settings::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "the recording does not say how many images an epoch has, how many images a step has, how many parameters are trained"
        ),
        "{error}"
    );
}

#[test]
fn a_run_that_waited_had_all_that_its_loader_makes() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &steps(40, 0.09));
    let run = Run::read(dir.path(), &SAID).unwrap();
    close(10.0 / run.loader_rate.unwrap(), 0.2);
}

#[test]
fn checkpoints_are_counted_by_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let mut spans = steps(50, 0.001);
    let last = spans.last().unwrap();
    let end = last.1 + 0.1;
    spans.push(At(span::CHECKPOINT, end, 2.0, Some(50)));
    record(dir.path(), &spans);
    // 50 of 100 steps an epoch, and one checkpoint in them.
    let checkpoints = Run::read(dir.path(), &SAID).unwrap().checkpoints.unwrap();
    close(checkpoints.per_epoch, 2.0);
    close(checkpoints.seconds, 2.0);
}

const RECORD: &str = r#"{"config": {"batch_size": 16, "prefetch": 3, "drop_last": false, "freeze_backbone": false,
    "keep_checkpoints": 1, "checkpoint_steps": 4}, "dataset": {"train": 150}}"#;

/// A file of safetensors with 2 x 3 and 4 numbers that are trained.
fn model(path: &Path) {
    let head = br#"{"__metadata__":{},"conv.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"fc.bias":{"dtype":"F32",
        "shape":[4],"data_offsets":[24,40]},"bn.running_mean":{"dtype":"F32","shape":[9],"data_offsets":[40,76]}}"#;
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(head);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_run_of_stokehold_says_all_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut spans = steps(40, 0.001);
    spans.push(At(span::CHECKPOINT, 10.0, 0.5, Some(40)));
    record(dir.path(), &spans);
    fs::write(dir.path().join("run.json"), RECORD).unwrap();
    let read = || Run::read(dir.path(), &Settings::default());
    let error = read().unwrap_err().to_string();
    assert!(
        error.ends_with("does not say how many parameters are trained"),
        "{error}"
    );
    let checkpoint = dir.path().join("checkpoints/epoch-0001-step-00000010");
    fs::create_dir_all(&checkpoint).unwrap();
    model(&checkpoint.join("model.safetensors"));
    let run = read().unwrap();
    assert_eq!(
        (run.images, run.batch, run.parameters, run.prefetch),
        (150, 16, 10, 3)
    );
    assert!(!run.overlap, "Stokehold reduces after the backward pass");
    // 10 steps an epoch, the last of 6 images: steps 10, 20, 30 and 40 are left out, and the first 5.
    assert_eq!(run.step_seconds.len(), 32 - 1);
    close(run.checkpoints.unwrap().per_epoch, 3.0);
    // A folder within is the same run.
    assert_eq!(
        Run::read(&dir.path().join(FOLDER), &Settings::default()).unwrap(),
        run
    );

    // Of a frozen backbone only a part is trained.
    let frozen = RECORD.replace("\"freeze_backbone\": false", "\"freeze_backbone\": true");
    fs::write(dir.path().join("run.json"), frozen).unwrap();
    assert!(read().unwrap_err().to_string().contains("parameters"));
    fs::write(dir.path().join("run.json"), "[]").unwrap();
    let error = read().unwrap_err().to_string();
    assert!(error.contains("run.json: not the record of a run"), "{error}");
}

#[test]
fn ranks_are_read_together_without_waits_and_reduce() {
    let dir = tempfile::tempdir().unwrap();
    let ranks = |computing: f64| {
        let mut spans = Vec::new();
        for step in 1..=20 {
            let (begin, number) = (step as f64, Some(step));
            // Two pieces, and then the others.
            spans.push(At(span::STEP, begin, computing, number));
            spans.push(At(span::WAIT, begin + computing, 0.001, number));
            spans.push(At(span::STEP, begin + computing + 0.001, computing, number));
            spans.push(At(span::RANKS_WAIT, begin + 0.5, 0.2, number));
            spans.push(At(span::REDUCE, begin + 0.7, 0.2, number));
        }
        spans
    };
    record(dir.path(), &ranks(0.1));
    record(&dir.path().join("ranks/1"), &ranks(0.2));
    let with = |ranks: &str| {
        let text = RECORD.replace("\"dataset\"", &format!("\"ranks\": {ranks}, \"dataset\""));
        fs::write(dir.path().join("run.json"), text).unwrap();
        let settings = Settings {
            parameters: Some(5),
            ..Settings::default()
        };
        Run::read(dir.path(), &settings).unwrap()
    };
    let run = with("[{}, {}]");
    assert_eq!((run.batch, run.step_seconds.len()), (8, 26));
    let (short, long): (Vec<f64>, Vec<f64>) = run.step_seconds.iter().partition(|&&step| step < 0.3);
    assert_eq!((short.len(), long.len()), (13, 13));
    close(short[0], 0.2);
    close(long[0], 0.4);
    // One rank sums with no one: reduce is the update of its weights.
    let run = with("[]");
    close(run.step_seconds[0], 0.4);
}

#[test]
fn what_no_prediction_can_be_made_from_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let said = |folder: &Path| Run::read(folder, &SAID).unwrap_err().to_string();
    assert!(said(dir.path()).contains("nothing below it"));
    record(dir.path(), &steps(14, 0.0));
    let error = said(dir.path());
    assert!(
        error.contains("9 steps are not enough") && error.contains("record a longer run"),
        "{error}"
    );

    let none = dir.path().join("none");
    record(&none, &[At("phase", 0.0, 1.0, None)]);
    let error = said(&none);
    assert!(
        error.contains("0 steps") && error.contains("timeline.md"),
        "{error}"
    );

    let two = dir.path().join("two");
    let mut spans = steps(20, 0.0);
    spans.extend(steps(20, 0.003));
    record(&two, &spans);
    let error = said(&two);
    assert!(error.contains("several processes"), "{error}");
}
