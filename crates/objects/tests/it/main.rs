//! A bucket against a real S3 server that fails on request.

mod faults;
mod moto;
mod s3;
