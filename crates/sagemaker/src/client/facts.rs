//! Everything that SageMaker says about a job, for imports.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, without_nulls};
use crate::SageMakerError;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TagsPage {
    #[serde(default)]
    tags: Vec<Label>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Label {
    key: String,
    value: String,
}

impl Client {
    /// All that SageMaker says about a job, as it says it.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn description(&self, name: &str) -> Result<Value, SageMakerError> {
        let request = json!({"TrainingJobName": name});
        self.asked_of("DescribeTrainingJob", &request, name)
    }

    /// The labels of a job, by its ARN.
    ///
    /// # Errors
    /// SageMaker cannot be asked, or the credentials do not allow it (`sagemaker:ListTags`).
    pub fn tags(&self, arn: &str) -> Result<BTreeMap<String, String>, SageMakerError> {
        let mut found = BTreeMap::new();
        self.pages("ListTags", |token| {
            let request = without_nulls(json!({"ResourceArn": arn, "NextToken": token}));
            let page: TagsPage = self.asked("ListTags", &request)?;
            found.extend(page.tags.into_iter().map(|tag| (tag.key, tag.value)));
            Ok(page.next_token)
        })?;
        Ok(found)
    }
}
