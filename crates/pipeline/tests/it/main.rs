//! What the pipeline promises, held against its oracles.

mod fused;
mod oracle;
mod torchvision;
