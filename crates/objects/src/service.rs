//! Other services of AWS: requests that are JSON, signed with the credentials that buckets are opened with.
//!
//! A [`Service`] sends a request once, and says what came back. What an answer means, and whether a request may be
//! sent again, only its caller knows.

use std::fmt;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3ConfigKey, AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequest};
use reqwest::header::HeaderValue;
use reqwest::redirect;

use crate::aws::is_region;
use crate::connect::Redirected;
use crate::options::{Opening, Options};
use crate::runtime::{block_on, prepare};
use crate::secrets::Secrets;
use crate::{Cause, Location, ObjectError};

/// The size limit of an answer: the largest, a page of a log, has about 1 MiB.
const LARGEST: usize = 16 << 20;

/// What tells one of AWS's services from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// The name that requests are signed for: `sagemaker`.
    pub name: &'static str,
    /// What its host's name begins with: `api.sagemaker`.
    pub host: &'static str,
    /// What the names of its operations begin with: `SageMaker`.
    pub target: &'static str,
    /// The variable that names another server for it: `AWS_ENDPOINT_URL_SAGEMAKER`. It goes before
    /// `AWS_ENDPOINT_URL`.
    pub endpoint: &'static str,
}

/// An answer of any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceReply {
    /// HTTP's status, such as 200.
    pub status: u16,
    /// The body. That of a refusal is without the credentials, which some servers quote.
    pub body: Vec<u8>,
}

/// A request without an answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct Unanswered {
    /// Why, without secrets.
    pub error: ObjectError,
    /// Whether the server may have received the request.
    pub may_have_arrived: bool,
}

/// A service in a region. Makes no request before the first [`send`](Self::send).
pub struct Service {
    api: Api,
    region: String,
    address: String,
    credentials: AwsCredentialProvider,
    client: HttpClient,
    timeout: Duration,
    /// Values that no message may contain.
    secrets: Secrets,
}

/// What the names of a region's servers end with, as botocore's `partitions.json` has it.
fn domain(region: &str) -> &'static str {
    const OTHERS: [(&str, &str); 6] = [
        ("cn-", "amazonaws.com.cn"),
        ("eusc-", "amazonaws.eu"),
        ("us-iso-", "c2s.ic.gov"),
        ("us-isob-", "sc2s.sgov.gov"),
        ("us-isof-", "csp.hci.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk"),
    ];
    let own = OTHERS.iter().find(|(start, _)| region.starts_with(start));
    own.map_or("amazonaws.com", |(_, domain)| domain)
}

impl Service {
    /// Opens a service. Credentials, region and endpoint come from where buckets have them; `region` goes before.
    ///
    /// # Errors
    /// [`Cause::BadUri`] if there is no region, or a setting is invalid.
    pub fn open(api: Api, region: Option<&str>, options: &Options) -> Result<Self, ObjectError> {
        prepare()?;
        let name = api.name;
        // Messages begin with this place until the address is known.
        let location = Location::parse("s3://credentials")?;
        let mut opening = Opening::new(name, &location, options);
        let mut builder = opening.aws()?;
        let region = region
            .map(str::to_owned)
            .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Region))
            .filter(|region| !region.is_empty())
            .ok_or_else(|| {
                let reason = "there is no region; give one, in AWS_REGION or in the profile";
                ObjectError::new(name, Cause::BadUri, reason)
            })?;
        if !is_region(&region) {
            let reason = format!("'{region}' is no region; give one such as eu-west-1");
            return Err(ObjectError::new(name, Cause::BadUri, reason));
        }
        let own = options
            .variable(api.endpoint)
            .filter(|address| !address.is_empty());
        let address = own
            .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint))
            .unwrap_or_else(|| format!("https://{}.{region}.{}", api.host, domain(&region)));
        let wrong = |reason: String| ObjectError::new(name, Cause::BadUri, reason);
        let url = reqwest::Url::parse(&address).map_err(|error| {
            wrong(format!(
                "the endpoint ({} or AWS_ENDPOINT_URL) is no address such as http://127.0.0.1:5000: {error}",
                api.endpoint
            ))
        })?;
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.scheme(), "http" | "https") || has_user {
            return Err(wrong(format!(
                "the endpoint ({} or AWS_ENDPOINT_URL) is no http:// or https:// address without a user",
                api.endpoint
            )));
        }
        builder = builder.with_region(&region);
        // The builder wants a bucket's name; no request is for it.
        let unused = builder.with_bucket_name("credentials").build();
        let hidden = |error: object_store::Error| wrong(opening.secrets.hide(&error.to_string()));
        let credentials = unused.map_err(hidden)?.credentials().clone();
        // Another server that an answer names would get the request, with the session's token.
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .https_only(url.scheme() == "https")
            .timeout(options.timeout)
            .connect_timeout(options.timeout.min(Duration::from_secs(5)))
            .build()
            .map_err(|error| wrong(crate::error::chain(&error)))?;
        Ok(Self {
            api,
            region,
            address: url.to_string(),
            credentials,
            client: HttpClient::new(client),
            timeout: options.timeout,
            secrets: opening.secrets,
        })
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The address that requests go to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request once, and waits for its answer: at most the options' time limit, and as long again for credentials
    /// that come from a role.
    ///
    /// # Errors
    /// No answer came.
    pub fn send(&self, operation: &str, json: Vec<u8>) -> Result<ServiceReply, Unanswered> {
        let unsent = |error| Unanswered {
            error,
            may_have_arrived: false,
        };
        block_on(async {
            let found = tokio::time::timeout(self.timeout, self.credentials.get_credential()).await;
            let credential = found
                .map_err(|_| unsent(self.silent()))?
                .map_err(|error| unsent(ObjectError::of(self.address.clone(), &error, &self.secrets)))?;
            let request = self.signed(operation, json, &credential).map_err(unsent)?;
            let answered = tokio::time::timeout(self.timeout, self.answer(request)).await;
            let mut answer = answered.unwrap_or_else(|_| {
                Err(Unanswered {
                    error: self.silent(),
                    may_have_arrived: true,
                })
            })?;
            if answer.status != 200 {
                // A refused signature is answered with the signed text, which has the session's token in it.
                let mut secrets = Secrets::default();
                secrets.add(Some(credential.secret_key.clone()));
                secrets.add(credential.token.clone());
                answer.body = secrets.hide(&String::from_utf8_lossy(&answer.body)).into_bytes();
            }
            Ok(answer)
        })
        .map_err(unsent)?
    }

    fn silent(&self) -> ObjectError {
        let reason = format!("no answer in {:?}", self.timeout);
        ObjectError::new(&self.address, Cause::Unreachable, reason)
    }

    fn signed(
        &self,
        operation: &str,
        json: Vec<u8>,
        credential: &AwsCredential,
    ) -> Result<HttpRequest, ObjectError> {
        // The signer would panic.
        let is_plain = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !is_plain(&credential.key_id) || !credential.token.as_deref().is_none_or(is_plain) {
            let reason = "the access key or the session token has characters that no key has";
            return Err(ObjectError::new(&self.address, Cause::Denied, reason));
        }
        let wrong = |reason: String| ObjectError::new(&self.address, Cause::BadUri, reason);
        let mut request = HttpRequest::new(json.into());
        *request.method_mut() = reqwest::Method::POST;
        *request.uri_mut() = self.address.parse().map_err(|error| wrong(format!("{error}")))?;
        let target = format!("{}.{operation}", self.api.target);
        let target = HeaderValue::from_str(&target).map_err(|error| wrong(error.to_string()))?;
        let kind = HeaderValue::from_static("application/x-amz-json-1.1");
        request.headers_mut().insert("content-type", kind);
        request.headers_mut().insert("x-amz-target", target);
        AwsAuthorizer::new(credential, self.api.name, &self.region)
            .try_authorize(&mut request, None)
            .map_err(|error| wrong(self.secrets.hide(&error.to_string())))?;
        Ok(request)
    }

    async fn answer(&self, request: HttpRequest) -> Result<ServiceReply, Unanswered> {
        let failed = |may_have_arrived, error: object_store::client::HttpError| Unanswered {
            error: ObjectError::new(
                &self.address,
                Cause::Unreachable,
                self.secrets.hide(&crate::error::chain(&error)),
            ),
            may_have_arrived,
        };
        let answer = self
            .client
            .execute(request)
            .await
            .map_err(|error| failed(error.kind() != HttpErrorKind::Connect, error))?;
        let status = answer.status().as_u16();
        if let Some(redirected) = Redirected::of(answer.status(), answer.headers()) {
            let reason = self.secrets.hide(&redirected.to_string());
            return Err(Unanswered {
                error: ObjectError::new(&self.address, Cause::Other, reason),
                may_have_arrived: false,
            });
        }
        let mut body = Vec::new();
        let mut chunks = answer.into_body().bytes_stream();
        while let Some(chunk) = chunks.try_next().await.map_err(|error| failed(true, error))? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                let reason = format!("the answer has more than {LARGEST} bytes");
                return Err(Unanswered {
                    error: ObjectError::new(&self.address, Cause::Other, reason),
                    may_have_arrived: true,
                });
            }
        }
        Ok(ServiceReply { status, body })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({} at {})", self.api.name, self.address)
    }
}
