//! The stages of training steps.

use std::fmt;

use serde::{Deserialize, Serialize};
use stokehold_profile::span;

/// What training steps spend their time on. Validation does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A worker reads the bytes of an image.
    Read,
    /// A worker decodes an image.
    Decode,
    /// A worker augments and normalises an image.
    Augment,
    /// A worker's part of a batch, from its first image to its last; it includes the three above.
    Batch,
    /// The trainer waits for a batch.
    Wait,
    /// The trainer computes a step.
    Step,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Decode,
        Self::Augment,
        Self::Batch,
        Self::Wait,
        Self::Step,
    ];

    /// The name of its spans.
    pub fn span(self) -> &'static str {
        match self {
            Stage::Read => span::READ,
            Stage::Decode => span::DECODE,
            Stage::Augment => span::AUGMENT,
            Stage::Batch => span::WORKER,
            Stage::Wait => span::WAIT,
            Stage::Step => span::STEP,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Read => "read",
            Stage::Decode => "decode",
            Stage::Augment => "augment",
            Stage::Batch => "batch",
            Stage::Wait => "wait",
            Stage::Step => "step",
        })
    }
}
