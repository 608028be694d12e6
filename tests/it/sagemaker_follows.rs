//! Following a job on SageMaker and waiting for it: Ctrl-C, and a token that expires. A server of the test is SageMaker.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stub::{self, Reply, Stub};

const JOB: &str = r#"
name = "flowers-1"
entry-point = "train.py"
source-dir = "s3://bucket/code/sourcedir.tar.gz"
output = "s3://bucket/out"
instance-type = "ml.g5.xlarge"
[sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
region = "eu-west-1"
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1"
"#;

/// Longer than a program needs to ask twice, and far shorter than a test may hang.
const LIMIT: Duration = Duration::from_secs(60);

fn described(secondary: &str) -> Reply {
    let status = match secondary {
        "Training" => "InProgress",
        other => other,
    };
    Reply::Json(
        200,
        json!({
            "TrainingJobName": "flowers-1",
            "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1",
            "TrainingJobStatus": status,
            "SecondaryStatus": secondary,
            "SecondaryStatusTransitions": [{"Status": secondary, "StartTime": 1.6e9}],
            "CreationTime": 1.6e9,
        }),
    )
}

/// SageMaker with a job that trains for ever, or, if it `stops`, until it is told to stop.
fn sagemaker(stops: bool) -> Stub {
    let (is_created, is_told) = (AtomicBool::new(false), AtomicBool::new(false));
    Stub::start(move |request, _| match request.operation.as_str() {
        "CreateTrainingJob" => {
            is_created.store(true, Ordering::SeqCst);
            Reply::Json(
                200,
                json!({"TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1"}),
            )
        }
        "StopTrainingJob" => {
            is_told.store(true, Ordering::SeqCst);
            Reply::Json(200, Value::Null)
        }
        "DescribeTrainingJob"
            if !is_created.load(Ordering::SeqCst) && request.body["TrainingJobName"] == "flowers-1" =>
        {
            Reply::Json(
                400,
                json!({"__type": "ValidationException", "message": "Requested resource not found."}),
            )
        }
        "DescribeTrainingJob" if stops && is_told.load(Ordering::SeqCst) => described("Stopped"),
        "DescribeTrainingJob" => described("Training"),
        "DescribeLogStreams" => Reply::Json(200, json!({"logStreams": []})),
        other => panic!("{other} {}", request.body),
    })
}

/// A command that runs, and what it says on standard error.
struct Running {
    child: Child,
    _dir: TempDir,
    heard: Arc<std::sync::Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(stub: &Stub, args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("job.toml"), JOB).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        for (name, value) in stub::options(&stub.address, LIMIT).settings {
            command.env(name, value);
        }
        let mut child = command
            .current_dir(dir.path())
            .args(["job"])
            .args(args)
            .args(["--on", "sagemaker"])
            .env("AWS_REGION", "eu-west-1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let heard = Arc::<std::sync::Mutex<String>>::default();
        let (mut errors, all) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&heard));
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|read| read > 0) {
                all.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
            let _ = errors.read(&mut [0]);
        });
        Self {
            child,
            _dir: dir,
            heard,
            reader: Some(reader),
        }
    }

    fn interrupt(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
    }

    /// Its exit code and what it said.
    fn ended(mut self) -> (i32, String) {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if began.elapsed() > LIMIT => {
                    self.child.kill().unwrap();
                    panic!("it has not ended: {}", self.heard.lock().unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.reader.take().unwrap().join().unwrap();
        let heard = self.heard.lock().unwrap().clone();
        (
            status.code().unwrap_or_else(|| panic!("{status}: {heard}")),
            heard,
        )
    }

    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !is_there(&self.heard.lock().unwrap()) {
            assert!(began.elapsed() < LIMIT, "{what}: {}", self.heard.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn asked(stub: &Stub, operation: &str) -> usize {
    stub.operations()
        .iter()
        .filter(|known| *known == operation)
        .count()
}

#[test]
fn ctrl_c_stops_the_job_that_run_follows() {
    let stub = sagemaker(true);
    let running = Running::start(&stub, &["run", "job.toml"]);
    running.until("it trains", |heard| heard.contains("job flowers-1 Training"));
    running.interrupt();
    let (code, heard) = running.ended();
    assert_eq!(code, 130, "{heard}");
    assert!(heard.contains("press Ctrl-C again to leave"), "{heard}");
    assert!(heard.contains("job flowers-1 Stopped"), "{heard}");
    assert_eq!(asked(&stub, "StopTrainingJob"), 1);
    assert_eq!(asked(&stub, "CreateTrainingJob"), 1);
}

#[test]
fn a_second_ctrl_c_leaves_a_job_that_is_being_stopped() {
    let stub = sagemaker(false);
    let running = Running::start(&stub, &["run", "job.toml"]);
    running.until("it trains", |heard| heard.contains("job flowers-1 Training"));
    running.interrupt();
    running.until("it is told", |_| asked(&stub, "StopTrainingJob") == 1);
    running.interrupt();
    let began = Instant::now();
    let (code, heard) = running.ended();
    assert_eq!(code, 130, "{heard}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!heard.contains("Stopped"), "{heard}");
    assert_eq!(asked(&stub, "StopTrainingJob"), 1);
}

/// SageMaker that is silent at one operation, and of which `describes` is what it says of the job once it was asked for.
fn silent(at: &'static str, describes: fn() -> Reply) -> Stub {
    let is_asked = AtomicBool::new(false);
    Stub::start(move |request, _| {
        if request.operation == "CreateTrainingJob" {
            is_asked.store(true, Ordering::SeqCst);
        }
        match request.operation.as_str() {
            operation if operation == at => Reply::Silent,
            "DescribeTrainingJob" if is_asked.load(Ordering::SeqCst) => describes(),
            "DescribeTrainingJob" => missing(),
            other => panic!("{other} {}", request.body),
        }
    })
}

fn missing() -> Reply {
    Reply::Json(
        400,
        json!({"__type": "ValidationException", "message": "Requested resource not found."}),
    )
}

#[test]
fn ctrl_c_during_a_submission_says_whether_there_is_a_job() {
    for (at, describes, says) in [
        (
            "DescribeTrainingJob",
            missing as fn() -> Reply,
            &["leaving; no training job was asked for"][..],
        ),
        (
            "CreateTrainingJob",
            missing,
            &[
                "SageMaker knows of no training job flowers-1 yet",
                "job show flowers-1 --on sagemaker --region eu-west-1",
            ],
        ),
        (
            "CreateTrainingJob",
            || described("Training"),
            &[
                "training job flowers-1 is created, and continues",
                "job stop flowers-1 --on sagemaker --region eu-west-1",
            ],
        ),
        (
            "CreateTrainingJob",
            || Reply::Closed,
            &[
                "whether training job flowers-1 was created is not known",
                "job show flowers-1",
            ],
        ),
    ] {
        let stub = silent(at, describes);
        let running = Running::start(&stub, &["run", "job.toml"]);
        running.until("it asks", |_| asked(&stub, at) > 0);
        running.interrupt();
        let began = Instant::now();
        let (code, heard) = running.ended();
        assert_eq!(code, 130, "{heard}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        for says in says {
            assert!(heard.contains(says), "{says}: {heard}");
        }
        assert_eq!(asked(&stub, "StopTrainingJob"), 0);
        // Once before the request, and once after Ctrl-C.
        assert!(
            asked(&stub, "DescribeTrainingJob") <= 2,
            "{:?}",
            stub.operations()
        );
    }
}

#[test]
fn a_submission_that_leaves_it_open_says_the_command_that_tries_again() {
    for (args, says) in [
        (
            &["run", "job.toml"][..],
            "job run job.toml --on sagemaker --name flowers-1\n",
        ),
        (
            &["run", "job.toml", "--environment", "HF_TOKEN=my-own-secret"],
            "the same command with --name flowers-1\n",
        ),
    ] {
        let stub = Stub::start(|request, before| match (request.operation.as_str(), before) {
            ("CreateTrainingJob", 0) => Reply::Closed,
            ("CreateTrainingJob", _) => Reply::Json(
                400,
                json!({"__type": "ResourceLimitExceeded", "message": "the limit is 1 Instances"}),
            ),
            _ => missing(),
        });
        let (code, heard) = Running::start(&stub, args).ended();
        assert_eq!(code, 1, "{heard}");
        assert!(
            heard.contains(
                "whether training job flowers-1 was created in eu-west-1 is not known: the limit is 1 Instances"
            ),
            "{heard}"
        );
        assert!(heard.contains(says), "{heard}");
        assert!(!heard.contains("my-own-secret"), "{heard}");
    }
    // The first request has arrived after all.
    let stub = Stub::start(|_, _| described("Training"));
    let (code, heard) = Running::start(&stub, &["run", "job.toml", "--name", "flowers-1"]).ended();
    assert_eq!(code, 2, "{heard}");
    assert!(
        heard.contains(
            "`stokehold job logs -f flowers-1 --on sagemaker --region eu-west-1` follows it if it is yours"
        ),
        "{heard}"
    );
    assert_eq!(asked(&stub, "CreateTrainingJob"), 0);
}

#[test]
fn ctrl_c_leaves_a_job_that_is_watched() {
    for args in [&["logs", "flowers-2", "-f"][..], &["wait", "flowers-2"]] {
        let stub = sagemaker(false);
        let running = Running::start(&stub, args);
        running.until("it asks", |_| asked(&stub, "DescribeTrainingJob") > 0);
        running.interrupt();
        let began = Instant::now();
        let (code, heard) = running.ended();
        assert_eq!(code, 130, "{args:?}: {heard}");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{args:?}: {:?}",
            began.elapsed()
        );
        assert!(heard.contains("leaving; the job continues"), "{args:?}: {heard}");
        assert_eq!(asked(&stub, "StopTrainingJob"), 0, "{args:?}");
    }
}

#[test]
fn a_token_that_expires_while_a_job_is_followed_ends_the_command_and_not_the_job() {
    let stub = Stub::start(|request, before| match (request.operation.as_str(), before) {
        ("DescribeTrainingJob", 0) => described("Training"),
        ("DescribeLogStreams", 0) => Reply::Json(200, json!({"logStreams": []})),
        _ => Reply::Json(
            400,
            json!({"__type": "ExpiredTokenException", "message": "The security token included in the request is expired"}),
        ),
    });
    let (code, heard) = Running::start(&stub, &["logs", "flowers-1", "-f"]).ended();
    assert_eq!(code, 2, "{heard}");
    for says in [
        "is expired (ExpiredTokenException)",
        "job flowers-1 continues",
        "job logs -f flowers-1 --on sagemaker",
    ] {
        assert!(heard.contains(says), "{says}: {heard}");
    }
    assert!(!heard.contains("of-the-test"), "{heard}");
}
