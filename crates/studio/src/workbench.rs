//! The workbench: a pipeline tried on one photo, with both CPU executors side by side.
//!
//! ```text
//!  operations ─► Pipeline::check ─► explain: the drawn steps ─┬─► Runner, per-op ─┐   undo Normalize    pictures, and the
//!  photo, seed, epochs ───────────────────────────────────────┴─► Runner, fused ──┴─────────────────►  difference, in levels
//! ```
//!
//! Draws are those of training: the sample's number is that of the photo in its data set, and each draw is an epoch.
//! Times are those of a runner that has done the same once before, on one thread.
//!
//! The operations' form is made of their schema, which is derived from the types that a pipeline file is read with.
//!
//! # What bounds the work
//! At most 12 draws of together 2^20 pixels, of an image of at most 2^25 pixels; steps whose images have together at most 2^30
//! pixels; no new draw after 20 seconds. Two requests work at a time, together with those for pictures of samples.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stokehold_loader::{input, remaining};
use stokehold_pipeline::op::{self, Normalize, Op};
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Pipeline, Runner, StageTimes, Step, explain, picture, probe,
};
use stokehold_storage::{SampleBytes, Source};

use crate::api::{JsonResult, Refusal, Shared, Site, blocking};
use crate::data::{PIXELS, part_of, unless_it_panics};
use crate::text;

/// The most draws, and pixels of all of them together.
const DRAWS: u64 = 12;
const RESULT: u64 = 1 << 20;
/// The most pixels of the images between all steps of a draw together.
const WORK: u64 = 1 << 30;
/// No draw begins after this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// By how much the picture of a difference is brighter than the difference.
const BRIGHTER: f32 = 16.0;
/// The most characters of a reason, and of a plan.
const WHY: usize = 600;
const PLAN: usize = 8000;

pub fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/api/workbench", get(known))
        .route("/api/workbench/draw", post(draw))
}

async fn known() -> JsonResult {
    let presets: Map<String, Value> = Pipeline::PRESETS
        .iter()
        .filter_map(|name| {
            let pipeline = Pipeline::preset(name).ok()?;
            Some(((*name).to_owned(), written(&pipeline)))
        })
        .collect();
    Ok(Json(json!({"schema": op::schema(), "presets": presets})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DrawRequest {
    key: String,
    part: String,
    sample: usize,
    op: Vec<Value>,
    seed: u64,
    epoch: u64,
    draws: u64,
    exif: bool,
}

async fn draw(State(site): Shared, Json(request): Json<DrawRequest>) -> JsonResult {
    let turn = site.data.turn().await?;
    let made = blocking(move || {
        let _turn = turn;
        drawn(&site, &request)
    });
    made.await?.map(Json)
}

fn wrong(reason: &dyn std::fmt::Display) -> Refusal {
    Refusal(
        StatusCode::UNPROCESSABLE_ENTITY,
        text::short(&reason.to_string(), WHY),
    )
}

/// The pipeline as it is written, and what its draws make of the photo.
fn drawn(site: &Site, request: &DrawRequest) -> Result<Value, Refusal> {
    let pipeline =
        Pipeline::from_json(&json!({"op": request.op}).to_string()).map_err(|error| wrong(&error))?;
    let checked = pipeline.check_before_images();
    let ops = written(&pipeline);
    let mut answer = json!({
        "toml": toml_of(&ops).map_err(|error| wrong(&error))?,
        "python": python(&ops),
    });
    if let Err(error) = checked {
        answer["problem"] = text::short(&error.to_string(), WHY).into();
        return Ok(answer);
    }
    match draws(site, request, pipeline, &mut answer) {
        Ok(made) => answer["draws"] = made,
        Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, reason)) => answer["problem"] = reason.into(),
        Err(other) => return Err(other),
    }
    answer["wanted"] = request.draws.clamp(1, DRAWS).into();
    Ok(answer)
}

/// One executor with its runner.
struct Side {
    runner: Runner,
    out: Vec<f32>,
    times: StageTimes,
}

impl Side {
    fn new(pipeline: &Arc<Pipeline>, executor: Executor, options: DecodeOptions) -> Result<Self, Refusal> {
        let runner = Runner::new(Arc::clone(pipeline), executor, options).map_err(|error| wrong(&error))?;
        Ok(Self {
            out: vec![0.0; runner.output_len()],
            runner,
            times: StageTimes::default(),
        })
    }

    fn run(&mut self, bytes: &SampleBytes, key: DrawKey) -> Result<(), Refusal> {
        let (runner, out) = (&mut self.runner, &mut self.out);
        let done = unless_it_panics(|| runner.run(input(bytes), key, out.as_mut_slice()));
        self.times = done.map_err(|error| wrong(&error))?;
        Ok(())
    }

    fn milliseconds(&self) -> [f64; 2] {
        [self.times.decode, self.times.augment].map(|time| time.as_secs_f64() * 1e3)
    }
}

fn draws(
    site: &Site,
    request: &DrawRequest,
    pipeline: Pipeline,
    answer: &mut Value,
) -> Result<Value, Refusal> {
    let count = request.draws.clamp(1, DRAWS);
    let options = DecodeOptions { exif: request.exif };
    let set = site.data.set(&request.key)?;
    let images = part_of(&set, &request.part)?;
    let bytes = site.data.read(&set, &request.part, request.sample)?;
    let bytes = bytes.map_err(|reason| wrong(&reason))?;
    let pipeline = remaining(pipeline, images.baked(), options.exif).map_err(|error| wrong(&error))?;
    // Where its output has the size of the images, that is the size of this one.
    let pipeline = match pipeline.check_before_images().map_err(|error| wrong(&error))? {
        Some(_) => pipeline,
        None => {
            let info = probe(bytes.file()).map_err(|error| wrong(&error))?;
            let (width, height) = info.size(&options);
            pipeline.of_images(width, height)
        }
    };
    let (width, height) = pipeline.check().map_err(|error| wrong(&error))?;
    answer["size"] = json!([width, height]);
    let pixels = u64::from(width) * u64::from(height);
    if pixels * count > RESULT {
        return Err(wrong(&format!(
            "{count} draws of {pixels} pixels are more than the workbench shows, {RESULT} together; ask for fewer, or for smaller images"
        )));
    }
    let pipeline = Arc::new(pipeline);
    let normalizes: Vec<&Normalize> = pipeline.ops.iter().filter_map(normalize).collect();
    let mut sides = [
        Side::new(&pipeline, Executor::PerOp, options)?,
        Side::new(&pipeline, Executor::Fused, options)?,
    ];
    let began = Instant::now();
    let mut made = Vec::new();
    for number in 0..count {
        let key = DrawKey {
            seed: request.seed,
            epoch: request.epoch.saturating_add(number),
            sample: request.sample as u64,
        };
        let plan = unless_it_panics(|| explain(&pipeline, input(&bytes).bytes, &options, key));
        let plan = plan.map_err(|error| wrong(&error))?;
        check_work(&plan.steps, plan.width, plan.height)?;
        // In turns, so that neither always has what the other has read into the processor's caches.
        let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let side = &mut sides[at];
            // The first run makes the buffers, which training has already.
            if number == 0 {
                side.run(&bytes, key)?;
            }
            side.run(&bytes, key)?;
        }
        let [per_op, fused] = sides.each_ref().map(|side| levels(&side.out, &normalizes));
        let difference: Vec<f32> = per_op.iter().zip(&fused).map(|(a, b)| (a - b).abs()).collect();
        let mean = difference.iter().map(|one| f64::from(*one)).sum::<f64>() / difference.len().max(1) as f64;
        let brighter: Vec<f32> = difference.iter().map(|one| BRIGHTER * one).collect();
        let png = |levels: &[f32]| png(levels, width, height).map_err(|error| wrong(&error));
        made.push(json!({
            "epoch": key.epoch,
            "steps": plan.steps.iter().map(|step| text::short(&step.to_string(), WHY)).take(200).collect::<Vec<_>>(),
            "plan": text::short(&plan.to_string(), PLAN),
            "per_op": png(&per_op)?,
            "fused": png(&fused)?,
            "difference": png(&brighter)?,
            "max": difference.iter().copied().fold(0.0, f32::max),
            "mean": mean,
            "per_op_ms": sides[0].milliseconds(),
            "fused_ms": sides[1].milliseconds(),
        }));
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    Ok(json!(made))
}

/// Refuses steps that would take very long, or very much memory.
fn check_work(steps: &[Step], width: u32, height: u32) -> Result<(), Refusal> {
    let (mut width, mut height, mut all) = (width, height, 0);
    for step in steps {
        (width, height) = step.size_after(width, height);
        let pixels = u64::from(width) * u64::from(height);
        all += pixels;
        if pixels > PIXELS {
            return Err(wrong(&format!(
                "a step of this draw makes an image of {width} x {height} pixels, and the workbench tries at most {PIXELS}; \
                 choose smaller sizes"
            )));
        }
        if all > WORK {
            return Err(wrong(&format!(
                "this draw has {} steps, whose images have together more pixels than the workbench tries, {WORK}; choose fewer \
                 operations",
                steps.len()
            )));
        }
    }
    Ok(())
}

fn normalize(op: &Op) -> Option<&Normalize> {
    match op {
        Op::Normalize(normalize) => Some(normalize),
        _ => None,
    }
}

/// Levels 0 to 255 of a result (3, height, width): what `Normalize` did is undone. They may lie outside that range.
fn levels(out: &[f32], normalizes: &[&Normalize]) -> Vec<f32> {
    let plane = (out.len() / 3).max(1);
    let undone = |(at, value): (usize, &f32)| {
        let undo = |value: f32, one: &&Normalize| value * one.std[at / plane] + one.mean[at / plane];
        255.0 * normalizes.iter().rev().fold(*value, undo)
    };
    out.iter().enumerate().map(undone).collect()
}

/// A PNG of levels (3, height, width), in base64.
fn png(levels: &[f32], width: u32, height: u32) -> Result<String, ImageError> {
    let plane = levels.len() / 3;
    let rgb: Vec<u8> = (0..3 * plane)
        .map(|at| levels[at % 3 * plane + at / 3].round().clamp(0.0, 255.0) as u8)
        .collect();
    Ok(STANDARD.encode(picture::rgb(&rgb, width, height, true)?))
}

/// The operations without the parameters that have their defaults.
fn written(pipeline: &Pipeline) -> Value {
    pipeline.ops.iter().map(without_defaults).collect()
}

fn without_defaults(op: &Op) -> Value {
    // By way of text, because a 32-bit number has fewer digits there.
    let text = serde_json::to_string(op).unwrap_or_default();
    let mut whole: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(all) = whole.as_object().cloned() else {
        return whole;
    };
    for name in all.keys().filter(|name| *name != "type") {
        let Some(parameters) = whole.as_object_mut() else {
            break;
        };
        let value = parameters.remove(name).unwrap_or_default();
        let is_same = serde_json::from_value::<Op>(whole.clone()).is_ok_and(|without| without == *op);
        if !is_same {
            whole[name] = match name.as_str() {
                "op" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|inner| {
                        serde_json::from_value(inner.clone())
                            .map_or_else(|_| inner.clone(), |op| without_defaults(&op))
                    })
                    .collect(),
                _ => value,
            };
        }
    }
    whole
}

/// The operations as a pipeline file, each with its type first.
fn toml_of(ops: &Value) -> Result<String, toml::ser::Error> {
    let text = toml::to_string(&json!({ "op": ops }))?;
    let mut lines: Vec<&str> = Vec::new();
    // Behind the last header.
    let mut first = 0;
    for line in text.lines() {
        match line.starts_with("type = ") {
            true => lines.insert(first, line),
            false => lines.push(line),
        }
        if line.starts_with("[[") {
            first = lines.len();
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The operations as a program in Python writes them.
fn python(ops: &Value) -> String {
    let mut text = "from stokehold import transforms as T\n\npipeline = T.Compose([\n".to_owned();
    for op in ops.as_array().into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {},", call(op));
    }
    text + "])\n"
}

fn call(op: &Value) -> String {
    let name = match op["type"].as_str().unwrap_or_default() {
        // PyTorch's users know it by this name, and it means the usual numbers if it is given none.
        "ToFloat" => "ToTensor",
        name => name,
    };
    let mut arguments: Vec<String> = Vec::new();
    if name == "Normalize" {
        for (parameter, usual) in [("mean", "T.MEAN"), ("std", "T.STD")] {
            let value = op.get(parameter).map_or_else(|| usual.to_owned(), literal);
            arguments.push(format!("{parameter}={value}"));
        }
    } else {
        for (parameter, value) in op
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "type")
        {
            arguments.push(match parameter.as_str() {
                "op" => {
                    let inner: Vec<String> = value.as_array().into_iter().flatten().map(call).collect();
                    format!("transforms=[{}]", inner.join(", "))
                }
                parameter => format!("{parameter}={}", literal(value)),
            });
        }
    }
    format!("T.{name}({})", arguments.join(", "))
}

/// A value of JSON in Python. Texts are words of the operations, without quotes in them.
fn literal(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Array(all) if all.len() == 1 => format!("({},)", literal(&all[0])),
        Value::Array(all) => format!("({})", all.iter().map(literal).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(ops: &Value) -> Pipeline {
        Pipeline::from_json(&json!({ "op": ops }).to_string()).unwrap()
    }

    #[test]
    fn what_is_copied_is_the_same_pipeline() {
        let ops = json!([
            {"type": "Repeat", "times": 2, "op": [{"type": "RandomRotation", "degrees": 5.0, "expand": false}]},
            {"type": "RandomResizedCrop", "size": [96, 128], "scale": [0.08, 1.0]},
            {"type": "RandomHorizontalFlip", "p": 0.25},
            {"type": "ToFloat"},
            {"type": "Normalize", "mean": [0.1, 0.2, 0.3]},
            {"type": "RandomErasing", "value": "random"},
        ]);
        let pipeline = parsed(&ops);
        let short = written(&pipeline);
        assert_eq!(parsed(&short), pipeline);
        assert_eq!(
            short[1],
            json!({"type": "RandomResizedCrop", "size": [96, 128]}),
            "{short}"
        );
        let toml = toml_of(&short).unwrap();
        assert_eq!(Pipeline::from_toml(&toml).unwrap(), pipeline, "{toml}");
        assert!(
            toml.contains("[[op]]\ntype = \"RandomHorizontalFlip\"\np = 0.25\n"),
            "{toml}"
        );
        assert_eq!(
            python(&short),
            "from stokehold import transforms as T\n\npipeline = T.Compose([\n    \
             T.Repeat(transforms=[T.RandomRotation(degrees=5.0)], times=2),\n    T.RandomResizedCrop(size=(96, 128)),\n    \
             T.RandomHorizontalFlip(p=0.25),\n    T.ToTensor(),\n    T.Normalize(mean=(0.1, 0.2, 0.3), std=T.STD),\n    \
             T.RandomErasing(value=\"random\"),\n])\n"
        );
    }

    #[test]
    fn normalize_is_undone() {
        let normalize = Normalize::default();
        let out = [
            (0.5 - 0.485) / 0.229,
            (0.5 - 0.456) / 0.224,
            (0.5 - 0.406) / 0.225,
        ];
        for level in levels(&out, &[&normalize]) {
            assert!((level - 127.5).abs() < 1e-3, "{level}");
        }
    }

    #[test]
    fn every_operation_has_a_form() {
        let schema = op::schema();
        let all = schema["oneOf"].as_array().unwrap();
        assert!(all.len() > 30, "{schema}");
        for one in all {
            assert!(one["properties"]["type"]["const"].is_string(), "{one}");
            assert!(one["description"].is_string(), "{one}");
        }
    }

    #[test]
    fn steps_that_would_take_long_are_refused() {
        let crop = |size: u32| {
            let ops = json!([{"type": "Resize", "size": [size, size]}, {"type": "ToFloat"}]);
            let key = DrawKey {
                seed: 0,
                epoch: 0,
                sample: 0,
            };
            parsed(&ops).draw(key, 100, 100).unwrap()
        };
        assert!(check_work(&crop(224), 100, 100).is_ok());
        let Refusal(_, reason) = check_work(&crop(8000), 100, 100).unwrap_err();
        assert!(reason.contains("8000 x 8000"), "{reason}");
    }
}
