//! Samples that a consumer finishes: everything but the images is as ever.

use std::sync::Arc;

use stokehold_loader::LoaderOptions;
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Input, Pipeline, PipelineError, Preparation, Prepare,
    PreparedSample, Runner,
};

use crate::source::{Images, content, loader};

/// A preparation that does all of the work, so that it can be compared: a sample is its numbers.
#[derive(Debug)]
struct Whole;

struct Worker(Runner);

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
    let prepared = loader(images(), |options: &mut LoaderOptions| {
        options.preparation = Some(Arc::new(Whole));
    });
    let made = loader(images(), |_| ());
    for epoch in 0..2 {
        let mut expected = made.epoch(epoch);
        for batch in prepared.epoch(epoch) {
            let batch = batch.unwrap();
            assert!(batch.images.is_empty());
            assert_eq!(batch.prepared.len(), batch.samples.len());
            let (samples, labels, shape, bits) = content(&expected.next().unwrap().unwrap());
            assert_eq!(
                (&batch.samples, &batch.labels, batch.shape),
                (&samples, &labels, shape)
            );
            let numbers = batch.prepared.iter().flat_map(|sample| {
                let numbers: &Vec<f32> = sample.downcast_ref().unwrap();
                numbers.iter().map(|number| number.to_bits())
            });
            assert_eq!(numbers.collect::<Vec<u32>>(), bits);
        }
        assert!(expected.next().is_none());
    }
    assert_eq!(prepared.bad_images(), made.bad_images());
    assert_eq!(prepared.bad_images().len(), 3);
}
