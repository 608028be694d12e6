//! The buffer of words with all parameters of the kernels. The kernels' modules define the layout.

use stokehold_pipeline::{DeviceWork, Pointwise, Resample, ResampleMap, Taps, TurnedAxis};

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
        self.extend([value as u32, (value >> 32) as u32]);
    }
}

/// The program of a stage; places count from its first word.
pub(crate) fn program(work: &DeviceWork, points: &[Pointwise], height: u32) -> Vec<u32> {
    let mut words = Words::default();
    match work {
        DeviceWork::Resample(resample) => resampling(&mut words, resample, points, height),
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
    words.0
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

fn resampling(words: &mut Words, resample: &Resample, points: &[Pointwise], height: u32) {
    let Resample { map, fills, inside } = resample;
    if let ResampleMap::Upright(tables) = map {
        let taps = tables.across.iter().chain(&tables.down);
        let of_taps: usize = taps.map(|taps| 2 + taps.starts.len() + taps.weights.len()).sum();
        words
            .0
            .reserve(10 + fills.len() + 2 * inside.len() + 2 * points.len() + of_taps);
    }
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
            let across: Vec<u32> = tables.across.iter().map(|taps| axis(words, taps)).collect();
            let down: Vec<u32> = tables.down.iter().map(|taps| axis(words, taps)).collect();
            for c in 0..3 {
                words.0[4 + c] = across[tables.across_of[c]];
                words.0[7 + c] = down[tables.down_of[c]];
            }
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
}

fn axis(words: &mut Words, taps: &Taps) -> u32 {
    let here = words.here();
    words.extend([taps.taps as u32, taps.starts.len() as u32]);
    words.extend(taps.starts.iter().copied());
    words.weights(&taps.weights);
    here
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
