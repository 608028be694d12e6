//! The classes of pixels: names, colours, and how a mask's file says them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::class_table::{self, ClassesText};

/// The number of a pixel without a class. Every mask in memory has it there, whatever its file has.
pub const IGNORE: u8 = 255;

/// What the classes of a data set's pixels are. A class's number is its position, `0..names.len()`; there are at most 255.
///
/// Serialised it is what a class table (`classes.toml`) says of classes: `ignore` and `class`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "ClassesText", try_from = "ClassesText")]
pub struct PixelClasses {
    /// The names of the classes.
    pub names: Vec<String>,
    /// A colour for each class (red, green, blue), to show masks with; none if the data set has no colours.
    pub colors: Option<Vec<[u8; 3]>>,
    /// How files of masks say the classes.
    pub coding: Coding,
}

/// How files of masks say the classes of pixels. Numbers of classes are below the number of names, or [`IGNORE`]; a value or
/// colour that is not there makes a mask a bad one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coding {
    /// By grey levels as they are stored, or by indices of a palette.
    Values(BTreeMap<u16, u8>),
    /// By colours: red, green, blue.
    Colors(BTreeMap<[u8; 3], u8>),
}

impl PixelClasses {
    /// The name of the file in a data set's folder that has its classes: a class table.
    pub const FILE: &'static str = "classes.toml";

    /// The text of a class table with these classes, for a data set whose part `x` has its images in `x/` and its masks in
    /// `x-masks/`.
    pub fn table<'a>(&self, parts: impl Iterator<Item = &'a str>) -> String {
        let classes = ClassesText::from(self.clone());
        // The classes are values that TOML has.
        let mut text = toml::to_string(&classes).unwrap_or_default();
        for part in parts {
            text += &format!("\n[{part}]\nimages = \"{part}\"\nmasks = \"{part}-masks\"\n");
        }
        text
    }

    /// The classes of a class table's text (`classes.toml`).
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Result<PixelClasses, String> {
        let parsed = class_table::parse(text, Path::new(""));
        parsed.map(|table| table.classes).map_err(|(span, reason)| {
            let line = class_table::line_of(text.as_bytes(), span.start);
            format!("line {line}: {reason}")
        })
    }

    /// Classes and colours from a constant, with the classes of values.
    fn known(classes: &[(&str, [u8; 3])], values: impl IntoIterator<Item = (u16, u8)>) -> PixelClasses {
        PixelClasses {
            names: classes.iter().map(|(name, _)| (*name).to_owned()).collect(),
            colors: Some(classes.iter().map(|(_, color)| *color).collect()),
            coding: Coding::Values(values.into_iter().collect()),
        }
    }

    /// The 11 classes of CamVid as SegNet (Badrinarayanan et al., 2017) published them, with its numbers; 11 is unlabelled.
    pub(crate) fn camvid() -> PixelClasses {
        const CLASSES: [(&str, [u8; 3]); 11] = [
            ("sky", [128, 128, 128]),
            ("building", [128, 0, 0]),
            ("pole", [192, 192, 128]),
            ("road", [128, 64, 128]),
            ("pavement", [60, 40, 222]),
            ("tree", [128, 128, 0]),
            ("signsymbol", [192, 128, 128]),
            ("fence", [64, 64, 128]),
            ("car", [64, 0, 128]),
            ("pedestrian", [64, 64, 0]),
            ("bicyclist", [0, 128, 192]),
        ];
        let ignored = [(11, IGNORE), (255, IGNORE)];
        Self::known(&CLASSES, (0..11).map(|value| (value, value as u8)).chain(ignored))
    }

    /// The 19 classes that Cityscapes is evaluated by, of masks with its 34 `labelIds`, or with `labelTrainIds`
    /// (`cityscapesscripts/helpers/labels.py`).
    pub(crate) fn cityscapes(train_ids: bool) -> PixelClasses {
        const CLASSES: [(&str, [u8; 3]); 19] = [
            ("road", [128, 64, 128]),
            ("sidewalk", [244, 35, 232]),
            ("building", [70, 70, 70]),
            ("wall", [102, 102, 156]),
            ("fence", [190, 153, 153]),
            ("pole", [153, 153, 153]),
            ("traffic light", [250, 170, 30]),
            ("traffic sign", [220, 220, 0]),
            ("vegetation", [107, 142, 35]),
            ("terrain", [152, 251, 152]),
            ("sky", [70, 130, 180]),
            ("person", [220, 20, 60]),
            ("rider", [255, 0, 0]),
            ("car", [0, 0, 142]),
            ("truck", [0, 0, 70]),
            ("bus", [0, 60, 100]),
            ("train", [0, 80, 100]),
            ("motorcycle", [0, 0, 230]),
            ("bicycle", [119, 11, 32]),
        ];
        const IDS: [u16; 19] = [
            7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33,
        ];
        let classes = 0..CLASSES.len() as u8;
        if train_ids {
            let values = classes.map(|class| (class.into(), class));
            return Self::known(&CLASSES, values.chain([(255, IGNORE)]));
        }
        // The other ids are void, or in no evaluated class. The licence plate has -1, which no grey level is.
        let ignored = (0..34).chain([255]).map(|id| (id, IGNORE));
        Self::known(&CLASSES, ignored.chain(IDS.into_iter().zip(classes)))
    }

    /// The background and the 20 classes of PASCAL VOC, which are indices of a palette; 255 is a border.
    pub(crate) fn voc() -> PixelClasses {
        const NAMES: [&str; 21] = [
            "background",
            "aeroplane",
            "bicycle",
            "bird",
            "boat",
            "bottle",
            "bus",
            "car",
            "cat",
            "chair",
            "cow",
            "diningtable",
            "dog",
            "horse",
            "motorbike",
            "person",
            "pottedplant",
            "sheep",
            "sofa",
            "train",
            "tvmonitor",
        ];
        // The palette of VOC's development kit: the bits of a class, spread over the channels from the highest down.
        let color = |class: usize| {
            std::array::from_fn(|channel| {
                (0..3).fold(0u8, |level, bit| {
                    level | ((class >> (3 * bit + channel) & 1) as u8) << (7 - bit)
                })
            })
        };
        let classes: Vec<(&str, [u8; 3])> = NAMES
            .iter()
            .enumerate()
            .map(|(i, name)| (*name, color(i)))
            .collect();
        Self::known(
            &classes,
            (0..21).map(|value| (value, value as u8)).chain([(255, IGNORE)]),
        )
    }
}
