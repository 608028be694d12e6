//! Any bytes as a JPEG that is opened with a shortened header, cropped, resized and turned.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_jpeg::Layout;
use stokehold_pipeline::recorded::{Filter, Op, PassOrder, Performer, Recorded, Source, shortened};

fuzz_target!(|input: (&[u8], Vec<(u8, i16, i16, u8, u8)>)| {
    let (bytes, asked) = input;
    if let Some((short, tables)) = shortened(bytes) {
        assert!(short.len() + tables.len() <= bytes.len());
    }
    let Ok(source) = Source::new(bytes) else {
        return;
    };
    let (mut width, mut height) = source.size(&[]);
    if u64::from(width) * u64::from(height) > 1 << 22 {
        return;
    }
    let mut ops = Vec::new();
    for (kind, x, y, w, h) in asked.into_iter().take(6) {
        let op = match kind % 3 {
            0 => {
                (width, height) = (u32::from(w) + 1, u32::from(h) + 1);
                Op::Crop { x: x.into(), y: y.into(), fill: [kind, w, h] }
            }
            1 => {
                let area = [0.0, 0.0, width as f32, height as f32];
                (width, height) = (u32::from(w) + 1, u32::from(h) + 1);
                Op::Resize { filter: Filter::try_from(kind / 3 % 6).expect("there are six"), area }
            }
            _ => {
                let method = kind / 3 % 7;
                if ![0, 1, 3].contains(&method) {
                    (width, height) = (height, width);
                }
                Op::Transpose(method)
            }
        };
        ops.push(Recorded { op, width, height });
    }
    let mut out = vec![0; 3 * width as usize * height as usize];
    let _ = source.perform(bytes, &ops, PassOrder::LargerFirst, Layout::Rgb, &mut Performer::default(), &mut out);
});
