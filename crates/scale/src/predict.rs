//! What each number of machines takes, and what limits it.

use std::fmt;

use serde::Serialize;
use stokehold_page::words::{digits, duration};

use crate::{
    Algorithm, BACKWARD, Bucket, Cluster, Draws, Fact, INSIDE, Machines, Network, Run, ScaleError, Simulation,
};

/// Bytes of gradients of 32 bits that are reduced together: PyTorch's `bucket_cap_mb`, and Stokehold's.
const BUCKET: f64 = 25.0 * 1024.0 * 1024.0;

/// A cause with a smaller share of an epoch limits nothing.
const LIMITS: f64 = 0.01;

/// A change that shortens an epoch by a smaller share lifts nothing.
const LIFTS: f64 = 0.005;

/// How much faster a loader or storage is made than the trainers need it.
const ROOM: f64 = 1.25;

/// Steps after which gradients are reduced, where they are accumulated.
const ACCUMULATE: usize = 4;

/// The seed of the steps' order.
const SEED: u64 = 1;

/// What an epoch takes more time for than computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A rank waits for its own loader.
    Loader,
    /// Loaders wait for the storage that they share.
    Storage,
    /// Ranks wait for the slowest one.
    Slowest,
    /// Gradients are reduced.
    Reduce,
    /// Rank 0 writes checkpoints.
    Checkpoints,
}

impl Cause {
    /// All of them, in the order in which they are switched on.
    pub const ALL: [Cause; 5] = [
        Cause::Loader,
        Cause::Storage,
        Cause::Slowest,
        Cause::Reduce,
        Cause::Checkpoints,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Storage => "storage",
            Self::Slowest => "slowest rank",
            Self::Reduce => "reduce",
            Self::Checkpoints => "checkpoints",
        }
    }

    /// What costs the time, for a sentence.
    fn sentence(self) -> &'static str {
        match self {
            Self::Loader => "waiting for the loader",
            Self::Storage => "waiting for the shared storage",
            Self::Slowest => "waiting for the slowest rank",
            Self::Reduce => "reducing gradients",
            Self::Checkpoints => "writing checkpoints",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The part of an epoch that a cause takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lost {
    /// The cause.
    pub cause: Cause,
    /// Seconds of an epoch, at least 0.
    pub seconds: f64,
}

/// A change that shortens an epoch, simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lift {
    /// The change, in words.
    pub change: String,
    /// Seconds of an epoch with it.
    pub seconds_per_epoch: f64,
    /// Efficiency with it, against one machine that has it as well.
    pub efficiency: f64,
}

/// What an epoch takes on this many machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Size {
    /// Machines.
    pub machines: u64,
    /// Ranks of all machines.
    pub ranks: u64,
    /// Images of a step of all ranks.
    pub batch: u64,
    /// Steps of an epoch; the last one may be smaller.
    pub steps: u64,
    /// Mean seconds of a step, without checkpoints.
    pub seconds_per_step: f64,
    /// Seconds of an epoch.
    pub seconds_per_epoch: f64,
    /// Images of an epoch, per second.
    pub images_per_second: f64,
    /// Images per second, against those of one machine times the machines: above 0, at most 1.
    pub efficiency: f64,
    /// The cost of an epoch; `None` without a price.
    pub cost_per_epoch: Option<f64>,
    /// How the first bucket is reduced; `None` for one rank.
    pub algorithm: Option<Algorithm>,
    /// Seconds of an epoch in which ranks compute.
    pub computing_seconds: f64,
    /// Where the other seconds go, by [`Cause::ALL`].
    pub lost: Vec<Lost>,
    /// The cause that takes the most, if it takes 1 % of an epoch.
    pub limit: Option<Cause>,
    /// Changes that shorten an epoch by lifting a cause that takes 1 % of it, the best first.
    pub lifts: Vec<Lift>,
}

impl Size {
    /// What limits, in words.
    pub fn limited(&self) -> String {
        let machines = match self.machines {
            1 => "1 machine".to_owned(),
            more => format!("{more} machines"),
        };
        let lost = |cause| self.lost.iter().find(|lost| lost.cause == cause);
        let Some(limit) = self.limit.and_then(lost) else {
            return format!("{machines}: computing limits; nothing else takes 1 % of an epoch");
        };
        format!(
            "{machines}: {} takes {:.0} % of an epoch of {}{}",
            limit.cause.sentence(),
            100.0 * limit.seconds / self.seconds_per_epoch,
            duration(self.seconds_per_epoch),
            match self.lifts.is_empty() {
                true => "; no change that is simulated here lifts that",
                false => "",
            }
        )
    }
}

impl fmt::Display for Lift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} with {}, {:.1} % efficient",
            duration(self.seconds_per_epoch),
            self.change,
            100.0 * self.efficiency
        )
    }
}

/// How well the simulation repeats what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Repeated {
    /// Seconds of a recorded epoch.
    pub recorded: f64,
    /// Seconds of an epoch of one rank, simulated.
    pub simulated: f64,
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A recorded epoch took {}; simulated on one GPU, the same takes {}.",
            duration(self.recorded),
            duration(self.simulated)
        )
    }
}

/// What was predicted, and from what.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// By machines.
    pub sizes: Vec<Size>,
    /// The recorded epoch and the simulated one; `None` where the recorded one is not known.
    pub repeated: Option<Repeated>,
    /// What the prediction stands on, a sentence each.
    pub assumptions: Vec<String>,
    /// What it was made of.
    pub run: Run,
    /// What it was made for.
    pub cluster: Cluster,
}

/// Predicts each number of machines of the cluster.
///
/// # Errors
/// [`ScaleError::Range`] for a number of the run or the cluster that is out of its range; [`ScaleError::Missing`] where
/// storage has a limit and no one knows the bytes of an image.
pub fn predict(run: &Run, cluster: &Cluster) -> Result<Prediction, ScaleError> {
    run.check()?;
    cluster.check()?;
    if cluster.storage_limit.is_some() && run.image_bytes.is_none() {
        return Err(ScaleError::Missing {
            facts: vec![Fact::ImageBytes],
        });
    }
    let mut machines = cluster.machines.clone();
    machines.sort_unstable();
    machines.dedup();
    // `check` bounds the ranks.
    let most = machines.last().map_or(1, |machines| machines * cluster.gpus) as usize;
    let draws = Draws::new(&run.step_seconds, most, SEED);
    let even = Draws::new(&[draws.mean()], most, SEED);
    let setting = Setting {
        run,
        draws: &draws,
        gpus: cluster.gpus,
        network: cluster.network,
        algorithm: cluster.algorithm,
        overlap: run.overlap,
        loader_rate: run.loader_rate,
        storage_limit: cluster.storage_limit,
        together: 1,
        checkpoint_seconds: run
            .checkpoints
            .map_or(0.0, |checkpoints| checkpoints.per_epoch * checkpoints.seconds),
    };
    let one = setting.epoch(1);
    let sizes = machines
        .into_iter()
        .map(|machines| setting.size(machines, one, &even, cluster.price))
        .collect();
    let repeated = run.recorded_seconds.map(|recorded| Repeated {
        recorded,
        // The recorded storage is in the loader's rate, and checkpoints are no part of the recorded seconds.
        simulated: Setting {
            gpus: 1,
            storage_limit: None,
            checkpoint_seconds: 0.0,
            ..setting
        }
        .epoch(1),
    });
    Ok(Prediction {
        sizes,
        repeated,
        assumptions: assumptions(run, cluster, draws.mean()),
        run: run.clone(),
        cluster: cluster.clone(),
    })
}

/// All that decides how long an epoch takes but the number of machines.
#[derive(Clone, Copy)]
struct Setting<'a> {
    run: &'a Run,
    draws: &'a Draws,
    gpus: u64,
    network: Network,
    algorithm: Option<Algorithm>,
    overlap: bool,
    loader_rate: Option<f64>,
    storage_limit: Option<f64>,
    together: usize,
    /// Of an epoch.
    checkpoint_seconds: f64,
}

impl<'a> Setting<'a> {
    fn ranks(&self, machines: u64) -> u64 {
        machines * self.gpus
    }

    /// Steps of an epoch, of which the last may be a part of one; an epoch of fewer images than a step is a step.
    fn steps(&self, machines: u64) -> f64 {
        let batch = self.run.batch as f64 * self.ranks(machines) as f64;
        (self.run.images as f64 / batch).max(1.0)
    }

    /// The buckets of a step, and how the first one is reduced.
    fn buckets(&self, machines: u64) -> (Vec<Bucket>, Option<Algorithm>) {
        let machines = Machines {
            machines,
            gpus: self.gpus,
        };
        let all = self.run.parameters as f64 * 4.0;
        if machines.ranks() == 1 || all == 0.0 {
            return (Vec::new(), None);
        }
        let best = |bytes: f64| match self.algorithm {
            Some(only) => (only, only.seconds(bytes, machines, self.network, INSIDE)),
            None => Algorithm::fastest(bytes, machines, self.network, INSIDE),
        };
        // More buckets than this say nothing more, and take long.
        let size = BUCKET.max(all / 1000.0);
        let count = (all / size).ceil();
        let mut buckets = Vec::new();
        for place in 1..=count as u64 {
            let done = (place as f64 * size).min(all);
            let bytes = done - (place - 1) as f64 * size;
            buckets.push(Bucket {
                ready: done / all,
                seconds: best(bytes).1,
            });
        }
        (buckets, Some(best(size.min(all)).0))
    }

    /// Seconds of a step as causes are switched on: computing, and then with each of [`Cause::ALL`] but checkpoints.
    fn seconds(&self, machines: u64) -> [f64; 5] {
        let run = self.run;
        let computing = Simulation {
            between: run.between_seconds,
            backward: if self.overlap { BACKWARD } else { 0.0 },
            prefetch: run.prefetch,
            ..Simulation::of(self.draws, self.ranks(machines) as usize)
        };
        let loaded = Simulation {
            loader: self.loader_rate.map_or(0.0, |rate| run.batch as f64 / rate),
            ..computing
        };
        let bytes = run.image_bytes.unwrap_or(0.0) * run.batch as f64;
        let stored = Simulation {
            storage: self.storage_limit.map_or(0.0, |limit| bytes / limit),
            ..loaded
        };
        let together = Simulation {
            together: self.together,
            ..stored
        };
        let (buckets, _) = self.buckets(machines);
        let reduced = Simulation {
            buckets: &buckets,
            ..together
        };
        [computing, loaded, stored, together, reduced].map(|simulation| simulation.seconds_per_step())
    }

    /// Seconds of an epoch.
    fn epoch(&self, machines: u64) -> f64 {
        self.steps(machines) * self.seconds(machines)[4] + self.checkpoint_seconds
    }

    fn size(&self, machines: u64, one: f64, even: &'a Draws, price: Option<f64>) -> Size {
        let (steps, ranks) = (self.steps(machines), self.ranks(machines));
        let seconds = self.seconds(machines);
        let epoch = steps * seconds[4] + self.checkpoint_seconds;
        let mut lost: Vec<Lost> = std::iter::zip(Cause::ALL, seconds.windows(2))
            .map(|(cause, pair)| Lost {
                cause,
                // Sums are rounded.
                seconds: (steps * (pair[1] - pair[0])).max(0.0),
            })
            .collect();
        lost.push(Lost {
            cause: Cause::Checkpoints,
            seconds: self.checkpoint_seconds,
        });
        let limit = lost
            .iter()
            .max_by(|one, other| one.seconds.total_cmp(&other.seconds))
            .filter(|lost| lost.seconds >= LIMITS * epoch)
            .map(|lost| lost.cause);
        // A cause that is hidden behind another one is not lifted alone, so the others are tried as well.
        let mut changes: Vec<(String, Self)> = Vec::new();
        for lost in lost.iter().filter(|lost| lost.seconds >= LIMITS * epoch) {
            for change in self.changes(lost.cause, machines, even) {
                if changes.iter().all(|(known, _)| *known != change.0) {
                    changes.push(change);
                }
            }
        }
        let mut lifts: Vec<Lift> = changes
            .into_iter()
            .map(|(change, setting)| {
                let then = setting.epoch(machines);
                Lift {
                    change,
                    seconds_per_epoch: then,
                    efficiency: efficiency(setting.epoch(1), machines, then),
                }
            })
            .filter(|lift| lift.seconds_per_epoch < epoch * (1.0 - LIFTS))
            .collect();
        lifts.sort_by(|one, other| one.seconds_per_epoch.total_cmp(&other.seconds_per_epoch));
        Size {
            machines,
            ranks,
            batch: self.run.batch.saturating_mul(ranks),
            steps: steps.ceil() as u64,
            seconds_per_step: seconds[4],
            seconds_per_epoch: epoch,
            images_per_second: self.run.images as f64 / epoch,
            efficiency: efficiency(one, machines, epoch),
            cost_per_epoch: price.map(|price| price * machines as f64 * epoch / 3600.0),
            algorithm: self.buckets(machines).1,
            computing_seconds: steps * seconds[0],
            lost,
            limit,
            lifts,
        }
    }

    /// The changes that could lift a cause.
    fn changes(&self, cause: Cause, machines: u64, even: &'a Draws) -> Vec<(String, Self)> {
        let run = self.run;
        let step = self.draws.mean() + run.between_seconds;
        let accumulated = (
            format!("gradients reduced after {ACCUMULATE} batches instead of each"),
            Self {
                together: ACCUMULATE,
                ..*self
            },
        );
        match cause {
            Cause::Loader => {
                let needed = ROOM * run.batch as f64 / step;
                let change = format!(
                    "a loader of {} images/s for each GPU instead of {} (more cores, cheaper preprocessing, or stokehold serve)",
                    digits(needed),
                    self.loader_rate.map_or("as many".to_owned(), digits)
                );
                let loader_rate = Some(needed);
                vec![(change, Self { loader_rate, ..*self })]
            }
            Cause::Storage => {
                let bytes = run.image_bytes.unwrap_or(0.0) * run.batch as f64;
                let needed = ROOM * bytes * self.ranks(machines) as f64 / step;
                let change = format!(
                    "storage of {} instead of {} (or the images on each machine's own disk)",
                    rate(needed),
                    self.storage_limit.map_or("no limit".to_owned(), rate)
                );
                let storage_limit = Some(needed);
                vec![(
                    change,
                    Self {
                        storage_limit,
                        ..*self
                    },
                )]
            }
            Cause::Slowest => {
                let equal = "steps that all take equally long".to_owned();
                vec![(equal, Self { draws: even, ..*self }), accumulated]
            }
            Cause::Reduce => {
                let mut changes = vec![accumulated];
                let faster = Network::speeds()
                    .filter_map(|speed| Some((speed, Network::ethernet(speed).ok()?)))
                    .find(|(_, faster)| faster.bytes_per_second > 3.0 * self.network.bytes_per_second);
                if let Some((speed, network)) = faster.filter(|_| machines > 1) {
                    changes.push((format!("a network of {speed} Gbit/s"), Self { network, ..*self }));
                }
                if !self.overlap {
                    let change = "reduce during the backward pass".to_owned();
                    changes.push((
                        change,
                        Self {
                            overlap: true,
                            ..*self
                        },
                    ));
                }
                changes
            }
            Cause::Checkpoints => {
                let change = "checkpoints that are written while training continues".to_owned();
                let checkpoint_seconds = 0.0;
                vec![(
                    change,
                    Self {
                        checkpoint_seconds,
                        ..*self
                    },
                )]
            }
        }
    }
}

fn efficiency(one: f64, machines: u64, epoch: f64) -> f64 {
    // Above 1 only by the rounding of sums.
    (one / (machines as f64 * epoch)).min(1.0)
}

/// Bytes per second in words.
fn rate(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{} GB/s", digits(b / 1e9)),
        b => format!("{} MB/s", digits(b / 1e6)),
    }
}

/// What the prediction stands on.
fn assumptions(run: &Run, cluster: &Cluster, mean: f64) -> Vec<String> {
    let longest = run.step_seconds.iter().copied().fold(0.0, f64::max);
    let gradients = 4.0 * run.parameters as f64;
    let mut all = vec![
        format!(
            "A step of a rank has {} images and takes {} on average, {} at most, of {} recorded ones; and {} between steps.",
            run.batch,
            duration(mean),
            duration(longest),
            run.step_seconds.len(),
            duration(run.between_seconds)
        ),
        format!(
            "A step reduces {} million parameters, {} MB, {}.",
            digits(run.parameters as f64 / 1e6),
            digits(gradients / 1e6),
            match run.overlap {
                true => "during the backward pass",
                false => "after the backward pass",
            }
        ),
        format!(
            "The network has a latency of {} and {}; within a machine {} and {}.",
            duration(cluster.network.alpha_seconds),
            rate(cluster.network.bytes_per_second),
            duration(INSIDE.alpha_seconds),
            rate(INSIDE.bytes_per_second)
        ),
        match run.loader_rate {
            Some(rate) => format!("The loader of each GPU makes {} images/s.", digits(rate)),
            None => "The loader is never waited for: the run hardly waited, and what its loader can do is not known.".to_owned(),
        },
        match (cluster.storage_limit, run.image_bytes) {
            (Some(limit), Some(bytes)) => {
                format!("All machines share storage of {}; an image has {} kB.", rate(limit), digits(bytes / 1e3))
            }
            _ => "Storage has no limit.".to_owned(),
        },
        match run.checkpoints {
            Some(checkpoints) => format!(
                "Checkpoints of an epoch: {}, of {} each.",
                digits(checkpoints.per_epoch),
                duration(checkpoints.seconds)
            ),
            None => "No checkpoints are written.".to_owned(),
        },
    ];
    let most = cluster
        .machines
        .iter()
        .max()
        .map_or(1, |machines| machines * cluster.gpus);
    if run.batch as f64 * most as f64 > run.images as f64 {
        all.push(format!(
            "An epoch has {} images, fewer than a step of {most} GPUs has; such an epoch is counted as one step.",
            run.images
        ));
    }
    all
}
