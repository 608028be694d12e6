//! Arguments that name something on this machine: output paths, and small files.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser, ValueParserFactory};
use stokehold_base::uri;

use crate::failure::Usage;

/// A path on this machine. A URI is refused as an argument; as a path it would be a folder `s3:` here.
#[derive(Debug, Clone)]
pub struct Local(PathBuf);

impl ValueParserFactory for Local {
    type Parser = clap::builder::ValueParser;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().try_map(parse).into()
    }
}

fn parse(path: PathBuf) -> Result<Local, String> {
    // Programs that take a URI for a path turn it into `s3:/bucket`.
    let squeezed = ["s3:", "s3a:", "gs:", "az:", "azure:", "http:", "https:"];
    let is_squeezed = |text: &str| squeezed.iter().any(|scheme| text.starts_with(scheme));
    let Some(text) = path
        .to_str()
        .filter(|text| text.contains("://") || is_squeezed(text))
    else {
        return Ok(Local(path));
    };
    if uri::is_remote(text) || is_squeezed(text) {
        return Err("this has to be a path on this machine; to have it there, give a path here and copy it afterwards; to \
                    use what is there, copy it here first (with `aws s3 cp`, for example)"
            .to_owned());
    }
    let folder = text.strip_prefix("file://").map(PathBuf::from);
    Ok(Local(folder.unwrap_or(path)))
}

/// Refuses an environment variable that contains a URI, as an argument would be.
///
/// # Errors
/// It contains one.
pub fn check_variable(name: &str) -> Result<(), Usage> {
    let value = std::env::var_os(name).unwrap_or_default();
    match parse(PathBuf::from(&value)) {
        Ok(_) => Ok(()),
        Err(reason) => Err(Usage(format!("{name}={}: {reason}", value.display()))),
    }
}

impl Deref for Local {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Local {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for Local {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl From<Local> for PathBuf {
    fn from(local: Local) -> Self {
        local.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_and_places_elsewhere_are_refused() {
        for (text, path) in [
            ("a/b", "a/b"),
            ("/a b", "/a b"),
            ("a:/b", "a:/b"),
            ("file:///a/b", "/a/b"),
        ] {
            assert_eq!(&*parse(text.into()).unwrap(), Path::new(path));
        }
        for uri in [
            "s3://b/p",
            "s3:/b/p",
            "s3:x",
            "gs://b",
            "https://host/x",
            "what://x",
        ] {
            assert!(
                parse(uri.into()).unwrap_err().contains("on this machine"),
                "{uri}"
            );
        }
    }
}
