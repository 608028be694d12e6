//! Bad input, slow readers, and many runs.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stokehold_studio::{Options, Studio, StudioError};

use crate::{Running, alone, two_runs, within, write_run};

#[test]
fn a_port_in_use_is_told_with_what_to_do() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs.clone()], false);
    let options = Options {
        jobs: None,
        runs: vec![runs],
        data: Vec::new(),
        program: None,
        listen: studio.address.to_string(),
        read_only: false,
        tls: None,
        host: None,
    };
    let error = Studio::bind(options.clone()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains(&studio.address.to_string()) && said.contains("in use") && said.contains(":0"),
        "{said}"
    );
    let odd = Options {
        listen: "no address".to_owned(),
        ..options
    };
    assert!(matches!(Studio::bind(odd), Err(StudioError::Listen { .. })));
}

#[test]
fn what_is_broken_is_a_row_that_says_so_and_hides_no_other() {
    let (_dir, runs) = two_runs();
    let made = |name: &str, file: &str, text: &[u8]| {
        fs::create_dir_all(runs.join(name)).unwrap();
        fs::write(runs.join(name).join(file), text).unwrap();
    };
    made("cut", "run.json", b"{\"config\":{\"arch\":");
    made("list", "run.json", b"[]");
    made("bytes", "run.json", &[0xff, 0xfe, 0]);
    made("none", "note.txt", b"no run");
    made(
        "newer",
        "run.json",
        b"{\"stokehold\":\"9.0\",\"config\":{\"arch\":\"vit\",\"epochs\":{\"of\":7}},\"created\":\"long ago\"}",
    );
    fs::create_dir_all(runs.join("newer/profiler-output")).unwrap();
    made("recording", "x", b"");
    fs::create_dir_all(runs.join("recording/profiler-output")).unwrap();
    fs::write(
        runs.join("recording/profiler-output/recording.json"),
        "{\"stokehold\":9}",
    )
    .unwrap();
    let studio = Running::start(None, vec![runs], false);
    let page = studio.settled();
    let row = |name: &str| {
        let rows = page["rows"].as_array().unwrap().iter();
        rows.clone().find(|row| row["name"] == name).cloned()
    };
    assert!(row("none").is_none());
    for name in ["cut", "list", "bytes", "recording"] {
        let row = row(name).unwrap_or_else(|| panic!("{name}: {page}"));
        assert_eq!(row["state"], "unreadable");
        assert!(row["why"].as_str().unwrap().contains("json"), "{row}");
    }
    assert_eq!(row("newer").unwrap()["what"], "train vit");
    assert_eq!(row("one").unwrap()["result"], "top-1 0.7500");
    for name in ["cut", "newer", "recording", "one"] {
        for path in ["run", "run/curves", "run/judged", "run/log"] {
            let answer = studio.get(&format!("/api/{path}?key=runs/{name}"));
            assert!(
                [200, 404, 500].contains(&answer.status),
                "{name} {path} {answer:?}"
            );
            answer.json();
        }
    }
}

#[test]
fn hostile_names_and_lines_are_text() {
    let (_dir, runs) = two_runs();
    let name = "<img src=x onerror=alert(1)> \u{1b}[31m\u{202e}gpj&'\"";
    write_run(&runs.join(name), "<script>", 1, 0.5);
    let log = format!(
        "<script>alert(1)</script>\n\u{1b}[31mred\u{1b}[0m\u{7}\n{}\n\u{0}\u{85}\nlast\n",
        "x".repeat(1 << 20)
    );
    fs::write(runs.join(name).join("log"), &log).unwrap();
    let mut metrics = fs::read(runs.join(name).join("metrics.jsonl")).unwrap();
    metrics.extend(b"{\"name\":\"<b>\\u0007loss\",\"time\":1,\"value\":1}\nnot json\n{\"name\":\"nan\",\"time\":1,\"value\":\"NaN\"}\n");
    metrics.extend(vec![b'y'; 3 << 20]);
    metrics.extend(b"\n{\"name\":\"half\",\"ti");
    fs::write(runs.join(name).join("metrics.jsonl"), metrics).unwrap();
    let studio = Running::start(None, vec![runs], false);
    let page = studio.settled();
    let row = page["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["what"] == "train <script>");
    let shown = row.unwrap()["name"].as_str().unwrap();
    assert!(
        shown.starts_with("<img") && !shown.contains(['\u{1b}', '\u{202e}']),
        "{shown}"
    );
    let key: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let curves = studio.get(&format!("/api/run/curves?key=runs/{key}"));
    assert_eq!(curves.header("content-type"), Some("application/json"));
    let all = curves.json()["all"].clone();
    let names: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|curve| curve["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"<b>\u{fffd}loss") && names.contains(&"nan") && !names.contains(&"half"),
        "{names:?}"
    );
    let mut from = 0;
    let mut lines = Vec::new();
    loop {
        let part = studio
            .get(&format!("/api/run/log?key=runs/{key}&from={from}"))
            .json();
        for line in part["lines"].as_array().unwrap() {
            let text = line["text"].as_str().unwrap().to_owned();
            assert!(
                text.len() < 5000 && !text.contains(['\u{1b}', '\u{7}', '\u{0}', '\u{85}']),
                "{text}"
            );
            lines.push(text);
        }
        from = part["to"].as_u64().unwrap();
        if from == log.len() as u64 {
            break;
        }
    }
    assert_eq!(
        (lines[0].as_str(), lines[1].as_str()),
        ("<script>alert(1)</script>", "red\u{fffd}")
    );
    assert_eq!(lines.last().unwrap(), "last");
}

#[test]
fn folders_may_vanish_and_come_back() {
    let (dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs.clone()], false);
    studio.settled();
    fs::rename(&runs, dir.path().join("elsewhere")).unwrap();
    assert_eq!(studio.get("/api/run?key=runs/one").status, 404);
    within("the rows are gone", || {
        let page = studio.get("/api/runs").json();
        (page["all"] == 0 && page["troubles"][0].as_str()?.contains("No such file")).then_some(())
    });
    assert_eq!(studio.get("/api/session").json()["places"][0]["there"], false);
    fs::rename(dir.path().join("elsewhere"), &runs).unwrap();
    within("the rows are back", || {
        (studio.get("/api/runs").json()["all"] == 2).then_some(())
    });
}

#[test]
fn odd_requests_get_answers_and_the_next_one_too() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let big = "x".repeat(100 << 10);
    assert_eq!(studio.post("/api/stop", &big).status, 413);
    for body in ["", "{", "[]", "{\"key\":1}", "{\"key\":\"runs/one\"", "null"] {
        let answer = studio.post("/api/stop", body);
        assert!((400..500).contains(&answer.status), "{body} {answer:?}");
    }
    for path in [
        "/api/run",
        "/api/runs?from=-1",
        "/api/runs?count=x",
        "/api/events?view=x",
        "/api/events",
        "/api/compare?a=runs/one",
    ] {
        let answer = studio.get(path);
        assert_eq!(answer.status, 400, "{path} {answer:?}");
    }
    assert_eq!(
        studio
            .get("/api/runs?sort=nothing&count=99999999&from=99999999")
            .status,
        200
    );
    assert_eq!(studio.get("/nowhere").status, 404);
    assert_eq!(studio.raw("no http at all\r\n\r\n").status, 400);
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(1 << 20));
    assert!(matches!(studio.raw(&long).status, 0 | 400..500));
    assert_eq!(studio.get("/api/session").status, 200);
}

#[test]
fn slow_readers_hold_up_nobody_and_the_end_comes_at_once() {
    let (_dir, runs) = two_runs();
    let mut studio = Running::start(None, vec![runs], false);
    studio.settled();
    let mut open = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(studio.address).unwrap();
        let view = ["list", "home", "run&key=runs/one"][number % 3];
        let text = format!(
            "GET /api/events?view={view} HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            studio.cookie()
        );
        stream.write_all(text.as_bytes()).unwrap();
        open.push(stream);
    }
    // Heads that never end.
    for _ in 0..50 {
        let mut stream = TcpStream::connect(studio.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        open.push(stream);
    }
    let mut first = [0; 12];
    open[0].read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // The studio waits 20 s for a head, so whoever waits for one is not done before that.
    let began = Instant::now();
    assert_eq!(studio.get("/api/runs").json()["total"], 2);
    studio.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let thread = studio.thread.take().unwrap();
    thread.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    studio.thread = Some(std::thread::spawn(|| {}));
}

#[test]
fn connections_without_the_token_keep_nobody_out() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    // More than it takes.
    let mut idle: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(studio.address).unwrap())
        .collect();
    for _ in 0..3 {
        assert_eq!(studio.get("/api/runs").status, 200);
        idle.extend((0..50).map(|_| TcpStream::connect(studio.address).unwrap()));
    }
}

/// The first page of rows of ten thousand runs comes in a moment, warm and while they are read for the first time.
#[test]
fn ten_thousand_runs_are_a_page_in_a_moment() {
    if !alone("robust::ten_thousand_runs_are_a_page_in_a_moment") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    for number in 0..10_000 {
        write_run(
            &runs.join(format!("run-{number:05}")),
            "resnet18",
            1,
            f64::from(number) / 1e4,
        );
    }
    let before = resident();
    let studio = Running::start(None, vec![runs.clone()], false);
    let once = |path: &str| {
        let began = Instant::now();
        let answer = studio.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        (began.elapsed(), answer)
    };
    // The best of a few: other programs take their turns too.
    let timed = |path: &str| (0..5).map(|_| once(path)).min_by_key(|(time, _)| *time).unwrap();
    let (shell, _) = timed("/");
    let (cold, first) = once("/api/runs?kind=job,run&sort=-began&count=100");
    let began = Instant::now();
    let page = studio.settled();
    let read = began.elapsed();
    assert_eq!(page["all"], 10_000);
    let (warm, _) = timed("/api/runs?kind=job,run&sort=-began&count=100");
    let (home, _) = timed("/api/home");
    let (filtered, found) = timed("/api/runs?text=run-0777&sort=name");
    assert_eq!(found.json()["total"], 10);
    let grown = resident().saturating_sub(before);
    println!(
        "shell {shell:?}, rows at once {cold:?} ({} of them), all read after {read:?}, rows {warm:?}, filtered {filtered:?}, home \
         {home:?}, memory {:.1} MB",
        first.json()["all"],
        grown as f64 / 1e6
    );
    // docs/guide/studio.md has the times of a quiet machine; here they may be a hundred times as long.
    for time in [shell, cold, warm, home, filtered] {
        assert!(time < Duration::from_secs(10), "{time:?}");
    }
    assert!(grown < 60_000_000, "{grown}");
    // A change among ten thousand is seen.
    fs::remove_dir_all(runs.join("run-00007")).unwrap();
    within("the row is gone", || {
        (studio.get("/api/runs").json()["all"] == 9_999).then_some(())
    });
}

/// The curves of three million numbers take little memory, and the page gets their ends and extremes.
#[test]
fn three_million_numbers_are_a_curve_of_bounded_size() {
    if !alone("robust::three_million_numbers_are_a_curve_of_bounded_size") {
        return;
    }
    let (_dir, runs) = two_runs();
    let file = fs::File::create(runs.join("one/metrics.jsonl")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for step in 0..3_000_000i32 {
        let value = if step == 1_234_567 { -1 } else { step % 1000 };
        writeln!(
            file,
            "{{\"name\":\"loss\",\"time\":{step},\"step\":{step},\"value\":{value}}}"
        )
        .unwrap();
    }
    file.into_inner().unwrap();
    let studio = Running::start(None, vec![runs], false);
    studio.settled();
    let before = resident();
    let began = Instant::now();
    let answer = studio.get("/api/run/curves?key=runs/one");
    let (first, grown) = (began.elapsed(), resident().saturating_sub(before));
    let began = Instant::now();
    let again = studio.get("/api/run/curves?key=runs/one");
    println!(
        "3 000 000 numbers: read in {first:?}, again {:?}, {} kB of JSON, memory {:.1} MB",
        began.elapsed(),
        answer.body.len() / 1000,
        grown as f64 / 1e6
    );
    assert_eq!(again.body, answer.body);
    let points = answer.json()["all"][0]["points"].clone();
    let points: Vec<&[serde_json::Value]> = points.as_array().unwrap().chunks(3).collect();
    assert!((1000..=2000).contains(&points.len()), "{}", points.len());
    for step in [0, 1_234_567, 2_999_999] {
        assert!(points.iter().any(|point| point[1] == step), "{step}");
    }
    // It was 307 MB when a look kept all points.
    assert!(grown < 80_000_000, "{grown}");
}

/// Resident memory of this process, bytes (proc(5), `statm`: pages).
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
