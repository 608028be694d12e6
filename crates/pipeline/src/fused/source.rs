//! What a plan starts from: pixels, or the channels that a JPEG holds before its colours are made.

use stokehold_jpeg::{ColorModel, Pixels, Planes as JpegPlanes, Region, Scale};

/// Bytes after a plane's last sample that kernels may read; they mean nothing.
const SLACK: usize = 64;

/// The decoded region of an image.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Pixels(Rgbx<'a>),
    /// Only for plans that [want planes](super::Plan::wants_planes).
    Planes(Planes<'a>),
}

/// Pixels of four bytes, of which the last means nothing.
#[derive(Clone, Copy)]
pub(crate) struct Rgbx<'a> {
    /// The pixels; what is behind them means nothing.
    pub data: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    pub width: u32,
    pub height: u32,
    /// Where the region begins, in pixels as large as these.
    pub x: u32,
    pub y: u32,
    /// Pixels of the image along one of these.
    pub pixels: u32,
}

impl<'a> Rgbx<'a> {
    /// A whole image.
    pub fn whole(data: &'a [u8], width: u32, height: u32) -> Rgbx<'a> {
        Rgbx {
            data,
            stride: 4 * width as usize,
            width,
            height,
            x: 0,
            y: 0,
            pixels: 1,
        }
    }

    /// What a JPEG was decoded to.
    pub fn of(pixels: &Pixels<'a>, region: Region, scale: Scale) -> Rgbx<'a> {
        let factor = scale.factor();
        Rgbx {
            data: pixels.with_slack(),
            stride: pixels.stride,
            width: pixels.width,
            height: pixels.height,
            x: region.x / factor,
            y: region.y / factor,
            pixels: factor,
        }
    }

    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.clear();
        for y in 0..self.height as usize {
            out.extend_from_slice(&self.data[y * self.stride..][..4 * self.width as usize]);
        }
    }
}

/// Three channels and what they mean.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'a> {
    pub channels: [Plane<'a>; 3],
    pub color: Color,
}

/// What three channels mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    /// Red, green and blue. Of a grey image all three are the same plane.
    Rgb,
    /// Luminance and two of chrominance, as JFIF defines them.
    YCbCr,
}

/// One channel.
#[derive(Clone, Copy)]
pub(crate) struct Plane<'a> {
    /// From the first sample on.
    pub data: &'a [u8],
    pub stride: usize,
    pub x: Side,
    pub y: Side,
}

/// How a plane's samples lie along one side of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    /// The first sample's place among all samples of the channel.
    pub first: u32,
    /// Samples that are there.
    pub count: u32,
    /// Image pixels that a sample spans.
    pub pixels: u32,
}

impl<'a> Planes<'a> {
    /// The planes of a JPEG of one or three components.
    pub fn of(jpeg: &JpegPlanes<'a>) -> Planes<'a> {
        let plane = |i: usize| {
            let plane = &jpeg.planes()[i];
            Plane {
                data: plane.data,
                stride: plane.stride,
                x: Side {
                    first: plane.x,
                    count: plane.width,
                    pixels: plane.pixels.0,
                },
                y: Side {
                    first: plane.y,
                    count: plane.height,
                    pixels: plane.pixels.1,
                },
            }
        };
        let (channels, color) = match jpeg.planes().len() {
            1 => ([plane(0); 3], Color::Rgb),
            _ if jpeg.color == ColorModel::Rgb => ([plane(0), plane(1), plane(2)], Color::Rgb),
            _ => ([plane(0), plane(1), plane(2)], Color::YCbCr),
        };
        Planes { channels, color }
    }

    /// Takes pixels apart; `buffer` holds the planes.
    pub fn of_pixels(source: Rgbx<'_>, buffer: &'a mut Vec<u8>) -> Planes<'a> {
        let (width, height) = (source.width as usize, source.height as usize);
        let size = width * height;
        buffer.clear();
        buffer.resize(3 * size + SLACK, 0);
        let (red, rest) = buffer.split_at_mut(size);
        let (green, blue) = rest.split_at_mut(size);
        for y in 0..height {
            let row: &[[u8; 4]] = source.data[y * source.stride..][..4 * width].as_chunks().0;
            let at = y * width..(y + 1) * width;
            let planes = [&mut red[at.clone()], &mut green[at.clone()], &mut blue[at]];
            for (c, plane) in planes.into_iter().enumerate() {
                plane.iter_mut().zip(row).for_each(|(to, pixel)| *to = pixel[c]);
            }
        }
        let pixels = source.pixels;
        let side = |first, count| Side { first, count, pixels };
        let buffer: &'a [u8] = buffer;
        let channels = [0, 1, 2].map(|c| Plane {
            data: &buffer[c * size..],
            stride: width,
            x: side(source.x, source.width),
            y: side(source.y, source.height),
        });
        Planes {
            channels,
            color: Color::Rgb,
        }
    }

    /// Whether all three channels are the same.
    pub fn is_grey(&self) -> bool {
        let [first, second, third] = self.channels.map(|plane| plane.data.as_ptr());
        first == second && second == third
    }

    /// The finest resolution among the channels: image pixels a sample, across and down.
    pub fn finest(&self) -> (u32, u32) {
        let least = |pixels: [u32; 3]| pixels.into_iter().min().unwrap_or(1);
        (
            least(self.channels.map(|p| p.x.pixels)),
            least(self.channels.map(|p| p.y.pixels)),
        )
    }
}

/// Columns and rows of a source that a filter may read, each from and to.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub x: (i64, i64),
    pub y: (i64, i64),
}

/// How the samples of three channels lie, across and down.
pub(super) type Sides = [(Side, Side); 3];
