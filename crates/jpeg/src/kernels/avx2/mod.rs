//! The kernels for AVX2. Every function here needs the instructions that [`Avx2`](super::Avx2) proves.

pub(crate) mod color;
pub(crate) mod idct;
pub(crate) mod reduced;
pub(crate) mod upsample;
