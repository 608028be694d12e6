//! A studio over real HTTP, and in a real browser.

mod browser;
mod changed;
mod data;
mod live;
mod results;
mod robust;
mod security;
mod start;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use stokehold_base::hash::Fnv;
use stokehold_studio::{Options, Studio};
use tempfile::TempDir;

/// A studio in a thread of its own.
struct Running {
    address: SocketAddr,
    link: String,
    token: String,
    actions: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An answer.
#[derive(Debug)]
struct StudioReply {
    status: u16,
    head: String,
    body: String,
}

impl StudioReply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
    }
}

impl Running {
    fn start(jobs: Option<PathBuf>, runs: Vec<PathBuf>, read_only: bool) -> Self {
        Self::with(jobs, runs, |options| options.read_only = read_only)
    }

    fn with(jobs: Option<PathBuf>, runs: Vec<PathBuf>, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options {
            jobs,
            runs,
            data: Vec::new(),
            program: None,
            listen: "127.0.0.1:0".to_owned(),
            read_only: false,
            tls: None,
            host: None,
        };
        change(&mut options);
        Self::of(options)
    }

    fn of(options: Options) -> Self {
        let studio = Studio::bind(options).unwrap();
        let (address, link) = (studio.address(), studio.link());
        let token = link.split_once("token=").unwrap().1.to_owned();
        let (stop, actions) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (ends, told) = (Arc::clone(&stop), Arc::clone(&actions));
        let thread = std::thread::spawn(move || {
            studio
                .run(&ends, move |action| told.lock().unwrap().push(action.to_string()))
                .unwrap();
        });
        Self {
            address,
            link,
            token,
            actions,
            stop,
            thread: Some(thread),
        }
    }

    /// Sends bytes, and reads until the other side closes.
    fn raw(&self, text: &str) -> StudioReply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // It may be refused before it is read whole.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        answer(&bytes)
    }

    fn cookie_name(&self) -> String {
        format!("stokehold-{:08x}", Fnv::of(self.token.as_bytes()) as u32)
    }

    fn cookie(&self) -> String {
        format!("Cookie: {}={}\r\n", self.cookie_name(), self.token)
    }

    /// GET as a page of the studio does it.
    fn get(&self, path: &str) -> StudioReply {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{}Sec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n",
            self.address,
            self.cookie()
        ))
    }

    fn post(&self, path: &str, body: &str) -> StudioReply {
        self.post_from(path, body, &format!("Origin: http://{}\r\n", self.address))
    }

    fn post_from(&self, path: &str, body: &str, headers: &str) -> StudioReply {
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{}{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            self.cookie(),
            body.len()
        ))
    }

    /// Waits until the index has read everything.
    fn settled(&self) -> Value {
        within("the folders are read", || {
            let page = self.get("/api/runs?count=500").json();
            (page["reading"] == false).then_some(page)
        })
    }

    fn actions(&self) -> Vec<String> {
        self.actions.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn answer(bytes: &[u8]) -> StudioReply {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    StudioReply {
        status,
        head: head.to_owned(),
        body,
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// What `look` finds, as soon as it finds it.
fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{what}: not within a minute"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a test in a process of its own, whose memory and time are that test's alone. `true` in that process.
fn alone(name: &str) -> bool {
    const VARIABLE: &str = "STOKEHOLD_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some_and(|own| own == name) {
        return true;
    }
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VARIABLE, name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
    false
}

/// A run as `stokehold train` leaves it.
fn write_run(folder: &Path, arch: &str, epochs: u64, top1: f64) {
    fs::create_dir_all(folder).unwrap();
    let run = serde_json::json!({
        "stokehold": "0.1.0", "created": 1_790_000_000,
        "config": {"arch": arch, "epochs": epochs, "lr": 0.1, "batch_size": 64},
        "dataset": {"classes": ["a", "b"], "train": 100}, "machine": {"cores": 2},
    });
    fs::write(folder.join("run.json"), run.to_string()).unwrap();
    let summary = serde_json::json!({
        "epochs": epochs, "images_per_second": 100.0, "wait_share": 0.25, "seconds_per_epoch": 10.0,
        "train_loss": 0.5, "validation": {"loss": 0.75, "top1": top1, "topk": 1.0, "k": 2, "images": 20},
        "interrupted": false,
    });
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
    let lines: String = (1..=100)
        .map(|step| {
            format!(
                "{{\"kind\":\"train\",\"epoch\":1,\"step\":{step},\"loss\":{},\"lr\":0.1,\"images_per_second\":100}}\n",
                2.0 / f64::from(step)
            )
        })
        .collect();
    fs::write(folder.join("metrics.jsonl"), lines).unwrap();
}

/// A folder `runs` with two runs.
fn two_runs() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    write_run(&runs.join("one"), "resnet18", 1, 0.75);
    write_run(&runs.join("two"), "resnet50", 2, 0.875);
    (dir, runs)
}
