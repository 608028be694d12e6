//! Several workers prepare what one does, byte for byte.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use stokehold_base::fault::Fault;
use stokehold_pipeline::Pipeline;
use stokehold_prepare::{Bake, Container, Options, PrepareError, Report, Share, join, prepare_share};
use tempfile::TempDir;

use crate::data::{add, every_kind, files, prepare, small_shards};
use crate::pairs::{BROKEN, pairs};

pub fn share(data: &Path, out: &Path, share: &str, options: &Options) -> Result<Report, PrepareError> {
    let share: Share = share.parse().unwrap();
    prepare_share(data, out, share, options, &AtomicBool::new(false), &mut |_| {})
}

pub fn joined(data: &Path, out: &Path, options: &Options) -> Result<Report, PrepareError> {
    join(data, out, options, &AtomicBool::new(false), &mut |_| {})
}

pub fn check(data: &Path, options: &Options, workers: usize) {
    let dir = TempDir::new().unwrap();
    let (one, many) = (dir.path().join("one"), dir.path().join("many"));
    let of_one = prepare(data, &one, options).unwrap();
    // In any order.
    for worker in (1..=workers).rev() {
        share(data, &many, &format!("{worker}/{workers}"), options).unwrap();
    }
    let of_many = joined(data, &many, options).unwrap();
    assert!(files(&one) == files(&many), "{workers} workers");
    assert_eq!(of_one.manifest.parts, of_many.manifest.parts);
    let names =
        |report: &Report| -> Vec<String> { report.left_out.iter().map(|left| left.name.clone()).collect() };
    assert_eq!(names(&of_one), names(&of_many));
    assert!(!dir.path().join("many.workers").exists(), "shares are left");
    // Once more there is nothing to do.
    joined(data, &many, options).unwrap();
}

#[test]
fn shares_are_joined_to_what_one_worker_writes() {
    let data = every_kind();
    for workers in [1, 2, 3, 30] {
        check(data.path(), &small_shards(), workers);
    }
    let tar = Options {
        container: Container::Tar,
        ..small_shards()
    };
    check(data.path(), &tar, 4);
    let pipeline = Pipeline::named("imagenet-eval").unwrap();
    let ops = pipeline.head().moves.to_vec();
    assert!(!ops.is_empty());
    let bake = Bake {
        ops,
        exif: true,
        quality: 90,
    };
    let baked = Options {
        bake: [("train".to_owned(), bake)].into(),
        allow_larger: true,
        ..small_shards()
    };
    check(data.path(), &baked, 3);
}

#[test]
fn images_that_are_left_out_stay_out() {
    let data = every_kind();
    for name in [
        "train/cat/0.jpg",
        "train/cat/5.jpg",
        "train/dog/z.jpg",
        "val/dog/3.jpg",
    ] {
        add(data.path(), name, b"\xff\xd8 no image");
    }
    let skip = Options {
        skip_bad_images: true,
        ..small_shards()
    };
    for workers in [1, 2, 5, 23] {
        check(data.path(), &skip, workers);
    }
    // Masks go with their images.
    let data = pairs();
    fs::write(
        data.path().join("masks/train").join(BROKEN.replace("jpg", "png")),
        "no mask",
    )
    .unwrap();
    for workers in [2, 5] {
        check(data.path(), &skip, workers);
    }
    // One that does not skip says which worker left it out.
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    share(data.path(), &out, "1/1", &skip).unwrap();
    let error = joined(data.path(), &out, &small_shards()).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("worker 1/1 left it out"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_joined_is_said() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let says = |options: &Options, words: &str| {
        let error = joined(data.path(), &out, options).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(words), "{error}");
    };
    says(&small_shards(), "out.workers: no worker has begun");
    share(data.path(), &out, "1/2", &small_shards()).unwrap();
    says(&small_shards(), "worker 2/2 has not finished: run --worker 2/2");
    share(
        data.path(),
        &out,
        "2/2",
        &Options {
            shard_size: 9_000,
            ..small_shards()
        },
    )
    .unwrap();
    says(
        &small_shards(),
        "worker 2/2 prepared another data set, or with other options",
    );
    fs::remove_dir_all(dir.path().join("out.workers/2-of-2")).unwrap();
    share(data.path(), &out, "1/3", &small_shards()).unwrap();
    says(&small_shards(), "there are shares of 2 workers and of 3");
    fs::remove_dir_all(dir.path().join("out.workers/1-of-3")).unwrap();
    share(data.path(), &out, "2/2", &small_shards()).unwrap();
    // A byte that is not as it was written is found, and nothing is lost: the share is made again.
    let damaged = dir.path().join("out.workers/2-of-2/train/000000.skshard");
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    assert!(joined(data.path(), &out, &small_shards()).is_err());
    fs::remove_dir_all(dir.path().join("out.workers/2-of-2")).unwrap();
    share(data.path(), &out, "2/2", &small_shards()).unwrap();
    joined(data.path(), &out, &small_shards()).unwrap();
    let one = dir.path().join("one");
    prepare(data.path(), &one, &small_shards()).unwrap();
    assert!(files(&one) == files(&out));
}

/// A join removes what workers made, and nothing that lies next to it.
#[test]
fn what_is_not_of_the_joined_shares_stays() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let workers = dir.path().join("out.workers");
    for worker in ["1/2", "2/2"] {
        share(data.path(), &out, worker, &small_shards()).unwrap();
    }
    fs::write(workers.join("important.txt"), "precious").unwrap();
    fs::create_dir(workers.join("2-of-2/mine")).unwrap();
    fs::write(workers.join("2-of-2/mine/too.txt"), "precious").unwrap();
    joined(data.path(), &out, &small_shards()).unwrap();
    assert!(!workers.join("1-of-2").exists());
    assert_eq!(files(&workers).len(), 2, "{:?}", files(&workers));
    // Shares of another preparation, after the result is there: they are not joined, and so not removed.
    fs::remove_dir_all(&workers).unwrap();
    let other = Options {
        shard_size: 9_000,
        ..small_shards()
    };
    share(data.path(), &out, "1/1", &other).unwrap();
    let before = files(&workers);
    joined(data.path(), &out, &small_shards()).unwrap();
    assert!(files(&workers) == before);
    // One of the same that a worker is at work in stays, too.
    fs::remove_dir_all(&workers).unwrap();
    share(data.path(), &out, "1/1", &small_shards()).unwrap();
    let lock = fs::File::open(workers.join("1-of-1")).unwrap();
    lock.lock().unwrap();
    let before = files(&workers);
    joined(data.path(), &out, &small_shards()).unwrap();
    assert!(files(&workers) == before);
    drop(lock);
    joined(data.path(), &out, &small_shards()).unwrap();
    assert!(!workers.exists());
}

/// Work that can be stopped, and that shows its progress.
type Work<'a> = &'a dyn Fn(&AtomicBool, &mut dyn FnMut(stokehold_prepare::Progress));

/// A worker and a join that are cut short continue where they were.
#[test]
fn interrupted_workers_and_joins_go_on() {
    let data = every_kind();
    let dir = TempDir::new().unwrap();
    let (one, out) = (dir.path().join("one"), dir.path().join("out"));
    let options = Options {
        shard_size: 2_000,
        ..small_shards()
    };
    prepare(data.path(), &one, &options).unwrap();
    let stop_after = |most: usize, work: Work<'_>| {
        let stop = AtomicBool::new(false);
        work(&stop, &mut |progress| {
            stop.store(progress.done >= most, std::sync::atomic::Ordering::Relaxed)
        });
    };
    for worker in ["1/2", "2/2"] {
        for most in [3, 7] {
            stop_after(most, &|stop, progress| {
                let done = prepare_share(
                    data.path(),
                    &out,
                    worker.parse().unwrap(),
                    &options,
                    stop,
                    progress,
                );
                assert!(matches!(done, Err(PrepareError::Interrupted)), "{done:?}");
            });
        }
        assert!(share(data.path(), &out, worker, &options).unwrap().kept > 0);
    }
    stop_after(12, &|stop, progress| {
        let done = join(data.path(), &out, &options, stop, progress);
        assert!(matches!(done, Err(PrepareError::Interrupted)), "{done:?}");
    });
    assert!(joined(data.path(), &out, &options).unwrap().kept > 0);
    assert!(files(&one) == files(&out));
}
