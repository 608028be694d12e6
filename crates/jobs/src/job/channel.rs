//! What a channel is: a name, a place, and how its data comes to the script.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use stokehold_base::uri;

/// How a channel's data comes to the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// All objects are copied before the script starts, several at once.
    File,
    /// A folder on this machine, used as it is: nothing is copied. Also for mounted file systems (EFS,
    /// Lustre, NFS).
    Dir,
    /// A read-only view of the objects as files. Each object is fetched when the script reads it, ahead of a
    /// reader that continues. It wants FUSE.
    FastFile,
    /// The view of `FastFile`. Objects that were read stay on disk for all jobs of this machine, up to a
    /// limit. It wants FUSE.
    Cache,
    /// Objects stream through named pipes, `NAME_0` in the first epoch, `NAME_1` in the next.
    Pipe,
}

impl Mode {
    /// SageMaker's name for it. SageMaker also calls a mounted file system a File channel, and so do we for
    /// Cache.
    pub fn input_mode(self) -> &'static str {
        match self {
            Self::File | Self::Dir | Self::Cache => "File",
            Self::FastFile => "FastFile",
            Self::Pipe => "Pipe",
        }
    }
}

/// Which objects an instance gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Sharing {
    /// All of them.
    #[default]
    FullyReplicated,
    /// Its share: of n instances, the i-th gets every n-th object in the order of the keys, from the i-th on.
    ShardedByS3Key,
}

/// How to interpret the URI.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A folder of objects.
    #[default]
    S3Prefix,
    /// A JSON file that lists objects: `[{"prefix": "s3://bucket/folder/"}, "a.jpg", "b.jpg"]`.
    ManifestFile,
    /// A file of JSON lines, each of which is a sample; for the mode `Pipe`. The channel's `attributes` say
    /// which values are wanted: the value itself, or, for a name that ends in `-ref`, the object that it
    /// names.
    AugmentedManifestFile,
    /// A file system that is mounted on this machine (EFS, FSx for Lustre, NFS): the path of its mount point, or
    /// of a folder in it. It is used as it is (mode `Dir`). The job is refused where nothing is mounted there.
    Mount,
}

/// How a pipe separates objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wrapper {
    /// Not separated: one follows the other.
    #[default]
    None,
    /// Each is a RecordIO record: magic number, length, bytes, padding to four bytes.
    RecordIO,
}

/// How objects are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// Each object is gzip; the pipe carries it unpacked.
    Gzip,
}

/// What a script may do with its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read it.
    #[default]
    Ro,
    /// Read and write it. With a folder on this machine (mode `Dir`), writes go to that folder. With mode `Cache`,
    /// files that are complete go to the bucket, and removed files are removed there, while the script runs and at
    /// its end; an object that somebody else has changed meanwhile is left alone, and the job fails. With mode `File`,
    /// writes stay in the job's folder.
    Rw,
}

/// A channel: a table, or a text `URI[,KEY=VALUE..]` with the same keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub struct Channel {
    /// Where the data lies: `s3://`, `gs://`, `az://`, `http://` or a path.
    pub uri: String,
    /// How the data reaches the script. Default: `Dir` for a path, `File` for everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Which objects an instance gets.
    #[schemars(default)]
    pub distribution: Sharing,
    /// How to interpret the URI.
    #[schemars(default)]
    pub kind: Kind,
    /// For the mode `Pipe`: how objects are separated.
    #[schemars(default)]
    pub wrapper: Wrapper,
    /// For the mode `Pipe`: how objects are compressed.
    #[schemars(default)]
    pub compression: Compression,
    /// For the mode `Pipe`: the seed with which the objects are shuffled again in each epoch. Default: they
    /// are not shuffled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<u64>,
    /// The content type that the script sees for this data: `image/jpeg`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What the script may do with the data. `rw` is for the modes `Dir`, `File` and, with one instance, `Cache`.
    #[serde(default)]
    pub access: Access,
    /// For the kind `AugmentedManifestFile`, which requires it: the attributes that each line of the manifest
    /// contributes, in this order. In a text they are separated by `+`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub attributes: Vec<String>,
}

/// A channel as a job file may write it.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum TextOrTable {
    /// `URI[,mode=..][,distribution=..]` and so on
    Text(String),
    Table(Channel),
}

/// The same as it is read: keys that are left out have their defaults.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    uri: String,
    mode: Option<Mode>,
    #[serde(default)]
    distribution: Sharing,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    wrapper: Wrapper,
    #[serde(default)]
    compression: Compression,
    shuffle: Option<u64>,
    content_type: Option<String>,
    #[serde(default)]
    access: Access,
    #[serde(default)]
    attributes: Vec<String>,
}

impl Channel {
    /// Reads `URI[,mode=File|FastFile|Cache|Pipe|Dir][,distribution=..][,kind=..][,wrapper=..][,compression=..][,shuffle=SEED]
    /// [,content-type=..][,access=ro|rw][,attributes=A+B]`.
    /// Only what follows the last commas and is of the form `name=value` with one of these names is an option.
    ///
    /// # Errors
    /// A message that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let mut options = Vec::new();
        while let Some((before, option)) = rest.rsplit_once(',') {
            let Some((name, value)) = option.split_once('=').filter(|(name, _)| NAMES.contains(name)) else {
                break;
            };
            options.push((name, value));
            rest = before;
        }
        let mut table = Table {
            uri: rest.to_owned(),
            ..Table::default()
        };
        for (name, value) in options {
            match name {
                "mode" => table.mode = Some(word(name, value)?),
                "attributes" => table.attributes = value.split('+').map(str::to_owned).collect(),
                "distribution" => table.distribution = word(name, value)?,
                "kind" => table.kind = word(name, value)?,
                "wrapper" => table.wrapper = word(name, value)?,
                "compression" => table.compression = word(name, value)?,
                "access" => table.access = word(name, value)?,
                "shuffle" => {
                    let seed = value
                        .parse()
                        .map_err(|_| format!("shuffle={value}: a number is wanted, the seed"))?;
                    table.shuffle = Some(seed);
                }
                _ => table.content_type = Some(value.to_owned()),
            }
        }
        Self::of(table)
    }

    fn of(table: Table) -> Result<Self, String> {
        if table.uri.is_empty() {
            return Err("it has no URI; write NAME=URI".to_owned());
        }
        let channel = Self {
            uri: table.uri,
            mode: table.mode,
            distribution: table.distribution,
            kind: table.kind,
            wrapper: table.wrapper,
            compression: table.compression,
            shuffle: table.shuffle,
            content_type: table.content_type,
            access: table.access,
            attributes: table.attributes,
        };
        channel.wrong().map_or(Ok(channel), Err)
    }

    /// The first contradiction between options.
    fn wrong(&self) -> Option<String> {
        let of_pipes = [
            ("wrapper", self.wrapper != Wrapper::None),
            ("compression", self.compression != Compression::None),
            ("shuffle", self.shuffle.is_some()),
            (
                "kind=AugmentedManifestFile",
                self.kind == Kind::AugmentedManifestFile,
            ),
        ];
        if let Some((name, _)) = of_pipes
            .iter()
            .find(|(_, given)| *given && self.mode() != Mode::Pipe)
        {
            return Some(format!("{name} is for mode=Pipe"));
        }
        if self.access == Access::Rw {
            match self.mode() {
                Mode::File | Mode::Dir => {}
                Mode::Cache
                    if (self.kind, self.distribution) != (Kind::S3Prefix, Sharing::FullyReplicated) =>
                {
                    return Some(
                        "access=rw with mode=Cache writes to a prefix of a bucket that one instance has whole; leave kind and \
                         distribution out, or access"
                            .to_owned(),
                    );
                }
                Mode::Cache
                    if ["http://", "https://"]
                        .iter()
                        .any(|scheme| self.uri.starts_with(scheme)) =>
                {
                    return Some(format!(
                        "access=rw with mode=Cache wants a place that can be written (s3://, gs://, az:// or a path), and not {}",
                        self.uri
                    ));
                }
                Mode::Cache => {}
                Mode::FastFile | Mode::Pipe => {
                    return Some("access=rw is for mode=Dir, mode=File and mode=Cache".to_owned());
                }
            }
        }
        let is_augmented = self.kind == Kind::AugmentedManifestFile;
        if is_augmented == self.attributes.is_empty() || self.attributes.iter().any(String::is_empty) {
            return Some(
                "kind=AugmentedManifestFile and attributes (attributes=source-ref+label) go together"
                    .to_owned(),
            );
        }
        if is_augmented && self.compression != Compression::None {
            return Some(
                "the objects of an augmented manifest are not unpacked; leave compression out".to_owned(),
            );
        }
        if self.kind == Kind::Mount && (self.mode() != Mode::Dir || uri::is_remote(&self.uri)) {
            return Some(format!(
                "kind=Mount is a file system that is mounted on this machine, and is used as it is; leave mode out, and \
                 write its path in place of {}",
                self.uri
            ));
        }
        if self.mode() == Mode::Dir {
            if uri::is_remote(&self.uri) {
                return Some(format!(
                    "mode=Dir wants a folder of this machine, and not {}",
                    self.uri
                ));
            }
            if !matches!(self.kind, Kind::S3Prefix | Kind::Mount)
                || self.distribution != Sharing::FullyReplicated
            {
                return Some(
                    "a folder is used as it is (mode=Dir); kind and distribution want another mode"
                        .to_owned(),
                );
            }
        }
        None
    }

    /// The mode, with the default filled in.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or(match uri::is_remote(&self.uri) {
            true => Mode::File,
            false => Mode::Dir,
        })
    }
}

const NAMES: [&str; 9] = [
    "mode",
    "distribution",
    "kind",
    "wrapper",
    "compression",
    "shuffle",
    "content-type",
    "access",
    "attributes",
];

fn word<T: for<'de> Deserialize<'de>>(name: &str, value: &str) -> Result<T, String> {
    serde_json::from_value(value.into()).map_err(|error| format!("{name}={value}: {error}"))
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Channel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"URI[,mode=..]\" or a table with uri")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Channel, E> {
                Channel::parse(text).map_err(E::custom)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Channel, M::Error> {
                Channel::of(Table::deserialize(MapAccessDeserializer::new(map))?).map_err(M::Error::custom)
            }
        }
        from.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_stands_behind_the_name() {
        let plain = Channel::parse("s3://b/p,q").unwrap();
        assert_eq!((plain.uri.as_str(), plain.mode()), ("s3://b/p,q", Mode::File));
        let folder = Channel::parse("data/train,access=rw").unwrap();
        assert_eq!((folder.mode(), folder.access), (Mode::Dir, Access::Rw));
        let mount = Channel::parse("/mnt/efs/train,kind=Mount").unwrap();
        assert_eq!((mount.mode(), mount.kind), (Mode::Dir, Kind::Mount));
        let augmented =
            Channel::parse("s3://b/m,mode=Pipe,kind=AugmentedManifestFile,attributes=source-ref+label")
                .unwrap();
        assert_eq!(augmented.attributes, ["source-ref", "label"]);
        let all = "s3://b/a=1,mode=Pipe,distribution=ShardedByS3Key,kind=ManifestFile,wrapper=RecordIO,compression=Gzip,\
                   shuffle=7,content-type=image/jpeg";
        let channel = Channel::parse(all).unwrap();
        assert_eq!(channel.uri, "s3://b/a=1");
        assert_eq!((channel.mode(), channel.kind), (Mode::Pipe, Kind::ManifestFile));
        assert_eq!(
            (channel.wrapper, channel.compression),
            (Wrapper::RecordIO, Compression::Gzip)
        );
        assert_eq!(
            (channel.shuffle, channel.distribution),
            (Some(7), Sharing::ShardedByS3Key)
        );
        assert_eq!(channel.content_type.as_deref(), Some("image/jpeg"));
        let written = serde_json::to_value(&channel).unwrap();
        assert_eq!(serde_json::from_value::<Channel>(written).unwrap(), channel);
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, says) in [
            ("", "no URI"),
            (
                "s3://b,mode=file",
                "expected one of `File`, `Dir`, `FastFile`, `Cache`, `Pipe`",
            ),
            ("s3://b,mode=Pipe,kind=AugmentedManifestFile", "go together"),
            ("s3://b,mode=Pipe,attributes=a", "go together"),
            (
                "s3://b,mode=Pipe,kind=AugmentedManifestFile,attributes=a+",
                "go together",
            ),
            (
                "s3://b,kind=AugmentedManifestFile,attributes=a",
                "is for mode=Pipe",
            ),
            ("s3://b,mode=Dir", "wants a folder of this machine"),
            ("s3://b,shuffle=1", "shuffle is for mode=Pipe"),
            ("s3://b,mode=Pipe,shuffle=x", "a number is wanted"),
            ("data,access=yes", "expected `ro` or `rw`"),
            (
                "s3://b,mode=Pipe,access=rw",
                "is for mode=Dir, mode=File and mode=Cache",
            ),
            (
                "s3://b,mode=FastFile,access=rw",
                "is for mode=Dir, mode=File and mode=Cache",
            ),
            (
                "s3://b,mode=Cache,access=rw,kind=ManifestFile",
                "leave kind and distribution out",
            ),
            (
                "s3://b,mode=Cache,access=rw,distribution=ShardedByS3Key",
                "leave kind and distribution out",
            ),
            ("http://h/d,mode=Cache,access=rw", "a place that can be written"),
            (
                "s3://b,kind=Augmented",
                "expected one of `S3Prefix`, `ManifestFile`",
            ),
            ("data,distribution=ShardedByS3Key", "want another mode"),
            (
                "/mnt/efs,kind=Mount,distribution=ShardedByS3Key",
                "want another mode",
            ),
            ("/mnt/efs,kind=Mount,mode=File", "leave mode out"),
            ("/mnt/efs,kind=Mount,mode=Cache", "leave mode out"),
            ("s3://b,kind=Mount", "in place of s3://b"),
        ] {
            let error = Channel::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
