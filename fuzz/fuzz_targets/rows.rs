//! Any bytes with a row index that lies: an error or pixels, and the right pixels where the index is right.
//!
//! The last eight bytes change the index of the file before them: two entries become other numbers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{
    Decoder, Header, Input, Layout, Metadata, Region, RowIndex, Scale, TranscodeOptions, Transcoded,
    transcode,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, change)) = bytes.split_last_chunk::<8>() else {
        return;
    };
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 18 {
        return;
    }
    let options = TranscodeOptions {
        metadata: Metadata::Drop,
    };
    let (bytes, rows) = match transcode(bytes, &options) {
        Ok(Transcoded { bytes, rows }) => (bytes, rows),
        Err(_) => (bytes.to_vec(), (0..bytes.len() as u32).step_by(50).collect()),
    };
    let mut lying = rows.clone();
    for change in change.chunks_exact(4) {
        let (at, to) = (
            usize::from(change[0]) % lying.len(),
            i16::from_le_bytes([change[1], change[2]]),
        );
        lying[at] = match change[3] % 3 {
            0 => lying[at],
            1 => lying[at].wrapping_add_signed(to.into()),
            _ => rows[to.unsigned_abs() as usize % rows.len()],
        };
    }
    let (y, height) = (header.height / 3, header.height.div_ceil(3));
    let region = Region {
        x: 0,
        y,
        width: header.width,
        height,
    };
    let mut decoder = Decoder::new();
    let mut decode = |rows: Option<&[u32]>| {
        let rows = rows.map(|offsets| RowIndex { first: 0, offsets });
        let input = Input { bytes: &bytes, rows, tables: None };
        decoder
            .decode(input, region, Scale::Full, Layout::Rgb)
            .map(|pixels| pixels.data.to_vec())
    };
    let (plain, indexed) = (decode(None), decode(Some(&lying)));
    if lying == rows && transcode(&bytes, &options).is_ok() {
        assert_eq!(plain.ok(), indexed.ok());
    }
});
