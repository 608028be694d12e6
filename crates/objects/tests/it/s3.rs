//! What works.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stokehold_objects::{Bucket, Cause, Options};
use stokehold_s3_server::Server;

/// A server over a folder with one bucket, and a place in it.
pub struct ServedBucket {
    pub server: Server,
    pub folder: tempfile::TempDir,
    pub bucket: Bucket,
}

pub fn place() -> ServedBucket {
    place_with(Options::default())
}

pub fn place_with(options: Options) -> ServedBucket {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("photos")).unwrap();
    let server = Server::start(folder.path()).unwrap();
    let bucket = open(&server, "s3://photos/set", options).unwrap();
    ServedBucket {
        server,
        folder,
        bucket,
    }
}

pub fn open(server: &Server, uri: &str, options: Options) -> Result<Bucket, stokehold_objects::ObjectError> {
    let settings = server.settings();
    Bucket::with_options(uri, Options { settings, ..options })
}

/// Bytes that no two keys share.
pub fn contents(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + number * 7 + at / 251) as u8)
        .collect()
}

#[test]
fn lists_over_pages_and_fetches_what_was_put() {
    let place = place();
    // More than one page of a thousand.
    for number in 0..1100 {
        place
            .bucket
            .put(
                &format!("class {}/{number:04}.jpg", number % 3),
                contents(number, 40),
            )
            .unwrap();
    }
    // Outside of the prefix, also when its name begins like it.
    let outside = open(&place.server, "s3://photos/settled", Options::default()).unwrap();
    outside.put("x", vec![1]).unwrap();
    let objects = place.bucket.list().unwrap().objects;
    assert_eq!(objects.len(), 1100);
    assert!(objects.is_sorted_by(|a, b| a.key < b.key));
    assert_eq!(
        (objects[0].key.as_str(), objects[0].size),
        ("class 0/0000.jpg", 40)
    );
    let mut bytes = vec![9; 1000];
    place.bucket.fetch("class 1/0001.jpg", &mut bytes).unwrap();
    assert_eq!(bytes, contents(1, 40));
    assert_eq!(place.bucket.size("class 1/0001.jpg").unwrap(), 40);

    place.bucket.delete("class 1/0001.jpg").unwrap();
    place.bucket.delete("class 1/0001.jpg").unwrap();
    assert_eq!(
        place
            .bucket
            .fetch("class 1/0001.jpg", &mut bytes)
            .unwrap_err()
            .cause,
        Cause::NotFound
    );
    assert_eq!(place.bucket.list().unwrap().objects.len(), 1099);
}

#[test]
fn ranges_and_large_objects() {
    let place = place();
    let large = contents(3, 40 << 20);
    place.bucket.put("large.bin", large.clone()).unwrap();
    assert_eq!(
        std::fs::read(place.folder.path().join("photos/set/large.bin")).unwrap(),
        large
    );
    let mut part = vec![0; 1000];
    place
        .bucket
        .fetch_range("large.bin", 33_000_000, &mut part)
        .unwrap();
    assert_eq!(part, large[33_000_000..33_001_000]);
    place.bucket.fetch_range("large.bin", 5, &mut []).unwrap();
    let begun: Vec<_> = (0..20u64)
        .map(|at| {
            place
                .bucket
                .begin("large.bin", Some(at * 1000..at * 1000 + 500))
                .unwrap()
        })
        .collect();
    for (at, fetch) in begun.into_iter().enumerate() {
        assert_eq!(fetch.wait().unwrap(), large[at * 1000..at * 1000 + 500]);
    }
    let error = place
        .bucket
        .fetch_range("large.bin", (40 << 20) - 10, &mut part)
        .unwrap_err();
    assert!(error.to_string().contains("s3://photos/set/large.bin"), "{error}");
}

#[test]
fn copies_go_on_where_they_were() {
    let place = place();
    for number in 0..30 {
        place
            .bucket
            .put(&format!("a/{number}.bin"), contents(number, 10_000 + number))
            .unwrap();
    }
    let objects = place.bucket.list().unwrap().objects;
    let into = tempfile::tempdir().unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let copied = place.bucket.copy(&objects, into.path(), &done, &stop).unwrap();
    assert_eq!((copied.fetched, copied.kept), (30, 0));
    assert_eq!((copied.bytes, done.load(Ordering::SeqCst)), (300_435, 300_435));
    for number in 0..30 {
        assert_eq!(
            std::fs::read(into.path().join(format!("a/{number}.bin"))).unwrap(),
            contents(number, 10_000 + number)
        );
    }
    // One file is gone, one is cut: just these two come again.
    std::fs::remove_file(into.path().join("a/3.bin")).unwrap();
    std::fs::write(into.path().join("a/4.bin"), b"short").unwrap();
    let copied = place.bucket.copy(&objects, into.path(), &done, &stop).unwrap();
    assert_eq!((copied.fetched, copied.kept), (2, 28));
    assert_eq!(
        std::fs::read(into.path().join("a/4.bin")).unwrap(),
        contents(4, 10_004)
    );

    // Stopped: an error, and nothing half-written.
    let (fresh, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(true));
    let error = place
        .bucket
        .copy(&objects, fresh.path(), &done, &stop)
        .unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    let left = walk(fresh.path());
    assert!(left.iter().all(|path| !path.ends_with(".partial")), "{left:?}");
}

#[test]
fn an_object_that_changed_behind_the_list_is_told() {
    let place = place();
    place.bucket.put("k", contents(1, 100)).unwrap();
    let objects = place.bucket.list().unwrap().objects;
    place.bucket.put("k", contents(1, 90)).unwrap();
    let into = tempfile::tempdir().unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let error = place
        .bucket
        .copy(&objects, into.path(), &done, &stop)
        .unwrap_err();
    assert_eq!(error.cause, Cause::Changed, "{error}");
    assert!(walk(into.path()).is_empty());
}

#[test]
fn a_place_that_is_not_there() {
    let place = place();
    let error = open(&place.server, "s3://nobucket/x", Options::default())
        .unwrap()
        .list()
        .unwrap_err();
    assert_eq!(error.cause, Cause::NotFound, "{error}");
    let empty = open(&place.server, "s3://photos/nothing", Options::default()).unwrap();
    assert!(empty.list().unwrap().objects.is_empty());
    let error = Bucket::open("/no/such/folder").unwrap_err();
    assert_eq!(error.cause, Cause::NotFound);

    let wrong = [("AWS_SECRET_ACCESS_KEY".to_owned(), "wrong-secret".to_owned())];
    let settings = place.server.settings().into_iter().chain(wrong).collect();
    let options = Options {
        settings,
        retry: Duration::from_secs(2),
        ..Options::default()
    };
    let error = Bucket::with_options("s3://photos/set", options)
        .unwrap()
        .list()
        .unwrap_err();
    assert_eq!(error.cause, Cause::Denied, "{error}");
    assert!(!error.to_string().contains("wrong-secret"), "{error}");
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push(path.display().to_string()),
        }
    }
    found
}

#[test]
fn an_upload_appears_whole_or_not_at_all() {
    let place = place();
    let large = contents(4, (33 << 20) + 5);
    for (key, size) in [
        ("empty", 0),
        ("small", 1000),
        ("a part", 16 << 20),
        ("parts", large.len()),
    ] {
        let mut upload = place.bucket.upload(key, size as u64).unwrap();
        for chunk in large[..size].chunks(5_000_000) {
            upload.write(chunk).unwrap();
        }
        let seen: Vec<String> = place
            .bucket
            .list()
            .unwrap()
            .objects
            .into_iter()
            .map(|object| object.key)
            .collect();
        assert!(!seen.iter().any(|seen| seen == key), "{seen:?}");
        upload.finish().unwrap();
        assert!(
            std::fs::read(place.folder.path().join("photos/set").join(key)).unwrap() == large[..size],
            "{key}"
        );
    }
    let mut upload = place.bucket.upload("given up", large.len() as u64).unwrap();
    upload.write(&large).unwrap();
    drop(upload);
    assert_eq!(
        place.bucket.fetch("given up", &mut Vec::new()).unwrap_err().cause,
        Cause::NotFound
    );
}

#[test]
fn who_writes_over_a_version_that_is_no_more_is_told() {
    let place = place();
    let folder = tempfile::tempdir().unwrap();
    for bucket in [
        place.bucket.clone(),
        Bucket::open(folder.path().to_str().unwrap()).unwrap(),
    ] {
        assert!(bucket.read_version("k").unwrap().is_none());
        let first = bucket.put_if("k", "one", None).unwrap().unwrap();
        assert!(
            bucket.put_if("k", "two", None).unwrap().is_none(),
            "it is there already"
        );
        let second = bucket.put_if("k", "second", Some(&first)).unwrap().unwrap();
        assert!(
            bucket.put_if("k", "third", Some(&first)).unwrap().is_none(),
            "it was written since"
        );
        let (bytes, version) = bucket.read_version("k").unwrap().unwrap();
        assert_eq!((bytes.as_slice(), &version), (&b"second"[..], &second));
        bucket.delete("k").unwrap();
        assert!(
            bucket.put_if("k", "four", Some(&version)).unwrap().is_none(),
            "it is gone"
        );
    }
}

#[test]
fn an_endpoint_that_is_no_address_is_an_error() {
    for endpoint in ["no address", "localhost", "http://a b"] {
        let settings = vec![
            ("AWS_ENDPOINT_URL".to_owned(), endpoint.to_owned()),
            ("AWS_SKIP_SIGNATURE".to_owned(), "true".to_owned()),
        ];
        let options = Options {
            settings,
            ..Options::default()
        };
        let error = Bucket::with_options("s3://photos/set", options).unwrap_err();
        assert_eq!(error.cause, Cause::BadUri);
        assert!(error.to_string().contains("is no address such as"), "{error}");
    }
}

#[test]
fn an_upload_of_any_size_appears_only_in_place_of_what_was_expected() {
    let place = place();
    let folder = tempfile::tempdir().unwrap();
    for bucket in [
        place.bucket.clone(),
        Bucket::open(folder.path().to_str().unwrap()).unwrap(),
    ] {
        for (key, size) in [("small", 1000), ("large", 40_000_000)] {
            let upload = |byte: u8| {
                let mut upload = bucket.upload(key, size).unwrap();
                upload.write(&vec![byte; size as usize]).unwrap();
                upload
            };
            let first = upload(1).finish_if(None).unwrap().unwrap();
            assert!(upload(2).finish_if(None).unwrap().is_none(), "{key} is there");
            let (object, version) = bucket.look_up(key).unwrap().unwrap();
            assert_eq!((object.size, version.etag()), (size, first.etag()));
            assert!(upload(3).finish_if(Some(&version)).unwrap().is_some());
            assert!(upload(4).finish_if(Some(&version)).unwrap().is_none());
            let (now, _) = bucket.look_up(key).unwrap().unwrap();
            assert!(now.is_version_of(&now) && !now.is_version_of(&object));
            let mut byte = [0];
            bucket.fetch_range(key, size - 1, &mut byte).unwrap();
            assert_eq!(byte, [3]);
        }
        assert!(bucket.look_up("nothing").unwrap().is_none());
    }
}

#[test]
fn a_key_that_no_file_can_have_is_left_out_and_the_others_are_read() {
    let place = place();
    for key in ["a b/1.jpg", "a/ é+%&.jpg", "a/2.jpg "] {
        place.bucket.put(key, key.as_bytes().to_vec()).unwrap();
    }
    let odd = [
        ("set/", 0),
        ("set/a/", 0),
        ("set/new/", 0),
        ("set/a", 7),
        ("set//b.jpg", 1),
        ("set/a/../b.jpg", 1),
        ("set/a/tab\t.jpg", 1),
        ("set/a/nul\0.jpg", 1),
        ("settled//x", 1),
    ];
    *place.server.faults().listed.lock().unwrap() = odd.map(|(key, size)| (key.to_owned(), size)).to_vec();
    let listed = place.bucket.list().unwrap();
    let mut bytes = Vec::new();
    for (object, key) in listed
        .objects
        .iter()
        .zip(["a b/1.jpg", "a/ é+%&.jpg", "a/2.jpg "])
    {
        assert_eq!(object.key, key);
        place.bucket.fetch(&object.key, &mut bytes).unwrap();
        assert_eq!(bytes, key.as_bytes());
    }
    assert_eq!(listed.objects.len(), 3);
    assert_eq!(listed.markers.len(), 3, "{:?}", listed.markers);
    let left: Vec<&str> = listed
        .left_out
        .iter()
        .map(|left| left.object.key.as_str())
        .collect();
    assert_eq!(left, ["/b.jpg", "a/../b.jpg", "a/nul\0.jpg", "a/tab\t.jpg", "a"]);
}

#[test]
fn a_file_that_no_key_can_name_is_left_out() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let names: [&[u8]; 4] = [b"a.jpg", b"tab\t.jpg", b"no-utf8\xff.jpg", b"z.jpg"];
    for name in names {
        std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let bucket = Bucket::open(folder.path().to_str().unwrap()).unwrap();
    let listed = bucket.list().unwrap();
    let keys: Vec<&str> = listed.objects.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys, ["a.jpg", "z.jpg"]);
    let left: Vec<String> = listed.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(
        left,
        [
            "\"tab\\t.jpg\" is left out: it has a control character",
            "\"no-utf8%FF.jpg\" is left out: it is not UTF-8"
        ]
    );
}
