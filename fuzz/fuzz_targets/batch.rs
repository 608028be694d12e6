//! Any bytes as the answer of a server of batches, and as what a trainer asks of one.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use stokehold_loader::{Loader, LoaderOptions, Pipeline};
use stokehold_remote::{Spec, check, decode, encode};
use stokehold_storage::ImageList;

/// Its four images do not exist, and are not read.
static LOADER: LazyLock<Loader> = LazyLock::new(|| {
    let mut images = ImageList::default();
    for name in ["a", "b", "c", "d"] {
        images.push(std::path::Path::new(name), 1);
    }
    let options = LoaderOptions { batch_size: 2, ..LoaderOptions::default() };
    Loader::new(Arc::new(images), Pipeline::imagenet_train(4), options).expect("the options are right")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(batch) = decode(bytes, &LOADER) {
        assert_eq!(batch.pixels.numbers().expect("in main memory").len(), batch.labels.len() * 48);
        assert_eq!(batch.labels.len(), batch.samples.len());
        assert!(batch.samples.iter().all(|sample| *sample < 4));
        let (labels, samples, bad) = (batch.labels.clone(), batch.samples.clone(), batch.bad.clone());
        let text = encode(batch, LOADER.shape()).expect("it was a batch").to_vec();
        let again = decode(&text, &LOADER).expect("it was written here");
        assert_eq!((again.labels, again.samples, again.bad), (labels, samples, bad));
        let expected = LOADER.numbered(0).samples(0);
        let mut again = decode(&text, &LOADER).expect("it was written here");
        if check(&mut again, &LOADER, &expected).is_ok() {
            assert!(again.labels.len() <= 2 && again.labels.iter().all(|label| *label == 1));
            let wanted = |sample: &u64| expected.iter().any(|(own, _)| own == sample);
            assert!(again.samples.iter().all(wanted));
        }
    }
    if let Ok(spec) = serde_json::from_slice::<Spec>(bytes) {
        let text = serde_json::to_vec(&spec).expect("it was JSON");
        assert_eq!(serde_json::from_slice::<Spec>(&text).expect("it was written here"), spec);
    }
});
