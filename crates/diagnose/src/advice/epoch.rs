//! An epoch of a script with workers, stepped through.

/// What happens in an epoch. All times are in seconds.
///
/// Workers are started one after the other, and get ready. Each then makes whole batches in turns: it waits and computes for piece
/// after piece of a batch. With `k` batches ahead, a worker is asked for its next batch when the trainer takes the one `k` rounds
/// earlier. The trainer takes batches in their order; a step computes, and then waits for its device. Whoever computes gets the same
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

/// The golden ratio.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

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
        let all = self.batches.ceil() as usize;
        let workers = self.workers.max(1);
        let ahead = self.ahead * workers;
        let steps = all.min(STEPPED.max(4 * ahead));
        let pieces = (4 * STEPPED / workers).clamp(1, PIECES);
        // Of a batch of mean size.
        let (wait, cpu) = (self.wait / pieces as f64, self.cpu / pieces as f64);
        let part = |batch: usize| (self.batches - batch as f64).min(1.0);
        let threads = (self.step_cpu / self.step).min(self.cores);
        let began = self.start * workers as f64;
        let mut states: Vec<Worker> = (0..workers)
            .map(|number| Worker {
                doing: Doing::Starting,
                left: self.start * (number + 1) as f64 + self.ready_wait,
                batch: number,
                pieces: 0,
            })
            .collect();
        // Workers do not know where stepping ends.
        let mut made = vec![false; all.min(steps + ahead) + workers];
        let (mut now, mut taken, mut half, mut step) = (0.0, 0, 0.0, Step::None);
        while taken < steps || step != Step::None {
            if step == Step::None && made[taken] {
                let of = part(taken);
                // Threads of a step keep their cores while they wait for the slowest of them.
                let (computing, then) = match threads > ONE_THREAD {
                    true => (of * self.step, 0.0),
                    false => (of * self.step_cpu, of * (self.step - self.step_cpu).max(0.0)),
                };
                step = Step::Computing {
                    left: computing + self.receive,
                    then,
                };
                taken += 1;
                if taken == steps / 2 {
                    half = now;
                }
            }
            let asked = if now < began { 0 } else { all.min(taken + ahead) };
            let mut computing = 0;
            for worker in &mut states {
                if worker.doing == Doing::Idle && worker.batch < asked {
                    let of = part(worker.batch) * self.of_batch(worker.batch);
                    worker.pieces = 0;
                    (worker.doing, worker.left) = next_piece(of * wait, of * cpu);
                }
                computing += usize::from(worker.doing.computes());
            }
            let trains = matches!(step, Step::Computing { .. });
            let (of_step, of_worker) = self.shares(computing as f64, if trains { threads } else { 0.0 });
            // Until somebody does something else.
            let mut until = if now < began { began - now } else { f64::INFINITY };
            for worker in &states {
                until = until.min(match worker.doing {
                    Doing::Idle => f64::INFINITY,
                    doing if doing.computes() => worker.left / of_worker,
                    _ => worker.left,
                });
            }
            until = until.min(match step {
                Step::None => f64::INFINITY,
                Step::Computing { left, .. } => left / of_step,
                Step::OnDevice { left } => left,
            });
            if !until.is_finite() {
                // Numbers that are not finite: no epoch.
                return f64::NAN;
            }
            now = if now < began && now + until >= began - DONE {
                began
            } else {
                now + until
            };
            step = match step {
                Step::Computing { left, then } if left - until * of_step > DONE => Step::Computing {
                    left: left - until * of_step,
                    then,
                },
                Step::Computing { then, .. } if then > DONE => Step::OnDevice { left: then },
                Step::OnDevice { left } if left - until > DONE => Step::OnDevice { left: left - until },
                _ => Step::None,
            };
            for worker in &mut states {
                if worker.doing == Doing::Idle {
                    continue;
                }
                worker.left -= until * if worker.doing.computes() { of_worker } else { 1.0 };
                if worker.left > DONE {
                    continue;
                }
                let of = part(worker.batch) * self.of_batch(worker.batch);
                (worker.doing, worker.left) = match worker.doing {
                    Doing::Starting if self.ready_cpu > DONE => (Doing::Importing, self.ready_cpu),
                    Doing::Waiting => (Doing::Computing, of * cpu),
                    Doing::Computing if worker.pieces + 1 < pieces => {
                        worker.pieces += 1;
                        next_piece(of * wait, of * cpu)
                    }
                    Doing::Computing => {
                        made[worker.batch] = true;
                        worker.batch += workers;
                        (Doing::Idle, 0.0)
                    }
                    _ => (Doing::Idle, 0.0),
                };
            }
        }
        let pace = (now - half) / (steps - steps / 2) as f64;
        now + (self.batches - steps as f64).max(0.0) * pace
    }

    /// What the step and a worker get of a core, where so many workers compute and the step keeps so many cores busy. A step of several
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

    /// What a batch takes to make, over the mean: those of a run, in an order that is always the same. They are distributed like a
    /// wait for something that happens now and then, on top of what all take. Where they vary by more than their mean, some batches take
    /// all of the time.
    fn of_batch(&self, number: usize) -> f64 {
        if self.variation <= 0.0 {
            return 1.0;
        }
        // Every stretch of these numbers fills 0 to 1 evenly.
        let place = ((number + 1) as f64 * GOLDEN).fract().max(1e-3);
        if self.variation <= 1.0 {
            return 1.0 - self.variation * (1.0 + place.ln());
        }
        let times = 1.0 + self.variation.powi(2);
        if place * times < 1.0 { times } else { 0.0 }
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
            let of_all = |value: &dyn Fn(f64) -> f64| {
                (0..10_000)
                    .map(|number| value(unequal.of_batch(number)))
                    .sum::<f64>()
                    / 10_000.0
            };
            let (mean, square) = (of_all(&|batch| batch), of_all(&|batch| batch * batch));
            assert!((mean - 1.0).abs() < 0.01, "{variation}: {mean}");
            let found = (square - mean * mean).sqrt();
            assert!((found / variation - 1.0).abs() < 0.03, "{variation}: {found}");
        }
    }
}
