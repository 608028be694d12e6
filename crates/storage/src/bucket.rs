//! A data set in a bucket.
//!
//! The keys of its objects are listed once, and numbered like the files of a folder with the same names.
//! Bytes are fetched by one request per object, or one ranged request per sample if the objects are prepared
//! shards. A request takes tens of milliseconds, most of them spent waiting, so several requests are started
//! in advance: the loader announces samples in its order ([`Source::expect`]), [`Ahead`] starts the requests
//! while there is memory, and a read takes the result.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::besides::Kinds;
use crate::buckets::{BucketPrefix, Fetch, Object, buckets};
use crate::folder::is_image_name;
use crate::layouts::{Look, described_place};
use crate::shard::{Manifest, Ranges, ShardFolder};
use crate::{Besides, ImageFolder, Images, Sample, SampleBytes, Source, StorageError};

/// The number of samples that are announced in advance: requests of 20 ms each, 3,000 a second, need 60 in
/// flight, and slow ones more.
const REACH: usize = 256;

/// The most bytes that are fetched in advance.
const BUDGET: f64 = 256e6;

/// A listed place in a bucket.
pub(crate) struct Remote {
    uri: PathBuf,
    ahead: Arc<Ahead>,
    /// Sorted by key.
    objects: Arc<[Object]>,
}

impl Remote {
    /// Lists the place that `path` names, if it is a URI: `s3://..` and the like.
    ///
    /// # Errors
    /// The list cannot be fetched, or is empty.
    pub fn of(path: &Path) -> Result<Option<Self>, StorageError> {
        let Some(uri) = stokehold_base::uri::remote(path) else {
            return Ok(None);
        };
        Self::list(buckets(uri)?.open(uri)?).map(Some)
    }

    /// Lists an opened place.
    ///
    /// # Errors
    /// The list cannot be fetched, or is empty.
    pub fn list(place: Box<dyn BucketPrefix>) -> Result<Self, StorageError> {
        let objects = place.list()?.objects;
        let uri = PathBuf::from(place.uri().trim_end_matches('/'));
        if objects.is_empty() {
            return Err(StorageError::Missing { path: uri });
        }
        let ahead = Arc::new(Ahead::new(place));
        let objects = objects.into();
        Ok(Self { uri, ahead, objects })
    }

    /// The place.
    pub fn uri(&self) -> &Path {
        &self.uri
    }

    /// Whether there is a folder of this name.
    pub fn has(&self, name: &str) -> bool {
        self.below(name).next().is_some()
    }

    /// Whether there is an object of this name.
    pub fn has_file(&self, name: &str) -> bool {
        find(&self.objects, name).is_some()
    }

    /// The manifest, if the data set is a prepared one.
    pub fn manifest(&self) -> Result<Option<Manifest>, StorageError> {
        if find(&self.objects, Manifest::FILE).is_none() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.ahead.place.fetch(Manifest::FILE, None, &mut bytes)?;
        let manifest = Manifest::parse(&bytes).map_err(|reason| StorageError::Prepared {
            path: self.uri.join(Manifest::FILE),
            reason,
        })?;
        Ok(Some(manifest))
    }

    /// The shards of a part.
    pub fn shards(&self, part: &str, manifest: &Manifest) -> Result<ShardFolder, StorageError> {
        ShardFolder::open_with(&self.uri, part, manifest, &|file| Ok(self.ranges(file)))
    }

    /// Every image, without classes.
    pub fn unlabelled(&self) -> Result<Images, StorageError> {
        if let Some(manifest) = self.manifest()? {
            let open = |file: &str| Ok(self.ranges(file));
            return Ok(Images::Shards(ShardFolder::unlabelled_with(
                &self.uri, &manifest, &open,
            )?));
        }
        let mut found: Vec<(&str, &str)> = self.below("").filter_map(split_image).collect();
        found.sort_unstable();
        if found.is_empty() {
            return Err(StorageError::NoImages {
                path: self.uri.clone(),
                known: self.described(""),
            });
        }
        let samples = found.iter().map(|(folder, file)| Sample {
            path: self.uri.join(folder).join(file),
            class: 0,
        });
        let folder = ImageFolder::of_one_class(self.uri.clone(), samples.collect());
        Ok(Images::Bucket(self.of_names(folder)))
    }

    /// The class folders in the folder `name`, or in the place itself if the name is empty.
    ///
    /// # Errors
    /// The errors of [`ImageFolder::open`] that a bucket can have: it has no folders without objects.
    pub fn folder(&self, name: &str) -> Result<BucketFolder, StorageError> {
        let root = match name {
            "" => self.uri.clone(),
            name => self.uri.join(name),
        };
        let mut found = Vec::new();
        let mut classes: Vec<&str> = Vec::new();
        let mut flat = Vec::new();
        for key in self.below(name) {
            let Some((class, _)) = key.split_once('/') else {
                flat.extend(is_image_name(key.as_ref()).then_some(key));
                continue;
            };
            // Keys are sorted, but `a-b/` is between `a` and `a/`.
            if classes.last() != Some(&class) && !classes.contains(&class) {
                classes.push(class);
            }
            found.extend(split_image(key).map(|(folder, file)| (class, folder, file)));
        }
        if classes.is_empty() {
            let known = self.described(name);
            return Err(match flat.first() {
                Some(first) => StorageError::Flat {
                    path: root,
                    images: flat.len(),
                    example: (*first).to_owned(),
                    known,
                },
                None => StorageError::NoClasses { path: root, known },
            });
        }
        // UTF-8 bytes sort like code points, so this is torchvision's order of classes, folders and files.
        classes.sort_unstable();
        found.sort_unstable();
        let empty = classes.iter().filter(|class| {
            let first = found.partition_point(|(known, ..)| known < *class);
            found.get(first).is_none_or(|(known, ..)| known != *class)
        });
        let empty: Vec<String> = empty.map(|class| (*class).to_owned()).collect();
        if !empty.is_empty() {
            let in_empty = self.besides(name, |class| empty.iter().any(|name| name == class));
            let known = self.described(name);
            return Err(StorageError::empty_classes(root, empty, &in_empty, known));
        }
        let besides = self.besides(name, |_| true);
        let mut class = 0;
        let samples = found.iter().map(|(name, folder, file)| {
            while classes[class] != *name {
                class += 1;
            }
            Sample {
                path: root.join(folder).join(file),
                class: class as u32,
            }
        });
        let samples = samples.collect();
        Ok(self.of_names(ImageFolder {
            classes: classes.into_iter().map(str::to_owned).collect(),
            samples,
            besides,
            root,
        }))
    }

    /// What lies in the folder `name` besides images, in the classes that `of` chooses.
    fn besides(&self, name: &str, of: impl Fn(&str) -> bool) -> Besides {
        let mut folders: BTreeMap<&str, (Vec<OsString>, Kinds)> = BTreeMap::new();
        let mut loose = Vec::new();
        for key in self.below(name) {
            let Some((folder, file)) = key.rsplit_once('/') else {
                loose.extend(is_image_name(key.as_ref()).then(|| OsString::from(key)));
                continue;
            };
            if !of(folder.split('/').next().unwrap_or(folder)) || file.is_empty() {
                continue;
            }
            let (images, others) = folders.entry(folder).or_default();
            match is_image_name(file.as_ref()) {
                true => images.push(file.into()),
                false => others.add(file.as_ref()),
            }
        }
        let mut besides = Besides::default();
        besides.add_loose(&loose);
        for (folder, (images, others)) in folders {
            besides.add_folder(Path::new(folder), &images, &others);
        }
        besides
    }

    /// What the folder `name` is otherwise.
    fn described(&self, name: &str) -> Option<String> {
        let known = described_place(&Named { remote: self, name })?;
        Some(format!("{known} (of a copy on this machine)"))
    }

    fn of_names(&self, names: ImageFolder) -> BucketFolder {
        BucketFolder {
            names,
            place: self.uri.clone(),
            ahead: Arc::clone(&self.ahead),
            objects: Arc::clone(&self.objects),
            changed: Arc::default(),
        }
    }

    fn ranges(&self, key: &str) -> Box<dyn Ranges> {
        let object = find(&self.objects, key);
        Box::new(ObjectRanges {
            key: key.to_owned(),
            size: object.map(|object| object.size),
            ahead: Arc::clone(&self.ahead),
        })
    }

    /// The keys below a folder, without its name.
    fn below<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.objects.iter().filter_map(move |object| match name {
            "" => Some(object.key.as_str()),
            name => object.key.strip_prefix(name)?.strip_prefix('/'),
        })
    }
}

/// A folder of a bucket.
struct Named<'a> {
    remote: &'a Remote,
    name: &'a str,
}

impl Look for Named<'_> {
    fn at(&self) -> PathBuf {
        match self.name {
            "" => self.remote.uri.clone(),
            name => self.remote.uri.join(name),
        }
    }

    fn names(&self, below: &str) -> (Vec<String>, Vec<String>) {
        let (mut folders, mut files) = (BTreeSet::new(), BTreeSet::new());
        for key in self.remote.below(self.name) {
            let key = match below {
                "" => Some(key),
                below => key.strip_prefix(below).and_then(|key| key.strip_prefix('/')),
            };
            match key.map(|key| (key, key.split_once('/'))) {
                Some((_, Some((folder, _)))) => folders.insert(folder.to_owned()),
                Some((file, None)) => files.insert(file.to_owned()),
                None => false,
            };
        }
        (folders.into_iter().collect(), files.into_iter().collect())
    }

    fn file(&self, _: &str) -> Option<PathBuf> {
        None
    }
}

/// The folder and the name of an image; `None` for another object.
fn split_image(key: &str) -> Option<(&str, &str)> {
    let (folder, file) = key.rsplit_once('/').unwrap_or(("", key));
    is_image_name(file.as_ref()).then_some((folder, file))
}

/// Class folders full of images in a bucket, numbered as [`ImageFolder`] numbers a folder of the same names.
#[derive(Clone)]
pub struct BucketFolder {
    names: ImageFolder,
    place: PathBuf,
    ahead: Arc<Ahead>,
    objects: Arc<[Object]>,
    changed: Arc<Changed>,
}

/// The keys of objects whose bytes were of another version than the listed one.
#[derive(Default)]
struct Changed {
    any: AtomicBool,
    keys: Mutex<HashSet<String>>,
}

impl Changed {
    fn add(&self, key: String) {
        self.keys().insert(key);
        self.any.store(true, Ordering::Release);
    }

    fn has(&self, key: &str) -> bool {
        self.any.load(Ordering::Acquire) && self.keys().contains(key)
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BucketFolder {
    /// Classes and samples; their paths are URIs.
    pub(crate) fn names(&self) -> &ImageFolder {
        &self.names
    }

    pub(crate) fn into_names(self) -> ImageFolder {
        self.names
    }

    pub(crate) fn names_mut(&mut self) -> &mut ImageFolder {
        &mut self.names
    }

    /// The same place with other samples.
    pub(crate) fn with_names(&self, names: ImageFolder) -> Self {
        Self {
            names,
            ..self.clone()
        }
    }

    /// The bytes of a sample, according to the list.
    pub(crate) fn size(&self, sample: usize) -> Option<u64> {
        let piece = self.piece(sample).ok()?;
        find(&self.objects, &piece.key).map(|object| object.size)
    }

    fn piece(&self, sample: usize) -> Result<Piece, StorageError> {
        let path = &self.names.sample(sample)?.path;
        let key = path.strip_prefix(&self.place).unwrap_or(path);
        Ok(Piece {
            key: key.to_string_lossy().into_owned(),
            range: None,
        })
    }
}

/// The server that the environment names: two may have buckets of the same name.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        let set = |name: &str| std::env::var(name).ok();
        set("AWS_ENDPOINT_URL")
            .or_else(|| set("AWS_ENDPOINT"))
            .unwrap_or_default()
    })
}

/// Finds an object by key in a sorted list.
fn find<'a>(objects: &'a [Object], key: &str) -> Option<&'a Object> {
    let place = objects
        .binary_search_by(|object| object.key.as_str().cmp(key))
        .ok()?;
    objects.get(place)
}

impl Source for BucketFolder {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.names.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.names.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        let piece = self.piece(sample)?;
        let into = into.refill();
        let etag = self.ahead.take(piece.clone(), into)?;
        let listed = find(&self.objects, &piece.key);
        if listed.is_some_and(|object| !object.is_of(into.len() as u64, etag.as_deref())) {
            self.changed.add(piece.key);
        }
        Ok(())
    }

    fn expect(&self, sample: usize) {
        if let Ok(piece) = self.piece(sample) {
            self.ahead.expect(piece);
        }
    }

    /// The server, the object's URI, and its version or time and size as they were listed; none for an object that was of another
    /// version when it was fetched.
    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        let object = self
            .piece(sample)
            .ok()
            .filter(|piece| !self.changed.has(&piece.key))
            .and_then(|piece| find(&self.objects, &piece.key));
        let Some(object) = object else { return false };
        into.extend(server().as_bytes());
        into.push(0);
        into.extend(self.names.samples[sample].path.as_os_str().as_encoded_bytes());
        into.push(0);
        match &object.etag {
            Some(etag) => into.extend(etag.as_bytes()),
            None => into.extend(object.modified.to_le_bytes()),
        }
        into.extend(object.size.to_le_bytes());
        true
    }

    fn reach(&self) -> usize {
        REACH
    }
}

impl std::fmt::Debug for BucketFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "BucketFolder({}: {} samples)",
            self.names.root.display(),
            self.len()
        )
    }
}

/// Objects of any buckets, each named by its URI. A bucket is opened for its first object.
#[derive(Default)]
pub(crate) struct Objects(Mutex<HashMap<String, Arc<Ahead>>>);

impl Objects {
    /// See [`REACH`].
    pub const REACH: usize = REACH;

    /// The whole object.
    pub fn read(&self, uri: &str, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let (bucket, piece) = self.piece(uri)?;
        bucket.take(piece, into)?;
        Ok(())
    }

    /// See [`Source::expect`].
    pub fn expect(&self, uri: &str) {
        if let Ok((bucket, piece)) = self.piece(uri) {
            bucket.expect(piece);
        }
    }

    fn piece(&self, uri: &str) -> Result<(Arc<Ahead>, Piece), StorageError> {
        let buckets = buckets(uri)?;
        let (place, key) = buckets.split(uri)?;
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = match open.get(&place) {
            Some(bucket) => Arc::clone(bucket),
            None => {
                let bucket = Arc::new(Ahead::new(buckets.open(&place)?));
                open.insert(place, Arc::clone(&bucket));
                bucket
            }
        };
        Ok((bucket, Piece { key, range: None }))
    }
}

/// A shard in a bucket.
struct ObjectRanges {
    key: String,
    /// `None` if it is not in the list.
    size: Option<u64>,
    ahead: Arc<Ahead>,
}

impl ObjectRanges {
    fn piece(&self, offset: u64, length: u64) -> Piece {
        Piece {
            key: self.key.clone(),
            range: Some(offset..offset.saturating_add(length)),
        }
    }
}

impl Ranges for ObjectRanges {
    fn size(&self) -> io::Result<u64> {
        self.size.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let piece = self.piece(offset, into.len() as u64);
        if self
            .size
            .is_none_or(|size| piece.range.as_ref().is_none_or(|range| range.end > size))
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = Vec::new();
        self.ahead.take(piece, &mut bytes).map_err(io::Error::other)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn expect(&self, offset: u64, length: u32) {
        self.ahead.expect(self.piece(offset, length.into()));
    }

    fn reach(&self) -> usize {
        REACH
    }
}

/// The unit of a read: an object, or a range of bytes of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Piece {
    key: String,
    range: Option<Range<u64>>,
}

/// Requests that were started in advance.
struct Ahead {
    place: Box<dyn BucketPrefix>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Announced, but not started for lack of memory.
    waiting: VecDeque<Piece>,
    /// Started, each with the number of reads at that time.
    begun: HashMap<Piece, (u64, Fetch)>,
    reads: u64,
    /// Mean bytes of a read, over the last few hundred.
    mean: f64,
}

impl Ahead {
    fn new(place: Box<dyn BucketPrefix>) -> Self {
        let state = State {
            mean: 128e3,
            ..State::default()
        };
        Self {
            place,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Code under the lock never leaves the lists inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, piece: Piece) {
        let mut state = self.state();
        if state.begun.contains_key(&piece) || state.waiting.contains(&piece) {
            return;
        }
        state.waiting.push_back(piece);
        // Samples that an abandoned epoch announced are never read.
        if state.waiting.len() > 2 * REACH {
            state.waiting.pop_front();
        }
        state.begin(self.place.as_ref());
    }

    /// The ETag is that of a whole object.
    fn take(&self, piece: Piece, into: &mut Vec<u8>) -> Result<Option<String>, StorageError> {
        let begun = {
            let mut state = self.state();
            state.reads += 1;
            let begun = state.begun.remove(&piece);
            if begun.is_none() {
                state.waiting.retain(|waiting| *waiting != piece);
            }
            state.begin(self.place.as_ref());
            begun
        };
        let etag = match begun {
            Some((_, fetch)) => fetch(into)?,
            None => self.place.fetch(&piece.key, piece.range, into)?,
        };
        let mut state = self.state();
        state.mean += (into.len() as f64 - state.mean) / 256.0;
        Ok(etag)
    }
}

impl State {
    /// Starts waiting requests, as far as there is memory.
    fn begin(&mut self, place: &dyn BucketPrefix) {
        let is_full = |state: &Self| {
            state.begun.len() >= REACH || state.begun.len() as f64 * state.mean.max(1.0) >= BUDGET
        };
        if !self.waiting.is_empty() && is_full(self) {
            let reads = self.reads;
            self.begun.retain(|_, (at, _)| *at + 4 * REACH as u64 > reads);
        }
        while !is_full(self)
            && let Some(piece) = self.waiting.pop_front()
        {
            // If it cannot be started, the read itself fetches it, or fails.
            if let Ok(fetch) = place.begin(&piece.key, piece.range.clone()) {
                self.begun.insert(piece, (self.reads, fetch));
            }
        }
    }
}
