//! The driver as a program calls it. All in one test process: what breaks a device is tested in processes of their
//! own, by crate gpu's tests.

use super::entry::*;
use super::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// A kernel that doubles numbers, as C text.
const DOUBLE: &CStr = c"
.version 8.7
.target sm_80
.address_size 64
.global .align 4 .u32 factor = 2;
.visible .entry double_all(.param .u64 numbers, .param .u32 count)
.maxntid 64
{
    .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [numbers]; ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1; @%p1 ret;
    mad.wide.u32 %rd2, %r5, 4, %rd1;
    ld.global.u32 %r6, [%rd2]; ld.global.u32 %r7, [factor]; mul.lo.u32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6;
    ret;
}";

fn start() {
    let mut context = ptr::null_mut();
    // SAFETY: the pointer is a local's.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
    }
}

fn why(status: c_int) -> (String, String) {
    let (mut name, mut text): (*const c_char, *const c_char) = (ptr::null(), ptr::null());
    // SAFETY: the pointers are locals'; the texts end with a zero and stay.
    unsafe {
        assert_eq!(cuGetErrorName(status, &mut name), 0);
        assert_eq!(cuGetErrorString(status, &mut text), 0);
        (
            CStr::from_ptr(name).to_string_lossy().into_owned(),
            CStr::from_ptr(text).to_string_lossy().into_owned(),
        )
    }
}

#[test]
fn a_kernel_runs_on_memory_that_was_copied() {
    start();
    let mut numbers: Vec<u32> = (0..1000).collect();
    let bytes = numbers.len() * 4;
    let (mut address, mut module, mut function, mut stream) =
        (0u64, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: all pointers are locals', as large as said.
    unsafe {
        assert_eq!(cuStreamCreate(&mut stream, 1), 0);
        assert_eq!(cuMemAlloc_v2(&mut address, bytes), 0);
        assert_eq!(
            cuMemcpyHtoDAsync_v2(address, numbers.as_ptr().cast(), bytes, stream),
            0
        );
        assert_eq!(cuModuleLoadData(&mut module, DOUBLE.as_ptr().cast()), 0);
        assert_eq!(
            cuModuleGetFunction(&mut function, module, c"double_all".as_ptr()),
            0
        );
        let mut count = 990u32;
        let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
        let launch = |threads, params: &mut [*mut c_void; 2]| {
            cuLaunchKernel(
                function,
                16,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        assert_eq!(launch(64, &mut params), 0);
        assert_eq!(launch(128, &mut params), Status::INVALID_VALUE.0);
        assert_eq!(
            cuMemcpyDtoHAsync_v2(numbers.as_mut_ptr().cast(), address, bytes, stream),
            0
        );
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(
            cuMemcpyDtoHAsync_v2(numbers.as_mut_ptr().cast(), address + 4, bytes, stream),
            Status::INVALID_VALUE.0
        );
        assert_eq!(cuMemFree_v2(address), 0);
        assert_eq!(cuMemFree_v2(address), Status::INVALID_VALUE.0);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
        assert_eq!(cuStreamSynchronize(stream), Status::INVALID_HANDLE.0);
    }
    for (i, number) in numbers.into_iter().enumerate() {
        let i = i as u32;
        assert_eq!(number, if i < 990 { 2 * i } else { i });
    }
}

#[test]
fn a_module_that_is_not_understood_says_why() {
    start();
    let mut module = ptr::null_mut();
    let mut load = |text: &CStr| {
        // SAFETY: the pointer is a local's, and the text ends with a zero.
        why(unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) })
    };
    let (name, text) = load(c".version 8.0\n.target sm_80\n.entry k() { wgmma.fence.sync.aligned; }");
    assert_eq!(name, "CUDA_ERROR_INVALID_PTX");
    assert_eq!(
        text,
        "line 3: the instruction `wgmma.fence.sync.aligned` is not known"
    );
    let (name, text) = load(c".version 9.0\n.target sm_80\n");
    assert_eq!(name, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
    assert!(text.contains("a driver of CUDA 12.8 reads at most 8.7"), "{text}");
    let (name, text) = load(c".version 8.7\n.target sm_90\n");
    assert_eq!(name, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    assert!(text.contains("for sm_90 and the device is of sm_80"), "{text}");
    let (name, _) = load(c"\x7fELF");
    assert_eq!(name, "CUDA_ERROR_INVALID_PTX");
}

#[test]
fn rectangles_are_copied_row_by_row() {
    start();
    let from: Vec<u8> = (0..60).collect();
    let (mut to, mut address) = (vec![0u8; 6], 0u64);
    // SAFETY: all pointers are locals', as large as said.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&mut address, 60), 0);
        assert_eq!(
            cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), 60, ptr::null_mut()),
            0
        );
        let rectangle = Rectangle::new(address, (4, 2), 10, to.as_mut_ptr(), 3, (3, 2));
        assert_eq!(cuMemcpy2DAsync_v2(&rectangle, ptr::null_mut()), 0);
        let mut other = [0u8; 6];
        let outside = Rectangle::new(address, (4, 5), 10, other.as_mut_ptr(), 3, (3, 2));
        assert_eq!(
            cuMemcpy2DAsync_v2(&outside, ptr::null_mut()),
            Status::INVALID_VALUE.0
        );
    }
    assert_eq!(to, [24, 25, 26, 34, 35, 36]);
}

#[test]
fn a_thread_without_a_context_is_told_so() {
    start();
    let status = std::thread::spawn(|| {
        let mut address = 0;
        // SAFETY: the pointer is a local's.
        unsafe { cuMemAlloc_v2(&mut address, 16) }
    });
    let (name, text) = why(status.join().expect("no panic"));
    assert_eq!(
        (name.as_str(), text.as_str()),
        (
            "CUDA_ERROR_INVALID_CONTEXT",
            "no context is current in this thread"
        )
    );
}

/// What `an_event_comes_late_and_only_in_a_stream_of_its_device` tests, with that test's settings.
#[test]
#[ignore = "a process that another test begins"]
fn events_with_two_queries_pending_and_two_devices() {
    let (mut context, mut event, mut stream) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    start();
    // SAFETY: all pointers are locals'; handles are the driver's.
    unsafe {
        assert_eq!(cuEventCreate(&mut event, 0), 0);
        assert_eq!(cuEventQuery(event), 0, "an event that was never recorded");
        for _ in 0..2 {
            assert_eq!(cuEventRecord(event, ptr::null_mut()), 0);
            let answers = [0; 4].map(|_| cuEventQuery(event));
            assert_eq!(answers, [Status::NOT_READY.0, Status::NOT_READY.0, 0, 0]);
        }
        assert_eq!(cuEventRecord(event, ptr::null_mut()), 0);
        assert_eq!(cuEventSynchronize(event), 0);
        assert_eq!(cuEventQuery(event), 0);
        assert_eq!(cuEventRecord(event, ptr::null_mut()), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(cuEventQuery(event), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 1), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_eq!(cuStreamCreate(&mut stream, 0), 0);
        for stream in [stream, ptr::null_mut()] {
            let (name, text) = why(cuEventRecord(event, stream));
            assert_eq!(name, "CUDA_ERROR_INVALID_HANDLE");
            assert_eq!(text, "an event of device 0 in a stream of device 1");
        }
        assert_eq!(cuEventQuery(event), 0, "a refused record changes nothing");
    }
}

/// Runs an ignored test in a process of its own, whose settings and captures are its own too.
fn run_alone(test: &str, set: &[(&str, &str)]) {
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("driver::tests::{test}"), "--ignored"])
        .envs(set.iter().copied())
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn an_event_comes_late_and_only_in_a_stream_of_its_device() {
    let set = [("CUDA_ON_CPU_PENDING", "2"), ("CUDA_ON_CPU_SM", "80,90")];
    run_alone("events_with_two_queries_pending_and_two_devices", &set);
}

/// The statuses of calls that a capture may forbid: an allocation and a query; and that of the capture's end.
fn calls_while_captured(capture: c_int, mode: c_int, in_another_thread: bool) -> [c_int; 3] {
    let (mut stream, mut graph) = (ptr::null_mut(), ptr::null_mut());
    let calls = move || {
        start();
        let (mut address, mut event, mut before) = (0, ptr::null_mut(), mode);
        // SAFETY: all pointers are locals'; handles are the driver's.
        unsafe {
            assert_eq!(cuThreadExchangeStreamCaptureMode(&mut before), 0);
            assert_eq!(cuEventCreate(&mut event, 0), 0);
            let statuses = [cuMemAlloc_v2(&mut address, 16), cuEventQuery(event)];
            assert_eq!(cuThreadExchangeStreamCaptureMode(&mut before), 0);
            assert_eq!(before, mode);
            statuses
        }
    };
    // SAFETY: as above.
    unsafe {
        assert_eq!(cuStreamCreate(&mut stream, 1), 0);
        assert_eq!(cuStreamBeginCapture_v2(stream, capture), 0);
        let [allocated, queried] = match in_another_thread {
            true => std::thread::spawn(calls).join().expect("no panic"),
            false => calls(),
        };
        [allocated, queried, cuStreamEndCapture(stream, &mut graph)]
    }
}

#[test]
#[ignore = "a process that another test begins"]
fn what_captures_forbid() {
    start();
    let (global, thread_local, relaxed) = (0, 1, 2);
    let permitted = [0; 3];
    let refused = [
        Status::CAPTURE_UNSUPPORTED.0,
        Status::CAPTURE_UNSUPPORTED.0,
        Status::CAPTURE_INVALIDATED.0,
    ];
    for in_another_thread in [false, true] {
        let calls = |capture, mode| calls_while_captured(capture, mode, in_another_thread);
        assert_eq!(calls(global, global), refused);
        assert_eq!(calls(global, relaxed), permitted);
        assert_eq!(calls(relaxed, global), permitted);
        let own_only = match in_another_thread {
            true => permitted,
            false => refused,
        };
        assert_eq!(calls(thread_local, global), own_only);
        assert_eq!(calls(global, thread_local), own_only);
    }
}

/// What conflicts with a capture whatever the modes: what was done while streams that wait for the default one and that do not
/// are captured, and whether the captures are lost.
#[test]
#[ignore = "a process that another test begins"]
fn what_every_capture_forbids() {
    start();
    let (relaxed, mut before) = (2, 2);
    let (mut event, mut graph) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: all pointers are locals'; handles are the driver's.
    unsafe {
        assert_eq!(cuThreadExchangeStreamCaptureMode(&mut before), 0);
        assert_eq!(cuEventCreate(&mut event, 0), 0);
        let unsupported = Status::CAPTURE_UNSUPPORTED.0;
        let mut while_captured = |flags, call: &dyn Fn(*mut c_void) -> c_int| {
            let mut stream = ptr::null_mut();
            assert_eq!(cuStreamCreate(&mut stream, flags), 0);
            assert_eq!(cuStreamBeginCapture_v2(stream, relaxed), 0);
            (call(stream), cuStreamEndCapture(stream, &mut graph) != 0)
        };
        let non_blocking = 1;
        assert_eq!(
            while_captured(non_blocking, &|_| cuCtxSynchronize()),
            (unsupported, true)
        );
        assert_eq!(
            while_captured(non_blocking, &|stream| cuStreamSynchronize(stream)),
            (unsupported, true)
        );
        let record = |_| cuEventRecord(event, ptr::null_mut());
        assert_eq!(while_captured(non_blocking, &record), (0, false));
        assert_eq!(while_captured(0, &record), (Status::CAPTURE_IMPLICIT.0, true));
        let own = |stream| {
            assert_eq!(cuEventRecord(event, stream), 0);
            cuEventQuery(event)
        };
        assert_eq!(
            while_captured(non_blocking, &own),
            (Status::CAPTURED_EVENT.0, true)
        );
        assert_eq!(
            while_captured(non_blocking, &|stream| cuEventRecord(event, stream)),
            (0, false)
        );
        assert_eq!(cuEventQuery(event), Status::CAPTURED_EVENT.0);
    }
}

#[test]
fn captures_forbid_what_cuda_says() {
    run_alone("what_captures_forbid", &[]);
    run_alone("what_every_capture_forbids", &[]);
}
