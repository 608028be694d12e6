//! `stokehold prepare`: converts a data set to shards, and works with shards.

mod show;

use crate::terminal::{self, note};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_jpeg::Metadata;
use stokehold_loader::BadImagePolicy;
use stokehold_pipeline::{Head, Pipeline};
use stokehold_prepare::{
    Bake, Container, Content, Options, PrepareError, Share, Size, extract, join, prepare, prepare_share,
    verify,
};

use stokehold_storage::Dataset;

use crate::failure::Usage;
use crate::loader::WorkerArgs;
use crate::local::Local;
use crate::{damage, interrupt};
pub use show::Show;
use stokehold_base::size::parse_size;

/// Make shards of a data set, or check, list or unpack them.
///
/// Shards load faster than files: one read a sample, and JPEGs in a form that decodes faster. By default nothing is
/// lost: every pixel stays what it is, and the shards are smaller than the files. Train, compare and bench take OUT wherever
/// they take a data set. The same command continues what was cut short.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The data set: a folder of class folders, one that holds train/ and val/, or one of images without classes, whose
    /// shards `bench` takes and training does not. With --verify, --list and --extract: the prepared one
    data: PathBuf,
    /// The folder to make
    #[arg(required_unless_present_any = ["verify", "list", "extract"])]
    out: Option<Local>,
    #[command(flatten)]
    content: ContentOptions,
    /// Write tar files in WebDataset's convention (KEY.jpg, KEY.cls), for other loaders
    #[arg(long)]
    tar: bool,
    /// Size of a shard, in bytes or as 150MB
    #[arg(long, value_name = "SIZE", default_value = "150MB", value_parser = parse_size)]
    shard_size: u64,
    /// What to do about an image that cannot be decoded: error or skip
    #[arg(long, value_name = "POLICY", default_value_t = BadImagePolicy::Error, value_parser = parse_policy)]
    bad_images: BadImagePolicy,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Be the K-th of N workers, on as many machines: prepare a share into OUT.workers, for --join
    #[arg(long, value_name = "K/N", requires = "out")]
    worker: Option<Share>,
    /// Join the shares of all workers to what one worker would have written
    #[arg(long, requires = "out", conflicts_with = "worker")]
    join: bool,
    #[command(flatten)]
    bake: BakeOptions,
    #[command(flatten)]
    other: OtherWork,
}

#[derive(Debug, ClapArgs)]
struct ContentOptions {
    /// Keep every file as it is
    #[arg(long, conflicts_with_all = ["max_side", "resize", "metadata"])]
    raw: bool,
    /// Shrink images until the longer side has at most this many pixels (lossy)
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535), conflicts_with = "resize")]
    max_side: Option<u32>,
    /// Shrink images until the shorter side has at most this many pixels (lossy)
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    resize: Option<u32>,
    /// JPEG quality of images that are changed, 1 to 100
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,
    /// What happens to EXIF, colour profiles and comments; the orientation stays in any case
    #[arg(long, value_enum, default_value_t = MetadataChoice::Drop)]
    metadata: MetadataChoice,
}

/// The head of a pipeline, performed once.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Operations performed once")]
struct BakeOptions {
    /// Perform the head of this pipeline on the training images, the operations that draw nothing and make bytes, so that runs
    /// leave it out: a preset, or a .toml or .json file
    #[arg(long, value_name = "PIPELINE", conflicts_with_all = ["raw", "max_side", "resize"])]
    pipeline: Option<Local>,
    /// The same for the validation images, with this pipeline
    #[arg(long, value_name = "PIPELINE", conflicts_with_all = ["raw", "max_side", "resize"])]
    eval_pipeline: Option<Local>,
    /// Turn images upright by their EXIF orientation before; runs need --exif, too
    #[arg(long)]
    exif: bool,
    /// Allow shards that are larger than the files
    #[arg(long)]
    allow_larger: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MetadataChoice {
    Keep,
    Drop,
}

/// Other operations, on existing shards.
#[derive(Debug, ClapArgs)]
#[group(multiple = true)]
#[command(next_help_heading = "Prepared data sets")]
struct OtherWork {
    /// Check every checksum; exit with 1 if anything is wrong
    #[arg(long, conflicts_with_all = ["out", "list", "extract"])]
    verify: bool,
    /// With --verify: compare every sample with its original in DATA, pixel by pixel
    #[arg(long, value_name = "DATA", requires = "verify")]
    against: Option<PathBuf>,
    /// Print a line for each sample: part, number, class, width, height, bytes, shard, name
    #[arg(long, conflicts_with_all = ["out", "extract"])]
    list: bool,
    /// Write every sample to a file below DIR
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    extract: Option<Local>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("stopping; what is finished is kept; press Ctrl-C again to end at once")?;
    let done = match (&args.out, &args.other.extract) {
        (Some(out), _) => {
            let options = args.options()?;
            // What is left out now is missing in every use. A bucket would be listed twice for it.
            if stokehold_base::uri::remote(&args.data).is_none()
                && let Ok(data) = Dataset::open(&args.data, None, 0)
            {
                damage::warn_of(&data);
            }
            let mut show = Show::new("preparing");
            let at = &mut |progress| show.at(progress);
            let report = match args.worker {
                Some(share) => prepare_share(&args.data, out, share, &options, stop, at),
                None if args.join => join(&args.data, out, &options, stop, at),
                None => prepare(&args.data, out, &options, stop, at),
            };
            report.map(|report| {
                show.done();
                if let Some(share) = args.worker {
                    note!(
                        "worker {share} is done; when all are, --join makes {}",
                        out.display()
                    );
                }
                show::report(out, &report)
            })
        }
        (None, Some(dir)) => {
            let mut show = Show::new("extracting");
            let mut all = 0;
            let extracted = extract(&args.data, dir, stop, &mut |progress| {
                all = progress.of;
                show.at(progress);
            });
            extracted.map(|lost| {
                show.done();
                show::extracted(dir, all, &lost)
            })
        }
        (None, None) if args.other.list => return list(&args.data),
        (None, None) => {
            let mut show = Show::new("checking");
            let workers = args.threads.workers.resolve();
            let against = args.other.against.as_deref();
            let findings = verify(&args.data, against, workers, stop, &mut |progress| {
                show.at(progress)
            });
            findings.map(|findings| {
                show.done();
                show::findings(&args.data, against, &findings)
            })
        }
    };
    match done {
        Ok(shown) => Ok(shown?),
        Err(PrepareError::Interrupted) => {
            note!("{}", PrepareError::Interrupted);
            Ok(ExitCode::from(interrupt::EXIT_CODE))
        }
        Err(error) => Err(error.into()),
    }
}

fn list(out: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut to = terminal::Plain::new(io::BufWriter::new(io::stdout().lock()));
    show::list(out, &mut to)?;
    to.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn options(&self) -> Result<Options, Box<dyn Error>> {
        let content = &self.content;
        let metadata = match content.metadata {
            MetadataChoice::Keep => Metadata::Keep,
            MetadataChoice::Drop => Metadata::Drop,
        };
        let packs = !(content.raw || self.tar);
        if packs && !stokehold_jpeg::packed_is_fast() {
            note!(
                "warning: JPEGs are packed, which is only known to pay where a processor with AVX2 reads them; this one may read \
                 ordinary JPEGs faster (--raw)"
            );
        }
        let size = content
            .max_side
            .map(Size::LongerSide)
            .or(content.resize.map(Size::ShorterSide));
        if self.bad_images == BadImagePolicy::Substitute {
            return Err(Usage(
                "--bad-images substitute: shards hold every image once; take error or skip".into(),
            )
            .into());
        }
        Ok(Options {
            content: match size {
                _ if content.raw => Content::Raw,
                Some(size) => Content::Resized {
                    size,
                    quality: content.quality,
                    metadata,
                },
                None => Content::Lossless(metadata),
            },
            container: if self.tar {
                Container::Tar
            } else {
                Container::Shards
            },
            shard_size: self.shard_size,
            workers: self.threads.workers.resolve(),
            skip_bad_images: self.bad_images == BadImagePolicy::Skip,
            bake: self.bake.of(content.quality)?,
            allow_larger: self.bake.allow_larger,
        })
    }
}

impl BakeOptions {
    /// What is performed on each part. Says what moves and what stays.
    fn of(&self, quality: u8) -> Result<BTreeMap<String, Bake>, Box<dyn Error>> {
        let mut parts = BTreeMap::new();
        for (part, option, name) in [
            ("train", "--pipeline", &self.pipeline),
            ("val", "--eval-pipeline", &self.eval_pipeline),
        ] {
            let Some(name) = name else { continue };
            let name = name.to_string_lossy();
            let pipeline = Pipeline::named(&name)?;
            pipeline.check_before_images()?;
            let Head { moves, stays } = pipeline.head();
            for op in moves {
                note!("{part}: {} is performed once, now", op.name());
            }
            for stays in &stays {
                note!("{part}: {} stays: {}", stays.op.name(), stays.reason);
            }
            if moves.is_empty() {
                return Err(Usage(format!(
                    "{option} {name}: it begins with no operation that can be performed once"
                ))
                .into());
            }
            parts.insert(
                part.to_owned(),
                Bake {
                    ops: moves.to_vec(),
                    exif: self.exif,
                    quality,
                },
            );
        }
        if parts.is_empty() && (self.exif || self.allow_larger) {
            return Err(
                Usage("--exif and --allow-larger go with --pipeline or --eval-pipeline".into()).into(),
            );
        }
        Ok(parts)
    }
}

fn parse_policy(text: &str) -> Result<BadImagePolicy, String> {
    text.parse()
        .map_err(|error: stokehold_loader::LoaderError| error.to_string())
}
