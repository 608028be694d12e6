//! Any bytes as a mask's file: an error, or a class of the table for every pixel, in both executors too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_pipeline::{DrawKey, Executor, Mask, MaskTable, Pipeline, perform_on_mask, probe};

fuzz_target!(|bytes: &[u8]| {
    // Large masks are slow and prove nothing more.
    if probe(bytes).is_ok_and(|info| u64::from(info.width) * u64::from(info.height) > 1 << 16) {
        return;
    }
    let tables = [
        MaskTable::of_values((0..300).map(|value| (value, (value % 21) as u8))),
        MaskTable::of_colors([([0; 3], 0), ([255; 3], 1), ([128, 0, 0], Mask::IGNORE)]),
    ];
    for table in &tables {
        let Ok(mask) = Mask::decode(bytes, table) else {
            continue;
        };
        let pixels = mask.width as usize * mask.height as usize;
        assert_eq!(mask.data.len(), pixels);
        assert!(mask.data.iter().all(|&class| class < 21 || class == Mask::IGNORE));
        let key = DrawKey {
            seed: bytes.len() as u64,
            epoch: 0,
            sample: 0,
        };
        let Ok(steps) = Pipeline::published(2, 32).draw(key, mask.width, mask.height) else {
            continue;
        };
        for executor in [Executor::PerOp, Executor::Fused] {
            let done = perform_on_mask(executor, &steps, mask.clone());
            assert_eq!((done.width, done.height, done.data.len()), (32, 32, 32 * 32));
            assert!(done.data.iter().all(|&class| class < 21 || class == Mask::IGNORE));
        }
    }
});
