//! Storage from outside: folders on disk and in buckets and what torchvision makes of them, and shards with every kind of damage.

#[cfg(feature = "buckets")]
mod bucket;
mod dataset;
mod folder;
mod list;
mod pairs;
mod shards;
mod torchvision;
mod tree;
