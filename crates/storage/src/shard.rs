//! Prepared shards: many samples in one file, each with its checksums.
//!
//! A folder of a million files costs an open, a stat and a seek for each of them. A *shard* holds some hundred megabytes of
//! samples one after the other:
//!
//! ```text
//! ┌────────┬────────┬──────────────┬──────────────┬─ ─ ─┬────────────────────────────────┬────────┐
//! │ header │ tables │ record 0     │ record 1     │     │ index: where every record is,  │ footer │
//! │        │        │ head │ file  │ head │ file  │     │ label, size, name; class names │        │
//! └────────┴────────┴──────────────┴──────────────┴─ ─ ─┴────────────────────────────────┴────────┘
//! ```
//!
//! A record's *head* has all that is known of the sample, and the image file follows. So one read of a known length fetches a
//! sample. `docs/reference/shard-format.md` has every byte.
//!
//! *Tables* are what packed JPEGs are decoded with, where they need others than every program has. They are read when a shard is
//! opened, and go to the decoder with every sample ([`SampleBytes::tables`](crate::SampleBytes::tables)).
//!
//! Head, file, index, tables, header and footer each have a CRC-32. A wrong file costs its sample. Where the index is wrong or
//! cut off, the records are looked for one after the other ([`Shard::open`]), because every head repeats what the index
//! says of it; only those that are damaged themselves are lost.
//!
//! Bytes come from anything that reads by [`Ranges`]: a file, memory, later an object store. Readers share a shard
//! without a lock, since a ranged read has no position.
//!
//! Shards lie in a folder with a [`Manifest`], which is written last: `OUT/shards.json`, `OUT/train/000000.skshard`, and
//! so on. [`ShardFolder`] is the [`Source`](crate::Source) of one part of it.

mod folder;
mod layout;
mod manifest;
mod ranges;
mod reader;
mod recover;
mod writer;

pub use folder::ShardFolder;
pub use layout::{Damage, Entry};
pub use manifest::{Baked, Manifest, PartFacts, ShardFacts};
pub use ranges::Ranges;
pub use reader::Shard;
pub use writer::{Record, ShardWriter};

/// The extension of a shard's file.
pub const EXTENSION: &str = "skshard";

/// The checksum of shards: CRC-32 as zlib, PNG and Python's `zlib.crc32` compute it.
pub use crc32fast::Hasher as Crc32;
