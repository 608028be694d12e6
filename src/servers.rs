//! Servers that make the batches of a training, or of `bench loader`.

use std::error::Error;
use std::sync::Arc;

use stokehold_loader::{Address, Elsewhere, Workers};
use stokehold_storage::Images;

/// Connects a loader with this many threads of its own to the servers.
pub type Connect = Box<dyn Fn(Workers) -> Result<Arc<dyn Elsewhere>, Box<dyn Error>>>;

/// The way to servers of these images.
#[cfg(feature = "full")]
pub fn of(
    addresses: &[Address],
    images: &Images,
    max_images: Option<usize>,
) -> Result<Connect, Box<dyn Error>> {
    use stokehold_remote::{DataPart, DatasetSplit, Servers};
    use stokehold_storage::Source;

    let part = match images.pixel_classes() {
        Some(_) => DatasetSplit::Train,
        None => DatasetSplit::Unlabelled,
    };
    let part = DataPart {
        max_images,
        ..DataPart::of(images, part)
    };
    let addresses = addresses.to_vec();
    Ok(Box::new(move |workers| {
        let servers = Servers::connect(&addresses, part.clone(), stokehold_remote::token()?)?;
        Ok(Arc::new(servers.with_local(workers)))
    }))
}

#[cfg(not(feature = "full"))]
pub fn of(addresses: &[Address], _: &Images, _: Option<usize>) -> Result<Connect, Box<dyn Error>> {
    let address = addresses[0].clone();
    Err(stokehold_train::TrainError::NoServers { address }.into())
}

/// Connects a run to its servers.
#[cfg(feature = "full")]
pub fn connect(
    config: &stokehold_train::TrainConfig,
    images: &Images,
) -> Result<Arc<dyn Elsewhere>, Box<dyn stokehold_base::fault::Fault + Send + Sync>> {
    use stokehold_remote::{DataPart, DatasetSplit, Servers};

    let data = DataPart {
        val_split: config.val_split,
        split_seed: config.seed,
        max_images: config.max_images,
        ..DataPart::of(images, DatasetSplit::Train)
    };
    let connected =
        stokehold_remote::token().and_then(|token| Servers::connect(&config.servers, data, token));
    match connected {
        Ok(servers) => Ok(Arc::new(servers.with_local(config.workers))),
        Err(error) => Err(Box::new(error)),
    }
}
