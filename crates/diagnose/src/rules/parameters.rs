//! Parameters of rules: their names, ranges, and values.
//!
//! The rules' own table ([`Rule::ALL`]) lists every parameter once, with its range and its value in each set
//! of defaults. [`Parameters`] starts as one of those sets and is changed by name,
//! `CPUBottleneck_threshold=40`, as SageMaker Debugger's ProfilerReport is configured; the case of the rule's
//! name is ignored, as there.

use std::path::{Path, PathBuf};

use stokehold_base::fault::Fault;

use crate::rules::Rule;

/// A set of default values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Defaults {
    /// Ours: the guide's, adapted to runs of minutes too. AWS's sets judge nothing before hundreds of samples
    /// (1000 of 500 ms are eight minutes), and report a bottleneck only if it takes more than half of the
    /// run.
    #[default]
    Stokehold,
    /// Those of sagemaker-debugger-rulesconfig (2021).
    RulesConfig,
    /// Those of the SageMaker developer guide (2023).
    Guide,
}

impl Defaults {
    /// Every set, by its name in options.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("stokehold", Self::Stokehold),
        ("rulesconfig", Self::RulesConfig),
        ("guide", Self::Guide),
    ];
}

impl std::str::FromStr for Defaults {
    type Err = ParameterError;

    fn from_str(name: &str) -> Result<Self, ParameterError> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, defaults)| *defaults)
            .ok_or_else(|| ParameterError::Defaults {
                name: name.to_owned(),
            })
    }
}

/// A parameter of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name: the published one if there is one.
    pub name: &'static str,
    /// Its meaning, with its unit.
    pub meaning: &'static str,
    /// Its allowed values.
    pub range: Range,
    /// Its value in [`Defaults::Stokehold`], [`Defaults::RulesConfig`] and [`Defaults::Guide`]; NaN means
    /// `None`.
    pub defaults: [f64; 3],
}

/// `patience` of our own rules: the same in every set.
pub(super) const PATIENCE: Parameter = Parameter {
    name: "patience",
    meaning: "samples; judged with more",
    range: Range::Count(0),
    defaults: [20.0; 3],
};

/// The allowed values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// A number from 0 to 100.
    Percent,
    /// A number from the first to the second.
    Number(f64, f64),
    /// An integer from this one on.
    Count(u64),
    /// A step's mode: `TRAIN`, `EVAL`, `PREDICT`, `GLOBAL`, or `None` for all of them.
    Mode,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Percent => write!(f, "a number from 0 to 100"),
            Self::Number(low, high) if high.is_infinite() => write!(f, "a number from {low} on"),
            Self::Number(low, high) => write!(f, "a number from {low} to {high}"),
            Self::Count(low) => write!(f, "a whole number from {low} on"),
            Self::Mode => write!(f, "one of {MODES}, None"),
        }
    }
}

const MODES: &str = "TRAIN, EVAL, PREDICT, GLOBAL";

/// A parameter's value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64),
    Mode(Option<String>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            // As Python prints it: the report's format is a Python program's.
            Self::Mode(mode) => f.write_str(mode.as_deref().unwrap_or("None")),
        }
    }
}

/// Why a parameter cannot be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// There is no such set of defaults.
    #[error("no defaults are called '{name}'; there are stokehold, rulesconfig and guide")]
    Defaults {
        /// The requested name.
        name: String,
    },
    /// The text is not `Rule_parameter=value`.
    #[error("'{text}' is not of the form Rule_parameter=value, such as CPUBottleneck_threshold=40")]
    Form {
        /// The text.
        text: String,
    },
    /// There is no such rule.
    #[error("no rule is called '{name}'; there are {}", names(Rule::ALL.iter().map(|rule| rule.name)))]
    Rule {
        /// The requested name.
        name: String,
    },
    /// The rule has no such parameter.
    #[error("{rule} has no parameter '{name}'; it has {}", names(known.iter().copied()))]
    Name {
        /// The rule.
        rule: &'static str,
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// The value is out of range.
    #[error("{rule}_{name} must be {range}, not '{value}'")]
    Value {
        /// The rule.
        rule: &'static str,
        /// The parameter.
        name: &'static str,
        /// Its range.
        range: Range,
        /// The given value.
        value: String,
    },
    /// A file of parameters cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file of parameters is not TOML.
    #[error("{path}: {source}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A file of parameters is TOML, but one of its entries is invalid.
    #[error("{path}: {source}")]
    Entry {
        /// The file.
        path: PathBuf,
        /// What is wrong with the entry.
        source: Box<ParameterError>,
    },
}

impl Fault for ParameterError {
    fn is_input(&self) -> bool {
        true
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    match names[..] {
        [] => "none".to_owned(),
        _ => names.join(", "),
    }
}

/// The values of all parameters of all rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// For each rule of the table, the values of its parameters.
    values: Vec<Vec<Value>>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self::new(Defaults::default())
    }
}

impl Parameters {
    /// The values of a set of defaults.
    pub fn new(defaults: Defaults) -> Self {
        let place = defaults as usize;
        let value = |parameter: &Parameter| match parameter.range {
            Range::Mode => Value::Mode(None),
            _ => Value::Number(parameter.defaults[place]),
        };
        let values = Rule::ALL
            .iter()
            .map(|rule| rule.parameters.iter().map(value).collect());
        Self {
            values: values.collect(),
        }
    }

    /// Sets one parameter: `CPUBottleneck_threshold=40`.
    ///
    /// # Errors
    /// Text in another format, an unknown rule or parameter, or a value out of range; the message lists what
    /// is allowed.
    pub fn set(&mut self, text: &str) -> Result<(), ParameterError> {
        let form = || ParameterError::Form {
            text: text.to_owned(),
        };
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let (rule, parameter) = name.trim().split_once('_').ok_or_else(form)?;
        self.set_one(rule, parameter, value.trim())
    }

    fn set_one(&mut self, rule: &str, name: &str, value: &str) -> Result<(), ParameterError> {
        let unknown = || ParameterError::Rule {
            name: rule.to_owned(),
        };
        let place = Rule::ALL
            .iter()
            .position(|known| known.name.eq_ignore_ascii_case(rule))
            .ok_or_else(unknown)?;
        let rule = &Rule::ALL[place];
        let unknown = || ParameterError::Name {
            rule: rule.name,
            name: name.to_owned(),
            known: rule.parameters.iter().map(|parameter| parameter.name).collect(),
        };
        let at = rule
            .parameters
            .iter()
            .position(|parameter| parameter.name.eq_ignore_ascii_case(name))
            .ok_or_else(unknown)?;
        let parameter = &rule.parameters[at];
        let outside = || ParameterError::Value {
            rule: rule.name,
            name: parameter.name,
            range: parameter.range,
            value: value.to_owned(),
        };
        self.values[place][at] = parse(value, parameter.range).ok_or_else(outside)?;
        Ok(())
    }

    /// Sets the parameters in a TOML file, in tables (`[CPUBottleneck]`, then `threshold = 40`) or with flat
    /// names (`CPUBottleneck_threshold = 40`).
    ///
    /// # Errors
    /// A file that cannot be read or is not TOML; the errors of [`set`](Self::set). Then nothing is changed.
    pub fn load(&mut self, path: &Path) -> Result<(), ParameterError> {
        let text = std::fs::read_to_string(path).map_err(|source| ParameterError::Read {
            path: path.to_owned(),
            source,
        })?;
        let table: toml::Table = text.parse().map_err(|source| ParameterError::Toml {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let mut changed = self.clone();
        changed.take(&table).map_err(|source| ParameterError::Entry {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        *self = changed;
        Ok(())
    }

    fn take(&mut self, table: &toml::Table) -> Result<(), ParameterError> {
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        for (name, value) in table {
            if let toml::Value::Table(parameters) = value {
                for (parameter, value) in parameters {
                    self.set_one(name, parameter, &text(value))?;
                }
            } else {
                self.set(&format!("{name}={}", text(value)))?;
            }
        }
        Ok(())
    }

    /// The value of a rule's parameter that is a number.
    ///
    /// # Panics
    /// If the table has no such number: a mistake in the rule, which every test of the rule finds.
    pub(crate) fn number(&self, rule: &str, name: &str) -> f64 {
        match self.value(rule, name) {
            Value::Number(number) => *number,
            Value::Mode(_) => unreachable!("{rule}_{name} is a mode"),
        }
    }

    /// The value of a rule's mode; `None` for all of them.
    ///
    /// # Panics
    /// As [`number`](Self::number).
    pub(crate) fn mode(&self, rule: &str, name: &str) -> Option<&str> {
        match self.value(rule, name) {
            Value::Mode(mode) => mode.as_deref(),
            Value::Number(_) => unreachable!("{rule}_{name} is a number"),
        }
    }

    fn value(&self, rule: &str, name: &str) -> &Value {
        let place = Rule::ALL.iter().position(|known| known.name == rule);
        let at = place.and_then(|place| {
            let parameters = Rule::ALL[place].parameters;
            let at = parameters.iter().position(|parameter| parameter.name == name)?;
            self.values[place].get(at)
        });
        at.unwrap_or_else(|| unreachable!("the table has no {rule}_{name}"))
    }

    /// A rule's parameters as text, in the order of its table.
    pub(crate) fn of(&self, rule: &Rule) -> Vec<(&'static str, String)> {
        let names = rule.parameters.iter().map(|parameter| parameter.name);
        names
            .map(|name| (name, self.value(rule.name, name).to_string()))
            .collect()
    }
}

fn parse(text: &str, range: Range) -> Option<Value> {
    if range == Range::Mode {
        return match text {
            "None" => Some(Value::Mode(None)),
            mode if MODES.split(", ").any(|known| known == mode) => Some(Value::Mode(Some(mode.to_owned()))),
            _ => None,
        };
    }
    let number: f64 = text.parse().ok()?;
    let fits = match range {
        Range::Percent => (0.0..=100.0).contains(&number),
        Range::Number(low, high) => (low..=high).contains(&number) && number.is_finite(),
        // Beyond 2^53 an f64 does not represent every integer.
        Range::Count(low) => {
            number.fract() == 0.0 && (low as f64..=9_007_199_254_740_992.0).contains(&number)
        }
        Range::Mode => false,
    };
    fits.then_some(Value::Number(number))
}
