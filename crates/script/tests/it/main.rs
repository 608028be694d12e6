//! The hook in real scripts: what it sees, what it changes, and that it never touches them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

mod system;

use stokehold_profile::timeline::{Spans, VARIABLE};
use stokehold_profile::{Recording, span};
use stokehold_script::{Changes, Hook, LoaderFacts, Process, Script, read};
use stokehold_untested::needs;

/// A script that has ended.
struct Ran {
    output: Output,
    processes: Vec<Process>,
    /// `None` where nothing was sent.
    recording: Option<Recording>,
}

/// A script, in the Python of the tests.
struct Run<'a> {
    python: PathBuf,
    script: &'a str,
    words: &'a str,
    changes: Changes,
    environment: Vec<(&'a str, &'a str)>,
}

impl<'a> Run<'a> {
    /// `small.py` with arguments; `None` where there is no torch.
    fn small(words: &'a str) -> Option<Self> {
        Self::of("small.py", words)
    }

    /// Another script.
    fn of(script: &'a str, words: &'a str) -> Option<Self> {
        Some(Self::in_python(needs::torch()?, script, words))
    }

    fn in_python(python: PathBuf, script: &'a str, words: &'a str) -> Self {
        Self {
            python,
            script,
            words,
            changes: Changes::default(),
            environment: Vec::new(),
        }
    }

    fn with(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    fn ran(&self) -> Ran {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("profiler-output");
        fs::create_dir(&folder).unwrap();
        let spans = Spans::take(&folder);
        let counters = folder.join("python");
        let hook = Hook::new(&dir.path().join("hook"), &self.changes, Some(&counters)).unwrap();
        let mut command = Command::new(&self.python);
        command
            .arg(scripts().join(self.script))
            .args(self.words.split_whitespace())
            .env(VARIABLE, spans.address())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        hook.set(&mut command);
        command.envs(self.environment.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(spans.finish(), Vec::<String>::new());
        let (processes, problems) = read(&folder.join("python"));
        assert_eq!(problems, Vec::<String>::new());
        Ran {
            output,
            processes,
            recording: Recording::open(dir.path()).ok(),
        }
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/scripts")
}

impl Ran {
    fn said(&self) -> String {
        format!(
            "{}{}",
            String::from_utf8_lossy(&self.output.stdout),
            String::from_utf8_lossy(&self.output.stderr)
        )
    }

    /// It ended well, and the hook did too.
    fn well(self) -> Self {
        assert!(self.output.status.success(), "{}", self.said());
        assert!(self.problems().is_empty(), "{:?}", self.problems());
        self
    }

    fn problems(&self) -> Vec<&String> {
        self.processes
            .iter()
            .flat_map(|process| &process.problems)
            .collect()
    }

    /// The loader that trained.
    fn loader(&self) -> LoaderFacts {
        Script::of(&self.processes)
            .unwrap_or_else(|| panic!("nothing trained: {}", self.said()))
            .loader
    }

    fn spans(&self, name: &str) -> usize {
        let nodes = self.recording.iter().flat_map(|recording| &recording.nodes);
        nodes.flat_map(|node| node.spans_of(name)).count()
    }
}

/// Checks a run of `small.py` for each case, so many at once.
fn each<T: Copy + Send>(at_once: usize, cases: &[(&'static str, T)], check: impl Fn(&str, T, Ran) + Sync) {
    let Some(python) = needs::torch() else { return };
    for some in cases.chunks(at_once) {
        thread::scope(|scope| {
            for &(words, expected) in some {
                let (check, python) = (&check, python.clone());
                scope.spawn(move || {
                    check(
                        words,
                        expected,
                        Run::in_python(python, "small.py", words).ran().well(),
                    )
                });
            }
        });
    }
}

/// Waits, steps and what workers fetch, in every way of starting workers; reads of 20 ms an image, steps of 10 ms.
#[test]
fn steps_and_waits_are_seen() {
    // The words of a case, and how many make batches at the same time.
    let cases = [
        ("workers=0", 1),
        ("workers=1 start=fork", 1),
        ("workers=2 start=spawn keep=1", 2),
        ("workers=1 loader=own", 1),
    ];
    // They sleep for the most part.
    each(2, &cases, |words, makers, ran| {
        let loader = ran.loader();
        let train = loader.train;
        assert_eq!(
            (train.iterations, train.finished, train.batches, train.images),
            (2, 2, 20, 80),
            "{words}"
        );
        assert!(
            train.step_seconds >= 0.2 && train.step_seconds < 10.0,
            "{words}: {train:?}"
        );
        assert_eq!(
            (ran.spans(span::STEP), ran.spans(span::WAIT)),
            (20, 20),
            "{words}"
        );
        assert_eq!(
            (ran.spans(span::EPOCH), ran.spans(span::VALIDATION)),
            (2, 2),
            "{words}"
        );
        assert_eq!(ran.spans(span::EVAL_STEP), 10, "{words}");
        // 20 batches of training and 10 of validation.
        assert_eq!(ran.spans(span::WORKER), 30, "{words}");
        let workload = Script::of(&ran.processes).unwrap().workload(2, None);
        let wait = workload.read_wait_seconds.unwrap();
        // A sleep is never shorter, whatever else wants the cores; Linux counts a few milliseconds of one as lack of a core now
        // and then.
        assert!((0.019..0.080).contains(&wait), "{words}: a read of {wait}");
        assert_eq!((workload.images, workload.batch_size), (40, 4), "{words}");
        assert!(workload.wait_share > 0.1, "{words}: {}", workload.wait_share);
        // All of the loop's time is known: 40 reads of 20 ms.
        let seconds = workload.seconds_per_epoch.unwrap();
        assert!(seconds >= 0.8 / f64::from(makers), "{words}: {seconds}");
    });
}

/// What a data set's threads or processes compute, which the fetching thread waits for, is not taken for storage.
#[test]
fn what_others_compute_is_no_wait_for_storage() {
    let cases = [
        ("epochs=1 workers=0 helper=pool", false),
        ("epochs=1 workers=1 helper=pool", false),
        ("epochs=1 workers=1 helper=thread", false),
        ("epochs=1 workers=1 helper=child", false),
        // Threads that sleep as long as they work for the fetch are no matter of doubt, and those of libraries are none.
        ("epochs=1 workers=1 helper=sleeping", true),
        ("epochs=1 workers=0 helper=openmp", true),
    ];
    each(1, &cases, |words, known, ran| {
        let script = Script::of(&ran.processes).unwrap();
        let wait = script.workload(2, None).read_wait_seconds;
        assert_eq!(wait.is_some(), known, "{words}: {wait:?}");
        let said = script
            .notes()
            .iter()
            .any(|note| note.contains("threads or processes of its own"));
        assert_eq!(said, !known, "{words}");
        assert!(
            wait.is_none_or(|wait| (0.019..0.080).contains(&wait)),
            "{words}: {wait:?}"
        );
    });
}

/// What a worker waits for is storage only where bytes come from a disk; the hook's own reading is not counted.
#[test]
fn reads_are_told_from_other_waits() {
    let length = fs::metadata(scripts().join("small.py")).unwrap().len() as f64;
    let cold = tempfile::NamedTempFile::new().unwrap();
    fs::write(cold.path(), vec![7; 40_000]).unwrap();
    cold.as_file().sync_all().unwrap();
    let cold = cold.path().to_str().unwrap();
    let mut cases = vec![
        ("workers=0", "wait", 0.0),
        ("workers=2 start=spawn", "wait", 0.0),
        ("workers=2 file=1", "wait", length),
    ];
    match reads_from_disk(cold) {
        Some(true) => cases.extend([
            ("workers=0 file=cold", "read", 40_000.0),
            ("workers=2 file=cold", "read", 40_000.0),
        ]),
        _ => eprintln!("untested: this system counts no reads of temporary files from a disk"),
    }
    for (words, stage, bytes) in cases {
        let Some(mut run) = Run::small(words) else { return };
        run.environment.push(("COLD", cold));
        let ran = run.ran().well();
        let workload = Script::of(&ran.processes).unwrap().workload(2, None);
        assert!(
            workload.stage_seconds.contains_key(stage),
            "{words}: {workload:?}"
        );
        // None where the kernel does not count them.
        let read = workload.script.unwrap().read_bytes;
        assert!(
            // A disk is read in pages, and a little ahead.
            read.is_none_or(|read| (bytes - 100.0..=1.2 * bytes + 100.0).contains(&read)),
            "{words}: {read:?}"
        );
    }
}

/// Whether the system counts what comes from a disk where this file lies; `None` without a Python.
fn reads_from_disk(path: &str) -> Option<bool> {
    const READ: &str = "import os, sys\n\
        read = lambda: int(open('/proc/self/io').read().split()[9])\n\
        file, before = os.open(sys.argv[1], os.O_RDONLY), read()\n\
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)\n\
        os.read(file, 40_000)\n\
        print(read() > before)";
    let output = Command::new(needs::torch()?)
        .args(["-c", READ, path])
        .output()
        .ok()?;
    Some(output.stdout.starts_with(b"True"))
}

/// A generator that loads ahead in a thread: what that thread waits for, training does not.
#[test]
fn batches_that_a_thread_takes_tell_no_wait_of_training() {
    for words in ["workers=0 background=1", "workers=2 background=1"] {
        let Some(run) = Run::small(words) else { return };
        let ran = run.ran().well();
        let script = Script::of(&ran.processes).unwrap();
        let workload = script.workload(2, None);
        assert_eq!(workload.wait_share, 0.0, "{words}");
        assert_eq!(
            (workload.loader_ceiling, workload.trainer_ceiling),
            (None, None),
            "{words}"
        );
        assert!(
            script
                .notes()
                .iter()
                .any(|note| note.contains("another one trains")),
            "{words}"
        );
        assert_eq!(ran.spans("wait"), 0, "{words}");
    }
}

/// What a worker does before it can make batches is its start, and no wait for its first batch.
#[test]
fn what_workers_do_first_is_their_start() {
    for (words, least) in [
        ("workers=2 read=0.001 init=0.3", 0.3),
        // It imports torch.
        ("workers=1 read=0.001 start=spawn", 0.1),
        ("workers=1 read=0.001 init=0.3 keep=1", 0.3),
    ] {
        let Some(run) = Run::small(words) else { return };
        let ran = run.ran().well();
        let workload = Script::of(&ran.processes).unwrap().workload(2, None);
        let script = workload.script.unwrap();
        let start = script.worker_start_seconds;
        assert!(start >= least, "{words}: {start}");
        assert_eq!(script.restarts, u64::from(!script.persistent_workers), "{words}");
    }
}

/// The delay is that of the thread that trains: others want cores all the time, and lack them.
#[test]
fn the_delay_is_that_of_the_thread_that_trains() {
    let Some(run) = Run::small("workers=0 read=0.001 noise=4") else {
        return;
    };
    let train = run.ran().well().loader().train;
    let all = train.step_seconds + train.between_seconds;
    // The sum over all threads is about three times the time of each core.
    assert!(train.delay_seconds <= all, "{train:?}");
}

/// Threads of libraries within a worker are counted; its own are not among them.
#[test]
fn threads_of_libraries_within_workers_are_seen() {
    for (words, has) in [
        ("workers=1 read=0.001", false),
        // After one epoch validation has OpenMP's threads in the parent, and a fork of that hangs.
        ("epochs=1 workers=1 read=0.001 helper=openmp", true),
    ] {
        let Some(run) = Run::small(words) else { return };
        let ran = run.ran().well();
        let threads = Script::of(&ran.processes)
            .unwrap()
            .workload(2, None)
            .script
            .unwrap()
            .worker_threads;
        assert!(threads >= 1.0 && (threads > 1.5) == has, "{words}: {threads}");
    }
}

/// Batches whose gradients are accumulated are trained on; validation in mid-epoch is no step.
#[test]
fn what_trains_is_told_from_what_does_not() {
    let Some(run) = Run::small("workers=1 read=0.02 accumulate=4 validate=amid") else {
        return;
    };
    let ran = run.ran().well();
    let loader = ran.loader();
    // The last two of ten batches have no step of the optimizer, and are left to the loop's end.
    assert_eq!(loader.train.batches, 20);
    assert_eq!(loader.evaluate.batches, 0);
    let process = &ran
        .processes
        .iter()
        .find(|process| process.train_steps > 0)
        .unwrap();
    let validation = &process.loaders[1];
    assert_eq!((validation.train.batches, validation.evaluate.batches), (0, 20));
    // A validation takes 40 reads of 20 ms; the fifth step does not have it.
    let longest = ran.recording.as_ref().unwrap().nodes[0]
        .spans_of(span::STEP)
        .map(|span| span.duration);
    assert!(longest.fold(0.0, f64::max) < 0.04 + 0.5);
}

/// A pass that is left early, as sanity checks before training leave theirs, keeps its batches, whatever steps later.
#[test]
fn a_validation_that_is_left_is_no_training() {
    for (words, batches) in [
        ("workers=1 read=0.002 step=0.001 validate=left", 6),
        ("workers=0 read=0.002 step=0.001 validate=left-amid", 8),
    ] {
        let Some(run) = Run::small(words) else { return };
        let ran = run.ran().well();
        assert_eq!(ran.loader().train.batches, 20, "{words}");
        assert_eq!(ran.spans(span::STEP), 20, "{words}");
        let trained = |process: &&Process| process.train_steps > 0;
        let process = ran.processes.iter().find(trained).unwrap();
        let validation = process.loaders.iter().find(|loader| loader.train.batches == 0);
        assert_eq!(validation.unwrap().evaluate.batches, batches, "{words}");
    }
}

/// Their counters are few and complete.
#[test]
fn a_script_may_make_loaders_without_end() {
    let Some(run) = Run::of("loaders.py", "2000") else {
        return;
    };
    let ran = run.ran().well();
    let process = ran.processes.iter().find(|process| !process.loaders.is_empty());
    let loaders = &process.unwrap().loaders;
    assert_eq!(loaders.len(), 17);
    let expected: u64 = (0..2000u64)
        .map(|number| (4 + number % 50).div_ceil(4 + number % 2))
        .sum();
    let batches: u64 = loaders.iter().map(|loader| loader.evaluate.batches).sum();
    assert_eq!(batches, expected + 10);
    assert_eq!(loaders.iter().filter(|loader| loader.iterable).count(), 1);
}

#[test]
fn loaders_are_changed_from_outside() {
    let changes = Changes {
        workers: Some(2),
        persistent: true,
        ..Changes::default()
    };
    let Some(run) = Run::small("workers=0") else {
        return;
    };
    let loader = run.with(changes.clone()).ran().well().loader();
    assert_eq!(
        (loader.num_workers, loader.persistent_workers, loader.train.images),
        (2, true, 80)
    );
    // Two workers would each have the whole stream.
    let stream = Run::small("workers=0 data=stream").unwrap().with(changes);
    let loader = stream.ran().well().loader();
    assert_eq!(
        (loader.num_workers, loader.iterable, loader.train.images),
        (0, true, 80)
    );
    let none = Changes {
        workers: Some(0),
        ..Changes::default()
    };
    let loader = Run::small("workers=2 keep=1")
        .unwrap()
        .with(none)
        .ran()
        .well()
        .loader();
    assert_eq!((loader.num_workers, loader.train.images), (0, 80));
}

#[test]
fn a_script_is_ended_after_so_many_steps() {
    let changes = Changes {
        steps: Some(12),
        ..Changes::default()
    };
    let Some(run) = Run::small("workers=1 read=0.001 epochs=1000") else {
        return;
    };
    let ran = run.with(changes).ran().well();
    assert_eq!(ran.loader().train.batches, 12);
    assert!(!ran.said().contains("loss"));
}

/// What makes a loader's batches goes with the loader, and a copy of the loader does not have it.
#[test]
fn a_swapped_loader_is_let_go() {
    let changes = Changes {
        swap: true,
        ..Changes::default()
    };
    let Some(run) = Run::of("swap.py", "kept") else {
        return;
    };
    let ran = run.with(changes.clone()).ran().well();
    let said = String::from_utf8_lossy(&ran.output.stdout).into_owned();
    assert_eq!(said, "True 0\ncycle 0\none 1\ncopies 0 [6, 6, 6] 3\nrest 3\n");
    let facts = &ran.processes[0].loaders[0];
    assert!(facts.swapped, "{facts:?}");
    // One that cannot begin stays PyTorch's, and says so once.
    let refused = Run::of("swap.py", "refused").unwrap().with(changes);
    let ran = refused.ran().well();
    assert_eq!(String::from_utf8_lossy(&ran.output.stdout), "[0, 0, 0] 0\n");
    assert_eq!(ran.said().matches("not this time").count(), 1, "{}", ran.said());
    let facts = &ran.processes[0].loaders[0];
    assert_eq!(
        (facts.swapped, facts.swap_refused.as_deref()),
        (false, Some("not this time"))
    );
}

/// The hook asks nothing for its length that torch does not ask itself. A warning ends the script.
#[test]
fn lengths_are_not_asked_for() {
    let Some(run) = Run::of("lengths.py", "") else {
        return;
    };
    let ran = run.ran().well();
    assert_eq!(String::from_utf8_lossy(&ran.output.stdout), "[]\n");
    let batches: Vec<_> = ran.processes[0]
        .loaders
        .iter()
        .map(|loader| loader.batches)
        .collect();
    assert_eq!(
        batches,
        [None, None, None, None, None, Some(3), Some(3), Some(6), Some(2)]
    );
}

/// A script's output, exit code and messages are the same with and without the hook.
#[test]
fn the_script_is_left_alone() {
    let Some(run) = Run::small("workers=1 bad=7 read=0") else {
        return;
    };
    let ran = run.ran();
    assert_eq!(ran.output.status.code(), Some(1));
    let said = ran.said();
    assert!(said.contains("ValueError: this sample is bad"), "{said}");
    assert!(ran.problems().is_empty(), "{:?}", ran.problems());
    let plain = Command::new(&run.python)
        .arg(scripts().join("small.py"))
        .args(run.words.split_whitespace())
        .output()
        .unwrap();
    assert_eq!(plain.status.code(), Some(1));
}

/// Whatever is wrong around it, the script runs.
#[test]
fn trouble_of_the_hook_is_not_the_scripts() {
    for environment in [
        // No one listens there; the folder is none; settings that are none.
        vec![(VARIABLE, "/nowhere/socket")],
        vec![("STOKEHOLD_HOOK", r#"{"folder": "/proc/nothing"}"#)],
        vec![("STOKEHOLD_HOOK", "no JSON")],
        vec![("STOKEHOLD_HOOK", "")],
    ] {
        let Some(mut run) = Run::small("workers=1 read=0") else {
            return;
        };
        run.environment = environment.clone();
        let ran = run.ran();
        assert!(ran.output.status.success(), "{environment:?}: {}", ran.said());
        assert!(ran.said().contains("loss"), "{environment:?}");
    }
}

/// A torch without anything that the hook knows: the script runs, and what is not seen is said.
#[test]
fn a_strange_torch_is_survived() {
    let strange = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/strange");
    let dir = tempfile::tempdir().unwrap();
    let counters = dir.path().join("python");
    let hook = Hook::new(&dir.path().join("hook"), &Changes::default(), Some(&counters)).unwrap();
    let mut command = Command::new("python3");
    command
        .arg(scripts().join("strange.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", strange);
    hook.set(&mut command);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let (processes, _) = read(&dir.path().join("python"));
    let problems = processes[0].problems.join("; ");
    assert!(problems.contains("no _BaseDataLoaderIter"), "{problems}");
    assert!(problems.contains("older than 2.0"), "{problems}");
}

/// A `sitecustomize` of the environment runs behind the hook.
#[test]
fn the_environments_own_sitecustomize_runs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sitecustomize.py"), "print('its own')").unwrap();
    let hook = Hook::new(&dir.path().join("hook"), &Changes::default(), None).unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-c", "import sitecustomize; print(sitecustomize.__file__)"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", dir.path());
    hook.set(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let own = dir.path().join("sitecustomize.py");
    assert_eq!(said, format!("its own\n{}\n", own.display()));
}
