//! The files of an image's context.

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stokehold_base::whole;
use stokehold_jobs::EntryPoint;
use stokehold_sagemaker::Stays;

use super::requirements::Requirements;
use crate::failure::Usage;
use crate::files::named;

/// The images that others are built on, by version. A tag can be moved; docs/image.md says how to pin a digest.
const DEBIAN: &str = "debian:12.11-slim";
const PYTHON: &str = "python:3.12.11-slim-bookworm";

/// A folder that is deeper is taken for a link to itself.
const DEEPEST: usize = 64;

/// A script and the package that it uses.
pub struct Script<'a> {
    folder: &'a Path,
    entry_point: &'a str,
    wheel: &'a Path,
    requirements: Option<Requirements>,
}

impl<'a> Script<'a> {
    /// # Errors
    /// The entry point is no Python file that the image gets, the wheel is none of the package, or the requirements name a file that
    /// the image does not get.
    pub fn new(folder: &'a Path, entry_point: &'a EntryPoint, wheel: &'a Path) -> Result<Self, Usage> {
        let EntryPoint::Python(file) = entry_point else {
            return Err(Usage(format!(
                "--entry-point {}: is no .py file; a script of another language wants a Dockerfile of its own, with the entry \
                 point of this one",
                entry_point.name()
            )));
        };
        if !is_taken(folder, Path::new(file)) {
            return Err(Usage(format!(
                "--entry-point {file}: is not in {}, or is hidden there; an image gets no hidden files, links to them and job files",
                folder.display()
            )));
        }
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        if !wheel.is_file() || !name.starts_with("stokehold-") || !name.ends_with(".whl") {
            return Err(Usage(format!(
                "--wheel {}: is no wheel of the package stokehold; `python/build` of Stokehold's repository makes one",
                wheel.display()
            )));
        }
        // It is written into the Dockerfile.
        for (option, text) in [("--wheel", &*name), ("--entry-point", file.as_str())] {
            let fine = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
            if !text.chars().all(fine) {
                return Err(Usage(format!(
                    "{option} {text}: has characters other than letters, digits and . _ + - /"
                )));
            }
        }
        Ok(Self {
            folder,
            entry_point: file,
            wheel,
            requirements: Requirements::read(folder)?,
        })
    }
}

/// A Dockerfile and what it copies.
pub struct Context<'a> {
    base: String,
    script: Option<Script<'a>>,
}

impl<'a> Context<'a> {
    /// # Errors
    /// The base image's name cannot stand in a Dockerfile.
    pub fn new(base: Option<&str>, script: Option<Script<'a>>) -> Result<Self, Usage> {
        let usual = if script.is_some() { PYTHON } else { DEBIAN };
        let base = base.unwrap_or(usual);
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
        let tag = base.rsplit('/').next().unwrap_or_default();
        if base.starts_with('-')
            || !base.chars().all(fine)
            || !tag.contains([':', '@'])
            || tag.ends_with(":latest")
        {
            return Err(Usage(format!(
                "--base {base}: is no image with a version; give one as {usual}, or with its digest, as NAME@sha256:.."
            )));
        }
        Ok(Self {
            base: base.to_owned(),
            script,
        })
    }

    /// Writes it. Returns what its user should know, a sentence each.
    ///
    /// # Errors
    /// The folder is not empty; a file cannot be read or written.
    pub fn write(&self, dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
        fs::create_dir_all(dir).map_err(|error| named(dir, &error))?;
        if fs::read_dir(dir)
            .map_err(|error| named(dir, &error))?
            .next()
            .is_some()
        {
            let text = format!(
                "{} is not empty; give another folder, which is made",
                dir.display()
            );
            return Err(Usage(text).into());
        }
        let code = dir.join("code");
        let mut notes = Vec::new();
        match &self.script {
            None => {
                let program = env::current_exe()?;
                copy_file(&program, &dir.join("stokehold"))?;
                fs::create_dir(&code).map_err(|error| named(&code, &error))?;
                write(&code.join("train.sh"), include_str!("train.sh"))?;
                write(&dir.join("job.toml"), include_str!("trainer.toml"))?;
            }
            Some(script) => {
                let mut left_out = Vec::new();
                copy_code(script.folder, Path::new(""), &code, dir, &mut left_out)?;
                if !left_out.is_empty() {
                    let names: Vec<String> = left_out.iter().map(|path| path.display().to_string()).collect();
                    notes.push(format!(
                        "hidden files, links to them, caches and job files are left out of the image: {}",
                        names.join(", ")
                    ));
                }
                let name = script.wheel.file_name().unwrap_or_default();
                copy_file(script.wheel, &dir.join(name))?;
                let job = include_str!("script.toml").replace("{entry point}", script.entry_point);
                write(&dir.join("job.toml"), &job)?;
                notes.extend(script.requirements.as_ref().and_then(Requirements::note));
            }
        }
        write(&dir.join(".dockerignore"), include_str!("dockerignore"))?;
        // Last: a folder that has it is complete.
        write(&dir.join("Dockerfile"), &self.dockerfile())?;
        Ok(notes)
    }

    fn dockerfile(&self) -> String {
        let Some(script) = &self.script else {
            return include_str!("trainer.Dockerfile").replace("{base}", &self.base);
        };
        let requirements = match &script.requirements {
            // From its folder, which paths in it start at.
            Some(requirements) if requirements.names_files => {
                "COPY code /tmp/code\n\
                 RUN cd /tmp/code && pip install --no-cache-dir --requirement requirements.txt\n"
            }
            // It alone, so that a change of the script does not install everything again.
            Some(_) => {
                "COPY code/requirements.txt /tmp/requirements.txt\n\
                 RUN pip install --no-cache-dir --requirement /tmp/requirements.txt\n"
            }
            None => "",
        };
        include_str!("script.Dockerfile")
            .replace("{base}", &self.base)
            .replace(
                "{wheel}",
                &script.wheel.file_name().unwrap_or_default().to_string_lossy(),
            )
            .replace("{requirements}\n", requirements)
            .replace("{entry point}", script.entry_point)
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    whole::write(path, text).map_err(|error| named(path, &error))
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop).map_err(|error| named(from, &error))
}

/// Whether an image gets a file of a script's folder.
pub fn is_taken(folder: &Path, file: &Path) -> bool {
    let stays = |part: &Path| Stays::of(&folder.join(part), folder, &[]).is_some();
    let mut parts = file.ancestors().filter(|part| !part.as_os_str().is_empty());
    folder.join(file).is_file() && !parts.any(stays)
}

/// Copies what is `below` a script's folder, without what [stays](Stays); links are followed.
fn copy_code(
    folder: &Path,
    below: &Path,
    to: &Path,
    except: &Path,
    left_out: &mut Vec<PathBuf>,
) -> Result<(), Box<dyn Error>> {
    let from = folder.join(below);
    if below.components().count() > DEEPEST {
        let text = format!(
            "{}: more than {DEEPEST} folders deep; is it a link to itself?",
            from.display()
        );
        return Err(Usage(text).into());
    }
    fs::create_dir(to).map_err(|error| named(to, &error))?;
    let mut entries = fs::read_dir(&from)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| named(&from, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        if Stays::of(&path, folder, &[]).is_some() {
            left_out.push(path);
            continue;
        }
        let facts = fs::metadata(&path).map_err(|error| named(&path, &error))?;
        let is_itself = || Ok::<_, io::Error>(path.canonicalize()? == except.canonicalize()?);
        if facts.is_dir() && !is_itself()? {
            copy_code(folder, &below.join(&name), &to.join(&name), except, left_out)?;
        } else if facts.is_file() {
            copy_file(&path, &to.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_have_versions() {
        for base in [
            "debian",
            "debian:latest",
            "-x:1",
            "a b:1",
            "localhost:5000/debian",
        ] {
            assert!(Context::new(Some(base), None).is_err(), "{base}");
        }
        for base in [
            "debian:12",
            "localhost:5000/debian:12",
            "debian@sha256:00",
            "a/b:1@sha256:00",
        ] {
            assert!(Context::new(Some(base), None).is_ok(), "{base}");
        }
    }
}
