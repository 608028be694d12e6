//! Any bytes, as the loader meets them: probed, decoded, and run through both executors. Nothing may panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, probe};

fuzz_target!(|bytes: &[u8]| {
    // Large pictures are slow and prove nothing more.
    if probe(bytes).is_ok_and(|info| u64::from(info.width) * u64::from(info.height) > 1 << 18) {
        return;
    }
    let pipeline = Arc::new(Pipeline::published(2, 32));
    for executor in [Executor::PerOp, Executor::Fused] {
        let options = DecodeOptions { exif: true };
        let mut runner = Runner::new(pipeline.clone(), executor, options).expect("the pipeline is valid");
        let mut out = vec![0.0; runner.output_len()];
        let key = DrawKey {
            seed: bytes.len() as u64,
            epoch: 0,
            sample: 0,
        };
        if runner.run(bytes, key, &mut out).is_ok() {
            assert!(out.iter().all(|value| value.is_finite()));
        }
    }
});
