//! The calls about jobs that tune hyperparameters.

use serde_json::{Value, json};

use super::{Client, Trouble, bytes, without_nulls};
use crate::tuning::TunedPage;
use crate::{CreateTuningJob, Resource, SageMakerError, TunedJob, TuningJob};

impl Client {
    /// Creates a tuning job, and returns its ARN; as [`create`](Self::create) does a training job.
    ///
    /// # Errors
    /// As those of [`create`](Self::create).
    pub fn create_tuning_job(&self, request: &CreateTuningJob) -> Result<String, SageMakerError> {
        request.check()?;
        let name = &request.hyper_parameter_tuning_job_name;
        let look = || -> Result<Option<(bool, String)>, Trouble> {
            let asked = bytes(&json!({"HyperParameterTuningJobName": name}));
            match self
                .sagemaker
                .renewed::<TuningJob>("DescribeHyperParameterTuningJob", &asked)
            {
                Ok(job) => {
                    let (is, asked) = (
                        &job.hyper_parameter_tuning_job_config,
                        &request.hyper_parameter_tuning_job_config,
                    );
                    // Not the target, which SageMaker rounds to 32 bits.
                    let is_same = is.parameter_ranges == asked.parameter_ranges
                        && is.resource_limits == asked.resource_limits
                        && is.strategy == asked.strategy;
                    Ok(Some((is_same, job.hyper_parameter_tuning_job_arn)))
                }
                Err(trouble) if trouble.is_missing() => Ok(None),
                Err(trouble) => Err(trouble),
            }
        };
        self.create_named(
            "CreateHyperParameterTuningJob",
            request,
            Resource::TuningJob,
            name,
            &look,
        )
    }

    /// Makes sure that no tuning job has this name.
    ///
    /// # Errors
    /// [`SageMakerError::NameTaken`]; SageMaker cannot be asked.
    pub fn require_free_tuning_job(&self, name: &str) -> Result<(), SageMakerError> {
        match self.describe_tuning_job(name) {
            Ok(_) => Err(self.name_taken(Resource::TuningJob, name)),
            Err(SageMakerError::NoSuchJob { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A tuning job as it is now.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn describe_tuning_job(&self, name: &str) -> Result<TuningJob, SageMakerError> {
        self.asked_of(
            Resource::TuningJob,
            "DescribeHyperParameterTuningJob",
            &json!({"HyperParameterTuningJobName": name}),
            name,
        )
    }

    /// The training jobs of a tuning job, all of them, in the order in which they were asked for.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn tuned_jobs(&self, name: &str) -> Result<Vec<TunedJob>, SageMakerError> {
        let operation = "ListTrainingJobsForHyperParameterTuningJob";
        let mut found = Vec::new();
        self.pages(operation, |token| {
            let request = json!({
                "HyperParameterTuningJobName": name,
                "MaxResults": 100,
                "SortBy": "CreationTime",
                "SortOrder": "Ascending",
                "NextToken": token,
            });
            let request = without_nulls(request);
            let page: TunedPage = self.asked_of(Resource::TuningJob, operation, &request, name)?;
            found.extend(page.training_job_summaries);
            Ok(page.next_token)
        })?;
        Ok(found)
    }

    /// Asks SageMaker to stop a tuning job and its training jobs. One that has ended stays as it is.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn stop_tuning_job(&self, name: &str) -> Result<(), SageMakerError> {
        let request = json!({"HyperParameterTuningJobName": name});
        match self.asked_of::<Value>(Resource::TuningJob, "StopHyperParameterTuningJob", &request, name) {
            Err(SageMakerError::Refused { .. })
                if self
                    .describe_tuning_job(name)?
                    .hyper_parameter_tuning_job_status
                    .is_final() =>
            {
                Ok(())
            }
            stopped => stopped.map(drop),
        }
    }
}
