//! A script's code, as the training toolkit fetches it: an archive `sourcedir.tar.gz` in a bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use stokehold_objects::{Bucket, Options};

use crate::SageMakerError;

/// Folders that are deeper are taken for links to themselves.
const DEEPEST: usize = 64;

/// Where the code is, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is in a bucket already.
    There,
    /// An archive of this machine, which is sent as it is.
    Archive {
        /// The archive.
        path: PathBuf,
        /// What of it is run; it has to be in it.
        entry_point: PathBuf,
    },
    /// A folder of this machine, which is packed without hidden files, job files and channels. Links are followed.
    Folder {
        /// The folder.
        path: PathBuf,
        /// What of it is run; it has to be in it.
        entry_point: PathBuf,
        /// Places of the job's channels on this machine.
        channels: Vec<PathBuf>,
    },
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
    /// A file cannot be read; the entry point is not in the archive; the bucket cannot be written.
    pub fn upload(&self, uri: &str, options: &Options) -> Result<u64, SageMakerError> {
        let Some(Packed { mut file, bytes, .. }) = self.packed().map_err(SageMakerError::Source)? else {
            return Ok(0);
        };
        let (folder, name) = uri.rsplit_once('/').unwrap_or((uri, ""));
        let mut upload = Bucket::with_options(folder, options.clone())?.upload(name, bytes)?;
        let mut chunk = vec![0; 1 << 20];
        loop {
            match file.read(&mut chunk).map_err(SageMakerError::Source)? {
                0 => break,
                read => upload.write(&chunk[..read])?,
            }
        }
        upload.finish()?;
        Ok(bytes)
    }

    /// What is uploaded and what stays, a sentence each: the size of the archive, and what of a folder is not in it. Nothing if
    /// the code is in a bucket already.
    ///
    /// # Errors
    /// As [`upload`](Self::upload), without the bucket.
    pub fn notes(&self) -> Result<Vec<String>, SageMakerError> {
        let Some(packed) = self.packed().map_err(SageMakerError::Source)? else {
            return Ok(Vec::new());
        };
        let mut notes = Vec::new();
        for why in [Stays::Hidden, Stays::JobFile, Stays::Channel] {
            let those = packed.left_out.iter().filter(|(_, is)| **is == why);
            let names: Vec<String> = those.map(|(name, _)| name.display().to_string()).collect();
            if !names.is_empty() {
                let more = if names.len() > MOST_NAMED { ", .." } else { "" };
                notes.push(format!(
                    "{why} of source-dir are not uploaded, {} in all: {}{more}",
                    names.len(),
                    names[..names.len().min(MOST_NAMED)].join(", ")
                ));
            }
        }
        let size = match packed.bytes {
            ..1_000_000 => format!("{} bytes", packed.bytes),
            bytes => format!("{:.1} MB", bytes as f64 / 1e6),
        };
        let files = match packed.files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        notes.push(format!("the archive of the code has {size} and {files}"));
        Ok(notes)
    }

    /// Makes the archive, or opens it; none if it is in a bucket already.
    fn packed(&self) -> io::Result<Option<Packed>> {
        let (path, entry_point, found) = match self {
            Self::There => return Ok(None),
            Self::Archive { path, entry_point } => {
                let mut file = File::open(path).map_err(|error| named(path, error))?;
                let names = names_of(&mut file).map_err(|error| {
                    let text = format!("is no archive of tar and gzip: {error}");
                    named(path, io::Error::new(io::ErrorKind::InvalidData, text))
                })?;
                if !names.contains(entry_point) {
                    return Err(missing(path, entry_point));
                }
                file.rewind()?;
                return Ok(Some(Packed {
                    bytes: file.metadata()?.len(),
                    files: names.len(),
                    file,
                    left_out: BTreeMap::new(),
                }));
            }
            Self::Folder {
                path,
                entry_point,
                channels,
            } => (path, entry_point, found(path, channels)?),
            Self::File { path, name } => {
                let folder = path.parent().unwrap_or(Path::new(""));
                let mut found = Found::default();
                if !is_linked_to_hidden(path, folder) {
                    found.entries.insert(name.clone(), path.clone());
                }
                (path, name, found)
            }
        };
        let mut files = 0;
        for path in found.entries.values() {
            files += usize::from(fs::metadata(path).map_err(|error| named(path, error))?.is_file());
        }
        if !found.entries.get(entry_point).is_some_and(|path| path.is_file()) {
            return Err(missing(path, entry_point));
        }
        let file = pack(&found.entries)?;
        Ok(Some(Packed {
            bytes: file.metadata()?.len(),
            files,
            file,
            left_out: found.left_out,
        }))
    }
}

/// An archive, at its start.
struct Packed {
    file: File,
    bytes: u64,
    /// The number of its files, without folders.
    files: usize,
    left_out: BTreeMap<PathBuf, Stays>,
}

/// The most names in a sentence.
const MOST_NAMED: usize = 10;

/// The largest file, in bytes, that may be a job file. Those of people have a few kilobytes.
const LARGEST_JOB_FILE: u64 = 1 << 20;

/// Why something stays on this machine when the folder that it is in is sent elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// Its name begins with a dot, or it is Python's cache `__pycache__`, or a link to something of such a name.
    Hidden,
    /// It is a job file or a study file, or what is kept of one: its variables may be secrets, and no script needs it.
    JobFile,
    /// It is the data of a channel, which the job gets by itself.
    Channel,
}

impl Stays {
    /// Judges what is at `path`, below `folder`; `channels` are the places of the job's channels on this machine.
    fn of(path: &Path, folder: &Path, channels: &[PathBuf]) -> Option<Self> {
        if path.file_name().is_some_and(is_hidden) || is_linked_to_hidden(path, folder) {
            return Some(Self::Hidden);
        }
        let place = path.canonicalize().ok();
        let is_it = |channel: &PathBuf| channel.canonicalize().ok() == place;
        if place.is_some() && channels.iter().any(is_it) {
            return Some(Self::Channel);
        }
        is_job_file(path).then_some(Self::JobFile)
    }
}

impl std::fmt::Display for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hidden => "hidden files and caches",
            Self::JobFile => "job files and study files",
            Self::Channel => "channels",
        })
    }
}

/// Whether a file or folder of this name is hidden: it begins with a dot, and may have secrets (`.env`, `.git`, `.aws`), or is
/// Python's cache.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "__pycache__"
}

/// Whether this is a symbolic link to something that is hidden. What the place of the link and that of its target have in common
/// does not count: a project may be in a hidden folder as a whole.
fn is_linked_to_hidden(path: &Path, folder: &Path) -> bool {
    if !path.is_symlink() {
        return false;
    }
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let (Ok(target), Ok(folder)) = (path.canonicalize(), folder.canonicalize()) else {
        return false;
    };
    let common = target.components().zip(folder.components());
    let common = common.take_while(|(one, other)| one == other).count();
    target.iter().skip(common).any(is_hidden)
}

/// Whether a file is one that `job run` or `tune run` reads or keeps, of whatever name.
fn is_job_file(path: &Path) -> bool {
    let is_small = |facts: fs::Metadata| facts.is_file() && facts.len() <= LARGEST_JOB_FILE;
    if !fs::metadata(path).is_ok_and(is_small) {
        return false;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    // Most files are none, and are not parsed.
    if !text.contains("entry-point") && !text.contains("objective") {
        return false;
    }
    let file: Option<Value> = toml::from_str(&text)
        .ok()
        .or_else(|| serde_json::from_str(&text).ok());
    let is_text = |pointer: &str| {
        file.as_ref()
            .and_then(|file| file.pointer(pointer)?.as_str())
            .is_some()
    };
    // A study names its job's file, or has the job in it.
    is_text("/entry-point") || is_text("/job/entry-point") || is_text("/job") && is_text("/study/objective")
}

/// What is below a folder, by its names there.
#[derive(Default)]
struct Found {
    /// Files and folders, and where they are.
    entries: BTreeMap<PathBuf, PathBuf>,
    left_out: BTreeMap<PathBuf, Stays>,
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn missing(place: &Path, entry_point: &Path) -> io::Error {
    let text = format!(
        "{}: the entry point {} is not in what is uploaded; correct entry-point or source-dir (hidden files and links to them, \
         job files and the folders of channels are not uploaded)",
        place.display(),
        entry_point.display()
    );
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// The names of the files in an archive.
fn names_of(file: &mut File) -> io::Result<BTreeSet<PathBuf>> {
    let mut archive = tar::Archive::new(MultiGzDecoder::new(file));
    let mut names = BTreeSet::new();
    for entry in archive.entries()? {
        let entry = entry?;
        if !entry.header().entry_type().is_dir() {
            // Other programs write ./train.py.
            let path = entry.path()?;
            names.insert(
                path.components()
                    .filter(|part| *part != Component::CurDir)
                    .collect(),
            );
        }
    }
    Ok(names)
}

/// The files and folders below a folder by their names in the archive. Pipes and sockets are left out.
fn found(folder: &Path, channels: &[PathBuf]) -> io::Result<Found> {
    let mut found = Found::default();
    let mut folders = vec![(folder.to_owned(), PathBuf::new())];
    while let Some((place, below)) = folders.pop() {
        if below.components().count() > DEEPEST {
            let text = format!("more than {DEEPEST} folders deep; is it a link to itself?");
            return Err(named(&place, io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        for entry in fs::read_dir(&place).map_err(|error| named(&place, error))? {
            let entry = entry?;
            let (path, name) = (entry.path(), below.join(entry.file_name()));
            if let Some(why) = Stays::of(&path, folder, channels) {
                found.left_out.insert(name, why);
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
