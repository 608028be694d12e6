//! Supplies a trainer with batches: chooses the samples and their order, and prefetches.
//!
//! ```text
//! seed, epoch ─► order ─► open batches ─► workers claim places ─► early batches wait ─► the consumer, in order
//!                          ▲  at most `prefetch` open or waiting                      │
//!                          └──────────────────────────────────────────────────────────┘
//! ```
//!
//! An epoch's order is a permutation of the samples, or what a [`Sampler`] chooses of them (by weights, class by class,
//! a subset, each several times), drawn from (seed, epoch), divided among the ranks and into batches. All workers fill the same batch: each claims the next place by incrementing an atomic
//! counter, reads, decodes and processes one image directly into it, and goes to the next open batch when no
//! place is left; the worker that finishes the last place hands the batch over. So a batch waits only for its
//! last image and not for one worker, a few batches in memory keep any number of workers busy, and an image
//! needs no lock. The consumer opens another batch whenever it takes one; the memory of a dropped batch is
//! reused. This gives four guarantees:
//!
//! * **The batches do not depend on the workers.** The contents of a place follow from its number; random
//!   operations are drawn from (seed, epoch, sample, and how often the epoch had it before); batches are handed over in order.
//! * **Memory is bounded** by [`LoaderOptions::prefetch`] batches, plus the one that the consumer holds.
//! * **Resume is exact.** [`BatchStream::state`] is the number of the next batch; batches that were prefetched
//!   beyond it are loaded again. No samples are read just to skip them.
//! * **Nothing hangs.** A worker waits only for batches and for its turn to compute, and the consumer only for workers. A place that
//!   fails or panics makes its batch an error, the first such place if there are several. Dropping
//!   an epoch ends its threads.
//!
//! How many workers there are is an option, or measured: with [`Workers::Auto`] a loader begins with one for each
//! core, and adds more where reads wait instead of computing, up to 128, while the consumer waits for a batch. Then no more than there are cores compute at once. A
//! larger number needs more batches in work, so `prefetch` grows with it unless it is set. [`Loader::costs`] has
//! what was measured, [`Loader::workers_why`] the reason in words.
//!
//! A bad image does not crash the loader: depending on [`BadImagePolicy`] it ends the epoch, is skipped, or
//! is replaced by another image of its class. Each one is reported once in the life of a [`Loader`], in
//! [`Batch::bad`], and [`Loader::bad_images`] has all of them for a final count.
//!
//! An epoch is a [`BatchStream`], wherever its batches are made: by the workers, on a [`Device`] of samples that the workers
//! prepare, or [elsewhere](LoaderOptions::elsewhere). [`Pixels`] says where they lie.
//!
//! A batch can be made by its number, without the epoch around it: [`Loader::numbered`] and a [`WorkerPool`] do so for
//! consumers on other machines. The loader of such a consumer has its batches from [`LoaderOptions::elsewhere`].
//!
//! ```
//! use std::sync::Arc;
//! use stokehold_loader::{Loader, LoaderError, LoaderOptions, Pipeline, Source};
//!
//! fn count(source: Arc<dyn Source>) -> Result<usize, LoaderError> {
//!     let loader = Loader::new(source, Pipeline::imagenet_train(224), LoaderOptions::default())?;
//!     let mut images = 0;
//!     for epoch in 0..2 {
//!         for batch in loader.epoch(epoch) {
//!             images += batch?.labels.len();
//!         }
//!     }
//!     Ok(images)
//! }
//! ```
//!
//! A source of pairs (an image and its mask) gives batches with [`Batch::masks`]. A mask goes through its image's geometry,
//! and one that is missing, broken or of another size makes its image a bad one.
//!
//! What the ordinary case needs of `stokehold-storage` and `stokehold-pipeline` is re-exported: a program
//! that opens a [`Dataset`] and takes a [`Pipeline`] needs this crate alone. [`Dataset::open`] takes data sets in buckets, too,
//! once the program has called `stokehold_objects::register`.

mod address;
mod batch;
mod batches;
mod costs;
mod delay;
mod error;
mod gate;
mod images;
mod loader;
mod numbered;
mod options;
mod order;
mod sampler;
mod shared;
mod slots;
mod state;
mod worker;

pub use address::{Address, AddressError, TOKEN};
pub use batch::{BadImage, Batch, BatchStream, Pixels, Span, Stage};
pub use batches::{Batches, Device, Elsewhere, Supply};
pub use costs::Costs;
pub use error::LoaderError;
#[doc(hidden)]
pub use error::panic_message;
pub use images::{BatchNumbers, Floats, ImageBuffer};
pub use loader::{Loader, remaining, sized};
pub use numbered::{NumberedEpoch, WorkerPool};
pub use options::{BadImagePolicy, LoaderOptions, MAX_WORKERS, Workers};
pub use order::Parts;
pub use sampler::Sampler;
pub use shared::mask_table;
pub use state::{OrderFacts, State};
#[doc(no_inline)]
pub use stokehold_pipeline::{DecodeOptions, Executor, Pipeline, PipelineError, SampleType};
#[doc(no_inline)]
pub use stokehold_storage::{Dataset, ImageFolder, ImageList, Source, StorageError};
pub use worker::input;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
