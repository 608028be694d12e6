//! Batches of the loader as tensors.
//!
//! A batch of the loader's workers is uploaded, or used where it is. A batch of the executor `gpu` never leaves the device: the
//! output of its kernels is the tensor that the network reads.

use std::fmt;
use std::ops::AddAssign;

use burn::tensor::{AllocationProperty, Bytes, DType, Device, FloatDType, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
#[cfg(feature = "gpu")]
use stokehold_gpu::DeviceBatch;
use stokehold_loader::{Batch, ImageBuffer, Pixels};
use stokehold_pipeline::SampleType;
use stokehold_pipeline::op::Normalize;

/// What decoded the symbols of JPEGs and packed images for the executor `gpu`. The CPU decodes progressive and other files
/// with several scans, and those that the device gives back: damaged files, and files in which it did not
/// synchronise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecodedBy {
    /// Images that the device decoded.
    pub device: u64,
    /// Images that the CPU decoded.
    pub cpu: u64,
    /// Images that the device tried first and gave back.
    pub given_back: u64,
}

impl DecodedBy {
    /// What decoded a batch; `None` unless the executor is `gpu`.
    #[cfg(feature = "gpu")]
    pub fn of(batch: &Batch) -> Option<Self> {
        let batch: &DeviceBatch = batch.pixels.on_device()?;
        Some(Self {
            device: batch.decoded as u64,
            cpu: (batch.shape[0] - batch.decoded) as u64,
            given_back: batch.given_back as u64,
        })
    }

    /// What decoded a batch; `None` unless the executor is `gpu`.
    #[cfg(not(feature = "gpu"))]
    pub fn of(_: &Batch) -> Option<Self> {
        None
    }
}

impl AddAssign for DecodedBy {
    fn add_assign(&mut self, more: Self) {
        self.device += more.device;
        self.cpu += more.cpu;
        self.given_back += more.given_back;
    }
}

impl fmt::Display for DecodedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            cpu,
            given_back,
        } = self;
        write!(f, "symbols of {device} images by the device, of {cpu} by the CPU")?;
        match given_back {
            0 => Ok(()),
            many => write!(f, "; the device gave {many} back"),
        }
    }
}

/// Numbers as bytes for Burn. When Burn drops them, their memory goes back to the loader.
struct Lent(ImageBuffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The numbers in main memory, as bytes; none where they are on a device.
pub(crate) fn bytes(pixels: &Pixels) -> &[u8] {
    match pixels {
        Pixels::Host(numbers) => numbers.as_bytes(),
        _ => &[],
    }
}

/// The images of a batch as a tensor of f32 on the device: uploaded as they are and cast there, or used in place.
pub(crate) fn tensor(
    pixels: Pixels,
    normalize: Option<Normalize>,
    shape: [usize; 4],
    device: &Device,
) -> Tensor<4> {
    let numbers = match pixels {
        Pixels::Host(numbers) => numbers,
        #[cfg(feature = "gpu")]
        Pixels::Device(_) => {
            let batch: &DeviceBatch = pixels.on_device().expect("a batch of crate gpu");
            let tensor = on_device::tensor(batch.clone(), device);
            return match device.is_autodiff() {
                true => tensor.autodiff(),
                false => tensor,
            };
        }
        _ => unreachable!("the loader has no device"),
    };
    let sample_type = numbers.sample_type();
    let numbers = Bytes::from_shared(
        bytes::Bytes::from_owner(Lent(numbers)),
        AllocationProperty::Native,
    );
    let floats = |dtype| {
        let data = TensorData::from_bytes(numbers.clone(), shape, dtype);
        Tensor::<4>::from_data(data, (device, dtype)).cast(FloatDType::F32)
    };
    match sample_type {
        SampleType::F32 => floats(DType::F32),
        SampleType::F16 => floats(DType::F16),
        SampleType::Bf16 => floats(DType::BF16),
        SampleType::U8 => {
            let data = TensorData::from_bytes(numbers, shape, DType::U8);
            let bytes = Tensor::<4, Int>::from_data(data, (device, DType::U8));
            normalized(bytes.cast(FloatDType::F32), normalize)
        }
    }
}

/// Floats of bytes 0 to 255, as `fused` makes them: one multiplication and addition.
fn normalized(bytes: Tensor<4>, normalize: Option<Normalize>) -> Tensor<4> {
    let Some(Normalize { mean, std }) = normalize else {
        return bytes.mul_scalar(1.0 / 255.0);
    };
    let device = bytes.device();
    let channels = |each: &dyn Fn(usize) -> f32| {
        Tensor::<1>::from_data([each(0), each(1), each(2)], &device).reshape([1, 3, 1, 1])
    };
    bytes * channels(&|c| 1.0 / (255.0 * std[c])) + channels(&|c| -mean[c] / std[c])
}

/// Passes memory between the kernels and Burn, which share the CubeCL device and memory handles.
#[cfg(feature = "gpu")]
mod on_device {
    use burn::backend::Cube;
    use burn::backend::fusion::{NoOp, custom::StreamId, get_client};
    use burn::backend::ir::{BackendIr, InitOperationIr, OperationIr, OperationOutput};
    use burn::tensor::{DType, Device, Shape, Tensor};
    use burn_cubecl::CubeBackend;
    use burn_cubecl::tensor::CubeTensor;
    use stokehold_gpu::DeviceBatch;

    use crate::device;

    /// The batch's memory as a tensor: what Burn does with data that it has uploaded, without the upload.
    pub fn tensor(batch: DeviceBatch, device: &Device) -> Tensor<4> {
        let cube = device::cube(device)
            .expect("batches are made on the device that trains")
            .clone();
        let (shape, handle) = (Shape::from(batch.shape), batch.into_handle());
        let tensor =
            CubeTensor::new_contiguous(cube.client(), cube.clone(), shape.clone(), handle, DType::F32);
        let fusion = get_client::<CubeBackend>(&cube);
        let handle = CubeBackend::float_tensor_handle(tensor);
        let init = InitOperationIr::create(shape, DType::F32, || fusion.register_tensor_handle(handle));
        let nothing = NoOp::<CubeBackend>::new();
        let tensor = fusion.register(StreamId::current(), OperationIr::Init(init), nothing);
        Tensor::from_primitive::<Cube>(tensor.output())
    }
}

#[cfg(all(test, feature = "vulkan"))]
mod vulkan {
    use std::sync::Arc;

    use stokehold_base::fault::Fault;
    use stokehold_loader::{Loader, LoaderOptions};
    use stokehold_pipeline::{Executor, Pipeline};
    use stokehold_storage::ImageFolder;

    use super::*;
    use crate::device::{self, DeviceChoice, open};
    use crate::executor::{GpuOptions, open_device};

    /// The tensors of both executors on whatever Vulkan device there is, Burn's own arithmetic on them included: to the bit.
    #[test]
    fn tensors_share_the_pixels_of_the_device() {
        let plain = match open(DeviceChoice::Vulkan(0)) {
            Ok(plain) => plain,
            Err(error) => return stokehold_untested::skip(error),
        };
        let dir = tempfile::tempdir().unwrap();
        for (number, bytes) in [
            &include_bytes!("../../../hostile/small.jpg")[..],
            include_bytes!("../../../hostile/grey.jpg"),
            include_bytes!("../../../hostile/small.webp"),
        ]
        .iter()
        .cycle()
        .take(7)
        .enumerate()
        {
            std::fs::write(dir.path().join(format!("{number}.jpg")), bytes).unwrap();
        }
        let source = Arc::new(ImageFolder::unlabelled(dir.path()).unwrap());
        let feed = |executor| {
            let options = LoaderOptions {
                batch_size: 3,
                ..LoaderOptions::default()
            };
            let device = open_device(executor, GpuOptions::default(), &plain).unwrap();
            let options = LoaderOptions { device, ..options };
            Loader::new(source.clone(), Pipeline::imagenet_train(32), options).unwrap()
        };
        let (gpu, fused) = (feed(Executor::Gpu), feed(Executor::Fused));
        for device in [plain.clone(), plain.clone().autodiff()] {
            let (mut made, mut expected) = (gpu.epoch(1), fused.epoch(1));
            for _ in 0..3 {
                let (made, expected) = (made.next().unwrap().unwrap(), expected.next().unwrap().unwrap());
                assert!(matches!(made.pixels, Pixels::Device(_)));
                assert_eq!((made.shape, &made.labels), (expected.shape, &expected.labels));
                let shape = made.shape;
                let kept = made.pixels.clone();
                let [made, expected] =
                    [made.pixels, expected.pixels].map(|pixels| tensor(pixels, None, shape, &device));
                assert_eq!(made.device().is_autodiff(), device.is_autodiff());
                assert_eq!(made.dims(), shape);
                let numbers = |tensor: Tensor<4>| device::read(tensor).unwrap();
                assert!(numbers(made.clone()) == numbers(expected.clone()));
                assert!(numbers(made * 3.0 - 1.0) == numbers(expected.clone() * 3.0 - 1.0));
                // Burn has not written into memory that is still shared.
                assert!(numbers(tensor(kept, None, shape, &device)) == numbers(expected));
            }
            assert!(made.next().is_none() && expected.next().is_none());
        }
    }

    /// The device of the CPU has no kernels.
    #[test]
    fn the_cpu_cannot_make_images_as_a_gpu() {
        let cpu = open(DeviceChoice::Cpu).unwrap();
        let error = open_device(Executor::Gpu, GpuOptions::default(), &cpu)
            .err()
            .unwrap();
        assert!(error.is_input());
        assert!(error.to_string().contains("`stokehold devices` lists"), "{error}");
    }
}
