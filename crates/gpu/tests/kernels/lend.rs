//! Memory that is lent to a consumer comes back when the consumer's stream is done with it, and not before. On the stand-in
//! for the driver (crate `cuda-on-cpu`, as `.ci/cuda` runs it), whose events come as late as is asked for.

use crate::augment::pictures;
use crate::failures::{is_stand_in, run_test};
use crate::loader::{files, made_by, on_device, options};
use crate::{gpu, key};
use cudarc::driver::result::{ctx, device, event, primary_ctx, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstreamCaptureMode};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use stokehold_gpu::{
    Batcher, ConsumerStream, CudaMemory, Decode, DeviceBatch, Gpu, Prepared, Preparer, lend_warnings,
};
use stokehold_loader::{BadImagePolicy, Batch, Loader};
use stokehold_pipeline::{DecodeOptions, Pipeline, SampleType};

/// How many queries say that an event has not come: more than one way back makes, fewer than `WAYS` make.
const PENDING: &str = "5";
const WAYS: usize = 10;

/// More than lie in the memory that CubeCL reserves at a time.
const BATCHES: usize = 40;

/// Makes batches of one shape.
struct Maker {
    gpu: Gpu,
    batcher: Batcher,
    samples: Vec<Prepared>,
}

impl Maker {
    fn new(gpu: Gpu) -> Maker {
        let pipeline = Arc::new(Pipeline::imagenet_train(24));
        let batcher = Batcher::new(gpu.clone(), &pipeline, SampleType::F32, 1 << 30).expect("a batcher");
        let mut preparer = Preparer::new(pipeline, DecodeOptions::default()).expect("a pipeline");
        let sample = preparer.prepare(&pictures()[0], key(0)).expect("a sample");
        Maker {
            gpu,
            batcher,
            samples: vec![sample],
        }
    }

    fn memory(&self) -> CudaMemory {
        let batch = self.batcher.run(&self.samples).expect("a batch");
        self.gpu.cuda_memory(batch).expect("an address")
    }

    /// Whether one of many new batches, all of which are kept till the last is made, lies there.
    fn reuses(&self, place: &Range<u64>) -> bool {
        let batches: Vec<CudaMemory> = (0..BATCHES).map(|_| self.memory()).collect();
        let mut places = batches.iter().map(range);
        places.any(|other| other.start < place.end && place.start < other.end)
    }
}

fn range(memory: &CudaMemory) -> Range<u64> {
    let bytes = 4 * memory.batch().shape.iter().product::<usize>();
    memory.address()..memory.address() + bytes as u64
}

/// A new stream of a device. The thread has no current context afterwards.
fn new_stream(number: i32) -> usize {
    use_context(number);
    let stream = stream::create(stream::StreamKind::NonBlocking).expect("a stream");
    // SAFETY: the context stays retained, so the stream exists until the process ends.
    unsafe { ctx::set_current(std::ptr::null_mut()) }.expect("no context");
    stream as usize
}

/// Makes a device's context the thread's own for good.
fn use_context(number: i32) {
    // SAFETY: the context is the device's primary one, which stays retained.
    unsafe {
        let context = primary_ctx::retain(device::get(number).expect("a device")).expect("a context");
        ctx::set_current(context).expect("a context");
    }
}

/// An event that is recorded in a new stream.
fn late_event() -> CUevent {
    let stream = new_stream(0);
    use_context(0);
    let event = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).expect("an event");
    // SAFETY: both exist until the process ends.
    unsafe { event::record(event, stream as CUstream) }.expect("recorded");
    event
}

fn has_come(event: CUevent) -> bool {
    // SAFETY: it exists until the process ends.
    unsafe { event::query(event) }.is_ok()
}

/// Lends and lets go at once. All streams here exist until the process ends.
fn lend_and_let_go(memory: &CudaMemory, stream: ConsumerStream) {
    // SAFETY: the stream exists.
    drop(unsafe { memory.lend(stream) }.expect("lent"));
}

#[test]
#[ignore = "a process that another test begins"]
fn child() {
    let maker = Maker::new(gpu().expect("the stand-in"));
    let kept = maker.memory();
    let own = ConsumerStream::Handle(new_stream(0));
    for stream in [ConsumerStream::Handle(0), own] {
        let memory = maker.memory();
        let place = range(&memory);
        // SAFETY: the stream exists until the process ends.
        let lent = unsafe { memory.lend(stream) }.expect("lent");
        drop(memory);
        // All that was in the stream when the memory was lent is done; what tells is what is there when it is let go of.
        lend_and_let_go(&kept, ConsumerStream::Unknown);
        assert!(!maker.reuses(&place), "{stream:?}: it is lent");
        drop(lent);
        assert!(!maker.reuses(&place), "{stream:?}: the event has not come");
        for _ in 0..WAYS {
            lend_and_let_go(&kept, stream);
        }
        assert!(maker.reuses(&place), "{stream:?}: the event has come");
    }

    let memory = maker.memory();
    let place = range(&memory);
    // SAFETY: no stream is named.
    let lent = unsafe { memory.lend(ConsumerStream::Unknown) }.expect("lent");
    drop(memory);
    assert!(!maker.reuses(&place), "it is lent");
    // What the consumer has in some stream, which is not known.
    let theirs = late_event();
    assert!(!has_come(theirs), "nothing was waited for yet");
    drop(lent);
    assert!(has_come(theirs), "the device was waited for");
    assert!(maker.reuses(&place), "the device was waited for");

    let others = ConsumerStream::Handle(new_stream(1));
    let before = ctx::get_current().expect("an answer");
    // SAFETY: the stream exists until the process ends.
    let refused = unsafe { kept.lend(others) };
    let error = refused.err().expect("a stream of another device").to_string();
    assert!(
        error.contains("cuda:0") && error.contains("CUDA_ERROR_INVALID_HANDLE"),
        "{error}"
    );
    assert_eq!(ctx::get_current().expect("an answer"), before);
    println!("\nend");
}

#[test]
fn lent_memory_comes_back_with_the_consumers_event_and_not_before() {
    if !is_stand_in() {
        return;
    }
    let set = [("CUDA_ON_CPU_PENDING", PENDING), ("CUDA_ON_CPU_SM", "80,80")];
    let said = run_test("lend::child", &set, &[]);
    assert_eq!(said.count("end"), 1, "{said:#?}");
}

fn images(batch: &Batch) -> DeviceBatch {
    let images: Option<&DeviceBatch> = batch.pixels.on_device();
    images.expect("a batch on the device").clone()
}

/// More than the events of the batches of an epoch are asked for, but by a loader that waits.
const SLOW: &str = "400";

#[test]
#[ignore = "a process that another test begins"]
fn child_ahead() {
    let gpu = gpu().expect("the stand-in");
    let (batches, size) = (24, 128);
    let options = options(BadImagePolicy::Error);
    let bytes = (4 * 3 * size * size * options.batch_size) as u64;
    // A half is what a batch may take, and how much may be leaving: two and a half of them.
    let options = made_by(&gpu, options, Decode::default(), 5 * bytes);
    let device = Loader::new(files(false), Pipeline::imagenet_train(size as u32), options).expect("a loader");
    let stream = ConsumerStream::Handle(new_stream(0));
    let mut places = BTreeSet::new();
    for batch in (0..).flat_map(|epoch| device.epoch(epoch)).take(batches) {
        let batch = batch.expect("a batch");
        let memory = gpu.cuda_memory(images(&batch)).expect("an address");
        places.insert(memory.address());
        lend_and_let_go(&memory, stream);
    }
    // Three leave, one is the consumer's, two are being made; and what the memory of one is cut into may begin elsewhere.
    println!("\n{} places", places.len());
    assert!(places.len() <= 9, "{places:?}");
    println!("end");
}

#[test]
fn a_loader_waits_for_a_consumer_that_is_far_behind() {
    if !is_stand_in() {
        return;
    }
    let said = run_test("lend::child_ahead", &[("CUDA_ON_CPU_PENDING", SLOW)], &[]);
    assert_eq!(said.count("end"), 1, "{said:#?}");
}

#[test]
#[ignore = "a process that another test begins"]
fn child_captured() {
    let global = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    let gpu = gpu().expect("the stand-in");
    let device = on_device(&gpu, files(false), options(BadImagePolicy::Error), Decode::Device);
    let consumers = new_stream(0);
    let others = ConsumerStream::Handle(new_stream(0));
    let lend = |batch: Option<Result<Batch, _>>| {
        let batch = batch.expect("one more").expect("a batch");
        gpu.cuda_memory(images(&batch)).expect("an address")
    };

    // The first batches of a process load the kernels.
    // SAFETY: the stream exists until the process ends.
    unsafe { stream::begin_capture(consumers as CUstream, global) }.expect("a capture");
    let mut epoch = device.epoch(0);
    for _ in 0..5 {
        lend_and_let_go(&lend(epoch.next()), others);
    }
    let memory = lend(epoch.next());
    // SAFETY: as above.
    unsafe { stream::end_capture(consumers as CUstream) }.expect("a graph");
    assert_eq!(lend_warnings(), [""; 0]);

    // What a library that does not say that it may do so is told, so that the above can fail.
    // SAFETY: as above; the event is not used.
    unsafe {
        stream::begin_capture(consumers as CUstream, global).expect("a capture");
        use_context(0);
        let own = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).expect("an event");
        let refused = event::query(own)
            .expect_err("a call that CUDA refuses")
            .to_string();
        assert!(refused.contains("STREAM_CAPTURE_UNSUPPORTED"), "{refused}");
        let lost = stream::end_capture(consumers as CUstream).expect_err("a capture that is lost");
        assert!(lost.to_string().contains("STREAM_CAPTURE_INVALIDATED"), "{lost}");

        // What a stream that is captured does with a batch is part of the graph, and never done with.
        stream::begin_capture(consumers as CUstream, global).expect("a capture");
        lend_and_let_go(&memory, ConsumerStream::Handle(consumers));
        lend_and_let_go(&lend(epoch.next()), others);
        stream::end_capture(consumers as CUstream).expect("a graph");

        // A consumer that names no stream has the device waited for, which no capture outlives.
        stream::begin_capture(consumers as CUstream, global).expect("a capture");
        lend_and_let_go(&memory, ConsumerStream::Unknown);
        let lost = stream::end_capture(consumers as CUstream).expect_err("a capture that is lost");
        assert!(lost.to_string().contains("STREAM_CAPTURE_INVALIDATED"), "{lost}");
    }
    let said = lend_warnings();
    assert_eq!(said.len(), 2, "{said:?}");
    for (said, cause) in said.iter().zip(["CAPTURED_EVENT", "CAPTURE_UNSUPPORTED"]) {
        assert!(
            said.contains(cause) && said.contains("while a graph was captured"),
            "{said}"
        );
    }
    println!("\nend");
}

#[test]
fn batches_are_made_while_another_library_captures_a_graph() {
    if !is_stand_in() {
        return;
    }
    let said = run_test("lend::child_captured", &[], &[]);
    assert_eq!(said.count("end"), 1, "{said:#?}");
}
