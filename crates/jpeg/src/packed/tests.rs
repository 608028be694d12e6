//! All forms of reading give the same, of whole images and of damaged ones.

use super::write::tests::{DROP, file, fill};
use super::{PackSample, PackTables, Packer};
use crate::header::Head;
use crate::kernels::Isa;
use crate::kernels::tests::{all, numbers};
use crate::planes::CoefficientPlanes;
use crate::{Decoder, Error, Header, Input, Region, Scale};
use jpeg_encoder::{ColorType, SamplingFactor};

/// The coefficients, and planes of regions at all scales; or the error of those that have one.
fn read(isa: Isa, input: Input<'_>, regions: &[Region]) -> Vec<Result<Vec<u8>, Error>> {
    let mut decoder = Decoder::with(isa);
    let coefficients = decoder.coefficients(input).map(|coefficients| {
        let components = coefficients.components().iter();
        let rows = components.flat_map(|c| (0..c.blocks_high).flat_map(|y| c.row(y)));
        rows.flatten().flat_map(|value| value.to_le_bytes()).collect()
    });
    let mut all = vec![coefficients];
    for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
        for &region in regions {
            all.push(decoder.decode_planes(input, region, scale).map(|planes| {
                let rows = planes.planes().iter().flat_map(|plane| {
                    let rows = plane.data.chunks(plane.stride).take(plane.height as usize);
                    rows.flat_map(|row| &row[..plane.width as usize])
                });
                rows.copied().collect()
            }));
        }
    }
    all
}

fn regions(header: &Header, number: &mut impl FnMut() -> u64) -> [Region; 3] {
    let mut part = |whole: u32| {
        let size = number() as u32 % whole + 1;
        (number() as u32 % (whole - size + 1), size)
    };
    let mut region = || {
        let ((x, width), (y, height)) = (part(header.width), part(header.height));
        Region { x, y, width, height }
    };
    [header.full(), region(), region()]
}

/// Compares all forms; says how many readings were errors.
fn compare(input: Input<'_>, number: &mut impl FnMut() -> u64) -> usize {
    let Ok(header) = Header::parse(input.bytes) else {
        return 0;
    };
    let regions = regions(&header, number);
    let expected = read(Isa::Portable, input, &regions);
    for isa in all() {
        assert!(read(isa, input, &regions) == expected, "{isa:?}");
    }
    expected.iter().filter(|read| read.is_err()).count()
}

#[test]
fn all_forms_read_the_same_of_random_coefficients_and_of_damaged_images() {
    let mut number = numbers(5);
    let mut planes = CoefficientPlanes::new(Isa::Portable);
    let mut tables = PackTables::built_in().clone();
    let (mut whole, mut refused) = (0, 0);
    for round in 0..90 {
        let color = [ColorType::Luma, ColorType::Rgb, ColorType::Cmyk][round % 3];
        let sampling = [
            SamplingFactor::F_1_1,
            SamplingFactor::F_2_2,
            SamplingFactor::F_2_1,
        ][round / 3 % 3];
        let (width, height) = (number() % 700 + 1, number() % 150 + 1);
        let file = file(width as usize, height as usize, color, sampling);
        let head = Head::parse(&file, |_| Ok(())).expect("a JPEG");
        fill(&mut planes, &head, false, &mut number);
        if round % 10 == 9 {
            let mut sample = PackSample::new();
            sample.add(&planes.coefficients(&head));
            tables = sample.train();
        }
        // Of few and of many vectors of states and rows.
        let coded = ((number() % 200_000) >> (number() % 16)) as usize;
        let mut packer = Packer::new(&tables);
        let mut packed = packer
            .write(Isa::Portable, &file, coded, &head, &mut planes, &DROP)
            .expect("a packed image");
        let stored = tables.bytes();
        for damaged in 0..4 {
            let input = Input {
                tables: Some(&stored),
                ..Input::from(&packed)
            };
            let errors = compare(input, &mut number);
            match damaged {
                0 => whole += usize::from(errors == 0),
                _ => refused += usize::from(errors > 0),
            }
            let at = number() as usize % packed.len();
            packed[at] = number() as u8;
        }
    }
    println!("{whole} whole, {refused} damaged ones refused");
    assert!(whole == 90 && refused > 100, "{whole} {refused}");
}

#[test]
fn all_forms_read_the_same_of_photos() {
    let mut number = numbers(6);
    let mut packer = Packer::new(PackTables::built_in());
    for folder in ["photos", "clothing/val/shoes"] {
        let paths = stokehold_untested::needs::data(folder).unwrap_or_default();
        for path in paths.iter().step_by(20) {
            let file = std::fs::read(path).expect("a file");
            let mut decoder = Decoder::new();
            let packed = decoder.pack(&file, &mut packer, &DROP).expect("a packed image");
            assert_eq!(
                compare(Input::from(&packed), &mut number),
                0,
                "{}",
                path.display()
            );
        }
    }
}
