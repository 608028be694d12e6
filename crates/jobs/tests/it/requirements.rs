//! requirements.txt: installed without a network, once, and for the right ones.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;

use stokehold_jobs::{Job, News, Status, run};

use crate::Bench;

/// Makes `tiny-1.0`, a package with a program, as a wheel.
const WHEEL: &str = "import sys, zipfile\n\
    wheel = zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w')\n\
    info = 'tiny-1.0.dist-info/'\n\
    for name, text in [\n\
        ('tiny.py', 'def hello(): print(\"hello of tiny\")\\n'),\n\
        (info + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'),\n\
        (info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'),\n\
        (info + 'entry_points.txt', '[console_scripts]\\ntiny-hello = tiny:hello\\n'),\n\
        (info + 'RECORD', f'tiny.py,,\\n{info}METADATA,,\\n{info}WHEEL,,\\n{info}entry_points.txt,,\\n{info}RECORD,,\\n'),\n\
    ]: wheel.writestr(name, text)\n";

/// Uses it as a package, from the place that the environment is, and as a program.
const SCRIPT: &str = "import subprocess, sys, pip, tiny\n\
    print(sys.prefix)\n\
    subprocess.run(['tiny-hello'], check=True)\n";

/// A folder with the wheel; none where Python cannot make environments.
fn wheels(bench: &Bench) -> Option<PathBuf> {
    let can = Command::new("python3").args(["-c", "import venv, pip"]).status();
    if !can.is_ok_and(|status| status.success()) {
        stokehold_untested::skip("no python3 with venv and pip");
        return None;
    }
    let folder = bench.dir.path().join("wheels");
    fs::create_dir_all(&folder).unwrap();
    let made = Command::new("python3")
        .args(["-c", WHEEL])
        .arg(&folder)
        .status()
        .unwrap();
    assert!(made.success());
    Some(folder)
}

fn job(bench: &Bench, requirements: &str) -> Job {
    let job = bench.job("train.py", SCRIPT);
    fs::write(bench.source().join("requirements.txt"), requirements).unwrap();
    job
}

fn environments(bench: &Bench) -> Vec<PathBuf> {
    let all = fs::read_dir(bench.store.root().join(".environments"))
        .into_iter()
        .flatten()
        .flatten();
    all.map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

fn prefix(bench: &Bench) -> String {
    let printed = bench.printed();
    assert!(
        printed.iter().any(|line| line == "algo-1 out hello of tiny"),
        "{printed:?}"
    );
    let below = |line: &&String| line.contains(bench.store.root().to_str().unwrap());
    printed
        .iter()
        .rfind(below)
        .unwrap()
        .split(' ')
        .next_back()
        .unwrap()
        .to_owned()
}

#[test]
fn an_environment_is_made_once_for_the_same_text() {
    let bench = Bench::new();
    let Some(wheels) = wheels(&bench) else { return };
    let text = format!("--no-index\n--find-links {}\ntiny==1.0\n", wheels.display());
    let first = bench.run(&job(&bench, &text));
    assert_eq!(first.status, Status::Completed, "{first:?} {:?}", bench.printed());
    let made = environments(&bench);
    assert_eq!(made, [Path::new(&prefix(&bench))]);
    let installs = |bench: &Bench| {
        bench
            .printed()
            .iter()
            .any(|line| line.contains("Successfully installed tiny-1.0"))
    };
    assert!(installs(&bench));

    assert_eq!(bench.run(&job(&bench, &text)).status, Status::Completed);
    assert!(!installs(&bench) && environments(&bench) == made);

    // One that was cut short is made again.
    fs::remove_file(made[0].join("ready")).unwrap();
    assert_eq!(bench.run(&job(&bench, &text)).status, Status::Completed);
    assert!(installs(&bench) && environments(&bench) == made);

    assert_eq!(
        bench.run(&job(&bench, &format!("{text}# more\n"))).status,
        Status::Completed
    );
    assert_eq!(environments(&bench).len(), 2);
}

#[test]
fn two_jobs_at_once_make_one_environment() {
    let bench = Bench::new();
    let Some(wheels) = wheels(&bench) else { return };
    let job = job(
        &bench,
        &format!("--no-index\n--find-links {}\ntiny==1.0\n", wheels.display()),
    );
    let store = &bench.store;
    let records: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = ["one", "two"]
            .map(|name| {
                let mut job = job.clone();
                job.name = Some(name.to_owned());
                let claim = store.claim(&store.create(&job).unwrap()).unwrap();
                scope.spawn(move || run(claim, &AtomicBool::new(false), &|_| ()).unwrap())
            })
            .into_iter()
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(
        records.iter().all(|record| record.status == Status::Completed),
        "{records:?}"
    );
    assert_eq!(environments(&bench).len(), 1);
    let installed = |name: &&str| store.log(name, 0).unwrap().0.contains("Successfully installed");
    assert_eq!(["one", "two"].iter().filter(|name| installed(name)).count(), 1);
}

#[test]
fn what_refers_to_the_source_folder_is_the_jobs_own() {
    let bench = Bench::new();
    let Some(wheels) = wheels(&bench) else { return };
    let job = job(&bench, "--no-index\n./tiny-1.0-py3-none-any.whl\n");
    fs::copy(
        wheels.join("tiny-1.0-py3-none-any.whl"),
        bench.source().join("tiny-1.0-py3-none-any.whl"),
    )
    .unwrap();
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(
        Path::new(&prefix(&bench)),
        bench.store.path(&record.name).join("environment")
    );
    assert_eq!(environments(&bench), Vec::<PathBuf>::new());
}

#[test]
fn what_cannot_be_installed_is_the_reason() {
    let bench = Bench::new();
    let Some(wheels) = wheels(&bench) else { return };
    let record = bench.run(&job(
        &bench,
        &format!("--no-index\n--find-links {}\ntiny==2.0\n", wheels.display()),
    ));
    let reason = record.failure_reason.unwrap();
    assert_eq!(record.status, Status::Failed);
    assert!(
        reason.contains("requirements.txt: pip ended with exit code 1") && reason.contains("tiny==2.0"),
        "{reason}"
    );
    // A shell script installs what it wants by itself.
    let record = bench.run(&bench.job("run.sh", "cat requirements.txt"));
    assert_eq!(record.status, Status::Completed, "{record:?}");

    let mut job = job(&bench, "tiny\n");
    job.python = "no-such-python".into();
    let reason = bench.run(&job).failure_reason.unwrap();
    assert!(reason.contains("no-such-python"), "{reason}");
}

/// A source folder that builds itself: what it does then is the author's idea. It says in its module what it was refused.
const HOSTILE: &str = "import os, pwd, zipfile\n\
    def build_wheel(folder, settings=None, metadata=None):\n\
    \x20   refused = []\n\
    \x20   for place in [os.path.expanduser('~'), pwd.getpwuid(os.getuid()).pw_dir]:\n\
    \x20       put(os.path.join(place, '.config/pip/stokehold-test.conf'), refused)\n\
    \x20   put('/etc/stokehold-test.conf', refused)\n\
    \x20   with zipfile.ZipFile(os.path.join(folder, 'hostile-1.0-py3-none-any.whl'), 'w') as wheel:\n\
    \x20       info = 'hostile-1.0.dist-info/'\n\
    \x20       wheel.writestr('hostile.py', f'refused = {refused!r}\\n')\n\
    \x20       wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: hostile\\nVersion: 1.0\\n')\n\
    \x20       wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    \x20       wheel.writestr(info + 'RECORD', '')\n\
    \x20   return 'hostile-1.0-py3-none-any.whl'\n\
    def put(path, refused):\n\
    \x20   try:\n\
    \x20       os.makedirs(os.path.dirname(path), exist_ok=True)\n\
    \x20       open(path, 'w').write('[global]\\n')\n\
    \x20   except OSError as error: refused.append((path, error.errno))\n";

fn backend(bench: &Bench, code: &str) {
    let package = bench.source().join("package");
    fs::create_dir_all(&package).unwrap();
    let project = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n\
        [project]\nname = \"hostile\"\nversion = \"1.0\"\n";
    fs::write(package.join("pyproject.toml"), project).unwrap();
    fs::write(package.join("backend.py"), code).unwrap();
}

#[test]
fn an_installation_changes_nothing_of_the_machine() {
    let bench = Bench::new();
    if wheels(&bench).is_none() || !crate::rooms::can_have_rooms() {
        return;
    }
    let mut job = job(&bench, "--no-index\n./package\n");
    fs::write(
        bench.source().join("train.py"),
        "import hostile\nprint(hostile.refused)\n",
    )
    .unwrap();
    backend(&bench, HOSTILE);
    let home = std::env::home_dir().unwrap();
    let places = [
        home.join(".config/pip/stokehold-test.conf"),
        "/etc/stokehold-test.conf".into(),
    ];
    let left = || {
        let left = places.iter().filter(|path| path.exists()).cloned();
        left.inspect(|path| fs::remove_file(path).unwrap())
            .collect::<Vec<_>>()
    };
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(left(), Vec::<PathBuf>::new(), "{:?}", bench.printed());
    let own = bench
        .store
        .path(&record.name)
        .join("home/algo-1/.config/pip/stokehold-test.conf");
    assert!(own.exists());
    // The user's real home and /etc, with EROFS (30), or EACCES for one who has no right anyway.
    let refused = bench
        .printed()
        .into_iter()
        .find(|line| line.contains("/etc/stokehold-test.conf"));
    assert!(
        refused.is_some_and(|line| line.contains(", 30)") || line.contains(", 13)")),
        "{:?}",
        bench.printed()
    );

    // Without a room its home is its own all the same.
    job.opt_ml = false;
    backend(
        &bench,
        &HOSTILE
            .replace(", pwd.getpwuid(os.getuid()).pw_dir", "")
            .replace("put('/etc", "refused or put('/tmp"),
    );
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(left(), Vec::<PathBuf>::new());
    let _ = fs::remove_file("/tmp/stokehold-test.conf");
}

#[test]
fn the_reason_of_a_failed_installation_is_its_cause() {
    let bench = Bench::new();
    if wheels(&bench).is_none() {
        return;
    }
    let job = job(&bench, "--no-index\n./package\n");
    backend(
        &bench,
        "def build_wheel(folder, settings=None, metadata=None): raise RuntimeError('there is no nvcc')\n",
    );
    let reason = bench.run(&job).failure_reason.unwrap();
    assert!(
        reason.contains("pip ended with exit code 1") && reason.contains("RuntimeError: there is no nvcc"),
        "{reason}"
    );
    assert!(!reason.contains("above"), "{reason}");
}

#[test]
fn an_installation_can_be_stopped() {
    let bench = Bench::new();
    if wheels(&bench).is_none() {
        return;
    }
    // It takes what is asked, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let index = format!("http://{}/simple", silent.local_addr().unwrap());
    let name = bench
        .store
        .create(&job(&bench, &format!("--index-url {index}\ntiny\n")))
        .unwrap();
    let record = run(
        bench.store.claim(&name).unwrap(),
        &AtomicBool::new(false),
        &|news| {
            if matches!(news, News::Line(line) if line.text.contains("Looking in indexes")) {
                bench.store.stop(&name).unwrap();
            }
        },
    )
    .unwrap();
    assert_eq!(record.status, Status::Stopped, "{record:?}");
    assert!(record.training_started.is_none());
}
