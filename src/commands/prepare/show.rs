//! The output of `stokehold prepare`: a bar on a terminal, lines in a log, and a report.
use stokehold_base::words::plural;

use crate::terminal::{self, note};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use stokehold_prepare::{Findings, Lost, PrepareError, Progress, Report};
use stokehold_storage::Source;
use stokehold_storage::shard::{Manifest, ShardFolder};

use crate::progress;

/// How often a log gets a line.
const EVERY: Duration = Duration::from_secs(10);

/// At most this many names and reasons are listed; the rest is counted.
const MOST_LINES: usize = 20;

/// Shows the progress: a bar on a terminal, otherwise a line from time to time.
pub struct Show {
    what: String,
    bar: ProgressBar,
    start: Instant,
    last: Instant,
    kept_told: bool,
}

impl Show {
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        let now = Instant::now();
        Self {
            bar: progress::bar(0, "{prefix} {bar:40} {pos}/{len} {msg} {eta}").with_prefix(what.clone()),
            what,
            start: now,
            last: now,
            kept_told: false,
        }
    }

    pub fn at(&mut self, progress: Progress) {
        let Progress { done, kept, of } = progress;
        if kept > 0 && !self.kept_told {
            self.kept_told = true;
            self.line(&format!("{kept} images are in finished shards, which are kept"));
            // Work that was already done says nothing about the speed of the rest.
            self.bar.set_length(of as u64);
            self.bar.set_position(kept as u64);
            self.bar.reset_eta();
            self.start = Instant::now();
        }
        let rate = (done - kept) as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{rate:.0} images/s"));
        if self.bar.is_hidden() && self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            let left = Duration::from_secs_f64((of - done) as f64 / rate.max(1e-3)).as_secs();
            let left = humantime::format_duration(Duration::from_secs(left));
            self.line(&format!(
                "{} {done}/{of}, {rate:.0} images/s, {left} left",
                self.what
            ));
        }
    }

    pub fn done(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, text: &str) {
        // The reader of the output may be gone; the work continues.
        self.bar.suspend(|| {
            note!("{text}");
        });
    }
}

/// Prints what was prepared.
pub fn report(out: &Path, report: &Report) -> Result<ExitCode, Box<dyn Error>> {
    let warn = |what: &str, list: &[stokehold_prepare::Left]| {
        for left in list.iter().take(MOST_LINES) {
            note!("{what} {}: {}", left.name, left.reason);
        }
        if list.len() > MOST_LINES {
            note!("{what} {} more", list.len() - MOST_LINES);
        }
    };
    warn("kept as it is", &report.kept_as_they_are);
    warn("left out", &report.left_out);
    let manifest = &report.manifest;
    let mut to = terminal::out();
    let (mut samples, mut records, mut before, mut after, mut files, mut left_out) = (0, 0, 0, 0, 0, 0);
    for (_, part) in manifest.image_parts() {
        samples += part.samples;
        left_out += part.left_out.len();
    }
    for part in manifest.parts.values() {
        records += part.samples;
        before += part.source_bytes;
        after += part.shards.iter().map(|shard| shard.bytes).sum::<u64>();
        files += part.shards.len();
    }
    if report.kept as u64 == records {
        writeln!(to, "nothing left to do: every image is in a finished shard")?;
    }
    writeln!(
        to,
        "{}: {} {}, {}, {}",
        out.display(),
        plural(samples as usize, "image"),
        match &manifest.pixels {
            // A folder of images has one class, without a name.
            None if manifest.classes == [""] => "without classes".to_owned(),
            None => format!("in {}", plural(manifest.classes.len(), "class")),
            Some(pixels) => format!("with masks of {}", plural(pixels.names.len(), "class")),
        },
        match manifest.format == Manifest::TAR {
            true => plural(files, "tar file"),
            false => plural(files, "shard"),
        },
        manifest.prepared
    )?;
    writeln!(
        to,
        "{:.1} MB, {:.4} of the files' {:.1} MB",
        after as f64 / 1e6,
        after as f64 / before.max(1) as f64,
        before as f64 / 1e6
    )?;
    if manifest.format != Manifest::TAR && after > before {
        writeln!(
            to,
            "the shards are larger than the files: they save opening files, and no bytes"
        )?;
    }
    if left_out > 0 {
        writeln!(to, "{left_out} broken images were left out")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how many of `all` samples were extracted, and which could not be; the exit code is 1 if there are any.
pub fn extracted(dir: &Path, all: usize, lost: &[Lost]) -> Result<ExitCode, Box<dyn Error>> {
    for Lost { name, reason } in lost {
        note!("{name}: {reason}");
    }
    if !lost.is_empty() {
        note!(
            "samples that could not be extracted: {}; the others are whole",
            lost.len()
        );
    }
    writeln!(
        terminal::out(),
        "{}: {} extracted",
        dir.display(),
        plural(all.saturating_sub(lost.len()), "sample")
    )?;
    Ok(ExitCode::from(u8::from(!lost.is_empty())))
}

/// Prints the findings of a check; the exit code is 1 if anything is wrong.
pub fn findings(out: &Path, against: Option<&Path>, findings: &Findings) -> Result<ExitCode, Box<dyn Error>> {
    let mut to = terminal::out();
    for problem in &findings.problems {
        writeln!(to, "{problem}")?;
    }
    let wrong = match findings.problems.len() {
        0 => "nothing is wrong".to_owned(),
        count => format!("wrong: {count}"),
    };
    writeln!(
        to,
        "{}: {} samples checked, {wrong}",
        out.display(),
        findings.samples
    )?;
    match against {
        Some(data) if findings.lossless => writeln!(
            to,
            "{} samples have the pixels of their originals in {}, bit for bit",
            findings.identical,
            data.display()
        )?,
        Some(_) => writeln!(
            to,
            "lossy: pixels were not compared; names, labels and order were"
        )?,
        None => {}
    }
    Ok(ExitCode::from(u8::from(!findings.problems.is_empty())))
}

/// Prints a line for each sample.
pub fn list(out: &Path, to: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let manifest = Manifest::of(out)?.ok_or_else(|| PrepareError::NotPrepared { path: out.to_owned() })?;
    for part in manifest.parts.keys() {
        let folder = ShardFolder::open(out, part, &manifest)?;
        let mut number = 0;
        for shard in folder.shards() {
            for in_shard in 0..shard.len() {
                let entry = shard.entry(in_shard);
                writeln!(
                    to,
                    "{part}\t{number}\t{}\t{}\t{}\t{}\t{}\t{}",
                    manifest.classes[folder.class(number) as usize],
                    entry.width,
                    entry.height,
                    entry.length,
                    shard.path().strip_prefix(out).unwrap_or(shard.path()).display(),
                    String::from_utf8_lossy(shard.name(in_shard))
                )?;
                number += 1;
            }
        }
    }
    Ok(())
}
