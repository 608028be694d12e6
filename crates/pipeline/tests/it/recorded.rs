//! A recorded chain against the same operations on the whole image, one after the other.

use proptest::prelude::*;
use stokehold_jpeg::{Layout, Region, Scale, plain_orientation};
use stokehold_pipeline::op::Filter;
use stokehold_pipeline::recorded::{Op, PassOrder, Performer, Recorded, Source};
use stokehold_pipeline::{Executor, RgbImage, Step, perform};

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
enum UnsizedOp {
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
    /// Of all but the first columns and the last rows.
    Reduce {
        factor: [u32; 2],
        less: u32,
    },
    Transpose(u8),
    Grey,
    Step(Step),
}

impl UnsizedOp {
    /// The part that is reduced of an image of this size.
    fn part(&self, (width, height): (u32, u32)) -> Region {
        let &UnsizedOp::Reduce { less, .. } = self else {
            panic!("all of it")
        };
        let less = [width, height].map(|side| less.min(side - 1));
        Region {
            x: less[0],
            y: 0,
            width: width - less[0],
            height: height - less[1],
        }
    }
}

fn asked() -> impl Strategy<Value = UnsizedOp> {
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
            .prop_map(|(x, y, width, height, fill)| UnsizedOp::Crop { x, y, width, height, fill }),
        3 => (1u32..60, 1u32..60, any::<bool>())
            .prop_map(|(width, height, bicubic)| UnsizedOp::Resize { width, height, bicubic }),
        2 => (0u8..7).prop_map(UnsizedOp::Transpose),
        2 => ([1u32..6, 1u32..6], 0u32..9).prop_map(|(factor, less)| UnsizedOp::Reduce { factor, less }),
        1 => Just(UnsizedOp::Grey),
        1 => steps.prop_map(UnsizedOp::Step),
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
fn whole(image: &RgbImage, op: &UnsizedOp) -> RgbImage {
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
        UnsizedOp::Crop {
            x,
            y,
            width,
            height,
            fill,
        } => build(width, height, &|u, v| pixel_or(fill, x + u, y + v)),
        UnsizedOp::Resize {
            width,
            height,
            bicubic,
        } => {
            let filter = if bicubic {
                Filter::Bicubic
            } else {
                Filter::Bilinear
            };
            image.resize(width, height, filter)
        }
        UnsizedOp::Transpose(method) => match method {
            0 => build(image.width, image.height, &|x, y| pixel(w - 1 - x, y)),
            1 => build(image.width, image.height, &|x, y| pixel(x, h - 1 - y)),
            2 => build(image.height, image.width, &|x, y| pixel(w - 1 - y, x)),
            3 => build(image.width, image.height, &|x, y| pixel(w - 1 - x, h - 1 - y)),
            4 => build(image.height, image.width, &|x, y| pixel(y, h - 1 - x)),
            5 => build(image.height, image.width, &|x, y| pixel(y, x)),
            _ => build(image.height, image.width, &|x, y| pixel(w - 1 - y, h - 1 - x)),
        },
        UnsizedOp::Reduce { factor, .. } => {
            let part = op.part((image.width, image.height));
            let [across, down] = factor.map(i64::from);
            let (left, right, bottom) = (i64::from(part.x), w, i64::from(part.height));
            build(
                part.width.div_ceil(factor[0]),
                part.height.div_ceil(factor[1]),
                &|x, y| {
                    let columns = left + x * across..(left + (x + 1) * across).min(right);
                    let rows = y * down..((y + 1) * down).min(bottom);
                    let block = Vec::from_iter(rows.flat_map(|y| columns.clone().map(move |x| pixel(x, y))));
                    let count = block.len() as u64;
                    // As integers; Pillow's reciprocal is cut off, too.
                    std::array::from_fn(|c| {
                        let sum: u64 = block.iter().map(|pixel| u64::from(pixel[c])).sum();
                        (((sum + count / 2) * ((1 << 24) / count)) >> 24) as u8
                    })
                },
            )
        }
        UnsizedOp::Grey => build(image.width, image.height, &|x, y| {
            let [r, g, b] = pixel(x, y).map(u32::from);
            [((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8; 3]
        }),
        UnsizedOp::Step(ref step) => perform_on(image, step),
    }
}

/// The operation as it is recorded on an image of this size, with the size that it makes.
fn recorded(one: &UnsizedOp, size: (u32, u32)) -> Recorded {
    let (op, (width, height)) = match *one {
        UnsizedOp::Crop {
            x,
            y,
            width,
            height,
            fill,
        } => (Op::Crop { x, y, fill }, (width, height)),
        UnsizedOp::Resize {
            width,
            height,
            bicubic,
        } => {
            let filter = if bicubic {
                Filter::Bicubic
            } else {
                Filter::Bilinear
            };
            let area = [0.0, 0.0, size.0 as f32, size.1 as f32];
            (Op::Resize { filter, area }, (width, height))
        }
        UnsizedOp::Reduce { factor, .. } => {
            let area = one.part(size);
            let made = (area.width.div_ceil(factor[0]), area.height.div_ceil(factor[1]));
            (Op::Reduce { factor, area }, made)
        }
        UnsizedOp::Transpose(method) if [0, 1, 3].contains(&method) => (Op::Transpose(method), size),
        UnsizedOp::Transpose(method) => (Op::Transpose(method), (size.1, size.0)),
        UnsizedOp::Grey => (Op::ToGrey, size),
        UnsizedOp::Step(ref step) => (Op::Step(step.clone()), size),
    };
    Recorded { op, width, height }
}

/// Every `step`-th byte of pixels.
fn levels(pixels: &[u8], step: usize) -> Vec<u8> {
    pixels.iter().copied().step_by(step).collect()
}

proptest! {
    #[test]
    fn a_chain_makes_the_pixels_of_its_operations(
        ops in prop::collection::vec(asked(), 0..5),
        scale in prop::sample::select(vec![Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth]),
        begins_grey: bool,
        views in 1usize..4,
    ) {
        let file = jpeg(53, 41);
        let source = Source::new(&file).unwrap().drafted(scale, begins_grey);
        let (mut size, mut grey) = (source.size(&[]), begins_grey);
        let mut data = decoded(&file, scale, if grey { Layout::Grey } else { Layout::Rgb }, None).unwrap();
        if grey {
            data = data.iter().flat_map(|&level| [level; 3]).collect();
        }
        let mut expected = RgbImage { width: size.0, height: size.1, data };
        let mut chain = Vec::new();
        for one in &ops {
            // Colours change in RGB alone, and only RGB becomes grey.
            if grey && matches!(one, UnsizedOp::Grey | UnsizedOp::Step(_)) {
                chain.push(Recorded { op: Op::ToRgb, width: size.0, height: size.1 });
                grey = false;
            }
            let mut one = one.clone();
            if let (true, UnsizedOp::Crop { fill, .. }) = (grey, &mut one) {
                *fill = [fill[0]; 3];
            }
            expected = whole(&expected, &one);
            chain.push(recorded(&one, size));
            size = source.size(&chain);
            grey |= matches!(one, UnsizedOp::Grey);
        }
        prop_assert_eq!(source.is_grey(&chain), Some(grey));
        let mut performer = Performer::default();
        // The first view decodes a region, the others look at all pixels.
        for _ in 0..views {
            for layout in [Layout::Grey, Layout::Rgb, Layout::Rgbx] {
                let bytes = layout.bytes();
                let mut out = vec![9; bytes * (size.0 * size.1) as usize];
                let made = source.perform(&file, &chain, PassOrder::LargerFirst, layout, &mut performer, &mut out);
                prop_assert_eq!(made.is_ok(), grey == (layout == Layout::Grey));
                for channel in 0..if made.is_ok() { bytes.min(3) } else { 0 } {
                    prop_assert_eq!(levels(&out[channel..], bytes), levels(&expected.data[channel..], 3));
                }
            }
        }
    }
}

/// What [`Source::perform`] makes of a file, into as many bytes as are given.
fn performed(file: &[u8], ops: &[Recorded], layout: Layout, bytes: usize) -> Result<Vec<u8>, String> {
    let (order, mut performer, mut out) = (PassOrder::LargerFirst, Performer::default(), vec![0; bytes]);
    let source = Source::new(file).map_err(|error| error.to_string())?;
    source
        .perform(file, ops, order, layout, &mut performer, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(out)
}

/// The file with other bytes behind its first marker.
fn with(file: &[u8], bytes: &[u8]) -> Vec<u8> {
    [&file[..2], bytes, &file[2..]].concat()
}

#[test]
fn rejects_operations_that_do_not_apply() {
    let file = jpeg(20, 10);
    let made = |op, width, height| Recorded { op, width, height };
    let area = Region {
        x: 4,
        y: 0,
        width: 16,
        height: 10,
    };
    let reduce = |factor| Op::Reduce { factor, area };
    let applies = |grey: bool, op: Op, width, height| {
        let source = Source::new(&file).unwrap().drafted(Scale::Full, grey);
        source.is_grey(&[made(op, width, height)]).is_some()
    };
    assert!(applies(false, Op::ToGrey, 20, 10) && !applies(true, Op::ToGrey, 20, 10));
    assert!(applies(true, Op::ToRgb, 20, 10) && !applies(false, Op::ToRgb, 20, 10));
    assert!(!applies(true, Op::Step(Step::Equalize), 20, 10));
    assert!(applies(true, reduce([3, 4]), 6, 3) && !applies(true, reduce([3, 4]), 5, 3));
    assert!(!applies(false, reduce([0, 4]), 6, 3));
}

#[test]
fn too_many_operations_are_refused() {
    let file = jpeg(20, 10);
    let perform = |count: usize| {
        let one = Recorded {
            op: Op::Transpose(0),
            width: 20,
            height: 10,
        };
        performed(&file, &vec![one; count], Layout::Rgb, 600)
    };
    perform(128).unwrap();
    assert_eq!(
        perform(129).unwrap_err(),
        "129 operations on one image; at most 128 are performed"
    );
}

#[test]
fn the_end_of_a_thumbnail_is_not_the_files() {
    let file = jpeg(20, 10);
    let thumbnail = [&[0xFF, 0xE1, 0, 8][..], b"own", &[0xFF, 0xD9, 0]].concat();
    let whole = with(&file, &thumbnail);
    assert!(Source::new(&whole).is_ok());
    assert!(Source::new(&whole[..whole.len() - 2]).is_err());
}

#[test]
fn markers_that_libjpeg_refuses_are_refused() {
    let file = jpeg(20, 10);
    let source = |marker: u8| Source::new(&with(&file, &[0xFF, marker, 0, 4, 1, 2]));
    for marker in [0xE7, 0xFE, 0xDC] {
        assert!(source(marker).is_ok(), "{marker:x}");
    }
    for marker in [0xC8, 0xD8, 0xDF, 0xF0, 0xFD, 0x58] {
        assert!(source(marker).is_err(), "{marker:x}");
    }
}

#[test]
fn a_file_without_its_end_is_refused() {
    let file = jpeg(20, 10);
    assert!(Source::new(&file).is_ok());
    let error = Source::new(&file[..file.len() - 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "truncated JPEG: the data ends before the end of the image"
    );
    // However much follows.
    assert!(Source::new(&[&file, &[0; 9000][..]].concat()).is_ok());
    let cut = [&file[..file.len() - 2], &[0; 9000]].concat();
    assert!(Source::new(&cut).is_err());
}

#[test]
fn segments_after_the_last_scan_are_refused() {
    let file = jpeg(20, 10);
    for segment in [
        &[0xFF, 0xD8][..],
        &[0xFF, 0xDB, 0, 1],
        &[0xFF, 0xFE, 0, 3, 1],
        &[0xFF, 0xDA, 0, 2],
        &[0xFF, 0xC0, 0, 2],
    ] {
        let inserted = [&file[..file.len() - 2], segment, &[0xFF, 0xD9]].concat();
        assert!(Source::new(&inserted).is_err(), "{segment:x?}");
    }
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
        let expected = performed(&file, &ops, Layout::Rgb, 3 * 53 * 41).unwrap();
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
    assert!(performed(&file, &[], Layout::Grey, 53 * 41).is_err());
}

#[test]
fn rejects_files_that_libjpeg_warns_of() {
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
    assert!(of(&with(&file, b"stray")).is_err());
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
    let found = |blocks: &[&[u8]]| {
        let segment = |block: &&[u8]| [&[0xFF, 0xE1, 0, block.len() as u8 + 2], *block].concat();
        plain_orientation(&with(&file, &Vec::from_iter(blocks.iter().flat_map(segment))))
    };
    let block = |orientation: u8, kind: u8, count: u8| {
        let entry = [0x12, 1, kind, 0, count, 0, 0, 0, orientation, 0, 0, 0];
        [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat()
    };
    assert_eq!(found(&[]), Some(1));
    assert_eq!(found(&[b"http://ns.adobe.com/xap/1.0/\0"]), Some(1));
    assert_eq!(found(&[&block(0, 3, 1)]), Some(1));
    for orientation in 1..=8 {
        assert_eq!(found(&[&block(orientation, 3, 1)]), Some(orientation));
        assert_eq!(found(&[&block(orientation, 3, 1), b"text"]), Some(orientation));
    }
    for odd in [
        block(9, 3, 1),
        block(6, 4, 1),
        block(6, 3, 2),
        block(6, 3, 1)[..20].to_vec(),
    ] {
        assert_eq!(found(&[&odd]), None);
    }
    assert_eq!(found(&[b"text", &block(6, 3, 1)]), None);
    assert_eq!(found(&[&block(6, 3, 1), &block(6, 3, 1)]), None);
    assert_eq!(plain_orientation(b"no JPEG"), None);
}
