//! The folder of a cache: its files by name, their sizes, and room for more of them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use stokehold_base::random::mix;
use stokehold_base::there::if_there;

use crate::CacheError;
use crate::known;
use crate::lease;
use crate::segment;

/// The smallest limit of a cache, in bytes.
pub const LEAST: u64 = 1 << 20;
/// What stays free of a disk for others, such as checkpoints: this part of it, and at most this many bytes.
const RESERVE: (u64, u64) = (20, 1 << 30);
/// After how many added bytes the disk is asked what it has free, at most.
const ASKED: u64 = 1 << 20;
/// What segments are called.
const SUFFIX: &str = ".skcache";
/// The file that is locked while segments are begun and removed.
pub(crate) const LOCK: &str = "lock";
/// Marks a folder as a cache: <https://bford.info/cachedir/>.
pub(crate) const TAG: &str = "CACHEDIR.TAG";

/// Makes the folder, if it is not there, and finds its one path.
pub(crate) fn made(dir: &Path) -> Result<PathBuf, CacheError> {
    let made = match dir.is_file() {
        true => Err(io::Error::other("this is a file")),
        false if dir.exists() => {
            if let Some(image) = image_in(dir) {
                let dir = dir.to_owned();
                return Err(CacheError::Images { dir, image });
            }
            mark(dir);
            fs::canonicalize(dir)
        }
        false => make(dir).and_then(|()| fs::canonicalize(dir)),
    };
    made.map_err(|source| CacheError::Io {
        path: dir.to_owned(),
        source,
    })
}

/// The name of an image among the first thousand entries of a folder: it is somebody's data, and no place for a cache.
fn image_in(dir: &Path) -> Option<String> {
    let entries = fs::read_dir(dir).ok()?.take(1000).flatten();
    let mut names = entries.map(|entry| entry.file_name());
    let image = names.find(|name| stokehold_storage::is_image_name(name))?;
    Some(image.to_string_lossy().into_owned())
}

/// Makes a folder where there is none, for its user alone: images of a private bucket are no one else's.
fn make(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    mark(dir);
    Ok(())
}

/// Marks a folder as a cache that has nothing but ours in it: programs that make backups leave such a folder out, and a class tree does
/// not take it for a class. A folder that cannot be written, or a full disk, serves without the mark.
fn mark(dir: &Path) {
    let is_ours =
        |name: &std::ffi::OsStr| name == LOCK || name.as_encoded_bytes().ends_with(SUFFIX.as_bytes());
    let mut names = fs::read_dir(dir).into_iter().flatten();
    if !names.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()))) {
        return;
    }
    let tag = dir.join(TAG);
    if let Err(error) = fs::write(&tag, "Signature: 8a477f597d28d172789f06886806bc55\n") {
        tracing::debug!(path = %tag.display(), %error, "the mark of a cache");
        let _ = fs::remove_file(tag);
    }
}

/// The segments of a folder.
pub(crate) fn segments(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().ends_with(SUFFIX.as_bytes()) && entry.file_type()?.is_file() {
            all.push(entry.path());
        }
    }
    Ok(all)
}

/// A name that no other process takes.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let seed = mix(now as u64 ^ mix(u64::from(std::process::id()) << 32 | count));
    format!("{now:x}-{seed:016x}{SUFFIX}")
}

/// Bytes of the segments of a folder.
pub(crate) fn size(dir: &Path) -> io::Result<u64> {
    let mut size = 0;
    for path in segments(dir)? {
        size += if_there(fs::metadata(path))?.map_or(0, |facts| facts.len());
    }
    Ok(size)
}

/// What a cache in the folder has and its disk has free. The folder need not be there yet, but the one above it.
pub(crate) fn room(dir: &Path) -> io::Result<u64> {
    let size = if_there(size(dir))?;
    let there = if size.is_some() { Some(dir) } else { dir.parent() };
    let disk = rustix::fs::statvfs(there.unwrap_or(dir))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(size.unwrap_or_default().saturating_add(free))
}

/// The limit of a cache that is given none: four fifths of its room.
pub(crate) fn default_limit(dir: &Path) -> io::Result<u64> {
    Ok((room(dir)? / 5 * 4).max(LEAST))
}

/// How many bytes may be added until the disk is asked again, at least `more`; none if it would have less free then than it keeps for
/// others.
pub(crate) fn allowed(dir: &Path, more: u64) -> io::Result<Option<u64>> {
    let disk = rustix::fs::statvfs(dir)?;
    let (part, most) = RESERVE;
    let reserve = (disk.f_blocks.saturating_mul(disk.f_frsize) / part).min(most);
    let left = disk.f_bavail.saturating_mul(disk.f_frsize).checked_sub(reserve);
    // Others use it, too.
    let granted = |left: u64| (left / 4).min(ASKED).max(more);
    Ok(left.filter(|left| *left >= more).map(granted))
}

/// Removes segments that no one uses, those first that were used longest ago, until `more` bytes fit below the limit. The caller holds
/// the folder's lock. Counts the bytes that it has removed, also where that is not enough.
pub(crate) fn make_room(dir: &Path, limit: u64, more: u64, removed: &AtomicU64) -> io::Result<()> {
    let (mut sum, mut free) = (0, Vec::new());
    for path in segments(dir)? {
        // To write, for network file systems lock no other files. What this user may not write stays.
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                sum += if_there(fs::metadata(&path))?.map_or(0, |facts| facts.len());
                continue;
            }
        };
        let facts = file.metadata()?;
        if lease::is_unused(&file)? {
            sum += facts.len();
            // It is closed again: there may be more of them than files may be open.
            free.push((facts.modified()?, path, facts.len()));
        } else if segment::is_complete(&file)? {
            sum += facts.len();
        } else if lease::has_writer(&file)? {
            // It may become as large as they get.
            sum += facts.len().max(more);
        } else {
            sum += known::end(&file)?;
        }
    }
    free.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    for (_, path, size) in free {
        if sum + more <= limit {
            break;
        }
        // Somebody may have begun to use it.
        let Some(file) = if_there(File::options().read(true).write(true).open(&path))? else {
            sum -= size;
            continue;
        };
        if lease::is_unused(&file).unwrap_or(false) {
            if_there(fs::remove_file(&path))?;
            removed.fetch_add(size, Ordering::Relaxed);
            sum -= size;
        }
    }
    match sum + more <= limit {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!("it is full: its limit is {} MB", limit / 1_000_000),
        )),
    }
}
