//! Offline inference over many images, by the contract of SageMaker's batch transform.
//!
//! ```text
//!  INPUT ──► Inputs: numbered records, and the output that each belongs to
//!              │
//!              ▼  ranges of records: parts
//!  WORK ◄──► Work: which parts are done, who has the others (locks of the operating system)
//!              │
//!              ▼  the next part is loaded while the present one is computed
//!            loader ──► Model: a network of stokehold-train, or processes of a Python script
//!                          │
//!                          ▼  the prediction, or the record with it
//!                        OUT: one file for each input, or one for all; a folder or a bucket
//! ```
//!
//! # Inputs
//!
//! A *record* is one image. Its JSON is the line that names it, or `{"image": NAME}` where no line does.
//!
//! | input | records | outputs |
//! |---|---|---|
//! | an image, a folder or prefix of images, prepared shards | one for each image, sorted | `NAME.out` for each image |
//! | a manifest: `[{"prefix": P}, "a.jpg", ..]` | one for each name, in this order | `NAME.out` for each name |
//! | JSON lines: `"a.jpg"` or `{"image": "a.jpg", ..}` | one for each line | `FILE.out` for each file of lines |
//!
//! With [`Options::assemble`] there is one output, `INPUT.out`. An output is JSON lines: one line for each record, in
//! their order.
//!
//! # Parts, workers and crashes
//!
//! Records are divided into parts of [`PART_BATCHES`] batches. A worker locks a part's file in the work folder
//! (`flock`), computes it, writes it whole, and renames it. The operating system releases the lock of a worker that
//! dies, on network file systems too that support locks, so another worker takes the part. Where a file system lets two
//! workers have a part, both write the same bytes, and one result stays.
//!
//! A part's batches begin with the part, so the same images are always computed together, whichever worker computes them and
//! however often a transform was killed. So a resumed transform ends with the bytes of an uninterrupted one on the same
//! machine.
//!
//! The work folder says of which transform it is (`plan.json`): model, inputs, pipeline and options. Another transform
//! is refused, with what differs.
//!
//! # Errors of records
//!
//! An image that cannot be read or decoded, is larger than [`Options::max_payload`], or has a prediction that is not
//! finite, has the output `{"error": REASON}`. All others are computed. A script that fails ends the transform; parts
//! that are done stay.

mod error;
mod input;
mod model;
mod output;
mod run;
mod script;
mod work;

pub use error::TransformError;
pub use input::{Inputs, Split};
pub use model::{Model, Native};
pub use run::{Done, End, Options, PART_BATCHES, transform};
pub use script::{Script, ScriptOptions};
pub use stokehold_base::share::Share;
