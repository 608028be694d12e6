//! `stokehold report NAME --on sagemaker`: the page of a job that runs, from what its profiler has put into the bucket so far.
//!
//! ```text
//! every 30 s: DescribeTrainingJob ──► list the bucket ──► fetch what is new ──► read all, judge, write the page
//!                   └── it has ended: the page of the whole recording, and that was the last one
//! ```

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_diagnose::advice::Prices;
use stokehold_diagnose::report;
use stokehold_diagnose::rules::Parameters;
use stokehold_objects::{Bucket, Cause, Options};
use stokehold_profile::{About, Recording};
use stokehold_sagemaker::{Client, TrainingJob};
use tempfile::TempDir;

use super::{Args, Judged, show};
use crate::commands::job::at_sagemaker::recording;
use crate::failure::Usage;
use crate::{elsewhere, interrupt, terminal};

/// What a job has recorded, as far as it was fetched.
struct Fetched {
    bucket: Bucket,
    /// Where the objects are: those that are here already are not fetched again.
    dir: TempDir,
}

/// Writes the page of a job, and writes it again until the job ends if it is followed.
pub fn run(client: &Client, args: &Args, parameters: &Parameters) -> Result<ExitCode, Box<dyn Error>> {
    let name = args.run.to_str().unwrap_or_default();
    let prices = Prices::built_in();
    let stop = interrupt::flag_for("stopping; the page stays as it is, and the job continues")?;
    let (mut job, place) = described(client, name)?;
    let fetched = Fetched {
        bucket: Bucket::with_options(&place, Options::default().in_region(client.region()))?,
        dir: tempfile::Builder::new()
            .prefix("stokehold-recording-")
            .tempdir()?,
    };
    let mut last: Option<(Judged, PathBuf)> = None;
    let mut has_said = false;
    loop {
        // The state is older than the list, so that the last list has everything.
        let has_ended = job.training_job_status.is_final();
        let found = fetched.update(stop)?;
        if stop.load(Ordering::SeqCst) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        match found {
            FetchOutcome::Nothing if has_ended || !args.follow => {
                return Err(Usage(format!(
                    "{place}: nothing is recorded there{}",
                    if has_ended {
                        ""
                    } else {
                        " yet; --follow waits for it"
                    }
                ))
                .into());
            }
            FetchOutcome::Nothing if !has_said => {
                writeln!(
                    terminal::err(),
                    "job {name} is {}; nothing is recorded yet",
                    job.secondary_status
                )?;
                has_said = true;
            }
            FetchOutcome::Nothing => {}
            FetchOutcome::New(0) if last.is_some() => {}
            FetchOutcome::New(new) => {
                let folder = last
                    .as_ref()
                    .and_then(|(_, page)| page.parent())
                    .map(Path::to_owned);
                let (judged, page) = written(&fetched, &place, folder, args, parameters, &prices)?;
                if args.follow {
                    writeln!(
                        terminal::err(),
                        "job {name} is {}: {new} new objects; {}",
                        job.secondary_status,
                        page.display()
                    )?;
                }
                last = Some((judged, page));
            }
        }
        if (has_ended || !args.follow)
            && let Some((judged, page)) = &last
        {
            return show(args.json, &[("", judged)], page);
        }
        if !wait(args.every, stop) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        job = client.describe(name)?;
    }
}

/// A job, and where its recording is.
fn described(client: &Client, name: &str) -> Result<(TrainingJob, String), Box<dyn Error>> {
    let job = client.describe(name)?;
    match recording(&job) {
        Some(place) => Ok((job, place)),
        None => Err(Usage(format!(
            "job {name} is not recorded; while it runs, `stokehold job profiler {name} on --on sagemaker` changes that"
        ))
        .into()),
    }
}

/// What was found in the bucket.
enum FetchOutcome {
    Nothing,
    /// This many objects were fetched; others may have been here.
    New(u64),
}

impl Fetched {
    fn update(&self, stop: &AtomicBool) -> Result<FetchOutcome, Box<dyn Error>> {
        let mut objects = self.bucket.list()?.objects;
        objects.retain(|object| elsewhere::is_of_recording(&object.key));
        // The facts about a recording alone are none.
        if objects.iter().all(|object| object.key.ends_with(About::FILE)) {
            return Ok(FetchOutcome::Nothing);
        }
        match elsewhere::copy(&self.bucket, &objects, self.dir.path(), elsewhere::FETCHING, stop) {
            Ok(copied) => Ok(FetchOutcome::New(copied.fetched)),
            // The caller looks at it.
            Err(_) if stop.load(Ordering::SeqCst) => Ok(FetchOutcome::New(0)),
            // Written again since it was listed: the next round has it.
            Err(error) if error.cause == Cause::Changed => Ok(FetchOutcome::New(0)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads all that is here, and writes the page.
fn written(
    fetched: &Fetched,
    place: &str,
    folder: Option<PathBuf>,
    args: &Args,
    parameters: &Parameters,
    prices: &Prices,
) -> Result<(Judged, PathBuf), Box<dyn Error>> {
    let mut recording = Recording::open(fetched.dir.path())?;
    recording.path = PathBuf::from(place);
    let judged = Judged::of_recording(recording, parameters, prices);
    // The same folder every time.
    let folder = folder
        .or(args.output.as_ref().map(|output| output.to_path_buf()))
        .unwrap_or_else(|| report::folder_in(Path::new("."), &judged.recording));
    let page = report::write(&judged.contents(prices), &folder)?;
    Ok((judged, page))
}

/// Waits; `false` if it was told to stop.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while began.elapsed() < time {
        if stop.load(Ordering::SeqCst) {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}
