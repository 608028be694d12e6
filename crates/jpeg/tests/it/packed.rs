//! Packed images have every coefficient of their files; damaged ones are errors.

use crate::hostile::{attack, specs};
use crate::oracle;
use crate::region::{Regions, SCALES};
use crate::writer::Spec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::process::Command;
use stokehold_jpeg::{
    Decoder, Error, Header, Input, Layout, Metadata, PackSample, PackTables, Packer, Scale, TranscodeOptions,
    is_packed, transcode,
};

const DROP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Drop,
};
const KEEP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Keep,
};

fn pack(file: &[u8], tables: &PackTables, options: &TranscodeOptions) -> Result<Vec<u8>, Error> {
    Decoder::new().pack(file, &mut Packer::new(tables), options)
}

fn built_in(file: &[u8]) -> Result<Vec<u8>, Error> {
    pack(file, PackTables::built_in(), &DROP)
}

/// Everything that can be had of an image: coefficients, pixels, planes, blocks; of its whole and of regions at all scales.
fn all_of<'a>(decoder: &mut Decoder, input: impl Into<Input<'a>>) -> Result<Vec<String>, Error> {
    let input = input.into();
    let header = Header::parse(input.bytes)?;
    let mut all = vec![format!(
        "{} {} {:?} {:?} {}",
        header.width, header.height, header.color, header.sampling, header.orientation
    )];
    let coefficients = decoder.coefficients(input)?;
    for component in coefficients.components() {
        let rows = (0..component.blocks_high).map(|y| component.row(y));
        all.push(format!(
            "{:?} {:?}",
            component.steps,
            hash(&rows.collect::<Vec<_>>())
        ));
    }
    let mut random = Regions::default();
    for scale in SCALES {
        for region in [header.full(), random.next(&header), random.next(&header)] {
            match decoder.decode(input, region, scale, Layout::Rgb) {
                Ok(pixels) => all.push(format!("{region:?} {}", hash(pixels.data))),
                Err(error @ Error::Unsupported(_)) => all.push(error.to_string()),
                Err(error) => return Err(error),
            }
            let Ok(planes) = decoder.decode_planes(input, region, scale) else {
                continue;
            };
            for plane in planes.planes() {
                let row = |y: usize| &plane.data[y * plane.stride..][..plane.width as usize];
                let rows: Vec<_> = (0..plane.height as usize).map(row).collect();
                all.push(format!("plane {} {} {}", plane.x, plane.y, hash(&rows)));
            }
            let blocks = decoder.decode_blocks(input, region, scale)?;
            for component in blocks.components() {
                let values = component.heads.iter().map(|head| {
                    let values = &component.values[head.first as usize..];
                    (head.mask, &values[..head.mask.count_ones() as usize])
                });
                all.push(format!("blocks {}", hash(&values.collect::<Vec<_>>())));
            }
        }
    }
    Ok(all)
}

fn hash(value: &(impl std::hash::Hash + ?Sized)) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Compares a packed image with its file, in both forms of every kernel, and makes a JPEG of it again.
fn compare(file: &[u8], packed: Input<'_>) {
    let expected = all_of(&mut Decoder::new(), file).expect("a file that decodes");
    for mut decoder in [Decoder::new(), Decoder::portable()] {
        let found = all_of(&mut decoder, packed).expect("a packed image that decodes");
        assert_eq!(found, expected);
        let again = decoder.transcode(packed, &DROP).expect("a JPEG");
        assert!(again == transcode(file, &DROP).expect("a JPEG"), "another JPEG");
    }
}

proptest! {
    /// Random coefficients in all samplings, colour models and scans.
    #[test]
    fn wild_coefficients_come_back(spec in specs()) {
        let file = spec.write().bytes;
        match built_in(&file) {
            Ok(packed) => {
                prop_assert!(is_packed(&packed) && !is_packed(&file));
                compare(&file, Input::from(&packed));
            }
            Err(Error::Unsupported(what)) => prop_assert!(what.contains("coefficients") || what.contains("bit a block") || what.contains("one scan")),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    /// Any damage is an error or gives some image, without a panic, and all forms of the kernels agree.
    #[test]
    fn damaged_images_are_errors(
        spec in specs(),
        changes in prop::collection::vec((0.0..1.0, any::<u8>()), 1..4),
        end in prop_oneof![4 => Just(1.0), 1 => 0.0..1.0],
    ) {
        let Ok(mut packed) = built_in(&spec.write().bytes) else { return Ok(()); };
        for (place, value) in changes {
            let at = (packed.len() as f64 * place) as usize;
            packed[at] = value;
        }
        packed.truncate((packed.len() as f64 * end) as usize);
        attack_packed(&packed);
    }
}

fn attack_packed(packed: &[u8]) {
    let (mut one, mut other) = (Decoder::new(), Decoder::portable());
    if is_packed(packed) {
        assert_eq!(all_of(&mut one, packed), all_of(&mut other, packed));
    }
    assert_eq!(attack(&mut one, packed), attack(&mut other, packed));
}

/// Nearly all damage of what is coded is found by the coder itself, without any checksum; that of raw bits is not, which are
/// some three tenths of the bytes.
#[test]
fn the_coder_finds_damage() {
    let Some(photos) = oracle::data("photos") else {
        return;
    };
    let file = std::fs::read(&photos[0]).expect("a photo");
    let packed = built_in(&file).expect("a packed photo");
    let (mut found, mut changed) = (0, 0);
    let first = packed.len() / 4; // behind segments and lengths
    for at in (first..packed.len()).step_by(packed.len() / 200) {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x10;
        changed += 1;
        found += i32::from(Decoder::new().coefficients(&damaged).is_err());
    }
    println!("{found} of {changed} found");
    assert!(10 * found > 6 * changed, "{found} of {changed}");
}

#[test]
fn real_images_come_back_and_are_smaller() {
    for folder in ["photos", "clothing/val/shoes"] {
        let Some(paths) = oracle::data(folder) else {
            continue;
        };
        let files: Vec<_> = paths.iter().step_by(paths.len().div_ceil(40)).collect();
        let files: Vec<_> = files
            .iter()
            .map(|path| std::fs::read(path).expect("a file"))
            .collect();
        let mut decoder = Decoder::new();
        let mut sample = PackSample::new();
        for file in &files[..20] {
            sample.add(&decoder.coefficients(file).expect("an image"));
        }
        let tables = sample.adapt(PackTables::built_in());
        let stored = tables.bytes();
        let (mut before, mut after, mut plain) = (0, 0, 0);
        for file in &files[20..] {
            let packed = pack(file, &tables, &KEEP).expect("a packed photo");
            compare(
                file,
                Input {
                    tables: Some(&stored),
                    ..Input::from(&packed)
                },
            );
            assert_eq!(
                decoder.transcode(
                    Input {
                        tables: Some(&stored),
                        ..Input::from(&packed)
                    },
                    &KEEP
                ),
                decoder.transcode(file, &KEEP),
                "metadata"
            );
            before += file.len();
            after += packed.len();
            plain += built_in(file).expect("a packed photo").len();
        }
        println!("{folder}: {before} bytes, {after} packed, {plain} with built-in tables");
        assert!(100 * after < 93 * before && 100 * plain < 94 * before);
    }
}

#[test]
fn a_progressive_photo_packs_to_the_same_bytes_but_for_its_groups() {
    if Command::new("jpegtran").arg("-version").output().is_err() {
        stokehold_untested::skip("jpegtran is not there");
        return;
    }
    for path in oracle::data("photos").unwrap_or_default().iter().step_by(100) {
        let output = Command::new("jpegtran").arg("-progressive").arg(path).output();
        let progressive = output.expect("jpegtran runs").stdout;
        compare(
            &std::fs::read(path).expect("a file"),
            Input::from(&built_in(&progressive).expect("a packed photo")),
        );
    }
}

/// A small grey image, whose bytes do not depend on data from elsewhere.
fn small() -> Vec<u8> {
    let mut file = Vec::new();
    let pixels: Vec<u8> = (0..64 * 64).map(|i| ((i * i) >> 3) as u8).collect();
    jpeg_encoder::Encoder::new(&mut file, 80)
        .encode(&pixels, 64, 64, jpeg_encoder::ColorType::Luma)
        .expect("a JPEG");
    file
}

#[test]
fn tables_that_are_missing_or_others_are_errors() {
    let file = small();
    let mut decoder = Decoder::new();
    let mut sample = PackSample::new();
    sample.add(&decoder.coefficients(&file).expect("an image"));
    let tables = sample.adapt(PackTables::built_in());
    let packed = pack(&file, &tables, &DROP).expect("a packed image");
    let error = |tables: Option<&[u8]>| {
        let input = Input {
            tables,
            ..Input::from(&packed)
        };
        let header = Header::parse(&packed).expect("a header");
        let mut decoder = Decoder::new();
        let decoded = decoder.decode(input, header.full(), Scale::Full, Layout::Rgb);
        decoded.map(drop).expect_err("tables that do not fit").to_string()
    };
    assert!(error(None).contains("there are none"), "{}", error(None));
    let others = PackTables::built_in().bytes();
    assert!(error(Some(&others)).contains("another shard"));
    assert!(error(Some(&others[..9])).contains("cut off"));
    // What was read before changes nothing.
    let stored = tables.bytes();
    let mut same = stored.clone();
    same[5000] ^= 1;
    let with = |tables| Input {
        tables,
        ..Input::from(&packed)
    };
    for tables in [None, Some(&others[..]), Some(&same), Some(&stored[..9])] {
        decoder.coefficients(with(Some(&stored))).expect("its tables");
        let error = decoder.coefficients(with(tables)).map(drop);
        assert!(matches!(error, Err(Error::Tables(_))), "{error:?}");
    }
    let plain = built_in(&file).expect("a packed image");
    let any = Input {
        tables: Some(b"not looked at"),
        ..Input::from(&plain)
    };
    decoder.coefficients(any).expect("built-in tables");
    compare(
        &file,
        Input {
            tables: Some(&tables.bytes()),
            ..Input::from(&packed)
        },
    );
}

#[test]
fn later_versions_and_cut_off_images_say_so() {
    let packed = built_in(&small()).expect("a packed image");
    let mut later = packed.clone();
    later[3] = b'2';
    let error = Header::parse(&later).expect_err("a later version").to_string();
    assert!(error.contains("newer program"), "{error}");
    for end in 0..packed.len() {
        let cut = &packed[..end];
        assert!(Decoder::new().coefficients(cut).is_err(), "cut at {end}");
    }
    let longer = [packed.as_slice(), &[0]].concat();
    assert!(Decoder::new().coefficients(&longer).is_err());
}

/// An image of one colour takes so little that its bytes could not justify its size.
#[test]
fn flat_images_stay_jpegs() {
    let mut file = Vec::new();
    jpeg_encoder::Encoder::new(&mut file, 80)
        .encode(&vec![200; 1 << 23], 8192, 1024, jpeg_encoder::ColorType::Luma)
        .expect("a JPEG");
    let mut sample = PackSample::new();
    sample.add(&Decoder::new().coefficients(&file).expect("an image"));
    let packed = pack(&file, &sample.adapt(PackTables::built_in()), &DROP);
    assert!(matches!(packed, Err(Error::Unsupported(what)) if what.contains("bit a block")));
}

/// Grey and colour, of every sampling and of odd sizes, of several groups; and files of several scans.
fn small_of_every_kind() -> Vec<Vec<u8>> {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    let image = |width: u16, height: u16, quality: u8, color: ColorType, sampling: SamplingFactor| {
        let channels = if color == ColorType::Luma { 1 } else { 3 };
        let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height))
            .flat_map(|at| {
                let (x, y) = (at % usize::from(width), at / usize::from(width));
                let noise = (at.wrapping_mul(2_654_435_761) >> 9) as u8 & if x < 40 { 15 } else { 127 };
                let value = (3 * x + y * y / 64) as u8;
                [
                    value ^ noise,
                    (value / 2).wrapping_add(y as u8),
                    value.wrapping_add(noise),
                ]
            })
            .enumerate()
            .filter(|(at, _)| at % 3 < channels)
            .map(|(_, value)| value)
            .collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, quality);
        encoder.set_sampling_factor(sampling);
        encoder
            .encode(&pixels, width, height, color)
            .expect("an image that can be encoded");
        file
    };
    use SamplingFactor::{R_4_1_1, R_4_2_0, R_4_2_2, R_4_4_0, R_4_4_4};
    let mut files = vec![
        small(),
        image(97, 61, 90, ColorType::Luma, R_4_4_4),
        image(75, 131, 85, ColorType::Rgb, R_4_2_0),
        image(63, 66, 98, ColorType::Rgb, R_4_4_4),
        image(41, 50, 60, ColorType::Rgb, R_4_2_2),
        image(50, 41, 70, ColorType::Rgb, R_4_4_0),
        image(70, 17, 100, ColorType::Rgb, R_4_1_1),
        image(1, 1, 50, ColorType::Rgb, R_4_2_0),
    ];
    let jpegtran = |file: &[u8]| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("sequential.jpg");
        std::fs::write(&path, file).expect("a file");
        Command::new("jpegtran")
            .arg("-progressive")
            .arg(path)
            .output()
            .ok()
    };
    match jpegtran(&files[2]) {
        Some(output) => files.push(output.stdout),
        None => stokehold_untested::skip("jpegtran is not there"),
    }
    files
}

/// Where blocks become one sample each, only first coefficients are read: damage behind them changes nothing. All other
/// scales depend on the corners of blocks, so everything is read and checked.
#[test]
fn an_eighth_of_the_size_takes_first_coefficients_alone() {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    let noise = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    let pixels: Vec<u8> = (0..3 * 200 * 200).map(noise).collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 95);
    encoder.set_sampling_factor(SamplingFactor::R_4_4_4);
    encoder
        .encode(&pixels, 200, 200, ColorType::Rgb)
        .expect("an image");
    let packed = built_in(&file).expect("a packed image");
    let full = Header::parse(&packed).expect("a header").full();
    let mut decoder = Decoder::new();
    let mut pixels = |packed: &[u8], scale| {
        let pixels = decoder.decode(packed, full, scale, Layout::Rgb);
        pixels.map(|pixels| pixels.data.to_vec())
    };
    let whole = SCALES.map(|scale| pixels(&packed, scale).expect("an image"));
    let (mut found, mut without) = (0, 0);
    for at in (packed.len() / 3..packed.len()).step_by(packed.len() / 100) {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x10;
        let [fully, half, quarter, eighth] = SCALES.map(|scale| pixels(&damaged, scale));
        assert_eq!(
            (half.is_err(), quarter.is_err()),
            (fully.is_err(), fully.is_err())
        );
        if fully.is_err() {
            found += 1;
            without += i32::from(eighth.as_ref() == Ok(&whole[3]));
        }
    }
    println!("{found} found, {without} of them do not matter to an eighth");
    assert!(found > 20 && 10 * without > 7 * found, "{found} {without}");
}

/// A reader that knows nothing but `docs/reference/packed-format.md`.
#[test]
fn a_reader_in_python_reads_the_same() {
    let python = std::env::var_os("STOKEHOLD_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_packed.py");
    let dir = tempfile::tempdir().expect("a folder");
    let (tables_path, path) = (dir.path().join("tables"), dir.path().join("packed"));
    let read = |tables: &[u8], packed: &[u8]| {
        std::fs::write(&tables_path, tables).expect("a file");
        std::fs::write(&path, packed).expect("a file");
        Command::new(&python)
            .arg(reader)
            .args([&tables_path, &path])
            .output()
    };
    if read(&[], &[]).is_err() {
        stokehold_untested::skip("there is no Python here");
        return;
    }
    let mut decoder = Decoder::new();
    let files = small_of_every_kind();
    let mut sample = PackSample::new();
    for file in &files {
        sample.add(&decoder.coefficients(file).expect("an image"));
    }
    let adapted = sample.adapt(PackTables::built_in());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let wild = std::iter::from_fn(|| {
        let spec = specs().new_tree(&mut runner).ok()?.current();
        Some(spec.write().bytes)
    });
    let wild = wild.filter(|file| built_in(file).is_ok()).take(12);
    let mut read_images = 0;
    let photo = oracle::data("photos").map(|paths| std::fs::read(&paths[0]).expect("a photo"));
    for file in files.into_iter().chain(wild).chain(photo) {
        for tables in [PackTables::built_in(), &adapted] {
            let stored = tables.bytes();
            let Ok(packed) = pack(&file, tables, &KEEP) else {
                continue;
            };
            let coefficients = decoder.coefficients(&file).expect("an image");
            let expected = coefficients
                .components()
                .iter()
                .enumerate()
                .map(|(i, component)| {
                    let rows = (0..component.blocks_high).flat_map(|y| component.row(y));
                    let bytes: Vec<u8> = rows.flatten().flat_map(|value| value.to_le_bytes()).collect();
                    let (wide, high) = (component.blocks_wide, component.blocks_high);
                    format!("{i} {wide} {high} {:08x}\n", crc32fast::hash(&bytes))
                });
            let output = read(&stored, &packed).expect("Python starts");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{error}");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                expected.collect::<String>()
            );
            read_images += 1;
        }
    }
    println!("{read_images} images");
    assert!(read_images >= 30, "{read_images} images");

    // What is damaged and found here is found there, and the other way round.
    let packed = built_in(&small()).expect("a packed image");
    let stored = PackTables::built_in().bytes();
    let mut refused = 0;
    for at in (0..packed.len()).step_by(packed.len().div_ceil(40)) {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x41;
        let ours = decoder.coefficients(&damaged).is_err();
        let theirs = !read(&stored, &damaged).expect("Python starts").status.success();
        assert_eq!(ours, theirs, "damage at {at}");
        refused += i32::from(ours);
    }
    println!("{refused} damaged ones refused");
    assert!(refused > 15, "{refused}");
}

#[test]
fn components_that_do_not_fit_one_scan_stay_in_theirs() {
    let spec = Spec {
        width: 64,
        height: 64,
        factors: vec![(4, 4); 3],
        restart_interval: 0,
        interleaved: false,
        adobe: None,
        wide_steps: false,
        seed: 1,
    };
    let packed = built_in(&spec.write().bytes);
    assert!(matches!(packed, Err(Error::Unsupported(what)) if what.contains("one scan")));
}
