//! What was measured, as text and as JSON: a table a place, all places side by side, and a recommendation.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};
use stokehold_diagnose::advice::{Prices, StoragePrice, amount};
use stokehold_page::Table;
use stokehold_page::words::duration;

use super::place::Place;

/// The measurements of all places.
#[derive(Debug)]
pub struct Report {
    /// The trainer's rate, if it has one.
    pub trainer_images_per_second: Option<f64>,
    /// Of the prices.
    pub currency: String,
    /// Where the prices are from, and their date.
    pub prices: String,
    /// In the order in which they were measured.
    pub places: Vec<Measured>,
}

/// The measurements of all ways of a place.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub(super) place: String,
    /// The scheme of its address, or the type of its file system.
    pub(super) kind: String,
    /// Whether it has prepared shards.
    pub(super) is_shards: bool,
    /// The number of images that were read, and their bytes.
    pub(super) images: usize,
    pub(super) bytes: u64,
    /// The number of all images.
    pub(super) all_images: usize,
    pub(super) all_bytes: u64,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    trainer: Option<f64>,
    /// What reading costs; `None` if it is not known.
    #[serde(skip)]
    price: Option<StoragePrice>,
}

/// The measurement of one way.
#[derive(Debug, Serialize)]
pub struct Row {
    pub(super) way: &'static str,
    /// Why it could not be measured.
    pub(super) failed: Option<String>,
    /// What has to be said of the measurement.
    pub(super) problem: Option<String>,
    /// From the request for the job to the start of its script.
    pub(super) startup_seconds: f64,
    /// From there to the first batch.
    pub(super) first_batch_seconds: f64,
    pub(super) epochs: Vec<Epoch>,
    /// CPU time of this program and the job together, including the start, but not of a server on this
    /// machine.
    pub(super) cpu_seconds: f64,
}

/// All images once.
#[derive(Debug, Serialize)]
pub struct Epoch {
    pub(super) images: usize,
    /// From the demand for the first batch on.
    pub(super) seconds: f64,
    pub(super) images_per_second: f64,
    /// Read from the bucket; the first epoch includes the start.
    pub(super) bytes: u64,
    pub(super) requests: u64,
}

/// The way of a place that is chosen, and what it gives.
struct Choice<'a> {
    measured: &'a Measured,
    way: &'static str,
    why: String,
    /// Images a second in the two epochs.
    rates: [f64; 2],
    /// What the second epoch costs with all images.
    cost: Option<f64>,
}

/// A way that reaches this share of the local disk's or the trainer's rate counts as equally fast.
const ENOUGH: f64 = 0.9;

/// Epochs below this, seconds, differ by what else the machine does.
const SHORT_EPOCH: f64 = 1.0;

/// A copy that takes at most this long, seconds, is not worth avoiding.
const SHORT: f64 = 30.0;

impl Row {
    pub(super) fn new(way: &'static str) -> Self {
        Self {
            way,
            failed: None,
            problem: None,
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

impl Measured {
    /// Of a place that is still to be measured.
    pub(super) fn of(place: &Place, trainer: Option<f64>, prices: &Prices) -> Self {
        Self {
            place: place.uri.clone(),
            kind: place.kind.clone(),
            is_shards: place.is_shards,
            images: place.images,
            bytes: place.bytes,
            all_images: place.all_images,
            all_bytes: place.all_bytes,
            rows: Vec::new(),
            trainer,
            price: prices
                .storage(&place.kind)
                .cloned()
                .or_else(|| place.is_disk_of_this_machine().then(StoragePrice::default)),
        }
    }

    fn row(&self, way: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.way == way && row.failed.is_none())
    }

    /// A rate as a share of the local disk's in the same epoch.
    fn of_disk(&self, row: &Row, epoch: usize) -> Option<f64> {
        Some(row.rate(epoch)? / self.row("local disk")?.rate(epoch)?)
    }

    /// What an epoch of all images costs at the place. What a folder's files cost is counted by their bytes, for the epoch does
    /// not say what the kernel asked for.
    fn cost(&self, row: &Row, epoch: usize) -> Option<f64> {
        let price = self.price.as_ref()?;
        let scale = self.all_images as f64 / self.images.max(1) as f64;
        let Epoch { bytes, requests, .. } = row.epochs.get(epoch)?;
        let bytes = match row.way {
            "as it is" => self.bytes,
            _ => *bytes,
        };
        Some(price.cost(scale * *requests as f64, scale * bytes as f64))
    }

    fn json(&self) -> Value {
        let mut value = json!(self);
        for (row, into) in self
            .rows
            .iter()
            .zip(value["rows"].as_array_mut().into_iter().flatten())
        {
            into["of_local_disk"] = json!([self.of_disk(row, 0), self.of_disk(row, 1)]);
            into["cost"] = json!([self.cost(row, 0), self.cost(row, 1)]);
        }
        let (way, why) = self.choose();
        value["choose"] = json!({"way": way, "why": why});
        value
    }

    /// The rate that a way has to keep up with in an epoch: the trainer's, or else the local disk's, or else that of the fastest way.
    fn wanted(&self, epoch: usize) -> Option<f64> {
        let disk = || self.row("local disk")?.rate(epoch);
        let all = self.rows.iter().filter_map(|row| row.rate(epoch));
        self.trainer.or_else(disk).or_else(|| all.reduce(f64::max))
    }

    /// Whether a way keeps up in an epoch.
    fn keeps_up(&self, way: &str, epoch: usize) -> Option<f64> {
        let rate = self.row(way)?.rate(epoch)?;
        (rate >= ENOUGH * self.wanted(epoch)?).then_some(rate)
    }

    /// The way to choose, and why. The time of copying everything is extrapolated from the copy of the
    /// measured images.
    fn choose(&self) -> (&'static str, String) {
        if let Some(Row { failed, epochs, .. }) = self.rows.iter().find(|row| row.way == "as it is") {
            let why = match (failed, &epochs[..]) {
                (None, [one, two]) => format!(
                    "it gives {:.0} images/s in the first epoch, and {:.0} in the second",
                    one.images_per_second, two.images_per_second
                ),
                _ => "it could not be measured".to_owned(),
            };
            return ("as it is", why);
        }
        let copying = self.row("File").map(|row| row.startup_seconds);
        let copying = copying.map(|seconds| seconds * self.all_bytes as f64 / self.bytes.max(1) as f64);
        let than = match (self.trainer, self.row("local disk")) {
            (Some(rate), _) => format!("a trainer of {rate} images/s"),
            (None, Some(_)) => "the local disk".to_owned(),
            (None, None) => "the fastest way".to_owned(),
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
            None if self.is_shards => "copying shards was not measured".to_owned(),
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
        if self.is_shards {
            let fastest = self.rows.iter().filter(|row| row.failed.is_none());
            let fastest = fastest.max_by(|one, other| {
                one.rate(1)
                    .unwrap_or(0.0)
                    .total_cmp(&other.rate(1).unwrap_or(0.0))
            });
            return (
                fastest.map_or("streaming", |row| row.way),
                format!("no way keeps up with {than}, and this is the fastest one"),
            );
        }
        (
            "File",
            format!(
                "no other way keeps up with {than}; {copy}. Packing small images into shards (`stokehold prepare`) makes every way faster"
            ),
        )
    }

    fn chosen(&self) -> Option<Choice<'_>> {
        let (way, why) = self.choose();
        let row = self.row(way)?;
        Some(Choice {
            measured: self,
            way,
            why,
            rates: [row.rate(0)?, row.rate(1)?],
            cost: self.cost(row, 1),
        })
    }

    fn table(&self, currency: &str) -> Table {
        let head = [
            "way",
            "startup s",
            "first batch s",
            "images/s, epoch 1",
            "2",
            "of local disk, 1",
            "2",
            "MB, 1",
            "2",
            "requests, 1",
            "2",
            "all images cost, 1",
            "2",
            "CPU s",
        ];
        let mut table = Table::new(&head, &[0]);
        for row in self.rows.iter().filter(|row| row.failed.is_none()) {
            let [one, two] = &row.epochs[..] else {
                continue;
            };
            let share = |epoch| {
                self.of_disk(row, epoch)
                    .map_or("-".to_owned(), |share| format!("{share:.2}"))
            };
            let cost = |epoch| {
                self.cost(row, epoch)
                    .map_or("-".to_owned(), |cost| amount(cost, currency))
            };
            // What the kernel asked a file system for is not known.
            let asked = |text: String| match row.way {
                "as it is" => "-".to_owned(),
                _ => text,
            };
            let mega = |bytes: u64| asked(format!("{:.1}", bytes as f64 / 1e6));
            table.row([
                row.way.to_owned(),
                format!("{:.2}", row.startup_seconds),
                format!("{:.2}", row.first_batch_seconds),
                format!("{:.1}", one.images_per_second),
                format!("{:.1}", two.images_per_second),
                share(0),
                share(1),
                mega(one.bytes),
                mega(two.bytes),
                asked(one.requests.to_string()),
                asked(two.requests.to_string()),
                cost(0),
                cost(1),
                format!("{:.1}", row.cpu_seconds),
            ]);
        }
        table
    }
}

impl Report {
    /// All that was measured, with each place's choice and the choice of all.
    pub fn json(&self) -> Value {
        let places: Vec<Value> = self.places.iter().map(Measured::json).collect();
        let choose = self
            .choose()
            .map(|(choice, why)| json!({"place": choice.measured.place, "way": choice.way, "why": why}));
        json!({
            "trainer_images_per_second": self.trainer_images_per_second,
            "currency": self.currency,
            "prices": self.prices,
            "places": places,
            "choose": choose,
        })
    }

    /// The place and its way to choose, and why: of those that keep up with the trainer, or else with the fastest one, the one
    /// where an epoch costs least, and of those the fastest. Where a price is not known, the fastest.
    fn choose(&self) -> Option<(Choice<'_>, String)> {
        let mut choices: Vec<Choice<'_>> = self.places.iter().filter_map(Measured::chosen).collect();
        if self.places.len() == 1 {
            let choice = choices.pop()?;
            let why = choice.why.clone();
            return Some((choice, why));
        }
        let fastest = choices.iter().map(|choice| choice.rates[1]).fold(0.0, f64::max);
        let (wanted, than) = match self.trainer_images_per_second {
            Some(rate) if rate * ENOUGH <= fastest => (rate, format!("the trainer's {rate} images/s")),
            _ => (fastest, format!("the fastest place's {fastest:.0} images/s")),
        };
        choices.retain(|choice| choice.rates[1] >= ENOUGH * wanted);
        let several = choices.len();
        // Without all prices none is compared.
        let unpriced: Vec<&str> = choices
            .iter()
            .filter(|choice| choice.cost.is_none())
            .map(|choice| choice.measured.kind.as_str())
            .collect();
        let (unpriced, all_priced) = (unpriced.join(", "), unpriced.is_empty());
        let choice = choices.into_iter().min_by(|one, other| {
            let cost = |choice: &Choice<'_>| choice.cost.filter(|_| all_priced).unwrap_or(0.0);
            let costs = cost(one).total_cmp(&cost(other));
            costs.then(other.rates[1].total_cmp(&one.rates[1]))
        })?;
        let cheapest = match all_priced {
            true => "reading costs least there, or as little and it is faster".to_owned(),
            false => {
                format!("it is the fastest; what reading costs at {unpriced} is not known, --prices says it")
            }
        };
        let why = format!(
            "from the second epoch on it gives {:.0} images/s; {}",
            choice.rates[1],
            match several {
                1 => format!("no other place reaches {than}"),
                _ => format!("{several} places reach {than}, and {cheapest}"),
            }
        );
        Some((choice, why))
    }

    /// The chosen way of each place, side by side.
    fn side_by_side(&self) -> Table {
        let head = [
            "place",
            "kind",
            "has",
            "way",
            "images/s, epoch 1",
            "epoch 2",
            "its requests",
            "cost of all images",
        ];
        let mut table = Table::new(&head, &[0, 1, 2, 3]);
        for measured in &self.places {
            let has = if measured.is_shards { "shards" } else { "files" };
            let known = [measured.place.clone(), measured.kind.clone(), has.to_owned()];
            let rest = match measured.chosen() {
                Some(choice) => [
                    choice.way.to_owned(),
                    format!("{:.1}", choice.rates[0]),
                    format!("{:.1}", choice.rates[1]),
                    measured
                        .row(choice.way)
                        .filter(|row| row.way != "as it is")
                        .and_then(|row| row.epochs.get(1))
                        .map_or("-".to_owned(), |epoch| epoch.requests.to_string()),
                    choice
                        .cost
                        .map_or("-".to_owned(), |cost| amount(cost, &self.currency)),
                ],
                None => ["not measured", "-", "-", "-", "-"].map(str::to_owned),
            };
            table.row(known.into_iter().chain(rest));
        }
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pace = match self.trainer_images_per_second {
            Some(rate) => format!("taken at {rate} images/s at most"),
            None => "taken as fast as they come".to_owned(),
        };
        for measured in &self.places {
            writeln!(
                f,
                "{}: {} of {} images, {:.1} of {:.1} MB, {pace}\n",
                measured.place,
                measured.images,
                measured.all_images,
                measured.bytes as f64 / 1e6,
                measured.all_bytes as f64 / 1e6
            )?;
            let table = measured.table(&self.currency);
            if !table.is_empty() {
                write!(f, "{}", table.text())?;
            }
            for row in &measured.rows {
                if let Some(reason) = row.failed.as_ref().or(row.problem.as_ref()) {
                    writeln!(f, "{}: {reason}", row.way)?;
                }
            }
            writeln!(f)?;
        }
        if self.places.len() > 1 {
            writeln!(f, "{}", self.side_by_side().text())?;
        }
        match self.choose() {
            Some((choice, why)) if self.places.len() > 1 => {
                writeln!(f, "Choose {}, {}: {why}.", choice.measured.place, choice.way)?;
            }
            Some((choice, why)) => writeln!(f, "Choose {}: {why}.", choice.way)?,
            None => writeln!(f, "Nothing could be measured.")?,
        }
        writeln!(f, "Prices: {}.", self.prices)?;
        let epochs = self.places.iter().flat_map(|measured| &measured.rows);
        let shortest = epochs.flat_map(|row| &row.epochs).map(|epoch| epoch.seconds);
        if let Some(seconds) = shortest.reduce(f64::min).filter(|seconds| *seconds < SHORT_EPOCH) {
            writeln!(
                f,
                "An epoch took {}: too short to compare by. Measure more images, with --max-images or a larger set.",
                duration(seconds)
            )?;
        }
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
            bytes: 1_000_000,
            requests: 100,
        });
        Row {
            startup_seconds: startup,
            epochs: epochs.into(),
            ..Row::new(way)
        }
    }

    fn place(uri: &str, times: u64, rows: Vec<Row>, price: Option<(f64, f64)>) -> Measured {
        Measured {
            place: uri.to_owned(),
            kind: "s3".to_owned(),
            is_shards: false,
            images: 100,
            bytes: 1_000_000,
            all_images: 100 * times as usize,
            all_bytes: 1_000_000 * times,
            rows,
            trainer: None,
            price: price.map(|(per_1000_requests, per_gb)| StoragePrice {
                kind: "s3".to_owned(),
                per_1000_requests,
                per_gb,
            }),
        }
    }

    fn measured(times: u64, fast: [f64; 2], cache: [f64; 2], trainer: Option<f64>) -> Measured {
        let rows = vec![
            row("File", 2.0, [1000.0, 1000.0]),
            row("local disk", 0.0, [1000.0, 1000.0]),
            row("FastFile", 0.1, fast),
            row("Cache", 0.1, cache),
        ];
        Measured {
            trainer,
            ..place("s3://b", times, rows, Some((0.0004, 0.0)))
        }
    }

    fn report(places: Vec<Measured>) -> Report {
        Report {
            trainer_images_per_second: None,
            currency: "USD".to_owned(),
            prices: "a list, today".to_owned(),
            places,
        }
    }

    #[test]
    fn chooses_by_what_was_measured() {
        let (good, slow, late) = ([950.0, 950.0], [500.0, 500.0], [500.0, 990.0]);
        for (measured, way, says) in [
            (measured(1, good, good, None), "File", "small"),
            (measured(1000, good, good, None), "FastFile", "33 min"),
            (measured(1000, slow, late, None), "Cache", "990 images/s"),
            (
                measured(1000, slow, late, Some(300.0)),
                "FastFile",
                "a trainer of 300 images/s",
            ),
            (measured(1000, slow, slow, None), "File", "no other way"),
        ] {
            let (chosen, why) = measured.choose();
            assert!(chosen == way && why.contains(says), "{chosen}: {why}");
        }
    }

    #[test]
    fn a_way_that_failed_is_told_and_not_chosen() {
        let mut measured = measured(1000, [950.0; 2], [990.0; 2], None);
        measured.rows[2].failed = Some("no FUSE here".to_owned());
        assert_eq!(measured.choose().0, "Cache");
        assert_eq!(measured.json()["rows"][3]["of_local_disk"][1], json!(0.99));
        let text = report(vec![measured]).to_string();
        assert!(
            text.contains("FastFile: no FUSE here") && text.contains("Choose Cache"),
            "{text}"
        );
    }

    #[test]
    fn money_is_that_of_all_images() {
        // 100 requests for 100 of 100,000 images: 100,000 requests at 0.0004 a thousand.
        let measured = measured(1000, [950.0; 2], [990.0; 2], None);
        let cost = measured.json()["rows"][2]["cost"][1].as_f64().unwrap();
        assert!((cost - 0.04).abs() < 1e-12, "{cost}");
        // A folder costs by its bytes, whatever the kernel asked for: 1 GB.
        let files = place(
            "/mnt/efs",
            1000,
            vec![row("as it is", 0.1, [500.0; 2])],
            Some((0.0, 0.03)),
        );
        let cost = files.cost(&files.rows[0], 0).unwrap();
        assert!((cost - 0.03).abs() < 1e-12, "{cost}");
    }

    #[test]
    fn of_places_that_keep_up_the_cheapest_is_chosen() {
        let folder =
            |uri: &str, rate: f64, price| place(uri, 1000, vec![row("as it is", 0.1, [rate; 2])], price);
        let all = || {
            vec![
                folder("/slow", 400.0, Some((0.0, 0.0))),
                folder("/dear", 1000.0, Some((0.0, 0.03))),
                folder("/cheap", 950.0, Some((0.0, 0.01))),
            ]
        };
        let mut report = report(all());
        let chosen = |report: &Report| report.json()["choose"]["place"].as_str().unwrap().to_owned();
        assert_eq!(chosen(&report), "/cheap");
        // A trainer that even the slow one feeds.
        report.trainer_images_per_second = Some(420.0);
        assert_eq!(chosen(&report), "/slow");
        // And one that nothing feeds: the fastest, or what is as good.
        report.trainer_images_per_second = Some(5000.0);
        assert_eq!(chosen(&report), "/cheap");
        report.places.push(folder("/unknown", 990.0, None));
        let text = report.to_string();
        assert!(
            text.contains("Choose /dear, as it is") && text.contains("what reading costs at s3 is not known"),
            "{text}"
        );
        assert!(text.contains("place") && text.contains("/dear"), "{text}");
    }
}
