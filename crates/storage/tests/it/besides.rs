//! What lies in a data set besides the images that are read, and class names that are easily mistaken.

use std::fs;
use std::path::Path;

use stokehold_storage::Dataset;

use crate::tree::tree;

/// The remarks about a data set, with `DATA` for its folder.
fn remarks(dir: &Path) -> Vec<String> {
    let data = Dataset::open(dir, None, 0).unwrap();
    let named = |remark: String| remark.replace(dir.to_str().unwrap(), "DATA");
    data.remarks().into_iter().map(named).collect()
}

fn error(dir: &Path) -> String {
    let error = Dataset::open(dir, None, 0).unwrap_err().to_string();
    error.replace(dir.to_str().unwrap(), "DATA")
}

#[test]
fn files_that_are_not_read_are_counted_by_suffix() {
    let dir = tree(&[
        "train/a/0.jpg",
        "train/a/2.bmp",
        "train/a/1.BMP",
        "train/a/in/x.tiff",
        "train/a/photo.jfif",
        "train/b/0.jpg",
        "train/b/raw",
        "train/b/notes.txt",
        "train/b/Thumbs.db",
        "train/b/.DS_Store",
        "train/b/.hidden.bmp",
        "train/README.md",
        "val/a/0.jpg",
    ]);
    assert_eq!(
        remarks(dir.path()),
        [
            "DATA/train: 7 files are not read: 3 .bmp (such as a/1.BMP), 1 without a suffix (b/raw), 1 .jfif (a/photo.jfif), \
             1 .tiff (a/in/x.tiff), 1 .txt (b/notes.txt); images are called .jpg, .jpeg, .png or .webp, so rename those that are \
             JPEG, PNG or WebP, and convert others; torchvision's ImageFolder takes 4 of them (ppm, bmp, pgm, tif, tiff) and \
             numbers its samples otherwise"
        ]
    );
    let dir = tree(&["a/0.jpg", "a/0.txt", "b/0.jpg"]);
    assert_eq!(
        remarks(dir.path()),
        ["DATA: 1 file is not read: 1 .txt (a/0.txt); images are called .jpg, .jpeg, .png or .webp"]
    );
}

#[test]
fn a_data_set_of_images_alone_has_no_remark() {
    let dir = tree(&[
        "train/a/0.jpg",
        "train/b/0.png",
        "val/a/0.jpg",
        "train/labels.txt",
        "test/a/0.jpg",
    ]);
    assert_eq!(remarks(dir.path()), [""; 0]);
}

#[test]
fn folders_next_to_train_that_are_not_read_are_named_with_their_images() {
    let other = [
        "Test/a/0.jpg",
        "Test/a/1.jpg",
        "train copy/a/0.jpg",
        "valid/0.png",
        ".cache/0.jpg",
        "notes/read.txt",
    ];
    let unread = |rest: &[&str]| {
        let dir = tree(&[&["train/a/0.jpg"], &other[..], rest].concat());
        (remarks(dir.path()), dir)
    };
    let test = "DATA: Test holds 2 images and is not read; name it test, or give its folder by itself";
    let copy = "DATA: train copy holds 1 image and is not read; move it into train, val or test, or give its folder by itself";
    let valid = "DATA: valid holds 1 image and is not read; move it into train, val or test, or give its folder by itself";
    let (both, dir) = unread(&["val/a/0.jpg"]);
    assert_eq!(both, [test, copy, valid]);
    // A data set of its own has no neighbours.
    assert_eq!(remarks(&dir.path().join("train")), [""; 0]);
    let (alone, dir) = unread(&[]);
    let link = "DATA: valid/ is not read: validation images lie in val/; link it: ln -s valid DATA/val";
    assert_eq!(alone, [link, test, copy]);
    // What is read by a link is read.
    std::os::unix::fs::symlink("valid", dir.path().join("val")).unwrap();
    fs::create_dir(dir.path().join("valid/a")).unwrap();
    fs::rename(dir.path().join("valid/0.png"), dir.path().join("valid/a/0.png")).unwrap();
    assert_eq!(remarks(dir.path()), [test, copy]);
    let dir = tree(&["images/0.jpg", "images/1.jpg", "holdout/a/0.jpg", "test/a/0.jpg"]);
    fs::create_dir_all(dir.path().join("train/a")).unwrap();
    std::os::unix::fs::symlink("../../images/0.jpg", dir.path().join("train/a/0.jpg")).unwrap();
    assert_eq!(
        remarks(dir.path()),
        [
            "DATA: holdout holds 1 image and is not read; move it into train, val or test, or give its folder by itself"
        ]
    );
}

#[test]
fn stray_folders_that_are_classes_are_named_with_their_images() {
    let dir = tree(&[
        "train/.ipynb_checkpoints/0-checkpoint.jpg",
        "train/__MACOSX/a/._0.jpg",
        "train/__MACOSX/a/._1.jpg",
        "train/a/0.jpg",
        "train/a/.git/0.jpg",
        "train/a/.ipynb_checkpoints/0-checkpoint.jpg",
        "val/a/0.jpg",
    ]);
    assert_eq!(
        remarks(dir.path()),
        [
            "DATA/train: .ipynb_checkpoints, a hidden folder that Jupyter makes, is class 0 with 1 image, as in torchvision; if it \
             is no class, delete it: rm -r DATA/train/.ipynb_checkpoints",
            "DATA/train: __MACOSX, a folder that archives made on macOS leave, is class 1 with 2 images, as in torchvision; if it \
             is no class, delete it: rm -r DATA/train/__MACOSX",
            "DATA/train: 2 files begin with ._ (such as __MACOSX/a/._0.jpg), which macOS leaves on other file systems and in \
             archives, and which hold no image; delete them: find DATA/train -name '._*' -type f -delete",
            "DATA/train: a/.git, the history of a repository, has 1 image, which counts as an image of the class around it, as in \
             torchvision; if it is not, move the folder out of the data set",
            "DATA/train: a/.ipynb_checkpoints, a hidden folder that Jupyter makes, has 1 image, which counts as an image of \
             the class around it, as in torchvision; if it is not, delete the folder: rm -r DATA/train/a/.ipynb_checkpoints",
        ]
    );
    // Split off one tree, both parts together.
    let data = Dataset::open(dir.path().join("train"), Some(0.5), 0).unwrap();
    let remarks = data.remarks();
    assert!(
        remarks[1].contains("__MACOSX") && remarks[1].contains("with 2 images"),
        "{remarks:?}"
    );
    assert_eq!(remarks.len(), 5);
}

#[test]
fn an_empty_class_says_what_it_is() {
    let dir = tree(&["a/0.jpg"]);
    fs::create_dir(dir.path().join(".ipynb_checkpoints")).unwrap();
    assert_eq!(
        error(dir.path()),
        "DATA: no image in the class folder .ipynb_checkpoints; .ipynb_checkpoints is a hidden folder that Jupyter makes; if it is no \
         class, delete it: rm -r DATA/.ipynb_checkpoints"
    );
    let dir = tree(&["a/0.jpg", ".git/HEAD"]);
    assert_eq!(
        error(dir.path()),
        "DATA: no image in the class folder .git; .git is the history of a repository; if it is no class, move the class folders \
         into a folder of their own, and give that one"
    );
    let dir = tree(&["a/0.jpg", "b/x.bmp", "b/y.bmp"]);
    assert_eq!(
        error(dir.path()),
        "DATA: no image in the class folder b; put images (.jpg, .jpeg, .png or .webp) there or remove the folder; Stokehold does not \
         read 2 .bmp (such as b/x.bmp); convert or rename the images among them"
    );
}

#[test]
fn class_names_that_look_alike_are_spelt_out() {
    let (composed, decomposed) = ("\u{dc}bung", "U\u{308}bung");
    let both = tree(&[
        &format!("{composed}/0.jpg"),
        &format!("{decomposed}/0.jpg"),
        "b/0.jpg",
    ]);
    let how = format!(
        "{decomposed} and {composed} differ only in their Unicode form, as names from macOS and from Linux do: \"U\\u{{308}}bung\" and \
         \"\\u{{dc}}bung\""
    );
    assert_eq!(
        remarks(both.path()),
        [format!(
            "DATA: classes {how}; where two are one, move the images of one into the other"
        )]
    );
    let parts = tree(&[
        &format!("train/{decomposed}/0.jpg"),
        "train/b/0.jpg",
        &format!("val/{composed}/0.jpg"),
    ]);
    assert_eq!(
        error(parts.path()),
        format!(
            "DATA/val: class {composed} is not among the training classes of DATA/train; {how}; rename one of the folders"
        )
    );
    let case = tree(&["train/Cat/0.jpg", "val/cat/0.jpg"]);
    assert_eq!(
        error(case.path()),
        "DATA/val: class cat is not among the training classes of DATA/train; Cat and cat differ only in capital and small letters: \
         \"Cat\" and \"cat\"; rename one of the folders"
    );
    // Letters are classes of handwriting.
    let letters = tree(&["A/0.jpg", "a/0.jpg"]);
    assert_eq!(remarks(letters.path()), [""; 0]);
}

#[test]
fn images_beside_class_folders_are_named() {
    let dir = tree(&["a/0.jpg", "stray.jpg", "other.png"]);
    assert_eq!(
        remarks(dir.path()),
        [
            "DATA: 2 images lie beside the class folders and are in no class (such as other.png); put them into the folder of a class"
        ]
    );
}
