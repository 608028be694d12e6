//! Rules: tests of a recording, each with evidence.
//!
//! # How a recording is judged
//!
//! [`judge`] applies every rule of [`Rule::ALL`] to the recording, in the table's order, and each gives one
//! [`Finding`], fired or not. A rule is one file: its parameters with their ranges and defaults, and a
//! function that reads the columns of samples and the spans in place, without copying them. A rule that lacks
//! its data (no GPU, no steps) does not fire, and its summary says what is missing.
//!
//! Twelve rules are those of SageMaker Debugger, with its names, its parameters, its tests and its JSON
//! ([`Finding::published`]); the tests were taken from the public sources of `smdebug`
//! (`smdebug/profiler/analysis/rules`) and of sagemaker-debugger-rulesconfig, and each rule's file states our
//! differences. The others are ours.
//!
//! The meaning of `patience`, `window` and scans in all rules:
//!
//! - *datapoints* are the samples of a machine. A rule is judged if there are more than `patience` of them;
//!   those samples are used, too, not cut off. A shorter run never fires.
//! - `window` is the number of latest samples for a percentile or a mean.
//! - SageMaker scans a running job every 60 s, with the data so far. A rule on the latest window is therefore
//!   judged here at every full 60 s of the recording and at its end, and fires if it would have fired at one
//!   of those scans. If training steps are known, scans see the samples from the first to the last step, and
//!   `patience` counts from there: GPUs are idle while a job starts and ends, and that says nothing about how
//!   they are fed. A rule on shares of the whole run is judged once, at the end: the number of scans that
//!   fired, which AWS counts in `RuleTriggered`, is 0 or 1 here.
//! - A missing value (NaN: a gap, a core that was offline) is ignored everywhere.
//!
//! # The rules
//!
//! | rule | detects |
//! |---|---|
//! | `BatchSize` | cores, GPUs and GPU memory that are all under-used, as by batches that are too small |
//! | `CPUBottleneck` | GPUs, or a trainer, that idle while some core is full |
//! | `Dataloader` | too few or too many loader workers for the cores |
//! | `GPUMemoryIncrease` | memory of a GPU that rises during training |
//! | `IOBottleneck` | GPUs, or a trainer, that idle while some core waits for storage |
//! | `LoadBalancing` | GPUs of one machine that are unevenly used |
//! | `LowGPUUtilization` | GPUs that are under-used or whose use fluctuates |
//! | `MaxInitializationTime` | a training loop that takes long to begin |
//! | `OverallSystemUsage` | nothing: it reports what was used of every machine |
//! | `StepOutlier` | steps that take much longer than the others |
//! | `OverallFrameworkMetrics` | nothing: it reports the time of every phase of training |
//! | `LoaderBound` | a trainer that waits for data |
//! | `CgroupThrottled` | a container's CPU quota that holds the job back |
//! | `ThermalThrottle` | GPUs that heat slows down |
//! | `MemoryPressure` | main memory that is short |
//! | `SmallFiles` | data that is read in many small pieces |
//! | `Imbalance` | machines that train together at different speeds |
//! | `Straggler` | a rank that the others wait for |
//! | `PreprocessOnTrainerCores` | loader workers that take cores from a trainer that computes on them |
//! | `LoaderThreads` | threads of libraries within loader workers |
//! | `OtherPrograms` | other programs that use the cores next to the run |
//! | `ProfilerReport` | whether any of the other rules fired |
//!
//! `docs/reference/rules.md` has their parameters.
//!
//! # Without a GPU
//!
//! On a machine without a GPU, CPUBottleneck and IOBottleneck judge the trainer instead: the share of its
//! time in which it computed replaces the GPU's utilisation. If no steps are known either, only cores are
//! judged, and the finding says so.
//!
//! # Cores of the run
//!
//! A machine may have other work to do. Our recordings separate the CPU time of the recorded processes from
//! that of all other programs, and every rule judges the run by its own; `OtherPrograms` reports the rest. A
//! recording that does not separate the two is judged by the whole machine's figures, and the findings say
//! so.
//!
//! # Cost
//!
//! All rules together take 4 s of one core for a week at 500 ms of 96 cores and 8 GPUs with 1.5 million spans
//! (`cargo run --release -p stokehold-diagnose --example judge`).
//!
//! ```
//! use stokehold_diagnose::rules::{Defaults, Parameters, judge};
//! use stokehold_simulate::{Phase, Simulation};
//!
//! let recording = Simulation { phases: vec![Phase::OneCore], ..Simulation::default() }.recording();
//! let mut parameters = Parameters::new(Defaults::Guide);
//! parameters.set("CPUBottleneck_threshold=40")?;
//! let findings = judge(&recording, &parameters);
//! let finding = findings.iter().find(|finding| finding.rule == "CPUBottleneck").unwrap();
//! assert!(finding.triggered && finding.evidence[0].what == "cpu0", "{finding:?}");
//! # Ok::<(), stokehold_diagnose::rules::ParameterError>(())
//! ```

mod batch_size;
mod bottleneck;
mod case;
mod cgroup_throttled;
mod dataloader;
mod evidence;
mod gpu_memory_increase;
mod imbalance;
mod load_balancing;
mod loader_bound;
mod loader_threads;
mod low_gpu_utilization;
mod max_initialization_time;
mod memory_pressure;
mod other_programs;
mod overall_framework_metrics;
mod overall_system_usage;
mod parameters;
mod preprocess_on_trainer_cores;
mod profiler_report;
mod scan;
mod share;
mod small_files;
mod snapshot;
mod statistics;
mod step_outlier;
mod steps;
mod straggler;
mod thermal_throttle;

use case::Case;
pub use parameters::{Defaults, Parameter, ParameterError, Parameters, Range};
use serde_json::{Value, json};

use stokehold_profile::Recording;

/// A rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name, such as `CPUBottleneck`: the published one if there is one.
    pub name: &'static str,
    /// What it detects, in a sentence.
    pub detects: &'static str,
    /// Its parameters, in the order of the published report.
    pub parameters: &'static [Parameter],
    judge: fn(&Case) -> Finding,
}

impl Rule {
    /// Every rule, in the order in which they are judged.
    pub const ALL: &[Self] = &[
        batch_size::RULE,
        bottleneck::CPU,
        dataloader::RULE,
        gpu_memory_increase::RULE,
        bottleneck::IO,
        load_balancing::RULE,
        low_gpu_utilization::RULE,
        max_initialization_time::RULE,
        overall_system_usage::RULE,
        step_outlier::RULE,
        overall_framework_metrics::RULE,
        loader_bound::RULE,
        cgroup_throttled::RULE,
        thermal_throttle::RULE,
        memory_pressure::RULE,
        small_files::RULE,
        imbalance::RULE,
        straggler::RULE,
        preprocess_on_trainer_cores::RULE,
        loader_threads::RULE,
        other_programs::RULE,
        profiler_report::RULE,
    ];
}

/// Applies every rule to a recording; the findings are in the order of [`Rule::ALL`].
pub fn judge(recording: &Recording, parameters: &Parameters) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(Rule::ALL.len());
    for rule in Rule::ALL {
        let case = Case {
            rule,
            recording,
            parameters,
            before: &findings,
        };
        let finding = (rule.judge)(&case);
        findings.push(finding);
    }
    findings
}

/// The result of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule's name, such as `CPUBottleneck`.
    pub rule: &'static str,
    /// Whether it fired.
    pub triggered: bool,
    /// Whether its data was recorded, at least on some machine. If not, its summary says what was missing.
    pub judged: bool,
    /// The number of violations.
    pub violations: u64,
    /// The number of values that were tested.
    pub datapoints: u64,
    /// Its parameters with the values used, in the order of the published report.
    pub parameters: Vec<(&'static str, String)>,
    /// The numbers, in the format of the published JSON if there is one.
    pub details: Value,
    /// The result, in a sentence with numbers.
    pub summary: String,
    /// A recommendation, in a sentence; empty if it did not fire.
    pub recommendation: String,
    /// Times and places.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// The finding as the JSON that SageMaker Debugger writes to `profiler-reports/<Rule>.json`.
    pub fn published(&self) -> Value {
        let parameters = self
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}:{value}"));
        json!({
            "RuleTriggered": u64::from(self.triggered),
            "Violations": self.violations,
            "Details": self.details,
            "Datapoints": self.datapoints,
            "RuleParameters": parameters.collect::<Vec<_>>().join("\n"),
        })
    }
}

/// The time and place of a finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Start, unix seconds.
    pub from: f64,
    /// End, unix seconds.
    pub to: f64,
    /// The machine.
    pub node: String,
    /// The cores, GPUs or processes: `cpu3`, `gpu0, gpu1`.
    pub what: String,
    /// First and last training step in that time, if steps are known.
    pub steps: Option<(u64, u64)>,
}
