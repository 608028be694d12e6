//! A recorded chain against the same operations on the whole image, one after the other.

use proptest::prelude::*;
use stokehold_jpeg::{Layout, Scale};
use stokehold_pipeline::op::Interpolation;
use stokehold_pipeline::recorded::{Filter, Op, PassOrder, Performer, Recorded, Source, plain_orientation};
use stokehold_pipeline::{DecodeOptions, Executor, RgbImage, Step, decode, perform};

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            pixels.extend([(x * 7 + y) as u8, (y * 5) as u8, (x * y / 9) as u8]);
        }
    }
    let mut file = Vec::new();
    jpeg_encoder::Encoder::new(&mut file, 90)
        .encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    file
}

/// What an operation asks for, before the image's size is known.
#[derive(Debug, Clone)]
enum Asked {
    Crop {
        x: i64,
        y: i64,
        width: u32,
        height: u32,
        fill: [u8; 3],
    },
    Resize {
        width: u32,
        height: u32,
        bicubic: bool,
    },
    Transpose(u8),
    Step(Step),
}

fn asked() -> impl Strategy<Value = Asked> {
    let steps = prop::sample::select(vec![
        Step::Brightness { factor: 1.3 },
        Step::Contrast { factor: 0.5 },
        Step::Saturation { factor: 1.7 },
        Step::Sharpness { factor: 1.9 },
        Step::Equalize,
        Step::AutoContrast,
        Step::Solarize { threshold: 99.0 },
        Step::Grayscale,
    ]);
    prop_oneof![
        3 => (-9i64..40, -9i64..40, 1u32..50, 1u32..50, any::<[u8; 3]>())
            .prop_map(|(x, y, width, height, fill)| Asked::Crop { x, y, width, height, fill }),
        3 => (1u32..60, 1u32..60, any::<bool>())
            .prop_map(|(width, height, bicubic)| Asked::Resize { width, height, bicubic }),
        2 => (0u8..7).prop_map(Asked::Transpose),
        1 => steps.prop_map(Asked::Step),
    ]
}

fn perform_on(image: &RgbImage, step: &Step) -> RgbImage {
    let (floats, width, height) = perform(Executor::PerOp, std::slice::from_ref(step), image);
    let plane = floats.len() / 3;
    let byte = |at: usize| (floats[at % 3 * plane + at / 3] * 255.0).round() as u8;
    let data = (0..floats.len()).map(byte).collect();
    RgbImage { width, height, data }
}

/// The operation on all pixels.
fn whole(image: &RgbImage, op: &Asked) -> RgbImage {
    let pixel_or = |fill: [u8; 3], x: i64, y: i64| -> [u8; 3] {
        let inside = (0..i64::from(image.width)).contains(&x) && (0..i64::from(image.height)).contains(&y);
        if !inside {
            return fill;
        }
        let at = 3 * (y * i64::from(image.width) + x) as usize;
        image.data[at..at + 3].try_into().unwrap()
    };
    let pixel = |x: i64, y: i64| pixel_or([0; 3], x, y);
    let build = |width: u32, height: u32, of: &dyn Fn(i64, i64) -> [u8; 3]| {
        let places = (0..i64::from(height)).flat_map(|y| (0..i64::from(width)).map(move |x| (x, y)));
        let data = places.flat_map(|(x, y)| of(x, y)).collect();
        RgbImage { width, height, data }
    };
    let (w, h) = (i64::from(image.width), i64::from(image.height));
    match *op {
        Asked::Crop {
            x,
            y,
            width,
            height,
            fill,
        } => build(width, height, &|u, v| pixel_or(fill, x + u, y + v)),
        Asked::Resize {
            width,
            height,
            bicubic,
        } => {
            let filter = if bicubic {
                Interpolation::Bicubic
            } else {
                Interpolation::Bilinear
            };
            image.resize(width, height, filter)
        }
        Asked::Transpose(method) => match method {
            0 => build(image.width, image.height, &|x, y| pixel(w - 1 - x, y)),
            1 => build(image.width, image.height, &|x, y| pixel(x, h - 1 - y)),
            2 => build(image.height, image.width, &|x, y| pixel(w - 1 - y, x)),
            3 => build(image.width, image.height, &|x, y| pixel(w - 1 - x, h - 1 - y)),
            4 => build(image.height, image.width, &|x, y| pixel(y, h - 1 - x)),
            5 => build(image.height, image.width, &|x, y| pixel(y, x)),
            _ => build(image.height, image.width, &|x, y| pixel(w - 1 - y, h - 1 - x)),
        },
        Asked::Step(ref step) => perform_on(image, step),
    }
}

proptest! {
    #[test]
    fn a_chain_makes_the_pixels_of_its_operations(ops in prop::collection::vec(asked(), 0..5), views in 1usize..4) {
        let file = jpeg(53, 41);
        let mut expected = decode(&file, &DecodeOptions::default()).unwrap();
        let (mut recorded, mut size) = (Vec::new(), (53, 41));
        for one in &ops {
            expected = whole(&expected, one);
            let (op, of) = match *one {
                Asked::Crop { x, y, width, height, fill } => (Op::Crop { x, y, fill }, (width, height)),
                Asked::Resize { width, height, bicubic } => {
                    let filter = if bicubic { Filter::Bicubic } else { Filter::Bilinear };
                    (Op::Resize { filter, area: [0.0, 0.0, size.0 as f32, size.1 as f32] }, (width, height))
                }
                Asked::Transpose(method) if [0, 1, 3].contains(&method) => (Op::Transpose(method), size),
                Asked::Transpose(method) => (Op::Transpose(method), (size.1, size.0)),
                Asked::Step(ref step) => (Op::Step(step.clone()), size),
            };
            size = of;
            recorded.push(Recorded { op, width: size.0, height: size.1 });
        }
        let source = Source::new(&file).unwrap();
        let mut performer = Performer::default();
        let order = PassOrder::AcrossFirst;
        // The first view decodes a region, the others look at all pixels.
        for _ in 0..views {
            let mut rgb = vec![9; 3 * (size.0 * size.1) as usize];
            source.perform(&file, &recorded, order, Layout::Rgb, &mut performer, &mut rgb).unwrap();
            prop_assert_eq!(&rgb, &expected.data);
            let mut rgbx = vec![9; 4 * (size.0 * size.1) as usize];
            source.perform(&file, &recorded, order, Layout::Rgbx, &mut performer, &mut rgbx).unwrap();
            let narrow: Vec<u8> = rgbx.chunks_exact(4).flat_map(|pixel| pixel[..3].to_vec()).collect();
            prop_assert_eq!(&narrow, &expected.data);
        }
    }
}

#[test]
fn too_many_operations_are_refused() {
    let file = jpeg(20, 10);
    let source = Source::new(&file).unwrap();
    let perform = |count: usize| {
        let one = Recorded {
            op: Op::Transpose(0),
            width: 20,
            height: 10,
        };
        let (ops, mut out) = (vec![one; count], vec![0; 600]);
        source.perform(
            &file,
            &ops,
            PassOrder::AcrossFirst,
            Layout::Rgb,
            &mut Performer::default(),
            &mut out,
        )
    };
    perform(128).unwrap();
    assert_eq!(
        perform(129).unwrap_err().to_string(),
        "129 operations on one image; at most 128 are performed"
    );
}

#[test]
fn the_end_of_a_thumbnail_is_not_the_files() {
    let file = jpeg(20, 10);
    let thumbnail = [&[0xFF, 0xE1, 0, 8][..], b"own", &[0xFF, 0xD9, 0]].concat();
    let with = [&file[..2], &thumbnail, &file[2..]].concat();
    assert!(Source::new(&with).is_ok());
    assert!(Source::new(&with[..with.len() - 2]).is_err());
}

#[test]
fn markers_that_libjpeg_refuses_are_refused() {
    let file = jpeg(20, 10);
    let with = |marker: u8| [&file[..2], &[0xFF, marker, 0, 4, 1, 2], &file[2..]].concat();
    for marker in [0xE7, 0xFE, 0xDC] {
        assert!(Source::new(&with(marker)).is_ok(), "{marker:x}");
    }
    for marker in [0xC8, 0xD8, 0xDF, 0xF0, 0xFD, 0x58] {
        assert!(Source::new(&with(marker)).is_err(), "{marker:x}");
    }
}

#[test]
fn a_file_without_its_end_is_refused() {
    let file = jpeg(20, 10);
    assert!(Source::new(&file).is_ok());
    let error = Source::new(&file[..file.len() - 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "truncated JPEG: the data ends without the marker of its end"
    );
}

/// What [`Source::decode`] makes of a file.
fn decoded(file: &[u8], scale: Scale, layout: Layout, turn: Option<u8>) -> Result<Vec<u8>, String> {
    let source = Source::new(file).map_err(|error| error.to_string())?;
    let (width, height) = source.scaled_size(scale, turn);
    let mut out = vec![9; width as usize * height as usize * layout.bytes()];
    let mut performer = Performer::default();
    source
        .decode(file, scale, layout, turn, &mut performer, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(out)
}

#[test]
fn every_layout_and_turn_has_the_same_pixels() {
    let file = jpeg(53, 41);
    let source = Source::new(&file).unwrap();
    for method in (0..7).map(Some).chain([None]) {
        let (width, height) = source.scaled_size(Scale::Full, method);
        let ops = Vec::from_iter(method.map(|method| Recorded {
            op: Op::Transpose(method),
            width,
            height,
        }));
        let mut expected = vec![0; 3 * 53 * 41];
        let (order, mut performer) = (PassOrder::AcrossFirst, Performer::default());
        source
            .perform(&file, &ops, order, Layout::Rgb, &mut performer, &mut expected)
            .unwrap();
        let rgb = decoded(&file, Scale::Full, Layout::Rgb, method).unwrap();
        assert_eq!(rgb, expected);
        let mut bgr = decoded(&file, Scale::Full, Layout::Bgr, method).unwrap();
        bgr.as_chunks_mut::<3>()
            .0
            .iter_mut()
            .for_each(|pixel| pixel.reverse());
        assert_eq!(bgr, expected);
        let grey = decoded(&file, Scale::Full, Layout::Grey, method).unwrap();
        for (grey, &[r, g, b]) in grey.iter().zip(rgb.as_chunks::<3>().0) {
            let about = 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b);
            // Colours that no pixel can have were clamped.
            let clamped = [r, g, b].iter().any(|&level| level == 0 || level == 255);
            assert!(clamped || (f32::from(*grey) - about).abs() < 1.5);
        }
    }
    assert_eq!(source.scaled_size(Scale::Quarter, Some(4)), (11, 14));
    assert_eq!(
        decoded(&file, Scale::Quarter, Layout::Grey, Some(4))
            .unwrap()
            .len(),
        11 * 14
    );
    let mut out = [0; 53 * 41];
    let refused = source.perform(
        &file,
        &[],
        PassOrder::AcrossFirst,
        Layout::Grey,
        &mut Performer::default(),
        &mut out,
    );
    assert!(refused.is_err());
}

#[test]
fn what_libjpeg_warns_of_is_refused() {
    let file = jpeg(53, 41);
    let end = file.len() - 2;
    let of = |file: &[u8]| decoded(file, Scale::Full, Layout::Grey, None);
    assert!(of(&file).is_ok());
    assert!(of(&[&file[..], b"behind its end"].concat()).is_ok());
    let stray = "unsupported JPEG: bytes that belong to nothing, of which libjpeg warns";
    assert_eq!(
        of(&[&file[..end], b"stray", &file[end..]].concat()).unwrap_err(),
        stray
    );
    assert!(of(&[&file[..2], b"stray", &file[2..]].concat()).is_err());
    // Bytes that fill up are fine.
    assert!(of(&[&file[..end], &[0xFF, 0xFF], &file[end..]].concat()).is_ok());
    // What comes after the scan libjpeg reads with all its errors.
    for behind in [&[0xFF, 0xFE, 0, 4, 1, 2][..], &[0xFF, 0xD8], &[0xFF, 0x02, 0, 2]] {
        let refused = of(&[&file[..end], behind, &file[end..]].concat());
        assert!(refused.is_err(), "{behind:?}");
    }
    let mut other = file.clone();
    let jfif = other.windows(5).position(|five| five == b"JFIF\0").unwrap();
    other[jfif + 5] = 2;
    assert!(of(&other).unwrap_err().contains("another version of JFIF"));
    let mut other = file;
    let scan = other.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
    other[scan + 2 + 2 + 1 + 6 + 1] = 62;
    assert!(of(&other).is_err());
}

#[test]
fn only_plain_blocks_of_exif_turn_an_image() {
    let file = jpeg(20, 10);
    let with = |blocks: &[&[u8]]| {
        let mut all = file[..2].to_vec();
        for block in blocks {
            all.extend([0xFF, 0xE1, 0, block.len() as u8 + 2]);
            all.extend(*block);
        }
        all.extend(&file[2..]);
        plain_orientation(&all)
    };
    let block = |orientation: u8, kind: u8, count: u8| {
        let entry = [0x12, 1, kind, 0, count, 0, 0, 0, orientation, 0, 0, 0];
        [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat()
    };
    assert_eq!(with(&[]), Some(1));
    assert_eq!(with(&[b"http://ns.adobe.com/xap/1.0/\0"]), Some(1));
    assert_eq!(with(&[&block(0, 3, 1)]), Some(1));
    for orientation in 1..=8 {
        assert_eq!(with(&[&block(orientation, 3, 1)]), Some(orientation));
        assert_eq!(with(&[&block(orientation, 3, 1), b"text"]), Some(orientation));
    }
    for odd in [
        block(9, 3, 1),
        block(6, 4, 1),
        block(6, 3, 2),
        block(6, 3, 1)[..20].to_vec(),
    ] {
        assert_eq!(with(&[&odd]), None);
    }
    assert_eq!(with(&[b"text", &block(6, 3, 1)]), None);
    assert_eq!(with(&[&block(6, 3, 1), &block(6, 3, 1)]), None);
    assert_eq!(plain_orientation(b"no JPEG"), None);
}
