//! Servers of batches as programs: trained with, killed, stopped, and asked by strangers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

fn stokehold(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command.current_dir(dir).env_remove("STOKEHOLD_TOKEN");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A server, which is killed when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let started = command.args(["--workers", "1"]).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.split_whitespace().find(|word| word.contains("://"));
        Self {
            address: address.unwrap_or_else(|| panic!("{line:?}")).to_owned(),
            child,
        }
    }

    fn of_data(dir: &Path) -> Self {
        Self::start(stokehold(dir).args(["serve", "data", "--listen", "127.0.0.1:0"]))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

fn data() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut make = stokehold(dir.path());
    make.args(["dataset", "synth", "data", "--images", "120", "--classes", "2"]);
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    dir
}

const RUN: [&str; 14] = [
    "train",
    "data",
    "--image-size",
    "32",
    "--batch-size",
    "2",
    "--epochs",
    "2",
    "--freeze-backbone",
    "--ceiling-batches",
    "0",
    "--log-every",
    "1",
    "--name",
];

/// The losses of the steps so far.
fn losses(dir: &Path, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(dir.join("runs").join(name).join("metrics.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let steps = lines.filter(|line| line["kind"] == "train");
    steps.map(|line| line["loss"].as_f64().unwrap()).collect()
}

#[test]
fn a_run_is_the_same_with_servers_of_which_one_dies_and_one_stands_still() {
    let dir = data();
    let (dir, servers) = (dir.path(), [0; 3].map(|_| Server::of_data(dir.path())));
    let [a, mut b, c] = servers;
    let local = stokehold(dir).args(RUN).arg("local").output().unwrap();
    assert!(local.status.success(), "{}", said(&local));
    let all = [&a.address[..], &b.address, &c.address].join(",");
    let mut remote = stokehold(dir);
    remote.args(RUN).args(["remote", "--loader", &all]);
    let mut remote = remote
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while losses(dir, "remote").len() < 20 {
        assert!(remote.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(5));
    }
    b.child.kill().unwrap();
    c.signal(Signal::SIGSTOP);
    let output = remote.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let (expected, made) = (losses(dir, "local"), losses(dir, "remote"));
    assert_eq!(expected.len(), 96);
    assert_eq!(made, expected);
    let said = said(&output);
    assert!(
        said.contains("batches made") && said.contains(&a.address),
        "{said}"
    );
}

#[test]
fn a_run_goes_on_without_its_servers_and_stops_at_once_beside_a_silent_one() {
    let dir = data();
    let dir = dir.path();
    let server = Server::of_data(dir);
    let mut remote = stokehold(dir);
    remote.args(RUN).args(["run", "--loader", &server.address]);
    let mut remote = remote
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while losses(dir, "run").len() < 12 {
        assert!(remote.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(5));
    }
    server.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(300));
    let stopped = Instant::now();
    kill(Pid::from_raw(remote.id() as i32), Signal::SIGINT).unwrap();
    let output = remote.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(
        stopped.elapsed() < Duration::from_secs(20),
        "{:?}",
        stopped.elapsed()
    );
    let resumed = stokehold(dir)
        .args(RUN)
        .args(["run", "--resume"])
        .output()
        .unwrap();
    assert!(resumed.status.success(), "{}", said(&resumed));
    let local = stokehold(dir).args(RUN).arg("local").output().unwrap();
    assert!(local.status.success(), "{}", said(&local));
    assert_eq!(losses(dir, "run"), losses(dir, "local"));
}

#[test]
fn wrong_servers_and_options_are_refused_in_words() {
    let dir = data();
    let dir = dir.path();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("tcp://{nobody}");
    fs::write(dir.join("key.pem"), "no key").unwrap();
    for (words, says) in [
        (
            &["serve", "data", "--listen", &taken][..],
            "choose another address with --listen",
        ),
        (&["serve", "nothing", "--listen", "127.0.0.1:0"], "no such folder"),
        (&["serve", "data", "--pipeline", "nothing"], "no preset is called"),
        (
            &["serve", "data", "--tls-cert", "key.pem", "--tls-key", "key.pem"],
            "key.pem",
        ),
        (
            &["train", "data", "--loader", &nobody],
            "start one with `stokehold serve`",
        ),
        (&["train", "data", "--loader", "a:7000"], "write tcp://HOST:PORT"),
        (
            &["train", "data", "--loader", &nobody, "--executor", "auto"],
            "must be fused or per-op where servers make the batches",
        ),
        (
            &["bench", "loader", "data", "--loader", &nobody],
            "start one with `stokehold serve`",
        ),
        (
            &[
                "bench",
                "loader",
                "data",
                "--loader",
                &nobody,
                "--read-latency",
                "1ms",
            ],
            "--read-latency delays reads of this machine",
        ),
    ] {
        let output = stokehold(dir).args(words).output().unwrap();
        // The terminal's width decides where a message is wrapped.
        let said = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    assert!(!dir.join("runs").exists());
}

#[test]
fn a_server_speaks_tls_and_asks_for_its_token() {
    if Command::new("openssl").arg("version").output().is_err() {
        stokehold_untested::skip("there is no openssl, which makes the certificate");
        return;
    }
    let dir = data();
    let dir = dir.path();
    let mut make = Command::new("openssl");
    make.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]);
    make.args([
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]);
    let made = make.current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let server = Server::start(
        stokehold(dir)
            .args([
                "serve",
                "data",
                "--listen",
                "127.0.0.1:0",
                "--tls-cert",
                "cert.pem",
                "--tls-key",
                "key.pem",
            ])
            .env("STOKEHOLD_TOKEN", "a-secret"),
    );
    assert!(
        server.address.starts_with("tls://127.0.0.1:"),
        "{}",
        server.address
    );
    let address = server.address.replace("127.0.0.1", "localhost");
    let bench = |certificates: &str, token: &str, address: &str| {
        let mut command = stokehold(dir);
        command.args([
            "bench",
            "loader",
            "data",
            "--passes",
            "1",
            "--image-size",
            "64",
            "--loader",
            address,
        ]);
        command
            .env("SSL_CERT_FILE", dir.join(certificates))
            .env("STOKEHOLD_TOKEN", token);
        let output = command.output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, said) = bench("cert.pem", "a-secret", &address);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("images/s"), "{said}");
    let (code, said) = bench("cert.pem", "a-guess", &address);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the token is another one"), "{said}");
    let (code, said) = bench("cert.pem", "a-secret", &address.replace("tls://", "tcp://"));
    assert_eq!(code, Some(2), "{said}");
    // The name in the certificate counts.
    let (code, said) = bench("cert.pem", "a-secret", &server.address);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("certificate"), "{said}");
}

/// A trial whose batches a server makes has the images of the others, and its figures say nothing of the server's cores.
#[test]
fn servers_are_compared_with_the_loader_of_this_machine() {
    let dir = data();
    let server = Server::of_data(dir.path());
    let compare = |more: &[&str]| {
        let mut command = stokehold(dir.path());
        command.args([
            "compare",
            "data",
            "--trials",
            "fused,remote",
            "--trainer",
            "emulated",
        ]);
        command.args([
            "--images-per-second",
            "500",
            "--batch-size",
            "8",
            "--image-size",
            "64",
            "--loads",
            "1",
        ]);
        command.args([
            "--models",
            "resnet18",
            "--round",
            "0.1",
            "--time-limit",
            "1",
            "--out",
            "out",
        ]);
        command.args(["--workers", "1"]).args(more).output().unwrap()
    };
    let without = compare(&[]);
    assert_eq!(without.status.code(), Some(2), "{}", said(&without));
    assert!(
        said(&without).contains("the trial remote takes batches of servers"),
        "{}",
        said(&without)
    );
    let done = compare(&["--loader", &server.address]);
    assert!(done.status.success(), "{}", said(&done));
    let report = fs::read_to_string(dir.path().join("out/compare.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let trials = report["cells"][0]["trials"].as_array().unwrap();
    assert_eq!(
        (&trials[0]["trial"], &trials[1]["trial"]),
        (&"fused".into(), &"remote".into())
    );
    let labels = |trial: usize| trials[trial]["rounds"][0]["labels"].clone();
    assert!(labels(0).is_number() && labels(0) == labels(1), "{report:#}");
    assert!(trials[0]["summary"]["images_per_core_second"].is_number());
    assert!(trials[1]["summary"]["images_per_core_second"].is_null());
    assert_ne!(trials[1]["summary"]["gain"]["verdict"], "not-the-same-work");
}
