//! Divides time into columns, to show a long recording on a screen with its extremes.
//!
//! A sample covers the interval before its tick, so it appears in every column that this interval touches:
//! there are no stripes if columns are narrower than intervals, and there is a gap if nothing was sampled. A
//! column stores the mean, weighted by time, and the smallest and largest value, so that one busy sample in a
//! week remains visible.

/// A range of time, divided into equal columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// Start, unix seconds.
    pub from: f64,
    /// Width of a column, seconds.
    pub column: f64,
    /// The number of columns.
    pub columns: usize,
}

impl Grid {
    /// `from` to `to` in `columns`.
    pub fn new(from: f64, to: f64, columns: usize) -> Self {
        let columns = columns.max(1);
        let column = ((to - from) / columns as f64).max(1e-6);
        Self {
            from,
            column,
            columns,
        }
    }

    /// The columns that the time from `start` to `end` touches, each with its seconds in that column.
    fn touched(self, start: f64, end: f64) -> impl Iterator<Item = (usize, f64)> {
        let (start, end) = ((start - self.from) / self.column, (end - self.from) / self.column);
        // False for NaN, and if the end is before the start.
        let inside = end > 0.0 && start < self.columns as f64 && start <= end;
        let first = start.max(0.0) as usize;
        let last = (end.ceil() as usize).clamp(first + 1, self.columns.max(first + 1));
        let columns = if inside { first..last } else { 0..0 };
        columns.map(move |column| {
            let shared = end.min(column as f64 + 1.0) - start.max(column as f64);
            (column, shared.max(0.0) * self.column)
        })
    }
}

/// The value of a column without data.
pub const GAP: u8 = 255;

/// Percentages by column, each 0 to 100 or [`GAP`].
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// Means over the column's time.
    pub mean: Vec<u8>,
    /// The smallest values.
    pub min: Vec<u8>,
    /// The largest values.
    pub max: Vec<u8>,
}

/// The columns that each sample covers: the same for all series of a node.
pub struct Cover {
    columns: usize,
    parts: Vec<Overlap>,
}

struct Overlap {
    tick: u32,
    column: u32,
    seconds: f32,
}

impl Cover {
    /// The cover of samples taken at `ticks`, strictly ascending, each of which covers the given number of
    /// seconds before it ([`Node::lengths`](stokehold_profile::Node::lengths)).
    pub fn new(grid: Grid, ticks: &[f64], lengths: &[f64]) -> Self {
        let mut parts = Vec::with_capacity(ticks.len() + grid.columns);
        for (tick, (&end, length)) in ticks.iter().zip(lengths).enumerate() {
            parts.extend(grid.touched(end - length, end).map(|(column, seconds)| Overlap {
                tick: tick as u32,
                column: column as u32,
                // Greater than zero, so that there is a mean wherever there is a value.
                seconds: (seconds as f32).max(1e-6),
            }));
        }
        Self {
            columns: grid.columns,
            parts,
        }
    }

    /// Columns for percentages, one value for each tick, NaN for a gap.
    pub fn of(&self, values: &[f32]) -> Columns {
        let mut sums = vec![(0.0f64, 0.0f64, f32::INFINITY, f32::NEG_INFINITY); self.columns];
        for part in &self.parts {
            let value = values.get(part.tick as usize).copied().unwrap_or(f32::NAN);
            if !value.is_nan() {
                let sum = &mut sums[part.column as usize];
                sum.0 += f64::from(part.seconds);
                sum.1 += f64::from(part.seconds) * f64::from(value);
                sum.2 = sum.2.min(value);
                sum.3 = sum.3.max(value);
            }
        }
        let byte = |seconds: f64, value: f64| if seconds > 0.0 { percent(value) } else { GAP };
        Columns {
            // Rounding must not move a mean beyond the extremes.
            mean: sums
                .iter()
                .map(|sum| byte(sum.0, (sum.1 / sum.0).max(sum.2.into()).min(sum.3.into())))
                .collect(),
            min: sums.iter().map(|sum| byte(sum.0, f64::from(sum.2))).collect(),
            max: sums.iter().map(|sum| byte(sum.0, f64::from(sum.3))).collect(),
        }
    }
}

/// The share of each column that lies in the given times, percent. Overlapping times are added up, to at most
/// 100.
pub fn shares(grid: Grid, times: impl Iterator<Item = (f64, f64)>) -> Columns {
    let mut seconds = vec![0.0; grid.columns];
    for (start, end) in times {
        for (column, shared) in grid.touched(start, end) {
            seconds[column] += shared;
        }
    }
    let mean: Vec<u8> = seconds
        .iter()
        .map(|seconds| percent(100.0 * seconds / grid.column))
        .collect();
    Columns {
        min: mean.clone(),
        max: mean.clone(),
        mean,
    }
}

/// A percentage as a whole number.
fn percent(value: f64) -> u8 {
    value.clamp(0.0, 100.0).round() as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sample_tells_of_the_interval_before_it() {
        // Ticks at 1, 2, 3 and, after a gap, 7 s; columns of half a second.
        let grid = Grid::new(0.0, 8.0, 16);
        let cover = Cover::new(grid, &[1.0, 2.0, 3.0, 7.0], &[1.0; 4]);
        let columns = cover.of(&[10.0, 20.0, f32::NAN, 40.0]);
        let g = GAP;
        assert_eq!(
            columns.mean,
            [10, 10, 20, 20, g, g, g, g, g, g, g, g, 40, 40, g, g]
        );
        assert_eq!((&columns.min, &columns.max), (&columns.mean, &columns.mean));
    }

    /// After the interval was changed there are no gaps, and after a pause there is one.
    #[test]
    fn every_sample_has_its_own_length() {
        let grid = Grid::new(0.0, 10.0, 10);
        let ticks = [0.5, 1.0, 4.0, 9.0, 10.0];
        let columns = Cover::new(grid, &ticks, &[0.5, 0.5, 3.0, 1.0, 1.0]).of(&[1.0, 3.0, 5.0, 7.0, 9.0]);
        let g = GAP;
        assert_eq!(columns.mean, [2, 5, 5, 5, g, g, g, g, 7, 9]);
    }

    #[test]
    fn a_wide_column_keeps_mean_and_extremes() {
        let grid = Grid::new(0.0, 4.0, 1);
        let columns = Cover::new(grid, &[1.0, 2.0, 3.0, 4.0], &[1.0; 4]).of(&[0.0, 100.0, 0.0, 20.0]);
        assert_eq!((columns.min[0], columns.mean[0], columns.max[0]), (0, 30, 100));
    }

    #[test]
    fn shares_are_of_the_column() {
        let grid = Grid::new(10.0, 14.0, 4);
        let times = [
            (9.5, 10.5),
            (11.0, 13.0),
            (13.25, 13.5),
            (13.5, 13.75),
            (20.0, 21.0),
            (1.0, 2.0),
        ];
        assert_eq!(shares(grid, times.into_iter()).mean, [50, 100, 100, 50]);
        assert_eq!(
            shares(grid, [(0.0, 99.0), (0.0, 99.0)].into_iter()).mean,
            [100; 4]
        );
        assert_eq!(
            shares(grid, [(12.0, f64::NAN), (13.0, 12.0)].into_iter()).mean,
            [0; 4]
        );
    }

    proptest! {
        /// Whatever the columns, the extremes of the samples are the extremes of the picture.
        #[test]
        fn extremes_stay(
            steps in prop::collection::vec((0.01f64..20.0, 0.0f32..100.0), 2..200),
            columns in 1usize..300,
        ) {
            let mut time = 1e9;
            let (ticks, values): (Vec<f64>, Vec<f32>) = steps
                .iter()
                .map(|(step, value)| { time += step; (time, *value) })
                .unzip();
            let grid = Grid::new(ticks[0] - 0.5, ticks[ticks.len() - 1], columns);
            let got = Cover::new(grid, &ticks, &stokehold_profile::lengths::between(&ticks)).of(&values);
            let known = |column: &&u8| **column != GAP;
            let highest = values.iter().copied().fold(f32::MIN, f32::max).round() as u8;
            let lowest = values.iter().copied().fold(f32::MAX, f32::min).round() as u8;
            prop_assert_eq!(got.max.iter().filter(known).max(), Some(&highest));
            prop_assert_eq!(got.min.iter().filter(known).min(), Some(&lowest));
            for column in 0..columns {
                prop_assert!(got.min[column] <= got.mean[column] && got.mean[column] <= got.max[column]);
                prop_assert_eq!(got.min[column] == GAP, got.max[column] == GAP);
            }
        }
    }
}
