//! Folders of images: their classes, small pictures of their samples, and which files are broken.
//!
//! A data set has a key, `data/FOLDER/FOLDER`: the place is one of the folders that were given with `--data`, the rest is a path below it.
//! Before a folder is opened, every link in it is resolved: one that leads out of the given folders is refused, because a data
//! set reads what its links lead to. A sample's file is resolved once more when it is read.
//!
//! # What bounds the work
//! | what | bound |
//! |---|---|
//! | data sets that are kept open | 2; a page lists them again after a minute |
//! | samples of an answer | 100 |
//! | images that are decoded for pictures and draws | 2 at a time, of at most 2^25 pixels |
//! | examinations, which decode every file | 1 at a time, on half of the cores; the last 4 reports are kept |
//!
//! Pictures have the file's version in their address, so a browser keeps them.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_base::hash::Fnv;
use stokehold_loader::input;
use stokehold_pipeline::{ImageError, probe};
use stokehold_prepare::{examine, thumbnail};
use stokehold_storage::{Dataset, Images, SampleBytes, Source};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::StudioError;
use crate::api::{JsonResult, Refusal, Shared, Site, act_for, blocking};
use crate::places::{Lost, named};
use crate::server::Peer;
use crate::text;

/// Data sets that are kept open, and for how long.
const OPEN: usize = 2;
const FRESH: Duration = Duration::from_secs(60);
/// The most samples of an answer.
const SAMPLES: usize = 100;
/// The most classes and folders of an answer.
const CLASSES: usize = 2000;
const FOLDERS: usize = 500;
/// The most broken files of an answer.
const BROKEN: usize = 500;
/// The most pixels of an image that is decoded here: a PNG of that many takes 240 MB for a moment.
pub const PIXELS: u64 = 1 << 25;
/// The most sentences about a data set.
const REMARKS: usize = 20;
/// Images that are decoded at a time.
const DECODING: usize = 2;
/// Reports that are kept.
const REPORTS: usize = 4;
/// The sides of pictures, in pixels.
const SIDES: [u16; 2] = [160, 480];
/// The most characters of a name, and of a reason.
const NAME: usize = 200;
const WHY: usize = 500;

/// The given folders, and what was read of them.
#[derive(Debug)]
pub struct Data {
    places: Vec<Folder>,
    open: Mutex<VecDeque<Open>>,
    /// The examinations, the last one at the end.
    examined: Mutex<Vec<Arc<Examination>>>,
    /// Who decodes.
    decoding: Arc<Semaphore>,
}

#[derive(Debug)]
struct Folder {
    id: String,
    path: PathBuf,
}

#[derive(Debug)]
struct Open {
    key: String,
    opened: Instant,
    set: Arc<Dataset>,
}

/// Every file of a data set, decoded.
#[derive(Debug)]
struct Examination {
    key: String,
    done: AtomicUsize,
    of: usize,
    stop: AtomicBool,
    /// When it has ended: the report as JSON, or none if it was stopped.
    report: Mutex<Option<Option<Value>>>,
}

/// How many entries of a folder are looked at.
const LOOKED: usize = 1000;

pub fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/api/data", get(about))
        .route("/api/data/samples", get(samples))
        .route("/api/data/picture", get(picture))
        .route("/api/data/examine", post(begin).get(progress))
        .route("/api/data/examine/stop", post(end))
}

impl Data {
    /// The folders of the option.
    ///
    /// # Errors
    /// A folder that cannot be read, or is named twice.
    pub fn new(paths: &[PathBuf]) -> Result<Self, StudioError> {
        let mut places = Vec::new();
        let mut known = Vec::new();
        for path in paths {
            let failed = |error| StudioError::Folder {
                path: path.clone(),
                error,
            };
            fs::read_dir(path).map_err(failed)?;
            let real = path.canonicalize().map_err(failed)?;
            if known.contains(&real) {
                return Err(StudioError::Twice { path: path.clone() });
            }
            let ids = places.iter().map(|place: &Folder| place.id.as_str());
            let id = named(&real, ids.collect());
            known.push(real);
            places.push(Folder {
                id,
                path: path.clone(),
            });
        }
        Ok(Self {
            places,
            open: Mutex::default(),
            examined: Mutex::default(),
            decoding: Arc::new(Semaphore::new(DECODING)),
        })
    }

    /// A turn to decode. It is for the work itself, which continues when the asking browser is gone.
    ///
    /// # Errors
    /// Never, as long as the studio runs.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let turn = Arc::clone(&self.decoding).acquire_owned().await;
        turn.map_err(|error| Refusal::failed(&error))
    }

    /// The folder of a key.
    fn folder(&self, key: &str) -> Result<PathBuf, Lost> {
        let (id, below) = key.split_once('/').unwrap_or((key, ""));
        let place = self
            .places
            .iter()
            .find(|place| place.id == id)
            .ok_or(Lost::Missing)?;
        let below = Path::new(below);
        let is_below = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_below || key.contains('\0') {
            return Err(Lost::Missing);
        }
        let path = match below.as_os_str().is_empty() {
            true => place.path.clone(),
            false => place.path.join(below),
        };
        let real = path.canonicalize().map_err(|_| Lost::Missing)?;
        match self.holds(&real) {
            true if real.is_dir() => Ok(path),
            true => Err(Lost::Missing),
            false => Err(Lost::Outside),
        }
    }

    /// Whether a path without links lies below a given folder.
    fn holds(&self, real: &Path) -> bool {
        let roots = self
            .places
            .iter()
            .filter_map(|place| place.path.canonicalize().ok());
        roots.into_iter().any(|root| real.starts_with(root))
    }

    /// Why a folder is not opened as a data set: a link below it leads out of the given folders, or something is no file, and whoever
    /// opens it may wait for ever. Links to folders are followed, as a data set follows them.
    fn fault(&self, folder: &Path) -> Option<String> {
        let shown = |path: &Path| text::short(&path.display().to_string(), NAME);
        let mut folders = vec![folder.to_owned()];
        let mut seen = HashSet::new();
        while let Some(folder) = folders.pop() {
            if !folder.canonicalize().is_ok_and(|real| seen.insert(real)) {
                continue;
            }
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_symlink() && path.canonicalize().is_ok_and(|real| !self.holds(&real)) {
                    return Some(format!(
                        "{} leads out of the folders of this studio by a link; name that folder with --data, too",
                        shown(&path)
                    ));
                }
                match fs::metadata(&path) {
                    Ok(about) if about.is_dir() => folders.push(path),
                    Ok(about) if !about.is_file() => {
                        return Some(format!("{} is no regular file; remove it", shown(&path)));
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// The data set of a key.
    ///
    /// # Errors
    /// There is none, or a link leads out of the given folders.
    pub fn set(&self, key: &str) -> Result<Arc<Dataset>, Refusal> {
        let folder = self.folder(key).map_err(|lost| Refusal::lost(key, &lost))?;
        let mut open = lock(&self.open);
        if let Some(known) = open.iter().find(|one| one.key == key) {
            return Ok(Arc::clone(&known.set));
        }
        // Under the lock: two pages that ask at once cause one listing.
        if let Some(fault) = self.fault(&folder) {
            return Err(Refusal(StatusCode::FORBIDDEN, fault));
        }
        let set = Dataset::open(&folder, None, 0).map_err(|error| {
            Refusal(
                StatusCode::UNPROCESSABLE_ENTITY,
                text::short(&error.to_string(), WHY),
            )
        })?;
        let set = Arc::new(set);
        open.push_back(Open {
            key: key.to_owned(),
            opened: Instant::now(),
            set: Arc::clone(&set),
        });
        while open.len() > OPEN {
            open.pop_front();
        }
        Ok(set)
    }

    /// Forgets a data set that was listed some time ago, so that the next look lists it again. Pages ask for that once, so that
    /// the numbers of their samples stay.
    fn refresh(&self, key: &str) {
        lock(&self.open).retain(|one| one.key != key || one.opened.elapsed() < FRESH);
    }

    /// Reads a sample, whose file is of the given folders and not too large to be decoded here.
    ///
    /// # Errors
    /// There is no such sample; it leads elsewhere. Inside: why it cannot be shown.
    pub fn read(
        &self,
        set: &Dataset,
        part: &str,
        sample: usize,
    ) -> Result<Result<SampleBytes, String>, Refusal> {
        let images = part_of(set, part)?;
        if sample >= images.len() {
            return Err(no_sample());
        }
        if let Some(path) = file_of(images, sample)
            && path.canonicalize().is_ok_and(|real| !self.holds(&real))
        {
            return Err(Refusal::lost(&path.display().to_string(), &Lost::Outside));
        }
        let mut bytes = SampleBytes::new();
        if let Err(error) = images.read(sample, &mut bytes) {
            return Ok(Err(error.reason()));
        }
        Ok(match unless_it_panics(|| probe(bytes.file())) {
            Err(error) => Err(error),
            Ok(info) if u64::from(info.width) * u64::from(info.height) > PIXELS => Err(format!(
                "{} x {} pixels are more than the studio decodes, {PIXELS}",
                info.width, info.height
            )),
            Ok(_) => Ok(bytes),
        })
    }

    fn examination(&self, key: &str) -> Option<Arc<Examination>> {
        let all = lock(&self.examined);
        all.iter().rev().find(|one| one.key == key).map(Arc::clone)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        for one in lock(&self.examined).iter() {
            one.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Examination {
    fn about(&self) -> Value {
        let report = lock(&self.report);
        json!({
            "done": self.done.load(Ordering::Relaxed),
            "of": self.of,
            "running": report.is_none(),
            "report": report.as_ref().and_then(Option::as_ref),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_sample() -> Refusal {
    Refusal(
        StatusCode::NOT_FOUND,
        "there is no such sample; the folder may have changed".to_owned(),
    )
}

/// `train` or `val` of a data set.
///
/// # Errors
/// It has no such part.
pub fn part_of<'a>(set: &'a Dataset, part: &str) -> Result<&'a Images, Refusal> {
    match part {
        "" | "train" => Some(&set.train),
        "val" => set.val.as_ref(),
        _ => None,
    }
    .ok_or_else(no_sample)
}

/// The file of a sample that is a file of its own.
fn file_of(images: &Images, sample: usize) -> Option<PathBuf> {
    match images {
        Images::Folder(_) | Images::Pairs(_) => Some(PathBuf::from(images.name(sample))),
        Images::Bucket(_) | Images::Shards(_) => None,
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfKey {
    key: String,
}

async fn about(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> JsonResult {
    blocking(move || {
        let data = &site.data;
        let places: Vec<Value> = data
            .places
            .iter()
            .map(|place| json!({"key": place.id, "path": place.path.display().to_string()}))
            .collect();
        if key.is_empty() {
            return Ok(json!({ "places": places }));
        }
        let folder = data.folder(&key).map_err(|lost| Refusal::lost(&key, &lost))?;
        data.refresh(&key);
        let (set, problem) = match holds_sets(&folder) {
            true => (
                None,
                Some("it holds folders of images; choose one of them".to_owned()),
            ),
            false => match data.set(&key) {
                Ok(set) => (Some(facts(&set)), None),
                Err(Refusal(_, reason)) => (None, Some(reason)),
            },
        };
        Ok(json!({
            "places": places,
            "key": key,
            "path": folder.display().to_string(),
            "folders": if set.is_none() { folders(&folder) } else { Vec::new() },
            "set": set,
            "problem": problem,
            "examined": data.examination(&key).map(|one| one.about()),
            "can_examine": !site.read_only,
        }))
    })
    .await?
    .map(Json)
}

/// Whether a folder holds data sets, and is none itself: some folder in it has parts, or classes and no images. Files that lie deeper
/// than classes would make one data set of all of them.
fn holds_sets(folder: &Path) -> bool {
    let has_part = |folder: &Path| folder.join("train").is_dir();
    let is_set = |folder: &Path| {
        let entries: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .take(LOOKED)
            .collect();
        let has_folder = entries.iter().any(|entry| entry.path().is_dir());
        has_part(folder) || (has_folder && !entries.iter().any(|entry| entry.path().is_file()))
    };
    !has_part(folder) && folders(folder).iter().any(|name| is_set(&folder.join(name)))
}

/// The folders in a folder, by name.
fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .take(10 * FOLDERS)
        .collect();
    names.sort();
    names.truncate(FOLDERS);
    names
}

/// What a data set has.
fn facts(set: &Dataset) -> Value {
    let train = set.train.counts();
    let val = set.val.as_ref().map(Images::counts);
    let classes: Vec<Value> = set
        .train
        .classes()
        .iter()
        .enumerate()
        .take(CLASSES)
        .map(|(class, name)| {
            let count = |counts: &Vec<usize>| counts.get(class).copied().unwrap_or_default();
            json!([text::short(name, NAME), count(&train), val.as_ref().map(count)])
        })
        .collect();
    let pixels = set.train.pixel_classes().map(|classes| {
        let names = classes.names.iter().take(CLASSES);
        names.map(|name| text::short(name, NAME)).collect::<Vec<_>>()
    });
    json!({
        "kind": match &set.train {
            Images::Folder(_) => "folders of classes",
            Images::Pairs(_) => "images with masks",
            Images::Shards(_) => "prepared shards",
            Images::Bucket(_) => "a bucket",
        },
        "train": set.train.len(),
        "val": set.val.as_ref().map(|val| val.len()),
        "class_count": set.train.classes().len(),
        "classes": classes,
        "pixels": pixels,
        "remarks": set.remarks().iter().take(REMARKS).map(|remark| text::short(remark, WHY)).collect::<Vec<_>>(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfSamples {
    key: String,
    part: String,
    /// All classes, if it is left out.
    class: Option<u32>,
    from: usize,
    count: usize,
}

async fn samples(State(site): Shared, Query(asked): Query<OfSamples>) -> JsonResult {
    blocking(move || {
        let set = site.data.set(&asked.key)?;
        let images = part_of(&set, &asked.part)?;
        let count = match asked.count {
            0 => SAMPLES,
            count => count.min(SAMPLES),
        };
        let is_of = |sample: &usize| asked.class.is_none_or(|class| images.class(*sample) == class);
        let total = match asked.class {
            None => images.len(),
            Some(_) => (0..images.len()).filter(is_of).count(),
        };
        let rows: Vec<Value> = (0..images.len())
            .filter(is_of)
            .skip(asked.from)
            .take(count)
            .map(|sample| {
                let name = String::from_utf8_lossy(images.below(sample)).into_owned();
                let class = images.classes().get(images.class(sample) as usize);
                json!({
                    "sample": sample,
                    "name": text::short(&name, NAME),
                    "class": class.map(|class| text::short(class, NAME)),
                    "version": version(images, sample),
                })
            })
            .collect();
        Ok(json!({"total": total, "from": asked.from, "rows": rows}))
    })
    .await?
    .map(Json)
}

/// What changes with a sample's file: for the address of its picture.
fn version(images: &Images, sample: usize) -> String {
    let mut hash = Fnv::default();
    hash.add(images.below(sample));
    if let Some(about) = file_of(images, sample).and_then(|path| fs::metadata(path).ok()) {
        for part in [about.mtime(), about.mtime_nsec(), about.size() as i64] {
            hash.add(&part.to_le_bytes());
        }
    }
    format!("{:016x}", hash.finish())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfPicture {
    key: String,
    part: String,
    sample: usize,
    large: bool,
}

/// A picture of a sample; a sample that cannot be shown is no error of the request, and says why.
async fn picture(State(site): Shared, Query(asked): Query<OfPicture>) -> Result<Response, Refusal> {
    let turn = site.data.turn().await?;
    let made = blocking(move || {
        let _turn = turn;
        let set = site.data.set(&asked.key)?;
        let bytes = site.data.read(&set, &asked.part, asked.sample)?;
        let side = SIDES[usize::from(asked.large)];
        Ok(bytes.and_then(|bytes| small(&bytes, side)))
    });
    Ok(match made.await?? {
        Err(reason) => Json(json!({"broken": text::short(&reason, WHY)})).into_response(),
        Ok(jpeg) => {
            let mut answer = Response::new(Body::from(jpeg));
            let headers = answer.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("image/jpeg"));
            // Its address has the file's version.
            let kept = HeaderValue::from_static("private, max-age=86400, immutable");
            headers.insert(CACHE_CONTROL, kept);
            answer
        }
    })
}

fn small(bytes: &SampleBytes, side: u16) -> Result<Vec<u8>, String> {
    unless_it_panics(|| thumbnail(input(bytes), side, true))
}

/// What a decoder makes of bytes that no one has checked.
///
/// # Errors
/// Its error, or that it has panicked.
pub fn unless_it_panics<T>(work: impl FnOnce() -> Result<T, ImageError>) -> Result<T, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => {
            Err("the decoder fails on this file, which is a bug in stokehold; please report it".to_owned())
        }
    }
}

async fn begin(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> JsonResult {
    act_for(site, peer, format!("examine {key}"), move |site| {
        let data = &site.data;
        let folder = data.folder(&key).map_err(|lost| Refusal::lost(&key, &lost))?;
        data.refresh(&key);
        let set = data.set(&key)?;
        let mut all = lock(&data.examined);
        if let Some(running) = all.iter().find(|one| lock(&one.report).is_none()) {
            let reason = format!("{} is being examined; one is examined at a time", running.key);
            return Err(Refusal(StatusCode::CONFLICT, reason));
        }
        let one = Arc::new(Examination {
            key: key.clone(),
            done: AtomicUsize::new(0),
            of: set.train.len() + set.val.as_ref().map_or(0, |val| val.len()),
            stop: AtomicBool::new(false),
            report: Mutex::new(None),
        });
        let own = Arc::clone(&one);
        let threads = thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        let spawned = thread::Builder::new().name("examine".to_owned()).spawn(move || {
            let goes_on = || {
                own.done.fetch_add(1, Ordering::Relaxed);
                !own.stop.load(Ordering::Relaxed)
            };
            let report = examine(&folder, &set, threads, &goes_on).map(|report| shown(&json!(report)));
            *lock(&own.report) = Some(report);
        });
        spawned.map_err(|error| Refusal::failed(&error))?;
        all.retain(|other| other.key != key);
        all.push(one);
        if all.len() > REPORTS {
            all.remove(0);
        }
        Ok(("begun".to_owned(), json!({"done": true})))
    })
    .await
}

/// A report in a length that a page can show.
fn shown(report: &Value) -> Value {
    let mut report = report.clone();
    let broken = report["broken"].as_array().map_or(0, Vec::len);
    report["broken_count"] = broken.into();
    for (list, most) in [("broken", BROKEN), ("classes", CLASSES)] {
        let Some(rows) = report[list].as_array_mut() else {
            continue;
        };
        rows.truncate(most);
        for value in rows
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .flat_map(|row| row.values_mut())
        {
            if let Some(said) = value.as_str() {
                *value = text::short(said, WHY).into();
            }
        }
    }
    report
}

async fn progress(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> JsonResult {
    Ok(Json(
        site.data.examination(&key).map_or(Value::Null, |one| one.about()),
    ))
}

async fn end(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> JsonResult {
    act_for(site, peer, format!("stop examining {key}"), move |site| {
        let one = site.data.examination(&key).ok_or_else(no_sample)?;
        one.stop.store(true, Ordering::Relaxed);
        Ok(("done".to_owned(), json!({"done": true})))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn place(dir: &Path) -> Data {
        fs::create_dir_all(dir.join("data/flowers/rose")).unwrap();
        fs::create_dir_all(dir.join("elsewhere/lily")).unwrap();
        fs::write(dir.join("data/flowers/rose/1.jpg"), b"no image").unwrap();
        fs::write(dir.join("elsewhere/lily/1.jpg"), b"secret").unwrap();
        Data::new(&[dir.join("data")]).unwrap()
    }

    #[test]
    fn no_key_leads_out_of_the_given_folders() {
        let dir = tempfile::tempdir().unwrap();
        let data = place(dir.path());
        assert!(data.folder("data").is_ok() && data.folder("data/flowers").is_ok());
        for key in [
            "data/..",
            "data/../elsewhere",
            "data/flowers/../../elsewhere",
            "data//etc",
            "data-2",
            "",
            "data/none",
            "data/flowers/rose/1.jpg",
            "data/\0",
        ] {
            assert_eq!(data.folder(key), Err(Lost::Missing), "{key}");
        }
        symlink(dir.path().join("elsewhere"), dir.path().join("data/away")).unwrap();
        assert_eq!(data.folder("data/away"), Err(Lost::Outside));
    }

    #[test]
    fn a_data_set_with_a_link_that_leads_out_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let data = place(dir.path());
        assert_eq!(data.set("data/flowers").unwrap().train.len(), 1);
        let away = dir.path().join("data/flowers/lily");
        symlink(dir.path().join("elsewhere/lily"), &away).unwrap();
        lock(&data.open).clear();
        let Refusal(status, reason) = data.set("data/flowers").unwrap_err();
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(reason.contains("lily leads out"), "{reason}");
        // What was opened before is not read either.
        fs::remove_file(&away).unwrap();
        let set = data.set("data/flowers").unwrap();
        let file = dir.path().join("data/flowers/rose/1.jpg");
        fs::remove_file(&file).unwrap();
        symlink(dir.path().join("elsewhere/lily/1.jpg"), &file).unwrap();
        assert!(data.read(&set, "train", 0).is_err());
    }

    #[test]
    fn a_folder_of_data_sets_is_none_itself() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for path in [
            "parts/birds/train/a/1.jpg",
            "classes/birds/a/1.jpg",
            "set/train/a/1.jpg",
            "set/val/a/1.jpg",
            "plain/a/1.jpg",
            "plain/b/2.jpg",
        ] {
            make(path);
        }
        let holds = |name: &str| holds_sets(&dir.path().join(name));
        assert!(holds("parts") && holds("classes") && holds(""));
        assert!(!holds("set") && !holds("plain") && !holds("parts/birds") && !holds("classes/birds"));
    }

    #[test]
    fn what_cannot_be_shown_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let data = place(dir.path());
        let set = data.set("data/flowers").unwrap();
        let reason = data.read(&set, "train", 0).unwrap().unwrap_err();
        assert!(reason.contains("not an image"), "{reason}");
        assert!(data.read(&set, "train", 1).is_err() && data.read(&set, "val", 0).is_err());
    }
}
