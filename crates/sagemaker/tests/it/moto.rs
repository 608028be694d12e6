//! A second opinion on the calls: moto's server. It ends every job at once and stops none.

use std::io::Write;
use std::time::Duration;

use stokehold_sagemaker::{Client, JobStatus, LogPosition, SageMakerError};

use crate::small;
use crate::stub::options;

/// A bucket.
const BEFORE: &str = "\
client('s3').create_bucket(Bucket='bucket', CreateBucketConfiguration=dict(LocationConstraint='eu-west-1'))
";

/// Each line of its input is a line for the log of a job's first machine.
const THEN: &str = "\
logs = client('logs')
group, stream = '/aws/sagemaker/TrainingJobs', 'flowers-1/algo-1-1600000000'
known = False
for line in sys.stdin:
    if not known:
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        known = True
    event = dict(timestamp=int(time.time() * 1000), message=line.rstrip())
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    print('has it', flush=True)
";

pub struct Moto(stokehold_untested::moto::Moto);

impl Moto {
    /// None, with the reason noted, without moto.
    pub fn start() -> Option<Self> {
        stokehold_untested::moto::Moto::start(BEFORE, THEN).map(Self)
    }

    pub fn address(&self) -> &str {
        &self.0.address
    }

    pub fn print(&mut self, text: &str) {
        writeln!(self.0.input, "{text}").unwrap();
        assert_eq!(self.0.lines.next().unwrap().unwrap(), "has it");
    }

    pub fn client(&self) -> Client {
        let options = options(self.address(), Duration::from_secs(20));
        let mut options = options;
        options.timeout = Duration::from_secs(10);
        Client::open(Some("eu-west-1"), &options).unwrap()
    }
}

#[test]
fn moto_has_the_job_that_was_asked_for() {
    let Some(mut moto) = Moto::start() else { return };
    let client = moto.client();
    client.require_free("flowers-1").unwrap();
    let missing = client.describe("flowers-1").unwrap_err();
    assert!(matches!(missing, SageMakerError::NoSuchJob { .. }), "{missing}");

    let request = crate::request("full");
    let arn = client.create(&request).unwrap();
    assert_eq!(
        arn,
        "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1"
    );
    let job = client.describe("flowers-1").unwrap();
    assert_eq!(job.training_job_arn, arn);
    assert_eq!(job.training_job_status, JobStatus::Completed);
    assert_eq!(job.hyper_parameters, request.hyper_parameters);
    assert_eq!(job.role_arn, request.role_arn);
    assert!(job.enable_managed_spot_training);
    assert_eq!(job.final_metric_data_list[0].value, 100.0);
    assert_eq!(
        job.model_artifacts.unwrap().s3_model_artifacts,
        "s3://bucket/out/flowers-1/output/model.tar.gz"
    );
    let taken = client.require_free("flowers-1").unwrap_err();
    assert!(matches!(taken, SageMakerError::NameTaken { .. }), "{taken}");

    let mut position = LogPosition::default();
    assert!(client.lines("flowers-1", &mut position).unwrap().is_empty());
    moto.print("loss=0.5");
    moto.print("loss=0.25");
    let lines = client.lines("flowers-1", &mut position).unwrap();
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        (texts, lines[0].host.as_str()),
        (vec!["loss=0.5", "loss=0.25"], "algo-1")
    );
    assert!(client.lines("flowers-1", &mut position).unwrap().is_empty());
    moto.print("loss=0.125");
    assert_eq!(
        client.lines("flowers-1", &mut position).unwrap()[0].text,
        "loss=0.125"
    );
}

#[test]
fn moto_lists_jobs_over_several_pages() {
    let Some(moto) = Moto::start() else { return };
    let client = moto.client();
    for number in 0..105 {
        let mut request = small();
        request.training_job_name = format!("job-{number}");
        client.create(&request).unwrap();
    }
    let mut names: Vec<String> = client
        .list(1000)
        .unwrap()
        .into_iter()
        .map(|job| job.training_job_name)
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 105);
    assert_eq!(client.list(3).unwrap().len(), 3);
}
