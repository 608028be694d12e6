//! An epoch of a script with workers, stepped through.

use stokehold_base::random::Random;

/// What happens in an epoch. All times are in seconds.
///
/// Workers are started one after the other, and get ready. Each then makes whole batches in turns: it waits and computes for piece
/// after piece of a batch. With `k` batches ahead, a worker is asked for its next batch when the trainer takes the one `k` rounds
/// earlier. The trainer takes batches in their order; a step computes, and then waits for its device. All that compute get the same
/// share of the cores, at most one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch {
    /// Worker processes, at least one.
    pub workers: usize,
    /// Cores that all processes share.
    pub cores: f64,
    /// Batches; the last one may not be full.
    pub batches: f64,
    /// How long a worker waits for a batch.
    pub wait: f64,
    /// How long it computes for a batch.
    pub cpu: f64,
    /// How unequally long batches take: standard deviation over mean.
    pub variation: f64,
    /// Batches that each worker makes ahead, at least one.
    pub ahead: usize,
    /// How long a step takes alone.
    pub step: f64,
    /// CPU time of a step.
    pub step_cpu: f64,
    /// How long the trainer computes to receive a batch.
    pub receive: f64,
    /// How long the script takes to start a worker.
    pub start: f64,
    /// How long a worker waits before it is ready.
    pub ready_wait: f64,
    /// How long it computes before it is ready.
    pub ready_cpu: f64,
}

/// The batches of an epoch that are stepped through, unless that is fewer than four times those that are made ahead. After them
/// nothing but the pace counts.
const STEPPED: usize = 512;

/// The pieces of a batch in which a worker waits and computes; fewer where there are many workers.
const PIECES: usize = 16;

/// A step that keeps more cores busy than this computes in several threads.
pub(super) const ONE_THREAD: f64 = 1.2;

/// Orders of unequal batches whose epochs are averaged.
const ORDERS: u64 = 3;

/// Whatever is left of a piece of work that is done, seconds.
const DONE: f64 = 1e-12;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    /// Waits before it is ready.
    Starting,
    /// Computes before it is ready.
    Importing,
    /// Has nothing to do.
    Idle,
    Waiting,
    Computing,
}

impl Doing {
    fn computes(self) -> bool {
        matches!(self, Doing::Importing | Doing::Computing)
    }
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    doing: Doing,
    /// Seconds until it does something else, on a core of its own.
    left: f64,
    batch: usize,
    /// Pieces of the batch that are made.
    pieces: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// The trainer waits for a batch.
    None,
    Computing {
        left: f64,
        then: f64,
    },
    OnDevice {
        left: f64,
    },
}

impl Epoch {
    /// How long it takes, from the start of the first worker to the end of the last step.
    pub fn seconds(&self) -> f64 {
        let orders = if self.variation > 0.0 { ORDERS } else { 1 };
        (0..orders).map(|order| self.stepped(order)).sum::<f64>() / orders as f64
    }

    /// The same with the batches in one order.
    fn stepped(&self, order: u64) -> f64 {
        let mut run = Run::new(self, order);
        while run.taken < run.steps || run.step != Step::None {
            run.begin_step();
            let (of_step, of_worker) = run.shares();
            let until = run.until(of_step, of_worker);
            if !until.is_finite() {
                // Numbers that are not finite: no epoch.
                return f64::NAN;
            }
            run.advance(until, of_step, of_worker);
        }
        let pace = (run.now - run.half) / (run.steps - run.steps / 2) as f64;
        run.now + (self.batches - run.steps as f64).max(0.0) * pace
    }

    /// What the step and a worker get of a core, where this many workers compute and the step keeps this many cores busy. A step of several
    /// threads gets the share of its slowest thread. Threads are spread evenly over cores.
    fn shares(&self, workers: f64, threads: f64) -> (f64, f64) {
        let cores = self.cores;
        let each = |left: f64| (left / workers.max(1.0)).clamp(1e-6, 1.0);
        if threads <= ONE_THREAD {
            let own = if threads > 0.0 { 1.0 } else { 0.0 };
            let share = (cores / (workers + own).max(1.0)).min(1.0);
            return (share, each(cores - own * share));
        }
        let threads = (threads - (ONE_THREAD - 1.0)).ceil();
        if workers + threads <= cores || workers == 0.0 {
            return (1.0, 1.0);
        }
        let on_core = ((workers + threads) / cores).floor().max(1.0);
        let crowded = threads.min((workers + threads - on_core * cores).ceil());
        let taken = crowded / (on_core + 1.0) + (threads - crowded) / on_core;
        let least = if crowded > 0.0 { on_core + 1.0 } else { on_core };
        (1.0 / least, each(cores - taken))
    }

    /// What batches take to make, over the mean, in an order that is always the same. They are distributed as sums of waits for
    /// something that happens now and then (gamma). Where they vary by more than their mean, some take all of the time.
    fn sizes(&self, count: usize, order: u64) -> Vec<f64> {
        if self.variation <= 0.0 {
            return vec![1.0; count];
        }
        let mut sizes = vec![0.0; count];
        let mut random = Random::from_state(order);
        for sizes in sizes.chunks_mut(STEPPED) {
            let all = sizes.len();
            for (place, size) in sizes.iter_mut().enumerate() {
                *size = self.quantile((place as f64 + 0.5) / all as f64);
            }
            let mean = sizes.iter().sum::<f64>() / all as f64;
            if mean > 0.0 {
                sizes.iter_mut().for_each(|size| *size /= mean);
            }
            random.shuffle(sizes);
        }
        sizes
    }

    /// The size below which this share of the batches is.
    fn quantile(&self, share: f64) -> f64 {
        if self.variation > 1.0 {
            let times = 1.0 + self.variation.powi(2);
            return if (1.0 - share) * times < 1.0 { times } else { 0.0 };
        }
        // Wilson and Hilferty: the cube root of a gamma variate is nearly normal.
        let ninth = self.variation.powi(2) / 9.0;
        (1.0 - ninth + normal(share) * ninth.sqrt()).max(0.0).powi(3)
    }
}

/// The number below which this share of a normal distribution is, to 0.01 (Shore, 1982).
fn normal(share: f64) -> f64 {
    match share < 0.5 {
        true => -normal(1.0 - share),
        false => 5.5556 * (1.0 - ((1.0 - share) / share).powf(0.1186)),
    }
}

/// An epoch at a moment.
struct Run<'a> {
    epoch: &'a Epoch,
    /// Batches that are stepped through.
    steps: usize,
    /// What each batch takes, over the mean.
    sizes: Vec<f64>,
    /// Pieces of a batch, and how long a worker waits and computes for one of them.
    pieces: usize,
    wait: f64,
    cpu: f64,
    /// Cores that a step keeps busy.
    threads: f64,
    /// When all workers are started.
    began: f64,
    workers: Vec<Worker>,
    made: Vec<bool>,
    step: Step,
    /// Batches that the trainer has taken.
    taken: usize,
    now: f64,
    /// When half of the batches were taken.
    half: f64,
}

impl<'a> Run<'a> {
    fn new(epoch: &'a Epoch, order: u64) -> Run<'a> {
        let all = epoch.batches.ceil() as usize;
        let workers = epoch.workers.max(1);
        let ahead = epoch.ahead * workers;
        let steps = all.min(STEPPED.max(4 * ahead));
        let pieces = (4 * STEPPED / workers).clamp(1, PIECES);
        // Workers do not know where stepping ends.
        let made = all.min(steps + ahead) + workers;
        let starting = |number: usize| Worker {
            doing: Doing::Starting,
            left: epoch.start * (number + 1) as f64 + epoch.ready_wait,
            batch: number,
            pieces: 0,
        };
        Run {
            epoch,
            steps,
            sizes: epoch.sizes(made, order),
            pieces,
            wait: epoch.wait / pieces as f64,
            cpu: epoch.cpu / pieces as f64,
            threads: (epoch.step_cpu / epoch.step).min(epoch.cores),
            began: epoch.start * workers as f64,
            workers: (0..workers).map(starting).collect(),
            made: vec![false; made],
            step: Step::None,
            taken: 0,
            now: 0.0,
            half: 0.0,
        }
    }

    /// How full a batch is: the last one may not be.
    fn part(&self, batch: usize) -> f64 {
        (self.epoch.batches - batch as f64).min(1.0)
    }

    /// The trainer takes the next batch, if it waits for it and it is made.
    fn begin_step(&mut self) {
        if self.step != Step::None || !self.made[self.taken] {
            return;
        }
        let (epoch, of) = (self.epoch, self.part(self.taken));
        // Threads of a step keep their cores while they wait for the slowest of them.
        let (computing, then) = match self.threads > ONE_THREAD {
            true => (of * epoch.step, 0.0),
            false => (of * epoch.step_cpu, of * (epoch.step - epoch.step_cpu).max(0.0)),
        };
        self.step = Step::Computing {
            left: computing + epoch.receive,
            then,
        };
        self.taken += 1;
        if self.taken == self.steps / 2 {
            self.half = self.now;
        }
    }

    /// Idle workers begin what they are asked for; then, what the step and a worker get of a core.
    fn shares(&mut self) -> (f64, f64) {
        let all = self.epoch.batches.ceil() as usize;
        let asked = match self.now < self.began {
            true => 0,
            false => all.min(self.taken + self.epoch.ahead * self.workers.len()),
        };
        let mut computing = 0;
        for number in 0..self.workers.len() {
            let Worker { doing, batch, .. } = self.workers[number];
            if doing == Doing::Idle && batch < asked {
                let (doing, left) = self.piece_of(batch);
                self.workers[number] = Worker {
                    doing,
                    left,
                    batch,
                    pieces: 0,
                };
            }
            computing += usize::from(self.workers[number].doing.computes());
        }
        let trains = matches!(self.step, Step::Computing { .. });
        self.epoch
            .shares(computing as f64, if trains { self.threads } else { 0.0 })
    }

    /// What a batch takes, over a full one of mean size.
    fn size(&self, batch: usize) -> f64 {
        self.part(batch) * self.sizes[batch]
    }

    /// The first of the things that a worker does for a piece of a batch, and how long.
    fn piece_of(&self, batch: usize) -> (Doing, f64) {
        let of = self.size(batch);
        next_piece(of * self.wait, of * self.cpu)
    }

    /// Seconds until somebody does something else.
    fn until(&self, of_step: f64, of_worker: f64) -> f64 {
        let started = match self.now < self.began {
            true => self.began - self.now,
            false => f64::INFINITY,
        };
        let of_workers = self.workers.iter().map(|worker| match worker.doing {
            Doing::Idle => f64::INFINITY,
            doing if doing.computes() => worker.left / of_worker,
            _ => worker.left,
        });
        let of_step = match self.step {
            Step::None => f64::INFINITY,
            Step::Computing { left, .. } => left / of_step,
            Step::OnDevice { left } => left,
        };
        of_workers.fold(started.min(of_step), f64::min)
    }

    fn advance(&mut self, until: f64, of_step: f64, of_worker: f64) {
        self.now = match self.now < self.began && self.now + until >= self.began - DONE {
            true => self.began,
            false => self.now + until,
        };
        self.step = match self.step {
            Step::Computing { left, then } if left - until * of_step > DONE => Step::Computing {
                left: left - until * of_step,
                then,
            },
            Step::Computing { then, .. } if then > DONE => Step::OnDevice { left: then },
            Step::OnDevice { left } if left - until > DONE => Step::OnDevice { left: left - until },
            _ => Step::None,
        };
        for number in 0..self.workers.len() {
            let mut worker = self.workers[number];
            if worker.doing == Doing::Idle {
                continue;
            }
            worker.left -= until * if worker.doing.computes() { of_worker } else { 1.0 };
            if worker.left <= DONE {
                self.next(&mut worker);
            }
            self.workers[number] = worker;
        }
    }

    /// A worker has done what it did.
    fn next(&mut self, worker: &mut Worker) {
        (worker.doing, worker.left) = match worker.doing {
            Doing::Starting if self.epoch.ready_cpu > DONE => (Doing::Importing, self.epoch.ready_cpu),
            Doing::Waiting => (Doing::Computing, self.size(worker.batch) * self.cpu),
            Doing::Computing if worker.pieces + 1 < self.pieces => {
                worker.pieces += 1;
                self.piece_of(worker.batch)
            }
            Doing::Computing => {
                self.made[worker.batch] = true;
                worker.batch += self.workers.len();
                (Doing::Idle, 0.0)
            }
            _ => (Doing::Idle, 0.0),
        };
    }
}

/// The wait for a piece, or its computing where nothing is waited for.
fn next_piece(wait: f64, cpu: f64) -> (Doing, f64) {
    match wait > 1e-8 {
        true => (Doing::Waiting, wait),
        false => (Doing::Computing, cpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WORKER: Epoch = Epoch {
        workers: 1,
        cores: 2.0,
        batches: 10.0,
        wait: 0.0,
        cpu: 0.1,
        variation: 0.0,
        ahead: 2,
        step: 0.05,
        step_cpu: 0.001,
        receive: 0.0,
        start: 0.0,
        ready_wait: 0.0,
        ready_cpu: 0.0,
    };

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs()
    }

    /// By hand: the worker sets the pace, and the last step follows the last batch.
    #[test]
    fn the_slower_half_sets_the_pace() {
        assert!(close(ONE_WORKER.seconds(), 10.0 * 0.1 + 0.05));
        let slow_step = Epoch {
            step: 0.3,
            ..ONE_WORKER
        };
        assert!(close(slow_step.seconds(), 0.1 + 10.0 * 0.3));
        // Two workers on two cores make two batches in the time of one, but for the steps' 1 ms, which two of three processes share.
        let two = Epoch {
            workers: 2,
            step_cpu: 1e-9,
            ..ONE_WORKER
        };
        assert!(
            (two.seconds() - (5.0 * 0.1 + 2.0 * 0.05)).abs() < 1e-3,
            "{}",
            two.seconds()
        );
    }

    #[test]
    fn cores_are_shared_by_all_that_compute() {
        // Four workers on two cores: 1 s of CPU time, two at a time.
        let four = Epoch {
            workers: 4,
            batches: 8.0,
            step: 1e-9,
            step_cpu: 1e-9,
            ..ONE_WORKER
        };
        assert!(close(four.seconds(), 0.4), "{}", four.seconds());
        // Waits are not shared.
        let waiting = Epoch {
            workers: 4,
            batches: 8.0,
            wait: 0.1,
            cpu: 1e-9,
            step: 1e-9,
            step_cpu: 1e-9,
            ..ONE_WORKER
        };
        assert!(close(waiting.seconds(), 0.2), "{}", waiting.seconds());
        // A step of two threads and a worker on two cores: the thread that shares its core sets the pace.
        let gang = Epoch {
            cores: 2.0,
            cpu: 1e3,
            ..ONE_WORKER
        };
        assert_eq!(gang.shares(1.0, 2.0), (0.5, 0.5));
        assert_eq!(gang.shares(2.0, 2.0), (0.5, 0.5));
        assert_eq!(gang.shares(0.0, 2.0), (1.0, 1.0));
        let (of_step, of_worker) = gang.shares(2.0, 1.0);
        assert!(close(of_step, 2.0 / 3.0) && close(of_worker, 2.0 / 3.0));
        assert_eq!(gang.shares(1.0, 0.0).1, 1.0);
    }

    #[test]
    fn workers_start_one_after_the_other() {
        let starting = Epoch {
            workers: 4,
            batches: 4.0,
            start: 0.1,
            ready_wait: 0.3,
            step: 1e-9,
            step_cpu: 1e-9,
            cpu: 1e-6,
            ..ONE_WORKER
        };
        // The last one is started after 0.4 s, and ready 0.3 s later.
        assert!((starting.seconds() - 0.7).abs() < 1e-3, "{}", starting.seconds());
        // None is asked for a batch before all are started.
        let quick = Epoch {
            ready_wait: 0.0,
            ..starting
        };
        assert!((quick.seconds() - 0.4).abs() < 1e-3, "{}", quick.seconds());
        // Four that compute for 0.3 s share two cores.
        let importing = Epoch {
            start: 0.0,
            ready_wait: 0.0,
            ready_cpu: 0.3,
            ..starting
        };
        assert!(
            (importing.seconds() - 0.6).abs() < 1e-3,
            "{}",
            importing.seconds()
        );
    }

    /// The pace after the batches that are stepped through is that of a long run.
    #[test]
    fn long_epochs_are_extrapolated() {
        let long = Epoch {
            workers: 3,
            batches: 100_000.5,
            wait: 0.05,
            variation: 0.3,
            ..ONE_WORKER
        };
        let tenth = Epoch {
            batches: 10_000.05,
            ..long
        };
        let ratio = long.seconds() / tenth.seconds();
        assert!((9.9..10.1).contains(&ratio), "{ratio}");
        let many = Epoch {
            workers: 1024,
            cores: 16.0,
            ..long
        };
        assert!(many.seconds() > 100_000.0 * 0.1 / 16.0);
    }

    #[test]
    fn unequal_batches_take_as_long_on_average() {
        for variation in [0.4, 1.0, 2.0] {
            let unequal = Epoch {
                variation,
                ..ONE_WORKER
            };
            let sizes = unequal.sizes(10_000, 0);
            let of_all =
                |value: &dyn Fn(f64) -> f64| sizes.iter().map(|size| value(*size)).sum::<f64>() / 10_000.0;
            let (mean, square) = (of_all(&|batch| batch), of_all(&|batch| batch * batch));
            assert!((mean - 1.0).abs() < 0.01, "{variation}: {mean}");
            let found = (square - mean * mean).sqrt();
            assert!((found / variation - 1.0).abs() < 0.03, "{variation}: {found}");
        }
    }
}
