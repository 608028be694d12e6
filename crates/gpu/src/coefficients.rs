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
    /// What the blocks are.
    pub records: Vec<BlockRecords>,
}

/// Records among the words of a batch, of blocks that become `side` samples a side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRecords {
    /// 8, 4, 2 or 1.
    pub side: u32,
    /// Where they begin.
    pub table: u32,
    /// How many: what one dimension of a launch can count, 65535 at most.
    pub count: u32,
}
