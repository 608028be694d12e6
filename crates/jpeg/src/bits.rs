//! Coded data as bits: unstuffing, and the reader whose refill has no branch that depends on the data.

/// Zero bytes behind the coded data, so that the reader's last loads stay inside.
const PADDING: usize = 16;

/// The coded data between two markers, without the zero that follows every FF in it.
#[derive(Debug, Default)]
pub(crate) struct Unstuffed {
    /// Only ever grows; of it `len` bytes and the padding are current.
    data: Vec<u8>,
    len: usize,
    /// Where the data began in the file.
    start: usize,
}

/// What ended a stretch of coded data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The marker's code; none where the file ends.
    pub marker: Option<u8>,
    /// The first byte after the marker.
    pub next: usize,
}

impl Unstuffed {
    /// Loads the coded data that begins at byte `start` of the file.
    pub fn load(&mut self, bytes: &[u8], start: usize) -> Ending {
        let most = bytes.len().saturating_sub(start) + 32 + PADDING;
        if self.data.len() < most {
            self.data.resize(most, 0);
        }
        self.start = start;
        let (mut from, mut to) = (start, 0);
        let ending = loop {
            let plain = copy_plain(bytes.get(from..).unwrap_or_default(), &mut self.data[to..]);
            (from, to) = (from + plain, to + plain);
            if bytes.get(from..from + 2) == Some(&[0xFF, 0]) {
                self.data[to] = 0xFF;
                (from, to) = (from + 2, to + 1);
                continue;
            }
            match escape(bytes, from) {
                Escape::Stuffed { next } => {
                    self.data[to] = 0xFF;
                    (from, to) = (next, to + 1);
                }
                Escape::Ends(ending) => break ending,
            }
        };
        self.data[to..to + PADDING].fill(0);
        self.len = to;
        ending
    }

    /// A reader from the first bit.
    pub fn bits(&self) -> Bits<'_> {
        Bits {
            data: &self.data[..self.len + PADDING],
            end: self.len,
            at: 0,
            window: 0,
            count: 0,
        }
    }

    /// Where in the file the unstuffed byte `at` came from.
    pub fn origin(&self, bytes: &[u8], at: usize) -> usize {
        let (mut from, mut to) = (self.start, 0);
        while to < at.min(self.len) {
            match bytes.get(from) {
                Some(0xFF) => match escape(bytes, from) {
                    Escape::Stuffed { next } => from = next,
                    Escape::Ends(_) => break,
                },
                Some(_) => from += 1,
                None => break,
            }
            to += 1;
        }
        from
    }
}

/// Copies bytes up to the first FF and returns how many they are. `to` has 32 bytes more than `from`.
fn copy_plain(from: &[u8], to: &mut [u8]) -> usize {
    let mut done = 0;
    while let Some(chunk) = from.get(done..).and_then(|rest| rest.first_chunk::<32>()) {
        to[done..done + 32].copy_from_slice(chunk);
        if chunk.iter().fold(false, |any, &byte| any | (byte == 0xFF)) {
            return done + first_ff(chunk);
        }
        done += 32;
    }
    while let Some(&byte) = from.get(done).filter(|&&byte| byte != 0xFF) {
        to[done] = byte;
        done += 1;
    }
    done
}

/// Where the first FF is; 32 if there is none.
fn first_ff(chunk: &[u8; 32]) -> usize {
    let (words, _) = chunk.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        // The lowest byte of zero is the lowest whose highest bit is set here.
        let inverted = !u64::from_le_bytes(*word);
        let marks = inverted.wrapping_sub(0x0101_0101_0101_0101) & !inverted & 0x8080_8080_8080_8080;
        if marks != 0 {
            return 8 * i + marks.trailing_zeros() as usize / 8;
        }
    }
    32
}

/// What an FF, or the end of the file, means.
enum Escape {
    /// A data byte FF; coded data goes on at `next`.
    Stuffed {
        next: usize,
    },
    Ends(Ending),
}

/// Looks at the FF at `at`. Like libjpeg, any number of FF may stand before the byte that decides.
fn escape(bytes: &[u8], at: usize) -> Escape {
    let rest = bytes.get(at..).unwrap_or_default();
    let fill = rest.iter().take_while(|&&byte| byte == 0xFF).count();
    let next = at + fill + 1;
    match rest.get(fill) {
        Some(0) => Escape::Stuffed { next },
        Some(&code) => Escape::Ends(Ending {
            marker: Some(code),
            next,
        }),
        None => Escape::Ends(Ending {
            marker: None,
            next: bytes.len(),
        }),
    }
}

/// Why coded data could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// More bits were needed than there are.
    Exhausted,
    /// No code of the table begins like this.
    NoCode,
    /// A run of zeros leads out of the block.
    Overrun,
}

/// Reads bits, the first in the highest place.
///
/// Reading past the end gives zeros; [`Bits::check`] tells. Each block reads a bounded number of bits, so a
/// check a block is enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    end: usize,
    /// The next byte to load.
    at: usize,
    /// The next bits, left-aligned.
    pub window: u64,
    /// Its low six bits: how many of the window's bits are counted as loaded. Higher bits are rubbish.
    count: u64,
}

impl Bits<'_> {
    /// Fills the window to at least 56 bits.
    #[inline(always)]
    pub fn refill(&mut self) {
        let word = match self.at + 8 <= self.data.len() {
            // SAFETY: the eight bytes from `at` lie within the slice, as was just asked.
            true => u64::from_be_bytes(unsafe { self.data.as_ptr().add(self.at).cast::<[u8; 8]>().read() }),
            false => 0,
        };
        // Bits that were loaded before are the same bits again.
        self.window |= word >> (self.count & 63);
        self.at += (!self.count >> 3 & 7) as usize;
        self.count |= 56;
    }

    /// Moves on by the low six bits of `length`; what stands above them does not matter.
    #[inline(always)]
    pub fn skip(&mut self, length: u64) {
        self.window <<= length & 63;
        self.count = self.count.wrapping_sub(length);
    }

    /// The next `n` bits, 1..=16, and moves on. At least `n` must be loaded.
    #[inline(always)]
    pub fn take(&mut self, n: u32) -> u32 {
        let value = (self.window >> (64 - n)) as u32;
        self.skip(u64::from(n));
        value
    }

    /// How many bits were read.
    pub fn position(&self) -> usize {
        8 * self.at - (self.count & 63) as usize
    }

    /// Moves to bit `position` and fills the window to at least 49 bits.
    #[inline(always)]
    pub fn seek(&mut self, position: usize) {
        (self.at, self.window, self.count) = (position / 8, 0, 0);
        self.refill();
        self.skip(position as u64 % 8);
    }

    /// Whether data may be left. Eight bytes are loaded ahead, so a little too much can go unnoticed.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Fault> {
        if self.at > self.end + 8 {
            Err(Fault::Exhausted)
        } else {
            Ok(())
        }
    }

    /// Whether every bit that was read was there.
    pub fn check_exact(&self) -> Result<(), Fault> {
        if self.position() > 8 * self.end {
            Err(Fault::Exhausted)
        } else {
            Ok(())
        }
    }
}

/// Makes a function that reads bits, whose body is compiled twice: as it is, and with `BMI` for processors whose shifts
/// need no particular register. Meanwhile the reader stays in registers. The body must be one call of a function that
/// is `#[inline(always)]`.
///
/// A macro, because a closure would be compiled without the instructions, and arguments in a struct would go through
/// memory block for block.
macro_rules! read_by_isa {
    (
        $(#[$doc:meta])*
        fn $name:ident($bits:ident, $($argument:ident: $kind:ty),*) -> $output:ty $body:block
    ) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name(isa: Isa, $bits: &mut Bits<'_>, $($argument: $kind),*) -> $output {
            #[inline(always)]
            fn here<const BMI: bool>(reader: &mut Bits<'_>, $($argument: $kind),*) -> $output {
                let mut bits = *reader; // in registers
                let $bits = &mut bits;
                let done = $body;
                *reader = bits;
                done
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            fn bmi(reader: &mut Bits<'_>, $($argument: $kind),*) -> $output {
                here::<true>(reader, $($argument),*)
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the token proves the instructions.
                Isa::Avx2(_) => unsafe { bmi($bits, $($argument),*) },
                _ => here::<false>($bits, $($argument),*),
            }
        }
    };
}
pub(crate) use read_by_isa;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffed_zeros_and_fill_bytes_go_and_markers_end() {
        let mut bytes: Vec<u8> = (0..200).collect();
        bytes.extend([0xFF, 0, 7, 0xFF, 0xFF, 0, 8, 0xFF, 0xFF, 0xD3, 9]);
        let mut unstuffed = Unstuffed::default();
        let ending = unstuffed.load(&bytes, 10);
        assert_eq!(
            ending,
            Ending {
                marker: Some(0xD3),
                next: bytes.len() - 1
            }
        );
        let mut expected: Vec<u8> = (10..200).collect();
        expected.extend([0xFF, 7, 0xFF, 8]);
        assert_eq!(unstuffed.data[..unstuffed.len], expected);
        assert_eq!(unstuffed.origin(&bytes, 5), 15);
        assert_eq!(bytes[unstuffed.origin(&bytes, 193)], 8);
        assert_eq!(
            unstuffed.load(&[1, 2, 0xFF], 1),
            Ending {
                marker: None,
                next: 3
            }
        );
        assert_eq!(
            unstuffed.load(&[1, 2], 7),
            Ending {
                marker: None,
                next: 2
            }
        );
    }

    #[test]
    fn bits_come_in_order_and_their_end_is_noticed() {
        let mut unstuffed = Unstuffed::default();
        let bytes: Vec<u8> = (0..40).map(|i| i * 5 + 1).collect();
        unstuffed.load(&bytes, 0);
        let mut bits = unstuffed.bits();
        let mut position = 0;
        for n in (1..=16).cycle().take(36) {
            bits.refill();
            let expected =
                (position..position + n).fold(0, |v, i| v << 1 | u32::from(bytes[i / 8] >> (7 - i % 8) & 1));
            assert_eq!(bits.take(n as u32), expected);
            position += n;
            assert_eq!(bits.position(), position);
        }
        bits.seek(13);
        assert_eq!(bits.take(3), u32::from(bytes[1]) & 7);
        bits.seek(315);
        bits.take(5);
        assert_eq!(bits.check_exact(), Ok(()));
        bits.take(1);
        assert_eq!(bits.check_exact(), Err(Fault::Exhausted));
        for _ in 0..4 {
            bits.refill();
            bits.skip(56);
        }
        assert_eq!(bits.check(), Err(Fault::Exhausted));
    }
}
