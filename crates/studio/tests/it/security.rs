//! Who gets in, and who does not.

use std::fs;
use std::os::unix::fs::symlink;

use crate::{Running, two_runs};

const PATHS: [&str; 8] = [
    "/",
    "/runs",
    "/assets/app.js",
    "/api/session",
    "/api/runs",
    "/api/run?key=runs/one",
    "/api/events?view=list",
    "/nowhere",
];

#[test]
fn without_the_token_there_is_nothing() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let port = studio.address.port();
    for path in PATHS {
        let wrong = "0".repeat(64);
        for cookie in [
            String::new(),
            format!("Cookie: {}={wrong}\r\n", studio.cookie_name()),
            format!("Cookie: stokehold-1={}\r\n", studio.token),
        ] {
            let text =
                format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{cookie}Connection: close\r\n\r\n");
            let answer = studio.raw(&text);
            assert_eq!(answer.status, 401, "{path} {answer:?}");
            assert!(
                answer.body.starts_with("open the link") && !answer.body.contains("one"),
                "{answer:?}"
            );
        }
    }
    let text = format!(
        "GET /?token={} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        &studio.token[1..]
    );
    assert_eq!(studio.raw(&text).status, 401);
}

#[test]
fn the_link_becomes_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let path = studio.link.split_once(&studio.address.to_string()).unwrap().1;
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nConnection: close\r\n\r\n",
        studio.address
    );
    let answer = studio.raw(&text);
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/", &studio.token] {
        assert!(cookie.contains(part), "{cookie}");
    }
    // A request with the cookie gets none again.
    let answer = studio.get("/");
    assert_eq!((answer.status, answer.header("set-cookie")), (200, None));
}

#[test]
fn every_answer_forbids_foreign_code() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let mut answers: Vec<_> = PATHS
        .iter()
        .filter(|path| !path.contains("events"))
        .map(|path| studio.get(path))
        .collect();
    answers.push(studio.raw("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"));
    answers.push(studio.post("/api/stop", "{}"));
    for answer in answers {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{answer:?}");
        }
    }
}

#[test]
fn a_name_that_an_attacker_resolves_is_refused() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let status = |host: &str| {
        let cookie = studio.cookie();
        let text = format!("GET /api/runs HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\n\r\n");
        studio.raw(&text).status
    };
    let port = studio.address.port();
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
    ] {
        assert_eq!(status(&format!("{host}:{port}")), 421, "{host}");
    }
    // By a tunnel the port is another one.
    for host in ["localhost", "127.0.0.1:1234", "[::1]:9"] {
        assert_eq!(status(host), 200, "{host}");
    }
}

#[test]
fn pages_of_other_sites_can_do_and_read_nothing() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], false);
    let body = "{\"key\":\"runs/one\",\"on\":false}";
    let own = format!("Origin: http://{}\r\n", studio.address);
    for headers in [
        String::new(),
        "Origin: https://evil.example\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: http://{}.evil.example\r\n", studio.address),
        format!("{own}Sec-Fetch-Site: cross-site\r\n"),
        // Another program of this machine at another port.
        "Origin: http://127.0.0.1:1\r\nSec-Fetch-Site: same-site\r\n".to_owned(),
    ] {
        let answer = studio.post_from("/api/profiler", body, &headers);
        assert_eq!(answer.status, 403, "{headers} {answer:?}");
    }
    // A form can send text without asking first, but no JSON.
    let text = format!(
        "POST /api/profiler HTTP/1.1\r\nHost: {0}\r\n{1}Origin: http://{0}\r\nContent-Type: text/plain\r\nContent-Length: {2}\r\n\
         Connection: close\r\n\r\n{body}",
        studio.address,
        studio.cookie(),
        body.len()
    );
    assert_eq!(studio.raw(&text).status, 415);
    let read = format!(
        "GET /api/runs HTTP/1.1\r\nHost: {}\r\n{}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nConnection: close\r\n\r\n",
        studio.address,
        studio.cookie()
    );
    assert_eq!(studio.raw(&read).status, 403);
    assert!(studio.actions().is_empty(), "{:?}", studio.actions());
    // The same from the studio's own page is done, or refused for what it is.
    assert_eq!(studio.post("/api/profiler", body).status, 409);
    assert_eq!(studio.actions().len(), 1);
}

#[test]
fn nothing_outside_of_the_folders_is_read() {
    let (dir, runs) = two_runs();
    fs::write(
        dir.path().join("secret"),
        "{\"name\":\"secret\",\"time\":1,\"value\":42}\n",
    )
    .unwrap();
    fs::create_dir_all(dir.path().join("outside")).unwrap();
    fs::write(
        dir.path().join("outside/run.json"),
        "{\"config\":{\"arch\":\"secret\"}}",
    )
    .unwrap();
    symlink(dir.path().join("outside"), runs.join("away")).unwrap();
    fs::create_dir_all(runs.join("sly")).unwrap();
    fs::write(
        runs.join("sly/run.json"),
        "{\"config\":{\"arch\":\"sly\",\"epochs\":1}}",
    )
    .unwrap();
    symlink(dir.path().join("secret"), runs.join("sly/log")).unwrap();
    symlink(dir.path().join("secret"), runs.join("sly/metrics.jsonl")).unwrap();
    let studio = Running::start(None, vec![runs], false);
    let page = studio.settled().to_string();
    assert!(
        !page.contains("secret") && !page.contains("away") && !page.contains("sly"),
        "{page}"
    );
    for key in [
        "runs/../secret",
        "runs/..%2f..",
        "runs/%2e%2e",
        "runs/../../etc",
        "/etc",
        "runs//etc",
        "runs/one/../../outside",
        "runs/one%00",
        "runs/none",
    ] {
        for path in ["run", "run/curves", "run/log", "run/judged"] {
            let answer = studio.get(&format!("/api/{path}?key={key}"));
            assert_eq!(answer.status, 404, "{path} {key} {answer:?}");
        }
    }
    for key in ["runs/away", "runs/sly"] {
        for path in ["run", "run/curves", "run/log", "run/judged"] {
            let answer = studio.get(&format!("/api/{path}?key={key}"));
            assert_eq!(answer.status, 403, "{path} {key} {answer:?}");
            assert!(!answer.body.contains("secret"), "{answer:?}");
        }
    }
    for path in [
        "/assets/../Cargo.toml",
        "/assets/..%2f..%2fCargo.toml",
        "/assets/%2e%2e",
        "/assets/",
        "/etc/passwd",
    ] {
        assert_eq!(studio.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_read_only_studio_changes_nothing_and_every_try_is_told() {
    let (_dir, runs) = two_runs();
    let studio = Running::start(None, vec![runs], true);
    for (path, body) in [
        ("/api/stop", "{\"key\":\"runs/one\"}"),
        (
            "/api/profiler",
            "{\"key\":\"runs/one\\nforged line\",\"on\":true}",
        ),
        ("/api/resume", "{\"key\":\"runs/one\"}"),
        ("/api/notes", "{\"key\":\"runs/one\",\"tags\":[\"a\"]}"),
        ("/api/trial/stop", "{\"key\":\"runs/one\",\"trial\":0}"),
    ] {
        let answer = studio.post(path, body);
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains("read-only"), "{answer:?}");
    }
    let actions = studio.actions();
    assert_eq!(actions.len(), 5, "{actions:?}");
    assert!(
        actions[0].contains("127.0.0.1") && actions[0].contains("stop runs/one: this studio is read-only"),
        "{actions:?}"
    );
    assert!(!actions[1].contains('\n'), "{actions:?}");
    assert!(
        actions.iter().all(|action| !action.contains(&studio.token)),
        "{actions:?}"
    );
    let can = studio.get("/api/run?key=runs/one").json()["can"].clone();
    assert_eq!(
        can,
        serde_json::json!({"stop": false, "resume": false, "note": false, "profiler": false, "clone": false})
    );
}
