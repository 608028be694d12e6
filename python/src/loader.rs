//! The loader, and one iteration over it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use pyo3::prelude::*;
use stokehold_cache::{Cache, CachePlace, share_of_environment};
use stokehold_gpu::{Decode, DeviceName};
use stokehold_loader::{
    Address, BadImagePolicy, BatchStream, Elsewhere, LoaderError, LoaderOptions, Sampler, State, Workers,
};
use stokehold_pipeline::{DecodeOptions, Executor, SampleType};
use stokehold_remote::{DataPart, Servers};

use crate::batch::{Bad, BatchTuple, OnDevice, bad, parts};
use crate::epochs::{Epochs, Stopped};
use crate::errors::{OptionError, Raise, UsageError};
use crate::pipeline::Pipeline;
use crate::source::Source;

/// How long to wait before each check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Iterates over images in batches, epoch by epoch.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Loader {
    core: Arc<Core>,
}

struct Core {
    loader: stokehold_loader::Loader,
    cache: Option<Arc<Cache>>,
    /// A thread that holds the GIL locks this only for a moment: it releases the GIL during every wait. A
    /// thread that waits for a batch locks it repeatedly; the mutex is fair, so that another thread gets its
    /// turn in between.
    epochs: Mutex<Epochs>,
}

impl Core {
    /// Calls `work` with the epochs, without the GIL; fails in a fork, where the mutex may stay locked for
    /// ever.
    fn with<T: Send>(&self, py: Python<'_>, work: impl Send + FnOnce(&mut Epochs) -> T) -> PyResult<T> {
        self.loader.check_process().raise()?;
        Ok(py.detach(|| work(&mut self.epochs.lock())))
    }
}

/// Where the servers are, and which data they serve; nothing where there are none.
fn addresses(source: &Source, remote: &[String]) -> PyResult<Option<(Vec<Address>, DataPart)>> {
    if remote.is_empty() {
        return Ok(None);
    }
    let data = source.part.clone().ok_or_else(|| {
        OptionError::new_err("remote: servers have no list of images; give the folder that they serve")
    })?;
    let addresses = remote
        .iter()
        .map(|text| text.parse())
        .collect::<Result<Vec<Address>, _>>();
    Ok(Some((addresses.raise()?, data)))
}

/// The servers that make the batches, if there are any.
fn connect(
    py: Python<'_>,
    servers: Option<(Vec<Address>, DataPart)>,
    workers: Workers,
) -> PyResult<Option<Arc<dyn Elsewhere>>> {
    let Some((addresses, data)) = servers else {
        return Ok(None);
    };
    let token = stokehold_remote::token().raise()?;
    let servers = py.detach(|| Servers::connect(&addresses, data, token)).raise()?;
    Ok(Some(Arc::new(servers.with_local(workers))))
}

/// The cache that is given or that the environment names, if there is one.
fn cache_place(place: Option<&str>, no_cache: bool) -> PyResult<Option<CachePlace>> {
    let given = place.map(|place| {
        let parsed = place.parse();
        parsed.map_err(|reason| OptionError::new_err(format!("cache={place:?}: {reason}")))
    });
    CachePlace::chosen(given.transpose()?, no_cache).raise()
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (source, pipeline, *, batch_size, shuffle, seed, num_workers, prefetch, drop_last, rank, world_size,
        split_batches, dtype, bad_images, bad_image_limit, executor, device, gpu_decode, gpu_memory_budget, exif, weights, class_balanced,
        replacement, subset, repeats, epoch_samples, remote,
        cache, no_cache, cache_share))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Source,
        pipeline: &Pipeline,
        batch_size: i64,
        shuffle: bool,
        seed: i128,
        num_workers: Option<i64>,
        prefetch: i64,
        drop_last: bool,
        rank: i64,
        world_size: i64,
        split_batches: bool,
        dtype: &str,
        bad_images: &str,
        bad_image_limit: i64,
        executor: &str,
        device: Option<&str>,
        gpu_decode: &str,
        gpu_memory_budget: Option<i64>,
        exif: bool,
        weights: Option<Vec<f64>>,
        class_balanced: bool,
        replacement: bool,
        subset: Option<Vec<i64>>,
        repeats: i64,
        epoch_samples: Option<i64>,
        remote: Vec<String>,
        cache: Option<String>,
        no_cache: bool,
        cache_share: Option<f64>,
    ) -> PyResult<Self> {
        let workers = match num_workers {
            None => Workers::Auto,
            Some(count) => {
                let some = usize::try_from(count).ok().and_then(NonZeroUsize::new);
                Workers::Count(some.ok_or_else(|| {
                    OptionError::new_err(format!(
                        "num_workers={count}: must be at least 1, or None: one thread per core, more where reads wait"
                    ))
                })?)
            }
        };
        let times = at_least(1, "repeats", repeats)?;
        let sampler = match (weights, class_balanced, subset, times) {
            (None, false, None, 1) => Sampler::Every,
            (None, false, None, times) => {
                Sampler::Repeated(NonZeroUsize::new(times).unwrap_or(NonZeroUsize::MIN))
            }
            (Some(weights), false, None, 1) => Sampler::Weighted {
                weights: weights.into(),
                replacement,
            },
            (None, true, None, 1) => Sampler::ClassBalanced { replacement },
            (None, false, Some(samples), 1) => {
                let samples = samples.into_iter().map(|sample| at_least(0, "subset", sample));
                Sampler::Subset(samples.collect::<PyResult<_>>()?)
            }
            _ => {
                return Err(OptionError::new_err(
                    "weights, class_balanced, subset and repeats exclude each other; give one of them",
                ));
            }
        };
        let (rank, world_size) = (at_least(0, "rank", rank)?, at_least(1, "world_size", world_size)?);
        // Then a state says nothing of the ranks, and holds for any number of them.
        let (rank, world_size, parts) = match split_batches {
            true if rank >= world_size => {
                return Err(OptionError::new_err(format!(
                    "rank {rank}: must be below the world size, {world_size}"
                )));
            }
            true => {
                let parts = stokehold_loader::Parts {
                    first: rank,
                    count: 1,
                    of: world_size,
                };
                (0, 1, parts)
            }
            false => (rank, world_size, stokehold_loader::Parts::WHOLE),
        };
        let options = LoaderOptions {
            sampler,
            epoch_samples: epoch_samples
                .map(|samples| at_least(1, "epoch_samples", samples))
                .transpose()?,
            batch_size: at_least(1, "batch_size", batch_size)?,
            workers,
            prefetch: at_least(0, "prefetch", prefetch)?,
            shuffle,
            seed: u64::try_from(seed).map_err(|_| {
                OptionError::new_err(format!("seed={seed}: must be at least 0 and below 2^64"))
            })?,
            drop_last,
            rank,
            world_size,
            parts,
            executor: executor.parse::<Executor>().map_err(|_| {
                OptionError::new_err(format!(
                    "no executor is called '{executor}'; there are fused, per-op and gpu"
                ))
            })?,
            decode: DecodeOptions { exif },
            sample_type: dtype.parse::<SampleType>().raise()?,
            bad_images: bad_images.parse::<BadImagePolicy>().raise()?,
            bad_image_limit: at_least(0, "bad_image_limit", bad_image_limit)?,
            ..LoaderOptions::default()
        };
        // Everything is checked before servers are called and a cache is opened.
        if device.is_some() && !remote.is_empty() {
            return Err(OptionError::new_err(
                "executor=\"gpu\" makes batches on this machine's device, and the servers of remote make them elsewhere; give \
                 one of the two",
            ));
        }
        if device.is_none() && (gpu_memory_budget.is_some() || gpu_decode != Decode::default().to_string()) {
            return Err(OptionError::new_err(format!(
                "gpu_decode and gpu_memory_budget are of executor=\"gpu\", and this is executor={executor:?}"
            )));
        }
        let place = cache_place(cache.as_deref(), no_cache)?;
        let budget = gpu_memory_budget.map(|bytes| at_least(1, "gpu_memory_budget", bytes));
        let budget = budget.transpose()?.map(|bytes| bytes as u64);
        let on = match device {
            None => None,
            Some(device) => Some(OnDevice {
                device: device.parse::<DeviceName>().raise()?,
                decode: gpu_decode.parse::<Decode>().raise()?,
                budget,
            }),
        };
        let addresses = addresses(source, &remote)?;
        let options = LoaderOptions {
            device: py.detach(|| on.map(OnDevice::open).transpose()).raise()?,
            ..options
        };
        let new =
            |images, options| stokehold_loader::Loader::new(images, pipeline.operations.clone(), options);
        if addresses.is_some() || place.is_some() {
            // A loader that makes nothing: it checks what only a loader knows, such as ranks and weights.
            let (images, options) = (Arc::clone(&source.images), options.clone());
            py.detach(|| new(images, options)).raise()?;
        }
        let options = LoaderOptions {
            elsewhere: connect(py, addresses, workers)?,
            ..options
        };
        let cache = py
            .detach(|| Cache::open_if(place.as_ref(), cache_share.map_or_else(share_of_environment, Ok)?))
            .raise()?;
        let images: Arc<dyn stokehold_storage::Source> = match &cache {
            Some(cache) => cache.of(Arc::clone(&source.images)),
            None => Arc::clone(&source.images),
        };
        let loader = py.detach(|| new(images, options)).raise()?;
        let epochs = Mutex::new(Epochs::new(&loader));
        Ok(Self {
            core: Arc::new(Core {
                loader,
                cache,
                epochs,
            }),
        })
    }

    /// The batches that each server has made so far, and this machine's threads.
    fn made(&self) -> Vec<(String, u64)> {
        let elsewhere = self.core.loader.options().elsewhere.as_ref();
        elsewhere.map(|servers| servers.made()).unwrap_or_default()
    }

    /// What users of the cache and of a device have to know, each sentence once.
    fn news(&self) -> Vec<String> {
        let cache = self.core.cache.as_ref();
        let news = cache.map(|cache| cache.notices()).unwrap_or_default();
        #[cfg(feature = "cuda")]
        let news = news.into_iter().chain(stokehold_gpu::lend_warnings()).collect();
        news
    }

    /// What the cache has done, as JSON.
    fn cache(&self) -> PyResult<Option<String>> {
        self.core.loader.check_process().raise()?;
        let facts = self.core.cache.as_ref().map(|cache| cache.facts());
        let json = facts.map(|facts| serde_json::to_string(&facts)).transpose();
        json.map_err(|error| OptionError::new_err(error.to_string()))
    }

    /// Batches per epoch.
    fn __len__(&self) -> usize {
        self.core.loader.batches_per_epoch()
    }

    /// Channels, height and width of every image.
    #[getter]
    fn shape(&self) -> [usize; 3] {
        self.core.loader.shape()
    }

    /// Worker threads per epoch.
    #[getter]
    fn num_workers(&self) -> usize {
        self.core.loader.workers()
    }

    /// The current epoch, or the one that begins next.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.core.with(py, |epochs| epochs.epoch())
    }

    /// Bad images so far: (sample, name, reason).
    fn bad_images(&self) -> Vec<(u64, String, String)> {
        let bad = self.core.loader.bad_images().into_iter();
        bad.map(|bad| (bad.sample, bad.name, bad.reason)).collect()
    }

    /// Begins the next epoch, and ends the iteration that is running.
    fn begin(&self, py: Python<'_>) -> PyResult<Iteration> {
        let core = &self.core;
        let begun = core.with(py, |epochs| match epochs.is_closed() {
            true => Err("the loader is closed; make a new one"),
            false => Ok(epochs.begin(&core.loader)),
        })?;
        let number = begun.map_err(UsageError::new_err)?.raise()?;
        Ok(Iteration {
            core: Arc::clone(core),
            number,
        })
    }

    /// Begins an epoch whose batches are given while it runs; the first `first` are skipped. Any number of them may run at once, next
    /// to the iterations of `begin`.
    fn given(&self, epoch: u64, first: u64) -> PyResult<Given> {
        self.core.loader.check_process().raise()?;
        let (giver, coming) = unbounded();
        Ok(Given {
            core: Arc::clone(&self.core),
            begin: (epoch, first),
            giver: Mutex::new(Some(giver)),
            running: Mutex::new(Running::Not(coming)),
        })
    }

    /// Ends the current iteration.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.core.with(py, Epochs::stop)
    }

    /// Ends everything.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.core.with(py, Epochs::close)
    }

    fn set_epoch(&self, py: Python<'_>, epoch: i64) -> PyResult<()> {
        let epoch = at_least(0, "epoch", epoch)? as u64;
        self.core
            .with(py, |epochs| epochs.set_epoch(&self.core.loader, epoch))
    }

    /// The state as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.core.with(py, |epochs| epochs.state().clone())?;
        serde_json::to_string(&state).map_err(|error| OptionError::new_err(error.to_string()))
    }

    /// Loads a state.
    fn load_state(&self, py: Python<'_>, json: &str) -> PyResult<()> {
        let state: State = serde_json::from_str(json).map_err(|error| {
            OptionError::new_err(format!(
                "state_dict: {error}; give what state_dict() of a loader returned"
            ))
        })?;
        let resumed = self
            .core
            .with(py, |epochs| match epochs.is_running(&self.core.loader) {
                true => None,
                false => Some(epochs.resume(&self.core.loader, state)),
            })?;
        resumed
            .ok_or_else(|| {
                UsageError::new_err(
                    "an iteration of this loader is running; load a state before it, or after stop()",
                )
            })?
            .raise()
    }
}

/// Converts an integer from Python; the error names the argument if it is too small.
fn at_least(least: i64, name: &str, number: i64) -> PyResult<usize> {
    match usize::try_from(number) {
        Ok(fits) if number >= least => Ok(fits),
        _ => Err(OptionError::new_err(format!(
            "{name}={number}: must be at least {least}"
        ))),
    }
}

/// One iteration over an epoch.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Iteration {
    core: Arc<Core>,
    number: u64,
}

#[pymethods]
impl Iteration {
    /// The next batch; `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<BatchTuple>> {
        let batch = loop {
            match self
                .core
                .with(py, |epochs| epochs.next_within(self.number, LOOK))?
            {
                Ok(next) => break next.transpose().raise()?,
                Err(Stopped::Pending) => py.check_signals()?,
                Err(Stopped::Ended) => return Ok(None),
                Err(Stopped::Superseded) => {
                    return Err(UsageError::new_err(
                        "another iteration of this loader has begun, which ended this one: it has one at a time; make a second \
                         loader for two at once",
                    ));
                }
                Err(Stopped::Closed) => {
                    return Err(UsageError::new_err("the loader was closed during this iteration"));
                }
            }
        };
        Ok(batch)
    }

    /// The bad images that no batch has reported, after the last batch.
    fn unreported(&self, py: Python<'_>) -> PyResult<Vec<Bad>> {
        Ok(bad(self.core.with(py, Epochs::unreported)?))
    }
}

/// Leaving a loop early ends its epoch: its threads, and the batches that they have prefetched.
impl Drop for Iteration {
    fn drop(&mut self) {
        if self.core.loader.check_process().is_err() {
            return;
        }
        let end = || self.core.epochs.lock().end(self.number);
        // Without an interpreter no thread holds the GIL.
        match Python::try_attach(|py| py.detach(end)) {
            Some(()) => {}
            None => end(),
        }
    }
}

/// An epoch whose batches are given while it runs. Its threads begin with `start`, or when a batch is asked for.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Given {
    core: Arc<Core>,
    /// The epoch, and its first batch.
    begin: (u64, u64),
    giver: Mutex<Option<Sender<Vec<usize>>>>,
    running: Mutex<Running>,
}

enum Running {
    /// Batches may have been given.
    Not(Receiver<Vec<usize>>),
    /// With a batch that was asked for after one that was passed over, and its number.
    Yes(Box<dyn BatchStream>, Option<(u64, BatchTuple)>),
    Over,
}

impl Given {
    fn start_if_not(&self, running: &mut Running) -> Result<(), LoaderError> {
        match std::mem::replace(running, Running::Over) {
            Running::Not(coming) => {
                let (epoch, first) = self.begin;
                *running = Running::Yes(self.core.loader.given(epoch, first, coming)?, None);
            }
            other => *running = other,
        }
        Ok(())
    }
}

#[pymethods]
impl Given {
    /// Gives the samples of the next batch.
    fn give(&self, batch: Vec<usize>) {
        if let Some(giver) = &*self.giver.lock() {
            // Where the epoch has ended by an error, `next` says so.
            let _ = giver.send(batch);
        }
    }

    /// Says that no more batches come.
    fn end(&self) {
        self.giver.lock().take();
    }

    /// Has the threads begin with what was given.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        self.core.loader.check_process().raise()?;
        py.detach(|| self.start_if_not(&mut self.running.lock())).raise()
    }

    /// The batch `number`, which is the next one; `None` if none of its images can be had, and at the end. Waits for it to be given.
    fn next(&self, py: Python<'_>, number: u64) -> PyResult<Option<BatchTuple>> {
        self.core.loader.check_process().raise()?;
        loop {
            let next = py.detach(|| {
                let mut running = self.running.lock();
                if let Err(error) = self.start_if_not(&mut running) {
                    return Poll::Ready(Some(Err(error)));
                }
                let Running::Yes(batches, held) = &mut *running else {
                    return Poll::Ready(None);
                };
                let next = match held.take() {
                    Some(held) => Poll::Ready(Some(Ok(held))),
                    None if batches.passed() > number => return Poll::Ready(None),
                    None => batches
                        .next_within(LOOK)
                        .map(|next| next.map(|batch| Ok((batches.state().batch - 1, parts(batch?)?)))),
                };
                match next {
                    Poll::Ready(Some(Ok((later, made)))) if later > number => {
                        *held = Some((later, made));
                        Poll::Ready(None)
                    }
                    Poll::Ready(Some(Ok((_, made)))) => Poll::Ready(Some(Ok(made))),
                    Poll::Ready(end) => {
                        *running = Running::Over;
                        Poll::Ready(end.map(|end| end.map(|(_, made)| made)))
                    }
                    Poll::Pending => Poll::Pending,
                }
            });
            match next {
                Poll::Ready(next) => return next.transpose().raise(),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Ends it: its threads, and the batches that they have prefetched.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.core.loader.check_process().raise()?;
        self.giver.lock().take();
        py.detach(|| *self.running.lock() = Running::Over);
        Ok(())
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let running = std::mem::replace(self.running.get_mut(), Running::Over);
        if self.core.loader.check_process().is_err() {
            // The threads are those of another process, and may have locked what the fork has.
            std::mem::forget((running, self.giver.get_mut().take()));
            return;
        }
        // Without an interpreter no thread holds the GIL.
        let mut running = Some(running);
        if Python::try_attach(|py| py.detach(|| drop(running.take()))).is_none() {
            drop(running);
        }
    }
}
