//! Jobs, studies and preparations on a Slurm cluster, whose nodes are killed.

mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use stokehold_untested::needs;

use cluster::{Cluster, free_ports};
use stokehold_untested::until;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of what has to succeed.
#[track_caller]
fn fine(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn show(cluster: &Cluster, name: &str) -> Value {
    let shown = fine(&cluster.stokehold(&["job", "show", name, "--json"]));
    serde_json::from_str(&shown).unwrap()
}

/// Waits until a job has printed a line.
fn printed(cluster: &Cluster, name: &str, line: &str) {
    let log = cluster.path("jobs").join(name).join("log");
    until(&format!("{line} of {name}"), || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains(line))
    });
}

/// Counts to N, one number each 0.2 seconds, from its checkpoint on.
const COUNT: &str = "trap 'echo told to end; exit 7' TERM\nat=$(cat $SM_CHECKPOINT_DIR/at 2>/dev/null || echo 0)\n\
    echo \"from $at on $SM_CURRENT_HOST of $SM_HOSTS with $(env | grep -c ^SLURM_) of Slurm's variables\"\n\
    while [ $at -lt ${2:-10} ]; do sleep 0.2; at=$((at+1)); echo $at > $SM_CHECKPOINT_DIR/at; echo at=$at; done\n\
    echo done > $SM_MODEL_DIR/model\n";

#[test]
fn jobs_run_on_nodes_and_are_looked_at_and_stopped() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.write("count.sh", COUNT);
    let run = |words: &[&str]| {
        let mut all = vec![
            "job",
            "run",
            "--entry-point",
            "count.sh",
            "--on",
            "slurm",
            "--sbatch=--exclusive",
        ];
        all.extend(words);
        cluster.stokehold(&all)
    };
    // An instance on each node, with its own room, and no sign of Slurm but the job's number.
    let ended = run(&["--name", "two", "--instances", "2", "--metric", "at=at=([0-9]+)"]);
    let (out, err) = (fine(&ended), text(&ended.stderr));
    for host in ["algo-1", "algo-2"] {
        let begins =
            format!("[{host}] from 0 on {host} of [\"algo-1\",\"algo-2\"] with 1 of Slurm's variables");
        assert!(
            out.contains(&begins) && out.contains(&format!("[{host}] at=10")),
            "{out}"
        );
    }
    assert!(err.contains("2 instances on a node each"), "{err}");
    let shown = show(&cluster, "two");
    assert_eq!(shown["record"]["metrics"][0]["value"], 10.0);
    assert!(shown["record"]["slurm"]["id"].is_u64() && shown["record"]["model"].is_string());
    let nodes = cluster.says(&[
        "scontrol",
        "show",
        "job",
        &shown["record"]["slurm"]["id"].to_string(),
    ]);
    assert!(nodes.contains("NumNodes=2"), "{nodes}");

    // One that runs and one that waits; both are stopped.
    for name in ["runs", "waits"] {
        let words = [
            "--name",
            name,
            "--instances",
            "2",
            "--hyperparameter",
            "n=1000",
            "--detach",
        ];
        assert_eq!(fine(&run(&words)), format!("{name}\n"));
        if name == "runs" {
            printed(&cluster, name, "at=2");
        }
    }
    until("a reason to wait", || {
        let list = fine(&cluster.stokehold(&["job", "list"]));
        list.contains("Starting: Slurm has it as PENDING (Resources)") && list.contains("Training")
    });
    for name in ["waits", "runs"] {
        fine(&cluster.stokehold(&["job", "stop", name]));
        let waited = cluster.stokehold(&["job", "wait", name, "--timeout", "60s"]);
        assert_eq!(waited.status.code(), Some(130), "{}", text(&waited.stderr));
    }
    let log = fine(&cluster.stokehold(&["job", "logs", "runs"]));
    assert!(
        log.contains("[algo-1] told to end") && log.contains("[algo-2] told to end"),
        "{log}"
    );

    // It continues with its checkpoints; then Slurm's own command ends it.
    fine(&cluster.stokehold(&["job", "run", "--resume", "runs", "--on", "slurm", "--detach"]));
    until("another start", || {
        fine(&cluster.stokehold(&["job", "logs", "runs"]))
            .matches("[algo-2] from ")
            .count()
            == 2
    });
    let id = show(&cluster, "runs")["record"]["slurm"]["id"].to_string();
    cluster.says(&["scancel", &id]);
    let waited = cluster.stokehold(&["job", "wait", "runs", "--timeout", "60s"]);
    assert_eq!(waited.status.code(), Some(130), "{}", text(&waited.stderr));

    // What a script and Slurm refuse.
    cluster.write("fails.sh", "echo no such data >&2; exit 3");
    let words = [
        "job",
        "run",
        "--entry-point",
        "fails.sh",
        "--on",
        "slurm",
        "--name",
        "fails",
    ];
    let failed = cluster.stokehold(&words);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("algo-1 ended with exit code 3: no such data"));
    let refused = run(&["--name", "nowhere", "--sbatch=--partition=none"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("Invalid partition"),
        "{}",
        text(&refused.stderr)
    );
    assert!(!cluster.path("jobs/nowhere").exists());
    for (words, says) in [
        (
            &["--instances", "2", "--channel", "t=file:///tmp,mode=FastFile"][..],
            "is for one machine",
        ),
        (&["--instances", "2", "--distribution", "mpi"], "srun --mpi=pmix"),
        (
            &["--instances", "2", "--spot-simulate", "after 1s"],
            "spot.simulate",
        ),
        (&["--entry-point", "none.sh"], "entry"),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_lost_node_costs_a_job_no_more_than_its_time_since_the_checkpoint() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.write("count.sh", COUNT);
    let words = [
        "job",
        "run",
        "--entry-point",
        "count.sh",
        "--on",
        "slurm",
        "--name",
        "j",
        "--detach",
    ];
    fine(&cluster.stokehold(&[&words[..], &["--hyperparameter", "n=40"]].concat()));
    printed(&cluster, "j", "at=5");
    let id = show(&cluster, "j")["record"]["slurm"]["id"].to_string();
    let node = cluster.says(&["squeue", "--noheader", "--format=%N", "--jobs", &id]);
    cluster.kill_node(node.trim());
    // Slurm has not noticed yet, and nothing is concluded.
    assert_eq!(show(&cluster, "j")["record"]["status"], "InProgress");
    let waited = cluster.stokehold(&["job", "wait", "j", "--timeout", "80s"]);
    let log = fine(&cluster.stokehold(&["job", "logs", "j"]));
    assert_eq!(waited.status.code(), Some(0), "{}{log}", text(&waited.stderr));
    let starts: Vec<&str> = log.lines().filter(|line| line.contains("] from ")).collect();
    assert!(starts.len() == 2 && !starts[1].contains("from 0 "), "{starts:?}");
    assert_eq!(log.matches(" at=40\n").count(), 1, "{log}");
}

#[test]
fn torch_trains_on_two_nodes() {
    let (Some(python), Some(cluster)) = (needs::torch(), Cluster::start()) else {
        return;
    };
    cluster.write(
        "sum.py",
        "import sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n\
         numbers = torch.ones(3) * (dist.get_rank() + 1)\ndist.all_reduce(numbers)\n\
         sys.stdout.write(f'the sum on rank {dist.get_rank()} is {numbers.tolist()}\\n')\n\
         dist.barrier()\ndist.destroy_process_group()\n",
    );
    let python = python.display().to_string();
    let ended = cluster.stokehold(&[
        "job",
        "run",
        "--entry-point",
        "sum.py",
        "--on",
        "slurm",
        "--instances",
        "2",
        "--distribution",
        "torch",
        "--processes-per-host",
        "2",
        "--python",
        &python,
    ]);
    let out = fine(&ended);
    for rank in 0..4 {
        assert!(
            out.contains(&format!("the sum on rank {rank} is [10.0, 10.0, 10.0]")),
            "{out}"
        );
    }
}

#[test]
fn a_study_goes_on_without_the_node_that_was_lost() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.write("trial.sh", "for s in 1 2 3 4 5; do sleep 0.3; echo loss=$2; done");
    cluster.write(
        "tune.toml",
        "[study]\nstrategy = \"random\"\nobjective = \"loss\"\ndirection = \"minimize\"\n\
         [study.limits]\nmax-jobs = 6\nmax-parallel-jobs = 2\n\
         [study.parameters]\nx = { type = \"continuous\", min = 0.0, max = 1.0 }\n\
         [job]\nentry-point = \"trial.sh\"\nprofile = false\nmetrics = [ { name = \"loss\", regex = \"loss=([0-9.e-]+)\" } ]\n",
    );
    let mut tune = cluster.command(env!("CARGO_BIN_EXE_stokehold"));
    tune.args([
        "tune",
        "run",
        "tune.toml",
        "--on",
        "slurm",
        "--sbatch=--exclusive",
    ]);
    let tuning = std::thread::spawn(move || tune.output().unwrap());
    let journal = cluster.path("tune.study/journal.jsonl");
    until("two trials", || {
        fs::read_to_string(&journal).is_ok_and(|text| {
            text.contains("\"reported\",\"trial\":0,") && text.contains("\"reported\",\"trial\":1,")
        })
    });
    cluster.kill_node("n1");
    let ended = tuning.join().unwrap();
    let out = fine(&ended);
    assert!(
        out.contains("6 of 6 jobs: 6 completed"),
        "{out}{}",
        text(&ended.stderr)
    );
    let events = fs::read_to_string(&journal).unwrap();
    assert!(events.contains("\"again\""), "{events}");
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// An array of workers, one of whose nodes is lost, and the job that joins their shares when all have succeeded.
#[test]
fn an_array_prepares_what_one_worker_does() {
    let Some(cluster) = Cluster::start() else { return };
    fine(&cluster.stokehold(&["dataset", "synth", "data", "--images", "600", "--classes", "3"]));
    fine(&cluster.stokehold(&["prepare", "data", "one", "--shard-size", "200kB"]));
    let program = env!("CARGO_BIN_EXE_stokehold");
    let worker = format!(
        "--wrap=sleep 1; exec {program} prepare data many --shard-size 200kB --worker $SLURM_ARRAY_TASK_ID/4 --workers 1"
    );
    let array = cluster.says(&["sbatch", "--parsable", "--array=1-4", "--exclusive", &worker]);
    let array = array.trim();
    let join = format!("--wrap=exec {program} prepare data many --shard-size 200kB --join");
    let after = format!("--dependency=afterok:{array}");
    let join = cluster.says(&["sbatch", "--parsable", &after, &join]);
    until("a first share", || cluster.path("many.workers").exists());
    cluster.kill_node("n1");
    until("the join", || {
        cluster
            .says(&[
                "squeue",
                "--noheader",
                "--states=all",
                "--format=%T",
                "--jobs",
                join.trim(),
            ])
            .trim()
            == "COMPLETED"
    });
    assert!(files(&cluster.path("one")) == files(&cluster.path("many")));
    assert!(!cluster.path("many.workers").exists());
}

/// Processes on two nodes transform what one does.
#[test]
fn two_nodes_share_a_transform() {
    let Some(cluster) = Cluster::start() else { return };
    fine(&cluster.stokehold(&["dataset", "synth", "data", "--images", "150", "--classes", "2"]));
    let train =
        "train data --name x --epochs 1 --image-size 32 --batch-size 16 --ceiling-batches 0 --device cpu";
    fine(&cluster.stokehold(&train.split(' ').collect::<Vec<_>>()));
    let words = "transform runs/x data/train OUT --batch-size 2 --device cpu";
    let one = words.replace("OUT", "one");
    fine(&cluster.stokehold(&one.split(' ').collect::<Vec<_>>()));
    let program = env!("CARGO_BIN_EXE_stokehold");
    let wrap = format!("--wrap=srun {program} {}", words.replace("OUT", "two"));
    cluster.says(&[
        "sbatch",
        "--wait",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--output=transform.log",
        &wrap,
    ]);
    let log = fs::read_to_string(cluster.path("transform.log")).unwrap_or_default();
    let outputs = |folder: &str| -> BTreeMap<String, Vec<u8>> {
        let is_output = |name: &String| name.ends_with(".out");
        files(&cluster.path(folder))
            .into_iter()
            .filter(|(name, _)| is_output(name))
            .collect()
    };
    assert!(
        outputs("one").len() > 100 && outputs("one") == outputs("two"),
        "{log}"
    );
    assert_eq!(log.matches(" records in two").count(), 2, "{log}");
}

/// A heterogeneous job: one component serves batches, the other one takes them.
#[test]
fn a_heterogeneous_job_has_its_batches_from_another_node() {
    let Some(cluster) = Cluster::start() else { return };
    fine(&cluster.stokehold(&["dataset", "synth", "data", "--images", "60", "--classes", "2"]));
    let [port] = free_ports();
    let program = env!("CARGO_BIN_EXE_stokehold");
    cluster.write(
        "het.sh",
        &format!(
            "#!/bin/sh\n#SBATCH --nodes=1 --output=het.log\n#SBATCH hetjob\n#SBATCH --nodes=1\n\
             srun --het-group=1 {program} serve data --listen 0.0.0.0:{port} --workers 1 &\nserver=$!\n\
             timeout 60 bash -c 'until (exec 3<>/dev/tcp/'$(hostname)'/{port}) 2>/dev/null; do sleep 0.1; done'\n\
             srun --het-group=0 {program} bench loader data --loader tcp://$(hostname):{port} --passes 1 --json > loader.json\n\
             status=$?; kill $server; exit $status\n"
        ),
    );
    let said = cluster.says(&["sbatch", "--wait", "het.sh"]);
    let log = fs::read_to_string(cluster.path("het.log")).unwrap_or_default();
    let report = fs::read_to_string(cluster.path("loader.json")).unwrap_or_default();
    let report: Value =
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {said}{log}{report}"));
    let made = report["batches_by_server"].as_object().unwrap();
    assert!(
        made.values().all(|batches| batches.as_u64() > Some(0)),
        "{report}"
    );
}

#[test]
fn a_machine_without_slurm_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.sh"), "true").unwrap();
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_stokehold"));
    run.args([
        "job",
        "--jobs",
        "jobs",
        "run",
        "--entry-point",
        "a.sh",
        "--on",
        "slurm",
        "--name",
        "a",
    ]);
    let ended = run
        .current_dir(dir.path())
        .env("PATH", dir.path())
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        text(&ended.stderr).contains("there is no sbatch on PATH"),
        "{}",
        text(&ended.stderr)
    );
    assert!(!dir.path().join("jobs/a").exists());
}
