//! Any bytes as a JPEG that is packed: the same coefficients, pixels, and the same JPEG when it is made one again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use stokehold_fuzz::{SCALES, small_header};
use stokehold_jpeg::{
    Decoder, Input, Layout, Metadata, PackSample, PackTables, Packer, TranscodeOptions, is_packed,
};

thread_local! {
    /// Making one takes a while; and it meets one file after the other, as a worker's does.
    static BUILT_IN: RefCell<Packer> = RefCell::new(Packer::new(PackTables::built_in()));
}

/// Steps and blocks of each component.
fn coefficients(decoder: &mut Decoder, input: Input<'_>) -> Vec<([u16; 64], Vec<[i16; 64]>)> {
    let coefficients = decoder.coefficients(input).expect("an image that was packed");
    let components = coefficients.components().iter();
    let blocks = components.map(|c| {
        (
            c.steps,
            (0..c.blocks_high).flat_map(|y| c.row(y)).copied().collect(),
        )
    });
    blocks.collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Some(header) = small_header(bytes) else { return };
    // The length chooses, so that a changed byte changes nothing else.
    let options = TranscodeOptions {
        metadata: [Metadata::Keep, Metadata::Drop][bytes.len() % 2],
    };
    let scale = SCALES[bytes.len() / 2 % 4];
    let (mut decoder, mut portable) = (Decoder::new(), Decoder::portable());
    let own = (bytes.len() / 8)
        .is_multiple_of(4)
        .then(|| {
            let mut sample = PackSample::new();
            sample.add(&decoder.coefficients(bytes).ok()?);
            Some(sample.adapt(PackTables::built_in()))
        })
        .flatten();
    let packed = match &own {
        Some(tables) => decoder.pack(bytes, &mut Packer::new(tables), &options),
        None => BUILT_IN.with_borrow_mut(|packer| decoder.pack(bytes, packer, &options)),
    };
    let Ok(packed) = packed else { return };
    assert!(is_packed(&packed));
    let stored = own.map(|tables| tables.bytes());
    let input = Input {
        tables: stored.as_deref(),
        ..Input::from(&packed)
    };
    let expected = coefficients(&mut decoder, Input::from(bytes));
    assert!(
        coefficients(&mut decoder, input) == expected,
        "other coefficients"
    );
    assert!(
        coefficients(&mut portable, input) == expected,
        "other coefficients of the portable decoder"
    );
    let pixels = |decoder: &mut Decoder, input: Input<'_>| {
        let pixels = decoder.decode(input, header.full(), scale, Layout::Rgb);
        pixels.map(|pixels| pixels.data.to_vec())
    };
    let expected = pixels(&mut decoder, Input::from(bytes));
    assert!(pixels(&mut decoder, input) == expected, "other pixels");
    assert!(
        pixels(&mut portable, input) == expected,
        "other pixels of the portable decoder"
    );
    assert!(
        decoder.transcode(input, &options) == decoder.transcode(bytes, &options),
        "another JPEG"
    );
});
