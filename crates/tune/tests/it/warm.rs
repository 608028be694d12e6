//! Studies that are built upon others.

use std::path::Path;

use serde_json::json;
use stokehold_tune::{Direction, Spec, Study, WarmStart, WarmStartKind};
use tempfile::tempdir;

use crate::{parameters, spec, trial, work};

fn parent(folder: &Path, jobs: usize) {
    let mut spec = spec();
    spec.limits.max_jobs = jobs;
    work(&mut Study::create(folder, spec).unwrap());
}

fn child(kind: WarmStartKind, parents: &[&Path]) -> Spec {
    let mut spec = spec();
    spec.seed = 9;
    spec.warm_start = Some(WarmStart {
        kind,
        parents: parents.iter().map(|path| (*path).to_owned()).collect(),
    });
    spec
}

#[test]
fn a_child_begins_where_its_parent_ended() {
    let dir = tempdir().unwrap();
    let old = dir.path().join("old");
    parent(&old, 20);
    for kind in [
        WarmStartKind::IdenticalDataAndAlgorithm,
        WarmStartKind::TransferLearning,
    ] {
        let mut spec = child(kind, &[&old]);
        spec.limits.max_jobs = 3;
        let mut warm = Study::in_memory(spec).unwrap();
        work(&mut warm);
        let best = warm.history().best().unwrap().objective().unwrap();
        assert!(best < 0.05, "{kind:?}: {best} after three trials");
    }
}

#[test]
fn the_overall_best_may_be_a_parents() {
    let dir = tempdir().unwrap();
    let old = dir.path().join("old");
    parent(&old, 20);
    for (kind, is_parents) in [
        (WarmStartKind::IdenticalDataAndAlgorithm, true),
        (WarmStartKind::TransferLearning, false),
    ] {
        let new = dir.path().join(format!("{kind:?}"));
        let mut study = Study::create(&new, child(kind, &[&old])).unwrap();
        // The child needs its parent no more, and is as it was after opening it again.
        let first = trial(study.ask().unwrap());
        study.tell(first.number, Some(99.0)).unwrap();
        drop(study);
        let history = Study::look(&new).unwrap();
        let (whose, _, value) = history.overall_best().unwrap();
        assert_eq!(whose, is_parents.then_some("old"));
        assert_eq!(value < 1.0, is_parents);
        assert_eq!(history.parents[0].results.len(), 20);
    }
}

#[test]
fn parents_that_do_not_fit_are_named() {
    let dir = tempdir().unwrap();
    let [good, other, empty, narrow] = ["good", "other", "empty", "narrow"].map(|name| dir.path().join(name));
    parent(&good, 3);
    let mut maximise = spec();
    (maximise.direction, maximise.limits.max_jobs) = (Direction::Maximize, 2);
    work(&mut Study::create(&other, maximise).unwrap());
    drop(Study::create(&empty, spec()).unwrap());
    let mut far = spec();
    far.parameters = parameters(json!({
        "lr": {"type": "continuous", "min": 1, "max": 2},
        "batch-size": {"type": "categorical", "values": [64]},
    }));
    far.limits.max_jobs = 1;
    work(&mut Study::create(&narrow, far).unwrap());
    let says = |parents: &[&Path]| {
        Study::in_memory(child(WarmStartKind::TransferLearning, parents))
            .unwrap_err()
            .to_string()
    };
    let metrics = says(&[&good, &other]);
    assert!(
        metrics.contains("other: it has \"loss\" to Maximize") && metrics.contains("one metric"),
        "{metrics}"
    );
    assert!(says(&[&empty]).contains("no result yet"));
    assert!(says(&[&narrow]).contains("widen them"));
    assert!(says(&[]).contains("1 to 5 parents"));
    assert!(says(&[good.as_path(); 6]).contains("not 6"));
    assert!(says(&[&dir.path().join("nowhere")]).contains("there is no study in"));
}

/// Only what a parent found itself is taken, not what its own parents found.
#[test]
fn parents_of_parents_do_not_count() {
    let dir = tempdir().unwrap();
    let [old, middle] = ["old", "middle"].map(|name| dir.path().join(name));
    parent(&old, 5);
    let mut spec = child(WarmStartKind::IdenticalDataAndAlgorithm, &[&old]);
    spec.limits.max_jobs = 2;
    work(&mut Study::create(&middle, spec).unwrap());
    let young = Study::in_memory(child(WarmStartKind::IdenticalDataAndAlgorithm, &[&middle])).unwrap();
    assert_eq!(young.history().parents[0].results.len(), 2);
}
