//! Any bytes transcoded: the pixels stay, or neither file decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{Decoder, Error, Header, Layout, Metadata, Scale, TranscodeOptions, transcode};

fn pixels(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let header = Header::parse(bytes)?;
    let mut decoder = Decoder::new();
    let pixels = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb)?;
    Ok(pixels.data.to_vec())
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 18 {
        return;
    }
    let metadata = [Metadata::Keep, Metadata::Drop][bytes.len() % 2];
    if let Ok(written) = transcode(bytes, &TranscodeOptions { metadata }) {
        assert_eq!(pixels(&written).ok(), pixels(bytes).ok());
    }
});
