//! What a script's counters say of its speed.

use stokehold_profile::workload::{ScriptLoader, Workload};

use crate::facts::{Fetching, LoaderFacts, Process, Times};

/// The fewest batches from which an epoch is extrapolated.
const FEWEST: u64 = 10;

/// A script that trained: the process and the loader that took most of its time.
#[derive(Debug, Clone)]
pub struct Script {
    /// The process; of several ranks rank 0.
    pub process: Process,
    /// Its loader.
    pub loader: LoaderFacts,
    /// What made the loader's batches.
    makers: Vec<Fetching>,
}

impl Script {
    /// The script of these processes; `None` if none trained.
    pub fn of(processes: &[Process]) -> Option<Self> {
        let loaders = processes.iter().filter(|process| process.rank == 0);
        let loaders = loaders.flat_map(|process| process.loaders.iter().map(move |loader| (process, loader)));
        let trained = loaders.filter(|(_, loader)| loader.train.images > 0);
        let (process, loader) =
            trained.max_by(|one, other| time(&one.1.train).total_cmp(&time(&other.1.train)))?;
        // Workers count for themselves, and say whose they are.
        let of_workers = processes.iter().filter_map(|process| process.fetching);
        let makers = of_workers
            .filter(|fetching| fetching.loader == Some(loader.number) && fetching.owner == Some(process.pid))
            .chain(loader.fetching)
            .filter(|fetching| fetching.images > 0)
            .collect();
        Some(Self {
            process: process.clone(),
            loader: loader.clone(),
            makers,
        })
    }

    /// Images of an epoch; `None` if it is not known how many there are.
    fn images(&self) -> Option<u64> {
        let train = &self.loader.train;
        if let Some(images) = train.finished_images.checked_div(train.finished) {
            return Some(images.max(1));
        }
        let batches = self.loader.batches?;
        let of_batch = train.images as f64 / train.batches as f64;
        Some((batches as f64 * of_batch).round() as u64)
    }

    /// Seconds of an epoch's training, from all batches so far; `None` after too few.
    fn seconds(&self, images: u64) -> Option<f64> {
        let train = &self.loader.train;
        if train.finished == 0 && train.batches < FEWEST {
            return None;
        }
        let each = (time(train) - train.first_wait_seconds - train.start_seconds) / train.images as f64;
        let begins = (train.first_wait_seconds + train.start_seconds) / train.iterations.max(1) as f64;
        Some(each * images as f64 + begins)
    }

    /// The numbers from which gains are predicted, for a machine with `cores` cores, of which other programs used `others`.
    ///
    /// - A worker's CPU time per image is that of its process since its first batch, which includes what sends batches.
    /// - Its wait is what a fetch took beyond its CPU time, and beyond the time that it wanted a core and had none. Where other
    ///   threads or processes of the worker may have computed so long meanwhile that an image's cost is not known to a fifth, there is
    ///   none, and with it no ceiling of the loader.
    /// - The script's speed is that between a batch's arrival and the next demand, or that of its steps on the device, if these
    ///   took longer: a device is behind a script that does not wait for it.
    /// - With several ranks all numbers are those of rank 0, with its part of the machine's cores.
    pub fn workload(&self, cores: u64, others: Option<f64>) -> Workload {
        let (process, loader, train) = (&self.process, &self.loader, &self.loader.train);
        let images = train.images as f64;
        let per_image = |seconds: f64| seconds / images;
        let epoch = self.images();
        let busy = train.step_seconds + train.between_seconds;
        let on_device = process.device_busy_seconds.unwrap_or(0.0);
        let all = time(train);
        let waited = train.wait_seconds + train.start_seconds;
        // A device that still works while the script waits is not kept waiting.
        let waited = process
            .device_idle_seconds
            .map_or(waited, |idle| waited.min(idle));
        // The delay is that of the whole process; these steps have their part of it.
        let at_work = |loader: &LoaderFacts| -> f64 {
            let of = |times: &Times| {
                let fetched = if loader.num_workers == 0 {
                    times.wait_seconds
                } else {
                    0.0
                };
                times.step_seconds + times.between_seconds + fetched
            };
            of(&loader.train) + of(&loader.evaluate)
        };
        let all_work: f64 = process.loaders.iter().map(at_work).sum();
        let part = busy / all_work.max(busy).max(1e-9);
        let made: u64 = self.makers.iter().map(|maker| maker.images).sum();
        let of_makers = |value: &dyn Fn(&Fetching) -> f64| -> Option<f64> {
            (made > 0).then(|| self.makers.iter().map(value).sum::<f64>() / made as f64)
        };
        let cpu = of_makers(&|maker| match maker.worker {
            Some(_) => maker.process_cpu_seconds.max(maker.cpu_seconds),
            None => maker.cpu_seconds,
        });
        let wait = of_makers(&|maker| maker.wait_seconds).filter(|_| !self.has_helpers());
        let cores = (cores / process.local_world.max(1)).max(1);
        let ceiling = cpu.zip(wait).map(|(cpu, wait)| {
            let workers = loader.num_workers.max(1) as f64;
            (workers / (cpu + wait)).min(cores as f64 / cpu.max(1e-9))
        });
        let stages = [("load", cpu), ("read", wait)];
        Workload {
            images: epoch.unwrap_or(0),
            batch_size: (images / train.batches as f64).round() as u64,
            num_workers: loader.num_workers,
            cores,
            others_cores: others,
            executor: if loader.swapped {
                "stokehold"
            } else {
                "PyTorch's DataLoader"
            }
            .to_owned(),
            shards: false,
            device: process.device.clone(),
            seconds_per_epoch: epoch.and_then(|epoch| self.seconds(epoch)),
            wait_share: if all > 0.0 { waited / all } else { 0.0 },
            loader_ceiling: ceiling,
            trainer_ceiling: (busy > 0.0).then(|| images / busy.max(on_device)),
            loader_cpu_seconds: cpu,
            trainer_cpu_seconds: Some(per_image(train.cpu_seconds)),
            trainer_delay_seconds: per_image(part * process.delay_seconds.unwrap_or(0.0)),
            worker_cpu_seconds: cpu,
            read_wait_seconds: wait,
            stage_seconds: stages
                .into_iter()
                .filter_map(|(stage, seconds)| Some((stage.to_owned(), seconds?)))
                .collect(),
            script: Some(ScriptLoader {
                torch: process.torch.clone(),
                dataset: loader.dataset.clone(),
                root: loader.root.clone(),
                pipeline: loader.pipeline.as_ref().map(ToString::to_string),
                swap_refused: loader.swap_refused.clone(),
                iterable: loader.iterable,
                persistent_workers: loader.persistent_workers,
                pin_memory: loader.pin_memory,
                start_seconds: train.start_seconds / train.iterations.max(1) as f64,
                transfer_seconds: per_image(train.transfer_seconds),
                prefetch_factor: loader.prefetch_factor,
                ranks: process.world.max(1),
                unpinned_transfers: process.unpinned_transfers > 0,
                float_transfers: process.float_transfers > 0,
            }),
            ..Workload::default()
        }
    }

    /// Whether threads or processes of the data set's own leave it open what its workers wait for.
    fn has_helpers(&self) -> bool {
        let sum = |value: &dyn Fn(&Fetching) -> f64| self.makers.iter().map(value).sum::<f64>();
        sum(&|maker| maker.doubt_seconds) > 0.2 * sum(&|maker| maker.cpu_seconds + maker.wait_seconds)
    }

    /// What a reader of the numbers should know.
    pub fn notes(&self) -> Vec<String> {
        let (train, loader) = (&self.loader.train, &self.loader);
        let mut notes = Vec::new();
        if self.has_helpers() {
            notes.push(
                "the data set uses threads or processes of its own, so it is not known whether its workers wait for storage or for \
                 these; nothing is predicted of workers and storage"
                    .to_owned(),
            );
        }
        if train.finished == 0
            && let Some(batches) = loader.batches
        {
            notes.push(format!(
                "the script trained on {} of {batches} batches of an epoch, from which the epoch's time is extrapolated",
                train.batches
            ));
        }
        if train.finished == 0 && loader.batches.is_none() {
            notes.push(
                "no epoch came to its end, and the loader does not say how long one is: nothing is predicted"
                    .to_owned(),
            );
        }
        if self.process.world > 1 {
            notes.push(format!(
                "the figures are those of rank 0 of {}, with its part of the machine's cores",
                self.process.world
            ));
        }
        notes
    }
}

/// All time of the batches.
fn time(times: &Times) -> f64 {
    times.wait_seconds + times.start_seconds + times.step_seconds + times.between_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker that reads for 20 ms and computes for 5, beside steps of 10 ms, 4 images a batch.
    pub(crate) fn script() -> Script {
        let train = Times {
            iterations: 2,
            finished: 2,
            batches: 30,
            images: 120,
            wait_seconds: 2.7,
            first_wait_seconds: 0.3,
            start_seconds: 0.1,
            step_seconds: 0.2,
            between_seconds: 0.1,
            cpu_seconds: 0.12,
            transfer_seconds: 0.0,
            finished_images: 120,
        };
        let loader = LoaderFacts {
            num_workers: 1,
            batches: Some(15),
            train,
            ..LoaderFacts::default()
        };
        let worker = |pid, batches, images| Process {
            pid,
            fetching: Some(Fetching {
                loader: Some(0),
                worker: Some(0),
                owner: Some(1),
                batches,
                images,
                wait_seconds: 0.020 * images as f64,
                doubt_seconds: 0.0,
                cpu_seconds: 0.004 * images as f64,
                process_cpu_seconds: 0.005 * images as f64,
            }),
            ..Process::default()
        };
        let main = Process {
            pid: 1,
            loaders: vec![loader],
            device: "cpu".to_owned(),
            delay_seconds: Some(0.06),
            ..Process::default()
        };
        Script::of(&[main, worker(2, 15, 60), worker(3, 15, 60)]).unwrap()
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn counters_become_costs_of_an_image() {
        let workload = script().workload(8, Some(0.5));
        assert_eq!((workload.images, workload.batch_size), (60, 4));
        assert!(close(workload.loader_cpu_seconds, 0.005));
        assert!(close(workload.read_wait_seconds, 0.020));
        assert!(close(workload.loader_ceiling, 40.0));
        assert!(close(workload.trainer_ceiling, 400.0));
        assert!(close(workload.trainer_cpu_seconds, 0.001));
        assert!(close(Some(workload.trainer_delay_seconds), 0.0005));
        assert!(close(Some(workload.wait_share), 2.8 / 3.1));
        // 2.7 s of 120 images, and a begin of 0.2 s in each epoch.
        assert!(close(workload.seconds_per_epoch, 60.0 * 2.7 / 120.0 + 0.2));
    }

    #[test]
    fn an_epoch_that_has_not_ended_is_extrapolated() {
        let mut script = script();
        script.loader.batches = Some(1500);
        let train = &mut script.loader.train;
        (train.iterations, train.finished, train.finished_images) = (1, 0, 0);
        let workload = script.workload(8, None);
        assert_eq!(workload.images, 6000);
        assert!(close(workload.seconds_per_epoch, 6000.0 * 2.7 / 120.0 + 0.4));
        assert!(script.notes()[0].contains("30 of 1500 batches"));
        script.loader.train.batches = 9;
        assert_eq!(script.workload(8, None).seconds_per_epoch, None);
        script.loader.batches = None;
        assert_eq!(script.workload(8, None).images, 0);
    }

    /// Where a data set's own threads compute, waiting for storage is not told from waiting for them.
    #[test]
    fn what_may_be_computed_elsewhere_is_no_wait_for_storage() {
        let mut script = script();
        for maker in &mut script.makers {
            maker.doubt_seconds = 0.004 * maker.images as f64;
        }
        assert!(close(script.workload(8, None).read_wait_seconds, 0.020));
        assert_eq!(script.notes(), Vec::<String>::new());
        for maker in &mut script.makers {
            maker.doubt_seconds = 0.006 * maker.images as f64;
        }
        let workload = script.workload(8, None);
        assert_eq!(
            (workload.read_wait_seconds, workload.loader_ceiling),
            (None, None)
        );
        assert!(script.notes()[0].contains("threads or processes of its own"));
    }

    /// A device that is behind the script sets its pace, and has not waited for what it has not come to.
    #[test]
    fn a_device_behind_the_script_is_the_trainer() {
        let mut script = script();
        script.process.device = "cuda".to_owned();
        script.process.device_busy_seconds = Some(3.0);
        script.process.device_idle_seconds = Some(0.1);
        let workload = script.workload(8, None);
        assert!(close(workload.trainer_ceiling, 40.0));
        assert!(close(Some(workload.wait_share), 0.1 / 3.1));
    }

    #[test]
    fn a_rank_has_its_part_of_the_cores() {
        let mut script = script();
        (script.process.world, script.process.local_world) = (16, 4);
        assert_eq!(script.workload(8, None).cores, 2);
        assert!(script.notes()[0].contains("rank 0 of 16"));
    }

    /// Workers of another process's loader of the same number are not this one's; validation has its part of the delay.
    #[test]
    fn what_is_of_others_is_not_counted() {
        let mut processes = vec![script().process.clone()];
        let validation = LoaderFacts {
            number: 1,
            evaluate: Times {
                step_seconds: 0.3,
                ..Times::default()
            },
            ..LoaderFacts::default()
        };
        processes[0].loaders.push(validation);
        processes.push(Process {
            pid: 9,
            fetching: Some(Fetching {
                loader: Some(0),
                worker: Some(0),
                owner: Some(8),
                images: 1000,
                wait_seconds: 1e3,
                ..Fetching::default()
            }),
            ..Process::default()
        });
        let workload = Script::of(&processes).unwrap().workload(8, None);
        assert_eq!(workload.loader_cpu_seconds, None);
        assert!(close(Some(workload.trainer_delay_seconds), 0.5 * 0.0005));
    }

    #[test]
    fn nothing_trained_is_no_script() {
        assert!(Script::of(&[]).is_none());
        let mut loaders = script().process;
        loaders.loaders[0].train = Times::default();
        assert!(Script::of(&[loaders]).is_none());
    }
}
