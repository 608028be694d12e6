//! Channels from a real S3 server.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stokehold_jobs::{Channel, Job, Status};
use stokehold_s3_server::Server;

use crate::Bench;

/// A server with `bucket/train/<i>.txt`, 0 to 9, each with its own text of `i * 1000 + 1` bytes.
fn served(bench: &Bench) -> Server {
    let train = bench.dir.path().join("s3/bucket/train");
    fs::create_dir_all(train.join("below")).unwrap();
    for i in 0..9 {
        fs::write(train.join(format!("{i}.txt")), text(i)).unwrap();
    }
    fs::write(train.join("below/9.txt"), text(9)).unwrap();
    Server::start(&bench.dir.path().join("s3")).unwrap()
}

fn text(i: usize) -> String {
    format!("{i}").repeat(i * 1000 + 1)
}

fn with(bench: &Bench, server: &Server, script: &str, channel: &str) -> Job {
    let mut job = bench.job("run.sh", script);
    job.environment.extend(server.settings());
    job.channels
        .insert("train".to_owned(), Channel::parse(channel).unwrap());
    job
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_are_there_before_the_script_and_survive_a_bad_server() {
    let bench = Bench::new();
    let server = served(&bench);
    server.faults().unavailable.store(3, Ordering::SeqCst);
    let mut job = with(
        &bench,
        &server,
        "cat $SM_CHANNEL_TRAIN/*.txt | wc -c; wc -c < $SM_CHANNEL_TRAIN/below/9.txt",
        "s3://bucket/train",
    );
    job.instances = 2;
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let mut printed = bench.printed();
    printed.sort();
    let sum: usize = (0..9).map(|i| text(i).len()).sum();
    let line = |host: &str, n: usize| format!("{host} out {n}");
    assert_eq!(
        printed,
        [
            line("algo-1", sum),
            line("algo-1", 9001),
            line("algo-2", sum),
            line("algo-2", 9001)
        ]
    );
}

#[test]
fn a_sharded_channel_is_split_without_rest_and_without_overlap() {
    let bench = Bench::new();
    let server = served(&bench);
    for mode in ["File", "Pipe"] {
        let script = if mode == "File" {
            "find $SM_CHANNEL_TRAIN/ -type f -exec cat {} +"
        } else {
            "cat ${SM_CHANNEL_TRAIN}_0"
        };
        let script = format!("{script} | tr -s 0-9; echo");
        let channel = format!("s3://bucket/train,mode={mode},distribution=ShardedByS3Key");
        let mut job = with(&bench, &server, &script, &channel);
        job.instances = 2;
        let record = bench.run(&job);
        assert_eq!(record.status, Status::Completed, "{record:?}");
        let printed = bench.printed();
        let of = |host: &str| {
            let line = printed
                .iter()
                .find_map(|line| line.strip_prefix(&format!("{host} out ")));
            let mut digits: Vec<char> = line.unwrap_or_default().chars().collect();
            digits.sort_unstable();
            digits
        };
        // Keys in order: 0.txt .. 8.txt, below/9.txt.
        assert_eq!(
            (of("algo-1"), of("algo-2")),
            ("02468".chars().collect(), "13579".chars().collect()),
            "{printed:?}"
        );
    }
}

#[test]
fn a_manifest_names_the_objects() {
    let bench = Bench::new();
    let server = served(&bench);
    let manifest = bench.dir.path().join("s3/bucket/some.manifest");
    fs::write(
        &manifest,
        r#"[{"prefix": "s3://bucket/train/"}, "7.txt", "below/9.txt"]"#,
    )
    .unwrap();
    let channel = "s3://bucket/some.manifest,mode=File,kind=ManifestFile";
    let record = bench.run(&with(&bench, &server, "true", channel));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert_eq!(
        files(&bench.base(&record, "algo-1").join("input/data/train")),
        ["7.txt", "below"]
    );
    for (text, says) in [
        (
            r#"[{"prefix": "s3://bucket/train/"}, "77.txt"]"#,
            "the manifest names it",
        ),
        (
            r#"[{"prefix": "file:///etc"}, "passwd"]"#,
            "it names \"file:///etc\", another kind of place",
        ),
        (
            r#"[{"prefix": "/etc"}, "passwd"]"#,
            "it names \"/etc\", another kind",
        ),
        (
            r#"[{"prefix": "gs://bucket/train"}, "7.txt"]"#,
            "another kind of place",
        ),
        (r#"["7.txt"]"#, "does not begin with"),
        ("[", "as a manifest"),
    ] {
        fs::write(&manifest, text).unwrap();
        let reason = bench
            .run(&with(&bench, &server, "true", channel))
            .failure_reason
            .unwrap();
        assert!(
            reason.contains("channel train") && reason.contains(says),
            "{reason}"
        );
    }
}

#[test]
fn data_that_is_not_there_fails_the_job_with_the_place() {
    let bench = Bench::new();
    let server = served(&bench);
    for (channel, says) in [
        ("s3://bucket/nothing", "s3://bucket/nothing: there are no objects"),
        (
            "s3://bucket/nothing,mode=Pipe",
            "s3://bucket/nothing: there are no objects",
        ),
    ] {
        let reason = bench
            .run(&with(&bench, &server, "true", channel))
            .failure_reason
            .unwrap();
        assert!(
            reason.contains("channel train") && reason.contains(says),
            "{reason}"
        );
    }
}

#[test]
fn a_stop_does_not_wait_for_a_bucket_that_never_answers() {
    let bench = Bench::new();
    // It accepts connections, which the kernel does for it, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for channel in [
        "s3://bucket/train",
        "s3://bucket/train,mode=Pipe",
        "s3://bucket/train,mode=FastFile",
    ] {
        let mut job = bench.job("run.sh", "true");
        let address = format!("http://{}", silent.local_addr().unwrap());
        for (name, value) in [
            ("AWS_ENDPOINT_URL", address.as_str()),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ] {
            job.environment.insert(name.to_owned(), value.to_owned());
        }
        job.channels
            .insert("train".to_owned(), Channel::parse(channel).unwrap());
        let name = bench.store.create(&job).unwrap();
        let claim = bench.store.claim(&name).unwrap();
        let stop = AtomicBool::new(false);
        let (record, took) = std::thread::scope(|scope| {
            let running = scope.spawn(|| stokehold_jobs::run(claim, &stop, &|_| {}).unwrap());
            stokehold_untested::until("it is listed", || {
                bench.store.get(&name).unwrap().secondary == stokehold_jobs::Secondary::Downloading
            });
            std::thread::sleep(Duration::from_millis(500));
            let began = Instant::now();
            stop.store(true, Ordering::SeqCst);
            (running.join().unwrap(), began.elapsed())
        });
        assert_eq!(record.status, Status::Stopped, "{record:?}");
        // A request is given up after 30 s.
        assert!(took < Duration::from_secs(25), "{channel}: {took:?}");
    }
}

#[test]
fn a_pipe_an_epoch_and_an_early_close_opens_the_next() {
    let bench = Bench::new();
    let server = served(&bench);
    let script = "cat ${SM_CHANNEL_TRAIN}_0 | md5sum; head -c 10 ${SM_CHANNEL_TRAIN}_1 | wc -c; cat ${SM_CHANNEL_TRAIN}_2 | md5sum; \
                  cat ${SM_CHANNEL_TRAIN}_0 2>/dev/null || echo gone";
    let record = bench.run(&with(&bench, &server, script, "s3://bucket/train,mode=Pipe"));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let printed = bench.printed();
    assert_eq!(printed.len(), 4, "{printed:?}");
    assert_eq!(printed[0], printed[2]);
    assert_eq!(
        (printed[1].as_str(), printed[3].as_str()),
        ("algo-1 out 10", "algo-1 out gone")
    );
    let config = bench
        .base(&record, "algo-1")
        .join("input/config/inputdataconfig.json");
    assert!(
        fs::read_to_string(config)
            .unwrap()
            .contains("\"TrainingInputMode\":\"Pipe\"")
    );
}

/// The bytes that a script copied out of its pipes.
fn piped(bench: &Bench, server: &Server, epochs: usize, channel: &str) -> Vec<Vec<u8>> {
    let script = format!(
        "for e in $(seq 0 {}); do cat ${{SM_CHANNEL_TRAIN}}_$e > $SM_OUTPUT_DIR/$e; done",
        epochs - 1
    );
    let record = bench.run(&with(bench, server, &script, channel));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let output = bench.base(&record, "algo-1").join("output");
    (0..epochs)
        .map(|epoch| fs::read(output.join(epoch.to_string())).unwrap())
        .collect()
}

/// Takes records apart as the format says, independently of the writer.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..4], [0x0A, 0x23, 0xD7, 0xCE]);
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        found.push(bytes[8..8 + length].to_vec());
        let end = 8 + length.next_multiple_of(4);
        assert!(bytes[8 + length..end].iter().all(|byte| *byte == 0));
        bytes = &bytes[end..];
    }
    found
}

#[test]
fn records_gzip_and_shuffle() {
    let bench = Bench::new();
    let server = served(&bench);
    let whole: Vec<Vec<u8>> = (0..10).map(|i| text(i).into_bytes()).collect();
    let plain = piped(&bench, &server, 1, "s3://bucket/train,mode=Pipe");
    assert_eq!(plain[0], whole.concat());
    let wrapped = piped(&bench, &server, 1, "s3://bucket/train,mode=Pipe,wrapper=RecordIO");
    assert_eq!(records(&wrapped[0]), whole);
    let shuffled = piped(
        &bench,
        &server,
        2,
        "s3://bucket/train,mode=Pipe,wrapper=RecordIO,shuffle=5",
    );
    let (first, second) = (records(&shuffled[0]), records(&shuffled[1]));
    assert!(first != second && first != whole);
    for mut epoch in [first, second] {
        epoch.sort();
        assert_eq!(epoch, whole);
    }
    let packed = bench.dir.path().join("s3/bucket/packed");
    fs::create_dir_all(&packed).unwrap();
    for (i, bytes) in whole.iter().enumerate() {
        let file = fs::File::create(packed.join(format!("{i}.gz"))).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap();
    }
    let unpacked = piped(
        &bench,
        &server,
        1,
        "s3://bucket/packed,mode=Pipe,compression=Gzip",
    );
    assert_eq!(unpacked[0], whole.concat());
    let both = piped(
        &bench,
        &server,
        1,
        "s3://bucket/packed,mode=Pipe,compression=Gzip,wrapper=RecordIO",
    );
    assert_eq!(records(&both[0]), whole);
    // What is no gzip fails the job, and does not hang it.
    let job = with(
        &bench,
        &server,
        "cat ${SM_CHANNEL_TRAIN}_0; sleep 60",
        "s3://bucket/train,mode=Pipe,compression=Gzip",
    );
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Failed);
    assert!(
        record
            .failure_reason
            .unwrap()
            .contains("channel train: s3://bucket/train/0.txt")
    );
}

#[test]
fn a_script_that_reads_no_pipe_or_goes_away_ends_its_job() {
    let bench = Bench::new();
    let server = served(&bench);
    for script in [
        "true",
        "head -c 1 ${SM_CHANNEL_TRAIN}_0",
        "exec 3< ${SM_CHANNEL_TRAIN}_0",
    ] {
        let record = bench.run(&with(&bench, &server, script, "s3://bucket/train,mode=Pipe"));
        assert_eq!(record.status, Status::Completed, "{script}: {record:?}");
    }
}

#[test]
fn an_augmented_manifest_streams_values_and_objects_line_by_line() {
    let bench = Bench::new();
    let server = served(&bench);
    let bucket = bench.dir.path().join("s3/bucket");
    fs::create_dir_all(bench.dir.path().join("s3/other/deep")).unwrap();
    fs::write(bench.dir.path().join("s3/other/deep/x"), "elsewhere").unwrap();
    let manifest = "{\"source-ref\": \"s3://bucket/train/3.txt\", \"label\": 1, \"unwanted\": 7}\n\n\
        {\"label\": \"a cat\", \"source-ref\": \"s3://other/deep/x\"}\n\
        {\"source-ref\": \"s3://bucket/train/0.txt\", \"label\": {\"box\": [1, 2.5], \"a\": null}}";
    fs::write(bucket.join("m.jsonl"), manifest).unwrap();
    let expected: Vec<Vec<u8>> = vec![
        text(3).into_bytes(),
        b"1".to_vec(),
        b"elsewhere".to_vec(),
        b"a cat".to_vec(),
        text(0).into_bytes(),
        br#"{"a":null,"box":[1,2.5]}"#.to_vec(),
    ];
    let channel = "s3://bucket/m.jsonl,mode=Pipe,kind=AugmentedManifestFile,attributes=source-ref+label";
    let plain = piped(&bench, &server, 1, channel);
    assert_eq!(plain[0], expected.concat());
    let wrapped = piped(&bench, &server, 2, &format!("{channel},wrapper=RecordIO"));
    assert_eq!(
        (records(&wrapped[0]), records(&wrapped[1])),
        (expected.clone(), expected.clone())
    );
    // Samples stay together in another order.
    let shuffled = piped(
        &bench,
        &server,
        6,
        &format!("{channel},wrapper=RecordIO,shuffle=1"),
    );
    let mut orders: Vec<Vec<Vec<u8>>> = shuffled.iter().map(|epoch| records(epoch)).collect();
    assert!(orders.iter().any(|epoch| *epoch != expected));
    for epoch in &mut orders {
        let mut samples: Vec<&[Vec<u8>]> = epoch.chunks(2).collect();
        samples.sort();
        let mut whole: Vec<&[Vec<u8>]> = expected.chunks(2).collect();
        whole.sort();
        assert_eq!(samples, whole);
    }
    let mut job = with(
        &bench,
        &server,
        "cat ${SM_CHANNEL_TRAIN}_0 | tr -d '\\0' | wc -c",
        &format!("{channel},distribution=ShardedByS3Key"),
    );
    job.instances = 2;
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let mut printed = bench.printed();
    printed.sort();
    let bytes = |parts: &[usize]| parts.iter().map(|part| expected[*part].len()).sum::<usize>();
    assert_eq!(
        printed,
        [
            format!("algo-1 out {}", bytes(&[0, 1, 4, 5])),
            format!("algo-2 out {}", bytes(&[2, 3]))
        ]
    );
}

#[test]
fn an_augmented_manifest_that_is_wrong_names_the_line() {
    let bench = Bench::new();
    let server = served(&bench);
    let bucket = bench.dir.path().join("s3/bucket");
    let channel = "s3://bucket/m.jsonl,mode=Pipe,kind=AugmentedManifestFile,attributes=source-ref+label";
    let good = "{\"source-ref\": \"s3://bucket/train/1.txt\", \"label\": 1}";
    for (line, says) in [
        ("{\"source-ref\": 5, \"label\": 1}", "line 2: source-ref is 5"),
        (
            "{\"source-ref\": \"train/1.txt\", \"label\": 1}",
            "line 2: \"train/1.txt\" is no object's URI",
        ),
        (
            "{\"source-ref\": \"s3://bucket\", \"label\": 1}",
            "line 2: \"s3://bucket\" is no object's URI",
        ),
        (
            "{\"source-ref\": \"http://127.0.0.1/secret\", \"label\": 1}",
            "line 2: it names \"http://127.0.0.1/secret\", another kind of place",
        ),
        (
            "{\"source-ref\": \"s3://bucket/train/1.txt\"}",
            "line 2: there is no label",
        ),
        ("[1]", "line 2: invalid type"),
        ("{", "line 2: EOF"),
    ] {
        fs::write(bucket.join("m.jsonl"), format!("{good}\n{line}\n")).unwrap();
        let reason = bench
            .run(&with(&bench, &server, "true", channel))
            .failure_reason
            .unwrap();
        assert!(
            reason.contains("channel train: s3://bucket/m.jsonl") && reason.contains(says),
            "{reason}"
        );
    }
    fs::write(bucket.join("m.jsonl"), "\n").unwrap();
    let reason = bench
        .run(&with(&bench, &server, "true", channel))
        .failure_reason
        .unwrap();
    assert!(reason.contains("there are no samples"), "{reason}");
    // A line that names a missing object is an error when its turn comes.
    fs::write(bucket.join("m.jsonl"), good.replace("1.txt", "77.txt")).unwrap();
    let job = with(&bench, &server, "cat ${SM_CHANNEL_TRAIN}_0; sleep 60", channel);
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Failed);
    assert!(
        record
            .failure_reason
            .unwrap()
            .contains("channel train: s3://bucket/train/77.txt")
    );
}

/// What a console, a mounted bucket or a mistake of a program leaves at a place.
fn odd(server: &Server) {
    let odd = [
        ("train/", 0),
        ("train/below/", 0),
        ("train/new/", 0),
        ("train/below//1.txt", 9),
        ("train/../2.txt", 9),
        ("train/below/tab\t.txt", 9),
    ];
    *server.faults().listed.lock().unwrap() = odd.map(|(key, size)| (key.to_owned(), size)).to_vec();
}

#[test]
fn folders_are_no_objects_and_keys_that_no_file_can_have_are_named_in_each_mode() {
    let bench = Bench::new();
    let server = served(&bench);
    odd(&server);
    let mut modes = vec!["File", "Pipe"];
    if stokehold_untested::needs::can_mount() {
        modes.extend(["FastFile", "Cache"]);
    }
    for mode in modes {
        let script = match mode {
            "Pipe" => "cat ${SM_CHANNEL_TRAIN}_0 | wc -c",
            _ => {
                "cd $SM_CHANNEL_TRAIN; find . -type f | wc -l; find . -type d | wc -l; cat *.txt */*.txt | wc -c"
            }
        };
        let channel = format!("s3://bucket/train,mode={mode}");
        let mut job = with(&bench, &server, script, &channel);
        job.cache_dir = Some(bench.dir.path().join("cache"));
        let record = bench.run(&job);
        assert_eq!(record.status, Status::Completed, "{mode}: {record:?}");
        let printed = bench.printed();
        let bytes: usize = (0..10).map(|i| text(i).len()).sum();
        let seen: Vec<&str> = printed
            .iter()
            .filter_map(|line| line.strip_prefix("algo-1 out "))
            .collect();
        match mode {
            "Pipe" => assert_eq!(seen, [bytes.to_string()]),
            _ => assert_eq!(
                seen,
                ["10".to_owned(), "2".to_owned(), bytes.to_string()],
                "{mode}"
            ),
        }
        for says in [
            "\"s3://bucket/train/../2.txt\" is left out: one of its folders is called . or ..",
            "\"s3://bucket/train/below//1.txt\" is left out: one of its folders has no name",
            "\"s3://bucket/train/below/tab\\t.txt\" is left out: it has a control character",
        ] {
            let line = format!("stokehold err channel train: {says}");
            assert!(printed.contains(&line), "{mode}: {printed:?}");
        }
        assert!(
            !printed.iter().any(|line| line.contains("train/new")),
            "{printed:?}"
        );
    }
    let wrapped = piped(&bench, &server, 1, "s3://bucket/train,mode=Pipe,wrapper=RecordIO");
    assert_eq!(records(&wrapped[0]).len(), 10);
}

#[test]
fn a_checkpoints_place_with_folders_of_a_console_is_brought() {
    let bench = Bench::new();
    let server = served(&bench);
    odd(&server);
    let mut job = bench.job("run.sh", "cd $SM_CHECKPOINT_DIR; find . -type f | wc -l");
    job.environment.extend(server.settings());
    job.checkpoints = Some("s3://bucket/train".to_owned());
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let printed = bench.printed();
    assert!(printed.contains(&"algo-1 out 10".to_owned()), "{printed:?}");
    let says = "checkpoints: \"s3://bucket/train/below//1.txt\" is left out";
    assert!(printed.iter().any(|line| line.contains(says)), "{printed:?}");
}
