//! A small WebDriver client (W3C WebDriver, and Chromium's own commands where that has none).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::answer;

/// How long a page may take to show what is waited for: these machines do other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium without its windows: it starts in a second where the whole browser takes many.
pub const SHELL: &str = "chromium-headless-shell";

/// A browser without a window.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next().expect("chromedriver says its port").unwrap();
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap();
            }
        };
        // What else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
        };
        let args = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
        ];
        let options = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args, "binary": format!("/usr/bin/{SHELL}")},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = browser.post("/session", &options);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser.command("timeouts", &json!({"script": 60_000, "pageLoad": 60_000}));
        browser.screen(1440, 900, "light");
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        // It keeps connections open, whatever is asked.
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let before = head.len();
            assert!(reader.read_line(&mut head).unwrap() > 0, "{path}: {head}");
            let line = head[before..].to_lowercase();
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = answer(&[head.as_bytes(), &body].concat());
        (answer.status, answer.json()["value"].clone())
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, value) = self.ask(method, path, body);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, &body.to_string())
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.post(&format!("/session/{}/{name}", self.session), body)
    }

    fn chromium(&self, name: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// Opens a page.
    pub fn go(&self, address: &str) {
        self.command("url", &json!({ "url": address }));
    }

    /// A screen of this size, in CSS pixels, and its colours: `light` or `dark`.
    pub fn screen(&self, width: u32, height: u32, scheme: &str) {
        self.chromium(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
        let features = [json!({"name": "prefers-color-scheme", "value": scheme})];
        self.chromium("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// What a script hands to the function that is its last argument.
    pub fn run_later(&self, script: &str) -> Value {
        self.command("execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&self, what: &str, expression: &str) {
        let began = Instant::now();
        while self.run(&format!("return !!({expression})")) != true {
            if began.elapsed() > PATIENCE {
                self.picture("failed");
                let page = self.run("return location.href + '\\n' + document.body.innerText.slice(0, 2000)");
                panic!(
                    "{what}: not within {PATIENCE:?}: {expression}\n{}",
                    page.as_str().unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub fn keys(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})))
            .collect();
        self.command(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]}),
        );
    }

    /// Clicks on an element as a person does: it has to be visible. A live page may replace it between looking and clicking.
    pub fn click(&self, selector: &str) {
        for _ in 0..20 {
            let found = self.command("element", &json!({"using": "css selector", "value": selector}));
            let id = found.as_object().unwrap().values().next().unwrap();
            let path = format!("/session/{}/element/{}/click", self.session, id.as_str().unwrap());
            let (status, value) = self.ask("POST", &path, "{}");
            if status == 200 {
                return;
            }
            assert_eq!(value["error"], "stale element reference", "{path}: {value}");
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{selector} was replaced whenever it was clicked on");
    }

    /// The tab that is looked at.
    pub fn tab(&self) -> String {
        let path = format!("/session/{}/window", self.session);
        self.send("GET", &path, "").as_str().unwrap().to_owned()
    }

    /// Opens another tab, and looks at it.
    pub fn new_tab(&self) -> String {
        let made = self.command("window/new", &json!({"type": "tab"}));
        let tab = made["handle"].as_str().unwrap().to_owned();
        self.switch(&tab);
        tab
    }

    pub fn switch(&self, tab: &str) {
        self.command("window", &json!({ "handle": tab }));
    }

    /// A picture of the page, if somebody wants it.
    pub fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("STOKEHOLD_TEST_SCREENSHOTS").map(PathBuf::from) else {
            return;
        };
        let size = self.run("const page = document.documentElement; return [page.clientWidth, Math.min(page.scrollHeight, 5000)]");
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let taken = self.chromium(
            "Page.captureScreenshot",
            &json!({"format": "png", "captureBeyondViewport": true, "clip": clip}),
        );
        let bytes = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }

    /// The console has no errors: no script failed, and the content security policy has refused nothing.
    #[track_caller]
    pub fn no_faults(&self) {
        let said = self.command("se/log", &json!({"type": "browser"}));
        let faults: Vec<&Value> = said
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["level"] == "SEVERE")
            // What is not there is asked for on purpose: a run without a recording has no verdict.
            .filter(|line| !line["message"].as_str().unwrap_or_default().contains("404"))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver would end the shell script that is the browser's program, and not the browser.
        let close = json!({"cmd": "Browser.close", "params": {}}).to_string();
        for (request, body) in [("POST", close), ("DELETE", String::new())] {
            let path = match request {
                "POST" => format!("/session/{}/goog/cdp/execute", self.session),
                _ => format!("/session/{}", self.session),
            };
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
                let text = format!(
                    "{request} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(text.as_bytes());
                let _ = BufReader::new(stream).read_line(&mut String::new());
            }
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
