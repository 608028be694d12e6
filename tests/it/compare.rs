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

/// Two classes with four training images each, 40x32 pixels.
fn data_set() -> TempDir {
    data_set_of(40, 32)
}

/// As [`data_set`], of another size.
fn data_set_of(width: u16, height: u16) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (part, images) in [("train", 4), ("val", 2)] {
        for (class, tint) in [("cold", 40u8), ("warm", 200)] {
            let folder = dir.path().join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for image in 0..images {
                let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * 3)
                    .map(|i| tint.wrapping_add((i * (image + 3) % 37) as u8))
                    .collect();
                let mut bytes = Vec::new();
                let encoder = Encoder::new(&mut bytes, 90);
                encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
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

/// A comparison whose rounds are short: two steps of four images.
fn tiny<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![
        ".",
        "--out",
        "out",
        "--batch-size",
        "4",
        "--image-size",
        "64",
        "--workers",
        "1",
    ];
    arguments.extend(["--round", "0.05", "--models", "resnet18"]);
    if !more.contains(&"--time-limit") {
        arguments.extend(["--time-limit", "0.5"]);
    }
    arguments.extend(more);
    arguments
}

/// As [`tiny`], on an emulated accelerator that is never the limit.
fn emulated<'a>(more: &[&'a str]) -> Vec<&'a str> {
    tiny(&[&["--images-per-second", "100000"], more].concat())
}

fn json(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("out/compare.json")).unwrap()).unwrap()
}

/// A comparison that is under way, to be read and stopped.
fn started(dir: &Path, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
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
    let data = data_set_of(400, 300);
    // As many rounds as a busy machine needs.
    let of_loads = |loads| emulated(&["--loads", loads, "--precision", "50", "--time-limit", "8"]);
    let arguments = of_loads("0,20");
    let output = compare(data.path(), &arguments);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(
        table.contains("model     load  A       s/epoch  B      s/epoch  better by")
            && !table.contains("Published:"),
        "{table}"
    );
    assert!(
        table.contains("8 images of") && table.contains("Emulated: nothing is trained"),
        "{table}"
    );
    assert!(table.contains("100000 images/s"), "{table}");
    let judged = table
        .lines()
        .find(|line| line.starts_with("How it is judged: "))
        .unwrap();
    assert!(
        include_str!("../../docs/guide/compare-example.txt").contains(judged),
        "docs/guide/compare-example.txt: {judged}"
    );

    let out = data.path().join("out");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let report = json(data.path());
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let [a, b] = [0, 1].map(|trial| cell["trials"][trial]["rounds"].as_array().unwrap());
        assert!(a.len() >= 6 && a.len() == b.len(), "{cell}");
        for (a, b) in a.iter().zip(b) {
            // The same images in the same order.
            assert_eq!(
                (&a["pair"], &a["labels"], &a["images"]),
                (&b["pair"], &b["labels"], &b["images"])
            );
        }
        assert!(cell["trials"][0]["summary"]["gain"].is_null());
    }
    let gain = &cells[1]["trials"][1]["summary"]["gain"];
    assert!(
        gain["low"].as_f64() <= gain["better_by"].as_f64()
            && gain["better_by"].as_f64() <= gain["high"].as_f64()
    );
    // Twenty rotations one after the other, or one: whatever else the machine does.
    assert_eq!(gain["verdict"], "faster", "{gain}");
    let work = &report["equal_work"];
    assert_eq!((&work["same_labels"], &work["load"]), (&true.into(), &20.into()));
    let losses: Vec<f64> = work["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|loss| loss.as_f64().unwrap())
        .collect();
    assert!(
        (losses[0] - losses[1]).abs() < 0.2 * losses[0],
        "equal work learns alike: {losses:?}"
    );
    assert_eq!(read("compare.csv").lines().count(), 5);
    assert!(read("compare.md").contains("| model | load | A | s/epoch | B | s/epoch | better by |"));
    let page = read("compare.html");
    assert!(page.contains("resnet18 at load 20, fused"));
    let pair = "pairs/resnet18-load20-fused/profiler-comparison.html";
    assert!(page.contains(&format!("<a href=\"{pair}\">")));
    let pair = read(pair);
    for text in [
        "Stokehold compare: resnet18 at load 20, fed to an emulated accelerator",
        "less time than per-op: ",
        "Trial A: per-op",
        "Trial B: fused",
        "fused: gpu0 is emulated. It takes batches at 100000 images per second",
        "<td data-is=\"A\">",
        "Durations of steps",
    ] {
        assert!(pair.contains(text), "{text}");
    }
    assert!(!pair.contains("not known"), "every step has its times");
    // The steps have a file of their own.
    assert!(!read("compare.json").contains("times"));
    let steps: Value = serde_json::from_str(&read("steps/resnet18-load20.json")).unwrap();
    assert_eq!(
        steps["rounds"].as_array().unwrap().len() as u64,
        2 * gain["pairs"].as_u64().unwrap()
    );

    // Again, and one cell more: only that one is measured.
    let (more, progress) = texts(&compare(data.path(), &of_loads("0,1,20")));
    assert!(progress.contains("2 of 3 cells are kept"), "{progress}");
    assert!(
        !progress.contains("cell 1/3") && progress.contains("cell 2/3: resnet18, load 1"),
        "{progress}"
    );
    assert!(
        more.contains(
            "
resnet18    20 "
        ),
        "{more}"
    );
    let (again, progress) = texts(&compare(data.path(), &arguments));
    assert!(
        progress.contains("2 of 2 cells are kept and not measured again"),
        "{progress}"
    );
    let row = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("resnet18    20 "))
            .unwrap()
            .to_owned()
    };
    // The cell of load 1 is still there.
    assert!(row(&again).starts_with(&row(&table)), "{again}");

    // Other settings would be other numbers.
    let output = compare(
        data.path(),
        &emulated(&["--loads", "0,20", "--lr", "0.5", "--seed", "3"]),
    );
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(WRONG), "{message}");
    assert!(
        message.contains("lr was 0.001 and is 0.5 now; seed was 0 and is 3 now"),
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
    let share = |share| tiny(&["--loads", "0", "--accelerator", "V100", "--share", share]);
    let output = compare(data.path(), &share("0.5"));
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    let label = "0.5 of the speed of V100: resnet18, f32, 222 images/s";
    assert!(table.contains(label), "{table}");
    let out = data.path().join("out");
    for file in ["compare.md", "compare.html", "compare.json"] {
        let text = fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains("222 images/s"), "{file}");
    }
    // The accelerator is the limit: both are as fast as it, and no difference is seen.
    let cell = &json(data.path())["cells"][0];
    for trial in cell["trials"].as_array().unwrap() {
        let speed = trial["summary"]["images_per_second"].as_f64().unwrap();
        assert!(speed < 222.0 * 1.02, "{speed}");
    }
    // Another accelerator would be other numbers.
    let output = compare(data.path(), &share("0.25"));
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(WRONG), "{message}");
    assert!(message.contains("trainer is another one"), "{message}");
}

#[test]
fn burn_is_fed_and_learns_the_same() {
    let data = data_set();
    let output = compare(
        data.path(),
        &tiny(&["--loads", "0", "--device", "cpu", "--trials", "fused,fused"]),
    );
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(table.contains("Burn trains on Flex(Cpu)"), "{table}");
    // A trial next to itself trains to the same losses.
    let cell = &json(data.path())["cells"][0];
    let losses = |trial: usize| -> Vec<f64> {
        let rounds = cell["trials"][trial]["rounds"].as_array().unwrap();
        rounds
            .iter()
            .map(|round| round["loss"].as_f64().unwrap())
            .collect()
    };
    assert_eq!(losses(0), losses(1));
}

#[test]
fn images_without_classes_feed_an_emulated_accelerator_only() {
    let data = data_set();
    let flat = data.path().join("train/cold");
    let arguments = [
        "train/cold",
        "--out",
        "out",
        "--batch-size",
        "2",
        "--round",
        "0.05",
        "--time-limit",
        "0.1",
    ];
    let cell = ["--models", "resnet18", "--loads", "1"];
    let output = compare(
        data.path(),
        &[&arguments[..], &cell, &["--images-per-second", "1000"]].concat(),
    );
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(
        table.contains("without classes there are no labels to tell more"),
        "{table}"
    );
    fs::remove_dir_all(data.path().join("out")).unwrap();
    let message = refused(
        data.path(),
        &[&arguments[..], &cell, &["--device", "cpu"]].concat(),
    );
    assert!(
        message.contains("cold: images lie directly in this folder"),
        "{message}"
    );
    drop(flat);
}

/// A program in the place of Python; returns its path.
fn program(dir: &Path, name: &str, script: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    let mut mode = fs::metadata(&path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&path, mode).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A program in the place of Python that lacks nothing.
fn trial(dir: &Path, name: &str, script: &str) -> String {
    let answer = r#"{"lacks": {"modules": [], "install": []}}"#;
    program(
        dir,
        name,
        &format!("[ \"$1\" != -c ] || {{ read asked; echo '{answer}'; exit; }}\n{script}"),
    )
}

/// One check before anything is measured, of all Pythons and packages.
#[test]
fn what_a_python_lacks_is_said_before_the_first_cell() {
    if !stokehold_untested::needs::has("python3", "Python 3") {
        return;
    }
    let data = data_set();
    // Without its packages.
    let bare = program(data.path(), "bare", "exec python3 -I -S \"$@\"");
    let old = program(data.path(), "old", "echo 'Python 1.5 was a good one' >&2\nexit 3");
    let trials = [
        "--trials",
        "per-op,torchvision,torchvision-v2,spdl,dali,stokehold,fused",
        "--python",
        &bare,
    ];
    let dali = format!("dali={old}");
    let more = ["--python", "stokehold=/nowhere/python", "--python", &dali];
    let message = refused(data.path(), &[&["."][..], &trials, &more].concat());
    for text in [
        &format!(
            "{bare} lacks numpy, torch (for torchvision, torchvision-v2), torchvision (for torchvision, torchvision-v2), PIL (for"
        ),
        "spdl (for spdl) (pip install numpy; pip install torch torchvision; pip install spdl)",
        &format!("{old} cannot be used: ended with status 3: Python 1.5 was a good one"),
        "/nowhere/python cannot be used: /nowhere/python: No such file or directory",
        "name a Python that has it: --python PATH",
    ] {
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(message.len() < 1000, "{message}");
    // The trainer needs packages, too.
    let torch = [
        "--trainer",
        "torch",
        "--trials",
        "spdl,stokehold",
        "--python",
        &bare,
    ];
    let message = refused(data.path(), &[&["."][..], &torch].concat());
    assert!(
        message.contains("torchvision, stokehold (for stokehold)"),
        "{message}"
    );
    // What needs no Python asks none.
    let native = emulated(&["--loads", "0", "--time-limit", "0.1"]);
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("compare")
        .args(native)
        .env("PATH", "/nowhere")
        .current_dir(data.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
}

#[test]
fn a_trial_that_cannot_run_is_named_and_the_others_go_on() {
    let data = data_set();
    let python = &trial(
        data.path(),
        "python",
        "echo 'Python 1.5 was a good one' >&2\nexit 3",
    );
    let absent = &trial(
        data.path(),
        "dali",
        "read spec; echo '{\"cannot\": {\"why\": \"no driver\"}}'; sleep 100",
    );
    let absent = &format!("dali={absent}");
    let arguments = emulated(&[
        "--loads",
        "0",
        "--trials",
        "per-op,torchvision,dali,fused",
        "--python",
        python,
        "--python",
        absent,
    ]);
    let output = compare(data.path(), &arguments);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    for text in [
        "torchvision  ended with status 3",
        "torchvision was not measured: ended with status 3.\n",
        "dali was not measured: no driver",
    ] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(json(data.path())["cells"][0]["trials"][3]["summary"]["gain"]["pairs"].as_u64() >= Some(6));
    // The cell is not kept: what was missing may be there now.
    let (_, progress) = texts(&compare(data.path(), &arguments));
    assert!(
        progress.contains("cell 1/1: resnet18, load 0: torchvision: ended with status 3"),
        "{progress}"
    );
    // Without another trial there is nothing to compare.
    fs::remove_dir_all(data.path().join("out")).unwrap();
    let output = compare(
        data.path(),
        &emulated(&["--loads", "0", "--trials", "per-op,dali", "--python", absent]),
    );
    assert_eq!(output.status.code(), Some(1), "{:?}", texts(&output));
}

/// Programs that keep to the protocol at first: one trains on other images, one dies in its fifth round, one is a liar.
#[test]
fn what_a_trial_says_is_checked() {
    let data = data_set();
    let answers = |round: &str| {
        format!(
            r#"read spec
echo '{{"ready": {{"versions": "sh 1", "device": "none"}}}}'
made=0
while IFS='}}' read -r request; do
    made=$((made + 1))
    steps=${{request##*:}}
    {round}
done"#
        )
    };
    let round = r#"echo "{\"round\": {\"steps\": $steps, \"images\": $((4 * steps)), \"seconds\": 0.00001, \"waited\": 0, \"busy\": 0.00001, \"copying\": 0, \"labels\": 7}}""#;
    let other = trial(data.path(), "other", &answers(round));
    let dying = trial(
        data.path(),
        "dying",
        &answers(&format!(
            "[ $made -lt 5 ] || {{ echo 'out of patience' >&2; exit 7; }}\n{round}"
        )),
    );
    let lying = trial(
        data.path(),
        "lying",
        &answers(&round.replace("0.00001, \\\"waited", "1e9, \\\"waited")),
    );
    let pythons = [
        format!("torchvision={other}"),
        format!("dali={dying}"),
        format!("spdl={lying}"),
    ];
    let mut arguments = emulated(&["--loads", "0", "--trials", "per-op,torchvision,dali,spdl,fused"]);
    for python in &pythons {
        arguments.extend(["--python", python]);
    }
    let output = compare(data.path(), &arguments);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    let trials = &json(data.path())["cells"][0]["trials"];
    let verdict = |trial: usize| trials[trial]["summary"]["gain"]["verdict"].as_str();
    assert_eq!(verdict(1), Some("not-the-same-work"), "{table}");
    assert_eq!(verdict(2), None, "a trial that has failed has no gain");
    assert!(verdict(4).is_some());
    for text in [
        "dali was not measured: ended with status 7.",
        "out of patience",
        "1000000000 s",
    ] {
        assert!(table.contains(text), "{text}: {table}");
    }
    let work = data.path().join("out/work");
    assert!(!work.exists(), "what the trials read is removed");
}

#[test]
#[cfg(unix)]
fn a_folder_with_links_is_refused() {
    let data = data_set();
    let arguments = emulated(&["--loads", "0"]);
    assert_eq!(compare(data.path(), &arguments).status.code(), Some(0));
    let elsewhere = TempDir::new().unwrap();
    let pairs = data.path().join("out/pairs");
    fs::remove_dir_all(&pairs).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &pairs).unwrap();
    let message = refused(data.path(), &arguments);
    assert!(message.contains("out/pairs is a link"), "{message}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn what_is_not_the_comparisons_own_is_neither_used_nor_removed() {
    let data = data_set();
    let out = data.path().join("out");
    fs::create_dir_all(out.join("runs")).unwrap();
    fs::write(out.join("runs/mine.txt"), "mine").unwrap();
    let message = refused(data.path(), &emulated(&["--loads", "0"]));
    assert!(
        message.contains("out: holds runs and no comparison; give a new folder"),
        "{message}"
    );
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing is written there");
}

#[test]
fn an_interrupted_cell_keeps_its_pairs() {
    let data = data_set();
    // More pairs than there is time for.
    let arguments = emulated(&["--loads", "1", "--precision", "0.000001", "--time-limit", "1000"]);
    let (mut child, lines) = started(data.path(), &arguments);
    // A pair is written when it is measured.
    let pairs = || {
        let bytes = fs::read(data.path().join("out/compare.json")).ok()?;
        let report: Value = serde_json::from_slice(&bytes).ok()?;
        Some(report["cells"][0]["trials"][1]["rounds"].as_array()?.len())
    };
    let begin = std::time::Instant::now();
    while pairs().unwrap_or(0) < 3 {
        assert!(begin.elapsed().as_secs() < 120, "no pair was written");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // No one else works in the folder meanwhile.
    let (_, said) = texts(&compare(data.path(), &arguments));
    assert!(
        said.contains(&format!("out: process {} on ", child.id())),
        "{said}"
    );
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(
        rest.iter()
            .any(|line| line.contains("run the same command to continue from here")),
        "{rest:?}"
    );
    let before = json(data.path());
    let rounds = before["cells"][0]["trials"][0]["rounds"]
        .as_array()
        .unwrap()
        .clone();
    assert!(rounds.len() >= 3);
    let steps = || -> Vec<Value> {
        let bytes = fs::read(data.path().join("out/steps/resnet18-load1.json")).unwrap();
        let steps: Value = serde_json::from_slice(&bytes).unwrap();
        steps["rounds"].as_array().unwrap().clone()
    };
    let steps_before = steps();
    assert_eq!(steps_before.len(), 2 * rounds.len(), "of each trial");
    // What is measured so far can be looked at.
    let page = "out/pairs/resnet18-load1-fused/profiler-comparison.html";
    assert!(
        fs::read_to_string(data.path().join(page))
            .unwrap()
            .contains("gpu0 is emulated")
    );

    let (mut child, _lines) = started(data.path(), &arguments);
    let begin = std::time::Instant::now();
    // The times of the steps are written behind the pair that they are of.
    while pairs().unwrap_or(0) <= rounds.len() || steps().len() <= steps_before.len() {
        assert!(begin.elapsed().as_secs() < 120, "no pair was added");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let after = json(data.path());
    let kept = after["cells"][0]["trials"][0]["rounds"].as_array().unwrap();
    assert_eq!(kept[..rounds.len()], rounds);
    assert_eq!(steps()[..steps_before.len()], steps_before);
}

/// A comparison that is killed leaves no trial behind, although one of them stands still.
#[test]
#[cfg(target_os = "linux")]
fn no_trial_outlives_a_comparison_that_is_killed() {
    let data = data_set();
    let (mut child, _lines) = started(
        data.path(),
        &emulated(&["--loads", "1", "--precision", "0.000001", "--time-limit", "1000"]),
    );
    let begin = std::time::Instant::now();
    let trials = || -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    while trials().len() < 2 {
        assert!(begin.elapsed().as_secs() < 120, "no trial was started");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let trials = trials();
    child.kill().unwrap();
    child.wait().unwrap();
    let lives = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A process that has ended and that no one waits for is a zombie.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    let begin = std::time::Instant::now();
    while trials.iter().any(|&pid| lives(pid)) {
        assert!(begin.elapsed().as_secs() < 60, "a trial lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The trials in Python, those of them whose libraries are here, next to ours: the same labels in every pair.
#[test]
fn trials_in_python_load_the_same_images() {
    let python = match stokehold_untested::needs::torch() {
        Some(python) => python,
        None => return,
    };
    let data = data_set();
    let python = python.to_str().unwrap();
    let arguments = emulated(&[
        "--loads",
        "1",
        "--trials",
        "torchvision,fused",
        "--python",
        python,
    ]);
    let output = compare(data.path(), &arguments);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(
        table.contains("Equal work: in every pair all trials had the same labels"),
        "{table}\n{progress}"
    );
    let cell = &json(data.path())["cells"][0];
    assert!(
        cell["trials"][0]["ready"]["versions"]
            .as_str()
            .unwrap()
            .contains("torchvision"),
        "{cell}"
    );
    let torch = tiny(&[
        "--loads",
        "1",
        "--trials",
        "torchvision,torchvision-v2",
        "--trainer",
        "torch",
        "--device",
        "cpu",
        "--python",
        python,
    ]);
    fs::remove_dir_all(data.path().join("out")).unwrap();
    let output = compare(data.path(), &torch);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(
        table.contains("PyTorch trains torchvision's networks on cpu"),
        "{table}"
    );
    let loss = json(data.path())["cells"][0]["trials"][0]["summary"]["loss"].as_f64();
    assert!(loss.is_some_and(|loss| loss > 0.0 && loss < 10.0), "{loss:?}");
}

#[test]
fn wrong_options_say_what_is_allowed() {
    let data = data_set();
    for (arguments, expected) in [
        (
            ["--models", "resnet18,vgg"],
            "there is no model 'vgg': choose one of resnet18, resnet34",
        ),
        (["--trials", "fused"], "a comparison takes at least two trials"),
        (
            ["--trials", "per-op,auto"],
            "there is no trial 'auto'; there are per-op, fused, gpu, remote, cached, torchvision",
        ),
        (["--trials", "per-op,gpu"], "the executor gpu: "),
        (["--loads", "1,2000"], "2000 is not in 0..=1000"),
        (["--loads", "1,many"], "invalid value 'many' for '--loads <N,..>'"),
        (["--workers", "0"], "must be auto or 1 to 1024"),
        (["--image-size", "16"], "16 is not in 32..=4096"),
        (["--batch-size", "0"], "batch size: must be at least 1"),
        (["--batch-size", "9"], "8 images do not fill a batch of 9"),
        (["--lr", "0"], "learning rate: must be above 0"),
        (["--images", "0"], "0 is not in 1.."),
        (
            ["--images-per-second", "0"],
            "images per second of the emulated accelerator: must be 1 to 1000000",
        ),
        (["--images-per-second", "1e99"], "must be 1 to 1000000"),
        (
            ["--accelerator", "TPU"],
            "choose one of V100, RTX3090, V100-AMP, A100, H100",
        ),
        (["--round", "0"], "rounds of 0 s: they must be 0.01 to 60 s"),
        (
            ["--device", "tpu"],
            "there is no device 'tpu': choose auto, cpu, cuda or vulkan, or with a number",
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
