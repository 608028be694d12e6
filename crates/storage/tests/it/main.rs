//! Storage from outside: folders on disk and what torchvision makes of them, and shards with every kind of damage.

mod dataset;
mod folder;
mod shards;
mod synth;
mod torchvision;
mod tree;
