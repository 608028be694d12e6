//! `stokehold predict`: the most probable classes of images, or of their pixels.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};
use stokehold_base::uri;
use stokehold_base::words::{field, plural};
use stokehold_page::words::cell;
use stokehold_pipeline::picture;
use stokehold_storage::{ImageList, Images, Joined, Source, is_image_name, palette};
use stokehold_train::infer::{Flaw, ModelFacts, Outcome, Probability, top_k};

use crate::failure::Usage;
use crate::local::Local;
use crate::model::{self, MachineArgs, ModelArgs};
use crate::terminal::{self, note};
use crate::{damage, files};

/// Say which classes a model sees in images; a segmenter writes a mask for each.
///
/// Images come out in the order of the arguments, images of a folder sorted. An image that cannot be read or decoded
/// is a row with the reason; the others are predicted, and the exit code is 1.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Images: files, folders with images at any depth, prepared shards, or in buckets an object by its name
    /// (s3://bucket/a.jpg) or all images of a prefix (s3://bucket/prefix).
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// How many classes to say of each image, the most probable ones first; at most as many as the model knows.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topk: u32,
    /// Write the masks of a segmenter to this folder: NAME.png for NAME.jpg, of the size that the network sees, with the
    /// numbers of classes as indices of a palette. The rows then say the shares of the pixels.
    #[arg(long, value_name = "DIR")]
    out: Option<Local>,
    /// How to print: table, json (a line for each image) or csv.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

/// Runs the subcommand; the exit code is 1 if there are images without a prediction.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let source = Arc::new(source(&args.images)?);
    let classifier = args.model.open(&args.machine)?;
    let classes = &classifier.facts().classes;
    let k = (args.topk as usize).min(classes.len());
    let loader = classifier.loader(Arc::clone(&source) as _, &args.machine.options())?;
    let masks = match (classifier.facts().arch.segments(), &args.out) {
        (true, Some(folder)) => Some(Masks::new(folder, &*source, classifier.facts())?),
        (true, None) => {
            let reason = "the predictions of a segmenter are masks; give a folder for them: --out DIR";
            return Err(Usage(reason.to_owned()).into());
        }
        (false, Some(_)) => {
            let reason =
                "--out is for the masks of a segmenter, and this model is a classifier; leave it out";
            return Err(Usage(reason.to_owned()).into());
        }
        (false, None) => None,
    };
    let rows = Rows::new(args.format, &*source, classes, k);
    let bar = model::bar(source.len(), "predicting");
    rows.head()?;
    let mut without = 0;
    let mut row = |sample: u64, top: Result<Vec<Probability>, Flaw>| -> Result<(), Box<dyn Error>> {
        without += usize::from(top.is_err());
        bar.suspend(|| rows.row(&source.name(sample as usize), &top))?;
        bar.inc(1);
        Ok(())
    };
    match &masks {
        Some(masks) => {
            for outcome in classifier.masks(&loader) {
                let Outcome { sample, prediction } = outcome?;
                let shares = match prediction {
                    Ok(mask) => Ok(masks.write(sample as usize, &mask, k)?),
                    Err(flaw) => Err(flaw),
                };
                row(sample, shares)?;
            }
        }
        None => {
            for outcome in classifier.outcomes(&loader) {
                let Outcome { sample, prediction } = outcome?;
                row(sample, prediction.map(|logits| top_k(&logits, k)))?;
            }
        }
    }
    bar.finish_and_clear();
    if without == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    note!(
        "no prediction of {} of {}",
        without,
        plural(source.len(), "image")
    );
    Ok(ExitCode::FAILURE)
}

/// All images that the arguments name, in their order.
fn source(arguments: &[PathBuf]) -> Result<Joined, Box<dyn Error>> {
    let mut sources: Vec<Arc<dyn Source>> = Vec::new();
    let mut files = ImageList::default();
    for path in arguments {
        if is_file(path)? {
            files.push(path, 0);
            continue;
        }
        sources.push(Arc::new(std::mem::take(&mut files)));
        let images = Images::unlabelled(path)?;
        damage::warn(&images);
        sources.push(Arc::new(images));
    }
    sources.push(Arc::new(files));
    Ok(Joined::new(sources)?)
}

/// Whether an argument is a file, and no folder or bucket.
fn is_file(path: &Path) -> Result<bool, Usage> {
    if uri::remote(path).is_some() {
        // A bucket says neither of an object nor of a prefix that it is there without being asked: the name has to say which.
        return Ok(is_image_name(path.as_os_str()));
    }
    let what = path
        .metadata()
        .map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    if !(what.is_dir() || what.is_file()) {
        return Err(Usage(format!(
            "{}: neither a file nor a folder; give images",
            path.display()
        )));
    }
    Ok(what.is_file())
}

/// Writes the masks of a segmenter.
struct Masks {
    /// The file of each image.
    files: Vec<PathBuf>,
    width: u32,
    height: u32,
    colors: Vec<[u8; 3]>,
}

impl Masks {
    fn new(folder: &Path, source: &dyn Source, facts: &ModelFacts) -> Result<Self, Box<dyn Error>> {
        let names: Vec<String> = (0..source.len()).map(|sample| source.name(sample)).collect();
        let mut taken = HashMap::new();
        let mut paths = Vec::new();
        let above = common(&names);
        for name in &names {
            let below = Path::new(name).strip_prefix(&above).unwrap_or(Path::new(name));
            let stem = below.with_file_name(below.file_stem().unwrap_or_default());
            // Names in shards may lead upwards.
            let stem = stem
                .components()
                .filter(|part| matches!(part, Component::Normal(_)));
            let file = folder.join(stem.collect::<PathBuf>()).with_added_extension("png");
            if let Some(other) = taken.insert(file.clone(), name) {
                let file = file.display();
                let reason = format!(
                    "{other} and {name} would both become {file}; predict them into different folders"
                );
                return Err(Usage(reason).into());
            }
            paths.push(file);
        }
        let (width, height) = facts.pipeline.check()?;
        fs::create_dir_all(folder).map_err(|error| files::named(folder, &error))?;
        Ok(Self {
            files: paths,
            width,
            height,
            colors: palette::of(&facts.classes, None),
        })
    }

    /// Writes the mask of an image; returns the `k` classes with the most pixels, with their shares.
    fn write(&self, sample: usize, mask: &[u8], k: usize) -> Result<Vec<Probability>, Box<dyn Error>> {
        let bytes = picture::classes(mask, self.width, self.height, &self.colors)?;
        let file = &self.files[sample];
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|error| files::named(folder, &error))?;
        }
        files::write(file, bytes)?;
        let mut pixels = vec![0u64; self.colors.len()];
        for &class in mask {
            pixels[usize::from(class)] += 1;
        }
        let share = |class: usize| Probability {
            class,
            probability: pixels[class] as f64 / mask.len() as f64,
        };
        let mut shares: Vec<Probability> = (0..pixels.len()).map(share).collect();
        // The sort is stable, which keeps the lower class first.
        shares.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        shares.truncate(k);
        Ok(shares)
    }
}

/// The folder that all these files are in, themselves or further below.
fn common(names: &[String]) -> PathBuf {
    let folder = |name: &String| Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
    let Some(mut above) = names.first().map(folder) else {
        return PathBuf::new();
    };
    for name in names {
        while !Path::new(name).starts_with(&above) && above.pop() {}
    }
    above
}

/// Prints a row for each image.
struct Rows<'a> {
    format: Format,
    classes: &'a [String],
    k: usize,
    /// The width of the table's columns: of names, and of classes.
    widths: [usize; 2],
}

/// Wider names do not widen the table's column.
const WIDEST: usize = 60;

impl<'a> Rows<'a> {
    fn new(format: Format, source: &dyn Source, classes: &'a [String], k: usize) -> Self {
        // Every row is printed as soon as it is there, so the widths are those of all that can come.
        let width = |names: &mut dyn Iterator<Item = String>| {
            let widths = names.map(|name| cell(&name).chars().count());
            widths.filter(|&width| width <= WIDEST).max().unwrap_or(0)
        };
        let widths = match format {
            Format::Table => [
                width(&mut (0..source.len()).map(|sample| source.name(sample))),
                width(&mut classes.iter().cloned()),
            ],
            Format::Json | Format::Csv => [0, 0],
        };
        Self {
            format,
            classes,
            k,
            widths,
        }
    }

    fn head(&self) -> io::Result<()> {
        if self.format != Format::Csv {
            return Ok(());
        }
        let columns: String = (1..=self.k)
            .map(|rank| format!(",class{rank},probability{rank}"))
            .collect();
        writeln!(terminal::out(), "path,reason{columns}")
    }

    fn row(&self, name: &str, top: &Result<Vec<Probability>, Flaw>) -> io::Result<()> {
        match self.format {
            Format::Table => writeln!(terminal::out(), "{}", self.text(name, top)),
            Format::Json => terminal::json_text(&self.json(name, top).to_string()),
            Format::Csv => writeln!(terminal::out(), "{}", self.csv(name, top)),
        }
    }

    fn text(&self, name: &str, top: &Result<Vec<Probability>, Flaw>) -> String {
        let [names, classes] = self.widths;
        let mut text = format!("{:<names$}", cell(name));
        match top {
            Ok(top) => {
                for one in top {
                    let class = cell(&self.classes[one.class]);
                    text += &format!("  {class:<classes$} {:.4}", one.probability);
                }
            }
            Err(flaw) => text += &format!("  error: {}", cell(&flaw.to_string())),
        }
        text
    }

    fn json(&self, name: &str, top: &Result<Vec<Probability>, Flaw>) -> Value {
        match top {
            Ok(top) => {
                let one = |one: &Probability| json!({"class": self.classes[one.class], "probability": one.probability});
                json!({"path": name, "predictions": top.iter().map(one).collect::<Vec<_>>()})
            }
            Err(flaw) => json!({"path": name, "reason": flaw.to_string()}),
        }
    }

    fn csv(&self, name: &str, top: &Result<Vec<Probability>, Flaw>) -> String {
        match top {
            Ok(top) => {
                let one =
                    |one: &Probability| format!(",{},{}", field(&self.classes[one.class]), one.probability);
                format!("{},{}", field(name), top.iter().map(one).collect::<String>())
            }
            Err(flaw) => format!(
                "{},{}{}",
                field(name),
                field(&flaw.to_string()),
                ",".repeat(2 * self.k)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_csv_have_as_many_fields_as_the_head() {
        let classes = ["a,b".to_owned(), "c\"".to_owned(), "d".to_owned()];
        let rows = Rows::new(Format::Csv, &ImageList::default(), &classes, 2);
        let of = |class, probability| Probability { class, probability };
        let row = rows.csv("x y.jpg", &Ok(vec![of(0, 0.75), of(1, 0.25)]));
        assert_eq!(row, "x y.jpg,,\"a,b\",0.75,\"c\"\"\",0.25");
        let row = rows.csv("x.jpg", &Err(Flaw::Bad("broken".to_owned())));
        assert_eq!(row, "x.jpg,broken,,,,");
        let classes = [
            "=HYPERLINK(\"http://evil.example\",1)".to_owned(),
            "-1".to_owned(),
        ];
        let rows = Rows::new(Format::Csv, &ImageList::default(), &classes, 2);
        let row = rows.csv("@x.jpg", &Ok(vec![of(0, 0.75), of(1, 0.25)]));
        assert_eq!(
            row,
            "'@x.jpg,,\"'=HYPERLINK(\"\"http://evil.example\"\",1)\",0.75,-1,0.25"
        );
    }
}
