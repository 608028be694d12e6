//! Tags and notes that people give to runs, jobs and studies: `studio.json` in the folder of each.
//!
//! The only file that the studio keeps. It is written aside and renamed, so that it is always whole, and a folder that is copied or moved
//! has its notes with it. It holds text, and is shown as text.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
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

impl Notes {
    /// Those of a folder; none where there are none or they cannot be read.
    pub fn of(folder: &Path) -> Self {
        let read = || -> io::Result<Self> {
            let mut text = Vec::new();
            regular::open(&folder.join(FILE))?
                .take(BYTES)
                .read_to_end(&mut text)?;
            Ok(serde_json::from_slice(&text)?)
        };
        let Self { tags, note } = read().unwrap_or_default();
        // Others may have written the file.
        Self {
            tags: tags.iter().take(TAGS).map(|tag| text::short(tag, TAG)).collect(),
            note: text::short(&note, NOTE),
        }
    }

    /// Checks them, and puts tags in order: without blanks at their ends, each once.
    ///
    /// # Errors
    /// What is too long or too many.
    pub fn checked(mut self) -> Result<Self, String> {
        let mut tags: Vec<String> = self.tags.iter().map(|tag| tag.trim().to_owned()).collect();
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
        self.note = self.note.trim_end().to_owned();
        Ok(Self { tags, ..self })
    }

    /// Keeps them in a folder; empty ones are no file.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(FILE);
        if *self == Self::default() {
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
        good.write(dir.path()).unwrap();
        assert_eq!(Notes::of(dir.path()), good);
        Notes::default().write(dir.path()).unwrap();
        assert!(!dir.path().join(FILE).exists());
        Notes::default().write(dir.path()).unwrap();
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
