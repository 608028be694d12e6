//! The frame: the image's size and its components, and what follows from them.

use crate::markers::Segment;
use crate::{Error, Header};

/// How the coefficients are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Baseline sequential (SOF0).
    Baseline,
    /// Extended sequential, Huffman (SOF1).
    Extended,
    /// Progressive, Huffman (SOF2).
    Progressive,
}

/// What the components mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorModel {
    /// One component of luminance.
    Grey,
    /// Luminance and two of chrominance: nearly every colour JPEG.
    YCbCr,
    /// Red, green and blue as they are.
    Rgb,
    /// Four inks. They are read by Adobe's convention, inverted, as Pillow reads them.
    Cmyk,
    /// CMYK whose first three components were turned into YCbCr.
    Ycck,
}

/// One component: a grid of samples, coarser than the image's or as fine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Component {
    /// The name scans call it by.
    pub id: u8,
    /// Sampling factors, 1..=4; of a component that is alone 1, whatever the file says.
    pub h: usize,
    pub v: usize,
    /// Sampling factors as the file has them.
    pub sampling: (u8, u8),
    /// Which quantisation table it uses, 0..=3.
    pub quantisation: usize,
    /// Samples a row and rows of samples.
    pub width: usize,
    pub height: usize,
    /// The same in blocks, without those that only fill up MCUs.
    pub blocks_wide: usize,
    pub blocks_high: usize,
}

/// The frame header and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub width: usize,
    pub height: usize,
    pub coding: Coding,
    /// The largest factors of all components.
    pub h_max: usize,
    pub v_max: usize,
    /// MCUs a row and rows of MCUs of a scan that holds all components.
    pub mcus_wide: usize,
    pub mcus_high: usize,
    components: [Component; 4],
    count: usize,
}

impl Frame {
    /// Reads an SOF0, SOF1 or SOF2 segment.
    pub fn parse(segment: Segment<'_>) -> Result<Frame, Error> {
        let corrupt = |what: String| Error::corrupt(segment.at, what);
        let [precision, h1, h0, w1, w0, count, rest @ ..] = segment.body else {
            return Err(corrupt("a frame header that is too short".into()));
        };
        if *precision != 8 {
            return Err(Error::Unsupported(format!(
                "{precision} bits per sample; only 8 are decoded"
            )));
        }
        let (width, height) = (
            u16::from_be_bytes([*w1, *w0]).into(),
            u16::from_be_bytes([*h1, *h0]).into(),
        );
        if height == 0 {
            return Err(Error::Unsupported(
                "a height given after the first scan (DNL)".into(),
            ));
        }
        if width == 0 {
            return Err(corrupt("a width of 0".into()));
        }
        let count = usize::from(*count);
        if !matches!(count, 1 | 3 | 4) {
            return Err(Error::Unsupported(format!(
                "{count} colour components; 1, 3 and 4 are decoded"
            )));
        }
        if rest.len() < 3 * count {
            return Err(corrupt("a frame header that is too short".into()));
        }
        let mut components = [Component::default(); 4];
        for (component, bytes) in components.iter_mut().zip(rest.chunks_exact(3)).take(count) {
            let sampling @ (h, v) = (bytes[1] >> 4, bytes[1] & 15);
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
                return Err(corrupt(format!("sampling factors {h}x{v}; 1 to 4 are legal")));
            }
            if bytes[2] > 3 {
                return Err(corrupt(format!(
                    "quantisation table {}; 0 to 3 are legal",
                    bytes[2]
                )));
            }
            (component.id, component.quantisation) = (bytes[0], bytes[2].into());
            component.sampling = sampling;
        }
        let coding = match segment.marker {
            0xC0 => Coding::Baseline,
            0xC1 => Coding::Extended,
            _ => Coding::Progressive,
        };
        Ok(Frame::measure(width, height, coding, components, count))
    }

    /// The frame of an image with that header, without the names and the quantisation of its components.
    pub fn of(header: &Header) -> Frame {
        let mut components = [Component::default(); 4];
        for (component, &sampling) in components.iter_mut().zip(&header.sampling) {
            component.sampling = sampling;
        }
        let (width, height) = (header.width as usize, header.height as usize);
        Frame::measure(width, height, header.coding, components, header.sampling.len())
    }

    fn measure(
        width: usize,
        height: usize,
        coding: Coding,
        mut components: [Component; 4],
        count: usize,
    ) -> Frame {
        let used = &mut components[..count];
        for c in used.iter_mut() {
            let (h, v) = if count == 1 { (1, 1) } else { c.sampling };
            (c.h, c.v) = (h.into(), v.into());
        }
        let h_max = used.iter().map(|c| c.h).max().unwrap_or(1);
        let v_max = used.iter().map(|c| c.v).max().unwrap_or(1);
        for c in used {
            c.width = (width * c.h).div_ceil(h_max);
            c.height = (height * c.v).div_ceil(v_max);
            c.blocks_wide = c.width.div_ceil(8);
            c.blocks_high = c.height.div_ceil(8);
        }
        let (mcus_wide, mcus_high) = (width.div_ceil(8 * h_max), height.div_ceil(8 * v_max));
        Frame {
            width,
            height,
            coding,
            h_max,
            v_max,
            mcus_wide,
            mcus_high,
            components,
            count,
        }
    }

    /// The components, 1, 3 or 4.
    pub fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// The index of the component called `id`.
    pub fn index_of(&self, id: u8) -> Option<usize> {
        self.components().iter().position(|c| c.id == id)
    }

    /// The rules of libjpeg's default_decompress_parms: JFIF first, then Adobe's word, then the components'
    /// names.
    pub fn color_model(&self, adobe: Option<u8>, jfif: bool) -> ColorModel {
        let names = [
            self.components[0].id,
            self.components[1].id,
            self.components[2].id,
        ];
        match (self.count, adobe) {
            (1, _) => ColorModel::Grey,
            (3, _) if jfif => ColorModel::YCbCr,
            (3, Some(0)) => ColorModel::Rgb,
            (3, Some(_)) => ColorModel::YCbCr,
            (3, None) if names == *b"RGB" => ColorModel::Rgb,
            (3, None) => ColorModel::YCbCr,
            (_, Some(2)) => ColorModel::Ycck,
            (_, _) => ColorModel::Cmyk,
        }
    }
}
