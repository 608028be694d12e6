//! `stokehold transform`: offline inference over many images.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};
use indicatif::ProgressBar;
use stokehold_base::uri;
use stokehold_base::words::plural;
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_transform::{
    Done, End, Inputs, Model, Native, Options, Script, ScriptOptions, Share, Split, transform,
};

use crate::failure::Usage;
use crate::local::Local;
use crate::model::{self, MachineArgs, ModelArgs};
use crate::terminal::{self, note};
use crate::{interrupt, progress, python};

/// Predict many images, by the contract of SageMaker's batch transform.
///
/// INPUT is a folder or prefix of images, an image, prepared shards, a manifest ([{"prefix": P}, "a.jpg", ..]), or JSON
/// lines that name images. Each input has one output, NAME.out, of JSON lines. The same command
/// continues a transform that was stopped or killed, and several of the same command share the work. An image that
/// cannot be read is an output {"error": ..}, and the exit code is 1.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// What to transform: a path, or s3://bucket/prefix.
    input: PathBuf,
    /// Where the outputs are written: a folder, or s3://bucket/prefix.
    output: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// How many classes to say of each image, the most probable ones first; at most as many as the model knows.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topk: u32,
    #[command(flatten)]
    script: ScriptArgs,
    #[command(flatten)]
    workers: SharingArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Data")]
struct DataArgs {
    /// What the files of a folder or prefix are: none (images), or line (files .jsonl, whose lines name images, relative to the
    /// folder of the file).
    #[arg(long, value_enum, default_value_t = SplitName::None)]
    split: SplitName,
    /// Write one output, INPUT.out, instead of one for each input.
    #[arg(long)]
    assemble: bool,
    /// What to write next to the prediction: none, or input (the record with the prediction as SageMakerOutput).
    #[arg(long, value_enum, default_value_t = JoinName::None)]
    join: JoinName,
    /// The largest image, in MiB; a larger one is an error record [default: no limit].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    max_payload: Option<u64>,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Script")]
struct ScriptArgs {
    /// A Python script with SageMaker's model_fn(model_dir) and predict_fn(data, model) as the model; MODEL is the
    /// model_dir. data is a torch.Tensor [N, 3, H, W].
    #[arg(long, value_name = "FILE")]
    script: Option<Local>,
    /// The Python that runs the script [default: the Python of the wheel that this program came in, else python3].
    #[arg(long, value_name = "PROGRAM", requires = "script")]
    python: Option<PathBuf>,
    /// How many processes of the script compute at the same time, each with its own model.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64), requires = "script")]
    max_concurrent: u32,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Workers")]
struct SharingArgs {
    /// Be the K-th of N workers, which compute their own shares [default: any part that no other worker has].
    #[arg(long, value_name = "K/N")]
    worker: Option<Share>,
    /// The folder that says what is done; all workers have to see it. Required for an output in a bucket [default:
    /// OUTPUT/.transform].
    #[arg(long, value_name = "DIR")]
    work: Option<Local>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitName {
    None,
    Line,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum JoinName {
    None,
    Input,
}

/// Runs the subcommand; the exit code is 1 if there are outputs that are errors, and 130 after Ctrl-C.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for(
        "stopping after this batch; what is done stays; press Ctrl-C again to end at once",
    )?;
    let data = &args.data;
    let split = match data.split {
        SplitName::None => Split::None,
        SplitName::Line => Split::Line,
    };
    let inputs = Inputs::open(&args.input, split)?;
    let options = Options {
        output: args.output.clone(),
        work: work_folder(args)?,
        assemble: data.assemble,
        join: data.join == JoinName::Input,
        max_payload: data.max_payload.map(|mib| mib << 20),
        batch_size: args.machine.options().batch_size,
        share: args.workers.worker,
    };
    let Some(mut model) = open(args, stop)? else {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    };
    let mut shown = Shown::new(inputs.len() as u64);
    let done = transform(&inputs, &mut *model, &options, stop, &mut |records| {
        shown.add(records)
    })?;
    shown.bar.finish_and_clear();
    Ok(report(&done, args))
}

/// The model; `None` if Ctrl-C came first.
fn open(args: &Args, stop: &std::sync::atomic::AtomicBool) -> Result<Option<Box<dyn Model>>, Box<dyn Error>> {
    let Some(script) = &args.script.script else {
        let classifier = args.model.open(&args.machine)?;
        let arch = classifier.facts().arch;
        if arch.segments() {
            return Err(Usage(format!(
                "{}: {arch} is a segmenter, whose predictions are masks; stokehold predict --out DIR writes them",
                classifier.path().display()
            ))
            .into());
        }
        let native = Native::new(classifier, args.machine.options(), args.topk as usize);
        return Ok(Some(Box::new(native)));
    };
    let feed = args.machine.options();
    if feed.executor == Executor::Gpu {
        return Err(
            Usage("a script gets its images from the CPU: --executor fused or per-op".to_owned()).into(),
        );
    }
    let (model_dir, pipeline, exif) = args.model.of_script()?;
    let options = ScriptOptions {
        script: script.to_path_buf(),
        model_dir,
        python: args.script.python.clone().unwrap_or_else(python::default),
        processes: args.script.max_concurrent as usize,
        pipeline: pipeline.map_or_else(|| Pipeline::named("imagenet-eval"), Ok)?,
        exif,
        feed,
    };
    let script = Script::start(options, terminal::note_line, stop)?;
    Ok(script.map(|script| Box::new(script) as _))
}

fn work_folder(args: &Args) -> Result<PathBuf, Usage> {
    match &args.workers.work {
        Some(work) => Ok(work.to_path_buf()),
        None if args.output.to_str().is_some_and(uri::is_remote) => Err(Usage(
            "an output in a bucket needs a folder here, which says what is done: --work DIR".to_owned(),
        )),
        None => Ok(args.output.join(".transform")),
    }
}

/// Progress: a bar on a terminal, a line now and then in a log.
struct Shown {
    bar: ProgressBar,
    all: u64,
    done: u64,
    /// Records that were done before.
    before: Option<u64>,
    begun: Instant,
    said: Instant,
}

/// How often a log gets a line.
const EVERY: Duration = Duration::from_secs(10);

impl Shown {
    fn new(all: u64) -> Self {
        let now = Instant::now();
        Self {
            bar: model::bar(all as usize, "transforming"),
            all,
            done: 0,
            before: None,
            begun: now,
            said: now,
        }
    }

    fn add(&mut self, records: u64) {
        self.done += records;
        let Some(before) = self.before else {
            // The first call says what was done before.
            self.before = Some(records);
            if records > 0 {
                note!(
                    "continuing: {records} of {} are done",
                    plural(self.all as usize, "record")
                );
            }
            self.bar = progress::bar(
                self.all - records.min(self.all),
                "transforming {bar:40} {pos}/{len} {per_sec} {eta}",
            );
            self.begun = Instant::now();
            self.said = self.begun;
            return;
        };
        self.bar.inc(records);
        if self.bar.is_hidden() && self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            let rate = (self.done - before) as f64 / self.begun.elapsed().as_secs_f64();
            let left = self.all.saturating_sub(self.done) as f64 / rate;
            note!(
                "{} of {} records, {rate:.1} a second, {left:.0} s left",
                self.done,
                self.all
            );
        }
    }
}

fn report(done: &Done, args: &Args) -> ExitCode {
    let output = args.output.display();
    match done.end {
        End::Stopped => {
            note!("stopped; run the same command to continue");
            ExitCode::from(interrupt::EXIT_CODE)
        }
        End::Others(parts) => {
            note!(
                "{} computed, {} with an error; {} of other workers to come, and the one that finishes the last completes {output}",
                plural(done.computed as usize, "record"),
                done.errors,
                plural(parts, "part")
            );
            failed_if(done.errors > 0)
        }
        End::Complete { records, errors } => {
            note!(
                "{} in {output}, {errors} with an error",
                plural(records as usize, "record")
            );
            failed_if(errors > 0)
        }
    }
}

fn failed_if(failed: bool) -> ExitCode {
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
