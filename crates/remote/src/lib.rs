//! Batches for training that other machines make.
//!
//! ```text
//!  trainer                                        server (any number)
//!  Loader ── Servers: what is asked of whom ──┬── GET a batch ──► WorkerPool: read, decode, augment
//!    ▲                                        ├── GET a batch ──► ..
//!    └───────── batches in order ◄────────────┴── threads of its own
//! ```
//!
//! A server has the data, and nothing else that lasts. A batch is a function of a [`Spec`] (the loader's options, the pipeline and
//! the part of the data set), the epoch and a number. So any server can make any batch, equal to the bit to the one that
//! the trainer's own loader would make; servers come and go; and order, resume and the policy for bad images are the
//! trainer's ([`stokehold_loader::Elsewhere`]). Both sides need the data set: the trainer its list of images, and the
//! servers their contents. They compare the names and classes of the images before the first batch.
//!
//! # Requests
//! HTTP/1.1. With a token every request has `Authorization: Bearer TOKEN`. Errors are JSON, `{"error": "..."}`.
//!
//! | | |
//! |---|---|
//! | `GET /v1/facts` | [`Facts`] as JSON |
//! | `POST /v1/loaders`, a [`Spec`] as JSON | [`Made`] as JSON: the loader's key, batches per epoch and shape. The same spec has the same key everywhere. Every field has a default |
//! | `GET /v1/batches/KEY/EPOCH/NUMBER` | the batch, as safetensors: `images` (N, 3, H, W), `labels` and `samples` (N), for pairs `masks` (N, H, W); its bad images as JSON in the metadata. `default` is the key of the server's own pipeline with all defaults. The header `stokehold-crc32` has the CRC-32 of the body in hexadecimal |
//!
//! | status | meaning |
//! |---|---|
//! | 400 | the request is wrong |
//! | 401 | the token is missing or wrong |
//! | 404 | no such path, no such batch, or a loader that this server does not know (yet): send its spec |
//! | 409 | the server has another version of Stokehold or another data set |
//! | 405 | the path is there for another method |
//! | 408 | the spec did not come in time |
//! | 422 | the batch cannot be made, and nowhere else either: an image is bad and the policy is to end |
//! | 500 | the server lacks files or memory, or has a fault; the batch may be made elsewhere, or later |
//! | 503 | the server is ending |
//!
//! A server keeps the loaders of the last [`server::LOADERS`] specs, as a cache: a trainer whose loader it has dropped, or
//! that meets it after a restart, sends its spec again.
//!
//! # Who makes what
//! The trainer keeps a board of batch numbers. Each connection has one request at a time, and takes the next number when
//! it has its batch; so a server gets as many as it makes, a slow one fewer, and at most [`CONNECTIONS`] batches of a trainer
//! are on a server. Numbers are handed out up to a window ahead of the trainer, which bounds the memory of both sides. A
//! request that fails puts its number back, and the server is asked again after 0.1 s, doubled up to 5 s. When there is no new
//! number, the oldest request that takes more than [`PATIENCE`] and four times the usual time is made again
//! by another one; the first batch counts, because both are the same. If no batch comes for [`GIVE_UP`] and every server
//! has failed, the epoch ends with an error that has what each of them said.

mod board;
mod client;
mod error;
#[cfg(feature = "server")]
pub mod server;
mod spec;
mod wire;

pub use board::PATIENCE;
pub use client::{CONNECTIONS, GIVE_UP, Servers, token};
pub use error::RemoteError;
pub use spec::{DataPart, DatasetSplit, Facts, Made, Spec};
#[doc(no_inline)]
pub use stokehold_loader::TOKEN;
pub use wire::{Encoded, check, decode, encode};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
