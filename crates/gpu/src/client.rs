//! An open device.

use crate::kernels::colour;
use crate::probe::probe;
use crate::queue::{Buffer, answered, queue, queued, read};
use crate::{Backend, Device, DeviceName, GpuError};
use cubecl::MemoryScope;
use cubecl::bytes::Bytes;
use cubecl::prelude::*;
use cubecl::server::{MemoryLayoutDescriptor, MemoryLayoutStrategy, ServerError};
use std::fmt;
use std::process;
use std::sync::{Arc, OnceLock};

/// An open device, with the tables that every batch needs. Cheap to clone; the loaders of a process share its
/// memory for batches.
#[derive(Clone)]
pub struct Gpu {
    pub(crate) client: Client,
    pub(crate) tables: Arc<Tables>,
    device: cubecl::Device,
    name: DeviceName,
    description: String,
}

/// Tables that stay on the device.
pub(crate) struct Tables {
    pub zigzag: Buffer,
    pub hues: Buffer,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.name).finish()
    }
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] if the device does not exist, lacks what the kernels need, or fails to run a
    /// small one.
    pub fn open(name: DeviceName) -> Result<Gpu, GpuError> {
        let unavailable = |reason: String| GpuError::Unavailable {
            backend: name.backend,
            reason,
        };
        if !name.backend.is_compiled() {
            let feature = name.backend;
            return Err(unavailable(format!(
                "compiled without it; build with --features {feature}"
            )));
        }
        let mut found = list(name.backend).map_err(unavailable)?;
        if name.index >= found.len() {
            let count = found.len();
            return Err(unavailable(format!(
                "there is no device {}; {count} can be used (stokehold devices lists them)",
                name.index
            )));
        }
        let (device, _) = found.swap_remove(name.index);
        let description = name_of(&device).map_err(unavailable)?;
        Gpu::on(device, description, name).map_err(unavailable)
    }

    /// Opens a device that Burn, or another user of CubeCL, has opened already: its batches can be used in
    /// place. A Vulkan device is named as the first one, whichever it is.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] if it lacks what the kernels need, or fails to run a small one.
    pub fn on_device(device: &cubecl::Device) -> Result<Gpu, GpuError> {
        let name = match device {
            #[cfg(feature = "cuda")]
            cubecl::Device::Cuda(device) => DeviceName {
                backend: Backend::Cuda,
                index: device.index,
            },
            _ => DeviceName {
                backend: Backend::Vulkan,
                index: 0,
            },
        };
        let unavailable = |reason: String| GpuError::Unavailable {
            backend: name.backend,
            reason,
        };
        check_process().map_err(unavailable)?;
        #[cfg(feature = "cuda")]
        if name.backend == Backend::Cuda {
            crate::cuda::require().map_err(unavailable)?;
        }
        let description = name_of(device).map_err(unavailable)?;
        Gpu::on(device.clone(), description, name).map_err(unavailable)
    }

    fn on(device: cubecl::Device, description: String, name: DeviceName) -> Result<Gpu, String> {
        let client = device.client();
        let missing: Vec<&str> = [
            ("8-bit", u8::elem_type_native()),
            ("16-bit", i16::elem_type_native()),
            ("64-bit", i64::elem_type_native()),
        ]
        .into_iter()
        .filter(|(_, ty)| !client.properties().supports_type(*ty))
        .map(|(name, _)| name)
        .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(format!(
                "{description} has no {missing} integers, which the kernels need; update its driver or use another device"
            ));
        }
        #[cfg(feature = "cuda")]
        if name.backend == Backend::Cuda {
            let relax = || {
                crate::capture::relax_for_good();
                Ok(())
            };
            queue().executes(|| queued(&client, relax))?;
        }
        queue().executes(|| probe(&client)).map_err(|reason| {
            let advice = match name.backend {
                // CubeCL's words; it allocates some MiB for the first buffer.
                _ if reason.contains("out of device memory") => {
                    "others use its memory: end them or use another device".to_owned()
                }
                #[cfg(feature = "cuda")]
                Backend::Cuda => crate::cuda::advice(),
                _ => "update its driver or use another device".to_owned(),
            };
            format!("{description} does not run the smallest kernel: {reason}; {advice}")
        })?;
        let hues = colour::colours();
        let zigzag = stokehold_jpeg::ZIGZAG.map(u32::from);
        let upload = || {
            Ok(Tables {
                zigzag: Buffer {
                    handle: client.create_from_slice(u32::as_bytes(&zigzag)),
                    len: zigzag.len(),
                },
                hues: Buffer {
                    len: hues.len(),
                    handle: client.create_from_slice(&hues),
                },
            })
        };
        let tables = queue().executes(|| queued(&client, upload))?;
        Ok(Gpu {
            client,
            tables: Arc::new(tables),
            device,
            name,
            description,
        })
    }

    /// The name that it was opened by.
    pub fn name(&self) -> DeviceName {
        self.name
    }

    /// The driver's name for it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The device as CubeCL, and so Burn, identifies it.
    pub fn device(&self) -> &cubecl::Device {
        &self.device
    }

    /// The default memory for batches in bytes: an eighth of the memory of a CUDA device, and at least 1 GiB.
    pub fn default_budget(&self) -> u64 {
        // With CUDA, CubeCL allocates at most a quarter of the memory in one piece; Vulkan does not report
        // the total.
        (self.largest_buffer() / 2).max(1 << 30)
    }

    /// Device memory in bytes that loaders hold for batches, in use or free for reuse.
    pub fn reserved(&self) -> u64 {
        let report = || self.client.memory_report(MemoryScope::CurrentStream);
        queue().executes(report).usage().bytes_reserved
    }

    /// Uploads words. Takes ownership, because CubeCL would copy borrowed ones.
    pub(crate) fn create(&self, mut words: Vec<u32>) -> Buffer {
        if words.is_empty() {
            words.push(0); // a kernel's argument is never empty
        }
        Buffer {
            len: words.len(),
            handle: self.client.create(Bytes::from_elems(words)),
        }
    }

    /// The largest size of a buffer, bytes.
    pub(crate) fn largest_buffer(&self) -> u64 {
        self.client.properties().memory.max_page_size
    }

    /// Memory for `len` numbers of `size` bytes, not initialised.
    pub(crate) fn empty(&self, len: usize, size: usize) -> Buffer {
        let len = len.max(1);
        Buffer {
            handle: self.client.empty(len * size),
            len,
        }
    }

    /// Memory for several buffers of words, in one allocation.
    pub(crate) fn empties<const N: usize>(&self, lens: [usize; N]) -> [Buffer; N] {
        let lens = lens.map(|len| len.max(1));
        let layout = |len: usize| {
            MemoryLayoutDescriptor::new(MemoryLayoutStrategy::Contiguous, [len].into(), size_of::<u32>())
        };
        let layouts = lens.iter().map(|&len| layout(len)).collect();
        let mut memory = self.client.empty_tensors(layouts).into_iter();
        lens.map(|len| Buffer {
            handle: memory.next().expect("a handle for each layout").memory,
            len,
        })
    }

    /// Checks that all launches that write a buffer were possible; the error is the device's. Call it after
    /// every launch: CubeCL keeps an error with the buffer, and forgets it when another launch writes to it.
    pub(crate) fn check(&self, buffer: &Buffer) -> Result<(), ServerError> {
        self.client.check([&buffer.handle])
    }

    /// Waits until all that this thread has queued is done and the buffer is complete; the error is the
    /// device's. CubeCL reports a failed allocation or launch only for a given buffer.
    pub(crate) fn wait(&self, buffer: &Buffer) -> Result<(), String> {
        answered(|| cubecl::future::block_on(self.client.sync_buffers([&buffer.handle])))
    }

    /// Waits for a buffer and copies it; the error is the device's.
    pub(crate) fn read(&self, buffer: &Buffer) -> Result<Vec<u8>, String> {
        read(&self.client, buffer)
    }

    pub(crate) fn failed(&self, reason: impl Into<String>) -> GpuError {
        GpuError::Device {
            device: self.name.to_string(),
            reason: reason.into(),
        }
    }
}

pub(crate) fn find(backend: Backend) -> Result<Vec<Device>, String> {
    let found = list(backend)?.into_iter().enumerate();
    let found = found.map(|(index, (device, is_cpu))| Device {
        name: DeviceName { backend, index },
        // One that is broken, or taken by others, does not keep the others from being used.
        description: name_of(&device).unwrap_or_else(|reason| format!("cannot be used: {reason}")),
        is_cpu,
    });
    Ok(found.collect())
}

/// A device, and whether it is a CPU.
type ListedDevice = (cubecl::Device, bool);

fn list(backend: Backend) -> Result<Vec<ListedDevice>, String> {
    check_process()?;
    match backend {
        Backend::Cuda => cuda(),
        Backend::Vulkan => vulkan(),
    }
}

/// Fails in a fork of the process that used devices first: CubeCL's threads are not in it, and calls would wait for
/// them for ever.
fn check_process() -> Result<(), String> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let first = *FIRST.get_or_init(process::id);
    match first == process::id() {
        true => Ok(()),
        false => Err(format!(
            "process {first} has used devices, and a process that was forked from it cannot; start processes by spawn, or \
             fork before any device is used"
        )),
    }
}

/// Loads a library by the first of its names that can be loaded.
pub(crate) fn library(names: &[&str]) -> Option<libloading::Library> {
    names.iter().find_map(|name| {
        // SAFETY: these are the system's driver libraries, whose initialisers run in every program that uses
        // them.
        unsafe { libloading::Library::new(*name) }.ok()
    })
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Vec<ListedDevice>, String> {
    crate::cuda::require()?;
    let all = cubecl::Device::enumerate_all();
    let cuda = |device: &cubecl::Device| matches!(device, cubecl::Device::Cuda(_));
    Ok(all
        .into_iter()
        .filter(cuda)
        .map(|device| (device, false))
        .collect())
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Vec<ListedDevice>, String> {
    Ok(Vec::new())
}

#[cfg(feature = "vulkan")]
fn vulkan() -> Result<Vec<ListedDevice>, String> {
    use cubecl::device::WgpuBackend;
    library(&["libvulkan.so.1", "libvulkan.so"]).ok_or(
        "libvulkan.so.1 was not found; install a Vulkan driver (on Debian without a GPU: mesa-vulkan-drivers libvulkan1)",
    )?;
    let mut found = Vec::new();
    for device in cubecl::Device::enumerate_all() {
        let cubecl::Device::Wgpu(_) = &device else {
            continue;
        };
        let is_cpu = is_cpu(&device);
        if let Ok(device) = device.on(WgpuBackend::Vulkan) {
            found.push((device, is_cpu));
        }
    }
    Ok(found)
}

/// Whether a device computes on the CPU, such as Mesa's lavapipe.
#[cfg(feature = "vulkan")]
pub fn is_cpu(device: &cubecl::Device) -> bool {
    use cubecl::device::WgpuDeviceKind;
    matches!(device, cubecl::Device::Wgpu(wgpu) if wgpu.kind == WgpuDeviceKind::Cpu)
}

#[cfg(not(feature = "vulkan"))]
fn vulkan() -> Result<Vec<ListedDevice>, String> {
    Ok(Vec::new())
}

/// The driver's name for a device. This opens it, which takes some of its memory.
fn name_of(device: &cubecl::Device) -> Result<String, String> {
    answered(|| Ok::<_, String>(device.client().properties().identity.name.clone()))
}

#[cfg(test)]
mod tests;
