//! Folders of files to test with.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder that holds `files` (paths below it; their content is their path).
pub fn tree(files: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for file in files {
        add(dir.path(), file);
    }
    dir
}

pub fn add(root: &Path, file: impl AsRef<Path>) -> PathBuf {
    let path = root.join(&file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, file.as_ref().to_string_lossy().as_bytes()).unwrap();
    path
}
