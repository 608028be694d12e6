//! Runs a claimed job to its end.
//!
//! ```text
//!  Starting ──► Downloading ──► Training ──► Uploading ──► Completed | Failed | Stopped
//!  folders,     checkpoints,    a thread an  checkpoints,
//!  code, JSON   channels of     instance     model and
//!     ▲         mode File, Dir     │         output packed,
//!     │                            │         channels written
//!     └─────── Interrupted ◄───────┘
//! ```
//!
//! One thread watches for reasons to cut the work short (the caller's flag, the job's `stop` file, a time
//! limit, an interruption); one mirrors the checkpoints, and one each channel that may be written to. Per instance, one thread starts the process as
//! leader of its own group, waits for it, and then ends the group, as a container ends with its first
//! process; two threads read its lines; one thread per pipe feeds it. All of them end with the job.

pub(crate) mod cut;
pub(crate) mod home;
mod instance;
pub(crate) mod lines;
pub(crate) mod nodes;
pub(crate) mod notice;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod profiler;
pub(crate) mod python;
mod results;
pub(crate) mod room;
mod rules;
mod standin;
mod start;
pub(crate) mod venv;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stokehold_base::clock::unix_now as now;
use stokehold_profile::timeline::Metrics;
use stokehold_script::Watched;

use crate::checkpoints::Keeper;
use crate::contract::{self, Instance};
use crate::data::mount::Mounts;
use crate::data::{self};
use crate::mirror::watch::End;
use crate::runner::cut::{Cut, Cuts};
use crate::runner::lines::{Line, Lines};
use crate::runner::nodes::Nodes;
use crate::runner::place::Place;
use crate::runner::profiler::Profiler;
use crate::store::{Claim, Folder, Record, Secondary, Status};
use crate::writes::{self, Writer};
use crate::{Bill, Job, JobError};

/// An event while a job runs.
#[derive(Debug, Clone, Copy)]
pub enum News<'a> {
    /// The job entered a state; sent before any line that is printed in it.
    State(&'a Record),
    /// A line was printed.
    Line(&'a Line<'a>),
}

/// Runs a claimed job to its end in this process. `show` gets every state and every line as they come; `stop`
/// stops the job.
///
/// The record says how the job ended. A script that fails, or data that cannot be fetched, is a failed job
/// and not an error.
///
/// # Errors
/// The job's state or its logs cannot be written.
pub fn run(claim: Claim, stop: &AtomicBool, show: &(dyn Fn(News<'_>) + Sync)) -> Result<Record, JobError> {
    let Claim {
        folder,
        job,
        record,
        place,
        nodes,
        lock: _lock,
    } = claim;
    let lines = Lines::new(&folder, &job, show)?;
    show(News::State(&record));
    let runner = Runner {
        job: &job,
        folder: &folder,
        lines: &lines,
        show,
        record: Mutex::new(record),
        cuts: Cuts::new(&job, &folder, &lines),
        place,
        nodes,
        environment: OnceLock::new(),
        timeline: OnceLock::new(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| runner.cuts.watch(stop));
        if job.spot.as_ref().is_some_and(|spot| spot.simulate.is_none()) {
            scope.spawn(|| runner.cuts.await_notice());
        }
        // On its own thread, so that the caller's thread keeps its cores.
        let work = scope.spawn(|| runner.place.take().and_then(|()| runner.work()));
        let ended = work.join();
        runner.cuts.finish();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })
    .inspect_err(|error| folder.give_up(error))?;
    let record = runner
        .record
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(record)
}

struct Runner<'a> {
    job: &'a Job,
    folder: &'a Folder,
    lines: &'a Lines<'a>,
    show: &'a (dyn Fn(News<'_>) + Sync),
    record: Mutex<Record>,
    cuts: Cuts<'a>,
    place: Place,
    /// Where the instances run, if not on this machine.
    nodes: Option<Nodes>,
    /// The virtual environment, where there are requirements.
    environment: OnceLock<PathBuf>,
    /// Of the recording, once it was started.
    timeline: OnceLock<Listening>,
}

/// Where the recording takes a script's spans and numbers.
struct Listening {
    address: OsString,
    metrics: Arc<Metrics>,
    watched: Arc<Watched>,
}

/// How one start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The job is in a final state.
    Ended,
    /// An interruption; the job continues here.
    Interrupted,
}

/// State that is kept from one start to the next.
struct Held<'a> {
    say: &'a (dyn Fn(&str) + Sync),
    /// The job's place for checkpoints.
    keeper: Option<Keeper<'a>>,
    /// Why something that the script wrote to a channel was refused, in this start or an earlier one.
    refused: Option<String>,
    profiler: Option<Profiler>,
}

/// How an instance's process ended.
struct Ended {
    code: i32,
    /// The runner ended it: a stop, a time limit, or another instance's failure.
    told: bool,
    /// A signal ended it.
    killed: bool,
}

impl Runner<'_> {
    fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), JobError> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let states = record.transitions.len();
        change(&mut record);
        record.spot = self
            .job
            .spot
            .as_ref()
            .map(|spot| Bill::of(spot, self.job.instances, &record));
        self.folder.write(&record)?;
        if record.transitions.len() > states {
            (self.show)(News::State(&record));
        }
        Ok(())
    }

    fn enter(&self, status: Status, secondary: Secondary) -> Result<(), JobError> {
        self.change(|record| record.enter(status, secondary))
    }

    /// Leaves a final state on every path.
    fn work(&self) -> Result<(), JobError> {
        let say = |text: &str| self.lines.say(text);
        let mut held = Held {
            say: &say,
            keeper: None,
            refused: None,
            profiler: None,
        };
        let mut again = false;
        while self.attempt(&mut held, again)? == Attempt::Interrupted {
            again = true;
            self.enter(Status::InProgress, Secondary::Interrupted)?;
            let pause = Duration::from_secs(self.job.spot.as_ref().map_or(0, |spot| spot.pause_seconds));
            let interrupted = Instant::now();
            let wanted = || self.cuts.why().is_none_or(|cut| cut == Cut::Simulated);
            while interrupted.elapsed() < pause && wanted() {
                std::thread::sleep(Duration::from_millis(20));
            }
            if let Some(cut) = self.cuts.again() {
                return self.end_cut(&mut held, cut).map(drop);
            }
            self.enter(Status::InProgress, Secondary::Starting)?;
        }
        Ok(())
    }

    /// From Starting to a final state, or to an interruption after which the job continues.
    fn attempt(&self, held: &mut Held<'_>, again: bool) -> Result<Attempt, JobError> {
        let instances = match (self.start(again), self.cuts.why()) {
            (Ok(instances), _) => instances,
            (Err(_), Some(cut)) => return self.end_cut(held, cut),
            (Err(error), None) => return self.fail(held, &format!("ClientError: {error}")),
        };
        if !again {
            held.profiler = self.profiler(&instances)?;
        }
        self.enter(Status::InProgress, Secondary::Downloading)?;
        let folders: Vec<PathBuf> = instances.iter().map(Instance::data).collect();
        let brought = self
            .bring_checkpoints(&instances, held)
            .and_then(|()| data::bring(self.job, self.jobs(), &folders, held.say, self.cuts.halt()));
        // First what an earlier start left, then the list.
        let writers = brought.and_then(|()| self.writers(&instances[0], held));
        let mounted = writers.and_then(|mut writers| {
            let mut mounts = Mounts::new(self.job, &folders, held.say, self.cuts.halt())?;
            for writer in &mut writers {
                let listed = mounts.listed.remove(writer.channel());
                let listed = listed.ok_or_else(|| {
                    JobError::Input(format!("channel {}: it was not listed", writer.channel()))
                })?;
                writer.begin(listed)?;
            }
            Ok((mounts, writers))
        });
        let piped =
            mounted.and_then(|(mounts, writers)| Ok((mounts, writers, self.pipes(&instances, held.say)?)));
        if let Some(cut) = self.cuts.why() {
            return self.end_cut(held, cut);
        }
        let (mounts, mut writers, piped) = match piped {
            Ok(piped) => piped,
            Err(error) => return self.fail(held, &format!("ClientError: {error}")),
        };
        self.change(|record| {
            record.training_started = Some(now());
            record.training_ended = None;
            record.processes.clear();
            record.enter(Status::InProgress, Secondary::Training);
        })?;
        self.cuts.started();
        let (result, late) = self.train(
            &instances,
            &piped,
            &mounts.complaints,
            held.keeper.as_mut(),
            &mut writers,
        );
        self.cuts.ended();
        drop(mounts);
        self.change(|record| {
            record.training_ended = Some(now());
            record.metrics = self.lines.last();
        })?;
        let ended = match &result {
            Ok(ended) => ended.as_slice(),
            Err(_) => &[],
        };
        // The first instance that failed by itself decides; those that the runner ended may exit with any
        // code.
        let decisive = ended
            .iter()
            .flatten()
            .position(|ended| ended.code != 0 && !ended.told);
        let told = ended.iter().flatten().any(|ended| ended.told);
        // A reason that came after everything had ended cuts nothing short.
        let cut = self.cuts.why().filter(|_| told);
        let failed = decisive.filter(|_| !late && cut.is_none());
        for (instance, ended) in instances.iter().zip(ended) {
            self.leave_mark(instance, ended.as_ref())?;
        }
        let code = failed
            .or(decisive)
            .and_then(|i| ended.iter().flatten().nth(i))
            .map(|ended| ended.code);
        let code = code.or(ended.iter().flatten().map(|ended| ended.code).max());
        self.change(|record| record.exit_code = code)?;
        let interrupted = cut.is_some_and(Cut::is_interruption);
        if !interrupted {
            let status = if told {
                Status::Stopping
            } else {
                Status::InProgress
            };
            self.enter(status, Secondary::Uploading)?;
        }
        let unkept = self.settle(held.keeper.as_mut(), ended)?;
        let unwritten = self.close(&mut writers, ended, held)?;
        if cut == Some(Cut::Simulated) {
            return Ok(Attempt::Interrupted);
        }
        self.report(held.profiler.take(), code)?;
        if let Some(cut) = cut.filter(|_| interrupted) {
            return self.end_cut(held, cut);
        }
        let uploaded = result.and_then(|_| self.upload(&instances));
        if let Err(error) = uploaded {
            let kept = self.folder.file("output");
            let reason = format!("ClientError: {error}; the results are in {}", kept.display());
            return self.fail(held, &reason);
        }
        if let Some(missing) = self.lines.failed() {
            let reason = format!("InternalServerError: the job's lines could not be stored: {missing}");
            return self.fail(held, &reason);
        }
        match (failed, unkept.or(unwritten), cut) {
            (Some(i), _, _) => self.fail(held, &self.reason(&instances[i], code.unwrap_or(1))),
            (None, Some(unkept), _) => self.fail(held, &format!("ClientError: {unkept}")),
            (None, None, Some(cut)) => self.end_cut(held, cut),
            (None, None, None) => match told && late {
                true => self.end(held, Status::Stopped, Secondary::MaxRuntimeExceeded),
                false => self.end(held, Status::Completed, Secondary::Completed),
            },
        }
    }

    /// Enters a final state.
    fn end(&self, held: &mut Held<'_>, status: Status, secondary: Secondary) -> Result<Attempt, JobError> {
        // Release the place before another process can see that the job has ended.
        held.keeper = None;
        self.enter(status, secondary)?;
        Ok(Attempt::Ended)
    }

    fn fail(&self, held: &mut Held<'_>, reason: &str) -> Result<Attempt, JobError> {
        held.keeper = None;
        self.change(|record| record.fail(reason))?;
        Ok(Attempt::Ended)
    }

    fn end_cut(&self, held: &mut Held<'_>, cut: Cut) -> Result<Attempt, JobError> {
        match cut {
            Cut::Simulated => Ok(Attempt::Interrupted),
            Cut::Notice => self.end(held, Status::Stopped, Secondary::Interrupted),
            Cut::MaxWait => self.end(held, Status::Stopped, Secondary::MaxWaitTimeExceeded),
            Cut::Rule | Cut::Stop => self.end(held, Status::Stopped, Secondary::Stopped),
        }
    }

    /// Takes the job's place for checkpoints, if it has one, and downloads what is there.
    fn bring_checkpoints(&self, instances: &[Instance], held: &mut Held<'_>) -> Result<(), JobError> {
        let Some(uri) = &self.job.checkpoints else {
            return Ok(());
        };
        let keeper = match &mut held.keeper {
            Some(keeper) => keeper,
            keeper => {
                let folders = instances.iter().map(Instance::checkpoints).collect();
                keeper.insert(Keeper::take(
                    self.job,
                    uri,
                    &self.folder.0,
                    folders,
                    held.say,
                    self.cuts.halt(),
                )?)
            }
        };
        keeper.restore(self.job, self.cuts.halt())?;
        self.change(|record| record.checkpoints = Some(keeper.state()))
    }

    /// Sends the remaining checkpoints. Returns why some could not be sent.
    fn settle(
        &self,
        keeper: Option<&mut Keeper<'_>>,
        ended: &[Option<Ended>],
    ) -> Result<Option<String>, JobError> {
        let Some(keeper) = keeper else { return Ok(None) };
        let ends: Vec<End> = (0..self.job.instances).map(|rank| end(ended, rank)).collect();
        keeper.settle(&ends, Duration::from_secs(self.job.stop_seconds));
        let kept = keeper.state();
        let unkept = kept.trouble.as_ref().map(|trouble| {
            let (place, waiting) = (&kept.uri, kept.waiting);
            format!("checkpoints: not all could be kept at {place} ({waiting} files wait in the job's folder): {trouble}")
        });
        if let Some(unkept) = &unkept {
            self.lines.say(unkept);
        }
        self.change(|record| record.checkpoints = Some(kept))?;
        Ok(unkept)
    }

    /// Takes up the channels that the script may write to, and sends what an earlier start left of them.
    fn writers<'h>(&self, instance: &Instance, held: &mut Held<'h>) -> Result<Vec<Writer<'h>>, JobError> {
        let mut writers = Vec::new();
        let patience = Duration::from_secs(self.job.stop_seconds);
        for (name, channel) in writes::channels(self.job) {
            let folders = (self.folder.0.as_path(), instance.data());
            let mut writer = Writer::open(self.job, name, channel, (folders.0, &folders.1), held.say)?;
            let refused = writer.send_leftovers(patience);
            self.change(|record| drop(record.writes.insert(name.clone(), writer.state())))?;
            held.refused = held.refused.take().or(refused?);
            writers.push(writer);
        }
        Ok(writers)
    }

    /// Sends what is left of the channels that the script may write to. Returns why something was not sent, in this
    /// start or an earlier one.
    fn close(
        &self,
        writers: &mut [Writer<'_>],
        ended: &[Option<Ended>],
        held: &mut Held<'_>,
    ) -> Result<Option<String>, JobError> {
        let patience = Duration::from_secs(self.job.stop_seconds);
        for writer in writers {
            let reason = writer.close(end(ended, 0), patience);
            if let Some(reason) = &reason {
                self.lines.say(reason);
            }
            held.refused = held.refused.take().or(reason);
            self.change(|record| drop(record.writes.insert(writer.channel().to_owned(), writer.state())))?;
        }
        Ok(held.refused.clone())
    }

    /// Starts recording the machine. If that is not possible, the job continues without it.
    fn profiler(&self, instances: &[Instance]) -> Result<Option<Profiler>, JobError> {
        if !self.job.profile {
            return Ok(None);
        }
        let command = contract::command(self.job, &instances[0]).unwrap_or_default();
        match Profiler::start(&self.folder.0, command, self.job) {
            Ok(profiler) => {
                self.timeline.get_or_init(|| Listening {
                    address: profiler.address().to_owned(),
                    metrics: profiler.metrics(),
                    watched: profiler.watched(),
                });
                self.change(|record| record.profile = Some(self.folder.0.clone()))?;
                Ok(Some(profiler))
            }
            Err(error) => {
                self.lines.say(&format!("the machine is not recorded: {error}"));
                Ok(None)
            }
        }
    }

    /// Ends the recording and writes its report.
    fn report(&self, profiler: Option<Profiler>, code: Option<i32>) -> Result<(), JobError> {
        let Some(profiler) = profiler else { return Ok(()) };
        let mut stopped_by = None;
        self.change(|record| stopped_by.clone_from(&record.stopped_by))?;
        let page = profiler.finish(code, stopped_by);
        // The script's last messages may have been on their way when it ended.
        self.take_metrics();
        if let Err(error) = &page {
            self.lines.say(&format!("there is no report: {error}"));
        }
        self.change(|record| {
            record.metrics = self.lines.last();
            record.report = page.ok();
        })
    }

    /// Stores the numbers that the script sent.
    fn take_metrics(&self) {
        let listening = self.timeline.get();
        for metric in listening.iter().flat_map(|listening| listening.metrics.take()) {
            self.lines.sent(&metric);
        }
    }
}

/// How the script of an instance ended.
fn end(ended: &[Option<Ended>], rank: usize) -> End {
    match ended.get(rank) {
        Some(Some(ended)) if ended.killed => End::Killed,
        Some(_) => End::Itself,
        // Its end is unknown.
        None => End::Killed,
    }
}

/// Makes this process the leader of its own session, so that it survives its terminal; for a runner that was
/// started in the background.
///
/// # Errors
/// The process is a group leader already.
pub fn detach() -> Result<(), JobError> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|error| JobError::io(Path::new("a session of its own"))(error.into()))
}
