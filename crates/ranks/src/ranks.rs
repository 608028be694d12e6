//! The front: operations that any thread of a rank may call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::link::{Call, Desk, Link, Own, Phase, RanksError, World};
use crate::local;

/// A rank of a world, and its way to the others. Clones are the same rank.
#[derive(Debug, Clone)]
pub struct Ranks {
    rank: usize,
    size: usize,
    hosts: Arc<[String]>,
    own: Arc<Own>,
    /// `None` for a rank alone.
    thread: Option<Arc<LinkThread>>,
}

#[derive(Debug)]
struct LinkThread {
    calls: Option<Sender<Call>>,
    handle: Option<JoinHandle<()>>,
}

/// The result of an operation that may still be under way.
#[derive(Debug)]
pub struct Pending<T>(PendingState<T>);

#[derive(Debug)]
enum PendingState<T> {
    Done(T),
    Coming(Receiver<Result<T, RanksError>>),
}

impl<T> Pending<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// The operation failed.
    pub fn wait(self) -> Result<T, RanksError> {
        match self.0 {
            PendingState::Done(value) => Ok(value),
            PendingState::Coming(answer) => answer.recv().unwrap_or(Err(RanksError::Ended)),
        }
    }
}

impl Ranks {
    /// How long ranks wait for another one, where nothing else is said.
    pub const PATIENCE: Duration = Duration::from_secs(25);

    /// A world of one rank, whose operations return what they get.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            hosts: Arc::new([String::new()]),
            own: Arc::default(),
            thread: None,
        }
    }

    /// A world of `size` ranks in this process, at least 1, each to be used by a thread of its own.
    pub fn threads(size: usize) -> Vec<Self> {
        Self::threads_with(size, Self::PATIENCE)
    }

    /// As [`Ranks::threads`], with a rank's patience with the others.
    pub fn threads_with(size: usize, patience: Duration) -> Vec<Self> {
        let meeting = Arc::new(local::Meeting::new(size.max(1)));
        (0..size.max(1))
            .map(|rank| {
                let own = Arc::new(Own::default());
                let world = World {
                    rank,
                    size: size.max(1),
                    own: Arc::clone(&own),
                };
                let link = local::Member::new(Arc::clone(&meeting), world.clone(), patience);
                let hosts = (0..world.size).map(|rank| format!("thread {rank}")).collect();
                Self::over(&world, hosts, patience, move || Ok(link))
                    .unwrap_or_else(|_| unreachable!("a link between threads opens"))
            })
            .collect()
    }

    /// The world of the launcher that started this process (`mpirun`, or `srun` with `--mpi`), or a rank alone if none
    /// did. Ranks wait `patience` for another one.
    ///
    /// # Errors
    /// The launcher started several ranks, and this program was built without the feature `mpi`; MPI does not start; `srun`
    /// gives its tasks no way to each other.
    pub fn of_launch(patience: Duration) -> Result<Self, RanksError> {
        crate::started::world(patience)
    }

    /// Opens the link in a thread of its own, which alone uses it. That takes no longer than `patience`; else the thread is left
    /// alone, for the launcher to end with the process.
    pub(crate) fn over<L: Link + 'static>(
        world: &World,
        hosts: Vec<String>,
        patience: Duration,
        open: impl FnOnce() -> Result<L, RanksError> + Send + 'static,
    ) -> Result<Self, RanksError> {
        let (calls, coming) = unbounded();
        let (opened, says) = bounded(1);
        let handle = thread::Builder::new()
            .name("ranks".to_owned())
            .spawn(move || {
                match open() {
                    Ok(link) => {
                        let _ = opened.send(Ok(()));
                        serve(link, &coming);
                    }
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                };
            })
            .map_err(|error| RanksError::Mpi(format!("no thread for it: {error}")))?;
        says.recv_timeout(patience).unwrap_or_else(|why| {
            Err(match why {
                RecvTimeoutError::Timeout => RanksError::Mpi(format!(
                    "it has not started after {} s: a rank stands still or cannot be reached; where machines are only slow to start, \
                     give them more time",
                    patience.as_secs()
                )),
                RecvTimeoutError::Disconnected => RanksError::Ended,
            })
        })?;
        Ok(Self {
            rank: world.rank,
            size: world.size,
            hosts: hosts.into(),
            own: Arc::clone(&world.own),
            thread: Some(Arc::new(LinkThread {
                calls: Some(calls),
                handle: Some(handle),
            })),
        })
    }

    /// The same in its place of the world.
    #[cfg(feature = "mpi")]
    pub(crate) fn placed(self, rank: usize, size: usize, hosts: Vec<String>) -> Self {
        Self {
            rank,
            size,
            hosts: hosts.into(),
            ..self
        }
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether this is rank 0, which writes for all.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Whether there are no others.
    pub fn are_alone(&self) -> bool {
        self.size == 1
    }

    /// The machine of each rank, by name.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// How long threads of this rank have waited in [`Ranks::sum`], [`Ranks::gather`] and [`Ranks::broadcast`] so far: for slower
    /// ranks, and for the network.
    pub fn blocked(&self) -> Duration {
        Duration::from_nanos(self.own.blocked.load(Ordering::Relaxed))
    }

    /// Says what this rank does from now on, for the others' messages.
    pub fn now(&self, phase: Phase) {
        self.own.set(phase);
    }

    /// Sums numbers over all ranks, each of which has equally many. Every rank gets the same sums.
    ///
    /// # Errors
    /// [`RanksError::Silent`] if a rank does not take part in time, and the link's errors.
    pub fn sum(&self, own: Vec<f32>) -> Result<Vec<f32>, RanksError> {
        self.blocking(self.begin_sum(own))
    }

    /// As [`Ranks::sum`], and returns at once. Several sums may be under way; they are made in the order of their beginnings.
    pub fn begin_sum(&self, own: Vec<f32>) -> Pending<Vec<f32>> {
        self.call(own, Call::Sum, |own| own)
    }

    /// What every rank has, in the order of the ranks. Lengths may differ.
    ///
    /// # Errors
    /// As [`Ranks::sum`].
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RanksError> {
        self.blocking(self.call(own, Call::Gather, |own| vec![own]))
    }

    /// What rank 0 has; the others' `own` is ignored.
    ///
    /// # Errors
    /// As [`Ranks::sum`].
    pub fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        self.blocking(self.call(own, Call::Broadcast, |own| own))
    }

    /// Ends the processes of all ranks at once, this one with the exit code `code`, if a launcher started them. Returns
    /// where there is none, and between threads.
    pub fn abort(&self, code: i32) {
        if let Some(calls) = self.thread.as_ref().and_then(|thread| thread.calls.as_ref()) {
            let _ = calls.send(Call::Abort(code));
            // The launcher ends this process within a moment.
            thread::sleep(Duration::from_secs(5));
        }
    }

    /// Waits, and counts the time.
    fn blocking<T>(&self, pending: Pending<T>) -> Result<T, RanksError> {
        let begin = Instant::now();
        let result = pending.wait();
        let waited = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.own.blocked.fetch_add(waited, Ordering::Relaxed);
        result
    }

    fn call<A, T>(
        &self,
        own: A,
        call: impl FnOnce(A, Sender<Result<T, RanksError>>) -> Call,
        alone: impl FnOnce(A) -> T,
    ) -> Pending<T> {
        let Some(thread) = &self.thread else {
            return Pending(PendingState::Done(alone(own)));
        };
        self.own.operations.fetch_add(1, Ordering::Relaxed);
        let (answer, result) = bounded(1);
        if let Some(calls) = &thread.calls {
            // Without its thread the answer's sender is dropped, and the wait ends with an error.
            let _ = calls.send(call(own, answer));
        }
        Pending(PendingState::Coming(result))
    }
}

impl Drop for LinkThread {
    /// Ends the link; with MPI that waits until all ranks have come here.
    fn drop(&mut self) {
        self.calls = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// How often a link tells the others what its rank does while there is no operation.
const BREATH: Duration = Duration::from_millis(200);

/// Performs the calls one after the other until there are no more. After one that fails the ranks no longer do the same, so
/// all further ones fail.
fn serve(mut link: impl Link, calls: &Receiver<Call>) {
    let mut failed = None;
    loop {
        match calls.recv_timeout(BREATH) {
            Ok(Call::Abort(code)) => link.abort(code),
            Ok(Call::Gather(own, answer)) => {
                perform(calls, &answer, &mut failed, |desk| link.gather(own, desk));
            }
            Ok(Call::Broadcast(own, answer)) => {
                perform(calls, &answer, &mut failed, |desk| link.broadcast(own, desk));
            }
            Ok(Call::Sum(own, answer)) => {
                perform(calls, &answer, &mut failed, |desk| link.sum(own, desk));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        link.breathe();
    }
    match failed {
        None => link.finish(&Desk {
            calls,
            failed: &|error| tracing::error!("at the end: {error}"),
        }),
        Some(_) => link.abort(1),
    }
}

fn perform<T>(
    calls: &Receiver<Call>,
    answer: &Sender<Result<T, RanksError>>,
    failed: &mut Option<RanksError>,
    operation: impl FnOnce(&Desk) -> Result<T, RanksError>,
) {
    // The caller may have gone.
    let result = match failed {
        Some(error) => Err(error.clone()),
        None => operation(&Desk {
            calls,
            failed: &|error| drop(answer.send(Err(error))),
        }),
    };
    if let Err(error) = &result {
        failed.get_or_insert_with(|| error.clone());
    }
    let _ = answer.send(result);
}
