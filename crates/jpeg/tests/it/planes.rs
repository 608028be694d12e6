//! Planes hold what pixels are made from: upsampled and converted here, by the book, they are the decoder's
//! pixels; and those of a region are the crop of the whole's.

use crate::oracle;
use crate::region::{Regions, SCALES};
use std::path::PathBuf;
use stokehold_jpeg::{ColorModel, Decoder, Header, Layout, Plane, Region, Scale};

/// A component's value for pixel (`x`, `y`) of the image scaled by `factor`, as jdsample.c has it, from a
/// plane of a component of `width` x `height` samples.
fn upsampled(plane: &Plane<'_>, (width, height): (u32, u32), factor: u32, x: u32, y: u32) -> u8 {
    let (across, down) = (plane.pixels.0 / factor, plane.pixels.1 / factor);
    let sample = |x: u32, y: u32| u32::from(plane.row(y - plane.y)[(x - plane.x) as usize]);
    let (u, v) = (x / across, y / down);
    let beside = |at: u32, pixel: u32, size: u32| match pixel % 2 {
        0 => at.saturating_sub(1),
        _ => (at + 1).min(size - 1),
    };
    let (far_u, far_v) = (beside(u, x, width), beside(v, y, height));
    let value = match (across, down) {
        _ if factor == 8 => sample(u, v),
        (2, 1) if width > 2 => (3 * sample(u, v) + sample(far_u, v) + 1 + x % 2) / 4,
        (1, 2) => (3 * sample(u, v) + sample(u, far_v) + 1 + y % 2) / 4,
        (2, 2) if width > 2 => {
            let column = |u: u32| 3 * sample(u, v) + sample(u, far_v);
            (3 * column(u) + column(far_u) + 8 - x % 2) / 16
        }
        _ => sample(u, v),
    };
    value as u8
}

/// One pixel, from the three components' values at it.
fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let (y, cb, cr) = (f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0);
    // jdcolor.c: each product in 1/65536, rounded; green's two in one.
    let fixed = |constant: f64| (constant * 65536.0 + 0.5).floor();
    let round = |value: f64| ((value + 32768.0) / 65536.0).floor();
    let r = y + round(fixed(1.402) * cr);
    let g = y + round(-fixed(0.34414) * cb - fixed(0.71414) * cr);
    let b = y + round(fixed(1.772) * cb);
    [r, g, b].map(|v| v.clamp(0.0, 255.0) as u8)
}

fn compare(paths: &[PathBuf], regions: u32) {
    let (mut pixel_decoder, mut whole_decoder) = (Decoder::new(), Decoder::new());
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let mut random = Regions::default();
    let mut compared = 0;
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let Ok(header) = Header::parse(&bytes) else {
            continue;
        };
        for scale in SCALES {
            let Ok(whole) = whole_decoder.decode_planes(&bytes, header.full(), scale) else {
                continue;
            };
            let sizes: Vec<_> = whole.planes().iter().map(|p| (p.width, p.height)).collect();
            for i in 0..=regions {
                let region = match i {
                    0 => header.full(),
                    _ => random.next(&header),
                };
                let what = format!("{} {scale:?} {region:?}", path.display());
                let pixels = pixel_decoder
                    .decode(&bytes, region, scale, Layout::Rgb)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let decoder = &mut decoders[i as usize % 2];
                let part = decoder
                    .decode_planes(&bytes, region, scale)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                for (part, whole) in part.planes().iter().zip(whole.planes()) {
                    assert_eq!(part.pixels, whole.pixels, "{what}");
                    for y in 0..part.height {
                        let expected = &whole.row(part.y + y)[part.x as usize..][..part.width as usize];
                        assert!(part.row(y) == expected, "{what}: row {y}");
                    }
                    let last = (part.height as usize - 1) * part.stride + part.width as usize;
                    assert!(part.data.len() >= last + 64, "{what}: {} bytes", part.data.len());
                }
                let f = scale.factor();
                for (y, row) in (region.y / f..).zip(0..pixels.height) {
                    let expected = pixels.row(row).chunks_exact(3);
                    for (x, expected) in (region.x / f..).zip(expected) {
                        let value = |i: usize| upsampled(&part.planes()[i], sizes[i], f, x, y);
                        let pixel = match part.color {
                            ColorModel::Grey => [value(0); 3],
                            ColorModel::YCbCr => rgb([value(0), value(1), value(2)]),
                            ColorModel::Rgb => [value(0), value(1), value(2)],
                            ColorModel::Cmyk | ColorModel::Ycck => continue,
                        };
                        assert_eq!(expected, pixel, "{what}: pixel ({x}, {y})");
                    }
                }
                compared += 1;
            }
        }
    }
    println!("{compared} regions are the same");
    assert!(compared > 2 * paths.len(), "hardly any file was decoded");
}

#[test]
fn of_photos() {
    if let Some(paths) = oracle::data("photos") {
        compare(&paths.into_iter().step_by(40).collect::<Vec<_>>(), 2);
    }
}

#[test]
fn of_files_of_unusual_kinds() {
    if let Some(paths) = oracle::data("jpeg-corpus/valid") {
        compare(&paths, 2);
    }
}

#[test]
fn of_every_sampling() {
    let (_folder, paths) = crate::exact::every_sampling_files(200);
    compare(&paths, 4);
}

#[test]
fn a_plane_of_a_coarser_component_is_coarser_until_the_image_is_as_coarse() {
    let spec = crate::writer::Spec {
        width: 100,
        height: 50,
        factors: vec![(2, 2), (1, 1), (2, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 1,
    };
    let bytes = spec.write().bytes;
    let region = Region {
        x: 40,
        y: 20,
        width: 20,
        height: 8,
    };
    let mut decoder = Decoder::new();
    let mut places = |scale| {
        let planes = decoder.decode_planes(&bytes, region, scale).expect("planes");
        let place = |p: &Plane<'_>| (p.pixels, (p.x, p.y), (p.width, p.height));
        planes.planes().iter().map(place).collect::<Vec<_>>()
    };
    // Whole blocks: for chroma columns 19 to 30 with what upsampling looks at, so 16 to 31.
    let full = [
        ((1, 1), (40, 16), (24, 16)),
        ((2, 2), (16, 8), (16, 8)),
        ((1, 2), (40, 8), (24, 8)),
    ];
    assert_eq!(places(Scale::Full), full);
    // Columns 20 to 29 and rows 10 to 13 of the half: blocks of 4, and of 8 for the component in the middle.
    let half = [
        ((2, 2), (20, 8), (12, 8)),
        ((2, 2), (16, 8), (16, 8)),
        ((2, 4), (20, 4), (12, 4)),
    ];
    assert_eq!(places(Scale::Half), half);
}
