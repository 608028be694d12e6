//! What a folder of class folders holds besides the images that are read, and class names that are easily mistaken.
//!
//! A data set of class folders is what lies in them, so a stray folder is a class, and a file of another suffix is no image.
//! Both are found while the folders are listed, and no file is opened. [`Dataset::remarks`](crate::Dataset::remarks) puts them in words.
//!
//! Names of classes are compared in Unicode's composed form (NFC, by the crate `unicode-normalization`) and in small letters. macOS's older
//! file systems store names decomposed, other systems as they were typed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use stokehold_base::shell::quoted;
use stokehold_base::words::plural;
use unicode_normalization::UnicodeNormalization;

use crate::extensions_in_words;

/// Suffixes that `torchvision.datasets.ImageFolder` takes for images and that are not read here.
const TORCHVISION: [&str; 5] = [".ppm", ".bmp", ".pgm", ".tif", ".tiff"];

/// Other suffixes of images.
const OTHER_IMAGES: [&str; 20] = [
    ".gif", ".avif", ".heic", ".heif", ".jfif", ".jpe", ".jp2", ".j2k", ".jxl", ".tga", ".ico", ".pbm",
    ".pnm", ".svg", ".dng", ".cr2", ".nef", ".arw", ".dcm", ".exr",
];

/// Folders with the history of a repository, which no one wants to lose.
const REPOSITORIES: [&str; 4] = [".dvc", ".git", ".hg", ".svn"];

/// Folders that programs leave, and that are seldom meant as classes.
const STRAY: [&str; 5] = [
    "__MACOSX",
    "__pycache__",
    "@eaDir",
    "$RECYCLE.BIN",
    "System Volume Information",
];

/// Files that programs leave, and that no one misses.
const LEFT_BY_PROGRAMS: [&str; 2] = ["Thumbs.db", "desktop.ini"];

/// How many things are named.
const NAMED: usize = 12;

/// Files of a kind: how many, and the first one by name, below the data set's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileCount {
    pub count: usize,
    pub first: PathBuf,
}

/// Kinds of files, and how many there are of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kinds(BTreeMap<String, FileCount>);

impl Kinds {
    /// Adds a file that is no image by its name.
    pub fn add(&mut self, name: &OsStr) {
        let name_text = name.to_string_lossy();
        let small = name_text.to_ascii_lowercase();
        let kind = match TORCHVISION.iter().find(|suffix| small.ends_with(*suffix)) {
            // torchvision takes hidden ones, too, and one that is called just that.
            Some(suffix) => (*suffix).to_owned(),
            None if name_text.starts_with('.') || LEFT_BY_PROGRAMS.contains(&&*name_text) => return,
            None => suffix(&name_text),
        };
        self.merge(kind, 1, PathBuf::from(name));
    }

    fn merge(&mut self, kind: String, count: usize, first: PathBuf) {
        match self.0.get_mut(&kind) {
            Some(known) => {
                known.count += count;
                if first < known.first {
                    known.first = first;
                }
            }
            None => {
                self.0.insert(kind, FileCount { count, first });
            }
        }
    }

    /// Adds those of a folder.
    fn add_below(&mut self, folder: &Path, other: &Kinds) {
        for (kind, FileCount { count, first }) in &other.0 {
            self.merge(kind.clone(), *count, folder.join(first));
        }
    }

    fn total(&self) -> usize {
        self.0.values().map(|some| some.count).sum()
    }

    fn of(&self, kinds: &[&str]) -> usize {
        let some = kinds.iter().filter_map(|kind| self.0.get(*kind));
        some.map(|some| some.count).sum()
    }

    /// `3 .bmp (such as a/x.bmp), 1 without a suffix (a/y)`; the most frequent ones first.
    fn named(&self) -> String {
        let mut kinds: Vec<(&String, &FileCount)> = self.0.iter().collect();
        kinds.sort_by_key(|(_, some)| std::cmp::Reverse(some.count));
        let more = kinds.len().saturating_sub(NAMED);
        let mut words: Vec<String> = kinds
            .iter()
            .take(NAMED)
            .map(|(kind, FileCount { count, first })| {
                let kind = if kind.is_empty() { "without a suffix" } else { kind };
                let such = if *count > 1 { "such as " } else { "" };
                format!("{count} {kind} ({such}{})", first.display())
            })
            .collect();
        if more > 0 {
            words.push(format!("{more} more kinds"));
        }
        words.join(", ")
    }
}

/// A name's suffix in small letters; empty if it has none that looks like one.
fn suffix(name: &str) -> String {
    match name.rfind('.') {
        Some(at) if at > 0 && is_suffix(&name[at + 1..]) => name[at..].to_ascii_lowercase(),
        _ => String::new(),
    }
}

/// Whether a text may be a suffix: a few letters and digits.
pub(crate) fn is_suffix(text: &str) -> bool {
    (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// What was seen in a folder of class folders besides its images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Besides {
    /// Files in class folders that are no images by their names.
    files: Kinds,
    /// Images next to the class folders, which are in no class.
    loose: Kinds,
    /// Images whose names begin with `._`: what macOS keeps of a file where a file system cannot.
    of_macos: Option<FileCount>,
    /// Stray folders within class folders, and how many images of their class lie in them.
    stray: BTreeMap<PathBuf, usize>,
    /// Links to a folder around them, which are not followed.
    loops: Vec<PathBuf>,
    /// Whether the folder is `train/` of a data set: then the folders next to it are of that data set, too.
    pub(crate) is_train: bool,
}

impl Besides {
    /// Adds a folder within class folders: `below` is its path below the data set's folder, `images` and `others` are the names of
    /// its files.
    pub(crate) fn add_folder(&mut self, below: &Path, images: &[OsString], others: &Kinds) {
        self.files.add_below(below, others);
        for name in images.iter().filter(|name| is_of_macos(name)) {
            let first = below.join(name);
            match &mut self.of_macos {
                Some(known) => known.count += 1,
                none => *none = Some(FileCount { count: 1, first }),
            }
        }
        let mut folder = PathBuf::new();
        for (depth, part) in below.components().enumerate() {
            folder.push(part);
            if depth > 0 && is_stray(&part.as_os_str().to_string_lossy()) {
                *self.stray.entry(folder).or_default() += images.len();
                break;
            }
        }
    }

    /// Adds a link to a folder around it.
    pub(crate) fn add_loop(&mut self, below: &Path) {
        self.loops.push(below.to_owned());
    }

    /// Adds the images that lie next to the class folders.
    pub(crate) fn add_loose(&mut self, images: &[OsString]) {
        for name in images {
            self.loose.merge(String::new(), 1, name.into());
        }
    }

    /// Adds what another one saw.
    pub(crate) fn add(&mut self, other: Besides) {
        self.files.add_below(Path::new(""), &other.files);
        self.loose.add_below(Path::new(""), &other.loose);
        self.of_macos = match (self.of_macos.take(), other.of_macos) {
            (Some(a), Some(b)) => Some(FileCount {
                count: a.count + b.count,
                first: a.first,
            }),
            (a, b) => a.or(b),
        };
        self.stray.extend(other.stray);
        self.loops.extend(other.loops);
    }

    /// The files that are no images, in words; none if there are none.
    pub(crate) fn files_in_words(&self) -> Option<String> {
        (self.files.total() > 0).then(|| self.files.named())
    }

    /// A sentence for each thing that the owner of the folder `root` may not know.
    pub(crate) fn remarks(&self, root: &Path) -> Vec<String> {
        let mut remarks = Vec::new();
        let at = root.display();
        if let total @ 1.. = self.files.total() {
            let mut remark = format!(
                "{at}: {total} {} not read: {}; images are called {}",
                if total == 1 { "file is" } else { "files are" },
                self.files.named(),
                extensions_in_words(),
            );
            let others = self.files.of(&TORCHVISION) + self.files.of(&OTHER_IMAGES) + self.files.of(&[""]);
            if others > 0 {
                remark += ", so rename those that are JPEG, PNG or WebP, and convert others";
            }
            let there = self.files.of(&TORCHVISION);
            if there > 0 {
                remark += &format!(
                    "; torchvision's ImageFolder takes {there} of them ({}) and numbers its samples otherwise",
                    TORCHVISION.map(|suffix| &suffix[1..]).join(", ")
                );
            }
            remarks.push(remark);
        }
        if let Some(FileCount { count, first }) = self.loose.0.get("") {
            let (images, lie) = if *count == 1 {
                ("image", "lies")
            } else {
                ("images", "lie")
            };
            remarks.push(format!(
                "{at}: {count} {images} {lie} beside the class folders and {} in no class (such as {}); put {} into the folder of a \
                 class",
                if *count == 1 { "is" } else { "are" },
                first.display(),
                if *count == 1 { "it" } else { "them" },
            ));
        }
        if let Some(FileCount { count, first }) = &self.of_macos {
            remarks.push(format!(
                "{at}: {count} {} (such as {}), which macOS leaves on other file systems and in archives, and which hold{} no image; \
                 delete them{}",
                if *count == 1 { "file begins with ._" } else { "files begin with ._" },
                first.display(),
                if *count == 1 { "s" } else { "" },
                by_command(root, |root| format!("find {root} -name '._*' -type f -delete")),
            ));
        }
        for (folder, images) in &self.stray {
            if *images > 0 {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                let (count, are) = match *images {
                    1 => ("counts as an image", "it is"),
                    _ => ("count as images", "they are"),
                };
                remarks.push(format!(
                    "{at}: {}, {}, has {}, which {count} of the class around it, as in torchvision; if {are} not, {}",
                    folder.display(),
                    stray_in_words(&name),
                    plural(*images, "image"),
                    match REPOSITORIES.contains(&&*name) {
                        true => "move the folder out of the data set".to_owned(),
                        false => deleting("the folder", &root.join(folder)),
                    },
                ));
            }
        }
        if let Some(first) = self.loops.first() {
            let (lead, are, it) = match self.loops.len() {
                1 => ("leads", "is", "it"),
                _ => ("lead", "are", "them"),
            };
            remarks.push(format!(
                "{at}: {} (such as {}) {lead} back to a folder around {it} and {are} not followed; torchvision's ImageFolder goes \
                 forty times around and has other samples: remove {it}",
                plural(self.loops.len(), "link"),
                first.display()
            ));
        }
        remarks
    }
}

/// A sentence for each class that is a stray folder by its name, with the number of its images.
pub(crate) fn stray_classes(root: &Path, classes: &[String], counts: &[usize]) -> Vec<String> {
    let stray = classes.iter().zip(counts).enumerate();
    let stray = stray.filter(|(_, (name, images))| is_stray(name) && **images > 0);
    stray
        .map(|(number, (name, images))| {
            format!(
                "{}: {name}, {}, is class {number} with {}, as in torchvision; if it is no class, {}",
                root.display(),
                stray_in_words(name),
                plural(*images, "image"),
                without(root, name),
            )
        })
        .collect()
}

/// A sentence about classes whose names are easily taken for one; none if there are none. Letters by themselves, as of a data set of
/// handwriting, are not.
pub(crate) fn alike_classes(root: &Path, classes: &[String]) -> Option<String> {
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    let mut alike = Vec::new();
    for name in classes.iter().filter(|name| name.chars().count() > 1) {
        match known.get(&folded(name)) {
            Some(other) => alike.extend(differ_only(other, name)),
            None => {
                known.insert(folded(name), name);
            }
        }
    }
    let more = match alike.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    alike.truncate(NAMED);
    (!alike.is_empty()).then(|| {
        format!(
            "{}: classes {}{more}; where two are one, move the images of one into the other",
            root.display(),
            alike.join("; classes ")
        )
    })
}

/// For names that only one of two lists of classes has: how those differ that look alike, in words. Empty if none do.
///
/// Names are compared in Unicode's composed form (NFC) and in small letters.
pub fn differences(ours: &[String], theirs: &[String]) -> Vec<String> {
    let known: BTreeMap<String, &String> = ours.iter().map(|name| (folded(name), name)).collect();
    let alike = theirs
        .iter()
        .filter_map(|name| differ_only(known.get(&folded(name))?, name));
    alike.collect()
}

/// How two names differ that look alike, with both spelt out; none if they are equal or differ otherwise.
fn differ_only(a: &str, b: &str) -> Option<String> {
    if a == b || folded(a) != folded(b) {
        return None;
    }
    let by = if composed(a) == composed(b) {
        "in their Unicode form, as names from macOS and from Linux do"
    } else {
        "in capital and small letters"
    };
    Some(format!(
        "{a} and {b} differ only {by}: \"{}\" and \"{}\"",
        a.escape_default(),
        b.escape_default()
    ))
}

fn composed(name: &str) -> String {
    name.nfc().collect()
}

fn folded(name: &str) -> String {
    // Lower case may be decomposed, so it is composed once more.
    composed(&composed(name).to_lowercase())
}

/// Whether a folder of this name is seldom meant as a class.
pub(crate) fn is_stray(name: &str) -> bool {
    name.starts_with('.') || STRAY.contains(&name)
}

/// What a stray folder is.
pub(crate) fn stray_in_words(name: &str) -> &'static str {
    match name {
        "__MACOSX" => "a folder that archives made on macOS leave",
        ".ipynb_checkpoints" => "a hidden folder that Jupyter makes",
        name if REPOSITORIES.contains(&name) => "the history of a repository",
        name if name.starts_with('.') => "a hidden folder",
        _ => "a folder that programs make for themselves",
    }
}

/// How a data set is used without a stray folder.
pub(crate) fn without(root: &Path, name: &str) -> String {
    if REPOSITORIES.contains(&name) {
        return "move the class folders into a folder of their own, and give that one".to_owned();
    }
    deleting("it", &root.join(name))
}

/// What deletes a folder, which is `called` so.
fn deleting(called: &str, folder: &Path) -> String {
    let way = by_command(folder, |folder| format!("rm -r {folder}"));
    format!("delete {called}{way}")
}

fn is_of_macos(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"._")
}

/// `: COMMAND`, with a path of this machine; nothing of a place in a bucket.
pub(crate) fn by_command(path: &Path, command: impl Fn(&str) -> String) -> String {
    match stokehold_base::uri::remote(path) {
        Some(_) => String::new(),
        None => format!(": {}", command(&quoted(path))),
    }
}
