//! Progressive scans: a band of coefficients at a time, and of them first the upper bits, then one bit more a
//! scan.
//!
//! See section G of the standard. A run of blocks whose band is at its end ("end-of-band run") takes one
//! symbol.

use crate::Error;
use crate::bits::{Bits, Fault};
use crate::block::{ZIGZAG, read_dc};
use crate::huffman::{AcTable, Code, extend};
use crate::kernels::Isa;
use crate::planes::{BlockMut, Planes, Walk};
use crate::scan::{Intervals, Scan};
use crate::tables::Tables;

/// How far the coefficients of a component have come: the bit position of the last scan that held them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    positions: [Option<u32>; 64],
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            positions: [None; 64],
        }
    }
}

impl Progress {
    /// Whether every coefficient has all its bits.
    pub fn whole(&self) -> bool {
        self.positions.iter().all(|&position| position == Some(0))
    }

    /// Every coefficient has all its bits.
    pub fn finish(&mut self) {
        self.positions = [Some(0); 64];
    }

    /// Takes note of a scan; it must go on where the last one ended.
    fn advance(&mut self, scan: &Scan) -> Result<(), Error> {
        let corrupt = |what: &str| Error::corrupt(scan.at, what);
        if scan.first > 0 && self.positions[0].is_none() {
            return Err(corrupt("a progressive scan of AC coefficients before one of DC"));
        }
        for position in &mut self.positions[scan.first..=scan.last] {
            if position.unwrap_or(0) != scan.high || *position == Some(0) {
                return Err(corrupt(
                    "a progressive scan that does not go on where the last one ended",
                ));
            }
            *position = Some(scan.low);
        }
        Ok(())
    }
}

/// What reading carries from block to block.
#[derive(Debug, Default)]
struct State {
    predictions: [i32; 4],
    /// Blocks, with the current one, whose band is at its end.
    run: u32,
}

/// Reads a scan into the planes.
pub(crate) fn read(
    walk: &Walk<'_>,
    intervals: &mut Intervals<'_>,
    tables: &mut Tables,
    planes: &mut Planes,
) -> Result<(), Error> {
    let (scan, isa) = (walk.scan, planes.isa);
    check(scan)?;
    for member in scan.members() {
        planes.progress(member.component).advance(scan)?;
    }
    match (scan.first, scan.high) {
        (0, 0) => {
            for member in scan.members() {
                tables.prepare_dc(member.dc, false, scan.at)?;
            }
            let codes: [_; 4] = std::array::from_fn(|i| scan.members().get(i).and_then(|m| tables.dc(m.dc)));
            walk.each_block(intervals, planes, |bits, state: &mut State, member, block| {
                let Some((table, code)) = codes[member] else {
                    return Err(Fault::NoCode);
                };
                let difference = read_dc(bits, table, code)?;
                bits.refill();
                state.predictions[member] = state.predictions[member].wrapping_add(difference);
                block.values[0] = (state.predictions[member] << scan.low) as i16;
                Ok(())
            })
        }
        (0, _) => walk.each_block(intervals, planes, |bits, _: &mut State, _, block| {
            block.values[0] |= (bits.take(1) << scan.low) as i16;
            bits.refill();
            Ok(())
        }),
        (_, high) => {
            let slot = scan.members()[0].ac;
            tables.prepare_ac(slot, false, scan.at)?;
            let Some((table, code)) = tables.ac(slot) else {
                return Err(Error::corrupt(scan.at, "a scan without its code"));
            };
            let band = Band {
                table,
                code,
                first: scan.first,
                last: scan.last,
                low: scan.low,
            };
            match high {
                0 => walk.each_block(intervals, planes, |bits, state: &mut State, _, block| {
                    band.read_first(isa, bits, &mut state.run, block)
                }),
                _ => walk.each_block(intervals, planes, |bits, state: &mut State, _, block| {
                    band.refine(isa, bits, &mut state.run, block)
                }),
            }
        }
    }
}

/// The rules of section G.1.1.1 for one scan.
fn check(scan: &Scan) -> Result<(), Error> {
    let dc = scan.first == 0 && scan.last == 0;
    let ac = scan.first > 0 && scan.first <= scan.last && scan.last < 64 && scan.members().len() == 1;
    let bits = scan.low <= 13 && (scan.high == 0 || scan.high == scan.low + 1);
    match (dc || ac) && bits {
        true => Ok(()),
        false => Err(Error::corrupt(
            scan.at,
            "a progressive scan of a band or of bits that cannot be",
        )),
    }
}

/// A band of AC coefficients and how to read it.
struct Band<'a> {
    table: &'a AcTable,
    code: &'a Code,
    first: usize,
    last: usize,
    /// The position of the bit that the scan brings.
    low: u32,
}

impl Band<'_> {
    /// The band's first scan of a block.
    #[inline(always)]
    fn read_first(
        &self,
        isa: Isa,
        bits: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        if *run > 0 {
            *run -= 1;
            return Ok(());
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe { self.read_first_bmi(bits, run, block) },
            _ => self.read_first_here(bits, run, block),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn read_first_bmi(
        &self,
        bits: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        self.read_first_here(bits, run, block)
    }

    #[inline(always)]
    fn read_first_here(
        &self,
        reader: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        let mut bits = *reader; // in registers
        let done = self.read_band(&mut bits, run, block);
        *reader = bits;
        done
    }

    #[inline(always)]
    fn read_band(&self, bits: &mut Bits<'_>, run: &mut u32, block: &mut BlockMut<'_>) -> Result<(), Fault> {
        let mut k = self.first;
        while k <= self.last {
            let (zeros, size) = self.symbol(bits)?;
            if size > 0 {
                k += zeros as usize;
                if k > self.last {
                    return Err(Fault::Overrun);
                }
                set(block, k, (extend(bits.take(size), size) << self.low) as i16);
                k += 1;
            } else if zeros == 15 {
                k += 16;
            } else {
                *run = end_of_band_run(bits, zeros) - 1;
                break;
            }
            bits.refill();
        }
        bits.refill();
        Ok(())
    }

    /// A later scan: a bit for every coefficient that is not zero, and between them new ones.
    #[inline(always)]
    fn refine(
        &self,
        isa: Isa,
        bits: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe { self.refine_bmi(bits, run, block) },
            _ => self.refine_here::<false>(bits, run, block),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn refine_bmi(&self, bits: &mut Bits<'_>, run: &mut u32, block: &mut BlockMut<'_>) -> Result<(), Fault> {
        self.refine_here::<true>(bits, run, block)
    }

    #[inline(always)]
    fn refine_here<const BMI: bool>(
        &self,
        reader: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        let mut bits = *reader; // in registers
        let done = self.refine_band::<BMI>(&mut bits, run, block);
        *reader = bits;
        done
    }

    /// In all masks bit `k` stands for coefficient `k`.
    #[inline(always)]
    fn refine_band<const BMI: bool>(
        &self,
        bits: &mut Bits<'_>,
        run: &mut u32,
        block: &mut BlockMut<'_>,
    ) -> Result<(), Fault> {
        // What is still to come of the band, and which coefficients have a bit in this scan.
        let mut rest = u64::MAX >> (63 - self.last) & u64::MAX << self.first;
        let known = *block.nonzero;
        let mut corrections = 0;
        while *run == 0 && rest != 0 {
            let (zeros, size) = self.symbol(bits)?;
            let value = match size {
                0 if zeros == 15 => 0,
                0 => {
                    *run = end_of_band_run(bits, zeros);
                    break;
                }
                1 => {
                    if bits.take(1) == 1 {
                        1 << self.low
                    } else {
                        -1 << self.low
                    }
                }
                _ => return Err(Fault::NoCode),
            };
            // The symbol leads to the zero after `zeros` others; the coefficients before it have their bits.
            let place = deposit::<BMI>(1 << zeros, rest & !known);
            let before = rest & place.wrapping_sub(1);
            corrections |= bits_of::<BMI>(bits, before & known);
            if value != 0 {
                if place == 0 {
                    return Err(Fault::Overrun);
                }
                set(block, place.trailing_zeros() as usize, value);
            }
            rest &= !(before | place);
            bits.refill();
        }
        if *run > 0 {
            corrections |= bits_of::<BMI>(bits, rest & known);
            *run -= 1;
        }
        bits.refill();
        let bit = 1 << self.low;
        while corrections != 0 {
            let value =
                &mut block.values[usize::from(ZIGZAG[corrections.trailing_zeros() as usize & 63]) & 63];
            if *value & bit == 0 {
                *value = value.wrapping_add(value.signum() * bit);
            }
            corrections &= corrections - 1;
        }
        Ok(())
    }

    /// The next symbol's upper and lower half. 16 bits must be loaded.
    fn symbol(&self, bits: &mut Bits<'_>) -> Result<(u32, u32), Fault> {
        let (length, symbol) = match self.table.head(bits.window) {
            (0, _) => self.code.find((bits.window >> 48) as u32).ok_or(Fault::NoCode)?,
            head => head,
        };
        bits.skip(length.into());
        Ok((u32::from(symbol >> 4), u32::from(symbol & 15)))
    }
}

/// Reads a bit for each coefficient of `which`; those whose bit is set.
#[inline(always)]
fn bits_of<const BMI: bool>(bits: &mut Bits<'_>, which: u64) -> u64 {
    if which.count_ones() <= 56 {
        return loaded_bits_of::<BMI>(bits, which);
    }
    let low = which & u64::from(u32::MAX);
    loaded_bits_of::<BMI>(bits, low) | loaded_bits_of::<BMI>(bits, which ^ low)
}

/// The same of at most 56, as many bits as can be loaded.
#[inline(always)]
fn loaded_bits_of<const BMI: bool>(bits: &mut Bits<'_>, which: u64) -> u64 {
    bits.refill();
    let set = deposit::<BMI>(bits.window.reverse_bits(), which);
    bits.skip(which.count_ones().into());
    set
}

/// Bit `n` of `bits` in the place of the `n`th bit that `mask` has.
#[inline(always)]
fn deposit<const BMI: bool>(mut bits: u64, mut mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if BMI {
        // SAFETY: only code that is compiled for BMI2 asks for it.
        return unsafe { std::arch::x86_64::_pdep_u64(bits, mask) };
    }
    let mut deposited = 0;
    while mask != 0 && bits != 0 {
        deposited |= mask & mask.wrapping_neg() & (bits & 1).wrapping_neg();
        mask &= mask - 1;
        bits >>= 1;
    }
    deposited
}

/// Sets AC coefficient `k`.
fn set(block: &mut BlockMut<'_>, k: usize, value: i16) {
    block.values[usize::from(ZIGZAG[k])] = value;
    *block.nonzero |= u64::from(value != 0) << k;
}

/// The length of a run whose symbol's upper half is `size`: that many bits follow.
fn end_of_band_run(bits: &mut Bits<'_>, size: u32) -> u32 {
    match size {
        0 => 1,
        _ => (1 << size) + bits.take(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Unstuffed;
    use crate::kernels::tests::numbers;

    #[test]
    fn each_coefficient_of_a_mask_gets_its_bit() {
        let mut number = numbers(5);
        let bytes: Vec<u8> = (0..64).map(|_| number() as u8 & 0x7F).collect();
        let mut unstuffed = Unstuffed::default();
        unstuffed.load(&bytes, 0);
        for i in 0..2000 {
            // From no coefficient to all 63.
            let which = [number() & number(), number(), number() | number(), u64::MAX][i % 4] & !1;
            let (mut masked, mut single) = (unstuffed.bits(), unstuffed.bits());
            let start = number() as usize % 200;
            masked.seek(start);
            single.seek(start);
            let set = bits_of::<false>(&mut masked, which);
            let expected = (1..64).filter(|k| which >> k & 1 != 0).fold(0, |set, k| {
                single.refill();
                set | u64::from(single.take(1)) << k
            });
            assert_eq!((set, masked.position()), (expected, single.position()));
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("bmi2") {
                let bits = number();
                assert_eq!(deposit::<true>(bits, which), deposit::<false>(bits, which));
            }
        }
    }
}
