//! Requests against botocore's model of SageMaker, hyperparameters against the training toolkit's own decoder, the calls against
//! moto and a server of the tests.

mod calls;
mod follows;
mod imports;
mod moto;
mod requests;
mod sources;
mod stub;
#[path = "../../../jobs/tests/it/valid.rs"]
mod valid;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_sagemaker::{CreateTrainingJob, Plan, encode_hyperparameters, section};
use stokehold_untested::needs;

/// What a program in the oracle's Python prints about `input`; none, with the reason noted, without the oracle.
#[track_caller]
fn asked(variable: &str, program: &str, input: &Value) -> Option<String> {
    needs::asked(variable, program, &input.to_string())
}

/// What botocore's models find wrong with requests of services, one finding a line.
fn wrong(requests: &[(&str, &str, Value)]) -> Option<String> {
    let found = asked(
        "STOKEHOLD_TEST_MOTO",
        include_str!("validate.py"),
        &json!(requests),
    )?;
    Some(found.trim().to_owned())
}

/// A folder with a job file, by its name.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/requests")
        .join(name)
}

/// What is sent for a job file, under its name or flowers-1, in its region or eu-west-1; or why nothing is.
fn planned(file: &Path) -> Result<Plan, String> {
    fn refused(error: impl Fault + Display) -> String {
        assert!(error.is_input(), "{error}");
        error.to_string()
    }
    let job = section::read(file).map_err(refused)?;
    section::check(&job).map_err(refused)?;
    let region = Plan::section(&job).ok().and_then(|section| section.region);
    let region = region.as_deref().unwrap_or("eu-west-1");
    Plan::new(&job, job.name.as_deref().unwrap_or("flowers-1"), region).map_err(refused)
}

/// The same for a job file of this text.
fn planned_text(text: &str) -> Result<Plan, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.toml"), text).unwrap();
    planned(&folder.path().join("job.toml"))
}

/// The request for a job file, by the name of its folder.
fn request(name: &str) -> CreateTrainingJob {
    planned(&folder(name).join("job.toml")).unwrap().request
}

/// As small as a job can be.
fn small() -> CreateTrainingJob {
    let role = "arn:aws:iam::123456789012:role/trains";
    let mut request = CreateTrainingJob::new("flowers-1", role, "s3://bucket/out");
    request.algorithm_specification.training_image =
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1".into();
    request.resource_config.instance_type = "ml.g5.xlarge".into();
    request
}

/// The toolkit's own decoder, on a list of files `hyperparameters.json`.
const DECODER: &str = "import json, os, sys, tempfile\n\
    os.environ['SAGEMAKER_BASE_DIR'] = tempfile.mkdtemp()\n\
    from sagemaker_training import environment\n\
    os.makedirs(os.path.dirname(environment.hyperparameters_file_dir), exist_ok=True)\n\
    out = []\n\
    for one in json.load(sys.stdin):\n\
    \x20   json.dump(one, open(environment.hyperparameters_file_dir, 'w'))\n\
    \x20   out.append(environment.read_hyperparameters())\n\
    print(json.dumps(out))\n";

/// Any JSON; strings include those that look like numbers or JSON themselves.
fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        Just("0.5".to_owned()),
        Just("null".to_owned()),
        Just("{\"a\":1}".to_owned())
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn the_toolkit_decodes_hyperparameters_to_the_same_values() {
    let mut runner = TestRunner::deterministic();
    let all = prop::collection::btree_map("[a-z][a-z0-9_-]{0,9}", values(), 0..6);
    let wanted: Vec<BTreeMap<String, Value>> = (0..500)
        .map(|_| all.new_tree(&mut runner).unwrap().current())
        .collect();
    let encoded: Vec<_> = wanted.iter().map(encode_hyperparameters).collect();
    let Some(answer) = asked("STOKEHOLD_TEST_TOOLKIT", DECODER, &json!(encoded)) else {
        return;
    };
    // The answer's last line, because the toolkit may log before it.
    let decoded: Value = serde_json::from_str(answer.trim().lines().last().unwrap()).unwrap();
    assert_eq!(decoded, json!(wanted));
}
