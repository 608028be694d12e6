//! What the crate promises, held against libjpeg-turbo and against hostile files.

mod allocation;
mod coded;
mod coefficients;
mod exact;
mod golden;
mod hostile;
mod markers;
mod oracle;
mod packed;
mod planes;
mod region;
mod transcode;
mod writer;
