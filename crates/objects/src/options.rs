//! How a place is accessed: its options, and the client that they make.

use std::str::FromStr;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::aws::{Surroundings, profile};
use crate::connect::Redirects;
use crate::secrets::Secrets;
use crate::{Cause, Location, ObjectError, Scheme};

/// How to access a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most requests in flight; 64 reach a few thousand objects a second at 20 ms each.
    pub requests: usize,
    /// The time limit of a request, and of silence on its connection.
    pub timeout: Duration,
    /// How long a request is retried after transport errors, throttling and answers of 500 and above, with
    /// growing, jittered pauses.
    pub retry: Duration,
    /// Variables that take precedence over those of the environment: `AWS_ENDPOINT_URL`, ..
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            requests: 64,
            timeout: Duration::from_secs(30),
            retry: Duration::from_secs(60),
            settings: Vec::new(),
        }
    }
}

impl Options {
    /// These options for buckets of AWS in a region.
    #[must_use]
    pub fn in_region(&self, region: &str) -> Self {
        let mut options = self.clone();
        options.settings.retain(|(name, _)| name != "AWS_REGION");
        options
            .settings
            .push(("AWS_REGION".to_owned(), region.to_owned()));
        options
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let own = self.settings.iter().find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| std::env::var(name).ok())
    }

    /// The variables that begin with `prefix` and that a store knows, ours last so that they win.
    fn known<K: FromStr>(&self, prefix: &str) -> Vec<(K, String)> {
        let outer = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        outer
            .chain(self.settings.iter().cloned())
            .filter(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
            .collect()
    }
}

/// A place that is being opened. Makes no request.
pub(crate) struct Opening<'a> {
    uri: &'a str,
    location: &'a Location,
    options: &'a Options,
    pub client: ClientOptions,
    retry: RetryConfig,
    /// Values that no message may contain.
    pub secrets: Secrets,
}

impl<'a> Opening<'a> {
    pub fn new(uri: &'a str, location: &'a Location, options: &'a Options) -> Self {
        let client = ClientOptions::new()
            .with_timeout(options.timeout)
            .with_read_timeout(options.timeout)
            .with_connect_timeout(options.timeout.min(Duration::from_secs(5)))
            .with_pool_max_idle_per_host(options.requests);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 20,
            retry_timeout: options.retry,
        };
        Self {
            uri,
            location,
            options,
            client,
            retry,
            secrets: Secrets::default(),
        }
    }

    /// The place's client, and the secrets that it was made with.
    pub fn store(mut self) -> Result<(Box<dyn ObjectStore>, Secrets), ObjectError> {
        let store = match self.location.scheme {
            Scheme::S3 => self.s3(),
            Scheme::Google => self.google(),
            Scheme::Azure => self.azure(),
            Scheme::Http => self.http(),
            Scheme::Local => self.local(),
        }?;
        Ok((store, self.secrets))
    }

    fn s3(&mut self) -> Result<Box<dyn ObjectStore>, ObjectError> {
        let builder = self.aws()?;
        self.built(builder.with_bucket_name(&self.location.bucket).build())
    }

    /// The settings for AWS: those of the environment, of the profile and of the options.
    pub fn aws(&mut self) -> Result<AmazonS3Builder, ObjectError> {
        // The client's settings come first, so that the environment's (`AWS_ALLOW_HTTP`, proxies) stay.
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(Redirects::Refused)
            .with_client_options(self.client.clone())
            .with_retry(self.retry.clone());
        for (key, value) in self.options.known("AWS_") {
            builder = builder.with_config(key, value);
        }
        let around = Surroundings {
            variable: &|name| self.options.variable(name),
            home: std::env::home_dir(),
        };
        for (key, value) in profile(&around)? {
            builder = builder.with_config(key, value);
        }
        for key in [AmazonS3ConfigKey::SecretAccessKey, AmazonS3ConfigKey::Token] {
            self.secrets.add(builder.get_config_value(&key));
        }
        if let Some(endpoint) = builder.get_config_value(&AmazonS3ConfigKey::Endpoint) {
            // The client would accept any text, and panic at its first request.
            let address = reqwest::Url::parse(&endpoint).map_err(|error| {
                self.wrong(format!(
                    "the endpoint (AWS_ENDPOINT_URL, or endpoint_url of the profile) is no address such as \
                     http://127.0.0.1:9000: {error}"
                ))
            })?;
            self.secrets.add(address.password().map(str::to_owned));
            // An http:// endpoint in the settings allows HTTP.
            if endpoint.starts_with("http://") {
                let allow = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
                builder = builder.with_config(allow, "true");
            }
        }
        Ok(builder)
    }

    fn google(&mut self) -> Result<Box<dyn ObjectStore>, ObjectError> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_http_connector(Redirects::Refused)
            .with_client_options(self.client.clone())
            .with_retry(self.retry.clone());
        for (key, value) in self.options.known("GOOGLE_") {
            builder = builder.with_config(key, value);
        }
        let account = builder.get_config_value(&GoogleConfigKey::ServiceAccountKey);
        self.secrets.add_service_account(account);
        self.secrets
            .add(builder.get_config_value(&GoogleConfigKey::BearerToken));
        self.built(builder.with_bucket_name(&self.location.bucket).build())
    }

    fn azure(&mut self) -> Result<Box<dyn ObjectStore>, ObjectError> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_http_connector(Redirects::Refused)
            .with_client_options(self.client.clone())
            .with_retry(self.retry.clone());
        for (key, value) in self.options.known("AZURE_") {
            builder = builder.with_config(key, value);
        }
        for key in [
            AzureConfigKey::AccessKey,
            AzureConfigKey::ClientSecret,
            AzureConfigKey::Token,
            AzureConfigKey::FabricSessionToken,
        ] {
            self.secrets.add(builder.get_config_value(&key));
        }
        self.secrets
            .add_signature(builder.get_config_value(&AzureConfigKey::SasKey));
        self.built(builder.with_container_name(&self.location.bucket).build())
    }

    fn http(&self) -> Result<Box<dyn ObjectStore>, ObjectError> {
        let allow_http = self.location.bucket.starts_with("http://");
        let builder = HttpBuilder::new()
            .with_http_connector(Redirects::Followed)
            .with_client_options(self.client.clone().with_allow_http(allow_http))
            .with_retry(self.retry.clone());
        self.built(builder.with_url(&self.location.bucket).build())
    }

    fn local(&self) -> Result<Box<dyn ObjectStore>, ObjectError> {
        match LocalFileSystem::new_with_prefix(&self.location.prefix) {
            Ok(folder) => Ok(Box::new(folder)),
            Err(error) => {
                let url = self.location.to_string();
                Err(ObjectError::new(&url, Cause::NotFound, error.to_string()))
            }
        }
    }

    fn built<S: ObjectStore>(
        &self,
        store: Result<S, object_store::Error>,
    ) -> Result<Box<dyn ObjectStore>, ObjectError> {
        match store {
            Ok(store) => Ok(Box::new(store)),
            Err(error) => Err(self.wrong(self.secrets.hide(&error.to_string()))),
        }
    }

    fn wrong(&self, reason: String) -> ObjectError {
        ObjectError::new(self.uri, Cause::BadUri, reason)
    }
}
