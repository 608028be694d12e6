//! The probes that a tick reads: one per source of kernel counters, and one for the GPUs.
//!
//! A probe keeps its files open and remembers the counters of the previous tick. If a source is missing,
//! there is no probe, and the recording has no such series. If one reading fails, the tick has a gap.

mod cgroup;
mod cores;
mod gpus;
mod machine;
mod processes;

use crate::ProfileError;
use crate::system::{SeriesId, Writer};

pub(crate) use cgroup::{Cgroup, quota};
pub(crate) use cores::{Busy, Cores};
pub(crate) use gpus::Gpus;
pub(crate) use machine::{Disk, Memory, Network, Pressure};
pub(crate) use processes::Processes;
pub use processes::Tree;

/// The tick under construction, and the files that it is written to.
pub(crate) struct Board {
    writer: Writer,
    values: Vec<f64>,
}

impl Board {
    pub fn new(writer: Writer) -> Self {
        Self {
            writer,
            values: Vec::new(),
        }
    }

    /// Adds a series, also while recording.
    pub fn add(&mut self, kind: &str, name: &str, dimension: &str) -> SeriesId {
        self.values.push(f64::NAN);
        self.writer.series(kind, name, dimension)
    }

    /// Reuses a column for another series.
    pub fn replace(&mut self, place: SeriesId, kind: &str, name: &str, dimension: &str) {
        self.writer.replace(place, kind, name, dimension);
    }

    /// Sets the value of this tick; without a value the tick has a gap.
    pub fn set(&mut self, place: SeriesId, value: f64) {
        self.values[place.0] = value;
    }

    /// Writes the tick and begins the next.
    pub fn write(&mut self, time: f64) -> Result<(), ProfileError> {
        let written = self.writer.tick(time, &self.values);
        self.discard();
        written
    }

    /// Begins the next tick without writing this one.
    pub fn discard(&mut self) {
        self.values.fill(f64::NAN);
    }

    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    pub fn finish(self) -> Result<(), ProfileError> {
        self.writer.finish()
    }
}

/// Boards on temporary folders, for tests of probes.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::Recording;
    use crate::system::{Options, read_into};

    pub struct Fake {
        pub dir: tempfile::TempDir,
        pub board: Board,
        ticks: f64,
    }

    impl Fake {
        pub fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let writer = Writer::open(&dir.path().join("out"), Options::default()).unwrap();
            Self {
                dir,
                board: Board::new(writer),
                ticks: 1.6e9,
            }
        }

        pub fn root(&self) -> &Path {
            self.dir.path()
        }

        pub fn file(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub fn tick(&mut self) {
            self.ticks += 1.0;
            self.board.write(self.ticks).unwrap();
        }

        /// What the files say: values by `name dimension`, `None` where there is a gap.
        pub fn read(&mut self) -> BTreeMap<String, Vec<Option<f32>>> {
            self.board.writer().flush().unwrap();
            let mut recording = Recording::default();
            read_into(&self.dir.path().join("out"), &mut recording);
            assert_eq!(recording.problems, Vec::<String>::new());
            let series = recording.nodes.pop().map_or(Vec::new(), |node| node.series);
            let gap = |value: &f32| (!value.is_nan()).then_some(*value);
            series
                .into_iter()
                .map(|s| {
                    (
                        format!("{} {}", s.name, s.dimension),
                        s.values.iter().map(gap).collect(),
                    )
                })
                .collect()
        }
    }
}
