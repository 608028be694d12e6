//! Files of every kind, against PIL; and files that are broken.

use crate::oracle;
use std::sync::Arc;
use stokehold_pipeline::op::{CenterCrop, Op, Size};
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Pipeline, RgbImage, Runner, decode, probe,
};

fn read(path: &std::path::Path) -> RgbImage {
    let bytes = std::fs::read(path).unwrap();
    let side = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    RgbImage {
        width: side(0),
        height: side(4),
        data: bytes[8..].to_vec(),
    }
}

#[test]
fn every_kind_decodes_as_in_pil() {
    let Some(python) = oracle::python() else { return };
    let out = tempfile::tempdir().unwrap();
    oracle::run(&python, "formats.py", &[out.path()]);
    let mut count = 0;
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".rgb") || name.ends_with(".upright") {
            continue;
        }
        count += 1;
        let bytes = std::fs::read(&path).unwrap();
        for (suffix, exif) in [("rgb", false), ("upright", true)] {
            let expected = read(&path.with_file_name(format!("{name}.{suffix}")));
            let got = decode(&bytes, &DecodeOptions { exif }).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(
                (got.width, got.height),
                (expected.width, expected.height),
                "{name} {suffix}"
            );
            assert!(
                got.data == expected.data,
                "{name} {suffix}: other pixels than PIL's"
            );
        }
        both_executors_agree(&name, &bytes);
    }
    assert_eq!(count, 34);
}

/// A pipeline that only crops is exact, whatever the file and its orientation.
fn both_executors_agree(name: &str, bytes: &[u8]) {
    let crop = Op::CenterCrop(CenterCrop { size: Size::Side(48) });
    let pipeline = Arc::new(Pipeline::new(vec![crop, Op::ToFloat]));
    let run = |executor| {
        let mut runner = Runner::new(pipeline.clone(), executor, DecodeOptions { exif: true }).unwrap();
        let mut out = vec![0.0; runner.output_len()];
        runner
            .run(
                bytes,
                DrawKey {
                    seed: 0,
                    epoch: 0,
                    sample: 0,
                },
                &mut out,
            )
            .unwrap();
        out
    };
    let (per_op, fused) = (run(Executor::PerOp), run(Executor::Fused));
    assert!(
        per_op.iter().zip(&fused).all(|(a, b)| (a - b).abs() < 1e-5),
        "{name}: the executors differ"
    );
}

fn png(width: u32, height: u32, color: png::ColorType, depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    bytes
}

/// Oracle: Pillow 13, `Image.open(..).convert("RGB")`.
#[test]
fn sixteen_bits_of_grey_are_clipped_and_of_colours_keep_their_high_byte() {
    let grey = png(
        5,
        1,
        png::ColorType::Grayscale,
        png::BitDepth::Sixteen,
        &[0, 0, 0, 10, 0, 255, 1, 0, 0xAB, 0xCD],
    );
    assert_eq!(probe(&grey).unwrap().bits, 16);
    let options = DecodeOptions::default();
    assert_eq!(
        decode(&grey, &options).unwrap().data,
        [0, 10, 255, 255, 255].map(|level| [level; 3]).concat()
    );
    let rgb = png(
        1,
        1,
        png::ColorType::Rgb,
        png::BitDepth::Sixteen,
        &[1, 99, 2, 99, 3, 99],
    );
    assert_eq!(decode(&rgb, &options).unwrap().data, [1, 2, 3]);
}

#[test]
fn broken_files_say_what_is_wrong() {
    let options = DecodeOptions::default();
    let whole = png(
        40,
        40,
        png::ColorType::Rgb,
        png::BitDepth::Eight,
        &vec![7; 40 * 40 * 3],
    );
    let said = |bytes: &[u8]| decode(bytes, &options).unwrap_err().to_string();
    assert_eq!(said(b""), "the file is empty (0 bytes)");
    for (bytes, what) in [
        (
            &b"<html>not found</html>"[..],
            "but an HTML page, as a failed download leaves it",
        ),
        (
            b"\n <!DOCTYPE HTML><p>404",
            "but an HTML page, as a failed download leaves it",
        ),
        (
            b"\x1F\x8B\x08\0\0",
            "but compressed by gzip; decompress it (gzip -d)",
        ),
        (b"GIF89a\x01\0", "but GIF; convert it to PNG"),
        (b"\0\0\0\x20ftypavif\0\0", "but AVIF; convert it to JPEG or PNG"),
        (
            b"\0\0\0\x18ftypheic\0\0",
            "but HEIC, as phones write it; convert it to JPEG or PNG",
        ),
        (b"\0\0\0\x20ftypisom\0\0", "but a video (MP4 or QuickTime)"),
        (
            b"{\"error\":\"forbidden\"}",
            "but JSON, as a server answers that refuses a download",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\n",
            "but a pointer of Git LFS; get the file (git lfs pull)",
        ),
        (
            b"\0\x05\x16\x07\0\x02\0\0",
            "but metadata that macOS keeps in a file of its own (AppleDouble); delete it",
        ),
        (
            b"P6\n2 2\n255\n\x80\x80",
            "but a portable pixmap (PPM, PGM or PBM); convert it to PNG",
        ),
        (&[0; 5000], "but only zeros, as an interrupted copy leaves them"),
        ("h\u{e4}slich\nund mehr".as_bytes(), "but text: \"h\u{e4}slich\""),
        (
            b"\x80\x01ab\xFF\0\0\0\x07",
            "(it begins with 80 01 61 62 FF 00 00 00)",
        ),
        (b"a\0\x01", "(it begins with 61 00 01)"),
    ] {
        assert_eq!(
            said(bytes),
            format!("not an image: the content is neither JPEG, PNG nor WebP, {what}")
        );
    }
    for cut in [10, 30, whole.len() / 2, whole.len() - 20] {
        assert!(
            said(&whole[..cut]).starts_with("PNG: "),
            "cut at {cut}: {}",
            said(&whole[..cut])
        );
    }
    let mut flipped = whole.clone();
    flipped[60] ^= 0x10;
    assert!(said(&flipped).starts_with("PNG: "), "{}", said(&flipped));
    assert!(
        said(b"\xFF\xD8\xFF\xE0").starts_with("truncated JPEG"),
        "{}",
        said(b"\xFF\xD8\xFF\xE0")
    );
    assert!(said(b"RIFF\x04\0\0\0WEBP").starts_with("WebP: "));
}

/// A header that announces a gigantic image is refused before anything is allocated.
#[test]
fn bombs_are_refused() {
    let mut bomb = png(1, 1, png::ColorType::Rgb, png::BitDepth::Eight, &[0; 3]);
    bomb[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]); // 32768 x 32768
    // The header's checksum, so that nothing else is wrong.
    let crc = crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&crc.to_be_bytes());
    match probe(&bomb) {
        Err(ImageError::TooLarge {
            width: 32768,
            height: 32768,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xEDB8_8320
            } else {
                crc >> 1
            }
        })
    })
}

/// The corpus of other decoders' fuzzers: whatever the bytes, an answer and no panic.
#[test]
fn hostile_files_are_answered() {
    let Some(photos) = oracle::photos() else { return };
    let hostile = photos.with_file_name("jpeg-corpus").join("hostile");
    if !hostile.is_dir() {
        stokehold_untested::skip("no folder jpeg-corpus/hostile beside photos");
        return;
    }
    let pipeline = Arc::new(Pipeline::published(2, 32));
    let mut runners = [Executor::PerOp, Executor::Fused]
        .map(|executor| Runner::new(pipeline.clone(), executor, DecodeOptions { exif: true }).unwrap());
    let mut out = vec![0.0; runners[0].output_len()];
    let mut files = 0;
    for entry in std::fs::read_dir(hostile).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        // Huge but legal pictures take long and prove nothing here.
        if probe(&bytes).is_ok_and(|info| u64::from(info.width) * u64::from(info.height) > 1 << 22) {
            continue;
        }
        files += 1;
        for runner in &mut runners {
            let _ = runner.run(
                &bytes,
                DrawKey {
                    seed: 1,
                    epoch: 2,
                    sample: 3,
                },
                &mut out,
            );
        }
    }
    assert!(files > 1000, "{files} files");
}

mod mutated {
    use super::*;
    use proptest::prelude::*;

    fn seeds() -> [Vec<u8>; 2] {
        let gradient: Vec<u8> = (0..3 * 30 * 20u32).map(|i| (i % 251) as u8).collect();
        let jpeg = include_bytes!("../../../../hostile/small.jpg").to_vec();
        [
            png(30, 20, png::ColorType::Rgb, png::BitDepth::Eight, &gradient),
            jpeg,
        ]
    }

    proptest! {
        /// A file with some bytes changed and its end cut off decodes or is an error; it does not panic.
        #[test]
        fn files_never_panic(
            which in 0usize..2,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            keep in 0.2f64..1.0,
        ) {
            let mut bytes = seeds()[which].clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate((bytes.len() as f64 * keep).ceil() as usize);
            if probe(&bytes).is_ok_and(|info| u64::from(info.width) * u64::from(info.height) < 1 << 20) {
                let _ = decode(&bytes, &DecodeOptions { exif: true });
            }
        }
    }
}
