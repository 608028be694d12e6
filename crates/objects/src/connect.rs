//! The HTTP client of a place: that of `object_store`, whose options say nothing about redirects and whose lists lose keys.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::tls::Certificate;
use reqwest::{Method, NoProxy, Proxy, StatusCode, redirect};

use crate::aws::is_region;
use crate::keys;

/// What happens to an answer that names another address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Redirects {
    /// It is an error: the other server would get the request with a session's token.
    Refused,
    /// It is followed. The other server gets neither the credentials nor the address that led to it.
    Followed,
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
#[error(
    "it answers with a redirect to {} (HTTP status {}), which is not followed: that server would get the credentials. {}",
    .to.as_deref().unwrap_or("nowhere"), .status.as_u16(), remedy(.region.as_deref())
)]
pub(crate) struct Redirected {
    status: StatusCode,
    to: Option<String>,
    region: Option<String>,
}

fn remedy(region: Option<&str>) -> String {
    match region {
        Some(region) => format!("The bucket is in the region {region}: set AWS_REGION={region}"),
        None => "Check the endpoint and the region".to_owned(),
    }
}

impl Redirected {
    /// The redirect that an answer is.
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        // 304 says that nothing has changed.
        let is_redirect = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        let text = |value: Option<&reqwest::header::HeaderValue>| {
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        is_redirect.then(|| Self {
            status,
            to: text(headers.get(LOCATION)),
            region: text(headers.get("x-amz-bucket-region")).filter(|region| is_region(region)),
        })
    }

    /// The redirect that an error comes from.
    pub fn within<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }
}

impl HttpConnector for Redirects {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = client(options, *self).map_err(|source| object_store::Error::Generic {
            store: "HTTP client",
            source,
        })?;
        Ok(match self {
            Self::Followed => HttpClient::new(client),
            Self::Refused => HttpClient::new(Direct(HttpClient::new(client))),
        })
    }
}

/// A client that answers a redirect with an error, and a list with encoded keys.
#[derive(Debug)]
struct Direct(HttpClient);

impl HttpService for Direct {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let is_list = request.method() == Method::GET && request.uri().query().is_some_and(keys::is_list);
            let answer = self.0.execute(request).await?;
            if let Some(redirected) = Redirected::of(answer.status(), answer.headers()) {
                // An error of this kind is not tried again.
                return Err(HttpError::new(HttpErrorKind::Unknown, redirected));
            }
            if !is_list || !answer.status().is_success() {
                return Ok(answer);
            }
            let (head, page) = answer.into_parts();
            let page = page.bytes().await?;
            let page = keys::encoded(&String::from_utf8_lossy(&page));
            Ok(HttpResponse::from_parts(head, page.into()))
        })
    }
}

/// Sets one of a client's time limits.
type Limit = fn(reqwest::ClientBuilder, Duration) -> reqwest::ClientBuilder;

type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// The client that `object_store` makes of the options, but for redirects.
fn client(options: &ClientOptions, redirects: Redirects) -> Result<reqwest::Client, Wrong> {
    use ClientConfigKey as Key;
    let text = |key| options.get_config_value(&key);
    let is = |key| match text(key).unwrap_or_default().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Ok(true),
        "" | "0" | "false" | "off" | "no" | "n" => Ok(false),
        other => Err(format!("'{other}' is neither true nor false")),
    };
    let time = |key| text(key).map(|time| humantime::parse_duration(&time)).transpose();
    let policy = match redirects {
        Redirects::Refused => redirect::Policy::none(),
        Redirects::Followed => redirect::Policy::default(),
    };
    let mut builder = reqwest::Client::builder()
        .redirect(policy)
        .referer(false)
        .https_only(!is(Key::AllowHttp)?)
        .danger_accept_invalid_certs(is(Key::AllowInvalidCertificates)?)
        .http2_keep_alive_interval(time(Key::Http2KeepAliveInterval)?)
        .http2_keep_alive_while_idle(is(Key::Http2KeepAliveWhileIdle)?)
        .http2_max_frame_size(number(text(Key::Http2MaxFrameSize))?)
        .user_agent(
            text(Key::UserAgent)
                .unwrap_or_else(|| concat!("stokehold/", env!("CARGO_PKG_VERSION")).to_owned()),
        );
    let limits: [(Key, Limit); 5] = [
        (Key::Timeout, |builder, time| builder.timeout(time)),
        (Key::ConnectTimeout, |builder, time| builder.connect_timeout(time)),
        (Key::ReadTimeout, |builder, time| builder.read_timeout(time)),
        (Key::PoolIdleTimeout, |builder, time| {
            builder.pool_idle_timeout(time)
        }),
        (Key::Http2KeepAliveTimeout, |builder, time| {
            builder.http2_keep_alive_timeout(time)
        }),
    ];
    for (key, set) in limits {
        if let Some(time) = time(key)? {
            builder = set(builder, time);
        }
    }
    if let Some(most) = number(text(Key::PoolMaxIdlePerHost))? {
        builder = builder.pool_max_idle_per_host(most);
    }
    if is(Key::Http1Only)? {
        builder = builder.http1_only();
    }
    if is(Key::Http2Only)? {
        builder = builder.http2_prior_knowledge();
    }
    if is(Key::NoSystemCertificates)? {
        builder = builder.tls_certs_only([]);
    }
    if is(Key::RandomizeAddresses)? {
        builder = builder.dns_resolver(Shuffled);
    }
    if let Some(proxy) = text(Key::ProxyUrl) {
        if let Some(certificate) = text(Key::ProxyCaCertificate) {
            builder = builder.tls_certs_merge([Certificate::from_pem(certificate.as_bytes())?]);
        }
        let excludes = text(Key::ProxyExcludes).and_then(|hosts| NoProxy::from_string(&hosts));
        builder = builder.proxy(Proxy::all(proxy)?.no_proxy(excludes));
    }
    Ok(builder.build()?)
}

fn number<N: FromStr>(text: Option<String>) -> Result<Option<N>, N::Err> {
    text.map(|text| text.parse()).transpose()
}

/// Spreads connections over a name's servers.
struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut found: Vec<SocketAddr> = found.collect();
            let order = RandomState::new();
            found.sort_by_cached_key(|address| order.hash_one(address));
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
