//! Jobs that are started from a page.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use stokehold_jobs::{RUNNER_READY, Status, Store};
use stokehold_studio::Options;
use tempfile::TempDir;

use crate::{Running, within};

const ROOT: &str = "STOKEHOLD_TEST_RUNNER_ROOT";
const NAME: &str = "STOKEHOLD_TEST_RUNNER_NAME";

/// Not a test by itself: the process that [`program`] starts, which does what `stokehold job runner` does.
#[test]
fn the_runner_of_a_job_that_another_test_has_started() {
    let (Some(root), Some(name)) = (std::env::var_os(ROOT), std::env::var(NAME).ok()) else {
        return;
    };
    stokehold_jobs::detach().unwrap();
    let store = Store::new(Path::new(&root)).unwrap();
    let claim = store.claim(&name).unwrap();
    // What runs the tests has begun a line of its own.
    let mut out = std::io::stdout();
    writeln!(out, "\n{RUNNER_READY}")
        .and_then(|()| out.flush())
        .unwrap();
    stokehold_jobs::run(claim, &AtomicBool::new(false), &|_| {}).unwrap();
}

/// A program that runs jobs in the background, in the place of the command line.
pub fn program(folder: &Path) -> PathBuf {
    let path = folder.join("stokehold-of-tests");
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n# job --jobs ROOT runner NAME\n{ROOT}=\"$3\" {NAME}=\"$5\" exec '{}' --exact --nocapture \
         start::the_runner_of_a_job_that_another_test_has_started\n",
        own.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A folder with a job file in a folder of runs, and its script.
pub fn with_job_file() -> (TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("runs/flowers");
    fs::create_dir_all(&source).unwrap();
    fs::write(
        source.join("train.sh"),
        "echo loss=0.5 rate=$SM_HP_LR token=${API_TOKEN:-none}\nwhile [ -e \"$WAIT\" ]; do sleep 0.05; done\n",
    )
    .unwrap();
    let wait = dir.path().join("wait");
    let text = format!(
        "entry-point = \"train.sh\"\nsource-dir = \".\"\nopt-ml = false\nprofile = false\n[hyperparameters]\nlr = 0.1\n\
         [environment]\nAPI_TOKEN = \"s3cret\"\nWAIT = \"{}\"\n[[metrics]]\nname = \"loss\"\nregex = \"loss=([0-9.]+)\"\n",
        wait.display()
    );
    fs::write(source.join("job.toml"), text).unwrap();
    let options = Options {
        jobs: Some(dir.path().join("jobs")),
        runs: vec![dir.path().join("runs")],
        data: Vec::new(),
        program: Some(program(dir.path())),
        listen: "127.0.0.1:0".to_owned(),
        read_only: false,
        tls: None,
        host: None,
    };
    (dir, options)
}

fn ended(store: &Store, key: &str) -> stokehold_jobs::Record {
    let name = key.strip_prefix("jobs/").unwrap();
    within("the job ends", || {
        let record = store.get(name).unwrap();
        record.status.is_final().then_some(record)
    })
}

fn log(options: &Options, key: &str) -> String {
    let name = key.strip_prefix("jobs/").unwrap();
    fs::read_to_string(options.jobs.as_ref().unwrap().join(name).join("log")).unwrap()
}

#[test]
fn a_job_file_is_started_outlives_the_studio_and_is_cloned_with_its_secret() {
    let (dir, options) = with_job_file();
    let store = Store::new(options.jobs.as_ref().unwrap()).unwrap();
    fs::write(dir.path().join("wait"), "").unwrap();
    let studio = Running::of(options.clone());
    let files = studio.get("/api/start/files").json();
    assert_eq!(files, json!({"files": ["runs/flowers/job.toml"], "whole": true}));
    let source = studio.get("/api/start/text?file=runs/flowers/job.toml").json();
    let text = source["text"].as_str().unwrap();
    assert!(
        source["folder"].as_str().unwrap().ends_with("runs/flowers"),
        "{source}"
    );
    let body = json!({"text": text, "file": "runs/flowers/job.toml"}).to_string();
    let checked = studio.post("/api/start/check", &body).json();
    assert_eq!(checked["fault"], Value::Null, "{checked}");
    assert_eq!(checked["values"]["hyperparameters"]["lr"], 0.1);
    let made = studio.post("/api/start", &body);
    assert_eq!(made.status, 200, "{made:?}");
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let actions = studio.actions();
    assert!(
        actions.len() == 1
            && actions[0].contains(&format!(
                "start a job of runs/flowers/job.toml: done, it is {key}"
            )),
        "{actions:?}"
    );
    within("it runs", || log_has(&options, &key, "loss=0.5"));
    // It is of another session: a terminal that ends takes only its own with it.
    drop(studio);
    assert!(!store.get(&key[5..]).unwrap().status.is_final());
    fs::remove_file(dir.path().join("wait")).unwrap();
    let record = ended(&store, &key);
    assert_eq!(record.status, Status::Completed, "{record:?}");

    // A copy with another hyperparameter: the page never has the secret, and the copy has.
    let studio = Running::of(options.clone());
    let about = studio.get(&format!("/api/run?key={key}")).json();
    assert_eq!(about["can"]["clone"], true, "{about}");
    let copy = studio.get(&format!("/api/start/text?key={key}")).json();
    let text = copy["text"].as_str().unwrap();
    assert!(
        !text.contains("s3cret") && text.contains("API_TOKEN = \"(hidden)\""),
        "{text}"
    );
    assert!(
        !text.contains("max-run-seconds") && !text.contains("name = \"train"),
        "{text}"
    );
    let body = json!({"text": text.replace("lr = 0.1", "lr = 0.7"), "key": key}).to_string();
    let made = studio.post("/api/start", &body).json();
    let other = made["key"].as_str().unwrap();
    assert_eq!(ended(&store, other).status, Status::Completed);
    let said = log(&options, other);
    assert!(said.contains("rate=0.7 token=s3cret"), "{said}");
    // Without the job that it is a copy of, the secret is not known.
    let answer = studio
        .post("/api/start/check", &json!({ "text": text }).to_string())
        .json();
    let reason = answer["fault"]["reason"].as_str().unwrap();
    assert!(reason.contains("API_TOKEN is (hidden)"), "{answer}");
}

fn log_has(options: &Options, key: &str, words: &str) -> Option<()> {
    let name = key.strip_prefix("jobs/").unwrap();
    let path = options.jobs.as_ref().unwrap().join(name).join("log");
    fs::read_to_string(path).ok()?.contains(words).then_some(())
}

#[test]
fn a_job_with_a_fault_is_not_started_and_the_fault_has_its_place() {
    let (_dir, options) = with_job_file();
    let studio = Running::of(options.clone());
    let check = |body: Value| studio.post("/api/start/check", &body.to_string()).json();
    let text = "entry-point = \"train.sh\"\n\n[spot]\nsimulate = \"soon\"\n";
    let fault = check(json!({ "text": text }))["fault"].clone();
    assert_eq!(
        (&fault["line"], &fault["section"], &fault["key"]),
        (&json!(4), &json!("spot"), &json!("simulate")),
        "{fault}"
    );
    // A relative path of a text is meant from the folder of the jobs, and of a file from its own.
    let text = "entry-point = \"train.sh\"\nopt-ml = false\n";
    let reason = check(json!({ "text": text }))["fault"]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("jobs/train.sh"), "{reason}");
    assert_eq!(
        check(json!({"text": text, "file": "runs/flowers/job.toml"}))["fault"],
        Value::Null
    );
    // Values of a form.
    let values = json!({"entry-point": "train.sh", "instances": 65, "opt-ml": false});
    let fault = check(json!({"values": values, "file": "runs/flowers/job.toml"}))["fault"].clone();
    assert_eq!(fault["key"], "instances", "{fault}");
    let hostile = "entry-point = \"../../bin/sh\"\n";
    let answer = studio.post("/api/start", &json!({ "text": hostile }).to_string());
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(
        answer.body.contains("no file below the source folder"),
        "{answer:?}"
    );
    let name = json!({"text": "entry-point = \"train.sh\"\nname = \"../x\"\nopt-ml = false\n", "file": "runs/flowers/job.toml"});
    assert_eq!(studio.post("/api/start", &name.to_string()).status, 422);
    let long = json!({"text": "#".repeat(40_000)}).to_string();
    assert!(
        studio
            .post("/api/start/check", &long)
            .body
            .contains("more than 32768 bytes")
    );
    assert!(!options.jobs.as_ref().unwrap().exists());
    // A runner that does not start says why.
    let broken = Options {
        program: Some("/nowhere/stokehold".into()),
        ..options.clone()
    };
    let studio = Running::of(broken);
    let body = json!({"text": text, "file": "runs/flowers/job.toml"}).to_string();
    let answer = studio.post("/api/start", &body);
    assert!(
        answer.status == 422 && answer.body.contains("/nowhere/stokehold"),
        "{answer:?}"
    );
    assert!(
        studio.actions()[0].contains("/nowhere/stokehold"),
        "{:?}",
        studio.actions()
    );
}

#[test]
fn job_files_are_read_below_the_folders_only_and_never_in_a_read_only_studio() {
    let (dir, options) = with_job_file();
    fs::write(dir.path().join("secret.toml"), "entry-point = \"secret.sh\"\n").unwrap();
    symlink(dir.path().join("secret.toml"), dir.path().join("runs/away.toml")).unwrap();
    fs::write(dir.path().join("runs/flowers/notes.txt"), "entry-point = 1").unwrap();
    let studio = Running::of(options.clone());
    for (name, status) in [
        ("runs/../secret.toml", 404),
        ("runs/flowers/../../secret.toml", 404),
        ("runs//etc/passwd.toml", 404),
        ("runs/away.toml", 403),
        ("runs/flowers/notes.txt", 400),
        ("runs/none.toml", 404),
        ("nowhere/job.toml", 404),
    ] {
        let answer = studio.get(&format!("/api/start/text?file={name}"));
        assert_eq!(answer.status, status, "{name} {answer:?}");
        assert!(!answer.body.contains("secret.sh"), "{answer:?}");
    }
    assert!(!studio.get("/api/start/files").body.contains("away"));
    assert_eq!(studio.get("/api/session").json()["can_start"], true);
    let text = json!({"text": "entry-point = \"train.sh\"\n", "file": "runs/flowers/job.toml"}).to_string();
    // A page of another site.
    let answer = studio.post_from("/api/start", &text, "Origin: https://evil.example\r\n");
    assert_eq!(answer.status, 403);
    drop(studio);
    let studio = Running::of(Options {
        read_only: true,
        ..options
    });
    for path in ["schema", "files", "text?file=runs/flowers/job.toml"] {
        assert_eq!(studio.get(&format!("/api/start/{path}")).status, 403, "{path}");
    }
    assert_eq!(studio.post("/api/start/check", &text).status, 403);
    assert_eq!(studio.post("/api/start", &text).status, 403);
    assert!(
        studio.actions()[0].contains("read-only"),
        "{:?}",
        studio.actions()
    );
    assert!(!dir.path().join("jobs").exists());
}
