//! Sends spans as lines to a recorder in another process, or appends them to a file.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
#[cfg(unix)]
use std::os::unix::{fs::FileTypeExt, net::UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::VARIABLE;
use crate::ProfileError;
use crate::recording::Span;
use crate::system::io_error;

/// The size of the buffer at which it is sent, bytes.
const BUFFER: usize = 32 << 10;
/// The longest time that the other side may accept nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes spans as [lines](super::line).
///
/// Only whole lines are sent, many at a time, so several processes can append to one file.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    out: Box<dyn Out>,
    text: Vec<u8>,
}

trait Out: Write + Send + std::fmt::Debug {}
impl Out for File {}
#[cfg(unix)]
impl Out for UnixStream {}

impl Client {
    /// Connects to the address in [`VARIABLE`]; `None` if it is not set, or empty.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn from_env() -> Result<Option<Self>, ProfileError> {
        match env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => Self::open(Path::new(&path)).map(Some),
            _ => Ok(None),
        }
    }

    /// Connects to the socket `path`, or opens the file of that name, which need not exist.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if there is no server or the file cannot be written.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let error = |source| io_error(path, source);
        #[cfg(unix)]
        if fs::metadata(path).is_ok_and(|known| known.file_type().is_socket()) {
            let stream = UnixStream::connect(path).map_err(error)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(error)?;
            return Ok(Self::new(path, Box::new(stream)));
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(error)?;
        Ok(Self::new(path, Box::new(file)))
    }

    fn new(path: &Path, out: Box<dyn Out>) -> Self {
        Self {
            path: path.to_owned(),
            out,
            text: Vec::new(),
        }
    }

    /// Writes a span; [`Span::name`] is ignored. Characters that a name in a line cannot have become `_`.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if the other side is gone or has accepted nothing for a second, or if the disk is
    /// full.
    pub fn write(&mut self, name: &str, span: &Span) -> Result<(), ProfileError> {
        let unfit = |c: char| c.is_whitespace() || c.is_control();
        let line = format!("{} {:.6} {:.6}", name.replace(unfit, "_"), span.start, span.end());
        self.text.extend_from_slice(line.as_bytes());
        let args = [
            ("step", span.step),
            ("worker", span.worker.map(u64::from)),
            ("bytes", span.bytes),
        ];
        for (key, value) in args {
            if let Some(value) = value {
                self.text.extend_from_slice(format!(" {key}={value}").as_bytes());
            }
        }
        self.text.push(b'\n');
        if self.text.len() < BUFFER {
            return Ok(());
        }
        self.flush()
    }

    /// Sends the buffer.
    ///
    /// # Errors
    /// As of [`write`](Self::write).
    pub fn flush(&mut self) -> Result<(), ProfileError> {
        let written = self.out.write_all(&self.text);
        self.text.clear();
        written.map_err(|source| io_error(&self.path, source))
    }
}
