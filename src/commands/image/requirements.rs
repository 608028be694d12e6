//! What a script's `requirements.txt` and the files that it names ask for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::context::is_taken;
use crate::failure::Usage;

/// The file that is installed.
pub const FILE: &str = "requirements.txt";

/// The requirements of a script.
#[derive(Debug, Default)]
pub struct Requirements {
    /// The lines that name packages.
    packages: Vec<String>,
    /// The lines of constraints, which name versions of packages that something else asks for.
    constraints: Vec<String>,
    /// Whether it names something else of the folder: `-r more.txt`, `./package`.
    pub names_files: bool,
}

impl Requirements {
    /// Reads it; none if the image gets none.
    ///
    /// # Errors
    /// A file cannot be read, or names one that the image does not get.
    pub fn read(folder: &Path) -> Result<Option<Self>, Usage> {
        let first = PathBuf::from(FILE);
        if !is_taken(folder, &first) {
            return Ok(None);
        }
        let mut all = Self::default();
        // The files, and whether they are constraints.
        let mut files = vec![(first, false)];
        let mut seen = BTreeSet::new();
        while let Some((file, is_constraint)) = files.pop() {
            if !seen.insert((file.clone(), is_constraint)) {
                continue;
            }
            let path = folder.join(&file);
            let bytes = fs::read(&path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
            for line in String::from_utf8_lossy(&bytes).lines() {
                let line = line.split('#').next().unwrap_or_default().trim();
                let (option, value) = option(line);
                if is_of_folder(option, value) {
                    all.names_files = true;
                }
                let kind = match option {
                    "-r" | "--requirement" => Some(is_constraint),
                    "-c" | "--constraint" => Some(true),
                    _ => None,
                };
                match kind {
                    Some(_) if value.contains("://") => {}
                    Some(kind) => match beside(&file, value).filter(|named| is_taken(folder, named)) {
                        Some(named) => files.push((named, kind)),
                        None => {
                            return Err(Usage(format!(
                                "{}: {line}: this file does not come into the image; put it into {}, under a name that does not \
                                 begin with a dot",
                                path.display(),
                                folder.display()
                            )));
                        }
                    },
                    None if line.is_empty() || !option.is_empty() => {}
                    None if is_constraint => all.constraints.push(line.to_owned()),
                    None => all.packages.push(line.to_owned()),
                }
            }
        }
        Ok(Some(all))
    }

    /// A note about packages whose versions change from one build to the next.
    pub fn note(&self) -> Option<String> {
        let is_pinned = |line: &str| line.contains("==") || line.contains(" @ ");
        let constraints = self.constraints.iter().filter(|line| is_pinned(line));
        let pinned: BTreeSet<String> = constraints.map(|line| package(line)).collect();
        let mut seen = BTreeSet::new();
        let is_loose = |line: &&String| !is_pinned(line) && !pinned.contains(&package(line));
        let loose = self.packages.iter().filter(is_loose).map(String::as_str);
        let names: Vec<&str> = loose.filter(|line| seen.insert(*line)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "requirements.txt pins no version of {}; write NAME==VERSION, so that the next build has the same packages",
                names.join(", ")
            )
        })
    }
}

/// A line's option and its value, as pip takes them: `-r more.txt`, `-rmore.txt`, `--requirement=more.txt`. Without an option the
/// value is the line.
fn option(line: &str) -> (&str, &str) {
    let (option, value) = match line {
        line if line.starts_with("--") => line.split_once(['=', ' ']).unwrap_or((line, "")),
        line if line.starts_with('-') => line.split_at_checked(2).unwrap_or((line, "")),
        line => ("", line),
    };
    (option, value.trim_start_matches('=').trim())
}

/// Whether something of the folder is needed to install what a line says.
fn is_of_folder(option: &str, value: &str) -> bool {
    let is_packed = [".whl", ".gz", ".zip"].iter().any(|end| value.ends_with(end));
    let is_path = is_packed || value.starts_with('.') || value.contains('/');
    let is_beside = match option {
        "" => is_path,
        "-r" | "--requirement" | "-c" | "--constraint" | "-e" | "--editable" | "-f" | "--find-links" => true,
        _ => false,
    };
    is_beside && !value.contains("://")
}

/// The place below the script's folder of a file that another one names; none if it is outside.
fn beside(file: &Path, name: &str) -> Option<PathBuf> {
    let mut place = file.parent()?.to_owned();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => place.push(part),
            Component::CurDir => {}
            Component::ParentDir if place.pop() => {}
            _ => return None,
        }
    }
    Some(place)
}

/// The name of a line's package, as pip compares names.
fn package(line: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = line.split(|c| !is_name(c)).next().unwrap_or_default();
    name.to_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requirements of a folder with these files.
    fn read(files: &[(&str, &str)]) -> Result<Option<Requirements>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Requirements::read(folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn requirements_without_versions_are_named() {
        let note = |text: &str| read(&[(FILE, text)]).unwrap().unwrap().note();
        let said = note("torch==2.6.0\n# x\n--index-url y\nnumpy>=1\n\npillow # z\npillow\n").unwrap();
        assert!(said.contains("no version of numpy>=1, pillow;"), "{said}");
        assert_eq!(note("torch==2.6.0  # fine\nx @ https://host/x.whl\n"), None);
        assert!(read(&[]).unwrap().is_none() && read(&[("more.txt", "x")]).unwrap().is_none());
    }

    #[test]
    fn files_that_requirements_name_are_read_too() {
        let found = read(&[
            (FILE, "-r sub/more.txt\n--constraint=pins.txt\ntorch\nlate_one\n"),
            (
                "sub/more.txt",
                "-r../last.txt\n--requirement ./again.txt\nnumpy\n",
            ),
            (
                "sub/again.txt",
                "-r more.txt\n-c https://host/pins.txt\nPillow[x]>=1\n",
            ),
            ("last.txt", "scipy==1\nscikit-learn\n"),
            ("pins.txt", "torch==2.6.0\nlate.one==1\npillow<9\nnever\n"),
        ]);
        let found = found.unwrap().unwrap();
        assert!(found.names_files);
        let said = found.note().unwrap();
        for name in ["numpy", "Pillow[x]>=1", "scikit-learn"] {
            assert!(said.contains(name), "{said}");
        }
        for name in ["torch", "late", "scipy", "never"] {
            assert!(!said.contains(name), "{said}");
        }
    }

    #[test]
    fn files_that_the_image_lacks_are_refused() {
        for line in [
            "-r gone.txt",
            "-c .pins.txt",
            "-r ../more.txt",
            "-r /etc/passwd",
            "-r .more/pins.txt",
            "-r lib",
        ] {
            let files = [
                (FILE, line),
                (".pins.txt", ""),
                (".more/pins.txt", ""),
                ("lib/a.txt", ""),
            ];
            let error = read(&files).unwrap_err();
            assert!(error.contains(line) && error.contains(FILE), "{error}");
        }
    }

    #[test]
    fn what_needs_the_folder_is_told_apart() {
        let names_files = |line: &str| read(&[(FILE, line), ("a.txt", "")]).unwrap().unwrap().names_files;
        for line in [
            "-r a.txt",
            "-ca.txt",
            "./package",
            "wheels/x-1.whl",
            "x-1.whl",
            "-f wheels",
            "-e .",
        ] {
            assert!(names_files(line), "{line}");
        }
        for line in [
            "",
            "numpy==2.0",
            "x[extra]~=1.0 ; python_version < '4'",
            "--index-url https://host/simple",
            "--no-index",
            "-f https://host/x",
            "x @ https://host/x-1.whl",
            "git+https://host/x.git",
        ] {
            assert!(!names_files(line), "{line}");
        }
    }
}
