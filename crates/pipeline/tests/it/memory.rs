//! Memory for what a file says next to its pixels.

use std::io::{Read, Write};

use stokehold_pipeline::{DecodeOptions, Mask, MaskTable, decode, probe};

/// Other tests of this binary take memory too, so this one has a process of its own.
#[test]
fn metadata_next_to_the_pixels_takes_no_memory() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::files_that_unpack", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by metadata_next_to_the_pixels_takes_no_memory, alone in a process"]
fn files_that_unpack() {
    let zeros = zeros(64 << 20);
    let kinds: [(&[u8; 4], &[u8]); 3] = [
        (b"iCCP", b"profile\0\0"),
        (b"zTXt", b"text\0\0"),
        (b"iTXt", b"text\0\x01\0\0\0"),
    ];
    for (kind, head) in kinds {
        let file = png_with(kind, &[head, &zeros].concat());
        let grown = growth(|| {
            assert_eq!(probe(&file).unwrap().width, 10);
            assert_eq!(decode(&file[..], &DecodeOptions::default()).unwrap().height, 10);
            Mask::decode(&file, &MaskTable::of_values([(0, 0)])).unwrap();
        });
        assert!(grown < 32 << 20, "{}: {grown} bytes", kind.escape_ascii());
    }
    // Says that its EXIF has 4 GB.
    let mut file = Vec::new();
    let mut encoder = image_webp::WebPEncoder::new(&mut file);
    encoder.set_exif_metadata(vec![0; 8]);
    let written = encoder.encode(&[0; 300], 10, 10, image_webp::ColorType::Rgb8);
    written.unwrap();
    let size = file.windows(4).rposition(|four| four == b"EXIF").unwrap() + 4;
    file[size..size + 4].copy_from_slice(&0xFFFF_FFF0_u32.to_le_bytes());
    let grown = growth(|| {
        assert_eq!(probe(&file).unwrap().orientation, 1);
        decode(&file[..], &DecodeOptions::default()).unwrap();
    });
    assert!(grown < 32 << 20, "WebP: {grown} bytes");
}

/// By how much the most addresses that this process ever had grow.
fn growth(work: impl FnOnce()) -> u64 {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
        let kibibytes = line.trim_matches(|c: char| !c.is_ascii_digit());
        kibibytes.parse::<u64>().unwrap() * 1024
    };
    let before = peak();
    work();
    peak() - before
}

/// So many zeros, compressed.
fn zeros(count: u64) -> Vec<u8> {
    let mut into = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::copy(&mut std::io::repeat(0).take(count), &mut into).unwrap();
    into.flush().unwrap();
    into.finish().unwrap()
}

/// A black picture of 10 x 10 pixels, with a chunk before them.
fn png_with(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 10, 10);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::ChunkType(*kind), data).unwrap();
    writer.write_image_data(&[0; 100]).unwrap();
    drop(writer);
    file
}
