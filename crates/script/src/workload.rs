//! What a script's counters say of its speed.

mod start;

use std::fmt;

use stokehold_profile::workload::{Alternative, Change, ScriptLoader, Workload};

use crate::facts::{Fetching, LoaderFacts, Process, Times};

/// The fewest batches from which an epoch is extrapolated.
const FEWEST: u64 = 10;

/// The fewest images whose mean cost is one.
const FEWEST_IMAGES: f64 = 24.0;

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

/// Why no saving of fast images is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unserved {
    /// They do not serve the script, with the reason.
    Refused(String),
    /// Nothing tells, with what is missing.
    Unknown(String),
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::Unknown(why)) = self;
        f.write_str(why)
    }
}

impl Script {
    /// The script of these processes; `None` if none trained.
    pub fn of(processes: &[Process]) -> Option<Self> {
        Self::all(processes)
            .into_iter()
            .find(|script| script.loader.train.images > 0)
    }

    /// The script with each of its loaders, the one that took most of the training's time first; of several ranks those of rank 0.
    pub fn all(processes: &[Process]) -> Vec<Self> {
        let loaders = processes.iter().filter(|process| process.rank == 0);
        let loaders = loaders.flat_map(|process| process.loaders.iter().map(move |loader| (process, loader)));
        let mut all: Vec<_> = loaders
            .map(|(process, loader)| Self {
                process: process.clone(),
                loader: loader.clone(),
                makers: makers(processes, process, loader),
            })
            .collect();
        all.sort_by(|one, other| {
            let times = |script: &Self| (time(&script.loader.train), time(&script.loader.evaluate));
            let (one, other) = (times(one), times(other));
            other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
        });
        all
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
        let mut begins = train.first_wait_seconds + train.start_seconds;
        if self.loader.persistent_workers || self.loader.num_workers == 0 {
            // What was started and opened in the first epoch serves all others.
            let [opening, _] = self.opening();
            begins = (begins - self.mean(|maker| maker.start_seconds) - opening).max(0.0);
        }
        Some(each * images as f64 + begins / train.iterations.max(1) as f64 + self.end())
    }

    /// What the end of an epoch takes the script, seconds.
    fn end(&self) -> f64 {
        self.loader.train.end_seconds / self.loader.train.finished.max(1) as f64
    }

    /// How unequally long the workers' batches take: the standard deviation of an image's time in them, over its mean.
    fn variation(&self) -> f64 {
        let count = self.sum(|maker| maker.later as f64);
        let mean = self.sum(|maker| maker.later_seconds) / count;
        let square = self.sum(|maker| maker.later_squares) / count;
        match count >= FEWEST as f64 && mean > 0.0 {
            true => (square / (mean * mean) - 1.0).max(0.0).sqrt(),
            false => 0.0,
        }
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
        let made = self.sum(|maker| maker.images as f64);
        let of_image = |value: &dyn Fn(&Fetching) -> f64| -> Option<f64> {
            (made > 0.0).then(|| self.sum(value) / made)
        };
        let cpu = self.image_cpu_seconds();
        let wait = self.image_wait_seconds().filter(|_| !self.has_helpers());
        let cores = (cores / process.local_world.max(1)).max(1);
        let [worker_start, worker_start_cpu] = self.worker_start(cores);
        let is_seen = !loader.elsewhere;
        let ceiling = cpu.zip(wait).filter(|_| is_seen).map(|(cpu, wait)| {
            let workers = loader.num_workers.max(1) as f64;
            (workers / (cpu + wait)).min(cores as f64 / cpu.max(1e-9))
        });
        // If a wait reads nothing, its cause is unknown.
        let waiting = if self.sum(|maker| maker.reading_seconds) >= 0.5 * self.sum(|maker| maker.wait_seconds)
        {
            "read"
        } else {
            "wait"
        };
        let stages = [("load", cpu), (waiting, wait)];
        let counted = self.makers.iter().all(|maker| maker.read_bytes.is_some());
        let read_bytes = of_image(&|maker| maker.read_bytes.unwrap_or(0) as f64).filter(|_| counted);
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
            wait_share: if all > 0.0 && is_seen { waited / all } else { 0.0 },
            loader_ceiling: ceiling,
            trainer_ceiling: (busy > 0.0 && is_seen).then(|| images / busy.max(on_device)),
            loader_cpu_seconds: cpu,
            trainer_cpu_seconds: Some(per_image(train.cpu_seconds)),
            trainer_delay_seconds: per_image(train.delay_seconds),
            worker_cpu_seconds: cpu,
            read_wait_seconds: wait,
            stage_seconds: stages
                .into_iter()
                .filter_map(|(stage, seconds)| Some((stage.to_owned(), seconds?)))
                .collect(),
            alternatives: self.fast_images(cpu).into_iter().collect(),
            script: Some(ScriptLoader {
                torch: process.torch.clone(),
                dataset: loader.dataset.clone(),
                root: loader.root.clone(),
                pipeline: loader.pipeline.as_ref().map(ToString::to_string),
                swap_refused: loader.swap_refused.clone(),
                fast_images_refused: self
                    .process
                    .fast_images_refused
                    .clone()
                    .filter(|_| self.makers.iter().any(|maker| maker.opens_jpegs)),
                image_bytes: self.mean(|maker| maker.batch_bytes as f64) / (images / train.batches as f64),
                iterable: loader.iterable,
                persistent_workers: loader.persistent_workers,
                pin_memory: loader.pin_memory,
                start_seconds: train.start_seconds / train.iterations.max(1) as f64,
                worker_start_seconds: worker_start,
                worker_start_cpu_seconds: worker_start_cpu,
                end_seconds: self.end(),
                variation: self.variation(),
                restarts: match loader.num_workers > 0 && !loader.persistent_workers && !loader.swapped {
                    true => train.iterations.saturating_sub(loader.loaders.max(1)),
                    false => 0,
                },
                read_bytes,
                worker_threads: self.worker_threads(),
                transfer_seconds: per_image(train.transfer_seconds),
                prefetch_factor: loader.prefetch_factor,
                ranks: process.world.max(1),
                unpinned_transfers: process.unpinned_transfers > 0,
                float_transfers: process.float_transfers > 0,
            }),
            ..Workload::default()
        }
    }

    /// CPU time of an image in the workers, without what they open first, seconds; `None` where none was made.
    pub fn image_cpu_seconds(&self) -> Option<f64> {
        let made = self.sum(|maker| maker.images as f64);
        let [_, opening] = self.opening();
        (made > 0.0).then(|| self.sum(|maker| (of_process(maker) - opening).max(0.0)) / made)
    }

    /// The same of what an image waits for.
    fn image_wait_seconds(&self) -> Option<f64> {
        let made = self.sum(|maker| maker.images as f64);
        let [opening, opening_cpu] = self.opening();
        let waited = |maker: &Fetching| (maker.wait_seconds - (opening - opening_cpu)).max(0.0);
        (made > 0.0).then(|| self.sum(waited) / made)
    }

    /// What fast images would save, as a share of [`image_cpu_seconds`](Self::image_cpu_seconds) that is left; or why that is not known.
    ///
    /// # Errors
    /// They serve none of its images, or nothing tells.
    pub fn with_fast_images(&self) -> Result<f64, Unserved> {
        if let Some(fast) = self.fast_images(self.image_cpu_seconds()) {
            return Ok(fast.loader);
        }
        let tried = self.sum(|maker| maker.fast_images as f64);
        let opened = self.makers.iter().any(|maker| maker.fast_opened > 0);
        Err(if let Some(why) = &self.process.fast_images_refused {
            Unserved::Refused(why.clone())
        } else if tried > 0.0 && !opened {
            Unserved::Refused(
                "no JPEG was decoded with Pillow, cv2, torchvision.io, simplejpeg or PyTurboJPEG".to_owned(),
            )
        } else if tried > 0.0 || opened {
            Unserved::Unknown(format!(
                "too few images were made to tell: {tried} with fast images and {} without; it takes {FEWEST_IMAGES} of both",
                self.sum(|maker| maker.plain_images as f64)
            ))
        } else {
            Unserved::Unknown("too few images were made to tell, or the script has them already".to_owned())
        })
    }

    /// What an image costs with fast images, if enough of them were fetched with them and without: what is left of the CPU time that it
    /// takes a worker.
    fn fast_images(&self, cpu: Option<f64>) -> Option<Alternative> {
        let of_image = |images: f64, seconds: f64| (images >= FEWEST_IMAGES).then(|| seconds / images);
        let tried = |value: &dyn Fn(&Fetching) -> f64| {
            let tried = self.makers.iter().filter(|maker| maker.fast_opened > 0);
            tried.map(value).sum::<f64>()
        };
        let fast = of_image(
            tried(&|maker| maker.fast_images as f64),
            tried(&|maker| maker.fast_cpu_seconds),
        )?;
        // Of all workers: each has fetched few with fast images.
        let plain = of_image(
            self.sum(|maker| maker.plain_images as f64),
            self.sum(|maker| maker.plain_cpu_seconds),
        )?;
        let cpu = cpu.filter(|cpu| *cpu > 0.0)?;
        Some(Alternative {
            change: Change::FastImages,
            loader: ((cpu - plain + fast) / cpu).clamp(0.05, 20.0),
            trainer: 1.0,
        })
    }

    /// Whether threads or processes of the data set's own leave it open what its workers wait for.
    fn has_helpers(&self) -> bool {
        self.sum(|maker| maker.doubt_seconds) > 0.2 * self.sum(|maker| maker.cpu_seconds + maker.wait_seconds)
    }

    /// Threads that compute for a worker on average, its own among them.
    fn worker_threads(&self) -> f64 {
        let all = self.sum(of_process);
        let own = all - self.sum(|maker| maker.library_cpu_seconds);
        match self.loader.num_workers {
            0 => 0.0,
            // One that computes in libraries alone still waits for them in a thread of its own.
            _ => all / own.max(1e-3 * all).max(1e-9),
        }
    }

    /// The mean over the makers of batches.
    fn mean(&self, value: impl Fn(&Fetching) -> f64) -> f64 {
        self.sum(value) / self.makers.len().max(1) as f64
    }

    /// The sum over the makers of batches.
    fn sum(&self, value: impl Fn(&Fetching) -> f64) -> f64 {
        self.makers.iter().map(value).sum()
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
        if loader.iterable {
            notes.push(
                "the data set is iterable, so other numbers of workers are not predicted: each worker may make all of it"
                    .to_owned(),
            );
        }
        if loader.elsewhere {
            notes.push(
                "a thread of the script's own takes the batches, and another one trains, so waits for data are not seen; nothing is predicted"
                    .to_owned(),
            );
        }
        let tried = |maker: &Fetching| maker.fast_images > 0 || maker.fast_opened > 0;
        let open = |maker: &&Fetching| maker.opens_jpegs && !tried(maker);
        if self.process.fast_images_refused.is_none()
            && self.makers.iter().filter(open).count() == self.makers.len()
        {
            notes.push(
                "if the script decodes JPEGs, `stokehold profile --fast-images` measures what fast images would save it".to_owned(),
            );
        }
        let refused = self.process.fast_images_refused.as_deref();
        let why = match refused {
            Some(why) => self
                .makers
                .iter()
                .any(|maker| maker.opens_jpegs)
                .then(|| why.to_owned()),
            None if self.makers.iter().any(tried) => self.with_fast_images().err().map(|why| why.to_string()),
            None => None,
        };
        if let Some(why) = why {
            notes.push(format!("what fast images would save is not known: {why}"));
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

/// What made a loader's batches: workers count for themselves, and say whose they are.
fn makers(processes: &[Process], process: &Process, loader: &LoaderFacts) -> Vec<Fetching> {
    let of_workers = processes.iter().filter_map(|process| process.fetching);
    of_workers
        .filter(|fetching| fetching.loader == Some(loader.number) && fetching.owner == Some(process.pid))
        .chain(loader.fetching)
        .filter(|fetching| fetching.images > 0)
        .collect()
}

/// CPU time of a maker of batches: that of its whole process, if it does nothing else.
fn of_process(maker: &Fetching) -> f64 {
    match maker.worker {
        Some(_) => maker.process_cpu_seconds.max(maker.cpu_seconds),
        None => maker.cpu_seconds,
    }
}

/// All time of the batches.
fn time(times: &Times) -> f64 {
    times.wait_seconds + times.start_seconds + times.step_seconds + times.between_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker that reads for 20 ms and computes for 5, next to steps of 10 ms, 4 images a batch.
    pub(super) fn script() -> Script {
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
            delay_seconds: 0.06,
            transfer_seconds: 0.0,
            finished_images: 120,
            end_seconds: 0.0,
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
                reading_seconds: 0.015 * images as f64,
                read_bytes: Some(5000 * images),
                cpu_seconds: 0.004 * images as f64,
                process_cpu_seconds: 0.005 * images as f64,
                ..Fetching::default()
            }),
            ..Process::default()
        };
        let main = Process {
            pid: 1,
            loaders: vec![loader],
            device: "cpu".to_owned(),
            ..Process::default()
        };
        Script::of(&[main, worker(2, 15, 60), worker(3, 15, 60)]).unwrap()
    }

    pub(super) fn close(a: Option<f64>, b: f64) -> bool {
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

    /// A worker's image takes 5 ms, 4 of them in a fetch; with fast images a fetch takes 1 ms.
    #[test]
    fn fast_images_save_what_they_save_in_a_fetch() {
        let mut script = script();
        assert_eq!(script.workload(8, None).alternatives, []);
        for maker in &mut script.makers {
            (maker.plain_images, maker.plain_cpu_seconds) = (50, 0.004 * 50.0);
        }
        let first = &mut script.makers[0];
        (first.fast_images, first.fast_cpu_seconds) = (24, 0.001 * 24.0);
        // None of these was a JPEG.
        assert_eq!(script.workload(8, None).alternatives, []);
        assert!(
            script
                .with_fast_images()
                .unwrap_err()
                .to_string()
                .starts_with("no JPEG was decoded")
        );
        script.makers[0].fast_opened = 32;
        let alternatives = script.workload(8, None).alternatives;
        assert_eq!(alternatives[0].change, Change::FastImages);
        assert!(close(Some(alternatives[0].loader), 2.0 / 5.0), "{alternatives:?}");
        // Too few to tell.
        script.makers[0].fast_images = 23;
        assert_eq!(script.workload(8, None).alternatives, []);
        assert_eq!(
            script.with_fast_images().unwrap_err().to_string(),
            "too few images were made to tell: 23 with fast images and 100 without; it takes 24 of both"
        );
    }

    /// It is said only where images are JPEGs.
    #[test]
    fn fast_images_that_cannot_be_had_are_said() {
        let mut script = script();
        script.process.fast_images_refused = Some("no module named stokehold".to_owned());
        assert_eq!(script.notes(), Vec::<String>::new());
        script.makers[1].opens_jpegs = true;
        assert!(script.notes()[0].ends_with("would save is not known: no module named stokehold"));
        let workload = script.workload(8, None);
        assert!(workload.script.unwrap().fast_images_refused.is_some());
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

    /// Where nothing is read, a worker may wait for storage, a network or a sleep.
    #[test]
    fn a_wait_is_for_storage_only_where_bytes_are_read() {
        let mut script = script();
        let stage = |script: &Script| {
            script
                .workload(8, None)
                .stage_seconds
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(stage(&script), ["load", "read"]);
        assert_eq!(script.workload(8, None).script.unwrap().read_bytes, Some(5000.0));
        for maker in &mut script.makers {
            // An import in the first fetch.
            maker.reading_seconds = 0.02;
            maker.read_bytes = None;
        }
        assert_eq!(stage(&script), ["load", "wait"]);
        let workload = script.workload(8, None);
        assert!(close(workload.read_wait_seconds, 0.020));
        assert_eq!(workload.script.unwrap().read_bytes, None);
    }

    /// Persistent workers serve all epochs but the first: what they took to start is no part of an epoch.
    #[test]
    fn what_workers_do_before_their_first_batch_is_a_start() {
        let mut script = script();
        for maker in &mut script.makers {
            maker.start_seconds = 0.1;
        }
        let workload = script.workload(8, None);
        let about = workload.script.unwrap();
        assert!(close(Some(about.worker_start_seconds), 0.1));
        assert!(close(Some(about.start_seconds), 0.05));
        assert_eq!(about.restarts, 1);
        assert!(close(workload.seconds_per_epoch, 60.0 * 2.7 / 120.0 + 0.2));
        script.loader.persistent_workers = true;
        let workload = script.workload(8, None);
        assert!(close(workload.seconds_per_epoch, 60.0 * 2.7 / 120.0 + 0.15));
        assert_eq!(workload.script.unwrap().restarts, 0);
        // A loader that is made again for every epoch has no workers to keep.
        script.loader.persistent_workers = false;
        script.loader.loaders = 2;
        assert_eq!(script.workload(8, None).script.unwrap().restarts, 0);
    }

    /// Two workers that compute for 0.3 s each, of which a library's own threads took 0.2.
    #[test]
    fn threads_of_libraries_are_told() {
        let mut script = script();
        assert!(close(
            Some(script.workload(8, None).script.unwrap().worker_threads),
            1.0
        ));
        for maker in &mut script.makers {
            maker.library_cpu_seconds = 0.2;
        }
        assert!(close(
            Some(script.workload(8, None).script.unwrap().worker_threads),
            3.0
        ));
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

    /// Workers of another process's loader of the same number are not this one's; validation has a delay of its own.
    #[test]
    fn what_is_of_others_is_not_counted() {
        let mut processes = vec![script().process.clone()];
        let validation = LoaderFacts {
            number: 1,
            evaluate: Times {
                step_seconds: 0.3,
                delay_seconds: 0.3,
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
        assert!(close(Some(workload.trainer_delay_seconds), 0.0005));
    }

    #[test]
    fn nothing_trained_is_no_script() {
        assert!(Script::of(&[]).is_none());
        let mut loaders = script().process;
        loaders.loaders[0].train = Times::default();
        assert!(Script::of(&[loaders]).is_none());
    }
}
