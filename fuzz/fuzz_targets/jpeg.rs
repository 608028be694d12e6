//! Any bytes as a JPEG: the header, the whole image, and a region, which must be the crop of the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 18 {
        return;
    }
    let (mut decoder, mut other) = (Decoder::new(), Decoder::new());
    let Ok(whole) = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb) else { return };
    let pick = |size: u32, a: u8, b: u8| {
        let from = u32::from(a) % size;
        (from, 1 + u32::from(b) % (size - from))
    };
    let at = |i: usize| bytes[(i * 31) % bytes.len()];
    let ((x, width), (y, height)) = (pick(header.width, at(1), at(2)), pick(header.height, at(3), at(4)));
    let part = other
        .decode(bytes, Region { x, y, width, height }, Scale::Full, Layout::Rgb)
        .expect("a region of an image that decodes");
    for row in 0..height {
        assert_eq!(part.row(row), &whole.row(y + row)[3 * x as usize..3 * (x + width) as usize]);
    }
});
