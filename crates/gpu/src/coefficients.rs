//! The seam between entropy decoding and everything after it.
//!
//! However the coefficients of a batch came to the device, they are one buffer of 16-bit numbers: the blocks of all
//! components of all images one after the other, 64 coefficients each in rows (not in coding order), zeros included,
//! quantised as in the file. Records among the batch's words say what a run of blocks is (see `kernels::decode`: its
//! first block in this buffer, how many, their steps, and where their samples go), and `kernels::decode::transform`
//! makes samples of them. `kernels::decode::unpack` fills the buffer from what a worker has entropy-decoded, and `entropy`
//! from coded data; nothing behind it knows the difference.

use crate::client::Buffer;

/// The coefficients of all images of a batch.
pub(crate) struct Coefficients {
    /// 64 `i16` a block.
    pub blocks: Buffer,
    /// Where the records of the blocks begin among the words.
    pub records: u32,
    /// How many there are of those that are unpacked, which come first.
    pub packed: u32,
    /// How many there are in all.
    pub count: u32,
}
