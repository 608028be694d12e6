//! Any bytes as a JPEG: the header, the whole image at a scale, and a region of it and of its planes, which must be
//! the crop of the whole; of a broken file the rows there are, which must not depend on the instructions used.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::icc_profile(bytes);
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 18 {
        return;
    }
    let at = |i: usize| bytes[(i * 31) % bytes.len()];
    let scale = SCALES[usize::from(at(5)) % 4];
    let (mut decoder, mut other) = (Decoder::new(), Decoder::portable());
    let full = header.full();
    let Ok(whole) = decoder.decode(bytes, full, scale, Layout::Rgb) else {
        let rows = decoder.decode_partial(bytes, full, scale, Layout::Rgb);
        let portable = other.decode_partial(bytes, full, scale, Layout::Rgb);
        assert_eq!(rows.is_ok(), portable.is_ok());
        if let (Ok(rows), Ok(portable)) = (rows, portable) {
            assert_eq!((rows.pixels.data, rows.error), (portable.pixels.data, portable.error));
        }
        return;
    };
    let pick = |size: u32, a: u8, b: u8| {
        let from = u32::from(a) % size;
        (from, 1 + u32::from(b) % (size - from))
    };
    let ((x, width), (y, height)) = (pick(header.width, at(1), at(2)), pick(header.height, at(3), at(4)));
    let region = Region { x, y, width, height };
    let part = other.decode(bytes, region, scale, Layout::Rgb).expect("a region of an image that decodes");
    let (x, y) = (x / scale.factor(), y / scale.factor());
    for row in 0..part.height {
        assert_eq!(part.row(row), &whole.row(y + row)[3 * x as usize..][..3 * part.width as usize]);
    }
    let whole = decoder.decode_planes(bytes, full, scale).expect("planes of an image that decodes");
    let part = other.decode_planes(bytes, region, scale).expect("planes of its region");
    for (part, whole) in part.planes().iter().zip(whole.planes()) {
        for row in 0..part.height {
            let expected = &whole.row(part.y + row)[part.x as usize..][..part.width as usize];
            assert_eq!(part.row(row), expected);
        }
    }
});
