//! Who reads the symbols of JPEGs.

use crate::GpuError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who reads the symbols of JPEGs; `hybrid` or `device` in text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decode {
    /// The CPU reads them, and the device is given the coefficients that are not zero.
    #[default]
    Hybrid,
    /// The device reads them, where a file has one sequential scan; the other files take the hybrid way.
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
