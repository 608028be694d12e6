//! A stand-in for NVIDIA's CUDA driver that runs on the CPU, for tests on machines without a GPU.
//!
//! ```text
//!  a program that uses CUDA ──► cudarc, CubeCL ──► NVRTC (NVIDIA's own) ──► PTX
//!                                                                            │ cuModuleLoadData
//!  this library, called libcuda.so                                           ▼
//!    driver    the entry points       ◄── a module ◄── translate ◄── ptx: the parser
//!    memory    buffers between guard pages             to the CPU's instructions, by Cranelift
//!    block     a launch: blocks, one after the other on each worker thread; threads, which stop at
//!              barriers and at operations of their warp
//! ```
//!
//! The program under test is not changed. It loads the library under the driver's name, so every part of its
//! way to a GPU but the driver and the GPU is the real one: device queries, compiler options, PTX,
//! parameters, launches, copies, errors.
//!
//! # What it shows
//!
//! - **Results**: what the PTX computes. Registers hold bits, integers wrap, every floating-point operation is
//!   rounded as the instruction says. What the parser or the translator does not know (an instruction, a
//!   modifier, a directive) makes the module invalid, with an error that names it; nothing is guessed.
//! - **Cooperation of threads**: shared memory, barriers, and the operations of warps. Threads that wait for
//!   each other for ever are an error.
//! - **Access to memory that is not there**: new memory of up to 256 MiB is filled with `0xA5`, pages that cannot be
//!   touched lie before and behind each allocation, shared memory is filled again for each block and every access to it
//!   by its own name is checked, and every access must be aligned, as on a GPU.
//! - **Graphs of others**: while a stream is captured, calls that CUDA may refuse then are refused, and the capture is lost.
//!   Events can be captured; launches in a captured stream are refused.
//! - **Failures on request**: a full memory, a module that is refused, a launch that breaks the device.
//!
//! # What it cannot show
//!
//! - Buffers that a program cuts out of one allocation, as CubeCL does: there are no guards between them, and one that is
//!   used again holds what was in it. Up to 255 bytes behind an allocation can be written, too, for it ends at a multiple of 256.
//! - Which functions a driver has: CUDA 12.0 had all that are here, whatever `CUDA_ON_CPU_DRIVER` says, which is only about PTX.
//! - Addresses of the host's own memory, or of another device's: they are memory of this process, too, and are read and written.
//! - An access to a page that is not there ends the program by SIGSEGV, not with an error of CUDA.
//! - A thread that spins until another one writes: it never stops, and the test hangs.
//! - What the driver makes of PTX (SASS), its register use and its mistakes.
//! - Concurrency of threads in a block, or a GPU's weak memory: the threads of a block take turns.
//! - Asynchronous streams: all work is done before the call that asks for it returns.
//! - Speed.
//! - Blocks that wait for each other: a block runs to its end before the next one of its worker begins, so a
//!   kernel in which one spins until another writes does not end.
//! - Accesses outside of local memory, which is not checked.
//! - The bits of what is no number: a GPU gives one and the same.
//! - The exact results of the `.approx` instructions: they are computed more precisely than a GPU does.
//! - What is only on some GPUs: tensor cores, asynchronous copies, clusters. Their instructions are unknown.
//!
//! # Settings
//!
//! Environment variables, read when the driver is initialised. A value that means nothing makes `cuInit` fail.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `CUDA_ON_CPU_SM` | `80` | the compute capability of each device, e.g. `80,90` for two |
//! | `CUDA_ON_CPU_DRIVER` | `12.8` | the CUDA version of the driver; it refuses PTX that is newer |
//! | `CUDA_ON_CPU_ORDER` | `forward` | the order of blocks and of threads: `forward`, `reverse`, `shuffled` |
//! | `CUDA_ON_CPU_WORKERS` | `2` | how many threads of the CPU run blocks, 1 to 256 |
//! | `CUDA_ON_CPU_MEMORY` | `8589934592` | the memory of each device, in bytes |
//! | `CUDA_ON_CPU_LIMIT` | the memory | how much of it can be allocated, as if others used the rest |
//! | `CUDA_ON_CPU_REFUSE` | `0` | the number of the module that is refused, from 1 |
//! | `CUDA_ON_CPU_FAULT` | `0` | the number of the launch that breaks its device, from 1 |
//! | `CUDA_ON_CPU_PENDING` | `0` | how often a recorded event says that it has not come, as if work lay before it; it has after `cuEventSynchronize` and `cuCtxSynchronize` |
//! | `CUDA_ON_CPU_PTX` | none | a folder in which every PTX that is loaded is kept |
//!
//! # How the library is named
//!
//! A program finds the driver as `libcuda.so` in a folder of `LD_LIBRARY_PATH`, so a test copies this library
//! to such a name; `.ci/cuda` does. Do not call it `libcuda.so.1`: NVRTC 13 loads that itself, and needs what
//! is not here.

mod block;
mod driver;
mod memory;
mod ptx;
mod settings;
mod translate;
