//! Options of the loader, for all commands that have them.

use clap::Args as ClapArgs;
use stokehold_loader::Workers;

/// The threads of whatever reads images.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct WorkerArgs {
    /// Worker threads that read and decode, or auto: as many as there are cores, and in a loader more where reads
    /// wait, at most 128.
    #[arg(long, value_name = "N", default_value_t = Workers::Auto)]
    pub workers: Workers,
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
