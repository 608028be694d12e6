//! Any bytes, here and in libjpeg-turbo: what both decode without a word has the same coefficients and pixels, and what is
//! refused here as broken, libjpeg-turbo refuses or warns of.
//!
//! Where libjpeg-turbo refuses or warns, nothing is compared: its guesses are its own. The other legitimate
//! disagreements, named in the code below, are explained in `fuzz/README.md`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_bench_jpeg::{Said, Turbo};
use stokehold_jpeg::{Coding, ComponentCoefficients, Decoder, Error, Header, Layout, Scale};

/// All scales.
const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 16 || repeats_components(bytes, &header) {
        return;
    }
    // A new one each time: libjpeg-turbo keeps the tables of earlier files for those that have none.
    let (mut decoder, mut turbo) = (Decoder::new(), Turbo::new());

    let mut same = true;
    let mut extreme = false;
    match decoder.coefficients(bytes) {
        Ok(ours) => {
            extreme = ours.components().iter().any(is_extreme);
            let mut take = |c: usize, row: usize, blocks: &[[i16; 64]]| {
                same &= ours.components()[c].row(row) == blocks;
            };
            let theirs = turbo.coefficients(bytes, Some(&mut take));
            assert!(same || !is_silent(&theirs), "other coefficients");
        }
        Err(error) => check_refusal(&error, turbo.coefficients(bytes, None)),
    }

    // RGB from four inks is Pillow's work, not libjpeg-turbo's.
    if header.sampling.len() == 4 {
        return;
    }
    // Of the scales the length chooses, so that a changed byte changes nothing else.
    let scale = SCALES[bytes.len() % 4];
    let mut out = vec![0; 3 * header.width as usize * header.height as usize];
    let theirs = turbo.decode(bytes, None, scale, &mut out);
    match decoder.decode(bytes, header.full(), scale, Layout::Rgb) {
        Ok(ours) if is_silent(&theirs) && !extreme => {
            let row = 3 * ours.width as usize;
            for y in 0..ours.height {
                let theirs = &out[y as usize * row..][..row];
                assert_eq!(ours.row(y), theirs, "other pixels in row {y} at {scale:?}");
            }
        }
        Ok(_) => {}
        Err(error) => check_refusal(&error, theirs),
    }
});

/// Whether libjpeg-turbo decodes and has nothing to say against the file.
fn is_silent(theirs: &Result<Said, String>) -> bool {
    matches!(theirs, Ok(Said { warning: None, .. }))
}

/// Panics where a file is refused as broken that libjpeg-turbo decodes without a word, unless it is known to mend that.
fn check_refusal(error: &Error, theirs: Result<Said, String>) {
    let broken = match error {
        // It takes the bits that are missing for zeros.
        Error::Truncated(what) => *what != "before the last scan",
        // It ends the block there; it lets a scan begin anew what is complete.
        Error::Corrupt { what, .. } => {
            what != "a run of zeros that leads out of its block"
                && what != "a progressive scan that does not go on where the last one ended"
        }
        _ => false,
    };
    assert!(
        !broken || !is_silent(&theirs),
        "libjpeg-turbo decodes what is refused here: {error}"
    );
}

/// Whether a sequential file might have a component in two scans. The standard forbids it; here the last scan counts, in
/// libjpeg-turbo the zeros of a later scan leave the coefficients of an earlier one.
fn repeats_components(bytes: &[u8], header: &Header) -> bool {
    let scans = bytes.windows(2).filter(|pair| *pair == [0xFF, 0xDA]).count();
    header.coding != Coding::Progressive && scans != 1 && scans != header.sampling.len()
}

/// Whether any block's samples might lie outside -512..512, where no encoder's do, and where libjpeg-turbo's own variants
/// differ from each other.
fn is_extreme(component: &ComponentCoefficients<'_>) -> bool {
    let size = |(&value, &step): (&i16, &u16)| i64::from(value).abs() * i64::from(step);
    component
        .blocks
        .iter()
        .any(|block| block.iter().zip(&component.steps).map(size).sum::<i64>() > 4096)
}
