//! CreateTrainingJob's members, under SageMaker's names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The request CreateTrainingJob. Members that are `None` or empty are left out of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateTrainingJob {
    /// 1 to 63 letters, digits and hyphens; unique within the account and region.
    pub training_job_name: String,
    /// The role that the job acts as: `arn:aws:iam::ACCOUNT:role/NAME`.
    pub role_arn: String,
    /// What runs.
    pub algorithm_specification: AlgorithmSpecification,
    /// At most 100, made by [`encode_hyperparameters`](crate::encode_hyperparameters).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hyper_parameters: BTreeMap<String, String>,
    /// At most 20 channels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_data_config: Vec<Channel>,
    /// Where `model.tar.gz` goes.
    pub output_data_config: OutputDataConfig,
    /// The machines.
    pub resource_config: ResourceConfig,
    /// When SageMaker ends the job.
    pub stopping_condition: StoppingCondition,
    /// The network of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_config: Option<VpcConfig>,
    /// Whether the machines are cut off from all networks.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_network_isolation: bool,
    /// Whether what machines send to each other is encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_inter_container_traffic_encryption: bool,
    /// Whether the machines are spot machines; then `max_wait_time_in_seconds` is required.
    pub enable_managed_spot_training: bool,
    /// Where checkpoints are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_config: Option<CheckpointConfig>,
    /// What Debugger records of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiler_config: Option<ProfilerConfig>,
    /// At most 100 variables of at most 512 characters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Labels for the account's own order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
}

impl CreateTrainingJob {
    /// A request with SageMaker's defaults: one machine with 30 GB, one day, no spot. The image and the type of
    /// the machine are still empty, so [`check`](Self::check) refuses it.
    #[must_use]
    pub fn new(name: &str, role: &str, output: &str) -> Self {
        Self {
            training_job_name: name.to_owned(),
            role_arn: role.to_owned(),
            algorithm_specification: AlgorithmSpecification {
                training_image: String::new(),
                training_input_mode: InputMode::File,
                metric_definitions: Vec::new(),
            },
            hyper_parameters: BTreeMap::new(),
            input_data_config: Vec::new(),
            output_data_config: OutputDataConfig {
                s3_output_path: output.to_owned(),
                kms_key_id: None,
            },
            resource_config: ResourceConfig {
                instance_type: String::new(),
                instance_count: 1,
                instance_groups: Vec::new(),
                volume_size_in_gb: 30,
                volume_kms_key_id: None,
                keep_alive_period_in_seconds: None,
            },
            stopping_condition: StoppingCondition {
                max_runtime_in_seconds: 86_400,
                max_wait_time_in_seconds: None,
            },
            vpc_config: None,
            enable_network_isolation: false,
            enable_inter_container_traffic_encryption: false,
            enable_managed_spot_training: false,
            checkpoint_config: None,
            profiler_config: None,
            environment: BTreeMap::new(),
            tags: Vec::new(),
        }
    }
}

/// What runs, and how its lines are read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AlgorithmSpecification {
    /// The image in a registry.
    pub training_image: String,
    /// The mode of channels that name none.
    pub training_input_mode: InputMode,
    /// Metrics found in the job's lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric_definitions: Vec<MetricDefinition>,
}

/// A metric: the first group of `regex` in a line is its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetricDefinition {
    /// Its name.
    pub name: String,
    /// A regular expression with one group.
    pub regex: String,
}

/// How objects reach the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum InputMode {
    /// All objects are copied before the script starts.
    File,
    /// Files that are fetched when they are read.
    FastFile,
    /// Named pipes.
    Pipe,
}

/// Data under a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Channel {
    /// Its name, as in `SM_CHANNEL_NAME`.
    pub channel_name: String,
    /// Where the data is.
    pub data_source: DataSource,
    /// The data's MIME type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How objects reach the script; none for file systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_mode: Option<InputMode>,
    /// How objects are compressed; for pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_type: Option<CompressionType>,
    /// How a pipe separates objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_wrapper_type: Option<RecordWrapper>,
    /// The order of objects; for pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle_config: Option<ShuffleConfig>,
}

impl Channel {
    /// A channel of this name with this data, and nothing else said.
    #[must_use]
    pub fn new(name: &str, data: DataSource) -> Self {
        Self {
            channel_name: name.to_owned(),
            data_source: data,
            content_type: None,
            input_mode: None,
            compression_type: None,
            record_wrapper_type: None,
            shuffle_config: None,
        }
    }
}

/// How objects are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompressionType {
    /// Each is gzip, and is unpacked for the script.
    Gzip,
}

/// How a pipe separates objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RecordWrapper {
    /// Each is a RecordIO record.
    #[serde(rename = "RecordIO")]
    RecordIo,
}

/// Objects are shuffled again in each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ShuffleConfig {
    /// What the order is made of.
    pub seed: u64,
}

/// Where a channel's data is. The JSON has one member of the variant's name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum DataSource {
    /// Objects of a bucket.
    S3DataSource(S3DataSource),
    /// A folder on EFS or FSx for Lustre; the job then needs a network (`vpc_config`).
    FileSystemDataSource(FileSystemDataSource),
}

/// Objects of a bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct S3DataSource {
    /// What the address names.
    pub s3_data_type: S3DataType,
    /// `s3://BUCKET/..`.
    pub s3_uri: String,
    /// Which machine gets which objects.
    pub s3_data_distribution_type: Distribution,
    /// For augmented manifests: the attributes that each line contributes, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attribute_names: Vec<String>,
    /// The groups of machines that get it; none if all do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_group_names: Vec<String>,
}

/// What the address of an [`S3DataSource`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum S3DataType {
    /// All objects whose keys begin so.
    S3Prefix,
    /// A JSON list of objects.
    ManifestFile,
    /// JSON Lines that name objects.
    AugmentedManifestFile,
}

/// Which machine gets which objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Distribution {
    /// Every machine gets all.
    FullyReplicated,
    /// Every machine gets its share.
    ShardedByS3Key,
}

/// A folder on EFS or FSx for Lustre.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FileSystemDataSource {
    /// `fs-..`.
    pub file_system_id: String,
    /// Which kind of file system it is.
    pub file_system_type: FileSystemType,
    /// Whether the script may write.
    pub file_system_access_mode: FileSystemAccess,
    /// The folder's absolute path on the file system.
    pub directory_path: String,
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FileSystemType {
    /// Amazon EFS.
    #[serde(rename = "EFS")]
    Efs,
    /// Amazon FSx for Lustre.
    FSxLustre,
}

/// Whether a script may write to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FileSystemAccess {
    /// It may not.
    #[serde(rename = "ro")]
    ReadOnly,
    /// It may.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// Where `model.tar.gz` goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct OutputDataConfig {
    /// `s3://BUCKET/PREFIX`; the job's name is added.
    pub s3_output_path: String,
    /// The key that encrypts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
}

/// The machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ResourceConfig {
    /// `ml.g5.xlarge`, ..; empty with groups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    /// How many, at least 1; 0 with groups.
    #[serde(skip_serializing_if = "is_zero")]
    pub instance_count: u32,
    /// Groups of machines of different types, at most 5.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_groups: Vec<InstanceGroup>,
    /// The disk of each machine, in GB, at least 1.
    #[serde(rename = "VolumeSizeInGB")]
    pub volume_size_in_gb: u32,
    /// The key that encrypts the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_kms_key_id: Option<String>,
    /// How long the machines are kept for a next job, in seconds, 1 to 21600; not with spot machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_period_in_seconds: Option<u32>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Machines of one type in a cluster of several types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceGroup {
    /// Its name, 1 to 64 characters.
    pub instance_group_name: String,
    /// `ml.g5.xlarge`, ..
    pub instance_type: String,
    /// How many, at least 1.
    pub instance_count: u32,
}

/// When SageMaker ends the job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct StoppingCondition {
    /// How long it may run, in seconds, at least 1.
    pub max_runtime_in_seconds: u32,
    /// How long it may run and wait for spot machines, in seconds, at least the above; only for spot machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_time_in_seconds: Option<u32>,
}

/// The network of the machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VpcConfig {
    /// 1 to 5 groups, `sg-..`.
    pub security_group_ids: Vec<String>,
    /// 1 to 16 subnets, `subnet-..`.
    pub subnets: Vec<String>,
}

/// Where checkpoints are mirrored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CheckpointConfig {
    /// `s3://BUCKET/PREFIX`.
    pub s3_uri: String,
}

/// What Debugger records of the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProfilerConfig {
    /// `s3://BUCKET/PREFIX`; required unless it is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_output_path: Option<String>,
    /// One of 100, 200, 500, 1000, 5000 and 60000 ms; SageMaker's default is 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling_interval_in_milliseconds: Option<u32>,
    /// Whether nothing is recorded.
    pub disable_profiler: bool,
}

/// A label.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// 1 to 128 characters.
    pub key: String,
    /// At most 256 characters.
    pub value: String,
}
