//! Upright resampling: channels to rows of pixels, first along the rows, then down the columns.
//!
//! ```text
//!  samples of a channel ──columns──► rows of 16-bit sums, kept while needed ──rows──► one row a channel ──► RGBX
//! ```
//!
//! Each channel is resampled at its own resolution, and colours are made last, of as many pixels as the result has.
//! Chroma that a JPEG stores coarser is not blown up first: the interpolation that would have done so is folded into
//! the weights ([`weights`]), which gives what blowing up and then resampling gives, without rounding in between.
//!
//! The arithmetic is in integers and the same in every kernel ([`kernel`]), so results do not depend on the machine.

mod kernel;
mod tables;
mod weights;

use super::isa::Isa;
use super::source::{Color, Plane, Planes};
use crate::op::Filter;
pub use tables::{BilinearAxis, UprightAxis, UprightTables};
pub(super) use weights::Line;
use weights::{Columns, Windows};
pub use weights::{Taps, Triangle};

/// Buffers that are reused from image to image.
pub(super) struct Buffers {
    isa: Isa,
    windows: Windows,
    columns: [Columns; 3],
    /// Of 15 bits.
    rows: [Taps; 3],
    sums: [Sums; 3],
    /// The three channels of one result row.
    row: [Vec<i16>; 3],
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            isa: Isa::detect(),
            windows: Windows::default(),
            columns: Default::default(),
            rows: Default::default(),
            sums: Default::default(),
            row: Default::default(),
        }
    }
}

/// A resampling that is under way.
pub(super) struct Upright<'a> {
    planes: Planes<'a>,
    buffers: &'a mut Buffers,
    /// Whose weights a channel uses: channels of one resolution share them.
    columns_of: [usize; 3],
    rows_of: [usize; 3],
    /// Channels that are computed; the others are the same plane as the first.
    count: usize,
}

impl<'a> Upright<'a> {
    /// Prepares the weights of both axes.
    pub fn new(
        planes: Planes<'a>,
        filter: Filter,
        (across, down): (Line, Line),
        buffers: &'a mut Buffers,
    ) -> Upright<'a> {
        let padded = (across.count as usize).next_multiple_of(kernel::PADDING);
        let (x, y) = (planes.channels.map(|p| p.x), planes.channels.map(|p| p.y));
        let (columns_of, rows_of) = (firsts(x), firsts(y));
        let (unit_x, unit_y) = planes.finest();
        buffers.windows.along(filter, across, unit_x);
        for i in (0..3).filter(|&i| columns_of[i] == i) {
            buffers.columns[i].set(&buffers.windows, x[i], padded, buffers.isa);
        }
        buffers.windows.along(filter, down, unit_y);
        for i in (0..3).filter(|&i| rows_of[i] == i) {
            buffers.rows[i].set(&buffers.windows, y[i], 15);
        }
        for (sums, first) in buffers.sums.iter_mut().zip(rows_of) {
            sums.begin(buffers.rows[first].taps, padded);
        }
        buffers.row.iter_mut().for_each(|row| row.resize(padded, 0));
        let count = if planes.is_grey() { 1 } else { 3 };
        Upright {
            planes,
            buffers,
            columns_of,
            rows_of,
            count,
        }
    }

    /// Result row `v`, four bytes a pixel.
    pub fn row(&mut self, v: usize, out: &mut [u8]) {
        let Buffers {
            isa,
            columns,
            rows,
            sums,
            row,
            ..
        } = &mut *self.buffers;
        for i in 0..self.count {
            let (columns, rows) = (&columns[self.columns_of[i]], &rows[self.rows_of[i]]);
            let (start, weights) = rows.of(v);
            let places = start..start + rows.taps;
            for y in places.clone() {
                sums[i].require(*isa, y, &self.planes.channels[i], columns);
            }
            kernel::mix_rows(*isa, &sums[i].values, places, weights, &mut row[i]);
        }
        let [first, second, third] = &*row;
        match self.count {
            1 => kernel::rgbx(*isa, Color::Rgb, [first, first, first], out),
            _ => kernel::rgbx(*isa, self.planes.color, [first, second, third], out),
        }
    }
}

/// For each of three, the first that equals it.
fn firsts<T: PartialEq>(of: [T; 3]) -> [usize; 3] {
    std::array::from_fn(|i| (0..i).find(|&j| of[j] == of[i]).unwrap_or(i))
}

/// Rows of a channel after the sums along them. A row is computed once, when it is first needed.
#[derive(Default)]
struct Sums {
    /// `taps` rows of `padded` values; source row `y` is in place `y % taps`.
    values: Vec<i16>,
    /// The source row in each place.
    holds: Vec<usize>,
    padded: usize,
    /// A copy of a source row whose end is too near the end of its plane for the kernels.
    copy: Vec<u8>,
}

impl Sums {
    fn begin(&mut self, taps: usize, padded: usize) {
        self.values.resize(taps * padded, 0);
        self.holds.clear();
        self.holds.resize(taps, usize::MAX);
        self.padded = padded;
    }

    fn require(&mut self, isa: Isa, y: usize, plane: &Plane<'_>, columns: &Columns) {
        let place = y % self.holds.len();
        if self.holds[place] == y {
            return;
        }
        self.holds[place] = y;
        let mut source = &plane.data[y * plane.stride..];
        if source.len() < columns.reach {
            self.copy.clear();
            self.copy.extend_from_slice(source);
            self.copy.resize(columns.reach, 0);
            source = &self.copy;
        }
        let out = &mut self.values[place * self.padded..][..self.padded];
        kernel::sum_columns(isa, source, columns, out);
    }
}
