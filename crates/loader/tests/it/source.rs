//! Images in memory, with faults on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_loader::{Batch, Loader, LoaderError, LoaderOptions, Workers};
use stokehold_pipeline::Pipeline;
use stokehold_storage::{SampleBytes, Source, StorageError};

/// `len` small PNGs whose pixels tell them apart; sample s has class s mod `classes`.
#[derive(Default)]
pub struct Images {
    pub len: usize,
    pub classes: u32,
    /// Samples whose bytes are not an image.
    pub bad: Vec<usize>,
    /// A sample of another size.
    pub larger: Option<usize>,
    /// A sample whose reading panics.
    pub panics: Option<usize>,
    /// How long every read takes.
    pub latency: Duration,
    /// How many rounds of arithmetic every read takes, each about a nanosecond.
    pub work: u64,
    /// A sample whose reading takes longer.
    pub slow: Option<(usize, Duration)>,
    /// A sample whose reading ends when every sample's has begun.
    pub last: Option<usize>,
    /// A sample whose class panics when it is asked for after the loader was made.
    pub panics_late: Option<(usize, AtomicBool)>,
    /// How many samples ahead it wants to be told of.
    pub reach: usize,
    /// The samples that were announced.
    pub expected: Mutex<Vec<usize>>,
    /// How many reads there were.
    pub reads: AtomicUsize,
}

impl Images {
    pub fn new(len: usize) -> Self {
        Self {
            len,
            classes: 3,
            ..Self::default()
        }
    }

    /// Waits until this many reads have begun, at most a minute.
    pub fn wait_for_reads(&self, count: usize) {
        let start = Instant::now();
        while self.reads.load(Ordering::SeqCst) < count {
            let begun = self.reads.load(Ordering::SeqCst);
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{begun} of {count} reads have begun, and no more do"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Source for Images {
    fn len(&self) -> usize {
        self.len
    }

    fn class(&self, sample: usize) -> u32 {
        if let Some((late, asked)) = &self.panics_late
            && *late == sample
        {
            assert!(
                !asked.swap(true, Ordering::SeqCst),
                "the class of {sample} panics"
            );
        }
        sample as u32 % self.classes
    }

    fn name(&self, sample: usize) -> String {
        format!("images/{sample}.png")
    }

    fn expect(&self, sample: usize) {
        self.expected.lock().unwrap().push(sample);
    }

    fn reach(&self) -> usize {
        self.reach
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.last == Some(sample) {
            self.wait_for_reads(self.len);
        }
        let more = self.slow.filter(|(slow, _)| *slow == sample);
        (0..self.work).fold(0, |sum: u64, round| std::hint::black_box(sum ^ round));
        thread::sleep(self.latency + more.map_or(Duration::ZERO, |(_, more)| more));
        assert!(self.panics != Some(sample), "sample {sample} panics");
        let into = into.refill();
        if self.bad.contains(&sample) {
            into.extend(b"no image");
            return Ok(());
        }
        let (width, height) = if self.larger == Some(sample) {
            (30, 20)
        } else {
            (12, 10)
        };
        let pixels: Vec<u8> = (0..width * height * 3)
            .map(|i| (i * 7 + sample * 13) as u8)
            .collect();
        let mut encoder = png::Encoder::new(into, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        Ok(())
    }
}

/// A loader of `images` at 8x8 pixels with random crops and flips, options changed by `change`.
pub fn loader(images: Images, change: impl FnOnce(&mut LoaderOptions)) -> Loader {
    try_loader(Arc::new(images), change).unwrap()
}

pub fn try_loader(
    images: Arc<dyn Source>,
    change: impl FnOnce(&mut LoaderOptions),
) -> Result<Loader, LoaderError> {
    let mut options = LoaderOptions {
        batch_size: 4,
        workers: workers(2),
        ..LoaderOptions::default()
    };
    change(&mut options);
    Loader::new(images, Pipeline::published(0, 8), options)
}

pub fn workers(count: usize) -> Workers {
    Workers::Count(count.try_into().unwrap())
}

/// What must be equal for a training step to be the same.
pub type Content = (Vec<u64>, Vec<u32>, [usize; 4], Vec<u32>);

pub fn content(batch: &Batch) -> Content {
    let images = batch.pixels.clone().into_f32().unwrap();
    let bits = images.iter().map(|value| value.to_bits()).collect();
    (batch.samples.clone(), batch.labels.clone(), batch.shape, bits)
}

pub fn contents(batches: impl Iterator<Item = Result<Batch, LoaderError>>) -> Vec<Content> {
    batches.map(|batch| content(&batch.unwrap())).collect()
}
