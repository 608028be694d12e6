//! Links between ranks, by latency and bandwidth.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stokehold_base::regular;

use crate::ScaleError;

/// A link: a message of n bytes takes `alpha_seconds + n / bytes_per_second` (Thakur et al., 2005).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Seconds that a message takes however short it is, 0 to 1.
    pub alpha_seconds: f64,
    /// Bytes per second of a long message in one direction, 1e3 to 1e13.
    pub bytes_per_second: f64,
}

/// The link between the accelerators of one machine: PCIe 4.0 x16 has 31.5 GB/s in one direction, of which collectives
/// reach about four fifths. NVLink is faster, so this understates such machines.
pub const INSIDE: Network = Network {
    alpha_seconds: 5e-6,
    bytes_per_second: 25e9,
};

/// Ethernet by Gbit/s, with the latency of a message between two programs, seconds. The latencies are assumptions of
/// usual size: sockets at 10 and 25, remote direct memory access at 100 and 400.
const ETHERNET: [(u32, f64); 4] = [(10, 50e-6), (25, 30e-6), (100, 15e-6), (400, 5e-6)];

/// The share of a link's bits that is payload: 1460 of the 1538 bytes that a full frame of Ethernet with TCP takes.
const PAYLOAD: f64 = 1460.0 / 1538.0;

impl Network {
    /// The speeds that [`Network::ethernet`] knows, Gbit/s.
    pub fn speeds() -> impl Iterator<Item = u32> {
        ETHERNET.into_iter().map(|(speed, _)| speed)
    }

    /// Ethernet of 10, 25, 100 or 400 Gbit/s: latencies of 50, 30, 15 and 5 µs, and 94.9 % of the bits are payload.
    ///
    /// # Errors
    /// [`ScaleError::Range`] for another speed.
    pub fn ethernet(gigabits: u32) -> Result<Self, ScaleError> {
        let known = ETHERNET.into_iter().find(|(speed, _)| *speed == gigabits);
        let (speed, alpha_seconds) = known.ok_or_else(|| ScaleError::Range {
            field: "network",
            problem: format!(
                "{gigabits} Gbit/s is not known: choose 10, 25, 100 or 400, or describe the network in a file"
            ),
        })?;
        Ok(Self {
            alpha_seconds,
            bytes_per_second: f64::from(speed) * 1e9 / 8.0 * PAYLOAD,
        })
    }

    /// Reads a measured network: JSON with `alpha_seconds` and `bytes_per_second`. Other fields are ignored.
    ///
    /// # Errors
    /// [`ScaleError::Io`] if the file cannot be read, [`ScaleError::Network`] if it is not such JSON or a number is out
    /// of its range.
    pub fn read(path: &Path) -> Result<Self, ScaleError> {
        let text = regular::read(path).map_err(|source| ScaleError::Io {
            path: path.to_owned(),
            source,
        })?;
        let wrong = |reason: String| ScaleError::Network {
            path: path.to_owned(),
            reason: format!(
                "{reason}; it is JSON such as {{\"alpha_seconds\": 3e-5, \"bytes_per_second\": 2.9e9}}"
            ),
        };
        let network: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        network.check().map_err(|error| wrong(error.to_string()))?;
        Ok(network)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ScaleError::Range`] with the number and what is allowed.
    pub fn check(&self) -> Result<(), ScaleError> {
        let Self {
            alpha_seconds,
            bytes_per_second,
        } = self;
        let range = |field, problem| Err(ScaleError::Range { field, problem });
        if !(0.0..=1.0).contains(alpha_seconds) {
            return range("alpha_seconds", format!("is {alpha_seconds}, and must be 0 to 1"));
        }
        if !(1e3..=1e13).contains(bytes_per_second) {
            return range(
                "bytes_per_second",
                format!("is {bytes_per_second}, and must be 1e3 to 1e13"),
            );
        }
        Ok(())
    }
}

impl Default for Network {
    /// Ethernet of 25 Gbit/s.
    fn default() -> Self {
        let (speed, alpha_seconds) = ETHERNET[1];
        Self {
            alpha_seconds,
            bytes_per_second: f64::from(speed) * 1e9 / 8.0 * PAYLOAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_networks_are_in_range_and_ascend() {
        let all: Vec<Network> = Network::speeds()
            .map(|speed| Network::ethernet(speed).unwrap())
            .collect();
        assert!(all.iter().all(|network| network.check().is_ok()));
        assert!(all.is_sorted_by(|a, b| a.bytes_per_second < b.bytes_per_second));
        assert!(all.is_sorted_by(|a, b| a.alpha_seconds > b.alpha_seconds));
        assert_eq!(Network::default(), all[1]);
        let error = Network::ethernet(40).unwrap_err().to_string();
        assert!(
            error.contains("40 Gbit/s") && error.contains("10, 25, 100 or 400"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_describes_no_network_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.json");
        for (text, says) in [
            ("", "EOF"),
            ("{\"alpha_seconds\": 1e-5}", "bytes_per_second"),
            ("{\"alpha_seconds\": -1, \"bytes_per_second\": 1e9}", "0 to 1"),
            (
                "{\"alpha_seconds\": 1e-5, \"bytes_per_second\": 0}",
                "1e3 to 1e13",
            ),
            (
                "{\"alpha_seconds\": 1e-5, \"bytes_per_second\": \"fast\"}",
                "invalid type",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Network::read(&path).unwrap_err().to_string();
            assert!(
                error.contains("network.json: not the description of a network: "),
                "{error}"
            );
            assert!(error.contains(says), "{text}: {error}");
        }
        std::fs::write(
            &path,
            "{\"alpha_seconds\": 1e-5, \"bytes_per_second\": 1e9, \"date\": \"today\"}",
        )
        .unwrap();
        assert_eq!(Network::read(&path).unwrap().bytes_per_second, 1e9);
        let error = Network::read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: "), "{error}");
    }
}
