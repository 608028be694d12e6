//! A trial's process: started, asked for rounds, stopped between them, and ended with all that it started.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now;
use stokehold_train::StepTotals;
use tempfile::TempDir;

use crate::cpu;
use crate::report::Failure;

/// The longest wait for a round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest wait for a trial to become ready: one may copy the data set first.
const READY_TIMEOUT: Duration = Duration::from_secs(3600);
/// The longest wait for what a Python lacks: it starts, perhaps from a slow disk, and looks into its folders.
const LACKS_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a wait looks whether it should end.
const POLL: Duration = Duration::from_millis(100);
/// How long a process may take to end after its input has.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The lines of standard error that are kept.
const TAIL: usize = 12;
/// The longest line of an answer, bytes.
const LONGEST: u64 = 1 << 19;

/// A trial that can begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ready {
    /// The libraries that do the work, with their versions.
    pub versions: String,
    /// The device that trains.
    pub device: String,
}

/// What a trial's process says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TrialReply {
    Ready(Ready),
    Cannot {
        why: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        install: Option<String>,
    },
    Round(StepTotals),
    Lacks(Lacks),
}

/// What a Python lacks of what its trials need.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Lacks {
    /// The modules, each with the trials that need it.
    pub modules: Vec<(String, Vec<String>)>,
    /// The commands that install them.
    pub install: Vec<String>,
}

/// A request for a round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub steps: u64,
}

/// Why a trial gives no round.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The user stops the comparison.
    Stopped,
    /// The trial cannot run here, or has failed.
    Failed(Failure),
}

impl Ended {
    /// A trial that says itself why it cannot run; its standard error adds nothing.
    fn cannot(why: String, install: Option<String>) -> Self {
        Self::Failed(Failure {
            install: install.as_deref().map(short),
            ..Failure::of(short(&why))
        })
    }
}

/// A round as it was observed from here.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub totals: StepTotals,
    /// Unix seconds.
    pub began: f64,
    pub ended: f64,
    /// CPU time of all processes of the trial, seconds; `None` where the platform does not tell.
    pub cpu_seconds: Option<f64>,
}

pub(crate) struct TrialProcess {
    child: Child,
    group: Pid,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The trial's folder for files, which is removed after its processes are gone.
    _scratch: Option<TempDir>,
    /// The last lines of standard error.
    tail: Arc<Mutex<VecDeque<String>>>,
}

impl TrialProcess {
    /// Starts a trial's program in a process group of its own, and tells it what to do.
    pub fn start(mut command: Command, spec: &str, scratch: Option<TempDir>) -> Result<Self, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| Failure::of(format!("{program}: {error}")))?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::of(format!("{program}: started without pipes")));
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        // A program that prints more than it is asked for waits.
        let (send, answers) = sync_channel(16);
        let of_errors = Arc::clone(&tail);
        // Both threads end when the last process of the group has closed its output.
        thread::spawn(move || keep_tail(errors, &of_errors));
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                match output.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                    Ok(1..) if send.send(String::from_utf8_lossy(&line).into_owned()).is_ok() => {}
                    _ => return,
                }
            }
        });
        let mut process = Self {
            group: Pid::from_raw(child.id() as i32),
            child,
            input: Some(input),
            answers,
            _scratch: scratch,
            tail,
        };
        process.say(spec)?;
        Ok(process)
    }

    /// Waits until the trial is ready, and stops it until its first round.
    pub fn ready(&mut self, stop: &AtomicBool) -> Result<Ready, Ended> {
        let answer = self.answer(READY_TIMEOUT, stop)?;
        self.freeze();
        match answer {
            TrialReply::Ready(Ready { versions, device }) => Ok(Ready {
                versions: short(&versions),
                device: short(&device),
            }),
            TrialReply::Cannot { why, install } => Err(Ended::cannot(why, install)),
            TrialReply::Round(_) | TrialReply::Lacks(_) => {
                Err(Ended::Failed(Failure::of("answered before it was asked".into())))
            }
        }
    }

    /// Waits for what a Python lacks.
    pub fn lacks(&mut self, stop: &AtomicBool) -> Result<Lacks, Ended> {
        match self.answer(LACKS_TIMEOUT, stop)? {
            TrialReply::Lacks(lacks) => Ok(lacks),
            other => Err(Ended::Failed(Failure::of(format!("answered {other:?}")))),
        }
    }

    /// Has the trial make a round, and stops it again.
    pub fn round(&mut self, steps: u64, stop: &AtomicBool) -> Result<Observed, Ended> {
        let request = serde_json::to_string(&Request { steps }).unwrap_or_default();
        let before = cpu::of_group(self.group);
        let began = unix_now();
        // The pipe holds the request until the trial continues: nothing is loaded before its clock starts.
        self.say(&request).map_err(Ended::Failed)?;
        self.signal(Signal::SIGCONT);
        let answer = self.answer(ROUND_TIMEOUT, stop);
        self.freeze();
        let ended = unix_now();
        let after = cpu::of_group(self.group);
        match answer? {
            TrialReply::Round(totals) if is_possible(&totals, steps, ended - began) => Ok(Observed {
                totals,
                began,
                ended,
                cpu_seconds: before
                    .zip(after)
                    .map(|(before, after)| after.saturating_sub(before).as_secs_f64()),
            }),
            TrialReply::Round(totals) => Err(Ended::Failed(Failure::of(format!(
                "asked for {steps} steps, it says that it made {} on {} images in {} s, of which it waited {} s and was busy {} s: \
                 impossible",
                totals.steps, totals.images, totals.seconds, totals.waited, totals.busy
            )))),
            TrialReply::Cannot { why, install } => Err(Ended::cannot(why, install)),
            TrialReply::Ready(_) | TrialReply::Lacks(_) => {
                Err(Ended::Failed(Failure::of("said twice that it is ready".into())))
            }
        }
    }

    /// Writes a line to the trial.
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        let written = match &mut self.input {
            Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
            None => Ok(()),
        };
        // A program that has ended says why.
        written.map_err(|_| self.died())
    }

    fn answer(&mut self, timeout: Duration, stop: &AtomicBool) -> Result<TrialReply, Ended> {
        let begin = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Ended::Stopped);
            }
            match self.answers.recv_timeout(POLL) {
                Ok(line) => {
                    return serde_json::from_str(&line).map_err(|error| {
                        let what = format!("answered {:?}: {error}", short(&line));
                        Ended::Failed(self.failed(what))
                    });
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < timeout => {
                    // Workers may hold the output open after the program itself has ended.
                    if let Ok(Some(status)) = self.child.try_wait() {
                        return Err(Ended::Failed(self.failed(ended_with(status))));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("did not answer within {} s", timeout.as_secs());
                    return Err(Ended::Failed(self.failed(what)));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Ended::Failed(self.died())),
            }
        }
    }

    /// The failure of a program that has closed its input or output: it has ended, or is about to.
    fn died(&mut self) -> Failure {
        let begin = Instant::now();
        while begin.elapsed() < EXIT_TIMEOUT {
            if let Ok(Some(status)) = self.child.try_wait() {
                return self.failed(ended_with(status));
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.failed("closed its input and output".to_owned())
    }

    fn failed(&self, why: String) -> Failure {
        // What it wrote last may still be on its way through the pipe.
        thread::sleep(POLL);
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        Failure {
            why,
            install: None,
            stderr: tail.iter().cloned().collect(),
        }
    }

    fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    fn signal(&self, signal: Signal) {
        // The group may be gone; then there is nothing to do.
        let _ = killpg(self.group, signal);
    }
}

impl Drop for TrialProcess {
    /// Ends all processes of the group. They have nothing to save.
    fn drop(&mut self) {
        drop(self.input.take());
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Whether a round can have been as a trial says, which took `wall` seconds here.
fn is_possible(totals: &StepTotals, steps: u64, wall: f64) -> bool {
    // The clocks may differ by a little, and an emulated accelerator makes up for what it overslept before.
    const SLACK: f64 = 0.05;
    let part = |seconds: f64| (0.0..=1.5 * wall + 1.0).contains(&seconds);
    totals.steps == steps
        && totals.images > 0
        && totals.seconds > 0.0
        && (wall <= 0.0 || totals.seconds <= wall + SLACK)
        && [totals.seconds, totals.waited, totals.busy, totals.copying]
            .into_iter()
            .all(part)
        && totals.loss.is_none_or(f64::is_finite)
}

fn ended_with(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(9)) => "was killed (SIGKILL): the machine may lack memory".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

/// The beginning of a text that another program made, which may be of any length.
fn short(text: &str) -> String {
    text.trim_end().chars().take(400).collect()
}

/// Keeps the last lines of a stream, each of a bounded length.
fn keep_tail(stream: impl Read, tail: &Mutex<VecDeque<String>>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stream.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let text = short(&String::from_utf8_lossy(&line));
        if text.is_empty() {
            continue;
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> TrialProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TrialProcess::start(command, "{}", None).unwrap()
    }

    const READY: &str = r#"read spec; echo '{"ready": {"versions": "sh", "device": "none"}}'; "#;
    const ROUND: &str = r#"read steps; echo '{"round": {"steps": 3, "images": 6, "seconds": 0.0001, "waited": 0, "busy": 0.0001, "copying": 0, "labels": 7, "times": [[0, 0.1], [0.2, 0.2]]}}'; "#;

    #[test]
    fn rounds_are_asked_for_and_answered() {
        let stop = AtomicBool::new(false);
        let mut process = shell(&format!("{READY} {ROUND} {ROUND}"));
        assert_eq!(process.ready(&stop).unwrap().versions, "sh");
        for _ in 0..2 {
            let round = process.round(3, &stop).unwrap();
            assert_eq!((round.totals.images, round.totals.labels), (6, 7));
            assert_eq!(round.totals.times, [[0.0, 0.1], [0.2, 0.2]]);
            assert!(round.ended >= round.began);
        }
        let Err(Ended::Failed(failure)) = process.round(3, &stop) else {
            panic!("a program that has ended cannot answer");
        };
        assert_eq!(failure.why, "ended with status 0");
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let stop = AtomicBool::new(false);
        for (script, why) in [
            (
                "read s; echo first >&2; echo no such thing >&2; exit 3",
                "ended with status 3",
            ),
            (
                "read spec; echo 'loading ..'; echo no such thing >&2; sleep 100",
                "answered \"loading ..\": ",
            ),
            (
                "read s; echo no such thing >&2; kill -9 $$",
                "was killed (SIGKILL)",
            ),
            (
                r"read s; printf '\377\n'; echo no such thing >&2; sleep 100",
                "answered \"\u{fffd}\": ",
            ),
        ] {
            let mut process = shell(script);
            let Err(Ended::Failed(failure)) = process.ready(&stop) else {
                panic!("{script}");
            };
            assert!(failure.why.starts_with(why), "{script}: {failure:?}");
            assert_eq!(
                failure.stderr.last().map(String::as_str),
                Some("no such thing"),
                "{script}"
            );
        }
        let mut process =
            shell(r#"read s; echo '{"cannot": {"why": "no DALI", "install": "pip install it"}}'; sleep 100"#);
        let Err(Ended::Failed(failure)) = process.ready(&stop) else {
            panic!("it cannot");
        };
        assert_eq!(
            (failure.why.as_str(), failure.install.as_deref()),
            ("no DALI", Some("pip install it"))
        );
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let stop = AtomicBool::new(false);
        for (field, value) in [
            ("seconds", "1e308"),
            ("seconds", "5e9"),
            ("busy", "-1e308"),
            ("waited", "1e300"),
            ("loss", "1e999"),
        ] {
            let round = match field {
                "loss" => ROUND.replace("\"labels\": 7", &format!("\"labels\": 7, \"loss\": {value}")),
                _ => {
                    let old = if field == "waited" { "0" } else { "0.0001" };
                    ROUND.replace(&format!("\"{field}\": {old}"), &format!("\"{field}\": {value}"))
                }
            };
            assert_ne!(round, ROUND);
            let mut process = shell(&format!("{READY} {round}"));
            process.ready(&stop).unwrap();
            assert!(
                matches!(process.round(3, &stop), Err(Ended::Failed(_))),
                "{field} {value}"
            );
        }
    }

    #[test]
    fn a_wait_ends_when_the_user_stops() {
        let stop = AtomicBool::new(true);
        let mut process = shell("sleep 1000");
        assert!(matches!(process.ready(&stop), Err(Ended::Stopped)));
    }

    /// A worker that has forked itself off, and stands still, does not outlive its trial.
    #[test]
    #[cfg(target_os = "linux")]
    fn nothing_outlives_a_trial() {
        let stop = AtomicBool::new(false);
        let mut process = shell(&format!("sleep 1000 & {READY} {ROUND} wait"));
        process.ready(&stop).unwrap();
        process.round(3, &stop).unwrap();
        let group = process.group;
        assert!(killpg(group, None).is_ok());
        drop(process);
        let begin = Instant::now();
        while killpg(group, None).is_ok() {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "a process of the group lives"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}
