//! The studio as a program: its link, its folders, its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn studio(dir: &Path, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .current_dir(dir)
        .arg("studio")
        .args(words)
        .env("STOKEHOLD_JOBS", dir.join("jobs"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The first line of its output: the link.
fn link(child: &mut Child) -> (String, String) {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let (address, token) = line.trim().split_once("/?token=").unwrap();
    (
        address.strip_prefix("http://").unwrap().to_owned(),
        token.to_owned(),
    )
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn it_prints_a_link_shows_what_is_there_and_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("runs/one")).unwrap();
    fs::write(
        dir.path().join("runs/one/run.json"),
        "{\"config\":{\"arch\":\"resnet18\",\"epochs\":1}}",
    )
    .unwrap();
    let mut child = studio(dir.path(), &["--listen", "127.0.0.1:0"]);
    let (address, token) = link(&mut child);
    assert!(get(&address, "/api/runs").starts_with("HTTP/1.1 401"));
    let began = Instant::now();
    loop {
        let page = get(&address, &format!("/api/runs?token={token}"));
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        if page.contains("\"name\":\"one\"") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{page}");
    }
    // The address is in use now.
    let other = studio(dir.path(), &["--listen", &address])
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&address) && said.contains("name a free HOST:PORT"),
        "{said}"
    );
    // An open event stream does not keep it.
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "GET /api/events?view=list&token={token} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("jobs, runs") && !said.contains(&token), "{said}");
}

fn post(address: &str, token: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path}?token={token} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Asks until an answer has a text in it.
fn until(address: &str, path: &str, has: &str) {
    let began = Instant::now();
    loop {
        let page = get(address, path);
        if page.contains(has) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no {has} in {page}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_job_goes_on_when_its_studio_is_killed_and_the_next_one_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let wait = dir.path().join("wait");
    fs::write(&wait, "").unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(
        source.join("train.sh"),
        "echo it runs\nwhile [ -e \"$WAIT\" ]; do sleep 0.05; done\necho it ends\n",
    )
    .unwrap();
    let job = format!(
        "entry-point = \"train.sh\"\nsource-dir = {:?}\nname = \"one\"\nopt-ml = false\nprofile = false\n[environment]\nWAIT = {:?}\n",
        source.to_str().unwrap(),
        wait.to_str().unwrap()
    );
    let mut child = studio(dir.path(), &["--listen", "127.0.0.1:0"]);
    let (address, token) = link(&mut child);
    let body = format!("{{\"text\": {job:?}}}");
    let answer = post(&address, &token, "/api/start", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    until(
        &address,
        &format!("/api/run/log?key=jobs/one&token={token}"),
        "it runs",
    );
    child.kill().unwrap();
    child.wait().unwrap();

    let mut child = studio(dir.path(), &["--listen", "127.0.0.1:0"]);
    let (address, token) = link(&mut child);
    let page = format!("/api/run?key=jobs/one&token={token}");
    until(&address, &page, "\"state\":\"running\"");
    fs::remove_file(&wait).unwrap();
    until(&address, &page, "\"state\":\"finished\"");
    until(
        &address,
        &format!("/api/run/log?key=jobs/one&token={token}"),
        "it ends",
    );
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    child.wait().unwrap();
}

#[test]
fn jobs_are_added_to_a_study_which_goes_on_without_the_studio() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.sh"), "echo \"loss=$SM_HP_LR\"\n").unwrap();
    let file = "[study]\nobjective = \"loss\"\nstrategy = \"random\"\n[study.limits]\nmax-jobs = 1\n[study.parameters.lr]\n\
                type = \"continuous\"\nmin = 1\nmax = 2\n[job]\nentry-point = \"train.sh\"\nprofile = false\n\
                [[job.metrics]]\nname = \"loss\"\nregex = 'loss=(\\S+)'\n";
    fs::write(dir.path().join("tune.toml"), file).unwrap();
    fs::create_dir(dir.path().join("runs")).unwrap();
    let begun = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["tune", "run", "tune.toml", "--study", "runs/lr"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        begun.status.success(),
        "{}",
        String::from_utf8_lossy(&begun.stderr)
    );
    let mut child = studio(dir.path(), &["--listen", "127.0.0.1:0"]);
    let (address, token) = link(&mut child);
    let page = format!("/api/study?key=runs/lr&token={token}");
    until(&address, &page, "\"add\":true");
    let add = |jobs: usize| {
        let body = format!("{{\"key\": \"runs/lr\", \"jobs\": {jobs}}}");
        post(&address, &token, "/api/study/add", &body)
    };
    let none = add(0);
    assert!(none.starts_with("HTTP/1.1 400"), "{none}");
    let added = add(2);
    assert!(
        added.starts_with("HTTP/1.1 200") && added.contains("the study has 3 jobs now"),
        "{added}"
    );
    until(&address, &page, "\"completed\":3");
    let body = "{\"key\": \"runs/lr\"}";
    let ended = post(&address, &token, "/api/study/end", body);
    assert!(
        ended.starts_with("HTTP/1.1 200") && ended.contains("ends with its 3 jobs"),
        "{ended}"
    );
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let said = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.contains("add 2 jobs to runs/lr: the study has 3 jobs now"),
        "{said}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let ended = studio(dir.path(), &["--runs", "nowhere"])
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(
        said.contains("nowhere: No such file") && said.contains("name a folder"),
        "{said}"
    );
}
