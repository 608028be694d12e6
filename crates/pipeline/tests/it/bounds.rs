//! How far `fused` may be from `per-op` on JPEGs: the bounds of SEMANTICS.md's table, on images that did not set them.
//!
//! A hash of its name puts an image into one of two parts. `what_sets_the_table` measures the first part and prints it; the
//! tests read the table and hold the second part to it, which nothing was fitted to.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{
    ColorMode, DecodeOptions, DrawKey, Executor, Format, Pipeline, RgbImage, Runner, decode,
};
use stokehold_storage::synth::SynthOptions;

use crate::oracle;

#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// What the table was made from.
    Sets,
    /// What it is tested with.
    Judges,
}

/// The part of an image, by FNV-1a of its name, which gives the same everywhere and always.
fn part(path: &Path) -> Part {
    let name = path.file_name().unwrap().as_encoded_bytes();
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    if hash >> 63 == 0 { Part::Sets } else { Part::Judges }
}

/// JPEGs of one origin.
struct Set {
    name: &'static str,
    images: Vec<Vec<u8>>,
}

/// At most `most` of the JPEGs below a folder that are in `part`, evenly spread.
fn files(folder: &Path, wanted: Part, most: usize) -> Vec<Vec<u8>> {
    let mut folders = vec![folder.to_path_buf()];
    let mut found: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let suffix = path.extension().map(|suffix| suffix.to_ascii_lowercase());
            if path.is_dir() {
                folders.push(path);
            } else if suffix.is_some_and(|suffix| suffix == "jpg" || suffix == "jpeg")
                && part(&path) == wanted
            {
                found.push(path);
            }
        }
    }
    found.sort();
    let most = most.min(found.len());
    (0..most)
        .map(|i| std::fs::read(&found[i * found.len() / most]).unwrap())
        .collect()
}

/// An image encoded again, in one of six ways.
fn encoded_again(bytes: &[u8], way: usize) -> Vec<u8> {
    let image = decode(bytes, &DecodeOptions::default()).unwrap();
    let quality = [60, 85, 95][way % 3];
    let sampling = [SamplingFactor::F_1_1, SamplingFactor::F_2_2][way / 3 % 2];
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, quality);
    encoder.set_sampling_factor(sampling);
    let (width, height) = (image.width as u16, image.height as u16);
    encoder
        .encode(&image.data, width, height, ColorType::Rgb)
        .unwrap();
    out
}

/// Generated photographs, for everywhere.
fn generated(part: Part, images: usize) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let options = SynthOptions {
        images,
        classes: 10,
        seed: if part == Part::Sets { 1 } else { 2 },
        val_fraction: 0.0,
    };
    let data = folder.path().join("data");
    stokehold_storage::synth::generate(&data, &options, &mut |_, _| {}).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(data.join("train"))
        .unwrap()
        .flat_map(|class| std::fs::read_dir(class.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// At most `most` images of every origin: generated ones, and what real data is there.
fn sets(part: Part, most: usize) -> Vec<Set> {
    let mut sets = vec![Set {
        name: "generated",
        images: generated(part, most),
    }];
    if let Some(photos) = oracle::photos() {
        let clothing = photos.with_file_name("clothing");
        let (photos, clothing) = (files(&photos, part, most), files(&clothing, part, most));
        let again = photos.iter().chain(&clothing).step_by(2).enumerate();
        let images = again.map(|(way, bytes)| encoded_again(bytes, way)).collect();
        sets.push(Set {
            name: "encoded again",
            images,
        });
        sets.push(Set {
            name: "photos",
            images: photos,
        });
        sets.push(Set {
            name: "clothing",
            images: clothing,
        });
    }
    sets
}

/// The pipelines of the table.
fn pipelines() -> Vec<(&'static str, Pipeline)> {
    let jitter = r#"{"op": [{"type": "RandomResizedCrop", "size": 224},
        {"type": "ColorJitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        {"type": "RandomHorizontalFlip"}, {"type": "ToFloat"}]}"#;
    vec![
        ("imagenet-train", Pipeline::imagenet_train(224)),
        ("imagenet-eval", Pipeline::imagenet_eval(256, 224)),
        ("imagenet-eval at 32", Pipeline::imagenet_eval(32, 32)),
        ("imagenet-train at 64", Pipeline::imagenet_train(64)),
        ("caltech", Pipeline::caltech()),
        ("crop and jitter", Pipeline::from_json(jitter).unwrap()),
        ("published, load 1", Pipeline::published(1, 224)),
        ("published, load 4", Pipeline::published(4, 224)),
        ("published, load 12", Pipeline::published(12, 224)),
    ]
}

/// A pipeline's samples by `per-op` and by `fused`, as levels of 255, with the same draws.
struct Both {
    runners: [Runner; 2],
}

impl Both {
    fn new(mut pipeline: Pipeline) -> Self {
        // Normalisation only scales.
        pipeline.ops.retain(|op| !matches!(op, Op::Normalize { .. }));
        let pipeline = Arc::new(pipeline);
        let runners = [Executor::PerOp, Executor::Fused]
            .map(|executor| Runner::new(Arc::clone(&pipeline), executor, DecodeOptions::default()).unwrap());
        Self { runners }
    }

    fn run(&mut self, bytes: &[u8], sample: usize) -> [Vec<f32>; 2] {
        let key = DrawKey {
            seed: 3,
            epoch: 1,
            sample: sample as u64,
        };
        self.runners.each_mut().map(|runner| {
            let mut out = vec![0.0f32; runner.output_len()];
            runner.run(bytes, key, &mut out).unwrap();
            out.iter_mut().for_each(|value| *value *= 255.0);
            out
        })
    }

    /// Peak signal to noise of each image, in decibels, ascending.
    fn psnrs(&mut self, images: &[Vec<u8>]) -> Vec<f64> {
        let psnr = |(sample, bytes): (usize, &Vec<u8>)| {
            let [a, b] = self.run(bytes, sample);
            let squares: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            // Above 100 dB images are as good as equal.
            -10.0 * (squares / a.len() as f64 / 255.0 / 255.0).max(1e-10).log10()
        };
        let mut values: Vec<f64> = images.iter().enumerate().map(psnr).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// The value that a share of the ascending values does not reach.
fn percentile(values: &[f64], share: f64) -> f64 {
    values[(share * values.len() as f64) as usize]
}

/// The PSNRs that SEMANTICS.md promises for a pipeline: of 99 images in 100, and of half of them.
fn promised(name: &str) -> [f64; 2] {
    let row = include_str!("../../../../SEMANTICS.md")
        .lines()
        .find_map(|line| line.strip_prefix(&format!("| {name} |")))
        .unwrap_or_else(|| panic!("SEMANTICS.md has no row for {name}"));
    let cells: Vec<f64> = row
        .split('|')
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    cells.try_into().unwrap()
}

/// What the first part says; the table is below its smallest figures by a margin. Any change of the table starts here, and
/// with no look at the second part.
#[test]
#[ignore = "prints what the table of SEMANTICS.md is made from"]
fn what_sets_the_table() {
    for set in sets(Part::Sets, 400) {
        for (name, pipeline) in pipelines() {
            let values = Both::new(pipeline).psnrs(&set.images);
            let [least, hundredth, median] = [0.0, 0.01, 0.5].map(|share| percentile(&values, share));
            println!(
                "{name}, {} {}: least {least:.1}, 1 in 100 below {hundredth:.1}, median {median:.1} dB",
                values.len(),
                set.name
            );
        }
        resize_of(&set, true);
    }
}

fn resize_of(set: &Set, print: bool) -> () {
    let json = r#"{"op": [{"type": "RandomResizedCrop", "size": 224}, {"type": "ToFloat"}]}"#;
    let mut both = Both::new(Pipeline::from_json(json).unwrap());
    let (mut worst_un, mut worst, mut over2, mut over1, mut n, mut uno1, mut nun) =
        (0.0f32, 0.0f32, 0, 0u64, 0u64, 0u64, 0u64);
    for (sample, bytes) in set.images.iter().enumerate() {
        let [a, b] = both.run(bytes, sample);
        let image = decode(bytes, &DecodeOptions::default()).unwrap();
        let mask = RgbImage {
            data: image
                .data
                .iter()
                .map(|v| if *v == 0 || *v == 255 { 255 } else { 0 })
                .collect(),
            ..image
        };
        let [m, _] = both.run(&png(&mask), sample);
        let mut w = 0.0f32;
        for ((a, b), m) in a.iter().zip(&b).zip(&m) {
            let d = (a - b).abs();
            w = w.max(d);
            n += 1;
            over1 += u64::from(d > 1.01);
            if *m == 0.0 {
                worst_un = worst_un.max(d);
                nun += 1;
                uno1 += u64::from(d > 1.01);
            }
        }
        worst = worst.max(w);
        over2 += usize::from(w > 2.01);
    }
    if print {
        println!(
            "resize, {} {}: worst {worst:.2}, {over2} above 2; of values above 1: {:.6}; unclipped {:.4} of values: worst {worst_un:.2}, above 1 {:.6}",
            set.images.len(),
            set.name,
            over1 as f64 / n as f64,
            nun as f64 / n as f64,
            uno1 as f64 / nun as f64
        );
    }
}

fn png(image: &RgbImage) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(Cursor::new(&mut out), image.width, image.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&image.data)
        .unwrap();
    out
}
