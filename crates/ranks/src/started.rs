//! What started this process.

use std::env;
use std::time::Duration;

use crate::link::RanksError;
use crate::ranks::Ranks;

/// The variables in which launchers say how many ranks there are, with the launchers' names.
const SIZES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "mpirun"),
    ("PMI_SIZE", "mpirun or srun"),
    ("MV2_COMM_WORLD_SIZE", "mpirun"),
];

/// The variables in which they say which of its machine's ranks this is.
const LOCAL: [&str; 4] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.trim().parse().ok()
}

/// Which of its machine's ranks this process is, from 0, as its launcher says; `None` if none did. A rank uses the device
/// of this number.
pub fn local_rank() -> Option<usize> {
    LOCAL.into_iter().find_map(number)
}

/// The launcher, and the number of ranks that it started, if there are several.
fn launcher() -> Result<Option<(&'static str, usize)>, RanksError> {
    let said = SIZES.iter().find_map(|&(name, how)| Some((how, number(name)?)));
    if let Some((how, size)) = said {
        return Ok((size > 1).then_some((how, size)));
    }
    let tasks = number("SLURM_STEP_NUM_TASKS").unwrap_or(1);
    if tasks < 2 || env::var_os("SLURM_PROCID").is_none() {
        return Ok(None);
    }
    match env::var_os("PMIX_RANK").is_some() {
        true => Ok(Some(("srun", tasks))),
        false => Err(RanksError::NoInterface { size: tasks }),
    }
}

/// As [`Ranks::of_launch`].
pub(crate) fn world(patience: Duration) -> Result<Ranks, RanksError> {
    let Some((how, size)) = launcher()? else {
        return Ok(Ranks::alone());
    };
    #[cfg(feature = "mpi")]
    {
        tracing::info!(how, size, "started with other ranks");
        crate::over_mpi::world(patience)
    }
    #[cfg(not(feature = "mpi"))]
    {
        let _ = patience;
        Err(RanksError::WithoutMpi { how, size })
    }
}
