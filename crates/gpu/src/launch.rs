//! The launches of a batch that has been laid out. Their number does not depend on the number of images.

use crate::client::Gpu;
use crate::coefficients::Coefficients;
use crate::kernels::gather::ResampleMethod;
use crate::kernels::{colour, decode, gather, surroundings, windows};
use crate::layout::{Grid, Launches};
use crate::queue::Buffer;
use crate::words::Words;
use cubecl::prelude::*;
use cubecl::server::ServerError;

/// The most records, or images, in one dimension of a launch.
pub(crate) const MOST_COUNTED: usize = 65535;

impl Gpu {
    /// Unpacks blocks.
    pub(crate) fn unpack(&self, words: &Buffer, coefficients: &Coefficients) -> Result<(), ServerError> {
        for (table, count) in countable::<{ decode::RECORD }>(coefficients.records, coefficients.packed) {
            decode::unpack::launch(
                &self.client,
                CubeCount::Static(coefficients.most.div_ceil(decode::UNPACKED), count, 1),
                CubeDim::new_1d(64 * decode::UNPACKED),
                words.arg(),
                coefficients.blocks.arg(),
                table,
            );
            self.check(&coefficients.blocks)?;
        }
        Ok(())
    }

    /// Computes the samples of all blocks.
    pub(crate) fn transform(
        &self,
        words: &Buffer,
        coefficients: &Coefficients,
        planes: &Buffer,
    ) -> Result<(), ServerError> {
        for (table, count) in countable::<{ decode::RECORD }>(coefficients.records, coefficients.count) {
            decode::transform::launch(
                &self.client,
                CubeCount::Static(coefficients.most.div_ceil(decode::TRANSFORMED), count, 1),
                CubeDim::new_1d(decode::TRANSFORMED),
                words.arg(),
                coefficients.blocks.arg(),
                planes.arg(),
                table,
            );
            self.check(planes)?;
        }
        Ok(())
    }

    /// Finds the windows of upright resampling.
    pub(crate) fn find_windows(
        &self,
        words: &Buffer,
        axes: &PlacedGrid,
        pixels: &Buffer,
    ) -> Result<(), ServerError> {
        let [positions, _, count] = axes.size;
        for (table, count) in countable::<{ windows::AXIS }>(axes.records, count) {
            windows::windows::launch(
                &self.client,
                CubeCount::Static(positions.div_ceil(windows::POSITIONS), count, 1),
                CubeDim::new_1d(windows::POSITIONS),
                words.arg(),
                pixels.arg(),
                table,
            );
            self.check(pixels)?;
        }
        Ok(())
    }
}

/// Splits records of `N` words into ranges that fit one dimension of a launch: the place and the length of each.
fn countable<const N: u32>(table: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let firsts = (0..count).step_by(MOST_COUNTED);
    firsts.map(move |first| (table + N * first, (count - first).min(MOST_COUNTED as u32)))
}

/// [`Launches`] whose records have been placed among the words.
pub(crate) struct Placed {
    resample: [PlacedGrid; 3],
    means: u32,
    contrast: PlacedGrid,
    counts: u32,
    levels: PlacedGrid,
    blur: PlacedGrid,
    blur_down: u32,
    dilate: PlacedGrid,
    sharpen: PlacedGrid,
}

/// The place of a [`Grid`]'s records, and the size of a launch: the largest width and height, and the number
/// of images.
pub(crate) struct PlacedGrid {
    records: u32,
    size: [u32; 3],
}

impl<const N: usize> Grid<N> {
    pub fn place(&self, words: &mut Words) -> PlacedGrid {
        PlacedGrid {
            records: words.records(&self.records),
            size: [self.width, self.height, self.records.len() as u32],
        }
    }
}

impl Launches {
    /// Places the records.
    pub fn place(self, words: &mut Words) -> Placed {
        Placed {
            resample: self.resample.map(|grid| grid.place(words)),
            means: words.records(&self.means),
            contrast: self.contrast.place(words),
            counts: words.records(&self.counts),
            levels: self.levels.place(words),
            blur: self.blur.place(words),
            blur_down: words.records(&self.blur_down),
            dilate: self.dilate.place(words),
            sharpen: self.sharpen.place(words),
        }
    }
}

impl Placed {
    /// Queues the stage's launches: `words` are the batch's, and `pixels` are read and written.
    pub fn launch(
        &self,
        gpu: &Gpu,
        words: &Buffer,
        planes: &Buffer,
        pixels: &Buffer,
    ) -> Result<(), ServerError> {
        let (client, hues) = (&gpu.client, || gpu.tables.hues.arg());
        let tile = CubeDim::new_2d(gather::TILE, gather::TILE);
        let tiles = |[width, height, count]: [u32; 3]| {
            CubeCount::Static(width.div_ceil(gather::TILE), height.div_ceil(gather::TILE), count)
        };
        // Over the pixels of each image, one after the other.
        let along = |[pixels, _, images]: [u32; 3]| {
            let cubes = pixels.div_ceil(colour::SUMMING).min(colour::MOST_CUBES);
            CubeCount::Static(cubes, images, 1)
        };
        // A 0 that the kernels' compiler does not know to be 0.
        let zero = 0;
        // CubeCL skips a launch of size zero.
        for (method, grid) in ResampleMethod::ALL.into_iter().zip(&self.resample) {
            gather::resample::launch(
                client,
                tiles(grid.size),
                tile,
                words.arg(),
                planes.arg(),
                hues(),
                pixels.arg(),
                grid.records,
                zero,
                method,
            );
            gpu.check(pixels)?;
        }
        let [_, _, images] = self.contrast.size;
        let dim = CubeDim::new_1d(colour::SUMMING);
        colour::sums::launch(
            client,
            CubeCount::Static(images, 1, 1),
            dim,
            words.arg(),
            pixels.arg(),
            self.means,
        );
        gpu.check(pixels)?;
        colour::mean::launch(
            client,
            CubeCount::Static(images.div_ceil(32), 1, 1),
            CubeDim::new_1d(32),
            words.arg(),
            pixels.arg(),
            self.means,
            images,
        );
        gpu.check(pixels)?;
        colour::contrast::launch(
            client,
            along(self.contrast.size),
            dim,
            words.arg(),
            hues(),
            pixels.arg(),
            self.contrast.records,
            zero,
        );
        gpu.check(pixels)?;
        let [_, _, images] = self.levels.size;
        colour::count::launch(
            client,
            CubeCount::Static(images, 1, 1),
            CubeDim::new_1d(colour::COUNTING),
            words.arg(),
            pixels.arg(),
            self.counts,
        );
        gpu.check(pixels)?;
        colour::tables::launch(
            client,
            CubeCount::Static((3 * images).div_ceil(32), 1, 1),
            CubeDim::new_1d(32),
            words.arg(),
            hues(),
            pixels.arg(),
            self.counts,
            images,
        );
        gpu.check(pixels)?;
        colour::look_up::launch(
            client,
            along(self.levels.size),
            dim,
            words.arg(),
            hues(),
            pixels.arg(),
            self.levels.records,
            zero,
        );
        gpu.check(pixels)?;
        surroundings::blur_across::launch(
            client,
            tiles(self.blur.size),
            tile,
            words.arg(),
            pixels.arg(),
            self.blur.records,
            zero,
        );
        gpu.check(pixels)?;
        macro_rules! surroundings {
            ($kernel:ident, $size:expr, $records:expr) => {
                surroundings::$kernel::launch(
                    client,
                    tiles($size),
                    tile,
                    words.arg(),
                    hues(),
                    pixels.arg(),
                    $records,
                    zero,
                )
            };
        }
        surroundings!(blur_down, self.blur.size, self.blur_down);
        gpu.check(pixels)?;
        surroundings!(dilate, self.dilate.size, self.dilate.records);
        gpu.check(pixels)?;
        surroundings!(sharpen, self.sharpen.size, self.sharpen.records);
        gpu.check(pixels)
    }
}
