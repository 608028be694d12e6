//! A bucket against a real S3 server that fails on request.

mod dataset;
mod faults;
mod moto;
mod redirects;
mod s3;
#[allow(dead_code)]
#[path = "../../../storage/tests/it/set.rs"]
mod set;
#[path = "../../../storage/tests/it/tree.rs"]
mod tree;
