//! kill -9 of the runner, of the script and of the S3 server, at moments that are drawn: no checkpoint that was said to be kept
//! is lost, the state is true, and the job comes to its end.
//!
//! `STOKEHOLD_TEST_KILLS` says how many moments of each; one is the default. The runner and the server are this test's own
//! program, started with another part to play.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stokehold_jobs::{Channel, Job, Record, Secondary, Status, Store, run};
use stokehold_s3_server::{ACCESS_KEY, SECRET_KEY, Server};

use crate::Bench;
use crate::checkpoints::contents;
use crate::front::Front;
use stokehold_untested::until;

/// Steps of the script; each writes a checkpoint and removes the one of eight steps before.
const STEPS: u64 = 12;

const SCRIPT: &str = "cd $SM_CHECKPOINT_DIR; [ $(cat $SM_CHANNEL_TRAIN/*.txt | wc -c) -eq 300000 ] || exit 9\n\
    n=$(ls | sed -n 's/^step-//p' | sort -n | tail -1); n=${n:-0}; echo from $n\n\
    while [ $n -lt 12 ]; do\n\
        n=$((n + 1)); seq $((n * 1000)) $((n * 1000 + 5000)) > .tmp; mv .tmp step-$n; rm -f step-$((n - 8)); sleep 0.3\n\
    done; echo $n > $SM_MODEL_DIR/steps";

/// What the script writes in a step.
fn checkpoint(step: u64) -> Vec<u8> {
    (step * 1000..=step * 1000 + 5000)
        .map(|n| format!("{n}\n"))
        .collect::<String>()
        .into_bytes()
}

const PART: &str = "STOKEHOLD_TEST_PART";

/// This program, with another part; it ends when its standard input does.
fn play(part: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kills::a_part_to_play", "--exact", "--nocapture"])
        .env(PART, part)
        .env("STOKEHOLD_TEST_FOLDER", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_part_to_play() {
    let Ok(part) = std::env::var(PART) else { return };
    let folder = std::env::var_os("STOKEHOLD_TEST_FOLDER").unwrap();
    // Nothing is left when the test is killed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if part == "server" {
        let server = Server::start(folder.as_ref()).unwrap();
        println!("listens at {}", server.address());
        loop {
            std::thread::park();
        }
    }
    let store = Store::new(folder.as_ref()).unwrap();
    let claim = match store.get("victim").unwrap().status.is_final() {
        true => store.resume("victim"),
        false => store.claim("victim"),
    };
    run(claim.unwrap(), &AtomicBool::new(false), &|_| {}).unwrap();
}

/// A server process, and where it listens.
fn server(folder: &Path) -> (Child, SocketAddr) {
    let mut child = play("server", folder);
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let address = lines.find_map(|line| line.split_once("listens at ")?.1.parse().ok());
    (child, address.expect("the server says where it listens"))
}

struct Scene {
    bench: Bench,
    front: Front,
    server: Child,
}

impl Scene {
    fn new() -> Self {
        let bench = Bench::new();
        let root = bench.dir.path().join("s3");
        fs::create_dir_all(root.join("bucket/train")).unwrap();
        for number in 0..30 {
            fs::write(
                root.join(format!("bucket/train/{number}.txt")),
                "x".repeat(10_000),
            )
            .unwrap();
        }
        let (server, address) = server(&root);
        let front = Front::new(address);
        let mut job: Job = bench.job("run.sh", SCRIPT);
        job.environment.extend(front.settings([
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ]));
        job.channels.insert(
            "train".to_owned(),
            Channel::parse("s3://bucket/train,mode=File").unwrap(),
        );
        job.checkpoints = Some("s3://bucket/kept".to_owned());
        job.name = Some("victim".to_owned());
        (job.max_run_seconds, job.stop_seconds) = (300, 60);
        bench.store.create(&job).unwrap();
        Self { bench, front, server }
    }

    fn record(&self) -> Record {
        self.bench.store.get("victim").unwrap()
    }

    fn place(&self) -> BTreeMap<String, Vec<u8>> {
        contents(&self.bench.dir.path().join("s3/bucket/kept"))
    }

    fn local(&self) -> BTreeMap<String, Vec<u8>> {
        contents(&self.bench.base(&self.record(), "algo-1").join("checkpoints"))
    }

    /// The steps whose checkpoints the log says are kept, and the numbers that the script said it went on from.
    fn said(&self) -> (BTreeSet<u64>, Vec<u64>) {
        let (log, _) = self.bench.store.log("victim", 0).unwrap();
        let mut kept = BTreeSet::new();
        let mut from = Vec::new();
        for line in log.lines() {
            let text = line.splitn(4, ' ').last().unwrap_or_default();
            if let Some(rest) = text.strip_prefix("checkpoints: kept step-") {
                kept.insert(rest.split(' ').next().unwrap().parse().unwrap());
            } else if let Some(rest) = text.strip_prefix("checkpoints: removed step-") {
                kept.remove(&rest.parse().unwrap());
            } else if let Some(rest) = text.strip_prefix("from ") {
                from.push(rest.parse().unwrap());
            }
        }
        (kept, from)
    }

    /// Every file at the place is whole, and what was said to be kept is there, if the script has not removed it since. The
    /// latest step that was kept.
    fn check_the_place(&self) -> u64 {
        let (place, local) = (self.place(), self.local());
        for (name, bytes) in &place {
            let step = name
                .strip_prefix("step-")
                .unwrap_or_else(|| panic!("{name} was never whole"));
            assert!(
                *bytes == checkpoint(step.parse().unwrap()),
                "{name} is not what was written"
            );
        }
        let (kept, _) = self.said();
        for step in &kept {
            let name = format!("step-{step}");
            assert!(
                place.contains_key(&name) || !local.contains_key(&name),
                "{name} is lost; there are {:?}",
                place.keys()
            );
        }
        let latest = kept.last().copied().unwrap_or_default();
        let there: Option<u64> = place
            .keys()
            .filter_map(|name| name.strip_prefix("step-")?.parse().ok())
            .max();
        assert!(
            there.unwrap_or_default() >= latest,
            "{latest} was kept, and {there:?} is the latest there"
        );
        latest
    }

    /// Runs the job again where that is needed, to its end.
    fn finish(&self, kept: u64) {
        if !self.record().status.is_final() || self.record().status == Status::Failed {
            let starts = self.said().1.len();
            assert!(play("runner", self.bench.store.root()).wait_with_input());
            let (_, from) = self.said();
            assert!(
                from.len() > starts && from[starts] >= kept,
                "went on from {from:?}, and {kept} was kept"
            );
        }
        let record = self.record();
        assert_eq!(record.status, Status::Completed, "{record:?}");
        // A removal that a kill forestalled is one that the script, taken up again, knows nothing of.
        let place = self.place();
        assert!(
            place == self.local(),
            "{:?} and {:?}",
            place.keys(),
            self.local().keys()
        );
        assert!(
            (5..=STEPS).all(|step| place.contains_key(&format!("step-{step}"))),
            "{:?}",
            place.keys()
        );
        self.check_the_place();
        assert_eq!(
            crate::unpacked(record.model.unwrap().as_ref())[0].1,
            format!("{STEPS}\n")
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

trait Player {
    fn wait_with_input(self) -> bool;
}

impl Player for Child {
    /// Waits for its end with its standard input open.
    fn wait_with_input(mut self) -> bool {
        let _input = self.stdin.take();
        self.wait().unwrap().success()
    }
}

/// The moments of one victim, in milliseconds.
fn moments(victim: u64, longest: u64) -> Vec<u64> {
    let kills = std::env::var("STOKEHOLD_TEST_KILLS").map_or(1, |kills| kills.parse().unwrap());
    let draw = |kill: u64| stokehold_base::random::mix(victim * 1000 + kill) % longest;
    (0..kills).map(draw).collect()
}

fn sleep(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn a_runner_that_is_killed_loses_no_checkpoint() {
    for moment in moments(1, 5000) {
        let scene = Scene::new();
        let mut runner = play("runner", scene.bench.store.root());
        sleep(moment);
        runner.kill().unwrap();
        runner.wait().unwrap();
        let record = scene.record();
        match record.status {
            // It came too late, or so early that no one had the job yet.
            Status::Completed => {}
            Status::InProgress => assert!(
                record.runner.is_none() && record.secondary == Secondary::Starting,
                "{record:?}"
            ),
            _ => {
                assert_eq!(record.status, Status::Failed, "{record:?}");
                assert!(
                    record
                        .failure_reason
                        .as_ref()
                        .unwrap()
                        .contains("the runner of this job died"),
                    "{record:?}"
                );
            }
        }
        until("its script has ended", || {
            !record.processes.iter().any(stokehold_jobs::Process::is_alive)
        });
        let kept = scene.check_the_place();
        println!(
            "{moment} ms: {:?} after {:?}, step {kept} kept",
            record.status,
            record.transitions.last().map(|last| last.status)
        );
        scene.finish(kept);
    }
}

#[test]
fn a_script_that_is_killed_loses_no_checkpoint() {
    for moment in moments(2, 4000) {
        let scene = Scene::new();
        let runner = play("runner", scene.bench.store.root());
        until("the script runs", || {
            let record = scene.record();
            !record.processes.is_empty() || record.status.is_final()
        });
        sleep(moment);
        if let Some(script) = scene
            .record()
            .processes
            .first()
            .filter(|script| script.is_alive())
        {
            // It may end in this moment, which is one of the moments.
            let _ = Command::new("kill")
                .args(["-9", &script.pid.to_string()])
                .stderr(Stdio::null())
                .status()
                .unwrap();
        }
        assert!(runner.wait_with_input());
        let record = scene.record();
        if record.status != Status::Completed {
            assert_eq!(
                (record.status, record.exit_code),
                (Status::Failed, Some(137)),
                "{record:?}"
            );
        }
        let kept = scene.check_the_place();
        println!("{moment} ms: {:?}, step {kept} kept", record.status);
        scene.finish(kept);
    }
}

#[test]
fn a_server_that_is_killed_loses_no_checkpoint() {
    for moment in moments(3, 5000) {
        let mut scene = Scene::new();
        let runner = play("runner", scene.bench.store.root());
        sleep(moment);
        scene.server.kill().unwrap();
        scene.server.wait().unwrap();
        scene.front.cut();
        let during = scene.record().secondary;
        scene.check_the_place();
        sleep(moment % 1000);
        let address;
        (scene.server, address) = server(&scene.bench.dir.path().join("s3"));
        scene.front.lead_to(address);
        assert!(runner.wait_with_input());
        println!("{moment} ms: killed during {during:?}");
        let kept = scene.check_the_place();
        assert_eq!(scene.record().status, Status::Completed, "{:?}", scene.record());
        scene.finish(kept);
    }
}
