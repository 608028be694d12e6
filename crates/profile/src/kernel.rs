//! Reads `/proc` and its text formats (see proc(5)).
//!
//! The parsers take bytes, so that tests can run them on any platform with files of other machines.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A kernel file that is kept open and read repeatedly from its start.
pub(crate) struct KernelFile(File);

impl KernelFile {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Reads the file again. The buffer keeps its capacity.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if buffer.len() < 4096 {
            buffer.resize(4096, 0);
        }
        let mut end = 0;
        loop {
            if end == buffer.len() {
                buffer.resize(2 * end, 0);
            }
            // The kernel may return a list of devices in parts: only an empty read is the end.
            let read = self.0.read_at(&mut buffer[end..], end as u64)?;
            end += read;
            if read == 0 {
                return Ok(&buffer[..end]);
            }
        }
    }

    /// As [`read`](Self::read), with a single read call, for files that the kernel returns in one piece.
    pub fn read_at_once<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if buffer.len() < 4096 {
            buffer.resize(4096, 0);
        }
        loop {
            let read = self.0.read_at(buffer, 0)?;
            if read < buffer.len() {
                return Ok(&buffer[..read]);
            }
            buffer.resize(2 * read, 0);
        }
    }
}

/// The lines of a text, without their ends.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
}

/// A number in decimal digits; `None` for anything else.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// The first number of the line that begins with `name`.
pub(crate) fn field(text: &[u8], name: &str) -> Option<u64> {
    let rest = lines(text).find_map(|line| line.strip_prefix(name.as_bytes()))?;
    number(words(rest).next()?)
}

/// The growth of a counter per second; NaN if it decreased, as after a reset.
pub(crate) fn rate(before: u64, after: u64, seconds: f64) -> f64 {
    after
        .checked_sub(before)
        .map_or(f64::NAN, |grown| grown as f64 / seconds)
}

/// A `/proc` file system; its root is another one only in tests.
pub(crate) struct ProcFs {
    root: PathBuf,
}

impl ProcFs {
    pub fn system() -> Self {
        Self::at("/proc")
    }

    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The peak resident memory of this process, in bytes, if the platform provides it.
    pub fn peak_rss(&self) -> Option<u64> {
        let status = fs::read(self.root.join("self/status")).ok()?;
        field(&status, "VmHWM:")?.checked_mul(1024)
    }

    /// The processor's name and the bytes of memory, if the platform provides them.
    pub fn machine(&self) -> (Option<String>, Option<u64>) {
        let text = |name| fs::read(self.root.join(name)).ok();
        let cpu = text("cpuinfo").and_then(|text| cpu_model(&String::from_utf8_lossy(&text)));
        let memory = text("meminfo").and_then(|text| field(&text, "MemTotal:")?.checked_mul(1024));
        (cpu, memory)
    }

    /// The cores that a process may run on.
    pub fn allowed_cores(&self, process: &str) -> Option<CoreList> {
        let status = fs::read_to_string(self.root.join(process).join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        CoreList::parse(line.trim())
    }
}

/// x86 has `model name : ..` for every core; ARM has no such line.
fn cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A list of cores, such as `0-3,8`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CoreList(Vec<(u32, u32)>);

impl CoreList {
    pub fn contains(&self, core: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&core))
    }

    fn parse(text: &str) -> Option<Self> {
        text.split(',')
            .map(|range| match range.split_once('-') {
                Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
                None => range.parse().ok().map(|core| (core, core)),
            })
            .collect::<Option<_>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for word in [&b""[..], b"18446744073709551616", b"-1", b"1.5", b"x"] {
            assert_eq!(number(word), None);
        }
        assert_eq!(field(b"a: 1\nMemFree:   23 kB\n", "MemFree:"), Some(23));
        assert_eq!(field(b"a: 1\n", "MemFree:"), None);
    }

    #[test]
    fn a_counter_that_steps_back_has_no_rate() {
        assert_eq!(rate(10, 30, 2.0), 10.0);
        assert!(rate(30, 10, 2.0).is_nan());
    }

    #[test]
    fn a_kernel_file_is_read_anew_however_long_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "short").unwrap();
        let file = KernelFile::open(&path).unwrap();
        let mut buffer = Vec::new();
        for length in [5000, 100_000, 0, 4096] {
            fs::write(&path, vec![b'x'; length]).unwrap();
            assert_eq!(file.read(&mut buffer).unwrap().len(), length);
            assert_eq!(file.read_at_once(&mut buffer).unwrap().len(), length);
        }
    }

    #[test]
    fn core_lists_and_processors() {
        let list = CoreList::parse("0-1,5").unwrap();
        let cores: Vec<u32> = (0..8).filter(|&core| list.contains(core)).collect();
        assert_eq!(cores, [0, 1, 5]);
        assert_eq!(CoreList::parse("0-x"), None);
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n").as_deref(),
            Some("A CPU @ 2 GHz")
        );
        assert_eq!(cpu_model("processor\t: 0\nBogoMIPS\t: 50\n"), None);
    }

    #[test]
    fn without_proc_nothing_is_invented() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(ProcFs::at(empty.path()).machine(), (None, None));
        assert_eq!(ProcFs::at(empty.path()).peak_rss(), None);
        assert_eq!(ProcFs::at(empty.path()).allowed_cores("self"), None);
    }
}
