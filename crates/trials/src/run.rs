//! Trials as jobs: each runs in a slot with its own cores and GPUs, and the metrics that it prints, sends or
//! writes are reported as they come.
//!
//! ```text
//! STUDY/plan.json       what a trial is
//! STUDY/prepared/NAME   the shards of a channel that all trials share, if they do
//! STUDY/journal.jsonl   the study
//! STUDY/jobs/trial-0    the jobs, as `stokehold job --jobs STUDY/jobs` shows them
//! STUDY/slots/0         locked by the process whose trial has the slot
//! STUDY/creating        locked by the process that creates the study
//! ```
//!
//! One thread owns the study: it asks, reports and tells, and follows the files with the trials' metrics: the
//! job's own file of printed or sent metrics, or one that the script writes. One thread per running trial
//! runs its job. If the process is killed, its threads end, and its scripts, trials and slots remain: the
//! slots are free at once, and [`Study::ask`] gives the trials to other processes. A process that gets such a
//! trial first checks its job. A job that has ended is reported and not run again; otherwise its script is
//! ended and the job resumed in its folder, with its checkpoints.

mod followed;
mod slots;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use stokehold_base::clock::unix_now as now;
use stokehold_base::lock::{Lock, Refused};
use stokehold_jobs::{Claim, Job, JobError, Mode, Place, Record, Secondary, Status, Store};
use stokehold_prepare::{Options, PrepareError, Progress};
use stokehold_tune::{Ask, End, History, JOURNAL, Outcome, Study, Trial, Verdict};

use crate::error::input;
use crate::number::Number;
use crate::{Plan, TrialsError};
use followed::Followed;
use slots::free_slot;

/// How often files and other processes are polled.
const LOOK: Duration = Duration::from_millis(200);

/// The name of the lock of the process that creates a study.
const CREATING: &str = "creating";

/// An event while a study runs.
#[derive(Debug)]
pub enum StudyEvent<'a> {
    /// A trial was started, or continues.
    Started(&'a Trial),
    /// A trial reported: its last report.
    Reported(&'a Trial),
    /// A trial ended.
    Ended(&'a Trial),
    /// Something that people should know.
    Said(&'a str),
    /// Nothing happened; sent regularly.
    Tick,
}

/// How running a study ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    /// The study is finished.
    Finished(End),
    /// It was interrupted, and can be resumed.
    Interrupted,
}

/// Creates a study of jobs in a folder. First it prepares the channels that the trials share, and calls
/// `progress` for each. When `stop` is set, preparing ends soon; the next call continues where it ended.
///
/// One process at a time creates a study in a folder. Another one waits a moment for it.
///
/// # Errors
/// The errors of [`Plan::check`]; a parent does not fit; the study exists, or another process creates it; a
/// channel cannot be prepared; [`TrialsError::Interrupted`].
pub fn create(
    plan: &Plan,
    folder: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<(), TrialsError> {
    plan.check()?;
    // Find all errors before anything is created.
    Study::in_memory(plan.study.clone())?;
    fs::create_dir_all(folder).map_err(TrialsError::io(folder))?;
    let path = folder.join(CREATING);
    let _lock = match Lock::take(&path) {
        Ok(lock) => lock,
        Err(Refused::Held(holder)) => {
            return input(format!(
                "{}: {holder} creates a study here; wait until it has, then `stokehold tune resume` works beside it",
                folder.display()
            ));
        }
        Err(Refused::Io(error)) => return Err(TrialsError::io(&path)(error)),
    };
    if folder.join(JOURNAL).exists() {
        return input(format!(
            "{} has a study already; resume it (stokehold tune resume), or take another folder",
            folder.display()
        ));
    }
    let mut plan = plan.clone();
    for name in &plan.prepare {
        let Some(channel) = plan.job.channels.get_mut(name) else {
            continue;
        };
        let shards = folder.join("prepared").join(name);
        fs::create_dir_all(&shards).map_err(TrialsError::io(&shards))?;
        let options = Options {
            workers: Place::here().cores.len(),
            ..Options::default()
        };
        let done = stokehold_prepare::prepare(Path::new(&channel.uri), &shards, &options, stop, &mut |at| {
            progress(name, at)
        });
        done.map_err(|error| match error {
            PrepareError::Interrupted => TrialsError::Interrupted,
            source => TrialsError::Prepare {
                channel: name.clone(),
                source: Box::new(source),
            },
        })?;
        channel.uri = shards.display().to_string();
        channel.mode = Some(Mode::Dir);
    }
    plan.save(folder)?;
    Study::create(folder, plan.study.clone())?;
    Ok(())
}

/// The jobs of a study.
///
/// # Errors
/// The folder's path cannot be made absolute.
pub fn jobs(folder: &Path) -> Result<Store, TrialsError> {
    Ok(Store::new(&folder.join("jobs"))?)
}

/// The name of a trial's job.
pub fn job_name(trial: usize) -> String {
    format!("trial-{trial}")
}

/// Which part of the machine trials get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// As many trials as the study's limits allow run here, each with its share of the cores and GPUs that this process has.
    Shared,
    /// One trial at a time runs here, with all of them; the others run on other machines.
    Whole,
}

/// Runs a study's trials until it is finished or `stop` is set. Other processes may run the same study at the
/// same time.
///
/// # Errors
/// The journal or a job cannot be written. A trial that fails is no error.
pub fn run(
    study: Study,
    plan: &Plan,
    folder: &Path,
    room: Room,
    stop: &AtomicBool,
    show: &mut dyn FnMut(StudyEvent<'_>, &History),
) -> Result<Ending, TrialsError> {
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let start = |work: Work| {
            scope.spawn(move || work.run());
        };
        let mut tuner = Tuner {
            study,
            plan,
            folder,
            room,
            store: jobs(folder)?,
            running: BTreeMap::new(),
            sender,
            show,
        };
        let ended = tuner.work(&receiver, stop, &start);
        // Stop all trials, after an error too.
        tuner.stop_all();
        ended
    })
}

struct Tuner<'a> {
    study: Study,
    plan: &'a Plan,
    folder: &'a Path,
    room: Room,
    store: Store,
    running: BTreeMap<usize, Running>,
    sender: Sender<Ended>,
    show: &'a mut dyn FnMut(StudyEvent<'_>, &History),
}

/// A trial that runs in this process.
struct Running {
    stop: Arc<AtomicBool>,
    numbers: Followed,
    /// Why it is being stopped, to count as failed.
    broken: Option<String>,
}

/// The result of a trial's thread.
struct Ended {
    trial: usize,
    record: Result<Box<Record>, JobError>,
}

/// The work of a trial's thread.
struct Work {
    trial: usize,
    claim: Claim,
    stop: Arc<AtomicBool>,
    sender: Sender<Ended>,
    /// Locked until the trial has ended.
    slot: File,
}

impl Work {
    fn run(self) {
        let Self {
            trial,
            claim,
            stop,
            sender,
            slot,
        } = self;
        let record = stokehold_jobs::run(claim, &stop, &|_| {});
        drop(slot);
        let record = record.map(Box::new);
        // The receiver is gone only when the whole run ends; ignore the send error.
        let _ = sender.send(Ended { trial, record });
    }
}

impl Tuner<'_> {
    fn work(
        &mut self,
        receiver: &Receiver<Ended>,
        stop: &AtomicBool,
        start: &dyn Fn(Work),
    ) -> Result<Ending, TrialsError> {
        let mut end = None;
        loop {
            let is_interrupted = stop.load(Ordering::SeqCst);
            if is_interrupted || self.study.end_now().is_some() {
                self.stop_all();
            }
            while !is_interrupted && end.is_none() {
                match self.next(start)? {
                    Next::Started => {}
                    Next::Wait => break,
                    Next::Finished(why) => end = Some(why),
                }
            }
            if self.running.is_empty() {
                match end {
                    _ if is_interrupted => return Ok(Ending::Interrupted),
                    Some(end) => return Ok(Ending::Finished(end)),
                    None => {}
                }
            }
            match receiver.recv_timeout(LOOK) {
                Ok(ended) => self.settle(ended.trial, ended.record, stop.load(Ordering::SeqCst))?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            let trials: Vec<usize> = self.running.keys().copied().collect();
            trials.into_iter().try_for_each(|trial| self.look_at(trial))?;
            self.study.refresh()?;
            (self.show)(StudyEvent::Tick, self.study.history());
        }
    }

    fn stop_all(&self) {
        for running in self.running.values() {
            running.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Asks for a trial and starts it, if there is a slot.
    fn next(&mut self, start: &dyn Fn(Work)) -> Result<Next, TrialsError> {
        if self.room == Room::Whole && !self.running.is_empty() {
            return Ok(Next::Wait);
        }
        let slots = self.study.history().spec.limits.max_parallel_jobs;
        let Some((number, slot)) = free_slot(self.folder, slots)? else {
            return Ok(Next::Wait);
        };
        let trial = match self.study.ask()? {
            Ask::Trial(trial) => trial,
            Ask::Wait => return Ok(Next::Wait),
            Ask::Finished(end) => return Ok(Next::Finished(end)),
        };
        tracing::info!(trial = trial.number, slot = number, "a trial is handed out");
        let mut running = Running {
            stop: Arc::default(),
            numbers: self.numbers(trial.number),
            broken: None,
        };
        let found = match self.find(&trial) {
            Ok(found) => found,
            Err(error) => {
                // The values are not at fault: the next trial would fail in the same way.
                self.study.give_back(trial.number)?;
                return Err(error);
            }
        };
        let (claim, is_new) = match found {
            TrialJob::Claim { claim, is_new } => (claim, is_new),
            TrialJob::Ended(record) => {
                self.running.insert(trial.number, running);
                self.settle(trial.number, Ok(record), false)?;
                return Ok(Next::Started);
            }
        };
        let elsewhere = self.plan.job.checkpoints.is_some();
        if !is_new && !elsewhere && !has_checkpoints(&self.store, trial.number) {
            // The job starts over, and so do its steps. With checkpoints it continues.
            running.numbers.pass()?;
        }
        start(Work {
            trial: trial.number,
            claim: match self.room {
                Room::Shared => claim.on(Place::here().share(number, slots)),
                Room::Whole => *claim,
            },
            stop: running.stop.clone(),
            sender: self.sender.clone(),
            slot,
        });
        self.running.insert(trial.number, running);
        (self.show)(StudyEvent::Started(&trial), self.study.history());
        Ok(Next::Started)
    }

    /// The job of a trial: a new one, or one that a dead process left.
    fn find(&self, trial: &Trial) -> Result<TrialJob, TrialsError> {
        let name = job_name(trial.number);
        let record = match self.store.get(&name) {
            Ok(record) => record,
            Err(JobError::NoSuchJob { .. }) => {
                let half_made = self.store.path(&name);
                if half_made.exists() {
                    fs::remove_dir_all(&half_made).map_err(TrialsError::io(&half_made))?;
                }
                self.store.create(&self.job(trial, name.clone()))?;
                return Ok(TrialJob::Claim {
                    claim: Box::new(self.store.claim(&name)?),
                    is_new: true,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let is_cut_off = record.runner_died;
        let claim = match record.status {
            // The trial was stopped early before its process died.
            _ if trial.stop.is_some() && record.status != Status::Completed => {
                return Ok(TrialJob::Ended(Box::new(Record {
                    status: Status::Stopped,
                    secondary: Secondary::Stopped,
                    ..record
                })));
            }
            Status::InProgress | Status::Stopping => self.store.claim(&name)?,
            // The script had succeeded; only its results were not packed yet.
            Status::Failed if is_cut_off && record.exit_code == Some(0) => {
                return Ok(TrialJob::Ended(Box::new(Record {
                    status: Status::Completed,
                    ..record
                })));
            }
            Status::Failed if is_cut_off => self.store.resume(&name)?,
            Status::Stopped if trial.stop.is_none() && is_to_go_on(record.secondary) => {
                self.store.resume(&name)?
            }
            Status::Completed | Status::Failed | Status::Stopped => {
                return Ok(TrialJob::Ended(Box::new(record)));
            }
        };
        Ok(TrialJob::Claim {
            claim: Box::new(claim),
            is_new: false,
        })
    }

    fn job(&self, trial: &Trial, name: String) -> Job {
        self.plan.job_of(&name, &trial.values)
    }

    /// The file with a trial's metrics.
    fn numbers(&self, trial: usize) -> Followed {
        let (job, objective) = (self.store.path(&job_name(trial)), &self.plan.study.objective);
        match &self.plan.metrics_file {
            Some(file) => Followed::new(job.join("algo-1").join(file), objective, None),
            None => Followed::new(job.join(stokehold_jobs::METRICS), "value", Some(objective)),
        }
    }

    fn report(&mut self, trial: usize, step: u64, value: f64) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&trial) else {
            return Ok(());
        };
        if running.broken.is_some() {
            return Ok(());
        }
        match Number::take(&mut self.study, trial, step, value)? {
            Number::Broken(reason) => {
                running.broken = Some(reason);
                running.stop.store(true, Ordering::SeqCst);
            }
            Number::Known => {}
            Number::New(verdict) => {
                if verdict == Verdict::Stop {
                    running.stop.store(true, Ordering::SeqCst);
                }
                let history = self.study.history();
                (self.show)(StudyEvent::Reported(&history.trials[trial]), history);
            }
        }
        Ok(())
    }

    /// Reports the metrics that were written since the last call.
    fn look_at(&mut self, trial: usize) -> Result<(), TrialsError> {
        let news = match self.running.get_mut(&trial) {
            Some(running) => running.numbers.news()?,
            None => Vec::new(),
        };
        for (step, value) in news {
            self.report(trial, step, value)?;
        }
        Ok(())
    }

    /// Reports how a trial's job ended.
    fn settle(
        &mut self,
        trial: usize,
        record: Result<Box<Record>, JobError>,
        is_interrupted: bool,
    ) -> Result<(), TrialsError> {
        self.look_at(trial)?;
        let Some(running) = self.running.remove(&trial) else {
            return Ok(());
        };
        let history = self.study.history();
        let is_unwanted = history.trials[trial].stop.is_some() || self.study.end_now().is_some();
        let has_reported = !history.trials[trial].reports.is_empty();
        let ended = match (running.broken, record) {
            (Some(reason), _) => self.study.tell_failed(trial, &reason),
            // The values are not at fault, and the next trial would fail in the same way.
            (None, Err(error)) if error.is_disk_full() => {
                self.study.give_back(trial)?;
                return Err(error.into());
            }
            (None, Err(error)) => self.study.tell_failed(trial, &error.to_string()),
            (None, Ok(record)) => match record.status {
                Status::Completed if has_reported => self.study.tell(trial, None),
                Status::Completed => self.study.tell_failed(trial, &self.never_seen(trial)),
                Status::Stopped if !is_to_go_on(record.secondary) => {
                    let reason =
                        "its time was over (the job's max-run-seconds); raise them, or make trials shorter";
                    self.study.tell_failed(trial, reason)
                }
                Status::Stopped if is_unwanted => self.study.tell_stopped(trial),
                // The job's machine was taken away: it continues when there is a slot.
                Status::Stopped if record.secondary == Secondary::Interrupted => {
                    return Ok(self.study.give_back(trial)?);
                }
                Status::Stopped if !is_interrupted => self.study.tell_stopped(trial),
                Status::Stopped => {
                    return Ok(self.study.give_back(trial)?);
                }
                // The script had succeeded, and there was no room to pack its results.
                Status::Failed
                    if has_reported
                        && record.exit_code == Some(0)
                        && record.failure_reason.as_deref().is_some_and(is_of_full_disk) =>
                {
                    self.study.tell(trial, None)
                }
                Status::Failed | Status::InProgress | Status::Stopping => {
                    let reason = record
                        .failure_reason
                        .unwrap_or_else(|| "it did not end".to_owned());
                    self.study.tell_failed(trial, &reason)
                }
            },
        };
        let _: Outcome = ended?;
        let history = self.study.history();
        (self.show)(StudyEvent::Ended(&history.trials[trial]), history);
        Ok(())
    }

    fn never_seen(&self, trial: usize) -> String {
        let objective = &self.plan.study.objective;
        let folder = self.store.path(&job_name(trial));
        if let Some(file) = &self.plan.metrics_file {
            let file = folder.join("algo-1").join(file);
            return format!(
                "{objective:?} was never written: it is no key of a line of {}",
                file.display()
            );
        }
        let mut metrics = self.plan.job.metrics.iter();
        match metrics.find(|metric| &metric.name == objective) {
            Some(metric) => format!(
                "{objective:?} was never printed: no line matches {:?}; compare it with {}",
                metric.regex,
                folder.join("log").display()
            ),
            None => format!(
                "{objective:?} was never sent: the script writes lines \"metric {objective} VALUE step=N\" to the socket that \
                 STOKEHOLD_TIMELINE names"
            ),
        }
    }
}

enum Next {
    Started,
    Wait,
    Finished(End),
}

/// The job of a trial, or its end.
enum TrialJob {
    Claim { claim: Box<Claim>, is_new: bool },
    Ended(Box<Record>),
}

/// Whether a stopped job is to continue: it did not reach a time limit.
fn is_to_go_on(stopped: Secondary) -> bool {
    matches!(stopped, Secondary::Stopped | Secondary::Interrupted)
}

/// Whether the system's words for a full disk are in a reason.
fn is_of_full_disk(reason: &str) -> bool {
    reason.contains("No space left on device")
}

fn has_checkpoints(store: &Store, trial: usize) -> bool {
    let folder = store.path(&job_name(trial)).join("algo-1/checkpoints");
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// The estimated seconds until a study is finished: the mean time of its trials, for those that remain.
/// `None` until a trial has ended.
pub fn seconds_left(history: &History) -> Option<f64> {
    let limits = &history.spec.limits;
    let times: Vec<f64> = history
        .trials
        .iter()
        .filter_map(|trial| Some(trial.ended? - trial.asked))
        .collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let to_come = limits.max_jobs.saturating_sub(history.trials.len()) as f64;
    let going = history
        .running()
        .map(|trial| (mean - (now() - trial.asked)).max(0.0))
        .sum::<f64>();
    let left = (to_come * mean + going) / limits.max_parallel_jobs.min(limits.max_jobs) as f64;
    let until_late = limits
        .max_run_seconds
        .map(|most| (history.created + most - now()).max(0.0));
    (!times.is_empty()).then(|| until_late.map_or(left, |late| left.min(late)))
}
