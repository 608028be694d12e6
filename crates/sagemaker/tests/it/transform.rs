//! Batch transforms: the requests against botocore's model, what is refused, the calls.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_sagemaker::{
    AssembleWith, BatchStrategy, Container, CreateModel, CreateTransformJob, DataProcessing, JobStatus,
    JoinSource, SageMakerError, SplitType, TransformData, TransformInput, TransformObjects, TransformOutput,
    TransformResources, TransformSource,
};

use crate::moto::Moto;
use crate::stub::{Reply, Stub};
use crate::{full, wrong};

fn model() -> CreateModel {
    let job = full();
    CreateModel {
        model_name: "flowers-1".into(),
        primary_container: Container {
            image: "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-inference:2.6.0-gpu-py312".into(),
            model_data_url: "s3://bucket/out/flowers-1/output/model.tar.gz".into(),
            environment: [("MINE".to_owned(), "1".to_owned())].into(),
        },
        execution_role_arn: job.role_arn,
        vpc_config: job.vpc_config,
        tags: job.tags,
    }
}

fn transform() -> CreateTransformJob {
    CreateTransformJob {
        transform_job_name: "flowers-1".into(),
        model_name: "flowers-1".into(),
        max_concurrent_transforms: Some(4),
        max_payload_in_mb: Some(25),
        batch_strategy: Some(BatchStrategy::SingleRecord),
        transform_input: TransformInput {
            data_source: TransformSource {
                objects: TransformObjects {
                    s3_data_type: TransformData::ManifestFile,
                    s3_uri: "s3://bucket/list.manifest".into(),
                },
            },
            content_type: Some("application/jsonlines".into()),
            split_type: SplitType::Line,
        },
        transform_output: TransformOutput {
            s3_output_path: "s3://bucket/predictions".into(),
            accept: Some("application/jsonlines".into()),
            assemble_with: Some(AssembleWith::Line),
            kms_key_id: Some("alias/mine".into()),
        },
        transform_resources: TransformResources {
            instance_type: "ml.g5.xlarge".into(),
            instance_count: 2,
            volume_kms_key_id: Some("alias/mine".into()),
        },
        data_processing: Some(DataProcessing {
            input_filter: Some("$.image".into()),
            output_filter: Some("$['id','SageMakerOutput']".into()),
            join_source: Some(JoinSource::Input),
        }),
        tags: full().tags,
    }
}

#[test]
fn transforms_and_models_are_valid_by_botocores_model() {
    let mut small = transform();
    small.max_concurrent_transforms = None;
    small.max_payload_in_mb = None;
    small.batch_strategy = None;
    small.data_processing = None;
    small.transform_input.split_type = SplitType::None;
    small.transform_output.assemble_with = None;
    small.transform_output.kms_key_id = None;
    small.tags.clear();
    model().check().unwrap();
    let mut requests = vec![("sagemaker", "CreateModel", serde_json::to_value(model()).unwrap())];
    for request in [transform(), small] {
        request.check().unwrap();
        requests.push((
            "sagemaker",
            "CreateTransformJob",
            serde_json::to_value(request).unwrap(),
        ));
    }
    let Some(found) = wrong(&requests) else { return };
    assert_eq!(found, "", "{requests:#?}");
    for (pointer, value) in [
        ("/MaxPayloadInMB", json!("6")),
        ("/BatchStrategy", json!("Many")),
        ("/DataProcessing/InputFilter", json!("$".repeat(64))),
        ("/TransformResources/InstanceCount", json!(0)),
    ] {
        let mut request = serde_json::to_value(transform()).unwrap();
        *request.pointer_mut(pointer).unwrap() = value;
        assert_ne!(
            wrong(&[("sagemaker", "CreateTransformJob", request)]).unwrap(),
            "",
            "{pointer}"
        );
    }
}

#[test]
fn what_sagemaker_would_refuse_of_a_transform_is_named() {
    type Change = fn(&mut CreateTransformJob);
    let cases: [(Change, &str); 13] = [
        (
            |r| r.transform_input.content_type = Some("x".repeat(257)),
            "TransformInput.ContentType: has 257",
        ),
        (
            |r| r.transform_output.kms_key_id = Some("alias/mi ne".into()),
            "TransformOutput.KmsKeyId: has ' '",
        ),
        (
            |r| r.transform_resources.volume_kms_key_id = Some("{}".into()),
            "TransformResources.VolumeKmsKeyId: has '{'",
        ),
        (|r| r.tags[0].key = "te#am".into(), "Tags.te#am, its key: has '#'"),
        (
            |r| r.transform_job_name = "a_b".into(),
            "TransformJobName: 'a_b' is not",
        ),
        (|r| r.model_name.clear(), "ModelName: "),
        (
            |r| r.transform_input.data_source.objects.s3_uri = "photos".into(),
            "TransformInput.DataSource.S3DataSource.S3Uri: 'photos'",
        ),
        (
            |r| r.transform_output.s3_output_path = "out".into(),
            "TransformOutput.S3OutputPath: 'out'",
        ),
        (
            |r| r.transform_resources.instance_type = "local".into(),
            "TransformResources.InstanceType: 'local'",
        ),
        (
            |r| r.transform_resources.instance_count = 0,
            "TransformResources.InstanceCount: is 0",
        ),
        (
            |r| r.max_payload_in_mb = Some(26),
            "MaxPayloadInMB: 26 MB for each of 4",
        ),
        (
            |r| r.transform_input.split_type = SplitType::None,
            "BatchStrategy: only inputs",
        ),
        (
            |r| r.data_processing.as_mut().unwrap().output_filter = Some("$".repeat(64)),
            "DataProcessing.OutputFilter: has 64",
        ),
    ];
    for (change, start) in cases {
        let mut request = transform();
        change(&mut request);
        let message = request.check().unwrap_err().to_string();
        assert!(message.starts_with(start), "{start}: {message}");
    }
    type ChangeModel = fn(&mut CreateModel);
    let cases: [(ChangeModel, &str); 5] = [
        (|r| r.model_name = "-".into(), "ModelName: "),
        (
            |r| r.execution_role_arn = "me".into(),
            "ExecutionRoleArn: 'me' is no role",
        ),
        (|r| r.primary_container.image.clear(), "PrimaryContainer.Image: "),
        (
            |r| r.primary_container.model_data_url = "runs/a".into(),
            "PrimaryContainer.ModelDataUrl: 'runs/a'",
        ),
        (
            |r| {
                r.primary_container.environment = (0..101).map(|n| (format!("A{n}"), String::new())).collect()
            },
            "PrimaryContainer.Environment: has 101",
        ),
    ];
    for (change, start) in cases {
        let mut request = model();
        change(&mut request);
        let message = request.check().unwrap_err().to_string();
        assert!(message.starts_with(start), "{start}: {message}");
    }
}

const TIME: Duration = Duration::from_secs(2);

fn described(image: &str) -> Value {
    let model = serde_json::to_value(model()).unwrap();
    let mut described = model.clone();
    described["ModelArn"] = json!("arn:flowers");
    described["PrimaryContainer"]["Image"] = json!(image);
    described
}

#[test]
fn a_model_that_is_there_already_is_used_and_another_of_its_name_is_not() {
    let image = model().primary_container.image;
    let stub = Stub::start(move |_, _| Reply::Json(200, described(&image)));
    assert_eq!(stub.client(TIME).create_model(&model()).unwrap(), "arn:flowers");
    assert_eq!(stub.operations(), ["DescribeModel"]);

    let stub = Stub::start(|_, _| Reply::Json(200, described("another")));
    let error = stub.client(TIME).create_model(&model()).unwrap_err();
    assert!(matches!(error, SageMakerError::NameTaken { .. }), "{error}");
}

#[test]
fn a_lost_answer_leaves_one_transform() {
    let stub = Stub::start(|request, _| match request.operation.as_str() {
        "CreateTransformJob" => Reply::Closed,
        _ => Reply::Json(
            200,
            json!({
                "TransformJobName": "flowers-1", "TransformJobArn": "arn:flowers", "TransformJobStatus": "InProgress",
                "ModelName": "flowers-1", "CreationTime": 1.6e9,
                "TransformOutput": {"S3OutputPath": "s3://bucket/predictions"},
            }),
        ),
    });
    assert_eq!(
        stub.client(TIME).create_transform_job(&transform()).unwrap(),
        "arn:flowers"
    );
    assert_eq!(stub.operations(), ["CreateTransformJob", "DescribeTransformJob"]);
}

#[test]
fn moto_has_the_model_and_the_transform_that_were_asked_for() {
    let Some(moto) = Moto::start() else { return };
    let client = moto.client();
    client.require_free_transform_job("flowers-1").unwrap();
    let arn = client.create_model(&model()).unwrap();
    assert!(arn.ends_with(":model/flowers-1"), "{arn}");
    assert_eq!(client.create_model(&model()).unwrap(), arn);
    let arn = client.create_transform_job(&transform()).unwrap();
    let job = client.describe_transform_job("flowers-1").unwrap();
    assert_eq!(
        (&job.transform_job_arn, &job.model_name),
        (&arn, &"flowers-1".to_owned())
    );
    assert_eq!(job.transform_job_status, JobStatus::Completed);
    assert_eq!(job.transform_output.s3_output_path, "s3://bucket/predictions");
    let taken = client.require_free_transform_job("flowers-1").unwrap_err();
    assert!(matches!(taken, SageMakerError::NameTaken { .. }), "{taken}");
    let missing = client.describe_transform_job("gone").unwrap_err();
    assert!(missing.to_string().contains("no transform job gone"), "{missing}");
}
