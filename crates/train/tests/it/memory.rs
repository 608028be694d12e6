//! A run uses the memory of its batches again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stokehold_train::TrainConfig;

use crate::run::tiny::{BATCH, End, STEPS_PER_EPOCH, config, run, write_data};

/// The size that is counted: a batch of images of 37x37, which no other test makes.
const BYTES: usize = BATCH * 3 * 37 * 37 * size_of::<f32>();

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts the loader's allocations of that size; Burn has some of its own, for its convolutions.
struct Counting;

fn count(layout: Layout) {
    if layout.size() == BYTES
        && thread::current()
            .name()
            .is_some_and(|name| name.starts_with("loader"))
    {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps memory that was freed. Each tensor of a network beyond 128 KiB would be mapped and unmapped otherwise, in all threads of these
/// tests at once: that took a third of their time.
fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if !KEPT.swap(true, Ordering::Relaxed) {
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            safe fn mallopt(parameter: i32, value: i32) -> i32;
        }
        for parameter in [M_MMAP_THRESHOLD, M_TRIM_THRESHOLD] {
            mallopt(parameter, 1 << 30);
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
static KEPT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        keep_memory();
        count(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn batches_are_made_in_the_memory_of_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let of = |epochs, name: &str| {
        let config = TrainConfig {
            pipeline: stokehold_pipeline::Pipeline::imagenet_train(37),
            eval_pipeline: stokehold_pipeline::Pipeline::imagenet_eval(42, 37),
            epochs,
            prefetch: 1,
            workers: "1".parse().unwrap(),
            keep_checkpoints: 0,
            ..config(dir.path(), &dir.path().join(name))
        };
        COUNT.store(0, Ordering::Relaxed);
        run(&config, false, End::Never).0.unwrap();
        COUNT.load(Ordering::Relaxed)
    };
    let (short, long) = (of(1, "short"), of(6, "long"));
    // One being filled, one ready and one trained on, each of training and of validation.
    assert!((1..=6).contains(&short), "{short} in an epoch");
    assert!(
        long <= short + 2,
        "{short} batches' memory in an epoch, {long} in six of {STEPS_PER_EPOCH} steps"
    );
}
