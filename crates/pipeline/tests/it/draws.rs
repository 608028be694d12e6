//! Draws are a function of (seed, epoch, sample, operation), with torchvision's distributions.

use proptest::prelude::*;
use stokehold_pipeline::op::{Op, RandomFlip, RandomResizedCrop, Repeat};
use stokehold_pipeline::{DrawKey, Executor, Pipeline, RgbImage, Step, perform};

fn key(seed: u64, epoch: u64, sample: u64) -> DrawKey {
    DrawKey { seed, epoch, sample }
}

proptest! {
    #[test]
    fn the_same_key_draws_the_same_steps(seed: u64, epoch: u64, sample: u64, w in 1u32..3000, h in 1u32..3000) {
        let pipeline = Pipeline::published(4, 224);
        let steps = pipeline.draw(key(seed, epoch, sample), w, h).unwrap();
        prop_assert_eq!(&steps, &pipeline.draw(key(seed, epoch, sample), w, h).unwrap());
        // Another sample, epoch or seed draws other angles.
        for other in [key(seed, epoch, sample ^ 1), key(seed, epoch ^ 1, sample), key(seed ^ 1, epoch, sample)] {
            prop_assert_ne!(&steps, &pipeline.draw(other, w, h).unwrap());
        }
    }

    #[test]
    fn a_resized_crop_lies_within_the_image(sample: u64, w in 1u32..2000, h in 1u32..2000) {
        let steps = Pipeline::imagenet_train(64).draw(key(0, 0, sample), w, h).unwrap();
        let Step::Crop { left, top, width, height } = steps[0] else { panic!("{steps:?}") };
        prop_assert!(width > 0 && height > 0 && left + width <= w && top + height <= h);
    }
}

/// Oracle: `v2.ScaleJitter(target, (share, share))` of torchvision 0.29, where 64 bits lead to another size.
#[test]
fn a_jittered_scale_has_torchvisions_32_bits() {
    for (image, target, share, expected) in [
        ((166, 22), [210, 39], 1.0, (209, 27)),
        ((179, 267), [190, 80], 0.7, (37, 56)),
        ((211, 80), [62, 198], 0.5, (31, 11)),
        ((260, 178), [97, 50], 1.3, (94, 64)),
        ((179, 96), [10, 247], 0.7, (7, 3)),
        ((120, 257), [154, 250], 1.3, (151, 324)),
    ] {
        let op = format!(
            r#"{{"op": [{{"type": "ScaleJitter", "target_size": {target:?}, "scale_range": [{share}, {share}]}}]}}"#
        );
        let pipeline = Pipeline::from_json(&op).unwrap();
        let steps = pipeline.draw(key(0, 0, 0), image.0, image.1).unwrap();
        let [Step::Resize { width, height, .. }] = steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!((width, height), expected, "{image:?} to {target:?}, {share}");
    }
}

/// An operation's draws depend on its own place, not on what others before it drew.
#[test]
fn an_operation_does_not_disturb_the_next() {
    let flip = |p| Op::RandomHorizontalFlip(RandomFlip { p });
    let crop = Op::RandomResizedCrop(RandomResizedCrop::new(64));
    let crop_of = |p| {
        let pipeline = Pipeline::new(vec![flip(p), crop.clone(), Op::ToFloat]);
        let steps = pipeline.draw(key(1, 2, 3), 500, 400).unwrap();
        steps
            .into_iter()
            .find(|step| matches!(step, Step::Crop { .. }))
            .unwrap()
    };
    assert_eq!(crop_of(0.0), crop_of(1.0));
}

/// The operations behind a composition draw the same, whatever it drew, and so do those inside.
#[test]
fn a_composition_does_not_disturb_the_next() {
    let turned = r#"{"type": "RandomRotation", "degrees": 90}"#;
    let steps = |composition: &str| {
        let text = format!(r#"{{"op": [{composition}, {turned}]}}"#);
        Pipeline::from_json(&text)
            .unwrap()
            .draw(key(1, 2, 3), 50, 40)
            .unwrap()
    };
    let of = |name: &str, more: &str| {
        steps(&format!(
            r#"{{"type": "{name}", "op": [{turned}, {{"type": "Repeat", "times": 2, "op": [{turned}]}}]{more}}}"#
        ))
    };
    let all = of("RandomApply", r#", "p": 1"#);
    assert_eq!(all.len(), 4);
    for i in 0..4 {
        assert!(
            all[i + 1..].iter().all(|step| *step != all[i]),
            "drawn twice: {:?}",
            all[i]
        );
    }
    assert_eq!(of("RandomApply", r#", "p": 0"#), all[3..]);
    assert_eq!(
        of("RandomChoice", r#", "p": [1, 0]"#),
        [all[0].clone(), all[3].clone()]
    );
    assert_eq!(of("RandomChoice", r#", "p": [0, 1]"#), all[1..]);
    let ordered = of("RandomOrder", "");
    assert!(
        ordered == all || ordered == [&all[1..3], &all[..1], &all[3..]].concat(),
        "{ordered:?}"
    );
}

/// A repeated operation draws again each time.
#[test]
fn repetitions_draw_for_themselves() {
    let flips = Op::RandomHorizontalFlip(RandomFlip::default());
    let pipeline = Pipeline::new(vec![Op::Repeat(Repeat {
        times: 1000,
        ops: vec![flips],
    })]);
    let flips = pipeline.draw(key(5, 0, 0), 10, 10).unwrap().len();
    assert!((430..570).contains(&flips), "{flips} of 1000 at p = 0.5"); // 4.4 standard deviations
}

/// Each operation with a probability happens that often, and changes nothing otherwise.
#[test]
fn chances_are_kept() {
    for (op, default) in [
        (r#"{"type": "RandomPerspective""#, 0.5),
        (r#"{"type": "RandomZoomOut", "side_range": [2, 4]"#, 0.5),
        (r#"{"type": "RandomGrayscale""#, 0.1),
        (r#"{"type": "RandomInvert""#, 0.5),
        (r#"{"type": "RandomPosterize", "bits": 3"#, 0.5),
        (r#"{"type": "RandomSolarize", "threshold": 9"#, 0.5),
        (r#"{"type": "RandomAutocontrast""#, 0.5),
        (r#"{"type": "RandomEqualize""#, 0.5),
        (r#"{"type": "RandomAdjustSharpness", "sharpness_factor": 2"#, 0.5),
    ] {
        for (given, p) in [
            ("", default),
            (r#", "p": 0.2"#, 0.2),
            (r#", "p": 0"#, 0.0),
            (r#", "p": 1"#, 1.0),
        ] {
            let pipeline = Pipeline::from_json(&format!(r#"{{"op": [{op}{given}}}]}}"#)).unwrap();
            let n = 4000;
            let drawn: usize = (0..n)
                .map(|sample| pipeline.draw(key(3, 0, sample), 10, 10).unwrap().len())
                .sum();
            let expected = p * n as f64;
            let allowed = 5.0 * (expected * (1.0 - p)).sqrt();
            assert!(
                (drawn as f64 - expected).abs() <= allowed,
                "{op}{given}: {drawn} of {n}"
            );
        }
    }
}

/// Area and aspect ratio of the crop are even and log-even, as torchvision's: their means over many samples.
#[test]
fn the_crop_has_torchvisions_distribution() {
    let pipeline = Pipeline::imagenet_train(224);
    let (mut area, mut log_ratio, n) = (0.0, 0.0, 20_000);
    for sample in 0..n {
        // So large an image that rounding does not matter, and square, so that few ratios are rejected.
        let steps = pipeline.draw(key(9, 0, sample), 4000, 4000).unwrap();
        let Step::Crop { width, height, .. } = steps[0] else {
            panic!("{steps:?}")
        };
        area += f64::from(width) * f64::from(height) / 16e6;
        log_ratio += (f64::from(width) / f64::from(height)).ln();
    }
    let (area, log_ratio) = (area / n as f64, log_ratio / n as f64);
    // 100,000 draws of torchvision's get_params on the same size have mean area 0.4792 (crops that do not fit are
    // drawn again, so it is below 0.54) and mean log ratio 0. The standard error here is 0.0016 and 0.0012.
    assert!((area - 0.479).abs() < 0.008, "{area}");
    assert!(log_ratio.abs() < 0.006, "{log_ratio}");
}

/// Noise has its mean and deviation, is another in every epoch, and is limited only if it should be.
#[test]
fn noise_is_normal() {
    let noisy = |more: &str, epoch| {
        let text = format!(
            r#"{{"op": [{{"type": "Resize", "size": [100, 100]}}, {{"type": "ToFloat"}}, {{"type": "GaussianNoise"{more}}}]}}"#
        );
        let steps = Pipeline::from_json(&text)
            .unwrap()
            .draw(key(1, epoch, 0), 100, 100)
            .unwrap();
        let grey = RgbImage {
            width: 100,
            height: 100,
            data: vec![51; 30_000],
        };
        let made = perform(Executor::PerOp, &steps, &grey).0;
        let fused = perform(Executor::Fused, &steps, &grey).0;
        assert!(made.iter().zip(&fused).all(|(a, b)| (a - b).abs() < 1e-6));
        made
    };
    let made = noisy(r#", "mean": 0.1, "sigma": 0.2, "clip": false"#, 0);
    let mean = made.iter().map(|&v| f64::from(v)).sum::<f64>() / 3e4;
    let variance = made.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / 3e4;
    // Five standard errors.
    assert!((mean - 0.3).abs() < 0.006, "{mean}");
    assert!((variance.sqrt() - 0.2).abs() < 0.0042, "{variance}");
    assert!(made.iter().any(|&v| v < 0.0) && made[..10_000] != made[10_000..20_000]);
    assert!(made != noisy(r#", "mean": 0.1, "sigma": 0.2, "clip": false"#, 1));
    let limited = noisy(r#", "mean": 0.1, "sigma": 0.2"#, 0);
    let expected: Vec<f32> = made.iter().map(|v| v.clamp(0.0, 1.0)).collect();
    assert!(limited == expected);
}

/// Chains of AugMix have one to three changes, each length as often as the others, and shares that sum to one.
#[test]
fn chains_have_one_to_three_changes() {
    let pipeline = Pipeline::from_json(r#"{"op": [{"type": "AugMix", "mixture_width": 2}]}"#).unwrap();
    let mut lengths = [0; 4];
    for sample in 0..6000 {
        let steps = pipeline.draw(key(2, 0, sample), 90, 90).unwrap();
        let [Step::Mix(mixed)] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!(mixed.chains.len(), 2);
        let whole = mixed.share + mixed.chains.iter().map(|chain| chain.share).sum::<f32>();
        assert!((whole - 1.0).abs() < 1e-5, "{mixed:?}");
        mixed
            .chains
            .iter()
            .for_each(|chain| lengths[chain.steps.len()] += 1);
    }
    // 4,000 of 12,000 each; five standard deviations are 258.
    assert!(
        lengths[0] == 0 && lengths[1..].iter().all(|n| i32::abs_diff(*n, 4000) < 258),
        "{lengths:?}"
    );
}
