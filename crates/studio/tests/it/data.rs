//! Folders of images, and the workbench.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stokehold_studio::{Options, Studio, StudioError};
use stokehold_synth::{SynthOptions, generate};
use tempfile::TempDir;

use crate::{Running, within};

/// A name with markup, for a class and a file.
pub const HOSTILE: &str = "<img src=x onerror=window.hacked=1>";

/// A folder `data` with a data set of 12 photos and a broken file, next to a plain folder.
pub fn photos() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = SynthOptions {
        images: 12,
        classes: 2,
        ..SynthOptions::default()
    };
    generate(data.join("flowers"), &options, &mut |_, _| {}).unwrap();
    let broken = data.join("flowers/train").join(HOSTILE);
    fs::create_dir_all(&broken).unwrap();
    fs::write(
        broken.join(format!("{HOSTILE}.jpg")),
        "<script>window.hacked=1</script>",
    )
    .unwrap();
    fs::create_dir_all(data.join("notes")).unwrap();
    (dir, data)
}

pub fn options(data: &Path, read_only: bool) -> Options {
    Options {
        jobs: None,
        runs: Vec::new(),
        data: vec![data.to_owned()],
        program: None,
        listen: "127.0.0.1:0".to_owned(),
        read_only,
        tls: None,
        host: None,
    }
}

/// A PNG that says it has so many pixels, and has none.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, width, height);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::IDAT, &[0x78, 0x9c]).unwrap();
    drop(writer);
    file
}

#[test]
fn a_data_set_is_shown_with_its_broken_files() {
    let (_dir, data) = photos();
    let studio = Running::of(options(&data, false));
    let top = studio.get("/api/data?key=data").json();
    assert_eq!(top["folders"], json!(["flowers", "notes"]));
    assert!(top["set"].is_null() && top["problem"].is_string(), "{top}");
    let about = studio.get("/api/data?key=data/flowers").json();
    let set = &about["set"];
    assert_eq!(
        (&set["class_count"], &set["kind"]),
        (&json!(3), &json!("folders of classes")),
        "{about}"
    );
    assert_eq!(set["classes"][0], json!([HOSTILE, 1, 0]), "{about}");
    let page = studio
        .get("/api/data/samples?key=data/flowers&part=train&from=1&count=4")
        .json();
    assert_eq!(
        (&page["total"], page["rows"].as_array().unwrap().len()),
        (&set["train"], 4)
    );
    let of_class = studio.get("/api/data/samples?key=data/flowers&class=0").json();
    assert_eq!(of_class["total"], 1, "{of_class}");
    // Pictures, which the browser keeps; and why there is none.
    let shown = studio.get("/api/data/picture?key=data/flowers&part=train&sample=1");
    assert_eq!(
        (shown.status, shown.header("content-type")),
        (200, Some("image/jpeg")),
        "{}",
        shown.head
    );
    assert!(shown.header("cache-control").unwrap().contains("immutable"));
    let broken = studio.get("/api/data/picture?key=data/flowers&part=train&sample=0");
    assert!(
        broken.json()["broken"].as_str().unwrap().contains("not an image"),
        "{broken:?}"
    );
    for path in [
        "part=val&sample=99",
        "part=none",
        "part=train&sample=-1",
        "sample=99999999999999999999",
    ] {
        let answer = studio.get(&format!("/api/data/picture?key=data/flowers&{path}"));
        assert!(matches!(answer.status, 400 | 404), "{path} {answer:?}");
    }
    // Every file.
    assert_eq!(
        studio.get("/api/data/examine?key=data/flowers").json(),
        Value::Null
    );
    assert_eq!(
        studio
            .post("/api/data/examine", "{\"key\":\"data/flowers\"}")
            .status,
        200
    );
    let report = within("it is examined", || {
        let now = studio.get("/api/data/examine?key=data/flowers").json();
        (now["running"] == false).then_some(now["report"].clone())
    });
    assert_eq!(
        (&report["images"], &report["broken_count"]),
        (&json!(13), &json!(1)),
        "{report}"
    );
    assert!(
        report["broken"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("not an image"),
        "{report}"
    );
    let actions = studio.actions();
    assert!(actions[0].ends_with("examine data/flowers: begun"), "{actions:?}");
    drop(studio);
    let studio = Running::of(options(&data, true));
    assert_eq!(
        studio
            .post("/api/data/examine", "{\"key\":\"data/flowers\"}")
            .status,
        403
    );
    assert_eq!(
        studio.get("/api/data?key=data/flowers").json()["can_examine"],
        false
    );
}

#[test]
fn nothing_outside_of_the_data_folders_is_shown() {
    let (dir, data) = photos();
    fs::create_dir_all(dir.path().join("secret/class")).unwrap();
    fs::copy(
        fs::read_dir(data.join("flowers/train/ring-striped"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path(),
        dir.path().join("secret/class/1.jpg"),
    )
    .unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), data.join("away")).unwrap();
    let studio = Running::of(options(&data, false));
    for (key, status) in [
        ("data/../secret", 404),
        ("data//etc", 404),
        ("data/flowers/../../secret", 404),
        ("data/%2e%2e/secret", 404),
        ("data%00", 404),
        ("none", 404),
        ("data/away", 403),
    ] {
        for path in ["data", "data/samples", "data/picture"] {
            let answer = studio.get(&format!("/api/{path}?key={key}&part=train&sample=0"));
            assert_eq!(answer.status, status, "{path} {key} {answer:?}");
        }
    }
    let mut twice = options(&data, false);
    twice.data.push(data.join("."));
    assert!(matches!(Studio::bind(twice), Err(StudioError::Twice { .. })));
    let none = options(&dir.path().join("none"), false);
    assert!(matches!(Studio::bind(none), Err(StudioError::Folder { .. })));
}

fn drawn(studio: &Running, body: &Value) -> Value {
    let answer = studio.post("/api/workbench/draw", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn the_workbench_compares_the_executors_and_refuses_what_would_take_long() {
    let (_dir, data) = photos();
    let train = data.join("flowers/train/ring-striped");
    fs::write(train.join("zz-huge.png"), png_of(12_000, 12_000)).unwrap();
    let studio = Running::of(options(&data, true));
    let known = studio.get("/api/workbench").json();
    assert_eq!(
        known["presets"]["imagenet-train"][0],
        json!({"type": "RandomResizedCrop", "size": 224}),
        "{known}"
    );
    let ops = json!([{"type": "RandomResizedCrop", "size": [48, 64]}, {"type": "RandomHorizontalFlip"}, {"type": "ToFloat"}, {"type": "Normalize"}]);
    let body = json!({"key": "data/flowers", "part": "train", "sample": 1, "op": ops, "seed": 3, "draws": 2});
    let answer = drawn(&studio, &body);
    let draws = answer["draws"].as_array().unwrap();
    assert_eq!((draws.len(), &answer["size"]), (2, &json!([64, 48])), "{answer}");
    for one in draws {
        // SEMANTICS.md has the bounds; here it only has to be the same picture.
        let (max, mean) = (one["max"].as_f64().unwrap(), one["mean"].as_f64().unwrap());
        assert!(mean < 2.0 && mean <= max && max < 64.0, "{max} {mean}");
        assert!(
            one["fused_ms"][0].as_f64().unwrap() > 0.0 && one["plan"].as_str().unwrap().contains("decode")
        );
    }
    assert_ne!(draws[0]["fused"], draws[1]["fused"]);
    assert_eq!(drawn(&studio, &body)["draws"][0]["per_op"], draws[0]["per_op"]);
    assert!(
        answer["toml"]
            .as_str()
            .unwrap()
            .contains("[[op]]\ntype = \"RandomHorizontalFlip\""),
        "{answer}"
    );
    assert!(answer["python"].as_str().unwrap().contains("T.ToTensor()"));
    // What is wrong with operations is said, and what can be written is still there.
    let with = |op: Value, more: Value| {
        let mut body = body.clone();
        body["op"] = op;
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    for (op, more, said) in [
        (json!([{"type": "RandomCrop", "size": 4}]), json!({}), "ToFloat"),
        (
            json!([{"type": "RandomHorizontalFlip", "p": 2.0}, {"type": "Resize", "size": [8, 8]}, {"type": "ToFloat"}]),
            json!({}),
            "allowed: 0 to 1",
        ),
        (
            json!([{"type": "Resize", "size": [4096, 4096]}, {"type": "ToFloat"}]),
            json!({}),
            "more than the workbench shows",
        ),
        (
            json!([{"type": "Resize", "size": [8000, 8000]}, {"type": "Resize", "size": [8, 8]}, {"type": "ToFloat"}]),
            json!({}),
            "8000 x 8000",
        ),
        (
            json!([{"type": "Repeat", "times": 9000, "op": [{"type": "RandomRotation", "degrees": 5.0}]}, {"type": "Resize", "size": [8, 8]}, {"type": "ToFloat"}]),
            json!({}),
            "9002 steps",
        ),
        (ops.clone(), json!({"sample": 0}), "not an image"),
    ] {
        let answer = drawn(&studio, &with(op, more));
        let problem = answer["problem"].as_str().unwrap_or_default();
        assert!(problem.contains(said), "{said}: {answer}");
    }
    let unknown = with(json!([{"type": "Sharpen"}]), json!({})).to_string();
    let answer = studio.post("/api/workbench/draw", &unknown);
    assert!(
        answer.status == 422 && answer.body.contains("Sharpen"),
        "{answer:?}"
    );
    // A huge image is not decoded.
    let page = studio
        .get("/api/data/samples?key=data/flowers&part=train&count=100")
        .json();
    let rows = page["rows"].as_array().unwrap();
    let huge = rows
        .iter()
        .find(|row| row["name"].as_str().unwrap().ends_with("zz-huge.png"))
        .unwrap();
    let answer = drawn(&studio, &with(ops, json!({"sample": huge["sample"]})));
    assert!(
        answer["problem"].as_str().unwrap().contains("12000 x 12000"),
        "{answer}"
    );
    let picture = studio.get(&format!(
        "/api/data/picture?key=data/flowers&part=train&sample={}",
        huge["sample"]
    ));
    assert!(
        picture.json()["broken"]
            .as_str()
            .unwrap()
            .contains("12000 x 12000"),
        "{picture:?}"
    );
}
