//! What goes wrong on the way, and what is made of it.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use stokehold_objects::{Cause, Options};
use stokehold_s3_server::Server;

use crate::s3::{ServedBucket, contents, open, place, place_with};

fn hasty() -> Options {
    Options {
        timeout: Duration::from_millis(500),
        retry: Duration::from_secs(2),
        ..Options::default()
    }
}

#[test]
fn throttling_and_broken_bodies_are_tried_again() {
    let place = place();
    let bytes = contents(5, 300_000);
    place.bucket.put("k", bytes.clone()).unwrap();
    let faults = place.server.faults();
    let mut got = Vec::new();

    faults.unavailable.store(3, SeqCst);
    place.bucket.fetch("k", &mut got).unwrap();
    assert_eq!(got, bytes);
    assert_eq!(faults.unavailable.load(SeqCst), 0);

    faults.truncated.store(2, SeqCst);
    place.bucket.fetch("k", &mut got).unwrap();
    assert!(got == bytes, "a body that broke twice");
    assert_eq!(faults.truncated.load(SeqCst), 0);

    faults.truncated.store(1, SeqCst);
    let fetch = place.bucket.begin("k", Some(1000..200_000)).unwrap();
    assert!(fetch.wait().unwrap() == bytes[1000..200_000]);
}

#[test]
fn a_server_that_stays_silent_is_given_up() {
    let place = place_with(hasty());
    place.bucket.put("k", contents(1, 100)).unwrap();
    place.server.faults().silent.store(1, SeqCst);
    let mut got = Vec::new();
    place.bucket.fetch("k", &mut got).unwrap();
    assert_eq!(got.len(), 100, "one silence is survived");

    place.server.faults().silent.store(u64::MAX, SeqCst);
    let start = Instant::now();
    let error = place.bucket.fetch("k", &mut got).unwrap_err();
    assert_eq!(error.cause, Cause::Unreachable, "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn expired_credentials_are_named_and_not_tried_again() {
    let place = place();
    place.bucket.put("k", contents(1, 100)).unwrap();
    place.server.faults().expired.store(u64::MAX, SeqCst);
    let before = place.server.faults().requests.load(SeqCst);
    let error = place.bucket.fetch("k", &mut Vec::new()).unwrap_err();
    assert_eq!(error.cause, Cause::Denied, "{error}");
    assert!(error.to_string().contains("ExpiredToken"), "{error}");
    assert_eq!(place.server.faults().requests.load(SeqCst) - before, 1);
}

#[test]
fn a_server_that_is_killed_and_comes_back() {
    let ServedBucket {
        server,
        folder,
        bucket,
    } = place();
    let bytes = contents(2, 50_000);
    bucket.put("k", bytes.clone()).unwrap();
    let address = server.address();
    drop(server);
    let fetch = bucket.begin("k", None).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let _again = Server::start_at(folder.path(), address).unwrap();
    assert!(fetch.wait().unwrap() == bytes);

    let gone = tempfile::tempdir().unwrap();
    let server = Server::start(gone.path()).unwrap();
    let bucket = open(&server, "s3://photos/set", hasty()).unwrap();
    drop(server);
    let error = bucket.list().unwrap_err();
    assert_eq!(error.cause, Cause::Unreachable, "{error}");
    assert!(error.to_string().contains("AWS_ENDPOINT_URL"), "{error}");
}

#[test]
fn requests_are_bounded() {
    let options = Options {
        requests: 4,
        ..Options::default()
    };
    let place = place_with(options);
    place.bucket.put("k", contents(2, 100)).unwrap();
    place.server.faults().latency_ms.store(50, SeqCst);
    let start = Instant::now();
    let begun: Vec<_> = (0..20).map(|_| place.bucket.begin("k", None).unwrap()).collect();
    for fetch in begun {
        fetch.wait().unwrap();
    }
    // Twenty requests of 50 ms, four at a time.
    assert!(
        start.elapsed() >= Duration::from_millis(240),
        "{:?}",
        start.elapsed()
    );
}
