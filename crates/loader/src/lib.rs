//! Keeps a trainer supplied with batches: which samples, in which order, how far ahead.
//!
//! ```text
//! seed, epoch ─► order ─► open batches ─► workers claim places ─► early batches wait ─► the consumer, in order
//!                          ▲  at most `prefetch` open or waiting                      │
//!                          └──────────────────────────────────────────────────────────┘
//! ```
//!
//! An epoch's order is a permutation of the samples, drawn from (seed, epoch), dealt to the ranks and cut into
//! batches. All workers fill the same batch: each claims the next place by counting up an atomic number, reads, decodes and
//! processes one image straight into it, and when no place is left goes to the next open batch; who finishes the last
//! place hands the batch over. So a batch waits for its last image only and not for one worker, a few batches
//! in memory keep any number of workers busy, and an image costs no lock. The consumer opens another batch
//! whenever it takes one; a batch that is dropped gives its memory back to be filled again. That makes
//! four things hold:
//!
//! * **The batches do not depend on the workers.** What is in a place follows from its number; random operations
//!   are drawn from (seed, epoch, sample); batches are handed over in order.
//! * **Memory is bounded** by [`LoaderOptions::prefetch`] batches, plus the one that the consumer holds.
//! * **Resume is exact.** [`Batches::state`] is the number of the next batch; what was prefetched beyond it is
//!   simply loaded again. Nothing is skipped through.
//! * **Nothing hangs.** A worker waits only for batches, and the consumer only for workers; a place that fails or
//!   panics makes its batch an error, the first such place if there are several, and dropping [`Batches`] ends the
//!   threads.
//!
//! A bad image is an event and not a crash: by [`BadImagePolicy`] it ends the epoch, is left out, or gives way to
//! another image of its class. Each one is reported once in the life of a [`Loader`], in [`Batch::bad`], and
//! [`Loader::bad_images`] has them all for a final count.
//!
//! ```
//! use std::sync::Arc;
//! use stokehold_loader::{Loader, LoaderError, LoaderOptions};
//! use stokehold_pipeline::Pipeline;
//! use stokehold_storage::Source;
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

mod batch;
mod batches;
mod error;
mod images;
mod loader;
mod options;
mod order;
mod slots;
mod state;
mod worker;

pub use batch::{BadImage, Batch, Span, Stage};
pub use batches::Batches;
pub use error::{LoaderError, panic_message};
pub use images::{Floats, ImageBuffer, Images};
pub use loader::Loader;
pub use options::{BadImagePolicy, LoaderOptions, MAX_WORKERS, Workers};
pub use state::{OrderFacts, State};
