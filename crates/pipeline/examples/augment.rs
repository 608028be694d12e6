//! One image through a pipeline in three epochs, by both executors:
//! `cargo run --release -p stokehold-pipeline --example augment [FILE]`.
//!
//! Without FILE it generates an image.

use std::error::Error;
use std::sync::Arc;

use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, probe};
use stokehold_synth::{SynthOptions, generate};

const PIPELINE: &str = r#"
[[op]]
type = "RandomResizedCrop"
size = 224

[[op]]
type = "RandomHorizontalFlip"

[[op]]
type = "ColorJitter"
brightness = 0.4
saturation = 0.4

[[op]]
type = "ToFloat"

[[op]]
type = "Normalize"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => generated()?,
    };
    let pipeline = Arc::new(Pipeline::from_toml(PIPELINE)?);
    let options = DecodeOptions::default();
    // One runner per thread: it keeps its buffers for the next image.
    let mut fused = Runner::new(Arc::clone(&pipeline), Executor::Fused, options)?;
    let mut per_op = Runner::new(Arc::clone(&pipeline), Executor::PerOp, options)?;
    let mut sample = vec![0.0_f32; fused.output_len()]; // (3, 224, 224)
    let mut reference = vec![0.0_f32; per_op.output_len()];

    let info = probe(&bytes)?;
    println!("{} x {} pixels, {:?}", info.width, info.height, info.format);
    for epoch in 0..3 {
        let key = DrawKey {
            seed: 1,
            epoch,
            sample: 0,
        };
        println!("\nepoch {epoch}");
        for step in pipeline.draw(key, info.width, info.height)? {
            println!("  {step}");
        }
        for (executor, runner, out) in [
            (Executor::Fused, &mut fused, &mut sample),
            (Executor::PerOp, &mut per_op, &mut reference),
        ] {
            let times = runner.run(&bytes, key, out)?;
            println!(
                "  {executor}: decoded in {:.1?}, augmented in {:.1?}",
                times.decode, times.augment
            );
        }
        let differences = sample.iter().zip(&reference).map(|(a, b)| (a - b).abs());
        let mean = differences.sum::<f32>() / sample.len() as f32;
        println!("  they differ by {mean:.4} on average");
    }
    Ok(())
}

/// The bytes of a generated JPEG.
fn generated() -> Result<Vec<u8>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let options = SynthOptions {
        images: 1,
        classes: 1,
        ..SynthOptions::default()
    };
    generate(&data, &options, &mut |_done, _of| {})?;
    Ok(std::fs::read(data.join("train/disc-plain/00000.jpg"))?)
}
