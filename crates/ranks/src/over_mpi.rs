//! Ranks that are processes under MPI.
//!
//! Everything here runs in the link's thread. All operations are MPI's immediate ones, tested until they are done. While
//! they are not, the thread receives and sends pulses: messages of one byte whose tag has the number of operations that
//! the sender's rank has begun, and its phase.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::request::{Request, Scope, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::link::{Desk, Link, Own, Phase, RanksError, Silence, World};
use crate::ranks::Ranks;

/// The world that a launcher started.
pub(crate) fn world(patience: Duration) -> Result<Ranks, RanksError> {
    let (says, said) = bounded(1);
    let own = Arc::new(Own::default());
    // The link's thread initialises MPI, because it alone uses it; rank, size and names come from there.
    let theirs = Arc::clone(&own);
    let world = World {
        rank: 0,
        size: 1,
        own,
    };
    let ranks = Ranks::over(&world, Vec::new(), patience, move || {
        let (link, hosts) = Process::open(theirs, patience)?;
        let _ = says.send((link.rank, link.size, hosts));
        Ok(link)
    })?;
    let (rank, size, hosts) = said.recv().map_err(|_| RanksError::Ended)?;
    Ok(ranks.placed(rank, size, hosts))
}

/// A process of MPI's world.
struct Process {
    comm: SimpleCommunicator,
    pulses: Pulses,
    rank: usize,
    size: usize,
    /// The numbers of the last sum.
    spare: Vec<f32>,
    /// Last, so that MPI ends after all that uses it.
    _universe: Universe,
}

/// What this rank tells the others, and has heard of them.
struct Pulses {
    comm: SimpleCommunicator,
    own: Arc<Own>,
    /// The operations of which this thread performs the last one.
    performing: u64,
    others: Vec<Other>,
    last: Option<Instant>,
    patience: Duration,
    begun: Instant,
}

struct Other {
    host: String,
    /// The pulse that is on its way there.
    sending: Option<Request<'static, [u8; 1], StaticScope>>,
    /// When it was last heard of, what it had begun, and what it did.
    heard: Option<(Instant, u64, Option<Phase>)>,
}

impl Other {
    fn new(host: String) -> Self {
        Self {
            host,
            sending: None,
            heard: None,
        }
    }
}

/// What an operation waits for.
#[derive(Clone, Copy)]
enum Pace {
    /// For other ranks, perhaps for long.
    Waiting,
    /// For the network.
    Bulk,
}

/// A tag can be at least 32767 in every MPI: 12 bits of the number of operations, and 3 of the phase.
const OPERATIONS: u64 = 1 << 12;
const PHASES: u64 = 8;
/// How often pulses are sent.
const PULSE: Duration = Duration::from_secs(1);
/// How long an operation is tested without a pause: most are done sooner.
const EAGER: Duration = Duration::from_micros(200);
/// The same of many numbers, which MPI moves only while it is called. All ranks are there then.
const BULK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);
/// A number of bytes that fits MPI's counts (`int`).
const MOST: usize = i32::MAX as usize / 2;

static BYTE: [u8; 1] = [0];

impl Process {
    fn open(own: Arc<Own>, patience: Duration) -> Result<(Self, Vec<String>), RanksError> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or_else(|| RanksError::Mpi("it was initialised before".to_owned()))?;
        tracing::info!(?threading, version = ?mpi::environment::version(), "MPI");
        let comm = universe.world();
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        let host = mpi::environment::processor_name().unwrap_or_else(|_| format!("machine of rank {rank}"));
        let pulses = Pulses {
            comm: comm.duplicate(),
            own,
            performing: 0,
            others: (0..size).map(|rank| Other::new(format!("rank {rank}"))).collect(),
            last: None,
            patience,
            begun: Instant::now(),
        };
        let mut link = Self {
            comm,
            pulses,
            rank,
            size,
            spare: Vec::new(),
            _universe: universe,
        };
        // No one can call yet.
        let (_, calls) = bounded(0);
        let desk = Desk {
            calls: &calls,
            failed: &|error| tracing::error!("at the start: {error}"),
        };
        let hosts: Vec<String> = link
            .all(host.into_bytes(), &desk)?
            .into_iter()
            .map(|host| String::from_utf8_lossy(&host).into_owned())
            .collect();
        for (other, host) in link.pulses.others.iter_mut().zip(&hosts) {
            other.host.clone_from(host);
        }
        link.pulses.begun = Instant::now();
        Ok((link, hosts))
    }

    /// What every rank has.
    fn all(&mut self, own: Vec<u8>, desk: &Desk) -> Result<Vec<Vec<u8>>, RanksError> {
        let length = [own.len() as u64];
        let mut lengths = vec![0u64; self.size];
        let (comm, pulses) = (&self.comm, &mut self.pulses);
        mpi::request::scope(|scope| {
            let request = comm.immediate_all_gather_into(scope, &length[..], &mut lengths[..]);
            pulses.until_done(request, Pace::Waiting, desk);
        });
        let total: u64 = lengths.iter().sum();
        if total > MOST as u64 {
            return Err(RanksError::Mpi(format!("{total} bytes to gather are too many")));
        }
        // MPI refuses an empty buffer.
        if total == 0 {
            return Ok(vec![Vec::new(); self.size]);
        }
        let counts: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
        let mut first = 0;
        let firsts: Vec<i32> = counts
            .iter()
            .map(|count| {
                first += count;
                first - count
            })
            .collect();
        let mut bytes = vec![0u8; total as usize];
        {
            let mut parts = PartitionMut::new(&mut bytes[..], counts, &firsts[..]);
            mpi::request::scope(|scope| {
                let request = comm.immediate_all_gather_varcount_into(scope, &own[..], &mut parts);
                pulses.until_done(request, Pace::Waiting, desk);
            });
        }
        let part = |(&first, &length): (&i32, &u64)| bytes[first as usize..][..length as usize].to_vec();
        Ok(firsts.iter().zip(&lengths).map(part).collect())
    }
}

impl Pulses {
    /// Tests until the request is done. If a rank is silent, says so and ends all ranks: an operation under way cannot be
    /// left, because MPI may still write into its memory.
    fn until_done<'a, D: ?Sized, S: Scope<'a>>(
        &mut self,
        mut request: Request<'a, D, S>,
        pace: Pace,
        desk: &Desk,
    ) {
        let begin = Instant::now();
        loop {
            request = match request.test() {
                Ok(_) => return,
                Err(request) => request,
            };
            let waited = begin.elapsed();
            let eager = match pace {
                Pace::Waiting => EAGER,
                Pace::Bulk => BULK,
            };
            if waited < eager {
                // Others may need the core to take part.
                thread::yield_now();
                continue;
            }
            self.exchange();
            if waited > self.patience {
                let who = self.silent();
                // The lowest rank that is not silent speaks first, so that one message is printed and not one from each.
                let rank = self.comm.rank() as usize;
                let speaks = |lower: usize| who.iter().all(|silence| silence.rank != lower);
                let turn = Duration::from_millis(1500) * u32::from((0..rank).any(speaks));
                if waited > self.patience + turn {
                    let seconds = waited.as_secs_f64();
                    let code = desk.give_up(&RanksError::Silent { who, seconds });
                    self.comm.abort(code);
                }
            }
            thread::sleep(PAUSE);
        }
    }

    /// Receives pulses, and sends its own every second.
    fn exchange(&mut self) {
        while let Some((message, status)) = self.comm.any_process().immediate_matched_probe() {
            let mut byte = [0u8; 1];
            message.matched_receive_into(&mut byte);
            let tag = status.tag().max(0) as u64;
            if let Some(other) = self.others.get_mut(status.source_rank().max(0) as usize) {
                other.heard = Some((Instant::now(), tag / PHASES, Phase::of(tag % PHASES)));
            }
        }
        if self.last.is_some_and(|last| last.elapsed() < PULSE) {
            return;
        }
        self.last = Some(Instant::now());
        let begun = self.own.operations.load(Ordering::Relaxed) % OPERATIONS;
        let tag = (begun * PHASES + self.own.phase()) as i32;
        let rank = self.comm.rank() as usize;
        for (number, other) in self.others.iter_mut().enumerate() {
            if number == rank {
                continue;
            }
            // One at a time: a rank that does not receive gets no more.
            other.sending = match other.sending.take().map(Request::test) {
                Some(Err(request)) => Some(request),
                Some(Ok(_)) | None => {
                    let process = self.comm.process_at_rank(number as i32);
                    Some(process.immediate_send_with_tag(StaticScope, &BYTE, tag))
                }
            };
        }
    }

    /// The ranks that have not begun the operation that this one performs.
    fn silent(&self) -> Vec<Silence> {
        let rank = self.comm.rank() as usize;
        let away = |(number, other): (usize, &Other)| {
            let behind = match &other.heard {
                // The difference of two numbers of 12 bits, with its sign.
                Some((_, begun, _)) => {
                    let ahead = (begun + OPERATIONS - self.performing % OPERATIONS) % OPERATIONS;
                    ahead >= OPERATIONS / 2
                }
                None => true,
            };
            let unheard = other
                .heard
                .as_ref()
                .map_or(self.begun, |(when, _, _)| *when)
                .elapsed()
                .as_secs_f64();
            // A process that does not answer may have stopped within the operation.
            let stopped = unheard > 10.0 * PULSE.as_secs_f64();
            (number != rank && (behind || stopped)).then(|| Silence {
                rank: number,
                host: other.host.clone(),
                phase: other.heard.as_ref().and_then(|(_, _, phase)| *phase),
                unheard,
            })
        };
        self.others.iter().enumerate().filter_map(away).collect()
    }
}

impl Link for Process {
    fn gather(&mut self, own: Vec<u8>, desk: &Desk) -> Result<Vec<Vec<u8>>, RanksError> {
        self.pulses.performing += 1;
        self.all(own, desk)
    }

    fn sum(&mut self, own: Vec<f32>, desk: &Desk) -> Result<Vec<f32>, RanksError> {
        self.pulses.performing += 1;
        // Memory that was used before has been touched.
        let mut sums = std::mem::take(&mut self.spare);
        sums.resize(own.len(), 0.0);
        let (comm, pulses) = (&self.comm, &mut self.pulses);
        for (own, sums) in own.chunks(MOST / 4).zip(sums.chunks_mut(MOST / 4)) {
            mpi::request::scope(|scope| {
                let request = comm.immediate_all_reduce_into(scope, own, sums, SystemOperation::sum());
                pulses.until_done(request, Pace::Bulk, desk);
            });
        }
        self.spare = own;
        Ok(sums)
    }

    fn broadcast(&mut self, own: Vec<u8>, desk: &Desk) -> Result<Vec<u8>, RanksError> {
        self.pulses.performing += 1;
        let mut length = [own.len() as u64];
        let (comm, pulses) = (&self.comm, &mut self.pulses);
        mpi::request::scope(|scope| {
            let request = comm
                .process_at_rank(0)
                .immediate_broadcast_into(scope, &mut length[..]);
            pulses.until_done(request, Pace::Waiting, desk);
        });
        let mut bytes = own;
        bytes.resize(length[0] as usize, 0);
        for part in bytes.chunks_mut(MOST) {
            mpi::request::scope(|scope| {
                let request = comm.process_at_rank(0).immediate_broadcast_into(scope, part);
                pulses.until_done(request, Pace::Waiting, desk);
            });
        }
        Ok(bytes)
    }

    fn breathe(&mut self) {
        self.pulses.exchange();
    }

    /// Waits until all ranks have come here, and for the pulses on their way.
    fn finish(&mut self, desk: &Desk) {
        self.pulses.own.operations.fetch_add(1, Ordering::Relaxed);
        self.pulses.performing += 1;
        // The work is done; a rank may still write its results, or hand the job back to a queue.
        self.pulses.patience *= 4;
        let request = self.comm.immediate_barrier();
        self.pulses.until_done(request, Pace::Waiting, desk);
        let begin = Instant::now();
        while self.pulses.others.iter().any(|other| other.sending.is_some()) {
            for other in &mut self.pulses.others {
                other.sending = other.sending.take().and_then(|request| request.test().err());
            }
            while let Some((message, _)) = self.pulses.comm.any_process().immediate_matched_probe() {
                message.matched_receive_into(&mut [0u8; 1]);
            }
            if begin.elapsed() > PULSE {
                // The receiver has gone: MPI ends without it.
                for other in &mut self.pulses.others {
                    if let Some(request) = other.sending.take() {
                        std::mem::forget(request);
                    }
                }
            }
        }
    }

    fn abort(&mut self, code: i32) {
        self.comm.abort(code);
    }
}
