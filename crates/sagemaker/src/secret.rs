//! Which hyperparameters are secrets.

use serde_json::Value;
use stokehold_base::secret::{has_option, is_secret};

/// As [`is_secret`], for a hyperparameter: a list or a table has a secret if a value in it is one, by its own name too, as in the list
/// `["--api-key", ".."]`. Numbers and truth values are sizes and switches: `max_tokens = 512`.
#[must_use]
pub(crate) fn is_secret_hyperparameter(name: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && is_secret(name, text),
        Value::Array(values) => {
            let texts: Vec<&str> = values
                .iter()
                .map(|value| value.as_str().unwrap_or_default())
                .collect();
            has_option(&texts) || values.iter().any(|value| is_secret_hyperparameter(name, value))
        }
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| is_secret_hyperparameter(&format!("{name}.{key}"), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_within_lists_and_tables_are_found() {
        let list = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for text in [
            r#"["--api-key", "x"]"#,
            r#"["train", "--hf-token", "a1b2c3d4"]"#,
            r#"[["-x", "HF_TOKEN=a1b2c3d4"]]"#,
            r#"{"db": {"password": "x"}}"#,
        ] {
            assert!(is_secret_hyperparameter("args", &list(text)), "{text}");
        }
        for text in [
            r#"["--sort-key", "name", "--max-tokens", "512", "--api-key"]"#,
            r#"["--api-key", "--verbose", "--use-auth-token", "false"]"#,
            r#"["--api-key", 1]"#,
            r#"{"key": [64, 64], "token": null, "sort-key": "x"}"#,
            r#"{"password": ""}"#,
        ] {
            assert!(!is_secret_hyperparameter("args", &list(text)), "{text}");
        }
    }
}
