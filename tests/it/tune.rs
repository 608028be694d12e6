//! `stokehold tune`: what a terminal and a program see of studies, and what is left of them after a crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use stokehold_untested::until;

use serde_json::Value;
use stokehold_base::lock::Lock;
use stokehold_trials::{Plan, TrialsError, run};
use tempfile::TempDir;

/// A folder with a study's file and scripts.
struct Bench {
    dir: TempDir,
}

/// Exit code, standard output, standard error.
type Ended = (Option<i32>, String, String);

/// The loss is the parameter itself, so that the right one is known.
const SCRIPT: &str = "echo loss=$SM_HP_X\n";

const FILE: &str = r#"[study]
objective = "loss"
strategy = "random"
[study.limits]
max-jobs = 4
max-parallel-jobs = 2
[study.parameters.x]
type = "continuous"
min = 1
max = 2
[job]
entry-point = "train.sh"
profile = false
stop-seconds = 60
[[job.metrics]]
name = "loss"
regex = 'loss=(\S+)'
"#;

impl Bench {
    fn new(file: &str, script: &str) -> Self {
        let bench = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(bench.path("tune.toml"), file).unwrap();
        fs::write(bench.path("train.sh"), script).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        // A runner of tests may ignore signals, and so would whatever it starts.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_stokehold"), "tune"]);
        command
            .args(words)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn tune(&self, words: &[&str]) -> Ended {
        let output = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Leads a group of its own, so that nothing of it outlives the test.
    fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    fn export(&self) -> Value {
        let (code, out, err) = self.tune(&["export", "tune.toml", "--json"]);
        assert_eq!(code, Some(0), "{err}");
        serde_json::from_str(&out).unwrap()
    }

    fn journal(&self) -> PathBuf {
        self.path("tune.study/journal.jsonl")
    }

    /// How many lines of the journal are of a kind.
    fn events(&self, kind: &str) -> usize {
        let text = fs::read_to_string(self.journal()).unwrap_or_default();
        text.matches(&format!("\"event\":\"{kind}\"")).count()
    }
}

struct Running(Child);

impl Running {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    fn code(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn trials(export: &Value) -> &[Value] {
    export["trials"].as_array().unwrap()
}

#[test]
fn a_study_runs_and_is_looked_at() {
    let bench = Bench::new(FILE, SCRIPT);
    let (code, out, err) = bench.tune(&["run", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("over: all jobs were made") && out.contains("4 completed"),
        "{out}"
    );
    assert!(err.contains("trial 3 completed: 1."), "{err}");
    let export = bench.export();
    let best = &trials(&export)[export["best"].as_u64().unwrap() as usize];
    for trial in trials(&export) {
        assert_eq!(
            (&trial["status"], &trial["objective"]),
            (&"completed".into(), &trial["values"]["x"])
        );
        assert!(trial["objective"].as_f64() >= best["objective"].as_f64());
    }
    let (_, csv, _) = bench.tune(&["export", "tune.study", "--csv"]);
    assert_eq!(csv.lines().count(), 5);
    assert!(bench.path("tune.study/jobs/trial-0/state.json").is_file());
    // More jobs, from the same place on.
    let (code, out, _) = bench.tune(&["resume", "tune.study", "--max-jobs", "6"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("6 of 6 jobs: 6 completed"), "{out}");
    let (code, out, _) = bench.tune(&["status", "tune.toml"]);
    assert!(
        code == Some(0) && out.contains("Minimize \"loss\" by Random"),
        "{out}"
    );
    let (code, out, _) = bench.tune(&["report", "tune.toml"]);
    assert_eq!((code, out.trim()), (Some(0), "tune.study/report.html"));
    let page = fs::read_to_string(bench.path("tune.study/report.html")).unwrap();
    for part in [
        "What was found",
        "Which parameters matter",
        "Which values go together",
        "One parameter at a time",
        "All trials",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("http:") && !page.contains("https:") && !page.contains("<script"),
        "it needs nothing else"
    );
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_made() {
    for (from, to, says) in [
        ("max = 2", "max = 0", "min = 1 is above max = 0"),
        (
            "min = 1\nmax = 2",
            "min = 0\nmax = 2\nscaling = \"logarithmic\"",
            "wants a range above 0",
        ),
        (
            "type = \"continuous\"\nmin = 1\nmax = 2",
            "type = \"categorical\"\nvalues = []",
            "list at least one",
        ),
        ("\"random\"", "\"genetic\"", "line 3: unknown variant `genetic`"),
        ("'loss=(\\S+)'", "'loss='", "has no group"),
        ("'loss=(\\S+)'", "'loss=('", "metric loss"),
        (
            "objective = \"loss\"",
            "objective = \"accuracy\"",
            "nothing says where \"accuracy\" is",
        ),
        ("\"train.sh\"", "\"other.sh\"", "other.sh"),
        ("max-jobs = 4", "max-jobs = 0", "max-jobs is at least 1"),
        ("profile = false", "profil = false", "unknown field `profil`"),
    ] {
        assert!(FILE.contains(from), "{from}");
        let bench = Bench::new(&FILE.replace(from, to), SCRIPT);
        let (code, _, err) = bench.tune(&["run", "tune.toml"]);
        assert_eq!(code, Some(2), "{to}: {err}");
        assert!(err.contains(says), "{to}: {err}");
        assert!(!bench.journal().exists(), "{to}");
    }
    let bench = Bench::new(FILE, SCRIPT);
    for (words, says) in [
        (vec!["run", "nothing.toml"], "nothing.toml"),
        (vec!["resume", "tune.toml"], "there is no study in tune.study"),
        (vec!["status", "nowhere"], "there is no study in nowhere"),
        (vec!["export", "tune.toml"], "--csv"),
    ] {
        let (code, _, err) = bench.tune(&words);
        assert_eq!(code, Some(2), "{words:?}: {err}");
        assert!(err.contains(says), "{words:?}: {err}");
    }
}

#[test]
fn a_changed_space_or_two_metrics_are_refused() {
    let bench = Bench::new(FILE, SCRIPT);
    assert_eq!(bench.tune(&["run", "tune.toml"]).0, Some(0));
    let (code, _, err) = bench.tune(&["run", "tune.toml"]);
    assert!(code == Some(2) && err.contains("tune resume"), "{err}");
    fs::write(bench.path("tune.toml"), FILE.replace("max = 2", "max = 3")).unwrap();
    let (code, _, err) = bench.tune(&["resume", "tune.toml"]);
    assert!(
        code == Some(2) && err.contains("another parameter x") && err.contains("put it back"),
        "{err}"
    );
    // Its child has to tune the same metric.
    let child = FILE
        .replace(
            "objective = \"loss\"",
            "objective = \"loss\"\ndirection = \"maximize\"",
        )
        .replace(
            "[job]",
            "[study.warm-start]\nkind = \"TransferLearning\"\nparents = [\"tune.study\"]\n[job]",
        );
    fs::write(bench.path("child.toml"), &child).unwrap();
    let (code, _, err) = bench.tune(&["run", "child.toml"]);
    assert!(
        code == Some(2) && err.contains("all studies of a warm start tune one metric"),
        "{err}"
    );
    assert!(!bench.path("child.study").exists());
    fs::write(bench.path("child.toml"), child.replace("maximize", "minimize")).unwrap();
    let (code, _, err) = bench.tune(&["run", "child.toml"]);
    assert!(
        code == Some(0) && err.contains("builds upon 4 results of tune.study"),
        "{err}"
    );
    let (code, _, err) = bench.tune(&["resume", "child.toml"]);
    assert_eq!(code, Some(0), "it is still the file's study: {err}");
}

#[test]
fn trials_without_an_objective_fail_with_their_reasons() {
    let file = FILE.replace("max-jobs = 4", "max-jobs = 2");
    for (script, says) in [
        ("echo nothing\n", "\"loss\" was never printed: no line matches"),
        ("echo loss=nan; sleep 100\n", "the objective was NaN at step 1"),
        ("echo cannot read the data >&2; exit 3\n", "cannot read the data"),
    ] {
        let bench = Bench::new(&file, script);
        let (code, _, err) = bench.tune(&["run", "tune.toml"]);
        assert_eq!(code, Some(1), "{err}");
        assert!(
            err.contains("error: no trial was completed") && err.contains(says),
            "{err}"
        );
        assert!(
            trials(&bench.export())
                .iter()
                .all(|trial| trial["status"] == "failed")
        );
    }
    // One failure does not stop the others.
    let script = "case $SM_HP_X in 1.5*) exit 1;; esac; echo loss=$SM_HP_X\n";
    let file = FILE.replace("[study.limits]", "enqueue = [{ x = 1.5 }]\n[study.limits]");
    let bench = Bench::new(&file, script);
    assert_eq!(bench.tune(&["run", "tune.toml"]).0, Some(0));
    let export = bench.export();
    assert_eq!(
        (&trials(&export)[0]["status"], trials(&export).len()),
        (&"failed".into(), 4)
    );
}

#[test]
fn a_torn_journal_is_taken_up_and_a_damaged_one_is_not() {
    let bench = Bench::new(FILE, SCRIPT);
    assert_eq!(bench.tune(&["run", "tune.toml"]).0, Some(0));
    let text = fs::read_to_string(bench.journal()).unwrap();
    fs::write(bench.journal(), format!("{text}0badc0de {{\"event\":\"as")).unwrap();
    let (code, _, err) = bench.tune(&["resume", "tune.toml", "--max-jobs", "5"]);
    assert_eq!(code, Some(0), "{err}");
    // The limits open the journal before the study does.
    assert!(err.contains("21 incomplete bytes were removed"), "{err}");
    assert_eq!(trials(&bench.export()).len(), 5);
    let damaged = format!("{text}0badc0de {{\"event\":\"asked\"}}\n");
    fs::write(bench.journal(), damaged).unwrap();
    let (code, _, err) = bench.tune(&["resume", "tune.toml"]);
    assert!(
        code == Some(0) && err.contains("kept as ") && err.contains("journal.jsonl.damaged"),
        "{err}"
    );
    fs::write(bench.journal(), text.replacen("\"asked\"", "\"axked\"", 1)).unwrap();
    let (code, _, err) = bench.tune(&["resume", "tune.toml"]);
    assert!(
        code == Some(2) && err.contains("journal.jsonl, line 2") && err.contains("restore it"),
        "{err}"
    );
}

#[test]
fn one_of_several_creates_a_study() {
    let bench = Bench::new(FILE, SCRIPT);
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| bench.tune(&["run", "tune.toml"])))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let made = ended.iter().filter(|(code, ..)| *code == Some(0)).count();
    assert_eq!(made, 1, "{ended:?}");
    for (code, _, err) in ended.iter().filter(|(code, ..)| *code != Some(0)) {
        assert_eq!(*code, Some(2), "{err}");
        assert!(
            err.contains("has a study already; resume it") || err.contains("creates a study here"),
            "{err}"
        );
    }
    assert_eq!(trials(&bench.export()).len(), 4);
}

#[test]
fn who_creates_a_study_is_named() {
    let bench = Bench::new(FILE, SCRIPT);
    fs::create_dir(bench.path("tune.study")).unwrap();
    let lock = Lock::take(&bench.path("tune.study/creating")).unwrap();
    let (code, _, err) = bench.tune(&["run", "tune.toml"]);
    let here = format!("process {} on ", std::process::id());
    assert!(
        code == Some(2) && err.contains(&here) && err.contains("creates a study here; wait"),
        "{err}"
    );
    drop(lock);
    assert_eq!(bench.tune(&["run", "tune.toml"]).0, Some(0));
}

#[test]
fn the_objective_may_be_in_a_file() {
    let file = FILE
        .replace(
            "[study]",
            "metrics-file = \"output/data/run/metrics.jsonl\"\n[study]",
        )
        .replace("[[job.metrics]]\nname = \"loss\"\nregex = 'loss=(\\S+)'\n", "");
    let script = "mkdir -p $SM_OUTPUT_DATA_DIR/run; exec > $SM_OUTPUT_DATA_DIR/run/metrics.jsonl\n\
        echo '{\"kind\":\"train\",\"loss\":99}'\n\
        echo '{\"kind\":\"epoch\",\"epoch\":1,\"loss\":9}'; echo '{\"kind\":\"epoch\",\"epoch\":2,\"loss\":'$SM_HP_X'}'\n";
    let bench = Bench::new(&file, script);
    let (code, _, err) = bench.tune(&["run", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    for trial in trials(&bench.export()) {
        assert_eq!(trial["objective"], trial["values"]["x"]);
        assert_eq!(
            (&trial["reports"][0]["value"], &trial["reports"][1]["step"]),
            (&9.0.into(), &2.into())
        );
    }
}

/// `FILE` with a Python script whose objective comes through the socket.
fn sending() -> String {
    FILE.replace("[study]", "timeline = true\n[study]")
        .replace("[[job.metrics]]\nname = \"loss\"\nregex = 'loss=(\\S+)'\n", "")
        .replace("profile = false\n", "")
        .replace("train.sh", "train.py")
}

#[test]
fn the_objective_may_be_sent_through_the_timeline() {
    if Command::new("python3").arg("--version").output().is_err() {
        stokehold_untested::skip("no python3");
        return;
    }
    let bench = Bench::new(&sending(), "");
    let script = "import os, socket\n\
        timeline = socket.socket(socket.AF_UNIX); timeline.connect(os.environ['STOKEHOLD_TIMELINE'])\n\
        timeline.sendall(f\"metric loss 9 step=1\\nmetric other 7\\nmetric loss {os.environ['SM_HP_X']} step=5\\n\".encode())\n";
    fs::write(bench.path("train.py"), script).unwrap();
    let (code, _, err) = bench.tune(&["run", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    for trial in trials(&bench.export()) {
        assert_eq!(trial["objective"], trial["values"]["x"]);
        assert_eq!(
            (&trial["reports"][0]["value"], &trial["reports"][1]["step"]),
            (&9.0.into(), &5.into())
        );
    }
    // The job has them, too.
    let state = fs::read_to_string(bench.path("tune.study/jobs/trial-0/state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let last = |name: &str| {
        let metrics = state["metrics"].as_array().unwrap();
        let found = metrics.iter().find(|metric| metric["name"] == name);
        found.map(|metric| metric["value"].clone())
    };
    assert_eq!(last("other"), Some(7.0.into()));
    assert_eq!(
        last("loss"),
        Some(trials(&bench.export())[0]["values"]["x"].clone())
    );

    fs::write(bench.path("train.py"), "print('metric loss 1')\n").unwrap();
    let (code, _, err) = bench.tune(&["run", "tune.toml", "--study", "silent", "--max-jobs", "1"]);
    assert!(
        code == Some(1) && err.contains("\"loss\" was never sent"),
        "{err}"
    );
}

#[test]
fn what_is_sent_has_to_be_taken_and_named_once() {
    for (from, to, says) in [
        (
            "entry-point",
            "profile = false\nentry-point",
            "leave the job's profile = false out",
        ),
        (
            "objective = \"loss\"",
            "objective = \"val loss\"",
            "have no white space",
        ),
        (
            "timeline = true",
            "timeline = true\nmetrics-file = \"a.jsonl\"",
            "is both in metrics-file and sent (timeline)",
        ),
        (
            "stop-seconds = 60",
            "metrics = [{ name = \"loss\", regex = \"(.)\" }]",
            "is both one of the job's metrics and sent",
        ),
    ] {
        assert!(sending().contains(from), "{from}");
        let bench = Bench::new(&sending().replace(from, to), "");
        fs::write(bench.path("train.py"), "").unwrap();
        let (code, _, err) = bench.tune(&["run", "tune.toml"]);
        assert!(code == Some(2) && err.contains(says), "{to}: {err}");
    }
}

/// `FILE` with a training of a few images as the trial.
fn training(prepare: &str) -> String {
    FILE.replace(
        "[study]",
        &format!("metrics-file = \"model/run/metrics.jsonl\"\n{prepare}\n[study]"),
    )
    .replace("max-jobs = 4", "max-jobs = 2")
    .replace("[[job.metrics]]\nname = \"loss\"\nregex = 'loss=(\\S+)'\n", "")
    .replace("[job]", "[job]\nchannels = { training = \"images\" }")
}

fn images(bench: &Bench) {
    let mut synth = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    let words = ["dataset", "synth", "images", "--images", "20", "--classes", "2"];
    let made = synth.args(words).current_dir(bench.dir.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn prepared_once_for_all_trials_not_a_bit_of_a_training_changes() {
    let script = format!(
        "ls $SM_CHANNEL_TRAINING\n\
        {} train $SM_CHANNEL_TRAINING --image-size 32 --epochs 1 --batch-size 4 --max-images 12 --workers 1 --ceiling-batches 0 \
        --keep-checkpoints 0 --lr 0.0${{SM_HP_X#*.}} --runs $SM_MODEL_DIR --name run\n",
        env!("CARGO_BIN_EXE_stokehold")
    );
    let bench = Bench::new(&training(""), &script);
    images(&bench);
    fs::write(bench.path("shared.toml"), training("prepare = [\"training\"]")).unwrap();
    for (file, shards) in [("tune.toml", false), ("shared.toml", true)] {
        let (code, _, err) = bench.tune(&["run", file]);
        assert_eq!(code, Some(0), "{err}");
        let study = bench.path(file).with_extension("study");
        assert_eq!(study.join("prepared/training/shards.json").exists(), shards);
        let log = fs::read_to_string(study.join("jobs/trial-1/log")).unwrap();
        assert_eq!(log.contains("shards.json"), shards, "{log}");
    }
    for trial in ["trial-0", "trial-1"] {
        let model = |study: &str| {
            fs::read(
                bench
                    .path(study)
                    .join("jobs")
                    .join(trial)
                    .join("algo-1/model/run/model.safetensors"),
            )
            .unwrap()
        };
        assert!(model("tune.study") == model("shared.study"), "{trial}");
    }
}

#[test]
fn what_cannot_be_prepared_is_said_before_anything_is_made() {
    for (from, to, says) in [
        ("\"training\"]", "\"test\"]", "\"test\" is no channel of the job"),
        (
            "\"images\" }",
            "{ uri = \"images\", mode = \"Pipe\" } }",
            "leave its mode",
        ),
        (
            "\"images\" }",
            "\"nothing\" }",
            "channel training cannot be prepared",
        ),
    ] {
        let file = training("prepare = [\"training\"]");
        assert!(file.contains(from), "{from}");
        let bench = Bench::new(&file.replace(from, to), "");
        let (code, _, err) = bench.tune(&["run", "tune.toml"]);
        assert!(code == Some(2) && err.contains(says), "{to}: {err}");
        assert!(!bench.journal().exists(), "{to}");
    }
}

#[test]
fn a_preparation_that_was_interrupted_goes_on() {
    let bench = Bench::new(&training("prepare = [\"training\"]"), "");
    images(&bench);
    let plan = Plan::read(&bench.path("tune.toml")).unwrap();
    let create = |stop| {
        run::create(
            &plan,
            &bench.path("tune.study"),
            &AtomicBool::new(stop),
            &mut |_, _| {},
        )
    };
    let interrupted = create(true);
    assert!(
        matches!(interrupted, Err(TrialsError::Interrupted)),
        "{interrupted:?}"
    );
    assert!(!bench.journal().exists());
    create(false).unwrap();
    assert!(bench.journal().exists());
}

#[test]
fn a_hopeless_trial_is_stopped_and_keeps_its_checkpoints() {
    let file = FILE
        .replace(
            "[study.limits]",
            "enqueue = [{ x = 1 }, { x = 1.1 }, { x = 2 }]\n[study.limits]",
        )
        .replace("max-jobs = 4\nmax-parallel-jobs = 2", "max-jobs = 3")
        .replace(
            "[study.parameters.x]",
            "[study.early-stopping]\nrule = \"auto\"\ngrace-reports = 1\nmin-trials = 2\n[study.parameters.x]",
        );
    // The hopeless one would continue for long.
    let script = "trap 'echo saved > $CHECKPOINTS/model; exit 1' TERM\n\
        CHECKPOINTS=$(dirname $SM_MODEL_DIR)/checkpoints\n\
        echo loss=$SM_HP_X\n\
        case $SM_HP_X in 2*) i=0; while [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done;; esac\n\
        echo loss=$SM_HP_X\n";
    let bench = Bench::new(&file, script);
    let (code, _, err) = bench.tune(&["run", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    let export = bench.export();
    let last = &trials(&export)[2];
    assert_eq!(
        (&last["status"], &last["stopped_at_step"]),
        (&"stopped".into(), &1.into()),
        "{err}"
    );
    let saved = bench.path("tune.study/jobs/trial-2/algo-1/checkpoints/model");
    assert_eq!(fs::read_to_string(saved).unwrap(), "saved\n");
}

/// Of six at the rung two continue: the second best was stopped there when there were fewer.
#[test]
fn a_trial_that_was_stopped_at_a_rung_goes_on_with_its_checkpoint() {
    let file = FILE
        .replace(
            "[study.limits]",
            "enqueue = [{ x = 1 }, { x = 1.2 }, { x = 1.5 }, { x = 1.6 }, { x = 1.7 }, { x = 1.8 }]\n\
             early-stopping = { rule = \"asha\" }\nrungs = { max-steps = 3 }\n[study.limits]",
        )
        .replace("max-jobs = 4\nmax-parallel-jobs = 2", "max-jobs = 6");
    // All but the best wait to be stopped, the first time; the checkpoint is there before anybody can stop them.
    let script = "if [ ! -e $SM_CHECKPOINT_DIR/epoch ]; then touch $SM_CHECKPOINT_DIR/epoch; echo loss=$SM_HP_X\n\
        case $SM_HP_X in 1|1.0) ;; *) sleep 600 & wait;; esac; fi\n\
        echo loss=$SM_HP_X; echo loss=$SM_HP_X\n";
    let bench = Bench::new(&file, script);
    let (code, out, err) = bench.tune(&["run", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("2 completed") && out.contains("4 stopped"), "{out}");
    assert!(err.contains("trial 1 starts again behind step 1"), "{err}");
    let export = bench.export();
    let second = &trials(&export)[1];
    assert_eq!(
        (&second["status"], second["reports"].as_array().unwrap().len()),
        (&"completed".into(), 3),
        "{second}"
    );
    assert_eq!(bench.events("promoted"), 1);
}

#[test]
fn an_interrupted_study_goes_on_where_it_was() {
    // The first time it waits to be stopped, the second time it has a checkpoint.
    let script = "CHECKPOINTS=$(dirname $SM_MODEL_DIR)/checkpoints\n\
        if [ ! -e $CHECKPOINTS/model ]; then\n\
          trap 'echo saved > $CHECKPOINTS/model; exit 1' TERM\n\
          echo ready; i=0; while [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done\n\
        fi\n\
        echo loss=$SM_HP_X\n";
    let bench = Bench::new(&FILE.replace("max-jobs = 4", "max-jobs = 2"), script);
    let running = bench.start(&["run", "tune.toml"]);
    let is_ready = |trial: usize| {
        let log = bench.path(&format!("tune.study/jobs/trial-{trial}/log"));
        fs::read_to_string(log).is_ok_and(|log| log.contains("ready"))
    };
    until("both scripts", || is_ready(0) && is_ready(1));
    running.signal("-INT");
    assert_eq!(running.code(), Some(130));
    assert_eq!(bench.events("back"), 2);
    let (code, _, err) = bench.tune(&["resume", "tune.toml"]);
    assert_eq!(code, Some(0), "{err}");
    let export = bench.export();
    for trial in trials(&export) {
        assert_eq!(
            (&trial["status"], &trial["attempt"]),
            (&"completed".into(), &1.into())
        );
        assert_eq!(trial["objective"], trial["values"]["x"]);
    }
}

/// What a script sees of the machine when its trial began in one slot and continues in the other.
#[test]
fn a_trial_has_the_cores_and_gpus_of_the_slot_where_it_goes_on() {
    let script = "BASE=$(dirname $SM_MODEL_DIR)\n\
        echo place=$CUDA_VISIBLE_DEVICES,$SM_NUM_GPUS,$(grep Cpus_allowed_list /proc/self/status | cut -f 2)\n\
        if [ ! -e $BASE/checkpoints/model ]; then\n\
          trap 'echo saved > $BASE/checkpoints/model; exit 1' TERM\n\
          echo ready; i=0; while [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done\n\
        fi\n\
        echo loss=$SM_HP_X\n";
    let bench = Bench::new(&FILE.replace("max-jobs = 4", "max-jobs = 2"), script);
    let log = |trial: usize| {
        let log = bench.path(&format!("tune.study/jobs/trial-{trial}/log"));
        fs::read_to_string(log).unwrap_or_default()
    };
    let places = |trial: usize| -> Vec<String> {
        let log = log(trial);
        let places = log.lines().filter_map(|line| line.split_once("place="));
        places.map(|(_, place)| place.to_owned()).collect()
    };
    let mut command = bench.command(&["run", "tune.toml"]);
    command.env("CUDA_VISIBLE_DEVICES", "5,7");
    let running = Running(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    until("both scripts", || {
        log(0).contains("ready") && log(1).contains("ready")
    });
    running.signal("-INT");
    assert_eq!(running.code(), Some(130));
    let (first, second) = (places(0), places(1));
    assert!(
        first[0].starts_with("5,1,") && second[0].starts_with("7,1,"),
        "{first:?} {second:?}"
    );
    // The first slot is another process's now.
    let slot = fs::File::open(bench.path("tune.study/slots/0")).unwrap();
    slot.try_lock().unwrap();
    let mut command = bench.command(&["resume", "tune.toml"]);
    let output = command.env("CUDA_VISIBLE_DEVICES", "5,7").output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for trial in [0, 1] {
        assert_eq!(places(trial)[1], second[0], "trial {trial}");
    }
}

/// Kills the tuner and a second process on the same study, at moments that differ each time, and continues.
#[test]
fn nothing_is_lost_or_run_twice_when_processes_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let starts = dir.path().join("starts");
    let environment = format!(
        "[job.environment]\nSTARTS = \"{}\"\n[[job.metrics]]",
        starts.display()
    );
    let file = FILE
        .replace(
            "max-jobs = 4\nmax-parallel-jobs = 2",
            "max-jobs = 10\nmax-parallel-jobs = 3",
        )
        .replace("[[job.metrics]]", &environment);
    let script =
        "echo $(basename $(dirname $(dirname $SM_MODEL_DIR))) >> $STARTS\nsleep 0.2\necho loss=$SM_HP_X\n";
    let bench = Bench::new(&file, script);
    let mut tuner = bench.start(&["run", "tune.toml"]);
    // Twice, so that no trial loses more processes than it may.
    for (asked, told) in [(3, 1), (6, 4)] {
        until("the study", || bench.journal().exists());
        let worker = bench.start(&["resume", "tune.toml"]);
        until("trials", || {
            bench.events("asked") >= asked && bench.events("told") >= told
        });
        // Both at once: what one of them loses the other must not take up, and lose again.
        tuner.signal("-KILL");
        worker.signal("-KILL");
        tuner.code();
        worker.code();
        tuner = bench.start(&["resume", "tune.toml"]);
    }
    assert_eq!(tuner.code(), Some(0));
    let export = bench.export();
    assert_eq!(trials(&export).len(), 10);
    let started = fs::read_to_string(&starts).unwrap();
    for (number, trial) in trials(&export).iter().enumerate() {
        assert_eq!(
            (&trial["status"], &trial["objective"]),
            (&"completed".into(), &trial["values"]["x"]),
            "{trial}"
        );
        let times = started
            .lines()
            .filter(|line| *line == format!("trial-{number}"))
            .count() as u64;
        let attempts = trial["attempt"].as_u64().unwrap();
        assert!(
            (1..=attempts).contains(&times),
            "trial {number}: {times} starts, {attempts} attempts"
        );
    }
    assert_eq!(bench.events("told"), 10, "each is told once");
    let jobs = fs::read_dir(bench.path("tune.study/jobs")).unwrap().flatten();
    let names = jobs.filter(|entry| entry.file_name().to_string_lossy().starts_with("trial-"));
    assert_eq!(names.count(), 10);
}

#[test]
fn the_template_is_a_file_that_can_be_read() {
    let bench = Bench::new(FILE, SCRIPT);
    let (code, _, err) = bench.tune(&["init", "new.toml"]);
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = bench.tune(&["run", "new.toml"]);
    assert!(
        code == Some(2) && err.contains("train.py"),
        "only its script is missing: {err}"
    );
    let (code, _, err) = bench.tune(&["init", "new.toml"]);
    assert!(code == Some(2) && err.contains("is there already"), "{err}");
    assert!(!Path::new(&bench.path("new.study/journal.jsonl")).exists());
}
