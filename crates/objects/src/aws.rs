//! Reads keys from AWS's profile files.

use std::path::{Path, PathBuf};

use object_store::aws::AmazonS3ConfigKey;

use crate::{Cause, ObjectError};

/// Where to look for credentials: variables and files. Tests use their own.
pub(crate) struct Surroundings<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub home: Option<PathBuf>,
}

/// The settings that the profile adds to those of the environment. None if the environment has keys of its
/// own: as in AWS's tools, it takes precedence.
///
/// # Errors
/// `AWS_PROFILE` names a profile that does not exist or has no keys.
pub(crate) fn profile(around: &Surroundings<'_>) -> Result<Vec<(AmazonS3ConfigKey, String)>, ObjectError> {
    let variable = |name: &str| (around.variable)(name).filter(|value| !value.is_empty());
    if variable("AWS_ACCESS_KEY_ID").is_some() {
        return Ok(Vec::new());
    }
    let chosen = variable("AWS_PROFILE");
    let name = chosen.as_deref().unwrap_or("default");
    let file = |variable_name: &str, default: &str| {
        let standard = || Some(around.home.as_ref()?.join(".aws").join(default));
        variable(variable_name).map(PathBuf::from).or_else(standard)
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let config = file("AWS_CONFIG_FILE", "config");
    let mut pairs = section(credentials.as_deref(), name);
    let heading = if name == "default" {
        name.to_owned()
    } else {
        format!("profile {name}")
    };
    pairs.extend(section(config.as_deref(), &heading));
    let has = |key: &str| pairs.iter().any(|(name, _)| name == key);
    if let Some(chosen) = &chosen
        && !has("aws_access_key_id")
    {
        let reason = if pairs.is_empty() {
            format!("AWS_PROFILE={chosen}: there is no such profile in ~/.aws/credentials and ~/.aws/config")
        } else {
            format!(
                "AWS_PROFILE={chosen}: this profile has no aws_access_key_id; profiles of single sign-on, roles and \
                 processes are read by AWS's own tools: run `aws configure export-credentials --format env` and use \
                 the variables it prints"
            )
        };
        return Err(ObjectError::new("s3://", Cause::BadUri, reason));
    }
    let known = [
        ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
        ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
        ("aws_session_token", AmazonS3ConfigKey::Token),
        ("region", AmazonS3ConfigKey::Region),
        ("endpoint_url", AmazonS3ConfigKey::Endpoint),
    ];
    let overridden = |key: &AmazonS3ConfigKey| match key {
        AmazonS3ConfigKey::Region => {
            variable("AWS_REGION").is_some() || variable("AWS_DEFAULT_REGION").is_some()
        }
        AmazonS3ConfigKey::Endpoint => {
            variable("AWS_ENDPOINT_URL").is_some() || variable("AWS_ENDPOINT").is_some()
        }
        _ => false,
    };
    let found = known.into_iter().filter_map(|(name, key)| {
        let (_, value) = pairs.iter().find(|(known, _)| known == name)?;
        (!overridden(&key)).then(|| (key, value.clone()))
    });
    Ok(found.collect())
}

/// The `key = value` pairs below `[heading]`; none if the file cannot be read.
fn section(file: Option<&Path>, heading: &str) -> Vec<(String, String)> {
    let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) else {
        return Vec::new();
    };
    let mut inside = false;
    let mut pairs = Vec::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default();
        if let Some(name) = line
            .trim()
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            inside = name.split_whitespace().eq(heading.split_whitespace());
        } else if inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            pairs.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    pairs
}

/// Whether it can be a part of a host's name.
pub(crate) fn is_region(region: &str) -> bool {
    !region.is_empty()
        && region.len() <= 32
        && region
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Vec<(AmazonS3ConfigKey, String)>, ObjectError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(home.path().join(".aws").join(name), text).unwrap();
        write(
            "credentials",
            "# keys\n[default]\naws_access_key_id = one\naws_secret_access_key=two # mine\n[team]\nAWS_ACCESS_KEY_ID=three\naws_secret_access_key=four\naws_session_token = five=6\n",
        );
        write(
            "config",
            "[default]\nregion = eu-west-1\n[profile team]\nregion = us-east-2\ns3 =\n  region = nested\nendpoint_url = http://here:9000\n[profile sso]\nsso_start_url = https://x\n",
        );
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        profile(&Surroundings {
            variable: &variable,
            home: Some(home.path().to_owned()),
        })
    }

    fn texts(pairs: Vec<(AmazonS3ConfigKey, String)>) -> Vec<String> {
        pairs.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn profiles_are_found_as_awss_tools_find_them() {
        assert_eq!(texts(found(&[]).unwrap()), ["one", "two", "eu-west-1"]);
        assert_eq!(
            texts(found(&[("AWS_PROFILE", "team")]).unwrap()),
            ["three", "four", "five=6", "us-east-2", "http://here:9000"]
        );
        assert_eq!(
            texts(
                found(&[
                    ("AWS_PROFILE", "team"),
                    ("AWS_REGION", "x"),
                    ("AWS_ENDPOINT_URL", "y")
                ])
                .unwrap()
            ),
            ["three", "four", "five=6"]
        );
        assert!(
            found(&[("AWS_ACCESS_KEY_ID", "env"), ("AWS_PROFILE", "team")])
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_profile_that_cannot_be_used_is_an_error() {
        let message = found(&[("AWS_PROFILE", "gone")]).unwrap_err().to_string();
        assert!(message.contains("no such profile"), "{message}");
        let message = found(&[("AWS_PROFILE", "sso")]).unwrap_err().to_string();
        assert!(message.contains("export-credentials"), "{message}");
    }
}
