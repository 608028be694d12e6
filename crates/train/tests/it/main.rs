//! The trainer's promises, by theme. PyTorch is the oracle where there is one: see `oracle.rs`.

mod device;
mod formula;
mod infer;
mod memory;
mod optim;
mod oracle;
mod parity;
mod resume;
mod run;
mod schedule;
mod segmentation;
mod weights;
