//! Job files and the requests that they make, in `tests/requests`: a folder has `job.toml` and `request.json`, with `notes.txt` if
//! there are notes; one that is called `refused-..` has `refusal.txt` instead.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stokehold_jobs::Job;
use stokehold_sagemaker::{
    CreateTrainingJob, DataSource, FileSystemDataSource, InstanceGroup, Plan, S3DataSource, section,
};

use crate::valid::is_valid;
use crate::{folder, planned, request, small, wrong};

const AGAIN: &str = "read it and write it again: STOKEHOLD_WRITE_REQUESTS=1 cargo test --release -p stokehold-sagemaker --test it job_files";

/// All folders, by their names.
pub fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder("")).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// Compares a file with what is made; nothing is no file.
fn compare(path: &Path, text: &str) {
    if std::env::var_os("STOKEHOLD_WRITE_REQUESTS").is_some() {
        match text {
            "" => drop(fs::remove_file(path)),
            text => fs::write(path, text).unwrap(),
        }
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let is_same = match path.extension().is_some_and(|end| end == "json") && !kept.is_empty() {
        // The order of members may be another one.
        true => serde_json::from_str::<Value>(&kept).ok() == serde_json::from_str(text).ok(),
        false => kept == text,
    };
    assert!(is_same, "{}: {AGAIN}\n{text}", path.display());
}

#[test]
fn job_files_make_the_requests_that_are_kept() {
    let mut requests = Vec::new();
    for folder in folders() {
        let (mut made, mut notes, mut refusal) = (String::new(), String::new(), String::new());
        match planned(&folder.join("job.toml")) {
            Ok(plan) => {
                let request = serde_json::to_value(&plan.request).unwrap();
                made = format!("{request:#}\n");
                notes = plan.notes.iter().map(|note| format!("{note}\n")).collect();
                requests.push(("sagemaker", "CreateTrainingJob", request));
            }
            Err(reason) => refusal = format!("{reason}\n"),
        }
        let is_refused = folder
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("refused-"));
        assert_eq!(!refusal.is_empty(), is_refused, "{}: {refusal}", folder.display());
        assert!(!refusal.contains("my-own-secret"), "{refusal}");
        compare(&folder.join("request.json"), &made);
        compare(&folder.join("notes.txt"), &notes);
        compare(&folder.join("refusal.txt"), &refusal);
    }
    let Some(found) = wrong(&requests) else { return };
    assert_eq!(found, "");
}

#[test]
fn the_model_finds_what_is_wrong() {
    let right = serde_json::to_value(request("full")).unwrap();
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
        let mut changed = right.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let Some(found) = wrong(&[("sagemaker", "CreateTrainingJob", changed)]) else {
            return;
        };
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
fn a_wrong_section_is_refused_with_its_line_and_by_the_schema() {
    let schema = section::in_schema(Job::schema());
    let all = section::template();
    let (_, all) = all.split_once("# [sagemaker]\n").unwrap();
    let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let all = all.lines().filter_map(|line| line.strip_prefix("# "));
    let all: Vec<&str> = all.filter(|line| line.starts_with('[') || is_key(line)).collect();
    for (keys, says) in [
        (all.join("\n").as_str(), ""),
        ("", "job.toml, line 2: missing field `role`"),
        (
            "role = 'arn'\n\nframework = 'mxnet'",
            "job.toml, line 5: unknown variant `mxnet`",
        ),
        (
            "role = 'arn'\ninstance-type = 'ml.x'",
            "job.toml, line 4: unknown field `instance-type`",
        ),
        (
            "role = 'arn'\nvolume-gigabytes = 0",
            "volume-gigabytes is at least 1",
        ),
    ] {
        let text = format!("entry-point = 'a'\n[sagemaker]\n{keys}");
        let job = section::parse(&text, Path::new("job.toml"));
        let error = job.and_then(|job| section::check(&job)).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        let is_right = is_valid(&toml::from_str(&text).unwrap(), &schema, &schema);
        assert!(error.starts_with(says), "{text}: {error}");
        assert_eq!([says.is_empty(), error.is_empty()], [is_right; 2], "{text}");
    }
}

#[test]
fn secrets_of_a_shown_job_are_not_in_its_request() {
    let mut job = Job::read(&folder("small").join("job.toml")).unwrap();
    job.environment.insert("HF_TOKEN".into(), "my-own-secret".into());
    let request =
        |job: &Job| serde_json::to_string(&Plan::new(job, "a", "eu-west-1").unwrap().request).unwrap();
    assert!(request(&job).contains("my-own-secret"));
    let shown = request(&job.without_secrets());
    assert!(
        !shown.contains("my-own-secret") && shown.contains("\"HF_TOKEN\":\"(hidden)\""),
        "{shown}"
    );
}

/// The first channel in a bucket.
fn objects(request: &mut CreateTrainingJob) -> &mut S3DataSource {
    let mut sources = request.input_data_config.iter_mut();
    let found = sources.find_map(|channel| match &mut channel.data_source {
        DataSource::S3DataSource(objects) => Some(objects),
        DataSource::FileSystemDataSource(_) => None,
    });
    found.unwrap()
}

/// The first file system.
fn files(request: &mut CreateTrainingJob) -> &mut FileSystemDataSource {
    let mut sources = request.input_data_config.iter_mut();
    let found = sources.find_map(|channel| match &mut channel.data_source {
        DataSource::FileSystemDataSource(files) => Some(files),
        DataSource::S3DataSource(_) => None,
    });
    found.unwrap()
}

/// Requests that no job file makes, and that a program may make.
#[test]
fn what_sagemaker_would_refuse_is_named() {
    type Change = fn(&mut CreateTrainingJob);
    fn groups(request: &mut CreateTrainingJob, groups: &[(&str, &str, u32)]) {
        request.resource_config.instance_type.clear();
        request.resource_config.instance_count = 0;
        let group = |(name, kind, count): &(&str, &str, u32)| InstanceGroup {
            instance_group_name: (*name).to_owned(),
            instance_type: (*kind).to_owned(),
            instance_count: *count,
        };
        request.resource_config.instance_groups = groups.iter().map(group).collect();
    }
    let cases: [(Change, &str); 29] = [
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
            |r| objects(r).attribute_names = vec!["a".into(); 17],
            "InputDataConfig.boxes: has 17 attributes",
        ),
        (
            |r| objects(r).instance_group_names = vec!["a".into()],
            "InputDataConfig.boxes: 'a' is no group",
        ),
        (
            |r| r.vpc_config.as_mut().unwrap().subnets.clear(),
            "VpcConfig.Subnets: has 0",
        ),
        (
            |r| r.vpc_config.as_mut().unwrap().security_group_ids = vec!["sg-1".into(); 6],
            "VpcConfig.SecurityGroupIds: ",
        ),
        (|r| r.vpc_config = None, "InputDataConfig.shared: a file system"),
        (|r| r.tags[0].value = "x".repeat(257), "Tags.team: has 257"),
        (|r| r.tags[0].key = "AWS:x".into(), "Tags.AWS:x: AWS gives"),
        (
            |r| r.input_data_config[0].channel_name = "a b".into(),
            "InputDataConfig.a b: the name",
        ),
        (
            |r| r.input_data_config[0].channel_name = "cached".into(),
            "InputDataConfig.cached: there are two",
        ),
        (
            |r| r.training_job_name = "a_b".into(),
            "TrainingJobName: 'a_b' is not",
        ),
        (|r| r.training_job_name = "a".repeat(64), "TrainingJobName: "),
        (|r| r.role_arn = "arn:aws:iam::1:role/x".into(), "RoleArn: "),
        (
            |r| r.resource_config.instance_count = 0,
            "ResourceConfig.InstanceCount: ",
        ),
        (
            |r| r.resource_config.volume_size_in_gb = 0,
            "ResourceConfig.VolumeSizeInGB: ",
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
            |r| drop(r.environment.insert("KEY".into(), "hidden".repeat(100))),
            "Environment.KEY: has 600 characters",
        ),
        (
            |r| drop(r.hyper_parameters.insert("k".into(), "1".repeat(2501))),
            "HyperParameters.k: has 2501",
        ),
        (
            |r| groups(r, &[("a", "ml.g5.xlarge", 0)]),
            "ResourceConfig.InstanceGroups.a: has no machine",
        ),
        (
            |r| groups(r, &[("", "ml.g5.xlarge", 1)]),
            "ResourceConfig.InstanceGroups.: the name of a group",
        ),
        (
            |r| groups(r, &[("a", "ml.g5.xlarge", 1); 2]),
            "ResourceConfig.InstanceGroups.a: there are two",
        ),
        (
            |r| groups(r, &[("a", "ml.g5.xlarge", 1); 6]),
            "ResourceConfig.InstanceGroups: has 6 groups",
        ),
        (|r| groups(r, &[]), "ResourceConfig.InstanceType: ''"),
        (
            |r| {
                groups(r, &[("a", "ml.g5.xlarge", 1)]);
                r.resource_config.instance_count = 1;
            },
            "ResourceConfig.InstanceGroups: has groups beside a type",
        ),
    ];
    for (change, start) in cases {
        let mut request = request("full");
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
    let right = request("full");
    let mut cases = Vec::new();
    for (number, (start, put)) in members.iter().enumerate() {
        for text in &texts {
            let mut request = right.clone();
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
