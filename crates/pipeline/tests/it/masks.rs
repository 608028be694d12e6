//! Masks: their files, and what steps make of them.

use crate::oracle;
use proptest::prelude::*;
use stokehold_pipeline::op::{Fill, Filter, Interpolation, PaddingMode};
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, ImageError, Mask, MaskError, MaskTable, Pipeline, RgbImage, Rotate,
    Runner, Step, Transform, perform, perform_on_mask,
};

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    width: u32,
    height: u32,
    steps: Vec<Step>,
    out_width: u32,
    out_height: u32,
    expected: Option<String>,
    expected_image: Option<String>,
    hash: Option<String>,
}

/// 21 classes, no two neighbours alike: the formula of `tests/oracle/masks.py`.
fn made(width: u32, height: u32) -> Mask {
    let class = |x: u64, y: u64| ((x * 7919 + y * 104_729 + (x / 3) * (y / 5) * 31) % 21) as u8;
    let rows = 0..u64::from(height);
    let data = rows.flat_map(|y| (0..u64::from(width)).map(move |x| class(x, y)));
    Mask {
        width,
        height,
        data: data.collect(),
    }
}

fn image_of(mask: &Mask) -> RgbImage {
    let pixel = |&class: &u8| [class * 12, 255 - class * 12, (u32::from(class) * 37 % 256) as u8];
    RgbImage {
        width: mask.width,
        height: mask.height,
        data: mask.data.iter().flat_map(pixel).collect(),
    }
}

/// At even ratios each place lies between two pixels.
#[test]
fn a_mask_takes_the_pixels_that_a_nearest_resize_after_a_flip_takes() {
    let mask = made(48, 48);
    let resize = Step::Resize {
        width: 24,
        height: 24,
        interpolation: Filter::Nearest,
    };
    for before in [
        Step::HorizontalFlip,
        Step::VerticalFlip,
        turn(90.0, true),
        turn(180.0, false),
    ] {
        let steps = [before, resize.clone()];
        let fused = perform_on_mask(Executor::Fused, &steps, mask.clone());
        let expected = perform(Executor::PerOp, &steps, &image_of(&mask));
        assert!(
            perform(Executor::PerOp, &[], &image_of(&fused)) == expected,
            "{steps:?}"
        );
    }
}

fn fnv(bytes: &[u8]) -> String {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", bytes.iter().fold(0x811C_9DC5, step))
}

/// What is wrong with per-op's result; none where it is torchvision's.
fn problem(case: &Case) -> Option<String> {
    let mask = made(case.width, case.height);
    let got = perform_on_mask(Executor::PerOp, &case.steps, mask.clone());
    if (got.width, got.height) != (case.out_width, case.out_height) {
        return Some(format!("{}x{}", got.width, got.height));
    }
    if let Some(hash) = &case.hash
        && fnv(&got.data) != *hash
    {
        return Some("other classes".into());
    }
    if let Some(path) = &case.expected {
        let expected = std::fs::read(path).unwrap();
        let differing = got.data.iter().zip(&expected).filter(|(a, b)| a != b).count();
        if differing > 0 {
            return Some(format!("{differing} of {} classes differ", expected.len()));
        }
    }
    if let Some(path) = &case.expected_image {
        let expected = std::fs::read(path).unwrap();
        let (floats, ..) = perform(Executor::PerOp, &case.steps, &image_of(&mask));
        let plane = floats.len() / 3;
        let byte = |i: usize| (floats[i % 3 * plane + i / 3] * 255.0).round() as u8;
        if (0..expected.len()).any(|i| byte(i) != expected[i]) {
            return Some("the image differs".into());
        }
    }
    None
}

fn check(cases: &[Case]) {
    assert!(cases.len() > 150, "{} cases", cases.len());
    let problems = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case.name, problem(case)?)));
    let problems: Vec<String> = problems.collect();
    assert!(
        problems.is_empty(),
        "{} of {}:\n{}",
        problems.len(),
        cases.len(),
        problems.join("\n")
    );
}

#[test]
fn per_op_does_with_pairs_what_torchvision_does() {
    let Some(python) = oracle::python() else { return };
    let out = tempfile::tempdir().unwrap();
    oracle::run(&python, "masks.py", &[out.path()]);
    let text = std::fs::read_to_string(out.path().join("cases.json")).unwrap();
    check(&serde_json::from_str::<Vec<Case>>(&text).unwrap());
}

#[test]
fn per_op_does_with_masks_what_torchvision_did() {
    #[derive(serde::Deserialize)]
    struct Goldens {
        cases: Vec<Case>,
    }
    let goldens: Goldens = serde_json::from_str(include_str!("../goldens/masks.json")).unwrap();
    check(&goldens.cases);
}

/// A step that moves whole pixels.
fn exact_step() -> impl Strategy<Value = (u8, [f64; 4])> {
    (0..6u8, prop::array::uniform4(0.0..1.0f64))
}

/// The drawn step for an image of this size.
fn step_of(kind: u8, [a, b, c, d]: [f64; 4], width: u32, height: u32) -> Step {
    let part = |share: f64, of: u32| (share * f64::from(of)) as u32;
    match kind {
        0 => Step::HorizontalFlip,
        1 => Step::VerticalFlip,
        2 => {
            let (left, top) = (part(a, width), part(b, height));
            Step::Crop {
                left,
                top,
                width: 1 + part(c, width - left - 1),
                height: 1 + part(d, height - top - 1),
            }
        }
        3 => Step::Pad {
            sides: [a, b, c, d].map(|share| part(share, 7)),
            fill: Fill::Level(1),
            mode: PaddingMode::Constant,
        },
        4 => turn(90.0 * part(a, 4) as f64, true),
        5 => Step::Affine(Transform {
            translate: [part(a, 9) as i32 - 4, part(b, 9) as i32 - 4],
            ..transform(0.0, 1.0)
        }),
        6 => turn(360.0 * a - 180.0, b < 0.5),
        7 => Step::Affine(Transform {
            shear: [30.0 * c - 15.0, 0.0],
            ..transform(360.0 * a, 0.5 + 1.5 * b)
        }),
        _ => Step::Resize {
            width: 1 + part(a, 60),
            height: 1 + part(b, 60),
            interpolation: Filter::Bilinear,
        },
    }
}

fn turn(angle: f64, expand: bool) -> Step {
    Step::Rotate(Rotate {
        angle,
        interpolation: Interpolation::Bilinear,
        expand,
        center: None,
        fill: Fill::Level(3),
    })
}

fn transform(angle: f64, scale: f64) -> Transform {
    Transform {
        angle,
        translate: [0, 0],
        scale,
        shear: [0.0; 2],
        interpolation: Interpolation::Bilinear,
        center: None,
        fill: Fill::Level(3),
    }
}

fn steps_of(kinds: &[(u8, [f64; 4])], (mut width, mut height): (u32, u32)) -> Vec<Step> {
    let step = |&(kind, shares): &(u8, [f64; 4])| {
        let step = step_of(kind, shares, width, height);
        (width, height) = step.size_after(width, height);
        step
    };
    kinds.iter().map(step).collect()
}

/// Where a step's place comes from, by a formula of its own, x to the right and y down; and whether the step shows its fill
/// where that is outside of the image.
fn origin(step: &Step, (w, h): (f64, f64), (x, y): (f64, f64)) -> ((f64, f64), bool) {
    let around = |(cx, cy): (f64, f64), (nx, ny): (f64, f64), degrees: f64, scale: f64, shear: f64| {
        // The inverse of: shear, scale, turn clockwise, about the centre.
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (dx, dy) = ((x - nx) / scale, (y - ny) / scale);
        let (u, v) = (cos * dx + sin * dy, -sin * dx + cos * dy);
        (cx + u + shear.to_radians().tan() * v, cy + v)
    };
    match step {
        Step::HorizontalFlip => ((w - x, y), false),
        Step::VerticalFlip => ((x, h - y), false),
        Step::Crop { left, top, .. } => ((x + f64::from(*left), y + f64::from(*top)), false),
        Step::Pad { sides, .. } => ((x - f64::from(sides[0]), y - f64::from(sides[1])), true),
        Step::Resize { width, height, .. } => {
            ((x * w / f64::from(*width), y * h / f64::from(*height)), false)
        }
        Step::Rotate(rotate) => {
            let (nw, nh) = step.size_after(w as u32, h as u32);
            let center = (f64::from(nw) / 2.0, f64::from(nh) / 2.0);
            (around((w / 2.0, h / 2.0), center, -rotate.angle, 1.0, 0.0), true)
        }
        Step::Affine(affine) => {
            let [tx, ty] = affine.translate.map(f64::from);
            let center = (w / 2.0 + tx, h / 2.0 + ty);
            (
                around(
                    (w / 2.0, h / 2.0),
                    center,
                    affine.angle,
                    affine.scale,
                    affine.shear[0],
                ),
                true,
            )
        }
        _ => ((x, y), false),
    }
}

/// One nearest resampling of all steps: the class, and how far its place is from the next pixel or frame.
fn nearest(steps: &[Step], mask: &Mask, at: (u32, u32)) -> (u8, f64) {
    let mut sizes = vec![(mask.width, mask.height)];
    for step in steps {
        let &(width, height) = sizes.last().unwrap();
        sizes.push(step.size_after(width, height));
    }
    let (mut x, mut y) = (f64::from(at.0) + 0.5, f64::from(at.1) + 0.5);
    let mut close = f64::MAX;
    let to_whole = |v: f64| (v - v.round()).abs();
    for (step, &(width, height)) in steps.iter().zip(&sizes).rev() {
        let size = (f64::from(width), f64::from(height));
        let (place, fills) = origin(step, size, (x, y));
        (x, y) = place;
        close = close.min(to_whole(x)).min(to_whole(y));
        if fills && !((0.0..size.0).contains(&x) && (0.0..size.1).contains(&y)) {
            return (Mask::IGNORE, close);
        }
    }
    let column = (x.floor() as usize).min(mask.width as usize - 1);
    let row = (y.floor() as usize).min(mask.height as usize - 1);
    (mask.data[row * mask.width as usize + column], close)
}

proptest! {
    /// Flips, crops, borders, whole moves and quarter turns move pixels and change none, in both executors.
    #[test]
    fn whole_moves_are_exact_and_both_executors_agree(kinds in prop::collection::vec(exact_step(), 0..7),
                                                     size in (1..50u32, 1..50u32)) {
        let mask = made(size.0, size.1);
        let steps = steps_of(&kinds, size);
        let fused = perform_on_mask(Executor::Fused, &steps, mask.clone());
        prop_assert_eq!(&fused, &perform_on_mask(Executor::PerOp, &steps, mask.clone()));
        for (i, class) in fused.data.iter().enumerate() {
            let at = (i as u32 % fused.width, i as u32 / fused.width);
            prop_assert_eq!(*class, nearest(&steps, &mask, at).0, "{:?} of {:?}", at, &steps);
        }
    }

    /// Whatever the geometry, the mask is resampled once: a place that is not on the edge of two pixels gives its pixel.
    #[test]
    fn fused_resamples_a_mask_once(kinds in prop::collection::vec((0..9u8, prop::array::uniform4(0.0..1.0f64)), 1..6),
                                   size in (2..50u32, 2..50u32)) {
        let mask = made(size.0, size.1);
        let steps = steps_of(&kinds, size);
        let fused = perform_on_mask(Executor::Fused, &steps, mask.clone());
        for (i, class) in fused.data.iter().enumerate() {
            let at = (i as u32 % fused.width, i as u32 / fused.width);
            let (expected, close) = nearest(&steps, &mask, at);
            if close > 1e-6 {
                prop_assert_eq!(*class, expected, "{:?} of {:?}", at, &steps);
            }
        }
    }

    #[test]
    fn no_bytes_of_a_mask_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), place in any::<prop::sample::Index>(),
                                value in any::<u8>()) {
        let tables = [MaskTable::of_values((0..256).map(|v| (v, 0))), MaskTable::of_colors([([0; 3], 0)])];
        for table in &tables {
            let _ = Mask::decode(&bytes, table);
        }
        let mut file = png(9, 5, png::ColorType::Indexed, png::BitDepth::Two, &[0x1B; 15], Some(&[7; 12]));
        let at = place.index(file.len());
        file[at] = value;
        bytes.truncate(at);
        for table in &tables {
            let _ = Mask::decode(&file, table);
            let _ = Mask::decode(&file[..at], table);
        }
    }
}

/// A PNG of packed rows.
fn png(
    width: u32,
    height: u32,
    color: png::ColorType,
    depth: png::BitDepth,
    data: &[u8],
    palette: Option<&[u8]>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if let Some(palette) = palette {
        encoder.set_palette(palette);
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    bytes
}

#[test]
fn masks_of_every_depth_are_read_as_they_are_stored() {
    use png::{BitDepth, ColorType};
    let values = MaskTable::of_values(
        (0..16)
            .map(|v| (v, v as u8))
            .chain([(255, Mask::IGNORE), (777, 5)]),
    );
    let read = |depth, data: &[u8]| {
        Mask::decode(&png(5, 2, ColorType::Grayscale, depth, data, None), &values).map(|mask| mask.data)
    };
    assert_eq!(
        read(BitDepth::One, &[0b1011_0000, 0b0100_1000]).unwrap(),
        [1, 0, 1, 1, 0, 0, 1, 0, 0, 1]
    );
    assert_eq!(
        read(
            BitDepth::Two,
            &[0b00_01_10_11, 0b10_000000, 0b11_00_00_01, 0b01_000000]
        )
        .unwrap(),
        [0, 1, 2, 3, 2, 3, 0, 0, 1, 1]
    );
    assert_eq!(
        read(BitDepth::Four, &[0x01, 0x9F, 0x20, 0xA0, 0x00, 0x10]).unwrap(),
        [0, 1, 9, 15, 2, 10, 0, 0, 0, 1]
    );
    assert_eq!(
        read(BitDepth::Eight, &[0, 1, 2, 3, 4, 255, 15, 0, 0, 9]).unwrap(),
        [0, 1, 2, 3, 4, 255, 15, 0, 0, 9]
    );
    let sixteen: Vec<u8> = [0u16, 777, 3, 4, 5, 6, 7, 8, 9, 255]
        .iter()
        .flat_map(|v| v.to_be_bytes())
        .collect();
    assert_eq!(
        read(BitDepth::Sixteen, &sixteen).unwrap(),
        [0, 5, 3, 4, 5, 6, 7, 8, 9, 255]
    );
    // A palette's colours count for nothing where values are classes, as in VOC.
    let indexed = png(2, 1, ColorType::Indexed, BitDepth::Eight, &[1, 0], Some(&[9; 6]));
    assert_eq!(Mask::decode(&indexed, &values).unwrap().data, [1, 0]);
}

#[test]
fn colours_are_classes_by_the_table() {
    use png::{BitDepth, ColorType};
    let table = MaskTable::of_colors([
        ([128, 0, 0], 0),
        ([0, 0, 255], 1),
        ([255; 3], 2),
        ([0; 3], Mask::IGNORE),
    ]);
    let decode = |color, depth, data: &[u8], palette: Option<&[u8]>| {
        Mask::decode(&png(2, 2, color, depth, data, palette), &table).map(|mask| mask.data)
    };
    let rgb = [128, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0];
    assert_eq!(
        decode(ColorType::Rgb, BitDepth::Eight, &rgb, None).unwrap(),
        [0, 1, 2, 255]
    );
    let rgba = [128, 0, 0, 0, 0, 0, 255, 9, 255, 255, 255, 255, 0, 0, 0, 255];
    assert_eq!(
        decode(ColorType::Rgba, BitDepth::Eight, &rgba, None).unwrap(),
        [0, 1, 2, 255]
    );
    let grey = [0b10_000000, 0b01_000000];
    assert_eq!(
        decode(ColorType::Grayscale, BitDepth::One, &grey, None).unwrap(),
        [2, 255, 255, 2]
    );
    let palette = Some(&[128u8, 0, 0, 0, 0, 255][..]);
    assert_eq!(
        decode(ColorType::Indexed, BitDepth::One, &grey, palette).unwrap(),
        [1, 0, 0, 1]
    );
    let mut other = rgb;
    other[4] = 3;
    let error = decode(ColorType::Rgb, BitDepth::Eight, &other, None).unwrap_err();
    assert_eq!(
        error,
        MaskError::UnknownColor {
            x: 1,
            y: 0,
            color: [0, 3, 255]
        }
    );
    assert!(error.to_string().contains("classes.toml"), "{error}");
}

#[test]
fn a_bad_mask_is_named_by_pixel_and_value() {
    use png::{BitDepth, ColorType};
    let table = MaskTable::of_values([(0, 0), (1, 1)]);
    let mask = png(
        3,
        2,
        ColorType::Grayscale,
        BitDepth::Eight,
        &[0, 1, 0, 0, 37, 1],
        None,
    );
    let error = Mask::decode(&mask, &table).unwrap_err();
    assert_eq!(
        error,
        MaskError::UnknownValue {
            x: 1,
            y: 1,
            value: 37
        }
    );
    let rgb = png(1, 1, ColorType::Rgb, BitDepth::Eight, &[0; 3], None);
    assert_eq!(Mask::decode(&rgb, &table).unwrap_err(), MaskError::HasColors);
    assert_eq!(Mask::decode(&[], &table).unwrap_err(), MaskError::Empty);
    assert_eq!(
        Mask::decode(b"\xFF\xD8\xFF", &table).unwrap_err(),
        MaskError::NotPng
    );
    let cut = Mask::decode(&mask[..mask.len() - 20], &table).unwrap_err();
    assert!(matches!(cut, MaskError::Png(_)), "{cut}");
}

/// A header that announces more pixels than may be allocates nothing.
#[test]
fn a_mask_of_too_many_pixels_is_refused() {
    let mut mask = png(3, 2, png::ColorType::Grayscale, png::BitDepth::One, &[0, 0], None);
    mask[16..20].copy_from_slice(&60_000u32.to_be_bytes());
    mask[20..24].copy_from_slice(&60_000u32.to_be_bytes());
    let crc = crc(&mask[12..29]);
    mask[29..33].copy_from_slice(&crc.to_be_bytes());
    let error = Mask::decode(&mask, &MaskTable::of_values([])).unwrap_err();
    assert!(
        matches!(error, MaskError::TooLarge { width: 60_000, .. }),
        "{error}"
    );
}

fn crc(bytes: &[u8]) -> u32 {
    let step =
        |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |c, _| c >> 1 ^ (0xEDB8_8320 * (c & 1)));
    !bytes.iter().fold(!0, step)
}

/// A pair by a runner is what the drawn steps make of image and mask.
#[test]
fn a_runner_draws_once_for_image_and_mask() {
    let mask = made(64, 48);
    let image = image_of(&mask);
    let image_file = png(
        64,
        48,
        png::ColorType::Rgb,
        png::BitDepth::Eight,
        &image.data,
        None,
    );
    let mask_file = png(
        64,
        48,
        png::ColorType::Grayscale,
        png::BitDepth::Eight,
        &mask.data,
        None,
    );
    let table = MaskTable::of_values((0..21).map(|v| (v, v as u8)));
    let pipeline: Pipeline = toml::from_str(
        "op = [{ type = 'RandomRotation', degrees = 20 }, { type = 'ColorJitter', hue = 0.2 }, \
         { type = 'RandomCrop', size = 32, pad_if_needed = true }, { type = 'RandomHorizontalFlip' }, { type = 'ToFloat' }]",
    )
    .unwrap();
    let mut different = 0;
    for executor in [Executor::PerOp, Executor::Fused] {
        let mut runner = Runner::new(pipeline.clone().into(), executor, DecodeOptions::default()).unwrap();
        let (mut out, mut alone) = (vec![0.0; runner.output_len()], vec![0.0; runner.output_len()]);
        let mut classes = vec![0; 32 * 32];
        for sample in 0..8 {
            let key = DrawKey {
                seed: 5,
                epoch: 1,
                sample,
            };
            runner
                .run_pair(&image_file[..], (&mask_file, &table), key, &mut out, &mut classes)
                .unwrap();
            runner.run(&image_file[..], key, &mut alone).unwrap();
            assert_eq!(out, alone);
            let steps = pipeline.draw(key, 64, 48).unwrap();
            assert_eq!(classes, perform_on_mask(executor, &steps, mask.clone()).data);
            different += usize::from(classes.contains(&Mask::IGNORE));
        }
    }
    assert!(different > 0, "no rotation showed anything outside of the image");
}

#[test]
fn a_mask_of_another_size_is_an_error_with_both_sizes() {
    let image = png(
        64,
        48,
        png::ColorType::Rgb,
        png::BitDepth::Eight,
        &[7; 64 * 48 * 3],
        None,
    );
    let mask = png(
        48,
        64,
        png::ColorType::Grayscale,
        png::BitDepth::Eight,
        &[0; 64 * 48],
        None,
    );
    let table = MaskTable::of_values([(0, 0)]);
    let pipeline = Pipeline::imagenet_eval(36, 32);
    let mut runner = Runner::new(pipeline.into(), Executor::Fused, DecodeOptions::default()).unwrap();
    let mut out = vec![0.0; runner.output_len()];
    let key = DrawKey {
        seed: 0,
        epoch: 0,
        sample: 0,
    };
    let error = runner
        .run_pair(&image[..], (&mask, &table), key, &mut out, &mut [0; 32 * 32])
        .unwrap_err();
    assert!(matches!(error, ImageError::Mask(_)));
    let text = error.to_string();
    assert!(text.contains("48x64") && text.contains("64x48"), "{text}");
}

#[test]
fn hostile_masks_are_refused_with_a_reason() {
    let values = MaskTable::of_values((0..5).map(|v| (v, v as u8)));
    let colors = MaskTable::of_colors([([0; 3], 0)]);
    let hostile =
        |name: &str| std::fs::read(format!("{}/../../hostile/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for (name, table, part) in [
        ("mask-unknown-value.png", &values, "pixel (7, 5) has the value 77"),
        ("mask-cut.png", &values, "PNG: "),
        ("mask-called.jpg", &values, "not a PNG"),
        ("mask-16-bit-colours.png", &colors, "16 bits"),
        ("mask-16-bit-colours.png", &values, "has colours"),
        ("mask-short-palette.png", &values, "the value 9"),
        ("mask-short-palette.png", &colors, "no entry 2"),
        ("mask-60000x60000.png", &values, "60000x60000 is over the limit"),
        ("empty.jpg", &values, "empty"),
        ("text.jpg", &values, "not a PNG"),
    ] {
        let error = Mask::decode(&hostile(name), table).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    // Passes of 2 bits, which end in the middle of bytes.
    let interlaced = Mask::decode(&hostile("mask-interlaced.png"), &values).unwrap();
    let expected: Vec<u8> = (0..25).map(|i| (i % 5 + i / 5) % 4).collect();
    assert_eq!(interlaced.data, expected);
}
