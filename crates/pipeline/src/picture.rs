//! Pictures for people, as PNGs.

mod plan;

use crate::ImageError;

pub use plan::of_plan;

/// A PNG of pixels (height, width, 3). With `quick` it is compressed less and sooner.
///
/// # Errors
/// The pixels are not as many as the size says.
pub fn rgb(pixels: &[u8], width: u32, height: u32, quick: bool) -> Result<Vec<u8>, ImageError> {
    written(pixels, width, height, |encoder| {
        encoder.set_color(png::ColorType::Rgb);
        if quick {
            encoder.set_compression(png::Compression::Fast);
        }
    })
}

/// A PNG of the classes of pixels (height, width), as indices of a palette with a colour for each class.
///
/// # Errors
/// As [`rgb`].
pub fn classes(classes: &[u8], width: u32, height: u32, palette: &[[u8; 3]]) -> Result<Vec<u8>, ImageError> {
    written(classes, width, height, |encoder| {
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(palette.concat());
    })
}

fn written(
    data: &[u8],
    width: u32,
    height: u32,
    set: impl FnOnce(&mut png::Encoder<'_, &mut Vec<u8>>),
) -> Result<Vec<u8>, ImageError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    set(&mut encoder);
    let whole = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(data)?;
        writer.finish()
    });
    whole.map_err(|error| ImageError::Png(error.to_string()))?;
    Ok(file)
}
