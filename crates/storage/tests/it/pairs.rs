//! Images and masks: their layouts, and what is wrong with others.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use stokehold_storage::{
    Coding, Dataset, IGNORE, ImageList, Images, Joined, PixelClasses, SampleBytes, Source, StorageError,
};
use tempfile::TempDir;

use crate::tree::{add, tree};

const TWO: &str = "[[class]]\nname = 'a'\n[[class]]\nname = 'b'\n";

fn with_table(files: &[&str], table: &str) -> TempDir {
    let dir = tree(files);
    fs::write(dir.path().join("classes.toml"), table).unwrap();
    dir
}

fn open(dir: &TempDir) -> Result<Dataset, StorageError> {
    Dataset::open(dir.path(), None, 0)
}

fn error(dir: &TempDir) -> String {
    open(dir)
        .unwrap_err()
        .to_string()
        .replace(&dir.path().display().to_string(), "DATA")
}

fn classes(images: &Images) -> &PixelClasses {
    images.pixel_classes().expect("pairs")
}

/// Image and mask of each sample, below the data set's folder; each file's content is its path.
fn pairs(dir: &TempDir, images: &Images) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pair = |sample| {
        let (mut image, mut mask) = (SampleBytes::new(), b"before".to_vec());
        images.read(sample, &mut image).unwrap();
        images.read_mask(sample, &mut mask).unwrap();
        assert_eq!(
            images.name(sample),
            dir.path().join(text(image.file())).display().to_string()
        );
        assert_eq!(
            images.mask_name(sample),
            dir.path().join(text(&mask)).display().to_string()
        );
        assert_eq!(images.class(sample), 0);
        (text(image.file()), text(&mask))
    };
    (0..images.len()).map(pair).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(image, mask)| ((*image).into(), (*mask).into()))
        .collect()
}

#[test]
fn camvid_is_found() {
    let dir = tree(&[
        "train/b.png",
        "train/a.png",
        "trainannot/a.png",
        "trainannot/b.png",
        "val/c.png",
        "valannot/c.png",
    ]);
    let found = open(&dir).unwrap();
    assert_eq!(
        pairs(&dir, &found.train),
        owned(&[
            ("train/a.png", "trainannot/a.png"),
            ("train/b.png", "trainannot/b.png")
        ])
    );
    assert_eq!(
        pairs(&dir, found.val.as_ref().unwrap()),
        owned(&[("val/c.png", "valannot/c.png")])
    );
    let classes = classes(&found.train);
    assert_eq!(classes.names.len(), 11);
    assert_eq!(
        (&*classes.names[0], &*classes.names[8], &*classes.names[10]),
        ("sky", "car", "bicyclist")
    );
    let Coding::Values(values) = &classes.coding else {
        panic!("{classes:?}")
    };
    assert_eq!(
        (values[&10], values[&11], values[&255], values.get(&12)),
        (10, IGNORE, IGNORE, None)
    );
    let all = Images::unlabelled(dir.path()).unwrap();
    assert_eq!(all.len(), 3, "images without masks");
    fs::remove_dir_all(dir.path().join("valannot")).unwrap();
    assert_eq!(
        error(&dir),
        "DATA/val: DATA/valannot belongs to it and is not there"
    );
}

#[test]
fn cityscapes_is_found() {
    let dir = tree(&[
        "leftImg8bit/train/ulm/ulm_1_leftImg8bit.png",
        "leftImg8bit/train/bonn/bonn_1_leftImg8bit.png",
        "gtFine/train/ulm/ulm_1_gtFine_labelIds.png",
        "gtFine/train/ulm/ulm_1_gtFine_color.png",
        "gtFine/train/ulm/ulm_1_gtFine_polygons.json",
        "gtFine/train/bonn/bonn_1_gtFine_labelIds.png",
    ]);
    let found = open(&dir).unwrap();
    let expected = [
        (
            "leftImg8bit/train/bonn/bonn_1_leftImg8bit.png",
            "gtFine/train/bonn/bonn_1_gtFine_labelIds.png",
        ),
        (
            "leftImg8bit/train/ulm/ulm_1_leftImg8bit.png",
            "gtFine/train/ulm/ulm_1_gtFine_labelIds.png",
        ),
    ];
    assert_eq!(pairs(&dir, &found.train), owned(&expected));
    assert!(found.val.is_none());
    let classes = classes(&found.train);
    let Coding::Values(values) = &classes.coding else {
        panic!("{classes:?}")
    };
    // Road has the id 7, bicycles 33, and the rectification border 3 counts for nothing.
    assert_eq!(
        (values[&7], values[&33], values[&3], values.get(&34)),
        (0, 18, IGNORE, None)
    );
    assert_eq!((classes.names.len(), &*classes.names[18]), (19, "bicycle"));
    add(dir.path(), "gtFine/train/ulm/ulm_1_gtFine_labelTrainIds.png");
    add(dir.path(), "gtFine/train/bonn/bonn_1_gtFine_labelTrainIds.png");
    let found = open(&dir).unwrap();
    assert!(
        pairs(&dir, &found.train)[0]
            .1
            .ends_with("bonn_1_gtFine_labelTrainIds.png")
    );
    let Coding::Values(values) = &found.train.pixel_classes().unwrap().coding else {
        panic!()
    };
    assert_eq!((values[&18], values.get(&33)), (18, None));
}

#[test]
fn voc_is_found_by_its_lists() {
    let dir = tree(&[
        "JPEGImages/1.jpg",
        "JPEGImages/2.jpg",
        "JPEGImages/3.jpg",
        "JPEGImages/4.jpg",
        "SegmentationClass/1.png",
        "SegmentationClass/2.png",
        "SegmentationClass/3.png",
    ]);
    let lists = dir.path().join("ImageSets/Segmentation");
    fs::create_dir_all(&lists).unwrap();
    fs::write(lists.join("train.txt"), "3\n1\n").unwrap();
    fs::write(lists.join("val.txt"), "2\r\n").unwrap();
    let found = open(&dir).unwrap();
    let expected = [
        ("JPEGImages/3.jpg", "SegmentationClass/3.png"),
        ("JPEGImages/1.jpg", "SegmentationClass/1.png"),
    ];
    assert_eq!(pairs(&dir, &found.train), owned(&expected));
    assert_eq!(found.val.as_ref().unwrap().len(), 1);
    let classes = classes(&found.train);
    let colors = classes.colors.as_ref().unwrap();
    // From the palette of its masks.
    assert_eq!(
        (&*classes.names[15], colors[15], colors[20], colors[0]),
        ("person", [192, 128, 128], [0, 64, 128], [0; 3])
    );
    fs::write(lists.join("train.txt"), "3\n1\n9\n").unwrap();
    assert_eq!(
        error(&dir),
        "DATA/ImageSets/Segmentation/train.txt: line 3: there is no image '9'"
    );
    fs::write(lists.join("train.txt"), "3\n4\n").unwrap();
    assert!(error(&dir).starts_with(
        "DATA/JPEGImages/4.jpg: its mask DATA/SegmentationClass/4.png is not there (1 of 2 images have none)"
    ));
}

#[test]
fn images_and_masks_are_pairs_with_a_class_table() {
    for (train_images, train_masks, val) in [
        ("images", "masks", None),
        ("train/images", "train/masks", Some(("val/images", "val/masks"))),
        ("images/train", "masks/train", Some(("images/val", "masks/val"))),
    ] {
        let file = |folder: &str, name: &str| format!("{folder}/{name}");
        let mut files = vec![file(train_images, "x/1.jpg"), file(train_masks, "x/1.png")];
        files.extend([file(train_images, "2.PNG"), file(train_masks, "2.png")]);
        if let Some((images, masks)) = val {
            files.extend([file(images, "3.webp"), file(masks, "3.png")]);
        }
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let dir = with_table(&files, TWO);
        let found = open(&dir).unwrap();
        assert_eq!(found.train.len(), 2, "{train_images}");
        assert_eq!(found.val.map(|val| val.len()), val.map(|_| 1));
        assert_eq!(classes(&found.train).names, ["a", "b"]);
    }
}

#[test]
fn a_class_table_names_folders_suffixes_and_lists() {
    let table = "image_suffix = '_rgb.jpg'\nmask_suffix = '_seg.png'\n[[class]]\nname = 'a'\ncolor = [1, 2, 3]\n\
                 [train]\nimages = 'all'\nmasks = 'all'\nlist = 'train.txt'\n[val]\nimages = 'other'\nmasks = 'other/m'\n";
    let dir = with_table(
        &[
            "all/1_rgb.jpg",
            "all/1_seg.png",
            "all/2_rgb.jpg",
            "all/2_seg.png",
            "all/3_rgb.jpg",
            "all/1_depth.png",
            "other/9_rgb.jpg",
            "other/m/9_seg.png",
        ],
        table,
    );
    fs::write(dir.path().join("train.txt"), "\n2\n1\n").unwrap();
    let found = open(&dir).unwrap();
    assert_eq!(
        pairs(&dir, &found.train),
        owned(&[
            ("all/2_rgb.jpg", "all/2_seg.png"),
            ("all/1_rgb.jpg", "all/1_seg.png")
        ])
    );
    assert_eq!(
        pairs(&dir, &found.val.unwrap()),
        owned(&[("other/9_rgb.jpg", "other/m/9_seg.png")])
    );
    let Coding::Colors(colors) = &found.train.pixel_classes().unwrap().coding else {
        panic!()
    };
    assert_eq!(colors[&[1, 2, 3]], 0);
}

#[test]
fn a_class_table_replaces_the_classes_of_a_known_layout() {
    let dir = with_table(
        &["train/a.png", "trainannot/a_m.png"],
        &format!("mask_suffix = '_m.png'\n{TWO}"),
    );
    assert_eq!(classes(&open(&dir).unwrap().train).names, ["a", "b"]);
}

#[test]
fn a_wrong_class_table_is_named_with_its_line() {
    let dir = with_table(
        &["images/1.png", "masks/1.png"],
        "[[class]]\nname = 'a'\n\ncolour = [1, 2, 3]\n",
    );
    let text = error(&dir);
    assert!(
        text.starts_with("DATA/classes.toml:4: unknown field `colour`"),
        "{text}"
    );
    let dir = with_table(&["cat/1.png"], TWO);
    assert!(error(&dir).starts_with("DATA/classes.toml: there are no folders images/ and masks/"));
}

#[test]
fn what_has_no_partner_is_named() {
    let dir = with_table(&["images/1.png", "images/2.png", "masks/1.png"], TWO);
    assert_eq!(
        error(&dir),
        "DATA/images/2.png: its mask DATA/masks/2.png is not there (1 of 2 images have none); add it, leave the image out by a \
         list file, or say how masks are called by mask_suffix in classes.toml"
    );
    let dir = with_table(
        &["images/1.png", "masks/1.png", "masks/2.png", "masks/3.png"],
        TWO,
    );
    let text = error(&dir);
    assert!(
        text.starts_with("DATA/masks/2.png: there is no image of this name in DATA/images (2 such masks)"),
        "{text}"
    );
    let dir = with_table(&["images/1.png", "images/1.jpg", "masks/1.png"], TWO);
    assert!(error(&dir).contains("there is one mask for both"));
    let dir = with_table(&["images/1.txt", "masks/1.png"], TWO);
    assert!(error(&dir).contains("there are no images"), "{}", error(&dir));
}

/// A data set of classes is one as before, whatever its classes are called, unless it could be either.
#[test]
fn classes_called_images_and_masks_stay_classes_where_that_is_clear() {
    for files in [
        &["images/1.png", "masks/2.png"][..],
        &["images/1.png", "masks/1.png", "other/1.png"],
        &["train/images/1.png", "train/masks/2.png", "val/masks/1.png"],
        &["train/a/1.png", "train/b/1.png", "trainannot/1.png"],
    ] {
        let found = open(&tree(files)).unwrap();
        assert!(
            found.train.pixel_classes().is_none() && found.train.classes().len() > 1,
            "{files:?}"
        );
    }
    for (files, root) in [
        (&["images/1.png", "masks/1_mask.png"][..], "DATA"),
        (&["train/images/1.png", "train/masks/1.png"], "DATA/train"),
    ] {
        let text = error(&tree(files));
        let expected = format!(
            "{root}: 1 images in images/ have a mask in masks/, and nothing says what their classes are"
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(
            text.contains("DATA/classes.toml") && text.contains("rename"),
            "{text}"
        );
    }
}

/// A folder next to one with its name and `annot`, `mask` or the like is not taken for a class of photos.
#[test]
fn a_folder_beside_its_masks_is_no_class() {
    for (images, masks) in [
        ("test", "testannot"),
        ("photos", "photos_mask"),
        ("X", "Xlabels"),
        ("scenes", "scenes-masks"),
        ("images", "labels"),
    ] {
        let dir = tree(&[
            &format!("{images}/1.jpg"),
            &format!("{images}/2.jpg"),
            &format!("{masks}/1.png"),
            &format!("{masks}/2.png"),
        ]);
        let text = error(&dir);
        let expected = format!(
            "DATA: 2 images in {images}/ have a mask in {masks}/, and nothing says what their classes are; write DATA/classes.toml with a \
             [[class]] and its name for each value of the masks, and a [train] with images = \"{images}\" and masks = \"{masks}\", or, if \
             {images} and {masks} are two classes of images, rename one of the folders"
        );
        assert_eq!(text, expected);
        // What it says is read.
        let table = format!("{TWO}[train]\nimages = \"{images}\"\nmasks = \"{masks}\"\n");
        fs::write(dir.path().join("classes.toml"), table).unwrap();
        assert_eq!(pairs(&dir, &open(&dir).unwrap().train).len(), 2);
    }
    for files in [
        // Photos of faces with masks, other names, and a class next to them.
        &["face/1.jpg", "face_mask/1.jpg"][..],
        &["face/1.jpg", "face_mask/2.png"],
        &["face/1.jpg", "face_mask/1.png", "other/1.jpg"],
    ] {
        assert!(
            open(&tree(files)).unwrap().train.pixel_classes().is_none(),
            "{files:?}"
        );
    }
}

#[test]
fn another_split_lies_as_the_training_images_do() {
    for (files, image, mask) in [
        (
            &["train/1.png", "trainannot/1.png", "test/2.png", "testannot/2.png"][..],
            "test/2.png",
            "testannot/2.png",
        ),
        (
            &[
                "leftImg8bit/train/a/1_leftImg8bit.png",
                "gtFine/train/a/1_gtFine_labelIds.png",
                "leftImg8bit/test/a/2_leftImg8bit.png",
                "gtFine/test/a/2_gtFine_labelIds.png",
            ],
            "leftImg8bit/test/a/2_leftImg8bit.png",
            "gtFine/test/a/2_gtFine_labelIds.png",
        ),
    ] {
        let dir = tree(files);
        let test = Dataset::open_split(dir.path(), "test").unwrap();
        assert_eq!(pairs(&dir, &test), owned(&[(image, mask)]));
        let none = Dataset::open_split(dir.path(), "dev").unwrap_err().to_string();
        assert!(
            none.contains("it has no split dev: its training images lie in "),
            "{none}"
        );
    }
    let dir = tree(&["train/a/1.jpg", "test/a/2.jpg", "test/b/3.jpg"]);
    let test = Dataset::open_split(dir.path(), "test").unwrap();
    assert_eq!(
        (test.classes(), test.len()),
        (&["a".to_owned(), "b".to_owned()][..], 2)
    );
    let none = Dataset::open_split(dir.path(), "dev").unwrap_err().to_string();
    assert!(
        none.contains("it has no split dev: there is no folder "),
        "{none}"
    );
}

#[test]
fn a_split_and_a_limit_keep_images_and_masks_together() {
    let names: Vec<String> = (0..40)
        .flat_map(|i| [format!("images/{i}.png"), format!("masks/{i}.png")])
        .collect();
    let dir = with_table(&names.iter().map(String::as_str).collect::<Vec<_>>(), TWO);
    let mut found = Dataset::open(dir.path(), Some(0.25), 3).unwrap();
    assert_eq!((found.train.len(), found.val.as_ref().unwrap().len()), (30, 10));
    found.limit(15);
    assert_eq!((found.train.len(), found.val.as_ref().unwrap().len()), (15, 5));
    let val = found.val.unwrap();
    for (image, mask) in pairs(&dir, &found.train).into_iter().chain(pairs(&dir, &val)) {
        assert_eq!(image.replace("images", "masks"), mask);
    }
}

#[test]
fn sources_of_sources_pass_masks_on() {
    let dir = with_table(&["images/1.png", "masks/1.png"], TWO);
    let train: Arc<dyn Source> = Arc::new(open(&dir).unwrap().train);
    let joined = Joined::new(vec![Arc::clone(&train), Arc::clone(&train)]).unwrap();
    let slow = stokehold_storage::SlowSource::new(joined, std::time::Duration::from_millis(1));
    let mut mask = Vec::new();
    slow.read_mask(1, &mut mask).unwrap();
    assert_eq!(
        (mask, slow.pixel_classes()),
        (b"masks/1.png".to_vec(), train.pixel_classes())
    );
    assert_eq!(Path::new(&slow.mask_name(1)), dir.path().join("masks/1.png"));
    let mut list = ImageList::default();
    list.push("a.jpg", 0);
    assert!(
        list.read_mask(0, &mut Vec::new())
            .unwrap_err()
            .to_string()
            .starts_with("a.jpg: ")
    );
    let mixed = Joined::new(vec![train, Arc::new(list)]).err().unwrap();
    assert!(
        mixed.to_string().contains("only one of the two has masks"),
        "{mixed}"
    );
}
