//! Pillow's resize of bytes, to the bit: one pass along each axis, whose sums are rounded to bytes.
//!
//! Weights are integers with 22 fractional bits, so sums are exact and their order does not matter. The AVX2 kernels
//! split a weight into `high * 4096 + low`: both parts have 16 bits, and one instruction multiplies and adds two of them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod weights;

use std::collections::TryReserveError;

use stokehold_jpeg::Region;

use crate::image::RgbImage;
use crate::op::Filter;
use weights::{PRECISION, Weights};

impl RgbImage {
    /// The image in another size, as Pillow resizes it: antialiased where it shrinks, unless `filter` is nearest.
    /// `width` and `height` must be at least 1.
    pub fn resize(&self, width: u32, height: u32, filter: Filter) -> RgbImage {
        resize(self, width, height, filter)
    }
}

pub(crate) fn resize(image: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let resize = Resize {
        filter,
        from: (image.width, image.height),
        area: [0.0, 0.0, image.width as f32, image.height as f32],
        to: (width, height),
        order: PassOrder::LargerFirst,
    };
    let plan = resize.plan(Region {
        x: 0,
        y: 0,
        width,
        height,
    });
    let plan = plan.expect("memory for the weights");
    let mut data = vec![0; 3 * width as usize * height as usize];
    if let Some(needs) = plan.needs() {
        let stride = 3 * image.width as usize;
        let rows = Rows {
            data: &image.data[needs.y as usize * stride + 3 * needs.x as usize..],
            stride,
            pixel: 3,
        };
        plan.run(rows, 3, &mut data, &mut Scratch::default())
            .expect("memory for the image between two passes");
    }
    RgbImage { width, height, data }
}

/// Which axis is resized first. It matters because the pixels between the passes are rounded to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassOrder {
    /// Rows, then columns: Pillow before version 13.
    AcrossFirst,
    /// Pillow 13: columns first where the image loses more than twice as many rows as columns.
    LargerFirst,
}

/// Rows of pixels, some bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub data: &'a [u8],
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of a pixel: 1, 3 or 4. The fourth has no meaning.
    pub pixel: usize,
}

/// Buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<Vec<u8>>);

impl Scratch {
    /// `len` bytes of any value.
    pub fn take(&mut self, len: usize) -> Result<Vec<u8>, TryReserveError> {
        let mut buffer = self.0.pop().unwrap_or_default();
        if buffer.len() < len {
            buffer.try_reserve_exact(len - buffer.len())?;
            buffer.resize(len, 0);
        }
        Ok(buffer)
    }

    pub fn give(&mut self, buffer: Vec<u8>) {
        // What one huge image needed is not kept for good.
        if buffer.len() <= 16 << 20 && self.0.len() < 4 {
            self.0.push(buffer);
        }
    }
}

/// The part `area` (left, upper, right, lower) of an image becomes an image of another size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resize {
    pub filter: Filter,
    pub from: (u32, u32),
    pub area: [f32; 4],
    pub to: (u32, u32),
    pub order: PassOrder,
}

/// What one rectangle of the result takes.
pub(crate) enum Plan {
    /// The source column of every column and the source row of every row, counted from those that `needs` begins
    /// with; none is black.
    Nearest {
        columns: Vec<Option<u32>>,
        rows: Vec<Option<u32>>,
        needs: Option<Region>,
    },
    /// One pass or two.
    Passes {
        columns: Option<Box<Weights>>,
        rows: Option<Box<Weights>>,
        needs: Region,
        width: usize,
        down_first: bool,
    },
}

impl Resize {
    /// The plan for one rectangle of the result, which is not empty.
    ///
    /// # Errors
    /// There is no memory for the weights.
    pub fn plan(&self, rect: Region) -> Result<Plan, TryReserveError> {
        let ((iw, ih), (ow, oh), area) = (self.from, self.to, self.area);
        if self.filter == Filter::Nearest {
            let columns = weights::places(area[0], area[2], ow, iw, rect.x, rect.width);
            let rows = weights::places(area[1], area[3], oh, ih, rect.y, rect.height);
            let ends = |found: &[Option<u32>]| {
                let some = || found.iter().flatten().copied();
                Some((some().min()?, some().max()?))
            };
            let Some(((x0, x1), (y0, y1))) = ends(&columns).zip(ends(&rows)) else {
                return Ok(Plan::Nearest {
                    columns,
                    rows,
                    needs: None,
                });
            };
            let from = |found: Vec<Option<u32>>, first| {
                found.into_iter().map(|at| at.map(|at| at - first)).collect()
            };
            return Ok(Plan::Nearest {
                columns: from(columns, x0),
                rows: from(rows, y0),
                needs: Some(Region {
                    x: x0,
                    y: y0,
                    width: x1 - x0 + 1,
                    height: y1 - y0 + 1,
                }),
            });
        }
        // Pillow leaves out a pass that would change nothing.
        let across = ow != iw || area[0] != 0.0 || area[2] != ow as f32;
        let down = oh != ih || area[1] != 0.0 || area[3] != oh as f32;
        let fewer = |from: u32, to: u32| i64::from(from) - i64::from(to);
        let (fewer_rows, fewer_columns) = (fewer(ih, oh), fewer(iw, ow));
        let columns = across.then(|| {
            Weights::new(
                self.filter,
                iw,
                [area[0], area[2]],
                ow,
                rect.x..rect.x + rect.width,
            )
        });
        let columns = columns.transpose()?.map(Box::new);
        let rows = down.then(|| {
            Weights::new(
                self.filter,
                ih,
                [area[1], area[3]],
                oh,
                rect.y..rect.y + rect.height,
            )
        });
        let rows = rows.transpose()?.map(Box::new);
        let (x0, x1) = columns
            .as_ref()
            .map_or((rect.x, rect.x + rect.width), |weights| weights.span());
        let (y0, y1) = rows
            .as_ref()
            .map_or((rect.y, rect.y + rect.height), |weights| weights.span());
        Ok(Plan::Passes {
            columns,
            rows,
            needs: Region {
                x: x0,
                y: y0,
                width: x1 - x0,
                height: y1 - y0,
            },
            width: rect.width as usize,
            down_first: self.order == PassOrder::LargerFirst
                && fewer_rows > 0
                && fewer_rows > 2 * fewer_columns,
        })
    }
}

impl Plan {
    /// The rectangle of the source that counts; none where the result is black.
    pub fn needs(&self) -> Option<Region> {
        match self {
            Plan::Nearest { needs, .. } => *needs,
            Plan::Passes { needs, .. } => Some(*needs),
        }
    }

    /// Whether `run` writes the same pixels as it is given, so that it can be given pixels of any size.
    pub fn keeps_pixels(&self) -> bool {
        match self {
            Plan::Nearest { .. } => true,
            Plan::Passes { columns, .. } => columns.is_none(),
        }
    }

    /// Resizes the rows that [`needs`](Self::needs) names to `out`, with `pixel` bytes for each of its pixels and
    /// without gaps. `pixel` is that of `from`, except that 3 and 4 become each other where there is a pass across
    /// ([`keeps_pixels`](Self::keeps_pixels)); a fourth byte is written as 0.
    ///
    /// # Errors
    /// There is no memory for the pixels between two passes.
    pub fn run(
        &self,
        from: Rows<'_>,
        pixel: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), TryReserveError> {
        match self {
            Plan::Nearest { columns, rows, .. } => match pixel {
                1 => nearest::<1>(from, columns, rows, out),
                3 => nearest::<3>(from, columns, rows, out),
                _ => nearest::<4>(from, columns, rows, out),
            },
            Plan::Passes {
                columns,
                rows,
                needs,
                width,
                down_first,
            } => {
                let row = width * pixel;
                let height = needs.height as usize;
                match (columns, rows) {
                    (Some(columns), Some(rows)) if *down_first => {
                        let wide = needs.width as usize * from.pixel;
                        let mut between = scratch.take(wide * rows.len())?;
                        down(from, wide, rows, needs.y, &mut between[..wide * rows.len()]);
                        let made = Rows {
                            data: &between[..wide * rows.len()],
                            stride: wide,
                            pixel: from.pixel,
                        };
                        across(made, rows.len(), needs.x, columns, pixel, out);
                        scratch.give(between);
                    }
                    (Some(columns), Some(rows)) => {
                        let mut between = scratch.take(row * height)?;
                        across(
                            from,
                            height,
                            needs.x,
                            columns,
                            pixel,
                            &mut between[..row * height],
                        );
                        let made = Rows {
                            data: &between[..row * height],
                            stride: row,
                            pixel,
                        };
                        down(made, row, rows, needs.y, out);
                        scratch.give(between);
                    }
                    (Some(columns), None) => across(from, height, needs.x, columns, pixel, out),
                    (None, Some(rows)) => down(from, row, rows, needs.y, out),
                    (None, None) => {
                        for (y, out) in out.chunks_exact_mut(row).enumerate() {
                            out.copy_from_slice(&from.data[y * from.stride..][..row]);
                        }
                    }
                }
                if pixel == 4 && columns.is_none() {
                    out.as_chunks_mut::<4>()
                        .0
                        .iter_mut()
                        .for_each(|pixel| pixel[3] = 0);
                }
            }
        }
        Ok(())
    }
}

fn nearest<const N: usize>(from: Rows<'_>, columns: &[Option<u32>], rows: &[Option<u32>], out: &mut [u8]) {
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(N * columns.len())) {
        let Some(row) = row else {
            out.fill(0);
            continue;
        };
        let row = &from.data[*row as usize * from.stride..];
        for (column, out) in columns.iter().zip(out.as_chunks_mut::<N>().0) {
            *out = column.map_or([0; N], |x| {
                let at = N * x as usize;
                std::array::from_fn(|c| row[at + c])
            });
        }
    }
}

fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// Half of a weight's unit: sums are rounded.
const HALF: i32 = 1 << (PRECISION - 1);

/// Whether the processor has what the kernels need: AVX2 or NEON.
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("neon");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// Resizes along rows. The columns of `from` begin with column `left` of those that the weights count.
fn across(from: Rows<'_>, height: usize, left: u32, weights: &Weights, pixel: usize, out: &mut [u8]) {
    let row = weights.len() * pixel;
    let wide = if has_vectors() && from.pixel != 1 {
        wide_rows(from, height, left, weights)
    } else {
        0
    };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if wide > 0 {
        #[cfg(target_arch = "x86_64")]
        use avx2 as kernel;
        #[cfg(target_arch = "aarch64")]
        use neon as kernel;
        // SAFETY: the processor has AVX2 or NEON, and `wide_rows` has found the rows whose vectors lie within `from`.
        unsafe {
            match (from.pixel, pixel) {
                (3, 3) => kernel::across::<3, 3>(from, wide, left, weights, out),
                (3, 4) => kernel::across::<3, 4>(from, wide, left, weights, out),
                (4, 3) => kernel::across::<4, 3>(from, wide, left, weights, out),
                _ => kernel::across::<4, 4>(from, wide, left, weights, out),
            }
        }
    }
    for (y, out) in out.chunks_exact_mut(row).enumerate().take(height).skip(wide) {
        let line = &from.data[y * from.stride..];
        match (from.pixel, pixel) {
            (1, _) => across_row::<1, 1, 1>(line, left, weights, out),
            (3, 3) => across_row::<3, 3, 3>(line, left, weights, out),
            (3, _) => across_row::<3, 3, 4>(line, left, weights, out),
            (_, 3) => across_row::<3, 4, 3>(line, left, weights, out),
            (_, _) => across_row::<3, 4, 4>(line, left, weights, out),
        }
    }
}

/// How many rows, from the first one, may be read in whole vectors.
fn wide_rows(from: Rows<'_>, height: usize, left: u32, weights: &Weights) -> usize {
    let reach = (0..weights.len()).map(|at| {
        let groups = weights.counts[at].div_ceil(4).max(1) as usize;
        (weights.starts[at] - left) as usize * from.pixel + (groups - 1) * 4 * from.pixel + 16
    });
    match from.data.len().checked_sub(reach.max().unwrap_or(0)) {
        Some(behind) if from.stride > 0 => height.min(behind / from.stride + 1),
        _ => 0,
    }
}

/// One row in `C` channels, from pixels of `FROM` bytes to pixels of `TO` bytes.
fn across_row<const C: usize, const FROM: usize, const TO: usize>(
    line: &[u8],
    left: u32,
    weights: &Weights,
    out: &mut [u8],
) {
    for (at, out) in out.as_chunks_mut::<TO>().0.iter_mut().enumerate() {
        let start = (weights.starts[at] - left) as usize * FROM;
        let mut sums = [HALF; C];
        for (pixel, weight) in line[start..].as_chunks::<FROM>().0.iter().zip(weights.of(at)) {
            for c in 0..C {
                sums[c] = sums[c].wrapping_add(i32::from(pixel[c]) * weight);
            }
        }
        *out = std::array::from_fn(|c| if c < C { to_byte(sums[c]) } else { 0 });
    }
}

/// Resizes along columns, byte by byte: each row of `row` bytes of `out`. The rows of `from` begin with row `top` of
/// those that the weights count.
fn down(from: Rows<'_>, row: usize, weights: &Weights, top: u32, out: &mut [u8]) {
    for (at, out) in out.chunks_exact_mut(row).take(weights.len()).enumerate() {
        let lines = &from.data[(weights.starts[at] - top) as usize * from.stride..];
        let own = weights.of(at);
        // Checks once what the kernel relies on.
        let lines =
            &lines[..own.len().saturating_sub(1) * from.stride + if own.is_empty() { 0 } else { row }];
        let mut done = 0;
        if has_vectors() {
            // SAFETY: the processor has AVX2 or NEON, and `lines` holds a row of `row` bytes for every weight.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                done = avx2::down(lines, from.stride, weights, at, out);
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                done = neon::down(lines, from.stride, own, out);
            }
        }
        for x in done..row {
            let sum = own.iter().enumerate().fold(HALF, |sum, (tap, weight)| {
                sum.wrapping_add(i32::from(lines[tap * from.stride + x]) * weight)
            });
            out[x] = to_byte(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 12345u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// The passes, sum by sum.
    fn by_hand(plan: &Plan, from: Rows<'_>, pixel: usize) -> Vec<u8> {
        let Plan::Passes {
            columns,
            rows,
            needs,
            width,
            down_first,
        } = plan
        else {
            panic!("a nearest pixel has no passes")
        };
        let channels = pixel.min(3);
        let mut image: Vec<Vec<Vec<u8>>> = (0..needs.height as usize)
            .map(|y| {
                let pixel = |x: usize| from.data[y * from.stride + x * from.pixel..][..channels].to_vec();
                (0..needs.width as usize).map(pixel).collect()
            })
            .collect();
        let sum = |weights: &Weights, at: usize, of: &dyn Fn(usize) -> u8| {
            let own = weights.of(at).iter().enumerate();
            let sum: i64 = own
                .map(|(tap, &weight)| i64::from(weight) * i64::from(of(tap)))
                .sum();
            ((sum + i64::from(HALF)) >> PRECISION).clamp(0, 255) as u8
        };
        for down in [*down_first, !*down_first] {
            match (down, columns, rows) {
                (false, Some(columns), _) => {
                    let place = |row: &Vec<Vec<u8>>, at: usize| {
                        let start = (columns.starts[at] - needs.x) as usize;
                        (0..channels)
                            .map(|c| sum(columns, at, &|tap| row[start + tap][c]))
                            .collect()
                    };
                    image = image
                        .iter()
                        .map(|row| (0..columns.len()).map(|at| place(row, at)).collect())
                        .collect();
                }
                (true, _, Some(rows)) => {
                    let wide = image[0].len();
                    let place = |at: usize, x: usize| {
                        let start = (rows.starts[at] - needs.y) as usize;
                        (0..channels)
                            .map(|c| sum(rows, at, &|tap| image[start + tap][x][c]))
                            .collect()
                    };
                    image = (0..rows.len())
                        .map(|at| (0..wide).map(|x| place(at, x)).collect())
                        .collect();
                }
                _ => {}
            }
        }
        assert_eq!(image[0].len(), *width);
        let mut out = Vec::new();
        for one in image.iter().flatten() {
            out.extend_from_slice(one);
            out.resize(out.len() + pixel - channels, 0);
        }
        out
    }

    /// Vectors, rows that are read byte by byte, and both orders of the passes make the same bytes.
    #[test]
    fn kernels_sum_what_the_weights_say() {
        use Filter::*;
        let filters = [Lanczos, Bilinear, Bicubic, Box, Hamming];
        let (wide, high) = (61u32, 47u32);
        let mut cases = 0;
        for (pixel, to) in [(1, 1), (3, 3), (3, 4), (4, 3), (4, 4)] {
            let stride = wide as usize * pixel + 5;
            let data = bytes(stride * high as usize);
            for (number, size) in [(30, 20), (100, 47), (61, 90), (7, 3), (1, 1), (60, 3), (200, 150)]
                .into_iter()
                .enumerate()
            {
                let filter = filters[number % filters.len()];
                for area in [[0.0, 0.0, 61.0, 47.0], [3.25, 1.5, 58.0, 40.75]] {
                    for order in [PassOrder::AcrossFirst, PassOrder::LargerFirst] {
                        let resize = Resize {
                            filter,
                            from: (wide, high),
                            area,
                            to: size,
                            order,
                        };
                        let rect = Region {
                            x: size.0 / 3,
                            y: size.1 / 4,
                            width: size.0 - size.0 / 3,
                            height: size.1 - size.1 / 4,
                        };
                        let plan = resize.plan(rect).unwrap();
                        if plan.keeps_pixels() && pixel != to {
                            continue;
                        }
                        let needs = plan.needs().unwrap();
                        let from = Rows {
                            data: &data[needs.y as usize * stride + needs.x as usize * pixel..],
                            stride,
                            pixel,
                        };
                        let mut out = vec![7; to * (rect.width * rect.height) as usize];
                        plan.run(from, to, &mut out, &mut Scratch::default()).unwrap();
                        assert!(out == by_hand(&plan, from, to), "{pixel} to {to}, {resize:?}");
                        cases += 1;
                    }
                }
            }
        }
        assert!(cases > 100, "{cases}");
    }
}
