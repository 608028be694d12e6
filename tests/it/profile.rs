//! `stokehold profile`: a command runs as if it were alone, and is recorded; bad input and its messages.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use stokehold_profile::{Recording, dimension, span};

/// `stokehold profile` with options and a command, recording into `run` below a folder.
fn profile(dir: &Path, options: &[&str], command: &[&str]) -> Command {
    // A shell starts what runs in its background with some signals ignored, and so would a command of a test that runs there.
    let mut profile = Command::new("env");
    profile.args(["--default-signal", env!("CARGO_BIN_EXE_stokehold")]);
    profile.arg("profile").args(options).args(["-o", "run"]);
    if !command.is_empty() {
        profile.arg("--").args(command);
    }
    profile.current_dir(dir).stdin(Stdio::null());
    profile
}

/// Exit code and standard error.
fn ends(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn attach(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command
        .args(["profile", "--attach", "run"])
        .args(words)
        .current_dir(dir);
    ends(command)
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Starts a command whose first line says that it is ready.
fn ready(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, lines)
}

#[test]
fn input_output_and_exit_code_are_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = profile(
        dir.path(),
        &["--interval", "100ms"],
        &["sh", "-c", "cat; echo bad >&2; sleep 0.7; exit 7"],
    );
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), &stdout[..]), (Some(7), &b"hello\n"[..]));
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(
        stderr.starts_with("bad\n") && stderr.contains("stokehold report run"),
        "{stderr}"
    );
    assert!(stderr.lines().count() <= 4, "{stderr}");

    let recording = Recording::open(&dir.path().join("run")).unwrap();
    assert_eq!(recording.problems, Vec::<String>::new());
    assert!(recording.nodes[0].ticks.len() >= 3);
    let about = recording.about.unwrap();
    assert_eq!((about.exit_code, about.interval_ms), (Some(7), 100));
    assert_eq!(about.command[..2], ["sh", "-c"]);
    assert!(about.ended.unwrap() > about.started);

    let (code, stderr) = ends(profile(dir.path(), &[], &["true"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("holds a recording already"), "{stderr}");
}

#[test]
fn a_command_that_a_signal_ends_says_which() {
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        let dir = tempfile::tempdir().unwrap();
        let (got, stderr) = ends(profile(
            dir.path(),
            &[],
            &["sh", "-c", &format!("kill -{signal} $$")],
        ));
        assert_eq!(got, Some(code), "{stderr}");
        assert_eq!(
            Recording::open(dir.path()).unwrap().about.unwrap().exit_code,
            Some(code)
        );
    }
}

#[test]
fn signals_are_passed_on_and_not_blocked() {
    // None of ours is blocked in the command.
    let dir = tempfile::tempdir().unwrap();
    let blocked = profile(dir.path(), &[], &["grep", "SigBlk", "/proc/self/status"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(blocked.stdout).unwrap().trim_end(),
        "SigBlk:\t0000000000000000"
    );

    for (signal, code) in [
        ("-INT", 130),
        ("-TERM", 143),
        ("-HUP", 129),
        ("-QUIT", 131),
        ("-USR1", 138),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, _lines) = ready(profile(
            dir.path(),
            &[],
            &["sh", "-c", "echo ready; exec sleep 20"],
        ));
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }

    // A command may do something else about it.
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let (mut child, mut lines) = ready(profile(dir.path(), &[], &["sh", "-c", script]));
    send("-TERM", &child);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(
        (line.as_str(), child.wait().unwrap().code()),
        ("saved\n", Some(5))
    );
}

#[test]
fn orphans_stay_in_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    // The parent of the busy one ends at once.
    let script = "(setsid timeout 3 sh -c 'while :; do :; done' &) ; sleep 2.2";
    let (code, stderr) = ends(profile(dir.path(), &[], &["sh", "-c", script]));
    assert_eq!(code, Some(0), "{stderr}");
    let recording = Recording::open(dir.path()).unwrap();
    let busiest = recording.nodes[0]
        .of(dimension::PROCESS_CPU)
        .flat_map(|series| &series.values)
        .fold(0.0, |a: f32, b| a.max(*b));
    assert!(busiest > 10.0, "{busiest}");
}

#[test]
fn what_cannot_be_run_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data"), "no program").unwrap();
    for (command, code) in [("no-such-command", 127), ("./data", 126)] {
        let (got, stderr) = ends(profile(dir.path(), &[], &[command]));
        assert_eq!(got, Some(code), "{stderr}");
        assert!(stderr.contains(command), "{stderr}");
        assert!(!dir.path().join("run").exists());
    }
}

/// Of SageMaker Debugger, or of a program that puts its spans there: neither has a `recording.json`.
#[test]
fn what_was_in_the_folder_before_stays_there() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run/profiler-output");
    let samples = folder.join("system/incremental/2020091312/1600000000.algo-1.json");
    let spans = folder.join("framework/mine.timeline");
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(&samples, "precious");
    write(&spans, "step 1600000000 1600000001\n");
    for command in ["no-such-command", "true"] {
        let (code, stderr) = ends(profile(dir.path(), &[], &[command]));
        assert_eq!(code, Some(2), "{stderr}");
        assert!(
            stderr.contains("another program's recording") && stderr.contains("give another folder"),
            "{stderr}"
        );
        assert_eq!(fs::read_to_string(&samples).unwrap(), "precious");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is added");
    }

    // Spans that wait for a recording become part of it.
    fs::remove_dir_all(folder.join("system")).unwrap();
    let (code, stderr) = ends(profile(dir.path(), &[], &["no-such-command"]));
    assert_eq!(code, Some(127), "{stderr}");
    assert!(spans.exists(), "{stderr}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left");
    let (code, stderr) = ends(profile(dir.path(), &[], &["true"]));
    assert_eq!(code, Some(0), "{stderr}");
    let recording = Recording::open(&dir.path().join("run")).unwrap();
    assert_eq!(recording.nodes[0].spans_of(span::STEP).count(), 1);
}

#[test]
fn bad_input_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (options, command, said) in [
        (&[][..], &[][..], "Give a command, or"),
        (&["--interval", "50ms"], &["true"], "100 ms to 60 s"),
        (&["--interval", "2m"], &["true"], "100 ms to 60 s"),
        (&["--interval", "soon"], &["true"], "--interval"),
        (&["--pid", "4000000000"], &[], "there is no process 4000000000"),
        (&["--pid", "x"], &[], "invalid value"),
        (&["--pid", "1"], &["true"], "cannot be used with"),
        (&["--sampling", "on"], &[], "--attach"),
    ] {
        let (code, stderr) = ends(profile(dir.path(), options, command));
        assert_eq!(code, Some(2), "{options:?}: {stderr}");
        assert!(stderr.contains(said), "{options:?}: {stderr}");
        assert!(!dir.path().join("run").exists(), "{options:?}");
    }
    let (code, stderr) = attach(dir.path(), &["--sampling", "on"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("nobody is recording"), "{stderr}");
    assert_eq!(attach(dir.path(), &[]).0, Some(2));
}

#[test]
fn options_after_the_command_are_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let script = "test \"$*\" = '--limit 5 -o x' && exit 3";
    for dashes in [&[][..], &["--"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        command.args(["profile", "-o", "run"]).args(dashes);
        command.args(["sh", "-c", script, "sh", "--limit", "5", "-o", "x"]);
        command.current_dir(dir.path());
        let (code, stderr) = ends(command);
        assert_eq!(code, Some(3), "{dashes:?}: {stderr}");
        fs::remove_dir_all(dir.path().join("run")).unwrap();
    }
}

#[test]
fn a_process_is_recorded_until_it_ends_or_until_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let mut sleep = Command::new("sleep").arg("1.2").spawn().unwrap();
    let pid = sleep.id().to_string();
    let mut recorder = profile(dir.path(), &["--interval", "100ms", "--pid", &pid], &[]);
    let mut recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    // As soon as it has ended, reaped or not.
    let begin = Instant::now();
    while recorder.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    sleep.wait().unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    let name = format!("{pid} sleep");
    assert!(
        recording.nodes[0]
            .of(dimension::PROCESS_MEMORY)
            .any(|series| series.name == name)
    );
    assert_eq!(recording.about.unwrap().exit_code, None);

    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let recorder = profile(dir.path(), &["--pid", &own], &[])
        .stderr(Stdio::piped())
        .spawn();
    let mut recorder = recorder.unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("Ctrl-C ends the recording"), "{line}");
    send("-INT", &recorder);
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    assert!(
        Recording::open(dir.path())
            .unwrap()
            .about
            .unwrap()
            .ended
            .is_some()
    );
}

#[test]
fn a_running_recording_is_switched_off_and_on_and_made_faster() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo ready; exec sleep 20";
    let (mut child, _lines) = ready(profile(dir.path(), &["--interval", "60s"], &["sh", "-c", script]));
    let sent = |words: &[&str]| assert_eq!(attach(dir.path(), words), (Some(0), String::new()));
    sent(&["--interval", "100ms"]);
    std::thread::sleep(Duration::from_millis(2000));
    sent(&["--sampling", "off"]);
    std::thread::sleep(Duration::from_millis(1500));
    sent(&["--sampling", "on", "--interval", "200ms"]);
    std::thread::sleep(Duration::from_millis(2000));
    let (code, stderr) = attach(dir.path(), &["--interval", "1ms"]);
    assert_eq!(code, Some(2), "{stderr}");
    // Who records is said to others who would.
    let (code, stderr) = ends(profile(dir.path(), &[], &["true"]));
    assert_eq!(code, Some(2), "{stderr}");
    let first = format!("profiler-output: process {} on ", child.id());
    assert!(stderr.contains(&first), "{stderr}");
    send("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let recording = Recording::open(dir.path()).unwrap();
    let steps: Vec<f64> = recording.nodes[0]
        .ticks
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    let fast = steps.iter().filter(|step| (0.09..0.16).contains(*step)).count();
    let slower = steps.iter().filter(|step| (0.18..0.3).contains(*step)).count();
    assert!(
        fast >= 2 && slower >= 1 && steps.iter().any(|step| *step > 0.9),
        "{steps:?}"
    );
    let notes = recording.about.unwrap().notes.join("\n");
    for said in ["every 100 ms", "off from", "on again", "every 200 ms"] {
        assert!(notes.contains(said), "{notes}");
    }
    assert_eq!(
        attach(dir.path(), &["--sampling", "on"]).0,
        Some(2),
        "it has ended"
    );
}

#[test]
fn a_command_marks_its_steps() {
    let dir = tempfile::tempdir().unwrap();
    let script = "import os, socket\nlines = socket.socket(socket.AF_UNIX)\n\
                  lines.connect(os.environ['STOKEHOLD_TIMELINE'])\n\
                  lines.sendall(b'step 1795266180.5 1795266180.75 step=7\\n')\n";
    let (code, stderr) = ends(profile(dir.path(), &[], &["python3", "-c", script]));
    if code == Some(127) {
        stokehold_untested::skip("no python3");
        return;
    }
    assert_eq!(code, Some(0), "{stderr}");
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.problems, Vec::<String>::new());
    let steps: Vec<_> = recording.nodes[0].spans_of(span::STEP).collect();
    assert_eq!(
        (steps.len(), steps[0].step, steps[0].duration),
        (1, Some(7), 0.25)
    );
}

/// Also that of processes too short to be seen, which no one but the shell that waited for them can tell.
#[test]
fn the_cpu_time_of_the_command_is_told_from_that_of_other_programs() {
    let used = |script: &str| {
        let dir = tempfile::tempdir().unwrap();
        let output = profile(dir.path(), &["--interval", "200ms"], &["sh", "-c", script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let recording = Recording::open(dir.path()).unwrap();
        let node = &recording.nodes[0];
        let of = |dimension| {
            let series = node.of(dimension).next().expect("the two are told apart");
            node.seconds(&series.values) / 100.0
        };
        let said = String::from_utf8(output.stdout).unwrap();
        (of(dimension::TREE_CPU), of(dimension::OTHERS_CPU), said)
    };
    let (asleep, others, _) = used("sleep 2");
    assert!(
        asleep < 0.3 && others >= 0.0,
        "{asleep} s of a command that sleeps"
    );

    let many = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); \
                sh -c 'i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done'; done; times";
    let (busy, _, times) = used(many);
    // `0m0.01s 0m0.00s`, of the shell and of its children.
    let told: f64 = times
        .split_whitespace()
        .map(|time| {
            let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
            60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
        })
        .sum();
    // The tree is looked at twice a second; what it did after the last look is not known. The kernel counts in ticks of 10 ms.
    assert!(
        told > 1.0 && busy > told - 0.7 && busy < 1.1 * told + 0.1,
        "{busy} s, where the shell says {told} s"
    );
}

#[test]
fn a_script_without_its_interpreter_is_told_of_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.py"), "").unwrap();
    let (code, stderr) = ends(profile(dir.path(), &[], &["train.py"]));
    assert_eq!(code, Some(127), "{stderr}");
    assert!(stderr.contains("put python3 before it"), "{stderr}");
    // A file where the recording's folder would be.
    fs::write(dir.path().join("run"), "").unwrap();
    let (code, stderr) = ends(profile(dir.path(), &[], &["true"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("run is a file; -o takes a folder"), "{stderr}");
}
