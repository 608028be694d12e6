//! What changes while somebody looks, and what is changed from a page.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_jobs::{EntryPoint, Job, Metric, Record, Status, Store, run};
use stokehold_simulate::{Phase, Simulation};
use stokehold_tune::{Ask, Parameter, Range, Scaling, Spec, Study};

use crate::{Running, two_runs, within};

/// An event stream.
pub struct Events(BufReader<TcpStream>);

#[derive(Debug)]
pub struct Event {
    name: String,
    pub id: String,
    pub data: Value,
}

impl Events {
    pub fn open(studio: &Running, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(studio.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Of HTTP/1.0, so that the body comes without chunks.
        let text = format!(
            "GET /api/events?{query} HTTP/1.0\r\nHost: localhost\r\n{}{headers}\r\n",
            studio.cookie()
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
        Self(reader)
    }

    fn next(&mut self) -> Event {
        let mut event = Event {
            name: String::new(),
            id: String::new(),
            data: Value::Null,
        };
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line == "\n" && !event.name.is_empty() => return event,
                _ => {}
            }
        }
    }

    /// The next event of a name.
    pub fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next();
            if event.name == name {
                return event;
            }
        }
    }
}

pub fn append(path: &Path, text: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub fn values(points: &Value) -> Vec<Option<f64>> {
    let all = points.as_array().unwrap();
    all.chunks(3).map(|point| point[2].as_f64()).collect()
}

#[test]
fn curves_and_logs_grow_and_a_broken_connection_goes_on_where_it_was() {
    let (_dir, runs) = two_runs();
    let (metrics, log) = (runs.join("one/metrics.jsonl"), runs.join("one/log"));
    fs::write(&log, "first\n").unwrap();
    let studio = Running::start(None, vec![runs.clone()], false);
    let mut events = Events::open(&studio, "view=run&key=runs/one", "");
    let head = events.named("head");
    assert_eq!(
        (&head.data["row"]["state"], head.data["row"]["name"].as_str()),
        (&json!("finished"), Some("one"))
    );
    let all = events.named("curves");
    let loss = &all.data["all"][0];
    assert_eq!(
        (&loss["name"], values(&loss["points"]).len()),
        (&json!("loss"), 100)
    );
    let first = events.named("log");
    assert_eq!(
        (&first.data["anew"], &first.data["lines"][0]["text"]),
        (&json!(true), &json!("first"))
    );
    append(
        &metrics,
        "{\"kind\":\"train\",\"epoch\":1,\"step\":101,\"loss\":0.25,\"lr\":0.1}\n{\"kind\":\"train\",\"ep",
    );
    append(&log, "second\nhal");
    let more = events.named("curves");
    let loss = &more.data["more"][0];
    assert_eq!(
        (&loss["name"], values(&loss["points"])),
        (&json!("loss"), vec![Some(0.25)])
    );
    let second = events.named("log");
    assert_eq!(
        (&second.data["anew"], &second.data["lines"][0]["text"]),
        (&json!(false), &json!("second"))
    );
    drop(events);
    // While no one is connected.
    append(&metrics, "och\":1,\"step\":102,\"loss\":0.125,\"lr\":0.1}\n");
    append(&log, "f\nthird\n");
    let last = format!("Last-Event-ID: {}\r\n", second.id);
    for (query, headers) in [("", last), (&*format!("&at={}", second.id), String::new())] {
        let mut events = Events::open(&studio, &format!("view=run&key=runs/one{query}"), &headers);
        // In either order: streams that look within a moment of each other share a look at the curves.
        let (mut more, mut third) = (None, None);
        while more.is_none() || third.is_none() {
            let event = events.next();
            match event.name.as_str() {
                "curves" => more = more.or(Some(event)),
                "log" => third = third.or(Some(event)),
                _ => {}
            }
        }
        let (more, third) = (more.unwrap(), third.unwrap());
        assert_eq!(values(&more.data["more"][0]["points"]), [Some(0.125)], "{more:?}");
        let texts: Vec<&str> = third.data["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["text"].as_str().unwrap())
            .collect();
        assert_eq!(
            (&third.data["anew"], texts),
            (&json!(false), vec!["half", "third"])
        );
    }
    // Of a run that went on from a checkpoint, what came after it is gone.
    let mut events = Events::open(&studio, "view=run&key=runs/one", "");
    events.named("curves");
    fs::write(
        &metrics,
        "{\"kind\":\"train\",\"epoch\":1,\"step\":1,\"loss\":9,\"lr\":0.1}\n",
    )
    .unwrap();
    assert_eq!(
        values(&events.named("curves").data["all"][0]["points"]),
        [Some(9.0)]
    );
    fs::remove_dir_all(runs.join("one")).unwrap();
    events.named("gone");
}

/// A thousand numbers a second reach a reader, all of them, and a reader that sleeps gets the newest state.
#[test]
fn a_thousand_numbers_a_second_arrive_whole() {
    let (_dir, runs) = two_runs();
    let metrics = runs.join("one/metrics.jsonl");
    fs::write(&metrics, "").unwrap();
    let studio = Running::start(None, vec![runs], false);
    let mut events = Events::open(&studio, "view=run&key=runs/one", "");
    let asleep = Events::open(&studio, "view=run&key=runs/one", "");
    let writer = std::thread::spawn(move || {
        let began = Instant::now();
        for second in 0..30u64 {
            let lines: String = (second * 100..(second + 1) * 100)
                .map(|step| {
                    format!("{{\"name\":\"loss\",\"time\":{step},\"step\":{step},\"value\":{step}}}\n")
                })
                .collect();
            append(&metrics, &lines);
            std::thread::sleep(
                (began + Duration::from_millis(100 * (second + 1))).saturating_duration_since(Instant::now()),
            );
        }
    });
    let (mut got, mut parts) = (Vec::new(), 0);
    while got.len() < 3000 {
        let event = events.named("curves");
        let curves = event
            .data
            .get("all")
            .or_else(|| event.data.get("more"))
            .unwrap()
            .clone();
        got.extend(values(&curves[0]["points"]));
        parts += 1;
    }
    writer.join().unwrap();
    assert!(
        got.iter()
            .enumerate()
            .all(|(at, value)| *value == Some(at as f64)),
        "{}",
        got.len()
    );
    assert!(parts > 3, "{parts}");
    drop(asleep);
}

#[test]
fn the_first_page_says_what_runs_and_what_failed() {
    let (_dir, runs) = two_runs();
    fs::create_dir_all(runs.join("failed/profiler-output")).unwrap();
    let mut simulation = Simulation {
        phases: vec![Phase::Loader],
        ..Simulation::default()
    };
    simulation.start = stokehold_base::clock::unix_now() - simulation.seconds;
    simulation.write(&runs.join("recorded")).unwrap();
    let lock = stokehold_base::lock::Lock::take(&runs.join("recorded/profiler-output/lock")).unwrap();
    let studio = Running::start(None, vec![runs.clone()], false);
    studio.settled();
    let mut events = Events::open(&studio, "view=home", "");
    let home = events.named("home").data;
    assert_eq!(home["running_count"], 1, "{home}");
    let running = &home["running"][0];
    assert_eq!(running["row"]["name"], "recorded");
    assert!(
        running["now"]["lately"]["cores"]
            .as_f64()
            .is_some_and(|cores| cores > 80.0),
        "{running}"
    );
    assert!(
        running["now"]["lately"]["wait_share"]
            .as_f64()
            .is_some_and(|share| share > 0.4),
        "{running}"
    );
    drop(lock);
    let ended = within("it is seen that it ended", || {
        let home = events.named("home").data;
        (home["running_count"] == 0).then_some(home)
    });
    assert!(
        ended["latest"].to_string().contains("recorded") || ended["failed"].to_string().contains("recorded"),
        "{ended}"
    );
}

#[test]
fn a_recording_is_judged_as_the_report_judges_it() {
    let (_dir, runs) = two_runs();
    let simulation = Simulation {
        phases: vec![Phase::Loader],
        ..Simulation::default()
    };
    simulation.write(&runs.join("recorded")).unwrap();
    let studio = Running::start(None, vec![runs], false);
    let judged = studio.get("/api/run/judged?key=runs/recorded").json();
    let findings = judged["findings"].as_array().unwrap();
    let loader = findings
        .iter()
        .find(|finding| finding["rule"] == "LoaderBound")
        .unwrap();
    assert_eq!(loader["fired"], true, "{loader}");
    assert!(judged["verdict"].as_str().unwrap().len() > 20, "{judged}");
    let heat = &judged["heat"]["nodes"][0];
    assert!(
        heat["rows"].to_string().contains("waits for data")
            && heat["levels"][0]["columns"].as_u64() > Some(10),
        "{heat}"
    );
    let none = studio.get("/api/run/judged?key=runs/one");
    assert_eq!(none.status, 404);
    assert!(none.body.contains("nothing was recorded"), "{none:?}");
}

#[test]
fn a_study_is_shown_while_it_goes_on() {
    let (_dir, runs) = two_runs();
    let range = Range::Continuous {
        min: 1e-4,
        max: 1.0,
        scaling: Scaling::Auto,
    };
    let mut spec = Spec::new("loss", [("lr".to_owned(), Parameter::from(range))].into());
    spec.limits.max_jobs = 6;
    let mut study = Study::create(&runs.join("study"), spec).unwrap();
    let tell = |study: &mut Study| {
        let Ask::Trial(trial) = study.ask().unwrap() else {
            panic!("no trial");
        };
        let lr = trial.values["lr"].as_f64().unwrap();
        for step in 1..=4 {
            study
                .report(trial.number, step, (lr.log10() + 2.0).powi(2) + 1.0 / step as f64)
                .unwrap();
        }
        study
            .tell(trial.number, Some((lr.log10() + 2.0).powi(2)))
            .unwrap();
    };
    for _ in 0..4 {
        tell(&mut study);
    }
    let studio = Running::start(None, vec![runs], false);
    let page = studio.settled();
    let row = page["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["kind"] == "study")
        .unwrap()
        .clone();
    assert_eq!(
        (&row["name"], &row["progress"]),
        (&json!("study"), &json!([4, 6]))
    );
    let shown = studio.get("/api/study?key=runs/study").json();
    let trials = shown["trials"].as_array().unwrap();
    let best = trials
        .iter()
        .filter_map(|trial| trial["value"].as_f64())
        .reduce(f64::min);
    assert_eq!((shown["best"]["value"].as_f64(), trials.len()), (best, 4));
    assert_eq!(trials[0]["reports"].as_array().unwrap().len(), 8);
    let mut events = Events::open(&studio, "view=study&key=runs/study", "");
    events.named("changed");
    tell(&mut study);
    events.named("changed");
    assert_eq!(
        studio.get("/api/study?key=runs/study").json()["counts"]["completed"],
        5
    );
    assert_eq!(studio.get("/api/study?key=runs/one").status, 404);
}

/// A job that prints a loss ten times a second until it is stopped, in a thread that runs it.
pub fn job(folder: &Path) -> (PathBuf, String, JoinHandle<Record>) {
    let source = folder.join("source");
    fs::create_dir_all(&source).unwrap();
    let script = "trap 'echo asked to stop; exit 0' TERM\nn=1\nwhile true; do echo \"loss=$((1000 / n))\"; n=$((n + 1)); sleep 0.1; done\n";
    fs::write(source.join("train.sh"), script).unwrap();
    let mut job = Job::new(EntryPoint::parse("train.sh").unwrap());
    job.name = Some("endless".to_owned());
    job.source_dir = Some(source);
    job.opt_ml = false;
    job.metrics.push(Metric::parse("loss=loss=([0-9]+)").unwrap());
    job.environment
        .insert("API_TOKEN".to_owned(), "hidden-value".to_owned());
    let jobs = folder.join("jobs");
    let store = Store::new(&jobs).unwrap();
    let name = store.create(&job).unwrap();
    let own = name.clone();
    let thread = std::thread::spawn(move || {
        run(store.claim(&own).unwrap(), &AtomicBool::new(false), &|_| {}).unwrap()
    });
    (jobs, name, thread)
}

#[test]
fn a_job_is_watched_switched_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (jobs, name, thread) = job(dir.path());
    let studio = Running::start(Some(jobs.clone()), Vec::new(), false);
    let key = format!("jobs/{name}");
    let mut events = Events::open(&studio, &format!("view=run&key={key}"), "");
    within("its loss comes", || {
        let event = events.named("curves");
        let curves = event
            .data
            .get("all")
            .or_else(|| event.data.get("more"))
            .unwrap()
            .clone();
        (values(&curves[0]["points"]).last()?.is_some()).then_some(())
    });
    let about = within("it is recorded", || {
        let about = studio.get(&format!("/api/run?key={key}")).json();
        (about["can"]["profiler"] == true).then_some(about)
    });
    assert_eq!(
        (&about["row"]["state"], &about["can"]["stop"]),
        (&json!("running"), &json!(true))
    );
    assert!(!about.to_string().contains("hidden-value"), "{about}");
    // The profiler, off and on again, and its interval.
    let recording = jobs.join(&name).join("profiler-output");
    let paused = || {
        stokehold_profile::About::read(&recording)
            .unwrap()
            .unwrap()
            .paused
            .is_some()
    };
    assert_eq!(
        studio
            .post("/api/profiler", &json!({"key": key, "on": false}).to_string())
            .status,
        200
    );
    within("the profiler is off", || paused().then_some(()));
    assert_eq!(
        studio
            .post(
                "/api/profiler",
                &json!({"key": key, "on": true, "interval_ms": 100}).to_string()
            )
            .status,
        200
    );
    within("the profiler is on", || (!paused()).then_some(()));
    let odd = studio.post(
        "/api/profiler",
        &json!({"key": key, "interval_ms": 1}).to_string(),
    );
    assert!(
        odd.status == 409 && odd.body.contains("100 ms to 60 s"),
        "{odd:?}"
    );
    assert_eq!(
        studio
            .post("/api/profiler", &json!({ "key": key }).to_string())
            .status,
        400
    );
    // Stop.
    assert_eq!(
        studio
            .post("/api/stop", &json!({ "key": key }).to_string())
            .status,
        200
    );
    let record = thread.join().unwrap();
    assert_eq!(record.status, Status::Stopped, "{record:?}");
    within("the page is told", || {
        (events.named("head").data["row"]["state"] == "stopped").then_some(())
    });
    let log = studio.get(&format!("/api/run/log?key={key}&search=ASKED")).json();
    assert_eq!(log["lines"][0]["text"], "asked to stop");
    assert_eq!(
        studio
            .post("/api/stop", &json!({ "key": key }).to_string())
            .status,
        409
    );
    let actions = studio.actions();
    let ends: Vec<&str> = actions
        .iter()
        .map(|action| {
            action
                .split_once("127.0.0.1:")
                .unwrap()
                .1
                .split_once(' ')
                .unwrap()
                .1
        })
        .collect();
    assert_eq!(ends[0], format!("profiler {key} off: done"));
    assert_eq!(ends[1], format!("profiler {key} on every 100 ms: done"));
    assert_eq!(ends[4], format!("stop {key}: done"));
}
