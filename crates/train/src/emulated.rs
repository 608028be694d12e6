//! An emulated accelerator, and emulated storage: the accelerator trains nothing, and takes as long as the real one would.
//!
//! Where no accelerator is at hand, this one shows what a loader does to it. It takes a batch, copies its
//! numbers once, as a transfer to a device does, and is busy for images / rate seconds without computing.
//!
//! A thread sleeps longer than asked for. The pace is exact nevertheless over many steps: a step ends at a point
//! in time that is computed from the end of the step before, plus the time for which the accelerator had no
//! batch. If one sleep is too long, the next one is shorter by that, up to the length of a step.
//!
//! ```text
//!            step            no batch            step
//! ├─────────────────────────┤░░░░░░░░┼─────────────────────────┤
//!                            ▒▒ overslept                       ends at the end before + no batch + images / rate
//! ```

use std::thread;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use serde::{Deserialize, Serialize};

use crate::model::Arch;

/// What trains.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum TrainerChoice {
    /// Burn, on the device of the run.
    #[default]
    Burn,
    /// Nothing: an emulated accelerator takes the time of a real one. There is no loss, no validation, no
    /// checkpoint and no model.
    Emulated {
        /// What it stands for, such as `2 of the 14 cores beside H100, 2/14 of its speed`.
        label: String,
        /// Training images per second, 1 to 1,000,000.
        images_per_second: f64,
        /// The time by which every read of an image is late, milliseconds, up to 10,000: storage is emulated as well.
        read_latency_ms: f64,
    },
}

impl TrainerChoice {
    /// Whether a network is trained.
    pub fn learns(&self) -> bool {
        *self == Self::Burn
    }
}

/// An accelerator of a stated speed.
#[derive(Debug)]
pub(crate) struct Emulated {
    images_per_second: f64,
    /// The parameters of the network that it stands for.
    parameters: usize,
    /// The memory of the device: the current batch.
    memory: Vec<u8>,
    /// When the last step ended, or should have ended; and when the caller got it back.
    last: Option<(Instant, Instant)>,
    used: EmulatedUse,
}

/// What an emulated accelerator has done since the last start or resume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EmulatedUse {
    /// Images that it took.
    pub images: u64,
    /// Time in steps, seconds.
    pub busy_seconds: f64,
    /// Time of copying batches, which is part of the steps, seconds.
    pub copying_seconds: f64,
    /// CPU time of the training thread in steps, seconds. Almost all of it is copying.
    pub cpu_seconds: f64,
}

impl Emulated {
    pub fn new(images_per_second: f64) -> Self {
        Self {
            images_per_second,
            parameters: 0,
            memory: Vec::new(),
            last: None,
            used: EmulatedUse::default(),
        }
    }

    /// The same for a network of this many parameters, whose gradients ranks sum.
    pub fn of_parameters(self, parameters: usize) -> Self {
        Self { parameters, ..self }
    }

    /// The parameters of the network that it stands for.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Takes a batch of `images` images, and returns when the accelerator is done with it.
    pub fn step(&mut self, numbers: &[u8], images: usize) {
        let (called, cpu) = (Instant::now(), ThreadTime::try_now().ok());
        let begin = match self.last {
            // The time since the caller got the last step back is the time without a batch.
            Some((ended, back)) => ended + called.duration_since(back),
            None => called,
        };
        let busy = Duration::from_secs_f64(images as f64 / self.images_per_second);
        // At most one step is made up for: a machine that stood still for a minute is not followed by a minute of
        // steps that take no time.
        let begin = begin.max(called.checked_sub(busy).unwrap_or(called));
        self.memory.clear();
        self.memory.extend_from_slice(numbers);
        self.used.copying_seconds += called.elapsed().as_secs_f64();
        let end = begin + busy;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        self.used.busy_seconds += busy.as_secs_f64();
        self.used.images += images as u64;
        if let Some(cpu) = cpu.and_then(|cpu| cpu.try_elapsed().ok()) {
            self.used.cpu_seconds += cpu.as_secs_f64();
        }
        self.last = Some((end, Instant::now()));
    }

    /// What it has done so far.
    pub fn used(&self) -> EmulatedUse {
        self.used
    }
}

/// An accelerator whose training speed is published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accelerator {
    /// Its name, as the command line takes it.
    pub name: &'static str,
    /// The precision of the training.
    pub precision: &'static str,
    /// The CPU cores next to one accelerator in its usual machine.
    pub cores: u32,
    /// Training images per second of one accelerator, by network.
    speeds: &'static [(Arch, f64)],
    /// Where the speeds are from.
    pub source: &'static str,
}

/// Accelerators with published training speeds of ResNets at 224 x 224.
pub const ACCELERATORS: [Accelerator; 5] = [
    Accelerator {
        name: "V100",
        precision: "f32",
        cores: 8,
        speeds: &[
            (Arch::Resnet18, 444.0),
            (Arch::Resnet50, 203.0),
            (Arch::Resnet152, 80.0),
        ],
        source: "AWS, \"Accelerate computer vision training using GPU preprocessing with NVIDIA DALI on Amazon SageMaker\", \
            2022: trial B, p3.2xlarge",
    },
    Accelerator {
        name: "RTX3090",
        precision: "AMP, channels last",
        cores: 16,
        speeds: &RTX3090,
        source: "timm, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv, 2022; cores: a desktop processor's",
    },
    Accelerator {
        name: "V100-AMP",
        precision: "AMP",
        cores: 5,
        speeds: &[(Arch::Resnet50, 1200.0)],
        source: "NVIDIA, DeepLearningExamples, ResNet50 v1.5 for PyTorch, container 21.03: DGX-1 16GB, one GPU",
    },
    Accelerator {
        name: "A100",
        precision: "AMP",
        cores: 16,
        speeds: &[(Arch::Resnet50, 2470.0)],
        source: "NVIDIA, DeepLearningExamples, ResNet50 v1.5 for PyTorch, container 21.03: DGX A100, one GPU",
    },
    Accelerator {
        name: "H100",
        precision: "AMP",
        cores: 14,
        // 2470 x 14.4 / 7.8
        speeds: &[(Arch::Resnet50, 4560.0)],
        source: "A100's, times 14.4 / 7.8: minutes of ResNet on 16 A100 and 16 H100 of Dell, MLPerf Training 3.0, 2023; \
            cores: DGX H100",
    },
];

/// The five networks on one card, by one program: how their speeds relate.
const RTX3090: [(Arch, f64); 5] = [
    (Arch::Resnet18, 3481.78),
    (Arch::Resnet34, 2036.51),
    (Arch::Resnet50, 1218.01),
    (Arch::Resnet101, 747.89),
    (Arch::Resnet152, 501.44),
];

impl Accelerator {
    /// The accelerator of that name, in any case of letters.
    pub fn named(name: &str) -> Option<Self> {
        ACCELERATORS
            .into_iter()
            .find(|known| known.name.eq_ignore_ascii_case(name))
    }

    /// Training images per second. The second value says whether the speed is derived: ResNet-50's, by the ratio of
    /// the two networks on an RTX 3090.
    pub fn images_per_second(&self, model: Arch) -> (f64, bool) {
        let of = |speeds: &[(Arch, f64)], model| {
            speeds
                .iter()
                .find(|(known, _)| *known == model)
                .map(|(_, speed)| *speed)
        };
        match (of(self.speeds, model), of(self.speeds, Arch::Resnet50)) {
            (Some(published), _) => (published, false),
            (None, resnet50) => {
                let ratio = of(&RTX3090, model)
                    .zip(of(&RTX3090, Arch::Resnet50))
                    .map_or(1.0, |(one, other)| one / other);
                (resnet50.unwrap_or(0.0) * ratio, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 steps of 4 ms and waits of 1 ms between some of them take their sum, although no sleep is exact. How much
    /// longer they take is the machine's matter; BENCHMARKS.md has figures.
    #[test]
    fn the_pace_is_exact_over_many_steps() {
        let mut emulated = Emulated::new(2000.0);
        let begin = Instant::now();
        let mut without_batch = Duration::ZERO;
        for step in 0..200 {
            let before = Instant::now();
            if step % 10 == 3 {
                thread::sleep(Duration::from_millis(1));
            }
            without_batch += before.elapsed();
            emulated.step(&[1; 64], 8);
        }
        let used = emulated.used();
        let expected = used.busy_seconds + without_batch.as_secs_f64();
        assert!((used.busy_seconds - 0.8).abs() < 1e-6);
        assert_eq!(used.images, 1600);
        let took = begin.elapsed().as_secs_f64();
        // The last sleep may be too long by as much as the machine holds the thread up.
        assert!(took >= expected - 1e-3, "{took} s for {expected} s");
    }

    /// A thread that stood still long within a step makes up for one step, and not for all.
    #[test]
    fn a_long_stall_is_not_made_up_for() {
        let mut emulated = Emulated::new(1000.0);
        emulated.step(&[1], 10);
        let now = Instant::now();
        emulated.last = Some((now - Duration::from_secs(60), now));
        let begin = Instant::now();
        for _ in 0..5 {
            emulated.step(&[1], 10);
        }
        assert!(
            begin.elapsed() >= Duration::from_millis(40),
            "{:?}",
            begin.elapsed()
        );
    }

    #[test]
    fn speeds_are_the_published_ones_or_follow_from_them() {
        let v100 = Accelerator::named("v100").unwrap();
        assert_eq!(v100.images_per_second(Arch::Resnet18), (444.0, false));
        let (derived, is_derived) = v100.images_per_second(Arch::Resnet101);
        assert!(is_derived && (derived - 203.0 * 747.89 / 1218.01).abs() < 1e-9);
        let h100 = Accelerator::named("H100").unwrap();
        assert!((h100.images_per_second(Arch::Resnet18).0 - 4560.0 * 3481.78 / 1218.01).abs() < 1e-9);
        assert_eq!(Accelerator::named("TPU"), None);
        for known in ACCELERATORS {
            for model in Arch::CLASSIFIERS {
                assert!(known.images_per_second(model).0 > 50.0, "{} {model}", known.name);
            }
        }
    }
}
