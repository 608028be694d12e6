//! The folder of all jobs, and the state of each.
//!
//! ```text
//! ROOT/<name>/job.json       the job's description
//! ROOT/<name>/state.json     its state: replaced as a whole, by the runner alone
//! ROOT/<name>/lock           locked by the runner while it lives
//! ROOT/<name>/stop           exists if a stop was requested; with "kill" in it: at once
//! ROOT/<name>/interrupt      exists if its machine is taken away
//! ROOT/<name>/lease          the number that identifies it at its place for checkpoints
//! ROOT/<name>/log            every line: time, host, stream, text
//! ROOT/<name>/metrics.jsonl  every number that was found in a line, or sent through the timeline
//! ROOT/<name>/algo-1/        the instance's folder, `/opt/ml` in a container
//! ROOT/<name>/writes/        what the script has written to channels of mode Cache and is not in the bucket yet
//! ROOT/<name>/unsent/        files that could not be sent to a bucket
//! ROOT/<name>/home/          home folders of its installation and its instances
//! ROOT/<name>/output/        model.tar.gz, output.tar.gz
//! ROOT/<name>/profiler-output/, rule-output/   the recording of the machine, and its report
//! ROOT/<name>/runner.log     other messages of the runner, for a job in the background
//! ROOT/<name>/slurm.json     its number at Slurm, if it was handed to Slurm
//! ROOT/.environments/        virtual environments of requirements.txt, shared; may be removed
//! ROOT/.pip/                 pip's download cache for them; may be removed
//! ```
//!
//! The kernel holds the lock: it is released when the process ends, also by kill -9 or a reboot. If the state
//! says "in progress" but the lock is free, the runner has died. The first process that sees this takes the
//! lock, ends the processes that the runner left, and records the failure. Those processes are identified by
//! number, start time and boot, so that another process with the same number is never taken for one of them.

mod folder;
mod record;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_base::clock::unix_now as now;
use stokehold_base::lock;
use stokehold_base::there::if_there;
use stokehold_base::whole;

use crate::data::{self, mount, mountinfo, source};
use crate::job::{is_a_path, is_name};
use crate::runner::nodes::Nodes;
use crate::runner::place::Place;
use crate::runner::process::Process;
use crate::runner::room;
use crate::slurm::{self, Submitted};
use crate::{Bill, Job, JobError, writes};

pub(crate) use folder::Folder;
pub use folder::METRICS;
use folder::{KILL, SLURM};
use record::RUNNER_DIED;
pub use record::{FinalMetric, Record, Secondary, Status, Transition};

/// All jobs of a folder.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    /// What Slurm said last of jobs that are alive, and when, by number: its controller serves a whole cluster.
    asked: Arc<Mutex<BTreeMap<u64, (Instant, String)>>>,
}

/// How often Slurm is asked about a job.
const ASK: Duration = Duration::from_secs(5);

/// A job that this process runs: it holds the lock.
#[derive(Debug)]
pub struct Claim {
    pub(crate) folder: Folder,
    pub(crate) job: Job,
    pub(crate) record: Record,
    pub(crate) place: Place,
    pub(crate) nodes: Option<Nodes>,
    /// Held until it is dropped.
    pub(crate) lock: File,
}

impl Claim {
    /// The job's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Restricts the job to a part of the machine, for this run only.
    #[must_use]
    pub fn on(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Runs the job's instances on the nodes of the Slurm job that this process runs in, where it has several.
    ///
    /// # Errors
    /// There are fewer nodes than instances; the job needs what only one machine has.
    fn on_nodes(self) -> Result<Self, JobError> {
        let nodes = Nodes::of(&self.job)?;
        Ok(Self { nodes, ..self })
    }
}

impl Store {
    /// The store in a folder, which is created with the first job.
    ///
    /// # Errors
    /// The folder's path cannot be made absolute.
    pub fn new(root: &Path) -> Result<Self, JobError> {
        let root = std::path::absolute(root).map_err(JobError::io(root))?;
        Ok(Self {
            root,
            asked: Arc::default(),
        })
    }

    /// The store at `$STOKEHOLD_JOBS`, or at `stokehold/jobs` in the user's data folder.
    ///
    /// # Errors
    /// There is no home folder, and no variable names a folder.
    pub fn of_user() -> Result<Self, JobError> {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let data = || set("XDG_DATA_HOME").or_else(|| Some(std::env::home_dir()?.join(".local/share")));
        match set("STOKEHOLD_JOBS").or_else(|| Some(data()?.join("stokehold/jobs"))) {
            Some(root) => Self::new(&root),
            None => Err(JobError::Input(
                "no home folder; set STOKEHOLD_JOBS to the folder of the jobs".to_owned(),
            )),
        }
    }

    /// The store's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a job.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates a job: its folder, its file, its first state. This process or another one may run it.
    ///
    /// # Errors
    /// An error of [`Job::check`]; the entry point does not exist; a job of this name exists; the folder of a channel
    /// does not exist; nothing is mounted where a channel of [`Kind::Mount`](crate::Kind::Mount) is;
    /// [`JobError::Room`].
    pub fn create(&self, job: &Job) -> Result<String, JobError> {
        job.check()?;
        self.probe(job)?;
        self.make(job)
    }

    /// Whether [`create`](Self::create) would create this job now; nothing is written.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn check(&self, job: &Job) -> Result<(), JobError> {
        job.check()?;
        self.probe(job)?;
        let name = job.name_or_made();
        let folder = self.path(&name);
        settled(job, &name, &folder)?;
        match folder.exists() {
            true => Err(taken(&name)),
            false => Ok(()),
        }
    }

    /// Starts a process that runs a job in the background, and returns once it holds the job. It survives this process and its
    /// terminal. `program` is the command line, whose `job runner` it becomes; the caller may wait for it to end.
    ///
    /// # Errors
    /// There is no such job; [`JobError::Runner`] if the process does not get hold of the job, or not in two minutes. A job that was
    /// never run has failed then.
    pub fn start(&self, name: &str, program: &Path, resume: bool) -> Result<Child, JobError> {
        // So that an unknown name is reported here.
        self.get(name)?;
        let log = self.path(name).join("runner.log");
        // What an earlier runner said stays: it may still run.
        let errors = File::options().append(true).create(true).open(&log);
        let errors = errors.map_err(JobError::io(&log))?;
        let before = errors.metadata().map_err(JobError::io(&log))?.len() as usize;
        let mut command = Command::new(program);
        command
            .arg("job")
            .arg("--jobs")
            .arg(&self.root)
            .args(["runner", name])
            .args(resume.then_some("--resume"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors);
        let started = command.spawn().map_err(JobError::io(program));
        let started = started.and_then(|runner| ready(runner, program, &log, before));
        if let Err(error) = &started {
            self.fail_unstarted(name, &error.to_string());
        }
        started
    }

    /// A job whose runner could not be started has failed, unless something holds it or has run it.
    fn fail_unstarted(&self, name: &str, reason: &str) {
        let failed = || -> Result<(), JobError> {
            let (folder, _lock) = self.locked(name)?;
            let mut record = self.get(name)?;
            if !record.status.is_final() && record.runner.is_none() {
                record.fail(reason);
                folder.write(&record)?;
            }
            Ok(())
        };
        // The first error is the one to report.
        if let Err(error) = failed() {
            tracing::debug!(name, %error, "the state of a job that was not started");
        }
    }

    /// Creates a job and hands it to Slurm, with further options of `sbatch`. Its runner is this program, on a node: `program`
    /// and the store's folder have to be there under the same paths.
    ///
    /// # Errors
    /// Those of [`create`](Self::create) but those of channels and [`JobError::Room`], which only a node can tell;
    /// [`JobError::Slurm`]. Then there is no job.
    pub fn submit(&self, job: &Job, program: &Path, options: &[String]) -> Result<String, JobError> {
        let name = self.make(job)?;
        let (folder, _lock) = self.locked(&name)?;
        if let Err(error) = hand_over(self, &name, &folder, program, options) {
            // Report the first error.
            let _ = fs::remove_dir_all(&folder.0);
            return Err(error);
        }
        Ok(name)
    }

    /// Hands a job that failed or was stopped to Slurm, to continue it as [`resume`](Self::resume) does.
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume) but [`JobError::Room`]; [`JobError::Slurm`]. Then the job is as it was.
    pub fn resubmit(&self, name: &str, program: &Path, options: &[String]) -> Result<(), JobError> {
        let before = self.get(name)?;
        let claim = self.again(name)?;
        hand_over(self, name, &claim.folder, program, options).inspect_err(|_| {
            // Report the first error.
            let _ = claim.folder.write(&before);
        })
    }

    /// Checks whether this machine has what the job needs.
    fn probe(&self, job: &Job) -> Result<(), JobError> {
        data::check(job)?;
        mountinfo::check(job)?;
        if !job.opt_ml {
            return Ok(());
        }
        room::probe()?;
        if writes::channels(job).next().is_none() {
            return Ok(());
        }
        fs::create_dir_all(&self.root).map_err(JobError::io(&self.root))?;
        room::probe_overlay(&self.root)
    }

    fn make(&self, job: &Job) -> Result<String, JobError> {
        job.check()?;
        let name = job.name_or_made();
        let folder = self.path(&name);
        let (job, kept) = settled(job, &name, &folder)?;
        fs::create_dir_all(&self.root).map_err(JobError::io(&self.root))?;
        // Made under a temporary name and renamed, so that a job exists completely or not at all.
        let unique = format!(".{name}.{}.{}.part", std::process::id(), (now() * 1e6) as u64);
        let aside = Folder(self.root.join(unique));
        let made = fs::create_dir(&aside.0)
            .map_err(JobError::io(&aside.0))
            .and_then(|()| fill(&aside, &job, kept.as_deref()))
            .and_then(|()| {
                fs::rename(&aside.0, &folder).map_err(|error| match folder.exists() {
                    true => taken(&name),
                    false => JobError::io(&folder)(error),
                })
            });
        if let Err(error) = made {
            // Report the first error.
            let _ = fs::remove_dir_all(&aside.0);
            return Err(error);
        }
        Ok(name)
    }

    /// Claims a job that has not ended, to run it in this process: one that was just created, or whose runner
    /// died.
    ///
    /// # Errors
    /// Another process runs it; it has ended.
    pub fn claim(&self, name: &str) -> Result<Claim, JobError> {
        let (folder, lock) = self.locked(name)?;
        let record = folder.read()?;
        if record.status.is_final() {
            return Err(JobError::Input(format!(
                "job {name} has ended; resume it, or run it under another name"
            )));
        }
        self.claimed(folder, record, lock)
    }

    /// Claims a job on the node that Slurm has given it. With `again`, Slurm has put it back into its queue: after the loss of a
    /// node, or a preemption that ended its script.
    ///
    /// # Errors
    /// Another process runs it; it has ended; there are fewer nodes than instances, or the job needs what only one machine has.
    pub fn claim_on_node(&self, name: &str, again: bool) -> Result<Claim, JobError> {
        let (folder, lock) = self.locked(name)?;
        let record = folder.read()?;
        let goes_on = again && record.status == Status::Stopped && !folder.stop_wanted();
        drop(lock);
        let claim = if goes_on {
            self.again(name)
        } else {
            self.claim(name)
        };
        claim?.on_nodes()
    }

    /// Claims a job that failed or was stopped, to continue it: in its own folders, with the data that was
    /// copied and its checkpoints. The code is copied again.
    ///
    /// # Errors
    /// It runs, or has completed; the folder of a channel does not exist; [`JobError::Room`].
    pub fn resume(&self, name: &str) -> Result<Claim, JobError> {
        self.get(name)?;
        self.probe(&self.job(name)?)?;
        self.again(name)
    }

    fn again(&self, name: &str) -> Result<Claim, JobError> {
        let (folder, lock) = self.locked(name)?;
        let mut record = folder.read()?;
        if record.status == Status::Completed {
            return Err(JobError::Input(format!(
                "job {name} was completed; there is nothing to resume"
            )));
        }
        for wish in ["stop", "interrupt", folder::GAVE_UP] {
            let wish = folder.file(wish);
            if wish.exists() {
                fs::remove_file(&wish).map_err(JobError::io(&wish))?;
            }
        }
        record.failure_reason = None;
        record.stopped_by = None;
        record.runner_died = false;
        record.exit_code = None;
        record.enter(Status::InProgress, Secondary::Starting);
        self.claimed(folder, record, lock)
    }

    /// Takes the lock. Waits for processes that only read the state: they hold it for a moment.
    fn locked(&self, name: &str) -> Result<(Folder, File), JobError> {
        let folder = self.folder(name)?;
        match folder.lock(lock::MOMENT)? {
            Some(lock) => Ok((folder, lock)),
            None => Err(JobError::Input(format!("job {name} runs in another process"))),
        }
    }

    fn claimed(&self, folder: Folder, mut record: Record, lock: File) -> Result<Claim, JobError> {
        record.runner = Process::of(std::process::id());
        folder.write(&record)?;
        Ok(Claim {
            job: folder.job()?,
            folder,
            record,
            place: Place::here(),
            nodes: None,
            lock,
        })
    }

    fn folder(&self, name: &str) -> Result<Folder, JobError> {
        let missing = || JobError::NoSuchJob {
            name: name.to_owned(),
            root: self.root.clone(),
        };
        let folder = Folder(self.path(name));
        match is_name(name) && folder.file("state.json").exists() {
            true => Ok(folder),
            false => Err(missing()),
        }
    }

    /// The state of a job, for those who may only look: nothing is written, ended or asked. A job whose runner has died is shown as
    /// failed, and stays as it is.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn look(&self, name: &str) -> Result<Record, JobError> {
        let folder = self.folder(name)?;
        let mut record = folder.read()?;
        record.slurm = folder.slurm()?;
        if record.status.is_final() {
            return Ok(record);
        }
        record.metrics = folder.metrics();
        let lock = folder.file("lock");
        let is_new = record.runner.is_none() && now() - record.created < PATIENCE.as_secs_f64();
        if record.slurm.is_none() && !is_new && !lock::is_held(&lock).map_err(JobError::io(&lock))? {
            record.runner_died = true;
            record.fail(&folder.end_of_runner(&record));
        }
        Ok(record)
    }

    /// The state of a job. If its runner died, this ends the job.
    ///
    /// # Errors
    /// There is no job of this name; its files cannot be read.
    pub fn get(&self, name: &str) -> Result<Record, JobError> {
        let folder = self.folder(name)?;
        let record = folder.read()?;
        let slurm = folder.slurm()?;
        if record.status.is_final() {
            return Ok(Record { slurm, ..record });
        }
        let Some(lock) = folder.lock(Duration::ZERO)? else {
            return Ok(Record {
                metrics: folder.metrics(),
                slurm,
                ..record
            });
        };
        if let Some(submitted) = slurm {
            // A runner that begins now has to find its lock free.
            drop(lock);
            let state = match self.at_slurm(&submitted) {
                Ok(slurm::State::Alive(state)) => state,
                Ok(ended) => {
                    let record = self.ended_at_slurm(&folder, &submitted, &ended)?;
                    return Ok(Record {
                        slurm: Some(submitted),
                        ..record
                    });
                }
                // Nothing is known of it.
                Err(error) => error.to_string(),
            };
            return Ok(Record {
                metrics: folder.metrics(),
                slurm: Some(Submitted {
                    state: Some(state),
                    ..submitted
                }),
                ..record
            });
        }
        // The job may have ended since the first read.
        let mut record = folder.read()?;
        let is_new = record.runner.is_none() && now() - record.created < PATIENCE.as_secs_f64();
        if record.status.is_final() || is_new {
            return Ok(record);
        }
        for process in &record.processes {
            process.end_group();
        }
        record.metrics = folder.metrics();
        let reason = folder.end_of_runner(&record);
        let left = match mount::clear(&folder.0) {
            Ok(_) => String::new(),
            Err(error) => format!("; its mounted channels are still there: {error}"),
        };
        record.runner_died = true;
        record.fail(&format!("{reason}{left}"));
        // It ended then, whenever the state is read.
        if let ([.., before, end], Some(last)) = (record.transitions.as_mut_slice(), folder.last_sign()) {
            end.start = last.max(before.start);
        }
        let end = record.transitions.last().map(|transition| transition.start);
        record.training_ended = record.training_started.and(end);
        match folder.write(&record) {
            // It is the same at the next look.
            Err(error) if !error.is_disk_full() => Err(error),
            _ => Ok(record),
        }
    }

    /// Where a job is by Slurm, which is asked of a job that is alive no more often than every [`ASK`].
    fn at_slurm(&self, submitted: &Submitted) -> Result<slurm::State, JobError> {
        let asked = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, state)) = asked().get(&submitted.id)
            && when.elapsed() < ASK
        {
            return Ok(slurm::State::Alive(state.clone()));
        }
        let state = submitted.look()?;
        if let slurm::State::Alive(state) = &state {
            asked().insert(submitted.id, (Instant::now(), state.clone()));
        }
        Ok(state)
    }

    /// The state of a job that Slurm has ended, and no runner.
    fn ended_at_slurm(
        &self,
        folder: &Folder,
        submitted: &Submitted,
        how: &slurm::State,
    ) -> Result<Record, JobError> {
        let Some(_lock) = folder.lock(Duration::ZERO)? else {
            return folder.read();
        };
        // The runner may have ended the job since the first read.
        let mut record = folder.read()?;
        if record.status.is_final() {
            return Ok(record);
        }
        record.metrics = folder.metrics();
        let during = record.secondary;
        let id = submitted.id;
        match how {
            slurm::State::Ended(how) if how == "CANCELLED" => {
                record.enter(Status::Stopped, Secondary::Stopped);
            }
            slurm::State::Ended(how) if how == "TIMEOUT" => {
                record.enter(Status::Stopped, Secondary::MaxRuntimeExceeded);
            }
            how => {
                let how = match how {
                    slurm::State::Ended(how) => format!("ended it as {how}"),
                    _ => "no longer knows it".to_owned(),
                };
                let said = folder
                    .last_words()
                    .map(|said| format!(": {said}"))
                    .unwrap_or_default();
                record.runner_died = true;
                record.fail(&format!(
                    "{RUNNER_DIED} while it was {during:?}: Slurm {how} (job {id}){said}"
                ));
            }
        }
        let end = record.transitions.last().map(|transition| transition.start);
        record.training_ended = record.training_started.and(end);
        folder.write(&record)?;
        Ok(record)
    }

    /// The job's description, including secrets; use [`Job::without_secrets`] to show it.
    ///
    /// # Errors
    /// There is no job of this name; its file cannot be read.
    pub fn job(&self, name: &str) -> Result<Job, JobError> {
        self.folder(name)?.job()
    }

    /// Every job, the oldest first.
    ///
    /// # Errors
    /// A job's files cannot be read.
    pub fn list(&self) -> Result<Vec<Record>, JobError> {
        let (records, errors) = self.list_readable()?;
        errors.into_iter().next().map_or(Ok(records), Err)
    }

    /// Every job that can be read, the oldest first, and the errors of the others.
    ///
    /// # Errors
    /// The folder itself cannot be read.
    pub fn list_readable(&self) -> Result<(Vec<Record>, Vec<JobError>), JobError> {
        let entries = if_there(fs::read_dir(&self.root)).map_err(JobError::io(&self.root))?;
        let Some(entries) = entries else {
            return Ok(Default::default());
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for name in names {
            match self.get(&name) {
                Ok(record) => records.push(record),
                // Not a job, or one that is just being created or removed.
                Err(JobError::NoSuchJob { .. }) => {}
                Err(error) => errors.push(error),
            }
        }
        records.sort_by(|a, b| a.created.total_cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
        Ok((records, errors))
    }

    /// Stops a job: SIGTERM to its script, and SIGKILL after `stop-seconds`. Returns at once; see
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// There is no job of this name.
    pub fn stop(&self, name: &str) -> Result<Record, JobError> {
        self.tell(name, b"")
    }

    /// As [`stop`](Self::stop), but with SIGKILL at once.
    ///
    /// # Errors
    /// There is no job of this name.
    pub fn kill(&self, name: &str) -> Result<Record, JobError> {
        self.tell(name, KILL)
    }

    fn tell(&self, name: &str, how: &[u8]) -> Result<Record, JobError> {
        let record = self.get(name)?;
        if !record.status.is_final() {
            let path = self.path(name).join("stop");
            // Written aside and renamed: a link of this name leads nowhere else.
            whole::write(&path, how).map_err(JobError::io(&path))?;
            // Where no runner is, none will read the file.
            let folder = self.folder(name)?;
            if let (Some(submitted), Some(lock)) = (folder.slurm()?, folder.lock(Duration::ZERO)?) {
                drop(lock);
                submitted.cancel()?;
            }
        }
        Ok(record)
    }

    /// Announces to a job on spot machines ([`Job::spot`]) that its machine will be taken away: its script
    /// gets SIGTERM, its checkpoints are sent to their place, and it becomes `Stopped`, `Interrupted`, to be
    /// resumed elsewhere. Returns at once.
    ///
    /// # Errors
    /// There is no job of this name; it is not on spot machines.
    pub fn interrupt(&self, name: &str) -> Result<Record, JobError> {
        let record = self.get(name)?;
        if record.spot.is_none() {
            return Err(JobError::Input(format!(
                "job {name} does not run on spot machines ([spot] in its file); stop it instead"
            )));
        }
        if !record.status.is_final() {
            let path = self.path(name).join("interrupt");
            whole::write(&path, "").map_err(JobError::io(&path))?;
        }
        Ok(record)
    }

    /// Waits at most this long for a job's end, and returns its state.
    ///
    /// # Errors
    /// There is no job of this name.
    pub fn wait(&self, name: &str, at_most: Duration) -> Result<Record, JobError> {
        let started = Instant::now();
        loop {
            let record = self.get(name)?;
            if record.status.is_final() || started.elapsed() >= at_most {
                return Ok(record);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Removes a job that has ended, with everything in its folder.
    ///
    /// # Errors
    /// It runs.
    pub fn remove(&self, name: &str) -> Result<(), JobError> {
        if !self.get(name)?.status.is_final() {
            return Err(JobError::Input(format!(
                "job {name} has not ended; stop it first"
            )));
        }
        let (folder, _lock) = self.locked(name)?;
        mount::clear(&folder.0).map_err(JobError::io(&folder.0))?;
        writes::release(&folder.0);
        // Without its state it is not a job, even if removing the rest fails.
        let state = folder.file("state.json");
        fs::remove_file(&state).map_err(JobError::io(&state))?;
        fs::remove_dir_all(&folder.0).map_err(JobError::io(&folder.0))
    }

    /// A job's lines from a byte of its log on. The second value is where the next call should start.
    ///
    /// # Errors
    /// There is no job of this name.
    pub fn log(&self, name: &str, from: u64) -> Result<(String, u64), JobError> {
        let path = self.folder(name)?.file("log");
        let mut bytes = Vec::new();
        if let Some(mut file) = if_there(File::open(&path)).map_err(JobError::io(&path))? {
            file.seek(SeekFrom::Start(from)).map_err(JobError::io(&path))?;
            file.take(1 << 20)
                .read_to_end(&mut bytes)
                .map_err(JobError::io(&path))?;
        }
        // Only whole lines; the next call returns the rest.
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        Ok((
            String::from_utf8_lossy(&bytes[..whole]).into_owned(),
            from + whole as u64,
        ))
    }
}

/// Gives a job to Slurm, while its lock is held.
fn hand_over(
    store: &Store,
    name: &str,
    folder: &Folder,
    program: &Path,
    options: &[String],
) -> Result<(), JobError> {
    let job = folder.job()?;
    if job.instances > 1 {
        // As far as it can be told before there are nodes. One node for all has no such limits, and options can ask for it.
        let one = |option: &String| option == "--nodes=1" || option == "-N1";
        if !options.iter().any(one) {
            Nodes::check(&job)?;
        }
    }
    let script = folder.file("slurm.sh");
    whole::write(&script, slurm::SCRIPT).map_err(JobError::io(&script))?;
    let mut all = vec![
        format!("--job-name={name}"),
        slurm::output(&folder.file("runner.log"))?,
        "--open-mode=append".to_owned(),
        format!("--nodes={}", job.instances),
        "--ntasks-per-node=1".to_owned(),
        // To the runner alone, when the time limit is near: the script has its stop-seconds, and then results are packed.
        format!(
            "--signal=B:TERM@{}",
            job.stop_seconds.saturating_add(60).min(65_535)
        ),
    ];
    all.extend_from_slice(options);
    let program = program.display().to_string();
    let root = store.root.display().to_string();
    let words = [&program, "job", "--jobs", &root, "runner", name, "--slurm"].map(str::to_owned);
    let submitted = Submitted::new(&all, &script, &words)?;
    let path = folder.file(SLURM);
    let text = serde_json::to_vec(&submitted).map_err(|error| JobError::Input(error.to_string()))?;
    whole::write(&path, text).map_err(JobError::io(&path))
}

fn taken(name: &str) -> JobError {
    JobError::Input(format!(
        "there is a job {name} already; take another name, resume it, or remove it (stokehold job rm {name})"
    ))
}

/// How long a runner may take to get hold of its job: it asks for the data of channels first.
const START: Duration = Duration::from_secs(120);

/// Waits until a runner holds its job.
fn ready(mut runner: Child, program: &Path, log: &Path, before: usize) -> Result<Child, JobError> {
    let (tell, told) = mpsc::channel();
    if let Some(said) = runner.stdout.take() {
        // It ends with the runner's output.
        thread::spawn(move || {
            let mut lines = BufReader::new(said).lines().map_while(Result::ok);
            tell.send(lines.any(|line| line == RUNNER_READY))
        });
    }
    let is_late = match told.recv_timeout(START) {
        Ok(true) => return Ok(runner),
        Ok(false) | Err(mpsc::RecvTimeoutError::Disconnected) => false,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            // It may have ended by itself.
            let _ = runner.kill();
            true
        }
    };
    let status = runner.wait().map_err(JobError::io(program))?;
    let said = fs::read(log).map_err(JobError::io(log))?;
    let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default());
    let reason = said.trim().strip_prefix("error: ").unwrap_or(said.trim());
    let program = program.display();
    Err(JobError::Runner {
        reason: match reason {
            _ if is_late => format!(
                "{program}: it was not ready after {} s, and was ended",
                START.as_secs()
            ),
            "" => format!("{program}: it ended with {status} and ran nothing"),
            reason => reason.to_owned(),
        },
        is_input: status.code() == Some(2),
    })
}

/// What the process of [`Store::start`] prints once it holds the job.
pub const RUNNER_READY: &str = "ready";

/// How long a new job may be without a runner: `--detach` starts another process.
const PATIENCE: Duration = Duration::from_secs(60);

/// The job with its name and absolute paths, and the entry point's file if a copy must be kept with the job.
fn settled(job: &Job, name: &str, folder: &Path) -> Result<(Job, Option<PathBuf>), JobError> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(JobError::io(path));
    let mut job = Job {
        name: Some(name.to_owned()),
        ..job.clone()
    };
    let from = job
        .source_dir
        .clone()
        .unwrap_or_else(|| Path::new(".").join(&job.beside));
    let is_remote = source::remote(&from).is_some();
    let from = if is_remote { from } else { absolute(&from)? };
    if !is_remote && source::is_archive(&from) && !from.is_file() {
        return Err(JobError::Input(format!(
            "source-dir: there is no file {}",
            from.display()
        )));
    }
    let is_folder = !is_remote && !source::is_archive(&from);
    let entry = job
        .entry_point
        .file()
        .filter(|_| is_folder)
        .map(|file| from.join(file));
    if let Some(entry) = entry.as_deref().filter(|entry| !entry.is_file()) {
        return Err(JobError::Input(format!(
            "the entry point {} is not in {}: there is no file {}",
            job.entry_point.name(),
            from.display(),
            entry.display()
        )));
    }
    // Without a source folder, keep a copy of the file with the job, not of its folder.
    let kept = entry.filter(|_| job.source_dir.is_none());
    job.source_dir = match &kept {
        Some(_) => Some(folder.join(SOURCE)),
        None => job.source_dir.map(|_| from),
    };
    job.cache_dir = job.cache_dir.as_deref().map(absolute).transpose()?;
    if is_a_path(&job.python) {
        job.python = absolute(&job.python)?;
    }
    for uri in job
        .channels
        .values_mut()
        .map(|channel| &mut channel.uri)
        .chain(job.output.as_mut())
        .chain(job.checkpoints.as_mut())
    {
        let path = uri.strip_prefix("file://").unwrap_or(uri);
        if !path.contains("://") {
            *uri = absolute(Path::new(path))?.display().to_string();
        }
    }
    Ok((job, kept))
}

/// The folder in a job's folder for an entry point without a source folder.
const SOURCE: &str = "source";

/// Writes the files of a new job's folder.
fn fill(folder: &Folder, job: &Job, kept: Option<&Path>) -> Result<(), JobError> {
    if let (Some(from), Some(file)) = (kept, job.entry_point.file()) {
        let to = folder.file(SOURCE).join(file);
        fs::create_dir_all(to.parent().unwrap_or(&folder.0))
            .and_then(|()| fs::copy(from, &to))
            .map_err(JobError::io(from))?;
    }
    let path = folder.file("job.json");
    let text = serde_json::to_vec_pretty(job).map_err(|error| JobError::Input(error.to_string()))?;
    // The variables may hold secrets.
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(&text))
        .map_err(JobError::io(&path))?;
    let mut record = Record::new(job.name.as_deref().unwrap_or_default());
    record.spot = job
        .spot
        .as_ref()
        .map(|spot| Bill::of(spot, job.instances, &record));
    folder.write(&record)
}
