//! The device that tests run on.

use crate::{Backend, DeviceName, Gpu, devices_of};

/// CUDA if that is compiled in, else Vulkan.
const TESTED: Backend = match cfg!(feature = "cuda") {
    true => Backend::Cuda,
    false => Backend::Vulkan,
};

/// The first device; `None`, with a message, if there is none.
pub(crate) fn gpu() -> Option<Gpu> {
    if let Some(problem) = devices_of(TESTED).problem {
        stokehold_untested::skip(problem);
        return None;
    }
    let name = DeviceName {
        backend: TESTED,
        index: 0,
    };
    Some(Gpu::open(name).expect("a device that was listed"))
}
