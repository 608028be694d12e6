//! A loader: a source, a pipeline and options.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use serde::Deserialize;
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{DecodeOptions, Pipeline, PipelineError, SampleType, probe};
use stokehold_storage::shard::Baked;
use stokehold_storage::{SampleBytes, Source};

use crate::order::{Layout, Order};
use crate::sampler::Chooser;
use crate::shared::Shared;
use crate::{
    BadImage, Batch, BatchStream, Batches, Costs, ImageBuffer, LoaderError, LoaderOptions, NumberedEpoch,
    State, Workers,
};

/// Iterates over a source in batches, epoch by epoch.
///
/// It belongs to the process that made it: in a fork every epoch fails with [`LoaderError::Forked`]. It has
/// no threads; those belong to the [`BatchStream`] of an epoch. Between epochs it keeps the workers' buffers and
/// the memory of dropped batches, at most [`Loader::prefetch`] plus one. A clone is the same loader.
#[derive(Clone)]
pub struct Loader {
    shared: Arc<Shared>,
    /// As it was given.
    pipeline: Arc<Pipeline>,
}

impl Loader {
    /// Prepares to load `source` through `pipeline`. Reads nothing yet, but where the pipeline leaves images the size that they
    /// have: then the header of the first one says what all are to have.
    ///
    /// # Errors
    /// An option is out of range, or the sampler does not fit the source; the source is empty; with `drop_last` there
    /// is no full batch; the pipeline is invalid, its images differ in size, or its samples cannot have the requested
    /// type; the images were prepared with another head than the pipeline's.
    pub fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
    ) -> Result<Self, LoaderError> {
        options.check()?;
        if source.is_empty() {
            return Err(LoaderError::Empty);
        }
        let given = Arc::new(pipeline.clone());
        let pipeline = sized(pipeline, &*source, options.decode)?;
        let (width, height) = pipeline.check()?;
        pipeline.check_output(options.sample_type)?;
        if let Some(device) = &options.device {
            device.check(&pipeline)?;
        }
        if source.pixel_classes().is_some() {
            pipeline.check_masks()?;
        }
        let images = options.batch_size.div_ceil(options.parts.of);
        check_memory(images, options.sample_type, (width.into(), height.into()))?;
        let chooser = Chooser::new(&options, &*source)?;
        let shape = [3, height as usize, width as usize];
        let shared = Shared::new(source, pipeline, shape, options, chooser);
        let (workers, prefetch) = (shared.workers(), shared.prefetch(shared.workers()));
        let Layout {
            samples,
            batch_size,
            world_size,
            ..
        } = shared.layout();
        if shared.layout().batches() == 0 {
            return Err(LoaderError::NoFullBatch {
                samples,
                world_size,
                batch_size,
            });
        }
        let (tools, bytes) = shared.tools()?;
        shared.keep_tools(tools, bytes);
        let batches = shared.layout().batches();
        tracing::info!(samples, batch_size, batches, workers, prefetch, "a loader");
        Ok(Self {
            shared: Arc::new(shared),
            pipeline: given,
        })
    }

    /// The samples of its source, on all ranks. [`LoaderOptions::sampler`] may choose others for an epoch.
    pub fn images(&self) -> usize {
        self.shared.source.len()
    }

    /// Batches per epoch, the same on every rank. Skipped images may reduce the number.
    pub fn batches_per_epoch(&self) -> usize {
        self.shared.layout().batches() as usize
    }

    /// The number of worker threads of an epoch. With [`Workers::Auto`](crate::Workers::Auto) it may grow while the
    /// consumer waits, and change between two epochs; where batches come from [`LoaderOptions::elsewhere`], it stands for none.
    pub fn workers(&self) -> usize {
        match (&self.shared.options.elsewhere, self.shared.options.workers) {
            (Some(_), Workers::Auto) => 0,
            _ => self.shared.workers(),
        }
    }

    /// What the workers of all epochs spent on images so far.
    pub fn costs(&self) -> Costs {
        self.shared.meter.costs()
    }

    /// Why there are as many workers as [`Loader::workers`] says, in words; `None` if the options say how many.
    pub fn workers_why(&self) -> Option<String> {
        if self.shared.options.elsewhere.is_some() {
            return None;
        }
        let cores = match self.shared.options.workers {
            Workers::Auto => self.shared.options.workers.resolve(),
            Workers::Count(_) => return None,
        };
        let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
        let costs = self.shared.asked();
        let (Some(cpu), Some(wait)) = (costs.cpu_seconds(), costs.wait_seconds()) else {
            return Some(format!("one for each of the cores, {cores}"));
        };
        let (cpu, wait) = (ms(cpu), ms(wait));
        Some(if self.workers() > cores {
            let rate = self.shared.demand.rate();
            let consumer = rate
                .filter(|rate| *rate < 1e6)
                .map(|rate| format!(", or a consumer that takes {rate:.0} images/s"));
            format!(
                "a read waits {wait} and an image costs {cpu} of CPU time, and {cores} cores are to be kept busy{}",
                consumer.unwrap_or_default()
            )
        } else {
            format!(
                "one for each of the cores, {cores}: a read waits {wait} and an image costs {cpu} of CPU time"
            )
        })
    }

    /// The most batches in work or ready.
    pub fn prefetch(&self) -> usize {
        self.shared.prefetch(self.workers())
    }

    /// [3, H, W]: channels, height and width of every image.
    pub fn shape(&self) -> [usize; 3] {
        self.shared.shape
    }

    /// The bad images found so far, by sample, for a report at the end of a run.
    pub fn bad_images(&self) -> Vec<BadImage> {
        self.shared.bad().values().cloned().collect()
    }

    /// Starts an epoch: its threads begin at once.
    pub fn epoch(&self, epoch: u64) -> Box<dyn BatchStream> {
        self.on_device(self.begin(epoch, 0), false)
    }

    /// The epoch from a number on, of the workers or of [`LoaderOptions::elsewhere`]: with a device, of prepared samples.
    #[doc(hidden)]
    pub fn begin(&self, epoch: u64, first: u64) -> Batches {
        let (shared, order) = (Arc::clone(&self.shared), self.shared.order(epoch));
        match &self.shared.options.elsewhere {
            None => Batches::start(shared, epoch, order, first),
            Some(elsewhere) => {
                let supply = elsewhere.begin(self, epoch, first..order.yields());
                Batches::supplied(shared, epoch, order, first, supply)
            }
        }
    }

    fn on_device(&self, batches: Batches, given: bool) -> Box<dyn BatchStream> {
        match &self.shared.options.device {
            Some(device) => device.epoch(self, batches, given),
            None => Box::new(batches),
        }
    }

    /// An epoch with the batches that come through a channel while it runs, until its other end is dropped: the samples of each, in
    /// its order. `epoch` decides the random operations, as that of an ordinary epoch does. The first `first` batches are skipped.
    ///
    /// The options' sampler, shuffling, ranks and batch size have no part in it, and [`BatchStream::state`] counts the batches that
    /// came. Every batch is yielded, also an empty one, and one of which all images are skipped; a device yields no batch without
    /// images, and [`BatchStream::passed`] counts it. Dropping the stream disconnects the channel.
    ///
    /// # Errors
    /// The options want batches from [`LoaderOptions::elsewhere`], or in parts. The epoch ends with an error after a batch that has a
    /// sample that the source does not have, or too many for any memory.
    pub fn given(
        &self,
        epoch: u64,
        first: u64,
        batches: Receiver<Vec<usize>>,
    ) -> Result<Box<dyn BatchStream>, LoaderError> {
        let options = &self.shared.options;
        if options.elsewhere.is_some() || !options.parts.are_whole() {
            return Err(LoaderError::Options {
                reason: "batches that are given are made in this process, and whole".into(),
            });
        }
        let shared = Arc::clone(&self.shared);
        let batches = Batches::start(shared, epoch, Order::given(batches), first);
        Ok(self.on_device(batches, true))
    }

    /// An epoch whose batches are made by their numbers, each by itself, by a [`WorkerPool`](crate::WorkerPool).
    pub fn numbered(&self, epoch: u64) -> NumberedEpoch {
        NumberedEpoch::new(Arc::clone(&self.shared), epoch)
    }

    /// A batch to be filled by a [`Supply`](crate::Supply), and memory for its pixels: for `images` images, N·3·H·W numbers of the
    /// loader's sample type with unspecified values. Dropped, it goes back to the loader.
    pub fn batch(&self, images: usize) -> (Batch, ImageBuffer) {
        let mut batch = Batch::empty(&self.shared);
        batch.shape[0] = images;
        let pool = &self.shared.pool;
        let numbers = pool.take(images * self.shape().iter().product::<usize>());
        (batch, ImageBuffer::new(numbers, Arc::clone(pool)))
    }

    /// Its source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared.source
    }

    /// Its pipeline, with the head that its images may have behind them.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Its options.
    pub fn options(&self) -> &LoaderOptions {
        &self.shared.options
    }

    /// The samples of an epoch on this rank, in the order in which its batches have them.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let order = self.shared.order(epoch);
        (0..self.shared.layout().yields())
            .flat_map(|batch| order.batch(batch))
            .collect()
    }

    /// The state at the beginning of an epoch.
    pub fn start_of(&self, epoch: u64) -> State {
        self.shared.state(epoch, 0)
    }

    /// Checks that a state identifies the same batches for this loader as for the one that saved it.
    ///
    /// # Errors
    /// As [`Loader::resume`].
    pub fn check_state(&self, state: &State) -> Result<(), LoaderError> {
        state.check(&self.start_of(0), self.shared.layout().batches())
    }

    /// Checks that this is the process that made the loader.
    ///
    /// # Errors
    /// [`LoaderError::Forked`].
    pub fn check_process(&self) -> Result<(), LoaderError> {
        self.shared.check_process()
    }

    /// Continues from a saved state: yields the rest of the state's epoch. Behind its last batch that is an epoch without a
    /// batch; the next one begins with [`Loader::epoch`], or a resume from [`Loader::start_of`] it.
    ///
    /// # Errors
    /// The state was saved with another seed, other data, or options that make other batches.
    pub fn resume(&self, state: State) -> Result<Box<dyn BatchStream>, LoaderError> {
        self.check_state(&state)?;
        let first = state.batch * self.shared.options.parts.count as u64;
        Ok(self.on_device(self.begin(state.epoch, first), false))
    }
}

/// What is left to do of a pipeline for the images of a source ([`remaining`]), and where the size of its output depends on theirs, the
/// size of the first one that can be read.
///
/// # Errors
/// As [`remaining`]; the pipeline is not valid, or images of one size come out in different ones.
pub fn sized(
    pipeline: Pipeline,
    source: &dyn Source,
    options: DecodeOptions,
) -> Result<Pipeline, LoaderError> {
    let pipeline = remaining(pipeline, source.baked(), options.exif)?;
    if pipeline.check_before_images()?.is_some() {
        return Ok(pipeline);
    }
    let mut bytes = SampleBytes::new();
    let mut headers = (0..source.len().min(TRIED)).filter_map(|sample| {
        source.read(sample, &mut bytes).ok()?;
        Some(probe(bytes.file()).ok()?.size(&options))
    });
    let first = headers.next();
    Ok(match first {
        Some((width, height)) => pipeline.of_images(width, height),
        None => pipeline,
    })
}

/// How many images are tried for one whose header can be read.
const TRIED: usize = 100;

/// The part of a pipeline that is left to do for images that have its head behind them: all of it where there is no such head.
///
/// # Errors
/// The pipeline does not begin with that head, or `exif` is not what the images were prepared with.
pub fn remaining(pipeline: Pipeline, baked: Option<&Baked>, exif: bool) -> Result<Pipeline, LoaderError> {
    let Some(baked) = baked else {
        return Ok(pipeline);
    };
    if baked.exif != exif {
        let reason = match baked.exif {
            true => {
                "the images were turned upright by EXIF when they were prepared; load them with exif, too"
            }
            false => {
                "the images were not turned upright by EXIF when they were prepared; load them without exif, or prepare \
                 them with it"
            }
        };
        return Err(LoaderError::Options {
            reason: reason.into(),
        });
    }
    let ops = Vec::<Op>::deserialize(&baked.ops).map_err(|error| PipelineError::Parse {
        origin: "what the images have behind them (shards.json)".into(),
        reason: error.to_string(),
    })?;
    tracing::info!(
        operations = ops.len(),
        "the images have the pipeline's head behind them"
    );
    Ok(pipeline.after(&ops)?)
}

/// The most bytes of a batch: more than any device takes at once.
const MOST_BYTES: u64 = 1 << 34;

/// Refuses batches that no memory would hold.
pub(crate) fn check_memory(
    images: usize,
    sample_type: SampleType,
    (width, height): (u64, u64),
) -> Result<(), LoaderError> {
    let bytes = (images as u64).saturating_mul(3 * width * height * sample_type.bytes() as u64);
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let reason = format!(
        "a batch of {images} images of {width}x{height} takes {} GiB, more than {}: use a smaller batch size, or smaller images",
        bytes >> 30,
        MOST_BYTES >> 30
    );
    Err(LoaderError::Options { reason })
}
