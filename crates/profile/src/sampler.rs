//! The sampling thread, its file, and the summary over a run.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::kernel::{CoreTicks, ProcFs, busy_percent};
use crate::{Percentiles, ProfileError};

/// One look at the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemSample {
    /// Unix time in seconds, at the end of the interval that `cpu` describes.
    pub t: f64,
    /// Busy share of each core the process may run on since the sample before, percent, in the order of the
    /// core numbers.
    pub cpu: Vec<f64>,
    /// Resident memory of the process, bytes.
    pub rss: u64,
    /// Bytes the process has made the storage deliver since it started (page-cache hits do not count); `None`
    /// where the kernel keeps no account of it.
    pub read: Option<u64>,
}

impl SystemSample {
    /// Mean busy share of the cores, percent; `None` without cores.
    pub fn mean_cpu(&self) -> Option<f64> {
        (!self.cpu.is_empty()).then(|| self.cpu.iter().sum::<f64>() / self.cpu.len() as f64)
    }
}

/// What a sampler saw from start to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemSummary {
    /// Number of samples.
    pub samples: usize,
    /// Percentiles over the samples of the mean busy share of the cores, percent; `None` without samples.
    pub cpu: Option<Percentiles>,
    /// Largest resident memory seen, bytes.
    pub peak_rss: u64,
    /// Bytes the process made the storage deliver meanwhile; `None` where the kernel keeps no account of it.
    pub read: Option<u64>,
}

/// A thread that appends a [`SystemSample`] as a JSON line every interval.
///
/// It costs two or three small reads of `/proc` a sample, a line of the file (about 60 bytes and 5 a core), and
/// 8 bytes of memory. Dropping it stops and joins the thread like [`stop`](Self::stop), without the summary.
pub struct SystemSampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<SystemSummary, ProfileError>>>,
}

impl SystemSampler {
    /// The interval that runs use.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// Starts sampling; samples are appended to the file `path`, made where there is none.
    ///
    /// # Errors
    /// [`ProfileError::NotSupported`] without `/proc`; [`ProfileError::Io`] when the file cannot be opened or no
    /// thread started.
    pub fn start(path: &Path, interval: Duration) -> Result<Self, ProfileError> {
        Self::start_on(ProcFs::system(), path, interval)
    }

    fn start_on(kernel: ProcFs, path: &Path, interval: Duration) -> Result<Self, ProfileError> {
        let first = kernel.counters()?;
        let io = |source| ProfileError::Io {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io)?;
        let mut recorder = Recorder {
            path: path.to_owned(),
            out: BufWriter::new(file),
            before: first.cores,
            means: Vec::new(),
            peak_rss: first.rss,
            read: first.read.map(|read| (read, read)),
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let work = move || {
            let mut due = Instant::now() + interval;
            // The sender is only ever dropped, never used: that is the signal to stop.
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(due.saturating_duration_since(Instant::now()))
            {
                recorder.sample(&kernel)?;
                // After a pause of the machine the missed samples are not made up for.
                due = (due + interval).max(Instant::now());
            }
            recorder.finish()
        };
        let thread = std::thread::Builder::new()
            .name("system-sampler".into())
            .spawn(work)
            .map_err(io)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Stops, joins the thread and sums up. It takes no longer than one sample.
    ///
    /// # Errors
    /// What stopped the thread earlier: a file that could not be written, or counters that could not be read.
    pub fn stop(mut self) -> Result<SystemSummary, ProfileError> {
        match self.join() {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the thread is taken by stop and drop only, and stop consumes the sampler"),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Result<SystemSummary, ProfileError>>> {
        drop(self.stop.take());
        Some(self.thread.take()?.join())
    }
}

impl Drop for SystemSampler {
    fn drop(&mut self) {
        // There is nobody to tell; whoever wants the outcome calls `stop`.
        let _ = self.join();
    }
}

/// Reads back the samples of a file, oldest first.
///
/// A last line that was cut off, as a killed process leaves it, is left out.
///
/// # Errors
/// [`ProfileError::Io`] when the file cannot be read, [`ProfileError::Malformed`] for any other line that is not
/// a sample.
pub fn read_samples(path: &Path) -> Result<Vec<SystemSample>, ProfileError> {
    let io = |source| ProfileError::Io {
        path: path.to_owned(),
        source,
    };
    let mut lines = BufReader::new(File::open(path).map_err(io)?);
    let mut samples = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        if lines.read_line(&mut line).map_err(io)? == 0 || !line.ends_with('\n') {
            break;
        }
        let sample = serde_json::from_str(&line).map_err(|error| ProfileError::Malformed {
            path: path.to_owned(),
            reason: format!("line {number} is not a system sample: {error}"),
        })?;
        samples.push(sample);
    }
    Ok(samples)
}

/// The sampling thread's state.
struct Recorder {
    path: PathBuf,
    out: BufWriter<File>,
    before: Vec<CoreTicks>,
    means: Vec<f64>,
    peak_rss: u64,
    /// Bytes read at the start and now.
    read: Option<(u64, u64)>,
}

impl Recorder {
    fn sample(&mut self, kernel: &ProcFs) -> Result<(), ProfileError> {
        let now = kernel.counters()?;
        let t = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let cpu = now
            .cores
            .iter()
            // A core that was just plugged in has no earlier reading; it shows up in the next sample.
            .filter_map(|after| {
                let before = self.before.iter().find(|before| before.core == after.core)?;
                Some(tenths(busy_percent(*before, *after)))
            })
            .collect();
        let sample = SystemSample {
            t: (t * 1e3).round() / 1e3,
            cpu,
            rss: now.rss,
            read: now.read,
        };
        self.before = now.cores;
        self.means.extend(sample.mean_cpu());
        self.peak_rss = self.peak_rss.max(now.rss);
        self.read = self.read.zip(now.read).map(|((first, _), now)| (first, now));
        let line = serde_json::to_string(&sample).map_err(|error| self.io(error.into()))?;
        writeln!(self.out, "{line}").map_err(|error| self.io(error))
    }

    fn finish(mut self) -> Result<SystemSummary, ProfileError> {
        self.out.flush().map_err(|error| self.io(error))?;
        Ok(SystemSummary {
            samples: self.means.len(),
            cpu: Percentiles::of(&self.means),
            peak_rss: self.peak_rss,
            read: self.read.map(|(first, last)| last.saturating_sub(first)),
        })
    }

    fn io(&self, source: std::io::Error) -> ProfileError {
        ProfileError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A `/proc` of two cores, of which the process may use the second.
    fn fake_proc(root: &Path, busy: u64, idle: u64) {
        fs::create_dir_all(root.join("self")).unwrap();
        let stat = format!("cpu 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0\ncpu1 {busy} 0 0 {idle} 0 0 0 0\n");
        fs::write(root.join("stat"), stat).unwrap();
        fs::write(root.join("self/status"), "VmRSS: 10 kB\nCpus_allowed_list: 1\n").unwrap();
        fs::write(root.join("self/io"), format!("read_bytes: {}\n", busy * 100)).unwrap();
    }

    fn recorder(root: &Path, path: &Path) -> Recorder {
        let first = ProcFs::at(root).counters().unwrap();
        Recorder {
            path: path.to_owned(),
            out: BufWriter::new(File::create(path).unwrap()),
            before: first.cores,
            means: Vec::new(),
            peak_rss: first.rss,
            read: first.read.map(|read| (read, read)),
        }
    }

    #[test]
    fn a_sample_holds_the_share_since_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("system.jsonl");
        fake_proc(dir.path(), 100, 100);
        let mut recorder = recorder(dir.path(), &path);
        for (busy, idle) in [(103, 107), (113, 107)] {
            fake_proc(dir.path(), busy, idle);
            recorder.sample(&ProcFs::at(dir.path())).unwrap();
        }
        let summary = recorder.finish().unwrap();
        let samples = read_samples(&path).unwrap();
        assert_eq!(
            samples
                .iter()
                .map(|sample| sample.cpu.clone())
                .collect::<Vec<_>>(),
            [vec![30.0], vec![100.0]]
        );
        assert_eq!(samples[1].read, Some(11_300));
        assert_eq!(summary.samples, 2);
        assert_eq!(summary.cpu.unwrap().p50, 65.0);
        assert_eq!((summary.peak_rss, summary.read), (10 * 1024, Some(1300)));
    }

    #[test]
    fn a_line_cut_off_by_a_kill_is_left_out_and_another_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("system.jsonl");
        let good = "{\"t\":1.5,\"cpu\":[5.0],\"rss\":7,\"read\":null}\n";
        fs::write(&path, format!("{good}{good}{{\"t\":2.")).unwrap();
        assert_eq!(read_samples(&path).unwrap().len(), 2);
        fs::write(&path, format!("{good}what\n{good}")).unwrap();
        let message = read_samples(&path).unwrap_err().to_string();
        assert!(message.contains("line 2 is not a system sample"), "{message}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn samples_this_machine_and_stops_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("system.jsonl");
        let sampler = SystemSampler::start(&path, Duration::from_millis(10)).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        let summary = sampler.stop().unwrap();
        let samples = read_samples(&path).unwrap();
        assert!(
            summary.samples >= 2 && samples.len() == summary.samples,
            "{summary:?}"
        );
        assert!(summary.peak_rss > 100_000, "{summary:?}");
        assert!(
            samples
                .iter()
                .flat_map(|s| &s.cpu)
                .all(|share| (0.0..=100.0).contains(share))
        );

        // A sampler that is waiting for its next sample, an hour away, is stopped too, also by dropping it.
        let begin = Instant::now();
        drop(SystemSampler::start(&path, Duration::from_secs(3600)).unwrap());
        assert_eq!(
            SystemSampler::start(&path, Duration::from_secs(3600))
                .unwrap()
                .stop()
                .unwrap()
                .cpu,
            None
        );
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told_when_stopping() {
        let sampler = SystemSampler::start(Path::new("/dev/full"), Duration::from_millis(5)).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        let message = sampler.stop().unwrap_err().to_string();
        assert!(message.contains("/dev/full"), "{message}");
    }

    #[test]
    fn without_proc_there_is_no_sampler() {
        let dir = tempfile::tempdir().unwrap();
        let started = SystemSampler::start_on(
            ProcFs::at(dir.path()),
            &dir.path().join("s"),
            SystemSampler::INTERVAL,
        );
        assert!(matches!(started.err(), Some(ProfileError::NotSupported { .. })));
    }
}
