//! Steps on masks, as torchvision's transforms (v2) do them on a `tv_tensors.Mask`.
//!
//! A mask is a tensor there and not a PIL image, so its geometry is that of `torch.nn.functional`: `interpolate` and
//! `grid_sample`, both `nearest`. They compute places in 32 bits and round differently from Pillow, and the functions below
//! round as they do. What a step shows outside of the image has no class.

use super::geometry::source_index;
use crate::mask::Mask;
use crate::perspective::Perspective;
use crate::step::{Rotate, Step, Transform};

/// Performs one step. Steps that change colours, and those on floats, leave a mask as it is.
pub(crate) fn apply_to_mask(step: &Step, mut mask: Mask) -> Mask {
    match step {
        Step::HorizontalFlip => {
            let width = mask.width as usize;
            mask.data.chunks_exact_mut(width).for_each(<[_]>::reverse);
        }
        Step::VerticalFlip => {
            let rows = mask.data.chunks_exact(mask.width as usize).rev();
            mask.data = rows.flatten().copied().collect();
        }
        Step::Crop {
            left,
            top,
            width,
            height,
        } => {
            let columns = *left as usize..(left + width) as usize;
            let rows = *top..top + height;
            let data = rows.flat_map(|y| &mask.row(y as usize)[columns.clone()]);
            let data = data.copied().collect();
            return Mask {
                width: *width,
                height: *height,
                data,
            };
        }
        Step::Pad { sides, mode, .. } => {
            let [left, top, right, bottom] = *sides;
            let from =
                |at: u32, before: u32, size| source_index(i64::from(at) - i64::from(before), size, *mode);
            let columns: Vec<_> = (0..mask.width + left + right)
                .map(|x| from(x, left, mask.width))
                .collect();
            let rows = (0..mask.height + top + bottom).map(|y| from(y, top, mask.height));
            return taken(&mask, &columns, rows);
        }
        Step::Resize { width, height, .. } => {
            let columns: Vec<_> = resized(mask.width, *width).collect();
            return taken(&mask, &columns, resized(mask.height, *height));
        }
        Step::Rotate(rotate) => return rotated(mask, rotate),
        Step::Affine(transform) => {
            let theta = inverse(transform, mask.width, mask.height);
            let (width, height) = (mask.width, mask.height);
            return sampled(
                &mask,
                width,
                height,
                &affine_grid(theta, (width, height), (width, height)),
            );
        }
        Step::Perspective(perspective) => {
            let grid = perspective_grid(perspective, mask.width, mask.height);
            return sampled(&mask, mask.width, mask.height, &grid);
        }
        Step::Brightness { .. }
        | Step::Contrast { .. }
        | Step::Saturation { .. }
        | Step::Hue { .. }
        | Step::Permute { .. }
        | Step::Grayscale
        | Step::Invert
        | Step::Posterize { .. }
        | Step::Solarize { .. }
        | Step::AutoContrast
        | Step::Equalize
        | Step::Sharpness { .. }
        | Step::Mix(_)
        | Step::GaussianBlur { .. }
        | Step::Dilate { .. }
        | Step::ToFloat
        | Step::Noise { .. }
        | Step::Normalize { .. }
        | Step::Erase { .. } => {}
    }
    mask
}

/// A mask of whole columns and rows of another; none is outside of it.
fn taken(mask: &Mask, columns: &[Option<usize>], rows: impl Iterator<Item = Option<usize>>) -> Mask {
    let mut data = Vec::new();
    let mut height = 0;
    for y in rows {
        height += 1;
        match y.map(|y| mask.row(y)) {
            Some(row) => data.extend(columns.iter().map(|x| x.map_or(Mask::IGNORE, |x| row[x]))),
            None => data.resize(data.len() + columns.len(), Mask::IGNORE),
        }
    }
    Mask {
        width: columns.len() as u32,
        height,
        data,
    }
}

/// The sources of a resized side, as `interpolate(mode="nearest")` finds them: from the upper left corner of each pixel.
fn resized(input: u32, output: u32) -> impl Iterator<Item = Option<usize>> {
    let scale = input as f32 / output as f32;
    (0..output).map(move |at| {
        Some(if output == input {
            at as usize
        } else if u64::from(output) == 2 * u64::from(input) {
            at as usize / 2
        } else {
            ((at as f32 * scale) as usize).min(input as usize - 1)
        })
    })
}

fn rotated(mask: Mask, rotate: &Rotate) -> Mask {
    let (_, width, height) = rotate.map(mask.width, mask.height);
    let angle = rotate.angle.rem_euclid(360.0);
    let turns_whole = rotate.expand || mask.width == mask.height;
    // torchvision leaves out the grid for these.
    if rotate.center.is_none() {
        if angle == 0.0 {
            return mask;
        }
        if angle == 180.0 {
            let data = mask.data.into_iter().rev().collect();
            return Mask { data, ..mask };
        }
        if turns_whole && (angle == 90.0 || angle == 270.0) {
            return turned(&mask, angle == 90.0);
        }
    }
    let same = Transform {
        angle: -angle,
        translate: [0, 0],
        scale: 1.0,
        shear: [0.0; 2],
        interpolation: rotate.interpolation,
        center: rotate.center,
        fill: rotate.fill,
    };
    let theta = inverse(&same, mask.width, mask.height);
    // With `expand` the size is the image's, which Pillow computes; torchvision's for a mask may differ by a pixel.
    sampled(
        &mask,
        width,
        height,
        &affine_grid(theta, (mask.width, mask.height), (width, height)),
    )
}

/// A quarter turn, counter-clockwise or clockwise.
fn turned(mask: &Mask, counter_clockwise: bool) -> Mask {
    let (width, height) = (mask.height, mask.width);
    let mut out = Mask::ignored(width, height);
    for (y, row) in out.data.chunks_exact_mut(width as usize).enumerate() {
        for (x, to) in row.iter_mut().enumerate() {
            *to = match counter_clockwise {
                true => mask.row(x)[height as usize - 1 - y],
                false => mask.row(width as usize - 1 - x)[y],
            };
        }
    }
    out
}

/// The map from places of the result to places of the mask, both counted from the centre, in 32 bits.
fn inverse(transform: &Transform, width: u32, height: u32) -> [f32; 6] {
    let from_center = |[x, y]: [f64; 2]| [x - f64::from(width) * 0.5, y - f64::from(height) * 0.5];
    let center = transform.center.map_or([0.0; 2], from_center);
    transform.about(center).0.map(|v| v as f32)
}

/// `_affine_grid`: for a pixel of the result its place in the mask, -1..=1 from side to side.
fn affine_grid(theta: [f32; 6], mask: (u32, u32), out: (u32, u32)) -> impl Fn(u32, u32) -> (f32, f32) {
    let half = |side: u32| (0.5 * f64::from(side)) as f32;
    let [a, b, c] = [theta[0], theta[1], theta[2]].map(|v| v / half(mask.0));
    let [d, e, f] = [theta[3], theta[4], theta[5]].map(|v| v / half(mask.1));
    let from_center = |at: u32, side: u32| at as f32 - (side as f32 - 1.0) * 0.5;
    move |x, y| {
        let (x, y) = (from_center(x, out.0), from_center(y, out.1));
        (x * a + y * b + c, x * d + y * e + f)
    }
}

/// `_perspective_grid`, likewise.
fn perspective_grid(perspective: &Perspective, width: u32, height: u32) -> impl Fn(u32, u32) -> (f32, f32) {
    let numbers = perspective.coefficients.map(|v| v as f32);
    let half = |side: u32| (0.5 * f64::from(side)) as f32;
    let [a, b, c] = [numbers[0], numbers[1], numbers[2]].map(|v| v / half(width));
    let [d, e, f] = [numbers[3], numbers[4], numbers[5]].map(|v| v / half(height));
    let [g, h] = [numbers[6], numbers[7]];
    move |x, y| {
        let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
        let depth = x * g + y * h + 1.0;
        (
            (x * a + y * b + c) / depth - 1.0,
            (x * d + y * e + f) / depth - 1.0,
        )
    }
}

/// `grid_sample(mode="nearest", padding_mode="zeros", align_corners=False)`, with no class instead of zeros.
fn sampled(mask: &Mask, width: u32, height: u32, grid: &impl Fn(u32, u32) -> (f32, f32)) -> Mask {
    // The product and the difference are one operation there, rounded once (a fused multiplication and addition).
    let pixel = |place: f32, side: u32| {
        let place = (f64::from(place + 1.0) * f64::from(side as f32 / 2.0) - 0.5) as f32;
        let index = place.round_ties_even();
        (index >= 0.0 && index < side as f32).then_some(index as usize)
    };
    let mut out = Mask::ignored(width, height);
    for (y, row) in (0..).zip(out.data.chunks_exact_mut(width as usize)) {
        for (x, to) in (0..).zip(row) {
            let (place_x, place_y) = grid(x, y);
            if let (Some(x), Some(y)) = (pixel(place_x, mask.width), pixel(place_y, mask.height)) {
                *to = mask.row(y)[x];
            }
        }
    }
    out
}
