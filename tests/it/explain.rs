//! `stokehold explain`: what it says, draws and exits with.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output};

use jpeg_encoder::{ColorType, Encoder};

fn explain(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("explain")
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// An image of 96 x 64 pixels, blocks of 8 x 8.
fn photo(path: &Path) {
    let pixels: Vec<u8> = (0..96 * 64)
        .flat_map(|i: u32| [(i % 96) as u8 * 2, (i / 96) as u8 * 3, 90])
        .collect();
    let encoder = Encoder::new_file(path, 95).unwrap();
    encoder.encode(&pixels, 96, 64, ColorType::Rgb).unwrap();
}

const CROP: &str =
    r#"{"op": [{"type": "CenterCrop", "size": 32}, {"type": "Resize", "size": 16}, {"type": "ToFloat"}]}"#;

#[test]
fn the_plan_is_told_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    photo(&dir.path().join("photo.jpg"));
    fs::write(dir.path().join("crop.json"), CROP).unwrap();
    let output = explain(&["crop.json", "photo.jpg", "--out", "plan.png"], dir.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("crop 32 x 32 at (32, 16)"), "{text}");
    assert!(
        text.contains("steps 1, 2: one resampling to 16 x 16, along rows and columns"),
        "{text}"
    );
    let file = BufReader::new(File::open(dir.path().join("plan.png")).unwrap());
    let picture = png::Decoder::new(file).read_info().unwrap();
    assert_eq!((picture.info().width, picture.info().height), (96 + 16 + 16, 64));

    let output = explain(&["crop.json", "photo.jpg", "--json"], dir.path());
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mcus = &plan["decoding"]["mcus"];
    let rows = mcus["rows"]["start"].as_u64().unwrap()..mcus["rows"]["end"].as_u64().unwrap();
    // The crop is rows 2 to 5 of blocks; what the filter may look at next to it is at most a block more.
    assert!(
        (1..=2).contains(&rows.start) && (6..=7).contains(&rows.end),
        "{rows:?}"
    );
    assert_eq!((&mcus["wide"], &mcus["high"]), (&12.into(), &8.into()));
    assert_eq!(plan["performed"][0]["resampling"]["map"][0], 2.0);
    assert!(
        dir.path().join("explain.png").is_file(),
        "the picture's default place"
    );
}

/// A sample of prepared shards: it is packed, and only the groups of rows that the crop needs are read.
#[test]
fn a_sample_of_shards_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("photos")).unwrap();
    photo(&dir.path().join("photos/photo.jpg"));
    fs::write(dir.path().join("crop.json"), CROP).unwrap();
    let prepared = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["prepare", "photos", "shards"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        prepared.status.success(),
        "{}",
        String::from_utf8_lossy(&prepared.stderr)
    );
    let output = explain(&["crop.json", "shards"], dir.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("96 x 64, Jpeg, packed"), "{text}");
    let output = explain(&["crop.json", "shards", "--json"], dir.path());
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mcus = &plan["decoding"]["mcus"];
    let [rows, groups] = ["rows", "groups"].map(|key| {
        let end = |which: &str| mcus[key][which].as_u64().unwrap();
        end("start")..end("end")
    });
    assert!(groups.start <= rows.start && rows.end <= groups.end, "{mcus}");
    let output = explain(&["crop.json", "shards", "--sample", "1"], dir.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no sample 1"));
}

/// Operations that the images of shards have behind them are not performed again, and other pipelines are refused.
#[test]
fn what_shards_have_behind_them_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("photos")).unwrap();
    photo(&dir.path().join("photos/photo.jpg"));
    fs::write(dir.path().join("crop.json"), CROP).unwrap();
    let prepared = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["prepare", "photos", "shards", "--pipeline", "crop.json"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&prepared.stderr);
    assert!(prepared.status.success(), "{said}");
    let output = explain(&["crop.json", "shards"], dir.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("16 x 16"), "{text}");
    assert!(!text.contains("crop 32 x 32"), "{text}");
    let output = explain(&["imagenet-train", "shards"], dir.path());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("begins as theirs did"), "{said}");
}

#[test]
fn what_is_wrong_is_said_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    photo(&dir.path().join("photo.jpg"));
    fs::write(dir.path().join("text.jpg"), "no image").unwrap();
    for (arguments, named) in [
        (["imagenet-eval", "missing.jpg"], "missing.jpg"),
        (["imagenet-eval", "text.jpg"], "text.jpg"),
        (["imagenet-evil", "photo.jpg"], "imagenet-evil"),
        (["missing.toml", "photo.jpg"], "missing.toml"),
    ] {
        let output = explain(&arguments, dir.path());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{message}");
        assert!(!dir.path().join("explain.png").exists());
    }
}

#[test]
fn a_pipeline_that_trains_nothing_is_not_explained() {
    let dir = tempfile::tempdir().unwrap();
    photo(&dir.path().join("photo.jpg"));
    let rest = "[[op]]\ntype = \"CenterCrop\"\nsize = 32\n[[op]]\ntype = \"ToFloat\"\n";
    for (first, said) in [
        (
            "type = \"RandomRotation\"\ndegrees = nan",
            "operation 1 (RandomRotation): degrees = [NaN, NaN]",
        ),
        (
            "type = \"RandomRotation\"\ndegrees = 5\ncenter = [1e300, 0.0]",
            "operation 1 (RandomRotation): center = [1e300, 0.0]; allowed: -1000000 to 1000000 pixels",
        ),
        (
            "type = \"RandomRotation\"\ndegrees = 5\ncenter = [0.0, nan]",
            "operation 1 (RandomRotation): center = [0.0, NaN]",
        ),
    ] {
        fs::write(dir.path().join("mine.toml"), format!("[[op]]\n{first}\n{rest}")).unwrap();
        let output = explain(&["mine.toml", "photo.jpg"], dir.path());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{first}: {message}");
        assert!(message.contains(said), "{message}");
        assert!(!dir.path().join("explain.png").exists());
    }
}

#[test]
fn names_cannot_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a\x1b[2J\rdone\nerror: none\u{202e}.jpg";
    fs::write(dir.path().join(name), "no image").unwrap();
    let output = explain(&["imagenet-eval", name], dir.path());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("a\\x1b[2J\\x0ddone"), "{message:?}");
    assert!(!message.contains(['\x1b', '\r', '\u{202e}']), "{message:?}");
    assert_eq!(message.matches("\nerror: ").count(), 0, "{message:?}");
}
