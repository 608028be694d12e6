//! `stokehold dataset`: generates a data set of photograph-like images, or examines one.

mod info;
mod report;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use stokehold_synth::{self as synth, SynthOptions};

use crate::loader::WorkerArgs;
use crate::local::Local;
use crate::progress;
use crate::terminal::note;

/// Make a data set, or look through one.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// Generate photograph-like JPEGs (about 500x375, 100 KB) as DIR/train/<class>/ and DIR/val/<class>/.
    ///
    /// The same options give the same files on every machine.
    Synth {
        /// The folder to make; must be new or empty.
        dir: Local,
        /// Number of images, training and validation together.
        #[arg(long, value_name = "N", default_value_t = SynthOptions::default().images)]
        images: usize,
        /// Number of classes, 1 to 100.
        #[arg(long, value_name = "K", default_value_t = SynthOptions::default().classes)]
        classes: usize,
        /// Seed of everything that is drawn.
        #[arg(long, default_value_t = SynthOptions::default().seed)]
        seed: u64,
        /// Share of each class that goes to val/; 0 for none.
        #[arg(long, value_name = "SHARE", default_value_t = SynthOptions::default().val_fraction)]
        val_split: f64,
    },
    /// Count, measure and decode every image; exit with 1 if any is broken.
    ///
    /// Of images with masks, the masks too: it prints how many pixels each class has.
    Info {
        /// The data set: a folder of class folders, one that holds train/ and val/, or images and masks.
        dir: PathBuf,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        threads: WorkerArgs,
    },
}

/// Runs the subcommand.
///
/// The exit code is 1 if `info` found broken files; its report names them.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    match args {
        Args::Synth {
            dir,
            images,
            classes,
            seed,
            val_split,
        } => {
            let options = SynthOptions {
                images,
                classes,
                seed,
                val_fraction: val_split,
            };
            let bar = progress::bar(0, "generating {bar:40} {pos}/{len} {eta}");
            synth::generate(&dir, &options, &mut |done, total| {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            })?;
            bar.finish_and_clear();
            note!("{}: {images} images in {classes} classes", dir.display());
            Ok(ExitCode::SUCCESS)
        }
        Args::Info { dir, json, threads } => info::run(&dir, json, threads.workers.resolve()),
    }
}
