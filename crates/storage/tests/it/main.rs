//! Storage from outside: folders on disk, what torchvision makes of them, and shards with every kind of damage.

mod besides;
mod dataset;
mod folder;
mod layouts;
mod list;
mod listed;
mod pairs;
mod set;
mod shards;
mod torchvision;
mod tree;
