//! From a claimed job to its end.
//!
//! ```text
//!  Starting ──► Downloading ──► Training ──► Uploading ──► Completed | Failed | Stopped
//!  folders,     channels of     a thread an  model and
//!  code, JSON   mode File, Dir  instance     output packed
//! ```
//!
//! One thread watches for the wish to stop (the caller's flag, the job's `stop` file); one an instance starts its process,
//! which leads a group of its own, waits for it, and ends the group with it, as a container ends with its first process;
//! two an instance read its lines; one a pipe feeds it. All of them end with the job.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stokehold_objects::Bucket;

use crate::contract::{self, Instance};
use crate::data::{self, Objects};
use crate::lines::{Line, Lines};
use crate::mount::{self, Complaints, Mounts};
use crate::process::{self, Process, exit_code, signal_group};
use crate::profiler::Profiler;
use crate::store::{Claim, Folder, Record, Secondary, Status, now};
use crate::{EntryPoint, Job, JobError, Mode, archive, pipe, venv};

/// Runs a claimed job to its end in this process; `show` gets every line when it comes, `stop` stops it.
///
/// The record says how it ended; a script that fails, or data that cannot be had, is a failed job and no error.
///
/// # Errors
/// The job's state or its logs cannot be written.
pub fn run(claim: Claim, stop: &AtomicBool, show: &(dyn Fn(&Line<'_>) + Sync)) -> Result<Record, JobError> {
    let Claim {
        folder,
        job,
        record,
        lock: _lock,
    } = claim;
    let lines = Lines::new(&folder, &job, show)?;
    let runner = Runner {
        job: &job,
        folder: &folder,
        lines: &lines,
        record: Mutex::new(record),
        halt: AtomicBool::new(false),
        kill: AtomicBool::new(false),
        environment: OnceLock::new(),
        timeline: OnceLock::new(),
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                if stop.load(Ordering::SeqCst) || folder.stop_wanted() {
                    runner.halt.store(true, Ordering::SeqCst);
                    runner.kill.store(folder.kill_wanted(), Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let ended = runner.work();
        over.store(true, Ordering::SeqCst);
        ended
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
    record: Mutex<Record>,
    /// The job is to stop.
    halt: AtomicBool,
    /// At once.
    kill: AtomicBool,
    /// The virtual environment, where there are requirements.
    environment: OnceLock<PathBuf>,
    /// Where the script may send its spans.
    timeline: OnceLock<OsString>,
}

/// How an instance's process ended.
struct Ended {
    code: i32,
    /// It was told to: a stop, its time, another instance's failure.
    told: bool,
}

impl Runner<'_> {
    fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), JobError> {
        let mut record = self
            .record
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        change(&mut record);
        self.folder.write(&record)
    }

    fn enter(&self, status: Status, secondary: Secondary) -> Result<(), JobError> {
        self.change(|record| record.enter(status, secondary))
    }

    fn fail(&self, reason: &str) -> Result<(), JobError> {
        self.change(|record| record.fail(reason))
    }

    fn is_halted(&self) -> bool {
        self.halt.load(Ordering::SeqCst)
    }

    /// Every way out leaves a final state.
    fn work(&self) -> Result<(), JobError> {
        let instances = match self.start() {
            Ok(instances) => instances,
            Err(_) if self.is_halted() => return self.enter(Status::Stopped, Secondary::Stopped),
            Err(error) => return self.fail(&format!("ClientError: {error}")),
        };
        let profiler = self.profiler(&instances)?;
        self.enter(Status::InProgress, Secondary::Downloading)?;
        let folders: Vec<PathBuf> = instances.iter().map(Instance::data).collect();
        let brought = data::bring(self.job, &folders, &self.halt);
        let mounted = brought.and_then(|()| Mounts::new(self.job, &folders));
        let piped = mounted.and_then(|mounts| Ok((mounts, self.pipes(&instances)?)));
        if self.is_halted() {
            return self.enter(Status::Stopped, Secondary::Stopped);
        }
        let (mounts, piped) = match piped {
            Ok(piped) => piped,
            Err(error) => return self.fail(&format!("ClientError: {error}")),
        };
        self.change(|record| {
            record.training_started = Some(now());
            record.training_ended = None;
            record.processes.clear();
            record.enter(Status::InProgress, Secondary::Training);
        })?;
        let (result, late) = self.train(&instances, &piped, &mounts.complaints);
        drop(mounts);
        self.change(|record| {
            record.training_ended = Some(now());
            record.metrics = self.lines.last();
        })?;
        let ended = match result {
            Ok(ended) => ended,
            Err(error) => return self.fail(&format!("ClientError: {error}")),
        };
        // The first that failed by itself decides; those that were told to end may say anything.
        let decisive = ended
            .iter()
            .flatten()
            .position(|ended| ended.code != 0 && !ended.told);
        let told = ended.iter().flatten().any(|ended| ended.told);
        let failed = decisive.filter(|_| !late && !self.is_halted());
        for (instance, ended) in instances.iter().zip(&ended) {
            self.leave_mark(instance, ended.as_ref())?;
        }
        let code = failed
            .or(decisive)
            .and_then(|i| ended.iter().flatten().nth(i))
            .map(|ended| ended.code);
        let code = code.or(ended.iter().flatten().map(|ended| ended.code).max());
        self.change(|record| record.exit_code = code)?;
        self.report(profiler, code)?;
        self.enter(
            if told {
                Status::Stopping
            } else {
                Status::InProgress
            },
            Secondary::Uploading,
        )?;
        if let Err(error) = self.upload(&instances) {
            return self.fail(&format!("ClientError: {error}"));
        }
        if let Some(missing) = self.lines.failed() {
            return self.fail(&format!(
                "InternalServerError: the job's lines could not be stored: {missing}"
            ));
        }
        match failed {
            Some(i) => self.fail(&self.reason(&instances[i], code.unwrap_or(1))),
            None if told && late => self.enter(Status::Stopped, Secondary::MaxRuntimeExceeded),
            None if told => self.enter(Status::Stopped, Secondary::Stopped),
            None => self.enter(Status::Completed, Secondary::Completed),
        }
    }

    /// Folders, code and configuration of every instance.
    fn start(&self) -> Result<Vec<Instance>, JobError> {
        let job = self.job;
        let name = job.name.clone().unwrap_or_default();
        // What a runner that was killed left.
        mount::clear(&self.folder.0).map_err(JobError::io(&self.folder.0))?;
        let (cores, gpus) = (process::cores(), process::gpus());
        let port = free_port()?;
        let mut instances = Vec::new();
        for rank in 0..job.instances {
            let instance = Instance {
                job: name.clone(),
                rank,
                base: self.folder.file(&contract::host(rank)),
                cpus: process::share(&cores, rank, job.instances).len(),
                gpus: process::share(&gpus, rank, job.instances).len(),
                port,
            };
            // What an earlier run left; its data and checkpoints stay.
            for left in ["code", "model", "output"] {
                let path = instance.base.join(left);
                match fs::remove_dir_all(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(JobError::io(&path)(error));
                    }
                    _ => {}
                }
            }
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
            ] {
                let path = config.join(file);
                fs::write(&path, value.to_string()).map_err(JobError::io(&path))?;
            }
            self.copy_code(&instance)?;
            instances.push(instance);
        }
        self.install(&instances[0].code())?;
        Ok(instances)
    }

    /// Installs the requirements of a Python script, as the toolkit does; a shell script may do so itself.
    fn install(&self, code: &Path) -> Result<(), JobError> {
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
            stop: &self.halt,
        };
        let environment = maker.environment(code)?;
        self.environment.get_or_init(|| environment);
        Ok(())
    }

    /// The folder of all jobs.
    fn jobs(&self) -> &Path {
        self.folder.0.parent().unwrap_or(Path::new("/"))
    }

    fn copy_code(&self, instance: &Instance) -> Result<(), JobError> {
        let (job, code) = (self.job, instance.code());
        if let Some(source) = &job.source_dir {
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

    /// Begins the recording of the machine. A job does not fail where that is not possible.
    fn profiler(&self, instances: &[Instance]) -> Result<Option<Profiler>, JobError> {
        if !self.job.profile {
            return Ok(None);
        }
        let command = contract::command(self.job, &instances[0]).unwrap_or_default();
        match Profiler::start(&self.folder.0, command) {
            Ok(profiler) => {
                self.timeline.get_or_init(|| profiler.address().to_owned());
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
        match profiler.map(|profiler| profiler.finish(code)) {
            Some(Ok(page)) => self.change(|record| record.report = Some(page)),
            Some(Err(error)) => {
                self.lines.say(&format!("there is no report: {error}"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Opens what the pipes of every instance will carry, and makes the first ones.
    fn pipes(&self, instances: &[Instance]) -> Result<Vec<(usize, String, Objects)>, JobError> {
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
                let found = Objects::of(self.job, channel, instance.rank).map_err(failed)?;
                let data = instance.data();
                pipe::make_first(&data, name).map_err(JobError::io(&data))?;
                piped.push((instance.rank, name.clone(), found));
            }
        }
        Ok(piped)
    }

    /// Runs every instance to its end. The second value: whether the time was over.
    fn train(
        &self,
        instances: &[Instance],
        piped: &[(usize, String, Objects)],
        complaints: &Complaints,
    ) -> (Result<Vec<Option<Ended>>, JobError>, bool) {
        let (late, give_up, over) = (
            AtomicBool::new(false),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
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
                    self.tell(complaints);
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            for (rank, name, found) in piped {
                let (channel, data) = (&self.job.channels[name], instances[*rank].data());
                let (over, blame) = (&over, &blame);
                scope.spawn(move || {
                    let fed = pipe::feed(found, channel, &data, name, over);
                    // When the script has ended, nobody needs the data.
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
            let running: Vec<_> = instances
                .iter()
                .map(|instance| {
                    let (late, give_up, blame) = (&late, &give_up, &blame);
                    scope.spawn(move || {
                        let ended = self.instance(instance, give_up, late);
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

    /// Writes into the log what went wrong while scripts read.
    fn tell(&self, complaints: &Complaints) {
        for text in complaints.take() {
            self.lines.add(&Line {
                time: now(),
                host: "runner",
                stream: "err",
                text: &text,
            });
        }
    }

    /// Runs one instance's process, on a thread of its own whose cores the process inherits.
    fn instance(
        &self,
        instance: &Instance,
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
            // A path with a colon cannot be said; then programs are found where they were.
            command.env("PATH", std::env::join_paths(paths).unwrap_or(outer.clone()));
            command.env("VIRTUAL_ENV", environment);
        }
        command.args(&words[1..]).current_dir(instance.code());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("SM_")) {
                command.env_remove(name);
            }
        }
        let gpus = process::gpus();
        if job.instances > 1 && !gpus.is_empty() {
            let share = process::share(&gpus, instance.rank, job.instances);
            let share: Vec<_> = share.iter().map(ToString::to_string).collect();
            command.env("CUDA_VISIBLE_DEVICES", share.join(","));
        }
        if let Some(address) = self.timeline.get() {
            command.env(stokehold_profile::timeline::VARIABLE, address);
        }
        command.envs(contract::surroundings(job, instance));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if job.instances > 1 && job.distribution != crate::Distribution::Mpi {
            let cores = process::share(&process::cores(), instance.rank, job.instances);
            process::stay_on(&cores).map_err(JobError::io(Path::new("the cores of this process")))?;
        }
        let mut child = command.spawn().map_err(JobError::io(Path::new(&words[0])))?;
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
            // A container ends with its first process, whatever else runs in it.
            signal_group(group, Signal::KILL);
            if waited.is_err() {
                // Killed just now; collected so that no zombie stays.
                let _ = child.wait();
            }
            quit.store(true, Ordering::SeqCst);
            waited.map(Some)
        })
    }

    fn wait(
        &self,
        child: &mut std::process::Child,
        group: i32,
        give_up: &AtomicBool,
        late: &AtomicBool,
    ) -> Result<Ended, JobError> {
        let started = Instant::now();
        let (time, grace) = (
            Duration::from_secs(self.job.max_run_seconds),
            Duration::from_secs(self.job.stop_seconds),
        );
        let mut told: Option<Instant> = None;
        let mut killed = false;
        loop {
            if let Some(status) = child
                .try_wait()
                .map_err(JobError::io(Path::new("the script's process")))?
            {
                return Ok(Ended {
                    code: exit_code(status),
                    told: told.is_some(),
                });
            }
            let over = started.elapsed() >= time;
            if told.is_none() && (over || self.is_halted() || give_up.load(Ordering::SeqCst)) {
                late.fetch_or(over && !self.is_halted(), Ordering::SeqCst);
                self.enter(Status::Stopping, Secondary::Stopping)?;
                signal_group(group, Signal::TERM);
                told = Some(Instant::now());
            }
            let kill = || self.kill.load(Ordering::SeqCst);
            if !killed && told.is_some_and(|told| told.elapsed() >= grace || kill()) {
                signal_group(group, Signal::KILL);
                killed = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `output/success` or `output/failure`, where the script has not left one itself.
    fn leave_mark(&self, instance: &Instance, ended: Option<&Ended>) -> Result<(), JobError> {
        let output = instance.base.join("output");
        let (file, text) = match ended {
            Some(Ended { code, told: false }) if *code != 0 => {
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

    /// Packs the results into the job's folder, and copies them, the recording and its report to the output's place, laid
    /// out as SageMaker does.
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
            let uri = match &place {
                Some(bucket) => self.send(bucket, &format!("output/{name}"), &to)?,
                None => to.display().to_string(),
            };
            self.change(|record| match below {
                "model" => record.model = Some(uri),
                _ => record.output = Some(uri),
            })?;
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

    fn place(&self, uri: &str) -> Result<Bucket, JobError> {
        if !uri.contains("://") {
            fs::create_dir_all(uri).map_err(JobError::io(Path::new(uri)))?;
        }
        data::open(self.job, uri).map_err(JobError::Output)
    }

    fn send(&self, bucket: &Bucket, name: &str, file: &Path) -> Result<String, JobError> {
        let bytes = fs::read(file).map_err(JobError::io(file))?;
        let key = format!("{}/{name}", self.job.name.as_deref().unwrap_or_default());
        bucket.put(&key, bytes).map_err(JobError::Output)?;
        Ok(bucket.location().uri(&key))
    }
}

/// The folders of the recording and its report.
const PROFILE: [&str; 2] = [stokehold_profile::FOLDER, "rule-output"];

fn killed(code: i32) -> &'static str {
    match code {
        137 => " (killed; most often the system was out of memory)",
        _ => "",
    }
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16, JobError> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(JobError::io(Path::new("127.0.0.1")))
}

/// Makes this process the leader of a session of its own, so that the terminal's end is not its own; for a runner that was
/// started in the background.
///
/// # Errors
/// It leads a group already.
pub fn detach() -> Result<(), JobError> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|error| JobError::io(Path::new("a session of its own"))(error.into()))
}
