//! Recognises other programs' layouts by the names in a folder, and says how to convert each to class folders.
//!
//! One function describes a place for all errors that end an opening. It lists folders and reads the beginning of a table, or the
//! headers of a tar file; it never opens an image.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use stokehold_base::shell::quoted;
use stokehold_base::words::plural;

use crate::besides::is_suffix;
use crate::folder::{EXTENSIONS, is_image_name, walk_all};
use crate::shard::Manifest;

/// How many bytes of a table are read.
const TABLE_BYTES: u64 = 1 << 16;
/// How many entries of a tar file are counted.
const TAR_ENTRIES: usize = 100_000;
/// How many columns are named.
const COLUMNS: usize = 8;
/// What a way writes, in addition to whatever is there.
const TO: &str = "classes";

/// Names of splits other than train and val, in small letters, and what each is read as.
const SPLITS: [(&str, &str); 9] = [
    ("train", "train"),
    ("training", "train"),
    ("val", "val"),
    ("valid", "val"),
    ("validation", "val"),
    ("dev", "val"),
    ("eval", "val"),
    ("test", "test"),
    ("testing", "test"),
];

/// Files of other programs: suffixes or whole names, what they are, and how to get to what is read. `{at}` stands for the place as a
/// string of Python within a command, `{first}` for the first file as a word of a command, `{to}` for where to.
const FILES: [(&[&str], &str, &str); 14] = [
    (
        &[".parquet"],
        "Parquet files, as Hugging Face has them",
        "write class folders of them: python3 -c \"import os; from datasets import load_dataset, Image; d = load_dataset({at}, split='train')\
         .cast_column('image', Image(decode=False)); c = lambda r: '{to}/' + str(r['label']).replace('/', '_'); \
         [(os.makedirs(c(r), exist_ok=True), open(f'{c(r)}/{i}.jpg', 'wb').write(r['image']['bytes'])) for i, r in enumerate(d)]\"",
    ),
    (
        &[".arrow"],
        "Arrow files of Hugging Face's datasets",
        "write class folders of them: python3 -c \"import os; from datasets import load_from_disk, Image; d = load_from_disk({at})\
         .cast_column('image', Image(decode=False)); c = lambda r: '{to}/' + str(r['label']).replace('/', '_'); \
         [(os.makedirs(c(r), exist_ok=True), open(f'{c(r)}/{i}.jpg', 'wb').write(r['image']['bytes'])) for i, r in enumerate(d)]\"",
    ),
    (
        &[".tfrecord", ".tfrecords"],
        "TFRecord files of TensorFlow",
        "read them with tensorflow_datasets or the package tfrecord, and write each image's encoded bytes as they are to {to}/LABEL/NUMBER.jpg",
    ),
    (
        &["data.mdb"],
        "an LMDB database",
        "read it with the package lmdb, and write each encoded image as it is to {to}/LABEL/NUMBER.jpg",
    ),
    (
        &[".beton"],
        "files of FFCV",
        "they were made of a data set that PyTorch read: give that one, or write its images to {to}/LABEL/NUMBER.jpg",
    ),
    (
        &[".rec"],
        "RecordIO files of MXNet",
        "unpack them with mxnet.recordio.unpack, and write each image's encoded bytes as they are to {to}/LABEL/NUMBER.jpg",
    ),
    (
        &[".mds"],
        "shards of MosaicML's streaming",
        "read them with streaming.LocalDataset, and write each image to {to}/LABEL/NUMBER.jpg",
    ),
    (
        &[".h5", ".hdf5"],
        "HDF5 files",
        "read them with the package h5py, and write each image to {to}/LABEL/NUMBER.png",
    ),
    (
        &[".npz", ".npy"],
        "NumPy arrays",
        "write each image of them to {to}/LABEL/NUMBER.png: PIL.Image.fromarray(image).save(path)",
    ),
    (
        &["data_batch_1", ".pkl", ".pickle"],
        "pickled arrays of Python, as CIFAR comes",
        "write each image to {to}/LABEL/NUMBER.png: for CIFAR, (image, label) of torchvision.datasets.CIFAR10(root) with image.save(path)",
    ),
    (
        &["idx3-ubyte", "idx3-ubyte.gz"],
        "images of MNIST in IDX files",
        "write each image to {to}/LABEL/NUMBER.png: (image, label) of torchvision.datasets.MNIST(root) with image.save(path)",
    ),
    (
        &[".zip"],
        "ZIP archives",
        "unpack them: unzip -q {first} -d FOLDER, and give the folder of class folders",
    ),
    (
        &[".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"],
        "compressed tar archives",
        "unpack them: mkdir FOLDER && tar -xf {first} -C FOLDER, and give the folder of class folders",
    ),
    (
        &[".7z", ".rar"],
        "archives",
        "unpack them, and give the folder of class folders",
    ),
];

/// A place whose names can be listed.
pub(crate) trait Look {
    /// As a user names it.
    fn at(&self) -> PathBuf;
    /// The names of the folders and of the files in `below`, sorted.
    fn names(&self, below: &str) -> (Vec<String>, Vec<String>);
    /// A file on this machine; none in a bucket.
    fn file(&self, below: &str) -> Option<PathBuf>;
}

/// A folder of this machine.
struct Here<'a>(&'a Path);

impl Look for Here<'_> {
    fn at(&self) -> PathBuf {
        self.0.to_owned()
    }

    fn names(&self, below: &str) -> (Vec<String>, Vec<String>) {
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(self.0.join(below)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.path().is_dir() {
                true => folders.push(name),
                false => files.push(name),
            }
        }
        folders.sort_unstable();
        files.sort_unstable();
        (folders, files)
    }

    fn file(&self, below: &str) -> Option<PathBuf> {
        let path = self.0.join(below);
        path.is_file().then_some(path)
    }
}

/// What a folder or file of this machine is, and the way from there; none if nothing is known.
pub(crate) fn described(path: &Path) -> Option<String> {
    if !path.is_file() {
        return described_place(&Here(path));
    }
    let name = path.file_name()?.to_string_lossy().into_owned();
    let folder = path.parent()?;
    let alone = [name];
    let here = Here(folder);
    tars(&here, &alone, path).or_else(|| files(&alone, path, folder))
}

/// A table of labels in a folder, and the way from there.
pub(crate) fn described_table(folder: &Path) -> Option<String> {
    let here = Here(folder);
    let (folders, names) = here.names("");
    table(&here, &folders, &names)
}

/// As [`described`], for whatever can be listed.
pub(crate) fn described_place(look: &dyn Look) -> Option<String> {
    let (folders, names) = look.names("");
    let at = look.at();
    boxes(look, &folders, &names)
        .or_else(|| lost_manifest(&folders, &names, look))
        .or_else(|| tars(look, &names, &at))
        .or_else(|| table(look, &folders, &names))
        .or_else(|| files(&names, &at, &at))
        // The same one folder below: `data/*.parquet`, `train/*.tar`.
        .or_else(|| {
            let mut found = folders.iter().map(|folder| {
                let (_, names) = look.names(folder);
                let at = at.join(folder);
                let names: Vec<String> = names.iter().map(|name| format!("{folder}/{name}")).collect();
                tars(look, &names, &at).or_else(|| files(&names, &at, &look.at()))
            });
            found.find_map(|found| found)
        })
}

/// Splits that would be taken for classes, and the way from there: two folders of such names, one of which holds folders; an only
/// folder that holds them; or the same ones in every class folder.
pub(crate) fn splits(path: &Path) -> Option<String> {
    let here = Here(path);
    let (mut folders, _) = here.names("");
    folders.retain(|name| !name.starts_with('.') && !name.starts_with("__"));
    let within = |name: &String| here.names(name).0;
    let named = |names: &[String]| names.iter().filter(|name| read_as(name).is_some()).count();
    let all: Vec<(&String, &str)> = folders
        .iter()
        .filter_map(|name| Some((name, read_as(name)?)))
        .collect();
    // A few more may be images without classes, or masks; many are classes, of which two happen to have such names.
    let are_few = folders.len() <= 2 * all.len();
    if all.len() > 1 && are_few && all.iter().any(|(name, _)| !within(name).is_empty()) {
        return links(path, &all);
    }
    if let [only] = folders.as_slice()
        && named(&within(only)) > 1
    {
        return Some(format!(
            "its only folder holds {}, which are splits by their names; give {}",
            within(only).join(", "),
            path.join(only).display()
        ));
    }
    let inner = within(folders.first()?);
    let are_same = folders.len() > 1 && inner.len() > 1 && named(&inner) == inner.len();
    (are_same && folders.iter().all(|name| within(name) == inner)).then(|| {
        let (class, split) = (&folders[0], &inner[0]);
        format!(
            "each of its folders holds {}, which are splits by their names, and class folders lie within splits; link each, such as \
             mkdir -p {} && ln -s {} {}",
            inner.join(", "),
            quoted(path.join(split)),
            quoted(Path::new("..").join(class).join(split)),
            quoted(path.join(split).join(class))
        )
    })
}

/// A folder next to `train/` that is validation images by its name, where there is no `val/`, and a sentence about it.
pub(crate) fn other_val(path: &Path) -> Option<(String, String)> {
    let (mut folders, _) = Here(path).names("");
    let at = folders.iter().position(|name| read_as(name) == Some("val"))?;
    let name = folders.swap_remove(at);
    (name != "val").then(|| {
        let remark = format!(
            "{}: {name}/ is not read: validation images lie in val/; link it: {}",
            path.display(),
            link(path, &name, "val")
        );
        (name, remark)
    })
}

/// Folders next to `train/` that hold images and are not read, a sentence for each. `known` names one that another sentence names;
/// `some` are images that are read: those may be links, and the folder with their targets is read.
pub(crate) fn unread<'a>(
    path: &Path,
    known: Option<&str>,
    some: impl Iterator<Item = &'a Path>,
) -> Vec<String> {
    const READ: [&str; 3] = ["train", "val", "test"];
    let (folders, _) = Here(path).names("");
    let others = folders.iter().map(String::as_str);
    let others = others.filter(|name| !READ.contains(name) && !name.starts_with('.') && Some(*name) != known);
    let others: Vec<&str> = others.collect();
    if others.is_empty() {
        return Vec::new();
    }
    let truly = |path: &Path| fs::canonicalize(path).ok();
    let folders_read: Vec<PathBuf> = READ.iter().filter_map(|name| truly(&path.join(name))).collect();
    let images_read: Vec<PathBuf> = some.filter_map(truly).collect();
    let is_read = |folder: &Path| {
        let of_folder = |read: &PathBuf| read.starts_with(folder) || folder.starts_with(read);
        folders_read.iter().any(of_folder) || images_read.iter().any(|image| image.starts_with(folder))
    };
    let remarks = others.into_iter().filter_map(|name| {
        let folder = path.join(name);
        let images = truly(&folder).filter(|folder| !is_read(folder));
        let images = images.and_then(|_| walk_all(&folder).ok())?.len();
        let as_ = read_as(name).filter(|as_| !path.join(as_).exists());
        let way = match as_ {
            Some(as_) => format!("name it {as_}"),
            None => format!(
                "move {} into train, val or test",
                if images == 1 { "it" } else { "them" }
            ),
        };
        (images > 0).then(|| {
            format!(
                "{}: {name} holds {} and is not read; {way}, or give its folder by itself",
                path.display(),
                plural(images, "image")
            )
        })
    });
    remarks.collect()
}

/// The split that a folder's name stands for: `Training`, `train2017`, `valset`, `test_images`.
fn read_as(name: &str) -> Option<&'static str> {
    let small = name.to_lowercase();
    let small = small.trim_end_matches(|end: char| end.is_ascii_digit() || "_-".contains(end));
    let endings = ["", "_images", "-images", "images", "_set", "set", "s"];
    endings.iter().find_map(|ending| {
        let name = small.strip_suffix(ending)?;
        let mut splits = SPLITS.iter();
        splits.find(|(split, _)| *split == name).map(|(_, as_)| *as_)
    })
}

fn link(path: &Path, name: &str, as_: &str) -> String {
    format!("ln -s {} {}", quoted(Path::new(name)), quoted(path.join(as_)))
}

fn links(path: &Path, folders: &[(&String, &str)]) -> Option<String> {
    let mut taken = BTreeSet::new();
    let links: Vec<String> = folders
        .iter()
        .filter(|(name, as_)| name.as_str() != *as_ && taken.insert(*as_))
        .map(|(name, as_)| link(path, name, as_))
        .collect();
    let names: Vec<&str> = folders.iter().map(|(name, _)| name.as_str()).collect();
    (!links.is_empty()).then(|| {
        format!(
            "its folders {} are splits by their names, and splits are called train, val and test; link them: {}",
            names.join(", "),
            links.join(" && ")
        )
    })
}

fn ends(name: &str, suffix: &str) -> bool {
    let start = name.len().checked_sub(suffix.len());
    start
        .and_then(|start| name.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

/// Data sets for finding objects.
fn boxes(look: &dyn Look, folders: &[String], names: &[String]) -> Option<String> {
    let in_folder = |folder: &str, suffix: &str| {
        let mut folder = folder.to_owned();
        // Splits lie within: labels/train.
        for _ in 0..2 {
            let (below, names) = look.names(&folder);
            if let Some(name) = names.iter().find(|name| ends(name, suffix)) {
                return Some(format!("{folder}/{name}"));
            }
            folder = format!("{folder}/{}", below.first()?);
        }
        None
    };
    let folder = |name: &str| folders.iter().find(|folder| folder.eq_ignore_ascii_case(name));
    let coco = names.iter().find(|name| ends(name, ".coco.json")).cloned();
    let (what, first) = if let Some(name) = coco.or_else(|| in_folder(folder("annotations")?, ".json")) {
        ("COCO's layout: images, and annotations in JSON", name)
    } else if let Some(name) = folder("annotations").and_then(|folder| in_folder(folder, ".xml")) {
        ("Pascal VOC's layout: images, and boxes in XML", name)
    } else if let Some(name) = folder("labels").and_then(|folder| in_folder(folder, ".txt")) {
        ("YOLO's layout: images/, and boxes in labels/", name)
    } else {
        return None;
    };
    Some(format!(
        "it has {what} ({first}), which say where objects are; a classifier needs one class for each image: {}",
        LISTS
    ))
}

/// Ways that move no file.
const LISTS: &str = "make class folders of links to the images (classes/CLASS/NAME.jpg), or give stokehold.Loader a list of \
                     (path, class number)";

/// Shards of `stokehold prepare` without their manifest.
fn lost_manifest(folders: &[String], names: &[String], look: &dyn Look) -> Option<String> {
    let is_shard = |name: &&String| ends(name, ".skshard");
    let shard = names.iter().find(is_shard).cloned();
    let shard = shard.or_else(|| {
        let mut below = folders.iter().map(|folder| {
            let (_, names) = look.names(folder);
            names.iter().find(is_shard).map(|name| format!("{folder}/{name}"))
        });
        below.find_map(|found| found)
    })?;
    Some(format!(
        "it has shards of `stokehold prepare` ({shard}) and no {} next to them: give the folder that has it, or copy it here, too",
        Manifest::FILE
    ))
}

/// Tar files, as WebDataset has them.
fn tars(look: &dyn Look, names: &[String], at: &Path) -> Option<String> {
    let tars: Vec<&String> = names.iter().filter(|name| ends(name, ".tar")).collect();
    let first = *tars.first()?;
    let mut text = format!(
        "{} {}",
        plural(tars.len(), "tar file"),
        if tars.len() == 1 { "lies here" } else { "lie here" }
    );
    let inside = look.file(first).and_then(|path| TarContents::of(&path));
    let mut image = ".jpg".to_owned();
    if let Some(inside) = inside {
        text += &format!(
            ", {} in {first} ({})",
            plural(inside.samples, "sample"),
            inside.suffixes.iter().cloned().collect::<Vec<_>>().join(", ")
        );
        // It becomes a part of a command, and anybody may have named it.
        let is_plain = |suffix: &str| suffix[1..].split('.').all(is_suffix);
        let mut images = inside
            .suffixes
            .iter()
            .filter(|suffix| is_image_name(suffix.as_ref()));
        if let Some(found) = images.find(|suffix| is_plain(suffix)) {
            image.clone_from(found);
        }
        if !inside.suffixes.contains(".cls") {
            text += &format!(
                ", and tar files are not read; unpack them (mkdir unpacked && tar -xf {} -C unpacked) and give the folder of class \
                 folders",
                quoted(look.at().join(first))
            );
            return Some(text);
        }
    }
    let tars = match at.is_dir() || tars.len() > 1 {
        true => format!("{}/*.tar", quoted(at)),
        false => quoted(at),
    };
    text += &format!(
        ", as WebDataset has them, which are not read; make class folders of them: for t in {tars}; do u=unpacked/$(basename \"$t\" .tar); \
         mkdir -p \"$u\"; tar -xf \"$t\" -C \"$u\"; done; find unpacked -name '*.cls' | while read -r c; do l=$(tr / _ < \"$c\"); \
         case $l in ''|.|..) continue;; esac; mkdir -p \"{TO}/$l\"; mv -n \"${{c%.cls}}{image}\" \"{TO}/$l/\"; done"
    );
    Some(text)
}

/// The samples of a tar file: entries one after the other whose names are equal up to the first dot.
struct TarContents {
    samples: usize,
    suffixes: BTreeSet<String>,
}

impl TarContents {
    fn of(path: &Path) -> Option<TarContents> {
        let mut file = BufReader::new(fs::File::open(path).ok()?);
        let (mut samples, mut suffixes, mut last) = (0, BTreeSet::new(), Vec::new());
        let mut header = [0; 512];
        for _ in 0..TAR_ENTRIES {
            // A cut file has the samples up to there.
            if file.read_exact(&mut header).is_err() || header[0] == 0 {
                break;
            }
            let name: Vec<u8> = header[..100]
                .iter()
                .copied()
                .take_while(|&byte| byte != 0)
                .collect();
            let digits = std::str::from_utf8(&header[124..136]).ok()?;
            let size = u64::from_str_radix(digits.trim_matches([' ', '\0']), 8).ok()?;
            // 0 and NUL: a regular file.
            if matches!(header[156], b'0' | 0) {
                let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                let dot = name[base..].iter().position(|&byte| byte == b'.');
                let (key, suffix) = name.split_at(dot.map_or(name.len(), |dot| base + dot));
                if key != last {
                    samples += 1;
                    last = key.to_owned();
                }
                if suffixes.len() < COLUMNS {
                    suffixes.insert(String::from_utf8_lossy(suffix).into_owned());
                }
            }
            file.seek_relative(i64::try_from(size.checked_next_multiple_of(512)?).ok()?)
                .ok()?;
        }
        (samples > 0).then_some(TarContents { samples, suffixes })
    }
}

/// A table of labels next to images, or next to their folder.
fn table(look: &dyn Look, folders: &[String], names: &[String]) -> Option<String> {
    let is_table = |name: &&String| [".csv", ".tsv", ".jsonl"].iter().any(|suffix| ends(name, suffix));
    // Kaggle's submissions and tests have no labels.
    let is_label = |name: &&String| {
        !["sample", "test"]
            .iter()
            .any(|start| name.to_lowercase().starts_with(start))
    };
    let name = names.iter().filter(is_table).find(is_label)?;
    let at = look.at();
    let Some(Table { columns, first }) = look.file(name).and_then(|path| Table::of(&path)) else {
        return Some(format!(
            "{name} lies there, which is no part of a data set here; {LISTS}"
        ));
    };
    let shown = columns
        .iter()
        .take(COLUMNS)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = if columns.len() > COLUMNS { ", .." } else { "" };
    let text = format!("{name} lies there, with the columns {shown}{more}, and tables are not read");
    // The column whose first entry is an image, with or without its suffix, here or in one of the folders.
    let places = std::iter::once("").chain(folders.iter().map(String::as_str));
    let places: Vec<PathBuf> = places.map(PathBuf::from).collect();
    let image = columns.iter().zip(&first).find_map(|(column, value)| {
        if value.is_empty() {
            return None;
        }
        let endings = || std::iter::once("").chain(EXTENSIONS);
        let mut tries = places
            .iter()
            .flat_map(|place| endings().map(move |ending| (place, ending)));
        let (place, ending) = tries.find(|(place, ending)| {
            let file = format!("{value}{ending}");
            is_image_name(file.as_ref()) && look.file(&place.join(file).to_string_lossy()).is_some()
        })?;
        Some((column, place, ending))
    });
    let known = [
        "label",
        "class",
        "category",
        "target",
        "labels",
        "species",
        "breed",
        "diagnosis",
        "level",
    ];
    let label = columns
        .iter()
        .find(|column| known.contains(&column.to_lowercase().as_str()))
        .or_else(|| match &columns[..] {
            [a, b] => image.map(|(column, ..)| if column == a { b } else { a }),
            _ => None,
        });
    let (Some((image, place, ending)), Some(label)) = (image, label) else {
        return Some(format!("{text}; {LISTS}"));
    };
    let folder = at.join(place);
    let rows = match () {
        () if ends(name, ".jsonl") => "map(json.loads, f)".to_owned(),
        () if ends(name, ".tsv") => "csv.DictReader(f, delimiter='\\t')".to_owned(),
        () => "csv.DictReader(f)".to_owned(),
    };
    let script = format!(
        "import csv, json, os; f = open({table}); c = lambda r: '{TO}/' + str(r[{label}]).replace('/', '_'); \
         [(os.makedirs(c(r), exist_ok=True), os.symlink(os.path.abspath(os.path.join({folder}, r[{image}] + '{ending}')), \
         os.path.join(c(r), os.path.basename(r[{image}]) + '{ending}'))) for r in {rows} if str(r[{label}]) not in ('', '.', '..')]",
        table = word(&at.join(name).to_string_lossy()),
        label = word(label),
        image = word(image),
        folder = word(&folder.to_string_lossy()),
    );
    Some(format!(
        "{text}; make class folders of links in {TO}/, which moves no file: python3 -c \"{}\"; or give stokehold.Loader a list of \
         (path, class number)",
        escaped(&script)
    ))
}

/// A text as a string of Python.
fn word(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{}'", text.replace('\n', "\\n"))
}

/// A text within double quotes of a shell.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('$', "\\$")
        .replace('`', "\\`")
}

/// The head of a table.
struct Table {
    columns: Vec<String>,
    /// The first row, as many entries as columns.
    first: Vec<String>,
}

impl Table {
    fn of(path: &Path) -> Option<Table> {
        let mut lines = BufReader::new(fs::File::open(path).ok()?.take(TABLE_BYTES)).lines();
        let head = lines.next()?.ok()?;
        let head = head.trim_start_matches('\u{feff}').trim_end();
        if path.extension()?.eq_ignore_ascii_case("jsonl") {
            let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(head).ok()?;
            let text =
                |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Some(Table {
                columns: row.keys().cloned().collect(),
                first: row.values().map(text).collect(),
            });
        }
        let separator = if path.extension()?.eq_ignore_ascii_case("tsv") {
            '\t'
        } else {
            ','
        };
        let columns = cells(head, separator);
        let mut first = lines
            .next()
            .and_then(Result::ok)
            .map_or_else(Vec::new, |line| cells(line.trim_end(), separator));
        first.resize(columns.len(), String::new());
        Some(Table { columns, first })
    }
}

/// The cells of a line; quotation marks hold one together.
fn cells(line: &str, separator: char) -> Vec<String> {
    let (mut cells, mut quotes) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quotes = !quotes,
            c if c == separator && !quotes => cells.push(String::new()),
            c => cells.last_mut().into_iter().for_each(|cell| cell.push(c)),
        }
    }
    cells
}

/// Files of other programs.
fn files(names: &[String], at: &Path, root: &Path) -> Option<String> {
    let is_of = |name: &str, endings: &[&str]| {
        // TensorFlow numbers its files after the suffix: train.tfrecord-00000-of-00010.
        let name = name
            .split_once(".tfrecord-")
            .map_or(name.to_owned(), |(stem, _)| format!("{stem}.tfrecord"));
        endings.iter().any(|ending| ends(&name, ending))
    };
    FILES.iter().find_map(|(endings, what, way)| {
        let some: Vec<&String> = names.iter().filter(|name| is_of(name, endings)).collect();
        let first = *some.first()?;
        // A name may have another of these in it, so it comes last, and there is one in each.
        let way = way.replace("{to}", TO);
        let way = match way.contains("{at}") {
            true => way.replace("{at}", &escaped(&word(&at.to_string_lossy()))),
            false => way.replace("{first}", &quoted(root.join(first))),
        };
        let more = if some.len() > 1 {
            format!(" and {} more", some.len() - 1)
        } else {
            String::new()
        };
        Some(format!(
            "{what} lie there ({first}{more}), which are not read; {way}"
        ))
    })
}
