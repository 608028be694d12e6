//! A server that answers each request as a test says, for what moto does not do: throttling, silence, faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use stokehold_objects::Options;
use stokehold_sagemaker::Client;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// The operation, such as `DescribeTrainingJob`; of a bucket HTTP's first line.
    pub operation: String,
    pub body: Value,
    /// The body as it came.
    pub text: String,
    /// By their names in small letters.
    pub headers: BTreeMap<String, String>,
}

pub enum Reply {
    Json(u16, Value),
    /// An answer of S3.
    Xml(u16, &'static str),
    /// The client is sent to another address.
    Redirect(String),
    /// The connection is closed without an answer.
    Closed,
    /// The connection is reset: the system does so when one is closed with something that was not read.
    Reset,
    /// Nothing comes until the client goes away.
    Silent,
}

type Answers = dyn FnMut(&Request, usize) -> Reply + Send;

pub struct Stub {
    pub address: String,
    /// All requests so far.
    pub requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// `answers` gets a request and how many of its operation came before it.
    pub fn start(answers: impl FnMut(&Request, usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers: Arc<Mutex<Box<Answers>>> = Arc::new(Mutex::new(Box::new(answers)));
        let all = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (answers, all) = (Arc::clone(&answers), Arc::clone(&all));
                std::thread::spawn(move || serve(connection, &all, &answers));
            }
        });
        Self { address, requests }
    }

    pub fn operations(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| request.operation.clone()).collect()
    }

    /// A client that gives up after `retry`.
    pub fn client(&self, retry: Duration) -> Client {
        Client::open(Some("eu-west-1"), &options(&self.address, retry)).unwrap()
    }
}

pub fn options(address: &str, retry: Duration) -> Options {
    let settings = [
        ("AWS_ENDPOINT_URL", address),
        ("AWS_ENDPOINT_URL_SAGEMAKER", ""),
        ("AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", ""),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test"),
        ("AWS_SESSION_TOKEN", "a-token-of-the-test"),
    ];
    Options {
        timeout: Duration::from_secs(1),
        retry,
        settings: settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..Options::default()
    }
}

fn serve(connection: TcpStream, all: &Mutex<Vec<Request>>, answers: &Mutex<Box<Answers>>) {
    // So that nothing is read ahead.
    let mut reader = BufReader::with_capacity(1, connection.try_clone().unwrap());
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    if line.is_empty() {
        return;
    }
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    if let Some((last, before)) = body.split_last_mut() {
        reader.read_exact(before).unwrap();
        // It stays there for a reset.
        connection.peek(std::slice::from_mut(last)).unwrap();
    }
    let request = Request {
        // Requests to buckets have none.
        operation: match headers.get("x-amz-target") {
            Some(target) => target.rsplit('.').next().unwrap().to_owned(),
            None => line.trim_end().to_owned(),
        },
        body: serde_json::from_slice(&body).unwrap_or_default(),
        text: String::from_utf8_lossy(&body).into_owned(),
        headers,
    };
    let before = {
        let mut all = all.lock().unwrap();
        let before = all
            .iter()
            .filter(|known| known.operation == request.operation)
            .count();
        all.push(request.clone());
        before
    };
    let reply = answers.lock().unwrap()(&request, before);
    if length > 0 && !matches!(reply, Reply::Reset) {
        reader.read_exact(&mut [0]).unwrap();
    }
    match reply {
        Reply::Closed | Reply::Reset => {}
        Reply::Silent => drop(reader.read(&mut [0])),
        Reply::Json(status, body) => write_answer(&connection, status, "etag: \"1\"", &body.to_string()),
        Reply::Xml(status, body) => write_answer(&connection, status, "etag: \"1\"", body),
        Reply::Redirect(to) => write_answer(&connection, 307, &format!("location: {to}"), ""),
    }
}

fn write_answer(mut connection: &TcpStream, status: u16, header: &str, body: &str) {
    // The client may be gone.
    let _ = write!(
        connection,
        "HTTP/1.1 {status} X\r\n{header}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}
