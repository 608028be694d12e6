//! A component's grid of samples at a scale, and how it comes to the image's resolution.

use crate::frame::{Component, Frame};
use crate::{Error, Scale};

/// How a component comes to the image's resolution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// It has it.
    #[default]
    None,
    /// Interpolated to twice the width.
    H2,
    /// Interpolated to twice the height.
    V2,
    /// Interpolated to twice both.
    H2V2,
    /// Repeated.
    Repeat,
}

impl Upsampling {
    /// Samples it looks at beside the one in whose place a pixel lies: 1 or 0, across and down.
    pub fn reach(self) -> (usize, usize) {
        match self {
            Upsampling::None | Upsampling::Repeat => (0, 0),
            Upsampling::H2 => (1, 0),
            Upsampling::V2 => (0, 1),
            Upsampling::H2V2 => (1, 1),
        }
    }
}

/// The samples of one component of the scaled image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Grid {
    /// Samples along a side of a block.
    pub side: usize,
    /// Samples a row and rows of samples.
    pub width: usize,
    pub height: usize,
    /// Pixels of the scaled image along a sample, across and down.
    pub across: usize,
    pub down: usize,
    pub upsampling: Upsampling,
}

impl Grid {
    /// The grid that libjpeg gives `component` (jdmaster.c, and jdsample.c for the upsampling).
    pub fn of(component: &Component, frame: &Frame, scale: Scale) -> Result<Grid, Error> {
        let Component { h, v, .. } = *component;
        if !frame.h_max.is_multiple_of(h) || !frame.v_max.is_multiple_of(v) {
            let what = format!(
                "a component sampled {h}x{v} among {}x{}",
                frame.h_max, frame.v_max
            );
            return Err(Error::Unsupported(what));
        }
        // The coarser component is scaled down less, as long as it is not finer than the image then.
        let (mut side, mut across, mut down) = (scale.side(), frame.h_max / h, frame.v_max / v);
        while side < 8 && across.is_multiple_of(2) && down.is_multiple_of(2) {
            (side, across, down) = (2 * side, across / 2, down / 2);
        }
        let samples =
            |size: usize, factor: usize, largest: usize| (size * factor * side).div_ceil(8 * largest);
        let width = samples(frame.width, h, frame.h_max);
        let upsampling = match (across, down) {
            (1, 1) => Upsampling::None,
            _ if scale == Scale::Eighth => Upsampling::Repeat,
            (2, 1) if width > 2 => Upsampling::H2,
            (1, 2) => Upsampling::V2,
            (2, 2) if width > 2 => Upsampling::H2V2,
            _ => Upsampling::Repeat,
        };
        Ok(Grid {
            side,
            width,
            height: samples(frame.height, v, frame.v_max),
            across,
            down,
            upsampling,
        })
    }
}
