//! `classes.toml`: what the classes of a data set's pixels are, and where its images and masks lie.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::StorageError;
use crate::folder::read_file;
use crate::pairs::SplitFolders;
use crate::pixel_classes::{Coding, IGNORE, PixelClasses};

/// A class table's file, read.
#[derive(Debug)]
pub(crate) struct ClassTable {
    pub classes: PixelClasses,
    /// The training images and masks, if the file says where they are.
    pub train: Option<SplitFolders>,
    pub val: Option<SplitFolders>,
    /// What follows the stem in an image's and in a mask's name, where the file says so.
    pub image_suffix: Option<String>,
    pub mask_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    class: Vec<Spanned<ClassText>>,
    #[serde(default)]
    ignore: Vec<Spanned<Code>>,
    image_suffix: Option<Spanned<String>>,
    mask_suffix: Option<Spanned<String>>,
    train: Option<PlaceText>,
    val: Option<Spanned<PlaceText>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Values>,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<[u8; 3]>,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "a value, 0 to 65535, or a list of such values")]
enum Values {
    One(u16),
    Several(Vec<u16>),
}

#[derive(Deserialize, Serialize, Clone, Copy)]
#[serde(untagged, expecting = "a value, 0 to 65535, or a colour, [red, green, blue]")]
enum Code {
    Value(u16),
    Color([u8; 3]),
}

/// The part of the file that says what the classes are. Manifests of shards have it, too.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassesText {
    #[serde(default)]
    ignore: Vec<Code>,
    class: Vec<ClassText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceText {
    images: PathBuf,
    masks: PathBuf,
    list: Option<PathBuf>,
}

/// What is wrong, and where.
type Problem = (Range<usize>, String);

impl ClassTable {
    /// Reads the file of a data set's folder, if there is one.
    pub fn of(dir: &Path) -> Result<Option<ClassTable>, StorageError> {
        let path = dir.join(PixelClasses::FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        read_file(&path, &mut bytes)?;
        let wrong = |line, reason| StorageError::ClassTable {
            path: path.clone(),
            line,
            reason,
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = line_of(&bytes, error.valid_up_to());
            wrong(line, "not UTF-8 text".to_owned())
        })?;
        parse(text, dir)
            .map(Some)
            .map_err(|(span, reason)| wrong(line_of(&bytes, span.start), reason))
    }
}

pub(crate) fn line_of(bytes: &[u8], at: usize) -> usize {
    let before = &bytes[..at.min(bytes.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Reads the text of a class table whose folders lie below `dir`.
pub(crate) fn parse(text: &str, dir: &Path) -> Result<ClassTable, Problem> {
    let file: FileText = toml::from_str(text)
        .map_err(|error| (error.span().unwrap_or(0..0), error.message().replace('\n', ", ")))?;
    let classes = classes_of(&file.class, &file.ignore)?;
    let suffix = |suffix: Option<Spanned<String>>, has: fn(&str) -> bool, must: &str| {
        let Some(suffix) = suffix else { return Ok(None) };
        match has(suffix.get_ref()) {
            true => Ok(Some(suffix.into_inner())),
            false => Err((suffix.span(), format!("'{}' {must}", suffix.get_ref()))),
        }
    };
    let image_suffix = suffix(
        file.image_suffix,
        |suffix| crate::is_image_name(suffix.as_ref()),
        "must end as an image's name does, e.g. '_rgb.jpg'",
    )?;
    let mask_suffix = suffix(
        file.mask_suffix,
        |suffix| suffix.ends_with(".png"),
        "must end with .png, e.g. '_mask.png'",
    )?;
    if let (Some(val), None) = (&file.val, &file.train) {
        return Err((
            val.span(),
            "there is [val] and no [train]; say where the training images are, too".into(),
        ));
    }
    let place = |place: PlaceText| SplitFolders {
        images: dir.join(place.images),
        masks: dir.join(place.masks),
        list: place.list.map(|list| dir.join(list)),
    };
    Ok(ClassTable {
        classes,
        train: file.train.map(place),
        val: file.val.map(|val| place(val.into_inner())),
        image_suffix,
        mask_suffix,
    })
}

impl From<PixelClasses> for ClassesText {
    fn from(classes: PixelClasses) -> Self {
        let PixelClasses {
            names,
            colors,
            coding,
        } = classes;
        let ignored = |class: u8| class == IGNORE;
        let ignore = match &coding {
            Coding::Values(codes) => codes
                .iter()
                .filter(|(_, class)| ignored(**class))
                .map(|(value, _)| Code::Value(*value))
                .collect(),
            Coding::Colors(codes) => codes
                .iter()
                .filter(|(_, class)| ignored(**class))
                .map(|(color, _)| Code::Color(*color))
                .collect(),
        };
        let values = |number: u8| match &coding {
            Coding::Values(codes) => Some(Values::Several(
                codes
                    .iter()
                    .filter(|(_, class)| **class == number)
                    .map(|(value, _)| *value)
                    .collect(),
            )),
            Coding::Colors(_) => None,
        };
        let class = (0..).zip(names).map(|(number, name)| ClassText {
            name,
            value: values(number),
            color: colors.as_ref().map(|colors| colors[usize::from(number)]),
        });
        Self {
            ignore,
            class: class.collect(),
        }
    }
}

impl TryFrom<ClassesText> for PixelClasses {
    type Error = String;

    /// Checks all that a file is checked for.
    fn try_from(text: ClassesText) -> Result<Self, String> {
        let text = toml::to_string(&text).map_err(|error| error.to_string())?;
        parse(&text, Path::new(""))
            .map(|table| table.classes)
            .map_err(|(_, reason)| format!("the classes of pixels: {reason}"))
    }
}

fn classes_of(classes: &[Spanned<ClassText>], ignore: &[Spanned<Code>]) -> Result<PixelClasses, Problem> {
    let Some(first) = classes.first() else {
        let example = "[[class]] with name = \"road\"";
        return Err((
            0..0,
            format!("there are no classes; add one after the other: {example}"),
        ));
    };
    if let Some(more) = classes.get(usize::from(IGNORE)) {
        return Err((
            more.span(),
            format!("there are {} classes, and at most 255 fit a mask", classes.len()),
        ));
    }
    let mut names = BTreeSet::new();
    let of_first = first.get_ref();
    for class in classes {
        let of_class = class.get_ref();
        if !names.insert(&of_class.name) {
            return Err((
                class.span(),
                format!("there is a class '{}' already", of_class.name),
            ));
        }
        for (key, here, there) in [
            ("value", of_class.value.is_some(), of_first.value.is_some()),
            ("color", of_class.color.is_some(), of_first.color.is_some()),
        ] {
            if here != there {
                let (with, without) = if here {
                    (of_class, of_first)
                } else {
                    (of_first, of_class)
                };
                let reason = format!(
                    "class '{}' has a {key} and '{}' has none; give it to all classes or to none",
                    with.name, without.name
                );
                return Err((class.span(), reason));
            }
        }
    }
    let colors: Option<Vec<[u8; 3]>> = classes.iter().map(|class| class.get_ref().color).collect();
    // Classes with colours and without values are told apart by colour.
    let coding = match &colors {
        Some(colors) if of_first.value.is_none() => Coding::Colors(by_color(classes, colors, ignore)?),
        _ => Coding::Values(by_value(classes, ignore)?),
    };
    Ok(PixelClasses {
        names: classes.iter().map(|class| class.get_ref().name.clone()).collect(),
        colors,
        coding,
    })
}

/// Adds a value or colour, once.
fn add<K: Ord + Copy>(
    codes: &mut BTreeMap<K, u8>,
    code: K,
    class: u8,
    span: Range<usize>,
    text: impl Fn(K) -> String,
) -> Result<(), Problem> {
    match codes.insert(code, class) {
        None => Ok(()),
        Some(_) => Err((span, format!("{} is there twice", text(code)))),
    }
}

fn by_value(classes: &[Spanned<ClassText>], ignore: &[Spanned<Code>]) -> Result<BTreeMap<u16, u8>, Problem> {
    let mut codes = BTreeMap::new();
    let text = |value: u16| format!("the value {value}");
    for (number, class) in (0..).zip(classes) {
        let values = match &class.get_ref().value {
            None => &[u16::from(number)][..],
            Some(Values::One(value)) => &[*value],
            Some(Values::Several(values)) => values,
        };
        for &value in values {
            add(&mut codes, value, number, class.span(), text)?;
        }
    }
    for code in ignore {
        let Code::Value(value) = *code.get_ref() else {
            let reason = "a colour is ignored, and the classes have values; ignore a value";
            return Err((code.span(), reason.into()));
        };
        add(&mut codes, value, IGNORE, code.span(), text)?;
    }
    codes.entry(IGNORE.into()).or_insert(IGNORE);
    Ok(codes)
}

fn by_color(
    classes: &[Spanned<ClassText>],
    colors: &[[u8; 3]],
    ignore: &[Spanned<Code>],
) -> Result<BTreeMap<[u8; 3], u8>, Problem> {
    let mut codes = BTreeMap::new();
    let text = |color: [u8; 3]| format!("the colour {color:?}");
    for ((number, class), &color) in (0..).zip(classes).zip(colors) {
        add(&mut codes, color, number, class.span(), text)?;
    }
    for code in ignore {
        let Code::Color(color) = *code.get_ref() else {
            let reason =
                "a value is ignored, and the classes have colours; ignore a colour, such as [0, 0, 0]";
            return Err((code.span(), reason.into()));
        };
        add(&mut codes, color, IGNORE, code.span(), text)?;
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> ClassTable {
        parse(text, Path::new("DATA")).unwrap()
    }

    /// The line and the reason.
    fn problem(text: &str) -> (usize, String) {
        let (span, reason) = parse(text, Path::new("DATA")).unwrap_err();
        (line_of(text.as_bytes(), span.start), reason)
    }

    #[test]
    fn without_values_a_class_has_its_position() {
        let classes = table("[[class]]\nname = 'a'\n[[class]]\nname = 'b'\n").classes;
        assert_eq!(classes.names, ["a", "b"]);
        assert_eq!(
            classes.coding,
            Coding::Values([(0, 0), (1, 1), (255, IGNORE)].into())
        );
        assert_eq!(classes.colors, None);
    }

    #[test]
    fn a_class_may_have_several_values_and_take_255() {
        let text =
            "ignore = [7]\n[[class]]\nname = 'a'\nvalue = [1, 300]\n[[class]]\nname = 'b'\nvalue = 255\n";
        let expected = [(1, 0), (300, 0), (7, IGNORE), (255, 1)].into();
        assert_eq!(table(text).classes.coding, Coding::Values(expected));
    }

    #[test]
    fn colours_tell_classes_apart_unless_there_are_values() {
        let text = "ignore = [[0, 0, 0]]\n[[class]]\nname = 'a'\ncolor = [1, 2, 3]\n";
        let classes = table(text).classes;
        assert_eq!(
            classes.coding,
            Coding::Colors([([1, 2, 3], 0), ([0; 3], IGNORE)].into())
        );
        assert_eq!(classes.colors, Some(vec![[1, 2, 3]]));
        let classes = table("[[class]]\nname = 'a'\ncolor = [1, 2, 3]\nvalue = 4\n").classes;
        assert_eq!(classes.coding, Coding::Values([(4, 0), (255, IGNORE)].into()));
        assert_eq!(classes.colors, Some(vec![[1, 2, 3]]));
    }

    #[test]
    fn a_problem_has_its_line() {
        for (text, line, part) in [
            ("", 1, "there are no classes"),
            ("[[class]]\nname = 'a'\n\n[[clas]]\nname = 'b'\n", 4, "clas"),
            ("[[class]]\nname = 'a'\ncolour = [1, 2, 3]\n", 3, "colour"),
            (
                "[[class]]\nname = 'a'\n[[class]]\nname = 'a'\n",
                3,
                "a class 'a' already",
            ),
            (
                "[[class]]\nname = 'a'\nvalue = 1\n[[class]]\nname = 'b'\nvalue = 1\n",
                4,
                "the value 1 is there twice",
            ),
            (
                "[[class]]\nname = 'a'\nvalue = 1\n[[class]]\nname = 'b'\n",
                4,
                "'a' has a value and 'b' has none",
            ),
            (
                "ignore = [0]\n[[class]]\nname = 'a'\n",
                1,
                "the value 0 is there twice",
            ),
            (
                "ignore = [1,\n [0, 0, 0]]\n[[class]]\nname = 'a'\n",
                2,
                "a colour is ignored",
            ),
            ("[[class]]\nname = 'a'\nvalue = -1\n", 3, "0 to 65535"),
            (
                "mask_suffix = '.jpg'\n[[class]]\nname = 'a'\n",
                1,
                "must end with .png",
            ),
            (
                "[[class]]\nname = 'a'\n[val]\nimages = 'i'\nmasks = 'm'\n",
                3,
                "no [train]",
            ),
            ("[[class]]\nname = 'a'\n[train]\nimages = 'i'\n", 3, "masks"),
            ("[[class]\n", 1, ""),
        ] {
            let (at, reason) = problem(text);
            assert!(
                reason.contains(part) && !reason.contains('\n'),
                "{text}: {reason}"
            );
            assert_eq!(at, line, "{text}: {reason}");
        }
        let many = (0..256)
            .map(|i| format!("[[class]]\nname = '{i}'\n"))
            .collect::<String>();
        assert!(problem(&many).1.contains("256 classes"));
    }
}
