//! Commands that several ranks run together.

use std::env;
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use stokehold_train::{Ranks, RanksError, TrainError};

use crate::failure;
use crate::terminal::note;

/// Does the work of this rank of the world that `mpirun`, `srun` or `stokehold launch` started, or of a rank alone. A rank that
/// fails says so with its name, and ends all others, which would wait for it.
///
/// # Errors
/// There is no way to the other ranks; the error of a rank alone.
pub fn together(
    patience: Duration,
    work: impl FnOnce(&Ranks) -> Result<ExitCode, Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let ranks = Ranks::of_launch(patience).map_err(TrainError::from)?;
    if ranks.are_alone() {
        return work(&ranks);
    }
    share_cores(&ranks).map_err(TrainError::from)?;
    match work(&ranks) {
        Ok(code) => Ok(code),
        Err(error) => {
            // Rank 0 says what all have in common, and has a moment for that.
            let said_by_first = error.downcast_ref().is_some_and(TrainError::is_of_all_ranks);
            if said_by_first && !ranks.is_first() {
                thread::sleep(Duration::from_secs(2));
            }
            // Rank 0 ends all of them; it has not failed where this one still lives.
            let (rank, size) = (ranks.rank(), ranks.size());
            note!("rank {rank} of {size} on {}:", ranks.hosts()[rank]);
            failure::report(error.as_ref());
            let code = failure::code(error.as_ref());
            ranks.abort(i32::from(code));
            Ok(ExitCode::from(code))
        }
    }
}

/// Divides cores among the ranks that have the same ones, unless RAYON_NUM_THREADS says how many threads a rank computes with.
/// A launcher may have bound each rank to cores of its own.
fn share_cores(ranks: &Ranks) -> Result<(), RanksError> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed:"))
        .unwrap_or_default();
    let all = ranks.gather(allowed.as_bytes().to_vec())?;
    let (own, hosts) = (ranks.rank(), ranks.hosts());
    let have_the_same = |rank: &usize| hosts[*rank] == hosts[own] && all[*rank] == all[own];
    let sharing = (0..ranks.size()).filter(have_the_same).count();
    if sharing > 1 && env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let pool = rayon::ThreadPoolBuilder::new().num_threads((cores / sharing).max(1));
        // Without it ranks compute with more threads than there are cores, and as well.
        if let Err(error) = pool.build_global() {
            note!("ranks do not share the cores: {error}");
        }
    }
    Ok(())
}
