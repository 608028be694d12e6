//! Decoding next to libjpeg-turbo 3: the same files, one core, taking turns file by file.
//!
//! ```text
//! cd bench/jpeg && cargo run --release -- FOLDER [--passes N] [--max-images N] [--json FILE]
//! ```
//!
//! Each job is done by both on a file before the next job and the next file; who begins changes from file to file. What
//! counts is CPU time of the thread; of a file the quickest of all passes is taken, which leaves out what others on the
//! machine did, and a job's time is their sum. Before anything is timed, both must agree on every file:
//! coefficients, pixels at all scales, and regions as crops of the whole; a file on which they do not is an error.
//!
//! With JSIMD_FORCENONE=1 libjpeg-turbo leaves its SIMD code alone: a control that it was there.

mod jobs;
mod verify;

use jobs::{JOBS, Job};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stokehold_bench_jpeg::Turbo;
use stokehold_jpeg::{Header, Region};

/// One file and what is done with it.
pub struct Image {
    path: PathBuf,
    bytes: Vec<u8>,
    header: Header,
    /// A random resized crop: 8 to 100 % of the area, 3/4 to 4/3 in aspect.
    crop: Region,
}

struct Options {
    folder: PathBuf,
    passes: usize,
    max_images: usize,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!(
                "{error}\nusage: stokehold-bench-jpeg FOLDER [--passes N] [--max-images N] [--json FILE]"
            );
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        folder: PathBuf::new(),
        passes: 5,
        max_images: usize::MAX,
        json: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
        let number = |text: String| match text.parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(format!("{text} is no number from 1 on")),
        };
        match argument.as_str() {
            "--passes" => options.passes = number(value()?)?,
            "--max-images" => options.max_images = number(value()?)?,
            "--json" => options.json = Some(value()?.into()),
            _ if argument.starts_with('-') || options.folder != Path::new("") => {
                return Err(format!("{argument} is not understood"));
            }
            _ => options.folder = argument.into(),
        }
    }
    match options.folder == Path::new("") {
        true => Err("a folder of JPEGs is missing".into()),
        false => Ok(options),
    }
}

fn run(options: &Options) -> Result<(), String> {
    let images = read(&options.folder, options.max_images)?;
    let core = pin()?;
    for image in &images {
        verify::image(image)?;
    }
    let times = jobs::measure(&images, options.passes);
    let version = Turbo::version();
    let version = format!(
        "{}.{}.{}",
        version / 1_000_000,
        version / 1000 % 1000,
        version % 1000
    );
    let simd = std::env::var_os("JSIMD_FORCENONE").is_none();
    let without = if simd { "" } else { " without its SIMD code" };
    println!(
        "{}: {} images, libjpeg-turbo {version}{without}, {} passes, core {core}; coefficients, pixels and regions agree\n",
        options.folder.display(),
        images.len(),
        options.passes
    );
    println!(
        "| job | libjpeg-turbo, us an image | Stokehold, us an image | times as fast |\n|---|---:|---:|---:|"
    );
    let micros = |seconds: f64| 1e6 * seconds / images.len() as f64;
    let mut rows = Vec::new();
    for (job, [ours, theirs]) in JOBS.iter().zip(&times) {
        let Job { name, .. } = job;
        println!(
            "| {name} | {:.1} | {:.1} | **{:.2}** |",
            micros(theirs.cpu),
            micros(ours.cpu),
            theirs.cpu / ours.cpu
        );
        let side = |time: &jobs::Time| json!({"cpu_us": micros(time.cpu), "wall_us": micros(time.wall)});
        rows.push(
            json!({"job": name, "ours": side(ours), "turbo": side(theirs), "ratio": theirs.cpu / ours.cpu}),
        );
    }
    if let Some(path) = &options.json {
        let document = json!({
            "folder": options.folder, "images": images.len(), "passes": options.passes, "core": core,
            "libjpeg_turbo": version, "simd": simd, "verified": true, "jobs": rows,
        });
        let text = serde_json::to_string_pretty(&document).expect("plain values");
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The JPEGs of a folder and of those below it, or as many, evenly spread.
fn read(folder: &Path, most: usize) -> Result<Vec<Image>, String> {
    let mut paths = Vec::new();
    collect(folder, &mut paths).map_err(|error| format!("{}: {error}", folder.display()))?;
    if paths.is_empty() {
        return Err(format!("{} holds no JPEG files (.jpg, .jpeg)", folder.display()));
    }
    let most = most.min(paths.len());
    let mut state = 1;
    let read = |i: usize| {
        let path = paths[i * paths.len() / most].clone();
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let header = Header::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let crop = random_crop(&header, &mut state);
        Ok(Image {
            path,
            bytes,
            header,
            crop,
        })
    };
    (0..most).map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        let suffix = path
            .extension()
            .and_then(|suffix| suffix.to_str())
            .unwrap_or_default()
            .to_lowercase();
        match suffix.as_str() {
            _ if path.is_dir() => collect(&path, paths)?,
            "jpg" | "jpeg" => paths.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// What RandomResizedCrop draws, rejected draws left out: where the size does not fit, it is cut.
fn random_crop(header: &Header, state: &mut u64) -> Region {
    let mut uniform = || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    };
    let area = f64::from(header.width) * f64::from(header.height) * (0.08 + 0.92 * uniform());
    let aspect = (0.75f64.ln() + uniform() * (4.0f64 / 3.0 / 0.75).ln()).exp();
    let side = |value: f64, limit: u32| (value.round() as u32).clamp(1, limit);
    let (width, height) = (
        side((area * aspect).sqrt(), header.width),
        side((area / aspect).sqrt(), header.height),
    );
    let x = (uniform() * f64::from(header.width - width + 1)) as u32;
    let y = (uniform() * f64::from(header.height - height + 1)) as u32;
    Region { x, y, width, height }
}

/// Binds this thread to the last core it may use: interrupts are mostly served on the first.
fn pin() -> Result<usize, String> {
    // SAFETY: a set of cores is plain data, filled by the call with its size; it is given back as it is meant.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &mut set) != 0 {
            return Err("the cores of this process cannot be read".into());
        }
        let core = (0..libc::CPU_SETSIZE as usize)
            .rev()
            .find(|&core| libc::CPU_ISSET(core, &set));
        let core = core.ok_or("this process has no core")?;
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut one);
        match libc::sched_setaffinity(0, size, &one) {
            0 => Ok(core),
            _ => Err(format!("the process cannot be bound to core {core}")),
        }
    }
}
