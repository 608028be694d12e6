//! What ranks tell each other before they train: that they are of one run, and the state that they begin with.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stokehold_profile::Machine;
use stokehold_ranks::{Ranks, RanksError};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::run::DatasetFacts;

/// A rank of a run, as its record has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    /// The rank, from 0.
    pub rank: usize,
    /// The name of its machine.
    pub host: String,
    /// Its machine.
    pub machine: Machine,
    /// Its device.
    pub device: String,
}

/// What all ranks have in common.
#[derive(Serialize, Deserialize)]
struct Identity {
    version: String,
    config: TrainConfig,
    dataset: DatasetFacts,
    /// Whether an existing run is continued.
    resumes: bool,
}

/// Checks that all ranks train the same run.
pub(crate) fn agree(
    ranks: &Ranks,
    config: &TrainConfig,
    dataset: &DatasetFacts,
    resumes: bool,
) -> Result<(), TrainError> {
    if ranks.are_alone() {
        return Ok(());
    }
    let all: Vec<Identity> = gather(
        ranks,
        &Identity {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: config.clone(),
            dataset: dataset.clone(),
            resumes,
        },
    )?;
    let mut differences = Vec::new();
    let (first, others) = all.split_first().ok_or(RanksError::Ended)?;
    for (rank, other) in (1..).zip(others) {
        let host = &ranks.hosts()[rank];
        let mut differs = |what: &str, theirs: &str, of_first: &str| {
            differences.push(format!(
                "rank {rank} on {host}: {what} is {theirs}, and rank 0's is {of_first}"
            ));
        };
        if first.version != other.version {
            differs("its version of Stokehold", &other.version, &first.version);
        }
        if first.resumes != other.resumes {
            differs("--resume", &other.resumes.to_string(), &first.resumes.to_string());
        }
        let fields = first.config.differences(&other.config);
        for (field, values) in fields.map_err(|error| RanksError::Unequal(error.to_string()))? {
            match values {
                Some([of_first, theirs]) => differs(&field, &theirs, &of_first),
                None => differs(&field, "another one", "not"),
            }
        }
        let (of_first, theirs) = (&first.dataset, &other.dataset);
        if of_first.train != theirs.train {
            differs(
                "the number of its training images",
                &theirs.train.to_string(),
                &of_first.train.to_string(),
            );
        } else if of_first.val != theirs.val {
            let count = |val: Option<usize>| val.map_or("none".to_owned(), |count| count.to_string());
            differs(
                "the number of its validation images",
                &count(theirs.val),
                &count(of_first.val),
            );
        } else if of_first != theirs {
            differs(
                "the hash of its images' names and classes",
                &theirs.names,
                &of_first.names,
            );
        }
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(TrainError::Disagree { differences }),
    }
}

/// What rank 0 has; the others' is ignored.
pub(crate) fn share<T: Clone + Serialize + DeserializeOwned>(
    ranks: &Ranks,
    own: Option<&T>,
) -> Result<T, RanksError> {
    let bytes = match own.filter(|_| ranks.is_first()) {
        Some(own) if ranks.are_alone() => return Ok(own.clone()),
        Some(own) => serde_json::to_vec(own).map_err(unequal)?,
        None => Vec::new(),
    };
    serde_json::from_slice(&ranks.broadcast(bytes)?).map_err(unequal)
}

/// What every rank has, in order.
pub(crate) fn gather<T: Serialize + DeserializeOwned>(ranks: &Ranks, own: &T) -> Result<Vec<T>, RanksError> {
    let own = serde_json::to_vec(own).map_err(unequal)?;
    let all = ranks.gather(own)?;
    all.iter()
        .map(|bytes| serde_json::from_slice(bytes).map_err(unequal))
        .collect()
}

/// Ranks of other versions.
fn unequal(error: serde_json::Error) -> RanksError {
    RanksError::Unequal(format!("what they tell each other cannot be read: {error}"))
}

/// A folder that is removed when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Next to other temporary files; `TMPDIR` says where.
    pub(crate) fn new() -> Result<Self, TrainError> {
        let mut number = 0;
        let path = loop {
            let name = format!("stokehold-ranks-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            // What ranks send each other is no one else's.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(TrainError::Io { path, source }),
            }
        };
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is a temporary file.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files of a folder without folders, as bytes: a line of JSON with their names and sizes, and then the files.
pub(crate) fn pack(folder: &Path) -> io::Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, fs::read(entry.path())?);
    }
    let sizes: BTreeMap<_, _> = files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
    let mut packed = serde_json::to_vec(&sizes)?;
    packed.push(b'\n');
    packed.extend(files.into_values().flatten());
    Ok(packed)
}

/// Writes what [`pack`] has read to a folder.
pub(crate) fn unpack(packed: &[u8], folder: &Path) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "what rank 0 has sent is damaged");
    let line = packed
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or_else(damaged)?;
    let sizes: BTreeMap<String, usize> = serde_json::from_slice(&packed[..line])?;
    fs::create_dir_all(folder)?;
    let mut rest = &packed[line + 1..];
    for (name, size) in sizes {
        let (bytes, behind) = rest.split_at_checked(size).ok_or_else(damaged)?;
        let name = Path::new(&name).file_name().ok_or_else(damaged)?;
        fs::write(folder.join(name), bytes)?;
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_same_on_the_other_side() {
        let (from, to) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        for (name, bytes) in [("one", &b"\n\n"[..]), ("two", &[]), ("three", &[0; 1000])] {
            fs::write(from.path().join(name), bytes).unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&to.path().metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        let packed = pack(from.path()).unwrap();
        unpack(&packed, to.path()).unwrap();
        assert_eq!(pack(to.path()).unwrap(), packed);
        let path = to.path().to_owned();
        drop(to);
        assert!(!path.exists());
        for cut in [0, 3, packed.len() - 1] {
            assert!(unpack(&packed[..cut], from.path()).is_err());
        }
    }
}
