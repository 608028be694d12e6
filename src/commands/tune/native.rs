//! A study as one tuning job of SageMaker's own: made, followed, shown, stopped, and turned back into a study's file.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use stokehold_objects::Options;
use stokehold_sagemaker::{Client, JobStatus, ObjectiveType, Resource, TunedJob, TuningJob, follow_tuning};
use stokehold_tune::sagemaker::{Imported, Native, decoded};
use stokehold_tune::{Plan, in_words, short};

use crate::asked::{self, Asked};
use crate::terminal::note;
use crate::{files, interrupt, shell, terminal};

/// How often SageMaker is asked.
const LOOK: Duration = Duration::from_secs(10);

/// How many of the best training jobs are shown.
const BEST: usize = 5;

/// What becomes of a tuning job.
#[derive(Debug)]
pub struct Way<'a> {
    /// Its name; none to make one.
    pub name: Option<&'a str>,
    /// The request is printed, and nothing is sent.
    pub dry_run: bool,
    /// The name is printed, and nothing is waited for.
    pub detach: bool,
}

/// A client that tries as long as for any job.
pub fn client(plan: &Plan, region: Option<&str>) -> Result<Client, Box<dyn Error>> {
    let section = stokehold_sagemaker::Plan::section(&plan.job)?;
    Ok(asked::client(
        region.or(section.region.as_deref()),
        &Options::default(),
    )?)
}

/// Creates a tuning job, and follows it to its end. `study` is what its name is made of.
pub fn run(plan: &Plan, study: &str, client: Client, way: &Way<'_>) -> Result<ExitCode, Box<dyn Error>> {
    let name = way.name.map_or_else(|| Native::name(study), str::to_owned);
    let native = Native::new(plan, &name, client.region())?;
    for note in native.notes.iter().chain(&native.source.notes()?) {
        writeln!(terminal::err(), "note: {note}")?;
    }
    if way.dry_run {
        let (place, region) = (&native.source_uri, client.region());
        writeln!(
            terminal::err(),
            "nothing is sent; the code would be at {place} in {region}"
        )?;
        super::at_sagemaker::say_cost(plan)?;
        // What was judged is the request as it would be sent; what is printed is copied elsewhere, so it has no secrets.
        let mut shown = plan.clone();
        shown.job = plan.job.without_secrets();
        terminal::json(&Native::new(&shown, &name, client.region())?.request)?;
        return Ok(ExitCode::SUCCESS);
    }
    let client = Arc::new(client);
    let asked = Asked::new(&client, Resource::TuningJob, &name)?;
    client.require_free_tuning_job(&name)?;
    let options = Options::default().in_region(client.region());
    native.source.upload(&native.source_uri, &options)?;
    let arn = asked.create(|client| client.create_tuning_job(&native.request))?;
    if way.detach {
        writeln!(io::stdout(), "{name}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(terminal::err(), "tuning job {name} is created: {arn}")?;
    let followed = follow_tuning(&client, &name, LOOK, &mut |ended| {
        // The reader may go away; the job continues.
        let _ = writeln!(terminal::err(), "{}", line(ended));
    });
    if followed.is_err() {
        let again = again("status", &name, client.region());
        writeln!(
            terminal::err(),
            "unless it has ended, tuning job {name} goes on; this shows it: {again}"
        )?;
    }
    end(&client, &followed?)
}

fn again(command: &str, name: &str, region: &str) -> String {
    let words = ["tune", command, name, "--on", "sagemaker", "--region", region];
    shell::again(words.map(std::ffi::OsStr::new))
}

/// `flowers-001 Completed: 0.25 with lr=0.1`.
fn line(job: &TunedJob) -> String {
    let mut text = format!("{} {}", job.training_job_name, job.training_job_status);
    if let Some(objective) = &job.objective {
        text += &format!(": {}", short(objective.value));
    }
    text += &format!(" with {}", in_words(&decoded(&job.tuned_hyper_parameters)));
    if let Some(reason) = &job.failure_reason {
        text += &format!(": {reason}");
    }
    text
}

/// The state of a tuning job, and its best training jobs.
fn described(job: &TuningJob, jobs: &[TunedJob]) -> String {
    let config = &job.hyper_parameter_tuning_job_config;
    let mut text = format!(
        "tuning job {} {}",
        job.hyper_parameter_tuning_job_name, job.hyper_parameter_tuning_job_status
    );
    if let Some(reason) = &job.failure_reason {
        text += &format!(": {reason}");
    }
    let count = |wanted: &JobStatus| {
        jobs.iter()
            .filter(|job| job.training_job_status == *wanted)
            .count()
    };
    text += &format!(
        "\n{:?}, {} training jobs: {} completed, {} stopped, {} failed, {} running\n",
        config.strategy,
        jobs.len(),
        count(&JobStatus::Completed),
        count(&JobStatus::Stopped),
        count(&JobStatus::Failed),
        jobs.iter()
            .filter(|job| !job.training_job_status.is_final())
            .count(),
    );
    let objective = config.hyper_parameter_tuning_job_objective.as_ref();
    let is_larger_better = objective.is_some_and(|objective| objective.r#type == ObjectiveType::Maximize);
    let mut best: Vec<(&TunedJob, f64)> = jobs
        .iter()
        .filter(|job| job.training_job_status == JobStatus::Completed)
        .filter_map(|job| Some((job, job.objective.as_ref()?.value)))
        .filter(|(_, value)| value.is_finite())
        .collect();
    best.sort_by(|a, b| match is_larger_better {
        true => b.1.total_cmp(&a.1),
        false => a.1.total_cmp(&b.1),
    });
    for (job, _) in best.iter().take(BEST) {
        text += &format!("  {}\n", line(job));
    }
    text
}

fn end(client: &Client, job: &TuningJob) -> Result<ExitCode, Box<dyn Error>> {
    let jobs = client.tuned_jobs(&job.hyper_parameter_tuning_job_name)?;
    write!(terminal::out(), "{}", described(job, &jobs))?;
    if let Some(best) = &job.best_training_job {
        writeln!(
            terminal::out(),
            "the best training job: {}",
            best.training_job_name
        )?;
    }
    Ok(
        match (&job.hyper_parameter_tuning_job_status, &job.best_training_job) {
            (JobStatus::Completed, Some(_)) => ExitCode::SUCCESS,
            (JobStatus::Stopped, _) => ExitCode::from(interrupt::EXIT_CODE),
            _ => ExitCode::FAILURE,
        },
    )
}

/// Says how far a tuning job is.
pub fn status(name: &str, region: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let client = asked::client(region, &Options::default())?;
    let job = client.describe_tuning_job(name)?;
    write!(terminal::out(), "{}", described(&job, &client.tuned_jobs(name)?))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks SageMaker to stop a tuning job.
pub fn stop(name: &str, region: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    asked::client(region, &Options::default())?.stop_tuning_job(name)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the study's file that a tuning job's description makes.
pub fn import(name: &str, file: &Path, region: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let client = asked::client(region, &Options::default())?;
    let job = client.describe_tuning_job(name)?;
    let tags = client
        .tags(&job.hyper_parameter_tuning_job_arn)
        .unwrap_or_else(|error| {
            note!("note: the tuning job's labels are not read: {error}");
            BTreeMap::new()
        });
    let imported = Imported::new(&job, client.region(), &tags)?;
    files::write_new(file, &imported.to_toml()?)?;
    for left in &imported.left {
        writeln!(terminal::err(), "note: {left}")?;
    }
    writeln!(terminal::err(), "{} is written", file.display())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_best_come_first_and_the_better_is_by_the_objective() {
        let job = |kind: &str| -> TuningJob {
            serde_json::from_value(json!({
                "HyperParameterTuningJobName": "flowers", "HyperParameterTuningJobArn": "arn",
                "HyperParameterTuningJobStatus": "InProgress", "CreationTime": 1.6e9,
                "HyperParameterTuningJobConfig": {
                    "Strategy": "Bayesian", "ResourceLimits": {"MaxParallelTrainingJobs": 1},
                    "HyperParameterTuningJobObjective": {"Type": kind, "MetricName": "loss"},
                },
            }))
            .unwrap()
        };
        let tuned = |name: &str, status: &str, value: Option<f64>| -> TunedJob {
            let mut job = json!({
                "TrainingJobName": name, "TrainingJobStatus": status, "CreationTime": 1.6e9,
                "TunedHyperParameters": {"lr": "0.1", "optimizer": "\"sgd\""},
            });
            if let Some(value) = value {
                job["FinalHyperParameterTuningJobObjectiveMetric"] =
                    json!({"MetricName": "loss", "Value": value});
            }
            serde_json::from_value(job).unwrap()
        };
        let jobs = [
            tuned("a", "Completed", Some(0.5)),
            tuned("b", "Completed", Some(0.25)),
            tuned("c", "Stopped", Some(0.1)),
            tuned("d", "InProgress", None),
        ];
        let first = "tuning job flowers InProgress\nBayesian, 4 training jobs: 2 completed, 1 stopped, 0 failed, 1 running\n";
        let (a, b) = (
            "  a Completed: 0.5 with lr=0.1 optimizer=sgd\n",
            "  b Completed: 0.25 with lr=0.1 optimizer=sgd\n",
        );
        assert_eq!(described(&job("Minimize"), &jobs), format!("{first}{b}{a}"));
        assert_eq!(described(&job("Maximize"), &jobs), format!("{first}{a}{b}"));
    }
}
