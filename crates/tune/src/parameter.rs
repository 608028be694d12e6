//! A parameter of a study as its file has it: a range, a scaling, a condition.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A parameter: its range, and when it exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "Written", rename = "Parameter"))]
#[serde(try_from = "Written", into = "Written")]
pub struct Parameter {
    /// The range.
    pub range: Range,
    /// It exists only where another parameter has certain values.
    pub when: Option<When>,
}

impl From<Range> for Parameter {
    fn from(range: Range) -> Self {
        Self { range, when: None }
    }
}

/// The possible values of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Range {
    /// A number in min..=max.
    Continuous {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
        /// How to scale the range.
        scaling: Scaling,
    },
    /// An integer in min..=max.
    Integer {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
        /// How to scale the range.
        scaling: Scaling,
    },
    /// One of several values without an order, at most [`MOST_CATEGORIES`](crate::MOST_CATEGORIES).
    Categorical {
        /// Texts, numbers or booleans.
        values: Vec<Value>,
    },
    /// A constant, the same in every trial.
    Static {
        /// Its value.
        value: Value,
    },
}

// One struct for all types, so that a misspelt key, or a key of another type, is an error.
/// A parameter: `{ type = "continuous", min = 0.001, max = 0.1 }`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Parameter"))]
#[serde(deny_unknown_fields)]
struct Written {
    /// What the parameter's values are. It decides which of the other keys there are.
    r#type: Type,
    /// For `continuous` and `integer`, which require it: the least value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    min: Option<Number>,
    /// For `continuous` and `integer`, which require it: the greatest value; at least `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    max: Option<Number>,
    /// For `continuous` and `integer`: how distances between values are measured. Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaling: Option<Scaling>,
    /// For `categorical`, which requires it: the values, which are texts, numbers or booleans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = MOST_CATEGORIES)))]
    values: Option<Vec<Value>>,
    /// For `static`, which requires it: the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The parameter exists only where another one has certain values. Default: it always exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<When>,
}

/// What the values of a parameter are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum Type {
    /// Numbers from `min` to `max`.
    Continuous,
    /// Integers from `min` to `max`.
    Integer,
    /// Some of `values`, which have no order.
    Categorical,
    /// Always `value`.
    Static,
}

/// A number of a file. TOML has infinities and NaN, which JSON has not.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    fn real(self) -> f64 {
        match self {
            Self::Whole(x) => x as f64,
            Self::Real(x) => x,
        }
    }

    fn whole(self) -> Result<i64, String> {
        match self {
            Self::Whole(x) => Ok(x),
            Self::Real(x) if x.fract() == 0.0 && x.abs() <= MOST_INTEGER => Ok(x as i64),
            Self::Real(x) => Err(format!(
                "the ends of an integer parameter are whole numbers, and {x} is none"
            )),
        }
    }
}

impl TryFrom<Written> for Parameter {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            r#type,
            min,
            max,
            scaling,
            values,
            value,
            when,
        } = written;
        let range = match (r#type, min, max, scaling, values, value) {
            (Type::Continuous, Some(min), Some(max), scaling, None, None) => Range::Continuous {
                min: min.real(),
                max: max.real(),
                scaling: scaling.unwrap_or_default(),
            },
            (Type::Integer, Some(min), Some(max), scaling, None, None) => Range::Integer {
                min: min.whole()?,
                max: max.whole()?,
                scaling: scaling.unwrap_or_default(),
            },
            (Type::Categorical, None, None, None, Some(values), None) => Range::Categorical { values },
            (Type::Static, None, None, None, None, Some(value)) => Range::Static { value },
            (Type::Continuous | Type::Integer, ..) => {
                return Err(
                    "a continuous or integer parameter has min, max, and scaling if wanted".to_owned(),
                );
            }
            (Type::Categorical, ..) => {
                return Err("a categorical parameter has values and no more".to_owned());
            }
            (Type::Static, ..) => return Err("a static parameter has a value and no more".to_owned()),
        };
        Ok(Self { range, when })
    }
}

impl From<Parameter> for Written {
    fn from(parameter: Parameter) -> Self {
        let mut written = Self {
            r#type: Type::Static,
            min: None,
            max: None,
            scaling: None,
            values: None,
            value: None,
            when: parameter.when,
        };
        match parameter.range {
            Range::Continuous { min, max, scaling } => {
                written.r#type = Type::Continuous;
                (written.min, written.max) = (Some(Number::Real(min)), Some(Number::Real(max)));
                written.scaling = Some(scaling);
            }
            Range::Integer { min, max, scaling } => {
                written.r#type = Type::Integer;
                (written.min, written.max) = (Some(Number::Whole(min)), Some(Number::Whole(max)));
                written.scaling = Some(scaling);
            }
            Range::Categorical { values } => {
                written.r#type = Type::Categorical;
                written.values = Some(values);
            }
            Range::Static { value } => written.value = Some(value),
        }
        written
    }
}

/// How distances between values are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Scaling {
    /// Logarithmic if min > 0 and max / min is 100 or more, else linear.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// By difference.
    #[serde(rename = "linear")]
    Linear,
    /// By ratio. It requires min > 0.
    #[serde(rename = "logarithmic")]
    Logarithmic,
    /// By the ratio of `1 - x`. It requires a continuous parameter with 0 <= min and max < 1.
    #[serde(rename = "reverse-logarithmic")]
    ReverseLogarithmic,
}

/// [`Scaling::Auto`] is logarithmic if max / min is at least this.
pub const AUTO_LOGARITHMIC: f64 = 100.0;

/// A parameter exists if another one exists and has one of these values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The other parameter's name.
    pub parameter: String,
    /// The values of the other parameter with which this one exists.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub is: Vec<Value>,
}

/// The most values of a categorical parameter, as in SageMaker.
pub const MOST_CATEGORIES: usize = 30;

/// Up to here an f64 represents every integer and its half exactly.
pub(crate) const MOST_INTEGER: f64 = 4_503_599_627_370_496.0;
