//! Helpers that several crates need. No dependencies.
//!
//! - [`whole`] writes files that exist completely or not at all.
//! - [`lock`] locks a folder for one process, and says which process holds it.
//! - [`regular`] opens regular files only, so that no FIFO keeps a reader waiting.
//! - [`growing`] follows a file of lines that another process appends to.
//! - [`there`] tells a missing file from a failure.
//! - [`uri`] tells a path from a URI.
//! - [`clock`] reads and prints the time of day.
//! - [`student`] tests whether a difference is more than chance.
//! - [`fault`] says whether an error is the input's fault.
//! - [`stats`] has the one definition of a percentile.
//! - [`share`] is the part of some work that one of several workers does.
//! - [`words`] counts things in English and writes fields of CSV, and [`shell`] quotes words for a shell.
//! - [`secret`] tells which values are secrets, and hides the secrets of a command.
//! - [`as_text!`] reads and writes a type in files as in text.
//! - [`random`] and [`mod@hash`] give numbers that are a function of their key, the same on every machine.

pub mod clock;
pub mod fault;
pub mod growing;
pub mod hash;
pub mod lock;
pub mod random;
pub mod regular;
pub mod secret;
pub mod share;
pub mod shell;
pub mod size;
pub mod stats;
pub mod student;
pub mod there;
pub mod uri;
pub mod whole;
pub mod words;

/// Reads and writes a type in files as in text: for `#[serde(try_from = "String", into = "String")]` of a type with `FromStr` and
/// `Display`.
#[macro_export]
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = <$type as std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
