//! per-op and the draws against what torchvision once answered (`tests/goldens`, which `tests/make_goldens` makes), for
//! machines without it.

use crate::torchvision::tolerance;
use serde::Deserialize;
use std::collections::BTreeMap;
use stokehold_pipeline::{DrawKey, Executor, Perspective, Pipeline, RgbImage, Step, perform};

#[derive(Deserialize)]
struct Goldens<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    width: u32,
    height: u32,
    steps: Vec<Step>,
    kind: String,
    out_width: u32,
    out_height: u32,
    /// FNV-1a of all bytes, where they must be the same.
    hash: Option<String>,
    /// Otherwise every `step`-th value, as bytes or f32.
    #[serde(default)]
    step: usize,
    #[serde(default)]
    values: String,
}

/// Gradients, edges and noise, by the formula of `tests/oracle/torchvision_steps.py`.
fn made(width: u32, height: u32) -> RgbImage {
    let value = |x: u32, y: u32, c: u32| {
        let noise = (x * 31 + y * 17 + c * 11) * (x + 3 * y + 1) % 23;
        let value = x * x / (11 + 5 * c) + y * (7 - 2 * c) + 70 * ((x / 9 + y / 7) % 2) + noise;
        (value % 311).min(255) as u8
    };
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let data = pixels.flat_map(|(x, y)| [0, 1, 2].map(|c| value(x, y, c)));
    RgbImage {
        width,
        height,
        data: data.collect(),
    }
}

impl Case {
    /// What the case says against our result; none where it agrees.
    fn problem(&self) -> Option<String> {
        let image = made(self.width, self.height);
        let (got, width, height) = perform(Executor::PerOp, &self.steps, &image);
        if (width, height) != (self.out_width, self.out_height) {
            return Some(format!("{width} x {height}"));
        }
        // As torchvision has them: bytes pixel by pixel, floats plane by plane.
        let plane = width as usize * height as usize;
        let float = self.kind == "float";
        let ours: Vec<f32> = match float {
            true => got.iter().map(|value| value * 255.0).collect(),
            false => (0..3 * plane)
                .map(|i| got[i % 3 * plane + i / 3] * 255.0)
                .collect(),
        };
        if let Some(hash) = &self.hash {
            let bytes = ours.iter().map(|value| value.round() as u8);
            let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            let got = format!("{:08x}", bytes.fold(0x811C_9DC5, step));
            return (got != *hash).then(|| "other bytes".to_owned());
        }
        let digits = self.values.as_bytes().chunks(2);
        let bytes: Vec<u8> = digits
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect();
        let theirs: Vec<f32> = match float {
            true => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()) * 255.0)
                .collect(),
            false => bytes.into_iter().map(f32::from).collect(),
        };
        let ours: Vec<f32> = ours.into_iter().step_by(self.step).collect();
        assert_eq!(ours.len(), theirs.len(), "{}", self.name);
        let (limit, share) = tolerance(&self.name);
        let differences: Vec<f32> = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).collect();
        let worst = differences.iter().copied().fold(0.0, f32::max);
        let differing = differences.iter().filter(|&&d| d.is_nan() || d > 1e-3).count();
        // Of a sample one value more may differ than of the whole.
        let allowed = (share * differences.len() as f64).ceil() as usize;
        (worst > limit + 1e-3 || differing > allowed)
            .then(|| format!("worst {worst}, {differing} of {} differ", differences.len()))
    }
}

#[test]
fn per_op_does_what_torchvision_did() {
    let goldens: Goldens<Case> = serde_json::from_str(include_str!("../goldens/steps.json")).unwrap();
    assert!(goldens.cases.len() > 60, "{} cases", goldens.cases.len());
    let problem = |case: &Case| case.problem().map(|problem| format!("{}: {problem}", case.name));
    let problems: Vec<String> = goldens.cases.iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[derive(Deserialize)]
struct Augment {
    op: serde_json::Value,
    width: u32,
    height: u32,
    /// All that can be drawn, with its probability.
    outcomes: Vec<(Vec<Step>, f64)>,
}

/// The steps with their numbers to four digits: torch's own depend on the processor in the last bits.
fn rounded(steps: &[Step]) -> String {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => {
                // Added to zero, -0 is 0.
                *value = serde_json::json!((number.as_f64().unwrap() * 1e4).round() + 0.0);
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(round),
            serde_json::Value::Object(all) => all.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(steps).unwrap();
    round(&mut value);
    value.to_string()
}

/// AutoAugment and the like draw torchvision's changes, magnitudes and signs, each within 5.5 standard deviations as often.
#[test]
fn policies_draw_what_torchvision_draws() {
    let goldens: Goldens<Augment> = serde_json::from_str(include_str!("../goldens/augment.json")).unwrap();
    assert_eq!(goldens.cases.len(), 11);
    for case in goldens.cases {
        let mut expected: BTreeMap<String, f64> = BTreeMap::new();
        for (steps, p) in &case.outcomes {
            *expected.entry(rounded(steps)).or_default() += p;
        }
        let whole: f64 = expected.values().sum();
        assert!((whole - 1.0).abs() < 1e-9, "{}: {whole}", case.op);
        let pipeline = Pipeline::from_json(&serde_json::json!({ "op": [case.op] }).to_string()).unwrap();
        let n = 40_000;
        let mut drawn: BTreeMap<String, f64> = BTreeMap::new();
        for sample in 0..n {
            let key = DrawKey {
                seed: 4,
                epoch: 0,
                sample,
            };
            let steps = pipeline.draw(key, case.width, case.height).unwrap();
            let steps = rounded(match &steps[..] {
                [Step::Mix(mixed)] => &mixed.chains[0].steps,
                steps => steps,
            });
            assert!(expected.contains_key(&steps), "{}: {steps}", case.op);
            *drawn.entry(steps).or_default() += 1.0;
        }
        for (steps, p) in expected {
            let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
            let count = drawn.get(&steps).copied().unwrap_or(0.0);
            assert!(
                (count - mean).abs() < 5.5 * deviation + 1.0,
                "{}: {steps}: {count}, not {mean}",
                case.op
            );
        }
    }
}

#[derive(Deserialize)]
struct Composition {
    op: serde_json::Value,
    count: u32,
    /// How often each list of steps was performed, by their types.
    outcomes: BTreeMap<String, u32>,
}

/// What compositions perform, as often as torchvision's within 5.5 standard deviations.
#[test]
fn compositions_perform_what_torchvisions_do() {
    let goldens: Goldens<Composition> =
        serde_json::from_str(include_str!("../goldens/compositions.json")).unwrap();
    assert_eq!(goldens.cases.len(), 8);
    for case in goldens.cases {
        let pipeline = Pipeline::from_json(&serde_json::json!({ "op": [case.op] }).to_string()).unwrap();
        let mut counts: BTreeMap<String, [u32; 2]> = BTreeMap::new();
        for (names, count) in case.outcomes {
            counts.entry(names).or_default()[0] += count;
        }
        for sample in 0..case.count {
            let key = DrawKey {
                seed: 8,
                epoch: 0,
                sample: sample.into(),
            };
            let steps = serde_json::to_value(pipeline.draw(key, 9, 9).unwrap()).unwrap();
            let names: Vec<&str> = steps
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|step| step["type"].as_str())
                .collect();
            counts.entry(names.join(" ")).or_default()[1] += 1;
        }
        for (names, [theirs, ours]) in counts {
            let deviation = f64::from(theirs + ours).sqrt();
            assert!(
                f64::from(theirs.abs_diff(ours)) < 5.5 * deviation && theirs > 0,
                "{}: {names}: {ours} and {theirs}",
                case.op
            );
        }
    }
}

#[derive(Deserialize)]
struct Corners {
    width: u32,
    height: u32,
    corners: [[u32; 2]; 4],
    coefficients: [f64; 8],
}

/// Both solve the same equations in 64 bits and round to 32: one unit in the last place may be between them.
#[test]
fn coefficients_of_a_perspective_are_torchvisions() {
    let goldens: Goldens<Corners> =
        serde_json::from_str(include_str!("../goldens/perspectives.json")).unwrap();
    assert_eq!(goldens.cases.len(), 100);
    let (mut same, mut all) = (0, 0);
    for case in goldens.cases {
        let ours = Perspective::between(case.corners, case.width, case.height).unwrap();
        // What is 0 may be anything small on either side: it is added to products of places and the others.
        let largest = case.coefficients[..6]
            .iter()
            .fold(0.0f64, |most, c| most.max(c.abs()));
        for (ours, theirs) in ours.into_iter().zip(case.coefficients) {
            let allowed = (1.2e-7 * theirs.abs()).max(1e-12 * largest);
            assert!(
                (ours - theirs).abs() <= allowed,
                "{:?}: {ours} and {theirs}",
                case.corners
            );
            (same, all) = (same + usize::from(ours == theirs), all + 1);
        }
    }
    assert!(same * 10 > all * 8, "{same} of {all}");
}

/// Three places in a line, or an image that is a line.
#[test]
fn corners_in_a_line_have_no_perspective() {
    let square = [[0, 0], [9, 0], [9, 9], [0, 9]];
    assert_eq!(
        Perspective::between(square, 10, 10),
        Some([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    );
    for (corners, width, height) in [
        ([[0, 0], [5, 0], [9, 0], [0, 9]], 10, 10),
        ([[0, 0], [4, 4], [9, 9], [0, 9]], 10, 10),
        ([[5, 5], [9, 0], [5, 5], [0, 9]], 10, 10),
        (square, 10, 1),
        (square, 1, 10),
    ] {
        assert_eq!(Perspective::between(corners, width, height), None, "{corners:?}");
    }
    let text = r#"{"op": [{"type": "RandomPerspective", "p": 1}]}"#;
    let key = DrawKey {
        seed: 1,
        epoch: 0,
        sample: 0,
    };
    let error = Pipeline::from_json(text)
        .unwrap()
        .draw(key, 1, 40)
        .unwrap_err()
        .to_string();
    assert!(error.contains("an image of 1x40 has no perspective"), "{error}");
}

#[derive(Deserialize)]
struct Draws {
    op: serde_json::Value,
    width: u32,
    height: u32,
    count: u32,
    /// Mean and standard deviation, by the step's type and field.
    moments: BTreeMap<String, [f64; 2]>,
}

/// Mean and deviation of all that is drawn: within 5 standard errors of torchvision's, of both sides together.
#[test]
fn draws_have_torchvisions_moments() {
    let goldens: Goldens<Draws> = serde_json::from_str(include_str!("../goldens/draws.json")).unwrap();
    for drawn in goldens.cases {
        let mut ops = vec![drawn.op.clone()];
        if drawn.op["type"] == "RandomErasing" {
            ops.insert(0, serde_json::json!({"type": "ToFloat"}));
        }
        let pipeline = Pipeline::from_json(&serde_json::json!({ "op": ops }).to_string()).unwrap();
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for sample in 0..drawn.count {
            let key = DrawKey {
                seed: 11,
                epoch: 0,
                sample: sample.into(),
            };
            for step in pipeline.draw(key, drawn.width, drawn.height).unwrap() {
                let step = serde_json::to_value(step).unwrap();
                let name = step["type"].as_str().unwrap();
                for (field, value) in step.as_object().unwrap() {
                    let numbers = match value.as_array() {
                        Some(several) => several
                            .iter()
                            .enumerate()
                            .map(|(i, one)| (format!(".{i}"), one))
                            .collect(),
                        None => vec![(String::new(), value)],
                    };
                    for (place, value) in numbers {
                        let key = format!("{name}.{field}{place}");
                        if let (true, Some(value)) = (drawn.moments.contains_key(&key), value.as_f64()) {
                            values.entry(key).or_default().push(value);
                        }
                    }
                }
            }
        }
        for (key, [their_mean, their_deviation]) in &drawn.moments {
            let n = f64::from(drawn.count);
            let ours = &values[key];
            assert_eq!(ours.len() as f64, n, "{key}: not drawn every time");
            let mean = ours.iter().sum::<f64>() / n;
            let deviation = (ours.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
            let error = 5.0 * (2.0 / n).sqrt() * their_deviation;
            assert!(
                (mean - their_mean).abs() < error && (deviation - their_deviation).abs() < error,
                "{} {key}: mean {mean} and {their_mean}, deviation {deviation} and {their_deviation}",
                drawn.op
            );
        }
    }
}
