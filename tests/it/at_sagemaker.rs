//! Jobs of SageMaker brought here: their files, models and recordings. moto keeps the buckets; where it cannot play a part, a
//! server of the test does.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stokehold_simulate::{Phase, Simulation};

use crate::sagemaker::{BEFORE, Place, said};
use crate::stub::{Reply, Stub};

/// Each line is Python.
const THEN: &str = "\
s3 = client('s3')
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
";

struct Cloud {
    place: Place,
}

impl Cloud {
    /// None, with the reason noted, without moto.
    fn new() -> Option<Self> {
        let place = Place::with_moto(BEFORE, THEN)?;
        Some(Self { place })
    }

    fn python(&mut self, line: &str) {
        let moto = self.place.moto.as_mut().unwrap();
        writeln!(moto.input, "{line}").unwrap();
        assert_eq!(moto.lines.next().unwrap().unwrap(), "done", "{line}");
    }

    fn put(&mut self, key: &str, path: &Path) {
        let line = format!(
            "s3.upload_file({:?}, 'bucket', {key:?})",
            path.display().to_string()
        );
        self.python(&line);
    }

    fn dir(&self) -> &Path {
        self.place.dir.path()
    }
}

/// SageMaker, as far as it describes one job, which is returned to be changed, and changes its profiler.
fn describes(job: Value) -> (Stub, Arc<Mutex<Value>>) {
    let job = Arc::new(Mutex::new(job));
    let now = Arc::clone(&job);
    let stub = Stub::start(move |request, _| match &request.operation[..] {
        "DescribeTrainingJob" => Reply::Json(200, now.lock().unwrap().clone()),
        "UpdateTrainingJob" => Reply::Json(200, json!({"TrainingJobArn": "arn"})),
        other => panic!("{other}"),
    });
    (stub, job)
}

fn described(status: &str) -> Value {
    json!({
        "TrainingJobName": "flowers-1",
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1",
        "TrainingJobStatus": status,
        "SecondaryStatus": if status == "InProgress" { "Training" } else { status },
        "CreationTime": 1.6e9,
        "RoleArn": "arn:aws:iam::123456789012:role/trains",
        "HyperParameters": {},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ProfilerConfig": {"S3OutputPath": "s3://bucket/out", "ProfilingIntervalInMilliseconds": 500},
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/flowers-1/output/model.tar.gz"},
    })
}

#[test]
fn a_job_of_the_cloud_is_imported_and_runs_here() {
    let Some(mut cloud) = Cloud::new() else { return };
    let script = "import os\nprint('loss=0.25')\n\
        data = open(os.environ['SM_CHANNEL_TRAIN'] + '/a.txt').read()\n\
        open(os.environ['SM_MODEL_DIR'] + '/model.txt', 'w').write(data)\n";
    fs::write(cloud.dir().join("src/train.py"), script).unwrap();
    fs::write(cloud.dir().join("a.txt"), "pixels").unwrap();
    let data = cloud.dir().join("a.txt");
    cloud.put("train/a.txt", &data);
    let there = cloud.place.job(&["run", "job.toml", "--on", "sagemaker"]);
    assert_eq!(there.status.code(), Some(0), "{}", said(&there));

    let taken = cloud.place.job(&["import", "flowers-1"]);
    assert_eq!(taken.status.code(), Some(2), "{}", said(&taken));
    assert!(
        said(&taken).contains("job.toml is there already"),
        "{}",
        said(&taken)
    );
    let arn = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/flowers-1";
    let imported = cloud.place.job(&["import", arn, "back.toml"]);
    assert_eq!(imported.status.code(), Some(0), "{}", said(&imported));
    for says in ["back.toml is written", "job run back.toml"] {
        assert!(said(&imported).contains(says), "{}", said(&imported));
    }
    assert!(!said(&imported).contains("to do"), "{}", said(&imported));

    // The same request, but for its name and what moto forgets.
    let request = |file: &str| -> Value {
        let output = cloud
            .place
            .job(&["run", file, "--name", "again", "--on", "sagemaker", "--dry-run"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (mut first, mut second) = (request("job.toml"), request("back.toml"));
    for request in [&mut first, &mut second] {
        request.as_object_mut().unwrap().remove("Environment");
        // moto makes up metrics.
        request["AlgorithmSpecification"]
            .as_object_mut()
            .unwrap()
            .remove("MetricDefinitions");
        let code = &mut request["HyperParameters"]["sagemaker_submit_directory"];
        *code = json!(code.as_str().unwrap().replace("flowers-1", "again"));
    }
    assert_eq!(first, second);

    let here = cloud.place.job(&[
        "run",
        "back.toml",
        "--name",
        "here-1",
        "--no-opt-ml",
        "--no-profile",
        "--json",
    ]);
    assert_eq!(here.status.code(), Some(0), "{}", said(&here));
    let record: Value = serde_json::from_slice(&here.stdout).unwrap();
    assert_eq!(record["status"], "Completed");
    assert_eq!(record["model"], "s3://bucket/out/here-1/output/model.tar.gz");

    // The model of the job here, and of one there that left the same.
    let fetched = cloud.place.job(&["fetch", "here-1"]);
    assert_eq!(fetched.status.code(), Some(0), "{}", said(&fetched));
    assert_eq!(
        fs::read_to_string(cloud.dir().join("here-1/model.txt")).unwrap(),
        "pixels"
    );
    let missing = cloud.place.job(&["fetch", "flowers-1", "--on", "sagemaker"]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
    assert!(!cloud.dir().join("flowers-1").exists());
    cloud.python(
        "s3.copy_object(Bucket='bucket', Key='out/flowers-1/output/model.tar.gz', CopySource='bucket/out/here-1/output/model.tar.gz')",
    );
    let fetched = cloud
        .place
        .job(&["fetch", "flowers-1", "models/first", "--on", "sagemaker"]);
    assert_eq!(fetched.status.code(), Some(0), "{}", said(&fetched));
    assert_eq!(String::from_utf8_lossy(&fetched.stdout), "models/first\n");
    assert!(said(&fetched).contains("1 file, 6 bytes"), "{}", said(&fetched));
    assert_eq!(
        fs::read_to_string(cloud.dir().join("models/first/model.txt")).unwrap(),
        "pixels"
    );
    let names: Vec<_> = fs::read_dir(cloud.dir().join("models"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["first"], "nothing else is left");
    let again = cloud
        .place
        .job(&["fetch", "flowers-1", "models/first", "--on", "sagemaker"]);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));

    // An archive that leads out.
    let hostile = "import io, tarfile; b = io.BytesIO(); t = tarfile.open(fileobj=b, mode='w:gz'); \
        i = tarfile.TarInfo('../../job.toml'); i.size = 1; t.addfile(i, io.BytesIO(b'x')); t.close(); \
        s3.put_object(Bucket='bucket', Key='out/flowers-1/output/model.tar.gz', Body=b.getvalue())";
    cloud.python(hostile);
    let refused = cloud
        .place
        .job(&["fetch", "flowers-1", "models/second", "--on", "sagemaker"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        said(&refused).contains("leads out of the folder"),
        "{}",
        said(&refused)
    );
    assert_ne!(fs::read_to_string(cloud.dir().join("job.toml")).unwrap(), "x");
    assert!(!cloud.dir().join("models/second").exists());
}

#[test]
fn what_cannot_be_imported_is_wrong_usage() {
    let place = Place::new();
    for (args, says) in [
        (
            &["import", "arn:aws:s3:::bucket", "x.toml"][..],
            "is the ARN of no training job",
        ),
        (
            &[
                "import",
                "arn:aws:sagemaker:eu-west-1:1:training-job/x",
                "x.toml",
                "--region",
                "us-east-1",
            ],
            "the job is in eu-west-1, and --region says us-east-1",
        ),
    ] {
        let output = place.job(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
        assert!(!place.dir.path().join("x.toml").exists());
    }
}

/// A command that runs, and the lines of its standard error.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn says(&mut self, what: &str) -> String {
        let mut all = String::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.contains(what) {
                return line;
            }
            all += &format!("{line}\n");
        }
        panic!("{what} is not in {all}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_report_follows_a_job_to_its_end() {
    let Some(mut cloud) = Cloud::new() else { return };
    let (sagemaker, job) = describes(described("InProgress"));
    let run = cloud.dir().join("run");
    let simulation = Simulation {
        seconds: 150.0,
        step_seconds: 0.0,
        phases: vec![Phase::OneCore],
        start: 1.6e9,
        ..Simulation::default()
    };
    simulation.write(&run).unwrap();
    let mut files = Vec::new();
    find(&run.join("profiler-output"), &run, &mut files);
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    let (last, first) = files.split_last().unwrap();

    let mut command = cloud.place.stokehold();
    command
        .env("AWS_ENDPOINT_URL_SAGEMAKER", &sagemaker.address)
        .args(["report", "flowers-1", "--on", "sagemaker"]);
    let mut once = cloud.place.stokehold();
    once.env("AWS_ENDPOINT_URL_SAGEMAKER", &sagemaker.address).args([
        "report",
        "flowers-1",
        "--on",
        "sagemaker",
    ]);
    let empty = once.output().unwrap();
    assert_eq!(empty.status.code(), Some(2), "{}", said(&empty));
    assert!(
        said(&empty).contains("nothing is recorded there yet; --follow waits"),
        "{}",
        said(&empty)
    );

    let mut child = command
        .args(["--follow", "--every", "200ms", "--output", "page"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut following = Running { child, lines };
    following.says("job flowers-1 is Training; nothing is recorded yet");
    // What is not of a recording is left there.
    fs::write(run.join("weights.json"), "{}").unwrap();
    cloud.put(
        "out/flowers-1/profiler-output/weights.json",
        &run.join("weights.json"),
    );
    for name in first {
        cloud.put(&format!("out/flowers-1/{name}"), &run.join(name));
    }
    // Each object is fetched once, whichever rounds they fall into.
    let mut fetched = 0;
    while fetched < first.len() {
        fetched += new_objects(&following.says("new objects; page/profiler-report.html"));
    }
    assert_eq!(fetched, first.len());
    assert!(cloud.dir().join("page/profiler-report.html").is_file());
    cloud.put(&format!("out/flowers-1/{last}"), &run.join(last));
    let line = following.says("new objects");
    assert_eq!(new_objects(&line), 1, "{line}");
    *job.lock().unwrap() = described("Completed");
    let mut out = String::new();
    following
        .child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    assert_eq!(following.child.wait().unwrap().code(), Some(0), "{out}");
    assert!(out.ends_with("page/profiler-report.html\n"), "{out}");

    // The page of the whole recording is the same from the bucket and from the job.
    let here = once.arg("--json").output().unwrap();
    let facts: Value = serde_json::from_slice(&here.stdout).unwrap();
    assert_eq!(
        facts["runs"][0]["run"],
        "s3://bucket/out/flowers-1/profiler-output"
    );
    let mut of_bucket = cloud.place.stokehold();
    of_bucket.args([
        "report",
        "s3://bucket/out/flowers-1/profiler-output",
        "--json",
        "-o",
        "other",
    ]);
    let other: Value = serde_json::from_slice(&of_bucket.output().unwrap().stdout).unwrap();
    assert_eq!(facts["runs"][0]["findings"], other["runs"][0]["findings"]);
    let mut off = described("Completed");
    off.as_object_mut().unwrap().remove("ProfilerConfig");
    *job.lock().unwrap() = off;
    let unrecorded = once.output().unwrap();
    assert_eq!(unrecorded.status.code(), Some(2), "{}", said(&unrecorded));
    assert!(
        said(&unrecorded).contains("job flowers-1 is not recorded"),
        "{}",
        said(&unrecorded)
    );
}

fn new_objects(line: &str) -> usize {
    let number = line.strip_prefix("job flowers-1 is Training: ").unwrap();
    number.split(' ').next().unwrap().parse().unwrap()
}

fn find(folder: &Path, root: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, root, names);
        } else {
            names.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}

#[test]
fn the_profiler_of_a_job_is_switched() {
    let mut place = Place::new();
    let (sagemaker, job) = describes(described("InProgress"));
    place.address = sagemaker.address.clone();
    let at = ["--on", "sagemaker"];
    for (args, wanted) in [
        (
            &["on", "--interval", "100ms"][..],
            json!({"S3OutputPath": "s3://bucket/out", "ProfilingIntervalInMilliseconds": 100, "DisableProfiler": false}),
        ),
        (&["off"], json!({"DisableProfiler": true})),
        (
            &["--interval", "1s"],
            json!({"S3OutputPath": "s3://bucket/out", "ProfilingIntervalInMilliseconds": 1000, "DisableProfiler": false}),
        ),
    ] {
        let output = place.job(&[&["profiler", "flowers-1"], args, &at].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        let update = sagemaker.requests.lock().unwrap().pop().unwrap().body;
        assert_eq!(
            update,
            json!({"TrainingJobName": "flowers-1", "ProfilerConfig": wanted})
        );
    }
    for (args, says) in [
        (&[][..], "what to change? Give on, off or --interval"),
        (&["off", "--interval", "1s"], "leave --interval out"),
        (
            &["on", "--interval", "300ms"],
            "ProfilingIntervalInMilliseconds: is 300; choose one of",
        ),
        (&["on", "--interval", "60days"], "choose one of"),
    ] {
        let output = place.job(&[&["profiler", "flowers-1"], args, &at].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    *job.lock().unwrap() = described("Completed");
    let ended = place.job(&["profiler", "flowers-1", "off", "--on", "sagemaker"]);
    assert_eq!(ended.status.code(), Some(2), "{}", said(&ended));
    assert!(
        said(&ended).contains("is Completed; only the profiler of a job that runs"),
        "{}",
        said(&ended)
    );
    assert!(!sagemaker.operations().contains(&"UpdateTrainingJob".to_owned()));

    // The same words for a job of this machine.
    let missing = place.job(&["profiler", "nobody", "off"]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
    assert!(
        said(&missing).contains("there is no job nobody"),
        "{}",
        said(&missing)
    );
}

#[test]
fn the_profiler_of_a_job_here_is_switched() {
    let place = Place::new();
    let script = "import os, time\nprint('begun', flush=True)\n\
        while not os.path.exists(os.environ['STOP_AT']):\n    time.sleep(0.05)\n";
    fs::write(place.dir.path().join("src/train.py"), script).unwrap();
    let stop_at = place.dir.path().join("stop");
    let variable = format!("STOP_AT={}", stop_at.display());
    let started = place.job(&[
        "run",
        "--entry-point",
        "train.py",
        "--source-dir",
        "src",
        "--environment",
        &variable,
        "--no-opt-ml",
        "--detach",
        "--name",
        "long-1",
    ]);
    assert_eq!(started.status.code(), Some(0), "{}", said(&started));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let output = place.job(&["profiler", "long-1", "off"]);
        if output.status.code() == Some(0) {
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", said(&output));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let control = place.dir.path().join("jobs/long-1/profiler-output/control.json");
    let control: Value = serde_json::from_slice(&fs::read(control).unwrap()).unwrap();
    assert_eq!(control["on"], false);
    let late = place.job(&["fetch", "long-1"]);
    assert_eq!(late.status.code(), Some(2), "{}", said(&late));
    assert!(
        said(&late).contains("its model is packed at its end"),
        "{}",
        said(&late)
    );
    fs::write(&stop_at, "").unwrap();
    let waited = place.job(&["wait", "long-1", "--timeout", "60s"]);
    assert_eq!(waited.status.code(), Some(0), "{}", said(&waited));
    let ended = place.job(&["profiler", "long-1", "on"]);
    assert!(
        said(&ended).contains("only the profiler of a job that runs"),
        "{}",
        said(&ended)
    );
    let none = place.job(&["fetch", "long-1"]);
    assert!(
        said(&none).contains("left nothing in SM_MODEL_DIR"),
        "{}",
        said(&none)
    );
}
