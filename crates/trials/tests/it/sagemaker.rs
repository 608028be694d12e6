//! Trials as jobs on SageMaker, by a server of the tests that plays an account: its jobs print a line at every look.

#[path = "../../../sagemaker/tests/it/stub.rs"]
#[allow(dead_code)]
mod stub;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_sagemaker::Client;
use stokehold_trials::run::{Ending, StudyEvent, create};
use stokehold_trials::sagemaker::{Account, StudyTarget, check, jobs, run};
use stokehold_trials::{Plan, TrialsError};
use stokehold_tune::{End, History, Outcome, Study};

use stub::{Reply, Request, Stub, options};

const LOOK: Duration = Duration::from_millis(20);

/// Lines of a job that runs to its end.
const EPOCHS: usize = 5;

const STUDY: &str = r#"
[study]
objective = "loss"
strategy = "grid"
[study.limits]
max-jobs = 4
max-parallel-jobs = 2
[study.parameters.level]
type = "categorical"
values = [1, 2, 3, 4]
[job]
entry-point = "train.py"
output = "s3://bucket/out"
checkpoints = "s3://bucket/checkpoints"
instance-type = "ml.g5.xlarge"
max-run-seconds = 3600
[job.spot]
max-wait-seconds = 7200
[[job.metrics]]
name = "loss"
regex = 'loss=([0-9.einfNa-]+)'
[job.sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1"
"#;

/// A job of the account.
#[derive(Debug, Clone, Default)]
struct Job {
    request: Value,
    /// Lines that it has printed.
    lines: Vec<String>,
    /// Whether it prints when its lines are read next: once a look.
    is_due: bool,
    is_stopped: bool,
    failure: Option<String>,
    is_gone: bool,
    /// SageMaker's last value.
    last: Option<f64>,
}

impl Job {
    fn level(&self) -> f64 {
        self.request["HyperParameters"]["level"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    fn status(&self) -> &'static str {
        match self {
            Self { failure: Some(_), .. } => "Failed",
            Self { is_stopped: true, .. } => "Stopped",
            _ if self.lines.len() >= EPOCHS => "Completed",
            _ => "InProgress",
        }
    }
}

type Jobs = Arc<Mutex<BTreeMap<String, Job>>>;

/// What happens to a job at a look at its lines, instead of the usual line.
type Step = dyn FnMut(&str, &mut Job) + Send;

/// The usual: `loss=LEVEL + 1 / n`.
fn print(_: &str, job: &mut Job) {
    let line = format!(
        "epoch {}: loss={}",
        job.lines.len(),
        job.level() + 1.0 / (job.lines.len() + 1) as f64
    );
    job.lines.push(line);
}

fn fault(code: &str, message: &str) -> Reply {
    Reply::Json(400, json!({"__type": code, "message": message}))
}

fn answer(jobs: &Jobs, step: &mut Step, request: &Request) -> Reply {
    let mut jobs = jobs.lock().unwrap();
    let name = request.body["TrainingJobName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    match request.operation.as_str() {
        "CreateTrainingJob" if jobs.contains_key(&name) => fault("ResourceInUse", "there is one"),
        "CreateTrainingJob" => {
            let job = Job {
                request: request.body.clone(),
                ..Job::default()
            };
            jobs.insert(name.clone(), job);
            Reply::Json(200, json!({"TrainingJobArn": format!("arn:{name}")}))
        }
        "ListTrainingJobs" => {
            let part = request.body["NameContains"].as_str().unwrap();
            assert_eq!(request.body["StatusEquals"], "InProgress");
            jobs.values_mut().for_each(|job| job.is_due = true);
            let listed = jobs
                .iter()
                .filter(|(name, job)| name.contains(part) && job.status() == "InProgress" && !job.is_gone);
            let listed: Vec<Value> = listed
                .map(|(name, _)| json!({"TrainingJobName": name, "TrainingJobStatus": "InProgress", "CreationTime": 1.6e9}))
                .collect();
            Reply::Json(200, json!({"TrainingJobSummaries": listed}))
        }
        "DescribeTrainingJob" => match jobs.get_mut(&name) {
            Some(job) if !job.is_gone => {
                job.is_due = true;
                let mut metrics = Vec::new();
                let printed = job
                    .lines
                    .last()
                    .and_then(|line| line.split("loss=").nth(1)?.parse::<f64>().ok());
                if let Some(value) = job.last.or(printed) {
                    // SageMaker's numbers have 32 bits, and JSON has no NaN.
                    let number = if value.is_nan() {
                        json!("NaN")
                    } else {
                        json!(value as f32)
                    };
                    metrics.push(json!({"MetricName": "loss", "Value": number, "Timestamp": 1.6e9}));
                }
                let mut answer = json!({
                    "TrainingJobName": name, "TrainingJobArn": format!("arn:{name}"),
                    "TrainingJobStatus": job.status(), "SecondaryStatus": job.status(), "CreationTime": 1.6e9,
                    "FinalMetricDataList": metrics,
                });
                if let Some(reason) = &job.failure {
                    answer["FailureReason"] = json!(reason);
                }
                Reply::Json(200, answer)
            }
            _ => fault("ValidationException", "Requested resource not found."),
        },
        "StopTrainingJob" => {
            jobs.get_mut(&name).unwrap().is_stopped = true;
            Reply::Json(200, json!({}))
        }
        "DescribeLogStreams" => {
            let name = request.body["logStreamNamePrefix"].as_str().unwrap();
            Reply::Json(
                200,
                json!({"logStreams": [{"logStreamName": format!("{name}algo-1-1600000000")}]}),
            )
        }
        "GetLogEvents" => {
            let name = request.body["logStreamName"]
                .as_str()
                .unwrap()
                .split('/')
                .next()
                .unwrap()
                .to_owned();
            let job = jobs.get_mut(&name).unwrap();
            let at: usize = request.body["nextToken"]
                .as_str()
                .map_or(0, |token| token.parse().unwrap());
            if at == job.lines.len() && job.is_due && job.status() == "InProgress" {
                job.is_due = false;
                step(&name, job);
            }
            // A line a page; the look that made it ends before it.
            let events: Vec<Value> = job
                .lines
                .get(at)
                .map(|text| json!({"timestamp": at, "message": text}))
                .into_iter()
                .collect();
            Reply::Json(
                200,
                json!({"nextForwardToken": (at + events.len()).to_string(), "events": events}),
            )
        }
        // The bucket.
        _ => Reply::Xml(200, ""),
    }
}

struct StudyFixture {
    dir: tempfile::TempDir,
    jobs: Jobs,
    stub: Stub,
}

impl StudyFixture {
    fn new(study: &str, mut step: impl FnMut(&str, &mut Job) + Send + 'static) -> Self {
        let jobs = Jobs::default();
        let known = Arc::clone(&jobs);
        Self::with(study, jobs, move |request, _| answer(&known, &mut step, request))
    }

    fn with(study: &str, jobs: Jobs, answers: impl FnMut(&Request, usize) -> Reply + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.py"), "print('loss=1')").unwrap();
        fs::write(dir.path().join("tune.toml"), study).unwrap();
        let place = Self {
            dir,
            jobs,
            stub: Stub::start(answers),
        };
        let stop = AtomicBool::new(false);
        create(&place.plan(), &place.folder(), &stop, &mut |_, _| {}).unwrap();
        StudyTarget::new("my study", "eu-west-1")
            .save(&place.folder())
            .unwrap();
        place
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("tune.study")
    }

    fn plan(&self) -> Plan {
        Plan::read(&self.dir.path().join("tune.toml")).unwrap()
    }

    fn client(&self) -> Client {
        self.stub.client(Duration::from_millis(300))
    }

    fn run_until(
        &self,
        stop: &AtomicBool,
        mut see: impl FnMut(&StudyEvent<'_>, &History),
    ) -> Result<Ending, TrialsError> {
        let options = options(&self.stub.address, Duration::from_millis(300));
        let client = self.client();
        let account = Account {
            client: &client,
            options: &options,
            look: LOOK,
        };
        let study = Study::open(&self.folder()).unwrap();
        let plan = Plan::load(&self.folder()).unwrap();
        run(
            study,
            &plan,
            &self.folder(),
            &account,
            stop,
            &mut |event, history| see(&event, history),
        )
    }

    fn run(&self) -> Result<Ending, TrialsError> {
        self.run_until(&AtomicBool::new(false), |_, _| {})
    }

    fn history(&self) -> History {
        Study::look(&self.folder()).unwrap()
    }

    fn count(&self, operation: &str) -> usize {
        self.stub
            .operations()
            .iter()
            .filter(|one| one.starts_with(operation))
            .count()
    }

    fn requests(&self) -> Vec<Value> {
        let jobs = self.jobs.lock().unwrap();
        jobs.values().map(|job| job.request.clone()).collect()
    }
}

#[test]
fn every_trial_is_a_job_of_its_own_and_the_code_is_uploaded_once() {
    let place = StudyFixture::new(STUDY, print);
    let mut at_once = 0;
    let ending = place.run_until(&AtomicBool::new(false), |_, history| {
        at_once = at_once.max(history.counts().running)
    });
    assert_eq!(ending.unwrap(), Ending::Finished(End::MaxJobs));
    let history = place.history();
    assert_eq!((history.counts().completed, at_once), (4, 2), "{history:?}");
    for trial in &history.trials {
        let level = trial.values["level"].as_f64().unwrap();
        let values: Vec<f64> = trial.reports.iter().map(|report| report.value).collect();
        let wanted: Vec<f64> = (1..=EPOCHS).map(|n| level + 1.0 / n as f64).collect();
        assert_eq!(values, wanted, "{trial:?}");
        assert_eq!(trial.objective(), Some(wanted[EPOCHS - 1]));
    }
    assert_eq!(history.best().unwrap().values["level"], 1);
    assert_eq!(place.count("PUT "), 1, "{:?}", place.stub.operations());
    let name = StudyTarget::load(&place.folder()).unwrap().name;
    assert!(name.starts_with("my-study-"), "{name}");
    let requests = place.requests();
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(request["TrainingJobName"], format!("{name}-{number:03}"));
        assert_eq!(
            request["CheckpointConfig"]["S3Uri"],
            format!("s3://bucket/checkpoints/{name}-{number:03}")
        );
        assert_eq!(
            request["HyperParameters"]["sagemaker_submit_directory"],
            format!("\"s3://bucket/out/{name}/source/sourcedir.tar.gz\"")
        );
    }
}

#[test]
fn a_hopeless_trial_is_stopped_there() {
    let study = STUDY.replace("max-parallel-jobs = 2", "max-parallel-jobs = 1")
        + "[study.early-stopping]\nrule = \"auto\"\nmin-trials = 1\n";
    let place = StudyFixture::new(&study, print);
    place.run().unwrap();
    let history = place.history();
    assert_eq!(history.trials[0].objective(), Some(1.2));
    assert!(
        matches!(
            history.trials[3].outcome,
            Some(Outcome::Stopped { value: Some(_) })
        ),
        "{:?}",
        history.trials[3]
    );
    assert!(history.trials[3].reports.len() < EPOCHS);
    assert_eq!(place.count("StopTrainingJob"), history.counts().stopped);
}

#[test]
fn a_job_that_fails_vanishes_or_never_prints_is_a_failed_trial() {
    let place = StudyFixture::new(STUDY, |name, job| match &name[name.len() - 3..] {
        "000" => job.failure = Some("AlgorithmError: out of memory".to_owned()),
        "001" if !job.lines.is_empty() => job.is_gone = true,
        "002" => job.lines.push("epoch".to_owned()),
        "003" if job.lines.len() == 1 => job.lines.push("loss=NaN".to_owned()),
        _ => print(name, job),
    });
    assert_eq!(place.run().unwrap(), Ending::Finished(End::MaxJobs));
    for (trial, says) in place.history().trials.iter().zip([
        "AlgorithmError: out of memory",
        "vanished from the account",
        "no line of job my-study-",
        "the objective was NaN at step 2",
    ]) {
        let Some(Outcome::Failed { reason }) = &trial.outcome else {
            panic!("{trial:?}")
        };
        assert!(reason.contains(says), "{reason}");
    }
}

#[test]
fn a_trial_that_is_no_number_fails_once_whatever_becomes_of_its_process() {
    for checkpoints in ["checkpoints = \"s3://bucket/checkpoints\"\n", ""] {
        let study = STUDY
            .replace("max-jobs = 4", "max-jobs = 1")
            .replace("checkpoints = \"s3://bucket/checkpoints\"\n", checkpoints);
        let jobs = Jobs::default();
        let known = Arc::clone(&jobs);
        let is_back = Arc::new(AtomicBool::new(false));
        let back = Arc::clone(&is_back);
        let mut step = |name: &str, job: &mut Job| match job.lines.len() {
            1 => job.lines.push("loss=NaN".to_owned()),
            _ => print(name, job),
        };
        let place = StudyFixture::with(&study, jobs, move |request, _| {
            let is_stopped = known.lock().unwrap().values().any(|job| job.is_stopped);
            match request.operation.as_str() {
                // The first process learns that the job is to be stopped, and never that it was.
                "DescribeTrainingJob" if is_stopped && !back.load(Ordering::SeqCst) => {
                    Reply::Json(500, json!({"message": "again"}))
                }
                _ => answer(&known, &mut step, request),
            }
        });
        let stop = AtomicBool::new(false);
        let ending = place.run_until(&stop, |event, _| {
            if matches!(event, StudyEvent::Said(_)) {
                stop.store(true, Ordering::SeqCst);
            }
        });
        assert_eq!(ending.unwrap(), Ending::Interrupted);
        assert_eq!(
            (place.history().counts().running, place.count("StopTrainingJob")),
            (1, 1)
        );
        is_back.store(true, Ordering::SeqCst);
        place.run().unwrap();
        let history = place.history();
        let Some(Outcome::Failed { reason }) = &history.trials[0].outcome else {
            panic!("{history:?}")
        };
        assert!(reason.contains("the objective was NaN at step 2"), "{reason}");
        assert_eq!(
            place.count("CreateTrainingJob"),
            1,
            "{:?}",
            place.stub.operations()
        );
    }
}

#[test]
fn lines_that_were_read_before_cloudwatch_falls_silent_are_reported() {
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    // For longer than the client tries again, once, just after the first line was read: in the same look.
    let mut silent = None;
    let study = STUDY.replace("max-jobs = 4", "max-jobs = 1");
    let place = StudyFixture::with(&study, jobs, move |request, _| {
        if request.operation == "DescribeLogStreams"
            && let Some(left @ 1..) = silent
        {
            silent = Some(left - 1);
            return fault("ThrottlingException", "Rate exceeded");
        }
        let reply = answer(&known, &mut print, request);
        if let Reply::Json(200, body) = &reply
            && body["events"].as_array().is_some_and(|events| !events.is_empty())
        {
            silent.get_or_insert(8);
        }
        reply
    });
    let mut said = 0;
    place
        .run_until(&AtomicBool::new(false), |event, _| {
            said += usize::from(matches!(event, StudyEvent::Said(text) if text.contains("Rate exceeded")));
        })
        .unwrap();
    assert!(said > 0);
    let history = place.history();
    let steps: Vec<(u64, f64)> = history.trials[0]
        .reports
        .iter()
        .map(|report| (report.step, report.value))
        .collect();
    let wanted: Vec<(u64, f64)> = (1..=EPOCHS).map(|n| (n as u64, 1.0 + 1.0 / n as f64)).collect();
    assert_eq!(steps, wanted);
}

#[test]
fn throttling_faults_and_lost_answers_fail_no_trial() {
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let place = StudyFixture::with(STUDY, jobs, move |request, before| {
        match request.operation.as_str() {
            // For longer than the client tries again.
            "CreateTrainingJob" if before < 6 => fault("ThrottlingException", "Rate exceeded"),
            "CreateTrainingJob" if before == 7 => {
                answer(&known, &mut print, request);
                Reply::Closed
            }
            "ListTrainingJobs" | "GetLogEvents" if (4..10).contains(&before) => {
                fault("ThrottlingException", "Rate exceeded")
            }
            "DescribeTrainingJob" if before % 3 == 1 => Reply::Json(500, json!({"message": "again"})),
            _ => answer(&known, &mut print, request),
        }
    });
    let mut said = Vec::new();
    let ending = place.run_until(&AtomicBool::new(false), |event, _| {
        if let StudyEvent::Said(text) = event {
            said.push((*text).to_owned());
        }
    });
    assert_eq!(ending.unwrap(), Ending::Finished(End::MaxJobs));
    let history = place.history();
    assert_eq!(history.counts().completed, 4, "{history:?}");
    assert_eq!(place.jobs.lock().unwrap().len(), 4);
    // No line is lost or read twice.
    for trial in &history.trials {
        let level = trial.values["level"].as_f64().unwrap();
        let steps: Vec<(u64, f64)> = trial
            .reports
            .iter()
            .map(|report| (report.step, report.value))
            .collect();
        let wanted: Vec<(u64, f64)> = (1..=EPOCHS).map(|n| (n as u64, level + 1.0 / n as f64)).collect();
        assert_eq!(steps, wanted, "{trial:?}");
    }
    assert!(
        said.iter()
            .any(|text| text.contains("Rate exceeded") && text.ends_with("it is tried again")),
        "{said:?}"
    );
}

#[test]
fn jobs_go_on_when_the_study_is_left_and_are_found_again() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let place = StudyFixture::new(STUDY, print);
    let ending = place.run_until(&STOP, |event, history| {
        if matches!(event, StudyEvent::Reported(trial) if trial.reports.len() == 2)
            && history.counts().running == 2
        {
            STOP.store(true, Ordering::SeqCst);
        }
    });
    assert_eq!(ending.unwrap(), Ending::Interrupted);
    assert_eq!(place.count("StopTrainingJob"), 0);
    let going = jobs(&place.folder(), &place.history()).unwrap();
    assert_eq!(going.len(), 2, "{going:?}");
    assert_eq!(place.run().unwrap(), Ending::Finished(End::MaxJobs));
    let history = place.history();
    assert_eq!(history.counts().completed, 4);
    assert!(
        history
            .trials
            .iter()
            .all(|trial| trial.reports.len() == EPOCHS && trial.attempt == 1),
        "{history:?}"
    );
    assert_eq!((place.count("CreateTrainingJob"), place.count("PUT ")), (4, 1));
}

#[test]
fn a_trial_outlives_any_number_of_processes_that_follow_it() {
    let place = StudyFixture::new(&STUDY.replace("max-jobs = 4", "max-jobs = 1"), print);
    let name = StudyTarget::load(&place.folder()).unwrap().first(0);
    fs::create_dir_all(place.folder().join("sagemaker")).unwrap();
    fs::write(
        place.folder().join("sagemaker/trial-0.json"),
        json!([name]).to_string(),
    )
    .unwrap();
    for _ in 0..3 {
        // It ends without giving its trial back.
        Study::open(&place.folder()).unwrap().ask().unwrap();
    }
    place.run().unwrap();
    let history = place.history();
    assert_eq!(
        (history.counts().completed, history.trials[0].attempt),
        (1, 4),
        "{history:?}"
    );
}

#[test]
fn a_name_that_was_kept_without_its_job_is_used() {
    let place = StudyFixture::new(STUDY, print);
    let mut study = Study::open(&place.folder()).unwrap();
    study.ask().unwrap();
    let name = StudyTarget::load(&place.folder()).unwrap().first(0);
    fs::create_dir_all(place.folder().join("sagemaker")).unwrap();
    fs::write(
        place.folder().join("sagemaker/trial-0.json"),
        json!([name]).to_string(),
    )
    .unwrap();
    drop(study);
    place.run().unwrap();
    assert_eq!(place.history().counts().completed, 4);
    assert_eq!(place.jobs.lock().unwrap().keys().next(), Some(&name));
}

#[test]
fn sagemakers_own_value_is_the_objective_where_no_lines_come() {
    let study = STUDY.replace("max-jobs = 4", "max-jobs = 1");
    let place = StudyFixture::new(&study, |_, job| {
        job.lines = vec![String::new(); EPOCHS];
        job.last = Some(0.5);
    });
    place.run().unwrap();
    assert_eq!(place.history().trials[0].objective(), Some(0.5));
}

#[test]
fn another_last_value_of_sagemakers_is_said() {
    let study = STUDY.replace("max-jobs = 4", "max-jobs = 1");
    let place = StudyFixture::new(&study, |name, job| {
        print(name, job);
        job.last = Some(7.0);
    });
    let mut said = Vec::new();
    let see = |event: &StudyEvent<'_>, _: &History| {
        if let StudyEvent::Said(text) = event {
            said.push((*text).to_owned());
        }
    };
    place.run_until(&AtomicBool::new(false), see).unwrap();
    assert_eq!(place.history().trials[0].objective(), Some(1.2));
    assert_eq!(
        said,
        ["trial 0: the last line has 1.2, and SageMaker's final value is 7; the lines count"]
    );
}

#[test]
fn jobs_are_stopped_when_the_target_is_reached() {
    let study = STUDY.replace("max-jobs = 4", "max-jobs = 4\ntarget = 1.2");
    let place = StudyFixture::new(&study, |name, job| {
        if name.ends_with("000") || job.lines.is_empty() {
            print(name, job);
        }
    });
    assert_eq!(place.run().unwrap(), Ending::Finished(End::Target));
    assert_eq!(place.count("StopTrainingJob"), 1);
    let statuses: Vec<&str> = place.jobs.lock().unwrap().values().map(Job::status).collect();
    assert_eq!(statuses, ["Completed", "Stopped"]);
}

#[test]
fn a_job_that_vanishes_while_it_is_stopped_ends_no_study() {
    let study = STUDY.replace("max-jobs = 4", "max-jobs = 4\ntarget = 1.2");
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let mut step = |name: &str, job: &mut Job| {
        if name.ends_with("000") || job.lines.is_empty() {
            print(name, job);
        }
    };
    let place = StudyFixture::with(&study, jobs, move |request, _| match &request.operation[..] {
        "StopTrainingJob" => fault("ValidationException", "Requested resource not found."),
        _ => answer(&known, &mut step, request),
    });
    assert_eq!(place.run().unwrap(), Ending::Finished(End::Target));
    assert!(matches!(
        place.history().trials[1].outcome,
        Some(Outcome::Stopped { .. })
    ));
}

/// Each machine may print the same metric.
#[test]
fn steps_are_the_lines_of_the_first_machine() {
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let place = StudyFixture::with(STUDY, jobs, move |request, _| {
        let stream = request.body["logStreamName"].as_str().unwrap_or_default();
        match &request.operation[..] {
            "DescribeLogStreams" => {
                let name = request.body["logStreamNamePrefix"].as_str().unwrap();
                let streams = ["algo-1", "algo-2"]
                    .map(|host| json!({"logStreamName": format!("{name}{host}-1600000000")}));
                Reply::Json(200, json!({"logStreams": streams}))
            }
            "GetLogEvents" if stream.contains("/algo-2-") => {
                let events = match request.body["nextToken"].as_str() {
                    None => vec![json!({"timestamp": 0, "message": "loss=0.01"})],
                    Some(_) => Vec::new(),
                };
                Reply::Json(200, json!({"nextForwardToken": "1", "events": events}))
            }
            _ => answer(&known, &mut print, request),
        }
    });
    assert_eq!(place.run().unwrap(), Ending::Finished(End::MaxJobs));
    for trial in &place.history().trials {
        let steps: Vec<u64> = trial.reports.iter().map(|report| report.step).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5], "{trial:?}");
        assert!(trial.objective().unwrap() > 1.0, "{trial:?}");
    }
}

#[test]
fn a_trial_that_goes_on_after_a_rung_is_a_further_job_with_its_checkpoints() {
    // The third is stopped, and is one of the better half when all have been compared.
    const LEVELS: [f64; 6] = [2.0, 1.0, 3.0, 4.0, 3.5, 3.9];
    let study = STUDY
        .replace(
            "type = \"categorical\"\nvalues = [1, 2, 3, 4]",
            "type = \"continuous\"\nmin = 1.0\nmax = 4.0",
        )
        .replace(
            "strategy = \"grid\"",
            &format!(
                "strategy = \"random\"\nenqueue = [{}]",
                LEVELS.map(|level| format!("{{ level = {level:.1} }}")).join(", ")
            ),
        )
        .replace("max-jobs = 4", "max-jobs = 6")
        + "[study.early-stopping]\nrule = \"asha\"\n[study.rungs]\nmin-steps = 1\nmax-steps = 5\nreduction = 2\n";
    let place = StudyFixture::new(&study, |name, job| {
        // A further job prints what is left.
        print(name, job);
        let parts = name.split('-').count();
        if parts > 4 {
            job.lines.resize(EPOCHS, String::new());
        }
    });
    place.run().unwrap();
    let jobs = place.jobs.lock().unwrap();
    let further: Vec<&String> = jobs.keys().filter(|name| name.ends_with("-2")).collect();
    assert!(!further.is_empty(), "{:?}", jobs.keys());
    for name in further {
        let first = &jobs[name.trim_end_matches("-2")];
        assert_eq!(
            jobs[name].request["CheckpointConfig"],
            first.request["CheckpointConfig"]
        );
        assert!(first.is_stopped, "{first:?}");
        let number: usize = name.split('-').nth(3).unwrap().parse().unwrap();
        let trial = &place.history().trials[number];
        assert!(trial.reports.len() > first.lines.len(), "{trial:?} {first:?}");
    }
}

#[test]
fn what_the_account_does_not_allow_ends_the_run_and_not_the_jobs() {
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let place = StudyFixture::with(STUDY, jobs, move |request, before| {
        match request.operation.as_str() {
            "GetLogEvents" if before > 6 => fault("ExpiredTokenException", "The security token is expired"),
            _ => answer(&known, &mut print, request),
        }
    });
    let error = place.run().unwrap_err();
    let text = error.to_string();
    assert!(error.is_input(), "{error:?}");
    for says in [
        "is expired",
        "AWS_PROFILE",
        "2 of the study's jobs continue there",
        "--on sagemaker",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(place.history().counts().running, 2);
    assert_eq!(place.count("StopTrainingJob"), 0);
}

#[test]
fn a_quota_is_waited_for_while_others_run_and_ends_the_run_where_none_does() {
    let full = "The account-level service limit 'ml.g5.xlarge for training job usage' is 1 Instances";
    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let place = StudyFixture::with(STUDY, jobs, move |request, _| {
        let running = known
            .lock()
            .unwrap()
            .values()
            .filter(|job| job.status() == "InProgress")
            .count();
        match request.operation.as_str() {
            "CreateTrainingJob" if running > 0 => fault("ResourceLimitExceeded", full),
            _ => answer(&known, &mut print, request),
        }
    });
    place.run().unwrap();
    assert_eq!(place.history().counts().completed, 4);

    let jobs = Jobs::default();
    let known = Arc::clone(&jobs);
    let place = StudyFixture::with(STUDY, jobs, move |request, _| match request.operation.as_str() {
        "CreateTrainingJob" => fault("ResourceLimitExceeded", full),
        _ => answer(&known, &mut print, request),
    });
    let error = place.run().unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("account-level service limit"),
        "{error}"
    );
    assert_eq!(place.history().counts().failed, 0);
}

#[test]
fn what_has_no_counterpart_is_said_before_anything_is_made() {
    let plan = |change: &dyn Fn(&mut Plan)| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tune.toml"), STUDY).unwrap();
        fs::write(dir.path().join("train.py"), "pass\n").unwrap();
        let mut plan = Plan::read(&dir.path().join("tune.toml")).unwrap();
        change(&mut plan);
        check(&plan, "eu-west-1").map_err(|error| (error.is_input(), error.to_string()))
    };
    plan(&|_| {}).unwrap();
    type Case<'a> = (&'a dyn Fn(&mut Plan), &'a str);
    let cases: [Case<'_>; 5] = [
        (
            &|plan| plan.timeline = true,
            "leave timeline and metrics-file out",
        ),
        (
            &|plan| plan.metrics_file = Some("m.jsonl".into()),
            "leave timeline and metrics-file out",
        ),
        (
            &|plan| plan.prepare = vec!["train".into()],
            "SageMaker cannot read",
        ),
        (&|plan| plan.job.sagemaker = None, "no section [sagemaker]"),
        (&|plan| plan.job.output = None, "output = \"s3://"),
    ];
    for (change, says) in cases {
        let (is_input, text) = plan(change).unwrap_err();
        assert!(is_input && text.contains(says), "{text}");
    }
    let notes = plan(&|plan| plan.job.checkpoints = None).unwrap();
    assert!(notes.iter().any(|note| note.contains("starts over")), "{notes:?}");
}
