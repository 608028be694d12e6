//! Following a job, by a server of the test.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_sagemaker::{Client, JobStatus, News, SageMakerError, follow};

use crate::stub::{Reply, Request, Stub};

const LOOK: Duration = Duration::from_millis(20);

/// A job's description in its n-th state.
fn described(states: &[&str]) -> Value {
    let secondary = *states.last().unwrap();
    let status = match secondary {
        "Completed" | "Failed" | "Stopped" => secondary,
        _ => "InProgress",
    };
    let transitions: Vec<Value> = states
        .iter()
        .map(|state| json!({"Status": state, "StartTime": 1.6e9, "StatusMessage": "words"}))
        .collect();
    json!({
        "TrainingJobName": "flowers-1",
        "TrainingJobArn": "arn",
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "SecondaryStatusTransitions": transitions,
        "CreationTime": 1.6e9,
        "EnableManagedSpotTraining": true,
        "TrainingTimeInSeconds": 400,
        "BillableTimeInSeconds": 100,
        "FinalMetricDataList": [
            {"MetricName": "loss", "Value": 0.25, "Timestamp": 1.6e9},
            {"MetricName": "worse", "Value": "NaN", "Timestamp": 1.6e9},
        ],
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/flowers-1/output/model.tar.gz"},
    })
}

fn streams() -> Reply {
    Reply::Json(
        200,
        json!({"logStreams": [{"logStreamName": "flowers-1/algo-1-1600000000"}]}),
    )
}

/// A page of the log: line n is on page n.
fn page(request: &Request, lines: &[&str]) -> Reply {
    let at: usize = request.body["nextToken"]
        .as_str()
        .map_or(0, |token| token.parse().unwrap());
    let events: Vec<Value> = lines
        .get(at)
        .map(|text| json!({"timestamp": at, "message": text}))
        .into_iter()
        .collect();
    let next = at + events.len();
    Reply::Json(
        200,
        json!({"events": events, "nextForwardToken": next.to_string()}),
    )
}

fn told(stub: &Stub, stop: &AtomicBool) -> (Vec<String>, Result<JobStatus, SageMakerError>) {
    told_by(&stub.client(Duration::from_secs(2)), stop)
}

fn told_by(client: &Client, stop: &AtomicBool) -> (Vec<String>, Result<JobStatus, SageMakerError>) {
    let told = Mutex::new(Vec::new());
    let end = follow(client, "flowers-1", LOOK, stop, &mut |news| {
        told.lock().unwrap().push(match news {
            News::State(job) => format!("({})", job.secondary_status),
            News::Line(line) => line.text.clone(),
        });
    });
    (told.into_inner().unwrap(), end.map(|job| job.training_job_status))
}

#[test]
fn states_and_lines_come_once() {
    let all = [
        "Starting",
        "Training",
        "Interrupted",
        "Starting",
        "Training",
        "Completed",
    ];
    let stub = Stub::start(move |request, before| match request.operation.as_str() {
        // Every state twice, but the last.
        "DescribeTrainingJob" => Reply::Json(200, described(&all[..(before / 2 + 1).min(all.len())])),
        "DescribeLogStreams" => streams(),
        _ => page(request, &["a", "b"]),
    });
    let (told, end) = told(&stub, &AtomicBool::new(false));
    assert_eq!(end.unwrap(), JobStatus::Completed);
    let states: Vec<&str> = told
        .iter()
        .filter(|one| one.starts_with('('))
        .map(String::as_str)
        .collect();
    let wanted = [
        "(Starting)",
        "(Training)",
        "(Interrupted)",
        "(Starting)",
        "(Training)",
        "(Completed)",
    ];
    assert_eq!(states, wanted);
    let lines: Vec<&str> = told
        .iter()
        .filter(|one| !one.starts_with('('))
        .map(String::as_str)
        .collect();
    assert_eq!(lines, ["a", "b"], "{told:?}");
}

#[test]
fn lines_that_come_after_the_end_are_shown() {
    let mut looks = 0;
    let stub = Stub::start(move |request, _| match request.operation.as_str() {
        "DescribeTrainingJob" => Reply::Json(200, described(&["Completed"])),
        "DescribeLogStreams" => {
            looks += 1;
            streams()
        }
        // Nothing at the first look after the end.
        _ if looks < 2 => page(request, &[]),
        _ => page(request, &["late"]),
    });
    let (told, end) = told(&stub, &AtomicBool::new(false));
    end.unwrap();
    assert_eq!(told, ["(Completed)", "late"]);
}

#[test]
fn the_end_has_metrics_seconds_and_savings() {
    let stub = Stub::start(|_, _| Reply::Json(200, described(&["Completed"])));
    let job = stub.client(Duration::from_secs(2)).describe("flowers-1").unwrap();
    assert_eq!(job.savings(), Some(0.75));
    assert_eq!(
        (job.training_time_in_seconds, job.billable_time_in_seconds),
        (Some(400.0), Some(100.0))
    );
    assert_eq!(job.final_metric_data_list[0].value, 0.25);
    assert!(job.final_metric_data_list[1].value.is_nan());
    let mut paid = job.clone();
    paid.enable_managed_spot_training = false;
    assert_eq!(paid.savings(), None);
}

#[test]
fn a_token_that_expires_in_the_middle_ends_the_following_and_not_the_job() {
    for operation in ["DescribeTrainingJob", "GetLogEvents"] {
        let stub = Stub::start(move |request, before| {
            if request.operation == operation && before > 2 {
                let code = if operation == "GetLogEvents" {
                    "ExpiredTokenException"
                } else {
                    "ExpiredToken"
                };
                return Reply::Json(
                    400,
                    json!({"__type": code, "message": "The security token is expired"}),
                );
            }
            match request.operation.as_str() {
                "DescribeTrainingJob" => Reply::Json(200, described(&["Training"])),
                "DescribeLogStreams" => streams(),
                _ => page(request, &["a"]),
            }
        });
        let (told, end) = told(&stub, &AtomicBool::new(false));
        assert_eq!(told, ["(Training)", "a"], "{operation}");
        let error = end.unwrap_err();
        assert!(
            matches!(error, SageMakerError::Follow { .. }) && error.is_input(),
            "{error}"
        );
        let text = error.to_string();
        for says in [
            "is expired",
            "AWS_PROFILE",
            "continues",
            "job logs -f flowers-1 --on sagemaker",
        ] {
            assert!(text.contains(says), "{text}");
        }
    }
}

#[test]
fn a_job_that_vanishes_is_named() {
    let stub = Stub::start(|request, before| match (request.operation.as_str(), before) {
        ("DescribeTrainingJob", 0 | 1) => Reply::Json(200, described(&["Training"])),
        ("DescribeTrainingJob", _) => Reply::Json(
            400,
            json!({"__type": "ValidationException", "message": "Requested resource not found."}),
        ),
        ("DescribeLogStreams", _) => streams(),
        _ => page(request, &[]),
    });
    let (told, end) = told(&stub, &AtomicBool::new(false));
    assert_eq!(told, ["(Training)"]);
    let error = end.unwrap_err();
    assert!(matches!(error, SageMakerError::NoSuchJob { .. }), "{error}");
}

#[test]
fn following_ends_when_it_is_told_to() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let stub = Stub::start(|request, before| match request.operation.as_str() {
        "DescribeTrainingJob" => {
            STOP.store(before >= 3, Ordering::SeqCst);
            Reply::Json(200, described(&["Training"]))
        }
        "DescribeLogStreams" => streams(),
        _ => page(request, &[]),
    });
    let (_, end) = told(&stub, &STOP);
    assert_eq!(end.unwrap(), JobStatus::InProgress);
}

#[test]
fn throttling_loses_nothing() {
    let stub = Stub::start(move |request, before| {
        // Every second request of each kind.
        if before % 2 == 0 {
            let code = json!({"__type": "ThrottlingException", "message": "Rate exceeded"});
            return Reply::Json(400, code);
        }
        match request.operation.as_str() {
            "DescribeTrainingJob" if before < 6 => Reply::Json(200, described(&["Training"])),
            "DescribeTrainingJob" => Reply::Json(200, described(&["Training", "Completed"])),
            "DescribeLogStreams" => streams(),
            _ => page(request, &["a", "b", "c"]),
        }
    });
    let client = stub.client(Duration::from_secs(20));
    let (told, end) = told_by(&client, &AtomicBool::new(false));
    assert_eq!(end.unwrap(), JobStatus::Completed);
    assert_eq!(told, ["(Training)", "a", "b", "c", "(Completed)"]);
}
