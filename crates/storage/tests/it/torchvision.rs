//! The same numbering as `torchvision.datasets.ImageFolder`, which is the oracle; its answer is kept in `tests/goldens`
//! (`tests/make_goldens` makes it) for machines without it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use stokehold_storage::ImageFolder;

use crate::tree::{add, tree};

/// Prints classes and (path, class) as JSON; names that are not UTF-8 as Latin-1 of their bytes.
const ORACLE: &str = "
import json, os, sys, torchvision
folder = torchvision.datasets.ImageFolder(sys.argv[1])
name = lambda text: os.fsencode(text).decode('latin-1')
print(json.dumps([[name(c) for c in folder.classes], [[name(os.path.relpath(p, sys.argv[1])), c] for p, c in folder.samples],
                  torchvision.__version__]))
";

#[test]
fn numbers_are_torchvisions() {
    // Sorting by code points, by whole paths and by suffix differs from the obvious in each of these.
    let dir = tree(&[
        "zebra/1.jpg",
        "Zebra/1.jpg",
        "ant/10.jpg",
        "ant/9.jpg",
        "ant/.jpg",
        "ant/.hidden.PNG",
        "ant/a.b.JPeG",
        "ant/x.jpg.txt",
        "ant/jpg",
        "ant/ü.jpg",
        "ant/z.jpg",
        "ant/\u{1F600}.jpg",
        "ant/\u{FF5E}.jpg",
        "n-1/a/1.jpg",
        "n-1/a-b/1.jpg",
        "n-1/a.b/1.jpg",
        "n-1/a/z/1.jpg",
        "n-1/0.jpg",
        "n-1/b.jpg/inside.webp",
        "10/1.jpg",
        "9/1.jpg",
        "Ärger/1.jpg",
        "with space/new\nline.jpg",
        ".hidden class/1.jpg",
        "deep/1/2/3/4/5.png",
        "loose.jpg",
    ]);
    // Bytes that are not UTF-8 count as U+DC80 and up: above CJK, below U+E000 and the astral planes.
    for name in [
        &b"\xff.jpg"[..],
        b"a\x80.jpg",
        b"\xe4\xb8\x80.jpg",
        b"\xee\x80\x80.jpg",
    ] {
        add(&dir.path().join("ant"), OsStr::from_bytes(name));
    }
    symlink(dir.path().join("zebra"), dir.path().join("linked class")).unwrap();
    symlink(dir.path().join("n-1"), dir.path().join("ant/linked folder")).unwrap();
    symlink("/nowhere/at/all", dir.path().join("ant/broken.jpg")).unwrap();
    fs::create_dir(dir.path().join("ant/empty")).unwrap();

    type ImageFolderListing = (Vec<String>, Vec<(String, u32)>, String);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/imagefolder.json");
    let read = || -> ImageFolderListing { serde_json::from_slice(&fs::read(&golden).unwrap()).unwrap() };
    if let Some(python) = env::var_os("STOKEHOLD_TEST_PYTHON") {
        let output = Command::new(python)
            .args(["-c", ORACLE])
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if env::var_os("STOKEHOLD_GOLDENS").is_some() {
            fs::write(&golden, &output.stdout).unwrap();
        }
        let (classes, samples, _): ImageFolderListing = serde_json::from_slice(&output.stdout).unwrap();
        let kept = read();
        assert_eq!((classes, samples), (kept.0, kept.1), "tests/make_goldens");
    } else {
        stokehold_untested::kept("STOKEHOLD_TEST_PYTHON names no Python with torchvision");
    }
    let (classes, samples, _) = read();

    let latin = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect::<String>();
    let folder = ImageFolder::open(dir.path()).unwrap();
    assert_eq!(
        folder
            .classes
            .iter()
            .map(|name| latin(name.as_bytes()))
            .collect::<Vec<_>>(),
        classes
    );
    let ours: Vec<_> = folder
        .samples
        .iter()
        .map(|s| {
            let path = s.path.strip_prefix(dir.path()).unwrap();
            (latin(path.as_os_str().as_bytes()), s.class)
        })
        .collect();
    assert_eq!(ours, samples);
    assert_eq!(samples.len(), 35, "the tree has become a smaller one");
}
