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
    assert_same(&gpu, &files(120), &crop, SampleType::U8);
}
