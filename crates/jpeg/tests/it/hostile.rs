//! Broken and adversarial files: errors, never a panic, never a hang.

use crate::oracle;
use crate::region::SCALES;
use crate::writer::Spec;
use proptest::prelude::*;
use stokehold_jpeg::{Decoder, Error, Header, Layout, Metadata, Region, Scale, TranscodeOptions};

/// Header, full decode, what there is, a region, planes of it at a scale, and transcoding; nothing may panic. Whether the file decodes.
pub fn attack(decoder: &mut Decoder, bytes: &[u8]) -> bool {
    let Ok(header) = Header::parse(bytes) else {
        let all = Region {
            x: 0,
            y: 0,
            width: 1,
            height: 1,
        };
        assert!(decoder.decode(bytes, all, Scale::Full, Layout::Rgb).is_err());
        return false;
    };
    let (width, height) = (header.width.div_ceil(2), header.height.div_ceil(2));
    let middle = Region {
        x: header.width / 4,
        y: header.height / 4,
        width,
        height,
    };
    let part = decoder.decode(bytes, middle, Scale::Full, Layout::Rgbx).is_ok();
    let scale = SCALES[bytes.len() % 4];
    let planes = decoder.decode_planes(bytes, middle, scale).is_ok();
    let rows = decoder
        .decode_partial(bytes, header.full(), Scale::Full, Layout::Rgb)
        .map(|partial| (partial.pixels.height, partial.error.is_none()));
    let mut decode = |bytes: &[u8]| {
        let decoded = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb);
        decoded.map(|pixels| pixels.data.to_vec()).ok()
    };
    let whole = decode(bytes);
    assert!(
        (part && planes) || whole.is_none(),
        "the whole decodes and a part of it does not"
    );
    match rows {
        Ok((rows, complete)) => assert!(
            rows <= header.height && complete == whole.is_some(),
            "{rows} rows of {}",
            header.height
        ),
        Err(_) => assert!(whole.is_none(), "the whole decodes, but no part of it"),
    }
    let metadata = [Metadata::Keep, Metadata::Drop][bytes.len() % 2];
    if let Ok(bytes) = Decoder::new().transcode(bytes, &TranscodeOptions { metadata }) {
        assert_eq!(decode(&bytes), whole, "transcoding changes the pixels");
    }
    whole.is_some()
}

#[test]
fn files_from_fuzzers_and_old_crashes() {
    let Some(paths) = oracle::data("jpeg-corpus/hostile") else {
        return;
    };
    let (mut decoder, mut portable) = (Decoder::new(), Decoder::portable());
    let mut decoded = 0;
    for path in &paths {
        let bytes = std::fs::read(path).expect("a file");
        let whole = attack(&mut decoder, &bytes);
        assert_eq!(attack(&mut portable, &bytes), whole, "{}", path.display());
        decoded += usize::from(whole);
    }
    println!("{decoded} of {} decode", paths.len());
}

/// A scan may name a code that cannot be, where it uses none.
#[test]
fn a_code_that_a_scan_does_not_use_is_not_looked_at() {
    let mut bytes = include_bytes!("../files/refining-scan-names-code-4.jpg").to_vec();
    let decode = |bytes: &[u8]| {
        let header = Header::parse(bytes)?;
        let mut decoder = Decoder::new();
        let pixels = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb)?;
        Ok::<_, Error>(pixels.data.to_vec())
    };
    let strange = decode(&bytes).expect("pixels");
    // The last component's codes in the scan that refines DC, then the first component's in the first scan.
    let (refining, first) = (0x24C, 0x8C);
    assert_eq!(std::mem::replace(&mut bytes[refining], 0), 4);
    assert_eq!(decode(&bytes).expect("pixels"), strange);
    assert_eq!(std::mem::replace(&mut bytes[first], 0x40), 0);
    let error = decode(&bytes).expect_err("a code that is used").to_string();
    assert!(error.contains("a Huffman code of number above 3"), "{error}");
}

/// Small files of all kinds.
pub fn specs() -> impl Strategy<Value = Spec> {
    let factors = prop_oneof![
        Just(vec![(1, 1)]),
        Just(vec![(1, 1); 3]),
        Just(vec![(2, 2), (1, 1), (1, 1)]),
        Just(vec![(2, 1), (1, 1), (1, 1)]),
        Just(vec![(1, 2), (1, 1), (1, 1)]),
        Just(vec![(4, 1), (1, 1), (2, 1)]),
        Just(vec![(1, 1); 4]),
    ];
    (factors, 1..70u16, 1..70u16, 0..5u16, any::<bool>(), any::<u64>()).prop_map(
        |(factors, width, height, restart_interval, interleaved, seed)| {
            let (adobe, wide_steps) = (None, seed % 3 == 0);
            Spec {
                width,
                height,
                factors,
                restart_interval,
                interleaved,
                adobe,
                wide_steps,
                seed,
            }
        },
    )
}

/// Changes to a file: where (in thousandths of its length), what, and with which byte.
fn damage() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    prop::collection::vec((0..1000usize, 0..5u8, any::<u8>()), 1..12)
}

fn damaged(mut bytes: Vec<u8>, damage: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(place, what, byte) in damage {
        let at = place * bytes.len() / 1000;
        match what {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << (byte % 8),
            1 if !bytes.is_empty() => bytes[at] = byte,
            2 => bytes.insert(at, byte),
            3 => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
            _ if byte < 40 => bytes.truncate(at),
            _ => {}
        }
    }
    bytes
}

proptest! {
    #[test]
    fn damaged_files(spec in specs(), damage in damage()) {
        let bytes = damaged(spec.write().bytes, &damage);
        let whole = attack(&mut Decoder::new(), &bytes);
        prop_assert_eq!(attack(&mut Decoder::portable(), &bytes), whole);
    }

    #[test]
    fn files_that_end_too_early(spec in specs(), place in 0..1000usize) {
        let written = spec.write();
        let whole = Decoder::new().decode(
            &written.bytes[..written.data_end],
            Header::parse(&written.bytes)?.full(),
            Scale::Full,
            Layout::Rgb,
        ).map(|pixels| pixels.data.to_vec());
        prop_assert!(whole.is_ok(), "the end marker is missed: {:?}", whole.err());
        let cut = &written.bytes[..place * written.data_end / 1000];
        prop_assert!(!attack(&mut Decoder::new(), cut), "cut at {} of {}", cut.len(), written.data_end);
        // The rows that are there are those of the whole, and no byte more makes them fewer.
        let header = Header::parse(&written.bytes)?;
        let (row, whole) = (3 * header.width as usize, whole.expect("was asserted"));
        let mut last = 0;
        for end in [cut.len(), cut.len() + (written.data_end - cut.len()) / 2, written.data_end] {
            let mut decoder = Decoder::new();
            let cut = &written.bytes[..end];
            let Ok(partial) = decoder.decode_partial(cut, header.full(), Scale::Full, Layout::Rgb) else {
                continue;
            };
            let rows = partial.pixels.height;
            prop_assert!(rows >= last, "{rows} rows of {end} bytes, {last} of fewer");
            prop_assert_eq!(partial.pixels.data, &whole[..rows as usize * row]);
            prop_assert_eq!(partial.error.is_none(), end == written.data_end);
            last = rows;
        }
        prop_assert_eq!(last, header.height);
    }
}

/// The other kinds: files of the encoder's corpus, progressive ones among them, with damage.
#[test]
fn damaged_files_of_the_encoder() {
    let paths = oracle::corpus();
    let (mut decoder, mut portable) = (Decoder::new(), Decoder::portable());
    let mut state = 3u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for path in &paths {
        let bytes = std::fs::read(path).expect("a file");
        for _ in 0..20 {
            let damage: Vec<_> = (0..1 + number() % 5)
                .map(|_| (number() % 1000, number() as u8 % 5, number() as u8))
                .collect();
            let bytes = damaged(bytes.clone(), &damage);
            let whole = attack(&mut decoder, &bytes);
            assert_eq!(
                attack(&mut portable, &bytes),
                whole,
                "{} {damage:?}",
                path.display()
            );
        }
    }
}

#[test]
fn half_a_file_has_half_its_rows() {
    let spec = Spec {
        width: 64,
        height: 64,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 1,
    };
    let bytes = spec.write().bytes;
    let header = Header::parse(&bytes).expect("a header");
    let half = &bytes[..bytes.len() * 6 / 10];
    let mut decoder = Decoder::new();
    let mut rows = |region, scale| {
        let partial = decoder.decode_partial(half, region, scale, Layout::Rgb);
        let partial = partial.expect("rows");
        (partial.pixels.height, partial.error)
    };
    let truncated = Some(Error::Truncated("inside a scan"));
    // Two rows of MCUs, of whose last row of pixels chroma needs the next.
    assert_eq!(rows(header.full(), Scale::Full), (31, truncated.clone()));
    assert_eq!(rows(header.full(), Scale::Half), (16, truncated.clone()));
    let part = |y, height| Region {
        x: 5,
        y,
        width: 40,
        height,
    };
    assert_eq!(rows(part(20, 40), Scale::Full), (11, truncated.clone()));
    assert_eq!(rows(part(20, 11), Scale::Full), (11, None));
    assert_eq!(rows(part(48, 16), Scale::Full), (0, truncated));
}

/// SEMANTICS.md: "A JPEG whose marker of the end (EOI) is missing or cut, and whose data are all there, is read."
#[test]
fn a_file_without_its_end_has_all_its_pixels() {
    let spec = Spec {
        width: 40,
        height: 24,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 4,
    };
    let whole = spec.write().bytes;
    assert!(whole.ends_with(&[0xFF, 0xD9]));
    let mut decoder = Decoder::new();
    let mut decode = |bytes: &[u8]| {
        let all = Header::parse(bytes).expect("a header").full();
        let decoded = decoder.decode(bytes, all, Scale::Full, Layout::Rgb);
        decoded.expect("pixels").data.to_vec()
    };
    let pixels = decode(&whole);
    for cut in 1..=2 {
        assert_eq!(decode(&whole[..whole.len() - cut]), pixels, "{cut} bytes missing");
    }
}

#[test]
fn headers_that_promise_more_than_the_file_holds() {
    let spec = Spec {
        width: 13000,
        height: 13000,
        factors: vec![(1, 1); 3],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 1,
    };
    // The header of a huge image before the data of a small one.
    let small = Spec {
        width: 64,
        height: 64,
        ..spec.clone()
    }
    .write()
    .bytes;
    let place = small
        .windows(2)
        .position(|pair| pair == [0xFF, 0xC1])
        .expect("a frame")
        + 5;
    let with_size = |height: u16, width: u16| {
        let mut bytes = small.clone();
        bytes[place..place + 2].copy_from_slice(&height.to_be_bytes());
        bytes[place + 2..place + 4].copy_from_slice(&width.to_be_bytes());
        let header = Header::parse(&bytes).expect("a header");
        Decoder::new()
            .decode(&bytes, header.full(), Scale::Full, Layout::Rgb)
            .map(|_| ())
            .expect_err("too large")
    };
    assert!(matches!(with_size(13000, 13000), Error::Truncated(_)));
    assert!(matches!(with_size(65535, 65535), Error::Unsupported(_)));
}

/// A small file of three scans, and where its scan headers lie.
fn of_three_scans() -> (Vec<u8>, usize, [usize; 3]) {
    let written = Spec {
        width: 40,
        height: 24,
        factors: vec![(1, 1); 3],
        restart_interval: 0,
        interleaved: false,
        adobe: None,
        wide_steps: false,
        seed: 5,
    }
    .write();
    let scans = written.bytes.windows(2).enumerate();
    let scans: Vec<usize> = scans
        .filter(|(_, pair)| *pair == [0xFF, 0xDA])
        .map(|(at, _)| at)
        .collect();
    let scans = scans.try_into().expect("three scans");
    (written.bytes, written.data_end, scans)
}

#[test]
fn a_component_in_two_scans_is_refused() {
    let (bytes, end, [first, second, _]) = of_three_scans();
    let header = Header::parse(&bytes).expect("a header");
    let twice = [&bytes[..end], &bytes[first..second], &bytes[end..]].concat();
    let pixels = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        let pixels = decoder.decode(bytes, header.full(), Scale::Full, Layout::Rgb);
        pixels.map(|pixels| pixels.data.to_vec())
    };
    assert!(pixels(&bytes).is_ok());
    let expected = Error::Corrupt {
        at: end + 4,
        what: "a component in two scans".into(),
    };
    assert_eq!(pixels(&twice), Err(expected));
    assert!(!attack(&mut Decoder::new(), &twice));
}

/// The standard allows fill bytes before markers only; libjpeg reads over them before a stuffed FF too.
#[test]
fn fill_bytes_before_a_stuffed_byte_mean_nothing() {
    let (bytes, ..) = of_three_scans();
    let stuffed: Vec<usize> = (1..bytes.len())
        .filter(|&at| bytes[at - 1..=at] == [0xFF, 0])
        .collect();
    let last = *stuffed.last().expect("a stuffed byte");
    let filled = [&bytes[..last], &[0xFF; 3], &bytes[last..]].concat();
    let coefficients = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        let coefficients = decoder.coefficients(bytes).expect("coefficients");
        let blocks = coefficients.components().iter().map(|c| c.blocks.to_vec());
        blocks.collect::<Vec<_>>()
    };
    assert_eq!(coefficients(&filled), coefficients(&bytes));
}
