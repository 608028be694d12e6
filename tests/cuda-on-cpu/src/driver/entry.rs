//! The functions that programs call, with the names and arguments of NVIDIA's header `cuda.h`.

use super::{
    Answer, CURRENT, Capture, CaptureMode, Event, FIRST_CONTEXT, Locked, MODE, SHARED, SHARED_OPT_IN, Side,
    Status, Stream, allocate, answered, asked, copy, current, function, init, launch, load, refuse, said,
};
use crate::memory::Range;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::time::Instant;

/// Writes an answer to where the caller wants it.
///
/// # Safety
/// The pointer is null or the caller's own, for a value of this type.
unsafe fn give<T>(to: *mut T, value: T) -> Answer<()> {
    if to.is_null() {
        return refuse(Status::INVALID_VALUE, "no place for the answer");
    }
    // SAFETY: the caller's promise; it is not null.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text and a zero, cut to the room there is.
///
/// # Safety
/// The pointer is null or the caller's own, for `len` characters.
unsafe fn give_text(to: *mut c_char, len: c_int, text: &str) -> Answer<()> {
    let room = len.max(0) as usize;
    if to.is_null() || room == 0 {
        return refuse(Status::INVALID_VALUE, "no place for the answer");
    }
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    // SAFETY: the caller's promise; the text and the zero are at most `len` characters.
    unsafe {
        to.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

/// Frees memory, of whichever device it is.
fn free(address: u64) -> Answer<()> {
    let mut locked = Locked::new()?;
    locked.driver().permit("freeing")?;
    match locked
        .driver()
        .devices
        .iter_mut()
        .any(|device| device.memory.remove(address))
    {
        true => Ok(()),
        false => refuse(
            Status::INVALID_VALUE,
            format!("there is no allocation at {address:#x}"),
        ),
    }
}

fn device_index(device: c_int) -> Answer<usize> {
    let count = asked()?.capabilities.len();
    match usize::try_from(device) {
        Ok(index) if index < count => Ok(index),
        _ => refuse(
            Status::INVALID_DEVICE,
            format!("there is no device {device} of {count}"),
        ),
    }
}

/// The lowest of the numbers that have the meaning of handles here.
fn pointer(handle: u64) -> *mut c_void {
    handle as *mut c_void
}

/// Each entry point with what it does. All are `unsafe`: their pointers are the caller's, as `cuda.h` demands.
macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments are those that NVIDIA's header describes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $ty),*) -> i32 {
            answered(move || $body)
        }
    )*};
}

entries! {
    /// Reads the settings.
    fn cuInit(_flags: c_uint) {
        init()
    }

    /// 12080 for CUDA 12.8.
    fn cuDriverGetVersion(version: *mut c_int) {
        let (major, minor) = asked()?.driver;
        // SAFETY: the caller's pointer.
        unsafe { give(version, (major * 1000 + minor * 10) as c_int) }
    }

    /// How many devices there are.
    fn cuDeviceGetCount(count: *mut c_int) {
        Locked::new()?;
        // SAFETY: the caller's pointer.
        unsafe { give(count, asked()?.capabilities.len() as c_int) }
    }

    /// A device by its number.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        Locked::new()?;
        let index = device_index(ordinal)?;
        // SAFETY: the caller's pointer.
        unsafe { give(device, index as c_int) }
    }

    /// It says what the device is. A name with GTX makes CubeCL believe that it has no tensor cores, which is true.
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) {
        let capability = asked()?.capabilities[device_index(device)?];
        let text = format!("no GTX, no GPU: CUDA on the CPU (sm_{capability})");
        // SAFETY: the caller's pointer.
        unsafe { give_text(name, len, &text) }
    }

    /// An address that no bus has.
    fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) {
        let index = device_index(device)?;
        // SAFETY: the caller's pointer.
        unsafe { give_text(id, len, &format!("0000:00:{index:02x}.0")) }
    }

    /// The memory of a device, bytes.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        device_index(device)?;
        // SAFETY: the caller's pointer.
        unsafe { give(bytes, asked()?.memory as usize) }
    }

    /// The free memory and all of it, bytes.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let asked = asked()?;
        let used = Locked::new()?.driver().device()?.memory.used();
        // SAFETY: the caller's pointers.
        unsafe {
            give(free, asked.limit.saturating_sub(used) as usize)?;
            give(total, asked.memory as usize)
        }
    }

    /// Sizes and abilities, by the numbers of `CUdevice_attribute`.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        let capability = asked()?.capabilities[device_index(device)?] as c_int;
        let answer = match attribute {
            // Threads of a block, in all and along x and y; along z.
            1..=3 => 1024,
            4 => 64,
            // Blocks along x; along y and z.
            5 => c_int::MAX,
            6 | 7 => 65535,
            8 => SHARED as c_int,
            10 => crate::block::WARP as c_int,
            // Multiprocessors: CubeCL divides work by them.
            16 => 8,
            75 => capability / 10,
            76 => capability % 10,
            97 => SHARED_OPT_IN as c_int,
            // Memory that is allocated in a stream's order: cudarc asks.
            115 => 1,
            other => {
                return refuse(Status::INVALID_VALUE, format!("the attribute {other} of a device is not known"));
            }
        };
        // SAFETY: the caller's pointer.
        unsafe { give(value, answer) }
    }

    /// The context of a device.
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) {
        Locked::new()?;
        let handle = FIRST_CONTEXT + device_index(device)? as u64;
        // SAFETY: the caller's pointer.
        unsafe { give(context, pointer(handle)) }
    }

    /// The context stays while the process does.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        device_index(device).map(drop)
    }

    /// Makes a context the thread's own.
    fn cuCtxSetCurrent(context: *mut c_void) {
        let index = match context as u64 {
            0 => None,
            handle => {
                let index = handle.wrapping_sub(FIRST_CONTEXT);
                let count = asked()?.capabilities.len() as u64;
                if index >= count {
                    return refuse(Status::INVALID_CONTEXT, "there is no such context");
                }
                Some(index as usize)
            }
        };
        CURRENT.set(index);
        Ok(())
    }

    /// The thread's context.
    fn cuCtxGetCurrent(context: *mut *mut c_void) {
        let handle = CURRENT.get().map_or(0, |index| FIRST_CONTEXT + index as u64);
        // SAFETY: the caller's pointer.
        unsafe { give(context, pointer(handle)) }
    }

    /// All is done already, so the device's events have come.
    fn cuCtxSynchronize() {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.permit("waiting for the device")?;
        driver.device()?;
        let device = current()?;
        driver.permit_waiting(|_, capture| capture.stream.device == device)?;
        for event in driver.events.values_mut().filter(|event| event.device == device) {
            event.pending = 0;
        }
        Ok(())
    }

    /// There are no priorities.
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        // SAFETY: the caller's pointers.
        unsafe {
            give(least, 0)?;
            give(greatest, 0)
        }
    }

    /// A stream.
    fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.device()?;
        let (handle, device) = (driver.handle(), current()?);
        driver.streams.insert(handle, Stream { device, waits_for_default: flags & 1 == 0 });
        // SAFETY: the caller's pointer.
        unsafe { give(stream, pointer(handle)) }
    }

    /// A stream, whose priority means nothing.
    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, _priority: c_int) {
        // SAFETY: the caller's pointer.
        let status = Status(unsafe { cuStreamCreate(stream, flags) });
        match status {
            Status::SUCCESS => Ok(()),
            status => refuse(status, "no stream"),
        }
    }

    /// Forgets a stream.
    fn cuStreamDestroy_v2(stream: *mut c_void) {
        let mut locked = Locked::new()?;
        match locked.driver().streams.remove(&(stream as u64)) {
            Some(_) => Ok(()),
            None => refuse(Status::INVALID_HANDLE, "there is no such stream"),
        }
    }

    /// All is done already.
    fn cuStreamSynchronize(stream: *mut c_void) {
        let mut locked = Locked::new()?;
        locked.driver().permit("waiting for a stream")?;
        locked.driver().permit_waiting(|handle, _| handle == stream as u64)?;
        locked.driver().stream(stream as u64).map(drop)
    }

    /// What is waited for is done already.
    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.stream(stream as u64)?;
        driver.event(event as u64).map(drop)
    }

    /// Whether a stream is recorded: 0, 1, or 2 if that has become worthless.
    fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_int) {
        let mut locked = Locked::new()?;
        locked.driver().stream(stream as u64)?;
        let capture = locked.driver().captures.get(&(stream as u64));
        // SAFETY: the caller's pointer.
        unsafe { give(status, capture.map_or(0, |capture| 1 + c_int::from(capture.lost.is_some()))) }
    }

    /// From here on the stream's work is recorded. Only events can be recorded here, and no launches.
    fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_int) {
        let mode = CaptureMode::of(mode)?;
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.stream(stream as u64)?;
        let handle = stream as u64;
        let stream = match driver.streams.get(&handle) {
            Some(stream) if !driver.captures.contains_key(&handle) => *stream,
            _ => return refuse(Status::INVALID_VALUE, "it is recorded already, or the default stream, which cannot be"),
        };
        let thread = std::thread::current().id();
        driver.captures.insert(handle, Capture { stream, mode, thread, lost: None });
        Ok(())
    }

    /// There is no graph, but whether there would be one.
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        // SAFETY: the caller's pointer.
        unsafe { give(graph, std::ptr::null_mut())? };
        let mut locked = Locked::new()?;
        let Some(capture) = locked.driver().captures.remove(&(stream as u64)) else {
            return refuse(Status::INVALID_VALUE, "the stream is not recorded");
        };
        if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
            return refuse(Status::CAPTURE_WRONG_THREAD, "another thread began it");
        }
        match capture.lost {
            Some(why) => refuse(Status::CAPTURE_INVALIDATED, why),
            None => Ok(()),
        }
    }

    /// Gives the thread a mode, and the caller the one before.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        if mode.is_null() {
            return refuse(Status::INVALID_VALUE, "no mode");
        }
        // SAFETY: the caller's pointer; it is not null.
        let new = CaptureMode::of(unsafe { mode.read() })?;
        let before = MODE.replace(new) as c_int;
        // SAFETY: as above.
        unsafe { give(mode, before) }
    }

    /// An event.
    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.device()?;
        let (handle, device) = (driver.handle(), current()?);
        driver.events.insert(handle, Event { device, time: None, pending: 0, captured: None });
        // SAFETY: the caller's pointer.
        unsafe { give(event, pointer(handle)) }
    }

    /// Forgets an event.
    fn cuEventDestroy_v2(event: *mut c_void) {
        match Locked::new()?.driver().events.remove(&(event as u64)) {
            Some(_) => Ok(()),
            None => refuse(Status::INVALID_HANDLE, "there is no such event"),
        }
    }

    /// The event happens now; as many queries as are asked for are told later. Stream and event are of one device.
    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        let pending = asked()?.pending;
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.stream(stream as u64)?;
        let device = driver.device_of(stream as u64)?;
        let captured = driver.captures.contains_key(&(stream as u64)).then_some(stream as u64);
        let event = driver.event(event as u64)?;
        if event.device != device {
            return refuse(
                Status::INVALID_HANDLE,
                format!("an event of device {} in a stream of device {device}", event.device),
            );
        }
        *event = Event { device, time: Some(Instant::now()), pending, captured };
        Ok(())
    }

    /// The event has happened.
    fn cuEventSynchronize(event: *mut c_void) {
        let mut locked = Locked::new()?;
        locked.driver().permit("waiting for an event")?;
        locked.driver().event(event as u64)?.pending = 0;
        Ok(())
    }

    /// The event has happened, but for the queries that are told otherwise. One that was never recorded has.
    fn cuEventQuery(event: *mut c_void) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.permit("asking for an event")?;
        if let Some(captured) = driver.event(event as u64)?.captured {
            let why = "the event is part of a graph";
            driver.unless_captured(|stream, _| stream == captured, Status::CAPTURED_EVENT, || why.to_owned())?;
            return refuse(Status::CAPTURED_EVENT, why);
        }
        let event = driver.event(event as u64)?;
        if event.pending > 0 {
            event.pending -= 1;
            return refuse(Status::NOT_READY, "the event has not come, as was asked for");
        }
        Ok(())
    }

    /// The time between two events, milliseconds.
    fn cuEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        let time = |event: *mut c_void| driver.events.get(&(event as u64)).and_then(|event| event.time);
        let (Some(start), Some(end)) = (time(start), time(end)) else {
            return refuse(Status::INVALID_HANDLE, "an event that was not recorded");
        };
        let between = end.saturating_duration_since(start).as_secs_f32() * 1e3;
        // SAFETY: the caller's pointer.
        unsafe { give(milliseconds, between) }
    }

    /// Memory of the current device.
    fn cuMemAlloc_v2(address: *mut u64, len: usize) {
        // SAFETY: the caller's pointer.
        unsafe { give(address, allocate(len)?) }
    }

    /// The same; all work of the stream is done.
    fn cuMemAllocAsync(address: *mut u64, len: usize, stream: *mut c_void) {
        Locked::new()?.driver().stream(stream as u64)?;
        // SAFETY: the caller's pointer.
        unsafe { give(address, allocate(len)?) }
    }

    /// Frees memory of the current device.
    fn cuMemFree_v2(address: u64) {
        free(address)
    }

    /// The same; all work of the stream is done.
    fn cuMemFreeAsync(address: u64, stream: *mut c_void) {
        Locked::new()?.driver().stream(stream as u64)?;
        free(address)
    }

    /// Memory of the host.
    fn cuMemAllocHost_v2(address: *mut *mut c_void, len: usize) {
        let mut locked = Locked::new()?;
        let driver = locked.driver();
        driver.permit("memory of the host")?;
        driver.device()?;
        let Some(range) = Range::new(len) else {
            return refuse(Status::OUT_OF_MEMORY, format!("{len} bytes of the host"));
        };
        let start = range.start();
        driver.pinned.insert(start as u64, range);
        // SAFETY: the caller's pointer.
        unsafe { give(address, start.cast()) }
    }

    /// Frees memory of the host.
    fn cuMemFreeHost(address: *mut c_void) {
        let mut locked = Locked::new()?;
        locked.driver().permit("freeing memory of the host")?;
        match locked.driver().pinned.remove(&(address as u64)) {
            Some(_) => Ok(()),
            None => refuse(Status::INVALID_VALUE, "there is no such memory of the host"),
        }
    }

    /// To the device.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: *mut c_void) {
        copy(Side::Device(to), Side::Host(from as u64), len, stream as u64)
    }

    /// From the device.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, stream: *mut c_void) {
        copy(Side::Host(to as u64), Side::Device(from), len, stream as u64)
    }

    /// Within devices.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: *mut c_void) {
        copy(Side::Device(to), Side::Device(from), len, stream as u64)
    }

    /// Fills memory of a device.
    fn cuMemsetD8Async(to: u64, byte: u8, len: usize, stream: *mut c_void) {
        let bytes = vec![byte; len];
        copy(Side::Device(to), Side::Host(bytes.as_ptr() as u64), len, stream as u64)
    }

    /// A rectangle, row by row.
    fn cuMemcpy2DAsync_v2(rectangle: *const Rectangle, stream: *mut c_void) {
        // SAFETY: the caller's pointer, which may be null.
        let Some(rectangle) = (unsafe { rectangle.as_ref() }) else {
            return refuse(Status::INVALID_VALUE, "no rectangle");
        };
        let side = |place: &Place, row: usize| {
            let offset = (place.y + row) * place.pitch + place.x;
            match place.memory {
                1 => Ok(Side::Host(place.host as u64 + offset as u64)),
                2 => Ok(Side::Device(place.device + offset as u64)),
                other => refuse(Status::INVALID_VALUE, format!("memory of type {other} is not known")),
            }
        };
        for row in 0..rectangle.height {
            let (to, from) = (side(&rectangle.to, row)?, side(&rectangle.from, row)?);
            copy(to, from, rectangle.width, stream as u64)?;
        }
        Ok(())
    }

    /// Reads and translates PTX.
    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        if image.is_null() {
            return refuse(Status::INVALID_VALUE, "no module");
        }
        // SAFETY: the caller's pointer, to a text that ends with a zero; of other images the first zero is near, for their
        // headers have some.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        // SAFETY: the caller's pointer.
        unsafe { give(module, pointer(load(text.to_bytes())?)) }
    }

    /// Forgets a module; its functions stay as long as they are held.
    fn cuModuleUnload(module: *mut c_void) {
        match Locked::new()?.driver().modules.remove(&(module as u64)) {
            Some(_) => Ok(()),
            None => refuse(Status::INVALID_HANDLE, "there is no such module"),
        }
    }

    /// A kernel by its name.
    fn cuModuleGetFunction(to: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        if name.is_null() {
            return refuse(Status::INVALID_VALUE, "no name");
        }
        // SAFETY: the caller's pointer, to a text that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        // SAFETY: the caller's pointer.
        unsafe { give(to, pointer(function(module as u64, &name)?)) }
    }

    /// The most dynamic shared memory of a function's launches (8). No other attribute is known.
    fn cuFuncSetAttribute(function: *mut c_void, attribute: c_int, value: c_int) {
        let mut locked = Locked::new()?;
        let Some((_, _, allowed)) = locked.driver().functions.get_mut(&(function as u64)) else {
            return refuse(Status::INVALID_HANDLE, "there is no such function");
        };
        if attribute != 8 || !(0..=SHARED_OPT_IN as c_int).contains(&value) {
            return refuse(Status::INVALID_VALUE, format!("the attribute {attribute} of a function as {value}"));
        }
        *allowed = Some(value as usize);
        Ok(())
    }

    /// Runs a kernel to its end.
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: *mut c_void,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        if !extra.is_null() {
            return refuse(Status::INVALID_VALUE, "parameters in one piece are not known");
        }
        let param = |number: usize, to: &mut [u8]| {
            if params.is_null() {
                return refuse(Status::INVALID_VALUE, "no parameters");
            }
            // SAFETY: the caller's list has a pointer for each of the kernel's parameters.
            let from = unsafe { *params.add(number) };
            if from.is_null() {
                return refuse(Status::INVALID_VALUE, format!("no parameter {number}"));
            }
            // SAFETY: the pointer is to as many bytes as the parameter has.
            to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), to.len()) });
            Ok(())
        };
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function as u64, grid, block, shared, stream as u64, param)
    }

    /// NVIDIA's name of a status.
    fn cuGetErrorName(status: c_int, text: *mut *const c_char) {
        let Some(name) = Status(status).name() else {
            return refuse(Status::INVALID_VALUE, format!("there is no status {status}"));
        };
        let name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: the caller's pointer. The text stays for ever, because the caller may keep it.
        unsafe { give(text, Box::leak(name.into_boxed_c_str()).as_ptr()) }
    }

    /// What was said last with a status.
    fn cuGetErrorString(status: c_int, text: *mut *const c_char) {
        let text_of = said().get(&Status(status)).map_or(c"no such thing was said".as_ptr(), |text| text.as_ptr());
        // SAFETY: the caller's pointer; the text stays for ever.
        unsafe { give(text, text_of) }
    }
}

/// `CUDA_MEMCPY2D_st`.
#[repr(C)]
pub struct Rectangle {
    from: Place,
    to: Place,
    /// Bytes of a row.
    width: usize,
    /// Rows.
    height: usize,
}

/// A side of [`Rectangle`].
#[repr(C)]
struct Place {
    /// The first byte of a row.
    x: usize,
    /// The first row.
    y: usize,
    /// 1 is the host's, 2 the device's.
    memory: c_uint,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    /// Bytes from row to row.
    pitch: usize,
}

#[cfg(test)]
impl Rectangle {
    /// From the device to rows of the host that follow each other.
    pub fn new(
        device: u64,
        (x, y): (usize, usize),
        pitch: usize,
        host: *mut u8,
        host_pitch: usize,
        (width, height): (usize, usize),
    ) -> Rectangle {
        let null = std::ptr::null_mut();
        Rectangle {
            from: Place {
                x,
                y,
                memory: 2,
                host: null,
                device,
                array: null,
                pitch,
            },
            to: Place {
                x: 0,
                y: 0,
                memory: 1,
                host: host.cast(),
                device: 0,
                array: null,
                pitch: host_pitch,
            },
            width,
            height,
        }
    }
}
