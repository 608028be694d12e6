//! Any bytes, here and in libjpeg-turbo: where both decode, pixels and coefficients are the same.
//!
//! Which disagreements are legitimate, and why, is written in `../README.md`; here stands what they are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use stokehold_bench_jpeg::{Said, Turbo};
use stokehold_jpeg::{ComponentCoefficients, Decoder, Error, Header, Layout, Scale};

/// All scales.
const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

thread_local! {
    static TURBO: RefCell<Turbo> = RefCell::new(Turbo::new());
}

fuzz_target!(|bytes: &[u8]| TURBO.with_borrow_mut(|turbo| compare(bytes, turbo)));

fn compare(bytes: &[u8], turbo: &mut Turbo) {
    let Ok(header) = Header::parse(bytes) else { return };
    if u64::from(header.width) * u64::from(header.height) > 1 << 16 {
        return;
    }
    // Of the scales the length chooses, so that a changed byte changes nothing else.
    let scale = SCALES[bytes.len() % 4];
    let mut decoder = Decoder::new();
    let mut out = vec![0; 3 * header.width as usize * header.height as usize];

    let mut same = true;
    let mut extreme = false;
    match decoder.coefficients(bytes) {
        Ok(ours) => {
            extreme = ours.components().iter().any(is_extreme);
            let mut take = |c: usize, row: usize, blocks: &[[i16; 64]]| {
                same &= ours.components()[c].row(row) == blocks;
            };
            // An error may lie behind the last scan; whether it does shows when pixels are compared.
            if turbo.coefficients(bytes, Some(&mut take)).is_ok() {
                assert!(same, "other coefficients");
            }
        }
        Err(error) => refused(&error, turbo.coefficients(bytes, None)),
    }

    // RGB from four inks is Pillow's work, not libjpeg-turbo's.
    if header.sampling.len() == 4 {
        return;
    }
    let theirs = turbo.decode(bytes, None, scale, &mut out);
    match (decoder.decode(bytes, header.full(), scale, Layout::Rgb), theirs) {
        (Ok(_), Err(error)) => panic!("libjpeg-turbo refuses what decodes here: {error}"),
        (Ok(ours), Ok(said)) => {
            assert_eq!((ours.width, ours.height), (said.width, said.height));
            let row = 3 * ours.width as usize;
            for y in 0..ours.height {
                let same = ours.row(y) == &out[y as usize * row..][..row];
                assert!(
                    same || extreme && scale == Scale::Eighth,
                    "other pixels in row {y} at {scale:?}"
                );
            }
        }
        (Err(error), theirs) => refused(&error, theirs),
    }
}

/// What is refused here, libjpeg-turbo refuses too or warns of, unless it is of a kind that is not decoded here.
fn refused(error: &Error, theirs: Result<Said, String>) {
    let broken = match error {
        Error::Truncated("before the last scan") => false,
        Error::Corrupt { .. } | Error::Truncated(_) => true,
        _ => false,
    };
    if let (true, Ok(Said { warning: None, .. })) = (broken, theirs) {
        panic!("libjpeg-turbo decodes without a warning what is refused here: {error}");
    }
}

/// Whether any block's samples might lie outside -512..512, where no encoder's do.
fn is_extreme(component: &ComponentCoefficients<'_>) -> bool {
    let size = |(&value, &step): (&i16, &u16)| i64::from(value).abs() * i64::from(step);
    component
        .blocks
        .iter()
        .any(|block| block.iter().zip(&component.steps).map(size).sum::<i64>() > 4096)
}
