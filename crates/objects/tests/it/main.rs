//! A bucket against a real S3 server that fails on request.

mod dataset;
mod faults;
mod moto;
mod s3;
#[path = "../../../storage/tests/it/tree.rs"]
mod tree;
