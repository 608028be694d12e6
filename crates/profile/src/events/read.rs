//! Reads trace files and line files of any program.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use stokehold_base::regular;

use super::PART;
use super::damage::Damage;
use super::trace::parse;
use crate::recording::{Recording, Span};
use crate::system::MOST_NODES;
use crate::timeline::line::{self, Said};

/// Larger trace files are not read, bytes; ours have 10 MiB.
const LARGEST: u64 = 1 << 30;
/// At most this many spans are read, the oldest first: they take 1 GiB of memory.
const MOST: usize = 16 << 20;
/// How deep below `framework` to search for files; ours are two folders deep.
const DEPTH: usize = 4;

/// Reads the spans of all nodes below `framework` of the recording's folder `recording` into `into`.
///
/// The folder need not exist. Files in progress are read as far as they were written. Data that cannot be
/// read is skipped, with one entry a file in [`Recording::problems`]; everything else is read. The caller
/// [sorts](Recording::sort).
pub fn read_into(recording: &Path, into: &mut Recording) {
    read_since(recording, 0.0, into);
}

/// As [`read_into`], but skips finished files whose last event ended before `since`, unix seconds.
pub(crate) fn read_since(recording: &Path, since: f64, into: &mut Recording) {
    let mut files = Vec::new();
    find(
        &recording.join("framework"),
        DEPTH,
        &mut files,
        &mut into.problems,
    );
    files.retain(|file| {
        let end = file
            .name
            .split('_')
            .next()
            .and_then(|end| end.parse::<f64>().ok());
        file.growing || end.is_none_or(|end| end / 1e6 >= since)
    });
    // Sorted by the number at the start of their names, and so by time.
    files.sort_by_cached_key(|file| {
        let digits: String = file.name.chars().take_while(char::is_ascii_digit).collect();
        (digits.parse().unwrap_or(u64::MAX), file.path.clone())
    });
    let mut spans = Collected {
        into,
        places: HashMap::new(),
        left: MOST,
        node: 0,
    };
    for file in files {
        let told = match file.format {
            SpanFormat::Trace => trace_file(&file, &mut spans),
            SpanFormat::Lines => line_file(&file, &mut spans),
        };
        if let Some(problem) = told {
            let path = file.path.display();
            spans.into.problems.push(format!("{path}: {problem}"));
        }
        if spans.left == 0 {
            let note = format!(
                "more than {MOST} spans; those from {} on are missing",
                file.path.display()
            );
            spans.into.problems.push(note);
            break;
        }
    }
}

/// The format of a file.
#[derive(Clone, Copy)]
enum SpanFormat {
    Trace,
    Lines,
}

struct SpanFile {
    path: PathBuf,
    name: String,
    format: SpanFormat,
    node: String,
    /// Whether the file may still grow.
    growing: bool,
}

/// Searches for files of spans; symbolic links are not followed.
fn find(folder: &Path, depth: usize, files: &mut Vec<SpanFile>, problems: &mut Vec<String>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            problems.push(format!("{}: {error}", folder.display()));
            return;
        }
    };
    for entry in entries {
        let (entry, kind) = match entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind))) {
            Ok(found) => found,
            Err(error) => {
                problems.push(format!("{}: {error}", folder.display()));
                continue;
            }
        };
        let path = entry.path();
        if kind.is_dir() && depth > 0 {
            find(&path, depth - 1, files, problems);
        } else if kind.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match classify(&name) {
                Ok(Some((format, node, growing))) => files.push(SpanFile {
                    path,
                    format,
                    node,
                    growing,
                    name,
                }),
                Ok(None) => {}
                Err(reason) => problems.push(format!("{}: {reason}", path.display())),
            }
        }
    }
}

/// Reads a file's name: format, node, and whether it still grows; `None` for files without spans.
fn classify(name: &str) -> Result<Option<(SpanFormat, String, bool)>, &'static str> {
    if name.ends_with(".timeline") {
        return Ok(Some((SpanFormat::Lines, "algo-1".to_owned(), true)));
    }
    // SageMaker Debugger names a file in progress `.tmp`, without a time:
    // `4487-algo-1_pythontimeline.json.tmp`.
    let whole = name.strip_suffix(PART).or(name.strip_suffix(".tmp"));
    let growing = whole.is_some();
    let Some(stem) = whole.unwrap_or(name).strip_suffix(".json") else {
        return Ok(None);
    };
    let fields: Vec<&str> = stem.split('_').collect();
    let writer = match fields[..] {
        // Every event of a merged file is also in another file.
        [.., "merged", "timeline"] => return Ok(None),
        [.., "horovod" | "smdataparallel", "timeline"] => {
            return Err("timelines of Horovod and SMDataParallel are not read");
        }
        [_, writer, "pythontimeline"] | [_, writer, "model", "timeline"] => writer,
        [writer, "pythontimeline"] | [writer, "model", "timeline"] if growing => writer,
        _ => return Err("not the name of a trace file"),
    };
    // The process number precedes the node: `4487-algo-1`.
    let node = writer.find("-algo").map_or(writer, |at| &writer[at + 1..]);
    Ok(Some((SpanFormat::Trace, node.to_owned(), growing)))
}

/// The spans read so far.
struct Collected<'a> {
    into: &'a mut Recording,
    /// Indices of names, by node.
    places: HashMap<(usize, String), u32>,
    /// How many further spans may be read.
    left: usize,
    /// The node of the current file.
    node: usize,
}

impl Collected<'_> {
    /// The following spans are of this node.
    ///
    /// # Errors
    /// It would be one machine too many.
    fn of_node(&mut self, name: &str) -> Result<(), String> {
        let nodes = &mut self.into.nodes;
        let known = nodes.iter().position(|node| node.name == name);
        if known.is_none() && nodes.len() >= MOST_NODES {
            return Err(format!("of one of more than {MOST_NODES} machines; left out"));
        }
        self.node = known.unwrap_or_else(|| {
            nodes.push(crate::Node {
                name: name.to_owned(),
                ..crate::Node::default()
            });
            nodes.len() - 1
        });
        Ok(())
    }

    /// Adds a span. Returns `false` when the limit is reached.
    fn push(&mut self, name: Cow<'_, str>, span: Span) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let node = &mut self.into.nodes[self.node];
        let name = *self
            .places
            .entry((self.node, name.into_owned()))
            .or_insert_with_key(|(_, name)| node.name(name));
        node.spans.push(Span { name, ..span });
        true
    }
}

fn line_file(file: &SpanFile, spans: &mut Collected<'_>) -> Option<String> {
    let mut lines = match regular::open(&file.path) {
        Ok(open) => BufReader::with_capacity(64 << 10, open),
        Err(error) => return Some(error.to_string()),
    };
    if let Err(reason) = spans.of_node(&file.node) {
        return Some(reason);
    }
    let mut damage = Damage::default();
    let mut text = Vec::new();
    for number in 1u64.. {
        text.clear();
        match (&mut lines)
            .take(line::LONGEST as u64)
            .read_until(b'\n', &mut text)
        {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                damage.tell(|| format!("line {number}: {error}"));
                break;
            }
        }
        let Some((b'\n', line)) = text.split_last() else {
            let longer = text.len() == line::LONGEST;
            // A line without an end is still being written.
            if longer {
                damage.tell(|| format!("line {number} is longer than {} bytes", line::LONGEST));
                if skip_line(&mut lines).is_err() {
                    break;
                }
            }
            continue;
        };
        match line::parse(line) {
            Ok(Said::Span(name, span)) => {
                if !spans.push(Cow::Borrowed(name), span) {
                    break;
                }
            }
            // Metrics are not spans.
            Ok(Said::Metric { .. }) => {}
            Err(reason) => damage.tell(|| format!("line {number}: {reason}")),
        }
    }
    damage.sum("lines")
}

/// Skips to the end of the line.
fn skip_line(lines: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let (len, last) = (
            end.map_or(buffer.len(), |at| at + 1),
            end.is_some() || buffer.is_empty(),
        );
        lines.consume(len);
        if last {
            return Ok(());
        }
    }
}

fn trace_file(file: &SpanFile, spans: &mut Collected<'_>) -> Option<String> {
    let mut bytes = Vec::new();
    let read = regular::open(&file.path).and_then(|open| open.take(LARGEST + 1).read_to_end(&mut bytes));
    match read {
        // The file was renamed to its final name since it was listed.
        Err(error) if file.growing && error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(error.to_string()),
        Ok(_) if bytes.len() as u64 > LARGEST => {
            return Some("larger than 1 GiB, which is not read".to_owned());
        }
        Ok(_) => {}
    }
    if let Err(reason) = spans.of_node(&file.node) {
        return Some(reason);
    }
    parse(&bytes, file.growing, |name, span| spans.push(name, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Options, Writer};
    use crate::recording::span;
    use crate::timeline::line::LATEST;
    use proptest::prelude::*;

    /// What is read from files below `framework/`.
    fn read(files: &[(&str, &[u8])]) -> Recording {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join("framework").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let mut recording = Recording::default();
        read_into(dir.path(), &mut recording);
        recording.sort();
        recording
    }

    fn array(bytes: &[u8], growing: bool) -> (Vec<(String, Span)>, Option<String>) {
        let mut spans = Vec::new();
        let told = parse(bytes, growing, |name, span| {
            spans.push((name.into_owned(), span));
            true
        });
        (spans, told)
    }

    const HEAD: &str = r#"[
{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1589930987655184}},
{"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}},
{"name":"process_name","ph":"M","pid":1,"args":{"name":"Step:ModeKeys.TRAIN"}}"#;
    const STEP: &str =
        r#"{"name":"Step:ModeKeys.TRAIN","pid":1,"ph":"X","ts":1008335,"dur":1000000,"args":{"step_num":1}}"#;
    const NAME: &str = "pevents/2020051923/1589930989663519_4487-algo-1_pythontimeline.json";

    fn whole(events: &[&str]) -> String {
        format!("{HEAD},\n{}\n]", events.join(",\n"))
    }

    /// Oracle: the published example.
    #[test]
    fn reads_the_published_file() {
        let recording = read(&[(NAME, whole(&[STEP]).as_bytes())]);
        assert_eq!(recording.problems, [""; 0]);
        let [node] = &recording.nodes[..] else { panic!() };
        assert_eq!(
            (node.name.as_str(), &node.names[..]),
            ("algo-1", &[span::STEP.to_owned()][..])
        );
        let [step] = node.spans[..] else { panic!() };
        assert_eq!(
            (step.start, step.duration, step.step),
            (1_589_930_988.663_519, 1.0, Some(1))
        );
    }

    #[test]
    fn nodes_processes_and_other_writers() {
        let two = whole(&[
            STEP,
            &STEP.replace(
                "\"step_num\":1",
                "\"step_num\":\"2\",\"worker_id\":5,\"more\":[{}]",
            ),
        ]);
        let recording = read(&[
            (
                "pevents/2020051923/1_9-algo-2_model_timeline.json",
                two.as_bytes(),
            ),
            (
                "pevents/2020051923/2_8-algo-2_pythontimeline.json",
                two.as_bytes(),
            ),
            (
                "7-algo-10_pythontimeline.json.tmp",
                format!("{HEAD},\n{STEP},\n").as_bytes(),
            ),
            (
                "pevents/2020051923/3_7-algo-2_merged_timeline.json",
                two.as_bytes(),
            ),
            ("detailed/host.trace.json.gz", b"\x1f\x8b"),
            (
                "loop.timeline",
                b"step 1589930988.5 1589930989.0 step=3\nwait 1589930988 1589930988.5 step=3\n",
            ),
        ]);
        assert_eq!(recording.problems, [""; 0]);
        let nodes: Vec<_> = recording
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.spans.len()))
            .collect();
        assert_eq!(nodes, [("algo-1", 2), ("algo-2", 4), ("algo-10", 1)]);
        let steps: Vec<_> = recording.nodes[1]
            .spans
            .iter()
            .map(|span| (span.step, span.worker))
            .collect();
        assert_eq!(
            steps,
            [
                (Some(1), None),
                (Some(2), Some(5)),
                (Some(1), None),
                (Some(2), Some(5))
            ]
        );
        assert_eq!(
            recording.nodes[0].spans_of(span::WAIT).next().unwrap().duration,
            0.5
        );
    }

    #[test]
    fn machines_beyond_the_limit_are_left_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let framework = dir.path().join("framework");
        fs::create_dir(&framework).unwrap();
        for node in 0..=MOST_NODES {
            let name = format!(
                "{}_7-algo-{node}_pythontimeline.json",
                1_589_930_989_663_519 + node
            );
            fs::write(framework.join(name), whole(&[STEP])).unwrap();
        }
        let mut recording = Recording::default();
        read_into(dir.path(), &mut recording);
        assert_eq!(recording.nodes.len(), MOST_NODES);
        assert!(
            recording.problems[0].ends_with("of one of more than 4096 machines; left out"),
            "{:?}",
            recording.problems
        );
    }

    #[test]
    fn what_is_damaged_is_missing_and_told() {
        for (events, left, told) in [
            (
                vec![r#"{"ph":"X","name":"a","pid":1,"ts":1}"#, STEP],
                1,
                "it has no dur",
            ),
            (
                vec![r#"{"ph":"X","name":"a","pid":1,"ts":"soon","dur":1}"#, STEP],
                1,
                "expected f64",
            ),
            (
                vec![r#"{"ph":"X","name":"a","pid":1,"ts":1,"dur":-1}"#, STEP],
                1,
                "are no time",
            ),
            (
                vec![r#"{"ph":"X","name":"a","pid":1,"ts":1e300,"dur":1}"#, STEP],
                1,
                "are no time",
            ),
            (
                vec![r#"{"ph":"X","pid":77,"ts":1,"dur":1}"#, STEP],
                1,
                "it has no name",
            ),
            (
                vec![r#"{"ph":"B","name":"a","pid":1,"ts":1}"#, STEP],
                1,
                "phase \"B\"",
            ),
            (vec![STEP, "{]", STEP], 1, "where reading ended"),
            (vec![STEP, "17", STEP], 1, "instead of an event"),
            (vec![STEP, &STEP[..40]], 1, "where reading ended"),
            (vec![STEP, "{\"name\":\"\u{1}\"}"], 1, "where reading ended"),
        ] {
            let recording = read(&[(NAME, whole(&events).as_bytes())]);
            let [problem] = &recording.problems[..] else {
                panic!("{events:?}: {:?}", recording.problems)
            };
            assert!(problem.contains(told) && problem.contains(NAME), "{problem}");
            assert_eq!(recording.nodes[0].spans.len(), left, "{events:?}");
        }
        // The same often is one entry.
        let bad = r#"{"ph":"X","name":"a","pid":1,"ts":1}"#;
        let recording = read(&[(NAME, whole(&[bad, bad, STEP, bad]).as_bytes())]);
        assert_eq!(recording.problems.len(), 1);
        assert!(
            recording.problems[0].contains("3 events are damaged"),
            "{:?}",
            recording.problems
        );
    }

    #[test]
    fn what_is_no_trace_file_is_told() {
        for (name, bytes, told) in [
            (NAME, &b""[..], "not an array"),
            (NAME, b"{\"traceEvents\":[]}", "not an array"),
            (NAME, b"\xff\xfe\x00", "not an array"),
            (NAME, STEP.as_bytes(), "not an array"),
            (NAME, b"[", "end of the file is missing"),
            (NAME, b"[]]", "follows the array"),
            ("pevents/x/notes.json", b"[]", "not the name of a trace file"),
            (
                "pevents/x/1_2-algo-1_horovod_timeline.json",
                b"[]",
                "are not read",
            ),
        ] {
            let recording = read(&[(name, bytes)]);
            assert!(
                recording.problems.len() == 1 && recording.problems[0].contains(told),
                "{:?} instead of {told}",
                recording.problems
            );
        }
        // Times that count from nowhere.
        let (spans, told) = array(format!("[{STEP}]").as_bytes(), false);
        assert!(spans.is_empty() && told.unwrap().contains("start time"));
        assert_eq!(array(b"[]", false), (Vec::new(), None));
    }

    #[test]
    fn the_folder_need_not_exist_and_links_are_not_followed() {
        assert!(read(&[]).problems.is_empty());
        #[cfg(unix)]
        {
            let dir = tempfile::tempdir().unwrap();
            let inner = dir.path().join("framework");
            fs::create_dir(&inner).unwrap();
            std::os::unix::fs::symlink(&inner, inner.join("again")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", inner.join("1_1-algo-1_pythontimeline.json")).unwrap();
            let mut recording = Recording::default();
            read_into(dir.path(), &mut recording);
            assert!(recording.nodes.is_empty() && recording.problems.is_empty());
        }
    }

    #[test]
    fn line_files_lose_their_bad_lines_only() {
        let long = "x".repeat(5000);
        let text = format!("step 1 2 step=1\nnonsense\n{long}\n\nwait 3 4\nstep 5 6 st");
        let recording = read(&[("own.timeline", text.as_bytes())]);
        assert_eq!(recording.nodes[0].spans.len(), 2);
        let [problem] = &recording.problems[..] else {
            panic!()
        };
        assert!(
            problem.contains("3 lines are damaged and missing; the first: line 2: no start"),
            "{problem}"
        );
    }

    /// A file cut off anywhere gives the first events of the whole one, as they are.
    #[test]
    fn every_prefix_of_a_file_gives_the_events_that_are_in_it() {
        let text = whole(&[
            STEP,
            &STEP.replace("1008335", "2008335"),
            &STEP.replace("1008335", "3008335"),
        ]);
        let (all, none) = array(text.as_bytes(), false);
        assert!(all.len() == 3 && none.is_none());
        let mut ends = text.match_indices("}}").map(|(at, _)| at + 2).skip(3);
        let ends = [ends.next().unwrap(), ends.next().unwrap(), ends.next().unwrap()];
        for len in 0..text.len() {
            let prefix = &text.as_bytes()[..len];
            let expected = ends.iter().filter(|&&end| end <= len).count();
            for growing in [false, true] {
                let (spans, told) = array(prefix, growing);
                assert_eq!(spans, all[..expected], "{len}");
                assert_eq!(told.is_none(), growing, "{len}: {told:?}");
            }
        }
    }

    fn spans() -> impl Strategy<Value = Vec<(String, Span)>> {
        let start = prop_oneof![0f64..2e9, 1.7e9..1.7e9 + 600.0];
        let number = || proptest::option::of(any::<u32>().prop_map(u64::from));
        let span = (
            start,
            0f64..1000.0,
            number(),
            proptest::option::of(any::<u32>()),
            number(),
        );
        let one = ("[ -~\\PC]{1,12}", span).prop_map(|(name, (start, duration, step, worker, bytes))| {
            (
                name,
                Span {
                    name: 0,
                    start,
                    duration,
                    step,
                    worker,
                    bytes,
                },
            )
        });
        proptest::collection::vec(one, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What is written is read: names and numbers exactly, times to the microsecond.
        #[test]
        fn what_is_written_is_read(spans in spans(), file_bytes in 500u64..5000, flush in any::<bool>()) {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { file_bytes, ..Options::new(1.7e9) };
            let mut writer = Writer::new(dir.path(), options);
            for (name, span) in &spans {
                writer.write(name, span).unwrap();
            }
            if flush {
                writer.flush(0.0).unwrap();
            } else {
                writer.finish().unwrap();
            }
            let mut recording = Recording::default();
            read_into(dir.path(), &mut recording);
            prop_assert_eq!(&recording.problems, &Vec::<String>::new());
            let key = |name: &str, span: &Span| {
                (name.to_owned(), micros(span.start), micros(span.duration), span.step, span.worker, span.bytes)
            };
            let mut wanted: Vec<_> = spans.iter().map(|(name, span)| key(name, span)).collect();
            let mut got: Vec<_> = recording
                .nodes
                .iter()
                .flat_map(|node| node.spans.iter().map(|span| key(&node.names[span.name as usize], span)))
                .collect();
            wanted.sort();
            got.sort();
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), growing in any::<bool>()) {
            array(&bytes, growing);
        }

        /// A file with some bytes changed: every span is a time, and nothing is reported twice.
        #[test]
        fn damage_is_no_panic(at in 0usize..600, with in any::<u8>(), growing in any::<bool>()) {
            let mut text = whole(&[STEP, STEP, STEP]).into_bytes();
            let len = text.len();
            text[at % len] = with;
            let (spans, _) = array(&text, growing);
            prop_assert!(spans.len() <= 3);
            for (_, span) in spans {
                prop_assert!(span.start >= 0.0 && span.start < LATEST && span.duration >= 0.0);
            }
        }
    }

    fn micros(seconds: f64) -> i64 {
        crate::events::micros(seconds)
    }
}
