//! Which of many jobs still run: one call for all of them.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Client, without_nulls};
use crate::SageMakerError;
use crate::answer::JobsPage;

impl Client {
    /// The names of the training jobs that are in progress and have `part` in their names. A job that is being stopped is in
    /// progress no more; one that was created a moment ago may be missing.
    ///
    /// # Errors
    /// SageMaker cannot be asked.
    pub fn in_progress(&self, part: &str) -> Result<BTreeSet<String>, SageMakerError> {
        let mut found = BTreeSet::new();
        self.pages("ListTrainingJobs", |token| {
            let request = json!({
                "MaxResults": 100,
                "NameContains": part,
                "StatusEquals": "InProgress",
                "NextToken": token,
            });
            let page: JobsPage = self.asked("ListTrainingJobs", &without_nulls(request))?;
            let names = page.training_job_summaries.into_iter();
            found.extend(names.map(|job| job.training_job_name));
            Ok(page.next_token)
        })?;
        Ok(found)
    }
}
