//! Coefficients to coded data: the inverse of `block` and `huffman`.
//!
//! A block is a string of symbols. [`symbols`] gives them to whoever asks: first to [`Counts`], from which the
//! best prefix code follows ([`OptimalCode::of`]), then to [`BitWriter`].

use crate::block::ZIGZAG;

/// Takes the symbols of a block. A symbol's low four bits say how many bits of magnitude follow it.
pub(crate) trait Sink {
    fn dc(&mut self, symbol: u8, magnitude: u32);
    fn ac(&mut self, symbol: u8, magnitude: u32);
}

/// The largest sizes of DC differences and AC coefficients that 8-bit samples give, which is what decoders
/// are prepared for (F.1.2 of the standard).
pub(crate) const MOST_DC_SIZE: u8 = 11;
pub(crate) const MOST_AC_SIZE: u8 = 10;

/// Gives `sink` the symbols of a block. `nonzero` has bit `k` set where coefficient `k`, in coding order, is
/// not zero. Sizes above 15 are given as 15; both are more than may be coded.
#[inline(always)]
pub(crate) fn symbols(values: &[i16; 64], nonzero: u64, last_dc: &mut i32, sink: &mut impl Sink) {
    let dc = i32::from(values[0]);
    let (size, magnitude) = size_and_magnitude(dc - *last_dc);
    *last_dc = dc;
    sink.dc(size, magnitude);
    let (mut k, mut rest) = (0, nonzero & !1);
    while rest != 0 {
        let next = rest.trailing_zeros();
        rest &= rest - 1;
        let mut run = next - k - 1;
        while run > 15 {
            sink.ac(0xF0, 0);
            run -= 16;
        }
        let (size, magnitude) = size_and_magnitude(values[usize::from(ZIGZAG[next as usize & 63])].into());
        sink.ac((run << 4) as u8 | size, magnitude);
        k = next;
    }
    if k < 63 {
        sink.ac(0, 0);
    }
}

/// How many bits the magnitude of `value` has, and those bits (figure F.1 of the standard).
#[inline(always)]
fn size_and_magnitude(value: i32) -> (u8, u32) {
    let size = (32 - value.unsigned_abs().leading_zeros()).min(15);
    let bits = (value + (value >> 31)) as u32 & !(u32::MAX << size);
    (size as u8, bits)
}

/// How often each symbol occurs.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    pub dc: [u32; 256],
    pub ac: [u32; 256],
}

impl Counts {
    pub const ZERO: Counts = Counts {
        dc: [0; 256],
        ac: [0; 256],
    };

    /// Whether every symbol may be coded.
    pub fn codable(&self) -> bool {
        let within = |counts: &[u32; 256], most: u8| {
            (0u8..)
                .zip(counts)
                .all(|(symbol, &count)| count == 0 || symbol & 15 <= most)
        };
        within(&self.dc, MOST_DC_SIZE) && within(&self.ac, MOST_AC_SIZE)
    }
}

impl Sink for Counts {
    #[inline(always)]
    fn dc(&mut self, symbol: u8, _: u32) {
        self.dc[usize::from(symbol)] += 1;
    }

    #[inline(always)]
    fn ac(&mut self, symbol: u8, _: u32) {
        self.ac[usize::from(symbol)] += 1;
    }
}

/// A prefix code, as a file defines it and as it is written with.
#[derive(Debug, Clone)]
pub(crate) struct OptimalCode {
    /// How many codes there are of each length 1..=16, and their symbols in order.
    pub lengths: [u8; 16],
    pub symbols: Vec<u8>,
    /// By symbol: the code, and its length in the low five bits.
    codes: [u32; 256],
}

impl OptimalCode {
    /// The code that makes the fewest bits of symbols that occur `counts` times, apart from the limit of 16
    /// bits, which annex K.2 of the standard keeps as done here.
    pub fn of(counts: &[u32; 256]) -> OptimalCode {
        let depths = depths(counts);
        let mut lengths = [0u16; 258];
        depths
            .iter()
            .for_each(|&(_, depth)| lengths[usize::from(depth)] += 1);
        limit(&mut lengths);
        // The code of only ones, which must not be used, was kept by a symbol of its own: the deepest.
        if let Some(longest) = lengths.iter_mut().rev().find(|count| **count > 0) {
            *longest -= 1;
        }
        let mut order: Vec<(u16, u8)> = depths
            .iter()
            .filter_map(|&(symbol, depth)| Some((depth, u8::try_from(symbol).ok()?)))
            .collect();
        order.sort_unstable();
        let mut code = OptimalCode {
            lengths: std::array::from_fn(|i| lengths[i + 1] as u8),
            symbols: order.into_iter().map(|(_, symbol)| symbol).collect(),
            codes: [0; 256],
        };
        code.number();
        code
    }

    /// Numbers the codes (annex C of the standard).
    fn number(&mut self) {
        let (mut next, mut symbols) = (0u32, self.symbols.iter());
        for (length, &count) in (1..).zip(&self.lengths) {
            for &symbol in symbols.by_ref().take(count.into()) {
                self.codes[usize::from(symbol)] = next << 5 | length;
                next += 1;
            }
            next <<= 1;
        }
    }
}

/// The symbol that keeps the code of only ones from being used.
const RESERVED: u16 = 256;

/// The depth in Huffman's tree of each symbol that occurs and of [`RESERVED`], which occurs least.
///
/// The two rarest nodes are joined until one is left. Joins come in the order of their counts, so that a queue
/// of them beside the sorted symbols is enough.
fn depths(counts: &[u32; 256]) -> Vec<(u16, u16)> {
    let mut leaves: Vec<(u64, u16)> = vec![(0, RESERVED)];
    leaves.extend(
        (0..)
            .zip(counts)
            .filter(|&(_, &n)| n > 0)
            .map(|(symbol, &n)| (n.into(), symbol)),
    );
    // Of symbols that occur equally often the larger one goes deeper, as in libjpeg.
    leaves.sort_unstable_by_key(|&(count, symbol)| (count, std::cmp::Reverse(symbol)));
    // Nodes are the leaves and behind them the joins; of each its parent.
    let nodes = 2 * leaves.len() - 1;
    let mut weights: Vec<u64> = leaves.iter().map(|leaf| leaf.0).collect();
    let mut parents = vec![0; nodes];
    let (mut leaf, mut join) = (0, leaves.len());
    for node in leaves.len()..nodes {
        let mut weight = 0;
        for _ in 0..2 {
            let child = match leaf < leaves.len() && (join >= node || weights[leaf] <= weights[join]) {
                true => &mut leaf,
                false => &mut join,
            };
            weight += weights[*child];
            parents[*child] = node;
            *child += 1;
        }
        weights.push(weight);
    }
    let mut depth = vec![0; nodes];
    for node in (0..nodes - 1).rev() {
        depth[node] = depth[parents[node]] + 1;
    }
    leaves
        .iter()
        .zip(depth)
        .map(|(&(_, symbol), depth)| (symbol, depth))
        .collect()
}

/// Shortens the longest codes to 16 bits at the cost of others (figure K.3 of the standard). `lengths[l]` is
/// the number of codes of `l` bits.
fn limit(lengths: &mut [u16; 258]) {
    for long in (17..lengths.len()).rev() {
        while lengths[long] > 0 {
            // Two siblings go: one takes their parent's place, the other becomes the sibling of a shorter code.
            let Some(short) = (1..long - 1).rev().find(|&length| lengths[length] > 0) else {
                break;
            };
            lengths[long] -= 2;
            lengths[long - 1] += 1;
            lengths[short] -= 1;
            lengths[short + 1] += 2;
        }
    }
}

/// Writes bits, the first in the highest place, with the zero that follows every FF.
#[derive(Debug)]
pub(crate) struct BitWriter {
    pub out: Vec<u8>,
    /// The low `count` bits wait; fewer than 32.
    bits: u64,
    count: u32,
}

impl BitWriter {
    /// Goes on behind `out`.
    pub fn new(out: Vec<u8>) -> BitWriter {
        BitWriter {
            out,
            bits: 0,
            count: 0,
        }
    }

    /// Writes the low `count` bits of `bits`, at most 32. All others must be zero.
    #[inline(always)]
    fn put(&mut self, bits: u32, count: u32) {
        self.bits = self.bits << count | u64::from(bits);
        self.count += count;
        if self.count >= 32 {
            self.count -= 32;
            self.word((self.bits >> self.count) as u32);
        }
    }

    #[inline(always)]
    fn word(&mut self, word: u32) {
        let bytes = word.to_be_bytes();
        // Adding one to FF clears its highest bit.
        match word & !word.wrapping_add(0x0101_0101) & 0x8080_8080 {
            0 => self.out.extend_from_slice(&bytes),
            _ => bytes.into_iter().for_each(|byte| self.byte(byte)),
        }
    }

    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
        if byte == 0xFF {
            self.out.push(0);
        }
    }

    /// Fills up the last byte with ones.
    pub fn finish(&mut self) {
        let missing = self.count.wrapping_neg() % 8;
        self.put(!(u32::MAX << missing), missing);
        while self.count > 0 {
            self.count -= 8;
            self.byte((self.bits >> self.count) as u8);
        }
    }
}

/// The codes of a component's blocks, and where they are written.
pub(crate) struct Writing<'a> {
    pub writer: &'a mut BitWriter,
    pub dc: &'a OptimalCode,
    pub ac: &'a OptimalCode,
}

impl Writing<'_> {
    #[inline(always)]
    fn put(&mut self, code: u32, symbol: u8, magnitude: u32) {
        let size = u32::from(symbol & 15);
        self.writer.put(code >> 5 << size | magnitude, (code & 31) + size);
    }
}

impl Sink for Writing<'_> {
    #[inline(always)]
    fn dc(&mut self, symbol: u8, magnitude: u32) {
        self.put(self.dc.codes[usize::from(symbol)], symbol, magnitude);
    }

    #[inline(always)]
    fn ac(&mut self, symbol: u8, magnitude: u32) {
        self.put(self.ac.codes[usize::from(symbol)], symbol, magnitude);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Unstuffed;
    use crate::block::{Block, BlockCode, read_block};
    use crate::huffman::{AcTable, Code, DcTable};
    use crate::kernels::tests::numbers;

    fn nonzero(values: &[i16; 64]) -> u64 {
        (1..64)
            .filter(|&k| values[usize::from(ZIGZAG[k])] != 0)
            .fold(0, |mask, k| mask | 1 << k)
    }

    #[test]
    fn blocks_are_read_as_they_were_written() {
        let mut number = numbers(9);
        let blocks: Vec<[i16; 64]> = (0..3000)
            .map(|i| {
                let mut values = [0; 64];
                for _ in 0..[0, 3, 20, 200][i % 4] {
                    let largest = [3, 40, 2047][number() as usize % 3];
                    values[number() as usize % 64] = (number() % largest) as i16 - largest as i16 / 2;
                }
                values
            })
            .collect();
        let (mut counts, mut last) = (Counts::ZERO, 0);
        blocks
            .iter()
            .for_each(|block| symbols(block, nonzero(block), &mut last, &mut counts));
        assert!(counts.codable());
        let (dc, ac) = (OptimalCode::of(&counts.dc), OptimalCode::of(&counts.ac));
        let (mut writer, mut last) = (BitWriter::new(Vec::new()), 0);
        for block in &blocks {
            let (writer, dc, ac) = (&mut writer, &dc, &ac);
            symbols(block, nonzero(block), &mut last, &mut Writing { writer, dc, ac });
        }
        writer.finish();
        let code = |code: &OptimalCode| Code::new(&code.lengths, &code.symbols).expect("a prefix code");
        let (dc_code, ac_code) = (code(&dc), code(&ac));
        let (mut dc, mut ac) = (DcTable::EMPTY, AcTable::EMPTY);
        dc.build(&dc_code);
        ac.build(&ac_code);
        let code = BlockCode {
            dc: &dc,
            dc_code: &dc_code,
            ac: &ac,
            ac_code: &ac_code,
        };
        let mut unstuffed = Unstuffed::default();
        unstuffed.load(&writer.out, 0);
        let (mut bits, mut last) = (unstuffed.bits(), 0);
        bits.refill();
        for expected in blocks {
            let mut block = Block::ZERO;
            read_block::<true>(&mut bits, &code, &mut last, &mut block).expect("a block");
            assert_eq!(block.0[..64], expected);
        }
        assert_eq!(bits.check_exact(), Ok(()));
    }

    #[test]
    fn codes_are_as_short_as_a_prefix_code_can_be_and_none_is_too_long() {
        // Counts like these make the deepest tree there is.
        let mut counts = [0u32; 256];
        let (mut a, mut b) = (1, 1);
        for count in counts.iter_mut().skip(7).take(40) {
            *count = a;
            (a, b) = (b, a + b);
        }
        let code = OptimalCode::of(&counts);
        assert_eq!(code.symbols.len(), 40);
        assert!(Code::new(&code.lengths, &code.symbols).is_some());
        // Two equal symbols and the reserved code: 1 and 2 bits.
        let mut counts = [0; 256];
        (counts[3], counts[5]) = (10, 10);
        let code = OptimalCode::of(&counts);
        assert_eq!(
            (code.lengths[0], code.lengths[1], code.symbols.as_slice()),
            (1, 1, &[3u8, 5][..])
        );
        // All symbols equally often: 9 bits for most of them, and none unused.
        let code = OptimalCode::of(&[1; 256]);
        assert!(Code::new(&code.lengths, &code.symbols).is_some());
        assert_eq!(code.lengths.iter().map(|&n| u32::from(n)).sum::<u32>(), 256);
        assert_eq!((code.lengths[7], code.lengths[8]), (255, 1));
    }

    #[test]
    fn sizes_that_cannot_be_coded_are_noticed() {
        let codable = |dc: i16, ac: i16| {
            let mut values = [0; 64];
            (values[0], values[63]) = (dc, ac);
            let mut counts = Counts::ZERO;
            symbols(&values, nonzero(&values), &mut 0, &mut counts);
            counts.codable()
        };
        assert!(codable(2047, 1023) && codable(-2047, -1023));
        for (dc, ac) in [
            (2048, 0),
            (0, 1024),
            (-2048, 0),
            (0, -1024),
            (i16::MIN, 0),
            (0, i16::MIN),
        ] {
            assert!(!codable(dc, ac), "{dc} {ac}");
        }
    }
}
