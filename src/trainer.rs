//! The options of what trains, for `train` and `compare`.

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_train::model::Arch;
use stokehold_train::{ACCELERATORS, Accelerator, TrainerChoice};

use crate::failure::Usage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TrainerName {
    Burn,
    Emulated,
}

/// What trains.
#[derive(Debug, Clone, ClapArgs)]
pub struct TrainerArgs {
    /// What trains: burn, or an emulated accelerator, which takes a batch, copies it, and is busy as long as the
    /// real one would be, without computing.
    #[arg(long, value_enum, default_value_t = TrainerName::Burn)]
    trainer: TrainerName,
    #[command(flatten)]
    speed: SpeedArgs,
}

impl TrainerArgs {
    /// The trainer of a network on a machine with `cores` cores.
    ///
    /// # Errors
    /// The options do not go together, or there is no such accelerator.
    pub fn choice(&self, model: Arch, cores: usize) -> Result<TrainerChoice, Usage> {
        match (self.trainer, self.speed.is_given()) {
            (TrainerName::Burn, false) => Ok(TrainerChoice::Burn),
            (TrainerName::Burn, true) => Err(Usage(
                "--accelerator, --share and --images-per-second are for --trainer emulated; give that too"
                    .to_owned(),
            )),
            (TrainerName::Emulated, true) => self.speed.emulated(None, model, cores),
            (TrainerName::Emulated, false) => Err(Usage(
                "--trainer emulated: give its speed, by --accelerator NAME or --images-per-second N"
                    .to_owned(),
            )),
        }
    }
}

/// The speed of an emulated accelerator.
#[derive(Debug, Clone, ClapArgs)]
pub struct SpeedArgs {
    /// The accelerator to emulate: V100, V100-AMP, RTX3090, A100 or H100, at its published speed.
    #[arg(long, value_name = "NAME", conflicts_with = "images_per_second")]
    accelerator: Option<String>,
    /// The speed of the emulated accelerator, training images per second.
    #[arg(long, value_name = "N")]
    images_per_second: Option<f64>,
    /// How much of the accelerator to emulate, above 0 and at most 1 [default: this machine's cores of those next to
    /// it in its usual machine].
    #[arg(long, value_name = "SHARE", conflicts_with = "images_per_second")]
    share: Option<f64>,
}

impl SpeedArgs {
    /// Whether an accelerator, a speed or a share is given.
    pub fn is_given(&self) -> bool {
        self.accelerator.is_some() || self.images_per_second.is_some() || self.share.is_some()
    }

    /// The emulated accelerator of a network on a machine with `cores` cores: `default` where none is given.
    ///
    /// # Errors
    /// There is no such accelerator, or the share is out of range.
    pub fn emulated(&self, default: Option<&str>, model: Arch, cores: usize) -> Result<TrainerChoice, Usage> {
        match (self.images_per_second, self.accelerator.as_deref().or(default)) {
            (Some(rate), _) => Ok(TrainerChoice::Emulated {
                label: format!("{rate} images/s"),
                images_per_second: rate,
                read_latency_ms: 0.0,
            }),
            (None, Some(name)) => self.published(name, model, cores),
            (None, None) => Err(Usage("--share is for --accelerator; give that too".to_owned())),
        }
    }

    fn published(&self, name: &str, model: Arch, cores: usize) -> Result<TrainerChoice, Usage> {
        let Some(accelerator) = Accelerator::named(name) else {
            let known: Vec<&str> = ACCELERATORS.iter().map(|known| known.name).collect();
            return Err(Usage(format!(
                "there is no accelerator '{name}': choose one of {}, or give --images-per-second",
                known.join(", ")
            )));
        };
        let (whole, _) = accelerator.images_per_second(model);
        let (share, of) = match self.share {
            Some(1.0) => (1.0, accelerator.name.to_owned()),
            Some(share) if share > 0.0 && share < 1.0 => {
                (share, format!("{share} of the speed of {}", accelerator.name))
            }
            Some(share) => {
                return Err(Usage(format!(
                    "--share {share}: give a number above 0, at most 1"
                )));
            }
            None if cores as u32 >= accelerator.cores => (1.0, accelerator.name.to_owned()),
            None => (
                cores as f64 / f64::from(accelerator.cores),
                format!(
                    "{cores} of the {} cores beside {}, {cores}/{} of its speed",
                    accelerator.cores, accelerator.name, accelerator.cores
                ),
            ),
        };
        Ok(TrainerChoice::Emulated {
            label: format!(
                "{of}: {model}, {}, {:.0} images/s",
                accelerator.precision,
                share * whole
            ),
            images_per_second: share * whole,
            read_latency_ms: 0.0,
        })
    }
}
