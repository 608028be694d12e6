//! Batches on a CUDA device, lent to another library of the process by their address.
//!
//! ```text
//!  DeviceBatch ──► CudaMemory ──lend──► LentMemory: an address ──► the consumer's work, in its stream
//!                                           │ dropped: an event into that stream
//!                                           ▼
//!                                        leaving ──the event has come──► CubeCL, for the next batches
//! ```
//!
//! A batch is complete when a loader hands it over, so the consumer's stream has nothing to wait for. Only the
//! way back needs care: a consumer queues its work and lets go of the batch while the device has not done that
//! work yet, and CubeCL would give the memory to the next batch at once. So the memory leaves with an event in
//! the consumer's stream, and stays reserved until that has come. Nothing waits for it: a caller that lends or lets
//! go next looks whether it has. Where the consumer's stream is not known, letting go waits for all work on the
//! device instead. If neither can be done, nothing tells when the consumer is done; then the memory stays reserved
//! for good, because a batch that is overwritten while it is read would be a silent error. A warning says so.
//!
//! A consumer that queues its work without waiting for any is ahead of its device by many batches, whose memory is all leaving. So
//! a loader asks how much of it there is ([`leaving_bytes`]) before it begins another batch.
//!
//! CubeCL, and CUDA's runtime in other libraries, use the device's primary context; so do the events here. The
//! thread's current context is as before when a call returns.

use crate::capture::Relaxed;
use crate::queue::{answered, queue};
use crate::{Backend, DeviceBatch, Gpu, GpuError};
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::ServerStorage;
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};
use cudarc::driver::DriverError;
use cudarc::driver::result::{ctx, device, event, primary_ctx, stream};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUevent_flags, CUresult, CUstream, CUstreamCaptureStatus,
};
use std::collections::BTreeSet;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem, process};

type CudaServer = <CudaRuntime as Runtime>::Server;
type Resource = <<CudaServer as ServerStorage>::Storage as ComputeStorage>::Resource;

/// The memory of a batch on a CUDA device, (N, 3, height, width) without gaps. Clones share it.
#[derive(Clone)]
pub struct CudaMemory {
    reserved: Arc<Reserved>,
}

/// What keeps the memory from being used again.
struct Reserved {
    address: u64,
    /// The device's number among CUDA's.
    device: usize,
    batch: DeviceBatch,
    /// Keeps the memory in its place.
    _resource: Mutex<ManagedResource<Resource>>,
    process: u32,
}

/// The stream in which a consumer works with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerStream {
    /// A `CUstream` of the driver; null is the default stream.
    Handle(usize),
    /// One that is not known here, such as the default stream of each thread, or several. Letting go of the
    /// batch waits for all work on the device, which loses a graph that is captured then.
    Unknown,
}

/// A batch in the hands of a consumer. Dropped, its memory is used again when the consumer's stream is done
/// with all that is queued there by then.
pub struct LentMemory {
    /// `None` after the end of its lending.
    lending: Option<(Arc<Reserved>, Done)>,
}

/// What tells that a consumer is done.
enum Done {
    /// The event, once it is recorded in this stream.
    Event(Event, usize),
    /// The end of all work on the device.
    Synchronized(Context),
}

/// Memory that consumers have let go of, and the events in their streams.
static LEAVING: Mutex<Vec<(Event, Arc<Reserved>)>> = Mutex::new(Vec::new());

impl Gpu {
    /// The memory of one of this device's batches.
    ///
    /// # Errors
    /// [`GpuError::Device`] if this is no CUDA device, or it reports an error.
    pub fn cuda_memory(&self, batch: DeviceBatch) -> Result<CudaMemory, GpuError> {
        if self.name().backend != Backend::Cuda {
            return Err(self.failed("only the memory of a CUDA device has an address for other libraries"));
        }
        let handle = batch.numbers.handle.clone();
        // In the batch's own queue: called from another one, a thread of CubeCL's that is not relaxed would wait, and a capture
        // would be lost.
        let find = || answered(|| self.client.get_resource::<CudaServer>(handle));
        let resource = queue().executes(find);
        let resource = resource.map_err(|reason| self.failed(reason))?;
        Ok(CudaMemory {
            reserved: Arc::new(Reserved {
                address: resource.resource().ptr,
                device: self.name().index,
                batch,
                _resource: Mutex::new(resource),
                process: process::id(),
            }),
        })
    }
}

impl CudaMemory {
    /// The address of the first number on the device.
    pub fn address(&self) -> u64 {
        self.reserved.address
    }

    /// The device's number among CUDA's.
    pub fn device(&self) -> usize {
        self.reserved.device
    }

    /// The batch.
    pub fn batch(&self) -> &DeviceBatch {
        &self.reserved.batch
    }

    /// Lends the memory to a consumer that works in `stream`.
    ///
    /// # Errors
    /// [`GpuError::Device`] if the stream belongs to another device, the driver reports an error, or this is a
    /// fork of the process that made the batch.
    ///
    /// # Safety
    /// A handle is that of a stream which exists until the memory has been let go of.
    pub unsafe fn lend(&self, stream: ConsumerStream) -> Result<LentMemory, GpuError> {
        let Reserved { device, process, .. } = *self.reserved;
        let failed = |reason: String| GpuError::Device {
            device: format!("cuda:{device}"),
            reason,
        };
        if process != process::id() {
            return Err(failed(format!(
                "process {process} made this batch, and a fork of it cannot use CUDA; make the loader in the process that \
                 uses it"
            )));
        }
        sweep();
        let refused = |error: DriverError| failed(format!("the stream cannot be used: {error}"));
        let done = match stream {
            ConsumerStream::Handle(stream) => {
                let event = Event::new(device).map_err(refused)?;
                // The driver rejects a stream of another device here, where that can be reported.
                // SAFETY: the caller promises that the stream exists.
                unsafe { event.record(stream) }.map_err(refused)?;
                Done::Event(event, stream)
            }
            ConsumerStream::Unknown => Done::Synchronized(Context::of(device).map_err(refused)?),
        };
        Ok(LentMemory {
            lending: Some((Arc::clone(&self.reserved), done)),
        })
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory")
            .field("address", &self.address())
            .field("device", &self.device())
            .finish_non_exhaustive()
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        let Some((reserved, done)) = self.lending.take() else {
            return;
        };
        if reserved.process != process::id() {
            // The driver's objects are of the process that forked.
            mem::forget((reserved, done));
            return;
        }
        match done {
            Done::Event(event, stream) => {
                // SAFETY: the lender of the memory promised that the stream exists until now.
                match unsafe { event.record_now(stream) } {
                    Ok(()) => leaving().push((event, reserved)),
                    Err(error) => keep(reserved, error),
                }
            }
            Done::Synchronized(context) => {
                if let Err(error) = context.synchronize() {
                    keep(reserved, error);
                }
            }
        }
        sweep();
    }
}

/// Reserves memory for good.
fn keep(reserved: Arc<Reserved>, error: DriverError) {
    warn(reserved.device, error.to_string(), |device| {
        format!(
            "cuda:{device}: the memory of a batch is not used again ({error}): its stream ended before it, or the batch was let go of \
             while a graph was captured; keep a batch's stream until the batch is gone, and let go of batches outside of captures"
        )
    });
    mem::forget(reserved);
}

/// What users have to know. What breaks a device or a stream does so for every batch, so it is said once.
struct Warnings {
    /// Of which device, and why.
    said: BTreeSet<(usize, String)>,
    /// What no one has taken yet.
    pending: Vec<String>,
}

static WARNINGS: Mutex<Warnings> = Mutex::new(Warnings {
    said: BTreeSet::new(),
    pending: Vec::new(),
});

pub(crate) fn warn(device: usize, why: String, text: impl FnOnce(usize) -> String) {
    let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if warnings.said.insert((device, why)) {
        let text = text(device);
        tracing::warn!("{text}");
        warnings.pending.push(text);
    }
}

/// Warnings about memory that consumers of lent batches have not returned, with what to do. Each call returns only new ones, and
/// each reason comes once for each device.
pub fn lend_warnings() -> Vec<String> {
    let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mem::take(&mut warnings.pending)
}

fn leaving() -> MutexGuard<'static, Vec<(Event, Arc<Reserved>)>> {
    // A panic of another thread leaves the list valid: code under the lock only adds and removes.
    LEAVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives memory back whose event has come.
fn sweep() {
    let mut lost = Vec::new();
    leaving().retain(|(event, reserved)| match event.has_come() {
        Ok(has_come) => !has_come,
        Err(error) => {
            lost.push((Arc::clone(reserved), error));
            false
        }
    });
    for (reserved, error) in lost {
        keep(reserved, error);
    }
}

/// Bytes of a device's batches that consumers have let go of and are not done with.
pub(crate) fn leaving_bytes(device: usize) -> u64 {
    sweep();
    let leaving = leaving();
    let of_device = leaving.iter().filter(|(_, reserved)| reserved.device == device);
    of_device.map(|(_, reserved)| reserved.batch.bytes()).sum()
}

/// A device's primary context.
struct Context {
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: a context is a handle of the driver, which any thread may use.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks it.
unsafe impl Sync for Context {}

impl Context {
    fn of(number: usize) -> Result<Context, DriverError> {
        let device = device::get(number as i32)?;
        // SAFETY: the device is the driver's own; `drop` releases what is retained here.
        let context = unsafe { primary_ctx::retain(device) }?;
        Ok(Context { device, context })
    }

    /// Calls `work` with this as the thread's current context, whatever graph is captured.
    fn within<R>(&self, work: impl FnOnce() -> Result<R, DriverError>) -> Result<R, DriverError> {
        let _relaxed = Relaxed::new();
        let before = ctx::get_current()?;
        // SAFETY: the context is retained as long as this lives.
        unsafe { ctx::set_current(self.context) }?;
        let result = work();
        // SAFETY: that was the thread's context a moment ago; a null pointer stands for none.
        unsafe { ctx::set_current(before.unwrap_or(ptr::null_mut())) }?;
        result
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        self.within(ctx::synchronize)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `of` retained it. CubeCL has it too, so this is never the last one, and an error changes
        // nothing here.
        let _ = unsafe { primary_ctx::release(self.device) };
    }
}

/// An event of the driver.
struct Event {
    event: CUevent,
    context: Context,
}

// SAFETY: an event is a handle of the driver, which any thread may use.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks it.
unsafe impl Sync for Event {}

impl Event {
    fn new(device: usize) -> Result<Event, DriverError> {
        let context = Context::of(device)?;
        let event = context.within(|| event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING))?;
        Ok(Event { event, context })
    }

    /// Puts the event after everything that is in the stream.
    ///
    /// # Safety
    /// The stream exists.
    unsafe fn record(&self, stream: usize) -> Result<(), DriverError> {
        // The default stream is that of the current context.
        self.context.within(|| {
            // SAFETY: the event is this one's own; the caller promises that the stream exists.
            unsafe { event::record(self.event, stream as CUstream) }
        })
    }

    /// The same, unless the stream is captured: its work is not done then, so the event would not come, and to ask for it
    /// would lose the capture.
    ///
    /// # Safety
    /// The stream exists.
    unsafe fn record_now(&self, stream: usize) -> Result<(), DriverError> {
        let capturing = self.context.within(|| {
            // SAFETY: the caller promises that the stream exists.
            unsafe { stream::is_capturing(stream as CUstream) }
        })?;
        if capturing != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Err(DriverError(CUresult::CUDA_ERROR_CAPTURED_EVENT));
        }
        // SAFETY: as above.
        unsafe { self.record(stream) }
    }

    /// Whether the event has come.
    ///
    /// # Errors
    /// No one can tell any more: the device is broken.
    fn has_come(&self) -> Result<bool, DriverError> {
        let queried = self.context.within(|| {
            // SAFETY: the event is this one's own.
            unsafe { event::query(self.event) }
        });
        match queried {
            Ok(()) => Ok(true),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // An error changes nothing here.
        let _ = self.context.within(|| {
            // SAFETY: the event is this one's own.
            unsafe { event::destroy(self.event) }
        });
    }
}
