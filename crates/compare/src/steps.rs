//! The times of a cell's steps, in a file of their own: `steps/<network>-load<n>.json`.
//!
//! Only the pages of pairs need them, and they would make `compare.json` a hundred times larger. Where the file is absent or
//! damaged, those pages show no steps, and nothing else is lost.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stokehold_base::{regular, whole};

use crate::CompareError;
use crate::report::{Cell, Round};

/// The folder of these files.
const FOLDER: &str = "steps";
/// The most steps of a cell that are kept: the file is written after every pair, and some megabytes are quick enough.
const MOST: usize = 200_000;
/// Times of day in two files are the same if they differ by less, seconds: numbers in JSON may lose their last digit.
const SAME: f64 = 1e-3;

/// The times of the steps of a cell's rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepTimes {
    rounds: Vec<OfRound>,
}

/// Those of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OfRound {
    /// The trial's place in the plan.
    trial: usize,
    /// The round's [`began`](Round::began), which no other round of the trial has.
    began: f64,
    /// For each step the seconds without a batch, and those from then to its end.
    times: Vec<[f64; 2]>,
}

impl StepTimes {
    /// Those that were written of a cell of a comparison in the folder `out`.
    pub fn read(cell: &Cell, out: &Path) -> Self {
        let bytes = regular::read(&path(cell, out)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Adds those of a round.
    pub fn add(&mut self, trial: usize, began: f64, times: Vec<[f64; 2]>) {
        let kept: usize = self.rounds.iter().map(|round| round.times.len()).sum();
        if !times.is_empty() && kept + times.len() <= MOST {
            self.rounds.push(OfRound { trial, began, times });
        }
    }

    /// Those of a round; empty if they are not known.
    pub fn of(&self, trial: usize, round: &Round) -> &[[f64; 2]] {
        let found = self.rounds.iter().find(|known| known.is(trial, round));
        found.map_or(&[], |known| &known.times)
    }

    /// Writes them, without those of rounds that the cell does not have any more.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, cell: &Cell, out: &Path) -> Result<(), CompareError> {
        self.rounds.retain(|known| {
            let trial = cell.trials.get(known.trial);
            trial.is_some_and(|trial| trial.rounds.iter().any(|round| known.is(known.trial, round)))
        });
        let (folder, path) = (out.join(FOLDER), path(cell, out));
        let bytes = serde_json::to_vec(self)?;
        fs::create_dir_all(folder)
            .and_then(|()| whole::write(&path, bytes))
            .map_err(|source| CompareError::Io { path, source })
    }
}

impl OfRound {
    fn is(&self, trial: usize, round: &Round) -> bool {
        self.trial == trial && (self.began - round.began).abs() < SAME
    }
}

fn path(cell: &Cell, out: &Path) -> PathBuf {
    out.join(FOLDER).join(format!("{}.json", cell.file_name()))
}

#[cfg(test)]
mod tests {
    use stokehold_train::model::Arch;

    use super::*;
    use crate::report::tests::cell;

    #[test]
    fn what_is_written_is_read_and_belongs_to_its_round() {
        let dir = tempfile::tempdir().unwrap();
        let mut cell = cell(Arch::Resnet18, 12, 10.0, &[4.0]);
        let mut steps = StepTimes::default();
        for (trial, measured) in cell.trials.iter().enumerate() {
            for round in &measured.rounds {
                steps.add(trial, round.began, vec![[0.1, trial as f64]; 2]);
            }
        }
        steps.write(&cell, dir.path()).unwrap();
        let back = StepTimes::read(&cell, dir.path());
        assert_eq!(back, steps);
        let round = cell.trials[1].rounds[3].clone();
        assert_eq!(back.of(1, &round), [[0.1, 1.0]; 2]);
        assert!(back.of(0, &round).is_empty(), "a round of another trial");

        // A pair that is measured again does not get the times of the round that it replaces.
        cell.trials[1].rounds[3].began += 5.0;
        assert!(back.of(1, &cell.trials[1].rounds[3]).is_empty());
        steps.write(&cell, dir.path()).unwrap();
        assert!(StepTimes::read(&cell, dir.path()).of(1, &round).is_empty());
    }

    #[test]
    fn a_file_that_is_absent_or_damaged_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let cell = cell(Arch::Resnet18, 12, 10.0, &[4.0]);
        assert_eq!(StepTimes::read(&cell, dir.path()), StepTimes::default());
        fs::create_dir(dir.path().join(FOLDER)).unwrap();
        fs::write(path(&cell, dir.path()), "{\"rounds\": [{\"trial\": -1}]}").unwrap();
        assert_eq!(StepTimes::read(&cell, dir.path()), StepTimes::default());
    }

    #[test]
    fn there_is_a_limit() {
        let mut steps = StepTimes::default();
        for round in 0..30 {
            steps.add(0, f64::from(round), vec![[0.0; 2]; 10_000]);
        }
        assert_eq!(steps.rounds.len(), MOST / 10_000);
    }
}
