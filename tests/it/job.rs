//! `stokehold job`: what a terminal and a program see of jobs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stokehold_untested::until;

use serde_json::{Value, json};
use stokehold_s3_server::Server;
use stokehold_untested::needs::{can_mount, has};
use stokehold_untested::skip;
use tempfile::TempDir;

/// A folder with sources and jobs of its own.
pub(crate) struct Jobs {
    dir: TempDir,
}

/// Exit code, standard output, standard error.
pub(crate) type Ended = (Option<i32>, String, String);

impl Jobs {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// `stokehold job ..` in the folder.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        // A runner of tests may ignore signals, and so would whatever it starts.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_stokehold"), "job"]);
        command.args(words).env("STOKEHOLD_JOBS", self.path("jobs"));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn job(&self, words: &[&str]) -> Ended {
        ended(&mut self.command(words))
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let (code, out, err) = self.job(words);
        assert_eq!(code, Some(0), "{words:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }

    pub(crate) fn record(&self, name: &str) -> Value {
        self.json(&["show", name, "--json"])["record"].clone()
    }

    /// Starts a job in the foreground, whose script says `ready`.
    pub(crate) fn ready(&self, words: &[&str]) -> Child {
        ready(&mut self.command(words))
    }
}

fn ready(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "[algo-1] ready\n");
    // What else it prints is in its log.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    child
}

pub(crate) fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

const FILE: &str = "entry-point = \"train.sh\"\nsource-dir = \"src\"\nstop-seconds = 60\n\
    [hyperparameters]\nlr = 0.1\nepochs = 3\n\
    [environment]\nWANDB_API_KEY = \"s3cret\"\nMODE = \"file\"\n\
    [[metrics]]\nname = \"loss\"\nregex = \"train-loss: ([0-9.]+)\"\n";

#[test]
fn a_job_file_runs_and_is_looked_at() {
    let jobs = Jobs::new();
    jobs.write("job.toml", FILE);
    jobs.write(
        "src/train.sh",
        "echo \"$@\" $MODE; echo 'train-loss: 0.5'; echo careful >&2; echo w > $SM_MODEL_DIR/w",
    );
    let words = [
        "run",
        "job.toml",
        "--name",
        "first",
        "--hyperparameter",
        "lr=0.2",
        "--environment",
        "MODE=flag",
    ];
    let (code, out, err) = jobs.job(&words);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(
        out,
        "[algo-1] --epochs 3 --lr 0.2 flag\n[algo-1] train-loss: 0.5\n"
    );
    assert!(
        err.contains("[algo-1] careful\n") && err.contains("job first Completed"),
        "{err}"
    );

    let record = jobs.record("first");
    assert_eq!(
        (&record["status"], &record["exit_code"]),
        (&"Completed".into(), &0.into())
    );
    assert_eq!(record["metrics"][0]["value"], 0.5);
    assert!(Path::new(record["model"].as_str().unwrap()).exists());
    let (_, shown, _) = jobs.job(&["show", "first"]);
    for said in [
        "Completed",
        "loss=0.5",
        "train.sh",
        "--epochs 3 --lr 0.2",
        "model.tar.gz",
        "(hidden)",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    let (_, json, _) = jobs.job(&["show", "first", "--json"]);
    assert!(!shown.contains("s3cret") && !json.contains("s3cret"));
    let asked = fs::metadata(jobs.path("jobs/first/job.json")).unwrap();
    assert_eq!(asked.permissions().mode() & 0o777, 0o600);

    let (code, out, err) = jobs.job(&["logs", "first", "--host", "algo-1"]);
    assert_eq!((code, out.lines().count()), (Some(0), 2));
    assert_eq!(err, "[algo-1] careful\n");
    let (code, _, err) = jobs.job(&["logs", "first", "--host", "algo-2"]);
    assert!(code == Some(2) && err.contains("it has algo-1"), "{err}");

    // The same again, for a program; without a name, one is made.
    let second = jobs.json(&["run", "job.toml", "--json"]);
    assert_eq!(second["status"], "Completed");
    let name = second["name"].as_str().unwrap();
    assert!(name.starts_with("train-"), "{name}");
    assert_eq!(jobs.json(&["wait", name, "--json"]), second);
    let listed = jobs.json(&["list", "--json"]);
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", name]);
    let (_, table, _) = jobs.job(&["list"]);
    assert!(
        table.lines().count() == 3 && table.contains("loss=0.5"),
        "{table}"
    );
    // One that cannot be read does not hide the others.
    jobs.write("jobs/odd/state.json", "{}");
    let (code, table, err) = jobs.job(&["list"]);
    assert!(
        code == Some(1) && table.lines().count() == 3 && err.contains("odd/state.json"),
        "{err}"
    );
    fs::remove_dir_all(jobs.path("jobs/odd")).unwrap();

    assert_eq!(jobs.job(&["rm", "first", name]).0, Some(0));
    assert_eq!(jobs.json(&["list", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn the_exit_code_says_how_it_ended() {
    let jobs = Jobs::new();
    jobs.write("fails.sh", "echo 'no such column' >&2; exit 3");
    jobs.write("long.sh", "exec sleep 100");
    let (code, _, err) = jobs.job(&["run", "--entry-point", "fails.sh", "--name", "fails"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("job fails Failed: algo-1 ended with exit code 3: no such column"),
        "{err}"
    );
    assert_eq!(jobs.job(&["wait", "fails"]).0, Some(1));
    let (code, _, err) = jobs.job(&["run", "--entry-point", "long.sh", "--max-run", "1"]);
    assert!(
        code == Some(1) && err.contains("its time was over"),
        "{code:?} {err}"
    );
}

#[test]
fn ctrl_c_stops_a_job_and_twice_kills_its_script() {
    let jobs = Jobs::new();
    jobs.write(
        "polite.sh",
        "trap 'echo saving; echo w > $SM_MODEL_DIR/m; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
    );
    jobs.write(
        "deaf.sh",
        "trap '' TERM; echo ready; while :; do sleep 0.05; done",
    );
    jobs.write(
        "deaf.toml",
        "entry-point = \"deaf.sh\"\nstop-seconds = 100000\nname = \"deaf\"\n",
    );
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut child = jobs.ready(&[
            "run",
            "--entry-point",
            "polite.sh",
            "--name",
            &format!("polite{signal}"),
        ]);
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        let record = jobs.record(&format!("polite{signal}"));
        assert_eq!(
            (&record["status"], &record["exit_code"]),
            (&"Stopped".into(), &0.into())
        );
        assert!(record["model"].is_string(), "it had its time: {record}");
    }

    let mut child = jobs.ready(&["run", "deaf.toml"]);
    send("-INT", &child);
    until("the first Ctrl-C", || jobs.record("deaf")["status"] == "Stopping");
    assert!(child.try_wait().unwrap().is_none());
    send("-INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let record = jobs.record("deaf");
    assert_eq!(
        (&record["status"], &record["exit_code"]),
        (&"Stopped".into(), &137.into())
    );
}

#[test]
fn a_job_that_is_to_ignore_its_terminals_end_does() {
    let jobs = Jobs::new();
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done";
    jobs.write("waits.sh", script);
    let mut command = Command::new("env");
    command.args([
        "--ignore-signal=HUP",
        env!("CARGO_BIN_EXE_stokehold"),
        "job",
        "run",
    ]);
    command.args(["--entry-point", "waits.sh", "--name", "waits"]);
    command
        .env("STOKEHOLD_JOBS", jobs.path("jobs"))
        .current_dir(jobs.dir.path());
    let mut child = ready(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap();
    // Bit 0 is SIGHUP, bit 1 is SIGINT.
    assert_eq!(u64::from_str_radix(caught.trim(), 16).unwrap() & 3, 2, "{caught}");
    send("-HUP", &child);
    fs::write(jobs.path("jobs/waits/algo-1/code/go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(jobs.record("waits")["status"], "Completed");
}

#[test]
fn a_job_in_the_background_survives_its_terminal_and_is_stopped_from_elsewhere() {
    let jobs = Jobs::new();
    let script = "echo ready; echo loss=0.5; while [ ! -e go ]; do sleep 0.05; done; echo went";
    jobs.write("waits.sh", script);
    let mut command = jobs.command(&["run", "--entry-point", "waits.sh", "--name", "waits", "--detach"]);
    command.args(["--metric", "loss=loss=([0-9.]+)"]);
    let terminal = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let group = terminal.id();
    let output = terminal.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(0), &b"waits\n"[..])
    );
    // No one may be left in the group, which is what is wanted.
    let _ = Command::new("kill")
        .args(["-HUP", "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status();

    until("its number", || {
        jobs.record("waits")["metrics"][0]["value"] == 0.5
    });
    let (code, _, err) = jobs.job(&["wait", "waits", "--timeout", "1ms"]);
    assert!(code == Some(1) && err.contains("has not ended"), "{err}");
    let (code, _, err) = jobs.job(&["run", "--resume", "waits"]);
    assert!(code == Some(2) && err.contains("another process"), "{err}");
    let (code, _, err) = jobs.job(&["run", "--resume", "waits", "--detach"]);
    assert!(code == Some(2) && err.contains("another process"), "{err}");
    let (code, _, err) = jobs.job(&["rm", "waits"]);
    assert!(code == Some(2) && err.contains("stop it first"), "{err}");
    let mut follow = jobs.ready(&["logs", "waits", "-f"]);
    until("its start", || {
        jobs.path("jobs/waits/algo-1/code/waits.sh").exists()
    });
    fs::write(jobs.path("jobs/waits/algo-1/code/go"), "").unwrap();
    assert_eq!(follow.wait().unwrap().code(), Some(0));
    let (code, out, _) = jobs.job(&["wait", "waits"]);
    assert_eq!((code, out.lines().next()), (Some(0), Some("job waits Completed")));
    assert!(jobs.job(&["logs", "waits"]).1.contains("[algo-1] went"));

    jobs.write(
        "deaf.sh",
        "trap '' TERM; echo ready; while :; do sleep 0.05; done",
    );
    assert_eq!(
        jobs.job(&["run", "--entry-point", "deaf.sh", "--name", "deaf", "--detach"])
            .0,
        Some(0)
    );
    until("its line", || jobs.job(&["logs", "deaf"]).1.contains("ready"));
    assert_eq!(jobs.job(&["stop", "deaf"]).0, Some(0));
    until("the stop", || jobs.record("deaf")["status"] == "Stopping");
    assert_eq!(jobs.job(&["stop", "deaf", "--now"]).0, Some(0));
    assert_eq!(jobs.job(&["wait", "deaf"]).0, Some(130));
}

#[test]
fn a_job_that_failed_is_taken_up_again() {
    let jobs = Jobs::new();
    let script = "c=$SAGEMAKER_BASE_DIR/checkpoints/1; [ -e $c ] && exit 0; touch $c; exit 7";
    jobs.write("again.sh", script);
    for (name, how) in [("here", None), ("there", Some("--detach"))] {
        assert_eq!(
            jobs.job(&["run", "--entry-point", "again.sh", "--name", name]).0,
            Some(1)
        );
        let words: Vec<&str> = ["run", "--resume", name].into_iter().chain(how).collect();
        assert_eq!(jobs.job(&words).0, Some(0));
        assert_eq!(jobs.job(&["wait", name]).0, Some(0));
        let (code, _, err) = jobs.job(&words);
        assert!(code == Some(2) && err.contains("was completed"), "{err}");
    }
}

#[test]
fn bad_input_says_what_to_do_and_leaves_no_job() {
    let jobs = Jobs::new();
    jobs.write("train.sh", "true");
    jobs.write("bad.toml", "entry-point = \"train.sh\"\nlearning-rate = 1\n");
    jobs.write(
        "mode.toml",
        "entry-point = \"train.sh\"\n[channels]\nt = \"s3://b,mode=Fast\"\n",
    );
    let run =
        |option: &'static str, value: &'static str| vec!["run", "--entry-point", "train.sh", option, value];
    for (words, said) in [
        (vec!["run"], "Give a job file"),
        (vec!["run", "none.toml"], "none.toml"),
        (
            vec!["run", "bad.toml"],
            "bad.toml, line 2: unknown field `learning-rate`",
        ),
        (
            vec!["run", "mode.toml"],
            "mode.toml, line 3: mode=Fast: unknown variant",
        ),
        (vec!["run", "--entry-point", "none.sh"], "none.sh is not in"),
        (
            vec!["run", "--entry-point", "../train.sh"],
            "below the source folder",
        ),
        (run("--source-dir", "none"), "train.sh is not in"),
        (run("--hyperparameter", "lr"), "write NAME=VALUE"),
        (run("--channel", "train"), "write NAME=URI"),
        (run("--channel", "t=d,shuffle=1"), "shuffle is for mode=Pipe"),
        (run("--channel", "../t=d"), "no channel's name"),
        (run("--metric", "loss"), "NAME=REGEX"),
        (run("--metric", "loss=x"), "parentheses"),
        (run("--environment", "A"), "write NAME=VALUE"),
        (run("--max-run", "0"), "write seconds"),
        (run("--instances", "0"), "between 1 and"),
        (run("--distribution", "horovod"), "`torch`"),
        (run("--distribution", "torch"), "wants a .py file"),
        (run("--name", "a/b"), "no job's name"),
        (run("--resume", "x"), "cannot be used with"),
        (run("--output", "ftp://x"), "ftp:// is not known"),
        (vec!["show", "none"], "there is no job none"),
        (vec!["logs", "none"], "there is no job none"),
        (vec!["wait", "none"], "there is no job none"),
        (vec!["stop", "none"], "there is no job none"),
        (vec!["rm", "none"], "there is no job none"),
        (vec!["run", "--resume", "none"], "there is no job none"),
        (
            vec!["run", "--resume", "none", "--detach"],
            "there is no job none",
        ),
        (vec!["show", "../jobs"], "there is no job"),
        (vec!["init", "bad.toml"], "is there already"),
    ] {
        let (code, out, err) = jobs.job(&words);
        assert_eq!(code, Some(2), "{words:?}: {err}");
        assert!(out.is_empty() && err.contains(said), "{words:?}: {err}");
    }
    let left: Vec<_> = fs::read_dir(jobs.path("jobs"))
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_file_that_init_writes_can_be_run() {
    let jobs = Jobs::new();
    assert_eq!(jobs.job(&["init"]).0, Some(0));
    assert_eq!(jobs.job(&["init", "other.toml"]).0, Some(0));
    jobs.write("train.py", "import os\nprint(os.environ['SM_MODEL_DIR'])\n");
    let (code, out, err) = jobs.job(&["run", "job.toml"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.trim_end().ends_with("/algo-1/model"), "{out}");
}

/// A script that was written for SageMaker gets the same data in every mode, and makes the same model of it.
#[test]
fn the_example_runs_in_every_mode() {
    if !has("python3", "Python") {
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/job");
    let jobs = Jobs::new();
    let bucket = jobs.path("s3/bucket/train");
    fs::create_dir_all(&bucket).unwrap();
    for entry in fs::read_dir(example.join("data/train")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, bucket.join(path.file_name().unwrap())).unwrap();
    }
    let server = Server::start(&jobs.path("s3")).unwrap();
    let mut models = Vec::new();
    for (name, channel) in [
        ("dir", None),
        ("file", Some("train=s3://bucket/train")),
        ("pipe", Some("train=s3://bucket/train,mode=Pipe")),
        ("fastfile", Some("train=s3://bucket/train,mode=FastFile")),
        ("cache", Some("train=s3://bucket/train,mode=Cache")),
    ] {
        if ["fastfile", "cache"].contains(&name) && !can_mount() {
            continue;
        }
        let file = example.join("job.toml");
        let mut command = jobs.command(&["run", file.to_str().unwrap(), "--name", name]);
        command.env("STOKEHOLD_CACHE", jobs.path("cache"));
        for (variable, value) in server.settings() {
            command.args(["--environment", &format!("{variable}={value}")]);
        }
        let (code, out, err) =
            ended(command.args(channel.iter().flat_map(|channel| ["--channel", *channel])));
        assert_eq!(code, Some(0), "{name}: {out} {err}");
        assert!(
            out.contains("[algo-1] hyperparameters: {\"epochs\":5,\"lr\":0.1}"),
            "{out}"
        );
        let record = jobs.record(name);
        let metric = &record["metrics"][0];
        assert!(
            metric["name"] == "train:loss" && metric["value"].as_f64().unwrap() < 0.1,
            "{record}"
        );
        assert!(Path::new(record["report"].as_str().unwrap()).exists());
        let archive = record["model"].as_str().unwrap();
        let model = Command::new("tar")
            .args(["-xzOf", archive, "model.json"])
            .output()
            .unwrap();
        assert!(model.status.success());
        models.push(model.stdout);
    }
    assert!(models.iter().all(|model| model == &models[0]), "{models:?}");
}

/// Stokehold's own trainer, as a job's script here, and by the image's entry point on a folder as SageMaker's /opt/ml.
#[test]
fn the_trainer_runs_in_a_job_and_by_the_images_entry_point() {
    if !has("python3", "Python") {
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sagemaker/trainer");
    let program = Path::new(env!("CARGO_BIN_EXE_stokehold"));
    let mut folders = vec![program.parent().unwrap().to_owned()];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let path = std::env::join_paths(folders).unwrap();
    let jobs = Jobs::new();
    let data = jobs.path("data");
    let mut synth = Command::new(program);
    synth.args(["dataset", "synth"]).arg(&data);
    synth.args(["--images", "12", "--classes", "2", "--val-split", "0.34"]);
    assert_eq!(ended(&mut synth).0, Some(0));

    let file = fs::read_to_string(example.join("job.toml")).unwrap();
    let small = "batch_size = 4\nimage-size = 32\ndevice = \"cpu\"\nceiling-batches = 0\n";
    jobs.write("job.toml", &file.replace("batch-size = 32\n", small));
    jobs.write(
        "code/train.sh",
        &fs::read_to_string(example.join("code/train.sh")).unwrap(),
    );
    let mut command = jobs.command(&["run", "job.toml", "--name", "here"]);
    let (code, out, err) = ended(command.env("PATH", &path));
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(
        format!("{out}{err}").contains("there is no run to resume; starting it"),
        "{out} {err}"
    );
    let archive = jobs.record("here")["model"].as_str().unwrap().to_owned();
    let listed = ended(Command::new("tar").args(["-tzf", &archive]));
    assert!(listed.1.contains("model.safetensors"), "{listed:?}");

    // SageMaker has strings only, and tells its toolkit about code that this image does not use.
    let mut options = json!({
        "model": "\"resnet18\"", "epochs": "1", "batch_size": "4", "image-size": "32", "device": "cpu",
        "ceiling-batches": "0", "sagemaker_program": "\"train.sh\"", "sagemaker_submit_directory": "\"s3://bucket/source\"",
    });
    let run = |options: &Value| {
        let channel = json!({"TrainingInputMode": "File", "ContentType": "image/jpeg"});
        jobs.write("ml/input/config/hyperparameters.json", &options.to_string());
        let channels = json!({"train": channel, "val": channel});
        jobs.write("ml/input/config/inputdataconfig.json", &channels.to_string());
        let mut command = Command::new(example.join("train"));
        ended(
            command
                .env("SAGEMAKER_BASE_DIR", jobs.path("ml"))
                .env("PATH", &path),
        )
    };
    fs::create_dir_all(jobs.path("ml/input")).unwrap();
    std::os::unix::fs::symlink(&data, jobs.path("ml/input/data")).unwrap();
    let (code, out, err) = run(&options);
    assert_eq!(code, Some(0), "{out} {err}");
    for file in [
        "model/model.safetensors",
        "output/data/run/summary.json",
        "checkpoints/run",
    ] {
        assert!(jobs.path("ml").join(file).exists(), "{file}: {out} {err}");
    }
    options["learning-pace"] = json!("4");
    let (code, out, err) = run(&options);
    assert!(code == Some(2) && err.contains("--learning-pace"), "{out} {err}");
}

#[test]
fn mpirun_starts_a_process_an_instance() {
    if !has("mpirun", "Open MPI") {
        return;
    }
    let jobs = Jobs::new();
    jobs.write(
        "rank.sh",
        "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $SM_HP_LR, $1 $2",
    );
    let words = [
        "run",
        "--entry-point",
        "rank.sh",
        "--instances",
        "2",
        "--distribution",
        "mpi",
    ];
    let mut command = jobs.command(&words);
    command.args([
        "--processes-per-host",
        "1",
        "--hyperparameter",
        "lr=0.1",
        "--max-run",
        "300",
    ]);
    let (code, out, err) = ended(&mut command);
    assert_eq!(code, Some(0), "{out} {err}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "[algo-1] rank 0 of 2, 0.1, --lr 0.1",
            "[algo-1] rank 1 of 2, 0.1, --lr 0.1"
        ],
        "{err}"
    );
}

/// The two forms in which SageMaker's documents use its data parallel library. They leave without torch's own end, in which
/// gloo aborts now and then.
const SMDISTRIBUTED: [&str; 2] = [
    "import os, torch
import smdistributed.dataparallel.torch.distributed as dist
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
dist.init_process_group()
model = DDP(torch.nn.Linear(1, 1, bias=False))
torch.nn.init.ones_(model.module.weight)
model(torch.full((1, 1), float(dist.get_rank()))).sum().backward()
os.write(1, b'grad=%g of %d local %d\\n' % (model.module.weight.grad.item(), dist.get_world_size(), dist.get_local_rank()))
dist.barrier()
os._exit(0)
",
    "import os, torch, torch.distributed as dist
import smdistributed.dataparallel.torch.torch_smddp
dist.init_process_group(backend='smddp')
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
torch.nn.init.ones_(model.module.weight)
model(torch.full((1, 1), float(dist.get_rank()))).sum().backward()
os.write(1, b'grad=%g of %d local %s\\n' % (model.module.weight.grad.item(), dist.get_world_size(), os.environ['LOCAL_RANK'].encode()))
dist.barrier()
os._exit(0)
",
];

#[test]
fn scripts_of_sagemakers_data_parallel_library_run_unchanged() {
    let Some(python) = stokehold_untested::needs::torch() else {
        return;
    };
    for (form, script) in SMDISTRIBUTED.into_iter().enumerate() {
        let jobs = Jobs::new();
        jobs.write("train.py", script);
        let words = [
            "run",
            "--entry-point",
            "train.py",
            "--instances",
            "1",
            "--distribution",
            "smdistributed",
        ];
        let mut command = jobs.command(&words);
        command
            .args(["--processes-per-host", "2", "--max-run", "300", "--python"])
            .arg(&python);
        let (code, out, err) = ended(&mut command);
        assert_eq!(code, Some(0), "form {form}: {out} {err}");
        for rank in 0..2 {
            assert!(
                out.contains(&format!("grad=0.5 of 2 local {rank}")),
                "form {form}: {out} {err}"
            );
        }
        assert!(
            format!("{out}{err}").contains("smdistributed is a stand-in on torch.distributed"),
            "{out} {err}"
        );
    }
}

#[test]
fn torch_trains_on_two_instances() {
    let Some(python) = stokehold_untested::needs::torch() else {
        return;
    };
    let jobs = Jobs::new();
    // It leaves without torch's own end, in which gloo aborts now and then.
    let script = "import os, torch, torch.distributed as dist\n\
        dist.init_process_group('gloo')\n\
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))\n\
        torch.nn.init.ones_(model.module.weight)\n\
        model(torch.full((1, 1), float(dist.get_rank()))).sum().backward()\n\
        print('grad=%g' % model.module.weight.grad.item(), 'of', dist.get_world_size(), flush=True)\n\
        dist.barrier()\n\
        os._exit(0)\n";
    jobs.write("ddp.py", script);
    let words = [
        "run",
        "--entry-point",
        "ddp.py",
        "--instances",
        "2",
        "--distribution",
        "torch",
        "--name",
        "ddp",
    ];
    let mut command = jobs.command(&words);
    command.args([
        "--processes-per-host",
        "1",
        "--metric",
        "grad=grad=([0-9.]+)",
        "--max-run",
        "300",
    ]);
    let (code, out, err) = ended(command.arg("--python").arg(python));
    assert_eq!(code, Some(0), "{out} {err}");
    // The mean of the gradients 0 and 1, on both.
    for host in ["algo-1", "algo-2"] {
        assert!(out.contains(&format!("[{host}] grad=0.5 of 2\n")), "{out}");
        let (_, lines, _) = jobs.job(&["logs", "ddp", "--host", host]);
        assert_eq!(lines, format!("[{host}] grad=0.5 of 2\n"));
    }
    assert_eq!(jobs.record("ddp")["metrics"][0]["value"], 0.5);
}

#[test]
fn what_a_job_is_at_is_said_before_its_lines() {
    let jobs = Jobs::new();
    jobs.write("train.sh", "echo loss=1");
    let both = fs::File::create(jobs.path("both")).unwrap();
    let words = [
        "run",
        "--entry-point",
        "train.sh",
        "--name",
        "order",
        "--no-opt-ml",
    ];
    let status = jobs
        .command(&words)
        .stdout(both.try_clone().unwrap())
        .stderr(both)
        .status()
        .unwrap();
    assert!(status.success());
    let text = fs::read_to_string(jobs.path("both")).unwrap();
    let lines: Vec<&str> = text.lines().take(5).collect();
    assert_eq!(
        lines,
        [
            "job order Starting",
            "job order Downloading",
            "job order Training",
            "[algo-1] loss=1",
            "job order Uploading"
        ]
    );
}

/// A rule that fires stops the job, runs a command, or is only said.
#[test]
fn rules_act_while_a_job_runs() {
    let jobs = Jobs::new();
    // Seconds of work that no one has to wait for.
    jobs.write("train.sh", "echo loss=1.5; echo loss=nan; exec sleep 50");
    let settings = |name: &str, on_fire: &str| {
        format!(
            "name = \"{name}\"\nentry-point = \"train.sh\"\nopt-ml = false\n[profiler]\nrules = [\"training\"]\non-fire = {on_fire}\n\
             [[metrics]]\nname = \"loss\"\nregex = \"loss=(\\\\S+)\"\n"
        )
    };
    jobs.write("stop.toml", &settings("stop", "\"stop\""));
    let began = Instant::now();
    let (code, _, said) = jobs.job(&["run", "stop.toml"]);
    assert!(began.elapsed() < Duration::from_secs(40), "{said}");
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("rule NonFiniteLoss: loss is NaN"), "{said}");
    let record = jobs.json(&["show", "stop", "--json"]);
    let text = record.to_string();
    assert!(
        text.contains("stopped after") && text.contains("of at most"),
        "{text}"
    );
    let (_, out, _) = jobs.job(&["list"]);
    assert!(out.contains("Stopped (by a rule)"), "{out}");
    jobs.write("train.sh", "echo loss=1.5; echo loss=nan; sleep 3");
    jobs.write(
        "call.toml",
        &settings("call", "[\"sh\", \"-c\", \"echo $STOKEHOLD_RULE > fired\"]"),
    );
    let (code, _, said) = jobs.job(&["run", "call.toml"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read_to_string(jobs.path("fired")).unwrap(), "NonFiniteLoss\n");
    jobs.write("bad.toml", &settings("bad", "\"explode\""));
    let (code, _, said) = jobs.job(&["run", "bad.toml"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("'explode' is neither log nor stop"), "{said}");
}

/// On a disk of a few hundred kilobytes, in a mount namespace of this test's own.
#[test]
fn a_job_whose_disk_ran_full_says_so_afterwards() {
    let jobs = Jobs::new();
    fs::create_dir(jobs.path("jobs")).unwrap();
    jobs.write("run.sh", "cat /dev/zero > $SM_MODEL_DIR/x; exit 0");
    let script = format!(
        "mount -t tmpfs -o size=400k none jobs && {0} job run --entry-point run.sh --name full --no-opt-ml --no-profile; {0} job list; \
         rm -r jobs/full/algo-1/model; {0} job list",
        env!("CARGO_BIN_EXE_stokehold")
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    let (_, out, err) = ended(
        command
            .env("STOKEHOLD_JOBS", jobs.path("jobs"))
            .current_dir(jobs.dir.path()),
    );
    if err.contains("unshare failed") || err.contains("mount:") {
        return skip("this machine does not permit namespaces with mounts");
    }
    let told = |text: &str| text.contains("full") && text.contains("Failed") && !text.contains("died");
    assert!(told(&out), "{out} {err}");
    let (code, shown, _) = jobs.job(&["list"]);
    assert_eq!(
        (code, shown.contains("Failed")),
        (Some(0), false),
        "the disk went with the namespace"
    );
}
