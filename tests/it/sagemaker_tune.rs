//! Studies on SageMaker: the command line, and moto as SageMaker.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::sagemaker::{Place, said};

const STUDY: &str = r#"
[study]
objective = "loss"
strategy = "grid"
[study.limits]
max-jobs = 3
max-parallel-jobs = 2
[study.parameters.level]
type = "categorical"
values = [3, 1, 2]
[job]
entry-point = "train.py"
output = "s3://bucket/out"
instance-type = "ml.g5.xlarge"
profile = false
[job.environment]
HF_TOKEN = "my-own-secret"
[[job.metrics]]
name = "loss"
regex = 'loss=([0-9.]+)'
[job.sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
region = "eu-west-1"
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1"
"#;

const BEFORE: &str = "\
client('s3').create_bucket(Bucket='bucket', CreateBucketConfiguration=dict(LocationConstraint='eu-west-1'))
client('logs').create_log_group(logGroupName='/aws/sagemaker/TrainingJobs')
";

/// Prints two losses for every training job that is made.
const THEN: &str = "\
import threading
def write():
    sagemaker, logs, known = client('sagemaker'), client('logs'), set()
    while True:
        for job in sagemaker.list_training_jobs()['TrainingJobSummaries']:
            name = job['TrainingJobName']
            if name in known: continue
            known.add(name)
            level = float(sagemaker.describe_training_job(TrainingJobName=name)['HyperParameters']['level'])
            at = dict(logGroupName='/aws/sagemaker/TrainingJobs', logStreamName=name + '/algo-1-1600000000')
            logs.create_log_stream(**at)
            lines = ['loss=%s' % (level + 1), 'loss=%s' % level]
            logs.put_log_events(logEvents=[dict(timestamp=int(time.time() * 1000), message=line) for line in lines], **at)
        time.sleep(0.05)
threading.Thread(target=write, daemon=True).start()
sys.stdin.read()
";

/// A study in a folder; with moto, or None, with the reason noted, without it.
fn study(is_moto: bool) -> Option<Place> {
    let place = match is_moto {
        true => Place::with_moto(BEFORE, THEN)?,
        false => Place::new(),
    };
    fs::write(place.dir.path().join("train.py"), "print('loss=1')").unwrap();
    fs::write(place.dir.path().join("tune.toml"), STUDY).unwrap();
    Some(place)
}

fn ended(place: &Place, args: &[&str]) -> Output {
    place.stokehold().args(args).output().unwrap()
}

/// What a command printed on standard output; it has to succeed.
fn fine(place: &Place, args: &[&str]) -> String {
    let output = ended(place, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn dry_runs_of_a_study_print_requests_and_send_nothing() {
    let place = study(false).unwrap();
    let run = ["tune", "run", "tune.toml", "--on", "sagemaker", "--dry-run"];
    let output = ended(&place, &run);
    let request: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(request["HyperParameters"]["level"], "3");
    assert_eq!(request["Environment"]["HF_TOKEN"], "(hidden)");
    let text = said(&output);
    assert!(
        text.contains("the first of up to 3 training jobs, 2 at once, in eu-west-1"),
        "{text}"
    );
    assert!(
        text.contains("note: no estimate of the cost: [sagemaker] price = .."),
        "{text}"
    );
    fs::write(
        place.dir.path().join("priced.toml"),
        STUDY
            .replace("[job.sagemaker]\n", "[job.sagemaker]\nprice = 1.5\n")
            .replace("max-jobs = 3", "max-jobs = 100"),
    )
    .unwrap();
    let priced = ["tune", "run", "priced.toml", "--on", "sagemaker", "--dry-run"];
    let text = said(&ended(&place, &priced));
    // A grid of three.
    for says in [
        "cost: at most 108.00: 3 jobs, each of 1 ml.g5.xlarge at 1.5 an hour each, for max-run-seconds = 86400 s",
        "that is every trial to its longest time",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!place.dir.path().join("tune.study").exists());
}

#[test]
fn what_cannot_be_asked_of_a_study_on_sagemaker_is_wrong_usage() {
    let place = study(false).unwrap();
    let timeline = STUDY.replace("[[job.metrics]]\nname = \"loss\"\nregex = 'loss=([0-9.]+)'\n", "");
    fs::write(
        place.dir.path().join("timeline.toml"),
        format!("timeline = true\n{timeline}").replace("profile = false", ""),
    )
    .unwrap();
    fs::write(
        place.dir.path().join("plain.toml"),
        STUDY.split("[job.sagemaker]").next().unwrap(),
    )
    .unwrap();
    let there = ["--on", "sagemaker"];
    for (args, says) in [
        (
            &["tune", "run", "timeline.toml"][..],
            "leave timeline and metrics-file out",
        ),
        (&["tune", "run", "plain.toml"], "no section [sagemaker]"),
        (
            &["tune", "run", "tune.toml", "--sbatch=-p"],
            "--sbatch is for --on slurm",
        ),
        (&["tune", "resume", "tune.toml"], "there is no study"),
    ] {
        let output = ended(&place, &[args, &there].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    for (args, says) in [
        (
            &["tune", "run", "tune.toml", "--dry-run", "--on", "slurm"][..],
            "--dry-run is for --on sagemaker",
        ),
        (
            &[
                "tune",
                "run",
                "tune.toml",
                "--region",
                "eu-west-1",
                "--on",
                "slurm",
            ],
            "--region is for --on sagemaker",
        ),
    ] {
        let output = ended(&place, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    assert!(!place.dir.path().join("tune.study").exists());
}

#[test]
fn moto_runs_a_study_and_its_folder_is_as_any_studys() {
    let Some(place) = study(true) else { return };
    let output = ended(&place, &["tune", "run", "tune.toml", "--on", "sagemaker"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for says in [
        "its jobs are tune-",
        "-NNN in eu-west-1",
        "over: all jobs were made",
        "the best trial's job: tune-",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert!(
        !text.contains("my-own-secret") && !text.contains("a-secret-of-the-test"),
        "{text}"
    );
    let all: Value = serde_json::from_str(&fine(&place, &["tune", "export", "tune.toml", "--json"])).unwrap();
    let trials = all["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3, "{all:#}");
    assert!(fine(&place, &["tune", "status", "tune.toml"]).contains("3 of 3 jobs: 3 completed"));
    fine(&place, &["tune", "report", "tune.toml"]);
    let listed: Value =
        serde_json::from_str(&fine(&place, &["job", "list", "--json", "--on", "sagemaker"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed:#}");

    let here = ended(&place, &["tune", "resume", "tune.toml", "--max-jobs", "4"]);
    assert_eq!(here.status.code(), Some(2), "{}", said(&here));
    assert!(said(&here).contains("add --on sagemaker"), "{}", said(&here));
    let elsewhere = ended(
        &place,
        &[
            "tune",
            "resume",
            "tune.toml",
            "--on",
            "sagemaker",
            "--region",
            "eu-west-2",
        ],
    );
    assert!(
        said(&elsewhere).contains("are in eu-west-1, not in eu-west-2"),
        "{}",
        said(&elsewhere)
    );
    fine(&place, &["tune", "resume", "tune.toml", "--on", "sagemaker"]);
}
