//! Published recipes: options that `stokehold train --recipe NAME` sets and the command line overrides.
//!
//! A recipe is a list of options as somebody would write them. Those that the command line has, or has a rival of, are
//! left out; the rest stands before the command line's own words, and all of it is parsed again.

use std::ffi::OsString;
use std::fmt;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser, ValueEnum};

use crate::terminal::note;
use crate::{Cli, Command};

use super::Args;

/// A recipe, as far as this trainer can follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Recipe {
    // For `ResNet50_Weights.IMAGENET1K_V2`: `references/classification`, "How to train state-of-the-art models using
    // torchvision's latest primitives" (2021).
    Torchvision,
}

/// An option of a recipe: its long name, its value, and the options that replace it besides itself.
type Setting = (&'static str, &'static str, &'static [&'static str]);

const OTHER_PIPELINE: &[&str] = &["pipeline", "load"];
/// It has a size of its own, and validation has that.
const OTHER_FILE: &[&str] = &["pipeline"];
const OTHER_VALIDATION: &[&str] = &["eval-pipeline", "pipeline"];
const OTHER_SAMPLER: &[&str] = &["class-balanced", "sample-weights", "subset"];

const TORCHVISION: &[Setting] = &[
    ("model", "resnet50", &[]),
    ("auto-augment", "trivial-augment", OTHER_PIPELINE),
    ("random-erase", "0.1", OTHER_PIPELINE),
    ("image-size", "176", OTHER_FILE),
    ("eval-size", "224", OTHER_VALIDATION),
    ("eval-resize", "232", &["eval-pipeline", "eval-size", "pipeline"]),
    ("aug-repeats", "4", OTHER_SAMPLER),
    ("epochs", "600", &[]),
    ("batch-size", "1024", &[]),
    ("optimizer", "sgd", &[]),
    ("lr", "0.5", &[]),
    ("weight-decay", "0.00002", &[]),
    ("no-decay-on", "norm", &[]),
    ("schedule", "cosine", &[]),
    ("warmup-epochs", "5", &[]),
    ("mixup-alpha", "0.2", &[]),
    ("cutmix-alpha", "1", &[]),
    ("label-smoothing", "0.1", &[]),
    ("ema-decay", "0.99998", &[]),
    ("ema-steps", "32", &[]),
];

/// What of torchvision's recipe is not as its authors had it.
const TORCHVISION_DIFFERS: &str = "the learning rate changes with every step and not with every epoch, and rises from 0 and not from \
     1 % of it; batch normalisation has the statistics of the whole batch, where theirs has the statistics of one GPU; arithmetic is in f32 \
     unless --precision says otherwise";

impl Recipe {
    fn settings(self) -> &'static [Setting] {
        match self {
            Self::Torchvision => TORCHVISION,
        }
    }

    fn differences(self) -> &'static str {
        match self {
            Self::Torchvision => TORCHVISION_DIFFERS,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torchvision => "torchvision",
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
    let (_, given) = matches.subcommand().expect("train");
    let (mut set, mut replaced) = (Vec::new(), Vec::new());
    for &(option, value, rivals) in recipe.settings() {
        let is_given = |option: &&str| is_given(given, option);
        match rivals.iter().chain([&option]).find(|option| is_given(option)) {
            Some(by) if *by == option => replaced.push(format!("--{option}")),
            Some(by) => replaced.push(format!("--{option} by --{by}")),
            None => set.push([format!("--{option}"), value.to_owned()]),
        }
    }
    let mut announced = format!("the recipe {recipe} sets {}", set.concat().join(" "));
    if !replaced.is_empty() {
        announced += &format!("\nthe command line replaces {}", replaced.join(", "));
    }
    announced += &format!("\ndifferent from the original: {}", recipe.differences());
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
pub(super) fn is_given(given: &ArgMatches, option: &str) -> bool {
    given.value_source(&option.replace('-', "_")) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use stokehold_pipeline::Pipeline;
    use stokehold_train::ema::EmaConfig;
    use stokehold_train::optim::{OptimizerConfig, Undecayed};

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
        for recipe in Recipe::value_variants().iter().copied() {
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
    fn a_recipe_sets_what_its_authors_had() {
        let config = followed(Recipe::Torchvision, "data").0;
        assert_eq!((config.epochs, config.batch_size, config.lr), (600, 1024, 0.5));
        assert_eq!(config.pipeline.check().unwrap(), (176, 176));
        assert_eq!(config.eval_pipeline, Pipeline::imagenet_eval(232, 224));
        let ema = EmaConfig {
            decay: 0.99998,
            steps: 32,
        };
        assert_eq!((config.ema, config.undecayed), (Some(ema), Undecayed::Norm));
        let sgd = OptimizerConfig::Sgd {
            momentum: 0.9,
            weight_decay: 2e-5,
            nesterov: false,
        };
        assert_eq!(config.optimizer, sgd);
    }

    #[test]
    fn the_command_line_overrides_a_recipe() {
        let (config, announced) = followed(Recipe::Torchvision, "-v data");
        assert_eq!((config.epochs, config.batch_size, config.lr), (600, 1024, 0.5));
        for part in [
            "the recipe torchvision sets --model resnet50 --auto-augment trivial-augment",
            "\ndifferent from the original: the learning rate",
        ] {
            assert!(announced.contains(part), "{announced}");
        }
        assert!(!announced.contains("replaces"), "{announced}");
        let (config, announced) = followed(
            Recipe::Torchvision,
            "data --lr 0.1 --class-balanced --model resnet18 --load 1",
        );
        assert_eq!((config.epochs, config.lr), (600, 0.1));
        let replaced = "\nthe command line replaces --model, --auto-augment by --load, --random-erase by --load, \
                        --aug-repeats by --class-balanced, --lr\n";
        assert!(announced.contains(replaced), "{announced}");
    }

    /// Every option of the recipe, and what is not as in the original.
    fn values() -> String {
        let recipe = Recipe::Torchvision;
        let mut text = format!("| option | `{recipe}` |\n|---|---:|\n");
        for (option, value, _) in recipe.settings() {
            text += &format!("| `--{option}` | {value} |\n");
        }
        text + &format!("\nIt differs from the original: {}.", recipe.differences())
    }

    #[test]
    fn the_reference_of_recipes_is_theirs() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/recipes.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once("## Values\n").unwrap();
        let (known, after) = rest.split_once("## Sources\n").unwrap();
        let now = format!("\n{}\n\n", values());
        if std::env::var_os("STOKEHOLD_WRITE_DOCS").is_some() {
            std::fs::write(&path, format!("{before}## Values\n{now}## Sources\n{after}")).unwrap();
            return;
        }
        assert!(
            known == now,
            "write docs/reference/recipes.md again: STOKEHOLD_WRITE_DOCS=1 cargo test --release -p stokehold --bins the_reference_of"
        );
    }
}
