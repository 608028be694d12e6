//! Named arrays, exchanged between a model, an optimiser and a file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::{Tensor, TensorData, bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use stokehold_base::whole;

use crate::device::DeviceError;

/// A named array of f32.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) data: TensorData,
}

impl Array {
    pub(crate) fn from_tensor<const D: usize>(name: String, tensor: Tensor<D>) -> Result<Self, ArraysError> {
        let data = tensor.try_into_data_as::<f32>();
        let data = data.map_err(|error| DeviceError::Failed(error.to_string()))?;
        Ok(Self { name, data })
    }
}

/// Why arrays could not be read from a file or written to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArraysError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content is invalid.
    #[error(
        "{path} is not a file of weights that can be read ({reason}): give a .safetensors or a .pth file"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The arrays could not be copied from the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The position of a mapper or visitor in the module tree; a parameter's name is torchvision's. The variant of an enum is
/// no part of it.
#[derive(Debug, Default)]
pub(crate) struct ParameterPath(Vec<Option<String>>);

impl ParameterPath {
    /// Enters what a module of this type has under this name.
    pub(crate) fn enter(&mut self, name: &str, of: &str) {
        self.0.push((!of.starts_with("Enum:")).then(|| name.to_string()));
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    pub(crate) fn name(&self) -> String {
        let names: Vec<&str> = self.0.iter().flatten().map(String::as_str).collect();
        names.join(".")
    }
}

/// Writes safetensors to a temporary file, then renames it.
pub(crate) fn save(
    path: &Path,
    arrays: &[Array],
    metadata: HashMap<String, String>,
) -> Result<(), ArraysError> {
    let format = |error: safetensors::SafeTensorError| ArraysError::Format {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let mut views = Vec::with_capacity(arrays.len());
    for array in arrays {
        let view = TensorView::new(Dtype::F32, array.data.shape().to_vec(), array.data.as_bytes());
        views.push((array.name.as_str(), view.map_err(format)?));
    }
    let mut bytes = safetensors::serialize(views, Some(metadata)).map_err(format)?;
    sort_header(&mut bytes);
    whole::write(path, bytes).map_err(|source| ArraysError::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// Sorts the keys of the header, so that equal arrays and texts give equal bytes: the crate writes the texts in
/// the random order of a hash map. The length stays, because only the order changes.
fn sort_header(bytes: &mut [u8]) {
    let Some((length, rest)) = bytes.split_first_chunk_mut::<8>() else {
        return;
    };
    let Some(header) = rest.get_mut(..u64::from_le_bytes(*length) as usize) else {
        return;
    };
    // Spaces at the end align the arrays.
    let written = header.trim_ascii_end().len();
    let sorted: Option<serde_json::Value> = serde_json::from_slice(header).ok();
    if let Some(sorted) = sorted.map(|header| header.to_string())
        && sorted.len() == written
    {
        header[..written].copy_from_slice(sorted.as_bytes());
    }
}

/// Reads the arrays of a safetensors file, floats of any width as f32, and its metadata.
pub(crate) fn load_safetensors(path: &Path) -> Result<(Vec<Array>, BTreeMap<String, String>), ArraysError> {
    let bytes = fs::read(path).map_err(|source| ArraysError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    let format = |reason: String| ArraysError::Format {
        path: path.to_path_buf(),
        reason,
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| format(error.to_string()))?;
    let metadata = header
        .metadata()
        .clone()
        .unwrap_or_default()
        .into_iter()
        .collect();
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| format(error.to_string()))?;
    let mut arrays = Vec::new();
    for (name, view) in tensors.iter() {
        let values = match view.dtype() {
            Dtype::F32 => floats(view.data(), f32::from_le_bytes),
            Dtype::F64 => floats(view.data(), |b| f64::from_le_bytes(b) as f32),
            Dtype::F16 => floats(view.data(), |b| f16::from_le_bytes(b).to_f32()),
            Dtype::BF16 => floats(view.data(), |b| bf16::from_le_bytes(b).to_f32()),
            // Counters such as num_batches_tracked are not arrays of a model.
            _ => continue,
        };
        arrays.push(Array {
            name: name.to_string(),
            data: TensorData::new(values, view.shape().to_vec()),
        });
    }
    Ok((arrays, metadata))
}

/// Little-endian numbers of `N` bytes as f32.
pub(crate) fn floats<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(|&number| read(number)).collect()
}
