//! The source of images.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::types::PyString;
use stokehold_remote::{DataPart, DatasetSplit};
use stokehold_storage::{Dataset, ImageList, Images, Source as _};

use crate::errors::{DataError, OptionError, Raise};
use crate::memory::Memory;

/// What lists of buckets left out, until there is a caller to warn.
static LEFT_OUT: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn left_out() -> MutexGuard<'static, Vec<String>> {
    LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what a list left out.
pub(crate) fn leave_out(text: &str) {
    left_out().push(text.to_owned());
}

/// Labelled images, numbered from 0.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Source {
    pub(crate) images: Arc<dyn stokehold_storage::Source>,
    /// What servers call them; none of a list, which they do not have.
    pub(crate) part: Option<DataPart>,
    /// Names of the classes, or of the classes of pixels, if they have names.
    #[pyo3(get)]
    classes: Option<Vec<String>>,
    /// What the data set's owner may not know, a sentence for each.
    #[pyo3(get)]
    remarks: Vec<String>,
}

#[pymethods]
impl Source {
    /// A folder, shards, or either in a bucket; `split` is "train" or "val".
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, split: &str) -> PyResult<Self> {
        let opened = py.detach(|| Dataset::open(&path, None, 0));
        for text in std::mem::take(&mut *left_out()) {
            let text = CString::new(text)?;
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
        }
        let dataset = opened.raise()?;
        let remarks = dataset.remarks();
        let (images, part): (Images, _) = match split {
            "train" => (dataset.train, DatasetSplit::Train),
            "val" => {
                let images = dataset.val.ok_or_else(|| {
                    DataError::new_err(format!(
                        "{}: it has no val/ beside train/; give a folder that has, or split=\"train\"",
                        path.display()
                    ))
                })?;
                (images, DatasetSplit::Val)
            }
            _ => {
                return Err(OptionError::new_err(format!(
                    "split={split:?}: there are \"train\" and \"val\""
                )));
            }
        };
        Ok(Self {
            classes: Some(match images.pixel_classes() {
                Some(of_pixels) => of_pixels.names.clone(),
                None => images.classes().to_vec(),
            }),
            part: Some(DataPart::of(&images, part)),
            images: Arc::new(images),
            remarks,
        })
    }

    /// Pairs of a path and a label, from any iterable.
    #[staticmethod]
    fn listed(pairs: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut list = ImageList::default();
        for pair in pairs.try_iter()? {
            let pair = pair?;
            let (path, label) = pair
                .extract::<(PathBuf, i64)>()
                .map_err(|error| no_pair(&pair, list.len(), &error))?;
            let class = u32::try_from(label).map_err(|_| {
                OptionError::new_err(format!(
                    "data[{}]: label {label} of {}; labels are 0 to {}",
                    list.len(),
                    path.display(),
                    u32::MAX
                ))
            })?;
            list.push(&path, class);
        }
        Ok(Self {
            images: Arc::new(list),
            part: None,
            classes: None,
            remarks: Vec::new(),
        })
    }

    fn __len__(&self) -> usize {
        self.images.len()
    }

    /// The path of a sample.
    fn name(&self, sample: usize) -> PyResult<String> {
        self.check(sample)?;
        Ok(self.images.name(sample))
    }

    /// The labels of all samples, int64.
    fn labels(&self, py: Python<'_>) -> Memory {
        let images = &self.images;
        Memory::of_list(py.detach(|| {
            (0..images.len())
                .map(|sample| i64::from(images.class(sample)))
                .collect()
        }))
    }
}

/// Why an entry of a list is no pair of a path and a label, and what to do.
fn no_pair(pair: &Bound<'_, PyAny>, number: usize, error: &PyErr) -> PyErr {
    let reason = match pair.extract::<(PathBuf, Bound<'_, PyAny>)>() {
        Ok((_, label)) if label.is_instance_of::<PyString>() => format!(
            "label {label:?} is text, and labels are whole numbers; number the classes, such as {{'cat': 0, 'dog': 1}}"
        ),
        Ok((_, label)) => format!(
            "label {label:?} is no whole number; keep such targets in a table of your own, give 0 here, and look them up by the samples' \
             numbers: for images, _, numbers in Loader(.., samples=True): targets = table[numbers]"
        ),
        Err(_) => format!(
            "{}; a list of images holds pairs of a path and a label",
            error.value(pair.py())
        ),
    };
    OptionError::new_err(format!("data[{number}]: {reason}"))
}

impl Source {
    fn check(&self, sample: usize) -> PyResult<()> {
        let len = self.images.len();
        if sample < len {
            return Ok(());
        }
        Err(pyo3::exceptions::PyIndexError::new_err(format!(
            "sample {sample}: there are {len}, numbered from 0 on"
        )))
    }
}
