//! Converts a folder of images to shards, which load faster, before training.
//!
//! ```text
//!  DATA/train/cat/1.jpg ─┐ read   ┌─ pack or transcode: the same coefficients, coded otherwise   ─┐ in order   OUT/train/000000.skshard
//!  DATA/train/cat/2.jpg ─┼──────► ├─ or keep the file as it is                                 ├──────────► OUT/train/000001.skshard
//!  DATA/val/...         ─┘ many   └─ or resize and encode (lossy)                              ┘ one writer OUT/shards.json, last
//! ```
//!
//! Many threads make the samples (`make`), and one writes them in the order of the data set, so the result
//! does not depend on the number of threads. A shard is finished when the next sample would exceed the
//! requested size. It is written to a temporary file and renamed. If a preparation is killed, the next one
//! checks and keeps the finished shards, continues after them, and ends with the same bytes as an
//! uninterrupted one. The manifest is written last: a folder with a manifest is complete.
//!
//! By default nothing is lost: JPEGs are rewritten in the coefficient domain, which gives the same pixels bit
//! for bit, and PNG and WebP files are copied unchanged. [`verify`] proves it against the originals.
//!
//! A JPEG becomes its packed form, which is smaller and decodes faster; one that would not become smaller is transcoded. What
//! packed images are read with is adapted to some JPEGs of the data set (`packing`), and every shard holds it.
//!
//! With [`Options::bake`] the head of a pipeline is performed on the images of a part, operation after operation, and
//! `shards.json` says so: a loader leaves these operations out and refuses a pipeline that begins otherwise. An image that they
//! leave as it is is not encoded again. A part that would become larger than its files is refused, where that is not allowed:
//! the finished shards stay, and the same preparation with [`Options::allow_larger`] ends it.
//!
//! Several workers, on several machines, prepare a share each ([`prepare_share`]), and [`join`] makes of the shares what one
//! worker would have written.
//!
//! [`examine()`] reads and decodes every image of a data set before that, and [`thumbnail()`] makes a small picture of one.
//!
//! With [`Container::Tar`] the same samples are written to tar files in WebDataset's convention, for other
//! loaders.

mod error;
mod examine;
mod extract;
mod make;
mod options;
mod output;
mod packing;
mod part;
mod prepare;
mod resume;
mod shares;
mod tar;
mod thumbnail;
mod verify;

pub use error::PrepareError;
pub use examine::{Broken, Class, Examination, PixelClass, Pixels, Spread, examine};
pub use extract::{Lost, extract};
pub use options::{Bake, Container, Content, Options, Size};
pub use prepare::{Left, Progress, Report, join, prepare, prepare_share};
pub use stokehold_base::share::Share;
pub use thumbnail::thumbnail;
pub use verify::{Findings, verify};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
