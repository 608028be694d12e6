//! JPEGs in their packed form: what was made of them, and tables of the data set's own.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jpeg_encoder::ColorType;
use stokehold_base::fault::Fault;
use stokehold_jpeg::{Decoder, Metadata, PackTables, is_packed};
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_prepare::{Bake, Container, Content, Options, extract};
use stokehold_storage::shard::{Manifest, ShardFolder};
use stokehold_storage::{Dataset, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{add, every_kind, files, jpeg, large, png, prepare, small_shards, verify};
use crate::disturbed::interrupted;
use crate::shares::{check, joined, share};
use crate::whole::same;

/// Images of every kind that have tables of their own.
fn every_kind_with_tables() -> TempDir {
    let data = every_kind();
    large(&data);
    data
}

/// How long the tables section of every shard is.
fn tables_sections(out: &Path) -> Vec<u32> {
    let shards = files(out)
        .into_iter()
        .filter(|(name, _)| name.ends_with(".skshard"));
    shards
        .map(|(_, bytes)| u32::from_le_bytes(bytes[24..28].try_into().unwrap()))
        .collect()
}

fn manifest(out: &Path) -> Manifest {
    Manifest::of(out).unwrap().unwrap()
}

/// Every sample's name, its bytes, and how many bytes of tables it has.
fn samples(out: &Path, part: &str) -> Vec<(String, Vec<u8>, usize)> {
    let folder = ShardFolder::open(out, part, &manifest(out)).unwrap();
    let mut bytes = SampleBytes::new();
    let sample = |sample: usize| {
        folder.read(sample, &mut bytes).unwrap();
        let tables = bytes.tables().map_or(0, <[u8]>::len);
        let name = String::from_utf8_lossy(folder.below(sample)).into_owned();
        (name, bytes.file().to_vec(), tables)
    };
    (0..folder.len()).map(sample).collect()
}

#[test]
fn packed_jpegs_stand_for_the_data_set() {
    for (data, has_tables) in [(every_kind(), false), (every_kind_with_tables(), true)] {
        let dir = TempDir::new().unwrap();
        let report = prepare(data.path(), dir.path(), &small_shards()).unwrap();
        assert_eq!(report.kept_as_they_are, []);
        assert_eq!(
            report.manifest.prepared,
            "JPEGs packed without loss, metadata dropped"
        );
        assert!(report.manifest.lossless);
        let all = [samples(dir.path(), "train"), samples(dir.path(), "val")].concat();
        let packed = all.iter().filter(|(_, file, _)| is_packed(file)).count();
        assert!(packed > 3, "{packed}");
        assert!(all.iter().all(|(_, _, tables)| (*tables > 0) == has_tables));
        for tables in tables_sections(dir.path()) {
            assert_eq!(tables > 0, has_tables);
        }
        let (before, after) = (
            Dataset::open(data.path(), None, 0).unwrap().train,
            Dataset::open(dir.path(), None, 0).unwrap().train,
        );
        let findings = verify(dir.path(), Some(data.path()));
        assert_eq!(findings.problems, [""; 0]);
        assert_eq!((findings.samples, findings.identical), (all.len(), all.len()));
        let (before, after) = (Arc::new(before), Arc::new(after));
        for executor in [Executor::Fused, Executor::PerOp] {
            let batches = |images: Arc<stokehold_storage::Images>| {
                let options = LoaderOptions {
                    executor,
                    batch_size: 5,
                    ..LoaderOptions::default()
                };
                let loader = Loader::new(images, Pipeline::published(2, 24), options).unwrap();
                let batches = (0..6).flat_map(|epoch| loader.epoch(epoch));
                batches
                    .map(|batch| {
                        let batch = batch.unwrap();
                        assert_eq!(batch.bad, []);
                        let floats = batch.pixels.into_f32().unwrap().to_vec();
                        let bits: Vec<u32> = floats.iter().map(|value| value.to_bits()).collect();
                        (batch.samples, batch.labels, bits)
                    })
                    .collect::<Vec<_>>()
            };
            assert!(batches(before.clone()) == batches(after.clone()), "{executor}");
        }
    }
}

#[test]
fn tables_are_those_of_the_data_set() {
    let data = every_kind_with_tables();
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    let folder = ShardFolder::open(dir.path(), "train", &manifest(dir.path())).unwrap();
    let first = folder.shards()[0].tables().unwrap();
    assert!(folder.shards().len() > 2);
    for shard in folder.shards() {
        assert!(
            std::ptr::eq(shard.tables().unwrap(), first),
            "they are in memory once"
        );
    }
    let tables = PackTables::parse(first).unwrap();
    assert_ne!(tables.id(), PackTables::built_in().id());
    // Those of other images are others; files that cannot be read are not among them.
    add(data.path(), "train/cat/0.jpg", b"no image");
    let skip = Options {
        skip_bad_images: true,
        ..small_shards()
    };
    let again = TempDir::new().unwrap();
    prepare(data.path(), again.path(), &skip).unwrap();
    let tables_of = |dir: &Path| {
        let folder = ShardFolder::open(dir, "val", &manifest(dir)).unwrap();
        folder.shards()[0].tables().unwrap().to_vec()
    };
    assert_eq!(tables_of(again.path()), first);
    add(
        data.path(),
        "train/cat/0.jpg",
        &jpeg(99, (64, 64), ColorType::Rgb, |_| {}),
    );
    let other = TempDir::new().unwrap();
    prepare(data.path(), other.path(), &skip).unwrap();
    assert_ne!(tables_of(other.path()), first);
}

#[test]
fn files_that_are_kept_need_no_tables() {
    let data = every_kind_with_tables();
    let dir = TempDir::new().unwrap();
    let raw = dir.path().join("raw");
    let options = Options {
        content: Content::Raw,
        ..small_shards()
    };
    prepare(data.path(), &raw, &options).unwrap();
    let pngs = TempDir::new().unwrap();
    add(pngs.path(), "a/1.png", &png(1, 20, 30));
    add(pngs.path(), "b/2.png", &png(2, 20, 30));
    let of_pngs = dir.path().join("pngs");
    prepare(pngs.path(), &of_pngs, &small_shards()).unwrap();
    for out in [&raw, &of_pngs] {
        let sections = tables_sections(out);
        assert!(
            !sections.is_empty() && sections.iter().all(|&length| length == 0),
            "{sections:?}"
        );
    }
    let images = Dataset::open(&raw, None, 0).unwrap().train;
    same(&Dataset::open(data.path(), None, 0).unwrap().train, &images);
}

#[test]
fn tar_files_hold_ordinary_jpegs() {
    let data = every_kind_with_tables();
    let options = Options {
        container: Container::Tar,
        ..small_shards()
    };
    let dir = TempDir::new().unwrap();
    let report = prepare(data.path(), dir.path(), &options).unwrap();
    assert!(
        report.manifest.prepared.contains("transcoded"),
        "{}",
        report.manifest.prepared
    );
    let mut jpegs = 0;
    for (name, bytes) in files(dir.path()) {
        if !name.ends_with(".tar") {
            continue;
        }
        let mut archive = tar::Archive::new(&*bytes);
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut file = Vec::new();
            entry.read_to_end(&mut file).unwrap();
            assert!(!is_packed(&file), "{:?}", entry.path().unwrap());
            jpegs += usize::from(file.starts_with(&[0xFF, 0xD8]));
        }
    }
    assert!(jpegs > 10, "{jpegs}");
    check(data.path(), &options, 3);
}

#[test]
fn what_was_cut_short_and_what_was_joined_end_the_same() {
    let data = every_kind_with_tables();
    let options = Options {
        shard_size: 12_000,
        workers: 1,
        ..small_shards()
    };
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &options).unwrap();
    let whole = files(dir.path());
    for images in 0..19 {
        let dir = TempDir::new().unwrap();
        interrupted(data.path(), dir.path(), &options, images);
        prepare(data.path(), dir.path(), &options).unwrap();
        assert!(files(dir.path()) == whole, "cut short after {images} images");
    }
    for workers in [2, 7] {
        let options = Options {
            workers,
            ..options.clone()
        };
        let dir = TempDir::new().unwrap();
        prepare(data.path(), dir.path(), &options).unwrap();
        assert!(files(dir.path()) == whole);
    }
    for workers in [1, 2, 5, 30] {
        check(data.path(), &options, workers);
    }
    let pipeline = Pipeline::named("imagenet-eval").unwrap();
    let bake = Bake {
        ops: pipeline.head().moves.to_vec(),
        exif: true,
        quality: 90,
    };
    let baked = Options {
        bake: [("train".to_owned(), bake)].into(),
        allow_larger: true,
        ..options
    };
    check(data.path(), &baked, 3);
}

/// Shares whose images have changed since would have samples that cannot be read.
#[test]
fn shares_with_other_tables_are_not_joined() {
    let data = every_kind_with_tables();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    for worker in ["1/2", "2/2"] {
        share(data.path(), &out, worker, &small_shards()).unwrap();
    }
    let path = data.path().join("train/dog/large.jpg");
    let before = fs::read(&path).unwrap();
    // The same size, so that it is taken for the same data set.
    let mut other = jpeg(51, (64, 64), ColorType::Rgb, |_| {});
    other.resize(before.len(), 0);
    fs::write(&path, other).unwrap();
    let error = joined(data.path(), &out, &small_shards()).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("files have changed; remove the share"),
        "{error}"
    );
    fs::write(&path, before).unwrap();
    // A damaged section says so.
    let shard = dir.path().join("out.workers/2-of-2/train/000000.skshard");
    let good = fs::read(&shard).unwrap();
    let mut bytes = good.clone();
    bytes[100] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let error = joined(data.path(), &out, &small_shards())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("checksum of the tables") && error.contains("run --worker 2/2 again"),
        "{error}"
    );
    fs::write(&shard, good).unwrap();
    joined(data.path(), &out, &small_shards()).unwrap();
    assert_eq!(verify(&out, Some(data.path())).problems, [""; 0]);
}

#[test]
fn damaged_tables_cost_packed_jpegs_and_nothing_else() {
    let data = every_kind_with_tables();
    let dir = TempDir::new().unwrap();
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let out = dir.path().join("out");
    prepare(data.path(), &out, &options).unwrap();
    let whole = files(&out);
    let path = out.join("train/000000.skshard");
    let mut bytes = fs::read(&path).unwrap();
    bytes[200] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let all = samples(&out, "train");
    let packed: Vec<&str> = all
        .iter()
        .filter(|(_, file, _)| is_packed(file))
        .map(|(name, ..)| &**name)
        .collect();
    assert!(packed.len() > 3 && packed.len() < all.len());
    let findings = verify(&out, Some(data.path()));
    let said = |words: &str| {
        findings
            .problems
            .iter()
            .filter(|said| said.contains(words))
            .count()
    };
    assert_eq!(said("the tables of its packed JPEGs are damaged at byte 32"), 1);
    for name in &packed {
        assert_eq!(said(&format!(":{name}:")), 1, "{:?}", findings.problems);
    }
    // The val part is whole, and so are files of train that are not packed.
    let (all, of_val) = (all.len(), samples(&out, "val").len());
    assert_eq!(findings.identical, all + of_val - packed.len());
    let back = dir.path().join("back");
    let lost = extract(&out, &back, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let names: Vec<&str> = lost.iter().map(|lost| &*lost.name).collect();
    assert_eq!(names, packed);
    assert!(
        lost[0].reason.contains("its packed JPEG cannot be read"),
        "{lost:?}"
    );
    // The same preparation writes the shard again where its manifest is gone.
    fs::remove_file(out.join(Manifest::FILE)).unwrap();
    fs::write(out.join(Manifest::FILE), "{").unwrap();
    prepare(data.path(), &out, &options).unwrap();
    assert!(files(&out) == whole);
}

/// A header that is not as it was written cannot be seen in a sample.
#[test]
fn a_finished_shard_with_a_damaged_header_is_made_again() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    prepare(data.path(), dir.path(), &small_shards()).unwrap();
    let whole = files(dir.path());
    for name in whole.keys().filter(|name| name.ends_with(".skshard")) {
        let path = dir.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] ^= 1;
        fs::write(&path, bytes).unwrap();
        fs::write(dir.path().join(Manifest::FILE), "{").unwrap();
        prepare(data.path(), dir.path(), &small_shards()).unwrap();
        assert!(files(dir.path()) == whole, "{name}");
    }
}

#[test]
fn extracted_files_are_ordinary_and_have_the_same_coefficients() {
    let data = every_kind_with_tables();
    let profile = vec![7; 3000];
    let described = jpeg(1, (60, 40), ColorType::Rgb, |encoder| {
        encoder.add_icc_profile(&profile).unwrap()
    });
    add(data.path(), "train/cat/described.jpg", &described);
    for metadata in [Metadata::Keep, Metadata::Drop] {
        let dir = TempDir::new().unwrap();
        let (out, back) = (dir.path().join("out"), dir.path().join("back"));
        let options = Options {
            content: Content::Lossless(metadata),
            ..small_shards()
        };
        prepare(data.path(), &out, &options).unwrap();
        let lost = extract(&out, &back, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(lost, []);
        let (before, after) = (files(data.path()), files(&back));
        assert_eq!(before.len(), after.len());
        let mut jpegs = 0;
        for (name, file) in &before {
            let extracted = after
                .get(name)
                .or_else(|| after.get(&format!("{name}.jpg")))
                .unwrap_or_else(|| panic!("{name}"));
            assert!(!is_packed(extracted));
            assert_eq!(&file[..2] == b"\xff\xd8", &extracted[..2] == b"\xff\xd8");
            let has_profile = |file: &[u8]| file.windows(11).any(|bytes| bytes == b"ICC_PROFILE");
            if name.ends_with("described.jpg") {
                assert_eq!(
                    (has_profile(file), has_profile(extracted)),
                    (true, metadata == Metadata::Keep)
                );
            }
            if &file[..2] != b"\xff\xd8" {
                assert!(file == extracted);
                continue;
            }
            jpegs += 1;
            let (mut a, mut b) = (Decoder::new(), Decoder::new());
            let (a, b) = (a.coefficients(file).unwrap(), b.coefficients(extracted).unwrap());
            assert_eq!((a.width, a.height, a.color), (b.width, b.height, b.color));
            for (a, b) in a.components().iter().zip(b.components()) {
                assert_eq!((a.steps, a.sampling), (b.steps, b.sampling));
                for y in 0..a.blocks_high {
                    assert_eq!(a.row(y), b.row(y), "{name}");
                }
            }
        }
        assert!(jpegs > 14);
        same(
            &Dataset::open(data.path(), None, 0).unwrap().train,
            &Dataset::open(&back, None, 0).unwrap().train,
        );
    }
}
