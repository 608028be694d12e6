//! The interface between entropy decoding and the stages after it.
//!
//! Whichever way the coefficients of a batch were decoded, they are one buffer of 16-bit numbers: the blocks
//! of all components of all images one after the other, 64 coefficients each in rows (not in coding order),
//! zeros included, quantised as in the file. Records among the batch's words describe ranges of blocks (see
//! `kernels::decode`: the first block in this buffer, the number of blocks, their quantisation steps, and the
//! place of their samples), and `kernels::decode::transform` computes the samples. Either
//! `kernels::decode::unpack` fills the buffer with what a worker has entropy-decoded, or `entropy` does from
//! coded data; the later stages do not depend on which.

use crate::queue::Buffer;

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
}
