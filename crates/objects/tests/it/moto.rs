//! A second opinion on S3: `moto`, a server that was not written next to the one of the other tests, nor in its language.

use std::time::Duration;

use stokehold_objects::{Bucket, Cause, Options};

use crate::s3::contents;

/// The bucket `photos`, and small pages, so that a few objects take several.
const BEFORE: &str = "\
os.environ['MOTO_S3_DEFAULT_MAX_KEYS'] = '10'
client('s3', 'us-east-1').create_bucket(Bucket='photos')
";

struct Moto(stokehold_untested::moto::Moto);

impl Moto {
    fn open(&self, uri: &str) -> Bucket {
        let settings = [
            ("AWS_ENDPOINT_URL", self.0.address.as_str()),
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

#[test]
fn moto_agrees() {
    let Some(moto) = stokehold_untested::moto::Moto::start(BEFORE, "sys.stdin.read()") else {
        return;
    };
    let moto = Moto(moto);
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
    let objects = bucket.list().unwrap().objects;
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
