//! A loader: a source, a pipeline and how to walk them.

use std::collections::BTreeMap;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_base::random::mix;
use stokehold_pipeline::{Pipeline, Runner};
use stokehold_storage::{SampleBytes, Source};

use crate::images::Pool;
use crate::order::{Layout, Order};
use crate::state::OrderFacts;
use crate::worker::Tools;
use crate::{BadImage, BadImagePolicy, Batches, LoaderError, LoaderOptions, State};

/// Walks a source in batches, epoch by epoch.
///
/// It belongs to the process that made it: in a fork every epoch is [`LoaderError::Forked`]. It holds no threads; those
/// belong to the [`Batches`] of an epoch. Between epochs it keeps the workers' buffers and
/// the memory of batches that were dropped, at most [`Loader::prefetch`] and one.
pub struct Loader {
    shared: Arc<Shared>,
    workers: usize,
    shape: [usize; 3],
}

/// What the loader and its threads look at together.
pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub pipeline: Arc<Pipeline>,
    pub options: LoaderOptions,
    /// Batches in work or ready at most.
    pub prefetch: usize,
    /// The memory of batches that were dropped.
    pub pool: Arc<Pool>,
    /// What workers of earlier epochs worked with, at most one for each worker of an epoch: with the buffers as large
    /// as images need them, and their memory touched.
    warm: Mutex<Vec<(Tools, SampleBytes)>>,
    workers: usize,
    /// The samples of each class; empty unless bad images are substituted.
    pub by_class: BTreeMap<u32, Vec<usize>>,
    /// Every bad image found so far, at most one more than the limit.
    bad: Mutex<BTreeMap<u64, BadImage>>,
    facts: OrderFacts,
    /// The process that made it.
    process: u32,
}

impl Shared {
    /// Whether this is the process that made the loader. A fork of it has the memory, but no thread but the one that
    /// forked, and locks may be held by those that are missing.
    pub(crate) fn check_process(&self) -> Result<(), LoaderError> {
        match self.process {
            process if process == process::id() => Ok(()),
            made_by => Err(LoaderError::Forked { made_by }),
        }
    }

    /// The bad images found so far, by sample.
    pub(crate) fn bad(&self) -> MutexGuard<'_, BTreeMap<u64, BadImage>> {
        // A panic elsewhere leaves the map whole: nothing is done under the lock but inserting and reading.
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn layout(&self) -> Layout {
        let LoaderOptions {
            batch_size,
            drop_last,
            rank,
            world_size,
            ..
        } = self.options;
        Layout {
            samples: self.source.len(),
            batch_size,
            drop_last,
            rank,
            world_size,
        }
    }

    pub(crate) fn order(&self, epoch: u64) -> Order {
        Order::new(self.layout(), self.options.shuffle, self.options.seed, epoch)
    }

    pub(crate) fn state(&self, epoch: u64, batch: u64) -> State {
        State {
            seed: self.options.seed,
            epoch,
            batch,
            order: self.facts.clone(),
        }
    }

    /// What a worker works with.
    pub(crate) fn tools(&self) -> Result<(Tools, SampleBytes), LoaderError> {
        let warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(tools) = warm {
            return Ok(tools);
        }
        let tools = match &self.options.preparation {
            Some(preparation) => Tools::Preparing(preparation.begin(&self.pipeline, self.options.decode)?),
            None => {
                let pipeline = Arc::clone(&self.pipeline);
                let runner = Runner::new(pipeline, self.options.executor, self.options.decode)?;
                Tools::Making(Box::new(runner))
            }
        };
        Ok((tools, SampleBytes::new()))
    }

    /// Keeps them for a worker of the next epoch.
    pub(crate) fn keep_tools(&self, tools: Tools, bytes: SampleBytes) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() < self.workers {
            warm.push((tools, bytes));
        }
    }
}

impl Loader {
    /// Prepares to load `source` through `pipeline`. Nothing is read yet.
    ///
    /// # Errors
    /// An option out of range; an empty source; no full batch with `drop_last`; a pipeline that is not valid, whose
    /// images differ in size, or whose samples cannot be of the type asked for.
    pub fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
    ) -> Result<Self, LoaderError> {
        options.check()?;
        let samples = source.len();
        if samples == 0 {
            return Err(LoaderError::Empty);
        }
        let (width, height) = pipeline.check()?;
        pipeline.check_output(options.sample_type)?;
        let facts = OrderFacts {
            samples: samples as u64,
            // 53 bits, so that every format for numbers carries it whole.
            classes: (0..samples).fold(0, |hash, sample| mix(hash ^ u64::from(source.class(sample)))) >> 11,
            batch_size: options.batch_size as u64,
            world_size: options.world_size as u64,
            shuffle: options.shuffle,
            drop_last: options.drop_last,
        };
        let by_class = match options.bad_images {
            BadImagePolicy::Substitute => by_class(&*source),
            BadImagePolicy::Error | BadImagePolicy::Skip => BTreeMap::new(),
        };
        let workers = options.workers.resolve();
        let prefetch = match options.prefetch {
            // One batch to be finished, and places for every worker behind it.
            0 => 1 + workers.div_ceil(options.batch_size),
            batches => batches,
        };
        let shared = Shared {
            source,
            prefetch,
            // The consumer may hold one more.
            pool: Arc::new(Pool::new(options.sample_type, prefetch.saturating_add(1))),
            pipeline: Arc::new(pipeline),
            options,
            warm: Mutex::default(),
            workers,
            by_class,
            bad: Mutex::default(),
            facts,
            process: process::id(),
        };
        let Layout {
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
            workers,
            shape: [3, height as usize, width as usize],
        })
    }

    /// The samples of its source, on all ranks.
    pub fn images(&self) -> usize {
        self.shared.source.len()
    }

    /// Batches of an epoch, the same on every rank. Skipped images can make it fewer.
    pub fn batches_per_epoch(&self) -> usize {
        self.shared.layout().batches() as usize
    }

    /// The number of worker threads of an epoch.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Batches in work or ready at most.
    pub fn prefetch(&self) -> usize {
        self.shared.prefetch
    }

    /// [3, H, W]: channels, height and width of every image.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The bad images found so far, by sample: what a report at the end of a run counts and names.
    pub fn bad_images(&self) -> Vec<BadImage> {
        self.shared.bad().values().cloned().collect()
    }

    /// Starts an epoch: its threads begin at once.
    pub fn epoch(&self, epoch: u64) -> Batches {
        Batches::start(Arc::clone(&self.shared), self.workers, self.shape, epoch, 0)
    }

    /// The state at the beginning of an epoch.
    pub fn start_of(&self, epoch: u64) -> State {
        self.shared.state(epoch, 0)
    }

    /// Checks that a state means the same batches to this loader as to the one that saved it.
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

    /// Goes on where a run stood: yields what is left of the state's epoch, which is nothing if it stood at the end.
    ///
    /// # Errors
    /// The state was saved with another seed, over other data, or with options that make other batches.
    pub fn resume(&self, state: State) -> Result<Batches, LoaderError> {
        self.check_state(&state)?;
        Ok(Batches::start(
            Arc::clone(&self.shared),
            self.workers,
            self.shape,
            state.epoch,
            state.batch,
        ))
    }
}

fn by_class(source: &dyn Source) -> BTreeMap<u32, Vec<usize>> {
    let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for sample in 0..source.len() {
        by_class.entry(source.class(sample)).or_default().push(sample);
    }
    by_class
}
