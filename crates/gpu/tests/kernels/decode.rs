//! Decoding: what an exact crop shows is the file's pixels.

use crate::{assert_same, gpu, writer};
use stokehold_pipeline::{Pipeline, SampleType};

/// Files of every sampling that crate jpeg decodes, in odd sizes, with and without restart markers, with wild
/// coefficients and steps.
pub fn files(count: u64) -> Vec<Vec<u8>> {
    let mut state = 99u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    let choices: [[u8; 3]; 6] = [[1, 2, 2], [1, 2, 4], [1, 4, 4], [1, 3, 3], [1, 1, 2], [2, 3, 1]];
    let files = (0..count).map(|i| {
        let components = [1, 3, 3, 3, 4][i as usize % 5];
        let mut factor = || choices[i as usize % 6][below(3) as usize];
        let factors: Vec<(u8, u8)> = (0..components).map(|_| (factor(), factor())).collect();
        let blocks: u32 = factors.iter().map(|(h, v)| u32::from(h * v)).sum();
        let spec = writer::Spec {
            width: if i == 0 { 1 } else { 1 + below(70) as u16 },
            height: if i == 0 { 1 } else { 1 + below(70) as u16 },
            factors,
            restart_interval: [0, 0, 1 + below(7) as u16][below(3) as usize],
            interleaved: blocks <= 10 && below(4) > 0,
            adobe: [None, Some(0), Some(components / 2)][below(3) as usize],
            wide_steps: below(5) == 0,
            seed: i,
        };
        spec.write().bytes
    });
    files.collect()
}

pub fn pipeline(text: &str) -> Pipeline {
    Pipeline::from_toml(text).expect("a pipeline")
}

#[test]
fn every_sampling_is_exact() {
    let Some(gpu) = gpu() else { return };
    let crop = pipeline("[[op]]\ntype = \"CenterCrop\"\nsize = 80\n[[op]]\ntype = \"ToFloat\"\n");
    let compared = assert_same(&gpu, &files(120), &crop, SampleType::U8);
    assert!(compared > 60 * 3 * 80 * 80, "hardly any file was decoded");
}

/// A crop that begins in any column and row of a block, of every sampling there is a way of its own for: what lies
/// next to it is decoded just as far as upsampling looks.
#[test]
fn crops_at_every_place_of_a_block_are_exact() {
    let Some(gpu) = gpu() else { return };
    let mut all = Vec::new();
    for factors in [
        [(1, 1); 3],
        [(2, 1), (1, 1), (1, 1)],
        [(1, 2), (1, 1), (1, 1)],
        [(2, 2), (1, 1), (1, 1)],
    ] {
        let spec = writer::Spec {
            width: 67,
            height: 59,
            factors: factors.to_vec(),
            restart_interval: 0,
            interleaved: true,
            adobe: None,
            wide_steps: false,
            seed: 3,
        };
        all.push(spec.write().bytes);
    }
    // Every sample draws a place of its own.
    let files: Vec<Vec<u8>> = (0..160).map(|i| all[i % 4].clone()).collect();
    let crop = pipeline("[[op]]\ntype = \"RandomCrop\"\nsize = [13, 11]\n[[op]]\ntype = \"ToFloat\"\n");
    let compared = assert_same(&gpu, &files, &crop, SampleType::U8);
    assert_eq!(compared, 160 * 3 * 13 * 11);
}

/// Images up to 16,000 pixels wide, whose rows have more blocks than a part of a small image, with more of it in the picture than that.
pub fn wide() -> (Vec<Vec<u8>>, Pipeline) {
    let (one, two) = ([(1, 1); 3], [(2, 2), (1, 1), (1, 1)]);
    let files = [(4096, &one), (4104, &one), (9000, &two), (16_000, &two)].map(|(width, factors)| {
        let spec = writer::Spec {
            width,
            height: 19,
            factors: factors.to_vec(),
            restart_interval: 0,
            interleaved: true,
            adobe: None,
            wide_steps: false,
            seed: u64::from(width),
        };
        spec.write().bytes
    });
    let crop = "[[op]]\ntype = \"CenterCrop\"\nsize = [18, 15000]\n[[op]]\ntype = \"ToFloat\"\n";
    (files.to_vec(), pipeline(crop))
}

#[test]
fn wide_images_are_exact() {
    let Some(gpu) = gpu() else { return };
    let (files, crop) = wide();
    assert_eq!(
        assert_same(&gpu, &files, &crop, SampleType::U8),
        4 * 3 * 18 * 15_000
    );
}
