//! Any bytes: what the header says keeps its promises, and what it refuses the decoder refuses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::icc_profile(bytes);
    match Header::parse(bytes) {
        Ok(header) => {
            assert!((1..=65535).contains(&header.width) && (1..=65535).contains(&header.height));
            assert!((1..=8).contains(&header.orientation));
            assert!(matches!(header.sampling.len(), 1 | 3 | 4));
            assert!(
                header
                    .sampling
                    .iter()
                    .all(|(h, v)| (1..=4).contains(h) && (1..=4).contains(v))
            );
            // What follows the first scan's header does not count.
            assert_eq!(Header::parse(&[bytes, &[0xFF, 0xD9]].concat()), Ok(header));
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let pixel = Region {
                x: 0,
                y: 0,
                width: 1,
                height: 1,
            };
            assert!(
                Decoder::new()
                    .decode(bytes, pixel, Scale::Full, Layout::Rgb)
                    .is_err()
            );
        }
    }
});
