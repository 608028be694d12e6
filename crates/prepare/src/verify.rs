//! Verifies the contents of shards.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use stokehold_jpeg::{Input, PackTables};
use stokehold_loader::input;
use stokehold_pipeline::{DecodeOptions, decode};
use stokehold_storage::shard::{Manifest, PartFacts, ShardFolder};
use stokehold_storage::{Images, SampleBytes, Source};

use crate::part::originals;
use crate::prepare::Progress;
use crate::resume::checksum;
use crate::{PrepareError, tar};

/// The results of a check.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The number of checked samples.
    pub samples: usize,
    /// The number of them with the pixels of their originals, bit for bit; 0 without originals.
    pub identical: usize,
    /// Whether the preparation was lossless.
    pub lossless: bool,
    /// Problems: the file, the sample and the reason.
    pub problems: Vec<String>,
}

/// Checks every checksum of the prepared data set in `out`, and, if originals are given in `against`,
/// compares names, labels and order, and checks that every sample decodes to the same pixels. After a lossy preparation it only
/// checks that the samples decode.
///
/// # Errors
/// There is no prepared data set, or there are no originals; a file cannot be read. A problem with a sample
/// is no error but a finding.
pub fn verify(
    out: &Path,
    against: Option<&Path>,
    workers: usize,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Findings, PrepareError> {
    let manifest = manifest(out)?;
    let originals: Option<Vec<(&str, Images)>> = match against {
        Some(data) => Some(originals(data)?),
        None => None,
    };
    let mut findings = Findings {
        lossless: manifest.lossless,
        ..Findings::default()
    };
    let mut done = Progress {
        done: 0,
        kept: 0,
        of: manifest.parts.values().map(|part| part.samples as usize).sum(),
    };
    for (name, facts) in &manifest.parts {
        files(out, facts, &mut findings.problems);
        let originals = originals.as_ref().map(|parts| {
            let same = parts.iter().find(|(part, _)| part == name);
            same.map(|(_, files)| files)
        });
        let originals = match originals {
            Some(None) => {
                findings
                    .problems
                    .push(format!("{name}: the originals have no such part"));
                None
            }
            Some(Some(images)) => Some(Originals::of(
                images,
                facts,
                manifest.lossless,
                is_masks(&manifest, name),
                &mut findings.problems,
            )),
            None => None,
        };
        if manifest.format == Manifest::TAR {
            tars(
                out,
                facts,
                originals.as_ref(),
                &mut findings,
                &mut done,
                stop,
                progress,
            )?;
        } else {
            shards(
                out,
                name,
                &manifest,
                originals.as_ref(),
                workers,
                &mut findings,
                &mut done,
                stop,
                progress,
            )?;
        }
    }
    Ok(findings)
}

/// Whether a part has the masks of another one.
pub(crate) fn is_masks(manifest: &Manifest, part: &str) -> bool {
    manifest.image_parts().all(|(name, _)| name != part)
}

/// The manifest of `out`, of whatever format.
pub(crate) fn manifest(out: &Path) -> Result<Manifest, PrepareError> {
    let path = out.join(Manifest::FILE);
    match fs::read(&path).map(|bytes| Manifest::parse_any(&bytes)) {
        Ok(Ok(manifest)) if manifest.format == Manifest::TAR => Ok(manifest),
        // Says what is wrong with it, where something is.
        _ => Manifest::of(out)?.ok_or_else(|| PrepareError::NotPrepared { path: out.to_owned() }),
    }
}

/// Compares the files with what the manifest says of them.
fn files(out: &Path, facts: &PartFacts, problems: &mut Vec<String>) {
    for shard in &facts.shards {
        let path = out.join(&shard.file);
        match checksum(&path) {
            Ok((bytes, crc)) if bytes == shard.bytes && format!("{crc:08x}") == shard.crc32 => {}
            Ok((bytes, _)) if bytes != shard.bytes => problems.push(format!(
                "{}: {bytes} bytes long, and was written with {}",
                path.display(),
                shard.bytes
            )),
            Ok(_) => problems.push(format!("{}: the checksum of the file is wrong", path.display())),
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
}

/// The images that samples were made of, in their order.
struct Originals<'a> {
    images: &'a Images,
    /// Those that were not left out.
    used: Vec<usize>,
    keys: Vec<String>,
    lossless: bool,
    /// Whether they are masks, whose files are copied.
    is_masks: bool,
}

impl<'a> Originals<'a> {
    fn of(
        images: &'a Images,
        facts: &PartFacts,
        lossless: bool,
        is_masks: bool,
        problems: &mut Vec<String>,
    ) -> Self {
        let left_out: std::collections::HashSet<&str> = facts.left_out.iter().map(String::as_str).collect();
        let is_left = |image: &usize| left_out.contains(&*String::from_utf8_lossy(images.below(*image)));
        let used: Vec<usize> = (0..images.len()).filter(|image| !is_left(image)).collect();
        if used.len() as u64 != facts.samples {
            problems.push(format!(
                "{}: {} images, and {} were prepared",
                images.root().display(),
                used.len(),
                facts.samples
            ));
        }
        Self {
            images,
            used,
            keys: tar::keys((0..images.len()).map(|image| images.below(image))),
            lossless,
            is_masks,
        }
    }

    /// Compares sample number `sample`, called `name`, with its original; whether their pixels were found the same.
    fn compare(
        &self,
        sample: usize,
        is_original: impl FnOnce(&[u8], &str) -> bool,
        label: u32,
        file: Input<'_>,
        original: &mut SampleBytes,
    ) -> Result<bool, String> {
        let &image = self
            .used
            .get(sample)
            .ok_or("there is no original of this number")?;
        if !is_original(self.images.below(image), &self.keys[image]) {
            return Err(format!("it stands in the place of {}", self.images.name(image)));
        }
        if self.images.class(image) != label {
            return Err(format!(
                "its label is {label}, and was {}",
                self.images.class(image)
            ));
        }
        if !self.lossless {
            return decode(file, &DecodeOptions::default())
                .map(|_| false)
                .map_err(|error| error.to_string());
        }
        let text = |error: stokehold_pipeline::ImageError| error.to_string();
        self.images
            .read(image, original)
            .map_err(|error| error.to_string())?;
        if self.is_masks {
            return match original.file() == file.bytes {
                true => Ok(true),
                false => Err(format!("it is not the file {}", self.images.name(image))),
            };
        }
        let upright = DecodeOptions { exif: true };
        if decode(file, &upright).map_err(text)? != decode(original.file(), &upright).map_err(text)? {
            return Err(format!("its pixels are not those of {}", self.images.name(image)));
        }
        Ok(true)
    }
}

#[allow(clippy::too_many_arguments)] // What one part is checked with; a struct would only rename them.
fn shards(
    out: &Path,
    part: &str,
    manifest: &Manifest,
    originals: Option<&Originals<'_>>,
    workers: usize,
    findings: &mut Findings,
    done: &mut Progress,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), PrepareError> {
    let folder = match ShardFolder::open(out, part, manifest) {
        Ok(folder) => folder,
        // One of another data set, or one that is gone.
        Err(error) => {
            findings.problems.push(error.to_string());
            return Ok(());
        }
    };
    for shard in folder.shards() {
        if let Some(damage) = shard.damage() {
            findings.problems.push(format!(
                "{}: the index cannot be used: {damage}",
                shard.path().display()
            ));
        }
        if let Some(warning) = shard.tables_warning() {
            findings.problems.push(warning);
        } else if let Some(Err(error)) = shard.tables().map(PackTables::parse) {
            findings
                .problems
                .push(format!("{}: {error}", shard.path().display()));
        }
    }
    let next = AtomicUsize::new(0);
    let (report, results) = mpsc::channel();
    let mut problems = Vec::new();
    thread::scope(|scope| {
        for _ in 0..workers.clamp(1, folder.len().max(1)) {
            let (report, folder, next) = (report.clone(), &folder, &next);
            scope.spawn(move || {
                let (mut bytes, mut original) = (SampleBytes::new(), SampleBytes::new());
                loop {
                    let sample = next.fetch_add(1, Ordering::Relaxed);
                    if sample >= folder.len() || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let checked = folder
                        .read(sample, &mut bytes)
                        .map_err(|error| error.to_string())
                        .and_then(|()| match originals {
                            None => Ok(false),
                            Some(originals) => originals
                                .compare(
                                    sample,
                                    |name, _| name == folder.below(sample),
                                    folder.class(sample),
                                    input(&bytes),
                                    &mut original,
                                )
                                .map_err(|reason| format!("{}: {reason}", folder.name(sample))),
                        });
                    if report.send((sample, checked)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        for (sample, checked) in results {
            findings.samples += 1;
            done.done += 1;
            progress(*done);
            match checked {
                Ok(identical) => findings.identical += usize::from(identical),
                Err(problem) => problems.push((sample, problem)),
            }
        }
    });
    if stop.load(Ordering::Relaxed) {
        return Err(PrepareError::Interrupted);
    }
    problems.sort_unstable();
    findings
        .problems
        .extend(problems.into_iter().map(|(_, problem)| problem));
    Ok(())
}

fn tars(
    out: &Path,
    facts: &PartFacts,
    originals: Option<&Originals<'_>>,
    findings: &mut Findings,
    done: &mut Progress,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), PrepareError> {
    let (mut original, mut sample) = (SampleBytes::new(), 0);
    for shard in &facts.shards {
        let path: PathBuf = out.join(&shard.file);
        let mut problems = Vec::new();
        let read = tar::read(&path, |key, label, file| {
            if stop.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
            if let Some(originals) = originals {
                let same = |_: &[u8], original_key: &str| original_key == key;
                match originals.compare(sample, same, label, (&file).into(), &mut original) {
                    Ok(identical) => findings.identical += usize::from(identical),
                    Err(reason) => problems.push(format!("{}:{key}: {reason}", path.display())),
                }
            }
            sample += 1;
            findings.samples += 1;
            done.done += 1;
            progress(*done);
            Ok(())
        });
        if stop.load(Ordering::Relaxed) {
            return Err(PrepareError::Interrupted);
        }
        findings.problems.extend(problems);
        if let Err(reason) = read {
            findings.problems.push(format!("{}: {reason}", path.display()));
        }
    }
    Ok(())
}
