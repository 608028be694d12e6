//! Writes trace files.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{PART, SUFFIX, micros};
use crate::system::{hour_name, io_error};
use crate::{ProfileError, Span};

/// Options of a [`Writer`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The machine, such as `algo-1`.
    pub node: String,
    /// The process that the spans belong to.
    pub process: u32,
    /// The origin of times in the files, unix seconds. Spans that begin before it have negative times.
    pub start: f64,
    /// The size at which a file is closed, bytes.
    pub file_bytes: u64,
    /// The most bytes that closed files may take together. Beyond it the oldest are removed.
    pub limit_bytes: u64,
}

impl Options {
    /// Options for this process on the only machine, starting now: files of 10 MiB, 1 GiB together.
    pub fn new(start: f64) -> Self {
        Self {
            node: "algo-1".to_owned(),
            process: std::process::id(),
            start,
            file_bytes: 10 << 20,
            limit_bytes: 1 << 30,
        }
    }
}

/// How long a file is written to, microseconds of the spans' clock.
const FILE_MICROS: i64 = 60_000_000;
const HOUR_MICROS: i64 = 3_600_000_000;

/// Writes spans into trace files, in about the order in which they end.
///
/// Spans are buffered until [`flush`](Self::flush), or until there are 64 KiB of them. After an error the
/// current file is abandoned.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    options: Options,
    /// Process and node, as file names have them.
    who: String,
    origin: i64,
    /// The track of each name, from 1.
    tracks: HashMap<String, usize>,
    file: Option<Growing>,
    closed: VecDeque<(PathBuf, u64)>,
    closed_bytes: u64,
    removed: u64,
    /// Formatted events; kept to reuse its memory.
    text: Vec<u8>,
}

/// The file that is being written.
#[derive(Debug)]
struct Growing {
    out: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
    /// The ends of the first event and of the last one so far, microseconds.
    first: i64,
    last: i64,
    /// Whether the file has the name of each track.
    named: Vec<bool>,
}

impl Writer {
    /// A writer to `framework/pevents` of the recording's folder. It creates no file before the first span.
    pub fn new(recording: &Path, options: Options) -> Self {
        Self {
            folder: recording.join("framework/pevents"),
            who: format!("{}-{}", options.process, options.node),
            origin: micros(options.start),
            tracks: HashMap::new(),
            file: None,
            closed: VecDeque::new(),
            closed_bytes: 0,
            removed: 0,
            text: Vec::new(),
            options,
        }
    }

    /// Writes a span with the given name; [`Span::name`] is ignored.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if a file cannot be written, for example because the disk is full.
    pub fn write(&mut self, name: &str, span: &Span) -> Result<(), ProfileError> {
        let start = micros(span.start);
        let duration = micros(span.duration);
        let end = start.saturating_add(duration);
        if self.file.as_ref().is_some_and(|file| self.is_over(file, end)) {
            self.close()?;
        }
        let tracks = self.tracks.len();
        let track = match self.tracks.get(name) {
            Some(&track) => track,
            None => *self.tracks.entry(name.to_owned()).or_insert(tracks + 1),
        };
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin(end)?,
        };
        self.text.clear();
        if file.named.len() <= track {
            file.named.resize(track + 1, false);
        }
        if !std::mem::replace(&mut file.named[track], true) {
            let text = format!(
                ",\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{track},\"args\":{{\"name\":{name}}}}},\n\
                 {{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{track},\"args\":{{\"sort_index\":{track}}}}}",
                name = serde_json::Value::from(name)
            );
            self.text.extend_from_slice(text.as_bytes());
        }
        event(
            &mut self.text,
            name,
            track,
            start.saturating_sub(self.origin),
            duration,
            span,
        );
        let written = file.out.write_all(&self.text);
        written.map_err(|source| io_error(&file.path, source))?;
        file.bytes += self.text.len() as u64;
        file.last = file.last.max(end);
        self.file = Some(file);
        Ok(())
    }

    /// Writes buffered spans to the file, and closes the file if it is old enough at the time `now`, unix
    /// seconds.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when a file cannot be written.
    pub fn flush(&mut self, now: f64) -> Result<(), ProfileError> {
        match &mut self.file {
            Some(file) if micros(now).saturating_sub(file.first) < FILE_MICROS => {
                let flushed = file.out.flush();
                flushed.map_err(|source| io_error(&file.path, source))
            }
            Some(_) => self.close(),
            None => Ok(()),
        }
    }

    /// The number of closed files that were removed to keep within [`Options::limit_bytes`].
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Closes the last file.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when it cannot be written.
    pub fn finish(mut self) -> Result<(), ProfileError> {
        self.close()
    }

    /// Whether an event that ends at `end` belongs to the next file.
    fn is_over(&self, file: &Growing, end: i64) -> bool {
        file.bytes >= self.options.file_bytes
            || end.saturating_sub(file.first) >= FILE_MICROS
            || end.div_euclid(HOUR_MICROS) > file.last.div_euclid(HOUR_MICROS)
    }

    fn begin(&self, end: i64) -> Result<Growing, ProfileError> {
        let folder = self.folder.join(hour(end));
        let path = vacant(&folder, end, &format!("{}{SUFFIX}{PART}", self.who));
        let head = format!(
            "[\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"start_time_since_epoch_in_micros\":{}}}}},\n\
             {{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"sort_index\":0}}}}",
            self.origin
        );
        let file = fs::create_dir_all(&folder)
            .and_then(|()| File::create_new(&path))
            .map_err(|source| io_error(&path, source))?;
        let mut out = BufWriter::with_capacity(64 << 10, file);
        out.write_all(head.as_bytes())
            .map_err(|source| io_error(&path, source))?;
        Ok(Growing {
            out,
            path,
            bytes: head.len() as u64,
            first: end,
            last: end,
            named: Vec::new(),
        })
    }

    /// Completes the current file and renames it.
    fn close(&mut self) -> Result<(), ProfileError> {
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let folder = self.folder.join(hour(file.last));
        let path = vacant(&folder, file.last, &format!("{}{SUFFIX}", self.who));
        file.out
            .write_all(b"\n]")
            .and_then(|()| file.out.flush())
            .and_then(|()| file.out.get_ref().sync_all())
            .and_then(|()| fs::create_dir_all(&folder))
            .and_then(|()| fs::rename(&file.path, &path))
            .map_err(|source| io_error(&path, source))?;
        self.closed_bytes += file.bytes;
        self.closed.push_back((path, file.bytes));
        while self.closed_bytes > self.options.limit_bytes && self.closed.len() > 1 {
            let Some((oldest, bytes)) = self.closed.pop_front() else {
                break;
            };
            fs::remove_file(&oldest).map_err(|source| io_error(&oldest, source))?;
            self.closed_bytes -= bytes;
            self.removed += 1;
        }
        Ok(())
    }
}

/// Appends the event of a span.
fn event(to: &mut Vec<u8>, name: &str, track: usize, ts: i64, duration: i64, span: &Span) {
    let row = span.worker.map_or(String::new(), |worker| {
        format!("\"tid\":{},", u64::from(worker) + 1)
    });
    let args: Vec<String> = [
        span.step.map(|step| format!("\"step_num\":{step}")),
        // The key that SageMaker Debugger's own charts look for.
        span.worker.map(|worker| format!("\"worker_id\":{worker}")),
        span.bytes.map(|bytes| format!("\"bytes\":{bytes}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let args = if args.is_empty() {
        String::new()
    } else {
        format!(",\"args\":{{{}}}", args.join(","))
    };
    let text = format!(
        ",\n{{\"name\":{name},\"pid\":{track},{row}\"ph\":\"X\",\"ts\":{ts},\"dur\":{duration}{args}}}",
        name = serde_json::Value::from(name)
    );
    to.extend_from_slice(text.as_bytes());
}

/// A path that begins with the number, or with the next free one.
fn vacant(folder: &Path, number: i64, tail: &str) -> PathBuf {
    (number.max(0)..i64::MAX)
        .map(|number| folder.join(format!("{number}_{tail}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(tail))
}

/// The folder for a time in microseconds.
fn hour(at: i64) -> String {
    hour_name(u64::try_from(at / 1_000_000).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::span;

    fn options(start: f64) -> Options {
        Options {
            process: 4487,
            ..Options::new(start)
        }
    }

    fn spent(start: f64, duration: f64, step: Option<u64>) -> Span {
        Span {
            name: 0,
            start,
            duration,
            step,
            worker: None,
            bytes: None,
        }
    }

    /// All files below `root` with their text, by path.
    fn files(root: &Path) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(root).unwrap().display().to_string();
                    files.push((name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    /// Oracle: the published example.
    #[test]
    fn files_are_those_of_the_reference_to_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let start = 1_589_930_987.655_184;
        let mut writer = Writer::new(dir.path(), options(start));
        writer
            .write(span::STEP, &spent(start + 1.008_335, 1.0, Some(1)))
            .unwrap();
        writer.finish().unwrap();
        let expected = r#"[
{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1589930987655184}},
{"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}},
{"name":"process_name","ph":"M","pid":1,"args":{"name":"Step:ModeKeys.TRAIN"}},
{"name":"process_sort_index","ph":"M","pid":1,"args":{"sort_index":1}},
{"name":"Step:ModeKeys.TRAIN","pid":1,"ph":"X","ts":1008335,"dur":1000000,"args":{"step_num":1}}
]"#;
        let name = "framework/pevents/2020051923/1589930989663519_4487-algo-1_pythontimeline.json";
        assert_eq!(files(dir.path()), [(name.to_owned(), expected.to_owned())]);
    }

    #[test]
    fn workers_have_rows_and_names_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), options(0.0));
        let of_worker = Span {
            worker: Some(3),
            bytes: Some(10),
            ..spent(1.0, 0.5, None)
        };
        writer.write("a \"b\"\n\u{1F300}", &of_worker).unwrap();
        writer.finish().unwrap();
        let [(_, text)] = &files(dir.path())[..] else {
            panic!()
        };
        let events: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        assert_eq!(events[2]["args"]["name"], "a \"b\"\n\u{1F300}");
        assert_eq!(events[4]["tid"], 4);
        assert_eq!(
            events[4]["args"],
            serde_json::json!({"worker_id": 3, "bytes": 10})
        );
    }

    #[test]
    fn files_end_by_size_by_time_and_with_the_hour() {
        let dir = tempfile::tempdir().unwrap();
        let small = Options {
            file_bytes: 2000,
            ..options(7200.0)
        };
        let mut writer = Writer::new(dir.path(), small);
        // Ten seconds apart from two minutes before the hour: at most six to a file, and none across the hour.
        for at in (7080..7320).step_by(10) {
            writer.write("x", &spent(f64::from(at), 1.0, None)).unwrap();
        }
        let of_time = files(dir.path());
        let counts: Vec<_> = of_time
            .iter()
            .map(|(name, text)| {
                let hour = name.split('/').nth(2).unwrap().to_owned();
                (
                    hour,
                    text.matches("\"ph\":\"X\"").count(),
                    name.ends_with(".json"),
                )
            })
            .collect();
        let hour = |hour: &str, count, closed| (hour.to_owned(), count, closed);
        assert_eq!(
            counts,
            [
                hour("1970010101", 6, true),
                hour("1970010101", 6, true),
                hour("1970010102", 6, true),
                hour("1970010102", 0, false) // in the buffer
            ]
        );
        for at in 0..60 {
            writer
                .write("x", &spent(7320.0 + f64::from(at) * 0.001, 0.0, None))
                .unwrap();
        }
        writer.finish().unwrap();
        let of_size = files(dir.path());
        assert!(of_size.len() > 5, "{}", of_size.len());
        let mut events = 0;
        for (name, text) in &of_size {
            assert!(
                text.len() < 2200 && name.ends_with(".json"),
                "{name} {}",
                text.len()
            );
            let array: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
            events += array.iter().filter(|event| event["ph"] == "X").count();
        }
        assert_eq!(events, 24 + 60);
    }

    #[test]
    fn time_that_passes_closes_a_file_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), options(0.0));
        writer.flush(5.0).unwrap();
        writer.write("x", &spent(10.0, 1.0, None)).unwrap();
        writer.flush(70.0).unwrap();
        let [(name, text)] = &files(dir.path())[..] else {
            panic!()
        };
        assert!(
            name.ends_with(".json.part") && text.ends_with('}'),
            "{name}: {text}"
        );
        writer.flush(71.0).unwrap();
        let [(name, text)] = &files(dir.path())[..] else {
            panic!()
        };
        assert!(
            name.ends_with("/11000000_4487-algo-1_pythontimeline.json"),
            "{name}"
        );
        assert!(text.ends_with("}\n]"));
    }

    #[test]
    fn the_oldest_files_go_and_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let limited = Options {
            limit_bytes: 3000,
            ..options(0.0)
        };
        let mut writer = Writer::new(dir.path(), limited);
        for minute in 0..100 {
            writer
                .write("x", &spent(f64::from(minute) * 60.0, 1.0, None))
                .unwrap();
        }
        let left = files(dir.path());
        let bytes: usize = left.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes <= 3000 + 500 && left.len() > 3, "{bytes} {}", left.len());
        assert_eq!(writer.removed() as usize + left.len(), 100);
        writer.finish().unwrap();
        assert!(files(dir.path()).last().unwrap().0.contains("/5941000000_"));
    }

    #[test]
    fn two_files_that_would_have_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let mut writer = Writer::new(dir.path(), options(0.0));
            writer.write("x", &spent(1.0, 1.0, None)).unwrap();
            writer.finish().unwrap();
        }
        let names: Vec<_> = files(dir.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3);
        assert!(
            names[2].ends_with("/2000002_4487-algo-1_pythontimeline.json"),
            "{names:?}"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("framework"), "a file").unwrap();
        let mut writer = Writer::new(dir.path(), options(0.0));
        let error = writer.write("x", &spent(1.0, 1.0, None)).unwrap_err().to_string();
        assert!(error.contains("framework/pevents/1970010100"), "{error}");
        writer.finish().unwrap();
    }
}
