//! A region is the crop of the whole, bit for bit.

use crate::oracle;
use std::path::PathBuf;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

/// Compares regions of each file with the crop of its full decode.
pub fn compare(paths: &[PathBuf], regions: usize) {
    let (mut decoder, mut whole_decoder) = (Decoder::new(), Decoder::portable());
    let mut state = 1u64;
    let mut below = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) as u32) % limit
    };
    let mut compared = 0;
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let Ok(header) = Header::parse(&bytes) else {
            continue;
        };
        for layout in [Layout::Rgb, Layout::Rgbx] {
            let Ok(whole) = whole_decoder.decode(&bytes, header.full(), Scale::Full, layout) else {
                continue;
            };
            for _ in 0..regions {
                let (x, y) = (below(header.width), below(header.height));
                let (width, height) = (1 + below(header.width - x), 1 + below(header.height - y));
                let region = Region { x, y, width, height };
                let part = decoder.decode(&bytes, region, Scale::Full, layout);
                let part = part.unwrap_or_else(|error| panic!("{} {region:?}: {error}", path.display()));
                for row in 0..height {
                    let from = x as usize * layout.bytes();
                    let expected = &whole.row(y + row)[from..from + width as usize * layout.bytes()];
                    assert!(
                        part.row(row) == expected,
                        "{} {region:?}: row {row}",
                        path.display()
                    );
                }
                compared += 1;
            }
        }
    }
    println!("{compared} regions are the same");
    assert!(compared > regions * paths.len(), "hardly any file was decoded");
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
    if let Some(paths) = oracle::corpus() {
        compare(&paths, 20);
    }
}
