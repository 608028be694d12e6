//! Any bytes as a packed image, with the tables that are built in or with changed ones: an error or an image, the same from
//! every kernel and from a decoder that has been used.
//!
//! Where the image's id of tables is not that of the built-in ones, it says how tables are changed; then it becomes theirs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use stokehold_fuzz::{SCALES, small_header};
use stokehold_jpeg::{
    Decoder, Error, Header, Input, Layout, Metadata, PackTables, Region, Scale, TranscodeOptions, is_packed,
};

thread_local! {
    /// It meets one image after the other, as a loader's worker does.
    static USED: RefCell<Decoder> = RefCell::new(Decoder::new());
}

/// The built-in tables, changed: shares move from a symbol to another in every distribution, or one byte becomes another.
/// Or none.
fn tables(change: [u8; 4]) -> Option<Vec<u8>> {
    let [what, from, to, by] = change;
    let mut bytes = PackTables::built_in().bytes();
    match what % 4 {
        0 => return None,
        1 | 2 => {
            let (from, to) = (usize::from(from % 16), usize::from(to % 16));
            for shares in bytes[8..].chunks_exact_mut(16) {
                let moved = by.min(shares[from].saturating_sub(1)).min(255 - shares[to]);
                shares[from] -= moved;
                shares[to] += moved;
            }
        }
        _ => {
            let at = usize::from(u16::from_le_bytes([from, to])) % bytes.len();
            bytes[at] = by;
        }
    }
    Some(bytes)
}

/// What the decoder makes of an image: pixels, as many rows as there are, planes and blocks of a part, coefficients.
fn all_of(decoder: &mut Decoder, input: Input<'_>, header: &Header) -> Vec<Result<Vec<u8>, Error>> {
    let scale = SCALES[input.bytes.len() % 4];
    let part = Region {
        x: header.width / 3,
        y: header.height / 3,
        width: header.width.div_ceil(3),
        height: header.height.div_ceil(3),
    };
    let mut all = Vec::new();
    let partial = decoder.decode_partial(input, header.full(), scale, Layout::Rgb);
    all.push(partial.map(|partial| match partial.error {
        Some(error) => [partial.pixels.data, error.to_string().as_bytes()].concat(),
        None => partial.pixels.data.to_vec(),
    }));
    for region in [header.full(), part] {
        let pixels = decoder.decode(input, region, scale, Layout::Rgb);
        all.push(pixels.map(|pixels| pixels.data.to_vec()));
    }
    all.push(decoder.decode_planes(input, part, scale).map(|planes| {
        let planes = planes.planes().iter();
        let rows = planes.flat_map(|plane| (0..plane.height).flat_map(|y| plane.row(y).to_vec()));
        rows.collect()
    }));
    all.push(decoder.decode_blocks(input, part, scale).map(|blocks| {
        let components = blocks.components().iter();
        let heads = components.flat_map(|component| {
            component.heads.iter().flat_map(|head| {
                let values = &component.values[head.first as usize..][..head.mask.count_ones() as usize];
                let values = values.iter().flat_map(|value| value.to_le_bytes());
                head.mask.to_le_bytes().into_iter().chain(values)
            })
        });
        heads.collect()
    }));
    all.push(decoder.coefficients(input).map(|coefficients| {
        let components = coefficients.components().iter();
        let blocks = components.flat_map(|c| (0..c.blocks_high).flat_map(|y| c.row(y)));
        blocks.flatten().flat_map(|value| value.to_le_bytes()).collect()
    }));
    all
}

fuzz_target!(|bytes: &[u8]| {
    if !is_packed(bytes) {
        return;
    }
    let Some(header) = small_header(bytes) else { return };
    let mut bytes = bytes.to_vec();
    let Some(id) = bytes[4..].first_chunk() else {
        return;
    };
    let tables = match u32::from_le_bytes(*id) == PackTables::built_in().id() {
        true => None,
        false => tables(*id),
    };
    if let Some(tables) = &tables {
        match PackTables::parse(tables) {
            Ok(parsed) => {
                assert_eq!(parsed.bytes(), *tables);
                bytes[4..8].copy_from_slice(&parsed.id().to_le_bytes());
            }
            Err(Error::Tables(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let input = Input {
        tables: tables.as_deref(),
        ..Input::from(&bytes)
    };
    let mut portable = Decoder::portable();
    let expected = all_of(&mut portable, input, &header);
    USED.with_borrow_mut(|used| {
        assert!(
            all_of(used, input, &header) == expected,
            "the portable kernels give something else"
        );
    });
    let [_, whole, part, planes, blocks, coefficients] = &expected[..] else {
        panic!("as many as there are ways");
    };
    // There are samplings of which the coefficients can be had and the pixels not.
    let unsupported = matches!(whole, Err(Error::Unsupported(_)));
    // At an eighth of the size first coefficients alone are read, and damage behind them is not found.
    let reads_all = SCALES[bytes.len() % 4] != Scale::Eighth;
    assert!(unsupported || whole.is_ok() == coefficients.is_ok() || (whole.is_ok() && !reads_all));
    if whole.is_ok() && coefficients.is_ok() {
        assert!(
            part.is_ok() && planes.is_ok() && blocks.is_ok(),
            "the whole decodes and a part does not"
        );
        let options = TranscodeOptions {
            metadata: Metadata::Drop,
        };
        // Values that no JPEG can hold are refused.
        if let Ok(again) = portable.transcode(input, &options) {
            let scale = SCALES[bytes.len() % 4];
            let pixels = portable.decode(&again.bytes, header.full(), scale, Layout::Rgb);
            let pixels = pixels.map(|pixels| pixels.data.to_vec());
            assert!(pixels == *whole, "the JPEG made of it has other pixels");
        }
    }
});
