//! Files that are listed one by one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use stokehold_storage::{ImageList, SampleBytes, Source};

use crate::tree::{add, tree};

#[test]
fn files_are_read_by_their_own_paths() {
    let dir = tree(&["b.jpg"]);
    let stray = add(dir.path(), Path::new(OsStr::from_bytes(b"\xff \xc3.jpg")));
    let mut list = ImageList::default();
    list.push(dir.path().join("b.jpg"), 3);
    list.push("", 0);
    list.push(&stray, u32::MAX);
    list.push(dir.path().join("b.jpg"), 1);
    list.push(dir.path(), 0);
    assert_eq!(list.len(), 5);
    assert_eq!(
        (0..4).map(|s| list.class(s)).collect::<Vec<_>>(),
        [3, 0, u32::MAX, 1]
    );
    let mut bytes = SampleBytes::new();
    for (sample, content) in [(0, "b.jpg"), (3, "b.jpg")] {
        list.read(sample, &mut bytes).unwrap();
        assert_eq!(bytes.file(), content.as_bytes());
    }
    list.read(2, &mut bytes).unwrap();
    assert_eq!(bytes.file(), std::fs::read(&stray).unwrap());
    let mut error = |sample| list.read(sample, &mut bytes).unwrap_err().to_string();
    assert!(error(1).starts_with(": cannot read this file"), "{}", error(1));
    assert_eq!(error(4), format!("{}: not a regular file", dir.path().display()));
    assert_eq!(error(5), "sample 5: this source has only 5");
    // No one waits for a file that is not there.
    (0..6).for_each(|sample| list.expect(sample));
}
