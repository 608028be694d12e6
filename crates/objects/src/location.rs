//! The place of objects: a parsed URI or path.

use std::fmt;
use std::path::PathBuf;

use crate::{Cause, ObjectError};

/// The protocol that a place speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `s3://bucket/prefix`
    S3,
    /// `gs://bucket/prefix`
    Google,
    /// `az://container/prefix`
    Azure,
    /// `http://..` and `https://..`: objects can be fetched; a list needs a server that speaks WebDAV.
    Http,
    /// A path, or `file:///path`.
    Local,
}

/// A place that holds objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The protocol.
    pub scheme: Scheme,
    /// The bucket or container; for HTTP the scheme and host; empty for a local path.
    pub bucket: String,
    /// The prefix of its objects' keys, without a slash at either end; for a local place the folder.
    pub prefix: String,
}

impl Location {
    /// Parses a URI or a path.
    ///
    /// # Errors
    /// [`Cause::BadUri`] for an unknown scheme, a missing bucket, or a URI with a user, a password or a query.
    pub fn parse(text: &str) -> Result<Self, ObjectError> {
        let bad = |reason: String| ObjectError::new(without_secrets(text), Cause::BadUri, reason);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::local(text));
        };
        let is_refused = has_user(scheme, rest);
        let scheme = match scheme {
            "s3" | "s3a" => Scheme::S3,
            "gs" => Scheme::Google,
            "az" | "azure" => Scheme::Azure,
            "http" | "https" => Scheme::Http,
            "file" => return Ok(Self::local(rest)),
            other => {
                return Err(bad(format!(
                    "{other}:// is not known; there are s3://, gs://, az://, http://, https:// and paths"
                )));
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(bad(
                "it names no bucket; write it as s3://BUCKET/PREFIX".to_owned()
            ));
        }
        if is_refused || (scheme == Scheme::Http && rest.contains('?')) {
            return Err(bad(
                "an address with a user, a password or a query is not taken, for messages and records would show its secret; use \
                 s3://, gs:// or az:// with credentials of the environment"
                    .to_owned(),
            ));
        }
        let bucket = match scheme {
            Scheme::Http => text[..text.len() - rest.len() + bucket.len()].to_owned(),
            _ => bucket.to_owned(),
        };
        Ok(Self {
            scheme,
            bucket,
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }

    fn local(path: &str) -> Self {
        Self {
            scheme: Scheme::Local,
            bucket: String::new(),
            prefix: path.to_owned(),
        }
    }

    /// The folder of a local place.
    pub fn folder(&self) -> Option<PathBuf> {
        (self.scheme == Scheme::Local).then(|| PathBuf::from(&self.prefix))
    }

    /// The URI of an object in it.
    pub fn uri(&self, key: &str) -> String {
        match key {
            "" => self.to_string(),
            key => format!("{}/{key}", self.to_string().trim_end_matches('/')),
        }
    }
}

/// Whether a URI's part after `://` begins with a user or a password. A secret may contain slashes, and may be
/// there without a bucket after it. No bucket's name contains `@` or `:`; a host may have a port.
fn has_user(scheme: &str, rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    // The colons of an IPv6 address are in brackets.
    let behind = authority.rsplit(']').next().unwrap_or_default();
    let may_be_port = !["s3", "s3a", "gs", "az", "azure"].contains(&scheme);
    let is_port = |port: &str| may_be_port && port.bytes().all(|byte| byte.is_ascii_digit());
    authority.contains('@') || behind.split_once(':').is_some_and(|(_, port)| !is_port(port))
}

/// A URI for a message: without a user, a password and a query.
fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let shown = rest.split('?').next().unwrap_or_default();
    if !has_user(scheme, rest) {
        return format!("{scheme}://{shown}");
    }
    // Behind the last `@`: the secret itself may contain one, and slashes.
    let host = shown.rsplit_once('@').map_or("***", |(_, host)| host);
    format!("{scheme}://{}", host.split('/').next().unwrap_or_default())
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::S3 => write!(f, "s3://{}/{}", self.bucket, self.prefix),
            Scheme::Google => write!(f, "gs://{}/{}", self.bucket, self.prefix),
            Scheme::Azure => write!(f, "az://{}/{}", self.bucket, self.prefix),
            Scheme::Http => write!(f, "{}/{}", self.bucket, self.prefix),
            Scheme::Local => f.write_str(&self.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_uris_apart_and_puts_them_together() {
        for (text, scheme, bucket, prefix, key) in [
            ("s3://b/p/q/", Scheme::S3, "b", "p/q", "s3://b/p/q/k"),
            ("s3://b", Scheme::S3, "b", "", "s3://b/k"),
            ("gs://b/p", Scheme::Google, "b", "p", "gs://b/p/k"),
            ("az://c/p", Scheme::Azure, "c", "p", "az://c/p/k"),
            (
                "http://h:9000/p/q",
                Scheme::Http,
                "http://h:9000",
                "p/q",
                "http://h:9000/p/q/k",
            ),
            (
                "http://[::1]:9000/p",
                Scheme::Http,
                "http://[::1]:9000",
                "p",
                "http://[::1]:9000/p/k",
            ),
            (
                "http://[::1]/p",
                Scheme::Http,
                "http://[::1]",
                "p",
                "http://[::1]/p/k",
            ),
            ("s3://b/a@b:c", Scheme::S3, "b", "a@b:c", "s3://b/a@b:c/k"),
            ("/data/x", Scheme::Local, "", "/data/x", "/data/x/k"),
            ("/a:b@c/x", Scheme::Local, "", "/a:b@c/x", "/a:b@c/x/k"),
            ("file:///data/x", Scheme::Local, "", "/data/x", "/data/x/k"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(
                (
                    location.scheme,
                    location.bucket.as_str(),
                    location.prefix.as_str()
                ),
                (scheme, bucket, prefix)
            );
            assert_eq!(location.uri("k"), key);
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_uri() {
        let message = Location::parse("ftp://host/x").unwrap_err().to_string();
        assert!(
            message.contains("ftp://host/x") && message.contains("s3://"),
            "{message}"
        );
        for (secret, shown) in [
            ("https://user:Passw0rd@host/x", "https://host"),
            ("https://host/c/x?sig=Passw0rd", "https://host/c/x"),
            ("https://host:9000?sig=Passw0rd", "https://host:9000"),
            ("http://user:Passw0rd@host", "http://host"),
            ("http://user:Passw0rd/+@host/x", "http://host"),
            ("http://Passw0rd@[::1]:80/x", "http://[::1]:80"),
            ("s3://KEY:Passw0rd@bucket/x", "s3://bucket"),
            ("s3://KEY:Pa/Passw0rd+@bucket/x", "s3://bucket"),
            ("s3a://KEY:Passw0rd", "s3a://***"),
            ("s3://KEY:Passw0rd/x", "s3://***"),
            ("gs://Passw0rd@bucket/x", "gs://bucket"),
            ("az://account:Passw0rd==@container/x", "az://container"),
        ] {
            let message = Location::parse(secret).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("{shown}: an address with a user")),
                "{message}"
            );
            assert!(!message.contains("Passw0rd"), "{message}");
        }
        let message = Location::parse("ftp://user:Passw0rd@host/x")
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("ftp://host: ftp:// is not known") && !message.contains("Passw0rd"),
            "{message}"
        );
        let message = Location::parse("s3:///x").unwrap_err().to_string();
        assert!(message.contains("names no bucket"), "{message}");
    }
}
