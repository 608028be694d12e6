//! Weights from torchvision and back: `.pth` and `.safetensors` in, `.safetensors` out, by torchvision's
//! keys.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData, bf16, f16};
use pytorch_reader::{DType, PytorchReader};
use stokehold_base::regular;

use crate::arrays::{self, Array, ArraysError, ParameterPath, floats};
use crate::model::LAST_LAYERS;

/// What [`load_weights`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// The number of classes of the file's last layer, if the model kept its own random layers after the backbone or its
    /// own random last layer: the number differs, or a segmenter's backbone got the weights of a classifier.
    pub replaced_head: Option<usize>,
}

/// Why weights could not be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file could not be read or written.
    #[error(transparent)]
    File(#[from] ArraysError),
    /// The weights belong to another architecture.
    #[error("{}", mismatch(path, missing, unexpected, shapes))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Keys of the model that the file lacks.
        missing: Vec<String>,
        /// Keys of the file that the model lacks.
        unexpected: Vec<String>,
        /// Keys of both, with the model's shape and the file's.
        shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
    },
}

/// Loads the weights of a file into the model, running statistics included.
///
/// Reads `state_dict`s saved by `torch.save`, also inside a checkpoint (`state_dict`, `model_state_dict`,
/// `model`) or under `DataParallel`'s `module.`, and safetensors; f16, bf16 and f64 become f32. The format is
/// detected from the content.
///
/// The model keeps its own last layers if only the number of classes differs. A segmenter takes the weights of a
/// classifier of its backbone, and keeps its heads; it keeps its auxiliary head if the file has none.
///
/// # Errors
/// If the file cannot be read, or if keys or shapes differ otherwise: then the weights belong to another
/// architecture.
pub fn load_weights<M: Module>(model: M, path: &Path) -> Result<(M, Loaded), WeightsError> {
    WeightsFile::read(path)?.into_model(model)
}

/// The contents of a file of weights.
pub(crate) struct WeightsFile {
    path: PathBuf,
    arrays: BTreeMap<String, TensorData>,
    /// The texts next to the arrays; none in a `.pth` file.
    pub metadata: BTreeMap<String, String>,
}

impl WeightsFile {
    /// Reads a file of either format.
    pub fn read(path: &Path) -> Result<Self, ArraysError> {
        let (arrays, metadata) = if is_safetensors(path)? {
            arrays::load_safetensors(path)?
        } else {
            (load_pth(path)?, BTreeMap::new())
        };
        let arrays = arrays.into_iter().map(|array| (array.name, array.data));
        Ok(Self {
            path: path.to_path_buf(),
            arrays: unwrapped(arrays.collect()),
            metadata,
        })
    }

    /// The number of classes of its last layer, if it has one.
    pub fn classes(&self) -> Option<usize> {
        let weight = |layer: &&str| self.arrays.get(&format!("{layer}.weight"));
        LAST_LAYERS.iter().find_map(weight)?.shape().first().copied()
    }

    /// As [`load_weights`].
    pub fn into_model<M: Module>(self, model: M) -> Result<(M, Loaded), WeightsError> {
        fill(model, &self.path, self.arrays)
    }
}

fn fill<M: Module>(
    model: M,
    path: &Path,
    mut found: BTreeMap<String, TensorData>,
) -> Result<(M, Loaded), WeightsError> {
    let expected = shapes(&model);
    let mut kept = Vec::new();
    let mut replaced_head = None;
    if expected.contains_key("backbone.conv1.weight") && found.contains_key("conv1.weight") {
        replaced_head = found
            .get("fc.weight")
            .and_then(|weight| weight.shape().first().copied());
        found.retain(|key, _| !key.starts_with("fc."));
        found = found
            .into_iter()
            .map(|(key, data)| (format!("backbone.{key}"), data))
            .collect();
        kept.extend(["classifier.", "aux_classifier."]);
    }
    for (layer, prefix) in LAST_LAYERS
        .iter()
        .zip(["fc.", "classifier.4.", "aux_classifier.4."])
    {
        if let Some(classes) = other_classes(layer, &expected, &found) {
            replaced_head.get_or_insert(classes);
            kept.push(prefix);
        }
    }
    if !found.keys().any(|key| key.starts_with("aux_classifier.")) {
        kept.push("aux_classifier.");
    }
    let skipped = |key: &str| kept.iter().any(|prefix| key.starts_with(prefix));
    found.retain(|key, _| !skipped(key));

    let missing = expected
        .keys()
        .filter(|key| !found.contains_key(*key) && !skipped(key))
        .cloned()
        .collect();
    let unexpected = found
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .cloned()
        .collect();
    let shapes = expected.iter().filter_map(|(key, shape)| {
        let other = found.get(key)?.shape().to_vec();
        (other != *shape).then(|| (key.clone(), shape.clone(), other))
    });
    let shapes = shapes.collect();
    let (missing, unexpected, shapes): (Vec<_>, Vec<_>, Vec<_>) = (missing, unexpected, shapes);
    if !(missing.is_empty() && unexpected.is_empty() && shapes.is_empty()) {
        return Err(WeightsError::Mismatch {
            path: path.to_path_buf(),
            missing,
            unexpected,
            shapes,
        });
    }

    // Pending updates of the running statistics would overwrite those of the file.
    let trained = model.devices().iter().any(|device| device.is_autodiff());
    let model = if trained { model.valid().train() } else { model };
    let model = model.map(&mut Fill {
        found,
        path: ParameterPath::default(),
    });
    Ok((model, Loaded { replaced_head }))
}

/// Writes the model as safetensors with torchvision's keys, to a temporary file that is then renamed.
///
/// PyTorch loads it with `load_state_dict(safetensors.torch.load_file(path), strict=True)`.
/// `num_batches_tracked` is left out: only `momentum=None` uses it, and PyTorch fills it in.
///
/// # Errors
/// If the device or the file system fails.
pub fn save_safetensors<M: Module>(
    model: &M,
    path: &Path,
    mut metadata: BTreeMap<String, String>,
) -> Result<(), WeightsError> {
    let mut collect = Collect {
        arrays: Ok(Vec::new()),
        path: ParameterPath::default(),
    };
    // `valid` applies pending updates of the running statistics.
    model.valid().visit(&mut collect);
    metadata.insert("format".to_string(), "pt".to_string());
    let metadata: HashMap<_, _> = metadata.into_iter().collect();
    Ok(arrays::save(path, &collect.arrays?, metadata)?)
}

/// The file's number of classes, if a last layer differs from the model's only in that.
fn other_classes(
    layer: &str,
    expected: &BTreeMap<String, Vec<usize>>,
    found: &BTreeMap<String, TensorData>,
) -> Option<usize> {
    let (weight, bias) = (format!("{layer}.weight"), format!("{layer}.bias"));
    let bias = found.get(&bias)?.shape().to_vec();
    let (own, weight) = (expected.get(&weight)?, found.get(&weight)?.shape().to_vec());
    let same_features = weight.len() == own.len() && weight[1..] == own[1..];
    (same_features && weight[0] != own[0] && bias == weight[..1]).then(|| weight[0])
}

/// Whether a file is safetensors: it begins with the length of its header in 8 bytes and the header's brace,
/// which no pickle or archive does.
fn is_safetensors(path: &Path) -> Result<bool, ArraysError> {
    let mut start = Vec::new();
    let read = regular::open(path).and_then(|file| file.take(9).read_to_end(&mut start));
    read.map_err(|source| ArraysError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(start.get(8) == Some(&b'{'))
}

fn load_pth(path: &Path) -> Result<Vec<Array>, ArraysError> {
    let format = |reason: String| ArraysError::Format {
        path: path.to_path_buf(),
        reason,
    };
    let reader = PytorchReader::new(path).map_err(|error| format(error.to_string()))?;
    let mut arrays = Vec::new();
    for (name, tensor) in reader.tensors() {
        let read = || tensor.read().map_err(|error| format(error.to_string()));
        let values = match tensor.dtype() {
            DType::F32 => floats(&read()?, f32::from_le_bytes),
            DType::F64 => floats(&read()?, |b| f64::from_le_bytes(b) as f32),
            DType::F16 => floats(&read()?, |b| f16::from_le_bytes(b).to_f32()),
            DType::BF16 => floats(&read()?, |b| bf16::from_le_bytes(b).to_f32()),
            // Counters such as num_batches_tracked are not arrays of a model.
            _ => continue,
        };
        let data = TensorData::new(values, tensor.shape().to_vec());
        arrays.push(Array {
            name: name.clone(),
            data,
        });
    }
    Ok(arrays)
}

/// The model's arrays, without the prefix that a checkpoint or a wrapper put before their names.
fn unwrapped(mut arrays: BTreeMap<String, TensorData>) -> BTreeMap<String, TensorData> {
    const WRAPPERS: [&str; 4] = ["state_dict.", "model_state_dict.", "model.", "module."];
    while let Some(wrapper) = WRAPPERS
        .into_iter()
        .find(|wrapper| arrays.keys().any(|key| key.starts_with(wrapper)))
    {
        let inner = arrays
            .into_iter()
            .filter_map(|(key, data)| Some((key.strip_prefix(wrapper)?.to_string(), data)));
        arrays = inner.collect();
    }
    arrays
}

fn shapes<M: Module>(model: &M) -> BTreeMap<String, Vec<usize>> {
    let mut shapes = Shapes {
        shapes: BTreeMap::new(),
        path: ParameterPath::default(),
    };
    model.visit(&mut shapes);
    shapes.shapes
}

struct Shapes {
    shapes: BTreeMap<String, Vec<usize>>,
    path: ParameterPath,
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.shapes.insert(self.path.name(), param.lazy_shape().to_vec());
    }
}

struct Collect {
    arrays: Result<Vec<Array>, ArraysError>,
    path: ParameterPath,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Ok(arrays) = &mut self.arrays else { return };
        match Array::from_tensor(self.path.name(), param.val()) {
            Ok(array) => arrays.push(array),
            Err(error) => self.arrays = Err(error),
        }
    }
}

struct Fill {
    found: BTreeMap<String, TensorData>,
    path: ParameterPath,
}

impl ModuleMapper for Fill {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(data) = self.found.remove(&self.path.name()) else {
            return param;
        };
        param.map(|old| Tensor::from_data(data, &old.device()).set_require_grad(old.is_require_grad()))
    }
}

/// At most this many keys of a kind are listed.
const LISTED: usize = 6;

fn mismatch(
    path: &Path,
    missing: &[String],
    unexpected: &[String],
    shapes: &[(String, Vec<usize>, Vec<usize>)],
) -> String {
    let mut text = format!(
        "the weights in {} are of another architecture: choose the matching model, or other weights",
        path.display()
    );
    list(&mut text, "missing in the file", missing);
    list(&mut text, "unknown to the model", unexpected);
    let shapes: Vec<String> = shapes
        .iter()
        .map(|(key, model, file)| format!("{key} (model {model:?}, file {file:?})"))
        .collect();
    list(&mut text, "of another shape", &shapes);
    text
}

fn list(text: &mut String, what: &str, keys: &[String]) {
    if keys.is_empty() {
        return;
    }
    let shown = keys[..keys.len().min(LISTED)].join(", ");
    let more = keys.len().saturating_sub(LISTED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    // Writing to a String cannot fail.
    let _ = write!(text, "\n  {} {what}: {shown}{more}", keys.len());
}
