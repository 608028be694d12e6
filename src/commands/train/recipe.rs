//! `--recipe`: the options of a recipe, which the command line overrides.
//!
//! Options that the command line has, or has a rival of, are left out. The rest stands before the command line's own words, and
//! all of it is parsed again.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};
use stokehold_train::recipe::Recipe;

use crate::failure::Usage;
use crate::terminal::note;
use crate::{Cli, Command};

use super::Args;

/// The options that replace an option of a recipe, besides itself and what clap knows to conflict with it.
const RIVALS: &[(&str, &[&str])] = &[
    ("auto-augment", &["pipeline", "load"]),
    ("random-erase", &["pipeline", "load"]),
    // A file has a size of its own, and validation has that.
    ("image-size", &["pipeline"]),
    ("eval-size", &["eval-pipeline", "pipeline"]),
    ("eval-resize", &["eval-pipeline", "eval-size", "pipeline"]),
    ("pipeline", &["auto-augment", "random-erase"]),
    ("load", &["auto-augment", "random-erase"]),
    ("without-replacement", &["aug-repeats", "subset"]),
    ("cache", &["no-cache"]),
    ("no-cache", &["cache"]),
    ("images-per-second", &["accelerator", "share"]),
];

/// The options of `train`, built, so that clap knows its groups.
fn train_command() -> clap::Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand("train").expect("a subcommand").clone()
}

/// The long names of the options that replace an option of a recipe, besides itself.
fn rivals(train: &clap::Command, option: &str) -> Vec<String> {
    let long = |arg: &clap::Arg| arg.get_long().map(str::to_owned);
    let mut found: Vec<String> = (RIVALS.iter())
        .filter(|(known, _)| *known == option)
        .flat_map(|(_, rivals)| rivals.iter().map(|rival| (*rival).to_owned()))
        .collect();
    let Some(own) = train.get_arguments().find(|arg| arg.get_long() == Some(option)) else {
        return found;
    };
    let conflicts = |one: &clap::Arg, other: &clap::Arg| {
        let known = train.get_arg_conflicts_with(one);
        known.iter().any(|arg| arg.get_id() == other.get_id())
    };
    let in_one_group = |other: &clap::Arg| {
        train.get_groups().any(|group| {
            let has = |arg: &clap::Arg| group.get_args().any(|id| id == arg.get_id());
            has(own) && has(other) && !group.clone().is_multiple()
        })
    };
    let others = train
        .get_arguments()
        .filter(|other| other.get_id() != own.get_id());
    let clash = others.filter(|other| conflicts(own, other) || conflicts(other, own) || in_one_group(other));
    found.extend(clash.filter_map(long));
    found
}

/// The arguments with the options of their recipe, which is announced; the same arguments without one. Ends the process,
/// with clap's message, where the two do not go together.
///
/// # Errors
/// There is no such recipe, or it sets what is no option.
pub fn follow(args: Args) -> Result<Args, Usage> {
    let Some(name) = &args.recipe else {
        return Ok(args);
    };
    let recipe = Recipe::open(name).map_err(|error| Usage(error.to_string()))?;
    check(&recipe)?;
    let words: Vec<OsString> = std::env::args_os().collect();
    let (followed, announced) = with_settings(&recipe, words).unwrap_or_else(|error| error.exit());
    note!("{announced}");
    Ok(followed)
}

/// Options that say which run it is, or that are used before the recipe is read.
const NO_SETTINGS: &[&str] = &[
    "recipe",
    "resume",
    "requeue",
    "name",
    "help",
    "rank-timeout",
    "verbose",
];

/// Refuses options that `train` does not have or that no recipe can set, flags with a value, and options without one.
fn check(recipe: &Recipe) -> Result<(), Usage> {
    let train = train_command();
    let wrong = |(option, value): &(String, Option<String>)| {
        let arg = train.get_arguments().find(|arg| arg.get_long() == Some(option));
        match arg.filter(|_| !NO_SETTINGS.contains(&option.as_str())) {
            None => Some(format!("--{option}: a recipe cannot set it")),
            Some(arg) if arg.get_action().takes_values() && value.is_none() => {
                Some(format!("--{option}: give its value"))
            }
            Some(arg) if !arg.get_action().takes_values() && value.is_some() => {
                Some(format!("--{option} is a flag: write true, or leave it out"))
            }
            Some(_) => None,
        }
    };
    let wrong: Vec<String> = recipe.options.iter().filter_map(wrong).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Usage(format!(
            "the recipe {}: {}; `stokehold train --help` has the options",
            recipe.name,
            wrong.join("; ")
        ))),
    }
}

/// The arguments of a command line with the options of the recipe, and what there is to say about them.
fn with_settings(recipe: &Recipe, mut words: Vec<OsString>) -> Result<(Args, String), clap::Error> {
    let matches = Cli::command().try_get_matches_from(&words)?;
    let (_, given) = matches.subcommand().expect("train");
    let (mut set, mut replaced) = (recipe.clone(), Vec::new());
    let train = train_command();
    set.options.retain(|(option, _)| {
        let mut names = rivals(&train, option).into_iter().chain([option.clone()]);
        let by = names.find(|name| is_given(given, name));
        match &by {
            Some(by) if by == option => replaced.push(format!("--{option}")),
            Some(by) => replaced.push(format!("--{option} by --{by}")),
            None => {}
        }
        by.is_none()
    });
    let mut announced = format!("the recipe {} sets {set}", recipe.name);
    if !replaced.is_empty() {
        announced += &format!("\nthe command line replaces {}", replaced.join(", "));
    }
    if let Some(differs) = &recipe.differs {
        announced += &format!("\ndifferent from the original: {differs}");
    }
    // The first word that is no option, because those before the subcommand have no values.
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let subcommand = words.iter().skip(1).position(|word| !is_option(word));
    let after = subcommand.map_or(words.len(), |place| place + 2);
    let word = |(option, value): (String, Option<String>)| match value {
        // One word, so that no value is taken for an option.
        Some(value) => format!("--{option}={value}").into(),
        None => format!("--{option}").into(),
    };
    words.splice(after..after, set.options.into_iter().map(word));
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

    fn torchvision() -> Recipe {
        Recipe::open("torchvision").unwrap()
    }

    fn followed(words: &str) -> (stokehold_train::TrainConfig, String) {
        let words = format!("stokehold train --recipe torchvision {words}");
        let words = words.split_whitespace().map(OsString::from).collect();
        let (args, announced) = with_settings(&torchvision(), words).unwrap();
        (args.into_config().unwrap(), announced)
    }

    #[test]
    fn recipes_and_rivals_name_options() {
        let cli = Cli::command();
        let train = cli.find_subcommand("train").unwrap();
        let known: Vec<_> = train
            .get_arguments()
            .filter_map(|arg| Some((arg.get_long()?, arg.get_id().as_str())))
            .collect();
        check(&torchvision()).unwrap();
        for (option, rivals) in RIVALS {
            for option in rivals.iter().chain([option]) {
                let id = option.replace('-', "_");
                assert!(known.contains(&(*option, &*id)), "--{option}");
            }
        }
        followed("data").0.check().unwrap();
        let own = "[options]\nlr = 0.1\nlearning-rate = 0.1\nresume = true\nweights = true\nnesterov = 1\n";
        let refused = check(&Recipe::parse("own.toml", own).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            refused.starts_with(
                "the recipe own.toml: --learning-rate: a recipe cannot set it; --resume: a recipe cannot set it; --weights: give \
                 its value; --nesterov is a flag: write true"
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_recipe_sets_what_its_authors_had() {
        let config = followed("data").0;
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
        let (config, announced) = followed("-v data");
        assert_eq!((config.epochs, config.batch_size, config.lr), (600, 1024, 0.5));
        for part in [
            "the recipe torchvision sets --model resnet50 --auto-augment trivial-augment",
            "\ndifferent from the original: the learning rate",
        ] {
            assert!(announced.contains(part), "{announced}");
        }
        assert!(!announced.contains("replaces"), "{announced}");
        let (config, announced) = followed("data --lr 0.1 --class-balanced --model resnet18 --load 1");
        assert_eq!((config.epochs, config.lr), (600, 0.1));
        let replaced = "\nthe command line replaces --model, --auto-augment by --load, --random-erase by --load, \
                        --aug-repeats by --class-balanced, --lr\n";
        assert!(announced.contains(replaced), "{announced}");
    }

    #[test]
    fn options_that_exclude_each_other_are_replaced() {
        for (own, words, replaced) in [
            (
                "subset = \"a.txt\"",
                "data --class-balanced",
                "--subset by --class-balanced",
            ),
            (
                "class-balanced = true",
                "data --aug-repeats 2",
                "--class-balanced by --aug-repeats",
            ),
            (
                "eval-pipeline = \"a.toml\"",
                "data --eval-size 64",
                "--eval-pipeline by --eval-size",
            ),
            ("pipeline = \"a.toml\"", "data --load 2", "--pipeline by --load"),
            (
                "pipeline = \"a.toml\"",
                "data --random-erase 0.1",
                "--pipeline by --random-erase",
            ),
            ("no-cache = true", "data --cache there", "--no-cache by --cache"),
            (
                "accelerator = \"A100\"",
                "data --images-per-second 9",
                "--accelerator by --images-per-second",
            ),
            (
                "images-per-second = 9",
                "data --share 0.5",
                "--images-per-second by --share",
            ),
        ] {
            let recipe = Recipe::parse("own.toml", &format!("[options]\n{own}\n")).unwrap();
            check(&recipe).unwrap();
            let words = format!("stokehold train --recipe own.toml {words}");
            let words = words.split_whitespace().map(OsString::from).collect();
            let (_, announced) = with_settings(&recipe, words).unwrap();
            assert!(announced.contains(replaced), "{announced}");
        }
    }

    /// Every option of the recipe, and what is not as in the original.
    fn values() -> String {
        let recipe = torchvision();
        let mut text = format!("| option | `{}` |\n|---|---:|\n", recipe.name);
        for (option, value) in &recipe.options {
            text += &format!("| `--{option}` | {} |\n", value.as_deref().unwrap_or_default());
        }
        text + &format!(
            "\nIt differs from the original: {}.",
            recipe.differs.unwrap_or_default()
        )
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
