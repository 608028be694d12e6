//! What SageMaker would refuse, found before a request is sent. The bounds are those of botocore's model.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stokehold_base::fault::Fault;
use stokehold_base::secret::is_secret;

use crate::secret::is_secret_hyperparameter;
use crate::{
    CreateTrainingJob, DataSource, FileSystemDataSource, ProfilerConfig, ResourceConfig, S3DataSource, Tag,
    VpcConfig,
};

/// A member of a request that SageMaker would refuse. It never repeats the value of a variable or hyperparameter,
/// which may be a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {reason}")]
pub struct RequestError {
    /// The member, such as `ResourceConfig.InstanceType`.
    pub member: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl Fault for RequestError {
    fn is_input(&self) -> bool {
        true
    }
}

/// The intervals that Debugger knows, in milliseconds.
const INTERVALS: [u32; 6] = [100, 200, 500, 1000, 5000, 60_000];

impl CreateTrainingJob {
    /// Finds the first member that SageMaker would refuse by its form. Whether the role, the image, the type of
    /// machine and the buckets exist, only SageMaker knows.
    ///
    /// # Errors
    /// The name, the role, the image, an address, a number or a count is not as SageMaker wants it.
    pub fn check(&self) -> Result<(), RequestError> {
        check_name(&self.training_job_name)?;
        let role = &self.role_arn;
        require(is_role(role), "RoleArn", || {
            format!("'{role}' is no role; give one as arn:aws:iam::123456789012:role/NAME")
        })?;
        let image = &self.algorithm_specification.training_image;
        let member = "AlgorithmSpecification.TrainingImage";
        require(!image.is_empty(), member, || {
            "there is no image; name one in a registry".to_owned()
        })?;
        check_text(image, 255, WORD, member)?;
        self.check_metrics()?;
        let machines = &self.resource_config;
        check_machines(machines)?;
        require(
            (1..=MOST_GIGABYTES).contains(&machines.volume_size_in_gb),
            "ResourceConfig.VolumeSizeInGB",
            || {
                let size = machines.volume_size_in_gb;
                format!("is {size}; ask for 1 to {MOST_GIGABYTES} GB")
            },
        )?;
        check_disk_key(machines)?;
        check_key(
            self.output_data_config.kms_key_id.as_deref(),
            "OutputDataConfig.KmsKeyId",
        )?;
        self.check_time()?;
        bounded(self.hyper_parameters.len(), 100, "HyperParameters", "entries")?;
        for (key, value) in &self.hyper_parameters {
            let member = format!("HyperParameters.{}", key.escape_debug());
            check_text(key, 256, LINE, &format!("{member}, its name"))?;
            check_text(value, 2500, LINE, &member)?;
        }
        check_variables(&self.environment)?;
        self.check_channels()?;
        check_network(self.vpc_config.as_ref())?;
        check_tags(&self.tags)?;
        check_hyperparameters(&self.hyper_parameters)?;
        let output = &self.output_data_config.s3_output_path;
        check_uri(output, "OutputDataConfig.S3OutputPath")?;
        if let Some(checkpoints) = &self.checkpoint_config {
            check_uri(&checkpoints.s3_uri, "CheckpointConfig.S3Uri")?;
        }
        self.profiler_config
            .as_ref()
            .map_or(Ok(()), ProfilerConfig::check)
    }

    fn check_metrics(&self) -> Result<(), RequestError> {
        let member = "AlgorithmSpecification.MetricDefinitions";
        let metrics = &self.algorithm_specification.metric_definitions;
        bounded(metrics.len(), 40, member, "metrics")?;
        for metric in metrics {
            let member = format!("{member}.{}", metric.name);
            require(
                !metric.name.is_empty() && !metric.regex.is_empty(),
                &member,
                || "a metric has a name and an expression; give both".to_owned(),
            )?;
            check_text(&metric.name, 255, LINE, &format!("{member}, its name"))?;
            check_text(&metric.regex, 500, LINE, &member)?;
        }
        Ok(())
    }

    /// How long machines run, are waited for and are kept.
    fn check_time(&self) -> Result<(), RequestError> {
        if let Some(seconds) = self.resource_config.keep_alive_period_in_seconds {
            let member = "ResourceConfig.KeepAlivePeriodInSeconds";
            require((1..=21_600).contains(&seconds), member, || {
                format!("is {seconds}; machines are kept for 1 to 21600 s")
            })?;
            require(!self.enable_managed_spot_training, member, || {
                "spot machines are not kept; choose one of the two".to_owned()
            })?;
        }
        let time = &self.stopping_condition;
        let least = time.max_runtime_in_seconds;
        require(
            (1..=MOST_SECONDS).contains(&least),
            "StoppingCondition.MaxRuntimeInSeconds",
            || format!("is {least}; allow 1 to {MOST_SECONDS} s (28 days)"),
        )?;
        let wrong = match (self.enable_managed_spot_training, time.max_wait_time_in_seconds) {
            (true, Some(wait)) if wait < least => {
                format!("is {wait} s; it includes the run, so at least {least} s")
            }
            (true, None) => format!("spot machines need it; give at least {least} s"),
            (false, Some(_)) => "only spot machines are waited for; leave it out".to_owned(),
            _ => return Ok(()),
        };
        require(false, "StoppingCondition.MaxWaitTimeInSeconds", || wrong)
    }

    fn check_channels(&self) -> Result<(), RequestError> {
        bounded(self.input_data_config.len(), 20, "InputDataConfig", "channels")?;
        let mut names = BTreeSet::new();
        for channel in &self.input_data_config {
            let name = &channel.channel_name;
            let member = format!("InputDataConfig.{}", name.escape_debug());
            let is_channel = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            require(
                (1..=64).contains(&name.len()) && name.chars().all(is_channel),
                &member,
                || "the name of a channel is 1 to 64 letters, digits, dots, hyphens and _".to_owned(),
            )?;
            require(names.insert(name), &member, || {
                "there are two channels of this name; rename one".to_owned()
            })?;
            let content = channel.content_type.as_deref().unwrap_or_default();
            check_text(content, 256, LINE, &format!("{member}.ContentType"))?;
            match &channel.data_source {
                DataSource::S3DataSource(objects) => self.check_objects(objects, &member)?,
                DataSource::FileSystemDataSource(files) => self.check_files(files, &member)?,
            }
        }
        Ok(())
    }

    fn check_objects(&self, objects: &S3DataSource, member: &str) -> Result<(), RequestError> {
        check_uri(&objects.s3_uri, member)?;
        bounded(objects.attribute_names.len(), 16, member, "attributes")?;
        let groups = &self.resource_config.instance_groups;
        let is_group = |name: &String| groups.iter().any(|group| group.instance_group_name == *name);
        let stray = objects.instance_group_names.iter().find(|name| !is_group(name));
        require(stray.is_none(), member, || {
            format!(
                "'{}' is no group of ResourceConfig.InstanceGroups; name one of them",
                stray.map_or("", String::as_str)
            )
        })
    }

    fn check_files(&self, files: &FileSystemDataSource, member: &str) -> Result<(), RequestError> {
        let folder = &files.directory_path;
        check_text(folder, 4096, LINE, member)?;
        let id = &files.file_system_id;
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        let number = id.strip_prefix("fs-").unwrap_or_default();
        require(
            (8..=18).contains(&number.len()) && number.chars().all(is_digit),
            member,
            || {
                let id = id.escape_debug();
                format!("'{id}' is no file system; give its whole ID, such as fs-0123456789abcdef0")
            },
        )?;
        require(folder.starts_with('/'), member, || {
            format!("'{folder}' does not begin with /; give the folder's whole path")
        })?;
        require(self.vpc_config.is_some(), member, || {
            "a file system is reached through a network; give VpcConfig".to_owned()
        })
    }
}

/// The error names the member and the reason, where it is not right.
fn require(is_right: bool, member: &str, reason: impl FnOnce() -> String) -> Result<(), RequestError> {
    if is_right {
        return Ok(());
    }
    Err(RequestError {
        member: member.to_owned(),
        reason: reason(),
    })
}

fn bounded(length: usize, most: usize, member: &str, unit: &str) -> Result<(), RequestError> {
    require(length <= most, member, || {
        format!("has {length} {unit}; SageMaker takes at most {most}")
    })
}

fn check_name(name: &str) -> Result<(), RequestError> {
    let is_name = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    require(is_name, "TrainingJobName", || {
        format!("'{name}' is not 1 to 63 letters, digits and hyphens between them; choose another name")
    })
}

/// A key of AWS KMS.
fn check_key(key: Option<&str>, member: &str) -> Result<(), RequestError> {
    check_text(key.unwrap_or_default(), 2048, KEY, member)
}

/// A key of disks. Its documentation in botocore's model has no aliases.
fn check_disk_key(machines: &ResourceConfig) -> Result<(), RequestError> {
    let member = "ResourceConfig.VolumeKmsKeyId";
    let key = machines.volume_kms_key_id.as_deref();
    check_key(key, member)?;
    require(!key.is_some_and(|key| key.contains("alias/")), member, || {
        "is an alias; disks take the ID of a key or its ARN".to_owned()
    })
}

/// Variables of the container.
fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), RequestError> {
    bounded(variables.len(), 100, "Environment", "entries")?;
    for (key, value) in variables {
        let member = format!("Environment.{}", key.escape_debug());
        let is_variable = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !key.is_empty()
            && !key.starts_with(|c: char| c.is_ascii_digit());
        require(is_variable, &member, || {
            "the name of a variable has letters, digits and _, and begins with no digit".to_owned()
        })?;
        bounded(key.len(), 512, &member, "characters in its name")?;
        bounded(value.chars().count(), 512, &member, "characters")?;
    }
    Ok(())
}

/// The network of machines.
fn check_network(network: Option<&VpcConfig>) -> Result<(), RequestError> {
    let Some(network) = network else { return Ok(()) };
    for (member, ids, most, unit) in [
        (
            "VpcConfig.SecurityGroupIds",
            &network.security_group_ids,
            5,
            "groups",
        ),
        ("VpcConfig.Subnets", &network.subnets, 16, "subnets"),
    ] {
        let count = ids.len();
        require((1..=most).contains(&count), member, || {
            format!("has {count} {unit}; give 1 to {most}")
        })?;
        for id in ids {
            require(!id.is_empty(), member, || {
                "has an empty one; give its ID".to_owned()
            })?;
            check_text(id, 32, HYPHENS, member)?;
        }
    }
    Ok(())
}

/// Characters that a member takes, and what they are called.
type Characters = (fn(char) -> bool, &'static str);

/// What a dot stands for in the service's own patterns.
const LINE: Characters = (
    |c| !matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'),
    "characters of one line",
);
/// Without white space.
const WORD: Characters = (|c| !c.is_whitespace(), "characters without spaces");
const KEY: Characters = (
    |c| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '_' | '-'),
    "letters, digits and : / _ -",
);
const HYPHENS: Characters = (
    |c| c.is_ascii_alphanumeric() || c == '-',
    "letters, digits and hyphens",
);
const LABEL: Characters = (
    |c| {
        c.is_alphanumeric()
            || c.is_whitespace() && !c.is_control()
            || matches!(c, '_' | '.' | ':' | '/' | '=' | '+' | '-' | '@')
    },
    "letters, digits, spaces and _ . : / = + - @",
);

/// EBS has no larger disks.
const MOST_GIGABYTES: u32 = 16_384;
/// No training job runs longer.
const MOST_SECONDS: u32 = 28 * 24 * 3600;

/// A text is not longer than the service takes, and of its characters. The text is not repeated: it may be a secret.
fn check_text(
    text: &str,
    most: usize,
    (is_right, words): Characters,
    member: &str,
) -> Result<(), RequestError> {
    let length = text.chars().count();
    let reason = if length > most {
        format!("has {length} characters; SageMaker takes at most {most}")
    } else if let Some(wrong) = text.chars().find(|c| !is_right(*c)) {
        format!("has {wrong:?}; SageMaker takes {words}")
    } else {
        return Ok(());
    };
    Err(RequestError {
        member: member.to_owned(),
        reason,
    })
}

/// An address in a bucket.
fn check_uri(uri: &str, member: &str) -> Result<(), RequestError> {
    if !is_s3(uri) {
        return Err(RequestError {
            member: member.to_owned(),
            reason: no_s3(uri),
        });
    }
    check_text(uri, 1024, LINE, member)
}

impl ProfilerConfig {
    /// Finds the first member that SageMaker would refuse by its form.
    ///
    /// # Errors
    /// There is no place for what is recorded, or the interval is none of Debugger's.
    pub fn check(&self) -> Result<(), RequestError> {
        let uri = self.s3_output_path.as_deref();
        if uri.is_some() || !self.disable_profiler {
            check_uri(uri.unwrap_or_default(), "ProfilerConfig.S3OutputPath")?;
        }
        match self.profiling_interval_in_milliseconds {
            Some(interval) if !INTERVALS.contains(&interval) => Err(RequestError {
                member: "ProfilerConfig.ProfilingIntervalInMilliseconds".to_owned(),
                reason: format!("is {interval}; choose one of 100, 200, 500, 1000, 5000 and 60000"),
            }),
            _ => Ok(()),
        }
    }
}

/// A type of machine, `ml.FAMILY.SIZE`. Which there are, only SageMaker knows.
fn check_type(name: &str, member: &str) -> Result<(), RequestError> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_type = parts.len() == 3 && parts[0] == "ml" && parts[1..].iter().all(|part| is_part(part));
    require(is_type, member, || {
        let name = name.escape_debug();
        format!("'{name}' is no type of machine; name one such as ml.g5.xlarge")
    })
}

/// Machines of one type and their number, or groups of them.
fn check_machines(machines: &ResourceConfig) -> Result<(), RequestError> {
    let wrong = |member: &str, reason: String| {
        let member = format!("ResourceConfig.{member}");
        Err(RequestError { member, reason })
    };
    let groups = &machines.instance_groups;
    if groups.is_empty() {
        check_type(&machines.instance_type, "ResourceConfig.InstanceType")?;
        if machines.instance_count == 0 {
            return wrong("InstanceCount", "is 0; ask for at least one machine".to_owned());
        }
        return Ok(());
    }
    if !machines.instance_type.is_empty() || machines.instance_count > 0 {
        let reason = "has groups beside a type and a number of machines; choose one of the two".to_owned();
        return wrong("InstanceGroups", reason);
    }
    if groups.len() > 5 {
        let reason = format!("has {} groups; SageMaker takes at most 5", groups.len());
        return wrong("InstanceGroups", reason);
    }
    let mut names = BTreeSet::new();
    for group in groups {
        let name = &group.instance_group_name;
        let member = format!("InstanceGroups.{}", name.escape_debug());
        check_text(name, 64, LINE, &format!("ResourceConfig.{member}"))?;
        if !(1..=64).contains(&name.chars().count()) {
            return wrong(&member, "the name of a group has 1 to 64 characters".to_owned());
        }
        if !names.insert(name) {
            return wrong(
                &member,
                "there are two groups of this name; rename one".to_owned(),
            );
        }
        check_type(&group.instance_type, &format!("ResourceConfig.{member}"))?;
        if group.instance_count == 0 {
            return wrong(&member, "has no machine; ask for at least one".to_owned());
        }
    }
    Ok(())
}

/// Finds a hyperparameter that looks like a secret: anyone who may describe a job sees it.
fn check_hyperparameters(encoded: &BTreeMap<String, String>) -> Result<(), RequestError> {
    match encoded.iter().find(|(name, text)| is_secret_text(name, text)) {
        Some((name, _)) => Err(RequestError {
            member: format!("HyperParameters.{name}"),
            reason: "looks like a secret, and who may see a job on SageMaker sees its hyperparameters; leave it out, and let the \
                     script fetch it with the job's role, by its name in AWS Secrets Manager; if it is none, rename it"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Labels; one that looks like a secret is refused, for labels are on bills and in searches.
fn check_tags(tags: &[Tag]) -> Result<(), RequestError> {
    bounded(tags.len(), 50, "Tags", "labels")?;
    for tag in tags {
        let member = format!("Tags.{}", tag.key.escape_debug());
        require(!tag.key.is_empty(), &member, || {
            "a label has no key; give one".to_owned()
        })?;
        check_text(&tag.key, 128, LABEL, &format!("{member}, its key"))?;
        check_text(&tag.value, 256, LABEL, &member)?;
        require(!tag.key.to_ascii_lowercase().starts_with("aws:"), &member, || {
            "AWS gives labels that begin with aws: itself; rename it".to_owned()
        })?;
    }
    match tags.iter().find(|tag| is_secret(&tag.key, &tag.value)) {
        Some(tag) => Err(RequestError {
            member: format!("Tags.{}", tag.key),
            reason: "looks like a secret, and labels are seen by all who may see the account's resources; leave it out; if it is \
                     none, rename it"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Whether a hyperparameter looks like a secret, as it is encoded.
pub(crate) fn is_secret_text(name: &str, text: &str) -> bool {
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    is_secret_hyperparameter(name, &value)
}

/// Whether this is `arn:aws*:iam::ACCOUNT:role/NAME`.
fn is_role(arn: &str) -> bool {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let [start, partition, service, region, account, resource] = parts[..] else {
        return false;
    };
    let is_part = |part: &str| part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let is_named = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-/".contains(c);
    start == "arn"
        && arn.len() <= 2048
        && partition.strip_prefix("aws").is_some_and(is_part)
        && service == "iam"
        && region.is_empty()
        && account.len() == 12
        && account.chars().all(|c| c.is_ascii_digit())
        && resource
            .strip_prefix("role/")
            .is_some_and(|name| !name.is_empty() && name.chars().all(is_named))
}

/// Whether this is `s3://BUCKET` or below.
fn is_s3(uri: &str) -> bool {
    uri.strip_prefix("s3://")
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

fn no_s3(uri: &str) -> String {
    format!("'{uri}' is not in a bucket that SageMaker reads; give it as s3://BUCKET/..")
}
