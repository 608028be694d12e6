//! CPUBottleneck and IOBottleneck: the accelerator is idle because cores are full, or because storage is
//! slow.
//!
//! A snapshot is a bottleneck if some GPU is used less than `gpu_threshold` while some core is busy, or waits
//! for storage, more than its threshold. The rule fires if more than `threshold` percent of a machine's
//! snapshots are bottlenecks, and more than `patience` of them.
//!
//! # Cores of the run
//!
//! A core that another program fills does not count here. The kernel does not report which process kept which
//! core busy, but our recordings have the CPU time of the recorded processes and that of all others
//! ([`CoreUse`](stokehold_profile::CoreUse)). Of the full cores, CPUBottleneck attributes to the run at most
//! as many as its CPU time can fill; and at least as many as the others' CPU time cannot fill, or as there
//! are processes of the run that use about one core (from `cpu_threshold` to 110 %). A recording without the
//! two times is judged by all full cores of the machine, as in the published rule, and the finding says so.
//! The kernel does not report which process waited for storage.
//!
//! # Without a GPU
//!
//! On a machine without any GPU series the trainer is judged instead: the share of computing in the time that
//! it computed or waited for a batch replaces the GPU's utilisation. A trainer that waits 60 % of a
//! snapshot's time counts as a GPU used 40 %. If there are neither steps nor waits, only cores are judged:
//!
//! - CPUBottleneck: the work depends on one core. The fullest core, or a single process (up to 110 % of a
//!   core, so not one with several busy threads), is above `cpu_threshold` while the other cores are used
//!   less than 50 % on average, by the run if that is known. Processes count because the kernel may move one
//!   from core to core within a sample.
//! - IOBottleneck: some core waits for storage more than `io_threshold`.
//!
//! On a machine without a GPU, IOBottleneck also treats the kernel's pressure stall information like a core:
//! some task was stalled for storage more than `io_threshold` percent of the time. A core that runs other
//! work while a task waits for storage counts as busy, not as waiting.
//!
//! The finding says which of the three was judged; `judged_by` in its details is `gpu`, `trainer` or `cores`.
//!
//! # Differences from smdebug
//!
//! smdebug combines the samples of all machines; we judge each machine, add up their counts, and fire if one
//! of them fires. `Details.bottlenecks` lists every bottleneck up to 10 000; if there are more, every n-th,
//! and `every` is n.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::{Case, WHOLE_MACHINE};
use crate::rules::evidence::{list, of_run, runs, when, which};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::snapshot::Snapshots;
use crate::rules::{Evidence, Finding, Rule};

const THRESHOLD: Parameter = Parameter {
    name: "threshold",
    meaning: "share of the snapshots that are bottlenecks, percent; fires above",
    range: Range::Percent,
    defaults: [20.0, 50.0, 50.0],
};

const PATIENCE: Parameter = Parameter {
    name: "patience",
    meaning: "snapshots; judged with more",
    range: Range::Count(0),
    defaults: [20.0, 1000.0, 100.0],
};

pub(super) const CPU: Rule = Rule {
    name: "CPUBottleneck",
    detects: "GPUs, or a trainer, that idle while some core is full",
    parameters: &[
        THRESHOLD,
        Parameter {
            name: "cpu_threshold",
            meaning: "busy share of a core, percent; full above",
            range: Range::Percent,
            defaults: [90.0, 90.0, 90.0],
        },
        Parameter {
            name: "gpu_threshold",
            meaning: "utilisation of a GPU, percent; idle below",
            range: Range::Percent,
            defaults: [70.0, 10.0, 10.0],
        },
        PATIENCE,
    ],
    judge: |case| judge(case, &BottleneckRule::CPU),
};

pub(super) const IO: Rule = Rule {
    name: "IOBottleneck",
    detects: "GPUs, or a trainer, that idle while some core waits for storage",
    parameters: &[
        THRESHOLD,
        Parameter {
            name: "io_threshold",
            meaning: "share of the time that a core waits for storage, percent; high above",
            range: Range::Percent,
            defaults: [50.0, 50.0, 50.0],
        },
        Parameter {
            name: "gpu_threshold",
            meaning: "utilisation of a GPU, percent; idle below",
            range: Range::Percent,
            defaults: [70.0, 10.0, 70.0],
        },
        PATIENCE,
    ],
    judge: |case| judge(case, &BottleneckRule::IO),
};

/// The differences between the two rules.
struct BottleneckRule {
    dimension: &'static str,
    core_threshold: &'static str,
    /// `.. a core was more than 90 % {busy}`.
    busy: &'static str,
    recommendation: &'static str,
}

impl BottleneckRule {
    const CPU: Self = Self {
        dimension: dimension::CPU,
        core_threshold: "cpu_threshold",
        busy: "busy",
        recommendation: "Give the loader more workers while cores idle; when all are full, make an image cheaper: \
                         the fused executor, images stored nearer to the size that training needs, or decoding on \
                         the GPU.",
    };
    const IO: Self = Self {
        dimension: dimension::IO_WAIT,
        core_threshold: "io_threshold",
        busy: "waiting for storage",
        recommendation: "Read larger pieces and read ahead: pack the images into shards, keep more batches in \
                         flight, or copy the data to a faster disk.",
    };
}

/// What replaces the accelerator on a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judge {
    Gpu,
    Trainer,
    Cores,
}

impl Judge {
    fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Trainer => "trainer",
            Self::Cores => "cores",
        }
    }
}

/// The result for one machine.
struct Judged<'a> {
    node: &'a Node,
    snapshots: Snapshots,
    by: Judge,
    /// Whether cores that other programs filled are excluded.
    of_the_run: bool,
    /// The number of full cores in every snapshot.
    full: Vec<u16>,
    /// The number of idle GPUs in every snapshot; for a trainer 1 or 0; for cores alone, 1 if the others have
    /// room.
    idle: Vec<u16>,
    bottlenecks: usize,
    fires: bool,
}

impl Judged<'_> {
    fn is_bottleneck(&self, snapshot: usize) -> bool {
        self.full[snapshot] > 0 && self.idle[snapshot] > 0
    }

    fn share(&self) -> f64 {
        100.0 * self.bottlenecks as f64 / self.snapshots.len().max(1) as f64
    }
}

fn judge(case: &Case, rule: &BottleneckRule) -> Finding {
    let judged: Vec<Judged> = case
        .nodes()
        .iter()
        .filter(|node| node.of(rule.dimension).next().is_some() && !node.ticks.is_empty())
        .map(|node| judge_node(case, rule, node))
        .collect();
    if judged.is_empty() {
        return case.missing(&format!("no {} of cores was recorded", rule.dimension));
    }
    let mut finding = case.finding();
    finding.triggered = judged.iter().any(|one| one.fires);
    let patience = case.count("patience");
    finding.judged = judged.iter().any(|one| one.snapshots.len() as u64 > patience);
    finding.violations = judged.iter().map(|one| one.bottlenecks as u64).sum();
    finding.datapoints = judged.iter().map(|one| one.snapshots.len() as u64).sum();
    finding.details = details(&judged);
    finding.evidence = judged.iter().flat_map(|one| evidence(case, rule, one)).collect();
    finding.summary = summary(case, rule, &judged, &finding.evidence);
    if finding.triggered {
        finding.recommendation = rule.recommendation.to_owned();
    }
    finding
}

fn judge_node<'a>(case: &Case, rule: &BottleneckRule, node: &'a Node) -> Judged<'a> {
    let snapshots = Snapshots::of(node);
    let core_threshold = case.number(rule.core_threshold) as f32;
    let gpu_threshold = case.number("gpu_threshold") as f32;
    let mut full = vec![0u16; snapshots.len()];
    for core in node.of(rule.dimension) {
        snapshots.each(core, |at, value| full[at] += u16::from(value > core_threshold));
    }
    let whose = Whose::of(rule, node, &snapshots);
    if let Some(whose) = &whose {
        for (at, full) in full.iter_mut().enumerate() {
            *full = whose.full_by_the_run(at, *full, core_threshold);
        }
    }
    let mut idle = vec![0u16; snapshots.len()];
    let by = if node.of(dimension::GPU).next().is_some() {
        for gpu in node.of(dimension::GPU) {
            snapshots.each(gpu, |at, value| idle[at] += u16::from(value < gpu_threshold));
        }
        Judge::Gpu
    } else if let Some(busy) = snapshots.trainer_busy(node) {
        for (idle, busy) in idle.iter_mut().zip(&busy) {
            *idle = u16::from(*busy < gpu_threshold);
        }
        Judge::Trainer
    } else {
        if rule.dimension == dimension::CPU {
            hangs_on_one_core(
                node,
                &snapshots,
                whose.as_ref(),
                core_threshold,
                &mut full,
                &mut idle,
            );
        } else {
            idle.fill(1);
        }
        Judge::Cores
    };
    if rule.dimension == dimension::IO_WAIT && by != Judge::Gpu {
        for stalled in io_pressure(node) {
            snapshots.each(stalled, |at, value| {
                full[at] = full[at].max(u16::from(value > core_threshold));
            });
        }
    }
    let bottlenecks = (full.iter().zip(&idle))
        .filter(|(full, idle)| **full > 0 && **idle > 0)
        .count();
    let mut judged = Judged {
        node,
        snapshots,
        by,
        of_the_run: whose.is_some(),
        full,
        idle,
        bottlenecks,
        fires: false,
    };
    judged.fires =
        judged.snapshots.len() as u64 > case.count("patience") && judged.share() > case.number("threshold");
    judged
}

fn io_pressure(node: &Node) -> impl Iterator<Item = &Series> {
    node.of(dimension::PRESSURE).filter(|series| series.name == "io")
}

/// A process that uses more than this, percent of one core, has several busy threads.
const ONE_CORE: f32 = 110.0;

/// The use of the cores by the run and by others, for every snapshot, percent of one core.
struct Whose {
    run: Vec<f32>,
    others: Vec<f32>,
    /// The use by each process of the run.
    processes: Vec<Vec<f32>>,
}

impl Whose {
    fn of(rule: &BottleneckRule, node: &Node, snapshots: &Snapshots) -> Option<Self> {
        let used = node.core_use().filter(|_| rule.dimension == dimension::CPU)?;
        let processes = node.of(dimension::PROCESS_CPU);
        Some(Self {
            run: snapshots.column(used.run),
            others: snapshots.column(used.others),
            processes: processes.map(|one| snapshots.column(&one.values)).collect(),
        })
    }

    /// How many of a snapshot's full cores the run has filled.
    fn full_by_the_run(&self, at: usize, full: u16, threshold: f32) -> u16 {
        // The number of cores that a time fills to more than the threshold; 0 if the time is not known.
        let filled = |time: f32| ((time / threshold.max(1.0)).ceil() as u16).saturating_sub(1);
        let alone = self.processes.iter().filter(|process| {
            let used = process[at];
            used > threshold && used <= ONE_CORE
        });
        let least = full
            .saturating_sub(filled(self.others[at]))
            .max(alone.count() as u16);
        least.min(filled(self.run[at])).min(full)
    }
}

/// Marks snapshots in which all cores but the fullest have room, and counts a process that fills a core as a
/// full core.
fn hangs_on_one_core(
    node: &Node,
    snapshots: &Snapshots,
    whose: Option<&Whose>,
    threshold: f32,
    full: &mut [u16],
    idle: &mut [u16],
) {
    const ROOM: f32 = 50.0;
    // Sum, maximum and number of the cores' values.
    let mut cores = vec![(0f32, 0f32, 0u16); snapshots.len()];
    for core in node.of(dimension::CPU) {
        snapshots.each(core, |at, value| {
            let (sum, most, count) = cores[at];
            cores[at] = (sum + value, most.max(value), count + 1);
        });
    }
    for (at, (idle, (sum, most, count))) in idle.iter_mut().zip(&cores).enumerate() {
        let beside = match whose {
            Some(whose) => whose.run[at] - 100.0,
            None => sum - most,
        };
        *idle = u16::from(beside / f32::from(count.saturating_sub(1).max(1)) < ROOM);
    }
    for process in node.of(dimension::PROCESS_CPU) {
        snapshots.each(process, |at, value| {
            if value > threshold && value <= ONE_CORE && full[at] == 0 {
                full[at] = 1;
            }
        });
    }
}

fn details(judged: &[Judged]) -> Value {
    const MOST: u64 = 10_000;
    let all: u64 = judged.iter().map(|one| one.bottlenecks as u64).sum();
    let every = all.div_ceil(MOST).max(1);
    let mut listed: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let (mut place, mut low) = (0, 0u64);
    for one in judged {
        low += one.idle.iter().filter(|idle| **idle > 0).count() as u64;
        for at in (0..one.snapshots.len()).filter(|at| one.is_bottleneck(*at)) {
            if place % every == 0 {
                // Times are positive, so their bits sort in the same order.
                let entry = listed.entry(one.snapshots.times[at].to_bits()).or_default();
                let gpus = if one.by == Judge::Gpu { one.idle[at] } else { 0 };
                *entry = (entry.0 + u64::from(gpus), entry.1 + u64::from(one.full[at]));
            }
            place += 1;
        }
    }
    let listed: Map<String, Value> = listed
        .into_iter()
        .map(|(time, (gpus, cpus))| {
            (
                f64::from_bits(time).to_string(),
                json!({"GPUs": gpus, "CPUs": cpus}),
            )
        })
        .collect();
    let by: BTreeMap<&str, &str> = judged
        .iter()
        .map(|one| (one.node.name.as_str(), one.by.name()))
        .collect();
    json!({"bottlenecks": listed, "low_gpu_utilization": low, "judged_by": by, "every": every})
}

fn evidence(case: &Case, rule: &BottleneckRule, judged: &Judged) -> Vec<Evidence> {
    let threshold = case.number(rule.core_threshold) as f32;
    let Judged { node, snapshots, .. } = judged;
    let name = |run: &std::ops::Range<usize>| {
        let held = run.clone().filter(|at| judged.is_bottleneck(*at)).count();
        let mut names = which(snapshots, run, held, node.of(rule.dimension), |value| {
            value > threshold
        });
        if names.is_empty() && rule.dimension == dimension::IO_WAIT {
            names.push("storage");
        } else if names.is_empty() {
            let processes = node.of(dimension::PROCESS_CPU);
            names = which(snapshots, run, held, processes, |value| value > threshold);
        }
        list(&names)
    };
    runs(snapshots, |at| judged.is_bottleneck(at))
        .iter()
        .map(|run| of_run(node, snapshots, run, name(run)))
        .collect()
}

fn summary(case: &Case, rule: &BottleneckRule, judged: &[Judged], evidence: &[Evidence]) -> String {
    let gpu_threshold = case.number("gpu_threshold");
    let mut sentences = Vec::new();
    for one in judged {
        let name = &one.node.name;
        let pressure = one.by != Judge::Gpu && io_pressure(one.node).next().is_some();
        let who = match rule.dimension {
            dimension::IO_WAIT if pressure => "some core or task",
            _ => "some core",
        };
        let core = format!(
            "{who} was more than {} % {}{}",
            case.number(rule.core_threshold),
            rule.busy,
            if one.of_the_run { " by this run" } else { "" },
        );
        let condition = match one.by {
            Judge::Gpu => format!("{core} while a GPU was used less than {gpu_threshold} %"),
            Judge::Trainer => format!(
                "{core} while the trainer computed less than {gpu_threshold} % of its time (no GPU was recorded, so \
                 its waiting stands for an idle GPU)"
            ),
            Judge::Cores if rule.dimension == dimension::CPU => format!(
                "one core{} or one process was more than {} % busy while {} (neither GPU nor steps were recorded, so \
                 cores alone are judged)",
                if one.of_the_run { " by this run" } else { "" },
                case.number(rule.core_threshold),
                if one.of_the_run {
                    "it left the other cores room"
                } else {
                    "the other cores had room"
                },
            ),
            Judge::Cores => {
                format!("{core} (neither GPU nor steps were recorded, so cores alone are judged)")
            }
        };
        let (count, all, share) = (one.bottlenecks, one.snapshots.len(), one.share());
        let here: Vec<Evidence> = evidence.iter().filter(|one| one.node == *name).cloned().collect();
        let times = match here.is_empty() {
            true => String::new(),
            false => format!(": {}", when(&here, one.snapshots.time(0).0)),
        };
        let mut sentence =
            format!("On {name}, {condition} in {count} of {all} samples ({share:.1} %){times}.");
        if rule.dimension == dimension::CPU && !one.of_the_run {
            sentence += WHOLE_MACHINE;
        }
        if all as u64 <= case.count("patience") {
            sentence += &format!(
                " Not judged before more than {} samples.",
                case.number("patience")
            );
        }
        sentences.push(sentence);
    }
    sentences.join(" ")
}
