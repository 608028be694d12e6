//! Pillow, whose decoder is libjpeg-turbo, as a process that is asked for pixels.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use stokehold_jpeg::Scale;
use stokehold_untested::needs;

/// Width, height and RGB pixels.
pub type Image = (u32, u32, Vec<u8>);

/// A running oracle.
pub struct Oracle {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts one; none, with a line that says why, where no Python is named.
    pub fn start() -> Option<Oracle> {
        let mut child = Command::new(needs::torch()?)
            .arg(script("pixels.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let (to, from) = (
            child.stdin.take().expect("piped"),
            child.stdout.take().expect("piped"),
        );
        Some(Oracle {
            child,
            to,
            from: BufReader::new(from),
        })
    }

    /// The pixels of a file, or what Pillow says against it.
    pub fn pixels(&mut self, path: &Path) -> Result<Image, String> {
        self.scaled(path, Scale::Full)
    }

    /// The same at a scale.
    pub fn scaled(&mut self, path: &Path, scale: Scale) -> Result<Image, String> {
        writeln!(self.to, "{} {}", scale.factor(), path.display()).expect("the oracle listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the oracle answers");
        if let Some(error) = line.strip_prefix("error ") {
            return Err(error.trim().to_owned());
        }
        let (width, height) = line.trim().split_once(' ').expect("WIDTH HEIGHT");
        let (width, height): (u32, u32) = (
            width.parse().expect("a number"),
            height.parse().expect("a number"),
        );
        let mut pixels = vec![0; 3 * width as usize * height as usize];
        self.from.read_exact(&mut pixels).expect("the oracle's pixels");
        Ok((width, height, pixels))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(name)
}

#[track_caller]
fn named() -> Option<String> {
    let named = std::env::var("STOKEHOLD_TEST_PYTHON").ok();
    if named.is_none() {
        stokehold_untested::kept("STOKEHOLD_TEST_PYTHON names no Python with Pillow");
    }
    named
}

/// The corpus that Pillow's encoder makes, made once a run; the few files of it that lie here, where no Python is named.
pub fn corpus() -> Vec<PathBuf> {
    static FOLDER: std::sync::OnceLock<Option<tempfile::TempDir>> = std::sync::OnceLock::new();
    let python = named();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let status = Command::new(python?)
            .arg(script("corpus.py"))
            .arg(folder.path())
            .status();
        assert!(
            status.expect("the encoder starts").success(),
            "the corpus could not be made"
        );
        Some(folder)
    });
    folder.as_ref().map_or_else(few, |folder| files(folder.path()))
}

/// The files of the corpus that lie here.
pub fn few() -> Vec<PathBuf> {
    files(&goldens().join("files"))
}

/// What the oracle answered when it was there; `tests/make_goldens` makes it.
pub fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// The versions of the oracle.
pub fn versions() -> Option<String> {
    let print = "from PIL import Image, features; print('Pillow', Image.__version__, 'with libjpeg-turbo', features.version('libjpeg_turbo'))";
    let output = Command::new(named()?).args(["-c", print]).output();
    Some(String::from_utf8(output.expect("Python starts").stdout).expect("text"))
}

/// The JPEGs in a folder of the test data and below it; none, with a report, where there is no data.
pub fn data(folder: &str) -> Option<Vec<PathBuf>> {
    let root = needs::named("STOKEHOLD_TEST_DATA", &format!("the folder that holds {folder}"))?;
    let path = root.join(folder);
    if !path.is_dir() {
        stokehold_untested::skip(format_args!("{} is not there", path.display()));
        return None;
    }
    Some(files(&path))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default()
            .to_lowercase();
        if path.is_dir() {
            found.extend(files(&path));
        } else if matches!(extension.as_str(), "jpg" | "jpeg") {
            found.push(path);
        }
    }
    found.sort();
    found
}
