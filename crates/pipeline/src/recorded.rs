//! Operations on a JPEG that are recorded when they are asked for and performed when somebody looks at pixels.
//!
//! ```text
//!  Source ──── crop ──── resize ──── transpose ◄── pixels of a rectangle?
//!    ▲           │          │            │
//!    └── decode ◄┴── needs ◄┴─── needs ◄─┘
//! ```
//!
//! [`Source::perform`] walks a chain from its end. Each operation asks the one before it for the rectangle that it needs,
//! and the first one decodes that rectangle. The pixels are Pillow's to the bit: those of decoding everything and
//! performing one operation after the other.

use std::collections::TryReserveError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

mod convert;
mod turn;

use crate::image::RgbImage;
use crate::op::{Filter, Interpolation};
pub use crate::per_op::PassOrder;
use crate::per_op::{self, Pointwise, Reduce, Resize, Rows, Scratch};
use crate::step::{Affine, Step};
use convert::{cut, paint, spread, to_grey};
pub use convert::{grey_to_floats, to_floats};
use turn::Turn;

/// Why pixels could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is broken or of an unsupported kind.
    #[error(transparent)]
    Jpeg(#[from] stokehold_jpeg::Error),
    /// There is no memory for them.
    #[error("no memory for the pixels")]
    Memory(#[from] TryReserveError),
    /// Each operation takes a part of the thread's stack.
    #[error("{0} operations on one image; at most {MOST_OPERATIONS} are performed")]
    TooMany(usize),
}

/// This many operations on one image are performed at once.
pub const MOST_OPERATIONS: usize = 128;

/// One operation of Pillow's. [`Op::Affine`], [`Op::Step`] and [`Op::ToGrey`] apply to RGB, [`Op::ToRgb`] to grey, and the others to
/// both.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A rectangle that begins at this place.
    Crop {
        /// Its left edge.
        x: i64,
        /// Its upper edge.
        y: i64,
        /// The colour outside of the image. Grey takes the first level.
        fill: [u8; 3],
    },
    /// The part left, upper, right, lower, which lies within the image, in another size.
    Resize {
        /// The filter.
        filter: Filter,
        /// Edges in pixels.
        area: [f32; 4],
    },
    /// `Image.reduce`: each block of a part becomes one pixel, the mean of its own.
    Reduce {
        /// Pixels of a block, across and down: at most 2^16.
        factor: [u32; 2],
        /// The part, which lies within the image.
        area: Region,
    },
    /// `Image.transpose` with this method, 0..=6.
    Transpose(u8),
    /// `Image.transform` by the map from places of the result to places of the image: x is `map[0] * x + map[1] * y + map[2]`,
    /// and y likewise by the other three.
    Affine {
        /// The map.
        map: [f64; 6],
        /// The filter.
        interpolation: Interpolation,
        /// What shows where the image does not reach.
        fill: [u8; 3],
    },
    /// A step of a pipeline that leaves the size as it is.
    Step(Step),
    /// `convert("L")` of RGB: one byte a pixel from here on.
    ToGrey,
    /// `convert("RGB")` of grey.
    ToRgb,
}

/// An operation, with the size of the image that it makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What is done.
    pub op: Op,
    /// At least 1.
    pub width: u32,
    /// At least 1.
    pub height: u32,
}

/// What is known of a JPEG whose bytes are elsewhere.
#[derive(Debug)]
pub struct Source {
    header: Header,
    scale: Scale,
    grey: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All pixels, four bytes each, or one where they are grey.
    whole: Option<Arc<Vec<u8>>>,
    /// How often pixels were asked for.
    views: u32,
}

/// How often the pixels of a JPEG are asked for in this process, on average and in 1/256.
static VIEWS: AtomicU32 = AtomicU32::new(256);

/// From this many views on, all pixels are decoded at the first one and kept for the others. Decoding a region twice costs less
/// than all pixels once only where images are looked at about once.
const KEPT_FROM: u32 = 256 + 100;

/// One thread's buffers.
#[derive(Debug, Default)]
pub struct Performer {
    decoder: Decoder,
    scratch: Scratch,
}

impl Drop for Source {
    fn drop(&mut self) {
        let views = self
            .state
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .views
            .min(64);
        if views > 0 {
            let before = VIEWS.load(Ordering::Relaxed);
            VIEWS.store(before - before / 8 + views * 32, Ordering::Relaxed);
        }
    }
}

impl Source {
    /// Reads the header of a JPEG or of a packed image.
    ///
    /// # Errors
    /// [`Error`] where [`Header::parse_whole`] refuses it: what a reader makes of a cut file is its own affair.
    pub fn new(bytes: &[u8]) -> Result<Source, Error> {
        Ok(Source {
            header: Header::parse_whole(bytes)?,
            scale: Scale::Full,
            grey: false,
            state: Mutex::default(),
        })
    }

    /// The same image, decoded at `scale` and to grey or RGB, as Pillow decodes it after `draft`.
    #[must_use]
    pub fn drafted(mut self, scale: Scale, grey: bool) -> Source {
        (self.scale, self.grey) = (scale, grey);
        self
    }

    /// The scale at which it is decoded, and whether it is decoded to grey.
    pub fn draft(&self) -> (Scale, bool) {
        (self.scale, self.grey)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Width and height of what operations make.
    pub fn size(&self, ops: &[Recorded]) -> (u32, u32) {
        match ops.last() {
            Some(last) => (last.width, last.height),
            None => self.scaled_size(self.scale, None),
        }
    }

    /// Whether the result of the operations is grey. `None` if an operation does not apply to the result of the operations before it.
    pub fn is_grey(&self, ops: &[Recorded]) -> Option<bool> {
        ops.iter()
            .enumerate()
            .try_fold(self.grey, |grey, (n, made)| match made.op {
                Op::ToGrey => (!grey).then_some(true),
                Op::ToRgb => grey.then_some(false),
                Op::Affine { .. } | Op::Step(_) => (!grey).then_some(false),
                Op::Reduce { factor, area } => {
                    let size = Reduce { factor, area }.size(self.size(&ops[..n]));
                    (size == Some((made.width, made.height))).then_some(grey)
                }
                Op::Crop { .. } | Op::Resize { .. } | Op::Transpose(_) => Some(grey),
            })
    }

    /// Writes what the operations make of the image to `out`, row by row. `bytes` are those that [`new`](Self::new) was
    /// given. The fourth byte of [`Layout::Rgbx`] has no meaning.
    ///
    /// # Errors
    /// [`Error`] if the bytes that are needed are broken, if an operation does not apply, or if the layout does not fit: a result
    /// that is [grey](Self::is_grey) needs [`Layout::Grey`], any other [`Layout::Rgb`] or [`Layout::Rgbx`].
    ///
    /// # Panics
    /// Where `out` has not the size of the result.
    pub fn perform(
        &self,
        bytes: &[u8],
        ops: &[Recorded],
        order: PassOrder,
        layout: Layout,
        performer: &mut Performer,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (width, height) = self.size(ops);
        assert_eq!(out.len(), width as usize * height as usize * layout.bytes());
        if ops.len() > MOST_OPERATIONS {
            return Err(Error::TooMany(ops.len()));
        }
        match (self.is_grey(ops), layout) {
            (Some(true), Layout::Grey) | (Some(false), Layout::Rgb | Layout::Rgbx) => {}
            (None, _) => return Err(unsupported("operations on such an image")),
            _ => return Err(unsupported("operations in this layout")),
        }
        let whole = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.views += 1;
            if state.whole.is_none() && (state.views > 1 || VIEWS.load(Ordering::Relaxed) > KEPT_FROM) {
                let pixels = performer.decoder.decode(
                    bytes,
                    self.header.full(),
                    self.scale,
                    layout_of(self.kept_bytes()),
                )?;
                let mut whole = Vec::new();
                whole.try_reserve_exact(pixels.data.len())?;
                whole.extend_from_slice(pixels.data);
                state.whole = Some(Arc::new(whole));
            }
            state.whole.clone()
        };
        let walk = Walk {
            source: self,
            bytes,
            whole: whole.as_deref().map(Vec::as_slice),
            ops,
            order,
        };
        let wanted = Wanted {
            n: ops.len(),
            rect: full(width, height),
            pixel: layout.bytes(),
        };
        let Performer { decoder, scratch } = performer;
        walk.write(decoder, scratch, wanted, out)
    }

    /// Bytes of a pixel that is kept.
    fn kept_bytes(&self) -> usize {
        if self.grey { 1 } else { 4 }
    }
}

fn unsupported(what: &'static str) -> Error {
    stokehold_jpeg::Error::Unsupported(what.into()).into()
}

fn layout_of(pixel: usize) -> Layout {
    match pixel {
        1 => Layout::Grey,
        3 => Layout::Rgb,
        _ => Layout::Rgbx,
    }
}

/// Pixels in one go, for decoders that record nothing.
impl Source {
    /// Width and height of the image at a scale, turned by a method of [`Op::Transpose`] or not.
    pub fn scaled_size(&self, scale: Scale, turn: Option<u8>) -> (u32, u32) {
        let [width, height] =
            [self.header.width, self.header.height].map(|side| side.div_ceil(scale.factor()));
        match turn {
            Some(2 | 4..) => (height, width),
            _ => (width, height),
        }
    }

    /// Writes the image at a scale to `out`, row by row; turned, where `turn` says so. `bytes` are those that
    /// [`new`](Self::new) was given.
    ///
    /// # Errors
    /// [`Error`] where the bytes are broken, for grey of a file without luminance, and where libjpeg would warn.
    ///
    /// # Panics
    /// Where `out` has not the size of the result.
    pub fn decode(
        &self,
        bytes: &[u8],
        scale: Scale,
        layout: Layout,
        turn: Option<u8>,
        performer: &mut Performer,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let pixel = layout.bytes();
        let (width, height) = self.scaled_size(scale, turn);
        assert_eq!(out.len(), width as usize * height as usize * pixel);
        let decoder = &mut performer.decoder;
        let pixels = decoder.decode_all(bytes, &self.header, scale, layout)?;
        let Some(method) = turn else {
            out.copy_from_slice(pixels.data);
            return Ok(());
        };
        let rows = Rows {
            data: pixels.with_slack(),
            stride: pixels.stride,
            pixel,
        };
        let turn = Turn::of(method, pixels.width, pixels.height);
        turn.write(rows, full(pixels.width, pixels.height), full(width, height), out);
        Ok(())
    }
}

/// Pixels of a rectangle.
enum Pixels<'a> {
    Lent {
        data: &'a [u8],
        stride: usize,
    },
    /// Without gaps. Bytes after the last row have no meaning.
    Owned(Vec<u8>),
}

impl Pixels<'_> {
    fn give_to(self, scratch: &mut Scratch) {
        if let Pixels::Owned(data) = self {
            scratch.give(data);
        }
    }

    fn rows(&self, width: u32, pixel: usize) -> Rows<'_> {
        match self {
            Pixels::Lent { data, stride } => Rows {
                data,
                stride: *stride,
                pixel,
            },
            Pixels::Owned(data) => Rows {
                data,
                stride: width as usize * pixel,
                pixel,
            },
        }
    }
}

/// A chain on its way from its end to its beginning.
struct Walk<'a> {
    source: &'a Source,
    bytes: &'a [u8],
    whole: Option<&'a [u8]>,
    ops: &'a [Recorded],
    order: PassOrder,
}

/// A rectangle of the result of the first `n` operations, in pixels of 3 or 4 bytes, or of 1 if they are grey. If `n` is 0, it is a
/// rectangle of the decoded image.
#[derive(Clone, Copy)]
struct Wanted {
    n: usize,
    rect: Region,
    pixel: usize,
}

impl Wanted {
    fn row(&self) -> usize {
        self.rect.width as usize * self.pixel
    }

    fn len(&self) -> usize {
        self.row() * self.rect.height as usize
    }

    /// A rectangle of what the last operation is given.
    fn before(&self, rect: Region) -> Wanted {
        Wanted {
            n: self.n - 1,
            rect,
            ..*self
        }
    }
}

impl Walk<'_> {
    fn pixels<'s>(
        &'s self,
        decoder: &'s mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
    ) -> Result<Pixels<'s>, Error> {
        match wanted.n.checked_sub(1).map(|last| &self.ops[last].op) {
            None => self.decoded(decoder, scratch, wanted),
            Some(&Op::Crop { x, y, .. }) => match self.within(wanted, x, y) {
                Some(within) => self.pixels(decoder, scratch, wanted.before(within)),
                None => self.written(decoder, scratch, wanted),
            },
            Some(_) => self.written(decoder, scratch, wanted),
        }
    }

    fn written(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
    ) -> Result<Pixels<'static>, Error> {
        let mut data = scratch.take(wanted.len())?;
        self.write(decoder, scratch, wanted, &mut data[..wanted.len()])?;
        Ok(Pixels::Owned(data))
    }

    /// Where a rectangle of a crop that begins at (x, y) lies in what the operations before it make, if it does.
    fn within(&self, Wanted { n, rect, .. }: Wanted, x: i64, y: i64) -> Option<Region> {
        let (width, height) = self.source.size(&self.ops[..n - 1]);
        let place = |at: i64, first: u32, len: u32, side: u32| {
            let first = at + i64::from(first);
            (first >= 0 && first + i64::from(len) <= i64::from(side)).then_some(first as u32)
        };
        Some(Region {
            x: place(x, rect.x, rect.width, width)?,
            y: place(y, rect.y, rect.height, height)?,
            ..rect
        })
    }

    /// The part of the file's image that becomes a rectangle when it is scaled.
    fn unscaled(&self, rect: Region) -> Region {
        let Header { width, height, .. } = self.source.header;
        let factor = self.source.scale.factor();
        let side =
            |first: u32, count: u32, side: u32| (first * factor, (count * factor).min(side - first * factor));
        let ((x, width), (y, height)) = (side(rect.x, rect.width, width), side(rect.y, rect.height, height));
        Region { x, y, width, height }
    }

    fn decoded<'s>(
        &'s self,
        decoder: &'s mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
    ) -> Result<Pixels<'s>, Error> {
        let Wanted { rect, pixel, .. } = wanted;
        let Some(whole) = self.whole else {
            let part = self.unscaled(rect);
            let pixels = decoder.decode(self.bytes, part, self.source.scale, layout_of(pixel))?;
            return Ok(Pixels::Lent {
                data: pixels.with_slack(),
                stride: pixels.stride,
            });
        };
        let kept = self.source.kept_bytes();
        let stride = kept * self.source.size(&[]).0 as usize;
        let data = &whole[rect.y as usize * stride + kept * rect.x as usize..];
        if pixel == kept {
            return Ok(Pixels::Lent { data, stride });
        }
        let mut narrow = scratch.take(wanted.len())?;
        for (to, from) in narrow
            .chunks_exact_mut(wanted.row())
            .zip(data.chunks(stride))
            .take(rect.height as usize)
        {
            for (to, from) in to.as_chunks_mut::<3>().0.iter_mut().zip(from.as_chunks::<4>().0) {
                to.copy_from_slice(&from[..3]);
            }
        }
        Ok(Pixels::Owned(narrow))
    }

    /// Writes pixels to `out`, without gaps.
    fn write(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Wanted { n, rect, pixel } = wanted;
        let Some(last) = n.checked_sub(1) else {
            return self.copy(decoder, scratch, wanted, wanted.row(), out);
        };
        let size @ (width, height) = self.source.size(&self.ops[..last]);
        let made = &self.ops[last];
        match &made.op {
            &Op::Crop { x, y, fill } => return self.crop(decoder, scratch, wanted, (x, y, fill), out),
            &Op::Resize { filter, area } => {
                let resize = Resize {
                    filter,
                    from: size,
                    area,
                    to: (made.width, made.height),
                    order: self.order,
                };
                return self.resize(decoder, scratch, wanted, resize, out);
            }
            &Op::Transpose(method) => {
                let turn = Turn::of(method, width, height);
                let part = turn.needs(rect);
                let pixels = self.pixels(decoder, scratch, wanted.before(part))?;
                turn.write(pixels.rows(part.width, pixel), part, rect, out);
                pixels.give_to(scratch);
            }
            &Op::Reduce { factor, area } => {
                let reduce = Reduce { factor, area };
                let part = reduce.needs(rect);
                let pixels = self.pixels(decoder, scratch, wanted.before(part))?;
                reduce.run(pixels.rows(part.width, pixel), (part.width, part.height), out)?;
                pixels.give_to(scratch);
            }
            Op::ToGrey | Op::ToRgb => return self.convert(decoder, scratch, wanted, out),
            Op::Affine {
                map,
                interpolation,
                fill,
            } => {
                let image = self.image(decoder, scratch, last, full(width, height))?;
                let size = (made.width, made.height);
                let image = per_op::mapped(&image, &Affine(*map), *interpolation, *fill, size);
                cut(&image, (rect.x, rect.y), rect.width, pixel, out);
            }
            Op::Step(step) => {
                // What a pixel becomes may depend on all of them.
                let part = match Pointwise::of(step) {
                    Some(_) => rect,
                    None => full(width, height),
                };
                let image = per_op::apply(step, self.image(decoder, scratch, last, part)?);
                cut(&image, (rect.x - part.x, rect.y - part.y), rect.width, pixel, out);
            }
        }
        Ok(())
    }

    /// [`write`](Self::write) of a crop that begins at (x, y) and shows a colour outside.
    fn crop(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
        (x, y, fill): (i64, i64, [u8; 3]),
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Wanted { n, rect, pixel } = wanted;
        let (width, height) = self.source.size(&self.ops[..n - 1]);
        let (left, top) = (x + i64::from(rect.x), y + i64::from(rect.y));
        let (x0, x1) = (left.max(0), (left + i64::from(rect.width)).min(i64::from(width)));
        let (y0, y1) = (top.max(0), (top + i64::from(rect.height)).min(i64::from(height)));
        let (wide, high) = ((x1 - x0).max(0) as u32, (y1 - y0).max(0) as u32);
        if (wide, high) != (rect.width, rect.height) {
            paint(out, pixel, fill);
        }
        if wide == 0 || high == 0 {
            return Ok(());
        }
        let part = Region {
            x: x0 as u32,
            y: y0 as u32,
            width: wide,
            height: high,
        };
        let row = wanted.row();
        let at = (y0 - top) as usize * row + (x0 - left) as usize * pixel;
        self.copy(decoder, scratch, wanted.before(part), row, &mut out[at..])
    }

    /// [`write`](Self::write) of a resize.
    fn resize(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
        resize: Resize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let plan = resize.plan(wanted.rect)?;
        let Some(needs) = plan.needs() else {
            out.fill(0);
            return Ok(());
        };
        // A pass across is fastest from four bytes a pixel.
        let from = match wanted.pixel {
            3 if !plan.keeps_pixels() => 4,
            pixel => pixel,
        };
        let part = Wanted {
            pixel: from,
            ..wanted.before(needs)
        };
        let pixels = self.pixels(decoder, scratch, part)?;
        plan.run(pixels.rows(needs.width, from), wanted.pixel, out, scratch)?;
        pixels.give_to(scratch);
        Ok(())
    }

    /// [`write`](Self::write) of a conversion: to grey if pixels of one byte are wanted, and to RGB otherwise.
    fn convert(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let from = if wanted.pixel == 1 { 4 } else { 1 };
        let part = Wanted {
            pixel: from,
            ..wanted.before(wanted.rect)
        };
        let pixels = self.pixels(decoder, scratch, part)?;
        let rows = pixels.rows(wanted.rect.width, from);
        for (y, to) in out.chunks_exact_mut(wanted.row()).enumerate() {
            let line = &rows.data[y * rows.stride..];
            match wanted.pixel {
                1 => to_grey(line.as_chunks().0, to),
                3 => spread::<3>(line, to),
                _ => spread::<4>(line, to),
            }
        }
        pixels.give_to(scratch);
        Ok(())
    }

    /// A rectangle of what the first `n` operations make, in RGB.
    fn image(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        n: usize,
        rect: Region,
    ) -> Result<RgbImage, Error> {
        let wanted = Wanted { n, rect, pixel: 3 };
        let mut data = Vec::new();
        data.try_reserve_exact(wanted.len())?;
        data.resize(wanted.len(), 0);
        self.copy(decoder, scratch, wanted, wanted.row(), &mut data)?;
        Ok(RgbImage {
            width: rect.width,
            height: rect.height,
            data,
        })
    }

    /// Writes pixels to `out`, whose rows begin `row` bytes apart.
    fn copy(
        &self,
        decoder: &mut Decoder,
        scratch: &mut Scratch,
        wanted: Wanted,
        row: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let wide = wanted.row();
        if row == wide && wanted.n > 0 {
            return self.write(decoder, scratch, wanted, &mut out[..wanted.len()]);
        }
        let pixels = self.pixels(decoder, scratch, wanted)?;
        let from = pixels.rows(wanted.rect.width, wanted.pixel);
        for (y, to) in out.chunks_mut(row).take(wanted.rect.height as usize).enumerate() {
            to[..wide].copy_from_slice(&from.data[y * from.stride..][..wide]);
        }
        pixels.give_to(scratch);
        Ok(())
    }
}

fn full(width: u32, height: u32) -> Region {
    Region {
        x: 0,
        y: 0,
        width,
        height,
    }
}
