//! Servers that make the training batches.

use std::sync::Arc;

use stokehold_loader::Elsewhere;
use stokehold_remote::{DataPart, Part, Servers};
use stokehold_storage::Images;

use crate::{TrainConfig, TrainError};

/// Connects to the servers that make the batches of these training images.
pub(crate) fn connect(config: &TrainConfig, images: &Images) -> Result<Arc<dyn Elsewhere>, TrainError> {
    let data = DataPart {
        val_split: config.val_split,
        split_seed: config.seed,
        max_images: config.max_images,
        ..DataPart::of(images, Part::Train)
    };
    let servers = Servers::connect(&config.servers, data, stokehold_remote::token()?)?;
    Ok(Arc::new(servers.with_local(config.workers)))
}
