//! Servers that make the training batches. The crate that speaks to them tells [`connect_servers_with`] once, so this crate has no TLS.

use std::sync::{Arc, OnceLock};

use stokehold_base::fault::Fault;
use stokehold_loader::Elsewhere;
use stokehold_storage::Images;

use crate::{TrainConfig, TrainError};

/// Connects to the servers of a configuration, which make the batches of these training images.
pub type Connect = fn(&TrainConfig, &Images) -> Result<Arc<dyn Elsewhere>, Box<dyn Fault + Send + Sync>>;

static CONNECT: OnceLock<Connect> = OnceLock::new();

/// Says what connects the runs of this process to the servers that their configurations name. The first call counts.
pub fn connect_servers_with(connect: Connect) {
    CONNECT.get_or_init(|| connect);
}

pub(crate) fn connect(config: &TrainConfig, images: &Images) -> Result<Arc<dyn Elsewhere>, TrainError> {
    let connect = CONNECT.get().ok_or_else(|| TrainError::NoServers {
        address: config.servers[0].clone(),
    })?;
    connect(config, images).map_err(TrainError::Servers)
}
