//! Ranks under MPI: `stokehold launch`, and what happens when a rank ends, stands still or is asked to stop.
//!
//! A program without MPI says what it lacks; the rest is tested with the feature `mpi`, where an `mpirun` is installed.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A data set of 120 generated images.
fn data(dir: &Path) {
    let mut make = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    make.args(["dataset", "synth", "data", "--images", "120", "--classes", "2"]);
    let made = make.current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
}

#[test]
fn several_ranks_and_a_cluster_without_an_interface_are_refused_in_words() {
    let dir = TempDir::new().unwrap();
    data(dir.path());
    let train = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        command
            .args(["train", "data", "--epochs", "1"])
            .current_dir(dir.path());
        let output = command.envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), said(&output))
    };
    let slurm = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")];
    let (code, said) = train(&slurm);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("srun started 4 tasks that cannot talk to each other: start them with srun --mpi=pmix"),
        "{said}"
    );
    if cfg!(not(feature = "mpi")) {
        let (code, said) = train(&[("OMPI_COMM_WORLD_SIZE", "2")]);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains(
                "mpirun started 2 ranks, and this program was built without MPI: build it with --features mpi"
            ),
            "{said}"
        );
    }
    assert!(!dir.path().join("runs").exists());
}

#[cfg(feature = "mpi")]
mod under_mpi {
    use std::fs;
    use std::process::{Child, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    /// Options of a run of two epochs of 48 steps; rank 0's log has a line for each.
    const RUN: [&str; 16] = [
        "train",
        "data",
        "--image-size",
        "64",
        "--batch-size",
        "2",
        "--epochs",
        "2",
        "--freeze-backbone",
        "--ceiling-batches",
        "0",
        "--log-every",
        "1",
        "--checkpoint-steps",
        "5",
        "--name",
    ];

    fn launch(dir: &Path, ranks: usize, name: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        command.args(["launch", "-n", &ranks.to_string(), "--"]);
        command.args(RUN).arg(name).args(more).current_dir(dir);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether there is an MPI to start ranks with.
    fn can_launch() -> bool {
        let there = Command::new("mpirun").arg("--version").output().is_ok();
        if !there {
            stokehold_untested::skip("there is no mpirun");
        }
        there
    }

    /// The losses of the steps so far.
    fn losses(dir: &Path, name: &str) -> Vec<f64> {
        let text = fs::read_to_string(dir.join("runs").join(name).join("metrics.jsonl")).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let steps = lines.filter(|line| line["kind"] == "train");
        steps.map(|line| line["loss"].as_f64().unwrap()).collect()
    }

    fn wait_for_steps(dir: &Path, name: &str, steps: usize, child: &mut Child) {
        let begin = Instant::now();
        while losses(dir, name).len() < steps {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended before step {steps}"
            );
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "no step {steps} in 120 s"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process of a rank of this folder: its environment says which it is.
    fn process(dir: &Path, rank: usize) -> Pid {
        let wanted = format!("OMPI_COMM_WORLD_RANK={rank}\0");
        let dir = dir.canonicalize().unwrap();
        let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let its = fs::read(entry.path().join("environ")).ok()?;
            let there = fs::read_link(entry.path().join("cwd")).ok()? == dir;
            let is_rank = its.windows(wanted.len()).any(|part| part == wanted.as_bytes());
            (there && is_rank).then_some(Pid::from_raw(pid))
        });
        found.expect("the rank's process")
    }

    fn checkpoints(dir: &Path, name: &str) -> usize {
        fs::read_dir(dir.join("runs").join(name).join("checkpoints"))
            .unwrap()
            .count()
    }

    /// Two ranks are cut by Ctrl-C, continue until one is killed, and again until one stands still; one rank continues to the end. The
    /// losses are those of one rank that was left alone.
    #[test]
    fn ranks_that_stop_die_and_stand_still_leave_a_checkpoint_from_which_others_go_on() {
        if !can_launch() {
            return;
        }
        let dir = TempDir::new().unwrap();
        let dir = dir.path();
        data(dir);
        let mut alone = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        let alone = alone.args(RUN).arg("alone").current_dir(dir).output().unwrap();
        assert!(alone.status.success(), "{}", said(&alone));
        let expected = losses(dir, "alone");
        assert_eq!(expected.len(), 96);

        // Batches of 2 images have no 4 parts.
        let output = launch(dir, 4, "few", &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("2 images are fewer than the parts that 4 ranks make"),
            "{}",
            said(&output)
        );

        // A cluster's warning, again and again, stops the ranks once.
        let mut child = launch(dir, 2, "cut", &[]).spawn().unwrap();
        wait_for_steps(dir, "cut", 3, &mut child);
        for _ in 0..3 {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert!(checkpoints(dir, "cut") > 0);

        let mut child = launch(dir, 2, "cut", &["--resume"]).spawn().unwrap();
        wait_for_steps(dir, "cut", 6, &mut child);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert!(
            said(&output).contains("interrupted; this continues the run:"),
            "{}",
            said(&output)
        );
        assert!(
            said(&output).contains("launch -n 2 -- train --resume runs/cut"),
            "{}",
            said(&output)
        );

        let mut child = launch(dir, 2, "cut", &["--resume"]).spawn().unwrap();
        wait_for_steps(dir, "cut", 12, &mut child);
        let begin = Instant::now();
        kill(process(dir, 1), Signal::SIGKILL).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        assert!(!output.status.success());
        assert!(said(&output).contains("rank 1"), "{}", said(&output));
        assert!(checkpoints(dir, "cut") > 0);

        let mut child = launch(dir, 2, "cut", &["--resume", "--rank-timeout", "5s"])
            .spawn()
            .unwrap();
        wait_for_steps(dir, "cut", 20, &mut child);
        let begin = Instant::now();
        kill(process(dir, 1), Signal::SIGSTOP).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(
            said(&output).contains("for other ranks: rank 1 on"),
            "{}",
            said(&output)
        );

        let mut last = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        let last = last
            .args(RUN)
            .args(["cut", "--resume"])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(last.status.success(), "{}", said(&last));
        let cut = losses(dir, "cut");
        assert_eq!(cut.len(), expected.len());
        for (step, (cut, expected)) in cut.iter().zip(&expected).enumerate() {
            assert!(
                (cut - expected).abs() < 1e-4,
                "step {}: {cut} and {expected}",
                step + 1
            );
        }
    }

    /// The file that `bench network` writes is one that `scale` reads, and explains the sums that were measured.
    #[test]
    fn the_network_between_ranks_is_measured_for_scale() {
        if !can_launch() {
            return;
        }
        let dir = TempDir::new().unwrap();
        let bench = |ranks: &str, more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
            command
                .args(["launch", "-n", ranks, "--", "bench", "network"])
                .args(more);
            command.current_dir(dir.path()).output().unwrap()
        };
        let output = bench("2", &["--json", "--out", "network.json"]);
        assert!(output.status.success(), "{}", said(&output));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = fs::read_to_string(dir.path().join("network.json")).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), printed);
        assert_eq!(printed["ranks"], 2);
        let network = stokehold_scale::Network::read(&dir.path().join("network.json")).unwrap();
        let sums = printed["sums"].as_array().unwrap();
        let last = sums.last().unwrap();
        let bytes = 26_214_400;
        assert_eq!(last["bytes"], bytes);
        // By hand: two ranks send all of it once, with two messages.
        let explained = 2.0 * network.alpha_seconds + f64::from(bytes) / network.bytes_per_second;
        let measured = last["seconds"].as_f64().unwrap();
        assert!((explained / measured - 1.0).abs() < 1e-6, "{explained} {last}");
        assert!(last["seconds_p10"].as_f64().unwrap() <= measured);
        assert!(last["seconds_p90"].as_f64().unwrap() >= measured);
        let output = bench("1", &[]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("a rank alone has no network"),
            "{}",
            said(&output)
        );
    }

    #[test]
    fn ranks_with_other_options_say_which_and_leave_nothing() {
        if !can_launch() {
            return;
        }
        let dir = TempDir::new().unwrap();
        data(dir.path());
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        for (place, lr) in ["0.1", "0.2"].into_iter().enumerate() {
            command.args(if place > 0 { &[":"][..] } else { &[] });
            command.args(["-n", "1", env!("CARGO_BIN_EXE_stokehold")]);
            command.args(RUN).args(["other", "--lr", lr]);
        }
        let output = command.current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("lr is 0.2, and rank 0's is 0.1"),
            "{}",
            said(&output)
        );
        assert!(!dir.path().join("runs").exists());
    }

    /// Slurm's warning before its limit; a program called scontrol writes down what it is asked for.
    #[test]
    fn a_warning_before_the_limit_puts_the_job_back_into_the_queue() {
        use std::os::unix::fs::PermissionsExt;
        let dir = TempDir::new().unwrap();
        let dir = dir.path();
        data(dir);
        let scontrol = dir.join("scontrol");
        fs::write(&scontrol, "#!/bin/sh\necho \"$@\" > asked\n").unwrap();
        fs::set_permissions(&scontrol, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        command
            .args(RUN)
            .args(["limit", "--resume", "--requeue"])
            .current_dir(dir);
        command.env("PATH", path).env("SLURM_JOB_ID", "77");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for_steps(dir, "limit", 2, &mut child);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert_eq!(fs::read_to_string(dir.join("asked")).unwrap(), "requeue 77\n");
        assert!(
            said(&output).contains("the job 77 is back in Slurm's queue"),
            "{}",
            said(&output)
        );
        assert!(checkpoints(dir, "limit") > 0);
    }
}
