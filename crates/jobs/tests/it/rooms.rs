//! What an instance sees of the machine: its own `/opt/ml`, read-only channels, and nothing of the system to write to.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use stokehold_base::fault::Fault;
use stokehold_jobs::{Channel, Job, JobError, Secondary, Status};

use crate::Bench;

/// Whether jobs can have rooms here; says so where not.
pub(crate) fn can_have_rooms() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let bench = Bench::new();
        let mut job = bench.job_without("run.sh", "true");
        job.opt_ml = true;
        match bench.store.create(&job) {
            Err(JobError::Room(why)) => {
                stokehold_untested::skip(format_args!("jobs run without namespaces: {why}"));
                false
            }
            made => made.is_ok(),
        }
    })
}

/// A folder of the user with `a.txt` and `below/b.txt`.
fn folder(bench: &Bench) -> PathBuf {
    let folder = bench.dir.path().join("user's data");
    fs::create_dir_all(folder.join("below")).unwrap();
    fs::write(folder.join("a.txt"), "a").unwrap();
    fs::write(folder.join("below/b.txt"), "b").unwrap();
    folder
}

fn is_whole(folder: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    (read("a.txt"), read("below/b.txt")) == ("a".to_owned(), "b".to_owned())
        && fs::read_dir(folder).unwrap().count() == 2
}

fn with_channel(mut job: Job, channel: &str) -> Job {
    job.channels
        .insert("train".to_owned(), Channel::parse(channel).unwrap());
    job
}

fn says(bench: &Bench, text: &str) -> bool {
    bench.printed().iter().any(|line| line.contains(text))
}

#[test]
fn every_instance_has_an_opt_ml_of_its_own_and_the_machine_has_none() {
    if !can_have_rooms() {
        return;
    }
    let bench = Bench::new();
    let before: Vec<_> = fs::read_dir("/opt")
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let script = "set -e; cd /; echo $SM_CURRENT_HOST > /opt/ml/checkpoints/mine; echo of $SM_CURRENT_HOST > /opt/ml/model/$SM_CURRENT_HOST\n\
        cat /opt/ml/input/data/train/below/b.txt $SM_CHANNEL_TRAIN/a.txt; cat $SM_CHECKPOINT_DIR/mine\n\
        [ /opt/ml/code -ef $SAGEMAKER_BASE_DIR/code ]; grep -q batch /opt/ml/input/config/hyperparameters.json\n\
        ls /opt; trap 'exit 0' TERM; : > /opt/ml/output/data/$SM_CURRENT_HOST";
    let mut job = with_channel(bench.job("run.sh", script), folder(&bench).to_str().unwrap());
    job.instances = 2;
    job.hyperparameters.insert("batch".to_owned(), 1.into());
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    for host in ["algo-1", "algo-2"] {
        let kept = bench.base(&record, host).join("checkpoints/mine");
        assert_eq!(fs::read_to_string(kept).unwrap(), format!("{host}\n"));
        assert!(
            says(&bench, &format!("{host} out ba{host}")),
            "{:?}",
            bench.printed()
        );
        // What lies in /opt is still seen.
        for name in &before {
            assert!(says(&bench, &format!("{host} out {}", name.display())));
        }
    }
    let after: Vec<_> = fs::read_dir("/opt")
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(after, before);
    let packed = crate::unpacked(record.model.unwrap().as_ref());
    assert_eq!(packed.len(), 2, "{packed:?}");
}

#[test]
fn a_script_cannot_remove_what_the_user_has() {
    if !can_have_rooms() {
        return;
    }
    let bench = Bench::new();
    let data = folder(&bench);
    let script = "rm -rf $SM_CHANNEL_TRAIN/*; rm -rf /opt/ml/input/data/train; echo x > $SM_CHANNEL_TRAIN/new; \
        echo x >> $SM_CHANNEL_TRAIN/a.txt; true";
    for mode in ["Dir", "File"] {
        let channel = format!("{},mode={mode}", data.display());
        let mut job = with_channel(bench.job("run.sh", script), &channel);
        job.instances = 2;
        let record = bench.run(&job);
        assert_eq!(record.status, Status::Completed, "{record:?}");
        assert!(is_whole(&data), "{mode}");
        if mode == "File" {
            assert!(is_whole(&bench.base(&record, "algo-1").join("input/data/train")));
        }
        for host in ["algo-1", "algo-2"] {
            let refused = bench.printed().into_iter().filter(|line| line.starts_with(host));
            let refused = refused.filter(|line| line.contains("Read-only file system"));
            assert!(refused.count() >= 3, "{mode}: {:?}", bench.printed());
        }
    }
}

#[test]
fn a_channel_that_may_be_written_to_is_the_folder_itself() {
    let bench = Bench::new();
    let data = folder(&bench);
    for opt_ml in [true, false] {
        let mut job = with_channel(
            bench.job(
                "run.sh",
                "echo new > $SM_CHANNEL_TRAIN/new; rm $SM_CHANNEL_TRAIN/below/b.txt",
            ),
            &format!("{},access=rw", data.display()),
        );
        job.opt_ml &= opt_ml;
        fs::write(data.join("below/b.txt"), "b").unwrap();
        let record = bench.run(&job);
        assert_eq!(
            record.status,
            Status::Completed,
            "{record:?} {:?}",
            bench.printed()
        );
        assert_eq!(fs::read_to_string(data.join("new")).unwrap(), "new\n");
        assert!(!data.join("below/b.txt").exists());
        fs::remove_file(data.join("new")).unwrap();
    }
}

#[test]
fn without_rooms_a_folder_is_copied_and_that_is_said() {
    let bench = Bench::new();
    let data = folder(&bench);
    let mut job = with_channel(
        bench.job(
            "run.sh",
            "cat $SM_CHANNEL_TRAIN/a.txt; rm -rf $SM_CHANNEL_TRAIN/*",
        ),
        data.to_str().unwrap(),
    );
    (job.opt_ml, job.instances) = (false, 2);
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert!(is_whole(&data));
    assert!(
        says(&bench, "is copied, because without opt-ml"),
        "{:?}",
        bench.printed()
    );
}

#[test]
fn the_systems_folders_and_the_users_home_are_not_the_scripts() {
    let bench = Bench::new();
    let probe = "stokehold-test-of-rooms";
    let script = format!(
        "mkdir -p ~/.config/pip && echo x > ~/.config/pip/{probe}; echo home $HOME $XDG_CONFIG_HOME; \
         for f in /etc /usr /bin /opt; do touch $f/{probe}; done; true"
    );
    let job = bench.job("run.sh", &script);
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let home = bench.store.path(&record.name).join("home/algo-1");
    assert!(
        home.join(".config/pip").join(probe).exists(),
        "{:?}",
        bench.printed()
    );
    let line = format!("home {0} {0}/.config", home.display());
    assert!(says(&bench, &line), "{:?}", bench.printed());
    let outer = std::env::home_dir().unwrap().join(".config/pip").join(probe);
    let places = ["/etc", "/usr", "/bin", "/opt"].map(|folder| Path::new(folder).join(probe));
    let left: Vec<&PathBuf> = places
        .iter()
        .chain([&outer])
        .filter(|path| path.exists())
        .collect();
    for path in &left {
        fs::remove_file(path).unwrap();
    }
    assert!(left.is_empty() || !job.opt_ml, "{left:?}");
    assert!(!left.contains(&&outer));
}

/// This test runs itself as another user.
#[test]
fn who_may_not_mount_has_rooms_too() {
    const NOBODY: u32 = 65534;
    const FOLDER: &str = "STOKEHOLD_TEST_NOBODY";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut bench = Bench::new();
        bench.store = stokehold_jobs::Store::new(&Path::new(&folder).join("jobs")).unwrap();
        let script = "id -u > /opt/ml/checkpoints/id; rm -rf /opt/ml/input/data/train/*; ls -A /opt/ml/input/data/train; touch ~/here";
        let job = with_channel(
            bench.job_without("run.sh", script),
            folder_of(&folder).to_str().unwrap(),
        );
        let record = bench.run(&Job { opt_ml: true, ..job });
        assert_eq!(
            record.status,
            Status::Completed,
            "{record:?} {:?}",
            bench.printed()
        );
        assert!(says(&bench, "Read-only file system"), "{:?}", bench.printed());
        let kept = bench.base(&record, "algo-1").join("checkpoints/id");
        assert_eq!(fs::metadata(&kept).unwrap().uid(), NOBODY);
        assert_eq!(fs::read_to_string(kept).unwrap(), format!("{NOBODY}\n"));
        println!("nobody is done");
        return;
    }
    let bench = Bench::new();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || !can_have_rooms() {
        stokehold_untested::skip("only root, in a mount namespace, can be another user");
        return;
    }
    let data = folder(&bench);
    // The program lies where the other user may not look.
    let program = bench.dir.path().join("program");
    // Another process writes it: a child of another test could hold it open for writing here, and then no one can start it.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let everybody = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for path in [bench.dir.path(), &program, &data] {
        everybody(path);
    }
    let output = Command::new(&program)
        .args(["rooms::who_may_not_mount_has_rooms_too", "--exact", "--nocapture"])
        .env(FOLDER, bench.dir.path())
        .env("HOME", bench.dir.path())
        .env("TMPDIR", bench.dir.path())
        .current_dir(bench.dir.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unprivileged_userns") || text.contains("max_user_namespaces") {
        stokehold_untested::skip("this machine gives other users no namespaces");
        return;
    }
    assert!(text.contains("nobody is done"), "{text}");
    assert!(is_whole(&data));
}

fn folder_of(outer: &std::ffi::OsStr) -> PathBuf {
    Path::new(outer).join("user's data")
}

/// This test runs itself where namespaces are used up.
#[test]
fn what_the_kernel_forbids_is_said_before_there_is_a_job() {
    const PART: &str = "STOKEHOLD_TEST_FORBIDDEN";
    if std::env::var_os(PART).is_some() {
        let bench = Bench::new();
        let mut job = bench.job_without("run.sh", "echo ran");
        job.opt_ml = true;
        let refused = bench.store.create(&job).unwrap_err();
        let text = refused.to_string();
        for word in [
            "a mount namespace",
            "max_mnt_namespaces is 0",
            "--no-opt-ml",
            "/opt/ml",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(refused.is_input() && !bench.store.root().exists());
        job.opt_ml = false;
        assert_eq!(bench.run(&job).status, Status::Completed);
        println!("forbidden is done");
        return;
    }
    let forbid = "for what in mnt user; do echo 0 > /proc/sys/user/max_${what}_namespaces || exit 9; done; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", forbid, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "rooms::what_the_kernel_forbids_is_said_before_there_is_a_job",
            "--exact",
            "--nocapture",
        ])
        .env(PART, "1")
        .output();
    let Ok(output) = output else {
        stokehold_untested::skip("no program unshare");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") || output.status.code() == Some(9) {
        stokehold_untested::skip(text);
        return;
    }
    assert!(text.contains("forbidden is done"), "{text}");
}

#[test]
fn a_folder_that_is_not_there_is_called_a_folder() {
    let bench = Bench::new();
    for mode in ["Dir", "File", "Pipe", "FastFile"] {
        let job = with_channel(
            bench.job("run.sh", "true"),
            &format!("/no/such/folder,mode={mode}"),
        );
        let error = bench.store.create(&job).unwrap_err();
        let reason = error.to_string();
        assert!(
            error.is_input() && reason == "channel train: /no/such/folder: there is no such folder",
            "{mode}: {reason}"
        );
    }
    assert!(bench.store.list().unwrap().is_empty());
    // It may also go between the start and the next one.
    let folder = bench.dir.path().join("data");
    fs::create_dir(&folder).unwrap();
    let job = with_channel(bench.job("run.sh", "exit 3"), &folder.display().to_string());
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Failed);
    fs::remove_dir(&folder).unwrap();
    let error = bench.store.resume(&record.name).unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("no such folder"),
        "{error}"
    );
}

#[test]
fn a_state_is_told_before_what_is_printed_in_it() {
    let bench = Bench::new();
    let name = bench.store.create(&bench.job("run.sh", "echo hello")).unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    stokehold_jobs::run(
        bench.store.claim(&name).unwrap(),
        &std::sync::atomic::AtomicBool::new(false),
        &|news| {
            told.lock().unwrap().push(match news {
                stokehold_jobs::News::State(record) => format!("{:?}", record.secondary),
                stokehold_jobs::News::Line(line) => line.text.to_owned(),
            });
        },
    )
    .unwrap();
    let told = told.into_inner().unwrap();
    let wanted = [
        Secondary::Starting,
        Secondary::Downloading,
        Secondary::Training,
        Secondary::Uploading,
        Secondary::Completed,
    ];
    let mut wanted: Vec<String> = wanted.iter().map(|state| format!("{state:?}")).collect();
    wanted.insert(3, "hello".to_owned());
    assert_eq!(told, wanted);
}
