//! A region is the crop of the whole, bit for bit.

use crate::oracle;
use crate::writer::Spec;
use std::path::PathBuf;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

pub const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

/// Regions that look random and are the same in every run.
#[derive(Default)]
pub struct Regions(u64);

impl Regions {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % limit
    }

    /// One within the image.
    pub fn next(&mut self, header: &Header) -> Region {
        let (x, y) = (self.below(header.width), self.below(header.height));
        let (width, height) = (
            1 + self.below(header.width - x),
            1 + self.below(header.height - y),
        );
        Region { x, y, width, height }
    }
}

/// Compares regions of each file, in all layouts and at all scales, with the crop of its whole decode.
pub fn compare(paths: &[PathBuf], regions: usize) {
    let (mut decoder, mut whole_decoder) = (Decoder::new(), Decoder::portable());
    let mut random = Regions::default();
    let mut compared = 0;
    let forms = [
        (Layout::Rgb, Scale::Full),
        (Layout::Rgbx, Scale::Full),
        (Layout::Bgr, Scale::Full),
        (Layout::Grey, Scale::Full),
        (Layout::Grey, Scale::Half),
        (Layout::Rgb, Scale::Half),
        (Layout::Rgb, Scale::Quarter),
        (Layout::Rgb, Scale::Eighth),
    ];
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let Ok(header) = Header::parse(&bytes) else {
            continue;
        };
        for (layout, scale) in forms {
            let Ok(whole) = whole_decoder.decode(&bytes, header.full(), scale, layout) else {
                continue;
            };
            for _ in 0..regions {
                let region = random.next(&header);
                let part = decoder.decode(&bytes, region, scale, layout);
                let part = part.unwrap_or_else(|error| panic!("{} {region:?}: {error}", path.display()));
                let factor = scale.factor();
                let (x, y) = (region.x / factor, region.y / factor);
                let size = (
                    (region.x + region.width).div_ceil(factor) - x,
                    (region.y + region.height).div_ceil(factor) - y,
                );
                assert_eq!((part.width, part.height), size);
                for row in 0..part.height {
                    let from = x as usize * layout.bytes();
                    let expected = &whole.row(y + row)[from..][..part.width as usize * layout.bytes()];
                    assert!(
                        part.row(row) == expected,
                        "{} {scale:?} {region:?}: row {row}",
                        path.display()
                    );
                }
                compared += 1;
            }
        }
    }
    println!("{compared} regions are the same");
    assert!(
        compared > 4 * regions * paths.len(),
        "hardly any file was decoded"
    );
}

#[test]
fn of_photos() {
    if let Some(paths) = oracle::data("photos") {
        compare(&paths.into_iter().step_by(4).collect::<Vec<_>>(), 5);
    }
}

#[test]
fn of_files_of_unusual_kinds() {
    if let Some(paths) = oracle::data("jpeg-corpus/valid") {
        compare(&paths, 5);
    }
}

#[test]
fn of_everything_the_encoder_offers() {
    compare(&oracle::corpus(), 20);
}

#[test]
fn what_lies_outside_the_image_needs_no_mcus() {
    let spec = Spec {
        width: 60,
        height: 190,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 5,
    };
    let header = Header::parse(&spec.write().bytes).expect("a header");
    let outside = [
        (0, 0, 0, 1),
        (0, 0, header.width + 1, 1),
        (0, header.height, 1, 1),
        (u32::MAX, 0, u32::MAX, 1),
    ];
    for (x, y, width, height) in outside {
        let region = Region { x, y, width, height };
        for scale in SCALES {
            assert_eq!(header.mcus(&region, scale), (0..0, 0..0), "{region:?}");
        }
    }
}
