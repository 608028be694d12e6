//! Batch transforms: CreateModel's and CreateTransformJob's members under SageMaker's names, what SageMaker would refuse of
//! them, and what it answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::{
    LINE, bounded, check_image, check_key, check_name, check_network, check_role, check_tags, check_text,
    check_type, check_uri, check_variables, require,
};
use crate::{JobStatus, RequestError, Tag, VpcConfig};

/// The request CreateModel. Members that are `None` or empty are left out of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateModel {
    /// 1 to 63 letters, digits and hyphens; unique within the account and region.
    pub model_name: String,
    /// What answers requests.
    pub primary_container: Container,
    /// The role that it acts as.
    pub execution_role_arn: String,
    /// The network of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_config: Option<VpcConfig>,
    /// Labels for the account's own order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
}

/// What answers requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Container {
    /// The image in a registry: a server for inference.
    pub image: String,
    /// `s3://.../model.tar.gz`.
    pub model_data_url: String,
    /// At most 100 variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// The request CreateTransformJob. Members that are `None` or empty are left out of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateTransformJob {
    /// 1 to 63 letters, digits and hyphens; unique within the account and region.
    pub transform_job_name: String,
    /// The model.
    pub model_name: String,
    /// Requests at once to each machine; SageMaker asks the image if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_transforms: Option<u32>,
    /// The largest request, in MB, at most 100; SageMaker's default is 6.
    #[serde(rename = "MaxPayloadInMB", skip_serializing_if = "Option::is_none")]
    pub max_payload_in_mb: Option<u32>,
    /// How many records a request has; only where inputs are split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_strategy: Option<BatchStrategy>,
    /// What is transformed.
    pub transform_input: TransformInput,
    /// Where the predictions go.
    pub transform_output: TransformOutput,
    /// The machines.
    pub transform_resources: TransformResources,
    /// What of a record is read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_processing: Option<DataProcessing>,
    /// Labels for the account's own order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
}

/// How many records a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BatchStrategy {
    /// As many as fit.
    MultiRecord,
    /// One.
    SingleRecord,
}

/// What is transformed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TransformInput {
    /// Where it is.
    pub data_source: TransformSource,
    /// The MIME type of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How an object is split into records.
    pub split_type: SplitType,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransformSource {
    /// Objects of a bucket.
    #[serde(rename = "S3DataSource")]
    pub objects: TransformObjects,
}

/// Objects of a bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TransformObjects {
    /// What the address names.
    pub s3_data_type: TransformData,
    /// `s3://BUCKET/..`.
    pub s3_uri: String,
}

/// What an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TransformData {
    /// All objects whose keys begin so.
    S3Prefix,
    /// A JSON list of objects.
    ManifestFile,
}

/// How an object is split into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SplitType {
    /// It is one record.
    None,
    /// Each line is one.
    Line,
}

/// Where the predictions go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TransformOutput {
    /// `s3://BUCKET/PREFIX`; an object of each input is below it, with `.out` behind its name.
    pub s3_output_path: String,
    /// The MIME type of a prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept: Option<String>,
    /// How the predictions of an input are joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assemble_with: Option<AssembleWith>,
    /// The key that encrypts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
}

/// How the predictions of an input are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AssembleWith {
    /// Each on a line of its own.
    Line,
}

/// The machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TransformResources {
    /// `ml.g5.xlarge`, ..
    pub instance_type: String,
    /// How many, at least 1.
    pub instance_count: u32,
    /// The key that encrypts their disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_kms_key_id: Option<String>,
}

/// What of a record is read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DataProcessing {
    /// What of a record is sent, as JSONPath of at most 63 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_filter: Option<String>,
    /// What of the result is written, as JSONPath of at most 63 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_filter: Option<String>,
    /// What the prediction is put into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_source: Option<JoinSource>,
}

/// What the prediction is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum JoinSource {
    /// The record, as `SageMakerOutput`.
    Input,
}

impl CreateModel {
    /// Finds the first member that SageMaker would refuse by its form.
    ///
    /// # Errors
    /// The name, the role, the image, the network, a label or the model's address is not as SageMaker wants it.
    pub fn check(&self) -> Result<(), RequestError> {
        check_name(&self.model_name, "ModelName")?;
        check_role(&self.execution_role_arn, "ExecutionRoleArn")?;
        let container = &self.primary_container;
        check_image(&container.image, "PrimaryContainer.Image")?;
        check_uri(&container.model_data_url, "PrimaryContainer.ModelDataUrl")?;
        check_variables(&container.environment, 1024, "PrimaryContainer.Environment")?;
        check_network(self.vpc_config.as_ref())?;
        check_tags(&self.tags)
    }
}

impl CreateTransformJob {
    /// Finds the first member that SageMaker would refuse by its form.
    ///
    /// # Errors
    /// A name, an address, a number, a key, a label or a filter is not as SageMaker wants it.
    pub fn check(&self) -> Result<(), RequestError> {
        check_name(&self.transform_job_name, "TransformJobName")?;
        check_name(&self.model_name, "ModelName")?;
        let (input, output) = (&self.transform_input, &self.transform_output);
        check_uri(
            &input.data_source.objects.s3_uri,
            "TransformInput.DataSource.S3DataSource.S3Uri",
        )?;
        check_uri(&output.s3_output_path, "TransformOutput.S3OutputPath")?;
        for (member, kind) in [
            ("TransformInput.ContentType", &input.content_type),
            ("TransformOutput.Accept", &output.accept),
        ] {
            check_text(kind.as_deref().unwrap_or_default(), 256, LINE, member)?;
        }
        check_key(output.kms_key_id.as_deref(), "TransformOutput.KmsKeyId")?;
        let machines = &self.transform_resources;
        check_key(
            machines.volume_kms_key_id.as_deref(),
            "TransformResources.VolumeKmsKeyId",
        )?;
        check_type(&machines.instance_type, "TransformResources.InstanceType")?;
        require(
            machines.instance_count > 0,
            "TransformResources.InstanceCount",
            || "is 0; ask for at least one machine".to_owned(),
        )?;
        let at_once = self.max_concurrent_transforms.unwrap_or(1).max(1);
        let payload = self.max_payload_in_mb.unwrap_or(0);
        require(
            u64::from(at_once) * u64::from(payload) <= 100,
            "MaxPayloadInMB",
            || {
                format!(
                    "{payload} MB for each of {at_once} requests at once is more than SageMaker takes, 100 MB in all"
                )
            },
        )?;
        require(
            self.batch_strategy.is_none() || input.split_type != SplitType::None,
            "BatchStrategy",
            || "only inputs that are split have more than one record; leave it out".to_owned(),
        )?;
        if let Some(data) = &self.data_processing {
            for (member, filter) in [
                ("DataProcessing.InputFilter", &data.input_filter),
                ("DataProcessing.OutputFilter", &data.output_filter),
            ] {
                let length = filter.as_deref().unwrap_or_default().chars().count();
                bounded(length, 63, member, "characters")?;
            }
        }
        check_tags(&self.tags)
    }
}

/// A transform, as DescribeTransformJob tells it. Times are unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TransformJob {
    /// The name.
    pub transform_job_name: String,
    /// `arn:aws:sagemaker:..`.
    pub transform_job_arn: String,
    /// The state.
    pub transform_job_status: JobStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The model.
    pub model_name: String,
    /// When it was asked for.
    pub creation_time: f64,
    /// When its machines were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform_start_time: Option<f64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform_end_time: Option<f64>,
    /// Where the predictions go.
    #[serde(default)]
    pub transform_output: OutputPlace,
}

/// Where the predictions go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct OutputPlace {
    /// `s3://BUCKET/PREFIX`.
    #[serde(default)]
    pub s3_output_path: String,
}

/// A model, as DescribeModel tells it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribedModel {
    pub model_arn: String,
    #[serde(default)]
    pub primary_container: Container,
    #[serde(default)]
    pub execution_role_arn: String,
}
