//! Held to libjpeg-turbo where it is not: to what it once made of files that lie here, or that are made here and always alike.

use crate::oracle::{self, Image, Oracle};
use crate::region::SCALES;
use crate::{exact, markers};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use stokehold_jpeg::{Decoder, Header, Layout, Scale};

/// Eight digits that stand for some images; a word if all are refused.
fn digest(images: &[Option<Image>]) -> String {
    if images.iter().all(Option::is_none) {
        return "refused".to_owned();
    }
    // FNV-1a.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let digest = images
        .iter()
        .flatten()
        .fold(0x811C_9DC5, |hash, (width, height, pixels)| {
            let sides = [*width, *height].into_iter().flat_map(u32::to_le_bytes);
            sides.chain(pixels.iter().copied()).fold(hash, step)
        });
    format!("{digest:08x}")
}

/// Files under one name, and the digests of their images at some scales.
fn line(
    (name, paths): &(String, Vec<PathBuf>),
    scales: &[Scale],
    image: &mut dyn FnMut(&Path, Scale) -> Option<Image>,
) -> String {
    let mut digest_at = |&scale| digest(&paths.iter().map(|path| image(path, scale)).collect::<Vec<_>>());
    let digests: Vec<String> = scales.iter().map(&mut digest_at).collect();
    format!("{name} {}", digests.join(" "))
}

fn ours(decoder: &mut Decoder, path: &Path, scale: Scale) -> Option<Image> {
    let bytes = std::fs::read(path).expect("a file");
    let header = Header::parse(&bytes).ok()?;
    let pixels = decoder.decode(&bytes, header.full(), scale, Layout::Rgb).ok()?;
    let rows = (0..pixels.height).flat_map(|y| pixels.row(y).to_vec());
    Some((pixels.width, pixels.height, rows.collect()))
}

/// Holds groups of files to a golden file, and the golden file to libjpeg-turbo where it is there.
fn hold(golden: &str, groups: &[(String, Vec<PathBuf>)], scales: &[Scale]) {
    let golden = oracle::goldens().join(golden);
    let theirs = oracle::versions().map(|versions| {
        let mut oracle = Oracle::start().expect("a Python that has versions");
        let mut text = format!("# {versions}");
        for group in groups {
            let line = line(group, scales, &mut |path, scale| oracle.scaled(path, scale).ok());
            writeln!(text, "{line}").expect("in memory");
        }
        text
    });
    if std::env::var_os("STOKEHOLD_GOLDENS").is_some() {
        std::fs::write(&golden, theirs.as_ref().expect("STOKEHOLD_TEST_PYTHON")).expect("written");
    }
    let recorded = std::fs::read_to_string(&golden).expect("the golden file");
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    if let Some(theirs) = theirs {
        assert_eq!(
            lines(&theirs),
            lines(&recorded),
            "libjpeg-turbo says otherwise now: tests/make_goldens"
        );
    }
    for mut decoder in [Decoder::new(), Decoder::portable()] {
        let mut image = |path: &Path, scale| ours(&mut decoder, path, scale);
        let all: Vec<String> = groups
            .iter()
            .map(|group| line(group, scales, &mut image))
            .collect();
        assert_eq!(all, lines(&recorded));
    }
    let refused = recorded.matches("refused").count();
    assert!(refused < groups.len(), "{refused} are refused");
}

#[test]
fn pixels_are_those_that_libjpeg_turbo_made() {
    let (_folder, mut paths) = exact::every_sampling_files(300);
    paths.extend(oracle::few());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let groups: Vec<_> = paths.into_iter().map(|path| (name(&path), vec![path])).collect();
    hold("pixels.txt", &groups, &SCALES);
}

#[test]
fn colours_are_guessed_from_markers_as_libjpeg_turbo_guesses_them() {
    let (_folder, groups) = markers::groups();
    hold("colours.txt", &groups, &[Scale::Full]);
}
