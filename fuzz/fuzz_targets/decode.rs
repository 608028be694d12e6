//! Any bytes as a whole image: no panic, and the same from every kernel and from a decoder that has been used; of a broken
//! file the rows that are there, likewise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use stokehold_fuzz::{SCALES, small_header};
use stokehold_jpeg::{Decoder, Layout};

thread_local! {
    /// It meets one file after the other, as a loader's worker does.
    static USED: RefCell<Decoder> = RefCell::new(Decoder::new());
}

fuzz_target!(|bytes: &[u8]| {
    let Some(header) = small_header(bytes) else { return };
    // Of the scales the length chooses, so that a changed byte changes nothing else.
    let scale = SCALES[bytes.len() % 4];
    USED.with_borrow_mut(|used| {
        let mut portable = Decoder::portable();
        let full = header.full();
        let ours = used.decode_partial(bytes, full, scale, Layout::Rgbx);
        let theirs = portable.decode_partial(bytes, full, scale, Layout::Rgb);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(ours.error, theirs.error);
                let (ours, theirs) = (ours.pixels, theirs.pixels);
                assert_eq!((ours.width, ours.height), (theirs.width, theirs.height));
                for y in 0..ours.height {
                    let ours = ours.row(y).chunks_exact(4).flat_map(|pixel| &pixel[..3]);
                    assert!(
                        ours.eq(theirs.row(y)),
                        "row {y} is not that of the portable kernels"
                    );
                }
            }
            (ours, theirs) => assert_eq!(ours.err(), theirs.err()),
        }
    });
});
