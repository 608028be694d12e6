//! Transcoding keeps every pixel.

use crate::oracle::{self, Oracle};
use crate::writer::{Spec, segment};
use std::path::{Path, PathBuf};
use std::process::Command;
use stokehold_jpeg::{Coding, Decoder, Error, Header, Layout, Metadata, Scale, TranscodeOptions, transcode};

const DROP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Drop,
};
const KEEP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Keep,
};

fn pixels(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let header = Header::parse(bytes)?;
    let mut decoder = Decoder::new();
    let pixels = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb)?;
    Ok(pixels.data.to_vec())
}

/// What a transcoded file promises of itself.
fn check_scan(transcoded: &[u8]) {
    let header = Header::parse(transcoded).expect("a header");
    assert_ne!(header.coding, Coding::Progressive);
    assert_eq!(header.restart_interval, 0);
    assert!(transcoded.ends_with(&[0xFF, 0xD9]));
}

/// Transcodes a file and compares all pixels, here and at the oracle. Returns both sizes.
fn compare_file(path: &Path, oracle: &mut Oracle, folder: &Path) -> Option<[usize; 2]> {
    let bytes = std::fs::read(path).expect("a file");
    let before = pixels(&bytes);
    let transcoded = match (transcode(&bytes, &DROP), &before) {
        (Ok(transcoded), Ok(_)) => transcoded,
        (Err(_), Err(_)) => return None,
        (Err(Error::Unsupported(what)), Ok(_)) if what.contains("blocks") => return None,
        (Ok(transcoded), Err(error)) => {
            assert_eq!(pixels(&transcoded).as_ref(), Err(error), "{}", path.display());
            return None;
        }
        (Err(error), Ok(_)) => panic!("{}: {error}", path.display()),
    };
    check_scan(&transcoded);
    assert_eq!(pixels(&transcoded), before, "{}", path.display());
    let copy = folder.join("transcoded.jpg");
    std::fs::write(&copy, &transcoded).expect("a file");
    assert_eq!(oracle.pixels(&copy), oracle.pixels(path), "{}", path.display());
    let (old, new) = (
        Header::parse(&bytes).expect("a header"),
        Header::parse(&transcoded).expect("a header"),
    );
    assert_eq!((old.color, old.orientation), (new.color, new.orientation));
    // Transcoding a second time changes nothing.
    assert_eq!(transcode(&transcoded, &DROP).expect("once more"), transcoded);
    Some([bytes.len(), transcoded.len()])
}

/// Compares all files; most must be transcoded. Prints how large they became.
fn compare(paths: &[PathBuf]) -> Option<f64> {
    let mut oracle = Oracle::start()?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sizes: Vec<_> = paths
        .iter()
        .filter_map(|path| compare_file(path, &mut oracle, folder.path()))
        .collect();
    assert!(
        sizes.len() * 4 > paths.len() * 3,
        "{} of {}",
        sizes.len(),
        paths.len()
    );
    let [before, after] = sizes
        .iter()
        .fold([0, 0], |sum, size| [sum[0] + size[0], sum[1] + size[1]]);
    let ratio = after as f64 / before as f64;
    println!(
        "{} files, {before} bytes before, {after} after: {ratio:.4}",
        sizes.len()
    );
    Some(ratio)
}

#[test]
fn photos_keep_their_pixels_and_shrink() {
    if let Some(ratio) = oracle::data("photos").and_then(|paths| compare(&paths)) {
        assert!(ratio < 0.99, "{ratio}");
    }
}

#[test]
fn everything_the_encoder_offers() {
    compare(&oracle::corpus());
}

#[test]
fn files_of_unusual_kinds() {
    if let Some(paths) = oracle::data("jpeg-corpus/valid") {
        compare(&paths);
    }
}

/// All samplings, interleaved or not, with 16-bit steps and every meaning of the components.
#[test]
fn every_sampling() {
    let choices = [[1, 2, 2], [1, 1, 2], [1, 1, 4], [1, 3, 1], [1, 1, 2], [1, 1, 1]];
    let (_folder, paths) = crate::exact::sampling_files(300, 11, choices);
    compare(&paths);
}

/// `jpegtran` does the same work; the sizes must agree.
#[test]
fn sizes_are_those_of_jpegtran() {
    if Command::new("jpegtran").arg("-version").output().is_err() {
        stokehold_untested::skip("jpegtran is not there");
        return;
    }
    let Some(paths) = oracle::data("photos") else {
        return;
    };
    let mut sizes = [0, 0];
    for path in paths.iter().step_by(5) {
        let bytes = std::fs::read(path).expect("a file");
        let theirs = Command::new("jpegtran")
            .args(["-copy", "none", "-optimize"])
            .arg(path)
            .output()
            .expect("jpegtran runs")
            .stdout;
        let ours = transcode(&bytes, &DROP).expect("a photo");
        sizes = [sizes[0] + ours.len(), sizes[1] + theirs.len()];
    }
    let ratio = sizes[0] as f64 / sizes[1] as f64;
    println!("{ratio:.5} of jpegtran's bytes");
    assert!((0.99..1.0001).contains(&ratio), "{ratio}");
}

#[test]
fn metadata_is_kept_or_dropped_but_for_the_orientation() {
    let spec = Spec {
        width: 40,
        height: 30,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 3,
    };
    let plain = spec.write().bytes;
    let exif = b"Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
    let metadata = [
        segment(0xE1, exif),
        segment(0xE2, b"ICC_PROFILE\0"),
        segment(0xFE, b"a comment"),
    ]
    .concat();
    let bytes = [&plain[..2], &metadata, &plain[2..]].concat();
    let kept = transcode(&bytes, &KEEP).expect("an image");
    let dropped = transcode(&bytes, &DROP).expect("an image");
    assert_eq!(kept[2..2 + metadata.len()], metadata);
    let holds = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    assert!(!holds(&dropped, b"a comment") && !holds(&dropped, b"ICC"));
    for transcoded in [&kept, &dropped] {
        check_scan(transcoded);
        assert_eq!(Header::parse(transcoded).expect("a header").orientation, 6);
        assert_eq!(pixels(transcoded), pixels(&bytes));
    }
}

#[test]
fn what_one_scan_cannot_hold_is_refused() {
    let spec = Spec {
        width: 50,
        height: 50,
        factors: vec![(4, 2), (2, 2), (1, 1)],
        restart_interval: 0,
        interleaved: false,
        adobe: None,
        wide_steps: false,
        seed: 3,
    };
    let bytes = spec.write().bytes;
    assert!(pixels(&bytes).is_ok());
    assert!(matches!(transcode(&bytes, &DROP), Err(Error::Unsupported(what)) if what.contains("13 blocks")));
}
