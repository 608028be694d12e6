//! Writes ticks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::{MINUTE, hour_name, io_error};
use crate::ProfileError;

/// How to store samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The machine's name in the files: `algo-N`, so that SageMaker Debugger's readers find it.
    pub node: String,
    /// The most bytes of the files. Beyond it the oldest hours are removed, and minutes if no finished hour
    /// is left. Checked once a minute, so that the samples of a minute may come on top.
    pub limit: u64,
    /// Whether to compress finished hours. SageMaker Debugger's readers do not read those.
    pub gzip: bool,
}

impl Default for Options {
    /// `algo-1`, 8 GiB, not compressed.
    fn default() -> Self {
        Self {
            node: "algo-1".to_owned(),
            limit: 8 << 30,
            gzip: false,
        }
    }
}

/// The index of a series' value in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesId(pub usize);

/// Appends ticks to the files of one node.
///
/// After the first ticks it allocates only when a file begins: the constant text of each series is formatted
/// once, and lines are formatted in a buffer that is reused.
pub struct Writer {
    /// `system/incremental`.
    root: PathBuf,
    options: Options,
    /// The text before the value of each series.
    heads: Vec<Vec<u8>>,
    /// The text between value and time.
    middle: Vec<u8>,
    /// The end of each line of the tick, with the tick's time.
    tail: Vec<u8>,
    pending: Vec<u8>,
    /// The time of the oldest buffered tick.
    pending_since: Option<f64>,
    last: Option<f64>,
    minute: Option<u64>,
    file: Option<(PathBuf, File)>,
    disk: Disk,
}

impl Writer {
    /// Appends to the `system` files of a recording's folder, `profiler-output`, which is created if needed.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if the folder cannot be created or read.
    pub fn open(recording: &Path, options: Options) -> Result<Self, ProfileError> {
        let root = recording.join("system").join("incremental");
        fs::create_dir_all(&root).map_err(|error| io_error(&root, error))?;
        let disk = Disk::look(&root, &options.node).map_err(|error| io_error(&root, error))?;
        let mut middle = b",\"NodeId\":".to_vec();
        json_string(&mut middle, &options.node);
        middle.extend_from_slice(b",\"Timestamp\":");
        Ok(Self {
            root,
            options,
            heads: Vec::new(),
            middle,
            tail: Vec::new(),
            pending: Vec::new(),
            pending_since: None,
            last: None,
            minute: None,
            file: None,
            disk,
        })
    }

    /// Adds a series. Later ticks have its value at the returned index.
    pub fn series(&mut self, kind: &str, name: &str, dimension: &str) -> SeriesId {
        self.heads.push(head(kind, name, dimension));
        SeriesId(self.heads.len() - 1)
    }

    /// Reuses a column for another series from the next tick on, for example when a process has ended and
    /// another one is followed.
    pub fn replace(&mut self, place: SeriesId, kind: &str, name: &str, dimension: &str) {
        self.heads[place.0] = head(kind, name, dimension);
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is no series yet.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Writes a tick: a value for each series in the order in which they were added; NaN for a gap.
    ///
    /// `time` is in unix seconds. Values are written with two decimals.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if a file cannot be written, for example because the disk is full;
    /// [`ProfileError::Malformed`] for a time out of the range of the files' names (2001 to 2286).
    pub fn tick(&mut self, time: f64, values: &[f64]) -> Result<(), ProfileError> {
        if !(1e9..1e10).contains(&time) {
            return Err(ProfileError::Malformed {
                path: self.root.clone(),
                reason: format!("the time {time} is not in unix seconds: is the machine's clock set?"),
            });
        }
        let minute = time as u64 / MINUTE * MINUTE;
        if self.minute != Some(minute) {
            self.begin(minute)?;
        }
        self.tail.clear();
        self.tail.extend_from_slice(&self.middle);
        // Microseconds, the resolution of an f64 at this magnitude.
        write!(self.tail, "{time:.6}}}").map_err(|error| io_error(&self.root, error))?;
        self.tail.push(b'\n');
        for (head, &value) in self.heads.iter().zip(values) {
            if value.is_finite() {
                self.pending.extend_from_slice(head);
                decimal(&mut self.pending, value);
                self.pending.extend_from_slice(&self.tail);
            }
        }
        let gap = self.last.map_or(f64::INFINITY, |last| time - last);
        let since = *self.pending_since.get_or_insert(time);
        self.last = Some(time);
        // Flush if the buffer would be a second old when the next tick comes.
        if time - since + gap > 0.95 || self.pending.len() > 1 << 20 {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffer to the file.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when it cannot be written.
    pub fn flush(&mut self) -> Result<(), ProfileError> {
        self.pending_since = None;
        if let Some((path, file)) = &mut self.file
            && !self.pending.is_empty()
        {
            let written = file.write_all(&self.pending);
            // It is unknown how much of it a full disk took; writing all of it again would duplicate lines.
            let bytes = self.pending.len() as u64;
            self.pending.clear();
            written.map_err(|error| io_error(path, error))?;
            self.disk.grew(bytes);
        }
        Ok(())
    }

    /// Hours and minutes before this time, unix seconds, were removed to keep the limit; `None` if none were.
    pub fn removed_before(&self) -> Option<u64> {
        self.disk.removed_before()
    }

    /// Writes the buffer, and waits for hours that are being compressed.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when a file cannot be written.
    pub fn finish(mut self) -> Result<(), ProfileError> {
        self.flush()?;
        self.disk.join()?;
        self.disk.tend(self.options.limit, self.options.gzip)?;
        self.disk.join()
    }

    /// Begins the file of a minute, or continues it if an earlier recording has begun it.
    fn begin(&mut self, minute: u64) -> Result<(), ProfileError> {
        self.flush()?;
        let folder = self.root.join(hour_name(minute));
        let new_hour = self.minute.is_none_or(|before| before / 3600 != minute / 3600);
        if new_hour {
            fs::create_dir_all(&folder).map_err(|error| io_error(&folder, error))?;
            self.disk.enter(&folder);
        }
        let path = folder.join(format!("{minute}.{}.json", self.options.node));
        let file = append(&path).map_err(|error| io_error(&path, error))?;
        self.file = Some((path, file));
        self.minute = Some(minute);
        self.disk.tend(self.options.limit, self.options.gzip)
    }
}

/// Opens a file to append to, and removes an incomplete last line of a killed recorder.
fn append(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(path)?;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0; 4096];
    while end > 0 {
        let from = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|&byte| byte == b'\n') {
            end = from + at as u64 + 1;
            break;
        }
        end = from;
    }
    file.set_len(end)?;
    Ok(file)
}

fn head(kind: &str, name: &str, dimension: &str) -> Vec<u8> {
    let mut text = b"{\"Type\":".to_vec();
    json_string(&mut text, kind);
    text.extend_from_slice(b",\"Name\":");
    json_string(&mut text, name);
    text.extend_from_slice(b",\"Dimension\":");
    json_string(&mut text, dimension);
    text.extend_from_slice(b",\"Value\":");
    text
}

fn json_string(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

/// A finite value with two decimals, or one if the second is 0: `1.36`, `8.0`.
fn decimal(to: &mut Vec<u8>, value: f64) {
    let hundredths = (value.abs() * 100.0).round();
    if hundredths >= 1e18 {
        to.extend_from_slice(format!("{value:?}").as_bytes());
        return;
    }
    let mut rest = hundredths as u64;
    if value < 0.0 && rest > 0 {
        to.push(b'-');
    }
    let mut text = [0; 24];
    let mut at = text.len();
    let mut put = |digit: u8| {
        at -= 1;
        text[at] = digit;
    };
    let digit = |number: u64| b'0' + (number % 10) as u8;
    if !rest.is_multiple_of(10) {
        put(digit(rest));
    }
    rest /= 10;
    put(digit(rest));
    put(b'.');
    loop {
        rest /= 10;
        put(digit(rest));
        if rest < 10 {
            break;
        }
    }
    to.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        let mut text = Vec::new();
        decimal(&mut text, value);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn values_have_the_published_form() {
        for (value, expected) in [
            (1.36, "1.36"),
            (8.0, "8.0"),
            (14.761, "14.76"),
            (0.0, "0.0"),
            (-0.001, "0.0"),
            (-3.5, "-3.5"),
            (0.05, "0.05"),
            (99.999, "100.0"),
            (123_456_789_012.0, "123456789012.0"),
            (1e30, "1e30"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    proptest::proptest! {
        /// Oracle: the standard library's rounding to two decimals, but for ties.
        #[test]
        fn values_are_rounded_to_two_decimals(value in -1e12f64..1e12) {
            let read: f64 = text(value).parse().unwrap();
            let expected: f64 = format!("{value:.2}").parse().unwrap();
            proptest::prop_assert!((read - expected).abs() < 0.0101, "{value}: {read}");
            proptest::prop_assert!((read - value).abs() <= 0.005 + value.abs() * 1e-15, "{value}: {read}");
        }
    }

    fn files(root: &Path) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for hour in fs::read_dir(root.join("system/incremental")).unwrap() {
            for file in fs::read_dir(hour.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                files.push((name, fs::read_to_string(path).unwrap_or_default()));
            }
        }
        files.sort();
        files
    }

    #[test]
    fn files_are_those_of_the_reference_to_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), Options::default()).unwrap();
        writer.series("cpu", "cpu5", "CPUUtilization");
        writer.series("gpu", "gpu0", "GPUUtilization");
        writer.tick(1_591_748_109.232_195_4, &[1.36, 8.0]).unwrap();
        writer.tick(1_591_748_160.0, &[f64::NAN, 100.0]).unwrap();
        writer.finish().unwrap();
        let head = "system/incremental/2020061000/";
        assert_eq!(
            files(dir.path()),
            [
                (
                    format!("{head}1591748100.algo-1.json"),
                    "{\"Type\":\"cpu\",\"Name\":\"cpu5\",\"Dimension\":\"CPUUtilization\",\"Value\":1.36,\"NodeId\":\"algo-1\",\"Timestamp\":1591748109.232195}\n\
                     {\"Type\":\"gpu\",\"Name\":\"gpu0\",\"Dimension\":\"GPUUtilization\",\"Value\":8.0,\"NodeId\":\"algo-1\",\"Timestamp\":1591748109.232195}\n"
                        .to_owned()
                ),
                (
                    format!("{head}1591748160.algo-1.json"),
                    "{\"Type\":\"gpu\",\"Name\":\"gpu0\",\"Dimension\":\"GPUUtilization\",\"Value\":100.0,\"NodeId\":\"algo-1\",\"Timestamp\":1591748160.000000}\n"
                        .to_owned()
                ),
            ]
        );
    }

    #[test]
    fn at_most_a_second_is_pending() {
        for interval in [0.1, 0.3, 0.5, 1.0, 5.0] {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = Writer::open(dir.path(), Options::default()).unwrap();
            writer.series("cpu", "cpu0", "CPUUtilization");
            for tick in 0..40 {
                let time = 1.6e9 + f64::from(tick) * interval;
                writer.tick(time, &[1.0]).unwrap();
                let on_disk: usize = files(dir.path())
                    .iter()
                    .map(|(_, text)| text.lines().count())
                    .sum();
                // Just before the next tick, all that is older than a second has to be there.
                let old = (0..=tick)
                    .filter(|&t| 1.6e9 + f64::from(t) * interval <= time + interval - 1.0 + 1e-3)
                    .count();
                assert!(
                    on_disk >= old,
                    "every {interval} s: {on_disk} of {old} at tick {tick}"
                );
            }
        }
    }

    #[test]
    fn a_recording_goes_on_where_a_killed_one_left_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let record = |value: f64, time: f64| {
            let mut writer = Writer::open(dir.path(), Options::default()).unwrap();
            writer.series("cpu", "cpu0", "CPUUtilization");
            writer.tick(time, &[value]).unwrap();
            writer.finish().unwrap();
        };
        record(1.0, 1.6e9 + 1.0);
        let (name, text) = files(dir.path()).remove(0);
        fs::write(
            dir.path().join(name),
            format!("{text}{}", "{\"Type\":".repeat(1000)),
        )
        .unwrap();
        record(2.0, 1.6e9 + 2.0);
        let (_, after) = files(dir.path()).remove(0);
        assert_eq!(after.lines().count(), 2);
        assert!(
            after.starts_with(&text) && after.ends_with("1600000002.000000}\n"),
            "{after}"
        );
    }

    #[test]
    fn the_oldest_hours_go_first_then_minutes_and_the_limit_holds() {
        let dir = tempfile::tempdir().unwrap();
        let limit = 100_000;
        let options = Options {
            limit,
            ..Options::default()
        };
        let mut writer = Writer::open(dir.path(), options).unwrap();
        for core in 0..4 {
            writer.series("cpu", &format!("cpu{core}"), "CPUUtilization");
        }
        let mut largest = 0;
        for tick in 0..4 * 3600 / 10 {
            writer.tick(1.6e9 + f64::from(tick) * 10.0, &[50.0; 4]).unwrap();
            largest = largest.max(files(dir.path()).iter().map(|(_, text)| text.len()).sum());
        }
        // A minute is 24 lines of about 120 bytes.
        assert!(
            largest as u64 <= limit + 3000 && largest as u64 > limit / 2,
            "{largest}"
        );
        let removed = writer.removed_before().unwrap();
        writer.finish().unwrap();
        let left = files(dir.path());
        assert!(
            left.iter()
                .all(|(name, _)| name[30..40].parse::<u64>().unwrap() >= removed),
            "{removed} {left:?}"
        );

        // A limit below one hour: minutes go.
        let options = Options {
            limit: 10_000,
            ..Options::default()
        };
        let mut writer = Writer::open(dir.path(), options).unwrap();
        writer.series("cpu", "cpu0", "CPUUtilization");
        for tick in 0..600 {
            writer.tick(1.7e9 + f64::from(tick), &[50.0]).unwrap();
        }
        writer.finish().unwrap();
        let left = files(dir.path());
        assert!((1..3).contains(&left.len()), "{left:?}");
    }

    #[test]
    fn what_others_put_beside_the_samples_is_neither_removed_nor_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("system/incremental");
        let elsewhere = dir.path().join("elsewhere");
        let kept = [
            // The first hour that is recorded below, one before it, and folders that are no hours.
            root.join("2020091312/1600000020.algo-2.json"),
            root.join("2020091312/1600000020.algo-1.json.bak"),
            root.join("2020091312/1599990000.algo-1.json"),
            root.join("2019010100/1546300800.algo-2.json"),
            root.join("notes/1600000020.algo-1.json"),
            root.join("readme.txt"),
            elsewhere.join("1577836800.algo-1.json"),
        ];
        for path in &kept {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "of another program\n".repeat(1000)).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(&elsewhere, root.join("2020010100")).unwrap();
        for gzip in [true, false] {
            let options = Options {
                limit: 10_000,
                gzip,
                ..Options::default()
            };
            let mut writer = Writer::open(dir.path(), options).unwrap();
            writer.series("cpu", "cpu0", "CPUUtilization");
            for tick in 0..3 * 3600 {
                let time = 1.6e9 + f64::from(tick);
                writer.tick(time, &[50.0]).unwrap();
            }
            let removed = writer.removed_before();
            writer.finish().unwrap();
            assert!(
                removed.is_some_and(|removed| removed > 1_600_000_000),
                "{removed:?}"
            );
            for path in &kept {
                assert!(path.exists(), "{}", path.display());
            }
            // What was recorded is within its limit, and an hour that no one else uses is gone.
            let own = fs::read_dir(root.join("2020091312")).unwrap();
            assert_eq!(own.count(), 3);
            assert!(!root.join("2020091313").exists());
        }
    }

    #[test]
    fn closed_hours_are_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            gzip: true,
            ..Options::default()
        };
        let mut writer = Writer::open(dir.path(), options).unwrap();
        writer.series("cpu", "cpu0", "CPUUtilization");
        for tick in 0..130 {
            writer
                .tick(1.6e9 + f64::from(tick) * 60.0, &[f64::from(tick)])
                .unwrap();
        }
        writer.finish().unwrap();
        let left = files(dir.path());
        // 1.6e9 is 26 min 40 s past an hour: 34 minutes, 60 minutes, 36 minutes.
        assert_eq!(left.len(), 130);
        assert_eq!(
            left.iter().filter(|(name, _)| name.ends_with(".json.gz")).count(),
            94
        );
        assert!(
            left[..94].iter().all(|(name, _)| name.ends_with(".gz")),
            "{left:?}"
        );
        let mut recording = crate::Recording::default();
        super::super::read_into(dir.path(), &mut recording);
        assert_eq!(recording.problems, Vec::<String>::new());
        let values: Vec<f32> = (0..130u8).map(f32::from).collect();
        assert_eq!(recording.nodes[0].series[0].values, values);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_clock_that_is_not_set_and_a_folder_that_cannot_be_made_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), Options::default()).unwrap();
        assert!(writer.tick(0.0, &[]).unwrap_err().to_string().contains("clock"));
        let error = Writer::open(Path::new("/dev/null"), Options::default())
            .err()
            .unwrap();
        assert!(error.to_string().contains("/dev/null"), "{error}");
    }
}
