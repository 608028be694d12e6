//! What becomes of an image.

use jpeg_encoder::ColorType;
use stokehold_jpeg::Metadata;
use stokehold_pipeline::op::Filter;
use stokehold_pipeline::{ColorMode, DecodeOptions, Format, decode, probe};
use stokehold_prepare::{Content, Options, Size};
use stokehold_storage::{Dataset, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{add, awkward, every_kind, jpeg, prepare, verify};

fn resized(size: Size) -> Options {
    Options {
        content: Content::Resized {
            size,
            quality: 95,
            metadata: Metadata::Drop,
        },
        ..Options::default()
    }
}

#[test]
fn raw_keeps_every_byte() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let options = Options {
        content: Content::Raw,
        ..Options::default()
    };
    prepare(data.path(), dir.path(), &options).unwrap();
    let (before, after) = (
        Dataset::open(data.path(), None, 0).unwrap().train,
        Dataset::open(dir.path(), None, 0).unwrap().train,
    );
    let (mut a, mut b) = (SampleBytes::new(), SampleBytes::new());
    for sample in 0..before.len() {
        before.read(sample, &mut a).unwrap();
        after.read(sample, &mut b).unwrap();
        assert_eq!(a.file(), b.file());
    }
    assert_eq!(verify(dir.path(), Some(data.path())).identical, 19);
}

#[test]
fn large_images_shrink_and_small_ones_lose_nothing() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let report = prepare(data.path(), dir.path(), &resized(Size::LongerSide(64))).unwrap();
    assert!(!report.manifest.lossless);
    assert!(report.manifest.prepared.starts_with("lossy"));
    let (before, after) = (
        Dataset::open(data.path(), None, 0).unwrap().train,
        Dataset::open(dir.path(), None, 0).unwrap().train,
    );
    let (mut a, mut b) = (SampleBytes::new(), SampleBytes::new());
    let mut shrunk = 0;
    for sample in 0..before.len() {
        before.read(sample, &mut a).unwrap();
        after.read(sample, &mut b).unwrap();
        let (was, is) = (probe(a.file()).unwrap(), probe(b.file()).unwrap());
        assert_eq!(was.orientation, is.orientation);
        let pixels = |bytes: &SampleBytes| decode(bytes.file(), &DecodeOptions::default()).unwrap();
        if was.width.max(was.height) <= 64 {
            assert_eq!(pixels(&a), pixels(&b));
            continue;
        }
        shrunk += 1;
        assert_eq!((is.width.max(is.height), is.format), (64, Format::Jpeg));
        let expected = pixels(&a).resize(is.width, is.height, Filter::Bicubic);
        let (found, count) = (pixels(&b), expected.data.len() as f64);
        let off = expected
            .data
            .iter()
            .zip(&found.data)
            .map(|(&a, &b)| f64::from(a.abs_diff(b)));
        let mean = off.sum::<f64>() / count;
        assert!(
            mean < 8.0,
            "{}: {mean} levels off on average",
            before.name(sample)
        );
    }
    assert!(shrunk > 8, "{shrunk}");
    let findings = verify(dir.path(), Some(data.path()));
    assert_eq!(
        (findings.problems.len(), findings.identical, findings.lossless),
        (0, 0, false)
    );
}

#[test]
fn shrinking_keeps_grey_grey_and_the_orientation() {
    let data = TempDir::new().unwrap();
    add(
        data.path(),
        "a/grey.jpg",
        &jpeg(1, (60, 40), ColorType::Luma, |_| {}),
    );
    add(data.path(), "a/turned.jpg", &awkward("exif-6.jpg"));
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &resized(Size::ShorterSide(5))).unwrap();
    let images = Dataset::open(dir.path(), None, 0).unwrap().train;
    let mut bytes = SampleBytes::new();
    images.read(0, &mut bytes).unwrap();
    let grey = probe(bytes.file()).unwrap();
    assert_eq!((grey.width, grey.height, grey.color), (8, 5, ColorMode::Grey));
    images.read(1, &mut bytes).unwrap();
    let turned = probe(bytes.file()).unwrap();
    assert_eq!((turned.width.min(turned.height), turned.orientation), (5, 6));
}

#[test]
fn metadata_goes_or_stays() {
    let data = TempDir::new().unwrap();
    let profile = vec![7; 3000];
    let file = jpeg(1, (60, 40), ColorType::Rgb, |encoder| {
        encoder.add_icc_profile(&profile).unwrap()
    });
    add(data.path(), "a/1.jpg", &file);
    let length = |metadata| {
        let dir = TempDir::new().unwrap();
        let options = Options {
            content: Content::Lossless(metadata),
            ..Options::default()
        };
        prepare(data.path(), dir.path(), &options).unwrap();
        assert_eq!(verify(dir.path(), Some(data.path())).identical, 1);
        let mut bytes = SampleBytes::new();
        Dataset::open(dir.path(), None, 0)
            .unwrap()
            .train
            .read(0, &mut bytes)
            .unwrap();
        bytes.file().len()
    };
    assert!(length(Metadata::Keep) > length(Metadata::Drop) + 3000);
}
