//! Training and validation.

use std::collections::BTreeSet;
use std::path::Path;

use stokehold_storage::{Dataset, Images, Source};
use tempfile::TempDir;

use crate::tree::{add, tree};

fn below(root: &Path, images: &Images) -> BTreeSet<String> {
    let strip = |path: String| {
        Path::new(&path)
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    (0..images.len())
        .map(|sample| strip(images.name(sample)))
        .collect()
}

fn error(path: &Path, val_split: Option<f64>) -> String {
    Dataset::open(path, val_split, 0).unwrap_err().to_string()
}

/// Classes of 1, 2, 10 and 100 images.
fn one_tree() -> TempDir {
    let dir = TempDir::new().unwrap();
    for (class, count) in [("d", 100), ("c", 10), ("b", 2), ("a", 1)] {
        for number in 0..count {
            add(dir.path(), format!("{class}/{number}.jpg"));
        }
    }
    dir
}

#[test]
fn val_has_the_numbers_of_train() {
    let dir = tree(&[
        "train/a/1.jpg",
        "train/b/1.jpg",
        "train/c/1.jpg",
        "val/c/2.jpg",
        "val/b/2.jpg",
    ]);
    let data = Dataset::open(dir.path(), None, 0).unwrap();
    let val = data.val.unwrap();
    assert_eq!(val.classes(), ["a", "b", "c"]);
    assert_eq!((0..val.len()).map(|s| val.class(s)).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(data.split, None);
}

#[test]
fn without_val_there_is_none() {
    for files in [&["train/a/1.jpg"][..], &["a/1.jpg"]] {
        let dir = tree(files);
        assert!(Dataset::open(dir.path(), None, 0).unwrap().val.is_none());
    }
}

#[test]
fn a_split_is_stratified_and_complete() {
    let dir = one_tree();
    let data = Dataset::open(dir.path(), Some(0.2), 7).unwrap();
    let val = data.val.as_ref().unwrap();
    assert_eq!(data.train.counts(), [1, 1, 8, 80]);
    assert_eq!(val.counts(), [0, 1, 2, 20]);
    let (train, val) = (below(dir.path(), &data.train), below(dir.path(), val));
    assert!(train.is_disjoint(&val));
    assert_eq!(train.len() + val.len(), 113);
    let split = data.split.unwrap();
    assert_eq!(split.single_image_classes, ["a"]);
    assert_eq!(
        split.to_string(),
        "0.2 of each class split off for validation (seed 7); class a has one image, which stays in training"
    );
    // However large the share, every class keeps an image to train on.
    assert_eq!(
        Dataset::open(dir.path(), Some(0.99), 7).unwrap().train.counts(),
        [1, 1, 1, 1]
    );
}

#[test]
fn a_split_depends_on_the_seed_and_not_on_the_place() {
    let (dir, same) = (one_tree(), one_tree());
    let val = |dir: &TempDir, seed| {
        below(
            dir.path(),
            &Dataset::open(dir.path(), Some(0.2), seed).unwrap().val.unwrap(),
        )
    };
    assert_eq!(val(&dir, 1), val(&same, 1));
    assert_ne!(val(&dir, 1), val(&dir, 2));
    // An image more moves at most itself and the ones on the border.
    add(same.path(), "d/100.jpg");
    assert!(val(&dir, 1).difference(&val(&same, 1)).count() <= 1);
}

#[test]
fn a_train_folder_can_be_split_too() {
    let dir = tree(&["train/a/1.jpg", "train/a/2.jpg"]);
    let data = Dataset::open(dir.path(), Some(0.5), 0).unwrap();
    assert_eq!((data.train.len(), data.val.unwrap().len()), (1, 1));
}

#[test]
fn layouts_that_make_no_sense_are_named() {
    let only_val = tree(&["val/a/1.jpg"]);
    assert!(error(only_val.path(), None).contains("has val/ and no train/"));
    let both = tree(&["train/a/1.jpg", "val/a/1.jpg"]);
    assert!(error(both.path(), Some(0.2)).contains("has its own val/"));
    let strangers = tree(&["train/a/1.jpg", "val/a/1.jpg", "val/x/1.jpg", "val/y/1.jpg"]);
    assert_eq!(
        error(strangers.path(), None),
        format!(
            "{0}/val: class x, y is not among the training classes of {0}/train; \
             a network cannot learn a class it never sees",
            strangers.path().display()
        )
    );
    let single = tree(&["a/1.jpg", "b/1.jpg"]);
    assert!(error(single.path(), Some(0.2)).contains("every class has only one image"));
    for fraction in [0.0, 1.0, -0.5, f64::NAN, f64::INFINITY] {
        assert!(error(single.path(), Some(fraction)).contains("must be above 0 and below 1"));
    }
    assert!(error(Path::new("/nowhere/at/all"), None).contains("no such folder"));
    let flat = tree(&["train/1.jpg"]);
    assert!(error(flat.path(), None).contains("has no class folders"));
}

#[test]
fn limit_keeps_the_share_of_validation() {
    let dir = one_tree();
    let mut data = Dataset::open(dir.path(), Some(0.2), 7).unwrap();
    let all = |data: &Dataset| {
        (
            below(dir.path(), &data.train),
            data.val.as_ref().map(|val| below(dir.path(), val)),
        )
    };
    let whole = all(&data);
    data.limit(90);
    assert_eq!(all(&data), whole);
    data.limit(45);
    assert_eq!(data.train.counts(), [1, 1, 8, 35]);
    assert_eq!(data.val.unwrap().counts(), [0, 1, 2, 9]);
}

#[test]
fn a_bucket_is_refused_where_nobody_registered_any() {
    let said = [
        error(Path::new("s3://bucket/set"), None),
        Images::unlabelled("s3://bucket/set").unwrap_err().to_string(),
    ];
    for said in said {
        assert!(
            said.starts_with("s3://bucket/set: ") && said.contains("without buckets"),
            "{said}"
        );
    }
}
