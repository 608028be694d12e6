//! The search space: parameters with ranges, their scaling, and conditions for their existence.
//!
//! Strategies work on points: one number per parameter, in the order of their names. Continuous and integer
//! parameters are in 0..=1 after scaling, categorical ones are the index of their value, and a parameter that
//! does not exist at this point is NaN.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::TuneError;
use crate::error::input;
use crate::parameter::{AUTO_LOGARITHMIC, MOST_CATEGORIES, MOST_INTEGER, Parameter, Range, Scaling};
use crate::random::Random;

/// Hyperparameters of a trial by name: numbers, texts or booleans.
pub type Values = BTreeMap<String, Value>;

/// Validated parameters, as strategies see them.
#[derive(Debug, Clone)]
pub struct Space {
    /// All parameters except static ones, by name.
    dims: Vec<Dim>,
    fixed: Values,
}

#[derive(Debug, Clone)]
pub(crate) struct Dim {
    pub name: String,
    pub domain: Domain,
    /// The other dimension, and its values.
    when: Option<(usize, Vec<Value>)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Domain {
    Continuous { scale: Scale, min: f64, max: f64 },
    Integer { scale: Scale, min: i64, max: i64 },
    Categorical { values: Vec<Value> },
}

/// The ends of a range after scaling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    scaling: Scaling,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(scaling: Scaling, auto: Scaling, min: f64, max: f64) -> Self {
        let scaling = if scaling == Scaling::Auto { auto } else { scaling };
        let ends = Self {
            scaling,
            low: 0.0,
            high: 1.0,
        };
        Self {
            scaling,
            low: ends.forward(min),
            high: ends.forward(max),
        }
    }

    fn forward(self, x: f64) -> f64 {
        match self.scaling {
            Scaling::Logarithmic => x.ln(),
            Scaling::ReverseLogarithmic => -(-x).ln_1p(),
            Scaling::Auto | Scaling::Linear => x,
        }
    }

    fn unit(self, x: f64) -> f64 {
        match self.high - self.low {
            width if width > 0.0 => ((self.forward(x) - self.low) / width).clamp(0.0, 1.0),
            _ => 0.5,
        }
    }

    fn value(self, unit: f64) -> f64 {
        let x = self.low + unit * (self.high - self.low);
        match self.scaling {
            Scaling::Logarithmic => x.exp(),
            Scaling::ReverseLogarithmic => -(-x).exp_m1(),
            Scaling::Auto | Scaling::Linear => x,
        }
    }
}

impl Domain {
    /// The number of values, if it is finite.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Continuous { min, max, .. } => (min == max).then_some(1),
            Self::Integer { min, max, .. } => max.abs_diff(*min).checked_add(1),
            Self::Categorical { values } => Some(values.len() as u64),
        }
    }

    /// The coordinate of the i-th value, for parameters with finitely many.
    pub fn level(&self, i: u64) -> f64 {
        match self {
            Self::Continuous { .. } => 0.5,
            Self::Integer { scale, min, .. } => scale.unit(min.saturating_add_unsigned(i) as f64),
            Self::Categorical { .. } => i as f64,
        }
    }

    /// The nearest coordinate that represents a value.
    pub fn snap(&self, x: f64) -> f64 {
        match self {
            Self::Continuous { .. } => x.clamp(0.0, 1.0),
            Self::Integer { scale, .. } => scale.unit(self.integer(x) as f64),
            Self::Categorical { values } => x.round().clamp(0.0, (values.len() - 1) as f64),
        }
    }

    /// The integer that a coordinate represents.
    pub fn integer(&self, x: f64) -> i64 {
        match self {
            Self::Integer { scale, min, max } => (scale.value(x).round() as i64).clamp(*min, *max),
            Self::Continuous { .. } | Self::Categorical { .. } => x as i64,
        }
    }

    /// The range of coordinates that represent the same integer. `None` if the values are not numbers, or if
    /// every coordinate is a different value.
    pub fn cell(&self, x: f64) -> Option<(f64, f64)> {
        match self {
            Self::Integer { scale, .. } => {
                let number = self.integer(x) as f64;
                Some((scale.unit(number - 0.5), scale.unit(number + 0.5)))
            }
            Self::Continuous { .. } | Self::Categorical { .. } => None,
        }
    }

    pub fn value(&self, x: f64) -> Value {
        match self {
            Self::Continuous { scale, min, max } => Value::from(scale.value(x).clamp(*min, *max)),
            Self::Integer { .. } => Value::from(self.integer(x)),
            Self::Categorical { values } => values[(x.round() as usize).min(values.len() - 1)].clone(),
        }
    }

    /// The coordinate of a value; `None` if the value is out of range.
    pub fn coordinate(&self, value: &Value) -> Option<f64> {
        match self {
            Self::Continuous { scale, min, max } => {
                let x = value.as_f64()?;
                // A value computed from the other end of the scale may be off by a rounding error.
                let slack = 1e-9 * (max - min);
                (x >= min - slack && x <= max + slack).then(|| scale.unit(x.clamp(*min, *max)))
            }
            Self::Integer { scale, min, max } => {
                let x = value
                    .as_i64()
                    .or_else(|| value.as_f64().filter(|x| x.fract() == 0.0).map(|x| x as i64))?;
                (*min..=*max).contains(&x).then(|| scale.unit(x as f64))
            }
            Self::Categorical { values } => values
                .iter()
                .position(|other| same(other, value))
                .map(|i| i as f64),
        }
    }

    fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Categorical { values } => random.below(values.len()) as f64,
            Self::Continuous { .. } | Self::Integer { .. } => self.snap(random.unit()),
        }
    }
}

/// Whether two values are equal; 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Dim {
    fn coordinate(&self, value: &Value) -> Result<f64, TuneError> {
        self.domain
            .coordinate(value)
            .ok_or_else(|| TuneError::Input(format!("parameter {}: {value} is outside its range", self.name)))
    }
}

impl Space {
    /// Validates parameters.
    ///
    /// # Errors
    /// [`TuneError::Input`] with the first invalid parameter, and what to change.
    pub fn new(parameters: &BTreeMap<String, Parameter>) -> Result<Self, TuneError> {
        let mut space = Self {
            dims: Vec::new(),
            fixed: Values::new(),
        };
        for (name, parameter) in parameters {
            if name.is_empty() || name.contains(['=', '\0', '{', '}']) {
                return input(format!("{name:?} is no parameter's name"));
            }
            if let Some(domain) = domain(&parameter.range)
                .map_err(|reason| TuneError::Input(format!("parameter {name}: {reason}")))?
            {
                let dim = Dim {
                    name: name.clone(),
                    domain,
                    when: None,
                };
                space.dims.push(dim);
            } else if let Range::Static { value } = &parameter.range {
                space.fixed.insert(name.clone(), value.clone());
            }
        }
        if space.dims.is_empty() {
            return input("there is no parameter to tune; give one a range");
        }
        for (name, parameter) in parameters {
            let Some(when) = &parameter.when else { continue };
            let says = |reason: String| TuneError::Input(format!("parameter {name}, when: {reason}"));
            let Some(own) = space.dims.iter().position(|dim| &dim.name == name) else {
                return Err(says("a static parameter is always there".to_owned()));
            };
            let Some(other) = space.dims.iter().position(|dim| dim.name == when.parameter) else {
                return Err(says(format!(
                    "there is no parameter {} with a range",
                    when.parameter
                )));
            };
            if let Some(value) = when
                .is
                .iter()
                .find(|value| space.dims[other].domain.coordinate(value).is_none())
            {
                return Err(says(format!("{} is never {value}", when.parameter)));
            }
            if when.is.is_empty() {
                return Err(says(format!(
                    "is = [] is never true; name values of {}",
                    when.parameter
                )));
            }
            space.dims[own].when = Some((other, when.is.clone()));
        }
        for start in 0..space.dims.len() {
            let mut at = start;
            for _ in 0..=space.dims.len() {
                match &space.dims[at].when {
                    Some((other, _)) => at = *other,
                    None => break,
                }
            }
            if space.dims[at].when.is_some() {
                return input(format!(
                    "parameter {}: its condition leads back to itself",
                    space.dims[start].name
                ));
            }
        }
        Ok(space)
    }

    pub(crate) fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Whether a parameter exists, given the rest of the point.
    fn is_active(&self, point: &[f64], i: usize) -> bool {
        match &self.dims[i].when {
            None => true,
            Some((other, values)) => {
                let value = self.dims[*other].domain.value(point[*other].max(0.0));
                self.is_active(point, *other) && values.iter().any(|one| same(one, &value))
            }
        }
    }

    /// The point with every coordinate moved to a value, and NaN for parameters that do not exist.
    pub(crate) fn snap(&self, point: &[f64]) -> Vec<f64> {
        let snapped: Vec<f64> = self
            .dims
            .iter()
            .zip(point)
            .map(|(dim, x)| dim.domain.snap(if x.is_nan() { 0.5 } else { *x }))
            .collect();
        (0..snapped.len())
            .map(|i| {
                if self.is_active(&snapped, i) {
                    snapped[i]
                } else {
                    f64::NAN
                }
            })
            .collect()
    }

    /// A point drawn uniformly.
    pub(crate) fn draw(&self, random: &mut Random) -> Vec<f64> {
        let point: Vec<f64> = self.dims.iter().map(|dim| dim.domain.draw(random)).collect();
        self.snap(&point)
    }

    /// The values of a trial: those of the point, and the static ones.
    pub(crate) fn values(&self, point: &[f64]) -> Values {
        let point = self.snap(point);
        let mut values = self.fixed.clone();
        for (dim, x) in self.dims.iter().zip(&point) {
            if !x.is_nan() {
                values.insert(dim.name.clone(), dim.domain.value(*x));
            }
        }
        values
    }

    /// The values of a trial in the middle of every range.
    pub fn middle(&self) -> Values {
        self.values(&vec![0.5; self.dims.len()])
    }

    /// The point of the given values, with the other coordinates taken from another point.
    ///
    /// # Errors
    /// A value is out of its parameter's range, or its parameter is unknown or does not exist next to the
    /// others.
    pub(crate) fn complete(&self, values: &Values, mut point: Vec<f64>) -> Result<Vec<f64>, TuneError> {
        self.check_names(values)?;
        for (i, dim) in self.dims.iter().enumerate() {
            if let Some(value) = values.get(&dim.name) {
                point[i] = dim.coordinate(value)?;
            } else if point[i].is_nan() {
                point[i] = 0.5;
            }
        }
        let point = self.snap(&point);
        let missing = |(dim, x): &(&Dim, &f64)| x.is_nan() && values.contains_key(&dim.name);
        match self.dims.iter().zip(&point).find(missing) {
            Some((dim, _)) => {
                let when = dim
                    .when
                    .as_ref()
                    .map(|(other, _)| self.dims[*other].name.as_str());
                input(format!(
                    "parameter {} is not there with these values; give {} too",
                    dim.name,
                    when.unwrap_or_default()
                ))
            }
            None => Ok(point),
        }
    }

    fn check_names(&self, values: &Values) -> Result<(), TuneError> {
        for (name, value) in values {
            match self.fixed.get(name) {
                Some(fixed) if !same(fixed, value) => {
                    return input(format!("parameter {name} is static: it is always {fixed}"));
                }
                None if !self.dims.iter().any(|dim| &dim.name == name) => {
                    return input(format!("there is no parameter {name}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The point of a trial's values.
    ///
    /// # Errors
    /// A parameter is missing, out of range, or unknown.
    pub(crate) fn point(&self, values: &Values) -> Result<Vec<f64>, TuneError> {
        self.check_names(values)?;
        let coordinate = |dim: &Dim| match values.get(&dim.name) {
            None => Ok(f64::NAN),
            Some(value) => dim.coordinate(value),
        };
        let point: Vec<f64> = self.dims.iter().map(coordinate).collect::<Result<_, _>>()?;
        for (i, dim) in self.dims.iter().enumerate() {
            if point[i].is_nan() && self.is_active(&point, i) {
                return input(format!("parameter {} has no value", dim.name));
            }
            if !point[i].is_nan() && !self.is_active(&point, i) {
                return input(format!("parameter {} is not there with these values", dim.name));
            }
        }
        Ok(point)
    }

    /// The position of a value on its parameter's scale, 0..=1; categories are at the centres of equal parts.
    pub fn share(&self, name: &str, value: &Value) -> Option<f64> {
        let domain = &self.dims.iter().find(|dim| dim.name == name)?.domain;
        let at = domain.coordinate(value)?;
        Some(match domain {
            Domain::Categorical { values } => (at + 0.5) / values.len() as f64,
            Domain::Continuous { .. } | Domain::Integer { .. } => at,
        })
    }

    /// Values to label on a parameter's scale: all categories, or both ends and the centre.
    pub fn marks(&self, name: &str) -> Vec<(Value, f64)> {
        let Some(dim) = self.dims.iter().find(|dim| dim.name == name) else {
            return Vec::new();
        };
        let coordinates: Vec<f64> = match &dim.domain {
            Domain::Categorical { values } => (0..values.len()).map(|i| i as f64).collect(),
            Domain::Continuous { .. } | Domain::Integer { .. } => vec![0.0, 0.5, 1.0],
        };
        let mark = |at: &f64| {
            let value = dim.domain.value(dim.domain.snap(*at));
            let share = self.share(name, &value)?;
            Some((value, share))
        };
        let mut marks: Vec<(Value, f64)> = coordinates.iter().filter_map(mark).collect();
        marks.dedup_by(|a, b| a.0 == b.0);
        marks
    }

    /// The number of different trials, ignoring conditions; `None` if it is infinite.
    pub fn count(&self) -> Option<u64> {
        self.dims
            .iter()
            .try_fold(1_u64, |all, dim| all.checked_mul(dim.domain.count()?))
    }

    /// Every point of a finite space, each once.
    pub(crate) fn grid(&self) -> impl Iterator<Item = Vec<f64>> {
        let all = self.count().unwrap_or(0);
        (0..all).filter_map(|number| {
            let mut left = number;
            let mut point = vec![0.0; self.dims.len()];
            let mut first = vec![true; self.dims.len()];
            // The last parameter changes fastest.
            for (i, dim) in self.dims.iter().enumerate().rev() {
                let count = dim.domain.count().unwrap_or(1);
                point[i] = dim.domain.level(left % count);
                first[i] = left % count == 0;
                left /= count;
            }
            let point = self.snap(&point);
            // Points that differ only in parameters that do not exist are the same.
            point
                .iter()
                .zip(&first)
                .all(|(x, first)| !x.is_nan() || *first)
                .then_some(point)
        })
    }
}

fn domain(range: &Range) -> Result<Option<Domain>, String> {
    Ok(Some(match range {
        Range::Continuous { min, max, scaling } => {
            check_ends(*min, *max, *scaling)?;
            let auto = auto(*min, *max);
            Domain::Continuous {
                scale: Scale::of(*scaling, auto, *min, *max),
                min: *min,
                max: *max,
            }
        }
        Range::Integer { min, max, scaling } => {
            let (low, high) = (*min as f64, *max as f64);
            check_ends(low, high, *scaling)?;
            if *scaling == Scaling::ReverseLogarithmic {
                return Err("reverse-logarithmic scaling is for continuous parameters".to_owned());
            }
            if low.abs() > MOST_INTEGER || high.abs() > MOST_INTEGER {
                return Err(format!("whole numbers go up to {MOST_INTEGER}"));
            }
            Domain::Integer {
                // Every value gets an equal cell of the range before scaling.
                scale: Scale::of(*scaling, auto(low, high), low - 0.5, high + 0.5),
                min: *min,
                max: *max,
            }
        }
        Range::Categorical { values } => {
            let fine = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
            if values.is_empty() {
                return Err("values = [] leaves nothing to choose from; list at least one".to_owned());
            }
            if values.len() > MOST_CATEGORIES {
                return Err(format!(
                    "{} values are more than {MOST_CATEGORIES}; an integer range may do",
                    values.len()
                ));
            }
            if let Some(value) = values.iter().find(|value| !fine(value)) {
                return Err(format!("{value} is not a string, a number or a boolean"));
            }
            if let Some(twice) =
                (1..values.len()).find(|i| values[..*i].iter().any(|one| same(one, &values[*i])))
            {
                return Err(format!("{} is there twice", values[twice]));
            }
            Domain::Categorical {
                values: values.clone(),
            }
        }
        Range::Static { .. } => return Ok(None),
    }))
}

fn auto(min: f64, max: f64) -> Scaling {
    match min > 0.0 && max / min >= AUTO_LOGARITHMIC {
        true => Scaling::Logarithmic,
        false => Scaling::Linear,
    }
}

fn check_ends(min: f64, max: f64, scaling: Scaling) -> Result<(), String> {
    if !min.is_finite() || !max.is_finite() {
        return Err(format!("min = {min} and max = {max} have to be finite"));
    }
    if min > max {
        return Err(format!("min = {min} is above max = {max}; exchange them"));
    }
    if scaling == Scaling::Logarithmic && min <= 0.0 {
        return Err(format!(
            "logarithmic scaling wants a range above 0, and min = {min}; raise min or take linear"
        ));
    }
    if scaling == Scaling::ReverseLogarithmic && !(min >= 0.0 && max < 1.0) {
        return Err(format!(
            "reverse-logarithmic scaling wants 0 <= min and max < 1, and the range is {min} to {max}; change it or take linear"
        ));
    }
    Ok(())
}
