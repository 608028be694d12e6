//! What a finished sample is made of: the type of its numbers, and the memory that it is written to.
//!
//! Every number is computed in f32 and rounded once, to nearest and to even where two are equally near, so a half
//! precision sample is the f32 sample rounded. `u8` is not a rounding: it is the image's bytes as they are before
//! `ToFloat`, three quarters smaller than f32, for a consumer that scales and normalises by itself.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::PipelineError;

/// The type of a sample's numbers; `f32`, `f16`, `bf16` or `u8` in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleType {
    /// Single precision.
    #[default]
    F32,
    /// Half precision (IEEE 754 binary16): 11 significant bits, up to 65504.
    F16,
    /// The upper half of an f32: 8 significant bits, the same range.
    Bf16,
    /// Bytes 0..=255, before `ToFloat`. Only for pipelines that end there.
    U8,
}

impl SampleType {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            SampleType::F32 => 4,
            SampleType::F16 | SampleType::Bf16 => 2,
            SampleType::U8 => 1,
        }
    }
}

impl std::fmt::Display for SampleType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SampleType::F32 => "f32",
            SampleType::F16 => "f16",
            SampleType::Bf16 => "bf16",
            SampleType::U8 => "u8",
        })
    }
}

impl std::str::FromStr for SampleType {
    type Err = PipelineError;

    fn from_str(name: &str) -> Result<SampleType, PipelineError> {
        match name {
            "f32" => Ok(SampleType::F32),
            "f16" => Ok(SampleType::F16),
            "bf16" => Ok(SampleType::Bf16),
            "u8" => Ok(SampleType::U8),
            other => Err(PipelineError::UnknownSampleType(other.into())),
        }
    }
}

/// The memory of one sample, (3, height, width), to be written.
#[derive(Debug)]
pub enum SampleMut<'a> {
    /// [`SampleType::F32`].
    F32(&'a mut [f32]),
    /// [`SampleType::F16`].
    F16(&'a mut [f16]),
    /// [`SampleType::Bf16`].
    Bf16(&'a mut [bf16]),
    /// [`SampleType::U8`].
    U8(&'a mut [u8]),
}

impl SampleMut<'_> {
    /// How many numbers it holds.
    pub fn len(&self) -> usize {
        match self {
            SampleMut::F32(out) => out.len(),
            SampleMut::F16(out) => out.len(),
            SampleMut::Bf16(out) => out.len(),
            SampleMut::U8(out) => out.len(),
        }
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of its numbers.
    pub fn sample_type(&self) -> SampleType {
        match self {
            SampleMut::F32(_) => SampleType::F32,
            SampleMut::F16(_) => SampleType::F16,
            SampleMut::Bf16(_) => SampleType::Bf16,
            SampleMut::U8(_) => SampleType::U8,
        }
    }

    /// The same memory for a shorter time.
    pub fn reborrow(&mut self) -> SampleMut<'_> {
        match self {
            SampleMut::F32(out) => SampleMut::F32(out),
            SampleMut::F16(out) => SampleMut::F16(out),
            SampleMut::Bf16(out) => SampleMut::Bf16(out),
            SampleMut::U8(out) => SampleMut::U8(out),
        }
    }

    /// Has `write` write the sample as f32, and rounds: straight into f32 memory, through `buffer` into half
    /// precision. Bytes have nothing between 0 and 255 to round to, so `u8` must not come here.
    pub(crate) fn write_as_f32(self, buffer: &mut Vec<f32>, write: impl FnOnce(&mut [f32])) {
        if let SampleMut::F32(out) = self {
            return write(out);
        }
        buffer.resize(self.len(), 0.0);
        write(buffer);
        match self {
            SampleMut::F16(out) => out.convert_from_f32_slice(buffer),
            SampleMut::Bf16(out) => out.convert_from_f32_slice(buffer),
            SampleMut::F32(_) | SampleMut::U8(_) => unreachable!("f32 is written above, u8 is not float"),
        }
    }
}

macro_rules! from_memory {
    ($($variant:ident $number:ty),*) => {$(
        impl<'a> From<&'a mut [$number]> for SampleMut<'a> {
            fn from(out: &'a mut [$number]) -> Self {
                SampleMut::$variant(out)
            }
        }

        impl<'a> From<&'a mut Vec<$number>> for SampleMut<'a> {
            fn from(out: &'a mut Vec<$number>) -> Self {
                SampleMut::$variant(out)
            }
        }
    )*};
}

from_memory!(F32 f32, F16 f16, Bf16 bf16, U8 u8);
