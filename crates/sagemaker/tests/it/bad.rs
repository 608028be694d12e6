//! What a job runs into: images that are not known, machines that a region lacks, throttling and tokens in the middle of things.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_jobs::Job;
use stokehold_sagemaker::{JobStatus, News, Plan, SageMakerError, follow};

use crate::small;
use crate::stub::{Reply, Stub, options};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(1);

/// A job in AWS's own image, in a folder with its script.
fn job(machine: &str, framework: &str, version: &str, python: &str) -> (tempfile::TempDir, Job) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "entry-point = \"train.py\"\noutput = \"s3://bucket/out\"\ninstance-type = \"{machine}\"\n[sagemaker]\n\
         role = \"arn:aws:iam::123456789012:role/trains\"\nframework = \"{framework}\"\n\
         framework-version = \"{version}\"\npython-version = \"{python}\"\n"
    );
    fs::write(folder.path().join("job.toml"), text).unwrap();
    fs::write(folder.path().join("train.py"), "pass\n").unwrap();
    let job = Job::read(&folder.path().join("job.toml")).unwrap();
    (folder, job)
}

fn image(
    machine: &str,
    framework: &str,
    version: &str,
    python: &str,
    region: &str,
) -> Result<String, SageMakerError> {
    let (_folder, job) = job(machine, framework, version, python);
    let plan = Plan::new(&job, "flowers-1", region)?;
    Ok(plan.request.algorithm_specification.training_image)
}

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    Reply::Json(status, json!({"__type": code, "message": message}))
}

fn missing() -> Reply {
    refusal(400, "ValidationException", "Requested resource not found.")
}

/// The answers are those of `image_uris.retrieve` of SageMaker's Python SDK 2.257.7.
#[test]
fn images_are_those_of_sagemakers_sdk() {
    for (machine, framework, version, python, region, wanted) in [
        (
            "ml.g5.xlarge",
            "pytorch",
            "2.8.0",
            "py312",
            "ap-southeast-6",
            "633930458069.dkr.ecr.ap-southeast-6.amazonaws.com/pytorch-training:2.8.0-gpu-py312",
        ),
        (
            "ml.gr6.4xlarge",
            "pytorch",
            "1.2.0",
            "py2",
            "us-east-1",
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.2.0-gpu-py2",
        ),
        (
            "ml.z1d.large",
            "tensorflow",
            "1.15.5",
            "py37",
            "us-gov-west-1",
            "442386744353.dkr.ecr.us-gov-west-1.amazonaws.com/tensorflow-training:1.15.5-cpu-py37",
        ),
    ] {
        assert_eq!(
            image(machine, framework, version, python, region).unwrap(),
            wanted
        );
    }
}

/// What SageMaker says of one: "Cross region ECR image pulls are not allowed".
/// As `image_uris.retrieve` with `distribution={"smdistributed": ..}` answers.
#[test]
fn old_images_for_smdistributed_have_names_of_their_own() {
    for (version, wanted) in [
        ("1.6.0", "pytorch-training:1.6.0-gpu-py36-cu110-ubuntu18.04"),
        ("1.8.1", "pytorch-training:1.8.1-gpu-py36"),
    ] {
        let (_folder, mut job) = job("ml.p4d.24xlarge", "pytorch", version, "py36");
        job.distribution = stokehold_jobs::Distribution::Smdistributed;
        let plan = Plan::new(&job, "flowers-1", "us-east-1").unwrap();
        let image = plan.request.algorithm_specification.training_image;
        assert!(image.ends_with(wanted), "{image}");
    }
}

#[test]
fn an_image_in_another_regions_registry_is_refused() {
    let is_of = stokehold_sagemaker::image_is_of;
    for image in [
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com/a/b@sha256:00",
        "registry.example/train:1",
        "train",
    ] {
        is_of(image, "us-east-1").unwrap();
    }
    let image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1";
    let said = is_of(image, "eu-west-1").unwrap_err().to_string();
    assert!(
        said.contains("the registry of us-east-1") && said.contains("eu-west-1"),
        "{said}"
    );
    is_of("registry.example/train:1", "eu-west-1").unwrap();
}

#[test]
fn an_image_that_cannot_be_derived_is_asked_for() {
    for (machine, framework, version, region, says) in [
        (
            "ml.g5.xlarge",
            "pytorch",
            "2.8.0",
            "us-iso-east-1",
            "in us-iso-east-1 is not known here; give image",
        ),
        (
            "ml.g5.xlarge",
            "pytorch",
            "2.8.0",
            "mars-north-1",
            "in mars-north-1 is not known here; give image",
        ),
        (
            "ml.inf1.xlarge",
            "pytorch",
            "2.8.0",
            "us-east-1",
            "images for ml.inf1.xlarge are not known",
        ),
        (
            "ml.c6gn.xlarge",
            "pytorch",
            "2.8.0",
            "us-east-1",
            "images for ml.c6gn.xlarge are not known",
        ),
        (
            "ml.g5.xlarge",
            "pytorch",
            "1.1.0",
            "us-east-1",
            "take 1.2.0 or a newer one",
        ),
        (
            "ml.g5.xlarge",
            "tensorflow",
            "1.13.1",
            "us-east-1",
            "take 1.14.0 or a newer one",
        ),
        (
            "ml.g5.xlarge",
            "pytorch",
            "2.+8.0",
            "us-east-1",
            "is no whole version",
        ),
        (
            "ml.g5.xlarge",
            "pytorch",
            "2.8.0.1",
            "us-east-1",
            "is no whole version",
        ),
        (
            "ml.g5.xlarge",
            "pytorch",
            "99999999999.8.0",
            "us-east-1",
            "is no whole version",
        ),
    ] {
        let error = image(machine, framework, version, "py312", region).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_region_without_the_machine_is_said_as_sagemaker_says_it() {
    let message = "Instance type 'ml.p5.48xlarge' is not supported in region eu-west-3";
    let stub = Stub::start(move |_, _| refusal(400, "ValidationException", message));
    let error = stub.client(LONG).create(&small()).unwrap_err();
    assert!(
        matches!(error, SageMakerError::Refused { .. }) && error.is_input(),
        "{error}"
    );
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(stub.operations(), ["CreateTrainingJob"]);
}

/// What each part of a submission meets, and what is said; never is a job created.
#[test]
fn a_submission_that_breaks_before_its_job_leaves_none() {
    type Answer = fn() -> Reply;
    let closed: Answer = || Reply::Closed;
    let expired: Answer = || {
        refusal(
            400,
            "ExpiredTokenException",
            "The security token included in the request is expired",
        )
    };
    let throttled: Answer = || refusal(400, "ThrottlingException", "Rate exceeded");
    let expired_in_bucket: Answer = || {
        Reply::Xml(
            400,
            "<?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
        )
    };
    for (describe, bucket, says, is_input) in [
        (
            missing as Answer,
            closed,
            "s3://bucket/out/flowers-1/source/sourcedir.tar.gz: ",
            false,
        ),
        (
            missing,
            expired_in_bucket,
            "s3://bucket/out/flowers-1/source/sourcedir.tar.gz: ",
            true,
        ),
        (closed, closed, "DescribeTrainingJob at ", false),
        (expired, closed, "is expired (ExpiredTokenException)", true),
        (throttled, closed, "Rate exceeded", false),
    ] {
        let stub = Stub::start(move |request, _| match request.operation.as_str() {
            "DescribeTrainingJob" => describe(),
            "CreateTrainingJob" => refusal(500, "InternalFailure", "it should not come to this"),
            _ => bucket(),
        });
        let (_folder, job) = job("ml.g5.xlarge", "pytorch", "2.6.0", "py312");
        let plan = Plan::new(&job, "flowers-1", "eu-west-1").unwrap();
        let error = plan
            .submit(&stub.client(SHORT), &options(&stub.address, SHORT))
            .unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert_eq!(error.is_input(), is_input, "{error}");
        assert!(!error.to_string().contains("of-the-test"), "{error}");
        assert!(
            !stub.operations().iter().any(|one| one == "CreateTrainingJob"),
            "{error}"
        );
    }
}

#[test]
fn a_token_that_expires_before_the_job_is_created_leaves_none() {
    let stub = Stub::start(|_, _| refusal(400, "ExpiredTokenException", "The security token is expired"));
    let error = stub.client(LONG).create(&small()).unwrap_err();
    assert!(
        matches!(error, SageMakerError::Denied { .. }) && error.is_input(),
        "{error}"
    );
    // Once, and once more with the credentials that were found anew.
    let tries = stub.operations().len();
    assert!((1..=2).contains(&tries), "{tries}");
}

#[test]
fn throttling_while_a_job_is_followed_loses_nothing() {
    let described = |secondary: &str| {
        json!({
            "TrainingJobName": "flowers-1", "TrainingJobArn": "arn",
            "TrainingJobStatus": if secondary == "Completed" { "Completed" } else { "InProgress" },
            "SecondaryStatus": secondary, "CreationTime": 1.6e9,
        })
    };
    let stub = Stub::start(move |request, before| {
        // Every second request of each kind.
        if before % 2 == 0 {
            return refusal(400, "ThrottlingException", "Rate exceeded");
        }
        match request.operation.as_str() {
            "DescribeTrainingJob" if before < 6 => Reply::Json(200, described("Training")),
            "DescribeTrainingJob" => Reply::Json(200, described("Completed")),
            "DescribeLogStreams" => Reply::Json(
                200,
                json!({"logStreams": [{"logStreamName": "flowers-1/algo-1-1600000000"}]}),
            ),
            _ => {
                let at: usize = request.body["nextToken"]
                    .as_str()
                    .map_or(0, |token| token.parse().unwrap());
                let events: Vec<Value> = (at..3.min(at + 1))
                    .map(|line| json!({"timestamp": line, "message": line.to_string()}))
                    .collect();
                let next = at + events.len();
                Reply::Json(
                    200,
                    json!({"events": events, "nextForwardToken": next.to_string()}),
                )
            }
        }
    });
    let mut told = Vec::new();
    let look = Duration::from_millis(20);
    let job = follow(
        &stub.client(LONG),
        "flowers-1",
        look,
        &AtomicBool::new(false),
        &mut |news| {
            told.push(match news {
                News::State(job) => job.secondary_status.clone(),
                News::Line(line) => line.text.clone(),
            });
        },
    )
    .unwrap();
    assert_eq!(job.training_job_status, JobStatus::Completed);
    assert_eq!(told, ["Training", "0", "1", "2", "Completed"]);
}
