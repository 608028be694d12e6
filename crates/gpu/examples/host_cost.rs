//! What a sample costs the CPU by each way, in microseconds of CPU time: `host_cost [--packed] FOLDER [FILES [DEVICE [BATCH]]]`.
//!
//! With `--packed` the JPEGs of the folder are first packed, with tables adapted to them, as `stokehold prepare` does it.
//! Files are read once and worked on several times; of each way the best round counts. `fused` makes the finished sample,
//! the other two prepare it for a device. With a device (`vulkan:0`, `cuda:0`) it also shows what batches cost: the
//! thread that lays them out, the same thread when it launches them, and CubeCL's thread, which talks to the driver. Waiting is not
//! in it, nor what lavapipe computes on threads of its own.

use cpu_time::ThreadTime;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use stokehold_gpu::{Batcher, Decode, Gpu, Prepared, Preparer};
use stokehold_jpeg::{Decoder, Input, Metadata, PackSample, PackTables, Packer, TranscodeOptions};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, SampleType};

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let packed = arguments.next_if_eq("--packed").is_some();
    let folder = arguments
        .next()
        .ok_or("host_cost [--packed] FOLDER [FILES [DEVICE [BATCH]]]")?;
    let most: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let device = arguments.next();
    let batch: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut files: Vec<Vec<u8>> = paths
        .iter()
        .take(most)
        .map(std::fs::read)
        .collect::<Result<_, _>>()?;
    let tables = match packed {
        true => Some(pack(&mut files)?),
        false => None,
    };
    let input = |file| Input {
        tables: tables.as_deref(),
        ..Input::from(file)
    };
    let bytes = files.iter().map(Vec::len).sum::<usize>() / files.len().max(1);
    println!(
        "{} files of {bytes} bytes on average, RandomResizedCrop to 224",
        files.len()
    );

    let pipeline = Arc::new(Pipeline::imagenet_train(224));
    let options = DecodeOptions::default();
    let mut runner = Runner::new(pipeline.clone(), Executor::Fused, options)?;
    let mut out = vec![0f32; runner.output_len()];
    let key = |sample: usize| DrawKey {
        seed: 0,
        epoch: 0,
        sample: sample as u64,
    };
    let fused = best(files.len(), || {
        for (i, file) in files.iter().enumerate() {
            runner.run(input(file), key(i), &mut out)?;
        }
        Ok(())
    })?;
    println!("{:>12}: {fused:6.0} us a sample", "fused");

    for (name, decode) in [("gpu, hybrid", Decode::Hybrid), ("gpu, device", Decode::Device)] {
        let mut preparer = Preparer::new(pipeline.clone(), options)?.with_decode(decode);
        let prepared = best(files.len(), || {
            for (i, file) in files.iter().enumerate() {
                preparer.prepare(input(file), key(i))?;
            }
            Ok(())
        })?;
        println!(
            "{name:>12}: {prepared:6.0} us a sample, {:.3} of fused",
            prepared / fused
        );
        if let Some(device) = &device {
            let gpu = Gpu::open(device.parse()?)?;
            let batcher = Batcher::new(gpu.clone(), &pipeline, SampleType::F16, 1 << 32)?;
            let samples = files
                .iter()
                .enumerate()
                .map(|(i, file)| preparer.prepare(input(file), key(i)));
            let samples: Vec<Prepared> = samples.collect::<Result<_, _>>()?;
            let (mut laid_out, mut launched, mut driver) = (f64::MAX, f64::MAX, f64::MAX);
            for _ in 0..ROUNDS {
                let [mut laying_out, mut launching, mut driving] = [Duration::ZERO; 3];
                for samples in samples.chunks(batch.max(1)) {
                    let before = driver_time(&gpu)?;
                    let begun = ThreadTime::now();
                    let batch = batcher.lay_out(samples)?;
                    laying_out += begun.elapsed();
                    let begun = ThreadTime::now();
                    let work = batcher.launch(batch)?;
                    launching += begun.elapsed();
                    // What is queued is given to the driver now, not when somebody waits for it.
                    gpu.device()
                        .client()
                        .flush()
                        .map_err(|error| format!("{error:?}"))?;
                    driving += driver_time(&gpu)? - before;
                    batcher.finish(work, samples)?;
                }
                let each = |time: Duration| time.as_secs_f64() * 1e6 / files.len() as f64;
                laid_out = laid_out.min(each(laying_out));
                launched = launched.min(each(launching));
                driver = driver.min(each(driving));
            }
            let all = (prepared + laid_out + launched + driver) / fused;
            println!(
                "{:>12}  {laid_out:6.1} us a sample to lay out, {launched:.1} to launch, {driver:.1} for the driver, with them {all:.3} of fused",
                ""
            );
        }
    }
    Ok(())
}

/// Packs files, and returns the bytes of their tables.
fn pack(files: &mut [Vec<u8>]) -> Result<Vec<u8>, stokehold_jpeg::Error> {
    let (mut decoder, mut sample) = (Decoder::new(), PackSample::new());
    for file in &*files {
        sample.add(&decoder.coefficients(file)?);
    }
    let tables = sample.adapt(PackTables::built_in());
    let mut packer = Packer::new(&tables);
    let options = TranscodeOptions {
        metadata: Metadata::Drop,
    };
    for file in files {
        *file = decoder.pack(&*file, &mut packer, &options)?;
    }
    Ok(tables.bytes())
}

/// CPU time so far of the thread that talks to the driver.
fn driver_time(gpu: &Gpu) -> Result<Duration, Box<dyn Error>> {
    let time = gpu
        .device()
        .client()
        .exclusive(|| ThreadTime::now().as_duration());
    time.map_err(|error| format!("{error:?}").into())
}

/// Microseconds a file of the best round.
fn best(files: usize, mut run: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = ThreadTime::now();
        run()?;
        best = best.min(begun.elapsed().as_secs_f64() * 1e6 / files as f64);
    }
    Ok(best)
}
