//! From SageMaker, and from the programs of its SDK, to a job file, and back to the request.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_jobs::{Job, decode_hyperparameter};
use stokehold_sagemaker::{
    Channel, CompressionType, CreateTrainingJob, DataSource, Distribution, FileSystemAccess,
    FileSystemDataSource, FileSystemType, ImportError, Imported, ImportedJob, InputMode, InstanceGroup,
    MetricDefinition, Plan, ProfilerConfig, RecordWrapper, S3DataSource, S3DataType, ShuffleConfig, Tag,
    encode_hyperparameters,
};
use stokehold_untested::needs;

use crate::moto::Moto;
use crate::plans::PUBLISHED;
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
    let job = Job::read(&path).unwrap_or_else(|error| panic!("{error}\n{text}"));
    job.check().unwrap_or_else(|error| panic!("{error}\n{text}"));
    job
}

fn planned(text: &str, name: &str) -> CreateTrainingJob {
    let plan = Plan::new(&job(text), name, "eu-west-1");
    plan.unwrap_or_else(|error| panic!("{error}\n{text}")).request
}

#[test]
fn a_job_of_ours_comes_back_as_the_same_request() {
    let before = Plan::new(&job(PUBLISHED), "resnet-1", "eu-west-1")
        .unwrap()
        .request;
    let imported = imported(&before);
    assert_eq!(imported.problems, [""; 0], "{}", imported.text);
    assert_eq!(planned(&imported.text, "resnet-1"), before, "{}", imported.text);
    for says in [
        "# name = \"resnet-1\"",
        "# It is Completed there.",
        "# Its model: s3://bucket/out/flowers-1/output/model.tar.gz",
        "# checkpoints: a job with this place goes on",
        "mount the file system at /mnt/fs-0123456789abcdef0",
        "region = \"eu-west-1\"",
    ] {
        assert!(imported.text.contains(says), "{says}: {}", imported.text);
    }
}

#[test]
fn the_training_jobs_of_a_tuning_job_are_read_by_the_same_rules() {
    let request = Plan::new(&job(PUBLISHED), "resnet-1", "eu-west-1")
        .unwrap()
        .request;
    let (mut answer, _) = description(&request);
    let mut alone = job(&Imported::of_description(&answer, None).unwrap().text);
    let map = answer.as_object_mut().unwrap();
    for name in [
        "TrainingJobName",
        "TrainingJobArn",
        "TrainingJobStatus",
        "SecondaryStatus",
        "CreationTime",
        "BillableTimeInSeconds",
        "ModelArtifacts",
        "ProfilerConfig",
    ] {
        map.remove(name);
    }
    let values = map.remove("HyperParameters").unwrap();
    map.insert("StaticHyperParameters".into(), values);
    map.insert("DefinitionName".into(), json!("one"));
    let tuned = ImportedJob::of_definition(&answer, "eu-west-1", &BTreeMap::new()).unwrap();
    // These are not said there.
    (alone.profile, alone.profiler) = (false, None);
    alone.beside.clear();
    assert_eq!(tuned.job, alone);
    assert!(
        tuned.remarks.iter().all(|remark| remark.starts_with("channel ")),
        "{:?}",
        tuned.remarks
    );

    for (wrong, says) in [
        (json!(null), "it is no object"),
        (
            json!({"StaticHyperParameters": {"num_round": "5"}}),
            "sagemaker_program",
        ),
        (
            json!({"StaticHyperParameters": {"sagemaker_program": "\"../x\""}}),
            "sagemaker_program",
        ),
    ] {
        let error = ImportedJob::of_definition(&wrong, "eu-west-1", &BTreeMap::new()).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_cluster_of_several_types_comes_back() {
    let mut before = script_job();
    before.resource_config.instance_type.clear();
    before.resource_config.instance_count = 0;
    before.resource_config.instance_groups = vec![group("loaders", 3), group("trainers", 1)];
    let mut shared = bucket("shared", InputMode::File);
    if let DataSource::S3DataSource(objects) = &mut shared.data_source {
        objects.instance_group_names = vec!["trainers".into()];
    }
    before.input_data_config = vec![bucket("all", InputMode::FastFile), shared];
    before.check().unwrap();
    let imported = imported(&before);
    assert_eq!(imported.problems, [""; 0], "{}", imported.text);
    let job = job(&imported.text);
    assert_eq!((job.instances, job.instance_type.as_str()), (4, "ml.c5.xlarge"));
    let after = planned(&imported.text, "flowers-1");
    assert_eq!(after.resource_config, before.resource_config);
    assert_eq!(after.input_data_config, before.input_data_config);
}

#[test]
fn what_has_no_counterpart_is_a_comment() {
    let (mut answer, _) = description(&script_job());
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
        job.sagemaker.unwrap().tags,
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
    let mut after = planned(&done, "flowers-1");
    assert_eq!(
        after.hyper_parameters.remove("sagemaker_program").unwrap(),
        "\"x.py\""
    );
    assert_eq!(after.resource_config, small().resource_config);
    for wrong in [json!([]), json!({}), json!({"TrainingJobName": 7})] {
        let error = Imported::of_description(&wrong, None).unwrap_err();
        assert!(matches!(error, ImportError::Description(_)), "{error}");
    }
}

fn group(name: &str, count: u32) -> InstanceGroup {
    InstanceGroup {
        instance_group_name: name.into(),
        instance_type: "ml.c5.xlarge".into(),
        instance_count: count,
    }
}

fn bucket(name: &str, mode: InputMode) -> Channel {
    let data = DataSource::S3DataSource(S3DataSource {
        s3_data_type: S3DataType::S3Prefix,
        s3_uri: format!("s3://bucket/{name}"),
        s3_data_distribution_type: Distribution::FullyReplicated,
        attribute_names: Vec::new(),
        instance_group_names: Vec::new(),
    });
    Channel {
        input_mode: Some(mode),
        ..Channel::new(name, data)
    }
}

/// A job of a script, as small as it can be.
fn script_job() -> CreateTrainingJob {
    let mut request = small();
    let own = [
        ("sagemaker_program", json!("train.py")),
        (
            "sagemaker_submit_directory",
            json!("s3://bucket/code/sourcedir.tar.gz"),
        ),
        ("sagemaker_container_log_level", json!(20)),
        ("sagemaker_job_name", json!("flowers-1")),
        ("sagemaker_region", json!("eu-west-1")),
    ];
    request.hyper_parameters =
        encode_hyperparameters(&own.map(|(name, value)| (name.to_owned(), value)).into());
    request
}

fn channels() -> impl Strategy<Value = Vec<Channel>> {
    let mode = prop_oneof![
        Just(None),
        Just(Some(InputMode::File)),
        Just(Some(InputMode::FastFile)),
        Just(Some(InputMode::Pipe)),
    ];
    let of_bucket = (
        "[a-zA-Z0-9_-]{1,10}",
        mode,
        any::<bool>(),
        any::<bool>(),
        0..3usize,
        any::<i64>(),
    )
        .prop_map(|(name, mode, is_sharded, has_type, kind, seed)| {
            let is_pipe = mode == Some(InputMode::Pipe);
            let kinds = [
                S3DataType::S3Prefix,
                S3DataType::ManifestFile,
                S3DataType::AugmentedManifestFile,
            ];
            let kind = kinds[if is_pipe { kind } else { kind.min(1) }];
            let data = DataSource::S3DataSource(S3DataSource {
                s3_data_type: kind,
                s3_uri: format!("s3://bucket/{name}, mode=x"),
                s3_data_distribution_type: if is_sharded {
                    Distribution::ShardedByS3Key
                } else {
                    Distribution::FullyReplicated
                },
                attribute_names: match kind {
                    S3DataType::AugmentedManifestFile => vec!["source-ref".into(), "a \"b\"".into()],
                    _ => Vec::new(),
                },
                instance_group_names: Vec::new(),
            });
            Channel {
                content_type: has_type.then(|| "image/jpeg".into()),
                input_mode: mode,
                // A job file has no compressed augmented manifests.
                compression_type: (is_pipe && is_sharded && kind == S3DataType::ManifestFile)
                    .then_some(CompressionType::Gzip),
                record_wrapper_type: (is_pipe && has_type).then_some(RecordWrapper::RecordIo),
                shuffle_config: (is_pipe && seed >= 0).then_some(ShuffleConfig {
                    seed: seed.unsigned_abs(),
                }),
                ..Channel::new(&name, data)
            }
        });
    let of_files = (
        "[a-zA-Z0-9_-]{1,10}",
        any::<bool>(),
        any::<bool>(),
        "[a-z/]{0,8}[a-z]",
    )
        .prop_map(|(name, is_lustre, is_written, folder)| {
            let data = DataSource::FileSystemDataSource(FileSystemDataSource {
                file_system_id: "fs-0123456789abcdef0".into(),
                file_system_type: if is_lustre {
                    FileSystemType::FSxLustre
                } else {
                    FileSystemType::Efs
                },
                file_system_access_mode: if is_written {
                    FileSystemAccess::ReadWrite
                } else {
                    FileSystemAccess::ReadOnly
                },
                directory_path: format!("/{}", folder.trim_start_matches('/')),
            });
            Channel::new(&name, data)
        });
    let one = prop_oneof![3 => of_bucket, 1 => of_files];
    // The names are different.
    prop::collection::vec(one, 0..5).prop_map(|channels| {
        let by_name = channels
            .into_iter()
            .map(|channel| (channel.channel_name.clone(), channel));
        by_name.collect::<BTreeMap<_, _>>().into_values().collect()
    })
}

fn requests() -> impl Strategy<Value = CreateTrainingJob> {
    let texts = "[^\\x00]{0,20}";
    let hyperparameters = prop::collection::btree_map(
        "[a-z][a-z0-9_.-]{0,9}",
        prop_oneof![values().prop_map(|value| value.to_string()), any::<String>()],
        0..6,
    );
    let environment = prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", texts, 0..4);
    let tags = prop::collection::btree_map("[a-zA-Z][a-zA-Z ._-]{0,9}", texts, 0..3);
    let launcher = prop_oneof![
        Just(json!({})),
        Just(
            json!({"sagemaker_torch_distributed_enabled": true, "sagemaker_instance_type": "ml.g5.xlarge",
            "sagemaker_mpi_num_of_processes_per_host": 3})
        ),
        Just(json!({"sagemaker_mpi_enabled": true, "sagemaker_mpi_custom_mpi_options": "-x A"})),
        Just(
            json!({"sagemaker_distributed_dataparallel_enabled": true, "sagemaker_instance_type": "ml.g5.xlarge",
            "sagemaker_distributed_dataparallel_custom_mpi_options": ""})
        ),
    ];
    let profilers = prop_oneof![
        Just((None, false)),
        prop::sample::select(vec![100, 200, 500, 1000, 5000, 60_000])
            .prop_map(|interval| (Some(interval), false)),
        Just((None, true)),
    ];
    let rest = (
        1u32..10,
        prop::option::of(0u32..10),
        any::<[bool; 5]>(),
        texts,
        profilers,
    );
    (hyperparameters, environment, tags, launcher, channels(), rest).prop_map(
        |(values, environment, tags, launcher, channels, (count, wait, [a, b, c, d, e], text, profiler))| {
            let mut request = script_job();
            request.hyper_parameters.extend(values);
            let launcher: BTreeMap<String, Value> = serde_json::from_value(launcher).unwrap();
            request.hyper_parameters.extend(encode_hyperparameters(&launcher));
            request.environment = environment;
            request.tags = tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
            request.input_data_config = channels;
            request.resource_config.instance_count = count;
            request.resource_config.volume_size_in_gb = count * 7;
            let time = &mut request.stopping_condition;
            time.max_runtime_in_seconds = count * 100;
            if let Some(wait) = wait {
                time.max_wait_time_in_seconds = Some(count * 100 + wait);
                request.enable_managed_spot_training = true;
            } else if a {
                request.resource_config.keep_alive_period_in_seconds = Some(60);
            }
            request.vpc_config = Some(crate::full().vpc_config.unwrap());
            request.checkpoint_config = b.then(|| crate::full().checkpoint_config.unwrap());
            request.output_data_config.kms_key_id = c.then(|| "alias/mine".into());
            request.resource_config.volume_kms_key_id = d.then(|| "0123-abc".into());
            request.enable_network_isolation = a;
            request.enable_inter_container_traffic_encryption = b;
            if e {
                request.algorithm_specification.metric_definitions = vec![MetricDefinition {
                    name: format!("m{text}"),
                    regex: "loss=([0-9.]+)\\s\"'".into(),
                }];
            }
            request.profiler_config = match profiler {
                (None, false) => None,
                (interval, is_off) => Some(ProfilerConfig {
                    s3_output_path: (!is_off).then(|| "s3://bucket/out".into()),
                    profiling_interval_in_milliseconds: interval,
                    disable_profiler: is_off,
                }),
            };
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
        let after = planned(&imported.text, "flowers-1");
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

/// From the documentation of SageMaker's SDK, with what it leaves open filled in.
const PYTORCH: &str = r#"
import sagemaker
from sagemaker.debugger import ProfilerConfig, Rule, rule_configs
from sagemaker.inputs import TrainingInput
from sagemaker.pytorch import PyTorch

open("it-was-run", "w")
bucket = "mine"
role: str = "arn:aws:iam::123456789012:role/trains"
hyperparameters = {"apiKey": "my-own-secret", "gh-pat": "my-own-secret" + f(), "epochs": 20, "batch-size": 64, "learning-rate": 1e-1, "loader": "dali", "pretrained": None}
pytorch_estimator = PyTorch('pytorch-train.py',
                            instance_type='ml.p3.2xlarge',
                            instance_count=2,
                            framework_version='2.6.0',
                            py_version='py312',
                            source_dir="src",
                            role=role,
                            output_path=f"s3://{bucket}/out",
                            checkpoint_s3_uri="s3://" + bucket + "/checkpoints",
                            use_spot_instances=True,
                            max_run=2 * 60 * 60, max_wait=3 * 3600,
                            distribution={"torch_distributed": {"enabled": True}},
                            metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
                            environment={"HF_TOKEN": "my-own-secret", "OMP_NUM_THREADS": "4"},
                            profiler_config=ProfilerConfig(system_monitor_interval_millis=1000),
                            rules=[Rule.sagemaker(rule_configs.loss_not_decreasing()),
                                   Rule.sagemaker(rule_configs.poor_weight_initialization())],
                            tags=[{"Key": "team", "Value": "vision"}],
                            dependencies=["lib"],
                            git_config={"repo": "mine", "password": "my-own-secret"},
                            code_location="s3://mine/keyboard",
                            container_pwd=secret_of("my-own-secret"),
                            sagemaker_session=sagemaker.Session(),
                            hyperparameters=hyperparameters)
pytorch_estimator.fit({'train': TrainingInput('s3://mine/train', input_mode="FastFile", distribution="ShardedByS3Key"),
                       'test': 's3://mine/test', 'other': data_of("other")}, wait=False)
"#;

fn read(program: &str) -> Result<Imported, ImportError> {
    Imported::of_estimator(program, "estimator.py", Path::new("python3"))
}

#[test]
fn an_estimator_becomes_a_job_file() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let imported = read(PYTORCH).unwrap();
    let text = &imported.text;
    let lost = "write where the data of channel other is; the program has no literal for it";
    assert_eq!(
        imported.problems,
        [
            "let the script fetch hyperparameter apiKey itself: its value looks like a secret and is not in this file",
            "write hyperparameter gh-pat, if the script reads it; the program has no literal for it",
            lost,
        ],
        "{text}"
    );
    assert!(!imported.runs_here);
    assert!(!Path::new("it-was-run").exists());
    assert!(!text.contains("my-own-secret"), "{text}");
    let request = serde_json::to_value(planned(text, "resnet-1")).unwrap();
    assert_eq!(
        request["AlgorithmSpecification"]["TrainingImage"],
        "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312"
    );
    assert_eq!(
        request["StoppingCondition"],
        json!({"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 10800})
    );
    assert_eq!(request["CheckpointConfig"]["S3Uri"], "s3://mine/checkpoints");
    assert_eq!(request["OutputDataConfig"]["S3OutputPath"], "s3://mine/out");
    assert_eq!(request["ResourceConfig"]["InstanceCount"], 2);
    assert_eq!(request["HyperParameters"]["learning-rate"], "0.1");
    assert_eq!(request["HyperParameters"]["loader"], "\"dali\"");
    assert_eq!(
        request["HyperParameters"]["sagemaker_torch_distributed_enabled"],
        "true"
    );
    assert_eq!(request["ProfilerConfig"]["ProfilingIntervalInMilliseconds"], 1000);
    assert_eq!(request["Tags"], json!([{"Key": "team", "Value": "vision"}]));
    let channels = request["InputDataConfig"].as_array().unwrap();
    assert_eq!(channels.len(), 2, "{text}");
    assert_eq!(channels[0]["ChannelName"], "test");
    assert_eq!(channels[1]["InputMode"], "FastFile");
    let job = job(text);
    assert_eq!(job.entry_point.name(), "pytorch-train.py");
    assert_eq!(job.profiling().rules, ["LossNotDecreasing"]);
    for says in [
        "# pretrained: TOML has not all of this value",
        "# HF_TOKEN = \"..\"",
        "# rule PoorWeightInitialization",
        "# dependencies = [\"lib\"]: has no counterpart",
        "# git_config: it may have a secret",
        "# code_location = \"s3://mine/keyboard\": has no counterpart",
        "# container_pwd: it may have a secret",
        "# apiKey = \"..\": its value looks like a secret",
        "# gh-pat: it may have a secret",
        "# sagemaker_session = sagemaker.Session(): is no literal",
        "# other = data_of('other'): is no literal",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn other_estimators_are_read_too() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    // Without a role that can be read the file runs here alone.
    let text = "from sagemaker.tensorflow import TensorFlow\n\
        tf = TensorFlow(entry_point='tf-train.py', role=get_execution_role(), instance_count=1, instance_type='ml.c4.xlarge',\n\
        framework_version='2.16.2', py_version='py310', output_path='s3://b/o',\n\
        distribution={'mpi': {'enabled': True, 'processes_per_host': 2, 'custom_mpi_options': '-x A'}})\n\
        tf.fit('s3://bucket/path/to/training/data')\n";
    let imported = read(text).unwrap();
    assert!(imported.text.contains("\n# [sagemaker]\n"), "{}", imported.text);
    assert!(
        imported
            .text
            .contains("# role = get_execution_role(): is no literal"),
        "{}",
        imported.text
    );
    assert_eq!(imported.problems.len(), 1);
    assert!(imported.runs_here, "{:?}", imported.problems);
    let tf = job(&imported.text);
    assert!(tf.sagemaker.is_none());
    assert_eq!(tf.channels["training"].uri, "s3://bucket/path/to/training/data");
    assert_eq!(tf.processes_per_host, Some(2));
    assert_eq!(tf.hyperparameters["sagemaker_mpi_custom_mpi_options"], "-x A");

    let text = "import sagemaker.estimator\n\
        groups = [InstanceGroup('cpu', 'ml.c5.xlarge', 2), InstanceGroup(instance_group_name='gpu', instance_type='ml.p3.2xlarge', \
        instance_count=1)]\n\
        e = sagemaker.estimator.Estimator('registry/own:1', 'arn:aws:iam::123456789012:role/trains', instance_groups=groups,\n\
        entry_point='/home/me/train.py', input_mode='Pipe', output_path='s3://b/o', subnets=['subnet-1'], \
        security_group_ids=['sg-1'], max_run=limit())\n\
        e.set_hyperparameters(lr=0.5, n=len(x))\n\
        e.fit({'a': TrainingInput('s3://b/a', instance_groups=['gpu']), \
        'f': FileSystemInput('fs-1', 'EFS', '/data', 'rw'), 's': TrainingInput('s3://b/s', shuffle_config=ShuffleConfig(7), \
        record_wrapping='RecordIO')})\n";
    let imported = read(text).unwrap();
    let job = job(&imported.text);
    assert_eq!(job.source_dir.as_deref(), Some(Path::new("/home/me")));
    assert_eq!(
        (job.instances, job.hyperparameters["lr"].clone()),
        (3, json!(0.5))
    );
    assert_eq!(job.channels["s"].shuffle, Some(7));
    let section = job.sagemaker.as_ref().unwrap();
    assert_eq!(section.channels["f"], "efs://fs-1/data");
    assert_eq!(
        section.instance_groups[0].channels,
        Some(vec!["f".into(), "s".into()])
    );
    assert_eq!(section.instance_groups[1].channels, None);
    for says in [
        "# n = len(x): is no literal",
        "# max_run = limit(): is no literal",
    ] {
        assert!(imported.text.contains(says), "{says}: {}", imported.text);
    }
}

#[test]
fn a_name_that_may_have_changed_is_no_literal() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    for before in [
        "p = {'lr': 1}\nchange(p)",
        "p = {'lr': 1}\nq = [p]\nchange(q)",
        "if x:\n    p = {'lr': 1}",
        "p = {'lr': 1}\nif x:\n    p = {'lr': 2}",
        "p = {'lr': 1}\nif x:\n    change(p)",
        "p = {'lr': 1}\nfor p in x:\n    pass",
        "p = {'lr': 1}\np.clear()",
        "p = {'lr': 1}\np.update(x)",
        "p = {'lr': 1}\ndef f():\n    global p\n    p = x\nf()",
        "p = {'lr': 1}\nfrom m import q as p",
        "def f(p):\n    if x:\n        return {'lr': 1}\n    return p\np = f({'lr': 2})",
        "p = {'lr': 10 ** 10 ** 10}['lr']",
        "p = f'{x}'",
    ] {
        let imported = read(&format!(
            "{before}\nPyTorch('t.py', hyperparameters=p, role=f'{{p!r}}')\n"
        ))
        .unwrap();
        assert!(
            imported.text.contains("# hyperparameters = "),
            "{before}: {}",
            imported.text
        );
        assert!(
            !imported.text.contains("[hyperparameters]"),
            "{before}: {}",
            imported.text
        );
    }
}

/// A value that the program may have changed is a comment. Where it can be followed, it is the one that the program gives.
#[test]
fn no_value_is_another_than_the_program_gives() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let fitted =
        |lr: &str| format!("e = PyTorch('t.py', hyperparameters={{'lr': {lr}}})\ne.fit('s3://b/t')\n");
    // Python gives 0.5, or what nobody knows.
    for (before, lr) in [
        // Names of the functions around.
        (
            "lr = 0.1\ndef main():\n    lr = 0.5\n    def f():\n        return lr\n    return f()",
            "main()",
        ),
        (
            "def main():\n    lr = 0.1\n    def f():\n        nonlocal lr\n        lr = 0.5\n    f()\n    return lr",
            "main()",
        ),
        (
            "lr = 0.1\ndef f():\n    from config import lr\n    return lr",
            "f()",
        ),
        // Attributes.
        ("class C:\n    lr = 0.1\nC.lr = 0.5\nc = C()", "c.lr"),
        ("class C:\n    lr = 0.1\nc = C()\ntype(c).lr = 0.5", "c.lr"),
        (
            "class C:\n    lr = 0.1\n    @classmethod\n    def f(cls):\n        cls.lr = 0.5\nC.f()",
            "C.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc = C()\nc.__dict__.update(load())",
            "c.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc = C()\nfor k, v in x:\n    setattr(c, k, v)",
            "c.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc = C()\nvars(c).update(x)",
            "c.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc = C()\nload(c)",
            "c.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc = C()\nc.lr += 0.4",
            "c.lr",
        ),
        (
            "class C:\n    lr = 0.1\n    def __getattribute__(self, name):\n        return 0.5\nc = C()",
            "c.lr",
        ),
        (
            "class C:\n    def __init__(self):\n        self.lr = 0.1\nc, d = C(), C()\nh = c if x else d\nh.lr = 0.5",
            "c.lr",
        ),
        ("@dataclass\nclass C:\n    lr: float = 0.1\nc = C(lr=x)", "c.lr"),
        ("class C(Settings):\n    lr = 0.1\nc = C()", "c.lr"),
        (
            "class C:\n    lr = 0.1\n    def __call__(self):\n        self.lr = 0.5\nc = C()\nc()",
            "c.lr",
        ),
        (
            "class C:\n    lr = 0.1\n    def __enter__(self):\n        self.lr = 0.5\nc = C()\nwith c:\n    pass",
            "c.lr",
        ),
        // Methods of base classes.
        (
            "class B:\n    def f(self):\n        self.lr = 0.5\nclass C(B):\n    def __init__(self):\n        self.lr = 0.1\n        \
             self.f()\nc = C()",
            "c.lr",
        ),
        (
            "class B:\n    def f(self):\n        self.lr = 0.5\nclass C(B):\n    def f(self):\n        self.lr = 0.1\n        \
             super().f()\nc = C()\nc.f()",
            "c.lr",
        ),
        (
            "class C(B):\n    def __init__(self):\n        self.lr = 0.1\n        self.f()\nc = C()",
            "c.lr",
        ),
        // Other names of a table.
        (
            "p, q = {'lr': 0.1}, {}\nfor one in (p, q):\n    one['lr'] = 0.5",
            "p['lr']",
        ),
        (
            "p, q = {'lr': 0.1}, {}\nh = p if x else q\nh['lr'] = 0.5",
            "p['lr']",
        ),
        ("p, q = {'lr': 0.1}, {}\nh = x or p\nh['lr'] = 0.5", "p['lr']"),
        (
            "p, q = {'lr': 0.1}, {}\nif x:\n    h = p\nelse:\n    h = q\nh['lr'] = 0.5",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\ndef f():\n    if x:\n        return p\n    return {}\nf()['lr'] = 0.5",
            "p['lr']",
        ),
        (
            "p = {'a': {'lr': 0.1}}\nfor k, v in p.items():\n    v['lr'] = 0.5",
            "p['a']['lr']",
        ),
        ("p = {'a': {'lr': 0.1}}\np[x]['lr'] = 0.5", "p['a']['lr']"),
        ("p = {'lr': 0.1}\nf = p.update\nf(lr=0.5)", "p['lr']"),
        ("p = {'lr': 0.1}\nh = [p for _ in x]\nh[0]['lr'] = 0.5", "p['lr']"),
        ("p = {'lr': 0.1}\nh = Holder(p)\nh.change()", "p['lr']"),
        // Functions that are not what they say, and those that are called later, or not to their end.
        (
            "def d(f):\n    return lambda: 0.5\n@d\ndef f():\n    return 0.1",
            "f()",
        ),
        ("def f():\n    yield 0.5\n    return 0.1", "next(f())"),
        ("def f():\n    yield 0.5\n    return 0.1", "f()"),
        ("async def f():\n    return 0.1", "f()"),
        (
            "p = {'lr': 0.1}\ndef f():\n    p['lr'] = 0.5\nThread(target=f).start()",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\ndef f():\n    if x:\n        return\n    p['lr'] = 0.2\nf()",
            "p['lr']",
        ),
        ("def f(lr=0.1):\n    return lr\na = {'lr': x}", "f(**a)"),
        ("def f(lr=0.1):\n    return lr", "f(**x)"),
        ("def f(a, lr=0.1):\n    return lr", "f(*x)"),
        (
            "def f():\n    try:\n        return 0.1\n    finally:\n        return 0.5",
            "f()",
        ),
        (
            "p = {'lr': 0.1}\ndef f():\n    p['lr'] *= 2\nf()\nThread(target=f).start()",
            "p['lr']",
        ),
        (
            "@d\ndef f():\n    p['lr'] = 0.2\np = {'lr': 0.1}\nf()\np = {'lr': 0.1}\nf()",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\ndef f():\n    try:\n        g()\n        p['lr'] = 0.2\n    except OSError:\n        return\nf()",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\nclass C:\n    def go(self):\n        p['lr'] = 0.5\nc, d = C(), C()\nh = c if x else d\nh.go()",
            "p['lr']",
        ),
        (
            "def f():\n    p['lr'] = 0.5\nat_start(f)\np = {'lr': 0.1}\nstart()",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\nclass B:\n    def go(self):\n        p['lr'] = 0.5\nclass C(B):\n    def go(self):\n        \
             super().go()\nC().go()",
            "p['lr']",
        ),
        (
            "p = {'lr': 0.1}\ndef f(n):\n    p['lr'] *= 2\n    if n:\n        f(n - 1)\nf(x)",
            "p['lr']",
        ),
        // Blocks that may end before their end.
        ("lr = 0.1\nwith suppress(Exception):\n    f()\n    lr = 0.2", "lr"),
        (
            "lr = 0.1\ntry:\n    f()\n    lr = 0.2\nexcept Exception:\n    pass",
            "lr",
        ),
        (
            "lr = 0.1\ntry:\n    lr = 0.2\n    f()\nexcept Exception:\n    p = lr\nelse:\n    p = 0.5",
            "p",
        ),
        // Names that are bound elsewhere.
        ("lr = 0.1\nfrom config import *", "lr"),
        ("lr = 0.1\nglobals()['lr'] = 0.5", "lr"),
        ("lr = 0.1\nexec(x)", "lr"),
        ("lr = 0.1\nmatch x:\n    case {'lr': lr}:\n        pass", "lr"),
        ("lr = 0.1\np = [lr for lr in x]\nq = max(p)", "[lr for lr in x]"),
    ] {
        let imported = read(&format!("{before}\n{}", fitted(lr))).unwrap();
        let made = job(&imported.text).hyperparameters;
        if let Some(value) = made.get("lr") {
            assert_eq!(*value, json!(0.5), "{before}: {}", imported.text);
            continue;
        }
        assert!(imported.text.contains("# lr = "), "{before}: {}", imported.text);
        let to_do = "# To do: write hyperparameter lr, if the script reads it";
        assert!(
            imported.text.contains(to_do) && !imported.runs_here,
            "{before}: {}",
            imported.text
        );
    }
    // In a loop each round has other values.
    for before in [
        "lr = 0.1\nfor i in range(3):\n    E\n    lr *= 2",
        "p = {'lr': 0.1}\nfor i in range(3):\n    lr = p['lr']\n    E\n    p['lr'] += 0.1",
        "lr = 0.1\nwhile lr < 1:\n    E\n    lr = lr * 2",
        "lr = 0.1\nx = [PyTorch('t.py', hyperparameters={'lr': lr}).fit('s3://b/t') for lr in range(3)]",
    ] {
        let imported = read(&before.replace('E', &fitted("lr").trim_end().replace('\n', "\n    "))).unwrap();
        assert!(imported.text.contains("# lr = "), "{before}: {}", imported.text);
        assert!(!imported.runs_here, "{before}");
    }
}

/// Each program makes the same file, which has no comment on its hyperparameters.
#[test]
fn statements_are_followed_as_far_as_literals_go() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let fitted = "PyTorch('t.py', hyperparameters=p).fit('s3://b/t')";
    let notebook = json!({"cells": [
        {"cell_type": "markdown", "source": ["# PyTorch("]},
        {"cell_type": "code", "source": ["!pip install x\n", "%env A=B\n", "p = {'lr': 2}"]},
        {"cell_type": "code", "source": "%%bash\nls ("},
        {"cell_type": "code", "source": fitted},
    ]});
    for program in [
        format!("p = {{'lr': 1}}\nprint(p)\np['lr'] = 2\n{fitted}"),
        format!("p = dict(lr=1, junk=3)\np.update(lr=2)\np.pop('junk')\n{fitted}"),
        format!("p = {{'lr': 1}}\np |= {{'lr': 2}}\nq = p\ndel q['x']\n{fitted}"),
        format!("p = {{'lr': 1}}\np = {{**p, 'lr': 1 + 1}}\n{fitted}"),
        format!("p = {{'lr': 2}}\nif x:\n    {fitted}"),
        format!("p = {{'lr': 1}}\ndef f(p):\n    p['lr'] = 3\nif False:\n    f(p)\np['lr'] += 1\n{fitted}"),
        format!("def main():\n    p = {{'lr': 2}}\n    {fitted}\nif __name__ == '__main__':\n    main()"),
format!("def main(args):\n    p = {{'lr': 2}}\n    if args.train:\n        print(p)\n    {fitted}"),
        "from sagemaker.pytorch import PyTorch as PT\nargs = dict(entry_point='t.py', hyperparameters={'lr': 2})\n\
         def make(**more):\n    return PT(**args)\ne = make(a=1)\ne.fit('s3://b/{}'.format('t'))"
            .to_owned(),
        "class T:\n    lr = 2\n    def __init__(self, n):\n        self.e = PyTorch('t.py', hyperparameters={'lr': self.lr})\n    \
         def go(self, data='s3://b'):\n        self.e.fit(os.path.join(data, 't'))\nT(3).go()"
            .to_owned(),
        "e = PyTorch('t.py', hyperparameters={'lr': 1})\ne.set_hyperparameters(lr=2)\nHyperparameterTuner(e, 'loss', {}).fit('s3://b/t')".to_owned(),
        "if x:\n    e = PyTorch('t.py')\n    e.set_hyperparameters(**{'lr': 2})\ne.fit('s3://b/t')".to_owned(),
        // A method of this name is not the one that is called first.
        format!("class T:\n    def run(self):\n        p = {{'lr': 2}}\n        {fitted}\nsubprocess.run(['ls'])\nT().run()"),
        // What a loop calls once more is one estimator.
        format!("def f():\n    p = {{'lr': 2}}\n    {fitted}\nfor i in range(3):\n    f()"),
        format!("def main():\n    p = {{'lr': 2}}\n    {fitted}\nThread(target=main).start()"),
        format!("@click.command()\ndef main():\n    p = {{'lr': 2}}\n    {fitted}\nmain()"),
        format!("try:\n    p = {{'lr': 1}}\n    p['lr'] = 2\n    {fitted}\nexcept OSError as error:\n    print(error)"),
        format!("try:\n    role = get_execution_role()\nexcept ValueError:\n    role = 'arn'\np = {{'lr': 2}}\n{fitted}"),
        format!("with mlflow.start_run():\n    p = {{'lr': 2}}\n    {fitted}"),
        format!("class C:\n    lr = 2\np = {{'lr': C.lr}}\n{fitted}"),
        format!("os.environ['A'] = 'b'\nargs = parser.parse_args()\nargs.lr = 3\np = {{'lr': 2}}\n{fitted}"),
        format!("def f(lr):\n    def g():\n        return {{'lr': lr}}\n    return g()\np = f(2)\n{fitted}"),
        notebook.to_string(),
    ] {
        let imported = read(&program).unwrap();
        let made = job(&imported.text);
        assert_eq!(made.hyperparameters["lr"], json!(2), "{program}: {}", imported.text);
        assert_eq!(made.channels["training"].uri, "s3://b/t", "{program}: {}", imported.text);
        let rest = imported.text.split_once("[hyperparameters]").unwrap().0;
        let comments = rest.lines().filter(|line| line.starts_with("# hyper") || line.starts_with("# lr"));
        assert_eq!(comments.count(), 0, "{program}: {}", imported.text);
        assert!(imported.runs_here, "{program}: {:?}", imported.problems);
    }
}

#[test]
fn what_a_condition_decides_and_what_a_tuner_chooses_are_comments() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let imported = read(
        "p = {'lr': 1, 'epochs': 3}\n\
         e = PyTorch('t.py', hyperparameters=p, tags={'owner': 'me', 'api-token': 'my-own-secret'}, instance_type='local_gpu')\n\
         if x:\n    p['lr'] = 2\n    e.set_hyperparameters(m=0.5)\n\
         t = HyperparameterTuner(e, 'loss', {'wd': ContinuousParameter(0, 1)}, max_jobs=8)\n\
         t.fit({'a': data(), 'b': 's3://b/b'})\n",
    )
    .unwrap();
    for says in [
        "# lr = 2 (line 3 decides whether): is no literal",
        "# m = 0.5 (line 3 decides whether): is no literal",
        "# line 6: HyperparameterTuner has \"loss\" for its objective",
        "# wd = ContinuousParameter(0, 1): the tuner chooses it",
        "# HyperparameterTuner max_jobs = 8: has no counterpart",
        "# label api-token = \"..\": its value looks like a secret",
        "# instance_type = \"local_gpu\": run it here",
        "# To do: write where the data of channel a is",
        "# To do: on SageMaker it needs section [sagemaker]",
        "epochs = 3\n",
        "[channels.b]\n",
    ] {
        assert!(imported.text.contains(says), "{says}: {}", imported.text);
    }
    assert!(!imported.text.contains("my-own-secret"), "{}", imported.text);
    assert!(!imported.runs_here);
    let error = read("from sagemaker.huggingface import HuggingFace\nHuggingFace('t.py').fit()").unwrap_err();
    assert!(
        error.to_string().contains("HuggingFace in line 2 is not read"),
        "{error}"
    );
}

#[test]
fn what_is_lost_is_said() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    // Arguments, what the file says of them, and what is to do before it runs here.
    for (arguments, says, to_do) in [
        (
            "distribution=x",
            "# distribution = x: is no literal",
            "write distribution, how the script is started",
        ),
        (
            "distribution={'parameter_server': {'enabled': True}}",
            "# distribution parameter_server = {\"enabled\":true}: has no counterpart",
            "choose how the script is started: distribution parameter_server",
        ),
        (
            "distribution={'parameter_server': {'enabled': False}}",
            "# distribution parameter_server",
            "",
        ),
        (
            "hyperparameters=x",
            "# hyperparameters = x",
            "write the hyperparameters; the program has no literal",
        ),
        (
            "**x",
            "# ** = x: is no literal",
            "write what the program gives by **",
        ),
        (
            "use_spot_instances=True, max_wait=90000, checkpoint_s3_uri=f()",
            "# checkpoint_s3_uri = f()",
            "write checkpoints, where an interrupted script goes on from",
        ),
        (
            "use_spot_instances=x, max_wait=90000",
            "# max_wait = 90000: [spot] max-wait-seconds",
            "",
        ),
        (
            "checkpoint_s3_uri='s3://b/c', checkpoint_local_path='/tmp/own'",
            "# checkpoint_local_path = \"/tmp/own\": checkpoints are in /opt/ml/checkpoints",
            "let the script write its checkpoints to SM_CHECKPOINT_DIR",
        ),
        (
            "checkpoint_s3_uri='s3://b/c', checkpoint_local_path='/opt/ml/checkpoints'",
            "checkpoints = \"s3://b/c\"",
            "",
        ),
        (
            "rules=[Rule.sagemaker(rule_configs.overfit(), rule_parameters={'patience': '3'}, actions=stop())]",
            "# rule Overfit: rule_parameters = {\"patience\":\"3\"}: has no counterpart\n",
            "",
        ),
        (
            "rules=[Rule.sagemaker(rule_configs.overfit(), actions=stop())]",
            "# rule Overfit: actions = stop()",
            "",
        ),
        (
            "enable_network_isolation=True, encrypt_inter_container_traffic=True, volume_kms_key='a', output_kms_key='b'",
            "# encrypt-traffic = true\n# framework = \"pytorch\"\n# kms-key = \"b\"\n# network-isolation = true\n# role = \"\"\n\
             # volume-gigabytes = 30\n# volume-kms-key = \"a\"\n",
            "",
        ),
        (
            "framework_version='2.2'",
            "# framework_version = 2.2: SageMaker's SDK takes 2.2.0 for it",
            "",
        ),
        ("output_path=f()", "# output_path = f(): is no literal", ""),
    ] {
        let imported = read(&format!("PyTorch('t.py', {arguments}).fit('s3://b/t')\n")).unwrap();
        let text = &imported.text;
        assert!(text.contains(says), "{says}: {text}");
        assert_eq!(
            imported.runs_here,
            to_do.is_empty(),
            "{arguments}: {:?}",
            imported.problems
        );
        assert!(text.contains(&format!("# To do: {to_do}")), "{to_do}: {text}");
        let is_made = text.contains("SageMaker's SDK makes a bucket");
        assert_eq!(is_made, !arguments.contains("output_path"), "{arguments}: {text}");
    }
    for (arguments, says, value) in [
        (
            "model_dir='s3://b/m'",
            "model_dir = \"s3://b/m\"",
            json!("s3://b/m"),
        ),
        ("model_dir=False", "# framework = \"tensorflow\"", Value::Null),
        (
            "framework_version='2.13'",
            "# model_dir: SageMaker's SDK gives the script a place",
            Value::Null,
        ),
        (
            "framework_version='2.13'",
            "# framework-version = \"2.13.0\"",
            Value::Null,
        ),
    ] {
        let imported = read(&format!(
            "TensorFlow(entry_point='t.py', {arguments}).fit('s3://b/t')\n"
        ))
        .unwrap();
        assert!(imported.text.contains(says), "{says}: {}", imported.text);
        let made = job(&imported.text).hyperparameters;
        assert_eq!(
            made.get("model_dir").unwrap_or(&Value::Null),
            &value,
            "{}",
            imported.text
        );
    }
    // Half a character, which no file has.
    let imported =
        read("PyTorch('t.py', hyperparameters={'a': '\\ud800', 'b': 1}, role=f('\\udfff'))").unwrap();
    assert!(
        imported.text.contains("# a = '\\ud800': is no literal"),
        "{}",
        imported.text
    );
    let error = read("x = '\\ud800'\n").unwrap_err();
    assert!(error.to_string().contains("it makes no PyTorch"), "{error}");
}

#[test]
fn all_that_keeps_a_file_from_sagemaker_is_said_at_once() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let imported =
        read("PyTorch('t.py', use_spot_instances=True, environment={'A': 'b'}).fit('data')\n").unwrap();
    assert!(imported.runs_here, "{:?}", imported.problems);
    let wanted = [
        "on SageMaker it needs section [sagemaker] with role",
        "on SageMaker: SageMaker puts the model into a bucket",
        "on SageMaker: SageMaker wants a type of machine",
        "on SageMaker: [sagemaker] wants an image",
        "on SageMaker: channel training: SageMaker cannot read",
    ];
    assert!(
        imported
            .problems
            .iter()
            .zip(wanted)
            .all(|(problem, start)| problem.starts_with(start)),
        "{:?}",
        imported.problems
    );
    assert_eq!(imported.problems.len(), wanted.len(), "{:?}", imported.problems);
    let imported = read("PyTorch('t.py', role='mine', use_spot_instances=True).fit('s3://b/t')\n").unwrap();
    let last = &imported.problems[imported.problems.len() - 2..];
    assert!(
        last[0].contains("write max-wait-seconds") && last[1].contains("ole"),
        "{:?}",
        imported.problems
    );
}

#[test]
fn programs_that_would_fill_the_memory_end_soon() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    let doubled = |first: &str, next: fn(usize) -> String| {
        let lines: Vec<String> = (1..24).map(next).collect();
        format!(
            "a0 = {first}\n{}\nPyTorch('t.py', hyperparameters=a23)\n",
            lines.join("\n")
        )
    };
    let began = std::time::Instant::now();
    for program in [
        doubled("'aaaaaaaa'", |n| format!("a{n} = a{} + a{}", n - 1, n - 1)),
        doubled("'aaaaaaaa'", |n| {
            format!("a{n} = f'{{a{}}}{{a{}}}'", n - 1, n - 1)
        }),
        doubled("(1, 2)", |n| format!("a{n} = (a{}, a{})", n - 1, n - 1)),
    ] {
        let error = read(&program).unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains("its values are too large"),
            "{error}"
        );
    }
    // What is repeated is no literal.
    let imported = read("PyTorch('t.py', role='a' * 10 ** 9, tags=(1,) * 10 ** 9)\n").unwrap();
    assert!(
        imported.text.contains("# role = 'a' * 10 ** 9: is no literal"),
        "{}",
        imported.text
    );
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn programs_without_one_estimator_are_refused() {
    if !needs::has("python3", "Python 3") {
        return;
    }
    for (program, says) in [
        (
            "x = 1\n",
            "estimator.py: it makes no PyTorch, TensorFlow or Estimator",
        ),
        (
            "PyTorch()\nx = PyTorch()\n",
            "it makes estimators in lines 1, 2; leave one",
        ),
        ("x = (\n", "estimator.py: Python cannot read it: line 1: "),
        ("!pip install x\n", "Python cannot read it: line 1"),
        ("\0", "Python cannot read it"),
    ] {
        let error = read(program).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
    }
    let deep = "(".repeat(100_000);
    assert!(read(&deep).unwrap_err().is_input());
    let error = Imported::of_estimator("", "x.py", Path::new("/no/python")).unwrap_err();
    assert!(error.to_string().contains("/no/python"), "{error}");
}

#[test]
fn a_job_of_motos_is_imported() {
    let Some(moto) = Moto::start() else { return };
    let client = moto.client();
    let mut request = Plan::new(&job(PUBLISHED), "resnet-1", "eu-west-1")
        .unwrap()
        .request;
    let arn = client.create(&request).unwrap();
    let tags = client.tags(&arn).unwrap();
    assert_eq!(tags, BTreeMap::from([("team".into(), "vision".into())]));
    let description = client.description("resnet-1").unwrap();
    let imported = Imported::of_description(&description, Some(&tags)).unwrap();
    // moto forgets the environment and the profiler, and makes up metrics.
    request.environment.remove("OMP_NUM_THREADS");
    let after = planned(&imported.text, "resnet-1");
    request.algorithm_specification.metric_definitions =
        after.algorithm_specification.metric_definitions.clone();
    assert_eq!(after, request, "{}", imported.text);
}
