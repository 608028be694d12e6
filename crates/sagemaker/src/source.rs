//! A script's code, as the training toolkit fetches it: an archive `sourcedir.tar.gz` in a bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use stokehold_objects::{Bucket, Options};

use crate::SageMakerError;

/// Folders that are deeper are taken for links to themselves.
const DEEPEST: usize = 64;

/// Where the code is, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is in a bucket already.
    There,
    /// An archive of this machine.
    Archive(PathBuf),
    /// A folder of this machine, which is packed without [hidden files](is_hidden). Links are followed.
    Folder(PathBuf),
    /// One file of this machine, which is packed under this name.
    File {
        /// The file.
        path: PathBuf,
        /// Its name in the archive, with folders: that of the entry point.
        name: PathBuf,
    },
}

impl Source {
    /// Puts the archive to `uri`, `s3://BUCKET/../sourcedir.tar.gz`. Returns its size in bytes; 0 if it is there already.
    ///
    /// # Errors
    /// A file cannot be read; the bucket cannot be written.
    pub fn upload(&self, uri: &str, options: &Options) -> Result<u64, SageMakerError> {
        let mut file = match self {
            Self::There => return Ok(0),
            Self::Archive(path) => File::open(path).map_err(|error| named(path, error)),
            Self::Folder(path) => found(path).and_then(|found| pack(&found.entries)),
            Self::File { path, name } => pack(&BTreeMap::from([(name.clone(), path.clone())])),
        }
        .map_err(SageMakerError::Source)?;
        let size = file.metadata().map_err(SageMakerError::Source)?.len();
        let (folder, name) = uri.rsplit_once('/').unwrap_or((uri, ""));
        let mut upload = Bucket::with_options(folder, options.clone())?.upload(name, size)?;
        let mut chunk = vec![0; 1 << 20];
        loop {
            match file.read(&mut chunk).map_err(SageMakerError::Source)? {
                0 => break,
                read => upload.write(&chunk[..read])?,
            }
        }
        upload.finish()?;
        Ok(size)
    }
}

impl Source {
    /// A sentence about what of a folder is not packed; none if all is.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn left_out(&self) -> Result<Option<String>, SageMakerError> {
        let Self::Folder(path) = self else {
            return Ok(None);
        };
        let hidden = found(path).map_err(SageMakerError::Source)?.hidden;
        let names = hidden
            .iter()
            .take(MOST_NAMED)
            .map(|name| name.display().to_string());
        let names: Vec<String> = names.collect();
        let more = if hidden.len() > MOST_NAMED { ", .." } else { "" };
        Ok((!hidden.is_empty()).then(|| {
            format!(
                "hidden files and caches of source-dir are not uploaded, {} in all: {}{more}",
                hidden.len(),
                names.join(", ")
            )
        }))
    }
}

/// The most names in a sentence.
const MOST_NAMED: usize = 10;

/// Whether a file or folder of this name stays on this machine when its folder is sent elsewhere: it begins with a dot, and may
/// have secrets (`.env`, `.git`, `.aws`), or is Python's cache.
#[must_use]
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "__pycache__"
}

/// What is below a folder, by its names there.
#[derive(Default)]
struct Found {
    /// Files and folders, and where they are.
    entries: BTreeMap<PathBuf, PathBuf>,
    hidden: BTreeSet<PathBuf>,
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The files and folders below a folder by their names in the archive. Pipes and sockets are left out.
fn found(folder: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut folders = vec![(folder.to_owned(), PathBuf::new())];
    while let Some((folder, below)) = folders.pop() {
        if below.components().count() > DEEPEST {
            let text = format!("more than {DEEPEST} folders deep; is it a link to itself?");
            return Err(named(&folder, io::Error::other(text)));
        }
        for entry in fs::read_dir(&folder).map_err(|error| named(&folder, error))? {
            let entry = entry?;
            let (path, name) = (entry.path(), below.join(entry.file_name()));
            if is_hidden(&entry.file_name()) {
                found.hidden.insert(name);
                continue;
            }
            let facts = fs::metadata(&path).map_err(|error| named(&path, error))?;
            if facts.is_dir() {
                folders.push((path.clone(), name.clone()));
            }
            if facts.is_dir() || facts.is_file() {
                found.entries.insert(name, path);
            }
        }
    }
    Ok(found)
}

/// Packs files into an archive without a name, which is read from its start. The same files make the same bytes.
fn pack(entries: &BTreeMap<PathBuf, PathBuf>) -> io::Result<File> {
    let mut archive = tar::Builder::new(GzEncoder::new(tempfile::tempfile()?, Compression::default()));
    // Without times and owners.
    archive.mode(tar::HeaderMode::Deterministic);
    for (name, path) in entries {
        archive
            .append_path_with_name(path, name)
            .map_err(|error| named(path, error))?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.rewind()?;
    Ok(file)
}
