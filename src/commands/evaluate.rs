//! `stokehold evaluate`: how often a model is right on labelled images, or on pairs of images and masks.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args as ClapArgs;
use serde::Serialize;
use stokehold_base::words::plural;
use stokehold_evaluate::{page, pixels, text};
use stokehold_storage::{Dataset, Images, Source, StorageError};
use stokehold_train::infer::{self, Overlap, TrainedOn};

use crate::failure::Usage;
use crate::local::Local;
use crate::model::{self, MachineArgs, ModelArgs};
use crate::terminal::{self, note};
use crate::{damage, files};

/// Say how often a model is right on labelled images, class by class; a segmenter on pairs of images and masks.
///
/// The classes of the data must be those of the model. An image that cannot be read or decoded is left out and named,
/// and the exit code is 1.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The data set: DATA/val/<class>/.., or class folders, here, prepared or in a bucket; --split names other folders.
    data: PathBuf,
    /// Evaluate the images that `stokehold train` split off with the same --val-split and --seed.
    #[arg(long, value_name = "SHARE")]
    val_split: Option<f64>,
    /// Seed of the split [default: the seed of the run that made the model, if it was trained on DATA; else 0].
    #[arg(long, requires = "val_split")]
    seed: Option<u64>,
    /// Evaluate the images of this split: train, val, or another folder next to them, such as test [default: val, or else all].
    #[arg(long, value_name = "SPLIT", conflicts_with = "val_split")]
    split: Option<String>,
    /// The k of top-k accuracy of a classifier; at most as many as it knows classes [default: 5].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topk: Option<u32>,
    /// Write evaluation.json and evaluation.html, a page with the confusion matrix and the worst mistakes, or the images
    /// that were segmented worst, to this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<Local>,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs the subcommand; the exit code is 1 if images could not be read or decoded.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let trained_on = TrainedOn::of(args.model.path());
    let images = Arc::new(images(args, trained_on.as_ref())?);
    let classifier = args.model.open(&args.machine)?;
    if let Some(folder) = &args.out {
        // Before the work is done whose result goes there.
        fs::create_dir_all(folder).map_err(|error| files::named(folder, &error))?;
    }
    let bar = model::bar(images.len(), "evaluating");
    let mut each = |done, bad: Option<&stokehold_loader::BadImage>| {
        bar.set_position(done);
        if let Some(bad) = bad {
            bar.suspend(|| note!("bad image: {}: {}", bad.name, bad.reason));
        }
    };
    let options = args.machine.options();
    let bad = if classifier.facts().arch.segments() {
        if args.topk.is_some() {
            return Err(Usage("--topk is for classifiers; leave it out".to_owned()).into());
        }
        let evaluation = infer::evaluate_pixels(&classifier, &images, &options, &mut each)?;
        bar.finish_and_clear();
        write!(terminal::out(), "{}", pixels::text(&evaluation))?;
        if let Some(folder) = &args.out {
            store(folder, &evaluation, || {
                pixels::page(&evaluation, &images, classifier.facts())
            })?;
        }
        evaluation.bad.len()
    } else {
        let k = args.topk.unwrap_or(5) as usize;
        let evaluation = infer::evaluate(&classifier, &images, &options, k, &mut each)?;
        bar.finish_and_clear();
        write!(terminal::out(), "{}", text(&evaluation))?;
        if let Some(folder) = &args.out {
            store(folder, &evaluation, || {
                page(&evaluation, &images, classifier.facts().exif)
            })?;
        }
        evaluation.bad.len()
    };
    if let Some(run) = &trained_on {
        tell_overlap(run, &images, args);
    }
    match bad {
        0 => Ok(ExitCode::SUCCESS),
        bad => {
            note!(
                "{bad} of {} could not be read or decoded",
                plural(images.len(), "image")
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Writes an evaluation and its page.
fn store(
    folder: &Path,
    evaluation: &impl Serialize,
    page: impl FnOnce() -> String,
) -> Result<(), Box<dyn Error>> {
    let json = folder.join("evaluation.json");
    files::write(&json, serde_json::to_string_pretty(evaluation)? + "\n")?;
    let html = folder.join("evaluation.html");
    files::write(&html, page())?;
    writeln!(terminal::out(), "\n{} and {}", html.display(), json.display())?;
    Ok(())
}

/// Says if the images are those that the model was trained on.
fn tell_overlap(run: &TrainedOn, images: &Images, args: &Args) {
    let Some(Overlap {
        images: known @ 1..,
        copies,
    }) = run.overlap(images)
    else {
        return;
    };
    let way = match run.held_out {
        Some((share, seed)) if args.split.is_none() => {
            format!("; those that it held out are chosen by --val-split {share} --seed {seed}")
        }
        _ => String::new(),
    };
    note!(
        "warning: {}: the model of {} was trained on {known} of these {}{}, whose scores say little about new images{way}",
        args.data.display(),
        run.run.display(),
        plural(images.len(), "image"),
        if copies {
            " (copies of them, with the same names and contents)"
        } else {
            ""
        },
    );
}

/// The images to evaluate: those of the split that was asked for, or what training would validate with, or else all of the class
/// folders.
fn images(args: &Args, trained_on: Option<&TrainedOn>) -> Result<Images, Box<dyn Error>> {
    let of_run = || trained_on.filter(|run| run.is_of(&args.data))?.held_out;
    let seed = match (args.seed, args.val_split.and_then(|_| of_run())) {
        (Some(seed), _) => seed,
        (None, Some((_, seed))) => seed,
        (None, None) => 0,
    };
    if let Some(split) = args
        .split
        .as_deref()
        .filter(|split| !["train", "val"].contains(split))
    {
        return Ok(Dataset::open_split(&args.data, split)?);
    }
    let is_val = |split: &str| split == "val";
    let dataset = match Dataset::open(&args.data, args.val_split, seed) {
        Err(StorageError::ValWithoutTrain { .. }) if args.split.as_deref().is_none_or(is_val) => {
            return Ok(Dataset::open_split(&args.data, "val")?);
        }
        dataset => dataset?,
    };
    damage::warn_of(&dataset);
    let Dataset { train, val, .. } = dataset;
    if args.split.as_deref() == Some("train") {
        return Ok(train);
    }
    if args.split.as_deref().is_some_and(is_val) && val.is_none() {
        let data = args.data.display();
        return Err(Usage(format!(
            "{data}: it has no split val; give --val-split as in the training, or leave --split out to evaluate all images"
        ))
        .into());
    }
    match val {
        Some(val) => Ok(val),
        None if !matches!(train, Images::Shards(_))
            && train.root().ends_with("train")
            && !args.data.ends_with("train") =>
        {
            let data = args.data.display();
            Err(Usage(format!(
                "{data}: there is train/ and no val/; give --val-split as in the training, or {data}/train to evaluate the \
                 training images"
            ))
            .into())
        }
        None => Ok(train),
    }
}
