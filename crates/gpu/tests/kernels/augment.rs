//! Augmentation: SEMANTICS.md says that `gpu` gives what `fused` gives, to the bit, and so it is held here.

use crate::decode::{files, pipeline};
use crate::{assert_same, assert_same_when, gpu};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use stokehold_gpu::Decode;
use stokehold_pipeline::{DecodeOptions, Pipeline, SampleType};

/// A picture with edges and gradients at every scale.
pub fn picture(width: u16, height: u16, quality: u8, sampling: SamplingFactor) -> Vec<u8> {
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
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, quality);
    encoder.set_sampling_factor(sampling);
    encoder
        .encode(&data, width, height, ColorType::Rgb)
        .expect("a JPEG");
    out
}

pub fn pictures() -> Vec<Vec<u8>> {
    use SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2};
    vec![
        picture(161, 119, 90, F_2_2),
        picture(90, 133, 80, F_1_1),
        picture(64, 64, 95, F_2_1),
        picture(300, 211, 70, F_1_2),
        picture(37, 41, 100, F_2_2),
    ]
}

#[test]
fn presets_are_the_same_in_every_type() {
    let Some(gpu) = gpu() else { return };
    let files = pictures();
    for sample_type in [SampleType::F32, SampleType::F16, SampleType::Bf16] {
        assert_same(&gpu, &files, &Pipeline::imagenet_train(48), sample_type);
        assert_same(&gpu, &files, &Pipeline::imagenet_eval(46, 40), sample_type);
    }
}

/// Operations on levels and sharpness, which are always performed.
const LEVELS: [&str; 10] = [
    "type = \"RandomInvert\"\np = 1",
    "type = \"RandomPosterize\"\nbits = 3\np = 1",
    "type = \"RandomSolarize\"\nthreshold = 101.5\np = 1",
    "type = \"RandomAutocontrast\"\np = 1",
    "type = \"RandomEqualize\"\np = 1",
    "type = \"RandomAdjustSharpness\"\nsharpness_factor = 2.3\np = 1",
    "type = \"RandomAdjustSharpness\"\nsharpness_factor = 0\np = 1",
    "type = \"RandomPhotometricDistort\"\np = 1",
    "type = \"RandomChannelPermutation\"",
    "type = \"Grayscale\"",
];

/// A photograph of a single level, of two, of few close to each other, and of sides that nothing can be smoothed on.
fn plain() -> Vec<Vec<u8>> {
    let png = |width: u32, height: u32, level: &dyn Fn(u32) -> [u8; 3]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let data: Vec<u8> = (0..width * height).flat_map(level).collect();
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(&data).expect("an image");
        drop(writer);
        bytes
    };
    vec![
        png(40, 30, &|_| [77, 0, 255]),
        png(40, 30, &|at| {
            [if at % 7 == 0 { 255 } else { 0 }, 3, (at % 2) as u8]
        }),
        png(64, 64, &|at| {
            [90 + (at % 86) as u8, (at % 256) as u8, 17 + (at % 52) as u8]
        }),
        png(2, 40, &|at| [(at * 3) as u8, (at * 5) as u8, (at * 7) as u8]),
        png(40, 1, &|at| [(at * 3) as u8, (at * 5) as u8, (at * 7) as u8]),
    ]
}

#[test]
fn levels_and_sharpness_are_the_same() {
    let Some(gpu) = gpu() else { return };
    let files = [pictures(), plain()].concat();
    let last = "[[op]]\ntype = \"Resize\"\nsize = [33, 45]\n[[op]]\ntype = \"ToFloat\"\n";
    for op in LEVELS {
        for before in ["", "[[op]]\ntype = \"RandomRotation\"\ndegrees = 30\nfill = 60\n"] {
            let text = format!("{before}[[op]]\n{op}\n{last}");
            assert_same(&gpu, &files, &pipeline(&text), SampleType::F32);
        }
    }
}

/// Every drawn change of the policies and what the recipes put around them.
#[test]
fn policies_are_the_same() {
    let Some(gpu) = gpu() else { return };
    for policy in ["AutoAugment", "RandAugment", "TrivialAugmentWide"] {
        let text = format!(
            "[[op]]\ntype = \"RandomResizedCrop\"\nsize = 40\n[[op]]\ntype = \"RandomHorizontalFlip\"\n\
             [[op]]\ntype = \"{policy}\"\ninterpolation = \"bilinear\"\n[[op]]\ntype = \"ToFloat\"\n\
             [[op]]\ntype = \"Normalize\"\n[[op]]\ntype = \"RandomErasing\"\n"
        );
        let files = vec![[pictures(), plain()].concat(); 6].concat();
        assert_same(&gpu, &files, &pipeline(&text), SampleType::F32);
    }
}

/// An operation at random, as text.
fn op() -> impl Strategy<Value = String> {
    let filter = prop::sample::select(vec!["nearest", "bilinear", "bicubic"]);
    let fill = prop::sample::select(vec!["0", "200", "[9, 100, 250]"]);
    let mode = prop::sample::select(vec!["constant", "edge", "reflect", "symmetric"]);
    prop_oneof![
        Just("type = \"RandomHorizontalFlip\"".into()),
        Just("type = \"RandomVerticalFlip\"".into()),
        Just("type = \"Grayscale\"".into()),
        (filter.clone(), fill.clone(), any::<bool>()).prop_map(|(filter, fill, expand)| format!(
            "type = \"RandomRotation\"\ndegrees = 40\ninterpolation = \"{filter}\"\nfill = {fill}\nexpand = {expand}"
        )),
        (filter.clone(), 20u32..70).prop_map(|(filter, size)| format!(
            "type = \"RandomResizedCrop\"\nsize = {size}\ninterpolation = \"{filter}\""
        )),
        (filter.clone(), 20u32..70).prop_map(|(filter, size)| format!(
            "type = \"ScaleJitter\"\ntarget_size = [{size}, {}]\nscale_range = [0.5, 1.5]\ninterpolation = \"{filter}\"",
            90 - size
        )),
        (filter.clone(), 20u32..70).prop_map(|(filter, size)| format!(
            "type = \"RandomShortestSize\"\nmin_size = [{size}, 33]\nmax_size = 80\ninterpolation = \"{filter}\""
        )),
        (filter.clone(), 0.0f64..20.0, fill.clone()).prop_map(|(filter, shear, fill)| format!(
            "type = \"RandomAffine\"\ndegrees = 30\ntranslate = [0.1, 0.2]\nscale = [0.7, 1.4]\nshear = {shear}\n\
             interpolation = \"{filter}\"\nfill = {fill}"
        )),
        fill.clone().prop_map(|fill| format!("type = \"RandomZoomOut\"\nside_range = [1.0, 2.0]\nfill = {fill}")),
        (filter, 20u32..70).prop_map(|(filter, size)| format!(
            "type = \"Resize\"\nsize = [{size}, {}]\ninterpolation = \"{filter}\"",
            90 - size
        )),
        (1u32..9, fill, mode)
            .prop_map(|(sides, fill, mode)| format!("type = \"Pad\"\npadding = {sides}\nfill = {fill}\npadding_mode = \"{mode}\"")),
        Just("type = \"ColorJitter\"\nbrightness = 0.4\ncontrast = 0.4\nsaturation = 0.4\nhue = 0.3".into()),
        (1u32..5).prop_map(|half| format!("type = \"GaussianBlur\"\nkernel_size = {}", 2 * half + 1)),
        (1u32..4).prop_map(|half| format!("type = \"Dilation\"\nkernel_size = {}", 2 * half + 1)),
        prop::sample::select(LEVELS.to_vec()).prop_map(|op| op.to_owned()),
        prop::sample::select(vec!["AutoAugment", "RandAugment", "TrivialAugmentWide"]).prop_map(|op| format!("type = \"{op}\"")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is drawn, in whatever order.
    #[test]
    fn random_pipelines_are_the_same(
        ops in prop::collection::vec(op(), 0..6),
        erase in prop::sample::select(vec!["0", "\"random\""]),
        floats in any::<bool>(),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let mut ops = ops;
        ops.push("type = \"Resize\"\nsize = [33, 45]".into());
        ops.push("type = \"ToFloat\"".into());
        if floats {
            ops.push("type = \"Normalize\"".into());
            ops.push(format!("type = \"RandomErasing\"\np = 0.8\nvalue = {erase}"));
        }
        let text: String = ops.iter().map(|op| format!("[[op]]\n{op}\n")).collect();
        let sample_type = if floats { SampleType::F32 } else { SampleType::U8 };
        let mut all = pictures();
        all.truncate(3);
        all.extend(files(4));
        let compared = assert_same(&gpu, &all, &pipeline(&text), sample_type);
        prop_assert!(compared >= 3 * 3 * 33 * 45, "hardly any file fits");
    }
}

/// Twelve rotations before the crop: every pixel is one gathering.
#[test]
fn the_heaviest_published_load_is_the_same() {
    let Some(gpu) = gpu() else { return };
    let heaviest = Pipeline::published(12, 56);
    let compared = assert_same(&gpu, &pictures(), &heaviest, SampleType::F32);
    assert_eq!(compared, 5 * 3 * 56 * 56 * 4);
}

/// Factors with which a product that is merged with its sum gives another byte than one that is rounded before. That is rare:
/// with most factors no two bytes are blended into another one.
#[test]
fn products_are_rounded_before_they_are_added_to() {
    let Some(gpu) = gpu() else { return };
    for factor in ["1.42857146", "0.7777778"] {
        let jitter = format!(
            r#"
            [[op]]
            type = "ColorJitter"
            brightness = [1.0, 1.0]
            contrast = [{factor}, {factor}]
            saturation = [{factor}, {factor}]
            [[op]]
            type = "CenterCrop"
            size = [33, 45]
            [[op]]
            type = "ToFloat"
            "#
        );
        assert_same(&gpu, &pictures()[..3], &pipeline(&jitter), SampleType::U8);
    }
}

/// A JPEG with an orientation of EXIF, behind its first marker.
fn oriented(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let exif = b"\xFF\xE1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0";
    let value = [orientation, 0, 0, 0, 0, 0, 0, 0];
    [&jpeg[..2], exif.as_slice(), &value, &jpeg[2..]].concat()
}

#[test]
fn pictures_are_turned_upright_alike() {
    let Some(gpu) = gpu() else { return };
    let exif = DecodeOptions { exif: true };
    let resize = pipeline("[[op]]\ntype = \"Resize\"\nsize = [31, 40]\n[[op]]\ntype = \"ToFloat\"\n");
    for decode in [Decode::Hybrid, Decode::Device] {
        let made = (1..=8).map(|orientation| {
            let files: Vec<_> = pictures()
                .iter()
                .map(|jpeg| oriented(jpeg, orientation))
                .collect();
            assert_same_when(
                &gpu,
                &files,
                &Pipeline::imagenet_train(24),
                SampleType::F32,
                (exif, decode),
            );
            assert_same_when(&gpu, &files, &resize, SampleType::U8, (exif, decode))
        });
        let made: Vec<_> = made.collect();
        for (i, bytes) in made.iter().enumerate() {
            assert!(!made[..i].contains(bytes), "{} is turned as one before it", i + 1);
        }
    }
}
