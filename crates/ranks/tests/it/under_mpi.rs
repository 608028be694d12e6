//! Ranks that are processes, started by `mpirun`: each runs [`program`] of this test program.

use std::env;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_ranks::{Phase, Ranks, RanksError};

const PART: &str = "STOKEHOLD_RANKS_TEST";

/// Starts `size` ranks that play a part; `None`, and a skipped test, without an MPI.
fn play(part: &str, size: usize) -> Option<(Output, Duration)> {
    let begin = Instant::now();
    let mut mpirun = Command::new("mpirun");
    mpirun.args([
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
    ]);
    mpirun.arg(size.to_string()).arg(env::current_exe().unwrap());
    mpirun.args(["--exact", "under_mpi::program", "--ignored", "--nocapture"]);
    match mpirun.env(PART, part).output() {
        Ok(output) => Some((output, begin.elapsed())),
        Err(error) => {
            stokehold_untested::skip(format!("mpirun: {error}"));
            None
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
#[ignore = "a rank, started by the other tests"]
fn program() {
    let ranks = Ranks::of_launch(Duration::from_secs(4)).unwrap();
    match env::var(PART).unwrap().as_str() {
        "all" => all(&ranks),
        "silent" | "busy" => silent(&ranks),
        part => panic!("no part {part}"),
    }
}

/// Every operation, with many numbers.
fn all(ranks: &Ranks) {
    assert_eq!(ranks.size(), 3);
    assert_eq!(ranks.hosts().len(), 3);
    for _ in 0..50 {
        let own: Vec<f32> = (0..100_001).map(|n| (n * (1 + ranks.rank())) as f32).collect();
        let pending: Vec<_> = own
            .chunks(30_000)
            .map(|part| ranks.begin_sum(part.to_vec()))
            .collect();
        let sums: Vec<f32> = pending.into_iter().flat_map(|sum| sum.wait().unwrap()).collect();
        assert!(sums.iter().enumerate().all(|(n, &sum)| sum == (6 * n) as f32));
    }
    let all = ranks.gather(vec![ranks.rank() as u8; 2 * ranks.rank()]).unwrap();
    assert_eq!(all, [vec![], vec![1; 2], vec![2; 4]]);
    let long = vec![ranks.rank() as u8 + 5; 1_000_000 * (1 - ranks.rank().min(1))];
    assert_eq!(ranks.broadcast(long).unwrap(), vec![5; 1_000_000]);
    println!("rank {} is done", ranks.rank());
}

/// Rank 1 does not come to the second operation: its process is stopped, or answers and does something else.
fn silent(ranks: &Ranks) {
    ranks.gather(Vec::new()).unwrap();
    if ranks.rank() == 1 {
        ranks.now(Phase::Loading);
        // Time for a pulse that says so.
        thread::sleep(Duration::from_secs(2));
        if env::var(PART).unwrap() == "silent" {
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-STOP", &pid]).status().unwrap();
        }
        thread::sleep(Duration::from_secs(120));
    }
    let error = ranks.sum(vec![1.0]).unwrap_err();
    assert!(matches!(error, RanksError::Silent { .. }));
    eprintln!("error: {error}");
    ranks.abort(3);
}

#[test]
fn processes_sum_gather_and_broadcast() {
    let Some((output, _)) = play("all", 3) else { return };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for rank in 0..3 {
        assert!(said.contains(&format!("rank {rank} is done")), "{said}");
    }
}

#[test]
fn a_process_that_is_stopped_is_named_and_all_end() {
    let Some((output, took)) = play("silent", 3) else {
        return;
    };
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(took < Duration::from_secs(25), "{took:?}");
    let expected = "rank 1 on";
    assert!(
        said.contains(expected) && said.contains("waiting for its loader's next batch"),
        "{said}"
    );
    assert!(!said.contains("rank 2 on"), "{said}");
}

#[test]
fn a_process_that_answers_and_does_not_come_is_named() {
    let Some((output, took)) = play("busy", 3) else {
        return;
    };
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(took < Duration::from_secs(25), "{took:?}");
    let expected = "its process answers, and is still waiting for its loader's next batch";
    assert!(said.contains(expected), "{said}");
}
