//! Held against crate jpeg's own reader, on a device.

use super::*;
use crate::coefficients::Faults;
use crate::tested::{cuts, gpu, part, unpack};
use crate::words::Words;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use stokehold_jpeg::{
    Decoder, Header, Input, Metadata, PackSample, PackTables, Packer, Region, Scale, TranscodeOptions,
};

const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

/// What is to be decoded.
struct Case {
    packed: Vec<u8>,
    /// Those that it was written with, unless they are the built-in ones.
    tables: Option<Arc<Vec<u8>>>,
    region: Region,
    scale: Scale,
}

impl Case {
    fn input(&self) -> Input<'_> {
        Input {
            tables: self.tables.as_ref().map(|tables| tables.as_slice()),
            ..Input::from(&self.packed)
        }
    }
}

/// What became of the cases of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Decoded on the device, as on the CPU.
    exact: usize,
    /// Faulty there, and refused by the CPU.
    refused: usize,
    /// Faulty there and decoded by the CPU: damaged where the CPU has no need to read.
    careful: usize,
    /// Not given to the device.
    apart: usize,
}

/// Decodes all cases in one go, and holds them against the CPU.
fn check(gpu: &Gpu, cases: &[Case]) -> Tally {
    let mut tally = Tally::default();
    let (mut decoder, mut blocks, mut pushed) = (Decoder::new(), 0, Vec::new());
    let (mut words, mut batch, mut tables) = (Words::default(), GroupsOfBatch::default(), None);
    for case in cases {
        match decoder.packed_groups(case.input(), case.region, case.scale) {
            Ok(Some(groups)) => {
                let first = blocks;
                let mut firsts = Vec::new();
                for component in groups.components() {
                    firsts.push(blocks);
                    blocks += component.layout.blocks_wide * component.layout.blocks_high;
                }
                let own = DeviceTables::of(groups.tables, case.input().tables, tables.as_ref());
                let groups = Groups::new(&groups, case.packed.as_slice().into(), own.clone());
                tables = Some(own);
                batch.push(&mut words, &groups, &firsts, pushed.len() as u32);
                pushed.push((case, first));
            }
            _ => {
                let read = decoder.decode_blocks(case.input(), case.region, case.scale);
                assert!(read.is_err(), "the CPU reads what is not given to the device");
                tally.apart += 1;
            }
        }
    }
    let coefficients = gpu.empty(64 * blocks.max(1) as usize, 2);
    let faults = gpu.empty(pushed.len(), 4);
    let at = batch.place(&mut words);
    gpu.clear(&coefficients, &faults).expect("launches");
    gpu.decode_groups(&batch, &gpu.create(words.0), at, &coefficients, &faults)
        .expect("launches");
    let read = |buffer: &Buffer| gpu.read(buffer).expect("the device works");
    let (coefficients, faults) = (read(&coefficients), read(&faults));
    let coefficients = i16::from_bytes(&coefficients);
    for ((case, first), &word) in pushed.into_iter().zip(u32::from_bytes(&faults)) {
        let fault = Faults(word);
        let expected = decoder.decode_blocks(case.input(), case.region, case.scale);
        let Ok(expected) = expected else {
            assert!(!fault.is_none(), "{:?}", expected.err());
            tally.refused += 1;
            continue;
        };
        if !fault.is_none() {
            tally.careful += 1;
            continue;
        }
        let mut found = coefficients[64 * first as usize..].chunks_exact(64);
        for component in expected.components() {
            let kept = if component.layout.side == 1 { 1 } else { 64 };
            for (i, block) in unpack(component).iter().enumerate() {
                let found = found.next().expect("a block");
                assert_eq!(found[..kept], block[..kept], "block {i}");
            }
        }
        tally.exact += 1;
    }
    tally
}

/// A picture with edges, gradients and noise, and what becomes of it as a JPEG.
#[derive(Debug, Clone)]
struct Picture {
    width: u16,
    height: u16,
    color: ColorType,
    sampling: SamplingFactor,
    quality: u8,
    /// How strong its noise is: 0 to 8.
    noise: u32,
}

impl Picture {
    fn file(&self) -> Vec<u8> {
        let channels = match self.color {
            ColorType::Luma => 1,
            ColorType::Cmyk => 4,
            _ => 3,
        };
        let (mut state, mut pixels) = (1u32, Vec::new());
        for y in 0..u32::from(self.height) {
            for x in 0..u32::from(self.width) {
                for channel in 0..channels {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let noise = ((u64::from(state) << self.noise) >> 32) as u32;
                    pixels
                        .push(((x * (channel + 1) + y * 2) / 3 + noise + 90 * ((x / 13 + y / 7) & 1)) as u8);
                }
            }
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, self.quality);
        encoder.set_sampling_factor(self.sampling);
        encoder
            .encode(&pixels, self.width, self.height, self.color)
            .expect("a picture");
        bytes
    }
}

fn pictures() -> impl Strategy<Value = Picture> {
    let color = prop::sample::select(vec![
        ColorType::Luma,
        ColorType::Rgb,
        ColorType::Rgb,
        ColorType::Cmyk,
    ]);
    let sampling = prop::sample::select(vec![
        SamplingFactor::F_1_1,
        SamplingFactor::F_2_1,
        SamplingFactor::F_1_2,
        SamplingFactor::F_2_2,
        SamplingFactor::F_4_1,
        SamplingFactor::F_4_2,
        SamplingFactor::F_1_4,
        SamplingFactor::F_2_4,
    ]);
    (1..400u16, 1..200u16, color, sampling, 1..101u8, 0..9u32).prop_map(
        |(width, height, color, sampling, quality, noise)| Picture {
            width,
            height,
            color,
            // A scan has at most ten blocks an MCU.
            sampling: match (color, sampling) {
                (ColorType::Cmyk, SamplingFactor::F_4_2 | SamplingFactor::F_2_4) => SamplingFactor::F_2_2,
                _ => sampling,
            },
            quality,
            noise,
        },
    )
}

/// Packs files with built-in tables, or with some that were adapted to all of them.
fn pack(files: &[Vec<u8>], adapted: bool) -> (Vec<Vec<u8>>, Option<Arc<Vec<u8>>>) {
    let options = TranscodeOptions {
        metadata: Metadata::Drop,
    };
    let mut decoder = Decoder::new();
    let mut tables = PackTables::built_in().clone();
    if adapted {
        let mut sample = PackSample::new();
        for file in files {
            sample.add(&decoder.coefficients(file).expect("an image"));
        }
        tables = sample.train();
    }
    let mut packer = Packer::new(&tables);
    let packed = files
        .iter()
        .map(|file| decoder.pack(file, &mut packer, &options).expect("a packed image"))
        .collect();
    (packed, adapted.then(|| Arc::new(tables.bytes())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_of_any_images_and_regions(
        pictures in prop::collection::vec((pictures(), cuts(), 0..4usize), 1..12),
        adapted in any::<bool>(),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let files: Vec<Vec<u8>> = pictures.iter().map(|(picture, ..)| picture.file()).collect();
        let (packed, tables) = pack(&files, adapted);
        let cases: Vec<Case> = packed.into_iter().zip(&pictures).map(|(packed, (_, cut, scale))| {
            let region = part(&Header::parse(&packed).expect("a header"), *cut);
            Case { packed, tables: tables.clone(), region, scale: SCALES[*scale] }
        }).collect();
        let tally = check(&gpu, &cases);
        // Of some samplings there is no scaled size.
        prop_assert_eq!((tally.refused, tally.careful), (0, 0));
    }

    #[test]
    fn damaged_images_are_refused_where_the_cpu_refuses_them(
        pictures in prop::collection::vec((pictures(), prop::collection::vec((0.0..1.0, any::<u8>()), 0..3), 0..4usize), 1..24),
        adapted in any::<bool>(),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let files: Vec<Vec<u8>> = pictures.iter().map(|(picture, ..)| picture.file()).collect();
        let (packed, tables) = pack(&files, adapted);
        let cases: Vec<Case> = packed.into_iter().zip(&pictures).map(|(mut packed, (_, damage, scale))| {
            // Behind the length of the segments, and what they say of the size.
            let header = Header::parse(&packed).expect("a header");
            let data = 12 + u32::from_le_bytes(packed[8..12].try_into().expect("four bytes")) as usize;
            for (place, byte) in damage {
                let at = data + (place * (packed.len() - data) as f64) as usize;
                packed[at] = *byte;
            }
            Case { region: header.full(), packed, tables: tables.clone(), scale: SCALES[*scale] }
        }).collect();
        let tally = check(&gpu, &cases);
        prop_assert!(tally.careful == 0 || cases.iter().any(|case| case.scale == Scale::Eighth), "{:?}", tally);
    }
}

/// Every byte after the segments of a small image, changed in one of three ways.
#[test]
fn every_damaged_byte_gives_the_verdict_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // The second one becomes a sample a block, so that only first coefficients are read.
    for (sampling, scale) in [
        (SamplingFactor::F_2_2, Scale::Full),
        (SamplingFactor::F_1_1, Scale::Eighth),
    ] {
        let picture = Picture {
            width: 90,
            height: 70,
            color: ColorType::Rgb,
            sampling,
            quality: 85,
            noise: 5,
        };
        let (packed, _) = pack(&[picture.file()], false);
        let packed = &packed[0];
        let region = Header::parse(packed).expect("a header").full();
        let data = 12 + u32::from_le_bytes(packed[8..12].try_into().expect("four bytes")) as usize;
        let mut tally = Tally::default();
        let damaged = (data..packed.len()).map(|at| {
            let mut packed = packed.clone();
            packed[at] ^= [0x01, 0x80, 0xFF][at % 3];
            Case {
                packed,
                tables: None,
                region,
                scale,
            }
        });
        for cases in damaged.collect::<Vec<_>>().chunks(512) {
            let of_these = check(&gpu, cases);
            tally.exact += of_these.exact;
            tally.refused += of_these.refused;
            tally.careful += of_these.careful;
        }
        println!("{scale:?}: {tally:?}");
        // Who reads first coefficients alone does not find most damage.
        assert!(tally.exact > 300 && tally.refused > 3, "{tally:?}");
        assert!(tally.careful == 0 || scale == Scale::Eighth, "{tally:?}");
    }
}

#[test]
fn a_batch_of_nothing() {
    let Some(gpu) = gpu() else { return };
    assert_eq!(check(&gpu, &[]), Tally::default());
}

/// Photos whole and in part, at all scales, with built-in and with adapted tables.
#[test]
fn photos() {
    let Some(gpu) = gpu() else { return };
    let all = std::env::var_os("STOKEHOLD_TEST_ALL").is_some();
    let paths: Vec<PathBuf> = stokehold_untested::needs::data("photos").unwrap_or_default();
    let paths: Vec<PathBuf> = paths.into_iter().step_by(if all { 1 } else { 50 }).collect();
    let mut tally = Tally::default();
    for (batch, paths) in paths.chunks(8).enumerate() {
        let files: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| std::fs::read(path).expect("a file"))
            .collect();
        let (packed, tables) = pack(&files, batch % 2 == 1);
        let mut cases = Vec::new();
        for (i, packed) in packed.into_iter().enumerate() {
            let header = Header::parse(&packed).expect("a header");
            let regions = [header.full(), part(&header, [0.3, 0.2, 0.5, 0.4])];
            for (region, scale) in regions.into_iter().zip([Scale::Full, SCALES[i % 4]]) {
                cases.push(Case {
                    packed: packed.clone(),
                    tables: tables.clone(),
                    region,
                    scale,
                });
            }
        }
        let of_these = check(&gpu, &cases);
        tally.exact += of_these.exact;
        assert_eq!(of_these.exact, cases.len(), "{of_these:?}");
    }
    println!("photos: {tally:?}");
}
