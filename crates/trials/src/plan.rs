//! The description of a study of jobs, as a file has it: what to tune, the job of a trial, and the data that
//! all trials share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_base::whole;
use stokehold_jobs::{Job, Kind, Mode, Sharing};
use stokehold_sagemaker::section;
use stokehold_tune::{Spec, TuneError, Values};

use crate::TrialsError;
use crate::error::input;

/// The file in a study's folder that describes the jobs of its trials.
const PLAN: &str = "plan.json";

/// A study of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Plan {
    /// What to tune, and how.
    pub study: Spec,
    /// The job of a trial: a table with the keys of a job file but for `name`, or the path of a job file.
    #[schemars(with = "TableOrFile")]
    pub job: Job,
    /// The path of a file of JSON lines that the job writes, below its instance's folder:
    /// `output/data/run/metrics.jsonl`. The objective is a key of its lines; of lines with the key `kind`,
    /// only those with `kind` `epoch` count. Default: the objective is elsewhere, one of the job's metrics or
    /// sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_file: Option<PathBuf>,
    /// Whether the objective is a metric that the job sends to the socket that `STOKEHOLD_TIMELINE` names:
    /// `metric NAME VALUE [step=N]`.
    #[serde(default)]
    pub timeline: bool,
    /// The names of channels whose images are converted to shards once, before the first trial, for all
    /// trials. No pixel changes. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<String>,
}

/// The job as a study file may have it.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum TableOrFile {
    Table(Box<Job>),
    /// The path of a job file.
    File(String),
}

/// The form in a file, where the job may be a separate file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Written {
    study: Spec,
    job: toml::Value,
    #[serde(default)]
    metrics_file: Option<PathBuf>,
    #[serde(default)]
    timeline: bool,
    #[serde(default)]
    prepare: Vec<String>,
}

impl Plan {
    /// An example file that explains every key.
    pub fn template() -> &'static str {
        include_str!("tune.toml")
    }

    /// The JSON schema of a study file, for editors and other programs. [`check`](Self::check) tests the
    /// rules that a schema cannot express.
    pub fn schema() -> Value {
        section::in_schema(schemars::schema_for!(Self).to_value())
    }

    /// Reads the file of a study. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`TuneError::File`] with the line; the errors of [`check`](Self::check).
    pub fn read(path: &Path) -> Result<Self, TrialsError> {
        let wrong = |line, reason| {
            TrialsError::from(TuneError::File {
                path: path.to_owned(),
                line,
                reason,
            })
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(None, error.to_string()))?;
        let of_toml = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            wrong(
                before.map(|before| before.matches('\n').count() + 1),
                error.message().to_owned(),
            )
        };
        let mut written: Written = toml::from_str(&text).map_err(of_toml)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let job = match written.job {
            toml::Value::String(job) => section::read(&folder.join(job))?,
            table => {
                let job: Result<Job, toml::de::Error> = table.try_into();
                let job = job.map_err(|error| wrong(None, format!("[job]: {}", error.message())))?;
                let job = section::settled(job).map_err(|error| wrong(None, format!("[job]: {error}")))?;
                job.within(folder)
            }
        };
        if let Some(warm) = &mut written.study.warm_start {
            for parent in &mut warm.parents {
                // Absolute, because the study is compared with its file later, possibly from another folder.
                let path = folder.join(&*parent);
                *parent = std::path::absolute(&path).map_err(TrialsError::io(&path))?;
            }
        }
        let plan = Self {
            study: written.study,
            job,
            metrics_file: written.metrics_file,
            timeline: written.timeline,
            prepare: written.prepare,
        };
        plan.check().map_err(|error| match error {
            TrialsError::Tune(TuneError::Input(reason)) => wrong(None, reason),
            other => other,
        })?;
        Ok(plan)
    }

    /// Checks whether it can run, as far as possible without file or network access.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), TrialsError> {
        self.study.check()?;
        section::check(&self.job)?;
        if self.job.name.is_some() {
            return input("the job has a name; trials are named by their numbers, so leave it out");
        }
        self.prepare
            .iter()
            .try_for_each(|name| self.check_prepared(name))?;
        let objective = &self.study.objective;
        let is_metric = self.job.metrics.iter().any(|metric| &metric.name == objective);
        let places = [
            (is_metric, "one of the job's metrics"),
            (self.metrics_file.is_some(), "in metrics-file"),
            (self.timeline, "sent (timeline)"),
        ];
        let places: Vec<&str> = places
            .iter()
            .filter_map(|(is_so, place)| is_so.then_some(*place))
            .collect();
        match places[..] {
            [] => input(format!(
                "nothing says where {objective:?} is: name it among the job's metrics, with a regex ([[job.metrics]]), or name the \
                 file of JSON lines that has it (metrics-file), or say that the job sends it (timeline)"
            )),
            [first, second, ..] => input(format!(
                "{objective:?} is both {first} and {second}; leave one out"
            )),
            [_] if self.timeline && !self.job.profile => input(
                "what a job sends is taken where it is recorded: leave the job's profile = false out, or timeline",
            ),
            [_] if self.timeline && objective.contains(char::is_whitespace) => input(format!(
                "the names of metrics that are sent have no white space, and {objective:?} has"
            )),
            [_] => Ok(()),
        }
    }

    /// Checks whether a channel can be prepared, as far as possible without its data.
    fn check_prepared(&self, name: &str) -> Result<(), TrialsError> {
        let Some(channel) = self.job.channels.get(name) else {
            return input(format!("prepare: {name:?} is no channel of the job"));
        };
        let is_whole = matches!(channel.mode, None | Some(Mode::File | Mode::Dir))
            && (channel.kind, channel.distribution) == (Kind::S3Prefix, Sharing::FullyReplicated);
        match is_whole {
            true => Ok(()),
            false => input(format!(
                "prepare: channel {name} is no folder that every instance gets whole and as it is; leave its mode, kind and \
                 distribution out, or take it out of prepare"
            )),
        }
    }

    /// Reads the plan of a study's folder.
    ///
    /// # Errors
    /// There is none.
    pub fn load(folder: &Path) -> Result<Self, TrialsError> {
        let path = folder.join(PLAN);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                TuneError::Input(format!("there is no study of jobs in {}", folder.display())).into()
            }
            _ => TrialsError::io(&path)(error),
        })?;
        let wrong = |line, reason| TrialsError::from(TuneError::File { path, line, reason });
        let plan: Self = match serde_json::from_slice(&text) {
            Ok(plan) => plan,
            Err(error) => return Err(wrong(Some(error.line()), error.to_string())),
        };
        match section::of(&plan.job) {
            Ok(_) => Ok(plan),
            Err(error) => Err(wrong(None, error.to_string())),
        }
    }

    /// Stores it in a study's folder, which is created.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), TrialsError> {
        fs::create_dir_all(folder).map_err(TrialsError::io(folder))?;
        let path = folder.join(PLAN);
        let mut plan = self.clone();
        let here = std::env::current_dir().map_err(TrialsError::io(Path::new(".")))?;
        if let (None, Some(file)) = (&plan.job.source_dir, plan.job.entry_point.file()) {
            // Only the file itself is stored with the study, because its folder is not a key of a job.
            let source = folder.join("source");
            let (from, to) = (plan.job.beside.join(file), source.join(file));
            fs::create_dir_all(to.parent().unwrap_or(&source)).map_err(TrialsError::io(&source))?;
            fs::copy(&from, &to)
                .map_err(|error| TuneError::Input(format!("the entry point {}: {error}", from.display())))?;
            plan.job.source_dir = Some(source);
        }
        plan.job = plan.job.within(&here);
        let text = serde_json::to_vec_pretty(&plan).map_err(|error| TuneError::Input(error.to_string()))?;
        whole::write(&path, text).map_err(TrialsError::io(&path))
    }

    /// The job of a trial: `{NAME}` in hyperparameters and variables is replaced by the value of the
    /// parameter NAME. Parameters without such a placeholder become hyperparameters. Its checkpoints go to a
    /// folder of the job's name at the study's place, so that no trial continues from another's.
    pub fn job_of(&self, name: &str, values: &Values) -> Job {
        let mut job = self.job.clone();
        job.name = Some(name.to_owned());
        if let Some(place) = &mut job.checkpoints {
            *place = format!("{}/{name}", place.trim_end_matches('/'));
        }
        let mut placed = BTreeSet::new();
        for value in job.hyperparameters.values_mut() {
            fill(value, values, &mut placed);
        }
        for text in job.environment.values_mut() {
            *text = fill_text(text, values, &mut placed);
        }
        for (name, value) in values {
            if !placed.contains(name) {
                job.hyperparameters.insert(name.clone(), value.clone());
            }
        }
        job
    }
}

fn fill(at: &mut Value, values: &Values, placed: &mut BTreeSet<String>) {
    match at {
        Value::String(text) => {
            let whole = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            // A placeholder that is the whole text keeps the value's type: a number stays a number.
            match whole.and_then(|name| values.get_key_value(name)) {
                Some((name, value)) => {
                    placed.insert(name.clone());
                    *at = value.clone();
                }
                None => *text = fill_text(text, values, placed),
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| fill(one, values, placed)),
        Value::Object(all) => all.values_mut().for_each(|one| fill(one, values, placed)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fill_text(text: &str, values: &Values, placed: &mut BTreeSet<String>) -> String {
    let mut filled = text.to_owned();
    for (name, value) in values {
        let key = format!("{{{name}}}");
        if filled.contains(&key) {
            placed.insert(name.clone());
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            filled = filled.replace(&key, &value);
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use stokehold_base::fault::Fault;

    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Plan, TrialsError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tune.toml");
        fs::write(&path, text).unwrap();
        Plan::read(&path)
    }

    #[test]
    fn trials_have_checkpoints_of_their_own() {
        let mut plan = read(Plan::template()).unwrap();
        let places =
            |plan: &Plan| ["trial-0", "trial-1"].map(|name| plan.job_of(name, &Values::new()).checkpoints);
        assert_eq!(places(&plan), [None, None]);
        for place in ["s3://bucket/a", "s3://bucket/a/"] {
            plan.job.checkpoints = Some(place.to_owned());
            let own = ["s3://bucket/a/trial-0", "s3://bucket/a/trial-1"];
            assert_eq!(places(&plan), own.map(|place| Some(place.to_owned())));
        }
    }

    #[test]
    fn the_template_is_a_study_with_and_without_its_comments() {
        let plan = read(Plan::template()).unwrap();
        assert_eq!(plan.study.limits.max_jobs, 4);
        let mut all = String::new();
        for line in Plan::template().lines() {
            let bare = line.strip_prefix("# ").or(line.strip_prefix('#')).unwrap_or(line);
            let is_key = bare.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
            if line.starts_with('#') && (is_key || bare.starts_with('[')) || !line.starts_with('#') {
                all.push_str(bare);
            }
            all.push('\n');
        }
        // What excludes each other stands side by side in the template.
        let all = all
            .replace("metrics-file =", "#")
            .replace("timeline =", "#")
            .replace("prepare =", "#")
            .replace("rule = \"auto\"", "rule = \"asha\"")
            .replace("\njob = \"job.toml\"", "");
        let error = read(&all).err().map(|error| error.to_string());
        assert!(
            error
                .as_ref()
                .is_none_or(|says| says.contains("there is no study in")),
            "{error:?}"
        );
    }

    #[test]
    fn values_go_where_they_are_placed_and_else_become_hyperparameters() {
        let mut plan = read(Plan::template()).unwrap();
        plan.job.hyperparameters = serde_json::from_value(json!({
            "learning-rate": "{lr}", "tag": "lr={lr}, {unknown}", "list": ["{lr}", 1], "optimizer": "sgd"
        }))
        .unwrap();
        plan.job.environment = [("MODE".to_owned(), "{mode}-1".to_owned())].into();
        let values = serde_json::from_value(json!({"lr": 0.1, "mode": "fast", "batch-size": 64})).unwrap();
        let job = plan.job_of("trial-0", &values);
        assert_eq!(
            serde_json::to_value(&job.hyperparameters).unwrap(),
            json!({"learning-rate": 0.1, "tag": "lr=0.1, {unknown}", "list": [0.1, 1], "optimizer": "sgd", "batch-size": 64})
        );
        assert_eq!(job.environment["MODE"], "fast-1");
    }

    #[test]
    fn mistakes_are_found_in_their_lines() {
        let text = Plan::template();
        for (from, to, says) in [
            (
                "strategy = \"bayesian\"",
                "strategy = \"genetic\"",
                "unknown variant `genetic`, expected",
            ),
            ("max = 0.1", "max = 0.0001", "min = 0.001 is above max = 0.0001"),
            ("min = 0.001", "min = 0.0", "above 0"),
            ("values = [64, 128, 256, 512]", "values = []", "list at least one"),
            (
                "'train-loss: ([0-9\\.]+)'",
                "'train-loss: [0-9\\.]+'",
                "has no group",
            ),
            (
                "objective = \"average train Loss\"",
                "objective = \"loss\"",
                "nothing says where \"loss\" is",
            ),
            ("max-jobs = 4", "max-job = 4", "unknown field `max-job`"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = read(&text.replace(from, to)).unwrap_err();
            assert!(
                error.is_input() && error.to_string().contains(says),
                "{to}: {error}"
            );
        }
        let line = read(&text.replace("strategy = \"bayesian\"", "strategy = \"genetic\"")).unwrap_err();
        let expected = text
            .lines()
            .position(|line| line.starts_with("strategy"))
            .map(|at| at + 1);
        assert!(
            matches!(line, TrialsError::Tune(TuneError::File { line, .. }) if line == expected),
            "{line}"
        );
    }
}
