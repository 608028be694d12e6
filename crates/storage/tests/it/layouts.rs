//! Data sets in other programs' layouts: what a message says of them, and that its way works.

use std::fs;
use std::path::Path;
use std::process::Command;

use stokehold_storage::{Dataset, Images, Source};
use tempfile::TempDir;

use crate::tree::tree;

fn error(dir: &Path) -> String {
    Dataset::open(dir, None, 0).unwrap_err().to_string()
}

/// Whether commands of a message can be performed that call Python.
fn has_python() -> bool {
    let has = Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success());
    if !has {
        stokehold_untested::skip("there is no python3, which the commands of messages call");
    }
    has
}

/// Performs the command behind `before` in a message, and lists the classes that it makes.
fn way(message: &str, before: &str, until: &str) -> Vec<String> {
    let command = message
        .split_once(before)
        .unwrap_or_else(|| panic!("{message}"))
        .1;
    let command = command.rsplit_once(until).map_or(command, |(command, _)| command);
    let out = TempDir::new().unwrap();
    let done = Command::new("sh")
        .arg("-c")
        .arg(command)
        .current_dir(out.path())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{command}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let made = Dataset::open(out.path().join("classes"), None, 0).unwrap().train;
    (0..made.len())
        .map(|sample| {
            format!(
                "{}/{}",
                made.classes()[made.class(sample) as usize],
                file_name(&made, sample)
            )
        })
        .collect()
}

fn file_name(images: &Images, sample: usize) -> String {
    Path::new(&images.name(sample))
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

/// A tar file of these entries, whose content is their name's suffix.
fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in entries {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(content.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

#[test]
fn tar_files_of_webdataset_are_counted_and_lead_to_class_folders() {
    let dir = TempDir::new().unwrap();
    let samples = [
        ("0.jpg", "x"),
        ("0.cls", "1"),
        ("1.jpg", "x"),
        ("1.cls", "0"),
        ("2.jpg", "x"),
        ("2.cls", "1"),
    ];
    fs::write(dir.path().join("train-000.tar"), tar(&samples)).unwrap();
    fs::write(
        dir.path().join("train-001.tar"),
        tar(&[("3.jpg", "x"), ("3.cls", "0")]),
    )
    .unwrap();
    let message = error(dir.path());
    assert!(
        message.contains("2 tar files lie here, 3 samples in train-000.tar (.cls, .jpg), as WebDataset has them, which are not read"),
        "{message}"
    );
    assert_eq!(
        way(&message, "make class folders of them: ", "\0"),
        ["0/1.jpg", "0/3.jpg", "1/0.jpg", "1/2.jpg"]
    );
    let message = error(&dir.path().join("train-000.tar"));
    assert!(message.contains("1 tar file lies here, 3 samples"), "{message}");
    assert_eq!(
        way(&message, "make class folders of them: ", "\0"),
        ["0/1.jpg", "1/0.jpg", "1/2.jpg"]
    );
}

/// A label that is no name of a folder makes no class, and moves nothing elsewhere.
#[test]
fn a_label_of_dots_leads_nowhere() {
    let dir = TempDir::new().unwrap();
    let samples = [
        ("0.jpg", "x"),
        ("0.cls", ".."),
        ("1.jpg", "x"),
        ("1.cls", "cat"),
        ("2.jpg", "x"),
        ("2.cls", "."),
    ];
    fs::write(dir.path().join("train.tar"), tar(&samples)).unwrap();
    let message = error(dir.path());
    assert_eq!(way(&message, "make class folders of them: ", "\0"), ["cat/1.jpg"]);
}

/// Anybody may have made an archive, and a name in it becomes a part of a command.
#[test]
fn no_name_in_a_tar_file_is_performed() {
    for name in [
        "0.$(touch PWNED).jpg",
        "0.`touch PWNED`.jpg",
        "0.\";touch PWNED;\".jpg",
        "0.x\ntouch PWNED\n.jpg",
    ] {
        let dir = TempDir::new().unwrap();
        let entries = [(name, "x"), ("0.cls", "../../1")];
        fs::write(dir.path().join("0.tar"), tar(&entries)).unwrap();
        let message = error(dir.path());
        let (_, command) = message.split_once("make class folders of them: ").unwrap();
        let out = dir.path().join("a/b/out");
        fs::create_dir_all(&out).unwrap();
        let done = Command::new("sh")
            .arg("-c")
            .arg(command)
            .current_dir(&out)
            .output();
        let done = done.unwrap();
        for folder in out.ancestors().take(4) {
            let is_there = |name: &str| folder.join(name).exists();
            assert!(!is_there("PWNED"), "{command}\n{done:?}");
            assert!(folder == out || !is_there("1"), "{command}\n{done:?}");
        }
        assert!(out.join("classes/.._.._1").is_dir(), "{command}\n{done:?}");
    }
    // A plain suffix next to it is taken.
    let dir = TempDir::new().unwrap();
    let entries = [("0.$(x).jpg", "x"), ("1.cls", "7"), ("1.seg.png", "x")];
    fs::write(dir.path().join("0.tar"), tar(&entries)).unwrap();
    assert_eq!(
        way(&error(dir.path()), "make class folders of them: ", "\0"),
        ["7/1.seg.png"]
    );
}

/// A place's name becomes a string of Python in a command.
#[test]
fn a_folder_of_any_name_is_named_to_python() {
    if !has_python() {
        return;
    }
    for name in [
        "it's",
        "a\"b",
        "$(touch PWNED)",
        "`touch PWNED`",
        "back\\slash\\'",
        "{to}{first}{at}",
        "line\nbreak",
    ] {
        let dir = TempDir::new().unwrap();
        for (file, load) in [("0.parquet", "load_dataset"), ("0.arrow", "load_from_disk")] {
            let folder = dir.path().join(file).join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), "").unwrap();
            let message = error(&folder);
            let (_, command) = message.split_once("write class folders of them: ").unwrap();
            let out = TempDir::new().unwrap();
            // In place of Hugging Face's package.
            let stand_in = format!(
                "class Image:\n    def __init__(self, decode): pass\n\nclass Rows(list):\n    cast_column = lambda self, *_: self\n\n\
                 def {load}(place, split=None):\n    open('asked', 'w', newline='').write(place)\n    \
                 return Rows([{{'label': 'a/b', 'image': {{'bytes': b'x'}}}}])\n"
            );
            fs::write(out.path().join("datasets.py"), stand_in).unwrap();
            let done = Command::new("sh")
                .arg("-c")
                .arg(command)
                .current_dir(out.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{command}\n{done:?}");
            let asked = fs::read_to_string(out.path().join("asked")).unwrap();
            assert_eq!(Path::new(&asked), folder);
            assert!(out.path().join("classes/a_b/0.jpg").is_file(), "{command}");
            assert!(!out.path().join("PWNED").exists(), "{command}");
        }
    }
}

#[test]
fn a_table_beside_images_names_its_columns_and_a_way_that_moves_nothing() {
    for (name, table, columns) in [
        (
            "metadata.csv",
            "file_name,label\n0.jpg,dog\n1.jpg,\"black cat\"\n",
            "file_name, label",
        ),
        ("labels.csv", "id,breed\n0,dog\n1,black cat\n", "id, breed"),
        (
            "metadata.jsonl",
            "{\"file_name\": \"0.jpg\", \"label\": \"dog\"}\n{\"file_name\": \"1.jpg\", \"label\": \"black cat\"}\n",
            "file_name, label",
        ),
    ] {
        let dir = tree(&["0.jpg", "1.jpg"]);
        fs::write(dir.path().join(name), table).unwrap();
        let message = error(dir.path());
        assert!(
            message.contains(&format!(
                "{name} lies there, with the columns {columns}, and tables are not read"
            )),
            "{message}"
        );
        if has_python() {
            let made = way(&message, "which moves no file: ", "; or give stokehold.Loader");
            assert_eq!(made, ["black cat/1.jpg", "dog/0.jpg"], "{name}");
        }
        assert!(dir.path().join("0.jpg").is_file());
    }
    // As competitions have it: the table next to the folder.
    let dir = tree(&["train/0.jpg", "train/1.jpg", "test/2.jpg"]);
    fs::write(dir.path().join("train.csv"), "image_id,label\n0.jpg,3\n1.jpg,4\n").unwrap();
    let message = error(dir.path());
    if has_python() {
        let made = way(&message, "which moves no file: ", "; or give stokehold.Loader");
        assert_eq!(made, ["3/0.jpg", "4/1.jpg"]);
    }
}

#[test]
fn other_layouts_are_named_with_a_way() {
    for (files, said) in [
        (&["data/train-0.parquet"][..], "Parquet files"),
        (
            &["data-00000-of-00001.arrow", "dataset_info.json"],
            "Arrow files of Hugging Face's datasets",
        ),
        (&["train.tfrecord-00000-of-00010"], "TFRecord files"),
        (&["data.mdb", "lock.mdb"], "an LMDB database"),
        (&["train.beton"], "files of FFCV"),
        (&["train.rec", "train.idx"], "RecordIO files of MXNet"),
        (&["train.h5"], "HDF5 files"),
        (&["images.zip"], "ZIP archives"),
        (&["images.tar.gz"], "compressed tar archives"),
        (&["train-images-idx3-ubyte"], "images of MNIST in IDX files"),
        (
            &["train2017/0.jpg", "annotations/instances_train2017.json"],
            "COCO's layout",
        ),
        (&["train/0.jpg", "train/_annotations.coco.json"], "COCO's layout"),
        (
            &["images/train/0.jpg", "labels/train/0.txt", "data.yaml"],
            "YOLO's layout",
        ),
        (&["train/images/0.jpg", "train/labels/0.txt"], "YOLO's layout"),
        (&["JPEGImages/0.jpg", "Annotations/0.xml"], "Pascal VOC's layout"),
        (
            &["train/000000.skshard"],
            "shards of `stokehold prepare` (000000.skshard) and no shards.json",
        ),
        (
            &["training/a/0.jpg", "validation/a/0.jpg"],
            "its folders training, validation are splits by their names",
        ),
    ] {
        let dir = tree(files);
        let message = error(dir.path());
        assert!(message.contains(said), "{files:?}: {message}");
    }
    let dir = tree(&["images.zip"]);
    let message = error(&dir.path().join("images.zip"));
    assert!(
        message.contains("not a folder; ZIP archives lie there (images.zip)"),
        "{message}"
    );
}

/// Each of these would be classes that no one means.
#[test]
fn splits_are_no_classes() {
    for (files, said) in [
        (
            &["Training/a/0.jpg", "Testing/0.jpg"][..],
            "link them: ln -s Testing ",
        ),
        (
            &["training/a/0.jpg", "validation/a/0.jpg", "unlabeled/0.jpg"],
            "its folders training, validation are splits by their names",
        ),
        (
            &[
                "training/a/0.jpg",
                "validation/a/0.jpg",
                "__MACOSX/0.jpg",
                ".git/0",
            ],
            "its folders training, validation are splits by their names",
        ),
        (
            &["trainset/a/0.jpg", "valset/a/0.jpg"],
            "its folders trainset, valset are splits",
        ),
        (
            &["train2017/a/0.jpg", "val2017/a/0.jpg"],
            "its folders train2017, val2017 are splits",
        ),
        (
            &["train_images/a/0.jpg", "test_images/0.jpg"],
            "its folders test_images, train_images are splits",
        ),
        (
            &["data/train/a/0.jpg", "data/val/a/0.jpg"],
            "its only folder holds train, val, which are splits by their names; give ",
        ),
        (
            &[
                "hat/train/0.jpg",
                "hat/val/0.jpg",
                "shoes/train/0.jpg",
                "shoes/val/0.jpg",
            ],
            "each of its folders holds train, val, which are splits by their names",
        ),
    ] {
        let message = error(tree(files).path());
        assert!(message.contains(said), "{files:?}: {message}");
    }
    let dir = tree(&["dev1/0.jpg", "dev2/0.jpg", "trains/0.jpg"]);
    assert_eq!(
        Dataset::open(dir.path(), None, 0).unwrap().train.classes(),
        ["dev1", "dev2", "trains"]
    );
}

#[test]
fn folders_of_splits_are_linked_and_read() {
    let dir = tree(&["Training/a/0.jpg", "Testing/a/0.jpg", "valid/a/0.jpg"]);
    let message = error(dir.path());
    let (_, command) = message.split_once("link them: ").unwrap();
    let done = Command::new("sh").arg("-c").arg(command).status().unwrap();
    assert!(done.success(), "{command}");
    let data = Dataset::open(dir.path(), None, 0).unwrap();
    assert_eq!((data.train.len(), data.val.unwrap().len()), (1, 1));
    // A class may be called so.
    let dir = tree(&["test/0.jpg", "valid/0.jpg"]);
    assert_eq!(
        Dataset::open(dir.path(), None, 0).unwrap().train.classes(),
        ["test", "valid"]
    );
    let dir = tree(&["train/a/0.jpg", "validation/a/0.jpg"]);
    let remarks = Dataset::open(dir.path(), None, 0).unwrap().remarks();
    assert!(
        remarks[0]
            .contains("validation/ is not read: validation images lie in val/; link it: ln -s validation"),
        "{remarks:?}"
    );
}

#[test]
fn a_table_beside_one_class_folder_is_told() {
    let dir = tree(&["images/0.jpg", "images/1.jpg"]);
    fs::write(
        dir.path().join("labels.csv"),
        "name,label\n0.jpg,dog\n1.jpg,cat\n",
    )
    .unwrap();
    let remarks = Dataset::open(dir.path(), None, 0).unwrap().remarks();
    assert!(
        remarks[0].contains("images is the only class; labels.csv lies there"),
        "{remarks:?}"
    );
    assert!(remarks[0].contains("which moves no file: "), "{remarks:?}");
}
