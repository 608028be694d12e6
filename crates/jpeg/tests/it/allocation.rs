//! A warm decoder allocates nothing.

use crate::oracle;
use crate::writer::Spec;
use std::alloc::{GlobalAlloc, Layout as Size, System};
use std::cell::Cell;
use stokehold_jpeg::{Decoder, Header, Layout, Region, Scale};

/// The system's allocator, which counts the calls of each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, size: Size) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, size: Size) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn decode_all(decoder: &mut Decoder, files: &[(Vec<u8>, Header)]) {
    for (bytes, header) in files {
        let (width, height) = (header.width.div_ceil(2), header.height.div_ceil(2));
        let part = Region {
            x: header.width / 3,
            y: header.height / 3,
            width,
            height,
        };
        decoder
            .decode(bytes, header.full(), Scale::Full, Layout::Rgb)
            .expect("an image");
        decoder
            .decode(bytes, part, Scale::Full, Layout::Rgbx)
            .expect("a region");
        decoder
            .decode_planes(bytes, part, Scale::Half)
            .expect("planes of a region");
    }
}

#[test]
fn a_warm_decoder_allocates_nothing() {
    let mut spec = Spec {
        width: 90,
        height: 70,
        factors: vec![(2, 2), (1, 1), (1, 1)],
        restart_interval: 3,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 1,
    };
    let mut files = vec![spec.write().bytes];
    (spec.interleaved, spec.factors) = (false, vec![(1, 1); 4]);
    files.push(spec.write().bytes);
    let photos = oracle::data("photos").unwrap_or_default();
    files.extend(
        photos
            .iter()
            .take(20)
            .map(|path| std::fs::read(path).expect("a file")),
    );
    let files: Vec<_> = files
        .into_iter()
        .map(|b| (Header::parse(&b).expect("a header"), b))
        .map(|(h, b)| (b, h))
        .collect();
    let mut decoder = Decoder::new();
    decode_all(&mut decoder, &files);
    let before = CALLS.with(Cell::get);
    decode_all(&mut decoder, &files);
    assert_eq!(CALLS.with(Cell::get) - before, 0, "allocations of a warm decoder");
    assert!(before > 0, "allocations are not counted");
}
