//! The training loop.
//!
//! An epoch is its training steps, then validation, then a checkpoint. Between two steps the run is entirely
//! described by the model, the optimiser, the moving average if there is one, and the [`Progress`]. A checkpoint stores
//! them, and resuming restores them. The loss is fetched in every step, so that the time of a step is the device's, and the time
//! between two steps is the trainer's waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use stokehold_base::clock::unix_now;
use stokehold_base::lock::Lock;
use stokehold_profile::{Contention, Ending, Machine, Sampler, Settings, Tree, peak_rss, span};
use stokehold_storage::{Dataset, Images};

use crate::ceilings::Ceiling;
use crate::checkpoint::{Checkpoints, Latest};
use crate::choice::choose;
use crate::config::TrainConfig;
use crate::ema::Averaging;
use crate::emulated::{Emulated, TrainerChoice};
use crate::evaluate::{evaluate, next_batch};
use crate::executor::AnyExecutor;
use crate::feed::{DecodedBy, FedBatch, Feed, FeedBatches, Maker};
use crate::infer::ModelFacts;
use crate::learner::{At, Learner, Objective, Trainer, Truth};
use crate::model::Network;
use crate::observer::{Event, Observer};
use crate::progress::{EpochRecord, Progress, Validation};
use crate::run::{ChosenWorkers, DatasetFacts, MetricsLine, MetricsLog, RunFolder, RunRecord};
use crate::timeline::RunTimeline;
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
    config.check()?;
    let folder = RunFolder::new(&config.run_dir);
    let lock = lock_if_there(&folder)?;
    if folder.record().exists() {
        return Err(TrainError::RunExists {
            path: config.run_dir.clone(),
        });
    }
    start(config, (folder, lock), dataset, (None, None), observer, stop)
}

/// Continues the run in `config.run_dir` from its latest checkpoint, or starts it if there is none. Returns
/// the summary of a finished run unchanged.
///
/// From there on the losses and accuracies equal those of an uninterrupted run, to the bit, if the device
/// computes deterministically. The CPU does with the same number of threads: its sums have a fixed order,
/// except those over a whole array of more than four million numbers, which a ResNet of up to 2048 classes
/// does not have.
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
    config.check()?;
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
                if let Some(summary) = summary?.filter(|summary| !summary.interrupted) {
                    return Ok(summary);
                }
            }
        }
    }
    let lock = lock_if_there(&folder)?;
    start(config, (folder, lock), dataset, (record, damaged), observer, stop)
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

/// Sets everything up, then trains. A run that goes on has its record, and the error of a summary that cannot be
/// read.
fn start(
    config: &TrainConfig,
    (folder, lock): (RunFolder, Option<Lock>),
    dataset: Dataset,
    (record, damaged): (Option<RunRecord>, Option<TrainError>),
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<RunSummary, TrainError> {
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
    if !resuming {
        refuse_remains(&folder, &latest)?;
    }
    if let Some(error) = damaged {
        // The checkpoints are worth more than a summary, which is made again from them. Without one the whole run
        // would be trained again over its results.
        if latest.whole.is_none() {
            return Err(error);
        }
        let warning = format!("{error}; the run goes on without it, and writes it again");
        observer.event(Event::Warning(warning));
    }
    let plain = device::open(config.device)?;
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
    let chosen = choose(config, &dataset.train, classes, &plain, stop)?;
    tracing::info!(executor = %chosen.executor, why = chosen.why.as_deref(), device = device_name, "chosen");
    let objective = config.objective(config.class_weights.of(&dataset.train, classes)?);
    let maker = Maker::open(chosen.executor, config.gpu, &plain)?;
    let feed = config.feed(dataset.train, true, &maker)?;
    pixels::check_batches(config, &feed)?;
    let sampler = feed.loader().start_of(0).order.sampler;
    // The files that the configuration names may have changed since.
    if let Some(before) = record.as_ref().and_then(|record| record.sampler.as_ref())
        && *before != sampler
    {
        let changes = vec![format!("the sampler was {before} and is {sampler} now")];
        return Err(TrainError::Changed {
            path: config.run_dir.clone(),
            changes,
        });
    }
    let val_feed = dataset
        .val
        .filter(|_| config.trainer.learns())
        .map(|val| config.feed(val, false, &maker))
        .transpose()?;

    let whole = latest
        .whole
        .as_ref()
        .map(|(path, progress)| (path.display(), progress.step));
    tracing::info!(resuming, latest = ?whole.map(|(path, step)| format!("{path} at step {step}")), "checkpoints");
    let checkpoint = latest.whole.as_ref().map(|(path, _)| path.as_path());
    let (trainer, replaced_head) = match &config.trainer {
        TrainerChoice::Burn => {
            let (learner, replaced_head) = Learner::of_run(config, classes, plain, checkpoint)?;
            (Trainer::Burn(Box::new(learner)), replaced_head)
        }
        TrainerChoice::Emulated {
            images_per_second, ..
        } => (Trainer::Emulated(Emulated::new(*images_per_second)), None),
    };
    let progress = match &latest.whole {
        Some((_, progress)) => progress.clone(),
        None => Progress::default(),
    };
    let _lock = match lock {
        Some(lock) => lock,
        // A run that cannot start must leave nothing behind, so create the folder last.
        None => create(&folder)?,
    };
    let record = RunRecord {
        stokehold: env!("CARGO_PKG_VERSION").to_owned(),
        created: record.map_or_else(|| unix_now() as u64, |record| record.created),
        config: config.clone(),
        dataset: facts.clone(),
        machine: Machine::here(),
        device: device_name.clone(),
        executor: Some(chosen.clone()),
        sampler: Some(sampler),
        workers: None,
    };
    folder.write_record(&record)?;
    observer.event(Event::Started {
        epochs: config.epochs,
        batches: feed.loader().batches_per_epoch(),
        images: facts.train,
        val_images: facts.val.filter(|_| config.trainer.learns()),
        classes,
        workers: feed.loader().workers(),
        device: &device_name,
        learns: config.trainer.learns(),
        replaced_head,
    });
    if let Some(why) = &chosen.why {
        let executor = chosen.executor;
        observer.event(Event::Chosen { executor, why });
    }
    announce(&latest, resuming, observer);
    let (metrics, damaged) = MetricsLog::open(folder.metrics(), &progress)?;
    if let Some(warning) = damaged {
        observer.event(Event::Warning(warning));
    }
    let sampler = start_sampler(&folder, observer)?;
    let mut training = Training {
        config,
        objective,
        executor: chosen.executor,
        workers: feed.loader().workers(),
        record,
        feed,
        shards,
        val_feed,
        decoded: None,
        model_facts,
        checkpoints,
        metrics,
        spans: RunTimeline::start(&folder, observer)?,
        folder,
        device_name,
        k: config.topk.min(classes),
        saved: latest.whole.map(|(_, progress)| place(&progress)),
        progress,
        observer,
        stop,
    };
    let before = Contention::now();
    let trainer = training.run(trainer)?;
    let others = before.and_then(|before| before.others_cores_until(Contention::now()?));
    training.finish(trainer, sampler, others)
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

/// Says which checkpoint the run goes on from, and which ones it cannot.
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
    objective: Objective,
    folder: RunFolder,
    device_name: String,
    executor: AnyExecutor,
    /// The loader's threads that the observer knows of.
    workers: usize,
    record: RunRecord,
    feed: Feed,
    /// Whether the training images are prepared shards.
    shards: bool,
    val_feed: Option<Feed>,
    model_facts: ModelFacts,
    checkpoints: Checkpoints,
    metrics: MetricsLog,
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
            self.checkpoint(&trainer)?;
        }
        Ok(trainer)
    }

    /// Tells the observer if the loader has another number of threads now.
    fn tell_workers(&mut self) {
        let (loader, known) = (self.feed.loader(), self.workers);
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
        self.stop.load(Ordering::Relaxed)
    }

    /// Makes the steps of the current epoch, from the current position to its end or until stopped.
    fn train_epoch(&mut self, mut trainer: Trainer) -> Result<Trainer, TrainError> {
        let epoch_began = Instant::now();
        let mut turn = epoch_began;
        let mut batches = match self.progress.position.clone() {
            Some(position) => self.feed.resume(position)?,
            None => self.feed.epoch(self.progress.epochs.len() as u64),
        };
        self.spans.phase(span::LOADER_START, epoch_began, None);
        while !self.stopped() {
            let begin = Instant::now();
            let Some(batch) = next_batch(&mut batches, &mut self.progress.bad_training, self.observer)?
            else {
                break;
            };
            self.spans.waited(begin, self.progress.step + 1);
            let waited = turn.elapsed().as_secs_f64();
            trainer = self.step(trainer, batch, &batches, turn, waited)?;
            if self
                .config
                .checkpoint_steps
                .is_some_and(|steps| self.progress.step.is_multiple_of(steps))
            {
                self.checkpoint(&trainer)?;
            }
            turn = Instant::now();
        }
        self.spans.phase(span::EPOCH, epoch_began, Some(self.epoch()));
        Ok(trainer)
    }

    /// Makes one step and adds it to the progress. `turn` is when the trainer became free for it.
    fn step(
        &mut self,
        trainer: Trainer,
        batch: FedBatch,
        batches: &FeedBatches,
        turn: Instant,
        waited: f64,
    ) -> Result<Trainer, TrainError> {
        let FedBatch {
            images,
            shape,
            labels,
            masks,
            spans,
            ..
        } = batch;
        self.spans.loaded(&spans, self.progress.step + 1);
        let step = self.progress.step;
        let at = At {
            step,
            lr: self.lr(step),
            averaging: self.averaging(step),
        };
        if let Some(decoded) = images.decoded_by() {
            *self.decoded.get_or_insert_default() += decoded;
        }
        let images = images.into_input();
        let begin = Instant::now();
        let truth = Truth {
            labels: &labels,
            masks: &masks,
        };
        let (trainer, loss) = trainer.step(&self.objective, images, shape, truth, at)?;
        self.progress.step += 1;
        self.spans.stepped(begin, self.progress.step);
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
            images: labels.len(),
        });
        self.progress.position = Some(position);
        let seconds = turn.elapsed().as_secs_f64();
        self.progress.epoch.add(loss, labels.len(), seconds, waited);
        self.progress.interval.add(loss, labels.len(), seconds, waited);
        if self.progress.step.is_multiple_of(self.config.log_every) {
            self.log_interval()?;
        }
        Ok(trainer)
    }

    fn log(&mut self, line: MetricsLine) -> Result<(), TrainError> {
        let line = match self.config.trainer.learns() {
            true => line,
            false => line.without_loss(),
        };
        self.metrics.write(&line)
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
        Ok(())
    }

    /// Validates and records an epoch after its last step; `None` if stopped during validation.
    fn end_epoch(&mut self, trainer: &Trainer) -> Result<Option<EpochRecord>, TrainError> {
        self.log_interval()?;
        let (mut validation, mut ema) = (None, None);
        if let Some(learner) = trainer.learner().filter(|_| self.val_feed.is_some()) {
            let begin = Instant::now();
            validation = self.validate(&learner.model.valid(), &learner.device)?;
            if let (Some(average), Some(_)) = (&learner.ema, validation) {
                ema = self.validate(average.model(), &learner.device)?;
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
        let Some(feed) = &self.val_feed else {
            return Ok(None);
        };
        let bad = &mut self.progress.bad_validation;
        evaluate(
            (model, device),
            feed,
            self.k,
            bad,
            self.observer,
            &self.spans,
            self.stop,
        )
    }

    fn checkpoint(&mut self, trainer: &Trainer) -> Result<(), TrainError> {
        let place = place(&self.progress);
        let Some(learner) = trainer.learner() else {
            return Ok(());
        };
        if self.config.keep_checkpoints > 0 && self.saved != Some(place) {
            let begin = Instant::now();
            let path = self.checkpoints.save(
                &learner.model,
                &learner.optimizer,
                learner.ema.as_ref(),
                &self.progress,
            )?;
            self.spans
                .phase(span::CHECKPOINT, begin, Some(self.progress.step));
            self.saved = Some(place);
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
        let per_epoch = self.feed.loader().batches_per_epoch() as u64;
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
    /// `others_cores` cores busy meanwhile.
    fn finish(
        mut self,
        trainer: Trainer,
        sampler: Option<Sampler>,
        others_cores: Option<f64>,
    ) -> Result<RunSummary, TrainError> {
        let interrupted = self.remaining();
        let (learns, emulated) = (self.config.trainer.learns(), trainer.used());
        let measuring = !interrupted && !self.stopped() && self.config.ceiling_batches > 0;
        if let Some(learner) = trainer.learner()
            && !interrupted
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
        let (loader, costs) = (self.feed.loader(), self.feed.loader().costs());
        let (num_workers, why) = (loader.workers(), loader.workers_why());
        if let Some(why) = why {
            let workers = num_workers;
            self.record.workers = Some(ChosenWorkers { workers, why });
            self.folder.write_record(&self.record)?;
        }
        let mut ceilings = None;
        if measuring {
            self.observer.event(Event::MeasuringCeilings);
            ceilings = measure(self.config, &self.objective, &self.feed, trainer)?;
        }
        let (of_loader, of_trainer) = ceilings.unzip();
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
            cores: Machine::here().cores as u64,
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
        };
        self.folder.write_summary(&summary)?;
        let images = last.map_or(0, |epoch| epoch.sums.images);
        let loaded = (self.record.workers.as_ref(), costs);
        let workload = workload::of(self.config, &summary, loaded, num_workers, self.shards, images);
        workload::store(&self.folder, workload)?;
        Ok(summary)
    }
}

/// Identifies the state of a run: epochs finished and steps made.
fn place(progress: &Progress) -> (usize, u64) {
    (progress.epochs.len(), progress.step)
}

/// Measures the loader alone and the trainer alone.
fn measure(
    config: &TrainConfig,
    objective: &Objective,
    feed: &Feed,
    trainer: Trainer,
) -> Result<Option<(Ceiling, Ceiling)>, TrainError> {
    // An epoch that was not trained on, as good as any other.
    let Some((of_loader, batch)) = ceilings::of_loader(feed, config.epochs, config.ceiling_batches)? else {
        return Ok(None);
    };
    let of_trainer = ceilings::of_trainer(trainer, objective, &batch, config.ceiling_batches)?;
    Ok(Some((of_loader, of_trainer)))
}

fn start_sampler(folder: &RunFolder, observer: &mut dyn Observer) -> Result<Option<Sampler>, TrainError> {
    use stokehold_profile::ProfileError;
    let settings = Settings::of_this_program(Tree::Of(std::process::id()));
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
