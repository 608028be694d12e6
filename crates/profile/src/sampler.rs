//! The recorder, which takes ticks, writes them, and maintains `recording.json`; and the thread that drives
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::control::{Change, Control, check_interval};
use crate::kernel::ProcFs;
use crate::made::Made;
use crate::percentile::Histogram;
use crate::probe::{Board, Busy, Cgroup, Cores, Disk, Gpus, Memory, Network, Pressure, Processes, quota};
use crate::recording::About;
use crate::system::{self, SeriesId, Writer};
use crate::workload::Workload;
use crate::{Machine, Percentiles, ProfileError, Tree, dimension};

/// What to record, how often, and how to store it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time between two ticks, 100 ms to 60 s.
    pub interval: Duration,
    /// The processes to follow.
    pub tree: Tree,
    /// The recorded command, for `recording.json`.
    pub command: Vec<String>,
    /// How to store the samples.
    pub files: system::Options,
    /// Where to read counters.
    pub sources: Sources,
}

impl Settings {
    /// The interval that SageMaker Debugger uses.
    pub const INTERVAL: Duration = Duration::from_millis(500);

    /// Follows a tree of processes at [`INTERVAL`](Self::INTERVAL), started by a command whose secrets are not recorded.
    pub fn new(tree: Tree, command: Vec<String>) -> Self {
        Self {
            interval: Self::INTERVAL,
            tree,
            command: stokehold_base::secret::hidden(&command),
            files: system::Options::default(),
            sources: Sources::default(),
        }
    }

    /// As [`new`](Self::new), with the command line of this process. Words that are not Unicode have replacement characters.
    pub fn of_this_program(tree: Tree) -> Self {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Self::new(tree, words.collect())
    }
}

/// Where to read counters: on the machine, except in tests and measurements.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The `/proc` file system.
    pub proc: PathBuf,
    /// NVML, NVIDIA's management library.
    pub nvml: PathBuf,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            nvml: "libnvidia-ml.so.1".into(),
        }
    }
}

/// The summary of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemSummary {
    /// Number of ticks.
    pub ticks: u64,
    /// Percentiles over the ticks of the mean busy share of the cores, percent, to a tenth; `None` without ticks.
    pub cpu: Option<Percentiles>,
}

/// The end of a recording.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// The command's exit code, if the recorder started it.
    pub exit_code: Option<i32>,
    /// The kind of training, if it is known.
    pub workload: Option<Workload>,
    /// Notes for readers of the recording.
    pub notes: Vec<String>,
}

/// Takes ticks and writes them. [`start`](Self::start) runs it in a thread.
pub struct Recorder {
    /// `profiler-output`.
    folder: PathBuf,
    about: About,
    /// Whether `about` differs from its file.
    news: bool,
    control: Control,
    made: Made,
    interval: Duration,
    clock: Clock,
    last: Instant,
    /// The column for the length of each sample.
    length: SeriesId,
    board: Board,
    cores: Cores,
    memory: Option<Memory>,
    disk: Option<Disk>,
    network: Option<Network>,
    pressure: Option<Pressure>,
    cgroup: Option<Cgroup>,
    processes: Option<Processes>,
    gpus: Option<Gpus>,
    io_denied_told: bool,
    removed_told: Option<u64>,
    ticks: u64,
    cpu: Histogram,
}

/// When samples were last written into a recording's folder, unix seconds: the end of a recording that was cut off.
fn last_sign(folder: &Path) -> Option<f64> {
    let names = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    // Folders have hours as names.
    let hour = names(&folder.join("system/incremental")).into_iter().max()?;
    let written = names(&hour).into_iter().filter_map(|path| {
        let time = fs::metadata(path).ok()?.modified().ok()?;
        Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64())
    });
    written.reduce(f64::max)
}

/// At most this many notes are kept.
const NOTES: usize = 100;
/// A last interval of at least this length becomes a tick.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest time between two checks for a change.
const LOOK: Duration = Duration::from_secs(1);

impl Recorder {
    /// Starts a recording in a folder, `profiler-output`, or continues the existing one, and reads the base
    /// values of the counters.
    ///
    /// # Errors
    /// [`ProfileError::Interval`]; [`ProfileError::Recording`] if another recorder runs in the folder;
    /// [`ProfileError::Foreign`] if another program's samples are in it; [`ProfileError::NotSupported`] without `/proc`; [`ProfileError::Io`] if files cannot be written.
    pub fn open(folder: &Path, settings: Settings) -> Result<Self, ProfileError> {
        check_interval(settings.interval)?;
        let Settings {
            interval,
            tree,
            sources,
            ..
        } = settings;
        let proc = &sources.proc;
        let root = tree
            .root()
            .map_or_else(|| "self".to_owned(), |root| root.to_string());
        let cores = Cores::open(proc, ProcFs::at(proc).allowed_cores(&root))?;
        let made = Made::prepare(folder)?;
        let control = Control::hold(folder)?;
        let mut board = Board::new(Writer::open(folder, settings.files)?);
        let length = board.add("recorder", "sample", dimension::SAMPLE);
        let (now, wall) = (Instant::now(), SystemTime::now());
        let mut clock = Clock::new(now, wall);
        let started = clock.time(now, wall).0;
        // A file that cannot be read is replaced.
        let before = About::read(folder).ok().flatten();
        let idle_seconds = before.as_ref().map_or(0.0, |before| {
            let end = before.ended.or_else(|| last_sign(folder));
            before.idle_seconds + end.map_or(0.0, |end| (started - end).max(0.0))
        });
        let mut recorder = Self {
            folder: folder.to_owned(),
            about: About {
                stokehold: env!("CARGO_PKG_VERSION").to_owned(),
                command: settings.command,
                started: before.as_ref().map_or(started, |before| before.started),
                ended: None,
                exit_code: None,
                interval_ms: interval.as_millis() as u64,
                machine: Machine {
                    quota: quota(proc, &root),
                    ..Machine::here()
                },
                workload: None,
                paused: None,
                idle_seconds,
                notes: before.map_or_else(Vec::new, |before| before.notes),
            },
            news: true,
            control,
            made,
            interval,
            clock,
            last: now,
            length,
            cores,
            memory: Memory::open(proc, &mut board),
            disk: Disk::open(proc, &mut board),
            network: Network::open(proc, &mut board),
            pressure: Pressure::open(proc, &mut board),
            cgroup: Cgroup::open(proc, &root, &mut board),
            processes: Processes::open(proc, tree, &mut board),
            gpus: Gpus::open(&sources.nvml, interval),
            board,
            io_denied_told: false,
            removed_told: None,
            ticks: 0,
            cpu: Histogram::default(),
        };
        if recorder.about.started != started {
            recorder.note(format!("recorded again from {started:.0} on"));
        }
        if recorder.pressure.is_none() {
            recorder.note("this kernel keeps no account of pressure".to_owned());
        }
        recorder.sample(now);
        recorder.board.discard();
        recorder.write_news()?;
        Ok(recorder)
    }

    /// The folder of the recording.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends a recording that took no tick, and removes the files and folders that [`open`](Self::open)
    /// created. A `recording.json` that was there before keeps the note that it was recorded again. Whatever else is
    /// in these folders stays.
    ///
    /// # Errors
    /// [`ProfileError::Io`] for what cannot be removed.
    pub fn take_back(self) -> Result<(), ProfileError> {
        let Self { made, control, .. } = self;
        let taken_back = made.take_back();
        drop(control);
        taken_back
    }

    /// Takes a tick at a moment that both clocks showed, and writes it.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when a file cannot be written.
    pub fn tick(&mut self, now: Instant, wall: SystemTime) -> Result<(), ProfileError> {
        let (time, note) = self.clock.time(now, wall);
        if let Some(note) = note {
            self.note(note);
        }
        if let Some(cpu) = self.sample(now) {
            self.cpu.add(cpu);
        }
        self.ticks += 1;
        self.board.write(time)?;
        let removed = self.board.writer().removed_before();
        if removed != self.removed_told {
            self.removed_told = removed;
            self.news = true;
        }
        self.write_news()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// [`ProfileError::Io`] when a file cannot be written.
    pub fn finish(mut self, ending: Ending) -> Result<SystemSummary, ProfileError> {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let (time, note) = self.clock.time(now, wall);
        let gpus = self.gpus.as_mut().and_then(Gpus::finish);
        let notes = note.into_iter().chain(gpus).chain(ending.notes);
        self.about.notes.extend(notes);
        (self.about.ended, self.about.paused) = (Some(time), None);
        (self.about.exit_code, self.about.workload) = (ending.exit_code, ending.workload);
        self.news = true;
        self.write_news()?;
        self.board.finish()?;
        Ok(SystemSummary {
            ticks: self.ticks,
            cpu: self.cpu.percentiles(),
        })
    }

    /// Starts a thread that takes ticks until it is stopped.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if the thread cannot be started.
    pub fn start(self) -> Result<Sampler, ProfileError> {
        let (stop, stopped) = mpsc::channel();
        let folder = self.folder.clone();
        let thread = std::thread::Builder::new()
            .name("system-sampler".to_owned())
            .spawn(move || self.run(&stopped))
            .map_err(|source| ProfileError::Io { path: folder, source })?;
        Ok(Sampler {
            stop,
            thread: Some(thread),
        })
    }

    fn run(mut self, stopped: &Receiver<Ending>) -> Result<SystemSummary, ProfileError> {
        let mut on = true;
        let mut due = Instant::now() + self.interval;
        loop {
            let now = Instant::now();
            let wait = due.saturating_duration_since(now).min(LOOK);
            match stopped.recv_timeout(if on { wait } else { LOOK }) {
                Err(RecvTimeoutError::Timeout) => {}
                ended => {
                    if on && self.last.elapsed() >= SHORTEST {
                        self.tick(Instant::now(), SystemTime::now())?;
                    }
                    return self.finish(ended.unwrap_or_default());
                }
            }
            if let Some(change) = self.control.changed() {
                self.apply(change, &mut on, Instant::now(), SystemTime::now())?;
                due = Instant::now() + self.interval;
            }
            if on && Instant::now() >= due {
                self.tick(Instant::now(), SystemTime::now())?;
                // After a suspension of the machine, missed ticks are skipped.
                due = (due + self.interval).max(Instant::now());
            }
        }
    }

    /// Applies a change, at a moment that both clocks showed.
    fn apply(
        &mut self,
        change: Change,
        on: &mut bool,
        now: Instant,
        wall: SystemTime,
    ) -> Result<(), ProfileError> {
        tracing::info!(?change, "the recording is changed");
        let (time, note) = self.clock.time(now, wall);
        if let Some(note) = note {
            self.note(note);
        }
        if let Some(interval) = change.interval_ms.map(Duration::from_millis)
            && interval != self.interval
            && check_interval(interval).is_ok()
        {
            self.interval = interval;
            self.note(format!("every {} ms from {time:.0} on", interval.as_millis()));
        }
        match (*on, change.on) {
            (true, Some(false)) => {
                self.board.writer().flush()?;
                self.note(format!("off from {time:.0} on"));
                (self.about.paused, self.news, *on) = (Some(time), true, false);
            }
            (false, Some(true)) => {
                // Resets the counters, so that the pause belongs to no sample.
                if let Some(processes) = &mut self.processes {
                    processes.restart();
                }
                self.sample(now);
                self.board.discard();
                self.note(format!("on again from {time:.0} on"));
                (self.about.paused, self.news, *on) = (None, true, true);
            }
            _ => {}
        }
        self.write_news()
    }

    /// Reads all probes into the board. Returns the mean busy share of the cores, percent.
    fn sample(&mut self, now: Instant) -> Option<f64> {
        let elapsed = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        let board = &mut self.board;
        board.set(self.length, 1e3 * elapsed);
        if let Some(gpus) = &mut self.gpus {
            gpus.ask();
        }
        let busy = self.cores.sample(board);
        if let Some(memory) = &mut self.memory {
            memory.sample(board);
        }
        if let Some(disk) = &mut self.disk {
            disk.sample(board, elapsed);
        }
        if let Some(network) = &mut self.network {
            network.sample(board, elapsed);
        }
        if let Some(pressure) = &mut self.pressure {
            pressure.sample(board, elapsed);
        }
        if let Some(cgroup) = &mut self.cgroup {
            cgroup.sample(board, elapsed);
        }
        if let Some(processes) = &mut self.processes {
            processes.sample(board, elapsed, busy);
        }
        let note = self.gpus.as_mut().and_then(|gpus| gpus.take(board));
        if let Some(note) = note {
            self.note(note);
        }
        let denied = self
            .processes
            .as_ref()
            .is_some_and(|processes| processes.io_denied);
        if denied && !self.io_denied_told {
            self.io_denied_told = true;
            self.note("what some processes read is not counted: no permission".to_owned());
        }
        busy.map(Busy::mean)
    }

    fn note(&mut self, note: String) {
        if self.about.notes.len() < NOTES && !self.about.notes.contains(&note) {
            self.about.notes.push(note);
            self.news = true;
        }
    }

    fn write_news(&mut self) -> Result<(), ProfileError> {
        if !std::mem::take(&mut self.news) {
            return Ok(());
        }
        let Some(removed) = self.removed_told else {
            return self.about.write(&self.folder);
        };
        let mut about = self.about.clone();
        about.notes.push(format!(
            "samples before {removed} were removed to keep the limit of disk use"
        ));
        about.write(&self.folder)
    }
}

/// A thread that records. Dropping it ends the recording as [`stop`](Self::stop) does, without the summary.
pub struct Sampler {
    stop: Sender<Ending>,
    thread: Option<JoinHandle<Result<SystemSummary, ProfileError>>>,
}

impl Sampler {
    /// Starts a recording and a thread that takes its ticks.
    ///
    /// # Errors
    /// As [`Recorder::open`] and [`Recorder::start`].
    pub fn start(folder: &Path, settings: Settings) -> Result<Self, ProfileError> {
        Recorder::open(folder, settings)?.start()
    }

    /// Ends the recording and returns its summary. Takes at most one tick, plus the time of compressing hours
    /// if that is on.
    ///
    /// # Errors
    /// The error that ended the thread early: a file that could not be written.
    pub fn stop(mut self, ending: Ending) -> Result<SystemSummary, ProfileError> {
        match self.join(ending) {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the thread is taken by stop and drop only, and stop consumes the sampler"),
        }
    }

    fn join(&mut self, ending: Ending) -> Option<std::thread::Result<Result<SystemSummary, ProfileError>>> {
        let thread = self.thread.take()?;
        // The thread may have ended by itself; ignore the send error.
        let _ = self.stop.send(ending);
        Some(thread.join())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // The outcome is dropped here; a caller that needs it calls `stop`.
        let _ = self.join(Ending::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;

    /// A small machine in files; nothing of this one is read but its clock.
    fn fake_machine(root: &Path) -> Settings {
        let file = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("stat", "cpu 1 1 1 1\ncpu0 0 0 0 0 0\ncpu1 0 0 0 0 0\n");
        file(
            "meminfo",
            "MemTotal: 100 kB\nMemAvailable: 40 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        );
        file(
            "7/stat",
            "7 (train) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 6 10 7\n",
        );
        let mut settings = Settings::new(Tree::Of(7), vec!["train".to_owned()]);
        settings.sources = Sources {
            proc: root.to_owned(),
            nvml: root.join("no-nvml.so"),
        };
        settings
    }

    #[test]
    fn a_recording_holds_what_the_machine_counted_on_one_clock() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, out) = (dir.path().join("proc"), dir.path().join("out"));
        let mut recorder = Recorder::open(&out, fake_machine(&machine)).unwrap();
        let (start, wall) = (Instant::now(), SystemTime::now());
        for tick in 1..=4u32 {
            let busy = tick * 25;
            let stat = format!(
                "cpu0 {busy} 0 0 {} 0\ncpu1 0 0 0 {} {}\n",
                50 * tick - busy,
                45 * tick,
                5 * tick
            );
            fs::write(machine.join("stat"), stat).unwrap();
            let passed = Duration::from_millis(500) * tick;
            // The machine is suspended for an hour before the third.
            let slept = Duration::from_secs(if tick > 2 { 3600 } else { 0 });
            recorder.tick(start + passed, wall + passed + slept).unwrap();
        }
        let summary = recorder
            .finish(Ending {
                exit_code: Some(3),
                ..Ending::default()
            })
            .unwrap();
        assert_eq!((summary.ticks, summary.cpu.unwrap().p50), (4, 25.0));
        let recording = Recording::open(dir.path()).unwrap();
        assert_eq!(recording.problems, Vec::<String>::new());
        let node = &recording.nodes[0];
        let steps: Vec<f64> = node
            .ticks
            .windows(2)
            .map(|pair| ((pair[1] - pair[0]) * 10.0).round())
            .collect();
        assert_eq!(steps, [5.0, 36_005.0, 5.0]);
        let cores: Vec<_> = node
            .of(dimension::CPU)
            .map(|series| series.values.clone())
            .collect();
        assert_eq!(cores, [vec![50.0; 4], vec![0.0; 4]]);
        assert_eq!(node.of(dimension::IO_WAIT).nth(1).unwrap().values, [10.0; 4]);
        assert_eq!(node.of(dimension::MEMORY).next().unwrap().values, [60.0; 4]);
        let about = recording.about.unwrap();
        assert_eq!((about.exit_code, about.interval_ms), (Some(3), 500));
        assert!(about.ended.is_some() && about.command == ["train"]);
        let told = |text: &str| about.notes.iter().filter(|note| note.contains(text)).count();
        assert_eq!(
            (told("ahead"), told("NVML"), told("pressure")),
            (1, 1, 1),
            "{:?}",
            about.notes
        );
        assert!(!out.join("control.json").exists());
    }

    /// A process that is always busy, at 100 ms, switched off for ten seconds, and at 1 s from there on.
    #[test]
    fn every_sample_knows_how_long_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, out) = (dir.path().join("proc"), dir.path().join("out"));
        let mut settings = fake_machine(&machine);
        settings.interval = Duration::from_millis(100);
        let mut recorder = Recorder::open(&out, settings).unwrap();
        let (start, wall) = (recorder.last, SystemTime::now());
        let at = |tenths: u32| {
            // Two cores: the one is the process's, the other that of somebody else, half of the time.
            let ticks = 10 * tenths;
            let stat = format!("cpu0 {ticks} 0 0 0 0\ncpu1 {} 0 0 {} 0\n", ticks / 2, ticks / 2);
            fs::write(machine.join("stat"), stat).unwrap();
            let process = format!("7 (train) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 6 10 7\n");
            fs::write(machine.join("7/stat"), process).unwrap();
            let passed = Duration::from_millis(100) * tenths;
            (start + passed, wall + passed)
        };
        let mut on = true;
        let mut change = |recorder: &mut Recorder, switch, interval_ms, (now, wall)| {
            let change = Change {
                on: Some(switch),
                interval_ms,
            };
            recorder.apply(change, &mut on, now, wall).unwrap();
            About::read(&out).unwrap().unwrap().paused.is_some()
        };
        for tenths in 1..=20 {
            let (now, wall) = at(tenths);
            recorder.tick(now, wall).unwrap();
        }
        assert!(change(&mut recorder, false, None, at(20)));
        assert!(!change(&mut recorder, true, Some(1000), at(120)));
        for tenths in [130, 140, 150] {
            let (now, wall) = at(tenths);
            recorder.tick(now, wall).unwrap();
        }
        recorder.finish(Ending::default()).unwrap();

        let recording = Recording::open(dir.path()).unwrap();
        let node = &recording.nodes[0];
        let lengths = node.lengths();
        let expected = [[0.1; 20].as_slice(), &[1.0; 3]].concat();
        assert_eq!(lengths.len(), expected.len());
        for (length, expected) in lengths.iter().zip(expected) {
            assert!((length - expected).abs() < 1e-4, "{lengths:?}");
        }
        let (shortest, longest) = recording.intervals().unwrap();
        assert!(
            (shortest - 0.1).abs() < 1e-4 && (longest - 1.0).abs() < 1e-4,
            "{shortest} to {longest}"
        );
        // Of 20 samples the first four come before the first look at the processes.
        let seconds = |dimension| {
            let series = node.of(dimension).next().unwrap();
            node.seconds(&series.values) / 100.0
        };
        for (dimension, expected) in [
            (dimension::PROCESS_CPU, 4.6),
            (dimension::TREE_CPU, 4.6),
            (dimension::OTHERS_CPU, 2.3),
            (dimension::CPU, 5.0),
        ] {
            let got = seconds(dimension);
            assert!((got - expected).abs() < 0.01, "{dimension}: {got} s");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_is_recorded_switched_off_and_on_and_stopped_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            interval: Duration::from_millis(100),
            ..Settings::new(Tree::Of(std::process::id()), Vec::new())
        };
        let sampler = Sampler::start(dir.path(), settings.clone()).unwrap();
        assert!(matches!(
            Sampler::start(dir.path(), settings.clone()).err(),
            Some(ProfileError::Recording { .. })
        ));
        std::thread::sleep(Duration::from_millis(450));
        let send = |on| {
            let change = Change {
                on: Some(on),
                interval_ms: None,
            };
            change.send(dir.path()).unwrap();
        };
        send(false);
        std::thread::sleep(Duration::from_millis(1000));
        send(true);
        std::thread::sleep(Duration::from_millis(1500));
        let summary = sampler.stop(Ending::default()).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        let node = &recording.nodes[0];
        assert_eq!(node.ticks.len() as u64, summary.ticks);
        assert!(summary.ticks >= 4, "{summary:?}");
        let gap = node
            .ticks
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .fold(0.0, f64::max);
        assert!(gap > 0.7, "{:?}", node.ticks);
        assert!(
            node.of(dimension::CPU)
                .flat_map(|s| &s.values)
                .any(|share| (0.0..=100.0).contains(share))
        );
        let own = format!("{} ", std::process::id());
        assert!(
            node.of(dimension::PROCESS_CPU)
                .any(|series| series.name.starts_with(&own))
        );
        let notes = recording.about.unwrap().notes.join("\n");
        assert!(
            notes.contains("off from") && notes.contains("on again"),
            "{notes}"
        );

        // It continues in the same folder, and one that waits for a tick a minute away is stopped, also by dropping it.
        let slow = Settings {
            interval: Duration::from_secs(60),
            ..settings
        };
        let begin = Instant::now();
        drop(Sampler::start(dir.path(), slow.clone()).unwrap());
        Sampler::start(dir.path(), slow)
            .unwrap()
            .stop(Ending::default())
            .unwrap();
        assert!(begin.elapsed() < Duration::from_secs(10));
        let again = Recording::open(dir.path()).unwrap();
        assert_eq!(again.problems, Vec::<String>::new());
        assert!(again.nodes[0].ticks.len() as u64 >= summary.ticks);
        assert!(
            again
                .about
                .unwrap()
                .notes
                .iter()
                .any(|note| note.contains("recorded again"))
        );
    }

    #[test]
    fn a_run_shorter_than_an_interval_has_one_tick() {
        let dir = tempfile::tempdir().unwrap();
        let settings = fake_machine(&dir.path().join("proc"));
        let sampler = Sampler::start(&dir.path().join("out"), settings).unwrap();
        std::thread::sleep(Duration::from_millis(120));
        assert_eq!(sampler.stop(Ending::default()).unwrap().ticks, 1);
    }

    /// What lies between the parts of a recording is known, whether a part has ended or was cut off.
    #[test]
    fn a_recording_that_goes_on_knows_how_long_nobody_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, out) = (dir.path().join("proc"), dir.path().join("out"));
        let open = || {
            let mut recorder = Recorder::open(&out, fake_machine(&machine)).unwrap();
            recorder.tick(Instant::now(), SystemTime::now()).unwrap();
            recorder
        };
        let idle = || About::read(&out).unwrap().unwrap().idle_seconds;
        open().finish(Ending::default()).unwrap();
        assert_eq!(idle(), 0.0);
        let mut about = About::read(&out).unwrap().unwrap();
        about.ended = about.ended.map(|ended| ended - 3600.0);
        fs::write(out.join("recording.json"), serde_json::to_string(&about).unwrap()).unwrap();
        // Dropped without an end, as that of a process that is killed.
        drop(open());
        assert!((3600.0..3700.0).contains(&idle()), "{}", idle());
        let hours = fs::read_dir(out.join("system/incremental")).unwrap().flatten();
        let files = hours.flat_map(|hour| fs::read_dir(hour.path()).unwrap().flatten());
        for file in files {
            let file = fs::File::options().append(true).open(file.path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(1000))
                .unwrap();
        }
        open().finish(Ending::default()).unwrap();
        assert!((4600.0..4800.0).contains(&idle()), "{}", idle());
    }

    #[test]
    fn what_cannot_be_recorded_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let settings = fake_machine(&dir.path().join("proc"));
        let message =
            |settings: Settings, out: &Path| Recorder::open(out, settings).err().unwrap().to_string();
        for ms in [0, 99, 60_001] {
            let settings = Settings {
                interval: Duration::from_millis(ms),
                ..settings.clone()
            };
            assert!(message(settings, dir.path()).contains("100 ms to 60 s"));
        }
        assert!(message(settings.clone(), Path::new("/dev/null/x")).contains("/dev/null/x"));
        let mut nothing = settings;
        nothing.sources.proc = dir.path().join("none");
        assert!(message(nothing, dir.path()).contains("not supported here"));
    }
}
