//! Decoding times beside zune-jpeg's, file by file and alternating, in CPU time of this thread.
//!
//! ```text
//! cargo run --release -p stokehold-jpeg --example compare -- FOLDER [PASSES]
//! ```
//!
//! Prints, per job, the time of an image in microseconds and the ratio to zune-jpeg's full decode. The crop
//! is that of a random resized crop: 8 to 100 % of the area, 3/4 to 4/3 in aspect.

use cpu_time::ThreadTime;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

const JOBS: [&str; 7] = [
    "zune-jpeg",
    "full RGB",
    "full RGBX",
    "portable",
    "crop RGBX",
    "crop, cold tables",
    "header",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder of JPEGs is missing")?;
    let passes: usize = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let mut files = Vec::new();
    collect(Path::new(&folder), &mut files)?;
    files.truncate(400);
    let mut images = Vec::new();
    for path in files {
        let bytes = std::fs::read(path)?;
        if let Ok(header) = Header::parse(&bytes) {
            images.push((bytes, header));
        }
    }
    let (mut decoder, mut portable) = (Decoder::new(), Decoder::portable());
    let mut zune = Vec::new();
    let mut best = [f64::INFINITY; JOBS.len()];
    for _ in 0..passes {
        let mut times = [0.0; JOBS.len()];
        let mut number = 1;
        for (bytes, header) in &images {
            let crop = random_crop(header, &mut number);
            let whole = header.full();
            let mut time = |job: usize, work: &mut dyn FnMut()| {
                let start = ThreadTime::now();
                work();
                times[job] += start.elapsed().as_secs_f64();
            };
            time(0, &mut || decode_with_zune(bytes, &mut zune));
            let mut ours = |job, decoder: &mut Decoder, region, layout| {
                time(job, &mut || {
                    let _ = black_box(decoder.decode(bytes, region, Scale::Full, layout));
                })
            };
            ours(1, &mut decoder, whole, Layout::Rgb);
            ours(2, &mut decoder, whole, Layout::Rgbx);
            ours(3, &mut portable, whole, Layout::Rgb);
            ours(4, &mut decoder, crop, Layout::Rgbx);
            ours(5, &mut Decoder::new(), crop, Layout::Rgbx);
            time(6, &mut || drop(black_box(Header::parse(bytes))));
        }
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time / images.len() as f64);
        }
    }
    for (job, time) in JOBS.iter().zip(best) {
        println!("{job:18} {:8.1} us  {:5.2} x", 1e6 * time, best[0] / time);
    }
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|e| Ok(e?.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn decode_with_zune(bytes: &[u8], out: &mut Vec<u8>) {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    if decoder.decode_headers().is_ok() {
        out.resize(decoder.output_buffer_size().unwrap_or(0), 0);
        let _ = black_box(decoder.decode_into(out));
    }
}

fn random_crop(header: &Header, number: &mut u64) -> Region {
    let mut uniform = || {
        *number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*number >> 11) as f64 / (1u64 << 53) as f64
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
