//! Channels of mode Cache that the script writes to: what it does to its files happens to the objects.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stokehold_base::fault::Fault;
use stokehold_jobs::{Channel, Job, Record, Status, Store, run};
use stokehold_objects::{Bucket, Options};
use stokehold_s3_server::{ACCESS_KEY, SECRET_KEY};
use stokehold_untested::{needs::can_mount, until};

use crate::Bench;
use crate::checkpoints::contents;
use crate::front::Front;
use crate::mounts::{Killed, Place, Unmounted, completed, contents as bytes};
use crate::rooms::can_have_rooms;

const CHANNEL: &str = "s3://bucket/train,mode=Cache,access=rw";

fn can_write() -> bool {
    can_mount() && can_have_rooms()
}

fn job(bench: &Bench, place: &Place, script: &str) -> Job {
    let mut job = place.job(bench, script, &[("train", CHANNEL)]);
    job.cache_dir = Some(bench.dir.path().join("cache"));
    // What the script waits for.
    let go = place.folder.join("train").display().to_string();
    job.environment.insert("THERE".to_owned(), go);
    job.environment
        .insert("GO".to_owned(), bench.dir.path().join("go").display().to_string());
    job.max_run_seconds = 120;
    job.stop_seconds = 20;
    job
}

/// Another writer of the bucket.
fn other(place: &Place) -> Bucket {
    let options = Options {
        settings: place.server.settings(),
        ..Options::default()
    };
    Bucket::with_options("s3://bucket/train", options).unwrap()
}

fn objects(place: &Place) -> BTreeMap<String, Vec<u8>> {
    contents(&place.folder.join("train"))
}

fn texts(place: &Place) -> BTreeMap<String, String> {
    let text = |(key, bytes)| (key, String::from_utf8(bytes).unwrap());
    objects(place).into_iter().map(text).collect()
}

fn said(bench: &Bench, record: &Record) -> Vec<String> {
    let (log, _) = bench.store.log(&record.name, 0).unwrap();
    let ours = log.lines().filter_map(|line| line.split_once(" stokehold err "));
    ours.map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn what_the_script_does_to_files_happens_to_the_objects() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for key in [
        "a",
        "kept",
        "gone",
        "d/x",
        "d/y",
        "moved/1",
        "moved/in/2",
        "new-folder/old",
        "all/1",
        "all/in/2",
    ] {
        place.put(&format!("train/{key}"), format!("{key}\n").as_bytes());
    }
    let large = bytes(3, 40_000_000);
    let local = bench.dir.path().join("large");
    fs::write(&local, &large).unwrap();
    // The first file is sent while the script runs.
    let script = "set -e; cd $SM_CHANNEL_TRAIN; echo more >> a; until grep -q more $THERE/a; do sleep 0.05; done\n\
        rm gone d/x; until ! [ -e $THERE/gone ]; do sleep 0.05; done\n\
        mkdir -p new/in; echo new > new/in/file; cp $LARGE /opt/ml/input/data/train/large; cat kept\n\
        python3 -c 'import os; os.rename(\"moved\", \"x\")' 2>&1 | grep -o 'Invalid cross-device link'; mv moved to\n\
        rm -r new-folder; mkdir new-folder; echo new > new-folder/new\n\
        rm -r all; echo one > d/y; mv a b; touch empty";
    let mut job = job(&bench, &place, script);
    job.environment
        .insert("LARGE".to_owned(), local.display().to_string());
    let record = bench.run(&job);
    completed(&record, &bench);
    let mut there = objects(&place);
    assert!(there.remove("large").unwrap() == large);
    let there: BTreeMap<String, String> = there
        .into_iter()
        .map(|(key, bytes)| (key, String::from_utf8(bytes).unwrap()))
        .collect();
    let expected = [
        ("b", "a\nmore\n"),
        ("d/y", "one\n"),
        ("empty", ""),
        ("kept", "kept\n"),
        ("new-folder/new", "new\n"),
        ("new/in/file", "new\n"),
        ("to/1", "moved/1\n"),
        ("to/in/2", "moved/in/2\n"),
    ];
    let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
    assert_eq!(there, BTreeMap::from(expected), "{:?}", bench.printed());
    let written = &record.writes["train"];
    assert_eq!(
        (
            written.uri.as_str(),
            written.waiting,
            written.refused,
            &written.trouble
        ),
        ("s3://bucket/train", 0, 0, &None)
    );
    assert_eq!((written.files, written.removed), (9, 8), "{written:?}");
    let said = said(&bench, &record);
    for line in ["channel train: wrote a (7 bytes)", "channel train: removed gone"] {
        assert!(said.iter().any(|said| said == line), "{line}: {said:?}");
    }
    assert!(!bench.store.path(&record.name).join("writes/train").exists());
    assert!(!bench.store.path(&record.name).join("unsent").exists());
    let kept = bench
        .printed()
        .iter()
        .filter(|line| line.starts_with("algo-1"))
        .count();
    assert_eq!(kept, 2, "{:?}", bench.printed());
    bench.store.remove(&record.name).unwrap();
}

#[test]
fn a_half_written_file_is_not_sent_and_an_empty_place_can_be_filled() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    let script = "cd /opt/ml/input/data/train; echo kept > folder-is-there; exec 3> part; echo half >&3\n\
        sleep 2.5; echo > done; until [ -e $THERE/done ]; do sleep 0.05; done; [ ! -e $THERE/part ] && echo not there\n\
        echo whole >&3; exec 3>&-; until [ -e $THERE/part ]; do sleep 0.05; done; cat $THERE/part";
    let record = bench.run(&job(&bench, &place, script));
    completed(&record, &bench);
    let printed: Vec<String> = bench.printed();
    let printed: Vec<&String> = printed.iter().filter(|line| line.starts_with("algo-1")).collect();
    assert_eq!(
        printed,
        ["algo-1 out not there", "algo-1 out half", "algo-1 out whole"],
        "{:?}",
        bench.printed()
    );
}

#[test]
fn an_object_that_somebody_else_has_changed_is_left_alone() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for key in ["mine", "theirs", "old", "gone"] {
        place.put(&format!("train/{key}"), format!("{key}\n").as_bytes());
    }
    let script = "cd $SM_CHANNEL_TRAIN; echo ready; until [ -e $GO ]; do sleep 0.05; done\n\
        echo mine again > mine; echo from the script > theirs; echo from the script > new; echo same > same; echo x > gone\n\
        until grep -q again $THERE/mine; do sleep 0.05; done; sleep 3; rm old; ln -s mine link; sleep 3; echo all > last";
    let job = job(&bench, &place, script);
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script is ready", || {
            bench
                .store
                .log(&name, 0)
                .is_ok_and(|(log, _)| log.contains("out ready"))
        });
        let other = other(&place);
        other.put("theirs", "from somebody else").unwrap();
        other.put("new", "from somebody else, too").unwrap();
        other.put("same", "same\n").unwrap();
        other.delete("gone").unwrap();
        fs::write(bench.dir.path().join("go"), "").unwrap();
        running.join().unwrap()
    });
    let said = said(&bench, &record);
    let expected = [
        ("last", "all\n"),
        ("mine", "mine again\n"),
        ("new", "from somebody else, too"),
        ("old", "old\n"),
        ("same", "same\n"),
        ("theirs", "from somebody else"),
    ];
    let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
    assert_eq!(texts(&place), BTreeMap::from(expected), "{said:?}");
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(0)),
        "{record:?}"
    );
    let unsent = bench.store.path(&name).join("unsent");
    let aside = fs::read_dir(&unsent).unwrap().next().unwrap().unwrap().path();
    let link = aside.join("link");
    assert!(link.is_symlink(), "{said:?}");
    fs::remove_file(link).unwrap();
    assert_eq!(
        contents(&aside).into_keys().collect::<Vec<_>>(),
        ["gone", "new", "theirs"],
        "{said:?}"
    );
    assert_eq!(fs::read(aside.join("theirs")).unwrap(), b"from the script\n");
    let written = &record.writes["train"];
    assert_eq!((written.waiting, written.refused), (0, 4), "{written:?}");
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        reason.starts_with("ClientError: channel train: s3://bucket/train/")
            && reason.contains("somebody else has")
            && reason.contains(&aside.display().to_string())
            && reason.contains("(and 3 others, which the log names); 1 removal was held back because of it"),
        "{reason}"
    );
    let names = |key: &str, why: &str| {
        let begins = format!("channel train: refused: s3://bucket/train/{key}: ");
        assert!(
            said.iter()
                .any(|line| line.starts_with(&begins) && line.contains(why)),
            "{key}: {said:?}"
        );
    };
    let file = format!("the script's file is {}", bench.store.path(&name).display());
    names("theirs", "has written it since");
    names("theirs", &file);
    names("new", "has made it since");
    names("gone", "has removed it since");
    let held = "channel train: held back: s3://bucket/train/old: the script removed it, and it stays while another of its \
                writes is refused";
    assert!(said.iter().any(|line| line == held), "{said:?}");
    names("link", "an object cannot be one");
    // What was put aside does not come back.
    fs::write(bench.source().join("run.sh"), "cat $SM_CHANNEL_TRAIN/theirs").unwrap();
    let record = bench.run_again(bench.store.resume(&name).unwrap());
    completed(&record, &bench);
    assert_eq!(bench.printed(), ["algo-1 out from somebody else"]);
}

/// Runs a job whose script says that it is ready and waits; another writer comes then.
fn run_with_another(bench: &Bench, job: &Job, meanwhile: impl FnOnce()) -> Record {
    let name = bench.store.create(job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script is ready", || {
            bench
                .store
                .log(&name, 0)
                .is_ok_and(|(log, _)| log.contains("out ready"))
        });
        meanwhile();
        fs::write(bench.dir.path().join("go"), "").unwrap();
        running.join().unwrap()
    })
}

#[test]
fn what_is_refused_counts_no_more_once_it_is_gone_or_sent() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for key in ["old", "late"] {
        place.put(&format!("train/{key}"), format!("{key}\n").as_bytes());
    }
    let log = bench.store.path("victim").join("log");
    let script = "cd $SM_CHANNEL_TRAIN; echo ready; until [ -e $GO ]; do sleep 0.05; done\n\
        echo script > new; echo script > sent; ln -s new link\n\
        until grep -q 'refused: .*/new' $LOG && grep -q 'refused: .*/sent' $LOG; do sleep 0.05; done\n\
        rm old; until grep -q 'held back: .*/old' $LOG; do sleep 0.05; done; [ -e $THERE/old ] || exit 9\n\
        echo theirs > sent; rm new link; until ! [ -e $THERE/old ]; do sleep 0.05; done\n\
        ln -s sent link; sleep 1.5; rm late link";
    let mut job = job(&bench, &place, script);
    job.name = Some("victim".to_owned());
    job.environment
        .insert("LOG".to_owned(), log.display().to_string());
    let record = run_with_another(&bench, &job, || {
        let other = other(&place);
        other.put("new", "theirs\n").unwrap();
        other.put("sent", "theirs\n").unwrap();
    });
    let said = said(&bench, &record);
    assert_eq!(record.status, Status::Completed, "{record:?} {said:?}");
    let expected = ["new", "sent"].map(|key| (key.to_owned(), "theirs\n".to_owned()));
    assert_eq!(texts(&place), BTreeMap::from(expected), "{said:?}");
    let written = &record.writes["train"];
    assert_eq!((written.refused, &written.trouble), (0, &None), "{said:?}");
}

/// The beginning of a Python script that maps files and closes them; Python's own `mmap` keeps a descriptor open.
pub(crate) const MAP: &str = "import ctypes, os, time\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    libc.mmap.restype = ctypes.c_void_p\n\
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n\
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n\
    def mapped(name):\n \
        file = os.open(name, os.O_RDWR | os.O_CREAT)\n \
        os.ftruncate(file, 4096)\n \
        memory = libc.mmap(None, 4096, 3, 1, file, 0)\n \
        assert memory != 2**64 - 1\n \
        os.close(file)\n \
        return (ctypes.c_char * 4096).from_address(memory)\n\
    def unmap(memory):\n \
        libc.munmap(ctypes.addressof(memory), 4096)\n";

#[test]
fn what_a_script_stores_in_a_mapped_file_is_sent_whole() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/old", b"0\n");
    // Both the new file and the old one stay mapped without a descriptor; the first is unmapped before the end.
    let script = MAP.to_owned()
        + "new, old = mapped('new'), mapped('old')\n\
        new[0] = old[0] = b'1'\n\
        time.sleep(3)\n\
        assert not os.path.exists(os.environ['THERE'] + '/new')\n\
        new[0] = old[0] = b'2'\n\
        unmap(new)\n\
        while not os.path.exists(os.environ['THERE'] + '/new'): time.sleep(0.05)\n\
        assert open(os.environ['THERE'] + '/old', 'rb').read(1) == b'0'\n\
        old[0] = b'3'\n";
    let mut job = job(&bench, &place, "cd $SM_CHANNEL_TRAIN; exec python3 -c \"$MAP\"");
    job.environment.insert("MAP".to_owned(), script);
    let record = bench.run(&job);
    completed(&record, &bench);
    let there = objects(&place);
    let first = ["new", "old"].map(|key| (there[key][0], there[key].len()));
    assert_eq!(first, [(b'2', 4096), (b'3', 4096)]);
    assert_eq!(record.writes["train"].files, 2, "nothing is sent twice");
}

#[test]
fn a_name_that_cannot_be_a_key_or_a_line_does_not_stop_the_others() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", b"a\n");
    let script = "cd $SM_CHANNEL_TRAIN; echo x > $(printf 'bad\\377'); echo y > $(printf 'bad\\376'); mkdir -p $(printf 'd/%.0s' $(seq 70)); echo good > good\n\
        python3 -c 'open(\"x\\n2026 stokehold err forged \\x1b[31m\", \"w\").write(\"line\")'\n\
        until [ -e $THERE/good ]; do sleep 0.05; done";
    let record = bench.run(&job(&bench, &place, script));
    let said = said(&bench, &record);
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(0)),
        "{said:?}"
    );
    assert_eq!(texts(&place)["good"], "good\n");
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        reason.contains("(and 3 others, which the log names)") && !reason.contains('\n'),
        "{reason}"
    );
    let refused = || {
        said.iter()
            .filter(|line| line.starts_with("channel train: refused: "))
    };
    let count = |text: &str| refused().filter(|line| line.contains(text)).count();
    assert_eq!(
        (
            count("a name that is not UTF-8"),
            count("more than 64 folders deep")
        ),
        (2, 1),
        "each is named once: {said:?}"
    );
    assert_eq!(
        count("s3://bucket/train/x\\n2026 stokehold err forged \\u{1b}[31m: "),
        1,
        "{said:?}"
    );
    let (log, _) = bench.store.log(&record.name, 0).unwrap();
    assert!(
        log.lines()
            .all(|line| !line.contains("err forged") || line.contains("train/x\\n2026 stokehold")),
        "{log}"
    );
    let aside = fs::read_dir(bench.store.path(&record.name).join("unsent")).unwrap();
    let aside = aside.map(|entry| entry.unwrap().path()).next().unwrap();
    let names: Vec<_> = fs::read_dir(aside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn a_bucket_that_fails_for_a_while_loses_nothing() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", b"a\n");
    place.put("train/old", b"old\n");
    let front = Front::new(place.server.address());
    let script = "cd $SM_CHANNEL_TRAIN; cat a; echo ready; until [ -e $GO ]; do sleep 0.05; done; echo b > a; echo c > c; rm old\n\
        until [ -e $THERE/c ] && ! [ -e $THERE/old ]; do sleep 0.05; done";
    let mut job = job(&bench, &place, script);
    job.environment.extend(front.settings([
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ]));
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script is ready", || {
            bench
                .store
                .log(&name, 0)
                .is_ok_and(|(log, _)| log.contains("out ready"))
        });
        front.cut();
        fs::write(bench.dir.path().join("go"), "").unwrap();
        until("the state says so", || {
            let record = bench.store.get(&name).unwrap();
            let written = record.writes.get("train").cloned().unwrap_or_default();
            written.waiting == 2 && written.trouble.is_some()
        });
        place.server.faults().unavailable.store(3, Ordering::SeqCst);
        front.lead_to(place.server.address());
        running.join().unwrap()
    });
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let expected = [("a", "b\n"), ("c", "c\n")].map(|(key, text)| (key.to_owned(), text.to_owned()));
    assert_eq!(texts(&place), BTreeMap::from(expected));
    let said = said(&bench, &record);
    assert!(
        said.iter()
            .any(|line| line.starts_with("channel train: not sent, trying again: ")),
        "{said:?}"
    );
}

#[test]
fn what_could_not_be_sent_at_the_end_is_sent_first_when_the_job_is_resumed() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/a", b"a\n");
    place.put("train/old", b"old\n");
    let front = Front::new(place.server.address());
    let script = "cd $SM_CHANNEL_TRAIN; echo ready; until [ -e $GO ]; do sleep 0.05; done; echo b > a; echo c > c; rm old";
    let mut job = job(&bench, &place, script);
    job.stop_seconds = 1;
    job.environment.extend(front.settings([
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ]));
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script is ready", || {
            bench
                .store
                .log(&name, 0)
                .is_ok_and(|(log, _)| log.contains("out ready"))
        });
        front.cut();
        fs::write(bench.dir.path().join("go"), "").unwrap();
        running.join().unwrap()
    });
    let reason = record.failure_reason.clone().unwrap();
    assert!(
        record.status == Status::Failed
            && reason
                .contains("channel train: not all could be written to s3://bucket/train (2 files wait in "),
        "{record:?}"
    );
    assert_eq!(texts(&place)["a"], "a\n");
    // The place still fails.
    let again = bench.run_again(bench.store.resume(&name).unwrap());
    assert_eq!(again.status, Status::Failed, "{again:?}");
    let waiting = bench.store.path(&name).join("writes/train/upper/a");
    assert_eq!(fs::read(waiting).unwrap(), b"b\n");
    front.lead_to(place.server.address());
    fs::write(bench.source().join("run.sh"), "cd $SM_CHANNEL_TRAIN; ls; cat a c").unwrap();
    let record = bench.run_again(bench.store.resume(&name).unwrap());
    completed(&record, &bench);
    let mut printed = bench.printed();
    printed.retain(|line| line.starts_with("algo-1"));
    assert_eq!(
        printed,
        ["a", "c", "b", "c"].map(|line| format!("algo-1 out {line}"))
    );
}

/// This test runs itself in another process, and kills that.
#[test]
fn a_runner_that_is_killed_loses_no_write() {
    if let Some(root) = std::env::var_os("STOKEHOLD_TEST_WRITES_RUNNER") {
        let store = Store::new(root.as_ref()).unwrap();
        // It is killed, and has nothing more to say.
        let _ = run(store.claim("victim").unwrap(), &AtomicBool::new(false), &|_| {});
        return;
    }
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let _guard = Unmounted(bench.dir.path().to_owned());
    let place = Place::new(&bench);
    for key in ["a", "old", "theirs"] {
        place.put(&format!("train/{key}"), format!("{key}\n").as_bytes());
    }
    let front = Front::new(place.server.address());
    let script = "cd $SM_CHANNEL_TRAIN; echo sent > sent; echo sent, too > sent2; until [ -e $THERE/sent2 ]; do sleep 0.05; done\n\
        echo ready; until [ -e $GO ]; do sleep 0.05; done; echo b > a; echo script > theirs; echo c > d; rm old sent2\n\
        exec 3> part; echo half >&3; sleep 100";
    let mut job = job(&bench, &place, script);
    job.name = Some("victim".to_owned());
    job.environment.extend(front.settings([
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ]));
    bench.store.create(&job).unwrap();
    let runner = Command::new(std::env::current_exe().unwrap())
        .args(["a_runner_that_is_killed_loses_no_write", "--nocapture"])
        .env("STOKEHOLD_TEST_WRITES_RUNNER", bench.store.root())
        .spawn();
    let mut runner = Killed(runner.unwrap());
    until("the first file is sent", || {
        bench
            .store
            .log("victim", 0)
            .is_ok_and(|(log, _)| log.contains("out ready"))
    });
    front.cut();
    fs::write(bench.dir.path().join("go"), "").unwrap();
    until("what is complete waits", || {
        bench.store.get("victim").unwrap().writes["train"].waiting == 3
    });
    // The removals are noticed by the next looks.
    std::thread::sleep(Duration::from_secs(3));
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    until("the job is seen to have failed", || {
        bench.store.get("victim").unwrap().status == Status::Failed
    });
    other(&place).put("theirs", "somebody else's").unwrap();
    front.lead_to(place.server.address());
    fs::write(bench.source().join("run.sh"), "cd $SM_CHANNEL_TRAIN; ls; cat a d").unwrap();
    let record = bench.run_again(bench.store.resume("victim").unwrap());
    let said = said(&bench, &record);
    let mut printed = bench.printed();
    printed.retain(|line| line.starts_with("algo-1"));
    // With a conflict nothing is removed.
    assert_eq!(
        printed,
        ["a", "d", "old", "sent", "sent2", "theirs", "b", "c"].map(|line| format!("algo-1 out {line}")),
        "{said:?}"
    );
    assert_eq!(
        (record.status, record.exit_code),
        (Status::Failed, Some(0)),
        "{record:?}"
    );
    assert_eq!(texts(&place)["theirs"], "somebody else's");
    let aside = fs::read_dir(bench.store.path("victim").join("unsent")).unwrap();
    let aside: Vec<PathBuf> = aside.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(
        contents(&aside[0]),
        BTreeMap::from([
            ("part".to_owned(), b"half\n".to_vec()),
            ("theirs".to_owned(), b"script\n".to_vec())
        ])
    );
    // Now there is nothing left to be refused.
    fs::write(
        bench.source().join("run.sh"),
        "cd $SM_CHANNEL_TRAIN; rm old sent2",
    )
    .unwrap();
    let record = bench.run_again(bench.store.resume("victim").unwrap());
    completed(&record, &bench);
    assert_eq!(
        texts(&place).into_keys().collect::<Vec<_>>(),
        ["a", "d", "sent", "theirs"]
    );
}

#[test]
fn a_script_that_is_killed_leaves_what_it_may_not_have_finished() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    place.put("train/old", b"old\n");
    let script = "trap '' TERM; cd $SM_CHANNEL_TRAIN; echo whole > whole; exec 3> part; echo half >&3\n\
        until [ -e $THERE/whole ]; do sleep 0.05; done; rm old; echo ready; sleep 100";
    let mut job = job(&bench, &place, script);
    job.stop_seconds = 1;
    let name = bench.store.create(&job).unwrap();
    let claim = bench.store.claim(&name).unwrap();
    let record = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(claim, &AtomicBool::new(false), &|_| {}).unwrap());
        until("the script is ready", || {
            bench
                .store
                .log(&name, 0)
                .is_ok_and(|(log, _)| log.contains("out ready"))
        });
        bench.store.kill(&name).unwrap();
        running.join().unwrap()
    });
    assert_eq!(record.status, Status::Stopped, "{record:?}");
    let said = said(&bench, &record);
    assert_eq!(texts(&place)["whole"], "whole\n", "{said:?}");
    assert!(!texts(&place).contains_key("part"), "{said:?}");
    let aside = fs::read_dir(bench.store.path(&name).join("unsent")).unwrap();
    let aside: Vec<PathBuf> = aside.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(fs::read(aside[0].join("part")).unwrap(), b"half\n");
    assert!(
        said.iter()
            .any(|line| line.contains("part is not sent: its script was killed")),
        "{said:?}"
    );
}

#[test]
fn a_folder_of_this_machine_is_a_place_too() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let place = Place::new(&bench);
    for key in ["a", "gone", "d/x"] {
        place.put(&format!("train/{key}"), format!("{key}\n").as_bytes());
    }
    let script = "cd $SM_CHANNEL_TRAIN; echo b >> a; rm gone; rm -r d; mkdir -p new; echo c > new/c; echo script > theirs\n\
        until [ -e $THERE/new/c ]; do sleep 0.05; done; echo theirs > $THERE/theirs2; echo script > theirs2";
    let mut job = job(&bench, &place, script);
    let uri = place.folder.join("train").display().to_string();
    let channel = Channel::parse(&format!("{uri},mode=Cache,access=rw")).unwrap();
    job.channels.insert("train".to_owned(), channel);
    let record = bench.run(&job);
    let reason = record.failure_reason.clone().unwrap_or_default();
    assert!(
        record.status == Status::Failed && reason.contains("theirs2: somebody else has made it"),
        "{record:?}"
    );
    let expected = [
        ("a", "a\nb\n"),
        ("new/c", "c\n"),
        ("theirs", "script\n"),
        ("theirs2", "theirs\n"),
    ];
    let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
    let there = texts(&place);
    for (key, text) in expected {
        assert_eq!(there.get(&key), Some(&text), "{there:?}");
    }
}

/// An overlay, where mounting one is permitted.
struct Layered(PathBuf);

impl Layered {
    fn new(folder: &Path) -> Option<Self> {
        let at = folder.join("at");
        for name in ["lower", "upper", "work", "at"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let mount = Command::new("mount")
            .current_dir(folder)
            .args([
                "-t",
                "overlay",
                "none",
                "-o",
                "lowerdir=lower,upperdir=upper,workdir=work",
            ])
            .arg(&at)
            .output();
        let can = mount.is_ok_and(|output| output.status.success());
        if !can {
            stokehold_untested::skip("this machine does not permit mounting");
        }
        can.then_some(Self(at))
    }
}

impl Drop for Layered {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn where_the_jobs_are_in_an_overlay_already_the_message_says_what_to_do() {
    if !can_write() {
        return;
    }
    let bench = Bench::new();
    let Some(layered) = Layered::new(bench.dir.path()) else {
        return;
    };
    let place = Place::new(&bench);
    let store = Store::new(&layered.0.join("jobs")).unwrap();
    let mut job = job(&bench, &place, "true");
    let error = store.create(&job).unwrap_err();
    let message = error.to_string();
    assert!(
        error.is_input() && message.contains("mounting an overlay at") && message.contains("--jobs DIR"),
        "{message}"
    );
    assert!(store.list().unwrap().is_empty());
    assert_eq!(fs::read_dir(store.root()).unwrap().count(), 0, "nothing is left");
    let channel = Channel::parse("s3://bucket/train,mode=Cache").unwrap();
    job.channels.insert("train".to_owned(), channel);
    store.create(&job).unwrap();
}
