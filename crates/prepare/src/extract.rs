//! Shards back to files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_base::whole;
use stokehold_pipeline::{Format, probe};
use stokehold_storage::shard::ShardFolder;
use stokehold_storage::{SampleBytes, Source};

use crate::prepare::{Progress, write_error};
use crate::verify::manifest;
use crate::{PrepareError, output};

/// Writes every sample of the prepared data set in `out` to `dir`, as the file it was made of was called:
/// `dir/train/cat/1.jpg`. A JPEG that is called `.png` or `.webp` gets `.jpg` behind its name.
///
/// # Errors
/// There are no shards; a sample is damaged, or has a name that leads elsewhere; a file is there already or cannot be
/// written.
pub fn extract(
    out: &Path,
    dir: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), PrepareError> {
    let manifest = manifest(out)?;
    let mut done = Progress {
        done: 0,
        kept: 0,
        of: manifest.parts.values().map(|part| part.samples as usize).sum(),
    };
    let mut bytes = SampleBytes::new();
    for part in manifest.parts.keys() {
        let folder = ShardFolder::open(out, part, &manifest)?;
        for sample in 0..folder.len() {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Interrupted);
            }
            folder.read(sample, &mut bytes)?;
            let path = dir
                .join(part)
                .join(file_name(folder.below(sample), bytes.file())?);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|source| write_error(parent, source))?;
            }
            if path.symlink_metadata().is_ok() {
                return Err(write_error(&path, std::io::ErrorKind::AlreadyExists.into()));
            }
            whole::write(&path, bytes.file()).map_err(|source| write_error(&path, source))?;
            done.done += 1;
            progress(done);
        }
    }
    Ok(())
}

/// Where a sample goes, below its part.
fn file_name(name: &[u8], file: &[u8]) -> Result<PathBuf, PrepareError> {
    let path = Path::new(OsStr::from_bytes(name));
    let below = path
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if !below || name.is_empty() || name.contains(&0) {
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
        ] {
            assert!(
                matches!(file_name(name.as_bytes(), b""), Err(PrepareError::Name { .. })),
                "{name:?}"
            );
        }
        assert_eq!(file_name(b"a/b.c/x.jpg", b"").unwrap(), Path::new("a/b.c/x.jpg"));
    }
}
