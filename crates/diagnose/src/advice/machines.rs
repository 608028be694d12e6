//! What a whole training takes and costs on the machine of a run and on others.
//!
//! # What is extrapolated
//!
//! - **Cores.** At best the loader's CPU time per image stays, and a trainer on the CPU follows Amdahl's law with the serial part
//!   that its wall time and its CPU time imply. At worst that trainer is no faster on more cores, and each further core is worth half
//!   of one here, because the cores that an operating system counts are often threads, two of which share a core.
//! - **Workers** are as many there as make its epochs shortest, on as many of its cores as do so.
//! - **Another GPU** changes the speed of the trainer alone. Two figures say how many times as fast it is: the ratio of the published
//!   training speeds of ResNet-50, and that of the bandwidths of their memory, on which most of a convolutional network's time goes.
//!   The prediction is the range between the two. Where one of the speeds is not known, it is the bandwidths' ratio, divided and
//!   multiplied by 1.4 ([`SPREAD`]). Whether a network fits a GPU's memory is not looked at.
//! - **Spot machines** take the same time, without the work that an interruption loses.
//!
//! Validation, start and checkpoints are in neither time nor cost: an epoch is that of the training.

use std::collections::BTreeSet;

use serde::Serialize;
use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_page::words::duration;
use stokehold_profile::Machine;
use stokehold_profile::workload::Workload;

use super::model::{Setting, beside_others, fitted, misfit};
use super::prices::{MachinePrice, Prices, amount};

/// A training on the machine of its run, and on the machines of the table of prices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machines {
    /// Epochs of the whole training.
    pub epochs: u64,
    /// The currency of all costs.
    pub currency: String,
    /// Where the prices are from, and their date.
    pub prices: String,
    /// The machine of the run, as measured.
    pub here: OnMachine,
    /// The others, the cheapest whole training on demand first; of two within 3 % of each other the faster one.
    pub others: Vec<OnMachine>,
    /// What is not compared, and what to do.
    pub notes: Vec<String>,
}

/// A whole training on one machine. Of pairs the first is the best and the second the worst that is expected; where
/// they are equal, nothing is extrapolated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnMachine {
    /// Its name in the table; of the run's machine `this machine` where it is in no table.
    pub name: String,
    /// Its cores.
    pub cores: u64,
    /// Its GPU, if it has one.
    pub gpu: Option<String>,
    /// An hour of it on demand; `None` if its price is not known.
    pub price_per_hour: Option<f64>,
    /// An hour of it as a spot machine.
    pub spot_per_hour: Option<f64>,
    /// Wall time of an epoch's training, seconds.
    pub seconds_per_epoch: [f64; 2],
    /// Cost of the whole training on demand.
    pub cost: Option<[f64; 2]>,
    /// Cost of the whole training on spot machines that are not interrupted.
    pub spot_cost: Option<[f64; 2]>,
    /// What it costs less than here on demand; negative if it costs more.
    pub saved: Option<[f64; 2]>,
}

/// Costs within this share of each other are the same.
const SAME: f64 = 0.03;

/// By how much GPUs differ in training speed for the bandwidth of their memory. Of the published speeds in the built-in table A10 has 1.06
/// images/s for a GB/s, the most, and H100 0.78, the least.
const SPREAD: f64 = 1.4;

/// The whole training on the run's own machine and on others. `None` where nothing is predicted of the run.
pub fn machines(workload: &Workload, on: Option<&Machine>, epochs: u64, prices: &Prices) -> Option<Machines> {
    let now = fitted(workload).filter(|_| misfit(workload).or(beside_others(workload)).is_none())?;
    let seconds = workload.seconds_per_epoch?;
    let priced = prices.here();
    let recorded = on.and_then(|machine| machine.gpu.as_deref());
    let computes_here = workload.device == "cpu";
    let here_gpu = priced.and_then(|here| here.gpu.as_deref()).or(recorded);
    let of = |name: &str, cores: u64, gpu: Option<&str>, priced: Option<&MachinePrice>, each: [f64; 2]| {
        let cost = |price: f64| each.map(|seconds| price * epochs as f64 * seconds / 3600.0);
        let price_per_hour = priced.map(|priced| priced.price_per_hour);
        let spot_per_hour = priced.and_then(|priced| priced.spot_per_hour);
        OnMachine {
            name: name.to_owned(),
            cores,
            gpu: gpu.map(str::to_owned),
            price_per_hour,
            spot_per_hour,
            seconds_per_epoch: each,
            cost: price_per_hour.map(cost),
            spot_cost: spot_per_hour.map(cost),
            saved: None,
        }
    };
    let instance = on.and_then(|machine| machine.instance.as_deref());
    let name = priced.map(|here| here.name.as_str()).or(instance);
    let here = of(
        name.unwrap_or("this machine"),
        workload.cores,
        here_gpu,
        priced,
        [seconds; 2],
    );
    let mut notes = Vec::new();
    match (priced, instance) {
        (None, Some(instance)) => notes.push(format!(
            "the table of prices has no {instance}; add it to a copy, and give that with --prices"
        )),
        (None, None) => notes.push(
            "the price of this machine is not known: name it as `here` in a copy of the table of prices, and give that with --prices"
                .to_owned(),
        ),
        (Some(priced), _) if priced.cores != workload.cores => notes.push(format!(
            "{} has {} by the table of prices, and the run could use {}",
            priced.name,
            plural(priced.cores as usize, "core"),
            workload.cores
        )),
        _ => {}
    }
    if let Some(priced) = priced.filter(|priced| priced.gpus > 1 && !computes_here) {
        notes.push(format!(
            "{} has {} GPUs, and its price is that of all of them",
            priced.name, priced.gpus
        ));
    }
    let several = workload.ranks.as_ref().is_some_and(|ranks| ranks.times.len() > 1)
        || workload.script.as_ref().is_some_and(|script| script.ranks > 1);
    let mut others = Vec::new();
    if several {
        notes.push(
            "other machines are not compared for a run of several ranks; `stokehold scale` predicts those"
                .to_owned(),
        );
    } else if !computes_here && here_gpu.is_none() {
        notes.push(format!(
            "other machines are not compared: which GPU {} is was not recorded; name this machine as `here` in a copy of the table of \
             prices, and give that with --prices",
            workload.device
        ));
    } else {
        let mut unknown = Vec::new();
        // The run has one GPU; what the others of a machine would do is for `stokehold scale`.
        let elsewhere = |machine: &&MachinePrice| {
            machine.gpus == 1 && priced.is_none_or(|here| here.name != machine.name)
        };
        for machine in prices.machines.iter().filter(elsewhere) {
            let ratio = match (computes_here, here_gpu, machine.gpu.as_deref()) {
                (true, _, None) => [1.0; 2],
                (false, Some(here), Some(there)) => match prices.gpu_ratio(here, there) {
                    Some(ratio) => ratio,
                    None => {
                        unknown.push(there);
                        continue;
                    }
                },
                _ => continue,
            };
            let each = on_machine_or_less(&now, prices, machine.cores, ratio, computes_here);
            let gpu = machine.gpu.as_deref();
            others.push(of(&machine.name, machine.cores, gpu, Some(machine), each));
        }
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            notes.push(format!(
                "how fast {} is beside {} is not known; a [[gpu]] for each in a copy of the table of prices says it",
                unknown.join(", "),
                here_gpu.unwrap_or("this GPU")
            ));
        }
    }
    for other in &mut others {
        other.saved = here
            .cost
            .zip(other.cost)
            .map(|(here, there)| [here[0] - there[0], here[1] - there[1]]);
    }
    sort(&mut others);
    Some(Machines {
        epochs,
        currency: prices.currency.clone(),
        prices: prices.origin(),
        here,
        others,
        notes,
    })
}

/// By cost; then, from the cheapest on, the faster ones of those that cost the same come first.
fn sort(others: &mut [OnMachine]) {
    let cost = |other: &OnMachine| other.cost.map_or(f64::INFINITY, |cost| cost[1]);
    others.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    let mut rest = others;
    while let Some(first) = rest.first() {
        let most = cost(first) * (1.0 + SAME);
        let same = rest.iter().take_while(|other| cost(other) <= most).count();
        let (same, after) = rest.split_at_mut(same.max(1));
        same.sort_by(|one, other| one.seconds_per_epoch[1].total_cmp(&other.seconds_per_epoch[1]));
        rest = after;
    }
}

/// As [`on_machine`], with as many of a machine's cores as make the epoch shortest: it can do what a smaller one does.
fn on_machine_or_less(
    now: &Setting,
    prices: &Prices,
    cores: u64,
    ratio: [f64; 2],
    computes_here: bool,
) -> [f64; 2] {
    let machines = prices.machines.iter().map(|machine| machine.cores);
    let smaller: BTreeSet<u64> = machines.chain([cores]).filter(|&some| some <= cores).collect();
    let each = smaller.into_iter();
    let each = each.map(|cores| on_machine(now, cores, ratio, computes_here));
    each.fold([f64::INFINITY; 2], |known, found| {
        [known[0].min(found[0]), known[1].min(found[1])]
    })
}

/// Seconds of an epoch at best and at worst, with `cores` cores and a trainer `ratio` times as fast.
fn on_machine(now: &Setting, cores: u64, ratio: [f64; 2], computes_here: bool) -> [f64; 2] {
    let quickest = |setting: Setting, by: f64| {
        let setting = Setting {
            trainer: setting.trainer * by,
            ..setting
        };
        let others = match setting.whole {
            true => setting.worker_counts_of_script(),
            false => setting.worker_counts(),
        };
        let others = others.into_iter();
        let each = others.map(|workers| setting.with_workers(workers).seconds());
        // With as many as here, too, where those of other numbers are not used.
        let as_here = match now.workers {
            0 => setting,
            workers => setting.with_workers(workers),
        };
        each.chain([setting.seconds(), as_here.seconds()])
            .fold(f64::INFINITY, f64::min)
    };
    let best = quickest(now.on_cores(cores, computes_here), ratio[1]);
    let worst = quickest(now.at_worst_on_cores(cores, computes_here), ratio[0]);
    [best.min(worst), best.max(worst)]
}

impl Prices {
    /// How many times as fast as the one GPU the other one trains, at worst and at best; `None` if the table has not both.
    fn gpu_ratio(&self, here: &str, there: &str) -> Option<[f64; 2]> {
        if here == there {
            return Some([1.0; 2]);
        }
        let (here, there) = (self.gpu(here)?, self.gpu(there)?);
        let memory = there.bandwidth / here.bandwidth;
        Some(match there.images_per_second.zip(here.images_per_second) {
            Some((there, here)) => [memory.min(there / here), memory.max(there / here)],
            None => [memory / SPREAD, memory * SPREAD],
        })
    }
}

impl Machines {
    /// What stands above the table.
    pub fn heading(&self) -> String {
        let what = match self.epochs {
            1 => "One epoch".to_owned(),
            epochs => format!("All {epochs} epochs"),
        };
        format!("{what} of training, without validation, here and on other machines, the cheapest first")
    }

    /// As a table, the run's own machine first.
    pub fn table(&self) -> Table {
        let time = format!("{} of training", plural(self.epochs as usize, "epoch"));
        let head = [
            "machine",
            "cores",
            "GPU",
            "s/epoch",
            &time,
            "on demand",
            "on spot",
            "saves",
        ];
        let mut table = Table::new(&head, &[0, 2]);
        let money = |cost: Option<[f64; 2]>| {
            cost.map_or("-".to_owned(), |cost| {
                let [one, other] = cost.map(|cost| amount(cost, &self.currency));
                let number = one.strip_suffix(&self.currency).unwrap_or(&one).trim_end();
                match one == other {
                    true => one,
                    false => format!("{number} to {other}"),
                }
            })
        };
        let range = |[best, worst]: [f64; 2], text: fn(f64) -> String| match (text(best), text(worst)) {
            (best, worst) if best == worst => best,
            (best, worst) => format!("{best} to {worst}"),
        };
        for (at, machine) in std::iter::once(&self.here).chain(&self.others).enumerate() {
            table.row([
                match at {
                    0 => format!("{}, as it is", machine.name),
                    _ => machine.name.clone(),
                },
                machine.cores.to_string(),
                machine.gpu.clone().unwrap_or_else(|| "-".to_owned()),
                range(machine.seconds_per_epoch, |seconds| format!("{seconds:.2}")),
                range(
                    machine
                        .seconds_per_epoch
                        .map(|seconds| seconds * self.epochs as f64),
                    duration,
                ),
                money(machine.cost),
                money(machine.spot_cost),
                money(machine.saved),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use stokehold_profile::workload::ScriptLoader;

    use super::super::prices::Gpu;
    use super::super::tests::workload;
    use super::*;

    fn machine(name: &str, cores: u64, gpu: Option<&str>, price_per_hour: f64) -> MachinePrice {
        MachinePrice {
            name: name.into(),
            cores,
            gpu: gpu.map(str::to_owned),
            gpus: 1,
            price_per_hour,
            spot_per_hour: (gpu.is_some()).then_some(0.25 * price_per_hour),
        }
    }

    fn gpu(name: &str, bandwidth: f64, images_per_second: Option<f64>) -> Gpu {
        Gpu {
            name: name.into(),
            bandwidth,
            images_per_second,
        }
    }

    fn prices() -> Prices {
        Prices {
            currency: "USD".into(),
            here: Some("two".into()),
            machines: vec![
                machine("two", 2, None, 1.0),
                machine("four", 4, None, 2.0),
                machine("small", 2, Some("Tesla T4"), 1.0),
                machine("large", 8, Some("Tesla T4"), 3.0),
                machine("quick", 2, Some("NVIDIA A100-SXM4-40GB"), 2.0),
                machine("other", 2, Some("Unheard Of 9000"), 2.0),
                MachinePrice {
                    gpus: 8,
                    ..machine("eight", 64, Some("Tesla T4"), 0.5)
                },
            ],
            gpus: vec![
                gpu("T4", 320.0, Some(400.0)),
                gpu("A100", 1600.0, Some(2400.0)),
                gpu("L4", 320.0, None),
            ],
            ..Prices::default()
        }
    }

    #[test]
    fn a_cpu_run_is_compared_with_cpu_machines() {
        let found = machines(&workload(), None, 30, &prices()).unwrap();
        assert_eq!((found.here.name.as_str(), found.notes.len()), ("two", 0));
        assert_eq!(found.here.seconds_per_epoch, [10.0; 2]);
        let cost = found.here.cost.unwrap()[0];
        assert!((cost - 300.0 / 3600.0).abs() < 1e-12);
        let [four] = &found.others[..] else {
            panic!("only other CPU machines: {found:?}")
        };
        // Everything parallel: half the time, at twice the price. Or else the trainer's 5 s of two cores stay, and the loader has
        // the third core that four are worth at least.
        let [best, worst] = four.seconds_per_epoch;
        assert!(
            (best - 5.0).abs() < 0.3 && (6.0..8.0).contains(&worst),
            "{four:?}"
        );
        assert!((four.cost.unwrap()[1] - 2.0 * 30.0 * worst / 3600.0).abs() < 1e-12);
        assert!((four.saved.unwrap()[1] - (cost - four.cost.unwrap()[1])).abs() < 1e-12);
        assert_eq!((four.spot_cost, four.gpu.as_deref()), (None, None));
    }

    /// A trainer that has the cores to itself might be faster on more of them, and might not: nothing says so.
    #[test]
    fn a_larger_machine_is_no_faster_at_worst_where_the_loader_costs_nothing() {
        let fed = Workload {
            loader_ceiling: Some(1e5),
            loader_cpu_seconds: Some(2e-5),
            trainer_ceiling: Some(100.0),
            trainer_cpu_seconds: Some(0.02),
            ..workload()
        };
        let found = machines(&fed, None, 1, &prices()).unwrap();
        let [best, worst] = found.others[0].seconds_per_epoch;
        assert!(best < 6.0 && worst > 9.9, "{found:?}");
    }

    /// Starting a worker takes a script a while, and an epoch is short.
    #[test]
    fn more_cores_are_never_slower() {
        let mut prices = prices();
        prices.machines = [2, 4, 8, 16, 32, 64]
            .map(|cores| machine("c", cores, None, 1.0))
            .into();
        prices.machines[0].name = "two".into();
        for start in [0.0, 0.03, 0.3] {
            for device in ["cpu", "cuda"] {
                let run = Workload {
                    script: Some(ScriptLoader {
                        start_seconds: start,
                        worker_start_seconds: start,
                        ..ScriptLoader::default()
                    }),
                    images: 300,
                    seconds_per_epoch: Some(3.0 + start),
                    device: device.into(),
                    ..workload()
                };
                let mut prices = prices.clone();
                if device == "cuda" {
                    prices
                        .machines
                        .iter_mut()
                        .for_each(|machine| machine.gpu = Some("T4".into()));
                }
                let mut found = machines(&run, None, 1, &prices).unwrap().others;
                assert_eq!(found.len(), 5, "{found:?}");
                found.sort_by_key(|machine| machine.cores);
                let seconds: Vec<[f64; 2]> = found.iter().map(|machine| machine.seconds_per_epoch).collect();
                let is_no_slower = |pair: &[[f64; 2]]| pair[1][0] <= pair[0][0] && pair[1][1] <= pair[0][1];
                assert!(
                    seconds.windows(2).all(is_no_slower),
                    "{start} {device}: {seconds:?}"
                );
            }
        }
    }

    /// A GPU run whose trainer sets the pace: 1000 images/s.
    fn on_gpu() -> Workload {
        Workload {
            device: "cuda".into(),
            images: 100_000,
            loader_ceiling: Some(1e5),
            loader_cpu_seconds: Some(2e-5),
            trainer_ceiling: Some(1000.0),
            trainer_cpu_seconds: Some(1e-4),
            seconds_per_epoch: Some(100.0),
            ..workload()
        }
    }

    #[test]
    fn another_gpu_is_a_range_between_speed_and_memory() {
        let mut prices = prices();
        prices.here = Some("small".into());
        let found = machines(&on_gpu(), None, 36, &prices).unwrap();
        assert_eq!(found.here.cost, Some([1.0; 2]));
        assert_eq!(found.here.spot_cost, Some([0.25; 2]));
        let names: Vec<&str> = found.others.iter().map(|other| other.name.as_str()).collect();
        assert_eq!(names, ["quick", "large"], "the cheapest first");
        // 2400 / 400 = 6 times at best, 1600 / 320 = 5 times at worst.
        let [best, worst] = found.others[0].seconds_per_epoch;
        assert!(
            (16.0..18.0).contains(&best) && (19.5..21.0).contains(&worst),
            "{found:?}"
        );
        assert!(
            found.notes[0].contains("Unheard Of 9000") && found.notes[0].contains("[[gpu]]"),
            "{found:?}"
        );
        let text = found.table().text();
        assert!(
            text.lines().nth(1).unwrap().starts_with("small, as it is"),
            "{text}"
        );
        assert!(
            text.contains("1.00 USD") && text.contains("36 epochs of training"),
            "{text}"
        );
        // Of several GPUs the run has one, and pays for all.
        prices.here = Some("eight".into());
        let found = machines(&on_gpu(), None, 36, &prices).unwrap();
        assert_eq!(found.here.cost, Some([0.5; 2]));
        let several = "eight has 8 GPUs, and its price is that of all of them";
        assert!(found.notes.iter().any(|note| note == several), "{found:?}");
    }

    #[test]
    fn the_recorded_machine_is_found_in_the_table() {
        let recorded = |instance: Option<&str>, gpu: Option<&str>| Machine {
            instance: instance.map(str::to_owned),
            gpu: gpu.map(str::to_owned),
            ..Machine::here()
        };
        let mut prices = prices();
        prices.here = None;
        let t4 = recorded(Some("small"), Some("Tesla T4"));
        let found = machines(&on_gpu(), Some(&t4), 1, &prices.clone().on(&t4)).unwrap();
        assert!(found.here.cost.is_some() && found.here.name == "small");
        // In no table: its GPU is known all the same.
        let elsewhere = recorded(None, Some("Tesla T4"));
        let found = machines(&on_gpu(), Some(&elsewhere), 1, &prices.clone().on(&elsewhere)).unwrap();
        assert!(found.here.cost.is_none() && found.others.len() == 3, "{found:?}");
        assert!(
            found
                .others
                .iter()
                .all(|other| other.saved.is_none() && other.cost.is_some())
        );
        let small = found.others.iter().find(|other| other.name == "small").unwrap();
        assert!((small.seconds_per_epoch[1] - 100.0).abs() < 1.0, "{found:?}");
        assert!(found.notes[0].contains("`here`"), "{found:?}");
        let unlisted = recorded(Some("p9.huge"), Some("Tesla T4"));
        let found = machines(&on_gpu(), Some(&unlisted), 1, &prices.clone().on(&unlisted)).unwrap();
        assert!(found.notes[0].contains("p9.huge") && found.here.name == "p9.huge");
        // Nothing says which GPU it is.
        let found = machines(&on_gpu(), None, 1, &prices).unwrap();
        assert!(
            found.others.is_empty() && found.notes[1].contains("cuda"),
            "{found:?}"
        );
    }

    #[test]
    fn of_machines_that_cost_the_same_the_faster_one_is_first() {
        let row = |name: &str, cost: f64, seconds: f64| OnMachine {
            name: name.into(),
            cores: 1,
            gpu: None,
            price_per_hour: None,
            spot_per_hour: None,
            seconds_per_epoch: [seconds; 2],
            cost: Some([cost; 2]),
            spot_cost: None,
            saved: None,
        };
        let mut rows = [
            row("a", 1.0, 9.0),
            row("b", 1.02, 5.0),
            row("c", 1.04, 1.0),
            row("d", 0.5, 20.0),
        ];
        sort(&mut rows);
        let names = rows.map(|row| row.name);
        assert_eq!(names, ["d", "b", "a", "c"], "c costs more than 3 % more than a");
    }

    #[test]
    fn what_is_not_predicted_has_no_machines() {
        let unfinished = Workload {
            seconds_per_epoch: None,
            ..workload()
        };
        assert_eq!(machines(&unfinished, None, 1, &prices()), None);
        let odd = Workload {
            seconds_per_epoch: Some(1e4),
            ..workload()
        };
        assert_eq!(machines(&odd, None, 1, &prices()), None);
    }
}
