//! Warm starts: the results of earlier studies are copied into the new study's journal when it is created, so
//! that it does not need them later. Only a parent's own results are copied, not those of its parents.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::input;
use crate::parameter::Range;
use crate::space::Space;
use crate::spec::{Spec, WarmStartKind};
use crate::{History, Study, TuneError, Values};

/// A study that another one builds on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// Its folder's name.
    pub name: String,
    /// Whether data and algorithm are the child's.
    pub is_identical: bool,
    /// The results that fit the child's parameters.
    pub results: Vec<ParentResult>,
    /// The number of results that do not fit, because their values are out of the child's ranges.
    pub unfit: usize,
}

/// A result of a parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParentResult {
    /// The hyperparameters.
    pub values: Values,
    /// The objective.
    pub value: f64,
}

/// SageMaker's limit.
const MOST_CHANGES: usize = 10;

/// Reads the parents of a study.
pub(crate) fn read(spec: &Spec, space: &Space) -> Result<Vec<Parent>, TuneError> {
    let Some(warm) = &spec.warm_start else {
        return Ok(Vec::new());
    };
    let mut parents = Vec::new();
    for path in &warm.parents {
        let history = Study::look(path)?;
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        parents.push(parent(name, path, &history, spec, space, warm.kind)?);
    }
    Ok(parents)
}

fn parent(
    name: String,
    path: &Path,
    history: &History,
    spec: &Spec,
    space: &Space,
    kind: WarmStartKind,
) -> Result<Parent, TuneError> {
    let other = &history.spec;
    let says = |what: String| input(format!("warm start from {}: {what}", path.display()));
    if other.objective != spec.objective || other.direction != spec.direction {
        return says(format!(
            "it has {:?} to {:?}, and this study {:?} to {:?}; all studies of a warm start tune one metric",
            other.objective, other.direction, spec.objective, spec.direction
        ));
    }
    let names = spec.parameters.keys().chain(other.parameters.keys());
    let mut changed: Vec<&str> = names
        .filter(|name| spec.parameters.get(*name) != other.parameters.get(*name))
        .map(String::as_str)
        .collect();
    changed.sort_unstable();
    changed.dedup();
    if changed.len() > MOST_CHANGES {
        return says(format!(
            "{} parameters are not the same, and {MOST_CHANGES} may be: {}",
            changed.len(),
            changed.join(", ")
        ));
    }
    let mut parent = Parent {
        name,
        is_identical: kind == WarmStartKind::IdenticalDataAndAlgorithm,
        results: Vec::new(),
        unfit: 0,
    };
    for trial in &history.trials {
        let Some(value) = trial.objective() else { continue };
        // A parameter that is static in either study must have the same value in both; one that the child
        // does not have must be constant.
        let known = |name: &String| {
            let is_range = |range: &Range| !matches!(range, Range::Static { .. });
            spec.parameters.contains_key(name)
                || other
                    .parameters
                    .get(name)
                    .is_some_and(|parameter| is_range(&parameter.range))
        };
        let values: Values = trial
            .values
            .iter()
            .filter(|(name, _)| known(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        match space.point(&values) {
            Ok(_) => parent.results.push(ParentResult { values, value }),
            Err(_) => parent.unfit += 1,
        }
    }
    if parent.results.is_empty() {
        return says(match parent.unfit {
            0 => "it has no result yet; let it complete a trial first".to_owned(),
            unfit => format!("none of its {unfit} results lies within this study's ranges; widen them"),
        });
    }
    Ok(parent)
}
