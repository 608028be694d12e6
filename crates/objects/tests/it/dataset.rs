//! A data set in a bucket is the data set that the same files are in a folder.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use stokehold_objects::{Bucket, Options};
use stokehold_s3_server::Server;
use stokehold_storage::shard::Ranges;
use stokehold_storage::{
    BucketPrefix, Buckets, Dataset, Images, SampleBytes, Source, StorageError, open_buckets_with,
};

use crate::tree::{add, tree};

thread_local! {
    /// The settings of the test on this thread.
    static OPTIONS: RefCell<Options> = RefCell::default();
}

/// Opens buckets with the settings of the thread that asks.
struct OfThisThread;

impl Buckets for OfThisThread {
    fn open(&self, uri: &str) -> Result<Box<dyn BucketPrefix>, StorageError> {
        let options = OPTIONS.with_borrow(Options::clone);
        Ok(Box::new(Bucket::with_options(uri, options)?))
    }

    fn split(&self, uri: &str) -> Result<(String, String), StorageError> {
        panic!("{uri} is not divided")
    }
}

fn open(server: &Server, uri: &str, val_split: Option<f64>) -> Result<Dataset, StorageError> {
    open_buckets_with(&OfThisThread);
    OPTIONS.set(Options {
        settings: server.settings(),
        retry: Duration::from_secs(5),
        ..Options::default()
    });
    Dataset::open(uri, val_split, 7)
}

fn contents(images: &Images) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
    let mut bytes = SampleBytes::new();
    (0..images.len())
        .map(|sample| {
            images.read(sample, &mut bytes).unwrap();
            (
                images.below(sample).to_vec(),
                images.class(sample),
                bytes.file().to_vec(),
            )
        })
        .collect()
}

fn assert_same(there: &Dataset, here: &Dataset) {
    assert_eq!(there.train.classes(), here.train.classes());
    assert_eq!(contents(&there.train), contents(&here.train));
    assert_eq!(there.val.as_ref().map(contents), here.val.as_ref().map(contents));
    assert_eq!(there.split, here.split);
}

/// Not as classes called images and masks.
#[test]
fn images_and_masks_in_a_bucket_are_refused() {
    let dir = tree(&[
        "pics/camvid/train/1.png",
        "pics/camvid/trainannot/1.png",
        "pics/table/images/1.png",
        "pics/table/masks/1.png",
        "pics/table/classes.toml",
    ]);
    let server = Server::start(dir.path()).unwrap();
    for name in ["camvid", "table"] {
        let error = open(&server, &format!("s3://pics/{name}"), None).unwrap_err();
        assert!(
            error.to_string().contains("`stokehold prepare` makes shards"),
            "{error}"
        );
    }
}

#[test]
fn classes_order_and_splits_are_those_of_the_folder() {
    let files = [
        "pics/set/train/cat/2.jpg",
        "pics/set/train/cat/10.JPG",
        "pics/set/train/cat/a-b/1.png",
        "pics/set/train/cat/a/b/1.png",
        "pics/set/train/cat/notes.txt",
        "pics/set/train/cat-like/1.webp",
        "pics/set/train/dög/1.jpeg",
        "pics/set/train/dög/sub dir/x y.jpg",
        "pics/set/val/dög/9.jpg",
        "pics/set/val/cat/9.jpg",
        "pics/flat/1.jpg",
        "pics/other/one/1.jpg",
        "pics/other/one/2.jpg",
        "pics/other/one/3.jpg",
        "pics/other/two/1.jpg",
        "pics/other/two/2.jpg",
        "pics/empty/one/1.jpg",
        "pics/empty/two/1.txt",
        "pics/novtrain/val/one/1.jpg",
    ];
    let dir = tree(&files);
    let server = Server::start(dir.path()).unwrap();
    let here = |name: &str, split| Dataset::open(dir.path().join("pics").join(name), split, 7);
    assert_same(
        &open(&server, "s3://pics/set", None).unwrap(),
        &here("set", None).unwrap(),
    );
    assert_same(
        &open(&server, "s3://pics/set/", None).unwrap(),
        &here("set", None).unwrap(),
    );
    assert_same(
        &open(&server, "s3://pics/other", Some(0.4)).unwrap(),
        &here("other", Some(0.4)).unwrap(),
    );
    let mut limited = (
        open(&server, "s3://pics/other", None).unwrap(),
        here("other", None).unwrap(),
    );
    limited.0.limit(3);
    limited.1.limit(3);
    assert_same(&limited.0, &limited.1);

    // The same faults, told in the same words but for the place.
    for (name, split) in [
        ("flat", None),
        ("empty", None),
        ("novtrain", None),
        ("set", Some(0.2)),
    ] {
        let there = open(&server, &format!("s3://pics/{name}"), split)
            .unwrap_err()
            .to_string();
        let here = here(name, split).unwrap_err().to_string();
        let root = dir.path().join("pics").display().to_string();
        assert_eq!(there.replace("s3://pics", ""), here.replace(&root, ""));
    }
    let message = open(&server, "s3://pics/nothing", None).unwrap_err().to_string();
    assert!(
        message.contains("s3://pics/nothing") && message.contains("check the path"),
        "{message}"
    );
    let message = open(&server, "s3://elsewhere/x", None).unwrap_err().to_string();
    assert!(message.contains("NoSuchBucket"), "{message}");
}

#[test]
fn what_is_announced_is_fetched_while_others_are_read() {
    let dir = tree(&[]);
    for number in 0..100 {
        add(dir.path(), format!("pics/set/one/{number:03}.jpg"));
    }
    let server = Server::start(dir.path()).unwrap();
    let images = open(&server, "s3://pics/set", None).unwrap().train;
    assert!(images.reach() > 64);
    server.faults().latency_ms.store(20, SeqCst);
    let mut bytes = SampleBytes::new();
    let read_all = |bytes: &mut SampleBytes| {
        let start = Instant::now();
        for sample in 0..images.len() {
            images.read(sample, bytes).unwrap();
            assert_eq!(bytes.file(), format!("pics/set/one/{sample:03}.jpg").as_bytes());
        }
        start.elapsed()
    };
    let before = server.faults().requests.load(SeqCst);
    let alone = read_all(&mut bytes);
    (0..images.len()).for_each(|sample| images.expect(sample));
    let announced = read_all(&mut bytes);
    assert_eq!(
        server.faults().requests.load(SeqCst) - before,
        200,
        "nothing is fetched twice"
    );
    assert!(alone >= Duration::from_secs(2), "{alone:?}");
    assert!(announced * 4 < alone, "{announced:?} and {alone:?}");
}

#[test]
fn a_read_that_fails_names_the_object() {
    let dir = tree(&["pics/set/one/1.jpg", "pics/set/one/2.jpg"]);
    let server = Server::start(dir.path()).unwrap();
    let images = open(&server, "s3://pics/set", None).unwrap().train;
    fs::remove_file(dir.path().join("pics/set/one/2.jpg")).unwrap();
    let mut bytes = SampleBytes::new();
    for announced in [false, true] {
        if announced {
            images.expect(1);
        }
        let error = images.read(1, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("s3://pics/set/one/2.jpg"), "{error}");
        assert!(!error.reason().contains("s3://"), "{}", error.reason());
        images.read(0, &mut bytes).unwrap();
    }
}

/// Ranges of a local file, counted: what a shard asks for.
#[test]
fn shards_are_read_by_ranges() {
    let dir = tempfile::tempdir().unwrap();
    crate::set::write_set(&dir.path().join("pics/prepared"));
    let here = Dataset::open(dir.path().join("pics/prepared"), None, 7).unwrap();
    let server = Server::start(dir.path()).unwrap();
    let there = open(&server, "s3://pics/prepared", None).unwrap();
    assert!(matches!(there.train, Images::Shards(_)));
    let before = server.faults().requests.load(SeqCst);
    (0..there.train.len()).for_each(|sample| there.train.expect(sample));
    assert_same(&there, &here);
    let requests = server.faults().requests.load(SeqCst) - before;
    assert_eq!(requests, there.train.len() as u64, "one a sample");

    // A shard that is gone is named.
    let shard = walk(&dir.path().join("pics/prepared"))
        .into_iter()
        .find(|path| path.ends_with(".skshard"))
        .unwrap();
    fs::remove_file(&shard).unwrap();
    let message = open(&server, "s3://pics/prepared", None).unwrap_err().to_string();
    assert!(message.contains("s3://pics/prepared/train/"), "{message}");
    assert!(fs::File::open("/dev/null").unwrap().size().is_ok());
}

fn walk(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push(path.display().to_string()),
        }
    }
    found
}
