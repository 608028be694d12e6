//! Broken and adversarial files: errors, never a panic, never a hang.

use crate::oracle;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

/// Header, full decode and a region; nothing may panic. Whether the file decodes.
fn attack(decoder: &mut Decoder, bytes: &[u8]) -> bool {
    let Ok(header) = Header::parse(bytes) else {
        let all = Region {
            x: 0,
            y: 0,
            width: 1,
            height: 1,
        };
        assert!(decoder.decode(bytes, all, Scale::Full, Layout::Rgb).is_err());
        return false;
    };
    let (width, height) = (header.width.div_ceil(2), header.height.div_ceil(2));
    let middle = Region {
        x: header.width / 4,
        y: header.height / 4,
        width,
        height,
    };
    let part = decoder.decode(bytes, middle, Scale::Full, Layout::Rgbx).is_ok();
    let whole = decoder
        .decode(bytes, header.full(), Scale::Full, Layout::Rgb)
        .is_ok();
    assert!(part || !whole, "the whole decodes and a part of it does not");
    whole
}

#[test]
fn files_from_fuzzers_and_old_crashes() {
    let Some(paths) = oracle::data("jpeg-corpus/hostile") else {
        return;
    };
    let (mut decoder, mut portable) = (Decoder::new(), Decoder::portable());
    let mut decoded = 0;
    for path in &paths {
        let bytes = std::fs::read(path).expect("a file");
        let whole = attack(&mut decoder, &bytes);
        assert_eq!(attack(&mut portable, &bytes), whole, "{}", path.display());
        decoded += usize::from(whole);
    }
    println!("{decoded} of {} decode", paths.len());
}
