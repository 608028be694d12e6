//! Memory that Python accesses without a copy, by the [DLPack](https://dmlc.github.io/dlpack/latest/)
//! protocol.
//!
//! `torch.from_dlpack` and `numpy.from_dlpack` take a capsule of it. Every capsule holds the owner of the
//! memory, and releases it when its deleter runs, on any thread. When the last one has, a batch's images go
//! back to their loader.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Dynamic;
use dlpark::python::ExportRequest;
use dlpark::{DlpackElement, DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use stokehold_loader::{BatchNumbers, ImageBuffer};

/// Numbers of one type in C order: the last index changes fastest.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Memory {
    numbers: Numbers,
    #[pyo3(get)]
    shape: Vec<i64>,
    dtype: DLDataType,
    owner: Arc<dyn Any + Send + Sync>,
}

/// A pointer to the first number.
struct Numbers(*mut c_void);

// SAFETY: the pointer is never dereferenced here; it is passed to Python, which has its own rules for
// accessing an array. The memory lives as long as the owner, which every capsule holds.
unsafe impl Send for Numbers {}
// SAFETY: as above.
unsafe impl Sync for Numbers {}

impl Memory {
    /// The images of a batch.
    pub(crate) fn of_images(mut images: ImageBuffer, shape: [usize; 4]) -> Self {
        // Take the pointer before the buffer moves: moving a vector does not move its numbers.
        let (numbers, dtype) = match images.images_mut() {
            BatchNumbers::F32(numbers) => start(numbers),
            BatchNumbers::F16(numbers) => start(numbers),
            BatchNumbers::Bf16(numbers) => start(numbers),
            BatchNumbers::U8(numbers) => start(numbers),
        };
        Self {
            numbers,
            shape: shape.map(|side| side as i64).to_vec(),
            dtype,
            owner: Arc::new(images),
        }
    }

    /// A list of integers.
    pub(crate) fn of_list(mut list: Vec<i64>) -> Self {
        let (numbers, dtype) = start(&mut list);
        Self {
            numbers,
            shape: vec![list.len() as i64],
            dtype,
            owner: Arc::new(list),
        }
    }

    /// The masks of a batch, (N, height, width), as int64: the type that torch's losses take class numbers in.
    pub(crate) fn of_masks(masks: &[u8], [count, _, height, width]: [usize; 4]) -> Self {
        let numbers = Self::of_list(masks.iter().copied().map(i64::from).collect());
        Self {
            shape: [count, height, width].map(|side| side as i64).to_vec(),
            ..numbers
        }
    }

    fn capsule<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let owner = Box::new(Arc::clone(&self.owner));
        let mut tensor = Dynamic::compact(self.shape.as_slice())
            .initialize_as::<M>(owner)
            .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        tensor
            .set_data(self.numbers.0)
            .set_device(DLDevice::CPU)
            .set_dtype(self.dtype);
        // SAFETY: data, shape and type are those of the owner's vector, which is as long as the shape says,
        // writable, and neither moved nor freed before the deleter drops `owner`. The owner does not touch it
        // meanwhile.
        Ok(unsafe { tensor.finish() })
    }
}

fn start<T: DlpackElement>(numbers: &mut [T]) -> (Numbers, DLDataType) {
    (Numbers(numbers.as_mut_ptr().cast()), T::DTYPE)
}

#[pymethods]
impl Memory {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        ExportRequest::parse(stream, max_version, dl_device, copy)?.export_zero_copy(
            py,
            DLDevice::CPU,
            DlpackFlags::empty(),
            || self.capsule(),
            || self.capsule(),
        )
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        DLDevice::CPU.into()
    }
}
