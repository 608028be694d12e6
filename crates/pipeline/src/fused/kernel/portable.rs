//! The kernels in plain Rust: what the others must equal.

use super::{Image, Path, Range, Taps, sum_at_edge};

/// `sum + value * 64 * weight`, rounded, saturated to 16 bits.
pub(super) fn add_row(sum: i16, value: u8, weight: i16) -> i16 {
    let product = ((i32::from(value) << 6) * i32::from(weight) + (1 << 14)) >> 15;
    (i32::from(sum) + product).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

/// Sums over rows, byte by byte: `sums[i] = sum_j weights[j] * source[j * stride + i]`.
pub(super) fn sum_rows(source: &[u8], stride: usize, weights: &[i16], sums: &mut [i16]) {
    for (j, &weight) in weights.iter().enumerate() {
        let row = &source[j * stride..][..sums.len()];
        sums.iter_mut()
            .zip(row)
            .for_each(|(sum, &value)| *sum = add_row(*sum, value, weight));
    }
}

/// Sums over columns, for each result column of `range`; `column_sums` begins at source column `first`.
pub(super) fn sum_columns(
    column_sums: &[i16],
    columns: &Taps,
    first: i32,
    range: Range<usize>,
    sums: &mut [[i32; 4]],
) {
    for (u, sums) in range.zip(sums) {
        let pixels = column_sums[4 * (columns.starts[u] - first) as usize..]
            .as_chunks::<4>()
            .0;
        *sums = [0; 4];
        for (pixel, &weight) in pixels.iter().zip(columns.wide_of(u)) {
            for (sum, &value) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(value) * i32::from(weight);
            }
        }
    }
}

/// Sums over a window of its own for each result pixel.
pub(super) fn sum_windows(
    image: &Image<'_>,
    columns: &Taps,
    rows: &Taps,
    mut path: Path,
    sums: &mut [[i32; 4]],
) {
    for sums in sums {
        let ((x, column), (y, row)) = (path.x.next(), path.y.next());
        // Within the bounds no edge is repeated, so this is the sum over the window there too.
        *sums = sum_at_edge(image, x, y, columns.of(column), rows.of(row));
    }
}
