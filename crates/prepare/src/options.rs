//! The options of a preparation.

use std::collections::BTreeMap;
use std::fmt;

use stokehold_jpeg::Metadata;
use stokehold_pipeline::op::Op;
use stokehold_storage::shard::Baked;

use crate::PrepareError;

/// How a data set is prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to do with images.
    pub content: Content,
    /// The output format.
    pub container: Container,
    /// A shard is finished when its next sample would exceed this size, in bytes.
    pub shard_size: u64,
    /// Threads that make samples, at least 1.
    pub workers: usize,
    /// Whether to skip broken images, instead of ending the work.
    pub skip_bad_images: bool,
    /// What is performed on the images of a part, `train` or `val`, instead of `content`.
    pub bake: BTreeMap<String, Bake>,
    /// Whether parts on which something is performed may become larger than their files.
    pub allow_larger: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            content: Content::Lossless(Metadata::Drop),
            container: Container::Shards,
            shard_size: 150_000_000,
            workers: 1,
            skip_bad_images: false,
            bake: BTreeMap::new(),
            allow_larger: false,
        }
    }
}

/// The head of a pipeline, to be performed on every image of a part.
#[derive(Debug, Clone, PartialEq)]
pub struct Bake {
    /// The operations, as [`Head::moves`](stokehold_pipeline::Head::moves) has them.
    pub ops: Vec<Op>,
    /// Whether to turn images upright by their EXIF orientation before.
    pub exif: bool,
    /// The JPEG quality of the results, 1 to 100.
    pub quality: u8,
}

impl Bake {
    /// What the manifest says of it.
    pub(crate) fn facts(&self) -> Result<Baked, PrepareError> {
        let ops =
            serde_json::to_value(&self.ops).map_err(|error| PrepareError::Operations(error.to_string()))?;
        Ok(Baked { ops, exif: self.exif })
    }
}

/// What to do with an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// JPEGs are packed or transcoded without changing a pixel; other files are copied.
    Lossless(Metadata),
    /// Every file is copied.
    Raw,
    /// Larger images are shrunk and encoded again; the others are treated as in [`Content::Lossless`].
    Resized {
        /// The size limit.
        size: Size,
        /// The JPEG quality of the shrunk images, 1 to 100.
        quality: u8,
        /// What to do with segments that carry no pixels, if an image is not shrunk.
        metadata: Metadata,
    },
}

/// A limit of the size of images, in pixels, at least 1. Smaller images are not enlarged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The longer side has at most this length.
    LongerSide(u32),
    /// The shorter side has at most this length.
    ShorterSide(u32),
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Shards, which Stokehold trains from.
    Shards,
    /// Tar files in WebDataset's convention.
    Tar,
}

impl Options {
    /// Whether every sample has the pixels of its original.
    pub fn is_lossless(&self) -> bool {
        !matches!(self.content, Content::Resized { .. }) && self.bake.is_empty()
    }

    /// How the samples of all parts are made, in words.
    pub(crate) fn prepared(&self) -> String {
        let mut parts: Vec<String> = self
            .bake
            .iter()
            .map(|(part, bake)| match self.packs() {
                true => format!("{part}: {bake}, JPEGs packed"),
                false => format!("{part}: {bake}"),
            })
            .collect();
        if parts.len() < 2 {
            parts.push(self.content.words(self.packs()));
        }
        parts.join("; ")
    }

    /// Whether JPEGs are packed. Other loaders read no packed ones.
    pub(crate) fn packs(&self) -> bool {
        self.container == Container::Shards
    }

    /// The extension of the files.
    pub(crate) fn extension(&self) -> &'static str {
        match self.container {
            Container::Shards => stokehold_storage::shard::EXTENSION,
            Container::Tar => "tar",
        }
    }
}

impl fmt::Display for Bake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.ops.iter().map(Op::name).collect();
        let upright = if self.exif { "turned upright, " } else { "" };
        write!(
            f,
            "{upright}{} performed, JPEG quality {}",
            names.join(", "),
            self.quality
        )
    }
}

impl Content {
    /// What is done, in words.
    pub(crate) fn words(&self, packs: bool) -> String {
        let metadata = |metadata: &Metadata| match metadata {
            Metadata::Keep => "metadata kept",
            Metadata::Drop => "metadata dropped",
        };
        match self {
            Self::Lossless(kept) => {
                let done = if packs { "packed" } else { "transcoded" };
                format!("JPEGs {done} without loss, {}", metadata(kept))
            }
            Self::Raw => "files as they are".to_owned(),
            Self::Resized {
                size,
                quality,
                metadata: kept,
            } => {
                let (side, length) = match size {
                    Size::LongerSide(length) => ("longer", length),
                    Size::ShorterSide(length) => ("shorter", length),
                };
                let packed = if packs { ", JPEGs packed" } else { "" };
                format!(
                    "lossy: {side} side at most {length} pixels, JPEG quality {quality}; smaller images without loss, {}{packed}",
                    metadata(kept)
                )
            }
        }
    }
}

impl Size {
    /// The reduced size of an image that exceeds the limit; `None` if it does not.
    pub(crate) fn shrink(self, width: u32, height: u32) -> Option<(u32, u32)> {
        let (side, length) = match self {
            Self::LongerSide(length) => (width.max(height), length),
            Self::ShorterSide(length) => (width.min(height), length),
        };
        // To the nearest, half up. At least one pixel remains.
        let scaled = |pixels: u32| {
            let (pixels, length, side) = (u64::from(pixels), u64::from(length), u64::from(side));
            ((2 * pixels * length + side) / (2 * side)).max(1) as u32
        };
        (side > length).then(|| (scaled(width), scaled(height)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_shrink_in_proportion_and_never_grow() {
        assert_eq!(Size::LongerSide(256).shrink(500, 375), Some((256, 192)));
        assert_eq!(Size::LongerSide(256).shrink(375, 500), Some((192, 256)));
        assert_eq!(Size::ShorterSide(256).shrink(500, 375), Some((341, 256)));
        assert_eq!(Size::ShorterSide(375).shrink(500, 375), None);
        assert_eq!(Size::LongerSide(501).shrink(500, 375), None);
        assert_eq!(Size::LongerSide(1).shrink(60_000, 2), Some((1, 1)));
    }
}
