//! The requirements of CubeCL's CUDA backend, and what to install if one is missing.
//!
//! CubeCL looks for them when it compiles its first kernel, in a thread of the device, and panics there. So
//! they are checked here first.

#[cfg(feature = "cuda")]
use crate::client::library;

/// The names by which cudarc, which CubeCL uses, loads NVRTC here: with the interface of CUDA 12 it knows none of CUDA 13's.
#[cfg(feature = "cuda")]
const NVRTC: [&str; 2] = ["libnvrtc.so", "libnvrtc.so.12"];

/// The CUDA version of a driver: 12 and 8 for 12.8.
#[derive(Clone, Copy)]
struct Version {
    major: i32,
    minor: i32,
}

/// Checks for the driver, NVRTC, and a folder of headers; the error says what to do.
#[cfg(feature = "cuda")]
pub(crate) fn require() -> Result<(), String> {
    driver().ok_or("libcuda.so.1 was not found; install NVIDIA's driver")?;
    library(&NVRTC).ok_or_else(|| {
        format!(
            "libnvrtc.so was not found; kernels are compiled with it: {}",
            advice()
        )
    })?;
    if let Some(path) = std::env::var_os("CUDA_PATH").filter(|path| !std::path::Path::new(path).is_dir()) {
        return Err(format!(
            "CUDA_PATH is {}, and no such folder can be read: {}",
            std::path::Path::new(&path).display(),
            advice()
        ));
    }
    // It passes a folder of headers to NVRTC even if a kernel needs none.
    cubecl::cuda::install::cuda_path().ok_or_else(|| {
        format!(
            "no CUDA toolkit was found, and CUDA_PATH is not set; CubeCL compiles no kernel without: install the toolkit, or {}",
            advice()
        )
    })?;
    Ok(())
}

/// What to install for the installed driver, and what is loaded now.
#[cfg(feature = "cuda")]
pub(crate) fn advice() -> String {
    let advice = install(driver().and_then(|driver| version(&driver)));
    match loaded() {
        Some(loaded) => format!("{advice}; {loaded}"),
        None => advice,
    }
}

/// The NVRTC that this process has loaded, and why it may not be the one that the variables name.
#[cfg(feature = "cuda")]
fn loaded() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains("/libnvrtc.so").then(|| path.to_owned())
    })?;
    Some(format!(
        "this process has loaded {path} and keeps it; where it is torch's, open the device before you import torch"
    ))
}

#[cfg(feature = "cuda")]
fn driver() -> Option<libloading::Library> {
    library(&["libcuda.so.1", "libcuda.so"])
}

#[cfg(feature = "cuda")]
fn version(driver: &libloading::Library) -> Option<Version> {
    let mut version = 0;
    // SAFETY: this is the declaration in the driver's header; the function writes the number, and needs no
    // call before.
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
/// would reject its code. A driver of CUDA 13 takes the code of NVRTC 12. The packages get a folder of their own, because PyTorch has
/// them too, in the versions that it needs.
fn install(driver: Option<Version>) -> String {
    let Version { major, minor } = driver.unwrap_or(Version { major: 12, minor: 0 });
    if major < 12 {
        return format!(
            "install a driver of CUDA 12 or newer, 525.60 at least: this one is of CUDA {major}.{minor}, and the NVRTC that is \
             loaded here is 12, which must not be newer than the driver"
        );
    }
    let packages = match major {
        12 => {
            let below = minor + 1;
            format!("'nvidia-cuda-nvrtc-cu12<12.{below}' 'nvidia-cuda-runtime-cu12<12.{below}'")
        }
        _ => "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12".to_owned(),
    };
    let driver = match driver {
        Some(_) => format!("this driver is of CUDA {major}.{minor}"),
        None => "the driver does not say of which CUDA it is".to_owned(),
    };
    format!(
        "pip install --target nvrtc {packages}, then put $PWD/nvrtc/nvidia/cuda_nvrtc/lib into LD_LIBRARY_PATH and set CUDA_PATH to \
         $PWD/nvrtc/nvidia/cuda_runtime ({driver}, and NVRTC must be of CUDA 12 and not newer)"
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
            "pip install --target nvrtc 'nvidia-cuda-nvrtc-cu12<12.5' 'nvidia-cuda-runtime-cu12<12.5', then put \
             $PWD/nvrtc/nvidia/cuda_nvrtc/lib into LD_LIBRARY_PATH and set CUDA_PATH to $PWD/nvrtc/nvidia/cuda_runtime (this driver is \
             of CUDA 12.4, and NVRTC must be of CUDA 12 and not newer)"
        );
        let new = at(13, 0);
        assert!(
            new.contains("nvrtc nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12,"),
            "{new}"
        );
        let old = at(11, 8);
        assert!(
            old.contains("525.60") && old.contains("CUDA 11.8") && !old.contains("pip"),
            "{old}"
        );
        let unknown = install(None);
        assert!(unknown.contains("nvidia-cuda-nvrtc-cu12"), "{unknown}");
    }
}
