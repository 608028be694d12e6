//! Colours of the classes of pixels.

use crate::PixelClasses;

/// A colour for each class of a model: that of the data, or else that of PASCAL VOC's palette.
pub fn of(names: &[String], data: Option<&PixelClasses>) -> Vec<[u8; 3]> {
    let known = |name: &String| {
        let data = data?;
        let at = data.names.iter().position(|other| other == name)?;
        data.colors.as_ref()?.get(at).copied()
    };
    let numbered = names.iter().enumerate();
    let color = |(class, name)| known(name).unwrap_or_else(|| voc(class));
    numbered.map(color).collect()
}

/// The palette of VOC's development kit: the bits of a number, spread over the channels from the highest down. The first
/// colour is that of the number 1, because 0 is black.
fn voc(class: usize) -> [u8; 3] {
    let number = class + 1;
    std::array::from_fn(|channel| {
        (0..3).fold(0u8, |level, bit| {
            level | ((number >> (3 * bit + channel) & 1) as u8) << (7 - bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_colors_of_their_own() {
        let names: Vec<String> = (0..254).map(|class| class.to_string()).collect();
        let mut colors = of(&names, None);
        assert_eq!(colors[0], [128, 0, 0]);
        colors.sort_unstable();
        colors.dedup();
        assert_eq!((colors.len(), colors[0] == [0; 3]), (254, false));
    }
}
