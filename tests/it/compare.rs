//! `stokehold compare`: what it writes, what it does not repeat, what it refuses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use jpeg_encoder::{ColorType, Encoder};
use serde_json::Value;
use tempfile::TempDir;

/// The exit code of a call that was given something wrong.
const WRONG: i32 = 2;

/// Two classes with four training images and two validation images each, 40x32 pixels.
fn data_set() -> TempDir {
    let dir = TempDir::new().unwrap();
    for (part, images) in [("train", 4), ("val", 2)] {
        for (class, tint) in [("cold", 40u8), ("warm", 200)] {
            let folder = dir.path().join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for image in 0..images {
                let pixels: Vec<u8> = (0..40 * 32 * 3)
                    .map(|i| tint.wrapping_add((i * (image + 3) % 37) as u8))
                    .collect();
                let mut bytes = Vec::new();
                let encoder = Encoder::new(&mut bytes, 90);
                encoder.encode(&pixels, 40, 32, ColorType::Rgb).unwrap();
                fs::write(folder.join(format!("{image}.jpg")), bytes).unwrap();
            }
        }
    }
    dir
}

fn compare(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("compare")
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// A comparison of one step an epoch.
fn tiny<'a>(epochs: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![".", "--out", "out", "--epochs", epochs];
    arguments.extend([
        "--batch-size",
        "8",
        "--image-size",
        "64",
        "--workers",
        "1",
        "--device",
        "cpu",
    ]);
    arguments.extend(more);
    arguments
}

/// A comparison that is under way, to be read and stopped.
fn started(dir: &Path, arguments: &[&str]) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("compare")
        .args(arguments)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines.map(|line| line.unwrap()))
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// The message of a call that is refused before anything is trained or written.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = compare(dir, arguments);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(WRONG), "{stderr}");
    assert_eq!(stdout, "");
    assert!(!dir.join("compare").exists());
    // The terminal's width decides where the message is wrapped.
    stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn cells_are_compared_written_and_not_repeated() {
    let data = data_set();
    let arguments = tiny("1", &["--loads", "0,2"]);
    let output = compare(data.path(), &arguments);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(
        table.contains("model     load  A s/epoch  B s/epoch  better by  told apart\nresnet18     0 "),
        "{table}"
    );
    assert!(table.contains("\nresnet18  A per-op     2 "), "{table}");
    assert!(
        table.contains("8 training images") && table.contains("4 for validation"),
        "{table}"
    );
    assert_eq!(
        progress.matches("  epoch 1/1: ").count(),
        4,
        "two cells of two runs: {progress}"
    );

    let out = data.path().join("out");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("compare.json")).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let [a, b] = [&cell["trials"][0], &cell["trials"][1]];
        assert_eq!(
            (&a["executor"], &b["executor"]),
            (&"per-op".into(), &"fused".into())
        );
        assert_eq!(
            (&a["cpu_time"]["images"], &b["cpu_time"]["images"]),
            (&8.into(), &8.into())
        );
        let [a, b] = [a, b].map(|trial| trial["summary"]["train_loss"].as_f64().unwrap());
        assert!((a - b).abs() < 0.1 * a, "equal work learns alike: {a} and {b}");
    }
    assert_eq!(read("compare.csv").lines().count(), 3);
    assert!(read("compare.md").contains("| model | load | A s/epoch | B s/epoch | better by | told apart |"));
    let page = read("compare.html");
    assert_eq!(
        page.matches("class=\"strip\"").count(),
        4,
        "every run has its cores"
    );
    assert!(!out.join("runs/resnet18-load2-b/checkpoints").exists());
    assert!(
        out.join("runs/resnet18-load2-b/profiler-output/framework")
            .exists()
    );

    // Again, and one cell more: only that one is trained.
    let output = compare(data.path(), &tiny("1", &["--loads", "0,1,2"]));
    let (again, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert_eq!(progress.matches("  epoch 1/1: ").count(), 2, "{progress}");
    let row = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("resnet18     2 "))
            .unwrap()
            .to_owned()
    };
    assert_eq!(row(&again), row(&table));

    // In another place too, with the cores of all runs.
    let moved = data.path().join("moved");
    fs::rename(&out, &moved).unwrap();
    let mut there = arguments.clone();
    there[2] = "moved";
    let output = compare(data.path(), &there);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    let page = fs::read_to_string(moved.join("compare.html")).unwrap();
    assert_eq!(page.matches("class=\"strip\"").count(), 4);
    fs::rename(&moved, &out).unwrap();

    // Other settings would be other numbers.
    let output = compare(
        data.path(),
        &tiny("1", &["--loads", "0", "--lr", "0.5", "--seed", "3"]),
    );
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(WRONG), "{message}");
    assert!(
        message.contains("lr was 0.001 and is 0.5 now; seed was 0 and is 3 now"),
        "{message}"
    );
    assert!(
        message.contains("give its own settings, or another --out"),
        "{message}"
    );

    fs::remove_file(data.path().join("train/warm/3.jpg")).unwrap();
    let output = compare(data.path(), &arguments);
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(WRONG), "{message}");
    assert!(
        message.contains("the images of the data set are other ones"),
        "{message}"
    );
}

#[test]
fn an_emulated_accelerator_is_named_in_every_heading() {
    let data = data_set();
    let share = |share| {
        let emulated = ["--trainer", "emulated", "--accelerator", "V100"];
        tiny(
            "1",
            &[&["--loads", "0", "--share", share], &emulated[..]].concat(),
        )
    };
    let output = compare(data.path(), &share("0.5"));
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    let label = "0.5 of the speed of V100: resnet18, f32, 222 images/s";
    assert!(
        table.contains("Emulated: nothing is trained;") && table.contains(label),
        "{table}"
    );
    assert!(!progress.contains("loss"), "{progress}");
    let out = data.path().join("out");
    for file in ["compare.md", "compare.html", "compare.json"] {
        let text = fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains("222 images/s"), "{file}");
    }
    // Another accelerator would be other numbers.
    let message = refused(data.path(), &share("0.25"));
    assert!(message.contains("emulated"), "{message}");
}

#[test]
fn what_is_not_the_comparisons_own_is_neither_used_nor_removed() {
    let data = data_set();
    let out = data.path().join("out");
    // The user's own folder.
    fs::create_dir_all(out.join("warm-up")).unwrap();
    fs::write(out.join("warm-up/mine.txt"), "mine").unwrap();
    let arguments = tiny("1", &["--loads", "0"]);
    let message = refused(data.path(), &arguments);
    assert!(
        message.contains("out: holds warm-up and no comparison; give a new folder"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(out.join("warm-up/mine.txt")).unwrap(), "mine");
    fs::remove_dir_all(&out).unwrap();

    // A run of the same name that was trained otherwise, with its model.
    let output = compare(data.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    let run = out.join("runs/resnet18-load0-a");
    fs::write(run.join("model.safetensors"), "a model").unwrap();
    let record = run.join("run.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["config"]["epochs"] = 3.into();
    fs::write(&record, other.to_string()).unwrap();
    let message = refused(data.path(), &arguments);
    assert!(
        message.contains("resnet18-load0-a: this run is not one of this comparison: epochs"),
        "{message}"
    );
    fs::remove_file(&record).unwrap();
    let message = refused(data.path(), &arguments);
    assert!(
        message.contains("its settings are not recorded; remove it"),
        "{message}"
    );
    assert!(run.join("model.safetensors").exists());
    fs::write(&record, text).unwrap();
    let output = compare(data.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
}

#[test]
fn an_interrupted_cell_goes_on_from_its_checkpoint() {
    let data = data_set();
    // Of the first run's many epochs at least one is over when the signal comes, and not all.
    let arguments = tiny("200", &["--loads", "1"]);
    let (mut child, mut lines) = started(data.path(), &arguments);
    assert!(lines.any(|line| line.starts_with("  epoch 1/200: ")));
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(
        rest.iter()
            .any(|line| line.contains("the same command again goes on from here")),
        "{rest:?}"
    );

    let run = data.path().join("out/runs/resnet18-load1-a");
    let summary: Value = serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["interrupted"], true);
    let steps = summary["steps"].as_u64().unwrap();
    assert!((1..200).contains(&steps), "{steps}");

    let (mut child, mut lines) = started(data.path(), &arguments);
    let goes_on = lines.find(|line| line.contains("goes on after step"));
    let expected = format!("cell 1/1: resnet18, load 1, A per-op: goes on after step {steps}");
    assert_eq!(goes_on, Some(expected));
    // Nobody else works in the folder meanwhile.
    let (_, said) = texts(&compare(data.path(), &arguments));
    assert!(
        said.contains(&format!("out: process {} on ", child.id())),
        "{said}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_folder_of_classes_alone_is_split() {
    let data = data_set();
    fs::remove_dir_all(data.path().join("val")).unwrap();
    let output = compare(
        data.path(),
        &tiny(
            "1",
            &["--loads", "0", "--trials", "fused,fused", "--max-images", "4"],
        ),
    );
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    // Of 8 images 2 are split off; 4 of 6 are used, and as large a share of the 2.
    assert!(
        table.contains("4 training images") && table.contains("2 for validation"),
        "{table}"
    );
    assert!(
        table.contains("Both trials are the same, so every difference above is noise"),
        "{table}"
    );
    let losses: Vec<&str> = table
        .lines()
        .filter(|line| line.contains(" fused  "))
        .map(|line| line.rsplit("  ").nth(1).unwrap())
        .collect();
    assert!(
        losses.len() == 2 && losses[0] == losses[1],
        "the same run twice: {table}"
    );
}

#[test]
fn wrong_options_say_what_is_allowed() {
    let data = data_set();
    for (arguments, expected) in [
        (
            ["--models", "resnet18,vgg"],
            "there is no model 'vgg': choose one of resnet18, resnet34",
        ),
        (
            ["--trials", "fused"],
            "1 trials: give two, A and B, each per-op, fused or gpu",
        ),
        (["--trials", "per-op,dali"], "dali"),
        (["--trials", "per-op,auto"], "no executor is called 'auto'"),
        (["--trials", "per-op,gpu"], "the executor gpu: "),
        (["--loads", "1,2000"], "2000 is not in 0..=1000"),
        (["--loads", "1,many"], "invalid value 'many' for '--loads <N,..>'"),
        (["--workers", "0"], "must be auto or 1 to 1024"),
        (
            ["--image-size", "16"],
            "pipeline: makes images of 16x16; the networks need 32x32 or more",
        ),
        (["--epochs", "0"], "epochs: must be at least 1"),
        (["--batch-size", "0"], "batch size: must be at least 1"),
        (["--lr", "0"], "learning rate: must be above 0"),
        (["--max-images", "0"], "0 is not in 1.."),
        (
            ["--device", "tpu"],
            "there is no device 'tpu': choose one of auto, cpu, cuda, vulkan",
        ),
        (["--colour", "red"], "--colour"),
    ] {
        let message = refused(data.path(), &[&["."], &arguments[..]].concat());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    let message = refused(data.path(), &["nowhere"]);
    assert!(message.contains("nowhere: no such folder"), "{message}");
    if !cfg!(feature = "cuda") {
        let message = refused(data.path(), &[".", "--device", "cuda"]);
        assert!(message.contains("cuda is not compiled in"), "{message}");
    }
}
