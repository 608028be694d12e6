//! Held to libjpeg-turbo where it is not: to what it once made of files that lie here, or that are made here and always alike.

use crate::exact;
use crate::oracle::{self, Image, Oracle};
use crate::region::SCALES;
use std::fmt::Write;
use std::path::Path;
use stokehold_jpeg::{Decoder, Header, Layout};

/// Eight digits that stand for an image; a word for none.
fn digest(image: Option<Image>) -> String {
    let Some((width, height, pixels)) = image else {
        return "refused".to_owned();
    };
    let sides = [width, height].into_iter().flat_map(u32::to_le_bytes);
    // FNV-1a.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", sides.chain(pixels).fold(0x811C_9DC5, step))
}

/// A line: the file's name and the digests of its image at all scales.
fn line(name: &str, image: impl FnMut(stokehold_jpeg::Scale) -> Option<Image>) -> String {
    let digests: Vec<String> = SCALES.into_iter().map(image).map(digest).collect();
    format!("{name} {}", digests.join(" "))
}

fn ours(decoder: &mut Decoder, bytes: &[u8], scale: stokehold_jpeg::Scale) -> Option<Image> {
    let header = Header::parse(bytes).ok()?;
    let pixels = decoder.decode(bytes, header.full(), scale, Layout::Rgb).ok()?;
    let rows = (0..pixels.height).flat_map(|y| pixels.row(y).to_vec());
    Some((pixels.width, pixels.height, rows.collect()))
}

#[test]
fn pixels_are_those_that_libjpeg_turbo_made() {
    let golden = oracle::goldens().join("pixels.txt");
    let (_folder, mut paths) = exact::every_sampling_files(300);
    paths.extend(oracle::few());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let theirs = oracle::versions().map(|versions| {
        let mut oracle = Oracle::start().expect("a Python that has versions");
        let mut text = format!("# {versions}");
        for path in &paths {
            let line = line(&name(path), |scale| oracle.scaled(path, scale).ok());
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
        let all = paths.iter().map(|path| {
            let bytes = std::fs::read(path).expect("a file");
            line(&name(path), |scale| ours(&mut decoder, &bytes, scale))
        });
        let all: Vec<String> = all.collect();
        assert_eq!(all, lines(&recorded));
    }
    let refused = recorded.matches("refused").count();
    assert!(refused < paths.len(), "{refused} are refused");
}
