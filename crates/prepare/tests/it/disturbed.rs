//! Preparation that is cut short, meets broken images, or finds something else in its place.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_base::fault::Fault;
use stokehold_prepare::{Container, Content, Options, PrepareError};
use stokehold_storage::{Dataset, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{add, awkward, every_kind, files, prepare, small_shards, verify};

/// Prepares until `images` are done, then stops.
pub fn interrupted(data: &Path, out: &Path, options: &Options, images: usize) {
    let stop = AtomicBool::new(images == 0);
    let outcome = stokehold_prepare::prepare(data, out, options, &stop, &mut |progress| {
        stop.fetch_or(progress.done >= images, Ordering::Relaxed);
    });
    assert!(matches!(outcome, Err(PrepareError::Interrupted)));
    let error = Dataset::open(out, None, 0).unwrap_err().to_string();
    assert!(error.contains("was not finished"), "{error}");
}

fn extension(container: Container) -> &'static str {
    match container {
        Container::Shards => "skshard",
        Container::Tar => "tar",
    }
}

#[test]
fn what_was_cut_short_ends_the_same() {
    let data = every_kind();
    // A broken image between others has to be found again, or found missing.
    add(data.path(), "train/cat/0.jpg", b"no image");
    add(data.path(), "train/dog/1a.jpg", b"no image");
    add(data.path(), "val/dog/3.jpg", b"no image");
    for container in [Container::Shards, Container::Tar] {
        let options = Options {
            container,
            skip_bad_images: true,
            shard_size: 12_000,
            workers: 1,
            ..Options::default()
        };
        let dir = TempDir::new().unwrap();
        prepare(data.path(), dir.path(), &options).unwrap();
        let whole = files(dir.path());
        let mut resumed_from = Vec::new();
        for images in 0..21 {
            let dir = TempDir::new().unwrap();
            interrupted(data.path(), dir.path(), &options, images);
            // What a killed process leaves behind.
            let half = format!("train/000007.{}.partial", extension(container));
            add(dir.path(), &half, b"half a shard");
            add(dir.path(), "shards.json.partial", b"{");
            let report = prepare(data.path(), dir.path(), &options).unwrap();
            resumed_from.push(report.kept);
            assert!(files(dir.path()) == whole, "cut short after {images} images");
        }
        assert!(
            resumed_from.is_sorted() && resumed_from[0] == 0 && resumed_from[20] > 8,
            "{resumed_from:?}"
        );
        let again = prepare(data.path(), dir.path(), &options).unwrap();
        assert_eq!(again.kept, 19, "nothing left to do");
        assert!(files(dir.path()) == whole);
    }
}

#[test]
fn a_finished_shard_that_was_damaged_is_made_again() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    let whole = files(dir.path());
    let cut = TempDir::new().unwrap();
    interrupted(data.path(), cut.path(), &small_shards(), 17);
    let path = cut.path().join("train/000001.skshard");
    let mut bytes = fs::read(&path).unwrap();
    bytes[200] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = prepare(data.path(), cut.path(), &small_shards()).unwrap();
    assert!(report.kept > 0, "the shard before it is kept");
    assert!(files(cut.path()) == whole);
    // So is a manifest.
    fs::write(cut.path().join("shards.json"), "{").unwrap();
    let error = Dataset::open(cut.path(), None, 0).unwrap_err().to_string();
    assert!(
        error.contains("shards.json") && error.contains("once more"),
        "{error}"
    );
    prepare(data.path(), cut.path(), &small_shards()).unwrap();
    assert!(files(cut.path()) == whole);
}

#[test]
fn a_broken_image_is_named() {
    let data = every_kind();
    add(data.path(), "train/cat/3a.jpg", &awkward("truncated.jpg"));
    let dir = TempDir::new().unwrap();
    let error = prepare(data.path(), dir.path(), &small_shards()).unwrap_err();
    assert!(error.is_input());
    let error = error.to_string();
    assert!(
        error.contains("train/cat/3a.jpg") && error.contains("skip bad images"),
        "{error}"
    );
    // The same folder continues with the other policy.
    let options = Options {
        skip_bad_images: true,
        ..small_shards()
    };
    let report = prepare(data.path(), dir.path(), &options).unwrap();
    assert_eq!(report.manifest.parts["train"].left_out, ["cat/3a.jpg"]);
    assert!(report.left_out[0].name.ends_with("train/cat/3a.jpg"));
    let findings = verify(dir.path(), Some(data.path()));
    assert_eq!((findings.problems, findings.identical), (vec![], 19));
}

#[test]
fn broken_files_of_every_kind_are_noticed() {
    for name in ["truncated.jpg", "truncated.png", "text.jpg", "empty.jpg"] {
        for content in [Content::Raw, Options::default().content] {
            let data = TempDir::new().unwrap();
            add(data.path(), "a/1.jpg", &awkward(name));
            let options = Options {
                content,
                skip_bad_images: true,
                ..Options::default()
            };
            let dir = TempDir::new().unwrap();
            let error = prepare(data.path(), dir.path(), &options).unwrap_err();
            assert!(
                matches!(error, PrepareError::NoGoodImage { .. }),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn another_preparation_is_not_touched() {
    let data = every_kind();
    let refused = |out: &Path, options: &Options| {
        let before = files(out);
        let error = prepare(data.path(), out, options).unwrap_err();
        assert!(matches!(error, PrepareError::Occupied { .. }), "{error}");
        assert!(files(out) == before);
    };
    let other = Options {
        content: Content::Raw,
        ..small_shards()
    };
    let finished = TempDir::new().unwrap();
    prepare(data.path(), finished.path(), &small_shards()).unwrap();
    refused(finished.path(), &other);
    let cut = TempDir::new().unwrap();
    interrupted(data.path(), cut.path(), &small_shards(), 5);
    refused(cut.path(), &other);
    let files_of_others = TempDir::new().unwrap();
    add(files_of_others.path(), "thesis.txt", b"...");
    refused(files_of_others.path(), &other);
    add(data.path(), "train/cat/one-more.png", &crate::data::png(1, 3, 3));
    refused(finished.path(), &small_shards());
    let error = prepare(finished.path(), &finished.path().join("x"), &other).unwrap_err();
    assert!(matches!(error, PrepareError::PreparedAlready { .. }), "{error}");
}

#[test]
fn the_folder_of_another_program_keeps_its_files() {
    let data = every_kind();
    let tar = Options {
        container: Container::Tar,
        ..small_shards()
    };
    for options in [small_shards(), tar] {
        let kept = |other: &[(&str, &[u8])]| {
            let out = TempDir::new().unwrap();
            for (name, bytes) in other {
                add(out.path(), name, bytes);
            }
            let before = files(out.path());
            let error = prepare(data.path(), out.path(), &options).unwrap_err();
            assert!(matches!(error, PrepareError::Occupied { .. }), "{error}");
            assert!(error.is_input() && files(out.path()) == before, "{error}");
        };
        kept(&[("movie.mkv.partial", b"mine"), ("keep", b"mine")]);
        kept(&[("movie.mkv.partial", b"mine")]);
        // Web applications have files of this name.
        let foreign: (&str, &[u8]) = ("shards.json", br#"{"name": "my web app"}"#);
        kept(&[foreign]);
        kept(&[foreign, ("train/x.partial", b"mine")]);
        kept(&[
            foreign,
            ("train/000000.skshard", b"mine"),
            ("train/000000.tar", b"mine"),
        ]);
        kept(&[
            foreign,
            ("shards.unfinished", b"mine"),
            ("shards.json.partial", b"mine"),
        ]);
    }
}

#[test]
fn only_files_that_a_preparation_writes_are_removed() {
    let data = every_kind();
    let whole = TempDir::new().unwrap();
    prepare(data.path(), whole.path(), &small_shards()).unwrap();
    let whole = files(whole.path());
    let dir = TempDir::new().unwrap();
    interrupted(data.path(), dir.path(), &small_shards(), 5);
    let mine = [
        "movie.mkv.partial",
        "shards.json.old.partial",
        "train/movie.mkv.partial",
        "train/000007.tar.partial",
        "train/7.skshard.partial",
    ];
    for name in mine {
        add(dir.path(), name, b"mine");
    }
    for name in [
        "shards.json.partial",
        "shards.unfinished.1.partial",
        "train/000007.skshard.partial",
        "train/1000000.skshard.12.partial",
    ] {
        add(dir.path(), name, b"half");
    }
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    let mut there = files(dir.path());
    for name in mine {
        assert_eq!(there.remove(name).as_deref(), Some(&b"mine"[..]), "{name}");
    }
    assert!(there == whole);
    // Killed before anything but the first name was there.
    let dir = TempDir::new().unwrap();
    add(dir.path(), "shards.unfinished.partial", b"this prep");
    add(dir.path(), "shards.unfinished.1.partial", b"");
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    assert!(files(dir.path()) == whole);
}

#[test]
fn a_damaged_manifest_is_written_again_beside_files_of_the_preparation() {
    let data = every_kind();
    for container in [Container::Shards, Container::Tar] {
        let options = Options {
            container,
            shard_size: 12_000,
            ..Options::default()
        };
        let dir = TempDir::new().unwrap();
        prepare(data.path(), dir.path(), &options).unwrap();
        let whole = files(dir.path());
        let first = dir.path().join(format!("train/000000.{}", extension(container)));
        // The first file is damaged too.
        for bytes in [fs::read(&first).unwrap(), b"damaged".to_vec()] {
            fs::write(&first, bytes).unwrap();
            fs::write(dir.path().join("shards.json"), "").unwrap();
            prepare(data.path(), dir.path(), &options).unwrap();
            assert!(files(dir.path()) == whole);
        }
    }
}

#[test]
fn two_at_once_do_not_mix() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let stop = AtomicBool::new(false);
    let mut met = 0;
    stokehold_prepare::prepare(data.path(), dir.path(), &small_shards(), &stop, &mut |_| {
        let error = prepare(data.path(), dir.path(), &small_shards()).unwrap_err();
        assert!(matches!(error, PrepareError::Busy { .. }), "{error}");
        met += 1;
    })
    .unwrap();
    assert!(met > 0);
    assert_eq!(verify(dir.path(), Some(data.path())).identical, 19);
}

#[test]
fn damage_is_found_and_costs_only_what_it_hit() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &Options::default()).unwrap();
    let path = dir.path().join("train/000000.skshard");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 0x10;
    fs::write(&path, &damaged).unwrap();
    let findings = verify(dir.path(), Some(data.path()));
    assert_eq!(findings.identical, 18);
    assert_eq!(
        findings.problems.len(),
        2,
        "the file and the sample: {:?}",
        findings.problems
    );
    assert!(findings.problems[1].contains("damaged at byte"));

    // Cut off: the index is gone, and what is there is found.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let images = Dataset::open(dir.path(), None, 0).unwrap().train;
    assert_eq!(images.len(), 17);
    let mut bytes = SampleBytes::new();
    let good = (0..17)
        .filter(|&sample| images.read(sample, &mut bytes).is_ok())
        .count();
    assert!((3..17).contains(&good), "{good}");
    assert_eq!(images.counts(), [10, 7], "labels are known all the same");

    // Shards in each other's place.
    fs::write(&path, &whole).unwrap();
    fs::rename(&path, dir.path().join("x")).unwrap();
    fs::rename(dir.path().join("val/000000.skshard"), &path).unwrap();
    fs::rename(dir.path().join("x"), dir.path().join("val/000000.skshard")).unwrap();
    let error = Dataset::open(dir.path(), None, 0).unwrap_err().to_string();
    assert!(error.contains("mixed up"), "{error}");
    assert!(
        verify(dir.path(), None)
            .problems
            .iter()
            .any(|problem| problem.contains("mixed up"))
    );
}
