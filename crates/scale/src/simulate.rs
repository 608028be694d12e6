//! Ranks, step by step: every moment is a maximum of sums of earlier ones.

use stokehold_base::random::{Random, mix};

/// The share of a step's computing that is its backward pass: it has two products of matrices for each of the forward
/// pass.
pub const BACKWARD: f64 = 2.0 / 3.0;

/// No fewer steps are simulated.
const FEWEST: usize = 512;

/// Which recorded step each rank takes at each simulated step.
///
/// A rank goes through all recorded steps in a shuffled order, then through all of them in another one. So every rank
/// has exactly the recorded mean, and at one simulated step the ranks are independent of one another. The steps of a rank
/// do not depend on how many ranks there are.
#[derive(Debug, Clone)]
pub struct Draws {
    recorded: Vec<f64>,
    ranks: usize,
    steps: usize,
    /// Places in `recorded`, rank by rank within a step.
    places: Vec<u16>,
}

impl Draws {
    /// The most recorded steps that are drawn from.
    pub const MOST: usize = 2048;

    /// Draws for `ranks` ranks from the seconds of recorded steps. Of more than [`Draws::MOST`] of them every second, third, ..
    /// is used.
    pub fn new(recorded: &[f64], ranks: usize, seed: u64) -> Self {
        let stride = recorded.len().div_ceil(Self::MOST).max(1);
        let recorded: Vec<f64> = recorded.iter().copied().step_by(stride).collect();
        let rounds = FEWEST.div_ceil(recorded.len().max(1));
        let steps = rounds * recorded.len();
        let mut places = vec![0; steps * ranks];
        let mut order: Vec<u16> = (0..=u16::MAX).take(recorded.len()).collect();
        for rank in 0..ranks {
            let mut random = Random::of(mix(seed) ^ rank as u64);
            for round in 0..rounds {
                random.shuffle(&mut order);
                for (step, &place) in order.iter().enumerate() {
                    places[(round * order.len() + step) * ranks + rank] = place;
                }
            }
        }
        Self {
            recorded,
            ranks,
            steps,
            places,
        }
    }

    /// The number of simulated steps: a multiple of the recorded ones, at least 512.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The ranks that there are draws for.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Mean of the steps that are drawn from, seconds.
    pub fn mean(&self) -> f64 {
        self.recorded.iter().sum::<f64>() / self.recorded.len().max(1) as f64
    }

    fn seconds(&self, step: usize, rank: usize) -> f64 {
        self.recorded[usize::from(self.places[step * self.ranks + rank])]
    }
}

/// Gradients that are reduced together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// The share of the backward pass after which they are ready, 0 to 1; not below that of the bucket before.
    pub ready: f64,
    /// Seconds of their reduce.
    pub seconds: f64,
}

/// Ranks that train, each with its loader.
#[derive(Debug, Clone)]
pub struct Simulation<'a> {
    /// What the steps of each rank take.
    pub draws: &'a Draws,
    /// The number of ranks, at most those of `draws`.
    pub ranks: usize,
    /// Seconds that a rank spends after each step before it can begin the next.
    pub between: f64,
    /// The share of a step's computing that is its backward pass, 0 to 1: 0 hides no reduce.
    pub backward: f64,
    /// After how many steps ranks wait for one another, and reduce: 1 for each step, more where gradients are accumulated;
    /// 0 for ranks that never wait.
    pub together: usize,
    /// What is reduced then, in the order in which it gets ready; empty for no reduce.
    pub buckets: &'a [Bucket],
    /// Seconds of a rank's loader for a batch; 0 for a loader that is never waited for.
    pub loader: f64,
    /// The most batches that a loader has in work or ready, at least 1.
    pub prefetch: usize,
    /// Seconds of the shared storage for one batch of one rank; 0 without a limit.
    pub storage: f64,
}

impl<'a> Simulation<'a> {
    /// Ranks that compute each by itself, and never wait.
    pub fn of(draws: &'a Draws, ranks: usize) -> Self {
        Self {
            draws,
            ranks: ranks.min(draws.ranks),
            between: 0.0,
            backward: BACKWARD,
            together: 0,
            buckets: &[],
            loader: 0.0,
            prefetch: 2,
            storage: 0.0,
        }
    }

    /// Mean seconds of a step. It is counted from the moment at which all ranks have their first batch, to that at which
    /// they can begin the step after the last simulated one. Where ranks never wait this is the mean of the ranks.
    pub fn seconds_per_step(&self) -> f64 {
        let (steps, ranks) = (self.draws.steps, self.ranks);
        if steps == 0 || ranks == 0 {
            return 0.0;
        }
        let loads = self.loader > 0.0 || self.storage > 0.0;
        let depth = self.prefetch.clamp(1, steps);
        let mut taken = vec![0.0; if loads { depth * ranks } else { 0 }];
        // When a rank's trainer can begin its next step, and when its next batch is there.
        let (mut free, mut ready) = (vec![0.0_f64; ranks], vec![0.0_f64; ranks]);
        let (mut begins, mut computes) = (vec![0.0_f64; ranks], vec![0.0_f64; ranks]);
        let mut storage_free = 0.0_f64;
        for step in 0..steps {
            for rank in 0..ranks {
                begins[rank] = free[rank].max(ready[rank]);
                computes[rank] = self.draws.seconds(step, rank);
            }
            if loads {
                for rank in 0..ranks {
                    taken[step % depth * ranks + rank] = begins[rank];
                    // Batch `step + 1` has the place of the one that was taken `depth` batches before it.
                    let place = if step + 1 >= depth {
                        taken[(step + 1 - depth) % depth * ranks + rank]
                    } else {
                        0.0
                    };
                    let begin = ready[rank].max(place);
                    ready[rank] = begin + self.loader;
                    if self.storage > 0.0 {
                        storage_free = storage_free.max(begin) + self.storage;
                        ready[rank] = ready[rank].max(storage_free);
                    }
                }
            }
            // The last step is of all ranks, so that all work that was begun is counted.
            if self.together > 0 && ((step + 1) % self.together == 0 || step + 1 == steps) {
                free.fill(self.reduced(&begins, &computes) + self.between);
            } else {
                for rank in 0..ranks {
                    free[rank] = begins[rank] + computes[rank] + self.between;
                }
            }
        }
        let ends = std::iter::zip(&free, &ready).map(|(free, ready)| free.max(*ready));
        let end = match self.together {
            0 => ends.sum::<f64>() / ranks as f64,
            _ => ends.fold(0.0, f64::max),
        };
        end / steps as f64
    }

    /// When the slowest rank is done and the last bucket is reduced.
    fn reduced(&self, begins: &[f64], computes: &[f64]) -> f64 {
        let at = |rank: usize, share: f64| begins[rank] + computes[rank] * share;
        let mut last = 0;
        for rank in 1..begins.len() {
            if at(rank, 1.0) > at(last, 1.0) {
                last = rank;
            }
        }
        let end = at(last, 1.0);
        let Some(first) = self.buckets.first() else {
            return end;
        };
        let share = |bucket: &Bucket| 1.0 - self.backward + self.backward * bucket.ready;
        // Moments are linear in the share. So a rank that is not later than `last` at the first bucket, as it is not at the
        // end, never is.
        let earliest = share(first);
        let bar = at(last, earliest);
        let late: Vec<usize> = (0..begins.len())
            .filter(|&rank| rank == last || at(rank, earliest) > bar)
            .collect();
        let mut channel = 0.0_f64;
        for bucket in self.buckets {
            let share = share(bucket);
            let ready = late.iter().map(|&rank| at(rank, share)).fold(0.0, f64::max);
            channel = channel.max(ready) + bucket.seconds;
        }
        channel.max(end)
    }
}
