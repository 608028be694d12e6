//! The files that samples go into: written aside, then renamed.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use stokehold_base::whole::Writing;
use stokehold_pipeline::Format;
use stokehold_storage::shard::{Record, ShardFacts, ShardWriter};

use crate::make::Made;
use crate::options::{Container, Options};
use crate::part::PartTask;
use crate::tar::{Member, TarWriter};

/// A sample that needs only to be written.
pub(crate) enum Ready {
    Record(Record),
    Member(Member),
}

impl Ready {
    /// The sample of `made`, with the name and key that it has in files of the given kind.
    pub fn new(container: Container, name: &[u8], key: &str, label: u32, made: Made) -> io::Result<Self> {
        let size = (made.width, made.height);
        Ok(match container {
            Container::Shards => Self::Record(Record::new(name.to_vec(), label, size, made.file)?),
            Container::Tar => Self::Member(Member {
                key: key.to_owned(),
                extension: extension(made.format),
                label,
                file: made.file,
            }),
        })
    }
}

/// The extension that loaders know a format by.
pub(crate) fn extension(format: Format) -> &'static str {
    match format {
        Format::Jpeg => "jpg",
        Format::Png => "png",
        Format::WebP => "webp",
    }
}

/// The file of one shard or tar while it is written.
pub(crate) struct Output {
    writer: Option<Writer>,
    path: PathBuf,
    name: String,
}

enum Writer {
    Shard(ShardWriter<BufWriter<Writing>>),
    Tar(TarWriter<BufWriter<Writing>>),
}

/// The name of a part's file, below the prepared folder.
pub(crate) fn file_name(part: &str, number: u32, options: &Options) -> String {
    format!("{part}/{number:06}.{}", options.extension())
}

/// Whether a name in a part's folder is one that [`file_name`] gives.
pub(crate) fn is_file_name(name: &str, options: &Options) -> bool {
    name.strip_suffix(options.extension())
        .and_then(|name| name.strip_suffix('.'))
        .is_some_and(|number| number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Output {
    /// Begins file `number` of a part of the prepared folder `out`.
    pub fn new(
        out: &Path,
        part: &PartTask,
        number: u32,
        options: &Options,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let name = file_name(part.name, number, options);
        let path = out.join(&name);
        let new = || {
            let file = BufWriter::with_capacity(1 << 20, Writing::begin(&path)?);
            Ok(match options.container {
                Container::Shards => {
                    let classes = part.images.classes();
                    Writer::Shard(ShardWriter::new(file, part.id, number, classes, part.tables())?)
                }
                Container::Tar => Writer::Tar(TarWriter::new(file)),
            })
        };
        match new() {
            Ok(writer) => Ok(Self {
                writer: Some(writer),
                path,
                name,
            }),
            Err(error) => Err((path, error)),
        }
    }

    /// The bytes of the file if it is finished after `sample`.
    pub fn size_with(&self, sample: &Ready) -> u64 {
        match (&self.writer, sample) {
            (Some(Writer::Shard(writer)), Ready::Record(record)) => writer.size_with(record),
            (Some(Writer::Tar(writer)), Ready::Member(member)) => writer.size_with(member),
            _ => 0,
        }
    }

    /// Writes the next sample, which must be of the file's kind.
    pub fn push(&mut self, sample: &Ready) -> Result<(), (PathBuf, io::Error)> {
        let pushed = match (&mut self.writer, sample) {
            (Some(Writer::Shard(writer)), Ready::Record(record)) => writer.push(record),
            (Some(Writer::Tar(writer)), Ready::Member(member)) => writer.push(member),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        pushed.map_err(|error| (self.path.clone(), error))
    }

    /// Gives the file its name when it is on the disk; its line in the manifest.
    pub fn finish(mut self) -> Result<ShardFacts, (PathBuf, io::Error)> {
        let name = std::mem::take(&mut self.name);
        let finish = |writer| {
            let (file, facts) = match writer {
                Some(Writer::Shard(writer)) => writer.finish(name)?,
                Some(Writer::Tar(writer)) => writer.finish(name)?,
                None => return Err(io::ErrorKind::InvalidInput.into()),
            };
            file.into_inner()?.finish()?;
            Ok(facts)
        };
        finish(self.writer.take()).map_err(|error| (self.path.clone(), error))
    }
}
