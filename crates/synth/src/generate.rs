//! Pictures into files, files into folders.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::{SynthError, class, scene};

/// Goes up whenever the same options give other files, so that a kept data set is made again.
const VERSION: u32 = 1;

const QUALITY: u8 = 90;

/// What to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// Number of images, training and validation together, spread evenly over the classes. At least one a class, and
    /// at most ten million.
    pub images: usize,
    /// Number of classes, 1..=100.
    pub classes: usize,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// The share of each class's images that goes to `val/`: 0 or more and below 1, rounded to whole images.
    pub val_fraction: f64,
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self {
            images: 640,
            classes: 10,
            seed: 0,
            val_fraction: 0.2,
        }
    }
}

impl SynthOptions {
    fn check(&self) -> Result<(), SynthError> {
        let reason = if !(1..=class::MAX_CLASSES).contains(&self.classes) {
            format!("{} classes; must be 1 to {}", self.classes, class::MAX_CLASSES)
        } else if !(self.classes..=10_000_000).contains(&self.images) {
            format!(
                "{} images for {} classes; must be {1} to 10000000",
                self.images, self.classes
            )
        } else if !(0.0..1.0).contains(&self.val_fraction) {
            format!(
                "validation share {}; must be 0 or more and below 1",
                self.val_fraction
            )
        } else {
            return Ok(());
        };
        Err(SynthError::Options { reason })
    }

    /// Images of a class: all, and those of them that go to `val/`.
    fn of_class(&self, class: usize) -> (usize, usize) {
        let all = self.images / self.classes + usize::from(class < self.images % self.classes);
        (
            all,
            ((all as f64 * self.val_fraction).round() as usize).min(all - 1),
        )
    }
}

/// Writes a data set of generated JPEGs to `dir`, as `train/<class>/` and `val/<class>/`.
///
/// `dir` must not exist, or be empty. The files are written to a folder next to it, which is renamed at the
/// end, so `dir` is never incomplete. `progress` is called on the calling thread with the numbers of finished
/// images and of all images.
///
/// # Errors
/// An option out of range; something in `dir`; a file that cannot be written. The folder next to is removed then.
pub fn generate(
    dir: impl AsRef<Path>,
    options: &SynthOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), SynthError> {
    options.check()?;
    // An empty folder may be given as ".", whose own name is needed to write next to it.
    let dir = &dir
        .as_ref()
        .canonicalize()
        .unwrap_or_else(|_| dir.as_ref().to_owned());
    if fs::read_dir(dir).map_or(dir.symlink_metadata().is_ok(), |mut entries| {
        entries.next().is_some()
    }) {
        return Err(SynthError::Exists { path: dir.to_owned() });
    }
    let aside = Aside::new(dir)?;
    write_all(&aside.path, options, progress)?;
    aside.rename(dir)
}

/// The data set to use where none is given: generated on the first call, kept in the user's cache folder
/// (`$STOKEHOLD_CACHE`, `$XDG_CACHE_HOME/stokehold` or `~/.cache/stokehold`), and found there on later calls.
///
/// Processes that ask for it at once wait for the one that makes it. `progress` is as in [`generate`], and not called
/// where the data set is there already.
///
/// # Errors
/// As [`generate`]; no cache folder is known.
pub fn default_dataset(
    images: usize,
    classes: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<PathBuf, SynthError> {
    let options = SynthOptions {
        images,
        classes,
        ..SynthOptions::default()
    };
    options.check()?;
    kept_dataset(&cache_folder()?, &options, progress)
}

fn kept_dataset(
    cache: &Path,
    options: &SynthOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<PathBuf, SynthError> {
    let name = format!("synth-{VERSION}-{}x{}", options.images, options.classes);
    let dir = cache.join(&name);
    if is_whole(&dir, options) {
        return Ok(dir);
    }
    fs::create_dir_all(cache).map_err(|source| write_error(cache, source))?;
    // The lock goes with the process that holds it, so waiting for it ends.
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(|source| write_error(&lock_path, source))?;
    lock.lock().map_err(|source| write_error(&lock_path, source))?;
    if !is_whole(&dir, options) {
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|source| write_error(&dir, source))?;
        }
        generate(&dir, options, progress)?;
    }
    Ok(dir)
}

/// Whether all files are there; somebody may have tidied the cache folder.
fn is_whole(dir: &Path, options: &SynthOptions) -> bool {
    tasks(dir, options).iter().all(|task| task.path.is_file())
}

fn cache_folder() -> Result<PathBuf, SynthError> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let user = || absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    absolute("STOKEHOLD_CACHE")
        .or_else(|| user().map(|cache| cache.join("stokehold")))
        .ok_or(SynthError::NoCacheFolder)
}

/// A folder that takes another's name when it is complete, and is removed when it never is.
struct Aside {
    path: PathBuf,
}

impl Aside {
    fn new(dir: &Path) -> Result<Self, SynthError> {
        let mut name = dir.file_name().unwrap_or(dir.as_os_str()).to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let path = dir.with_file_name(name);
        fs::create_dir_all(&path).map_err(|source| write_error(&path, source))?;
        Ok(Self { path })
    }

    fn rename(self, dir: &Path) -> Result<(), SynthError> {
        fs::rename(&self.path, dir).map_err(|source| write_error(dir, source))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove; after a failure the failure is what counts.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// One file to be made.
struct Task {
    class: usize,
    number: usize,
    path: PathBuf,
}

/// All files of a data set.
fn tasks(dir: &Path, options: &SynthOptions) -> Vec<Task> {
    let mut tasks = Vec::with_capacity(options.images);
    for class in 0..options.classes {
        let (all, val) = options.of_class(class);
        for (part, numbers) in [("train", 0..all - val), ("val", all - val..all)] {
            let folder = dir.join(part).join(class::name(class));
            tasks.extend(numbers.map(|number| Task {
                class,
                number,
                path: folder.join(format!("{number:05}.jpg")),
            }));
        }
    }
    tasks
}

fn write_all(
    dir: &Path,
    options: &SynthOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), SynthError> {
    let tasks = tasks(dir, options);
    for folder in tasks.iter().filter_map(|task| task.path.parent()) {
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(|source| write_error(folder, source))?;
        }
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (report, done) = mpsc::channel();
    let mut outcome = Ok(());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism()
            .map_or(1, usize::from)
            .min(tasks.len())
        {
            let (report, tasks, next, failed) = (report.clone(), &tasks, &next, &failed);
            scope.spawn(move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if failed.load(Ordering::Relaxed) || report.send(task.make(options.seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        let mut made = 0;
        for result in done {
            match result {
                Ok(()) => {
                    made += 1;
                    progress(made, tasks.len());
                }
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    outcome = Err(error);
                }
            }
        }
    });
    outcome
}

impl Task {
    fn make(&self, seed: u64) -> Result<(), SynthError> {
        jpeg(seed, self.class, self.number)
            .and_then(|bytes| fs::write(&self.path, bytes))
            .map_err(|source| write_error(&self.path, source))
    }
}

/// The file of a picture; even numbers have full colour resolution, odd ones half.
fn jpeg(seed: u64, class: usize, number: usize) -> io::Result<Vec<u8>> {
    let picture = scene::draw(seed, class, number);
    let mut bytes = Vec::with_capacity(200_000);
    let mut encoder = Encoder::new(&mut bytes, QUALITY);
    encoder.set_sampling_factor(if number.is_multiple_of(2) {
        SamplingFactor::R_4_4_4
    } else {
        SamplingFactor::R_4_2_0
    });
    encoder
        .encode(&picture.rgb, picture.width, picture.height, ColorType::Rgb)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

fn write_error(path: &Path, source: io::Error) -> SynthError {
    SynthError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_data_set_is_made_once_and_made_whole_again() {
        let cache = tempfile::TempDir::new().unwrap();
        let options = SynthOptions {
            images: 4,
            classes: 2,
            ..SynthOptions::default()
        };
        let made = AtomicUsize::new(0);
        let keep = || {
            kept_dataset(&cache.path().join("stokehold"), &options, &mut |_, _| {
                made.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap()
        };
        let dirs: Vec<PathBuf> = thread::scope(|scope| {
            let askers: Vec<_> = (0..4).map(|_| scope.spawn(keep)).collect();
            askers.into_iter().map(|asker| asker.join().unwrap()).collect()
        });
        assert!(dirs.iter().all(|dir| *dir == dirs[0] && is_whole(dir, &options)));
        assert_eq!(
            made.load(Ordering::Relaxed),
            4,
            "four who ask at once get one data set"
        );
        fs::remove_file(dirs[0].join("train/disc-plain/00000.jpg")).unwrap();
        assert_eq!(keep(), dirs[0]);
        assert_eq!(
            made.load(Ordering::Relaxed),
            8,
            "and it is made anew where a file is gone"
        );
        assert!(is_whole(&dirs[0], &options));
    }
}
