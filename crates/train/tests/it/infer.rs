//! Predictions and evaluations of a model from its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;
use stokehold_base::fault::Fault;
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::{Dataset, Images, Source};
use stokehold_train::TrainError;
use stokehold_train::device::DeviceChoice;
use stokehold_train::infer::{Classifier, Flaw, Given, InferOptions, ModelFacts, Outcome, evaluate, top_k};
use stokehold_train::model::{Arch, ResNet};
use stokehold_train::weights::save_safetensors;
use stokehold_untested::needs;

use crate::oracle;

/// What torchvision makes of a folder.
#[derive(Deserialize)]
struct TorchvisionEvaluation {
    root: PathBuf,
    classes: Vec<String>,
    paths: Vec<String>,
    logits: Vec<Vec<f32>>,
    loss: f64,
    right: u64,
    among: u64,
}

/// Oracle: torchvision's resnet18 with random weights, its ImageFolder and its transforms. Tolerance: `tolerance` for
/// logits, the same numbers of right answers.
fn equals_torchvision(images: Option<&Path>, tolerance: f32) {
    let folder = tempfile::tempdir().unwrap();
    let (resize, crop) = (73, 64);
    let question = json!({"folder": folder.path(), "images": images, "resize": resize, "crop": crop});
    let Some(theirs) = oracle::ask_of_files::<TorchvisionEvaluation>("evaluate", question) else {
        return;
    };
    let given = Given {
        arch: Some(Arch::Resnet18),
        classes: Some(theirs.classes),
        pipeline: Some(Pipeline::imagenet_eval(resize, crop)),
        exif: false,
    };
    let classifier = Classifier::open(&folder.path().join("model.pth"), given, DeviceChoice::Cpu).unwrap();
    let options = InferOptions {
        executor: Executor::PerOp,
        batch_size: 7,
        ..InferOptions::default()
    };
    let source = Arc::new(Dataset::open(&theirs.root, None, 0).unwrap().train);
    let names: Vec<String> = (0..source.len()).map(|sample| source.name(sample)).collect();
    assert_eq!(names, theirs.paths);

    let loader = classifier.loader(Arc::clone(&source) as _, &options).unwrap();
    let outcomes: Vec<Outcome<Vec<f32>>> = classifier.outcomes(&loader).map(Result::unwrap).collect();
    assert_eq!(outcomes.len(), theirs.logits.len());
    let (mut worst, mut classes): (f32, Vec<usize>) = (0.0, Vec::new());
    for (number, (ours, theirs)) in outcomes.iter().zip(&theirs.logits).enumerate() {
        assert_eq!(ours.sample, number as u64);
        let logits = ours.prediction.as_ref().unwrap();
        classes.push(top_k(logits, 1)[0].class);
        for (ours, theirs) in logits.iter().zip(theirs) {
            worst = worst.max((ours - theirs).abs());
        }
    }
    println!(
        "{} images, logits {worst} apart, {} right",
        names.len(),
        theirs.right
    );
    assert!(worst < tolerance, "logits are {worst} apart");
    classes.sort_unstable();
    classes.dedup();
    assert!(classes.len() > 1, "always the same class says nothing");

    let evaluation = evaluate(&classifier, &source, &options, 2, &mut |_, _| ()).unwrap();
    assert_eq!(
        (evaluation.images, evaluation.right),
        (theirs.logits.len() as u64, theirs.right)
    );
    let among = (evaluation.topk * evaluation.images as f64).round() as u64;
    assert_eq!((evaluation.k, among), (2, theirs.among));
    assert!(
        (evaluation.loss - theirs.loss).abs() < 1e-4,
        "{} and {}",
        evaluation.loss,
        theirs.loss
    );
    let counted: u64 = evaluation.confusion.iter().map(|[_, _, images]| images).sum();
    assert_eq!(counted, evaluation.images);
}

#[test]
fn generated_images_are_evaluated_as_by_torchvision() {
    // Tolerance: 1e-4.
    equals_torchvision(None, 1e-4);
}

#[test]
fn photographs_are_evaluated_as_by_torchvision() {
    let Some(parts) = needs::data("clothing") else {
        return;
    };
    let val = parts.iter().find(|path| path.ends_with("val"));
    // Tolerance: 0.01. A resize may differ by one level of 255 (SEMANTICS.md), which moves logits by some thousandths.
    equals_torchvision(Some(val.expect("clothing/val")), 0.01);
}

fn facts(classes: &[&str]) -> ModelFacts {
    ModelFacts {
        arch: Arch::Resnet18,
        classes: classes.iter().map(|&class| class.to_owned()).collect(),
        pipeline: Pipeline::imagenet_eval(40, 32),
        exif: true,
    }
}

/// A model's file.
fn saved(folder: &Path, facts: &ModelFacts) -> PathBuf {
    let path = folder.join("model.safetensors");
    let model = ResNet::new(facts.arch, facts.classes.len(), 1, &Device::flex());
    save_safetensors(&model, &path, facts.metadata()).unwrap();
    path
}

fn open(path: &Path, given: Given) -> Result<Classifier, TrainError> {
    Classifier::open(path, given, DeviceChoice::Cpu)
}

#[test]
fn a_models_file_suffices_and_is_the_same_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let facts = facts(&["a,\"b\"", "日本\n"]);
    let path = saved(folder.path(), &facts);
    let bytes = fs::read(&path).unwrap();
    // The run's folder stands for its model.
    let classifier = open(folder.path(), Given::default()).unwrap();
    assert_eq!((classifier.facts(), classifier.path()), (&facts, path.as_path()));
    let same = Given {
        arch: Some(facts.arch),
        classes: Some(facts.classes.clone()),
        pipeline: Some(facts.pipeline.clone()),
        exif: true,
    };
    open(&path, same).unwrap();
    for _ in 0..4 {
        saved(folder.path(), &facts);
        assert!(
            fs::read(&path).unwrap() == bytes,
            "the order of the metadata differs"
        );
    }
}

#[test]
fn a_caller_who_contradicts_the_file_is_told_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(
        folder.path(),
        &ModelFacts {
            exif: false,
            ..facts(&["a", "b"])
        },
    );
    let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let cases = [
        (
            Given {
                arch: Some(Arch::Resnet50),
                ..Given::default()
            },
            ["resnet18", "resnet50"],
        ),
        (
            Given {
                classes: names(&["a", "c"]),
                ..Given::default()
            },
            ["is 'b'", "'c' is given"],
        ),
        (
            Given {
                classes: names(&["a"]),
                ..Given::default()
            },
            ["is 2", "1 is given"],
        ),
        (
            Given {
                pipeline: Some(Pipeline::imagenet_eval(256, 224)),
                ..Given::default()
            },
            ["\"size\":40", "\"size\":224"],
        ),
        (
            Given {
                exif: true,
                ..Given::default()
            },
            ["is off", "on is given"],
        ),
    ];
    for (given, parts) in cases {
        let error = open(&path, given).err().expect("a contradiction");
        assert!(error.is_input());
        let error = error.to_string();
        let named = [path.to_str().unwrap()].into_iter().chain(parts);
        assert!(named.clone().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn opening_without_metadata_names_the_missing_facts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = ResNet::new(Arch::Resnet18, 3, 1, &Device::flex());
    save_safetensors(&model, &path, BTreeMap::new()).unwrap();
    let classes = |count: usize| Some((0..count).map(|class| class.to_string()).collect());
    let arch = Some(Arch::Resnet18);
    let said = |given: Given| {
        let error = open(&path, given).err().expect("something is missing");
        assert!(error.is_input(), "{error}");
        error.to_string()
    };
    assert!(said(Given::default()).contains("which architecture"));
    assert!(
        said(Given {
            arch,
            ..Given::default()
        })
        .contains("which classes")
    );
    let error = said(Given {
        arch,
        classes: classes(1000),
        ..Given::default()
    });
    assert!(error.contains("3 outputs, and 1000 classes"), "{error}");
    let error = said(Given {
        arch: Some(Arch::Resnet34),
        classes: classes(3),
        ..Given::default()
    });
    assert!(error.contains("another architecture"), "{error}");
    let good = open(
        &path,
        Given {
            arch,
            classes: classes(3),
            ..Given::default()
        },
    )
    .unwrap();
    assert_eq!(good.facts().pipeline, Pipeline::imagenet_eval(256, 224));
}

#[test]
fn images_stay_in_order_around_bad_ones() {
    let folder = tempfile::tempdir().unwrap();
    let classifier = open(&saved(folder.path(), &facts(&["a", "b"])), Given::default()).unwrap();
    let good = include_bytes!("../../../../hostile/small.jpg");
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    for seed in 0..4u32 {
        // Which of 23 are bad; in the last round all.
        let is_bad =
            |number: u32| seed == 3 || (number * number + seed).is_multiple_of(3) || number < 6 * seed;
        for number in 0..23 {
            let bytes: &[u8] = if is_bad(number) { b"no image" } else { good };
            fs::write(images.join(format!("{number:02}.jpg")), bytes).unwrap();
        }
        let source = Arc::new(Images::unlabelled(&images).unwrap());
        let options = InferOptions {
            batch_size: 4,
            ..InferOptions::default()
        };
        let loader = classifier.loader(source, &options).unwrap();
        let outcomes: Vec<Outcome<Vec<f32>>> = classifier.outcomes(&loader).map(Result::unwrap).collect();
        let numbers: Vec<u64> = outcomes.iter().map(|outcome| outcome.sample).collect();
        assert_eq!(numbers, (0..23).collect::<Vec<_>>());
        for (number, outcome) in (0..).zip(outcomes) {
            match outcome.prediction {
                Ok(logits) => assert!(!is_bad(number) && logits.len() == 2),
                Err(flaw) => assert!(is_bad(number) && matches!(flaw, Flaw::Bad(_)), "{flaw}"),
            }
        }
    }
}

#[test]
fn other_classes_are_named_and_another_order_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let images = |classes: &[&str]| {
        let root = folder.path().join(classes.concat());
        for class in classes {
            fs::create_dir_all(root.join(class)).unwrap();
            let bytes = include_bytes!("../../../../hostile/small.jpg");
            fs::write(root.join(class).join("x.jpg"), bytes).unwrap();
        }
        Arc::new(Dataset::open(&root, None, 0).unwrap().train)
    };
    let classifier = open(&saved(folder.path(), &facts(&["b", "a"])), Given::default()).unwrap();
    let of = |images| evaluate(&classifier, &images, &InferOptions::default(), 5, &mut |_, _| ());
    let error = of(images(&["a", "c", "d"])).unwrap_err();
    assert!(error.is_input());
    let error = error.to_string();
    assert!(
        error.contains("only in the data: c, d; only in the model: b"),
        "{error}"
    );

    let evaluation = of(images(&["a", "b"])).unwrap();
    // Both images are the same, so both are taken for the same class.
    assert_eq!((evaluation.images, evaluation.right, evaluation.k), (2, 1, 2));
    let names: Vec<&str> = evaluation
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!(names, ["b", "a"]);
    let [mistake] = &evaluation.worst[..] else {
        panic!("{:?}", evaluation.worst)
    };
    assert!(
        mistake.path.ends_with(&format!("{}/x.jpg", mistake.class)),
        "{mistake:?}"
    );
}

proptest! {
    /// What is written is read; no text makes a reader panic, and its message is short.
    #[test]
    fn any_metadata_are_facts_or_a_short_error(
        classes in prop::collection::hash_set(".*", 1..20),
        key in prop::sample::select(vec!["stokehold", "arch", "classes", "pipeline", "exif"]),
        text in prop_oneof![".*", "[\\[\\]{}\",:0-9a-z]{0,4000}"],
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let facts = ModelFacts { classes: classes.into_iter().collect(), ..facts(&[]) };
        let good = facts.metadata();
        prop_assert_eq!(ModelFacts::of_metadata(&good), Ok(Some(facts)));
        // Another text, and the same with one byte changed.
        let mut bytes = good[key].clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for text in [text, String::from_utf8_lossy(&bytes).into_owned()] {
            let mut metadata = good.clone();
            metadata.insert(key.to_owned(), text);
            if let Err(error) = ModelFacts::of_metadata(&metadata) {
                prop_assert!(error.chars().count() < 600, "{}", error);
            }
            metadata.remove(key);
            let read = ModelFacts::of_metadata(&metadata);
            prop_assert!(read.is_err() || (key == "stokehold" && read == Ok(None)));
        }
    }
}

#[test]
fn metadata_that_would_fill_the_memory_are_refused() {
    let with = |key: &str, text: &str| {
        let mut metadata = facts(&["a"]).metadata();
        metadata.insert(key.to_owned(), text.to_owned());
        ModelFacts::of_metadata(&metadata).unwrap_err()
    };
    let huge = serde_json::to_string(&Pipeline::imagenet_eval(16384, 16384)).unwrap();
    for (key, text, reason) in [
        (
            "pipeline",
            huge.as_str(),
            "16384x16384; the networks take 32x32 to 4096x4096",
        ),
        ("pipeline", &"[".repeat(100_000), "the metadata's pipeline: "),
        ("classes", &"[".repeat(100_000), "the metadata's classes: "),
        ("classes", "[]", "there is none"),
        ("classes", r#"["a","b","a"]"#, "'a' is there twice"),
        ("arch", &"x".repeat(1 << 20), "is no architecture"),
        ("exif", "yes", "neither true nor false"),
        ("stokehold", "2", "version '2'"),
    ] {
        let error = with(key, text);
        assert!(error.contains(reason) && error.len() < 1000, "{error}");
    }
}
