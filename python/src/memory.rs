//! Memory that Python accesses without a copy, by the [DLPack](https://dmlc.github.io/dlpack/latest/)
//! protocol.
//!
//! `torch.from_dlpack` and `numpy.from_dlpack` take a capsule of it. Every capsule holds the owner of the
//! memory, and releases it when its deleter runs, on any thread. When the last one has, a batch's images go
//! back to their loader.
//!
//! Memory on a CUDA device is lent to the stream that the consumer names. It is complete by then, so the stream has
//! nothing to wait for; the way back is of `stokehold_gpu`'s `LentMemory`.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

#[cfg(feature = "gpu")]
use bytemuck::pod_collect_to_vec;
#[cfg(feature = "cuda")]
use dlpark::ffi::DLDeviceType;
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Dynamic;
#[cfg(feature = "cuda")]
use dlpark::python::CudaStreamRequest;
use dlpark::python::ExportRequest;
use dlpark::{DlpackElement, DlpackFlags, Managed, ManagedTensorBase};
#[cfg(feature = "gpu")]
use half::{bf16, f16};
#[cfg(feature = "cuda")]
use pyo3::exceptions::PyBufferError;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
#[cfg(feature = "cuda")]
use stokehold_gpu::{ConsumerStream, CudaMemory, LentMemory};
use stokehold_loader::{BatchNumbers, ImageBuffer};
#[cfg(feature = "gpu")]
use stokehold_pipeline::SampleType;

/// Numbers of one type in C order: the last index changes fastest.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Memory {
    place: Backing,
    #[pyo3(get)]
    shape: Vec<i64>,
    dtype: DLDataType,
}

enum Backing {
    Host {
        numbers: Numbers,
        owner: Arc<dyn Any + Send + Sync>,
    },
    #[cfg(feature = "cuda")]
    Cuda(CudaMemory),
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
            place: Backing::Host {
                numbers,
                owner: Arc::new(images),
            },
            shape: sides(shape),
            dtype,
        }
    }

    /// A copy of numbers that a device has made, as bytes in native order.
    #[cfg(feature = "gpu")]
    pub(crate) fn of_bytes(bytes: &[u8], sample_type: SampleType, shape: [usize; 4]) -> Self {
        let numbers = match sample_type {
            SampleType::F32 => Self::of_vec::<f32>(pod_collect_to_vec(bytes)),
            SampleType::F16 => Self::of_vec::<f16>(pod_collect_to_vec(bytes)),
            SampleType::Bf16 => Self::of_vec::<bf16>(pod_collect_to_vec(bytes)),
            SampleType::U8 => Self::of_vec::<u8>(bytes.to_vec()),
        };
        Self {
            shape: sides(shape),
            ..numbers
        }
    }

    /// The images of a batch where they are.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_cuda(images: CudaMemory) -> Self {
        let batch = images.batch();
        Self {
            shape: sides(batch.shape),
            dtype: match batch.sample_type {
                SampleType::F32 => f32::DTYPE,
                SampleType::F16 => f16::DTYPE,
                SampleType::Bf16 => bf16::DTYPE,
                SampleType::U8 => u8::DTYPE,
            },
            place: Backing::Cuda(images),
        }
    }

    /// A list of integers.
    pub(crate) fn of_list(list: Vec<i64>) -> Self {
        Self::of_vec(list)
    }

    fn of_vec<T: DlpackElement + Send + Sync + 'static>(mut list: Vec<T>) -> Self {
        let (numbers, dtype) = start(&mut list);
        Self {
            shape: vec![list.len() as i64],
            dtype,
            place: Backing::Host {
                numbers,
                owner: Arc::new(list),
            },
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

    fn device(&self) -> DLDevice {
        match &self.place {
            Backing::Host { .. } => DLDevice::CPU,
            #[cfg(feature = "cuda")]
            Backing::Cuda(memory) => DLDevice {
                device_type: DLDeviceType::CUDA,
                device_id: memory.device() as i32,
            },
        }
    }

    fn capsule<M: ManagedTensorBase>(&self, request: &ExportRequest<'_>) -> PyResult<Managed<M>> {
        // Only memory on a device is lent to a stream.
        #[cfg(not(feature = "cuda"))]
        let _ = request;
        let shape = Dynamic::compact(self.shape.as_slice());
        let (tensor, data) = match &self.place {
            Backing::Host { numbers, owner } => {
                (shape.initialize_as::<M>(Box::new(Arc::clone(owner))), numbers.0)
            }
            #[cfg(feature = "cuda")]
            Backing::Cuda(memory) => {
                let owner = Box::new(lend(memory, request)?);
                (shape.initialize_as::<M>(owner), memory.address() as *mut c_void)
            }
        };
        let mut tensor = tensor.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        tensor
            .set_data(data)
            .set_device(self.device())
            .set_dtype(self.dtype);
        // SAFETY: data, shape and type are those of the owner's numbers, which are as many as the shape says, on the
        // device that is said, writable, and neither moved nor freed before the deleter drops `owner`. The owner does
        // not touch them meanwhile.
        Ok(unsafe { tensor.finish() })
    }
}

/// Lends a device's memory to the stream that a consumer names.
#[cfg(feature = "cuda")]
fn lend(memory: &CudaMemory, request: &ExportRequest<'_>) -> PyResult<LentMemory> {
    let stream = match request.cuda_stream()? {
        // The array API has a consumer that names none work in the legacy default stream.
        CudaStreamRequest::Omitted | CudaStreamRequest::LegacyDefault => ConsumerStream::Handle(0),
        CudaStreamRequest::Pointer(stream) => ConsumerStream::Handle(stream),
        // The deleter may run in another thread than works with the batch. "No synchronisation" is of the way to the
        // consumer: it names no stream, and does not say that its work has ended when the deleter runs.
        CudaStreamRequest::PerThreadDefault | CudaStreamRequest::NoSync => ConsumerStream::Unknown,
    };
    // SAFETY: by the DLPack protocol, `stream` is one of the consumer's streams; that it exists as long as the
    // tensor is what the package's documentation asks of the consumer.
    unsafe { memory.lend(stream) }.map_err(|error| PyBufferError::new_err(error.to_string()))
}

/// `wanted` numbers at an address, where there are `bytes` for them.
///
/// # Errors
/// The address is not one of such numbers, or they take another number of bytes.
///
/// # Safety
/// `bytes` bytes lie there, writable, for as long as the slice is used, and no one else uses them meanwhile.
pub(crate) unsafe fn room<'a, T: DlpackElement>(
    address: usize,
    bytes: usize,
    wanted: usize,
) -> PyResult<&'a mut [T]> {
    let pointer = address as *mut T;
    if pointer.is_null() || !pointer.is_aligned() || wanted.checked_mul(size_of::<T>()) != Some(bytes) {
        return Err(PyValueError::new_err(format!(
            "{bytes} bytes at address {address:#x} for {wanted} numbers of {}",
            size_of::<T>()
        )));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, wanted) })
}

fn sides(shape: [usize; 4]) -> Vec<i64> {
    shape.map(|side| side as i64).to_vec()
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
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        request.export_zero_copy(
            py,
            self.device(),
            DlpackFlags::empty(),
            || self.capsule(&request),
            || self.capsule(&request),
        )
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        self.device().into()
    }
}
