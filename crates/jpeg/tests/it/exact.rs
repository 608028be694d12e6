//! Full decodes are libjpeg-turbo's, bit for bit.

use crate::oracle::{self, Oracle};
use std::path::PathBuf;
use stokehold_jpeg::{Decoder, Header, Layout, Scale};

/// Decodes each file with every form of the decoder and in both layouts, and compares with the oracle.
fn compare(paths: &[PathBuf]) {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let expected = oracle.pixels(path);
        for decoder in &mut decoders {
            for layout in [Layout::Rgb, Layout::Rgbx] {
                let decoded = Header::parse(&bytes)
                    .and_then(|header| decoder.decode(&bytes, header.full(), Scale::Full, layout));
                let (pixels, (width, height, expected)) = match (decoded, &expected) {
                    (Ok(pixels), Ok(expected)) => (pixels, expected),
                    (Err(ours), Err(_)) => {
                        println!("{}: neither decodes: {ours}", path.display());
                        continue;
                    }
                    (ours, theirs) => {
                        let (ours, theirs) = (ours.map(|_| "decodes"), theirs.as_ref().map(|_| "decodes"));
                        wrong.push(format!("{}: {ours:?} here, {theirs:?} there", path.display()));
                        continue;
                    }
                };
                assert_eq!(
                    (pixels.width, pixels.height),
                    (*width, *height),
                    "{}",
                    path.display()
                );
                let row = 3 * *width as usize;
                let differing = (0..*height).find(|&y| {
                    let expected = &expected[y as usize * row..][..row];
                    let ours = pixels
                        .row(y)
                        .chunks_exact(layout.bytes())
                        .flat_map(|pixel| &pixel[..3]);
                    !ours.eq(expected)
                });
                if let Some(y) = differing {
                    wrong.push(format!("{}: row {y} differs ({layout:?})", path.display()));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        4 * paths.len(),
        wrong.join("\n")
    );
    println!("{} files are the same", paths.len());
}

#[test]
fn photos() {
    if let Some(paths) = oracle::data("photos") {
        compare(&paths);
    }
}

#[test]
fn clothing() {
    if let Some(paths) = oracle::data("clothing") {
        compare(&paths.into_iter().step_by(17).collect::<Vec<_>>());
    }
}

#[test]
fn files_of_unusual_kinds() {
    // Progressive files whose last scans, or the middle of one, are missing: libjpeg guesses, this crate refuses.
    let incomplete = [
        "ref_partial_progressive.jpg",
        "ref_progressive-missing-ac.jpg",
        "ref_progressive-missing-dc.jpg",
    ];
    if let Some(paths) = oracle::data("jpeg-corpus/valid") {
        let is_incomplete = |path: &PathBuf| incomplete.iter().any(|name| path.ends_with(name));
        let (incomplete, complete): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(is_incomplete);
        for path in incomplete {
            let bytes = std::fs::read(&path).expect("a file");
            let header = Header::parse(&bytes).expect("a header");
            let decoded = Decoder::new()
                .decode(&bytes, header.full(), Scale::Full, Layout::Rgb)
                .map(|_| ());
            assert!(decoded.is_err(), "{} decodes", path.display());
        }
        compare(&complete);
    }
}

#[test]
fn everything_the_encoder_offers() {
    if let Some(paths) = oracle::corpus() {
        compare(&paths);
    }
}
