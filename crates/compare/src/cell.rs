//! Runs a comparison: cell after cell, in each cell pair after pair.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stokehold_base::random::{Random, mix};
use stokehold_profile::{Contention, Ending, FOLDER, Sampler, Settings, Tree};
use stokehold_storage::{Dataset, Images, Source};
use stokehold_train::model::Arch;
use stokehold_train::run::DatasetFacts;

use crate::plan::{Plan, Trial};
use crate::process::{Ended, Observed, TrialProcess};
use crate::python::Files;
use crate::report::{Cell, Failure, Report, Round};
use crate::steps::StepTimes;
use crate::{CompareError, NativeSpec, equal, output};

/// The fastest trial's rounds are at least this part of the wanted length, while the slowest one's stay below twice that length.
const SHORT: f64 = 1.0 / 6.0;
/// The images are read ahead of the measurement for at most this long: a data set may be larger than memory.
const READING: Duration = Duration::from_secs(10);

/// What happens in a comparison.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Something that the user should know.
    Note(String),
    /// A cell begins; cells are counted from 1.
    Cell {
        /// Its number.
        number: usize,
        /// Of so many.
        of: usize,
        /// The cell.
        cell: &'a Cell,
    },
    /// A trial is started and warmed up.
    Starting(Trial),
    /// A trial cannot run, or has failed.
    Failed(Trial, &'a Failure),
    /// A pair of rounds is measured.
    Pair(&'a Cell),
    /// A cell is finished.
    CellDone(&'a Cell),
    /// A real training of these steps begins, as evidence of equal work.
    EqualWork,
}

/// Sees what happens in a comparison.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: Event<'_>);
}

/// A comparison in a folder.
pub struct Comparison<'a> {
    report: Report,
    images: Images,
    out: PathBuf,
    native: &'a dyn Fn() -> Command,
    files: Option<Files>,
    interval: Duration,
    /// The places of the cells that this call has finished.
    finished: Vec<usize>,
}

impl<'a> Comparison<'a> {
    /// Opens the comparison of a plan in the folder `out`. Cells that an earlier call has measured there are kept.
    /// `native` makes the command of a native trial, which calls [`serve`](crate::serve); `interval` is the time between
    /// samples of the machine.
    ///
    /// # Errors
    /// The plan does not go together, the data cannot be opened, or the folder holds something else.
    pub fn open(
        plan: Plan,
        dataset: Dataset,
        out: PathBuf,
        native: &'a dyn Fn() -> Command,
        interval: Duration,
    ) -> Result<Self, CompareError> {
        plan.check()?;
        let facts = DatasetFacts::of(&dataset);
        let images = dataset.train;
        let report = output::open(&out, Report::new(plan, facts))?;
        let plan = &report.plan;
        let python = plan.trials.iter().any(|trial| trial.executor().is_none());
        let files = python.then(|| Files::write(plan, &images, &out)).transpose()?;
        Ok(Self {
            report,
            images,
            out,
            native,
            files,
            interval,
            finished: Vec::new(),
        })
    }

    /// What was measured so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Measures what is not measured yet, and writes the report after every pair. Returns whether all of it is done;
    /// it is not when `stop` was set.
    ///
    /// # Errors
    /// A file cannot be written. A trial that fails is no error: the report names it, and the others continue.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<bool, CompareError> {
        let cells = self.report.plan.cells();
        if cells
            .iter()
            .all(|&(model, load)| self.report.is_kept(model, load))
        {
            let done = self.equal_work(observer, stop);
            output::write(&mut self.report, &self.out, &[])?;
            return Ok(done);
        }
        self.read_once(observer, stop);
        let sampler = self.sample(observer);
        let measured = self.measure(&cells, observer, stop);
        if let Some(sampler) = sampler
            && let Err(error) = sampler.stop(Ending::default())
        {
            observer.event(Event::Note(format!(
                "the samples of the machine are not complete: {error}"
            )));
        }
        let done = measured? && self.equal_work(observer, stop);
        // The last samples of a cell reach the disk after its page was written.
        output::write(&mut self.report, &self.out, &self.finished)?;
        Ok(done)
    }

    /// Measures the cells that are not kept; false if stopped meanwhile.
    fn measure(
        &mut self,
        cells: &[(Arch, u32)],
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, CompareError> {
        for (number, &(model, load)) in cells.iter().enumerate() {
            if self.report.is_kept(model, load) {
                continue;
            }
            let (place, before) = self.begin(model, load);
            observer.event(Event::Cell {
                number: number + 1,
                of: cells.len(),
                cell: &self.report.cells[place],
            });
            let done = self.cell(place, observer, stop)?;
            self.report.cells[place].finished = done;
            if !done {
                // A few pairs of a cell that is measured again are worth less than what they would replace.
                let pairs = self.report.cells[place].pairs();
                if let Some(before) = before.filter(|before| before.pairs() > pairs) {
                    self.report.cells[place] = before;
                }
                return Ok(false);
            }
            self.finished.push(place);
            output::write(&mut self.report, &self.out, &[place])?;
            observer.event(Event::CellDone(&self.report.cells[place]));
            if self.report.cells[place].pairs() == 0 && number + 1 < cells.len() {
                observer.event(Event::Note(
                    "every trial failed, as it would in the other cells, which are not measured; `stokehold dataset info DATA` names \
                     images that cannot be read"
                        .to_owned(),
                ));
                break;
            }
        }
        Ok(true)
    }

    /// Makes the evidence of equal work, if it is possible and not there; false if stopped meanwhile.
    fn equal_work(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> bool {
        let learns = self.images.classes().len() > 1;
        if self.report.equal_work.is_some() || !learns || !equal::is_possible(&self.report.plan) {
            return true;
        }
        observer.event(Event::EqualWork);
        match equal::measure(&self.report.plan, &self.images, stop) {
            Ok(made) => {
                self.report.equal_work = made;
                self.report.equal_work.is_some()
            }
            // What was measured is worth no less.
            Err(error) => {
                observer.event(Event::Note(format!(
                    "there is no evidence of equal work: {error}"
                )));
                true
            }
        }
    }

    /// The place of a cell that is to be measured: with the rounds of an interrupted call, or from the beginning. Then also
    /// what was there.
    fn begin(&mut self, model: Arch, load: u32) -> (usize, Option<Cell>) {
        let epoch = self.images.len() / self.report.plan.batch_size * self.report.plan.batch_size;
        let new = Cell::new(&self.report.plan, model, load, epoch as u64);
        let wanted = self.report.plan.cells();
        let cells = &mut self.report.cells;
        let place = |cells: &[Cell]| {
            cells
                .iter()
                .position(|cell| (cell.model, cell.load) == (model, load))
        };
        match place(cells) {
            // A trial that could not run may run now, and its rounds need those of the others next to them.
            Some(place) if cells[place].trials.iter().any(|trial| trial.failure.is_some()) => {
                let before = std::mem::replace(&mut cells[place], new);
                return (place, Some(before));
            }
            Some(place) => return (place, None),
            None => {
                cells.push(new);
                // Cells of an earlier call that this one does not have come last.
                let rank = |cell: &Cell| wanted.iter().position(|place| *place == (cell.model, cell.load));
                cells.sort_by_key(|cell| rank(cell).unwrap_or(usize::MAX));
            }
        }
        (place(cells).unwrap_or(0), None)
    }

    /// Reads the images once, so that no trial finds them colder than the others do.
    fn read_once(&self, observer: &mut dyn Observer, stop: &AtomicBool) {
        let (begin, mut bytes) = (Instant::now(), stokehold_storage::SampleBytes::new());
        for sample in 0..self.images.len() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if begin.elapsed() > READING {
                observer.event(Event::Note(format!(
                    "{sample} of {} images were read within {} s, so that they are in memory; of the others, the first trial of a pair \
                     reads colder files than the rest: use fewer images where that matters",
                    self.images.len(),
                    READING.as_secs()
                )));
                return;
            }
            // A trial reports images that cannot be read.
            let _ = self.images.read(sample, &mut bytes);
        }
    }

    fn sample(&self, observer: &mut dyn Observer) -> Option<Sampler> {
        let mut settings = Settings::of_this_program(Tree::Of(std::process::id()));
        settings.interval = self.interval;
        match Sampler::start(&self.out.join(FOLDER), settings) {
            Ok(sampler) => Some(sampler),
            // The comparison is worth its time without them.
            Err(error) => {
                observer.event(Event::Note(format!(
                    "there are no samples of the machine: {error}"
                )));
                None
            }
        }
    }

    /// Measures a cell; false if stopped meanwhile.
    fn cell(
        &mut self,
        place: usize,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, CompareError> {
        let plan = self.report.plan.clone();
        let mut processes = Vec::new();
        let mut warm = Vec::new();
        for number in 0..plan.trials.len() {
            match self.start(place, number, observer, stop)? {
                Started::Warm(process, seconds) => {
                    processes.push(Some(process));
                    warm.push(seconds);
                }
                Started::Failed => processes.push(None),
                Started::Stopped => return Ok(false),
            }
        }
        let cell = &mut self.report.cells[place];
        if cell.pairs() == 0 {
            cell.steps = steps_of_a_round(&warm, plan.round);
        }
        let mut steps = match cell.pairs() {
            0 => StepTimes::default(),
            _ => StepTimes::read(cell, &self.out),
        };
        // Without two trials there is nothing to compare, but A's figures are worth their time.
        while processes.iter().any(Option::is_some) {
            let done = self.pair(place, &mut processes, &mut steps, observer, stop)?;
            let cell = &mut self.report.cells[place];
            cell.summarize();
            output::write_json(&self.report, &self.out)?;
            steps.write(&self.report.cells[place], &self.out)?;
            if !done {
                return Ok(false);
            }
            let cell = &self.report.cells[place];
            observer.event(Event::Pair(cell));
            if cell.is_measured(&plan) {
                break;
            }
        }
        Ok(true)
    }

    /// Starts a trial and warms it up.
    fn start(
        &mut self,
        place: usize,
        number: usize,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Started, CompareError> {
        let plan = &self.report.plan;
        let cell = &self.report.cells[place];
        let (trial, model, load) = (plan.trials[number], cell.model, cell.load);
        observer.event(Event::Starting(trial));
        let (command, spec, scratch) = match (trial.executor(), &self.files) {
            (Some(executor), _) => {
                let spec = serde_json::to_string(&NativeSpec {
                    config: plan.config(model, load, trial, executor),
                    period: plan.period(self.images.len()),
                    masks: plan.loads_masks(),
                })?;
                ((self.native)(), spec, None)
            }
            (None, Some(files)) => {
                let (command, spec, scratch) = files.command(plan, trial, model, load)?;
                (command, spec, Some(scratch))
            }
            (None, None) => return Err(CompareError::Plan(format!("{trial} has no files"))),
        };
        let warm_up_steps = warm_up_steps(plan.workers);
        let started = TrialProcess::start(command, &spec, scratch)
            .map_err(Ended::Failed)
            .and_then(|mut process| {
                let ready = process.ready(stop)?;
                let seconds = warm_up(&mut process, warm_up_steps, stop)?;
                Ok((process, ready, seconds))
            });
        let measured = &mut self.report.cells[place].trials[number];
        match started {
            Ok((process, ready, seconds)) => {
                let other = measured.ready.as_ref().is_some_and(|before| *before != ready);
                measured.ready = Some(ready);
                if other && self.report.cells[place].pairs() > 0 {
                    observer.event(Event::Note(format!(
                        "{trial} has other versions now than before the interruption; this cell is measured anew"
                    )));
                    let trials = &mut self.report.cells[place].trials;
                    trials.iter_mut().for_each(|trial| trial.rounds.clear());
                }
                Ok(Started::Warm(process, seconds))
            }
            Err(Ended::Stopped) => Ok(Started::Stopped),
            Err(Ended::Failed(failure)) => {
                observer.event(Event::Failed(trial, &failure));
                measured.failure = Some(failure);
                Ok(Started::Failed)
            }
        }
    }

    /// Has each trial make a round; false if stopped meanwhile.
    fn pair(
        &mut self,
        place: usize,
        processes: &mut [Option<TrialProcess>],
        steps: &mut StepTimes,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, CompareError> {
        let cell = &mut self.report.cells[place];
        let (pair, count) = (cell.pairs(), processes.len());
        for number in order(self.report.plan.seed, pair, count) {
            let Some(process) = &mut processes[number] else {
                continue;
            };
            let before = Contention::now();
            let observed = process.round(cell.steps, stop);
            let measured = &mut cell.trials[number];
            match observed {
                Ok(mut observed) => {
                    steps.add(number, observed.began, std::mem::take(&mut observed.totals.times));
                    let others = others_cores(before, &observed);
                    measured.rounds.push(Round::new(pair, observed, others));
                }
                Err(Ended::Stopped) => {
                    // A pair is whole or not there.
                    for trial in &mut cell.trials {
                        trial.rounds.retain(|round| round.pair != pair);
                    }
                    return Ok(false);
                }
                Err(Ended::Failed(failure)) => {
                    observer.event(Event::Failed(measured.trial, &failure));
                    measured.failure = Some(failure);
                    processes[number] = None;
                }
            }
        }
        Ok(true)
    }
}

/// The order of the trials in a pair: drawn for the even ones, and reversed for the odd ones, so that every trial comes
/// early as often as late, and no other program can keep in step with one.
fn order(seed: u64, pair: u32, trials: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..trials).collect();
    Random::of(mix(seed) ^ u64::from(pair / 2)).shuffle(&mut order);
    if pair % 2 == 1 {
        order.reverse();
    }
    order
}

enum Started {
    /// A trial that stands still, and its seconds a step.
    Warm(TrialProcess, f64),
    Failed,
    Stopped,
}

/// Makes steps that do not count, so that no round includes the start of workers, memory that is touched for the first time, and
/// kernels that are compiled. All trials make equally many, so that their rounds begin at the same image. Returns the
/// seconds of a step, from those after the first ones.
fn warm_up(process: &mut TrialProcess, steps: u64, stop: &AtomicBool) -> Result<f64, Ended> {
    process.round(steps, stop)?;
    Ok(process.round(steps, stop)?.totals.seconds / steps as f64)
}

/// Steps of each half of the warm-up: more than the batches that any trial has ahead, which are two a worker and one.
fn warm_up_steps(workers: usize) -> u64 {
    (2 * workers as u64 + 1).max(4)
}

/// The steps of a round, for these seconds of a step: the slowest trial's round is `round` long, or up to twice that if the
/// fastest one's would be too short.
fn steps_of_a_round(seconds: &[f64], round: f64) -> u64 {
    if seconds.is_empty() {
        return 0;
    }
    let slowest = seconds.iter().copied().fold(1e-9, f64::max);
    let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let steps = f64::max(
        round / slowest,
        f64::min(SHORT * round / fastest, 2.0 * round / slowest),
    );
    (steps.round() as u64).max(2)
}

/// The cores that programs other than the trial and this process kept busy in a round.
fn others_cores(before: Option<Contention>, observed: &Observed) -> Option<f64> {
    let wall = observed.ended - observed.began;
    // All but this process: the trial too.
    let all = before?.others_cores_until(Contention::now()?)?;
    Some((all - observed.cpu_seconds? / wall.max(1e-9)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_comes_early_as_often_as_late_and_not_in_turns() {
        let first: Vec<usize> = (0..100).map(|pair| order(3, pair, 2)[0]).collect();
        assert_eq!(first.iter().filter(|&&trial| trial == 0).count(), 50);
        // With a period of four pairs of rounds, as ABBA has it, all of these would be the same.
        let even: Vec<usize> = first.iter().copied().step_by(2).collect();
        assert!((15..=35).contains(&even.iter().sum::<usize>()), "{even:?}");
        for pair in 0..10 {
            let mut all = order(0, pair, 5);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn a_round_is_long_enough_for_all_trials() {
        // 1.5 s of the only one.
        assert_eq!(steps_of_a_round(&[0.1], 1.5), 15);
        // The fastest takes half of the slowest: 0.75 s are enough.
        assert_eq!(steps_of_a_round(&[0.1, 0.05], 1.5), 15);
        // 15 steps would take 0.15 s; 25 take 0.25 s and 2.5 s.
        assert_eq!(steps_of_a_round(&[0.1, 0.01], 1.5), 25);
        // 0.25 s of the fastest would take 250 s.
        assert_eq!(steps_of_a_round(&[1.0, 0.001], 1.5), 3);
        assert_eq!(steps_of_a_round(&[20.0], 1.5), 2);
    }
}
