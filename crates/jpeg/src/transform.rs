//! From coefficients to samples: per component a strip that holds the sample rows of one MCU row and the row
//! above.

use crate::block::Block;
use crate::frame::Component;
use crate::kernels::Isa;
use crate::kernels::idct::{self, Steps, Target};
use crate::region::Needed;

/// Blocks that wait for their transform.
const PENDING: usize = 8;

/// Samples kept free left of a strip; the last of them repeats the image's first column.
const MARGIN: usize = 32;

/// Samples kept free right of a strip: what kernels may touch beyond a row.
const SLACK: usize = 64;

/// One component's samples of the region, one MCU row at a time.
#[derive(Debug)]
pub(crate) struct Strip {
    component: Component,
    needed: Needed,
    steps: Steps,
    pending: Box<[Block; PENDING]>,
    /// Where they go in the samples.
    targets: [usize; PENDING],
    waiting: usize,
    /// Rows of samples: the last one of the MCU row above, then those of this MCU row.
    samples: Vec<u8>,
    stride: usize,
    isa: Isa,
}

impl Strip {
    pub fn new(isa: Isa) -> Strip {
        Strip {
            component: Component::default(),
            needed: Needed::default(),
            steps: Steps([0; 64]),
            pending: Box::new([Block::ZERO; PENDING]),
            targets: [0; PENDING],
            waiting: 0,
            samples: Vec::new(),
            stride: 0,
            isa,
        }
    }

    /// Begins an image: blocks that are `needed` of `component` come.
    pub fn begin(&mut self, component: &Component, needed: Needed) {
        self.stride = (MARGIN + 8 * needed.columns.len() + SLACK).next_multiple_of(32);
        let size = (1 + 8 * component.v) * self.stride;
        if self.samples.len() < size {
            self.samples.resize(size, 0);
        }
        (self.component, self.needed, self.waiting) = (*component, needed, 0);
    }

    /// Sets the steps that the coming blocks are quantised with.
    pub fn set_steps(&mut self, steps: &[u16; 64]) {
        self.steps = Steps(steps.map(|step| step as i16));
    }

    pub fn component(&self) -> &Component {
        &self.component
    }

    pub fn needed(&self) -> &Needed {
        &self.needed
    }

    /// An empty block, to be filled and then given back by [`Strip::push`].
    #[inline(always)]
    pub fn block(&mut self) -> &mut Block {
        let block = &mut self.pending[self.waiting % PENDING];
        block.0[..64].fill(0);
        block
    }

    /// Takes the block last given out: `count` coefficients up to the last that is not zero, its column among
    /// all blocks of the component, its row among those of the MCU row.
    #[inline(always)]
    pub fn push(&mut self, count: u32, column: usize, row: usize) {
        let at = (1 + 8 * row) * self.stride + MARGIN + 8 * (column - self.needed.columns.start);
        if count == 1 {
            let dc = self.pending[self.waiting % PENDING].0[0];
            return idct::flat(
                dc,
                &self.steps,
                Target {
                    samples: &mut self.samples,
                    stride: self.stride,
                },
                at,
            );
        }
        self.targets[self.waiting % PENDING] = at;
        self.waiting += 1;
        if self.waiting == PENDING {
            self.flush();
        }
    }

    /// Transforms what waits.
    #[inline(never)]
    fn flush(&mut self) {
        for i in (0..self.waiting).step_by(2) {
            let j = (i + 1).min(self.waiting - 1); // an odd one goes twice
            let target = Target {
                samples: &mut self.samples,
                stride: self.stride,
            };
            let (blocks, at) = (
                [&self.pending[i], &self.pending[j]],
                [self.targets[i], self.targets[j]],
            );
            idct::transform(self.isa, blocks, &self.steps, target, at);
        }
        self.waiting = 0;
    }

    /// Ends an MCU row: its samples are complete, with the image's edges repeated once beyond them.
    pub fn complete(&mut self) {
        self.flush();
        let first = 8 * self.needed.columns.start;
        let right = self.component.width - first; // beyond the last column
        for row in self
            .samples
            .chunks_exact_mut(self.stride)
            .skip(1)
            .take(8 * self.component.v)
        {
            if first == 0 {
                row[MARGIN - 1] = row[MARGIN];
            }
            if right <= 8 * self.needed.columns.len() {
                row[MARGIN + right] = row[MARGIN + right - 1];
            }
        }
    }

    /// Keeps the MCU row's last row of samples as the row above the next MCU row.
    pub fn keep_last_row(&mut self) {
        let last = 8 * self.component.v * self.stride;
        self.samples.copy_within(last..last + self.stride, 0);
    }

    /// Samples of a row, from the one left of column `first` on. Row 0 is the one above the MCU row.
    pub fn row(&self, row: usize, first: usize) -> &[u8] {
        let from = MARGIN - 1 + first - 8 * self.needed.columns.start;
        &self.samples[row * self.stride..][from..self.stride]
    }
}
