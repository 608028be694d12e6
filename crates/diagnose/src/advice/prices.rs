//! The prices of machines and the speeds of GPUs: a small table that users can edit.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use stokehold_base::regular;
use stokehold_profile::{Machine, ProfileError};
use toml::Spanned;

/// A file of this many bytes is none of prices.
const LARGEST: u64 = 1 << 20;
/// Names of machines and currencies are no longer than this, characters.
const LONGEST: usize = 100;
/// Prices, speeds and bandwidths are no larger than this: sums of them stay numbers.
const MOST: f64 = 1e9;

/// The built-in table.
const BUILT_IN: &str = include_str!("../../prices.toml");

/// Machines and their prices, and GPUs and their speeds.
///
/// In TOML, with every field but `here`, `gpu`, `gpus`, `spot_per_hour` and `images_per_second` required:
///
/// ```
/// # let text = r#"
/// currency = "USD"
/// source = "https://aws.amazon.com/ec2/pricing/on-demand/, us-east-1, Linux"
/// date = "2026-06-17"
/// here = "g5.xlarge"            # the machine that runs are made on; not needed on EC2, where it is recorded
///
/// [[machine]]
/// name = "g5.xlarge"
/// cores = 4                     # as the operating system counts them
/// gpu = "NVIDIA A10G"
/// price_per_hour = 1.006
/// spot_per_hour = 0.42
///
/// [[gpu]]
/// name = "A10G"                 # a word of the name that NVIDIA's driver gives it
/// bandwidth = 600               # of its memory, GB/s
/// images_per_second = 640       # of one that trains ResNet-50 in mixed precision, by one program for all GPUs of the table
///
/// [[storage]]
/// kind = "s3"                   # the scheme of a bucket, or the type of a mounted file system
/// per_1000_requests = 0.0004
/// per_gb = 0.0                  # of what is read
/// # "#;
/// # assert!(stokehold_diagnose::advice::Prices::parse(text, "prices.toml".as_ref()).is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    /// The currency of the prices.
    pub currency: String,
    /// The source of the prices.
    pub source: String,
    /// Their date.
    pub date: String,
    /// The table's name for the machine that runs are made on; `None` if the table does not say.
    pub here: Option<String>,
    /// The machines.
    pub machines: Vec<MachinePrice>,
    /// The speeds of GPUs.
    pub gpus: Vec<Gpu>,
    /// What reading costs, by the kind of storage.
    pub storage: Vec<StoragePrice>,
}

/// A machine and its price.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachinePrice {
    /// Its name.
    pub name: String,
    /// Its cores, as the operating system counts them; at least 1.
    pub cores: u64,
    /// Its accelerator, if it has one.
    pub gpu: Option<String>,
    /// How many of them it has, at least 1. 1 where it is left out.
    #[serde(default = "one")]
    pub gpus: u64,
    /// The price of an hour on demand, above 0.
    pub price_per_hour: f64,
    /// The price of an hour as a spot machine, above 0, if it can be had as one. It changes from day to day.
    pub spot_per_hour: Option<f64>,
}

fn one() -> u64 {
    1
}

/// The speed of a GPU next to others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// A word of the name that NVIDIA's driver gives it: `T4` of `Tesla T4`.
    pub name: String,
    /// Bandwidth of its memory, GB/s, above 0.
    pub bandwidth: f64,
    /// Training images per second of ResNet-50 at 224 x 224 in mixed precision, above 0, if it is known. All of a table have to be
    /// of one program, for only their ratios count.
    pub images_per_second: Option<f64>,
}

/// What reading costs at a kind of storage.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoragePrice {
    /// The scheme of a bucket's address, such as `s3`, or the type of a file system, such as `nfs4`; `efs` for Amazon's.
    pub kind: String,
    /// The price of 1000 requests that read, 0 or more.
    #[serde(default)]
    pub per_1000_requests: f64,
    /// The price of 10^9 bytes that are read, 0 or more.
    #[serde(default)]
    pub per_gb: f64,
}

impl StoragePrice {
    /// What this many requests for this many bytes cost.
    pub fn cost(&self, requests: f64, bytes: f64) -> f64 {
        1e-3 * requests * self.per_1000_requests + 1e-9 * bytes * self.per_gb
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    currency: String,
    source: String,
    date: String,
    here: Option<Spanned<String>>,
    #[serde(default)]
    machine: Vec<Spanned<MachinePrice>>,
    #[serde(default)]
    gpu: Vec<Spanned<Gpu>>,
    #[serde(default)]
    storage: Vec<Spanned<StoragePrice>>,
}

impl Prices {
    /// The built-in table.
    pub fn built_in() -> Self {
        // A test checks that it is valid.
        Self::parse(BUILT_IN, Path::new("prices.toml")).unwrap_or_default()
    }

    /// Reads a table.
    ///
    /// # Errors
    /// If the file cannot be read; the errors of [`Prices::parse`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let failed = |source| ProfileError::Io {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        let file = regular::open(path).map_err(failed)?;
        file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 == LARGEST {
            return Err(failed(io::Error::other(
                "it is larger than a MiB, and no table of prices",
            )));
        }
        Self::parse(&text, path)
    }

    /// Reads a table from its text; `path` is for messages.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] with the line: invalid TOML, an unknown or missing field, no cores, a
    /// price or a speed that is not above 0, a name that occurs twice, or a `here` that names no machine.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ProfileError> {
        let malformed = |at: Option<usize>, reason: &str| ProfileError::Malformed {
            path: path.to_owned(),
            reason: match at {
                Some(at) => {
                    let line = 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
                    format!("line {line}: {reason}")
                }
                None => reason.to_owned(),
            },
        };
        let table: Table = toml::from_str(text)
            .map_err(|error| malformed(error.span().map(|span| span.start), error.message()))?;
        if table.currency.trim().is_empty() {
            return Err(malformed(None, "currency is empty: name it, such as \"USD\""));
        }
        let is_long = |text: &str| text.chars().count() > LONGEST;
        if is_long(&table.currency) {
            return Err(malformed(
                None,
                &format!("currency has more than {LONGEST} characters"),
            ));
        }
        let mut names = BTreeSet::new();
        for machine in &table.machine {
            let wrong = |reason: &str| Err(malformed(Some(machine.span().start), reason));
            let MachinePrice {
                name,
                cores,
                gpus,
                price_per_hour,
                spot_per_hour,
                ..
            } = machine.get_ref();
            if is_long(name) || machine.get_ref().gpu.as_deref().is_some_and(is_long) {
                return wrong(&format!("a name has more than {LONGEST} characters"));
            }
            if *cores == 0 {
                return wrong(&format!("{name} has 0 cores: must be at least 1"));
            }
            if *gpus == 0 {
                return wrong(&format!(
                    "{name} has 0 GPUs: must be at least 1, or left out with gpu"
                ));
            }
            let usable = |price: &f64| *price > 0.0 && *price <= MOST;
            if !usable(price_per_hour) {
                return wrong(&format!(
                    "{name} costs {price_per_hour} an hour: must be above 0, and at most {MOST}"
                ));
            }
            if let Some(spot) = spot_per_hour.filter(|spot| !usable(spot)) {
                return wrong(&format!(
                    "{name} costs {spot} an hour on spot: must be above 0, and at most {MOST}"
                ));
            }
            if !names.insert(name) {
                return wrong(&format!("{name} is in the table twice"));
            }
        }
        let mut words = BTreeSet::new();
        for gpu in &table.gpu {
            let wrong = |reason: &str| Err(malformed(Some(gpu.span().start), reason));
            let Gpu {
                name,
                images_per_second,
                bandwidth,
            } = gpu.get_ref();
            if name.is_empty() || !name.chars().all(char::is_alphanumeric) {
                return wrong(&format!(
                    "the GPU \"{name}\": one word is wanted, such as T4 of Tesla T4"
                ));
            }
            for (value, what) in [
                (Some(*bandwidth), "bandwidth"),
                (*images_per_second, "images_per_second"),
            ] {
                if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= MOST)) {
                    return wrong(&format!(
                        "{name} has {what} = {value}: must be above 0, and at most {MOST}"
                    ));
                }
            }
            if !words.insert(name.to_lowercase()) {
                return wrong(&format!("the GPU {name} is in the table twice"));
            }
        }
        let mut kinds = BTreeSet::new();
        for storage in &table.storage {
            let wrong = |reason: &str| Err(malformed(Some(storage.span().start), reason));
            let StoragePrice {
                kind,
                per_1000_requests,
                per_gb,
            } = storage.get_ref();
            for price in [per_1000_requests, per_gb] {
                if !(0.0..=MOST).contains(price) {
                    return wrong(&format!(
                        "{kind} costs {price}: must be 0 or more, and at most {MOST}"
                    ));
                }
            }
            if !kinds.insert(kind) {
                return wrong(&format!("the storage {kind} is in the table twice"));
            }
        }
        if let Some(here) = &table.here
            && !names.contains(here.get_ref())
        {
            let reason = format!("here is {}, and no machine is called that", here.get_ref());
            return Err(malformed(Some(here.span().start), &reason));
        }
        Ok(Self {
            currency: table.currency,
            source: table.source,
            date: table.date,
            here: table.here.map(Spanned::into_inner),
            machines: table.machine.into_iter().map(Spanned::into_inner).collect(),
            gpus: table.gpu.into_iter().map(Spanned::into_inner).collect(),
            storage: table.storage.into_iter().map(Spanned::into_inner).collect(),
        })
    }

    /// The machine with this name.
    pub fn machine(&self, name: &str) -> Option<&MachinePrice> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// The table for a run that was made on `machine`: what the cloud calls that machine is `here`, where the table has it and does
    /// not say otherwise.
    #[must_use]
    pub fn on(mut self, machine: &Machine) -> Self {
        let known = machine
            .instance
            .as_deref()
            .filter(|name| self.machine(name).is_some());
        self.here = self.here.or(known.map(str::to_owned));
        self
    }

    /// The GPU that has this name, by a word of it.
    pub fn gpu(&self, name: &str) -> Option<&Gpu> {
        let mut words = name.split(|letter: char| !letter.is_alphanumeric());
        words.find_map(|word| self.gpus.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(word)))
    }

    /// What reading costs at this kind of storage.
    pub fn storage(&self, kind: &str) -> Option<&StoragePrice> {
        self.storage.iter().find(|storage| storage.kind == kind)
    }

    /// Where the prices are from, and their date.
    pub fn origin(&self) -> String {
        format!("{}, {}", self.source, self.date)
    }

    /// The machine that runs are made on.
    pub fn here(&self) -> Option<&MachinePrice> {
        self.machine(self.here.as_deref()?)
    }
}

/// An amount of money with two significant digits, however small it is: `0.00012 USD`.
pub fn amount(cost: f64, currency: &str) -> String {
    let size = cost.abs().log10().floor();
    let decimals = if size.is_finite() {
        (1.0 - size).clamp(2.0, 12.0)
    } else {
        2.0
    };
    format!("{cost:.*} {currency}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "currency = \"USD\"\nsource = \"a list\"\ndate = \"2026-06-17\"\n";

    #[test]
    fn the_built_in_table_can_be_read() {
        let prices = Prices::parse(BUILT_IN, Path::new("prices.toml")).unwrap();
        assert!(prices.machines.len() >= 8 && prices.here.is_none());
        assert!(prices.source.contains("https://") && prices.date.starts_with("20"));
        assert_eq!(prices, Prices::built_in());
        let several = |name| prices.machine(name).map(|machine| machine.gpus);
        assert_eq!((several("p5.48xlarge"), several("g5.xlarge")), (Some(8), Some(1)));
        for machine in &prices.machines {
            assert!(
                machine.gpu.as_deref().is_none_or(|gpu| prices.gpu(gpu).is_some()),
                "{machine:?}"
            );
        }
    }

    #[test]
    fn a_wrong_table_is_named_by_file_and_line() {
        let machine = "[[machine]]\nname = \"a\"\ncores = 2\nprice_per_hour = 0.5\n";
        let storage = "[[storage]]\nkind = \"s3\"\nper_gb = 0.5\n";
        let gpu = "[[gpu]]\nname = \"A10G\"\nimages_per_second = 800\nbandwidth = 600\n";
        assert!(Prices::parse(&format!("{HEAD}{machine}"), Path::new("p.toml")).is_ok());
        assert!(
            Prices::parse(HEAD, Path::new("p.toml")).is_ok(),
            "no machines are no mistake"
        );
        for (text, line, says) in [
            (machine.replace("cores = 2", "cores = 0"), 4, "0 cores"),
            (format!("{machine}gpus = 0\n"), 4, "0 GPUs"),
            (machine.replace("0.5", "-1.0"), 4, "above 0"),
            (machine.replace("0.5", "nan"), 4, "above 0"),
            (machine.replace("0.5", "\"cheap\""), 7, "invalid type"),
            (machine.replace("cores", "core"), 6, "unknown field"),
            (machine.replace("cores = 2\n", ""), 4, "missing field `cores`"),
            (machine.replace("cores = 2", "cores = two"), 6, ""),
            (format!("{machine}{machine}"), 8, "twice"),
            (format!("here = \"b\"\n{machine}"), 4, "no machine is called"),
            (
                format!("{machine}spot_per_hour = 0\n"),
                4,
                "on spot: must be above 0",
            ),
            (format!("{machine}{gpu}{gpu}"), 12, "twice"),
            (format!("{machine}{storage}{storage}"), 11, "twice"),
            (
                format!("{machine}{}", storage.replace("0.5", "-1")),
                8,
                "0 or more",
            ),
            (
                format!("{machine}{}", gpu.replace("600", "0")),
                8,
                "bandwidth = 0: must",
            ),
            (
                format!("{machine}{}", gpu.replace("A10G", "NVIDIA A10G")),
                8,
                "one word",
            ),
        ] {
            let error = Prices::parse(&format!("{HEAD}{text}"), Path::new("p.toml"))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!("p.toml: line {line}: ")),
                "{text}: {error}"
            );
            assert!(error.contains(says), "{text}: {error}");
        }
        let none = HEAD.replace("USD", " ");
        let error = Prices::parse(&none, Path::new("p.toml")).unwrap_err().to_string();
        assert!(error.contains("p.toml: currency is empty"), "{error}");
        let error = Prices::load(Path::new("/nowhere/p.toml"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nowhere/p.toml"), "{error}");
    }

    #[test]
    fn amounts_are_never_nothing() {
        let said = [12.0, 0.456, 0.04567, 0.000_123_4, 1e-30, 0.0].map(|cost| amount(cost, "EUR"));
        let expected = [
            "12.00 EUR",
            "0.46 EUR",
            "0.046 EUR",
            "0.00012 EUR",
            "0.000000000000 EUR",
            "0.00 EUR",
        ];
        assert_eq!(said, expected);
    }
}
