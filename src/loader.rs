//! Options of the loader, for all commands that have them.

use std::sync::Arc;

use clap::Args as ClapArgs;
use stokehold_cache::{Cache, CacheError, CachePlace};
use stokehold_loader::Workers;

/// The threads of whatever reads images.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct WorkerArgs {
    /// Worker threads that read and decode, or auto: as many as there are cores, and in a loader more where reads
    /// wait, at most 128.
    #[arg(long, value_name = "N", default_value_t = Workers::Auto)]
    pub workers: Workers,
}

/// Where samples are kept for the next epochs.
#[derive(Debug, Clone, ClapArgs)]
pub struct CacheArgs {
    /// Pack images into this folder while they are read, for the next epochs; at most SIZE, by default 4/5 of the free disk.
    /// Pixels stay the same (docs/concepts/cache.md) [default: STOKEHOLD_IMAGE_CACHE, or none].
    #[arg(long, value_name = "DIR[:SIZE]")]
    cache: Option<CachePlace>,
    /// Keep no images, whatever STOKEHOLD_IMAGE_CACHE says.
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// The share of the process's CPU time that packing for --cache may take when no core is idle, 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = stokehold_cache::SHARE, value_parser = share)]
    pub cache_share: f64,
}

impl CacheArgs {
    /// Where samples are kept, if they are: as the option says, or else the environment.
    ///
    /// # Errors
    /// The environment names no place.
    pub fn place(&self) -> Result<Option<CachePlace>, CacheError> {
        CachePlace::chosen(self.cache.clone(), self.no_cache)
    }

    /// The cache, if there is one.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn open(&self) -> Result<Option<Arc<Cache>>, CacheError> {
        Cache::open_if(self.place()?.as_ref(), self.cache_share)
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("must be from 0 to 1".to_owned()),
    }
}

/// The shape of a batch. A command with another usual size changes the default of `image_size`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct BatchArgs {
    /// Width and height of the images in a batch.
    #[arg(long, value_name = "PIXELS", default_value_t = 224, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub image_size: u32,
    /// Images per batch, at least 1.
    #[arg(long, value_name = "IMAGES", default_value_t = 32)]
    pub batch_size: usize,
}
