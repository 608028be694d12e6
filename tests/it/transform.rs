//! `stokehold transform`: outputs, workers, crashes, scripts, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_s3_server::Server;
use stokehold_untested::needs;
use tempfile::TempDir;

/// A folder with a run of two classes, runs/x, and with images.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new(images: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let bench = Self { dir };
        for place in ["data/train/a", "data/train/b", "photos/more"] {
            fs::create_dir_all(bench.path(place)).unwrap();
        }
        for place in ["data/train/a/1.jpg", "data/train/b/2.jpg"] {
            fs::write(bench.path(place), hostile("small.jpg")).unwrap();
        }
        let words =
            "train data --name x --epochs 1 --image-size 32 --batch-size 2 --ceiling-batches 0 --device cpu";
        let (code, said) = bench.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{said}");
        for number in 0..images {
            let kind = ["small.jpg", "grey.jpg", "cmyk.jpg"][number % 3];
            fs::write(bench.path(&format!("photos/more/{number:03}.jpg")), hostile(kind)).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        command.args(words).current_dir(self.dir.path());
        command
    }

    /// Exit code, and standard error.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(words).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    /// `stokehold transform runs/x`, with small parts.
    fn transform(&self, words: &[&str]) -> (Option<i32>, String) {
        self.run(&[&["transform", "runs/x"], words, &SMALL].concat())
    }

    /// Every output, by its name.
    fn outputs(&self, folder: &str) -> BTreeMap<String, String> {
        let mut outputs = BTreeMap::new();
        read(&self.path(folder), "", &mut outputs);
        outputs
    }
}

/// Parts of 32 images.
const SMALL: [&str; 4] = ["--batch-size", "2", "--device", "cpu"];

fn hostile(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile").join(name)).unwrap()
}

fn read(folder: &Path, below: &str, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_file() {
            into.insert(name, fs::read_to_string(entry.path()).unwrap());
        } else if name != ".transform" {
            read(&entry.path(), &format!("{name}/"), into);
        }
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_image_has_an_output_and_a_bad_one_a_reason() {
    let bench = Bench::new(40);
    fs::write(bench.path("photos/broken.jpg"), hostile("text.jpg")).unwrap();
    let (code, said) = bench.transform(&["photos", "out", "--topk", "1"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "41 records in out, 1 with an error\n")
    );
    let outputs = bench.outputs("out");
    assert_eq!(outputs.len(), 41);
    let of = |name: &str| lines(&outputs[name]).remove(0);
    assert!(
        of("broken.jpg.out")["error"]
            .as_str()
            .unwrap()
            .contains("not an image"),
        "{outputs:?}"
    );
    // The same as `predict` says.
    let words = [
        "predict",
        "runs/x",
        "photos/more",
        "--topk",
        "1",
        "--format",
        "json",
        "--batch-size",
        "2",
    ];
    let predicted = bench.command(&words).output().unwrap();
    for row in lines(std::str::from_utf8(&predicted.stdout).unwrap()) {
        let name = row["path"].as_str().unwrap().strip_prefix("photos/").unwrap();
        assert_eq!(
            of(&format!("{name}.out")),
            json!({"predictions": row["predictions"]})
        );
    }

    // One output, joined; a part ends in the middle of it.
    let (code, said) = bench.transform(&["photos", "all", "--assemble", "--join", "input"]);
    assert_eq!(code, Some(1), "{said}");
    let all = bench.outputs("all");
    let rows = lines(&all["photos.out"]);
    assert_eq!((all.len(), rows.len()), (1, 41));
    assert_eq!(rows[0]["image"], "broken.jpg");
    assert!(rows[0]["SageMakerOutput"]["error"].is_string());
    assert_eq!(rows[1]["image"], "more/000.jpg");
    let class = |output: &Value| output["predictions"][0]["class"].clone();
    assert_eq!(class(&rows[1]["SageMakerOutput"]), class(&of("more/000.jpg.out")));
    let (code, said) = bench.transform(&["photos", "all", "--assemble"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("this is the work of another transform: join is"),
        "{said}"
    );

    // The same command has nothing to do, and says the same.
    let (code, said) = bench.transform(&["photos", "out", "--topk", "1"]);
    assert_eq!(code, Some(1));
    assert!(said.ends_with("41 records in out, 1 with an error\n"), "{said}");
}

/// Oracle: a transform that no one disturbs.
#[test]
fn killed_five_times_it_ends_with_the_same_bytes() {
    let bench = Bench::new(600);
    let words = |out| ["photos", out, "--assemble", "--join", "input"];
    let (code, said) = bench.transform(&words("whole"));
    assert_eq!(code, Some(0), "{said}");

    let parts = bench.path("out/.transform/parts");
    let done = || {
        let entries = fs::read_dir(&parts).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "done"))
            .count()
    };
    for kill in 1..=5 {
        let before = done();
        let words = [&["transform", "runs/x"], &words("out")[..], &SMALL].concat();
        let mut child = bench.command(&words).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while done() == before && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((1..19).contains(&done()), "kill {kill} at {} parts of 19", done());
    }
    let (code, said) = bench.transform(&words("out"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("continuing: "), "{said}");
    assert!(bench.outputs("out") == bench.outputs("whole"));
}

#[test]
fn workers_share_an_input_and_take_over_from_dead_ones() {
    let bench = Bench::new(300);
    let words = ["photos", "whole"];
    assert_eq!(bench.transform(&words).0, Some(0));
    let start = || {
        let words = [&["transform", "runs/x", "photos", "out"][..], &SMALL].concat();
        let mut command = bench.command(&words);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut workers: Vec<Child> = (0..3).map(|_| start()).collect();
    thread::sleep(Duration::from_millis(300));
    workers[0].kill().unwrap();
    for worker in workers.split_off(1) {
        let Output { status, stderr, .. } = worker.wait_with_output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(said.ends_with("300 records in out, 0 with an error\n"), "{said}");
    }
    workers[0].wait().unwrap();
    assert!(bench.outputs("out") == bench.outputs("whole"));

    // Shares: the last worker completes.
    let share = |worker| bench.transform(&["photos", "shares", "--assemble", "--worker", worker]);
    let (code, said) = share("2/2");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("140 records computed") && said.contains("5 parts of other workers to come"),
        "{said}"
    );
    assert!(bench.outputs("shares").is_empty());
    assert_eq!(
        share("1/2"),
        (
            Some(0),
            "continuing: 140 of 300 records are done\n300 records in shares, 0 with an error\n".to_owned()
        )
    );
    assert_eq!(lines(&bench.outputs("shares")["photos.out"]).len(), 300);
    let (code, said) = share("3/2");
    assert!(
        code == Some(2) && said.contains("the K-th of N workers"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let bench = Bench::new(1);
    fs::write(
        bench.path("lines.jsonl"),
        "{\"image\": \"photos/more/000.jpg\"}\n{\"image\": \"typo.jpg\"}\n",
    )
    .unwrap();
    fs::write(
        bench.path("wrong.json"),
        "[{\"prefix\": \"photos\"}, \"more/000.jpg\", \"typo.jpg\"]",
    )
    .unwrap();
    for (words, reason) in [
        (&["nowhere", "out"][..], "nowhere: No such file or directory"),
        (
            &["lines.jsonl", "out"],
            "lines.jsonl, line 2: typo.jpg: No such file or directory",
        ),
        (
            &["wrong.json", "out"],
            "wrong.json: item 3: photos/typo.jpg: No such file or directory",
        ),
        (&["photos", "s3://bucket/out"], "--work DIR"),
        (&["photos", "out", "--max-concurrent", "2"], "--script"),
        (
            &["photos", "out", "--script", "nowhere.py"],
            "nowhere.py: No such file or directory",
        ),
        (
            &["photos", "out", "--split", "line"],
            "photos: there is nothing to transform in it",
        ),
    ] {
        let (code, said) = bench.transform(words);
        assert!(
            code == Some(2) && said.contains(reason),
            "{words:?}: {code:?} {said}"
        );
        assert!(!bench.path("out").exists(), "{words:?}");
    }
    // Larger than the limit: an error of the record.
    fs::write(
        bench.path("photos/large.png"),
        [hostile("wide.png"), vec![0; 1 << 20]].concat(),
    )
    .unwrap();
    let (code, said) = bench.transform(&["photos", "out", "--max-payload", "1"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "2 records in out, 1 with an error\n")
    );
    let outputs = bench.outputs("out");
    assert!(
        outputs["large.png.out"].contains("are more than the 1048576"),
        "{outputs:?}"
    );
}

#[test]
fn a_file_that_the_transform_has_not_made_is_not_replaced() {
    let bench = Bench::new(40);
    fs::create_dir_all(bench.path("out/more")).unwrap();
    let taken = bench.path("out/more/007.jpg.out");
    fs::write(&taken, "mine").unwrap();
    let (code, said) = bench.transform(&["photos", "out"]);
    assert!(
        code == Some(2) && said.contains("is there already, and this transform has not made it"),
        "{code:?} {said}"
    );
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    fs::remove_file(&taken).unwrap();
    for _ in 0..2 {
        let (code, said) = bench.transform(&["photos", "out"]);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn what_is_no_image_is_not_quoted() {
    let bench = Bench::new(1);
    fs::write(bench.path("secret"), "root:x:0:0").unwrap();
    fs::write(bench.path("l.jsonl"), format!("{}\n", json!({"image": "secret"}))).unwrap();
    let (code, said) = bench.transform(&["l.jsonl", "out"]);
    assert_eq!(code, Some(1), "{said}");
    let outputs = bench.outputs("out");
    let row = &lines(&outputs["l.jsonl.out"])[0];
    let reason = row["error"].as_str().unwrap();
    assert!(
        reason.ends_with("not an image: the content is neither JPEG, PNG nor WebP"),
        "{reason}"
    );
}

#[test]
fn buckets_are_read_and_written() {
    let bench = Bench::new(40);
    fs::create_dir_all(bench.path("buckets/results")).unwrap();
    fs::rename(bench.path("photos"), bench.path("buckets/photos")).unwrap();
    let server = Server::start(bench.path("buckets").as_path()).unwrap();
    let names = [
        "s3://photos/more/000.jpg",
        "more/001.jpg",
        "s3://photos/more/typo.jpg",
    ];
    let text: String = names
        .iter()
        .map(|name| format!("{}\n", json!({"image": name, "id": 7})))
        .collect();
    fs::write(bench.path("buckets/photos/l.jsonl"), text).unwrap();
    let transform = |input: &str, output: &str, work: &str| {
        let words = [
            "transform",
            "runs/x",
            input,
            output,
            "--work",
            work,
            "--join",
            "input",
        ];
        let mut command = bench.command(&[&words[..], &SMALL].concat());
        let Output { status, stderr, .. } = command.envs(server.settings()).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, said) = transform("s3://photos", "s3://results/a", "work-a");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = transform("buckets/photos", "here", "work-b");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(bench.outputs("buckets/results/a"), bench.outputs("here"));
    let (code, said) = transform("s3://photos/l.jsonl", "s3://results/b", "work-c");
    assert_eq!(code, Some(1), "{said}");
    let rows = lines(&bench.outputs("buckets/results/b")["l.jsonl.out"]);
    assert_eq!(rows.len(), 3);
    assert!(rows[1]["SageMakerOutput"]["predictions"].is_array(), "{rows:?}");
    assert!(
        rows[2]["SageMakerOutput"]["error"]
            .as_str()
            .unwrap()
            .contains("NoSuchKey"),
        "{rows:?}"
    );
}

#[test]
fn a_script_predicts_what_the_loader_feeds_it() {
    let Some(python) = needs::torch() else { return };
    let bench = Bench::new(41);
    fs::create_dir(bench.path("model")).unwrap();
    fs::write(bench.path("model/scale"), "2").unwrap();
    let script = |text: &str| fs::write(bench.path("inference.py"), text).unwrap();
    let transform = |out: &str, more: &[&str]| {
        let python = python.to_str().unwrap();
        let words = [
            &[
                "transform",
                "model",
                "photos",
                out,
                "--script",
                "inference.py",
                "--python",
                python,
            ],
            more,
            &SMALL[..2],
        ];
        bench.run(&words.concat())
    };
    script(
        "import pathlib, torch\n\
         def model_fn(model_dir):\n    print('loading')\n    return float(pathlib.Path(model_dir, 'scale').read_text())\n\
         def predict_fn(data, model):\n    assert data.shape[1:] == (3, 224, 224) and data.dtype == torch.float32\n\
         \x20   return model * data.mean((1, 2, 3))\n",
    );
    let (code, said) = transform("one", &["--assemble"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "loading\n41 records in one, 0 with an error\n")
    );
    let (code, said) = transform("two", &["--assemble", "--max-concurrent", "2"]);
    assert_eq!(code, Some(0), "{said}");
    let one = bench.outputs("one");
    assert_eq!(one, bench.outputs("two"));
    let rows = lines(&one["photos.out"]);
    assert!(
        rows.len() == 41 && rows.iter().all(Value::is_f64) && rows[0] == rows[3] && rows[0] != rows[1],
        "{rows:?}"
    );

    for (text, code, reason) in [
        (
            "def predict_fn(data, model): pass",
            2,
            "inference.py: it has no model_fn(model_dir)",
        ),
        (
            "import nothing_of_this_name",
            1,
            "ModuleNotFoundError: No module named 'nothing_of_this_name'",
        ),
        (
            "model_fn = print\ndef predict_fn(data, model):\n    return data[:1]",
            1,
            "has to return one item for each of the 2 images, and returned 1 items",
        ),
        (
            "model_fn = print\ndef predict_fn(data, model):\n    import os; os._exit(3)",
            1,
            "ended with exit status: 3",
        ),
    ] {
        script(text);
        let (ended, said) = transform("wrong", &[]);
        assert!(ended == Some(code) && said.contains(reason), "{ended:?} {said}");
        let _ = fs::remove_dir_all(bench.path("wrong"));
    }
    script("def model_fn(d):\n    return lambda data: data[:, 0, 0, :1] / 0\n");
    let (code, said) = transform("nan", &["--assemble"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.ends_with("41 records in nan, 41 with an error\n"), "{said}");
}
