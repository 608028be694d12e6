//! Decodes of whole images, at full size and scaled, are libjpeg-turbo's, bit for bit.

use crate::oracle::{self, Oracle};
use crate::region;
use crate::writer::Spec;
use std::path::{Path, PathBuf};
use stokehold_jpeg::{Decoder, Header, Layout, Scale};

/// How one file compares.
#[derive(Debug, PartialEq)]
enum Outcome {
    Same,
    Different(String),
    /// Refused by both.
    Refused,
    /// Refused by only one of them.
    RefusedHere(String),
    RefusedThere(String),
}

/// Decodes a file with every form of the decoder and in both layouts, and compares with the oracle.
fn compare_file(path: &Path, scale: Scale, decoders: &mut [Decoder; 2], oracle: &mut Oracle) -> Outcome {
    let bytes = std::fs::read(path).expect("a file");
    let expected = oracle.scaled(path, scale);
    for decoder in decoders {
        for layout in [Layout::Rgb, Layout::Rgbx] {
            let decoded =
                Header::parse(&bytes).and_then(|header| decoder.decode(&bytes, header.full(), scale, layout));
            let (pixels, (width, height, expected)) = match (decoded, &expected) {
                (Ok(pixels), Ok(expected)) => (pixels, expected),
                (Err(_), Err(_)) => return Outcome::Refused,
                (Err(error), Ok(_)) => return Outcome::RefusedHere(error.to_string()),
                (Ok(_), Err(error)) => return Outcome::RefusedThere(error.clone()),
            };
            if (pixels.width, pixels.height) != (*width, *height) {
                return Outcome::Different(format!("{width} x {height}"));
            }
            let row = 3 * *width as usize;
            let differs = |y: &u32| {
                let expected = &expected[*y as usize * row..][..row];
                let ours = pixels
                    .row(*y)
                    .chunks_exact(layout.bytes())
                    .flat_map(|pixel| &pixel[..3]);
                !ours.eq(expected)
            };
            if let Some(y) = (0..*height).find(differs) {
                return Outcome::Different(format!("row {y} ({layout:?})"));
            }
        }
    }
    Outcome::Same
}

/// Every file is the same here and there, or refused by both; most are not refused.
fn compare(paths: &[PathBuf]) {
    compare_at(&[Scale::Full], paths);
}

/// The same at several scales.
fn compare_at(scales: &[Scale], paths: &[PathBuf]) {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let jobs = paths
        .iter()
        .flat_map(|path| scales.iter().map(move |&scale| (path, scale)));
    let count = paths.len() * scales.len();
    for (path, scale) in jobs {
        match compare_file(path, scale, &mut decoders, &mut oracle) {
            Outcome::Same => {}
            Outcome::Refused => refused += 1,
            outcome => wrong.push(format!("{} {scale:?}: {outcome:?}", path.display())),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!(
        "{} images are the same, {refused} are refused by both",
        count - refused
    );
    assert!(2 * refused < count, "most files are refused");
}

const SMALLER: [Scale; 3] = [Scale::Half, Scale::Quarter, Scale::Eighth];

#[test]
fn photos() {
    if let Some(paths) = oracle::data("photos") {
        compare(&paths);
    }
}

#[test]
fn scaled_photos() {
    if let Some(paths) = oracle::data("photos") {
        compare_at(&SMALLER, &paths.into_iter().step_by(3).collect::<Vec<_>>());
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
    // Progressive files whose last scans, or the middle of one, are missing: libjpeg guesses, this crate
    // refuses.
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
        compare_at(&SMALLER, &complete);
    }
}

#[test]
fn everything_the_encoder_offers() {
    let paths = oracle::corpus();
    compare(&paths);
    compare_at(&SMALLER, &paths);
}

/// Files of all kinds of sampling, in a folder of their own: mostly factors that divide each other.
pub fn every_sampling_files(count: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
    let choices = [[1, 2, 2], [1, 2, 4], [1, 4, 4], [1, 3, 3], [1, 1, 2], [2, 3, 1]];
    sampling_files(count, 5, choices)
}

/// Files drawn from `seed`, in a folder of their own. Of each all factors are one of three.
pub fn sampling_files(count: u64, seed: u64, choices: [[u8; 3]; 6]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    let mut paths = Vec::new();
    for i in 0..count {
        let count = [1, 3, 3, 3, 4][i as usize % 5];
        let choice = choices[i as usize % 6];
        let mut factor = || choice[below(3) as usize];
        let factors: Vec<(u8, u8)> = (0..count).map(|_| (factor(), factor())).collect();
        let blocks: u32 = factors.iter().map(|(h, v)| u32::from(h * v)).sum();
        let spec = Spec {
            width: 1 + below(90) as u16,
            height: 1 + below(90) as u16,
            factors,
            restart_interval: [0, 0, 1 + below(7) as u16][below(3) as usize],
            interleaved: blocks <= 10 && below(4) > 0,
            adobe: [None, Some(0), Some(count / 2)][below(3) as usize],
            wide_steps: below(5) == 0,
            seed: i,
        };
        let path = folder.path().join(format!("{i}.jpg"));
        std::fs::write(&path, spec.write().bytes).expect("a file");
        paths.push(path);
    }
    (folder, paths)
}

#[test]
fn every_sampling() {
    let (_folder, paths) = every_sampling_files(600);
    compare(&paths);
    compare_at(&SMALLER, &paths);
    region::compare(&paths, 8);
}

/// Broken files. libjpeg fills in what is missing, so that it decodes more of them, and Pillow refuses some
/// that hold everything; what both decode must be the same.
#[test]
fn broken_files_that_decode() {
    let Some(paths) = oracle::data("jpeg-corpus/hostile") else {
        return;
    };
    let Some(mut oracle) = Oracle::start() else { return };
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let outcomes: Vec<Outcome> = paths
        .iter()
        .map(|p| compare_file(p, Scale::Full, &mut decoders, &mut oracle))
        .collect();
    let different = paths
        .iter()
        .zip(&outcomes)
        .find(|(_, outcome)| matches!(outcome, Outcome::Different(_)));
    assert_eq!(different, None);
    let count = |pass: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| pass(outcome)).count();
    let same = count(|outcome| *outcome == Outcome::Same);
    let here = count(|outcome| matches!(outcome, Outcome::RefusedHere(_)));
    let there = count(|outcome| matches!(outcome, Outcome::RefusedThere(_)));
    println!(
        "{same} of {} are the same, {here} are refused only here, {there} only there",
        paths.len()
    );
    assert!(same > 0, "no file decodes");
}
