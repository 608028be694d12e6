//! The kernels in plain Rust: what the others must equal.

use super::{BLOCK, Columns};
use crate::fused::source::Color;
use std::ops::Range;

pub(super) fn sum_columns(source: &[u8], columns: &Columns, out: &mut [i16]) {
    let tables = columns.weights.chunks_exact(columns.groups);
    let blocks = out
        .chunks_exact_mut(BLOCK)
        .zip(columns.starts.chunks_exact(BLOCK));
    for ((out, starts), tables) in blocks.zip(tables) {
        for (lane, (out, &start)) in out.iter_mut().zip(starts).enumerate() {
            let samples = source[start as usize..].as_chunks::<4>().0;
            let sum: i32 = tables
                .iter()
                .zip(samples)
                .map(|(table, samples)| {
                    let weights = &table[4 * lane..4 * lane + 4];
                    let products = weights.iter().zip(samples);
                    products.map(|(&w, &s)| i32::from(w) * i32::from(s)).sum::<i32>()
                })
                .sum();
            *out = ((sum + 64) >> 7).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
        }
    }
}

/// The product of a value and a weight of 15 bits, rounded.
fn product(value: i16, weight: i16) -> i16 {
    ((i32::from(value) * i32::from(weight) + (1 << 14)) >> 15) as i16
}

pub(super) fn mix_rows(sums: &[i16], rows: Range<usize>, weights: &[i16], out: &mut [i16]) {
    let width = out.len();
    out.fill(0);
    for (y, &weight) in rows.zip(weights) {
        let row = &sums[y % weights.len() * width..][..width];
        out.iter_mut()
            .zip(row)
            .for_each(|(sum, &value)| *sum = sum.saturating_add(product(value, weight)));
    }
}

pub(super) fn rgbx(color: Color, channels: [&[i16]; 3], out: &mut [u8]) {
    let [first, second, third] = channels;
    let out: &mut [[u8; 4]] = out.as_chunks_mut().0;
    let channels = first.iter().zip(second).zip(third);
    match color {
        Color::Rgb => {
            for (out, ((&r, &g), &b)) in out.iter_mut().zip(channels) {
                *out = [byte(r), byte(g), byte(b), 255];
            }
        }
        Color::YCbCr => {
            for (out, ((&y, &cb), &cr)) in out.iter_mut().zip(channels) {
                *out = pixel(y, cb, cr);
            }
        }
    }
}

/// JFIF's matrix. Of each factor the part below one is a weight of 15 bits.
fn pixel(y: i16, cb: i16, cr: i16) -> [u8; 4] {
    let (cb, cr) = (cb.saturating_sub(128 << 6), cr.saturating_sub(128 << 6));
    let red = cr.saturating_add(product(cr, RED));
    let green = product(cb, GREEN_CB).saturating_add(product(cr, GREEN_CR));
    let blue = cb.saturating_add(product(cb, BLUE));
    [
        byte(y.saturating_add(red)),
        byte(y.saturating_sub(green)),
        byte(y.saturating_add(blue)),
        255,
    ]
}

/// 1.402 - 1, 0.344136, 0.714136 and 1.772 - 1.
pub(super) const RED: i16 = 13173;
pub(super) const GREEN_CB: i16 = 11277;
pub(super) const GREEN_CR: i16 = 23401;
pub(super) const BLUE: i16 = 25297;

fn byte(value: i16) -> u8 {
    (value.saturating_add(32) >> 6).clamp(0, 255) as u8
}
