//! Packed images decoded on the device: their groups are uploaded as they are, and the result is coefficients.
//!
//! A packed image (`docs/reference/packed-format.md`, the module `packed` of crate jpeg) is made of groups of blocks that are
//! read without any other, 32 symbols a step. So a group is the work of one warp: a *plane* of 32 units, in which each
//! unit is a lane of the coder. Nothing has to synchronise, and no warp waits for another.
//!
//! ```text
//!  file ──worker: Groups──► bytes of the groups that the crop needs, as they are, and a record of each
//!  tables, once a batch ──► a word a bin, sixteen words a distribution
//!
//!  on the device, a warp a group:
//!    types  ──► each block's slot, each slot's block, how far each type goes; where the coder stands
//!    tokens ──► coefficients at their places; of each slot the difference of its first coefficient
//!    first  ──► first coefficients: the sums of differences along each row
//! ```
//!
//! 1. **Host** ([`Groups`], [`GroupsOfBatch`]). [`Decoder::packed_groups`](stokehold_jpeg::Decoder::packed_groups) finds
//!    the groups and their parts, by their lengths. No symbol is read, and no byte is looked at twice: they are copied to
//!    the sample, and from there to the words of the batch. Images with the same tables share them.
//! 2. **Types**. Reads the types of all blocks and sorts the blocks: a block's slot is where its type begins plus how many
//!    blocks of that type are before it.
//! 3. **Tokens**. Each step reads a token a lane. The raw bits of tokens come in the same order, so where those of a lane
//!    are is a sum over the lanes before it, and the value is written at once. The last raw bits are in the states that
//!    the last step leaves. Where a step might need them, the kernel remembers how it stands, reads on to the end, and
//!    reads the rest again with all raw bits.
//! 4. **First coefficients**. Sums the differences in each row of blocks, including blocks left of the crop.
//!
//! Each of these is a launch, so that what one lane has written is there for all lanes of the next one.
//!
//! # Two forms
//!
//! Where planes have 32 units, lanes count by votes: a ballot tells each how many lanes before it take a byte. Elsewhere
//! (lavapipe, GPUs with other planes) a unit does a whole group, lane after lane, which is slow on a GPU and right
//! everywhere. (lavapipe stops a unit's loops after 65,535 rounds, all of its loops counted together. A group of thousands of blocks
//! needs more, so the CPU decodes its image.) The kernels are the same code: how many lanes a unit does, and the functions that count over lanes, are all that
//! differs.
//!
//! # Damage
//!
//! The kernels check what the CPU's reader checks: the coder's end, the number of raw bits and of extra bytes, the range of first
//! coefficients. An image with a group that fails is *faulty*, and the CPU decides whether it is valid. Where only first
//! coefficients count, reading ends with them, as on the CPU; near the end of the raw bits the device is more careful
//! than the CPU and reads all steps. So an image that the device decodes is one that the CPU would decode to the same
//! coefficients. See [`kernels`] for why no data can make a kernel misbehave.

mod groups;
mod kernels;
#[cfg(test)]
mod tests;

pub(crate) use groups::{DeviceTables, Groups, GroupsOfBatch};

use crate::client::Gpu;
use crate::kernels::cubes;
use crate::queue::Buffer;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;
use cubecl::server::ServerError;
use kernels::{LANES, first, tokens, types};

impl Gpu {
    /// Whether planes have 32 units, which count over the plane.
    fn has_warps(&self) -> bool {
        let properties = self.client.properties();
        let hardware = &properties.hardware;
        (hardware.plane_size_min, hardware.plane_size_max) == (LANES, LANES)
            && properties.features.plane.contains(Plane::Ops)
    }

    /// Queues the decode of groups into `coefficients` and their findings into `faults`, both set to zero before. The groups were
    /// pushed to `words`, and `at` is where their records were placed.
    pub(crate) fn decode_groups(
        &self,
        groups: &GroupsOfBatch,
        words: &Buffer,
        at: u32,
        coefficients: &Buffer,
        faults: &Buffer,
    ) -> Result<(), ServerError> {
        let [scratch] = self.empties([groups.scratch as usize]);
        let warps = self.has_warps();
        let count = groups.count() as u32;
        let over = || {
            cubes(match warps {
                true => groups.count(),
                false => groups.count().div_ceil(LANES as usize),
            })
        };
        let (client, dim) = (&self.client, CubeDim::new_1d(LANES));
        types::launch(client, over(), dim, words.arg(), scratch.arg(), at, count, warps);
        self.check(&scratch)?;
        tokens::launch(
            client,
            over(),
            dim,
            words.arg(),
            self.tables.zigzag.arg(),
            scratch.arg(),
            coefficients.arg(),
            faults.arg(),
            at,
            count,
            warps,
        );
        self.check(coefficients)?;
        self.check(&scratch)?;
        first::launch(
            client,
            over(),
            dim,
            words.arg(),
            scratch.arg(),
            coefficients.arg(),
            faults.arg(),
            at,
            count,
            warps,
        );
        self.check(coefficients)
    }
}
