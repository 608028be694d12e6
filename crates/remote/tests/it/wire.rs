//! What is no batch is refused.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use std::num::NonZeroUsize;

use stokehold_loader::{Loader, LoaderOptions, Pipeline, WorkerPool, Workers};
use stokehold_remote::{decode, encode};
use tempfile::TempDir;

use crate::data_set;

/// A loader and one of its batches on the wire.
fn sent() -> &'static (TempDir, Loader, Vec<u8>) {
    static SENT: OnceLock<(TempDir, Loader, Vec<u8>)> = OnceLock::new();
    SENT.get_or_init(|| {
        let (dir, _, images) = data_set();
        let options = LoaderOptions {
            batch_size: 4,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(Arc::new(images), Pipeline::imagenet_train(32), options).unwrap();
        let (send, made) = std::sync::mpsc::channel();
        let pool = WorkerPool::start(Workers::Count(NonZeroUsize::MIN)).unwrap();
        pool.make(&loader.numbered(0), 0, move |batch| {
            send.send(batch.unwrap()).unwrap()
        })
        .unwrap();
        let text = encode(made.recv().unwrap(), loader.shape()).unwrap().to_vec();
        (dir, loader, text)
    })
}

proptest! {
    #[test]
    fn damaged_batches_are_refused_or_read_and_never_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        head in any::<bool>(),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let (_, loader, text) = sent();
        let mut text = text.clone();
        for (at, byte) in changes {
            // Most of a batch is numbers, of which each is right.
            let at = at.index(if head { 600 } else { text.len() });
            text[at] = byte;
        }
        if cut {
            text.truncate(length.index(text.len()));
        }
        if let Ok(batch) = decode(&text, loader) {
            prop_assert_eq!(batch.pixels.numbers().unwrap().len(), batch.labels.len() * 3 * 32 * 32);
            prop_assert!(batch.samples.iter().all(|sample| (*sample as usize) < loader.images()));
        }
    }
}

#[test]
fn a_batch_of_another_loader_is_refused() {
    let (_, loader, text) = sent();
    assert_eq!(decode(text, loader).unwrap().labels.len(), 4);
    let with = |pipeline: Pipeline, options: LoaderOptions| {
        Loader::new(Arc::clone(loader.source()), pipeline, options).unwrap()
    };
    let larger = with(Pipeline::imagenet_train(64), LoaderOptions::default());
    assert!(decode(text, &larger).unwrap_err().contains("[3, 32, 32]"));
    let halves = with(
        Pipeline::imagenet_train(32),
        LoaderOptions {
            sample_type: stokehold_loader::SampleType::F16,
            ..LoaderOptions::default()
        },
    );
    assert!(
        decode(text, &halves)
            .unwrap_err()
            .contains("images of type F32, and not f16")
    );
}
