//! The executors `gpu` and `fused` beside each other on the same files, after they were held equal on them.
//!
//!   cargo run --release -p stokehold-gpu --features cuda --example bench_gpu -- PHOTOS DEVICE
//!       [WORKERS [BATCH [SIDE [PASSES]]]]
//!
//! PHOTOS is a folder; its files are read beforehand. For whole pictures that are only resized (load `none`) and for loads 0, 1, 4, 8
//! and 12 of the published experiment, in turn, of `gpu` with symbols read by the CPU and by the device, and of `fused`: images a second, CPU seconds a thousand images,
//! and of `gpu` how much of the time workers were waited for, and the memory that CubeCL took of the device, which it keeps
//! while a way is measured: the peak.
//! `bench/gpu.sh` runs it.

use cubecl::MemoryScope;
use cubecl::server::ServerError;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;
use stokehold_gpu::{Batcher, Decode, Gpu, InWork, Prepared, Preparer};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, SampleType};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Device memory of a batch, in bytes.
const BUDGET: u64 = 4 << 30;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, device, rest @ ..] = &arguments[..] else {
        return Err("usage: bench_gpu PHOTOS DEVICE [WORKERS [BATCH [SIDE [PASSES]]]]".into());
    };
    let number = |at: usize, default: usize| rest.get(at).map_or(Ok(default), |text: &String| text.parse());
    let workers = number(0, thread::available_parallelism()?.get())?.max(1);
    let (batch, side, passes) = (
        number(1, 64)?.max(1),
        number(2, 224)? as u32,
        number(3, 3)?.max(1),
    );
    let files = read(Path::new(folder))?;
    let gpu = Gpu::open(device.parse()?)?;
    println!(
        "{} files, {workers} workers, batches of {batch} at {side}, {passes} passes on {} ({})",
        files.len(),
        gpu.name(),
        gpu.description()
    );
    println!(
        "{:>4} {:>8} {:>10} {:>15} {:>8} {:>11}",
        "load", "way", "images/s", "CPU s/1000 img", "waiting", "device MiB"
    );
    let resized = format!("[[op]]\ntype = \"Resize\"\nsize = [{side}, {side}]\n[[op]]\ntype = \"ToFloat\"\n");
    let loads = [0, 1, 4, 8, 12].map(|load| (load.to_string(), Pipeline::published(load, side)));
    for (load, pipeline) in [("none".to_owned(), Pipeline::from_toml(&resized)?)]
        .into_iter()
        .chain(loads)
    {
        let pipeline = Arc::new(pipeline);
        let bench = Bench {
            files: &files,
            batcher: Batcher::new(gpu.clone(), &pipeline, SampleType::F16, BUDGET)?,
            pipeline,
            workers,
            batch,
        };
        let show = |way: &str, measured: Measured, memory: u64| {
            let Measured { rate, cpu, waited } = measured;
            println!(
                "{load:>4} {way:>8} {rate:>10.0} {cpu:>15.2} {:>7.0}% {:>11}",
                100.0 * waited,
                memory.div_ceil(1 << 20)
            );
        };
        for (way, decode) in [("hybrid", Decode::Hybrid), ("device", Decode::Device)] {
            gpu.device().client().memory_cleanup().map_err(failed)?;
            bench.check(decode)?;
            bench.gpu(decode, 1)?; // warms up
            show(way, bench.gpu(decode, passes)?, reserved(&gpu));
        }
        show("fused", bench.fused(passes)?, 0);
    }
    Ok(())
}

/// Memory of the device in bytes that this process keeps, in use or not.
fn reserved(gpu: &Gpu) -> u64 {
    let report = gpu.device().client().memory_report(MemoryScope::Device);
    report.usage().bytes_reserved
}

fn failed(error: ServerError) -> String {
    format!("{error:?}")
}

fn read(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let files: std::result::Result<Vec<_>, _> = paths
        .iter()
        .filter(|path| path.is_file())
        .map(std::fs::read)
        .collect();
    let files = files?;
    match files.is_empty() {
        true => Err(format!("{}: no files", folder.display()).into()),
        false => Ok(files),
    }
}

struct Bench<'a> {
    files: &'a [Vec<u8>],
    pipeline: Arc<Pipeline>,
    batcher: Batcher,
    workers: usize,
    batch: usize,
}

/// What passes came to.
struct Measured {
    /// Images a second.
    rate: f64,
    /// CPU seconds a thousand images.
    cpu: f64,
    /// The part of the time that the device's thread waited for workers.
    waited: f64,
}

impl Bench<'_> {
    /// Holds a batch's numbers equal.
    fn check(&self, decode: Decode) -> Result<()> {
        let mut preparer = self.preparer(decode)?;
        let mut runner = Runner::new(self.pipeline.clone(), Executor::Fused, DecodeOptions::default())?;
        let (mut samples, mut expected) = (Vec::new(), Vec::new());
        for (i, file) in self.files.iter().take(self.batch).enumerate() {
            samples.push(preparer.prepare(file, key(i))?);
            let mut numbers = vec![half::f16::ZERO; runner.output_len()];
            runner.run(file, key(i), &mut numbers)?;
            expected.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }
        let numbers = self.batcher.read(&self.batcher.run(&samples)?)?;
        let different = numbers.iter().zip(&expected).filter(|(a, b)| a != b).count();
        match numbers.len() == expected.len() && different == 0 {
            true => Ok(()),
            false => Err(format!("{different} of {} bytes are not those of fused", expected.len()).into()),
        }
    }

    fn preparer(&self, decode: Decode) -> Result<Preparer> {
        let preparer = Preparer::new(self.pipeline.clone(), DecodeOptions::default())?;
        Ok(preparer.with_decode(decode))
    }

    fn gpu(&self, decode: Decode, passes: usize) -> Result<Measured> {
        let (begin, cpu) = (Instant::now(), cpu_seconds()?);
        let count = passes * self.files.len();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let mut waited = 0.0;
        thread::scope(|scope| -> Result<()> {
            // Two batches ahead, so that memory is bounded.
            let (to, from) = mpsc::sync_channel::<Prepared>(2 * self.batch);
            for _ in 0..self.workers {
                let (to, next, failed) = (to.clone(), &next, &failed);
                let mut preparer = self.preparer(decode)?;
                scope.spawn(move || {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= count {
                            return;
                        }
                        match preparer.prepare(&self.files[i % self.files.len()], key(i)) {
                            Ok(sample) => {
                                if to.send(sample).is_err() {
                                    return;
                                }
                            }
                            Err(error) => *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error),
                        }
                    }
                });
            }
            drop(to);
            // One batch ahead, as a loader's batches are made.
            let mut ahead: Option<(InWork, Vec<Prepared>)> = None;
            loop {
                let wait = Instant::now();
                let samples: Vec<Prepared> = from.iter().take(self.batch).collect();
                waited += wait.elapsed().as_secs_f64();
                if samples.is_empty() {
                    break;
                }
                let laid_out = self.batcher.lay_out(&samples)?;
                if let Some((work, samples)) = ahead.take() {
                    self.batcher.finish(work, &samples)?;
                }
                ahead = Some((self.batcher.launch(laid_out)?, samples));
            }
            if let Some((work, samples)) = ahead {
                self.batcher.finish(work, &samples)?;
            }
            Ok(())
        })?;
        if let Some(error) = failed.lock().unwrap_or_else(|e| e.into_inner()).take() {
            return Err(error.into());
        }
        measured(begin, cpu, count, waited)
    }

    fn fused(&self, passes: usize) -> Result<Measured> {
        let (begin, cpu) = (Instant::now(), cpu_seconds()?);
        let count = passes * self.files.len();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        thread::scope(|scope| -> Result<()> {
            for _ in 0..self.workers {
                let mut runner =
                    Runner::new(self.pipeline.clone(), Executor::Fused, DecodeOptions::default())?;
                let (next, failed) = (&next, &failed);
                scope.spawn(move || {
                    let mut numbers = vec![half::f16::ZERO; runner.output_len()];
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= count {
                            return;
                        }
                        if let Err(error) =
                            runner.run(&self.files[i % self.files.len()], key(i), &mut numbers)
                        {
                            *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                        }
                    }
                });
            }
            Ok(())
        })?;
        if let Some(error) = failed.lock().unwrap_or_else(|e| e.into_inner()).take() {
            return Err(error.into());
        }
        measured(begin, cpu, count, 0.0)
    }
}

fn measured(begin: Instant, cpu: f64, count: usize, waited: f64) -> Result<Measured> {
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Measured {
        rate: count as f64 / seconds,
        cpu: 1000.0 * (cpu_seconds()? - cpu) / count as f64,
        waited: waited / seconds,
    })
}

/// CPU time of this process so far: fields 14 and 15 of /proc/self/stat, in ticks of which Linux has 100 a second.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: std::result::Result<Vec<f64>, _> = ticks.map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() / 100.0)
}

fn key(sample: usize) -> DrawKey {
    DrawKey {
        seed: 1,
        epoch: 0,
        sample: sample as u64,
    }
}
