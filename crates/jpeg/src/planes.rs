//! Images of several scans: the coefficients of the whole image are collected before any sample is made.

use crate::Error;
use crate::bits::{Bits, Fault, Unstuffed};
use crate::block::{Block, BlockCode, ZIGZAG, read_block};
use crate::coefficients::{Coefficients, ComponentCoefficients};
use crate::frame::{Coding, Frame};
use crate::header::{Head, parse_restart_interval};
use crate::kernels::Isa;
use crate::markers::{DHT, DQT, DRI, EOI, SOS, Segments};
use crate::progressive::{self, Progress};
use crate::region::needed_mcus;
use crate::scan::{Intervals, Scan};
use crate::sequential::{block_codes, prepare_codes};
use crate::strips::Strips;
use crate::tables::Tables;

/// The most scans that are read. Each costs time even where it holds next to no data; encoders write about
/// ten.
const MOST_SCANS: usize = 500;

/// One block's coefficients, which a scan adds to.
#[derive(Debug)]
pub(crate) struct BlockMut<'a> {
    /// In rows.
    pub values: &'a mut [i16; 64],
    /// Which AC coefficients are not zero: bit `k` stands for the one of place `k` in coding order. After a
    /// sequential scan all bits up to the last one are set.
    pub nonzero: &'a mut u64,
}

/// The coefficients of one component, MCUs filled up.
#[derive(Debug, Default)]
pub(crate) struct Plane {
    values: Vec<[i16; 64]>,
    nonzero: Vec<u64>,
    wide: usize,
    /// The quantisation steps at the component's first scan.
    steps: Option<[u16; 64]>,
    progress: Progress,
}

impl Plane {
    fn begin(&mut self, wide: usize, high: usize) {
        self.values.clear();
        self.values.resize(wide * high, [0; 64]);
        self.nonzero.clear();
        self.nonzero.resize(wide * high, 0);
        (self.wide, self.steps, self.progress) = (wide, None, Progress::default());
    }

    #[inline(always)]
    fn block_mut(&mut self, column: usize, row: usize) -> BlockMut<'_> {
        let at = row * self.wide + column;
        BlockMut {
            values: &mut self.values[at],
            nonzero: &mut self.nonzero[at],
        }
    }
}

/// The coefficients of all components.
#[derive(Debug)]
pub(crate) struct Planes {
    planes: [Plane; 4],
    pub isa: Isa,
}

impl Planes {
    pub fn new(isa: Isa) -> Planes {
        Planes {
            planes: Default::default(),
            isa,
        }
    }

    /// Reads all scans and makes the pixels of the region that `strips` was begun with.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        head: &Head<'_>,
        tables: &mut Tables,
        unstuffed: &mut Unstuffed,
        strips: &mut Strips,
    ) -> Result<(), Error> {
        self.read(bytes, head, tables, unstuffed)?;
        self.transform(&head.frame, strips);
        Ok(())
    }

    /// Reads the coefficients of the whole image, from as many scans as it has.
    pub fn read(
        &mut self,
        bytes: &[u8],
        head: &Head<'_>,
        tables: &mut Tables,
        unstuffed: &mut Unstuffed,
    ) -> Result<(), Error> {
        for (plane, component) in self.planes.iter_mut().zip(head.frame.components()) {
            plane.begin(
                head.frame.mcus_wide * component.h,
                head.frame.mcus_high * component.v,
            );
        }
        self.read_scans(bytes, head, tables, unstuffed)
    }

    /// Notes for every block exactly which of its AC coefficients are not zero.
    pub fn mark_nonzero(&mut self, frame: &Frame) {
        for plane in &mut self.planes[..frame.components().len()] {
            for (nonzero, values) in plane.nonzero.iter_mut().zip(&plane.values) {
                // No place behind the highest bit can be set.
                let count = 64 - (*nonzero | 1).leading_zeros() as usize;
                *nonzero = (1..).zip(&ZIGZAG[1..count]).fold(0, |mask, (k, &place)| {
                    mask | u64::from(values[usize::from(place) & 63] != 0) << k
                });
            }
        }
    }

    /// One block of a component, and the mask of its coefficients that are not zero.
    #[inline(always)]
    pub fn block(&self, component: usize, column: usize, row: usize) -> (&[i16; 64], u64) {
        let plane = &self.planes[component];
        let at = row * plane.wide + column;
        (&plane.values[at], plane.nonzero[at])
    }

    /// All that was read.
    pub fn coefficients(&self, head: &Head<'_>) -> Coefficients<'_> {
        let frame = &head.frame;
        let components = std::array::from_fn(|i| {
            let (plane, component) = (
                &self.planes[i],
                frame.components().get(i).copied().unwrap_or_default(),
            );
            ComponentCoefficients {
                blocks: &plane.values,
                stride: plane.wide,
                blocks_wide: component.blocks_wide,
                blocks_high: component.blocks_high,
                steps: self.steps(i),
                sampling: (component.h as u8, component.v as u8),
            }
        });
        Coefficients {
            width: frame.width as u32,
            height: frame.height as u32,
            color: head.color,
            components,
            count: frame.components().len(),
        }
    }

    /// The quantisation steps of a component, in rows.
    pub fn steps(&self, component: usize) -> [u16; 64] {
        self.planes[component].steps.unwrap_or([0; 64])
    }

    fn read_scans(
        &mut self,
        bytes: &[u8],
        head: &Head<'_>,
        tables: &mut Tables,
        unstuffed: &mut Unstuffed,
    ) -> Result<(), Error> {
        let frame = &head.frame;
        let (mut header, mut data, mut restart_interval) = (head.scan, head.data, head.restart_interval);
        for _ in 0..MOST_SCANS {
            let scan = Scan::parse(header, frame)?;
            for member in scan.members() {
                let plane = &mut self.planes[member.component];
                if plane.steps.is_none() {
                    let slot = frame.components()[member.component].quantisation;
                    plane.steps = Some(tables.quantisation(slot, scan.at)?);
                }
            }
            let mut intervals = Intervals::new(bytes, data, unstuffed);
            let walk = Walk {
                scan: &scan,
                frame,
                restart_interval: restart_interval.into(),
            };
            match frame.coding {
                Coding::Progressive => progressive::read(&walk, &mut intervals, tables, self)?,
                Coding::Baseline | Coding::Extended => self.read_sequential(&walk, &mut intervals, tables)?,
            }
            // Where one scan holds everything, what follows it is not looked at, as in a decode of one pass.
            if frame.coding != Coding::Progressive && scan.members().len() == frame.components().len() {
                return Ok(());
            }
            let mut segments = Segments::resume(bytes, intervals.end());
            loop {
                let segment = match segments.next() {
                    Ok(segment) => segment,
                    Err(Error::Truncated(_)) if self.whole(frame) => return Ok(()),
                    Err(error) => return Err(error),
                };
                match segment.marker {
                    DQT => tables.read_quantisation(segment)?,
                    DHT => tables.read_huffman(segment)?,
                    DRI => restart_interval = parse_restart_interval(segment)?,
                    SOS => {
                        (header, data) = (segment, segments.at);
                        break;
                    }
                    EOI if self.whole(frame) => return Ok(()),
                    EOI => return Err(Error::Truncated("before the last scan")),
                    _ => {}
                }
            }
        }
        Err(Error::Unsupported(format!("more than {MOST_SCANS} scans")))
    }

    /// Whether every coefficient came with all its bits.
    fn whole(&self, frame: &Frame) -> bool {
        self.planes[..frame.components().len()]
            .iter()
            .all(|plane| plane.progress.whole())
    }

    fn read_sequential(
        &mut self,
        walk: &Walk<'_>,
        intervals: &mut Intervals<'_>,
        tables: &mut Tables,
    ) -> Result<(), Error> {
        prepare_codes(tables, walk.scan)?;
        let Some(codes) = block_codes(tables, walk.scan) else {
            return Err(Error::corrupt(walk.scan.at, "a scan without its codes"));
        };
        for member in walk.scan.members() {
            let progress = &mut self.planes[member.component].progress;
            if progress.whole() {
                return Err(Error::corrupt(walk.scan.at, "a component in two scans"));
            }
            progress.finish();
        }
        let isa = self.isa;
        let read =
            |bits: &mut Bits<'_>, predictions: &mut [i32; 4], member: usize, out: &mut BlockMut<'_>| {
                let mut block = Block::ZERO;
                let count = read_one(isa, bits, &codes[member], &mut predictions[member], &mut block)?;
                out.values.copy_from_slice(&block.0[..64]);
                *out.nonzero = if count == 1 { 0 } else { u64::MAX >> (64 - count) };
                Ok(())
            };
        walk.each_block(intervals, self, read)
    }

    /// How far the coefficients of a component have come.
    pub fn progress(&mut self, component: usize) -> &mut Progress {
        &mut self.planes[component].progress
    }

    /// Transforms what the region needs.
    fn transform(&self, frame: &Frame, strips: &mut Strips) {
        let needed = strips.needed();
        for (i, plane) in self.planes[..frame.components().len()].iter().enumerate() {
            strips.strip(i).set_steps(&plane.steps.unwrap_or([0; 64]));
        }
        let (_, rows) = needed_mcus(frame, &needed[..frame.components().len()]);
        for mcu_row in rows {
            for (i, component) in frame.components().iter().enumerate() {
                let (plane, strip) = (&self.planes[i], strips.strip(i));
                let rows = mcu_row * component.v..(mcu_row + 1) * component.v;
                for row in rows.clone().filter(|row| needed[i].rows.contains(row)) {
                    for column in needed[i].columns.clone() {
                        let at = row * plane.wide + column;
                        strip.block().0[..64].copy_from_slice(&plane.values[at]);
                        let count = 64 - (plane.nonzero[at] | 1).leading_zeros();
                        strip.push(count, column, row - rows.start);
                    }
                }
            }
            strips.complete(mcu_row);
        }
    }
}

/// Reads a block of a sequential scan.
#[inline(always)]
fn read_one(
    isa: Isa,
    bits: &mut Bits<'_>,
    code: &BlockCode<'_>,
    prediction: &mut i32,
    out: &mut Block,
) -> Result<u32, Fault> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions.
        Isa::Avx2(_) => unsafe { read_one_bmi(bits, code, prediction, out) },
        _ => read_block::<true>(bits, code, prediction, out),
    }
}

/// The same, compiled for shifts that need no particular register.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn read_one_bmi(
    bits: &mut Bits<'_>,
    code: &BlockCode<'_>,
    prediction: &mut i32,
    out: &mut Block,
) -> Result<u32, Fault> {
    read_block::<true>(bits, code, prediction, out)
}

/// The way of a scan through the blocks of the image.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pub scan: &'a Scan,
    pub frame: &'a Frame,
    pub restart_interval: usize,
}

impl Walk<'_> {
    /// Calls `read` for every block in the order of the scan, with the bits, a state that begins at its
    /// default with every restart interval, the member of the scan, and the block's coefficients.
    pub fn each_block<S: Default>(
        &self,
        intervals: &mut Intervals<'_>,
        planes: &mut Planes,
        mut read: impl FnMut(&mut Bits<'_>, &mut S, usize, &mut BlockMut<'_>) -> Result<(), Fault>,
    ) -> Result<(), Error> {
        let places = self.scan.places(self.frame);
        let (wide, high) = self.scan.mcus(self.frame);
        let alone = self.scan.members().len() == 1;
        let (mut mcu, count) = (0, wide * high);
        while mcu < count {
            let end = match self.restart_interval {
                0 => count,
                interval => (mcu + interval).min(count),
            };
            intervals.next()?;
            let (mut bits, mut state) = (intervals.bits(), S::default());
            let mut interval = || {
                for mcu in mcu..end {
                    let (row, column) = (mcu / wide, mcu % wide);
                    for (_, place) in places.iter() {
                        let index = self.scan.members()[place.member].component;
                        let component = &self.frame.components()[index];
                        let (h, v) = if alone { (1, 1) } else { (component.h, component.v) };
                        let plane = &mut planes.planes[index];
                        let mut block = plane.block_mut(column * h + place.x, row * v + place.y);
                        bits.check()?;
                        read(&mut bits, &mut state, place.member, &mut block)?;
                    }
                }
                bits.check_exact()
            };
            let done = interval();
            done.map_err(|fault| intervals.error(fault, bits.position()))?;
            mcu = end;
        }
        Ok(())
    }
}
