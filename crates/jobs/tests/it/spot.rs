//! Interruptions.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stokehold_jobs::{Job, News, Secondary, Simulation, Spot, Status, run};

use crate::Bench;
use stokehold_untested::until;

/// A script that counts its starts at its place for checkpoints, and continues for ever until the last.
fn counts(bench: &Bench, last: u32) -> Job {
    let script = format!(
        "cd $SM_CHECKPOINT_DIR; n=$(($(cat n 2> /dev/null) + 1)); echo start $n $(ls ../model | wc -l)\n\
         touch ../model/left; echo $n > .n; mv .n n; [ $n -ge {last} ] && exit 0\n\
         trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    );
    let mut job = bench.job("run.sh", &script);
    job.max_run_seconds = 300;
    job.checkpoints = Some(bench.dir.path().join("kept").display().to_string());
    job
}

fn spot(simulate: &str) -> Spot {
    Spot {
        simulate: Some(Simulation::parse(simulate).unwrap()),
        ..Spot::default()
    }
}

#[test]
fn a_simulated_interruption_starts_anew_from_the_kept_checkpoints() {
    let bench = Bench::new();
    let mut job = counts(&bench, 3);
    job.spot = Some(Spot {
        price: Some(3.0),
        spot_price: Some(1.0),
        ..spot("every 1s")
    });
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    // On a slow machine a start may be interrupted before it has counted itself: it is the same again.
    let mut printed = bench.printed();
    printed.retain(|line| line.starts_with("algo-1 out start"));
    let starts = printed.len();
    printed.dedup();
    assert_eq!(printed, [1, 2, 3].map(|n| format!("algo-1 out start {n} 0")));
    use Secondary::{Completed, Downloading, Interrupted, Starting, Training, Uploading};
    let ways: Vec<Secondary> = record
        .transitions
        .iter()
        .map(|transition| transition.status)
        .collect();
    let bill = record.spot.unwrap();
    let again = [Interrupted, Starting, Downloading, Training].repeat(bill.interruptions as usize);
    let wanted = [
        &[Starting, Downloading, Training][..],
        &again,
        &[Uploading, Completed],
    ]
    .concat();
    assert_eq!(ways, wanted);
    assert!(
        bill.interruptions >= 2 && bill.interruptions as usize + 1 >= starts,
        "{bill:?}"
    );
    assert!(
        bill.training_seconds >= 2.0 && bill.wall_seconds >= bill.training_seconds,
        "{bill:?}"
    );
    assert!(
        (bill.billable_seconds - bill.training_seconds / 3.0).abs() < 1e-9,
        "{bill:?}"
    );
    assert!(
        (bill.savings.unwrap() - 2.0 / 3.0).abs() < 1e-9 && bill.cost < bill.full_cost,
        "{bill:?}"
    );
}

#[test]
fn what_was_not_kept_is_gone() {
    let bench = Bench::new();
    // Without a place it finds nothing of itself; it ends when the interruptions do.
    let script = "ls $SM_CHECKPOINT_DIR | wc -l; touch $SM_CHECKPOINT_DIR/n; [ -e $GO ] && exit 0; touch $GO; sleep 60";
    let mut job = bench.job("run.sh", script);
    job.environment
        .insert("GO".to_owned(), bench.dir.path().join("go").display().to_string());
    job.spot = Some(Spot {
        grace_seconds: 0,
        ..spot("every 1s")
    });
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let mut printed = bench.printed();
    printed.retain(|line| line.starts_with("algo-1"));
    assert!(printed.iter().all(|line| line == "algo-1 out 0"), "{printed:?}");
    assert!(
        record.spot.unwrap().interruptions >= 1 && printed.len() >= 2,
        "{printed:?}"
    );
}

#[test]
fn a_deaf_script_is_killed_after_its_grace() {
    let bench = Bench::new();
    let script = "trap '' TERM; echo run; [ -e $GO ] && exit 0; touch $GO; while :; do sleep 0.05; done";
    let mut job = bench.job("run.sh", script);
    job.environment
        .insert("GO".to_owned(), bench.dir.path().join("go").display().to_string());
    job.spot = Some(Spot {
        grace_seconds: 1,
        ..spot("every 1s")
    });
    job.max_run_seconds = 300;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Completed, Some(0)),
        "{record:?}"
    );
    assert!(record.spot.unwrap().interruptions >= 1);
}

#[test]
fn times_count_over_all_starts() {
    let bench = Bench::new();
    let sleeps = "trap 'exit 0' TERM; while :; do sleep 0.02; done";
    let mut job = bench.job("run.sh", sleeps);
    job.max_run_seconds = 1;
    job.spot = Some(spot("every 400ms"));
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::MaxRuntimeExceeded)
    );
    assert!(record.spot.unwrap().interruptions >= 1);

    job.max_run_seconds = 3;
    job.spot = Some(Spot {
        pause_seconds: 3600,
        max_wait_seconds: Some(4),
        ..spot("after 100ms")
    });
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::MaxWaitTimeExceeded)
    );
    job.spot = Some(Spot {
        max_wait_seconds: Some(2),
        ..Spot::default()
    });
    let error = bench.store.create(&job).unwrap_err().to_string();
    assert!(
        error.contains("max-wait-seconds (2) must be at least max-run-seconds (3)"),
        "{error}"
    );
    job.spot = Some(Spot {
        price: Some(1.0),
        ..Spot::default()
    });
    assert!(
        bench
            .store
            .create(&job)
            .unwrap_err()
            .to_string()
            .contains("together")
    );
}

#[test]
fn a_stop_ends_an_interruption_too() {
    let bench = Bench::new();
    let mut job = bench.job("run.sh", "trap 'exit 0' TERM; while :; do sleep 0.02; done");
    job.spot = Some(Spot {
        pause_seconds: 3600,
        ..spot("after 100ms")
    });
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("it is interrupted", || {
            bench.store.get(&name).unwrap().secondary == Secondary::Interrupted
        });
        assert_eq!(bench.store.get(&name).unwrap().status, Status::InProgress);
        bench.store.stop(&name).unwrap();
        running.join().unwrap()
    });
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::Stopped)
    );
}

/// EC2's metadata service, which announces an interruption once `announce` is set, until it is over.
fn metadata(listener: TcpListener, announce: &AtomicBool, over: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !over.load(Ordering::SeqCst) {
        let Ok((mut socket, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        socket.set_nonblocking(false).unwrap();
        let mut lines = BufReader::new(&socket).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let _rest = lines.take_while(|line| !line.is_empty()).count();
        let (status, body) = match first.as_str() {
            line if line.starts_with("PUT /latest/api/token") => ("200 OK", "token"),
            _ if announce.load(Ordering::SeqCst) => (
                "200 OK",
                "{\"action\": \"terminate\", \"time\": \"2026-01-01T00:02:00Z\"}",
            ),
            _ => ("404 Not Found", ""),
        };
        // Who has asked may be gone.
        let length = body.len();
        let _ = write!(
            socket,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
    }
}

#[test]
fn a_notice_leaves_a_job_that_is_resumed_elsewhere() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut job = counts(&bench, 3);
    job.spot = Some(Spot::default());
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    job.environment
        .insert("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), endpoint);
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let (announce, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let record = std::thread::scope(|scope| {
        scope.spawn(|| metadata(listener, &announce, &over));
        let started = |news: News<'_>| {
            if matches!(news, News::Line(line) if line.text == "ready") {
                announce.store(true, Ordering::SeqCst);
            }
        };
        let record = run(claim, &AtomicBool::new(false), &started).unwrap();
        over.store(true, Ordering::SeqCst);
        record
    });
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::Interrupted),
        "{record:?}"
    );
    let (log, _) = bench.store.log(&name, 0).unwrap();
    assert!(
        log.contains("spot: this machine is taken away: {\"action\": \"terminate\""),
        "{log}"
    );
    assert_eq!(
        fs::read_to_string(bench.dir.path().join("kept/n")).unwrap(),
        "1\n"
    );

    // Again, told by another process; then to its end.
    let claim = bench.store.resume(&name).unwrap();
    let record = run(claim, &AtomicBool::new(false), &|news| {
        if matches!(news, News::Line(line) if line.text == "ready") {
            bench.store.interrupt(&name).unwrap();
        }
    })
    .unwrap();
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::Interrupted),
        "{record:?}"
    );
    let record = bench.run_again(bench.store.resume(&name).unwrap());
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert!(bench.printed().contains(&"algo-1 out start 3 0".to_owned()));
    assert_eq!(record.spot.unwrap().interruptions, 2);
    let plain = bench.store.create(&bench.job("run.sh", "true")).unwrap();
    assert!(
        bench
            .store
            .interrupt(&plain)
            .unwrap_err()
            .to_string()
            .contains("[spot]")
    );
}
