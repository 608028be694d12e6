//! What a sample costs the CPU by each way, in microseconds of one thread: `host_cost FOLDER [FILES]`.
//!
//! A file is read once and prepared several times; of each way the best round counts. `fused` makes the finished sample,
//! the other two prepare it for a device, without the upload.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use stokehold_gpu::{Decode, Preparer};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, ImageError, Pipeline, Runner};

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("host_cost FOLDER [FILES]")?;
    let most: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let files: Vec<Vec<u8>> = paths
        .iter()
        .take(most)
        .map(std::fs::read)
        .collect::<Result<_, _>>()?;
    let pipeline = Arc::new(Pipeline::imagenet_train(224));
    let options = DecodeOptions::default();
    let mut runner = Runner::new(pipeline.clone(), Executor::Fused, options)?;
    let mut hybrid = Preparer::new(pipeline.clone(), options)?;
    let mut device = Preparer::new(pipeline, options)?.with_decode(Decode::Device);
    let mut out = vec![0f32; runner.output_len()];
    let mut best = [f64::MAX; 3];
    for round in 0..ROUNDS as u64 {
        let times = [
            time(&files, round, |file, key| {
                runner.run(file, key, &mut out).map(drop)
            })?,
            time(&files, round, |file, key| hybrid.prepare(file, key).map(drop))?,
            time(&files, round, |file, key| device.prepare(file, key).map(drop))?,
        ];
        best.iter_mut()
            .zip(times)
            .for_each(|(best, time)| *best = best.min(time));
    }
    let bytes = files.iter().map(Vec::len).sum::<usize>() / files.len().max(1);
    println!(
        "{} files of {bytes} bytes on average, RandomResizedCrop to 224",
        files.len()
    );
    for (name, time) in ["fused", "gpu, hybrid", "gpu, device"].into_iter().zip(best) {
        println!(
            "{name:>12}: {time:7.1} us a sample, {:.3} of fused",
            time / best[0]
        );
    }
    Ok(())
}

/// Microseconds a file.
fn time(
    files: &[Vec<u8>],
    epoch: u64,
    mut run: impl FnMut(&[u8], DrawKey) -> Result<(), ImageError>,
) -> Result<f64, ImageError> {
    let begun = Instant::now();
    for (file, sample) in files.iter().zip(0..) {
        let key = DrawKey {
            seed: 0,
            epoch,
            sample,
        };
        run(file, key)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / files.len() as f64)
}
