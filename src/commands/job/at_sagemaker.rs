//! Jobs on SageMaker. The account is the only place that knows them: nothing is kept here.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_jobs::{Job, Line};
use stokehold_objects::Options;
use stokehold_sagemaker::{
    Client, Cost, JobStatus, LogLine, Machines, News, Plan, TrainingJob, TrainingJobSummary, follow, followed,
};

use super::{ended, print, show};
use crate::asked::{self, RequestedJob};
use crate::failure::Usage;
use crate::{interrupt, terminal};

/// Whose jobs are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// Jobs of your SageMaker account.
    Sagemaker,
}

/// Jobs that are elsewhere.
#[derive(Debug, ClapArgs)]
pub struct At {
    /// Act on a job of your SageMaker account in place of a local one
    #[arg(long, value_name = "PLACE", value_enum)]
    on: Option<On>,
    /// SageMaker's region [default: AWS_REGION, or the profile's]
    #[arg(long, value_name = "REGION", requires = "on")]
    region: Option<String>,
}

impl At {
    /// The client, if the job is on SageMaker.
    pub fn client(&self) -> Result<Option<Client>, Box<dyn Error>> {
        Ok(match self.on {
            Some(On::Sagemaker) => Some(asked::client(self.region.as_deref(), &Options::default())?),
            None => None,
        })
    }
}

/// How often SageMaker is asked about a job: an account may ask a few times a second, for all of its jobs.
const LOOK: Duration = Duration::from_secs(5);

/// The most jobs of a list.
const NEWEST: usize = 100;

/// What becomes of a job that is handed to SageMaker.
#[derive(Debug, Clone, Copy)]
pub struct SubmitOptions {
    /// The request is printed, and nothing is sent.
    pub dry_run: bool,
    /// The name is printed, and nothing is waited for.
    pub detach: bool,
    /// The end is printed as JSON.
    pub json: bool,
}

/// Hands a job to SageMaker, and follows it.
pub fn run(job: &Job, submit: SubmitOptions) -> Result<ExitCode, Box<dyn Error>> {
    let section = Plan::section(job)?;
    let options = Options::default();
    let client = asked::client(section.region.as_deref(), &options)?;
    let name = job.name_or_made();
    let plan = Plan::new(job, &name, client.region())?;
    if submit.dry_run {
        say_notes(&plan)?;
        writeln!(
            terminal::err(),
            "nothing is sent; the code would be at {} in {}",
            plan.source_uri,
            client.region()
        )?;
        match Cost::of(job) {
            Ok(cost) => writeln!(terminal::err(), "{cost}")?,
            Err(error) => writeln!(terminal::err(), "note: {error}")?,
        }
        // What was judged is the request as it would be sent; what is printed is copied elsewhere, so it has no secrets.
        let shown = Plan::new(&job.without_secrets(), &name, client.region())?;
        terminal::json(&shown.request)?;
        return Ok(ExitCode::SUCCESS);
    }
    say_notes(&plan)?;
    let client = Arc::new(client);
    let asked = RequestedJob::new(&client, &name)?;
    writeln!(
        terminal::err(),
        "job {name}: its code goes to {}, and the job to {}",
        plan.source_uri,
        client.region()
    )?;
    plan.upload(&client, &options)?;
    let arn = asked.create(&plan.request)?;
    if submit.detach {
        writeln!(io::stdout(), "{name}")?;
        writeln!(terminal::err(), "{}", followed(&name, client.region()))?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(terminal::err(), "job {name} is created: {arn}")?;
    let job = follow(
        &client,
        &name,
        LOOK,
        &AtomicBool::new(false),
        &mut |news| match news {
            News::State(job) => say_state(job),
            News::Line(line) => print_line(line, if submit.json { "err" } else { "out" }),
        },
    )?;
    match submit.json {
        true => terminal::json(&job.without_secrets())?,
        false => writeln!(terminal::err(), "{}", end(&job))?,
    }
    Ok(code(&job))
}

fn say_notes(plan: &Plan) -> Result<(), Box<dyn Error>> {
    for note in plan.notes.iter().chain(&plan.source.notes()?) {
        writeln!(terminal::err(), "note: {note}")?;
    }
    Ok(())
}

/// The reader may go away; the job continues.
fn say_state(job: &TrainingJob) {
    let last = job.secondary_status_transitions.last();
    let message = last
        .and_then(|state| state.status_message.as_deref())
        .unwrap_or_default();
    let _ = match (job.training_job_status.is_final(), message) {
        // The end is reported later, with all details.
        (true, _) => Ok(()),
        (_, "") => writeln!(
            terminal::err(),
            "job {} {}",
            job.training_job_name,
            job.secondary_status
        ),
        _ => writeln!(
            terminal::err(),
            "job {} {}: {message}",
            job.training_job_name,
            job.secondary_status
        ),
    };
}

fn print_line(line: &LogLine, stream: &str) {
    let _ = print(&Line {
        time: line.time as f64 / 1e3,
        host: &line.host,
        stream,
        text: &line.text,
    });
}

/// The exit code for a job's end.
fn code(job: &TrainingJob) -> ExitCode {
    match job.training_job_status {
        JobStatus::Completed => ExitCode::SUCCESS,
        JobStatus::Stopped if !job.is_late() => ExitCode::from(interrupt::EXIT_CODE),
        _ => ExitCode::FAILURE,
    }
}

/// Prints the newest jobs of the account, the oldest of them first.
pub fn list(client: &Client, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let mut jobs = client.list(NEWEST)?;
    jobs.reverse();
    match json {
        true => terminal::json(&jobs)?,
        false => write!(terminal::out(), "{}", table(&jobs))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(jobs: &[TrainingJobSummary]) -> String {
    let mut rows = vec![["NAME", "STATE", "CREATED", "TOOK"].map(str::to_owned)];
    rows.extend(jobs.iter().map(|job| {
        [
            job.training_job_name.clone(),
            job.training_job_status.to_string(),
            show::date(job.creation_time),
            took(job.creation_time, job.training_end_time),
        ]
    }));
    show::table(&rows)
}

/// Prints what SageMaker says about a job.
pub fn show(client: &Client, name: &str, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let job = client.describe(name)?;
    match json {
        true => terminal::json(&job.without_secrets())?,
        false => write!(terminal::out(), "{}", described(&job))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a job's lines, and continues until its end if it is followed.
pub fn logs(
    client: &Client,
    name: &str,
    is_followed: bool,
    host: Option<&str>,
) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::leave("leaving; the job continues")?;
    let show = |line: &LogLine| {
        if host.is_none_or(|host| line.host == host) {
            print_line(line, "out");
        }
    };
    if is_followed {
        let forever = AtomicBool::new(false);
        follow(client, name, LOOK, &forever, &mut |news| match news {
            News::State(job) => say_state(job),
            News::Line(line) => show(line),
        })?;
    } else {
        // So that an unknown name is an error; CloudWatch has no lines of it.
        client.describe(name)?;
        let mut position = stokehold_sagemaker::LogPosition::default();
        loop {
            let lines = client.lines(name, &mut position)?;
            lines.iter().for_each(show);
            if lines.is_empty() {
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks SageMaker to stop a job.
pub fn stop(client: &Client, name: &str, now: bool) -> Result<ExitCode, Box<dyn Error>> {
    if now {
        let text = "--now has no counterpart on SageMaker: a script that is stopped gets 120 s; leave it out";
        return Err(Usage(text.to_owned()).into());
    }
    client.stop(name)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for a job's end.
pub fn wait(
    client: &Client,
    name: &str,
    timeout: Option<Duration>,
    json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let job = ended(
        name,
        LOOK,
        timeout,
        || Ok(client.describe(name)?),
        |job| (job.training_job_status.is_final(), job.secondary_status.clone()),
    )?;
    match json {
        true => terminal::json(&job.without_secrets())?,
        false => writeln!(terminal::out(), "{}", end(&job))?,
    }
    Ok(code(&job))
}

fn state(job: &TrainingJob) -> String {
    let coarse = job.training_job_status.to_string();
    match job.secondary_status == coarse {
        true => coarse,
        false => format!("{coarse} ({})", job.secondary_status),
    }
}

fn took(created: f64, ended: Option<f64>) -> String {
    show::duration(ended.unwrap_or_else(stokehold_base::clock::unix_now) - created)
}

/// The end of a job, in some lines.
fn end(job: &TrainingJob) -> String {
    let mut text = format!("job {} {}", job.training_job_name, state(job));
    if let Some(reason) = &job.failure_reason {
        text += &format!(": {reason}");
    }
    for (name, value) in facts(job) {
        text += &format!("\n{name}: {value}");
    }
    text
}

/// What is known at the end: metrics, the model, seconds and savings.
fn facts(job: &TrainingJob) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let metrics = job.final_metric_data_list.iter();
    let metrics: Vec<String> = metrics
        .map(|metric| format!("{}={}", metric.metric_name, metric.value))
        .collect();
    if !metrics.is_empty() {
        facts.push(("metrics", metrics.join(", ")));
    }
    let model = job.model_artifacts.as_ref();
    if let Some(model) = model.filter(|_| job.training_job_status == JobStatus::Completed) {
        facts.push(("model", model.s3_model_artifacts.clone()));
    }
    if let (Some(training), Some(billable)) = (job.training_time_in_seconds, job.billable_time_in_seconds) {
        let mut text = format!("training seconds: {training:.0}, billable seconds: {billable:.0}");
        if let Some(savings) = job.savings() {
            text += &format!(", savings: {:.1}%", 100.0 * savings);
        }
        facts.push(("bill", text));
    }
    if let Some(place) = recording(job) {
        facts.push(("recording", place));
    }
    facts
}

/// Where a job's profiler puts what it records.
pub fn recording(job: &TrainingJob) -> Option<String> {
    let profiler = job.profiler_config.as_ref();
    let place = profiler.and_then(|profiler| profiler.s3_output_path.as_deref())?;
    let place = place.trim_end_matches('/');
    Some(format!("{place}/{}/profiler-output", job.training_job_name))
}

fn described(job: &TrainingJob) -> String {
    let mut rows = vec![
        ("name", job.training_job_name.clone()),
        ("state", state(job)),
        ("reason", job.failure_reason.clone().unwrap_or_default()),
        ("arn", job.training_job_arn.clone()),
        ("created", show::date(job.creation_time)),
        ("took", took(job.creation_time, job.training_end_time)),
        ("states", states(job)),
        (
            "machines",
            format!(
                "{}{}",
                machines(&job.resource_config),
                if job.enable_managed_spot_training {
                    ", spot"
                } else {
                    ""
                }
            ),
        ),
    ];
    let arguments = job.without_secrets().hyper_parameters.into_iter();
    let arguments: Vec<String> = arguments
        .filter(|(name, _)| !name.starts_with("sagemaker_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    rows.push(("arguments", arguments.join(" ")));
    rows.extend(facts(job));
    rows.iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:<12}{value}\n"))
        .collect()
}

fn machines(machines: &Machines) -> String {
    let groups = machines.instance_groups.iter();
    let groups: Vec<String> = groups
        .map(|group| {
            format!(
                "{} {} ({})",
                group.instance_count, group.instance_type, group.instance_group_name
            )
        })
        .collect();
    match groups.is_empty() {
        true => format!("{} {}", machines.instance_count, machines.instance_type),
        false => groups.join(", "),
    }
}

fn states(job: &TrainingJob) -> String {
    let states = &job.secondary_status_transitions;
    let ends = states
        .iter()
        .skip(1)
        .map(|next| Some(next.start_time))
        .chain([None]);
    let each = states.iter().zip(ends).map(|(state, end)| match end {
        Some(end) => format!("{} {}", state.status, show::duration(end - state.start_time)),
        None => state.status.clone(),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_end_has_its_metrics_and_its_savings() {
        let job: TrainingJob = serde_json::from_value(serde_json::json!({
            "TrainingJobName": "flowers-1",
            "TrainingJobArn": "arn",
            "TrainingJobStatus": "Completed",
            "SecondaryStatus": "Completed",
            "SecondaryStatusTransitions": [
                {"Status": "Starting", "StartTime": 1.6e9},
                {"Status": "Training", "StartTime": 1.6e9 + 60.0},
                {"Status": "Completed", "StartTime": 1.6e9 + 460.0},
            ],
            "CreationTime": 1.6e9,
            "TrainingEndTime": 1.6e9 + 460.0,
            "EnableManagedSpotTraining": true,
            "TrainingTimeInSeconds": 400,
            "BillableTimeInSeconds": 100,
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.25, "Timestamp": 1.6e9}],
            "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/flowers-1/output/model.tar.gz"},
            "ProfilerConfig": {"S3OutputPath": "s3://bucket/out/"},
            "HyperParameters": {"lr": "0.1", "sagemaker_program": "\"train.py\""},
            "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
        }))
        .unwrap();
        assert_eq!(
            end(&job),
            "job flowers-1 Completed\nmetrics: loss=0.25\nmodel: s3://bucket/out/flowers-1/output/model.tar.gz\n\
             bill: training seconds: 400, billable seconds: 100, savings: 75.0%\n\
             recording: s3://bucket/out/flowers-1/profiler-output"
        );
        let text = described(&job);
        for row in [
            "states      Starting 1m, Training 6m 40s, Completed\n",
            "machines    2 ml.g5.xlarge, spot\n",
            "arguments   lr=0.1\n",
            "took        7m 40s\n",
        ] {
            assert!(text.contains(row), "{text}");
        }
        assert!(!text.contains("reason"), "{text}");
    }
}
