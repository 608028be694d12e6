//! Trials as training jobs of an account on SageMaker.
//!
//! ```text
//! STUDY/plan.json, journal.jsonl      as of any study: status, export and report read no more
//! STUDY/sagemaker.json                the name that all its jobs begin with, the region, where the code is
//! STUDY/sagemaker/trial-7.json        the names of the trial's jobs; the last one is its job
//!
//! ask ──► trial-7.json ──► CreateTrainingJob ──► every look: ListTrainingJobs, once for all trials
//!                                                             GetLogEvents ──► lines ──► report ──► Stop: StopTrainingJob
//!                                                             not in progress: DescribeTrainingJob ──► tell
//! ```
//!
//! The strategies, early stopping and limits are those of [`Study`]; only where a trial runs is different. One thread owns
//! the study and asks the account in turns. The code is uploaded once, and all trials have the same.
//!
//! A job's name is kept before the job is asked for, and there is never a second job of a name. So a trial whose process
//! died is found again, or is known not to be there: it is followed or created, and never runs twice. A trial that continues
//! after it was stopped, at a rung, gets a further job with the same checkpoints, because SageMaker resumes none.
//!
//! When `stop` is set, nothing more is asked for, and the trials are given back: their jobs continue, and the next process
//! follows them. When the study is over, jobs that still run are stopped.
//!
//! Throttling, failures of the service and silence are no failure of a trial: it is looked at again. What the account does
//! not allow ends the run, and the jobs continue.
//!
//! The objective is one of the job's metrics, found in the lines that CloudWatch has; the n-th number is that of step n.
//! After a job's end its lines are read until the last number is the one that SageMaker says, for some looks at most; they
//! come late.

mod kept;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use regex::Regex;
use stokehold_jobs::Job;
use stokehold_objects::Options;
use stokehold_sagemaker::{
    Client, Cost, CreateTrainingJob, JobStatus, LogPosition, Plan as Request, SageMakerError, TrainingJob,
};
use stokehold_tune::{Ask, History, Strategy, Study, Trial, Values, Verdict};

use crate::error::input;
use crate::number::Number;
use crate::run::{Ending, StudyEvent};
use crate::{Plan, TrialsError};

pub use kept::StudyTarget;
use trial::Running;

/// The pause between two turns of the loop: how soon a stop is seen.
const TURN: Duration = Duration::from_millis(200);

/// How often a job that has ended is looked at for late lines, at most.
const LAST: u32 = 6;

/// How near the last number of the lines has to be to SageMaker's, which is a number of 32 bits.
const NEAR: f64 = 1e-5;

/// Checks that the trials of a plan can be jobs on SageMaker, without asking anybody. Returns what of the plan has another
/// meaning there, a sentence each.
///
/// # Errors
/// Something has no counterpart there.
pub fn check(plan: &Plan, region: &str) -> Result<Vec<String>, TrialsError> {
    if plan.timeline || plan.metrics_file.is_some() {
        return input(format!(
            "on SageMaker an objective is found in a job's lines: name {:?} among the job's metrics, with a regex \
             ([[job.metrics]]), and leave timeline and metrics-file out",
            plan.study.objective
        ));
    }
    if !plan.prepare.is_empty() {
        return input(
            "prepare makes shards on this machine, which SageMaker cannot read; make them with `stokehold prepare`, put them \
             into a bucket, and say where (the job's [sagemaker.channels])",
        );
    }
    let space = plan.study.check()?;
    let sent = Request::new(&plan.job_of("study-000", &space.middle()), "study-000", region)?;
    let mut notes = sent.notes;
    notes.extend(sent.source.notes()?);
    if plan.job.spot.is_some() && plan.job.checkpoints.is_none() {
        notes.push(
            "[spot] without checkpoints: an interrupted trial starts over, and its steps are counted on"
                .to_owned(),
        );
    }
    Ok(notes)
}

/// What all trials of a plan cost at most, if each is one job that runs for its longest time.
///
/// # Errors
/// The price of a machine is not given, or the plan is wrong.
pub fn cost(plan: &Plan) -> Result<Cost, TrialsError> {
    let most = plan.study.limits.max_jobs as u64;
    let space = plan.study.check()?;
    let combinations = space.count().filter(|_| plan.study.strategy == Strategy::Grid);
    Ok(Cost::of(&plan.job)?.of_jobs(combinations.map_or(most, |count| most.min(count))))
}

/// The request for a trial's job.
///
/// # Errors
/// The trial's values do not make a request that SageMaker takes.
pub fn request(
    plan: &Plan,
    target: &StudyTarget,
    trial: &Trial,
    name: &str,
) -> Result<CreateTrainingJob, TrialsError> {
    let mut job = plan.job_of(&target.first(trial.number), &trial.values);
    if let Some(source) = &target.source {
        job.source_dir = Some(source.into());
    }
    Ok(Request::new(&job, name, &target.region)?.request)
}

/// The account that a study's trials run in.
#[derive(Debug)]
pub struct Account<'a> {
    /// The calls. Its options should let it give up soon (`retry`), because a stop is not seen while it tries again.
    pub client: &'a Client,
    /// How the bucket of the code is opened.
    pub options: &'a Options,
    /// How often it is asked how the jobs are.
    pub look: Duration,
}

/// Runs a study's trials on SageMaker until it is finished or `stop` is set. Other processes may run the same study there at
/// the same time.
///
///
/// # Errors
/// The journal cannot be written; the account does not allow something, or refuses it; the code cannot be uploaded. A trial
/// that fails is no error.
pub fn run(
    mut study: Study,
    plan: &Plan,
    folder: &Path,
    account: &Account<'_>,
    stop: &AtomicBool,
    show: &mut dyn FnMut(StudyEvent<'_>, &History),
) -> Result<Ending, TrialsError> {
    let objective = &plan.study.objective;
    let metric = plan.job.metrics.iter().find(|metric| &metric.name == objective);
    let Some(regex) = metric.and_then(|metric| metric.compile().ok()) else {
        return input(format!("{objective:?} is none of the job's metrics"));
    };
    let mut target = StudyTarget::load(folder)?;
    if target.source.is_none() {
        target.source = Some(upload(plan, &target, account.options)?);
        target.save(folder)?;
    }
    // The jobs continue when this process dies.
    study.runs_elsewhere();
    let mut tuner = Tuner {
        study,
        plan,
        folder,
        client: account.client,
        target,
        regex,
        running: BTreeMap::new(),
        is_said: false,
        is_unanswered: false,
        show,
    };
    match tuner.work(account.look, stop) {
        Ok(ending) => Ok(ending),
        Err(error) => {
            let going = tuner.running.len();
            // The first error is the one that matters.
            let _ = tuner.give_all_back();
            Err(match error {
                TrialsError::SageMaker(source) if going > 0 => TrialsError::Account { source, going },
                error => error,
            })
        }
    }
}

/// Puts the code of all trials into the bucket; returns where it is.
fn upload(plan: &Plan, target: &StudyTarget, options: &Options) -> Result<String, TrialsError> {
    let job: Job = plan.job_of(&target.name, &Values::new());
    let sent = Request::new(&job, &target.name, &target.region)?;
    sent.source
        .upload(&sent.source_uri, &options.in_region(&target.region))?;
    Ok(sent.source_uri)
}

struct Tuner<'a> {
    study: Study,
    plan: &'a Plan,
    folder: &'a Path,
    client: &'a Client,
    target: StudyTarget,
    regex: Regex,
    running: BTreeMap<usize, Running>,
    /// Whether it is said that the account does not answer, and whether it did not since the last look began.
    is_said: bool,
    is_unanswered: bool,
    show: &'a mut dyn FnMut(StudyEvent<'_>, &History),
}

impl Tuner<'_> {
    fn work(&mut self, look: Duration, stop: &AtomicBool) -> Result<Ending, TrialsError> {
        let mut end = None;
        let mut looked: Option<Instant> = None;
        loop {
            if stop.load(Ordering::SeqCst) {
                self.give_all_back()?;
                return Ok(Ending::Interrupted);
            }
            if self.study.end_now().is_some() {
                self.running
                    .values_mut()
                    .for_each(|running| running.is_unwanted = true);
            }
            while end.is_none() && !stop.load(Ordering::SeqCst) {
                match self.study.ask()? {
                    Ask::Trial(trial) => self.begin(&trial)?,
                    Ask::Wait => break,
                    Ask::Finished(why) => end = Some(why),
                }
            }
            if let (Some(end), true) = (end, self.running.is_empty()) {
                self.stop_left()?;
                return Ok(Ending::Finished(end));
            }
            if looked.is_none_or(|then| then.elapsed() >= look) {
                self.look_at_all(stop)?;
                looked = Some(Instant::now());
            }
            self.study.refresh()?;
            (self.show)(StudyEvent::Tick, self.study.history());
            std::thread::sleep(TURN.min(look));
        }
    }

    fn give_all_back(&mut self) -> Result<(), TrialsError> {
        while let Some((trial, _)) = self.running.pop_first() {
            self.study.give_back(trial)?;
        }
        Ok(())
    }

    /// Takes up a trial. Its job's name is kept before anything is asked for.
    fn begin(&mut self, trial: &Trial) -> Result<(), TrialsError> {
        let mut names = kept::names(self.folder, trial.number)?;
        let is_new = names.is_empty();
        if is_new {
            names.push(self.target.first(trial.number));
            kept::save_names(self.folder, trial.number, &names)?;
        }
        let mut running = Running::new(names);
        running.is_unwanted = trial.stop.is_some();
        self.running.insert(trial.number, running);
        self.patiently(trial.number, |tuner| match is_new {
            true => tuner.create(trial),
            false => tuner.find(trial),
        })
    }

    /// Does something for a trial that is tried again at the next look if the account does not answer.
    fn patiently(
        &mut self,
        trial: usize,
        act: impl FnOnce(&mut Self) -> Result<(), TrialsError>,
    ) -> Result<(), TrialsError> {
        match act(self) {
            Err(TrialsError::SageMaker(error)) if is_passing(&error) || self.is_full(&error) => {
                self.unanswered(&format!("trial {trial}: {error}"));
                Ok(())
            }
            done => done,
        }
    }

    /// Says once that the account does not answer.
    fn unanswered(&mut self, reason: &str) {
        if !self.is_said {
            (self.show)(
                StudyEvent::Said(&format!("{reason}; it is tried again")),
                self.study.history(),
            );
        }
        (self.is_said, self.is_unanswered) = (true, true);
    }

    /// Whether the account has no more machines, while others of the study run, which will be free.
    fn is_full(&self, error: &SageMakerError) -> bool {
        let is_limit = matches!(error, SageMakerError::Refused { reason, .. } if reason.contains("ResourceLimitExceeded"));
        is_limit && self.running.values().any(|running| running.is_there)
    }

    /// Creates a trial's job, under the last of its names.
    fn create(&mut self, trial: &Trial) -> Result<(), TrialsError> {
        let Some(name) = self
            .running
            .get(&trial.number)
            .map(|running| running.name().to_owned())
        else {
            return Ok(());
        };
        let request = match request(self.plan, &self.target, trial, &name) {
            Ok(request) => request,
            // Such as a value that is too long.
            Err(error) => return self.fail(trial.number, &error.to_string()),
        };
        match self.client.create(&request) {
            Ok(arn) => tracing::info!(trial = trial.number, arn, "a trial's job is created"),
            // An earlier request was carried out after all.
            Err(SageMakerError::NameTaken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.is_there(trial)
    }

    fn is_there(&mut self, trial: &Trial) -> Result<(), TrialsError> {
        if let Some(running) = self.running.get_mut(&trial.number) {
            running.is_there = true;
        }
        (self.show)(StudyEvent::Started(trial), self.study.history());
        Ok(())
    }

    /// Looks for the job of a trial that another process, or an earlier turn, has left.
    fn find(&mut self, trial: &Trial) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&trial.number) else {
            return Ok(());
        };
        let job = match self.client.describe(running.name()) {
            Ok(job) => job,
            Err(SageMakerError::NoSuchJob { .. }) if running.is_unwanted => {
                self.running.remove(&trial.number);
                self.study.tell_stopped(trial.number)?;
                return self.ended(trial.number);
            }
            Err(SageMakerError::NoSuchJob { .. }) => return self.create(trial),
            Err(error) => return Err(error.into()),
        };
        if job.training_job_status == JobStatus::Stopped && !job.is_late() && !running.is_unwanted {
            // The process that stopped it may have died before it told why.
            let number = running.names.len() + 1;
            self.read_lines(trial.number)?;
            let Some(running) = self.running.get_mut(&trial.number) else {
                return Ok(());
            };
            if running.is_unwanted {
                return self.is_there(trial);
            }
            if self.plan.job.checkpoints.is_none() {
                // It starts over.
                (running.steps, running.last) = (0, None);
            }
            // It continues: at a rung it became one of the best, or somebody stopped it while no one looked.
            running
                .names
                .push(format!("{}-{number}", self.target.first(trial.number)));
            kept::save_names(self.folder, trial.number, &running.names)?;
            return self.create(trial);
        }
        self.is_there(trial)
    }

    fn look_at_all(&mut self, stop: &AtomicBool) -> Result<(), TrialsError> {
        self.is_unanswered = false;
        let trials: Vec<usize> = self.running.keys().copied().collect();
        let mut in_progress = BTreeSet::new();
        // For a single trial, describing it costs no more.
        if trials.len() > 1 {
            match self.client.in_progress(&self.target.name) {
                Ok(names) => in_progress = names,
                Err(error) if is_passing(&error) => {
                    self.unanswered(&error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        for trial in trials {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            self.patiently(trial, |tuner| tuner.look_at(trial, &in_progress))?;
        }
        // The next trouble is said again.
        self.is_said = self.is_unanswered;
        Ok(())
    }

    /// Reads a trial's lines and state, and reports them.
    fn look_at(&mut self, number: usize, in_progress: &BTreeSet<String>) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&number) else {
            return Ok(());
        };
        if !running.is_there {
            let trial = self.study.history().trials[number].clone();
            return self.find(&trial);
        }
        if running.is_unwanted && !running.is_stopping && running.ended.is_none() {
            match self.client.stop(running.name()) {
                Ok(()) => running.is_stopping = true,
                // Nothing runs, as it was wanted.
                Err(SageMakerError::NoSuchJob { .. }) => {
                    self.running.remove(&number);
                    self.study.tell_stopped(number)?;
                    return self.ended(number);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if running.ended.is_none() && !in_progress.contains(running.name()) {
            match self.client.describe(running.name()) {
                Ok(job) if job.training_job_status.is_final() => running.ended = Some(job),
                Ok(_) => {}
                Err(SageMakerError::NoSuchJob { .. }) => {
                    let reason = format!("its job {} vanished from the account", running.name());
                    return self.fail(number, &reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // The state is older than the lines, so that the last lines are not missed.
        self.read_lines(number)?;
        self.settle(number)
    }

    fn read_lines(&mut self, number: usize) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&number) else {
            return Ok(());
        };
        // With checkpoints a further job continues counting where the earlier ones ended.
        let last = running.names.len() - 1;
        let from = if self.plan.job.checkpoints.is_some() {
            running.read.min(last)
        } else {
            last
        };
        let mut found = Vec::new();
        let mut read = Ok(());
        'names: for at in from..=last {
            if running.read != at {
                (running.read, running.position) = (at, LogPosition::default());
            }
            loop {
                let lines = match self.client.lines(&running.names[at], &mut running.position) {
                    Ok(lines) => lines,
                    // What was read before is reported all the same: it does not come again.
                    Err(error) => {
                        read = Err(error);
                        break 'names;
                    }
                };
                if lines.is_empty() {
                    break;
                }
                for line in lines
                    .iter()
                    .filter(|line| line.host == stokehold_jobs::contract::host(0))
                {
                    for value in numbers_in(&self.regex, &line.text) {
                        running.steps += 1;
                        running.last = Some(value);
                        found.push((running.steps, value));
                    }
                }
            }
        }
        found
            .into_iter()
            .try_for_each(|(step, value)| self.report(number, step, value))?;
        Ok(read?)
    }

    fn report(&mut self, number: usize, step: u64, value: f64) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&number) else {
            return Ok(());
        };
        if running.broken.is_some() {
            return Ok(());
        }
        match Number::take(&mut self.study, number, step, value)? {
            Number::Broken(reason) => {
                running.broken = Some(reason);
                running.is_unwanted = true;
            }
            Number::Known => {}
            Number::New(verdict) => {
                if verdict == Verdict::Stop {
                    running.is_unwanted = true;
                }
                let history = self.study.history();
                (self.show)(StudyEvent::Reported(&history.trials[number]), history);
            }
        }
        Ok(())
    }

    /// Tells the study how a trial's job ended, if it has and if its lines are read.
    fn settle(&mut self, number: usize) -> Result<(), TrialsError> {
        let Some(running) = self.running.get_mut(&number) else {
            return Ok(());
        };
        let Some(job) = &running.ended else {
            return Ok(());
        };
        if let Some(reason) = running.broken.take() {
            return self.fail(number, &reason);
        }
        let last = final_value(job, &self.plan.study.objective);
        if running.looks < LAST && job.training_job_status == JobStatus::Completed && !running.has_all(last) {
            running.looks += 1;
            return Ok(());
        }
        match job.training_job_status {
            JobStatus::Completed => {}
            JobStatus::Stopped if job.is_late() => {
                let reason = format!(
                    "its time was over ({}: the job's max-run-seconds, or max-wait-seconds of spot machines); raise it, or make \
                     trials shorter",
                    job.secondary_status
                );
                return self.fail(number, &reason);
            }
            JobStatus::Stopped => {
                self.running.remove(&number);
                self.study.tell_stopped(number)?;
                return self.ended(number);
            }
            _ => {
                let reason = job.failure_reason.clone();
                return self.fail(
                    number,
                    &reason.unwrap_or_else(|| "SageMaker does not say why".to_owned()),
                );
            }
        }
        let reports = &self.study.history().trials[number].reports;
        // What SageMaker found itself, where CloudWatch has no lines.
        let objective = last.filter(|value| reports.is_empty() && value.is_finite());
        if reports.is_empty() && objective.is_none() {
            let reason = format!(
                "{:?} was never printed: no line of job {} matches {:?}",
                self.plan.study.objective,
                running.name(),
                self.regex.as_str()
            );
            return self.fail(number, &reason);
        }
        if let (Some(read), Some(said)) = (running.last, last)
            && !running.has_all(last)
        {
            let says = format!(
                "trial {number}: the last line has {read}, and SageMaker's final value is {said}; the lines count"
            );
            (self.show)(StudyEvent::Said(&says), self.study.history());
        }
        self.running.remove(&number);
        self.study.tell(number, objective)?;
        self.ended(number)
    }

    fn fail(&mut self, number: usize, reason: &str) -> Result<(), TrialsError> {
        self.running.remove(&number);
        self.study.tell_failed(number, reason)?;
        self.ended(number)
    }

    fn ended(&mut self, number: usize) -> Result<(), TrialsError> {
        let history = self.study.history();
        (self.show)(StudyEvent::Ended(&history.trials[number]), history);
        Ok(())
    }

    /// Stops the jobs of trials that were given back before the study was over, and that no one follows.
    fn stop_left(&mut self) -> Result<(), TrialsError> {
        let left: Vec<usize> = self.study.orphans()?.iter().map(|trial| trial.number).collect();
        for trial in left {
            let Some(name) = kept::names(self.folder, trial)?.pop() else {
                continue;
            };
            match self.client.stop(&name) {
                Ok(()) | Err(SageMakerError::NoSuchJob { .. }) => {}
                Err(error) => {
                    let says = format!("job {name} may continue: {error}");
                    (self.show)(StudyEvent::Said(&says), self.study.history());
                }
            }
        }
        Ok(())
    }
}

/// The jobs of trials that have not ended, by their names.
///
/// # Errors
/// A file of the study cannot be read.
pub fn jobs(folder: &Path, history: &History) -> Result<Vec<String>, TrialsError> {
    let names = history.running().map(|trial| kept::names(folder, trial.number));
    Ok(names
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .filter_map(|mut names| names.pop())
        .collect())
}

/// The last job of a trial, by its name.
///
/// # Errors
/// A file of the study cannot be read.
pub fn job(folder: &Path, trial: usize) -> Result<Option<String>, TrialsError> {
    Ok(kept::names(folder, trial)?.pop())
}

/// Whether the same may succeed later.
fn is_passing(error: &SageMakerError) -> bool {
    matches!(
        error,
        SageMakerError::Unavailable { .. }
            | SageMakerError::NotCreated { .. }
            | SageMakerError::Unclear { .. }
    )
}

fn final_value(job: &TrainingJob, objective: &str) -> Option<f64> {
    let mut metrics = job.final_metric_data_list.iter();
    metrics
        .find(|metric| metric.metric_name == objective)
        .map(|metric| metric.value)
}

/// The numbers of a line, as a job here finds them.
fn numbers_in<'a>(regex: &'a Regex, line: &'a str) -> impl Iterator<Item = f64> + 'a {
    let number = |found: regex::Captures<'_>| found.get(1)?.as_str().trim().parse().ok();
    regex.captures_iter(line).filter_map(number)
}
