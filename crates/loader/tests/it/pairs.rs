//! Batches of images and masks.

use std::sync::Arc;

use stokehold_loader::{BadImagePolicy, Batch, Loader, LoaderError, LoaderOptions, Workers};
use stokehold_pipeline::{DrawKey, Executor, Mask, MaskTable, Pipeline, perform_on_mask};
use stokehold_storage::{Coding, IGNORE, PixelClasses, SampleBytes, Source, StorageError};

/// Pairs in memory: the mask of sample s has the class (x + y + s) mod 5 at (x, y).
struct Pairs {
    len: usize,
    classes: PixelClasses,
    /// Samples whose mask cannot be read, and those whose mask has a value that no class has.
    missing: Vec<usize>,
    unknown: Vec<usize>,
    small: Vec<usize>,
}

fn pairs(len: usize) -> Pairs {
    Pairs {
        len,
        classes: PixelClasses {
            names: ["a", "b", "c", "d", "e"].map(str::to_owned).into(),
            colors: None,
            coding: Coding::Values((0..5).map(|value| (value, value as u8)).collect()),
        },
        missing: vec![],
        unknown: vec![],
        small: vec![],
    }
}

const SIZE: (u32, u32) = (20, 14);

fn mask_of(sample: usize) -> Mask {
    let (width, height) = SIZE;
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| ((x + y + sample as u32) % 5) as u8));
    Mask {
        width,
        height,
        data: pixels.collect(),
    }
}

fn png(color: png::ColorType, (width, height): (u32, u32), data: &[u8], into: &mut Vec<u8>) {
    let mut encoder = png::Encoder::new(into, width, height);
    encoder.set_color(color);
    encoder.write_header().unwrap().write_image_data(data).unwrap();
}

impl Source for Pairs {
    fn len(&self) -> usize {
        self.len
    }

    fn class(&self, _: usize) -> u32 {
        0
    }

    fn name(&self, sample: usize) -> String {
        format!("images/{sample}.png")
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        let pixels: Vec<u8> = mask_of(sample)
            .data
            .iter()
            .flat_map(|&class| [class * 50; 3])
            .collect();
        png(png::ColorType::Rgb, SIZE, &pixels, into.refill());
        Ok(())
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        Some(&self.classes)
    }

    fn mask_name(&self, sample: usize) -> String {
        format!("masks/{sample}.png")
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        if self.missing.contains(&sample) {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            let path = self.mask_name(sample).into();
            return Err(StorageError::Read { path, source });
        }
        into.clear();
        let mut mask = mask_of(sample);
        if self.unknown.contains(&sample) {
            mask.data[23] = 77;
        }
        let height = if self.small.contains(&sample) {
            SIZE.1 - 1
        } else {
            SIZE.1
        };
        let data = &mask.data[..(SIZE.0 * height) as usize];
        png(png::ColorType::Grayscale, (SIZE.0, height), data, into);
        Ok(())
    }
}

fn pipeline() -> Pipeline {
    Pipeline::published(1, 8)
}

fn load(pairs: Pairs, change: impl FnOnce(&mut LoaderOptions)) -> Loader {
    let mut options = LoaderOptions {
        batch_size: 4,
        workers: Workers::Count(2.try_into().unwrap()),
        seed: 9,
        ..LoaderOptions::default()
    };
    change(&mut options);
    Loader::new(Arc::new(pairs), pipeline(), options).unwrap()
}

/// Every mask is that of its sample, through the geometry of its sample.
fn check(batch: &Batch, executor: Executor, epoch: u64) {
    let [count, _, height, width] = batch.shape;
    assert_eq!(
        (batch.masks.len(), batch.labels.iter().sum::<u32>()),
        (count * height * width, 0)
    );
    for (mask, &sample) in batch.masks.chunks_exact(height * width).zip(&batch.samples) {
        let key = DrawKey {
            seed: 9,
            epoch,
            sample,
        };
        let steps = pipeline().draw(key, SIZE.0, SIZE.1).unwrap();
        assert_eq!(
            mask,
            perform_on_mask(executor, &steps, mask_of(sample as usize)).data
        );
    }
}

#[test]
fn masks_follow_their_images_through_order_workers_and_resume() {
    for executor in [Executor::PerOp, Executor::Fused] {
        let loader = load(pairs(22), |options| options.executor = executor);
        let mut batches = loader.epoch(1);
        let first = batches.next().unwrap().unwrap();
        check(&first, executor, 1);
        let state = batches.state();
        let rest: Vec<Batch> = batches.map(Result::unwrap).collect();
        assert_eq!(rest.iter().map(|batch| batch.samples.len()).sum::<usize>(), 18);
        rest.iter().for_each(|batch| check(batch, executor, 1));
        let other = load(pairs(22), |options| {
            options.executor = executor;
            options.workers = Workers::Count(5.try_into().unwrap());
        });
        let resumed: Vec<Batch> = other.resume(state).unwrap().map(Result::unwrap).collect();
        assert_eq!(resumed.len(), rest.len());
        for (resumed, rest) in resumed.iter().zip(&rest) {
            assert_eq!((&resumed.masks, &resumed.samples), (&rest.masks, &rest.samples));
        }
    }
}

#[test]
fn a_bad_mask_makes_its_image_a_bad_one() {
    let bad = || Pairs {
        missing: vec![3],
        unknown: vec![5],
        small: vec![8],
        ..pairs(11)
    };
    for policy in [BadImagePolicy::Skip, BadImagePolicy::Substitute] {
        let loader = load(bad(), |options| {
            options.bad_images = policy;
            options.executor = Executor::Fused;
        });
        let mut images = 0;
        for batch in loader.epoch(0) {
            let batch = batch.unwrap();
            assert!(batch.samples.iter().all(|sample| ![3, 5, 8].contains(sample)));
            images += batch.samples.len();
            check_samples(&batch);
        }
        assert_eq!(images, if policy == BadImagePolicy::Skip { 8 } else { 11 });
        let found: Vec<String> = loader
            .bad_images()
            .iter()
            .map(|bad| format!("{}: {}", bad.name, bad.reason))
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("images/3.png: its mask masks/3.png: cannot read this file"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("images/5.png: its mask masks/5.png: pixel (3, 1) has the value 77"),
            "{found:?}"
        );
        assert!(
            found[2]
                .starts_with("images/8.png: its mask masks/8.png: it has 20x13 pixels, and the image 20x14"),
            "{found:?}"
        );
    }
    let error = load(bad(), |options| options.bad_images = BadImagePolicy::Error)
        .epoch(0)
        .find_map(Result::err);
    assert!(matches!(error, Some(LoaderError::BadImage(_))), "{error:?}");
}

/// As [`check`], where draws of substitutes are not those of their own place: every mask is one of the sample's, moved.
fn check_samples(batch: &Batch) {
    let plane = batch.shape[2] * batch.shape[3];
    assert_eq!(batch.masks.len(), batch.samples.len() * plane);
    assert!(batch.masks.iter().all(|&class| class < 5 || class == IGNORE));
}

#[test]
fn images_with_classes_have_no_masks() {
    let loader = crate::source::loader(crate::source::Images::new(5), |_| ());
    assert!(loader.epoch(0).all(|batch| batch.unwrap().masks.is_empty()));
}

/// What the trainer and the page of a data set decode masks with is what the loader does.
#[test]
fn a_table_of_classes_decodes_what_the_loader_decodes() {
    let pairs = pairs(1);
    let table: MaskTable = stokehold_loader::mask_table(&pairs.classes);
    let mut bytes = Vec::new();
    pairs.read_mask(0, &mut bytes).unwrap();
    assert_eq!(Mask::decode(&bytes, &table).unwrap(), mask_of(0));
}
