//! JPEG bytes to pixels, made for training.
//!
//! Training rarely wants the whole picture: a random resized crop reads a part of it and shrinks that part.
//! So the interface asks first ([`Header::parse`] costs microseconds and decodes nothing) and decodes after,
//! and then only what was asked for:
//!
//! ```text
//!  bytes ──► Header::parse ──► size, colour model, orientation
//!    ├─────► Decoder::decode(region, scale, layout) ──► Pixels: rows of that region, borrowed from the decoder
//!    ├─────► Decoder::decode_planes(region, scale) ───► Planes: the components' samples, before upsampling and
//!    │                                                  colour
//!    └─────► Decoder::decode_blocks(region, scale) ───► Blocks: the coefficients that are not zero, for a transform
//!                                                       elsewhere
//! ```
//!
//! A [`Decoder`] belongs to one thread and keeps its buffers, so decoding allocates nothing once it is warm.
//! What it returns is a view with a row stride: a caller that resamples a region copies nothing.
//!
//! # The way of a byte
//!
//! 1. **Markers** (`markers`, `header`, `frame`, `tables`). A JPEG is a list of segments. They give the size,
//!    the sampling of the components, the quantisation steps and the Huffman codes, until a scan begins.
//! 2. **Unstuffing** (`bits`). Within a scan a byte FF is followed by a 00 that means nothing. One pass
//!    copies the scan, up to the next marker, without them, so that a refill of the bit reader is one load of
//!    eight bytes.
//! 3. **Symbols** (`huffman`, `block`). The next ten bits index a table whose entry holds up to *two*
//!    coefficients, with the zeros before them and their lengths: a block of 18 coefficients costs some
//!    eleven lookups. Codes too long for it take the slow path.
//! 4. **Blocks** (`sequential`). 64 coefficients make a block, blocks of all components make an MCU (minimum
//!    coded unit). Huffman codes can only be read from the beginning, so blocks outside the region are read,
//!    but neither stored nor transformed; after the region's last MCU nothing is read at all. Restart
//!    intervals that hold nothing of the region are only searched for their end.
//! 5. **Samples** (`transform`, `kernels::idct`, `kernels::reduced`). Blocks are dequantised and transformed
//!    two at a time into strips: per component the sample rows of one MCU row and the row above them. They
//!    stay in the cache. For a smaller image a block becomes 4 x 4, 2 x 2 or one sample instead of 8 x 8, and
//!    a component that is coarser anyway shrinks less (`grid`). For planes the strips are as high as the
//!    region, and the way ends here.
//! 6. **Pixels** (`strips`, `kernels::upsample`, `kernels::color`). As soon as an MCU row is there, its rows
//!    are upsampled, converted to RGB and written to the output; where upsampling looks at the row below, the
//!    last row waits for the next MCU row.
//!
//! Files of several scans (progressive ones, and components that come one after the other) keep the
//! coefficients of the whole image (`planes`, `progressive`) and take steps 5 and 6 from there.
//!
//! [`Decoder::coefficients`] hands them out, and [`transcode`] goes back from there: it writes the
//! coefficients of any file as one scan whose rows can be found and read alone (`transcode`, `encode`). With
//! the places of those rows ([`Input`], `input`) a decode begins at the region's first row.
//!
//! Everything is bit for bit what libjpeg-turbo's default decoder gives (its accurate integer transform, the
//! reduced ones at its scales of 1/2, 1/4 and 1/8, and its "fancy" upsampling), and a region is bit for bit
//! the crop of the whole. Each kernel has a portable form, which is its definition, and where it pays one for
//! AVX2 and one for NEON, chosen when the decoder is made; tests hold them equal.
//!
//! # What is accepted
//!
//! Baseline, extended and progressive Huffman coding of 8-bit samples; grey, YCbCr, RGB, CMYK and YCCK; every
//! sampling that needs no fractions. Everything else is an [`Error`] that says what the file holds. Bytes are
//! never trusted: no input makes the crate panic, and no header makes it allocate what the file's length
//! cannot justify. Missing data is an error, since training must not learn from a grey lower half
//! ([`Decoder::decode_partial`] gives the rows above the gap, and the error); stray bytes between segments and
//! after the image are not. A progressive file whose last scans are missing is refused too, where libjpeg
//! guesses.
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

mod bits;
mod block;
mod blocks;
mod coefficients;
mod decoder;
mod encode;
mod exif;
mod frame;
mod grid;
mod header;
mod huffman;
mod icc;
mod inks;
mod input;
mod kernels;
mod markers;
mod pixels;
mod planar;
mod planes;
mod progressive;
mod region;
mod scale;
mod scan;
mod sequential;
mod standard;
mod strips;
mod tables;
mod transcode;
mod transform;

pub use block::ZIGZAG;
pub use blocks::{BlockHead, Blocks, ComponentBlocks, PlaneLayout};
pub use coefficients::{Coefficients, ComponentCoefficients};
pub use decoder::{Decoder, MAX_PIXELS};
pub use exif::exif_orientation;
pub use frame::{Coding, ColorModel};
pub use grid::Upsampling;
pub use header::Header;
pub use input::{Input, RowIndex};
pub use pixels::{Layout, Partial, Pixels};
pub use planar::{Plane, Planes};
pub use region::Region;
pub use scale::Scale;
pub use transcode::{Metadata, TranscodeOptions, Transcoded, transcode};

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
    #[error("corrupt JPEG: {what} (at byte {at})")]
    Corrupt {
        /// Where, in bytes from the beginning of the file: of a segment its body's first byte, of coded data
        /// the byte that could not be read.
        at: usize,
        /// What was found there.
        what: String,
    },
    /// The row index given with the bytes does not fit them.
    #[error("a row index {0}")]
    RowIndex(String),
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

impl Error {
    /// A corrupt file: `what` was found at byte `at`.
    fn corrupt(at: usize, what: impl Into<String>) -> Error {
        Error::Corrupt {
            at,
            what: what.into(),
        }
    }
}
