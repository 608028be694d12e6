//! Opens a recording, and reads the facts about it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stokehold_base::{regular, whole};

use crate::recording::{About, Recording};
use crate::{ProfileError, events, system};

/// The folder of a recording within that of a run.
pub const FOLDER: &str = "profiler-output";
/// How deep below a folder to search for its recording: a training job's is three folders deep.
pub(crate) const DEPTH: usize = 4;

impl Recording {
    /// Opens a recording: a run's folder, its `profiler-output`, or any folder with one recording's `system`
    /// or `framework` somewhere below it, written by any program.
    ///
    /// Damaged data is a gap, with an entry in [`problems`](Self::problems).
    ///
    /// # Errors
    /// [`ProfileError::NoRecording`] if there is none, or more than one.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        Self::open_since(path, 0.0)
    }

    /// As [`open`](Self::open), from about the time `since` on, unix seconds: files that ended before it are
    /// not read, so that a run can be followed while it grows.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_since(path: &Path, since: f64) -> Result<Self, ProfileError> {
        let folder = locate(path)?;
        let mut problems = Vec::new();
        let about = About::read(&folder).unwrap_or_else(|error| {
            problems.push(error.to_string());
            None
        });
        let mut recording = Self {
            path: folder.clone(),
            about,
            problems,
            ..Self::default()
        };
        system::read_since(&folder, since, &mut recording);
        events::read_since(&folder, since, &mut recording);
        recording.sort();
        Ok(recording)
    }
}

impl About {
    /// Reads `recording.json` of a recording's folder; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if it cannot be read, [`ProfileError::Malformed`] if it has another format.
    pub fn read(recording: &Path) -> Result<Option<Self>, ProfileError> {
        let path = recording.join(Self::FILE);
        match regular::read_small(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| ProfileError::Malformed {
                    path,
                    reason: format!("not the facts about a recording: {error}"),
                }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ProfileError::Io { path, source }),
        }
    }

    /// Writes `recording.json` to a temporary file and renames it, so that a reader sees the old or the new
    /// one.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if it cannot be written.
    pub fn write(&self, recording: &Path) -> Result<(), ProfileError> {
        let path = recording.join(Self::FILE);
        let work = || whole::write(&path, serde_json::to_vec_pretty(self)?);
        work().map_err(|source| ProfileError::Io {
            path: path.clone(),
            source,
        })
    }

    /// The name of the file.
    pub const FILE: &str = "recording.json";
}

/// The folder that holds a recording's `system` or `framework`.
fn locate(path: &Path) -> Result<PathBuf, ProfileError> {
    let failed = |reason: String| ProfileError::NoRecording {
        path: path.to_owned(),
        reason,
    };
    let data = fs::metadata(path).map_err(|error| {
        failed(match error.kind() {
            io::ErrorKind::NotFound => "there is no such folder".to_owned(),
            _ => error.to_string(),
        })
    })?;
    if !data.is_dir() {
        return Err(failed("a file; a recording is a folder".to_owned()));
    }
    let direct = [path.to_owned(), path.join(FOLDER)];
    if let Some(folder) = direct.into_iter().find(|folder| is_recording(folder)) {
        return Ok(folder);
    }
    let mut found = Vec::new();
    search(path, DEPTH, &mut found).map_err(|error| failed(error.to_string()))?;
    found.sort();
    match found.len() {
        0 => Err(failed(
            "nothing below it is named system or framework, as a recording has it".to_owned(),
        )),
        1 => Ok(found.remove(0)),
        more => Err(failed(format!(
            "{more} recordings lie below it; name one, such as {}",
            found[0].display()
        ))),
    }
}

fn is_recording(folder: &Path) -> bool {
    ["system", "framework"]
        .iter()
        .any(|name| folder.join(name).is_dir())
        || folder.join(About::FILE).is_file()
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A link might lead back up.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if is_recording(&path) {
            found.push(path);
        } else if depth > 1 {
            search(&path, depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::system::{Options, Writer};

    fn record(folder: &Path) {
        let mut writer = Writer::open(folder, Options::default()).unwrap();
        for core in [10, 2] {
            writer.series("cpu", &format!("cpu{core}"), "CPUUtilization");
        }
        writer.tick(1.6e9, &[1.0, 2.0]).unwrap();
        writer.finish().unwrap();
    }

    fn about() -> About {
        About {
            stokehold: "0.1.0".to_owned(),
            command: vec!["python3".to_owned(), "train.py".to_owned()],
            started: 1.6e9,
            ended: Some(1.6e9 + 60.25),
            exit_code: Some(0),
            interval_ms: 500,
            machine: Machine::here(),
            workload: None,
            paused: None,
            idle_seconds: 0.0,
            notes: vec!["no NVML".to_owned()],
        }
    }

    #[test]
    fn a_recording_is_found_from_any_folder_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("jobs/one/profiler-output");
        record(&folder);
        about().write(&folder).unwrap();
        for path in [
            &folder,
            &dir.path().join("jobs/one"),
            &dir.path().join("jobs"),
            dir.path(),
        ] {
            let recording = Recording::open(path).unwrap();
            assert_eq!(recording.path, folder);
            assert_eq!(recording.about, Some(about()));
            assert_eq!(recording.problems, Vec::<String>::new());
            let names: Vec<_> = recording.nodes[0]
                .series
                .iter()
                .map(|series| &series.name)
                .collect();
            assert_eq!(names, ["cpu2", "cpu10"]);
        }
        record(&dir.path().join("jobs/two/profiler-output"));
        let error = Recording::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("2 recordings") && error.contains("jobs/one"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_recording_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| Recording::open(path).unwrap_err().to_string();
        assert!(message(dir.path()).contains("nothing below it"));
        assert!(message(&dir.path().join("none")).contains("there is no such folder"));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(message(&file).contains("a file"));
    }

    #[test]
    fn facts_of_another_form_are_a_problem_and_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path());
        for text in ["", "[]", "{\"stokehold\":9}"] {
            fs::write(dir.path().join(About::FILE), text).unwrap();
            let recording = Recording::open(dir.path()).unwrap();
            assert_eq!(recording.about, None);
            assert!(
                recording.problems[0].contains("recording.json"),
                "{:?}",
                recording.problems
            );
            assert_eq!(recording.nodes[0].ticks, [1.6e9]);
        }
        // A later version may know more.
        let mut json = serde_json::to_value(about()).unwrap();
        json["future"] = 1.into();
        fs::write(dir.path().join(About::FILE), json.to_string()).unwrap();
        assert_eq!(Recording::open(dir.path()).unwrap().about, Some(about()));
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_regular_file_keeps_no_reader_waiting() {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path());
        let hour = dir.path().join("system/incremental/2020091312");
        let fifos = [
            hour.join("1600000060.algo-1.json"),
            hour.join("1600000120.algo-1.json.gz"),
            dir.path().join(About::FILE),
        ];
        for path in &fifos {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }
        let socket = hour.join("1600000180.algo-1.json");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let framework = dir.path().join("framework");
        fs::create_dir(&framework).unwrap();
        std::os::unix::fs::symlink(&fifos[0], framework.join("a.timeline")).unwrap();
        // On another thread: a reader that waits must not keep the test waiting.
        let (done, wait) = std::sync::mpsc::channel();
        let folder = dir.path().to_owned();
        std::thread::spawn(move || done.send(Box::new(Recording::open(&folder).unwrap())));
        let limit = std::time::Duration::from_secs(60);
        let recording = wait.recv_timeout(limit).expect("the reader waits for a writer");
        assert_eq!(recording.nodes[0].ticks, [1.6e9]);
        assert_eq!(recording.problems.len(), 4, "{:?}", recording.problems);
        for path in fifos.iter().chain([&socket]) {
            let problem = recording
                .problems
                .iter()
                .find(|problem| problem.starts_with(&format!("{}:", path.display())));
            assert!(problem.unwrap().contains("no regular file"), "{problem:?}");
        }
    }
}
