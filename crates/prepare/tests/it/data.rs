//! Data sets to prepare.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use stokehold_prepare::{Findings, Options, PrepareError, Report};
use tempfile::TempDir;

/// A JPEG with content that `seed` decides.
pub fn jpeg(
    seed: usize,
    (width, height): (u16, u16),
    color: ColorType,
    change: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::Cmyk => 4,
        _ => 3,
    };
    let (w, h) = (usize::from(width), usize::from(height));
    let pixel = |at: usize| {
        let (x, y, c) = (at / channels % w, at / channels / w, at % channels);
        // Up and down again, with an edge, so that it is worth coding.
        let level = (x * (2 + c) + y * 3 + seed * 17 + if x > y { 40 } else { 0 }) % 510;
        level.min(510 - level).min(255) as u8
    };
    let pixels: Vec<u8> = (0..w * h * channels).map(pixel).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80);
    change(&mut encoder);
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

pub fn png(seed: usize, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let pixels: Vec<u8> = (0..width * height * 3)
        .map(|i| (i as usize * 7 + seed) as u8)
        .collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// A file of the collection of awkward files.
pub fn awkward(name: &str) -> Vec<u8> {
    fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../hostile")
            .join(name),
    )
    .unwrap()
}

pub fn add(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Images of every kind: `train` of 2 classes and 17 images, `val` of one class and 2 images.
pub fn every_kind() -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let rgb = |seed, size, sampling| {
        jpeg(seed, size, ColorType::Rgb, |encoder| {
            encoder.set_sampling_factor(sampling)
        })
    };
    add(
        root,
        "train/cat/1.jpg",
        &rgb(1, (99, 61), SamplingFactor::R_4_2_0),
    );
    add(
        root,
        "train/cat/2.JPEG",
        &rgb(2, (64, 64), SamplingFactor::R_4_4_4),
    );
    add(
        root,
        "train/cat/3.jpg",
        &rgb(3, (7, 130), SamplingFactor::R_4_2_2),
    );
    add(root, "train/cat/4.jpg", &rgb(4, (1, 1), SamplingFactor::R_4_4_0));
    add(
        root,
        "train/cat/deep/er/ü 5.jpg",
        &rgb(5, (80, 50), SamplingFactor::R_4_1_1),
    );
    add(
        root,
        "train/cat/grey.jpg",
        &jpeg(6, (50, 40), ColorType::Luma, |_| {}),
    );
    let progressive = jpeg(7, (90, 70), ColorType::Rgb, |encoder| {
        encoder.set_progressive(true)
    });
    add(root, "train/cat/progressive.jpg", &progressive);
    let restarts = jpeg(8, (90, 70), ColorType::Rgb, |encoder| {
        encoder.set_restart_interval(3)
    });
    add(root, "train/cat/restarts.jpg", &restarts);
    add(root, "train/cat/cmyk.jpg", &awkward("cmyk.jpg"));
    add(root, "train/cat/turned.jpg", &awkward("exif-6.jpg"));
    for number in 0..4 {
        add(
            root,
            &format!("train/dog/{number}.jpg"),
            &rgb(20 + number, (120, 90), SamplingFactor::R_4_4_4),
        );
    }
    add(root, "train/dog/a.png", &png(9, 33, 21));
    add(root, "train/dog/called.jpg", &awkward("png-called.jpg"));
    add(root, "train/dog/small.webp", &awkward("small.webp"));
    add(root, "val/dog/1.jpg", &rgb(30, (40, 40), SamplingFactor::R_4_2_0));
    add(root, "val/dog/2.png", &png(31, 5, 5));
    dir
}

/// Makes a data set one that has tables of its own: what stands behind an image is no part of it.
pub fn large(data: &TempDir) {
    let mut bytes = jpeg(50, (64, 64), ColorType::Rgb, |_| {});
    bytes.resize(9_000_000, 0);
    add(data.path(), "train/dog/large.jpg", &bytes);
}

pub fn prepare(data: &Path, out: &Path, options: &Options) -> Result<Report, PrepareError> {
    stokehold_prepare::prepare(data, out, options, &AtomicBool::new(false), &mut |_| {})
}

pub fn verify(out: &Path, against: Option<&Path>) -> Findings {
    stokehold_prepare::verify(out, against, 2, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Every file below `root` with its bytes.
pub fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, into);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                into.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(root, root, &mut into);
    into
}

/// Options that give several shards of a small data set.
pub fn small_shards() -> Options {
    Options {
        shard_size: 8_000,
        workers: 2,
        ..Options::default()
    }
}
