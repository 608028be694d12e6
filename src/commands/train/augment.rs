//! Options that change the usual pipeline of training images, as those of torchvision's references do.

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_pipeline::Pipeline;
use stokehold_pipeline::op::{
    AutoAugment, Interpolation, Op, RandAugment, RandomErasing, TrivialAugmentWide,
};

use super::options::one_of;
use crate::failure::Usage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    AutoAugment,
    RandAugment,
    #[value(name = "trivial-augment")]
    TrivialAugmentWide,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Augmentation of the pipeline imagenet-train")]
pub struct AugmentOptions {
    /// Changes of colour and shape after the flip: torchvision's AutoAugment (ImageNet), RandAugment (2 changes) or
    /// TrivialAugmentWide.
    #[arg(long, value_enum, value_name = "POLICY")]
    auto_augment: Option<PolicyName>,
    /// Magnitude of rand-augment, 0 to 30 [default: 9].
    #[arg(long, value_name = "MAGNITUDE")]
    ra_magnitude: Option<u32>,
    /// Erase a rectangle of the image with this probability, 0 to 1 (torchvision's RandomErasing); it is 0 after normalisation.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0)]
    random_erase: f64,
    /// Interpolation of crops and policies, and of resizing in the usual validation.
    #[arg(long, value_name = "HOW", default_value = "bilinear", value_parser = one_of::<Interpolation>(&["bilinear", "bicubic"]))]
    interpolation: Interpolation,
}

impl AugmentOptions {
    /// Changes the usual pipeline of training images.
    pub fn training(&self, mut pipeline: Pipeline) -> Result<Pipeline, Usage> {
        self.check()?;
        self.interpolate(&mut pipeline);
        if let Some(policy) = self.policy() {
            let flip = |op: &Op| matches!(op, Op::RandomHorizontalFlip(_));
            let after = pipeline.ops.iter().position(flip).map_or(0, |flip| flip + 1);
            pipeline.ops.insert(after, policy);
        }
        // The check of the pipeline refuses what is no probability.
        if self.random_erase != 0.0 {
            pipeline.ops.push(Op::RandomErasing(RandomErasing {
                p: self.random_erase,
                ..RandomErasing::default()
            }));
        }
        Ok(pipeline)
    }

    /// Changes the usual pipeline of validation images, or of pairs, which no policy changes.
    pub fn validation(&self, mut pipeline: Pipeline) -> Pipeline {
        self.interpolate(&mut pipeline);
        pipeline
    }

    /// Another training pipeline has its own augmentation.
    pub fn refuse(&self) -> Result<(), Usage> {
        self.check()?;
        if self.auto_augment.is_some() || self.random_erase != 0.0 {
            return Err(Usage(
                "--auto-augment and --random-erase are for --pipeline imagenet-train; put the operations into the file of \
                 the pipeline, or leave the other pipeline out"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Refuses an option without the one that it refines.
    fn check(&self) -> Result<(), Usage> {
        if self.ra_magnitude.is_some() && self.auto_augment != Some(PolicyName::RandAugment) {
            return Err(Usage(
                "--ra-magnitude is for --auto-augment rand-augment; give that too, or leave it out".into(),
            ));
        }
        Ok(())
    }

    fn policy(&self) -> Option<Op> {
        let interpolation = self.interpolation;
        Some(match self.auto_augment? {
            PolicyName::AutoAugment => Op::AutoAugment(AutoAugment {
                interpolation,
                ..AutoAugment::default()
            }),
            PolicyName::RandAugment => Op::RandAugment(RandAugment {
                magnitude: self.ra_magnitude.unwrap_or(9),
                interpolation,
                ..RandAugment::default()
            }),
            PolicyName::TrivialAugmentWide => Op::TrivialAugmentWide(TrivialAugmentWide {
                interpolation,
                ..TrivialAugmentWide::default()
            }),
        })
    }

    fn interpolate(&self, pipeline: &mut Pipeline) {
        let filter = self.interpolation.into();
        for op in &mut pipeline.ops {
            match op {
                Op::RandomResizedCrop(crop) => crop.interpolation = filter,
                Op::Resize(resize) => resize.interpolation = filter,
                _ => {}
            }
        }
    }
}
