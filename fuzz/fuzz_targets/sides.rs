//! Any sides up to the limit of pixels through pipelines that turn, resize and crop: refused for all executors, or made by all.
//! Of images too large to be made here only what is drawn is looked at.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_pipeline::{DrawKey, Executor, MAX_PIXELS, Pipeline, RgbImage, perform};

const OPS: [&str; 9] = [
    r#"{"type": "RandomRotation", "degrees": 180}, {"type": "Resize", "size": [8, 8]}"#,
    r#"{"type": "RandomRotation", "degrees": 180, "expand": true, "interpolation": "bicubic"}, {"type": "CenterCrop", "size": 8}"#,
    r#"{"type": "Resize", "size": 8, "interpolation": "bicubic"}, {"type": "CenterCrop", "size": 8}"#,
    r#"{"type": "RandomResizedCrop", "size": 8}, {"type": "RandomRotation", "degrees": 30}"#,
    r#"{"type": "Pad", "padding": 3}, {"type": "CenterCrop", "size": 8}, {"type": "RandomErasing", "p": 1}"#,
    r#"{"type": "RandomZoomOut", "p": 1, "side_range": [1, 100]}, {"type": "RandomResize", "min_size": 1, "max_size": 9}, {"type": "CenterCrop", "size": 8}"#,
    r#"{"type": "ScaleJitter", "target_size": [40, 9], "scale_range": [0.01, 100]}, {"type": "CenterCrop", "size": 8}"#,
    r#"{"type": "RandomShortestSize", "min_size": [1, 8, 16384], "max_size": 900}, {"type": "AugMix", "severity": 10}, {"type": "CenterCrop", "size": 8}"#,
    r#"{"type": "GaussianBlur", "kernel_size": 3}, {"type": "RandomCrop", "size": 8, "pad_if_needed": true}"#,
];

fuzz_target!(|input: (u32, u32, u8, u64)| {
    let (a, b, ops, seed) = input;
    let long = 1 + a % MAX_PIXELS as u32;
    let short = 1 + b % (MAX_PIXELS as u32 / long);
    let (width, height) = if seed % 2 == 0 { (long, short) } else { (short, long) };
    let ops = OPS[usize::from(ops) % OPS.len()];
    // Only the ends of pipelines differ where erasing comes: it works on floats.
    let text = match ops.split_once(r#", {"type": "RandomErasing"#) {
        Some((before, after)) => format!(r#"{{"op": [{before}, {{"type": "ToFloat"}}, {{"type": "RandomErasing{after}]}}"#),
        None => format!(r#"{{"op": [{ops}, {{"type": "ToFloat"}}]}}"#),
    };
    let pipeline = Pipeline::from_json(&text).expect("a pipeline");
    let key = DrawKey {
        seed,
        epoch: 0,
        sample: 0,
    };
    let Ok(steps) = pipeline.draw(key, width, height) else {
        return;
    };
    let mut most = u64::from(width) * u64::from(height);
    let mut size = (width, height);
    for step in &steps {
        size = step.size_after(size.0, size.1);
        most = most.max(u64::from(size.0) * u64::from(size.1));
    }
    assert_eq!(size, (8, 8));
    if most > 1 << 22 {
        return;
    }
    let image = RgbImage {
        width,
        height,
        data: vec![90; 3 * width as usize * height as usize],
    };
    for executor in [Executor::PerOp, Executor::Fused] {
        let (out, ..) = perform(executor, &steps, &image);
        assert!(out.iter().all(|value| (0.0..=1.0).contains(value)));
    }
});
