//! The output of `bench storage`: a table, and a recommendation.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

/// The measurements of all ways.
#[derive(Debug, Serialize)]
pub struct Report {
    pub uri: String,
    /// The number of images that were read, and their bytes.
    pub images: usize,
    pub bytes: u64,
    /// The number of all images.
    pub all_images: usize,
    pub all_bytes: u64,
    pub trainer_images_per_second: Option<f64>,
    pub rows: Vec<Row>,
}

/// The measurement of one way.
#[derive(Debug, Serialize)]
pub struct Row {
    pub way: &'static str,
    /// Why it could not be measured.
    pub failed: Option<String>,
    /// From the request for the job to the start of its script.
    pub startup_seconds: f64,
    /// From there to the first batch.
    pub first_batch_seconds: f64,
    pub epochs: Vec<Epoch>,
    /// CPU time of this program and the job together, including the start, but not of a server on this
    /// machine.
    pub cpu_seconds: f64,
}

/// All images once.
#[derive(Debug, Serialize)]
pub struct Epoch {
    pub images: usize,
    /// From the first batch on.
    pub seconds: f64,
    pub images_per_second: f64,
    /// Read from the bucket; the first epoch includes the start.
    pub bytes: u64,
    pub requests: u64,
}

/// A way that reaches this share of the local disk's or the trainer's rate counts as equally fast.
const ENOUGH: f64 = 0.9;

/// A copy that takes at most this long, seconds, is not worth avoiding.
const SHORT: f64 = 30.0;

impl Row {
    pub fn new(way: &'static str) -> Self {
        Self {
            way,
            failed: None,
            startup_seconds: 0.0,
            first_batch_seconds: 0.0,
            epochs: Vec::new(),
            cpu_seconds: 0.0,
        }
    }

    fn rate(&self, epoch: usize) -> Option<f64> {
        Some(self.epochs.get(epoch)?.images_per_second)
    }
}

impl Report {
    fn row(&self, way: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.way == way && row.failed.is_none())
    }

    /// A rate as a share of the local disk's in the same epoch.
    fn of_disk(&self, row: &Row, epoch: usize) -> Option<f64> {
        Some(row.rate(epoch)? / self.row("local disk")?.rate(epoch)?)
    }

    pub fn json(&self) -> Value {
        let mut value = json!(self);
        for (row, into) in self
            .rows
            .iter()
            .zip(value["rows"].as_array_mut().into_iter().flatten())
        {
            into["of_local_disk"] = json!([self.of_disk(row, 0), self.of_disk(row, 1)]);
        }
        value["choose"] = json!(self.choose().0);
        value["why"] = json!(self.choose().1);
        value
    }

    /// Whether a way keeps up in an epoch: with the trainer if its rate is known, else with the local disk.
    fn keeps_up(&self, way: &str, epoch: usize) -> Option<f64> {
        let row = self.row(way)?;
        let share = match self.trainer_images_per_second {
            Some(rate) => row.rate(epoch)? / rate,
            None => self.of_disk(row, epoch)?,
        };
        (share >= ENOUGH).then_some(row.rate(epoch)?)
    }

    /// The way to choose, and why. The time of copying everything is extrapolated from the copy of the
    /// measured images.
    pub fn choose(&self) -> (&'static str, String) {
        let copying = self.row("File").map(|row| row.startup_seconds);
        let copying = copying.map(|seconds| seconds * self.all_bytes as f64 / self.bytes.max(1) as f64);
        let than = match self.trainer_images_per_second {
            Some(rate) => format!("a trainer of {rate} images/s"),
            None => "the local disk".to_owned(),
        };
        let gigabytes = self.all_bytes as f64 / 1e9;
        if let Some(seconds) = copying.filter(|seconds| *seconds <= SHORT) {
            return (
                "File",
                format!(
                    "the set is small: all {gigabytes:.2} GB are copied in about {seconds:.0} s, and then nothing is slower than {than}"
                ),
            );
        }
        let copy = match copying {
            Some(seconds) => format!(
                "copying all {gigabytes:.1} GB first would take about {:.0} min",
                seconds / 60.0
            ),
            None => "the set could not be copied".to_owned(),
        };
        if let (Some(rate), Some(_)) = (self.keeps_up("FastFile", 0), self.keeps_up("FastFile", 1)) {
            let start = self.row("FastFile").map_or(0.0, |row| row.startup_seconds);
            return (
                "FastFile",
                format!(
                    "it starts in {start:.1} s and gives {rate:.0} images/s from the first epoch on, which keeps up with {than}; {copy}"
                ),
            );
        }
        if let Some(rate) = self.keeps_up("Cache", 1) {
            return (
                "Cache",
                format!(
                    "from the second epoch on it gives {rate:.0} images/s and keeps up with {than}, and the next job finds all of it; {copy}"
                ),
            );
        }
        for way in ["streaming", "Pipe"] {
            if let Some(rate) = self.keeps_up(way, 0) {
                return (
                    way,
                    format!("it gives {rate:.0} images/s and keeps up with {than}; {copy}"),
                );
            }
        }
        (
            "File",
            format!(
                "no other way keeps up with {than}; {copy}. Packing small images into shards (`stokehold prepare`) makes every way faster"
            ),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pace = match self.trainer_images_per_second {
            Some(rate) => format!("taken at {rate} images/s at most"),
            None => "taken as fast as they come".to_owned(),
        };
        writeln!(
            f,
            "{}: {} of {} images, {:.1} of {:.1} MB, {pace}\n",
            self.uri,
            self.images,
            self.all_images,
            self.bytes as f64 / 1e6,
            self.all_bytes as f64 / 1e6
        )?;
        writeln!(
            f,
            "way              startup s  first batch s  images/s 1       2  of local disk 1     2    MB 1      2  requests 1      2  CPU s"
        )?;
        for row in &self.rows {
            if let Some(reason) = &row.failed {
                writeln!(f, "{:<16} {reason}", row.way)?;
                continue;
            }
            let share = |epoch| {
                self.of_disk(row, epoch)
                    .map_or("-".to_owned(), |share| format!("{share:.2}"))
            };
            let [one, two] = &row.epochs[..] else {
                continue;
            };
            writeln!(
                f,
                "{:<16} {:>9.2}  {:>13.2}  {:>10.1}  {:>6.1}  {:>15}  {:>4}  {:>6.1}  {:>5.1}  {:>10}  {:>5}  {:>5.1}",
                row.way,
                row.startup_seconds,
                row.first_batch_seconds,
                one.images_per_second,
                two.images_per_second,
                share(0),
                share(1),
                one.bytes as f64 / 1e6,
                two.bytes as f64 / 1e6,
                one.requests,
                two.requests,
                row.cpu_seconds
            )?;
        }
        let (way, why) = self.choose();
        writeln!(f, "\nChoose {way}: {why}.")?;
        writeln!(
            f,
            "The second epoch of files comes from this machine's memory as far as there is room, as with any file system."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: &'static str, startup: f64, rates: [f64; 2]) -> Row {
        let epochs = rates.map(|rate| Epoch {
            images: 100,
            seconds: 100.0 / rate,
            images_per_second: rate,
            bytes: 0,
            requests: 0,
        });
        Row {
            startup_seconds: startup,
            epochs: epochs.into(),
            ..Row::new(way)
        }
    }

    fn report(times: u64, fast: [f64; 2], cache: [f64; 2], trainer: Option<f64>) -> Report {
        Report {
            uri: "s3://b".to_owned(),
            images: 100,
            bytes: 1_000_000,
            all_images: 100,
            all_bytes: 1_000_000 * times,
            trainer_images_per_second: trainer,
            rows: vec![
                row("File", 2.0, [1000.0, 1000.0]),
                row("local disk", 0.0, [1000.0, 1000.0]),
                row("FastFile", 0.1, fast),
                row("Cache", 0.1, cache),
            ],
        }
    }

    #[test]
    fn chooses_by_what_was_measured() {
        let (good, slow, late) = ([950.0, 950.0], [500.0, 500.0], [500.0, 990.0]);
        for (report, way, says) in [
            (report(1, good, good, None), "File", "small"),
            (report(1000, good, good, None), "FastFile", "33 min"),
            (report(1000, slow, late, None), "Cache", "990 images/s"),
            (
                report(1000, slow, late, Some(300.0)),
                "FastFile",
                "a trainer of 300 images/s",
            ),
            (report(1000, slow, slow, None), "File", "no other way"),
        ] {
            let (chosen, why) = report.choose();
            assert!(chosen == way && why.contains(says), "{chosen}: {why}");
        }
    }

    #[test]
    fn a_way_that_failed_is_told_and_not_chosen() {
        let mut report = report(1000, [950.0; 2], [990.0; 2], None);
        report.rows[2].failed = Some("no FUSE here".to_owned());
        assert_eq!(report.choose().0, "Cache");
        let text = report.to_string();
        assert!(
            text.contains("FastFile         no FUSE here") && text.contains("Choose Cache"),
            "{text}"
        );
        assert_eq!(report.json()["rows"][3]["of_local_disk"][1], json!(0.99));
    }
}
