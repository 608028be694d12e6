//! What becomes of throttling, silence, refusals and expired credentials, by a server of the test.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_sagemaker::{
    Client, CreateTrainingJob, JobStatus, LogPosition, ProfilerConfig, SageMakerError,
};

use crate::stub::{Reply, Stub, options};
use crate::{asked, small, wrong};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(1);

fn error(status: u16, code: &str, message: &str) -> Reply {
    // Some services write the namespace of the code, some `Message`.
    let code = format!("com.amazonaws.sagemaker#{code}");
    Reply::Json(status, json!({"__type": code, "message": message}))
}

fn missing() -> Reply {
    error(400, "ValidationException", "Requested resource not found.")
}

/// What DescribeTrainingJob answers of the job that was asked for.
fn described(request: &CreateTrainingJob, status: &str) -> Value {
    json!({
        "TrainingJobName": request.training_job_name,
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1",
        "TrainingJobStatus": status,
        "SecondaryStatus": status,
        "RoleArn": request.role_arn,
        "HyperParameters": request.hyper_parameters,
        "ResourceConfig": {
            "InstanceType": request.resource_config.instance_type,
            "InstanceCount": request.resource_config.instance_count,
            "VolumeSizeInGB": 30,
        },
        "CreationTime": 1.6e9,
    })
}

fn created() -> Reply {
    Reply::Json(
        200,
        json!({"TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1"}),
    )
}

#[test]
fn throttled_and_failed_requests_are_sent_again() {
    let request = small();
    let answer = described(&request, "InProgress");
    let stub = Stub::start(move |_, before| match before {
        0 => error(400, "ThrottlingException", "Rate exceeded"),
        1 => error(429, "TooManyRequestsException", "slow down"),
        2 => error(503, "ServiceUnavailable", "busy"),
        3 => Reply::Closed,
        4 => Reply::Silent,
        _ => Reply::Json(200, answer.clone()),
    });
    let job = stub.client(LONG).describe("flowers-1").unwrap();
    assert_eq!(job.training_job_status, JobStatus::InProgress);
    assert_eq!(stub.operations().len(), 6);
}

#[test]
fn who_waits_for_long_is_told_once_why() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let answer = described(&small(), "InProgress");
    let start = Instant::now();
    let stub = Stub::start(move |_, _| match start.elapsed() < Duration::from_millis(2500) {
        true => error(503, "ServiceUnavailable", "busy"),
        false => Reply::Json(200, answer.clone()),
    });
    let client = stub
        .client(LONG)
        .telling(|text| TOLD.lock().unwrap().push(text.to_owned()));
    client.describe("flowers-1").unwrap();
    let told = TOLD.lock().unwrap();
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(
        told.starts_with("DescribeTrainingJob: ") && told.contains("busy; trying again for "),
        "{told}"
    );
}

#[test]
fn throttling_without_end_is_given_up_in_time() {
    let stub = Stub::start(|_, _| error(400, "ThrottlingException", "Rate exceeded"));
    let found = stub.client(SHORT).describe("flowers-1").unwrap_err();
    assert!(
        matches!(&found, SageMakerError::Unavailable { reason, .. } if reason.contains("Rate exceeded")),
        "{found}"
    );
    assert!(!found.is_input());
    let tries = stub.operations().len();
    assert!((2..20).contains(&tries), "{tries}: pauses grow");
}

#[test]
fn a_throttled_creation_is_sent_again_and_nothing_is_asked_for() {
    let stub = Stub::start(|_, before| match before {
        0 | 1 => error(400, "ThrottlingException", "Rate exceeded"),
        _ => created(),
    });
    let arn = stub.client(LONG).create(&small()).unwrap();
    assert!(arn.ends_with("training-job/flowers-1"), "{arn}");
    assert_eq!(stub.operations(), ["CreateTrainingJob"; 3]);
}

#[test]
fn a_creation_whose_answer_was_lost_is_found_by_its_name() {
    for lost in [
        || Reply::Closed,
        || Reply::Reset,
        || Reply::Silent,
        || error(500, "InternalFailure", "we do not know"),
    ] {
        let answer = described(&small(), "InProgress");
        let stub = Stub::start(move |request, _| match request.operation.as_str() {
            "CreateTrainingJob" => lost(),
            _ => Reply::Json(200, answer.clone()),
        });
        stub.client(LONG).create(&small()).unwrap();
        assert_eq!(stub.operations(), ["CreateTrainingJob", "DescribeTrainingJob"]);
    }
}

#[test]
fn a_creation_that_was_lost_on_the_way_is_sent_again() {
    let stub = Stub::start(|request, before| match (request.operation.as_str(), before) {
        ("CreateTrainingJob", 0) => Reply::Closed,
        ("CreateTrainingJob", _) => created(),
        _ => missing(),
    });
    stub.client(LONG).create(&small()).unwrap();
    let order = ["CreateTrainingJob", "DescribeTrainingJob", "CreateTrainingJob"];
    assert_eq!(stub.operations(), order);
}

#[test]
fn a_creation_that_arrives_late_is_the_one_that_was_asked_for() {
    let answer = described(&small(), "InProgress");
    let stub = Stub::start(
        move |request, before| match (request.operation.as_str(), before) {
            ("CreateTrainingJob", 0) => Reply::Closed,
            ("CreateTrainingJob", _) => error(400, "ResourceInUse", "Training job names must be unique"),
            (_, 0) => missing(),
            _ => Reply::Json(200, answer.clone()),
        },
    );
    stub.client(LONG).create(&small()).unwrap();
    assert_eq!(stub.operations().len(), 4);
}

#[test]
fn a_name_that_another_job_has_is_said_to_be_taken() {
    let stub = Stub::start(|_, _| error(400, "ResourceInUse", "Training job names must be unique"));
    let found = stub.client(LONG).create(&small()).unwrap_err();
    assert!(
        matches!(found, SageMakerError::NameTaken { .. }) && found.is_input(),
        "{found}"
    );
    let text = found.to_string();
    assert!(
        text.contains("choose another name")
            && text.contains("`stokehold job logs -f flowers-1 --on sagemaker --region eu-west-1` follows it if it is yours"),
        "{text}"
    );
    assert_eq!(stub.operations(), ["CreateTrainingJob"]);

    // After a lost answer, another job of this name is not taken for ours.
    let mut other = small();
    other.hyper_parameters.insert("lr".into(), "0.5".into());
    let answer = described(&other, "InProgress");
    let stub = Stub::start(move |request, _| match request.operation.as_str() {
        "CreateTrainingJob" => Reply::Closed,
        _ => Reply::Json(200, answer.clone()),
    });
    let found = stub.client(LONG).create(&small()).unwrap_err();
    assert!(matches!(found, SageMakerError::NameTaken { .. }), "{found}");
    let found = stub.client(LONG).require_free("flowers-1").unwrap_err();
    assert!(matches!(found, SageMakerError::NameTaken { .. }), "{found}");
}

#[test]
fn a_network_that_goes_down_leaves_a_job_or_none_and_says_which() {
    // Nothing listens: the request never left.
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let client = Client::open(Some("eu-west-1"), &options(&address, SHORT)).unwrap();
    let found = client.create(&small()).unwrap_err();
    assert!(matches!(found, SageMakerError::NotCreated { .. }), "{found}");
    assert!(
        found
            .to_string()
            .starts_with("no training job flowers-1 was created in eu-west-1: "),
        "{found}"
    );

    // The request left, and nothing was ever answered.
    let stub = Stub::start(|_, _| Reply::Closed);
    let found = stub.client(SHORT).create(&small()).unwrap_err();
    assert!(matches!(found, SageMakerError::Unclear { .. }), "{found}");
    assert!(
        found.to_string().contains(
            "`stokehold job logs -f flowers-1 --on sagemaker --region eu-west-1` follows it if it was"
        ),
        "{found}"
    );
    assert!(!found.is_input());

    // It left, no answer came, and SageMaker knows of no job: it may still arrive, whatever becomes of later requests.
    type Answer = fn() -> Reply;
    let lost: [Answer; 3] = [|| Reply::Closed, || Reply::Reset, || Reply::Silent];
    let later: [Answer; 2] = [
        || error(400, "ThrottlingException", "Rate exceeded"),
        || error(400, "ResourceLimitExceeded", "the limit is 1 Instances"),
    ];
    for (lost, later) in lost.into_iter().flat_map(|lost| later.map(|later| (lost, later))) {
        let stub = Stub::start(
            move |request, before| match (request.operation.as_str(), before) {
                ("CreateTrainingJob", 0) => lost(),
                ("CreateTrainingJob", _) => later(),
                _ => missing(),
            },
        );
        let found = stub.client(SHORT).create(&small()).unwrap_err();
        assert!(matches!(found, SageMakerError::Unclear { .. }), "{found}");
        assert!(stub.operations().contains(&"DescribeTrainingJob".to_owned()));
    }

    // Every request failed, and SageMaker says that there is no job.
    let stub = Stub::start(|request, _| match request.operation.as_str() {
        "CreateTrainingJob" => error(500, "InternalFailure", "broken"),
        _ => missing(),
    });
    let found = stub.client(SHORT).create(&small()).unwrap_err();
    assert!(matches!(found, SageMakerError::NotCreated { .. }), "{found}");
}

#[test]
fn a_refusal_is_said_as_sagemaker_says_it_and_not_sent_again() {
    let message = "The S3 bucket 'bucket' is in region us-east-1,\n and the job in eu-west-1";
    let stub = Stub::start(move |_, _| error(400, "ValidationException", message));
    let found = stub.client(LONG).create(&small()).unwrap_err();
    assert!(
        matches!(found, SageMakerError::Refused { .. }) && found.is_input(),
        "{found}"
    );
    let text = found.to_string();
    assert!(
        text.starts_with("CreateTrainingJob at http://127.0.0.1:")
            && text.ends_with(
                "The S3 bucket 'bucket' is in region us-east-1, and the job in eu-west-1 (ValidationException)"
            ),
        "{text}"
    );
    assert_eq!(stub.operations().len(), 1);

    let limit = "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances";
    let stub = Stub::start(move |_, _| error(400, "ResourceLimitExceeded", limit));
    let found = stub.client(LONG).create(&small()).unwrap_err().to_string();
    assert!(
        found.contains(limit) && found.contains("ResourceLimitExceeded"),
        "{found}"
    );
}

#[test]
fn an_invalid_request_is_not_sent() {
    let stub = Stub::start(|_, _| created());
    let mut request = small();
    request.role_arn.clear();
    let found = stub.client(LONG).create(&request).unwrap_err();
    assert!(found.to_string().starts_with("RoleArn: "), "{found}");
    assert!(stub.operations().is_empty());
}

#[test]
fn credentials_that_are_refused_are_named_and_never_shown() {
    // What AWS answers to a wrong signature quotes the signed text.
    let quoted = "The request signature we calculated does not match. The Canonical String should have been \
                  'POST / x-amz-security-token:a-token-of-the-test a-secret-of-the-test'";
    let stub = Stub::start(move |_, _| error(403, "InvalidSignatureException", quoted));
    let client = stub.client(LONG);
    let found = client.describe("flowers-1").unwrap_err();
    assert!(
        matches!(found, SageMakerError::Denied { .. }) && found.is_input(),
        "{found}"
    );
    let text = format!("{found} {found:?} {client:?}");
    assert!(
        text.contains("AWS_PROFILE") && text.contains("does not match"),
        "{text}"
    );
    assert!(!text.contains("of-the-test"), "{text}");
    assert_eq!(stub.operations().len(), 1);
}

#[test]
fn a_job_that_is_not_there_is_named() {
    let stub = Stub::start(|_, _| missing());
    let client = stub.client(LONG);
    for found in [
        client.describe("gone").unwrap_err(),
        client.stop("gone").unwrap_err(),
    ] {
        assert!(matches!(found, SageMakerError::NoSuchJob { .. }), "{found}");
        assert!(
            found
                .to_string()
                .starts_with("there is no training job gone in eu-west-1"),
            "{found}"
        );
    }
    client.require_free("gone").unwrap();
}

#[test]
fn a_job_that_has_ended_may_be_stopped() {
    for (status, is_fine) in [("Completed", true), ("InProgress", false)] {
        let answer = described(&small(), status);
        let stub = Stub::start(move |request, _| match request.operation.as_str() {
            "StopTrainingJob" => error(400, "ValidationException", "The request was rejected"),
            _ => Reply::Json(200, answer.clone()),
        });
        assert_eq!(stub.client(LONG).stop("flowers-1").is_ok(), is_fine, "{status}");
    }
}

#[test]
fn lists_have_all_pages() {
    let stub = Stub::start(|request, _| {
        let from: usize = request.body["NextToken"]
            .as_str()
            .map_or(0, |token| token.parse().unwrap());
        let most = request.body["MaxResults"].as_u64().unwrap() as usize;
        let to = (from + most).min(250);
        let jobs = (from..to).map(|number| {
            json!({"TrainingJobName": format!("job-{number}"), "TrainingJobArn": "arn", "TrainingJobStatus": "Completed",
                   "CreationTime": 1.6e9, "TrainingEndTime": 1.6e9 + 5.0})
        });
        let mut page = json!({"TrainingJobSummaries": jobs.collect::<Vec<_>>()});
        if to < 250 {
            page["NextToken"] = json!(to.to_string());
        }
        Reply::Json(200, page)
    });
    let client = stub.client(LONG);
    let jobs = client.list(120).unwrap();
    assert_eq!(
        (jobs.len(), jobs[119].training_job_name.as_str()),
        (120, "job-119")
    );
    assert_eq!(stub.operations().len(), 2);
    assert_eq!(client.list(1000).unwrap().len(), 250);
}

#[test]
fn a_token_that_does_not_move_ends_a_list() {
    let stub = Stub::start(|_, _| Reply::Json(200, json!({"TrainingJobSummaries": [], "NextToken": "same"})));
    assert!(stub.client(LONG).list(10).unwrap().is_empty());
    assert_eq!(stub.operations().len(), 2);
}

#[test]
fn tokens_that_come_round_end_a_list() {
    let stub = Stub::start(|_, before| {
        let token = if before % 2 == 0 { "a" } else { "b" };
        Reply::Json(200, json!({"TrainingJobSummaries": [], "NextToken": token}))
    });
    assert!(stub.client(LONG).list(10).unwrap().is_empty());
    assert_eq!(stub.operations().len(), 3);
}

/// The other server would get the session's token and the variables of a job.
#[test]
fn a_redirect_is_refused_and_nothing_is_sent_there() {
    let other = Stub::start(|_, _| created());
    let to = other.address.clone();
    let stub = Stub::start(move |_, _| Reply::Redirect(to.clone()));
    for error in [
        stub.client(LONG).create(&small()).unwrap_err(),
        stub.client(LONG).describe("flowers-1").unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("redirect") && text.contains(&other.address),
            "{text}"
        );
    }
    assert_eq!(other.operations().len(), 0);
    assert_eq!(stub.operations(), ["CreateTrainingJob", "DescribeTrainingJob"]);
}

/// SageMaker may know of a job some moments after it has answered that it is created.
#[test]
fn what_was_just_created_is_waited_for() {
    let request = small();
    let job = described(&request, "InProgress");
    let stub = Stub::start(move |request, before| match (&request.operation[..], before) {
        ("CreateTrainingJob", _) => created(),
        ("DescribeTrainingJob", 0 | 1) => missing(),
        _ => Reply::Json(200, job.clone()),
    });
    let client = stub.client(LONG);
    client.create(&request).unwrap();
    client.describe(&request.training_job_name).unwrap();
    assert_eq!(stub.operations().len(), 4);
    // One that was there and is not any more has vanished, and others are not waited for.
    let stub = Stub::start(move |request, _| match &request.operation[..] {
        "CreateTrainingJob" => created(),
        _ => missing(),
    });
    let client = stub.client(Duration::from_millis(500));
    assert!(matches!(
        client.describe("flowers-2"),
        Err(SageMakerError::NoSuchJob { .. })
    ));
    assert_eq!(stub.operations().len(), 1);
    client.create(&request).unwrap();
    assert!(matches!(
        client.describe(&request.training_job_name),
        Err(SageMakerError::NoSuchJob { .. })
    ));
    assert!(stub.operations().len() > 3);
}

#[test]
fn credentials_that_expire_are_looked_for_again_where_they_were_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let write = |token: &str| {
        let text = format!(
            "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = a-secret-of-the-test\n\
             aws_session_token = {token}\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("the-first-token");
    let answer = described(&small(), "InProgress");
    let stub = Stub::start(move |request, _| {
        match request.headers.get("x-amz-security-token").map(String::as_str) {
            Some("the-second-token") => Reply::Json(200, answer.clone()),
            _ => error(
                400,
                "ExpiredTokenException",
                "The security token included in the request is expired",
            ),
        }
    });
    let mut options = options(&stub.address, LONG);
    options
        .settings
        .retain(|(name, _)| !name.contains("KEY") && !name.contains("TOKEN"));
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap()),
        ("AWS_CONFIG_FILE", "/nowhere"),
    ] {
        options.settings.push((name.to_owned(), value.to_owned()));
    }
    let client = Client::open(Some("eu-west-1"), &options).unwrap();
    let found = client.describe("flowers-1").unwrap_err();
    assert!(matches!(found, SageMakerError::Denied { .. }), "{found}");
    assert!(
        found.to_string().contains("is expired (ExpiredTokenException)"),
        "{found}"
    );
    let found = client.create(&small()).unwrap_err();
    assert!(matches!(found, SageMakerError::Denied { .. }), "{found}");
    write("the-second-token");
    client.describe("flowers-1").unwrap();
}

/// Prints the signature that botocore gives a request with these headers, at the time that they say.
const SIGNER: &str = "import json, sys\n\
    from botocore.auth import SigV4Auth\n\
    from botocore.awsrequest import AWSRequest\n\
    from botocore.credentials import Credentials\n\
    got = json.load(sys.stdin)\n\
    keys = Credentials('AKIDEXAMPLE', 'a-secret-of-the-test', 'a-token-of-the-test')\n\
    request = AWSRequest('POST', got['address'], headers=got['headers'], data=got['body'].encode())\n\
    request.context['timestamp'] = got['headers']['x-amz-date']\n\
    auth = SigV4Auth(keys, 'sagemaker', 'eu-west-1')\n\
    text = auth.string_to_sign(request, auth.canonical_request(request))\n\
    print(auth.signature(text, request))\n";

#[test]
fn requests_are_signed_as_botocore_signs_them() {
    let answer = described(&small(), "InProgress");
    let stub = Stub::start(move |_, _| Reply::Json(200, answer.clone()));
    stub.client(LONG).describe("flowers-1").unwrap();
    let request = stub.requests.lock().unwrap()[0].clone();
    let authorization = &request.headers["authorization"];
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
            && authorization.contains("/eu-west-1/sagemaker/aws4_request"),
        "{authorization}"
    );
    let part = |start: &str| {
        let from = authorization.split(start).nth(1).unwrap();
        from.split(',').next().unwrap().to_owned()
    };
    let signed = part("SignedHeaders=");
    for name in [
        "content-type",
        "host",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-target",
    ] {
        assert!(
            signed.split(';').any(|one| one == name),
            "{name} is not in {signed}"
        );
    }
    let headers: BTreeMap<&str, &String> = signed
        .split(';')
        .map(|name| (name, &request.headers[name]))
        .collect();
    let input = json!({"address": stub.address, "headers": headers, "body": request.text});
    let Some(wanted) = asked("STOKEHOLD_TEST_MOTO", SIGNER, &input) else {
        return;
    };
    assert_eq!(part("Signature="), wanted.trim());
}

#[test]
fn logs_of_all_machines_come_once_and_in_order() {
    let mut looks = 0;
    let stub = Stub::start(move |request, before| {
        let body = &request.body;
        looks += usize::from(request.operation == "DescribeLogStreams" && body["nextToken"].is_null());
        match request.operation.as_str() {
            "DescribeLogStreams" if before == 0 => error(
                400,
                "ResourceNotFoundException",
                "The specified log group does not exist.",
            ),
            "DescribeLogStreams" => {
                assert_eq!(body["logStreamNamePrefix"], "flowers-1/");
                match body["nextToken"].as_str() {
                    None => Reply::Json(
                        200,
                        json!({"logStreams": [{"logStreamName": "flowers-1/algo-1-1600000000"}], "nextToken": "2"}),
                    ),
                    _ => Reply::Json(
                        200,
                        json!({"logStreams": [{"logStreamName": "flowers-1/algo-2-1600000000"}]}),
                    ),
                }
            }
            _ => {
                let is_first = body["logStreamName"] == "flowers-1/algo-1-1600000000";
                let event = |time: i64, text: &str| json!({"timestamp": time, "message": text, "ingestionTime": time});
                let (events, token) = match (is_first, body["nextToken"].as_str()) {
                    (true, None) => (vec![event(1, "a"), event(5, "b\n")], "f/1"),
                    (false, None) => (vec![event(3, "c")], "f/3"),
                    // An empty page that is not the last one.
                    (true, Some("f/1")) => (vec![], "f/2"),
                    (true, Some("f/2")) => (vec![event(6, "d")], "f/3"),
                    // A line that comes later.
                    (true, Some("f/3")) if looks > 2 => (vec![event(7, "e")], "f/4"),
                    (_, token) => (vec![], token.unwrap_or("f/0")),
                };
                Reply::Json(
                    200,
                    json!({"events": events, "nextForwardToken": token, "nextBackwardToken": "b/1"}),
                )
            }
        }
    });
    let client = stub.client(LONG);
    let mut position = LogPosition::default();
    let mut look = || -> Vec<String> {
        let lines = client.lines("flowers-1", &mut position).unwrap();
        lines
            .iter()
            .map(|line| format!("{} {}", line.host, line.text))
            .collect()
    };
    assert!(look().is_empty(), "there is no log yet");
    assert_eq!(look(), ["algo-1 a", "algo-2 c", "algo-1 b", "algo-1 d"]);
    assert_eq!(look(), ["algo-1 e"]);
    assert!(look().is_empty());
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let open = |region: Option<&str>, settings: &[(&str, &str)]| {
        let mut options = options("http://127.0.0.1:1", SHORT);
        for (name, value) in settings {
            options.settings.retain(|(known, _)| known != name);
            options.settings.push(((*name).to_owned(), (*value).to_owned()));
        }
        Client::open(region, &options).unwrap_err()
    };
    for (region, settings, says) in [
        (Some("eu west"), &[] as &[(&str, &str)], "'eu west' is no region"),
        (Some("x/../y"), &[], "is no region"),
        (
            Some("eu-west-1"),
            &[("AWS_ENDPOINT_URL_SAGEMAKER", "nowhere")],
            "AWS_ENDPOINT_URL_SAGEMAKER",
        ),
        (
            Some("eu-west-1"),
            &[("AWS_ENDPOINT_URL", "ftp://here")],
            "no http://",
        ),
        (
            Some("eu-west-1"),
            &[("AWS_ENDPOINT_URL_SAGEMAKER", "http://me:hidden@here")],
            "without a user",
        ),
    ] {
        let found = open(region, settings);
        assert!(found.to_string().contains(says) && found.is_input(), "{found}");
        assert!(!found.to_string().contains("hidden"), "{found}");
    }
}

#[test]
fn every_call_is_valid_by_botocores_models() {
    let answer = described(&small(), "InProgress");
    let stub = Stub::start(move |request, before| match request.operation.as_str() {
        "CreateTrainingJob" => created(),
        "ListTrainingJobs" if before == 0 => {
            Reply::Json(200, json!({"TrainingJobSummaries": [], "NextToken": "more"}))
        }
        "ListTrainingJobs" => Reply::Json(200, json!({"TrainingJobSummaries": []})),
        "DescribeLogStreams" => Reply::Json(
            200,
            json!({"logStreams": [{"logStreamName": "flowers-1/algo-1-1600000000"}]}),
        ),
        "GetLogEvents" => Reply::Json(200, json!({"events": [], "nextForwardToken": "f/1"})),
        _ => Reply::Json(200, answer.clone()),
    });
    let client = stub.client(LONG);
    client.create(&small()).unwrap();
    client.describe("flowers-1").unwrap();
    client.list(10).unwrap();
    for profiler in [
        ProfilerConfig {
            disable_profiler: true,
            ..ProfilerConfig::default()
        },
        ProfilerConfig {
            s3_output_path: Some("s3://bucket/out".to_owned()),
            profiling_interval_in_milliseconds: Some(100),
            disable_profiler: false,
        },
    ] {
        client.update_profiler("flowers-1", &profiler).unwrap();
    }
    client.stop("flowers-1").unwrap();
    let mut position = LogPosition::default();
    client.lines("flowers-1", &mut position).unwrap();
    client.lines("flowers-1", &mut position).unwrap();
    let requests = stub.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 12);
    let calls: Vec<(&str, &str, Value)> = requests
        .iter()
        .map(|request| {
            let target = &request.headers["x-amz-target"];
            let service = if target.starts_with("Logs_20140328.") {
                "logs"
            } else {
                "sagemaker"
            };
            (service, request.operation.as_str(), request.body.clone())
        })
        .collect();
    let Some(found) = wrong(&calls) else { return };
    assert_eq!(found, "", "{calls:#?}");
}
