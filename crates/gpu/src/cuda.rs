//! What CubeCL's way to CUDA needs of a machine, and what to install where that is missing.
//!
//! CubeCL looks for it when it compiles its first kernel, in a thread of the device's, and panics there. So it is looked for
//! here, before.

#[cfg(feature = "cuda")]
use crate::client::library;

/// What cudarc, which CubeCL calls NVRTC through, loads it as.
#[cfg(feature = "cuda")]
const NVRTC: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];

/// The version of CUDA that a driver is made for: 12 and 8 of 12.8.
#[derive(Clone, Copy)]
struct Version {
    major: i32,
    minor: i32,
}

/// Whether the driver, NVRTC, and a folder of headers are there; if not, what to do.
#[cfg(feature = "cuda")]
pub(crate) fn require() -> Result<(), String> {
    driver().ok_or("libcuda.so.1 was not found; install NVIDIA's driver")?;
    library(&NVRTC).ok_or_else(|| {
        format!(
            "libnvrtc.so was not found; kernels are compiled with it: {}",
            advice()
        )
    })?;
    // It gives NVRTC a folder of headers whether a kernel needs one or not.
    cubecl::cuda::install::cuda_path().ok_or_else(|| {
        format!(
            "no CUDA toolkit was found, and CUDA_PATH is not set; CubeCL compiles no kernel without: install the toolkit, or {}",
            advice()
        )
    })?;
    Ok(())
}

/// What to install for the driver that is there.
#[cfg(feature = "cuda")]
pub(crate) fn advice() -> String {
    install(driver().and_then(|driver| version(&driver)))
}

#[cfg(feature = "cuda")]
fn driver() -> Option<libloading::Library> {
    library(&["libcuda.so.1", "libcuda.so"])
}

#[cfg(feature = "cuda")]
fn version(driver: &libloading::Library) -> Option<Version> {
    let mut version = 0;
    // SAFETY: the driver's header declares it so; it writes the number, and needs no call before.
    let status = unsafe {
        let get = driver.get::<unsafe extern "C" fn(*mut i32) -> i32>("cuDriverGetVersion");
        get.ok()?(&mut version)
    };
    (status == 0).then_some(Version {
        major: version / 1000,
        minor: version % 1000 / 10,
    })
}

/// What to install for a driver, and where its loader and CubeCL look for it. NVRTC must not be newer than the driver, which
/// would not take its code; that of 13 makes none for GPUs before Turing.
fn install(driver: Option<Version>) -> String {
    let Version { major, minor } = driver.unwrap_or(Version { major: 12, minor: 0 });
    let below = minor + 1;
    let (packages, libraries, headers) = match major {
        13.. => (
            format!("'nvidia-cuda-nvrtc<{major}.{below}' 'nvidia-cuda-runtime<{major}.{below}'"),
            format!("nvidia/cu{major}/lib"),
            format!("nvidia/cu{major}"),
        ),
        _ => (
            format!(
                "'nvidia-cuda-nvrtc-cu{major}<{major}.{below}' 'nvidia-cuda-runtime-cu{major}<{major}.{below}'"
            ),
            "nvidia/cuda_nvrtc/lib".to_owned(),
            "nvidia/cuda_runtime".to_owned(),
        ),
    };
    let old = match major {
        13.. => {
            " (for a GPU older than Turing, such as V100, nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12)"
        }
        _ => "",
    };
    let driver = match driver {
        Some(_) => format!("this driver is of CUDA {major}.{minor}"),
        None => "the driver does not say of which CUDA it is".to_owned(),
    };
    format!(
        "pip install {packages}{old}, put its folder {libraries} into LD_LIBRARY_PATH and set CUDA_PATH to its folder \
         {headers} ({driver}, and NVRTC must not be newer)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_install_fits_the_driver() {
        let at = |major, minor| install(Some(Version { major, minor }));
        assert_eq!(
            at(12, 4),
            "pip install 'nvidia-cuda-nvrtc-cu12<12.5' 'nvidia-cuda-runtime-cu12<12.5', put its folder \
             nvidia/cuda_nvrtc/lib into LD_LIBRARY_PATH and set CUDA_PATH to its folder nvidia/cuda_runtime (this driver is \
             of CUDA 12.4, and NVRTC must not be newer)"
        );
        let new = at(13, 0);
        assert!(new.contains("'nvidia-cuda-nvrtc<13.1'"), "{new}");
        assert!(new.contains("V100, nvidia-cuda-nvrtc-cu12"), "{new}");
        assert!(new.contains("nvidia/cu13/lib"), "{new}");
        let unknown = install(None);
        assert!(unknown.contains("nvidia-cuda-nvrtc-cu12"), "{unknown}");
    }
}
