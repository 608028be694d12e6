//! The position of a training run in its data.

use serde::{Deserialize, Serialize};

use crate::LoaderError;

/// The position of the next batch, with the facts that identify the same batches again.
///
/// Everything before `batch` has been handed to the trainer; batches that were prefetched beyond it have not,
/// and are loaded again after [`crate::Loader::resume`]. The state does not depend on the rank, the number of
/// workers or the executor: the state that one rank saves is valid for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The seed of the order and of the random operations.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The next batch of the epoch; the number of batches at the end of the epoch.
    pub batch: u64,
    /// What the position refers to.
    pub order: OrderFacts,
}

/// The facts, besides seed and epoch, that determine the samples of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFacts {
    /// Samples in the source.
    pub samples: u64,
    /// A hash (53 bits) of the samples' classes in their order.
    pub classes: u64,
    /// Images in a batch.
    pub batch_size: u64,
    /// Processes that share the epoch.
    pub world_size: u64,
    /// Whether epochs are shuffled.
    pub shuffle: bool,
    /// Whether a partial last batch is skipped.
    pub drop_last: bool,
    /// Which samples an epoch has, in words, with a hash of weights and lists.
    pub sampler: String,
}

impl State {
    /// Checks that this saved state identifies the same batches for a loader whose state is `own`.
    pub(crate) fn check(&self, own: &Self, batches: u64) -> Result<(), LoaderError> {
        let (saved, now) = (&self.order, &own.order);
        let differs = |what: &str, saved: &dyn ToString, now: &dyn ToString| {
            Err(LoaderError::State {
                what: what.into(),
                saved: saved.to_string(),
                now: now.to_string(),
            })
        };
        if self.seed != own.seed {
            differs("seed", &self.seed, &own.seed)
        } else if saved.samples != now.samples {
            differs("number of images", &saved.samples, &now.samples)
        } else if saved.classes != now.classes {
            differs("classes of the images (as a hash)", &saved.classes, &now.classes)
        } else if saved.batch_size != now.batch_size {
            differs("batch size", &saved.batch_size, &now.batch_size)
        } else if saved.world_size != now.world_size {
            differs("world size", &saved.world_size, &now.world_size)
        } else if saved.shuffle != now.shuffle {
            differs("shuffling", &saved.shuffle, &now.shuffle)
        } else if saved.drop_last != now.drop_last {
            differs("drop-last", &saved.drop_last, &now.drop_last)
        } else if saved.sampler != now.sampler {
            differs("sampler", &saved.sampler, &now.sampler)
        } else if self.batch > batches {
            differs(
                "next batch of the epoch",
                &self.batch,
                &format!("at most {batches}"),
            )
        } else {
            Ok(())
        }
    }
}
