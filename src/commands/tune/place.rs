//! Where a study's trials run.

use clap::{Args as ClapArgs, ValueEnum};

use crate::failure::Usage;

/// Where trials run, if not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On nodes that Slurm gives; this machine needs its commands, and the folder has to be one that the nodes have, too.
    Slurm,
    /// As training jobs of the account on SageMaker; the job needs a section for it.
    Sagemaker,
}

/// Options of a study whose trials run elsewhere.
#[derive(Debug, Clone, ClapArgs)]
pub struct PlaceArgs {
    /// Run the trials elsewhere: slurm, whose nodes have to see this program and this folder under the same paths, or
    /// sagemaker, for which the job has a section of that name
    #[arg(long, value_name = "PLACE", value_enum)]
    on: Option<On>,
    /// An option of sbatch, such as --sbatch=--partition=gpu. Can be given several times
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// SageMaker's region [default: the job's, AWS_REGION, or the profile's]
    #[arg(long, value_name = "REGION", requires = "on")]
    region: Option<String>,
}

impl PlaceArgs {
    /// Where the trials run.
    ///
    /// # Errors
    /// An option is for another place.
    pub fn on(&self) -> Result<Option<On>, Usage> {
        let wrong = |text: &str| Err(Usage(text.to_owned()));
        match self.on {
            Some(On::Sagemaker) if !self.sbatch.is_empty() => wrong("--sbatch is for --on slurm"),
            Some(On::Slurm) if self.region.is_some() => wrong("--region is for --on sagemaker"),
            on => Ok(on),
        }
    }

    /// What the user wants of `sbatch`.
    pub fn sbatch(&self) -> &[String] {
        &self.sbatch
    }

    /// SageMaker's region.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }
}
