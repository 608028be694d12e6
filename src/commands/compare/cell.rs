//! The cells of a comparison, each run as trial A, then trial B.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_base::clock::Utc;
use stokehold_base::regular;
use stokehold_base::there::if_there;
use stokehold_storage::{Dataset, Source};
use stokehold_train::model::Arch;
use stokehold_train::run::{DatasetFacts, MetricsLine, RunFolder, RunRecord, read_metrics};
use stokehold_train::{ExecutorChoice, RunSummary, TrainConfig, TrainError};

use super::report::{Cell, CpuTime, Report, Trial, run_dir};
use super::settings::Settings;
use super::watch::Watch;
use crate::failure::Usage;
use crate::files;

/// Steps of the warm-up run before the first run of a model and an executor.
const WARM_UP_STEPS: usize = 2;

/// The cells, sorted by model and load.
pub struct Cells<'a> {
    settings: Settings,
    cells: Vec<(Arch, u32)>,
    out: &'a Path,
    dataset: &'a Dataset,
    facts: DatasetFacts,
    /// The models and executors that were warmed up in this process.
    warm: Vec<(Arch, ExecutorChoice)>,
}

/// The runs that an earlier call has finished, which are not measured again.
pub struct Kept {
    pub runs: usize,
    /// When the oldest of them began; `None` if there are none.
    pub since: Option<Utc>,
}

impl<'a> Cells<'a> {
    /// The cells of these models and loads, each once, with the settings and the data of the report.
    pub fn new(report: &Report, models: &[Arch], loads: &[u32], out: &'a Path, dataset: &'a Dataset) -> Self {
        let mut cells = Vec::new();
        for &model in models {
            for &load in loads {
                if !cells.contains(&(model, load)) {
                    cells.push((model, load));
                }
            }
        }
        Self {
            settings: report.settings.clone(),
            cells,
            out,
            dataset,
            facts: report.dataset.clone(),
            warm: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// The number of steps of one run.
    pub fn steps_of_a_run(&self) -> u64 {
        let images = self.dataset.train.len();
        images.div_ceil(self.settings.batch_size) as u64 * self.settings.epochs
    }

    /// The number of runs: two a cell.
    pub fn runs(&self) -> usize {
        2 * self.cells.len()
    }

    /// What an earlier call has measured.
    pub fn kept(&self) -> Result<Kept, Box<dyn Error>> {
        let (mut runs, mut since) = (0, None::<f64>);
        for (number, trial) in (0..self.cells.len()).flat_map(|number| [(number, 0), (number, 1)]) {
            if let Some((_, record)) = finished(&self.config(number, trial), &self.facts)? {
                let created = record.created as f64;
                since = Some(since.map_or(created, |since| since.min(created)));
                runs += 1;
            }
        }
        Ok(Kept {
            runs,
            since: since.map(Utc),
        })
    }

    /// Runs both trials of a cell, or reads those that are finished; `None` if stopped meanwhile.
    pub fn run(
        &mut self,
        number: usize,
        watch: &mut Watch,
        stop: &AtomicBool,
    ) -> Result<Option<Cell>, Box<dyn Error>> {
        let (model, load) = self.cells[number];
        let mut trials = Vec::new();
        for trial in 0..2 {
            let config = self.config(number, trial);
            watch.begin(number, trial, &config, load);
            let summary = match finished(&config, &self.facts)? {
                Some((summary, _)) => summary,
                None => match self.train(&config, watch, stop)? {
                    Some(summary) => summary,
                    None => return Ok(None),
                },
            };
            // A comparison needs times only: models of all cells would fill the disk.
            let folder = RunFolder::new(&config.run_dir);
            files::remove_dir(&folder.checkpoints())?;
            files::remove_file(&folder.model())?;
            let trial = Trial {
                executor: summary.executor,
                epoch_seconds: epoch_seconds(&folder)?,
                cpu_time: read_cpu_time(&folder)?,
                summary,
            };
            watch.end(&trial);
            trials.push(trial);
        }
        let Ok(trials) = trials.try_into() else {
            return Ok(None);
        };
        Ok(Some(Cell::new(model, load, trials)))
    }

    /// Trains one run, from its latest checkpoint if there is one; `None` if stopped.
    fn train(
        &mut self,
        config: &TrainConfig,
        watch: &mut Watch,
        stop: &AtomicBool,
    ) -> Result<Option<RunSummary>, Box<dyn Error>> {
        let kind = (config.arch, config.executor);
        if !self.warm.contains(&kind) {
            self.warm_up(config, stop)?;
            self.warm.push(kind);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let summary = stokehold_train::resume(config, self.dataset.clone(), watch, stop)?;
        add_cpu_time(&RunFolder::new(&config.run_dir), watch.cpu_time())?;
        Ok(Some(summary).filter(|summary| !summary.interrupted))
    }

    /// Makes a few steps that do not count, so that neither trial's time includes starting threads, touching
    /// memory for the first time, and compiling GPU kernels.
    fn warm_up(&self, config: &TrainConfig, stop: &AtomicBool) -> Result<(), Box<dyn Error>> {
        let mut dataset = self.dataset.clone();
        dataset.limit(WARM_UP_STEPS * config.batch_size);
        let config = TrainConfig {
            epochs: 1,
            keep_checkpoints: 0,
            ceiling_batches: 0,
            run_dir: self.out.join("warm-up"),
            ..config.clone()
        };
        files::remove_dir(&config.run_dir)?;
        stokehold_train::fit(&config, dataset, &mut (), stop)?;
        files::remove_dir(&config.run_dir)?;
        Ok(())
    }

    fn config(&self, number: usize, trial: usize) -> TrainConfig {
        let (model, load) = self.cells[number];
        let executor = self.settings.trials.0[trial];
        self.settings
            .config(model, load, executor, run_dir(self.out, model, load, trial))
    }
}

/// The summary and the record of a run that is finished; `None` if it has to go on, or to begin.
///
/// # Errors
/// The run was made with other settings or of other data than these, or there is no record of them.
fn finished(
    config: &TrainConfig,
    dataset: &DatasetFacts,
) -> Result<Option<(RunSummary, RunRecord)>, Box<dyn Error>> {
    let folder = RunFolder::new(&config.run_dir);
    let Some(summary) = folder.read_summary()?.filter(|summary| !summary.interrupted) else {
        return Ok(None);
    };
    let why = match folder.read_record()? {
        Some(record) => match record.changes(config, dataset)? {
            changes if changes.is_empty() => return Ok(Some((summary, record))),
            changes => changes.join("; "),
        },
        None => "its settings are not recorded".to_owned(),
    };
    Err(Box::new(Usage(format!(
        "{}: this run is not one of this comparison: {why}; remove it, or give another --out",
        config.run_dir.display(),
    ))))
}

/// The time of each epoch's training, from the run's own record.
fn epoch_seconds(folder: &RunFolder) -> Result<Vec<f64>, TrainError> {
    let lines = read_metrics(&folder.metrics())?;
    let seconds = lines.into_iter().filter_map(|line| match line {
        MetricsLine::Epoch { seconds, .. } => Some(seconds),
        MetricsLine::Train { .. } => None,
    });
    Ok(seconds.collect())
}

/// Adds the CPU time since the last start to that of the run's earlier starts.
fn add_cpu_time(folder: &RunFolder, sitting: CpuTime) -> Result<(), Box<dyn Error>> {
    let before = read_cpu_time(folder)?;
    let sum = CpuTime {
        seconds: before.seconds + sitting.seconds,
        images: before.images + sitting.images,
    };
    files::write(&cpu_time_file(folder), serde_json::to_string(&sum)?)?;
    Ok(())
}

/// The CPU time of all starts of a run, except those that were killed.
fn read_cpu_time(folder: &RunFolder) -> Result<CpuTime, Box<dyn Error>> {
    let path = cpu_time_file(folder);
    match if_there(regular::read(&path)).map_err(|error| files::named(&path, &error))? {
        Some(bytes) => Ok(serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}: not a CPU time: {error}", path.display()))?),
        None => Ok(CpuTime::default()),
    }
}

fn cpu_time_file(folder: &RunFolder) -> PathBuf {
    folder.path().join("cpu-time.json")
}
