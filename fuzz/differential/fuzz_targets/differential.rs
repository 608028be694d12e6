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
    if has_a_large_frame(bytes) {
        return;
    }
    // A new one each time: libjpeg-turbo keeps the tables of earlier files for those that have none.
    let (mut decoder, mut turbo) = (Decoder::new(), Turbo::new());
    let header = match Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => return check_refusal(&error, false, || turbo.coefficients(bytes, None)),
    };
    let sequential = header.coding != Coding::Progressive;
    if sequential && has_fill_before_stuffing(bytes) {
        return;
    }

    // Of the scales the length chooses, so that a changed byte changes nothing else.
    let scale = SCALES[bytes.len() % 4];
    let mut extreme = false;
    match decoder.coefficients(bytes) {
        Ok(ours) => {
            extreme = ours
                .components()
                .iter()
                .any(|component| is_extreme(component, scale));
            let mut same = true;
            let mut take = |c: usize, row: usize, blocks: &[[i16; 64]]| {
                same &= ours.components()[c].row(row) == blocks;
            };
            let theirs = turbo.coefficients(bytes, Some(&mut take));
            let more = sequential && has_more_than_a_whole_scan(bytes, header.sampling.len());
            assert!(same || more || !is_silent(&theirs), "other coefficients");
        }
        Err(error) => check_refusal(&error, sequential, || turbo.coefficients(bytes, None)),
    }

    // RGB from four inks is Pillow's work, not libjpeg-turbo's.
    if header.sampling.len() == 4 {
        return;
    }
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
        Err(error) => check_refusal(&error, sequential, || theirs),
    }
});

/// Whether the bytes might hold a frame header of more pixels than a fuzzer has time and memory for.
fn has_a_large_frame(bytes: &[u8]) -> bool {
    let pixels = |frame: &[u8]| {
        u32::from(u16::from_be_bytes([frame[5], frame[6]]))
            * u32::from(u16::from_be_bytes([frame[7], frame[8]]))
    };
    let is_frame = |bytes: &&[u8]| bytes[0] == 0xFF && (0xC0..=0xC2).contains(&bytes[1]);
    bytes
        .windows(9)
        .filter(is_frame)
        .any(|frame| pixels(frame) > 1 << 16)
}

/// Whether libjpeg-turbo decodes and has nothing to say against the file.
fn is_silent(theirs: &Result<Said, String>) -> bool {
    matches!(theirs, Ok(Said { warning: None, .. }))
}

/// Panics where a file is refused as broken that libjpeg-turbo decodes without a word, unless it is known to mend that.
fn check_refusal(error: &Error, sequential: bool, theirs: impl FnOnce() -> Result<Said, String>) {
    let broken = match error {
        // It takes the bits that are missing for zeros.
        Error::Truncated(what) => *what != "before the last scan",
        // The fast one of its two readers of sequential scans takes them for a symbol 0 and says nothing.
        Error::Corrupt { what, .. } if what == "bits that are no Huffman code" => !sequential,
        // It ends the block there; it lets a scan begin again what is complete, and adds a second scan to the first.
        Error::Corrupt { what, .. } => {
            what != "a run of zeros that leads out of its block"
                && what != "a progressive scan that does not go on where the last one ended"
                && what != "a component in two scans"
        }
        _ => false,
    };
    assert!(
        !broken || !is_silent(&theirs()),
        "libjpeg-turbo decodes what is refused here: {error}"
    );
}

/// Whether coded data might hold fill bytes before a stuffed FF (FF FF 00), which the standard allows only before markers.
/// libjpeg-turbo's fast reader of sequential MCUs takes them for a marker and reads on in zero bits, until its careful
/// reader starts the MCU again; what the fast one wrote stays.
fn has_fill_before_stuffing(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|three| three == [0xFF, 0xFF, 0])
}

/// Whether there might be scans next to one of all components. They are not looked at here; libjpeg-turbo's reader of
/// coefficients adds them.
fn has_more_than_a_whole_scan(bytes: &[u8], components: usize) -> bool {
    let scans = || bytes.windows(5).filter(|five| five[..2] == [0xFF, 0xDA]);
    scans().count() > 1 && scans().any(|scan| usize::from(scan[4]) == components)
}

/// Whether the transform of a block might overflow, where libjpeg-turbo's own variants differ from each other: a column
/// of coefficients that come to 8192, or, where blocks become one sample, a DC beyond what its table of limits holds.
///
/// No encoder comes near. A block of 8-bit samples has a norm of at most 8 x 128, so a column of eight at most 1024 x √8, about
/// 2900, and rounding to multiples of steps up to 255 adds at most 8 x 127.5.
fn is_extreme(component: &ComponentCoefficients<'_>, scale: Scale) -> bool {
    component.blocks.iter().any(|block| {
        let size = |place: usize| i64::from(block[place]).abs() * i64::from(component.steps[place]);
        let column = |x: usize| (0..8).map(|y| size(8 * y + x)).sum::<i64>();
        (0..8).any(|x| column(x) >= 8192) || scale == Scale::Eighth && size(0) >= 4092
    })
}
