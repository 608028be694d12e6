//! Where outputs are written: a folder, or a bucket.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use stokehold_base::uri;
use stokehold_base::whole::Writing;
use stokehold_objects::{Bucket, Upload};

use crate::TransformError;

/// The place of all outputs.
pub(crate) enum Outputs {
    Folder(PathBuf),
    Bucket(Bucket),
}

impl Outputs {
    /// The place at a path or URI; a folder is created.
    pub fn open(place: &Path) -> Result<Self, TransformError> {
        if let Some(uri) = uri::remote(place) {
            return Ok(Self::Bucket(Bucket::open(uri)?));
        }
        fs::create_dir_all(place).map_err(TransformError::io(place))?;
        Ok(Self::Folder(place.to_owned()))
    }

    /// Begins an output, which appears whole or not at all.
    pub fn begin(&self, name: &Path) -> Result<Writer, TransformError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                let parent = path.parent().unwrap_or(folder);
                fs::create_dir_all(parent).map_err(TransformError::io(parent))?;
                let writing = Writing::begin(&path).map_err(TransformError::io(&path))?;
                Ok(Writer::File { path, writing })
            }
            Self::Bucket(bucket) => {
                let Some(key) = name.to_str() else {
                    let reason = format!("{}: a name in a bucket has to be UTF-8", name.display());
                    return Err(TransformError::Input(reason));
                };
                Ok(Writer::Object(bucket.upload(key, 0)?))
            }
        }
    }

    /// Whether an output is known to be missing; those in buckets are not looked at.
    pub fn is_missing(&self, name: &Path) -> bool {
        match self {
            Self::Folder(folder) => !folder.join(name).exists(),
            Self::Bucket(_) => false,
        }
    }

    /// Whether there is something in an output's place; buckets are not looked at.
    pub fn has(&self, name: &Path) -> bool {
        match self {
            Self::Folder(folder) => folder.join(name).symlink_metadata().is_ok(),
            Self::Bucket(_) => false,
        }
    }

    /// Writes a whole output.
    pub fn write(&self, name: &Path, text: &str) -> Result<(), TransformError> {
        let mut writer = self.begin(name)?;
        writer.write(text.as_bytes())?;
        writer.finish()
    }
}

/// An output that is being written.
pub(crate) enum Writer {
    File { path: PathBuf, writing: Writing },
    Object(Upload),
}

impl Writer {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TransformError> {
        match self {
            Self::File { path, writing } => writing.file().write_all(bytes).map_err(TransformError::io(path)),
            Self::Object(upload) => Ok(upload.write(bytes)?),
        }
    }

    pub fn finish(self) -> Result<(), TransformError> {
        match self {
            Self::File { path, writing } => writing.finish().map_err(TransformError::io(&path)),
            Self::Object(upload) => Ok(upload.finish()?),
        }
    }
}
