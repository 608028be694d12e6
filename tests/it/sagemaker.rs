//! Jobs on SageMaker: the command line, and moto as SageMaker.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stokehold_untested::moto::Moto;
use tempfile::TempDir;

const JOB: &str = r#"
name = "flowers-1"
entry-point = "train.py"
source-dir = "src"
output = "s3://bucket/out"
instance-type = "ml.g5.xlarge"
stop-seconds = 60
[hyperparameters]
lr = 0.1
[channels]
train = "data"
[environment]
HF_TOKEN = "my-own-secret"
[sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
region = "eu-west-1"
framework = "pytorch"
framework-version = "2.6.0"
python-version = "py312"
[sagemaker.channels]
train = "s3://bucket/train"
"#;

pub struct Place {
    pub dir: TempDir,
    /// SageMaker's address; nothing listens there without moto.
    pub address: String,
    pub moto: Option<Moto>,
}

/// A bucket, and a line in the log of the job's first machine.
pub const BEFORE: &str = "\
client('s3').create_bucket(Bucket='bucket', CreateBucketConfiguration=dict(LocationConstraint='eu-west-1'))
logs, at = client('logs'), dict(logGroupName='/aws/sagemaker/TrainingJobs', logStreamName='flowers-1/algo-1-1600000000')
logs.create_log_group(logGroupName=at['logGroupName'])
logs.create_log_stream(**at)
logs.put_log_events(logEvents=[dict(timestamp=int(time.time() * 1000), message='loss=0.25')], **at)
";

impl Place {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/train.py"), "print('loss=0.25')").unwrap();
        fs::write(dir.path().join("job.toml"), JOB).unwrap();
        Self {
            dir,
            address: "http://127.0.0.1:1".to_owned(),
            moto: None,
        }
    }

    /// With moto, which runs `before` before it listens, and `then` from then on. None, with the reason noted, without moto.
    pub fn with_moto(before: &str, then: &str) -> Option<Self> {
        let moto = Moto::start(before, then)?;
        let mut place = Self::new();
        place.address = moto.address.clone();
        place.moto = Some(moto);
        Some(place)
    }

    pub fn job(&self, args: &[&str]) -> Output {
        self.stokehold().arg("job").args(args).output().unwrap()
    }

    /// The program in the folder, with the credentials.
    pub fn stokehold(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        for variable in [
            "AWS_ENDPOINT_URL_SAGEMAKER",
            "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS",
            "AWS_SESSION_TOKEN",
        ] {
            command.env_remove(variable);
        }
        command
            .current_dir(self.dir.path())
            .env("AWS_ENDPOINT_URL", &self.address)
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test")
            .env("AWS_REGION", "eu-west-1")
            .env("STOKEHOLD_JOBS", self.dir.path().join("jobs"));
        command
    }
}

pub fn said(output: &Output) -> String {
    format!(
        "{:?}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_dry_run_prints_the_request_and_sends_nothing() {
    let place = Place::new();
    let output = place.job(&[
        "run",
        "job.toml",
        "--on",
        "sagemaker",
        "--dry-run",
        "--hyperparameter",
        "lr=0.5",
    ]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let request: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(request["TrainingJobName"], "flowers-1");
    assert_eq!(request["HyperParameters"]["lr"], "0.5");
    assert_eq!(
        request["HyperParameters"]["sagemaker_submit_directory"],
        "\"s3://bucket/out/flowers-1/source/sourcedir.tar.gz\""
    );
    assert_eq!(request["Environment"]["HF_TOKEN"], "(hidden)");
    assert!(
        !said.contains("my-own-secret") && !said.contains("a-secret-of-the-test"),
        "{said}"
    );
    for says in [
        "note: stop-seconds has no counterpart",
        "note: channel train: ",
        "nothing is sent",
        "note: no estimate of the cost: [sagemaker] price = ..",
    ] {
        assert!(said.contains(says), "{said}");
    }
    let priced = JOB.replace("[sagemaker]\n", "[sagemaker]\nprice = 1.5\n");
    fs::write(place.dir.path().join("priced.toml"), priced).unwrap();
    let output = place.job(&["run", "priced.toml", "--on", "sagemaker", "--dry-run"]);
    assert!(
        self::said(&output).contains("cost: at most 36.00: 1 ml.g5.xlarge at 1.5 an hour each"),
        "{}",
        self::said(&output)
    );
    assert!(
        !Path::new(&place.dir.path().join("jobs")).exists(),
        "nothing is kept here"
    );
}

#[test]
fn secrets_are_refused_before_anything_is_sent() {
    let place = Place::new();
    fs::write(place.dir.path().join("src/.env"), "TOKEN=x").unwrap();
    // Nothing listens at the address: a request would end with 1, and not with 2.
    let secret = ["--hyperparameter", "hf_token=my-own-secret"];
    let output = place.job(&[&["run", "job.toml", "--on", "sagemaker"], &secret[..]].concat());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("HyperParameters.hf_token: looks like a secret"),
        "{text}"
    );
    assert!(!text.contains("my-own-secret"), "{text}");
    let output = place.job(&["run", "job.toml", "--on", "sagemaker", "--dry-run"]);
    assert!(
        said(&output)
            .contains("note: hidden files and caches of source-dir are not uploaded, 1 in all: .env"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_cannot_be_asked_of_sagemaker_is_wrong_usage() {
    let place = Place::new();
    fs::write(
        place.dir.path().join("plain.toml"),
        "entry-point = \"train.py\"\n",
    )
    .unwrap();
    for (args, says) in [
        (
            &["run", "plain.toml", "--on", "sagemaker"][..],
            "no section [sagemaker]",
        ),
        (&["run", "--resume", "x", "--on", "sagemaker"], "is not resumed"),
        (
            &["run", "job.toml", "--on", "sagemaker", "--sbatch=-p"],
            "--sbatch is for --on slurm",
        ),
        (
            &["run", "job.toml", "--on", "slurm", "--dry-run"],
            "--dry-run is for --on sagemaker",
        ),
        (&["run", "job.toml", "--dry-run"], "--on"),
        (&["run", "job.toml", "--on", "lambda"], "sagemaker"),
        (
            &["stop", "x", "--now", "--on", "sagemaker"],
            "--now has no counterpart",
        ),
        (&["show", "x", "--region", "eu-west-1"], "--on"),
        (
            &["show", "x", "--on", "sagemaker", "--region", "here!"],
            "'here!' is no region",
        ),
    ] {
        let output = place.job(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

#[test]
fn moto_runs_the_job_and_the_commands_show_it() {
    let Some(place) = Place::with_moto(BEFORE, "sys.stdin.read()") else {
        return;
    };
    let output = place.job(&["run", "job.toml", "--on", "sagemaker"]);
    let said_by_run = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said_by_run}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[algo-1] loss=0.25\n",
        "{said_by_run}"
    );
    for says in [
        "job flowers-1 is created: arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1",
        "job flowers-1 Completed\nmetrics: train:progress=100\nmodel: s3://bucket/out/flowers-1/output/model.tar.gz",
    ] {
        assert!(said_by_run.contains(says), "{said_by_run}");
    }
    assert!(!said_by_run.contains("my-own-secret"), "{said_by_run}");

    let at = ["--on", "sagemaker"];
    let fine = |args: &[&str]| {
        let output = place.job(&[args, &at].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = fine(&["list"]);
    assert!(listed.starts_with("NAME       STATE      CREATED"), "{listed}");
    assert!(listed.contains("\nflowers-1  Completed  "), "{listed}");
    let jobs: Value = serde_json::from_str(&fine(&["list", "--json"])).unwrap();
    assert_eq!(jobs[0]["TrainingJobName"], "flowers-1");
    let shown = fine(&["show", "flowers-1"]);
    assert!(
        shown.contains("\narguments   lr=0.1\n") && shown.contains("\nmachines    1 ml.g5.xlarge\n"),
        "{shown}"
    );
    let job: Value = serde_json::from_str(&fine(&["show", "flowers-1", "--json"])).unwrap();
    assert_eq!(job["TrainingJobStatus"], "Completed");
    assert_eq!(fine(&["logs", "flowers-1"]), "[algo-1] loss=0.25\n");
    assert_eq!(fine(&["logs", "flowers-1", "--host", "algo-2"]), "");
    assert!(fine(&["wait", "flowers-1"]).starts_with("job flowers-1 Completed\n"));

    for (args, says) in [
        (
            &["run", "job.toml"][..],
            "there is a training job flowers-1 in eu-west-1 already",
        ),
        (&["show", "gone"], "there is no training job gone in eu-west-1"),
        (&["logs", "gone"], "there is no training job gone in eu-west-1"),
        (&["wait", "gone"], "there is no training job gone in eu-west-1"),
    ] {
        let output = place.job(&[args, &at].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    let detached = place.job(&[
        "run",
        "job.toml",
        "--name",
        "flowers-2",
        "--detach",
        "--on",
        "sagemaker",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&detached.stdout),
        "flowers-2\n",
        "{}",
        said(&detached)
    );
}
