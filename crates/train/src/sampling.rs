//! Which training images an epoch has: a [`Sampler`] as data, with files that name images.
//!
//! An image's name is its path below the folder of the training images (`CLASS/1.jpg`), of shards that of the images
//! that they were made of. A file of a subset has a name a line, a file of weights a name and a number above or equal 0
//! a line, after spaces or a tab. Empty lines are skipped.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stokehold_base::regular;
use stokehold_loader::{Sampler, Source};
use stokehold_storage::Images;

use crate::TrainError;

/// Which training images an epoch has. Validation has every image once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SamplerConfig {
    /// [`Sampler::Every`]
    #[default]
    Every,
    /// [`Sampler::ClassBalanced`]
    ClassBalanced {
        /// Whether an epoch can have an image again.
        replacement: bool,
    },
    /// [`Sampler::Weighted`]
    Weighted {
        /// The file of weights; it names every training image, and may name others.
        weights: PathBuf,
        /// Whether an epoch can have an image again.
        replacement: bool,
    },
    /// [`Sampler::Subset`]
    Subset {
        /// The file of names; all of them are training images.
        images: PathBuf,
    },
    /// [`Sampler::Repeated`]
    Repeated {
        /// How often an epoch has each of its images.
        times: NonZeroUsize,
    },
}

impl SamplerConfig {
    /// How often an image is there in a row.
    pub(crate) fn repeats(&self) -> usize {
        match self {
            Self::Repeated { times } => times.get(),
            _ => 1,
        }
    }

    /// The sampler of these training images.
    ///
    /// # Errors
    /// A file cannot be read, names an image that is not there or leaves one out, or has a weight that is none.
    pub(crate) fn sampler(&self, images: &Images) -> Result<Sampler, TrainError> {
        Ok(match self {
            Self::Every => Sampler::Every,
            Self::ClassBalanced { replacement } => Sampler::ClassBalanced {
                replacement: *replacement,
            },
            Self::Weighted { weights, replacement } => Sampler::Weighted {
                weights: read_weights(weights, images)?,
                replacement: *replacement,
            },
            Self::Subset { images: file } => Sampler::Subset(read_subset(file, images)?),
            Self::Repeated { times } => Sampler::Repeated(*times),
        })
    }
}

/// The numbers of the images that a file names.
fn read_subset(path: &Path, images: &Images) -> Result<Arc<[usize]>, TrainError> {
    let bytes = read(path)?;
    let numbers = numbers(images);
    let number = |(line, name): (usize, &[u8])| {
        let number = numbers.get(name).copied();
        number.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            malformed(
                path,
                format!("line {line}: there is no training image '{name}': give its path below the training images' folder"),
            )
        })
    };
    lines(&bytes).map(number).collect()
}

/// The weight of each image.
fn read_weights(path: &Path, images: &Images) -> Result<Arc<[f64]>, TrainError> {
    let bytes = read(path)?;
    let numbers = numbers(images);
    let mut weights = vec![None; images.len()];
    for (line, text) in lines(&bytes) {
        let weight = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
        let split = text.iter().rposition(|byte| matches!(byte, b' ' | b'\t'));
        let parts = split.and_then(|at| Some((text[..at].trim_ascii_end(), weight(&text[at + 1..])?)));
        let Some((name, weight)) = parts else {
            return Err(malformed(
                path,
                format!("line {line}: give an image's name, a space and a number"),
            ));
        };
        if let Some(&number) = numbers.get(name)
            && weights[number].replace(weight).is_some()
        {
            let name = String::from_utf8_lossy(name);
            return Err(malformed(
                path,
                format!("line {line}: '{name}' has a weight already; leave one out"),
            ));
        }
    }
    if let Some(left_out) = weights.iter().position(Option::is_none) {
        let name = String::from_utf8_lossy(images.below(left_out));
        return Err(malformed(
            path,
            format!("the training image '{name}' has no weight; give it one, 0 for never"),
        ));
    }
    Ok(weights.into_iter().flatten().collect())
}

/// The images' numbers by their names.
fn numbers(images: &Images) -> HashMap<&[u8], usize> {
    (0..images.len())
        .map(|sample| (images.below(sample), sample))
        .collect()
}

/// The lines that are not empty, from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

fn read(path: &Path) -> Result<Vec<u8>, TrainError> {
    regular::read(path).map_err(|error| malformed(path, format!("cannot be read: {error}")))
}

fn malformed(path: &Path, reason: String) -> TrainError {
    TrainError::Malformed {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stokehold_storage::Dataset;

    use super::*;

    /// Four images of two classes, in a temporary folder.
    fn dataset() -> (tempfile::TempDir, Images) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/1.jpg", "a/two words.jpg", "b/1.jpg", "b/2.jpg"] {
            let path = dir.path().join("data/train").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, include_bytes!("../../../hostile/small.jpg")).unwrap();
        }
        let images = Dataset::open(dir.path().join("data"), None, 0).unwrap().train;
        (dir, images)
    }

    #[test]
    fn names_stand_for_images() {
        let (dir, images) = dataset();
        let file = dir.path().join("file");
        fs::write(&file, "b/2.jpg\r\n\na/two words.jpg\nb/2.jpg").unwrap();
        let subset = SamplerConfig::Subset { images: file.clone() };
        assert_eq!(
            subset.sampler(&images).unwrap(),
            Sampler::Subset([3, 1, 3].into())
        );
        fs::write(
            &file,
            "b/1.jpg 3\nval/x.jpg 9\na/two words.jpg\t0.5\na/1.jpg   0\nb/2.jpg 1e2\n",
        )
        .unwrap();
        let weighted = SamplerConfig::Weighted {
            weights: file,
            replacement: true,
        };
        let weights = [0.0, 0.5, 3.0, 100.0].into();
        assert_eq!(
            weighted.sampler(&images).unwrap(),
            Sampler::Weighted {
                weights,
                replacement: true
            }
        );
    }

    #[test]
    fn a_wrong_line_is_named() {
        let (dir, images) = dataset();
        let file = dir.path().join("file");
        let told = |config: &SamplerConfig, text: &str| {
            fs::write(&file, text).unwrap();
            config.sampler(&images).unwrap_err().to_string()
        };
        let subset = SamplerConfig::Subset { images: file.clone() };
        let error = told(&subset, "a/1.jpg\n\na/3.jpg\n");
        assert!(
            error.contains("file: line 3: there is no training image 'a/3.jpg'"),
            "{error}"
        );
        let weighted = SamplerConfig::Weighted {
            weights: file.clone(),
            replacement: true,
        };
        for (text, part) in [
            ("a/1.jpg", "line 1: give an image's name, a space and a number"),
            ("a/1.jpg 1\na/1.jpg much", "line 2: give an image's name"),
            ("a/1.jpg 1\na/1.jpg 2", "line 2: 'a/1.jpg' has a weight already"),
            (
                "a/1.jpg 1\nb/1.jpg 2",
                "the training image 'a/two words.jpg' has no weight",
            ),
        ] {
            let error = told(&weighted, text);
            assert!(error.contains(part), "{error}");
        }
        fs::remove_file(&file).unwrap();
        let error = subset.sampler(&images).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }
}
