//! The scans of a batch as the kernels want them.

use super::kernels::{
    CODE_SIZE, COMPONENT_SIZE, COMPONENTS, HEADS, IMAGE_SIZE, LONG_LENGTHS, PLACE_SIZE, PLACES, STRETCH,
    SUMS, SYMBOLS,
};
use super::{MOST_ROUNDS, SUBSEQUENCE};
use std::collections::HashMap;
use stokehold_jpeg::{Coded, CodedPlace, CodedSegment, HuffmanCode};

/// The most bytes of a segment: its bits are counted in 31 bits.
const MOST_BYTES: usize = 1 << 27;

/// The coded data of one image, and what it takes to read them.
#[derive(Debug)]
pub(crate) struct Scan {
    data: Vec<u8>,
    segments: Vec<CodedSegment>,
    /// The kernels' words, without what only a batch knows: where codes are, and each component's first block.
    image: Box<[u32; IMAGE_SIZE as usize]>,
    /// The codes of each component.
    codes: Vec<[Code; 2]>,
    places: Vec<CodedPlace>,
}

/// The numbers of codes of each length, and the symbols.
type Code = ([u8; 16], Vec<u8>);

impl Scan {
    /// None where a segment is too long for its bits to be counted.
    pub fn new(coded: &Coded<'_>) -> Option<Scan> {
        if coded.segments.iter().any(|segment| segment.length > MOST_BYTES) {
            return None;
        }
        let mut image = Box::new([0; IMAGE_SIZE as usize]);
        (image[0], image[1]) = (coded.places().len() as u32, coded.mcus_wide);
        for (component, words) in coded.components().iter().zip(components(&mut image)) {
            let (column, row) = component.first_block;
            let (wide, high) = (component.layout.blocks_wide, component.layout.blocks_high);
            *words = [
                0,
                column,
                row,
                wide,
                high,
                component.per_mcu.0,
                component.per_mcu.1,
            ];
        }
        for (place, words) in coded.places().iter().zip(places(&mut image)) {
            *words = [u32::from_le_bytes([place.component, place.x, place.y, 0]), 0, 0];
        }
        let own = |code: HuffmanCode<'_>| (*code.lengths, code.symbols.to_vec());
        Some(Scan {
            data: coded.data.to_vec(),
            segments: coded.segments.to_vec(),
            image,
            codes: coded
                .components()
                .iter()
                .map(|c| [own(c.dc), own(c.ac)])
                .collect(),
            places: coded.places().to_vec(),
        })
    }
}

/// An image's words about components.
fn components(image: &mut [u32; IMAGE_SIZE as usize]) -> &mut [[u32; COMPONENT_SIZE as usize]] {
    image[COMPONENTS as usize..PLACES as usize].as_chunks_mut().0
}

/// An image's words about places of an MCU.
fn places(image: &mut [u32; IMAGE_SIZE as usize]) -> &mut [[u32; PLACE_SIZE as usize]] {
    image[PLACES as usize..].as_chunks_mut().0
}

/// The scans of a batch, as the kernels want them.
#[derive(Debug)]
pub(crate) struct Scans {
    /// Bits of a subsequence, a multiple of 32.
    pub length: u32,
    /// The most rounds that are launched.
    pub most_rounds: u32,
    /// Coded data, each segment from a multiple of four bytes on.
    pub data: Vec<u8>,
    /// The codes in the kernels' form.
    pub codes: Vec<u16>,
    /// Where the codes are that were met already.
    known: HashMap<Code, u32>,
    images: Vec<u32>,
    segments: Vec<u32>,
    /// For each subsequence, where its segment is among all.
    pub owners: Vec<u32>,
    /// Subsequences of the longest segment.
    pub longest: u32,
}

impl Default for Scans {
    fn default() -> Scans {
        Scans {
            length: SUBSEQUENCE,
            most_rounds: MOST_ROUNDS,
            data: Vec::new(),
            codes: Vec::new(),
            known: HashMap::new(),
            images: Vec::new(),
            segments: Vec::new(),
            owners: Vec::new(),
            longest: 0,
        }
    }
}

impl Scans {
    /// Adds a scan whose components' blocks begin at `first_blocks` among all blocks of the batch.
    pub fn push(&mut self, scan: &Scan, first_blocks: &[u32]) {
        let (begin, image) = ((self.data.len() / 4) as u32, self.images.len() as u32);
        for segment in &scan.segments {
            let bits = 8 * segment.length as u32;
            // A segment without a bit has a subsequence too: it finds that blocks are missing.
            let subsequences = bits.div_ceil(self.length).max(1);
            let at = self.segments.len() as u32;
            self.segments.extend([
                begin + (segment.begin / 4) as u32,
                bits,
                self.owners.len() as u32,
                subsequences,
                segment.first_mcu,
                segment.mcus * scan.image[0],
                image,
                image / IMAGE_SIZE,
            ]);
            self.owners.resize(self.owners.len() + subsequences as usize, at);
            self.longest = self.longest.max(subsequences);
        }
        self.data.extend_from_slice(&scan.data);
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        let mut words = *scan.image;
        for (component, first) in components(&mut words).iter_mut().zip(first_blocks) {
            component[0] = *first;
        }
        let codes: Vec<[u32; 2]> = scan
            .codes
            .iter()
            .map(|codes| codes.each_ref().map(|code| self.code(code)))
            .collect();
        for (place, words) in scan.places.iter().zip(places(&mut words)) {
            [words[1], words[2]] = codes[usize::from(place.component)];
        }
        self.images.extend(words);
    }

    /// Where a code is.
    fn code(&mut self, code: &Code) -> u32 {
        if let Some(&at) = self.known.get(code) {
            return at;
        }
        let at = self.codes.len() as u32;
        push_code(code, &mut self.codes);
        self.known.insert(code.clone(), at);
        at
    }

    /// The image of a segment, named as in `owners`.
    #[cfg(all(test, feature = "vulkan"))]
    pub fn image_of(&self, owner: u32) -> usize {
        self.segments[owner as usize + 7] as usize
    }

    /// All words of the batch.
    pub fn words(&self) -> Vec<u32> {
        [&self.images[..], &self.segments, &self.owners].concat()
    }

    /// Bytes on the device: of coded data, of words, and of what is kept of subsequences and codes.
    pub fn pieces(&self) -> [u64; 3] {
        let words = self.images.len() + self.segments.len() + self.owners.len();
        let states = (3 + SUMS as usize) * self.owners.len()
            + 2 * SUMS as usize * self.owners.len() / STRETCH as usize;
        [self.data.len(), 4 * words, 4 * states + 2 * self.codes.len()].map(|bytes| bytes as u64)
    }

    /// Where the segments' words begin.
    pub fn segments_at(&self) -> u32 {
        self.images.len() as u32
    }

    /// Where the segments of subsequences are named.
    pub fn owners_at(&self) -> u32 {
        (self.images.len() + self.segments.len()) as u32
    }

    /// How many scans there are.
    pub fn len(&self) -> usize {
        self.images.len() / IMAGE_SIZE as usize
    }
}

/// Adds a code in the kernels' form.
fn push_code((lengths, symbols): &Code, codes: &mut Vec<u16>) {
    let begin = codes.len();
    codes.resize(begin + CODE_SIZE as usize, 0);
    let table = &mut codes[begin..];
    // Codes of a length are numbers that follow one another; those of the next length follow twice the last.
    let (mut next, mut index) = (0u32, 0usize);
    for (length, &count) in (1u32..).zip(lengths) {
        let count = u32::from(count);
        if length <= 9 {
            let span = 1 << (9 - length);
            for i in 0..count {
                let at = (next + i) as usize * span;
                table[at..at + span].fill((length << 8) as u16 | u16::from(symbols[index + i as usize]));
            }
        } else {
            let long = (HEADS + length - 10) as usize;
            table[long] = ((next + count) << (16 - length)) as u16;
            table[long + LONG_LENGTHS as usize] = (index as u16).wrapping_sub(next as u16);
        }
        index += count as usize;
        next = (next + count) << 1;
    }
    for (entry, &symbol) in table[SYMBOLS as usize..].iter_mut().zip(symbols) {
        *entry = symbol.into();
    }
}

/// What is wrong with a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults(pub u32);

impl Faults {
    /// Whether its coefficients are right.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether there were too few rounds, and all that is known of it is that.
    #[cfg(all(test, feature = "vulkan"))]
    pub fn is_unsynchronised(self) -> bool {
        self.0 & super::kernels::UNSYNCHRONISED != 0
    }
}
