//! The operations on an image.

use std::path::PathBuf;

use pyo3::prelude::*;
use stokehold_pipeline::{DrawKey, Pipeline as Operations};

use crate::errors::{OptionError, Raise};

/// A checked list of operations.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Pipeline {
    pub(crate) operations: Operations,
    size: Option<(u32, u32)>,
}

impl Pipeline {
    fn of(operations: Operations) -> PyResult<Self> {
        let size = operations.check_before_images().raise()?;
        Ok(Self { operations, size })
    }
}

#[pymethods]
impl Pipeline {
    /// Operations as JSON: `{"op": [{"type": ..}, ..]}`.
    #[new]
    fn new(json: &str) -> PyResult<Self> {
        Self::of(Operations::from_json(json).raise()?)
    }

    /// A preset by its name, or a TOML or JSON file.
    #[staticmethod]
    fn named(name: PathBuf) -> PyResult<Self> {
        let name = name.to_str().ok_or_else(|| {
            OptionError::new_err(format!("pipeline {}: this path is not Unicode", name.display()))
        })?;
        Self::of(Operations::named(name).raise()?)
    }

    /// The operations as JSON.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.operations).map_err(|error| OptionError::new_err(error.to_string()))
    }

    /// Height and width of every output image; none if it depends on the images.
    #[getter]
    fn size(&self) -> Option<(u32, u32)> {
        self.size.map(|(width, height)| (height, width))
    }

    /// The steps of one sample with all random values, as JSON.
    fn draw(&self, seed: u64, epoch: u64, sample: u64, width: u32, height: u32) -> PyResult<String> {
        if width == 0 || height == 0 {
            return Err(OptionError::new_err(format!(
                "an image of {width}x{height} pixels: width and height are at least 1"
            )));
        }
        let key = DrawKey { seed, epoch, sample };
        let steps = self.operations.draw(key, width, height).raise()?;
        serde_json::to_string(&steps).map_err(|error| OptionError::new_err(error.to_string()))
    }
}
