//! Generated data sets.

use std::fs;

use stokehold_base::hash::Fnv;
use stokehold_storage::{Dataset, SampleBytes, Source};
use stokehold_synth::{SynthOptions, generate};
use tempfile::TempDir;

/// The hash of all bytes of all files in order.
fn hash(data: &Dataset) -> u64 {
    let mut hash = Fnv::default();
    let mut bytes = SampleBytes::new();
    for folder in [Some(&data.train), data.val.as_ref()].into_iter().flatten() {
        for sample in 0..folder.len() {
            folder.read(sample, &mut bytes).unwrap();
            hash.add(bytes.file());
        }
    }
    hash.finish()
}

fn options(images: usize, classes: usize) -> SynthOptions {
    SynthOptions {
        images,
        classes,
        ..SynthOptions::default()
    }
}

#[test]
fn files_are_the_same_everywhere() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("data");
    let mut calls = Vec::new();
    generate(&root, &options(30, 10), &mut |done, total| {
        calls.push((done, total))
    })
    .unwrap();
    assert_eq!(calls, (1..=30).map(|done| (done, 30)).collect::<Vec<_>>());
    let data = Dataset::open(&root, None, 0).unwrap();
    // Changing this number means changing what everybody's default data set is: raise VERSION with it.
    assert_eq!(hash(&data), 0x46E7333DE9550AAF, "the files have changed");
}

#[test]
fn files_weigh_what_photographs_weigh() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("data");
    generate(&root, &options(60, 10), &mut |_, _| {}).unwrap();
    let data = Dataset::open(&root, None, 0).unwrap();
    let mut bytes = SampleBytes::new();
    let (mut total, mut full_colour) = (0, 0);
    for sample in 0..data.train.len() {
        data.train.read(sample, &mut bytes).unwrap();
        let bytes = bytes.file();
        total += bytes.len();
        // The first component's sampling factors, in the frame header: 0x11 where colour has every pixel.
        let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        full_colour += usize::from(bytes[frame + 11] == 0x11);
    }
    let mean = total / data.train.len();
    assert!((85_000..125_000).contains(&mean), "{mean} bytes on average");
    assert_eq!((data.train.len(), full_colour), (50, 30));
}

#[test]
fn images_are_dealt_to_classes_and_parts() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("new/data");
    let made = SynthOptions {
        images: 11,
        classes: 3,
        seed: 5,
        val_fraction: 0.25,
    };
    generate(&root, &made, &mut |_, _| {}).unwrap();
    let data = Dataset::open(&root, None, 0).unwrap();
    assert_eq!(
        data.train.classes(),
        ["disc-plain", "ring-striped", "square-checked"]
    );
    assert_eq!(
        (data.train.counts(), data.val.unwrap().counts()),
        (vec![3, 3, 2], vec![1, 1, 1])
    );
    assert_eq!(
        fs::read_dir(dir.path().join("new")).unwrap().count(),
        1,
        "nothing is left beside it"
    );
    let without = SynthOptions {
        images: 3,
        classes: 3,
        seed: 5,
        val_fraction: 0.0,
    };
    generate(dir.path().join("all"), &without, &mut |_, _| {}).unwrap();
    assert!(
        Dataset::open(dir.path().join("all"), None, 0)
            .unwrap()
            .val
            .is_none()
    );
}

#[test]
fn what_cannot_be_made_is_said() {
    let dir = TempDir::new().unwrap();
    let error = |options: &SynthOptions| {
        generate(dir.path().join("data"), options, &mut |_, _| {})
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&options(10, 0)),
        "cannot generate images: 0 classes; must be 1 to 100"
    );
    assert_eq!(
        error(&options(200, 101)),
        "cannot generate images: 101 classes; must be 1 to 100"
    );
    assert_eq!(
        error(&options(9, 10)),
        "cannot generate images: 9 images for 10 classes; must be 10 to 10000000"
    );
    let share = SynthOptions {
        val_fraction: 1.0,
        ..options(10, 1)
    };
    assert_eq!(
        error(&share),
        "cannot generate images: validation share 1; must be 0 or more and below 1"
    );
    assert!(!dir.path().join("data").exists());
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("precious"), "x").unwrap();
    let error = |path: &std::path::Path| {
        generate(path, &options(1, 1), &mut |_, _| {})
            .unwrap_err()
            .to_string()
    };
    assert!(error(dir.path()).ends_with("exists already; give a new folder, or remove this one first"));
    assert!(error(&dir.path().join("precious")).contains("exists already"));
    assert!(error(&dir.path().join("precious/data")).contains("cannot write"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // An empty folder is as good as none.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    generate(&empty, &options(1, 1), &mut |_, _| {}).unwrap();
    assert!(empty.join("train/disc-plain/00000.jpg").exists());
}
