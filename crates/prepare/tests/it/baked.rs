//! Shards of images that have a pipeline's head behind them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stokehold_loader::{
    BadImagePolicy, DecodeOptions, Executor, Loader, LoaderError, LoaderOptions, Pipeline,
};
use stokehold_prepare::{Bake, Options, PrepareError, extract};
use stokehold_storage::{Dataset, Images, Source};
use tempfile::TempDir;

use crate::data::{every_kind, prepare, verify};

/// The pipeline's head performed on `train`.
fn baking(pipeline: &Pipeline, quality: u8, exif: bool) -> Options {
    let bake = Bake {
        ops: pipeline.head().moves.to_vec(),
        exif,
        quality,
    };
    Options {
        bake: [("train".to_owned(), bake)].into(),
        allow_larger: true,
        ..Options::default()
    }
}

fn loader(images: Images, pipeline: &Pipeline, exif: bool) -> Result<Loader, LoaderError> {
    let options = LoaderOptions {
        batch_size: 4,
        shuffle: true,
        seed: 7,
        executor: Executor::PerOp,
        bad_images: BadImagePolicy::Error,
        decode: DecodeOptions { exif },
        ..LoaderOptions::default()
    };
    Loader::new(Arc::new(images), pipeline.clone(), options)
}

fn epochs(images: Images, pipeline: &Pipeline, exif: bool) -> Vec<Vec<f32>> {
    let loader = loader(images, pipeline, exif).unwrap();
    let epoch = |epoch| {
        loader
            .epoch(epoch)
            .map(|batch| batch.unwrap().pixels.into_f32().unwrap().to_vec())
    };
    (0..2).flat_map(epoch).collect()
}

fn train(dir: &TempDir) -> Images {
    Dataset::open(dir.path(), None, 0).unwrap().train
}

/// The head of two operations, and draws behind it.
fn pipeline() -> Pipeline {
    Pipeline::from_toml(
        r#"
        [[op]]
        type = "Resize"
        size = [40, 48]
        [[op]]
        type = "Pad"
        padding = [2, 3]
        fill = 9
        [[op]]
        type = "RandomResizedCrop"
        size = 32
        [[op]]
        type = "RandomHorizontalFlip"
        [[op]]
        type = "Grayscale"
        [[op]]
        type = "ToFloat"
        "#,
    )
    .unwrap()
}

/// A head that leaves its own results as they are: the same numbers come of the shards, whose head is left out, and of their
/// images as files, operation after operation.
#[test]
fn a_head_is_left_out_and_other_operations_draw_as_before() {
    let (data, dir) = (every_kind(), TempDir::new().unwrap());
    let mut pipeline = pipeline();
    let crop = Pipeline::from_toml("[[op]]\ntype = \"CenterCrop\"\nsize = [40, 48]\n").unwrap();
    pipeline.ops[1] = crop.ops[0].clone();
    for exif in [false, true] {
        let (out, back) = (
            dir.path().join(format!("out-{exif}")),
            dir.path().join(format!("back-{exif}")),
        );
        let report = prepare(data.path(), &out, &baking(&pipeline, 90, exif)).unwrap();
        let facts = &report.manifest.parts["train"];
        assert_eq!(facts.baked.as_ref().unwrap().ops.as_array().unwrap().len(), 2);
        assert_eq!(report.manifest.parts["val"].baked, None);
        extract(&out, &back, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let open = |dir: &Path| Dataset::open(dir, None, 0).unwrap().train;
        assert_eq!(
            epochs(open(&out), &pipeline, exif),
            epochs(open(&back), &pipeline, exif)
        );
        let findings = verify(&out, Some(data.path()));
        assert_eq!((findings.problems, findings.lossless), (vec![], false));
    }
}

#[test]
fn nothing_is_encoded_anew_that_the_head_leaves_as_it_is() {
    let (data, out) = (every_kind(), TempDir::new().unwrap());
    let pipeline = Pipeline::from_toml(
        "[[op]]\ntype = \"Resize\"\nsize = [90, 120]\n[[op]]\ntype = \"RandomCrop\"\nsize = 80\n[[op]]\ntype = \"ToFloat\"",
    )
    .unwrap();
    prepare(data.path(), out.path(), &baking(&pipeline, 10, false)).unwrap();
    // Four of the images are 120 pixels wide and 90 high.
    let (original, baked) = (train(&data), train(&out));
    let mut same = 0;
    for sample in 0..original.len() {
        let pixels = |images: &Images| {
            let mut bytes = stokehold_storage::SampleBytes::new();
            images.read(sample, &mut bytes).unwrap();
            stokehold_pipeline::decode(bytes.file(), &DecodeOptions::default()).unwrap()
        };
        same += usize::from(pixels(&original) == pixels(&baked));
    }
    assert_eq!(same, 4);
    assert_eq!(
        verify(out.path(), Some(data.path())).problems,
        Vec::<String>::new()
    );
}

#[test]
fn pipelines_that_begin_otherwise_are_refused() {
    let (data, out) = (every_kind(), TempDir::new().unwrap());
    prepare(data.path(), out.path(), &baking(&pipeline(), 90, false)).unwrap();
    let refused = |pipeline: &Pipeline, exif| {
        let images = train(&out);
        loader(images, pipeline, exif).err().unwrap().to_string()
    };
    let other = refused(&Pipeline::imagenet_train(32), false);
    assert!(
        other.contains("operation 1 of the pipeline is {\"type\":\"RandomResizedCrop\""),
        "{other}"
    );
    let mut padded = pipeline();
    padded.ops.remove(1);
    let shorter = refused(&padded, false);
    assert!(
        shorter.contains("have {\"type\":\"Pad\"") && shorter.contains("operation 2"),
        "{shorter}"
    );
    let turned = refused(&pipeline(), true);
    assert!(turned.contains("were not turned upright"), "{turned}");
}

/// An image of another size than the manifest's operations make is bad, and not written over the next one of its batch.
#[test]
fn a_manifest_that_does_not_tell_the_truth_ends_in_an_error() {
    let (data, out) = (every_kind(), TempDir::new().unwrap());
    let pipeline =
        Pipeline::from_toml("[[op]]\ntype = \"CenterCrop\"\nsize = 32\n[[op]]\ntype = \"ToFloat\"").unwrap();
    prepare(data.path(), out.path(), &baking(&pipeline, 90, false)).unwrap();
    let manifest = out.path().join("shards.json");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("\"size\": 32"), "{text}");
    fs::write(&manifest, text.replace("\"size\": 32", "\"size\": 48")).unwrap();
    let pipeline =
        Pipeline::from_toml("[[op]]\ntype = \"CenterCrop\"\nsize = 48\n[[op]]\ntype = \"ToFloat\"").unwrap();
    let loader = loader(train(&out), &pipeline, false).unwrap();
    let error = loader.epoch(0).next().unwrap().err().unwrap().to_string();
    assert!(
        error.contains("32x32 pixels") && error.contains("48x48"),
        "{error}"
    );
}

#[test]
fn larger_shards_are_refused_unless_they_are_allowed() {
    let (data, out) = (every_kind(), TempDir::new().unwrap());
    let pipeline = Pipeline::from_toml(
        "[[op]]\ntype = \"Resize\"\nsize = [500, 500]\n[[op]]\ntype = \"RandomCrop\"\nsize = 80\n[[op]]\ntype = \"ToFloat\"",
    )
    .unwrap();
    let allowed = baking(&pipeline, 100, false);
    let refused = Options {
        allow_larger: false,
        ..allowed.clone()
    };
    let error = prepare(data.path(), out.path(), &refused).unwrap_err();
    assert!(
        matches!(error, PrepareError::Larger { times, .. } if times > 2.0),
        "{error}"
    );
    assert!(Dataset::open(out.path(), None, 0).is_err(), "it is not finished");
    let report = prepare(data.path(), out.path(), &allowed).unwrap();
    assert_eq!(report.manifest.parts["train"].samples, 17);
}

#[test]
fn a_part_that_is_not_there_is_an_error() {
    let (data, out) = (every_kind(), TempDir::new().unwrap());
    let mut options = baking(&pipeline(), 90, false);
    let bake = options.bake.remove("train").unwrap();
    options.bake.insert("test".into(), bake);
    let error = prepare(data.path(), out.path(), &options).unwrap_err();
    assert!(error.to_string().contains("it has no test/"), "{error}");
}
