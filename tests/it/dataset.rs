//! `stokehold dataset`: what it makes, finds, says and exits with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tempfile::TempDir;

/// The exit code of a call that cannot do what it was asked.
const FAILED: i32 = 2;

fn stokehold(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("dataset")
        .args(arguments)
        .arg(dir)
        .output()
        .unwrap()
}

fn info(dir: &Path) -> (i32, String) {
    let output = stokehold(&["info"], dir);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// Exit code and message of a call that fails.
fn failure(arguments: &[&str], dir: &Path) -> (i32, String) {
    let output = stokehold(arguments, dir);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "",
        "a failure prints no report"
    );
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A JPEG, with what else a test wants of it.
fn jpeg(
    width: u16,
    height: u16,
    color: ColorType,
    change: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_sampling_factor(SamplingFactor::R_4_4_4);
    change(&mut encoder);
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::Cmyk => 4,
        _ => 3,
    };
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * channels)
        .map(|i| (i * 31 % 251) as u8)
        .collect();
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

fn rgb_jpeg() -> Vec<u8> {
    jpeg(64, 48, ColorType::Rgb, |_| {})
}

fn png(color: png::ColorType, depth: png::BitDepth) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 16, 16);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == png::ColorType::Indexed {
        encoder.set_palette(vec![10, 20, 30, 40, 50, 60]);
        encoder.set_trns(vec![0, 128]);
    }
    let size = 256 * color.samples() * depth as usize / 8;
    let data: Vec<u8> = (0..size).map(|i| (i % 2) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

/// A data set with one class, `a`, that holds `files`.
fn data_set(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join("a").join(name), bytes).unwrap();
    }
    dir
}

/// What the report says of each broken file: name and reason.
fn broken(report: &str) -> Vec<(String, String)> {
    let lines = report
        .lines()
        .skip_while(|line| !line.ends_with(" broken files:") && *line != "1 broken file:");
    let named = lines.skip(1).map(|line| line.trim().split_once(": ").unwrap());
    named
        .map(|(path, reason)| (path.rsplit('/').next().unwrap().to_owned(), reason.to_owned()))
        .collect()
}

#[test]
fn synth_makes_what_info_counts() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("made");
    let output = stokehold(
        &["synth", "--images", "12", "--classes", "3", "--val-split", "0.25"],
        &root,
    );
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (code, report) = info(&root);
    assert_eq!(code, 0, "{report}");
    assert!(
        report.contains("9 training and 3 validation images in 3 classes"),
        "{report}"
    );
    assert!(
        report.contains("jpeg 12") && report.contains("rgb 12"),
        "{report}"
    );
    assert!(report.ends_with("\nno broken files\n"), "{report}");

    let json = stokehold(&["info", "--json", "--workers", "2"], &root);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["images"], &json["train"], &json["val"]),
        (&12.into(), &9.into(), &3.into())
    );
    assert_eq!(json["classes"][1]["name"], "ring-striped");
    assert_eq!(json["classes"][1]["train"], 3);
    assert_eq!(json["broken"], serde_json::json!([]));
    let bytes = json["bytes"].as_u64().unwrap();
    assert!((12 * 40_000..12 * 170_000).contains(&bytes), "{bytes}");

    let (code, message) = failure(&["synth"], &root);
    assert_eq!(code, FAILED);
    assert!(
        message.contains("exists already; give a new folder, or remove this one first"),
        "{message}"
    );
}

#[test]
fn synth_says_what_is_allowed() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("made");
    let (code, message) = failure(&["synth", "--classes", "200", "--images", "500"], &root);
    assert_eq!(code, FAILED);
    assert!(message.contains("200 classes; must be 1 to 100"), "{message}");
    let (code, message) = failure(&["synth", "--pictures", "5"], &root);
    assert_eq!(code, 2);
    assert!(message.contains("--pictures"), "{message}");
    let (code, message) = failure(&["info", "--workers", "0"], &root);
    assert_eq!(code, 2);
    assert!(message.contains("must be auto or 1 to 1024"), "{message}");
    assert!(!root.exists());
}

#[test]
fn broken_files_are_named_with_their_reasons() {
    let whole = rgb_jpeg();
    let dir = data_set(&[
        ("good.jpg", whole.clone()),
        ("empty.jpg", Vec::new()),
        ("truncated.jpg", whole[..whole.len() / 2].to_vec()),
        ("header-only.jpg", whole[..20].to_vec()),
        ("text.jpg", b"Dear reader, this is no picture.\n".to_vec()),
        (
            "half.png",
            png(png::ColorType::Rgb, png::BitDepth::Eight)[..60].to_vec(),
        ),
    ]);
    let (code, report) = info(dir.path());
    assert_eq!(code, 1, "{report}");
    let named = broken(&report);
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "empty.jpg",
            "half.png",
            "header-only.jpg",
            "text.jpg",
            "truncated.jpg"
        ]
    );
    let reason = |name: &str| named.iter().find(|found| found.0 == name).unwrap().1.as_str();
    assert_eq!(reason("empty.jpg"), "the file is empty (0 bytes)");
    assert!(reason("truncated.jpg").starts_with("truncated JPEG"), "{report}");
    assert!(
        reason("header-only.jpg").starts_with("truncated JPEG"),
        "{report}"
    );
    assert!(reason("text.jpg").starts_with("not an image"), "{report}");
    assert!(reason("half.png").starts_with("PNG: "), "{report}");
    assert!(report.contains("jpeg 1\n"), "the good one is counted: {report}");
}

#[test]
fn unusual_files_are_not_broken() {
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let dir = data_set(&[
        ("grey.jpg", jpeg(40, 30, ColorType::Luma, |_| {})),
        ("cmyk.jpg", jpeg(40, 30, ColorType::Cmyk, |_| {})),
        (
            "turned.jpg",
            jpeg(40, 30, ColorType::Rgb, |jpeg| {
                jpeg.add_exif_metadata(exif).unwrap()
            }),
        ),
        (
            "progressive.jpg",
            jpeg(40, 30, ColorType::Rgb, |jpeg| jpeg.set_progressive(true)),
        ),
        ("tiny.jpg", jpeg(1, 1, ColorType::Rgb, |_| {})),
        ("long.jpg", jpeg(20_000, 10, ColorType::Rgb, |_| {})),
        ("a png.jpg", png(png::ColorType::Rgba, png::BitDepth::Eight)),
        ("a jpeg.PNG", rgb_jpeg()),
        ("deep.png", png(png::ColorType::Grayscale, png::BitDepth::Sixteen)),
        ("palette.png", png(png::ColorType::Indexed, png::BitDepth::Eight)),
    ]);
    let (code, report) = info(dir.path());
    assert_eq!(code, 0, "{report}");
    for line in [
        "formats   jpeg 7, png 3",
        "colours   cmyk 1, grey 1, grey 16-bit 1, palette 1, rgb 5, rgb with alpha 1",
        "misnamed  2, by extension another format than by content, which decides",
        "rotated   1 by EXIF, which --exif applies",
    ] {
        assert!(
            report.lines().any(|found| found == line),
            "{line} is not in\n{report}"
        );
    }
    let size = report.lines().find(|line| line.starts_with("size")).unwrap();
    assert_eq!(
        size.split_whitespace().collect::<Vec<_>>(),
        ["size", "1x1", "40x30", "20000x10"]
    );
}

#[test]
fn an_unreadable_file_is_a_broken_one() {
    if !stokehold_untested::permissions_bind() {
        return;
    }
    let dir = data_set(&[("open.jpg", rgb_jpeg()), ("shut.jpg", rgb_jpeg())]);
    let shut = dir.path().join("a/shut.jpg");
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    let (code, report) = info(dir.path());
    assert_eq!(code, 1, "{report}");
    let reason = "cannot read this file: Permission denied (os error 13)".to_owned();
    assert_eq!(broken(&report), [("shut.jpg".to_owned(), reason)]);
}

#[test]
fn a_class_of_one_image_is_mentioned() {
    let dir = data_set(&[("only.jpg", rgb_jpeg())]);
    let (code, report) = info(dir.path());
    assert_eq!(code, 0);
    assert!(report.contains("only one training image: a\n"), "{report}");
}

#[test]
fn folders_that_are_no_data_set_are_errors() {
    let dir = data_set(&[("1.jpg", rgb_jpeg())]);
    let fails = |path: &Path, expected: &str| {
        let (code, message) = failure(&["info"], path);
        assert_eq!(code, FAILED, "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    };
    fails(&dir.path().join("missing"), "no such folder");
    fails(&dir.path().join("a/1.jpg"), "not a folder");
    fails(
        &dir.path().join("a"),
        "images lie directly in this folder (1 of them) and it has no class folders",
    );
    fs::create_dir(dir.path().join("b")).unwrap();
    fails(dir.path(), "no image in the class folder b");
    fails(&dir.path().join("b"), "no class folder in it");
}

/// The mask has 5 x 5 pixels of the values (x + y) mod 4.
#[test]
fn info_counts_the_pixels_of_masks_by_class() {
    let dir = TempDir::new().unwrap();
    let hostile =
        |name: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile").join(name)).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for (part, names) in [("train", &["a", "b"][..]), ("val", &["c"])] {
        for name in names {
            put(
                &format!("{part}/images/{name}.jpg"),
                &jpeg(5, 5, ColorType::Rgb, |_| ()),
            );
            put(
                &format!("{part}/masks/{name}.png"),
                &hostile("mask-interlaced.png"),
            );
        }
    }
    let class = |name: &str, value: u32| format!("[[class]]\nname = '{name}'\nvalue = {value}\n");
    let table = format!(
        "ignore = [3]\n{}{}{}{}",
        class("one", 1),
        class("none", 9),
        class("zero", 0),
        class("two", 2)
    );
    put("classes.toml", table.as_bytes());
    let (code, text) = info(dir.path());
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("2 training and 1 validation images with masks of 4 classes"),
        "{text}"
    );
    assert!(text.contains("no pixel to train on: none"), "{text}");
    let report = |dir: &Path| -> serde_json::Value {
        serde_json::from_slice(&stokehold(&["info", "--json"], dir).stdout).unwrap()
    };
    let pixels = &report(dir.path())["pixels"];
    let count = |value: u32| (0..25u32).filter(|i| (i % 5 + i / 5) % 4 == value).count();
    assert_eq!(
        (&pixels["total"], &pixels["ignored"]),
        (&75.into(), &(3 * count(3)).into())
    );
    for (place, (name, value)) in [
        ("one", Some(1)),
        ("none", None),
        ("zero", Some(0)),
        ("two", Some(2)),
    ]
    .iter()
    .enumerate()
    {
        let class = &pixels["classes"][place];
        let each = value.map_or(0, count);
        assert_eq!(class["name"], *name);
        assert_eq!(
            (&class["pixels"], &class["train"], &class["val"]),
            (&(3 * each).into(), &(2 * each).into(), &each.into())
        );
        assert_eq!(class["images"], if each > 0 { 3 } else { 0 });
        assert!((class["share"].as_f64().unwrap() - each as f64 / 25.0).abs() < 1e-9);
    }
    // A mask of another size, and one with an unknown value.
    put("train/masks/b.png", &hostile("mask-unknown-value.png"));
    let broken = |dir: &Path| report(dir)["broken"][0]["reason"].as_str().unwrap().to_owned();
    assert!(
        broken(dir.path()).contains("masks/b.png: pixel (4, 0) has the value 4"),
        "{}",
        broken(dir.path())
    );
    put(
        "classes.toml",
        (0..=77)
            .map(|value| class(&format!("c{value}"), value))
            .collect::<String>()
            .as_bytes(),
    );
    assert!(
        broken(dir.path()).contains("it has 12x8 pixels, and the image 5x5"),
        "{}",
        broken(dir.path())
    );
    assert_eq!(info(dir.path()).0, 1);
}

#[test]
fn images_with_masks_and_no_classes_are_refused_with_what_to_write() {
    let dir = TempDir::new().unwrap();
    for file in ["images/a.jpg", "masks/a.png"] {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let (code, text) = failure(&["info"], dir.path());
    assert_eq!(code, FAILED);
    assert!(
        text.contains("classes.toml") && text.contains("[[class]]"),
        "{text}"
    );
}
