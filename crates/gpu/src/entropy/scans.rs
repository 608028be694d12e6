//! The scans of a batch in the kernels' layout.

use super::kernels::{
    CODE_SIZE, COMPONENT_SIZE, COMPONENTS, HEADS, IMAGE_SIZE, LONG_LENGTHS, PLACE_SIZE, PLACES, STRETCH,
    SUMS, SYMBOLS,
};
use super::{MOST_ROUNDS, SUBSEQUENCE};
use crate::words::Words;
use std::collections::BTreeMap;
use stokehold_jpeg::{Coded, CodedPlace, CodedSegment, HuffmanCode};

/// The most bytes of a segment: its bits are counted in 31 bits.
const MOST_BYTES: usize = 1 << 27;

/// The coded data of one image, and its tables.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Four bytes a word, the first in the lowest place.
    data: Vec<u32>,
    segments: Vec<CodedSegment>,
    /// The image's words, except those that depend on the batch: the place of its codes, and each component's
    /// first block.
    image: Box<[u32; IMAGE_SIZE as usize]>,
    /// The codes of each component.
    codes: Vec<[Code; 2]>,
    places: Vec<CodedPlace>,
}

/// The numbers of codes of each length, and the symbols.
type Code = ([u8; 16], Vec<u8>);

impl Scan {
    /// The number of words in a batch, without codes and subsequences.
    pub fn words(&self) -> usize {
        self.data.len() + IMAGE_SIZE as usize
    }

    /// `None` if a segment is too long for its bits to be counted.
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
        let mut data = Words(Vec::with_capacity(coded.data.len() / 4 + 1));
        data.bytes(coded.data);
        let data = data.0;
        let own = |code: HuffmanCode<'_>| (*code.lengths, code.symbols.to_vec());
        Some(Scan {
            data,
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

/// The part of an image's words for components.
fn components(image: &mut [u32; IMAGE_SIZE as usize]) -> &mut [[u32; COMPONENT_SIZE as usize]] {
    image[COMPONENTS as usize..PLACES as usize].as_chunks_mut().0
}

/// The part of an image's words for places of an MCU.
fn places(image: &mut [u32; IMAGE_SIZE as usize]) -> &mut [[u32; PLACE_SIZE as usize]] {
    image[PLACES as usize..].as_chunks_mut().0
}

/// The scans of a batch. The words of the batch have the data of each scan; this has the parameters of all of
/// them together.
#[derive(Debug)]
pub(crate) struct Scans {
    /// Bits of a subsequence, a multiple of 32.
    pub length: u32,
    /// The most rounds that are launched.
    pub most_rounds: u32,
    /// The places of the codes added so far.
    known: BTreeMap<Code, u32>,
    /// Words of segments.
    segments: Vec<u32>,
    /// For each subsequence, the index of its segment.
    pub owners: Vec<u32>,
    /// The number of subsequences of the longest segment.
    pub longest: u32,
}

impl Default for Scans {
    fn default() -> Scans {
        Scans {
            length: SUBSEQUENCE,
            most_rounds: MOST_ROUNDS,
            known: BTreeMap::new(),
            segments: Vec::new(),
            owners: Vec::new(),
            longest: 0,
        }
    }
}

impl Scans {
    /// Adds the scan of the image `number`, whose components' blocks begin at `first_blocks` among all blocks of the batch.
    pub fn push(&mut self, words: &mut Words, scan: &Scan, first_blocks: &[u32], number: u32) {
        let begin = words.here();
        words.copy(&scan.data);
        let codes: Vec<[u32; 2]> = scan
            .codes
            .iter()
            .map(|codes| codes.each_ref().map(|code| self.code(words, code)))
            .collect();
        let mut image = *scan.image;
        for (component, first) in components(&mut image).iter_mut().zip(first_blocks) {
            component[0] = *first;
        }
        for (place, words) in scan.places.iter().zip(places(&mut image)) {
            [words[1], words[2]] = codes[usize::from(place.component)];
        }
        for segment in &scan.segments {
            let bits = 8 * segment.length as u32;
            // A segment without bits has one subsequence, which finds that blocks are missing.
            let subsequences = bits.div_ceil(self.length).max(1);
            let at = self.segments.len() as u32;
            self.segments.extend([
                begin + (segment.begin / 4) as u32,
                bits,
                self.owners.len() as u32,
                subsequences,
                segment.first_mcu,
                segment.mcus * image[0],
                words.here(),
                number,
            ]);
            self.owners.resize(self.owners.len() + subsequences as usize, at);
            self.longest = self.longest.max(subsequences);
        }
        words.copy(&image);
    }

    /// The place of a code.
    fn code(&mut self, words: &mut Words, code: &Code) -> u32 {
        if let Some(&at) = self.known.get(code) {
            return at;
        }
        let at = words.here();
        words.extend(table(code).map(u32::from));
        self.known.insert(code.clone(), at);
        at
    }

    /// Adds the segments and subsequences of all scans to the words. Returns their places.
    pub fn place(&self, words: &mut Words) -> [u32; 2] {
        [&self.segments, &self.owners].map(|each| {
            let here = words.here();
            words.copy(each);
            here
        })
    }

    /// The image of a segment, by an index of `owners`.
    #[cfg(test)]
    pub fn image_of(&self, owner: u32) -> usize {
        self.segments[owner as usize + 7] as usize
    }

    /// Bytes on the device: of words still to be placed, and of the buffers for subsequences.
    pub fn pieces(&self) -> [u64; 2] {
        let words = self.segments.len() + self.owners.len();
        let states = (4 + SUMS as usize) * self.owners.len()
            + 2 * SUMS as usize * self.owners.len().div_ceil(STRETCH as usize);
        [words, states].map(|words| 4 * words as u64)
    }
}

/// A code in the kernels' layout.
fn table((lengths, symbols): &Code) -> [u16; CODE_SIZE as usize] {
    let mut table = [0; CODE_SIZE as usize];
    // Codes of the same length are consecutive numbers; those of the next length continue at twice the last.
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
    table
}
