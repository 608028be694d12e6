//! What a process knows of the segments: which samples are in them, and where.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::lease;
use crate::segment::{self, FileExtent, Key, Scanned};

/// Segments of others that are kept open at once, of the 1,024 files that a process may usually have.
const MOST_OPEN: usize = 256;

/// All segments that this process has met, by number.
#[derive(Default)]
pub(crate) struct Known {
    pub segments: Vec<Segment>,
    /// Their paths.
    pub paths: HashSet<PathBuf>,
    pub samples: HashMap<Key, (u32, FileExtent)>,
    /// Those that are open to be read, in the order in which they were opened.
    open: VecDeque<u32>,
}

/// One of them.
pub(crate) struct Segment {
    pub path: PathBuf,
    /// Open and locked from the first read on.
    pub file: Option<Arc<File>>,
    /// It has been removed, or cannot be read: its samples do not count.
    pub gone: bool,
    pub read: Scanned,
}

impl Known {
    /// Adds a segment, and numbers it.
    pub fn push(&mut self, path: PathBuf, file: Option<Arc<File>>, from: u64) -> u32 {
        self.paths.insert(path.clone());
        self.segments.push(Segment {
            path,
            file,
            gone: false,
            read: Scanned::UpTo(from),
        });
        self.segments.len() as u32 - 1
    }

    /// The segment of a sample, and where it is in it.
    pub fn place(&self, key: Key) -> Option<(u32, FileExtent)> {
        let &(number, place) = self.samples.get(&key)?;
        (!self.segments[number as usize].gone).then_some((number, place))
    }

    /// Keeps a segment open, and closes the one that was opened first where they are too many.
    pub fn keep_open(&mut self, number: u32, file: Arc<File>) {
        // Another thread may have been faster.
        if self.segments[number as usize].file.is_some() {
            return;
        }
        if self.open.len() >= MOST_OPEN
            && let Some(first) = self.open.pop_front()
        {
            self.segments[first as usize].file = None;
        }
        self.open.push_back(number);
        self.segments[number as usize].file = Some(file);
    }
}

/// What is new in a segment from `from` on; `None` if nothing is.
pub(crate) fn found_in(
    path: &Path,
    file: Option<Arc<File>>,
    from: u64,
    found: &mut Vec<(Key, FileExtent)>,
) -> io::Result<Option<Scanned>> {
    // A process that is killed leaves a segment that ends with its last whole record, and has all that it will ever have.
    let mut has_writer = true;
    let file = match file {
        Some(file) => file,
        None => {
            let file = File::open(path)?;
            has_writer = file.metadata()?.len() < segment::START || lease::has_writer(&file)?;
            Arc::new(file)
        }
    };
    // Most of the time nothing has happened.
    if from > 0 && file.metadata()?.len() <= from {
        return Ok(None);
    }
    let scanned = segment::find(&file, from, |key, place| found.push((key, place)))?;
    match scanned {
        Scanned::UpTo(_) if !has_writer => Ok(Some(Scanned::All)),
        scanned => Ok(Some(scanned)),
    }
}

/// Ends a segment that has lost its writer, so that it takes no more room than it has. The caller holds the folder's lock. Returns its
/// length; if it cannot be written, it is as before.
pub(crate) fn end(file: &File) -> io::Result<u64> {
    let mut found = Vec::new();
    if let Scanned::UpTo(at) = segment::find(file, 0, |key, place| found.push((key, place)))? {
        let at = at.max(segment::START);
        let _ = file
            .set_len(at)
            .and_then(|()| file.write_all_at(&segment::end(&found, at), at));
    }
    Ok(file.metadata()?.len())
}
