//! Published recipes: options that `stokehold train --recipe NAME` sets and the command line overrides.
//!
//! A recipe is a list of options as somebody would write them. Those that the command line has, or has a rival of, are
//! left out; the rest stands before the command line's own words, and all of it is parsed again.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};

use crate::terminal::note;
use crate::{Cli, Command};

use super::Args;

/// A recipe that this trainer can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// torchvision's for `ResNet50_Weights.IMAGENET1K_V2`: `references/classification`, "How to train state-of-the-art
    /// models using torchvision's latest primitives" (2021).
    Torchvision,
    /// A3 of "ResNet strikes back: an improved training procedure in timm" (Wightman, Touvron and Jégou, 2021).
    A3,
}

/// An option of a recipe: its long name, its value, and the options that replace it besides itself.
type Setting = (&'static str, &'static str, &'static [&'static str]);

const TORCHVISION: &[Setting] = &[
    ("model", "resnet50", &[]),
    ("pipeline", "trivial-augment", &["load"]),
    ("image-size", "176", &[]),
    ("eval-size", "224", &["eval-pipeline"]),
    ("eval-resize", "232", &["eval-pipeline"]),
    (
        "aug-repeats",
        "4",
        &["class-balanced", "sample-weights", "subset"],
    ),
    ("epochs", "600", &[]),
    ("batch-size", "1024", &[]),
    ("optimizer", "sgd", &[]),
    ("lr", "0.5", &[]),
    ("weight-decay", "0.00002", &[]),
    ("no-decay-on", "norm", &[]),
    ("schedule", "cosine", &[]),
    ("warmup-epochs", "5", &[]),
    ("loss", "cross-entropy", &[]),
    ("mixup-alpha", "0.2", &[]),
    ("cutmix-alpha", "1", &[]),
    ("label-smoothing", "0.1", &[]),
    ("ema-decay", "0.99998", &[]),
    ("ema-steps", "32", &[]),
];

const A3: &[Setting] = &[
    ("model", "resnet50", &[]),
    ("pipeline", "rand-augment", &["load"]),
    ("image-size", "160", &[]),
    ("eval-size", "224", &["eval-pipeline"]),
    // 224 of it are 95 %.
    ("eval-resize", "235", &["eval-pipeline"]),
    ("epochs", "100", &[]),
    ("batch-size", "2048", &[]),
    ("optimizer", "lamb", &[]),
    ("lr", "0.008", &[]),
    ("weight-decay", "0.02", &[]),
    ("no-decay-on", "norm-and-bias", &[]),
    // timm's Lamb clips by itself.
    ("clip-norm", "1", &[]),
    ("schedule", "cosine", &[]),
    ("warmup-epochs", "5", &[]),
    ("loss", "bce", &[]),
    ("bce-threshold", "0.2", &["loss"]),
    ("mixup-alpha", "0.1", &[]),
    ("cutmix-alpha", "1", &[]),
];

/// Recipes that this trainer cannot follow, and why.
const LACKING: [(&str, &str); 3] = [
    ("a1", "stochastic depth; a3 does without it"),
    ("a2", "stochastic depth; a3 does without it"),
    ("deit", "a vision transformer and stochastic depth"),
];

impl Recipe {
    const ALL: [Self; 2] = [Self::Torchvision, Self::A3];

    fn name(self) -> &'static str {
        match self {
            Self::Torchvision => "torchvision",
            Self::A3 => "a3",
        }
    }

    fn settings(self) -> &'static [Setting] {
        match self {
            Self::Torchvision => TORCHVISION,
            Self::A3 => A3,
        }
    }

    /// What is not as its authors had it.
    fn differences(self) -> &'static str {
        match self {
            Self::Torchvision => {
                "the learning rate changes with every step and not with every epoch, and rises from 0 and not from 1 % of it; \
                 batch normalisation has the statistics of the whole batch, where theirs has those of one GPU's, 128 images"
            }
            Self::A3 => {
                "RandAugment is torchvision's with 2 changes of magnitude 18 of 30, where timm's leaves out each change with \
                 probability 1/2 and draws the magnitude around 6 of 10; images are interpolated bilinearly, where timm's are \
                 bicubically, in training one or the other at random; the cosine begins after the warm-up and ends at 0; \
                 arithmetic is in f32; batch normalisation has the statistics of the whole batch, where theirs has those of one \
                 GPU's"
            }
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|recipe| recipe.name() == name);
        known.ok_or_else(|| match LACKING.iter().find(|(lacking, _)| *lacking == name) {
            Some((_, what)) => format!("this recipe needs what the trainer lacks: {what}"),
            None => format!("choose one of {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}

/// The arguments with the options of their recipe, which is announced; the same arguments without one. Ends the process,
/// with clap's message, where the two do not go together.
pub fn follow(args: Args) -> Args {
    let Some(recipe) = args.recipe else {
        return args;
    };
    let words: Vec<OsString> = std::env::args_os().collect();
    let (followed, announced) = with_settings(recipe, words).unwrap_or_else(|error| error.exit());
    note!("{announced}");
    followed
}

/// The arguments of a command line with the options of the recipe, and what there is to say about them.
fn with_settings(recipe: Recipe, mut words: Vec<OsString>) -> Result<(Args, String), clap::Error> {
    let matches = Cli::command().try_get_matches_from(&words)?;
    let given = matches.subcommand().map(|(_, given)| given);
    let (mut set, mut replaced) = (Vec::new(), Vec::new());
    for &(option, value, rivals) in recipe.settings() {
        let is_given = |option: &&str| given.is_some_and(|given| is_given(given, option));
        match rivals.iter().chain([&option]).find(|option| is_given(option)) {
            Some(by) => replaced.push(format!("--{option} by --{by}")),
            None => set.push([format!("--{option}"), value.to_owned()]),
        }
    }
    let mut announced = format!("the recipe {recipe} sets {}", set.concat().join(" "));
    if !replaced.is_empty() {
        announced += &format!("; the command line replaces {}", replaced.join(", "));
    }
    announced += &format!("; it differs from the original: {}", recipe.differences());
    // The first word that is no option, because those before the subcommand have no values.
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let subcommand = words.iter().skip(1).position(|word| !is_option(word));
    let after = subcommand.map_or(words.len(), |place| place + 2);
    words.splice(after..after, set.concat().into_iter().map(OsString::from));
    match Cli::try_parse_from(words)?.command {
        Command::Train(args) => Ok((*args, announced)),
        _ => unreachable!("the same subcommand again"),
    }
}

/// Whether the command line has the option; clap's ids are the names of the fields.
fn is_given(given: &ArgMatches, option: &str) -> bool {
    given.value_source(&option.replace('-', "_")) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(recipe: Recipe, words: &str) -> (stokehold_train::TrainConfig, String) {
        let words = format!("stokehold train --recipe {recipe} {words}");
        let words = words.split_whitespace().map(OsString::from).collect();
        let (args, announced) = with_settings(recipe, words).unwrap();
        (args.into_config().unwrap(), announced)
    }

    #[test]
    fn every_setting_is_an_option_and_every_rival_too() {
        let cli = Cli::command();
        let train = cli.find_subcommand("train").unwrap();
        let known: Vec<_> = train
            .get_arguments()
            .filter_map(|arg| Some((arg.get_long()?, arg.get_id().as_str())))
            .collect();
        for recipe in Recipe::ALL {
            for (option, _, rivals) in recipe.settings() {
                for option in rivals.iter().chain([option]) {
                    let id = option.replace('-', "_");
                    assert!(known.contains(&(*option, &*id)), "{recipe}: --{option}");
                }
            }
            followed(recipe, "data").0.check().unwrap();
        }
    }

    #[test]
    fn the_command_line_overrides_a_recipe() {
        let (config, announced) = followed(Recipe::Torchvision, "-v data");
        assert_eq!((config.epochs, config.batch_size, config.lr), (600, 1024, 0.5));
        assert!(
            announced.starts_with("the recipe torchvision sets --model resnet50 --pipeline trivial-augment"),
            "{announced}"
        );
        assert!(
            announced.contains("it differs from the original: the learning rate"),
            "{announced}"
        );
        let (config, announced) = followed(
            Recipe::Torchvision,
            "data --lr 0.1 --class-balanced --model resnet18",
        );
        assert_eq!((config.epochs, config.lr), (600, 0.1));
        for part in ["replaces --model by --model, --aug-repeats by --class-balanced, --lr by --lr;"] {
            assert!(announced.contains(part), "{announced}");
        }
        let (config, _) = followed(Recipe::A3, "data --loss cross-entropy --epochs 3");
        assert_eq!((config.epochs, config.bce_threshold), (3, None));
    }

    #[test]
    fn what_is_lacking_is_named() {
        for (name, what) in [
            ("a1", "needs what the trainer lacks: stochastic depth"),
            ("deit", "vision transformer"),
            ("b", "choose one of torchvision, a3"),
        ] {
            let error = name.parse::<Recipe>().unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
