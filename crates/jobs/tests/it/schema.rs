//! The schema of job files says what their reader says.

use std::fs;

use serde_json::Value;
use stokehold_jobs::Job;

use crate::valid::is_valid;

fn agree(text: &str) -> (bool, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    fs::write(&path, text).unwrap();
    let read = Job::read(&path).and_then(|job| job.check()).is_ok();
    let value: Value = toml::from_str(text).unwrap();
    let schema = Job::schema();
    (read, is_valid(&value, &schema, &schema))
}

#[test]
fn schema_and_reader_agree() {
    let all = "entry-point = \"a.py\"\nname = \"x\"\nsource-dir = \"src\"\npython = \"python3\"\noutput = \"s3://b\"\n\
        max-run-seconds = 5\nstop-seconds = 0\ninstances = 2\ninstance-type = \"ml.x\"\ndistribution = \"torch\"\n\
        processes-per-host = 2\nprofile = false\nopt-ml = false\ncache-dir = \"/c\"\ncache-gigabytes = 1.5\n\
        [hyperparameters]\na = 1\nb = \"x\"\nc = [1, 2.5]\nd = { e = true }\n\
        [environment]\nA = \"b\"\n\
        [channels]\nt = \"s3://b/t,mode=File\"\nc = \"s3://b/t,mode=Cache\"\n\
        a = { uri = \"s3://b/m\", mode = \"Pipe\", kind = \"AugmentedManifestFile\", attributes = [\"x-ref\", \"y\"] }\n\
        f = { uri = \"f\", access = \"rw\" }\ng = \"g,access=rw\"\n\
        u = { uri = \"s3://b/u\", mode = \"Pipe\", shuffle = 7, wrapper = \"RecordIO\" }\n\
        [[metrics]]\nname = \"m\"\nregex = \"(.)\"\n\
        [sagemaker]\nkept = \"and not judged\"\n";
    for text in ["entry-point = \"a.py\"\n", all, Job::template()] {
        assert_eq!(agree(text), (true, true), "{text}");
    }
    for line in [
        "",
        "entry-point = 7",
        "entry-point = \"a\"\nentrypoint = \"b\"",
        "entry-point = \"a\"\ninstances = \"two\"",
        "entry-point = \"a\"\ninstances = 0",
        "entry-point = \"a\"\ninstances = 65",
        "entry-point = \"a\"\ninstances = 1.5",
        "entry-point = \"a\"\nmax-run-seconds = 0",
        "entry-point = \"a\"\nstop-seconds = -1",
        "entry-point = \"a\"\nprocesses-per-host = 0",
        "entry-point = \"a\"\ncache-gigabytes = 0",
        "entry-point = \"a\"\ncache-gigabytes = \"1GB\"",
        "entry-point = \"a\"\ndistribution = \"horovod\"",
        "entry-point = \"a\"\ndistribution = \"Torch\"",
        "entry-point = \"a\"\nprofile = \"no\"",
        "entry-point = \"a\"\nopt-ml = 1",
        "entry-point = \"a\"\n[channels.t]\nuri = \"d\"\naccess = \"RW\"",
        "entry-point = \"a\"\nhyperparameters = [1]",
        "entry-point = \"a\"\n[environment]\nA = 1",
        "entry-point = \"a\"\n[channels]\nt = 1",
        "entry-point = \"a\"\n[channels.t]\nmode = \"File\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmode = \"file\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmod = \"File\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmode = \"Pipe\"\nshuffle = -1",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\ndistribution = \"Sharded\"",
        "entry-point = \"a\"\nsagemaker = 1",
        "entry-point = \"a\"\n[[metrics]]\nname = \"m\"",
        "entry-point = \"a\"\n[[metrics]]\nname = \"m\"\nregex = \"(.)\"\nunit = \"s\"",
    ] {
        assert_eq!(agree(line), (false, false), "{line}");
    }
}

#[test]
fn every_key_is_explained() {
    let schema = Job::schema();
    let of_channels = &schema["$defs"]["Channel"]["properties"];
    for (key, rule) in [&schema["properties"], of_channels]
        .into_iter()
        .flat_map(|keys| keys.as_object().unwrap())
        .filter(|(key, _)| *key != "sagemaker")
    {
        assert!(
            Job::template().contains(key.as_str()),
            "job.toml does not explain {key}"
        );
        assert!(
            rule["description"].is_string(),
            "{key} has no description: {rule}"
        );
    }
}

#[test]
fn a_job_as_text_is_the_same_job_without_what_is_usual() {
    let text = "entry-point = \"a.py\"\nsource-dir = \"/src\"\ninstances = 2\n[hyperparameters]\nlr = 0.5\n[channels]\nt = \"s3://b/t\"\n\
                [environment]\nAPI_TOKEN = \"s3cret\"\nPLAIN = \"x\"\n[[metrics]]\nname = \"m\"\nregex = \"(.)\"\n[spot]\nsimulate = \"every 1m\"\n";
    let path = std::path::Path::new("/jobs/job.toml");
    let job = Job::parse(text, path).unwrap();
    let written = job.to_toml().unwrap();
    assert_eq!(Job::parse(&written, path).unwrap(), job, "{written}");
    assert!(
        !written.contains("max-run-seconds") && !written.contains("opt-ml"),
        "{written}"
    );
    // What is shown has no secret, and a copy gets it from the job that it is a copy of.
    let shown = job.without_secrets().to_toml().unwrap();
    assert!(!shown.contains("s3cret"), "{shown}");
    let copy = Job::parse(&shown, path).unwrap();
    assert_eq!(copy.clone().with_secrets_of(Some(&job)).unwrap(), job);
    for other in [None, Some(&Job::new(job.entry_point.clone()))] {
        let error = copy.clone().with_secrets_of(other).unwrap_err().to_string();
        assert!(error.contains("API_TOKEN is (hidden)"), "{error}");
    }
}
