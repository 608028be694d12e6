//! Shards of images and masks.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jpeg_encoder::ColorType;
use stokehold_base::fault::Fault;
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_prepare::{Bake, Container, Content, Options, Size, extract};
use stokehold_storage::shard::Manifest;
use stokehold_storage::{Dataset, Images, PixelClasses, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{add, jpeg, prepare, small_shards, verify};

/// The name of the image with a broken mask.
pub const BROKEN: &str = "c/3.jpg";

fn mask(seed: usize, (width, height): (u32, u32), values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let data: Vec<u8> = (0..width * height)
        .map(|i| values[(i as usize / 3 + seed) % values.len()])
        .collect();
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

/// 12 training pairs in two folders and 3 of validation, whose classes have values of their own and colours.
pub fn pairs() -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let table = "ignore = [9]\n[[class]]\nname = \"road\"\nvalue = [7, 8]\ncolor = [1, 2, 3]\n\
                 [[class]]\nname = \"car\"\nvalue = 300\ncolor = [4, 5, 6]\n[[class]]\nname = \"sky\"\nvalue = 0\ncolor = [7, 8, 9]\n";
    fs::write(root.join("classes.toml"), table).unwrap();
    for (part, count) in [("train", 12), ("val", 3)] {
        for i in 0..count {
            let folder = if i % 2 == 0 { "a" } else { "c" };
            let size = (40 + i as u16, 30);
            let image = jpeg(i, size, ColorType::Rgb, |_| ());
            add(root, &format!("images/{part}/{folder}/{i}.jpg"), &image);
            let mask = mask(i, (size.0.into(), size.1.into()), &[7, 8, 0, 9, 255]);
            add(root, &format!("masks/{part}/{folder}/{i}.png"), &mask);
        }
    }
    dir
}

fn same(a: &Images, b: &Images) {
    assert_eq!(a.len(), b.len());
    assert_eq!(a.pixel_classes(), b.pixel_classes());
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for sample in 0..a.len() {
        assert_eq!(a.below(sample), b.below(sample));
        a.read_mask(sample, &mut of_a).unwrap();
        b.read_mask(sample, &mut of_b).unwrap();
        assert_eq!(of_a, of_b, "{}", b.mask_name(sample));
        b.read(sample, &mut SampleBytes::new()).unwrap();
    }
}

fn open(dir: &Path) -> Dataset {
    Dataset::open(dir, None, 0).unwrap()
}

#[test]
fn they_stand_for_the_folder_of_pairs() {
    let data = pairs();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let options = Options {
        shard_size: 3000,
        ..small_shards()
    };
    let manifest = prepare(data.path(), &out, &options).unwrap().manifest;
    assert!(manifest.lossless && manifest.parts["train"].shards.len() > 1);
    let names: Vec<&String> = manifest.parts.keys().collect();
    assert_eq!(names, ["train", "train-masks", "val", "val-masks"]);
    let (before, mut after) = (open(data.path()), open(&out));
    assert!(matches!(after.train, Images::Shards(_)));
    same(&before.train, &after.train);
    same(before.val.as_ref().unwrap(), after.val.as_ref().unwrap());
    assert_eq!(
        Images::unlabelled(&out).unwrap().len(),
        15,
        "images without masks"
    );

    let found = verify(&out, Some(data.path()));
    assert_eq!(
        (found.samples, found.identical, &found.problems[..]),
        (30, 30, &[][..])
    );

    let batches = |images: &Images| -> Vec<(Vec<f32>, Vec<u8>)> {
        let options = LoaderOptions {
            batch_size: 5,
            executor: Executor::Fused,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(Arc::new(images.clone()), Pipeline::imagenet_train(24), options).unwrap();
        let batches = loader.epoch(1).map(Result::unwrap);
        batches
            .map(|batch| (batch.pixels.into_f32().unwrap().to_vec(), batch.masks.to_vec()))
            .collect()
    };
    assert!(batches(&before.train) == batches(&after.train), "other batches");

    // A mask stays next to its image when samples are taken away.
    let mut limited = before.train.clone();
    limited.limit(5);
    after.train.limit(5);
    same(&limited, &after.train);
}

#[test]
fn a_broken_mask_takes_its_image_along() {
    let data = pairs();
    let root = data.path();
    let whole = fs::read(root.join("masks/train/c/3.png")).unwrap();
    let name = |at: &str| at.contains(BROKEN);
    let dir = TempDir::new().unwrap();
    let small = mask(3, (9, 9), &[0]);
    let unknown = mask(3, (43, 30), &[77]);
    let cases = [
        (&small, "9x9"),
        (&unknown, "the value 77"),
        (&whole[..50].to_vec(), "PNG"),
        (&Vec::new(), "empty"),
    ];
    for (number, (bytes, what)) in cases.into_iter().enumerate() {
        fs::write(root.join("masks/train/c/3.png"), bytes).unwrap();
        let error = prepare(
            root,
            &dir.path().join(format!("refused{number}")),
            &small_shards(),
        )
        .unwrap_err();
        let said = error.to_string();
        assert!(error.is_input() && name(&said) && said.contains(what), "{said}");

        let out = dir.path().join(number.to_string());
        let options = Options {
            skip_bad_images: true,
            ..small_shards()
        };
        let report = prepare(root, &out, &options).unwrap();
        assert_eq!(report.left_out.len(), 1);
        assert!(name(&report.left_out[0].name), "{:?}", report.left_out);
        assert_eq!(report.manifest.parts["train-masks"].left_out, ["c/3.png"]);
        let mut before = open(root).train;
        let kept: Vec<bool> = (0..before.len())
            .map(|i| before.below(i) != BROKEN.as_bytes())
            .collect();
        assert_eq!(kept.iter().filter(|kept| **kept).count(), 11);
        let after = open(&out).train;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (at, sample) in (0..12).filter(|i| kept[*i]).enumerate() {
            before.read_mask(sample, &mut a).unwrap();
            after.read_mask(at, &mut b).unwrap();
            assert!(a == b && before.below(sample) == after.below(at));
        }
        before.limit(0);
        let found = verify(&out, Some(root));
        assert_eq!(found.problems, Vec::<String>::new());
        // The shards of the images are kept, and those of the masks are made again, without the one of the image that is not there.
        fs::write(out.join(Manifest::FILE), "{").unwrap();
        fs::remove_dir_all(out.join("train-masks")).unwrap();
        let again = prepare(root, &out, &options).unwrap();
        assert!(again.kept >= 11 && again.manifest == report.manifest);
    }
}

#[test]
fn extracting_gives_a_data_set_of_pairs() {
    let data = pairs();
    let dir = TempDir::new().unwrap();
    let (out, back) = (dir.path().join("out"), dir.path().join("back"));
    prepare(data.path(), &out, &small_shards()).unwrap();
    let lost = extract(&out, &back, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(lost, []);
    let (before, after) = (open(data.path()), open(&back));
    same(&before.train, &after.train);
    same(before.val.as_ref().unwrap(), after.val.as_ref().unwrap());
}

#[test]
fn what_would_leave_masks_behind_is_refused() {
    let data = pairs();
    let dir = TempDir::new().unwrap();
    let bake = Bake {
        ops: Vec::new(),
        exif: false,
        quality: 90,
    };
    let cases = [
        (
            Options {
                container: Container::Tar,
                ..small_shards()
            },
            "--tar",
        ),
        (
            Options {
                content: Content::Resized {
                    size: Size::ShorterSide(20),
                    quality: 90,
                    metadata: stokehold_jpeg::Metadata::Drop,
                },
                ..small_shards()
            },
            "--resize",
        ),
        (
            Options {
                bake: [("train".to_owned(), bake)].into(),
                ..small_shards()
            },
            "--pipeline",
        ),
    ];
    for (options, what) in cases {
        let error = prepare(data.path(), &dir.path().join("out"), &options).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(what), "{error}");
    }
}

/// A manifest that lies about masks is an error and nothing else.
#[test]
fn manifests_of_masks_are_checked() {
    let data = pairs();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    prepare(data.path(), &out, &small_shards()).unwrap();
    let text = fs::read_to_string(out.join(Manifest::FILE)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        fs::write(out.join(Manifest::FILE), json.to_string()).unwrap();
        Dataset::open(&out, None, 0).map(|_| ()).unwrap_err().to_string()
    };
    let said = changed(&|json| _ = json["parts"].as_object_mut().unwrap().remove("train-masks"));
    assert!(said.contains("train-masks has 0 masks"), "{said}");
    let said = changed(&|json| json["parts"]["train-masks"] = json["parts"]["val-masks"].clone());
    assert!(said.contains("no file in the folder of its part"), "{said}");
    let said = changed(&|json| json["pixels"]["class"] = serde_json::json!([]));
    assert!(said.contains("there are no classes"), "{said}");
    let said = changed(&|json| json["pixels"]["class"][1]["value"] = 7.into());
    assert!(said.contains("the value 7 is there twice"), "{said}");
    let said = changed(&|json| _ = json.as_object_mut().unwrap().remove("pixels"));
    assert!(
        said.contains("without classes") || said.contains("no class"),
        "{said}"
    );
}

/// What is written of classes, and read again, is what it was.
#[test]
fn classes_survive_a_manifest() {
    for table in [
        "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n",
        "ignore = [[0, 0, 0]]\n[[class]]\nname = \"a\"\ncolor = [1, 2, 3]\n",
        "ignore = [65535]\n[[class]]\nname = \"a \\\"quoted\\\"\"\nvalue = [1, 40000]\n",
    ] {
        let classes = PixelClasses::parse(table).unwrap();
        let json = serde_json::to_string(&classes).unwrap();
        assert_eq!(serde_json::from_str::<PixelClasses>(&json).unwrap(), classes);
        assert_eq!(
            PixelClasses::parse(&classes.table(std::iter::empty())).unwrap(),
            classes
        );
    }
}
