//! Machines of different types.

use stokehold_base::fault::Fault;
use stokehold_sagemaker::{CreateTrainingJob, InstanceGroup};

use crate::{plans::job, small, wrong};

const GROUPS: &str = r#"
entry-point = "train.py"
output = "s3://bucket/out"
distribution = "torch"
[channels]
train = "s3://bucket/train"
labels = "s3://bucket/labels"
[sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
image = "registry/train:1"
[[sagemaker.instance-groups]]
name = "loaders"
instance-type = "ml.c5.xlarge"
instances = 3
channels = ["labels"]
[[sagemaker.instance-groups]]
name = "trainers"
instance-type = "ml.p3.2xlarge"
instances = 1
"#;

fn planned(text: &str) -> Result<CreateTrainingJob, stokehold_sagemaker::SageMakerError> {
    let plan = stokehold_sagemaker::Plan::new(&job(text), "flowers-1", "eu-west-1");
    plan.map(|plan| plan.request)
}

#[test]
fn groups_take_the_place_of_one_type() {
    let request = serde_json::to_value(planned(GROUPS).unwrap()).unwrap();
    assert_eq!(
        request["ResourceConfig"],
        serde_json::json!({"InstanceGroups": [
            {"InstanceGroupName": "loaders", "InstanceType": "ml.c5.xlarge", "InstanceCount": 3},
            {"InstanceGroupName": "trainers", "InstanceType": "ml.p3.2xlarge", "InstanceCount": 1}],
            "VolumeSizeInGB": 30})
    );
    let groups = |place: usize| {
        request["InputDataConfig"][place]["DataSource"]["S3DataSource"]
            .get("InstanceGroupNames")
            .cloned()
    };
    assert_eq!(
        (groups(0), groups(1)),
        (None, Some(serde_json::json!(["trainers"])))
    );
    // The toolkit takes each machine's own type then.
    assert!(
        request["HyperParameters"]
            .get("sagemaker_instance_type")
            .is_none()
    );
    let Some(found) = wrong(&[("sagemaker", "CreateTrainingJob", request)]) else {
        return;
    };
    assert_eq!(found, "");
}

#[test]
fn what_is_wrong_with_groups_is_named() {
    let change = |from: &str, to: &str| GROUPS.replace(from, to);
    for (text, says) in [
        (
            change("[\"labels\"]", "[\"label\"]"),
            "group loaders gets channel label, and [channels] has none",
        ),
        (
            change("instances = 1\n", "instances = 1\nchannels = [\"labels\"]\n"),
            "channel train: no group of [sagemaker] instance-groups gets it",
        ),
        (
            change("train = \"s3://bucket/train\"", "train = \"/data\"")
                + "[sagemaker.channels]\ntrain = \"efs://fs-1/a\"\n",
            "channel train: all groups of [sagemaker] instance-groups have a file system",
        ),
        (
            change(
                "image = \"registry/train:1\"",
                "framework = \"pytorch\"\nframework-version = \"2.6.0\"\npython-version = \"py312\"",
            ),
            "has machines with and without GPUs",
        ),
        (
            change("ml.c5.xlarge", "c5.xlarge"),
            "ResourceConfig.InstanceGroups.loaders: 'c5.xlarge' is no type of machine",
        ),
    ] {
        let error = planned(&text).unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains(says),
            "{says}: {error}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let more: String = (0..4)
        .map(|number| format!("[[sagemaker.instance-groups]]\nname = \"{number}\"\ninstance-type = \"ml.x\"\ninstances = 1\n"))
        .collect();
    for (text, says) in [
        (
            change("instances = 3", "instances = 0"),
            "group loaders has instances = 0",
        ),
        (change("\"loaders\"", "\"trainers\""), "has two groups trainers"),
        (change("\"loaders\"", "\"\""), "1 to 64 characters"),
        (
            change("instances = 3", "instances = 3\nprice = -1.0"),
            "price = -1 is not above 0",
        ),
        (
            GROUPS.to_owned() + &more,
            "has 6 groups; SageMaker takes at most 5",
        ),
    ] {
        let path = folder.path().join("job.toml");
        std::fs::write(&path, text).unwrap();
        let error = stokehold_jobs::Job::read(&path).unwrap().check().unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains(says),
            "{says}: {error}"
        );
    }
}

#[test]
fn requests_with_groups_are_checked() {
    let group = |name: &str, kind: &str, count| InstanceGroup {
        instance_group_name: name.into(),
        instance_type: kind.into(),
        instance_count: count,
    };
    let cases: [(Vec<InstanceGroup>, &str); 6] = [
        (
            vec![group("a", "g5", 1)],
            "ResourceConfig.InstanceGroups.a: 'g5' is no type",
        ),
        (
            vec![group("a", "ml.g5.xlarge", 0)],
            "ResourceConfig.InstanceGroups.a: has no machine",
        ),
        (
            vec![group("", "ml.g5.xlarge", 1)],
            "ResourceConfig.InstanceGroups.: the name of a group",
        ),
        (
            vec![group("a", "ml.g5.xlarge", 1); 2],
            "ResourceConfig.InstanceGroups.a: there are two",
        ),
        (
            vec![group("a", "ml.g5.xlarge", 1); 6],
            "ResourceConfig.InstanceGroups: has 6 groups",
        ),
        (vec![], "ResourceConfig.InstanceType: ''"),
    ];
    for (groups, start) in cases {
        let mut request = small();
        request.resource_config.instance_type.clear();
        request.resource_config.instance_count = 0;
        request.resource_config.instance_groups = groups;
        let error = request.check().unwrap_err().to_string();
        assert!(error.starts_with(start), "{start}: {error}");
    }
    let mut request = small();
    request.resource_config.instance_groups = vec![group("a", "ml.g5.xlarge", 1)];
    let error = request.check().unwrap_err().to_string();
    assert!(error.contains("has groups beside a type"), "{error}");
}
