//! Coefficients are those that were written, whatever way they were coded.

use crate::oracle;
use crate::region::{Regions, SCALES};
use crate::writer::Spec;
use std::path::Path;
use std::process::Command;
use stokehold_jpeg::{Coding, Decoder, Header, Metadata, TranscodeOptions, transcode};

/// The rows of blocks, and the steps, of each component.
type Component = (Vec<Vec<[i16; 64]>>, [u16; 64]);

fn read(bytes: &[u8]) -> Vec<Component> {
    let mut decoder = Decoder::new();
    let coefficients = decoder.coefficients(bytes).expect("an image");
    let rows = |c: &stokehold_jpeg::ComponentCoefficients<'_>| {
        (0..c.blocks_high).map(|y| c.row(y).to_vec()).collect()
    };
    coefficients
        .components()
        .iter()
        .map(|c| (rows(c), c.steps))
        .collect()
}

/// From places in the order of coding: the diagonals, each in the direction opposite to the last one's.
fn zigzag() -> Vec<usize> {
    let mut order: Vec<(usize, usize)> = (0..8).flat_map(|y| (0..8).map(move |x| (y, x))).collect();
    order.sort_by_key(|&(y, x)| (x + y, if (x + y) % 2 == 0 { x } else { y }));
    order.into_iter().map(|(y, x)| 8 * y + x).collect()
}

#[test]
fn they_are_those_that_were_written() {
    let zigzag = zigzag();
    for (seed, factors) in [
        vec![(1, 1)],
        vec![(1, 1); 3],
        vec![(2, 2), (1, 1), (1, 1)],
        vec![(1, 2), (4, 1), (2, 1)],
        vec![(1, 1); 4],
    ]
    .into_iter()
    .enumerate()
    {
        // Components in scans of their own come in plain rows of blocks; so do those of interleaved 4:4:4.
        for interleaved in [false, factors.iter().all(|&f| f == (1, 1))] {
            let spec = Spec {
                width: 83,
                height: 45,
                factors: factors.clone(),
                restart_interval: 2,
                interleaved,
                adobe: None,
                wide_steps: seed % 2 == 0,
                seed: seed as u64,
            };
            let written = spec.write();
            let components = read(&written.bytes);
            assert_eq!(components.len(), factors.len());
            for ((rows, steps), expected) in components.iter().zip(&written.blocks) {
                let blocks: Vec<_> = rows.concat();
                assert_eq!(blocks.len(), expected.len());
                for (block, expected) in blocks.iter().zip(expected) {
                    assert!(
                        zigzag
                            .iter()
                            .zip(expected)
                            .all(|(&place, &value)| block[place] == value)
                    );
                }
                assert!(
                    zigzag
                        .iter()
                        .enumerate()
                        .all(|(k, &place)| usize::from(steps[place]) == 1 + k / 4)
                );
            }
        }
    }
}

/// The same photo as baseline, progressive (by jpegtran) and transcoded.
#[test]
fn they_do_not_depend_on_the_coding() {
    if Command::new("jpegtran").arg("-version").output().is_err() {
        stokehold_untested::skip("jpegtran is not there");
        return;
    }
    let tran = |path: &Path| {
        let output = Command::new("jpegtran").arg("-progressive").arg(path).output();
        output.expect("jpegtran runs").stdout
    };
    for path in oracle::data("photos").unwrap_or_default().iter().step_by(40) {
        let bytes = std::fs::read(path).expect("a file");
        let expected = read(&bytes);
        let progressive = tran(path);
        assert_eq!(
            Header::parse(&progressive).expect("a header").coding,
            Coding::Progressive
        );
        assert!(read(&progressive) == expected, "{}", path.display());
        let options = TranscodeOptions {
            metadata: Metadata::Drop,
        };
        let transcoded = transcode(&progressive, &options).expect("an image");
        assert!(read(&transcoded) == expected, "{}", path.display());
    }
}

/// Blocks of a region hold what the whole image's coefficients hold there, and nothing that is zero; their planes lie
/// where planes of samples lie.
#[test]
fn blocks_of_a_region_are_those_of_the_whole() {
    let (_folder, paths) = crate::exact::every_sampling_files(150);
    let (mut whole, mut part, mut samples) = (Decoder::new(), Decoder::new(), Decoder::new());
    let (mut random, mut compared) = (Regions::default(), 0);
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let header = Header::parse(&bytes).expect("a header");
        let all = whole.coefficients(&bytes).expect("coefficients");
        for scale in SCALES {
            let region = random.next(&header);
            let Ok(blocks) = part.decode_blocks(&bytes, region, scale) else {
                continue; // a sampling that needs fractions
            };
            let planes = samples.decode_planes(&bytes, region, scale).expect("planes");
            assert_eq!(blocks.components().len(), all.components().len());
            for ((part, whole), plane) in blocks
                .components()
                .iter()
                .zip(all.components())
                .zip(planes.planes())
            {
                let layout = part.layout;
                assert_eq!(
                    (layout.x, layout.y, layout.width, layout.height, layout.pixels),
                    (plane.x, plane.y, plane.width, plane.height, plane.pixels)
                );
                assert_eq!(part.steps.map(|step| step as u16), whole.steps);
                let (wide, high) = (layout.blocks_wide as usize, layout.blocks_high as usize);
                assert_eq!(part.heads.len(), wide * high);
                let (left, top) = (
                    (layout.x / layout.side) as usize,
                    (layout.y / layout.side) as usize,
                );
                for (i, head) in part.heads.iter().enumerate() {
                    let expected = whole.row(top + i / wide)[left + i % wide];
                    let mut values = part.values[head.first as usize..].iter();
                    for (place, &expected) in expected.iter().enumerate() {
                        let value = match head.mask >> place & 1 {
                            1 => *values.next().expect("a value for each bit"),
                            _ => 0,
                        };
                        assert!(value != 0 || head.mask >> place & 1 == 0, "a zero is sent");
                        if place == 0 || layout.side > 1 {
                            assert_eq!(value, expected, "coefficient {place} of block {i}");
                        }
                    }
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "hardly any file was decoded");
}
