//! Any bytes as a JPEG that is opened with a shortened header, cropped, resized, reduced, turned and made grey.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::{Header, Layout, Region, Scale};
use stokehold_pipeline::op::Filter;
use stokehold_pipeline::recorded::{Op, PassOrder, Performer, Recorded, Source};

fuzz_target!(|input: (&[u8], Vec<(u8, i16, i16, u8, u8)>)| {
    let (bytes, asked) = input;
    if let Some((short, tables)) = Header::shortened(bytes) {
        assert!(short.len() + tables.len() <= bytes.len());
    }
    let Ok(source) = Source::new(bytes) else {
        return;
    };
    let (scale, grey) = (1 << (bytes.len() % 4), bytes.len() / 4 % 2 == 1);
    let source = source.drafted(Scale::by(scale).expect("a power of two"), grey);
    let (mut width, mut height) = source.size(&[]);
    if u64::from(width) * u64::from(height) > 1 << 22 {
        return;
    }
    let mut ops = Vec::new();
    for (kind, x, y, w, h) in asked.into_iter().take(6) {
        let op = match kind % 6 {
            0 => {
                (width, height) = (u32::from(w) + 1, u32::from(h) + 1);
                Op::Crop { x: x.into(), y: y.into(), fill: [kind, w, h] }
            }
            1 => {
                let area = [0.0, 0.0, width as f32, height as f32];
                (width, height) = (u32::from(w) + 1, u32::from(h) + 1);
                Op::Resize { filter: Filter::try_from(kind / 6 % 6).expect("there are six"), area }
            }
            2 => Op::ToGrey,
            3 => Op::ToRgb,
            4 => {
                let area = Region { x: width / 3, y: 0, width: width - width / 3, height };
                let factor = [u32::from(w), u32::from(h)].map(|factor| factor.max(1));
                (width, height) = (area.width.div_ceil(factor[0]), area.height.div_ceil(factor[1]));
                Op::Reduce { factor, area }
            }
            _ => {
                let method = kind / 6 % 7;
                if ![0, 1, 3].contains(&method) {
                    (width, height) = (height, width);
                }
                Op::Transpose(method)
            }
        };
        ops.push(Recorded { op, width, height });
    }
    let layout = if source.is_grey(&ops) == Some(true) { Layout::Grey } else { Layout::Rgb };
    let mut out = vec![0; layout.bytes() * width as usize * height as usize];
    let _ = source.perform(bytes, &ops, PassOrder::LargerFirst, layout, &mut Performer::default(), &mut out);
});
