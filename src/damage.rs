//! Warns of damage in shards that loses nothing, or only samples that the loader will report.

use crate::terminal::note;
use stokehold_storage::{Dataset, Images};

/// Warns of shards whose index is unusable.
pub fn warn(images: &Images) {
    let Images::Shards(folder) = images else { return };
    for shard in folder.shards() {
        if let Some(damage) = shard.damage() {
            note!(
                "warning: {}: the index is {damage}; the samples were found without it, as far as they are there \
                 (`stokehold prepare --verify` says which are not)",
                shard.path().display()
            );
        }
    }
}

/// Warns of both parts of a data set.
pub fn warn_of(dataset: &Dataset) {
    std::iter::once(&dataset.train).chain(&dataset.val).for_each(warn);
}
