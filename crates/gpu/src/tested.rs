//! The device that tests run on, regions that they decode, and blocks to compare.

use crate::{Backend, DeviceName, Gpu, devices_of};
use proptest::prelude::*;
use stokehold_jpeg::{ComponentBlocks, Header, Region};

/// CUDA if that is compiled in, else Vulkan.
const TESTED: Backend = match cfg!(feature = "cuda") {
    true => Backend::Cuda,
    false => Backend::Vulkan,
};

/// The first device; `None`, with a message, if there is none.
pub(crate) fn gpu() -> Option<Gpu> {
    if let Some(problem) = devices_of(TESTED).problem {
        if let Some(device) = std::env::var_os("STOKEHOLD_TEST_DEVICE") {
            panic!("STOKEHOLD_TEST_DEVICE is {}: {problem}", device.display());
        }
        stokehold_untested::skip(problem);
        return None;
    }
    let name = DeviceName {
        backend: TESTED,
        index: 0,
    };
    Some(Gpu::open(name).expect("a device that was listed"))
}

/// A region of an image, of four numbers of at most 1.
pub(crate) fn part(header: &Header, [x, y, width, height]: [f64; 4]) -> Region {
    let cut = |at: f64, size: f64, whole: u32| {
        let at = (at * f64::from(whole - 1)) as u32;
        (at, 1 + (size * f64::from(whole - at - 1)) as u32)
    };
    let ((x, width), (y, height)) = (cut(x, width, header.width), cut(y, height, header.height));
    Region { x, y, width, height }
}

/// Four such numbers.
pub(crate) fn cuts() -> impl Strategy<Value = [f64; 4]> {
    [0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0]
}

/// Whole blocks; of those that become one sample, the first coefficients.
pub(crate) fn unpack(component: &ComponentBlocks<'_>) -> Vec<[i16; 64]> {
    let blocks = component.heads.iter().map(|head| {
        let (mut block, mut values) = ([0; 64], component.values[head.first as usize..].iter());
        for place in (0..64).filter(|place| head.mask >> place & 1 == 1) {
            block[place] = *values.next().expect("a value");
        }
        block
    });
    blocks.collect()
}
