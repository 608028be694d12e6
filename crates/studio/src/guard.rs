//! Who may ask, and what a browser may do with the answers.
//!
//! Three attacks matter for a server on the loopback interface: another user of the machine who guesses its port, a page of another
//! site that sends requests to it from the user's browser, and a name of an attacker's domain that suddenly resolves to 127.0.0.1 (DNS rebinding).
//! The token keeps out the first; `SameSite`, `Origin` and `Sec-Fetch-Site` the second; `Host` the third.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use stokehold_base::hash::Fnv;
use stokehold_listen::same;

/// What the pages may load: the studio's own files, and pictures that they make themselves.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Bytes of a token; as many hexadecimal digits twice.
const TOKEN: usize = 32;

/// The secret of a studio, and the names that it answers to.
#[derive(Debug)]
pub struct Guard {
    token: String,
    cookie: String,
    host: String,
    /// A further name.
    name: Option<String>,
    is_encrypted: bool,
}

/// Why a request is refused.
pub type Refused = (StatusCode, &'static str);

impl Guard {
    /// A new token; the cookie of a server with TLS goes back over TLS only.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(is_encrypted: bool, name: Option<String>) -> io::Result<Self> {
        let mut bytes = [0; TOKEN];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Self {
            // Cookies do not know ports: two studios of a machine, or behind two tunnels, would overwrite each other's.
            cookie: format!("stokehold-{:08x}", Fnv::of(token.as_bytes()) as u32),
            token,
            host: host.trim().to_owned(),
            name,
            is_encrypted,
        })
    }

    /// The name that was given.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The cookie that takes the place of the token in the link. It comes with links that are followed from other sites, for what they
    /// ask for changes nothing; what changes something has to come from a page of the studio.
    pub fn set_cookie(&self) -> String {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        format!(
            "{}={}; HttpOnly; SameSite=Lax; Path=/{secure}",
            self.cookie, self.token
        )
    }

    /// Whether a request may be answered. `true` if it came by the link, and so should get the cookie.
    ///
    /// # Errors
    /// What the one who asked is told.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<bool, Refused> {
        let host = text(headers, &HOST).unwrap_or_default();
        if !self.is_ours(host) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "the studio answers to addresses, to localhost, to its machine's name and to that of --host; open the printed link",
            ));
        }
        let of_token = query(uri, "token").is_some_and(|given| self.is_token(given));
        // A link may be followed from anywhere. Everything else comes from the studio's own pages.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_foreign = !matches!(site, None | Some(b"same-origin" | b"none"));
        let is_page = text(headers, &HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
        let origin = text(headers, &ORIGIN);
        let is_own = |origin: &str| {
            let (scheme, rest) = origin.split_once("://").unwrap_or_default();
            matches!(scheme, "http" | "https") && rest == host
        };
        let is_safe = *method == Method::GET || *method == Method::HEAD;
        if (is_foreign && !(is_safe && is_page)) || origin.is_some_and(|origin| !is_own(origin)) {
            return Err((
                StatusCode::FORBIDDEN,
                "this request comes from a page of another site",
            ));
        }
        if !is_safe {
            if origin.is_none() {
                return Err((StatusCode::FORBIDDEN, "an action needs the header Origin"));
            }
            let is_json =
                text(headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
            if !is_json {
                return Err((
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "an action is sent as application/json",
                ));
            }
        }
        match of_token || self.has_cookie(headers) {
            true => Ok(of_token),
            false => Err((
                StatusCode::UNAUTHORIZED,
                "open the link that `stokehold studio` has printed: it has the token that this request lacks",
            )),
        }
    }

    /// Whether a value of the header `Host` means this studio: an address, which no DNS server resolves, or a name of the machine.
    /// The port may be another one, that of a tunnel.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
            _ => host,
        };
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let is_name = |own: &str| !own.is_empty() && name.eq_ignore_ascii_case(own);
        bare.parse::<IpAddr>().is_ok()
            || self.name().is_some_and(is_name)
            || name.eq_ignore_ascii_case("localhost")
            || is_name(&self.host)
    }

    fn is_token(&self, given: &str) -> bool {
        same(given.as_bytes(), self.token.as_bytes())
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let all = headers.get_all(COOKIE).iter();
        let pairs = all
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(|cookies| cookies.split(';'));
        let own = pairs.filter_map(|pair| pair.trim().split_once('='));
        own.filter(|(name, _)| *name == self.cookie)
            .any(|(_, value)| self.is_token(value))
    }
}

/// The headers of every answer.
pub fn dress(headers: &mut HeaderMap) {
    let all = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A member of the query, as it is written there: tokens need no escapes.
fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let members = uri.query()?.split('&');
    members
        .filter_map(|member| member.split_once('='))
        .find_map(|(own, value)| (own == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_names_of_the_machine_are_hosts() {
        let guard = Guard {
            host: "Trainer-7".to_owned(),
            ..Guard::new(false, Some("studio.example".to_owned())).unwrap()
        };
        for host in [
            "studio.example:7878",
            "127.0.0.1:7878",
            "127.0.0.1",
            "localhost:9000",
            "LOCALHOST",
            "[::1]:7878",
            "[::1]",
            "10.0.0.7:80",
            "trainer-7:7878",
        ] {
            assert!(guard.is_ours(host), "{host}");
        }
        for host in [
            "",
            "evil.example:7878",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            ":7878",
            "127.0.0.1@evil.example",
            "trainer-7.evil.example",
        ] {
            assert!(!guard.is_ours(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (one, other) = (Guard::new(false, None).unwrap(), Guard::new(false, None).unwrap());
        assert_eq!(one.token().len(), 64);
        assert!(!one.is_token(other.token()) && one.is_token(one.token()));
        assert!(!one.is_token("") && !one.is_token(&one.token()[..63]));
    }
}
