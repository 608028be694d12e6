//! A script's code: what is sent of a folder, and what becomes of a job whose code cannot be.

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
use crate::{asked, planned, planned_text};

const SMALL: &str = include_str!("../requests/small/job.toml");

const SHORT: Duration = Duration::from_secs(1);

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
    fs::copy(crate::folder("full").join("job.toml"), &file).unwrap();
    let plan = Plan::new(&Job::read(&file).unwrap(), "flowers-1", "eu-west-1").unwrap();

    let client = moto.client();
    let mut options = options(moto.address(), Duration::from_secs(20));
    options.timeout = Duration::from_secs(10);
    let arn = plan.submit(&client, &options).unwrap();
    assert!(arn.ends_with("training-job/flowers-1"), "{arn}");
    let job = client.describe("flowers-1").unwrap();
    assert_eq!(job.training_job_status, JobStatus::Completed);
    assert_eq!(job.hyper_parameters, plan.request.hyper_parameters);

    // Nothing of the first job is overwritten.
    fs::write(src.join("train.py"), "print('other')").unwrap();
    let taken = plan.submit(&client, &options).unwrap_err();
    assert!(matches!(taken, SageMakerError::NameTaken { .. }), "{taken}");

    options
        .settings
        .push(("AWS_REGION".to_owned(), "eu-west-1".to_owned()));
    let bucket = Bucket::with_options("s3://bucket/out/flowers-1/source", options).unwrap();
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
        "dir": "s3://bucket/out/flowers-1/source/sourcedir.tar.gz",
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
    let small = Job::read(&crate::folder("small").join("job.toml")).unwrap();
    let stored = serde_json::to_string(&small).unwrap();
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
    let text = text + "[sagemaker.channels]\ntrain = \"s3://bucket/train\"\n";
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
fn an_archive_is_used_as_it_is() {
    for (place, is_there) in [("s3://bucket/a/sourcedir.tar.gz", true), ("code.tgz", false)] {
        let text = SMALL.replace("[sagemaker]", &format!("source-dir = \"{place}\"\n[sagemaker]"));
        let plan = planned_text(&text).unwrap();
        match &plan.source {
            Source::There => assert!(is_there && plan.source_uri == place, "{plan:?}"),
            Source::Archive { path, .. } => {
                assert!(!is_there && path.ends_with(place), "{plan:?}");
                assert!(Path::new(&plan.source_uri).ends_with("flowers-1/source/sourcedir.tar.gz"));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn refusal(code: &str, message: &str) -> Reply {
    Reply::Json(400, json!({"__type": code, "message": message}))
}

/// What each part of a submission meets, and what is said; never is a job created.
#[test]
fn a_submission_that_breaks_before_its_job_leaves_none() {
    type Answer = fn() -> Reply;
    let closed: Answer = || Reply::Closed;
    let missing: Answer = || refusal("ValidationException", "Requested resource not found.");
    let expired: Answer = || refusal("ExpiredTokenException", "The security token is expired");
    let throttled: Answer = || refusal("ThrottlingException", "Rate exceeded");
    let expired_in_bucket: Answer = || {
        Reply::Xml(
            400,
            "<?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
        )
    };
    // S3 answers so to a signature for another region, and so to a request at another region's host.
    let malformed: Answer = || {
        Reply::Xml(
            400,
            "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is \
             malformed; the region 'eu-west-1' is wrong; expecting 'us-east-1'</Message><Region>us-east-1</Region></Error>",
        )
    };
    let elsewhere: Answer = || {
        Reply::Xml(
            301,
            "<?xml version=\"1.0\"?><Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must \
             be addressed using the specified endpoint.</Message></Error>",
        )
    };
    let code = "s3://bucket/out/flowers-1/source/sourcedir.tar.gz: ";
    for (describe, bucket, says, is_input) in [
        (missing, closed, [code, ""], false),
        (missing, expired_in_bucket, [code, ""], true),
        (missing, malformed, [code, "expecting 'us-east-1'"], false),
        (missing, elsewhere, [code, "region"], false),
        (closed, closed, ["DescribeTrainingJob at ", ""], false),
        (expired, closed, ["is expired (ExpiredTokenException)", ""], true),
        (throttled, closed, ["Rate exceeded", ""], false),
    ] {
        let stub = Stub::start(move |request, _| match request.operation.as_str() {
            "DescribeTrainingJob" => describe(),
            "CreateTrainingJob" => refusal("InternalFailure", "it should not come to this"),
            _ => bucket(),
        });
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &[("train.py", "pass"), ("job.toml", SMALL)]);
        let plan = planned(&folder.path().join("job.toml")).unwrap();
        let error = plan
            .submit(&stub.client(SHORT), &options(&stub.address, SHORT))
            .unwrap_err();
        for says in says {
            assert!(error.to_string().contains(says), "{says}: {error}");
        }
        assert_eq!(error.is_input(), is_input, "{error}");
        assert!(!error.to_string().contains("of-the-test"), "{error}");
        assert!(
            !stub.operations().iter().any(|one| one == "CreateTrainingJob"),
            "{error}"
        );
    }
}
