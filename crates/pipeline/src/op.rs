//! The operations, with torchvision's names, parameters and defaults.
//!
//! Each operation is plain data. Parameters with a default may be omitted in a file; an unknown name is an error.

use serde::{Deserialize, Serialize};

pub use crate::filter::Filter;

/// The JSON schema of an operation ([`Op`]), for forms: names, texts, defaults. [`Pipeline::check`](crate::Pipeline::check) says what is allowed.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Op).to_value()
}

/// One operation of a [`Pipeline`](crate::Pipeline); in a file the field `type` names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum Op {
    /// Mirrors left and right with probability `p`.
    RandomHorizontalFlip(RandomFlip),
    /// Mirrors top and bottom with probability `p`.
    RandomVerticalFlip(RandomFlip),
    /// Rotates by an angle drawn evenly from a range.
    RandomRotation(RandomRotation),
    /// Turns, moves, scales and shears by drawn numbers, within the image's size.
    RandomAffine(RandomAffine),
    /// Changes the perspective with probability `p`: each corner moves inwards by a drawn distance.
    RandomPerspective(RandomPerspective),
    /// Cuts out a random area of random aspect ratio and resizes it.
    RandomResizedCrop(RandomResizedCrop),
    /// Resizes, antialiased.
    Resize(Resize),
    /// Cuts out the centre.
    CenterCrop(CenterCrop),
    /// Cuts out a rectangle at a random place.
    RandomCrop(RandomCrop),
    /// Resizes to a size that is drawn evenly from a range.
    RandomResize(RandomResize),
    /// Resizes the shorter edge to one of several sizes, drawn evenly.
    RandomShortestSize(RandomShortestSize),
    /// Resizes to a drawn share of the largest size that fits a target (Ghiasi et al., "Simple Copy-Paste is a Strong Data
    /// Augmentation Method for Instance Segmentation", 2021).
    ScaleJitter(ScaleJitter),
    /// Adds borders.
    Pad(Pad),
    /// Puts the image on a larger canvas at a drawn place, with probability `p` (Liu et al., "SSD: Single Shot MultiBox
    /// Detector", 2016).
    RandomZoomOut(RandomZoomOut),
    /// Changes brightness, contrast, saturation and hue by drawn factors, in a drawn order.
    ColorJitter(ColorJitter),
    /// Changes brightness, contrast, saturation, hue and the order of the channels, each with probability `p` and by a drawn
    /// factor (Liu et al., "SSD: Single Shot MultiBox Detector", 2016).
    RandomPhotometricDistort(RandomPhotometricDistort),
    /// Puts red, green and blue in a drawn order, every order as often as the others.
    RandomChannelPermutation,
    /// Replaces colour by luminance in all three channels.
    Grayscale,
    /// Replaces colour by luminance in all three channels, with probability `p`.
    RandomGrayscale(RandomGrayscale),
    /// Inverts every level, with probability `p`: 255 less the level.
    RandomInvert(RandomChance),
    /// Keeps only the highest bits of every level, with probability `p`.
    RandomPosterize(RandomPosterize),
    /// Inverts the levels at or above a threshold, with probability `p`.
    RandomSolarize(RandomSolarize),
    /// Stretches the levels of each channel to 0..=255, with probability `p`.
    RandomAutocontrast(RandomChance),
    /// Equalises the histogram of each channel, with probability `p`.
    RandomEqualize(RandomChance),
    /// Blends with a smoothed image, or away from it, with probability `p`.
    RandomAdjustSharpness(RandomAdjustSharpness),
    /// Two changes of colour or geometry by a learned policy: one of 25 pairs, each change with its own probability
    /// and magnitude (Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2019).
    AutoAugment(AutoAugment),
    /// Several changes of colour or geometry, each drawn evenly from 14, all of one magnitude (Cubuk et al.,
    /// "RandAugment: Practical automated data augmentation with a reduced search space", 2020).
    RandAugment(RandAugment),
    /// One change of colour or geometry, drawn evenly from 14, of a drawn magnitude (Müller and Hutter, "TrivialAugment:
    /// Tuning-free Yet State-of-the-Art Data Augmentation", 2021).
    TrivialAugmentWide(TrivialAugmentWide),
    /// Several chains of changes of colour or geometry, mixed with each other and with the image by drawn shares (Hendrycks et
    /// al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", 2020).
    AugMix(AugMix),
    /// Blurs with a Gaussian of drawn sigma.
    GaussianBlur(GaussianBlur),
    /// Morphological dilation: every pixel becomes the maximum of its square neighbourhood, channel by channel.
    Dilation(Dilation),
    /// Fills a random rectangle; stands after [`Op::ToFloat`].
    RandomErasing(RandomErasing),
    /// Adds normal noise, drawn for every value; stands after [`Op::ToFloat`].
    GaussianNoise(GaussianNoise),
    /// From bytes 0..=255 to floats 0.0..=1.0 (torchvision's `ToTensor`).
    ToFloat,
    /// Subtracts a mean and divides by a standard deviation per channel; stands after [`Op::ToFloat`].
    Normalize(Normalize),
    /// Performs operations several times, with draws of their own each time.
    Repeat(Repeat),
    /// Performs all operations of a list with probability `p`, or none.
    RandomApply(RandomApply),
    /// Performs one operation of a list, drawn by its weight.
    RandomChoice(RandomChoice),
    /// Performs all operations of a list in a drawn order, every order as often as the others.
    RandomOrder(RandomOrder),
}

/// Mirrors with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomFlip {
    /// Probability, 0..=1.
    pub p: f64,
}

impl Default for RandomFlip {
    fn default() -> Self {
        RandomFlip { p: 0.5 }
    }
}

/// How to interpolate between the pixels that an affine map or a perspective meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose area contains the point.
    Nearest,
    /// Linear between neighbours.
    #[default]
    Bilinear,
    /// Cubic (a = -0.5) between neighbours.
    Bicubic,
}

/// A colour to fill with: one level for all channels, or red, green and blue, 0..=255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Fill {
    /// One level for all channels.
    Level(u8),
    /// Red, green, blue.
    Rgb([u8; 3]),
}

impl Default for Fill {
    fn default() -> Self {
        Fill::Level(0)
    }
}

impl Fill {
    /// Red, green and blue.
    pub fn rgb(self) -> [u8; 3] {
        match self {
            Fill::Level(v) => [v; 3],
            Fill::Rgb(rgb) => rgb,
        }
    }
}

/// A range, given as `[low, high]` or as one number, whose meaning depends on the parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Span {
    /// One number.
    One(f64),
    /// From low to high.
    Range([f64; 2]),
}

/// Rotates by a drawn angle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Range of the angle in degrees, counter-clockwise; one number `d` means `[-d, d]`.
    pub degrees: Span,
    /// Default: nearest, as torchvision's.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Grow the image so that nothing is cut off.
    #[serde(default)]
    pub expand: bool,
    /// The centre of rotation, `[x, y]` in pixels; default: the image's centre.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// The colour where the image does not reach.
    #[serde(default)]
    pub fill: Fill,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

impl RandomRotation {
    /// Angles from `-degrees` to `degrees`, the rest default.
    pub fn new(degrees: f64) -> RandomRotation {
        let degrees = Span::One(degrees);
        RandomRotation {
            degrees,
            interpolation: nearest(),
            expand: false,
            center: None,
            fill: Fill::default(),
        }
    }
}

/// Turns, moves, scales and shears by drawn numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Range of the angle in degrees, clockwise; one number `d` means `[-d, d]`.
    pub degrees: Span,
    /// How far the image moves at most to either side and up or down, as shares of its width and height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<[f64; 2]>,
    /// Range of how much larger things get.
    #[serde(default = "same_scale")]
    pub scale: [f64; 2],
    /// Range of the shear in degrees: along x, or along x and along y; one number `d` means `[-d, d]` along x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shear: Option<Shear>,
    /// Default: nearest, as torchvision's.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    #[serde(default)]
    pub fill: Fill,
    /// The point that turning, scaling and shearing leave where it is, `[x, y]` in pixels; default: the image's centre.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
}

fn same_scale() -> [f64; 2] {
    [1.0, 1.0]
}

/// Changes the perspective with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomPerspective {
    /// How far a corner moves at most: this share of half the width and of half the height.
    pub distortion_scale: f64,
    /// Probability, 0..=1.
    pub p: f64,
    /// Default: bilinear.
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    pub fill: Fill,
}

impl Default for RandomPerspective {
    fn default() -> Self {
        RandomPerspective {
            distortion_scale: 0.5,
            p: half(),
            interpolation: Interpolation::Bilinear,
            fill: Fill::default(),
        }
    }
}

/// Ranges of a shear in degrees.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Shear {
    /// One number `d`: `[-d, d]` along x.
    One(f64),
    /// Low and high along x.
    X([f64; 2]),
    /// Low and high along x, low and high along y.
    Both([f64; 4]),
}

impl Shear {
    /// Low and high along x and along y.
    pub fn ranges(self) -> [[f64; 2]; 2] {
        match self {
            Shear::One(d) => [[-d, d], [0.0; 2]],
            Shear::X(x) => [x, [0.0; 2]],
            Shear::Both([a, b, c, d]) => [[a, b], [c, d]],
        }
    }
}

/// A size: one number, or `[height, width]` as torchvision orders them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Size {
    /// One number: a square, or the shorter edge if the operation keeps the aspect ratio.
    Side(u32),
    /// Height, then width.
    HeightWidth([u32; 2]),
}

impl Size {
    /// Height and width; one number means a square.
    pub fn height_width(self) -> [u32; 2] {
        match self {
            Size::Side(side) => [side, side],
            Size::HeightWidth(both) => both,
        }
    }
}

/// Cuts out a random area and resizes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Output size.
    pub size: Size,
    /// Range of the crop's share of the image's area; default `[0.08, 1.0]`.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Range of the crop's width over its height; default `[3/4, 4/3]`.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Default: bilinear.
    #[serde(default)]
    pub interpolation: Filter,
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    /// A square of `side` pixels, the rest default.
    pub fn new(side: u32) -> RandomResizedCrop {
        let size = Size::Side(side);
        RandomResizedCrop {
            size,
            scale: default_scale(),
            ratio: default_ratio(),
            interpolation: Filter::Bilinear,
        }
    }
}

/// Resizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// One number resizes the shorter edge to it and keeps the aspect ratio.
    pub size: Size,
    /// Default: bilinear.
    #[serde(default)]
    pub interpolation: Filter,
    /// With one number as size: the limit of the longer edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
}

/// Resizes to a drawn size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomResize {
    /// The smallest length of the shorter edge, in pixels.
    pub min_size: u32,
    /// Lengths are below it, as torchvision's are.
    pub max_size: u32,
    /// Default: bilinear.
    #[serde(default)]
    pub interpolation: Filter,
}

/// Resizes the shorter edge to one of several sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// The lengths of the shorter edge, in pixels, of which one is drawn.
    pub min_size: Sides,
    /// The limit of the longer edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// Default: bilinear.
    #[serde(default)]
    pub interpolation: Filter,
}

/// One length in pixels or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Sides {
    /// One.
    One(u32),
    /// Several.
    Several(Vec<u32>),
}

impl Sides {
    /// All of them.
    pub fn all(&self) -> &[u32] {
        match self {
            Sides::One(side) => std::slice::from_ref(side),
            Sides::Several(sides) => sides,
        }
    }
}

/// Resizes to a drawn share of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// The target, `[width, height]`: torchvision calls it `(height, width)`, and reads it the other way round.
    pub target_size: [u32; 2],
    /// Range of the share; default `[0.1, 2.0]`.
    #[serde(default = "default_scale_range")]
    pub scale_range: [f64; 2],
    /// Default: bilinear.
    #[serde(default)]
    pub interpolation: Filter,
}

fn default_scale_range() -> [f64; 2] {
    [0.1, 2.0]
}

/// Puts the image on a larger canvas with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomZoomOut {
    /// The colour of the canvas.
    pub fill: Fill,
    /// Range of how much longer the canvas's sides are than the image's. A canvas of more than 2^28 pixels is an error: resize
    /// photographs first.
    pub side_range: [f64; 2],
    /// Probability, 0..=1.
    pub p: f64,
}

impl Default for RandomZoomOut {
    fn default() -> Self {
        RandomZoomOut {
            fill: Fill::default(),
            side_range: [1.0, 4.0],
            p: half(),
        }
    }
}

/// Cuts out the centre, and pads with black if the image is smaller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Output size; one number means a square.
    pub size: Size,
}

/// Borders: one width for all, `[left and right, top and bottom]`, or `[left, top, right, bottom]`, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Padding {
    /// All four.
    All(u32),
    /// Left and right, top and bottom.
    Two([u32; 2]),
    /// Left, top, right, bottom.
    Four([u32; 4]),
}

impl Padding {
    /// Left, top, right, bottom.
    pub fn sides(self) -> [u32; 4] {
        match self {
            Padding::All(p) => [p; 4],
            Padding::Two([x, y]) => [x, y, x, y],
            Padding::Four(sides) => sides,
        }
    }
}

/// The contents of a border.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PaddingMode {
    /// The fill colour.
    #[default]
    Constant,
    /// The nearest pixel of the image.
    Edge,
    /// The image mirrored at its last pixel, which is not repeated.
    Reflect,
    /// The image mirrored at its edge, the last pixel repeated.
    Symmetric,
}

/// Cuts out a rectangle at a random place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Output size; one number means a square.
    pub size: Size,
    /// Borders added first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
    /// Pad further if the image is smaller than the crop; without it such an image is an error.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Colour of constant borders.
    #[serde(default)]
    pub fill: Fill,
    /// The contents of the borders.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

/// Adds borders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Widths of the borders.
    pub padding: Padding,
    /// Colour of constant borders.
    #[serde(default)]
    pub fill: Fill,
    /// The contents of the borders.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

/// Changes colours by drawn factors. One number `v` means `[max(0, 1 - v), 1 + v]`, for hue `[-v, v]`; 0 leaves the
/// property alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Factor of brightness, at least 0.
    pub brightness: Span,
    /// Factor of contrast, at least 0.
    pub contrast: Span,
    /// Factor of saturation, at least 0.
    pub saturation: Span,
    /// Shift of hue in turns, -0.5..=0.5.
    pub hue: Span,
}

impl Default for ColorJitter {
    fn default() -> Self {
        let none = Span::One(0.0);
        ColorJitter {
            brightness: none,
            contrast: none,
            saturation: none,
            hue: none,
        }
    }
}

/// Changes colours, each property with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomPhotometricDistort {
    /// Factor of brightness, at least 0.
    pub brightness: [f64; 2],
    /// Factor of contrast, at least 0.
    pub contrast: [f64; 2],
    /// Factor of saturation, at least 0.
    pub saturation: [f64; 2],
    /// Shift of hue in turns, -0.5..=0.5.
    pub hue: [f64; 2],
    /// Probability of each change, 0..=1.
    pub p: f64,
}

impl Default for RandomPhotometricDistort {
    fn default() -> Self {
        RandomPhotometricDistort {
            brightness: [0.875, 1.125],
            contrast: [0.5, 1.5],
            saturation: [0.5, 1.5],
            hue: [-0.05, 0.05],
            p: half(),
        }
    }
}

/// Makes grey with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomGrayscale {
    /// Probability, 0..=1.
    pub p: f64,
}

impl Default for RandomGrayscale {
    fn default() -> Self {
        RandomGrayscale { p: 0.1 }
    }
}

/// Changes levels with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomChance {
    /// Probability, 0..=1.
    pub p: f64,
}

impl Default for RandomChance {
    fn default() -> Self {
        RandomChance { p: half() }
    }
}

fn half() -> f64 {
    0.5
}

/// Keeps the highest bits with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// Bits to keep of each level, from the highest on.
    pub bits: u32,
    /// Probability, 0..=1.
    #[serde(default = "half")]
    pub p: f64,
}

/// Inverts high levels with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// Levels at or above it are inverted.
    pub threshold: f64,
    /// Probability, 0..=1.
    #[serde(default = "half")]
    pub p: f64,
}

/// Changes sharpness with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// 0 is the smoothed image, 1 the image itself, 2 twice as sharp.
    pub sharpness_factor: f64,
    /// Probability, 0..=1.
    #[serde(default = "half")]
    pub p: f64,
}

/// Which pairs of changes [`AutoAugment`] draws from: those learned on ImageNet, CIFAR-10 or SVHN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Mostly colour.
    #[default]
    Imagenet,
    /// Mostly colour.
    Cifar10,
    /// Mostly geometry and inversion.
    Svhn,
}

/// Performs a drawn pair of changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AutoAugment {
    /// The data on which the pairs were learned.
    pub policy: Policy,
    /// How sheared, moved and rotated images are interpolated; default: nearest, as torchvision's.
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    pub fill: Fill,
}

impl Default for AutoAugment {
    fn default() -> Self {
        AutoAugment {
            policy: Policy::Imagenet,
            interpolation: nearest(),
            fill: Fill::default(),
        }
    }
}

/// Performs drawn changes of one magnitude.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// The number of changes, one after the other.
    pub num_ops: u32,
    /// The number of their magnitude, from 0 (weakest) to one below `num_magnitude_bins`.
    pub magnitude: u32,
    /// The number of magnitudes there are.
    pub num_magnitude_bins: u32,
    /// How sheared, moved and rotated images are interpolated; default: nearest, as torchvision's.
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    pub fill: Fill,
}

impl Default for RandAugment {
    fn default() -> Self {
        RandAugment {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: nearest(),
            fill: Fill::default(),
        }
    }
}

/// Performs one drawn change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TrivialAugmentWide {
    /// The number of magnitudes there are, of which one is drawn.
    pub num_magnitude_bins: u32,
    /// How sheared, moved and rotated images are interpolated; default: nearest, as torchvision's.
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    pub fill: Fill,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        TrivialAugmentWide {
            num_magnitude_bins: 31,
            interpolation: nearest(),
            fill: Fill::default(),
        }
    }
}

/// Mixes chains of drawn changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AugMix {
    /// How many of the 10 magnitudes a change draws from, from the weakest on.
    pub severity: u32,
    /// The number of chains.
    pub mixture_width: u32,
    /// The number of changes in a chain; -1 draws 1 to 3 for each chain.
    pub chain_depth: i32,
    /// Alpha of the Dirichlet distributions of the shares: 1 makes all shares alike, less gives one chain the most.
    pub alpha: f64,
    /// Draw brightness, colour, contrast and sharpness, too.
    pub all_ops: bool,
    /// How sheared, moved and rotated images are interpolated; default: bilinear.
    pub interpolation: Interpolation,
    /// The colour where the image does not reach.
    pub fill: Fill,
}

impl Default for AugMix {
    fn default() -> Self {
        AugMix {
            severity: 3,
            mixture_width: 3,
            chain_depth: -1,
            alpha: 1.0,
            all_ops: true,
            interpolation: Interpolation::Bilinear,
            fill: Fill::default(),
        }
    }
}

/// Blurs with a Gaussian.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Side of the kernel in pixels, odd: one number, or `[width, height]`.
    pub kernel_size: KernelSize,
    /// Sigma in pixels, above 0: drawn evenly from a range, or one fixed number. Default `[0.1, 2.0]`.
    #[serde(default = "default_sigma")]
    pub sigma: Span,
}

fn default_sigma() -> Span {
    Span::Range([0.1, 2.0])
}

/// The sides of a kernel in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum KernelSize {
    /// Both sides.
    Side(u32),
    /// Width, height.
    WidthHeight([u32; 2]),
}

impl KernelSize {
    /// Width and height.
    pub fn width_height(self) -> [u32; 2] {
        match self {
            KernelSize::Side(side) => [side, side],
            KernelSize::WidthHeight(both) => both,
        }
    }
}

/// Morphological dilation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Dilation {
    /// Side of the square neighbourhood in pixels, odd; default 3.
    pub kernel_size: u32,
}

impl Default for Dilation {
    fn default() -> Self {
        Dilation { kernel_size: 3 }
    }
}

/// Fills a random rectangle of the float image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability, 0..=1.
    pub p: f64,
    /// Range of the rectangle's share of the area.
    pub scale: [f64; 2],
    /// Range of its height over its width, as torchvision defines it.
    pub ratio: [f64; 2],
    /// The fill value.
    pub value: EraseValue,
}

impl Default for RandomErasing {
    fn default() -> Self {
        RandomErasing {
            p: 0.5,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: EraseValue::Level(0.0),
        }
    }
}

/// The contents of an erased rectangle: a number, three of them, or `"random"` for standard normal noise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum EraseValue {
    /// One number for all channels.
    Level(f32),
    /// Red, green, blue.
    Rgb([f32; 3]),
    /// A word; the only one is `random`.
    Noise(Noise),
}

/// The word `random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Noise {
    /// Standard normal noise, every value drawn for itself.
    Random,
}

/// Adds normal noise to the float image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct GaussianNoise {
    /// The noise's mean; the image's values are 0.0 to 1.0 before `Normalize`.
    pub mean: f64,
    /// Its standard deviation.
    pub sigma: f64,
    /// Limit the sums to 0.0 to 1.0.
    pub clip: bool,
}

impl Default for GaussianNoise {
    fn default() -> Self {
        GaussianNoise {
            mean: 0.0,
            sigma: 0.1,
            clip: true,
        }
    }
}

/// `(value - mean) / std` per channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Normalize {
    /// Mean of red, green, blue; default ImageNet's.
    pub mean: [f32; 3],
    /// Standard deviation of red, green, blue, not 0; default ImageNet's.
    pub std: [f32; 3],
}

impl Default for Normalize {
    fn default() -> Self {
        Normalize {
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
        }
    }
}

/// Performs operations several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// The number of times.
    pub times: u32,
    /// The operations.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
}

/// Performs operations with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    /// Probability, 0..=1.
    #[serde(default = "half")]
    pub p: f64,
    /// The operations; `ToFloat` cannot be among them.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
}

/// Performs one operation of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomChoice {
    /// The weight of each operation: a share of their sum. Default: the same for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<Vec<f64>>,
    /// The operations; `ToFloat` cannot be among them. A `Repeat` counts as one.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
}

/// Performs operations in a drawn order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RandomOrder {
    /// The operations; `ToFloat` cannot be among them. A `Repeat` counts as one.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
}
