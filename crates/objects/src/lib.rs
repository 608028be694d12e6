//! Blocking access to objects in buckets.
//!
//! A [`Bucket`] is an opened place: `s3://bucket/prefix` (any server that speaks S3), `gs://bucket/prefix`,
//! `az://container/prefix`, `http://host/path` or a local folder. It contains objects, named by keys below
//! that place.
//!
//! ```text
//!  loader worker ──► Bucket::fetch ─┐                       ┌─► connection
//!  read-ahead ─────► Bucket::begin ─┼─► gate: at most N ────┼─► connection      retries with back-off and jitter
//!  copy ───────────► Bucket::copy ──┘   requests at once    └─► connection      a deadline for every wait
//! ```
//!
//! The crate `object_store` implements the protocols, signatures and retries; it is asynchronous. This crate
//! adds what a loader needs: blocking calls, fetches that are started early and awaited late
//! ([`Bucket::begin`]), one limit on the requests in flight and so on memory, and errors that name the
//! object, the cause and the remedy and never print a secret. [`Bucket::upload`] writes objects that are too
//! large for memory, [`Bucket::put_if`] and [`Upload::finish_if`] objects with several possible writers.
//!
//! Credentials are searched where AWS's own tools search: the environment (`AWS_ACCESS_KEY_ID`, ..), then the
//! profile (`AWS_PROFILE` in `~/.aws/credentials` and `~/.aws/config`), then the container's or the
//! instance's role. `AWS_ENDPOINT_URL` names another server, `AWS_SKIP_SIGNATURE=true` reads public buckets
//! without credentials, `AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true` puts the bucket into the host name. Google's
//! and Azure's variables are `GOOGLE_*` and `AZURE_*`.
//!
//! A program that calls [`register`] can open data sets of `stokehold-storage` in buckets, too.
//!
//! A [`Service`] is another of AWS's services, for the crates that know its requests; it has the same credentials.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! let bucket = stokehold_objects::Bucket::open(folder.path().to_str().unwrap())?;
//! bucket.put("a/b.txt", b"hello".to_vec())?;
//! let objects = bucket.list()?.objects;
//! assert_eq!((objects[0].key.as_str(), objects[0].size), ("a/b.txt", 5));
//! let mut bytes = Vec::new();
//! bucket.fetch("a/b.txt", &mut bytes)?;
//! assert_eq!(bytes, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aws;
mod bucket;
mod connect;
mod copy;
mod data;
mod error;
mod guarded;
mod keys;
mod location;
mod options;
mod runtime;
mod secrets;
mod service;
mod upload;

pub use bucket::{Begun, Bucket, Fetch, Part, Traffic, traffic};
pub use copy::Copied;
pub use data::register;
pub use error::{Cause, ObjectError};
pub use guarded::Version;
pub use location::{Location, Scheme};
pub use options::Options;
pub use service::{Api, Service, ServiceReply, Unanswered};
pub use stokehold_storage::{LeftOut, Listed, Object};
pub use upload::Upload;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
