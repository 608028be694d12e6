//! What a link does, and what can go wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender};

/// What a rank does between two operations, for the others' messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It opens its data, its device and its model.
    Setup,
    /// It waits for its loader's next batch.
    Loading,
    /// It computes a step.
    Computing,
    /// It validates the model.
    Validating,
    /// It writes a checkpoint or results.
    Writing,
    /// It measures its loader's and trainer's ceilings.
    Measuring,
}

impl Phase {
    const ALL: [Self; 6] = [
        Self::Setup,
        Self::Loading,
        Self::Computing,
        Self::Validating,
        Self::Writing,
        Self::Measuring,
    ];

    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub(crate) fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| *phase as u64 == number)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "opening its data, device and model",
            Self::Loading => "waiting for its loader's next batch",
            Self::Computing => "computing a step",
            Self::Validating => "validating",
            Self::Writing => "writing a checkpoint or results",
            Self::Measuring => "measuring ceilings",
        })
    }
}

/// Why ranks cannot continue together.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// Other ranks wait for these for too long.
    #[error("{}", silent(who, *seconds))]
    Silent {
        /// The ranks, with what is known of each.
        who: Vec<Silence>,
        /// How long this rank has waited, seconds.
        seconds: f64,
    },
    /// This program cannot talk to the other ranks.
    #[error(
        "{how} started {size} ranks, and this program was built without MPI: build it with --features mpi (it needs an MPI with \
         mpicc, and libclang)"
    )]
    WithoutMpi {
        /// What started it.
        how: &'static str,
        /// The ranks that there are.
        size: usize,
    },
    /// The ranks do not know of each other.
    #[error(
        "srun started {size} tasks that cannot talk to each other: start them with srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list \
         shows what there is)"
    )]
    NoInterface {
        /// The tasks that there are.
        size: usize,
    },
    /// MPI does not work.
    #[error("MPI: {0}")]
    Mpi(String),
    /// The ranks called different operations.
    #[error("the ranks called different operations: {0}")]
    Unequal(String),
    /// The thread that talks to the others has ended.
    #[error("the connection to the other ranks has ended")]
    Ended,
}

/// A rank that lets the others wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Silence {
    /// The rank.
    pub rank: usize,
    /// Its machine's name.
    pub host: String,
    /// What it was doing when it was last heard of; `None` if it never was.
    pub phase: Option<Phase>,
    /// How long its process has not answered, seconds. Above a few, it is gone, stopped or unreachable.
    pub unheard: f64,
}

/// A process that answers says so every second.
const ANSWERS: f64 = 5.0;

fn silent(who: &[Silence], seconds: f64) -> String {
    if who.is_empty() {
        return format!(
            "all ranks have waited for each other for {seconds:.0} s: the network between them does not carry their data"
        );
    }
    let one = |silence: &Silence| {
        let Silence {
            rank,
            host,
            phase,
            unheard,
        } = silence;
        let doing = phase.map_or("starting".to_owned(), |phase| phase.to_string());
        match *unheard > ANSWERS {
            true => format!(
                "rank {rank} on {host}: its process has not answered for {unheard:.0} s (last seen {doing}); it is stopped, gone or \
                 unreachable"
            ),
            false => format!("rank {rank} on {host}: its process answers, and is still {doing}"),
        }
    };
    let who: Vec<String> = who.iter().map(one).collect();
    format!("waited {seconds:.0} s for other ranks: {}", who.join("; "))
}

/// What a rank's own thread has begun, for its link's thread to tell the others.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pub operations: AtomicU64,
    /// Nanoseconds that the rank's own threads have waited for results.
    pub blocked: AtomicU64,
    phase: AtomicU8,
}

impl Own {
    pub fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub fn phase(&self) -> u64 {
        u64::from(self.phase.load(Ordering::Relaxed))
    }
}

/// An operation and where its result goes.
pub(crate) enum Call {
    Gather(Vec<u8>, ResultSender<Vec<Vec<u8>>>),
    Broadcast(Vec<u8>, ResultSender<Vec<u8>>),
    Sum(Vec<f32>, ResultSender<Vec<f32>>),
    /// End all ranks at once.
    Abort(i32),
}

pub(crate) type ResultSender<T> = Sender<Result<T, RanksError>>;

/// A way to the other ranks, used by one thread.
///
/// The calls are for links that cannot leave an operation: they answer all further ones with an error, until they are
/// told to end the ranks.
pub(crate) trait Link {
    fn gather(&mut self, own: Vec<u8>, desk: &Desk) -> Result<Vec<Vec<u8>>, RanksError>;

    fn sum(&mut self, own: Vec<f32>, desk: &Desk) -> Result<Vec<f32>, RanksError>;

    /// From rank 0.
    fn broadcast(&mut self, own: Vec<u8>, desk: &Desk) -> Result<Vec<u8>, RanksError>;

    /// After the last operation, if none failed.
    fn finish(&mut self, _desk: &Desk) {}

    /// Between two operations: whatever keeps the others informed.
    fn breathe(&mut self) {}

    /// Ends all ranks at once, if the link can.
    fn abort(&mut self, code: i32);
}

/// Where a link finds calls while it is in an operation, and says that the operation has failed.
pub(crate) struct Desk<'a> {
    pub calls: &'a Receiver<Call>,
    pub failed: &'a dyn Fn(RanksError),
}

impl Call {
    /// Answers with an error; `Some` for a call to end all ranks.
    fn refuse(self, error: &RanksError) -> Option<i32> {
        // No one waits for an answer that cannot be sent.
        match self {
            Self::Gather(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Broadcast(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Sum(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Abort(code) => return Some(code),
        }
        None
    }
}

impl Desk<'_> {
    /// Says that the operation has failed, and so do all further ones; returns the exit code with which to end all ranks,
    /// when that is called for or no one calls any more.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub(crate) fn give_up(&self, error: &RanksError) -> i32 {
        (self.failed)(error.clone());
        self.calls.iter().find_map(|call| call.refuse(error)).unwrap_or(1)
    }
}

/// Facts of a world that links share with the front.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub rank: usize,
    pub size: usize,
    pub own: Arc<Own>,
}
