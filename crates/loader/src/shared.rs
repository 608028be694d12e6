//! What the loader and its threads share.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_base::random::mix;
use stokehold_pipeline::{MaskTable, Pipeline, Prepare, Runner};
use stokehold_storage::{Coding, PixelClasses, SampleBytes, Source};

use crate::costs::{Costs, Demand, MOST, Meter};
use crate::gate::{Gate, Turn};
use crate::images::Pool;
use crate::order::{Layout, Order};
use crate::sampler::Chooser;
use crate::state::OrderFacts;
use crate::{BadImage, BadImagePolicy, LoaderError, LoaderOptions, State, Workers};

/// State shared by the loader and its threads.
pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub pipeline: Arc<Pipeline>,
    /// Channels, height and width of every image.
    pub shape: [usize; 3],
    /// How the source's masks are read, if it has any.
    pub mask_table: Option<MaskTable>,
    pub options: LoaderOptions,
    /// The memory of dropped batches.
    pub pool: Arc<Pool>,
    /// The tools of earlier epochs' workers, at most one per worker of an epoch: their buffers are already
    /// large enough, and their memory has been touched.
    warm: Mutex<Vec<(Tools, SampleBytes)>>,
    /// The worker threads of an epoch: what the options say, or with `auto` what the costs did so far.
    workers: AtomicUsize,
    /// The most that it can become.
    pub most_workers: usize,
    /// Where there may be more workers than cores.
    gate: Option<Gate>,
    /// What workers spend on images.
    pub meter: Meter,
    /// What the consumer spends on them.
    pub demand: Demand,
    /// The costs at the beginning of the latest epoch.
    before: Mutex<Costs>,
    /// The costs that the number of workers was made of.
    asked: Mutex<Costs>,
    /// The samples of each class; empty unless bad images are substituted.
    pub by_class: BTreeMap<u32, Vec<usize>>,
    /// Every bad image found so far, at most one more than the limit.
    bad: Mutex<BTreeMap<u64, BadImage>>,
    facts: OrderFacts,
    /// Chooses the samples of an epoch.
    chooser: Chooser,
    /// The process that made the loader.
    process: u32,
}

impl Shared {
    /// The state of a loader whose options have been checked, of a source that is not empty.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        shape: [usize; 3],
        options: LoaderOptions,
        chooser: Chooser,
    ) -> Self {
        let samples = source.len();
        let facts = OrderFacts {
            samples: samples as u64,
            // 53 bits, so that every number format stores it exactly.
            classes: (0..samples).fold(0, |hash, sample| mix(hash ^ u64::from(source.class(sample)))) >> 11,
            batch_size: options.batch_size as u64,
            world_size: options.world_size as u64,
            shuffle: options.shuffle,
            drop_last: options.drop_last,
            sampler: chooser.text().to_owned(),
        };
        let by_class = match options.bad_images {
            BadImagePolicy::Substitute => by_class(&*source, &chooser),
            BadImagePolicy::Error | BadImagePolicy::Skip => BTreeMap::new(),
        };
        let workers = options.workers.resolve();
        let most_workers = match options.workers {
            Workers::Auto => workers.max(MOST),
            Workers::Count(_) => workers,
        };
        // The consumer may hold one more.
        let batches = prefetch(&options, most_workers).saturating_add(1);
        Self {
            mask_table: source.pixel_classes().map(mask_table),
            source,
            pool: Arc::new(Pool::new(options.sample_type, batches)),
            pipeline: Arc::new(pipeline),
            shape,
            options,
            warm: Mutex::default(),
            workers: workers.into(),
            most_workers,
            gate: (most_workers > workers).then(|| Gate::new(workers)),
            meter: Meter::default(),
            demand: Demand::default(),
            before: Mutex::default(),
            asked: Mutex::default(),
            by_class,
            bad: Mutex::default(),
            facts,
            chooser,
            process: process::id(),
        }
    }

    /// The worker threads of an epoch.
    pub(crate) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// Whether there may be more workers later.
    pub(crate) fn may_grow(&self) -> bool {
        self.workers() < self.most_workers
    }

    /// Waits until the worker may compute, where there are more workers than cores.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let gate = self.gate.as_ref()?;
        (self.workers() > gate.computing()).then(|| gate.enter())
    }

    /// The most batches in work or ready, with this number of workers.
    pub(crate) fn prefetch(&self, workers: usize) -> usize {
        prefetch(&self.options, workers)
    }

    /// The number of workers to begin an epoch with: with `auto`, what the images since the beginning of the
    /// latest one say, if they are enough to say anything.
    pub(crate) fn begin_epoch(&self) -> usize {
        const ENOUGH: u64 = 64;
        if self.options.workers == Workers::Auto {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.meter.costs();
            let since = now.since(&before);
            if since.images >= ENOUGH {
                self.workers.store(self.wanted(&since), Ordering::Relaxed);
                self.note(since);
                *before = now;
            }
        }
        self.workers()
    }

    /// The number of workers that the images of this epoch ask for, at least as many as there are.
    pub(crate) fn more_workers(&self) -> usize {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let costs = self.meter.costs().since(&before);
        let wanted = self.wanted(&costs);
        let had = self.workers.fetch_max(wanted, Ordering::Relaxed);
        if wanted > had {
            self.note(costs);
        }
        had.max(wanted)
    }

    fn note(&self, costs: Costs) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = costs;
    }

    /// The costs that the number of workers was made of; those so far where it is the first one still.
    pub(crate) fn asked(&self) -> Costs {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match asked.images {
            0 => self.meter.costs(),
            _ => asked,
        }
    }

    /// The workers that these costs ask for.
    fn wanted(&self, costs: &Costs) -> usize {
        let cores = self.options.workers.resolve();
        match self.demand.rate() {
            Some(rate) => costs.workers(cores, rate),
            // No one knows yet how fast the consumer is, and the first batch has a place for so many.
            None => costs
                .workers(cores, f64::INFINITY)
                .min(self.layout().part_size().max(cores)),
        }
    }

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
            parts,
            ..
        } = self.options;
        Layout {
            samples: self.chooser.length(),
            batch_size,
            drop_last,
            rank,
            world_size,
            parts,
        }
    }

    pub(crate) fn order(&self, epoch: u64) -> Order {
        Order::new(self.layout(), self.chooser.epoch(self.options.seed, epoch))
    }

    /// The state after this many yields. Of a batch that was yielded in part, the next one is the same again.
    pub(crate) fn state(&self, epoch: u64, yielded: u64) -> State {
        State {
            seed: self.options.seed,
            epoch,
            batch: yielded / self.options.parts.count as u64,
            order: self.facts.clone(),
        }
    }

    /// The numbers that workers write of an image.
    pub(crate) fn image_size(&self) -> usize {
        match self.options.device {
            Some(_) => 0,
            None => self.shape.iter().product(),
        }
    }

    /// The tools for a worker.
    pub(crate) fn tools(&self) -> Result<(Tools, SampleBytes), LoaderError> {
        let warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(tools) = warm {
            return Ok(tools);
        }
        let tools = match &self.options.device {
            Some(device) => {
                let preparation = device.preparation();
                Tools::Preparing(preparation.begin(&self.pipeline, self.options.decode)?)
            }
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
        if warm.len() < self.workers() {
            warm.push((tools, bytes));
        }
    }
}

/// How masks of these classes are read.
pub fn mask_table(classes: &PixelClasses) -> MaskTable {
    match &classes.coding {
        Coding::Values(values) => MaskTable::of_values(values.iter().map(|(value, class)| (*value, *class))),
        Coding::Colors(colors) => MaskTable::of_colors(colors.iter().map(|(color, class)| (*color, *class))),
    }
}

/// What a worker does with files.
pub(crate) enum Tools {
    /// Makes images.
    Making(Box<Runner>),
    /// Prepares samples, of which the consumer makes images.
    Preparing(Box<dyn Prepare>),
}

fn prefetch(options: &LoaderOptions, workers: usize) -> usize {
    match options.prefetch {
        // One batch that is being finished, and places for every worker after it.
        0 => 1 + workers.div_ceil(options.batch_size.div_ceil(options.parts.of)),
        batches => batches,
    }
}

/// The samples of each class, of those that an epoch can have.
fn by_class(source: &dyn Source, chooser: &Chooser) -> BTreeMap<u32, Vec<usize>> {
    let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let can_choose = chooser.can_choose();
    for sample in (0..source.len()).filter(|&sample| can_choose(sample)) {
        by_class.entry(source.class(sample)).or_default().push(sample);
    }
    by_class
}
