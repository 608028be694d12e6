//! Checkpoints: folders that exist completely or not at all.
//!
//! ```text
//! checkpoints/epoch-0002-step-00000640/model.safetensors       weights and running statistics, torchvision's names
//!                                      optimizer.safetensors   the optimiser's state
//!                                      ema.safetensors         the moving average of the weights, if there is one
//!                                      progress.json           everything else
//!                                      checksums.json          the CRC-32 of each of the others
//! ```
//!
//! The files are written to a hidden folder and flushed to disk; only then the folder gets its name. If there
//! is a crash or a full disk before that, the hidden folder remains until the next run removes it, and all
//! earlier checkpoints are unchanged. The search for the latest checkpoint skips and reports a folder with
//! files that are missing, truncated or changed (an interrupted copy, a failing disk).
//!
//! Numbers are saved to the bit, and nothing else of a run has state: the learning rate is a function of the
//! step, and every random draw is a function of seed, epoch and sample.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use stokehold_base::regular;
use stokehold_base::there::if_there;
use stokehold_base::whole::{self, sync_folder};

use crate::ema::Ema;
use crate::infer::ModelFacts;
use crate::model::Network;
use crate::optim::{Optimizer, OptimizerConfig};
use crate::progress::Progress;
use crate::weights;

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Writing failed, for example because the disk is full.
    #[error(
        "cannot write the checkpoint {}: {source}; {}",
        path.display(),
        match intact {
            Some(earlier) => format!("the one before is intact: {}; make room and resume the run", earlier.display()),
            None => "there is none before it; make room and start again".to_owned(),
        }
    )]
    Write {
        /// The folder that was to be written.
        path: PathBuf,
        /// The latest complete checkpoint.
        intact: Option<PathBuf>,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading failed.
    #[error("cannot read the checkpoint {}: {source}", path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The checkpoints could not be listed, or old ones could not be removed.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The checkpoints of one run.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    /// Checkpoints that were found damaged; they do not count towards the number to keep.
    damaged: Vec<String>,
    /// The metadata of the models' files.
    metadata: BTreeMap<String, String>,
}

/// The checkpoint to continue from.
#[derive(Debug, Default)]
pub struct Latest {
    /// The latest complete checkpoint, and its progress.
    pub whole: Option<(PathBuf, Progress)>,
    /// Damaged checkpoints after it, latest first: the folder of each, and what is wrong with it.
    pub damaged: Vec<(PathBuf, String)>,
}

impl Latest {
    /// A warning for each damaged checkpoint.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let instead = match &self.whole {
            Some((path, _)) => format!("continues from the one before, {}", path.display()),
            None => "starts from the beginning, because no checkpoint is whole".to_owned(),
        };
        self.damaged.iter().map(move |(path, reason)| {
            format!(
                "the checkpoint {} is damaged ({reason}); the run {instead}",
                path.display()
            )
        })
    }
}

const EMA: &str = "ema.safetensors";
const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const PROGRESS: &str = "progress.json";
const CHECKSUMS: &str = "checksums.json";
/// The prefix of a folder that is being written.
const UNFINISHED: &str = ".writing-";

impl Checkpoints {
    /// The checkpoints in `folder`, which the first one creates. The latest `keep`, at least 1, and the best
    /// one are kept. Removes what an earlier process left half-written.
    ///
    /// # Errors
    /// If the folder exists and cannot be listed or cleaned up.
    pub fn open(folder: PathBuf, keep: usize) -> Result<Self, CheckpointError> {
        let checkpoints = Self {
            folder,
            keep: keep.max(1),
            damaged: Vec::new(),
            metadata: BTreeMap::new(),
        };
        for name in checkpoints.names()? {
            if name.starts_with(UNFINISHED) {
                checkpoints.remove(&name)?;
            }
        }
        Ok(checkpoints)
    }

    /// The same; the models' files will say these facts, so that each of them suffices for predictions.
    #[must_use]
    pub fn describing(mut self, facts: &ModelFacts) -> Self {
        self.metadata = facts.metadata();
        self
    }

    /// Writes a checkpoint, then removes old ones. Returns its folder.
    ///
    /// # Errors
    /// If the file system or the device fails. Earlier checkpoints stay complete.
    pub fn save(
        &mut self,
        model: &Network,
        optimizer: &Optimizer,
        ema: Option<&Ema<Network>>,
        progress: &Progress,
    ) -> Result<PathBuf, CheckpointError> {
        let name = name_of(progress.epochs.len() as u64, progress.step);
        let path = self.folder.join(&name);
        let unfinished = self.folder.join(format!("{UNFINISHED}{name}"));
        if let Err(source) = self.write(&unfinished, &path, (model, optimizer, ema), progress) {
            // If this fails, the next run removes it; report the first error.
            let _ = fs::remove_dir_all(&unfinished);
            let intact = self.look().ok().and_then(|latest| latest.whole);
            let intact = intact.map(|(path, _)| path);
            return Err(CheckpointError::Write { path, intact, source });
        }
        // The damaged checkpoint of this name is gone.
        self.damaged.retain(|damaged| *damaged != name);
        self.prune(progress)?;
        Ok(path)
    }

    /// The latest complete checkpoint, and the damaged ones after it. Reads all of their bytes.
    ///
    /// # Errors
    /// If the folder exists and cannot be listed.
    pub fn latest(&mut self) -> Result<Latest, CheckpointError> {
        let latest = self.look()?;
        let names = latest.damaged.iter().filter_map(|(path, _)| path.file_name());
        self.damaged = names.map(|name| name.to_string_lossy().into_owned()).collect();
        Ok(latest)
    }

    fn look(&self) -> Result<Latest, CheckpointError> {
        let mut latest = Latest::default();
        for name in self.ordered()?.into_iter().rev() {
            let path = self.folder.join(name);
            match read_whole(&path) {
                Ok(progress) => {
                    latest.whole = Some((path, progress));
                    break;
                }
                Err(reason) => latest.damaged.push((path, reason)),
            }
        }
        Ok(latest)
    }

    fn write(
        &self,
        unfinished: &Path,
        path: &Path,
        (model, optimizer, ema): (&Network, &Optimizer, Option<&Ema<Network>>),
        progress: &Progress,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        fs::create_dir_all(unfinished)?;
        weights::save_safetensors(model, &unfinished.join(MODEL), self.metadata.clone())?;
        optimizer.save(&unfinished.join(OPTIMIZER))?;
        if let Some(ema) = ema {
            weights::save_safetensors(ema.model(), &unfinished.join(EMA), self.metadata.clone())?;
        }
        whole::write(&unfinished.join(PROGRESS), serde_json::to_vec_pretty(progress)?)?;
        let mut checksums = BTreeMap::new();
        for name in ema.map(|_| EMA).into_iter().chain([MODEL, OPTIMIZER, PROGRESS]) {
            checksums.insert(name, crc32(&unfinished.join(name))?);
        }
        whole::write(
            &unfinished.join(CHECKSUMS),
            serde_json::to_vec_pretty(&checksums)?,
        )?;
        sync_folder(unfinished)?;
        if path.exists() {
            // This name belongs only to a damaged checkpoint, or to one that this run was not resumed from.
            fs::remove_dir_all(path)?;
        }
        fs::rename(unfinished, path)?;
        sync_folder(&self.folder)?;
        Ok(())
    }

    fn prune(&self, progress: &Progress) -> Result<(), CheckpointError> {
        let best = progress.best.map(|best| name_of(best.epoch, best.step));
        let place = (progress.epochs.len() as u64, progress.step);
        // Later ones are damaged, or the run would have continued from them; they must not push out complete
        // ones.
        let is_whole = |name: &String| numbers_of(name) <= Some(place) && !self.damaged.contains(name);
        let (names, damaged): (Vec<_>, Vec<_>) = self.ordered()?.into_iter().partition(is_whole);
        let old = names.len().saturating_sub(self.keep);
        let old = names[..old].iter().filter(|&name| Some(name) != best.as_ref());
        for name in old.chain(&damaged) {
            self.remove(name)?;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        let path = self.folder.join(name);
        fs::remove_dir_all(&path).map_err(|source| CheckpointError::Folder { path, source })
    }

    /// The names of checkpoints, oldest first.
    fn ordered(&self) -> Result<Vec<String>, CheckpointError> {
        let mut named: Vec<_> = self
            .names()?
            .into_iter()
            .filter_map(|name| Some((numbers_of(&name)?, name)))
            .collect();
        named.sort();
        Ok(named.into_iter().map(|(_, name)| name).collect())
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let failed = |source| CheckpointError::Folder {
            path: self.folder.clone(),
            source,
        };
        let Some(entries) = if_there(fs::read_dir(&self.folder)).map_err(failed)? else {
            return Ok(Vec::new());
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect::<io::Result<_>>().map_err(failed)
    }
}

/// Loads a checkpoint except for its progress: the weights into `model`, and the optimiser's state.
///
/// # Errors
/// If a file cannot be read or belongs to another model or optimiser.
pub fn load(
    path: &Path,
    model: Network,
    optimizer: OptimizerConfig,
    device: &Device,
) -> Result<(Network, Optimizer), CheckpointError> {
    let failed = |source| CheckpointError::Read {
        path: path.to_owned(),
        source,
    };
    let (model, loaded) =
        weights::load_weights(model, &path.join(MODEL)).map_err(|error| failed(error.into()))?;
    if let Some(classes) = loaded.replaced_head {
        return Err(failed(format!("its model is for {classes} classes").into()));
    }
    let optimizer =
        Optimizer::load(optimizer, &path.join(OPTIMIZER), device).map_err(|error| failed(error.into()))?;
    Ok((model, optimizer))
}

/// The moving average of a checkpoint of this model.
///
/// # Errors
/// If the file cannot be read or belongs to another model.
pub fn load_ema(path: &Path, model: &Network) -> Result<Ema<Network>, CheckpointError> {
    let loaded = weights::load_weights(model.valid(), &path.join(EMA));
    let (model, _) = loaded.map_err(|error| CheckpointError::Read {
        path: path.to_owned(),
        source: error.into(),
    })?;
    Ok(Ema::new(&model))
}

/// Epochs come first for readability; both numbers only increase.
fn name_of(epochs: u64, step: u64) -> String {
    format!("epoch-{epochs:04}-step-{step:08}")
}

fn numbers_of(name: &str) -> Option<(u64, u64)> {
    let (epochs, step) = name.strip_prefix("epoch-")?.split_once("-step-")?;
    Some((epochs.parse().ok()?, step.parse().ok()?))
}

/// The progress of a checkpoint that must be whole.
pub(crate) fn progress(path: &Path) -> Result<Progress, CheckpointError> {
    read_whole(path).map_err(|reason| CheckpointError::Read {
        path: path.to_owned(),
        source: reason.into(),
    })
}

/// The progress in a checkpoint, or what is wrong with it.
fn read_whole(path: &Path) -> Result<Progress, String> {
    let failed = |name: &str, error: io::Error| format!("{name}: {error}");
    let checksums: BTreeMap<String, u32> = regular::read(&path.join(CHECKSUMS))
        .and_then(|text| Ok(serde_json::from_slice(&text)?))
        .map_err(|error| failed(CHECKSUMS, error))?;
    // Not every run has an average.
    let names = checksums.keys().filter(|name| *name != EMA);
    if !names.eq([MODEL, OPTIMIZER, PROGRESS]) {
        return Err(format!("{CHECKSUMS}: it names other files than a checkpoint has"));
    }
    for (name, &written) in &checksums {
        let now = crc32(&path.join(name)).map_err(|error| failed(name, error))?;
        if now != written {
            return Err(format!(
                "{name}: its checksum is {now:08x}, and was {written:08x} when it was written"
            ));
        }
    }
    regular::read(&path.join(PROGRESS))
        .and_then(|text| Ok(serde_json::from_slice(&text)?))
        .map_err(|error| failed(PROGRESS, error))
}

fn crc32(path: &Path) -> io::Result<u32> {
    let mut file = regular::open(path)?;
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Arch;
    use crate::progress::Best;

    fn progress(epochs: u64, step: u64) -> Progress {
        let record = |epoch| crate::progress::EpochRecord {
            epoch,
            step: epoch * 10,
            lr: 0.1,
            sums: Default::default(),
            validation: None,
            ema: None,
        };
        Progress {
            step,
            epochs: (1..=epochs).map(record).collect(),
            ..Progress::default()
        }
    }

    fn parts() -> (Network, Optimizer) {
        let device = Device::flex().autodiff();
        let model = Network::new(Arch::Resnet18, 2, 1, &device);
        (model, Optimizer::new(OptimizerConfig::SGD).unwrap())
    }

    /// The latest whole checkpoint and its step.
    fn whole(checkpoints: &mut Checkpoints) -> (PathBuf, u64) {
        let (path, progress) = checkpoints.latest().unwrap().whole.unwrap();
        (path, progress.step)
    }

    /// Saves after each of these epochs of 10 steps; the first was the best.
    fn save_with_the_first_as_best(checkpoints: &mut Checkpoints, epochs: std::ops::RangeInclusive<u64>) {
        let (model, optimizer) = parts();
        for epoch in epochs {
            let best = Some(Best { epoch: 1, step: 10 });
            let progress = Progress {
                best,
                ..progress(epoch, epoch * 10)
            };
            checkpoints.save(&model, &optimizer, None, &progress).unwrap();
        }
    }

    #[test]
    fn the_last_and_the_best_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        assert!(checkpoints.latest().unwrap().whole.is_none());
        save_with_the_first_as_best(&mut checkpoints, 1..=4);
        let names = checkpoints.ordered().unwrap();
        assert_eq!(names, [name_of(1, 10), name_of(3, 30), name_of(4, 40)]);
        assert_eq!(whole(&mut checkpoints).1, 40);
    }

    #[test]
    fn skips_damaged_checkpoints_and_removes_half_written_ones() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_owned();
        let mut checkpoints = Checkpoints::open(folder.clone(), 9).unwrap();
        let (model, optimizer) = parts();
        let first = checkpoints
            .save(&model, &optimizer, None, &progress(0, 5))
            .unwrap();
        let second = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        fs::create_dir(folder.join(".writing-epoch-0002-step-00000020")).unwrap();
        fs::create_dir(folder.join("epoch-0003-step-00000030")).unwrap();
        fs::File::options()
            .write(true)
            .open(second.join(MODEL))
            .unwrap()
            .set_len(1000)
            .unwrap();

        let mut checkpoints = Checkpoints::open(folder.clone(), 9).unwrap();
        assert_eq!(whole(&mut checkpoints), (first, 5));
        let warnings: Vec<_> = checkpoints.latest().unwrap().warnings().collect();
        let named = |warning: &String, parts: [&str; 2]| parts.iter().all(|part| warning.contains(part));
        assert!(
            named(&warnings[0], ["epoch-0003-step-00000030", "checksums.json"]),
            "{warnings:?}"
        );
        assert!(
            named(&warnings[1], ["epoch-0001-step-00000010", "model.safetensors"]),
            "{warnings:?}"
        );
        assert!(!folder.join(".writing-epoch-0002-step-00000020").exists());
        // The run continues and comes to the broken one's name again.
        let again = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        assert_eq!(whole(&mut checkpoints), (again, 10));
        assert!(checkpoints.latest().unwrap().damaged.is_empty());
    }

    /// Turns one bit in the middle of a file.
    fn damage(file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
    }

    #[test]
    fn one_bit_in_any_file_is_found_and_the_one_before_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().to_owned(), 9).unwrap();
        let (model, optimizer) = parts();
        let first = checkpoints
            .save(&model, &optimizer, None, &progress(0, 5))
            .unwrap();
        let second = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        for name in [MODEL, OPTIMIZER, PROGRESS, CHECKSUMS] {
            damage(&second.join(name));
            assert_eq!(whole(&mut checkpoints), (first.clone(), 5), "{name}");
            let warning = checkpoints.latest().unwrap().warnings().next().unwrap();
            // If the list of names is damaged, the file cannot be identified.
            let file = if name == CHECKSUMS { "damaged" } else { name };
            for part in [&*second.to_string_lossy(), file, &*first.to_string_lossy()] {
                assert!(warning.contains(part), "{part} is not in: {warning}");
            }
            damage(&second.join(name));
            assert_eq!(whole(&mut checkpoints), (second.clone(), 10), "{name}");
        }
        fs::remove_file(second.join(CHECKSUMS)).unwrap();
        assert_eq!(whole(&mut checkpoints), (first.clone(), 5));
        fs::write(first.join(MODEL), "short").unwrap();
        let latest = checkpoints.latest().unwrap();
        assert_eq!((latest.whole, latest.damaged.len()), (None, 2));
    }

    #[test]
    fn a_damaged_checkpoint_does_not_push_out_whole_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().to_owned(), 1).unwrap();
        let (model, optimizer) = parts();
        let late = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        damage(&late.join(MODEL));
        // The run went on from an earlier one and was interrupted before it came so far again.
        let early = checkpoints
            .save(&model, &optimizer, None, &progress(0, 7))
            .unwrap();
        assert_eq!(whole(&mut checkpoints), (early, 7));
        assert!(!late.exists());
    }

    #[test]
    fn a_list_of_checksums_that_names_other_files_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().to_owned(), 2).unwrap();
        let (model, optimizer) = parts();
        let folder = checkpoints
            .save(&model, &optimizer, None, &progress(0, 5))
            .unwrap();
        for text in [
            "{}",
            r#"{"../../../../../../dev/zero": 1}"#,
            r#"{"model.safetensors": 1}"#,
        ] {
            fs::write(folder.join(CHECKSUMS), text).unwrap();
            let latest = checkpoints.latest().unwrap();
            assert_eq!((latest.whole, latest.damaged.len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn a_checkpoint_that_is_written_anew_is_damaged_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().to_owned(), 2).unwrap();
        let (model, optimizer) = parts();
        let first = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        damage(&first.join(OPTIMIZER));
        assert!(checkpoints.latest().unwrap().whole.is_none());
        // The run comes to it again, and on to the next two.
        save_with_the_first_as_best(&mut checkpoints, 1..=3);
        let names = checkpoints.ordered().unwrap();
        assert_eq!(names, [name_of(1, 10), name_of(2, 20), name_of(3, 30)]);
    }

    #[test]
    fn a_damaged_checkpoint_that_is_passed_is_not_counted_among_those_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::open(dir.path().to_owned(), 2).unwrap();
        let (model, optimizer) = parts();
        let first = checkpoints
            .save(&model, &optimizer, None, &progress(0, 5))
            .unwrap();
        let second = checkpoints
            .save(&model, &optimizer, None, &progress(1, 10))
            .unwrap();
        damage(&second.join(MODEL));
        assert_eq!(whole(&mut checkpoints), (first.clone(), 5));
        // The next is beyond both.
        let third = checkpoints
            .save(&model, &optimizer, None, &progress(2, 20))
            .unwrap();
        assert!(first.exists() && !second.exists() && third.exists());
    }

    #[test]
    fn an_unwritable_folder_is_an_error_that_names_the_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("checkpoints");
        fs::write(&file, "a file").unwrap();
        let (model, optimizer) = parts();
        let mut checkpoints = Checkpoints {
            folder: file,
            keep: 1,
            damaged: Vec::new(),
            metadata: BTreeMap::new(),
        };
        let error = checkpoints
            .save(&model, &optimizer, None, &progress(0, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("epoch-0000-step-00000001"), "{error}");
        assert!(error.contains("there is none before it"), "{error}");
    }
}
