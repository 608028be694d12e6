//! Where image bytes come from.
//!
//! A [`Source`] is a numbered list of labelled files: `0..len`, each with a class and bytes that
//! [`Source::read`] fetches into the caller's [`SampleBytes`]. The loader knows nothing else of storage. Order, shuffling
//! and threads are the loader's; what the bytes mean is the pipeline's.
//!
//! [`ImageFolder`] is the source on disk. It numbers classes and samples exactly as
//! `torchvision.datasets.ImageFolder` does, so that an index here is the same image and the same label there:
//!
//! ```text
//! DATA/train/cat/001.jpg       class 0, sample 0
//! DATA/train/cat/more/9.PNG    class 0, sample 1     any depth, extensions in any case
//! DATA/train/dog/7.webp        class 1, sample 2
//! DATA/val/...                 the same classes
//! ```
//!
//! [`ShardFolder`](shard::ShardFolder) is the same list from prepared [shards](shard): large files with checksums, whose
//! JPEGs can be read from any row on.
//!
//! [`BucketFolder`] is the folder in a bucket: the same list of `s3://bucket/prefix`, whose objects are fetched ahead in the
//! order that the loader announces. Shards are read from buckets by ranges in the same way. [`ImageList`] is what the caller
//! lists file by file. Buckets are behind the feature `buckets`, as an HTTP client with TLS is most of what this crate would build.
//!
//! [`Dataset`] is the pair of training and validation [`Images`], read from `DATA/train` and `DATA/val`, split off
//! one tree, or prepared. [`SlowSource`] makes any source as slow as a network.

#[cfg(feature = "buckets")]
mod bucket;
#[cfg(not(feature = "buckets"))]
#[path = "no_bucket.rs"]
mod bucket;
mod dataset;
mod error;
mod folder;
mod images;
mod list;
mod sample_bytes;
pub mod shard;
mod slow;
mod source;

pub use bucket::BucketFolder;
pub use dataset::{Dataset, ValSplit};
pub use error::StorageError;
pub use folder::{EXTENSIONS, ImageFolder, Sample};
pub use images::Images;
pub use list::ImageList;
pub use sample_bytes::{SampleBytes, SampleRows};
pub use slow::SlowSource;
pub use source::Source;
