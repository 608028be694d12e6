//! The options of a loader.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use serde::{Deserialize, Serialize};
use stokehold_pipeline::op::Normalize;
use stokehold_pipeline::{DecodeOptions, Executor, SampleType};

use crate::{Device, Elsewhere, LoaderError, Parts, Sampler};

/// The most worker threads a loader starts.
pub const MAX_WORKERS: usize = 1024;

/// How a loader iterates over its source. [`LoaderOptions::default`] gives the value named at each field.
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// Images per batch, at least 1. Default 32.
    pub batch_size: usize,
    /// Worker threads. Default [`Workers::Auto`].
    pub workers: Workers,
    /// The most batches in work or ready, which bounds the loader's memory. 0, the default, stands for 2, or
    /// for as many as have a place for every worker besides the batch that is being finished.
    pub prefetch: usize,
    /// Whether every epoch has its own order, drawn from (seed, epoch). Default true.
    pub shuffle: bool,
    /// Which samples an epoch has. Default [`Sampler::Every`].
    pub sampler: Sampler,
    /// The samples of an epoch, on all ranks together; of an order without draws the first ones. Default `None`: as
    /// many as the sampler usually has, which is the number of samples in the source, of the subset, or without
    /// replacement of those with a weight above 0.
    pub epoch_samples: Option<usize>,
    /// The seed of the order and of every random operation. Default 0.
    pub seed: u64,
    /// Whether to skip samples that do not fill a batch (and, on several ranks, those that do not divide
    /// evenly), instead of a smaller last batch (and padding). Default false.
    pub drop_last: bool,
    /// This process's number among those that share the epoch, below `world_size`. Default 0.
    pub rank: usize,
    /// Processes that share the epoch. Default 1.
    pub world_size: usize,
    /// The parts of every batch that this loader yields, each as a batch. Default [`Parts::WHOLE`]. For processes that make
    /// a step together, and for steps in several parts; then `world_size` is 1, `batch_size` is the whole batch's,
    /// [`State::batch`](crate::State::batch) counts whole batches, and a part without samples is yielded.
    pub parts: Parts,
    /// The executor of the pipeline. Default [`Executor::Fused`]; [`Executor::Gpu`] needs a `device`.
    pub executor: Executor,
    /// The device that makes the batches, of samples that the workers prepare; then `executor` is ignored. Default none.
    pub device: Option<Arc<dyn Device>>,
    /// How to decode files.
    pub decode: DecodeOptions,
    /// The type of the images' numbers. Default [`SampleType::F32`]; `U8` for pipelines that end with `ToFloat`.
    pub sample_type: SampleType,
    /// What the consumer does with pixels that are bytes, after it has divided them by 255: every batch carries it. For a pipeline
    /// that ends with `ToFloat` and stands for one with a `Normalize` after it. Default none.
    pub normalize: Option<Normalize>,
    /// Who makes the batches in place of the loader's workers. Default none.
    pub elsewhere: Option<Arc<dyn Elsewhere>>,
    /// What to do about an image that cannot be read or decoded. Default [`BadImagePolicy::Skip`].
    pub bad_images: BadImagePolicy,
    /// The number of different bad images that skip and substitute tolerate; one more is an error. Default
    /// 100.
    pub bad_image_limit: usize,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 32,
            workers: Workers::Auto,
            prefetch: 0,
            shuffle: true,
            sampler: Sampler::Every,
            epoch_samples: None,
            seed: 0,
            drop_last: false,
            rank: 0,
            world_size: 1,
            parts: Parts::WHOLE,
            executor: Executor::Fused,
            decode: DecodeOptions::default(),
            sample_type: SampleType::default(),
            device: None,
            normalize: None,
            elsewhere: None,
            bad_images: BadImagePolicy::Skip,
            bad_image_limit: 100,
        }
    }
}

impl LoaderOptions {
    /// Checks the ranges of the options by themselves.
    pub(crate) fn check(&self) -> Result<(), LoaderError> {
        let reason = if self.batch_size == 0 {
            "batch size 0: must be at least 1".to_owned()
        } else if self.world_size == 0 {
            "world size 0: must be at least 1".to_owned()
        } else if self.rank >= self.world_size {
            format!(
                "rank {}: must be below the world size, {}",
                self.rank, self.world_size
            )
        } else if self.parts.count == 0 || self.parts.first + self.parts.count > self.parts.of {
            let Parts { first, count, of } = self.parts;
            format!("parts {first} to {first} + {count} of {of}: must be at least one, and among them")
        } else if self.parts.of > self.batch_size {
            format!(
                "a batch of {} images has no {} parts: use a larger batch size, or fewer parts",
                self.batch_size, self.parts.of
            )
        } else if !self.parts.are_whole() && self.world_size > 1 {
            "parts of batches, and a world size above 1: choose one of the two".to_owned()
        } else if let Workers::Count(count) = self.workers
            && count.get() > MAX_WORKERS
        {
            format!("{count} workers: must be auto or 1 to {MAX_WORKERS}")
        } else if self.device.is_some() && self.elsewhere.is_some() {
            "a device of this machine, and batches from elsewhere: choose one of the two".to_owned()
        } else if self.executor == Executor::Gpu && self.device.is_none() {
            "the executor gpu makes batches on a device, and this loader has none: choose fused or per-op"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(LoaderError::Options { reason })
    }
}

/// The number of worker threads; parses from `auto` or a number from 1 to [`MAX_WORKERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Workers {
    /// A worker for each core that the process may use, by its affinity mask and its cgroup's quota, and more where
    /// reads wait: a loader measures how long they do ([`Costs`](crate::Costs)), and adds workers up to 128, of which no more than there are cores compute at once.
    #[default]
    Auto,
    /// This many.
    Count(NonZeroUsize),
}

impl Workers {
    /// The number of threads on this machine, at least 1; for `Auto`, the cores, with which a loader begins.
    pub fn resolve(self) -> usize {
        match self {
            Self::Count(count) => count.get(),
            // On Linux the standard library takes affinity and cgroup quotas (v1 and v2) into account.
            Self::Auto => thread::available_parallelism()
                .map_or(1, NonZeroUsize::get)
                .min(MAX_WORKERS),
        }
    }
}

impl FromStr for Workers {
    type Err = LoaderError;

    fn from_str(text: &str) -> Result<Self, LoaderError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse::<NonZeroUsize>() {
            Ok(count) if count.get() <= MAX_WORKERS => Ok(Self::Count(count)),
            _ => Err(LoaderError::Options {
                reason: format!("workers {text:?}: must be auto or 1 to {MAX_WORKERS}"),
            }),
        }
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

stokehold_base::as_text!(Workers);

/// What to do about an image that cannot be read or decoded; `error`, `skip` or `substitute` in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadImagePolicy {
    /// End the epoch with [`LoaderError::BadImage`].
    Error,
    /// Skip the image, so that its batch is smaller. A batch that would be empty is not yielded, and its bad
    /// images are reported with the next one, or by [`Batches::unreported`](crate::Batches::unreported).
    /// Ranks may then have unequal numbers of batches.
    Skip,
    /// Use another image of the same class, chosen by (seed, epoch, sample), so that batches keep their size.
    Substitute,
}

impl FromStr for BadImagePolicy {
    type Err = LoaderError;

    fn from_str(text: &str) -> Result<Self, LoaderError> {
        match text {
            "error" => Ok(Self::Error),
            "skip" => Ok(Self::Skip),
            "substitute" => Ok(Self::Substitute),
            _ => Err(LoaderError::Options {
                reason: format!("bad-image policy {text:?}: must be error, skip or substitute"),
            }),
        }
    }
}

impl fmt::Display for BadImagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Skip => "skip",
            Self::Substitute => "substitute",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_policies_read_what_they_write() {
        for text in ["auto", "1", "7", "1024"] {
            assert_eq!(text.parse::<Workers>().unwrap().to_string(), text);
        }
        for text in ["0", "1025", "-1", "many", ""] {
            let error = text.parse::<Workers>().unwrap_err().to_string();
            assert_eq!(error, format!("workers {text:?}: must be auto or 1 to 1024"));
        }
        for text in ["error", "skip", "substitute"] {
            assert_eq!(text.parse::<BadImagePolicy>().unwrap().to_string(), text);
        }
        let error = "ignore".parse::<BadImagePolicy>().unwrap_err().to_string();
        assert_eq!(
            error,
            "bad-image policy \"ignore\": must be error, skip or substitute"
        );
    }

    #[test]
    fn ranges_are_named() {
        let of = |change: fn(&mut LoaderOptions)| {
            let mut options = LoaderOptions::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert_eq!(of(|o| o.batch_size = 0), "batch size 0: must be at least 1");
        assert_eq!(of(|o| o.world_size = 0), "world size 0: must be at least 1");
        assert_eq!(of(|o| o.rank = 1), "rank 1: must be below the world size, 1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn auto_respects_the_affinity_mask() {
        // The kernel's own words: 32-bit words of the mask in hexadecimal. A quota may make it fewer.
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed:"))
            .unwrap();
        let allowed: u32 = mask
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(u32::count_ones)
            .sum();
        assert!((1..=allowed as usize).contains(&Workers::Auto.resolve()));
    }
}
