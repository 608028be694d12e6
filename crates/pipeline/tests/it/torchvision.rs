//! per-op against torchvision on real photos, with torchvision's own draws.

use crate::oracle;
use stokehold_pipeline::{Executor, RgbImage, Step, perform, perform_into};

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    input: String,
    width: u32,
    height: u32,
    steps: Vec<Step>,
    expected: String,
    kind: String,
    out_width: u32,
    out_height: u32,
}

/// How far from torchvision a case may be: the largest difference in levels of 255, and the share of values that may
/// differ at all.
pub fn tolerance(name: &str) -> (f32, f64) {
    match name {
        // Two 1-D sums in f32 instead of one 2-D sum: a value close to .5 may round the other way.
        "gaussian-blur" => (1.0, 0.001),
        _ => (0.0, 0.0),
    }
}

fn expected(case: &Case) -> Vec<f32> {
    let bytes = std::fs::read(&case.expected).unwrap();
    if case.kind == "float" {
        return bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()) * 255.0)
            .collect();
    }
    let plane = (case.out_width * case.out_height) as usize;
    (0..3 * plane)
        .map(|i| f32::from(bytes[3 * (i % plane) + i / plane]))
        .collect()
}

#[test]
fn per_op_does_what_torchvision_does() {
    let (Some(python), Some(photos)) = (oracle::python(), oracle::photos()) else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    oracle::run(&python, "torchvision_steps.py", &[&photos, out.path()]);
    let cases: Vec<Case> =
        serde_json::from_str(&std::fs::read_to_string(out.path().join("cases.json")).unwrap()).unwrap();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        let data = std::fs::read(&case.input).unwrap();
        let image = RgbImage {
            width: case.width,
            height: case.height,
            data,
        };
        let (got, width, height) = perform(Executor::PerOp, &case.steps, &image);
        assert_eq!(
            (width, height),
            (case.out_width, case.out_height),
            "{}",
            case.name
        );
        let (limit, share) = tolerance(&case.name);
        if case.kind != "float" {
            // torchvision's uint8 image is the sample of type u8 with its channels apart.
            let mut bytes = vec![0u8; got.len()];
            perform_into(Executor::PerOp, &case.steps, &image, (&mut bytes).into());
            assert!(
                bytes
                    .iter()
                    .zip(&got)
                    .all(|(byte, float)| f32::from(*byte) == (float * 255.0).round()),
                "{}: u8 is not what becomes f32",
                case.name
            );
        }
        let differences: Vec<f32> = got
            .iter()
            .zip(expected(case))
            .map(|(a, b)| (a * 255.0 - b).abs())
            .collect();
        // Bytes went through a division by 255 and back: anything below 1e-3 of a level is equal.
        let worst = differences.iter().copied().fold(0.0, f32::max);
        let differing =
            differences.iter().filter(|&&d| d.is_nan() || d > 1e-3).count() as f64 / differences.len() as f64;
        if worst > limit + 1e-3 || differing > share {
            failures.push(format!("{}: worst {worst}, differing {differing:.6}", case.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
