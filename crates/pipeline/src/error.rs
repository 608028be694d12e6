//! Errors of pipelines and of images.

use stokehold_base::fault::Fault;

use crate::pipeline::ONE_SIZE;

/// Why a pipeline cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// No preset has this name.
    #[error("no preset is called '{0}'; there are imagenet-train, imagenet-eval, published and caltech")]
    UnknownPreset(String),
    /// No executor has this name.
    #[error("no executor is called '{0}'; there are per-op, fused and gpu")]
    UnknownExecutor(String),
    /// No sample type has this name.
    #[error("no sample type is called '{0}'; there are f32, f16, bf16 and u8")]
    UnknownSampleType(String),
    /// The text is not a pipeline.
    #[error("{origin}: {reason}")]
    Parse {
        /// The file, or the kind of text.
        origin: String,
        /// The parser's message, with the position.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read the pipeline {path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        reason: std::io::Error,
    },
    /// An operation has a parameter out of range, or is at an invalid position.
    #[error("operation {number} ({name}): {problem}")]
    Operation {
        /// Its index in the pipeline, from 1, with repetitions unrolled.
        number: usize,
        /// Its type.
        name: &'static str,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The output has one size only if all images have one, and theirs is not known here.
    #[error(
        "images come out in different sizes and make no batch, unless all have one size, which is not known here; {ONE_SIZE}"
    )]
    SizeOfImages,
    /// The list as a whole does not make batches.
    #[error("{0}")]
    Shape(String),
    /// The images were prepared with another head than this pipeline's.
    #[error(
        "the images have {performed} behind them, and operation {number} of the pipeline is {there}; give a pipeline that \
         begins as theirs did, or the images that they were made of"
    )]
    OtherHead {
        /// The first operation that differs, from 1.
        number: usize,
        /// What was performed, as JSON.
        performed: String,
        /// What the pipeline has in its place.
        there: String,
    },
}

/// Why bytes could not be decoded to an image.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file is empty.
    #[error("the file is empty (0 bytes)")]
    Empty,
    /// Neither JPEG nor PNG nor WebP; what it is instead.
    #[error("not an image: the content is neither JPEG, PNG nor WebP, {0}")]
    UnknownFormat(String),
    /// A JPEG that does not decode.
    #[error(transparent)]
    Jpeg(#[from] stokehold_jpeg::Error),
    /// A PNG that does not decode, or cannot be written.
    #[error("PNG: {0}")]
    Png(String),
    /// A WebP that does not decode.
    #[error("WebP: {0}")]
    WebP(String),
    /// More pixels than any training image should have.
    #[error(
        "{width}x{height} is over the limit of {limit} pixels (Pillow's limit for decompression bombs), with which \
         a worker needs up to 2.7 GB"
    )]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The limit.
        limit: u64,
    },
    /// The image does not fit the pipeline.
    #[error("{0}")]
    DoesNotFit(String),
    /// The image has not the size that the others have, and nothing in the pipeline makes it so. Sizes are (width, height).
    #[error(
        "it has {}x{} pixels and the first image {}x{}, so it becomes one of {}x{} and not of {}x{}, and the images of a batch have one \
         size; {ONE_SIZE}",
        image.0, image.1, first.0, first.1, becomes.0, becomes.1, output.0, output.1
    )]
    OtherSize {
        /// The image's size.
        image: (u32, u32),
        /// The size that all images were to have.
        first: (u32, u32),
        /// What the pipeline makes of the image.
        becomes: (u32, u32),
        /// What it makes of the others.
        output: (u32, u32),
    },
    /// The image's mask is bad.
    #[error("its mask: {0}")]
    Mask(#[from] MaskError),
}

/// Why bytes could not be decoded to a mask, or the mask is not that of the image.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// The file is empty.
    #[error("the file is empty (0 bytes)")]
    Empty,
    /// Another format, or no image.
    #[error("not a PNG; store masks as PNG, which keeps every value, and not as JPEG, which changes them")]
    NotPng,
    /// A PNG that does not decode.
    #[error("PNG: {0}")]
    Png(String),
    /// As [`ImageError::TooLarge`].
    #[error("{width}x{height} is over the limit of {limit} pixels (Pillow's limit for decompression bombs)")]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The limit.
        limit: u64,
    },
    /// A pixel's value is not in the class table.
    #[error(
        "pixel ({x}, {y}) has the value {value}, which is neither a class's nor ignored; add it to the class table \
         (classes.toml), or repair the mask"
    )]
    UnknownValue {
        /// Column, from 0.
        x: u32,
        /// Row, from 0.
        y: u32,
        /// The grey level or palette index.
        value: u16,
    },
    /// A pixel's colour is not in the class table.
    #[error(
        "pixel ({x}, {y}) has the colour {color:?}, which is neither a class's nor ignored; add it to the class table \
         (classes.toml), or repair the mask"
    )]
    UnknownColor {
        /// Column, from 0.
        x: u32,
        /// Row, from 0.
        y: u32,
        /// Red, green, blue.
        color: [u8; 3],
    },
    /// Colours, where values are expected.
    #[error(
        "it has colours (red, green, blue), and the class table says which values the classes have; give each class its colour \
         in classes.toml, or store the class numbers in a grey PNG"
    )]
    HasColors,
    /// Colours of 16 bits.
    #[error("its colours have 16 bits a channel, and those of a class table have 8; store it with 8")]
    DeepColors,
    /// The mask is not as large as the image.
    #[error(
        "it has {width}x{height} pixels, and the image {image_width}x{image_height}{}; a mask has a pixel for each of its image",
        if *turned { " as its EXIF orientation shows it" } else { "" }
    )]
    OtherSize {
        /// The mask's width.
        width: u32,
        /// The mask's height.
        height: u32,
        /// The image's width.
        image_width: u32,
        /// The image's height.
        image_height: u32,
        /// Whether the image is turned by its EXIF orientation.
        turned: bool,
    },
}

impl Fault for PipelineError {
    fn is_input(&self) -> bool {
        true
    }
}
