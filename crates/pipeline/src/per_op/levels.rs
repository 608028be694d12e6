//! Levels by table, in Pillow's arithmetic (`ImageOps.py`): 256 entries are computed, and each byte is looked up.

/// A new level for each level.
type Table = [u8; 256];

pub(super) fn inverted() -> Table {
    std::array::from_fn(|level| 255 - level as u8)
}

/// Keeps the highest `bits`, 1..=8.
pub(super) fn posterized(bits: u32) -> Table {
    let mask = u8::MAX << (8 - bits.clamp(1, 8));
    std::array::from_fn(|level| level as u8 & mask)
}

/// Inverts the levels at or above `threshold`.
pub(super) fn solarized(threshold: f64) -> Table {
    let invert = |level: usize| {
        if (level as f64) < threshold {
            level
        } else {
            255 - level
        }
    };
    std::array::from_fn(|level| invert(level) as u8)
}

/// Stretches each channel from its darkest and lightest level to 0..=255.
pub(crate) fn autocontrast<const N: usize>(pixels: &mut [[u8; N]]) {
    look_up(pixels, &histograms(pixels).map(|counts| stretched(&counts)));
}

/// Maps the levels of each channel so that their counts are as even as whole levels allow.
pub(crate) fn equalize<const N: usize>(pixels: &mut [[u8; N]]) {
    look_up(pixels, &histograms(pixels).map(|counts| equalized(&counts)));
}

/// How often each level occurs in red, green and blue.
fn histograms<const N: usize>(pixels: &[[u8; N]]) -> [[u64; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in pixels {
        for (counts, &level) in counts.iter_mut().zip(pixel) {
            counts[usize::from(level)] += 1;
        }
    }
    counts
}

/// Changes red, green and blue by one table; a fourth byte is left alone.
pub(super) fn look_up_each<const N: usize>(pixels: &mut [[u8; N]], table: &Table) {
    for pixel in pixels {
        pixel[..3]
            .iter_mut()
            .for_each(|level| *level = table[usize::from(*level)]);
    }
}

/// Changes red, green and blue by a table each; a fourth byte is left alone.
fn look_up<const N: usize>(pixels: &mut [[u8; N]], tables: &[Table; 3]) {
    for pixel in pixels {
        for (level, table) in pixel.iter_mut().zip(tables) {
            *level = table[usize::from(*level)];
        }
    }
}

fn unchanged() -> Table {
    std::array::from_fn(|level| level as u8)
}

fn stretched(counts: &[u64; 256]) -> Table {
    let used = |&level: &usize| counts[level] > 0;
    let low = (0..256).find(used).unwrap_or(0);
    let high = (0..256).rfind(used).unwrap_or(0);
    if high <= low {
        return unchanged();
    }
    stretch(low, high)
}

/// The table that makes level `low` 0 and level `high`, above it, 255.
pub(crate) fn stretch(low: usize, high: usize) -> Table {
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    std::array::from_fn(|level| (level as f64 * scale + offset).clamp(0.0, 255.0) as u8)
}

fn equalized(counts: &[u64; 256]) -> Table {
    let last = counts.iter().rfind(|&&count| count > 0).copied().unwrap_or(0);
    // A single level leaves nothing, too.
    let step = (counts.iter().sum::<u64>() - last) / 255;
    if step == 0 {
        return unchanged();
    }
    let mut below = step / 2;
    std::array::from_fn(|level| {
        let new = (below / step).min(255) as u8;
        below += counts[level];
        new
    })
}
