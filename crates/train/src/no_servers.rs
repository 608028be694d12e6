//! Stands in for servers where the feature `servers` is off: connecting to one is refused.

use std::sync::Arc;

use stokehold_loader::Elsewhere;
use stokehold_storage::Images;

use crate::{TrainConfig, TrainError};

pub(crate) fn connect(config: &TrainConfig, _: &Images) -> Result<Arc<dyn Elsewhere>, TrainError> {
    Err(TrainError::NoServers {
        address: config.servers[0].clone(),
    })
}
