//! `model.tar.gz` and `output.tar.gz`.
//!
//! A link that stays in its folder is packed as a link. One that leads out is packed as the file or the folder that it
//! leads to: a user who unpacks the archive has no other.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::io::Errno;
use stokehold_base::whole;

use crate::JobError;
use crate::mirror::watch::DEEPEST;
use crate::model::{MOST_ENTRIES, stays};
use crate::runner::room::OPT_ML;

/// What [`pack`] did.
pub(crate) struct Packed {
    /// Whether there was something to pack.
    pub is_written: bool,
    /// Pipes, sockets and devices: an archive cannot restore them.
    pub left_out: Vec<PathBuf>,
}

/// Packs what is below the folder `below` of each instance, whose `/opt/ml` is given, into one archive; the first
/// instance that has a file wins. A script may have put a file in the folder's place: that is packed under the folder's name.
/// Writes nothing when there is nothing to pack.
///
/// # Errors
/// [`JobError::Input`] names the links that lead nowhere or to a folder that they lie in; [`JobError::Io`] for the disk.
pub(crate) fn pack(instances: &[&Path], below: &str, to: &Path) -> Result<Packed, JobError> {
    let (mut entries, mut left_out) = (BTreeMap::new(), Vec::new());
    for opt_ml in instances {
        let folder = opt_ml.join(below);
        let found = match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(JobError::io(&folder)(error)),
            Ok(facts) if facts.is_symlink() => {
                let link = fs::read_link(&folder).map_err(JobError::io(&folder))?;
                let found = led(opt_ml, &folder, &link).and_then(|found| {
                    match found.0.is_dir() || found.0.is_file() {
                        true => Ok(found),
                        false => Err(NO_FILE.to_owned()),
                    }
                });
                found.map_err(|reason| JobError::Input(wrong(&folder, &link, &reason)))?
            }
            Ok(facts) => (facts, folder.clone()),
        };
        match found {
            (facts, target) if facts.is_dir() => {
                let collected = collected(opt_ml, &target, entries)?;
                entries = collected.entries;
                left_out.extend(collected.left_out);
            }
            (facts, target) if facts.is_file() => {
                let name = folder.file_name().unwrap_or_default();
                entries.entry(name.into()).or_insert(target);
            }
            (_, target) => left_out.push(target),
        }
    }
    let is_written = !entries.is_empty();
    if !is_written {
        return Ok(Packed { is_written, left_out });
    }
    let written = whole::write_with(to, |file| {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        archive.follow_symlinks(false);
        for (name, path) in &entries {
            archive.append_path_with_name(path, name)?;
        }
        archive.into_inner()?.finish().map(|_| ())
    });
    written.map_err(JobError::io(to))?;
    Ok(Packed { is_written, left_out })
}

/// Why a link to a pipe, a socket or a device cannot be packed.
const NO_FILE: &str = "which is no file or folder";

/// Says why the link at `path` cannot be packed.
fn wrong(path: &Path, to: &Path, reason: &str) -> String {
    format!("{} is a link to {}, {reason}", path.display(), to.display())
}

/// What the link `to` at `path` leads to, and where that is; or why it cannot be packed.
fn led(opt_ml: &Path, path: &Path, to: &Path) -> Result<(fs::Metadata, PathBuf), String> {
    // The script may have used its second name of this folder.
    let target = match to.strip_prefix(OPT_ML) {
        Ok(inside) => opt_ml.join(inside).canonicalize(),
        Err(_) => path.canonicalize(),
    };
    let found = target.and_then(|target| Ok((fs::metadata(&target)?, target)));
    found.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "which is not there".to_owned(),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => "which leads back to it".to_owned(),
        _ => format!("which cannot be read: {error}"),
    })
}

/// The files below a folder, by their path in it.
pub(crate) fn files(folder: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, JobError> {
    let mut entries = collected(folder, folder, BTreeMap::new())?.entries;
    entries.retain(|_, path| path.is_file());
    Ok(entries)
}

/// Adds what is below a folder to what is found already, by names in the archive.
fn collected<'a>(
    opt_ml: &'a Path,
    folder: &Path,
    entries: BTreeMap<PathBuf, PathBuf>,
) -> Result<Collecting<'a>, JobError> {
    let folder = folder.canonicalize().map_err(JobError::io(folder))?;
    let mut collecting = Collecting {
        opt_ml,
        entries,
        above: folder
            .ancestors()
            .filter_map(|above| fs::metadata(above).ok())
            .map(|facts| number(&facts))
            .collect(),
        wrong: Vec::new(),
        left_out: Vec::new(),
    };
    let whole = collecting.folder(&folder, Path::new(""), false);
    whole.map_err(JobError::io(&folder))?;
    match collecting.wrong.is_empty() {
        true => Ok(collecting),
        false => Err(JobError::Input(collecting.wrong.join("; "))),
    }
}

/// The device and the inode.
fn number(facts: &fs::Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

struct Collecting<'a> {
    /// The folder that the script sees as `/opt/ml`, too.
    opt_ml: &'a Path,
    entries: BTreeMap<PathBuf, PathBuf>,
    /// The folders on the way from the root of the file system.
    above: Vec<(u64, u64)>,
    /// What cannot be packed, and why.
    wrong: Vec<String>,
    /// Pipes, sockets and devices.
    left_out: Vec<PathBuf>,
}

impl Collecting<'_> {
    /// Collects files, folders and links. In a folder that is outside, every link is followed: its neighbours may not be in the archive.
    fn folder(&mut self, folder: &Path, below: &Path, is_outside: bool) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), below.join(entry.file_name()));
            if self.entries.len() as u64 >= MOST_ENTRIES {
                let text = format!("there are more than {MOST_ENTRIES} files, folders and links");
                return Err(io::Error::other(text));
            }
            let facts = entry.metadata()?;
            if !facts.is_symlink() {
                self.add(&path, name, &facts, is_outside)?;
                continue;
            }
            let to = fs::read_link(&path)?;
            let is_kept = !is_outside && stays(below.components().count(), &to);
            match led(self.opt_ml, &path, &to) {
                Ok(_) if is_kept => drop(self.entries.entry(name).or_insert(path)),
                Ok((facts, _)) if facts.is_dir() && self.above.contains(&number(&facts)) => {
                    self.wrong.push(wrong(&path, &to, "a folder that it lies in"));
                }
                Ok((facts, target)) if facts.is_dir() || facts.is_file() => {
                    self.add(&target, name, &facts, true)?;
                }
                Ok(_) => self.wrong.push(wrong(&path, &to, NO_FILE)),
                Err(reason) => self.wrong.push(wrong(&path, &to, &reason)),
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: PathBuf, facts: &fs::Metadata, is_outside: bool) -> io::Result<()> {
        if facts.is_dir() {
            if name.components().count() > DEEPEST {
                self.wrong
                    .push(format!("{} is more than {DEEPEST} folders deep", path.display()));
                return Ok(());
            }
            self.above.push(number(facts));
            let collected = self.folder(path, &name, is_outside);
            self.above.pop();
            collected?;
        }
        if facts.is_dir() || facts.is_file() {
            self.entries.entry(name).or_insert_with(|| path.to_owned());
        } else {
            self.left_out.push(path.to_owned());
        }
        Ok(())
    }
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
