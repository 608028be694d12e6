//! What is transformed: records, and the outputs that they belong to.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use stokehold_base::hash::Fnv;
use stokehold_base::regular;
use stokehold_base::uri;
use stokehold_objects::{Bucket, Location};
use stokehold_storage::{ImageList, Images, Joined, Source, extensions_in_words, is_image_name};

use crate::TransformError;

/// The suffix of files of JSON lines in folders and manifests.
const LINES: &str = ".jsonl";

/// What the files of a folder or prefix are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Images: a record is a file.
    None,
    /// JSON lines, in files `.jsonl`: a record is a line.
    Line,
}

/// Numbered records, and the output that each belongs to.
pub struct Inputs {
    name: OsString,
    source: Arc<Joined>,
    groups: Vec<Group>,
}

/// Records that came together.
struct Group {
    records: Range<usize>,
    kind: RecordSource,
}

enum RecordSource {
    /// Every image is an input of its own.
    Images(Arc<Images>),
    /// The same, by names from a manifest or the command line.
    Named(Vec<String>),
    /// A file of JSON lines, and its lines.
    Lines { name: PathBuf, lines: Vec<String> },
}

/// An output: its name, below the folder of outputs, and the records that are its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub name: PathBuf,
    pub records: Range<usize>,
}

impl Inputs {
    /// Lists the inputs at `input`, a path or the URI of a place in a bucket: an image; a folder of images, of files of
    /// JSON lines if `split` says so, or of prepared shards; a manifest; or a file of JSON lines.
    ///
    /// # Errors
    /// There is nothing at `input`; a manifest or a line is not valid, or names a file that is not there; two inputs have
    /// one output.
    pub fn open(input: &Path, split: Split) -> Result<Self, TransformError> {
        let mut adding = Adding::default();
        let place = InputLocation::of(input)?;
        match place.is_file() {
            Err(error) => {
                let reason = format!("{}: {error}", input.display());
                return Err(TransformError::Input(reason));
            }
            Ok(true) if is_image_name(input.as_os_str()) => {
                adding.named(vec![(place.file_name(), place)]);
            }
            Ok(true) => {
                let text = place.read()?;
                if text.trim_start().starts_with('[') {
                    adding.manifest(&place, &text)?;
                } else {
                    adding.lines(place.file_name().into(), &place, &text)?;
                }
            }
            Ok(false) if split == Split::Line => adding.folder_of_lines(&place)?,
            Ok(false) => adding.images(input)?,
        }
        if adding.records == 0 {
            return Err(TransformError::Input(format!(
                "{}: there is nothing to transform in it",
                input.display()
            )));
        }
        let inputs = Self {
            name: input.file_name().unwrap_or("input".as_ref()).to_owned(),
            source: Arc::new(Joined::new(adding.sources)?),
            groups: adding.groups,
        };
        inputs.check_outputs()?;
        Ok(inputs)
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether there is no record; [`Inputs::open`] refuses that.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The images of the records.
    pub(crate) fn source(&self) -> &Arc<Joined> {
        &self.source
    }

    /// The one output of all records.
    pub(crate) fn assembled(&self) -> Output {
        Output {
            name: with_out(Path::new(&self.name)),
            records: 0..self.len(),
        }
    }

    /// The output of a record.
    pub(crate) fn output(&self, record: usize) -> Output {
        let group = self.group(record);
        let own = record - group.records.start;
        let alone = record..record + 1;
        let (name, records) = match &group.kind {
            RecordSource::Images(images) => (below(images, own), alone),
            RecordSource::Named(names) => (PathBuf::from(&names[own]), alone),
            RecordSource::Lines { name, .. } => (name.clone(), group.records.clone()),
        };
        Output {
            name: with_out(&name),
            records,
        }
    }

    /// A record's JSON.
    pub(crate) fn record(&self, record: usize) -> Value {
        let group = self.group(record);
        let own = record - group.records.start;
        match &group.kind {
            RecordSource::Images(images) => json!({"image": below(images, own).display().to_string()}),
            RecordSource::Named(names) => json!({"image": names[own]}),
            // It has been parsed before.
            RecordSource::Lines { lines, .. } => serde_json::from_str(&lines[own]).unwrap_or_default(),
        }
    }

    /// A hash of all records and names.
    pub(crate) fn hash(&self) -> u64 {
        let mut hash = Fnv::default();
        for record in 0..self.len() {
            let output = self.output(record).name;
            hash.add(output.as_os_str().as_encoded_bytes());
            hash.add(b"\0");
            hash.add(self.source.name(record).as_bytes());
            hash.add(b"\0");
            hash.add(self.record(record).to_string().as_bytes());
            hash.add(b"\n");
        }
        hash.finish()
    }

    fn group(&self, record: usize) -> &Group {
        let at = self.groups.partition_point(|group| group.records.end <= record);
        &self.groups[at]
    }

    /// Two inputs never share an output.
    fn check_outputs(&self) -> Result<(), TransformError> {
        let mut seen = HashSet::new();
        let mut record = 0;
        while record < self.len() {
            let Output { name, records } = self.output(record);
            record = records.end;
            if let Some(twice) = seen.replace(name) {
                let reason = format!("two inputs have the output {}; name each once", twice.display());
                return Err(TransformError::Input(reason));
            }
        }
        let folders = |name: &&PathBuf| name.ancestors().skip(1).any(|folder| seen.contains(folder));
        if let Some(below) = seen.iter().filter(folders).min() {
            let reason = format!(
                "the output {} would be in a folder whose name is another input's output; rename the input or its folder",
                below.display()
            );
            return Err(TransformError::Input(reason));
        }
        Ok(())
    }
}

/// An image's path below its folder or prefix.
fn below(images: &Images, sample: usize) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(images.below(sample)))
}

/// `a/b.jpg.out` for `a/b.jpg`.
fn with_out(name: &Path) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(".out");
    name.into()
}

/// A file or a folder, here or in a bucket.
#[derive(Debug, Clone)]
enum InputLocation {
    Here(PathBuf),
    Remote(String),
}

impl InputLocation {
    fn of(path: &Path) -> Result<Self, TransformError> {
        match path.to_str().filter(|text| text.contains("://")) {
            Some(uri) if uri::is_remote(uri) => Ok(Self::Remote(uri.trim_end_matches('/').to_owned())),
            Some(uri) => match Location::parse(uri)?.folder() {
                Some(path) => Ok(Self::Here(path)),
                None => Ok(Self::Remote(uri.to_owned())),
            },
            None => Ok(Self::Here(path.to_owned())),
        }
    }

    /// Whether it is a file. Of a place in a bucket the name decides.
    fn is_file(&self) -> std::io::Result<bool> {
        match self {
            Self::Here(path) => Ok(!fs::metadata(path)?.is_dir()),
            Self::Remote(uri) => Ok(is_image_name(uri.as_ref())
                || [LINES, ".json", ".manifest"]
                    .iter()
                    .any(|suffix| uri.ends_with(suffix))),
        }
    }

    fn file_name(&self) -> String {
        match self {
            Self::Here(path) => path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            Self::Remote(uri) => uri.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }

    /// The folder that it lies in.
    fn folder(&self) -> Self {
        match self {
            Self::Here(path) => Self::Here(path.parent().unwrap_or("".as_ref()).to_owned()),
            Self::Remote(uri) => {
                Self::Remote(uri.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned())
            }
        }
    }

    /// What a name in this folder means: a URI, an absolute path, or something below.
    fn join(&self, name: &str) -> Result<Self, TransformError> {
        if name.contains("://") {
            return Self::of(name.as_ref());
        }
        Ok(match self {
            Self::Here(folder) => Self::Here(folder.join(name)),
            Self::Remote(uri) => Self::Remote(format!("{uri}/{name}")),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Here(path) => path,
            Self::Remote(uri) => uri.as_ref(),
        }
    }

    fn read(&self) -> Result<String, TransformError> {
        match self {
            Self::Here(path) => {
                let bytes = regular::read(path).map_err(TransformError::io(path))?;
                text(bytes, &path.display().to_string())
            }
            Self::Remote(uri) => {
                let Self::Remote(folder) = self.folder() else {
                    unreachable!("the folder of an object is in its bucket")
                };
                let mut bytes = Vec::new();
                Bucket::open(&folder)?.fetch(&self.file_name(), &mut bytes)?;
                text(bytes, uri)
            }
        }
    }
}

fn text(bytes: Vec<u8>, path: &str) -> Result<String, TransformError> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        TransformError::File {
            path: path.to_owned(),
            line: Some(1 + before.iter().filter(|&&byte| byte == b'\n').count()),
            reason: "it is not UTF-8".to_owned(),
        }
    })
}

/// Inputs that are being listed.
#[derive(Default)]
struct Adding {
    sources: Vec<Arc<dyn Source>>,
    groups: Vec<Group>,
    records: usize,
}

impl Adding {
    fn add(&mut self, source: Arc<dyn Source>, kind: RecordSource) {
        let records = self.records..self.records + source.len();
        self.records = records.end;
        self.sources.push(source);
        self.groups.push(Group { records, kind });
    }

    fn images(&mut self, input: &Path) -> Result<(), TransformError> {
        let images = Arc::new(Images::unlabelled(input)?);
        self.add(Arc::clone(&images) as _, RecordSource::Images(images));
        Ok(())
    }

    fn named(&mut self, named: Vec<(String, InputLocation)>) {
        if named.is_empty() {
            return;
        }
        let mut list = ImageList::default();
        let mut names = Vec::with_capacity(named.len());
        for (name, place) in named {
            list.push(place.path(), 0);
            names.push(name);
        }
        self.add(Arc::new(list), RecordSource::Named(names));
    }

    /// Every file of JSON lines below a folder.
    fn folder_of_lines(&mut self, folder: &InputLocation) -> Result<(), TransformError> {
        let mut names = match folder {
            InputLocation::Here(path) => {
                let mut names = Vec::new();
                list(path, Path::new(""), &mut names)?;
                names
            }
            InputLocation::Remote(uri) => {
                // As for images, the caller that registered buckets hears what is left out.
                let listed = stokehold_storage::BucketPrefix::list(&Bucket::open(uri)?)?;
                listed.objects.into_iter().map(|object| object.key).collect()
            }
        };
        names.retain(|name| name.ends_with(LINES));
        names.sort_unstable();
        for name in names {
            let place = folder.join(&name)?;
            let text = place.read()?;
            self.lines(name.into(), &place, &text)?;
        }
        Ok(())
    }

    fn manifest(&mut self, place: &InputLocation, text: &str) -> Result<(), TransformError> {
        let wrong = |line, reason: String| TransformError::File {
            path: place.path().display().to_string(),
            line,
            reason,
        };
        let items: Vec<Value> =
            serde_json::from_str(text).map_err(|error| wrong(Some(error.line()), error.to_string()))?;
        let mut folder = place.folder();
        let mut named = Vec::new();
        for (number, item) in items.into_iter().enumerate() {
            let item_wrong = |reason: &str| wrong(None, format!("item {}: {reason}", number + 1));
            match item {
                Value::Object(item) if number == 0 && item.len() == 1 && item.contains_key("prefix") => {
                    let Some(Value::String(prefix)) = item.get("prefix") else {
                        return Err(item_wrong("the prefix is no text"));
                    };
                    folder = folder.join(prefix.trim_end_matches('/'))?;
                }
                Value::String(name) => {
                    if !is_below(&name) {
                        return Err(item_wrong(&format!(
                            "{name:?} is not a path below the prefix, without .. and without a leading /"
                        )));
                    }
                    let place = folder.join(&name)?;
                    if let Err(reason) = check(&place) {
                        return Err(item_wrong(&reason));
                    }
                    if name.ends_with(LINES) {
                        self.named(std::mem::take(&mut named));
                        let text = place.read()?;
                        self.lines(name.into(), &place, &text)?;
                    } else if is_image_name(name.as_ref()) {
                        named.push((name, place));
                    } else {
                        return Err(item_wrong(&format!(
                            "{name:?} is neither an image ({}) nor JSON lines ({LINES})",
                            extensions_in_words()
                        )));
                    }
                }
                _ => {
                    return Err(item_wrong(
                        "it is neither a name nor, as the first one, {\"prefix\": ..}",
                    ));
                }
            }
        }
        self.named(named);
        Ok(())
    }

    /// A file of JSON lines, with its name among the inputs.
    fn lines(&mut self, name: PathBuf, place: &InputLocation, text: &str) -> Result<(), TransformError> {
        let folder = place.folder();
        let mut images = ImageList::default();
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |reason| TransformError::File {
                path: place.path().display().to_string(),
                line: Some(number + 1),
                reason,
            };
            if line.trim().is_empty() {
                continue;
            }
            let record: Value = serde_json::from_str(line).map_err(|error| {
                wrong(format!(
                    "not JSON, of which each line has to be one value: {error}"
                ))
            })?;
            let Some(image) = record.as_str().or(record["image"].as_str()) else {
                let reason = "it names no image; write \"NAME\" or {\"image\": \"NAME\", ..}";
                return Err(wrong(reason.to_owned()));
            };
            let image = folder.join(image)?;
            check(&image).map_err(wrong)?;
            images.push(image.path(), 0);
            lines.push(line.to_owned());
        }
        if !lines.is_empty() {
            self.add(Arc::new(images), RecordSource::Lines { name, lines });
        }
        Ok(())
    }
}

/// Whether a name stays below its folder.
fn is_below(name: &str) -> bool {
    let path = Path::new(name);
    !name.contains("://")
        && path.components().next().is_some()
        && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a file is there; an object is asked for when it is read.
fn check(place: &InputLocation) -> Result<(), String> {
    let InputLocation::Here(path) = place else {
        return Ok(());
    };
    match fs::metadata(path) {
        Ok(there) if there.is_file() => Ok(()),
        Ok(_) => Err(format!("{}: not a regular file", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The paths of all files below a folder, relative to it.
fn list(folder: &Path, below: &Path, into: &mut Vec<String>) -> Result<(), TransformError> {
    let here = folder.join(below);
    for entry in fs::read_dir(&here).map_err(TransformError::io(&here))? {
        let entry = entry.map_err(TransformError::io(&here))?;
        let name = below.join(entry.file_name());
        let kind = entry.file_type().map_err(TransformError::io(&here))?;
        match name.to_str() {
            _ if kind.is_dir() => list(folder, &name, into)?,
            Some(name) => into.push(name.to_owned()),
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Inputs, String> {
        Inputs::open(path, Split::None).map_err(|error| error.to_string())
    }

    #[test]
    fn folders_manifests_and_lines_are_records_with_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("photos/cat")).unwrap();
        for name in ["photos/b.jpg", "photos/cat/a.png", "photos/notes.txt"] {
            fs::write(path(name), "x").unwrap();
        }
        let inputs = open(&path("photos")).unwrap();
        let outputs = |inputs: &Inputs| -> Vec<String> {
            (0..inputs.len())
                .map(|record| inputs.output(record).name.display().to_string())
                .collect()
        };
        assert_eq!(outputs(&inputs), ["b.jpg.out", "cat/a.png.out"]);
        assert_eq!(inputs.record(1), json!({"image": "cat/a.png"}));
        assert_eq!(inputs.assembled().name, Path::new("photos.out"));

        fs::write(
            path("photos/l.jsonl"),
            "\"b.jpg\"\n\n{\"id\": 1, \"image\": \"cat/a.png\"}\n",
        )
        .unwrap();
        let lines = open(&path("photos/l.jsonl")).unwrap();
        assert_eq!(outputs(&lines), ["l.jsonl.out", "l.jsonl.out"]);
        assert_eq!(lines.record(1), json!({"id": 1, "image": "cat/a.png"}));

        fs::write(
            path("m.json"),
            r#"[{"prefix": "photos/"}, "cat/a.png", "l.jsonl", "b.jpg"]"#,
        )
        .unwrap();
        let manifest = open(&path("m.json")).unwrap();
        assert_eq!(
            outputs(&manifest),
            ["cat/a.png.out", "l.jsonl.out", "l.jsonl.out", "b.jpg.out"]
        );
        assert_eq!(manifest.output(2).records, 1..3);
        assert_ne!(manifest.hash(), lines.hash());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.jpg"), "x").unwrap();
        let refused = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            let error = open(&path).err().expect("refused");
            error.replace(&format!("{}/", dir.path().display()), "")
        };
        for (name, text, reason) in [
            (
                "m.json",
                r#"["a.jpg", "b.jpg"]"#,
                "m.json: item 2: b.jpg: No such file",
            ),
            (
                "m.json",
                r#"["../a.jpg"]"#,
                "m.json: item 1: \"../a.jpg\" is not a path below",
            ),
            ("m.json", "[\n\"a.jpg\"\n3]", "m.json, line 3: "),
            (
                "m.json",
                r#"["a.jpg", "a.jpg"]"#,
                "two inputs have the output a.jpg.out",
            ),
            (
                "m.json",
                r#"["m.json"]"#,
                "m.json: item 1: \"m.json\" is neither an image",
            ),
            ("m.json", "[]", "m.json: there is nothing to transform"),
            (
                "l.jsonl",
                "\"a.jpg\"\n{\"id\": 1}\n",
                "l.jsonl, line 2: it names no image",
            ),
            (
                "l.jsonl",
                "\"a.jpg\"\n\n\"c.jpg\"\n",
                "l.jsonl, line 3: c.jpg: No such file",
            ),
            ("l.jsonl", "{\"image\": \"a.jpg\"\n", "l.jsonl, line 1: not JSON"),
        ] {
            let said = refused(name, text);
            assert!(said.starts_with(reason), "{said}");
        }
    }
}
