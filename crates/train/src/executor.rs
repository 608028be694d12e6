//! The executor of a run's pipelines: the CPU, the device, or whichever is faster.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stokehold_pipeline::{Executor, PipelineError};

/// An executor of pipelines: `per-op`, `fused` or `gpu` in text and in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AnyExecutor {
    /// Loader threads make the images.
    Cpu(Executor),
    /// Loader threads decode only as far as needed, and the device that trains makes the images.
    Gpu,
}

/// The values of the option: an executor, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ExecutorChoice {
    /// This executor.
    Of(AnyExecutor),
    /// `fused` or `gpu`, whichever trains faster, measured before the first step.
    Auto,
}

/// The executor of a run's pipelines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The executor.
    pub executor: AnyExecutor,
    /// The reason, if the run chose it.
    pub why: Option<String>,
}

impl Default for AnyExecutor {
    fn default() -> Self {
        Self::Cpu(Executor::default())
    }
}

impl Default for ExecutorChoice {
    fn default() -> Self {
        Self::Of(AnyExecutor::default())
    }
}

impl fmt::Display for AnyExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(executor) => executor.fmt(f),
            Self::Gpu => f.write_str("gpu"),
        }
    }
}

impl fmt::Display for ExecutorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(executor) => executor.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for AnyExecutor {
    type Err = PipelineError;

    fn from_str(name: &str) -> Result<Self, PipelineError> {
        match name {
            "gpu" => Ok(Self::Gpu),
            name => name.parse().map(Self::Cpu).map_err(|_| unknown(name, "")),
        }
    }
}

impl FromStr for ExecutorChoice {
    type Err = PipelineError;

    fn from_str(name: &str) -> Result<Self, PipelineError> {
        match name {
            "auto" => Ok(Self::Auto),
            name => name
                .parse()
                .map(Self::Of)
                .map_err(|_| unknown(name, ", and auto")),
        }
    }
}

fn unknown(name: &str, more: &str) -> PipelineError {
    PipelineError::UnknownExecutor {
        name: name.to_owned(),
        known: format!("per-op, fused and gpu{more}"),
    }
}

/// Reads and writes a type in files as in text.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = <$type as std::str::FromStr>::Err;

            fn try_from(name: String) -> Result<Self, Self::Error> {
                name.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use as_text;

as_text!(AnyExecutor);
as_text!(ExecutorChoice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["per-op", "fused", "gpu"] {
            assert_eq!(name.parse::<AnyExecutor>().unwrap().to_string(), name);
        }
        for name in ["per-op", "fused", "gpu", "auto"] {
            let choice: ExecutorChoice = name.parse().unwrap();
            assert_eq!(choice.to_string(), name);
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<ExecutorChoice>(&json).unwrap(), choice);
        }
        let error = "auto".parse::<AnyExecutor>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no executor is called 'auto'; there are per-op, fused and gpu"
        );
        let error = "dali".parse::<ExecutorChoice>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no executor is called 'dali'; there are per-op, fused and gpu, and auto"
        );
    }
}
