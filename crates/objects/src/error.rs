//! Errors of access to objects.

use stokehold_base::fault::Fault;
use stokehold_base::uri;

use crate::connect::Redirected;
use crate::secrets::Secrets;

/// The kind of a failure, as far as programs need to distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The URI or a setting is wrong.
    BadUri,
    /// There is no such object, prefix or bucket.
    NotFound,
    /// The credentials are missing, wrong or expired, or do not allow it.
    Denied,
    /// The server could not be reached, or did not answer in time, after all retries.
    Unreachable,
    /// The object changed, or is not the expected one: another size, another checksum.
    Changed,
    /// The local disk: full, read-only, ..
    Disk,
    /// Anything else.
    Other,
}

/// A failed operation on an object. The message names the object, the cause and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{uri}: {reason}{}", advice(.uri, *.cause))]
pub struct ObjectError {
    /// The object or place.
    pub uri: String,
    /// The kind of failure.
    pub cause: Cause,
    /// The message of the server or the system.
    pub reason: String,
}

fn advice(uri: &str, cause: Cause) -> &'static str {
    match cause {
        Cause::NotFound if !uri::is_remote(uri) => "; check the path",
        Cause::NotFound => "; check the bucket's and the key's name",
        Cause::Denied => {
            "; check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role) and what they \
             allow; AWS_SKIP_SIGNATURE=true reads public buckets without any"
        }
        Cause::Unreachable => "; check the network and the endpoint (AWS_ENDPOINT_URL)",
        Cause::Changed => "; start again, so that one version is read throughout",
        Cause::BadUri | Cause::Disk | Cause::Other => "",
    }
}

impl ObjectError {
    pub(crate) fn new(uri: impl Into<String>, cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            cause,
            reason: reason.into(),
        }
    }

    /// The error of `object_store` on one line, without secrets that a server may have sent back.
    pub(crate) fn of(uri: String, error: &object_store::Error, secrets: &Secrets) -> Self {
        use object_store::Error;
        if let Some(redirected) = Redirected::within(error) {
            return Self::new(
                uri,
                Cause::Other,
                one_line(&secrets.hide(&redirected.to_string())),
            );
        }
        let text = chain(error);
        let code = between(&text, "<Code>", "</Code>");
        let message = between(&text, "<Message>", "</Message>");
        let denied = [
            "AccessDenied",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidToken",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
        ];
        let cause = match error {
            _ if code.is_some_and(|code| denied.contains(&code)) => Cause::Denied,
            _ if code.is_some_and(|code| code.starts_with("NoSuch")) => Cause::NotFound,
            Error::NotFound { .. } => Cause::NotFound,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Cause::Denied,
            Error::Precondition { .. } | Error::NotModified { .. } => Cause::Changed,
            Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => Cause::BadUri,
            // The instance's metadata service is asked last; where it does not answer there are no credentials.
            Error::Generic { .. } if text.contains("169.254.") => {
                return Self::new(uri, Cause::Denied, "no credentials were found");
            }
            Error::Generic { .. } if is_transport(&text) => Cause::Unreachable,
            _ => Cause::Other,
        };
        let reason = match (code, message) {
            (Some(code), Some(message)) => format!("{message} ({code})"),
            (Some(code), None) => code.to_owned(),
            _ => match cause {
                Cause::NotFound => "there is no such object".to_owned(),
                _ => text,
            },
        };
        Self::new(uri, cause, one_line(&secrets.hide(&reason)))
    }
}

fn is_transport(text: &str) -> bool {
    [
        "error sending request",
        "retries",
        "timed out",
        "connection",
        "status: 5",
        "decoding response body",
    ]
    .iter()
    .any(|sign| text.to_ascii_lowercase().contains(sign))
}

/// An error with all its sources that say something new.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

/// At most 400 characters without line breaks: servers answer with pages.
fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}

impl Fault for ObjectError {
    fn is_input(&self) -> bool {
        matches!(self.cause, Cause::BadUri | Cause::NotFound | Cause::Denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_page_becomes_a_line_without_secrets() {
        let page = "Server returned non-2xx status code: 403: <?xml?><Error><Code>SignatureDoesNotMatch</Code>\
                    <Message>The request with\n token tok-1234 is wrong</Message><CanonicalRequest>tok-1234</CanonicalRequest></Error>";
        let error = object_store::Error::Generic {
            store: "S3",
            source: page.into(),
        };
        let mut secrets = Secrets::default();
        secrets.add(Some("tok-1234".to_owned()));
        let error = ObjectError::of("s3://b/k".to_owned(), &error, &secrets);
        assert_eq!(error.cause, Cause::Denied);
        let message = error.to_string();
        assert!(
            message.starts_with(
                "s3://b/k: The request with token *** is wrong (SignatureDoesNotMatch); check the credentials"
            ),
            "{message}"
        );
    }

    #[test]
    fn a_folder_that_is_missing_is_no_bucket() {
        for (uri, asked) in [
            ("data/train", "check the path"),
            ("file:///data/train", "check the path"),
            ("s3://b/k", "check the bucket's and the key's name"),
        ] {
            let message = ObjectError::new(uri, Cause::NotFound, "not there").to_string();
            assert!(message.ends_with(asked), "{message}");
        }
    }
}
