//! From a job file to the request, and to a job.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_jobs::Job;
use stokehold_objects::Bucket;
use stokehold_sagemaker::{JobStatus, Plan, SageMakerError, Source};

use crate::moto::Moto;
use crate::stub::{Reply, Stub, options};
use crate::{asked, wrong};

const SMALL: &str = "entry-point = \"train.py\"\noutput = \"s3://bucket/out\"\ninstance-type = \"ml.g5.xlarge\"\n\
    [sagemaker]\nrole = \"arn:aws:iam::123456789012:role/trains\"\nimage = \"registry/train:1\"\n";

/// A job as people run it: ResNet with a choice of loaders, a profile at 500 ms, spot machines with checkpoints.
pub const PUBLISHED: &str = r#"
name = "resnet-1"
entry-point = "train.py"
source-dir = "src"
output = "s3://bucket/out/"
checkpoints = "s3://bucket/checkpoints/resnet-1"
instance-type = "ml.p3.8xlarge"
instances = 2
distribution = "torch"
max-run-seconds = 3600
python = "python3.12"
[hyperparameters]
lr = 0.1
loader = "dali"
augment = true
sizes = [224, 256]
[channels]
train = "data/train"
validation = "s3://bucket/validation,mode=FastFile,distribution=ShardedByS3Key,content-type=image/jpeg"
cached = "s3://bucket/cached,mode=Cache"
boxes = "s3://bucket/m,mode=Pipe,kind=AugmentedManifestFile,attributes=source-ref+label,wrapper=RecordIO,shuffle=7"
zipped = "s3://bucket/z,mode=Pipe,compression=Gzip"
shared = "/mnt/efs/shared,kind=Mount,access=rw"
[environment]
OMP_NUM_THREADS = "4"
[[metrics]]
name = "loss"
regex = "loss=([0-9.]+)"
[profiler]
interval = "500ms"
rules = ["all"]
[spot]
max-wait-seconds = 7200
[sagemaker]
role = "arn:aws:iam::123456789012:role/trains"
region = "eu-west-1"
framework = "pytorch"
framework-version = "2.6.0"
python-version = "py312"
volume-gigabytes = 100
kms-key = "alias/mine"
volume-kms-key = "0123-abc"
network-isolation = true
encrypt-traffic = true
subnets = ["subnet-0123456789"]
security-groups = ["sg-0123456789"]
[sagemaker.tags]
team = "vision"
[sagemaker.channels]
train = "fsx://fs-0123456789abcdef0/fsx/train"
shared = "efs://fs-0123456789abcdef1/shared"
"#;

pub fn job(text: &str) -> Job {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    fs::write(&path, text).unwrap();
    let job = Job::read(&path).unwrap();
    job.check().unwrap();
    job
}

fn planned(text: &str) -> Result<Plan, SageMakerError> {
    Plan::new(&job(text), "flowers-1", "eu-west-1")
}

#[test]
fn a_job_file_becomes_the_request() {
    let plan = Plan::new(&job(PUBLISHED), "resnet-1", "eu-west-1").unwrap();
    let request = serde_json::to_value(&plan.request).unwrap();
    let s3 = |kind: &str, uri: &str, distribution: &str| json!({"S3DataSource": {"S3DataType": kind, "S3Uri": uri, "S3DataDistributionType": distribution}});
    let files = |id: &str, kind: &str, access: &str, path: &str| {
        json!({"FileSystemDataSource": {"FileSystemId": id, "FileSystemType": kind, "FileSystemAccessMode": access,
            "DirectoryPath": path}})
    };
    let mut boxes = s3("AugmentedManifestFile", "s3://bucket/m", "FullyReplicated");
    boxes["S3DataSource"]["AttributeNames"] = json!(["source-ref", "label"]);
    let wanted = json!({
        "TrainingJobName": "resnet-1",
        "RoleArn": "arn:aws:iam::123456789012:role/trains",
        "AlgorithmSpecification": {
            "TrainingImage": "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "HyperParameters": {
            "augment": "true",
            "loader": "\"dali\"",
            "lr": "0.1",
            "sizes": "[224,256]",
            "sagemaker_container_log_level": "20",
            "sagemaker_instance_type": "\"ml.p3.8xlarge\"",
            "sagemaker_job_name": "\"resnet-1\"",
            "sagemaker_program": "\"train.py\"",
            "sagemaker_region": "\"eu-west-1\"",
            "sagemaker_submit_directory": "\"s3://bucket/out/resnet-1/source/sourcedir.tar.gz\"",
            "sagemaker_torch_distributed_enabled": "true",
        },
        "InputDataConfig": [
            {"ChannelName": "boxes", "DataSource": boxes, "InputMode": "Pipe", "RecordWrapperType": "RecordIO",
             "ShuffleConfig": {"Seed": 7}},
            {"ChannelName": "cached", "DataSource": s3("S3Prefix", "s3://bucket/cached", "FullyReplicated"),
             "InputMode": "FastFile"},
            {"ChannelName": "shared", "DataSource": files("fs-0123456789abcdef1", "EFS", "rw", "/shared")},
            {"ChannelName": "train", "DataSource": files("fs-0123456789abcdef0", "FSxLustre", "ro", "/fsx/train")},
            {"ChannelName": "validation", "DataSource": s3("S3Prefix", "s3://bucket/validation", "ShardedByS3Key"),
             "ContentType": "image/jpeg", "InputMode": "FastFile"},
            {"ChannelName": "zipped", "DataSource": s3("S3Prefix", "s3://bucket/z", "FullyReplicated"),
             "InputMode": "Pipe", "CompressionType": "Gzip"},
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out", "KmsKeyId": "alias/mine"},
        "ResourceConfig": {"InstanceType": "ml.p3.8xlarge", "InstanceCount": 2, "VolumeSizeInGB": 100,
            "VolumeKmsKeyId": "0123-abc"},
        "EnableNetworkIsolation": true,
        "EnableInterContainerTrafficEncryption": true,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
        "VpcConfig": {"SecurityGroupIds": ["sg-0123456789"], "Subnets": ["subnet-0123456789"]},
        "EnableManagedSpotTraining": true,
        "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints/resnet-1"},
        "ProfilerConfig": {"S3OutputPath": "s3://bucket/out", "ProfilingIntervalInMilliseconds": 500,
            "DisableProfiler": false},
        "Environment": {"OMP_NUM_THREADS": "4", "SM_CHECKPOINT_DIR": "/opt/ml/checkpoints"},
        "Tags": [{"Key": "team", "Value": "vision"}],
    });
    assert_eq!(request, wanted, "{request:#}");
    assert!(matches!(plan.source, Source::Folder { .. }));
    let notes = plan.notes.join("\n");
    for says in [
        "python has no counterpart",
        "[profiler] rules",
        "channel cached: mode Cache is FastFile",
        "channels cached, validation, zipped: SageMaker takes every object whose key begins like the URI",
    ] {
        assert!(notes.contains(says), "{notes}");
    }
    assert_eq!(plan.notes.len(), 4, "{notes}");
    let Some(found) = wrong(&[("sagemaker", "CreateTrainingJob", request)]) else {
        return;
    };
    assert_eq!(found, "");
}

#[test]
fn every_launcher_has_its_words() {
    for (distribution, wanted) in [
        (
            "mpi",
            json!({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "\"\"",
            "sagemaker_mpi_num_of_processes_per_host": "3"}),
        ),
        (
            "torch",
            json!({"sagemaker_torch_distributed_enabled": "true", "sagemaker_instance_type": "\"ml.g5.xlarge\"",
            "sagemaker_mpi_num_of_processes_per_host": "3"}),
        ),
        (
            "smdistributed",
            json!({"sagemaker_distributed_dataparallel_enabled": "true",
            "sagemaker_distributed_dataparallel_custom_mpi_options": "\"\"",
            "sagemaker_instance_type": "\"ml.g5.xlarge\"", "sagemaker_mpi_num_of_processes_per_host": "3"}),
        ),
        ("none", json!({})),
    ] {
        let text =
            format!("distribution = \"{distribution}\"\nprocesses-per-host = 3\nprofile = false\n{SMALL}");
        let plan = planned(&text).unwrap();
        let usual = [
            "program",
            "submit_directory",
            "container_log_level",
            "job_name",
            "region",
        ];
        let mut own = plan.request.hyper_parameters.clone();
        for name in usual {
            assert!(own.remove(&format!("sagemaker_{name}")).is_some(), "{name}");
        }
        assert_eq!(json!(own), wanted, "{distribution}");
        assert!(plan.request.profiler_config.unwrap().disable_profiler);
    }
}

#[test]
fn images_are_those_of_awss_registries() {
    // Accounts and names of repositories are those of the tables of SageMaker's Python SDK.
    for (region, machine, framework, wanted) in [
        (
            "us-east-1",
            "ml.m5.large",
            "pytorch",
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312",
        ),
        (
            "us-west-1",
            "ml.p4d.24xlarge",
            "pytorch",
            "763104351884.dkr.ecr.us-west-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312",
        ),
        (
            "af-south-1",
            "ml.g4dn.xlarge",
            "tensorflow",
            "626614931356.dkr.ecr.af-south-1.amazonaws.com/tensorflow-training:2.6.0-gpu-py312",
        ),
        (
            "cn-north-1",
            "ml.c5.xlarge",
            "pytorch",
            "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch-training:2.6.0-cpu-py312",
        ),
    ] {
        let text = SMALL.replace("ml.g5.xlarge", machine).replace(
            "image = \"registry/train:1\"",
            &format!(
                "framework = \"{framework}\"\nframework-version = \"2.6.0\"\npython-version = \"py312\""
            ),
        );
        let plan = Plan::new(&job(&text), "flowers-1", region).unwrap();
        assert_eq!(plan.request.algorithm_specification.training_image, wanted);
    }
}

#[test]
fn what_sagemaker_has_no_counterpart_of_is_named() {
    let image = "image = \"registry/train:1\"";
    let of = |version: &str, python: &str| {
        format!("framework = \"pytorch\"\nframework-version = \"{version}\"\npython-version = \"{python}\"")
    };
    let change = |from: &str, to: &str| SMALL.replace(from, to);
    let with = |lines: &str| change("[sagemaker]\n", &format!("{lines}\n[sagemaker]\n"));
    let cases = [
        (
            change("[sagemaker]\n", "[environment]\n"),
            "no section [sagemaker]",
        ),
        (
            change("output = \"s3://bucket/out\"\n", ""),
            "write output = \"s3://",
        ),
        (change("s3://bucket/out", "/out"), "write output = \"s3://"),
        (
            change("instance-type = \"ml.g5.xlarge\"\n", ""),
            "write instance-type",
        ),
        (
            change("ml.g5.xlarge", "g5.xlarge"),
            "ResourceConfig.InstanceType: 'g5.xlarge'",
        ),
        (
            change("arn:aws:iam::123456789012:role/trains", ""),
            "RoleArn: '' is no role; give one",
        ),
        (change(image, ""), "[sagemaker] wants an image"),
        (
            change(image, &format!("{image}\nframework = \"pytorch\"")),
            "[sagemaker] wants an image",
        ),
        (
            change(image, &of("2.6", "py312")),
            "framework-version = \"2.6\" is no whole version",
        ),
        (
            change(image, &of("2.6.0", "3.12")),
            "python-version = \"3.12\" is no Python",
        ),
        (
            change(image, &of("2.6.0", "py312")).replace("ml.g5.xlarge", "ml.trn1.2xlarge"),
            "images for ml.trn1.2xlarge are not known",
        ),
        (
            with("checkpoints = \"/c\""),
            "checkpoints = \"/c\": SageMaker mirrors",
        ),
        (
            with("[environment]\nAWS_SECRET_ACCESS_KEY = \"hidden\""),
            "[environment] has AWS_SECRET_ACCESS_KEY",
        ),
        (
            with("[channels]\ntrain = \"/data/train\""),
            "channel train: SageMaker cannot read /data/train",
        ),
        (
            with("[channels]\ntrain = \"gs://bucket/train\""),
            "channel train: SageMaker cannot read gs://bucket/train",
        ),
        (
            with("[channels]\ntrain = \"s3://b/t,mode=Cache,access=rw\""),
            "channel train: SageMaker writes nothing back",
        ),
        (
            format!("{SMALL}[sagemaker.channels]\ntrain = \"s3://b/t\"\n"),
            "[channels] has not; write it there",
        ),
        (
            with("[channels]\ntrain = \"s3://b/t,mode=FastFile\"")
                + "[sagemaker.channels]\ntrain = \"efs://fs-12345678/t\"\n",
            "channel train: a file system is used as it is",
        ),
        (
            with("[channels]\ntrain = \"/t\"") + "[sagemaker.channels]\ntrain = \"efs://fs-12345678\"\n",
            "channel train: efs://fs-12345678 names no folder",
        ),
        (
            with("[channels]\ntrain = \"/t\"") + "[sagemaker.channels]\ntrain = \"efs://fs-12345678/t\"\n",
            "InputDataConfig.train: a file system is reached through a network",
        ),
        (with("[spot]"), "write max-wait-seconds, more than 86400"),
        (
            with("[spot]\nmax-wait-seconds = 90000")
                .replace(image, &format!("{image}\nkeep-alive-seconds = 60")),
            "spot machines are not kept",
        ),
        (
            with("[profiler]\ninterval = \"300ms\""),
            "ProfilerConfig.ProfilingIntervalInMilliseconds: is 300; choose one of",
        ),
        (
            with("max-run-seconds = 3000000000"),
            "max-run-seconds = 3000000000 is more than SageMaker takes",
        ),
        (
            change("\"train.py\"", "\"module:a.b\"\nsource-dir = \"src\""),
            "entry-point = \"module:a.b\": SageMaker's toolkit runs files",
        ),
        (
            with("source-dir = \"s3://bucket/src\""),
            "source-dir = \"s3://bucket/src\": SageMaker's toolkit fetches an archive",
        ),
        (
            with("source-dir = \"gs://bucket/src.tar.gz\""),
            "fetches an archive",
        ),
    ];
    for (text, says) in cases {
        // Keys of the file's first table come before its sections.
        let text = sorted(&text);
        let error = planned(&text).unwrap_err();
        assert!(
            error.to_string().contains(says) && error.is_input(),
            "{says}: {error}\n{text}"
        );
        assert!(!error.to_string().contains("hidden"), "{error}");
    }
    let text = SMALL.replace(image, &of("2.6.0", "py312"));
    let error = Plan::new(&job(&text), "flowers-1", "xx-west-9").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("images in xx-west-9 is not known here; give image"),
        "{error}"
    );
}

/// The file with the lines of its first table before all others.
fn sorted(text: &str) -> String {
    let mut is_first = true;
    let (mut first, mut rest) = (String::new(), String::new());
    for line in text.lines() {
        is_first &= !line.starts_with('[');
        let into = if is_first { &mut first } else { &mut rest };
        into.push_str(line);
        into.push('\n');
    }
    first + &rest
}

#[test]
fn secrets_of_a_shown_job_are_not_in_its_request() {
    let text = SMALL.replace(
        "[sagemaker]\n",
        "[environment]\nHF_TOKEN = \"my-own-secret\"\n[sagemaker]\n",
    );
    let job = job(&text);
    let request =
        |job: &Job| serde_json::to_string(&Plan::new(job, "a", "eu-west-1").unwrap().request).unwrap();
    assert!(request(&job).contains("my-own-secret"));
    let shown = request(&job.without_secrets());
    assert!(
        !shown.contains("my-own-secret") && shown.contains("\"HF_TOKEN\":\"(hidden)\""),
        "{shown}"
    );
}

/// What the toolkit makes of an archive and of hyperparameters: the files of the code's folder, the program, what the script
/// gets, and what it does not.
const TOOLKIT: &str = "import json, os, sys, tempfile\n\
    base = os.environ['SAGEMAKER_BASE_DIR'] = tempfile.mkdtemp()\n\
    from sagemaker_training import environment, files, params\n\
    got = json.load(sys.stdin)\n\
    os.makedirs(os.path.dirname(environment.hyperparameters_file_dir), exist_ok=True)\n\
    json.dump(got['hyperparameters'], open(environment.hyperparameters_file_dir, 'w'))\n\
    json.dump({}, open(environment.input_data_config_file_dir, 'w'))\n\
    json.dump({'current_host': 'algo-1', 'hosts': ['algo-1']}, open(environment.resource_config_file_dir, 'w'))\n\
    files.download_and_extract(got['archive'], base + '/code')\n\
    names = sorted(os.path.relpath(os.path.join(d, f), base + '/code') for d, _, fs in os.walk(base + '/code') for f in fs)\n\
    env = environment.Environment()\n\
    print(json.dumps(dict(names=names, program=env.user_entry_point, dir=env.module_dir,\n\
    \x20   script=env.hyperparameters, runs=open(base + '/code/train.py').read())))\n";

#[test]
fn moto_gets_the_code_and_the_job_and_the_toolkit_reads_both() {
    let Some(mut moto) = Moto::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let src = folder.path().join("src");
    fs::create_dir_all(src.join("lib/empty")).unwrap();
    fs::write(src.join("train.py"), "print('hello')").unwrap();
    fs::write(src.join("lib/a.py"), "a = 1").unwrap();
    fs::write(folder.path().join("outside.py"), "b = 1").unwrap();
    std::os::unix::fs::symlink("../outside.py", src.join("linked.py")).unwrap();
    let file = folder.path().join("job.toml");
    fs::write(&file, PUBLISHED).unwrap();
    let plan = Plan::new(&Job::read(&file).unwrap(), "resnet-1", "eu-west-1").unwrap();

    let client = moto.client();
    let mut options = options(moto.address(), Duration::from_secs(20));
    options.timeout = Duration::from_secs(10);
    let arn = plan.submit(&client, &options).unwrap();
    assert!(arn.ends_with("training-job/resnet-1"), "{arn}");
    let job = client.describe("resnet-1").unwrap();
    assert_eq!(job.training_job_status, JobStatus::Completed);
    assert_eq!(job.hyper_parameters, plan.request.hyper_parameters);

    // Nothing of the first job is overwritten.
    fs::write(src.join("train.py"), "print('other')").unwrap();
    let taken = plan.submit(&client, &options).unwrap_err();
    assert!(matches!(taken, SageMakerError::NameTaken { .. }), "{taken}");

    options
        .settings
        .push(("AWS_REGION".to_owned(), "eu-west-1".to_owned()));
    let bucket = Bucket::with_options("s3://bucket/out/resnet-1/source", options).unwrap();
    let mut bytes = Vec::new();
    bucket.fetch("sourcedir.tar.gz", &mut bytes).unwrap();
    let archive = folder.path().join("sourcedir.tar.gz");
    fs::write(&archive, bytes).unwrap();
    moto.print("a line, so that the server is still there");
    let input = json!({"archive": archive, "hyperparameters": job.hyper_parameters});
    let Some(answer) = asked("STOKEHOLD_TEST_TOOLKIT", TOOLKIT, &input) else {
        return;
    };
    let found: Value = serde_json::from_str(answer.trim().lines().last().unwrap()).unwrap();
    let wanted = json!({
        "names": ["lib/a.py", "linked.py", "train.py"],
        "program": "train.py",
        "dir": "s3://bucket/out/resnet-1/source/sourcedir.tar.gz",
        "script": {"augment": true, "loader": "dali", "lr": 0.1, "sizes": [224, 256]},
        "runs": "print('hello')",
    });
    assert_eq!(found, wanted);
}

/// A file, under its own name.
fn of_file(path: &Path) -> Source {
    Source::File {
        path: path.to_owned(),
        name: path.file_name().unwrap_or_default().into(),
    }
}

/// A folder with train.py, and with channels below it.
fn of_folder(path: &Path, channels: &[&str]) -> Source {
    Source::Folder {
        path: path.to_owned(),
        entry_point: "train.py".into(),
        channels: channels.iter().map(|name| path.join(name)).collect(),
    }
}

/// Writes files, and the folders that they are in.
fn put(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// The names in an archive.
fn names(packed: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect()
}

/// The bytes of a source, as they come to a folder.
fn uploaded(source: &Source) -> Result<Vec<u8>, SageMakerError> {
    let place = tempfile::tempdir().unwrap();
    let uri = format!("{}/sourcedir.tar.gz", place.path().display());
    let size = source.upload(&uri, &options("http://127.0.0.1:1", Duration::from_secs(1)))?;
    let bytes = fs::read(place.path().join("sourcedir.tar.gz")).unwrap();
    assert_eq!(size, bytes.len() as u64);
    Ok(bytes)
}

#[test]
fn the_same_files_make_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    fs::write(&path, "x").unwrap();
    let first = uploaded(&of_folder(folder.path(), &[])).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    assert_eq!(uploaded(&of_folder(folder.path(), &[])).unwrap(), first);
    assert_eq!(uploaded(&of_file(&path)).unwrap(), first);
    fs::write(&path, "y").unwrap();
    assert_ne!(uploaded(&of_file(&path)).unwrap(), first);
    let archive = folder.path().join("code.tgz");
    fs::write(&archive, &first).unwrap();
    let archive = Source::Archive {
        path: archive,
        entry_point: "train.py".into(),
    };
    assert_eq!(uploaded(&archive).unwrap(), first);
}

#[test]
fn hidden_files_stay_here_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        "train.py",
        ".env",
        ".git/config",
        "lib/a.py",
        "lib/.aws/credentials",
        "lib/__pycache__/a.pyc",
    ];
    put(folder.path(), &files.map(|name| (name, "x")));
    let source = of_folder(folder.path(), &[]);
    let packed = uploaded(&source).unwrap();
    assert_eq!(names(&packed), ["lib", "lib/a.py", "train.py"]);
    assert_eq!(
        source.notes().unwrap(),
        [
            "hidden files and caches of source-dir are not uploaded, 4 in all: .env, .git, lib/.aws, lib/__pycache__".to_owned(),
            format!("the archive of the code has {} bytes and 2 files", packed.len())
        ]
    );
    for number in 0..20 {
        fs::write(folder.path().join(format!(".{number}")), "").unwrap();
    }
    let says = source.notes().unwrap().remove(0);
    assert!(says.contains("24 in all: ") && says.ends_with(", .."), "{says}");
    for dir in ["\nsource-dir = \"src\"", ""] {
        let hidden = SMALL.replace("\"train.py\"", &format!("\".lib/train.py\"{dir}"));
        let error = planned(&sorted(&hidden)).unwrap_err().to_string();
        assert!(error.contains("hidden files are not uploaded"), "{error}");
    }
}

#[test]
fn links_to_hidden_files_stay_here() {
    let folder = tempfile::tempdir().unwrap();
    // The project as a whole may be hidden.
    let project = folder.path().join(".projects/flowers");
    put(
        &project,
        &[
            ("src/train.py", "x"),
            (".env", "TOKEN=x"),
            ("shared.py", "y"),
            (".aws/credentials", "z"),
        ],
    );
    for (target, name) in [
        ("../.env", "settings"),
        ("settings", "again"),
        ("../.aws", "cloud"),
        ("../.aws/credentials", "keys.txt"),
        ("../shared.py", "shared.py"),
    ] {
        std::os::unix::fs::symlink(target, project.join("src").join(name)).unwrap();
    }
    let source = of_folder(&project.join("src"), &[]);
    assert_eq!(names(&uploaded(&source).unwrap()), ["shared.py", "train.py"]);
    let note = source.notes().unwrap().remove(0);
    assert!(
        note.ends_with("4 in all: again, cloud, keys.txt, settings"),
        "{note}"
    );
    // A file that is sent by itself, too.
    let error = uploaded(&of_file(&project.join("src/settings"))).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("settings"),
        "{error}"
    );
}

#[test]
fn job_files_and_channels_stay_here() {
    let folder = tempfile::tempdir().unwrap();
    let study = "[study]\nobjective = \"loss\"\n";
    let stored = serde_json::to_string(&job(SMALL)).unwrap();
    put(
        folder.path(),
        &[
            ("train.py", "objective = 'entry-point'"),
            ("job.toml", SMALL),
            ("more/other.conf", SMALL),
            (
                "study.toml",
                &format!("{study}[job]\nentry-point = \"train.py\"\n"),
            ),
            ("named.toml", &format!("job = \"job.toml\"\n{study}")),
            ("tried/plan.json", &format!("{{\"job\": {stored}}}")),
            ("settings.toml", "job = \"x\"\nobjective = \"loss\""),
            ("pyproject.toml", "[project.entry-points]\nx = \"y\""),
            ("data/train/a.jpg", "jpg"),
            ("data/words.txt", "x"),
        ],
    );
    std::os::unix::fs::symlink("data", folder.path().join("linked")).unwrap();
    let file = folder.path().join("job.toml");
    let text = SMALL.replace(
        "[sagemaker]",
        "source-dir = \".\"\n[channels]\ntrain = \"data/train\"\n[sagemaker]",
    );
    let text = sorted(&text) + "[sagemaker.channels]\ntrain = \"s3://bucket/train\"\n";
    fs::write(&file, text).unwrap();
    let plan = Plan::new(&Job::read(&file).unwrap(), "flowers-1", "eu-west-1").unwrap();
    let packed = uploaded(&plan.source).unwrap();
    assert_eq!(
        names(&packed),
        [
            "data",
            "data/words.txt",
            "linked",
            "linked/words.txt",
            "more",
            "pyproject.toml",
            "settings.toml",
            "train.py",
            "tried"
        ]
    );
    assert_eq!(
        plan.source.notes().unwrap(),
        [
            "job files and study files of source-dir are not uploaded, 5 in all: job.toml, more/other.conf, named.toml, \
             study.toml, tried/plan.json"
                .to_owned(),
            "channels of source-dir are not uploaded, 2 in all: data/train, linked/train".to_owned(),
            format!("the archive of the code has {} bytes and 5 files", packed.len()),
        ]
    );
}

#[test]
fn an_entry_point_that_is_not_packed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &[("lib/a.py", "x"), ("train.py", "x")]);
    let path = || folder.path().to_owned();
    let archive = folder.path().join("code.tgz");
    fs::write(&archive, uploaded(&of_folder(folder.path(), &[])).unwrap()).unwrap();
    let other = folder.path().join("other.tgz");
    fs::write(&other, "no archive").unwrap();
    // As `tar czf code.tgz .` names them.
    let dotted = folder.path().join("dotted.tgz");
    let mut made = tar::Builder::new(flate2::write::GzEncoder::new(
        fs::File::create(&dotted).unwrap(),
        flate2::Compression::fast(),
    ));
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..10].copy_from_slice(b"./train.py");
    header.set_size(1);
    header.set_cksum();
    made.append(&header, &b"x"[..]).unwrap();
    made.into_inner().unwrap().finish().unwrap();

    let in_folder = |entry_point: &str, channels: &[&str]| Source::Folder {
        path: path(),
        entry_point: entry_point.into(),
        channels: channels.iter().map(|name| folder.path().join(name)).collect(),
    };
    let in_archive = |path: &Path, entry_point: &str| Source::Archive {
        path: path.to_owned(),
        entry_point: entry_point.into(),
    };
    for source in [
        in_folder("gone.py", &[]),
        in_folder("lib", &[]),
        in_folder("lib/a.py", &["lib"]),
        Source::Folder {
            path: path().join("nowhere"),
            entry_point: "train.py".into(),
            channels: Vec::new(),
        },
        in_archive(&archive, "gone.py"),
        in_archive(&archive, "lib"),
        in_archive(&other, "train.py"),
        in_archive(&path().join("nowhere.tgz"), "train.py"),
        of_file(&path().join("gone.py")),
    ] {
        for error in [uploaded(&source).unwrap_err(), source.notes().unwrap_err()] {
            assert!(error.is_input(), "{source:?}: {error}");
            let text = error.to_string();
            assert!(text.starts_with("source-dir: /"), "{source:?}: {text}");
        }
    }
    for source in [
        in_folder("lib/a.py", &[]),
        in_archive(&archive, "lib/a.py"),
        in_archive(&dotted, "train.py"),
    ] {
        uploaded(&source).unwrap();
    }
}

#[test]
fn a_source_that_cannot_be_packed_is_named() {
    let missing = uploaded(&of_file(Path::new("/no/train.py")))
        .unwrap_err()
        .to_string();
    assert!(missing.starts_with("source-dir: /no/train.py: "), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("again")).unwrap();
    let looped = uploaded(&of_folder(folder.path(), &[])).unwrap_err().to_string();
    assert!(
        looped.starts_with("source-dir: ") && looped.contains("again"),
        "{looped}"
    );
}

#[test]
fn an_entry_point_in_a_folder_has_its_name_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("scripts")).unwrap();
    fs::write(folder.path().join("scripts/train.py"), "x").unwrap();
    let file = folder.path().join("job.toml");
    fs::write(&file, SMALL.replace("\"train.py\"", "\"scripts/train.py\"")).unwrap();
    let plan = Plan::new(&Job::read(&file).unwrap(), "flowers-1", "eu-west-1").unwrap();
    assert_eq!(
        plan.request.hyper_parameters["sagemaker_program"],
        "\"scripts/train.py\""
    );
    assert_eq!(names(&uploaded(&plan.source).unwrap()), ["scripts/train.py"]);
}

#[test]
fn code_that_cannot_be_uploaded_leaves_no_job() {
    // The bucket's server refuses; SageMaker is never asked for a job.
    let stub = Stub::start(|_, _| {
        Reply::Json(
            400,
            json!({"__type": "ValidationException", "message": "Requested resource not found."}),
        )
    });
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), "x").unwrap();
    let file = folder.path().join("job.toml");
    fs::write(&file, SMALL).unwrap();
    let plan = Plan::new(&Job::read(&file).unwrap(), "flowers-1", "eu-west-1").unwrap();
    assert_eq!(plan.source, of_file(&folder.path().join("train.py")));
    let mut options = options("http://127.0.0.1:1", Duration::from_secs(1));
    options
        .settings
        .retain(|(name, _)| name != "AWS_ENDPOINT_URL_SAGEMAKER");
    options
        .settings
        .push(("AWS_ENDPOINT_URL_SAGEMAKER".to_owned(), stub.address.clone()));
    let client = stokehold_sagemaker::Client::open(Some("eu-west-1"), &options).unwrap();
    let error = plan.submit(&client, &options).unwrap_err();
    assert!(
        error.to_string().contains("s3://bucket/out/flowers-1/source"),
        "{error}"
    );
    assert_eq!(stub.operations(), ["DescribeTrainingJob"]);
}

#[test]
fn an_archive_in_a_bucket_is_used_as_it_is() {
    let text = sorted(&SMALL.replace(
        "[sagemaker]",
        "source-dir = \"s3://bucket/a/sourcedir.tar.gz\"\n[sagemaker]",
    ));
    let plan = planned(&text).unwrap();
    assert_eq!(
        (plan.source.clone(), plan.source_uri.as_str()),
        (Source::There, "s3://bucket/a/sourcedir.tar.gz")
    );
    let text = sorted(&SMALL.replace("[sagemaker]", "source-dir = \"code.tgz\"\n[sagemaker]"));
    let plan = planned(&text).unwrap();
    assert!(matches!(&plan.source, Source::Archive { path, .. } if path.ends_with("code.tgz")));
    assert!(Path::new(&plan.source_uri).ends_with("flowers-1/source/sourcedir.tar.gz"));
}

#[test]
fn a_bucket_in_another_region_is_named_and_leaves_no_job() {
    // S3 answers so to a signature for another region, and so to a request at another region's host.
    let malformed = "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header \
        is malformed; the region 'eu-west-1' is wrong; expecting 'us-east-1'</Message><Region>us-east-1</Region></Error>";
    let redirect = "<?xml version=\"1.0\"?><Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to \
        access must be addressed using the specified endpoint.</Message></Error>";
    for (status, body, says) in [
        (
            400,
            malformed,
            "the region 'eu-west-1' is wrong; expecting 'us-east-1'",
        ),
        (301, redirect, "region"),
    ] {
        let stub = Stub::start(move |request, _| match request.operation.as_str() {
            "DescribeTrainingJob" => Reply::Json(
                400,
                json!({"__type": "ValidationException", "message": "Requested resource not found."}),
            ),
            _ => Reply::Xml(status, body),
        });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), "x").unwrap();
        let file = folder.path().join("job.toml");
        fs::write(&file, SMALL).unwrap();
        let plan = Plan::new(&Job::read(&file).unwrap(), "flowers-1", "eu-west-1").unwrap();
        let short = Duration::from_secs(1);
        let error = plan
            .submit(&stub.client(short), &options(&stub.address, short))
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("s3://bucket/out/flowers-1/source/sourcedir.tar.gz: ") && text.contains(says),
            "{text}"
        );
        assert!(
            !stub.operations().iter().any(|one| one == "CreateTrainingJob"),
            "{text}"
        );
    }
}
