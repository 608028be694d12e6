//! The tables a file defines: quantisation steps and Huffman codes.

use crate::Error;
use crate::block::ZIGZAG;
use crate::huffman::{AcTable, Code, DcTable};
use crate::markers::Segment;
use crate::standard::{self, Standard};

/// A fast table of either class.
pub(crate) trait FastTable {
    /// Whether the class of coefficients may use that symbol.
    fn allows(symbol: u8) -> bool;
    fn build(&mut self, code: &Code);
}

impl FastTable for DcTable {
    fn allows(symbol: u8) -> bool {
        symbol <= 15
    }

    fn build(&mut self, code: &Code) {
        DcTable::build(self, code);
    }
}

impl FastTable for AcTable {
    fn allows(_: u8) -> bool {
        true
    }

    fn build(&mut self, code: &Code) {
        AcTable::build(self, code);
    }
}

/// One of the four places for Huffman codes of a class. A fast table outlives its image: many files share
/// their codes.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    lengths: [u8; 16],
    symbols: Vec<u8>,
    /// Whether this image defined it.
    defined: bool,
    /// The code as the file gave it; none where it is no prefix code or was not built yet.
    code: Option<Code>,
    table: Box<T>,
}

impl<T: FastTable> Slot<T> {
    fn new(table: T) -> Slot<T> {
        Slot {
            lengths: [0; 16],
            symbols: Vec::new(),
            defined: false,
            code: None,
            table: Box::new(table),
        }
    }

    fn define(&mut self, lengths: &[u8; 16], symbols: &[u8]) {
        self.defined = true;
        if self.lengths != *lengths || self.symbols != symbols {
            self.lengths = *lengths;
            self.symbols.clear();
            self.symbols.extend_from_slice(symbols);
            self.code = None;
        }
    }

    /// Makes the code and the table ready for a scan. `at` is the scan's place in the file.
    fn prepare(&mut self, default: Option<&Standard>, at: usize) -> Result<(), Error> {
        if !self.defined {
            let Some((lengths, symbols)) = default else {
                return Err(Error::corrupt(
                    at,
                    "a scan that uses a Huffman code the file does not define",
                ));
            };
            self.define(lengths, symbols);
        }
        if self.code.is_none() {
            let code = Code::new(&self.lengths, &self.symbols).filter(|code| code.all_symbols(T::allows));
            let code =
                code.ok_or_else(|| Error::corrupt(at, "a scan that uses a Huffman code which is none"))?;
            self.table.build(&code);
            self.code = Some(code);
        }
        Ok(())
    }

    /// The table and its code, after [`Slot::prepare`].
    fn ready(&self) -> Option<(&T, &Code)> {
        self.code.as_ref().map(|code| (&*self.table, code))
    }
}

/// All tables of an image.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Steps in rows, as the file has them.
    quantisation: [Option<[u16; 64]>; 4],
    dc: [Slot<DcTable>; 4],
    ac: [Slot<AcTable>; 4],
}

impl Tables {
    pub fn new() -> Tables {
        Tables {
            quantisation: [None; 4],
            dc: std::array::from_fn(|_| Slot::new(DcTable::EMPTY)),
            ac: std::array::from_fn(|_| Slot::new(AcTable::EMPTY)),
        }
    }

    /// Forgets what the last image defined.
    pub fn reset(&mut self) {
        self.quantisation = [None; 4];
        self.dc.iter_mut().for_each(|slot| slot.defined = false);
        self.ac.iter_mut().for_each(|slot| slot.defined = false);
    }

    /// Reads a DQT segment.
    pub fn read_quantisation(&mut self, segment: Segment<'_>) -> Result<(), Error> {
        let corrupt = |what: &str| Error::corrupt(segment.at, format!("a quantisation table {what}"));
        let mut rest = segment.body;
        while let [kind, after @ ..] = rest {
            let (wide, slot) = (kind >> 4 != 0, usize::from(kind & 15));
            let size = if wide { 128 } else { 64 };
            let slot = self
                .quantisation
                .get_mut(slot)
                .ok_or_else(|| corrupt("of number above 3"))?;
            let (values, after) = after
                .split_at_checked(size)
                .ok_or_else(|| corrupt("that is too short"))?;
            let steps = slot.insert([0; 64]);
            for (k, &place) in ZIGZAG.iter().enumerate() {
                steps[usize::from(place)] = match wide {
                    true => u16::from_be_bytes([values[2 * k], values[2 * k + 1]]),
                    false => values[k].into(),
                };
            }
            rest = after;
        }
        Ok(())
    }

    /// Reads a DHT segment.
    pub fn read_huffman(&mut self, segment: Segment<'_>) -> Result<(), Error> {
        let corrupt = |what: &str| Error::corrupt(segment.at, format!("a Huffman code {what}"));
        let mut rest = segment.body;
        while let [kind, after @ ..] = rest {
            let (lengths, after) = after
                .split_first_chunk::<16>()
                .ok_or_else(|| corrupt("that is too short"))?;
            let count: usize = lengths.iter().map(|&n| usize::from(n)).sum();
            if count > 256 {
                return Err(corrupt("of more than 256 symbols"));
            }
            let (symbols, after) = after
                .split_at_checked(count)
                .ok_or_else(|| corrupt("that is too short"))?;
            match (kind >> 4, usize::from(kind & 15)) {
                (0, slot @ 0..4) => self.dc[slot].define(lengths, symbols),
                (1, slot @ 0..4) => self.ac[slot].define(lengths, symbols),
                _ => return Err(corrupt("of number above 3")),
            }
            rest = after;
        }
        Ok(())
    }

    /// The quantisation steps of slot `index`.
    pub fn quantisation(&self, index: usize, at: usize) -> Result<[u16; 64], Error> {
        let missing = || {
            Error::corrupt(
                at,
                format!("a scan that uses quantisation table {index}, which is missing"),
            )
        };
        self.quantisation
            .get(index)
            .copied()
            .flatten()
            .ok_or_else(missing)
    }

    /// Makes a DC code ready. `standard`: where the file defines none, the standard's example is meant.
    pub fn prepare_dc(&mut self, index: usize, standard: bool, at: usize) -> Result<(), Error> {
        let default = match index {
            0 if standard => Some(&standard::DC_LUMINANCE),
            1 if standard => Some(&standard::DC_CHROMINANCE),
            _ => None,
        };
        slot(&mut self.dc, index, at)?.prepare(default, at)
    }

    /// The same for an AC code.
    pub fn prepare_ac(&mut self, index: usize, standard: bool, at: usize) -> Result<(), Error> {
        let default = match index {
            0 if standard => Some(&standard::AC_LUMINANCE),
            1 if standard => Some(&standard::AC_CHROMINANCE),
            _ => None,
        };
        slot(&mut self.ac, index, at)?.prepare(default, at)
    }

    /// A DC code, once it is ready.
    pub fn dc(&self, index: usize) -> Option<(&DcTable, &Code)> {
        self.dc.get(index)?.ready()
    }

    /// An AC code, once it is ready.
    pub fn ac(&self, index: usize) -> Option<(&AcTable, &Code)> {
        self.ac.get(index)?.ready()
    }
}

/// The slot of a code that a scan uses. A scan may name any number where it uses none: one that refines DC has no code.
fn slot<T>(slots: &mut [Slot<T>; 4], index: usize, at: usize) -> Result<&mut Slot<T>, Error> {
    let above = || Error::corrupt(at, "a scan that uses a Huffman code of number above 3");
    slots.get_mut(index).ok_or_else(above)
}
