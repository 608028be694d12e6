//! A scan: which components it holds and how its MCUs are made of their blocks.

use crate::Error;
use crate::bits::{Bits, Ending, Fault, Unstuffed};
use crate::frame::Frame;
use crate::input::RowIndex;
use crate::markers::{EOI, RST0, Segment};

/// One component of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Member {
    /// Its index in the frame.
    pub component: usize,
    /// Which Huffman codes it uses; numbers above 3 are refused where one is.
    pub dc: usize,
    pub ac: usize,
}

/// One block of an MCU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// The member it belongs to.
    pub member: usize,
    /// Its column and row among its component's blocks of the MCU.
    pub x: usize,
    pub y: usize,
}

/// A scan header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    members: [Member; 4],
    count: usize,
    /// The first and the last coefficient, in coding order.
    pub first: usize,
    pub last: usize,
    /// The bit position that earlier scans came to, 0 for none, and the one that this scan comes to.
    pub high: u32,
    pub low: u32,
    /// Where the header is in the file.
    pub at: usize,
}

/// The most blocks of an MCU of several components (B.2.3 of the standard).
pub(crate) const MOST_PLACES: usize = 10;

impl Scan {
    /// Reads an SOS segment.
    pub fn parse(segment: Segment<'_>, frame: &Frame) -> Result<Scan, Error> {
        let corrupt = |what: &str| Error::corrupt(segment.at, what);
        let short = || corrupt("a scan header that is too short");
        let (&count, rest) = segment.body.split_first().ok_or_else(short)?;
        let count = usize::from(count);
        if !(1..=frame.components().len()).contains(&count) {
            return Err(corrupt("a scan with no component, or with more than the frame"));
        }
        let (names, rest) = rest.split_at_checked(2 * count).ok_or_else(short)?;
        let &[first, last, bits] = rest.first_chunk().ok_or_else(short)?;
        let mut members = [Member::default(); 4];
        for (i, name) in names.chunks_exact(2).enumerate() {
            let component = frame.index_of(name[0]);
            let component =
                component.ok_or_else(|| corrupt("a scan of a component the frame does not have"))?;
            if members[..i].iter().any(|m| m.component == component) {
                return Err(corrupt("a scan that has a component twice"));
            }
            members[i] = Member {
                component,
                dc: usize::from(name[1] >> 4),
                ac: usize::from(name[1] & 15),
            };
        }
        let (first, last) = (first.into(), last.into());
        let scan = Scan {
            members,
            count,
            first,
            last,
            high: (bits >> 4).into(),
            low: (bits & 15).into(),
            at: segment.at,
        };
        let blocks: usize = scan
            .members()
            .iter()
            .map(|m| frame.components()[m.component])
            .map(|c| c.h * c.v)
            .sum();
        match count > 1 && blocks > MOST_PLACES {
            true => Err(corrupt("an MCU of more than ten blocks")),
            false => Ok(scan),
        }
    }

    pub fn members(&self) -> &[Member] {
        &self.members[..self.count]
    }

    /// MCUs a row, and rows of them. The MCU of a single component is one block.
    pub fn mcus(&self, frame: &Frame) -> (usize, usize) {
        match self.members() {
            [only] => {
                let component = &frame.components()[only.component];
                (component.blocks_wide, component.blocks_high)
            }
            _ => (frame.mcus_wide, frame.mcus_high),
        }
    }

    /// The blocks of an MCU in their order.
    pub fn places(&self, frame: &Frame) -> Places {
        let mut places = Places {
            list: [Place::default(); MOST_PLACES],
            count: 0,
        };
        for (member, m) in self.members().iter().enumerate() {
            let component = &frame.components()[m.component];
            let (wide, high) = if self.count == 1 {
                (1, 1)
            } else {
                (component.h, component.v)
            };
            for (y, x) in (0..high).flat_map(|y| (0..wide).map(move |x| (y, x))) {
                places.list[places.count] = Place { member, x, y };
                places.count += 1;
            }
        }
        places
    }
}

/// The blocks of an MCU in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    list: [Place; MOST_PLACES],
    count: usize,
}

impl Places {
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.list[..self.count].iter().enumerate()
    }
}

/// The coded data of a scan, one restart interval after the other.
#[derive(Debug)]
pub(crate) struct Intervals<'a> {
    bytes: &'a [u8],
    unstuffed: &'a mut Unstuffed,
    source: Source<'a>,
    /// What ended the last interval; before the first one, where the scan begins.
    ending: Ending,
}

/// How the next interval is found.
#[derive(Debug)]
enum Source<'a> {
    /// Behind the last one's marker.
    Scanned {
        /// How many were loaded; only its remainder by 8 counts, and whether it is zero.
        count: u8,
    },
    /// In an index: intervals are MCU rows.
    Indexed {
        rows: RowIndex<'a>,
        /// Where coded data as a whole begins.
        data: usize,
        /// The row to come, and the image's last one.
        row: usize,
        last: usize,
    },
}

impl<'a> Intervals<'a> {
    /// The coded data that begins at byte `at`.
    pub fn new(bytes: &'a [u8], at: usize, unstuffed: &'a mut Unstuffed) -> Intervals<'a> {
        Intervals {
            bytes,
            unstuffed,
            source: Source::Scanned { count: 0 },
            ending: Ending {
                marker: None,
                next: at,
            },
        }
    }

    /// The same, of which only the MCU rows from `row` on are read, found by their index. `last` is the image's
    /// last row.
    pub fn indexed(self, rows: RowIndex<'a>, row: usize, last: usize) -> Intervals<'a> {
        let data = self.ending.next;
        let source = Source::Indexed {
            rows,
            data,
            row,
            last,
        };
        Intervals { source, ..self }
    }

    /// Loads the next interval.
    pub fn next(&mut self) -> Result<(), Error> {
        match &mut self.source {
            Source::Scanned { count } => {
                if *count > 0 {
                    follows(self.ending, RST0 + (*count - 1) % 8)?;
                }
                *count = if *count == 8 { 1 } else { *count + 1 };
                self.ending = self.unstuffed.load(self.bytes, self.ending.next);
            }
            Source::Indexed {
                rows,
                data,
                row,
                last,
            } => {
                let range = rows.find(self.bytes, *data, *row)?;
                self.ending = self.unstuffed.load(&self.bytes[..range.end], range.start);
                let due = (row < last).then_some(RST0 + (*row % 8) as u8);
                if (self.ending.marker, self.ending.next) != (due, range.end) {
                    return Err(Error::RowIndex(format!(
                        "that puts row {row} at {}..{}, where it does not end",
                        range.start, range.end
                    )));
                }
                *row += 1;
            }
        }
        Ok(())
    }

    /// A reader of the interval that was loaded last.
    pub fn bits(&self) -> Bits<'_> {
        let mut bits = self.unstuffed.bits();
        bits.refill();
        bits
    }

    /// What a fault that `bits` met means for the file.
    pub fn error(&self, fault: Fault, position: usize) -> Error {
        let at = self.unstuffed.origin(self.bytes, position / 8);
        let corrupt = |what: &str| Error::corrupt(at, what);
        match (fault, self.ending.marker) {
            (Fault::Exhausted, None | Some(EOI)) => Error::Truncated("inside a scan"),
            (Fault::Exhausted, Some(_)) => corrupt("coded data that ends before its last block"),
            (Fault::NoCode, _) => corrupt("bits that are no Huffman code"),
            (Fault::Overrun, _) => corrupt("a run of zeros that leads out of its block"),
        }
    }

    /// Where the segment after the data begins; the file's end where none does.
    pub fn end(&self) -> usize {
        match self.ending.marker {
            Some(_) => self.ending.next - 2,
            None => self.ending.next,
        }
    }
}

/// Refuses a stretch of coded data that does not end with the restart marker that is due.
fn follows(ending: Ending, due: u8) -> Result<(), Error> {
    match ending.marker {
        Some(marker) if marker == due => Ok(()),
        None | Some(EOI) => Err(Error::Truncated("before the last restart interval")),
        Some(marker) => {
            let what = format!("the marker FF {marker:02X} where the restart marker FF {due:02X} is due");
            Err(Error::corrupt(ending.next - 2, what))
        }
    }
}
