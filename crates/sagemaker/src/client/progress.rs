//! Which of many jobs still run: one call for all of them.

use std::collections::BTreeSet;

use serde_json::json;

use super::Client;
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
        let mut token: Option<String> = None;
        loop {
            let mut request = json!({"MaxResults": 100, "NameContains": part, "StatusEquals": "InProgress"});
            if let Some(token) = &token {
                request["NextToken"] = json!(token);
            }
            let page: JobsPage = self.asked("ListTrainingJobs", &request, None)?;
            found.extend(
                page.training_job_summaries
                    .into_iter()
                    .map(|job| job.training_job_name),
            );
            if page.next_token.is_none() || page.next_token == token {
                return Ok(found);
            }
            token = page.next_token;
        }
    }
}
