//! One wrong pixel in one sample, in every form in which samples are kept: the check finds it and names the sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use stokehold_pipeline::{DecodeOptions, Format, RgbImage, decode, probe};
use stokehold_prepare::{Container, Content, Options};
use tempfile::TempDir;

use crate::data::{add, every_kind, files, prepare, small_shards, verify};
use crate::pairs::pairs;

/// The pixels that differ between two files; `None` where one cannot be decoded, or has another size.
fn differing(one: &[u8], other: &[u8]) -> Option<usize> {
    let decoded = |bytes| decode(bytes, &DecodeOptions::default()).ok();
    let (one, other): (RgbImage, RgbImage) = (decoded(one)?, decoded(other)?);
    ((one.width, one.height) == (other.width, other.height)).then(|| {
        let pixels = one.data.chunks(3).zip(other.data.chunks(3));
        pixels.filter(|(one, other)| one != other).count()
    })
}

/// A PNG with one level of one pixel changed.
fn png_with_a_wrong_pixel(bytes: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .unwrap();
    let mut data = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut data).unwrap();
    let at = data.len() / 2;
    data[at] ^= 1;
    let info = reader.info();
    let mut changed = Vec::new();
    let mut encoder = png::Encoder::new(&mut changed, info.width, info.height);
    encoder.set_color(info.color_type);
    encoder.set_depth(info.bit_depth);
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    changed
}

/// The file with as few other pixels as a bit of its codes can make: a code is worth one value of a block.
fn with_wrong_pixels(bytes: &[u8]) -> Vec<u8> {
    if probe(bytes).unwrap().format == Format::Png {
        return png_with_a_wrong_pixel(bytes);
    }
    let flipped = (bytes.len().saturating_sub(200)..bytes.len()).flat_map(|at| {
        (0..8).map(move |bit| {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1 << bit;
            changed
        })
    });
    let changed = flipped.filter_map(|changed| Some((differing(bytes, &changed)?, changed)));
    let changed = changed.filter(|(pixels, _)| *pixels > 0);
    changed.min_by_key(|(pixels, _)| *pixels).unwrap().1
}

fn copy_of(data: &Path, except: &str, bytes: &[u8]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, whole) in files(data) {
        add(dir.path(), &name, if name == except { bytes } else { &whole });
    }
    dir
}

/// Prepares a copy of `data` in which this file has wrong pixels, and checks it against `data`.
fn is_found(data: &Path, name: &str, options: &Options) -> String {
    let whole = fs::read(data.join(name)).unwrap();
    let wrong = copy_of(data, name, &with_wrong_pixels(&whole));
    let out = TempDir::new().unwrap();
    prepare(wrong.path(), out.path(), options).unwrap();
    let sound = verify(out.path(), Some(wrong.path()));
    assert_eq!(sound.problems, [""; 0], "{name}");
    let found = verify(out.path(), Some(data));
    assert_eq!(found.problems.len(), 1, "{name}: {:?}", found.problems);
    assert_eq!(found.identical, found.samples - 1, "{name}");
    let [problem] = <[String; 1]>::try_from(found.problems).unwrap();
    problem
}

/// Baseline and progressive JPEGs of every sampling, with restarts, grey and CMYK, PNG and WebP; packed, as one scan, as they are
/// and in tar files.
#[test]
fn a_wrong_pixel_is_found_in_every_form_of_a_sample() {
    let data = every_kind();
    let forms = BTreeMap::from([
        ("packed", small_shards()),
        (
            "as they are",
            Options {
                content: Content::Raw,
                ..small_shards()
            },
        ),
        (
            "tar",
            Options {
                container: Container::Tar,
                ..small_shards()
            },
        ),
    ]);
    let names = files(data.path()).into_keys();
    for name in names {
        for (form, options) in &forms {
            let problem = is_found(data.path(), &name, options);
            let below = name.split_once('/').unwrap().1;
            assert!(
                problem.contains(below) && problem.contains("its pixels are not those of"),
                "{form}: {problem}"
            );
        }
    }
}

#[test]
fn a_wrong_pixel_of_a_mask_is_found() {
    let data = pairs();
    let problem = is_found(data.path(), "masks/train/c/3.png", &small_shards());
    assert!(
        problem.contains("it is not the file") && problem.contains("c/3.png"),
        "{problem}"
    );
    let problem = is_found(data.path(), "images/val/a/2.jpg", &small_shards());
    assert!(
        problem.contains("its pixels are not those of") && problem.contains("a/2.jpg"),
        "{problem}"
    );
}
