//! What the pipeline promises, held against its oracles.

mod bounds;
mod draws;
mod formats;
mod fused;
mod golden;
mod masks;
mod memory;
mod operations;
mod oracle;
mod recorded;
mod samples;
mod sides;
mod text;
mod torchvision;
