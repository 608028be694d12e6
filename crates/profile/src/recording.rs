//! A recording in memory: the input of every rule, figure and recommendation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stokehold_base::stats::percentile;

use crate::Machine;
use crate::lengths;
use crate::workload::Workload;

/// Names of the series in a recording's files: those that SageMaker Debugger's analysis expects, and ours.
///
/// Rates are per second, over the interval before the tick.
pub mod dimension {
    /// `cpu`, `cpuN`: busy share of a core, percent.
    pub const CPU: &str = "CPUUtilization";
    /// `cpu`, `cpuN`: share of the time that a core was idle while waiting for storage, percent.
    pub const IO_WAIT: &str = "I/OWaitPercentage";
    /// `gpu`, `gpuN`: share of the time that kernels ran, percent.
    pub const GPU: &str = "GPUUtilization";
    /// `gpu`, `gpuN`: memory in use, percent of the device's.
    pub const GPU_MEMORY: &str = "GPUMemoryUtilization";
    /// `memory`, `MemoryUsedPercent`: main memory in use, percent.
    pub const MEMORY: &str = "MemoryUsedPercent";
    /// `network`, `ReceiveBytesPerSecond` and `TransmitBytesPerSecond`: bytes that the network interfaces
    /// received and sent, without loopback and virtual ones; AWS gives network series this dimension.
    pub const NETWORK: &str = "Algorithm";
    /// `memory`, `SwapUsedPercent`: swap in use, percent; 0 where there is none.
    pub const SWAP: &str = "SwapUsedPercent";
    /// `disk`, `ReadBytesPerSecond` and `WriteBytesPerSecond`: bytes that were read from all disks and
    /// written to them.
    pub const DISK: &str = "DiskBytesPerSecond";
    /// `pressure`, `cpu`, `memory` and `io`: share of the time in which some task was stalled for
    /// the CPU, for memory or for storage, percent.
    pub const PRESSURE: &str = "PressureSomePercent";
    /// `cgroup`, `cpu`: share of the time in which the cgroup's quota throttled its tasks, percent.
    pub const THROTTLED: &str = "ThrottledPercent";
    /// `process`, `PID NAME`: CPU time of one process of the tree, percent of one core.
    pub const PROCESS_CPU: &str = "ProcessCPUUtilization";
    /// `process`, `PID NAME`: resident memory of one process of the tree, bytes.
    pub const PROCESS_MEMORY: &str = "ProcessResidentBytes";
    /// `process`, `tree`: CPU time of the tree, including processes that have ended, percent of one core.
    pub const TREE_CPU: &str = "ProcessTreeCPUUtilization";
    /// `process`, `others`: CPU time of other programs, the kernel and the hypervisor, percent of one core.
    pub const OTHERS_CPU: &str = "OtherProgramsCPUUtilization";
    /// `process`, `tree`: bytes that the tree's read calls returned.
    pub const PROCESS_READ: &str = "ProcessReadBytesPerSecond";
    /// `process`, `tree`: read calls of the tree.
    pub const PROCESS_READS: &str = "ProcessReadCallsPerSecond";
    /// `recorder`, `sample`: the length of the sample's interval, milliseconds: since the sample before, or
    /// since the recorder was switched on again.
    pub const SAMPLE: &str = "SampleMilliseconds";
    /// `gpu`, `gpuN`: memory in use, bytes.
    pub const GPU_MEMORY_BYTES: &str = "GPUMemoryUsedBytes";
    /// `gpu`, `gpuN`: power drawn, watts.
    pub const GPU_POWER: &str = "GPUPowerWatts";
    /// `gpu`, `gpuN`: clock of the multiprocessors, MHz.
    pub const GPU_CLOCK: &str = "GPUClockMHz";
    /// `gpu`, `gpuN`: temperature, degrees Celsius.
    pub const GPU_TEMPERATURE: &str = "GPUTemperature";
    /// `gpu`, `gpuN`: bytes received over PCIe.
    pub const GPU_PCIE_RECEIVED: &str = "GPUPCIeReceivedBytesPerSecond";
    /// `gpu`, `gpuN`: bytes sent over PCIe.
    pub const GPU_PCIE_SENT: &str = "GPUPCIeSentBytesPerSecond";
    /// `gpu`, `gpuN`: busy share of the video encoder, percent.
    pub const GPU_ENCODER: &str = "GPUEncoderUtilization";
    /// `gpu`, `gpuN`: busy share of the video decoder, percent.
    pub const GPU_DECODER: &str = "GPUDecoderUtilization";
    /// `gpu`, `gpuN`: busy share of the JPEG engine, percent.
    pub const GPU_JPEG: &str = "GPUJPEGUtilization";
    /// `gpu`, `gpuN`: 100 while heat slows the device down, otherwise 0.
    pub const GPU_THERMAL_THROTTLE: &str = "GPUThermalThrottle";
    /// `gpu`, `gpuN`: 100 while the power limit slows the device down, otherwise 0.
    pub const GPU_POWER_THROTTLE: &str = "GPUPowerThrottle";
}

/// Names of spans that rules and reports interpret; spans with any other name are phases.
pub mod span {
    /// The prefix of training steps' names in trace files; `TRAIN`, `EVAL`, `PREDICT` or `GLOBAL` follows.
    pub const STEP_PREFIX: &str = "Step:ModeKeys.";
    /// A training step: the trainer computes.
    pub const STEP: &str = "Step:ModeKeys.TRAIN";
    /// A step of validation.
    pub const EVAL_STEP: &str = "Step:ModeKeys.EVAL";
    /// The trainer waits for a batch: PyTorch's `next(iterator)`.
    pub const WAIT: &str = "DataLoaderIter";
    /// A loader worker makes a batch, or its part of one.
    pub const WORKER: &str = "DataLoaderWorker";
    /// The loader starts its workers.
    pub const LOADER_START: &str = "DataLoaderIterInitialize";
    /// A worker reads the bytes of images.
    pub const READ: &str = "read";
    /// A worker decodes.
    pub const DECODE: &str = "decode";
    /// A worker augments and normalises.
    pub const AUGMENT: &str = "augment";
    /// An epoch, from its first wait to its last step.
    pub const EPOCH: &str = "epoch";
    /// The validation after an epoch.
    pub const VALIDATION: &str = "validation";
    /// A checkpoint is written.
    pub const CHECKPOINT: &str = "checkpoint";
    /// A rank waits for the slowest one.
    pub const RANKS_WAIT: &str = "ranks wait";
    /// Ranks sum their gradients, and each updates its weights.
    pub const REDUCE: &str = "reduce";
}

/// The recording of a run: samples of the machine and spans of the program, per node.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The folder it was read from.
    pub path: PathBuf,
    /// The facts in `recording.json`; `None` for a recording of another program.
    pub about: Option<About>,
    /// The machines, by name.
    pub nodes: Vec<Node>,
    /// Data that could not be read, each with file, line and reason. The recording has a gap there.
    pub problems: Vec<String>,
}

/// `recording.json`: facts about a recording, written when it starts and again when it ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct About {
    /// The version of Stokehold.
    pub stokehold: String,
    /// The command that was recorded, with its arguments.
    pub command: Vec<String>,
    /// Start, unix seconds.
    pub started: f64,
    /// End, unix seconds; `None` while it runs, and after a crash.
    pub ended: Option<f64>,
    /// Exit code of the command, or 128 + the signal that ended it; `None` while it runs, and if the recorder
    /// did not start it.
    pub exit_code: Option<i32>,
    /// Sampling interval when it started, milliseconds.
    pub interval_ms: u64,
    /// The machine.
    pub machine: Machine,
    /// The kind of training; `None` if the command is not one of Stokehold's.
    pub workload: Option<Workload>,
    /// When the recording was switched off, unix seconds; `None` while samples are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<f64>,
    /// Of a recording that went on later, as that of a run that was resumed: how long no one recorded in between, seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_seconds: f64,
    /// Notes for readers: a missing NVML, a jump of the clock, samples that rotation removed.
    pub notes: Vec<String>,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// The part of a recording that belongs to one machine.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its name, such as `algo-1`.
    pub name: String,
    /// When samples were taken, unix seconds, strictly ascending.
    pub ticks: Vec<f64>,
    /// The samples.
    pub series: Vec<Series>,
    /// The spans, by start time.
    pub spans: Vec<Span>,
    /// The names that [`Span::name`] refers to.
    pub names: Vec<String>,
}

/// The samples of one quantity.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its type in the files: `cpu`, `gpu`, `memory`, ..
    pub kind: String,
    /// The device: `cpu5`, `gpu0`, ..
    pub name: String,
    /// What was measured: one of [`dimension`].
    pub dimension: String,
    /// One value per tick of the node; NaN for a gap.
    pub values: Vec<f32>,
}

/// The use of a machine's cores by this run and by others, tick by tick, percent of one core; NaN where it
/// was not measured.
#[derive(Debug, Clone, Copy)]
pub struct CoreUse<'a> {
    /// By the recorded processes.
    pub run: &'a [f32],
    /// By everything else.
    pub others: &'a [f32],
    /// The number of cores of the machine.
    pub cores: usize,
}

impl CoreUse<'_> {
    /// A column as a share of all cores, percent.
    pub fn shares(&self, values: &[f32]) -> Vec<f32> {
        values.iter().map(|value| value / self.cores as f32).collect()
    }
}

/// An activity with a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The index of its name in [`Node::names`].
    pub name: u32,
    /// Start, unix seconds.
    pub start: f64,
    /// Duration, seconds.
    pub duration: f64,
    /// The step or epoch it belongs to.
    pub step: Option<u64>,
    /// The loader's worker that did it; `None` for the trainer.
    pub worker: Option<u32>,
    /// Bytes that were read.
    pub bytes: Option<u64>,
}

impl Span {
    /// End, unix seconds.
    pub fn end(&self) -> f64 {
        self.start + self.duration
    }
}

impl Node {
    /// The series of a dimension, in the order of their names (`cpu2` before `cpu10`).
    pub fn of<'a>(&'a self, dimension: &'a str) -> impl Iterator<Item = &'a Series> {
        self.series
            .iter()
            .filter(move |series| series.dimension == dimension)
    }

    /// The spans of a name, by start time.
    pub fn spans_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Span> + use<'a> {
        let place = self.names.iter().position(|known| known == name);
        self.spans
            .iter()
            .filter(move |span| place == Some(span.name as usize))
    }

    /// The steps of all modes, by start time, each with its mode (`TRAIN`, `EVAL`, ..).
    pub fn steps(&self) -> impl Iterator<Item = (&str, &Span)> {
        self.spans.iter().filter_map(|span| {
            let mode = self
                .names
                .get(span.name as usize)?
                .strip_prefix(span::STEP_PREFIX)?;
            Some((mode, span))
        })
    }

    /// The index of a name in [`names`](Self::names), which gets the name if it is new.
    pub fn name(&mut self, name: &str) -> u32 {
        let place = self.names.iter().position(|known| known == name);
        place.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) as u32
    }

    /// The use of the cores by the recorded processes and by other programs; `None` for a recording that does
    /// not tell the two apart.
    pub fn core_use(&self) -> Option<CoreUse<'_>> {
        let cores = self.of(dimension::CPU).count();
        let values = |dimension| Some(self.of(dimension).next()?.values.as_slice());
        Some(CoreUse {
            run: values(dimension::TREE_CPU)?,
            others: values(dimension::OTHERS_CPU)?,
            cores,
        })
        .filter(|used| used.cores > 0)
    }

    /// The length of each tick's interval, seconds: as recorded, or else the time since the tick before;
    /// after a gap at most the usual length nearby.
    pub fn lengths(&self) -> Vec<f64> {
        let mut lengths = lengths::between(&self.ticks);
        for series in self.of(dimension::SAMPLE) {
            for (length, &known) in lengths.iter_mut().zip(&series.values) {
                if known > 0.0 {
                    *length = f64::from(known) / 1e3;
                }
            }
        }
        lengths
    }

    /// The sum over all ticks of value times length: for a share of time this is the time, in the share's
    /// unit times seconds.
    pub fn seconds(&self, values: &[f32]) -> f64 {
        let each = values.iter().zip(self.lengths());
        each.filter(|(value, _)| value.is_finite())
            .map(|(value, length)| f64::from(*value) * length)
            .sum()
    }

    /// The mean of a column's numbers, weighted by the length of their ticks; `None` if there are none.
    pub fn mean(&self, values: &[f32]) -> Option<f64> {
        let known = values.iter().zip(self.lengths());
        let known = known.filter(|(value, _)| value.is_finite());
        let (sum, seconds) = known.fold((0.0, 0.0), |(sum, seconds), (value, length)| {
            // Greater than zero, so that a single sample has a mean.
            let length = length.max(1e-6);
            (sum + f64::from(*value) * length, seconds + length)
        });
        (seconds > 0.0).then(|| sum / seconds)
    }

    /// Median time between two samples, seconds; `None` with fewer than two.
    pub fn interval(&self) -> Option<f64> {
        let steps: Vec<f64> = self.ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        percentile(&steps, 50.0)
    }

    /// The first and the last moment with data, unix seconds.
    pub fn extent(&self) -> Option<(f64, f64)> {
        let ends = self.spans.iter().map(Span::end).chain(self.ticks.last().copied());
        let starts = self
            .spans
            .iter()
            .map(|span| span.start)
            .chain(self.ticks.first().copied());
        Some((starts.reduce(f64::min)?, ends.reduce(f64::max)?))
    }
}

impl Recording {
    /// The first and the last moment with data, unix seconds.
    pub fn extent(&self) -> Option<(f64, f64)> {
        self.nodes
            .iter()
            .filter_map(Node::extent)
            .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// The part after a time, unix seconds: samples from it on, and spans that end then or later.
    #[must_use]
    pub fn after(&self, from: f64) -> Self {
        let node = |node: &Node| {
            let first = node.ticks.partition_point(|tick| *tick < from);
            let series = node.series.iter().map(|series| Series {
                values: series.values.get(first..).unwrap_or_default().to_vec(),
                ..series.clone()
            });
            let spans = node.spans.iter().filter(|span| span.end() >= from);
            Node {
                name: node.name.clone(),
                ticks: node.ticks[first..].to_vec(),
                series: series.collect(),
                spans: spans.copied().collect(),
                names: node.names.clone(),
            }
        };
        Self {
            path: self.path.clone(),
            about: self.about.clone(),
            nodes: self.nodes.iter().map(node).collect(),
            problems: Vec::new(),
        }
    }

    /// The range of the times between two samples, seconds, without the shortest and the longest twentieth.
    /// `None` without samples.
    pub fn intervals(&self) -> Option<(f64, f64)> {
        let lengths: Vec<f64> = self.nodes.iter().flat_map(Node::lengths).collect();
        Some((percentile(&lengths, 5.0)?, percentile(&lengths, 95.0)?))
    }

    /// Sorts nodes and series by name, with numbers compared as numbers, and spans by start. Readers call it
    /// once at the end.
    pub fn sort(&mut self) {
        self.nodes.sort_by_cached_key(|node| natural(&node.name));
        for node in &mut self.nodes {
            node.series
                .sort_by_cached_key(|series| (series.dimension.clone(), natural(&series.name)));
            node.spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        }
    }
}

/// A key that sorts `cpu2` before `cpu10`.
fn natural(name: &str) -> (String, u64, String) {
    let head: String = name.chars().take_while(|c| !c.is_ascii_digit()).collect();
    let digits: String = name[head.len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let tail = name[head.len() + digits.len()..].to_owned();
    (head, digits.parse().unwrap_or(u64::MAX), tail)
}

/// Totals of spans by name: their number, and their seconds together; spans of several workers overlap in
/// time.
pub fn totals(node: &Node) -> BTreeMap<&str, (u64, f64)> {
    let mut totals = BTreeMap::new();
    for span in &node.spans {
        if let Some(name) = node.names.get(span.name as usize) {
            let total: &mut (u64, f64) = totals.entry(name.as_str()).or_default();
            *total = (total.0 + 1, total.1 + span.duration);
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_their_numbers() {
        let mut names = ["gpu0", "cpu10", "cpu2", "cpu", "algo-12", "algo-2"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["algo-2", "algo-12", "cpu2", "cpu10", "cpu", "gpu0"]);
    }

    #[test]
    fn steps_carry_their_mode() {
        let mut node = Node::default();
        for (name, start) in [(span::STEP, 1.0), (span::WAIT, 2.0), (span::EVAL_STEP, 3.0)] {
            let name = node.name(name);
            node.spans.push(Span {
                name,
                start,
                duration: 0.5,
                step: Some(7),
                worker: None,
                bytes: None,
            });
        }
        let modes: Vec<_> = node.steps().map(|(mode, span)| (mode, span.start)).collect();
        assert_eq!(modes, [("TRAIN", 1.0), ("EVAL", 3.0)]);
        assert_eq!(node.spans_of(span::WAIT).count(), 1);
        assert_eq!(node.spans_of("unknown").count(), 0);
        assert_eq!(node.extent(), Some((1.0, 3.5)));
        assert_eq!(totals(&node)[span::STEP], (1, 0.5));
    }
}
