//! The timeline: when each stage worked, and for how long in total.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::ProfileError;

pub mod line;

/// What a span of time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A worker reads the bytes of images.
    Read,
    /// A worker decodes.
    Decode,
    /// A worker augments and normalises.
    Augment,
    /// A whole batch, from its first image to its last; the three above are parts of it, and several workers share it.
    Batch,
    /// The trainer waits for a batch.
    Wait,
    /// The trainer computes a step.
    Step,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Read => "read",
            Stage::Decode => "decode",
            Stage::Augment => "augment",
            Stage::Batch => "batch",
            Stage::Wait => "wait",
            Stage::Step => "step",
        })
    }
}

/// The sum over all spans of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTotal {
    /// Number of spans.
    pub spans: u64,
    /// Their duration together, seconds; spans of several workers overlap in time.
    pub seconds: f64,
}

/// Writes spans as JSON lines `{"s":stage,"w":worker,"t":start,"d":duration}` (unix seconds, seconds; `w` is
/// absent for the trainer) and keeps totals.
///
/// Spans are given in groups, one group a training step. Every group is written until the file has
/// [`FULL_SPANS`](Self::FULL_SPANS) lines from this process, then every second group for as many lines again,
/// then every fourth, and so on. The totals always count every span.
pub struct Timeline {
    path: PathBuf,
    out: BufWriter<File>,
    /// The same moment on both clocks.
    anchor: (Instant, SystemTime),
    totals: BTreeMap<Stage, StageTotal>,
    full_spans: u64,
    groups: u64,
    written: u64,
    stride: u64,
    keep: bool,
}

impl Timeline {
    /// Spans written before the timeline begins to leave out groups: about 5 MB.
    pub const FULL_SPANS: u64 = 100_000;

    /// Appends to the file `path`, made where there is none.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        Self::with_limit(path, Self::FULL_SPANS)
    }

    fn with_limit(path: &Path, full_spans: u64) -> Result<Self, ProfileError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|source| ProfileError::Io {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(64 * 1024, file),
            anchor: (Instant::now(), SystemTime::now()),
            totals: BTreeMap::new(),
            full_spans,
            groups: 0,
            written: 0,
            stride: 1,
            keep: true,
        })
    }

    /// Begins the next group: the spans recorded from here to the next call are written, or left out, together.
    pub fn group(&mut self) {
        while self.written >= self.full_spans * (u64::from(self.stride.trailing_zeros()) + 1) {
            self.stride *= 2;
        }
        self.keep = self.groups.is_multiple_of(self.stride);
        self.groups += 1;
    }

    /// Records one span; `worker` is the loader's worker, `None` for the trainer itself.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when the file cannot be written, a full disk for example.
    pub fn record(
        &mut self,
        stage: Stage,
        worker: Option<usize>,
        start: Instant,
        duration: Duration,
    ) -> Result<(), ProfileError> {
        let total = self.totals.entry(stage).or_default();
        total.spans += 1;
        total.seconds += duration.as_secs_f64();
        if !self.keep {
            return Ok(());
        }
        self.written += 1;
        let t = self.unix(start);
        let d = duration.as_secs_f64();
        let written = match worker {
            Some(worker) => {
                writeln!(
                    self.out,
                    "{{\"s\":\"{stage}\",\"w\":{worker},\"t\":{t:.6},\"d\":{d:.6}}}"
                )
            }
            None => writeln!(self.out, "{{\"s\":\"{stage}\",\"t\":{t:.6},\"d\":{d:.6}}}"),
        };
        written.map_err(|source| ProfileError::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// The exact totals so far, by stage.
    pub fn totals(&self) -> &BTreeMap<Stage, StageTotal> {
        &self.totals
    }

    /// Writes out what is buffered and closes the file.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when the file cannot be written.
    pub fn finish(mut self) -> Result<BTreeMap<Stage, StageTotal>, ProfileError> {
        self.out.flush().map_err(|source| ProfileError::Io {
            path: self.path.clone(),
            source,
        })?;
        Ok(std::mem::take(&mut self.totals))
    }

    fn unix(&self, at: Instant) -> f64 {
        let (instant, system) = self.anchor;
        let anchor = system
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        match at.checked_duration_since(instant) {
            Some(after) => anchor + after.as_secs_f64(),
            None => anchor - instant.duration_since(at).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn spans_are_json_lines_on_the_unix_clock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timeline.jsonl");
        let mut timeline = Timeline::open(&path).unwrap();
        let start = Instant::now();
        timeline.group();
        timeline
            .record(Stage::Decode, Some(3), start, Duration::from_millis(1500))
            .unwrap();
        timeline
            .record(Stage::Wait, None, start, Duration::from_micros(250))
            .unwrap();
        timeline.finish().unwrap();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let lines = lines(&path);
        assert_eq!(
            (&lines[0]["s"], &lines[0]["w"], &lines[0]["d"]),
            (&"decode".into(), &3.into(), &1.5.into())
        );
        assert_eq!(
            (&lines[1]["s"], &lines[1]["w"], &lines[1]["d"]),
            (&"wait".into(), &Value::Null, &0.00025.into())
        );
        assert!((lines[0]["t"].as_f64().unwrap() - now).abs() < 5.0);
    }

    #[test]
    fn a_long_run_leaves_out_groups_but_never_from_the_totals() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timeline.jsonl");
        let mut timeline = Timeline::with_limit(&path, 100).unwrap();
        let start = Instant::now();
        for _ in 0..1600 {
            timeline.group();
            for stage in [Stage::Wait, Stage::Step] {
                timeline
                    .record(stage, None, start, Duration::from_millis(1))
                    .unwrap();
            }
        }
        let totals = timeline.finish().unwrap();
        assert_eq!(totals[&Stage::Step].spans, 1600);
        assert!((totals[&Stage::Wait].seconds - 1.6).abs() < 1e-9);
        // 50 groups of 2 at each of the strides 1, 2, 4, 8, 16, and a few at 32.
        let lines = lines(&path);
        assert!((500..=510).contains(&lines.len()), "{}", lines.len());
        let waits = lines.iter().filter(|line| line["s"] == "wait").count();
        assert_eq!(waits * 2, lines.len(), "groups are written whole");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error() {
        let mut timeline = Timeline::open(Path::new("/dev/full")).unwrap();
        timeline.group();
        timeline
            .record(Stage::Step, None, Instant::now(), Duration::ZERO)
            .unwrap();
        assert!(timeline.finish().is_err());
    }
}
