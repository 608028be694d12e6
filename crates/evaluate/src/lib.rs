//! Shows evaluations: how often a classifier is right on labelled images, or a segmenter on pairs of images and masks.
//!
//! ```text
//!  train's infer ──► Evaluation ──► text, page              a classifier
//!                    PixelEvaluation ──► pixels: text, page  a segmenter
//!  the images ──► small pictures of what was predicted worst ──► page
//! ```
//!
//! A page is one file without network access or scripts. Names of classes and files come from outside; they are escaped and
//! clipped.

mod page;
mod pictures;
pub mod pixels;
mod tables;

pub use page::page;
pub use tables::text;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
