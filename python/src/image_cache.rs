//! The image cache of `stokehold.pillow`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stokehold_cache::{Cache, CachePlace, share_of_environment};
use stokehold_storage::SampleBytes;

use crate::errors::Raise;
use crate::images::{Jpeg, scale_by};

/// The cache that the environment names, for one process.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct ImageCache(Arc<Cache>);

/// The key of a file in the cache; none if it cannot be cached. The times are seconds and nanoseconds of its mtime, then of its ctime.
#[pyfunction]
pub(crate) fn key_of_file(name: OsString, inode: u64, size: i64, times: [i64; 4]) -> Option<u128> {
    let [changed, fraction, entry, its_fraction] = times;
    let numbers = [inode as i64, size, changed, fraction, entry, its_fraction];
    Cache::key_of_file(Path::new(&name).file_name()?, numbers)
}

#[pymethods]
impl ImageCache {
    /// None where the environment names none. Raises OptionError where it cannot be opened.
    #[staticmethod]
    fn open() -> PyResult<Option<Self>> {
        // With the GIL: a fork in between would leave a lock that no one gives back.
        let place = CachePlace::chosen(None, false).raise()?;
        let share = share_of_environment().raise()?;
        Ok(Cache::open_if(place.as_ref(), share).raise()?.map(Self))
    }

    /// The image of a file, drafted as a [`Jpeg`] is, if it is there.
    fn read(&self, py: Python<'_>, key: u128, scale: u32, grey: bool) -> PyResult<Option<Jpeg>> {
        let scale = scale_by(scale)?;
        Ok(py.detach(|| {
            let mut packed = SampleBytes::new();
            let read = self.0.read(key, &mut packed);
            read.then(|| Jpeg::of_packed(packed, scale, grey)).flatten()
        }))
    }

    /// Offers a file that had this key before and after it was read.
    fn offer(&self, py: Python<'_>, key: u128, file: Py<PyBytes>) {
        let file = file.as_bytes(py);
        py.detach(|| self.0.offer(key, file));
    }

    /// What users have to know, each sentence once.
    fn news(&self) -> Vec<String> {
        self.0.notices()
    }
}
