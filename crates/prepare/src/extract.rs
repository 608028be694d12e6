//! Shards back to files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_base::whole;
use stokehold_jpeg::{Decoder, Metadata, TranscodeOptions, is_packed};
use stokehold_loader::input;
use stokehold_pipeline::{Format, probe};
use stokehold_storage::shard::{Manifest, ShardFolder};
use stokehold_storage::{PixelClasses, SampleBytes, Source, StorageError};

use crate::prepare::{Progress, write_error};
use crate::verify::manifest;
use crate::{PrepareError, output};

/// Writes every sample of the prepared data set in `out` to `dir`, as the file it was made of was called:
/// `dir/train/cat/1.jpg`. Masks are called as their images are, in a folder of their own (`dir/train-masks/cat/1.png`), and
/// `dir/classes.toml` has their classes, so that it is a data set of pairs. A JPEG that is called `.png` or `.webp` gets `.jpg` after its name. Damaged samples are left out and
/// returned.
///
/// # Errors
/// There are no shards; a sample has a name that leads elsewhere; a file is there already or cannot be
/// written; below `dir` a symbolic link is in the way, which could lead out of it.
pub fn extract(
    out: &Path,
    dir: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Lost>, PrepareError> {
    let manifest = manifest(out)?;
    let done = Progress {
        done: 0,
        kept: 0,
        of: manifest.parts.values().map(|part| part.samples as usize).sum(),
    };
    let mut work = Work {
        dir,
        stop,
        done,
        progress,
        bytes: SampleBytes::new(),
        jpeg: Decoder::new(),
        lost: Vec::new(),
    };
    for (part, _) in manifest.image_parts() {
        let images = ShardFolder::open(out, part, &manifest)?;
        let names = work.part(&images, part, |sample, file| {
            file_name(images.below(sample), file).map(Ok)
        })?;
        let masks = format!("{part}{}", Manifest::MASKS);
        if manifest.parts.contains_key(&masks) {
            let files = ShardFolder::open(out, &masks, &manifest)?;
            work.part(&files, &masks, |sample, _| {
                let name = names[sample].clone();
                let name = name.ok_or_else(|| "its image could not be extracted".to_owned());
                Ok(name.map(|name| name.with_extension("png")))
            })?;
        }
    }
    if let Some(classes) = &manifest.pixels {
        let table = classes.table(manifest.image_parts().map(|(part, _)| part.as_str()));
        let path = place(dir, Path::new(PixelClasses::FILE))?;
        whole::write(&path, table.as_bytes()).map_err(|source| write_error(&path, source))?;
    }
    Ok(work.lost)
}

struct Work<'a> {
    dir: &'a Path,
    stop: &'a AtomicBool,
    done: Progress,
    progress: &'a mut dyn FnMut(Progress),
    bytes: SampleBytes,
    jpeg: Decoder,
    lost: Vec<Lost>,
}

impl Work<'_> {
    /// Writes the samples of a part. Returns their names below it; `None` for those that are lost.
    fn part(
        &mut self,
        folder: &ShardFolder,
        part: &str,
        name: impl Fn(usize, &[u8]) -> Result<Result<PathBuf, String>, PrepareError>,
    ) -> Result<Vec<Option<PathBuf>>, PrepareError> {
        let mut names = Vec::with_capacity(folder.len());
        for sample in 0..folder.len() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Interrupted);
            }
            let found = match folder.read(sample, &mut self.bytes) {
                Err(error @ StorageError::ShardDamaged { .. }) => Err(error.to_string()),
                read => {
                    read?;
                    name(sample, self.bytes.file())?
                }
            };
            let found = found.and_then(|name| Ok((name, file(&self.bytes, &mut self.jpeg)?)));
            match &found {
                Ok((name, file)) => {
                    let path = place(self.dir, &Path::new(part).join(name))?;
                    whole::write(&path, file).map_err(|source| write_error(&path, source))?;
                }
                Err(reason) => self.lost.push(Lost {
                    name: String::from_utf8_lossy(folder.below(sample)).into_owned(),
                    reason: reason.clone(),
                }),
            }
            names.push(found.ok().map(|(name, _)| name));
            self.done.done += 1;
            (self.progress)(self.done);
        }
        Ok(names)
    }
}

/// A sample as other programs read it: of a packed JPEG an ordinary one with the same coefficients.
fn file<'a>(bytes: &'a SampleBytes, jpeg: &mut Decoder) -> Result<Cow<'a, [u8]>, String> {
    if !is_packed(bytes.file()) {
        return Ok(Cow::Borrowed(bytes.file()));
    }
    // What metadata there is was to be kept.
    let options = TranscodeOptions {
        metadata: Metadata::Keep,
    };
    match jpeg.transcode(input(bytes), &options) {
        Ok(transcoded) => Ok(Cow::Owned(transcoded)),
        Err(error) => Err(format!("its packed JPEG cannot be read: {error}")),
    }
}

/// A sample that could not be extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its name below the data set's part.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The path of a new file below `dir`, in folders that are there.
fn place(dir: &Path, below: &Path) -> Result<PathBuf, PrepareError> {
    fs::create_dir_all(dir).map_err(|source| write_error(dir, source))?;
    let mut path = dir.to_owned();
    for folder in below.parent().into_iter().flat_map(Path::components) {
        path.push(folder);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => not_a_link(&path)?,
            made => made.map_err(|source| write_error(&path, source))?,
        }
    }
    let path = dir.join(below);
    not_a_link(&whole::aside(&path))?;
    // Under the other name it is written first.
    for taken in [&path, &whole::aside(&path)] {
        if taken.symlink_metadata().is_ok() {
            let there = io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file of this name; extract into a new folder",
            );
            return Err(write_error(taken, there));
        }
    }
    Ok(path)
}

/// What is written through a link goes wherever it leads.
fn not_a_link(path: &Path) -> Result<(), PrepareError> {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => Err(write_error(
            path,
            io::Error::other("it is a symbolic link, which may lead elsewhere; extract into a new folder"),
        )),
        _ => Ok(()),
    }
}

/// Where a sample goes, below its part.
fn file_name(name: &[u8], file: &[u8]) -> Result<PathBuf, PrepareError> {
    let path = Path::new(OsStr::from_bytes(name));
    // Compared with what they make, too: `a//b`, `a/./b` and `a/` are other spellings of names that there may be already.
    let below = path.components().all(|part| matches!(part, Component::Normal(_)))
        && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    // A file that is being written has such a name, and would replace this one.
    let reserved = path.extension() == Some(OsStr::new(whole::PARTIAL));
    if !below || reserved || name.is_empty() || name.contains(&0) {
        return Err(PrepareError::Name {
            name: String::from_utf8_lossy(name).into_owned(),
        });
    }
    let format = probe(file).map(|info| info.format);
    let called = path.extension().map(OsStr::to_ascii_lowercase);
    let otherwise = called.is_some_and(|called| called == "png" || called == "webp");
    if format == Ok(Format::Jpeg) && otherwise {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(output::extension(Format::Jpeg));
        return Ok(name.into());
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        for name in [
            "../x.jpg",
            "/etc/x.jpg",
            "a/../../x.jpg",
            "",
            "./a.jpg",
            "a\0.jpg",
            "a/./x.jpg",
            "a//x.jpg",
            "a/x.jpg/",
            "a/x.jpg.partial",
        ] {
            assert!(
                matches!(file_name(name.as_bytes(), b""), Err(PrepareError::Name { .. })),
                "{name:?}"
            );
        }
        for name in ["a/b.c/x.jpg", "a.partial/x.jpg"] {
            assert_eq!(file_name(name.as_bytes(), b"").unwrap(), Path::new(name));
        }
    }
}
