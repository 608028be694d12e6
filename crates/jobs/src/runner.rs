//! Runs a claimed job to its end.
//!
//! ```text
//!  Starting ──► Downloading ──► Training ──► Uploading ──► Completed | Failed | Stopped
//!  folders,     checkpoints,    a thread an  checkpoints,
//!  code, JSON   channels of     instance     model and
//!     ▲         mode File, Dir     │         output packed
//!     └─────── Interrupted ◄───────┘
//! ```
//!
//! One thread watches for reasons to cut the work short (the caller's flag, the job's `stop` file, a time
//! limit, an interruption); one mirrors the checkpoints. Per instance, one thread starts the process as
//! leader of its own group, waits for it, and then ends the group, as a container ends with its first
//! process; two threads read its lines; one thread per pipe feeds it. All of them end with the job.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stokehold_objects::Bucket;
use stokehold_profile::timeline::Metrics;

use stokehold_base::clock::unix_now as now;

use crate::checkpoints::{End, Keeper};
use crate::contract::{self, Instance};
use crate::cut::{Cut, Cuts};
use crate::data::{self, Flow};
use crate::home::Home;
use crate::lines::{Line, Lines};
use crate::mount::{self, Complaints, Mounts};
use crate::place::{Place, VISIBLE_GPUS};
use crate::process::{Process, exit_code, signal_group};
use crate::profiler::Profiler;
use crate::room::{self, Bound, Room};
use crate::store::{Claim, Folder, Record, Secondary, Status};
use crate::{Bill, EntryPoint, Job, JobError, Kept, Mode, archive, pipe, source, venv};

/// An event while a job runs.
#[derive(Debug, Clone, Copy)]
pub enum News<'a> {
    /// The job came to a state; sent before any line that is printed in it.
    State(&'a Record),
    /// A line was printed.
    Line(&'a Line<'a>),
}

/// Runs a claimed job to its end in this process. `show` gets every state and every line as they come; `stop`
/// stops the job.
///
/// The record says how the job ended. A script that fails, or data that cannot be fetched, is a failed job
/// and not an error.
///
/// # Errors
/// The job's state or its logs cannot be written.
pub fn run(claim: Claim, stop: &AtomicBool, show: &(dyn Fn(News<'_>) + Sync)) -> Result<Record, JobError> {
    let Claim {
        folder,
        job,
        record,
        place,
        lock: _lock,
    } = claim;
    let lines = Lines::new(&folder, &job, show)?;
    show(News::State(&record));
    let runner = Runner {
        job: &job,
        folder: &folder,
        lines: &lines,
        show,
        record: Mutex::new(record),
        cuts: Cuts::new(&job, &folder, &lines),
        place,
        environment: OnceLock::new(),
        timeline: OnceLock::new(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| runner.cuts.watch(stop));
        if job.spot.as_ref().is_some_and(|spot| spot.simulate.is_none()) {
            scope.spawn(|| runner.cuts.await_notice());
        }
        // On its own thread, so that the caller's thread keeps its cores.
        let work = scope.spawn(|| runner.place.take().and_then(|()| runner.work()));
        let ended = work.join();
        runner.cuts.finish();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let record = runner
        .record
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(record)
}

struct Runner<'a> {
    job: &'a Job,
    folder: &'a Folder,
    lines: &'a Lines<'a>,
    show: &'a (dyn Fn(News<'_>) + Sync),
    record: Mutex<Record>,
    cuts: Cuts<'a>,
    place: Place,
    /// The virtual environment, where there are requirements.
    environment: OnceLock<PathBuf>,
    /// The address for the script's spans and numbers, and the numbers received there.
    timeline: OnceLock<(OsString, Arc<Metrics>)>,
}

/// How one start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The job is in a final state.
    Ended,
    /// An interruption; the job goes on here.
    Interrupted,
}

/// State that is kept from one start to the next.
struct Held<'a> {
    say: &'a (dyn Fn(&str) + Sync),
    /// The job's place for checkpoints.
    keeper: Option<Keeper<'a>>,
    profiler: Option<Profiler>,
}

/// How an instance's process ended.
struct Ended {
    code: i32,
    /// The runner ended it: a stop, a time limit, or another instance's failure.
    told: bool,
    /// A signal ended it.
    killed: bool,
}

impl Runner<'_> {
    fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), JobError> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let states = record.transitions.len();
        change(&mut record);
        record.spot = self
            .job
            .spot
            .as_ref()
            .map(|spot| Bill::of(spot, self.job.instances, &record));
        self.folder.write(&record)?;
        if record.transitions.len() > states {
            (self.show)(News::State(&record));
        }
        Ok(())
    }

    fn enter(&self, status: Status, secondary: Secondary) -> Result<(), JobError> {
        self.change(|record| record.enter(status, secondary))
    }

    /// Leaves a final state on every path.
    fn work(&self) -> Result<(), JobError> {
        let say = |text: &str| self.lines.say(text);
        let mut held = Held {
            say: &say,
            keeper: None,
            profiler: None,
        };
        let mut again = false;
        while self.attempt(&mut held, again)? == Attempt::Interrupted {
            again = true;
            self.enter(Status::InProgress, Secondary::Interrupted)?;
            let pause = Duration::from_secs(self.job.spot.as_ref().map_or(0, |spot| spot.pause_seconds));
            let interrupted = Instant::now();
            let wanted = || self.cuts.why().is_none_or(|cut| cut == Cut::Simulated);
            while interrupted.elapsed() < pause && wanted() {
                std::thread::sleep(Duration::from_millis(20));
            }
            if let Some(cut) = self.cuts.again() {
                return self.end_cut(&mut held, cut).map(drop);
            }
            self.enter(Status::InProgress, Secondary::Starting)?;
        }
        Ok(())
    }

    /// From Starting to a final state, or to an interruption after which the job goes on.
    fn attempt(&self, held: &mut Held<'_>, again: bool) -> Result<Attempt, JobError> {
        let instances = match (self.start(again), self.cuts.why()) {
            (Ok(instances), _) => instances,
            (Err(_), Some(cut)) => return self.end_cut(held, cut),
            (Err(error), None) => return self.fail(held, &format!("ClientError: {error}")),
        };
        if !again {
            held.profiler = self.profiler(&instances)?;
        }
        self.enter(Status::InProgress, Secondary::Downloading)?;
        let folders: Vec<PathBuf> = instances.iter().map(Instance::data).collect();
        let brought = self
            .bring_checkpoints(&instances, held)
            .and_then(|()| data::bring(self.job, self.jobs(), &folders, held.say, self.cuts.halt()));
        let mounted = brought.and_then(|()| Mounts::new(self.job, &folders));
        let piped = mounted.and_then(|mounts| Ok((mounts, self.pipes(&instances)?)));
        if let Some(cut) = self.cuts.why() {
            return self.end_cut(held, cut);
        }
        let (mounts, piped) = match piped {
            Ok(piped) => piped,
            Err(error) => return self.fail(held, &format!("ClientError: {error}")),
        };
        self.change(|record| {
            record.training_started = Some(now());
            record.training_ended = None;
            record.processes.clear();
            record.enter(Status::InProgress, Secondary::Training);
        })?;
        self.cuts.started();
        let (result, late) = self.train(&instances, &piped, &mounts.complaints, held.keeper.as_mut());
        self.cuts.ended();
        drop(mounts);
        self.change(|record| {
            record.training_ended = Some(now());
            record.metrics = self.lines.last();
        })?;
        let ended = match &result {
            Ok(ended) => ended.as_slice(),
            Err(_) => &[],
        };
        // The first instance that failed by itself decides; those that the runner ended may exit with any
        // code.
        let decisive = ended
            .iter()
            .flatten()
            .position(|ended| ended.code != 0 && !ended.told);
        let told = ended.iter().flatten().any(|ended| ended.told);
        // A reason that came after everything had ended cuts nothing short.
        let cut = self.cuts.why().filter(|_| told);
        let failed = decisive.filter(|_| !late && cut.is_none());
        for (instance, ended) in instances.iter().zip(ended) {
            self.leave_mark(instance, ended.as_ref())?;
        }
        let code = failed
            .or(decisive)
            .and_then(|i| ended.iter().flatten().nth(i))
            .map(|ended| ended.code);
        let code = code.or(ended.iter().flatten().map(|ended| ended.code).max());
        self.change(|record| record.exit_code = code)?;
        let interrupted = cut.is_some_and(Cut::is_interruption);
        if !interrupted {
            let status = if told {
                Status::Stopping
            } else {
                Status::InProgress
            };
            self.enter(status, Secondary::Uploading)?;
        }
        let unkept = self.settle(held.keeper.as_mut(), ended)?;
        if cut == Some(Cut::Simulated) {
            return Ok(Attempt::Interrupted);
        }
        self.report(held.profiler.take(), code)?;
        if let Some(cut) = cut.filter(|_| interrupted) {
            return self.end_cut(held, cut);
        }
        let uploaded = result.and_then(|_| self.upload(&instances));
        if let Err(error) = uploaded {
            let kept = self.folder.file("output");
            let reason = format!("ClientError: {error}; the results are in {}", kept.display());
            return self.fail(held, &reason);
        }
        if let Some(missing) = self.lines.failed() {
            let reason = format!("InternalServerError: the job's lines could not be stored: {missing}");
            return self.fail(held, &reason);
        }
        match (failed, unkept, cut) {
            (Some(i), _, _) => self.fail(held, &self.reason(&instances[i], code.unwrap_or(1))),
            (None, Some(unkept), _) => self.fail(held, &format!("ClientError: {unkept}")),
            (None, None, Some(cut)) => self.end_cut(held, cut),
            (None, None, None) => match told && late {
                true => self.end(held, Status::Stopped, Secondary::MaxRuntimeExceeded),
                false => self.end(held, Status::Completed, Secondary::Completed),
            },
        }
    }

    /// Enters a final state.
    fn end(&self, held: &mut Held<'_>, status: Status, secondary: Secondary) -> Result<Attempt, JobError> {
        // Release the place before another process can see that the job has ended.
        held.keeper = None;
        self.enter(status, secondary)?;
        Ok(Attempt::Ended)
    }

    fn fail(&self, held: &mut Held<'_>, reason: &str) -> Result<Attempt, JobError> {
        held.keeper = None;
        self.change(|record| record.fail(reason))?;
        Ok(Attempt::Ended)
    }

    fn end_cut(&self, held: &mut Held<'_>, cut: Cut) -> Result<Attempt, JobError> {
        match cut {
            Cut::Simulated => Ok(Attempt::Interrupted),
            Cut::Notice => self.end(held, Status::Stopped, Secondary::Interrupted),
            Cut::MaxWait => self.end(held, Status::Stopped, Secondary::MaxWaitTimeExceeded),
            Cut::Stop => self.end(held, Status::Stopped, Secondary::Stopped),
        }
    }

    /// Takes the job's place for checkpoints, if it has one, and downloads what is there.
    fn bring_checkpoints(&self, instances: &[Instance], held: &mut Held<'_>) -> Result<(), JobError> {
        let Some(uri) = &self.job.checkpoints else {
            return Ok(());
        };
        let keeper = match &mut held.keeper {
            Some(keeper) => keeper,
            keeper => {
                let folders = instances.iter().map(Instance::checkpoints).collect();
                keeper.insert(Keeper::take(
                    self.job,
                    uri,
                    &self.folder.0,
                    folders,
                    held.say,
                    self.cuts.halt(),
                )?)
            }
        };
        keeper.restore(self.job, self.cuts.halt())?;
        self.change(|record| record.checkpoints = Some(keeper.kept()))
    }

    /// Sends the remaining checkpoints. Returns why some could not be sent.
    fn settle(
        &self,
        keeper: Option<&mut Keeper<'_>>,
        ended: &[Option<Ended>],
    ) -> Result<Option<String>, JobError> {
        let Some(keeper) = keeper else { return Ok(None) };
        let end = |rank: usize| match ended.get(rank) {
            Some(Some(ended)) if ended.killed => End::Killed,
            Some(_) => End::Itself,
            // Its end is unknown.
            None => End::Killed,
        };
        let ends: Vec<End> = (0..self.job.instances).map(end).collect();
        let kept = keeper.settle(&ends, Duration::from_secs(self.job.stop_seconds));
        let unkept = kept.trouble.as_ref().map(|trouble| {
            let (place, waiting) = (&kept.uri, kept.waiting);
            format!("checkpoints: not all could be kept at {place} ({waiting} files wait in the job's folder): {trouble}")
        });
        if let Some(unkept) = &unkept {
            self.lines.say(unkept);
        }
        self.change(|record| record.checkpoints = Some(kept))?;
        Ok(unkept)
    }

    /// Prepares folders, code and configuration of every instance.
    fn start(&self, again: bool) -> Result<Vec<Instance>, JobError> {
        self.try_output()?;
        let job = self.job;
        let name = job.name.clone().unwrap_or_default();
        // Unmount the views that a killed runner left.
        mount::clear(&self.folder.0).map_err(JobError::io(&self.folder.0))?;
        let port = free_port()?;
        let source = job.source_dir.as_deref();
        let source = source
            .map(|source| source::bring(job, source, &self.folder.0, self.cuts.halt()))
            .transpose()?;
        let mut instances = Vec::new();
        for rank in 0..job.instances {
            let place = self.place.share(rank, job.instances);
            let instance = Instance {
                job: name.clone(),
                rank,
                base: self.folder.file(&contract::host(rank)),
                cpus: place.cores.len(),
                gpus: place.gpus.len(),
                port,
            };
            self.clear(&instance, again)?;
            for folder in instance.folders() {
                fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
            }
            let config = instance.base.join("input/config");
            for (file, value) in [
                (
                    "hyperparameters.json",
                    contract::hyperparameters_json(job, &instance),
                ),
                ("inputdataconfig.json", contract::input_data_config(job)),
                ("resourceconfig.json", contract::resource_config(job, rank)),
                ("profilerconfig.json", contract::profiler_config(job)),
            ] {
                let path = config.join(file);
                fs::write(&path, value.to_string()).map_err(JobError::io(&path))?;
            }
            self.copy_code(&instance, source.as_deref())?;
            self.home(&instance).make()?;
            instances.push(instance);
        }
        self.install(&instances[0])?;
        Ok(instances)
    }

    /// Removes what an earlier start left, except data and checkpoints. After an interruption, which took the
    /// machine, it removes everything. Checkpoints that are mirrored to a place are downloaded from there.
    fn clear(&self, instance: &Instance, interrupted: bool) -> Result<(), JobError> {
        let remove = |path: PathBuf| match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(JobError::io(&path)(error)),
            _ => Ok(()),
        };
        if interrupted {
            return remove(instance.base.clone());
        }
        for left in ["code", "model", "output"] {
            remove(instance.base.join(left))?;
        }
        if self.job.checkpoints.is_none() {
            return Ok(());
        }
        let checkpoints = instance.checkpoints();
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if !record.checkpoints.as_ref().is_some_and(Kept::is_behind) || !checkpoints.exists() {
            return remove(checkpoints);
        }
        let aside = self
            .folder
            .file("unsent")
            .join(format!("{}-{:.0}", instance.host(), now()));
        let moved =
            fs::create_dir_all(self.folder.file("unsent")).and_then(|()| fs::rename(&checkpoints, &aside));
        moved.map_err(JobError::io(&aside))?;
        self.lines.say(&format!(
            "checkpoints: what could not be sent before lies in {}",
            aside.display()
        ));
        Ok(())
    }

    /// Installs the requirements of a Python script, as the toolkit does; a shell script can do so itself.
    fn install(&self, instance: &Instance) -> Result<(), JobError> {
        let code = &instance.code();
        let is_python = matches!(
            self.job.entry_point,
            EntryPoint::Python(_) | EntryPoint::Module(_)
        );
        if !is_python || !code.join(venv::REQUIREMENTS).exists() {
            return Ok(());
        }
        let maker = venv::Maker {
            job: self.job,
            jobs: self.jobs(),
            folder: &self.folder.0,
            lines: self.lines,
            home: &self.home(instance),
            stop: self.cuts.halt(),
        };
        let environment = maker.environment(code)?;
        self.environment.get_or_init(|| environment);
        Ok(())
    }

    /// The home folder of an instance. The installation uses the first instance's.
    fn home(&self, instance: &Instance) -> Home {
        Home(self.folder.file("home").join(instance.host()))
    }

    /// The folder of all jobs.
    fn jobs(&self) -> &Path {
        self.folder.0.parent().unwrap_or(Path::new("/"))
    }

    fn copy_code(&self, instance: &Instance, source: Option<&Path>) -> Result<(), JobError> {
        let (job, code) = (self.job, instance.code());
        if let Some(source) = source {
            archive::copy_folder(source, &code, self.jobs()).map_err(JobError::io(source))?;
        }
        let Some(file) = job.entry_point.file() else {
            return Ok(());
        };
        let inside = code.join(file);
        if !inside.is_file() {
            let source = job.source_dir.as_deref().unwrap_or(Path::new(""));
            return Err(JobError::Input(format!(
                "the entry point {file} is not in {}",
                source.display()
            )));
        }
        let facts = fs::metadata(&inside).map_err(JobError::io(&inside))?;
        let mode = fs::Permissions::from_mode(facts.permissions().mode() | 0o700);
        fs::set_permissions(&inside, mode).map_err(JobError::io(&inside))
    }

    /// Starts recording the machine. If that is not possible, the job goes on without it.
    fn profiler(&self, instances: &[Instance]) -> Result<Option<Profiler>, JobError> {
        if !self.job.profile {
            return Ok(None);
        }
        let command = contract::command(self.job, &instances[0]).unwrap_or_default();
        match Profiler::start(&self.folder.0, command) {
            Ok(profiler) => {
                self.timeline
                    .get_or_init(|| (profiler.address().to_owned(), profiler.metrics()));
                self.change(|record| record.profile = Some(self.folder.0.clone()))?;
                Ok(Some(profiler))
            }
            Err(error) => {
                self.lines.say(&format!("the machine is not recorded: {error}"));
                Ok(None)
            }
        }
    }

    /// Ends the recording and writes its report.
    fn report(&self, profiler: Option<Profiler>, code: Option<i32>) -> Result<(), JobError> {
        let Some(profiler) = profiler else { return Ok(()) };
        let page = profiler.finish(code);
        // The script's last messages may have been on their way when it ended.
        self.take_metrics();
        if let Err(error) = &page {
            self.lines.say(&format!("there is no report: {error}"));
        }
        self.change(|record| {
            record.metrics = self.lines.last();
            record.report = page.ok();
        })
    }

    /// Stores the numbers that the script sent.
    fn take_metrics(&self) {
        for metric in self.timeline.get().iter().flat_map(|(_, metrics)| metrics.take()) {
            self.lines.sent(&metric);
        }
    }

    /// Opens the data for the pipes of every instance, and makes the first pipes.
    fn pipes(&self, instances: &[Instance]) -> Result<Vec<(usize, String, Flow)>, JobError> {
        let mut piped = Vec::new();
        for instance in instances {
            for (name, channel) in self
                .job
                .channels
                .iter()
                .filter(|(_, channel)| channel.mode() == Mode::Pipe)
            {
                let failed = |source| JobError::Channel {
                    channel: name.clone(),
                    source,
                };
                let flow = Flow::of(self.job, channel, instance.rank).map_err(failed)?;
                let data = instance.data();
                pipe::make_first(&data, name).map_err(JobError::io(&data))?;
                piped.push((instance.rank, name.clone(), flow));
            }
        }
        Ok(piped)
    }

    /// Runs every instance to its end. The second value says whether the time limit was reached.
    fn train(
        &self,
        instances: &[Instance],
        piped: &[(usize, String, Flow)],
        complaints: &Complaints,
        keeper: Option<&mut Keeper<'_>>,
    ) -> (Result<Vec<Option<Ended>>, JobError>, bool) {
        let (late, give_up, over) = (
            AtomicBool::new(false),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        let folders: Vec<PathBuf> = instances.iter().map(Instance::data).collect();
        let trouble: Mutex<Option<JobError>> = Mutex::new(None);
        let blame = |error: JobError| {
            trouble
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .get_or_insert(error);
            give_up.store(true, Ordering::SeqCst);
        };
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut quit = false;
                while !quit {
                    quit = over.load(Ordering::SeqCst);
                    for line in complaints.take() {
                        self.lines.say(&line);
                    }
                    self.take_metrics();
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            for (rank, name, flow) in piped {
                let (channel, data) = (&self.job.channels[name], instances[*rank].data());
                let (over, blame) = (&over, &blame);
                scope.spawn(move || {
                    let fed = pipe::feed(flow, channel, &data, name, over);
                    // Once the script has ended, the data is not needed.
                    if let Err(source) = fed
                        && !over.load(Ordering::SeqCst)
                    {
                        blame(JobError::Channel {
                            channel: name.clone(),
                            source,
                        });
                    }
                });
            }
            if let Some(keeper) = keeper {
                let (over, blame) = (&over, &blame);
                scope.spawn(move || {
                    let report = |kept| self.change(|record| record.checkpoints = Some(kept));
                    if let Err(error) = keeper.follow(over, &report) {
                        blame(error);
                    }
                });
            }
            let running: Vec<_> = instances
                .iter()
                .map(|instance| {
                    let (late, give_up, blame) = (&late, &give_up, &blame);
                    let bound = data::bound(self.job, &folders, instance.rank);
                    scope.spawn(move || {
                        let ended = self.instance(instance, bound, give_up, late);
                        match ended {
                            Ok(ended) => {
                                if ended.as_ref().is_some_and(|ended| ended.code != 0) {
                                    give_up.store(true, Ordering::SeqCst);
                                }
                                ended
                            }
                            Err(error) => {
                                blame(error);
                                None
                            }
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = running
                .into_iter()
                .map(|thread| thread.join().unwrap_or(None))
                .collect();
            over.store(true, Ordering::SeqCst);
            ended
        });
        let trouble = trouble
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        (trouble.map_or(Ok(ended), Err), late.load(Ordering::SeqCst))
    }

    /// Runs one instance's process, on its own thread, whose cores the process inherits.
    fn instance(
        &self,
        instance: &Instance,
        bound: Vec<Bound>,
        give_up: &AtomicBool,
        late: &AtomicBool,
    ) -> Result<Option<Ended>, JobError> {
        let mut job = self.job.clone();
        if let Some(environment) = self.environment.get() {
            job.python = environment.join("bin/python");
        }
        let job = &job;
        let Some(words) = contract::command(job, instance) else {
            return Ok(None);
        };
        let mut command = Command::new(&words[0]);
        if let Some(environment) = self.environment.get() {
            let outer = std::env::var_os("PATH").unwrap_or_default();
            let paths = std::iter::once(environment.join("bin")).chain(std::env::split_paths(&outer));
            // PATH cannot hold a path with a colon; then keep the outer PATH.
            command.env("PATH", std::env::join_paths(paths).unwrap_or(outer.clone()));
            command.env("VIRTUAL_ENV", environment);
        }
        command.args(&words[1..]).current_dir(instance.code());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("SM_")) {
                command.env_remove(name);
            }
        }
        // Under MPI the first instance starts the processes of all instances.
        let place = match job.distribution {
            crate::Distribution::Mpi => self.place.clone(),
            _ => self.place.share(instance.rank, job.instances),
        };
        if place.gpus != Place::here().gpus {
            command.env(VISIBLE_GPUS, place.gpus.join(","));
        }
        if let Some((address, _)) = self.timeline.get() {
            command.env(stokehold_profile::timeline::VARIABLE, address);
        }
        command.envs(self.home(instance).variables());
        command.envs(contract::surroundings(job, instance));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        place.take()?;
        let spawned = match job.opt_ml {
            true => self.room(instance, bound).spawn(command),
            false => command.spawn(),
        };
        let mut child = spawned.map_err(JobError::io(Path::new(&words[0])))?;
        let group = i32::try_from(child.id()).unwrap_or_default();
        let known = Process::of(child.id());
        let quit = AtomicBool::new(false);
        let host = instance.host();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            if let Some(stdout) = stdout {
                scope.spawn(|| self.lines.read(&host, "out", stdout, &quit));
            }
            if let Some(stderr) = stderr {
                scope.spawn(|| self.lines.read(&host, "err", stderr, &quit));
            }
            let waited = self
                .change(|record| record.processes.extend(known))
                .and_then(|()| self.wait(&mut child, group, give_up, late));
            // End the whole group, as a container ends with its first process.
            signal_group(group, Signal::KILL);
            if waited.is_err() {
                // Reap the process that was just killed.
                let _ = child.wait();
            }
            quit.store(true, Ordering::SeqCst);
            waited.map(Some)
        })
    }

    /// What an instance's script sees of the machine.
    fn room<'i>(&self, instance: &'i Instance, bound: Vec<Bound>) -> Room<'i> {
        let rw = bound.iter().filter(|bound| bound.is_writable);
        let writable = rw.map(|bound| bound.folder.clone());
        Room {
            opt_ml: Some(&instance.base),
            read_only: room::system(),
            writable: writable.chain([self.folder.0.clone()]).collect(),
            bound,
        }
    }

    fn wait(
        &self,
        child: &mut std::process::Child,
        group: i32,
        give_up: &AtomicBool,
        late: &AtomicBool,
    ) -> Result<Ended, JobError> {
        let time = Duration::from_secs(self.job.max_run_seconds);
        let mut grace = Duration::from_secs(self.job.stop_seconds);
        let mut told: Option<Instant> = None;
        let mut killed = false;
        loop {
            if let Some(status) = child
                .try_wait()
                .map_err(JobError::io(Path::new("the script's process")))?
            {
                let code = exit_code(status);
                return Ok(Ended {
                    code,
                    told: told.is_some(),
                    // A shell reports with its exit code that the program it ran was killed.
                    killed: killed || status.code().is_none() || code == KILLED,
                });
            }
            let over = self.cuts.ran() >= time;
            let cut = self.cuts.why();
            if told.is_none() && (over || cut.is_some() || give_up.load(Ordering::SeqCst)) {
                late.fetch_or(over && cut.is_none(), Ordering::SeqCst);
                match (cut.filter(|cut| cut.is_interruption()), &self.job.spot) {
                    (Some(_), Some(spot)) => grace = Duration::from_secs(spot.grace_seconds),
                    _ => self.enter(Status::Stopping, Secondary::Stopping)?,
                }
                signal_group(group, Signal::TERM);
                told = Some(Instant::now());
            }
            if !killed && told.is_some_and(|told| told.elapsed() >= grace || self.cuts.kills()) {
                signal_group(group, Signal::KILL);
                killed = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes `output/success` or `output/failure`, unless the script has done so.
    fn leave_mark(&self, instance: &Instance, ended: Option<&Ended>) -> Result<(), JobError> {
        let output = instance.base.join("output");
        let (file, text) = match ended {
            Some(Ended {
                code, told: false, ..
            }) if *code != 0 => {
                let complaint = self.lines.complaint(&instance.host());
                let said = complaint.map(|line| format!(": {line}")).unwrap_or_default();
                (
                    "failure",
                    format!(
                        "{} ended with exit code {code}{}{said}",
                        instance.host(),
                        killed(*code)
                    ),
                )
            }
            Some(Ended { code: 0, .. }) | None => ("success", String::new()),
            Some(_) => return Ok(()),
        };
        let path = output.join(file);
        if path.exists() || !output.is_dir() {
            return Ok(());
        }
        fs::write(&path, text).map_err(JobError::io(&path))
    }

    fn reason(&self, instance: &Instance, code: i32) -> String {
        let said = fs::read(instance.base.join("output/failure")).unwrap_or_default();
        match String::from_utf8_lossy(&said).trim() {
            "" => format!("{} ended with exit code {code}{}", instance.host(), killed(code)),
            said => said.to_owned(),
        }
    }

    /// Packs the results into the job's folder, and copies them, the recording and its report to the output
    /// place, with SageMaker's layout.
    fn upload(&self, instances: &[Instance]) -> Result<(), JobError> {
        let folder = self.folder.file("output");
        fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
        let place = self
            .job
            .output
            .as_deref()
            .map(|uri| self.place(uri))
            .transpose()?;
        for (below, name) in [("model", "model.tar.gz"), ("output/data", "output.tar.gz")] {
            let from: Vec<PathBuf> = instances
                .iter()
                .map(|instance| instance.base.join(below))
                .filter(|path| path.is_dir())
                .collect();
            let to = folder.join(name);
            if !archive::pack(&from, &to).map_err(JobError::io(&to))? {
                continue;
            }
            let is_at = |uri: String| {
                self.change(|record| match below {
                    "model" => record.model = Some(uri),
                    _ => record.output = Some(uri),
                })
            };
            is_at(to.display().to_string())?;
            if let Some(bucket) = &place {
                is_at(self.send(bucket, &format!("output/{name}"), &to)?)?;
            }
        }
        for name in PROFILE {
            let folder = self.folder.file(name);
            if let Some(bucket) = place.as_ref().filter(|_| folder.is_dir()) {
                for (below, path) in archive::files(&folder).map_err(JobError::io(&folder))? {
                    self.send(bucket, &format!("{name}/{}", below.display()), &path)?;
                }
            }
        }
        Ok(())
    }

    /// Checks, before the script starts, whether results can be uploaded: puts an object at the output place
    /// and removes it.
    fn try_output(&self) -> Result<(), JobError> {
        let Some(uri) = &self.job.output else {
            return Ok(());
        };
        let bucket = self.place(uri)?;
        let key = format!(
            "{}/output/.writable",
            self.job.name.as_deref().unwrap_or_default()
        );
        let put = bucket.upload(&key, 0).and_then(|upload| upload.finish());
        put.map_err(JobError::Output)?;
        // With permission to put but not to delete, an empty object stays.
        let _ = bucket.delete(&key);
        Ok(())
    }

    fn place(&self, uri: &str) -> Result<Bucket, JobError> {
        if !uri.contains("://") {
            fs::create_dir_all(uri).map_err(JobError::io(Path::new(uri)))?;
        }
        data::open(self.job, uri).map_err(JobError::Output)
    }

    /// Uploads a file to the output place, piece by piece. Returns its URI there.
    fn send(&self, bucket: &Bucket, name: &str, path: &Path) -> Result<String, JobError> {
        let key = format!("{}/{name}", self.job.name.as_deref().unwrap_or_default());
        let disk = || JobError::io(path);
        let mut file = fs::File::open(path).map_err(disk())?;
        let size = file.metadata().map_err(disk())?.len();
        let mut upload = bucket.upload(&key, size).map_err(JobError::Output)?;
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece).map_err(disk())? {
                0 => break,
                n => upload.write(&piece[..n]).map_err(JobError::Output)?,
            }
        }
        upload.finish().map_err(JobError::Output)?;
        Ok(bucket.location().uri(&key))
    }
}

/// The folders of the recording and its report.
const PROFILE: [&str; 2] = [stokehold_profile::FOLDER, "rule-output"];

/// The exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;

fn killed(code: i32) -> &'static str {
    match code {
        KILLED => " (killed; most often the system was out of memory)",
        _ => "",
    }
}

/// A port that is free now.
fn free_port() -> Result<u16, JobError> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(JobError::io(Path::new("127.0.0.1")))
}

/// Makes this process the leader of its own session, so that it survives its terminal; for a runner that was
/// started in the background.
///
/// # Errors
/// The process is a group leader already.
pub fn detach() -> Result<(), JobError> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|error| JobError::io(Path::new("a session of its own"))(error.into()))
}
