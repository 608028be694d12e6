//! Storage from outside: folders on disk, what torchvision makes of them, and shards with every kind of damage.

mod dataset;
mod folder;
mod list;
mod pairs;
mod set;
mod shards;
mod torchvision;
mod tree;
