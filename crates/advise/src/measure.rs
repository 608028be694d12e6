//! Measures the costs of other ways of loading or training, on some of the run's own images.
//!
//! The images are copied first, so that all variants read the same files from memory. Each variant loads them
//! with one worker, in alternation. The comparison uses CPU time, which other programs hardly disturb, within
//! each turn, because the machine was then the same for all variants. So the result is valid for the run even
//! if it was made on another machine.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use stokehold_base::stats::percentile;
use stokehold_base::{shell, uri};
use stokehold_loader::{BadImagePolicy, Loader, LoaderOptions, Workers};
use stokehold_pipeline::{DecodeOptions, Executor, Pipeline};
use stokehold_prepare::{Bake, Options, prepare};
use stokehold_profile::About;
use stokehold_profile::workload::{Alternative, Change, Workload};
use stokehold_storage::{Dataset, Images, PixelClasses, SampleBytes, SlowSource, Source};
use stokehold_train::run::{DatasetFacts, RunRecord};
use stokehold_train::{Precision, TrainConfig, step_ratio};

use crate::AdviseError;

/// Images per turn.
const IMAGES: usize = 48;
/// No further turn begins after this time,
const LIMIT: Duration = Duration::from_secs(2);
/// unless fewer than this many turns were made.
const LEAST: usize = 3;
/// The most turns.
const MOST: usize = 15;
/// Steps of training on each side.
const STEPS: usize = 8;
/// A batch size is not tried if its trial would take longer than this, seconds, ..
const STEPS_LIMIT: f64 = 10.0;
/// .. or if the pixels of a batch would take more memory than this, bytes. The steps themselves take tens of
/// times as much.
const BATCH_LIMIT: usize = 1 << 30;

/// Whether to read images of a run that lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// Somebody asked for the measurements: read them.
    Read,
    /// Somebody asked what a run did, perhaps a run of somebody else, whose record must not decide where this
    /// machine connects to: leave the measurements out.
    Leave,
}

/// Makes the measurements that a Stokehold run could not make while it trained, unless they exist, and stores
/// them in the recording. Returns what could not be measured or stored, and why; `say` hears before what is done now.
pub fn once(
    record: &RunRecord,
    recording: &Path,
    about: &mut About,
    remote: Remote,
    say: &mut dyn FnMut(&str),
) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(workload) = about.workload.as_mut() else {
        return notes;
    };
    if !can_be_predicted(workload) || !workload.alternatives.is_empty() {
        return notes;
    }
    let data = &record.config.data;
    match (uri::remote(data), remote) {
        (Some(uri), Remote::Leave) => {
            let run = recording.parent().filter(|run| !run.as_os_str().is_empty());
            let run = run.unwrap_or(Path::new("."));
            notes.push(format!(
                "other executors, shards and batches are not predicted: the run's images are at {uri}, and a report \
                 reads nothing there; {} measures on them",
                shell::again([OsStr::new("advise"), run.as_os_str()])
            ));
            return notes;
        }
        (Some(uri), Remote::Read) => say(&format!("reading images of the run at {uri}")),
        (None, _) => {}
    }
    say(
        "measuring other executors, shards and batches on images of the run; this is done once and takes seconds",
    );
    alternatives(record, workload, &mut notes);
    if let Err(error) = about.write(recording) {
        notes.push(format!("what was measured now is not kept: {error}"));
    }
    notes
}

/// Whether the run has the measurements that predictions need.
pub(crate) fn can_be_predicted(workload: &Workload) -> bool {
    workload.seconds_per_epoch.is_some()
        && workload.loader_ceiling.is_some()
        && workload.trainer_ceiling.is_some()
}

/// Fills in [`Workload::alternatives`]. Adds to `notes` what could not be measured, and why.
fn alternatives(record: &RunRecord, workload: &mut Workload, notes: &mut Vec<String>) {
    let images = own_images(record);
    let count = images.as_ref().map(Source::len).map_err(String::clone);
    let batch_size = count
        .clone()
        .and_then(|images| of_batch_size(record, workload, images));
    let precision = count.and_then(|images| of_precision(record, workload, images));
    let wait = waits(workload);
    let loaders =
        images.and_then(|images| of_loader(record, images, wait).map_err(|error| error.to_string()));
    match loaders {
        Ok(loaders) => workload.alternatives = loaders,
        Err(reason) => notes.push(format!("other executors and shards are not predicted: {reason}")),
    }
    match batch_size {
        Ok(batch_size) => workload.alternatives.push(batch_size),
        Err(reason) => notes.push(format!("larger batches are not predicted: {reason}")),
    }
    match precision {
        Ok(precision) => workload.alternatives.extend(precision),
        Err(reason) => notes.push(format!("bf16 is not predicted: {reason}")),
    }
}

/// Measures what Stokehold's loader costs on the images of a PyTorch script, whose transforms are a pipeline.
///
/// # Errors
/// Why that cannot be measured.
pub(crate) fn of_script(workload: &mut Workload) -> Result<(), String> {
    let Some(script) = workload
        .script
        .as_ref()
        .filter(|_| workload.alternatives.is_empty())
    else {
        return Ok(());
    };
    if let Some(reason) = &script.swap_refused {
        return Err(reason.clone());
    }
    let again = "`stokehold advise --try -- COMMAND` reads a script's transforms and measures it";
    let pipeline = script.pipeline.as_ref().ok_or_else(|| again.to_owned())?;
    let root = script.root.as_ref().ok_or("its data set has no folder")?;
    let own = workload.loader_cpu_seconds.filter(|own| *own > 0.0);
    let own = own.ok_or("what its own loader costs was not measured")?;
    let cost = cost_of(Path::new(root), pipeline).map_err(|error| format!("{root}: {error}"))?;
    workload.alternatives.push(Alternative {
        change: Change::Executor {
            executor: "stokehold".to_owned(),
        },
        loader: cost / own,
        trainer: 1.0,
    });
    Ok(())
}

/// CPU time of an image in Stokehold's loader: the median of a few passes.
fn cost_of(root: &Path, pipeline: &str) -> Result<f64, AdviseError> {
    let mut images = Dataset::open(root, None, 0)?.train;
    images.limit(IMAGES);
    let options = LoaderOptions {
        batch_size: images.len().max(1),
        workers: "1".parse::<Workers>()?,
        prefetch: 1,
        bad_images: BadImagePolicy::Skip,
        bad_image_limit: usize::MAX,
        ..LoaderOptions::default()
    };
    let loader = Loader::new(Arc::new(images), Pipeline::from_json(pipeline)?, options)?;
    let mut costs = Vec::new();
    let begin = Instant::now();
    for turn in 0..=MOST as u64 {
        if turn as usize > LEAST && begin.elapsed() > LIMIT {
            break;
        }
        let cost = cpu_seconds(&loader, turn)?;
        if turn > 0 {
            costs.push(cost);
        }
    }
    percentile(&costs, 50.0).ok_or_else(|| AdviseError::Failed("nothing was measured".to_owned()))
}

/// The training images of the run, if they still exist.
fn own_images(record: &RunRecord) -> Result<Images, String> {
    let config = &record.config;
    let mut dataset =
        Dataset::open(&config.data, config.val_split, config.seed).map_err(|error| error.to_string())?;
    if let Some(most) = config.max_images {
        dataset.limit(most);
    }
    if DatasetFacts::of(&dataset) != record.dataset {
        return Err(format!(
            "{} is another data set than when the run was made",
            config.data.display()
        ));
    }
    Ok(dataset.train)
}

/// The other executor, if the run did not use the faster one, and shards, if it used single files.
fn of_loader(
    record: &RunRecord,
    mut images: Images,
    wait: Option<Duration>,
) -> Result<Vec<Alternative>, AdviseError> {
    let config = &record.config;
    let executor = record.executor.executor;
    if executor == Executor::Gpu {
        return Err(AdviseError::Failed(
            "the run's images were made on its device".to_owned(),
        ));
    }
    images.limit(IMAGES);
    let aside = tempfile::tempdir()?;
    let (images, shards) = if matches!(images, Images::Shards(_)) {
        (images, Vec::new())
    } else {
        let copies = aside.path().join("images");
        copy(&images, &copies)?;
        let shards = shards(config, &copies, aside.path())?;
        (Dataset::open(&copies, None, 0)?.train, shards)
    };
    let storage = wait
        .map(|wait| of_storage(config, images.clone(), executor, wait))
        .transpose()?;
    let own = side(config, Arc::new(images.clone()), executor)?;
    let mut others = Vec::new();
    if executor == Executor::PerOp {
        let change = Change::Executor {
            executor: Executor::Fused.to_string(),
        };
        others.push((change, side(config, Arc::new(images), Executor::Fused)?));
    }
    for (change, shards) in shards {
        others.push((change, side(config, Arc::new(shards), executor)?));
    }
    let mut alternatives = in_turns(&own, &others)?;
    alternatives.extend(storage);
    Ok(alternatives)
}

/// Shards of the files in `images`, made below `aside`: without loss, and with the head of the run's pipeline performed, where
/// it has one.
fn shards(config: &TrainConfig, images: &Path, aside: &Path) -> Result<Vec<(Change, Images)>, AdviseError> {
    let mut made = Vec::new();
    let mut make = |name: &str, bake: Option<Bake>| -> Result<(), AdviseError> {
        let operations = bake
            .as_ref()
            .map(|bake| bake.ops.iter().map(|op| op.name().to_owned()).collect());
        let options = Options {
            skip_bad_images: true,
            bake: bake.map(|bake| ("train".to_owned(), bake)).into_iter().collect(),
            allow_larger: true,
            ..Options::default()
        };
        let out = aside.join(name);
        let report = prepare(images, &out, &options, &AtomicBool::new(false), &mut |_| ())?;
        let facts = &report.manifest.parts["train"];
        let bytes: u64 = facts.shards.iter().map(|shard| shard.bytes).sum();
        let change = match operations {
            None => Change::Shards,
            Some(operations) => Change::Baked {
                operations,
                bytes: bytes as f64 / facts.source_bytes.max(1) as f64,
            },
        };
        made.push((change, Dataset::open(&out, None, 0)?.train));
        Ok(())
    };
    make("shards", None)?;
    let ops = config.pipeline.head().moves.to_vec();
    // What would change an image and not its mask is not made.
    if !ops.is_empty() && !config.arch.segments() {
        let (exif, quality) = (config.exif, 90);
        make("baked", Some(Bake { ops, exif, quality }))?;
    }
    Ok(made)
}

/// How long a worker of the run waited for the bytes of an image, if that is long next to computing.
fn waits(workload: &Workload) -> Option<Duration> {
    let (wait, cpu) = (workload.read_wait_seconds?, workload.worker_cpu_seconds?);
    // A longer one cools a core no further.
    (wait > 0.1 * cpu).then(|| Duration::from_secs_f64(wait.min(0.05)))
}

/// The CPU time of an image that was not waited for, relative to one after such a wait: a core that has rested,
/// and its caches, are cold.
fn of_storage(
    config: &TrainConfig,
    mut images: Images,
    executor: Executor,
    wait: Duration,
) -> Result<Alternative, AdviseError> {
    const FEW: usize = 12;
    images.limit(FEW);
    let late = SlowSource::new(images.clone(), wait);
    let late = side(config, Arc::new(late), executor)?;
    let ready = side(config, Arc::new(images), executor)?;
    let mut ratios = Vec::new();
    for turn in 0..=LEAST as u64 {
        let (ready, late) = (cpu_seconds(&ready, turn)?, cpu_seconds(&late, turn)?);
        if turn > 0 && late > 0.0 {
            ratios.push(ready / late);
        }
    }
    Ok(Alternative {
        change: Change::Storage,
        loader: percentile(&ratios, 50.0).unwrap_or(1.0),
        trainer: 1.0,
    })
}

/// A loader like the run's, but with one worker and no limit for bad images.
fn side(config: &TrainConfig, images: Arc<dyn Source>, executor: Executor) -> Result<Loader, AdviseError> {
    let options = LoaderOptions {
        batch_size: images.len().max(1),
        workers: "1".parse::<Workers>()?,
        prefetch: 1,
        seed: config.seed,
        executor,
        decode: DecodeOptions { exif: config.exif },
        bad_images: BadImagePolicy::Skip,
        bad_image_limit: usize::MAX,
        ..LoaderOptions::default()
    };
    Ok(Loader::new(images, config.pipeline.clone(), options)?)
}

/// Loads with every variant in alternation, and takes the median of the ratios to the first.
fn in_turns(own: &Loader, others: &[(Change, Loader)]) -> Result<Vec<Alternative>, AdviseError> {
    let mut ratios = vec![Vec::new(); others.len()];
    let begin = Instant::now();
    // The first pass warms up.
    for turn in 0..=MOST as u64 {
        if turn as usize > LEAST && begin.elapsed() > LIMIT {
            break;
        }
        let of_own = cpu_seconds(own, turn)?;
        for ((_, other), ratios) in others.iter().zip(&mut ratios) {
            let of_other = cpu_seconds(other, turn)?;
            if turn > 0 && of_own > 0.0 {
                ratios.push(of_other / of_own);
            }
        }
    }
    let alternatives = others.iter().zip(ratios).filter_map(|((change, _), ratios)| {
        Some(Alternative {
            change: change.clone(),
            loader: percentile(&ratios, 50.0)?,
            trainer: 1.0,
        })
    });
    Ok(alternatives.collect())
}

/// CPU time per image in one pass.
fn cpu_seconds(loader: &Loader, epoch: u64) -> Result<f64, AdviseError> {
    let cpu = ProcessTime::try_now()?;
    let mut images = 0;
    for batch in loader.epoch(epoch) {
        images += batch?.labels.len();
    }
    Ok(cpu.try_elapsed()?.as_secs_f64() / images.max(1) as f64)
}

/// Copies the images into class folders. Unreadable ones are skipped: the run itself reports them.
fn copy(images: &Images, to: &Path) -> Result<(), AdviseError> {
    let (mut bytes, mut mask) = (SampleBytes::new(), Vec::new());
    let classes = images.pixel_classes();
    for sample in 0..images.len() {
        if images.read(sample, &mut bytes).is_err()
            || (classes.is_some() && images.read_mask(sample, &mut mask).is_err())
        {
            continue;
        }
        let folder = match classes {
            None => to.join(format!("{:05}", images.class(sample))),
            Some(_) => to.join("train"),
        };
        fs::create_dir_all(&folder)?;
        let name = images.name(sample);
        let extension = Path::new(&name).extension().unwrap_or_default();
        let file = folder.join(sample.to_string()).with_extension(extension);
        fs::write(file, bytes.file())?;
        if classes.is_some() {
            let masks = to.join("train-masks");
            fs::create_dir_all(&masks)?;
            fs::write(masks.join(format!("{sample}.png")), &mask)?;
        }
    }
    if let Some(classes) = classes {
        fs::write(to.join(PixelClasses::FILE), classes.table(["train"].into_iter()))?;
    }
    Ok(())
}

/// Twice the batch size: its steps compared with the run's, in alternation. The run's record may be anybody's,
/// so the `images` that are there and a fixed limit decide how much memory this may take.
fn of_batch_size(record: &RunRecord, workload: &Workload, images: usize) -> Result<Alternative, String> {
    let config = &record.config;
    if !config.trainer.learns() {
        return Err("an emulated accelerator takes the same time for an image in every batch".to_owned());
    }
    let larger = config.batch_size.checked_mul(2);
    let larger = larger
        .filter(|larger| *larger <= images && *larger as u64 <= workload.images)
        .ok_or("twice the batch would be more than all images")?;
    let batches = TrainConfig {
        batch_size: larger,
        ..config.clone()
    };
    Ok(Alternative {
        change: Change::BatchSize {
            batch_size: larger as u64,
        },
        loader: 1.0,
        trainer: of_steps(record, workload, config, &batches)?,
    })
}

/// Steps in bf16, compared with the run's in alternation; `None` of a run that has another precision than f32 already.
fn of_precision(
    record: &RunRecord,
    workload: &Workload,
    images: usize,
) -> Result<Option<Alternative>, String> {
    let config = &record.config;
    if !config.trainer.learns() {
        return Err("an emulated accelerator computes nothing".to_owned());
    }
    if config.precision != Precision::F32 {
        return Ok(None);
    }
    let own = TrainConfig {
        batch_size: config.batch_size.min(images),
        ..config.clone()
    };
    let smaller = TrainConfig {
        precision: Precision::Bf16,
        ..own.clone()
    };
    Ok(Some(Alternative {
        change: Change::Precision {
            precision: Precision::Bf16.to_string(),
        },
        loader: 1.0,
        trainer: of_steps(record, workload, &own, &smaller)?,
    }))
}

/// What training an image takes with `other`, divided by what it takes with `own`, measured in alternation.
fn of_steps(
    record: &RunRecord,
    workload: &Workload,
    own: &TrainConfig,
    other: &TrainConfig,
) -> Result<f64, String> {
    let (width, height) = own.pipeline.check().map_err(|error| error.to_string())?;
    let images = own.batch_size.max(other.batch_size);
    let bytes = [images, 3, width as usize, height as usize, size_of::<f32>()]
        .into_iter()
        .try_fold(1, usize::checked_mul);
    if bytes.is_none_or(|bytes| bytes > BATCH_LIMIT) {
        return Err(format!(
            "a batch of {images} images of {width}x{height} has more than {} MiB of pixels, which is not tried",
            BATCH_LIMIT >> 20
        ));
    }
    let rate = workload.trainer_ceiling.unwrap_or(0.0);
    let seconds = (STEPS + 1) as f64 * (own.batch_size + other.batch_size) as f64 / rate;
    if seconds > STEPS_LIMIT {
        return Err(format!("measuring them would take {seconds:.0} s"));
    }
    let classes = record.dataset.classes.len();
    let ratio = step_ratio([own, other], classes, STEPS).map_err(|error| error.to_string())?;
    ratio.ok_or_else(|| format!("{STEPS} steps of both in turns do not agree on which takes less"))
}
