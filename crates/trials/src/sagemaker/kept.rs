//! What a study's folder keeps of its jobs on SageMaker.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now;
use stokehold_base::random::mix;
use stokehold_base::whole;
use stokehold_tune::TuneError;

use crate::TrialsError;
use crate::error::input;

/// Where the trials of a study run: the file `sagemaker.json` in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StudyTarget {
    /// What the names of all its jobs begin with; unlike that of any other study.
    pub name: String,
    /// The region.
    pub region: String,
    /// Where the code is, once it is uploaded: `s3://..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

const FILE: &str = "sagemaker.json";

impl StudyTarget {
    /// A new one, for a study of this name: `flowers-0123abcd`.
    #[must_use]
    pub fn new(study: &str, region: &str) -> Self {
        Self {
            name: unique(study),
            region: region.to_owned(),
            source: None,
        }
    }

    /// Whether the study in this folder runs on SageMaker.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Reads that of a study's folder.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn load(folder: &Path) -> Result<Self, TrialsError> {
        match read(&folder.join(FILE))? {
            Some(kept) => Ok(kept),
            None => input(format!(
                "{}: the trials of this study do not run on SageMaker",
                folder.display()
            )),
        }
    }

    /// Stores it in a study's folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), TrialsError> {
        write(&folder.join(FILE), self)
    }

    /// The name of a trial's first job: `flowers-0123abcd-007`.
    #[must_use]
    pub fn first(&self, trial: usize) -> String {
        format!("{}-{trial:03}", self.name)
    }
}

/// A name that no other study has: the first letters of the study's, and a number of the time and the process.
fn unique(study: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = study.chars().map(fine).take(40).collect();
    let stem = match stem.trim_matches('-') {
        "" => "study",
        stem => stem,
    };
    let number = mix((unix_now() * 1e6) as u64 ^ u64::from(std::process::id()) << 40);
    format!("{stem}-{:08x}", number >> 32)
}

fn of_trial(folder: &Path, trial: usize) -> PathBuf {
    folder.join("sagemaker").join(format!("trial-{trial}.json"))
}

/// The names of a trial's jobs; none before the first.
pub(super) fn names(folder: &Path, trial: usize) -> Result<Vec<String>, TrialsError> {
    Ok(read(&of_trial(folder, trial))?.unwrap_or_default())
}

pub(super) fn save_names(folder: &Path, trial: usize, names: &[String]) -> Result<(), TrialsError> {
    write(&of_trial(folder, trial), &names)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TrialsError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TrialsError::io(path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        TuneError::File {
            path: path.to_owned(),
            line: Some(error.line()),
            reason: error.to_string(),
        }
        .into()
    })
}

fn write(path: &Path, what: &impl Serialize) -> Result<(), TrialsError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(TrialsError::io(folder))?;
    let text = serde_json::to_vec_pretty(what).map_err(|error| TuneError::Input(error.to_string()))?;
    whole::write(path, text).map_err(TrialsError::io(path))
}
