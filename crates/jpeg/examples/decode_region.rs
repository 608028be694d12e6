//! Decodes the middle of a JPEG at every scale:
//! `cargo run --release -p stokehold-jpeg --example decode_region [FILE]`.
//!
//! Without FILE it makes a picture.

use std::error::Error;

use jpeg_encoder::{ColorType, Encoder, EncodingError};
use stokehold_jpeg::{Decoder, Header, Layout, Pixels, Region, Scale};

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => picture(1000, 750)?,
    };
    // The header costs microseconds. It says what there is to decode.
    let header = Header::parse(&bytes)?;
    println!(
        "{} x {} pixels, {:?}, {:?}",
        header.width, header.height, header.coding, header.color
    );
    let region = Region {
        x: header.width / 4,
        y: header.height / 4,
        width: (header.width / 2).max(1),
        height: (header.height / 2).max(1),
    };
    // One decoder per thread: it keeps its buffers for the next file.
    let mut decoder = Decoder::new();
    for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
        let pixels = decoder.decode(&bytes, region, scale, Layout::Rgb)?;
        let [red, green, blue] = mean(&pixels);
        println!(
            "{scale:?}: {} x {} pixels, on average ({red}, {green}, {blue})",
            pixels.width, pixels.height
        );
    }
    Ok(())
}

/// The mean colour. Rows are borrowed from the decoder; a stride lies between them.
fn mean(pixels: &Pixels<'_>) -> [u64; 3] {
    let mut sums = [0; 3];
    for y in 0..pixels.height {
        let (row, _) = pixels.row(y).as_chunks::<3>();
        for pixel in row {
            for (sum, &level) in sums.iter_mut().zip(pixel) {
                *sum += u64::from(level);
            }
        }
    }
    sums.map(|sum| sum / (u64::from(pixels.width) * u64::from(pixels.height)))
}

/// A JPEG of red that grows to the right and green that grows downwards.
fn picture(width: u16, height: u16) -> Result<Vec<u8>, EncodingError> {
    let level = |at: u16, of: u16| (255 * u32::from(at) / u32::from(of)) as u8;
    let pixels: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [level(x, width), level(y, height), 128]))
        .collect();
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 90).encode(&pixels, width, height, ColorType::Rgb)?;
    Ok(bytes)
}
