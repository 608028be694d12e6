//! Images of extreme sides: every executor makes the same of them, or they are refused for all.

use std::sync::Arc;
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Pipeline, RgbImage, Runner, perform, probe,
};

const EXECUTORS: [Executor; 2] = [Executor::PerOp, Executor::Fused];
const LIMIT: u32 = 178_956_970;
const KEY: DrawKey = DrawKey {
    seed: 1,
    epoch: 0,
    sample: 0,
};

fn pipelines() -> Vec<Pipeline> {
    let end = r#"{"type": "ToFloat"}"#;
    [
        r#"{"type": "RandomRotation", "degrees": [10, 10]}, {"type": "Resize", "size": [32, 32]}"#,
        r#"{"type": "RandomRotation", "degrees": [90, 90], "expand": true, "interpolation": "bilinear"}, {"type": "Resize", "size": [32, 32]}"#,
        r#"{"type": "RandomRotation", "degrees": [180.00005, 180.00005], "interpolation": "bicubic"}, {"type": "Resize", "size": [32, 32], "interpolation": "bicubic"}"#,
        r#"{"type": "Resize", "size": [32, 32]}"#,
        r#"{"type": "Resize", "size": [32, 32], "interpolation": "bicubic"}"#,
        r#"{"type": "Resize", "size": [32, 32], "interpolation": "nearest"}"#,
        r#"{"type": "RandomResizedCrop", "size": 8}"#,
        r#"{"type": "RandomHorizontalFlip", "p": 1}, {"type": "CenterCrop", "size": 8}"#,
        r#"{"type": "CenterCrop", "size": 8}, {"type": "RandomRotation", "degrees": [30, 30]}"#,
    ]
    .iter()
    .map(|ops| Pipeline::from_json(&format!("{{\"op\": [{ops}, {end}]}}")).unwrap())
    .collect()
}

/// Dark at its beginning and bright at its end.
fn gradient(width: u32, height: u32) -> RgbImage {
    let long = u64::from(width.max(height));
    let value = |x: u32, y: u32| (u64::from(x.max(y)) * 255 / long) as u8;
    let data = (0..height).flat_map(|y| (0..width).flat_map(move |x| [value(x, y); 3]));
    RgbImage {
        width,
        height,
        data: data.collect(),
    }
}

#[test]
fn executors_agree_on_the_longest_images_and_refuse_longer_ones() {
    let lengths = [65_535, 65_536, 65_537, 524_289, 1 << 20, (1 << 20) + 1];
    let mut sizes: Vec<(u32, u32)> = lengths.iter().flat_map(|&long| [(long, 1), (1, long)]).collect();
    sizes.extend([(65_536, 4), (4, 65_536), (600_000, 4), (4, 600_000)]);
    let (mut done, mut refused) = (0, 0);
    for (number, pipeline) in pipelines().iter().enumerate() {
        for &(width, height) in &sizes {
            let steps = match pipeline.draw(KEY, width, height) {
                Ok(steps) => steps,
                Err(ImageError::DoesNotFit(_)) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            done += 1;
            let image = gradient(width, height);
            let [(a, ..), (b, ..)] = EXECUTORS.map(|executor| perform(executor, &steps, &image));
            let mean =
                |values: &mut dyn Iterator<Item = f32>| values.map(f64::from).sum::<f64>() / a.len() as f64;
            // One pixel that is turned lies half next to the grid, where executors may differ: not in how bright it is.
            let error = match number < 3 && width.min(height) == 1 {
                true => mean(&mut a.iter().zip(&b).map(|(a, b)| a - b)).abs(),
                false => mean(&mut a.iter().zip(&b).map(|(a, b)| (a - b).abs())),
            };
            assert!(
                error < 0.06,
                "pipeline {number}, {width}x{height}: off by {error}"
            );
        }
    }
    assert!(done > 50 && refused > 20, "{done} {refused}");
}

/// Nothing but sizes: such images are not made here.
#[test]
fn images_at_the_limit_of_pixels_are_answered_for() {
    for (number, pipeline) in pipelines().iter().enumerate() {
        for (width, height) in [(LIMIT, 1), (1, LIMIT), (LIMIT / 2, 2), (13_377, 13_377)] {
            let drawn = pipeline.draw(KEY, width, height);
            // Resizing by the nearest pixel reads as many pixels as it makes; a border would make the image too large.
            let refused = width.max(height) > 1 << 20 && number != 5;
            assert_eq!(
                drawn.is_err(),
                refused,
                "pipeline {number}, {width}x{height}: {drawn:?}"
            );
        }
    }
}

/// The image between the two axes counts too.
#[test]
fn a_resize_that_is_large_on_its_way_is_refused() {
    let ops = r#"{"op": [{"type": "Resize", "size": [100, 16384], "interpolation": "bicubic"}, {"type": "ToFloat"}]}"#;
    let error = Pipeline::from_json(ops)
        .unwrap()
        .draw(KEY, 30, 65_536)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("would make an image of 16384x65536 pixels on the way"),
        "{error}"
    );
}

/// A valid PNG of 600,000 columns that a rotation once ended a worker with.
#[test]
fn a_long_file_is_an_error_and_the_next_one_is_not() {
    let long = include_bytes!("../../../../hostile/long.png");
    let good = include_bytes!("../../../../hostile/small.jpg");
    let info = probe(long).unwrap();
    assert_eq!((info.width, info.height), (600_000, 4));
    for executor in EXECUTORS {
        let pipeline = Arc::new(pipelines().remove(0));
        let mut runner = Runner::new(pipeline, executor, DecodeOptions::default()).unwrap();
        let mut out = vec![0.0; runner.output_len()];
        let error = runner.run(&long[..], KEY, &mut out).unwrap_err().to_string();
        assert!(
            error.contains("a side of 600000 pixels is too long to be turned: at most 65536"),
            "{error}"
        );
        runner.run(&good[..], KEY, &mut out).unwrap();
        // By the nearest pixel it is as good as any.
        let mut runner = Runner::new(
            Arc::new(pipelines().remove(5)),
            executor,
            DecodeOptions::default(),
        )
        .unwrap();
        runner.run(&long[..], KEY, &mut out).unwrap();
        let green: Vec<u8> = out[1024..2048]
            .iter()
            .map(|value| (value * 255.0).round() as u8)
            .collect();
        assert_eq!(green, [200; 1024], "{executor}");
    }
}

/// What this process has resident, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn a_large_image_leaves_no_buffers_behind() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sides::one_large_image", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// 36 million pixels: the executor fused has them with four bytes each.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by a_large_image_leaves_no_buffers_behind, alone in a process"]
fn one_large_image() {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 6000, 6000);
    encoder.set_color(png::ColorType::Grayscale);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&vec![9; 36_000_000])
        .unwrap();
    let pipeline = Arc::new(Pipeline::published(1, 32));
    for executor in EXECUTORS {
        let mut runner = Runner::new(pipeline.clone(), executor, DecodeOptions::default()).unwrap();
        let mut out = vec![0.0; runner.output_len()];
        runner
            .run(
                &include_bytes!("../../../../hostile/small.jpg")[..],
                KEY,
                &mut out,
            )
            .unwrap();
        let before = resident();
        runner.run(&file[..], KEY, &mut out).unwrap();
        let after = resident();
        assert!(
            after < before + (64 << 20),
            "{executor}: {before} bytes before, {after} after"
        );
    }
}
