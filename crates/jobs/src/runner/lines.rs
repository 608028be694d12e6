//! The output of scripts: stored, shown, and searched for numbers; and the numbers that scripts send
//! directly.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regex::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use stokehold_diagnose::curves::{self, Following};
use stokehold_diagnose::events::EventFile;
use stokehold_profile::timeline::Metric;

use stokehold_base::clock::unix_now as now;

use crate::store::{FinalMetric, Folder, METRICS};
use crate::{Job, JobError, News};

/// A line that a script printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// When it was printed, unix seconds.
    pub time: f64,
    /// The instance that printed it; `stokehold` for messages of the runner.
    pub host: &'a str,
    /// `out` or `err`.
    pub stream: &'a str,
    /// Its text, without the line ending.
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// Reads a line of a job's log; see [`Store::log`](crate::Store::log).
    pub fn parse(stored: &'a str) -> Option<Self> {
        let mut parts = stored.splitn(4, ' ');
        Some(Self {
            time: parts.next()?.parse().ok()?,
            host: parts.next()?,
            stream: parts.next()?,
            text: parts.next()?,
        })
    }
}

/// A line of a job's `metrics.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MetricsLine<'a> {
    /// A number that was found in a line of the script.
    Printed {
        /// The instance that printed it: `algo-1`.
        host: &'a str,
        /// The metric's name, as the job file has it.
        name: &'a str,
        /// When it was printed, unix seconds.
        time: f64,
        /// The number; `NaN`, `inf` and `-inf` are texts.
        #[serde(serialize_with = "finite_or_text")]
        #[schemars(with = "NumberOrText")]
        value: f64,
    },
    /// A number that the script sent to the socket that `STOKEHOLD_TIMELINE` names.
    Sent {
        /// The metric's name, as it was sent.
        name: &'a str,
        /// The step or epoch that it is of, if it was sent.
        step: Option<u64>,
        /// When it was received, unix seconds.
        time: f64,
        /// The number; `NaN`, `inf` and `-inf` are texts.
        #[serde(serialize_with = "finite_or_text")]
        #[schemars(with = "NumberOrText")]
        value: f64,
    },
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

/// JSON has no NaN and no infinities.
fn finite_or_text<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    match value.is_finite() {
        true => to.serialize_f64(*value),
        false => to.collect_str(value),
    }
}

/// A new event file, whose numbers continue counting after those of earlier starts.
fn events(folder: &Folder) -> io::Result<EventFile> {
    let mut events = EventFile::create(&folder.0, now())?;
    Following::new(&folder.0).look(&|_| None, &mut |news| {
        if let curves::News::Point(name, _) = news {
            events.pass(name);
        }
    })?;
    Ok(events)
}

/// Longer lines are cut here, bytes: a script may print for hours without a line ending.
const LONGEST: usize = 64 << 10;

/// How long a process that outlives its job may continue printing.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// Collects all lines of a job.
pub(crate) struct Lines<'a> {
    log: PathBuf,
    metrics: Vec<(String, Regex)>,
    show: &'a (dyn Fn(News<'_>) + Sync),
    files: Mutex<Files>,
}

struct Files {
    log: File,
    numbers: File,
    last: BTreeMap<String, FinalMetric>,
    /// The last line of standard error of each host: often the reason for a failure.
    complaint: BTreeMap<String, String>,
    /// The first error of storing lines.
    failed: Option<io::Error>,
    /// The numbers for TensorBoard, if they are wanted.
    events: Option<EventFile>,
    /// The numbers since they were last asked for: name, value and time. `None` where no one asks.
    news: Option<Vec<(String, f64, f64)>>,
}

impl Files {
    fn store(&mut self, line: &Line<'_>) {
        let Line {
            time,
            host,
            stream,
            text,
        } = line;
        let stored = writeln!(self.log, "{time:.3} {host} {stream} {text}");
        self.failed = self.failed.take().or(stored.err());
    }

    /// Stores a number.
    fn number(&mut self, line: &MetricsLine<'_>) {
        let stored = serde_json::to_string(line)
            .map_err(io::Error::from)
            .and_then(|line| writeln!(self.numbers, "{line}"));
        self.failed = self.failed.take().or(stored.err());
        let (name, sent, time, value) = match *line {
            MetricsLine::Printed {
                name, time, value, ..
            } => (name, None, time, value),
            MetricsLine::Sent {
                name,
                step,
                time,
                value,
            } => (name, step, time, value),
        };
        if let Some(events) = &mut self.events {
            let stored = events.add(name, sent, time, value);
            self.failed = self.failed.take().or(stored.err());
        }
        if let Some(news) = &mut self.news {
            news.push((name.to_owned(), value, time));
        }
        if value.is_finite() {
            let name = name.to_owned();
            self.last.insert(name.clone(), FinalMetric { name, value, time });
        }
    }
}

impl<'a> Lines<'a> {
    pub fn new(folder: &Folder, job: &Job, show: &'a (dyn Fn(News<'_>) + Sync)) -> Result<Self, JobError> {
        let append = |name: &str| {
            let path = folder.file(name);
            File::options()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(JobError::io(&path))
        };
        let compiled = |metric: &crate::Metric| Some((metric.name.clone(), metric.compile().ok()?));
        Ok(Self {
            log: folder.file("log"),
            metrics: job.metrics.iter().filter_map(compiled).collect(),
            show,
            files: Mutex::new(Files {
                log: append("log")?,
                numbers: append(METRICS)?,
                last: BTreeMap::new(),
                complaint: BTreeMap::new(),
                failed: None,
                events: match job.tensorboard {
                    true => Some(events(folder).map_err(JobError::io(&folder.0))?),
                    false => None,
                },
                news: (!job.profiling().rules.is_empty()).then(Vec::new),
            }),
        })
    }

    /// Reads a stream to its end; after `quit`, until no more data is there or [`LEFTOVERS`] has passed.
    pub fn read(&self, host: &str, stream: &str, mut from: impl Read + AsFd, quit: &AtomicBool) {
        let mut chunk = [0; 8 << 10];
        let mut line = Vec::new();
        let mut since = None;
        loop {
            let quitting = quit.load(Ordering::SeqCst);
            if quitting && since.get_or_insert_with(Instant::now).elapsed() > LEFTOVERS {
                break;
            }
            let mut fds = [PollFd::new(&from, PollFlags::IN)];
            let patience = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            match poll(&mut fds, Some(&patience)) {
                Ok(0) if quitting => break,
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => break,
            }
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => {
                    for byte in &chunk[..n] {
                        // Progress bars end their lines with a carriage return.
                        if *byte == b'\n' || *byte == b'\r' || line.len() == LONGEST {
                            self.take(host, stream, &mut line);
                        }
                        if *byte != b'\n' && *byte != b'\r' {
                            line.push(*byte);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.take(host, stream, &mut line);
    }

    fn take(&self, host: &str, stream: &str, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        self.add(&Line {
            time: now(),
            host,
            stream,
            text: &text,
        });
        bytes.clear();
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line.
    pub fn add(&self, line: &Line<'_>) {
        let mut files = self.files();
        files.store(line);
        let Line {
            time,
            host,
            stream,
            text,
        } = line;
        if *stream == "err" {
            // What Slurm says of the end of a step is not what the script said.
            if !text.starts_with("srun: ") && !text.starts_with("slurmstepd") {
                files.complaint.insert((*host).to_owned(), (*text).to_owned());
            }
        }
        for (name, regex) in &self.metrics {
            for found in regex.captures_iter(text) {
                let Some(value) = found
                    .get(1)
                    .and_then(|number| number.as_str().trim().parse::<f64>().ok())
                else {
                    continue;
                };
                files.number(&MetricsLine::Printed {
                    host,
                    name,
                    time: *time,
                    value,
                });
            }
        }
        (self.show)(News::Line(line));
    }

    /// Stores a number that a script sent through the timeline.
    pub fn sent(&self, metric: &Metric) {
        self.files().number(&MetricsLine::Sent {
            name: &metric.name,
            step: metric.step,
            time: metric.time,
            value: metric.value,
        });
    }

    /// Adds a message of the runner: a line of the host `stokehold`, which is not searched for metrics.
    pub fn say(&self, text: &str) {
        let line = Line {
            time: now(),
            host: "stokehold",
            stream: "err",
            text,
        };
        // Hold the lock while showing the line, so that lines are shown in the order in which they are
        // stored.
        let mut files = self.files();
        files.store(&line);
        (self.show)(News::Line(&line));
    }

    /// The numbers since the last call, for rules: name, value and time.
    pub fn news(&self) -> Vec<(String, f64, f64)> {
        self.files().news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn last(&self) -> Vec<FinalMetric> {
        let files = self.files();
        files.last.values().cloned().collect()
    }

    pub fn complaint(&self, host: &str) -> Option<String> {
        let files = self.files();
        files.complaint.get(host).cloned()
    }

    /// The length of the log, bytes.
    pub fn end(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |facts| facts.len())
    }

    /// The texts of the lines from a byte of the log on; only the last of them if they are many.
    pub fn since(&self, from: u64) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(LONGEST).max(from as usize);
        let text = String::from_utf8_lossy(text.get(from..).unwrap_or_default());
        let lines = text.lines().filter_map(Line::parse);
        lines.map(|line| line.text.to_owned()).collect()
    }

    /// Why lines are missing from the files, if some are.
    pub fn failed(&self) -> Option<String> {
        let files = self.files();
        files.failed.as_ref().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_metrics_have_their_form() {
        let printed = |value| MetricsLine::Printed {
            host: "algo-1",
            name: "loss",
            time: 1.5,
            value,
        };
        let sent = |step| MetricsLine::Sent {
            name: "loss",
            step,
            time: 1.5,
            value: 2.0,
        };
        for (line, text) in [
            (
                printed(0.25),
                r#"{"host":"algo-1","name":"loss","time":1.5,"value":0.25}"#,
            ),
            (
                printed(f64::NAN),
                r#"{"host":"algo-1","name":"loss","time":1.5,"value":"NaN"}"#,
            ),
            (
                printed(f64::NEG_INFINITY),
                r#"{"host":"algo-1","name":"loss","time":1.5,"value":"-inf"}"#,
            ),
            (
                sent(Some(7)),
                r#"{"name":"loss","step":7,"time":1.5,"value":2.0}"#,
            ),
            (
                sent(None),
                r#"{"name":"loss","step":null,"time":1.5,"value":2.0}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
        }
    }
}
