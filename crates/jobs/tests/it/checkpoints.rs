//! Checkpoints that are kept alike with a place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use stokehold_untested::until;

use stokehold_jobs::{Job, Record, Secondary, Status, run};
use stokehold_objects::{Bucket, Options};
use stokehold_s3_server::Server;

use crate::Bench;
use crate::front::Front;
use crate::writes::MAP;

/// A server with the empty bucket `bucket`, and its folder.
pub(crate) fn served(bench: &Bench) -> (Server, PathBuf) {
    let bucket = bench.dir.path().join("s3/bucket");
    fs::create_dir_all(&bucket).unwrap();
    (Server::start(&bench.dir.path().join("s3")).unwrap(), bucket)
}

fn kept_at(bench: &Bench, server: &Server, script: &str) -> Job {
    let mut job = bench.job("run.sh", script);
    job.environment.extend(server.settings());
    job.checkpoints = Some("s3://bucket/run".to_owned());
    job.max_run_seconds = 300;
    job
}

/// The files below a folder, but for what the server and the lease leave there.
pub(crate) fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn collect(folder: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            match path.is_dir() {
                true => collect(&path, &format!("{below}{name}/"), found),
                false if name == ".stokehold-lease.json" => {}
                false => drop(found.insert(format!("{below}{name}"), fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(folder, "", &mut found);
    found
}

#[test]
fn a_mapped_checkpoint_is_kept_as_the_script_left_it() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let script = MAP.to_owned()
        + "memory = mapped('weights')\n\
        memory[0] = b'1'\n\
        time.sleep(3)\n\
        assert not os.path.exists(os.environ['THERE'] + '/weights')\n\
        memory[0] = b'2'\n";
    let mut job = kept_at(&bench, &server, "cd $SM_CHECKPOINT_DIR; exec python3 -c \"$MAP\"");
    job.environment.insert("MAP".to_owned(), script);
    job.environment
        .insert("THERE".to_owned(), bucket.join("run").display().to_string());
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert_eq!(contents(&bucket.join("run"))["weights"][0], b'2');
}

#[test]
fn a_name_that_cannot_be_a_key_keeps_no_other_from_the_place() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let script = "cd $SM_CHECKPOINT_DIR; echo x > $(printf 'bad\\377'); ln -s . self; echo x > $(printf 'a\\033b')\n\
        echo good > good\n\
        until [ -e $THERE/good ]; do sleep 0.05; done; echo last > last";
    let mut job = kept_at(&bench, &server, script);
    job.environment
        .insert("THERE".to_owned(), bucket.join("run").display().to_string());
    let record = bench.run(&job);
    let said = said(&bench, &record);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(0)),
        "{said:?}"
    );
    let names: Vec<String> = contents(&bucket.join("run")).into_keys().collect();
    assert_eq!(names, ["good", "last"]);
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        reason.contains("checkpoints: not all could be kept at s3://bucket/run"),
        "{reason}"
    );
    let count = |text: &str| said.iter().filter(|line| line.starts_with(text)).count();
    assert_eq!(count("checkpoints: not kept: algo-1: "), 2, "{said:?}");
    assert_eq!(
        count("checkpoints: not kept: s3://bucket/run/a\\u{1b}b: "),
        1,
        "{said:?}"
    );
}

fn said(bench: &Bench, record: &Record) -> Vec<String> {
    let (log, _) = bench.store.log(&record.name, 0).unwrap();
    let ours = log.lines().filter_map(|line| line.split_once(" stokehold err "));
    ours.map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn they_are_sent_while_the_script_runs_and_are_there_at_its_next_start() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    // It continues when its first checkpoint is at the place, without the old one.
    let script = "cd $SM_CHECKPOINT_DIR; ls; mkdir -p sub; echo one > sub/1; echo old > old\n\
        until [ -e $GO/sub/1 ] && [ -e $GO/old ]; do sleep 0.05; done\n\
        rm old; until [ ! -e $GO/old ]; do sleep 0.05; done\n\
        echo two > sub/1; echo last > last; ln -s last link";
    let mut job = kept_at(&bench, &server, script);
    job.environment
        .insert("GO".to_owned(), bucket.join("run").display().to_string());
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let there = contents(&bucket.join("run"));
    let names: Vec<&str> = there.keys().map(String::as_str).collect();
    assert_eq!(names, ["last", "link", "sub/1"]);
    assert_eq!(
        (there["sub/1"].as_slice(), there["link"].as_slice()),
        (&b"two\n"[..], &b"last\n"[..])
    );
    let kept = record.checkpoints.clone().unwrap();
    assert_eq!(
        (kept.files, kept.bytes, kept.waiting, kept.trouble),
        (3, 14, 0, None)
    );
    let said = said(&bench, &record);
    assert!(
        said.contains(&"checkpoints: kept sub/1 (4 bytes)".to_owned()),
        "{said:?}"
    );
    assert!(said.contains(&"checkpoints: removed old".to_owned()), "{said:?}");
    assert!(
        !bucket.join("run/.stokehold-lease.json").exists(),
        "the place is free again"
    );

    // Another job finds them, on both of its instances. What it writes as it was is not sent again.
    let mut next = kept_at(
        &bench,
        &server,
        "cd $SM_CHECKPOINT_DIR; cat sub/1; [ $SM_CURRENT_HOST = algo-1 ] && echo last > last; exit 0",
    );
    next.instances = 2;
    let record = bench.run(&next);
    let mut printed = bench.printed();
    printed.retain(|line| !line.starts_with("stokehold"));
    printed.sort();
    assert_eq!(printed, ["algo-1 out two", "algo-2 out two"], "{record:?}");
    let said = self::said(&bench, &record);
    assert_eq!(
        said,
        ["checkpoints: 3 objects, 14 bytes, came from s3://bucket/run"]
    );
    assert_eq!(contents(&bucket.join("run")), there);
}

#[test]
fn a_folder_is_a_place_too_and_large_files_go_in_parts() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let large = "head -c 40000000 /dev/zero | tr '\\0' 'x' > $SM_CHECKPOINT_DIR/large";
    let mut job = kept_at(&bench, &server, large);
    assert_eq!(bench.run(&job).status, Status::Completed);
    let there = contents(&bucket.join("run"));
    assert!(there["large"].len() == 40_000_000 && there["large"].iter().all(|byte| *byte == b'x'));
    let folder = bench.dir.path().join("kept");
    job.checkpoints = Some(folder.display().to_string());
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert!(contents(&folder) == there);
}

#[test]
fn a_file_that_is_being_written_is_not_sent_and_a_kill_keeps_what_was_there() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let place = bucket.join("run");
    // It overwrites its checkpoint in place, very slowly, and is killed meanwhile.
    let script = "cd $SM_CHECKPOINT_DIR; echo whole > a; until [ -e $GO/a ]; do sleep 0.05; done\n\
        exec 3> a; echo part >&3; echo whole > b; until [ -e $GO/b ]; do sleep 0.05; done; kill -9 $$";
    let mut job = kept_at(&bench, &server, script);
    job.environment
        .insert("GO".to_owned(), place.display().to_string());
    let record = bench.run(&job);
    assert_eq!((record.status, record.exit_code), (Status::Failed, Some(137)));
    let there = contents(&place);
    assert_eq!(there.len(), 2);
    assert!(there.values().all(|bytes| bytes == b"whole\n"), "{there:?}");
    let said = said(&bench, &record);
    assert!(
        said.iter()
            .any(|line| line.starts_with("checkpoints: a is not sent: its script was killed")),
        "{said:?}"
    );
    // Taken up again, it has what is at the place, and not what it left.
    let source = bench.source().join("run.sh");
    fs::write(source, "cat $SM_CHECKPOINT_DIR/a").unwrap();
    let record = bench.run_again(bench.store.resume(&record.name).unwrap());
    assert_eq!(record.status, Status::Completed);
    assert!(bench.printed().contains(&"algo-1 out whole".to_owned()));
}

#[test]
fn a_place_that_fails_is_tried_again_while_the_job_goes_on() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let front = Front::new(server.address());
    let wait = |name: &str| format!("until [ -e $GO/{name} ]; do sleep 0.05; done");
    let script = format!(
        "cd $SM_CHECKPOINT_DIR; {}; echo 1 > a; {}; echo 2 > b",
        wait("down"),
        wait("up")
    );
    let mut job = kept_at(&bench, &server, &script);
    job.environment.extend(front.settings(server.settings()));
    job.environment
        .insert("GO".to_owned(), bench.dir.path().display().to_string());
    job.stop_seconds = 60;
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script runs", || {
            bench.store.get(&name).unwrap().secondary == Secondary::Training
        });
        front.cut();
        fs::write(bench.dir.path().join("down"), "").unwrap();
        until("the trouble is known", || {
            bench
                .store
                .get(&name)
                .unwrap()
                .checkpoints
                .is_some_and(|kept| kept.trouble.is_some())
        });
        front.lead_to(server.address());
        fs::write(bench.dir.path().join("up"), "").unwrap();
        running.join().unwrap()
    });
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert_eq!(contents(&bucket.join("run")).len(), 2);
    assert_eq!(record.checkpoints.clone().unwrap().trouble, None);
    let said = said(&bench, &record);
    assert!(
        said.iter()
            .any(|line| line.starts_with("checkpoints: not sent, trying again: s3://bucket/run/a")),
        "{said:?}"
    );
    assert!(
        said.iter()
            .any(|line| line.starts_with("checkpoints: files are sent again, after ")),
        "{said:?}"
    );
}

#[test]
fn what_cannot_be_kept_at_the_end_fails_the_job_and_is_put_aside() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let front = Front::new(server.address());
    let script =
        "until [ -e $GO ]; do sleep 0.05; done; echo 1 > $SM_CHECKPOINT_DIR/a; echo w > $SM_MODEL_DIR/m";
    let mut job = kept_at(&bench, &server, script);
    job.environment.extend(front.settings(server.settings()));
    let go = bench.dir.path().join("go");
    job.environment.insert("GO".to_owned(), go.display().to_string());
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script runs", || {
            bench.store.get(&name).unwrap().secondary == Secondary::Training
        });
        front.cut();
        fs::write(&go, "").unwrap();
        running.join().unwrap()
    });
    assert_eq!(record.status, Status::Failed, "{record:?}");
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        reason
            .starts_with("ClientError: checkpoints: not all could be kept at s3://bucket/run (1 files wait"),
        "{reason}"
    );
    assert!(record.model.is_some(), "the model is packed all the same");
    assert_eq!(record.checkpoints.unwrap().waiting, 1);

    front.lead_to(server.address());
    let record = bench.run_again(bench.store.resume(&name).unwrap());
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert_eq!(contents(&bucket.join("run"))["a"], b"1\n");
    let unsent = contents(&bench.store.path(&name).join("unsent"));
    assert_eq!(unsent.into_values().collect::<Vec<_>>(), [b"1\n"]);
}

#[test]
fn what_cannot_be_an_object_is_no_silent_loss() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let script = "cd $SM_CHECKPOINT_DIR; echo 1 > a; until [ -e $GO ]; do sleep 0.05; done; echo 2 > \"$(printf '\\377')\"";
    let mut job = kept_at(&bench, &server, script);
    let go = bucket.join("run/a").display().to_string();
    job.environment.insert("GO".to_owned(), go);
    let record = bench.run(&job);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(0)),
        "{record:?}"
    );
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        reason.contains("a name that is not UTF-8 cannot be a key"),
        "{reason}"
    );
    fs::write(bench.source().join("run.sh"), "cat $SM_CHECKPOINT_DIR/a").unwrap();
    let record = bench.run_again(bench.store.resume(&record.name).unwrap());
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let aside = fs::read_dir(bench.store.path(&record.name).join("unsent")).unwrap();
    assert_eq!(aside.count(), 1, "what was not sent is put aside");
}

#[test]
fn a_place_is_one_jobs_at_a_time() {
    let bench = Bench::new();
    let (server, bucket) = served(&bench);
    let lease = bucket.join("run/.stokehold-lease.json");
    let mut first = kept_at(&bench, &server, "until [ -e $GO ]; do sleep 0.05; done");
    let go = bench.dir.path().join("go");
    first
        .environment
        .insert("GO".to_owned(), go.display().to_string());
    first.name = Some("first".to_owned());
    let name = bench.store.create(&first).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the place is taken", || lease.exists());
        let record = bench.run(&kept_at(&bench, &server, "true"));
        let reason = record.failure_reason.unwrap();
        assert!(
            reason.starts_with("ClientError: checkpoints: s3://bucket/run is kept by the job first on ")
                && reason.contains("the place is free in"),
            "{reason}"
        );
        fs::write(&go, "").unwrap();
        assert_eq!(running.join().unwrap().status, Status::Completed);
    });
    // A dead runner's: of an hour ago for another job, at any time for its own.
    let settings = server.settings();
    let bucket = Bucket::with_options(
        "s3://bucket/run",
        Options {
            settings,
            ..Options::default()
        },
    )
    .unwrap();
    let left = |id: &str, ago: f64| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let owner = serde_json::json!({"id": id, "job": "dead", "host": "there", "renewed": now - ago});
        bucket.put(".stokehold-lease.json", owner.to_string()).unwrap();
    };
    left("other", 3600.0);
    assert_eq!(
        bench.run(&kept_at(&bench, &server, "true")).status,
        Status::Completed
    );
    let own = bench.store.create(&kept_at(&bench, &server, "exit 1")).unwrap();
    let record = bench.run_again(bench.store.claim(&own).unwrap());
    assert_eq!(record.exit_code, Some(1));
    left(
        &fs::read_to_string(bench.store.path(&own).join("lease")).unwrap(),
        1.0,
    );
    let record = bench.run_again(bench.store.resume(&own).unwrap());
    assert_eq!(record.exit_code, Some(1), "{record:?}");
    bucket.put(".stokehold-lease.json", "no lease").unwrap();
    let reason = bench
        .run(&kept_at(&bench, &server, "true"))
        .failure_reason
        .unwrap();
    assert!(reason.contains("it is not a lease"), "{reason}");
}
