//! The calls about batch transforms and their models.

use serde_json::{Value, json};

use super::{Client, Trouble, bytes};
use crate::transform::DescribedModel;
use crate::{CreateModel, CreateTransformJob, Resource, SageMakerError, TransformJob};

impl Client {
    /// Creates a model, and returns its ARN. One of this name, with this image, data and role, is taken for it.
    ///
    /// # Errors
    /// The request is invalid or refused; [`SageMakerError::NameTaken`] by another model; as those of
    /// [`create`](Self::create).
    pub fn create_model(&self, request: &CreateModel) -> Result<String, SageMakerError> {
        request.check()?;
        let name = &request.model_name;
        let asked = json!({"ModelName": name});
        let found = |model: DescribedModel| {
            let (is, wanted) = (&model.primary_container, &request.primary_container);
            let is_same = is.image == wanted.image
                && is.model_data_url == wanted.model_data_url
                && model.execution_role_arn == request.execution_role_arn;
            (is_same, model.model_arn)
        };
        // SageMaker has no code of its own for a name that is taken, so it is asked for the name first.
        match self.sagemaker.call::<DescribedModel>("DescribeModel", &asked) {
            Ok(model) => match found(model) {
                (true, arn) => return Ok(arn),
                (false, _) => return Err(self.name_taken(Resource::Model, name)),
            },
            Err((trouble, _)) if trouble.is_missing() => {}
            Err((trouble, tried)) => return Err(self.sagemaker.error("DescribeModel", trouble, tried)),
        }
        let look = || -> Result<Option<(bool, String)>, Trouble> {
            match self.sagemaker.renewed("DescribeModel", &bytes(&asked)) {
                Ok(model) => Ok(Some(found(model))),
                Err(trouble) if trouble.is_missing() => Ok(None),
                Err(trouble) => Err(trouble),
            }
        };
        self.create_named("CreateModel", request, Resource::Model, name, &look)
    }

    /// Creates a transform, and returns its ARN; as [`create`](Self::create) does a training job.
    ///
    /// # Errors
    /// As those of [`create`](Self::create).
    pub fn create_transform_job(&self, request: &CreateTransformJob) -> Result<String, SageMakerError> {
        request.check()?;
        let name = &request.transform_job_name;
        let look = || -> Result<Option<(bool, String)>, Trouble> {
            let asked = bytes(&json!({"TransformJobName": name}));
            match self
                .sagemaker
                .renewed::<TransformJob>("DescribeTransformJob", &asked)
            {
                Ok(job) => {
                    let is_same = job.model_name == request.model_name
                        && job.transform_output.s3_output_path == request.transform_output.s3_output_path;
                    Ok(Some((is_same, job.transform_job_arn)))
                }
                Err(trouble) if trouble.is_missing() => Ok(None),
                Err(trouble) => Err(trouble),
            }
        };
        self.create_named("CreateTransformJob", request, Resource::TransformJob, name, &look)
    }

    /// Makes sure that no transform has this name.
    ///
    /// # Errors
    /// [`SageMakerError::NameTaken`]; SageMaker cannot be asked.
    pub fn require_free_transform_job(&self, name: &str) -> Result<(), SageMakerError> {
        match self.describe_transform_job(name) {
            Ok(_) => Err(self.name_taken(Resource::TransformJob, name)),
            Err(SageMakerError::NoSuchJob { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A transform as it is now.
    ///
    /// # Errors
    /// There is no such transform, or SageMaker cannot be asked.
    pub fn describe_transform_job(&self, name: &str) -> Result<TransformJob, SageMakerError> {
        self.asked_of(
            Resource::TransformJob,
            "DescribeTransformJob",
            &json!({"TransformJobName": name}),
            name,
        )
    }

    /// Asks SageMaker to stop a transform. One that has ended stays as it is.
    ///
    /// # Errors
    /// There is no such transform, or SageMaker cannot be asked.
    pub fn stop_transform_job(&self, name: &str) -> Result<(), SageMakerError> {
        let request = json!({"TransformJobName": name});
        match self.asked_of::<Value>(Resource::TransformJob, "StopTransformJob", &request, name) {
            Err(SageMakerError::Refused { .. })
                if self.describe_transform_job(name)?.transform_job_status.is_final() =>
            {
                Ok(())
            }
            stopped => stopped.map(drop),
        }
    }
}
