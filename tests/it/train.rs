//! `stokehold train`: bad input and its messages, exit codes, and an interruption.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The folder of bad and unusual files.
fn hostile(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile").join(name)).unwrap()
}

/// A data set of two classes in `train` and `val`, with the files of `more` in class `a` as well.
fn data_set(more: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (folder, names) in [
        ("train/a", &["small.jpg", "grey.jpg"]),
        ("train/b", &["small.webp", "png-called.jpg"]),
        ("val/a", &["small.jpg", "grey.jpg"]),
        ("val/b", &["small.webp", "png-called.jpg"]),
    ] {
        let folder = dir.path().join("data").join(folder);
        fs::create_dir_all(&folder).unwrap();
        for name in names {
            fs::write(folder.join(name), hostile(name)).unwrap();
        }
    }
    for name in more {
        fs::write(dir.path().join("data/train/a").join(name), hostile(name)).unwrap();
    }
    dir
}

/// A quick run on the folder `data`.
pub(crate) const QUICK: [&str; 8] = [
    "train",
    "data",
    "--image-size",
    "32",
    "--batch-size",
    "2",
    "--ceiling-batches",
    "0",
];

/// A quick run on `data` below `dir`, with more options.
fn command(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command.args(QUICK).args(more).current_dir(dir);
    if !more.contains(&"--epochs") {
        command.args(["--epochs", "1"]);
    }
    command
}

fn train(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(dir, more).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn what_cannot_be_decoded_is_left_out_by_name() {
    let names = ["empty.jpg", "text.jpg", "truncated.jpg", "truncated.png"];
    let dir = data_set(&names);
    let (code, said) = train(dir.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    for (name, reason) in [
        ("empty.jpg", "the file is empty (0 bytes)"),
        (
            "text.jpg",
            "not an image: the content is neither JPEG, PNG nor WebP",
        ),
        ("truncated.jpg", "truncated JPEG"),
        ("truncated.png", "PNG: "),
    ] {
        let line = said
            .lines()
            .find(|line| line.contains(&format!("train/a/{name}: ")));
        assert!(
            line.is_some_and(|line| line.contains(reason)),
            "{name}: {reason} in\n{said}"
        );
    }
}

#[test]
fn unusual_files_train() {
    let names = [
        "cmyk.jpg",
        "sixteen-bit.png",
        "palette-alpha.png",
        "exif-6.jpg",
        "one-pixel.png",
        "wide.png",
    ];
    let dir = data_set(&names);
    for more in [
        &["--bad-images", "error"][..],
        &[
            "--bad-images",
            "error",
            "--executor",
            "per-op",
            "--exif",
            "--name",
            "b",
        ],
    ] {
        let (code, said) = train(dir.path(), more);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn bad_images_end_the_run_where_that_is_asked_for() {
    let dir = data_set(&["empty.jpg", "text.jpg"]);
    let (code, said) = train(dir.path(), &["--bad-images", "error"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error: data/train/a/"), "{said}");
    let (code, said) = train(dir.path(), &["--bad-image-limit", "1", "--name", "b"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("error: more than 1 bad images, the last one data/train/a/"),
        "{said}"
    );
    assert!(said.contains("repair the data set or raise the limit"), "{said}");
}

#[test]
fn the_run_says_which_executor_it_chose() {
    let dir = data_set(&[]);
    let options = ["--executor", "auto", "--device", "cpu", "--name", "chosen"];
    let (code, said) = train(dir.path(), &options);
    assert_eq!(code, Some(0), "{said}");
    let why = "the run trains on the CPU";
    assert!(
        said.contains(&format!("the executor fused performs the pipeline: {why}")),
        "{said}"
    );
    let record = fs::read(dir.path().join("runs/chosen/run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["config"]["executor"], "auto");
    assert_eq!(
        record["executor"],
        serde_json::json!({"executor": "fused", "why": why})
    );
}

#[test]
fn folders_that_are_no_data_set_are_refused() {
    let dir = TempDir::new().unwrap();
    let (code, said) = train(dir.path(), &[]);
    assert_eq!(code, Some(2));
    assert_eq!(
        said,
        "error: data: no such folder; check the path of the data set\n"
    );
    fs::create_dir(dir.path().join("data")).unwrap();
    let (code, said) = train(dir.path(), &[]);
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: data: no class folder in it"), "{said}");
    fs::write(dir.path().join("data/metrics.jsonl"), "").unwrap();
    let (code, said) = train(dir.path(), &["--resume"]);
    assert_eq!(code, Some(2));
    assert!(
        said.starts_with("error: data: this run has no run.json"),
        "{said}"
    );
    fs::remove_file(dir.path().join("data/metrics.jsonl")).unwrap();
    fs::write(dir.path().join("data/1.jpg"), hostile("small.jpg")).unwrap();
    let (code, said) = train(dir.path(), &[]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("it has no class folders; move the images of each class into a folder"),
        "{said}"
    );
    fs::create_dir_all(dir.path().join("data/empty")).unwrap();
    fs::create_dir_all(dir.path().join("data/full")).unwrap();
    fs::rename(dir.path().join("data/1.jpg"), dir.path().join("data/full/1.jpg")).unwrap();
    let (code, said) = train(dir.path(), &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("no image in the class folder empty"), "{said}");
}

#[test]
fn an_emulated_accelerator_takes_the_stated_time_and_trains_nothing() {
    let dir = data_set(&[]);
    let options = [
        "--trainer",
        "emulated",
        "--images-per-second",
        "50",
        "--epochs",
        "2",
        "--name",
        "r",
    ];
    let begin = std::time::Instant::now();
    let (code, said) = train(dir.path(), &options);
    assert_eq!(code, Some(0), "{said}");
    assert!(begin.elapsed().as_secs_f64() >= 8.0 / 50.0);
    assert!(!said.contains("loss"), "{said}");
    let run = dir.path().join("runs/r");
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["device"], "Emulated(50 images/s)");
    assert_eq!(summary["emulated"]["images"], 8);
    let busy = summary["emulated"]["busy_seconds"].as_f64().unwrap();
    assert!((busy - 8.0 / 50.0).abs() < 1e-6, "{busy}");
    for nothing in ["train_loss", "validation", "best"] {
        assert!(summary[nothing].is_null(), "{nothing}");
    }
    assert!(!run.join("model.safetensors").exists());
    let checkpoints = fs::read_dir(run.join("checkpoints")).map_or(0, Iterator::count);
    assert_eq!(checkpoints, 0);
}

#[test]
fn options_out_of_range_say_what_is_allowed() {
    let dir = data_set(&[]);
    fs::write(dir.path().join("weights"), "a/grey.jpg 2\n").unwrap();
    for (options, expected) in [
        (&["--epochs", "0"][..], "epochs: must be at least 1"),
        (
            &["--model", "vgg16"],
            "choose one of resnet18, resnet34, resnet50, resnet101, resnet152",
        ),
        (&["--lr", "-1"], "learning rate: must be above 0"),
        (
            &["--label-smoothing", "1"],
            "label smoothing: must be 0 up to below 1",
        ),
        (
            &["--trainer", "emulated"],
            "give its speed, by --accelerator NAME",
        ),
        (
            &["--trainer", "emulated", "--accelerator", "TPU"],
            "choose one of V100, RTX3090, V100-AMP, A100, H100",
        ),
        (
            &["--trainer", "emulated", "--accelerator", "H100", "--share", "2"],
            "--share 2: give a number above 0, at most 1",
        ),
        (
            &[
                "--trainer",
                "emulated",
                "--images-per-second",
                "9",
                "--executor",
                "gpu",
            ],
            "executor: must not be gpu where the accelerator is emulated",
        ),
        (
            &["--accelerator", "H100"],
            "are for --trainer emulated; give that too",
        ),
        (
            &["--trainer", "emulated", "--images-per-second", "0"],
            "images per second of the emulated accelerator: must be 1 to 1000000",
        ),
        (
            &["--executor", "dali"],
            "there are per-op, fused and gpu, and auto",
        ),
        (
            &["--executor", "gpu", "--device", "cpu"],
            "or choose the executor fused",
        ),
        (&["--gpu-decode", "nvjpeg"], "there are hybrid and device"),
        (
            &["--pipeline", "imagenet"],
            "imagenet-train, imagenet-eval, published",
        ),
        (&["--workers", "0"], "must be auto or 1 to"),
        (&["--bad-images", "ignore"], "must be error, skip or substitute"),
        (&["--no-such-option"], "unexpected argument '--no-such-option'"),
        (&["--recipe", "b"], "no recipe is called 'b'; there is"),
        (
            &["--ema-decay", "1"],
            "decay of the moving average: must be 0 up to below 1",
        ),
        (&["--ema-steps", "4"], "--ema-decay <DECAY>"),
        (
            &["--ema-decay", "0.9", "--ema-steps", "0"],
            "steps between two averages: must be at least 1",
        ),
        (
            &["--mixup-alpha", "0.2", "--aug-repeats", "2"],
            "batch size: must be above --aug-repeats",
        ),
        (
            &[
                "--cutmix-alpha",
                "1",
                "--trainer",
                "emulated",
                "--images-per-second",
                "9",
            ],
            "MixUp and CutMix: need a real trainer",
        ),
        (
            &["--optimizer", "adamw", "--momentum", "0.9"],
            "--momentum and --nesterov are for --optimizer sgd",
        ),
        (
            &["--precision", "f16", "--device", "cpu"],
            "precision: f16 is not for the CPU; choose f32 or bf16 there",
        ),
        (&["--aug-repeats", "0"], "invalid value '0'"),
        (&["--class-balanced", "--aug-repeats", "2"], "cannot be used with"),
        (&["--sample-weights", "missing"], "missing: cannot be read"),
        (
            &["--sample-weights", "weights"],
            "weights: the training image 'a/small.jpg' has no weight; give it one, 0 for never",
        ),
        (
            &["--subset", "weights"],
            "weights: line 1: there is no training image 'a/grey.jpg 2'",
        ),
        (
            &["--auto-augment", "rand-augment", "--ra-magnitude", "31"],
            "magnitude = 31",
        ),
        (&["--ra-magnitude", "3"], "is for --auto-augment rand-augment"),
        (&["--random-erase", "2"], "RandomErasing"),
        (
            &["--auto-augment", "trivial-augment", "--load", "1"],
            "are for --pipeline imagenet-train",
        ),
    ] {
        let (code, said) = train(dir.path(), options);
        assert_eq!(code, Some(2), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    }
    assert!(!dir.path().join("runs").exists(), "a refused run leaves nothing");
}

/// The run says what the recipe sets, and its average is a model of its own.
#[test]
fn a_recipe_sets_what_the_command_line_leaves_open() {
    let dir = data_set(&[]);
    let options = [
        "--recipe",
        "torchvision",
        "--model",
        "resnet18",
        "--aug-repeats",
        "1",
        "--eval-size",
        "64",
        "--lr",
        "0.01",
        "--name",
        "r",
    ];
    let (code, said) = train(dir.path(), &options);
    assert_eq!(code, Some(0), "{said}");
    let mut lines = said.lines();
    for part in [
        "the recipe torchvision sets --auto-augment trivial-augment --random-erase 0.1 --optimizer sgd --weight-decay 0.00002",
        "  the command line replaces --model, --image-size, --eval-size, --eval-resize by --eval-size",
        "  different from the original: ",
    ] {
        assert!(
            lines.next().is_some_and(|line| line.starts_with(part)),
            "{part} in {said}"
        );
    }
    assert!(said.contains("of the average"), "{said}");
    let run = dir.path().join("runs/r");
    let record: serde_json::Value = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
    assert_eq!(record["config"]["lr"], 0.01);
    assert_eq!(record["config"]["undecayed"], "norm");
    assert_eq!(record["config"]["ema"]["decay"], 0.99998);
    let weights = |name: &str| fs::read(run.join(name)).unwrap();
    assert!(weights("ema.safetensors") != weights("model.safetensors"));
    let predicted = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["predict", "runs/r/ema.safetensors", "data/val/a"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(predicted.status.success(), "{predicted:?}");
}

/// A device that is not there is an error before anything is made; which one depends on the build.
#[cfg(not(feature = "cuda"))]
#[test]
fn a_missing_device_is_an_error() {
    let dir = data_set(&[]);
    let (code, said) = train(dir.path(), &["--device", "cuda"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("device cuda is not compiled in: build with `cargo build --release --features cuda`"),
        "{said}"
    );
}

#[test]
fn weights_of_another_network_are_refused_by_key_and_shape() {
    let dir = data_set(&[]);
    let (code, said) = train(dir.path(), &["--name", "small"]);
    assert_eq!(code, Some(0), "{said}");
    let weights = [
        "--weights",
        "runs/small/model.safetensors",
        "--model",
        "resnet50",
        "--name",
        "large",
    ];
    let (code, said) = train(dir.path(), &weights);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("layer1.0.conv1.weight") && said.contains("[64, 64, 1, 1]"),
        "{said}"
    );
    assert!(said.contains("layer1.0.conv3.weight"), "{said}");
}

/// Ctrl-C finishes the step and writes a checkpoint; the resumed run ends where an uninterrupted one does.
#[test]
fn an_interrupted_run_says_how_to_go_on_and_ends_the_same() {
    let dir = data_set(&[]);
    let options = |name| {
        [
            "--epochs",
            "3",
            "--lr",
            "0.001",
            "--log-every",
            "1",
            "--name",
            name,
        ]
    };
    let mut child = command(dir.path(), &options("the first $cut"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first_step = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("step 1 ")));
    assert!(first_step.is_some(), "the run logs its first step");
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    // What is printed is a command that a shell takes as it is.
    let command = rest
        .iter()
        .find_map(|line| line.strip_prefix("interrupted; this continues the run: "));
    let resumed = Command::new("sh")
        .args(["-c", command.unwrap_or_else(|| panic!("{rest:?}"))])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{said}");
    assert!(said.contains("continues after step"), "{said}");
    assert_eq!(train(dir.path(), &options("whole")).0, Some(0));
    let model = |name: &str| fs::read(dir.path().join("runs").join(name).join("model.safetensors")).unwrap();
    assert!(
        model("the first $cut") == model("whole"),
        "the interrupted run's model is another one"
    );
}

/// A run that is under way keeps every other process out of its folder, and its numbers are its own.
#[test]
fn two_runs_do_not_mix_in_one_folder() {
    let dir = data_set(&[]);
    let options = ["--epochs", "100000", "--log-every", "1", "--name", "taken"];
    let mut child = command(dir.path(), &options)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("step 1 "))));
    let record = || fs::read(dir.path().join("runs/taken/run.json")).unwrap();
    let before = record();
    let first = format!("runs/taken: process {} on ", child.id());
    let resuming = [&options[..], &["--resume"]].concat();
    let refused = [&options[..], &resuming].map(|options| train(dir.path(), options));
    child.kill().unwrap();
    child.wait().unwrap();
    for (code, said) in refused {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&first) && said.contains(", since 20"), "{said}");
        assert!(said.contains("wait until it ends"), "{said}");
    }
    assert!(record() == before);
    // The lock goes with the process, killed as it was.
    let (code, said) = train(dir.path(), &options);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("resume it, or give another name (--resume, --name)"),
        "{said}"
    );
}
