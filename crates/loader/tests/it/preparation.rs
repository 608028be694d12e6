//! Samples that a consumer finishes: everything but the images is as ever.

use std::sync::Arc;

use stokehold_loader::{
    BadImagePolicy, Batch, BatchStream, Batches, Device, Loader, LoaderError, LoaderOptions, Pixels,
};
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Input, Pipeline, PipelineError, Preparation, Prepare,
    PreparedSample, Runner,
};

use crate::source::{Images, content, loader};

/// A preparation that does all of the work, so that it can be compared: a sample is its numbers.
#[derive(Debug)]
struct Whole;

struct Worker(Runner);

/// A device that leaves the samples as they are.
impl Device for Whole {
    fn preparation(&self) -> Arc<dyn Preparation> {
        Arc::new(Whole)
    }

    fn check(&self, _: &Pipeline) -> Result<(), LoaderError> {
        Ok(())
    }

    fn epoch(&self, _: &Loader, prepared: Batches, _: bool) -> Box<dyn BatchStream> {
        Box::new(prepared)
    }
}

fn prepared(batch: &Batch) -> &[PreparedSample] {
    match &batch.pixels {
        Pixels::Prepared(samples) => samples,
        other => panic!("{other:?}"),
    }
}

impl Preparation for Whole {
    fn begin(
        &self,
        pipeline: &Arc<Pipeline>,
        decode: DecodeOptions,
    ) -> Result<Box<dyn Prepare>, PipelineError> {
        Ok(Box::new(Worker(Runner::new(
            pipeline.clone(),
            Executor::Fused,
            decode,
        )?)))
    }
}

impl Prepare for Worker {
    fn prepare(&mut self, input: Input<'_>, key: DrawKey) -> Result<PreparedSample, ImageError> {
        let mut numbers = vec![0f32; self.0.output_len()];
        self.0.run(input, key, &mut numbers)?;
        Ok(Arc::new(numbers))
    }
}

/// Bad images are left out of both alike, so places and samples stay together.
#[test]
fn prepared_samples_are_the_images_of_the_same_batches() {
    let images = || Images {
        bad: vec![2, 3, 11],
        ..Images::new(23)
    };
    let prepares = loader(images(), |options: &mut LoaderOptions| {
        options.device = Some(Arc::new(Whole));
    });
    let made = loader(images(), |_| ());
    for epoch in 0..2 {
        let mut expected = made.epoch(epoch);
        for batch in prepares.epoch(epoch) {
            let batch = batch.unwrap();
            assert_eq!(prepared(&batch).len(), batch.samples.len());
            let (samples, labels, shape, bits) = content(&expected.next().unwrap().unwrap());
            assert_eq!(
                (&batch.samples, &batch.labels, batch.shape),
                (&samples, &labels, shape)
            );
            let numbers = prepared(&batch).iter().flat_map(|sample| {
                let numbers: &Vec<f32> = sample.downcast_ref().unwrap();
                numbers.iter().map(|number| number.to_bits())
            });
            assert_eq!(numbers.collect::<Vec<u32>>(), bits);
        }
        assert!(expected.next().is_none());
    }
    assert_eq!(prepares.bad_images(), made.bad_images());
    assert_eq!(prepares.bad_images().len(), 3);
    let without = LoaderOptions {
        executor: Executor::Gpu,
        ..LoaderOptions::default()
    };
    let refused = Loader::new(Arc::new(images()), Pipeline::imagenet_eval(8, 8), without)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("this loader has none"), "{refused}");
}

/// Bad images that only their consumer finds: the policy is that of the workers, and each is reported once.
#[test]
fn images_rejected_by_the_consumer_follow_the_policy() {
    let rejecting = |policy: BadImagePolicy, limit: usize| {
        let loader = loader(Images::new(23), |options: &mut LoaderOptions| {
            options.device = Some(Arc::new(Whole));
            options.bad_images = policy;
            options.bad_image_limit = limit;
        });
        let mut batches = loader.begin(0, 0);
        let mut batch = batches.next().unwrap().unwrap();
        let before = (batch.samples.clone(), batch.labels.clone());
        let found = [(0, "broken".to_owned()), (2, "broken too".to_owned())];
        let outcome = batches.reject(&mut batch, &found);
        assert_eq!(prepared(&batch).len(), batch.samples.len());
        assert_eq!(batch.shape[0], batch.samples.len());
        (outcome, before, batch, loader.bad_images())
    };
    let (outcome, (samples, labels), batch, bad) = rejecting(BadImagePolicy::Skip, 100);
    assert!(!outcome.unwrap());
    assert_eq!(batch.samples, [&samples[1..2], &samples[3..]].concat());
    assert_eq!(batch.labels, [&labels[1..2], &labels[3..]].concat());
    assert_eq!(bad.len(), 2);
    let told: Vec<_> = batch
        .bad
        .iter()
        .map(|bad| (bad.sample, bad.reason.as_str()))
        .collect();
    assert_eq!(told, [(samples[0], "broken"), (samples[2], "broken too")]);

    let (outcome, (samples, labels), batch, _) = rejecting(BadImagePolicy::Substitute, 100);
    assert!(outcome.unwrap());
    assert_eq!(batch.labels, labels, "of the same classes");
    for (place, (now, before)) in batch.samples.iter().zip(&samples).enumerate() {
        assert_eq!(now != before, [0, 2].contains(&place), "place {place}");
    }
    assert_eq!(batch.bad.len(), 2);

    let (outcome, (samples, _), ..) = rejecting(BadImagePolicy::Error, 100);
    let error = outcome.unwrap_err();
    assert!(
        matches!(&error, LoaderError::BadImage(bad) if bad.sample == samples[0]),
        "{error}"
    );
    let (outcome, ..) = rejecting(BadImagePolicy::Skip, 1);
    assert!(matches!(
        outcome.unwrap_err(),
        LoaderError::TooManyBadImages { limit: 1, .. }
    ));
}
