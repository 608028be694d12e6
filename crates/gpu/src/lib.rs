//! Decoding and augmenting on the GPU: the executor `gpu`.
//!
//! ```text
//!  file ──worker: Preparer──► Prepared ──► Batcher ──► DeviceBatch (N, 3, H, W) on the device ──► a tensor, where it lies
//!         entropy decoding    packed       upload,
//!         of the crop's       coefficients launches
//!         blocks; the plan    and tables
//!         └──────────── GpuMaker: a loader's epochs in batches on the device, one ahead of the consumer ──────────┘
//!
//!  on the device:  unpack ──► i16 blocks ──► transform ──► u8 planes ──► resample, contrast, blur .. ──► emit
//!                  or entropy                dequantise,    Y, Cb, Cr    packed pixels of the result      f32, f16,
//!                  decoding                  IDCT           as stored                                     bf16, u8
//! ```
//!
//! It executes the plan of `fused` with the same random draws, and gives the same numbers **to the bit**, by
//! construction: everything that `fused` computes in floating point (the samples and weights of a pixel, except in bilinear
//! resampling along rows and columns; the pixels outside of a rotation; the number for a byte) is computed on the host by the same
//! code ([`DevicePlan`](stokehold_pipeline::DevicePlan)) and uploaded as tables. The device does `fused`'s integer
//! arithmetic, and a few products of floats that are kept from being fused with sums.
//!
//! # On the CPU
//!
//! Each worker has a `Preparer`. It draws, plans, and entropy-decodes only the blocks that the plan's crop
//! needs. Zeros are not uploaded: a block is a mask of 64 bits and the values of its set bits. Other files
//! than JPEGs of one or three components (PNG, WebP, CMYK) are decoded here to pixels, in the region that is
//! needed.
//!
//! With `Decode::Device` the CPU does not entropy-decode either: it uploads the coded data of the restart
//! intervals that the crop needs, without stuffed zeros (`entropy`), and of packed images the groups that the
//! crop needs, as they are (`packed`). Files with several scans, such as progressive ones, are decoded as above,
//! and so are, afterwards, files that the device finds to be broken or cannot finish: only the CPU decides that
//! an image is bad.
//!
//! # On the device
//!
//! A `Batcher` lays a batch out, rejects it if it does not fit the budget, uploads it in one piece, and
//! queues the launches, whose number does not depend on the number of images up to some ten thousand. Then (`kernels`):
//!
//! 1. **Coefficients** (`coefficients`, `kernels::decode`). The quantised coefficients of all images of a
//!    batch are in one buffer of 16-bit numbers, block after block, with records that say which block belongs
//!    where. They are either unpacked, or decoded here: JPEGs by units that begin anywhere and synchronise
//!    (`entropy`), packed images by a warp a group, without synchronising (`packed`).
//! 2. **Samples**. Each block is dequantised and transformed into its component's plane, 8, 4, 2 or 1 samples
//!    per side depending on the plan's scale, with the same bits as in crate jpeg.
//! 3. **Geometry** (`kernels::gather`). Windows along rows and columns are found first (`kernels::windows`): which samples
//!    a row or column of the result is made of, and their weights. One launch makes all pixels of all images: each is mapped back
//!    through all of the plan's flips, crops, rotations and resizes, and gathers its window. An upright map
//!    samples Y, Cb and Cr directly and converts the result to colour; a turned one makes the pixels of its
//!    window as libjpeg would. No image is written at the size of the file, unless the pipeline first asks
//!    for the mean or the neighbourhoods of the whole picture.
//! 4. **Colour** (`kernels::colour`) is applied by the kernel that made the pixel; contrast, equalising,
//!    stretching, and blur, sharpness and dilation (`kernels::surroundings`) have their own kernels, because they read other pixels.
//! 5. **Numbers** (`kernels::emit`). To-float, normalisation and half precision are one look-up per byte.
//!    Erased rectangles are filled.
//!
//! Stages with the same number are launched together for all images.
//!
//! # Ahead of the consumer
//!
//! A `GpuMaker` is the device of a loader whose workers prepare samples: a thread makes the batches on its
//! own queue of the device (`loader`): batch n+1 is uploaded, decoded and augmented while the network works
//! on batch n, and n+2 is laid out meanwhile. At most two batches are being made, each within half of the
//! budget, and their memory is reused. A batch that was handed over keeps its memory until its consumer lets go of it.
//! While the consumer's stream still uses more than half of the budget in batches that it let go of, no further batch
//! begins. If none of it comes back for ten seconds, the loader warns and continues. Order, draws, resume and the policy
//! for bad images are the loader's.
//!
//! # For other libraries
//!
//! Burn takes a batch by CubeCL's handle. Another library of the process, such as PyTorch, takes a batch on a
//! CUDA device by its address (`CudaMemory`, feature `cuda`); the memory is made batches of again only when
//! that library's stream is done with it (`lend`). It may capture graphs meanwhile (`capture`). No other library
//! reads the memory of a Vulkan device: `Gpu::read_batch` copies it to the host.
//!
//! # Malicious files
//!
//! Counts and places come from the header, on the host; a batch whose buffers exceed the budget, the device's
//! largest allocation, or 32 bits is an error that names the numbers. On the device every read is clamped to
//! its buffer, and every write outside of its buffer is skipped. The loops that read a JPEG's coded data end with
//! the data, because each step reads at least one bit; no other loop's length depends on a file's contents.
//!
//! # A device that fails
//!
//! CubeCL launches kernels in a thread of the device, compiles them there at the first launch, and catches a
//! panic there as if the launch had been done; a caller that waits for the batch would get `Ok` and arbitrary
//! memory. So the launches of a batch are queued from within that thread, where a panic ends them, and after
//! each launch CubeCL is asked whether it succeeded (`client`). Opening a device runs the smallest kernel and
//! compares its result (`probe`); CubeCL's requirements for CUDA are checked before (`cuda`).
//!
//! # Builds
//!
//! Without the features `cuda` and `vulkan` only [`devices`] is available, and reports that. With either,
//! kernels are compiled at their first launch. They are tested on Mesa's lavapipe, a Vulkan device on the
//! CPU: `cargo test --release -p stokehold-gpu --features vulkan`; with the feature `cuda` the same tests use
//! the first CUDA device. `.ci/cuda` runs them without a GPU: NVRTC compiles the kernels, and crate
//! `cuda-on-cpu` runs its PTX on the CPU, for several architectures. That also tests devices that fail or lack
//! something. **They have not been run on a GPU yet.** They avoid memory shared by the units of a
//! cube, which CubeCL 0.11 compiles wrongly for lavapipe. lavapipe stops a unit's loops after 65,535 rounds, all of its loops counted
//! together, and does not say so: of filters over a hundred samples wide its sums are cut short. It is for tests.
//!
//! At run time CUDA needs NVIDIA's driver, its compiler NVRTC, and the environment variable `CUDA_PATH`
//! unless a CUDA toolkit is installed: CubeCL passes a folder of headers to NVRTC with every kernel. If one
//! of them is missing, [`devices`] and `Gpu::open` say what to install for the installed driver.

#[cfg(feature = "kernels")]
mod batch;
#[cfg(feature = "cuda")]
mod capture;
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
mod launch;
#[cfg(feature = "kernels")]
mod layout;
#[cfg(feature = "cuda")]
mod lend;
#[cfg(feature = "kernels")]
mod loader;
#[cfg(feature = "kernels")]
mod packed;
#[cfg(feature = "kernels")]
mod prepare;
#[cfg(feature = "kernels")]
mod probe;
#[cfg(feature = "kernels")]
mod queue;
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
#[cfg(feature = "cuda")]
pub use lend::{ConsumerStream, CudaMemory, LentMemory, lend_warnings};
#[cfg(feature = "kernels")]
pub use loader::GpuMaker;
#[cfg(feature = "kernels")]
pub use prepare::{Prepared, Preparer};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
