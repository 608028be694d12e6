//! A row index changes nothing but what is read.

use crate::oracle;
use crate::writer::Spec;
use proptest::prelude::*;
use stokehold_jpeg::{
    Decoder, Error, Header, Input, Layout, Metadata, Region, RowIndex, Scale, TranscodeOptions, Transcoded,
    transcode,
};

const OPTIONS: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Drop,
};
const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

fn decode<'a>(
    decoder: &mut Decoder,
    input: impl Into<Input<'a>>,
    region: Region,
    scale: Scale,
) -> Result<Vec<u8>, Error> {
    let pixels = decoder.decode(input, region, scale, Layout::Rgb)?;
    Ok((0..pixels.height).flat_map(|y| pixels.row(y).to_vec()).collect())
}

/// Only the segments and the rows that a region needs, and the index of them.
fn cut(transcoded: &Transcoded, needed: std::ops::Range<u32>) -> (Vec<u8>, u32, Vec<u32>) {
    let rows = &transcoded.rows[needed.start as usize..=needed.end as usize];
    let data = transcoded.rows[0];
    let mut bytes = transcoded.bytes[..data as usize].to_vec();
    bytes.extend(&transcoded.bytes[rows[0] as usize..rows[rows.len() - 1] as usize]);
    let offsets = rows.iter().map(|row| row - rows[0] + data).collect();
    (bytes, needed.start, offsets)
}

/// Decodes random regions of a transcoded file: all of it, with its index, and with only the needed rows.
fn compare(bytes: &[u8], regions: u32, seed: &mut u64) {
    let Ok(transcoded) = transcode(bytes, &OPTIONS) else {
        return;
    };
    let header = Header::parse(&transcoded.bytes).expect("a header");
    let mut below = |limit: u32| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) as u32 % limit
    };
    let mut decoder = Decoder::new();
    for i in 0..regions {
        let (x, y) = (below(header.width), below(header.height));
        let (width, height) = (1 + below(header.width - x), 1 + below(header.height - y));
        let (region, scale) = (Region { x, y, width, height }, SCALES[i as usize % 4]);
        let expected = decode(&mut decoder, &transcoded.bytes, region, scale);
        let rows = RowIndex {
            first: 0,
            offsets: &transcoded.rows,
        };
        let whole = Input {
            bytes: &transcoded.bytes,
            rows: Some(rows),
            tables: None,
        };
        assert_eq!(
            decode(&mut decoder, whole, region, scale),
            expected,
            "{region:?} {scale:?}"
        );
        let (bytes, first, offsets) = cut(&transcoded, header.mcu_rows(&region, scale));
        let rows = RowIndex {
            first,
            offsets: &offsets,
        };
        let part = Input {
            bytes: &bytes,
            rows: Some(rows),
            tables: None,
        };
        assert_eq!(
            decode(&mut decoder, part, region, scale),
            expected,
            "{region:?} {scale:?}"
        );
        // No row is read without need.
        if scale == Scale::Full && offsets.len() > 2 {
            let rows = RowIndex {
                first: first + 1,
                offsets: &offsets[1..],
            };
            let rows = Some(rows);
            let missing = decode(
                &mut decoder,
                Input {
                    bytes: &bytes,
                    rows,
                    tables: None,
                },
                region,
                scale,
            );
            assert!(
                expected.is_err() || matches!(missing, Err(Error::RowIndex(_))),
                "{region:?}"
            );
        }
    }
}

#[test]
fn of_photos() {
    let mut seed = 1;
    for path in oracle::data("photos").unwrap_or_default().iter().step_by(5) {
        compare(&std::fs::read(path).expect("a file"), 8, &mut seed);
    }
}

#[test]
fn of_everything_the_encoder_offers() {
    let mut seed = 2;
    for path in oracle::corpus() {
        compare(&std::fs::read(path).expect("a file"), 12, &mut seed);
    }
}

#[test]
fn of_every_sampling() {
    let mut seed = 3;
    for i in 0..200 {
        let choice = [1, 2, 1, 4, 1, 3];
        let factor = |k: usize| choice[(i * 7 + k * (1 + i / 9)) % 6];
        let count = [1, 3, 4][i % 3];
        let spec = Spec {
            width: 1 + (i * 37 % 150) as u16,
            height: 1 + (i * 53 % 200) as u16,
            factors: (0..count).map(|k| (factor(k), factor(k + 3))).collect(),
            restart_interval: 0,
            interleaved: false,
            adobe: None,
            wide_steps: false,
            seed: i as u64,
        };
        compare(&spec.write().bytes, 12, &mut seed);
    }
}

/// A file of 12 MCU rows, 5 MCUs wide.
fn file() -> Transcoded {
    let spec = Spec {
        width: 75,
        height: 190,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 4,
    };
    transcode(&spec.write().bytes, &OPTIONS).expect("an image")
}

#[test]
fn an_index_that_lies_is_refused() {
    let Transcoded { bytes, rows } = file();
    let mut decoder = Decoder::new();
    let region = Region {
        x: 20,
        y: 70,
        width: 30,
        height: 60,
    };
    let expected = decode(&mut decoder, &bytes, region, Scale::Full).expect("an image");
    let mut with = |bytes: &[u8], first: u32, offsets: &[u32]| {
        let rows = Some(RowIndex { first, offsets });
        decode(
            &mut decoder,
            Input {
                bytes,
                rows,
                tables: None,
            },
            region,
            Scale::Full,
        )
    };
    assert_eq!(with(&bytes, 0, &rows), Ok(expected.clone()));
    let refused = |result: Result<Vec<u8>, Error>| {
        assert!(
            matches!(result, Err(Error::RowIndex(_))),
            "{:?}",
            result.map(|_| ())
        );
    };
    for by in [1u32, 2, 3, 10, 1000, 1 << 31] {
        for row in 4..9 {
            let mut late = rows.clone();
            late[row] = late[row].wrapping_add(by);
            refused(with(&bytes, 0, &late));
            let mut early = rows.clone();
            early[row] = early[row].wrapping_sub(by);
            refused(with(&bytes, 0, &early));
        }
    }
    refused(with(&bytes, 0, &[]));
    refused(with(&bytes, 0, &rows[..6]));
    refused(with(&bytes, 0, &rows[1..]));
    refused(with(&bytes, 1, &rows));
    refused(with(&bytes, u32::MAX, &rows));
    refused(with(&bytes[..rows[7] as usize], 0, &rows));
    refused(with(&bytes, 0, &rows.iter().rev().copied().collect::<Vec<_>>()));
    // Rows that end within the bytes but not within the coded data.
    refused(with(&bytes, 0, &vec![0; rows.len()]));
}

#[test]
fn files_without_a_marker_behind_every_row_have_no_index() {
    let spec = Spec {
        width: 75,
        height: 190,
        factors: vec![(1, 1); 3],
        restart_interval: 3,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 4,
    };
    for spec in [
        Spec {
            interleaved: false,
            restart_interval: 10,
            ..spec.clone()
        },
        spec,
    ] {
        let bytes = spec.write().bytes;
        let rows = Some(RowIndex {
            first: 0,
            offsets: &[700, 800],
        });
        let region = Region {
            x: 0,
            y: 0,
            width: 1,
            height: 1,
        };
        let result = decode(
            &mut Decoder::new(),
            Input {
                bytes: &bytes,
                rows,
                tables: None,
            },
            region,
            Scale::Full,
        );
        assert!(matches!(result, Err(Error::RowIndex(_))), "{result:?}");
    }
}

#[test]
fn what_lies_outside_the_image_has_no_rows() {
    let Transcoded { bytes, .. } = file();
    let header = Header::parse(&bytes).expect("a header");
    let outside = [
        (0, 0, 0, 1),
        (0, 0, header.width + 1, 1),
        (0, header.height, 1, 1),
        (u32::MAX, 0, u32::MAX, 1),
    ];
    for (x, y, width, height) in outside {
        let region = Region { x, y, width, height };
        for scale in SCALES {
            assert_eq!(header.mcus(&region, scale), (0..0, 0..0), "{region:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the index says, the result is an error or what those rows of the file hold.
    #[test]
    fn hostile_indexes(
        first in prop_oneof![0..14u32, any::<u32>()],
        changes in prop::collection::vec((0..13usize, prop_oneof![0..13usize, 0..20000usize]), 0..6),
        y in 0..190u32,
        height in 1..190u32,
    ) {
        let Transcoded { bytes, rows } = file();
        let mut offsets = rows.clone();
        for (at, to) in changes {
            offsets[at] = rows.get(to).copied().unwrap_or(to as u32);
        }
        let region = Region { x: 3, y, width: 60, height: height.min(190 - y) };
        let index = Some(RowIndex { first, offsets: &offsets });
        let result = decode(&mut Decoder::new(), Input { bytes: &bytes, rows: index, tables: None }, region, Scale::Full);
        let Ok(pixels) = result else { return Ok(()) };
        let needed = Header::parse(&bytes)?.mcu_rows(&region, Scale::Full);
        let mut right = true;
        for row in needed {
            let read = rows.iter().position(|&start| start == offsets[(row - first) as usize]);
            prop_assert_eq!(read.map(|read| read % 8), Some(row as usize % 8), "restart markers count to eight");
            right &= read == Some(row as usize);
        }
        prop_assert!(!right || pixels == decode(&mut Decoder::new(), &bytes, region, Scale::Full)?);
    }
}
