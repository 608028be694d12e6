//! Huffman codes and the tables that read them fast.
//!
//! The fast tables are indexed by the next bits of the data. An entry tells how many bits to move on by, and
//! the values those bits hold. Where the index holds only the first bits of a value's magnitude, the entry
//! holds the value they promise and how many bits are to be added to it.

/// A Huffman code as a file defines it.
#[derive(Debug, Clone)]
pub(crate) struct Code {
    /// `ends[l]`: the first 16-bit window, left-aligned, that lies behind all codes of up to `l` bits.
    ends: [u32; 17],
    /// What leads from a code of `l` bits to its symbol's index.
    offsets: [i32; 17],
    counts: [u8; 17],
    symbols: [u8; 256],
}

impl Code {
    /// From the number of codes of each length 1..=16 and all symbols in order; none where they are no prefix
    /// code. As in libjpeg the code of only ones must stay unused.
    pub fn new(lengths: &[u8; 16], symbols: &[u8]) -> Option<Code> {
        let mut code = Code {
            ends: [0; 17],
            offsets: [0; 17],
            counts: [0; 17],
            symbols: [0; 256],
        };
        code.symbols.get_mut(..symbols.len())?.copy_from_slice(symbols);
        let (mut next, mut index) = (0u32, 0i32);
        for length in 1..=16 {
            let count = lengths[length - 1];
            code.counts[length] = count;
            code.offsets[length] = index - next as i32;
            next += u32::from(count);
            index += i32::from(count);
            if next >= 1 << length && count > 0 {
                return None;
            }
            code.ends[length] = next << (16 - length);
            next <<= 1;
        }
        (index as usize == symbols.len()).then_some(code)
    }

    /// Length and symbol of the code that a 16-bit window begins with.
    pub fn find(&self, window: u32) -> Option<(u32, u8)> {
        let length = (1..=16).find(|&length| window < self.ends[length])?;
        let index = (window >> (16 - length)) as i32 + self.offsets[length];
        Some((length as u32, *self.symbols.get(index as usize)?))
    }

    /// Whether every symbol passes.
    pub fn all_symbols(&self, pass: impl Fn(u8) -> bool) -> bool {
        let count: usize = self.counts.iter().map(|&n| usize::from(n)).sum();
        self.symbols[..count.min(256)].iter().all(|&symbol| pass(symbol))
    }

    /// For every index of `N` bits the length (low byte) and symbol (high byte) of the code it begins with;
    /// zero where it does not hold a whole code.
    fn heads<const N: usize>(&self) -> [u16; N] {
        let bits = N.trailing_zeros() as usize;
        let mut heads = [0; N];
        let (mut at, mut symbol) = (0, 0);
        for length in 1..=bits {
            for _ in 0..self.counts[length] {
                let span = 1 << (bits - length);
                heads[at..at + span].fill(length as u16 | u16::from(self.symbols[symbol]) << 8);
                (at, symbol) = (at + span, symbol + 1);
            }
        }
        heads
    }
}

/// The value that `size` magnitude bits mean: with a leading zero they are negative (figure F.12 of the
/// standard).
#[inline(always)]
pub(crate) fn extend(bits: u32, size: u32) -> i32 {
    match size {
        0 => 0,
        _ if bits >> (size - 1) != 0 => bits as i32,
        _ => bits as i32 - ((1 << size) - 1),
    }
}

/// The value of `size` bits whose first `known` ones are `bits`, and how many bits remain to be added to it.
/// At least one must be known, or none be wanted.
fn promise(bits: u32, known: u32, size: u32) -> (i32, u32) {
    match size.checked_sub(known) {
        Some(missing) => (extend(bits << missing, size), missing),
        None => (extend(bits >> (known - size), size), 0),
    }
}

/// Reads differences of DC coefficients, one a lookup.
///
/// An entry, from the low byte: bits to move on by, bits to be added to the value, the value in 16 bits. Zero
/// sends to the slow path.
#[derive(Debug, Clone)]
pub(crate) struct DcTable {
    entries: [u32; DcTable::SIZE],
}

impl DcTable {
    const BITS: u32 = 9;
    const SIZE: usize = 1 << DcTable::BITS;
    /// The most bits a lookup may take, so that two lookups of an [`AcTable`] fit behind it in one refill.
    const MOST: u32 = 20;

    pub const EMPTY: DcTable = DcTable {
        entries: [0; DcTable::SIZE],
    };

    pub fn build(&mut self, code: &Code) {
        let heads = code.heads::<{ DcTable::SIZE }>();
        for (index, (entry, head)) in self.entries.iter_mut().zip(heads).enumerate() {
            let (length, size) = (u32::from(head & 0xFF), u32::from(head >> 8));
            let known = DcTable::BITS - length;
            *entry = match length == 0 || length + size > DcTable::MOST || (size > 0 && known == 0) {
                true => 0,
                false => {
                    let (value, missing) = promise(index as u32 & ((1 << known) - 1), known, size);
                    (length + size) | missing << 8 | (value as u32) << 16
                }
            };
        }
    }

    /// The entry for the window's first bits.
    #[inline(always)]
    pub fn look_up(&self, window: u64) -> u32 {
        self.entries[(window >> (64 - DcTable::BITS)) as usize]
    }
}

/// Reads AC coefficients, up to two a lookup.
///
/// An entry, from the low byte: bits to move on by; bits to be added to the second value; how many
/// coefficients the first symbol moves on by; how many both do; the first value; the second value, each in 16
/// bits. Where there is only one symbol both values are its value and both advances its advance. Zero sends
/// to the slow path.
#[derive(Debug, Clone)]
pub(crate) struct AcTable {
    pairs: [u64; AcTable::SIZE],
    heads: [u16; AcTable::SIZE],
}

impl AcTable {
    const BITS: u32 = 10;
    const SIZE: usize = 1 << AcTable::BITS;
    /// The most bits a lookup may take: three fit in one refill.
    const MOST: u32 = 18;
    /// The advance of an end-of-block, which no run of zeros reaches.
    pub const END_OF_BLOCK: u32 = 129;

    pub const EMPTY: AcTable = AcTable {
        pairs: [0; AcTable::SIZE],
        heads: [0; AcTable::SIZE],
    };

    pub fn build(&mut self, code: &Code) {
        self.heads = code.heads();
        for index in 0..AcTable::SIZE {
            self.pairs[index] = self.pair(index as u32);
        }
    }

    fn pair(&self, index: u32) -> u64 {
        let Some(first) = self.symbol(index, AcTable::BITS) else {
            return 0;
        };
        let single = entry(
            first.length,
            first.missing,
            first.advance,
            first.advance,
            first.value,
            first.value,
        );
        let left = (AcTable::BITS).saturating_sub(first.length);
        if left == 0 || first.advance == AcTable::END_OF_BLOCK {
            return single;
        }
        match self.symbol(index & ((1 << left) - 1), left) {
            Some(second) if first.length + second.length <= AcTable::MOST => {
                let (length, advance) = (first.length + second.length, first.advance + second.advance);
                entry(
                    length,
                    second.missing,
                    first.advance,
                    advance,
                    first.value,
                    second.value,
                )
            }
            _ => single,
        }
    }

    /// The symbol and value that the low `known` bits of `bits` begin with; none where they do not hold its
    /// code and its sign.
    #[inline(always)]
    fn symbol(&self, bits: u32, known: u32) -> Option<Symbol> {
        let head = self.heads[(bits << (AcTable::BITS - known)) as usize & (AcTable::SIZE - 1)];
        let (length, run, size) = (
            u32::from(head & 0xFF),
            u32::from(head >> 12),
            u32::from(head >> 8 & 15),
        );
        if length == 0 || length > known || length + size > AcTable::MOST || (size > 0 && length == known) {
            return None;
        }
        let known = known - length;
        let (value, missing) = promise(bits & ((1 << known) - 1), known, size);
        Some(Symbol {
            length: length + size,
            advance: advance(run, size),
            value,
            missing,
        })
    }

    /// The entry for the window's first bits.
    #[inline(always)]
    pub fn look_up(&self, window: u64) -> u64 {
        self.pairs[(window >> (64 - AcTable::BITS)) as usize]
    }

    /// Length and symbol of the code at the head of the window, without its magnitude bits; length 0 sends to
    /// [`Code::find`].
    #[inline(always)]
    pub fn head(&self, window: u64) -> (u32, u8) {
        let head = self.heads[(window >> (64 - AcTable::BITS)) as usize];
        (u32::from(head & 0xFF), (head >> 8) as u8)
    }
}

/// One symbol as far as an index holds it.
struct Symbol {
    length: u32,
    advance: u32,
    value: i32,
    missing: u32,
}

/// By how many coefficients a symbol moves on.
#[inline(always)]
pub(crate) fn advance(run: u32, size: u32) -> u32 {
    if size == 0 && run != 15 {
        AcTable::END_OF_BLOCK
    } else {
        run + 1
    }
}

/// Packs an entry of an [`AcTable`].
#[inline(always)]
pub(crate) fn entry(length: u32, missing: u32, first: u32, both: u32, value: i32, second: i32) -> u64 {
    let low = length | missing << 8 | first << 16 | both << 24;
    u64::from(low) | u64::from(value as u16) << 32 | u64::from(second as u16) << 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard;

    #[test]
    fn codes_are_found_and_non_codes_are_not() {
        let code =
            Code::new(&standard::AC_LUMINANCE.0, standard::AC_LUMINANCE.1).expect("the standard's code");
        assert_eq!(code.find(0), Some((2, 0x01)));
        assert_eq!(code.find(0b1010 << 12), Some((4, 0x00)));
        assert_eq!(code.find(0xFFFE), Some((16, 0xFA)));
        assert_eq!(code.find(0xFFFF), None);
        let mut crowded = [0; 16];
        crowded[0] = 2;
        assert!(Code::new(&crowded, &[1, 2]).is_none());
        crowded[0] = 1;
        assert!(Code::new(&crowded, &[1, 2]).is_none());
    }

    #[test]
    fn both_values_of_an_entry_are_what_reading_bit_by_bit_gives() {
        for (lengths, symbols) in [&standard::AC_LUMINANCE, &standard::AC_CHROMINANCE] {
            let code = Code::new(lengths, symbols).expect("the standard's code");
            let mut table = AcTable::EMPTY;
            table.build(&code);
            let mut pairs = 0;
            for window in (0..=u32::MAX)
                .step_by(4099)
                .map(|high| u64::from(high) << 32 | 0x1234_5678)
            {
                let entry = table.look_up(window);
                if entry == 0 {
                    continue;
                }
                let (mut at, mut advances, mut values) = (0, 0, [0; 2]);
                let bits = |at: u32, n: u32| {
                    if n == 0 {
                        0
                    } else {
                        (window << at >> (64 - n)) as u32
                    }
                };
                let symbols = if entry >> 16 & 0xFF == entry >> 24 & 0xFF {
                    1
                } else {
                    2
                };
                for value in values.iter_mut().take(symbols) {
                    let (length, symbol) = code.find(bits(at, 16)).expect("a code");
                    let size = u32::from(symbol & 15);
                    *value = extend(bits(at + length, size), size);
                    at += length + size;
                    advances += advance(u32::from(symbol >> 4), size);
                }
                assert_eq!((entry & 0xFF, entry >> 24 & 0xFF), (at.into(), advances.into()));
                let missing = (entry >> 8 & 0xFF) as u32;
                let second = (entry >> 48) as i16 as i32 + bits(at - missing, missing) as i32;
                if symbols == 2 {
                    pairs += 1;
                    assert_eq!(((entry >> 32) as i16 as i32, second), (values[0], values[1]));
                } else {
                    assert_eq!(second, values[0]);
                }
            }
            assert!(pairs > 100_000, "{pairs} entries held a pair");
        }
    }
}
