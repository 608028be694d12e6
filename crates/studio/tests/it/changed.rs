//! What a page changes and fetches: tags and notes, files, trials that are stopped, jobs that continue; this machine; TLS.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use stokehold_jobs::{EntryPoint, Job, Metric, Status, Store};
use stokehold_studio::{Options, Studio, StudioError};
use stokehold_trials::Plan;
use stokehold_trials::run::{Room, create};
use stokehold_tune::{Outcome, Parameter, Range, Scaling, Spec, Study};

use crate::live::{Events, job, values};
use crate::{Running, two_runs, within};

#[test]
fn tags_and_notes_are_kept_beside_the_run_and_found_by() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs.clone()], false);
    studio.settled();
    let post = |body: Value| studio.post("/api/notes", &body.to_string());
    let answer =
        post(json!({"key": "runs/one", "tags": ["best ", "<b>bold</b>", "best"], "note": "a\n<script>"}));
    assert_eq!(answer.status, 200, "{answer:?}");
    let kept: Value = serde_json::from_slice(&fs::read(runs.join("one/studio.json")).unwrap()).unwrap();
    assert_eq!(
        kept,
        json!({"tags": ["<b>bold</b>", "best"], "note": "a\n<script>"})
    );
    let about = studio.get("/api/run?key=runs/one").json();
    assert_eq!(about["notes"], kept);
    within("the row has its tags, and is found by one", || {
        let found = studio.get("/api/runs?text=bold").json();
        (found["total"] == 1 && found["rows"][0]["tags"] == kept["tags"]).then_some(())
    });
    for (body, status) in [
        (json!({"key": "runs/none", "tags": []}), 404),
        (json!({"key": "runs/../one", "tags": []}), 404),
        (json!({"key": "runs/one", "tags": ["x".repeat(41)]}), 400),
        (json!({"key": "runs/one", "note": "x".repeat(10_001)}), 400),
        (json!({"key": "runs/one", "tags": "best"}), 422),
    ] {
        let answer = post(body.clone());
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // Two pages: the second has not seen what the first has written.
    let unseen = post(json!({"key": "runs/one", "was": {"tags": [], "note": ""}, "tags": ["lost"]}));
    assert_eq!(unseen.status, 409, "{unseen:?}");
    let seen = post(json!({"key": "runs/one", "was": kept, "tags": ["best"], "note": "b "}));
    assert_eq!(seen.json()["notes"], json!({"tags": ["best"], "note": "b"}));
    // A link of its name is replaced, and what it leads to stays as it is.
    let other = runs.join("two/studio.json");
    fs::write(runs.join("secret"), "{}").unwrap();
    symlink(runs.join("secret"), &other).unwrap();
    assert_eq!(post(json!({"key": "runs/two", "tags": ["a"]})).status, 200);
    assert!(!other.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(runs.join("secret")).unwrap(), "{}");
    assert_eq!(
        post(json!({"key": "runs/one", "tags": [], "note": ""})).status,
        200
    );
    assert!(!runs.join("one/studio.json").exists());
    assert!(
        studio.actions()[0].ends_with("notes runs/one: done"),
        "{:?}",
        studio.actions()
    );
    drop(studio);
    let studio = Running::start(None, vec![runs.clone()], true);
    let answer = studio.post(
        "/api/notes",
        &json!({"key": "runs/one", "tags": ["a"]}).to_string(),
    );
    assert!(
        answer.status == 403 && !runs.join("one/studio.json").exists(),
        "{answer:?}"
    );
}

#[test]
fn checkpoints_and_results_are_listed_and_fetched_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let (jobs, name, thread) = job(dir.path());
    let own = jobs.join(&name);
    let studio = Running::start(Some(jobs.clone()), Vec::new(), false);
    within("it prints", || {
        fs::metadata(own.join("log"))
            .ok()
            .filter(|log| log.len() > 0)
            .map(drop)
    });
    let large: Vec<u8> = (0..1_000_000u32).flat_map(|n| [b'a' + (n % 23) as u8]).collect();
    for (path, bytes) in [
        ("algo-1/checkpoints/epoch 1/a.pt", &b"weights"[..]),
        ("algo-1/model/model.txt", b"model"),
        ("output/ä \"quoted\".tar.gz", &large),
        ("home/algo-1/.netrc", b"hidden-value"),
    ] {
        let path = own.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(dir.path().join("outside"), "hidden-value").unwrap();
    symlink(own.join("job.json"), own.join("output/harmless")).unwrap();
    symlink(dir.path().join("outside"), own.join("output/elsewhere")).unwrap();
    symlink(own.join("home"), own.join("output/homes")).unwrap();
    symlink("epoch 1/a.pt", own.join("algo-1/checkpoints/latest")).unwrap();
    let files = studio.get(&format!("/api/run?key=jobs/{name}")).json()["files"].clone();
    let shown: Vec<(&str, &str)> = files["shown"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["name"].as_str().unwrap(), file["what"].as_str().unwrap()))
        .collect();
    for file in [
        ("algo-1/checkpoints/epoch 1/a.pt", "checkpoint"),
        ("algo-1/model/model.txt", "model"),
        ("output/ä \"quoted\".tar.gz", "result"),
        ("log", "record"),
    ] {
        assert!(shown.contains(&file), "{file:?} {shown:?}");
    }
    assert!(
        shown
            .iter()
            .all(|(name, _)| !name.contains("job.json") && !name.contains("home")),
        "{shown:?}"
    );
    let fetch = |path: &str| studio.get(&format!("/api/run/file?key=jobs/{name}&name={}", escaped(path)));
    let answer = fetch("algo-1/checkpoints/epoch 1/a.pt");
    assert_eq!((answer.status, answer.body.as_str()), (200, "weights"));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(fetch("algo-1/checkpoints/latest").body, "weights");
    let answer = fetch("output/ä \"quoted\".tar.gz");
    assert!(answer.body.as_bytes() == large, "{}", answer.body.len());
    assert_eq!(
        answer.header("content-disposition"),
        Some("attachment; filename*=UTF-8''%C3%A4%20%22quoted%22%2Etar%2Egz")
    );
    for (path, status) in [
        ("job.json", 404),
        ("state.json", 404),
        ("home/algo-1/.netrc", 404),
        ("output/../job.json", 404),
        ("../../outside", 404),
        ("/etc/passwd", 404),
        ("output", 404),
        ("output/none", 404),
        ("output/harmless", 403),
        ("output/elsewhere", 403),
        ("output/homes/algo-1/.netrc", 403),
    ] {
        let answer = fetch(path);
        assert_eq!(answer.status, status, "{path} {answer:?}");
        assert!(!answer.body.contains("hidden-value"), "{path} {answer:?}");
    }
    Store::new(&jobs).unwrap().stop(&name).unwrap();
    thread.join().unwrap();
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A program that does as the command line does when it is to run a job: it says that it has it, and continues.
#[test]
fn a_job_is_resumed_by_a_process_that_outlives_the_studio() {
    let dir = tempfile::tempdir().unwrap();
    let (jobs, name, thread) = job(dir.path());
    let store = Store::new(&jobs).unwrap();
    let program = dir.path().join("program");
    fs::write(
        &program,
        "#!/bin/sh\necho \"$$ $*\" > \"$0.called\"\necho ready\nexec sleep 60\n",
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let studio = Running::with(Some(jobs.clone()), Vec::new(), |options| {
        options.program = Some(program.clone())
    });
    let key = format!("jobs/{name}");
    let resume = |studio: &Running| studio.post("/api/resume", &json!({ "key": key }).to_string());
    let can = |studio: &Running| studio.get(&format!("/api/run?key={key}")).json()["can"]["resume"].clone();
    within("its script runs", || {
        fs::metadata(jobs.join(&name).join("log"))
            .ok()
            .filter(|log| log.len() > 0)
            .map(drop)
    });
    assert_eq!(can(&studio), false);
    store.stop(&name).unwrap();
    assert_eq!(thread.join().unwrap().status, Status::Stopped);
    assert_eq!(can(&studio), true);
    let answer = resume(&studio);
    assert_eq!(answer.status, 200, "{answer:?}");
    let called = fs::read_to_string(dir.path().join("program.called")).unwrap();
    let (id, words) = called.trim().split_once(' ').unwrap();
    assert_eq!(
        words,
        format!("job --jobs {} runner {name} --resume", jobs.display())
    );
    drop(studio);
    assert!(
        Path::new(&format!("/proc/{id}")).exists(),
        "it ended with the studio"
    );
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    // One that cannot: what it says is told.
    fs::write(&program, "#!/bin/sh\necho 'error: no room for it' >&2\nexit 2\n").unwrap();
    let studio = Running::with(Some(jobs.clone()), Vec::new(), |options| {
        options.program = Some(program.clone())
    });
    let answer = resume(&studio);
    assert!(
        answer.status == 409 && answer.body.contains("no room for it"),
        "{answer:?}"
    );
    assert!(
        studio.actions()[0].ends_with("no room for it"),
        "{:?}",
        studio.actions()
    );
    assert_eq!(studio.post("/api/resume", "{\"key\":\"jobs/none\"}").status, 404);
}

#[test]
fn a_trial_is_stopped_and_the_study_goes_on() {
    let (dir, runs) = two_runs();
    let source = dir.path().join("source");
    fs::create_dir_all(&source).unwrap();
    let script = "trap 'exit 0' TERM\nn=1\nwhile true; do echo \"loss=$((1000 / n))\"; n=$((n + 1)); sleep 0.1; done\n";
    fs::write(source.join("train.sh"), script).unwrap();
    let mut trial = Job::new(EntryPoint::parse("train.sh").unwrap());
    trial.source_dir = Some(source);
    trial.opt_ml = false;
    trial.profile = false;
    trial.metrics.push(Metric::parse("loss=loss=([0-9]+)").unwrap());
    let range = Range::Continuous {
        min: 0.1,
        max: 1.0,
        scaling: Scaling::Auto,
    };
    let mut spec = Spec::new("loss", [("lr".to_owned(), Parameter::from(range))].into());
    (spec.limits.max_jobs, spec.limits.max_parallel_jobs) = (2, 1);
    let plan = Plan {
        study: spec,
        job: trial,
        metrics_file: None,
        timeline: false,
        prepare: Vec::new(),
    };
    let folder = runs.join("study");
    let stop = AtomicBool::new(false);
    create(&plan, &folder, &stop, &mut |_, _| {}).unwrap();
    let studio = Running::start(None, vec![runs], false);
    let post = |body: Value| studio.post("/api/trial/stop", &body.to_string());
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let study = Study::open(&folder).unwrap();
            stokehold_trials::run::run(study, &plan, &folder, Room::Shared, &stop, &mut |_, _| {}).unwrap()
        });
        within("trial 0 reports", || {
            let page = studio.get("/api/study?key=runs/study");
            let page = (page.status == 200).then(|| page.json())?;
            let has_reports = page["trials"][0]["reports"].as_array()?.len() > 4;
            (has_reports && page["stoppable"] == json!([0])).then_some(())
        });
        for (body, status) in [
            (json!({"key": "runs/study", "trial": 1}), 409),
            (json!({"key": "runs/one", "trial": 0}), 409),
            (json!({"key": "runs/none", "trial": 0}), 404),
            (json!({"key": "runs/study", "trial": -1}), 422),
        ] {
            let answer = post(body.clone());
            assert_eq!(answer.status, status, "{body} {answer:?}");
        }
        let answer = post(json!({"key": "runs/study", "trial": 0}));
        assert_eq!(answer.status, 200, "{answer:?}");
        within("it counts as stopped, and the next one runs", || {
            let history = Study::look(&folder).unwrap();
            let is_stopped = matches!(
                history.trials[0].outcome,
                Some(Outcome::Stopped { value: Some(_) })
            );
            (is_stopped && history.trials.len() == 2).then_some(())
        });
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
    });
    assert!(
        studio
            .actions()
            .last()
            .unwrap()
            .ends_with("stop trial 0 of runs/study: done"),
        "{:?}",
        studio.actions()
    );
}

#[test]
fn several_runs_are_compared_and_followed_by_one_stream() {
    let (_dir, runs) = two_runs();
    crate::write_run(&runs.join("a b"), "vit", 3, 0.5);
    let studio = Running::start(None, vec![runs.clone()], false);
    let all = "runs/one//runs/two//runs/a%20b";
    let page = studio.get(&format!("/api/compare?keys={all}")).json();
    assert_eq!(
        page["settings"],
        json!([
            ["arch", ["resnet18", "resnet50", "vit"]],
            ["epochs", ["1", "2", "3"]]
        ])
    );
    let results = page["results"].as_array().unwrap();
    assert!(results.contains(&json!(["top-1", [0.75, 0.875, 0.5]])), "{page}");
    assert_eq!(page["rows"][2]["name"], "a b");
    for keys in ["", "runs/one", "runs/one//", &["runs/one"; 9].join("//")] {
        let answer = studio.get(&format!("/api/compare?keys={keys}"));
        assert_eq!(answer.status, 400, "{keys} {answer:?}");
    }
    assert_eq!(studio.get("/api/compare?keys=runs/one//runs/none").status, 404);
    let mut events = Events::open(&studio, &format!("view=several&keys={all}"), "");
    let mut seen = [false; 3];
    while seen != [true; 3] {
        let event = events.named("curves");
        assert!(event.id.is_empty(), "{event:?}");
        assert_eq!(values(&event.data["all"][0]["points"]).len(), 100);
        seen[event.data["of"].as_u64().unwrap() as usize] = true;
    }
    let line = "{\"kind\":\"train\",\"epoch\":1,\"step\":101,\"loss\":0.25,\"lr\":0.1}\n";
    crate::live::append(&runs.join("a b/metrics.jsonl"), line);
    let more = events.named("curves").data;
    assert_eq!(
        (&more["of"], values(&more["more"][0]["points"])),
        (&json!(2), vec![Some(0.25)])
    );
}

#[test]
fn this_machine_is_sampled_from_the_first_look_to_the_end() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let mine = || {
        let entries = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("stokehold-studio-")).count()
    };
    let before = mine();
    let page = within("it is sampled", || {
        let page = studio.get("/api/machine");
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        (page["heat"].is_object() && page["lately"]["cores"].is_number()).then_some(page)
    });
    assert!(mine() > before, "{before}");
    let titles: Vec<&str> = page["charts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chart| chart["title"].as_str().unwrap())
        .collect();
    assert!(
        titles.contains(&"Cores, percent") && titles.contains(&"Memory, percent"),
        "{titles:?}"
    );
    let cores = page["machine"]["cores"].as_u64().unwrap();
    assert_eq!(
        cores as usize,
        std::thread::available_parallelism().unwrap().get()
    );
    let memory = page["lately"]["memory"].as_f64().unwrap();
    assert!(memory > 0.0 && memory < 100.0, "{memory}");
    let disk = &page["disks"][0];
    assert!(
        disk[1].as_u64() <= disk[2].as_u64() && disk[2].as_u64() > Some(1 << 20),
        "{disk}"
    );
    drop(studio);
    assert_eq!(mine(), before, "its samples stay");
}

#[test]
fn with_a_certificate_it_speaks_tls() {
    if Command::new("openssl").arg("version").output().is_err() {
        stokehold_untested::skip("there is no openssl, which makes the certificate");
        return;
    }
    let (dir, runs) = two_runs();
    let make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem";
    let made = Command::new("openssl")
        .args(make.split(' '))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let studio = Running::with(None, vec![runs.clone()], |options| {
        options.tls = Some((cert.clone(), key.clone()))
    });
    assert!(studio.link.starts_with("https://127.0.0.1:"), "{}", studio.link);
    let ask = |path: &str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut client = Command::new("openssl")
            .args([
                "s_client",
                "-quiet",
                "-verify_return_error",
                "-servername",
                "localhost",
                "-CAfile",
            ])
            .arg(&cert)
            .args(["-connect", &studio.address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(client.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
        crate::answer(&client.wait_with_output().unwrap().stdout)
    };
    assert_eq!(ask("/api/session").status, 401);
    let answer = ask(&format!("/?token={}", studio.token));
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.contains("; Secure") && cookie.contains("HttpOnly"),
        "{cookie}"
    );
    // Without TLS there is no answer, and no one else is held up.
    assert_eq!(studio.raw("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 0);
    assert_eq!(ask("/api/session").status, 401);
    drop(studio);
    let options = Options {
        jobs: None,
        runs: vec![runs],
        listen: "127.0.0.1:0".to_owned(),
        read_only: false,
        data: Vec::new(),
        program: None,
        tls: Some((key, cert.clone())),
        host: None,
    };
    let error = Studio::bind(options).unwrap_err();
    assert!(
        matches!(&error, StudioError::Certificate { path, .. } if *path == cert),
        "{error}"
    );
}

/// A job that ended may say its last word without a line end.
#[test]
fn the_last_line_is_shown_without_its_end_too() {
    let (_dir, runs) = two_runs();
    let log = runs.join("one/log");
    fs::write(&log, "first\nlast wo").unwrap();
    let studio = Running::start(None, vec![runs], false);
    let mut events = Events::open(&studio, "view=run&key=runs/one", "");
    let first = events.named("log").data;
    assert_eq!(
        (&first["lines"][0]["text"], &first["tail"]["text"]),
        (&json!("first"), &json!("last wo"))
    );
    crate::live::append(&log, "rd");
    let longer = events.named("log").data;
    assert_eq!(
        (longer["lines"].as_array().unwrap().len(), &longer["tail"]["text"]),
        (0, &json!("last word"))
    );
    crate::live::append(&log, "\nmore\n");
    let whole = events.named("log").data;
    assert_eq!(
        (&whole["lines"][0]["text"], &whole["tail"]),
        (&json!("last word"), &Value::Null)
    );
}
