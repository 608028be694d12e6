//! What it takes to add the gradients of all ranks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Network;

/// How gradients are reduced. [The front page](crate#reduce) has the formulas and their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// A ring of all ranks: the least bytes, many messages.
    Ring,
    /// Recursive halving and doubling: few messages.
    Tree,
    /// Reduce in each machine, a ring of the machines, broadcast in each machine.
    Hierarchical,
}

/// The machines that train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    /// Their number, at least 1.
    pub machines: u64,
    /// The ranks of each, at least 1.
    pub gpus: u64,
}

impl Machines {
    /// All ranks.
    pub fn ranks(self) -> u64 {
        self.machines * self.gpus
    }
}

impl Algorithm {
    /// All of them; the first of those that take as long is preferred.
    pub const ALL: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Tree, Algorithm::Hierarchical];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Hierarchical => "hierarchical",
        }
    }

    /// The fastest of them for `bytes` bytes, with its seconds.
    pub fn fastest(bytes: f64, machines: Machines, network: Network, inside: Network) -> (Self, f64) {
        let timed =
            Self::ALL.map(|algorithm| (algorithm, algorithm.seconds(bytes, machines, network, inside)));
        let [first, others @ ..] = timed;
        others
            .into_iter()
            .fold(first, |best, other| if other.1 < best.1 { other } else { best })
    }

    /// Seconds for `bytes` bytes, over `network` between machines and `inside` within each; 0 for one rank.
    pub fn seconds(self, bytes: f64, machines: Machines, network: Network, inside: Network) -> f64 {
        let Machines { machines: m, gpus: g } = machines;
        // One machine is a cluster whose links are those inside of it.
        let within = match self {
            Self::Ring => ring(g, bytes, inside),
            Self::Tree => halving(g, bytes, inside),
            Self::Hierarchical => in_machine(g, bytes, inside),
        };
        if m == 1 {
            return within;
        }
        let all = match self {
            Self::Ring => ring(machines.ranks(), bytes, network),
            Self::Tree => {
                let shared = Network {
                    bytes_per_second: network.bytes_per_second / g as f64,
                    ..network
                };
                // The ranks of a machine halve the part that is left after all machines have halved theirs.
                halving(m, bytes, shared) + halving(g, bytes / m as f64, inside)
            }
            Self::Hierarchical => ring(m, bytes, network) + in_machine(g, bytes, inside),
        };
        // A network that is faster than the links to it is not used faster than they are.
        all.max(within)
    }
}

/// Reduce to one rank of a machine, and broadcast from it.
fn in_machine(gpus: u64, bytes: f64, inside: Network) -> f64 {
    let messages = 3.0 * floor_log2(gpus.next_power_of_two()) + (gpus - 1) as f64;
    messages * inside.alpha_seconds + 4.0 * share(gpus) * bytes / inside.bytes_per_second
}

/// The share of the bytes that leaves a rank in half of a reduce.
fn share(ranks: u64) -> f64 {
    (ranks - 1) as f64 / ranks as f64
}

fn floor_log2(n: u64) -> f64 {
    f64::from(n.max(1).ilog2())
}

fn ring(ranks: u64, bytes: f64, link: Network) -> f64 {
    2.0 * (ranks - 1) as f64 * link.alpha_seconds + 2.0 * share(ranks) * bytes / link.bytes_per_second
}

fn halving(ranks: u64, bytes: f64, link: Network) -> f64 {
    let power = 1 << ranks.max(1).ilog2();
    let even =
        2.0 * floor_log2(power) * link.alpha_seconds + 2.0 * share(power) * bytes / link.bytes_per_second;
    if power == ranks {
        return even;
    }
    // The ranks beyond the power of two hand all of their numbers to another, and get all of the sum back.
    even + 2.0 * link.alpha_seconds + 2.0 * bytes / link.bytes_per_second
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        known.ok_or_else(|| format!("there is no algorithm '{name}': choose ring, tree or hierarchical"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network {
        alpha_seconds: 1e-3,
        bytes_per_second: 1e6,
    };
    const FAST: Network = Network {
        alpha_seconds: 1e-5,
        bytes_per_second: 1e9,
    };

    fn seconds(algorithm: Algorithm, machines: u64, gpus: u64) -> f64 {
        algorithm.seconds(1e6, Machines { machines, gpus }, NETWORK, FAST)
    }

    fn close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-12 * expected.max(1.0),
            "{found} is not {expected}"
        );
    }

    /// By hand, a megabyte takes a second.
    #[test]
    fn one_gpu_a_machine_costs_what_the_papers_say() {
        for algorithm in Algorithm::ALL {
            close(seconds(algorithm, 1, 1), 0.0);
        }
        close(seconds(Algorithm::Ring, 8, 1), 14e-3 + 1.75);
        close(seconds(Algorithm::Tree, 8, 1), 6e-3 + 1.75);
        close(seconds(Algorithm::Hierarchical, 8, 1), 14e-3 + 1.75);
        // 6 = 4 + 2: 4 messages and 1.5 bytes of each, and twice a message with everything.
        close(seconds(Algorithm::Tree, 6, 1), 4e-3 + 1.5 + 2e-3 + 2.0);
    }

    #[test]
    fn several_gpus_share_a_card_in_the_tree_and_not_in_the_hierarchy() {
        close(seconds(Algorithm::Ring, 2, 4), 14e-3 + 1.75);
        close(seconds(Algorithm::Tree, 2, 4), 2e-3 + 4.0 + (4e-5 + 1.5 * 0.5e-3));
        close(seconds(Algorithm::Hierarchical, 2, 4), 2e-3 + 1.0 + (9e-5 + 3e-3));
        // Within one machine nothing goes over the network.
        close(seconds(Algorithm::Ring, 1, 4), 6e-5 + 1.5e-3);
        close(seconds(Algorithm::Tree, 1, 4), 4e-5 + 1.5e-3);
    }

    #[test]
    fn names_are_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("star".parse::<Algorithm>().unwrap_err().contains("choose ring"));
    }
}
