//! Pipelines that leave images the size that they have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stokehold_loader::{BadImagePolicy, Loader, LoaderError, LoaderOptions};
use stokehold_pipeline::op::{Filter, Op, RandomFlip, Resize, Size};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::Source;

use crate::source::{Images, workers};

fn resize(side: u32) -> Op {
    Op::Resize(Resize {
        size: Size::Side(side),
        interpolation: Filter::Bilinear,
        max_size: None,
    })
}

fn opened(images: Images, ops: Vec<Op>, bad_images: BadImagePolicy) -> Result<Loader, LoaderError> {
    let options = LoaderOptions {
        batch_size: 4,
        workers: workers(2),
        shuffle: false,
        bad_images,
        ..LoaderOptions::default()
    };
    Loader::new(Arc::new(images), Pipeline::new(ops), options)
}

#[test]
fn images_of_one_size_need_no_operation_that_makes_it() {
    let flip = Op::RandomHorizontalFlip(RandomFlip::default());
    for (ops, shape) in [
        (vec![Op::ToFloat], [3, 10, 12]),
        (vec![flip, Op::ToFloat], [3, 10, 12]),
        (vec![resize(20), Op::ToFloat], [3, 20, 24]),
    ] {
        // The first one cannot be read, and says nothing.
        let images = Images {
            bad: vec![0],
            ..Images::new(8)
        };
        let loader = opened(images, ops, BadImagePolicy::Skip).unwrap();
        assert_eq!(loader.shape(), shape);
        let batches: Vec<_> = loader.epoch(0).map(Result::unwrap).collect();
        assert_eq!(batches[1].shape, [4, shape[0], shape[1], shape[2]]);
        assert_eq!((batches[0].samples.len(), batches[0].bad.len()), (3, 1));
    }
    // Nothing is read where the pipeline decides the size.
    let images = Arc::new(Images::new(8));
    let source: Arc<dyn Source> = Arc::clone(&images) as _;
    Loader::new(source, Pipeline::imagenet_train(8), LoaderOptions::default()).unwrap();
    assert_eq!(images.reads.load(Ordering::SeqCst), 0);
}

#[test]
fn an_image_of_another_size_ends_the_epoch_by_every_policy() {
    for policy in [
        BadImagePolicy::Error,
        BadImagePolicy::Skip,
        BadImagePolicy::Substitute,
    ] {
        for executor in [Executor::Fused, Executor::PerOp] {
            let images = Images {
                larger: Some(6),
                ..Images::new(8)
            };
            let options = LoaderOptions {
                batch_size: 4,
                shuffle: false,
                bad_images: policy,
                executor,
                ..LoaderOptions::default()
            };
            let pipeline = Pipeline::new(vec![resize(20), Op::ToFloat]);
            let loader = Loader::new(Arc::new(images), pipeline, options).unwrap();
            let mut batches = loader.epoch(0);
            assert_eq!(batches.next().unwrap().unwrap().samples, [0, 1, 2, 3]);
            let error = batches.next().unwrap().unwrap_err();
            assert!(
                matches!(&error, LoaderError::BadImage(bad) if bad.sample == 6),
                "{error}"
            );
            assert!(
                error.to_string().starts_with(
                    "images/6.png: it has 30x20 pixels and the first image 12x10, so it becomes one of 30x20 and not of 24x20, and \
                     the images of a batch have one size; end the geometry with RandomResizedCrop, CenterCrop"
                ),
                "{error}"
            );
        }
    }
}

#[test]
fn no_size_is_found_where_no_image_can_be_read() {
    let images = Images {
        bad: (0..8).collect(),
        ..Images::new(8)
    };
    let error = opened(images, vec![Op::ToFloat], BadImagePolicy::Skip)
        .err()
        .unwrap();
    assert!(error.to_string().contains("CenterCrop"), "{error}");
}
