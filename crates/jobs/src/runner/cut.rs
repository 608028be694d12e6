//! What cuts a job's work short: a request to stop, a time limit, an interruption of its machine.
//!
//! One thread polls for all of them, and another asks the machine's metadata service. The runner asks here
//! for the reason, and for the script's running time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Job;
use crate::runner::lines::Lines;
use crate::runner::notice::{self, Metadata};
use crate::store::Folder;

/// Time between two polls.
const LOOK: Duration = Duration::from_millis(20);

/// Why the work is cut short, in ascending priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    /// A simulated interruption: the job starts again afterwards.
    Simulated,
    /// The machine will be taken away.
    Notice,
    /// The job exceeded `max-wait-seconds`, pauses included.
    MaxWait,
    /// A rule fired that stops the job.
    Rule,
    /// A caller stopped the job.
    Stop,
}

impl Cut {
    pub fn is_interruption(self) -> bool {
        matches!(self, Self::Simulated | Self::Notice)
    }
}

/// The reasons to cut the work short, for a runner.
pub(crate) struct Cuts<'a> {
    job: &'a Job,
    folder: &'a Folder,
    lines: &'a Lines<'a>,
    /// Set together with `why`, for code that needs no reason.
    halt: AtomicBool,
    why: Mutex<Option<Cut>>,
    kill: AtomicBool,
    clock: Mutex<Clock>,
    over: AtomicBool,
}

/// The script's running time in earlier starts, and when the current start began.
struct Clock {
    before: Duration,
    since: Option<Instant>,
}

impl<'a> Cuts<'a> {
    pub fn new(job: &'a Job, folder: &'a Folder, lines: &'a Lines<'a>) -> Self {
        Self {
            job,
            folder,
            lines,
            halt: AtomicBool::new(false),
            why: Mutex::new(None),
            kill: AtomicBool::new(false),
            clock: Mutex::new(Clock {
                before: Duration::ZERO,
                since: None,
            }),
            over: AtomicBool::new(false),
        }
    }

    /// Why the work is cut short, if it is.
    pub fn why(&self) -> Option<Cut> {
        *self.why_lock()
    }

    /// Set while the work is cut short.
    pub fn halt(&self) -> &AtomicBool {
        &self.halt
    }

    /// Whether to kill the script at once.
    pub fn kills(&self) -> bool {
        self.kill.load(Ordering::SeqCst)
    }

    /// Records that a rule stops the job.
    pub fn stopped_by_rule(&self) {
        self.cut(Cut::Rule);
    }

    /// Records that Slurm has ended the script.
    pub fn ended_by_slurm(&self) {
        self.cut(match self.job.spot {
            Some(_) => Cut::Notice,
            None => Cut::Stop,
        });
    }

    /// Resets for another start after a simulated interruption. Returns what cuts that start short, if
    /// anything does.
    pub fn again(&self) -> Option<Cut> {
        let mut why = self.why_lock();
        *why = why.filter(|why| *why != Cut::Simulated);
        self.halt.store(why.is_some(), Ordering::SeqCst);
        *why
    }

    /// Records that the script starts.
    pub fn started(&self) {
        self.clock().since = Some(Instant::now());
    }

    /// Records that the script has ended.
    pub fn ended(&self) {
        let ran = self.ran();
        let mut clock = self.clock();
        (clock.before, clock.since) = (ran, None);
    }

    /// The script's running time over all starts.
    pub fn ran(&self) -> Duration {
        let clock = self.clock();
        clock.before + clock.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ends [`watch`](Self::watch) and [`await_notice`](Self::await_notice).
    pub fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Polls for reasons to cut the work short. `stop` is the caller's request.
    pub fn watch(&self, stop: &AtomicBool) {
        let began = Instant::now();
        let spot = self.job.spot.as_ref();
        let wait = spot
            .and_then(|spot| spot.max_wait_seconds)
            .map(Duration::from_secs);
        let simulation = spot.and_then(|spot| spot.simulate.as_ref());
        let mut due = simulation.and_then(|simulation| simulation.after(Duration::ZERO));
        while !self.over.load(Ordering::SeqCst) {
            if stop.load(Ordering::SeqCst) || self.folder.stop_wanted() {
                self.cut(Cut::Stop);
                self.kill.store(self.folder.kill_wanted(), Ordering::SeqCst);
            }
            if wait.is_some_and(|wait| began.elapsed() >= wait) {
                self.cut(Cut::MaxWait);
            }
            if spot.is_some() && self.folder.interruption_wanted() {
                self.cut(Cut::Notice);
            }
            let ran = self.ran();
            if due.is_some_and(|due| ran >= due) {
                self.cut(Cut::Simulated);
                due = simulation.and_then(|simulation| simulation.after(ran));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks the machine's metadata service whether the machine will be taken away.
    pub fn await_notice(&self) {
        let own = |name: &str| self.job.environment.get(name).cloned();
        let Some(mut metadata) = Metadata::new(&|name| own(name).or_else(|| std::env::var(name).ok())) else {
            return;
        };
        while !self.over.load(Ordering::SeqCst) {
            if let Some(notice) = metadata.notice() {
                self.lines
                    .say(&format!("spot: this machine is taken away: {}", notice.trim()));
                return self.cut(Cut::Notice);
            }
            let asked = Instant::now();
            while asked.elapsed() < notice::INTERVAL && !self.over.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            }
        }
    }

    fn cut(&self, reason: Cut) {
        let mut why = self.why_lock();
        if why.is_some_and(|why| why >= reason) {
            return;
        }
        if reason.is_interruption() {
            let grace = self.job.spot.as_ref().map_or(0, |spot| spot.grace_seconds);
            let ran = self.ran().as_secs_f64();
            self.lines.say(&format!(
                "spot: interrupted after {ran:.0} s; the script has {grace} s to end"
            ));
        }
        *why = Some(reason);
        self.halt.store(true, Ordering::SeqCst);
    }

    fn why_lock(&self) -> MutexGuard<'_, Option<Cut>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
