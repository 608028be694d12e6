//! A loader: a source, a pipeline and options.

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

/// Iterates over a source in batches, epoch by epoch.
///
/// It belongs to the process that made it: in a fork every epoch fails with [`LoaderError::Forked`]. It has
/// no threads; those belong to the [`Batches`] of an epoch. Between epochs it keeps the workers' buffers and
/// the memory of dropped batches, at most [`Loader::prefetch`] plus one.
pub struct Loader {
    shared: Arc<Shared>,
    workers: usize,
    shape: [usize; 3],
}

/// State shared by the loader and its threads.
pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub pipeline: Arc<Pipeline>,
    pub options: LoaderOptions,
    /// The most batches in work or ready.
    pub prefetch: usize,
    /// The memory of dropped batches.
    pub pool: Arc<Pool>,
    /// The tools of earlier epochs' workers, at most one per worker of an epoch: their buffers are already
    /// large enough, and their memory has been touched.
    warm: Mutex<Vec<(Tools, SampleBytes)>>,
    workers: usize,
    /// The samples of each class; empty unless bad images are substituted.
    pub by_class: BTreeMap<u32, Vec<usize>>,
    /// Every bad image found so far, at most one more than the limit.
    bad: Mutex<BTreeMap<u64, BadImage>>,
    facts: OrderFacts,
    /// The process that made the loader.
    process: u32,
}

impl Shared {
    /// Checks that this is the process that made the loader. A fork of it has the memory, but only the thread
    /// that forked, and missing threads may hold locks.
    pub(crate) fn check_process(&self) -> Result<(), LoaderError> {
        match self.process {
            process if process == process::id() => Ok(()),
            made_by => Err(LoaderError::Forked { made_by }),
        }
    }

    /// The bad images found so far, by sample.
    pub(crate) fn bad(&self) -> MutexGuard<'_, BTreeMap<u64, BadImage>> {
        // A panic of another thread leaves the map valid: code under the lock only inserts and reads.
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

    /// The tools for a worker.
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

    /// Keeps the tools for a worker of the next epoch.
    pub(crate) fn keep_tools(&self, tools: Tools, bytes: SampleBytes) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() < self.workers {
            warm.push((tools, bytes));
        }
    }
}

impl Loader {
    /// Prepares to load `source` through `pipeline`. Reads nothing yet.
    ///
    /// # Errors
    /// An option is out of range; the source is empty; with `drop_last` there is no full batch; the pipeline
    /// is invalid, its images differ in size, or its samples cannot have the requested type.
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
            // 53 bits, so that every number format stores it exactly.
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
            // One batch that is being finished, and places for every worker after it.
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

    /// Batches per epoch, the same on every rank. Skipped images may reduce the number.
    pub fn batches_per_epoch(&self) -> usize {
        self.shared.layout().batches() as usize
    }

    /// The number of worker threads of an epoch.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The most batches in work or ready.
    pub fn prefetch(&self) -> usize {
        self.shared.prefetch
    }

    /// [3, H, W]: channels, height and width of every image.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The bad images found so far, by sample, for a report at the end of a run.
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

    /// Continues from a saved state: yields the rest of the state's epoch, which is empty if the state is at
    /// its end.
    ///
    /// # Errors
    /// The state was saved with another seed, other data, or options that make other batches.
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
