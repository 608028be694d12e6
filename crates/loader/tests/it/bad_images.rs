//! What becomes of images that cannot be decoded.

use std::sync::Arc;

use stokehold_loader::{BadImage, BadImagePolicy, LoaderError};
use stokehold_storage::ImageList;

use crate::source::{Images, contents, loader, try_loader, workers};

const REASON: &str = "not an image";

fn images(bad: &[usize]) -> Images {
    Images {
        bad: bad.to_vec(),
        ..Images::new(12)
    }
}

#[test]
fn error_ends_the_epoch_with_the_name() {
    let loader = loader(images(&[5]), |o| {
        o.bad_images = BadImagePolicy::Error;
        o.shuffle = false;
    });
    let mut batches = loader.epoch(0);
    assert_eq!(batches.next().unwrap().unwrap().samples, [0, 1, 2, 3]);
    let error = batches.next().unwrap().unwrap_err();
    assert!(
        matches!(&error, LoaderError::BadImage(bad) if bad.sample == 5),
        "{error}"
    );
    assert!(error.to_string().starts_with("images/5.png: "), "{error}");
    assert!(error.to_string().contains(REASON), "{error}");
    assert!(batches.next().is_none(), "an epoch ends with its error");
    assert_eq!(batches.state().batch, 1);
}

#[test]
fn skip_leaves_bad_images_out_and_names_each_once() {
    let loader = loader(images(&[1, 4, 5, 6, 7]), |o| {
        o.bad_images = BadImagePolicy::Skip;
        o.shuffle = false;
    });
    let mut batches = loader.epoch(0);
    let first = batches.next().unwrap().unwrap();
    assert_eq!(
        (first.samples.as_slice(), first.shape),
        (&[0, 2, 3][..], [3, 3, 8, 8])
    );
    assert_eq!(first.pixels.numbers().unwrap().len(), 3 * 3 * 8 * 8);
    assert_eq!(first.bad.iter().map(|bad| bad.sample).collect::<Vec<_>>(), [1]);
    assert_eq!(first.bad[0].name, "images/1.png");
    // The second batch is empty: it is passed over, and the third reports for it.
    let third = batches.next().unwrap().unwrap();
    assert_eq!(third.samples, [8, 9, 10, 11]);
    assert_eq!(
        third.bad.iter().map(|bad| bad.sample).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    assert_eq!(batches.state().batch, 3);
    assert!(batches.next().is_none());
    // The next epoch leaves the same ones out and does not tell again.
    let again: Vec<_> = loader.epoch(1).map(Result::unwrap).collect();
    assert!(again.iter().all(|batch| batch.bad.is_empty()));
    assert_eq!(loader.bad_images().len(), 5);
}

/// Behind the last batch that is not empty there is none that could report them.
#[test]
fn bad_images_after_the_last_batch_are_reported() {
    let samples = |bad: Vec<BadImage>| -> Vec<u64> { bad.iter().map(|bad| bad.sample).collect() };
    let loader = loader(images(&[2, 8, 9, 10, 11]), |o| o.shuffle = false);
    let mut batches = loader.epoch(0);
    let told = batches.by_ref().map(|batch| samples(batch.unwrap().bad));
    assert_eq!(told.collect::<Vec<_>>(), [vec![2], vec![]]);
    assert_eq!(samples(batches.unreported()), [8, 9, 10, 11]);
    assert_eq!(samples(batches.unreported()), [0u64; 0], "once");
    let mut again = loader.epoch(1);
    again
        .by_ref()
        .for_each(|batch| assert_eq!(batch.unwrap().bad, []));
    assert_eq!(samples(again.unreported()), [0u64; 0], "nor in another epoch");
}

#[test]
fn bad_images_before_an_error_are_reported() {
    let loader = loader(images(&(0..12).collect::<Vec<_>>()), |_| {});
    let mut batches = loader.epoch(0);
    assert!(batches.next().unwrap().is_err());
    assert_eq!(batches.unreported().len(), 12);
}

#[test]
fn skipped_images_leave_no_gap() {
    let with = contents(loader(images(&[1]), |o| o.shuffle = false).epoch(0));
    let without = contents(loader(images(&[]), |o| o.shuffle = false).epoch(0));
    let size = 3 * 8 * 8;
    assert_eq!(with[0].3[..size], without[0].3[..size]);
    assert_eq!(with[0].3[size..], without[0].3[2 * size..]);
}

#[test]
fn substitutes_are_of_the_same_class_and_do_not_depend_on_workers() {
    let of = |count| {
        let loader = loader(images(&[1, 4, 6]), |o| {
            o.bad_images = BadImagePolicy::Substitute;
            o.workers = workers(count);
        });
        let batches = contents(loader.epoch(2));
        assert_eq!(loader.bad_images().len(), 3);
        batches
    };
    let batches = of(1);
    assert_eq!(batches, of(4));
    assert!(batches.iter().all(|batch| batch.2 == [4, 3, 8, 8]));
    let samples: Vec<u64> = batches.iter().flat_map(|batch| batch.0.clone()).collect();
    let labels: Vec<u32> = batches.iter().flat_map(|batch| batch.1.clone()).collect();
    assert!(
        samples
            .iter()
            .zip(&labels)
            .all(|(sample, label)| sample % 3 == u64::from(*label))
    );
    // Four of each class, as without bad images.
    assert!((0..3).all(|class| labels.iter().filter(|label| **label == class).count() == 4));
    assert!(!samples.contains(&1) && !samples.contains(&4) && !samples.contains(&6));
}

#[test]
fn a_class_without_a_good_image_has_no_substitute() {
    let loader = loader(images(&[0, 3, 6, 9]), |o| {
        o.bad_images = BadImagePolicy::Substitute
    });
    let error = loader.epoch(0).find_map(Result::err).unwrap();
    assert!(matches!(error, LoaderError::NoSubstitute(_)), "{error}");
}

#[test]
fn bad_images_beyond_the_limit_end_the_epoch() {
    for policy in [BadImagePolicy::Skip, BadImagePolicy::Substitute] {
        let run = |limit| {
            let loader = loader(images(&[1, 4, 6]), |o| {
                o.bad_images = policy;
                o.bad_image_limit = limit;
            });
            (0..3).find_map(|epoch| loader.epoch(epoch).find_map(Result::err))
        };
        assert!(
            run(3).is_none(),
            "as many as the limit are fine, epoch after epoch"
        );
        let error = run(2).unwrap().to_string();
        assert!(
            error.starts_with("more than 2 bad images, the last one images/"),
            "{error}"
        );
    }
}

#[test]
fn nothing_but_bad_images_is_an_error() {
    let error = loader(images(&(0..12).collect::<Vec<_>>()), |_| {})
        .epoch(7)
        .find_map(Result::err)
        .unwrap();
    assert_eq!(
        error.to_string(),
        "not one image of an epoch could be read and decoded"
    );
}

#[test]
fn a_resumed_rest_of_bad_images_is_just_the_end() {
    let loader = loader(images(&[8, 9, 10, 11]), |o| o.shuffle = false);
    let mut batches = loader.epoch(0);
    batches.by_ref().take(2).for_each(|batch| drop(batch.unwrap()));
    assert!(loader.resume(batches.state()).unwrap().next().is_none());
    assert_eq!(loader.bad_images().len(), 4);
}

#[test]
fn rejects_empty_sources_and_epochs_without_a_batch() {
    let error = |images, change: fn(&mut _)| match try_loader(Arc::new(images), change) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    assert_eq!(error(Images::new(0), |_| {}), "there are no images to load");
    assert_eq!(
        error(Images::new(7), |o: &mut stokehold_loader::LoaderOptions| {
            (o.drop_last, o.world_size) = (true, 2);
        }),
        "7 images on 2 rank(s) fill no batch of 4; use a smaller batch size or keep the last partial batch"
    );
}

/// Labels from a list need not be numbered from 0 on.
#[test]
fn classes_may_be_far_apart() {
    let mut list = ImageList::default();
    for class in [u32::MAX, 5, u32::MAX] {
        list.push("/nowhere.jpg", class);
    }
    let loader = try_loader(Arc::new(list), |o| o.bad_images = BadImagePolicy::Substitute).unwrap();
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    assert!(matches!(error, LoaderError::NoSubstitute(_)), "{error}");
}
