//! Tags and notes that people give to runs, jobs and studies: `studio.json` in the folder of each.
//!
//! The only file that the studio keeps. It is written aside and renamed, so that it is always whole, and a folder that is copied or moved
//! has its notes with it. It holds text, and is shown as text.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stokehold_base::{regular, whole};

use crate::text;

/// The file's name.
pub const FILE: &str = "studio.json";

/// The most tags, the most characters of one, and of a note.
const TAGS: usize = 20;
const TAG: usize = 40;
const NOTE: usize = 10_000;
/// The most bytes of the file that are read: more than a whole one has.
const BYTES: u64 = 256 << 10;

/// What people have said of a thing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Anything else.
    pub note: String,
}

/// The file, with what a newer version may have written there.
#[derive(Debug, Default, Serialize, Deserialize)]
struct NotesFile {
    #[serde(flatten)]
    notes: Notes,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl NotesFile {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        match regular::open(&folder.join(FILE)) {
            Ok(file) => file.take(BYTES).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        Ok(serde_json::from_slice(&text)?)
    }
}

impl Notes {
    /// Those of a folder; none where there are none or they cannot be read.
    pub fn of(folder: &Path) -> Self {
        let Self { tags, note } = NotesFile::read(folder).unwrap_or_default().notes;
        // Others may have written the file.
        Self {
            tags: tags
                .iter()
                .take(TAGS)
                .map(|tag| text::written(tag, TAG))
                .collect(),
            note: text::written(&note, NOTE),
        }
    }

    /// Checks them, and puts tags in order: without blanks at their ends, each once.
    ///
    /// # Errors
    /// What is too long or too many.
    pub fn checked(mut self) -> Result<Self, String> {
        // As they are read again.
        let plain = |tag: &String| text::written(tag.trim(), usize::MAX);
        let mut tags: Vec<String> = self.tags.iter().map(plain).collect();
        tags.retain(|tag| !tag.is_empty());
        tags.sort();
        tags.dedup();
        if tags.len() > TAGS {
            return Err(format!("{} tags are too many; {TAGS} at most", tags.len()));
        }
        if let Some(long) = tags.iter().find(|tag| tag.chars().count() > TAG) {
            return Err(format!(
                "the tag {:?} is too long; {TAG} characters at most",
                text::short(long, TAG)
            ));
        }
        let length = self.note.chars().count();
        if length > NOTE {
            return Err(format!(
                "a note of {length} characters is too long; {NOTE} at most"
            ));
        }
        self.note = text::written(self.note.trim_end(), NOTE);
        Ok(Self { tags, ..self })
    }

    /// Keeps them in a folder, in the place of `was`; empty ones are no file. `false` if others are there by now.
    ///
    /// # Errors
    /// The system's. A file that cannot be understood is not written over.
    pub fn replace(&self, was: Option<&Self>, folder: &Path) -> io::Result<bool> {
        // From the look to the end of writing: two people may press at once.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let more = NotesFile::read(folder)
            .map_err(|error| {
                let path = folder.join(FILE);
                io::Error::other(format!(
                    "{} is there and cannot be read, so it is not written over; mend it or take it away: {error}",
                    path.display()
                ))
            })?
            .more;
        if was.is_some_and(|was| *was != Self::of(folder)) {
            return Ok(false);
        }
        let kept = NotesFile {
            notes: self.clone(),
            more,
        };
        kept.write(folder).map(|()| true)
    }
}

impl NotesFile {
    fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(FILE);
        if self.notes == Notes::default() && self.more.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        whole::write(&path, serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_checked_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Notes::of(dir.path()), Notes::default());
        let notes = |tags: &[&str], note: &str| Notes {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            note: note.to_owned(),
        };
        let good = notes(&[" best", "baseline", "best", ""], "two\nlines <b>\n")
            .checked()
            .unwrap();
        assert_eq!(good, notes(&["baseline", "best"], "two\nlines <b>"));
        assert!(good.replace(None, dir.path()).unwrap());
        assert_eq!(Notes::of(dir.path()), good);
        // A writer that has not seen them does not replace them.
        assert!(
            !Notes::default()
                .replace(Some(&Notes::default()), dir.path())
                .unwrap()
        );
        assert!(Notes::default().replace(Some(&good), dir.path()).unwrap());
        assert!(!dir.path().join(FILE).exists());
        assert!(Notes::default().replace(None, dir.path()).unwrap());
        // What is written is what is read, in any script.
        let hebrew = notes(&["\u{200f}a"], "\u{200f}b\u{2028}c\u{7}")
            .checked()
            .unwrap();
        assert!(hebrew.replace(None, dir.path()).unwrap());
        assert_eq!(
            (Notes::of(dir.path()), hebrew.note.as_str()),
            (hebrew.clone(), "\u{200f}b\u{2028}c\u{fffd}")
        );
        // What a newer version has written stays, and what no one understands.
        let file = dir.path().join(FILE);
        fs::write(&file, "{\"tags\":[\"a\"],\"stars\":5}").unwrap();
        assert!(Notes::default().replace(None, dir.path()).unwrap());
        assert!(fs::read_to_string(&file).unwrap().contains("\"stars\": 5"));
        fs::write(&file, "{\"note\":\"long and precious").unwrap();
        let refused = good.replace(None, dir.path()).unwrap_err().to_string();
        assert!(refused.contains("not written over"), "{refused}");
        fs::remove_file(&file).unwrap();
        let many: Vec<String> = (0..=TAGS).map(|tag| tag.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (wrong, word) in [
            (notes(&many, ""), "21 tags"),
            (notes(&[&"ä".repeat(TAG + 1)], ""), "40 characters"),
            (notes(&[], &"x".repeat(NOTE + 1)), "10001 characters"),
        ] {
            let said = wrong.checked().unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        assert!(notes(&[&"ä".repeat(TAG)], &"x".repeat(NOTE)).checked().is_ok());
        // A file of somebody else.
        for odd in ["", "[]", "{\"tags\":1}", "{\"tags\":[\"a\\u0007\"],\"more\":1}"] {
            fs::write(dir.path().join(FILE), odd).unwrap();
            assert!(
                Notes::of(dir.path()).tags.iter().all(|tag| tag == "a\u{fffd}"),
                "{odd}"
            );
        }
    }
}
