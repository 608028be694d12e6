//! The processes of a job: one an instance, started, waited for and ended.

use std::fs;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Ended, Runner};
use crate::checkpoints::Keeper;
use crate::contract::{self, Instance};
use crate::data::mount::{self, Complaints};
use crate::data::pipe;
use crate::data::{self, Flow};
use crate::runner::nodes::{self, without_slurm};
use crate::runner::place::{Place, VISIBLE_GPUS};
use crate::runner::process::{Process, exit_code, signal_group};
use crate::runner::room::{self, Bound, Room};
use crate::runner::rules::Rules;
use crate::runner::standin;
use crate::store::{Secondary, Status};
use crate::writes::{self, Writer};
use crate::{Distribution, Job, JobError};

impl Runner<'_> {
    /// Runs every instance to its end. The second value says whether the time limit was reached.
    pub(super) fn train(
        &self,
        instances: &[Instance],
        piped: &[(usize, String, Flow)],
        complaints: &Complaints,
        keeper: Option<&mut Keeper<'_>>,
        writers: &mut [Writer<'_>],
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
                let mut rules = Rules::of(self.job);
                while !quit {
                    quit = over.load(Ordering::SeqCst);
                    for line in complaints.take() {
                        self.lines.say(&line);
                    }
                    self.take_metrics();
                    if let Some(rules) = &mut rules {
                        self.judge(rules);
                    }
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
            for writer in writers {
                let (over, blame) = (&over, &blame);
                scope.spawn(move || {
                    let channel = writer.channel().to_owned();
                    let report =
                        |written| self.change(|record| drop(record.writes.insert(channel.clone(), written)));
                    if let Err(error) = writer.follow(over, &report) {
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
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
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
        // Under MPI the first instance starts the processes of all instances.
        let place = match (job.distribution, &self.nodes) {
            (Distribution::Mpi, _) | (_, Some(_)) => self.place.clone(),
            _ => self.place.share(instance.rank, job.instances),
        };
        place.take()?;
        let room = job.opt_ml.then(|| self.room(instance, bound));
        let spawned = match &self.nodes {
            Some(nodes) => {
                let words = nodes.command(instance.rank, room.as_ref(), &words)?;
                self.command(job, instance, &words, &place).spawn()
            }
            None => {
                let mut command = self.command(job, instance, &words, &place);
                without_slurm(&mut command);
                match room {
                    Some(room) => room.spawn(command),
                    None => command.spawn(),
                }
            }
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
                .and_then(|()| self.wait(&mut child, (instance.rank, group), give_up, late));
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

    /// The command of an instance's process, with its folder and its environment.
    fn command(&self, job: &Job, instance: &Instance, words: &[String], place: &Place) -> Command {
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
        if place.gpus != Place::here().gpus && self.nodes.is_none() {
            command.env(VISIBLE_GPUS, place.gpus.join(","));
        }
        // It is a socket of this machine.
        let is_here = self.nodes.is_none() || instance.rank == 0;
        let listening = self.timeline.get().filter(|_| is_here);
        if let Some(listening) = listening {
            command.env(stokehold_profile::timeline::VARIABLE, &listening.address);
        }
        command.envs(self.home(instance).variables());
        let mut surroundings = contract::surroundings(job, instance);
        if job.distribution == Distribution::Smdistributed {
            let standin = standin::path(&self.folder.0).display().to_string();
            // Behind the script's own code, and before what is installed.
            if let Some(paths) = surroundings.get_mut("PYTHONPATH") {
                let code = instance.code().display().to_string();
                *paths = match paths.strip_prefix(&code) {
                    Some(rest) => format!("{code}:{standin}{rest}"),
                    None => format!("{standin}:{paths}"),
                };
            }
        }
        if let Some(Ok(place)) = mount::image_cache(job) {
            command.env(stokehold_cache::VARIABLE, place);
        }
        command.envs(surroundings);
        if let Some(listening) = listening {
            listening.watched.set(&mut command);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// What an instance's script sees of the machine.
    fn room(&self, instance: &Instance, bound: Vec<Bound>) -> Room {
        let rw = bound.iter().filter(|bound| bound.is_writable);
        let writable = rw.map(|bound| bound.folder.clone());
        Room {
            opt_ml: Some(instance.base.clone()),
            read_only: room::system(),
            writable: writable.chain([self.folder.0.clone()]).collect(),
            bound,
            overlays: writes::overlays(self.job, &self.folder.0, &instance.data()),
        }
    }

    fn wait(
        &self,
        child: &mut std::process::Child,
        (rank, group): (usize, i32),
        give_up: &AtomicBool,
        late: &AtomicBool,
    ) -> Result<Ended, JobError> {
        let time = Duration::from_secs(self.job.max_run_seconds);
        let mut grace = Duration::from_secs(self.job.stop_seconds);
        let mut told: Option<Instant> = None;
        let mut killed = false;
        let mut at_last = None;
        loop {
            if let Some(status) = child
                .try_wait()
                .map_err(JobError::io(Path::new("the script's process")))?
            {
                let code = exit_code(status);
                // Slurm ends a job with SIGTERM to all of its processes, and the script may be faster than this one.
                let is_slurms = std::env::var_os("SLURM_JOB_ID").is_some();
                if told.is_none() && code != 0 && is_slurms && nodes::is_ending() {
                    self.cuts.ended_by_slurm();
                    told = Some(Instant::now());
                }
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
                self.signal(rank, group, Signal::TERM);
                told = Some(Instant::now());
            }
            if !killed && told.is_some_and(|told| told.elapsed() >= grace || self.cuts.kills()) {
                self.signal(rank, group, Signal::KILL);
                killed = true;
                at_last = Some(Instant::now() + LAST);
            }
            if at_last.is_some_and(|at_last| Instant::now() >= at_last) {
                signal_group(group, Signal::KILL);
                at_last = None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Signals the process group of an instance, on whatever node it is.
    fn signal(&self, rank: usize, group: i32, how: Signal) {
        if self.nodes.is_none() {
            return signal_group(group, how);
        }
        if let Err(error) = nodes::signal(rank, how) {
            self.lines.say(&format!(
                "slurm: {} could not be ended: {error}",
                contract::host(rank)
            ));
        }
    }

    /// Writes `output/success` or `output/failure`, unless the script has done so.
    pub(super) fn leave_mark(&self, instance: &Instance, ended: Option<&Ended>) -> Result<(), JobError> {
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

    pub(super) fn reason(&self, instance: &Instance, code: i32) -> String {
        let said = fs::read(instance.base.join("output/failure")).unwrap_or_default();
        match String::from_utf8_lossy(&said).trim() {
            "" => format!("{} ended with exit code {code}{}", instance.host(), killed(code)),
            said => said.to_owned(),
        }
    }
}

/// How long another node has to say that its script was killed.
const LAST: Duration = Duration::from_secs(10);

/// The exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;

fn killed(code: i32) -> &'static str {
    match code {
        KILLED => " (killed; most often the system was out of memory)",
        _ => "",
    }
}
