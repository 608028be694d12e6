//! Images for SageMaker: what is written, and their entry point on a made `/opt/ml`, beside SageMaker's own toolkit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stokehold");

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(PROGRAM)
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{:?}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Puts a file, with the folders that it needs.
fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A script's folder, with things that no image should have.
fn script(dir: &Path, train: &str) {
    put(&dir.join("src/train.py"), train);
    put(&dir.join("src/lib/more.py"), "");
    put(&dir.join("src/requirements.txt"), "numpy==2.4.6\npillow\n");
    put(&dir.join("src/.env"), "TOKEN=my-own-secret\n");
    put(&dir.join("src/.git/config"), "");
    put(&dir.join("src/__pycache__/train.pyc"), "");
    put(
        &dir.join("src/job.toml"),
        "entry-point = \"train.py\"\n[environment]\nHF_TOKEN = \"my-own-secret\"\n",
    );
    std::os::unix::fs::symlink(".env", dir.join("src/settings")).unwrap();
    put(
        &dir.join("stokehold-0.1.0-cp39-abi3-manylinux_2_34_x86_64.whl"),
        "",
    );
}

const OF_SCRIPT: [&str; 8] = [
    "image",
    "context",
    "--script",
    "src",
    "--entry-point",
    "train.py",
    "--wheel",
    "stokehold-0.1.0-cp39-abi3-manylinux_2_34_x86_64.whl",
];

/// The instructions of a Dockerfile, each with its words; lines that go on are one.
fn instructions(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            (word.to_owned(), rest.trim().to_owned())
        })
        .collect()
}

/// What a Dockerfile has to be: pinned, in two stages, with an entry point that gets signals, and nothing that its context lacks.
fn check_dockerfile(context: &Path) -> String {
    let text = fs::read_to_string(context.join("Dockerfile")).unwrap();
    assert!(!text.contains(['{', '}']), "a placeholder is left: {text}");
    let ignored = fs::read_to_string(context.join(".dockerignore")).unwrap();
    let let_in: Vec<&str> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
    let all = instructions(&text);
    let mut stages = Vec::new();
    for (word, rest) in &all {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word.as_str() {
            "FROM" => {
                assert!(words[0].contains(':') && !words[0].ends_with(":latest"), "{rest}");
                assert!(words.len() == 1 || words.len() == 3 && words[1] == "AS", "{rest}");
                stages.push(words.get(2).copied());
            }
            "COPY" => {
                let (options, paths): (Vec<&str>, Vec<&str>) =
                    words.iter().partition(|word| word.starts_with("--"));
                assert!(paths.len() >= 2, "{rest}");
                match options.iter().find_map(|option| option.strip_prefix("--from=")) {
                    Some(stage) => assert!(stages.contains(&Some(stage)), "{rest}"),
                    None => {
                        for path in &paths[..paths.len() - 1] {
                            assert!(context.join(path).exists(), "{path} is not in the context");
                            let first = path.split('/').next().unwrap();
                            let is_in = |pattern: &str| {
                                pattern == first
                                    || pattern.split_once('*').is_some_and(|(start, end)| {
                                        first.starts_with(start) && first.ends_with(end)
                                    })
                            };
                            assert!(let_in.iter().any(|pattern| is_in(pattern)), "{path} is ignored");
                        }
                    }
                }
            }
            "ENTRYPOINT" | "CMD" => {
                // Only in this form is the program itself the container's first process, which SIGTERM goes to.
                serde_json::from_str::<Vec<String>>(rest).unwrap();
            }
            "RUN" | "ENV" | "WORKDIR" => {}
            other => panic!("{other} {rest}"),
        }
    }
    assert_eq!(stages.len(), 2, "{text}");
    let entry = all.iter().rfind(|(word, _)| word == "ENTRYPOINT").unwrap();
    assert_eq!(
        entry.1,
        r#"["stokehold", "job", "container", "--user", "trainer"]"#
    );
    text
}

#[test]
fn the_trainers_image_has_this_program_and_its_entry_point_trains() {
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &["image", "context"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let context = dir.path().join("context");
    let text = check_dockerfile(&context);
    assert!(text.starts_with('#') && text.contains("FROM debian:12"), "{text}");

    // Without data the check cannot run, and says which.
    let output = run(dir.path(), &["image", "context", "--check"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("channel train: context/data/train is no folder"),
        "{}",
        said(&output)
    );

    let made = run(
        &context,
        &[
            "dataset",
            "synth",
            "data",
            "--images",
            "12",
            "--classes",
            "2",
            "--val-split",
            "0.34",
        ],
    );
    assert!(made.status.success(), "{}", said(&made));
    let job = fs::read_to_string(context.join("job.toml")).unwrap();
    let small = "batch_size = 4\nimage-size = 32\ndevice = \"cpu\"\nceiling-batches = 0\n";
    put(
        &context.join("job.toml"),
        &job.replace("batch-size = 32\n", small),
    );
    let output = run(dir.path(), &["image", "context", "--check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for says in [
        "without a container",
        "there is no run to resume; starting it",
        "model: model.safetensors\nthe entry point keeps the contract\n",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }

    // The same job file runs here, as any job does; hyperparameters that the trainer does not know fail with its words.
    put(
        &context.join("job.toml"),
        &job.replace("batch-size = 32\n", "learning-pace = 4\n"),
    );
    let output = run(dir.path(), &["image", "context", "--check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("--learning-pace"), "{}", said(&output));
}

#[test]
fn a_scripts_image_has_its_folder_without_secrets_and_its_entry_point_runs_it() {
    let dir = TempDir::new().unwrap();
    script(
        dir.path(),
        "import os, sys\nopen(os.environ['SM_MODEL_DIR'] + '/model.txt', 'w').write(' '.join(sys.argv[1:]))\n\
         print(os.environ['SM_CHANNELS'], os.environ['MINE'])\n",
    );
    let output = run(dir.path(), &OF_SCRIPT);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("pins no version of pillow;"), "{text}");
    assert!(
        text.contains("src/.env, src/.git, src/__pycache__, src/job.toml, src/settings"),
        "{text}"
    );
    let context = dir.path().join("context");
    let dockerfile = check_dockerfile(&context);
    assert!(
        dockerfile.contains("\nENV SAGEMAKER_PROGRAM=train.py\n"),
        "{dockerfile}"
    );
    assert!(
        dockerfile.contains("--requirement /tmp/requirements.txt"),
        "{dockerfile}"
    );
    let code: BTreeSet<_> = fs::read_dir(context.join("code"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        code,
        ["lib", "requirements.txt", "train.py"].map(str::to_owned).into()
    );

    fs::create_dir_all(context.join("data/train")).unwrap();
    let job = fs::read_to_string(context.join("job.toml")).unwrap();
    let job = job
        .replace("# lr = 0.1", "lr = 0.1")
        .replace("# train =", "train =");
    put(
        &context.join("job.toml"),
        &(job + "[environment]\nMINE = \"my-own\"\n"),
    );
    let output = run(dir.path(), &["image", "context", "--check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("[\"train\"] my-own\n") && text.contains("model: model.txt\n"),
        "{text}"
    );

    // A script that fails, and one that leaves no model.
    put(
        &context.join("code/train.py"),
        "raise ValueError('of the script')\n",
    );
    let output = run(dir.path(), &["image", "context", "--check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("ValueError: of the script"),
        "{}",
        said(&output)
    );
    put(&context.join("code/train.py"), "pass\n");
    let output = run(dir.path(), &["image", "context", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        said(&output).contains("left nothing in SM_MODEL_DIR"),
        "{}",
        said(&output)
    );
}

#[test]
fn requirements_that_name_other_files_are_installed_from_the_code() {
    let dir = TempDir::new().unwrap();
    script(dir.path(), "pass\n");
    put(
        &dir.path().join("src/requirements.txt"),
        "-r more/own.txt\n-c pins.txt\npillow\n",
    );
    put(&dir.path().join("src/more/own.txt"), "scipy\n");
    put(&dir.path().join("src/pins.txt"), "pillow==11.1.0\n");
    let output = run(dir.path(), &OF_SCRIPT);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("pins no version of scipy;"), "{text}");
    let dockerfile = check_dockerfile(&dir.path().join("context"));
    let copied = dockerfile.find("\nCOPY code /tmp/code\n").unwrap();
    let installed = dockerfile
        .find("cd /tmp/code && pip install --no-cache-dir --requirement requirements.txt\n")
        .unwrap();
    assert!(copied < installed, "{dockerfile}");

    put(&dir.path().join("src/requirements.txt"), "-r gone.txt\n");
    fs::remove_dir_all(dir.path().join("context")).unwrap();
    let output = run(dir.path(), &OF_SCRIPT);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("-r gone.txt: this file"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_makes_no_image_is_named() {
    let dir = TempDir::new().unwrap();
    script(dir.path(), "pass\n");
    put(&dir.path().join("src/.hidden.py"), "");
    put(&dir.path().join("src/a b.py"), "");
    put(&dir.path().join("src/run.sh"), "");
    put(&dir.path().join("full/file"), "");
    put(&dir.path().join("made/Dockerfile"), "");
    let wheel = OF_SCRIPT[7];
    for (args, says) in [
        (&["full"][..], "full is not empty"),
        (&["made"], "made has a Dockerfile already"),
        (&["x", "--script", "src"], "--wheel"),
        (&["x", "--wheel", wheel], "--script"),
        (
            &[
                "x",
                "--script",
                "src",
                "--entry-point",
                "gone.py",
                "--wheel",
                wheel,
            ],
            "gone.py: is not in src",
        ),
        (
            &[
                "x",
                "--script",
                "src",
                "--entry-point",
                ".hidden.py",
                "--wheel",
                wheel,
            ],
            ".hidden.py: is not in src, or is hidden there",
        ),
        (
            &[
                "x",
                "--script",
                "src",
                "--entry-point",
                "run.sh",
                "--wheel",
                wheel,
            ],
            "run.sh: is no .py file",
        ),
        (
            &[
                "x",
                "--script",
                "src",
                "--entry-point",
                "a b.py",
                "--wheel",
                wheel,
            ],
            "--entry-point a b.py: has characters",
        ),
        (
            &[
                "x",
                "--script",
                "src",
                "--entry-point",
                "train.py",
                "--wheel",
                "src/train.py",
            ],
            "is no wheel of the package",
        ),
        (&["x", "--base", "debian"], "is no image with a version"),
        (&["x", "--base", "debian:latest"], "is no image with a version"),
        (&["x", "--build", "flowers"], "give a name and a tag"),
        (&["s3://bucket/x"], "on this machine"),
    ] {
        let output = run(dir.path(), &[&["image"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

/// A stand-in for docker that writes its arguments, and of a container the mark that its entry point leaves.
const DOCKER: &str = r#"#!/bin/sh
printf '%s\n' "$@" >>"$LOG"
echo "own: $MINE $DOCKER_HOST" >>"$LOG"
before=
for word; do
    case $before in
    --env-file) { stat -c 'mode %a' "$word"; cat "$word"; } >>"$LOG" ;;
    esac
    before=$word
    case $word in
    *,target=/opt/ml/output) source=${word#type=bind,source=}; touch "${source%%,*}/success" ;;
    esac
done
[ "$1" != "$FAILS" ]
"#;

#[test]
fn docker_builds_the_image_and_runs_it_on_the_made_folders() {
    let dir = TempDir::new().unwrap();
    script(dir.path(), "pass\n");
    assert_eq!(run(dir.path(), &OF_SCRIPT).status.code(), Some(0));
    let job = fs::read_to_string(dir.path().join("context/job.toml")).unwrap();
    let job = job.replace("# train =", "train =")
        + "[environment]\nMINE = \"my-own\"\nDOCKER_HOST = \"tcp://elsewhere\"\n";
    put(&dir.path().join("context/job.toml"), &job);
    fs::create_dir_all(dir.path().join("context/data/train")).unwrap();
    put(&dir.path().join("bin/docker"), DOCKER);
    fs::set_permissions(dir.path().join("bin/docker"), fs::Permissions::from_mode(0o755)).unwrap();
    let log = dir.path().join("log");
    let temporary = dir.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let image = |path: &Path, fails: &str, args: &[&str]| {
        let usual = if path.ends_with("bin") {
            ":/usr/bin:/bin"
        } else {
            ""
        };
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(dir.path())
            .env("TMPDIR", &temporary)
            .env("PATH", format!("{}{usual}", path.display()))
            .env("LOG", &log)
            .env("FAILS", fails)
            .env_remove("DOCKER_HOST")
            .args(["image", "context"])
            .args(args);
        command.output().unwrap()
    };
    let bin = dir.path().join("bin");
    let output = image(&bin, "", &["--build", "flowers:1", "--check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("docker build --tag flowers:1 context\n"), "{text}");
    assert!(
        !text.contains("without a container") && !text.contains("my-own"),
        "{text}"
    );
    let called = fs::read_to_string(&log).unwrap();
    for says in [
        "build\n--tag\nflowers:1\ncontext\n",
        "run\n--rm\n--env-file\n",
        "/variables\n--mount\ntype=bind,",
        ",target=/opt/ml/input/config\n",
        // The job's variables are in the file, and not in docker's own environment.
        "context/data/train,target=/opt/ml/input/data/train,readonly\nflowers:1\ntrain\nown:  \nmode 600\nTRAINING_JOB_NAME=",
        "\nDOCKER_HOST=tcp://elsewhere\nMINE=my-own\n",
    ] {
        assert!(called.contains(says), "{says}: {called}");
    }
    // The container's root lets this user remove what the container's users have written.
    let freed = called.split("target=/opt/ml/input/data/train").nth(1).unwrap();
    assert!(
        freed.contains("--user\nroot\n--entrypoint\nchmod\n")
            && freed.contains("flowers:1\n-R\na+rwX\n/made\n"),
        "{called}"
    );
    let left = || fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left(), 0);
    let output = image(&bin, "run", &["--build", "flowers:1", "--check"]);
    assert_eq!((output.status.code(), left()), (Some(1), 0), "{}", said(&output));
    let lines = job.replace("my-own", "my\\nown");
    put(&dir.path().join("context/job.toml"), &lines);
    let output = image(&bin, "", &["--build", "flowers:1", "--check"]);
    assert_eq!((output.status.code(), left()), (Some(2), 0), "{}", said(&output));
    assert!(
        said(&output).contains("[environment] \"MINE\": it has several lines"),
        "{}",
        said(&output)
    );
    let output = image(&bin, "build", &["--build", "flowers:1"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("docker failed"), "{}", said(&output));

    let nowhere = dir.path().join("nowhere");
    let output = image(&nowhere, "", &["--build", "flowers:1"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("neither docker nor buildah is installed"),
        "{}",
        said(&output)
    );
}

/// `/opt/ml` as SageMaker makes it, with a script.
struct Base(TempDir);

impl Base {
    fn new(file: &str, script: &str, hyperparameters: Value) -> Self {
        let base = Self(TempDir::new().unwrap());
        let host = json!(["algo-1"]);
        base.config("hyperparameters", &hyperparameters);
        base.config(
            "resourceconfig",
            &json!({
                "current_host": "algo-1", "hosts": host, "network_interface_name": "lo",
                "current_instance_type": "ml.m5.large", "current_group_name": "homogeneousCluster",
                "instance_groups": [
                    {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.large", "hosts": host}
                ],
            }),
        );
        base.config(
            "inputdataconfig",
            &json!({"train": {
                "ContentType": "image/jpeg", "TrainingInputMode": "File", "S3DistributionType": "FullyReplicated",
                "RecordWrapperType": "None",
            }}),
        );
        for folder in ["input/data/train", "output", "model", "checkpoints"] {
            fs::create_dir_all(base.0.path().join(folder)).unwrap();
        }
        put(&base.0.path().join("code").join(file), script);
        base
    }

    fn config(&self, name: &str, value: &Value) {
        put(
            &self.0.path().join(format!("input/config/{name}.json")),
            &value.to_string(),
        );
    }

    /// A command in the environment of a container.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("SAGEMAKER_BASE_DIR", self.0.path())
            .env("TRAINING_JOB_NAME", "flowers-1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY", "PYTHONPATH"] {
            command.env_remove(name);
        }
        command
    }

    fn start(&self) -> Child {
        self.command(PROGRAM, &["job", "container", "train"])
            .spawn()
            .unwrap()
    }

    fn run(&self) -> Output {
        self.start().wait_with_output().unwrap()
    }

    /// `output/success` and `output/failure`.
    fn marks(&self) -> [Option<String>; 2] {
        ["success", "failure"].map(|name| fs::read_to_string(self.0.path().join("output").join(name)).ok())
    }
}

#[test]
fn the_entry_point_leaves_marks_and_the_scripts_exit_code() {
    let program = |name: &str| json!({"sagemaker_program": name, "lr": "0.1"});
    let base = Base::new("train.sh", "echo \"$@\"; exit 0", program("train.sh"));
    let output = base.run();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(0), &b"--lr 0.1\n"[..]),
        "{}",
        said(&output)
    );
    assert_eq!(base.marks(), [Some(String::new()), None]);

    let base = Base::new(
        "train.sh",
        "echo it is broken >&2; echo >&2; exit 3",
        program("train.sh"),
    );
    let output = base.run();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("it is broken\n"), "{}", said(&output));
    let reason = "algo-1 ended with exit code 3: it is broken";
    assert_eq!(base.marks(), [None, Some(reason.to_owned())]);

    let own = "printf mine >\"$SAGEMAKER_BASE_DIR/output/failure\"; kill -9 $$";
    let base = Base::new("train.sh", own, program("train.sh"));
    assert_eq!(base.run().status.code(), Some(137));
    assert_eq!(base.marks(), [None, Some("mine".to_owned())]);

    // The entry point may be root, and the script's user is not.
    let linked = "ln -s ../outside \"$SAGEMAKER_BASE_DIR/output/failure\"; exit 3";
    let base = Base::new("train.sh", linked, program("train.sh"));
    assert_eq!(base.run().status.code(), Some(3));
    assert!(base.0.path().join("output/failure").is_symlink());
    assert!(!base.0.path().join("outside").exists());
}

#[test]
fn a_container_that_cannot_start_its_script_says_why() {
    let program = json!({"sagemaker_program": "train.sh"});
    type Change = fn(&Base);
    let cases: [(Change, &str); 8] = [
        (
            |base| base.config("hyperparameters", &json!({})),
            "nothing says which script runs",
        ),
        (
            |base| base.config("hyperparameters", &json!({"sagemaker_program": "gone.sh"})),
            "gone.sh is not there",
        ),
        (
            |base| base.config("hyperparameters", &json!({"sagemaker_program": "../train.sh"})),
            "is no file below the source folder",
        ),
        (
            |base| base.config("hyperparameters", &json!({"lr": 1})),
            "lr is no string",
        ),
        (
            |base| base.config("resourceconfig", &json!([])),
            "resourceconfig.json is no object of JSON",
        ),
        (
            |base| base.config("resourceconfig", &json!({"instance_groups": [{}, {}]})),
            "several instance groups",
        ),
        (
            |base| {
                let mpi = json!({"sagemaker_program": "train.sh", "sagemaker_distributed_dataparallel_enabled": "true"});
                base.config("hyperparameters", &mpi);
            },
            "wants SageMaker's library",
        ),
        (
            |base| {
                let mpi = json!({"sagemaker_program": "train.sh", "sagemaker_mpi_enabled": "true"});
                base.config("hyperparameters", &mpi);
                base.config(
                    "resourceconfig",
                    &json!({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}),
                );
            },
            "mpi over several machines",
        ),
    ];
    for (change, says) in cases {
        let base = Base::new("train.sh", "exit 0", program.clone());
        change(&base);
        let output = base.run();
        assert_eq!(output.status.code(), Some(2), "{says}: {}", said(&output));
        let [success, failure] = base.marks();
        assert!(
            failure.as_deref().is_some_and(|text| text.contains(says)),
            "{failure:?}: {}",
            said(&output)
        );
        assert_eq!(success, None);
    }
    let nowhere = TempDir::new().unwrap();
    let output = Command::new(PROGRAM)
        .args(["job", "container"])
        .env("SAGEMAKER_BASE_DIR", nowhere.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("SageMaker makes it in a container"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_stop_reaches_the_script_which_may_end_by_itself() {
    let script = "trap 'echo saving; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let base = Base::new("train.sh", script, json!({"sagemaker_program": "train.sh"}));
    let mut child = base.start();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let began = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "saving");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // It was stopped, and did not fail.
    assert_eq!(base.marks(), [None, None]);
}

/// A stand-in for Python, of which pip is what the test says.
fn python(dir: &Path, pip: &str) -> String {
    let path = dir.join("bin/python3");
    put(
        &path,
        &format!("#!/bin/sh\nif [ \"$2\" = pip ]; then {pip}; fi\nexec /bin/sh \"$@\"\n"),
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap())
}

/// Code that a job brings, with requirements.
fn submitted(dir: &Path, script: &str) -> Value {
    put(&dir.join("own/train.py"), script);
    put(&dir.join("own/requirements.txt"), "numpy\n");
    let folder = dir.join("own").display().to_string();
    json!({"sagemaker_program": "train.py", "sagemaker_submit_directory": format!("{folder:?}")})
}

#[test]
fn a_stop_is_heard_while_requirements_are_installed() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let pip = format!(
        "grep SigBlk /proc/self/status >{0}.new; mv {0}.new {0}; exec sleep 600",
        log.display()
    );
    let path = python(dir.path(), &pip);
    let base = Base::new("old.py", "", submitted(dir.path(), "exit 0"));
    let mut child = base
        .command(PROGRAM, &["job", "container", "train"])
        .env("PATH", path)
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !log.exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    // Pip gets its signals as if it had been started by itself.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("SigBlk")).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap().trim(), own);
    let asked = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(base.marks(), [None, None]);
}

#[test]
fn code_that_replaces_the_working_folder_has_one() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    // The program, and not the shell's word, which may have kept a path.
    let path = python(
        dir.path(),
        &format!("/bin/pwd >{} || exit 9; exit 0", log.display()),
    );
    let base = Base::new("old.py", "", submitted(dir.path(), "/bin/pwd"));
    let code = base.0.path().join("code");
    let output = base
        .command(PROGRAM, &["job", "container", "train"])
        .env("PATH", path)
        .current_dir(&code)
        .output()
        .unwrap();
    let code = code.canonicalize().unwrap().display().to_string();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(fs::read_to_string(&log).unwrap().trim(), code);
    assert!(said(&output).contains(&format!("{code}\n")), "{}", said(&output));
    assert!(!base.0.path().join("code/old.py").exists());
}

/// Prints arguments and SageMaker's variables.
const PRINTS: &str = "import json, os, sys\n\
    from pathlib import Path\n\
    names = [n for n in os.environ if n.startswith('SM_') or n in ('TRAINING_JOB_NAME', 'PYTHONPATH')]\n\
    print('SEEN ' + json.dumps([sys.argv[1:], {n: os.environ[n] for n in names}, os.getcwd()]))\n\
    sys.exit(int(Path(os.environ['SM_CHANNEL_TRAIN'], 'code').read_text()))\n";

/// The toolkit of AWS's images and this entry point run the same script in the same folder.
#[test]
fn sagemakers_toolkit_and_this_entry_point_give_a_script_the_same() {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_TOOLKIT") else {
        stokehold_untested::skip("STOKEHOLD_TEST_TOOLKIT is not set");
        return;
    };
    let python = python.to_str().unwrap();
    for (program, code) in [(true, 0), (false, 0), (true, 3)] {
        let mut hyperparameters = json!({
            "batch-size": "32", "lr": "0.1", "flag": "true", "text": "\"0.5\"", "bare": "resnet18", "none": "null",
            "sizes": "[1, 2.5, \"x\"]", "table": "{\"a\": false}", "x": "\"a b\"", "sagemaker_region": "\"eu-west-1\"",
            "sagemaker_container_log_level": "20", "sagemaker_job_name": "\"flowers-1\"",
        });
        if program {
            hyperparameters["sagemaker_program"] = json!("\"train.py\"");
        }
        let seen = |is_ours: bool| -> (bool, bool, Vec<String>, BTreeMap<String, Value>, bool) {
            let base = Base::new("train.py", PRINTS, hyperparameters.clone());
            put(&base.0.path().join("input/data/train/code"), &code.to_string());
            let toolkit = "import sys\nfrom sagemaker_training.cli.train import main\nsys.exit(main())";
            let mut command = match is_ours {
                true => base.command(PROGRAM, &["job", "container", "train"]),
                false => base.command(python, &["-c", toolkit]),
            };
            // The toolkit is the Python of the image, as in AWS's.
            let bin = Path::new(python).parent().unwrap().display().to_string();
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{bin}:{path}"));
            // The toolkit looks its own name up; there is no network of SageMaker here.
            command.env("SM_STUDIO_LOCAL_MODE", "true");
            if !program {
                command.env("SAGEMAKER_PROGRAM", "train.py");
            }
            let output = command.output().unwrap();
            let text = said(&output);
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("SEEN "))
                .unwrap_or_else(|| panic!("{text}"));
            // The base is another folder each time.
            let line = line.replace(base.0.path().to_str().unwrap(), "BASE");
            let (args, variables, folder): (Vec<String>, BTreeMap<String, String>, String) =
                serde_json::from_str(&line).unwrap();
            assert_eq!(folder, "BASE/code");
            let variables = variables
                .into_iter()
                // Ours alone, or about the machine.
                .filter(|(name, _)| {
                    ![
                        "SM_CHECKPOINT_DIR",
                        "SM_STUDIO_LOCAL_MODE",
                        "SM_NUM_CPUS",
                        "PYTHONPATH",
                    ]
                    .contains(&name.as_str())
                })
                .map(|(name, value)| {
                    let mut value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                    if let Some(map) = value.as_object_mut().filter(|_| name == "SM_TRAINING_ENV") {
                        map.remove("num_cpus");
                    }
                    (name, value)
                })
                .collect();
            // The toolkit ends with 1 whatever the script's code is.
            assert!(!is_ours || output.status.code() == Some(code), "{text}");
            let [success, failure] = base.marks();
            assert_ne!(success.is_some(), failure.is_some(), "{text}");
            let is_named =
                failure.is_none_or(|text| text.contains("exit code 3") || text.contains("ExitCode 3"));
            (
                output.status.success(),
                success.is_some(),
                args,
                variables,
                is_named,
            )
        };
        let (ours, theirs) = (seen(true), seen(false));
        assert_eq!(ours, theirs);
        assert!(ours.3.len() > 30, "{ours:?}");
        assert_eq!((ours.0, ours.1, ours.4), (code == 0, code == 0, true), "{ours:?}");
    }
}
