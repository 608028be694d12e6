//! Generates photograph-like images.
//!
//! [`generate`] makes a data set whose files cost as much to load as photographs: about 500x375 pixels and
//! 100 KB as JPEGs of quality 90, half of them 4:2:0 and half 4:4:4, with the 1/f² spectrum and the
//! occlusions of natural scenes. A class is a shape with a surface, such as `ring-striped`; colours, light,
//! background, place and size are independent of the class, so a network has to learn to see.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use stokehold_synth::{SynthOptions, generate};
//! let options = SynthOptions { images: 4, classes: 2, ..SynthOptions::default() };
//! generate(folder.path().join("data"), &options, &mut |_done, _of| {})?;
//! assert!(folder.path().join("data/train/disc-plain/00000.jpg").exists());
//! # Ok::<(), stokehold_synth::SynthError>(())
//! ```
//!
//! Every file is a function of (seed, class, number), with the same bytes on every machine: the arithmetic
//! uses only operations that IEEE 754 defines exactly, and the encoder works with integers.

mod class;
mod error;
mod generate;
mod math;
mod noise;
mod random;
mod scene;

pub use error::SynthError;
pub use generate::{SynthOptions, default_dataset, generate};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
