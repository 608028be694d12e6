//! Simulated recordings of machines, for tests, benchmarks and demonstrations.
//!
//! A [`Simulation`] describes the machines (nodes, cores, GPUs), how long and how often they are sampled, and
//! what happens to them, one [`Phase`] after the other. Values are a phase's level plus noise that is a
//! function of (seed, node, series, tick), so the same simulation gives the same recording on every machine.
//! Spans follow the phases too: the trainer waits, then computes, and one of the workers makes each batch
//! just before it is handed over. [`Simulation::recording`] returns it in memory, [`Simulation::write`]
//! writes files of the published format, and `cargo run -p stokehold-simulate --example simulate -- FOLDER
//! --gpus 8` does so from the command line.
//!
//! ```
//! use stokehold_simulate::{Phase, Simulation};
//! let recording = Simulation {
//!     phases: vec![Phase::OneCore, Phase::Disk],
//!     seconds: 60.0,
//!     ..Simulation::default()
//! }
//! .recording();
//! assert_eq!(recording.nodes[0].ticks.len(), 120);
//! ```

use std::path::Path;

use stokehold_base::random::mix;
use stokehold_profile::{
    About, Machine, Node, ProfileError, Recording, Series, Span, dimension, events, span, system,
};

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// Machines, named `algo-1`, `algo-2`, ..
    pub nodes: usize,
    /// Cores of each.
    pub cores: usize,
    /// GPUs of each; with none, only the spans tell that the trainer waits.
    pub gpus: usize,
    /// Length of the recording.
    pub seconds: f64,
    /// Time between two samples, seconds.
    pub interval: f64,
    /// Computing time of a step, seconds; 0 omits all spans, as for a command that marks no steps.
    pub step_seconds: f64,
    /// Loader workers; with none, no spans of workers are made.
    pub workers: u32,
    /// The load of other programs on every core, percent; the run and they share a core that both need.
    /// `None` for a recording that does not tell them apart, as SageMaker Debugger's.
    pub others: Option<f32>,
    /// What happens, in this order, each for an equal part of the time.
    pub phases: Vec<Phase>,
    /// Start, unix seconds.
    pub start: f64,
    /// The seed of the noise.
    pub seed: u64,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            nodes: 1,
            cores: 8,
            gpus: 1,
            seconds: 600.0,
            interval: 0.5,
            step_seconds: 0.25,
            workers: 4,
            others: Some(0.0),
            phases: vec![Phase::Startup, Phase::Healthy],
            start: 1_767_225_600.0,
            seed: 0,
        }
    }
}

/// What happens on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The job starts: no steps, GPUs idle.
    Startup,
    /// A program that does nothing and marks no steps.
    Asleep,
    /// GPUs busy, cores have room, hardly a wait.
    Healthy,
    /// One core prepares everything and is full, the others and the GPUs idle.
    OneCore,
    /// Cores wait for storage, GPUs wait for data.
    Disk,
    /// All cores prepare images and are full, the trainer waits 60 % of the time.
    Loader,
    /// As `Healthy`, with storage read in many small pieces.
    SmallFiles,
    /// The cgroup's quota throttles the process.
    Quota,
    /// Main memory is full, swap grows, tasks stall for memory.
    Memory,
    /// GPUs are slowed down by heat.
    Heat,
    /// Odd GPUs idle; on every node but the first, steps take twice as long.
    Uneven,
}

/// A phase in numbers: percent unless said otherwise.
struct Level {
    first_core: f32,
    other_cores: f32,
    io_wait: f32,
    gpu: f32,
    /// Seconds waited per second computed.
    wait: f64,
    /// Workers that work at the same time, as a share of all.
    workers: f64,
    memory: f32,
    memory_stall: f32,
    throttled: f32,
    /// Read calls per second, and bytes of each.
    reads: f32,
    read_bytes: f32,
}

impl Phase {
    /// Every phase, by its name in options.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("startup", Self::Startup),
        ("asleep", Self::Asleep),
        ("healthy", Self::Healthy),
        ("one-core", Self::OneCore),
        ("disk", Self::Disk),
        ("loader", Self::Loader),
        ("small-files", Self::SmallFiles),
        ("quota", Self::Quota),
        ("memory", Self::Memory),
        ("heat", Self::Heat),
        ("uneven", Self::Uneven),
    ];

    fn level(self) -> Level {
        let healthy = Level {
            first_core: 55.0,
            other_cores: 50.0,
            io_wait: 1.0,
            gpu: 94.0,
            wait: 0.02,
            workers: 0.5,
            memory: 40.0,
            memory_stall: 0.0,
            throttled: 0.0,
            reads: 400.0,
            read_bytes: 262_144.0,
        };
        match self {
            Self::Startup => Level {
                first_core: 35.0,
                other_cores: 5.0,
                gpu: 0.0,
                memory: 20.0,
                ..healthy
            },
            Self::Asleep => Level {
                first_core: 0.0,
                other_cores: 0.0,
                io_wait: 0.0,
                gpu: 0.0,
                reads: 0.0,
                ..healthy
            },
            Self::Healthy | Self::Heat | Self::Uneven => healthy,
            Self::OneCore => Level {
                workers: 0.0,
                first_core: 99.0,
                other_cores: 4.0,
                gpu: 6.0,
                wait: 15.0,
                reads: 40.0,
                ..healthy
            },
            Self::Disk => Level {
                workers: 1.0,
                first_core: 9.0,
                other_cores: 6.0,
                io_wait: 80.0,
                gpu: 6.0,
                wait: 15.0,
                reads: 60.0,
                ..healthy
            },
            Self::Loader => Level {
                workers: 1.0,
                first_core: 98.0,
                other_cores: 97.0,
                gpu: 40.0,
                wait: 1.5,
                reads: 150.0,
                ..healthy
            },
            Self::SmallFiles => Level {
                reads: 4000.0,
                read_bytes: 6000.0,
                ..healthy
            },
            Self::Quota => Level {
                throttled: 60.0,
                gpu: 45.0,
                wait: 1.2,
                ..healthy
            },
            Self::Memory => Level {
                memory: 97.0,
                memory_stall: 45.0,
                gpu: 30.0,
                wait: 2.0,
                ..healthy
            },
        }
    }
}

impl Simulation {
    /// The recording, in memory.
    pub fn recording(&self) -> Recording {
        let mut recording = Recording {
            nodes: (0..self.nodes).map(|node| self.node(node)).collect(),
            ..Recording::default()
        };
        recording.sort();
        recording
    }

    /// Writes the recording's files to `profiler-output` in a run's folder, which is created if needed.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when a file cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), ProfileError> {
        let folder = run.join(stokehold_profile::FOLDER);
        std::fs::create_dir_all(&folder).map_err(|source| ProfileError::Io {
            path: folder.clone(),
            source,
        })?;
        for node in self.recording().nodes {
            let options = system::Options {
                node: node.name.clone(),
                limit: u64::MAX,
                ..system::Options::default()
            };
            let mut samples = system::Writer::open(&folder, options)?;
            for series in &node.series {
                samples.series(&series.kind, &series.name, &series.dimension);
            }
            let mut tick = Vec::with_capacity(node.series.len());
            for (at, &time) in node.ticks.iter().enumerate() {
                tick.clear();
                tick.extend(node.series.iter().map(|series| f64::from(series.values[at])));
                samples.tick(time, &tick)?;
            }
            samples.finish()?;
            let options = events::Options {
                node: node.name.clone(),
                process: 4487,
                limit_bytes: u64::MAX,
                ..events::Options::new(self.start)
            };
            let mut traces = events::Writer::new(&folder, options);
            let mut by_end: Vec<&Span> = node.spans.iter().collect();
            by_end.sort_by(|a, b| a.end().total_cmp(&b.end()));
            for span in by_end {
                traces.write(&node.names[span.name as usize], span)?;
            }
            traces.finish()?;
        }
        self.about().write(&folder)
    }

    fn about(&self) -> About {
        About {
            stokehold: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec!["simulate".to_owned()],
            started: self.start,
            ended: Some(self.start + self.seconds),
            exit_code: Some(0),
            interval_ms: (self.interval * 1000.0).round() as u64,
            machine: Machine {
                cpu: Some("simulated".to_owned()),
                cores: self.cores,
                quota: None,
                memory: None,
                os: "none".to_owned(),
                arch: "none".to_owned(),
                instance: None,
                gpu: None,
            },
            workload: None,
            paused: None,
            idle_seconds: 0.0,
            notes: vec!["This machine was simulated.".to_owned()],
        }
    }

    fn node(&self, number: usize) -> Node {
        let ticks = self.ticks();
        let mut node = Node {
            name: format!("algo-{}", number + 1),
            ticks: (1..=ticks)
                .map(|tick| self.start + tick as f64 * self.interval)
                .collect(),
            ..Node::default()
        };
        self.sample_machine(&mut node, number);
        for gpu in 0..self.gpus {
            self.sample_gpu(&mut node, number, gpu);
        }
        self.tell_whose(&mut node);
        if self.step_seconds > 0.0 {
            self.train(&mut node, number);
        }
        node
    }

    fn ticks(&self) -> usize {
        // Slightly more, so that 60 s at 0.1 s are 600 samples.
        (self.seconds / self.interval + 1e-6).max(0.0) as usize
    }

    /// The phase at a time since the start; the last one after the end.
    fn phase(&self, seconds: f64) -> Phase {
        let place = (seconds / self.seconds * self.phases.len() as f64) as usize;
        let last = self.phases.last().copied().unwrap_or(Phase::Healthy);
        self.phases.get(place).copied().unwrap_or(last)
    }

    /// Adds a series: for every tick, the result of `value` for its phase and level, noise in -1..1, and the
    /// tick's position in the recording, 0..1.
    fn series(
        &self,
        node: &mut Node,
        number: usize,
        (kind, name, dimension): (&str, String, &str),
        value: impl Fn(Phase, &Level, f32, f32) -> f32,
    ) {
        let salt = mix(self.seed ^ mix(number as u64) ^ mix(node.series.len() as u64).rotate_left(17));
        let ticks = self.ticks();
        let mut values = Vec::with_capacity(ticks);
        let mut now = None;
        for tick in 0..ticks {
            let phase = self.phase((tick as f64 + 0.5) * self.interval);
            let (_, level) = match &mut now {
                Some(known)
                    if {
                        let (at, _): &(Phase, Level) = known;
                        *at == phase
                    } =>
                {
                    known
                }
                _ => now.insert((phase, phase.level())),
            };
            let noise = (mix(salt ^ tick as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
            values.push(value(phase, level, noise, tick as f32 / ticks as f32));
        }
        node.series.push(Series {
            kind: kind.to_owned(),
            name,
            dimension: dimension.to_owned(),
            values,
        });
    }

    fn sample_machine(&self, node: &mut Node, number: usize) {
        for core in 0..self.cores {
            let name = || format!("cpu{core}");
            self.series(
                node,
                number,
                ("cpu", name(), dimension::CPU),
                |_, level, noise, _| {
                    let busy = if core == 0 {
                        level.first_core
                    } else {
                        level.other_cores
                    };
                    let busy = percent(busy + self.others.unwrap_or(0.0));
                    percent(busy + 1.0_f32.max((100.0 - busy) * 0.08) * noise)
                },
            );
            self.series(
                node,
                number,
                ("cpu", name(), dimension::IO_WAIT),
                |_, level, noise, _| percent(level.io_wait * (1.0 + 0.15 * noise)),
            );
        }
        let named = |name: &str| name.to_owned();
        let mut add =
            |kind: &str, name: &str, dimension: &str, value: &dyn Fn(Phase, &Level, f32, f32) -> f32| {
                self.series(node, number, (kind, named(name), dimension), value);
            };
        add(
            "memory",
            "MemoryUsedPercent",
            dimension::MEMORY,
            &|_, level, noise, _| percent(level.memory + noise),
        );
        add(
            "memory",
            "SwapUsedPercent",
            dimension::SWAP,
            &|phase, _, _, place| match phase {
                Phase::Memory => 60.0 * place,
                _ => 0.0,
            },
        );
        add(
            "network",
            "ReceiveBytesPerSecond",
            dimension::NETWORK,
            &|_, _, noise, _| 2e5 * (1.0 + 0.5 * noise),
        );
        add(
            "network",
            "TransmitBytesPerSecond",
            dimension::NETWORK,
            &|_, _, noise, _| 5e4 * (1.0 + 0.5 * noise),
        );
        let read = |level: &Level, noise: f32| level.reads * level.read_bytes * (1.0 + 0.1 * noise);
        add(
            "disk",
            "ReadBytesPerSecond",
            dimension::DISK,
            &|_, level, noise, _| read(level, noise),
        );
        add(
            "disk",
            "WriteBytesPerSecond",
            dimension::DISK,
            &|_, _, noise, _| 1e5 * (1.0 + noise),
        );
        add("pressure", "cpu", dimension::PRESSURE, &|_, level, noise, _| {
            percent((level.other_cores - 60.0).max(0.0) * (1.0 + 0.1 * noise))
        });
        add(
            "pressure",
            "memory",
            dimension::PRESSURE,
            &|_, level, noise, _| percent(level.memory_stall * (1.0 + 0.1 * noise)),
        );
        add("pressure", "io", dimension::PRESSURE, &|_, level, noise, _| {
            percent(level.io_wait * (1.05 + 0.1 * noise))
        });
        add("cgroup", "cpu", dimension::THROTTLED, &|_, level, noise, _| {
            percent(level.throttled * (1.0 + 0.1 * noise))
        });
        let (cores, others) = (self.cores as f32, self.others.unwrap_or(0.0));
        add(
            "process",
            "4487 python3",
            dimension::PROCESS_CPU,
            &|_, level, noise, _| {
                let got = |wanted: f32| wanted * 100.0 / (wanted + others).max(100.0);
                let all = got(level.first_core) + got(level.other_cores) * (cores - 1.0);
                all * (0.97 + 0.01 * noise)
            },
        );
        add(
            "process",
            "4487 python3",
            dimension::PROCESS_MEMORY,
            &|_, level, noise, _| 1e8 * (level.memory + 0.1 * noise),
        );
        add(
            "process",
            "tree",
            dimension::PROCESS_READ,
            &|_, level, noise, _| read(level, noise),
        );
        add(
            "process",
            "tree",
            dimension::PROCESS_READS,
            &|_, level, noise, _| level.reads * (1.0 + 0.1 * noise),
        );
    }

    /// Divides the busy time of the cores between the run and other programs, according to their demands.
    fn tell_whose(&self, node: &mut Node) {
        let Some(others) = self.others else { return };
        let cores: Vec<&Series> = node.of(dimension::CPU).collect();
        let of_tick = |tick: usize| {
            let level = self.phase((tick as f64 + 0.5) * self.interval).level();
            cores
                .iter()
                .enumerate()
                .fold((0.0, 0.0), |(run, other), (core, series)| {
                    let wanted = if core == 0 {
                        level.first_core
                    } else {
                        level.other_cores
                    };
                    let busy = series.values[tick];
                    let part = if wanted > 0.0 {
                        wanted / (wanted + others)
                    } else {
                        0.0
                    };
                    (run + busy * part, other + busy * (1.0 - part))
                })
        };
        let (run, others): (Vec<f32>, Vec<f32>) = (0..self.ticks()).map(of_tick).unzip();
        for (name, dimension, values) in [
            ("tree", dimension::TREE_CPU, run),
            ("others", dimension::OTHERS_CPU, others),
        ] {
            node.series.push(Series {
                kind: "process".to_owned(),
                name: name.to_owned(),
                dimension: dimension.to_owned(),
                values,
            });
        }
    }

    fn sample_gpu(&self, node: &mut Node, number: usize, gpu: usize) {
        let busy = move |phase: Phase, level: &Level, noise: f32| match phase {
            Phase::Uneven if gpu % 2 == 1 => percent(8.0 + 5.0 * noise),
            _ => percent(level.gpu * (1.0 + 0.05 * noise)),
        };
        let hot = |phase: Phase| phase == Phase::Heat;
        let mut add = |dimension: &str, value: &dyn Fn(Phase, &Level, f32, f32) -> f32| {
            self.series(node, number, ("gpu", format!("gpu{gpu}"), dimension), value);
        };
        add(dimension::GPU, &move |phase, level, noise, _| {
            busy(phase, level, noise)
        });
        add(dimension::GPU_MEMORY, &|phase, _, noise, _| match phase {
            Phase::Startup => 2.0,
            _ => 62.0 + 0.5 * noise,
        });
        add(dimension::GPU_MEMORY_BYTES, &|phase, _, noise, _| match phase {
            Phase::Startup => 4e8,
            _ => 1.24e10 + 1e8 * noise,
        });
        add(dimension::GPU_POWER, &move |phase, level, noise, _| {
            60.0 + 2.4 * busy(phase, level, noise)
        });
        add(dimension::GPU_CLOCK, &move |phase, _, _, _| {
            if hot(phase) { 810.0 } else { 1530.0 }
        });
        add(dimension::GPU_TEMPERATURE, &move |phase, _, noise, _| {
            if hot(phase) {
                88.0 + noise
            } else {
                61.0 + 2.0 * noise
            }
        });
        add(dimension::GPU_PCIE_RECEIVED, &move |phase, level, noise, _| {
            1e7 * busy(phase, level, noise)
        });
        add(dimension::GPU_PCIE_SENT, &move |phase, level, noise, _| {
            1e6 * busy(phase, level, noise)
        });
        for engine in [
            dimension::GPU_ENCODER,
            dimension::GPU_DECODER,
            dimension::GPU_JPEG,
        ] {
            add(engine, &|_, _, _, _| 0.0);
        }
        add(dimension::GPU_THERMAL_THROTTLE, &move |phase, _, _, _| {
            if hot(phase) { 100.0 } else { 0.0 }
        });
        add(dimension::GPU_POWER_THROTTLE, &|_, _, _, _| 0.0);
    }

    /// The spans of the trainer and its workers: worker `n % workers` makes batch `n`, and finishes it when
    /// the wait for it ends.
    fn train(&self, node: &mut Node, number: usize) {
        const EPOCH: u64 = 200;
        let salt = mix(self.seed ^ 0x7261_6e6b ^ mix(number as u64));
        let [wait, step, worker, read, decode, augment, epoch, checkpoint, eval] = [
            span::WAIT,
            span::STEP,
            span::WORKER,
            span::READ,
            span::DECODE,
            span::AUGMENT,
            span::EPOCH,
            span::CHECKPOINT,
            span::EVAL_STEP,
        ]
        .map(|name| node.name(name));
        let mut spans = Vec::new();
        let mut add =
            |name: u32, from: f64, seconds: f64, step: u64, worker: Option<u32>, bytes: Option<u64>| {
                let start = self.start + from;
                spans.push(Span {
                    name,
                    start,
                    duration: seconds,
                    step: Some(step),
                    worker,
                    bytes,
                });
            };
        let (mut now, mut count, mut epoch_start, mut training) = (0.0, 0u64, None, None);
        while now < self.seconds {
            let phase = self.phase(now);
            if matches!(phase, Phase::Startup | Phase::Asleep) {
                // Up to the phase's end, at most to the recording's end.
                now = (now + self.interval.min(1.0)).min(self.seconds);
                continue;
            }
            let level = phase.level();
            let noise = (mix(salt ^ count) >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            let slow = if phase == Phase::Uneven && number > 0 {
                2.0
            } else {
                1.0
            };
            let seconds = self.step_seconds * slow * (1.0 + 0.05 * noise);
            let waited = self.step_seconds * level.wait * (1.0 + 0.05 * noise);
            if now + waited + seconds > self.seconds {
                break;
            }
            let begin = *epoch_start.get_or_insert(now);
            let began = *training.get_or_insert(now);
            add(wait, now, waited, count, None, None);
            now += waited;
            if self.workers > 0 {
                let at_once = (level.workers * f64::from(self.workers)).max(1.0);
                let made = (at_once * (waited + seconds)).min(now - began);
                let by = Some((count % u64::from(self.workers)) as u32);
                add(worker, now - made, made, count, by, None);
                let stages = if phase == Phase::Disk {
                    [0.9, 0.07, 0.03]
                } else {
                    [0.1, 0.6, 0.3]
                };
                // A batch is read in one piece, or file by file.
                let files = if phase == Phase::SmallFiles { 100 } else { 1 };
                let bytes = match files {
                    1 => f64::from(level.reads) * f64::from(level.read_bytes) * (waited + seconds),
                    _ => f64::from(level.read_bytes),
                };
                let each = made * stages[0] / f64::from(files);
                for file in 0..files {
                    let from = now - made + f64::from(file) * each;
                    add(read, from, each, count, by, Some(bytes as u64));
                }
                add(
                    decode,
                    now - made * (1.0 - stages[0]),
                    made * stages[1],
                    count,
                    by,
                    None,
                );
                add(augment, now - made * stages[2], made * stages[2], count, by, None);
            }
            add(step, now, seconds, count, None, None);
            now += seconds;
            count += 1;
            if count.is_multiple_of(EPOCH) && now + 3.0 * seconds <= self.seconds {
                add(epoch, begin, now - begin, count / EPOCH - 1, None, None);
                for validation in 0..5 {
                    add(
                        eval,
                        now,
                        seconds * 0.4,
                        count / EPOCH * 5 + validation - 5,
                        None,
                        None,
                    );
                    now += seconds * 0.4;
                }
                add(checkpoint, now, seconds, count / EPOCH - 1, None, None);
                now += seconds;
                epoch_start = None;
            }
        }
        node.spans = spans;
    }
}

fn percent(value: f32) -> f32 {
    value.clamp(0.0, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_simulation_is_the_same_recording() {
        let simulation = Simulation {
            nodes: 2,
            gpus: 2,
            seconds: 20.0,
            ..Simulation::default()
        };
        let (one, two) = (simulation.recording(), simulation.recording());
        for (one, two) in one.nodes.iter().zip(&two.nodes) {
            assert_eq!(one.spans, two.spans);
            for (one, two) in one.series.iter().zip(&two.series) {
                assert_eq!((&one.name, &one.values), (&two.name, &two.values));
            }
        }
        let other = Simulation {
            seed: 1,
            ..simulation
        }
        .recording();
        assert_ne!(other.nodes[0].series[0].values, one.nodes[0].series[0].values);
    }

    #[test]
    fn every_series_has_a_value_for_every_tick_and_spans_are_in_order() {
        let recording = Simulation {
            nodes: 2,
            gpus: 8,
            seconds: 90.0,
            interval: 0.1,
            phases: vec![Phase::Startup, Phase::OneCore, Phase::Disk],
            ..Simulation::default()
        }
        .recording();
        assert_eq!(recording.nodes.len(), 2);
        for node in &recording.nodes {
            assert_eq!(node.ticks.len(), 900);
            assert_eq!(node.of(dimension::GPU).count(), 8);
            assert!(node.series.iter().all(|series| series.values.len() == 900));
            assert!(node.spans.is_sorted_by(|a, b| a.start <= b.start));
            let starts_at = recording.nodes[0].ticks[0] - 0.1;
            assert!(
                node.spans
                    .iter()
                    .all(|span| span.start >= starts_at + 29.0 && span.end() <= starts_at + 90.01)
            );
            assert!(node.steps().count() > 10);
        }
    }

    /// Values are written with two decimals, times to the microsecond.
    #[test]
    fn what_is_written_is_read_back() {
        let simulation = Simulation {
            nodes: 2,
            gpus: 8,
            seconds: 130.0,
            phases: vec![Phase::Startup, Phase::Healthy, Phase::Disk],
            ..Simulation::default()
        };
        let folder = tempfile::tempdir().unwrap();
        simulation.write(folder.path()).unwrap();
        let (made, read) = (simulation.recording(), Recording::open(folder.path()).unwrap());
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        assert_eq!(read.about.unwrap().interval_ms, 500);
        assert_eq!(read.nodes.len(), 2);
        for (made, read) in made.nodes.iter().zip(&read.nodes) {
            assert_eq!((&made.name, made.ticks.len()), (&read.name, read.ticks.len()));
            assert_eq!(
                (made.series.len(), made.spans.len()),
                (read.series.len(), read.spans.len())
            );
            for (made, read) in made.series.iter().zip(&read.series) {
                assert_eq!(
                    (&made.kind, &made.name, &made.dimension),
                    (&read.kind, &read.name, &read.dimension)
                );
                for (made, read) in made.values.iter().zip(&read.values) {
                    assert!(
                        (made - read).abs() <= 0.0051 + made.abs() * 1e-6,
                        "{made} and {read}"
                    );
                }
            }
            let of = |node: &Node, name: &str| node.spans_of(name).copied().collect::<Vec<Span>>();
            for name in &made.names {
                for (made, read) in of(made, name).iter().zip(&of(read, name)) {
                    let apart = (made.start - read.start)
                        .abs()
                        .max((made.duration - read.duration).abs());
                    assert!(apart < 2e-6, "{made:?}, {read:?}");
                    assert_eq!(
                        (made.step, made.worker, made.bytes),
                        (read.step, read.worker, read.bytes),
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_empty_simulation_is_an_empty_recording() {
        for seconds in [0.0, -1.0, 0.1] {
            let recording = Simulation {
                seconds,
                ..Simulation::default()
            }
            .recording();
            assert!(recording.nodes[0].ticks.is_empty());
        }
        assert!(
            Simulation {
                nodes: 0,
                ..Simulation::default()
            }
            .recording()
            .nodes
            .is_empty()
        );
    }
}
