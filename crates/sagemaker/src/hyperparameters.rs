//! Hyperparameters as strings, which is all that SageMaker carries.

use std::collections::BTreeMap;

use serde_json::Value;

/// Hyperparameters as SageMaker carries them: every value is a string that holds JSON, so a string is quoted. The
/// training toolkit parses each string as JSON, and the script gets the same values and types.
#[must_use]
pub fn encode_hyperparameters(values: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let encode = |(name, value): (&String, &Value)| (name.clone(), value.to_string());
    values.iter().map(encode).collect()
}
