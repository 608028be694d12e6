//! docs/reference/operations.md is made of the code: names, texts and defaults of `op.rs`, and the ranges that the checks themselves state.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder};
use serde_json::{Value, json};
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner, decode};
use stokehold_synth::{SynthOptions, generate};

/// What has to be given to each operation, as an example that shows something. Everything else has a default.
fn examples() -> BTreeMap<&'static str, Value> {
    [
        ("RandomHorizontalFlip", json!({})),
        ("RandomVerticalFlip", json!({})),
        ("RandomRotation", json!({"degrees": 30.0})),
        ("RandomAffine", json!({"degrees": 30.0})),
        ("RandomPerspective", json!({})),
        ("RandomResizedCrop", json!({"size": 96})),
        ("Resize", json!({"size": 48})),
        ("CenterCrop", json!({"size": 64})),
        ("RandomCrop", json!({"size": 64})),
        ("RandomResize", json!({"min_size": 32, "max_size": 96})),
        ("RandomShortestSize", json!({"min_size": [32, 48, 64]})),
        ("ScaleJitter", json!({"target_size": [160, 120]})),
        ("Pad", json!({"padding": 12})),
        ("RandomZoomOut", json!({})),
        ("ColorJitter", json!({})),
        ("RandomPhotometricDistort", json!({})),
        ("RandomChannelPermutation", json!({})),
        ("Grayscale", json!({})),
        ("RandomGrayscale", json!({})),
        ("RandomInvert", json!({})),
        ("RandomPosterize", json!({"bits": 2})),
        ("RandomSolarize", json!({"threshold": 128.0})),
        ("RandomAutocontrast", json!({})),
        ("RandomEqualize", json!({})),
        ("RandomAdjustSharpness", json!({"sharpness_factor": 4.0})),
        ("AutoAugment", json!({})),
        ("RandAugment", json!({})),
        ("TrivialAugmentWide", json!({})),
        ("AugMix", json!({})),
        ("GaussianBlur", json!({"kernel_size": 9})),
        ("Dilation", json!({})),
        ("RandomErasing", json!({})),
        ("GaussianNoise", json!({})),
        ("ToFloat", json!({})),
        ("Normalize", json!({})),
        (
            "Repeat",
            json!({"times": 3, "op": [{"type": "RandomRotation", "degrees": 20.0}]}),
        ),
        (
            "RandomApply",
            json!({"op": [{"type": "GaussianBlur", "kernel_size": 9}, {"type": "RandomInvert", "p": 1.0}]}),
        ),
        (
            "RandomChoice",
            json!({"op": [{"type": "Grayscale"}, {"type": "RandomRotation", "degrees": 20.0}]}),
        ),
        (
            "RandomOrder",
            json!({"op": [{"type": "Pad", "padding": 12, "fill": 200}, {"type": "RandomRotation", "degrees": 20.0}]}),
        ),
    ]
    .into()
}

/// Options beyond the example with which the picture shows the operation.
fn shown(name: &str) -> Value {
    match name {
        "RandomApply"
        | "RandomHorizontalFlip"
        | "RandomVerticalFlip"
        | "RandomGrayscale"
        | "RandomInvert"
        | "RandomPosterize"
        | "RandomSolarize"
        | "RandomAutocontrast"
        | "RandomEqualize"
        | "RandomPhotometricDistort"
        | "RandomAdjustSharpness" => json!({"p": 1.0}),
        "RandomAffine" => json!({"translate": [0.1, 0.1], "scale": [0.7, 1.2], "shear": 20.0, "fill": 128}),
        "RandomPerspective" => json!({"p": 1.0, "fill": 128}),
        "RandomZoomOut" => json!({"p": 1.0, "fill": 128}),
        "AugMix" => json!({"severity": 10, "mixture_width": 1, "chain_depth": 3, "alpha": 9.0, "fill": 128}),
        "Pad" => json!({"padding_mode": "reflect"}),
        "ColorJitter" => json!({"brightness": 0.4, "contrast": 0.4, "saturation": 0.8, "hue": 0.3}),
        "GaussianBlur" => json!({"sigma": 2.0}),
        "RandomErasing" => json!({"p": 1.0, "value": "random"}),
        _ => json!({}),
    }
}

/// A documented name of the source: a variant or a field.
struct Item {
    name: String,
    of: String,
    text: String,
}

/// The items of the block that begins with `head` in `op.rs`.
fn items(head: &str) -> Vec<Item> {
    let source = include_str!("../../src/op.rs");
    let begin = source.find(head).unwrap_or_else(|| panic!("no {head}")) + head.len();
    let block = &source[begin..begin + source[begin..].find("\n}").unwrap()];
    let (mut found, mut text, mut renamed) = (Vec::new(), Vec::new(), None);
    for line in block.lines().map(str::trim) {
        if let Some(said) = line.strip_prefix("///") {
            text.push(said.trim().to_owned());
        } else if let Some(name) = line.strip_prefix("#[serde(rename = \"") {
            renamed = name.split('"').next().map(str::to_owned);
        } else if !line.is_empty() && !line.starts_with("#[") {
            let item = line.trim_end_matches(',').trim_start_matches("pub ");
            let (name, of) = item
                .split_once(": ")
                .or_else(|| item.strip_suffix(')')?.split_once('('))
                .unwrap_or((item, ""));
            found.push(Item {
                name: renamed.take().unwrap_or_else(|| name.to_owned()),
                of: of.to_owned(),
                text: text.join(" "),
            });
            text.clear();
        }
    }
    found
}

/// How a value of a type is written.
fn written(of: &str) -> &str {
    match of {
        "f64" => "number",
        "u32" | "i32" => "integer",
        "[u32; 2]" => "[width, height]",
        "Sides" => "integer or [integer, ..]",
        "bool" => "boolean",
        "[f64; 2]" => "[low, high]",
        "[f32; 3]" => "[red, green, blue]",
        "Span" => "number or [low, high]",
        "Size" => "integer or [height, width]",
        "Filter" => "nearest, box, bilinear, hamming, bicubic, lanczos",
        "Interpolation" => "nearest, bilinear, bicubic",
        "Fill" => "integer or [red, green, blue], 0 to 255",
        "Option<[f64; 2]>" => "[x, y]",
        "Option<u32>" => "integer",
        "Padding" | "Option<Padding>" => "integer, [x, y] or [left, top, right, bottom]",
        "PaddingMode" => "constant, edge, reflect, symmetric",
        "KernelSize" => "integer or [width, height]",
        "EraseValue" => "number, [red, green, blue] or random",
        "Policy" => "imagenet, cifar10, svhn",
        "Option<Shear>" => "number, [low, high] or [low, high, low, high]",
        "Vec<Op>" => "operations",
        "Option<Vec<f64>>" => "[number, ..]",
        other => panic!("how is a {other} written?"),
    }
}

fn with(name: &str, parts: &[&Value]) -> Value {
    let mut value = json!({"type": name});
    for part in parts {
        for (key, one) in part.as_object().unwrap() {
            value[key] = one.clone();
        }
    }
    value
}

/// What the check of a pipeline says is allowed, found by giving it what no parameter may be.
fn allowed(name: &str, example: &Value, field: &str) -> Option<String> {
    let wrong = [
        json!(-1e12),
        json!(1e12),
        json!(2),
        json!(4_000_000_000u32),
        json!([9.0, -9.0]),
        json!([0.0, 0.0, 0.0]),
        json!([1e12, 1e12]),
    ];
    wrong.into_iter().find_map(|value| {
        let end = r#"{"type": "Resize", "size": [8, 8]}, {"type": "ToFloat"}"#;
        let op = with(name, &[example, &json!({ field: value })]);
        let floats = ["RandomErasing", "GaussianNoise", "Normalize"].contains(&name);
        let text = match floats {
            true => format!(r#"{{"op": [{end}, {op}]}}"#),
            false => format!(r#"{{"op": [{op}, {end}]}}"#),
        };
        let error = match Pipeline::from_json(&text) {
            Err(error) => error,
            Ok(pipeline) => pipeline.check().err()?,
        };
        let said = error.to_string();
        said.split_once("allowed: ")
            .map(|(_, range)| range.split(';').next().unwrap_or(range).trim().to_owned())
    })
}

fn reference() -> String {
    let mut text = include_str!("operations.head.md").to_owned();
    let examples = examples();
    let variants = items("pub enum Op {");
    assert_eq!(variants.len(), examples.len(), "every operation has an example");
    for Item { name, of, text: said } in &variants {
        let example = &examples[name.as_str()];
        let whole = with(name, &[example]);
        let op: Op = serde_json::from_value(whole.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let defaults = serde_json::to_value(&op).unwrap();
        writeln!(
            text,
            "\n## {name}\n\n{}",
            said.replace("[`Op::ToFloat`]", "`ToFloat`")
        )
        .unwrap();
        if has_picture(name) {
            writeln!(text, "\n![{name}](operations/{name}.jpg)").unwrap();
        }
        if !of.is_empty() {
            text += "\n| parameter | value | default | allowed | what |\n|---|---|---|---|---|\n";
            for field in items(&format!("pub struct {of} {{")) {
                let default = match (example.get(&field.name), defaults.get(&field.name)) {
                    (Some(_), _) => "required".to_owned(),
                    (None, None) => "none".to_owned(),
                    (None, Some(value)) => value.to_string().replace(',', ", ").replace('"', ""),
                };
                writeln!(
                    text,
                    "| `{}` | {} | {default} | {} | {} |",
                    field.name,
                    written(&field.of),
                    allowed(name, example, &field.name).unwrap_or_default(),
                    field.text
                )
                .unwrap();
            }
        }
    }
    text
}

/// Bytes to floats look the same.
fn has_picture(name: &str) -> bool {
    !["ToFloat", "Normalize"].contains(&name)
}

const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;

/// What an operation makes of one generated photograph, next to the photograph.
fn picture(name: &str, photo: &[u8]) -> Vec<u8> {
    let op = with(name, &[&examples()[name], &shown(name)]);
    let small = json!({"type": "Resize", "size": [HEIGHT, WIDTH]});
    let float = json!({"type": "ToFloat"});
    let ops = match name {
        "RandomErasing" | "GaussianNoise" => json!([small, float, op]),
        _ => json!([small, op, small, float]),
    };
    let side = |ops: Value| -> Vec<f32> {
        let pipeline = Arc::new(Pipeline::from_json(&json!({ "op": ops }).to_string()).unwrap());
        let mut runner = Runner::new(pipeline, Executor::PerOp, DecodeOptions::default()).unwrap();
        let mut out = vec![0.0; runner.output_len()];
        let key = DrawKey {
            seed: 5,
            epoch: 0,
            sample: 2,
        };
        runner.run(photo, key, &mut out).unwrap();
        out
    };
    let sides = [side(json!([small, float])), side(ops)];
    let plane = (WIDTH * HEIGHT) as usize;
    let mut rgb = Vec::new();
    for y in 0..HEIGHT as usize {
        for side in &sides {
            for x in 0..WIDTH as usize {
                let level = |c: usize| (side[c * plane + y * WIDTH as usize + x] * 255.0).round() as u8;
                rgb.extend([level(0), level(1), level(2)]);
            }
        }
    }
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, 85)
        .encode(&rgb, 2 * WIDTH as u16, HEIGHT as u16, ColorType::Rgb)
        .unwrap();
    jpeg
}

#[test]
fn the_reference_of_operations_is_true() {
    let docs: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let writes = std::env::var_os("STOKEHOLD_WRITE_DOCS").is_some();
    let text = reference();
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("data");
    let options = SynthOptions {
        images: 4,
        classes: 2,
        ..SynthOptions::default()
    };
    generate(&folder, &options, &mut |_, _| {}).unwrap();
    let photo = std::fs::read(folder.join("train/ring-striped/00000.jpg")).unwrap();
    if writes {
        std::fs::create_dir_all(docs.join("operations")).unwrap();
        std::fs::write(docs.join("operations.md"), &text).unwrap();
    }
    for name in examples().into_keys().filter(|name| has_picture(name)) {
        let path = docs.join("operations").join(format!("{name}.jpg"));
        let made = picture(name, &photo);
        if writes {
            std::fs::write(&path, &made).unwrap();
        }
        let pixels = |bytes: &[u8]| decode(bytes, &DecodeOptions::default()).unwrap().data;
        let known =
            pixels(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let squares: f64 = std::iter::zip(pixels(&made), &known)
            .map(|(a, b)| (f64::from(a) - f64::from(*b)).powi(2))
            .sum();
        // Two processors may round differently.
        let mean = squares / known.len() as f64;
        assert!(mean < 4.0, "{name}: {mean}; {AGAIN}");
    }
    assert!(
        std::fs::read_to_string(docs.join("operations.md")).unwrap() == text,
        "{AGAIN}"
    );
}

const AGAIN: &str = "write docs/reference/operations.md again: STOKEHOLD_WRITE_DOCS=1 cargo test --release -p stokehold-pipeline operations";
