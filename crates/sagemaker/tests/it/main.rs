//! Requests against botocore's model of SageMaker, hyperparameters against the training toolkit's own decoder.

mod bad;
mod calls;
mod follows;
mod groups;
mod imports;
mod moto;
mod plans;
mod stub;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use stokehold_sagemaker::{
    Channel, CheckpointConfig, CompressionType, CreateTrainingJob, DataSource, Distribution,
    FileSystemAccess, FileSystemDataSource, FileSystemType, InputMode, MetricDefinition, ProfilerConfig,
    RecordWrapper, S3DataSource, S3DataType, ShuffleConfig, Tag, VpcConfig, encode_hyperparameters,
};
use stokehold_untested::needs;

/// What a program in the oracle's Python prints about `input`; none, with the reason noted, without the oracle.
#[track_caller]
pub fn asked(variable: &str, program: &str, input: &Value) -> Option<String> {
    needs::asked(variable, program, &input.to_string())
}

/// What botocore's models find wrong with requests of services, one finding a line.
pub fn wrong(requests: &[(&str, &str, Value)]) -> Option<String> {
    let found = asked(
        "STOKEHOLD_TEST_MOTO",
        include_str!("validate.py"),
        &json!(requests),
    )?;
    Some(found.trim().to_owned())
}

fn refused(request: &Value) -> Option<String> {
    wrong(&[("sagemaker", "CreateTrainingJob", request.clone())])
}

/// As small as a job can be.
pub fn small() -> CreateTrainingJob {
    let role = "arn:aws:iam::123456789012:role/trains";
    let mut request = CreateTrainingJob::new("flowers-1", role, "s3://bucket/out");
    request.algorithm_specification.training_image =
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1".into();
    request.resource_config.instance_type = "ml.g5.xlarge".into();
    request
}

/// With every member.
pub fn full() -> CreateTrainingJob {
    let mut request = small();
    let objects = |mode, kind: S3DataType, distribution| {
        let is_augmented = kind == S3DataType::AugmentedManifestFile;
        let data = DataSource::S3DataSource(S3DataSource {
            s3_data_type: kind,
            s3_uri: "s3://bucket/train".into(),
            s3_data_distribution_type: distribution,
            attribute_names: if is_augmented {
                vec!["source-ref".into(), "label".into()]
            } else {
                Vec::new()
            },
            instance_group_names: Vec::new(),
        });
        Channel {
            content_type: Some("image/jpeg".into()),
            input_mode: Some(mode),
            compression_type: is_augmented.then_some(CompressionType::Gzip),
            record_wrapper_type: is_augmented.then_some(RecordWrapper::RecordIo),
            shuffle_config: is_augmented.then_some(ShuffleConfig { seed: 7 }),
            ..Channel::new(&format!("{mode:?}-{kind:?}"), data)
        }
    };
    let files = |kind: FileSystemType, access| {
        let data = DataSource::FileSystemDataSource(FileSystemDataSource {
            file_system_id: "fs-0123456789abcdef0".into(),
            file_system_type: kind,
            file_system_access_mode: access,
            directory_path: "/images/train".into(),
        });
        Channel::new(&format!("{kind:?}"), data)
    };
    request.input_data_config = vec![
        objects(
            InputMode::File,
            S3DataType::ManifestFile,
            Distribution::FullyReplicated,
        ),
        objects(
            InputMode::FastFile,
            S3DataType::S3Prefix,
            Distribution::ShardedByS3Key,
        ),
        objects(
            InputMode::Pipe,
            S3DataType::AugmentedManifestFile,
            Distribution::FullyReplicated,
        ),
        files(FileSystemType::Efs, FileSystemAccess::ReadOnly),
        files(FileSystemType::FSxLustre, FileSystemAccess::ReadWrite),
    ];
    request.hyper_parameters = encode_hyperparameters(
        &[
            ("lr".to_owned(), json!(0.1)),
            ("model".to_owned(), json!("resnet18")),
        ]
        .into(),
    );
    request.algorithm_specification.metric_definitions = vec![MetricDefinition {
        name: "loss".into(),
        regex: "loss=([0-9.]+)".into(),
    }];
    request.output_data_config.kms_key_id = Some("alias/mine".into());
    request.resource_config.volume_kms_key_id = Some("arn:aws:kms:eu-west-1:123456789012:key/1".into());
    request.enable_managed_spot_training = true;
    request.stopping_condition.max_wait_time_in_seconds = Some(90_000);
    request.vpc_config = Some(VpcConfig {
        security_group_ids: vec!["sg-0123456789".into()],
        subnets: vec!["subnet-0123456789".into()],
    });
    request.checkpoint_config = Some(CheckpointConfig {
        s3_uri: "s3://bucket/checkpoints".into(),
    });
    request.profiler_config = Some(ProfilerConfig {
        s3_output_path: Some("s3://bucket/profile".into()),
        profiling_interval_in_milliseconds: Some(500),
        disable_profiler: false,
    });
    request.environment = BTreeMap::from([("MINE".to_owned(), "1".to_owned())]);
    request.tags = vec![Tag {
        key: "team".into(),
        value: "vision".into(),
    }];
    request
}

#[test]
fn requests_are_valid_by_botocores_model() {
    let mut warm = small();
    warm.resource_config.keep_alive_period_in_seconds = Some(600);
    let mut dark = small();
    dark.profiler_config = Some(ProfilerConfig {
        disable_profiler: true,
        ..ProfilerConfig::default()
    });
    for request in [small(), full(), warm, dark] {
        request.check().unwrap();
        let request = serde_json::to_value(&request).unwrap();
        let Some(found) = refused(&request) else { return };
        assert_eq!(found, "", "{request:#}");
    }
}

#[test]
fn the_model_finds_what_is_wrong() {
    let right = serde_json::to_value(full()).unwrap();
    for (pointer, value) in [
        ("/RoleArn", json!("nobody-at-all-is-this-role")),
        ("/RoleArn", json!(7)),
        ("/TrainingJobName", json!("a_b")),
        (
            "/InputDataConfig/3/DataSource/FileSystemDataSource/FileSystemType",
            json!("NFS"),
        ),
        ("/HyperParameters/lr", json!("1".repeat(2501))),
        ("/ResourceConfig", json!({"Instances": 1})),
    ] {
        let mut wrong = right.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let Some(found) = refused(&wrong) else { return };
        assert_ne!(found, "", "{pointer}");
    }
}

#[test]
fn sizes_and_switches_are_no_secrets() {
    let mut request = small();
    for (name, text) in [
        ("max_tokens", "512"),
        ("key-dims", "[64, 64]"),
        ("use_auth", "true"),
        ("pat", "\"\""),
        ("keypoints", "\"coco\""),
        ("path", "\"s3://bucket/a@b\""),
    ] {
        request.hyper_parameters.insert(name.into(), text.into());
    }
    request.check().unwrap();
}

#[test]
fn what_sagemaker_would_refuse_is_named() {
    type Change = fn(&mut CreateTrainingJob);
    let cases: [(Change, &str); 30] = [
        (
            |r| r.profiler_config.as_mut().unwrap().s3_output_path = None,
            "ProfilerConfig.S3OutputPath: ",
        ),
        (
            |r| r.algorithm_specification.metric_definitions[0].regex = "x".repeat(501),
            "AlgorithmSpecification.MetricDefinitions.loss: has 501",
        ),
        (
            |r| {
                let one = r.algorithm_specification.metric_definitions[0].clone();
                r.algorithm_specification.metric_definitions = vec![one; 41];
            },
            "AlgorithmSpecification.MetricDefinitions: has 41 metrics",
        ),
        (
            |r| {
                if let DataSource::S3DataSource(objects) = &mut r.input_data_config[2].data_source {
                    objects.attribute_names = vec!["a".into(); 17];
                }
            },
            "InputDataConfig.Pipe-AugmentedManifestFile: has 17 attributes",
        ),
        (
            |r| r.vpc_config.as_mut().unwrap().subnets.clear(),
            "VpcConfig.Subnets: has 0",
        ),
        (
            |r| r.vpc_config.as_mut().unwrap().security_group_ids = vec!["sg-1".into(); 6],
            "VpcConfig.SecurityGroupIds: ",
        ),
        (|r| r.tags[0].value = "x".repeat(257), "Tags.team: has 257"),
        (
            |r| r.tags[0].key = "api-key".into(),
            "Tags.api-key: looks like a secret",
        ),
        (
            |r| drop(r.hyper_parameters.insert("hf_token".into(), "\"hf_x\"".into())),
            "HyperParameters.hf_token: looks like a secret",
        ),
        (
            |r| {
                drop(
                    r.hyper_parameters
                        .insert("db".into(), "{\"user\": \"me\", \"passwd\": \"x\"}".into()),
                )
            },
            "HyperParameters.db: looks like a secret",
        ),
        (
            |r| {
                drop(
                    r.hyper_parameters
                        .insert("db".into(), "postgres://me:x@host".into()),
                )
            },
            "HyperParameters.db: looks like a secret",
        ),
        (
            |r| r.input_data_config[0].channel_name = "a b".into(),
            "InputDataConfig.a b: the name",
        ),
        (
            |r| r.input_data_config[0].channel_name = "Efs".into(),
            "InputDataConfig.Efs: there are two",
        ),
        (
            |r| r.training_job_name = "a_b".into(),
            "TrainingJobName: 'a_b' is not",
        ),
        (|r| r.training_job_name = "a".repeat(64), "TrainingJobName: "),
        (|r| r.role_arn.clear(), "RoleArn: '' is no role; give one as arn:"),
        (|r| r.role_arn = "arn:aws:iam::1:role/x".into(), "RoleArn: "),
        (
            |r| r.resource_config.instance_type = "g5.xlarge".into(),
            "ResourceConfig.InstanceType: ",
        ),
        (
            |r| r.resource_config.instance_count = 0,
            "ResourceConfig.InstanceCount: ",
        ),
        (
            |r| r.resource_config.volume_size_in_gb = 0,
            "ResourceConfig.VolumeSizeInGB: ",
        ),
        (
            |r| r.resource_config.keep_alive_period_in_seconds = Some(9),
            "ResourceConfig.KeepAlivePeriodInSeconds: spot",
        ),
        (
            |r| r.stopping_condition.max_runtime_in_seconds = 0,
            "StoppingCondition.MaxRuntimeInSeconds: ",
        ),
        (
            |r| r.stopping_condition.max_wait_time_in_seconds = None,
            "StoppingCondition.MaxWaitTimeInSeconds: spot",
        ),
        (
            |r| r.stopping_condition.max_wait_time_in_seconds = Some(5),
            "StoppingCondition.MaxWaitTimeInSeconds: is 5 s",
        ),
        (
            |r| r.enable_managed_spot_training = false,
            "StoppingCondition.MaxWaitTimeInSeconds: only spot",
        ),
        (
            |r| r.vpc_config = None,
            "InputDataConfig.Efs: a file system is reached",
        ),
        (
            |r| r.output_data_config.s3_output_path = "/out".into(),
            "OutputDataConfig.S3OutputPath: '/out'",
        ),
        (
            |r| {
                r.profiler_config
                    .as_mut()
                    .unwrap()
                    .profiling_interval_in_milliseconds = Some(250)
            },
            "ProfilerConfig.",
        ),
        (
            |r| drop(r.environment.insert("KEY".into(), "hidden".repeat(100))),
            "Environment.KEY: has 600 characters",
        ),
        (
            |r| drop(r.hyper_parameters.insert("k".into(), "1".repeat(2501))),
            "HyperParameters.k: has 2501",
        ),
    ];
    for (change, start) in cases {
        let mut request = full();
        change(&mut request);
        let message = request.check().unwrap_err().to_string();
        assert!(
            message.starts_with(start) && !message.contains("hidden"),
            "{start}: {message}"
        );
    }
}

/// botocore's model has the service's own patterns and greatest lengths.
#[test]
fn every_text_that_the_model_refuses_is_refused() {
    type Put = fn(&mut CreateTrainingJob, String);
    fn objects(request: &mut CreateTrainingJob) -> &mut S3DataSource {
        match &mut request.input_data_config[0].data_source {
            DataSource::S3DataSource(objects) => objects,
            DataSource::FileSystemDataSource(_) => unreachable!("the first channel is in a bucket"),
        }
    }
    fn files(request: &mut CreateTrainingJob) -> &mut FileSystemDataSource {
        match &mut request.input_data_config[3].data_source {
            DataSource::FileSystemDataSource(files) => files,
            DataSource::S3DataSource(_) => unreachable!("the fourth channel is a file system"),
        }
    }
    let members: [(&str, Put); 26] = [
        ("", |r, t| r.training_job_name = t),
        ("arn:aws:iam::123456789012:role/", |r, t| r.role_arn = t),
        ("arn:aws", |r, t| r.role_arn = t + ":iam::123456789012:role/x"),
        ("", |r, t| r.algorithm_specification.training_image = t),
        ("", |r, t| {
            r.algorithm_specification.metric_definitions[0].name = t
        }),
        ("", |r, t| {
            r.algorithm_specification.metric_definitions[0].regex = t
        }),
        ("", |r, t| drop(r.hyper_parameters.insert(t, "1".into()))),
        ("", |r, t| drop(r.hyper_parameters.insert("x".into(), t))),
        ("", |r, t| drop(r.environment.insert(t, "1".into()))),
        ("", |r, t| drop(r.environment.insert("x".into(), t))),
        ("", |r, t| r.input_data_config[0].channel_name = t),
        ("", |r, t| r.input_data_config[0].content_type = Some(t)),
        ("s3://bucket/", |r, t| objects(r).s3_uri = t),
        ("s3://", |r, t| objects(r).s3_uri = t),
        ("", |r, t| files(r).file_system_id = t),
        ("/", |r, t| files(r).directory_path = t),
        ("", |r, t| r.output_data_config.kms_key_id = Some(t)),
        ("s3://bucket/", |r, t| r.output_data_config.s3_output_path = t),
        ("", |r, t| r.resource_config.volume_kms_key_id = Some(t)),
        ("", |r, t| r.vpc_config.as_mut().unwrap().subnets[0] = t),
        ("", |r, t| {
            r.vpc_config.as_mut().unwrap().security_group_ids[0] = t
        }),
        ("s3://bucket/", |r, t| {
            r.checkpoint_config.as_mut().unwrap().s3_uri = t
        }),
        ("s3://bucket/", |r, t| {
            r.profiler_config.as_mut().unwrap().s3_output_path = Some(t)
        }),
        ("", |r, t| r.tags[0].key = t),
        ("", |r, t| r.tags[0].value = t),
        ("", |r, t| r.resource_config.instance_type = t),
    ];
    let mut texts: Vec<String> = [
        "",
        "a",
        "a b",
        "a\nb",
        "a\rb",
        "a\u{2028}b",
        "aé",
        "a/b",
        "a:b",
        "a_b",
        "a-",
        "-a",
        "a*b",
        "a\tb",
        "a#",
    ]
    .map(str::to_owned)
    .into();
    for length in [
        10, 32, 33, 63, 64, 65, 128, 129, 255, 256, 257, 500, 501, 512, 513, 1012, 1013, 1024, 1025, 2017,
        2018, 2048, 2049, 2500, 2501, 4095, 4096, 4097,
    ] {
        texts.push("a".repeat(length));
    }
    let mut cases = Vec::new();
    for (number, (start, put)) in members.iter().enumerate() {
        for text in &texts {
            let mut request = full();
            put(&mut request, format!("{start}{text}"));
            cases.push((number, text, request));
        }
    }
    let requests: Vec<(&str, &str, Value)> = cases
        .iter()
        .map(|(_, _, request)| {
            (
                "sagemaker",
                "CreateTrainingJob",
                serde_json::to_value(request).unwrap(),
            )
        })
        .collect();
    let Some(found) = wrong(&requests) else { return };
    let mut refusals = 0;
    for (number, (member, text, request)) in cases.iter().enumerate() {
        let start = format!("request {number}: ");
        if let Some(line) = found.lines().find(|line| line.starts_with(&start)) {
            refusals += 1;
            let start: String = text.chars().take(20).collect();
            assert!(
                request.check().is_err(),
                "member {member}, {} x {start:?}: {line}",
                text.len()
            );
        }
    }
    assert!(refusals > 200, "{refusals}");
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
pub fn values() -> impl Strategy<Value = Value> {
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
