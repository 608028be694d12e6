//! What the packed form takes, beside the files: `packed FOLDER [PASSES]`, of up to 400 JPEGs below FOLDER.
//!
//! Tables are adapted to 64 of the images. Every packed image must have the coefficients of its file. Of each file the quickest
//! of all passes counts; the ways take turns.

use std::path::{Path, PathBuf};
use std::time::Instant;
use stokehold_jpeg::{
    Decoder, Header, Input, Metadata, PackSample, PackTables, Packer, Region, RowIndex, Scale,
    TranscodeOptions,
};

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
    let stored = tables.bytes();
    let (mut own, mut built_in) = (Packer::new(&tables), Packer::new(PackTables::built_in()));
    let options = TranscodeOptions {
        metadata: Metadata::Drop,
    };
    let (mut sums, mut bytes) = ([0.0; 8], [0usize; 4]);
    for file in &files {
        let with_rows = decoder.transcode(file, &options)?;
        let packed = decoder.pack(file, &mut own, &options)?;
        let plain = decoder.pack(file, &mut built_in, &options)?;
        for (sum, file) in bytes.iter_mut().zip([file, &with_rows.bytes, &packed, &plain]) {
            *sum += file.len();
        }
        let input = Input {
            tables: Some(&stored),
            ..Input::from(&packed)
        };
        let rows = Input {
            rows: Some(RowIndex {
                first: 0,
                offsets: &with_rows.rows,
            }),
            ..Input::from(&with_rows.bytes)
        };
        same(file, input)?;
        let crop = crop(&Header::parse(file)?);
        let mut best = [f64::MAX; 8];
        for _ in 0..passes {
            let mut time =
                |at: usize, work: &mut dyn FnMut(&mut Decoder) -> Result<(), stokehold_jpeg::Error>| {
                    let begin = Instant::now();
                    work(&mut decoder)?;
                    best[at] = best[at].min(begin.elapsed().as_secs_f64());
                    Ok::<(), stokehold_jpeg::Error>(())
                };
            time(0, &mut |d| d.coefficients(file).map(drop))?;
            time(1, &mut |d| d.coefficients(input).map(drop))?;
            time(2, &mut |d| d.decode_planes(file, crop, Scale::Full).map(drop))?;
            time(3, &mut |d| d.decode_planes(rows, crop, Scale::Full).map(drop))?;
            time(4, &mut |d| d.decode_planes(input, crop, Scale::Full).map(drop))?;
            time(5, &mut |d| d.decode_planes(file, crop, Scale::Half).map(drop))?;
            time(6, &mut |d| d.decode_planes(input, crop, Scale::Half).map(drop))?;
            time(7, &mut |d| d.pack(file, &mut own, &options).map(drop))?;
        }
        sums.iter_mut().zip(best).for_each(|(sum, best)| *sum += best);
    }
    let us = sums.map(|sum| sum * 1e6 / files.len() as f64);
    let part = |at: usize| bytes[at] as f64 / bytes[0] as f64;
    println!(
        "bytes: rows {:.4}, packed {:.4}, with built-in tables {:.4} of the files'",
        part(1),
        part(2),
        part(3)
    );
    println!(
        "coefficients: file {:.0} us, packed {:.0} us: {:.2} times",
        us[0],
        us[1],
        us[0] / us[1]
    );
    println!(
        "planes of a crop: file {:.0} us, rows {:.0} us, packed {:.0} us: {:.2} times the file's, {:.2} the rows'",
        us[2],
        us[3],
        us[4],
        us[2] / us[4],
        us[3] / us[4]
    );
    println!(
        "planes of a crop at half size: file {:.0} us, packed {:.0} us: {:.2} times",
        us[5],
        us[6],
        us[5] / us[6]
    );
    println!("packing: {:.0} us, reading the file included", us[7]);
    Ok(())
}

/// A middle part, three fifths a side.
fn crop(header: &Header) -> Region {
    Region {
        x: header.width / 5,
        y: header.height / 5,
        width: (header.width * 3 / 5).max(1),
        height: (header.height * 3 / 5).max(1),
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
