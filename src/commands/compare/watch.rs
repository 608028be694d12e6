//! The progress of a comparison: a bar on a terminal, lines elsewhere.

use crate::terminal::note;
use std::path::Path;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use indicatif::ProgressBar;
use stokehold_page::words::plural;
use stokehold_train::{Event, Observer, TrainConfig};

use super::LETTERS;
use super::report::{CpuTime, Report, Trial};
use crate::progress;

/// Shows the runs one after the other.
pub struct Watch {
    bar: ProgressBar,
    cells: usize,
    steps_of_a_run: u64,
    /// Runs begun, including the current one.
    runs: u64,
    /// The current run.
    name: String,
    epochs: u64,
    batches: usize,
    /// Whether losses mean anything.
    learns: bool,
    /// The start of the current epoch, and its images since.
    epoch: (Instant, usize),
    /// The CPU time of the current run, and the process's at the end of the previous step.
    cpu_time: CpuTime,
    cpu_before: Duration,
}

impl Watch {
    /// For this number of cells, of two runs of `steps_of_a_run` steps each.
    pub fn new(cells: usize, steps_of_a_run: u64, report: &Report, out: &Path) -> Self {
        for line in report.what() {
            note!("{line}");
        }
        note!("{}, in {}", plural(cells, "cell"), out.display());
        let template = "{msg}\n{bar:40} {percent} % of all steps, {eta} left";
        Self {
            bar: progress::bar(2 * cells as u64 * steps_of_a_run, template),
            cells,
            steps_of_a_run,
            runs: 0,
            name: String::new(),
            epochs: 0,
            batches: 0,
            learns: true,
            epoch: (Instant::now(), 0),
            cpu_time: CpuTime::default(),
            cpu_before: Duration::ZERO,
        }
    }

    /// The CPU time of the run's steps since its last start.
    pub fn cpu_time(&self) -> CpuTime {
        self.cpu_time
    }

    /// Prints a line that stays.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| note!("{line}"));
    }

    /// A trial's run is checked, and trained if needed.
    pub fn begin(&mut self, cell: usize, trial: usize, config: &TrainConfig, load: u32) {
        self.runs += 1;
        self.name = format!(
            "cell {}/{}: {}, load {load}, {} {}",
            cell + 1,
            self.cells,
            config.arch,
            LETTERS[trial],
            config.executor
        );
        self.cpu_time = CpuTime::default();
        self.bar.set_message(format!("{} · warming up", self.name));
    }

    /// The run is finished.
    pub fn end(&mut self, trial: &Trial) {
        // Steps of an earlier start do not count for the current speed.
        let done = self.runs * self.steps_of_a_run;
        self.bar.inc(done.saturating_sub(self.bar.position()));
        let seconds = trial.seconds_per_epoch();
        let line = format!(
            "{}: {seconds:.2} s/epoch, {:.1} images/s",
            self.name, trial.summary.images_per_second
        );
        self.say(&line);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Marks the start of the next step.
    fn begin_step(&mut self) {
        self.cpu_before = ProcessTime::now().as_duration();
    }

    fn step(&mut self, epoch: u64, batch: u64, images: usize) {
        if batch == 1 {
            self.epoch.1 = 0;
        }
        self.epoch.1 += images;
        let cpu = ProcessTime::now().as_duration().saturating_sub(self.cpu_before);
        self.cpu_time.seconds += cpu.as_secs_f64();
        self.cpu_time.images += images as u64;
        self.begin_step();
        let rate = self.epoch.1 as f64 / self.epoch.0.elapsed().as_secs_f64().max(1e-9);
        self.bar.set_message(format!(
            "{} · epoch {epoch}/{} · batch {batch}/{} · {rate:.0} images/s",
            self.name, self.epochs, self.batches
        ));
        self.bar.inc(1);
    }
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started {
                epochs,
                batches,
                learns,
                ..
            } => {
                (self.epochs, self.batches, self.learns) = (epochs, batches, learns);
                self.epoch = (Instant::now(), 0);
                self.begin_step();
            }
            Event::Resumed { step, .. } => {
                let done = (self.runs - 1) * self.steps_of_a_run + step;
                self.bar.set_position(done);
                self.bar.reset_eta();
                self.say(&format!("{}: goes on after step {step}", self.name));
            }
            Event::Step {
                epoch, batch, images, ..
            } => self.step(epoch, batch, images),
            Event::Validated { batch, batches } => {
                let message = format!("{} · validating {batch}/{batches}", self.name);
                self.bar.set_message(message);
            }
            Event::EpochDone { record, .. } => {
                if self.bar.is_hidden() {
                    note!(
                        "  epoch {}/{}: {:.2} s, {:.1} images/s{}",
                        record.epoch,
                        self.epochs,
                        record.sums.seconds,
                        record.sums.images_per_second(),
                        match self.learns {
                            true => format!(", loss {:.4}", record.sums.mean_loss()),
                            false => String::new(),
                        }
                    );
                }
                self.epoch = (Instant::now(), 0);
                self.begin_step();
            }
            // The last event before the next epoch.
            Event::Checkpoint(_) => self.begin_step(),
            Event::MeasuringCeilings => self
                .bar
                .set_message(format!("{} · measuring ceilings", self.name)),
            Event::BadImage(image) => {
                self.say(&format!("left out a bad image: {}: {}", image.name, image.reason));
            }
            Event::Warning(text) => self.say(&format!("warning: {text}")),
            _ => {}
        }
    }
}
