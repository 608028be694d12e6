//! Decoding and augmenting on the GPU: the executor `gpu`.
//!
//! ```text
//!  file ──worker: Preparer──► Prepared ──► Batcher ──► DeviceBatch (N, 3, H, W) on the device ──► a tensor, where it lies
//!         entropy decoding    packed       upload,
//!         of the crop's       coefficients launches
//!         blocks; the plan    and tables
//!         └──────────── DeviceLoader: a loader's epochs in batches on the device, one ahead of the consumer ──────┘
//!
//!  on the device:  unpack ──► i16 blocks ──► transform ──► u8 planes ──► resample, contrast, blur .. ──► emit
//!                  or entropy                dequantise,    Y, Cb, Cr    packed pixels of the result      f32, f16,
//!                  decoding                  IDCT           as stored                                     bf16, u8
//! ```
//!
//! It performs the plan of `fused`, with the same draws, and gives the same numbers **to the bit**. That is a matter of
//! construction. What `fused` decides in floating point (which samples a pixel is made of and what they weigh, which
//! pixels lie outside of a rotation, what number becomes of a byte) is decided on the host by the same code
//! ([`DevicePlan`](stokehold_pipeline::DevicePlan)) and uploaded as tables; what is left to the device is `fused`'s
//! integer arithmetic, and a few products of floats that are kept from being merged with sums.
//!
//! # On the CPU
//!
//! A `Preparer` belongs to one worker. It draws, plans, and entropy-decodes only the blocks that the plan's crop
//! needs. What is zero is not sent: a block is a mask of 64 bits and the values that its bits stand for. Files that are
//! no JPEG of one or three components (PNG, WebP, CMYK) are decoded here to pixels, of the region that is needed.
//!
//! With `Decode::Device` it does not even entropy-decode: the coded data of the restart intervals that the crop needs
//! go to the device as they are, without their stuffed zeros (`entropy`). What has several scans, as progressive files,
//! takes the way above, and so does afterwards what the device finds to be broken or does not get to the end of: what is
//! a bad image is the CPU's word.
//!
//! # On the device
//!
//! A `Batcher` lays a batch out, refuses it if it does not fit the budget, uploads it in one piece, and queues the
//! launches, whose number does not depend on the number of images. Then (`kernels`):
//!
//! 1. **Coefficients** (`coefficients`, `kernels::decode`). However they come, the quantised coefficients of all images
//!    of a batch lie in one buffer of 16-bit numbers, block after block, with records that say which block belongs
//!    where. They are unpacked, or decoded here by units that begin anywhere and synchronise (`entropy`).
//! 2. **Samples**. Each block is dequantised and transformed into its component's plane, 8, 4, 2 or 1 samples a side
//!    as the plan's scale asks, with the bits of crate jpeg.
//! 3. **Geometry** (`kernels::gather`). One launch makes all pixels of all images: each is mapped back through all of
//!    the plan's flips, crops, rotations and resizes and gathers its window. An upright map samples Y, Cb and Cr where
//!    they lie and makes the colour of the result; a turned one makes the pixels of its window as libjpeg would. No
//!    image is ever written at the size of the file, unless the pipeline asks for the mean or the surroundings of the
//!    whole picture before anything else.
//! 4. **Colour** (`kernels::colour`) is applied by whatever kernel made the pixel; contrast, blur and dilation
//!    (`kernels::surroundings`) have their own, for they look at other pixels.
//! 5. **Numbers** (`kernels::emit`). To-float, normalisation and half precision are a look-up per byte. Erased
//!    rectangles are laid over.
//!
//! Stages of different images are launched together where they have the same number.
//!
//! # Ahead of the consumer
//!
//! A `DeviceLoader` is a loader whose workers prepare and whose batches a thread of its own makes, on a queue of the device of its
//! own (`loader`): batch n+1 is uploaded, decoded and augmented while the network has batch n, and n+2 is laid out meanwhile. Two
//! batches are on the device at most, each within half of the budget, and their memory is used again. Order, draws, resume
//! and the policy for bad images are the loader's.
//!
//! # What a file cannot do
//!
//! Counts and places come from the header, on the host; a batch whose buffers exceed the budget, what the device can
//! hold in one piece, or 32 bits is an error that names the numbers. On the device every read is moved into its buffer
//! and every write outside of its buffer left out. The loops that read coded data end with the data, for each step reads
//! at least a bit; no other loop's end depends on what a file holds.
//!
//! # A device that fails
//!
//! CubeCL launches kernels in a thread of the device's, compiles them there when they are first launched, and catches
//! a panic there as if the launch had been done; whoever waits for the batch would have an Ok and what lay in that memory. So
//! the launches of a batch are queued from within that thread, where a panic ends them, and after each of them CubeCL is asked
//! whether it could be done (`client`). When a device is opened it runs the smallest kernel, whose result is compared (`probe`);
//! what CubeCL needs to compile one for CUDA is looked for before (`cuda`).
//!
//! # Builds
//!
//! Without the features `cuda` and `vulkan` only [`devices`] is left, which says so. With either, kernels are compiled
//! when they are first launched. They are tested on Mesa's lavapipe, a Vulkan device made of the CPU:
//! `cargo test --release -p stokehold-gpu --features vulkan`; with the feature `cuda` the same tests take the first device of
//! CUDA. **On a GPU they have not been run yet.** They avoid memory that units of a cube share, which CubeCL 0.11
//! compiles wrongly for lavapipe.
//!
//! CUDA needs at run time NVIDIA's driver, its compiler NVRTC, and the environment variable `CUDA_PATH` unless a CUDA toolkit
//! is installed: CubeCL gives NVRTC a folder of headers with every kernel. Where one is missing, [`devices`] and
//! `Gpu::open` say what to install for the driver that is there.

#[cfg(feature = "kernels")]
mod batch;
#[cfg(feature = "kernels")]
mod client;
#[cfg(feature = "kernels")]
mod coefficients;
#[cfg(any(test, feature = "cuda"))]
mod cuda;
mod decode;
mod device;
#[cfg(feature = "kernels")]
mod entropy;
mod error;
#[cfg(feature = "kernels")]
mod kernels;
#[cfg(feature = "kernels")]
mod loader;
#[cfg(feature = "kernels")]
mod prepare;
#[cfg(feature = "kernels")]
mod probe;
#[cfg(all(test, feature = "kernels"))]
mod tested;
#[cfg(feature = "kernels")]
mod words;

#[cfg(feature = "kernels")]
pub use batch::{Batcher, DeviceBatch, InWork, LaidOut};
#[cfg(feature = "kernels")]
pub use client::Gpu;
#[cfg(feature = "vulkan")]
pub use client::is_cpu;
pub use decode::Decode;
pub use device::{Backend, Device, DeviceName, Devices, devices, devices_of};
pub use error::GpuError;
#[cfg(feature = "kernels")]
pub use loader::{DeviceBatches, DeviceLoader, LoadedBatch};
#[cfg(feature = "kernels")]
pub use prepare::{ForGpu, Prepared, Preparer};
