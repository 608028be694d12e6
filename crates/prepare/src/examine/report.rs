//! What was found in the files of a data set, summed up.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use stokehold_pipeline::{Format, ImageInfo};
use stokehold_storage::IGNORE;

/// The result for one file.
#[derive(Debug)]
pub(crate) struct Image {
    /// `train` or `val`.
    pub part: &'static str,
    /// Its class.
    pub class: u32,
    /// Its path below the folder.
    pub path: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// Its properties, or why it or its mask is not an image.
    pub content: Result<ImageInfo, String>,
    /// How many pixels of each class its mask has, for those that it has.
    pub pixels: Vec<(u8, u64)>,
}

/// What [`examine()`](crate::examine()) found, and its JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    /// The folder.
    pub path: String,
    /// All images.
    pub images: usize,
    /// Those to train on.
    pub train: usize,
    /// Those to validate with.
    pub val: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Width and height of the smallest, the median and the largest valid image, by number of pixels.
    pub size: Option<Spread<[u32; 2]>>,
    /// Bytes per file, over all files that are not broken.
    pub file_bytes: Option<Spread<u64>>,
    /// How many files have each format.
    pub formats: BTreeMap<Format, usize>,
    /// By colour mode and bits per channel, such as "rgb" or "grey 16-bit".
    pub colors: BTreeMap<String, usize>,
    /// Files whose extension does not match their content; the content decides.
    pub misnamed: usize,
    /// Files with an EXIF orientation other than upright.
    pub exif_rotated: usize,
    /// Each class; none of images with masks.
    pub classes: Vec<Class>,
    /// Of images with masks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Pixels>,
    /// Files that training could not use.
    pub broken: Vec<Broken>,
    /// What its owner may not know, as [`Dataset::remarks`](stokehold_storage::Dataset::remarks) says it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The smallest, the median and the largest.
#[derive(Debug, Clone, Serialize)]
pub struct Spread<T> {
    /// The smallest.
    pub min: T,
    /// The median; of an even number, the lower of the middle two.
    pub median: T,
    /// The largest.
    pub max: T,
}

/// The numbers of one class.
#[derive(Debug, Clone, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Images to train on.
    pub train: usize,
    /// Images to validate with.
    pub val: usize,
    /// Bytes of its files.
    pub bytes: u64,
    /// As of all images.
    pub size: Option<Spread<[u32; 2]>>,
    /// Broken files.
    pub broken: usize,
}

/// The classes of pixels, of all masks that are not broken.
#[derive(Debug, Clone, Serialize)]
pub struct Pixels {
    /// Pixels of all masks.
    pub total: u64,
    /// Each class.
    pub classes: Vec<PixelClass>,
    /// Pixels that are of no class.
    pub ignored: u64,
    /// Of the total.
    pub ignored_share: f64,
}

/// The numbers of one class of pixels.
#[derive(Debug, Clone, Serialize)]
pub struct PixelClass {
    /// Its name.
    pub name: String,
    /// Its pixels.
    pub pixels: u64,
    /// Of the total.
    pub share: f64,
    /// Those of images to train on.
    pub train: u64,
    /// Those of images to validate with.
    pub val: u64,
    /// The images that have pixels of this class.
    pub images: usize,
}

/// A file that cannot be decoded.
#[derive(Debug, Clone, Serialize)]
pub struct Broken {
    /// Its path below the folder.
    pub path: String,
    /// Its class's name.
    pub class: String,
    /// `train` or `val`.
    pub part: &'static str,
    /// Why it cannot be decoded.
    pub reason: String,
}

impl Examination {
    /// Summarises the images of the data set in `dir`.
    pub(crate) fn new(dir: &Path, names: &[String], images: Vec<Image>) -> Self {
        let whole: Vec<(&Image, &ImageInfo)> = images
            .iter()
            .filter_map(|image| Some((image, image.content.as_ref().ok()?)))
            .collect();
        let mut formats = BTreeMap::new();
        let mut colors = BTreeMap::new();
        for (_, info) in &whole {
            *formats.entry(info.format).or_insert(0) += 1;
            *colors.entry(colour(info)).or_insert(0) += 1;
        }
        let classes = (0u32..)
            .zip(names)
            .map(|(class, name)| Class::new(name, images.iter().filter(|image| image.class == class)))
            .collect();
        let in_part = |part| images.iter().filter(|image| image.part == part).count();
        Self {
            path: dir.display().to_string(),
            images: images.len(),
            train: in_part("train"),
            val: in_part("val"),
            bytes: images.iter().map(|image| image.bytes).sum(),
            size: sizes(whole.iter().map(|(_, info)| *info)),
            file_bytes: spread(whole.iter().map(|(image, _)| image.bytes).collect()),
            formats,
            colors,
            misnamed: whole
                .iter()
                .filter(|(image, info)| !has_extension_of(&image.path, info.format))
                .count(),
            exif_rotated: whole.iter().filter(|(_, info)| info.orientation != 1).count(),
            classes,
            pixels: None,
            remarks: Vec::new(),
            broken: images
                .iter()
                .filter_map(|image| {
                    Some(Broken {
                        path: image.path.clone(),
                        class: names[image.class as usize].clone(),
                        part: image.part,
                        reason: image.content.as_ref().err()?.clone(),
                    })
                })
                .collect(),
        }
    }
}

impl Examination {
    /// Summarises images with masks; `names` are the classes of their pixels.
    pub(crate) fn of_pairs(dir: &Path, names: &[String], images: Vec<Image>) -> Self {
        let pixels = Pixels::new(names, &images);
        Self {
            classes: Vec::new(),
            pixels: Some(pixels),
            ..Self::new(dir, &[String::new()], images)
        }
    }
}

impl Pixels {
    fn new(names: &[String], images: &[Image]) -> Self {
        let of_class = |class: u8, part: Option<&str>| -> u64 {
            let images = images
                .iter()
                .filter(|image| part.is_none_or(|part| image.part == part));
            let counts = images.flat_map(|image| &image.pixels);
            counts
                .filter(|(counted, _)| *counted == class)
                .map(|(_, count)| count)
                .sum()
        };
        let total = images
            .iter()
            .flat_map(|image| &image.pixels)
            .map(|(_, count)| count)
            .sum();
        let share = |pixels: u64| pixels as f64 / (total as f64).max(1.0);
        let classes = (0..).zip(names).map(|(class, name)| {
            let pixels = of_class(class, None);
            let has = |image: &&Image| image.pixels.iter().any(|(counted, _)| *counted == class);
            PixelClass {
                name: name.clone(),
                pixels,
                share: share(pixels),
                train: of_class(class, Some("train")),
                val: of_class(class, Some("val")),
                images: images.iter().filter(has).count(),
            }
        });
        let ignored = of_class(IGNORE, None);
        Self {
            total,
            classes: classes.collect(),
            ignored,
            ignored_share: share(ignored),
        }
    }
}

impl Class {
    fn new<'a>(name: &str, images: impl Iterator<Item = &'a Image>) -> Self {
        let images: Vec<&Image> = images.collect();
        let in_part = |part| images.iter().filter(|image| image.part == part).count();
        Self {
            name: name.to_owned(),
            train: in_part("train"),
            val: in_part("val"),
            bytes: images.iter().map(|image| image.bytes).sum(),
            size: sizes(images.iter().filter_map(|image| image.content.as_ref().ok())),
            broken: images.iter().filter(|image| image.content.is_err()).count(),
        }
    }
}

fn sizes<'a>(infos: impl Iterator<Item = &'a ImageInfo>) -> Option<Spread<[u32; 2]>> {
    let by_pixels = infos.map(|info| {
        (
            u64::from(info.width) * u64::from(info.height),
            [info.width, info.height],
        )
    });
    let Spread { min, median, max } = spread(by_pixels.collect())?;
    Some(Spread {
        min: min.1,
        median: median.1,
        max: max.1,
    })
}

/// Of an even number of values, the median is the lower of the middle two.
fn spread<T: Ord + Copy>(mut values: Vec<T>) -> Option<Spread<T>> {
    values.sort_unstable();
    let (&min, &max) = (values.first()?, values.last()?);
    Some(Spread {
        min,
        median: values[(values.len() - 1) / 2],
        max,
    })
}

fn colour(info: &ImageInfo) -> String {
    use stokehold_pipeline::ColorMode::{Cmyk, Grey, GreyAlpha, Palette, Rgb, Rgba, Ycck};
    let mode = match info.color {
        Grey => "grey",
        GreyAlpha => "grey with alpha",
        Rgb => "rgb",
        Rgba => "rgb with alpha",
        Palette => "palette",
        Cmyk => "cmyk",
        Ycck => "ycck",
    };
    if info.bits == 16 {
        format!("{mode} 16-bit")
    } else {
        mode.to_owned()
    }
}

fn has_extension_of(path: &str, format: Format) -> bool {
    let path = path.to_ascii_lowercase();
    match format {
        Format::Jpeg => path.ends_with(".jpg") || path.ends_with(".jpeg"),
        Format::Png => path.ends_with(".png"),
        Format::WebP => path.ends_with(".webp"),
    }
}
