//! How jobs run, end, and are looked at from outside.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_base::fault::Fault;
use stokehold_jobs::{Distribution, JobError, Line, Metric, News, Secondary, Status, run};

use crate::{Bench, unpacked};

fn metric(name: &str, regex: &str) -> Metric {
    Metric {
        name: name.to_owned(),
        regex: regex.to_owned(),
    }
}

#[test]
fn a_job_runs_to_its_end_with_logs_metrics_and_archives() {
    let bench = Bench::new();
    let script = "#!/bin/sh\n\
        pwd > where.txt\n\
        printf 'loss=3\\rloss=2.5 acc=0.5\\n'\n\
        echo 'Train_error=0.25;' >&2\n\
        echo weights > $SM_MODEL_DIR/model.pt; mkdir $SM_MODEL_DIR/code; echo x > $SM_MODEL_DIR/code/a.py\n\
        echo '{}' > $SM_OUTPUT_DATA_DIR/eval.json\n\
        mkfifo $SM_MODEL_DIR/pipe\n\
        echo \"$@\"\n";
    let mut job = bench.job("bin/run.sh", script);
    job.metrics = vec![
        metric("loss", "loss=([0-9.]+)"),
        metric("train:error", "Train_error=(.*?);"),
    ];
    job.hyperparameters.insert("lr".to_owned(), 0.1.into());
    job.hyperparameters.insert("x".to_owned(), true.into());
    job.output = Some(bench.dir.path().join("results").display().to_string());
    job.tensorboard = true;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Completed, Some(0)),
        "{record:?}"
    );
    let ways: Vec<_> = record
        .transitions
        .iter()
        .map(|transition| transition.status)
        .collect();
    use Secondary::{Completed, Downloading, Starting, Training, Uploading};
    assert_eq!(ways, [Starting, Downloading, Training, Uploading, Completed]);
    assert_eq!(bench.store.get(&record.name).unwrap(), record);

    let values: Vec<_> = record
        .metrics
        .iter()
        .map(|metric| (metric.name.as_str(), metric.value))
        .collect();
    assert_eq!(values, [("loss", 2.5), ("train:error", 0.25)]);
    let history = fs::read_to_string(bench.store.path(&record.name).join("metrics.jsonl")).unwrap();
    assert_eq!(history.lines().count(), 3, "{history}");
    let events = stokehold_diagnose::events::found(&bench.store.path(&record.name));
    let events = fs::read(&events[0]).unwrap();
    let count = |name: &[u8]| events.windows(name.len()).filter(|part| *part == name).count();
    assert_eq!((count(b"loss"), count(b"train:error")), (2, 1));
    let printed = bench.printed();
    assert!(
        printed.contains(&"algo-1 out --lr 0.1 -x True".to_owned()),
        "{printed:?}"
    );
    assert!(
        printed.contains(&"algo-1 err Train_error=0.25;".to_owned()),
        "{printed:?}"
    );
    let (log, end) = bench.store.log(&record.name, 0).unwrap();
    let stored: Vec<_> = log
        .lines()
        .map(|line| Line::parse(line).unwrap())
        .map(|line| format!("{} {} {}", line.host, line.stream, line.text))
        .collect();
    assert_eq!(stored, printed);
    assert_eq!(bench.store.log(&record.name, end).unwrap(), (String::new(), end));

    let base = bench.base(&record, "algo-1");
    assert_eq!(
        fs::read_to_string(base.join("code/where.txt")).unwrap().trim(),
        base.join("code").to_str().unwrap()
    );
    assert!(base.join("output/success").exists());
    let model = unpacked(record.model.as_deref().unwrap().as_ref());
    assert!(
        model.contains(&("model.pt".to_owned(), "weights\n".to_owned())),
        "{model:?}"
    );
    assert!(
        model.iter().any(|(name, _)| name == "code/a.py") && !model.iter().any(|(name, _)| name == "pipe")
    );
    assert!(record.model.unwrap().starts_with(job.output.as_deref().unwrap()));
    assert_eq!(
        unpacked(record.output.as_deref().unwrap().as_ref())[0].0,
        "eval.json"
    );

    bench.store.remove(&record.name).unwrap();
    assert!(matches!(
        bench.store.get(&record.name),
        Err(JobError::NoSuchJob { .. })
    ));
}

#[test]
fn a_script_that_fails_says_why() {
    let bench = Bench::new();
    let long = "é".repeat(2000);
    for (script, code, reason) in [
        (
            "echo 'no such column' >&2; exit 3".to_owned(),
            3,
            "algo-1 ended with exit code 3: no such column".to_owned(),
        ),
        (
            format!("printf '%s' '{long}' > $SM_OUTPUT_DIR/failure; exit 1"),
            1,
            "é".repeat(1024),
        ),
        (
            "kill -9 $$".to_owned(),
            137,
            "algo-1 ended with exit code 137 (killed; most often".to_owned(),
        ),
        (
            "kill -SEGV $$".to_owned(),
            139,
            "algo-1 ended with exit code 139".to_owned(),
        ),
    ] {
        let record = bench.run(&bench.job("run.sh", &script));
        assert_eq!(
            (record.status, record.exit_code),
            (Status::Failed, Some(code)),
            "{record:?}"
        );
        let found = record.failure_reason.unwrap();
        assert!(
            found.starts_with(&reason) && found.chars().count() <= 1024,
            "{found}"
        );
        assert!(
            bench
                .base(&record_of(&bench), "algo-1")
                .join("output/failure")
                .exists()
        );
    }
    let mut job = bench.job("run.sh", "true");
    job.entry_point = stokehold_jobs::EntryPoint::parse("missing.py").unwrap();
    let refused = bench.store.create(&job).unwrap_err();
    assert!(
        refused.is_input() && refused.to_string().contains("missing.py is not in"),
        "{refused}"
    );
}

fn record_of(bench: &Bench) -> stokehold_jobs::Record {
    bench.store.list().unwrap().pop().unwrap()
}

#[test]
fn stopping_asks_and_then_insists() {
    let bench = Bench::new();
    let polite =
        "trap 'echo saving; echo w > $SM_MODEL_DIR/m; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    for (script, code, saves) in [(polite, 0, true), (deaf, 137, false)] {
        let name = bench.store.create(&bench.job("run.sh", script)).unwrap();
        let claim = bench.store.claim(&name).unwrap();
        assert!(
            matches!(bench.store.claim(&name), Err(JobError::Input(reason)) if reason.contains("another process"))
        );
        let record = thread::scope(|scope| {
            let running = scope.spawn(|| {
                run(claim, &AtomicBool::new(false), &|news| {
                    if matches!(news, News::Line(line) if line.text == "ready") {
                        bench.store.stop(&name).unwrap();
                    }
                })
                .unwrap()
            });
            assert!(bench.store.remove(&name).is_err());
            running.join().unwrap()
        });
        assert_eq!(
            (record.status, record.secondary),
            (Status::Stopped, Secondary::Stopped),
            "{record:?}"
        );
        assert_eq!((record.exit_code, record.model.is_some()), (Some(code), saves));
        assert!(record.failure_reason.is_none());
    }
}

#[test]
fn a_jobs_time_is_limited() {
    let bench = Bench::new();
    let mut job = bench.job("run.sh", "sleep 600 & sleep 600");
    job.max_run_seconds = 1;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.secondary),
        (Status::Stopped, Secondary::MaxRuntimeExceeded)
    );
}

#[test]
fn what_a_script_leaves_running_does_not_hold_its_job() {
    let bench = Bench::new();
    // One stays in the group, one leaves it; both hold the pipes open.
    let record = bench.run(&bench.job("run.sh", "sleep 600 & setsid sleep 90 & echo done"));
    assert_eq!(record.status, Status::Completed);
    assert!(
        record.training_ended.unwrap() - record.training_started.unwrap() < 60.0,
        "{record:?}"
    );
}

/// This test runs itself in another process, and kills that.
#[test]
fn a_runner_that_is_killed_leaves_the_truth_and_a_job_that_can_be_resumed() {
    if let Ok(root) = std::env::var("STOKEHOLD_TEST_RUNNER") {
        let store = stokehold_jobs::Store::new(root.as_ref()).unwrap();
        run(store.claim("victim").unwrap(), &AtomicBool::new(false), &|_| {}).unwrap();
        return;
    }
    let bench = Bench::new();
    let script = "c=$SAGEMAKER_BASE_DIR/checkpoints/1; [ -e $c ] && exit 0; touch $c; echo $$; sleep 60";
    let mut job = bench.job("run.sh", script);
    job.name = Some("victim".to_owned());
    bench.store.create(&job).unwrap();
    let mut runner = Command::new(std::env::current_exe().unwrap())
        .args(["a_runner_that_is_killed", "--nocapture"])
        .env("STOKEHOLD_TEST_RUNNER", bench.store.root())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let script = loop {
        let record = bench.store.get("victim").unwrap();
        if bench.base(&record, "algo-1").join("checkpoints/1").exists() && !record.processes.is_empty() {
            assert_eq!(
                (record.status, record.secondary),
                (Status::InProgress, Secondary::Training)
            );
            break record.processes[0].clone();
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "the runner did not come to its script: {record:?}"
        );
        thread::sleep(Duration::from_millis(20));
    };
    runner.kill().unwrap();
    runner.wait().unwrap();
    let record = bench.store.get("victim").unwrap();
    assert_eq!(record.status, Status::Failed);
    assert!(
        record
            .failure_reason
            .as_ref()
            .unwrap()
            .contains("the runner of this job died while it was Training")
    );
    assert!(record.runner_died);
    let gone = Instant::now();
    while script.is_alive() && gone.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!script.is_alive(), "the script outlived its job");
    let record = bench.run_again(bench.store.resume("victim").unwrap());
    assert_eq!((record.status, record.failure_reason), (Status::Completed, None));
    assert!(!record.runner_died);
    assert!(bench.store.resume("victim").is_err());

    // A script that says the same died by itself.
    let words = "InternalServerError: the runner of this job died while it was Training";
    let job = bench.job(
        "run.sh",
        &format!("echo '{words}' > $SM_OUTPUT_DIR/failure; exit 1"),
    );
    let record = bench.run(&job);
    assert_eq!(record.failure_reason.as_deref(), Some(words));
    assert!(!bench.store.get(&record.name).unwrap().runner_died);
}

#[test]
fn a_runner_that_could_not_write_the_state_has_said_why() {
    let bench = Bench::new();
    for (kept, says) in [
        (
            "",
            "the runner of this job gave up while it was Starting: the disk was full",
        ),
        (
            "state.json: read-only",
            "gave up while it was Starting: state.json: read-only",
        ),
    ] {
        let name = bench.store.create(&bench.job("run.sh", "true")).unwrap();
        drop(bench.store.claim(&name).unwrap());
        fs::write(bench.store.path(&name).join("gave-up"), kept).unwrap();
        for record in [bench.store.look(&name).unwrap(), bench.store.get(&name).unwrap()] {
            let reason = record.failure_reason.unwrap();
            assert!(reason.contains(says) && record.runner_died, "{reason}");
        }
        let record = bench.run_again(bench.store.resume(&name).unwrap());
        assert_eq!((record.status, record.failure_reason), (Status::Completed, None));
    }
}

#[test]
fn every_moment_of_a_state_is_readable() {
    let bench = Bench::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::SeqCst) {
                for record in bench.store.list().unwrap() {
                    assert!(record.failure_reason.is_none(), "{record:?}");
                    looks += 1;
                }
            }
            looks
        });
        for _ in 0..5 {
            bench.run(&bench.job("run.sh", "true"));
        }
        over.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 5);
    });
    assert!(
        bench
            .store
            .list()
            .unwrap()
            .iter()
            .all(|record| record.status == Status::Completed)
    );
}

#[test]
fn instances_have_hosts_and_cores_of_their_own_and_fall_together() {
    let bench = Bench::new();
    let script = "echo $SM_CURRENT_HOST $SM_NUM_CPUS $(grep Cpus_allowed_list /proc/self/status | cut -f2); \
                  echo $SM_CURRENT_HOST > $SM_MODEL_DIR/$SM_CURRENT_HOST";
    let mut job = bench.job("run.sh", script);
    job.instances = 2;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.processes.len() <= 2),
        (Status::Completed, true),
        "{record:?}"
    );
    let mut printed = bench.printed();
    printed.sort();
    let words: Vec<Vec<&str>> = printed.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!((words[0][2], words[1][2]), ("algo-1", "algo-2"), "{printed:?}");
    if thread::available_parallelism().unwrap().get() > 1 {
        assert_ne!(words[0][4], words[1][4], "{printed:?}");
    }
    let names: Vec<_> = unpacked(record.model.as_deref().unwrap().as_ref())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["algo-1", "algo-2"]);

    job = bench.job("run.sh", "[ $SM_CURRENT_HOST = algo-2 ] && exit 7; sleep 60");
    job.instances = 2;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(7)),
        "{record:?}"
    );
    assert_eq!(
        record.failure_reason.as_deref(),
        Some("algo-2 ended with exit code 7")
    );
}

#[test]
fn torch_starts_a_gloo_job_of_two() {
    let Some(python) = stokehold_untested::needs::torch() else {
        return;
    };
    let bench = Bench::new();
    // It leaves without torch's own end, in which gloo aborts now and then.
    let script = "import os, torch, torch.distributed as dist\n\
        dist.init_process_group('gloo')\n\
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))\n\
        torch.nn.init.ones_(model.module.weight)\n\
        model(torch.full((1, 1), float(dist.get_rank()))).sum().backward()\n\
        print('grad=%g' % model.module.weight.grad.item(), 'of', dist.get_world_size(), os.environ['SM_CURRENT_HOST'], flush=True)\n\
        dist.barrier()\n\
        os._exit(0)\n";
    let mut job = bench.job("train.py", script);
    job.python = python;
    job.instances = 2;
    job.processes_per_host = Some(1);
    job.distribution = Distribution::Torch;
    job.max_run_seconds = 300;
    let record = bench.run(&job);
    let printed = bench.printed();
    assert_eq!(record.status, Status::Completed, "{record:?} {printed:?}");
    // The mean of the gradients 0 and 1, on both.
    for host in ["algo-1", "algo-2"] {
        assert!(
            printed.contains(&format!("{host} out grad=0.5 of 2 {host}")),
            "{printed:?}"
        );
    }
}

#[test]
fn a_name_is_taken_once() {
    let bench = Bench::new();
    let mut named = bench.job("run.sh", "true");
    named.name = Some("twice".to_owned());
    bench.store.create(&named).unwrap();
    assert!(
        bench
            .store
            .create(&named)
            .unwrap_err()
            .to_string()
            .contains("already")
    );
}
