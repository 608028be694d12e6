//! Tells a path from a URI.

use std::path::Path;

/// Whether a text is the URI of a place elsewhere (`s3://..`), and not a path or a `file://`.
pub fn is_remote(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| scheme != "file")
}

/// The URI, if a path is one of a place elsewhere.
pub fn remote(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| is_remote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_files_are_here() {
        assert!(is_remote("s3://b") && is_remote("http://host/a"));
        assert!(!is_remote("file:///b") && !is_remote("a/b"));
    }
}
