//! Storage from outside: folders on disk and what torchvision makes of them.

mod dataset;
mod folder;
mod synth;
mod torchvision;
mod tree;
