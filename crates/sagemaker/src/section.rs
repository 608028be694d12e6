//! The section `[sagemaker]` of a job file, which `stokehold_jobs` keeps and does not judge: what a job needs on SageMaker and
//! not here.
//!
//! Programs that have this crate read job files by [`read`] and [`parse`], so that a wrong section is refused wherever its job is
//! to run.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_jobs::{Job, JobError};
use toml::Table;

/// As [`Job::read`], and reads the section, too.
///
/// # Errors
/// [`JobError::File`] with the line.
pub fn read(path: &Path) -> Result<Job, JobError> {
    parse(&Job::text(path)?, path)
}

/// As [`Job::parse`], and reads the section, too.
///
/// # Errors
/// [`JobError::File`] with the line.
pub fn parse(text: &str, path: &Path) -> Result<Job, JobError> {
    #[derive(Deserialize)]
    struct File {
        #[serde(rename = "sagemaker")]
        _section: Option<OnSageMaker>,
    }
    let job = Job::parse(text, path)?;
    // Of the text, because the job's table has no lines.
    toml::from_str::<File>(text).map_err(|error| JobError::in_file(path, text, &error))?;
    settled(job)
}

/// The job with all defaults in its section, as [`parse`] reads it.
///
/// # Errors
/// The errors of [`of`].
pub fn settled(mut job: Job) -> Result<Job, JobError> {
    let section = of(&job)?.map(Table::try_from).transpose();
    job.sagemaker = section.map_err(|error| JobError::Input(error.to_string()))?;
    Ok(job)
}

/// The section of a job, if it has one.
///
/// # Errors
/// [`JobError::Input`]: a key is wrong, missing or unknown.
pub fn of(job: &Job) -> Result<Option<OnSageMaker>, JobError> {
    let section = job.sagemaker.clone().map(Table::try_into).transpose();
    section.map_err(|error: toml::de::Error| JobError::Input(error.message().to_owned()))
}

/// As [`Job::check`], and checks the section, too.
///
/// # Errors
/// [`JobError::Input`] with the first thing that is wrong.
pub fn check(job: &Job) -> Result<(), JobError> {
    job.check()?;
    let wrong = of(job)?.as_ref().and_then(OnSageMaker::wrong);
    wrong.map_or(Ok(()), |reason| Err(JobError::Input(reason)))
}

/// As [`Job::template`], with the section's keys, too.
pub fn template() -> String {
    Job::template().to_owned() + include_str!("section.toml")
}

/// Adds the section's keys to the schema of a job file, or of a file with a job in it.
pub fn in_schema(mut schema: Value) -> Value {
    let mut all = SchemaGenerator::default();
    let mut section = all.subschema_for::<Option<OnSageMaker>>().to_value();
    let job = match schema["$defs"]["Job"].is_object() {
        true => &mut schema["$defs"]["Job"],
        false => &mut schema,
    };
    let any = &mut job["properties"]["sagemaker"];
    section["description"] = any["description"].take();
    *any = section;
    for (name, definition) in all.take_definitions(true) {
        schema["$defs"][name] = definition;
    }
    schema
}

/// The section `[sagemaker]` of a job file. Machines, time, spot, output and checkpoints are where the file has them for all
/// places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OnSageMaker {
    /// The role that the job acts as: `arn:aws:iam::123456789012:role/NAME`.
    pub role: String,
    /// The region: `eu-west-1`. Default: `AWS_REGION`, or that of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The image, in a registry that the role may read. It has SageMaker's training toolkit, or an entry point of its own.
    /// Default: made of `framework`, `framework-version` and `python-version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The framework of one of AWS's own images; in place of `image`. Default: the image is `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// The framework's whole version: `2.6.0`. Default: the image is `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework_version: Option<String>,
    /// The image's Python: `py312`. Default: the image is `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_version: Option<String>,
    /// The disk of each machine, in gigabytes.
    #[serde(default = "thirty")]
    #[schemars(range(min = 1))]
    pub volume_gigabytes: u32,
    /// How long the machines are kept for a next job, in seconds; not with `[spot]`. Default: they are given back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 21_600))]
    pub keep_alive_seconds: Option<u32>,
    /// The subnets of the machines, `subnet-..`; with `security-groups`. Without both, they are in SageMaker's own network.
    #[serde(default)]
    pub subnets: Vec<String>,
    /// The security groups of the machines, `sg-..`; with `subnets`.
    #[serde(default)]
    pub security_groups: Vec<String>,
    /// Cut the machines off from all networks but the buckets of the job.
    #[serde(default)]
    pub network_isolation: bool,
    /// Encrypt what the machines of the job send to each other.
    #[serde(default)]
    pub encrypt_traffic: bool,
    /// The key of AWS KMS that encrypts the model. Default: that of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kms_key: Option<String>,
    /// The ID or ARN of the key that encrypts the machines' disks; not for types with disks of their own, such as `ml.g5` and
    /// `ml.p4d`, which encrypt them by themselves. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_kms_key: Option<String>,
    /// Labels of the job.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// What a machine costs there in an hour, in any currency; for the estimate of `--dry-run`. Default: `price` of `[spot]`;
    /// without both there is no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub price: Option<f64>,
    /// Groups of machines of different types, at most five. They take the place of `instances` and `instance-type`, which are
    /// then for this machine alone.
    #[serde(default)]
    pub instance_groups: Vec<InstanceGroup>,
    /// Where channels have their data on SageMaker, if elsewhere than here: `s3://BUCKET/..`, or a folder of a file system as
    /// `efs://fs-ID/FOLDER` or `fsx://fs-ID/MOUNTNAME/FOLDER`.
    #[serde(default)]
    pub channels: BTreeMap<String, String>,
}

fn thirty() -> u32 {
    30
}

/// A section that says nothing, with what its missing keys stand for.
impl Default for OnSageMaker {
    fn default() -> Self {
        serde_json::from_value(serde_json::json!({ "role": "" })).expect("only the role has no default")
    }
}

impl OnSageMaker {
    /// What is wrong with it, whichever job it is of.
    fn wrong(&self) -> Option<String> {
        if self.volume_gigabytes == 0 {
            return Some("volume-gigabytes is at least 1".to_owned());
        }
        let keep = self.keep_alive_seconds.unwrap_or(1);
        if !(1..=21_600).contains(&keep) {
            return Some(format!("keep-alive-seconds = {keep} is not between 1 and 21600"));
        }
        let prices = self.instance_groups.iter().map(|group| group.price);
        if let Some(price) = prices
            .chain([self.price])
            .flatten()
            .find(|price| !(price.is_finite() && *price > 0.0))
        {
            return Some(format!("[sagemaker] price = {price} is not above 0"));
        }
        wrong_groups(&self.instance_groups)
    }
}

/// Machines of one type in a cluster of several types: `[[sagemaker.instance-groups]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct InstanceGroup {
    /// The group's name, which the script finds in `SM_CURRENT_INSTANCE_GROUP`; at most 64 characters.
    pub name: String,
    /// The type of its machines: `ml.g5.xlarge`.
    pub instance_type: String,
    /// The number of its machines.
    #[schemars(range(min = 1))]
    pub instances: u32,
    /// The channels in buckets that its machines get. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// What one of its machines costs in an hour, in any currency. Default: `price` of `[sagemaker]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub price: Option<f64>,
}

/// The groups that a job of SageMaker may have.
const MOST_GROUPS: usize = 5;

fn wrong_groups(groups: &[InstanceGroup]) -> Option<String> {
    if groups.len() > MOST_GROUPS {
        return Some(format!(
            "[sagemaker] instance-groups has {} groups; SageMaker takes at most {MOST_GROUPS}",
            groups.len()
        ));
    }
    for (place, group) in groups.iter().enumerate() {
        let name = &group.name;
        if !(1..=64).contains(&name.chars().count()) {
            return Some(
                "[sagemaker] instance-groups: the name of a group has 1 to 64 characters".to_owned(),
            );
        }
        if groups[..place].iter().any(|before| before.name == *name) {
            return Some(format!(
                "[sagemaker] instance-groups has two groups {name}; rename one"
            ));
        }
        if group.instances == 0 {
            return Some(format!(
                "[sagemaker] instance-groups: group {name} has instances = 0; give at least 1"
            ));
        }
    }
    None
}

/// A framework that AWS has images of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// PyTorch.
    Pytorch,
    /// TensorFlow.
    Tensorflow,
}
