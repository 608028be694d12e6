//! How many images per second a loader delivers by itself: passes over the images, a line for each number of workers, and where
//! more workers stop helping.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde::Serialize;
use stokehold_base::stats::percentile;
use stokehold_cache::CacheFacts;
use stokehold_loader::{BadImage, Loader, Stage};
use stokehold_pipeline::{Executor, SampleType};
use stokehold_profile::peak_rss;

use crate::TrainError;
use crate::batch::DecodedBy;

/// One loader and the number of its next pass.
pub struct Bench {
    loader: Loader,
    epoch: u64,
}

/// The result of one pass over the images.
#[derive(Debug, Clone)]
pub struct Pass {
    /// Images that were delivered.
    pub images: usize,
    /// Wall time.
    pub seconds: f64,
    /// CPU time of all threads.
    pub cpu_seconds: f64,
    /// Mean time of each stage per image.
    pub stages: StageMeans,
    /// What decoded the images, if the executor is gpu.
    pub decoded: Option<DecodedBy>,
}

impl Bench {
    /// Before the first pass.
    pub fn new(loader: Loader) -> Self {
        Self { loader, epoch: 0 }
    }

    /// The loader.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Loads every image once; `bad` hears of the images that are left out.
    ///
    /// # Errors
    /// The errors of the loader.
    pub fn pass(&mut self, bad: &mut dyn FnMut(&BadImage)) -> Result<Pass, TrainError> {
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        let (mut images, mut stages) = (0, [Duration::ZERO; 4]);
        let mut decoded: Option<DecodedBy> = None;
        let mut batches = self.loader.epoch(self.epoch);
        for batch in &mut batches {
            let batch = batch?;
            batch.bad.iter().for_each(&mut *bad);
            images += batch.labels.len();
            if let Some(more) = DecodedBy::of(&batch) {
                *decoded.get_or_insert_default() += more;
            }
            for span in &batch.spans {
                let at = match span.stage {
                    Stage::Read => 0,
                    Stage::Decode => 1,
                    Stage::Augment => 2,
                    Stage::Batch => 3,
                };
                stages[at] += span.duration;
            }
        }
        batches.unreported().iter().for_each(bad);
        self.epoch += 1;
        let mean = |total: Duration| total.as_secs_f64() * 1e6 / images.max(1) as f64;
        let [read, decode, augment, batch] = stages.map(mean);
        Ok(Pass {
            images,
            seconds: begin.elapsed().as_secs_f64(),
            cpu_seconds: cpu.elapsed().as_secs_f64(),
            stages: StageMeans {
                read,
                decode,
                augment,
                batch,
            },
            decoded,
        })
    }
}

/// Mean time per image in each stage, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StageMeans {
    /// Reading the file.
    pub read: f64,
    /// From bytes to pixels.
    pub decode: f64,
    /// From pixels to floats.
    pub augment: f64,
    /// Wall time from the first to the last image of a batch, divided by its images: with several workers it
    /// is less than the sum of the above.
    pub batch: f64,
}

/// The result for one number of workers.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    data: PathBuf,
    executor: String,
    load: Option<u32>,
    image_size: Option<u32>,
    workers: usize,
    batch_size: usize,
    prefetch: usize,
    sample_type: SampleType,
    read_latency_ms: f64,
    images: usize,
    /// Median over the passes.
    images_per_second: f64,
    /// Slowest and fastest pass.
    spread: [f64; 2],
    /// Images per second of CPU time, median: least affected by other programs on the machine.
    images_per_cpu_second: f64,
    passes: Vec<f64>,
    /// Images per second of the pass before them, which warms up, and fills a cache.
    first_pass: f64,
    /// Peak resident memory of the process until then, bytes; the program itself included.
    peak_rss: Option<u64>,
    /// What decoded the images of the last pass, if the executor is gpu.
    decoded: Option<DecodedBy>,
    /// Median over the passes, microseconds per image.
    stages_us: StageMeans,
    /// The batches that each server made, the first pass's too; `here` are those of this process. Empty without servers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    batches_by_server: BTreeMap<String, u64>,
    /// What the cache has done so far, the first pass included; only with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheFacts>,
}

impl Report {
    /// Summarises the passes of a loader over `data`: the first one, which warms up, and the timed ones, at least one. `published`
    /// is load and image size (pixels) of the published load experiment, if this is one.
    pub fn new(
        data: &Path,
        executor: Executor,
        published: Option<[u32; 2]>,
        read_latency: Duration,
        loader: &Loader,
        cache: Option<CacheFacts>,
        (first, passes): (&Pass, &[Pass]),
    ) -> Report {
        let of = |f: fn(&Pass) -> f64| passes.iter().map(f).collect::<Vec<f64>>();
        let rates = of(|p| p.images as f64 / p.seconds);
        Report {
            data: data.to_path_buf(),
            executor: executor.to_string(),
            load: published.map(|[load, _]| load),
            image_size: published.map(|[_, size]| size),
            workers: loader.workers(),
            batch_size: loader.options().batch_size,
            prefetch: loader.prefetch(),
            sample_type: loader.options().sample_type,
            read_latency_ms: read_latency.as_secs_f64() * 1e3,
            images: passes.first().map_or(0, |p| p.images),
            images_per_second: median(&rates),
            spread: [
                rates.iter().copied().fold(f64::MAX, f64::min),
                rates.iter().copied().fold(0.0, f64::max),
            ],
            images_per_cpu_second: median(&of(|p| p.images as f64 / p.cpu_seconds.max(1e-9))),
            peak_rss: peak_rss(),
            decoded: passes.last().and_then(|p| p.decoded),
            stages_us: StageMeans {
                read: median(&of(|p| p.stages.read)),
                decode: median(&of(|p| p.stages.decode)),
                augment: median(&of(|p| p.stages.augment)),
                batch: median(&of(|p| p.stages.batch)),
            },
            passes: rates,
            first_pass: first.images as f64 / first.seconds,
            batches_by_server: match &loader.options().elsewhere {
                Some(servers) => servers.made().into_iter().collect(),
                None => BTreeMap::new(),
            },
            cache,
        }
    }
}

/// The median; 0 without values.
fn median(values: &[f64]) -> f64 {
    percentile(values, 50.0).unwrap_or(0.0)
}

/// The results of all numbers of workers.
#[derive(Debug)]
pub struct Sweep {
    reports: Vec<Report>,
}

/// A number of workers is enough if it reaches this share of the best speed.
const ENOUGH: f64 = 0.95;

impl Sweep {
    /// Needs at least one report.
    pub fn new(reports: Vec<Report>) -> Sweep {
        Sweep { reports }
    }

    /// The smallest number of workers that reaches 95 % of the best speed.
    fn knee(&self) -> Option<&Report> {
        let best = self
            .reports
            .iter()
            .map(|r| r.images_per_second)
            .fold(0.0, f64::max);
        let enough = self
            .reports
            .iter()
            .filter(|r| r.images_per_second >= ENOUGH * best);
        enough.min_by_key(|r| r.workers)
    }

    /// One object for one number of workers; `{"sweep": [..], "knee": workers}` for several.
    pub fn json(&self) -> serde_json::Result<String> {
        match &self.reports[..] {
            [one] => serde_json::to_string_pretty(one),
            all => {
                let knee = self.knee().map(|r| r.workers);
                serde_json::to_string_pretty(&serde_json::json!({ "sweep": all, "knee": knee }))
            }
        }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.reports.first() else {
            return Ok(());
        };
        let load = first.load.map_or(String::new(), |load| format!(", load {load}"));
        let latency = match first.read_latency_ms {
            0.0 => String::new(),
            ms => format!(", reads {ms} ms slower"),
        };
        writeln!(
            f,
            "{}: {} images, {}{load}{latency}, batch size {}, {}",
            first.data.display(),
            first.images,
            first.executor,
            first.batch_size,
            first.sample_type
        )?;
        writeln!(
            f,
            "workers  images/s     (spread)          per CPU second   us per image: read  decode  augment  batch by the clock"
        )?;
        for r in &self.reports {
            let [low, high] = r.spread;
            let s = &r.stages_us;
            writeln!(
                f,
                "{:>7}  {:>8.1}  ({:>7.1} to {:>7.1})  {:>14.1}  {:>18.0}  {:>6.0}  {:>7.0}  {:>18.0}",
                r.workers,
                r.images_per_second,
                low,
                high,
                r.images_per_cpu_second,
                s.read,
                s.decode,
                s.augment,
                s.batch
            )?;
        }
        for (server, batches) in self.reports.iter().flat_map(|report| &report.batches_by_server) {
            writeln!(f, "{server} made {batches} batches")?;
        }
        if let Some(cache) = self.reports.last().and_then(|report| report.cache.as_ref()) {
            writeln!(f, "cache: {cache}")?;
        }
        if let Some(decoded) = first.decoded {
            writeln!(f, "decoded: {decoded}")?;
        }
        match (self.knee(), self.reports.len()) {
            (Some(knee), 2..) => writeln!(
                f,
                "knee: {} worker{} {:.0} % of the best",
                knee.workers,
                if knee.workers == 1 { " reaches" } else { "s reach" },
                ENOUGH * 100.0
            ),
            _ => Ok(()),
        }
    }
}
