//! The machines to predict for.

use serde::Serialize;

use crate::{Algorithm, Network, ScaleError};

/// The most ranks that are simulated; a step of each has its place in memory.
pub const MOST_RANKS: u64 = 4096;

/// Machines, what connects them, and what they cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cluster {
    /// The numbers of machines to predict for, each at least 1; in any order.
    pub machines: Vec<u64>,
    /// Ranks of each, at least 1. All ranks of all machines are at most [`MOST_RANKS`].
    pub gpus: u64,
    /// The network between machines.
    pub network: Network,
    /// How gradients are reduced; `None` for the fastest way, bucket by bucket.
    pub algorithm: Option<Algorithm>,
    /// Bytes per second of the storage that all machines share, above 0; `None` for no limit.
    pub storage_limit: Option<f64>,
    /// What an hour of a machine costs, at least 0.
    pub price: Option<f64>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            machines: vec![1, 2, 4, 8, 16, 64],
            gpus: 1,
            network: Network::default(),
            algorithm: None,
            storage_limit: None,
            price: None,
        }
    }
}

impl Cluster {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ScaleError::Range`] with the number and what is allowed.
    pub fn check(&self) -> Result<(), ScaleError> {
        let range = |field, problem| Err(ScaleError::Range { field, problem });
        self.network.check()?;
        if self.machines.is_empty() {
            return range("machines", "none is given; give numbers such as 1,2,4".to_owned());
        }
        if self.gpus == 0 {
            return range("GPUs of a machine", "is 0, and must be at least 1".to_owned());
        }
        for &machines in &self.machines {
            let ranks = machines.checked_mul(self.gpus);
            if machines == 0 || ranks.is_none_or(|ranks| ranks > MOST_RANKS) {
                let gpus = self.gpus;
                return range(
                    "machines",
                    format!(
                        "{machines} of {gpus} GPU{} each is not possible: 1 to {MOST_RANKS} GPUs in all",
                        if gpus == 1 { "" } else { "s" }
                    ),
                );
            }
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if let Some(limit) = self.storage_limit.filter(|limit| !positive(*limit)) {
            return range("storage", format!("{limit} bytes/s: must be above 0"));
        }
        if let Some(price) = self.price.filter(|price| !(price.is_finite() && *price >= 0.0)) {
            return range("price", format!("{price} an hour: must be 0 or more"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_cluster_has_is_named() {
        assert!(Cluster::default().check().is_ok());
        let most = Cluster {
            machines: vec![MOST_RANKS / 8],
            gpus: 8,
            ..Cluster::default()
        };
        assert!(most.check().is_ok());
        let with = |change: &dyn Fn(&mut Cluster)| {
            let mut cluster = most.clone();
            change(&mut cluster);
            cluster.check().unwrap_err().to_string()
        };
        for (said, expected) in [
            (with(&|c| c.machines = vec![]), "machines: none"),
            (with(&|c| c.machines = vec![1, 0]), "0 of 8 GPUs"),
            (with(&|c| c.machines = vec![513]), "1 to 4096 GPUs"),
            (with(&|c| c.machines = vec![u64::MAX]), "1 to 4096 GPUs"),
            (with(&|c| c.gpus = 0), "at least 1"),
            (with(&|c| c.storage_limit = Some(0.0)), "above 0"),
            (with(&|c| c.storage_limit = Some(f64::NAN)), "above 0"),
            (with(&|c| c.price = Some(-1.0)), "-1 an hour"),
            (with(&|c| c.network.alpha_seconds = 2.0), "0 to 1"),
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }
}
