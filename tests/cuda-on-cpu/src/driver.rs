//! The driver's entry points, as many as CubeCL calls through cudarc.
//!
//! Handles are numbers: of contexts, streams, events, modules and functions. A number that stands for nothing is
//! an error. A launch that fails breaks its context: every later call is answered with the same error, as a GPU's
//! driver does after an illegal access.

mod entry;
#[cfg(test)]
mod tests;

use crate::block::{Fault, Launch};
use crate::memory::Allocations;
use crate::ptx::Module;
use crate::settings::{Settings, settings};
use crate::translate::{Kernel, translate};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Instant;

/// A result of the driver, by NVIDIA's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub i32);

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const INVALID_VALUE: Status = Status(1);
    pub const OUT_OF_MEMORY: Status = Status(2);
    pub const NOT_INITIALIZED: Status = Status(3);
    pub const NO_DEVICE: Status = Status(100);
    pub const INVALID_DEVICE: Status = Status(101);
    pub const INVALID_CONTEXT: Status = Status(201);
    pub const NO_BINARY_FOR_GPU: Status = Status(209);
    pub const INVALID_PTX: Status = Status(218);
    pub const UNSUPPORTED_PTX_VERSION: Status = Status(222);
    pub const INVALID_HANDLE: Status = Status(400);
    pub const NOT_FOUND: Status = Status(500);
    pub const NOT_READY: Status = Status(600);
    pub const ILLEGAL_ADDRESS: Status = Status(700);
    pub const MISALIGNED_ADDRESS: Status = Status(716);
    pub const LAUNCH_FAILED: Status = Status(719);
    pub const CAPTURE_UNSUPPORTED: Status = Status(900);
    pub const CAPTURE_INVALIDATED: Status = Status(901);
    pub const CAPTURE_IMPLICIT: Status = Status(906);
    pub const CAPTURED_EVENT: Status = Status(907);
    pub const CAPTURE_WRONG_THREAD: Status = Status(908);
    pub const UNKNOWN: Status = Status(999);

    /// NVIDIA's name.
    fn name(self) -> Option<&'static str> {
        Some(match self {
            Status::SUCCESS => "CUDA_SUCCESS",
            Status::INVALID_VALUE => "CUDA_ERROR_INVALID_VALUE",
            Status::OUT_OF_MEMORY => "CUDA_ERROR_OUT_OF_MEMORY",
            Status::NOT_INITIALIZED => "CUDA_ERROR_NOT_INITIALIZED",
            Status::NO_DEVICE => "CUDA_ERROR_NO_DEVICE",
            Status::INVALID_DEVICE => "CUDA_ERROR_INVALID_DEVICE",
            Status::INVALID_CONTEXT => "CUDA_ERROR_INVALID_CONTEXT",
            Status::NO_BINARY_FOR_GPU => "CUDA_ERROR_NO_BINARY_FOR_GPU",
            Status::INVALID_PTX => "CUDA_ERROR_INVALID_PTX",
            Status::UNSUPPORTED_PTX_VERSION => "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            Status::INVALID_HANDLE => "CUDA_ERROR_INVALID_HANDLE",
            Status::NOT_FOUND => "CUDA_ERROR_NOT_FOUND",
            Status::NOT_READY => "CUDA_ERROR_NOT_READY",
            Status::ILLEGAL_ADDRESS => "CUDA_ERROR_ILLEGAL_ADDRESS",
            Status::MISALIGNED_ADDRESS => "CUDA_ERROR_MISALIGNED_ADDRESS",
            Status::LAUNCH_FAILED => "CUDA_ERROR_LAUNCH_FAILED",
            Status::CAPTURE_UNSUPPORTED => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            Status::CAPTURE_INVALIDATED => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
            Status::CAPTURE_IMPLICIT => "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
            Status::CAPTURED_EVENT => "CUDA_ERROR_CAPTURED_EVENT",
            Status::CAPTURE_WRONG_THREAD => "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
            Status::UNKNOWN => "CUDA_ERROR_UNKNOWN",
            _ => return None,
        })
    }
}

/// A status and what it is about.
pub type Answer<T> = Result<T, (Status, String)>;

fn refuse<T>(status: Status, why: impl Into<String>) -> Answer<T> {
    Err((status, why.into()))
}

/// A loaded module's kernels.
type Kernels = Arc<Vec<Kernel>>;

/// All that the driver holds.
#[derive(Default)]
struct Driver {
    initialised: bool,
    /// The last handle that was given.
    last: u64,
    devices: Vec<Device>,
    streams: BTreeMap<u64, Stream>,
    events: BTreeMap<u64, Event>,
    /// Of the streams that are recorded.
    captures: BTreeMap<u64, Capture>,
    modules: BTreeMap<u64, Kernels>,
    /// Functions: the module's kernels, which of them it is, and the dynamic shared memory that launches may use, if it was set.
    functions: BTreeMap<u64, (Kernels, usize, Option<usize>)>,
    /// Pinned memory of the host.
    pinned: BTreeMap<u64, crate::memory::Range>,
    loads: u64,
    launches: u64,
}

/// A stream, which waits for the default stream unless it was made not to.
#[derive(Clone, Copy)]
struct Stream {
    device: usize,
    waits_for_default: bool,
}

/// An event: its device, when it happened, and how many more queries are told that it has not.
#[derive(Clone, Copy)]
struct Event {
    device: usize,
    time: Option<Instant>,
    pending: u64,
    /// The stream in whose graph it is, so no one can ask for it.
    captured: Option<u64>,
}

/// A stream whose work is recorded for a graph and not done.
struct Capture {
    stream: Stream,
    mode: CaptureMode,
    /// Who began it.
    thread: ThreadId,
    /// What was done meanwhile and was not permitted, the first.
    lost: Option<String>,
}

/// What may not be done while a stream is recorded, by the numbers of `CUstreamCaptureMode`: in a capture's mode `Global`,
/// by no thread, and in `ThreadLocal` by the one that began it, unless it has the mode `Relaxed` itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaptureMode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl CaptureMode {
    fn of(number: i32) -> Answer<CaptureMode> {
        match number {
            0 => Ok(CaptureMode::Global),
            1 => Ok(CaptureMode::ThreadLocal),
            2 => Ok(CaptureMode::Relaxed),
            other => refuse(Status::INVALID_VALUE, format!("the mode {other} of a capture")),
        }
    }
}

/// A device with its primary context.
#[derive(Default)]
struct Device {
    memory: Allocations,
    broken: Option<(Status, String)>,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    /// The device whose context is current in this thread.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Which captures forbid this thread something.
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// The first context's handle; those of other devices follow.
const FIRST_CONTEXT: u64 = 0x1000;

/// The most that a kernel's parameters take, bytes.
const MAX_PARAMS: usize = 32764;

/// Shared memory of a block, bytes: by default and with opt-in. GPUs of data centres have more.
const SHARED: usize = 48 << 10;
const SHARED_OPT_IN: usize = 96 << 10;

struct Locked(MutexGuard<'static, Option<Driver>>);

impl Locked {
    /// The driver, which has been initialised.
    fn new() -> Answer<Locked> {
        let locked = Locked::raw();
        match locked.0.as_ref() {
            Some(driver) if driver.initialised => Ok(locked),
            _ => refuse(Status::NOT_INITIALIZED, "cuInit was not called"),
        }
    }

    fn raw() -> Locked {
        Locked(DRIVER.lock().unwrap_or_else(|poison| poison.into_inner()))
    }

    fn driver(&mut self) -> &mut Driver {
        self.0.get_or_insert_with(Driver::default)
    }
}

/// The settings; those that mean nothing were refused by `cuInit`.
fn asked() -> Answer<&'static Settings> {
    settings()
        .as_ref()
        .map_err(|why| (Status::INVALID_VALUE, why.clone()))
}

impl Driver {
    fn handle(&mut self) -> u64 {
        self.last += 8;
        self.last
    }

    /// The device whose context is current, unless it is broken.
    fn device(&mut self) -> Answer<&mut Device> {
        let current = current()?;
        self.working(current)
    }

    /// A device, unless it is broken.
    fn working(&mut self, index: usize) -> Answer<&mut Device> {
        let device = &mut self.devices[index];
        match &device.broken {
            Some(broken) => Err(broken.clone()),
            None => Ok(device),
        }
    }

    /// Refuses what a capture forbids this thread by its mode. NVIDIA names no whole list, so here it is all that allocates, frees,
    /// loads, waits or asks.
    fn permit(&mut self, what: &str) -> Answer<()> {
        let thread = std::thread::current().id();
        let forbids = |_, capture: &Capture| match (MODE.get(), capture.mode) {
            (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
            (CaptureMode::Global, CaptureMode::Global) => true,
            _ => capture.thread == thread,
        };
        self.unless_captured(forbids, Status::CAPTURE_UNSUPPORTED, || {
            let name = std::thread::current().name().unwrap_or("no name").to_owned();
            format!(
                "{what} in the thread {name}, whose mode is {:?}, while a stream is recorded for a graph",
                MODE.get()
            )
        })
    }

    /// Refuses to wait for a stream that is recorded, or for a device with one, in every mode (CUDA Programming Guide,
    /// "Prohibited and Unhandled Operations").
    fn permit_waiting(&mut self, is_waited_for: impl Fn(u64, &Capture) -> bool) -> Answer<()> {
        self.unless_captured(is_waited_for, Status::CAPTURE_UNSUPPORTED, || {
            "waiting for what is recorded for a graph and not done".to_owned()
        })
    }

    /// Refuses where captures conflict with a call, by their streams' handles and themselves. Those are lost then.
    fn unless_captured(
        &mut self,
        conflicts: impl Fn(u64, &Capture) -> bool,
        status: Status,
        why: impl FnOnce() -> String,
    ) -> Answer<()> {
        let captures = self.captures.iter_mut();
        let mut lost = captures
            .filter(|(stream, capture)| conflicts(**stream, capture))
            .peekable();
        if lost.peek().is_none() {
            return Ok(());
        }
        let why = why();
        for (_, capture) in lost {
            capture.lost.get_or_insert_with(|| why.clone());
        }
        refuse(status, why)
    }

    /// The device of a stream, which need not be current; of the default stream it is.
    fn stream(&mut self, stream: u64) -> Answer<&mut Device> {
        let index = self.device_of(stream)?;
        // While a stream is recorded that waits for it, the default stream is no one's.
        let is_bound = |_, capture: &Capture| {
            let Stream {
                device,
                waits_for_default,
            } = capture.stream;
            stream == 0 && device == index && waits_for_default
        };
        self.unless_captured(is_bound, Status::CAPTURE_IMPLICIT, || {
            "the default stream, for which a stream waits that is recorded for a graph".to_owned()
        })?;
        self.working(index)
    }

    /// The number of a stream's device.
    fn device_of(&self, stream: u64) -> Answer<usize> {
        match (stream, self.streams.get(&stream)) {
            (0, _) => current(),
            (_, Some(stream)) => Ok(stream.device),
            (_, None) => refuse(Status::INVALID_HANDLE, "there is no such stream"),
        }
    }

    /// An event, whose device need not be current and works.
    fn event(&mut self, event: u64) -> Answer<&mut Event> {
        match self.events.get_mut(&event) {
            None => refuse(Status::INVALID_HANDLE, "there is no such event"),
            Some(event) => match &self.devices[event.device].broken {
                Some(broken) => Err(broken.clone()),
                None => Ok(event),
            },
        }
    }
}

/// The device whose context is current.
fn current() -> Answer<usize> {
    match CURRENT.get() {
        Some(index) => Ok(index),
        None => refuse(Status::INVALID_CONTEXT, "no context is current in this thread"),
    }
}

fn init() -> Answer<()> {
    let asked = asked()?;
    let mut locked = Locked::raw();
    let driver = locked.driver();
    if !driver.initialised {
        driver.devices = asked.capabilities.iter().map(|_| Device::default()).collect();
        driver.initialised = true;
    }
    Ok(())
}

fn allocate(len: usize) -> Answer<u64> {
    let limit = asked()?.limit;
    let mut locked = Locked::new()?;
    locked.driver().permit("an allocation")?;
    let device = locked.driver().device()?;
    if len == 0 {
        return refuse(Status::INVALID_VALUE, "an allocation of nothing");
    }
    let used = device.memory.used();
    match device.memory.add(len, limit) {
        Some(address) => Ok(address),
        None => refuse(
            Status::OUT_OF_MEMORY,
            format!("{len} bytes are asked for, {used} of {limit} are in use"),
        ),
    }
}

/// Bytes to and from devices: checked, then copied.
enum Side {
    Host(u64),
    Device(u64),
}

fn copy(to: Side, from: Side, len: usize, stream: u64) -> Answer<()> {
    let mut locked = Locked::new()?;
    let driver = locked.driver();
    driver.stream(stream)?;
    let address = |side: Side| match side {
        Side::Host(0) if len > 0 => refuse(Status::INVALID_VALUE, "no memory of the host"),
        Side::Host(address) => Ok(address),
        // Any device's: a program may copy between them.
        Side::Device(address)
            if driver
                .devices
                .iter()
                .any(|device| device.memory.contains(address, len as u64)) =>
        {
            Ok(address)
        }
        Side::Device(address) => refuse(
            Status::INVALID_VALUE,
            format!("{len} bytes at {address:#x} are not in one allocation"),
        ),
    };
    let (to, from) = (address(to)?, address(from)?);
    // SAFETY: what is on a device has just been found to be in an allocation, which stays while the driver is locked.
    // The caller gives memory of the host that is its own, as the driver's interface demands.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
    Ok(())
}

fn load(image: &[u8]) -> Answer<u64> {
    let asked = asked()?;
    let number = {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.permit("a module")?;
        driver.device()?;
        driver.loads += 1;
        driver.loads
    };
    if asked.refuse == Some(number) {
        return refuse(
            Status::INVALID_PTX,
            format!("module {number} is refused, as was asked for"),
        );
    }
    let invalid = |why: String| (Status::INVALID_PTX, why);
    let text = std::str::from_utf8(image).map_err(|_| invalid("the module is not PTX".into()))?;
    keep(asked, text, number)?;
    let module = Module::parse(text).map_err(|error| invalid(error.to_string()))?;
    let (newest, version) = (asked.newest_ptx(), module.version);
    if version > newest {
        return refuse(
            Status::UNSUPPORTED_PTX_VERSION,
            format!(
                "the PTX is of version {}.{}; a driver of CUDA {}.{} reads at most {}.{}",
                version.0, version.1, asked.driver.0, asked.driver.1, newest.0, newest.1
            ),
        );
    }
    let current = current()?;
    let capability = asked.capabilities[current];
    let (target, is_exact) = module.target;
    if target > capability || (is_exact && target != capability) {
        return refuse(
            Status::NO_BINARY_FOR_GPU,
            format!("the PTX is for sm_{target} and the device is of sm_{capability}"),
        );
    }
    let kernels = translate(&module, |variable| {
        let size = variable.size.unwrap_or_default().max(1) as usize;
        let mut locked = Locked::new().map_err(|(_, why)| why)?;
        let device = &mut locked.driver().devices[current];
        let address = device
            .memory
            .add(size, asked.limit)
            .ok_or("no memory for the module's variables")?;
        let contents = &variable.contents;
        // SAFETY: the allocation has just been made with as many bytes as the variable; the parser has checked that
        // its contents are no longer.
        unsafe {
            std::ptr::write_bytes(address as *mut u8, 0, size);
            std::ptr::copy_nonoverlapping(contents.as_ptr(), address as *mut u8, contents.len());
        }
        Ok(address)
    });
    let kernels = kernels.map_err(|error| invalid(error.to_string()))?;
    let mut locked = Locked::new()?;
    let driver = locked.driver();
    let handle = driver.handle();
    driver.modules.insert(handle, Arc::new(kernels));
    Ok(handle)
}

/// Writes PTX where the settings want it.
fn keep(asked: &Settings, text: &str, number: u64) -> Answer<()> {
    let Some(folder) = &asked.ptx else {
        return Ok(());
    };
    let path = folder.join(format!("{}-{number}.ptx", std::process::id()));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| (Status::UNKNOWN, format!("{}: {error}", path.display())))
}

fn function(module: u64, name: &str) -> Answer<u64> {
    let mut locked = Locked::new()?;
    let driver = locked.driver();
    driver.device()?;
    let Some(kernels) = driver.modules.get(&module).cloned() else {
        return refuse(Status::INVALID_HANDLE, "there is no such module");
    };
    let Some(at) = kernels.iter().position(|kernel| kernel.name == name) else {
        return refuse(Status::NOT_FOUND, format!("the module has no kernel {name}"));
    };
    let handle = driver.handle();
    driver.functions.insert(handle, (kernels, at, None));
    Ok(handle)
}

/// A launch as the driver is asked for it. `param` copies a parameter: its number, and where to.
fn launch(
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic: u32,
    stream: u64,
    mut param: impl FnMut(usize, &mut [u8]) -> Answer<()>,
) -> Answer<()> {
    let asked = asked()?;
    let (kernels, at, allowed) = {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.stream(stream)?;
        if driver.captures.contains_key(&stream) {
            return refuse(Status::INVALID_VALUE, "launches of a graph are not recorded here");
        }
        let Some(found) = driver.functions.get(&function).cloned() else {
            return refuse(Status::INVALID_HANDLE, "there is no such function");
        };
        driver.launches += 1;
        if asked.fault == Some(driver.launches) {
            let broken = (
                Status::ILLEGAL_ADDRESS,
                format!("launch {} breaks the device, as was asked for", driver.launches),
            );
            driver.stream(stream)?.broken = Some(broken);
            // A GPU finds it while it works, and tells it to whoever asks next.
            return Ok(());
        }
        found
    };
    let kernel = &kernels[at];
    let threads = block.iter().map(|n| u64::from(*n)).product::<u64>();
    let is_possible = grid.iter().chain(&block).all(|n| *n > 0)
        && grid[0] <= i32::MAX as u32
        && grid[1].max(grid[2]) <= 65535
        && block[2] <= 64
        && threads <= 1024;
    if !is_possible {
        return refuse(
            Status::INVALID_VALUE,
            format!("{}: a grid of {grid:?} blocks of {block:?} threads", kernel.name),
        );
    }
    if threads > kernel.max_threads {
        return refuse(
            Status::INVALID_VALUE,
            format!(
                "{}: {threads} threads of a block, at most {}",
                kernel.name, kernel.max_threads
            ),
        );
    }
    let shared = kernel.shared + dynamic as usize;
    let allowed = allowed.unwrap_or(SHARED.saturating_sub(kernel.shared));
    if dynamic as usize > allowed || shared > SHARED_OPT_IN {
        return refuse(
            Status::INVALID_VALUE,
            format!(
                "{}: {dynamic} bytes of dynamic shared memory and {} of its own; of the former at most {allowed} (cuFuncSetAttribute), \
                 of both {SHARED_OPT_IN}",
                kernel.name, kernel.shared
            ),
        );
    }
    let end = kernel
        .params
        .iter()
        .map(|(offset, size)| offset + size)
        .max()
        .unwrap_or_default();
    // Words, so that every parameter is aligned.
    let mut words = vec![0u128; end.min(MAX_PARAMS).div_ceil(16)];
    let bytes = words.as_mut_ptr().cast::<u8>();
    // SAFETY: these are the bytes of the words, which nothing else reaches until the launch has ended.
    let params = unsafe { std::slice::from_raw_parts_mut(bytes, words.len() * 16) };
    for (number, (offset, size)) in kernel.params.iter().enumerate() {
        param(number, &mut params[*offset..offset + size])?;
    }
    let launch = Launch {
        kernel,
        params,
        grid,
        block,
        shared,
        order: asked.order,
    };
    // Without the lock: others may load modules meanwhile.
    if let Err(fault) = launch.run(asked.workers) {
        let status = match fault {
            Fault::OutsideShared => Status::ILLEGAL_ADDRESS,
            Fault::Misaligned => Status::MISALIGNED_ADDRESS,
            Fault::NoMemory => Status::OUT_OF_MEMORY,
            Fault::Trap | Fault::NoTarget | Fault::Stuck(_) => Status::LAUNCH_FAILED,
        };
        let broken = (status, format!("{}: {fault}", kernel.name));
        let mut locked = Locked::new()?;
        locked.driver().stream(stream)?.broken = Some(broken);
    }
    Ok(())
}

/// What the driver said last with a status, for who asks what the status means.
static SAID: Mutex<BTreeMap<Status, &'static std::ffi::CStr>> = Mutex::new(BTreeMap::new());

fn said() -> MutexGuard<'static, BTreeMap<Status, &'static std::ffi::CStr>> {
    SAID.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Does what an entry point is for; its status, whose reason is kept. No panic leaves the driver.
fn answered(work: impl FnOnce() -> Answer<()>) -> i32 {
    let answer = catch_unwind(AssertUnwindSafe(work));
    let (status, why) = match answer {
        Ok(Ok(())) => return Status::SUCCESS.0,
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or(panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic");
            (Status::UNKNOWN, format!("the driver panicked: {text}"))
        }
    };
    let mut said = said();
    if said
        .get(&status)
        .is_none_or(|known| known.to_bytes() != why.as_bytes())
    {
        // Whoever asks may keep the pointer for ever; a test has few different errors.
        let text = std::ffi::CString::new(why.replace('\0', " ")).unwrap_or_default();
        said.insert(status, Box::leak(text.into_boxed_c_str()));
    }
    status.0
}
