//! From SageMaker to a job file, and back to the request.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_jobs::{Job, decode_hyperparameter};
use stokehold_sagemaker::{CreateTrainingJob, DataSource, Imported, InputMode, Plan, Tag, section};

use crate::moto::Moto;
use crate::requests::folders;
use crate::{small, values};

const ARN: &str = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1";

/// What DescribeTrainingJob answers of a job that was made so.
fn description(request: &CreateTrainingJob) -> (Value, BTreeMap<String, String>) {
    let mut answer = serde_json::to_value(request).unwrap();
    let tags = request
        .tags
        .iter()
        .map(|tag| (tag.key.clone(), tag.value.clone()));
    let map = answer.as_object_mut().unwrap();
    map.remove("Tags");
    map.insert("TrainingJobArn".into(), json!(ARN));
    map.insert("TrainingJobStatus".into(), json!("Completed"));
    map.insert("SecondaryStatus".into(), json!("Completed"));
    map.insert("CreationTime".into(), json!(1.6e9));
    map.insert("BillableTimeInSeconds".into(), json!(100));
    map.insert(
        "ModelArtifacts".into(),
        json!({"S3ModelArtifacts": "s3://bucket/out/flowers-1/output/model.tar.gz"}),
    );
    (answer, tags.collect())
}

fn imported(request: &CreateTrainingJob) -> Imported {
    let (answer, tags) = description(request);
    Imported::of_description(&answer, Some(&tags)).unwrap()
}

fn job(text: &str) -> Job {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    fs::write(&path, text).unwrap();
    let job = section::read(&path).unwrap_or_else(|error| panic!("{error}\n{text}"));
    section::check(&job).unwrap_or_else(|error| panic!("{error}\n{text}"));
    job
}

fn planned(text: &str) -> CreateTrainingJob {
    let plan = crate::planned_text(text);
    plan.unwrap_or_else(|error| panic!("{error}\n{text}")).request
}

#[test]
fn a_job_of_ours_comes_back_as_the_same_request() {
    let before = crate::request("full");
    let imported = imported(&before);
    assert_eq!(imported.problems, [""; 0], "{}", imported.text);
    assert_eq!(planned(&imported.text), before, "{}", imported.text);
    for says in [
        "# name = \"flowers-1\"",
        "# It is Completed there.",
        "# Its model: s3://bucket/out/flowers-1/output/model.tar.gz",
        "# checkpoints: a job with this place continues",
        "mount the file system at /mnt/fs-0123456789abcdef0",
        "region = \"eu-west-1\"",
    ] {
        assert!(imported.text.contains(says), "{says}: {}", imported.text);
    }
}

#[test]
fn a_cluster_of_several_types_has_as_many_instances_here() {
    let imported = imported(&crate::request("groups"));
    assert_eq!(imported.problems, [""; 0], "{}", imported.text);
    let job = job(&imported.text);
    assert_eq!((job.instances, job.instance_type.as_str()), (4, "ml.c5.xlarge"));
}

#[test]
fn what_has_no_counterpart_is_a_comment() {
    let (mut answer, _) = description(&crate::request("small"));
    let more = json!({
        "AlgorithmSpecification": {"TrainingImage": "registry/train:1", "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python", "x.py"], "EnableSageMakerMetricsTimeSeries": true,
            "MetricDefinitions": [{"Name": "bad", "Regex": "(?<=x)(.*)"}, {"Name": "good", "Regex": "x=(.*)"}]},
        "DebugHookConfig": {"S3OutputPath": "s3://bucket/tensors"},
        "DebugRuleConfigurations": [
            {"RuleConfigurationName": "a", "RuleParameters": {"rule_to_invoke": "LossNotDecreasing", "patience": "3"}},
            {"RuleConfigurationName": "b", "RuleParameters": {"rule_to_invoke": "PoorWeightInitialization"}}],
        "CheckpointConfig": {"S3Uri": "s3://bucket/c", "LocalPath": "/tmp/own"},
        "ExperimentConfig": {"ExperimentName": "mine\u{7f}\n"},
        "RemoteConfig": {"DbPassword": "my-own-secret"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out", "KmsKeyId": "", "CompressionType": "NONE"},
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "SomethingOfTomorrow": [1],
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 7200},
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1, "VolumeSizeInGB": 0,
            "TrainingPlanArn": "arn:plan"},
        "Environment": {"HF_TOKEN": "my-own-secret", "AWS_SECRET_ACCESS_KEY": "my-own-secret", "OMP_NUM_THREADS": "4"},
        "HyperParameters": {"sagemaker_program": "\"train.py\"", "sagemaker_submit_directory": "\"s3://b/s.tar.gz\"",
            "plain": "resnet18", "gh_pat": "my-own-secret", "nothing": "null", "large": "18446744073709551615",
            "zero": "-0", "digits": "[12345678901234567890123, null]", "infinite": "{\"a\":1e400}",
            "sagemaker_parameter_server_enabled": "true"},
        "InputDataConfig": [
            {"ChannelName": "old", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/t"}},
             "InputMode": "File", "RecordWrapperType": "RecordIO", "CompressionType": "None"},
            {"ChannelName": "lines", "DataSource": {"S3DataSource": {"S3DataType": "AugmentedManifestFile",
             "S3Uri": "s3://b/m", "AttributeNames": ["a"]}}, "InputMode": "File"},
            {"ChannelName": "hub", "DataSource": {"DatasetSource": {"DatasetArn": "arn:set"}}}],
    });
    answer
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let tags = BTreeMap::from([
        ("aws:cloud".to_owned(), "x".to_owned()),
        ("team".to_owned(), "v".to_owned()),
    ]);
    let imported = Imported::of_description(&answer, Some(&tags)).unwrap();
    let text = &imported.text;
    assert!(!text.contains("my-own-secret"), "{text}");
    for says in [
        "# AlgorithmSpecification.ContainerEntrypoint = [\"python\",\"x.py\"]: has no counterpart",
        "# AlgorithmSpecification.EnableSageMakerMetricsTimeSeries = true",
        "# metric bad: ",
        "# DebugHookConfig = {\"S3OutputPath\":\"s3://bucket/tensors\"}",
        "# rule PoorWeightInitialization: not judged",
        "# CheckpointConfig.LocalPath = /tmp/own: checkpoints are in /opt/ml/checkpoints",
        "# To do: let the script write its checkpoints to SM_CHECKPOINT_DIR",
        "# To do: let the script fetch hyperparameter gh_pat itself",
        "# To do: choose how the script is started: distribution parameter_server",
        "# rule LossNotDecreasing: patience = \"3\": has no counterpart",
        "# digits: TOML has not all of this value, so it is a text",
        "# infinite: TOML has not all of this value",
        "# ExperimentConfig = {\"ExperimentName\":\"mine\\u{7f}\\n\"}",
        "# OutputDataConfig.CompressionType = \"NONE\"",
        "# RemoteConfig: it may have a secret and is not written out",
        "# RetryStrategy = ",
        "# SomethingOfTomorrow = [1]",
        "# StoppingCondition.MaxPendingTimeInSeconds = 7200",
        "# ResourceConfig.VolumeSizeInGB = 0",
        "# ResourceConfig.TrainingPlanArn = \"arn:plan\"",
        "# HF_TOKEN = \"..\": its value looks like a secret",
        "# AWS_SECRET_ACCESS_KEY = \"..\"",
        "# nothing: TOML has not all of this value",
        "# gh_pat = \"..\": its value looks like a secret",
        "# large: TOML has not all of this value",
        "# channel old: RecordWrapperType = \"RecordIO\"",
        "# lines = s3://b/m: kind=AugmentedManifestFile is for mode=Pipe",
        "DatasetArn",
        "# label aws:cloud = x",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!text.contains("# zero"), "{text}");
    let job = job(text);
    assert_eq!(job.profiling().rules, ["LossNotDecreasing"]);
    assert_eq!(job.metrics.len(), 1);
    assert_eq!(
        json!(job.hyperparameters),
        json!({"plain": "resnet18", "large": "18446744073709551615", "nothing": "", "zero": 0, "infinite": "a=inf",
            "digits": "[12345678901234567890123, None]", "sagemaker_parameter_server_enabled": true})
    );
    assert_eq!(
        job.environment,
        BTreeMap::from([("OMP_NUM_THREADS".into(), "4".into())])
    );
    assert_eq!(job.channels.keys().collect::<Vec<_>>(), ["old"]);
    assert_eq!(
        Plan::section(&job).unwrap().tags,
        BTreeMap::from([("team".into(), "v".into())])
    );
}

#[test]
fn a_job_whose_image_is_the_program_says_what_to_do() {
    let imported = imported(&small());
    assert!(
        imported.text.contains("# entry-point = \"train.py\"\n"),
        "{}",
        imported.text
    );
    assert_eq!(
        imported.problems,
        ["say what runs: entry-point, a script below source-dir"]
    );
    assert!(!imported.runs_here);
    assert!(
        imported.text.contains("# To do: say what runs"),
        "{}",
        imported.text
    );
    // As somebody does it.
    let done = format!("entry-point = \"x.py\"\n{}", imported.text);
    let mut after = planned(&done);
    assert_eq!(
        after.hyper_parameters.remove("sagemaker_program").unwrap(),
        "\"x.py\""
    );
    assert_eq!(after.resource_config, small().resource_config);
    // What is missing for SageMaker alone.
    let (mut answer, tags) = description(&crate::request("small"));
    let algorithm = answer["AlgorithmSpecification"].as_object_mut().unwrap();
    algorithm.remove("TrainingImage");
    let imported = Imported::of_description(&answer, Some(&tags)).unwrap();
    assert!(imported.runs_here, "{:?}", imported.problems);
    assert!(
        imported.problems[0].starts_with("on SageMaker: [sagemaker] wants an image"),
        "{:?}",
        imported.problems
    );
    for wrong in [json!([]), json!({}), json!({"TrainingJobName": 7})] {
        let error = Imported::of_description(&wrong, None).unwrap_err();
        assert!(!error.is_input(), "{error}");
    }
}

/// Requests of the job files, with other hyperparameters, variables and labels.
fn requests() -> impl Strategy<Value = CreateTrainingJob> {
    let texts = "[^\\x00]{0,20}";
    let kept = folders()
        .into_iter()
        .filter_map(|folder| Some(crate::planned(&folder.join("job.toml")).ok()?.request));
    let base = prop::sample::select(kept.collect::<Vec<_>>());
    let hyperparameters = prop::collection::btree_map(
        "[a-z][a-z0-9_.-]{0,9}",
        prop_oneof![values().prop_map(|value| value.to_string()), any::<String>()],
        0..6,
    );
    let environment = prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", texts, 0..4);
    let tags = prop::collection::btree_map("[a-zA-Z][a-zA-Z ._-]{0,9}", texts, 0..3);
    let intervals = prop::sample::select(vec![100, 200, 500, 1000, 5000, 60_000]);
    let rest = (any::<[bool; 2]>(), intervals, 1..10u32);
    (base, hyperparameters, environment, tags, rest).prop_map(
        |(mut request, values, environment, tags, ([has_modes, has_profiler], interval, count))| {
            request.hyper_parameters.extend(values);
            request.environment = environment;
            request.tags = tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
            if !has_modes {
                let channels = request.input_data_config.iter_mut();
                for channel in channels.filter(|channel| channel.input_mode == Some(InputMode::File)) {
                    channel.input_mode = None;
                }
            }
            if request.resource_config.instance_groups.is_empty() {
                request.resource_config.instance_count = count;
            }
            match &mut request.profiler_config {
                Some(profiler) if has_profiler && !profiler.disable_profiler => {
                    profiler.profiling_interval_in_milliseconds = Some(interval);
                }
                Some(_) if has_profiler => {}
                profiler => *profiler = None,
            }
            request
        },
    )
}

/// Whether TOML has it.
fn is_toml(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(values) => values.iter().all(is_toml),
        Value::Object(map) => map.values().all(is_toml),
        Value::Number(number) => number.as_i64().is_some() || number.is_f64(),
        _ => true,
    }
}

fn decoded(values: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    values
        .iter()
        .map(|(name, text)| (name.clone(), decode_hyperparameter(text).into_value()))
        .collect()
}

proptest! {
    // Most of what is drawn at random is no valid request.
    #![proptest_config(ProptestConfig { cases: 256, max_global_rejects: 1 << 14, ..ProptestConfig::default() })]

    /// Up to what the file's comments name.
    #[test]
    fn any_job_comes_back(before in requests()) {
        prop_assume!(before.check().is_ok());
        let imported = imported(&before);
        // A table that becomes a text may look like a secret then.
        prop_assume!(!imported.problems.iter().any(|problem| problem.contains("looks like a secret")));
        prop_assert!(imported.problems.is_empty(), "{:?}\n{}", imported.problems, imported.text);
        let after = planned(&imported.text);
        let says = |what: &str| imported.text.contains(what);

        let mut wanted = before.clone();
        // A mode that is not said is the image's.
        for channel in &mut wanted.input_data_config {
            if matches!(channel.data_source, DataSource::S3DataSource(_)) {
                channel.input_mode.get_or_insert(InputMode::File);
            }
        }
        // Texts that are no JSON are texts, as the toolkit reads them; what TOML has not is the text that the script gets.
        let mut values = decoded(&before.hyper_parameters);
        for (name, value) in &mut values {
            if !is_toml(value) {
                let named = format!("# {name}: TOML has not all");
                prop_assert!(says(&named), "{}", imported.text);
                let one = BTreeMap::from([(name.clone(), value.clone())]);
                *value = json!(stokehold_jobs::contract::arguments(&one)[1]);
            }
        }
        if before.hyper_parameters.contains_key("sagemaker_mpi_enabled") {
            values.entry("sagemaker_mpi_custom_mpi_options".into()).or_insert(json!(""));
        }
        prop_assert_eq!(decoded(&after.hyper_parameters), values, "{}", imported.text);
        wanted.hyper_parameters = after.hyper_parameters.clone();
        // Secrets are left out; the checkpoints' folder is always said.
        let mut alone = job("entry-point = \"x.py\"");
        alone.environment = before.environment.clone();
        let shown = alone.without_secrets();
        for (name, value) in &before.environment {
            if shown.environment[name] != *value {
                wanted.environment.remove(name);
                let named = format!("# {name} = \"..\"");
                prop_assert!(says(&named), "{}", imported.text);
            }
        }
        wanted.environment.entry("SM_CHECKPOINT_DIR".into()).or_insert("/opt/ml/checkpoints".into());
        if wanted.profiler_config.is_none() {
            wanted.profiler_config = after.profiler_config.clone();
            prop_assert!(says("# the job has no ProfilerConfig"), "{}", imported.text);
        }
        prop_assert_eq!(after, wanted, "{}", imported.text);
    }
}

#[test]
fn a_job_of_motos_is_imported() {
    let Some(moto) = Moto::start() else { return };
    let client = moto.client();
    let mut request = crate::request("full");
    let arn = client.create(&request).unwrap();
    let tags = client.tags(&arn).unwrap();
    assert_eq!(tags, BTreeMap::from([("team".into(), "vision".into())]));
    let description = client.description("flowers-1").unwrap();
    let imported = Imported::of_description(&description, Some(&tags)).unwrap();
    // moto forgets the environment and the profiler, and makes up metrics.
    request.environment.remove("OMP_NUM_THREADS");
    let after = planned(&imported.text);
    request.algorithm_specification.metric_definitions =
        after.algorithm_specification.metric_definitions.clone();
    assert_eq!(after, request, "{}", imported.text);
}
