//! The description of a job, read from a file or built by a program.

pub(crate) mod channel;
pub(crate) mod profiler;
pub(crate) mod spot;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use stokehold_base::clock::unix_now;
use stokehold_base::secret::is_secret;
use stokehold_objects::Location;

use crate::data::source;
use crate::{Channel, JobError, Profiling, Spot, writes};

/// A training job. As a file it is TOML; [`Job::template`] explains the keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Job {
    /// The job's name: letters, digits and hyphens, at most 63 characters, the first no hyphen. Default: made
    /// from the entry point and the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What to run: a `.py` or `.sh` file below the source folder, a program there, or a Python module as
    /// `module:package.train`.
    #[schemars(with = "String")]
    pub entry_point: EntryPoint,
    /// The folder whose copy becomes the script's working folder. It may be in a bucket, and may be an
    /// archive, here or there: `s3://bucket/sourcedir.tar.gz`. Default: the entry point's file alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_dir: Option<PathBuf>,
    /// The interpreter of Python scripts and modules: a name that is searched for, or a path.
    #[serde(default = "python3")]
    pub python: PathBuf,
    /// The script's arguments, in the order of their names: numbers, texts, booleans, lists and tables.
    /// `lr = 0.1` becomes `--lr 0.1`, and `x = 0.1`, with a name of one letter, `-x 0.1`.
    #[serde(default)]
    pub hyperparameters: BTreeMap<String, Value>,
    /// The data channels, by name: letters, digits, `.`, `_` and `-`, at most 64 characters,
    /// the first no `.`. The script finds a channel's data at `SM_CHANNEL_NAME`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, crate::job::channel::TextOrTable>")]
    pub channels: BTreeMap<String, Channel>,
    /// Environment variables for the script. Those that a store knows (`AWS_ENDPOINT_URL`, ..) apply to
    /// channels, source and output, too.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A URI or a path that gets a copy of `NAME/output/model.tar.gz`, `NAME/output/output.tar.gz`,
    /// `NAME/profiler-output/` and `NAME/rule-output/`, laid out as SageMaker does. Default: nothing is
    /// copied from the job's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The place that the checkpoint folder is mirrored to, and filled from before the start: a URI or a
    /// path, of this job alone. Default: checkpoints stay in the job's folder only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<String>,
    /// Settings for machines that may be taken away. Default: the job does not wait for notices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Spot>,
    /// The script is stopped after this many seconds of running.
    #[serde(default = "a_day")]
    #[schemars(range(min = 1))]
    pub max_run_seconds: u64,
    /// Seconds between SIGTERM and SIGKILL when the script is stopped.
    #[serde(default = "two_minutes")]
    pub stop_seconds: u64,
    /// The metrics to extract from the script's lines; both streams are searched.
    #[serde(default)]
    pub metrics: Vec<Metric>,
    /// The number of machines that the script seems to run on, `algo-1`, `algo-2`, ..: processes on this
    /// machine, each with its folder and its share of the cores and of the GPUs (all, or those that
    /// `CUDA_VISIBLE_DEVICES` names).
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MOST_INSTANCES))]
    pub instances: usize,
    /// The instance type that the script sees.
    #[serde(default = "local")]
    pub instance_type: String,
    /// How the processes of several instances find each other.
    #[serde(default)]
    pub distribution: Distribution,
    /// Processes of an instance with the distribution `torch` or `mpi`. Default: one per GPU, or one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub processes_per_host: Option<usize>,
    /// The folder in which channels of the mode `Cache` keep objects. Default: `STOKEHOLD_CACHE`, or the
    /// user's cache folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,
    /// The most that objects take in `cache-dir`, in gigabytes (of 1e9 bytes); those that were not read for longest are
    /// removed. Packed images, where the script's loader makes them, may take as much again. Default: four fifths of
    /// the sum of their size and the free disk space, and for packed images an eighth of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.001), extend("exclusiveMaximum" = 1_000_000_000))]
    pub cache_gigabytes: Option<f64>,
    /// Whether the machine is recorded during the job, and a report written.
    #[serde(default = "yes")]
    pub profile: bool,
    /// What is recorded, and the rules that are judged while the job runs. Default: a sample every 500 ms, and no rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler: Option<Profiling>,
    /// What the job needs on SageMaker and not here. Default: it cannot run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    pub sagemaker: Option<toml::Table>,
    /// Whether the metrics also go to an event file in the job's folder, while it runs: `tensorboard --logdir FOLDER`.
    #[serde(default)]
    pub tensorboard: bool,
    /// Whether every instance gets its own `/opt/ml`, read-only channels, and read-only system folders. It
    /// wants namespaces.
    #[serde(default = "yes")]
    pub opt_ml: bool,
    /// The folder of the entry point's file when there is no source folder: the job file's folder. Not a key
    /// of a job file.
    #[serde(skip)]
    pub beside: PathBuf,
}

fn python3() -> PathBuf {
    PathBuf::from("python3")
}

fn a_day() -> u64 {
    86_400
}

fn two_minutes() -> u64 {
    120
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn local() -> String {
    "local".to_owned()
}

/// How the processes of several instances find each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// They do not: the script is started directly, once per instance.
    #[default]
    None,
    /// `torch.distributed.run` on every instance.
    Torch,
    /// One `mpirun` for all instances.
    Mpi,
    /// As `torch`, with a stand-in for the Python package `smdistributed`, SageMaker's data parallel library.
    Smdistributed,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryPoint {
    /// A `.py` file below the source folder.
    Python(String),
    /// A `.sh` file, run by the shell.
    Shell(String),
    /// Any other file, run directly.
    Binary(String),
    /// A Python module: `module:package.train`.
    Module(String),
}

impl EntryPoint {
    /// Reads `train.py`, `run.sh`, `trainer` or `module:package.train`.
    ///
    /// # Errors
    /// The path leads out of the source folder, or there is no name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(module) = text.strip_prefix("module:") {
            let fine = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
            return match module.split('.').all(fine) {
                true => Ok(Self::Module(module.to_owned())),
                false => Err(format!("{text:?} names no module; write module:package.train")),
            };
        }
        let inside = Path::new(text)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if text.is_empty() || text.starts_with('-') || text.contains('\0') || !inside {
            return Err(format!(
                "{text:?} is no file below the source folder; write train.py with source-dir"
            ));
        }
        let name = text.to_owned();
        Ok(match Path::new(text).extension().and_then(|end| end.to_str()) {
            Some("py") => Self::Python(name),
            Some("sh") => Self::Shell(name),
            _ => Self::Binary(name),
        })
    }

    /// The name of the file or module.
    pub fn name(&self) -> String {
        match self {
            Self::Python(name) | Self::Shell(name) | Self::Binary(name) | Self::Module(name) => name.clone(),
        }
    }

    /// The file below the source folder.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Python(name) | Self::Shell(name) | Self::Binary(name) => Some(name),
            Self::Module(_) => None,
        }
    }
}

impl Serialize for EntryPoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Module(name) => to.serialize_str(&format!("module:{name}")),
            other => to.serialize_str(&other.name()),
        }
    }
}

impl<'de> Deserialize<'de> for EntryPoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// A number that the script prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The metric's name: `train:loss`.
    pub name: String,
    /// A regular expression that finds it in a line; group 1 is the number.
    pub regex: String,
}

impl Metric {
    /// Reads `NAME=REGEX`.
    ///
    /// # Errors
    /// The text has no `=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, regex)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                regex: regex.to_owned(),
            }),
            _ => Err(format!("{text:?}: write NAME=REGEX")),
        }
    }

    /// The compiled expression.
    ///
    /// # Errors
    /// The expression is invalid, or has no group.
    pub fn compile(&self) -> Result<Regex, String> {
        let regex = Regex::new(&self.regex).map_err(|error| format!("metric {}: {error}", self.name))?;
        match regex.captures_len() {
            0 | 1 => Err(format!(
                "metric {}: {:?} has no group; put the number into parentheses",
                self.name, self.regex
            )),
            _ => Ok(regex),
        }
    }
}

/// Whether a value of a job file is not what the file says: numbers that are none, and dates.
fn is_lost(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(is_lost),
        Value::Object(values) => values
            .iter()
            .any(|(name, value)| name == "$__toml_private_datetime" || is_lost(value)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl Job {
    /// A job that runs an entry point, with the defaults of a job file for everything else.
    pub fn new(entry_point: EntryPoint) -> Self {
        Self {
            name: None,
            entry_point,
            source_dir: None,
            python: python3(),
            hyperparameters: BTreeMap::new(),
            channels: BTreeMap::new(),
            environment: BTreeMap::new(),
            output: None,
            checkpoints: None,
            spot: None,
            max_run_seconds: a_day(),
            stop_seconds: two_minutes(),
            metrics: Vec::new(),
            instances: one(),
            instance_type: local(),
            distribution: Distribution::None,
            processes_per_host: None,
            cache_dir: None,
            cache_gigabytes: None,
            profile: yes(),
            profiler: None,
            sagemaker: None,
            tensorboard: false,
            opt_ml: yes(),
            beside: PathBuf::new(),
        }
    }

    /// Its name, or one that is made of the entry point and the time.
    pub fn name_or_made(&self) -> String {
        self.name.clone().unwrap_or_else(|| made_name(self))
    }

    /// What is recorded, and the rules that are judged: the section `[profiler]`, or its defaults.
    pub fn profiling(&self) -> Profiling {
        self.profiler.clone().unwrap_or_default()
    }

    /// A job file with every key explained, but for the section `[sagemaker]`.
    pub fn template() -> &'static str {
        include_str!("job.toml")
    }

    /// The JSON schema of a job file, for editors and other programs; in it the section `[sagemaker]` is any table.
    /// [`check`](Self::check) tests the rules that a schema cannot express.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Reads a job file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`JobError::File`] with the line.
    pub fn read(path: &Path) -> Result<Self, JobError> {
        Self::parse(&Self::text(path)?, path)
    }

    /// The text of a job file.
    ///
    /// # Errors
    /// [`JobError::File`] if it cannot be read.
    pub fn text(path: &Path) -> Result<String, JobError> {
        fs::read_to_string(path).map_err(|error| JobError::File {
            path: path.to_owned(),
            line: None,
            reason: error.to_string(),
        })
    }

    /// As [`read`](Self::read), of what the file at `path` has or would have in it.
    ///
    /// # Errors
    /// [`JobError::File`] with the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, JobError> {
        let job: Self = toml::from_str(text).map_err(|error| JobError::in_file(path, text, &error))?;
        // What TOML has and JSON lacks has become null and a table by now.
        if let Some((name, _)) = job.hyperparameters.iter().find(|(_, value)| is_lost(value)) {
            return Err(JobError::File {
                path: path.to_owned(),
                line: None,
                reason: format!(
                    "hyperparameters.{name} is nan, inf or a date, which a script's arguments cannot hold; write it as a text, \"inf\""
                ),
            });
        }
        Ok(job.within(path.parent().unwrap_or(Path::new(""))))
    }

    /// The job as the text of a job file, without the keys that have their defaults.
    ///
    /// # Errors
    /// [`JobError::Input`] for a hyperparameter that TOML cannot write: null.
    pub fn to_toml(&self) -> Result<String, JobError> {
        let wrong = |error: &dyn std::fmt::Display| JobError::Input(error.to_string());
        let keys = |job: &Self| serde_json::to_value(job).map_err(|error| wrong(&error));
        let (mut all, usual) = (keys(self)?, keys(&Self::new(self.entry_point.clone()))?);
        if let Some(all) = all.as_object_mut() {
            all.retain(|key, value| key == "entry-point" || usual.get(key) != Some(value));
        }
        toml::to_string(&all).map_err(|error| wrong(&error))
    }

    /// Makes the job's relative paths relative to a folder. Without a source folder the entry point's file is
    /// in that folder.
    pub fn within(mut self, folder: &Path) -> Self {
        self.cache_dir = self.cache_dir.map(|dir| folder.join(dir));
        self.source_dir = self.source_dir.map(|dir| match source::remote(&dir) {
            Some(_) => dir,
            None => folder.join(dir),
        });
        if is_a_path(&self.python) {
            self.python = folder.join(&self.python);
        }
        self.beside = folder.to_owned();
        let channels = self.channels.values_mut().map(|channel| &mut channel.uri);
        for uri in channels
            .chain(self.output.as_mut())
            .chain(self.checkpoints.as_mut())
        {
            if !uri.contains("://") {
                *uri = folder.join(&*uri).display().to_string();
            }
        }
        self
    }

    /// A copy to show to people: without the values of variables that look like secrets.
    ///
    /// Hyperparameters are shown: they are arguments, which every process of the machine can read anyway.
    pub fn without_secrets(&self) -> Self {
        let mut job = self.clone();
        for (name, value) in &mut job.environment {
            if is_secret(name, value) {
                *value = HIDDEN.to_owned();
            }
        }
        job
    }

    /// Gives the variables that [`without_secrets`](Self::without_secrets) has hidden the values of `other`, of which this
    /// job is a changed copy.
    ///
    /// # Errors
    /// [`JobError::Input`] for a hidden variable that `other` has not.
    pub fn with_secrets_of(mut self, other: Option<&Self>) -> Result<Self, JobError> {
        for (name, value) in self.environment.iter_mut().filter(|(_, value)| *value == HIDDEN) {
            let known = other.and_then(|other| other.environment.get(name));
            *value = known.cloned().ok_or_else(|| {
                JobError::Input(format!(
                    "the variable {name} is {HIDDEN}, which stands for a secret of a job that this one is not a copy of; write its value"
                ))
            })?;
        }
        Ok(self)
    }

    /// Takes out the variables that look like secrets, for a file that is kept; returns their names.
    pub fn take_secrets(&mut self) -> Vec<String> {
        let all = self.environment.iter();
        let names: Vec<String> = all
            .filter(|(name, value)| is_secret(name, value))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &names {
            self.environment.remove(name);
        }
        names
    }

    /// Checks whether the job can run, as far as possible without file or network access.
    ///
    /// # Errors
    /// [`JobError::Input`] with the first thing that is wrong.
    pub fn check(&self) -> Result<(), JobError> {
        self.wrong().map_or(Ok(()), |reason| Err(JobError::Input(reason)))
    }

    fn wrong(&self) -> Option<String> {
        if let Some(name) = self.name.as_ref().filter(|name| !is_name(name)) {
            return Some(format!(
                "{name:?} is no job's name; it takes letters, digits and hyphens, at most 63"
            ));
        }
        if let Some(metric) = self.metrics.iter().find_map(|metric| metric.compile().err()) {
            return Some(metric);
        }
        if let Some(name) = self.channels.keys().find(|name| !is_channel_name(name)) {
            return Some(format!(
                "{name:?} is no channel's name; it takes letters, digits, . _ and -, at most 64"
            ));
        }
        for (what, names) in [
            ("hyperparameter", self.hyperparameters.keys().collect::<Vec<_>>()),
            ("variable", self.environment.keys().collect()),
        ] {
            if let Some(name) = names
                .iter()
                .find(|name| name.is_empty() || name.contains(['=', '\0']))
            {
                return Some(format!("{name:?} is no {what}'s name"));
            }
        }
        if self.environment.values().any(|value| value.contains('\0')) {
            return Some("a variable's value has a zero byte".to_owned());
        }
        if !(1..=MOST_INSTANCES).contains(&self.instances) {
            return Some(format!(
                "instances = {} is not between 1 and {MOST_INSTANCES}",
                self.instances
            ));
        }
        let places = self
            .channels
            .values()
            .map(|channel| &channel.uri)
            .chain(&self.output)
            .chain(&self.checkpoints);
        if let Some(error) = places.into_iter().find_map(|uri| Location::parse(uri).err()) {
            return Some(error.to_string());
        }
        for (name, _) in writes::channels(self) {
            if self.instances > 1 {
                return Some(format!(
                    "channel {name}: access=rw with mode=Cache is for one instance, and there are {}; instances do not see each \
                     other's writes",
                    self.instances
                ));
            }
            if !self.opt_ml {
                return Some(format!(
                    "channel {name}: access=rw with mode=Cache wants namespaces, and opt-ml = false does without them; leave \
                     opt-ml out, or take mode=File and copy the results yourself"
                ));
            }
        }
        if self.processes_per_host == Some(0) || self.max_run_seconds == 0 {
            return Some("processes-per-host and max-run-seconds are at least 1".to_owned());
        }
        if let Some(reason) = self
            .spot
            .as_ref()
            .and_then(|spot| spot.wrong(self.max_run_seconds))
        {
            return Some(reason);
        }
        if let Some(reason) = self.profiling().wrong(self.profile) {
            return Some(reason);
        }
        if self
            .cache_gigabytes
            .is_some_and(|size| !(0.001..1e9).contains(&size))
        {
            return Some("cache-gigabytes is at least 0.001".to_owned());
        }
        if self.distribution == Distribution::Torch && !matches!(self.entry_point, EntryPoint::Python(_)) {
            return Some("distribution = \"torch\" wants a .py file as its entry point".to_owned());
        }
        let remote = self.source_dir.as_deref().and_then(source::remote);
        remote
            .and_then(|uri| Location::parse(uri).err())
            .map(|error| error.to_string())
    }
}

fn made_name(job: &Job) -> String {
    let entry = job.entry_point.name();
    let stem = Path::new(&entry)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let fine = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = stem.chars().map(fine).take(30).collect();
    let stem = stem.trim_matches('-');
    let millis = (unix_now() * 1e3) as u64;
    format!(
        "{}-{millis}-{}",
        if stem.is_empty() { "job" } else { stem },
        std::process::id()
    )
}

/// What is shown in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// Whether a program is named by a path, not by a name to search for.
pub(crate) fn is_a_path(program: &Path) -> bool {
    program.components().count() > 1
}

/// A larger number of local processes is taken for a mistake.
const MOST_INSTANCES: usize = 64;

pub(crate) fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(fine) && !name.starts_with('-')
}

fn is_channel_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(fine) && !name.starts_with('.')
}

/// The value of a hyperparameter on a command line: JSON if it parses as JSON, else a text.
pub fn hyperparameter(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use stokehold_base::fault::Fault;

    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Job, JobError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        fs::write(&path, text).unwrap();
        let job = Job::read(&path)?;
        job.check()?;
        Ok(job)
    }

    #[test]
    fn the_template_is_a_job() {
        let job = read(Job::template()).unwrap();
        assert_eq!(job.entry_point, EntryPoint::Python("train.py".to_owned()));
        // What is commented out is right, too: every line that is a key, and every table.
        let mut all = String::new();
        for line in Job::template().lines() {
            let bare = line.strip_prefix("# ").or(line.strip_prefix('#')).unwrap_or(line);
            let is_key = bare.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
            if line.starts_with('#') && (is_key || bare.starts_with('[')) || !line.starts_with('#') {
                all.push_str(bare);
            }
            all.push('\n');
        }
        let full = read(&all).unwrap();
        let keys = serde_json::to_value(&full).unwrap();
        for key in keys.as_object().unwrap().keys() {
            assert!(all.contains(key.as_str()), "the template does not explain {key}");
        }
        assert_eq!((full.instances, full.metrics.len()), (2, 1));
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        for (text, line, says) in [
            (
                "entry-point = \"train.py\"\nlearning-rate = 1\n",
                2,
                "unknown field",
            ),
            (
                "entry-point = \"train.py\"\n[channels]\ntrain = \"s3://b,mode=Fast\"\n",
                3,
                "unknown variant `Fast`",
            ),
            (
                "entry-point = \"train.py\"\n\n[channels.train]\nuri = \"s3://b\"\nmod = 1\n",
                5,
                "unknown field `mod`",
            ),
            ("entry-point = \"../train.py\"\n", 1, "below the source folder"),
            (
                "entry-point = \"train.py\"\ninstances = \"two\"\n",
                2,
                "invalid type",
            ),
            ("entry-point = \n", 1, "string"),
        ] {
            let JobError::File {
                path,
                line: found,
                reason,
            } = read(text).unwrap_err()
            else {
                panic!("{text}: not an error of the file");
            };
            assert!(
                path.ends_with("job.toml") && reason.contains(says),
                "{text}: {reason}"
            );
            assert_eq!(found, Some(line), "{text}: {reason}");
        }
        assert!(Job::read(Path::new("/no/job.toml")).unwrap_err().is_input());
    }

    #[test]
    fn what_cannot_run_is_said_before_anything_is_touched() {
        let job = |change: &dyn Fn(&mut Job)| {
            let mut job = Job::new(EntryPoint::Python("train.py".to_owned()));
            change(&mut job);
            job.check().map_err(|error| error.to_string())
        };
        job(&|_| ()).unwrap();
        let metric = |regex: &str| Metric {
            name: "m".to_owned(),
            regex: regex.to_owned(),
        };
        type Case<'a> = (&'a dyn Fn(&mut Job), &'a str);
        let rw = |job: &mut Job| {
            let channel = Channel::parse("s3://b/d,mode=Cache,access=rw").unwrap();
            job.channels.insert("train".to_owned(), channel);
        };
        job(&|job| rw(job)).unwrap();
        let cases: [Case<'_>; 10] = [
            (
                &|job| {
                    rw(job);
                    job.instances = 2;
                },
                "is for one instance, and there are 2",
            ),
            (
                &|job| {
                    rw(job);
                    job.opt_ml = false;
                },
                "wants namespaces",
            ),
            (&|job| job.name = Some("a/b".to_owned()), "no job's name"),
            (&|job| job.metrics = vec![metric("(")], "metric m"),
            (&|job| job.metrics = vec![metric("loss=.*")], "parentheses"),
            (&|job| job.instances = 0, "between 1 and"),
            (
                &|job| drop(job.environment.insert("A=B".to_owned(), String::new())),
                "no variable's name",
            ),
            (
                &|job| {
                    drop(
                        job.channels
                            .insert("../x".to_owned(), Channel::parse("d").unwrap()),
                    )
                },
                "no channel's name",
            ),
            (
                &|job| job.source_dir = Some("ftp://b/src".into()),
                "ftp:// is not known",
            ),
            (
                &|job| {
                    job.distribution = Distribution::Torch;
                    job.entry_point = EntryPoint::Shell("run.sh".to_owned());
                },
                "wants a .py file",
            ),
        ];
        for (change, says) in cases {
            let error = job(change).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn secrets_are_hidden_and_the_rest_is_not() {
        let mut job = Job::new(EntryPoint::Python("train.py".to_owned()));
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
            ("HF_TOKEN", "s3cret"),
            ("SAS", "s3cret"),
            ("db-password", "s3cret"),
            ("AZURE_STORAGE_CONNECTION_STRING", "s3cret"),
            ("DATABASE_URL", "postgres://me:s3cret@host/db"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/a:b@c"),
            ("OMP_NUM_THREADS", "1"),
        ] {
            job.environment.insert(name.to_owned(), value.to_owned());
        }
        let shown = job.without_secrets();
        assert!(!format!("{shown:?}").contains("s3cret"), "{shown:?}");
        let kept: Vec<&str> = ["TOKENIZERS_PARALLELISM", "AWS_ENDPOINT_URL", "OMP_NUM_THREADS"]
            .iter()
            .map(|name| shown.environment[*name].as_str())
            .collect();
        assert_eq!(kept, ["false", "http://127.0.0.1:9000/a:b@c", "1"]);
    }

    #[test]
    fn what_no_argument_can_hold_is_refused() {
        for value in ["nan", "[1.0, inf]", "{ a = 2020-01-01 }", "2020-01-01"] {
            let text = format!("entry-point = \"a.py\"\n[hyperparameters]\nx = {value}\n");
            let error = Job::parse(&text, Path::new("job.toml")).unwrap_err().to_string();
            assert!(error.contains("hyperparameters.x"), "{value}: {error}");
        }
        assert!(
            Job::parse(
                "entry-point = \"a.py\"\n[hyperparameters]\nx = \"inf\"\n",
                Path::new("job.toml")
            )
            .is_ok()
        );
    }

    #[test]
    fn reads_texts_of_a_command_line() {
        assert_eq!(hyperparameter("0.1"), json!(0.1));
        assert_eq!(hyperparameter("resnet18"), json!("resnet18"));
        assert_eq!(hyperparameter("true"), json!(true));
        for (text, kind) in [
            ("train.py", EntryPoint::Python("train.py".to_owned())),
            ("bin/run.sh", EntryPoint::Shell("bin/run.sh".to_owned())),
            ("trainer", EntryPoint::Binary("trainer".to_owned())),
            ("module:a.b", EntryPoint::Module("a.b".to_owned())),
        ] {
            assert_eq!(EntryPoint::parse(text).unwrap(), kind);
        }
        for text in [
            "",
            "/bin/sh",
            "a/../../b",
            "-c",
            "module:",
            "module:a..b",
            "module:-c",
        ] {
            assert!(EntryPoint::parse(text).is_err(), "{text}");
        }
    }
}
