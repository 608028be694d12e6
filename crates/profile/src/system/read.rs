//! Reads recorders' files, complete or damaged.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use stokehold_base::{regular, whole};

use super::line::{Event, Fast, parse};
use crate::{Node, Recording, Series};

/// Events of one snapshot differ by at most this much, seconds: SageMaker Debugger reads the devices one
/// after the other.
const SNAPSHOT: f64 = 0.02;
/// Longer lines are not read, bytes: ours are shorter.
const LONGEST_LINE: usize = 1 << 16;
/// The most problems that are reported for one file.
const PROBLEMS_OF_A_FILE: usize = 3;
/// The most values of a recording's series, gaps included, are this many, 256 MiB, ..
const CELLS: usize = 1 << 26;
/// .. and this many more for each value that was read. So what a file takes in memory is in proportion to its
/// content.
const CELLS_PER_VALUE: usize = 4;
/// Gaps of up to this many ticks are stored as such; a longer one begins another piece.
const SHORT_GAP: usize = 8;
/// The most machines of a recording: a job of SageMaker has at most a few hundred.
pub(crate) const MOST_NODES: usize = 4096;
/// The number of events that are sorted at a time.
const EVENTS: usize = 1 << 20;

/// Adds the samples below `<recording>/system`, of all nodes, to a recording. Data that cannot be read is a
/// gap and an entry in its problems.
///
/// Events within 20 ms are one tick. If a series has two values in a tick, the one that was written later is
/// used.
pub fn read_into(recording: &Path, into: &mut Recording) {
    read_since(recording, 0.0, into);
}

/// As [`read_into`], but skips files whose minute ended before `since`, unix seconds.
pub(crate) fn read_since(recording: &Path, since: f64, into: &mut Recording) {
    let mut files = Vec::new();
    find(&recording.join("system"), 0, &mut files, &mut into.problems);
    files.retain(|(name, _)| {
        let minute = name
            .split('.')
            .next()
            .and_then(|minute| minute.parse::<f64>().ok());
        minute.is_none_or(|minute| minute + 60.0 > since)
    });
    files.sort();
    let mut reader = Reader::default();
    for (_, path) in files {
        reader.file(&path, &mut into.problems);
    }
    reader.finish(into);
}

/// Files of samples, sorted by the minute in their names, and so by their events.
fn find(folder: &Path, depth: usize, files: &mut Vec<(String, PathBuf)>, problems: &mut Vec<String>) {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return problems.push(format!("{}: {error}", folder.display())),
        Ok(entries) => entries,
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // Links to folders are not followed: they might lead back up.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < 8 {
                find(&path, depth + 1, files, problems);
            }
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") || name.ends_with(".json.gz") {
            // Opening it later reports a FIFO, a socket or a device.
            files.push((name, path));
        } else if !name.ends_with(whole::PARTIAL) {
            problems.push(format!("{}: not a file of samples; left out", path.display()));
        }
    }
}

#[derive(Default)]
struct Reader {
    nodes: Vec<Columns>,
    /// Nodes by name, and by the text between value and time.
    by_name: HashMap<String, usize>,
    by_middle: HashMap<Vec<u8>, usize>,
    events: Vec<Sample>,
    line: Vec<u8>,
    /// The number of values of machines beyond [`MOST_NODES`].
    beyond: u64,
}

/// A value that was read and is not yet in its column.
#[derive(Clone, Copy)]
struct Sample {
    time: f64,
    value: f32,
    node: u32,
    series: u32,
}

impl Reader {
    fn file(&mut self, path: &Path, problems: &mut Vec<String>) {
        let mut told = 0;
        let mut tell = |line: Option<u64>, reason: &str| {
            told += 1;
            if told <= PROBLEMS_OF_A_FILE {
                let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
                problems.push(format!("{}{line}: {reason}", path.display()));
            }
        };
        match open(path) {
            Err(error) => tell(None, &error.to_string()),
            Ok(mut file) => self.lines(&mut *file, &mut tell),
        }
        self.place_events();
        if told > PROBLEMS_OF_A_FILE {
            let more = told - PROBLEMS_OF_A_FILE;
            problems.push(format!("{}: {more} more lines like these", path.display()));
        }
    }

    fn lines(&mut self, file: &mut dyn BufRead, tell: &mut dyn FnMut(Option<u64>, &str)) {
        let mut line = std::mem::take(&mut self.line);
        for number in 1.. {
            line.clear();
            let end = file.take(LONGEST_LINE as u64).read_until(b'\n', &mut line);
            let whole = line.last() == Some(&b'\n');
            match end {
                Err(error) => {
                    tell(Some(number), &format!("cut off: {error}"));
                    break;
                }
                Ok(0) => {
                    if number == 1 {
                        tell(None, "empty");
                    }
                    break;
                }
                Ok(LONGEST_LINE) if !whole => {
                    tell(
                        Some(number),
                        "too long for a sample; the rest of the file is left out",
                    );
                    break;
                }
                Ok(_) => {}
            }
            let text = line.trim_ascii_end();
            if text.is_empty() {
                continue;
            }
            match self.event(text) {
                Ok(Some(sample)) => self.events.push(sample),
                Ok(None) => self.beyond += 1,
                Err(reason) if whole => tell(Some(number), &reason),
                Err(_) => tell(Some(number), "cut off"),
            }
            if self.events.len() >= EVENTS {
                self.place_events();
            }
        }
        self.line = line;
    }

    /// The value in a line; `None` if it is of one machine too many.
    fn event(&mut self, text: &[u8]) -> Result<Option<Sample>, String> {
        let fast = Fast::split(text);
        if let Some(fast) = fast
            && let Some(&node) = self.by_middle.get(fast.middle)
            && let Some(series) = self.nodes[node].known(fast.head)
        {
            return Ok(Some(Sample {
                time: fast.time,
                value: fast.value as f32,
                node: node as u32,
                series,
            }));
        }
        let event = parse(text)?;
        let node = match self.by_name.get(&*event.node) {
            Some(&node) => node,
            None if self.nodes.len() == MOST_NODES => return Ok(None),
            None => {
                self.nodes.push(Columns {
                    name: event.node.clone().into_owned(),
                    ..Columns::default()
                });
                self.by_name
                    .insert(event.node.clone().into_owned(), self.nodes.len() - 1);
                self.nodes.len() - 1
            }
        };
        let series = self.nodes[node].series(&event);
        if let Some(fast) = fast
            && (fast.value, fast.time) == (event.value, event.time)
        {
            self.by_middle.insert(fast.middle.to_vec(), node);
            self.nodes[node].by_head.insert(fast.head.to_vec(), series);
        }
        Ok(Some(Sample {
            time: event.time,
            value: event.value as f32,
            node: node as u32,
            series,
        }))
    }

    /// Moves the events into their columns, in the order of time.
    fn place_events(&mut self) {
        if !self.events.is_sorted_by(|a, b| a.time <= b.time) {
            // A stable sort: events of the same time stay in the order of writing.
            self.events.sort_by(|a, b| a.time.total_cmp(&b.time));
        }
        for sample in self.events.drain(..) {
            self.nodes[sample.node as usize].push(sample);
        }
    }

    fn finish(self, into: &mut Recording) {
        if self.beyond > 0 {
            into.problems.push(format!(
                "the samples name more than {MOST_NODES} machines; {} values of the others are left out",
                self.beyond
            ));
        }
        let all: usize = self.nodes.iter().map(Columns::read).sum();
        for columns in self.nodes {
            let name = columns.name.clone();
            // Each machine has its share of the memory.
            let share = columns.read() as f64 / all.max(1) as f64;
            let limit = (CELLS as f64 * share) as usize + CELLS_PER_VALUE * columns.read();
            let (ticks, series) = columns.finish(limit, &mut into.problems);
            match into.nodes.iter_mut().find(|node| node.name == name) {
                Some(node) => (node.ticks, node.series) = (ticks, series),
                None => into.nodes.push(Node {
                    name,
                    ticks,
                    series,
                    ..Node::default()
                }),
            }
        }
    }
}

/// Opens a file, compressed or not. If it was compressed since the folder was listed, opens it under its new
/// name.
fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let is_gz = |path: &Path| path.extension().is_some_and(|end| end == "gz");
    let mut path = path.to_owned();
    let file = regular::open(&path).or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound || is_gz(&path) {
            return Err(error);
        }
        path.as_mut_os_string().push(".gz");
        regular::open(&path)
    })?;
    let plain = BufReader::with_capacity(1 << 16, file);
    Ok(if is_gz(&path) {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(plain)))
    } else {
        Box::new(plain)
    })
}

/// The samples of a node so far.
#[derive(Default)]
struct Columns {
    name: String,
    ticks: Vec<f64>,
    columns: Vec<Column>,
    by_key: HashMap<(String, String, String), u32>,
    /// Series by the part of the line before the value.
    by_head: HashMap<Vec<u8>, u32>,
}

/// The values of a series. It takes no memory for the time in which there are none, such as that outside of a
/// process's life.
struct Column {
    kind: String,
    name: String,
    dimension: String,
    pieces: Vec<Piece>,
    /// The number of values that were read.
    read: usize,
}

/// Values of a series for ticks without a long gap between them.
struct Piece {
    first: usize,
    values: Vec<f32>,
}

impl Columns {
    /// The number of values that were read.
    fn read(&self) -> usize {
        self.columns.iter().map(|column| column.read).sum()
    }

    fn known(&self, head: &[u8]) -> Option<u32> {
        self.by_head.get(head).copied()
    }

    fn series(&mut self, event: &Event<'_>) -> u32 {
        let key = (
            event.kind.clone().into_owned(),
            event.name.clone().into_owned(),
            event.dimension.clone().into_owned(),
        );
        let columns = &mut self.columns;
        *self
            .by_key
            .entry(key)
            .or_insert_with_key(|(kind, name, dimension)| {
                columns.push(Column {
                    kind: kind.clone(),
                    name: name.clone(),
                    dimension: dimension.clone(),
                    pieces: Vec::new(),
                    read: 0,
                });
                columns.len() as u32 - 1
            })
    }

    /// Adds a value. A time that steps back begins a new tick, which is sorted at the end.
    fn push(&mut self, sample: Sample) {
        let new = self
            .ticks
            .last()
            .is_none_or(|last| !(0.0..=SNAPSHOT).contains(&(sample.time - last)));
        if new {
            self.ticks.push(sample.time);
        }
        let tick = self.ticks.len() - 1;
        let column = &mut self.columns[sample.series as usize];
        column.read += 1;
        match column.pieces.last_mut() {
            Some(piece) if tick - piece.first < piece.values.len() + SHORT_GAP => {
                piece.values.resize(tick - piece.first + 1, f32::NAN);
                piece.values[tick - piece.first] = sample.value;
            }
            _ => column.pieces.push(Piece {
                first: tick,
                values: vec![sample.value],
            }),
        }
    }

    /// The ticks, strictly ascending, and the series, each with a value for every tick; at most `limit`
    /// values.
    fn finish(mut self, limit: usize, problems: &mut Vec<String>) -> (Vec<f64>, Vec<Series>) {
        self.thin_out(limit, problems);
        let (ticks, places) = in_order(&self.ticks);
        let series = self.columns.into_iter().map(|column| {
            let mut values = vec![f32::NAN; ticks.len()];
            for piece in column.pieces {
                match &places {
                    None => values[piece.first..][..piece.values.len()].copy_from_slice(&piece.values),
                    Some(places) => {
                        for (place, value) in places[piece.first..].iter().zip(piece.values) {
                            if !value.is_nan() {
                                values[*place] = value;
                            }
                        }
                    }
                }
            }
            Series {
                kind: column.kind,
                name: column.name,
                dimension: column.dimension,
                values,
            }
        });
        (ticks.clone(), series.collect())
    }

    /// Drops the series with the fewest values if the gaps would take too much memory: a week has many
    /// thousands of processes that lived for seconds.
    fn thin_out(&mut self, limit: usize, problems: &mut Vec<String>) {
        let ticks = self.ticks.len().max(1);
        let fit = limit / ticks;
        let all = self.columns.len();
        if all <= fit {
            return;
        }
        let read = self.read();
        self.columns.sort_by_key(|column| std::cmp::Reverse(column.read));
        self.columns.truncate(fit);
        problems.push(format!(
            "{}: {} of {all} series left out, those with the fewest values: with their gaps, all of them would \
             take {} values in memory for the {read} that were read",
            self.name,
            all - fit,
            all as u128 * ticks as u128,
        ));
    }
}

/// The ticks in the order of time, with those of one snapshot merged, and the new index of each; no indices
/// if nothing changes.
fn in_order(ticks: &[f64]) -> (Vec<f64>, Option<Vec<usize>>) {
    if ticks.is_sorted_by(|a, b| a + SNAPSHOT < *b) {
        return (ticks.to_vec(), None);
    }
    let mut order: Vec<usize> = (0..ticks.len()).collect();
    order.sort_by(|&a, &b| ticks[a].total_cmp(&ticks[b]));
    let mut sorted: Vec<f64> = Vec::with_capacity(ticks.len());
    let mut places = vec![0; ticks.len()];
    for old in order {
        if sorted.last().is_none_or(|last| ticks[old] - last > SNAPSHOT) {
            sorted.push(ticks[old]);
        }
        places[old] = sorted.len() - 1;
    }
    (sorted, Some(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, value: &str, time: f64) -> String {
        format!(
            "{{\"Type\":\"cpu\",\"Name\":\"{name}\",\"Dimension\":\"CPUUtilization\",\"Value\":{value},\"NodeId\":\"algo-1\",\"Timestamp\":{time}}}\n"
        )
    }

    fn read(files: &[(&str, &[u8])]) -> Recording {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join("system/incremental").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut recording = Recording::default();
        read_into(dir.path(), &mut recording);
        for problem in &mut recording.problems {
            *problem = problem.replace(&format!("{}/system/incremental/", dir.path().display()), "");
        }
        recording
    }

    fn values(recording: &Recording, name: &str) -> Vec<Option<f32>> {
        let series = recording.nodes[0]
            .series
            .iter()
            .find(|series| series.name == name)
            .unwrap();
        series
            .values
            .iter()
            .map(|value| (!value.is_nan()).then_some(*value))
            .collect()
    }

    #[test]
    fn events_within_20_ms_are_one_tick() {
        let text = [
            line("cpu0", "1.5", 1.6e9),
            line("cpu1", "2", 1.6e9 + 0.0199),
            line("cpu0", "3", 1.6e9 + 0.1),
            line("cpu1", "4", 1.6e9 + 0.11),
        ]
        .concat();
        let recording = read(&[("2020091312/1600000000.algo-1.json", text.as_bytes())]);
        assert_eq!(recording.nodes[0].ticks, [1.6e9, 1.6e9 + 0.1]);
        assert_eq!(values(&recording, "cpu0"), [Some(1.5), Some(3.0)]);
        assert_eq!(values(&recording, "cpu1"), [Some(2.0), Some(4.0)]);
        assert_eq!(recording.problems, Vec::<String>::new());
    }

    #[test]
    fn order_is_put_right_within_a_file_and_across_files() {
        let first = [5, 1, 3, 1]
            .map(|s| line("cpu0", &s.to_string(), 1.6e9 + f64::from(s)))
            .concat();
        let second = [9, 2, 70]
            .map(|s| line("cpu0", &s.to_string(), 1.6e9 + f64::from(s)))
            .concat();
        let again = line("cpu0", "33", 1.6e9 + 3.005);
        let recording = read(&[
            ("a/1600000000.algo-1.json", first.as_bytes()),
            ("a/1600000060.algo-1.json", second.as_bytes()),
            ("b/1600000120.algo-1.json", again.as_bytes()),
        ]);
        let node = &recording.nodes[0];
        assert_eq!(node.ticks, [1.0, 2.0, 3.0, 5.0, 9.0, 70.0].map(|s| 1.6e9 + s));
        assert_eq!(
            values(&recording, "cpu0"),
            [1.0, 2.0, 33.0, 5.0, 9.0, 70.0].map(Some)
        );
    }

    #[test]
    fn what_is_damaged_is_a_gap_and_a_problem() {
        let good = line("cpu0", "1", 1.6e9);
        let cut = format!("{good}{}", &line("cpu0", "2", 1.6e9 + 1.0)[..90]);
        let nan = [
            line("cpu0", "NaN", 1.6e9 + 2.0),
            line("cpu1", "7", 1.6e9 + 2.0),
            line("cpu0", "1e300", 1.6e9 + 3.0),
        ]
        .concat();
        let long = format!("{}\n{good}", "x".repeat(LONGEST_LINE * 2));
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let minute: String = (0..1000)
            .map(|s| line("cpu0", &(s * 7919 % 1000).to_string(), 1.7e9 + f64::from(s)))
            .collect();
        io::Write::write_all(&mut gz, minute.as_bytes()).unwrap();
        let gz = gz.finish().unwrap();
        let recording = read(&[
            ("1600000000.algo-1.json", cut.as_bytes()),
            ("1600000060.algo-1.json", b""),
            ("1600000120.algo-1.json", nan.as_bytes()),
            ("1600000180.algo-1.json", b"\xff\xfe no JSON\n[\n1,\n2\n]\n"),
            ("1600000240.algo-1.json", long.as_bytes()),
            ("1700000000.algo-1.json.gz", &gz[..gz.len() / 2]),
            ("1700000060.algo-1.json.gz", b"no gzip"),
            ("notes.txt", b"hello"),
            ("1600000300.algo-1.json.gz.partial", b"left"),
        ]);
        let problems = recording.problems.join("\n");
        for (file, line, reason) in [
            ("1600000000.algo-1.json", ", line 2", "cut off"),
            ("1600000060.algo-1.json", "", "empty"),
            ("1600000120.algo-1.json", ", line 1", "expected"),
            ("1600000120.algo-1.json", ", line 3", "beyond any"),
            ("1600000180.algo-1.json", ", line 1", "expected"),
            ("1600000180.algo-1.json", "", "2 more lines"),
            ("1600000240.algo-1.json", ", line 1", "too long"),
            ("1700000000.algo-1.json.gz", ", line ", "cut off"),
            ("1700000060.algo-1.json.gz", ", line 1", "cut off: unexpected end"),
            ("notes.txt", "", "not a file of samples"),
        ] {
            let start = format!("{file}{line}");
            assert!(
                recording
                    .problems
                    .iter()
                    .any(|p| p.starts_with(&start) && p.contains(reason)),
                "{start} {reason}: {problems}"
            );
        }
        assert!(!problems.contains(".partial"), "{problems}");
        let node = &recording.nodes[0];
        assert_eq!(node.ticks[..2], [1.6e9, 1.6e9 + 2.0]);
        assert_eq!(values(&recording, "cpu0")[..2], [Some(1.0), None]);
        assert_eq!(values(&recording, "cpu1")[..2], [None, Some(7.0)]);
        // The half that is there, each value in its place.
        assert!(node.ticks.len() > 100, "{}", node.ticks.len());
        for (tick, value) in node.ticks.iter().zip(values(&recording, "cpu0")).skip(2) {
            assert_eq!(value, Some(((tick - 1.7e9) as i64 * 7919 % 1000) as f32));
        }
    }

    #[test]
    fn a_foreign_file_is_read_as_our_own() {
        let text = [
            "{\"Timestamp\": 1600000000.5, \"NodeId\": \"algo-2\", \"Value\": 5, \"Type\": \"tpu\", \"Name\": \"t\\u00e9\\\"0\", \"Dimension\": \"D\"}\r\n",
            "{\"Timestamp\": 1600000001.5, \"NodeId\": \"algo-2\", \"Value\": 6, \"Type\": \"tpu\", \"Name\": \"t\\u00e9\\\"0\", \"Dimension\": \"D\"}",
        ]
        .concat();
        let nested = "{\"Type\":\"x\",\"Name\":\"x\",\"Value\":3,\"Extra\":{\"y\":1,\"Value\":5},\"NodeId\":\"algo-2\",\"Timestamp\":1600000002.5}\n";
        let recording = read(&[
            ("1600000000.algo-2.json", text.as_bytes()),
            ("1600000060.algo-2.json", nested.repeat(2).as_bytes()),
        ]);
        assert_eq!(recording.problems, Vec::<String>::new());
        assert_eq!(recording.nodes[0].name, "algo-2");
        assert_eq!(recording.nodes[0].series[0].kind, "tpu");
        assert_eq!(values(&recording, "té\"0"), [Some(5.0), Some(6.0), None]);
        assert_eq!(values(&recording, "x"), [None, None, Some(3.0)]);
    }

    #[test]
    fn many_short_lives_do_not_fill_the_memory() {
        let mut reader = Reader::default();
        let mut problems = Vec::new();
        for number in 0..20_000 {
            for name in ["cpu0".to_owned(), format!("short{number}")] {
                let text = line(&name, "5", 1.6e9 + f64::from(number));
                let event = reader.event(text.trim_ascii().as_bytes()).unwrap();
                reader.events.extend(event);
            }
        }
        reader.place_events();
        let (ticks, series) = reader.nodes.remove(0).finish(CELLS, &mut problems);
        assert_eq!((ticks.len(), series[0].name.as_str()), (20_000, "cpu0"));
        assert!(series.len() * ticks.len() <= CELLS && series.len() > 3000);
        assert!(problems[0].contains("left out"), "{problems:?}");
    }

    /// Each series begins with the first tick and ends with the last; only one has values between them.
    #[test]
    fn the_memory_of_a_recording_is_in_proportion_to_its_values() {
        let (ticks, count, nodes) = (20_000u32, 2000, 3);
        let mut reader = Reader::default();
        for node in 0..nodes {
            for tick in 0..ticks {
                let all = tick == 0 || tick == ticks - 1;
                for number in 0..if all { count } else { 1 } {
                    let text = line(&format!("cpu{number}"), "5", 1.6e9 + f64::from(tick));
                    let text = text.replace("algo-1", &format!("algo-{node}"));
                    let event = reader.event(text.trim_ascii().as_bytes()).unwrap();
                    reader.events.extend(event);
                }
            }
        }
        reader.place_events();
        let stored = |columns: &Columns| -> usize {
            let pieces = columns.columns.iter().flat_map(|column| &column.pieces);
            pieces.map(|piece| piece.values.capacity()).sum()
        };
        for columns in &reader.nodes {
            let (stored, read) = (stored(columns), columns.read());
            assert!(stored <= (SHORT_GAP + 1) * 2 * read, "{stored} for {read}");
        }
        let read: usize = reader.nodes.iter().map(Columns::read).sum();
        let mut recording = Recording::default();
        reader.finish(&mut recording);
        let values = |node: &Node| node.series.len() * node.ticks.len();
        let filled: usize = recording.nodes.iter().map(values).sum();
        assert!(
            filled <= CELLS + CELLS_PER_VALUE * read && filled > CELLS / 2,
            "{filled}"
        );
        assert_eq!(recording.problems.len(), nodes);
        for (node, problem) in recording.nodes.iter().zip(&recording.problems) {
            assert!(node.series.iter().any(|series| series.name == "cpu0"));
            assert!(problem.contains("of 2000 series left out"), "{problem}");
            assert!(
                problem.contains("take 40000000 values in memory for the 23998 that were read"),
                "{problem}"
            );
        }
    }

    #[test]
    fn gaps_of_any_length_are_gaps() {
        for gap in [1, 2, SHORT_GAP - 1, SHORT_GAP, SHORT_GAP + 1, 1000] {
            let text: String = (0..=gap)
                .map(|tick| {
                    let time = 1.6e9 + tick as f64;
                    let ends = tick == 0 || tick == gap;
                    line("cpu0", "1", time)
                        + &if ends {
                            line("cpu1", "2", time)
                        } else {
                            String::new()
                        }
                })
                .collect();
            let recording = read(&[("1600000000.algo-1.json", text.as_bytes())]);
            let mut expected = vec![None; gap + 1];
            (expected[0], expected[gap]) = (Some(2.0), Some(2.0));
            assert_eq!(values(&recording, "cpu1"), expected, "{gap}");
        }
    }

    #[test]
    fn machines_beyond_the_limit_are_left_out_and_told() {
        let text: String = (0..MOST_NODES + 3)
            .map(|node| line("cpu0", "1", 1.6e9).replace("algo-1", &format!("algo-{node}")))
            .collect();
        let recording = read(&[("1600000000.algo-1.json", text.repeat(2).as_bytes())]);
        assert_eq!(recording.nodes.len(), MOST_NODES);
        assert_eq!(
            recording.problems,
            ["the samples name more than 4096 machines; 6 values of the others are left out"]
        );
    }
}
