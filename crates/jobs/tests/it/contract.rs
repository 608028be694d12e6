//! What a script sees, against the published toolkit and the reference.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use stokehold_jobs::{Channel, Distribution, Job, Status};

use crate::Bench;

/// Prints what it sees: arguments, folder, variables, files.
const PRINTS: &str = "import json, os, sys\n\
    base = os.environ['SAGEMAKER_BASE_DIR']\n\
    config = {n: json.load(open(f'{base}/input/config/{n}.json'))\n\
              for n in ['hyperparameters', 'inputdataconfig', 'resourceconfig', 'profilerconfig']}\n\
    print(json.dumps({'args': sys.argv[1:], 'cwd': os.getcwd(), 'env': dict(os.environ), 'config': config,\n\
                      'train': sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])),\n\
                      'folders': sorted(os.listdir(base))}))\n";

/// The toolkit's own answer on the same folder.
const TOOLKIT: &str = "import json\n\
    from sagemaker_training import environment\n\
    env = environment.Environment()\n\
    print(json.dumps([env.to_env_vars(), env.to_cmd_args()]))\n";

fn asked(bench: &Bench) -> Job {
    let mut job = bench.job("train.py", PRINTS);
    let data = bench.dir.path().join("data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("1.jpg"), "x").unwrap();
    job.channels.insert(
        "train".to_owned(),
        Channel::parse(data.to_str().unwrap()).unwrap(),
    );
    let mut second =
        Channel::parse(&format!("{},mode=File,content-type=image/jpeg", data.display())).unwrap();
    second.shuffle = None;
    job.channels.insert("a-b".to_owned(), second);
    for (name, value) in [
        ("batch-size", json!(32)),
        ("lr", json!(0.1)),
        ("eps", json!(1e-8)),
        ("big", json!(1e22)),
        ("x", json!("a b")),
        ("flag", json!(true)),
        ("none", Value::Null),
        ("text", json!("0.5")),
        ("quoted", json!("it's \"é\"\n")),
        ("sizes", json!([1, 2.0, "x", null])),
        ("table", json!({"b": [1, "it's"], "a": false})),
        ("sagemaker_of_framework", json!(7)),
    ] {
        job.hyperparameters.insert(name.to_owned(), value);
    }
    job.instance_type = "ml.p3.2xlarge".to_owned();
    job.environment.insert("MINE".to_owned(), "1".to_owned());
    job
}

fn seen(bench: &Bench) -> Vec<Value> {
    let printed = bench.printed();
    let seen: Vec<Value> = printed
        .iter()
        .filter_map(|line| serde_json::from_str(line.split_once(" out ")?.1).ok())
        .collect();
    assert!(!seen.is_empty(), "{printed:?}");
    seen
}

#[test]
fn a_script_sees_what_the_reference_says() {
    let bench = Bench::new();
    let record = bench.run(&asked(&bench));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let seen = &seen(&bench)[0];
    let base = bench.base(&record, "algo-1").display().to_string();
    let env = |name: &str| {
        seen["env"][name]
            .as_str()
            .unwrap_or_else(|| panic!("{name} is not set"))
            .to_owned()
    };
    assert_eq!(seen["cwd"], json!(format!("{base}/code")));
    assert_eq!(
        seen["folders"],
        json!(["checkpoints", "code", "input", "model", "output"])
    );
    assert_eq!(seen["train"], json!(["1.jpg"]));
    for (name, value) in [
        ("SAGEMAKER_BASE_DIR", base.clone()),
        ("SM_MODEL_DIR", format!("{base}/model")),
        ("SM_OUTPUT_DATA_DIR", format!("{base}/output/data")),
        ("SM_CHANNEL_TRAIN", format!("{base}/input/data/train")),
        ("SM_CHANNEL_A-B", format!("{base}/input/data/a-b")),
        ("SM_CHANNELS", "[\"a-b\",\"train\"]".to_owned()),
        ("SM_HOSTS", "[\"algo-1\"]".to_owned()),
        ("SM_HP_BATCH-SIZE", "32".to_owned()),
        ("SM_HP_NONE", String::new()),
        ("SM_HP_FLAG", "true".to_owned()),
        ("SM_USER_ENTRY_POINT", "train.py".to_owned()),
        ("SM_MODULE_NAME", "train".to_owned()),
        ("TRAINING_JOB_NAME", record.name.clone()),
        ("CURRENT_HOST", "algo-1".to_owned()),
        ("MINE", "1".to_owned()),
    ] {
        assert_eq!(env(name), value, "{name}");
    }
    let args: Vec<&str> = seen["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let quoted = "it's \"é\"\n";
    let wanted = [
        "--batch-size",
        "32",
        "--big",
        "1e+22",
        "--eps",
        "1e-08",
        "--flag",
        "True",
        "--lr",
        "0.1",
        "--none",
        "",
        "--quoted",
        quoted,
        "--sizes",
        "[1, 2.0, 'x', None]",
        "--table",
        "a=False,b=[1, \"it's\"]",
        "--text",
        "0.5",
        "-x",
        "a b",
    ];
    assert_eq!(args, wanted);
    assert!(!env("SM_HPS").contains("sagemaker_"));
    assert_eq!(env("SM_FRAMEWORK_PARAMS"), "{\"sagemaker_of_framework\":7}");
    assert_eq!(seen["config"]["hyperparameters"]["lr"], "0.1");
    assert_eq!(
        seen["config"]["hyperparameters"]["sagemaker_program"],
        "\"train.py\""
    );
    assert_eq!(
        seen["config"]["inputdataconfig"]["a-b"]["ContentType"],
        "image/jpeg"
    );
    assert_eq!(
        seen["config"]["inputdataconfig"]["train"]["TrainingInputMode"],
        "File"
    );
    assert_eq!(seen["config"]["resourceconfig"]["current_host"], "algo-1");
    assert_eq!(
        seen["config"]["profilerconfig"],
        json!({"DisableProfiler": false, "ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": {}})
    );
}

/// What the toolkit makes of texts that it finds for hyperparameters.
#[test]
fn hyperparameters_are_decoded_as_the_published_toolkit_does_it() {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_TOOLKIT") else {
        stokehold_untested::skip(
            "STOKEHOLD_TEST_TOOLKIT names no Python with sagemaker-training (bench/peers/setup.sh toolkit)",
        );
        return;
    };
    let texts = [
        "1",
        "1.0",
        "1e-5",
        "0.00001",
        "1E5",
        "1e400",
        "-1e400",
        "NaN",
        "Infinity",
        "-Infinity",
        "-0",
        "-0.0",
        "01",
        "  3 ",
        "3\n",
        "1_000",
        "0x10",
        "null",
        "true",
        "plain",
        "",
        "\"\"",
        "\"a b\"",
        "'x'",
        "\"tab\\t\"",
        "\"\\u00e9\\n\"",
        "[]",
        "{}",
        "[]x",
        "\u{feff}1",
        "12345678901234567890123",
        "18446744073709551616",
        "[12345678901234567890123]",
        "[NaN, 1]",
        "[1.0, 2]",
        "{\"a\":1e400}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":0.1,\"b\":[1e-7,100000000000000000000.0]}",
        "[1.5e300,1e16,1e22]",
        "{\"b\":NaN,\"a\":[null,\"it's\",{\"z\":Infinity,\"c\":true}]}",
        "[[-0],NaN]",
        "123456789.123456789",
    ];
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("input/config");
    fs::create_dir_all(&config).unwrap();
    let named = texts
        .iter()
        .enumerate()
        .map(|(n, text)| (format!("h{n:02}"), *text));
    let named: BTreeMap<String, &str> = named.collect();
    fs::write(config.join("hyperparameters.json"), json!(named).to_string()).unwrap();
    let program = "import json\n\
        from sagemaker_training import environment, mapping\n\
        print(json.dumps(mapping.to_cmd_args(environment.read_hyperparameters())))\n";
    let mut command = Command::new(&python);
    let answer = command
        .args(["-c", program])
        .env("SAGEMAKER_BASE_DIR", dir.path())
        .output()
        .unwrap();
    let theirs: Vec<String> = serde_json::from_slice(
        answer
            .stdout
            .split(|b| *b == b'\n')
            .rfind(|line| !line.is_empty())
            .unwrap(),
    )
    .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer.stderr)));
    let ours = named
        .iter()
        .map(|(name, text)| {
            (
                name.clone(),
                stokehold_jobs::decode_hyperparameter(text).into_value(),
            )
        })
        .collect();
    assert_eq!(stokehold_jobs::contract::arguments(&ours), theirs);
}

/// Every variable of the toolkit, on the folder that a job left, and no more than those.
#[test]
fn the_published_toolkit_agrees_key_by_key() {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_TOOLKIT") else {
        stokehold_untested::skip(
            "STOKEHOLD_TEST_TOOLKIT names no Python with sagemaker-training (bench/peers/setup.sh toolkit)",
        );
        return;
    };
    for (distribution, instances) in [
        (Distribution::None, 1),
        (Distribution::None, 2),
        (Distribution::Torch, 1),
    ] {
        let bench = Bench::new();
        let mut job = asked(&bench);
        job.instances = instances;
        job.distribution = distribution;
        // The variables are asked for, and not whether torch is there.
        let record = bench.run(&Job {
            distribution: Distribution::None,
            ..job.clone()
        });
        assert_eq!(record.status, Status::Completed, "{record:?}");
        for rank in 0..instances {
            let host = stokehold_jobs::contract::host(rank);
            let base = bench.base(&record, &host);
            let instance = stokehold_jobs::contract::Instance {
                job: record.name.clone(),
                rank,
                base: base.clone(),
                cpus: 0,
                gpus: 0,
                address: "127.0.0.1".to_owned(),
                port: 0,
                interface: "lo".to_owned(),
            };
            let config = base.join("input/config/hyperparameters.json");
            fs::write(
                config,
                stokehold_jobs::contract::hyperparameters_json(&job, &instance).to_string(),
            )
            .unwrap();
            let mut command = Command::new(&python);
            command
                .args(["-c", TOOLKIT])
                .env("SAGEMAKER_BASE_DIR", &base)
                .env("TRAINING_JOB_NAME", &record.name);
            let answer = command.output().unwrap();
            assert!(
                answer.status.success(),
                "{}",
                String::from_utf8_lossy(&answer.stderr)
            );
            let (mut theirs, args): (BTreeMap<String, String>, Vec<String>) = serde_json::from_slice(
                answer
                    .stdout
                    .split(|b| *b == b'\n')
                    .rfind(|line| !line.is_empty())
                    .unwrap(),
            )
            .unwrap();
            let mut ours = stokehold_jobs::contract::variables(&job, &instance);
            // The machine's: the toolkit counts all cores, and an instance has its share.
            for name in ["SM_NUM_CPUS", "SM_NUM_GPUS"] {
                assert!(ours.remove(name).is_some() && theirs.remove(name).is_some());
            }
            let environment = |all: &mut BTreeMap<String, String>| {
                let mut value: Value = serde_json::from_str(&all.remove("SM_TRAINING_ENV").unwrap()).unwrap();
                let map = value.as_object_mut().unwrap();
                map.retain(|name, _| name != "num_cpus" && name != "num_gpus");
                value
            };
            assert_eq!(environment(&mut ours), environment(&mut theirs));
            assert_eq!(ours, theirs);
            assert_eq!(
                stokehold_jobs::contract::arguments(&stokehold_jobs::contract::hyperparameters(&job)),
                args
            );
        }
    }
}

#[test]
fn command_lines_are_those_of_the_reference() {
    let bench = Bench::new();
    let command = |entry: &str, distribution, instances, rank| {
        let mut job = bench.job("train.py", "");
        job.entry_point = stokehold_jobs::EntryPoint::parse(entry).unwrap();
        job.hyperparameters.insert("lr".to_owned(), json!(1));
        job.distribution = distribution;
        job.instances = instances;
        let instance = stokehold_jobs::contract::Instance {
            job: "j".to_owned(),
            rank,
            base: "/b".into(),
            cpus: 2,
            gpus: 2,
            address: "127.0.0.1".to_owned(),
            port: 7777,
            interface: "lo".to_owned(),
        };
        stokehold_jobs::contract::command(&job, &instance).map(|words| words.join(" "))
    };
    use Distribution::{Mpi, None as Alone, Torch};
    for (entry, distribution, instances, rank, wanted) in [
        ("train.py", Alone, 1, 0, "python3 train.py --lr 1"),
        ("module:a.b", Alone, 1, 0, "python3 -m a.b --lr 1"),
        (
            "run.sh",
            Alone,
            1,
            0,
            "/bin/sh -c exec \"$0\" \"$@\" ./run.sh --lr 1",
        ),
        ("bin/x", Alone, 1, 0, "./bin/x --lr 1"),
        (
            "train.py",
            Torch,
            1,
            0,
            "python3 -m torch.distributed.run --nnodes 1 --nproc_per_node 2 train.py --lr 1",
        ),
        (
            "train.py",
            Torch,
            3,
            2,
            "python3 -m torch.distributed.run --nnodes 3 --nproc_per_node 2 --master_addr 127.0.0.1 --master_port 7777 \
             --node_rank 2 train.py --lr 1",
        ),
        (
            "train.py",
            Mpi,
            2,
            0,
            "mpirun --allow-run-as-root --host localhost:4 -np 4 python3 train.py --lr 1",
        ),
    ] {
        assert_eq!(
            command(entry, distribution, instances, rank).as_deref(),
            Some(wanted)
        );
    }
    assert_eq!(command("train.py", Mpi, 2, 1), None);
}
