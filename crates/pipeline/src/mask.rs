//! Masks: the class of every pixel of an image, and how their files are read.
//!
//! A mask's file is a PNG: its grey levels or palette indices are values, or its colours stand for classes. A
//! [`MaskTable`] says which class each value or colour is. In memory every mask is class numbers, with 255
//! ([`Mask::IGNORE`]) where a pixel has no class.

use std::collections::{BTreeMap, HashMap};

use crate::ImageInfo;
use crate::decode::png_decoder;
use crate::error::MaskError;

/// The class of every pixel, row by row (height, width).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `width * height` class numbers; [`Mask::IGNORE`] is no class.
    pub data: Vec<u8>,
}

impl Mask {
    /// The number of a pixel without a class, which no loss and no metric counts; also what geometry fills with where the
    /// image does not reach.
    pub const IGNORE: u8 = 255;

    /// A mask without any class.
    pub(crate) fn ignored(width: u32, height: u32) -> Mask {
        let data = vec![Mask::IGNORE; width as usize * height as usize];
        Mask { width, height, data }
    }

    /// One row.
    pub(crate) fn row(&self, y: usize) -> &[u8] {
        let width = self.width as usize;
        &self.data[y * width..(y + 1) * width]
    }

    /// Decodes the bytes of a mask's file: a PNG that is grey (1 to 16 bits), or has a palette, or colours.
    ///
    /// Alpha is left out. The pixels stay as they are stored: an EXIF orientation of the file counts for nothing.
    ///
    /// # Errors
    /// [`MaskError`]: the bytes are not a PNG or are broken, the image has more than [`MAX_PIXELS`](crate::MAX_PIXELS), or a
    /// value or a colour is not in the table.
    pub fn decode(bytes: &[u8], table: &MaskTable) -> Result<Mask, MaskError> {
        let file = File::open(bytes)?;
        let (width, height) = (file.width, file.height);
        let data = match &table.coding {
            Coding::Values { low, high } => file.classes_of_values(low, high)?,
            Coding::Colors(classes) => file.classes_of_colors(classes)?,
        };
        Ok(Mask { width, height, data })
    }

    /// As [`Mask::decode`], for the mask of a known image: it has a pixel for each of the image's, as it is stored, or as its EXIF
    /// orientation shows it.
    ///
    /// # Errors
    /// Those of [`Mask::decode`], and [`MaskError::OtherSize`].
    pub fn decode_for(bytes: &[u8], table: &MaskTable, image: &ImageInfo) -> Result<Mask, MaskError> {
        let mask = Mask::decode(bytes, table)?;
        let size = (mask.width, mask.height);
        let turned = image.orientation >= 5 && size == (image.height, image.width);
        match size == (image.width, image.height) || turned {
            true => Ok(mask),
            false => Err(MaskError::OtherSize {
                width: mask.width,
                height: mask.height,
                image_width: image.width,
                image_height: image.height,
                turned: false,
            }),
        }
    }
}

/// Which class the values or the colours of a mask's file are.
#[derive(Debug, Clone)]
pub struct MaskTable {
    coding: Coding,
}

#[derive(Debug, Clone)]
enum Coding {
    Values {
        /// The classes of 0..=255.
        low: Box<[Option<u8>; 256]>,
        /// Of the values above.
        high: BTreeMap<u16, u8>,
    },
    Colors(HashMap<[u8; 3], u8>),
}

impl MaskTable {
    /// A table of values (grey levels as they are stored, or indices of a palette) and their class numbers.
    pub fn of_values(classes: impl IntoIterator<Item = (u16, u8)>) -> MaskTable {
        let (mut low, mut high) = (Box::new([None; 256]), BTreeMap::new());
        for (value, class) in classes {
            match low.get_mut(usize::from(value)) {
                Some(place) => *place = Some(class),
                None => _ = high.insert(value, class),
            }
        }
        MaskTable {
            coding: Coding::Values { low, high },
        }
    }

    /// A table of colours (red, green, blue) and their class numbers.
    pub fn of_colors(classes: impl IntoIterator<Item = ([u8; 3], u8)>) -> MaskTable {
        MaskTable {
            coding: Coding::Colors(classes.into_iter().collect()),
        }
    }
}

/// A decoded PNG as it is stored.
struct File {
    width: u32,
    height: u32,
    color: png::ColorType,
    /// Bits of a channel.
    bits: u8,
    /// Bytes of a row.
    stride: usize,
    data: Vec<u8>,
    palette: Vec<u8>,
}

impl File {
    fn open(bytes: &[u8]) -> Result<File, MaskError> {
        if bytes.is_empty() {
            return Err(MaskError::Empty);
        }
        if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Err(MaskError::NotPng);
        }
        let broken = |e: png::DecodingError| MaskError::Png(e.to_string());
        let mut reader = png_decoder(bytes).read_info().map_err(broken)?;
        let info = reader.info();
        let (width, height, limit) = (info.width, info.height, crate::MAX_PIXELS);
        if u64::from(width) * u64::from(height) > limit {
            return Err(MaskError::TooLarge { width, height, limit });
        }
        let palette = info.palette.as_deref().unwrap_or_default().to_vec();
        let size = reader
            .output_buffer_size()
            .ok_or_else(|| MaskError::Png("the image does not fit memory".into()))?;
        let mut data = vec![0; size];
        let frame = reader.next_frame(&mut data).map_err(broken)?;
        // Reads the part after the image data, to detect files that are cut off there.
        reader.finish().map_err(broken)?;
        if (frame.width, frame.height) != (width, height) {
            return Err(MaskError::Png("its first frame is not the whole image".into()));
        }
        Ok(File {
            width,
            height,
            color: frame.color_type,
            bits: frame.bit_depth as u8,
            stride: frame.line_size,
            data,
            palette,
        })
    }

    /// The stored numbers of each row, channel by channel.
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let (bits, channels) = (usize::from(self.bits), self.color.samples());
        let rows = self
            .data
            .chunks_exact(self.stride.max(1))
            .take(self.height as usize);
        rows.map(move |bytes| Row {
            bytes,
            bits,
            channels,
        })
    }

    /// What turns a pixel's place in `data` into its column and row.
    fn place(&self, pixel: usize) -> (u32, u32) {
        let width = self.width as usize;
        ((pixel % width) as u32, (pixel / width) as u32)
    }

    fn classes_of_values(
        &self,
        low: &[Option<u8>; 256],
        high: &BTreeMap<u16, u8>,
    ) -> Result<Vec<u8>, MaskError> {
        if matches!(self.color, png::ColorType::Rgb | png::ColorType::Rgba) {
            return Err(MaskError::HasColors);
        }
        let mut classes = Vec::with_capacity(self.width as usize * self.height as usize);
        for row in self.rows() {
            for x in 0..self.width as usize {
                let value = row.number(x, 0);
                let class = match low.get(usize::from(value)) {
                    Some(class) => *class,
                    None => high.get(&value).copied(),
                };
                let Some(class) = class else {
                    let (x, y) = self.place(classes.len());
                    return Err(MaskError::UnknownValue { x, y, value });
                };
                classes.push(class);
            }
        }
        Ok(classes)
    }

    fn classes_of_colors(&self, table: &HashMap<[u8; 3], u8>) -> Result<Vec<u8>, MaskError> {
        if self.bits == 16 {
            return Err(MaskError::DeepColors);
        }
        let mut classes = Vec::with_capacity(self.width as usize * self.height as usize);
        // Neighbours mostly have one colour.
        let mut last = None;
        for row in self.rows() {
            for x in 0..self.width as usize {
                let color = self.color_at(&row, x)?;
                let class = match last {
                    Some((known, class)) if known == color => class,
                    _ => {
                        let Some(&class) = table.get(&color) else {
                            let (x, y) = self.place(classes.len());
                            return Err(MaskError::UnknownColor { x, y, color });
                        };
                        last = Some((color, class));
                        class
                    }
                };
                classes.push(class);
            }
        }
        Ok(classes)
    }

    fn color_at(&self, row: &Row<'_>, x: usize) -> Result<[u8; 3], MaskError> {
        // Of at most 8 bits each.
        let number = |channel| row.number(x, channel) as u8;
        Ok(match self.color {
            png::ColorType::Rgb | png::ColorType::Rgba => [number(0), number(1), number(2)],
            png::ColorType::Indexed => {
                let index = usize::from(number(0));
                let entry = self.palette.as_chunks().0.get(index);
                *entry.ok_or_else(|| MaskError::Png(format!("the palette has no entry {index}")))?
            }
            // Levels of fewer bits are spread over 0..=255, as the format says.
            png::ColorType::Grayscale | png::ColorType::GrayscaleAlpha => {
                let most = u8::MAX >> (8 - self.bits);
                [number(0) * (u8::MAX / most); 3]
            }
        })
    }
}

/// One row of a decoded PNG.
struct Row<'a> {
    bytes: &'a [u8],
    bits: usize,
    channels: usize,
}

impl Row<'_> {
    /// A channel of the pixel in column `x`.
    fn number(&self, x: usize, channel: usize) -> u16 {
        let at = x * self.channels + channel;
        match self.bits {
            16 => u16::from_be_bytes([self.bytes[2 * at], self.bytes[2 * at + 1]]),
            8 => self.bytes[at].into(),
            bits => {
                let first = at * bits;
                let shift = 8 - bits - first % 8;
                u16::from(self.bytes[first / 8] >> shift & (u8::MAX >> (8 - bits)))
            }
        }
    }
}
