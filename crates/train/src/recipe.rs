//! Recipes: options of a training, as a file of names and values.
//!
//! ```toml
//! differs = "arithmetic is in f32"  # from the original, in words; may be left out
//! [options]
//! lr = 0.5                          # as --lr 0.5
//! nesterov = true                   # as --nesterov
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::Deserialize;
use stokehold_base::shell::quoted;
use toml::{Spanned, Value};

/// The recipes of this crate: names and files.
const KNOWN: &[(&str, &str)] = &[("torchvision", include_str!("../recipes/torchvision.toml"))];

/// Options of a training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Its name, or its file as it was given.
    pub name: String,
    /// The options in the order of the file, without dashes, each with its value in text; a flag has none.
    pub options: Vec<(String, Option<String>)>,
    /// How a training with these options differs from the original, in words.
    pub differs: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    differs: Option<String>,
    options: BTreeMap<Spanned<String>, Spanned<Value>>,
}

impl Recipe {
    /// The recipe of a name, or of a file that ends in `.toml`.
    ///
    /// # Errors
    /// There is no such recipe; the file cannot be read or is no recipe.
    pub fn open(name: &str) -> Result<Self, RecipeError> {
        if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let path = PathBuf::from(name);
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Err(RecipeError::Unknown(name.to_owned()));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| RecipeError::Read { path, error })?;
        Self::parse(name, &text)
    }

    /// Parses the text of a recipe's file.
    ///
    /// # Errors
    /// [`RecipeError::Malformed`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RecipeError> {
        let malformed = |reason: String| RecipeError::Malformed {
            file: name.to_owned(),
            reason,
        };
        let File { differs, options } = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let mut options: Vec<_> = options.into_iter().collect();
        options.sort_by_key(|(option, _)| option.span().start);
        let of = |(option, value): (Spanned<String>, Spanned<Value>)| {
            let (option, span) = (option.into_inner(), value.span());
            let value = match value.into_inner() {
                Value::Boolean(true) => None,
                Value::String(text) => Some(text),
                // As it is written, because 0.00002 reads better than 2e-5; TOML's other digits are no option's.
                Value::Integer(number) if !is_plain(&text[span.clone()]) => Some(number.to_string()),
                Value::Float(number) if !is_plain(&text[span.clone()]) => Some(number.to_string()),
                Value::Integer(_) | Value::Float(_) => Some(text[span].to_owned()),
                _ => {
                    let line = text[..span.start].matches('\n').count() + 1;
                    let what = "must be a text, a number, or true for a flag";
                    return Err(malformed(format!("line {line}, {option}: {what}")));
                }
            };
            Ok((option, value))
        };
        Ok(Self {
            name: name.to_owned(),
            options: options.into_iter().map(of).collect::<Result<_, _>>()?,
            differs,
        })
    }
}

/// Whether a number is written with decimal digits alone.
fn is_plain(number: &str) -> bool {
    number.chars().all(|c| c.is_ascii_digit() || ".eE+-".contains(c))
}

/// The options as the command line has them.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.options.iter().map(|(option, value)| match value {
            Some(value) if value.starts_with('-') => format!("--{option}={}", quoted(value)),
            Some(value) => format!("--{option} {}", quoted(value)),
            None => format!("--{option}"),
        });
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

/// Why there is no recipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// No recipe has this name.
    #[error(
        "no recipe is called '{0}'; there is torchvision, and a recipe of your own is a file that ends in .toml"
    )]
    Unknown(String),
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is no recipe.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_their_order_and_their_digits() {
        let text = "differs = \"a\"\n[options]\nweight-decay = 0.00002\nnesterov = true\nlr = 1e-3\nepochs = 1_000\n\
                    batch-size = 0x40\non-fire = \"mail me\"\nname = \"-x\"\n";
        let recipe = Recipe::parse("own.toml", text).unwrap();
        assert_eq!(
            recipe.to_string(),
            "--weight-decay 0.00002 --nesterov --lr 1e-3 --epochs 1000 --batch-size 64 --on-fire 'mail me' --name=-x"
        );
        assert_eq!(recipe.differs.as_deref(), Some("a"));
        for (known, _) in KNOWN {
            assert!(Recipe::open(known).unwrap().options.len() > 10);
        }
    }

    #[test]
    fn rejects_files_that_are_not_recipes_and_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.toml");
        for (text, reason) in [
            (
                "[options]\nlr = 1\nfoo = [1]\n",
                "line 3, foo: must be a text, a number, or true for a flag",
            ),
            ("[options]\nnesterov = false\n", "line 2, nesterov: must be"),
            ("lr = 1\n", "unknown field `lr`"),
            ("differs = \"a\"\n", "missing field `options`"),
            ("[options]\nlr = \n", "line 2"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Recipe::open(file.to_str().unwrap()).unwrap_err().to_string();
            assert!(
                error.starts_with(file.to_str().unwrap()) && error.contains(reason),
                "{error}"
            );
        }
        let error = Recipe::open("a3").unwrap_err().to_string();
        assert!(error.contains("there is torchvision"), "{error}");
        assert!(
            Recipe::open("gone.toml")
                .unwrap_err()
                .to_string()
                .starts_with("gone.toml: ")
        );
    }
}
