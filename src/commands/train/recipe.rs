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

/// A recipe, as far as this trainer can follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// torchvision's for `ResNet50_Weights.IMAGENET1K_V2`: `references/classification`, "How to train state-of-the-art
    /// models using torchvision's latest primitives" (2021).
    Torchvision,
    /// A1 of "ResNet strikes back: an improved training procedure in timm" (Wightman, Touvron and Jégou, 2021), table 2.
    A1,
    /// A2 of the same.
    A2,
    /// A3 of the same.
    A3,
    /// "Training data-efficient image transformers & distillation through attention" (Touvron et al., 2021), table 9, and the
    /// defaults of its `main.py`.
    Deit,
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
    ("loss", "cross-entropy", &[]),
    ("mixup-alpha", "0.2", &[]),
    ("cutmix-alpha", "1", &[]),
    ("label-smoothing", "0.1", &[]),
    ("ema-decay", "0.99998", &[]),
    ("ema-steps", "32", &[]),
];

/// What A1, A2 and A3 have in common.
const STRIKES_BACK: &[Setting] = &[
    ("model", "resnet50", &[]),
    ("auto-augment", "rand-augment", OTHER_PIPELINE),
    ("interpolation", "bicubic", OTHER_PIPELINE),
    ("eval-size", "224", OTHER_VALIDATION),
    // 224 of it are 95 %.
    ("eval-resize", "235", &["eval-pipeline", "eval-size", "pipeline"]),
    ("batch-size", "2048", &[]),
    ("optimizer", "lamb", &[]),
    ("no-decay-on", "norm-and-bias", &[]),
    // timm's Lamb clips by itself.
    ("clip-norm", "1", &[]),
    ("schedule", "cosine", &[]),
    ("warmup-epochs", "5", &[]),
    ("loss", "bce", &[]),
    ("cutmix-alpha", "1", &[]),
];

const A1: &[Setting] = &[
    ("ra-magnitude", "21", OTHER_POLICY),
    ("image-size", "224", OTHER_FILE),
    ("aug-repeats", "3", OTHER_SAMPLER),
    ("epochs", "600", &[]),
    ("lr", "0.005", &[]),
    ("weight-decay", "0.01", &[]),
    ("mixup-alpha", "0.2", &[]),
    ("stochastic-depth", "0.05", &[]),
    ("label-smoothing", "0.1", &[]),
];

const A2: &[Setting] = &[
    ("ra-magnitude", "21", OTHER_POLICY),
    ("image-size", "224", OTHER_FILE),
    ("aug-repeats", "3", OTHER_SAMPLER),
    ("epochs", "300", &[]),
    ("lr", "0.005", &[]),
    ("weight-decay", "0.02", &[]),
    ("mixup-alpha", "0.1", &[]),
    ("stochastic-depth", "0.05", &[]),
    ("bce-threshold", "0.2", &["loss"]),
];

const A3: &[Setting] = &[
    ("ra-magnitude", "18", OTHER_POLICY),
    ("image-size", "160", OTHER_FILE),
    ("epochs", "100", &[]),
    ("lr", "0.008", &[]),
    ("weight-decay", "0.02", &[]),
    ("mixup-alpha", "0.1", &[]),
    ("bce-threshold", "0.2", &["loss"]),
];

const DEIT: &[Setting] = &[
    ("model", "resnet50", &[]),
    ("auto-augment", "rand-augment", OTHER_PIPELINE),
    ("ra-magnitude", "27", OTHER_POLICY),
    ("random-erase", "0.25", OTHER_PIPELINE),
    ("erase-with", "noise", &["pipeline", "load", "random-erase"]),
    ("interpolation", "bicubic", OTHER_PIPELINE),
    ("image-size", "224", OTHER_FILE),
    (
        "eval-resize",
        "256",
        &["eval-pipeline", "eval-size", "image-size", "pipeline"],
    ),
    ("aug-repeats", "3", OTHER_SAMPLER),
    ("epochs", "300", &[]),
    ("batch-size", "1024", &[]),
    ("optimizer", "adamw", &[]),
    ("lr", DEIT_LR, &[]),
    ("weight-decay", "0.05", &[]),
    ("no-decay-on", "norm-and-bias", &[]),
    ("schedule", "cosine", &[]),
    ("warmup-epochs", "5", &[]),
    ("loss", "cross-entropy", &[]),
    ("mixup-alpha", "0.8", &[]),
    ("cutmix-alpha", "1", &[]),
    ("stochastic-depth", "0.1", &[]),
    ("label-smoothing", "0.1", &[]),
];

/// `--auto-augment` also replaces the recipe's magnitude.
const OTHER_POLICY: &[&str] = &["auto-augment", "pipeline", "load"];

/// 0.0005 x batch size / 512, for the recipe's batch size.
const DEIT_LR: &str = "0.001";

/// How timm's RandAugment differs from torchvision's.
const OF_RAND_AUGMENT: &str = "RandAugment is torchvision's, of 2 changes with the same share of the largest magnitude, where \
     timm's leaves out each change with probability 1/2, draws the magnitude around it, and fills with the mean colour; ";

const OF_STATISTICS: &str =
    "batch normalisation has the statistics of the whole batch, where theirs has those of one GPU's; ";

impl Recipe {
    const ALL: [Self; 5] = [Self::Torchvision, Self::A1, Self::A2, Self::A3, Self::Deit];

    fn name(self) -> &'static str {
        match self {
            Self::Torchvision => "torchvision",
            Self::A1 => "a1",
            Self::A2 => "a2",
            Self::A3 => "a3",
            Self::Deit => "deit",
        }
    }

    fn settings(self) -> impl Iterator<Item = &'static Setting> {
        let [common, own] = match self {
            Self::Torchvision => [TORCHVISION, &[]],
            Self::A1 => [STRIKES_BACK, A1],
            Self::A2 => [STRIKES_BACK, A2],
            Self::A3 => [STRIKES_BACK, A3],
            Self::Deit => [DEIT, &[]],
        };
        common.iter().chain(own)
    }

    /// What of the recipe is left out, because the trainer lacks it.
    fn left_out(self) -> &'static str {
        match self {
            Self::Torchvision | Self::A1 | Self::A2 | Self::A3 => "nothing",
            Self::Deit => "the vision transformer (--model is a ResNet), and the average of the weights",
        }
    }

    /// What is not as its authors had it.
    fn differences(self) -> String {
        let bicubic = "training images are interpolated bicubically, where timm's are bilinearly or bicubically, at random; ";
        let rates = "the cosine begins after the warm-up and ends at 0; ";
        let f32 = "arithmetic is in f32 unless --precision says otherwise";
        match self {
            Self::Torchvision => format!(
                "the learning rate changes with every step and not with every epoch, and rises from 0 and not from 1 % of it; \
                 {OF_STATISTICS}{f32}"
            ),
            Self::A1 => format!(
                "a class of a mixed image has its share as target, where theirs has 1, or 1 less the smoothing; \
                 {OF_RAND_AUGMENT}{bicubic}{rates}{OF_STATISTICS}{f32}"
            ),
            Self::A2 | Self::A3 => format!("{OF_RAND_AUGMENT}{bicubic}{rates}{OF_STATISTICS}{f32}"),
            Self::Deit => format!("{OF_RAND_AUGMENT}{rates}a batch that is not full is trained too; {f32}"),
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
        known.ok_or_else(|| {
            format!(
                "there is no such recipe: choose one of {}",
                Self::ALL.map(Self::name).join(", ")
            )
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
            None => set.push([format!("--{option}"), scaled(recipe, option, value, given)]),
        }
    }
    let mut announced = format!("the recipe {recipe} sets {}", set.concat().join(" "));
    if !replaced.is_empty() {
        announced += &format!("\nthe command line replaces {}", replaced.join(", "));
    }
    announced += &format!(
        "\nleft out of the original: {}\ndifferent from the original: {}",
        recipe.left_out(),
        recipe.differences()
    );
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

/// The value of a setting. The learning rate of `deit` is stated for each batch size.
fn scaled(recipe: Recipe, option: &str, value: &str, given: &ArgMatches) -> String {
    let batch_size = given.get_one::<usize>("batch_size");
    match batch_size.filter(|_| is_given(given, "batch-size")) {
        Some(&batch_size) if (recipe, option) == (Recipe::Deit, "lr") => {
            (5e-4 * batch_size as f64 / 512.0).to_string()
        }
        _ => value.to_owned(),
    }
}

/// Whether the command line has the option; clap's ids are the names of the fields.
pub(super) fn is_given(given: &ArgMatches, option: &str) -> bool {
    given.value_source(&option.replace('-', "_")) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use stokehold_pipeline::Pipeline;
    use stokehold_pipeline::op::Op;
    use stokehold_train::LossKind;
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
        for recipe in Recipe::ALL {
            for (option, _, rivals) in recipe.settings() {
                for option in rivals.iter().chain([option]) {
                    let id = option.replace('-', "_");
                    assert!(known.contains(&(*option, &*id)), "{recipe}: --{option}");
                }
            }
            followed(recipe, "data").0.check().unwrap();
            assert_eq!(recipe.name().parse(), Ok(recipe));
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
        for (recipe, epochs, size, lr, decay, mixup, smoothing, magnitude) in [
            (Recipe::A1, 600, 224, 5e-3, 0.01, 0.2, 0.1, 21),
            (Recipe::A2, 300, 224, 5e-3, 0.02, 0.1, 0.0, 21),
            (Recipe::A3, 100, 160, 8e-3, 0.02, 0.1, 0.0, 18),
        ] {
            let config = followed(recipe, "data").0;
            assert_eq!(
                (config.epochs, config.lr, config.label_smoothing),
                (epochs, lr, smoothing),
                "{recipe}"
            );
            assert_eq!(config.optimizer, OptimizerConfig::lamb(decay), "{recipe}");
            assert_eq!(
                (config.mix.mixup_alpha, config.mix.cutmix_alpha),
                (mixup, 1.0),
                "{recipe}"
            );
            assert_eq!(config.pipeline.check().unwrap(), (size, size), "{recipe}");
            assert_eq!(config.loss, LossKind::Bce, "{recipe}");
            let depth = if recipe == Recipe::A3 { 0.0 } else { 0.05 };
            assert_eq!(config.stochastic_depth, depth, "{recipe}");
            let of_policy = |op: &Op| matches!(op, Op::RandAugment(policy) if policy.magnitude == magnitude);
            assert!(config.pipeline.ops.iter().any(of_policy), "{recipe}");
        }
        let config = followed(Recipe::Deit, "data").0;
        assert_eq!(
            (config.lr, config.optimizer),
            (1e-3, OptimizerConfig::adamw(0.05))
        );
        let erases = |op: &Op| matches!(op, Op::RandomErasing(erasing) if erasing.p == 0.25);
        assert!(config.pipeline.ops.iter().any(erases));
        assert_eq!(followed(Recipe::Deit, "data --batch-size 256").0.lr, 2.5e-4);
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
        let (config, _) = followed(Recipe::A3, "data --loss cross-entropy --epochs 3");
        assert_eq!((config.epochs, config.bce_threshold), (3, None));
        let (config, _) = followed(
            Recipe::Deit,
            "data --auto-augment trivial-augment --random-erase 0.5 --image-size 64",
        );
        assert_eq!(config.eval_pipeline.check().unwrap(), (64, 64));
    }

    #[test]
    fn what_is_left_out_is_said() {
        for (recipe, what) in [
            (Recipe::A1, "left out of the original: nothing"),
            (Recipe::Deit, "left out of the original: the vision transformer"),
        ] {
            let (_, announced) = followed(recipe, "data");
            assert!(announced.contains(what), "{announced}");
        }
        let error = "b".parse::<Recipe>().unwrap_err();
        assert_eq!(
            error,
            "there is no such recipe: choose one of torchvision, a1, a2, a3, deit"
        );
    }

    /// Every option of every recipe, and what is not as in the originals.
    fn values() -> String {
        let is_set = |option: &&str| {
            let mut settings = Recipe::ALL.iter().flat_map(|recipe| recipe.settings());
            settings.any(|setting| setting.0 == *option)
        };
        let cli = Cli::command();
        let train = cli.find_subcommand("train").unwrap();
        let options = train
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .filter(is_set);
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let names = Recipe::ALL.map(|recipe| format!("`{recipe}`"));
        let mut text = row([&["option".to_owned()][..], &names].concat());
        text += &format!("|---|{}\n", "---:|".repeat(names.len()));
        for option in options {
            let value = |recipe: Recipe| {
                let setting = recipe.settings().find(|setting| setting.0 == option);
                setting.map_or("", |setting| setting.1).to_owned()
            };
            text += &row([&[format!("`--{option}`")][..], &Recipe::ALL.map(value)].concat());
        }
        for recipe in Recipe::ALL {
            let (left_out, differences) = (recipe.left_out(), recipe.differences());
            text += &format!("\n- `{recipe}` leaves out: {left_out}.\n  It differs: {differences}.");
        }
        text
    }

    #[test]
    fn the_reference_of_recipes_is_theirs() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes.md");
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
            "write docs/recipes.md again: STOKEHOLD_WRITE_DOCS=1 cargo test --release -p stokehold --bins the_reference_of"
        );
    }
}
