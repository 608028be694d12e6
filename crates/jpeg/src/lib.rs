//! JPEG bytes to pixels, made for training.
//!
//! Training rarely wants the whole picture: a random resized crop reads a part of it and shrinks that part. So the
//! interface asks first ([`Header::parse`] costs microseconds and decodes nothing) and decodes after, and then only
//! what was asked for:
//!
//! ```text
//!  bytes ──► Header::parse ──► size, colour model, orientation
//!    └─────► Decoder::decode(region, scale, layout) ──► Pixels: rows of that region, borrowed from the decoder
//! ```
//!
//! A [`Decoder`] belongs to one thread and keeps its buffers, so decoding allocates nothing once it is warm. The
//! pixels it returns are a view with a row stride: a caller that resamples a region copies nothing.
//!
//! Entropy decoding, transform and colour conversion are `zune-jpeg`'s for the moment. It always decodes the whole
//! image, so a region saves no time yet and a scale is an average over blocks of full-size pixels; the interface is the one that
//! Stokehold's own decoder fills.
//!
//! What is accepted: baseline, extended and progressive Huffman coding of 8-bit samples; grey, YCbCr, RGB, CMYK and
//! YCCK. Everything else is an [`Error`] that says what the file holds. Bytes are never trusted: no input makes the
//! crate panic.
//!
//! ```no_run
//! use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};
//! let bytes = std::fs::read("photo.jpg")?;
//! let header = Header::parse(&bytes)?;
//! let mut decoder = Decoder::new();
//! let pixels = decoder.decode(&bytes, header.full(), Scale::Full, Layout::Rgb)?;
//! assert_eq!(pixels.row(0).len(), 3 * header.width as usize);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decoder;
mod header;

pub use decoder::{Decoder, Layout, Pixels, Region, Scale};
pub use header::{Coding, ColorModel, Header, exif_orientation};

/// Why bytes could not be read as a JPEG.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes do not begin with the start-of-image marker.
    #[error("not a JPEG: it does not begin with FF D8")]
    NotJpeg,
    /// The bytes end before the image does.
    #[error("truncated JPEG: the data ends {0}")]
    Truncated(&'static str),
    /// A legal JPEG of a kind that is not decoded.
    #[error("unsupported JPEG: {0}")]
    Unsupported(String),
    /// The bytes contradict the format.
    #[error("corrupt JPEG: {0}")]
    Corrupt(String),
    /// The region asked for is empty or reaches outside the image.
    #[error("region {region:?} does not lie within the image of {width}x{height}")]
    Region {
        /// What was asked for.
        region: Region,
        /// The image's width in pixels.
        width: u32,
        /// The image's height in pixels.
        height: u32,
    },
}
