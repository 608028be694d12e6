//! The training loop.
//!
//! An epoch is its training steps, then validation, then a checkpoint. Between two steps the run is entirely
//! described by the model, the optimiser, the moving average if there is one, and the [`Progress`]. A checkpoint stores
//! them, and resuming restores them. The loss is fetched in every step, so that the time of a step is the device's, and the time
//! between two steps is the trainer's waiting.
//!
//! Several ranks make each step together ([`together`](crate::together)). Rank 0 writes the run's folder, and sends the
//! state of the beginning to the others; each other rank writes its own recording to `ranks/N` there. They agree on the
//! end of a run at the end of a step, so that all stop at the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now;
use stokehold_base::lock::Lock;
use stokehold_cache::Cache;
use stokehold_loader::{Batch, BatchStream, Loader, LoaderError};
use stokehold_pipeline::Executor;
use stokehold_profile::ranks::{RankTimes, RanksSummary};
use stokehold_profile::{Contention, Ending, Machine, Sampler, Settings, Tree, peak_rss, span};
use stokehold_ranks::{Phase, Ranks};
use stokehold_storage::{Dataset, Images};

use crate::batch::DecodedBy;
use crate::ceilings::Ceiling;
use crate::checkpoint::{self, Checkpoints, Latest};
use crate::choice::choose;
use crate::config::TrainConfig;
use crate::ema::Averaging;
use crate::emulated::{Emulated, TrainerChoice};
use crate::evaluate::{evaluate, next_batch};
use crate::executor::{Chosen, open_device};
use crate::infer::ModelFacts;
use crate::learner::{At, Learner, Objective, Trainer};
use crate::model::Network;
use crate::observer::{Event, Observer};
use crate::progress::{EpochRecord, Progress, Validation};
use crate::run::{ChosenWorkers, DatasetFacts, MetricsLine, MetricsLog, RunFolder, RunRecord};
use crate::timeline::RunTimeline;
use crate::together::{Sum, Team};
use crate::world::{self, RankFacts, Scratch};
use crate::{RunSummary, TrainError, ceilings, device, pixels, weights, workload};

/// Trains from the beginning.
///
/// `dataset` is the data that `config.data` names, opened by the caller. When `stop` is set, the current step
/// is finished, a checkpoint is written, and the summary says `interrupted`.
///
/// # Errors
/// [`TrainError::RunExists`] if the folder has a run, [`TrainError::Malformed`] if it has what a run wrote and
/// no `run.json`, [`TrainError::InUse`] while another process trains
/// there, and every error that ends a run early. Checkpoints written until then remain.
pub fn fit(
    config: &TrainConfig,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    fit_on(&Ranks::alone(), config, dataset, observer, stop)
}

/// As [`fit`], on several ranks. All of them call it, with the same configuration and data. `config.batch_size` is that of all
/// together. Ranks but the first report to their observers no more than their own bad images and warnings. After an error
/// the caller ends all ranks with [`Ranks::abort`].
///
/// # Errors
/// As [`fit`]; [`TrainError::Disagree`] if the ranks are not of one run, [`TrainError::Ranks`] if a rank is silent.
pub fn fit_on(
    ranks: &Ranks,
    config: &TrainConfig,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    config.check()?;
    world::agree(ranks, config, &DatasetFacts::of(&dataset), false)?;
    if !ranks.is_first() {
        return follow(ranks, config, dataset, observer, stop);
    }
    let folder = RunFolder::new(&config.run_dir);
    let lock = lock_if_there(&folder)?;
    if folder.record().exists() {
        return Err(TrainError::RunExists {
            path: config.run_dir.clone(),
        });
    }
    Plan::of(config, None).tell(ranks)?;
    let beginning = Beginning {
        folder,
        lock,
        record: None,
        damaged: None,
    };
    start(ranks, config, beginning, dataset, observer, stop)
}

/// As [`fit_on`], on another rank than the first.
fn follow(
    ranks: &Ranks,
    config: &TrainConfig,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    let plan: Plan = world::share(ranks, None)?;
    if let Some(finished) = plan.finished {
        return Ok(finished);
    }
    let folder = RunFolder::new(plan.run_dir).of_rank(ranks.rank());
    let beginning = Beginning {
        lock: lock_if_there(&folder)?,
        folder,
        record: None,
        damaged: None,
    };
    start(ranks, config, beginning, dataset, observer, stop)
}

/// What rank 0 finds in the run's folder, for the others.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    run_dir: PathBuf,
    /// The summary of a run that is finished.
    finished: Option<RunSummary>,
}

impl Plan {
    fn of(config: &TrainConfig, finished: Option<&RunSummary>) -> Self {
        Self {
            run_dir: config.run_dir.clone(),
            finished: finished.cloned(),
        }
    }

    fn tell(&self, ranks: &Ranks) -> Result<(), TrainError> {
        world::share(ranks, Some(self))?;
        Ok(())
    }
}

/// The folder of a run that begins or continues.
struct Beginning {
    folder: RunFolder,
    lock: Option<Lock>,
    /// Of a run that continues.
    record: Option<RunRecord>,
    /// The error of a summary that cannot be read.
    damaged: Option<TrainError>,
}

/// Continues the run in `config.run_dir` from its latest checkpoint, or starts it if there is none. Returns
/// the summary of a finished run unchanged.
///
/// From there on the losses and accuracies equal those of an uninterrupted run, to the bit, if the device
/// computes deterministically. The CPU does with the same number of threads: its sums have a fixed order,
/// except those over a whole array of more than four million numbers, which a ResNet of up to 2048 classes
/// does not have.
///
/// With more epochs than it had, a finished run is trained further.
///
/// # Errors
/// [`TrainError::Changed`] if the results would differ because of another configuration or other data,
/// [`TrainError::InUse`] while another process trains in the folder, and every error that ends a run early.
pub fn resume(
    config: &TrainConfig,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    resume_on(&Ranks::alone(), config, dataset, observer, stop)
}

/// As [`resume`], on several ranks, as [`fit_on`]. Their number may be another one than before: the run continues with the
/// same images in the same batches. Its results are those of the first number where batch normalisation is synchronised
/// or frozen, but for the rounding of sums; otherwise every part of a batch is normalised by itself, and the parts are others.
///
/// # Errors
/// As [`resume`] and [`fit_on`].
pub fn resume_on(
    ranks: &Ranks,
    config: &TrainConfig,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    config.check()?;
    world::agree(ranks, config, &DatasetFacts::of(&dataset), true)?;
    if !ranks.is_first() {
        return follow(ranks, config, dataset, observer, stop);
    }
    let folder = RunFolder::new(&config.run_dir);
    let record = folder.read_record()?;
    let mut damaged = None;
    if let Some(record) = &record {
        let changes = record.changes(config, &DatasetFacts::of(&dataset))?;
        if !changes.is_empty() {
            return Err(TrainError::Changed {
                path: config.run_dir.clone(),
                changes,
            });
        }
        match folder.read_summary() {
            Err(error @ TrainError::Malformed { .. }) => damaged = Some(error),
            summary => {
                let finished = |summary: &RunSummary| !summary.interrupted && summary.epochs >= config.epochs;
                if let Some(summary) = summary?.filter(finished) {
                    Plan::of(config, Some(&summary)).tell(ranks)?;
                    return Ok(summary);
                }
            }
        }
    }
    let lock = lock_if_there(&folder)?;
    Plan::of(config, None).tell(ranks)?;
    let beginning = Beginning {
        folder,
        lock,
        record,
        damaged,
    };
    start(ranks, config, beginning, dataset, observer, stop)
}

/// Locks the run's folder if it exists. A run that is refused creates none.
fn lock_if_there(folder: &RunFolder) -> Result<Option<Lock>, TrainError> {
    folder.path().exists().then(|| folder.lock()).transpose()
}

/// Refuses a folder with what a run wrote and without `run.json`, which says what run it was: training there
/// would replace it.
fn refuse_remains(folder: &RunFolder, latest: &Latest) -> Result<(), TrainError> {
    let mut there = Vec::new();
    if latest.whole.is_some() || !latest.damaged.is_empty() {
        there.push(folder.checkpoints());
    }
    there.extend(folder.results());
    if there.is_empty() {
        return Ok(());
    }
    let names = there.iter().filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    Err(TrainError::Malformed {
        path: folder.record(),
        reason: format!(
            "missing, and yet a run has written here: {}; restore run.json from a copy, move the rest out of the folder, or give \
             another name",
            names.join(", ")
        ),
    })
}

/// Sets everything up, then trains.
fn start(
    ranks: &Ranks,
    config: &TrainConfig,
    Beginning {
        folder,
        lock,
        record,
        damaged,
    }: Beginning,
    dataset: Dataset,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
    ranks.now(Phase::Setup);
    let observer: &mut dyn Observer = match ranks.is_first() {
        true => observer,
        false => &mut Troubles(observer),
    };
    let resuming = record.is_some();
    pixels::check_kind(config.arch, &dataset.train)?;
    let facts = DatasetFacts::of(&dataset);
    let model_facts = ModelFacts {
        arch: config.arch,
        classes: facts.classes.clone(),
        pipeline: config.eval_pipeline.clone(),
        exif: config.exif,
    };
    let mut checkpoints =
        Checkpoints::open(folder.checkpoints(), config.keep_checkpoints)?.describing(&model_facts);
    let latest = checkpoints.latest()?;
    if !resuming && ranks.is_first() {
        refuse_remains(&folder, &latest)?;
    }
    if let Some(error) = damaged {
        // The checkpoints are worth more than a summary, which is made again from them. Without one the whole run
        // would be trained again over its results.
        if latest.whole.is_none() {
            return Err(error);
        }
        let warning = format!("{error}; the run continues without it, and writes it again");
        observer.event(Event::Warning(warning));
    }
    let plain = device::open_for(config.device, ranks)?;
    let team = Team::of(config, ranks, &plain)?;
    let device_name = match &config.trainer {
        TrainerChoice::Burn => device::name(&plain),
        TrainerChoice::Emulated {
            label,
            read_latency_ms,
            ..
        } => match *read_latency_ms {
            0.0 => format!("Emulated({label})"),
            late => format!("Emulated({label}; reads {late} ms late)"),
        },
    };
    let shards = matches!(dataset.train, Images::Shards(_));
    let classes = facts.classes.len();
    let chosen = match ranks.is_first() {
        true => Some(choose(config, &dataset.train, classes, &plain, stop)?),
        false => None,
    };
    let chosen: Chosen = world::share(ranks, chosen.as_ref())?;
    tracing::info!(executor = %chosen.executor, why = chosen.why.as_deref(), device = device_name, "chosen");
    let objective = config.objective(config.class_weights.of(&dataset.train, classes)?);
    let made_by = (chosen.executor, open_device(chosen.executor, config.gpu, &plain)?);
    let cache = config.open_cache()?;
    let loader = config.loader(dataset.train, true, team.parts(), made_by.clone())?;
    pixels::check_batches(config, &loader)?;
    let sampler = loader.start_of(0).order.sampler;
    // The files that the configuration names may have changed since.
    if let Some(before) = record.as_ref().map(|record| &record.sampler)
        && *before != sampler
    {
        let changes = vec![format!("the sampler was {before} and is {sampler} now")];
        return Err(TrainError::Changed {
            path: config.run_dir.clone(),
            changes,
        });
    }
    let val_loader = dataset
        .val
        .filter(|_| config.trainer.learns())
        .map(|val| config.loader(val, false, team.shares(), made_by.clone()))
        .transpose()?;

    let whole = latest
        .whole
        .as_ref()
        .map(|(path, progress)| (path.display(), progress.step));
    tracing::info!(resuming, latest = ?whole.map(|(path, step)| format!("{path} at step {step}")), "checkpoints");
    let (trainer, replaced_head, progress) = match &config.trainer {
        TrainerChoice::Burn => {
            let (learner, replaced_head, progress) = begin(config, classes, plain, &latest, ranks)?;
            (Trainer::Burn(Box::new(learner)), replaced_head, progress)
        }
        TrainerChoice::Emulated {
            images_per_second, ..
        } => {
            let parameters = match ranks.are_alone() {
                true => 0,
                false => Network::to_be_loaded(config.arch, classes, &plain).num_params(),
            };
            let emulated = Emulated::new(*images_per_second).of_parameters(parameters);
            (Trainer::Emulated(emulated), None, Progress::default())
        }
    };
    let _lock = match lock {
        Some(lock) => lock,
        // A run that cannot start must leave nothing behind, so create the folder last.
        None => create(&folder)?,
    };
    let before = record.as_ref().map(|record| record.config.epochs);
    let record = RunRecord {
        stokehold: env!("CARGO_PKG_VERSION").to_owned(),
        created: record.map_or_else(|| unix_now() as u64, |record| record.created),
        config: config.clone(),
        dataset: facts.clone(),
        machine: Machine::here(),
        device: device_name.clone(),
        executor: chosen.clone(),
        sampler,
        workers: None,
        ranks: team.facts(&device_name)?,
    };
    if ranks.is_first() {
        folder.write_record(&record)?;
    }
    if let Some(before) =
        before.filter(|before| *before < config.epochs && config.schedule.depends_on_epochs())
    {
        observer.event(Event::Warning(format!(
            "the run has {} epochs now instead of {before}: from here on the learning rate is that of the longer run",
            config.epochs
        )));
    }
    // Before the run is said to begin, later lines of an earlier start are gone.
    let mut metrics = None;
    if ranks.is_first() {
        let (log, damaged) = MetricsLog::open(folder.metrics(), &progress)?;
        if let Some(warning) = damaged {
            observer.event(Event::Warning(warning));
        }
        metrics = Some(log);
    }
    observer.event(Event::Started {
        epochs: config.epochs,
        batches: loader.batches_per_epoch(),
        images: facts.train,
        val_images: facts.val.filter(|_| config.trainer.learns()),
        classes,
        workers: loader.workers(),
        device: &device_name,
        learns: config.trainer.learns(),
        replaced_head,
    });
    if let Some(why) = &chosen.why {
        let executor = chosen.executor;
        observer.event(Event::Chosen { executor, why });
    }
    announce(&latest, resuming, observer);
    let sampler = start_sampler(&folder, ranks, observer)?;
    let saved = latest.whole.map(|(_, progress)| place(&progress));
    let saved = world::share(ranks, Some(&saved))?;
    let mut training = Training {
        config,
        team,
        asked: false,
        times: RankTimes::default(),
        step_ended: None,
        objective,
        executor: chosen.executor,
        workers: loader.workers(),
        record,
        loader,
        cache,
        shards,
        val_loader,
        decoded: None,
        model_facts,
        checkpoints,
        metrics,
        spans: RunTimeline::start(&folder, observer)?,
        folder,
        device_name,
        k: config.topk.min(classes),
        saved,
        progress,
        observer,
        stop,
    };
    let (before, begin, cpu) = (Contention::now(), Instant::now(), ProcessTime::try_now().ok());
    let trainer = training.run(trainer)?;
    let others = before.and_then(|before| before.others_cores_until(Contention::now()?));
    let own = cpu.and_then(|cpu| cpu.try_elapsed().ok()).unwrap_or_default();
    let own = own.as_secs_f64() / begin.elapsed().as_secs_f64();
    training.finish(trainer, sampler, (own, others))
}

/// The learner and the progress with which a run begins or continues. Rank 0 has them, and sends them to the others; the number is
/// the classes of the weights that the configuration names, if the last layer had to be replaced.
fn begin(
    config: &TrainConfig,
    classes: usize,
    plain: Device,
    latest: &Latest,
    ranks: &Ranks,
) -> Result<(Learner, Option<usize>, Progress), TrainError> {
    let checkpoint = latest.whole.as_ref().map(|(path, _)| path.as_path());
    if !ranks.is_first() {
        let packed = ranks.broadcast(Vec::new())?;
        let scratch = Scratch::new()?;
        let sent = scratch.path().join("start");
        world::unpack(&packed, &sent).map_err(|source| TrainError::Io {
            path: sent.clone(),
            source,
        })?;
        let progress = checkpoint::progress(&sent)?;
        let (learner, _) = Learner::of_run(config, classes, plain, Some(&sent))?;
        return Ok((learner, None, progress));
    }
    let (learner, replaced_head) = Learner::of_run(config, classes, plain, checkpoint)?;
    let progress = latest
        .whole
        .as_ref()
        .map_or_else(Progress::default, |(_, progress)| progress.clone());
    if !ranks.are_alone() {
        let scratch = Scratch::new()?;
        let mut folder = Checkpoints::open(scratch.path().to_owned(), 1)?;
        let path = folder.save(
            &learner.model,
            &learner.optimizer,
            learner.ema.as_ref(),
            &progress,
        )?;
        let packed = world::pack(&path).map_err(|source| TrainError::Io { path, source })?;
        ranks.broadcast(packed)?;
    }
    Ok((learner, replaced_head, progress))
}

/// Creates the folder of a run, and locks it.
fn create(folder: &RunFolder) -> Result<Lock, TrainError> {
    let lock = folder.lock()?;
    if folder.record().exists() {
        // The folder did not exist at the first check: another process has created the run meanwhile.
        return Err(TrainError::RunExists {
            path: folder.path().to_owned(),
        });
    }
    Ok(lock)
}

/// Says which checkpoint the run continues from, and which ones it cannot.
fn announce(latest: &Latest, resuming: bool, observer: &mut dyn Observer) {
    for warning in latest.warnings() {
        observer.event(Event::Warning(warning));
    }
    match &latest.whole {
        Some((path, progress)) => observer.event(Event::Resumed {
            checkpoint: path,
            step: progress.step,
        }),
        None if resuming && latest.damaged.is_empty() => observer.event(Event::NothingToResume),
        None => {}
    }
}

/// A run between its first and its last step.
struct Training<'a> {
    config: &'a TrainConfig,
    team: Team,
    /// Whether the ranks have agreed to stop.
    asked: bool,
    /// Where this rank's time went.
    times: RankTimes,
    /// When the last step of the epoch that ranks made together ended.
    step_ended: Option<Instant>,
    objective: Objective,
    folder: RunFolder,
    device_name: String,
    executor: Executor,
    /// The loader's threads that the observer knows of.
    workers: usize,
    record: RunRecord,
    loader: Loader,
    cache: Option<Arc<Cache>>,
    /// Whether the training images are prepared shards.
    shards: bool,
    val_loader: Option<Loader>,
    model_facts: ModelFacts,
    checkpoints: Checkpoints,
    /// Of rank 0.
    metrics: Option<MetricsLog>,
    spans: RunTimeline,
    k: usize,
    /// What decoded the training images since the run was started or resumed, if the executor is `gpu`.
    decoded: Option<DecodedBy>,
    /// The run's position at the latest checkpoint.
    saved: Option<(usize, u64)>,
    progress: Progress,
    observer: &'a mut dyn Observer,
    stop: &'a AtomicBool,
}

impl Training<'_> {
    /// Trains until the last epoch is done or the run is stopped.
    fn run(&mut self, mut trainer: Trainer) -> Result<Trainer, TrainError> {
        while self.remaining() {
            trainer = self.train_epoch(trainer)?;
            if self.stopped() {
                self.checkpoint(&trainer)?;
                break;
            }
            self.tell_workers();
            let Some(record) = self.end_epoch(&trainer)? else {
                // Stopped during validation, which the resumed run repeats.
                self.checkpoint(&trainer)?;
                break;
            };
            self.log(MetricsLine::epoch(&record))?;
            self.progress.finish_epoch(record);
            let best = self.progress.best.is_some_and(|best| best.epoch == record.epoch);
            let best = best && self.config.trainer.learns();
            self.observer.event(Event::EpochDone {
                record: &record,
                best,
            });
            // What rank 0 writes now, the others wait for in the next step.
            self.step_ended = Some(Instant::now());
            self.checkpoint(&trainer)?;
        }
        Ok(trainer)
    }

    /// Tells the observer if the loader has another number of threads now.
    fn tell_workers(&mut self) {
        let (loader, known) = (&self.loader, self.workers);
        self.workers = loader.workers();
        if self.workers != known
            && let Some(why) = loader.workers_why()
        {
            self.observer.event(Event::Workers {
                workers: self.workers,
                why: &why,
            });
        }
    }

    fn remaining(&self) -> bool {
        (self.progress.epochs.len() as u64) < self.config.epochs
    }

    fn stopped(&self) -> bool {
        match self.team.ranks.are_alone() {
            true => self.stop.load(Ordering::Relaxed),
            // A rank that stops by itself would let the others wait.
            false => self.asked,
        }
    }

    /// Makes the steps of the current epoch, from the current position to its end or until stopped.
    fn train_epoch(&mut self, mut trainer: Trainer) -> Result<Trainer, TrainError> {
        let epoch_began = Instant::now();
        let mut turn = epoch_began;
        let mut batches = match self.progress.position.clone() {
            Some(position) => self.loader.resume(position)?,
            None => self.loader.epoch(self.progress.epochs.len() as u64),
        };
        self.spans.phase(span::LOADER_START, epoch_began, None);
        while !self.stopped() {
            if !self.team.is_alone() {
                let stepped;
                (trainer, stepped) = self.step_of_parts(trainer, &mut *batches, turn)?;
                if !stepped {
                    break;
                }
                self.checkpoint_if_due(&trainer)?;
                turn = Instant::now();
                continue;
            }
            let begin = Instant::now();
            let stop = self.stop;
            let stopped = || stop.load(Ordering::Relaxed);
            let bad = &mut self.progress.bad_training;
            let Some(batch) = next_batch(&mut *batches, bad, self.observer, &stopped)? else {
                break;
            };
            self.spans.waited(begin, self.progress.step + 1);
            let waited = turn.elapsed().as_secs_f64();
            trainer = self.step(trainer, batch, &*batches, turn, waited)?;
            self.checkpoint_if_due(&trainer)?;
            turn = Instant::now();
        }
        self.spans.phase(span::EPOCH, epoch_began, Some(self.epoch()));
        Ok(trainer)
    }

    /// Writes a checkpoint within an epoch, if the number of steps asks for it.
    fn checkpoint_if_due(&mut self, trainer: &Trainer) -> Result<(), TrainError> {
        let due = |steps| self.progress.step.is_multiple_of(steps);
        match self.config.checkpoint_steps.is_some_and(due) {
            true => self.checkpoint(trainer),
            false => Ok(()),
        }
    }

    /// Makes one step with the other ranks, or in several parts; false at the end of the epoch. `turn` is when the trainer
    /// became free for it.
    fn step_of_parts(
        &mut self,
        mut trainer: Trainer,
        batches: &mut dyn BatchStream,
        turn: Instant,
    ) -> Result<(Trainer, bool), TrainError> {
        let (entered, stepped_before) = (Instant::now(), self.step_ended.take());
        let step = self.progress.step;
        let at = self.at(step);
        let (mut sum, mut loading, mut computing, mut waiting) =
            (Sum::default(), Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for part in 0..self.config.accumulate {
            let begin = Instant::now();
            self.team.now(Phase::Loading);
            // Ranks stop together, after a step.
            let bad = &mut self.progress.bad_training;
            let next = next_batch(batches, bad, self.observer, &|| false)?;
            let Some(batch) = next else {
                return Ok((trainer, false));
            };
            self.spans.waited(begin, step + 1);
            self.spans.loaded(&batch.spans, step + 1);
            loading += begin.elapsed();
            let (begin, blocked) = (Instant::now(), self.team.ranks.blocked());
            self.team.now(Phase::Computing);
            if self.team.can_compute(batch.labels.len())? {
                if let Some(decoded) = DecodedBy::of(&batch) {
                    *self.decoded.get_or_insert_default() += decoded;
                }
                let part = self.team.part(part);
                trainer.part(&self.objective, batch, (step, part), &self.team, &mut sum)?;
            }
            self.spans.stepped(begin, step + 1);
            // Synchronised batch normalisation waits for the other ranks, too.
            let blocked = self.team.ranks.blocked().saturating_sub(blocked);
            waiting += blocked;
            computing += begin.elapsed().saturating_sub(blocked);
        }
        let asked = self.stop.load(Ordering::Relaxed);
        let begin = Instant::now();
        let whole = self.team.whole(&sum, asked)?;
        self.spans.phase(span::RANKS_WAIT, begin, Some(step + 1));
        self.asked |= whole.stop;
        // All images are bad, or too few for synchronised batch normalisation.
        if whole.images == 0 {
            self.progress.position = Some(batches.state());
            return Ok((trainer, true));
        }
        let begin = Instant::now();
        let (trainer, loss) = trainer.step_of_parts(&self.objective, sum, &whole, &self.team, at)?;
        self.spans.phase(span::REDUCE, begin, Some(step + 1));
        let between = stepped_before.map_or(Duration::ZERO, |ended| entered.duration_since(ended));
        waiting += whole.waited;
        let parts = [loading, computing, waiting, begin.elapsed(), between];
        self.times.add(parts);
        self.step_ended = Some(Instant::now());
        self.stepped(loss, whole.images, batches, (turn, loading.as_secs_f64()), at)?;
        Ok((trainer, true))
    }

    /// Makes one step and adds it to the progress. `turn` is when the trainer became free for it.
    fn step(
        &mut self,
        trainer: Trainer,
        batch: Batch,
        batches: &dyn BatchStream,
        turn: Instant,
        waited: f64,
    ) -> Result<Trainer, TrainError> {
        self.spans.loaded(&batch.spans, self.progress.step + 1);
        let at = self.at(self.progress.step);
        if let Some(decoded) = DecodedBy::of(&batch) {
            *self.decoded.get_or_insert_default() += decoded;
        }
        let (begin, images) = (Instant::now(), batch.labels.len());
        let (trainer, loss) = trainer.step(&self.objective, batch, at)?;
        self.spans.stepped(begin, self.progress.step + 1);
        self.stepped(loss, images, batches, (turn, waited), at)?;
        Ok(trainer)
    }

    /// The place of a step, counted from 0.
    fn at(&self, step: u64) -> At {
        At {
            step,
            lr: self.lr(step),
            averaging: self.averaging(step),
        }
    }

    /// Adds a step to the progress. The trainer was free for it since `turn`, and waited this many seconds for its batch.
    fn stepped(
        &mut self,
        loss: f32,
        images: usize,
        batches: &dyn BatchStream,
        (turn, waited): (Instant, f64),
        at: At,
    ) -> Result<(), TrainError> {
        self.progress.step += 1;
        if !loss.is_finite() {
            return Err(TrainError::Diverged {
                step: self.progress.step,
                loss,
                lr: at.lr,
            });
        }
        let position = batches.state();
        self.observer.event(Event::Step {
            epoch: self.epoch(),
            batch: position.batch,
            loss,
            images,
        });
        self.progress.position = Some(position);
        let seconds = turn.elapsed().as_secs_f64();
        self.progress.epoch.add(loss, images, seconds, waited);
        self.progress.interval.add(loss, images, seconds, waited);
        if self.progress.step.is_multiple_of(self.config.log_every) {
            self.log_interval()?;
        }
        Ok(())
    }

    fn log(&mut self, line: MetricsLine) -> Result<(), TrainError> {
        let line = match self.config.trainer.learns() {
            true => line,
            false => line.without_loss(),
        };
        match &mut self.metrics {
            Some(metrics) => metrics.write(&line),
            None => Ok(()),
        }
    }

    /// Writes the line of the current interval, if it has a step.
    fn log_interval(&mut self) -> Result<(), TrainError> {
        let sums = std::mem::take(&mut self.progress.interval);
        if sums.images == 0 {
            return Ok(());
        }
        let (epoch, step) = (self.epoch(), self.progress.step);
        let lr = self.lr(step.saturating_sub(1));
        self.log(MetricsLine::train(epoch, step, lr, &sums))?;
        self.observer.event(Event::Logged {
            epoch,
            step,
            loss: sums.mean_loss(),
            lr,
            images_per_second: sums.images_per_second(),
            wait_share: sums.wait_share(),
        });
        self.tell_cache();
        Ok(())
    }

    fn tell_cache(&mut self) {
        let notices = self.cache.as_ref().map(|cache| cache.notices());
        for line in notices.into_iter().flatten() {
            self.observer.event(Event::Warning(line));
        }
    }

    /// Validates and records an epoch after its last step; `None` if stopped during validation.
    fn end_epoch(&mut self, trainer: &Trainer) -> Result<Option<EpochRecord>, TrainError> {
        self.log_interval()?;
        self.share_bad_images()?;
        let (mut validation, mut ema) = (None, None);
        if let Some(learner) = trainer.learner() {
            self.team.check_weights(&learner.model, self.progress.step)?;
        }
        if let Some(learner) = trainer.learner().filter(|_| self.val_loader.is_some()) {
            let begin = Instant::now();
            self.team.now(Phase::Validating);
            let model = self.team.with_statistics_of_first(learner.model.valid())?;
            validation = self.validate(&model, &learner.device)?;
            if let (Some(average), Some(_)) = (&learner.ema, validation) {
                let model = self.team.with_statistics_of_first(average.model().clone())?;
                ema = self.validate(&model, &learner.device)?;
            }
            self.spans
                .phase(span::VALIDATION, begin, Some(self.progress.step));
            if validation.is_none() || ema.is_some() != learner.ema.is_some() {
                return Ok(None);
            }
        }
        let step = self.progress.step;
        Ok(Some(EpochRecord {
            epoch: self.epoch(),
            step,
            lr: self.lr(step.saturating_sub(1)),
            sums: self.progress.epoch,
            validation,
            ema,
        }))
    }

    /// The model's results on the validation set; `None` if there is none, or if stopped meanwhile.
    fn validate(&mut self, model: &Network, device: &Device) -> Result<Option<Validation>, TrainError> {
        let Some(loader) = &self.val_loader else {
            return Ok(None);
        };
        let bad = &mut self.progress.bad_validation;
        // Ranks validate their shares to the end.
        let never = AtomicBool::new(false);
        let stop = match self.team.ranks.are_alone() {
            true => self.stop,
            false => &never,
        };
        let of = (model, device, &self.team.ranks);
        let validation = evaluate(of, loader, self.k, bad, self.observer, &self.spans, stop)?;
        self.share_bad_images()?;
        Ok(validation)
    }

    /// Puts the other ranks' bad images into the progress, so that rank 0's has all.
    fn share_bad_images(&mut self) -> Result<(), TrainError> {
        let ranks = &self.team.ranks;
        for list in [&mut self.progress.bad_training, &mut self.progress.bad_validation] {
            if !ranks.are_alone() {
                let mut all = world::gather(ranks, list)?.concat();
                all.sort_by_key(|bad| bad.sample);
                all.dedup_by_key(|bad| bad.sample);
                *list = all;
            }
        }
        let limit = self.config.bad_image_limit;
        let last = self.progress.bad_training.last();
        match last.filter(|_| !ranks.are_alone() && self.progress.bad_training.len() > limit) {
            Some(last) => {
                let last = last.clone();
                Err(LoaderError::TooManyBadImages { limit, last }.into())
            }
            None => Ok(()),
        }
    }

    fn checkpoint(&mut self, trainer: &Trainer) -> Result<(), TrainError> {
        let place = place(&self.progress);
        let Some(learner) = trainer.learner() else {
            return Ok(());
        };
        if self.config.keep_checkpoints > 0 && self.saved != Some(place) {
            self.share_bad_images()?;
            self.team.now(Phase::Writing);
            self.saved = Some(place);
            if !self.team.ranks.is_first() {
                return Ok(());
            }
            let begin = Instant::now();
            let path = self.checkpoints.save(
                &learner.model,
                &learner.optimizer,
                learner.ema.as_ref(),
                &self.progress,
            )?;
            self.spans
                .phase(span::CHECKPOINT, begin, Some(self.progress.step));
            self.observer.event(Event::Checkpoint(&path));
        }
        Ok(())
    }

    /// The number of the current epoch, from 1.
    fn epoch(&self) -> u64 {
        self.progress.epochs.len() as u64 + 1
    }

    /// The learning rate of a step, counted from 0.
    fn lr(&self, step: u64) -> f64 {
        let per_epoch = self.loader.batches_per_epoch() as u64;
        self.config
            .schedule
            .lr(self.config.lr, step, per_epoch, self.config.epochs)
    }

    /// What happens to the moving average after a step, counted from 0.
    fn averaging(&self, step: u64) -> Averaging {
        let config = self.config;
        let Some(ema) = config.ema else {
            return Averaging::No;
        };
        let before = self.progress.epochs.last().map_or(0, |epoch| epoch.step);
        let keep = ema.keep(config.batch_size, config.epochs);
        ema.after(
            self.epoch() - 1,
            step - before,
            config.schedule.warmup_epochs,
            keep,
        )
    }

    /// Saves the final model, measures the ceilings, and makes the summary. Other programs kept
    /// `others_cores` cores busy meanwhile, and this one `own_cores`.
    fn finish(
        mut self,
        trainer: Trainer,
        sampler: Option<Sampler>,
        (own_cores, others_cores): (f64, Option<f64>),
    ) -> Result<RunSummary, TrainError> {
        let interrupted = self.remaining();
        let (learns, emulated) = (self.config.trainer.learns(), trainer.used());
        let stopped = self.stopped();
        let measuring = !interrupted && !stopped && self.config.ceiling_batches > 0;
        self.team.now(Phase::Writing);
        if let Some(learner) = trainer.learner()
            && !interrupted
            && self.team.ranks.is_first()
        {
            let metadata = self.model_facts.metadata();
            if let Some(ema) = &learner.ema {
                weights::save_safetensors(ema.model(), &self.folder.ema(), metadata.clone())?;
            }
            weights::save_safetensors(&learner.model, &self.folder.model(), metadata)?;
        }
        // A failure to store samples must not lose the training.
        let system = sampler.and_then(|sampler| match sampler.stop(Ending::default()) {
            Ok(summary) => Some(summary),
            Err(error) => {
                let warning = format!("the samples of the machine are not complete: {error}");
                self.observer.event(Event::Warning(warning));
                None
            }
        });
        let stages = self.spans.finish(self.observer);
        // Before the ceilings, which are not part of the run.
        let (loader, costs) = (&self.loader, self.loader.costs());
        let (num_workers, why) = (loader.workers(), loader.workers_why());
        let elsewhere = loader.options().elsewhere.as_ref();
        let made = elsewhere.map(|servers| servers.made()).unwrap_or_default();
        if let Some(why) = why {
            let workers = num_workers;
            self.record.workers = Some(ChosenWorkers { workers, why });
            if self.team.ranks.is_first() {
                self.folder.write_record(&self.record)?;
            }
        }
        let mut ceilings = None;
        if measuring {
            self.observer.event(Event::MeasuringCeilings);
            self.team.now(Phase::Measuring);
            ceilings = measure(self.config, &self.objective, &self.loader, trainer)?;
        }
        let (of_loader, of_trainer) = self.team.ceilings(ceilings)?.unzip();
        let ranks = self.team.times(&self.times, own_cores, others_cores)?;
        let all = world::gather(&self.team.ranks, &(num_workers, made))?;
        let num_workers = all.iter().map(|(workers, _)| workers).sum();
        let mut batches_by_server = BTreeMap::new();
        for (server, batches) in all.into_iter().flat_map(|(_, made)| made) {
            *batches_by_server.entry(server).or_default() += batches;
        }
        let (cores, others_cores) = match &ranks {
            Some(ranks) if !self.record.ranks.is_empty() => of_machines(&self.record.ranks, ranks),
            _ => (Machine::here().cores as u64, others_cores),
        };
        let total = self.progress.total();
        let epochs = &self.progress.epochs;
        let seconds: f64 = epochs.iter().map(|epoch| epoch.sums.seconds).sum();
        let last = epochs.last();
        let summary = RunSummary {
            run_dir: self.folder.path().to_owned(),
            arch: self.config.arch,
            executor: self.executor,
            device: self.device_name,
            epochs: epochs.len() as u64,
            steps: self.progress.step,
            images: total.images,
            seconds_per_epoch: last.map(|_| seconds / epochs.len() as f64),
            images_per_second: total.images_per_second(),
            wait_share: total.wait_share(),
            loader_ceiling: of_loader.map(|ceiling| ceiling.images_per_second),
            trainer_ceiling: of_trainer.map(|ceiling| ceiling.images_per_second),
            loader_cpu_seconds: of_loader.and_then(|ceiling| ceiling.cpu_seconds),
            trainer_cpu_seconds: of_trainer.and_then(|ceiling| ceiling.cpu_seconds),
            trainer_delay_seconds: of_trainer.map_or(0.0, |ceiling| ceiling.delay_seconds),
            cores,
            others_cores,
            emulated,
            decoded: self.decoded,
            stages,
            cpu: system.and_then(|system| system.cpu),
            peak_rss: peak_rss(),
            train_loss: last.filter(|_| learns).map(|epoch| epoch.sums.mean_loss()),
            validation: last.and_then(|epoch| epoch.validation),
            ema: last.and_then(|epoch| epoch.ema),
            best: self.progress.best.filter(|_| learns),
            bad_images: self.progress.bad_training.len(),
            bad_val_images: self.progress.bad_validation.len(),
            interrupted,
            ranks,
            batches_by_server,
            cache: self.cache.as_ref().map(|cache| cache.facts()),
        };
        if !self.team.ranks.is_first() {
            return Ok(summary);
        }
        self.folder.write_summary(&summary)?;
        let images = last.map_or(0, |epoch| epoch.sums.images);
        let loaded = (self.record.workers.as_ref(), costs);
        let workload = workload::of(self.config, &summary, loaded, num_workers, self.shards, images);
        workload::store(&self.folder, workload)?;
        Ok(summary)
    }
}

/// The cores of all machines on which ranks train, and how many of these other programs kept busy.
fn of_machines(facts: &[RankFacts], ranks: &RanksSummary) -> (u64, Option<f64>) {
    let mut hosts = BTreeSet::new();
    let firsts = std::iter::zip(facts, &ranks.times).filter(|(facts, _)| hosts.insert(&facts.host));
    let machines = firsts.map(|(facts, times)| (facts.machine.cores as u64, times.others_cores));
    let (cores, others): (Vec<u64>, Vec<Option<f64>>) = machines.unzip();
    (cores.iter().sum(), others.into_iter().sum())
}

/// Identifies the state of a run: epochs finished and steps made.
fn place(progress: &Progress) -> (usize, u64) {
    (progress.epochs.len(), progress.step)
}

/// Measures the loader alone and the trainer alone.
fn measure(
    config: &TrainConfig,
    objective: &Objective,
    loader: &Loader,
    trainer: Trainer,
) -> Result<Option<(Ceiling, Ceiling)>, TrainError> {
    // An epoch that was not trained on, as good as any other.
    let Some((of_loader, batch)) = ceilings::of_loader(loader, config.epochs, config.ceiling_batches)? else {
        return Ok(None);
    };
    let of_trainer = ceilings::of_trainer(trainer, objective, &batch, config.ceiling_batches)?;
    Ok(Some((of_loader, of_trainer)))
}

fn start_sampler(
    folder: &RunFolder,
    ranks: &Ranks,
    observer: &mut dyn Observer,
) -> Result<Option<Sampler>, TrainError> {
    use stokehold_profile::ProfileError;
    let own = &ranks.hosts()[ranks.rank()];
    let are_here = ranks.hosts().iter().filter(|host| *host == own).count() > 1;
    // The other ranks of this machine are the run, too, and no other programs: the launcher's process there has started all of them.
    let tree = match std::os::unix::process::parent_id() {
        launcher if are_here && launcher > 1 => Tree::Below(launcher),
        _ => Tree::Of(std::process::id()),
    };
    let settings = Settings::of_this_program(tree);
    match Sampler::start(&folder.recording(), settings) {
        Ok(sampler) => Ok(Some(sampler)),
        // Another recorder may be running in the run's folder, or have left its samples there.
        Err(
            error @ (ProfileError::NotSupported { .. }
            | ProfileError::Recording { .. }
            | ProfileError::Foreign { .. }),
        ) => {
            observer.event(Event::Warning(error.to_string()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What ranks but the first report: the others' events are rank 0's, too.
struct Troubles<'a>(&'a mut dyn Observer);

impl Observer for Troubles<'_> {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::BadImage(_) | Event::Warning(_)) {
            self.0.event(event);
        }
    }
}
