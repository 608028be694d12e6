//! `Image.transpose` of a rectangle.

use crate::per_op::Rows;
use stokehold_jpeg::Region;

/// `Image.transpose`: where the pixel (x, y) of the result comes from.
pub(super) struct Turn {
    /// Column `u[0] + u[1] * x + u[2] * y`.
    u: [i64; 3],
    /// Row `v[0] + v[1] * x + v[2] * y`.
    v: [i64; 3],
}

impl Turn {
    /// Of an image of this size.
    pub(super) fn of(method: u8, width: u32, height: u32) -> Turn {
        let (right, bottom) = (i64::from(width) - 1, i64::from(height) - 1);
        let (u, v) = match method {
            0 => ([right, -1, 0], [0, 0, 1]),
            1 => ([0, 1, 0], [bottom, 0, -1]),
            2 => ([right, 0, -1], [0, 1, 0]),
            3 => ([right, -1, 0], [bottom, 0, -1]),
            4 => ([0, 0, 1], [bottom, -1, 0]),
            5 => ([0, 0, 1], [0, 1, 0]),
            _ => ([right, 0, -1], [bottom, -1, 0]),
        };
        Turn { u, v }
    }

    fn source(&self, x: u32, y: u32) -> (i64, i64) {
        let at = |[first, along, down]: [i64; 3]| first + along * i64::from(x) + down * i64::from(y);
        (at(self.u), at(self.v))
    }

    /// The rectangle that becomes `rect`.
    pub(super) fn needs(&self, rect: Region) -> Region {
        let a = self.source(rect.x, rect.y);
        let b = self.source(rect.x + rect.width - 1, rect.y + rect.height - 1);
        Region {
            x: a.0.min(b.0) as u32,
            y: a.1.min(b.1) as u32,
            width: a.0.abs_diff(b.0) as u32 + 1,
            height: a.1.abs_diff(b.1) as u32 + 1,
        }
    }

    /// Writes `rect` of the result from `part` of the source.
    pub(super) fn write(&self, from: Rows<'_>, part: Region, rect: Region, out: &mut [u8]) {
        let (u, v) = self.source(rect.x, rect.y);
        let pixel = from.pixel as i64;
        let stride = from.stride as i64;
        let first = (v - i64::from(part.y)) * stride + (u - i64::from(part.x)) * pixel;
        let along = self.v[1] * stride + self.u[1] * pixel;
        let down = self.v[2] * stride + self.u[2] * pixel;
        let rows = out.chunks_exact_mut(rect.width as usize * from.pixel);
        for (y, out) in rows.enumerate() {
            let begin = first + down * y as i64;
            match from.pixel {
                1 => pick::<1>(from.data, begin, along, out),
                3 => pick::<3>(from.data, begin, along, out),
                _ => pick::<4>(from.data, begin, along, out),
            }
        }
    }
}

/// Copies pixels that lie `step` bytes apart.
fn pick<const N: usize>(data: &[u8], begin: i64, step: i64, out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<N>();
    if step == -(N as i64) {
        let first = (begin + N as i64) as usize - N * out.len();
        let (line, _) = data[first..][..N * out.len()].as_chunks::<N>();
        out.iter_mut()
            .zip(line.iter().rev())
            .for_each(|(to, from)| *to = *from);
        return;
    }
    let mut at = begin;
    for to in out {
        to.copy_from_slice(&data[at as usize..][..N]);
        at += step;
    }
}
