//! Coded data say all that it takes to read them: a reader that goes bit by bit finds the coefficients.

use crate::oracle;
use crate::writer::Spec;
use proptest::prelude::*;
use stokehold_jpeg::{
    Coded, CodedSegment, Decoder, Error, Header, HuffmanCode, Input, Layout, Metadata, Region, Scale,
    TranscodeOptions, ZIGZAG, transcode,
};

const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

/// The needed blocks of each component, row by row.
type Blocks = Vec<Vec<[i16; 64]>>;

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bits(&mut self, count: u32) -> Option<i32> {
        let mut value = 0;
        for _ in 0..count {
            let bit = self.data.get(self.at / 8)? >> (7 - self.at % 8) & 1;
            (value, self.at) = (value << 1 | i32::from(bit), self.at + 1);
        }
        Some(value)
    }

    /// Figure F.16 of the standard.
    fn symbol(&mut self, code: HuffmanCode<'_>) -> Option<u8> {
        let (mut value, mut first, mut index) = (0, 0, 0);
        for &count in code.lengths {
            value = value << 1 | self.bits(1)?;
            if value - first < i32::from(count) {
                return Some(code.symbols[index + (value - first) as usize]);
            }
            index += usize::from(count);
            first = (first + i32::from(count)) << 1;
        }
        None
    }

    fn value(&mut self, size: u8) -> Option<i32> {
        let value = self.bits(size.into())?;
        let negative = size > 0 && value >> (size - 1) == 0;
        Some(if negative { value - (1 << size) + 1 } else { value })
    }

    fn block(&mut self, prediction: &mut i32, dc: HuffmanCode<'_>, ac: HuffmanCode<'_>) -> Option<[i16; 64]> {
        let mut block = [0; 64];
        let size = self.symbol(dc)?;
        *prediction += self.value(size)?;
        block[0] = *prediction as i16;
        let mut k = 1;
        while k < 64 {
            let symbol = self.symbol(ac)?;
            let (run, size) = (usize::from(symbol >> 4), symbol & 15);
            if size == 0 && run < 15 {
                break;
            }
            let value = self.value(size)?;
            *block.get_mut(usize::from(*ZIGZAG.get(k + run)?))? = value as i16;
            k += run + 1;
        }
        Some(block)
    }
}

/// Reads all segments; none where one is broken.
fn read(coded: &Coded<'_>) -> Option<Blocks> {
    let layouts = coded.components().iter().map(|c| c.layout);
    let mut blocks: Blocks = layouts
        .map(|l| vec![[0; 64]; (l.blocks_wide * l.blocks_high) as usize])
        .collect();
    for &CodedSegment {
        begin,
        length,
        first_mcu,
        mcus,
    } in coded.segments
    {
        assert_eq!(begin % 4, 0);
        let mut reader = Reader {
            data: &coded.data[begin..begin + length],
            at: 0,
        };
        let mut predictions = [0; 4];
        for mcu in first_mcu..first_mcu + mcus {
            for place in coded.places() {
                let index = usize::from(place.component);
                let component = &coded.components()[index];
                let block = reader.block(&mut predictions[index], component.dc, component.ac)?;
                let column = mcu % coded.mcus_wide * component.per_mcu.0 + u32::from(place.x);
                let row = mcu / coded.mcus_wide * component.per_mcu.1 + u32::from(place.y);
                let (x, y) = component.first_block;
                let (wide, high) = (component.layout.blocks_wide, component.layout.blocks_high);
                if (x..x + wide).contains(&column) && (y..y + high).contains(&row) {
                    blocks[index][((row - y) * wide + column - x) as usize] = block;
                }
            }
        }
    }
    Some(blocks)
}

/// Reads a region and holds it against the decoder. Whether the file is of one scan and whole.
fn check<'a>(input: impl Into<Input<'a>>, region: Region, scale: Scale) -> bool {
    let (input, mut decoder) = (input.into(), Decoder::new());
    let blocks = match decoder.coded(input, region, scale) {
        Ok(None) => return false,
        Ok(Some(coded)) => read(&coded),
        Err(error) => {
            // The decoder may say something else, where a block before is broken too.
            let decoded = decoder.decode(input, region, scale, Layout::Rgb);
            assert!(decoded.is_err(), "{error}");
            return false;
        }
    };
    let expected = decoder.decode_blocks(input, region, scale).map(|expected| {
        let unpack = |component: &stokehold_jpeg::ComponentBlocks<'_>| -> Vec<[i16; 64]> {
            let blocks = component.heads.iter().map(|head| {
                let (mut block, mut values) = ([0; 64], component.values[head.first as usize..].iter());
                for place in (0..64).filter(|place| head.mask >> place & 1 == 1) {
                    block[place] = *values.next().expect("a value");
                }
                block
            });
            blocks.collect()
        };
        let sides = expected.components().iter().map(|c| c.layout.side);
        (
            expected.components().iter().map(unpack).collect::<Blocks>(),
            sides.collect::<Vec<_>>(),
        )
    });
    assert_eq!(blocks.is_some(), expected.is_ok(), "{:?}", expected.err());
    let (Some(mut blocks), Ok((expected, sides))) = (blocks, expected) else {
        return false;
    };
    for (component, side) in blocks.iter_mut().zip(sides) {
        // Of a block that becomes one sample the decoder keeps the first coefficient.
        let kept = if side == 1 { 1 } else { 64 };
        component.iter_mut().for_each(|block| block[kept..].fill(0));
    }
    assert!(blocks == expected, "{region:?} {scale:?}");
    true
}

/// A region of an image, of four numbers of at most 1.
fn part(header: &Header, [x, y, width, height]: [f64; 4]) -> Region {
    let cut = |at: f64, size: f64, whole: u32| {
        let at = (at * f64::from(whole - 1)) as u32;
        (at, 1 + (size * f64::from(whole - at - 1)) as u32)
    };
    let ((x, width), (y, height)) = (cut(x, width, header.width), cut(y, height, header.height));
    Region { x, y, width, height }
}

proptest! {
    #[test]
    fn of_any_file_and_region(
        factors in prop_oneof![
            Just(vec![(1, 1)]),
            Just(vec![(1, 1); 3]),
            Just(vec![(2, 2), (1, 1), (1, 1)]),
            Just(vec![(2, 1), (1, 1), (1, 1)]),
            Just(vec![(1, 2), (4, 1), (2, 1)]),
            Just(vec![(1, 1); 4]),
        ],
        size in (1..90u16, 1..90u16),
        restart_interval in 0..9u16,
        interleaved in prop::bool::weighted(0.9),
        cut in [0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0f64],
        scale in prop::sample::select(&SCALES[..]),
        damage in prop::option::weighted(0.4, (0.0..1.0, any::<u8>())),
        seed in any::<u64>(),
    ) {
        let spec = Spec {
            width: size.0,
            height: size.1,
            factors: factors.clone(),
            restart_interval,
            interleaved,
            adobe: None,
            wide_steps: false,
            seed,
        };
        let mut bytes = spec.write().bytes;
        let header = Header::parse(&bytes).expect("a header");
        let region = part(&header, cut);
        let transcoded = transcode(&bytes, &TranscodeOptions { metadata: Metadata::Drop }).expect("an image");
        if let Some((place, byte)) = damage {
            let data = 700.min(bytes.len());
            let at = data + (place * (bytes.len() - data) as f64) as usize;
            if let Some(there) = bytes.get_mut(at) {
                *there = byte;
            }
            check(&bytes, region, scale);
        } else {
            let one_scan = interleaved || factors.len() == 1;
            prop_assert_eq!(check(&bytes, region, scale), one_scan);
            prop_assert!(check(&transcoded, region, scale));
        }
    }
}

#[test]
fn of_photos() {
    for path in oracle::data("photos").unwrap_or_default().iter().step_by(40) {
        let bytes = std::fs::read(path).expect("a file");
        let header = Header::parse(&bytes).expect("a header");
        assert!(check(&bytes, header.full(), Scale::Full), "{}", path.display());
        assert!(check(&bytes, part(&header, [0.4, 0.5, 0.3, 0.2]), Scale::Half));
    }
}

#[test]
fn of_files_of_fuzzers() {
    for path in oracle::data("jpeg-corpus/hostile").unwrap_or_default() {
        let bytes = std::fs::read(&path).expect("a file");
        if let Ok(header) = Header::parse(&bytes) {
            check(&bytes, header.full(), Scale::Full);
        }
    }
}

/// Segments that no needed MCU is in are left out.
#[test]
fn only_what_a_region_needs_is_given() -> Result<(), Error> {
    let spec = Spec {
        width: 64,
        height: 64,
        factors: vec![(1, 1); 3],
        restart_interval: 8,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 7,
    };
    let (bytes, mut decoder) = (spec.write().bytes, Decoder::new());
    let region = Region {
        x: 0,
        y: 30,
        width: 9,
        height: 3,
    };
    let coded = decoder.coded(&bytes, region, Scale::Full)?.expect("one scan");
    let mcus: Vec<_> = coded.segments.iter().map(|s| (s.first_mcu, s.mcus)).collect();
    assert_eq!(mcus, [(24, 8), (32, 2)]);
    assert_eq!(coded.segments[0].begin, 0);
    Ok(())
}
