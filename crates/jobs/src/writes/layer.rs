//! What the upper layer of an overlay hides of the lower one.
//!
//! The kernel marks what was removed: a character device 0/0 (a whiteout) has the name of the file or folder that is
//! gone, and a folder with the attribute `user.overlay.opaque` shows nothing of the lower folder of its name. A folder
//! also hides a lower file of its name, and a file or link hides a lower folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;
use stokehold_base::there::if_there;

use crate::mirror::watch::DEEPEST;

/// Names below the layer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hides {
    pub whiteouts: BTreeSet<String>,
    pub opaque: BTreeSet<String>,
    pub folders: BTreeSet<String>,
    /// Not sent, and so they hide nothing.
    pub links: BTreeSet<String>,
}

/// Reads an upper layer that was mounted with the option `userxattr`.
pub fn hides(upper: &Path) -> io::Result<Hides> {
    let mut hides = Hides::default();
    collect(upper, "", &mut hides, 0)?;
    Ok(hides)
}

fn collect(folder: &Path, below: &str, hides: &mut Hides, depth: usize) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    if depth > DEEPEST {
        // The look at the files reports it.
        return Ok(());
    }
    // The folder may go between two system calls, and so may a file in it.
    let entries = match fs::read_dir(folder) {
        // The look at the files reports it.
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => return Ok(()),
        entries => if_there(entries).map_err(named)?,
    };
    let Some(entries) = entries else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry.map_err(named)?;
        let Some(facts) = if_there(entry.metadata()).map_err(named)? else {
            continue;
        };
        let name = entry.file_name();
        // The look at the files reports it.
        let Some(name) = name.to_str() else { continue };
        let key = match below {
            "" => name.to_owned(),
            below => format!("{below}/{name}"),
        };
        let kind = facts.file_type();
        if kind.is_dir() {
            if is_opaque(&entry.path()) {
                hides.opaque.insert(key.clone());
            }
            collect(&entry.path(), &key, hides, depth + 1)?;
            hides.folders.insert(key);
        } else if kind.is_symlink() {
            hides.links.insert(key);
        } else if kind.is_char_device() && facts.rdev() == 0 {
            hides.whiteouts.insert(key);
        }
    }
    Ok(())
}

fn is_opaque(folder: &Path) -> bool {
    let mut value = [0; 8];
    // Without the attribute, or without attributes at all, it is not.
    let length = rustix::fs::lgetxattr(folder, "user.overlay.opaque", &mut value);
    length.is_ok_and(|length| value[..length] == *b"y")
}
