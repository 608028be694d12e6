//! The memory of one batch, which many threads fill.
//!
//! A batch is a number of places for one image each, side by side. A thread claims a place by incrementing an
//! atomic counter, so every place belongs to one thread only, and that thread alone writes it. Each finished
//! place decrements a second counter; the thread that brings it to zero owns the batch and takes it out.
//! There is no lock, and no place is copied.
//!
//! This is the only module of the crate with `unsafe`. It relies on these rules:
//!
//! 1. `claimed` never gives a number twice, so two [`Slot`]s never have the same place, and places do not
//!    overlap.
//! 2. A [`Slot`] lends its place and its result for as long as it is borrowed itself, and [`Slot::finish`]
//!    takes it by value: after a finish there is no reference into that place.
//! 3. `unfinished` reaches zero only once, after every place was claimed and finished; the decrements with
//!    acquire and release make all writes visible to the last thread. Until then no thread touches the whole
//!    batch.
//!
//! The tests below run under Miri (`cargo +nightly miri test -p stokehold-loader --lib slots`), those of the
//! whole crate under the thread sanitizer, except the two that measure memory.

use std::cell::UnsafeCell;
use std::mem;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use stokehold_pipeline::SampleMut;

use crate::BatchNumbers;

/// Places for images, and a result for each.
pub(crate) struct Slots<R> {
    /// Numbers of one image.
    size: usize,
    claimed: AtomicUsize,
    unfinished: AtomicUsize,
    /// Allocated by the first claim: a batch without a claim takes no memory.
    memory: OnceLock<Memory>,
    results: Box<[UnsafeCell<R>]>,
}

struct Memory {
    images: UnsafeCell<BatchNumbers>,
    /// Where the images' numbers begin; moving `images` does not move them.
    first: First,
}

#[derive(Clone, Copy)]
enum First {
    F32(*mut f32),
    F16(*mut f16),
    Bf16(*mut bf16),
    U8(*mut u8),
}

// SAFETY: threads share `Slots` only to claim and finish places; by rules 1 to 3 above no two of them touch
// the same memory at the same time, and results and images are sent from thread to thread, which `Send`
// allows.
unsafe impl<R: Send> Sync for Slots<R> {}
// SAFETY: the pointers lead into memory that `images` owns, and no thread keeps anything derived from them.
unsafe impl<R: Send> Send for Slots<R> {}

/// A place that belongs to its holder until it is finished. If it is dropped instead, the batch is never
/// finished.
pub(crate) struct Slot<'a, R> {
    slots: &'a Slots<R>,
    place: usize,
}

impl<R: Default> Slots<R> {
    /// `places` places, at least 1, of `size` numbers each.
    pub(crate) fn new(places: usize, size: usize) -> Self {
        Self {
            size,
            claimed: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(places),
            memory: OnceLock::new(),
            results: (0..places).map(|_| UnsafeCell::default()).collect(),
        }
    }

    /// Claims the next place; `None` if all are claimed. The first claim calls `memory`, with the number of
    /// values that it must return.
    pub(crate) fn claim(&self, memory: impl FnOnce(usize) -> BatchNumbers) -> Option<Slot<'_, R>> {
        let place = self.claimed.fetch_add(1, Ordering::Relaxed);
        if place >= self.results.len() {
            return None;
        }
        self.memory.get_or_init(|| {
            let len = self.size * self.results.len();
            let mut images = memory(len);
            assert_eq!(images.len(), len, "the memory of a batch");
            let first = match &mut images {
                BatchNumbers::F32(numbers) => First::F32(numbers.as_mut_ptr()),
                BatchNumbers::F16(numbers) => First::F16(numbers.as_mut_ptr()),
                BatchNumbers::Bf16(numbers) => First::Bf16(numbers.as_mut_ptr()),
                BatchNumbers::U8(numbers) => First::U8(numbers.as_mut_ptr()),
            };
            let images = UnsafeCell::new(images);
            Memory { images, first }
        });
        Some(Slot { slots: self, place })
    }
}

impl<R: Default> Slot<'_, R> {
    /// Its index, from 0.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// The image's memory and its result.
    pub(crate) fn parts(&mut self) -> (SampleMut<'_>, &mut R) {
        let Slots {
            size,
            memory,
            results,
            ..
        } = self.slots;
        let first = memory.get().expect("a claim fetches the memory").first;
        let (from, size) = (self.place * size, *size);
        // SAFETY: `first` begins `results.len() * size` numbers, checked when they were allocated, and
        // `place` is below `results.len()`. This slot alone has the place (1), `self` is borrowed as long as
        // the references live (2), and no thread touches the whole batch before this slot is finished (3).
        unsafe {
            let image = match first {
                First::F32(first) => SampleMut::F32(slice::from_raw_parts_mut(first.add(from), size)),
                First::F16(first) => SampleMut::F16(slice::from_raw_parts_mut(first.add(from), size)),
                First::Bf16(first) => SampleMut::Bf16(slice::from_raw_parts_mut(first.add(from), size)),
                First::U8(first) => SampleMut::U8(slice::from_raw_parts_mut(first.add(from), size)),
            };
            (image, &mut *results[self.place].get())
        }
    }

    /// Returns the place; the last one of the batch gets the whole batch, in the order of the places.
    pub(crate) fn finish(self) -> Option<(BatchNumbers, Vec<R>)> {
        let slots = self.slots;
        if slots.unfinished.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        let memory = slots.memory.get().expect("a claim fetches the memory");
        // SAFETY: this was the last place: every other one is finished and none is left to claim (1, 3), so
        // there is no reference into the batch (2), and no other thread gets here.
        unsafe {
            let images = mem::take(&mut *memory.images.get());
            let results = slots.results.iter().map(|result| mem::take(&mut *result.get()));
            Some((images, results.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use stokehold_pipeline::SampleType;

    /// Many threads, many small batches: every place is written by one thread, and one thread gets the whole.
    #[test]
    fn every_place_is_claimed_once_and_the_last_takes_all() {
        // Miri, which watches every access, takes its time.
        for round in 0..if cfg!(miri) { 12 } else { 200usize } {
            let (places, size) = (1 + round % 37, 1 + round % 5);
            let slots = Slots::<Vec<usize>>::new(places, size);
            let whole = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let mut whole = None;
                            while let Some(mut slot) =
                                slots.claim(|len| BatchNumbers::new(SampleType::F32, len))
                            {
                                let place = slot.place();
                                let (image, result) = slot.parts();
                                let SampleMut::F32(image) = image else {
                                    panic!("{image:?}")
                                };
                                image.iter_mut().for_each(|number| *number += place as f32 + 1.0);
                                result.push(place);
                                whole = whole.or(slot.finish());
                            }
                            whole
                        })
                    })
                    .collect();
                let mut wholes: Vec<_> = threads
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap())
                    .collect();
                assert_eq!(wholes.len(), 1, "one thread is the last");
                wholes.remove(0)
            });
            let numbers = (0..places)
                .flat_map(|place| vec![place as f32 + 1.0; size])
                .collect();
            let results: Vec<_> = (0..places).map(|place| vec![place]).collect();
            assert_eq!(whole, (BatchNumbers::F32(numbers), results));
            assert!(slots.claim(|_| panic!("fetched twice")).is_none());
        }
    }

    #[test]
    fn a_batch_that_nobody_begins_takes_no_memory() {
        let slots = Slots::<()>::new(3, 1000);
        assert!(slots.memory.get().is_none());
        let slot = slots
            .claim(|len| BatchNumbers::new(SampleType::Bf16, len))
            .unwrap();
        assert!(slots.memory.get().is_some());
        assert!(slot.finish().is_none(), "two places are left");
    }
}
