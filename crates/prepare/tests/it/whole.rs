//! A prepared data set stands for the one it was made of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stokehold_base::fault::Fault;
use stokehold_loader::{Loader, LoaderOptions, input};
use stokehold_pipeline::{DecodeOptions, Executor, Pipeline, decode};
use stokehold_prepare::{Container, Options, extract};
use stokehold_storage::shard::Manifest;
use stokehold_storage::{Dataset, Images, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{every_kind, files, prepare, small_shards, verify};

pub fn same(a: &Images, b: &Images) {
    assert_eq!(a.classes(), b.classes());
    assert_eq!(a.len(), b.len());
    let (mut of_a, mut of_b) = (SampleBytes::new(), SampleBytes::new());
    for sample in 0..a.len() {
        assert_eq!(a.class(sample), b.class(sample));
        assert_eq!(a.below(sample), b.below(sample));
        a.read(sample, &mut of_a).unwrap();
        b.read(sample, &mut of_b).unwrap();
        for exif in [false, true] {
            let pixels = |bytes: &SampleBytes| decode(input(bytes), &DecodeOptions { exif }).unwrap();
            assert_eq!(pixels(&of_a), pixels(&of_b), "{}", b.name(sample));
        }
    }
}

#[test]
fn it_is_the_same_data_set() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("new/out");
    let report = prepare(data.path(), &out, &small_shards()).unwrap();
    assert_eq!(report.kept_as_they_are, []);
    assert!(report.manifest.parts["train"].shards.len() > 2);
    let (before, after) = (
        Dataset::open(data.path(), None, 0).unwrap(),
        Dataset::open(&out, None, 0).unwrap(),
    );
    assert!(matches!(after.train, Images::Shards(_)));
    same(&before.train, &after.train);
    same(before.val.as_ref().unwrap(), after.val.as_ref().unwrap());
    // Limits take the same images.
    let limited = |mut images: Images| {
        images.limit(5);
        images
    };
    same(&limited(before.train), &limited(after.train));
    assert_eq!(Images::unlabelled(&out).unwrap().len(), 19);
    assert!(Dataset::open(&out, Some(0.5), 0).is_err(), "it has its own val");
}

/// What `bench loader` measures can be prepared and measured again; what has no labels is not taken for a class.
#[test]
fn images_without_classes_are_prepared_without_labels() {
    let classes = every_kind();
    let dir = TempDir::new().unwrap();
    let (flat, out) = (dir.path().join("flat"), dir.path().join("out"));
    std::fs::create_dir(&flat).unwrap();
    let before = Images::unlabelled(classes.path()).unwrap();
    let mut bytes = SampleBytes::new();
    for sample in 0..before.len() {
        before.read(sample, &mut bytes).unwrap();
        std::fs::write(flat.join(format!("{sample}.jpg")), bytes.file()).unwrap();
    }
    prepare(&flat, &out, &small_shards()).unwrap();
    same(
        &Images::unlabelled(&flat).unwrap(),
        &Images::unlabelled(&out).unwrap(),
    );
    assert_eq!(verify(&out, Some(&flat)).problems, [""; 0]);
    let error = Dataset::open(&out, None, 0).unwrap_err().to_string();
    assert!(
        error.contains("its images have no classes; prepare one that has a folder for each class"),
        "{error}"
    );
}

#[test]
fn the_loader_makes_the_same_batches_of_it() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    for executor in [Executor::Fused, Executor::PerOp] {
        let batches = |dir: &Path| {
            let options = LoaderOptions {
                executor,
                batch_size: 5,
                ..LoaderOptions::default()
            };
            let images = Arc::new(Dataset::open(dir, None, 0).unwrap().train);
            let loader = Loader::new(images, Pipeline::published(2, 24), options).unwrap();
            let mut seen = Vec::new();
            for epoch in 0..6 {
                for batch in loader.epoch(epoch) {
                    let batch = batch.unwrap();
                    assert_eq!(batch.bad, []);
                    let floats = batch.pixels.into_f32().unwrap().to_vec();
                    let bits: Vec<u32> = floats.iter().map(|value| value.to_bits()).collect();
                    seen.push((batch.samples, batch.labels, bits));
                }
            }
            seen
        };
        assert!(batches(data.path()) == batches(dir.path()), "{executor}");
    }
}

#[test]
fn a_split_takes_the_same_images() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    // The classes themselves, without train and val.
    let train = data.path().join("train");
    prepare(&train, dir.path(), &small_shards()).unwrap();
    let (before, after) = (
        Dataset::open(&train, Some(0.3), 7).unwrap(),
        Dataset::open(dir.path(), Some(0.3), 7).unwrap(),
    );
    assert_eq!(before.split, after.split);
    same(&before.train, &after.train);
    same(&before.val.unwrap(), &after.val.unwrap());
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let data = every_kind();
    for container in [Container::Shards, Container::Tar] {
        let made = |workers| {
            let dir = TempDir::new().unwrap();
            let options = Options {
                workers,
                container,
                ..small_shards()
            };
            prepare(data.path(), dir.path(), &options).unwrap();
            files(dir.path())
        };
        let one = made(1);
        assert!(one.len() > 4);
        assert!(one == made(2) && one == made(7));
    }
}

#[test]
fn shards_are_as_long_as_asked_for_and_not_longer() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let report = prepare(data.path(), dir.path(), &small_shards()).unwrap();
    for shard in &report.manifest.parts["train"].shards {
        // One sample alone may be longer.
        assert!(shard.bytes <= 8_000 || shard.samples() == 1, "{}", shard.bytes);
    }
}

#[test]
fn extracting_gives_the_files_back() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let (out, back) = (dir.path().join("out"), dir.path().join("back"));
    prepare(data.path(), &out, &small_shards()).unwrap();
    let go = AtomicBool::new(false);
    extract(&out, &back, &go, &mut |_| {}).unwrap();
    same(
        &Dataset::open(data.path(), None, 0).unwrap().train,
        &Dataset::open(&back, None, 0).unwrap().train,
    );
    let error = extract(&out, &back, &go, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("cannot write"), "nothing is overwritten: {error}");
}

#[test]
fn extracting_goes_on_behind_a_damaged_sample() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let (out, back) = (dir.path().join("out"), dir.path().join("back"));
    prepare(data.path(), &out, &small_shards()).unwrap();
    let all = Dataset::open(&out, None, 0).unwrap().train;
    let manifest = Manifest::of(&out).unwrap().unwrap();
    let shard = out.join(&manifest.parts["train"].shards[0].file);
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let lost = extract(&out, &back, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].reason.contains("is lost"), "{lost:?}");
    assert_eq!(Dataset::open(&back, None, 0).unwrap().train.len() + 1, all.len());
}

/// A manifest and shards that agree with each other on a part that lies elsewhere, and links in the folder.
#[test]
fn extracting_writes_nothing_outside_its_folder() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let (out, back) = (dir.path().join("out"), dir.path().join("in/back"));
    prepare(data.path(), &out, &small_shards()).unwrap();
    let go = AtomicBool::new(false);
    let path = out.join(Manifest::FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    for part in ["../elsewhere".to_owned(), elsewhere.display().to_string()] {
        let moved = out.join(&part);
        std::fs::create_dir_all(&moved).unwrap();
        for shard in files(&out.join("train")).into_keys() {
            std::fs::copy(out.join("train").join(&shard), moved.join(&shard)).unwrap();
        }
        let bad = good.replace("\"train\":", &format!("\"{part}\":"));
        std::fs::write(&path, bad.replace("train/", &format!("{part}/"))).unwrap();
        let before = files(&elsewhere);
        let error = extract(&out, &back, &go, &mut |_| {}).unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains("not to be trusted"),
            "{error}"
        );
        assert_eq!(
            (files(&elsewhere), dir.path().join("in/elsewhere").exists()),
            (before, false)
        );
    }
    std::fs::write(&path, good).unwrap();
    let aim = dir.path().join("aim");
    std::fs::create_dir(&aim).unwrap();
    std::fs::write(aim.join("file"), "mine").unwrap();
    for (link, to) in [
        ("train", aim.clone()),
        ("train/cat", aim.clone()),
        ("train/cat/1.jpg.partial", aim.join("file")),
    ] {
        let back = TempDir::new().unwrap();
        let link = back.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, &link).unwrap();
        let error = extract(&out, back.path(), &go, &mut |_| {})
            .unwrap_err()
            .to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(files(&aim).into_keys().collect::<Vec<_>>(), ["file"]);
        assert_eq!(std::fs::read(aim.join("file")).unwrap(), b"mine");
    }
    // A file of the user's under the other name.
    let back = TempDir::new().unwrap();
    let partial = back.path().join("train/cat/1.jpg.partial");
    std::fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::fs::write(&partial, "mine").unwrap();
    let error = extract(&out, back.path(), &go, &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().contains("there is a file of this name"),
        "{error}"
    );
    assert_eq!(std::fs::read(&partial).unwrap(), b"mine");
    // The named folder itself may be a link: the caller chose it.
    std::os::unix::fs::symlink(&aim, dir.path().join("link")).unwrap();
    extract(&out, &dir.path().join("link"), &go, &mut |_| {}).unwrap();
}

#[test]
fn tars_hold_keys_and_classes() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let options = Options {
        container: Container::Tar,
        shard_size: 20_000,
        ..small_shards()
    };
    prepare(data.path(), dir.path(), &options).unwrap();
    let mut names = Vec::new();
    let mut archive = tar::Archive::new(std::fs::File::open(dir.path().join("train/000000.tar")).unwrap());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".cls") {
            assert_eq!(bytes, b"0");
        }
        names.push(name);
    }
    assert_eq!(names[..4], ["cat/1.jpg", "cat/1.cls", "cat/2.jpg", "cat/2.cls"]);
    let manifest = Manifest::parse_any(&std::fs::read(dir.path().join("shards.json")).unwrap()).unwrap();
    assert_eq!(manifest.classes, ["cat", "dog"]);
    let findings = verify(dir.path(), Some(data.path()));
    assert_eq!((findings.problems, findings.identical), (vec![], 19));
    let error = Dataset::open(dir.path(), None, 0).unwrap_err().to_string();
    assert!(error.contains("prepare shards"), "{error}");
}
