//! Held against crate jpeg's own decoder, on a device.

use super::kernels::UNSYNCHRONISED;
use super::*;
use crate::coefficients::Faults;
use crate::tested::{cuts, gpu, part, unpack};
use crate::words::Words;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use std::fmt;
use std::path::PathBuf;
use stokehold_jpeg::{Decoder, Header, Metadata, Region, Scale, TranscodeOptions, transcode};

#[path = "../../../jpeg/tests/it/writer.rs"]
#[allow(dead_code)]
mod writer;

const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

/// What is to be decoded.
struct Case {
    bytes: Vec<u8>,
    region: Region,
    scale: Scale,
}

impl Case {
    /// All of a file; none where not even its header is one.
    fn whole(bytes: Vec<u8>) -> Option<Case> {
        let region = Header::parse(&bytes).ok()?.full();
        Some(Case {
            bytes,
            region,
            scale: Scale::Full,
        })
    }
}

/// What became of the cases of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Decoded on the device, as on the CPU.
    exact: usize,
    /// Faulty there, and refused by the CPU.
    refused: usize,
    /// Not synchronised.
    unsynchronised: usize,
    /// Not given to the device.
    apart: usize,
    /// For each image on the device, the last round in which anything of it was decoded.
    rounds: Vec<u32>,
}

/// Decodes as many cases at a time as the memory of a modest device holds.
fn check_all(gpu: &Gpu, cases: &[Case]) -> Tally {
    const MOST_PIXELS: u32 = 1 << 22;
    let (mut all, mut from, mut pixels) = (Tally::default(), 0, 0);
    for (i, case) in cases.iter().enumerate() {
        let own = case.region.width * case.region.height;
        if i > from && pixels + own > MOST_PIXELS {
            all.add(check(gpu, &cases[from..i], Scans::default()));
            (from, pixels) = (i, 0);
        }
        pixels += own;
    }
    all.add(check(gpu, &cases[from..], Scans::default()));
    all
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.exact += other.exact;
        self.refused += other.refused;
        self.unsynchronised += other.unsynchronised;
        self.apart += other.apart;
        self.rounds.extend(other.rounds);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable();
        let of = |share: usize| rounds.get((rounds.len().max(1) - 1) * share / 100).unwrap_or(&0);
        write!(
            f,
            "{} exact, {} refused by both, {} not synchronised, {} not given to the device; rounds after the first: \
             median {}, of 90 % at most {}, of 99 % {}, of all {}",
            self.exact,
            self.refused,
            self.unsynchronised,
            self.apart,
            of(50),
            of(90),
            of(99),
            of(100)
        )
    }
}

/// Decodes all cases in one go, and holds them against the CPU.
fn check(gpu: &Gpu, cases: &[Case], mut scans: Scans) -> Tally {
    let mut tally = Tally::default();
    let (mut decoder, mut blocks, mut pushed) = (Decoder::new(), 0, Vec::new());
    let mut words = Words::default();
    for case in cases {
        match decoder.coded(&case.bytes, case.region, case.scale) {
            Ok(Some(coded)) => {
                let first = blocks;
                let mut firsts = Vec::new();
                for component in coded.components() {
                    firsts.push(blocks);
                    blocks += component.layout.blocks_wide * component.layout.blocks_high;
                }
                let scan = Scan::new(&coded).expect("a short scan");
                scans.push(&mut words, &scan, &firsts, pushed.len() as u32);
                pushed.push((case, first));
            }
            _ => tally.apart += 1,
        }
    }
    let buffer = gpu.empty(64 * blocks.max(1) as usize, 2);
    let faults = gpu.empty(pushed.len(), 4);
    let at = scans.place(&mut words);
    gpu.clear(&buffer, &faults).expect("launches");
    let entries = gpu
        .decode_scans(&scans, &gpu.create(words.0), at, &buffer, &faults)
        .expect("launches");
    let read = |buffer: &Buffer| gpu.read(buffer).expect("the device works");
    let (coefficients, faults, entries) = (read(&buffer), read(&faults), read(&entries));
    let coefficients = i16::from_bytes(&coefficients);
    let (entries, _) = u32::from_bytes(&entries).as_chunks::<2>();
    tally.rounds.resize(pushed.len(), 0);
    for (entries, owners) in entries.iter().zip(scans.owners.windows(2)) {
        // A segment's last subsequence has no entry.
        if owners[0] == owners[1] {
            let round = &mut tally.rounds[scans.image_of(owners[0])];
            *round = (*round).max(entries[0] >> 16).max(entries[1] >> 16);
        }
    }
    for ((case, first), &word) in pushed.into_iter().zip(u32::from_bytes(&faults)) {
        let fault = Faults(word);
        let expected = decoder.decode_blocks(&case.bytes, case.region, case.scale);
        if word & UNSYNCHRONISED != 0 {
            tally.unsynchronised += 1;
            continue;
        }
        assert_eq!(
            fault.is_none(),
            expected.is_ok(),
            "{fault:?}; {:?}",
            expected.err()
        );
        let Ok(expected) = expected else {
            tally.refused += 1;
            continue;
        };
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

/// Subsequences of other lengths, and as many rounds as it takes.
fn scans(length: u32) -> Scans {
    let mut scans = Scans::default();
    (scans.length, scans.most_rounds) = (length, u32::MAX);
    scans
}

/// All kinds of sampling, odd sizes and restart intervals; all codes of a kind are equally long, so that nothing
/// synchronises by itself.
fn specs() -> impl Strategy<Value = writer::Spec> {
    let factors = prop_oneof![
        Just(vec![(1, 1)]),
        Just(vec![(1, 1); 3]),
        Just(vec![(2, 2), (1, 1), (1, 1)]),
        Just(vec![(2, 1), (1, 1), (1, 1)]),
        Just(vec![(1, 2), (1, 1), (1, 1)]),
        Just(vec![(4, 1), (1, 1), (2, 1)]),
        Just(vec![(1, 2), (4, 1), (2, 1)]),
        Just(vec![(1, 1); 4]),
    ];
    (factors, 1..50u16, 1..50u16, 0..9u16, any::<u64>()).prop_map(
        |(factors, width, height, restart_interval, seed)| writer::Spec {
            width,
            height,
            factors,
            restart_interval,
            interleaved: true,
            adobe: None,
            wide_steps: false,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_of_any_files_and_regions(
        files in prop::collection::vec((specs(), cuts(), 0..4usize, any::<bool>()), 1..12),
        length in prop::sample::select(vec![32u32, 64, 256, 1024, 1 << 20]),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let cases: Vec<Case> = files.iter().map(|(spec, cut, scale, transcoded)| {
            let mut bytes = spec.write().bytes;
            if *transcoded {
                bytes = transcode(&bytes, &TranscodeOptions { metadata: Metadata::Drop }).expect("an image");
            }
            let region = part(&Header::parse(&bytes).expect("a header"), *cut);
            Case { bytes, region, scale: SCALES[*scale] }
        }).collect();
        let tally = check(&gpu, &cases, scans(length));
        // Of some samplings there is no scaled size.
        prop_assert_eq!((tally.refused, tally.unsynchronised), (0, 0));
    }

    #[test]
    fn damaged_files_are_refused_where_the_cpu_refuses_them(
        files in prop::collection::vec((specs(), prop::collection::vec((0.0..1.0, any::<u8>()), 0..3), 0.8..1.2), 1..40),
        length in prop::sample::select(vec![32u32, 1024]),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let cases: Vec<Case> = files.iter().filter_map(|(spec, damage, end)| {
            let mut bytes = spec.write().bytes;
            let data = bytes.windows(2).position(|two| two == [0xFF, 0xDA]).expect("a scan") + 14;
            for (place, byte) in damage {
                let at = data + (place * (bytes.len() - data) as f64) as usize;
                bytes[at] = *byte;
            }
            bytes.truncate((bytes.len() as f64 * end) as usize);
            Case::whole(bytes)
        }).collect();
        let tally = check(&gpu, &cases, scans(length));
        prop_assert_eq!(tally.unsynchronised, 0);
    }
}

/// A picture with edges, gradients and noise.
fn picture(width: u16, height: u16, channels: usize) -> Vec<u8> {
    let (mut state, mut out) = (1u32, Vec::new());
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            for channel in 0..channels as u32 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let flat = (x / 24 + y / 24) % 3 == 0;
                let noise = if flat { 0 } else { state >> 28 };
                out.push(
                    ((x * (channel + 1) + y * 2) / 3 + noise * channel + 90 * ((x / 13 + y / 7) & 1)) as u8,
                );
            }
        }
    }
    out
}

#[test]
fn encoders_codes_and_samplings() {
    let Some(gpu) = gpu() else { return };
    let mut cases = Vec::new();
    for (i, sampling) in [
        SamplingFactor::F_1_1,
        SamplingFactor::F_2_1,
        SamplingFactor::F_1_2,
        SamplingFactor::F_2_2,
        SamplingFactor::F_4_1,
        SamplingFactor::F_4_2,
    ]
    .into_iter()
    .enumerate()
    {
        for (optimized, interval, quality) in [(false, 0, 60), (true, 0, 95), (false, 1, 30), (true, 5, 80)] {
            let (width, height) = (61 + 9 * i as u16, 40 + u16::from(quality));
            for (kind, channels) in [(ColorType::Rgb, 3), (ColorType::Luma, 1), (ColorType::Cmyk, 4)] {
                let mut bytes = Vec::new();
                let mut encoder = Encoder::new(&mut bytes, quality);
                encoder.set_sampling_factor(sampling);
                encoder.set_optimized_huffman_tables(optimized);
                encoder.set_restart_interval(interval);
                let encoded = encoder.encode(&picture(width, height, channels), width, height, kind);
                encoded.expect("a picture");
                // One scan of codes of its own.
                if let Ok(transcoded) = transcode(
                    &bytes,
                    &TranscodeOptions {
                        metadata: Metadata::Drop,
                    },
                ) {
                    cases.extend(Case::whole(transcoded));
                }
                cases.extend(Case::whole(bytes));
            }
        }
    }
    let one_pixel = writer::Spec {
        width: 1,
        height: 1,
        factors: vec![(1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 3,
    };
    cases.extend(Case::whole(one_pixel.write().bytes));
    for length in [64, 512, SUBSEQUENCE] {
        let tally = check(&gpu, &cases, scans(length));
        println!("{length} bits: {tally}");
        assert_eq!(tally.exact + tally.apart, cases.len());
    }
    // With too few rounds they are given to the CPU, not decoded wrongly.
    let mut few = scans(64);
    few.most_rounds = 2;
    let tally = check(&gpu, &cases, few);
    assert!(tally.unsynchronised > 0, "{tally:?}");
}

#[test]
fn a_batch_of_nothing() {
    let Some(gpu) = gpu() else { return };
    assert_eq!(check(&gpu, &[], Scans::default()), Tally::default());
}

/// The files of a folder of test data; none where it is not there: then the test is skipped.
fn data(folder: &str) -> Vec<PathBuf> {
    stokehold_untested::needs::data(folder).unwrap_or_default()
}

/// All that have a header and are not of a size that only lies.
fn cases(paths: &[PathBuf]) -> Vec<Case> {
    let read = |path: &PathBuf| Case::whole(std::fs::read(path).expect("a file"));
    let cases = paths.iter().filter_map(read);
    cases
        .filter(|case| case.region.width * case.region.height <= 1 << 26)
        .collect()
}

#[test]
fn photos() {
    let Some(gpu) = gpu() else { return };
    let all = std::env::var_os("STOKEHOLD_TEST_ALL").is_some();
    let paths: Vec<PathBuf> = data("photos")
        .into_iter()
        .step_by(if all { 1 } else { 50 })
        .collect();
    let tally = check_all(&gpu, &cases(&paths));
    println!("photos: {tally}");
    assert_eq!(tally.refused, 0);
}

#[test]
fn files_of_fuzzers_and_old_crashes() {
    let Some(gpu) = gpu() else { return };
    for folder in ["jpeg-corpus/hostile", "jpeg-corpus/valid"] {
        let tally = check_all(&gpu, &cases(&data(folder)));
        println!("{folder}: {tally}");
    }
}
