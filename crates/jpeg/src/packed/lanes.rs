//! From rows of values to samples, with blocks as lanes.
//!
//! The values of a coefficient of sixteen blocks lie side by side, so both passes of the transform work without turning anything:
//! the columns' results are rows of the second pass already. Only at the end bytes are turned, in three steps of interleaving.
//! The arithmetic is that of [`kernels::idct`](crate::kernels::idct), bit for bit; how much of it is done depends on how far
//! the type of the chunk's first block goes, the farthest of all.
//!
//! Lanes are the even slots, then the odd ones: a multiplication of bytes that adds neighbours dequantises in one go, with
//! (step, 0) in the lower half and (0, step) in the upper one.

use super::class_of;
use super::read::{Large, cap};
use super::sorted::Sorted;
use super::tables::CLASSES;
use super::tokens::{CAPS, SYMBOLS};
use crate::ColorModel;
use crate::block::ZIGZAG;
use crate::kernels::Isa;
use crate::strips::Strips;
use crate::transform::Whole;

/// Blocks of a chunk.
pub(super) const CHUNK: usize = 16;

/// The plane of blocks that are not needed.
pub(super) const NOWHERE: u32 = 4;

/// Where a block's samples go: the plane, and the first sample's place in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockTarget {
    pub plane: u32,
    pub at: u32,
}

/// Planes of samples. The last one is for blocks that are not needed.
pub(super) struct Planes<'a, 's> {
    pub planes: &'a mut [&'s mut [u8]],
    pub stride: usize,
}

/// Quantisation steps in rows, laid out for lanes: sixteen bytes (step, 0), then (0, step).
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct Steps {
    pub(super) lanes: [[u8; 32]; 64],
    pub(super) steps: [i16; 64],
}

impl Steps {
    /// None for steps that are no bytes.
    pub fn of(steps: &[i16; 64]) -> Option<Steps> {
        let mut lanes = [[0; 32]; 64];
        for (lanes, &step) in lanes.iter_mut().zip(steps) {
            let step = u8::try_from(step).ok()?;
            for (i, lane) in lanes.iter_mut().enumerate() {
                *lane = if i % 2 == i / 16 { step } else { 0 };
            }
        }
        Some(Steps { lanes, steps: *steps })
    }
}

/// How many columns of a type's blocks have coefficients in rows 4 to 7, in rows 2 to 7, in rows 1 to 7, and in any row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub behind_fourth: usize,
    pub behind_second: usize,
    pub behind_first: usize,
    pub any: usize,
}

pub(super) static SHAPES: [Shape; SYMBOLS] = {
    const NONE: Shape = Shape {
        behind_fourth: 0,
        behind_second: 0,
        behind_first: 0,
        any: 0,
    };
    let mut shapes = [NONE; SYMBOLS];
    let mut kind = 0;
    while kind < SYMBOLS {
        let shape = &mut shapes[kind];
        let mut k = 0;
        while k <= CAPS[kind] {
            let (y, end) = (ZIGZAG[k] / 8, ZIGZAG[k] as usize % 8 + 1);
            if y >= 4 && shape.behind_fourth < end {
                shape.behind_fourth = end;
            }
            if y >= 2 && shape.behind_second < end {
                shape.behind_second = end;
            }
            if y >= 1 && shape.behind_first < end {
                shape.behind_first = end;
            }
            if shape.any < end {
                shape.any = end;
            }
            k += 1;
        }
        kind += 1;
    }
    shapes
};

/// Values that do not fit a byte, dequantised: a row a coefficient that has any.
#[derive(Debug)]
pub(super) struct Wide {
    /// Zeros, then the rows.
    values: Vec<i16>,
    /// Of each coefficient, in rows, where its row begins: at 0 without one.
    rows: [u32; 64],
    /// Of each chunk the columns that have any, as bits.
    columns: Vec<u8>,
}

impl Default for Wide {
    fn default() -> Wide {
        Wide {
            values: Vec::new(),
            rows: [0; 64],
            columns: Vec::new(),
        }
    }
}

impl Wide {
    fn begin(&mut self, count: usize, large: impl Iterator<Item = Large>, steps: &Steps) {
        let length = count.next_multiple_of(CHUNK) + CHUNK;
        self.values.clear();
        self.values.resize(length, 0);
        self.rows = [0; 64];
        self.columns.clear();
        self.columns.resize(length / CHUNK, 0);
        for Large {
            slot, place, value, ..
        } in large
        {
            let (slot, place) = (usize::from(slot), usize::from(place) & 63);
            if self.rows[place] == 0 {
                self.rows[place] = self.values.len() as u32;
                self.values.resize(self.values.len() + length, 0);
            }
            let lane = slot % CHUNK / 2 + slot % 2 * (CHUNK / 2);
            let at = self.rows[place] as usize + slot / CHUNK * CHUNK + lane;
            self.values[at] = value.wrapping_mul(steps.steps[place]);
            self.columns[slot / CHUNK] |= 1 << (place % 8);
        }
    }

    /// The row of a coefficient for the sixteen blocks from `begin` on.
    pub fn row(&self, place: usize, begin: usize) -> &[i16; CHUNK] {
        let row = &self.values[self.rows[place] as usize + begin..];
        row.first_chunk().expect("rows have room for a whole chunk")
    }
}

/// Whether blocks can be transformed so here.
fn can(isa: Isa) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => true,
        _ => false,
    }
}

/// The planes of an image whose blocks are transformed so.
pub(super) struct WholePlanes<'s> {
    pub components: [Option<Whole<'s>>; 4],
    /// Of each class, where any component is of it.
    pub steps: [Option<Steps>; CLASSES],
    pub strides: [usize; CLASSES],
}

impl<'s> WholePlanes<'s> {
    /// None where it cannot be: samples are wanted in another way, steps are no bytes, or the components of a class differ in
    /// their steps or strides.
    pub fn of(strips: &'s mut Strips, color: ColorModel, isa: Isa) -> Option<WholePlanes<'s>> {
        if !can(isa) {
            return None;
        }
        let components = strips.whole()?;
        let (mut steps, mut strides) = ([const { None }; CLASSES], [0; CLASSES]);
        for (i, component) in components.iter().flatten().enumerate() {
            let class = class_of(color, i);
            let known: &mut Option<Steps> = &mut steps[class];
            match known {
                None => {
                    *known = Some(Steps::of(component.steps)?);
                    strides[class] = component.stride;
                }
                Some(known) => {
                    let same = known.steps == *component.steps && strides[class] == component.stride;
                    same.then_some(())?;
                }
            }
        }
        Some(WholePlanes {
            components,
            steps,
            strides,
        })
    }
}

/// Transforms the blocks of a class: each goes to its place, 8 rows of 8 samples.
///
/// # Panics
/// Where a place is outside its plane, or [`can`] says no.
pub(super) fn transform(
    isa: Isa,
    sorted: &Sorted,
    values: &[u8],
    (wide, large): (&mut Wide, impl Iterator<Item = Large>),
    steps: &Steps,
    places: &[BlockTarget],
    planes: Planes<'_, '_>,
) {
    let need = 7 * planes.stride + 8;
    for place in places {
        let plane = &planes.planes[place.plane as usize];
        assert!(
            place.at as usize + need <= plane.len(),
            "a block outside its plane"
        );
    }
    assert!(
        places.len() >= sorted.count.next_multiple_of(CHUNK)
            && sorted.dc.len() >= sorted.count.next_multiple_of(CHUNK),
        "slots without a place"
    );
    wide.begin(sorted.count, large, steps);
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions; every block was just found to lie within its plane.
        Isa::Avx2(avx2) => unsafe {
            match avx2.avx512() {
                Some(_) => super::avx512::transform(sorted, values, wide, steps, places, planes),
                None => super::avx2_lanes::transform(sorted, values, wide, steps, places, planes),
            }
        },
        _ => panic!("there is no such transform for this processor"),
    }
}

/// What a chunk of sixteen blocks is transformed from.
pub(super) struct Source<'a> {
    pub begin: usize,
    pub sorted: &'a Sorted,
    pub values: &'a [u8],
    pub wide: &'a Wide,
    pub steps: &'a Steps,
    /// The last coefficient, in coding order.
    pub cap: usize,
    /// Columns with values that do not fit a byte, as bits.
    pub columns: u8,
}

impl<'a> Source<'a> {
    pub fn new(
        begin: usize,
        sorted: &'a Sorted,
        values: &'a [u8],
        wide: &'a Wide,
        steps: &'a Steps,
    ) -> Source<'a> {
        Source {
            begin,
            sorted,
            values,
            wide,
            steps,
            cap: cap(sorted.kinds[begin]),
            columns: wide.columns[begin / CHUNK],
        }
    }
}
