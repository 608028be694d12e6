//! Flips, crops, borders and rotations, one at a time.

use crate::image::RgbImage;
use crate::op::{Interpolation, PaddingMode};
use crate::perspective::Perspective;
use crate::step::{Affine, Rotate, Transform};

pub(super) fn flip_horizontal(image: &mut RgbImage) {
    let width = image.width as usize;
    image
        .pixels_mut()
        .chunks_exact_mut(width)
        .for_each(<[_]>::reverse);
}

pub(super) fn flip_vertical(image: &mut RgbImage) {
    let row = 3 * image.width as usize;
    let rows = image.height as usize;
    for y in 0..rows / 2 {
        let (above, below) = image.data.split_at_mut((rows - 1 - y) * row);
        above[y * row..(y + 1) * row].swap_with_slice(&mut below[..row]);
    }
}

pub(super) fn crop(image: &RgbImage, left: u32, top: u32, width: u32, height: u32) -> RgbImage {
    let mut data = Vec::with_capacity(3 * width as usize * height as usize);
    for y in top..top + height {
        let row = image.row(y as usize);
        data.extend_from_slice(row[left as usize..(left + width) as usize].as_flattened());
    }
    RgbImage { width, height, data }
}

pub(super) fn pad(
    image: &RgbImage,
    [left, top, right, bottom]: [u32; 4],
    fill: [u8; 3],
    mode: PaddingMode,
) -> RgbImage {
    let (width, height) = (image.width + left + right, image.height + top + bottom);
    let mut out = RgbImage::filled(width, height, fill);
    for (y, row) in out.pixels_mut().chunks_exact_mut(width as usize).enumerate() {
        let Some(from) = source_index(y as i64 - i64::from(top), image.height, mode) else {
            continue;
        };
        let from = image.row(from);
        for (x, to) in row.iter_mut().enumerate() {
            if let Some(x) = source_index(x as i64 - i64::from(left), image.width, mode) {
                *to = from[x];
            }
        }
    }
    out
}

/// Which pixel shows at a position that may lie outside; none for the fill colour.
pub(crate) fn source_index(at: i64, size: u32, mode: PaddingMode) -> Option<usize> {
    let size = i64::from(size);
    if (0..size).contains(&at) {
        return Some(at as usize);
    }
    let index = match mode {
        PaddingMode::Constant => return None,
        PaddingMode::Edge => at.clamp(0, size - 1),
        // As numpy's: a border wider than the image mirrors the mirrored image again.
        PaddingMode::Reflect => {
            let period = (2 * (size - 1)).max(1);
            let at = at.rem_euclid(period);
            at.min(period - at)
        }
        PaddingMode::Symmetric => {
            let at = at.rem_euclid(2 * size);
            at.min(2 * size - 1 - at)
        }
    };
    // One pixel reflects to itself.
    Some(index.clamp(0, size - 1) as usize)
}

pub(super) fn rotate(image: &RgbImage, rotate: &Rotate) -> RgbImage {
    let (map, width, height) = rotate.map(image.width, image.height);
    let mut out = RgbImage::filled(width, height, rotate.fill.rgb());
    gather(image, &map, rotate.interpolation, &mut out);
    out
}

pub(super) fn affine(image: &RgbImage, transform: &Transform) -> RgbImage {
    let map = transform.map(image.width, image.height);
    let size = (image.width, image.height);
    mapped(image, &map, transform.interpolation, transform.fill.rgb(), size)
}

/// `Image.transform(size, AFFINE, map, interpolation, fillcolor=fill)`.
pub(crate) fn mapped(
    image: &RgbImage,
    map: &Affine,
    interpolation: Interpolation,
    fill: [u8; 3],
    (width, height): (u32, u32),
) -> RgbImage {
    let mut out = RgbImage::filled(width, height, fill);
    gather(image, map, interpolation, &mut out);
    out
}

/// Fills `out` where its points lie inside the image.
fn gather(image: &RgbImage, map: &Affine, interpolation: Interpolation, out: &mut RgbImage) {
    match interpolation {
        Interpolation::Nearest => nearest(image, map, out),
        Interpolation::Bilinear => sampled(image, |x, y| map.apply(x, y), out, bilinear),
        Interpolation::Bicubic => sampled(image, |x, y| map.apply(x, y), out, bicubic),
    }
}

/// As Pillow does it: every place by itself, in floating point.
pub(super) fn perspective(image: &RgbImage, perspective: &Perspective) -> RgbImage {
    let mut out = RgbImage::filled(image.width, image.height, perspective.fill.rgb());
    let sample = match perspective.interpolation {
        Interpolation::Nearest => |image: &RgbImage, x: f64, y: f64| image.row(y as usize)[x as usize],
        Interpolation::Bilinear => bilinear,
        Interpolation::Bicubic => bicubic,
    };
    sampled(image, |x, y| perspective.apply(x, y), &mut out, sample);
    out
}

/// Pillow goes three ways. Where rows stay rows, it adds up places along the two axes; else it steps through the source in
/// 16.16 fixed point while the corners fit that, and in floating point beyond.
fn nearest(image: &RgbImage, map: &Affine, out: &mut RgbImage) {
    let m = map.0;
    let (width, height) = (f64::from(out.width), f64::from(out.height));
    let fits = |(x, y): (f64, f64)| x.abs() < 32_768.0 && y.abs() < 32_768.0;
    let corners = [(0.0, 0.0), (width, height), (0.0, height), (width, 0.0)];
    if m[1] == 0.0 && m[3] == 0.0 {
        nearest_of_rows(image, map, out);
    } else if corners.into_iter().all(|(x, y)| fits(map.apply(x, y))) {
        nearest_in_fixed_point(image, map, out);
    } else {
        nearest_in_floating_point(image, map, out);
    }
}

/// The pixel that holds a place on an axis of `size` pixels.
fn pixel_at(place: f64, size: u32) -> Option<usize> {
    (0.0..f64::from(size)).contains(&place).then_some(place as usize)
}

fn nearest_of_rows(image: &RgbImage, Affine(m): &Affine, out: &mut RgbImage) {
    let places = |first: f64, step: f64, size: u32| {
        std::iter::successors(Some(first), move |place| Some(place + step))
            .map(move |place| pixel_at(place, size))
    };
    let columns: Vec<Option<usize>> = places(m[2] + m[0] * 0.5, m[0], image.width)
        .take(out.width as usize)
        .collect();
    let rows = places(m[5] + m[4] * 0.5, m[4], image.height);
    for (row, y) in out.pixels_mut().chunks_exact_mut(columns.len()).zip(rows) {
        let Some(y) = y else { continue };
        let from = image.row(y);
        for (to, x) in row.iter_mut().zip(&columns) {
            if let Some(x) = *x {
                *to = from[x];
            }
        }
    }
}

fn nearest_in_floating_point(image: &RgbImage, Affine(m): &Affine, out: &mut RgbImage) {
    let mut start = [m[2] + m[1] * 0.5 + m[0] * 0.5, m[5] + m[4] * 0.5 + m[3] * 0.5];
    let columns = out.width as usize;
    for row in out.pixels_mut().chunks_exact_mut(columns) {
        let [mut x, mut y] = start;
        for to in row {
            if let (Some(x), Some(y)) = (pixel_at(x, image.width), pixel_at(y, image.height)) {
                *to = image.row(y)[x];
            }
            x += m[0];
            y += m[3];
        }
        start = [start[0] + m[1], start[1] + m[4]];
    }
}

fn nearest_in_fixed_point(image: &RgbImage, Affine(m): &Affine, out: &mut RgbImage) {
    let fixed = |v: f64| (v * 65536.0 + 0.5).floor() as i64;
    let step = [fixed(m[0]), fixed(m[3])];
    let mut start = [
        fixed(m[2] + m[0] * 0.5 + m[1] * 0.5),
        fixed(m[5] + m[3] * 0.5 + m[4] * 0.5),
    ];
    let (width, height) = (i64::from(image.width), i64::from(image.height));
    let pixels = image.pixels();
    let columns = out.width as usize;
    for row in out.pixels_mut().chunks_exact_mut(columns) {
        let [mut x, mut y] = start;
        for to in row {
            let (sx, sy) = (x >> 16, y >> 16);
            if (0..width).contains(&sx) && (0..height).contains(&sy) {
                *to = pixels[(sy * width + sx) as usize];
            }
            x += step[0];
            y += step[1];
        }
        start = [start[0] + fixed(m[1]), start[1] + fixed(m[4])];
    }
}

/// Fills `out` with what `sample` finds at the places of its pixels that lie inside the image.
fn sampled(
    image: &RgbImage,
    place: impl Fn(f64, f64) -> (f64, f64),
    out: &mut RgbImage,
    sample: fn(&RgbImage, f64, f64) -> [u8; 3],
) {
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    let columns = out.width as usize;
    for (y, row) in out.pixels_mut().chunks_exact_mut(columns).enumerate() {
        for (x, to) in row.iter_mut().enumerate() {
            let (sx, sy) = place(x as f64 + 0.5, y as f64 + 0.5);
            if (0.0..width).contains(&sx) && (0.0..height).contains(&sy) {
                *to = sample(image, sx, sy);
            }
        }
    }
}

/// The pixel at a place, edges repeated.
fn clamped(image: &RgbImage, x: i64, y: i64) -> [f64; 3] {
    let x = x.clamp(0, i64::from(image.width) - 1) as usize;
    let y = y.clamp(0, i64::from(image.height) - 1) as usize;
    image.row(y)[x].map(f64::from)
}

fn bilinear(image: &RgbImage, x: f64, y: f64) -> [u8; 3] {
    let (x, y) = (x - 0.5, y - 0.5);
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let (left, top) = (left as i64, top as i64);
    let mix = |a: f64, b: f64, t: f64| a + (b - a) * t;
    let row = |y: i64| {
        let (a, b) = (clamped(image, left, y), clamped(image, left + 1, y));
        std::array::from_fn::<f64, 3, _>(|c| mix(a[c], b[c], dx))
    };
    let (above, below) = (row(top), row(top + 1));
    std::array::from_fn(|c| mix(above[c], below[c], dy) as u8)
}

fn bicubic(image: &RgbImage, x: f64, y: f64) -> [u8; 3] {
    let (x, y) = (x - 0.5, y - 0.5);
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let (left, top) = (left as i64 - 1, top as i64 - 1);
    let cubic = |v: [f64; 4], d: f64| {
        let p = [
            v[1],
            v[2] - v[0],
            2.0 * (v[0] - v[1]) + v[2] - v[3],
            v[1] - v[0] - v[2] + v[3],
        ];
        p[0] + d * (p[1] + d * (p[2] + d * p[3]))
    };
    let rows: [[f64; 3]; 4] = std::array::from_fn(|j| {
        let four: [[f64; 3]; 4] = std::array::from_fn(|i| clamped(image, left + i as i64, top + j as i64));
        std::array::from_fn(|c| cubic(four.map(|p| p[c]), dx))
    });
    std::array::from_fn(|c| cubic(rows.map(|row| row[c]), dy).clamp(0.0, 255.0) as u8)
}
