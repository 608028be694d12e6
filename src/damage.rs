//! Warns of damage in shards that loses nothing, or only samples that the loader will report, of shards that are read
//! slowly here, and of what lies in a data set and is not read.

use crate::terminal::note;
use stokehold_storage::{Dataset, Images, SampleBytes, Source};

/// Warns of shards whose index is unusable, and of packed ones where the processor has no instructions for them.
pub fn warn(images: &Images) {
    let Images::Shards(folder) = images else { return };
    let packed = || {
        let mut first = SampleBytes::new();
        !folder.is_empty() && folder.read(0, &mut first).is_ok() && stokehold_jpeg::is_packed(first.file())
    };
    if !stokehold_jpeg::packed_is_fast() && packed() {
        note!(
            "warning: {}: its JPEGs are packed, which is only known to pay on processors with AVX2; this one may decode ordinary \
             JPEGs faster (`stokehold prepare --raw` keeps them)",
            folder.root().display()
        );
    }
    for shard in folder.shards() {
        if let Some(warning) = shard.tables_warning() {
            note!("warning: {warning} (prepare the data set again)");
        }
        if let Some(damage) = shard.damage() {
            note!(
                "warning: {}: the index is {damage}; the samples were found without it, as far as they are there \
                 (`stokehold prepare --verify` says which are not)",
                shard.path().display()
            );
        }
    }
}

/// Warns of both parts of a data set, and of what its owner may not know ([`Dataset::remarks`]).
pub fn warn_of(dataset: &Dataset) {
    std::iter::once(&dataset.train).chain(&dataset.val).for_each(warn);
    for remark in dataset.remarks() {
        note!("warning: {remark}");
    }
}
