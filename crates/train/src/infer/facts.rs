//! What a model's file says about the model: the metadata of its safetensors.
//!
//! ```text
//! stokehold   "1"                      the version of these keys
//! arch        "resnet18"
//! classes     ["cat","dog"]            JSON; a class's number is its position
//! pipeline    {"op":[..]}              JSON; the pipeline of validation images
//! exif        "true" or "false"        whether the EXIF orientation is applied
//! ```

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use stokehold_pipeline::Pipeline;
use stokehold_pipeline::op::Size;

use crate::TrainError;
use crate::model::Arch;

/// The key that marks a file of ours, and the version of the other keys.
const MARK: &str = "stokehold";
const VERSION: &str = "1";

/// A longer side of its input is refused: the file of a stranger must not fill the memory with one batch.
const MAX_SIDE: u32 = 4096;

/// A longer text is cut off where a message quotes it.
const QUOTED: usize = 300;

/// What predictions need besides the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFacts {
    /// The network.
    pub arch: Arch,
    /// The names of the classes; a class's number is its position.
    pub classes: Vec<String>,
    /// The pipeline of validation images.
    pub pipeline: Pipeline,
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
}

/// What the caller says about a model. Files of torchvision and other programs need it; a file of ours says the
/// same, or the caller is wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The network.
    pub arch: Option<Arch>,
    /// The names of the classes, by number.
    pub classes: Option<Vec<String>>,
    /// The pipeline of images; where neither the file nor the caller says one ImageNet's evaluation, and for a segmenter
    /// the whole image at 520 x 520.
    pub pipeline: Option<Pipeline>,
    /// Whether to apply the EXIF orientation; where the file says that, `false` stands for what the file says.
    pub exif: bool,
}

impl ModelFacts {
    /// The texts for the file's metadata.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let json = |value: serde_json::Value| value.to_string();
        let texts = [
            (MARK, VERSION.to_owned()),
            ("arch", self.arch.to_string()),
            ("classes", json(self.classes.as_slice().into())),
            ("pipeline", pipeline_text(&self.pipeline)),
            ("exif", self.exif.to_string()),
        ];
        texts.map(|(key, text)| (key.to_owned(), text)).into()
    }

    /// Reads the texts of a file's metadata; `None` if the file is not ours.
    ///
    /// # Errors
    /// The key that is missing or whose text is not valid, and why.
    pub fn of_metadata(metadata: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let Some(version) = metadata.get(MARK) else {
            return Ok(None);
        };
        if version != VERSION {
            return Err(format!(
                "its metadata are of version {}, and this program reads version {VERSION}; use the program that wrote it, \
                 or a newer one",
                quoted(version)
            ));
        }
        let text = |key: &'static str| {
            let text = metadata.get(key);
            text.ok_or_else(|| wrong(key, "it is missing"))
        };
        let arch = text("arch")?;
        let arch: Arch = arch.parse().map_err(|_| wrong("arch", &unknown_arch(arch)))?;
        let classes: Vec<String> =
            serde_json::from_str(text("classes")?).map_err(|error| wrong("classes", &cause(&error)))?;
        check_classes(&classes).map_err(|reason| wrong("classes", &reason))?;
        let pipeline: Pipeline =
            serde_json::from_str(text("pipeline")?).map_err(|error| wrong("pipeline", &cause(&error)))?;
        check_pipeline(&pipeline).map_err(|reason| wrong("pipeline", &reason))?;
        let exif = text("exif")?;
        let exif = exif
            .parse()
            .map_err(|_| wrong("exif", &format!("{} is neither true nor false", quoted(exif))))?;
        Ok(Some(Self {
            arch,
            classes,
            pipeline,
            exif,
        }))
    }

    /// The facts of a file with these metadata and of the caller.
    pub(super) fn of(
        path: &Path,
        metadata: &BTreeMap<String, String>,
        given: Given,
    ) -> Result<Self, TrainError> {
        let malformed = |reason| TrainError::Malformed {
            path: path.to_owned(),
            reason,
        };
        if let Some(facts) = Self::of_metadata(metadata).map_err(malformed)? {
            facts.agree(path, &given)?;
            return Ok(facts);
        }
        let missing = |missing| TrainError::NotDescribed {
            path: path.to_owned(),
            missing,
        };
        let arch = given.arch.ok_or_else(|| missing("which architecture it is of"))?;
        let classes = given.classes.ok_or_else(|| missing("which classes it knows"))?;
        check_classes(&classes).map_err(|problem| TrainError::Config {
            field: "classes",
            problem,
        })?;
        let usual = || match arch.segments() {
            // torchvision's segmenters saw images whose shorter edge has 520 pixels; the size of all must be one.
            true => Pipeline::pairs_eval(Size::Side(520)),
            false => Pipeline::imagenet_eval(256, 224),
        };
        let pipeline = given.pipeline.unwrap_or_else(usual);
        check_pipeline(&pipeline).map_err(|problem| TrainError::Config {
            field: "pipeline",
            problem,
        })?;
        Ok(Self {
            arch,
            classes,
            pipeline,
            exif: given.exif,
        })
    }

    /// Checks that the caller says nothing else than the file.
    fn agree(&self, path: &Path, given: &Given) -> Result<(), TrainError> {
        let differs = |what, file: String, given: String| {
            Err(TrainError::Contradicted {
                path: path.to_owned(),
                what,
                file,
                given,
            })
        };
        if let Some(arch) = given.arch.filter(|arch| *arch != self.arch) {
            return differs("the architecture", self.arch.to_string(), arch.to_string());
        }
        if let Some(classes) = &given.classes {
            if classes.len() != self.classes.len() {
                let (file, given) = (self.classes.len(), classes.len());
                return differs("the number of classes", file.to_string(), given.to_string());
            }
            let mut pairs = std::iter::zip(&self.classes, classes);
            if let Some((file, given)) = pairs.find(|(file, given)| file != given) {
                return differs("a class", quoted(file), quoted(given));
            }
        }
        if let Some(pipeline) = given.pipeline.as_ref().filter(|&given| *given != self.pipeline) {
            let text = |pipeline| clipped(&pipeline_text(pipeline));
            return differs("the pipeline", text(&self.pipeline), text(pipeline));
        }
        if given.exif && !self.exif {
            return differs("the use of the EXIF orientation", "off".into(), "on".into());
        }
        Ok(())
    }
}

/// The pipeline as JSON, which [`Pipeline::from_json`] reads.
fn pipeline_text(pipeline: &Pipeline) -> String {
    // Its numbers and names are valid JSON; a pipeline that was checked has no others.
    serde_json::to_string(pipeline).unwrap_or_default()
}

fn wrong(key: &str, reason: &str) -> String {
    format!("the metadata's {key}: {reason}; take the file that `stokehold train` wrote")
}

fn unknown_arch(name: &str) -> String {
    format!("{} is no architecture that is known", quoted(name))
}

/// The reason of a reader, which may quote the text, however long that is.
fn cause(error: &dyn std::error::Error) -> String {
    clipped(&error.to_string())
}

/// A text from outside as a message can bear it.
fn quoted(text: &str) -> String {
    format!("'{}'", clipped(text))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn check_classes(classes: &[String]) -> Result<(), String> {
    if classes.is_empty() {
        return Err("there is none".to_owned());
    }
    let mut seen = HashSet::new();
    match classes.iter().find(|&class| !seen.insert(class)) {
        Some(twice) => Err(format!("{} is there twice", quoted(twice))),
        None => Ok(()),
    }
}

fn check_pipeline(pipeline: &Pipeline) -> Result<(), String> {
    let (width, height) = pipeline.check().map_err(|error| cause(&error))?;
    if width.min(height) < 32 || width.max(height) > MAX_SIDE {
        return Err(format!(
            "it makes images of {width}x{height}; the networks take 32x32 to {MAX_SIDE}x{MAX_SIDE}"
        ));
    }
    Ok(())
}
