//! A study: past trials, running trials, and the choice of the next one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use stokehold_base::clock::unix_now as now;
use stokehold_base::lock;

use crate::error::input;
use crate::event::{Event, History, Origin, Outcome, Report, Trial};
use crate::journal::{Journal, NewEvents, Torn};
use crate::spec::{Limits, Spec, check_enqueued};
use crate::strategy::{self, Choice};
use crate::{Space, TuneError, Values, stopping, warm};

/// The journal's file name in a study's folder.
pub const JOURNAL: &str = "journal.jsonl";

/// The version of the journal's lines.
const VERSION: u32 = 1;

/// A trial during which this many processes died is not started again.
const MOST_ATTEMPTS: u32 = 3;

/// A study, open in this process.
#[derive(Debug)]
pub struct Study {
    history: History,
    space: Space,
    worker: Worker,
    place: Option<StudyFolder>,
    /// Whether trials continue when the process that follows them dies.
    is_elsewhere: bool,
}

/// Where a study is stored.
#[derive(Debug)]
struct StudyFolder {
    folder: PathBuf,
    journal: Journal,
    torn: Option<Torn>,
}

/// Identifies this process in the study: a locked file. Other processes see from the lock whether this one is
/// alive.
#[derive(Debug)]
struct Worker {
    name: String,
    file: Option<(PathBuf, File)>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.file {
            // Without its file the worker counts as gone, as it is now.
            let _ = fs::remove_file(path);
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Run this trial.
    Trial(Trial),
    /// Nothing now: either as many trials run as allowed, or their results are needed first. Ask again after
    /// one has ended, or after a while.
    Wait,
    /// The study is finished.
    Finished(End),
}

/// What to do with a trial after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Continue.
    Continue,
    /// Stop it, and tell the study so: it is not promising, or the study is finished.
    Stop,
}

/// Why a study is finished.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    /// All trials were run.
    MaxJobs,
    /// Too many trials failed.
    MaxFailedJobs,
    /// The last trials brought no improvement.
    NoImprovement,
    /// Its time limit has passed.
    MaxRunTime,
    /// An objective is good enough.
    Target,
    /// The model considers no further improvement of more than 1 % likely.
    Converged,
    /// Every combination was tried.
    NothingLeft,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MaxJobs => "all jobs were made",
            Self::MaxFailedJobs => "too many jobs failed",
            Self::NoImprovement => "the last jobs made nothing better",
            Self::MaxRunTime => "its time is over",
            Self::Target => "the target is reached",
            Self::Converged => "no further improvement of more than 1 % is likely",
            Self::NothingLeft => "every combination was tried",
        })
    }
}

impl Study {
    /// A study in memory, lost with the process.
    ///
    /// # Errors
    /// The errors of [`Spec::check`]; a parent does not fit.
    pub fn in_memory(spec: Spec) -> Result<Self, TuneError> {
        let space = spec.check()?;
        let parents = warm::read(&spec, &space)?;
        Ok(Self {
            history: History::new(spec, now(), parents),
            space,
            worker: Worker {
                name: "memory".to_owned(),
                file: None,
            },
            place: None,
            is_elsewhere: false,
        })
    }

    /// Creates a study in a folder, which is created too.
    ///
    /// # Errors
    /// The errors of [`Spec::check`]; a parent does not fit; the study exists.
    pub fn create(folder: &Path, spec: Spec) -> Result<Self, TuneError> {
        let space = spec.check()?;
        let parents = warm::read(&spec, &space)?;
        let path = folder.join(JOURNAL);
        if path.exists() {
            return input(format!(
                "{} has a study already; resume it, or take another folder",
                folder.display()
            ));
        }
        let worker = Worker::new(folder)?;
        let created = now();
        let event = Event::Created {
            version: VERSION,
            time: created,
            spec: Box::new(spec.clone()),
            parents: parents.clone(),
        };
        // Written to a temporary file: a journal without its first line would be invalid.
        let aside = folder.join(format!("{JOURNAL}.{}", worker.name));
        let made = Journal::create(&aside).and_then(|mut journal| journal.append(&[event]));
        let linked = made.and_then(|()| fs::hard_link(&aside, &path).map_err(TuneError::io(&path)));
        fs::remove_file(&aside).map_err(TuneError::io(&aside))?;
        linked?;
        drop(worker);
        Self::open(folder)
    }

    /// Opens an existing study to continue it. Other processes may have it open, too. What a crash left at the
    /// end of its journal is removed; [`torn`](Self::torn) says what it was.
    ///
    /// # Errors
    /// There is none; its journal is damaged, or a newer version wrote in it.
    pub fn open(folder: &Path) -> Result<Self, TuneError> {
        let (history, journal, has_tail) = load(folder)?;
        let space = history.spec.check()?;
        let mut study = Self {
            history,
            space,
            worker: Worker::new(folder)?,
            place: Some(StudyFolder {
                folder: folder.to_owned(),
                journal,
                torn: None,
            }),
            is_elsewhere: false,
        };
        if has_tail {
            // It may be a line that another process is writing. With the lock, it is not.
            study.change(|_| Ok(((), Vec::new())))?;
        }
        Ok(study)
    }

    /// The state of a study, without taking part in it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn look(folder: &Path) -> Result<History, TuneError> {
        load(folder).map(|(history, ..)| history)
    }

    /// Whether a process works on one of the running trials of a study that was looked at. The journal alone does not say that a
    /// process has died.
    ///
    /// # Errors
    /// A worker's file cannot be read.
    pub fn is_worked_on(folder: &Path, history: &History) -> Result<bool, TuneError> {
        for trial in history.running() {
            if is_alive(folder, &trial.worker)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The state, as far as this process has read it.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What this process removed last from the end of the journal: left by a process that was killed, or by a
    /// power cut, while a line was written.
    pub fn torn(&self) -> Option<&Torn> {
        self.place.as_ref().and_then(|place| place.torn.as_ref())
    }

    /// Reads what other processes have written.
    ///
    /// # Errors
    /// The journal cannot be read, or is damaged.
    pub fn refresh(&mut self) -> Result<(), TuneError> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let new = place.journal.read()?;
        take_up(&mut self.history, new, &place.folder)
    }

    /// Runs a function on the latest state, which may append events, while no other process writes.
    fn change<T>(
        &mut self,
        decide: impl FnOnce(&Self) -> Result<(T, Vec<Event>), TuneError>,
    ) -> Result<T, TuneError> {
        if let Some(place) = &mut self.place {
            place.journal.lock()?;
        }
        let result = self.change_locked(decide);
        let unlocked = self.place.as_ref().map_or(Ok(()), |place| place.journal.unlock());
        let result = result?;
        unlocked.map(|()| result)
    }

    fn change_locked<T>(
        &mut self,
        decide: impl FnOnce(&Self) -> Result<(T, Vec<Event>), TuneError>,
    ) -> Result<T, TuneError> {
        if let Some(place) = &mut self.place {
            let mut new = place.journal.read()?;
            let tail = new.tail.take();
            take_up(&mut self.history, new, &place.folder)?;
            if let Some(tail) = tail {
                place.torn = Some(place.journal.cut(tail)?);
            }
        }
        let (result, events) = decide(self)?;
        if let Some(place) = &mut self.place
            && !events.is_empty()
        {
            place.journal.append(&events)?;
        }
        for event in events {
            self.history.apply(event).map_err(TuneError::Input)?;
        }
        Ok(result)
    }

    /// What to do next. A trial whose process has died comes before new ones; then a trial that was stopped
    /// at a rung and is now one of the best there: it keeps its reports and continues after them.
    ///
    /// # Errors
    /// The journal cannot be written, or is damaged.
    pub fn ask(&mut self) -> Result<Ask, TuneError> {
        let decision = self.change(|study| {
            let mut events = Vec::new();
            Ok((study.decide(&mut events)?, events))
        })?;
        Ok(match decision {
            Decision::Trial(number) => Ask::Trial(self.history.trials[number].clone()),
            Decision::Wait => Ask::Wait,
            Decision::Finished(end) => Ask::Finished(end),
        })
    }

    fn decide(&self, events: &mut Vec<Event>) -> Result<Decision, TuneError> {
        let (history, time) = (&self.history, now());
        let mut running = history.running().count();
        if let Some(end) = self.end_now() {
            return Ok(Decision::Finished(end));
        }
        for orphan in self.orphans()? {
            if self.is_elsewhere || orphan.attempt < MOST_ATTEMPTS {
                events.push(Event::Again {
                    trial: orphan.number,
                    worker: self.worker.name.clone(),
                    time,
                });
                return Ok(Decision::Trial(orphan.number));
            }
            let reason = format!("its process died {MOST_ATTEMPTS} times");
            events.push(Event::Told {
                trial: orphan.number,
                outcome: Outcome::Failed { reason },
                time,
            });
            running -= 1;
        }
        if running >= history.spec.limits.max_parallel_jobs {
            return Ok(Decision::Wait);
        }
        if let Some(trial) = stopping::to_promote(history) {
            events.push(Event::Promoted {
                trial,
                worker: self.worker.name.clone(),
                time,
            });
            return Ok(Decision::Trial(trial));
        }
        let number = history.trials.len();
        if number >= history.spec.limits.max_jobs {
            return Ok(match running {
                0 => Decision::Finished(End::MaxJobs),
                _ => Decision::Wait,
            });
        }
        let choice = strategy::choose(&self.space, history);
        let (point, origin) = match (history.enqueued.front(), choice) {
            (Some(values), choice) => {
                let rest = match choice {
                    Choice::Point(point) => point,
                    Choice::NothingLeft | Choice::Converged => vec![0.5; self.space.dims().len()],
                };
                (self.space.complete(values, rest)?, Origin::Enqueued)
            }
            (None, Choice::Point(point)) => (point, Origin::Strategy),
            (None, Choice::NothingLeft) if running > 0 => return Ok(Decision::Wait),
            (None, Choice::NothingLeft) => return Ok(Decision::Finished(End::NothingLeft)),
            (None, Choice::Converged) if running > 0 => return Ok(Decision::Wait),
            (None, Choice::Converged) => return Ok(Decision::Finished(End::Converged)),
        };
        events.push(Event::Asked {
            trial: number,
            values: self.space.values(&point),
            origin,
            worker: self.worker.name.clone(),
            time,
        });
        Ok(Decision::Trial(number))
    }

    /// Why the study is finished, so that no trial starts and running ones are stopped; `None` if it is not.
    pub fn end_now(&self) -> Option<End> {
        let (history, limits) = (&self.history, &self.history.spec.limits);
        let best = history.overall_best().map(|(.., value)| value);
        let is_reached = |target| best.is_some_and(|best| best == target || history.is_better(best, target));
        let is_late = |seconds| now() - history.created >= seconds;
        if limits.target.is_some_and(is_reached) {
            Some(End::Target)
        } else if history.counts().failed >= limits.max_failed_jobs {
            Some(End::MaxFailedJobs)
        } else if limits.max_run_seconds.is_some_and(is_late) {
            Some(End::MaxRunTime)
        } else if limits
            .max_jobs_without_improvement
            .is_some_and(|most| history.without_improvement() >= most)
        {
            Some(End::NoImprovement)
        } else {
            None
        }
    }

    /// Says that trials run elsewhere: a process that dies while it follows one says nothing about the trial.
    pub fn runs_elsewhere(&mut self) {
        self.is_elsewhere = true;
    }

    /// Running trials whose process has died.
    ///
    /// # Errors
    /// A file of the study cannot be read.
    pub fn orphans(&self) -> Result<Vec<&Trial>, TuneError> {
        let Some(place) = &self.place else {
            return Ok(Vec::new());
        };
        let workers: BTreeSet<&str> = self
            .history
            .running()
            .map(|trial| trial.worker.as_str())
            .collect();
        let mut dead = BTreeSet::new();
        for worker in workers {
            if worker != self.worker.name && !is_alive(&place.folder, worker)? {
                dead.insert(worker);
            }
        }
        let is_orphan = |trial: &&Trial| dead.contains(trial.worker.as_str());
        Ok(self.history.running().filter(is_orphan).collect())
    }

    /// Reports a trial's objective after a step (an epoch, or another count, from 1 on).
    ///
    /// # Errors
    /// The trial does not run here; the value is NaN or infinite (report the trial as failed then); the
    /// journal cannot be written.
    pub fn report(&mut self, trial: usize, step: u64, value: f64) -> Result<Verdict, TuneError> {
        self.change(|study| {
            let mut own = study.running_here(trial)?.clone();
            if !value.is_finite() {
                return input(format!(
                    "trial {trial} reports {value} at step {step}, which is no objective; tell that it failed"
                ));
            }
            let time = now();
            let reported = Event::Reported {
                trial,
                step,
                value,
                time,
            };
            let report = Report { step, value, time };
            own.reports.retain(|other| other.step < step);
            own.reports.push(report);
            if own.stop.is_some() || study.end_now().is_some() {
                return Ok((Verdict::Stop, vec![reported]));
            }
            match stopping::is_hopeless(&study.history, &own, report) {
                true => Ok((Verdict::Stop, vec![reported, Event::Stop { trial, step }])),
                false => Ok((Verdict::Continue, vec![reported])),
            }
        })
    }

    /// Reports that a trial ran to its end, with its objective; without one, its result is computed from its
    /// reports.
    ///
    /// # Errors
    /// The trial does not run here; there is neither an objective nor a report; the journal cannot be
    /// written.
    pub fn tell(&mut self, trial: usize, objective: Option<f64>) -> Result<Outcome, TuneError> {
        self.end(trial, |study, own| {
            let better = |a, b| study.history.is_better(a, b);
            match objective.or_else(|| own.result(study.history.spec.take, better)) {
                Some(value) if value.is_finite() => Ok(Outcome::Completed { value }),
                Some(value) => input(format!(
                    "trial {trial}: {value} is no objective; tell that it failed"
                )),
                None => input(format!(
                    "trial {trial} has no objective: it told none and reported none"
                )),
            }
        })
    }

    /// Reports that a trial was stopped before its end.
    ///
    /// # Errors
    /// The trial does not run here; the journal cannot be written.
    pub fn tell_stopped(&mut self, trial: usize) -> Result<Outcome, TuneError> {
        self.end(trial, |_, own| {
            Ok(Outcome::Stopped {
                value: own.reports.last().map(|report| report.value),
            })
        })
    }

    /// Reports that a trial failed. It counts as the worst result, so its region is avoided.
    ///
    /// # Errors
    /// The trial does not run here; the journal cannot be written.
    pub fn tell_failed(&mut self, trial: usize, reason: &str) -> Result<Outcome, TuneError> {
        self.end(trial, |_, _| {
            Ok(Outcome::Failed {
                reason: reason.to_owned(),
            })
        })
    }

    /// Gives a trial back, to be continued later, here or in another process.
    ///
    /// # Errors
    /// The trial does not run here; the journal cannot be written.
    pub fn give_back(&mut self, trial: usize) -> Result<(), TuneError> {
        self.change(|study| {
            study.running_here(trial)?;
            Ok(((), vec![Event::Back { trial }]))
        })
    }

    fn end(
        &mut self,
        trial: usize,
        outcome: impl FnOnce(&Self, &Trial) -> Result<Outcome, TuneError>,
    ) -> Result<Outcome, TuneError> {
        self.change(|study| {
            let outcome = outcome(study, study.running_here(trial)?)?;
            let told = Event::Told {
                trial,
                outcome: outcome.clone(),
                time: now(),
            };
            Ok((outcome, vec![told]))
        })
    }

    fn running_here(&self, number: usize) -> Result<&Trial, TuneError> {
        let Some(trial) = self.history.trials.get(number) else {
            return input(format!("there is no trial {number}"));
        };
        if trial.is_over() {
            return input(format!("trial {number} has ended"));
        }
        if trial.worker != self.worker.name {
            return input(format!(
                "trial {number} is with {} now, and not here",
                trial.worker
            ));
        }
        Ok(trial)
    }

    /// Queues values, of some or all parameters, to be tried before what the strategy chooses.
    ///
    /// # Errors
    /// A value is out of range; the journal cannot be written.
    pub fn enqueue(&mut self, values: Values) -> Result<(), TuneError> {
        self.change(|study| {
            check_enqueued(&study.space, &values)?;
            Ok(((), vec![Event::Enqueued { values }]))
        })
    }

    /// Changes the limits.
    ///
    /// # Errors
    /// A limit is invalid; the journal cannot be written.
    pub fn set_limits(&mut self, limits: Limits) -> Result<(), TuneError> {
        limits.check()?;
        self.change(|_| Ok(((), vec![Event::Limits { limits }])))
    }

    /// Checks that another description is this study's, except for limits: with other ranges it is another
    /// study.
    ///
    /// # Errors
    /// [`TuneError::Input`] with the differences.
    pub fn fits(&self, spec: &Spec) -> Result<(), TuneError> {
        let own = &self.history.spec;
        let changed: Vec<String> = own
            .parameters
            .keys()
            .chain(spec.parameters.keys())
            .filter(|name| own.parameters.get(*name) != spec.parameters.get(*name))
            .map(|name| format!("parameter {name}"))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let others = [
            ("objective", own.objective != spec.objective),
            ("direction", own.direction != spec.direction),
            ("take", own.take != spec.take),
            ("strategy", own.strategy != spec.strategy),
            ("seed", own.seed != spec.seed),
            ("early stopping", own.early_stopping != spec.early_stopping),
            ("rungs", own.rungs != spec.rungs),
            ("enqueue", own.enqueue != spec.enqueue),
            ("warm start", own.warm_start != spec.warm_start),
        ];
        let others = others
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| (*name).to_owned());
        let changed: Vec<String> = changed.into_iter().chain(others).collect();
        match changed.is_empty() {
            true => Ok(()),
            false => input(format!(
                "the study was made with another {}; put it back, or make a new study, with this one as its parent \
                 ([study.warm-start])",
                changed.join(", ")
            )),
        }
    }
}

enum Decision {
    Trial(usize),
    Wait,
    Finished(End),
}

/// The third is whether there is something after the last good line.
fn load(folder: &Path) -> Result<(History, Journal, bool), TuneError> {
    let path = folder.join(JOURNAL);
    if !path.is_file() {
        return input(format!("there is no study in {}", folder.display()));
    }
    let mut journal = Journal::open(&path)?;
    let mut new = journal.read()?;
    let first = if new.events.is_empty() {
        None
    } else {
        Some(new.events.remove(0))
    };
    let Some(Event::Created {
        version,
        time,
        spec,
        parents,
    }) = first
    else {
        return input(format!(
            "{} does not begin as a study's journal does",
            path.display()
        ));
    };
    if version != VERSION {
        return input(format!(
            "{} is of version {version}, and this Stokehold reads {VERSION}",
            path.display()
        ));
    }
    let mut history = History::new(*spec, time, parents);
    let has_tail = new.tail.is_some();
    take_up(&mut history, new, folder)?;
    Ok((history, journal, has_tail))
}

fn take_up(history: &mut History, new: NewEvents, folder: &Path) -> Result<(), TuneError> {
    for event in new.events {
        history
            .apply(event)
            .map_err(|reason| TuneError::Input(format!("{}: {reason}", folder.join(JOURNAL).display())))?;
    }
    Ok(())
}

impl Worker {
    fn new(folder: &Path) -> Result<Self, TuneError> {
        let workers = folder.join("workers");
        fs::create_dir_all(&workers).map_err(TuneError::io(&workers))?;
        // Never reuse a name: the trials of a worker that is gone would seem to be with this one.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{:.0}-{count}", std::process::id(), now() * 1e3);
        let path = workers.join(&name);
        let open = File::options().write(true).create_new(true).open(&path);
        let file = open.map_err(TuneError::io(&path))?;
        file.lock().map_err(TuneError::io(&path))?;
        Ok(Self {
            name,
            file: Some((path, file)),
        })
    }
}

/// Whether a worker's process holds the lock on its file.
fn is_alive(folder: &Path, worker: &str) -> Result<bool, TuneError> {
    if worker.is_empty() {
        return Ok(false);
    }
    let path = folder.join("workers").join(worker);
    lock::is_held(&path).map_err(TuneError::io(&path))
}
