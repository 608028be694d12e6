//! The files that a run has made: its checkpoints, models and results, which may be fetched.
//!
//! Of a run's folder, only what [`may_be_fetched`] names leaves the studio. So the files of a job that hold secrets, its description and
//! its home folders, stay where they are, also if a link of a harmless name leads to them: the name that counts is that of the file that
//! was opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use axum::body::Body;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use stokehold_base::regular;

use crate::places::{FolderEntry, Lost};
use crate::text;

/// The most files that are listed, the latest of them, and that are looked at.
const LISTED: usize = 200;
const LOOKED: usize = 5000;
/// How deep folders are searched.
const DEPTH: usize = 6;
/// What is read of a file at once.
const CHUNK: u64 = 256 << 10;

/// Files of the run's own folder.
const OWN: [&str; 10] = [
    "run.json",
    "summary.json",
    "metrics.jsonl",
    "bad_images.jsonl",
    "log",
    "output.log",
    "model.safetensors",
    "ema.safetensors",
    "compare.json",
    "report.html",
];

/// What a file is, by its path in the run's folder; `None` of one that is not for others.
fn may_be_fetched(path: &Path) -> Option<&'static str> {
    let mut parts = Vec::new();
    for part in path.components() {
        let Component::Normal(part) = part else {
            return None;
        };
        parts.push(part.to_str()?);
    }
    let is_instance = |name: &str| {
        let number = name.strip_prefix("algo-");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match parts[..] {
        [name] if name.starts_with("events.out.tfevents.") => Some("events"),
        [name] if OWN.contains(&name) => Some(if name.ends_with(".safetensors") {
            "model"
        } else {
            "record"
        }),
        ["checkpoints", _, ..] => Some("checkpoint"),
        ["output", _, ..] => Some("result"),
        ["rule-output", .., page] if page.ends_with(".html") => Some("report"),
        [instance, "checkpoints", _, ..] if is_instance(instance) => Some("checkpoint"),
        [instance, "model", _, ..] if is_instance(instance) => Some("model"),
        [instance, "output", _, ..] if is_instance(instance) => Some("result"),
        _ => None,
    }
}

/// The latest files of a run that may be fetched: path, what it is, bytes, and when it was written; and how many more there are.
pub fn list(found: &FolderEntry<'_>) -> Value {
    let mut all = Vec::new();
    let mut looked = 0;
    // The resolved folder: what is in it is no link, or is left out.
    if let Ok(root) = found.folder.canonicalize() {
        walk(&root, Path::new(""), 0, &mut looked, &mut all);
    }
    all.sort_by(|a, b| b.3.total_cmp(&a.3).then_with(|| a.0.cmp(&b.0)));
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    let shown: Vec<Value> = all
        .into_iter()
        .map(|(name, what, bytes, time)| {
            json!({"name": name, "shown": text::short(&name, 200), "what": what, "bytes": bytes, "time": time})
        })
        .collect();
    json!({"shown": shown, "more": more, "is_cut": looked >= LOOKED})
}

type Entry = (String, &'static str, u64, f64);

fn walk(root: &Path, below: &Path, depth: usize, looked: &mut usize, all: &mut Vec<Entry>) {
    let Ok(entries) = fs::read_dir(root.join(below)) else {
        return;
    };
    for entry in entries.flatten() {
        *looked += 1;
        if *looked >= LOOKED {
            return;
        }
        let path = below.join(entry.file_name());
        // Of links, the links themselves.
        let Ok(about) = entry.metadata() else { continue };
        // A folder is looked into if a file in it could be one.
        if about.is_dir() && depth < DEPTH && leads_to_some(&path) {
            walk(root, &path, depth + 1, looked, all);
        }
        let Some((what, name)) = may_be_fetched(&path)
            .filter(|_| about.is_file())
            .zip(path.to_str())
        else {
            continue;
        };
        let time = about.modified().ok();
        let time = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let time = time.map_or(0.0, |time| time.as_secs_f64());
        all.push((name.to_owned(), what, about.len(), time));
    }
}

/// Whether files in a folder may be fetched.
fn leads_to_some(folder: &Path) -> bool {
    let within = |names: &[&str]| {
        may_be_fetched(&names.iter().fold(folder.to_owned(), |path, name| path.join(name))).is_some()
    };
    within(&["x"]) || within(&["x.html"]) || within(&["model", "x"])
}

/// A file of a run, opened, with its name and length.
///
/// # Errors
/// It is not there, or is not for others.
pub fn open(found: &FolderEntry<'_>, name: &str) -> Result<(File, String, u64), Lost> {
    let path = Path::new(name);
    may_be_fetched(path).ok_or(Lost::Missing)?;
    let root = found.folder.canonicalize().map_err(|_| Lost::Missing)?;
    let file = regular::open(&root.join(path)).map_err(|_| Lost::Missing)?;
    // Where the file is that was opened, whatever links led there.
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| Lost::Missing)?;
    let own: Option<PathBuf> = real.strip_prefix(&root).ok().map(Path::to_owned);
    own.and_then(|own| may_be_fetched(&own).map(drop))
        .ok_or(Lost::Outside)?;
    let length = file.metadata().map_err(|_| Lost::Missing)?.len();
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok((file, name, length))
}

/// A file as an answer that a browser saves, read piece by piece as fast as its reader takes it.
pub fn answer((file, name, length): (File, String, u64)) -> Response {
    let pieces = stream::try_unfold((file, length), |(file, left)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            (&file).take(CHUNK.min(left)).read_to_end(&mut bytes)?;
            match bytes.is_empty() {
                // Its length has been promised.
                true => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                false => Ok((bytes, file)),
            }
        });
        let (bytes, file) = read.await.map_err(io::Error::other)??;
        let left = left - bytes.len() as u64;
        Ok(Some((bytes, (file, left))))
    });
    let mut answer = Response::new(Body::from_stream(pieces));
    let headers = answer.headers_mut();
    let disposition = format!(
        "attachment; filename*=UTF-8''{}",
        utf8_percent_encode(&name, NON_ALPHANUMERIC)
    );
    for (name, value) in [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (CONTENT_DISPOSITION, disposition),
    ] {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_homes_are_not_for_others() {
        for (path, what) in [
            ("checkpoints/epoch-3/model.safetensors", "checkpoint"),
            ("algo-12/checkpoints/a.pt", "checkpoint"),
            ("algo-1/model/model.pth", "model"),
            ("output/model.tar.gz", "result"),
            ("run.json", "record"),
            (
                "rule-output/ProfilerReport-1/profiler-output/profiler-report.html",
                "report",
            ),
            ("model.safetensors", "model"),
        ] {
            assert_eq!(may_be_fetched(Path::new(path)), Some(what), "{path}");
        }
        for path in [
            "job.json",
            "state.json",
            "slurm.json",
            "runner.log",
            "home/algo-1/.netrc",
            "algo-1/input/config/hyperparameters.json",
            "algo-x/model/a",
            "algo-/model/a",
            "checkpoints",
            "checkpoints/../job.json",
            "../run/run.json",
            "/etc/passwd",
            "/run.json",
            "",
            ".",
        ] {
            assert_eq!(may_be_fetched(Path::new(path)), None, "{path}");
        }
        assert!(leads_to_some(Path::new("algo-1")) && leads_to_some(Path::new("checkpoints/a")));
        assert!(!leads_to_some(Path::new("home")) && !leads_to_some(Path::new("algo-1/input")));
    }
}
