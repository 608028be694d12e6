//! The buffer of words with all parameters of the kernels. The kernels' modules define the layout.

use crate::kernels::windows::{AXIS, PLACE, RATIO, TABLE};
use crate::layout::Grid;
use stokehold_pipeline::{
    BilinearAxis, DeviceWork, Pointwise, Resample, ResampleMap, TurnedAxis, UprightAxis,
};

/// Words of a batch.
#[derive(Debug, Default)]
pub(crate) struct Words(pub Vec<u32>);

impl Words {
    /// The place of the next word.
    pub fn here(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn copy(&mut self, words: &[u32]) {
        self.0.extend_from_slice(words);
    }

    /// Adds records, and returns where they begin.
    pub fn records<const N: usize>(&mut self, records: &[[u32; N]]) -> u32 {
        let here = self.here();
        self.copy(records.as_flattened());
        here
    }

    /// Adds bytes, four a word with the first in the lowest place, padded with zeros.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (fours, rest) = bytes.as_chunks();
        self.extend(fours.iter().copied().map(u32::from_le_bytes));
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.push(u32::from_le_bytes(last));
    }

    pub fn push(&mut self, word: u32) {
        self.0.push(word);
    }

    pub fn float(&mut self, value: f32) {
        self.0.push(value.to_bits());
    }

    pub fn extend(&mut self, words: impl IntoIterator<Item = u32>) {
        self.0.extend(words);
    }

    fn weights(&mut self, weights: &[i16]) {
        self.extend(weights.iter().map(|&weight| i32::from(weight) as u32));
    }

    fn long(&mut self, value: i64) {
        self.extend(halves(value));
    }
}

/// The two words of a number, the low one first.
fn halves(value: i64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The program of a stage, before its place is known.
#[derive(Debug)]
pub(crate) struct Program {
    /// Places count from the first word.
    words: Vec<u32>,
    /// The axes of upright resampling, whose tables are not placed yet. In the words are their numbers.
    axes: Vec<[u32; AXIS as usize]>,
}

/// Where the tables of each channel across and down are in a program.
const TABLES: std::ops::Range<usize> = 4..10;

impl Program {
    /// The number of words that it takes in a batch, its axes included.
    pub fn len_in_batch(&self) -> usize {
        self.words.len() + self.axes.as_flattened().len()
    }

    /// Adds the program to the words, and its axes to `axes`. Tables are placed among the pixels, of which `pixels` are taken.
    /// Returns its place.
    pub fn place(&self, words: &mut Words, axes: &mut Grid<{ AXIS as usize }>, pixels: &mut u64) -> u32 {
        let here = words.here();
        words.copy(&self.words);
        let places = self.axes.iter().map(|axis| {
            let (mut axis, place) = (*axis, *pixels as u32);
            let [_, positions, taps, ..] = axis;
            axis[PLACE as usize] = place;
            if axis[RATIO as usize] == 0 {
                axis[TABLE as usize] += here;
            }
            axes.push(axis, positions, 1);
            *pixels += 2 + u64::from(positions) * (1 + u64::from(taps));
            place
        });
        let places: Vec<u32> = places.collect();
        if !places.is_empty() {
            for number in &mut words.0[here as usize..][TABLES] {
                *number = places[*number as usize];
            }
        }
        here
    }
}

/// The program of a stage.
pub(crate) fn program(work: &DeviceWork, points: &[Pointwise], height: u32) -> Program {
    let (mut words, mut axes) = (Words::default(), Vec::new());
    match work {
        DeviceWork::Resample(resample) => axes = resampling(&mut words, resample, points, height),
        DeviceWork::Contrast { .. }
        | DeviceWork::Levels { .. }
        | DeviceWork::Sharpen { .. }
        | DeviceWork::Dilate { .. } => self::points(&mut words, points),
        DeviceWork::Blur { across, down } => {
            self::points(&mut words, points);
            across.iter().chain(down).for_each(|&weight| words.float(weight));
        }
    }
    let places = place_of_points(work, &words) as usize;
    for (number, point) in points.iter().enumerate() {
        if let Pointwise::Levels { table } = point {
            // From its word, so that the program can lie anywhere.
            let word = places + 2 * number + 1;
            words.0[word] = words.here() - word as u32;
            words.extend(table.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)));
        }
    }
    let words = words.0;
    Program { words, axes }
}

/// Where a program's point operations begin.
fn place_of_points(work: &DeviceWork, words: &Words) -> u32 {
    match work {
        DeviceWork::Resample(_) => words.0[3],
        _ => 0,
    }
}

fn points(words: &mut Words, points: &[Pointwise]) {
    for point in points {
        match *point {
            Pointwise::Brightness { factor } => words.extend([0, factor.to_bits()]),
            Pointwise::Saturation { factor } => words.extend([1, factor.to_bits()]),
            Pointwise::Hue { shift } => words.extend([2, shift.into()]),
            Pointwise::Grayscale => words.extend([3, 0]),
            // A plan has contrast as a stage, because the mean is not known before.
            Pointwise::Contrast { .. } => {}
            Pointwise::Levels { .. } => words.extend([4, 0]),
            Pointwise::Permute { channels: [r, g, b] } => {
                words.extend([5, u32::from_le_bytes([r, g, b, 0])]);
            }
        }
    }
}

/// Returns the axes of an upright one.
fn resampling(
    words: &mut Words,
    resample: &Resample,
    points: &[Pointwise],
    height: u32,
) -> Vec<[u32; AXIS as usize]> {
    let Resample { map, fills, inside } = resample;
    words.extend([fills.len() as u32, 0, points.len() as u32, 0]);
    words.extend([0; 6]);
    words.0[1] = words.here();
    let rows = height as usize;
    for (fill, inside) in fills.iter().zip(inside.chunks_exact(rows)) {
        let [r, g, b] = fill.map(u32::from);
        words.push(r | g << 8 | b << 16);
        words.extend(inside.iter().flat_map(|&(from, to)| [from, to]));
    }
    words.0[3] = words.here();
    self::points(words, points);
    match map {
        ResampleMap::Upright(tables) => {
            let down = tables.across.len();
            let numbers = tables.across_of.into_iter();
            let numbers = numbers.chain(tables.down_of.map(|number| down + number));
            for (word, number) in words.0[TABLES].iter_mut().zip(numbers) {
                *word = number as u32;
            }
            let axes = tables.across.iter().chain(&tables.down);
            return axes.map(|axis| upright_axis(words, axis)).collect();
        }
        ResampleMap::Turned(tables) => {
            words.0[4] = turned_axis(words, &tables.across);
            words.0[5] = turned_axis(words, &tables.down);
            words.0[6] = height;
            words.0[7] = words.here();
            let last = inside.chunks_exact(rows).last();
            words.extend((0..rows).map(|v| last.map_or(0, |inside| inside[v].0)));
        }
    }
    Vec::new()
}

/// The words of an axis; a table that the CPU found is added to those of the program.
fn upright_axis(words: &mut Words, axis: &UprightAxis) -> [u32; AXIS as usize] {
    let mut record = [0; AXIS as usize];
    match axis {
        UprightAxis::Taps(taps) => {
            record[1..=TABLE as usize].copy_from_slice(&[
                taps.starts.len() as u32,
                taps.taps as u32,
                0,
                words.here(),
            ]);
            words.copy(&taps.starts);
            words.weights(&taps.weights);
        }
        UprightAxis::Bilinear(axis) => {
            let BilinearAxis {
                grid,
                ratio,
                origin,
                samples,
                bits,
            } = *axis;
            let [slope, start] = [grid.slope, grid.start].map(halves);
            record[1..].copy_from_slice(&[
                grid.count,
                axis.taps(),
                ratio,
                slope[0],
                slope[1],
                start[0],
                start[1],
                grid.support,
                grid.low,
                grid.high,
                grid.most(),
                origin,
                samples,
                bits,
            ]);
        }
    }
    record
}

fn turned_axis(words: &mut Words, axis: &TurnedAxis) -> u32 {
    let here = words.here();
    words.extend([axis.taps as u32, axis.least as u32, axis.most as u32]);
    words.long(axis.slope);
    words.extend(axis.steps.map(|step| step as u32));
    axis.start.iter().for_each(|&start| words.long(start));
    words.weights(&axis.weights);
    here
}

#[cfg(test)]
mod tests {
    use super::*;
    use cubecl::prelude::*;
    use proptest::prelude::*;
    use stokehold_pipeline::{Taps, Triangle, UprightTables};

    /// Bilinear axes with every kind of chroma, that shrink and grow, mirrored, and partly outside of their source.
    fn bilinear_axes() -> impl Strategy<Value = BilinearAxis> {
        let scale = prop_oneof![0.01f64..4.0, 0.01f64..64.0, (1u32..64).prop_map(f64::from)];
        let sizes = (0u32..500, 1u32..700, 1u32..300);
        let bits = prop_oneof![Just(13u32), Just(15)];
        let offset = prop_oneof![-100.0f64..100.0, -900_000.0f64..900_000.0];
        (scale, offset, any::<bool>(), sizes, 1u32..5, bits).prop_map(
            |(scale, offset, mirrored, (low, places, count), ratio, bits)| {
                let fixed = |number: f64| (number * (1u64 << 40) as f64) as i64;
                let high = low + places;
                BilinearAxis {
                    grid: Triangle {
                        slope: fixed(if mirrored { -scale } else { scale }),
                        start: fixed(offset + f64::from(if mirrored { high } else { low })),
                        support: (scale.max(1.0) * 65536.0) as u32,
                        count,
                        low,
                        high,
                    },
                    ratio,
                    origin: low / ratio,
                    samples: high.div_ceil(ratio) - low / ratio,
                    bits,
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 8, ..ProptestConfig::default() })]

        #[test]
        fn every_window_is_found_as_the_cpu_finds_it(axes in prop::collection::vec((bilinear_axes(), any::<bool>()), 30)) {
            let Some(gpu) = crate::tested::gpu() else { return Ok(()) };
            let (mut words, mut grid, mut pixels) = (Words(vec![7; 5]), Grid::default(), 3);
            let mut expected = Vec::new();
            for (axis, by_cpu) in axes {
                let taps = axis.find();
                let axis = match by_cpu {
                    true => UprightAxis::Taps(taps.clone()),
                    false => UprightAxis::Bilinear(axis),
                };
                let resample = Resample {
                    map: ResampleMap::Upright(UprightTables {
                        across: vec![axis.clone()],
                        down: vec![axis],
                        across_of: [0; 3],
                        down_of: [0; 3],
                    }),
                    fills: Vec::new(),
                    inside: Vec::new(),
                };
                let work = DeviceWork::Resample(Box::new(resample));
                let place = program(&work, &[], 1).place(&mut words, &mut grid, &mut pixels);
                for table in [4, 7] {
                    expected.push((words.0[place as usize + table], taps.clone()));
                }
            }
            let axes = grid.place(&mut words);
            // What is left in memory of others is not 0.
            let buffer = gpu.create(vec![u32::MAX; pixels as usize]);
            gpu.find_windows(&gpu.create(words.0), &axes, &buffer).expect("a launch");
            let made = gpu.read(&buffer).expect("the device works");
            let made = u32::from_bytes(&made);
            prop_assert_eq!(&made[..3], &[u32::MAX; 3]);
            for (place, Taps { starts, weights, taps }) in expected {
                let table = &made[place as usize..][..2 + starts.len() + weights.len()];
                prop_assert_eq!(&table[..2], &[taps as u32, starts.len() as u32]);
                let (own, rest) = table[2..].split_at(starts.len());
                prop_assert_eq!(own, &starts[..]);
                let weights: Vec<u32> = weights.iter().map(|&weight| weight as u32).collect();
                prop_assert_eq!(rest, &weights[..]);
            }
        }
    }
}
