//! Where a server of batches is. Connecting to one is the crate remote's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The environment variable with the token that a server asks for.
pub const TOKEN: &str = "STOKEHOLD_TOKEN";

/// Where a server is: `tcp://HOST:PORT`, or with TLS `tls://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    tls: bool,
    /// `HOST:PORT`.
    place: String,
}

impl Address {
    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// `HOST:PORT`.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// A text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no server of batches: {reason}; write tcp://HOST:PORT, or tls://HOST:PORT")]
pub struct AddressError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |reason: &str| AddressError {
            text: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (tls, place) = match text.split_once("://") {
            Some(("tcp", place)) => (false, place),
            Some(("tls", place)) => (true, place),
            Some(_) => return Err(refuse("it begins with another word than tcp or tls")),
            None => return Err(refuse("it does not say whether to use TLS")),
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(|| refuse("it has no port"))?;
        if port.parse::<u16>().map_or(true, |port| port == 0) {
            return Err(refuse("the port is no number from 1 to 65535"));
        }
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-_[]:".contains(letter);
        if host.is_empty() || !host.chars().all(allowed) {
            return Err(refuse("it has no name of a machine"));
        }
        Ok(Self {
            tls,
            place: place.to_owned(),
        })
    }
}

stokehold_base::as_text!(Address);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tls" } else { "tcp" };
        write!(f, "{scheme}://{}", self.place)
    }
}
