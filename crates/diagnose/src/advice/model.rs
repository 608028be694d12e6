//! The model that the [parent module](super) describes: a run as a few numbers, and the time of its epoch.

use stokehold_profile::workload::{Alternative, Change, Workload, undelayed, undisturbed};

use super::epoch::{Epoch, ONE_THREAD};

/// The properties of a run that determine its speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    /// Images per epoch.
    pub images: f64,
    /// Images per step.
    pub batch_size: u64,
    /// Cores.
    pub cores: u64,
    /// What a cgroup's quota leaves of them; infinite without one.
    pub quota: f64,
    /// Cores that other programs took; they continue to. 0 where that is not known.
    pub others: f64,
    /// Loader workers.
    pub workers: u64,
    /// Whether no more of them compute at once than there are cores, as those do whose number is measured.
    pub in_turns: bool,
    /// CPU time of the loader per image, seconds.
    pub loader_cpu: f64,
    /// The part of that CPU time that is left where the cores never rest, above 0 and at most 1: after a wait an
    /// image costs more, because caches and cores are cold.
    pub warm: f64,
    /// Time per image that a worker waits without computing, seconds.
    pub wait: f64,
    /// Images per second that the trainer processes alone.
    pub trainer: f64,
    /// CPU time of the trainer per image, seconds.
    pub trainer_cpu: f64,
    /// How long the script takes to start a worker in every epoch, seconds; 0 for threads, and for workers that stay.
    pub start: f64,
    /// What each worker does before it can make batches in every epoch, seconds: all do it at the same time; 0 as above.
    pub ready: f64,
    /// The part of it in which a worker computes, so that more of them want the cores at the same time.
    pub ready_cpu: f64,
    /// How long the script takes to end its workers in every epoch, with as many as it had, seconds; 0 as above.
    pub end: f64,
    /// The number of workers that `end` was measured with.
    pub end_of: u64,
    /// How long the script takes to receive a batch that a worker has made, seconds.
    pub receive: f64,
    /// How unequally long batches take to make: standard deviation over mean.
    pub variation: f64,
    /// Batches that each worker makes ahead.
    pub ahead: u64,
    /// CPU seconds in which a worker would send an image, of a run that has none.
    pub send: f64,
    /// Whether a worker makes a whole batch, as PyTorch's do, and not its part of each.
    pub whole: bool,
}

/// The ratio of the run's epoch time to the model's; `None` without a finished epoch or without ceilings.
pub fn fit(workload: &Workload) -> Option<f64> {
    fit_of(workload, &Setting::of(workload)?)
}

/// The same of a setting of the run.
fn fit_of(workload: &Workload, run: &Setting) -> Option<f64> {
    let seconds = workload.seconds_per_epoch.filter(|seconds| positive(*seconds))?;
    // Starts of workers are measured, not modelled.
    let around = run.starts() + run.ends();
    let working = (seconds - around).max(LEAST_WORKING * seconds);
    Some(working / (run.seconds() - around))
}

/// The least share of an epoch in which a run works, whatever its workers seem to take to start.
const LEAST_WORKING: f64 = 0.02;

/// The run as it was, with what it missed of the model made good; `None` where there is no [`fit`].
///
/// Where both halves compute on the same cores, all costs are multiplied by the fit. An accelerator's pace does
/// not depend on the loader's, so the fit is that of the half that set the pace: its costs become those with
/// which the model says what was measured.
/// Where other programs took most of the run's time, that is not made good: the cores are then free.
pub(super) fn fitted(workload: &Workload) -> Option<Setting> {
    fitted_by(workload, 1.0)
}

/// [`fitted`], with the fit to the power of `part`: below 1 for settings far from the run, where no one knows the fit.
pub(super) fn fitted_by(workload: &Workload, part: f64) -> Option<Setting> {
    let (run, fit) = (Setting::of(workload)?, fit(workload)?.powf(part));
    if beside_others(workload).is_some() {
        return Some(run.alone());
    }
    let (both, loader, trainer) = (
        |by| run.slower(by, by),
        |by| run.slower(by, 1.0),
        |by| run.slower(1.0, by),
    );
    let around = run.starts() + run.ends();
    let wanted = around + fit * (run.seconds() - around);
    if workload.device == "cpu" {
        // The epoch is nearly in proportion to all costs.
        let mut by = fit;
        for _ in 0..4 {
            by *= (wanted - around) / (both(by).seconds() - around);
        }
        return Some(both(if positive(by) { by } else { fit }));
    }
    // Costs up by a thousandth: the half to which the epoch reacts more sets the pace.
    let half: &dyn Fn(f64) -> Setting = match loader(1.001).seconds() >= trainer(1.001).seconds() {
        true => &loader,
        false => &trainer,
    };
    let (mut low, mut high) = (0.25, 4.0);
    if half(low).seconds() > wanted || half(high).seconds() < wanted {
        return Some(run.slower(fit, fit));
    }
    for _ in 0..24 {
        let middle = 0.5 * (low + high);
        match half(middle).seconds() < wanted {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(half(0.5 * (low + high)))
}

/// How far workers go in step where they ask for all cores and compute all at once. Measured with 4 to 36 workers on two cores, reads of 20 ms
/// and images of 2.5 ms.
const IN_STEP: f64 = 2.0 / 3.0;

/// What a core of another machine is worth at worst, next to one here: those that an operating system counts are often threads, two of
/// which share a core.
pub(super) const WORTH_AT_WORST: f64 = 0.5;

/// CPU seconds of a server for a byte of a batch: the checksum, and the kernel's copy into the socket. Measured by
/// `bench/serve.py`, 38 to 185 µs for 150 to 602 kB.
pub(super) const SERVED: f64 = 3.1e-10;

/// CPU seconds of the trainer's machine for a byte of a batch, by the same measurement: 46 to 218 µs.
pub(super) const RECEIVED: f64 = 3.6e-10;

/// Beyond this factor, either way, the model does not describe the run.
const FIT: f64 = 1.5;

/// Why nothing is predicted although everything was measured: the run's epochs were so much longer or shorter
/// than the model's that it does not describe them. `None` if it does, if [`beside_others`] says why, and if there is no [`fit`].
pub fn misfit(workload: &Workload) -> Option<String> {
    let fit = fit(workload).filter(|fit| !(1.0 / FIT..=FIT).contains(fit))?;
    let others = workload.others();
    let others = others.map_or(String::new(), |others| format!(", and {others} meanwhile"));
    beside_others(workload).is_none().then(|| {
        format!(
            "nothing is predicted: the run's epochs took {fit:.1} times as long as the measured costs of its loader and its trainer \
             add up to{others}"
        )
    })
}

/// Why predictions are those of a machine without other programs: these took so many cores that the run's epochs say little. `None`
/// if they do not, and if the cores that they left explain no epochs as long as that, to a quarter.
pub fn beside_others(workload: &Workload) -> Option<String> {
    fit(workload).filter(|fit| *fit > FIT)?;
    let others = workload.others()?;
    let fit = fit_of(workload, &Setting::of(workload)?.alone())?;
    let cores = workload.cores as f64;
    let left = (cores - workload.others_cores?).max(1e-3 * cores);
    if fit > 1.25 * cores / left {
        return None;
    }
    Some(format!(
        "the run's epochs took {fit:.1} times as long as its loader and its trainer need on free cores, and {others} meanwhile; \
         `stokehold advise --try` measures changes beside them, in turns"
    ))
}

/// Seconds of a script's epoch without other programs; `None` if these used few cores, and if there is a [`misfit`].
pub fn without_others(workload: &Workload) -> Option<f64> {
    let now = fitted(workload).filter(|now| now.others > 0.0 && misfit(workload).is_none())?;
    Some(now.alone().seconds())
}

/// [`Setting::warm`], if it was measured.
fn warm(workload: &Workload) -> f64 {
    let storage = |alternative: &&Alternative| alternative.change == Change::Storage;
    let found = workload.alternatives.iter().find(storage);
    found.map_or(1.0, |found| found.loader).clamp(0.25, 1.0)
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

impl Setting {
    /// The run as it was; `None` if a number that the model needs was not measured, or is invalid.
    pub fn of(workload: &Workload) -> Option<Self> {
        let measured = |value: Option<f64>| value.filter(|value| positive(*value));
        let loader = measured(workload.loader_ceiling)?;
        let trainer = measured(workload.trainer_ceiling)?;
        let loader_cpu = measured(workload.loader_cpu_seconds)?;
        let trainer_cpu = measured(workload.trainer_cpu_seconds)?;
        let counts = [workload.images, workload.batch_size, workload.cores];
        if counts.contains(&0) {
            return None;
        }
        let stage = |name| {
            workload
                .stage_seconds
                .get(name)
                .copied()
                .filter(|seconds| positive(*seconds))
        };
        // Decoding and augmenting wait only for cores; reads were slowed down by the same factor.
        let computing = stage("decode").unwrap_or(0.0) + stage("augment").unwrap_or(0.0);
        let read = stage("read").unwrap_or(0.0) / (computing / loader_cpu).max(1.0);
        // If there are more workers than cores, they also wait for each other, and on a busy machine for
        // other programs; so the wait for storage is at most the time of reading.
        let at_once = workload.num_workers.clamp(1, workload.cores) as f64;
        let waited = (at_once / loader - loader_cpu).min(read);
        // Reads that took longer than all computing of an image did wait, even if the ceiling was measured
        // with warm caches.
        let cold = read - loader_cpu;
        let wait = workload.read_wait_seconds.filter(|wait| wait.is_finite());
        let wait = wait.unwrap_or_else(|| waited.max(cold)).max(0.0);
        let without_delay = match workload.script {
            Some(_) => undelayed,
            None => undisturbed,
        };
        let trainer = without_delay(
            trainer,
            trainer_cpu,
            workload.trainer_delay_seconds,
            workload.cores,
        );
        let starts = workload
            .script
            .as_ref()
            .filter(|script| !script.persistent_workers);
        let batch = workload.images.min(workload.batch_size) as f64;
        let between = measured(workload.between_seconds).unwrap_or(0.0);
        Some(Self {
            images: workload.images as f64,
            batch_size: workload.batch_size,
            cores: workload.cores,
            quota: measured(workload.quota).unwrap_or(f64::INFINITY),
            others: match workload.script {
                Some(_) if workload.others().is_some() => workload.others_cores.unwrap_or(0.0),
                _ => 0.0,
            },
            workers: workload.num_workers,
            in_turns: workload.workers_why.is_some(),
            loader_cpu,
            warm: warm(workload),
            wait,
            trainer: batch / (batch / trainer + between),
            trainer_cpu,
            start: starts.map_or(0.0, |script| match workload.num_workers {
                0 => FORK,
                workers => script.start_seconds.max(0.0) / workers as f64,
            }),
            ready: starts.map_or(0.0, |script| {
                script
                    .worker_start_seconds
                    .max(script.worker_start_cpu_seconds)
                    .max(0.0)
            }),
            ready_cpu: starts.map_or(0.0, |script| script.worker_start_cpu_seconds.max(0.0)),
            end: starts.map_or(0.0, |script| match workload.num_workers {
                0 => END,
                _ => script.end_seconds.max(0.0),
            }),
            end_of: workload.num_workers,
            receive: workload.script.as_ref().map_or(0.0, |_| RECEIVE),
            variation: workload
                .script
                .as_ref()
                .map_or(0.0, |script| script.variation.clamp(0.0, MOST_VARIATION)),
            ahead: workload
                .script
                .as_ref()
                .and_then(|script| script.prefetch_factor)
                .unwrap_or(AHEAD),
            send: match &workload.script {
                Some(script) if workload.num_workers == 0 => SEND * script.image_bytes.max(0.0),
                _ => 0.0,
            },
            whole: workload.script.is_some() && workload.num_workers > 0,
        })
    }

    /// The same without other programs.
    pub fn alone(self) -> Setting {
        Setting { others: 0.0, ..self }
    }

    /// Cores that all threads together may use at a time.
    fn shared(&self) -> f64 {
        let cores = (self.cores as f64).min(self.quota);
        (cores - self.others).max(LEAST_SHARE * cores)
    }

    /// Cores that the trainer keeps busy, at most all of them.
    pub fn trainer_cores(&self) -> f64 {
        (self.trainer_cpu * self.trainer).min(self.shared())
    }

    /// Images per second of the loader alone.
    pub fn loader(&self) -> f64 {
        if self.workers == 0 {
            return 1.0 / (self.loader_cpu + self.wait);
        }
        let cores = self.shared();
        self.mean(|computing| computing.min(cores), |computing| computing.min(cores)) / self.loader_cpu
    }

    /// Images per second of the loader and of the trainer while both are at work.
    fn beside(&self) -> (f64, f64) {
        let threads = self.trainer_threads();
        let wanted = self.trainer_cores() / threads;
        // The share of a core that a runnable thread gets.
        let share = |computing: f64| (self.shared() / (computing + threads)).min(1.0);
        let left = |computing: f64| {
            let taken = threads * wanted.min(share(computing));
            computing.min(self.shared() - taken)
        };
        let slowed = |computing| (share(computing) / wanted).min(1.0);
        (
            self.mean(left, left) / self.loader_cpu,
            self.trainer * self.mean(left, slowed),
        )
    }

    /// The mean of `value` over the numbers of workers that compute at a time, where they get `cores(number)`
    /// cores together; the others wait for storage.
    fn mean(&self, cores: impl Fn(f64) -> f64, value: impl Fn(f64) -> f64) -> f64 {
        let workers = self.workers as f64;
        if self.wait <= 0.0 {
            return value(workers);
        }
        // p(n) = p(n - 1) (W - n + 1) l / (i cores(n)), in logarithms, because a thousand factors overflow.
        // More workers than a loader can have compute like the most that it can have.
        let (mut last, mut largest): (f64, f64) = (0.0, 0.0);
        let (mut sum, mut all) = (value(0.0), 1.0);
        for computing in 1..=self.workers.min(MOST_WORKERS) {
            let n = computing as f64;
            last += ((workers - n + 1.0) * self.loader_cpu / (self.wait * cores(n))).ln();
            if last > largest {
                let smaller = (largest - last).exp();
                (sum, all, largest) = (sum * smaller, all * smaller, last);
            }
            let weight = (last - largest).exp();
            sum += weight * value(n);
            all += weight;
        }
        let by_chance = sum / all;
        if self.in_turns {
            return by_chance;
        }
        // In step: all wait, then all compute.
        let together = workers * self.loader_cpu / cores(workers);
        let busy = together / (self.wait + together);
        let in_step = busy * value(workers) + (1.0 - busy) * value(0.0);
        let asked = workers * self.loader_cpu / ((self.loader_cpu + self.wait) * self.shared());
        let share = IN_STEP * asked.min(1.0).powi(2);
        (1.0 - share) * by_chance + share * in_step
    }

    /// CPU time of both halves per image, seconds.
    pub fn cpu(&self) -> f64 {
        self.loader_cpu + self.trainer_cpu
    }

    /// Images per second of both together.
    pub fn rate(&self) -> f64 {
        let (loader, trainer) = (self.loader(), self.trainer);
        if self.workers == 0 {
            // One after the other.
            return 1.0 / (1.0 / loader + 1.0 / trainer);
        }
        let (beside_trainer, beside_loader) = self.beside();
        if beside_trainer >= beside_loader {
            beside_trainer * trainer / (beside_trainer + trainer - beside_loader)
        } else {
            beside_loader * loader / (beside_loader + loader - beside_trainer)
        }
    }

    /// The number of the trainer's threads: as many as it keeps cores busy.
    fn trainer_threads(&self) -> f64 {
        self.trainer_cores().max(1.0)
    }

    /// Seconds of an epoch's training.
    pub fn seconds(&self) -> f64 {
        if self.workers == 0 {
            return self.images / self.rate();
        }
        if self.whole {
            return self.epoch().seconds() + self.ends();
        }
        let batch = self.images.min(self.batch_size as f64);
        // All workers begin to read at once: with waits the first batch comes in rounds, the last of which may be for
        // a few images only, and in each round all want a core at the same time.
        let rounds = (batch / self.workers as f64).ceil();
        let crowd = (self.workers as f64 / self.shared()).max(1.0);
        let first = match self.waits_for_storage() {
            true => rounds * (self.wait + self.loader_cpu * crowd),
            false => batch / self.loader(),
        };
        first + (self.images - batch) / self.rate() + batch / self.trainer
    }

    /// The epoch of a script whose workers make whole batches.
    fn epoch(&self) -> Epoch {
        let batch = self.images.min(self.batch_size as f64);
        Epoch {
            workers: self.workers.min(MOST_WORKERS) as usize,
            cores: self.shared(),
            batches: self.images / batch,
            wait: batch * self.wait,
            cpu: batch * self.loader_cpu,
            variation: self.variation,
            ahead: self.ahead.clamp(1, MOST_AHEAD) as usize,
            step: batch / self.trainer,
            step_cpu: batch * self.trainer_cpu,
            receive: self.receive,
            start: self.start,
            ready_wait: self.ready - self.ready_cpu,
            ready_cpu: self.ready_cpu,
        }
    }

    /// Seconds in every epoch before the first batch is begun: workers are started one after the other, each gets ready for itself,
    /// and none is asked for a batch before all are started.
    pub fn starts(&self) -> f64 {
        match self.workers {
            0 => 0.0,
            workers => {
                let crowd = (workers as f64 / self.shared()).max(1.0) - 1.0;
                (self.start * workers as f64).max(self.start + self.ready + crowd * self.ready_cpu)
            }
        }
    }

    /// Seconds in every epoch after the last step, in which the script ends its workers.
    pub fn ends(&self) -> f64 {
        let more = self.workers as f64 - self.end_of as f64;
        match self.workers {
            0 => 0.0,
            _ if self.end == 0.0 => 0.0,
            _ => (self.end + END_EACH * more).max(LEAST_END * self.end),
        }
    }

    /// With workers that live longer than an epoch.
    pub fn with_persistent_workers(&self) -> Self {
        Self {
            start: 0.0,
            ready: 0.0,
            ready_cpu: 0.0,
            end: 0.0,
            ..*self
        }
    }

    /// As if the trainer, which waits for `share` of its time, never did: both halves quicker by as much.
    pub fn without_waiting(&self, share: f64) -> Self {
        let factor = 1.0 - share.clamp(0.0, 0.95);
        self.slower(factor, factor)
    }

    /// With a trainer that takes so much less time for an image, seconds; at most nearly all of it.
    pub fn with_trainer_quicker_by(&self, seconds: f64) -> Self {
        let each = 1.0 / self.trainer;
        Self {
            trainer: 1.0 / (each - seconds).max(0.05 * each),
            ..*self
        }
    }

    /// With a loader of Stokehold's in the place of a `DataLoader`: threads, one for each core, whose images cost this share of
    /// the CPU time.
    pub fn swapped(&self, loader: f64) -> Self {
        Self {
            loader_cpu: loader * self.loader_cpu,
            workers: self.cores,
            start: 0.0,
            ready: 0.0,
            whole: false,
            ..*self
        }
    }

    /// With loader and trainer slower by these factors, in all that they do.
    fn slower(&self, loader: f64, trainer: f64) -> Self {
        Self {
            loader_cpu: loader * self.loader_cpu,
            wait: loader * self.wait,
            trainer: self.trainer / trainer,
            trainer_cpu: trainer * self.trainer_cpu,
            receive: trainer * self.receive,
            ..*self
        }
    }

    /// With other costs per image, as factors for loader and trainer.
    pub fn costing(&self, loader: f64, trainer: f64, batch_size: u64) -> Self {
        Self {
            loader_cpu: loader * self.loader_cpu,
            trainer: self.trainer / trainer,
            trainer_cpu: trainer * self.trainer_cpu,
            batch_size,
            ..*self
        }
    }

    /// On a machine with this number of equally fast cores, with one worker per core. `shared` means that the
    /// trainer computes on them.
    pub fn on_cores(&self, cores: u64, shared: bool) -> Self {
        let mut then = Self {
            cores,
            quota: f64::INFINITY,
            others: 0.0,
            // What loads by itself has no workers on another machine either.
            workers: if self.workers == 0 { 0 } else { cores },
            ..*self
        };
        if shared && self.cores > 1 {
            // Amdahl: wall = serial + parallel / cores, and CPU time = serial + parallel.
            let (wall, here) = (1.0 / self.trainer, self.shared());
            let serial = ((wall * here - self.trainer_cpu) / (here - 1.0)).clamp(0.0, wall);
            let parallel = (wall - serial) * here;
            then.trainer = 1.0 / (serial + parallel / cores as f64);
        }
        then
    }

    /// The same, if the trainer is no faster on more cores and only proportionally slower on fewer, and each
    /// further core is worth half of one here.
    pub fn at_worst_on_cores(&self, cores: u64, shared: bool) -> Self {
        let more = cores.saturating_sub(self.cores) as f64 * WORTH_AT_WORST;
        let worth = cores.min(self.cores) + more as u64;
        let fewer = (cores as f64 / self.shared()).min(1.0);
        Self {
            cores: worth,
            quota: f64::INFINITY,
            others: 0.0,
            workers: if self.workers == 0 { 0 } else { worth },
            trainer: if shared {
                self.trainer * fewer
            } else {
                self.trainer
            },
            ..*self
        }
    }

    /// Images per second that servers with this many cores together make, each of which is worth `worth` of one here; `bytes` are those
    /// of an image in a batch. A core has one worker, which waits for storage as one here.
    pub fn served(&self, cores: u64, worth: f64, bytes: u64) -> f64 {
        let cpu = self.loader_cpu + SERVED * bytes as f64;
        cores as f64 / (cpu / worth + self.wait)
    }

    /// With batches made by such servers.
    pub fn with_servers(&self, cores: u64, worth: f64, bytes: u64) -> Self {
        let received = RECEIVED * bytes as f64;
        // Enough workers that they can wait for all servers; each takes an image when it has the last one.
        let workers = cores.clamp(1, MOST_WORKERS);
        let each = workers as f64 / self.served(cores, worth, bytes);
        Self {
            workers,
            in_turns: true,
            loader_cpu: received,
            warm: 1.0,
            start: 0.0,
            ready: 0.0,
            whole: false,
            wait: (each - received).max(0.0),
            ..*self
        }
    }

    /// With another number of workers.
    pub fn with_workers(&self, workers: u64) -> Self {
        let then = self.with(workers, self.wait);
        // A step of several threads leaves no core idle next to which an image would cost what it cost while the step waited.
        let crowded = self.workers == 0 && workers > 0 && self.trainer_cores() > ONE_THREAD;
        Self {
            in_turns: false,
            // One that has no workers has none that make whole batches.
            whole: self.whole || self.workers == 0,
            loader_cpu: then.loader_cpu * if crowded { CROWDED } else { 1.0 }
                + if workers > 0 { self.send } else { 0.0 },
            send: 0.0,
            ..then
        }
    }

    /// With storage that no one waits for.
    pub fn without_waits(&self) -> Self {
        self.with(self.workers, 0.0)
    }

    /// With other workers and waits. The less the cores rest then, the less an image costs.
    fn with(&self, workers: u64, wait: f64) -> Self {
        let busy = |workers: u64, wait: f64| {
            let share = workers as f64 * self.loader_cpu / (self.loader_cpu + wait);
            (share / self.shared()).min(1.0)
        };
        let (now, then) = (busy(self.workers, self.wait), busy(workers, wait));
        // The measured cost is that of `now`.
        let cost = |busy: f64| 1.0 - (1.0 - self.warm) * busy;
        Self {
            workers,
            wait,
            loader_cpu: self.loader_cpu * cost(then) / cost(now),
            ..*self
        }
    }

    /// Whether workers wait for storage for a share of their time that is worth mentioning.
    pub fn waits_for_storage(&self) -> bool {
        self.wait > 0.1 * (self.loader_cpu + self.wait)
    }

    /// Numbers of workers that a script may want: few, one per core, and as many as the trainer can use; no more than it has batches.
    /// Next to other programs no fewer than it has: more workers get more of the cores there, which `shared` leaves out.
    pub fn worker_counts_of_script(&self) -> Vec<u64> {
        let batches = (self.images / self.batch_size as f64).ceil() as u64;
        let mut counts = self.worker_counts();
        // With one batch each the epoch is one round.
        counts.extend(
            [2, 4, 8]
                .into_iter()
                .chain(Some(batches).filter(|&batches| batches <= FEW_BATCHES)),
        );
        let least = if self.others > 0.5 { self.workers } else { 0 };
        counts.retain(|&count| count <= batches.max(1) && count != self.workers && count >= least);
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Numbers of workers worth a prediction: half and twice as many, one per core, and as many as the trainer can use.
    pub fn worker_counts(&self) -> Vec<u64> {
        let wanted = (self.trainer * (self.loader_cpu + self.wait)).ceil();
        // With more than this, all cores compute already, even with the waits.
        let useful = (self.shared() * (1.0 + self.wait / self.loader_cpu)).ceil();
        let mut counts = vec![
            self.workers / 2,
            self.workers.saturating_mul(2).max(1),
            self.cores,
            wanted.min(useful) as u64,
        ];
        counts.retain(|&count| (1..=MOST_WORKERS).contains(&count) && count != self.workers);
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}

/// Seconds in which a script with torch forks a worker, where none was measured: two workers took 60 ms longer in an epoch of 0.16 s.
const FORK: f64 = 0.03;

/// Seconds in which a script with torch ends an epoch with workers, and how much more each of them takes. Measured with 1 to 16.
const END: f64 = 0.010;
const END_EACH: f64 = 0.0065;

/// The least share of that time that is left with fewer workers.
const LEAST_END: f64 = 0.3;

/// Seconds in which a script's process receives a batch of two tensors: a worker sends a file of each. Measured where workers were
/// far ahead.
const RECEIVE: f64 = 0.0012;

/// Batches that vary more are taken for batches that vary as much.
const MOST_VARIATION: f64 = 4.0;

/// CPU seconds of a worker for a byte of a batch that the script's own process would not need: shared memory, whose pages are new
/// in every batch. Measured with batches of 2 to 5 MB.
const SEND: f64 = 1.7e-9;

/// The batches that a worker of PyTorch's makes ahead, unless `prefetch_factor` says otherwise, and the most that are stepped through.
const AHEAD: u64 = 2;
const MOST_AHEAD: u64 = 64;

/// How much more CPU time an image costs where all cores compute than where the others rest. Measured with torchvision's transforms of
/// JPEGs next to a network on two threads: 2.7 ms instead of 1.9 ms.
const CROWDED: f64 = 1.4;

/// An epoch of at most this many batches may want a worker for each.
const FEW_BATCHES: u64 = 16;

/// The part of the cores that other programs leave at least.
const LEAST_SHARE: f64 = 0.125;

/// The most workers that a loader starts.
const MOST_WORKERS: u64 = 1024;

#[cfg(test)]
mod tests {
    use stokehold_profile::workload::ScriptLoader;

    use super::super::tests::workload;
    use super::*;

    /// 1000 images, 8 cores, 2 workers that compute 10 ms an image, a trainer of 100 images/s on one core.
    const ACCELERATED: Setting = Setting {
        in_turns: false,
        images: 1e6,
        batch_size: 50,
        cores: 8,
        quota: f64::INFINITY,
        others: 0.0,
        workers: 2,
        loader_cpu: 0.01,
        warm: 1.0,
        wait: 0.0,
        trainer: 100.0,
        trainer_cpu: 0.01,
        start: 0.0,
        ready: 0.0,
        ready_cpu: 0.0,
        end: 0.0,
        end_of: 2,
        receive: 0.0,
        variation: 0.0,
        ahead: AHEAD,
        send: 0.0,
        whole: false,
    };

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * b.abs()
    }

    #[test]
    fn an_infinitely_fast_half_leaves_the_other_ones_ceiling() {
        for cores in [1, 2, 8] {
            for trainer_cpu in [0.001, 0.01, 0.1] {
                let run = Setting {
                    cores,
                    trainer_cpu,
                    ..ACCELERATED
                };
                let fast_loader = Setting {
                    loader_cpu: 1e-9,
                    ..run
                };
                assert!(close(fast_loader.seconds(), 1e6 / 100.0), "{fast_loader:?}");
                let fast_trainer = Setting {
                    trainer: 1e9,
                    trainer_cpu: 1e-9,
                    ..run
                };
                assert!(
                    close(fast_trainer.seconds(), 1e6 / run.loader()),
                    "{fast_trainer:?}"
                );
            }
        }
    }

    #[test]
    fn spare_cores_let_the_slower_half_set_the_pace() {
        assert!(close(ACCELERATED.rate(), 100.0));
        let starved = Setting {
            trainer: 1000.0,
            trainer_cpu: 0.001,
            ..ACCELERATED
        };
        assert!(close(starved.rate(), 200.0), "{}", starved.rate());
        // The first batch is loaded before anything is trained, the last one trained when all is loaded.
        let short = Setting {
            images: 100.0,
            ..starved
        };
        assert!(close(
            short.seconds(),
            50.0 / 200.0 + 50.0 / 200.0 + 50.0 / 1000.0
        ));
        let one_batch = Setting {
            images: 10.0,
            ..starved
        };
        assert!(close(one_batch.seconds(), 10.0 / 200.0 + 10.0 / 1000.0));
    }

    #[test]
    fn on_shared_cores_the_costs_add_up() {
        for (loader_cpu, trainer_cpu) in [(0.01, 0.01), (0.1, 0.01), (0.001, 0.02)] {
            for workers in [2, 4, 16] {
                let run = Setting {
                    cores: 2,
                    workers,
                    loader_cpu,
                    trainer_cpu,
                    trainer: 2.0 / trainer_cpu,
                    ..ACCELERATED
                };
                assert!(
                    close(1.0 / run.rate(), (loader_cpu + trainer_cpu) / 2.0),
                    "{run:?}"
                );
            }
        }
    }

    /// Over a grid of everything: no rate above a ceiling and no more CPU time than there is. Up to a worker for each core another one
    /// never hurts where the loader is the slower half or the trainer computes on all cores; otherwise it may.
    #[test]
    fn no_prediction_is_beyond_what_is_possible() {
        let grid = [0.0005, 0.003, 0.02, 0.2];
        for cores in [1u64, 2, 4, 32] {
            for loader_cpu in grid {
                for wait in [0.0, 0.001, 0.05] {
                    for (trainer_cpu, parallel) in grid
                        .iter()
                        .flat_map(|&cpu| [0.5, 1.0, cores as f64].map(|p| (cpu, p)))
                    {
                        let mut before = 0.0;
                        for workers in 1..=2 * cores {
                            let run = Setting {
                                cores,
                                workers,
                                loader_cpu,
                                wait,
                                trainer_cpu,
                                trainer: parallel.min(cores as f64) / trainer_cpu,
                                ..ACCELERATED
                            };
                            let rate = run.rate();
                            let slack = 1.0 + 1e-9;
                            assert!(
                                rate > 0.0 && rate <= slack * run.loader().min(run.trainer),
                                "{run:?}"
                            );
                            assert!(
                                rate * (loader_cpu + trainer_cpu) <= slack * cores as f64,
                                "{run:?}"
                            );
                            assert!(run.seconds() * slack >= run.images / run.loader().min(run.trainer));
                            let all = parallel >= cores as f64;
                            if workers <= cores && (all || run.loader() <= run.trainer) {
                                assert!(rate * slack >= before, "{run:?}: {rate} after {before}");
                            }
                            before = rate;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_loaders_ceiling_is_met_with_the_runs_own_workers() {
        let mut run = workload();
        run.stage_seconds.insert("read".into(), 0.004);
        for (workers, ceiling) in [(1, 90.0), (2, 150.0)] {
            run.num_workers = workers;
            run.loader_ceiling = Some(ceiling);
            let setting = Setting::of(&run).unwrap();
            assert!(close(setting.loader(), ceiling), "{setting:?}");
        }
        // Slower than reads explain: others had the cores.
        run.loader_ceiling = Some(50.0);
        assert!(close(Setting::of(&run).unwrap().wait, 0.004));
        // A cold run read for 90 ms an image, whatever the warm ceiling says.
        run.stage_seconds.insert("read".into(), 0.09);
        assert!(close(Setting::of(&run).unwrap().wait, 0.08));
    }

    /// PyTorch's workers make whole batches, all at once; the oracle goes through batches and workers.
    #[test]
    fn whole_batches_take_what_stepping_through_them_takes() {
        for (workers, wait, trainer, batches) in [
            (1, 0.02, 400.0, 60.0),
            (4, 0.02, 400.0, 60.0),
            (7, 0.02, 90.0, 64.0),
            (2, 0.0, 50.0, 40.0),
            (3, 0.05, 1000.0, 200.0),
        ] {
            let run = Setting {
                workers,
                wait,
                trainer,
                batch_size: 4,
                images: 4.0 * batches,
                loader_cpu: 0.002,
                trainer_cpu: 1e-5,
                cores: 64,
                start: 0.01,
                whole: true,
                ..ACCELERATED
            };
            let batch = 4.0 * (run.loader_cpu + run.wait);
            let (mut free, mut trained) = (vec![0.01 * workers as f64; workers as usize], 0.0f64);
            for number in 0..batches as usize {
                let place = number % workers as usize;
                free[place] += batch;
                trained = trained.max(free[place]) + 4.0 / trainer;
            }
            let modelled = run.seconds();
            assert!(
                (modelled / trained - 1.0).abs() < 1e-6,
                "{run:?}: {modelled} and {trained}"
            );
        }
        // Without workers one thing comes after the other, and no machine changes that.
        let alone = Setting {
            workers: 0,
            images: 100.0,
            trainer: 100.0,
            wait: 0.01,
            ..ACCELERATED
        };
        assert!(close(alone.seconds(), 100.0 * (0.01 + 0.01 + 0.01)));
        assert_eq!(alone.on_cores(16, false).workers, 0);
    }

    /// Over a grid of everything: an epoch of whole batches takes at least what either half needs alone and what all cores need, and no
    /// more than both one after the other; a worker more never makes it slower where cores and batches are enough.
    #[test]
    fn whole_batches_take_what_is_possible() {
        let grid = [0.0005, 0.004, 0.03];
        for (cores, batches) in [(1u64, 3.0), (2, 11.0), (4, 40.5), (16, 700.0)] {
            for (loader_cpu, trainer_cpu) in grid.iter().flat_map(|&cpu| grid.map(|other| (cpu, other))) {
                for wait in [0.0, 0.02] {
                    let mut before = f64::INFINITY;
                    for workers in [1u64, 2, 3, 4, 8, 16, 64] {
                        let run = Setting {
                            images: 16.0 * batches,
                            batch_size: 16,
                            cores,
                            workers,
                            loader_cpu,
                            wait,
                            trainer: 1.0 / trainer_cpu,
                            trainer_cpu,
                            whole: true,
                            ..ACCELERATED
                        };
                        let seconds = run.seconds();
                        let slack = 1.0 + 1e-9;
                        assert!(seconds * slack >= run.images * trainer_cpu, "{run:?}: {seconds}");
                        let all = run.images * (loader_cpu + trainer_cpu) / cores as f64;
                        assert!(seconds * slack >= all, "{run:?}: {seconds}");
                        let one_by_one = run.images * (loader_cpu + wait + trainer_cpu);
                        assert!(seconds <= slack * one_by_one, "{run:?}: {seconds} {one_by_one}");
                        // A trainer that computes wants a core of its own.
                        if workers < cores && workers as f64 <= batches {
                            assert!(seconds <= slack * before, "{run:?}: {seconds} after {before}");
                        }
                        before = seconds;
                    }
                }
            }
        }
    }

    /// Eleven batches on eight workers are two rounds, on eleven and more of them one; no more are advised than there are batches.
    #[test]
    fn a_short_epoch_is_made_of_rounds() {
        let of = |workers| Setting {
            images: 176.0,
            batch_size: 16,
            cores: 64,
            workers,
            loader_cpu: 1e-6,
            wait: 0.02,
            trainer: 1e6,
            trainer_cpu: 1e-6,
            whole: true,
            ..ACCELERATED
        };
        for (workers, rounds) in [(1, 11.0), (4, 3.0), (8, 2.0), (11, 1.0), (12, 1.0), (64, 1.0)] {
            let seconds = of(workers).seconds();
            assert!(close(seconds, 0.32 * rounds), "{workers}: {seconds}");
        }
        let counts = of(1).worker_counts_of_script();
        assert!(
            counts.starts_with(&[2, 4, 8]) && counts.iter().all(|&count| count <= 11),
            "{counts:?}"
        );
    }

    /// Starts of workers in their order, each of which gets ready for a second, while the script continues with the next.
    #[test]
    fn workers_get_ready_at_the_same_time() {
        let of = |workers, start, ready| {
            Setting {
                workers,
                start,
                ready,
                ..ACCELERATED
            }
            .starts()
        };
        assert!(close(of(2, 0.01, 1.0), 1.01));
        assert!(close(of(200, 0.01, 1.0), 2.0));
        assert_eq!(of(4, 0.0, 0.0), 0.0);
    }

    /// What a script's own epochs took is what the fitted model says, starts of workers included.
    #[test]
    fn the_fit_is_exact_with_starts() {
        let mut run = workload();
        run.script = Some(ScriptLoader {
            start_seconds: 0.2,
            worker_start_seconds: 0.9,
            ..ScriptLoader::default()
        });
        for device in ["cpu", "cuda"] {
            run.device = device.to_owned();
            run.seconds_per_epoch = Some(1.2 * Setting::of(&run).unwrap().seconds());
            let fitted = fitted(&run).unwrap();
            assert!(
                close(fitted.seconds(), run.seconds_per_epoch.unwrap()),
                "{device}"
            );
            // Starts are measured, and no part of what the model may miss. The second worker is ready after the first one.
            let starts = fitted.seconds() - fitted.with_persistent_workers().seconds();
            assert!((0.999..1.101).contains(&starts), "{device}: {starts}");
        }
    }

    /// The oracle of the long run: batch after batch through a buffer of two, with the cores shared again whenever one half starts
    /// or stops.
    #[test]
    fn an_epoch_takes_what_stepping_through_it_takes() {
        for run in [
            ACCELERATED,
            Setting {
                trainer: 1000.0,
                trainer_cpu: 0.001,
                ..ACCELERATED
            },
            Setting {
                cores: 2,
                trainer: 180.0,
                trainer_cpu: 0.01,
                ..ACCELERATED
            },
            Setting {
                cores: 2,
                workers: 1,
                trainer: 190.0,
                trainer_cpu: 0.01,
                ..ACCELERATED
            },
            Setting {
                cores: 2,
                workers: 1,
                loader_cpu: 0.03,
                trainer: 190.0,
                trainer_cpu: 0.01,
                ..ACCELERATED
            },
            Setting {
                cores: 4,
                workers: 4,
                loader_cpu: 0.002,
                trainer: 300.0,
                trainer_cpu: 0.01,
                ..ACCELERATED
            },
            Setting {
                cores: 4,
                workers: 8,
                loader_cpu: 0.01,
                wait: 0.02,
                trainer: 350.0,
                ..ACCELERATED
            },
        ] {
            // So many that the rounds of the first batch do not count.
            let run = Setting {
                images: 50_000.0,
                ..run
            };
            let stepped = step_through(&run);
            let modelled = run.seconds();
            assert!(close(modelled, stepped), "{run:?}: {modelled} and {stepped}");
        }
    }

    fn step_through(run: &Setting) -> f64 {
        let batches = (run.images / run.batch_size as f64).round() as u32;
        let (beside_trainer, beside_loader) = run.beside();
        let (mut now, mut loaded, mut trained) = (0.0, 0, 0);
        // Images that are left of the batch in the loader's hands and of the one in the trainer's.
        let full = run.batch_size as f64;
        let (mut loading, mut training) = (full, 0.0);
        let mut taken = 0;
        while trained < batches {
            if training == 0.0 && taken < loaded {
                taken += 1;
                training = full;
            }
            let loads = loaded < batches && loaded - taken < 2;
            let trains = training > 0.0;
            let (by_loader, by_trainer) = match (loads, trains) {
                (true, true) => (beside_trainer, beside_loader),
                (true, false) => (run.loader(), 0.0),
                _ => (0.0, run.trainer),
            };
            let until = |left: f64, rate: f64| if rate > 0.0 { left / rate } else { f64::INFINITY };
            let step = until(loading, by_loader).min(until(training, by_trainer));
            now += step;
            loading -= step * by_loader;
            training -= step * by_trainer;
            if loads && loading < 1e-6 {
                (loading, loaded) = (full, loaded + 1);
            }
            if trains && training < 1e-6 {
                (training, trained) = (0.0, trained + 1);
            }
        }
        now
    }

    #[test]
    fn a_busy_machine_is_seen_through() {
        // 20 ms of CPU time an image on two cores: 100 images/s. A third of the time there was no core for either thread.
        let busy = Workload {
            trainer_ceiling: Some(66.7),
            trainer_cpu_seconds: Some(0.02),
            trainer_delay_seconds: 0.01,
            ..workload()
        };
        assert!(close(Setting::of(&busy).unwrap().trainer, 100.0));
        // No more than all cores allow, and never less than was measured.
        let busier = |trainer_ceiling| {
            Setting::of(&Workload {
                trainer_ceiling,
                trainer_delay_seconds: 1.0,
                ..busy.clone()
            })
        };
        assert!(close(busier(Some(66.7)).unwrap().trainer, 100.0));
        assert!(close(busier(Some(120.0)).unwrap().trainer, 120.0));
        // Stages that took five times their CPU time: the reads did as well.
        let mut stretched = workload();
        stretched.loader_ceiling = Some(40.0);
        for (stage, seconds) in [("read", 0.005), ("decode", 0.03), ("augment", 0.02)] {
            stretched.stage_seconds.insert(stage.into(), seconds);
        }
        assert!(close(Setting::of(&stretched).unwrap().wait, 0.001));
    }

    /// By hand: p(n) = p(n - 1) (W - n + 1) l / (i min(n, C)).
    #[test]
    fn workers_that_wait_share_the_cores_by_chance() {
        let waiting = |cores, workers, wait| Setting {
            cores,
            workers,
            wait,
            ..ACCELERATED
        };
        // A worker computes half of its time.
        assert!(close(waiting(1, 1, 0.01).loader(), 50.0));
        // 1, 2, 2 of 5: by chance a core is busy for 4/5 of the time. In step, two images take 10 + 20 ms. They ask for the whole core, so
        // it is a third of the one and two thirds of the other.
        assert!(close(
            waiting(1, 2, 0.01).loader(),
            80.0 / 3.0 + 2.0 / 3.0 * 2.0 / 0.03
        ));
        // 1, 4, 6, 6, 3 of 20: (4 + 2 (6 + 6 + 3))/20 = 1.7 of 2 cores; in step, four images in 10 + 20 ms.
        assert!(close(
            waiting(2, 4, 0.01).loader(),
            170.0 / 3.0 + 2.0 / 3.0 * 4.0 / 0.03
        ));
        // They ask for half a core of one: a sixth in step. 1, 2/3, 2/9 of 17/9: 8/17 by chance.
        let few = waiting(1, 2, 0.03).loader();
        let expected = 5.0 / 6.0 * 800.0 / 17.0 + 2.0 / 0.05 / 6.0;
        assert!(close(few, expected), "{few} {expected}");
        // Never more than the cores compute, and nearly as much with many.
        let many = waiting(2, 1024, 0.01).loader();
        assert!((199.5..200.0).contains(&many), "{many}");
        // As many as cores do not get in each other's way.
        assert!(close(waiting(4, 4, 0.03).loader(), 100.0));
    }

    /// By hand: one trainer thread that wants half a core, or a whole one, next to 2 workers on 2 cores.
    #[test]
    fn the_trainers_thread_takes_what_it_wants_up_to_its_share() {
        let run = Setting {
            cores: 2,
            trainer_cpu: 0.005,
            ..ACCELERATED
        };
        let (loader, trainer) = run.beside();
        assert!(
            close(loader, 150.0) && close(trainer, 100.0),
            "{loader} {trainer}"
        );
        // Three threads that never rest: two thirds of a core each.
        let whole = Setting {
            trainer_cpu: 0.01,
            ..run
        };
        let (loader, trainer) = whole.beside();
        assert!(
            close(loader, 400.0 / 3.0) && close(trainer, 200.0 / 3.0),
            "{loader} {trainer}"
        );
    }

    #[test]
    fn a_first_batch_that_waits_comes_in_rounds() {
        // 22 workers, 50 images: three rounds of 20 ms and 22/8 ms, although 22 workers deliver 50 in 48 ms.
        let run = Setting {
            images: 50.0,
            cores: 8,
            workers: 22,
            loader_cpu: 0.001,
            wait: 0.02,
            ..ACCELERATED
        };
        assert!(close(run.seconds(), 0.06825 + 0.5), "{}", run.seconds());
    }

    #[test]
    fn an_image_costs_less_where_the_cores_never_rest() {
        let run = Setting {
            cores: 2,
            workers: 1,
            warm: 0.5,
            wait: 0.03,
            ..ACCELERATED
        };
        // One worker computes a quarter of its time: the cores are busy for an eighth, and an image costs 1 - 1/16 of the most.
        // Without waits they are busy for a half, and it costs 1 - 1/4.
        assert!(close(run.without_waits().loader_cpu, 0.01 * 0.75 / 0.9375));
        assert_eq!(run.without_waits().wait, 0.0);
        // 8 workers: busy all the time.
        assert!(close(run.with_workers(8).loader_cpu, 0.01 * 0.5 / 0.9375));
        let unmeasured = Setting { warm: 1.0, ..run };
        assert_eq!(unmeasured.with_workers(8).loader_cpu, 0.01);
    }

    /// Two machines of 4 cores, half of which count: 4 / (10 ms + 31 µs), and as much less as their workers wait for storage.
    #[test]
    fn servers_make_what_their_cores_make_and_the_trainer_only_receives() {
        let run = Setting {
            cores: 2,
            trainer: 1000.0,
            trainer_cpu: 1e-4,
            ..ACCELERATED
        };
        assert!(close(run.served(8, 0.5, 100_000), 4.0 / 0.010_031));
        let waiting = Setting { wait: 0.02, ..run };
        assert!(close(waiting.served(8, 0.5, 100_000), 8.0 / 0.040_062));
        // The servers set the pace, and then the accelerator does.
        let few = run.with_servers(8, 0.5, 100_000);
        assert!(
            (few.loader() / (4.0 / 0.010_031) - 1.0).abs() < 0.01,
            "{}",
            few.loader()
        );
        assert!((few.rate() / few.loader() - 1.0).abs() < 0.01, "{}", few.rate());
        let many = run.with_servers(64, 0.5, 100_000);
        assert!((many.rate() / 1000.0 - 1.0).abs() < 0.01, "{}", many.rate());
        // 36 µs an image of one core, and the trainer's 0.1 ms: no more than 27,700 images/s can be received on it.
        assert!(close(many.loader_cpu, 36e-6));
    }

    /// A loader of one worker and 100 images/s, next to an accelerator of 150, took a tenth longer than that: it delivers 91. With two
    /// workers the accelerator sets the pace, and it is as fast as before.
    #[test]
    fn a_miss_is_the_half_that_sets_the_pace() {
        let mut run = Workload {
            images: 1_000_000,
            num_workers: 1,
            device: "emulated".into(),
            loader_ceiling: Some(100.0),
            loader_cpu_seconds: Some(0.01),
            trainer_ceiling: Some(150.0),
            trainer_cpu_seconds: Some(1e-5),
            seconds_per_epoch: Some(11_000.0),
            ..workload()
        };
        let slower = fitted(&run).unwrap();
        assert!(close(slower.seconds(), 11_000.0), "{slower:?}");
        assert!(close(slower.with_workers(2).seconds(), 1e6 / 150.0));
        // The same on a CPU that trains: everything takes longer.
        run.device = "cpu".into();
        let slower = fitted(&run).unwrap();
        assert!(close(slower.seconds(), 11_000.0), "{slower:?}");
        assert!(close(slower.trainer, 150.0 / 1.1), "{slower:?}");
    }

    #[test]
    fn what_a_worker_measured_is_the_wait() {
        let run = Workload {
            read_wait_seconds: Some(0.007),
            between_seconds: Some(0.05),
            ..workload()
        };
        let setting = Setting::of(&run).unwrap();
        assert_eq!(setting.wait, 0.007);
        // 50 images in 0.25 s, and 0.05 s between two steps.
        assert!(close(setting.trainer, 50.0 / 0.3), "{setting:?}");
    }

    #[test]
    fn the_fit_is_what_the_model_misses() {
        let mut run = workload();
        let modelled = Setting::of(&run).unwrap().seconds();
        run.seconds_per_epoch = Some(1.25 * modelled);
        assert!(close(fit(&run).unwrap(), 1.25));
        run.seconds_per_epoch = Some(0.0);
        assert_eq!(fit(&run), None);
    }

    #[test]
    fn more_cores_help_the_parallel_part_only() {
        let parallel = Setting {
            cores: 2,
            trainer_cpu: 0.02,
            trainer: 100.0,
            ..ACCELERATED
        };
        assert!(close(parallel.on_cores(8, true).trainer, 400.0));
        let serial = Setting {
            trainer_cpu: 0.01,
            ..parallel
        };
        assert!(close(serial.on_cores(8, true).trainer, 100.0));
        assert!(close(parallel.on_cores(8, false).trainer, 100.0));
        assert_eq!(parallel.on_cores(8, true).workers, 8);
        let worst = parallel.at_worst_on_cores(8, true);
        assert_eq!((worst.cores, worst.workers, worst.trainer), (5, 5, 100.0));
        let worst = parallel.at_worst_on_cores(1, true);
        assert_eq!((worst.cores, worst.workers, worst.trainer), (1, 1, 50.0));
        assert_eq!(parallel.at_worst_on_cores(1, false).trainer, 100.0);
    }

    #[test]
    fn worker_counts_are_few_and_possible() {
        let counts = |cores, workers, wait| {
            Setting {
                cores,
                workers,
                wait,
                ..ACCELERATED
            }
            .worker_counts()
        };
        assert_eq!(counts(2, 2, 0.0), [1, 4]);
        assert_eq!(counts(2, 1, 0.0), [2]);
        assert_eq!(counts(8, 1024, 0.0), [1, 8, 512]);
        // 100 images/s of 0.2 s each want 20 workers.
        assert_eq!(counts(2, 2, 0.19), [1, 4, 20]);
    }
}
