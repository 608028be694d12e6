//! The interface between entropy decoding and the stages after it.
//!
//! Whichever way the coefficients of a batch were decoded, they are one buffer of 16-bit numbers: the blocks
//! of all components of all images one after the other, 64 coefficients each in rows (not in coding order),
//! zeros included, quantised as in the file. Records among the batch's words describe ranges of blocks (see
//! `kernels::decode`: the first block in this buffer, the number of blocks, their quantisation steps, and the
//! place of their samples), and `kernels::decode::transform` computes the samples. Either
//! `kernels::decode::unpack` fills the buffer with what a worker has entropy-decoded, or `entropy` and `packed` do
//! from coded data; the later stages do not depend on which. Those two also say of each of their images whether it is
//! whole ([`Faults`]).

use crate::client::Gpu;
use crate::kernels::{cube_number, cubes, write};
use crate::queue::Buffer;
use cubecl::prelude::*;
use cubecl::server::ServerError;

/// Units of a cube.
const UNITS: u32 = 64;

/// The coefficients of all images of a batch.
pub(crate) struct Coefficients {
    /// 64 `i16` a block.
    pub blocks: Buffer,
    /// The place of the blocks' records among the words.
    pub records: u32,
    /// The number of records with packed blocks, which come first.
    pub packed: u32,
    /// The number of all records.
    pub count: u32,
    /// The most blocks of a record.
    pub most: u32,
}

/// The faults of an image that the device has decoded; what the bits say is known to the kernels that set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults(pub u32);

impl Faults {
    /// Whether its coefficients are valid.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Sets the words of two buffers to zero; the first must not be the shorter one.
#[cube(launch)]
fn clear(zeros: &mut [u32], more: &mut [u32]) {
    let index = cube_number() * UNITS + UNIT_POS;
    write(zeros, index, 0u32);
    write(more, index, 0u32);
}

impl Gpu {
    /// Sets blocks of 16-bit coefficients to zero, and the words of `faults`, of which there are no more than 32 a block.
    pub(crate) fn clear(&self, coefficients: &Buffer, faults: &Buffer) -> Result<(), ServerError> {
        let zeros = Buffer {
            handle: coefficients.handle.clone(),
            len: coefficients.len / 2,
        };
        clear::launch(
            &self.client,
            cubes(zeros.len.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            zeros.arg(),
            faults.arg(),
        );
        self.check(coefficients)?;
        self.check(faults)
    }
}
