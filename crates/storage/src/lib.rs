//! The source of image bytes.
//!
//! A [`Source`] is a numbered list of labelled files: `0..len`, each with a class and bytes that
//! [`Source::read`] reads into the caller's [`SampleBytes`]. The loader knows nothing else about storage. The
//! loader determines order, shuffling and threads; the pipeline interprets the bytes.
//!
//! [`ImageFolder`] is the source on disk. It numbers classes and samples exactly as
//! `torchvision.datasets.ImageFolder` does, so that an index is the same image and the same label in both:
//!
//! ```text
//! DATA/train/cat/001.jpg       class 0, sample 0
//! DATA/train/cat/more/9.PNG    class 0, sample 1     any depth, extensions in any case
//! DATA/train/dog/7.webp        class 1, sample 2
//! DATA/val/...                 the same classes
//! ```
//!
//! [`ShardFolder`](shard::ShardFolder) is the same list from prepared [shards](shard): large files with
//! checksums, whose JPEGs can be read from any row on.
//!
//! [`BucketFolder`] is the folder in a bucket: the same list at `s3://bucket/prefix`, whose objects are
//! fetched in advance in the order that the loader announces. Shards in buckets are read by ranges in the
//! same way. A program that reads buckets says once what opens them ([`open_buckets_with`]). [`ImageList`] is a list of files from the caller, and [`Joined`] several sources one after the
//! other.
//!
//! [`PairFolder`] has an image and a mask for each sample: the class of every pixel, of which [`PixelClasses`] has the
//! names. [`Dataset::open`] finds the layouts of CamVid, Cityscapes and VOC and folders called `images` and `masks`; a file
//! `classes.toml` says what is not found.
//!
//! [`Dataset`] is the pair of training and validation [`Images`], read from `DATA/train` and `DATA/val`,
//! split off one tree, or prepared. [`SlowSource`] adds latency to any source, as a network does.

mod besides;
mod bucket;
mod buckets;
mod class_table;
mod dataset;
mod error;
mod folder;
mod images;
mod joined;
mod layouts;
mod list;
mod pairs;
pub mod palette;
mod pixel_classes;
mod sample_bytes;
pub mod shard;
mod slow;
mod source;

pub use besides::{Besides, differences};
pub use bucket::BucketFolder;
pub use buckets::{BucketPrefix, Buckets, Fetch, LeftOut, Listed, Object, open_buckets_with};
pub use dataset::{Dataset, ValSplit};
pub use error::StorageError;
pub use folder::{EXTENSIONS, ImageFolder, Sample, extensions_in_words, file_version, is_image_name};
pub use images::Images;
pub use joined::Joined;
pub use list::ImageList;
pub use pairs::PairFolder;
pub use pixel_classes::{Coding, IGNORE, PixelClasses};
pub use sample_bytes::SampleBytes;
pub use slow::SlowSource;
pub use source::Source;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
