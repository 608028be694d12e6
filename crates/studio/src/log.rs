//! Logs: followed as they grow, read from any place, and searched.
//!
//! Positions are bytes of the file, so that a page can continue where it was, in any process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;
use stokehold_base::regular;
use stokehold_jobs::Line;

use crate::text;

/// The most that is read for an answer, bytes.
pub const PART: u64 = 256 << 10;
/// The most lines of an answer: short ones take more room in it than in the file.
const LINES: usize = 2000;
/// The most that is searched for an answer, bytes.
const SEARCHED: u64 = 32 << 20;
/// The most lines that a search returns.
const HITS: usize = 200;

/// A line of a log, as it is shown.
#[derive(Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Its first byte in the file.
    pub at: u64,
    /// When it was printed, unix seconds, if the log says.
    pub time: Option<f64>,
    /// Which instance printed it.
    pub host: String,
    /// Whether it came on standard error.
    pub is_error: bool,
    /// The line.
    pub text: String,
}

/// A part of a log.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct LogChunk {
    /// Its first byte in the file.
    pub from: u64,
    /// The first byte after its last whole line.
    pub to: u64,
    /// The file's length.
    pub length: u64,
    /// The lines.
    pub lines: Vec<Shown>,
    /// What follows the last whole line up to the file's end, if anything does: a line that continues, or the last one of a program that
    /// ended without a line end. The next part has it again.
    pub tail: Option<Shown>,
}

/// The whole lines from a byte on; the beginning of a line that is cut by `from` is left out, unless `from` is where a line begins.
///
/// # Errors
/// The system's.
pub fn from(path: &Path, from: u64) -> io::Result<LogChunk> {
    read(path, from, PART, None)
}

/// The lines before a byte: as many as fit.
///
/// # Errors
/// The system's.
pub fn before(path: &Path, end: u64) -> io::Result<LogChunk> {
    let (file, length) = open(path)?;
    let end = end.min(length);
    let first = end.saturating_sub(PART);
    let bytes = take(&file, first, end - first)?;
    // This many lines from the end.
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let skipped = ends.rev().nth(LINES).map_or(0, |(at, _)| at + 1);
    let mut part = part_of(&bytes[skipped..], first + skipped as u64, length, None);
    // Without the rest of a line that began earlier, unless all of it is that line.
    if first > 0 && skipped == 0 && part.lines.len() > 1 {
        part.lines.remove(0);
        part.from = part.lines[0].at;
    }
    Ok(part)
}

/// The lines that have a text in them, in any case, from a byte on. Where it found enough or has searched enough, `to` says where to
/// continue. What stands before a line, its time and its host, is not searched.
///
/// # Errors
/// The system's.
pub fn search(path: &Path, from: u64, words: &str) -> io::Result<LogChunk> {
    let words = words.to_lowercase();
    let mut all = LogChunk {
        from,
        to: from,
        ..LogChunk::default()
    };
    let mut searched = 0;
    while searched < SEARCHED && all.lines.len() < HITS {
        let part = read(path, all.to, 4 * PART, Some(&words))?;
        all.length = part.length;
        // It may have been written again, and is searched from its beginning then.
        all.from = all.from.min(part.from);
        searched += part.to - part.from;
        for line in part.lines {
            if all.lines.len() == HITS {
                all.to = line.at;
                return Ok(all);
            }
            all.lines.push(line);
        }
        all.to = part.to;
        if part.to == part.from || all.to >= all.length {
            // Nothing but a line without an end is left.
            all.lines.extend(part.tail);
            all.to = all.length;
            break;
        }
    }
    Ok(all)
}

fn read(path: &Path, from: u64, most: u64, words: Option<&str>) -> io::Result<LogChunk> {
    let (file, length) = open(path)?;
    // A log that was written again is read from its beginning.
    let from = if from > length { 0 } else { from };
    Ok(part_of(&take(&file, from, most)?, from, length, words))
}

/// The lines of some bytes of a log, of those that have a text in them, and what follows them.
fn part_of(bytes: &[u8], from: u64, length: u64, words: Option<&str>) -> LogChunk {
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        // A line that is longer than what is read at once comes in pieces: nothing waits for its end.
        None if bytes.len() as u64 >= PART => bytes.len(),
        None => 0,
    };
    let mut part = LogChunk {
        from,
        to: from + whole as u64,
        length,
        ..LogChunk::default()
    };
    let found = |at: u64, line: &[u8]| {
        let stored = String::from_utf8_lossy(line);
        let text = stamped(&stored).map_or(&*stored, |line| line.text);
        // As it is shown: without what colours it.
        let has = |words: &str| match text.contains(['\x1b', '\r']) {
            true => text::line(text).to_lowercase().contains(words),
            false => text.to_lowercase().contains(words),
        };
        let fits = words.is_none_or(has);
        fits.then(|| shown(at, &stored))
    };
    let mut at = from;
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        if part.lines.len() == LINES {
            part.to = at;
            return part;
        }
        part.lines.extend(found(at, line));
        at += line.len() as u64;
    }
    let rest = &bytes[whole..];
    if !rest.is_empty() && at + rest.len() as u64 >= length {
        part.tail = found(at, rest);
    }
    part
}

/// A file, and its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = regular::open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn take(mut file: &File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A line with the time, the host and the stream of a job's log, if it has them.
fn stamped(stored: &str) -> Option<Line<'_>> {
    Line::parse(stored).filter(|line| line.time > 0.0 && matches!(line.stream, "out" | "err"))
}

fn shown(at: u64, stored: &str) -> Shown {
    match stamped(stored) {
        Some(line) => Shown {
            at,
            time: Some(line.time),
            host: text::short(line.host, 40),
            is_error: line.stream == "err",
            text: text::line(line.text),
        },
        None => Shown {
            at,
            time: None,
            host: String::new(),
            is_error: false,
            text: text::line(stored),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn texts(part: &LogChunk) -> Vec<&str> {
        part.lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// Empty lines would be many times as long in an answer as in the file.
    #[test]
    fn an_answer_has_so_many_lines_and_the_next_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "\n".repeat(3 * LINES)).unwrap();
        let (mut at, mut count) = (0, 0);
        while at < 3 * LINES as u64 {
            let part = from(&path, at).unwrap();
            assert!((1..=LINES).contains(&part.lines.len()) && part.tail.is_none());
            (at, count) = (part.to, count + part.lines.len());
        }
        assert_eq!(count, 3 * LINES);
        let last = before(&path, 3 * LINES as u64).unwrap();
        assert_eq!(
            (last.lines.len(), last.from, last.to),
            (LINES, 2 * LINES as u64, 3 * LINES as u64)
        );
    }

    #[test]
    fn a_search_finds_what_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(
            &path,
            "val_loss: \x1b[32m0.500\x1b[0m\nother\nhidden 10 %\rdone\n",
        )
        .unwrap();
        assert!(search(&path, 0, "hidden").unwrap().lines.is_empty());
        assert_eq!(
            texts(&search(&path, 0, "val_loss: 0.5").unwrap()),
            ["val_loss: 0.500"]
        );
    }

    #[test]
    fn a_log_is_followed_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"1700000000.5 algo-1 err <b>loss</b> 1\n1700000001.0 algo-1 out ha")
            .unwrap();
        let first = from(&path, 0).unwrap();
        assert_eq!(texts(&first), ["<b>loss</b> 1"]);
        assert_eq!(first.tail.as_ref().unwrap().text, "ha");
        assert!(first.lines[0].is_error && first.lines[0].time == Some(1_700_000_000.5));
        file.write_all(b"lf\nno stamp\n").unwrap();
        let second = from(&path, first.to).unwrap();
        assert_eq!(texts(&second), ["half", "no stamp"]);
        assert_eq!((second.to, second.lines[1].host.as_str()), (second.length, ""));
        let end = from(&path, second.to).unwrap();
        assert!(end.lines.is_empty() && end.tail.is_none());
        // Written again.
        std::fs::write(&path, "x\n").unwrap();
        assert_eq!(texts(&from(&path, second.to).unwrap()), ["x"]);
    }

    #[test]
    fn a_long_log_is_read_from_its_end_and_searched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let text: String = (0..100_000).map(|n| format!("line {n} of the Log\n")).collect();
        std::fs::write(&path, &text).unwrap();
        let end = before(&path, text.len() as u64).unwrap();
        assert_eq!(end.lines.len(), LINES);
        assert_eq!(end.lines.last().unwrap().text, "line 99999 of the Log");
        assert_eq!(end.lines[0].text, "line 98000 of the Log");
        let earlier = before(&path, end.from).unwrap();
        assert_eq!(earlier.to, end.from);
        let found = search(&path, 0, "LINE 999 ").unwrap();
        assert_eq!(texts(&found), ["line 999 of the Log"]);
        let many = search(&path, 0, "log").unwrap();
        assert_eq!(many.lines.len(), HITS);
        assert_eq!(
            texts(&search(&path, many.to, "log").unwrap())[0],
            "line 200 of the Log"
        );
    }

    #[test]
    fn what_has_no_line_end_is_the_tail_and_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "bye").unwrap();
        let whole = before(&path, 3).unwrap();
        assert_eq!((whole.lines.len(), whole.to), (0, 0));
        assert_eq!(whole.tail.unwrap().text, "bye");
        std::fs::write(
            &path,
            "1700000000.5 algo-1 out one 17\n1700000001.5 algo-1 err two",
        )
        .unwrap();
        // Times and hosts are not searched.
        assert_eq!(texts(&search(&path, 0, "17").unwrap()), ["one 17"]);
        assert!(search(&path, 0, "algo").unwrap().lines.is_empty());
        let found = search(&path, 0, "TWO").unwrap();
        assert_eq!((texts(&found), found.to), (vec!["two"], found.length));
        // From beyond the end of a log that was written again.
        let anew = search(&path, 1 << 40, "one").unwrap();
        assert_eq!((texts(&anew), anew.from), (vec!["one 17"], 0));
        std::fs::write(&path, "").unwrap();
        assert_eq!(search(&path, 1 << 40, "one").unwrap().to, 0);
    }

    #[test]
    fn megabyte_lines_pass() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, [&vec![b'x'; 1 << 20][..], b"\nend\n"].concat()).unwrap();
        let (mut at, mut last) = (0, String::new());
        for _ in 0..10 {
            let part = from(&path, at).unwrap();
            at = part.to;
            if let Some(line) = part.lines.last() {
                last.clone_from(&line.text);
            }
        }
        assert_eq!(last, "end");
        assert!(
            before(&path, at)
                .unwrap()
                .lines
                .iter()
                .all(|line| line.text.len() < 5000)
        );
    }
}
