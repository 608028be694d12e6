//! Processes the parts of a data set with many threads and one writer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use stokehold_base::share::Share;
use stokehold_base::there::if_there;
use stokehold_base::{lock, whole};
use stokehold_pipeline::{Mask, MaskTable, probe};
use stokehold_storage::shard::{Manifest, PartFacts, ShardFacts};
use stokehold_storage::{SampleBytes, Source, StorageError};

use crate::PrepareError;
use crate::make::Maker;
use crate::options::{Container, Options};
use crate::output::{Output, Ready, is_file_name};
use crate::packing::Packing;
use crate::part::{Making, PartTask, parts};
use crate::resume::{has_begun, kept};
use crate::shares::{self, Shares};

/// How many samples a thread may be ahead of the writer.
const AHEAD: usize = 8;

/// The progress of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Images that are done, including those of an earlier preparation.
    pub done: usize,
    /// The number of them that an earlier preparation had done.
    pub kept: usize,
    /// All images.
    pub of: usize,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Report {
    /// The manifest that was written.
    pub manifest: Manifest,
    /// Images that were skipped.
    pub left_out: Vec<Left>,
    /// JPEGs that could be neither packed nor transcoded and were kept as they are.
    pub kept_as_they_are: Vec<Left>,
    /// Samples that an earlier, unfinished preparation had finished.
    pub kept: usize,
}

/// A file that was treated differently, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The file.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Whether a folder, which need not be there, would be among the images of a data set.
fn is_among(out: &Path, data: &Path) -> bool {
    let Some(there) = std::path::absolute(out)
        .ok()
        .and_then(|out| out.ancestors().find_map(|folder| folder.canonicalize().ok()))
    else {
        return false;
    };
    let parts = match data.join("train").is_dir() {
        true => vec![data.join("train"), data.join("val")],
        false => vec![data.to_owned()],
    };
    parts
        .iter()
        .filter_map(|part| part.canonicalize().ok())
        .any(|part| there.starts_with(part))
}

/// Prepares the data set in `data` into the folder `out`, which must be new or empty, or contain the
/// unfinished or finished result of the same preparation.
///
/// When `stop` is set the work ends soon; shards that are finished by then are kept for the next time.
/// `progress` is called on the calling thread.
///
/// # Errors
/// [`PrepareError`] says what is wrong and whether the input is at fault. Finished shards stay.
pub fn prepare(
    data: &Path,
    out: &Path,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, PrepareError> {
    run(data, out, options, Task::All, stop, progress)
}

/// Prepares one worker's share of every part, into a folder next to `out`, for [`join`]. Takes up what an earlier call left.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_share(
    data: &Path,
    out: &Path,
    share: Share,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, PrepareError> {
    run(data, out, options, Task::Share(share), stop, progress)
}

/// Joins the shares of all workers to the shards that [`prepare`] would have written, byte for byte, and removes the shares.
/// `data` and `options` have to be those of the workers.
///
/// # Errors
/// As [`prepare`]; a worker has not finished.
pub fn join(
    data: &Path,
    out: &Path,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, PrepareError> {
    run(data, out, options, Task::Join, stop, progress)
}

/// What is done of a preparation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    All,
    Share(Share),
    Join,
}

fn run(
    data: &Path,
    out: &Path,
    options: &Options,
    task: Task,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, PrepareError> {
    if is_among(out, data) {
        return Err(PrepareError::Inside { path: out.to_owned() });
    }
    let (mut out, mut options) = (out.to_owned(), options.clone());
    let mut parts = parts(data, &options)?;
    check_bake(data, &parts, &options)?;
    if let Task::Share(share) = task {
        parts.iter_mut().for_each(|part| part.take(share));
        out = shares::folder_of(&out, share);
        options.container = Container::Shards;
    }
    let (out, options) = (&*out, &options);
    let place = OutputFolder::claim(out, &parts, options, stop)?;
    if let Some(manifest) = place.finished {
        // Those that were joined before they could be removed. Others are not this preparation's.
        if task == Task::Join
            && let Ok(shares) = Shares::open(out, &parts)
        {
            shares.remove()?;
        }
        let kept = manifest.parts.values().map(|part| part.samples as usize).sum();
        return Ok(Report {
            manifest,
            left_out: Vec::new(),
            kept_as_they_are: Vec::new(),
            kept,
        });
    }
    if parts.iter().any(|part| part.packs) {
        let packing = Arc::new(Packing::of(&parts, stop)?);
        let packed = parts.iter_mut().filter(|part| part.packs);
        packed.for_each(|part| part.packing = Some(packing.clone()));
    }
    let parts = &parts;
    let shares = match task {
        Task::Join => Some(Shares::open(out, parts)?),
        Task::All | Task::Share(_) => None,
    };
    let mut work = Work {
        out,
        options,
        shares,
        is_share: matches!(task, Task::Share(_)),
        stop,
        left_out: Vec::new(),
        kept_as_they_are: Vec::new(),
        kept: 0,
        done: Progress {
            done: 0,
            kept: 0,
            of: parts.iter().map(|part| part.range.len()).sum(),
        },
        progress,
    };
    let mut facts = BTreeMap::new();
    let mut left_out = Vec::new();
    for part in parts {
        // Masks come after their images.
        let excluded = if part.is_masks { &left_out[..] } else { &[] };
        let (of_part, left) = work.part(part, excluded)?;
        facts.insert(part.name.to_owned(), of_part);
        left_out = left;
    }
    let format = match options.container {
        Container::Shards => Manifest::FORMAT,
        Container::Tar => Manifest::TAR,
    };
    let manifest = Manifest {
        format: format.into(),
        version: Manifest::VERSION,
        prepared: options.prepared(),
        lossless: options.is_lossless(),
        classes: parts[0].images.classes().to_vec(),
        pixels: parts[0].images.pixel_classes().cloned(),
        parts: facts,
    };
    let (left_out, kept_as_they_are, kept) = (work.left_out, work.kept_as_they_are, work.kept);
    place.finish(&manifest)?;
    if let Some(shares) = work.shares {
        shares.remove()?;
    }
    Ok(Report {
        manifest,
        left_out,
        kept_as_they_are,
        kept,
    })
}

struct Work<'a> {
    out: &'a Path,
    options: &'a Options,
    /// Those that are joined.
    shares: Option<Shares>,
    /// Whether this is one worker's share, which may be empty.
    is_share: bool,
    stop: &'a AtomicBool,
    left_out: Vec<Left>,
    kept_as_they_are: Vec<Left>,
    kept: usize,
    done: Progress,
    progress: &'a mut dyn FnMut(Progress),
}

/// A thread's result for an image: the sample, and why it was kept unchanged, if it was; or what is wrong
/// with the image.
pub(crate) type Outcome = Result<(Ready, Option<String>), String>;

impl Work<'_> {
    /// Makes the shards of a part, without the samples `excluded`, whose images were left out. Returns the samples that were
    /// left out, too.
    fn part(&mut self, part: &PartTask, excluded: &[usize]) -> Result<(PartFacts, Vec<usize>), PrepareError> {
        let folder = self.out.join(part.name);
        fs::create_dir_all(&folder).map_err(|source| write_error(&folder, source))?;
        remove_partial(&folder, |name| is_file_name(name, self.options))?;
        let kept = kept(part, self.out, self.options, self.stop)?;
        tracing::info!(
            part = part.name,
            kept = kept.samples,
            of = part.range.len(),
            "shards of an earlier call"
        );
        self.kept += kept.samples;
        let done = kept.next - part.range.start;
        self.done.done += done;
        self.done.kept += done;
        (self.progress)(self.done);
        if kept.samples == 0 && self.shares.is_none() {
            estimate(part, self.options)?;
        }
        let mut files = Files {
            part,
            out: self.out,
            options: self.options,
            open: None,
            written: kept.shards,
        };
        let mut left_out = kept.left_out;
        let (options, shares) = (self.options, self.shares.take());
        let each = |sample: usize, outcome: Outcome| {
            match outcome {
                _ if excluded.binary_search(&sample).is_ok() => left_out.push(sample),
                Ok((ready, as_it_is)) => {
                    files.push(&ready)?;
                    if let Some(reason) = as_it_is {
                        let name = part.images.name(sample);
                        self.kept_as_they_are.push(Left { name, reason });
                    }
                }
                Err(reason) => {
                    let name = part.images.name(sample);
                    if !options.skip_bad_images || part.is_masks {
                        return Err(PrepareError::BadImage { name, reason });
                    }
                    self.left_out.push(Left { name, reason });
                    left_out.push(sample);
                }
            }
            self.done.done += 1;
            (self.progress)(self.done);
            Ok(())
        };
        match &shares {
            Some(shares) => shares.in_order(part, options, kept.next, self.stop, each)?,
            None => in_order(part, options, kept.next, self.stop, each)?,
        }
        self.shares = shares;
        let shards = files.finish()?;
        // One of them was broken at one time and whole at another.
        if part.is_masks && left_out != excluded {
            return Err(PrepareError::Changed { path: folder });
        }
        if shards.is_empty() && !self.is_share {
            return Err(PrepareError::NoGoodImage {
                path: part.images.root().to_owned(),
                reason: self
                    .left_out
                    .last()
                    .map_or_else(String::new, |left| format!("{}: {}", left.name, left.reason)),
            });
        }
        let all: u64 = part.sizes[part.range.clone()].iter().sum();
        let out: u64 = left_out.iter().map(|&sample| part.sizes[sample]).sum();
        let larger = Larger {
            part: part.name,
            before: all - out,
            after: shards.iter().map(|shard| shard.bytes).sum(),
            estimated: false,
        };
        if !self.is_share {
            larger.check(options)?;
        }
        let facts = PartFacts {
            id: format!("{:016x}", part.id),
            samples: (part.range.len() - left_out.len()) as u64,
            source_bytes: all - out,
            left_out: left_out
                .iter()
                .map(|&sample| String::from_utf8_lossy(part.images.below(sample)).into_owned())
                .collect(),
            baked: match &part.making {
                Making::Bake(bake) => Some(bake.facts()?),
                Making::Content(_) => None,
            },
            shards,
        };
        Ok((facts, left_out))
    }
}

/// Checks that something is to be performed only on parts that there are.
fn check_bake(data: &Path, parts: &[PartTask], options: &Options) -> Result<(), PrepareError> {
    let is_there = |name: &&String| parts.iter().any(|part| part.name == *name);
    match options.bake.keys().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(part) => Err(PrepareError::NoPart {
            path: data.to_owned(),
            part: part.clone(),
        }),
    }
}

/// How many samples tell the size of the others.
const TRIED: usize = 64;

/// Makes some samples of a part on which something is performed, evenly spaced, to refuse larger ones before hours are spent.
fn estimate(part: &PartTask, options: &Options) -> Result<(), PrepareError> {
    let Making::Bake(bake) = &part.making else {
        return Ok(());
    };
    if options.allow_larger {
        return Ok(());
    }
    let (mut maker, mut bytes) = (Maker::new(part.packing.as_deref()), SampleBytes::new());
    let (mut before, mut after) = (0, 0);
    let len = part.images.len();
    for sample in (0..len.min(TRIED)).map(|at| at * len / len.min(TRIED)) {
        // What is wrong with an image is said when it is its turn.
        if part.images.read(sample, &mut bytes).is_ok()
            && let Ok(made) = maker.bake(bytes.file().to_vec(), bake)
        {
            before += bytes.file().len() as u64;
            after += made.file.len() as u64;
        }
    }
    let larger = Larger {
        part: part.name,
        before,
        after,
        estimated: true,
    };
    larger.check(options)
}

/// A part's bytes before and after something was performed on its images.
struct Larger {
    part: &'static str,
    before: u64,
    after: u64,
    estimated: bool,
}

impl Larger {
    fn check(self, options: &Options) -> Result<(), PrepareError> {
        let is_baked = options.bake.contains_key(self.part);
        // The sizes of objects in a bucket may not be known.
        if !is_baked || options.allow_larger || self.before == 0 || self.after <= self.before {
            return Ok(());
        }
        Err(PrepareError::Larger {
            part: self.part.to_owned(),
            times: self.after as f64 / self.before as f64,
            of: if self.estimated {
                "some of its images"
            } else {
                "all of its images"
            },
        })
    }
}

/// The row of files of a part.
struct Files<'a> {
    part: &'a PartTask,
    out: &'a Path,
    options: &'a Options,
    open: Option<Output>,
    written: Vec<ShardFacts>,
}

impl Files<'_> {
    fn push(&mut self, sample: &Ready) -> Result<(), PrepareError> {
        let full = |open: &Output| open.size_with(sample) > self.options.shard_size;
        if self.open.as_ref().is_some_and(full) {
            self.close()?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Output::new(self.out, self.part, self.written.len() as u32, self.options)
                .map_err(|(path, source)| write_error(&path, source))?,
        };
        open.push(sample)
            .map_err(|(path, source)| write_error(&path, source))?;
        self.open = Some(open);
        Ok(())
    }

    fn close(&mut self) -> Result<(), PrepareError> {
        if let Some(open) = self.open.take() {
            let facts = open
                .finish()
                .map_err(|(path, source)| write_error(&path, source))?;
            self.written.push(facts);
        }
        Ok(())
    }

    /// All files.
    fn finish(mut self) -> Result<Vec<ShardFacts>, PrepareError> {
        self.close()?;
        Ok(self.written)
    }
}

/// Makes the samples of a part from number `first` on with many threads, and hands them to `each` in order.
fn in_order(
    part: &PartTask,
    options: &Options,
    first: usize,
    stop: &AtomicBool,
    mut each: impl FnMut(usize, Outcome) -> Result<(), PrepareError>,
) -> Result<(), PrepareError> {
    let len = part.range.end;
    let workers = options.workers.clamp(1, (len - first).max(1));
    // A bucket fetches what it is told of, many objects at once.
    let ahead = (AHEAD * workers).max(part.images.reach());
    thread::scope(|scope| {
        // Both ends close when this function returns, however it does, and the threads end with them.
        let (give, jobs) = unbounded();
        let (done, outcomes) = unbounded();
        for _ in 0..workers {
            let (jobs, done) = (jobs.clone(), done.clone());
            thread::Builder::new()
                .spawn_scoped(scope, move || work(part, options, &jobs, &done))
                .map_err(PrepareError::Spawn)?;
        }
        drop((jobs, done));
        let mut early = BTreeMap::new();
        let (mut given, mut next) = (first, first);
        while next < len {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Interrupted);
            }
            while given < len && given < next + ahead {
                part.images.expect(given);
                // The threads are there as long as `outcomes` is.
                let _ = give.send(given);
                given += 1;
            }
            let Ok((sample, outcome)) = outcomes.recv() else {
                break;
            };
            early.insert(sample, outcome);
            while let Some(outcome) = early.remove(&next) {
                each(next, outcome)?;
                next += 1;
            }
        }
        Ok(())
    })
}

/// One thread: samples in, outcomes out.
fn work(part: &PartTask, options: &Options, jobs: &Receiver<usize>, done: &Sender<(usize, Outcome)>) {
    let new = || Maker::new(part.packing.as_deref());
    let mut maker = new();
    let (mut bytes, mut mask) = (SampleBytes::new(), Vec::new());
    for sample in jobs {
        // A panic in a decoder must not stop the preparation of the other files.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            ready(part, options, sample, &mut maker, (&mut bytes, &mut mask))
        }));
        let outcome = outcome.unwrap_or_else(|_| {
            maker = new();
            Err("the decoder fails on this file, which is a bug in stokehold; please report it".into())
        });
        if done.send((sample, outcome)).is_err() {
            return;
        }
    }
}

fn ready(
    part: &PartTask,
    options: &Options,
    sample: usize,
    maker: &mut Maker,
    (bytes, mask): (&mut SampleBytes, &mut Vec<u8>),
) -> Outcome {
    part.images.read(sample, bytes).map_err(|error| error.reason())?;
    let file = bytes.file().to_vec();
    if let Some(table) = &part.masks {
        part.images
            .read_mask(sample, mask)
            .map_err(|error| error.reason())
            .and_then(|()| check_mask(&file, mask, table))
            .map_err(|reason| format!("its mask {}: {reason}", part.images.mask_name(sample)))?;
    }
    let mut made = match &part.making {
        Making::Bake(bake) => maker.bake(file, bake)?,
        Making::Content(content) => maker.make(file, *content)?,
    };
    let as_it_is = made.kept.take();
    let key = part.keys.get(sample).map_or("", String::as_str);
    let name = part.images.below(sample);
    let label = part.images.class(sample);
    let ready = Ready::new(options.container, name, key, label, made).map_err(|error| error.to_string())?;
    Ok((ready, as_it_is))
}

/// Whether a mask has a class for every pixel of its image.
fn check_mask(image: &[u8], mask: &[u8], table: &MaskTable) -> Result<(), String> {
    let info = probe(image).map_err(|error| error.to_string())?;
    Mask::decode_for(mask, table, &info)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The output folder, locked against other processes.
struct OutputFolder<'a> {
    out: &'a Path,
    /// Of a preparation that is finished already.
    finished: Option<Manifest>,
    /// Locked as long as it is open.
    _lock: File,
}

impl<'a> OutputFolder<'a> {
    /// Nothing in the folder is changed before it is known to be this preparation's, or empty.
    fn claim(
        out: &'a Path,
        parts: &[PartTask],
        options: &Options,
        stop: &AtomicBool,
    ) -> Result<Self, PrepareError> {
        let failed = |source| write_error(out, source);
        let occupied = || PrepareError::Occupied { path: out.to_owned() };
        fs::create_dir_all(out).map_err(failed)?;
        let lock = File::open(out).map_err(failed)?;
        if !lock::lock(&lock, lock::MOMENT).map_err(failed)? {
            return Err(PrepareError::Busy { path: out.to_owned() });
        }
        let unfinished = out.join(Manifest::UNFINISHED);
        let read = |path: &Path| {
            if_there(fs::read(path)).map_err(|source| StorageError::Read {
                path: path.to_owned(),
                source,
            })
        };
        let begun = read(&unfinished)?;
        let is_begun = match &begun {
            Some(bytes) => bytes == plan(parts).as_bytes(),
            None => false,
        };
        let finished = match read(&out.join(Manifest::FILE))?.map(|bytes| Manifest::parse_any(&bytes)) {
            Some(Ok(manifest)) => {
                let ids = manifest
                    .parts
                    .iter()
                    .map(|(name, part)| (name.as_str(), part.id.clone()));
                if !ids.eq(parts.iter().map(|part| (part.name, format!("{:016x}", part.id)))) {
                    return Err(occupied());
                }
                Some(manifest)
            }
            // Another program's file can have this name. One that cannot be read is taken for a damaged
            // manifest, which is written again, only next to something that this preparation has made.
            Some(Err(_)) if begun.is_some() && !is_begun => return Err(occupied()),
            Some(Err(_)) if is_begun || has_begun(parts, out, options, stop)? => None,
            Some(Err(_)) => return Err(occupied()),
            None if is_begun || (begun.is_none() && is_empty(out)?) => None,
            None => return Err(occupied()),
        };
        remove_partial(out, |name| [Manifest::FILE, Manifest::UNFINISHED].contains(&name))?;
        if finished.is_some() {
            // Left there where the end came between the two.
            let _ = fs::remove_file(&unfinished);
        } else if !is_begun {
            whole::write(&unfinished, plan(parts)).map_err(|source| write_error(&unfinished, source))?;
        }
        Ok(Self {
            out,
            finished,
            _lock: lock,
        })
    }

    fn finish(self, manifest: &Manifest) -> Result<(), PrepareError> {
        let path = self.out.join(Manifest::FILE);
        let written = serde_json::to_string_pretty(manifest)
            .map_err(io::Error::other)
            .and_then(|text| whole::write(&path, text + "\n"));
        written.map_err(|source| write_error(&path, source))?;
        let unfinished = self.out.join(Manifest::UNFINISHED);
        fs::remove_file(&unfinished).map_err(|source| write_error(&unfinished, source))
    }
}

/// What an unfinished folder is the beginning of.
fn plan(parts: &[PartTask]) -> String {
    let mut plan =
        "this preparation is not finished; the same command once more goes on with it\n".to_owned();
    for part in parts {
        plan += &format!("{} {:016x}\n", part.name, part.id);
    }
    plan
}

/// Whether there is nothing in a folder, or only what a preparation that was killed at its first step left.
fn is_empty(folder: &Path) -> Result<bool, PrepareError> {
    let partial = partial(folder, |name| name == Manifest::UNFINISHED)?;
    let entries = fs::read_dir(folder).map_err(|source| write_error(folder, source))?;
    Ok(entries.count() == partial.len())
}

/// Removes the unfinished files of a preparation that was killed, of the files that `is_ours` names.
fn remove_partial(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Result<(), PrepareError> {
    for path in partial(folder, is_ours)? {
        fs::remove_file(&path).map_err(|source| write_error(&path, source))?;
    }
    Ok(())
}

/// The unfinished files in a folder, of the files that `is_ours` names. For the file NAME they are called
/// `NAME.partial`, or `NAME.1.partial` and so on where the first name was taken ([`whole::Writing::begin`]).
fn partial(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, PrepareError> {
    let failed = |source| write_error(folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let of = name.to_str().and_then(whole::of_partial);
        let is_ours = of.is_some_and(|(of, or)| is_ours(of) || or.is_some_and(&is_ours));
        if is_ours && entry.file_type().map_err(failed)?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

pub(crate) fn write_error(path: &Path, source: io::Error) -> PrepareError {
    PrepareError::Write {
        path: PathBuf::from(path),
        source,
    }
}
