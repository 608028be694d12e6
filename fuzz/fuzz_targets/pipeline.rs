//! Any text as a pipeline: what is valid must draw and run, and survive being written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_pipeline::{DrawKey, Executor, Pipeline, RgbImage, perform};

fuzz_target!(|text: &str| {
    let Ok(pipeline) = Pipeline::from_json(text).or_else(|_| Pipeline::from_toml(text)) else {
        return;
    };
    let Ok((width, height)) = pipeline.check() else {
        return;
    };
    if width > 512 || height > 512 {
        return;
    }
    let image = RgbImage {
        width: 37,
        height: 23,
        data: vec![90; 3 * 37 * 23],
    };
    let key = DrawKey {
        seed: 1,
        epoch: 2,
        sample: 3,
    };
    let Ok(steps) = pipeline.draw(key, image.width, image.height) else {
        return;
    };
    // Steps in between may be large; what they cost is the user's choice.
    let mut size = (image.width, image.height);
    for step in &steps {
        size = step.size_after(size.0, size.1);
        if u64::from(size.0) * u64::from(size.1) > 1 << 20 {
            return;
        }
    }
    for executor in [Executor::PerOp, Executor::Fused] {
        let (out, w, h) = perform(executor, &steps, &image);
        assert_eq!((out.len(), w, h), (3 * (width * height) as usize, width, height));
    }
});
