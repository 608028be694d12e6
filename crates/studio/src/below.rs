//! Files that people have put below the folders of jobs and runs, by the name `PLACE/PATH`.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::places::{Lost, Places, RootFolder};

/// Entries of folders that are looked at in a search, in each place.
const ENTRIES: usize = 20_000;

/// The names of at most `most` files that end so and are wanted, and whether all were looked at. Files near the folders' roots come
/// first; links to folders are not followed.
pub fn find(
    places: &Places,
    ending: &str,
    depth: usize,
    most: usize,
    is_wanted: &dyn Fn(&Path) -> bool,
) -> (Vec<String>, bool) {
    let mut found = BTreeSet::new();
    let mut is_whole = true;
    for place in places.iter() {
        let mut left = ENTRIES;
        let mut folders = VecDeque::from([(PathBuf::new(), 0)]);
        while let Some((below, at)) = folders.pop_front() {
            for entry in fs::read_dir(place.path.join(&below))
                .into_iter()
                .flatten()
                .flatten()
            {
                if left == 0 || found.len() > most {
                    is_whole = false;
                    folders.clear();
                    break;
                }
                left -= 1;
                let path = below.join(entry.file_name());
                let Some(name) = path.to_str().map(|path| format!("{}/{path}", place.id)) else {
                    continue;
                };
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && at < depth {
                    folders.push_back((path, at + 1));
                } else if !kind.is_dir()
                    && name.ends_with(ending)
                    && file(place, &path).is_ok_and(|path| is_wanted(&path))
                {
                    found.insert(name);
                }
            }
        }
    }
    is_whole &= found.len() <= most;
    (found.into_iter().take(most).collect(), is_whole)
}

/// The file of a name.
///
/// # Errors
/// It is not there, or a link leads out of its place.
pub fn named(places: &Places, name: &str) -> Result<PathBuf, Lost> {
    let (id, below) = name.split_once('/').ok_or(Lost::Missing)?;
    let place = places.iter().find(|place| place.id == id).ok_or(Lost::Missing)?;
    match name.contains('\0') {
        true => Err(Lost::Missing),
        false => file(place, Path::new(below)),
    }
}

fn file(place: &RootFolder, below: &Path) -> Result<PathBuf, Lost> {
    let is_below = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if below.as_os_str().is_empty() || !is_below {
        return Err(Lost::Missing);
    }
    let path = place.path.join(below);
    let root = place.path.canonicalize().map_err(|_| Lost::Missing)?;
    let real = path.canonicalize().map_err(|_| Lost::Missing)?;
    match real.starts_with(root) {
        true if real.is_file() => Ok(path),
        true => Err(Lost::Missing),
        false => Err(Lost::Outside),
    }
}

/// What a file has in it.
///
/// # Errors
/// It cannot be read, has more than `largest` bytes, or is no text.
pub fn text(path: &Path, largest: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(largest + 1).read_to_string(&mut text)?;
    match text.len() as u64 > largest {
        true => Err(io::Error::other(format!("it has more than {largest} bytes"))),
        false => Ok(text),
    }
}
