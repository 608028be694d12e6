//! Servers whose answers name other servers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use stokehold_objects::{Bucket, Cause, Options};

/// A server that gives every request the same answer; its address, and the heads of the requests in small letters.
fn server(answer: String) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (heads, asked) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let lines = BufReader::new(&socket).lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            if heads.send(head.join("\n").to_ascii_lowercase()).is_err() {
                return;
            }
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

fn redirect(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

fn open(uri: &str, settings: &[(&str, &str)]) -> Bucket {
    let settings = settings
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()));
    let options = Options {
        retry: Duration::from_secs(1),
        settings: settings.collect(),
        ..Options::default()
    };
    Bucket::with_options(uri, options).unwrap()
}

/// The settings of a bucket of every provider at an address, with secrets.
fn places(address: &str) -> [(&'static str, Vec<(&'static str, String)>); 3] {
    let text = str::to_owned;
    [
        (
            "s3://bucket/set",
            vec![
                ("AWS_ENDPOINT_URL", text(address)),
                ("AWS_REGION", text("us-east-1")),
                ("AWS_ACCESS_KEY_ID", text("key")),
                ("AWS_SECRET_ACCESS_KEY", text("secret-of-the-test")),
                ("AWS_SESSION_TOKEN", text("token-of-the-test")),
            ],
        ),
        (
            "gs://bucket/set",
            vec![
                ("GOOGLE_BASE_URL", text(address)),
                ("GOOGLE_ALLOW_HTTP", text("true")),
                ("GOOGLE_BEARER_TOKEN", text("token-of-the-test")),
            ],
        ),
        (
            "az://bucket/set",
            vec![
                ("AZURE_STORAGE_ENDPOINT", text(address)),
                ("AZURE_ALLOW_HTTP", text("true")),
                ("AZURE_STORAGE_ACCOUNT_NAME", text("account")),
                ("AZURE_STORAGE_TOKEN", text("token-of-the-test")),
            ],
        ),
    ]
}

#[test]
fn no_bucket_follows_a_redirect() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let (other, stolen) = server(redirect("200 OK", ""));
        let (address, asked) = server(redirect(status, &format!("Location: {other}/steal\r\n")));
        for (uri, settings) in places(&address) {
            let settings: Vec<_> = settings
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let bucket = open(uri, &settings);
            for error in [
                bucket.list().unwrap_err(),
                bucket.fetch("k", &mut Vec::new()).unwrap_err(),
                bucket.put("k", vec![1]).unwrap_err(),
            ] {
                let said = error.to_string();
                assert_eq!(error.cause, Cause::Other, "{said}");
                for part in [uri, &format!("{other}/steal"), &status[..3], "endpoint"] {
                    assert!(said.contains(part), "{part}: {said}");
                }
                assert!(!said.contains("of-the-test"), "{said}");
            }
            assert_eq!(asked.try_iter().count(), 3, "{uri}: no request is made again");
        }
        let stolen = stolen.try_recv();
        assert!(stolen.is_err(), "{stolen:?}");
    }
}

#[test]
fn a_bucket_of_another_region_is_told_with_its_region() {
    let header = "x-amz-bucket-region: eu-west-1\r\n";
    let (address, _asked) = server(redirect("301 Moved Permanently", header));
    let [(uri, settings), ..] = places(&address);
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let said = open(uri, &settings).list().unwrap_err().to_string();
    assert!(said.contains("set AWS_REGION=eu-west-1"), "{said}");
}

#[test]
fn an_http_place_follows_a_redirect_and_tells_the_other_server_nothing() {
    let (other, asked) =
        server("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc".to_owned());
    let (address, _led) = server(redirect("302 Found", &format!("Location: {other}/there\r\n")));
    let mut got = Vec::new();
    open(&format!("{address}/set"), &[]).fetch("k", &mut got).unwrap();
    assert_eq!(got, b"abc");
    let head = asked.try_recv().unwrap();
    assert!(head.starts_with("get /there "), "{head}");
    for part in ["authorization", "referer", "/set"] {
        assert!(!head.contains(part), "{part}: {head}");
    }
}

#[test]
fn the_settings_of_the_client_count() {
    let (proxy, asked) = server(redirect("403 Forbidden", ""));
    let [(uri, mut settings), ..] = places("http://bucket.example");
    settings.push(("AWS_PROXY_URL", proxy));
    settings.push(("AWS_USER_AGENT", "agent-of-the-test".to_owned()));
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    open(uri, &settings).fetch("k", &mut Vec::new()).unwrap_err();
    let head = asked.try_recv().unwrap();
    assert!(
        head.starts_with("get http://bucket.example/bucket/set/k "),
        "{head}"
    );
    assert!(head.contains("user-agent: agent-of-the-test"), "{head}");
}
