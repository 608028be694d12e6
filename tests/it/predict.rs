//! `stokehold predict` and `stokehold evaluate`: rows, pages, messages and exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
#[cfg(feature = "full")]
use stokehold_s3_server::Server;
use tempfile::TempDir;

fn hostile(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile").join(name)).unwrap()
}

/// Exit code, standard output and standard error.
fn stokehold(dir: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(words).current_dir(dir).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A folder with a data set of the classes a and b, and a run on it, runs/x.
fn trained() -> TempDir {
    let dir = TempDir::new().unwrap();
    for part in ["train", "val"] {
        for (class, names) in [
            ("a", ["small.jpg", "grey.jpg"]),
            ("b", ["small.webp", "cmyk.jpg"]),
        ] {
            let folder = dir.path().join("data").join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for name in names {
                fs::write(folder.join(name), hostile(name)).unwrap();
            }
        }
    }
    let words =
        "train data --name x --epochs 1 --image-size 32 --batch-size 2 --ceiling-batches 0 --device cpu";
    let (code, _, said) = stokehold(dir.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{said}");
    dir
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_run_predicts_files_and_folders_in_their_order() {
    let dir = trained();
    let arguments = ["data/val/b", "data/val/a/small.jpg", "data/val/a"];
    let predict = |more: &[&str]| {
        let words = [&["predict", "runs/x", "--device", "cpu"], &arguments[..], more].concat();
        let (code, out, said) = stokehold(dir.path(), &words);
        assert_eq!(code, Some(0), "{said}");
        out
    };
    let rows = lines(&predict(&["--format", "json", "--batch-size", "2"]));
    let paths: Vec<&str> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    let expected = [
        "b/cmyk.jpg",
        "b/small.webp",
        "a/small.jpg",
        "a/grey.jpg",
        "a/small.jpg",
    ];
    assert_eq!(paths, expected.map(|path| format!("data/val/{path}")));
    for row in &rows {
        // Five are asked for, and there are two classes.
        let predictions = row["predictions"].as_array().unwrap();
        let number = |at: usize| predictions[at]["probability"].as_f64().unwrap();
        assert_eq!(predictions.len(), 2);
        assert!(
            number(0) >= number(1) && (number(0) + number(1) - 1.0).abs() < 1e-9,
            "{row}"
        );
    }
    assert_eq!(rows[2]["predictions"], rows[4]["predictions"]);

    let csv = predict(&["--format", "csv", "--topk", "1"]);
    assert!(
        csv.starts_with("path,reason,class1,probability1\ndata/val/b/cmyk.jpg,,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 6);
    let table = predict(&["--topk", "1"]);
    let first = rows[0]["predictions"][0]["class"].as_str().unwrap();
    let first = table.lines().next().unwrap().split_whitespace().nth(1) == Some(first);
    assert!(first && table.lines().count() == 5, "{table}");

    // Shards of the same images, and the checkpoint of the same epoch, say the same.
    let (code, _, said) = stokehold(dir.path(), &["prepare", "data/val", "shards"]);
    assert_eq!(code, Some(0), "{said}");
    let checkpoints: Vec<_> = fs::read_dir(dir.path().join("runs/x/checkpoints"))
        .unwrap()
        .collect();
    let checkpoint = checkpoints[0].as_ref().unwrap().path();
    let words = [
        "predict",
        checkpoint.to_str().unwrap(),
        "shards",
        "--format",
        "json",
        "--device",
        "cpu",
    ];
    let (code, out, said) = stokehold(dir.path(), &words);
    assert_eq!(code, Some(0), "{said}");
    let top = |row: &Value| row["predictions"][0].clone();
    let shards: Vec<Value> = lines(&out).iter().map(top).collect();
    assert_eq!(shards, [3, 4, 0, 1].map(|at| top(&rows[at])));
}

#[cfg(feature = "full")]
#[test]
fn objects_and_prefixes_of_buckets_are_predicted_like_files() {
    let dir = trained();
    let server = Server::start(dir.path()).unwrap();
    let predict = |images: &[&str]| {
        let words = [
            &["predict", "runs/x", "--device", "cpu", "--format", "json"],
            images,
        ]
        .concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
        let command = command
            .args(words)
            .current_dir(dir.path())
            .envs(server.settings());
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        let rows = lines(&String::from_utf8(stdout).unwrap());
        let predictions: Vec<_> = rows.iter().map(|row| row["predictions"].clone()).collect();
        (status.code(), predictions, String::from_utf8(stderr).unwrap())
    };
    let (code, files, said) = predict(&["data/val/a/small.jpg", "data/val/b"]);
    assert_eq!((code, files.len()), (Some(0), 3), "{said}");
    let (code, objects, said) = predict(&["s3://data/val/a/small.jpg", "s3://data/val/b"]);
    assert_eq!((code, objects), (Some(0), files), "{said}");
    let (code, _, said) = predict(&["s3://data/val/a/typo.jpg"]);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn an_image_that_cannot_be_decoded_is_a_row_with_the_reason() {
    let dir = trained();
    for name in ["truncated.jpg", "text.jpg"] {
        fs::write(dir.path().join("data/val/a").join(name), hostile(name)).unwrap();
    }
    let words = [
        "predict", "runs/x", "data/val", "--format", "json", "--device", "cpu",
    ];
    let (code, out, said) = stokehold(dir.path(), &words);
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "no prediction of 2 of 6 images\n")
    );
    let rows = lines(&out);
    let bad: Vec<&Value> = rows.iter().filter(|row| row["reason"].is_string()).collect();
    let paths: Vec<&Value> = bad.iter().map(|row| &row["path"]).collect();
    assert_eq!(paths, ["data/val/a/text.jpg", "data/val/a/truncated.jpg"]);
    assert!(
        rows.len() == 6 && bad[1]["reason"].as_str().unwrap().contains("truncated"),
        "{out}"
    );

    let words = ["predict", "runs/x", "data/val/a/text.jpg", "--device", "cpu"];
    let (code, out, said) = stokehold(dir.path(), &words);
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "no prediction of 1 of 1 image\n")
    );
    assert!(
        out.starts_with("data/val/a/text.jpg  error: not an image"),
        "{out}"
    );

    let words = ["evaluate", "runs/x", "data", "--device", "cpu"];
    let (code, out, said) = stokehold(dir.path(), &words);
    assert_eq!(code, Some(1));
    assert!(out.contains("over 4 images"), "{out}");
    assert!(
        said.contains("bad image: data/val/a/text.jpg: not an image"),
        "{said}"
    );
    assert!(
        said.ends_with("2 of 6 images could not be read or decoded\n"),
        "{said}"
    );
}

#[test]
fn an_evaluation_says_what_training_said_and_makes_a_page() {
    let dir = trained();
    let words = [
        "evaluate", "runs/x", "data", "--out", "new/out", "--device", "cpu",
    ];
    let (code, out, said) = stokehold(dir.path(), &words);
    assert_eq!(code, Some(0), "{said}");
    let read = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap();
    let evaluation: Value = serde_json::from_str(&read("new/out/evaluation.json")).unwrap();
    let summary: Value = serde_json::from_str(&read("runs/x/summary.json")).unwrap();
    let validation = &summary["validation"];
    assert_eq!(evaluation["top1"], validation["top1"], "{summary}");
    let loss = |of: &Value| of["loss"].as_f64().unwrap();
    assert!(
        (loss(&evaluation) - loss(validation)).abs() < 1e-4 * (1.0 + loss(validation)),
        "{out}"
    );
    assert!(
        out.contains(&format!("loss {:.4}  over 4 images", loss(&evaluation))),
        "{out}"
    );

    let page = read("new/out/evaluation.html");
    let wrong = evaluation["worst"].as_array().unwrap().len();
    assert_eq!(wrong as u64, 4 - evaluation["right"].as_u64().unwrap());
    assert_eq!(page.matches("src=\"data:image/jpeg;base64,").count(), wrong);
    assert!(
        page.contains("Confusion matrix") && !page.contains("http"),
        "no page for itself"
    );

    // The same images as class folders, and with the validation images alone.
    for data in ["data/val", "only"] {
        if data == "only" {
            fs::create_dir(dir.path().join("only")).unwrap();
            fs::rename(dir.path().join("data/val"), dir.path().join("only/val")).unwrap();
        }
        let (code, again, said) = stokehold(dir.path(), &["evaluate", "runs/x", data, "--device", "cpu"]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(again.lines().next(), out.lines().next());
    }
    let (code, _, said) = stokehold(dir.path(), &["evaluate", "runs/x", "data"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("there is train/ and no val/; give --val-split"),
        "{said}"
    );
}

/// A PNG of 40x30: of two colours, or of two classes of CamVid and one that is none.
fn half(number: u8, mask: bool) -> Vec<u8> {
    let (mut bytes, mut data) = (Vec::new(), Vec::new());
    for at in 0..40 * 30 {
        let left = at % 40 < 12 + usize::from(number);
        match (mask, left) {
            (true, true) if at < 80 => data.push(11),
            (true, left) => data.push(if left { 3 } else { 0 }),
            (false, true) => data.extend([220, 90, 10 * number]),
            (false, false) => data.extend([20, 40, 200 + number]),
        }
    }
    let mut encoder = png::Encoder::new(&mut bytes, 40, 30);
    encoder.set_color(if mask {
        png::ColorType::Grayscale
    } else {
        png::ColorType::Rgb
    });
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

#[test]
fn a_segmenter_is_trained_evaluated_and_writes_masks() {
    let dir = TempDir::new().unwrap();
    for (folder, mask) in [
        ("train", false),
        ("trainannot", true),
        ("val", false),
        ("valannot", true),
    ] {
        fs::create_dir_all(dir.path().join("data").join(folder)).unwrap();
        for number in 0..4 {
            let file = dir.path().join(format!("data/{folder}/{number}.png"));
            fs::write(file, half(number, mask)).unwrap();
        }
    }
    let train = "train data --model fcn-resnet18 --name x --epochs 1 --image-size 32x48 --batch-size 2 --ceiling-batches 0 \
                 --class-weights balanced --device cpu";
    let run = |words: &str| stokehold(dir.path(), &words.split_whitespace().collect::<Vec<_>>());
    let (code, out, said) = run(train);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        out.contains("mIoU") && said.contains("pixel accuracy"),
        "{out}{said}"
    );

    let (code, out, said) = run("evaluate runs/x data --out evaluation --device cpu");
    assert_eq!(code, Some(0), "{said}");
    let read = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap();
    let evaluation: Value = serde_json::from_str(&read("evaluation/evaluation.json")).unwrap();
    let summary: Value = serde_json::from_str(&read("runs/x/summary.json")).unwrap();
    assert_eq!(evaluation["miou"], summary["validation"]["miou"], "{out}");
    assert!(out.contains("over 4 images") && out.contains("pavement"), "{out}");
    let page = read("evaluation/evaluation.html");
    assert_eq!(page.matches("src=\"data:image/jpeg;base64,").count(), 4);
    assert!(
        page.contains("Confusion matrix") && !page.contains("http"),
        "no page for itself"
    );

    let (code, out, said) = run("prepare data shards");
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("8 images with masks of 11 classes"), "{out}");
    let (code, _, said) = run("evaluate runs/x shards --out of-shards --device cpu");
    assert_eq!(code, Some(0), "{said}");
    let of_shards: Value = serde_json::from_str(&read("of-shards/evaluation.json")).unwrap();
    for key in ["miou", "loss", "confusion", "pixels"] {
        assert_eq!(of_shards[key], evaluation[key], "{key}");
    }
    for data in ["data", "shards"] {
        let (code, _, said) = run(&format!(
            "compare {data} --trials per-op,fused --images-per-second 100000 --models resnet18 --loads 0 --image-size 32 \
             --batch-size 2 --workers 1 --round 0.05 --time-limit 0.5 --out compared-{data}"
        ));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("load the images with their masks"), "{said}");
    }
    let (code, _, said) = run("compare data --trials per-op,fused --trainer burn --out refused");
    assert!(
        code == Some(2) && said.contains("choose an emulated accelerator"),
        "{said}"
    );

    let (code, out, said) = run("predict runs/x data/val --out masks --format json --device cpu");
    assert_eq!(code, Some(0), "{said}");
    for line in lines(&out) {
        let shares = line["predictions"].as_array().unwrap().iter();
        let sum: f64 = shares.map(|one| one["probability"].as_f64().unwrap()).sum();
        assert!(sum > 0.0 && sum <= 1.0 + 1e-9, "{line}");
    }
    for number in 0..4 {
        let file = fs::File::open(dir.path().join(format!("masks/{number}.png"))).unwrap();
        let mut reader = png::Decoder::new(std::io::BufReader::new(file))
            .read_info()
            .unwrap();
        let mut classes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut classes).unwrap();
        assert_eq!(
            (info.width, info.height, info.color_type),
            (48, 32, png::ColorType::Indexed)
        );
        assert!(classes.iter().all(|&class| class < 11), "{classes:?}");
    }

    // Folders stay, so that images of one name in two folders have two masks.
    let (code, _, said) = run("predict runs/x data/val data/train --out both");
    assert_eq!(code, Some(0), "{said}");
    for part in ["val", "train"] {
        assert!(
            dir.path().join("both").join(part).join("0.png").exists(),
            "{part}"
        );
    }
    fs::create_dir(dir.path().join("twins")).unwrap();
    for name in ["0.png", "0.jpg"] {
        fs::copy(
            dir.path().join("data/val/0.png"),
            dir.path().join("twins").join(name),
        )
        .unwrap();
    }
    for (words, part) in [
        ("predict runs/x data/val", "--out DIR"),
        (
            "predict runs/x twins --out masks",
            "twins/0.jpg and twins/0.png would both become masks/0.png",
        ),
        #[cfg(feature = "full")]
        ("transform runs/x data/val out", "is a segmenter"),
        ("evaluate runs/x data --topk 3", "--topk is for classifiers"),
        (
            "train data --name y",
            "data/train has pairs of images and masks, and resnet18 classifies images",
        ),
        (
            "train data --model fcn-resnet18 --name y --topk 3",
            "--topk is for classifiers",
        ),
        (
            "train data --model fcn-resnet18 --name y --eval-resize 40",
            "--eval-resize is for classifiers",
        ),
        (
            "train data --model fcn-resnet18 --name y --mixup-alpha 0.2",
            "MixUp and CutMix",
        ),
        (
            "train data --model fcn-resnet18 --name y --label-smoothing 0.1",
            "label smoothing",
        ),
        (
            "train data --model fcn-resnet18 --name y --class-balanced",
            "class-balanced",
        ),
        (
            "train data --model fcn-resnet18 --name y --class-weights 1,2",
            "have 11 classes",
        ),
        (
            "train data --model fcn-resnet18 --name y --trainer emulated --images-per-second 9",
            "emulated accelerator",
        ),
        (
            "train data --model resnet18 --name y --image-size 32x48",
            "32x48 is for",
        ),
    ] {
        let (code, _, said) = run(words);
        assert!(code == Some(2) && said.contains(part), "{words}: {code:?} {said}");
    }
}

#[test]
fn an_evaluation_of_training_images_says_so() {
    let dir = TempDir::new().unwrap();
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let (code, _, said) = stokehold(dir.path(), &words);
        assert_eq!(code, Some(0), "{words:?}: {said}");
        said
    };
    run("dataset synth data --images 16 --classes 2 --val-split 0");
    let whole = dir.path().join("data/train");
    let cheap =
        "--epochs 1 --image-size 32 --batch-size 8 --freeze-backbone --ceiling-batches 0 --device cpu";
    run(&format!("train data --val-split 0.5 --seed 3 --name x {cheap}"));
    let overlap = |words: &str| {
        let said = run(&format!("evaluate runs/x {words} --device cpu"));
        said.lines()
            .find(|line| line.contains("was trained on"))
            .map(str::to_owned)
    };
    // The run's own seed is taken.
    assert_eq!(overlap("data --val-split 0.5"), None);
    let other = overlap("data --val-split 0.5 --seed 4").unwrap();
    assert!(
        other.contains("these 8 images") && other.contains("--val-split 0.5 --seed 3"),
        "{other}"
    );
    let all = overlap("data --split train").unwrap();
    assert!(
        all.contains("was trained on 8 of these 16 images, whose scores say little about new images"),
        "{all}"
    );
    // Links to the files, and copies of them.
    fs::create_dir(dir.path().join("links")).unwrap();
    for class in fs::read_dir(&whole).unwrap() {
        let class = class.unwrap();
        std::os::unix::fs::symlink(class.path(), dir.path().join("links").join(class.file_name())).unwrap();
    }
    assert!(overlap("links").unwrap().contains("was trained on 8 of these 16"));
    let copied = Command::new("cp")
        .arg("-r")
        .arg(&whole)
        .arg(dir.path().join("copies"))
        .status();
    assert!(copied.unwrap().success());
    let copies = overlap("copies").unwrap();
    assert!(
        copies.contains("was trained on 8 of these 16 images (copies of them"),
        "{copies}"
    );
    // Another folder next to train.
    run("dataset synth new --images 8 --classes 2 --val-split 0 --seed 9");
    fs::rename(dir.path().join("new/train"), dir.path().join("data/test")).unwrap();
    assert_eq!(overlap("data --split test"), None);
    let words = ["evaluate", "runs/x", "data", "--split", "dev", "--device", "cpu"];
    let (code, _, said) = stokehold(dir.path(), &words);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("data: it has no split dev: there is no folder data/dev"),
        "{said}"
    );
}

#[test]
fn wrong_input_is_refused_by_name() {
    let dir = trained();
    fs::write(
        dir.path().join("bad.safetensors"),
        hostile("metadata.safetensors"),
    )
    .unwrap();
    fs::write(dir.path().join("classes.txt"), "a\nc\n").unwrap();
    fs::create_dir_all(dir.path().join("other/c")).unwrap();
    fs::write(dir.path().join("other/c/x.jpg"), hostile("small.jpg")).unwrap();
    let cases: [(&str, &[&str]); 9] = [
        (
            "predict bad.safetensors data",
            &["bad.safetensors", "the metadata's pipeline: "],
        ),
        ("predict runs/x nothing.jpg", &["nothing.jpg"]),
        (
            "predict runs/x /dev/null",
            &["/dev/null: neither a file nor a folder"],
        ),
        ("predict nothing data", &["nothing"]),
        (
            "predict data/val/a/small.jpg data",
            &["small.jpg is not a file of weights"],
        ),
        (
            "predict runs/x data --arch resnet50",
            &["is resnet18, and resnet50 is given"],
        ),
        (
            "predict runs/x data --classes classes.txt",
            &["is 'b', and 'c' is given"],
        ),
        ("predict runs/x data --batch-size 0", &["batch"]),
        (
            "evaluate runs/x other",
            &["only in the data: c; only in the model: a, b"],
        ),
    ];
    for (words, parts) in cases {
        let (code, out, said) = stokehold(dir.path(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{words}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{words}: {said}");
        assert!(
            said.starts_with("error: ") && said.len() < 2000,
            "{words}: {said}"
        );
    }
}
