//! Links between ranks, by latency and bandwidth.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stokehold_base::regular;

use crate::{Algorithm, Machines, ScaleError};

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

/// What the sum of all ranks' numbers took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Bytes of the numbers of one rank.
    pub bytes: u64,
    /// Seconds until the slowest rank had the sum.
    pub seconds: f64,
}

/// Links of which only one part takes time.
const ONLY_LATENCY: Network = Network {
    alpha_seconds: 1.0,
    bytes_per_second: f64::INFINITY,
};
const ONLY_BANDWIDTH: Network = Network {
    alpha_seconds: 0.0,
    bytes_per_second: 1.0,
};

/// How often [`Network::fit`] chooses the algorithms again.
const ROUNDS: usize = 8;

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

    /// The link with which the formulas of [`Algorithm`] give what a short and a long sum took between `ranks` ranks, each on a
    /// machine of its own. The short one tells the latency, and the long one the bytes per second; so that should have as many
    /// bytes as gradients are reduced together. Each sum counts as the algorithm that is the fastest for it.
    ///
    /// What a sum costs next to the transfer, such as adding the numbers, counts as a slower link.
    ///
    /// # Errors
    /// [`ScaleError::Range`] if there are fewer than two ranks, or no link takes these times.
    pub fn fit(short: Sum, long: Sum, ranks: u64) -> Result<Self, ScaleError> {
        let unlike = |problem: String| ScaleError::Range {
            field: "measured sums",
            problem,
        };
        if ranks < 2 {
            return Err(unlike("at least two ranks are needed".to_owned()));
        }
        let machines = Machines {
            machines: ranks,
            gpus: 1,
        };
        // Which algorithm is the fastest depends on the link: a few rounds settle it.
        let mut link = Self::default();
        for _ in 0..ROUNDS {
            let [[a, b], [c, d]] = [short, long].map(|sum| {
                let bytes = sum.bytes as f64;
                let fastest = Algorithm::fastest(bytes, machines, link, INSIDE).0;
                [ONLY_LATENCY, ONLY_BANDWIDTH].map(|link| fastest.seconds(bytes, machines, link, INSIDE))
            });
            // a latency + b per byte = short, c latency + d per byte = long.
            let latency = (short.seconds * d - long.seconds * b) / (a * d - b * c);
            let alpha_seconds = latency.max(0.0);
            link = Self {
                alpha_seconds,
                bytes_per_second: d / (long.seconds - c * alpha_seconds),
            };
        }
        let possible = link.check();
        possible.map_err(|error| unlike(format!("no link takes these times: {error}")))?;
        Ok(link)
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

    /// Sums that take exactly what the formulas say, by the fastest algorithm for each, lead back to the link.
    #[test]
    fn the_link_of_measured_sums_is_found_again() {
        let slow = Network {
            alpha_seconds: 2e-3,
            bytes_per_second: 3e6,
        };
        for ranks in [2, 3, 4, 6, 16] {
            for link in [
                Network::ethernet(10).unwrap(),
                Network::ethernet(400).unwrap(),
                slow,
            ] {
                let machines = Machines {
                    machines: ranks,
                    gpus: 1,
                };
                let [short, long] = [4_u64, 25 << 20].map(|bytes| Sum {
                    bytes,
                    seconds: Algorithm::fastest(bytes as f64, machines, link, INSIDE).1,
                });
                let found = Network::fit(short, long, ranks).unwrap();
                let apart = |found: f64, known: f64| (found / known - 1.0).abs();
                assert!(
                    apart(found.alpha_seconds, link.alpha_seconds) < 1e-6,
                    "{ranks}: {found:?}"
                );
                assert!(
                    apart(found.bytes_per_second, link.bytes_per_second) < 1e-6,
                    "{ranks}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn sums_that_no_link_explains_are_refused() {
        let sum = |bytes, seconds| Sum { bytes, seconds };
        let error = |short, long, ranks| Network::fit(short, long, ranks).unwrap_err().to_string();
        assert!(error(sum(4, 1e-5), sum(4096, 1e-4), 1).contains("two ranks"));
        // The longer, the faster.
        for long in [1e-4, 0.0, f64::NAN] {
            let said = error(sum(4, 1e-3), sum(25 << 20, long), 2);
            assert!(said.contains("no link takes these times"), "{said}");
        }
        // A latency below 0 would fit both.
        let found = Network::fit(sum(1 << 10, 1e-9), sum(1 << 20, 1e-2), 2).unwrap();
        assert_eq!(found.alpha_seconds, 0.0);
        assert!(
            (found.bytes_per_second / (f64::from(1 << 20) / 1e-2) - 1.0).abs() < 1e-9,
            "{found:?}"
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
