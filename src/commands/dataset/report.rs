//! The output of `stokehold dataset info` as a table.

use std::fmt::{self, Write as _};

use stokehold_page::words::cell;
use stokehold_pipeline::Format;
use stokehold_prepare::{Broken, Examination, Pixels, Spread};

/// A report as text.
pub struct Text<'a>(pub &'a Examination);

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Jpeg => "jpeg",
        Format::Png => "png",
        Format::WebP => "webp",
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Examination {
            path,
            train,
            val,
            bytes,
            ..
        } = self.0;
        let size = si(*bytes);
        match &self.0.pixels {
            Some(Pixels { classes, .. }) => {
                let classes = classes.len();
                writeln!(
                    f,
                    "{path}: {train} training and {val} validation images with masks of {classes} classes, {size}"
                )?;
            }
            None => {
                let classes = self.0.classes.len();
                writeln!(
                    f,
                    "{path}: {train} training and {val} validation images in {classes} classes, {size}"
                )?;
            }
        }
        writeln!(f, "\n{:<10}{:>12}{:>12}{:>12}", "", "min", "median", "max")?;
        if let Some(Spread { min, median, max }) = &self.0.size {
            writeln!(
                f,
                "{:<10}{:>12}{:>12}{:>12}",
                "size",
                by(min),
                by(median),
                by(max)
            )?;
        }
        if let Some(Spread { min, median, max }) = &self.0.file_bytes {
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
            .0
            .formats
            .iter()
            .map(|(format, count)| (format_name(*format), *count));
        writeln!(f, "\nformats   {}", counted(formats))?;
        writeln!(
            f,
            "colours   {}",
            counted(
                self.0
                    .colors
                    .iter()
                    .map(|(colour, count)| (colour.as_str(), *count))
            )
        )?;
        if self.0.misnamed > 0 {
            writeln!(
                f,
                "misnamed  {}, by extension another format than by content, which decides",
                self.0.misnamed
            )?;
        }
        if self.0.exif_rotated > 0 {
            writeln!(
                f,
                "rotated   {} by EXIF, which --exif applies",
                self.0.exif_rotated
            )?;
        }
        match &self.0.pixels {
            Some(pixels) => fmt_pixels(pixels, f)?,
            None => self.fmt_classes(f)?,
        }
        self.fmt_broken(f)
    }
}

impl Text<'_> {
    fn fmt_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .0
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
        for class in &self.0.classes {
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
            .0
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
        match self.0.broken.len() {
            0 => return writeln!(f, "\nno broken files"),
            1 => writeln!(f, "\n1 broken file:")?,
            count => writeln!(f, "\n{count} broken files:")?,
        }
        for Broken { path, reason, .. } in &self.0.broken {
            writeln!(f, "  {}: {reason}", cell(path))?;
        }
        Ok(())
    }
}

/// A table of the classes of pixels.
fn fmt_pixels(pixels: &Pixels, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = || pixels.classes.iter().map(|class| cell(&class.name));
    let width = names().map(|name| name.chars().count()).max().unwrap_or(0).max(7) + 2;
    writeln!(
        f,
        "\n{:<width$}{:>14}{:>9}{:>14}{:>14}{:>8}",
        "class", "pixels", "share", "train", "val", "images"
    )?;
    for (class, name) in pixels.classes.iter().zip(names()) {
        let share = format!("{:.2} %", 100.0 * class.share);
        writeln!(
            f,
            "{name:<width$}{:>14}{share:>9}{:>14}{:>14}{:>8}",
            class.pixels, class.train, class.val, class.images
        )?;
    }
    let share = format!("{:.2} %", 100.0 * pixels.ignored_share);
    writeln!(f, "{:<width$}{:>14}{share:>9}", "ignored", pixels.ignored)?;
    let none = pixels.classes.iter().filter(|class| class.train == 0);
    let none: Vec<String> = none.map(|class| cell(&class.name)).collect();
    if !none.is_empty() {
        writeln!(f, "\nno pixel to train on: {}", none.join(", "))?;
    }
    Ok(())
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
