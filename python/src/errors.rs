//! Converts errors of the crates to the exceptions of `stokehold.errors`.

use pyo3::PyErr;
use stokehold_base::shell::plain;
use stokehold_cache::CacheError;
use stokehold_gpu::GpuError;
use stokehold_loader::{AddressError, LoaderError};
use stokehold_pipeline::{ImageError, PipelineError};
use stokehold_remote::RemoteError;
use stokehold_storage::StorageError;

mod exceptions {
    use pyo3::import_exception;
    import_exception!(stokehold.errors, DataError);
    import_exception!(stokehold.errors, OptionError);
    import_exception!(stokehold.errors, StokeholdError);
    import_exception!(stokehold.errors, UsageError);
}

pub(crate) use exceptions::{DataError, OptionError, StokeholdError, UsageError};

/// An error in words. Names of files may have characters that would control the terminal that shows it.
fn said(error: &impl std::fmt::Display) -> String {
    plain(&error.to_string())
}

/// Replaces `?`, which needs an error or an exception of this crate.
pub(crate) trait Raise<T> {
    /// The value, or the exception for the error.
    fn raise(self) -> Result<T, PyErr>;
}

impl<T> Raise<T> for Result<T, LoaderError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| {
            let text = said(&error);
            match error {
                LoaderError::Options { .. }
                | LoaderError::Empty
                | LoaderError::NoFullBatch { .. }
                | LoaderError::State { .. }
                | LoaderError::Pipeline(_) => OptionError::new_err(text),
                LoaderError::BadImage(_)
                | LoaderError::TooManyBadImages { .. }
                | LoaderError::NoSubstitute(_)
                | LoaderError::AllBad { .. } => DataError::new_err(text),
                LoaderError::Forked { .. } => UsageError::new_err(text),
                LoaderError::Device(error) if error.is_input() => OptionError::new_err(in_python(&error)),
                LoaderError::Device(error) => StokeholdError::new_err(in_python(&error)),
                _ => StokeholdError::new_err(text),
            }
        })
    }
}

impl<T> Raise<T> for Result<T, GpuError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(LoaderError::from).raise()
    }
}

/// An error in which the command line's options are arguments.
fn in_python(error: &impl std::fmt::Display) -> String {
    said(error)
        .replace("--gpu-memory-budget", "gpu_memory_budget")
        .replace("--batch-size", "batch_size")
        .replace(
            "build with --features",
            "build the wheel with python/build --features",
        )
}

impl<T> Raise<T> for Result<T, CacheError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| OptionError::new_err(said(&error)))
    }
}

impl<T> Raise<T> for Result<T, PipelineError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| match error {
            PipelineError::Read { .. } => DataError::new_err(said(&error)),
            _ => OptionError::new_err(said(&error)),
        })
    }
}

impl<T> Raise<T> for Result<T, AddressError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| OptionError::new_err(said(&error)))
    }
}

impl<T> Raise<T> for Result<T, RemoteError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| match error {
            RemoteError::Address(_) | RemoteError::Token => OptionError::new_err(said(&error)),
            _ => StokeholdError::new_err(said(&error)),
        })
    }
}

impl<T> Raise<T> for Result<T, StorageError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| DataError::new_err(said(&error)))
    }
}

impl<T> Raise<T> for Result<T, ImageError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| OptionError::new_err(said(&error)))
    }
}
