//! Both must give the same before it is worth asking who is faster.

use crate::Image;
use stokehold_bench_jpeg::Turbo;
use stokehold_jpeg::{Decoder, Layout, Scale};

/// Compares everything that is timed.
pub fn image(image: &Image) -> Result<(), String> {
    let fail = |what: &str| format!("{}: {what}", image.path.display());
    let (mut decoder, mut turbo) = (Decoder::new(), Turbo::new());
    let mut out = vec![0; 3 * image.header.width as usize * image.header.height as usize];

    let ours = decoder
        .coefficients(&image.bytes)
        .map_err(|error| fail(&error.to_string()))?;
    let mut same = true;
    let mut take =
        |c: usize, row: usize, blocks: &[[i16; 64]]| same &= ours.components()[c].row(row) == blocks;
    turbo
        .coefficients(&image.bytes, Some(&mut take))
        .map_err(|error| fail(&error))?;
    if !same {
        return Err(fail("other coefficients than libjpeg-turbo's"));
    }

    for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
        let ours = decoder
            .decode(&image.bytes, image.header.full(), scale, Layout::Rgb)
            .map_err(|error| fail(&error.to_string()))?;
        let said = turbo
            .decode(&image.bytes, None, scale, &mut out)
            .map_err(|error| fail(&error))?;
        let row = 3 * ours.width as usize;
        let same = (ours.width, ours.height) == (said.width, said.height)
            && (0..ours.height).all(|y| ours.row(y) == &out[y as usize * row..][..row]);
        if !same {
            return Err(fail(&format!("other pixels than libjpeg-turbo's ({scale:?})")));
        }
    }

    // libjpeg-turbo's own crops differ from its whole at their edges, so ours are held against its whole.
    turbo
        .decode(&image.bytes, None, Scale::Full, &mut out)
        .map_err(|error| fail(&error))?;
    let crop = image.crop;
    let ours = decoder
        .decode(&image.bytes, crop, Scale::Full, Layout::Rgb)
        .map_err(|error| fail(&error.to_string()))?;
    let pixel = |x: u32, y: u32| 3 * (y as usize * image.header.width as usize + x as usize);
    let same = (0..crop.height).all(|y| {
        let from = pixel(crop.x, crop.y + y);
        ours.row(y) == &out[from..from + 3 * crop.width as usize]
    });
    match same {
        true => Ok(()),
        false => Err(fail(&format!(
            "another region than the crop of libjpeg-turbo's whole: {crop:?}"
        ))),
    }
}
