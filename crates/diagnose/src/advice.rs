//! Predicts what each change would gain, in seconds per epoch, from the run's own measurements.
//!
//! # Measurements
//!
//! At its end a run measures its two halves alone, each in images per second of wall time and in seconds of
//! CPU time per image: the loader delivers L with W workers and costs l; the trainer processes T without
//! waiting for batches and costs t. With C cores that is enough to tell how much of the machine each half
//! needs:
//!
//! - A worker spends l computing and i waiting for storage per image. It measures i itself: the time of reads
//!   without its CPU time. Where the platform does not provide that, i = W/L - l, at most the time of reading.
//! - The trainer keeps p = t T cores busy, at most C: a CPU trainer nearly all of them, the host side of an
//!   accelerator one or less. If other programs used cores while T was measured, the kernel reports how long
//!   the trainer's threads were ready and waited for a core; T is then corrected to what it would have been
//!   without.
//!
//! # Workers that wait and workers that compute
//!
//! With waits, the number n of workers that compute at a time varies by chance, and so W workers deliver less
//! than W/(l + i) and less than C/l: now and then more than C want a core, and then again a core is idle. The
//! workers are a closed network of a station where all wait at once and one that shares c(n) cores among n of
//! them. For such a network the share of the time with n at the cores is known, whatever the distributions of l
//! and i are (Baskett, Chandy, Muntz and Palacios, 1975):
//!
//! ```text
//! p(n) = p(n - 1) (W - n + 1) l / (i c(n)),   sum of p(n) = 1        images per second:  sum of p(n) c(n) / l
//! ```
//!
//! Alone, c(n) = min(n, C); without waits n is always W, and the loader delivers L = min(W, C)/l.
//!
//! That is what chance gives. But workers that wait equally long and share the cores fairly go in step: all begin
//! to read together, want a core together, and are done together. Then W images take i + W l/c(W). Measured
//! speeds are between the two: with s = 2/3 min(1, W l/(C (l + i)))^2 the rate is s times that in step plus 1 - s
//! times that by chance.
//!
//! # How the halves combine
//!
//! The trainer counts as m = max(p, 1) threads: p that never rest, or, if p is below 1, one that rests now and
//! then. Next to n workers at the cores, the kernel gives every runnable thread the same share h = min(1, C/(n +
//! m)) of a core, and the part that a thread does not use goes to the others:
//!
//! ```text
//! the trainer takes m min(p/m, h) cores      loader's rate next to the trainer:  a = mean of min(n, C - m min(p/m, h))/l
//! and leaves the rest to the workers         trainer's rate next to the loader:  b = T mean of min(1, h m/p)
//! ```
//!
//! In the long run both handle the same number of images, and the number of batches between them is bounded.
//! If the loader is faster (a >= b), its buffer is full for a part of the time, in which the trainer runs
//! alone at T. Otherwise the trainer waits for a part of the time, in which the loader runs alone at L. With
//! f the share of the time in which both work:
//!
//! ```text
//! a >= b:   R = f b + (1 - f) T = f a     =>   R = a T / (a + T - b)
//! a <  b:   R = f a + (1 - f) L = f b     =>   R = b L / (b + L - a)
//! ```
//!
//! One formula covers all cases. With spare cores (an accelerator, or few workers) a = L and b = T, and R is
//! the smaller of the two: perfect overlap. If both need all cores (a CPU trainer and a worker per core), it
//! becomes 1/R = (l + t)/C: no overlap, and the costs add up. One worker next to a trainer on many cores is
//! between the two. R never exceeds L or T. More workers than the trainer needs can slow the run down: they
//! take cores from it until the buffer is full.
//!
//! In an epoch of N images in batches of B, the first batch is loaded without training, and the last batch is
//! trained on without loading:
//!
//! ```text
//! seconds(N) = F + (N - B)/R + B/T        F = B/L, and with waits ceil(B/W) (i + l max(1, W/C))
//! ```
//!
//! PyTorch's workers make whole batches, and none of the formulas is used: their epoch is stepped through. Workers are started one
//! after the other and get ready, with the times that were measured; what their first batch took longer than later ones is part of that. Each
//! makes its batch in sixteen pieces, or fewer where there are many workers: for each it waits, then computes. All that compute get the
//! same share of the cores. The trainer takes the batches in their order, each after 1.2 ms in which it receives it. Several threads of a
//! step wait for the slowest of them and keep their cores. Batches differ in length by as much as they did (gamma; the mean of three orders). The end of the workers comes last, as it was measured, and 6.5 ms more for each
//! further worker. Up to 512 batches are stepped through; the rest of an epoch continues at the pace of the second half of these. Cores
//! that other programs took are not there, so what is predicted of a script holds while these take as much.
//!
//! A run without workers shows no starts of workers. The model counts 30 ms for each worker and 10 ms for their end, and 1.7 ns for
//! each byte that it sends. If a step computes in several threads, an image then costs 1.4 times as much.
//!
//! All workers begin to read at the same time, so a first batch that waits comes in rounds of W images, which want
//! a core at the same time. In a short epoch of many workers that lasts: the model has it for the first batch
//! only, and is then too fast. What a trainer does between two steps, next to waiting, counts as its time.
//!
//! # Limits of the model
//!
//! The clock rate of a busy machine, caches that both halves share, and other programs make the run's own epochs longer or shorter
//! than `seconds`. The ratio ([`fit`]) is measured, and made good, so predicting no change gives the run itself. On a CPU that
//! trains, all costs are multiplied by it. Next to an accelerator, only those of the half that set the pace are changed, until the
//! model says what was measured: how long an accelerator takes says nothing about a loader that it waited for, and the other way
//! round. Starts of workers are no part of it. For more than twice or less than half as many workers of a script it is made good in
//! part only: the ratio to the power of 2 divided by the factor between the numbers. If the ratio differs from 1 by more than a
//! factor of 1.5, the model does not describe the run, and nothing is predicted ([`misfit`]). Where other programs had the cores
//! meanwhile, the predictions are those of free cores ([`beside_others`]).
//!
//! A lock that all workers of a script share is not seen: its waits are taken for those that run side by side.
//!
//! The costs of another executor, of shards, of a larger batch or of another precision cannot be derived. They are measured on the
//! run's own images, in alternation with the run's own setting ([`Alternative`]), and multiply l and t. What
//! was not measured is not predicted. After a wait a core and its caches are cold, and an image costs more than
//! where the core never rests. That is measured too, as the alternative of storage without waits; with other
//! numbers of workers the cost of an image follows the share of the time in which the cores are busy. Other machines are
//! predicted as ranges ([`machines()`]).
//!
//! # Batches made by other machines
//!
//! `stokehold serve` makes batches on other machines, of which this one only receives. A byte of a batch costs the server
//! 0.31 ns of CPU time next to the loading, and the trainer's machine 0.36 ns; both were measured over loopback
//! (`bench/serve.py`). So k machines of C' cores make k C'/(l + s + i) images a second at best; at worst l and s
//! count twice, for the reason above. That many connections stand for workers that wait until a server has made an image, and then
//! receive it. The machines are those of the table without an accelerator that cost least together and, at worst, make
//! a tenth more than the trainer takes. A network that carries the batches is taken for granted; the reason says how many bytes
//! a second it has to carry.

mod epoch;
mod machines;
mod model;
mod prices;
mod verdict;
mod words;

use serde::{Deserialize, Serialize};
use stokehold_profile::workload::{Alternative, Change, Workload};

pub use machines::{Machines, OnMachine, machines};
use model::{Setting, WORTH_AT_WORST, fitted, fitted_by};
pub use model::{beside_others, fit, misfit, without_others};
pub use prices::{Gpu, MachinePrice, Prices, StoragePrice, amount};
pub use verdict::verdict;
pub use words::order;
use words::{arguments, flags, title, why};

/// A change of the run, and its predicted effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The change.
    pub change: Change,
    /// The change in words, with the setting that it replaces: `fused instead of per-op`.
    pub title: String,
    /// Predicted wall time of an epoch's training, seconds; the longer end if the prediction is a range.
    pub seconds_per_epoch: f64,
    /// The shorter end of the range; `None` if the prediction uses measurements of the run alone.
    pub seconds_at_best: Option<f64>,
    /// Seconds saved per epoch; negative if the change makes it slower.
    pub gain_seconds: f64,
    /// The same in percent of the present epoch, below 100.
    pub gain_percent: f64,
    /// The cost of an epoch, in [`Prices::currency`]; `None` if the machine's price is not known.
    pub cost_per_epoch: Option<f64>,
    /// What that is less than the present epoch's cost; negative if it costs more.
    pub saved_per_epoch: Option<f64>,
    /// The reason, in a sentence with the numbers.
    pub why: String,
    /// The options of `stokehold train` that make the change, or of a script the arguments of its `DataLoader`; empty if there
    /// are none.
    pub flags: Vec<String>,
}

impl Advice {
    /// Gains below this, in percent of an epoch, are within the variation of two equal runs.
    pub const WORTH_PERCENT: f64 = 3.0;

    /// Whether the gain exceeds that variation.
    pub fn is_worth_it(&self) -> bool {
        self.gain_percent >= Self::WORTH_PERCENT
    }

    /// Whether the change is more machines, which cost money.
    fn is_machine(&self) -> bool {
        matches!(self.change, Change::Servers { .. })
    }
}

/// The effect of each change: first those that gain something on this machine, then faster storage and more machines that
/// gain something, then the rest, each sorted by gain, largest first. Next to other programs they are sorted by CPU time first, least
/// first: what computes less is quicker whatever the others do. Empty if the run has no finished epoch or
/// its ceilings were not measured, and if there is a [`misfit`].
pub fn advise(workload: &Workload, prices: &Prices) -> Vec<Advice> {
    let (Some(measured), Some(now), Some(seconds), None) = (
        Setting::of(workload),
        fitted(workload),
        workload.seconds_per_epoch,
        misfit(workload),
    ) else {
        return Vec::new();
    };
    // Next to other programs the run's own epochs are no measure.
    let shared = beside_others(workload).is_some();
    let seconds = if shared { now.seconds() } else { seconds };
    let price = prices.here().map(|machine| machine.price_per_hour);
    let cost_now = price.map(|price| price * seconds / 3600.0);
    let told = if shared { measured.alone() } else { measured };
    let counts = match workload.script {
        Some(_) => measured.worker_counts_of_script(),
        None => measured.worker_counts(),
    };
    let servers = servers(workload, &now, prices);
    let reasons = changes(workload, [&told, &measured], &counts, servers.as_ref());
    let changed = changes(workload, [&now, &measured], &counts, servers.as_ref());
    // In tenths of the run's.
    let cpu: Vec<(Change, i64)> = changed
        .iter()
        .map(|(change, then)| (change.clone(), (10.0 * then.cpu() / now.cpu()).round() as i64))
        .collect();
    let mut advice: Vec<Advice> = changed
        .into_iter()
        .zip(reasons)
        .map(|((change, then), (_, reason))| {
            let mut predicted = then.seconds();
            let mut at_best = None;
            let mut price = price;
            if let Change::Servers { name, cores, count } = &change {
                let each = prices.machine(name).map(|machine| machine.price_per_hour);
                price = price.zip(each).map(|(here, each)| here + *count as f64 * each);
                let best = now.with_servers(cores * count, 1.0, workload.batch_bytes);
                at_best = Some(predicted.min(best.seconds()));
            }
            let is_at_best = matches!(
                change,
                Change::PinnedMemory | Change::BytesToDevice | Change::Prefetch { .. }
            );
            if is_at_best {
                // At worst nothing is gained.
                at_best = Some(predicted.min(seconds));
                predicted = seconds;
            }
            let cost = price.map(|price| price * predicted / 3600.0);
            Advice {
                title: title(&change, workload),
                why: why(&change, &told, &reason, workload),
                flags: match workload.script {
                    Some(_) => arguments(&change),
                    None => flags(&change),
                },
                seconds_per_epoch: predicted,
                seconds_at_best: at_best,
                gain_seconds: seconds - predicted,
                gain_percent: 100.0 * (seconds - predicted) / seconds,
                cost_per_epoch: cost,
                saved_per_epoch: cost_now.zip(cost).map(|(now, then)| now - then),
                change,
            }
        })
        .collect();
    if workload.script.is_some() {
        few_enough(&mut advice, measured.workers);
    }
    // More machines are no advice where they gain nothing.
    advice.retain(|advice| !matches!(advice.change, Change::Servers { .. }) || advice.is_worth_it());
    beside_a_larger_machine(&mut advice, workload, prices);
    // What an option changes comes before what has to be bought or copied.
    let rank = |advice: &Advice| match (advice.is_worth_it(), &advice.change) {
        (true, Change::Storage) => 1,
        (true, _) if advice.is_machine() => 2,
        (true, _) => 0,
        (false, _) => 3,
    };
    // Next to other programs what needs idle cores may not find them.
    let costs = |advice: &Advice| {
        let of_change = cpu.iter().find(|(change, _)| *change == advice.change);
        of_change
            .filter(|_| shared || now.others > 0.0)
            .map_or(0, |(_, cpu)| *cpu)
    };
    advice.sort_by(|a, b| {
        let gain = b.gain_seconds.total_cmp(&a.gain_seconds);
        rank(a).cmp(&rank(b)).then(costs(a).cmp(&costs(b))).then(gain)
    });
    advice
}

/// Drops a number of workers that is no faster than a smaller one (the run's own counts too). Of persistent workers, keeps only the best
/// number.
fn few_enough(advice: &mut Vec<Advice>, now: u64) {
    let of = |advice: &Advice| match advice.change {
        Change::Workers { workers, persistent } => Some((workers, persistent, advice.seconds_per_epoch)),
        Change::PersistentWorkers => Some((now, true, advice.seconds_per_epoch)),
        _ => None,
    };
    let mut all: Vec<_> = advice.iter().filter_map(of).collect();
    all.extend(
        advice
            .first()
            .map(|first| (now, false, first.seconds_per_epoch + first.gain_seconds)),
    );
    let quickest = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
    advice.retain(|advice| {
        let Some((workers, persistent, seconds)) = of(advice).filter(|one| one.0 != now) else {
            return true;
        };
        let of_fewer = all
            .iter()
            .filter(|other| other.1 == persistent && other.0 < workers);
        let fewer: Vec<f64> = of_fewer.map(|other| other.2).collect();
        seconds * (1.0 + Advice::WORTH_PERCENT / 100.0) <= quickest(&fewer)
    });
    let persistent = advice.iter().filter_map(of).filter(|one| one.1);
    let best = quickest(&persistent.map(|one| one.2).collect::<Vec<_>>());
    advice.retain(|advice| {
        of(advice)
            .is_none_or(|(workers, persistent, seconds)| workers == now || !persistent || seconds <= best)
    });
}

/// If the loader is this much faster than the trainer, waits come from uneven batches.
const PLENTY: f64 = 1.1;

/// The fit applies in full up to this many times the run's workers, and in part beyond it.
const NEAR: f64 = 2.0;

/// The part of a copy's time that bytes in place of numbers of 32 bits save.
const SAVED_BY_BYTES: f64 = 0.75;

/// Shorter waits are left alone.
const WAITED: f64 = 0.03;

/// How much more servers have to make, at worst, than the trainer takes.
const ROOM: f64 = 1.1;

/// More servers than this are no advice.
const MOST_SERVERS: u64 = 64;

/// The machines that would make the batches for the least money; `None` if none could, or nothing is known of the batches.
fn servers(workload: &Workload, now: &Setting, prices: &Prices) -> Option<Change> {
    // A device that makes batches itself takes none.
    if workload.batch_bytes == 0 || workload.executor == "gpu" {
        return None;
    }
    let choices = prices.machines.iter().filter(|machine| machine.gpu.is_none());
    let choices = choices.filter_map(|machine| {
        let rate = now.served(machine.cores, WORTH_AT_WORST, workload.batch_bytes);
        let count = (ROOM * now.trainer / rate).ceil().max(1.0);
        (count <= MOST_SERVERS as f64).then_some((machine, count as u64))
    });
    let cost = |(machine, count): &(&MachinePrice, u64)| *count as f64 * machine.price_per_hour;
    let (machine, count) = choices.min_by(|one, other| {
        let costs = cost(one).total_cmp(&cost(other));
        // Prices are often in proportion to cores: then fewer machines.
        costs.then(one.1.cmp(&other.1))
    })?;
    Some(Change::Servers {
        name: machine.name.clone(),
        cores: machine.cores,
        count,
    })
}

/// Says what servers cost, next to the cheapest other machine that feeds the trainer as well.
fn beside_a_larger_machine(advice: &mut [Advice], workload: &Workload, prices: &Prices) {
    let Some(at) = advice
        .iter()
        .position(|advice| matches!(advice.change, Change::Servers { .. }))
    else {
        return;
    };
    let Change::Servers { name, count, .. } = &advice[at].change else {
        return;
    };
    let each = prices.machine(name).map_or(0.0, |machine| machine.price_per_hour);
    let most = advice[at].seconds_per_epoch * (1.0 + Advice::WORTH_PERCENT / 100.0);
    let gpu = prices.here().and_then(|here| here.gpu.as_deref());
    let all = machines(workload, None, 1, prices).map_or_else(Vec::new, |machines| machines.others);
    let larger = all
        .iter()
        .filter(|machine| machine.seconds_per_epoch[1] <= most && machine.gpu.as_deref() == gpu);
    let larger = larger.filter_map(|machine| prices.machine(&machine.name));
    let cheapest = larger.min_by(|one, other| one.price_per_hour.total_cmp(&other.price_per_hour));
    let an_hour = |price: f64| amount(price, &prices.currency);
    let beside = match (cheapest, prices.here()) {
        (Some(larger), Some(here)) => format!(
            "{} instead of {} feeds it as well for {} more an hour",
            larger.name,
            here.name,
            an_hour(larger.price_per_hour - here.price_per_hour)
        ),
        (Some(larger), None) => format!(
            "{} would feed it as well, for {} an hour in all",
            larger.name,
            an_hour(larger.price_per_hour)
        ),
        (None, Some(_)) => "no machine of the table with the same accelerator feeds it as well".to_owned(),
        (None, None) => {
            "larger machines are compared where `here` in the table of prices names this one".to_owned()
        }
    };
    advice[at].why += &format!("; they cost {} an hour; {beside}", an_hour(*count as f64 * each));
}

/// Every possible change, with the resulting setting. What is offered depends on the setting as it was `measured` alone, so that two
/// calls have the same changes.
fn changes(
    workload: &Workload,
    [now, measured]: [&Setting; 2],
    counts: &[u64],
    servers: Option<&Change>,
) -> Vec<(Change, Setting)> {
    let mut changes = Vec::new();
    // Of several ranks each has its own, and the option counts those of one.
    let several = workload.ranks.as_ref().is_some_and(|ranks| ranks.times.len() > 1);
    let script = workload.script.as_ref();
    let fixed = several || script.is_some_and(|script| script.iterable);
    for &workers in counts.iter().filter(|_| !fixed) {
        let times = workers.max(measured.workers.max(1)) as f64 / workers.min(measured.workers.max(1)) as f64;
        let near = match script {
            Some(_) => fitted_by(workload, (NEAR / times).min(1.0)).filter(|_| now != measured),
            None => None,
        };
        let then = near.as_ref().unwrap_or(now).with_workers(workers);
        let change = |persistent| Change::Workers { workers, persistent };
        changes.push((change(false), then));
        if script.is_some_and(|script| script.restarts > 0) && then.starts() > 0.0 {
            changes.push((change(true), then.with_persistent_workers()));
        }
    }
    for Alternative {
        change,
        loader,
        trainer,
    } in &workload.alternatives
    {
        let usable = |factor: f64| factor.is_finite() && factor > 0.0;
        // That of storage is in the setting.
        if usable(*loader) && usable(*trainer) && *change != Change::Storage {
            let batch_size = match change {
                Change::BatchSize { batch_size } => *batch_size,
                _ => now.batch_size,
            };
            let then = match script {
                Some(_) if matches!(change, Change::Executor { .. }) => now.swapped(*loader),
                _ => now.costing(*loader, *trainer, batch_size),
            };
            changes.push((change.clone(), then));
        }
    }
    if let Some(script) = script {
        // The first epoch pays for its workers in any case.
        if measured.starts() > 0.0 && measured.workers > 0 && script.restarts > 0 {
            changes.push((Change::PersistentWorkers, now.with_persistent_workers()));
        }
        if script.unpinned_transfers && !script.pin_memory {
            let then = now.with_trainer_quicker_by(script.transfer_seconds);
            changes.push((Change::PinnedMemory, then));
        }
        if script.float_transfers && script.transfer_seconds > 0.0 {
            let then = now.with_trainer_quicker_by(SAVED_BY_BYTES * script.transfer_seconds);
            changes.push((Change::BytesToDevice, then));
        }
        let plenty = measured.workers > 0 && measured.loader() > PLENTY * measured.trainer;
        // No reserve hides the start of workers.
        let starts = workload
            .seconds_per_epoch
            .map_or(0.0, |seconds| measured.starts() / seconds);
        let waited = workload.wait_share - starts;
        if plenty && waited > WAITED {
            let batches = 2 * script.prefetch_factor.unwrap_or(2);
            let change = Change::Prefetch { batches };
            changes.push((change, now.without_waiting(waited)));
        }
    }
    if measured.waits_for_storage() && waits_are_reads(workload) {
        changes.push((Change::Storage, now.without_waits()));
    }
    if let Some(Change::Servers { cores, count, .. }) = servers {
        let then = now.with_servers(cores * count, WORTH_AT_WORST, workload.batch_bytes);
        changes.extend(servers.cloned().map(|change| (change, then)));
    }
    changes
}

/// Whether it is known that what workers wait for is storage. A script's may wait for anything.
fn waits_are_reads(workload: &Workload) -> bool {
    workload.script.is_none() || workload.stage_seconds.contains_key("read")
}

#[cfg(test)]
mod tests {
    use stokehold_profile::Recording;
    use stokehold_profile::workload::ScriptLoader;

    use super::*;

    /// A CPU run whose loader and trainer share two cores, 10 s an epoch.
    pub(super) fn workload() -> Workload {
        Workload {
            images: 1000,
            batch_size: 50,
            num_workers: 2,
            cores: 2,
            executor: "per-op".into(),
            device: "cpu".into(),
            seconds_per_epoch: Some(10.0),
            wait_share: 0.4,
            loader_ceiling: Some(200.0),
            trainer_ceiling: Some(200.0),
            loader_cpu_seconds: Some(0.01),
            trainer_cpu_seconds: Some(0.01),
            stage_seconds: [("read", 0.0001), ("decode", 0.006), ("augment", 0.004)]
                .map(|(stage, seconds)| (stage.to_owned(), seconds))
                .into(),
            ..Workload::default()
        }
    }

    /// A script whose loader feeds a device that is never busy for long, and takes this long for an epoch.
    fn script(seconds_per_epoch: f64) -> Workload {
        Workload {
            script: Some(ScriptLoader::default()),
            device: "cuda".to_owned(),
            trainer_ceiling: Some(1e4),
            trainer_cpu_seconds: Some(1e-5),
            read_wait_seconds: Some(0.0),
            seconds_per_epoch: Some(seconds_per_epoch),
            ..workload()
        }
    }

    /// 10 ms of loading an image become 4, next to a trainer that waits for it.
    #[test]
    fn fast_images_are_predicted_of_the_scripts_own_loader() {
        let mut run = script(5.1);
        run.alternatives = vec![Alternative {
            change: Change::FastImages,
            loader: 0.4,
            trainer: 1.0,
        }];
        let advice = advise(&run, &Prices::default());
        let fast = of(&advice, &Change::FastImages);
        assert!((1.9..2.2).contains(&fast.seconds_per_epoch), "{fast:?}");
        assert_eq!(fast.flags, ["import stokehold.pillow, stokehold.decoders"]);
        assert!(
            fast.why.contains("4 ms of CPU time instead of 10 ms"),
            "{}",
            fast.why
        );
        assert_eq!(fast.title, "fast images (the same pixels)");
    }

    /// Two cores load 1000 images of 10 ms in 5 s, and in 10 s where another program has one of them.
    #[test]
    fn a_script_is_told_what_it_would_take_without_other_programs() {
        let mut run = script(10.1);
        run.others_cores = Some(1.0);
        let seconds = without_others(&run).unwrap();
        assert!((4.8..5.4).contains(&seconds), "{seconds}");
        run.others_cores = Some(0.1);
        assert_eq!(without_others(&run), None);
    }

    fn of<'a>(advice: &'a [Advice], change: &Change) -> &'a Advice {
        advice.iter().find(|advice| advice.change == *change).unwrap()
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let known = workload();
        assert!(!advise(&known, &Prices::built_in()).is_empty());
        let none = Workload {
            seconds_per_epoch: None,
            ..known.clone()
        };
        assert_eq!(advise(&none, &Prices::built_in()), []);
        for forget in [
            |workload: &mut Workload| workload.loader_ceiling = None,
            |workload: &mut Workload| workload.trainer_ceiling = None,
            |workload: &mut Workload| workload.loader_cpu_seconds = None,
            |workload: &mut Workload| workload.trainer_cpu_seconds = Some(0.0),
            |workload: &mut Workload| workload.cores = 0,
            |workload: &mut Workload| workload.images = 0,
            |workload: &mut Workload| workload.seconds_per_epoch = Some(f64::NAN),
        ] {
            let mut less = known.clone();
            forget(&mut less);
            assert_eq!(advise(&less, &Prices::built_in()), [], "{less:?}");
        }
    }

    #[test]
    fn the_largest_gain_comes_first_and_losses_last() {
        let mut workload = workload();
        let alternative = |executor: &str, loader| Alternative {
            change: Change::Executor {
                executor: executor.into(),
            },
            loader,
            trainer: 1.0,
        };
        workload.alternatives = vec![alternative("slower", 2.0), alternative("fused", 0.1)];
        let advice = advise(&workload, &Prices::default());
        assert!(
            advice
                .windows(2)
                .all(|pair| pair[0].gain_seconds >= pair[1].gain_seconds)
        );
        assert!(advice.iter().all(|advice| advice.seconds_at_best.is_none()));
        assert_eq!(advice[0].title, "fused instead of per-op");
        assert_eq!(advice[0].flags, ["--executor", "fused"]);
        assert!(advice[0].is_worth_it());
        let last = advice.last().unwrap();
        assert_eq!(last.title, "slower instead of per-op");
        assert!(last.gain_percent < 0.0 && !last.is_worth_it());
        // Shared cores: an image's 20 ms of CPU time become 11, and the epoch as much shorter.
        assert!((advice[0].seconds_per_epoch - 5.5).abs() < 0.2, "{:?}", advice[0]);
    }

    #[test]
    fn a_factor_that_is_no_factor_is_left_out() {
        let mut workload = workload();
        workload.alternatives = [f64::NAN, 0.0, -1.0, f64::INFINITY]
            .map(|loader| Alternative {
                change: Change::Shards,
                loader,
                trainer: 1.0,
            })
            .into();
        let advice = advise(&workload, &Prices::default());
        assert!(advice.iter().all(|advice| advice.change != Change::Shards));
    }

    #[test]
    fn storage_is_blamed_only_where_workers_wait() {
        let quick = advise(&workload(), &Prices::default());
        assert!(quick.iter().all(|advice| advice.change != Change::Storage));
        // Two workers deliver 40 images/s: 50 ms an image, of which 10 are computing.
        let mut slow = Workload {
            loader_ceiling: Some(40.0),
            seconds_per_epoch: Some(25.5),
            ..workload()
        };
        slow.stage_seconds.insert("read".into(), 0.041);
        let advice = advise(&slow, &Prices::default());
        let storage = of(&advice, &Change::Storage);
        assert!(storage.gain_percent > 50.0, "{storage:?}");
        assert!(storage.why.contains("waits 40 ms"), "{}", storage.why);
        // Many workers hide the waits.
        assert!(
            advice.iter().any(
                |advice| matches!(advice.change, Change::Workers { workers, .. } if workers > 4)
                    && advice.gain_percent > 50.0
            ),
            "{advice:?}"
        );
    }

    /// A script of 20 images in batches of 4, whose two workers take a second to start in every epoch.
    pub(super) fn starting() -> Workload {
        Workload {
            images: 20,
            batch_size: 4,
            num_workers: 2,
            seconds_per_epoch: Some(1.17),
            wait_share: 0.9,
            loader_ceiling: Some(198.0),
            loader_cpu_seconds: Some(1e-4),
            read_wait_seconds: Some(0.01),
            trainer_ceiling: Some(190.0),
            trainer_cpu_seconds: Some(1e-4),
            stage_seconds: [("load".to_owned(), 1e-4), ("wait".to_owned(), 0.01)].into(),
            script: Some(ScriptLoader {
                start_seconds: 0.02,
                worker_start_seconds: 1.0,
                restarts: 3,
                ranks: 1,
                ..ScriptLoader::default()
            }),
            ..workload()
        }
    }

    #[test]
    fn persistent_workers_save_the_start_of_all_epochs_but_the_first() {
        let run = starting();
        let advice = advise(&run, &Prices::default());
        let kept = of(&advice, &Change::PersistentWorkers);
        assert!((kept.seconds_per_epoch - 0.16).abs() < 0.002, "{kept:?}");
        let said = verdict(&Recording::default(), &[], Some(&run), &advice);
        assert!(
            said.contains("the start of its 2 workers, 1.0 s in every epoch, is the limit"),
            "{said}"
        );
        let ahead = |advice: &Advice| matches!(advice.change, Change::Prefetch { .. });
        assert!(!advice.iter().any(ahead), "{advice:?}");
        // With a number: the best of them only.
        let both: Vec<&Advice> = advice
            .iter()
            .filter(|advice| matches!(advice.change, Change::Workers { persistent: true, .. }))
            .collect();
        assert!(both.len() <= 1, "{both:?}");
        for one in both {
            assert!(one.seconds_per_epoch < kept.seconds_per_epoch, "{one:?}");
            assert_eq!(one.flags[1], "persistent_workers=True");
        }
        // One epoch, or a loader that is made again for each.
        let mut once = run;
        once.script.as_mut().unwrap().restarts = 0;
        let advice = advise(&once, &Prices::default());
        let persists = |advice: &Advice| match advice.change {
            Change::PersistentWorkers => true,
            Change::Workers { persistent, .. } => persistent,
            _ => false,
        };
        assert!(!advice.iter().any(persists), "{advice:?}");
    }

    /// No one knows what the workers wait for: more of them help, and faster storage is not promised.
    #[test]
    fn waits_without_reads_are_no_promise_of_storage() {
        let mut run = starting();
        run.script.as_mut().unwrap().worker_start_seconds = 0.01;
        run.images = 160;
        run.trainer_ceiling = Some(2000.0);
        run.seconds_per_epoch = Some(0.85);
        run.wait_share = 0.6;
        let advised = advise(&run, &Prices::default());
        assert!(
            advised.iter().all(|advice| advice.change != Change::Storage),
            "{advised:?}"
        );
        assert!(
            matches!(advised[0].change, Change::Workers { workers, .. } if workers > 2),
            "{advised:?}"
        );
        let said = |run: &Workload| {
            verdict(
                &Recording::default(),
                &[],
                Some(run),
                &advise(run, &Prices::default()),
            )
        };
        assert!(
            said(&run)
                .contains("waiting in 2 workers is the limit; the recording does not show what for: storage, a network, or"),
            "{}",
            said(&run)
        );
        // Bytes were read: it is storage, and options still come before it.
        let wait = run.stage_seconds.remove("wait").unwrap();
        run.stage_seconds.insert("read".to_owned(), wait);
        let advised = advise(&run, &Prices::default());
        assert!(
            advised.iter().any(|advice| advice.change == Change::Storage),
            "{advised:?}"
        );
        assert!(matches!(advised[0].change, Change::Workers { .. }), "{advised:?}");
        assert!(
            said(&run).contains("reading with 2 workers is the limit"),
            "{}",
            said(&run)
        );
    }

    /// Over scripts of many kinds: no number of workers is advised that a smaller one equals, and none is predicted slower than what it
    /// is combined from.
    #[test]
    fn no_worker_is_advised_for_nothing() {
        for (cpu, wait, trainer, workers, fit) in [
            (1e-4, 0.02, 5000.0, 1, 1.0),
            (1e-4, 0.02, 200.0, 4, 1.2),
            (0.01, 0.0, 300.0, 2, 0.8),
            (0.002, 0.005, 400.0, 0, 1.0),
            (0.0005, 0.05, 1000.0, 16, 1.4),
        ] {
            let mut run = Workload {
                images: 2000,
                batch_size: 16,
                cores: 4,
                num_workers: workers,
                loader_ceiling: Some(100.0),
                loader_cpu_seconds: Some(cpu),
                read_wait_seconds: Some(wait),
                trainer_ceiling: Some(trainer),
                ..starting()
            };
            run.seconds_per_epoch = Some(fit * Setting::of(&run).unwrap().seconds());
            let advised = advise(&run, &Prices::default());
            let mut all: Vec<(u64, f64)> = advised
                .iter()
                .filter_map(|advice| match advice.change {
                    Change::Workers {
                        workers,
                        persistent: false,
                    } => Some((workers, advice.seconds_per_epoch)),
                    _ => None,
                })
                .collect();
            all.sort_by_key(|one| one.0);
            assert!(all.windows(2).all(|pair| pair[1].1 < 0.98 * pair[0].1), "{all:?}");
            let best = advised
                .iter()
                .map(|advice| advice.seconds_per_epoch)
                .fold(f64::INFINITY, f64::min);
            let first = advised.first().unwrap();
            assert!(
                !first.is_worth_it() || first.seconds_per_epoch <= best * 1.001,
                "{advised:?}"
            );
        }
    }

    /// A table with one machine of 32 cores.
    fn large() -> Prices {
        let machine = MachinePrice {
            name: "large".into(),
            cores: 32,
            gpu: None,
            gpus: 1,
            price_per_hour: 2.0,
            spot_per_hour: None,
        };
        Prices {
            machines: vec![machine],
            ..Prices::default()
        }
    }

    #[test]
    fn what_is_free_stands_before_what_costs_money() {
        let mut workload = workload();
        workload.batch_bytes = 150_528;
        workload.alternatives = vec![Alternative {
            change: Change::Executor {
                executor: "fused".into(),
            },
            loader: 0.8,
            trainer: 1.0,
        }];
        let advice = advise(&workload, &large());
        let machine = advice.iter().position(Advice::is_machine).unwrap();
        assert!(
            advice[machine].gain_seconds > advice[0].gain_seconds,
            "{advice:?}"
        );
        assert_eq!(
            (advice[0].title.as_str(), machine),
            ("fused instead of per-op", 1)
        );
        assert!(advice[0].is_worth_it() && advice[machine].is_worth_it());
        assert!(advice[2..].iter().all(|advice| !advice.is_worth_it()));
    }

    /// An accelerator of 1000 images/s next to two cores that load 200, and a table of machines.
    #[test]
    fn servers_are_as_many_as_feed_the_trainer_for_the_least_money() {
        let machine = |name: &str, cores, gpu: Option<&str>, price_per_hour| MachinePrice {
            name: name.into(),
            cores,
            gpu: gpu.map(str::to_owned),
            gpus: 1,
            price_per_hour,
            spot_per_hour: None,
        };
        let mut prices = Prices {
            currency: "USD".into(),
            here: Some("gpu2".into()),
            machines: vec![
                machine("gpu2", 2, Some("T4"), 1.0),
                machine("gpu8", 8, Some("T4"), 2.0),
                machine("c4", 4, None, 0.2),
                machine("c8", 8, None, 0.4),
            ],
            ..Prices::default()
        };
        let run = Workload {
            device: "cuda".into(),
            executor: "fused".into(),
            images: 10_000,
            loader_ceiling: Some(200.0),
            trainer_ceiling: Some(1000.0),
            trainer_cpu_seconds: Some(1e-4),
            seconds_per_epoch: Some(51.0),
            batch_bytes: 150_528,
            ..workload()
        };
        let servers = |run: &Workload, prices: &Prices| {
            let all = advise(run, prices);
            all.into_iter()
                .find(|advice| matches!(advice.change, Change::Servers { .. }))
        };
        // 1100 images/s: eight cores, worth four, make 398, so three machines; six of the smaller ones cost as much.
        let found = servers(&run, &prices).unwrap();
        let three = Change::Servers {
            name: "c8".into(),
            cores: 8,
            count: 3,
        };
        assert_eq!(found.change, three);
        assert_eq!(found.title, "batches made by 3 c8 (8 cores each) instead of here");
        assert!(found.is_worth_it() && found.is_machine() && found.flags.is_empty());
        assert!((10.0..11.0).contains(&found.seconds_per_epoch), "{found:?}");
        assert!(found.seconds_at_best.unwrap() <= found.seconds_per_epoch);
        let cost = found.cost_per_epoch.unwrap();
        assert!((cost - 2.2 * found.seconds_per_epoch / 3600.0).abs() < 1e-12);
        assert!(
            found.why.contains("and need 1.2 Gbit/s of network"),
            "{}",
            found.why
        );
        assert!(
            found
                .why
                .ends_with("they cost 1.20 USD an hour; no machine of the table with the same accelerator feeds it as well"),
            "{}",
            found.why
        );
        // 2 and 15 of 30 further cores.
        prices.machines.push(machine("gpu32", 32, Some("T4"), 6.0));
        let found = servers(&run, &prices).unwrap();
        assert!(
            found
                .why
                .ends_with("gpu32 instead of gpu2 feeds it as well for 5.00 USD more an hour"),
            "{}",
            found.why
        );
        // Nothing is known of its batches, a device makes them, or no table has machines for it.
        let unknown = Workload {
            batch_bytes: 0,
            ..run.clone()
        };
        let on_device = Workload {
            executor: "gpu".into(),
            ..run.clone()
        };
        assert!(servers(&unknown, &prices).is_none() && servers(&on_device, &prices).is_none());
        assert!(servers(&run, &Prices::default()).is_none());
        // A loader that is fast enough needs no one.
        let fed = Workload {
            loader_ceiling: Some(1e5),
            loader_cpu_seconds: Some(2e-5),
            seconds_per_epoch: Some(10.1),
            ..run
        };
        assert!(servers(&fed, &prices).is_none());
    }

    #[test]
    fn nothing_is_predicted_where_the_model_misses_the_run() {
        let took = |seconds| Workload {
            seconds_per_epoch: Some(seconds),
            others_cores: Some(1.25),
            ..workload()
        };
        // The model says about 10 s.
        for seconds in [7.5, 10.0, 14.0] {
            assert_eq!(misfit(&took(seconds)), None);
            assert!(!advise(&took(seconds), &Prices::built_in()).is_empty());
        }
        // The cores that others left explain no more than four times as long.
        assert_eq!(advise(&took(100.0), &Prices::built_in()), []);
        let why = misfit(&took(100.0)).unwrap();
        assert!(
            why.ends_with("add up to, and other programs took 1.2 of 2 cores meanwhile"),
            "{why}"
        );
        // Others cannot make it quicker.
        assert_eq!(advise(&took(5.0), &Prices::built_in()), []);
        let alone = Workload {
            others_cores: Some(0.1),
            ..took(30.0)
        };
        assert_eq!(advise(&alone, &Prices::built_in()), []);
        let why = misfit(&alone).unwrap();
        assert!(
            why.ends_with("3.0 times as long as the measured costs of its loader and its trainer add up to"),
            "{why}"
        );
    }

    /// What the run would take on free cores is known from its CPU time, and a change that needs less of it stands before one that
    /// needs idle cores.
    #[test]
    fn beside_other_programs_free_cores_are_predicted() {
        let run = Workload {
            seconds_per_epoch: Some(30.0),
            others_cores: Some(1.25),
            num_workers: 1,
            loader_ceiling: Some(50.0),
            trainer_ceiling: Some(400.0),
            trainer_cpu_seconds: Some(1e-4),
            loader_cpu_seconds: Some(0.02),
            device: "emulated".into(),
            alternatives: vec![Alternative {
                change: Change::Shards,
                loader: 0.9,
                trainer: 1.0,
            }],
            ..workload()
        };
        let undisturbed = Workload {
            seconds_per_epoch: Some(20.2),
            others_cores: Some(0.0),
            ..run.clone()
        };
        let shared = Workload {
            seconds_per_epoch: Some(60.0),
            ..run
        };
        assert_eq!(misfit(&shared), None);
        let why = beside_others(&shared).unwrap();
        assert!(
            why.contains("other programs took 1.2 of 2 cores meanwhile")
                && why.contains("`stokehold advise --try`"),
            "{why}"
        );
        let (free, beside) = (
            advise(&undisturbed, &Prices::default()),
            advise(&shared, &Prices::default()),
        );
        let two = |workers| Change::Workers {
            workers,
            persistent: false,
        };
        assert_eq!((&free[0].change, &beside[0].change), (&two(2), &Change::Shards));
        for one in &beside {
            let other = of(&free, &one.change);
            assert!(
                (one.seconds_per_epoch / other.seconds_per_epoch - 1.0).abs() < 0.03,
                "{one:?} {other:?}"
            );
            assert!(
                (one.gain_percent - other.gain_percent).abs() < 3.0,
                "{one:?} {other:?}"
            );
        }
    }
}
