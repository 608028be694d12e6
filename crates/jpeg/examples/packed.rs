//! What the packed form takes, next to the files: `packed FOLDER [PASSES]`, of up to 400 JPEGs below FOLDER.
//!
//! Tables are adapted to 64 of the images. Every packed image must have the coefficients of its file. Of each kind of reading both
//! sides take turns, a pass over all images each; what counts is the time that the thread ran. Of the passes' ratios there are
//! the median and the range.

use std::path::{Path, PathBuf};
use std::time::Instant;
use stokehold_jpeg::{
    Decoder, Error, Header, Input, Metadata, PackSample, PackTables, Packer, Region, Scale, TranscodeOptions,
};

const DROP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Drop,
};

/// An image in all its forms.
struct Image {
    file: Vec<u8>,
    packed: Vec<u8>,
    header: Header,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("packed FOLDER [PASSES]")?);
    let passes: usize = match arguments.next() {
        Some(passes) => passes.to_str().ok_or("PASSES is no number")?.parse()?,
        None => 5,
    };
    let mut paths = Vec::new();
    find(&folder, &mut paths)?;
    paths.sort();
    let step = paths.len().div_ceil(400).max(1);
    let files: Vec<Vec<u8>> = paths
        .iter()
        .step_by(step)
        .map(std::fs::read)
        .collect::<Result<_, _>>()?;
    let mut decoder = Decoder::new();
    let mut sample = PackSample::new();
    for file in files.iter().step_by(files.len().div_ceil(64).max(1)) {
        sample.add(&decoder.coefficients(file)?);
    }
    let begin = Instant::now();
    let tables = sample.adapt(PackTables::built_in());
    println!("{} files, tables adapted in {:.0?}", files.len(), begin.elapsed());
    let images = pack(&mut decoder, files, &tables)?;
    compare(decoder, &images, &tables, passes)
}

/// Packs all files, and prints how many bytes that takes.
fn pack(
    decoder: &mut Decoder,
    files: Vec<Vec<u8>>,
    tables: &PackTables,
) -> Result<Vec<Image>, Box<dyn std::error::Error>> {
    let stored = tables.bytes();
    let (mut own, mut built_in) = (Packer::new(tables), Packer::new(PackTables::built_in()));
    let (mut images, mut bytes) = (Vec::new(), [0usize; 3]);
    for file in files {
        let packed = decoder.pack(&file, &mut own, &DROP)?;
        let plain = decoder.pack(&file, &mut built_in, &DROP)?;
        for (sum, file) in bytes.iter_mut().zip([&file, &packed, &plain]) {
            *sum += file.len();
        }
        let input = Input {
            tables: Some(&stored),
            ..Input::from(&packed)
        };
        same(&file, input)?;
        let header = Header::parse(&file)?;
        images.push(Image { file, packed, header });
    }
    let part = |at: usize| bytes[at] as f64 / bytes[0] as f64;
    let [packed, plain] = [1, 2].map(part);
    println!("bytes: packed {packed:.4}, with built-in tables {plain:.4} of the files'");
    println!("packed: {}, with built-in tables {} bytes", bytes[1], bytes[2]);
    Ok(images)
}

/// Times all kinds of reading, from the files and from the packed images; and packing.
fn compare(
    decoder: Decoder,
    images: &[Image],
    tables: &PackTables,
    passes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let stored = tables.bytes();
    let mut packer = Packer::new(tables);
    let mut race = Race {
        decoder,
        images,
        passes,
    };
    race.run(
        "coefficients",
        &mut |d, image, _| d.coefficients(&image.file).map(drop),
        &mut |d, image, _| d.coefficients(image.packed(&stored)).map(drop),
    )?;
    let planes =
        |d: &mut Decoder, input: Input<'_>, region, scale| d.decode_planes(input, region, scale).map(drop);
    let full = |_: &mut u64, header: &Header| header.full();
    let kinds: [(&str, Choice, Scale); 5] = [
        ("planes", full, Scale::Full),
        ("planes of random crops", crop, Scale::Full),
        ("planes of random crops at half size", crop, Scale::Half),
        ("planes at half size", full, Scale::Half),
        ("planes at an eighth of the size", full, Scale::Eighth),
    ];
    for (name, region, scale) in kinds {
        race.run(
            name,
            &mut |d, image, random| planes(d, Input::from(&image.file), region(random, &image.header), scale),
            &mut |d, image, random| planes(d, image.packed(&stored), region(random, &image.header), scale),
        )?;
    }
    race.run(
        "packing, and reading the coefficients alone",
        &mut |d, image, _| d.pack(&image.file, &mut packer, &DROP).map(drop),
        &mut |d, image, _| d.coefficients(&image.file).map(drop),
    )
}

impl Image {
    fn packed<'a>(&'a self, tables: &'a [u8]) -> Input<'a> {
        Input {
            tables: Some(tables),
            ..Input::from(&self.packed)
        }
    }
}

/// Which region of an image is read; with numbers that look random.
type Choice = fn(&mut u64, &Header) -> Region;

/// What is timed, of an image; with numbers that look random.
type Work<'w> = &'w mut dyn FnMut(&mut Decoder, &Image, &mut u64) -> Result<(), Error>;

struct Race<'i> {
    decoder: Decoder,
    images: &'i [Image],
    passes: usize,
}

impl Race<'_> {
    /// Times both ways in turns.
    fn run(&mut self, name: &str, one: Work<'_>, other: Work<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let mut times = [Vec::new(), Vec::new()];
        // The first pass warms up.
        for pass in 0..=self.passes as u64 {
            times[0].push(self.pass(pass, one)?);
            times[1].push(self.pass(pass, other)?);
        }
        let [one, other] = times.map(|times| times[1..].to_vec());
        let ratios = one.iter().zip(&other).map(|(one, other)| one / other).collect();
        let ((one, ..), (other, ..)) = (range(one), range(other));
        let (ratio, least, most) = range(ratios);
        println!("{name}: {one:.0} us against {other:.0} us: {ratio:.2} times ({least:.2} to {most:.2})");
        Ok(())
    }

    /// The microseconds that an image takes.
    fn pass(&mut self, pass: u64, work: Work<'_>) -> Result<f64, Error> {
        let mut random = pass.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let begin = cpu_time();
        for image in self.images {
            work(&mut self.decoder, image, &mut random)?;
        }
        Ok((cpu_time() - begin) * 1e6 / self.images.len() as f64)
    }
}

/// The median, the least, and the largest.
fn range(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
    ((at(last / 2) + at(last.div_ceil(2))) / 2.0, at(0), at(last))
}

/// For how long this thread has run, in seconds; where the system does not say so, the time of day.
fn cpu_time() -> f64 {
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    match nanoseconds {
        Some(nanoseconds) => nanoseconds / 1e9,
        None => std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0.0, |time| time.as_secs_f64()),
    }
}

/// A crop as training takes them: 8 to 100 % of the area, sides of 3 : 4 to 4 : 3, anywhere.
fn crop(random: &mut u64, header: &Header) -> Region {
    let mut unit = || {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        (*random >> 11) as f64 / (1u64 << 53) as f64
    };
    let area = f64::from(header.width) * f64::from(header.height) * (0.08 + 0.92 * unit());
    let ratio = (0.75f64.ln() + (16f64 / 9.0).ln() * unit()).exp();
    let side = |side: f64, whole: u32| (side.round() as u32).clamp(1, whole);
    let (width, height) = (
        side((area * ratio).sqrt(), header.width),
        side((area / ratio).sqrt(), header.height),
    );
    Region {
        x: (unit() * f64::from(header.width - width + 1)) as u32,
        y: (unit() * f64::from(header.height - height + 1)) as u32,
        width,
        height,
    }
}

fn same(file: &[u8], packed: Input<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (mut a, mut b) = (Decoder::new(), Decoder::new());
    let (file, packed) = (a.coefficients(file)?, b.coefficients(packed)?);
    for (a, b) in file.components().iter().zip(packed.components()) {
        if a.steps != b.steps || !(0..a.blocks_high).all(|y| a.row(y) == b.row(y)) {
            return Err("the packed image has other coefficients".into());
        }
    }
    Ok(())
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => find(&path, paths)?,
            false
                if path
                    .extension()
                    .is_some_and(|e| e.eq_ignore_ascii_case("jpg") || e.eq_ignore_ascii_case("jpeg")) =>
            {
                paths.push(path);
            }
            false => {}
        }
    }
    Ok(())
}
