//! The kernels against the CPU's executor `fused`, on the first device of CUDA where that is compiled in, else of Vulkan: on a
//! machine without a GPU, Mesa's lavapipe.

mod augment;
mod decode;
mod device;
mod entropy;
#[cfg(feature = "cuda")]
mod failures;
#[cfg(feature = "cuda")]
mod lend;
mod loader;
mod packed;
mod photos;
#[path = "../../../jpeg/tests/it/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::sync::{Arc, OnceLock};
use stokehold_gpu::{Backend, Batcher, Decode, DeviceName, Gpu, Preparer, devices_of};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, SampleType};

/// CUDA where that is compiled in, else Vulkan.
pub const TESTED: Backend = match cfg!(feature = "cuda") {
    true => Backend::Cuda,
    false => Backend::Vulkan,
};

/// The first device; none where there is none, which is then said.
pub fn gpu() -> Option<Gpu> {
    static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
    let open = || {
        let found = devices_of(TESTED);
        if let Some(problem) = found.problem {
            return Err(problem.to_string());
        }
        let name = DeviceName {
            backend: TESTED,
            index: 0,
        };
        Ok(Gpu::open(name).expect("a device that was listed"))
    };
    let gpu = GPU.get_or_init(open).clone();
    // Where a run names its device, it must not pass by skipping everything.
    if let (Err(problem), Some(device)) = (&gpu, std::env::var_os("STOKEHOLD_TEST_DEVICE")) {
        panic!("STOKEHOLD_TEST_DEVICE is {}: {problem}", device.display());
    }
    gpu.map_err(stokehold_untested::skip).ok()
}

fn key(sample: u64) -> DrawKey {
    DrawKey {
        seed: 7,
        epoch: 1,
        sample,
    }
}

/// What the device and the CPU make of the same files, as bytes: sample after sample.
fn both(
    gpu: &Gpu,
    files: &[Vec<u8>],
    pipeline: Pipeline,
    sample_type: SampleType,
    (options, decode): (DecodeOptions, Decode),
) -> (Vec<u8>, Vec<u8>) {
    let pipeline = Arc::new(pipeline);
    let preparer = Preparer::new(pipeline.clone(), options).expect("a pipeline");
    let mut preparer = preparer.with_decode(decode);
    let mut runner = Runner::new(pipeline.clone(), Executor::Fused, options).expect("a pipeline");
    let batcher = Batcher::new(gpu.clone(), &pipeline, sample_type, 1 << 30).expect("a batcher");
    let (mut samples, mut expected) = (Vec::new(), Vec::new());
    for (i, file) in files.iter().enumerate() {
        let len = runner.output_len();
        macro_rules! run {
            ($number:ty) => {{
                let mut out = vec![<$number>::default(); len];
                let done = runner.run(file, key(i as u64), &mut out);
                (
                    done,
                    out.iter()
                        .flat_map(|v| v.to_ne_bytes())
                        .collect::<Vec<u8>>(),
                )
            }};
        }
        let (done, bytes) = match sample_type {
            SampleType::F32 => run!(f32),
            SampleType::F16 => run!(half::f16),
            SampleType::Bf16 => run!(half::bf16),
            SampleType::U8 => run!(u8),
        };
        let prepared = preparer.prepare(file, key(i as u64));
        assert_eq!(done.as_ref().err(), prepared.as_ref().err(), "file {i}");
        if let Ok(prepared) = prepared {
            samples.push(prepared);
            expected.extend(bytes);
        }
    }
    let batch = batcher.run(&samples).expect("a batch");
    assert_eq!(batch.shape[0], samples.len());
    (batcher.gpu().read_batch(&batch).expect("numbers"), expected)
}

/// Holds the device's bytes equal to the CPU's, and returns how many there are.
pub fn assert_same(gpu: &Gpu, files: &[Vec<u8>], pipeline: &Pipeline, sample_type: SampleType) -> usize {
    let how = (DecodeOptions::default(), Decode::Hybrid);
    assert_same_when(gpu, files, pipeline, sample_type, how).len()
}

/// The same with other ways to decode. Returns the bytes.
pub fn assert_same_when(
    gpu: &Gpu,
    files: &[Vec<u8>],
    pipeline: &Pipeline,
    sample_type: SampleType,
    how: (DecodeOptions, Decode),
) -> Vec<u8> {
    let (device, cpu) = both(gpu, files, pipeline.clone(), sample_type, how);
    assert_eq!(device.len(), cpu.len());
    if let Some(at) = device.iter().zip(&cpu).position(|(a, b)| a != b) {
        let different = device.iter().zip(&cpu).filter(|(a, b)| a != b).count();
        panic!(
            "byte {at} of {} is {} and not {}; {different} differ: {pipeline:?}",
            cpu.len(),
            device[at],
            cpu[at]
        );
    }
    cpu
}
