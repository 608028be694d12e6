//! `stokehold prepare`: what it says, makes and exits with, also when it is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn stokehold(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(arguments)
        .args(paths)
        .output()
        .unwrap()
}

fn text(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// 40 generated photographs in two classes, 8 of them in val/.
fn photographs() -> TempDir {
    let dir = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["dataset", "synth", "--images", "40", "--classes", "2"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    dir
}

fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for part in ["", "train", "val"] {
        for entry in fs::read_dir(root.join(part)).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
#[cfg(target_os = "linux")]
fn a_limit_on_the_size_of_files_is_an_error_like_a_full_disk() {
    let data = photographs();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    // 20 blocks of 512 bytes or 1 KiB, by the shell. A runner of tests may ignore the signal.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 20; exec env --default-signal=XFSZ \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_stokehold"), "prepare"])
        .args([data.path(), &out])
        .output()
        .unwrap();
    let (code, _, stderr) = text(&output);
    assert!(
        code == 1 && stderr.contains("cannot write: File too large"),
        "{code} {stderr}"
    );
    assert_eq!(files(&out).into_keys().collect::<Vec<_>>(), ["shards.unfinished"]);
    // What it starts gets the default back.
    let script = "exec env --default-signal=XFSZ \"$0\" profile -o \"$1\" -- \
                  sh -c 'grep SigIgn /proc/self/status'";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_stokehold")])
        .arg(dir.path().join("run"))
        .output()
        .unwrap();
    let stdout = text(&output).1;
    let mask = stdout.split_whitespace().last().unwrap_or_default();
    let mask = u64::from_str_radix(mask, 16).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(mask >> 24 & 1, 0, "SIGXFSZ is signal 25: {stdout}");
}

#[test]
fn prepared_verified_listed_and_used() {
    let data = photographs();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let (code, stdout, stderr) = text(&stokehold(&["prepare"], &[data.path(), &out]));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("40 images in 2 classes, 2 shards, JPEGs packed without loss"),
        "{stdout}"
    );
    assert!(stdout.contains(" MB, 0."), "smaller than the originals: {stdout}");

    let (code, stdout, _) = text(&stokehold(
        &["prepare", "--verify", "--against"],
        &[data.path(), &out],
    ));
    assert_eq!(code, 0, "{stdout}");
    assert!(
        stdout.contains("40 samples have the pixels of their originals"),
        "{stdout}"
    );

    let (code, stdout, _) = text(&stokehold(&["prepare", "--list"], &[&out]));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!((code, lines.len()), (0, 40));
    assert!(lines[0].starts_with("train\t0\tdisc-plain\t"), "{}", lines[0]);
    assert!(
        lines[0].ends_with("train/000000.skshard\tdisc-plain/00000.jpg"),
        "{}",
        lines[0]
    );

    let of = |dir: &Path| {
        let (code, stdout, _) = text(&stokehold(&["dataset", "info", "--json"], &[dir]));
        assert_eq!(code, 0);
        let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        ["images", "train", "val", "size", "formats", "colors"].map(|key| json[key].clone())
    };
    assert_eq!(of(data.path()), of(&out));
    let (code, stdout, stderr) = text(&stokehold(&["bench", "loader", "--passes", "1"], &[&out]));
    assert_eq!(code, 0, "{stdout}{stderr}");

    let path = out.join("train/000000.skshard");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, stdout, _) = text(&stokehold(&["prepare", "--verify"], &[&out]));
    assert_eq!(code, 1);
    assert!(
        stdout.contains("damaged at byte") && stdout.contains("wrong: 2"),
        "{stdout}"
    );

    // Without its end the shard has no index, and still most of its images.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(middle as u64 - 1000).unwrap();
    let (code, stdout, stderr) = text(&stokehold(&["dataset", "info"], &[&out]));
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stderr.contains("warning: ") && stderr.contains("found without it"),
        "{stderr}"
    );
    let broken = stdout.matches("of this shard is lost").count();
    assert!((5..30).contains(&broken), "{broken}: {stdout}");
}

/// The head of a pipeline is performed once, and every command that is given the same pipeline leaves it out.
#[test]
fn a_head_moves_into_the_shards() {
    let data = photographs();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let arguments = [
        "prepare",
        "--pipeline",
        "caltech",
        "--eval-pipeline",
        "imagenet-eval",
    ];
    let (code, stdout, stderr) = text(&stokehold(&arguments, &[data.path(), &out]));
    assert_eq!(code, 0, "{stderr}");
    for line in [
        "train: Resize is performed once, now",
        "train: RandomCrop stays: it draws anew",
        "val: CenterCrop is performed once, now",
        "val: Normalize stays: it works on floats",
    ] {
        assert!(stderr.contains(line), "{stderr}");
    }
    assert!(
        stdout.contains("train: Resize performed, JPEG quality 90"),
        "{stdout}"
    );
    let (code, stdout, _) = text(&stokehold(
        &["prepare", "--verify", "--against"],
        &[data.path(), &out],
    ));
    assert_eq!(code, 0, "{stdout}");

    let train = [
        "train",
        "--model",
        "resnet18",
        "--image-size",
        "224",
        "--trainer",
        "emulated",
    ];
    let train = [
        &train[..],
        &[
            "--images-per-second",
            "1000",
            "--epochs",
            "1",
            "--batch-size",
            "8",
        ],
    ]
    .concat();
    let runs = dir.path().join("runs");
    let with = |pipeline| {
        [
            &train[..],
            &["--pipeline", pipeline, "--runs", runs.to_str().unwrap()],
        ]
        .concat()
    };
    let (code, _, stderr) = text(&stokehold(&with("caltech"), &[&out]));
    assert_eq!(code, 0, "{stderr}");
    let other = [&with("imagenet-train")[..], &["--name", "other"]].concat();
    let (code, _, stderr) = text(&stokehold(&other, &[&out]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("operation 1 of the pipeline is"), "{stderr}");

    let refused = [
        (
            &["--pipeline", "imagenet-train"][..],
            "no operation that can be performed once",
        ),
        (&["--allow-larger"], "go with --pipeline"),
        (
            &["--pipeline", "caltech", "--resize", "64"],
            "cannot be used with",
        ),
        (&["--quality", "101"], "101 is not in 1..=100"),
    ];
    for (arguments, reason) in refused {
        let arguments = [&["prepare"], arguments].concat();
        let (code, _, stderr) = text(&stokehold(&arguments, &[data.path(), &dir.path().join("other")]));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}

#[test]
fn killed_and_started_again_the_result_is_the_same() {
    let data = photographs();
    let dir = TempDir::new().unwrap();
    let (whole, killed) = (dir.path().join("whole"), dir.path().join("killed"));
    let arguments = ["prepare", "--shard-size", "500kB", "--workers", "1"];
    assert!(stokehold(&arguments, &[data.path(), &whole]).status.success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(arguments)
        .args([data.path(), &killed])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !killed.join("train/000001.skshard").exists() && start.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, stdout, stderr) = text(&stokehold(&arguments, &[data.path(), &killed]));
    assert_eq!(code, 0, "{stderr}");
    let nothing_left = stdout.contains("nothing left to do");
    assert!(
        nothing_left || stderr.contains("finished shards, which are kept"),
        "{stdout}{stderr}"
    );
    assert!(files(&whole) == files(&killed));
}

#[test]
fn what_is_wrong_is_said_with_the_right_code() {
    let data = photographs();
    fs::write(data.path().join("train/disc-plain/broken.jpg"), "no image").unwrap();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let (code, _, stderr) = text(&stokehold(&["prepare"], &[data.path(), &out]));
    assert_eq!(code, 2);
    assert!(stderr.contains("broken.jpg: not an image"), "{stderr}");
    let (code, _, stderr) = text(&stokehold(&["train"], &[&out]));
    assert_eq!(code, 2);
    assert!(stderr.contains("was not finished"), "{stderr}");
    let skip = ["prepare", "--bad-images", "skip"];
    let (code, stdout, stderr) = text(&stokehold(&skip, &[data.path(), &out]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("1 broken images were left out") && stderr.contains("broken.jpg"));
    for (arguments, paths) in [
        (&["prepare"][..], &[data.path()][..]),
        (&["prepare", "--raw", "--max-side", "10"], &[data.path(), &out]),
        (&["prepare", "--verify"], &[data.path(), &out]),
        (&["prepare", "--verify"], &[data.path()]),
        (&["prepare", "--shard-size", "0"], &[data.path(), &out]),
        (&["prepare", "--bad-images", "substitute"], &[data.path(), &out]),
        (&["prepare", "--max-side", "100"], &[data.path(), &out]),
    ] {
        let (code, stdout, stderr) = text(&stokehold(arguments, paths));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

#[test]
fn what_is_left_out_is_told() {
    let data = photographs();
    fs::write(data.path().join("train/notes.bmp"), "BM").unwrap();
    let class = fs::read_dir(data.path().join("train"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let class = class.filter(|path| path.is_dir()).min().unwrap();
    fs::write(class.join("x.bmp"), "BM").unwrap();
    let (code, _, stderr) = text(&stokehold(
        &["prepare"],
        &[data.path(), &data.path().with_extension("out")],
    ));
    fs::remove_dir_all(data.path().with_extension("out")).unwrap();
    assert_eq!(code, 0, "{stderr}");
    let told = stderr.lines().find(|line| line.starts_with("warning: ")).unwrap();
    assert!(
        told.contains("1 file is not read: 1 .bmp") && told.contains("numbers its samples otherwise"),
        "{told}"
    );
}
