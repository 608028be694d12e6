//! One block of a sequential scan: 64 coefficients from the bits.

use crate::bits::{Bits, Fault};
use crate::huffman::{AcTable, Code, DcTable, advance, entry, extend};

/// The coefficients of a block in rows, and behind them room that takes what is written past the block's end.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Block(pub [i16; 80]);

impl Block {
    pub const ZERO: Block = Block([0; 80]);
}

/// From the order of coding (zigzag) to the place in the block.
pub(crate) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// `PLACES[k]` is the place of coefficient `k - 1`, and 64 behind the block's end. Reading a symbol moves
/// `k`, at most 63, on by at most two bytes' worth, so that every `k` has its entry.
static PLACES: [u8; 64 + 255 + 255] = {
    let mut places = [64; 64 + 255 + 255];
    let mut k = 0;
    while k < 64 {
        places[k + 1] = ZIGZAG[k];
        k += 1;
    }
    places
};

/// What a component's blocks are read with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockCode<'a> {
    pub dc: &'a DcTable,
    pub dc_code: &'a Code,
    pub ac: &'a AcTable,
    pub ac_code: &'a Code,
}

/// Reads one block and returns how many coefficients, in coding order, it has up to its last one that is not
/// zero; at least 1. `bits` must be filled, and is again afterwards. With `STORE` the coefficients go to
/// `out`, which must be zero; without, the block is only read over.
#[inline(always)]
pub(crate) fn read_block<const STORE: bool>(
    bits: &mut Bits<'_>,
    code: &BlockCode<'_>,
    prediction: &mut i32,
    out: &mut Block,
) -> Result<u32, Fault> {
    let BlockCode {
        dc,
        dc_code,
        ac,
        ac_code,
    } = *code;
    bits.check()?;
    *prediction = prediction.wrapping_add(read_dc(bits, dc, dc_code)?);
    if STORE {
        out.0[0] = *prediction as i16;
    }
    let mut k = 1;
    let end = loop {
        match steps::<STORE>(bits, ac, k, out) {
            Stop::Block(end) => break end,
            Stop::Slow(at) => {
                let entry = read_slowly(bits, ac_code)?;
                let end = apply::<STORE>(0, entry, at, out);
                if end.last >= 64 {
                    break end;
                }
                k = end.last;
            }
        }
    };
    let count = end.finish(bits, ac_code);
    bits.refill();
    match count {
        // Zeros that are coded, by runs of sixteen: libjpeg looks at the values.
        Ok(17 | 33 | 49) if STORE && out.0[1..64].iter().all(|&value| value == 0) => Ok(1),
        count => count,
    }
}

/// Why [`steps`] ended.
enum Stop {
    /// The block is at its end.
    Block(Step),
    /// The symbol at this coefficient is not in the table.
    Slow(usize),
}

/// Looks up symbols from coefficient `k` on. No call is made here, so that everything stays in registers.
#[inline(always)]
fn steps<const STORE: bool>(bits: &mut Bits<'_>, table: &AcTable, mut k: usize, out: &mut Block) -> Stop {
    loop {
        // Three lookups a refill: a DC lookup leaves enough bits for two.
        for refill in [false, true, false] {
            let entry = table.look_up(bits.window);
            if entry == 0 {
                return Stop::Slow(k);
            }
            let added = missing_bits(bits.window, entry);
            bits.skip(entry);
            let step = apply::<STORE>(added, entry, k, out);
            if step.last >= 64 {
                return Stop::Block(step);
            }
            k = step.last;
            if refill {
                bits.refill();
            }
        }
    }
}

/// The difference between a DC coefficient and the last one.
#[inline(always)]
pub(crate) fn read_dc(bits: &mut Bits<'_>, table: &DcTable, code: &Code) -> Result<i32, Fault> {
    let entry = table.look_up(bits.window);
    if entry == 0 {
        return Ok(value_of(read_slowly(bits, code)?).into());
    }
    let value = (entry as i32 >> 16) + missing_bits(bits.window, u64::from(entry)) as i32;
    bits.skip(u64::from(entry));
    Ok(value)
}

/// What an entry holds, from coefficient `k` on, which must be below 64. `added` are the bits that its last
/// value misses.
#[inline(always)]
fn apply<const STORE: bool>(added: u64, entry: u64, k: usize, out: &mut Block) -> Step {
    let first = k + (entry >> 16) as u8 as usize;
    let last = k + (entry >> 24) as u8 as usize;
    if STORE {
        debug_assert!(k < 64);
        // SAFETY: `k` is below 64 and both advances are bytes, so both indices are within PLACES, whose
        // values are at most 64 and so within the block.
        unsafe {
            *out.0.get_unchecked_mut(usize::from(*PLACES.get_unchecked(first))) = (entry >> 32) as i16;
            *out.0.get_unchecked_mut(usize::from(*PLACES.get_unchecked(last))) =
                value_of(entry).wrapping_add(added as i16);
        }
    }
    Step { entry, first, last }
}

/// What a lookup came to: the coefficients that follow its first and its last symbol.
#[derive(Debug, Clone, Copy)]
struct Step {
    entry: u64,
    first: usize,
    last: usize,
}

impl Step {
    /// What it means that this step reached the end of the block.
    #[inline(always)]
    fn finish(self, bits: &mut Bits<'_>, code: &Code) -> Result<u32, Fault> {
        const END: usize = AcTable::END_OF_BLOCK as usize;
        let Step { entry, first, last } = self;
        if last > END && (first < 64 || first == last) {
            return Ok((last - END) as u32); // an end-of-block
        }
        match (first, last) {
            (_, 64) => Ok(64),
            (64, _) => {
                bits.seek(without_second(*bits, code, entry));
                Ok(64)
            }
            _ => Err(Fault::Overrun),
        }
    }
}

/// An entry's last value, without the bits that are to be added.
#[inline(always)]
fn value_of(entry: u64) -> i16 {
    (entry >> 48) as i16
}

/// Those bits of the window that are to be added to an entry's last value.
#[inline(always)]
fn missing_bits(window: u64, entry: u64) -> u64 {
    let bits = window >> (entry.wrapping_neg() & 63);
    bits & !(u64::MAX << (entry >> 8 & 63))
}

// What follows is not in the way of most lookups. It takes and gives bit positions, so that the reader can
// stay in registers where it is.

/// The position behind the first symbol of `entry`: the block ended with it, and the second belongs to the
/// next one.
#[cold]
#[inline(never)]
fn without_second(mut bits: Bits<'_>, code: &Code, entry: u64) -> usize {
    bits.seek(bits.position() - (entry & 0xFF) as usize);
    if let Some((length, symbol)) = code.find((bits.window >> 48) as u32) {
        bits.skip(u64::from(length) + u64::from(symbol & 15));
    }
    bits.position()
}

/// Reads a symbol by the code itself. The entry holds the whole value. `bits` are filled afterwards.
#[inline(always)]
fn read_slowly(bits: &mut Bits<'_>, code: &Code) -> Result<u64, Fault> {
    bits.refill();
    let entry = find_slowly(bits.window, code).ok_or(Fault::NoCode)?;
    bits.skip(entry);
    bits.refill();
    Ok(entry)
}

#[inline(never)]
fn find_slowly(window: u64, code: &Code) -> Option<u64> {
    let (length, symbol) = code.find((window >> 48) as u32)?;
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    let value = match size {
        0 => 0,
        _ => extend((window << length >> (64 - size)) as u32, size),
    };
    let advance = advance(run, size);
    Some(entry(length + size, 0, advance, advance, value, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Unstuffed;
    use crate::standard;

    #[test]
    fn coded_zeros_do_not_count_where_nothing_else_is() {
        let code = |(lengths, symbols): &standard::Standard| Code::new(lengths, symbols).expect("a code");
        let (dc_code, ac_code) = (code(&standard::DC_LUMINANCE), code(&standard::AC_LUMINANCE));
        let (mut dc, mut ac) = (DcTable::EMPTY, AcTable::EMPTY);
        dc.build(&dc_code);
        ac.build(&ac_code);
        let code = BlockCode {
            dc: &dc,
            dc_code: &dc_code,
            ac: &ac,
            ac_code: &ac_code,
        };
        // A difference of 0, a run of sixteen zeros, an end; and between the last two a 1.
        for (text, expected) in [("00 11111111001 1010", 1), ("00 11111111001 00 1 1010", 18)] {
            let bits = text.bytes().filter(|byte| *byte != b' ');
            let word = bits
                .enumerate()
                .fold(0u64, |word, (i, bit)| word | u64::from(bit & 1) << (63 - i));
            let stuffed: Vec<u8> = word
                .to_be_bytes()
                .into_iter()
                .flat_map(|b| [b, 0].into_iter().take(1 + usize::from(b == 0xFF)))
                .collect();
            let mut unstuffed = Unstuffed::default();
            unstuffed.load(&stuffed, 0);
            let mut bits = unstuffed.bits();
            bits.refill();
            let mut block = Block::ZERO;
            assert_eq!(
                read_block::<true>(&mut bits, &code, &mut 0, &mut block),
                Ok(expected),
                "{text}"
            );
        }
    }
}
