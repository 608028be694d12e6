//! The output of `stokehold dataset info`, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use stokehold_pipeline::{Format, ImageInfo};
use stokehold_storage::IGNORE;

use crate::terminal::cell;

/// The result for one file.
pub struct Image {
    /// `train` or `val`.
    pub part: &'static str,
    pub class: u32,
    pub path: String,
    pub bytes: u64,
    /// Its properties, or why it or its mask is not an image.
    pub content: Result<ImageInfo, String>,
    /// How many pixels of each class its mask has, for those that it has.
    pub pixels: Vec<(u8, u64)>,
}

/// The whole report, and its JSON form.
#[derive(Serialize)]
pub struct Report {
    path: String,
    images: usize,
    train: usize,
    val: usize,
    bytes: u64,
    /// Width and height of the smallest, the median and the largest valid image, by number of pixels.
    size: Option<Spread<[u32; 2]>>,
    /// Bytes per file, over all files that are not broken.
    file_bytes: Option<Spread<u64>>,
    formats: BTreeMap<Format, usize>,
    /// By colour mode and bits per channel, such as "rgb" or "grey 16-bit".
    colors: BTreeMap<String, usize>,
    /// Files whose extension does not match their content; the content decides.
    misnamed: usize,
    /// Files with an EXIF orientation other than upright.
    exif_rotated: usize,
    classes: Vec<Class>,
    /// Of images with masks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pixels: Option<Pixels>,
    pub broken: Vec<Broken>,
}

/// The smallest, the median and the largest.
#[derive(Serialize)]
struct Spread<T> {
    min: T,
    median: T,
    max: T,
}

/// The numbers of one class.
#[derive(Serialize)]
struct Class {
    name: String,
    train: usize,
    val: usize,
    bytes: u64,
    size: Option<Spread<[u32; 2]>>,
    broken: usize,
}

/// The classes of pixels, of all masks that are not broken.
#[derive(Serialize)]
struct Pixels {
    /// Pixels of all masks.
    total: u64,
    classes: Vec<PixelClass>,
    ignored: u64,
    /// Of the total.
    ignored_share: f64,
}

/// The numbers of one class of pixels.
#[derive(Serialize)]
struct PixelClass {
    name: String,
    pixels: u64,
    /// Of the total.
    share: f64,
    train: u64,
    val: u64,
    /// The images that have pixels of this class.
    images: usize,
}

/// A file that cannot be decoded.
#[derive(Serialize)]
pub struct Broken {
    path: String,
    class: String,
    part: &'static str,
    reason: String,
}

impl Report {
    /// Summarises the images of the data set in `dir`.
    pub fn new(dir: &Path, names: &[String], images: Vec<Image>) -> Self {
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

impl Report {
    /// Summarises images with masks; `names` are the classes of their pixels.
    pub fn of_pairs(dir: &Path, names: &[String], images: Vec<Image>) -> Self {
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

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Jpeg => "jpeg",
        Format::Png => "png",
        Format::WebP => "webp",
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            train,
            val,
            bytes,
            ..
        } = self;
        let size = si(*bytes);
        match &self.pixels {
            Some(Pixels { classes, .. }) => {
                let classes = classes.len();
                writeln!(
                    f,
                    "{path}: {train} training and {val} validation images with masks of {classes} classes, {size}"
                )?;
            }
            None => {
                let classes = self.classes.len();
                writeln!(
                    f,
                    "{path}: {train} training and {val} validation images in {classes} classes, {size}"
                )?;
            }
        }
        writeln!(f, "\n{:<10}{:>12}{:>12}{:>12}", "", "min", "median", "max")?;
        if let Some(Spread { min, median, max }) = &self.size {
            writeln!(
                f,
                "{:<10}{:>12}{:>12}{:>12}",
                "size",
                by(min),
                by(median),
                by(max)
            )?;
        }
        if let Some(Spread { min, median, max }) = &self.file_bytes {
            writeln!(
                f,
                "{:<10}{:>12}{:>12}{:>12}",
                "file",
                si(*min),
                si(*median),
                si(*max)
            )?;
        }
        let formats = self
            .formats
            .iter()
            .map(|(format, count)| (format_name(*format), *count));
        writeln!(f, "\nformats   {}", counted(formats))?;
        writeln!(
            f,
            "colours   {}",
            counted(
                self.colors
                    .iter()
                    .map(|(colour, count)| (colour.as_str(), *count))
            )
        )?;
        if self.misnamed > 0 {
            writeln!(
                f,
                "misnamed  {}, by extension another format than by content, which decides",
                self.misnamed
            )?;
        }
        if self.exif_rotated > 0 {
            writeln!(f, "rotated   {} by EXIF, which --exif applies", self.exif_rotated)?;
        }
        match &self.pixels {
            Some(pixels) => pixels.fmt(f)?,
            None => self.fmt_classes(f)?,
        }
        self.fmt_broken(f)
    }
}

impl Report {
    fn fmt_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .classes
            .iter()
            .map(|class| cell(&class.name).chars().count())
            .max()
            .unwrap_or(0)
            .max(5)
            + 2;
        let head = ["train", "val", "bytes", "median size", "broken"];
        write!(f, "\n{:<width$}", "class")?;
        writeln!(
            f,
            "{:>8}{:>8}{:>12}{:>14}{:>8}",
            head[0], head[1], head[2], head[3], head[4]
        )?;
        for class in &self.classes {
            let size = class
                .size
                .as_ref()
                .map_or_else(|| "-".to_owned(), |size| by(&size.median));
            write!(
                f,
                "{:<width$}{:>8}{:>8}",
                cell(&class.name),
                class.train,
                class.val
            )?;
            writeln!(f, "{:>12}{size:>14}{:>8}", si(class.bytes), class.broken)?;
        }
        let single: Vec<String> = self
            .classes
            .iter()
            .filter(|class| class.train == 1)
            .map(|class| cell(&class.name))
            .collect();
        if !single.is_empty() {
            writeln!(f, "\nonly one training image: {}", single.join(", "))?;
        }
        Ok(())
    }

    fn fmt_broken(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.broken.len() {
            0 => return writeln!(f, "\nno broken files"),
            1 => writeln!(f, "\n1 broken file:")?,
            count => writeln!(f, "\n{count} broken files:")?,
        }
        for Broken { path, reason, .. } in &self.broken {
            writeln!(f, "  {}: {reason}", cell(path))?;
        }
        Ok(())
    }
}

/// A table of the classes.
impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = || self.classes.iter().map(|class| cell(&class.name));
        let width = names().map(|name| name.chars().count()).max().unwrap_or(0).max(7) + 2;
        writeln!(
            f,
            "\n{:<width$}{:>14}{:>9}{:>14}{:>14}{:>8}",
            "class", "pixels", "share", "train", "val", "images"
        )?;
        for (class, name) in self.classes.iter().zip(names()) {
            let share = format!("{:.2} %", 100.0 * class.share);
            writeln!(
                f,
                "{name:<width$}{:>14}{share:>9}{:>14}{:>14}{:>8}",
                class.pixels, class.train, class.val, class.images
            )?;
        }
        let share = format!("{:.2} %", 100.0 * self.ignored_share);
        writeln!(f, "{:<width$}{:>14}{share:>9}", "ignored", self.ignored)?;
        let none = self.classes.iter().filter(|class| class.train == 0);
        let none: Vec<String> = none.map(|class| cell(&class.name)).collect();
        if !none.is_empty() {
            writeln!(f, "\nno pixel to train on: {}", none.join(", "))?;
        }
        Ok(())
    }
}

fn by([width, height]: &[u32; 2]) -> String {
    format!("{width}x{height}")
}

/// Bytes in decimal units.
fn si(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn counted<'a>(counts: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        let _ = write!(text, "{}{name} {count}", if text.is_empty() { "" } else { ", " });
    }
    if text.is_empty() { "-".into() } else { text }
}
