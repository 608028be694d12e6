//! `model.tar.gz` and `output.tar.gz`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use stokehold_base::whole;

/// Packs the contents of several folders into one archive; the first folder that has a file wins. Returns
/// `false` and writes nothing when there is nothing to pack.
pub(crate) fn pack(folders: &[PathBuf], to: &Path) -> io::Result<bool> {
    let mut entries = BTreeMap::new();
    for folder in folders {
        collect(folder, Path::new(""), &mut entries)?;
    }
    if entries.is_empty() {
        return Ok(false);
    }
    whole::write_with(to, |file| {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        archive.follow_symlinks(false);
        for (name, path) in &entries {
            archive.append_path_with_name(path, name)?;
        }
        archive.into_inner()?.finish().map(|_| true)
    })
}

/// The files below a folder, by their path in it.
pub(crate) fn files(folder: &Path) -> io::Result<BTreeMap<PathBuf, PathBuf>> {
    let mut entries = BTreeMap::new();
    collect(folder, Path::new(""), &mut entries)?;
    entries.retain(|_, path| path.is_file());
    Ok(entries)
}

/// Collects files, folders and links. Pipes and sockets are skipped: an archive cannot restore them.
fn collect(folder: &Path, below: &Path, entries: &mut BTreeMap<PathBuf, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, path, name) = (entry.file_type()?, entry.path(), below.join(entry.file_name()));
        if kind.is_dir() {
            collect(&path, &name, entries)?;
        }
        if kind.is_dir() || kind.is_file() || kind.is_symlink() {
            entries.entry(name).or_insert(path);
        }
    }
    Ok(())
}

/// Copies a folder's files, but not the folder `except` in it. Links are followed.
pub(crate) fn copy_folder(from: &Path, to: &Path, except: &Path) -> io::Result<()> {
    copy_below(from, to, except, 0)
}

fn copy_below(from: &Path, to: &Path, except: &Path, depth: usize) -> io::Result<()> {
    let named =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if depth > 64 {
        return Err(io::Error::other(format!(
            "{}: more than 64 folders deep; is it a link to itself?",
            from.display()
        )));
    }
    fs::create_dir_all(to).map_err(|error| named(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| named(from, error))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path == except {
            continue;
        }
        let facts = fs::metadata(&path).map_err(|error| named(&path, error))?;
        if facts.is_dir() {
            copy_below(&path, &target, except, depth + 1)?;
        } else if facts.is_file() {
            fs::copy(&path, &target).map_err(|error| named(&path, error))?;
        }
    }
    Ok(())
}
