//! The source of batches: made by loader threads, or on the device that trains.
//!
//! Both go through the same samples in the same order with the same random draws, report the same bad images,
//! and resume in the same way; `gpu` makes the same numbers as `fused`, to the bit. With `gpu`, a batch never
//! leaves the device: the output of its kernels is the tensor that the network reads.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use burn::tensor::{AllocationProperty, Bytes, DType, Device, FloatDType, Int, Tensor, TensorData};
use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use stokehold_gpu::Decode;
#[cfg(feature = "gpu")]
use stokehold_gpu::{DeviceBatch, DeviceBatches, DeviceLoader, ForGpu, Gpu, LoadedBatch};
use stokehold_loader::{
    BadImage, Batch, BatchNumbers, Batches, Floats, ImageBuffer, Loader, LoaderOptions, Span, State,
};
use stokehold_pipeline::op::{Normalize, Op};
use stokehold_pipeline::{Executor, Pipeline, SampleType};
use stokehold_storage::Source;

use crate::TrainError;
#[cfg(feature = "gpu")]
use crate::device;
use crate::executor::AnyExecutor;

/// Options of the executor `gpu`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuOptions {
    /// What decodes the symbols of JPEGs and packed images.
    pub decode: Decode,
    /// The device memory for batches, bytes; `None` for `Gpu::default_budget` of crate gpu.
    pub budget: Option<u64>,
}

/// An opened executor, with its device for `gpu`.
#[derive(Clone)]
pub struct Maker(MakerKind);

#[derive(Clone)]
enum MakerKind {
    Cpu(Executor),
    #[cfg(feature = "gpu")]
    Gpu {
        gpu: Gpu,
        options: GpuOptions,
    },
}

impl Maker {
    /// Opens an executor for training on `device`, which holds the images for `gpu`.
    ///
    /// # Errors
    /// [`TrainError::NoGpu`] and [`TrainError::Gpu`] if that device cannot make images.
    pub fn open(executor: AnyExecutor, options: GpuOptions, device: &Device) -> Result<Self, TrainError> {
        match executor {
            AnyExecutor::Cpu(executor) => Ok(Self(MakerKind::Cpu(executor))),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu => {
                let Some(cube) = device::cube(device) else {
                    let reason = "it makes images on the GPU that computes, and here the CPU computes; `stokehold devices` lists \
                        the GPUs that can be used (--device cuda or vulkan), and what to install for the others";
                    return Err(TrainError::NoGpu(reason.into()));
                };
                let gpu = Gpu::on_device(cube)?;
                Ok(Self(MakerKind::Gpu { gpu, options }))
            }
            #[cfg(not(feature = "gpu"))]
            AnyExecutor::Gpu => {
                let _ = (options, device);
                let reason = "this program was built without GPUs; build it with the feature cuda or vulkan";
                Err(TrainError::NoGpu(reason.into()))
            }
        }
    }
}

/// A loader, and what its batches pass through on their way to the network.
pub struct Feed {
    kind: Kind,
    /// What the device does with batches of bytes.
    normalize: Option<Normalize>,
}

enum Kind {
    Cpu(Loader),
    #[cfg(feature = "gpu")]
    Gpu(DeviceLoader),
}

/// An iterator over the batches of one epoch. It ends after an error.
pub struct FeedBatches {
    kind: BatchesKind,
    normalize: Option<Normalize>,
}

enum BatchesKind {
    Cpu(Batches),
    #[cfg(feature = "gpu")]
    Gpu(DeviceBatches),
}

/// A batch: images in main memory or on the device, and what belongs to them.
#[derive(Debug, Clone)]
pub struct FedBatch {
    /// The images.
    pub images: FedImages,
    /// [N, 3, H, W]. N is at least 1.
    pub shape: [usize; 4],
    /// The class of each image; 0 where pixels have classes.
    pub labels: Vec<u32>,
    /// The class of each pixel, N·H·W numbers, 255 for none; empty where images have classes.
    pub masks: Vec<u8>,
    /// The number of each image in its source.
    pub samples: Vec<u64>,
    /// Bad images that were not reported before; [`FeedBatches::unreported`] has those after the last batch.
    pub bad: Vec<BadImage>,
    /// The workers' activities, with times.
    pub spans: Vec<Span>,
}

/// The images of a batch: [N, 3, H, W] numbers.
#[derive(Debug, Clone)]
pub enum FedImages {
    /// In main memory, as the loader made them.
    Host {
        /// The numbers.
        numbers: ImageBuffer,
        /// What the device still does with bytes.
        normalize: Option<Normalize>,
    },
    /// On the device.
    #[cfg(feature = "gpu")]
    Device(DeviceBatch),
}

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

/// The input of a step.
#[derive(Clone)]
pub(crate) enum Input {
    /// In main memory; a device without its own memory uses f32 in place.
    Host {
        numbers: bytes::Bytes,
        sample_type: SampleType,
        normalize: Option<Normalize>,
    },
    #[cfg(feature = "gpu")]
    Device(DeviceBatch),
}

impl Feed {
    /// Prepares to load `source` through `pipeline` with `maker`, which overrides the executor in `options`.
    /// Reads nothing yet.
    ///
    /// # Errors
    /// The errors of [`Loader::new`].
    pub fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
        maker: &Maker,
    ) -> Result<Self, TrainError> {
        match &maker.0 {
            MakerKind::Cpu(executor) => {
                let options = LoaderOptions {
                    executor: *executor,
                    ..options
                };
                Ok(Self::of(Kind::Cpu(Loader::new(source, pipeline, options)?)))
            }
            #[cfg(feature = "gpu")]
            MakerKind::Gpu { gpu, options: of_gpu } => {
                let budget = of_gpu.budget.unwrap_or_else(|| gpu.default_budget());
                let way = ForGpu {
                    decode: of_gpu.decode,
                };
                let loader = DeviceLoader::new(source, pipeline, options, gpu.clone(), way, budget)?;
                Ok(Self::of(Kind::Gpu(loader)))
            }
        }
    }

    /// As [`Feed::new`], with batches whose bytes the device makes floats of: the loader leaves out what stands behind the
    /// pipeline's `ToFloat`, which can be one `Normalize`.
    ///
    /// # Errors
    /// As [`Feed::new`], and if something else stands there.
    pub fn of_bytes(
        source: Arc<dyn Source>,
        mut pipeline: Pipeline,
        options: LoaderOptions,
        maker: &Maker,
    ) -> Result<Self, TrainError> {
        let normalize = match pipeline.ops.last() {
            Some(Op::Normalize(normalize)) => Some(normalize.clone()),
            _ => None,
        };
        pipeline
            .ops
            .truncate(pipeline.ops.len() - usize::from(normalize.is_some()));
        let options = LoaderOptions {
            sample_type: SampleType::U8,
            ..options
        };
        let feed = Self::new(source, pipeline, options, maker)?;
        Ok(Self { normalize, ..feed })
    }

    fn of(kind: Kind) -> Self {
        let normalize = None;
        Self { kind, normalize }
    }

    fn batches(&self, kind: BatchesKind) -> FeedBatches {
        FeedBatches {
            kind,
            normalize: self.normalize.clone(),
        }
    }

    /// The loader that it uses.
    pub fn loader(&self) -> &Loader {
        match &self.kind {
            Kind::Cpu(loader) => loader,
            #[cfg(feature = "gpu")]
            Kind::Gpu(loader) => loader.loader(),
        }
    }

    /// The number of images of its source.
    pub fn images(&self) -> usize {
        self.loader().images()
    }

    /// Starts an epoch.
    pub fn epoch(&self, epoch: u64) -> FeedBatches {
        self.batches(match &self.kind {
            Kind::Cpu(loader) => BatchesKind::Cpu(loader.epoch(epoch)),
            #[cfg(feature = "gpu")]
            Kind::Gpu(loader) => BatchesKind::Gpu(loader.epoch(epoch)),
        })
    }

    /// As [`Loader::resume`].
    ///
    /// # Errors
    /// The errors of [`Loader::resume`].
    pub fn resume(&self, state: State) -> Result<FeedBatches, TrainError> {
        Ok(self.batches(match &self.kind {
            Kind::Cpu(loader) => BatchesKind::Cpu(loader.resume(state)?),
            #[cfg(feature = "gpu")]
            Kind::Gpu(loader) => BatchesKind::Gpu(loader.resume(state)?),
        }))
    }
}

impl FeedBatches {
    /// As [`Batches::unreported`].
    pub fn unreported(&mut self) -> Vec<BadImage> {
        match &mut self.kind {
            BatchesKind::Cpu(batches) => batches.unreported(),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches.unreported(),
        }
    }

    /// The position of the consumer: after the batches yielded so far.
    pub fn state(&self) -> State {
        match &self.kind {
            BatchesKind::Cpu(batches) => batches.state(),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches.state(),
        }
    }

    /// Batches in work or ready.
    pub fn in_flight(&self) -> usize {
        match &self.kind {
            BatchesKind::Cpu(batches) => batches.in_flight(),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches.in_flight(),
        }
    }

    /// Batches in work: 0 when nothing more can be done before the next batch is taken.
    pub fn loading(&self) -> usize {
        match &self.kind {
            BatchesKind::Cpu(batches) => batches.loading(),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches.loading(),
        }
    }
}

impl FeedBatches {
    /// As [`Batches::next_within`].
    pub(crate) fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<FedBatch, TrainError>>> {
        match &mut self.kind {
            BatchesKind::Cpu(batches) => batches
                .next_within(patience)
                .map(|next| next.map(|batch| fed(batch, self.normalize.as_ref()))),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches
                .next_within(patience)
                .map(|next| next.map(|batch| batch.map(FedBatch::from).map_err(TrainError::from))),
        }
    }
}

impl Iterator for FeedBatches {
    type Item = Result<FedBatch, TrainError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.kind {
            BatchesKind::Cpu(batches) => Some(fed(batches.next()?, self.normalize.as_ref())),
            #[cfg(feature = "gpu")]
            BatchesKind::Gpu(batches) => batches
                .next()
                .map(|batch| batch.map(FedBatch::from).map_err(TrainError::from)),
        }
    }
}

/// A batch of the CPU's loader for the trainer.
fn fed(
    batch: Result<Batch, stokehold_loader::LoaderError>,
    normalize: Option<&Normalize>,
) -> Result<FedBatch, TrainError> {
    let mut batch = FedBatch::from(batch?);
    batch.images.finish_by(normalize);
    Ok(batch)
}

impl From<Batch> for FedBatch {
    fn from(batch: Batch) -> Self {
        Self {
            images: FedImages::Host {
                numbers: batch.images,
                normalize: None,
            },
            shape: batch.shape,
            labels: batch.labels,
            masks: batch.masks,
            samples: batch.samples,
            bad: batch.bad,
            spans: batch.spans,
        }
    }
}

#[cfg(feature = "gpu")]
impl From<LoadedBatch> for FedBatch {
    fn from(loaded: LoadedBatch) -> Self {
        Self {
            images: FedImages::Device(loaded.images),
            ..Self::from(loaded.batch)
        }
    }
}

impl FedImages {
    /// What decoded the images, if the executor is `gpu`.
    pub fn decoded_by(&self) -> Option<DecodedBy> {
        match self {
            Self::Host { .. } => None,
            #[cfg(feature = "gpu")]
            Self::Device(batch) => Some(DecodedBy {
                device: batch.decoded as u64,
                cpu: (batch.shape[0] - batch.decoded) as u64,
                given_back: batch.given_back as u64,
            }),
        }
    }

    /// The numbers in main memory, as [`ImageBuffer::into_f32`]; `None` of images that are on a device.
    pub fn into_f32(self) -> Option<Floats> {
        match self {
            Self::Host { numbers, .. } => Some(numbers.into_f32()),
            #[cfg(feature = "gpu")]
            Self::Device(_) => None,
        }
    }

    pub(crate) fn into_input(self) -> Input {
        match self {
            Self::Host { numbers, normalize } => Input::Host {
                sample_type: numbers.sample_type(),
                numbers: bytes::Bytes::from_owner(Lent(numbers)),
                normalize,
            },
            #[cfg(feature = "gpu")]
            Self::Device(batch) => Input::Device(batch),
        }
    }

    fn finish_by(&mut self, with: Option<&Normalize>) {
        match self {
            Self::Host { normalize, .. } => *normalize = with.cloned(),
            #[cfg(feature = "gpu")]
            Self::Device(_) => {}
        }
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
struct Lent<T>(T);

impl AsRef<[u8]> for Lent<ImageBuffer> {
    fn as_ref(&self) -> &[u8] {
        match &*self.0 {
            BatchNumbers::F32(numbers) => bytemuck::cast_slice(numbers),
            BatchNumbers::F16(numbers) => bytemuck::cast_slice(numbers.reinterpret_cast()),
            BatchNumbers::Bf16(numbers) => bytemuck::cast_slice(numbers.reinterpret_cast()),
            BatchNumbers::U8(numbers) => numbers,
        }
    }
}

impl AsRef<[u8]> for Lent<Vec<f32>> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Input {
    pub(crate) fn host(numbers: Vec<f32>) -> Self {
        Self::Host {
            numbers: bytes::Bytes::from_owner(Lent(numbers)),
            sample_type: SampleType::F32,
            normalize: None,
        }
    }

    /// The numbers in main memory, as bytes; none where they are on a device.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Host { numbers, .. } => numbers,
            #[cfg(feature = "gpu")]
            Self::Device(_) => &[],
        }
    }

    /// The images as a tensor of f32 on the device: uploaded as they are and cast there, or used in place.
    pub(crate) fn tensor(self, shape: [usize; 4], device: &Device) -> Tensor<4> {
        match self {
            Self::Host {
                numbers,
                sample_type,
                normalize,
            } => {
                let numbers = Bytes::from_shared(numbers, AllocationProperty::Native);
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
            #[cfg(feature = "gpu")]
            Self::Device(batch) => {
                let tensor = on_device::tensor(batch, device);
                match device.is_autodiff() {
                    true => tensor.autodiff(),
                    false => tensor,
                }
            }
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
    use super::*;
    use crate::device::{DeviceChoice, open};
    use stokehold_base::fault::Fault;
    use stokehold_storage::ImageFolder;

    /// The tensors of both executors on whatever Vulkan device there is, Burn's own arithmetic on them included: to the bit.
    #[test]
    fn what_the_device_made_is_a_tensor_where_it_lies() {
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
            let maker = Maker::open(executor, GpuOptions::default(), &plain).unwrap();
            Feed::new(source.clone(), Pipeline::imagenet_train(32), options, &maker).unwrap()
        };
        let (gpu, fused) = (feed(AnyExecutor::Gpu), feed(AnyExecutor::Cpu(Executor::Fused)));
        for device in [plain.clone(), plain.clone().autodiff()] {
            let (mut made, mut expected) = (gpu.epoch(1), fused.epoch(1));
            for _ in 0..3 {
                let (made, expected) = (made.next().unwrap().unwrap(), expected.next().unwrap().unwrap());
                assert!(matches!(made.images, FedImages::Device(_)));
                assert_eq!((made.shape, &made.labels), (expected.shape, &expected.labels));
                let shape = made.shape;
                let kept = made.images.clone();
                let [made, expected] =
                    [made.images, expected.images].map(|images| images.into_input().tensor(shape, &device));
                assert_eq!(made.device().is_autodiff(), device.is_autodiff());
                assert_eq!(made.dims(), shape);
                let numbers = |tensor: Tensor<4>| device::read(tensor).unwrap();
                assert!(numbers(made.clone()) == numbers(expected.clone()));
                assert!(numbers(made * 3.0 - 1.0) == numbers(expected.clone() * 3.0 - 1.0));
                // Burn has not written into memory that is still shared.
                assert!(numbers(kept.into_input().tensor(shape, &device)) == numbers(expected));
            }
            assert!(made.next().is_none() && expected.next().is_none());
        }
    }

    /// The device of the CPU has no kernels.
    #[test]
    fn the_cpu_cannot_make_images_as_a_gpu() {
        let cpu = open(DeviceChoice::Cpu).unwrap();
        let error = Maker::open(AnyExecutor::Gpu, GpuOptions::default(), &cpu)
            .err()
            .unwrap();
        assert!(error.is_input());
        assert!(error.to_string().contains("`stokehold devices` lists"), "{error}");
    }
}
