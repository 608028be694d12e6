//! `stokehold dataset info`: every image of a data set, read and decoded.
//!
//! A header says little about a file: half of the file may be missing. So several threads decode every image
//! as training would, and report those that fail. Where images have masks, these are decoded too, and their pixels counted.

use crate::terminal;
use std::error::Error;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use stokehold_loader::{input, mask_table};
use stokehold_pipeline::{DecodeOptions, ImageInfo, Input, Mask, MaskTable, decode, probe};
use stokehold_storage::{Dataset, Images, SampleBytes, Source};

use super::report::{Image, Report};
use crate::{damage, progress};

/// Examines the data set in `dir` and prints the report; the exit code is 1 if files are broken.
pub fn run(dir: &Path, json: bool, threads: usize) -> Result<ExitCode, Box<dyn Error>> {
    let data = Dataset::open(dir, None, 0)?;
    damage::warn_of(&data);
    let parts: Vec<(&str, &Images)> = [("train", Some(&data.train)), ("val", data.val.as_ref())]
        .into_iter()
        .filter_map(|(part, folder)| Some((part, folder?)))
        .collect();
    let bar = progress::bar(0, "decoding {bar:40} {pos}/{len} {eta}");
    bar.set_length(parts.iter().map(|(_, folder)| folder.len() as u64).sum());
    let images: Vec<Image> = parts
        .iter()
        .flat_map(|(part, folder)| examine(part, folder, threads, &bar))
        .collect();
    bar.finish_and_clear();
    let report = match data.train.pixel_classes() {
        Some(classes) => Report::of_pairs(dir, &classes.names, images),
        None => Report::new(dir, data.train.classes(), images),
    };
    match json {
        true => terminal::json(&report)?,
        false => write!(terminal::out(), "{report}")?,
    }
    Ok(ExitCode::from(u8::from(!report.broken.is_empty())))
}

/// Reads and decodes all images of a folder, in the folder's order.
fn examine(part: &'static str, folder: &Images, threads: usize, bar: &ProgressBar) -> Vec<Image> {
    let table = folder.pixel_classes().map(mask_table);
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(folder.len())));
    thread::scope(|scope| {
        for _ in 0..threads.min(folder.len()) {
            scope.spawn(|| {
                let (mut bytes, mut mask) = (SampleBytes::new(), Vec::new());
                loop {
                    let sample = next.fetch_add(1, Ordering::Relaxed);
                    if sample >= folder.len() {
                        return;
                    }
                    let mut content = match folder.read(sample, &mut bytes) {
                        Ok(()) => content(input(&bytes)),
                        Err(error) => Err(error.reason()),
                    };
                    let mut pixels = Vec::new();
                    if let (Some(table), Ok(info)) = (&table, &content) {
                        let read = folder
                            .read_mask(sample, &mut mask)
                            .map_err(|error| error.reason());
                        match read.and_then(|()| counts(&mask, table, info)) {
                            Ok(found) => pixels = found,
                            Err(reason) => {
                                content = Err(format!("its mask {}: {reason}", folder.mask_name(sample)));
                            }
                        }
                    }
                    let image = Image {
                        pixels,
                        part,
                        class: folder.class(sample),
                        path: folder.name(sample),
                        bytes: bytes.file().len() as u64,
                        content,
                    };
                    found
                        .lock()
                        .unwrap_or_else(|poison| poison.into_inner())
                        .push((sample, image));
                    bar.inc(1);
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
    found.sort_unstable_by_key(|(sample, _)| *sample);
    found.into_iter().map(|(_, image)| image).collect()
}

/// How many pixels of each class an image's mask has, for those that it has.
fn counts(mask: &[u8], table: &MaskTable, info: &ImageInfo) -> Result<Vec<(u8, u64)>, String> {
    // With --exif, training expects masks of the turned images.
    let decoded = catch_unwind(|| Mask::decode_for(mask, table, info));
    let mask = decoded
        .map_err(|_| DECODER_FAILS)?
        .map_err(|error| error.to_string())?;
    let mut counts = [0u64; 256];
    mask.data
        .iter()
        .for_each(|&class| counts[usize::from(class)] += 1);
    Ok((0..=u8::MAX)
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .collect())
}

const DECODER_FAILS: &str = "the decoder fails on this file, which is a bug in stokehold; please report it";

fn content(input: Input<'_>) -> Result<ImageInfo, String> {
    let info = probe(input.bytes).map_err(|error| error.to_string())?;
    // A panic in a decoder must not stop the examination of the other files.
    match catch_unwind(|| decode(input, &DecodeOptions::default())) {
        Ok(decoded) => decoded.map(|_| info).map_err(|error| error.to_string()),
        Err(_) => Err(DECODER_FAILS.into()),
    }
}
