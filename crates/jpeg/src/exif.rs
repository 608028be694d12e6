//! The orientation in an EXIF block.

/// The orientation (tag 0x0112, 1..=8) in the first image directory of an EXIF block, which begins with its TIFF
/// header; none where it says nothing legal.
pub fn exif_orientation(tiff: &[u8]) -> Option<u8> {
    let little = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let pair: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little {
            u16::from_le_bytes(pair)
        } else {
            u16::from_be_bytes(pair)
        })
    };
    let quad: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = if little {
        u32::from_le_bytes(quad)
    } else {
        u32::from_be_bytes(quad)
    } as usize;
    for entry in 0..usize::from(u16_at(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        if u16_at(at)? == 0x0112 {
            return u8::try_from(u16_at(at.checked_add(8)?)?)
                .ok()
                .filter(|o| (1..=8).contains(o));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_read_in_both_byte_orders_and_ignored_out_of_range() {
        let big = |value: u8| {
            [
                b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(),
                &[value, 0, 0],
            ]
            .concat()
        };
        let little = b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0".as_slice();
        assert_eq!(exif_orientation(&big(8)), Some(8));
        assert_eq!(exif_orientation(little), Some(6));
        assert_eq!(exif_orientation(&big(9)), None);
        assert_eq!(exif_orientation(&little[..19]), None);
    }
}
