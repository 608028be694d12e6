//! A Python script as the model: SageMaker's `model_fn` and `predict_fn`, fed by the loader.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use stokehold_base::hash::Fnv;
use stokehold_base::regular;
use stokehold_loader::{Batch, Loader};
use stokehold_pipeline::Pipeline;
use stokehold_storage::Source;
use stokehold_train::device::{self, DeviceChoice};
use stokehold_train::infer::{self, InferOptions};

use crate::TransformError;
use crate::model::{Model, Prediction};

/// What runs the script.
const PROGRAM: &str = include_str!("model.py");
/// How often a wait looks whether it should end.
const POLL: Duration = Duration::from_millis(100);
/// Batches that a process has: one is computed, the other waits for it.
const EACH: usize = 2;
/// The lines of a script's output that an error shows.
const TAIL: usize = 12;

/// How to run a script.
#[derive(Debug, Clone)]
pub struct ScriptOptions {
    /// The script, with `model_fn(model_dir)`, and `predict_fn(data, model)` unless the model can be called with the
    /// data, a `torch.Tensor` of [N, 3, H, W] f32 (an array of NumPy where there is no torch).
    pub script: PathBuf,
    /// The folder that `model_fn` gets.
    pub model_dir: PathBuf,
    /// The Python that runs it.
    pub python: PathBuf,
    /// How many processes compute at the same time, at least 1.
    pub processes: usize,
    /// The pipeline of the images.
    pub pipeline: Pipeline,
    /// Whether photos are turned as their EXIF data say.
    pub exif: bool,
    /// How they are loaded. The executor has to be one of the CPU's.
    pub feed: InferOptions,
}

/// A script that is ready: its processes have a model each.
pub struct Script {
    options: ScriptOptions,
    processes: Vec<Process>,
    /// The batch that is sent next, and the one that is received next.
    sent: usize,
    received: usize,
}

/// What a process says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScriptReply {
    Ready(IgnoredAny),
    Cannot(String),
    Rows(Vec<Prediction>),
}

impl Script {
    /// Starts the processes, and waits until each has its model; `None` if `stop` was set meanwhile. Every line that the
    /// script prints goes to `log`.
    ///
    /// # Errors
    /// The script is not there or cannot be started, or fails.
    pub fn start(
        options: ScriptOptions,
        log: fn(&str),
        stop: &AtomicBool,
    ) -> Result<Option<Self>, TransformError> {
        for path in [&options.script, &options.model_dir] {
            if let Err(error) = path.metadata() {
                return Err(TransformError::Input(format!("{}: {error}", path.display())));
            }
        }
        let processes = (0..options.processes.max(1)).map(|_| Process::start(&options, log));
        let processes: Vec<Process> = processes.collect::<Result<_, _>>()?;
        for process in &processes {
            match process.answer(&options, stop)? {
                None => return Ok(None),
                Some(ScriptReply::Ready(_)) => {}
                Some(ScriptReply::Cannot(why)) => {
                    return Err(TransformError::Input(format!(
                        "{}: {why}",
                        options.script.display()
                    )));
                }
                Some(ScriptReply::Rows(_)) => {
                    return Err(process.failed(&options, "answered before it was asked"));
                }
            }
        }
        Ok(Some(Self {
            options,
            processes,
            sent: 0,
            received: 0,
        }))
    }
}

impl Model for Script {
    fn describe(&self) -> Result<Map<String, Value>, TransformError> {
        let ScriptOptions {
            script,
            model_dir,
            pipeline,
            exif,
            feed,
            ..
        } = &self.options;
        let bytes = regular::read(script).map_err(TransformError::io(script))?;
        Ok(Map::from_iter([
            ("script".to_owned(), json!(format!("{:016x}", Fnv::of(&bytes)))),
            ("model_dir".to_owned(), json!(model_dir.display().to_string())),
            ("pipeline".to_owned(), json!(pipeline)),
            ("exif".to_owned(), json!(exif)),
            ("executor".to_owned(), json!(feed.executor.to_string())),
            ("batch_size".to_owned(), json!(feed.batch_size)),
        ]))
    }

    fn loader(&self, source: Arc<dyn Source>) -> Result<Loader, TransformError> {
        let ScriptOptions {
            pipeline, exif, feed, ..
        } = &self.options;
        let device = device::open(DeviceChoice::Cpu).map_err(stokehold_train::TrainError::from)?;
        Ok(infer::loader(source, pipeline, *exif, feed, &device)?)
    }

    fn depth(&self) -> usize {
        EACH * self.processes.len()
    }

    fn send(&mut self, batch: Batch) -> Result<(), TransformError> {
        let process = &self.processes[self.sent % self.processes.len()];
        self.sent += 1;
        // A process that has ended is noticed when its answer is missing.
        let _ = process.batches.try_send(batch);
        Ok(())
    }

    fn receive(&mut self, stop: &AtomicBool) -> Result<Option<Vec<Prediction>>, TransformError> {
        let process = &self.processes[self.received % self.processes.len()];
        match process.answer(&self.options, stop)? {
            None => Ok(None),
            Some(ScriptReply::Rows(rows)) => {
                self.received += 1;
                Ok(Some(rows))
            }
            Some(_) => Err(process.failed(&self.options, "answered something else than predictions")),
        }
    }
}

struct Process {
    child: Mutex<Child>,
    group: Pid,
    batches: SyncSender<Batch>,
    answers: Receiver<String>,
    /// The last lines that the script printed.
    tail: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    fn start(options: &ScriptOptions, log: fn(&str)) -> Result<Self, TransformError> {
        let failed = |reason: String| TransformError::Script {
            script: options.script.clone(),
            reason,
        };
        // A group of its own: Ctrl-C is for this program, which ends it.
        let mut child = Command::new(&options.python)
            .arg("-c")
            .arg(PROGRAM)
            .arg(&options.script)
            .arg(&options.model_dir)
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| TransformError::Input(format!("{}: {error}", options.python.display())))?;
        let group = Pid::from_raw(child.id() as i32);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(failed("it was started without pipes".to_owned()));
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        // More batches than these are never under way.
        let (batches, to_send) = sync_channel(EACH);
        let (to_answer, answers) = channel();
        let printed = Arc::clone(&tail);
        // The threads end with the process's pipes.
        thread::spawn(move || send(&to_send, input));
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to_answer.send(line).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || print(errors, log, &printed));
        Ok(Self {
            child: Mutex::new(child),
            group,
            batches,
            answers,
            tail,
        })
    }

    fn answer(
        &self,
        options: &ScriptOptions,
        stop: &AtomicBool,
    ) -> Result<Option<ScriptReply>, TransformError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match self.answers.recv_timeout(POLL) {
                Ok(line) => {
                    return serde_json::from_str(&line).map(Some).map_err(|error| {
                        let line: String = line.chars().take(200).collect();
                        self.failed(options, &format!("answered {line:?}: {error}"))
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
                    let ended = match status {
                        Ok(status) if status.signal() == Some(9) => {
                            "was killed (SIGKILL): the machine may lack memory".to_owned()
                        }
                        Ok(status) => format!("ended with {status}"),
                        Err(error) => error.to_string(),
                    };
                    return Err(self.failed(options, &ended));
                }
            }
        }
    }

    fn failed(&self, options: &ScriptOptions, what: &str) -> TransformError {
        // What it printed last may still be on its way through the pipe.
        thread::sleep(POLL);
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let tail: String = tail.iter().map(|line| format!("\n  {line}")).collect();
        TransformError::Script {
            script: options.script.clone(),
            reason: format!("{what}{tail}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group may be gone; then there is nothing to do.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// Writes batches until there are no more, or no one reads them.
fn send(batches: &Receiver<Batch>, mut input: ChildStdin) {
    for batch in batches {
        // The executors of the CPU make batches in main memory.
        let Some(numbers) = batch.pixels.into_f32() else {
            return;
        };
        let head = json!({"shape": batch.shape});
        let written =
            writeln!(input, "{head}").and_then(|()| input.write_all(bytemuck::cast_slice(&numbers)));
        if written.is_err() {
            return;
        }
    }
}

/// Passes lines on, and keeps the last ones.
fn print(stream: impl Read, log: fn(&str), tail: &Mutex<VecDeque<String>>) {
    const LONGEST: u64 = 1 << 16;
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = stream.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        log(&text);
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(text);
    }
}
