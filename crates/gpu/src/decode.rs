//! Where the symbols of JPEGs and packed images are decoded.

use crate::GpuError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where the symbols of JPEGs and packed images are decoded; `hybrid` or `device` in text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decode {
    /// On the CPU; the device gets the coefficients that are not zero.
    #[default]
    Hybrid,
    /// On the device, for files with one sequential scan and for packed images; other files are decoded as with `Hybrid`.
    Device,
}

impl fmt::Display for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decode::Hybrid => "hybrid",
            Decode::Device => "device",
        })
    }
}

impl FromStr for Decode {
    type Err = GpuError;

    fn from_str(name: &str) -> Result<Decode, GpuError> {
        match name {
            "hybrid" => Ok(Decode::Hybrid),
            "device" => Ok(Decode::Device),
            other => Err(GpuError::UnknownDecode(other.into())),
        }
    }
}
