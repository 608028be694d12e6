//! One sequential scan that holds all components: decoded in one pass, down to the region's last MCU.

use crate::Error;
use crate::bits::{Bits, Fault, Unstuffed, read_by_isa};
use crate::block::{Block, BlockCode, read_block};
use crate::frame::Frame;
use crate::header::Head;
use crate::kernels::Isa;
use crate::region::{Needed, needed_mcus};
use crate::scan::{Intervals, Places, Scan};
use crate::strips::Strips;
use crate::tables::Tables;
use std::ops::Range;

/// Makes the codes of a scan's members ready.
pub(crate) fn prepare_codes(tables: &mut Tables, scan: &Scan) -> Result<(), Error> {
    for member in scan.members() {
        tables.prepare_dc(member.dc, true, scan.at)?;
        tables.prepare_ac(member.ac, true, scan.at)?;
    }
    Ok(())
}

/// The codes of a scan's members; none where they are not ready.
pub(crate) fn block_codes<'t>(tables: &'t Tables, scan: &Scan) -> Option<[BlockCode<'t>; 4]> {
    let code = |i: usize| {
        let member = scan.members().get(i).or_else(|| scan.members().first())?;
        let ((dc, dc_code), (ac, ac_code)) = (tables.dc(member.dc)?, tables.ac(member.ac)?);
        Some(BlockCode {
            dc,
            dc_code,
            ac,
            ac_code,
        })
    };
    Some([code(0)?, code(1)?, code(2)?, code(3)?])
}

/// Which MCUs, counted from the image's first, hold blocks that are needed.
#[derive(Debug)]
pub(crate) struct Wanted {
    columns: Range<usize>,
    rows: Range<usize>,
    /// MCUs a row.
    wide: usize,
}

impl Wanted {
    /// Those of the blocks that each component needs.
    pub fn of(frame: &Frame, needed: &[Needed]) -> Wanted {
        let (columns, rows) = needed_mcus(frame, needed);
        Wanted {
            columns,
            rows,
            wide: frame.mcus_wide,
        }
    }

    /// Where the restart interval that begins at `mcu` ends: at the last wanted MCU at the latest.
    pub fn interval_end(&self, mcu: usize, restart_interval: u16) -> usize {
        match usize::from(restart_interval) {
            0 => self.end(),
            interval => (mcu + interval).min(self.end()),
        }
    }

    /// The first wanted MCU that is not before `mcu`.
    pub fn next(&self, mcu: usize) -> usize {
        let (row, column) = (mcu / self.wide, mcu % self.wide);
        if row < self.rows.start {
            self.rows.start * self.wide + self.columns.start
        } else if column < self.columns.end {
            mcu.max(row * self.wide + self.columns.start)
        } else {
            (row + 1) * self.wide + self.columns.start
        }
    }

    /// The MCU after the last wanted one of the row that holds `mcu`.
    fn row_end(&self, mcu: usize) -> usize {
        mcu / self.wide * self.wide + self.columns.end
    }

    /// The MCU after the last wanted one.
    pub fn end(&self) -> usize {
        (self.rows.end - 1) * self.wide + self.columns.end
    }
}

/// Decodes the region that `strips` was begun with.
pub(crate) fn decode(
    bytes: &[u8],
    head: &Head<'_>,
    scan: &Scan,
    tables: &mut Tables,
    unstuffed: &mut Unstuffed,
    strips: &mut Strips,
    isa: Isa,
) -> Result<(), Error> {
    let frame = &head.frame;
    prepare_codes(tables, scan)?;
    for (i, component) in frame.components().iter().enumerate() {
        strips
            .strip(i)
            .set_steps(&tables.quantisation(component.quantisation, scan.at)?);
    }
    let codes =
        block_codes(tables, scan).ok_or_else(|| Error::corrupt(scan.at, "a scan without its codes"))?;
    let wanted = Wanted::of(frame, &strips.needed());
    let places = scan.places(frame);
    let mut run = Run {
        scan,
        places: &places,
        codes: &codes,
        predictions: [0; 4],
        strips,
        wide: frame.mcus_wide,
        isa,
    };
    let (mut intervals, mut mcu) = (Intervals::new(bytes, head.data, unstuffed), 0);
    while mcu < wanted.end() {
        let end = wanted.interval_end(mcu, head.restart_interval);
        intervals.next()?;
        if wanted.next(mcu) < end {
            let mut bits = intervals.bits();
            let done = run.interval(&mut bits, &wanted, mcu..end);
            done.map_err(|fault| intervals.error(fault, bits.position()))?;
            let has_bytes = bits.has_bytes();
            intervals.close(has_bytes);
        }
        mcu = end;
    }
    Ok(())
}

/// What reading MCUs one after the other takes.
struct Run<'a> {
    scan: &'a Scan,
    places: &'a Places,
    codes: &'a [BlockCode<'a>; 4],
    /// The last DC coefficient of each member.
    predictions: [i32; 4],
    strips: &'a mut Strips,
    wide: usize,
    isa: Isa,
}

read_by_isa! {
    fn skip(bits, run: &mut Run<'_>, count: usize) -> Result<(), Fault> {
        run.skip(bits, count)
    }
}

read_by_isa! {
    fn store(bits, run: &mut Run<'_>, row: usize, columns: Range<usize>) -> Result<(), Fault> {
        run.store(bits, row, columns)
    }
}

// In `skip` and `store` are loops, not iterators that take closures: those would be compiled without the instructions.
impl Run<'_> {
    /// Reads one restart interval, or the part of it up to the last wanted MCU.
    fn interval(&mut self, bits: &mut Bits<'_>, wanted: &Wanted, mcus: Range<usize>) -> Result<(), Fault> {
        self.predictions = [0; 4];
        let mut mcu = mcus.start;
        while mcu < mcus.end {
            let next = wanted.next(mcu).min(mcus.end);
            skip(self.isa, bits, self, next - mcu)?;
            mcu = next;
            if mcu < mcus.end {
                let end = wanted.row_end(mcu).min(mcus.end);
                let (row, column) = (mcu / self.wide, mcu % self.wide);
                store(self.isa, bits, self, row, column..column + (end - mcu))?;
                if end == wanted.row_end(mcu) {
                    bits.check_exact()?; // a row that is given away holds nothing that was not there
                    self.strips.complete(row);
                }
                mcu = end;
            }
        }
        bits.check_exact()
    }

    /// Reads over `count` MCUs.
    #[inline(always)]
    fn skip(&mut self, bits: &mut Bits<'_>, count: usize) -> Result<(), Fault> {
        let mut unused = Block::ZERO;
        for _ in 0..count {
            for (_, place) in self.places.iter() {
                let member = place.member % 4;
                read_block::<false>(
                    bits,
                    &self.codes[member],
                    &mut self.predictions[member],
                    &mut unused,
                )?;
            }
        }
        Ok(())
    }

    /// Reads the needed blocks of some MCUs of a row into the strips.
    #[inline(always)]
    fn store(&mut self, bits: &mut Bits<'_>, row: usize, columns: Range<usize>) -> Result<(), Fault> {
        let members = self.scan.members();
        // Of each block of the MCU: the columns of MCUs that need it, and of those that need only its first
        // coefficient.
        let mut needs: [Range<usize>; crate::scan::MOST_PLACES] = std::array::from_fn(|_| 0..0);
        let mut flat = needs.clone();
        for (i, place) in self.places.iter() {
            let strip = self.strips.strip(members[place.member].component);
            let (component, needed) = (strip.component(), strip.needed());
            if needed.rows.contains(&(row * component.v + place.y)) {
                let column = |block: usize| (block + component.h - 1).saturating_sub(place.x) / component.h;
                let columns = column(needed.columns.start)..column(needed.columns.end);
                match strip.is_flat() {
                    true => flat[i] = columns,
                    false => needs[i] = columns,
                }
            }
        }
        let mut unused = Block::ZERO;
        for mcu in columns {
            for (i, place) in self.places.iter() {
                let member = place.member % 4;
                let (code, prediction) = (&self.codes[member], &mut self.predictions[member]);
                if needs[i].contains(&mcu) {
                    let strip = self.strips.strip(members[member].component);
                    let h = strip.component().h;
                    let count = read_block::<true>(bits, code, prediction, strip.block())?;
                    strip.push(count, mcu * h + place.x, place.y);
                } else {
                    read_block::<false>(bits, code, prediction, &mut unused)?;
                    if flat[i].contains(&mcu) {
                        let strip = self.strips.strip(members[member].component);
                        let h = strip.component().h;
                        strip.push_flat(*prediction as i16, mcu * h + place.x, place.y);
                    }
                }
            }
        }
        Ok(())
    }
}
