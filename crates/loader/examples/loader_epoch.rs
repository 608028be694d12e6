//! One epoch of batches: `cargo run --release -p stokehold-loader --example loader_epoch [DATA]`.
//!
//! DATA is a folder like torchvision's ImageFolder, or of shards that `stokehold prepare` made. Without it,
//! images are generated into a temporary folder.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use stokehold_loader::{Dataset, Loader, LoaderOptions, Pipeline};
use stokehold_synth::{SynthOptions, generate};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let data = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            let data = folder.path().join("data");
            let options = SynthOptions {
                images: 400,
                ..SynthOptions::default()
            };
            generate(&data, &options, &mut |_done, _of| {})?;
            data
        }
    };
    let images = Dataset::open(&data, None, 0)?.train;
    let options = LoaderOptions {
        batch_size: 64,
        seed: 1,
        ..LoaderOptions::default()
    };
    let loader = Loader::new(Arc::new(images), Pipeline::imagenet_train(224), options)?;
    println!("{} images, {} workers", loader.images(), loader.workers());

    let start = Instant::now();
    let mut loaded = 0;
    for batch in loader.epoch(0) {
        let batch = batch?;
        let [count, channels, height, width] = batch.shape;
        println!(
            "{count} x {channels} x {height} x {width}, first label {}, waited {:.1?}",
            batch.labels[0], batch.wait
        );
        // Here a trainer takes a step with `batch.pixels.into_f32()` and `batch.labels`.
        loaded += count;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{loaded} images in {seconds:.2} s: {:.0} images/s",
        loaded as f64 / seconds
    );
    for bad in loader.bad_images() {
        println!("{}: {}", bad.name, bad.reason);
    }
    Ok(())
}
