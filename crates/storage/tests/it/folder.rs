//! One tree of class folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use stokehold_storage::{Dataset, ImageFolder, Images, SampleBytes, SlowSource, Source, StorageError};

use crate::tree::{add, tree};

fn error(path: &Path) -> String {
    ImageFolder::open(path).unwrap_err().to_string()
}

#[test]
fn classes_and_samples_are_numbered_and_read() {
    let dir = tree(&[
        "b/2.JPG",
        "b/1.jpeg",
        "b/deep/er/0.png",
        "a/x.WebP",
        "a/notes.txt",
        "stray.jpg",
    ]);
    let folder = ImageFolder::open(dir.path()).unwrap();
    assert_eq!(folder.classes, ["a", "b"]);
    let below: Vec<_> = folder
        .samples
        .iter()
        .map(|s| s.path.strip_prefix(dir.path()).unwrap().to_str().unwrap())
        .collect();
    assert_eq!(below, ["a/x.WebP", "b/1.jpeg", "b/2.JPG", "b/deep/er/0.png"]);
    assert_eq!(
        (0..folder.len()).map(|s| folder.class(s)).collect::<Vec<_>>(),
        [0, 1, 1, 1]
    );
    assert_eq!(Images::Folder(folder.clone()).counts(), [1, 3]);
    let mut bytes = SampleBytes::new();
    bytes.refill().extend(b"left over, and longer than what comes");
    folder.read(3, &mut bytes).unwrap();
    assert_eq!(bytes.file(), &b"b/deep/er/0.png"[..]);
    assert_eq!(folder.name(0), dir.path().join("a/x.WebP").display().to_string());
    assert_eq!(
        folder.read(4, &mut bytes).unwrap_err().to_string(),
        "sample 4: this source has only 4"
    );
}

#[test]
fn folders_that_are_no_data_set_say_what_to_do() {
    let dir = tree(&["file.jpg", "flat/b.jpg", "flat/a.png"]);
    fs::create_dir(dir.path().join("void")).unwrap();
    let at = |name: &str| dir.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    assert_eq!(
        error(&at("nowhere")),
        format!(
            "{}: no such folder; check the path of the data set",
            shown("nowhere")
        )
    );
    assert_eq!(
        error(&at("file.jpg")),
        format!(
            "{}: not a folder; a data set is a folder that holds one folder per class",
            shown("file.jpg")
        )
    );
    assert_eq!(
        error(&at("void")),
        format!(
            "{}: no class folder in it; a data set holds one folder per class, or train/ and val/ that do",
            shown("void")
        )
    );
    assert_eq!(
        error(&at("flat")),
        format!(
            "{0}: images lie directly in this folder (2 of them) and it has no class folders; \
             move the images of each class into a folder of the class's name, e.g. {0}/CLASS/a.png",
            shown("flat")
        )
    );
}

#[test]
fn a_class_without_images_is_named() {
    let dir = tree(&["cat/1.jpg", "dog/readme.md", "emu/deep/nothing.gif"]);
    assert_eq!(
        error(dir.path()),
        format!(
            "{}: no image in the class folders dog, emu; put images (.jpg, .jpeg, .png or .webp) there or remove the folder; \
             Stokehold does not read 1 .gif (emu/deep/nothing.gif), 1 .md (dog/readme.md); convert or rename the images among them",
            dir.path().display()
        )
    );
}

/// torchvision ends with an error where a class has no image, so leaving such a folder out changes no numbers.
#[test]
fn marked_folders_are_left_out_only_without_images() {
    let dir = tree(&[
        "a/0.jpg",
        "b/CACHEDIR.TAG",
        "b/deep/0.jpg",
        "c/0.jpg",
        "cache/CACHEDIR.TAG",
        "cache/x.skcache",
        "lost+found/nothing",
    ]);
    assert_eq!(ImageFolder::open(dir.path()).unwrap().classes, ["a", "b", "c"]);
}

#[test]
fn links_to_folders_are_followed_once_around() {
    let elsewhere = tree(&["more/1.jpg", "more/deep/2.jpg"]);
    let dir = tree(&["a/0.jpg"]);
    symlink(elsewhere.path().join("more"), dir.path().join("a/linked")).unwrap();
    symlink(elsewhere.path().join("more"), dir.path().join("b")).unwrap();
    // A link to a folder around it, directly and over a detour: torchvision goes forty times around.
    symlink(dir.path().join("a"), dir.path().join("a/again")).unwrap();
    symlink(dir.path().join("a"), elsewhere.path().join("more/back")).unwrap();
    let folder = ImageFolder::open(dir.path()).unwrap();
    let below: Vec<_> = folder
        .samples
        .iter()
        .map(|s| s.path.strip_prefix(dir.path()).unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        below,
        [
            "a/0.jpg",
            "a/linked/1.jpg",
            "a/linked/deep/2.jpg",
            "b/1.jpg",
            "b/back/0.jpg",
            "b/deep/2.jpg",
        ]
    );
    let remarks = Dataset::open(dir.path(), None, 0).unwrap().remarks();
    let said = "4 links (such as a/again) lead back to a folder around them and are not followed";
    assert!(remarks.iter().any(|remark| remark.contains(said)), "{remarks:?}");
}

#[test]
fn what_cannot_be_read_is_named_with_its_reason() {
    let dir = tree(&["a/1.jpg"]);
    symlink("/nowhere/at/all.jpg", dir.path().join("a/2.jpg")).unwrap();
    symlink("/dev/null", dir.path().join("a/3.jpg")).unwrap();
    let folder = ImageFolder::open(dir.path()).unwrap();
    let read = |sample| {
        folder
            .read(sample, &mut SampleBytes::new())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        read(1),
        format!(
            "{}: cannot read this file: No such file or directory (os error 2)",
            dir.path().join("a/2.jpg").display()
        )
    );
    assert_eq!(
        read(2),
        format!("{}: not a regular file", dir.path().join("a/3.jpg").display())
    );
    fs::remove_file(dir.path().join("a/1.jpg")).unwrap();
    assert!(read(0).ends_with("a/1.jpg: cannot read this file: No such file or directory (os error 2)"));
}

#[test]
fn a_huge_file_is_refused_unread() {
    let dir = tree(&["a/1.jpg"]);
    let file = fs::File::options()
        .write(true)
        .open(dir.path().join("a/1.jpg"))
        .unwrap();
    file.set_len((1 << 30) + 1).unwrap(); // Sparse: it takes no space.
    let folder = ImageFolder::open(dir.path()).unwrap();
    let error = folder.read(0, &mut SampleBytes::new()).unwrap_err();
    assert!(
        matches!(
            error,
            StorageError::TooLarge {
                bytes: 1_073_741_825,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn permissions_are_told() {
    if !stokehold_untested::permissions_bind() {
        return;
    }
    let dir = tree(&["a/1.jpg", "a/closed/2.jpg", "b/1.jpg"]);
    let (file, closed) = (dir.path().join("b/1.jpg"), dir.path().join("a/closed"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(
        error(dir.path()),
        format!(
            "{}: cannot list this folder: Permission denied (os error 13)",
            closed.display()
        )
    );
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = ImageFolder::open(dir.path()).unwrap();
    assert_eq!(
        folder.read(2, &mut SampleBytes::new()).unwrap_err().to_string(),
        format!(
            "{}: cannot read this file: Permission denied (os error 13)",
            file.display()
        )
    );
}

#[test]
fn limit_is_balanced_and_repeatable() {
    let dir = tempfile::TempDir::new().unwrap();
    for (class, count) in [("a", 20), ("b", 3), ("c", 9), ("d", 1)] {
        for number in 0..count {
            add(dir.path(), format!("{class}/{number:02}.jpg"));
        }
    }
    let all = ImageFolder::open(dir.path()).unwrap();
    let limited = |max| {
        let mut images = Images::Folder(all.clone());
        images.limit(max);
        match images {
            Images::Folder(folder) => folder,
            other => panic!("a folder stays a folder and is {other:?}"),
        }
    };
    let counts = |max| Images::Folder(limited(max)).counts();
    assert_eq!(counts(12), [4, 3, 4, 1]);
    assert_eq!(counts(14), [5, 3, 5, 1]);
    assert_eq!(counts(4), [1, 1, 1, 1]);
    assert_eq!(counts(2), [1, 1, 0, 0]);
    assert_eq!(limited(2).classes, all.classes);
    assert_eq!(limited(0).samples, []);
    for max in 0..=40 {
        let folder = limited(max);
        assert_eq!(folder.samples.len(), max.min(33));
        assert_eq!(folder, limited(max));
        assert!(folder.samples.iter().all(|sample| all.samples.contains(sample)));
        assert!(
            folder
                .samples
                .is_sorted_by_key(|sample| (sample.class, sample.path.clone()))
        );
    }
    // Spread over the class, not its beginning.
    let a: Vec<_> = limited(12).samples[..4]
        .iter()
        .map(|s| s.path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(a, ["00.jpg", "05.jpg", "10.jpg", "15.jpg"]);
}

#[test]
fn a_slow_source_is_slow_and_the_same() {
    let dir = tree(&["a/1.jpg"]);
    let latency = std::time::Duration::from_millis(30);
    let slow = SlowSource::new(ImageFolder::open(dir.path()).unwrap(), latency);
    let start = std::time::Instant::now();
    let mut bytes = SampleBytes::new();
    slow.read(0, &mut bytes).unwrap();
    assert!(start.elapsed() >= latency);
    assert_eq!((bytes.file(), slow.len(), slow.class(0)), (&b"a/1.jpg"[..], 1, 0));
    assert!(slow.name(0).ends_with("a/1.jpg"));
}
