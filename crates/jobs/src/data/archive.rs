//! `model.tar.gz` and `output.tar.gz`.
//!
//! A link that stays in its folder is packed as a link. One that leads out is packed as the file or the folder that it
//! leads to: whoever unpacks the archive has no other.

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

/// Packs what is below the folder `below` of each instance, whose `/opt/ml` is given, into one archive; the first
/// instance that has a file wins. Returns `false` and writes nothing when there is nothing to pack.
///
/// # Errors
/// [`JobError::Input`] names the links that lead nowhere or to a folder that they lie in; [`JobError::Io`] for the disk.
pub(crate) fn pack(instances: &[&Path], below: &str, to: &Path) -> Result<bool, JobError> {
    let mut entries = BTreeMap::new();
    for opt_ml in instances {
        let folder = opt_ml.join(below);
        if folder.is_dir() {
            entries = collected(opt_ml, &folder, entries)?;
        }
    }
    if entries.is_empty() {
        return Ok(false);
    }
    let written = whole::write_with(to, |file| {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        archive.follow_symlinks(false);
        for (name, path) in &entries {
            archive.append_path_with_name(path, name)?;
        }
        archive.into_inner()?.finish().map(|_| true)
    });
    written.map_err(JobError::io(to))
}

/// The files below a folder, by their path in it.
pub(crate) fn files(folder: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, JobError> {
    let mut entries = collected(folder, folder, BTreeMap::new())?;
    entries.retain(|_, path| path.is_file());
    Ok(entries)
}

/// Adds what is below a folder to what is found already, by names in the archive.
fn collected(
    opt_ml: &Path,
    folder: &Path,
    entries: BTreeMap<PathBuf, PathBuf>,
) -> Result<BTreeMap<PathBuf, PathBuf>, JobError> {
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
    };
    let whole = collecting.folder(&folder, Path::new(""), false);
    whole.map_err(JobError::io(&folder))?;
    match collecting.wrong.is_empty() {
        true => Ok(collecting.entries),
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
}

impl Collecting<'_> {
    /// Collects files, folders and links. Pipes and sockets are skipped: an archive cannot restore them. In a folder that
    /// is outside, every link is followed: its neighbours may not be in the archive.
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
            let wrong = |reason: &str| format!("{} is a link to {}, {reason}", path.display(), to.display());
            let is_kept = !is_outside && stays(below.components().count(), &to);
            // The script may have used its second name of this folder.
            let inside = to.strip_prefix(OPT_ML).map(|inside| self.opt_ml.join(inside));
            let target = match inside {
                Ok(inside) => inside.canonicalize(),
                Err(_) => path.canonicalize(),
            };
            match target.and_then(|target| Ok((fs::metadata(&target)?, target))) {
                Ok(_) if is_kept => drop(self.entries.entry(name).or_insert(path)),
                Ok((facts, _)) if facts.is_dir() && self.above.contains(&number(&facts)) => {
                    self.wrong.push(wrong("a folder that it lies in"));
                }
                Ok((facts, target)) if facts.is_dir() || facts.is_file() => {
                    self.add(&target, name, &facts, true)?;
                }
                Ok(_) => self.wrong.push(wrong("which is no file or folder")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.wrong.push(wrong("which is not there"));
                }
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    self.wrong.push(wrong("which leads back to it"));
                }
                Err(error) => self.wrong.push(wrong(&format!("which cannot be read: {error}"))),
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
