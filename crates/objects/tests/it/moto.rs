//! A second opinion on S3: `moto`, a server that was not written beside the one of the other tests, nor in its language.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stokehold_objects::{Bucket, Cause, Options};

use crate::s3::contents;

/// Serves the bucket `photos` on a free port until its standard input ends, and says where.
const SERVER: &str = "\
import logging, sys, boto3
logging.getLogger('werkzeug').setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
address = 'http://%s:%d' % server.get_host_and_port()
client = boto3.client('s3', endpoint_url=address, region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b')
client.create_bucket(Bucket='photos')
print('listens at', address, flush=True)
sys.stdin.read()
";

struct Moto {
    child: Child,
    address: String,
}

impl Moto {
    fn start(python: &std::ffi::OsStr) -> Self {
        let mut child = Command::new(python)
            .args(["-c", SERVER])
            // Small pages, so that a few objects take several.
            .env("MOTO_S3_DEFAULT_MAX_KEYS", "10")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("listens at ")?.to_owned()));
        Self {
            child,
            address: address.expect("moto says where it listens"),
        }
    }

    fn open(&self, uri: &str) -> Bucket {
        let settings = [
            ("AWS_ENDPOINT_URL", self.address.as_str()),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "us-east-1"),
        ];
        let options = Options {
            settings: settings
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            retry: Duration::from_secs(20),
            ..Options::default()
        };
        Bucket::with_options(uri, options).unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn moto_agrees() {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_MOTO") else {
        stokehold_untested::skip("STOKEHOLD_TEST_MOTO names no Python with moto[server]");
        return;
    };
    let moto = Moto::start(&python);
    let bucket = moto.open("s3://photos/set");
    for number in 0..35 {
        bucket
            .put(
                &format!("class {}/{number:02}.jpg", number % 3),
                contents(number, 1000 + number),
            )
            .unwrap();
    }
    moto.open("s3://photos/settled").put("x", vec![1]).unwrap();
    let objects = bucket.list().unwrap();
    assert_eq!(
        objects.len(),
        35,
        "over four pages, and nothing of the other prefix"
    );
    assert!(objects.is_sorted_by(|a, b| a.key < b.key));
    assert_eq!(
        (objects[0].key.as_str(), objects[0].size),
        ("class 0/00.jpg", 1000)
    );

    let mut bytes = Vec::new();
    bucket.fetch("class 1/01.jpg", &mut bytes).unwrap();
    assert_eq!(bytes, contents(1, 1001));
    let mut part = vec![0; 100];
    bucket.fetch_range("class 1/01.jpg", 900, &mut part).unwrap();
    assert_eq!(part, contents(1, 1001)[900..1000]);
    let into = tempfile::tempdir().unwrap();
    let copied = bucket
        .copy(&objects, into.path(), &Default::default(), &Default::default())
        .unwrap();
    assert_eq!(copied.fetched, 35);
    assert_eq!(
        std::fs::read(into.path().join("class 2/02.jpg")).unwrap(),
        contents(2, 1002)
    );

    let large = contents(3, 40 << 20);
    bucket.put("large", large.clone()).unwrap();
    bucket.fetch("large", &mut bytes).unwrap();
    assert!(bytes == large, "what was sent in parts");
    let mut given_up = bucket.upload("given up", large.len() as u64).unwrap();
    given_up.write(&large).unwrap();
    drop(given_up);

    let first = bucket.put_if("lease", "one", None).unwrap().unwrap();
    assert!(bucket.put_if("lease", "two", None).unwrap().is_none());
    let second = bucket.put_if("lease", "three", Some(&first)).unwrap().unwrap();
    assert!(bucket.put_if("lease", "four", Some(&first)).unwrap().is_none());
    assert_eq!(
        bucket.read_version("lease").unwrap(),
        Some((b"three".to_vec(), second))
    );

    bucket.delete("large").unwrap();
    bucket.delete("large").unwrap();
    for missing in ["large", "given up"] {
        let error = bucket.fetch(missing, &mut bytes).unwrap_err();
        assert_eq!(error.cause, Cause::NotFound, "{error}");
    }
    let error = moto.open("s3://nobucket/x").list().unwrap_err();
    assert_eq!(error.cause, Cause::NotFound, "{error}");
    assert!(error.to_string().contains("s3://nobucket/x"), "{error}");
}
