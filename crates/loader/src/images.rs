//! The memory of batches, which is reused.
//!
//! Fresh memory is expensive: the system provides it page by page, zeroed, at the first access, which means
//! 9,400 page faults for a batch of 64 images of 224x224 in f32. So the loader keeps the memory of a dropped
//! [`Batch`](crate::Batch) for the next one.

use std::mem;
use std::ops::Deref;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use stokehold_pipeline::SampleType;

/// Images of one batch, N·3·H·W numbers: NCHW, in the value range that the pipeline ends with (0..=255 for
/// `U8`).
#[derive(Debug, Clone, PartialEq)]
pub enum BatchNumbers {
    /// [`SampleType::F32`].
    F32(Vec<f32>),
    /// [`SampleType::F16`].
    F16(Vec<f16>),
    /// [`SampleType::Bf16`].
    Bf16(Vec<bf16>),
    /// [`SampleType::U8`].
    U8(Vec<u8>),
}

/// No images.
impl Default for BatchNumbers {
    fn default() -> Self {
        Self::U8(Vec::new())
    }
}

/// Applies the same expression to the numbers of every type.
macro_rules! numbers {
    ($images:expr, $numbers:ident => $do:expr) => {
        match $images {
            BatchNumbers::F32($numbers) => $do,
            BatchNumbers::F16($numbers) => $do,
            BatchNumbers::Bf16($numbers) => $do,
            BatchNumbers::U8($numbers) => $do,
        }
    };
}

impl BatchNumbers {
    /// `len` zeros.
    pub(crate) fn new(sample_type: SampleType, len: usize) -> Self {
        match sample_type {
            SampleType::F32 => Self::F32(vec![0.0; len]),
            SampleType::F16 => Self::F16(vec![f16::ZERO; len]),
            SampleType::Bf16 => Self::Bf16(vec![bf16::ZERO; len]),
            SampleType::U8 => Self::U8(vec![0; len]),
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        numbers!(self, numbers => numbers.len())
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the numbers.
    pub fn sample_type(&self) -> SampleType {
        match self {
            Self::F32(_) => SampleType::F32,
            Self::F16(_) => SampleType::F16,
            Self::Bf16(_) => SampleType::Bf16,
            Self::U8(_) => SampleType::U8,
        }
    }

    /// A copy of the numbers as f32.
    fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::F32(numbers) => numbers.clone(),
            Self::F16(numbers) => numbers.to_f32_vec(),
            Self::Bf16(numbers) => numbers.to_f32_vec(),
            Self::U8(numbers) => numbers.iter().copied().map(f32::from).collect(),
        }
    }

    /// Moves the numbers `from..from + count` to `to`.
    pub(crate) fn shift(&mut self, from: usize, to: usize, count: usize) {
        numbers!(self, numbers => numbers.copy_within(from..from + count, to));
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        numbers!(self, numbers => numbers.truncate(len));
    }

    /// The same memory with another length; its contents are unspecified.
    fn with_len(mut self, len: usize) -> Self {
        match &mut self {
            Self::F32(numbers) => numbers.resize(len, 0.0),
            Self::F16(numbers) => numbers.resize(len, f16::ZERO),
            Self::Bf16(numbers) => numbers.resize(len, bf16::ZERO),
            Self::U8(numbers) => numbers.resize(len, 0),
        }
        self
    }
}

/// [`BatchNumbers`] whose memory goes back to the loader with the last clone. Clones share the memory.
#[derive(Debug, Clone)]
pub struct ImageBuffer(Arc<Lent>);

/// Memory of a loader, or of no one.
#[derive(Debug)]
struct Lent {
    images: BatchNumbers,
    pool: Option<Arc<Pool>>,
}

impl ImageBuffer {
    pub(crate) fn new(images: BatchNumbers, pool: Arc<Pool>) -> Self {
        let pool = Some(pool);
        Self(Arc::new(Lent { images, pool }))
    }

    /// The images, to be changed in place; a buffer that shares its memory gets a copy of its own first.
    pub fn images_mut(&mut self) -> &mut BatchNumbers {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Self::from(self.0.images.clone());
        }
        &mut Arc::get_mut(&mut self.0).expect("memory of its own").images
    }

    /// The numbers as f32, not copied if they are f32 already.
    pub fn into_f32(self) -> Floats {
        Floats(match &*self {
            BatchNumbers::F32(_) => self,
            others => Self::from(BatchNumbers::F32(others.to_f32())),
        })
    }

    /// The memory of the numbers.
    pub fn as_bytes(&self) -> &[u8] {
        match &**self {
            BatchNumbers::F32(numbers) => bytemuck::cast_slice(numbers),
            BatchNumbers::F16(numbers) => bytemuck::cast_slice(numbers.reinterpret_cast()),
            BatchNumbers::Bf16(numbers) => bytemuck::cast_slice(numbers.reinterpret_cast()),
            BatchNumbers::U8(numbers) => numbers,
        }
    }
}

/// Numbers of the caller's own, whose memory goes to no loader.
impl From<BatchNumbers> for ImageBuffer {
    fn from(images: BatchNumbers) -> Self {
        Self(Arc::new(Lent { images, pool: None }))
    }
}

impl Deref for ImageBuffer {
    type Target = BatchNumbers;

    fn deref(&self) -> &BatchNumbers {
        &self.0.images
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give(mem::take(&mut self.images));
        }
    }
}

/// The numbers of a batch as f32. If they use the memory of an [`ImageBuffer`], it goes back to the loader on
/// drop.
#[derive(Debug)]
pub struct Floats(ImageBuffer);

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.0 {
            BatchNumbers::F32(numbers) => numbers,
            _ => unreachable!("floats are made of f32"),
        }
    }
}

/// The memory of dropped batches: of one type, at most `limit` batches.
#[derive(Debug)]
pub(crate) struct Pool {
    sample_type: SampleType,
    limit: usize,
    kept: Mutex<Vec<BatchNumbers>>,
    /// In a fork of this process, a thread that does not exist there may hold the lock.
    process: u32,
}

impl Pool {
    /// A pool that keeps the memory of at most `limit` batches.
    pub(crate) fn new(sample_type: SampleType, limit: usize) -> Self {
        Self {
            sample_type,
            limit,
            kept: Mutex::default(),
            process: process::id(),
        }
    }

    /// Memory for `len` numbers; its contents are unspecified.
    pub(crate) fn take(&self, len: usize) -> BatchNumbers {
        // A panic of another thread leaves the list valid: code under the lock only pushes and pops.
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(images) => images.with_len(len),
            None => BatchNumbers::new(self.sample_type, len),
        }
    }

    fn give(&self, images: BatchNumbers) {
        if self.process != process::id() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < self.limit {
            kept.push(images);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_its_last_clone_is_dropped() {
        let pool = Arc::new(Pool::new(SampleType::F32, 2));
        let buffer = ImageBuffer::new(pool.take(100), Arc::clone(&pool));
        let BatchNumbers::F32(numbers) = &*buffer else {
            panic!("{buffer:?}")
        };
        let place = numbers.as_ptr();
        let mut copy = buffer.clone();
        copy.images_mut().truncate(1);
        assert_eq!((copy.len(), buffer.len()), (1, 100));
        drop((copy, buffer.clone().into_f32()));
        assert!(pool.kept.lock().unwrap().is_empty());
        drop(buffer);
        let BatchNumbers::F32(again) = pool.take(60) else {
            panic!("another type")
        };
        assert_eq!((again.as_ptr(), again.len()), (place, 60));
        let floats = ImageBuffer::new(BatchNumbers::F32(again), Arc::clone(&pool)).into_f32();
        assert_eq!((floats.as_ptr(), floats.len()), (place, 60));
        assert!(pool.kept.lock().unwrap().is_empty());
        drop(floats);
        assert_eq!(pool.kept.lock().unwrap().len(), 1);
        let many: Vec<_> = (0..5)
            .map(|_| ImageBuffer::new(pool.take(1), Arc::clone(&pool)))
            .collect();
        drop(many);
        assert_eq!(pool.kept.lock().unwrap().len(), 2);
    }

    #[test]
    fn numbers_become_f32_by_value() {
        let pool = Arc::new(Pool::new(SampleType::U8, 1));
        let floats = |images| ImageBuffer::new(images, Arc::clone(&pool)).into_f32();
        for sample_type in [SampleType::F32, SampleType::F16, SampleType::Bf16] {
            assert_eq!(*floats(BatchNumbers::new(sample_type, 3)), [0.0; 3]);
        }
        pool.kept.lock().unwrap().clear();
        assert_eq!(*floats(BatchNumbers::F16(vec![f16::from_f32(-1.5)])), [-1.5]);
        pool.kept.lock().unwrap().clear();
        let kept = floats(BatchNumbers::U8(vec![7, 255]));
        assert_eq!(*kept, [7.0, 255.0]);
        // What was copied is free at once.
        assert_eq!(*pool.kept.lock().unwrap(), [BatchNumbers::U8(vec![7, 255])]);
    }
}
