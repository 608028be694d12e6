//! Every image of a data set, read and decoded.
//!
//! A header says little about a file: half of the file may be missing. So several threads decode every image
//! as training would, and report those that fail. Where images have masks, these are decoded too, and their pixels counted.

mod report;

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stokehold_loader::{input, mask_table};
use stokehold_pipeline::{DecodeOptions, ImageInfo, Input, Mask, MaskTable, decode, probe};
use stokehold_storage::{Dataset, Images, SampleBytes, Source};

use report::Image;
pub use report::{Broken, Class, Examination, PixelClass, Pixels, Spread};

/// Reads and decodes every image of the data set that was opened from `dir`, with this many threads. `done` is called after each
/// image; it returns whether to continue.
///
/// `None` if it was not to continue.
pub fn examine(
    dir: &Path,
    data: &Dataset,
    threads: usize,
    done: &(dyn Fn() -> bool + Sync),
) -> Option<Examination> {
    let parts = [("train", Some(&data.train)), ("val", data.val.as_ref())];
    let mut all = Vec::new();
    for (part, folder) in parts
        .into_iter()
        .filter_map(|(part, folder)| Some((part, folder?)))
    {
        let found = images(part, folder, threads, done);
        if found.len() < folder.len() {
            return None;
        }
        all.extend(found);
    }
    let found = match data.train.pixel_classes() {
        Some(classes) => Examination::of_pairs(dir, &classes.names, all),
        None => Examination::new(dir, data.train.classes(), all),
    };
    Some(Examination {
        remarks: data.remarks(),
        ..found
    })
}

/// Reads and decodes all images of a folder, in the folder's order.
fn images(
    part: &'static str,
    folder: &Images,
    threads: usize,
    done: &(dyn Fn() -> bool + Sync),
) -> Vec<Image> {
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
                    if !done() {
                        next.store(folder.len(), Ordering::Relaxed);
                    }
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
