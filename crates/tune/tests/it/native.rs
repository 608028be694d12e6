//! Studies as SageMaker's own tuning jobs, and back.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_sagemaker::TuningJob;
use stokehold_tune::sagemaker::{Imported, Native};
use stokehold_tune::{Plan, TuneError};

use crate::sagemaker::asked;

const STUDY: &str = r#"
[study]
objective = "loss"
direction = "maximize"
strategy = "bayesian"
seed = 7
[study.limits]
max-jobs = 20
max-parallel-jobs = 4
max-run-seconds = 7200.0
target = 0.5
max-jobs-without-improvement = 5
until-converged = true
[study.early-stopping]
rule = "auto"
[study.warm-start]
kind = "TransferLearning"
parents = ["yesterday"]
[study.parameters.lr]
type = "continuous"
min = 1e-5
max = 0.1
scaling = "logarithmic"
[study.parameters.momentum]
type = "continuous"
min = 0.5
max = 0.99
scaling = "reverse-logarithmic"
[study.parameters.depth]
type = "integer"
min = 1
max = 9
[study.parameters.optimizer]
type = "categorical"
values = ["sgd", "adam", "0.5"]
[study.parameters.batch-size]
type = "categorical"
values = [64, 128]
[study.parameters.epochs]
type = "static"
value = 90
[job]
entry-point = "train.py"
source-dir = "s3://bucket/code/sourcedir.tar.gz"
output = "s3://bucket/out"
checkpoints = "s3://bucket/checkpoints"
instance-type = "ml.g5.xlarge"
instances = 2
distribution = "torch"
max-run-seconds = 3600
profile = false
[job.hyperparameters]
model = "resnet18"
[job.environment]
MINE = "1"
[job.spot]
max-wait-seconds = 7200
[job.channels]
train = "s3://bucket/train,mode=FastFile,distribution=ShardedByS3Key"
[[job.metrics]]
name = "loss"
regex = 'loss=([0-9.]+)'
[job.sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1"
volume-gigabytes = 50
subnets = ["subnet-1"]
security-groups = ["sg-1"]
"#;

fn plan(text: &str) -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tune.toml");
    fs::write(&path, text).unwrap();
    Plan::read(&path).unwrap()
}

fn native(plan: &Plan) -> Result<Native, TuneError> {
    Native::new(plan, "flowers-0123abcd", "eu-west-1")
}

fn sent(plan: &Plan) -> Value {
    serde_json::to_value(native(plan).unwrap().request).unwrap()
}

/// What SageMaker tells about a job that was asked for so.
fn described(request: &Value) -> TuningJob {
    let mut described = request.clone();
    let members = described.as_object_mut().unwrap();
    members.remove("Tags");
    members.insert("HyperParameterTuningJobArn".to_owned(), json!("arn"));
    members.insert("HyperParameterTuningJobStatus".to_owned(), json!("Completed"));
    members.insert("CreationTime".to_owned(), json!(1.6e9));
    serde_json::from_value(described).unwrap()
}

#[test]
fn a_study_is_one_request_that_botocores_model_takes() {
    let request = sent(&plan(STUDY));
    assert_eq!(
        request["HyperParameterTuningJobConfig"],
        json!({
            "Strategy": "Bayesian",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "loss"},
            "ResourceLimits": {
                "MaxNumberOfTrainingJobs": 20, "MaxParallelTrainingJobs": 4, "MaxRuntimeInSeconds": 7200
            },
            "ParameterRanges": {
                "ContinuousParameterRanges": [
                    {"Name": "lr", "MinValue": "0.00001", "MaxValue": "0.1", "ScalingType": "Logarithmic"},
                    {"Name": "momentum", "MinValue": "0.5", "MaxValue": "0.99", "ScalingType": "ReverseLogarithmic"},
                ],
                "IntegerParameterRanges": [
                    {"Name": "depth", "MinValue": "1", "MaxValue": "9", "ScalingType": "Auto"},
                ],
                "CategoricalParameterRanges": [
                    {"Name": "batch-size", "Values": ["64", "128"]},
                    {"Name": "optimizer", "Values": ["\"sgd\"", "\"adam\"", "\"0.5\""]},
                ],
            },
            "TrainingJobEarlyStoppingType": "Auto",
            "TuningJobCompletionCriteria": {
                "TargetObjectiveMetricValue": 0.5,
                "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
                "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
            },
            "RandomSeed": 7,
        })
    );
    assert_eq!(
        request["WarmStartConfig"],
        json!({
            "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "yesterday"}],
            "WarmStartType": "TransferLearning",
        })
    );
    let statics = &request["TrainingJobDefinition"]["StaticHyperParameters"];
    assert_eq!(
        (&statics["epochs"], &statics["model"]),
        (&json!("90"), &json!("\"resnet18\""))
    );
    assert_eq!(statics.get("lr"), None);
    let program = include_str!("../../../sagemaker/tests/it/validate.py");
    let asks = json!([["sagemaker", "CreateHyperParameterTuningJob", request]]);
    if let Some(found) = asked(program, &asks) {
        assert_eq!(found.trim(), "");
    }
}

#[test]
fn strategies_without_a_model_are_translated() {
    let random = STUDY
        .replace("\"bayesian\"", "\"random\"")
        .replace("until-converged = true", "");
    assert_eq!(
        sent(&plan(&random))["HyperParameterTuningJobConfig"]["Strategy"],
        "Random"
    );

    let hyperband = random.replace("\"random\"", "\"hyperband\"").replace(
        "[study.early-stopping]\nrule = \"auto\"\n",
        "[study.rungs]\nmin-steps = 2\nmax-steps = 27\n",
    );
    let config = &sent(&plan(&hyperband))["HyperParameterTuningJobConfig"];
    assert_eq!(
        config["StrategyConfig"],
        json!({"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 27}})
    );
    assert_eq!(config["TrainingJobEarlyStoppingType"], "Off");

    let mut grid = plan(
        &random
            .replace("\"random\"", "\"grid\"")
            .replace("type = \"continuous\"", "type = \"integer\"")
            .replace(
                "min = 1e-5\nmax = 0.1\nscaling = \"logarithmic\"",
                "min = 1\nmax = 2",
            )
            .replace(
                "min = 0.5\nmax = 0.99\nscaling = \"reverse-logarithmic\"",
                "min = 1\nmax = 2",
            )
            .replace("max-jobs = 20", "max-jobs = 1000"),
    );
    let config = &sent(&grid)["HyperParameterTuningJobConfig"];
    assert_eq!(
        config["ResourceLimits"],
        json!({"MaxParallelTrainingJobs": 4, "MaxRuntimeInSeconds": 7200})
    );
    let depth = json!({"Name": "depth", "Values": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]});
    assert!(
        config["ParameterRanges"]["CategoricalParameterRanges"]
            .as_array()
            .unwrap()
            .contains(&depth)
    );
    grid.study.limits.max_jobs = 20;
    let error = native(&grid).unwrap_err().to_string();
    assert!(
        error.contains("max-jobs = 20 below the 216 combinations of a grid"),
        "{error}"
    );
}

#[test]
fn everything_without_a_counterpart_is_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("yesterday")).unwrap();
    fs::write(dir.path().join("yesterday/journal.jsonl"), "").unwrap();
    let text = STUDY
        .replace(
            "strategy = \"bayesian\"",
            "strategy = \"tpe\"\ntake = \"best\"\nenqueue = [{ lr = 0.01 }]",
        )
        .replace("until-converged = true", "max-failed-jobs = 3")
        .replace(
            "rule = \"auto\"",
            "rule = \"asha\"\n[study.rungs]\nmax-steps = 9\nreduction = 2",
        )
        .replace("seed = 7", "seed = 3000000000")
        .replace(
            "max = 9\n",
            "max = 9\nwhen = { parameter = \"optimizer\", is = [\"sgd\"] }\n",
        )
        .replace("model = \"resnet18\"", "model = \"{optimizer}-1\"");
    let path = dir.path().join("tune.toml");
    fs::write(&path, text).unwrap();
    let error = native(&Plan::read(&path).unwrap()).unwrap_err();
    assert!(error.is_input());
    let text = error.to_string();
    for says in [
        "strategy = \"tpe\"",
        "take (",
        "enqueue",
        "by \"asha\"",
        "max-failed-jobs",
        "a seed above",
        "reduction = 2 (it is always 3)",
        "when of parameter depth",
        "{optimizer} in a hyperparameter",
        "a study of this machine",
        "leave --native out",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let mut auto = plan(STUDY);
    auto.study.early_stopping.grace_reports = 1;
    auto.study.early_stopping.min_trials = 1;
    auto.timeline = true;
    auto.job.metrics.clear();
    auto.job.profile = true;
    let text = native(&auto).unwrap_err().to_string();
    for says in ["grace-reports", "min-trials", "timeline"] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn a_description_is_the_study_that_was_sent() {
    let plan = plan(STUDY);
    let request = sent(&plan);
    let imported = Imported::new(&described(&request), "eu-west-1", &BTreeMap::new()).unwrap();
    assert_eq!(imported.left.len(), 1, "{:?}", imported.left);
    assert!(imported.left[0].contains("warm start"), "{:?}", imported.left);
    // Static parameters become hyperparameters, and the same request is sent again.
    assert_eq!(sent(&imported.plan), request);
    assert_eq!(imported.plan.job.hyperparameters["epochs"], 90);
    assert_eq!(imported.plan.study.limits, plan.study.limits);
    // The file is read as it was written.
    let again = self::plan(&imported.to_toml().unwrap());
    assert_eq!(sent(&again), request);
}

#[test]
fn a_category_that_no_file_has_is_the_text_that_the_script_gets() {
    let mut request = sent(&plan(STUDY));
    let ranges =
        &mut request["HyperParameterTuningJobConfig"]["ParameterRanges"]["CategoricalParameterRanges"];
    ranges[0]["Values"] = json!([
        "-0",
        "12345678901234567890123",
        "1e400",
        "18446744073709551615",
        "[1]",
        "0.5",
        "\"a\"",
        "b"
    ]);
    let imported = Imported::new(&described(&request), "eu-west-1", &BTreeMap::new()).unwrap();
    let values = json!([
        0,
        "12345678901234567890123",
        "inf",
        "18446744073709551615",
        "[1]",
        0.5,
        "a",
        "b"
    ]);
    let file: toml::Table = imported.to_toml().unwrap().parse().unwrap();
    assert_eq!(json!(file)["study"]["parameters"]["batch-size"]["values"], values);
    for says in [
        "number 12345678901234567890123",
        "number 1e400",
        "number 18446744073709551615",
    ] {
        assert!(
            imported.left.iter().any(|left| left.contains(says)),
            "{says}: {:?}",
            imported.left
        );
    }
    assert_eq!(imported.left.len(), 4, "{:?}", imported.left);
    let tuned = BTreeMap::from([
        ("x".to_owned(), "-0".to_owned()),
        ("y".to_owned(), "NaN".to_owned()),
    ]);
    assert_eq!(
        json!(stokehold_tune::sagemaker::decoded(&tuned)),
        json!({"x": 0, "y": "nan"})
    );
}

#[test]
fn what_a_description_has_and_a_study_has_not_is_named() {
    let mut request = sent(&plan(STUDY));
    let definition = &mut request["TrainingJobDefinition"];
    definition["EnableNetworkIsolation"] = json!(true);
    // As SageMaker's SDK says it.
    let mut machines = definition
        .as_object_mut()
        .unwrap()
        .remove("ResourceConfig")
        .unwrap();
    machines["AllocationStrategy"] = json!("Prioritized");
    machines["VolumeKmsKeyId"] = json!("alias/disks");
    definition["HyperParameterTuningResourceConfig"] = machines;
    definition["RetryStrategy"] = json!({"MaximumRetryAttempts": 3});
    definition["DefinitionName"] = json!("one");
    definition["InputDataConfig"][0]["DataSource"] = json!({"FileSystemDataSource": {
        "FileSystemId": "fs-0123", "FileSystemType": "EFS", "FileSystemAccessMode": "ro", "DirectoryPath": "/train",
    }});
    definition["Environment"] = json!({"WANDB_API_KEY": "0123", "MODE": "fast"});
    definition["StaticHyperParameters"]["depth-token"] = json!("\"hidden-1\"");
    definition["StaticHyperParameters"]["_tuning_objective_metric"] = json!("loss");
    let labels = ["team", "aws:x", "api-token"].map(|key| (key.to_owned(), "vision".to_owned()));
    let imported = Imported::new(&described(&request), "eu-west-1", &labels.into()).unwrap();
    let section = imported.plan.job.sagemaker.as_ref().unwrap();
    assert_eq!(section.region.as_deref(), Some("eu-west-1"));
    assert_eq!(
        section.tags,
        BTreeMap::from([("team".to_owned(), "vision".to_owned())])
    );
    assert!(
        imported
            .left
            .iter()
            .any(|left| left.contains("label api-token = \"..\"")),
        "{:?}",
        imported.left
    );
    let left = imported.left.join("\n");
    let file = imported.to_toml().unwrap();
    assert!(file.contains("MODE") && !file.contains("WANDB"), "{file}");
    assert!(
        !file.contains("hidden") && !left.contains("hidden"),
        "{file}{left}"
    );
    assert!(!file.contains("_tuning_objective_metric"), "{file}");
    for says in [
        "WANDB_API_KEY = \"..\": its value looks like a secret",
        "RetryStrategy = {\"MaximumRetryAttempts\":3}",
        "ResourceConfig.AllocationStrategy = \"Prioritized\": has no counterpart",
        "channel train: mount the file system at /mnt/fs-0123",
        "depth-token = \"..\": its value looks like a secret",
    ] {
        assert!(left.contains(says), "{says}: {left}");
    }
    assert!(
        !left.contains("Traffic") && !left.contains("DefinitionName"),
        "{left}"
    );
    let job = imported.plan.job;
    assert_eq!((job.instance_type.as_str(), job.instances), ("ml.g5.xlarge", 2));
    let section = job.sagemaker.unwrap();
    assert_eq!(section.channels["train"], "efs://fs-0123/train");
    assert_eq!(section.volume_gigabytes, 50);
    assert_eq!(
        (section.volume_kms_key.as_deref(), section.kms_key),
        (Some("alias/disks"), None)
    );
    assert!(section.network_isolation && !section.encrypt_traffic);

    let mut builtin = sent(&plan(STUDY));
    builtin["TrainingJobDefinition"]["StaticHyperParameters"] = json!({"num_round": "5"});
    let error = Imported::new(&described(&builtin), "eu-west-1", &BTreeMap::new()).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("sagemaker_program"),
        "{error}"
    );
    let mut several = described(&request);
    several.training_job_definitions = vec![json!({})];
    assert!(
        Imported::new(&several, "eu-west-1", &BTreeMap::new())
            .unwrap_err()
            .to_string()
            .contains("several algorithms")
    );
}
