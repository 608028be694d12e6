//! The compiled part of the Python package `stokehold`.
//!
//! ```text
//!  stokehold (Python: names, signatures, torch and NumPy)
//!      └── stokehold._stokehold (this crate: types, the GIL, signals)
//!              └── stokehold-loader, -cache, -gpu, -jpeg, -pipeline, -storage, -objects, -profile (everything else)
//! ```
//!
//! This crate makes no decisions. A class of this module wraps one value of the crates below and converts
//! their errors to exceptions; users import Python code, which they can read and which has the docstrings.
//! Five promises are kept here, because only here both sides are known:
//!
//! * **The GIL is free during every wait**: for a batch, for a folder to be listed, for threads to end.
//! * **Ctrl-C works while waiting for a batch**: the wait checks for it 20 times a second ([`loader`]).
//! * **A batch's memory belongs to Python until Python releases it**: the loader gets it back from the
//!   deleter of the DLPack capsule, or of the last of them ([`memory`], the one module with `unsafe`).
//! * **A CUDA device's batch stays there**: Python gets its address, and the loader gets the memory back when the
//!   consumer's stream is done with it (features `cuda` and `vulkan`: the executor `gpu`).
//! * **A fork raises an exception and does not hang**: only the process that made a loader may use it.

mod batch;
mod epochs;
mod errors;
mod image_cache;
mod images;
mod loader;
mod memory;
mod pipeline;
mod profile;
mod source;

use pyo3::prelude::*;

/// The compiled part of `stokehold`; import that instead.
// Nothing here is known to need the GIL: classes are frozen, and mutable state is behind a mutex. But no test
// has run without it yet.
#[pymodule(gil_used = true)]
mod _stokehold {
    #[pymodule_export]
    use super::image_cache::{ImageCache, key_of_file};
    #[pymodule_export]
    use super::images::{Jpeg, fetch};
    #[pymodule_export]
    use super::loader::{Given, Iteration, Loader};
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::pipeline::Pipeline;
    #[pymodule_export]
    use super::profile::Recording;
    #[pymodule_export]
    use super::source::Source;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        stokehold_objects::register(super::source::leave_out);
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
