//! Commands that several ranks run together.

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use stokehold_train::{Ranks, TrainError};

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
    match work(&ranks) {
        Ok(code) => Ok(code),
        Err(error) => {
            // All ranks have the same error of this kind: rank 0 says it for all, and has a moment for that.
            let said_by_first = matches!(error.downcast_ref(), Some(TrainError::Disagree { .. }));
            if said_by_first && !ranks.is_first() {
                thread::sleep(Duration::from_secs(2));
            } else {
                let (rank, size) = (ranks.rank(), ranks.size());
                note!("rank {rank} of {size} on {}:", ranks.hosts()[rank]);
                failure::report(error.as_ref());
            }
            let code = failure::code(error.as_ref());
            ranks.abort(i32::from(code));
            Ok(ExitCode::from(code))
        }
    }
}
