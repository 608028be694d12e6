//! fused against per-op: the same draws, bounded differences, equality where SEMANTICS.md promises it.

use stokehold_pipeline::op::{Fill, Filter, Interpolation, PaddingMode};
use stokehold_pipeline::{Chain, Executor, Mixed, Perspective, RgbImage, Rotate, Step, Transform, perform};

/// A picture with edges and gradients at every scale, odd in size.
fn picture(width: u32, height: u32) -> RgbImage {
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let wave =
                |fx: f64, fy: f64| ((f64::from(x) * fx + f64::from(y) * fy).sin() * 60.0 + 120.0) as u8;
            let step = if (x / 17 + y / 23) % 2 == 0 { 60 } else { 0 };
            data.extend([
                wave(0.05, 0.02) + step,
                wave(0.3, 0.1) / 2 + step,
                wave(0.01, 0.13),
            ]);
        }
    }
    RgbImage { width, height, data }
}

/// Peak signal to noise of two images of floats 0..=1, in decibels.
fn psnr(a: &[f32], b: &[f32]) -> f64 {
    let error = a
        .iter()
        .zip(b)
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum::<f64>()
        / a.len() as f64;
    -10.0 * error.max(1e-12).log10()
}

fn both(steps: &[Step], image: &RgbImage) -> (Vec<f32>, Vec<f32>) {
    let (per_op, w, h) = perform(Executor::PerOp, steps, image);
    let (fused, w2, h2) = perform(Executor::Fused, steps, image);
    assert_eq!((w, h), (w2, h2));
    (per_op, fused)
}

fn crop(left: u32, top: u32, width: u32, height: u32) -> Step {
    Step::Crop {
        left,
        top,
        width,
        height,
    }
}

fn resize(width: u32, height: u32) -> Step {
    Step::Resize {
        width,
        height,
        interpolation: Filter::Bilinear,
    }
}

/// A turn by quarters, with room for the whole image.
fn whole_turn(angle: f64) -> Step {
    match rotate(angle) {
        Step::Rotate(turn) => Step::Rotate(Rotate { expand: true, ..turn }),
        other => other,
    }
}

fn rotate(angle: f64) -> Step {
    let (interpolation, fill) = (Interpolation::Nearest, Fill::default());
    Step::Rotate(Rotate {
        angle,
        interpolation,
        expand: false,
        center: None,
        fill,
    })
}

fn levels(a: &[f32], b: &[f32]) -> f32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs() * 255.0)
        .inspect(|apart| assert!(!apart.is_nan()))
        .fold(0.0, f32::max)
}

/// SEMANTICS.md: "Flips, crops, constant borders, translations and quarter turns are exact".
#[test]
fn exact_geometry_is_exact() {
    let image = picture(101, 67);
    let quarter = Step::Rotate(Rotate {
        angle: 90.0,
        interpolation: Interpolation::Nearest,
        expand: true,
        center: None,
        fill: Fill::default(),
    });
    let border = Step::Pad {
        sides: [3, 4, 5, 6],
        fill: Fill::Rgb([9, 8, 7]),
        mode: PaddingMode::Constant,
    };
    let moved = Step::Affine(Transform {
        angle: 0.0,
        translate: [-13, 22],
        scale: 1.0,
        shear: [0.0, 0.0],
        interpolation: Interpolation::Nearest,
        center: None,
        fill: Fill::Rgb([9, 8, 7]),
    });
    let chains = [
        vec![moved.clone()],
        vec![
            Step::VerticalFlip,
            moved,
            Step::HorizontalFlip,
            crop(5, 6, 50, 50),
        ],
        vec![Step::HorizontalFlip],
        vec![Step::VerticalFlip, crop(10, 20, 33, 31)],
        vec![
            crop(3, 5, 90, 60),
            Step::HorizontalFlip,
            crop(7, 1, 50, 40),
            Step::VerticalFlip,
        ],
        vec![quarter.clone()],
        vec![Step::HorizontalFlip, quarter.clone(), crop(5, 6, 50, 80)],
        vec![border.clone(), Step::HorizontalFlip, crop(0, 0, 60, 60)],
        vec![crop(80, 50, 21, 17), border],
    ];
    for steps in chains {
        let (per_op, fused) = both(&steps, &image);
        // The floats are made by a division in one and a multiplication in the other.
        assert!(
            levels(&per_op, &fused) < 1e-3,
            "{steps:?}: {}",
            levels(&per_op, &fused)
        );
    }
}

/// A crop that holds nothing but a border, resized: fill everywhere, on every side of the image.
#[test]
fn a_resize_of_nothing_but_a_border_is_its_colour() {
    let image = picture(40, 30);
    let border = Step::Pad {
        sides: [50; 4],
        fill: Fill::Rgb([9, 8, 7]),
        mode: PaddingMode::Constant,
    };
    for (left, top) in [(0, 60), (100, 60), (60, 0), (60, 90), (100, 90)] {
        for interpolation in Filter::ALL {
            let resize = Step::Resize {
                width: 33,
                height: 45,
                interpolation,
            };
            let steps = [border.clone(), crop(left, top, 20, 20), resize];
            let (per_op, fused) = both(&steps, &image);
            assert!(levels(&per_op, &fused) < 1e-3, "{steps:?}");
        }
    }
}

/// SEMANTICS.md: "One resize of pixels is within 1 level"; bicubic is above 38 dB and Lanczos above 36, for per-op clips their overshoot at hard edges
/// to bytes between the two passes and fused does not; so is box, for whether a pixel at its very edge counts is decided by rounding.
#[test]
fn one_resize_is_within_a_level() {
    let image = picture(311, 203);
    for (left, top, w, h) in [
        (0, 0, 311, 203),
        (17, 31, 200, 150),
        (100, 100, 40, 30),
        (5, 3, 300, 60),
    ] {
        for (out_w, out_h) in [(224, 224), (64, 96), (500, 20)] {
            for interpolation in Filter::ALL {
                let steps = [
                    crop(left, top, w, h),
                    Step::Resize {
                        width: out_w,
                        height: out_h,
                        interpolation,
                    },
                    Step::HorizontalFlip,
                ];
                let (per_op, fused) = both(&steps, &image);
                if matches!(interpolation, Filter::Bicubic | Filter::Lanczos | Filter::Box) {
                    let psnr = psnr(&per_op, &fused);
                    let least = if interpolation == Filter::Lanczos {
                        36.0
                    } else {
                        38.0
                    };
                    assert!(psnr > least, "{steps:?}: {psnr:.1} dB");
                } else {
                    let worst = levels(&per_op, &fused);
                    assert!(worst < 1.01, "{steps:?}: {worst}");
                }
            }
        }
    }
}

/// At even ratios each place of a nearest resize lies between two pixels.
#[test]
fn a_nearest_resize_takes_the_same_pixel_before_and_after_a_flip_or_turn() {
    let image = picture(224, 96);
    let moves = [
        &[Step::HorizontalFlip][..],
        &[Step::VerticalFlip],
        &[rotate(180.0)],
        &[whole_turn(90.0)],
        &[whole_turn(270.0)],
        &[Step::HorizontalFlip, whole_turn(90.0)],
    ];
    for moves in moves {
        for size in [(112, 48), (56, 48), (112, 96), (32, 32)] {
            let nearest = Step::Resize {
                width: size.0,
                height: size.1,
                interpolation: Filter::Nearest,
            };
            let one = std::slice::from_ref(&nearest);
            for steps in [[moves, one].concat(), [one, moves].concat()] {
                let (per_op, fused) = both(&steps, &image);
                let worst = levels(&per_op, &fused);
                assert!(worst < 0.01, "{steps:?}: {worst}");
            }
        }
    }
}

/// SEMANTICS.md: "Colour after geometry is computed from the same bytes".
#[test]
fn colour_after_exact_geometry_is_exact() {
    let image = picture(120, 90);
    let steps = [
        crop(10, 10, 80, 60),
        Step::Brightness { factor: 1.3 },
        Step::HorizontalFlip,
        Step::Contrast { factor: 0.7 },
        Step::Hue { shift: 0.2 },
        Step::Saturation { factor: 1.4 },
        Step::Posterize { bits: 6 },
        Step::AutoContrast,
        Step::VerticalFlip,
        Step::Sharpness { factor: 1.7 },
        Step::HorizontalFlip,
        Step::Solarize { threshold: 200.0 },
        Step::Invert,
        Step::Equalize,
        Step::Dilate { kernel: 3 },
        Step::GaussianBlur {
            kernel: [5, 5],
            sigma: 1.0,
        },
        Step::Grayscale,
        Step::ToFloat,
        Step::Normalize {
            mean: [0.5, 0.4, 0.3],
            std: [0.2, 0.3, 0.4],
        },
    ];
    let (per_op, fused) = both(&steps, &image);
    assert!(
        per_op.iter().zip(&fused).all(|(a, b)| (a - b).abs() < 0.02),
        "{}",
        levels(&per_op, &fused)
    );
    let same = per_op
        .iter()
        .zip(&fused)
        .filter(|(a, b)| (*a - *b).abs() < 1e-5)
        .count();
    assert!(
        same as f64 > 0.999 * per_op.len() as f64,
        "{same} of {}",
        per_op.len()
    );
}

/// On a smooth picture interpolation hardly matters, so only a misplaced pixel could tell the executors apart.
#[test]
fn a_turned_picture_lies_where_it_should() {
    let (width, height) = (240, 180);
    let wave = |x: u32, y: u32, k: f64| 128.0 + 100.0 * ((f64::from(x) + k * f64::from(y)) / 25.0).sin();
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let data =
        pixels.flat_map(|(x, y)| [wave(x, y, 0.3), wave(x, y, -0.7), wave(x, y, 1.9)].map(|v| v as u8));
    let image = RgbImage {
        width,
        height,
        data: data.collect(),
    };
    let turn = |angle, expand, center| {
        let (interpolation, fill) = (Interpolation::Bilinear, Fill::default());
        Step::Rotate(Rotate {
            angle,
            interpolation,
            expand,
            center,
            fill,
        })
    };
    let affine = |angle, scale, shear| {
        Step::Affine(Transform {
            angle,
            translate: [3, -7],
            scale,
            shear,
            interpolation: Interpolation::Bilinear,
            center: None,
            fill: Fill::default(),
        })
    };
    let chains = [
        vec![turn(23.0, false, None), crop(70, 40, 100, 100)],
        vec![
            turn(-140.0, false, None),
            Step::VerticalFlip,
            crop(70, 40, 100, 100),
            resize(80, 130),
        ],
        vec![
            turn(60.0, true, None),
            Step::HorizontalFlip,
            crop(90, 90, 80, 80),
            turn(-20.0, false, None),
            crop(20, 20, 40, 40),
        ],
        vec![
            turn(10.0, false, Some([0.0, 0.0])),
            crop(60, 60, 90, 80),
            resize(224, 224),
        ],
        vec![affine(25.0, 1.2, [10.0, -5.0]), crop(70, 40, 100, 100)],
        vec![affine(0.0, 1.3, [0.0, 0.0]), crop(10, 10, 200, 150)],
        vec![
            affine(0.0, 0.9, [0.0, 0.0]),
            Step::HorizontalFlip,
            turn(-70.0, false, None),
            crop(80, 60, 70, 60),
        ],
    ];
    for steps in chains {
        let (per_op, fused) = both(&steps, &image);
        let psnr = psnr(&per_op, &fused);
        assert!(psnr > 42.0, "{psnr:.1} dB: {steps:?}");
    }
}

/// SEMANTICS.md: "A change of perspective and a mixture of AugMix are performed by themselves".
#[test]
fn a_perspective_between_exact_geometry_is_exact() {
    let image = picture(120, 90);
    for interpolation in [
        Interpolation::Nearest,
        Interpolation::Bilinear,
        Interpolation::Bicubic,
    ] {
        let corners = [[7, 3], [80, 10], [75, 68], [2, 50]];
        let steps = [
            crop(10, 10, 90, 70),
            Step::HorizontalFlip,
            Step::Brightness { factor: 1.2 },
            Step::Perspective(Perspective {
                coefficients: Perspective::between(corners, 90, 70).unwrap(),
                interpolation,
                fill: Fill::Level(77),
            }),
            Step::Permute { channels: [2, 0, 1] },
            Step::HorizontalFlip,
            Step::VerticalFlip,
            Step::Mix(Mixed {
                share: 0.4,
                chains: vec![
                    Chain {
                        share: 0.35,
                        steps: vec![Step::Equalize, crop(0, 0, 90, 70), Step::Invert],
                    },
                    Chain {
                        share: 0.25,
                        steps: vec![Step::HorizontalFlip],
                    },
                ],
            }),
            Step::HorizontalFlip,
            crop(3, 5, 70, 60),
        ];
        let (per_op, fused) = both(&steps, &image);
        assert!(
            levels(&per_op, &fused) < 1e-3,
            "{interpolation:?}: {}",
            levels(&per_op, &fused)
        );
    }
}

/// However often an image shrinks a hundredfold and grows again: places stay in range, and the fill shows.
#[test]
fn places_stay_in_range_however_much_an_image_shrinks() {
    let image = picture(61, 47);
    let scaled = |scale, angle| {
        Step::Affine(Transform {
            angle,
            translate: [0, 0],
            scale,
            shear: [80.0, -80.0],
            interpolation: Interpolation::Bilinear,
            center: None,
            fill: Fill::Level(200),
        })
    };
    for times in [1, 2, 9, 200] {
        let mut steps = Vec::new();
        for _ in 0..times {
            steps.extend([
                scaled(0.01, 33.0),
                resize(300, 200),
                scaled(0.01, -70.0),
                resize(61, 47),
            ]);
        }
        let (per_op, fused) = both(&steps, &image);
        let corner = 200.0 / 255.0;
        for out in [per_op, fused] {
            assert!((out[0] - corner).abs() < 1e-5, "{times}: {}", out[0]);
            assert!(out.iter().all(|value| (0.0..=1.0).contains(value)));
        }
    }
}

/// Where a rotation leaves the image, both show the same fill.
#[test]
fn rotated_corners_are_filled_alike() {
    let image = RgbImage {
        width: 120,
        height: 80,
        data: vec![200; 3 * 120 * 80],
    };
    let steps = [
        rotate(25.0),
        Step::HorizontalFlip,
        rotate(-10.0),
        crop(5, 5, 100, 70),
        resize(100, 70),
    ];
    let (per_op, fused) = both(&steps, &image);
    let differing = per_op
        .iter()
        .zip(&fused)
        .filter(|(a, b)| (*a - *b).abs() > 1e-3)
        .count();
    // The image is flat: only pixels on a mask's edge can differ.
    assert!(differing < per_op.len() / 40, "{differing} of {}", per_op.len());
    assert!(fused.contains(&0.0) && fused.iter().any(|&v| (v - 200.0 / 255.0).abs() < 1e-5));
}
