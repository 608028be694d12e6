//! The numbers of a comparison: the contents of `compare.json`.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stokehold_base::regular;
use stokehold_base::there::if_there;
use stokehold_page::words::plural;
use stokehold_profile::{Machine, ProfileError, Recording, dimension};
use stokehold_train::model::Arch;
use stokehold_train::run::{DatasetFacts, RunFolder};
use stokehold_train::{AnyExecutor, RunSummary, TrainerChoice};

use super::settings::Settings;
use super::trial_name;
use crate::failure::Usage;
use crate::files;

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub settings: Settings,
    pub dataset: DatasetFacts,
    /// Bytes of all images; `None` if the storage does not know without reading them.
    #[serde(default)]
    pub bytes: Option<u64>,
    pub machine: Machine,
    /// The finished cells.
    pub cells: Vec<Cell>,
}

/// A model at a load, trained twice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub model: Arch,
    pub load: u32,
    /// By how many percent B's epoch is shorter than A's.
    pub better_by: f64,
    /// A and B.
    pub trials: [Trial; 2],
}

/// One run of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub executor: AnyExecutor,
    /// The time of each epoch's training.
    pub epoch_seconds: Vec<f64>,
    pub cpu_time: CpuTime,
    pub summary: RunSummary,
}

/// CPU time of the whole process, loader and trainer, in measured training steps. Other work on the machine
/// hardly changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    pub seconds: f64,
    /// The images of those steps.
    pub images: u64,
}

impl CpuTime {
    /// Milliseconds per image; `None` if no step was measured.
    pub fn ms_per_image(&self) -> Option<f64> {
        (self.images > 0).then(|| 1e3 * self.seconds / self.images as f64)
    }
}

impl Cell {
    pub fn new(model: Arch, load: u32, trials: [Trial; 2]) -> Self {
        let [a, b] = &trials;
        Self {
            model,
            load,
            better_by: better_by(a.seconds_per_epoch(), b.seconds_per_epoch()),
            trials,
        }
    }

    /// The system samples of the two runs of the comparison in the folder `out`; empty if the platform does not
    /// provide them.
    pub fn samples(&self, out: &Path) -> Result<Samples, ProfileError> {
        let [a, b] = [0, 1].map(|trial| {
            // Not where the summary says: the comparison's folder may have moved since.
            let path = RunFolder::new(run_dir(out, self.model, self.load, trial)).recording();
            if path.exists() {
                Recording::open(&path).map(|recording| Sample::all(&recording))
            } else {
                Ok(Vec::new())
            }
        });
        Ok([a?, b?])
    }
}

/// The emulated accelerators in a sentence; empty where Burn trains.
fn emulated_by(emulated: &[(Arch, TrainerChoice)], models: &[Arch]) -> String {
    let each: Vec<&str> = emulated
        .iter()
        .filter(|(model, _)| models.contains(model))
        .filter_map(|(_, trainer)| match trainer {
            TrainerChoice::Burn => None,
            TrainerChoice::Emulated { label, .. } => Some(label.as_str()),
        })
        .collect();
    let what = "Emulated: nothing is trained; an accelerator takes each batch and is busy as long as the real one would be";
    match (emulated.is_empty(), each.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!("{what}."),
        (false, false) => format!("{what}: {}.", each.join("; ")),
    }
}

/// Refuses a folder with other files and no comparison: one writes runs into its folder, and removes what they no
/// longer need.
///
/// # Errors
/// [`Usage`] for such a folder; an error of the system.
pub fn refuse_other_files(out: &Path) -> Result<(), Box<dyn Error>> {
    let Some(entries) = if_there(fs::read_dir(out)).map_err(|error| files::named(out, &error))? else {
        return Ok(());
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| files::named(out, &error))?;
    // A comparison that was killed at its start leaves the lock, and its report half written.
    let is_own =
        |name: &OsString| name == files::LOCK || name.as_encoded_bytes().starts_with(b"compare.json");
    if names.iter().any(|name| name == "compare.json") {
        return Ok(());
    }
    match names.iter().find(|name| !is_own(name)) {
        None => Ok(()),
        Some(name) => Err(Box::new(Usage(format!(
            "{}: holds {} and no comparison; give a new folder",
            out.display(),
            name.display()
        )))),
    }
}

/// The folder of a trial's run.
pub fn run_dir(out: &Path, model: Arch, load: u32, trial: usize) -> PathBuf {
    let letter = ['a', 'b'][trial];
    out.join("runs").join(format!("{model}-load{load}-{letter}"))
}

impl Trial {
    /// Mean over the epochs.
    pub fn seconds_per_epoch(&self) -> f64 {
        self.epoch_seconds.iter().sum::<f64>() / self.epoch_seconds.len().max(1) as f64
    }

    /// The shortest and the longest epoch.
    pub fn range(&self) -> (f64, f64) {
        let seconds = self.epoch_seconds.iter();
        seconds.fold((f64::INFINITY, 0.0), |(low, high), &s| {
            (f64::min(low, s), f64::max(high, s))
        })
    }
}

/// By how many percent `b` seconds are less than `a`: the published formula.
pub fn better_by(a: f64, b: f64) -> f64 {
    100.0 * (a - b) / a
}

impl Report {
    /// A report without cells, to be written to the folder `out`. An existing report must have the same
    /// settings, machine and data.
    pub fn open(
        out: &Path,
        settings: Settings,
        (dataset, bytes): (DatasetFacts, Option<u64>),
    ) -> Result<Self, Box<dyn Error>> {
        let now = Self {
            settings,
            dataset,
            bytes,
            machine: Machine::here(),
            cells: Vec::new(),
        };
        let path = out.join("compare.json");
        match regular::read(&path) {
            Ok(bytes) => {
                let before: Self = serde_json::from_slice(&bytes).map_err(|error| {
                    Usage(format!(
                        "{}: not of the form that this version of Stokehold writes: {error}; give another --out",
                        path.display()
                    ))
                })?;
                before.same_conditions(&now, out)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_other_files(out)?;
                files::write(&path, now.json()?)?;
            }
            Err(error) => return Err(files::named(&path, &error).into()),
        }
        Ok(now)
    }

    fn same_conditions(&self, now: &Self, out: &Path) -> Result<(), Box<dyn Error>> {
        let mut changes = self.settings.changes(&now.settings)?;
        if self.dataset != now.dataset {
            changes.push("the images of the data set are other ones".to_owned());
        }
        if let (Some(before), Some(now)) = (self.bytes, now.bytes)
            && before != now
        {
            changes.push(format!("the images had {before} bytes and have {now} now"));
        }
        let machine = |report: &Self| {
            let cpu = report.machine.cpu.as_deref().unwrap_or("an unknown CPU");
            format!("{} cores of {cpu}", report.machine.cores)
        };
        if machine(self) != machine(now) {
            changes.push(format!(
                "the machine had {} and has {} now",
                machine(self),
                machine(now)
            ));
        }
        if changes.is_empty() {
            return Ok(());
        }
        Err(Box::new(Usage(format!(
            "{}: the comparison in this folder cannot go on with other settings: {}; give its own settings, or \
             another --out",
            out.display(),
            changes.join("; ")
        ))))
    }

    /// The contents of `compare.json`.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The executor of a trial, 0 or 1.
    pub fn executor(&self, trial: usize) -> AnyExecutor {
        self.settings.trials.0[trial]
    }

    /// `per-op against fused`.
    pub fn title(&self) -> String {
        format!("{} against {}", self.executor(0), self.executor(1))
    }

    /// The comparison, its data and its machine, in a few sentences.
    pub fn what(&self) -> Vec<String> {
        let settings = &self.settings;
        let val = match self.dataset.val {
            Some(val) if settings.emulated.is_empty() => format!("{val} for validation"),
            Some(_) | None => "none for validation".to_owned(),
        };
        let machine = &self.machine;
        let memory = machine.memory.map_or_else(String::new, |bytes| {
            format!(", {:.0} GiB of memory", bytes as f64 / (1u64 << 30) as f64)
        });
        let sentences = vec![
            format!(
                "{} against {}: {} training images of {} in {} classes, {val}; {}, batch {}, {} px, \
                 {} loader threads.",
                trial_name(0, self.executor(0)),
                trial_name(1, self.executor(1)),
                self.dataset.train,
                settings.data_name(),
                self.dataset.classes.len(),
                plural(settings.epochs as usize, "epoch"),
                settings.batch_size,
                settings.image_size,
                settings.workers.resolve()
            ),
            emulated_by(&settings.emulated, &self.models()),
            format!(
                "Equal work: same images, order, random draws{}. Differs: the executor of the preprocessing. The load \
                 repeats flip, flip, rotate before the random crop.",
                match settings.emulated.is_empty() {
                    true => ", initial weights and optimiser",
                    false => "",
                }
            ),
            format!(
                "Stokehold {} on {}, {} cores{memory}, {}.",
                settings.stokehold,
                machine.cpu.as_deref().unwrap_or(&machine.arch),
                machine.cores,
                self.device().map_or_else(
                    || format!("device {}", settings.device),
                    |device| format!("device {device}")
                )
            ),
        ];
        sentences
            .into_iter()
            .filter(|sentence| !sentence.is_empty())
            .collect()
    }

    /// The device that computed.
    pub fn device(&self) -> Option<&str> {
        Some(self.cells.first()?.trials[0].summary.device.as_str())
    }

    /// Whether the trainer computes on the cores that the loader needs, too.
    pub fn on_cpu(&self) -> bool {
        self.device()
            .is_some_and(|device| device.to_ascii_lowercase().contains("flex"))
    }

    /// The models, in order.
    pub fn models(&self) -> Vec<Arch> {
        let mut models: Vec<Arch> = self.cells.iter().map(|cell| cell.model).collect();
        models.dedup();
        models
    }

    /// The cells of a model by load.
    pub fn cells_of(&self, model: Arch) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.model == model).collect();
        cells.sort_by_key(|cell| cell.load);
        cells
    }

    /// Milliseconds of a core that the loader needs per image when it works alone.
    pub fn core_ms(&self, trial: &Trial) -> Option<f64> {
        Some(1e3 * trial.summary.loader_cpu_seconds?)
    }
}

/// The system samples of a cell's two runs, oldest first; empty if the platform does not provide them.
pub type Samples = [Vec<Sample>; 2];

/// The use of the cores in an interval.
pub struct Sample {
    /// Its start, unix seconds.
    pub since: f64,
    /// Its end, unix seconds.
    pub time: f64,
    /// Busy share of each core, percent.
    pub cpu: Vec<f64>,
}

impl Sample {
    /// All samples of a recording, oldest first.
    pub fn all(recording: &Recording) -> Vec<Self> {
        let Some(node) = recording.nodes.first() else {
            return Vec::new();
        };
        let cores: Vec<_> = node.of(dimension::CPU).collect();
        // The first one covers the time since the recording began; a run shorter than an interval has no
        // other.
        let started = recording.about.as_ref().map(|about| about.started);
        let before = |tick: usize| match tick.checked_sub(1) {
            Some(last) => Some(node.ticks[last]),
            None => started,
        };
        let at = |(tick, &time): (usize, &f64)| Self {
            since: before(tick).map_or(time, |since| since.min(time)),
            time,
            cpu: cores
                .iter()
                .map(|core| f64::from(core.values[tick]))
                .filter(|share| !share.is_nan())
                .collect(),
        };
        node.ticks.iter().enumerate().map(at).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use stokehold_loader::Workers;
    use stokehold_profile::Percentiles;
    use stokehold_train::device::DeviceChoice;
    use stokehold_train::progress::Validation;

    use super::*;
    use crate::commands::compare::settings::Trials;
    use stokehold_pipeline::Executor;

    const EXECUTORS: [AnyExecutor; 2] = [
        AnyExecutor::Cpu(Executor::PerOp),
        AnyExecutor::Cpu(Executor::Fused),
    ];

    pub fn settings() -> Settings {
        Settings {
            stokehold: "0.1.0".to_owned(),
            data: "data/photos".into(),
            val_split: None,
            max_images: None,
            trials: Trials(EXECUTORS),
            epochs: 2,
            batch_size: 32,
            image_size: 224,
            workers: Workers::Count(std::num::NonZeroUsize::new(8).unwrap()),
            seed: 0,
            lr: 0.001,
            momentum: 0.5,
            device: DeviceChoice::Cpu,
            gpu: Default::default(),
            emulated: Vec::new(),
        }
    }

    /// A run of two epochs that took `seconds` on average, one a little less and one a little more.
    pub fn trial(executor: AnyExecutor, seconds: f64) -> Trial {
        Trial {
            executor,
            epoch_seconds: vec![seconds - 0.5, seconds + 0.5],
            cpu_time: CpuTime {
                seconds: 8.0 * seconds,
                images: 9469,
            },
            summary: RunSummary {
                run_dir: "runs/one".into(),
                arch: Arch::Resnet18,
                executor,
                device: "Cuda".into(),
                epochs: 2,
                steps: 592,
                images: 18_938,
                seconds_per_epoch: Some(seconds),
                images_per_second: 9469.0 / seconds,
                wait_share: 0.25,
                loader_ceiling: Some(9469.0 / seconds),
                trainer_ceiling: Some(1000.0),
                loader_cpu_seconds: Some(8.0 * seconds / 9469.0),
                trainer_cpu_seconds: None,
                trainer_delay_seconds: 0.0,
                cores: 8,
                others_cores: None,
                emulated: None,
                decoded: None,
                stages: BTreeMap::new(),
                cpu: Some(Percentiles {
                    p50: 50.0,
                    p95: 95.0,
                    p99: 99.0,
                }),
                peak_rss: None,
                train_loss: Some(2.25),
                validation: Some(Validation {
                    loss: 2.5,
                    top1: 0.125,
                    topk: 0.5,
                    k: 5,
                    images: 3925,
                    of: 3925,
                }),
                best: None,
                bad_images: 0,
                bad_val_images: 0,
                interrupted: false,
            },
        }
    }

    pub fn report(cells: Vec<Cell>) -> Report {
        Report {
            settings: settings(),
            dataset: DatasetFacts {
                classes: (0..10).map(|class| class.to_string()).collect(),
                train: 9469,
                val: Some(3925),
                split: None,
                names: "0".into(),
            },
            bytes: Some(1_000_000),
            machine: Machine {
                cpu: Some("A Fine Processor".into()),
                cores: 8,
                memory: Some(61 << 30),
                os: "linux".into(),
                arch: "x86_64".into(),
            },
            cells,
        }
    }

    pub fn cell(model: Arch, load: u32, a: f64, b: f64) -> Cell {
        Cell::new(model, load, [trial(EXECUTORS[0], a), trial(EXECUTORS[1], b)])
    }

    /// The published seconds per epoch of both trials.
    pub fn published_report() -> Report {
        let rows = [
            (Arch::Resnet18, 1, 41.67, 21.3),
            (Arch::Resnet18, 4, 49.95, 21.37),
            (Arch::Resnet18, 8, 61.92, 21.08),
            (Arch::Resnet18, 12, 77.82, 21.33),
            (Arch::Resnet50, 1, 72.64, 46.94),
            (Arch::Resnet50, 4, 75.21, 45.02),
            (Arch::Resnet50, 8, 81.22, 46.29),
            (Arch::Resnet50, 12, 88.89, 46.43),
            (Arch::Resnet152, 1, 166.96, 119.96),
            (Arch::Resnet152, 4, 169.68, 115.23),
            (Arch::Resnet152, 8, 169.03, 117.73),
            (Arch::Resnet152, 12, 173.18, 114.38),
        ];
        report(rows.map(|(model, load, a, b)| cell(model, load, a, b)).into())
    }

    #[test]
    fn json_reads_back() {
        let report = published_report();
        let json = report.json().unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn a_report_of_other_conditions_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("one");
        fs::create_dir(&out).unwrap();
        let facts = published_report().dataset;
        let open = |settings, facts| {
            Report::open(&out, settings, (facts, Some(1))).map_err(|error| error.to_string())
        };
        open(settings(), facts.clone()).unwrap();
        open(settings(), facts.clone()).unwrap();
        let other = Settings {
            workers: Workers::Auto,
            lr: 0.01,
            ..settings()
        };
        let message = open(other, facts.clone()).unwrap_err();
        assert!(message.contains("lr was 0.001 and is 0.01 now"), "{message}");
        assert!(
            message.contains("workers was \"8\" and is \"auto\" now"),
            "{message}"
        );
        let other = Report::open(&out, settings(), (facts.clone(), Some(2))).unwrap_err();
        assert!(
            other
                .to_string()
                .contains("the images had 1 bytes and have 2 now"),
            "{other}"
        );
        let message = open(settings(), DatasetFacts { train: 3, ..facts }).unwrap_err();
        assert!(
            message.contains("the images of the data set are other ones"),
            "{message}"
        );
    }
}
