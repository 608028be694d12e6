//! The prices of machines: a small table that users can edit.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use stokehold_profile::ProfileError;
use toml::Spanned;

/// The built-in table.
const BUILT_IN: &str = include_str!("../../prices.toml");

/// Machines and their prices.
///
/// In TOML, with every field but `here` and `gpu` required:
///
/// ```
/// # let text = r#"
/// currency = "USD"
/// source = "https://aws.amazon.com/ec2/pricing/on-demand/, us-east-1, Linux"
/// date = "2026-06-17"
/// here = "g5.xlarge"            # the machine that runs are made on
///
/// [[machine]]
/// name = "g5.xlarge"
/// cores = 4                     # as the operating system counts them
/// gpu = "NVIDIA A10G"
/// price_per_hour = 1.006
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
    /// The price of an hour, above 0.
    pub price_per_hour: f64,
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
        let text = std::fs::read_to_string(path).map_err(|source| ProfileError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads a table from its text; `path` is for messages.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] with the line: invalid TOML, an unknown or missing field, no cores, a
    /// price that is not above 0, a name that occurs twice, or a `here` that names no machine.
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
        let mut names = BTreeSet::new();
        for machine in &table.machine {
            let wrong = |reason: &str| Err(malformed(Some(machine.span().start), reason));
            let MachinePrice {
                name,
                cores,
                price_per_hour,
                ..
            } = machine.get_ref();
            if *cores == 0 {
                return wrong(&format!("{name} has 0 cores: must be at least 1"));
            }
            if !(price_per_hour.is_finite() && *price_per_hour > 0.0) {
                return wrong(&format!("{name} costs {price_per_hour} an hour: must be above 0"));
            }
            if !names.insert(name) {
                return wrong(&format!("{name} is in the table twice"));
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
        })
    }

    /// The machine with this name.
    pub fn machine(&self, name: &str) -> Option<&MachinePrice> {
        self.machines.iter().find(|machine| machine.name == name)
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
    }

    #[test]
    fn a_wrong_table_is_named_by_file_and_line() {
        let machine = "[[machine]]\nname = \"a\"\ncores = 2\nprice_per_hour = 0.5\n";
        assert!(Prices::parse(&format!("{HEAD}{machine}"), Path::new("p.toml")).is_ok());
        assert!(
            Prices::parse(HEAD, Path::new("p.toml")).is_ok(),
            "no machines are no mistake"
        );
        for (text, line, says) in [
            (machine.replace("cores = 2", "cores = 0"), 4, "0 cores"),
            (machine.replace("0.5", "-1.0"), 4, "above 0"),
            (machine.replace("0.5", "nan"), 4, "above 0"),
            (machine.replace("0.5", "\"cheap\""), 7, "invalid type"),
            (machine.replace("cores", "core"), 6, "unknown field"),
            (machine.replace("cores = 2\n", ""), 4, "missing field `cores`"),
            (machine.replace("cores = 2", "cores = two"), 6, ""),
            (format!("{machine}{machine}"), 8, "twice"),
            (format!("here = \"b\"\n{machine}"), 4, "no machine is called"),
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
