//! Errors of a study, apart from its trials.

use std::path::{Path, PathBuf};

use stokehold_base::fault::Fault;

/// Why a study could not be described, opened or written. A trial that fails is no error: it is a result of
/// its study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A request is invalid, or names something that does not exist.
    #[error("{0}")]
    Input(String),
    /// The file of a study is invalid.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from one, if it is known.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A line of a journal is not what was written, and there is more after it.
    #[error(
        "{}, line {line}: the checksum does not fit the line, and a crash damages the last line only, so the file is damaged: \
         restore it from a copy{}",
        path.display(), lines_before(path, *line)
    )]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
    },
    /// A line of a journal is what was written, and says something unknown.
    #[error(
        "{}, line {line}: a newer version of Stokehold wrote this line ({reason}); continue with that version",
        path.display()
    )]
    Newer {
        /// The journal.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is unknown.
        reason: String,
    },
    /// An operation on a file or folder failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl TuneError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The advice to continue from the lines before a damaged one; the first line is the study itself.
fn lines_before(path: &Path, line: usize) -> String {
    match line - 1 {
        0 => String::new(),
        before => format!(
            ", or keep what comes before (head -n {before} {} > copy) and resume from there",
            path.display()
        ),
    }
}

pub(crate) fn input<T>(reason: impl Into<String>) -> Result<T, TuneError> {
    Err(TuneError::Input(reason.into()))
}

impl Fault for TuneError {
    fn is_input(&self) -> bool {
        match self {
            Self::Input(_) | Self::File { .. } | Self::Corrupt { .. } | Self::Newer { .. } => true,
            Self::Io { .. } => false,
        }
    }
}
