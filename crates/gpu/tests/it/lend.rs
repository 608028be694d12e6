//! Memory that is lent to a consumer comes back when the consumer's stream is done with it, and not before. On the stand-in
//! for the driver (crate `cuda-on-cpu`, as `.ci/cuda` runs it), whose events come as late as is asked for.

use crate::augment::pictures;
use crate::failures::{is_stand_in, run_test};
use crate::{gpu, key};
use cudarc::driver::result::{ctx, device, primary_ctx, stream};
use std::ops::Range;
use std::sync::Arc;
use stokehold_gpu::{Batcher, ConsumerStream, CudaMemory, Gpu, Prepared, Preparer};
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
    // SAFETY: the context is the device's primary one, which stays retained; so the stream exists until the process ends.
    unsafe {
        let context = primary_ctx::retain(device::get(number).expect("a device")).expect("a context");
        ctx::set_current(context).expect("a context");
        let stream = stream::create(stream::StreamKind::NonBlocking).expect("a stream");
        ctx::set_current(std::ptr::null_mut()).expect("no context");
        stream as usize
    }
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
    drop(lent);
    assert!(maker.reuses(&place), "the device has been waited for");

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
