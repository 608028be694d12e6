//! Any bytes as an image of which a region is wanted: the crop of the whole, as pixels and as planes.
//!
//! The last eight bytes choose the region.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_fuzz::{SCALES, small_header};
use stokehold_jpeg::{Decoder, Layout, Plane, Region};

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, choice)) = bytes.split_last_chunk::<8>() else {
        return;
    };
    let Some(header) = small_header(bytes) else { return };
    let number = |i: usize| u32::from(u16::from_le_bytes([choice[i], choice[i + 1]]));
    let scale = SCALES[choice[1] as usize % 4];
    let (x, y) = (number(0) % header.width, number(2) % header.height);
    let (width, height) = (
        1 + number(4) % (header.width - x),
        1 + number(6) % (header.height - y),
    );
    let region = Region { x, y, width, height };
    let (mut decoder, mut other) = (Decoder::new(), Decoder::portable());

    let part = other.decode(bytes, region, scale, Layout::Rgb);
    let whole = decoder.decode(bytes, header.full(), scale, Layout::Rgb);
    if let Ok(whole) = whole {
        let part = part.expect("a region of an image that decodes");
        let (left, top) = (x / scale.factor(), y / scale.factor());
        for row in 0..part.height {
            let crop = &whole.row(top + row)[3 * left as usize..][..3 * part.width as usize];
            assert_eq!(part.row(row), crop, "row {row} of {region:?} at {scale:?}");
        }
    }

    let part = other.decode_planes(bytes, region, scale);
    let whole = decoder.decode_planes(bytes, header.full(), scale);
    if let Ok(whole) = whole {
        let part = part.expect("the planes of a region of an image that decodes");
        for (part, whole) in part.planes().iter().zip(whole.planes()) {
            same_samples(part, whole);
        }
    }
});

fn same_samples(part: &Plane<'_>, whole: &Plane<'_>) {
    assert_eq!(part.pixels, whole.pixels);
    for row in 0..part.height {
        let crop = &whole.row(part.y + row)[part.x as usize..][..part.width as usize];
        assert_eq!(part.row(row), crop, "row {row} of a plane");
    }
}
