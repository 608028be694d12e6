//! The executors `gpu` and `fused` next to each other on the same files, after they were held equal on them.
//!
//!   cargo run --release -p stokehold-gpu --features cuda --example bench_gpu -- PHOTOS DEVICE
//!       [WORKERS [BATCH [SIDE [PASSES]]]]
//!
//! PHOTOS is a folder; its files are read beforehand, and the numbers of every one of them are held equal at each load. For whole pictures that are only resized (load `none`) and for loads 0, 1, 4, 8
//! and 12 of the published experiment, in turn, of `gpu` with symbols read by the CPU and by the device, and of `fused`: images a second, CPU seconds a thousand images,
//! and of `gpu` how much of the time workers were waited for, and the memory that CubeCL took of the device, which it keeps
//! while a way is measured: the peak.
//! `bench/gpu.sh` runs it.

use cubecl::MemoryScope;
use cubecl::server::ServerError;
use half::f16;
use std::error::Error;
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;
use stokehold_gpu::{Batcher, Decode, Gpu, InWork, Prepared, Preparer};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, SampleType};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WAYS: [(&str, Decode); 2] = [("hybrid", Decode::Hybrid), ("device", Decode::Device)];

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
        bench.check()?;
        for (way, decode) in WAYS {
            gpu.device().client().memory_cleanup().map_err(failed)?;
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

struct File {
    name: String,
    bytes: Vec<u8>,
}

impl File {
    fn read(path: &Path) -> Result<File> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
        Ok(File { name, bytes })
    }

    /// An error with the file's name before it.
    fn failed(&self, error: impl Display) -> String {
        format!("{}: {error}", self.name)
    }
}

fn read(folder: &Path) -> Result<Vec<File>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let files = paths.iter().filter(|path| path.is_file());
    let files = files
        .map(|path| File::read(path))
        .collect::<Result<Vec<File>>>()?;
    match files.is_empty() {
        true => Err(format!("{}: no files", folder.display()).into()),
        false => Ok(files),
    }
}

struct Bench<'a> {
    files: &'a [File],
    pipeline: Arc<Pipeline>,
    batcher: Batcher,
    workers: usize,
    batch: usize,
}

/// A batch of files, prepared in each of the ways, and what `fused` makes of them.
struct Expected<'a> {
    files: &'a [File],
    samples: [Vec<Prepared>; 2],
    numbers: Vec<f16>,
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
    /// Holds the numbers of all files equal, in both ways.
    fn check(&self) -> Result<()> {
        let batches: Vec<&[File]> = self.files.chunks(self.batch).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (to, from) = mpsc::sync_channel(0);
            for _ in 0..self.workers {
                let (to, next, batches) = (to.clone(), &next, &batches);
                scope.spawn(move || {
                    while let Some(files) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let expected = self.expected(files).map_err(|error| error.to_string());
                        if to.send(expected).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(to);
            for expected in from {
                self.compare(&expected?)?;
            }
            Ok(())
        })
    }

    fn expected<'f>(&self, files: &'f [File]) -> Result<Expected<'f>> {
        let mut runner = Runner::new(self.pipeline.clone(), Executor::Fused, DecodeOptions::default())?;
        let mut numbers = vec![f16::ZERO; files.len() * runner.output_len()];
        for ((i, file), numbers) in files
            .iter()
            .enumerate()
            .zip(numbers.chunks_mut(runner.output_len()))
        {
            let ran = runner.run(&file.bytes, key(i), numbers);
            ran.map_err(|error| file.failed(error))?;
        }
        let mut samples = WAYS.map(|_| Vec::new());
        for (samples, (_, decode)) in samples.iter_mut().zip(WAYS) {
            let mut preparer = self.preparer(decode)?;
            for (i, file) in files.iter().enumerate() {
                let prepared = preparer.prepare(&file.bytes, key(i));
                samples.push(prepared.map_err(|error| file.failed(error))?);
            }
        }
        Ok(Expected {
            files,
            samples,
            numbers,
        })
    }

    fn compare(&self, expected: &Expected) -> Result<()> {
        let Expected {
            files,
            samples,
            numbers,
        } = expected;
        let len = numbers.len() / files.len();
        for (samples, (way, _)) in samples.iter().zip(WAYS) {
            let made = self.batcher.run(samples)?;
            if let Some((at, bad)) = made.bad.first() {
                return Err(files[*at].failed(bad).into());
            }
            let made = self.batcher.gpu().read_batch(&made)?;
            let made: Vec<f16> = made
                .chunks_exact(2)
                .map(|two| f16::from_ne_bytes([two[0], two[1]]))
                .collect();
            if made.len() != numbers.len() {
                return Err(format!("{way}: {} numbers and not {}", made.len(), numbers.len()).into());
            }
            let pairs = files.iter().zip(made.chunks(len).zip(numbers.chunks(len)));
            for (file, (made, numbers)) in pairs {
                // Bits: they are equal where both are no numbers, and 0 is not -0.
                let different = made
                    .iter()
                    .zip(numbers)
                    .filter(|(a, b)| a.to_bits() != b.to_bits())
                    .count();
                if different > 0 {
                    let what = format!("{way}: {different} of {len} numbers are not those of fused");
                    return Err(file.failed(what).into());
                }
            }
        }
        Ok(())
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
                        let file = &self.files[i % self.files.len()];
                        match preparer.prepare(&file.bytes, key(i)) {
                            Ok(sample) => {
                                if to.send(sample).is_err() {
                                    return;
                                }
                            }
                            Err(error) => note(failed, file.failed(error)),
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
                    let mut numbers = vec![f16::ZERO; runner.output_len()];
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= count {
                            return;
                        }
                        let file = &self.files[i % self.files.len()];
                        if let Err(error) = runner.run(&file.bytes, key(i), &mut numbers) {
                            note(failed, file.failed(error));
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

fn note(failed: &Mutex<Option<String>>, error: String) {
    *failed.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(error);
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
