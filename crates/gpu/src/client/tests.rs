//! What becomes of a device that fails.

use super::*;
use crate::tested::gpu;
use cubecl::server::KernelArguments;

/// A kernel that ends the device's work on it with a panic, as CubeCL's own code does where it finds no CUDA toolkit.
struct Panics;

impl KernelMetadata for Panics {
    fn id(&self) -> KernelId {
        panic!("no toolkit")
    }

    fn address_type(&self) -> ElemType {
        unreachable!("it has no name")
    }
}

impl CubeKernel for Panics {
    fn define(&self) -> KernelDefinition {
        unreachable!("it has no name")
    }
}

fn refuse() {
    panic!("no such kernel")
}

/// A kernel that CubeCL cannot compile.
#[cube(launch)]
fn broken(numbers: &mut [u32]) {
    comptime!(refuse());
    numbers[0] = 1;
}

#[cube(launch)]
fn one(numbers: &mut [u32]) {
    numbers[0] = 1;
}

/// Queues what `launch` launches to write a buffer, and waits for it.
fn run(
    gpu: &Gpu,
    launch: impl Fn(&Buffer) -> Result<(), ServerError> + Send + Sync,
) -> Result<Vec<u32>, String> {
    queue().executes(|| {
        let work = || {
            let buffer = gpu.create(vec![0; 4]);
            launch(&buffer)?;
            Ok(buffer)
        };
        let buffer = queued(&gpu.client, work)?;
        gpu.wait(&buffer)?;
        Ok(u32::from_bytes(&gpu.read(&buffer)?).to_vec())
    })
}

fn single() -> (CubeCount, CubeDim) {
    (CubeCount::Static(1, 1, 1), CubeDim::new_1d(1))
}

#[test]
fn a_launch_that_panics_in_the_device_s_thread_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let lost = run(&gpu, |buffer| {
        let arguments = KernelArguments::new().with_buffer(buffer.handle.clone().binding());
        gpu.client.launch(Box::new(Panics), single().0, arguments);
        gpu.check(buffer)
    });
    let error = lost.expect_err("a launch that was not done");
    assert!(error.contains("no toolkit"), "{error}");
    // The device continues.
    let (count, dim) = single();
    let next = run(&gpu, |buffer| {
        one::launch(&gpu.client, count.clone(), dim, buffer.arg());
        gpu.check(buffer)
    });
    assert_eq!(next, Ok(vec![1, 0, 0, 0]));
}

/// As it would be if no one asked before the next launch: that one does not read what the first should have written.
#[test]
fn a_launch_that_fails_is_not_forgotten_by_the_next() {
    let Some(gpu) = gpu() else { return };
    let (count, dim) = single();
    let failed = run(&gpu, |buffer| {
        broken::launch(&gpu.client, count.clone(), dim, buffer.arg());
        gpu.check(buffer)?;
        one::launch(&gpu.client, count.clone(), dim, buffer.arg());
        gpu.check(buffer)
    });
    let error = failed.expect_err("a launch that was not done");
    assert!(error.contains("no such kernel"), "{error}");
}
