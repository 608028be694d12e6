//! Huffman decoding on the device: coded data are uploaded, and the result is coefficients.
//!
//! Huffman codes can only be read from the beginning, so a decoder that begins elsewhere reads nonsense. But
//! such codes synchronise: sooner or later the wrong decode ends a symbol where a symbol ends, a block where
//! a block ends and an MCU where an MCU ends, and from there on it is right (Weissenberger and Schmidt,
//! "Accelerating JPEG Decompression on GPUs", arXiv 2111.09219). So coded data are cut into *subsequences* of
//! equal length, and many units decode one each:
//!
//! 1. **Host** ([`Scans`]). [`Decoder::coded`](stokehold_jpeg::Decoder::coded) finds the restart intervals
//!    that the region needs, as *segments* that can be read independently, and removes the stuffed zeros. It
//!    decodes no symbols. Images with the same codes share them.
//! 2. **Synchronise.** Round 0 decodes every subsequence as if an MCU began at its first bit, which is true
//!    for a segment's first one. A decode ends in a *state*: the number of bits beyond the subsequence's end,
//!    the block within the MCU, and the coefficient. In round 1, in the same launch, each unit continues
//!    through the next subsequence. Nearly all are right then. Each further round decodes again those that
//!    were not decoded from their predecessor's final state, and continues through the next ones until it
//!    reaches a state that was reached before.
//! 3. **Accumulate.** Computes the number of blocks before each subsequence, and the sums of the DC
//!    differences before it, from the segment's beginning.
//! 4. **Write.** Decodes every subsequence once more, and writes its coefficients where the hybrid mode
//!    unpacks them: dequantising, transforming and all later stages are the same.
//!
//! # Why the result is exact
//!
//! Writing starts each subsequence in its predecessor's final state, and checks that its latest decode
//! started from that same state. The segment's first subsequence was decoded from its true beginning. So by
//! induction every state is the true one, regardless of the number of rounds. If the check fails because
//! there were too few rounds, or if a code, a run or the end of the data is wrong before the last needed
//! block, the image is *faulty*: its coefficients are discarded, and the CPU decides whether the image is
//! valid. So the rounds are bounded and queued all at once, and an image that the device decodes is one that
//! the CPU would decode to the same coefficients. See [`kernels`] for why no data can make a kernel
//! misbehave.

mod kernels;
mod scans;
#[cfg(test)]
mod tests;

pub(crate) use scans::{Scan, Scans};

use crate::client::Gpu;
use crate::kernels::cubes;
use crate::queue::Buffer;
use cubecl::prelude::*;
use cubecl::server::ServerError;
use kernels::{STRETCH, SUMS, UNITS, accumulate, accumulate_stretches, decode, guess, walk};

/// The length of a subsequence in bits, a multiple of 32: long enough to synchronise in, short enough that a
/// photo has hundreds.
pub(crate) const SUBSEQUENCE: u32 = 1024;

/// The most rounds of a batch. Of 400 photos half took 3 further ones and none more than 7. Images that would
/// take many more, such as pictures of one colour, decode sooner on a CPU. A round with nothing left to do
/// costs a launch.
pub(crate) const MOST_ROUNDS: u32 = 10;

impl Gpu {
    /// Queues the decode of scans into `coefficients` and their findings into `faults`, both set to zero before. The scans were pushed
    /// to `words`, and `at` is where they were placed.
    ///
    /// Returns for each subsequence two initial states, with the round from bit 16 on; the later one is used. Only tests look at them.
    pub(crate) fn decode_scans(
        &self,
        scans: &Scans,
        words: &Buffer,
        at: [u32; 2],
        coefficients: &Buffer,
        faults: &Buffer,
    ) -> Result<Buffer, ServerError> {
        // The first of a segment is right in round 0, the second in round 1, and where the last one ends does not matter.
        let rounds = scans.longest.saturating_sub(1).min(scans.most_rounds);
        let (count, stretches) = (scans.owners.len(), scans.owners.len().div_ceil(STRETCH as usize));
        let summed = SUMS as usize * stretches;
        let [entries, exits, sums, totals, bases] =
            self.empties([2 * count, 2 * count, SUMS as usize * count, summed, summed]);
        let unit = CubeDim::new_1d(UNITS);
        let over = |count: usize| cubes(count.div_ceil(UNITS as usize));
        let over_subsequences = || over(count);
        let (client, [segments, owners], count) = (&self.client, at, count as u32);

        if rounds > 0 {
            guess::launch(
                client,
                over_subsequences(),
                unit,
                words.arg(),
                entries.arg(),
                exits.arg(),
                sums.arg(),
                segments,
                owners,
                count,
                scans.length,
            );
            self.check(&sums)?;
        }
        for round in 2..rounds {
            walk::launch(
                client,
                over_subsequences(),
                unit,
                words.arg(),
                entries.arg(),
                exits.arg(),
                sums.arg(),
                segments,
                owners,
                count,
                scans.length,
                round,
            );
            self.check(&sums)?;
        }
        accumulate::launch(
            client,
            over(stretches),
            unit,
            words.arg(),
            sums.arg(),
            totals.arg(),
            segments,
            owners,
            count,
        );
        accumulate_stretches::launch(
            client,
            over(stretches),
            unit,
            words.arg(),
            totals.arg(),
            bases.arg(),
            segments,
            owners,
            count,
        );
        decode::launch(
            client,
            over_subsequences(),
            unit,
            words.arg(),
            self.tables.zigzag.arg(),
            entries.arg(),
            exits.arg(),
            sums.arg(),
            bases.arg(),
            coefficients.arg(),
            faults.arg(),
            segments,
            owners,
            count,
            scans.length,
        );
        self.check(coefficients)?;
        Ok(entries)
    }
}
