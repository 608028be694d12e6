//! Preparation out of band: a folder of images becomes shards that load faster.
//!
//! ```text
//!  DATA/train/cat/1.jpg ─┐ read   ┌─ transcode: same coefficients, restart marker per MCU row ─┐ in order   OUT/train/000000.skshard
//!  DATA/train/cat/2.jpg ─┼──────► ├─ or keep the file as it is                                 ├──────────► OUT/train/000001.skshard
//!  DATA/val/...         ─┘ many   └─ or resize and encode (lossy)                              ┘ one writer OUT/shards.json, last
//! ```
//!
//! Many threads make the samples (`make`), one writes them in the order of the data set, so the result does not depend
//! on the number of threads. A shard is finished when the next sample would make it longer than asked for. It is written
//! aside and renamed; what a preparation that was killed had finished is checked and kept by the next one, which goes on
//! behind it and ends with the same bytes as if nothing had happened. The manifest comes last: a folder with one is
//! whole.
//!
//! By default nothing is lost: JPEGs are written anew in the coefficient domain, which gives the same pixels bit for bit,
//! and PNG and WebP files stay what they are. [`verify`] proves it against the originals.
//!
//! With [`Container::Tar`] the same samples go into tar files in WebDataset's convention, for other loaders.

mod error;
mod extract;
mod make;
mod options;
mod output;
mod prepare;
mod resume;
mod tar;
mod verify;

pub use error::PrepareError;
pub use extract::{Lost, extract};
pub use options::{Container, Content, Options, Size};
pub use prepare::{Left, Progress, Report, prepare};
pub use verify::{Findings, verify};
