//! What the pipeline promises, held against its oracles.

mod oracle;
mod torchvision;
