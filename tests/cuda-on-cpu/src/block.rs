//! Launches: blocks, and the threads of a block, which take turns.
//!
//! A kernel whose threads never wait for each other is called for one thread after the other. Else each thread of
//! a block is a coroutine. It runs until it waits ([`suspend`]) or ends. When every thread of a warp has stopped,
//! the operations of warps that all their threads have come to are done; when all warps have stopped, the
//! barriers. If then no thread can continue, they wait for ever, which is an error.

use crate::memory::{POISON, Range};
use crate::settings::Order;
use crate::translate::{DONE, Kernel, MISALIGNED, NO_TARGET, OUTSIDE_SHARED, TRAP};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::fmt;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads of a warp.
pub const WARP: usize = 32;

/// The stack of a thread, bytes: local memory, and what the translated code keeps there.
const STACK: usize = 256 << 10;

/// What translated code knows of its thread. It reads the fields at their offsets.
#[repr(C)]
pub struct Thread {
    /// The thread's place in its block.
    pub tid: [u32; 3],
    /// The size of a block.
    pub ntid: [u32; 3],
    /// The block's place among all.
    pub ctaid: [u32; 3],
    /// The count of blocks.
    pub nctaid: [u32; 3],
    /// The thread's place in its warp.
    pub lane: u32,
    /// The warp's place in the block.
    pub warp: u32,
    /// The parameters of the launch.
    pub params: *const u8,
    /// The shared memory of the block.
    pub shared: *mut u8,
    /// Its size, bytes.
    pub shared_size: u64,
    /// How to stop; null where the kernel's threads do not wait.
    yielder: *const Yielder<u64, Request>,
}

/// Where a thread waits, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    site: u32,
    mask: u32,
    arguments: [u32; 3],
}

/// What threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A barrier of the block; with what becomes of a predicate of each thread.
    Barrier(Option<Vote>),
    /// A barrier of the warp.
    Warp,
    /// The threads of the warp that are here too.
    Active,
    /// A value of another thread.
    Shuffle(Shuffle),
    /// What becomes of a predicate of each thread.
    Vote(Vote),
    /// Which threads have the same value.
    Match {
        /// Whether all must have it.
        all: bool,
    },
    /// All values, made one.
    Reduce(Reduce),
    /// One of the threads.
    Elect,
}

/// Which thread's value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffle {
    /// That of a lower one.
    Up,
    /// That of a higher one.
    Down,
    /// That of the one whose number differs in given bits.
    Butterfly,
    /// That of the one with a given number.
    Index,
}

/// What becomes of predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// Whether all hold.
    All,
    /// Whether one holds.
    Any,
    /// Whether all are the same.
    Uniform,
    /// Those that hold, as bits.
    Ballot,
    /// How many hold.
    Count,
}

/// How values are made one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The sum.
    Add,
    /// The least unsigned one.
    Min,
    /// The largest unsigned one.
    Max,
    /// The least signed one.
    MinSigned,
    /// The largest signed one.
    MaxSigned,
    /// The bits that all have.
    And,
    /// The bits that one has.
    Or,
    /// The bits that an odd number of them has.
    Xor,
}

/// Stops the calling thread until its block has an answer: 32 bits, and above them a predicate.
///
/// # Safety
/// It is called by translated code only, on the stack of a coroutine, with the thread that the code was given.
pub unsafe extern "C" fn suspend(thread: *mut Thread, site: u32, mask: u32, a: u32, b: u32, c: u32) -> u64 {
    // SAFETY: the coroutine has set the pointer before it called the code, and lives while it runs.
    let yielder = unsafe { &*(*thread).yielder };
    yielder.suspend(Request {
        site,
        mask,
        arguments: [a, b, c],
    })
}

/// Why a launch did not end as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Shared memory outside of what the block has.
    OutsideShared,
    /// An address that is no multiple of the size.
    Misaligned,
    /// The kernel asked to end.
    Trap,
    /// A jump to nowhere.
    NoTarget,
    /// Threads that wait for each other for ever; which, and for what.
    Stuck(String),
    /// No memory for stacks or shared memory.
    NoMemory,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OutsideShared => f.write_str("an access outside of the block's shared memory"),
            Fault::Misaligned => f.write_str("an access at an address that is no multiple of its size"),
            Fault::Trap => f.write_str("the kernel ended itself (trap)"),
            Fault::NoTarget => f.write_str("a jump by an index that has no label"),
            Fault::Stuck(what) => write!(f, "threads wait for each other for ever: {what}"),
            Fault::NoMemory => f.write_str("no memory for stacks and shared memory"),
        }
    }
}

fn status(status: u32) -> Result<(), Fault> {
    match status {
        DONE => Ok(()),
        OUTSIDE_SHARED => Err(Fault::OutsideShared),
        MISALIGNED => Err(Fault::Misaligned),
        NO_TARGET => Err(Fault::NoTarget),
        TRAP => Err(Fault::Trap),
        _ => unreachable!("translated code answers with one of these"),
    }
}

/// A launch.
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its parameters, as they lie in memory.
    pub params: &'a [u8],
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// The shared memory of a block, bytes.
    pub shared: usize,
    /// The order of blocks and threads.
    pub order: Order,
}

/// Stacks of threads that have ended, for the next ones.
static STACKS: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

fn stacks() -> std::sync::MutexGuard<'static, Vec<DefaultStack>> {
    STACKS.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl Launch<'_> {
    /// Runs all blocks, on so many threads of the CPU.
    ///
    /// # Errors
    /// The first fault; other blocks may have run or not.
    pub fn run(&self, workers: usize) -> Result<(), Fault> {
        let count = self.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        let next = AtomicU64::new(0);
        let fault = Mutex::new(None);
        let work = || {
            let mut worker = match Worker::new(self) {
                Ok(worker) => worker,
                Err(error) => {
                    fault.lock().expect("no panic holds it").get_or_insert(error);
                    return;
                }
            };
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    break;
                }
                if let Err(error) = worker.block(self.order.at(turn, count)) {
                    fault.lock().expect("no panic holds it").get_or_insert(error);
                    next.store(count, Ordering::Relaxed);
                }
            }
            stacks().append(&mut worker.stacks);
        };
        // A thread of the CPU takes longer to start than a few threads of a block take.
        let workers = match count * u64::from(self.block.iter().product::<u32>()) {
            0..2048 => 1,
            _ => workers.min(count as usize),
        };
        if workers == 1 {
            work();
        } else {
            // The thread that launches only waits, so that its CPU time is nearly the program's own.
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(work);
                }
            });
        }
        fault.into_inner().expect("no panic holds it").map_or(Ok(()), Err)
    }
}

type Running = Coroutine<u64, Request, u32, DefaultStack>;

/// A coroutine that has the address of its thread's state.
#[derive(Clone, Copy)]
struct Pointer(*mut Thread);

enum State {
    Ready(u64),
    Waiting(Request),
    Ended,
}

/// A thread of the CPU, which runs one block after the other.
struct Worker<'a> {
    launch: &'a Launch<'a>,
    shared: Range,
    stacks: Vec<DefaultStack>,
    threads: Vec<Thread>,
}

impl<'a> Worker<'a> {
    fn new(launch: &'a Launch<'a>) -> Result<Worker<'a>, Fault> {
        let [x, y, z] = launch.block;
        let count = (x * y * z) as usize;
        let shared = Range::new(launch.shared).ok_or(Fault::NoMemory)?;
        let threads = (0..count as u32).map(|i| Thread {
            tid: [i % x, i / x % y, i / x / y],
            ntid: launch.block,
            ctaid: [0; 3],
            nctaid: launch.grid,
            lane: i % WARP as u32,
            warp: i / WARP as u32,
            params: launch.params.as_ptr(),
            shared: shared.start(),
            shared_size: launch.shared as u64,
            yielder: ptr::null(),
        });
        let mut free = Vec::new();
        if !launch.kernel.waits.is_empty() {
            let mut all = stacks();
            let left = all.len().saturating_sub(count);
            free = all.split_off(left);
            drop(all);
            while free.len() < count {
                free.push(DefaultStack::new(STACK).map_err(|_| Fault::NoMemory)?);
            }
        }
        Ok(Worker {
            launch,
            threads: threads.collect(),
            shared,
            stacks: free,
        })
    }

    fn block(&mut self, number: u64) -> Result<(), Fault> {
        let [x, y, _] = self.launch.grid.map(u64::from);
        let place = [number % x, number / x % y, number / x / y].map(|n| n as u32);
        for thread in &mut self.threads {
            thread.ctaid = place;
        }
        // SAFETY: the range has as many bytes as the launch has shared memory, and no thread of a block runs now.
        unsafe { self.shared.start().write_bytes(POISON, self.launch.shared) };
        if !self.launch.kernel.waits.is_empty() {
            return self.together();
        }
        let count = self.threads.len() as u64;
        for turn in 0..count {
            let thread = &raw mut self.threads[self.launch.order.at(turn, count) as usize];
            // SAFETY: the code was translated for a `Thread`, and its kernel has no site at which it would use the
            // yielder. What it does with its parameters is the kernel's matter, as on a GPU.
            status(unsafe { (self.launch.kernel.code)(thread) })?;
        }
        Ok(())
    }

    /// A block whose threads wait for each other.
    fn together(&mut self) -> Result<(), Fault> {
        let code = self.launch.kernel.code;
        let mut running: Vec<Running> = Vec::with_capacity(self.threads.len());
        for thread in &mut self.threads {
            let stack = self.stacks.pop().expect("a stack for each thread");
            let pointer = Pointer(thread);
            running.push(Coroutine::with_stack(
                stack,
                move |yielder: &Yielder<u64, Request>, _| {
                    let Pointer(thread) = { pointer };
                    // SAFETY: the thread's state outlives the coroutine, which alone uses it while it runs. The code was
                    // translated for a `Thread`; it calls `suspend` on this stack only.
                    unsafe {
                        (*thread).yielder = yielder;
                        code(thread)
                    }
                },
            ));
        }
        let result = self.take_turns(&mut running);
        for mut coroutine in running {
            if !coroutine.done() && coroutine.started() {
                // SAFETY: what is on the stack are frames of translated code and of `suspend`, which own nothing.
                unsafe { coroutine.force_reset() };
            }
            if coroutine.done() {
                self.stacks.push(coroutine.into_stack());
            }
        }
        result
    }

    fn take_turns(&self, running: &mut [Running]) -> Result<(), Fault> {
        let order = self.launch.order;
        let warps = running.len().div_ceil(WARP) as u64;
        let mut states: Vec<State> = running.iter().map(|_| State::Ready(0)).collect();
        loop {
            for turn in 0..warps {
                let first = order.at(turn, warps) as usize * WARP;
                let last = (first + WARP).min(running.len());
                let states = &mut states[first..last];
                loop {
                    let lanes = states.len() as u64;
                    let mut ran = false;
                    for turn in 0..lanes {
                        let lane = order.at(turn, lanes) as usize;
                        let State::Ready(answer) = states[lane] else {
                            continue;
                        };
                        ran = true;
                        states[lane] = match running[first + lane].resume(answer) {
                            CoroutineResult::Yield(request) => State::Waiting(request),
                            CoroutineResult::Return(end) => {
                                status(end)?;
                                State::Ended
                            }
                        };
                    }
                    if !ran || !self.answer_warp(states) {
                        break;
                    }
                }
            }
            if states.iter().all(|state| matches!(state, State::Ended)) {
                return Ok(());
            }
            if !self.answer_barriers(&mut states) {
                return Err(Fault::Stuck(self.describe(&states)));
            }
        }
    }

    /// Answers what the threads of a warp wait for where all that it takes have come; whether one can continue.
    fn answer_warp(&self, states: &mut [State]) -> bool {
        let mut answered = false;
        let mut lane = 0;
        while lane < states.len() {
            let first = lane;
            lane += 1;
            let State::Waiting(request) = states[first] else {
                continue;
            };
            let waits = self.launch.kernel.waits[request.site as usize];
            if matches!(waits, Waits::Barrier(_) | Waits::Active) {
                continue;
            }
            let (mut here, mut missing) = (0u32, 0u32);
            for (other, state) in states.iter().enumerate() {
                if request.mask >> other & 1 == 0 {
                    continue;
                }
                match state {
                    State::Waiting(at) if at.site == request.site && at.mask == request.mask => {
                        here |= 1 << other
                    }
                    State::Ended => {}
                    _ => missing |= 1 << other,
                }
            }
            // A thread that is not in its own mask waits for ever.
            if missing == 0 && here >> first & 1 == 1 {
                let requests = requests(states, here);
                for (lane, request) in &requests {
                    states[*lane] = State::Ready(answer(waits, here, &requests, *lane, *request));
                }
                answered = true;
            }
        }
        if answered {
            return true;
        }
        // Those that ask who is here are answered last, when no one else comes: as many as a GPU's warp could have
        // together.
        for lane in 0..states.len() {
            let State::Waiting(request) = states[lane] else {
                continue;
            };
            if self.launch.kernel.waits[request.site as usize] != Waits::Active {
                continue;
            }
            let here = states
                .iter()
                .enumerate()
                .fold(0u32, |here, (other, state)| match state {
                    State::Waiting(at) if at.site == request.site => here | 1 << other,
                    _ => here,
                });
            for other in (0..states.len()).filter(|other| here >> other & 1 == 1) {
                states[other] = State::Ready(here.into());
            }
            return true;
        }
        false
    }

    /// Lets those threads continue whose barrier is complete; whether there are any.
    fn answer_barriers(&self, states: &mut [State]) -> bool {
        let mut at: std::collections::BTreeMap<(u32, u32), Vec<usize>> = Default::default();
        let mut ended = 0;
        for (thread, state) in states.iter().enumerate() {
            match state {
                State::Waiting(request) => {
                    if let Waits::Barrier(_) = self.launch.kernel.waits[request.site as usize] {
                        let [id, count, _] = request.arguments;
                        at.entry((id, count)).or_default().push(thread);
                    }
                }
                State::Ended => ended += 1,
                State::Ready(_) => {}
            }
        }
        let mut answered = false;
        for ((_, count), threads) in at {
            let wanted = match count {
                0 => states.len() - ended,
                count => count as usize,
            };
            if threads.len() < wanted {
                continue;
            }
            answered = true;
            let holds = |thread: usize| match states[thread] {
                State::Waiting(request) => request.arguments[2] != 0,
                _ => false,
            };
            let true_ones = threads.iter().filter(|thread| holds(**thread)).count();
            for &thread in &threads {
                let State::Waiting(request) = states[thread] else {
                    continue;
                };
                let answer = match self.launch.kernel.waits[request.site as usize] {
                    Waits::Barrier(Some(Vote::All)) => u64::from(true_ones == threads.len()) << 32,
                    Waits::Barrier(Some(Vote::Any)) => u64::from(true_ones > 0) << 32,
                    _ => true_ones as u64,
                };
                states[thread] = State::Ready(answer);
            }
        }
        answered
    }

    /// Who waits for what, briefly.
    fn describe(&self, states: &[State]) -> String {
        let ended = states
            .iter()
            .filter(|state| matches!(state, State::Ended))
            .count();
        let waiting = states.iter().enumerate().find_map(|(thread, state)| match state {
            State::Waiting(request) => Some((thread, *request)),
            _ => None,
        });
        let Some((thread, request)) = waiting else {
            return "none waits".into();
        };
        let waits = self.launch.kernel.waits[request.site as usize];
        let Request { mask, arguments, .. } = request;
        format!(
            "of {} threads {ended} have ended, and thread {thread} waits at {waits:?} (mask {mask:#010x}, arguments {arguments:?})",
            states.len()
        )
    }
}

fn requests(states: &[State], here: u32) -> Vec<(usize, Request)> {
    let lanes = states.iter().enumerate();
    let waiting = lanes.filter_map(|(lane, state)| match state {
        State::Waiting(request) if here >> lane & 1 == 1 => Some((lane, *request)),
        _ => None,
    });
    waiting.collect()
}

/// The answer for one thread of those that are here.
fn answer(waits: Waits, here: u32, requests: &[(usize, Request)], lane: usize, request: Request) -> u64 {
    let value = |request: &Request| request.arguments[0];
    let pair = |value: u32, flag: bool| u64::from(flag) << 32 | u64::from(value);
    let ballot = requests
        .iter()
        .filter(|(_, request)| value(request) != 0)
        .fold(0u32, |bits, (lane, _)| bits | 1 << lane);
    match waits {
        Waits::Barrier(_) | Waits::Active | Waits::Warp => 0,
        Waits::Vote(Vote::Ballot) => ballot.into(),
        Waits::Vote(Vote::Count) => ballot.count_ones().into(),
        Waits::Vote(Vote::All) => pair(0, ballot == here),
        Waits::Vote(Vote::Any) => pair(0, ballot != 0),
        Waits::Vote(Vote::Uniform) => pair(0, ballot == here || ballot == 0),
        Waits::Elect => {
            let leader = here.trailing_zeros();
            pair(leader, leader as usize == lane)
        }
        Waits::Match { all: false } => {
            let same = requests
                .iter()
                .filter(|(_, other)| value(other) == value(&request));
            same.fold(0u64, |bits, (lane, _)| bits | 1 << lane)
        }
        Waits::Match { all: true } => {
            let same = requests.iter().all(|(_, other)| value(other) == value(&request));
            pair(if same { here } else { 0 }, same)
        }
        Waits::Reduce(how) => {
            let values = requests.iter().map(|(_, request)| value(request));
            let signed =
                |reduce: fn(i32, i32) -> i32| move |a: u32, b: u32| reduce(a as i32, b as i32) as u32;
            let reduced = match how {
                Reduce::Add => values.reduce(u32::wrapping_add),
                Reduce::Min => values.reduce(u32::min),
                Reduce::Max => values.reduce(u32::max),
                Reduce::MinSigned => values.reduce(signed(i32::min)),
                Reduce::MaxSigned => values.reduce(signed(i32::max)),
                Reduce::And => values.reduce(|a, b| a & b),
                Reduce::Or => values.reduce(|a, b| a | b),
                Reduce::Xor => values.reduce(|a, b| a ^ b),
            };
            reduced.unwrap_or_default().into()
        }
        Waits::Shuffle(how) => {
            let [own, operand, bounds] = request.arguments;
            // By the description of shfl.sync: a segment of the warp, and the last thread of it that can be read.
            let (clamp, segment) = ((bounds & 31) as i64, (bounds >> 8 & 31) as i64);
            let (lane, operand) = (lane as i64, i64::from(operand & 31));
            let last = (lane & segment) | (clamp & !segment);
            let first = lane & segment;
            let (source, is_inside) = match how {
                Shuffle::Up => (lane - operand, lane - operand >= last),
                Shuffle::Down => (lane + operand, lane + operand <= last),
                Shuffle::Butterfly => (lane ^ operand, lane ^ operand <= last),
                Shuffle::Index => {
                    let source = first | (operand & !segment);
                    (source, source <= last)
                }
            };
            if !is_inside {
                return pair(own, false);
            }
            let read = requests.iter().find(|(lane, _)| *lane as i64 == source);
            // The value of a thread that is not here is undefined: poison shows who uses it.
            pair(read.map_or(0xA5A5_A5A5, |(_, request)| value(request)), true)
        }
    }
}
