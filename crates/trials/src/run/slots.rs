//! The slots of a study, each locked by the process whose trial runs in it.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use stokehold_base::lock;

use crate::TrialsError;

/// Locks a slot that no process uses.
pub(super) fn free_slot(folder: &Path, slots: usize) -> Result<Option<(usize, File)>, TrialsError> {
    let folder = folder.join("slots");
    fs::create_dir_all(&folder).map_err(TrialsError::io(&folder))?;
    for number in 0..slots {
        let path = folder.join(number.to_string());
        if let Some(file) = lock::open(&path, Duration::ZERO).map_err(TrialsError::io(&path))? {
            return Ok(Some((number, file)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = free_slot(dir.path(), 2).unwrap().unwrap();
        let second = free_slot(dir.path(), 2).unwrap().unwrap();
        assert_eq!((first.0, second.0), (0, 1));
        assert!(free_slot(dir.path(), 2).unwrap().is_none());
        drop(first);
        assert_eq!(free_slot(dir.path(), 2).unwrap().unwrap().0, 0);
    }
}
