//! What the pipeline promises, held against its oracles.

mod draws;
mod formats;
mod fused;
mod golden;
mod oracle;
mod samples;
mod text;
mod torchvision;
