//! The Python that runs scripts where none is named.

use std::fs;
use std::path::{Path, PathBuf};

/// That of the wheel which this program came in, else the first `python3` of PATH.
pub fn default() -> PathBuf {
    let program = std::env::current_exe().ok();
    program
        .and_then(|path| of_wheel(&path))
        .unwrap_or_else(|| "python3".into())
}

/// The Python that the package was installed for which has this program. An installer puts them into PREFIX/bin and
/// PREFIX/lib/python3.X/site-packages (Debian's: dist-packages).
fn of_wheel(program: &Path) -> Option<PathBuf> {
    let bin = program.parent()?;
    let lib = bin.parent()?.join("lib");
    let has_package = |name: &String| {
        ["site-packages", "dist-packages"]
            .iter()
            .any(|folder| lib.join(name).join(folder).join("stokehold/_loader.py").is_file())
    };
    let name = fs::read_dir(&lib)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("python3"))
        .filter(has_package)
        .max()?;
    let beside = bin.join(&name);
    // `pip install --user` has the interpreter elsewhere.
    Some(if beside.exists() { beside } else { name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_wheel_knows_its_python() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("bin/stokehold");
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        assert_eq!(of_wheel(&program), None);
        let lib = dir.path().join("lib/python3.12");
        fs::create_dir_all(lib.join("site-packages/numpy")).unwrap();
        assert_eq!(of_wheel(&program), None, "another package's");
        fs::create_dir_all(lib.join("site-packages/stokehold")).unwrap();
        fs::write(lib.join("site-packages/stokehold/_loader.py"), "").unwrap();
        assert_eq!(of_wheel(&program), Some("python3.12".into()));
        let python = dir.path().join("bin/python3.12");
        fs::write(&python, "").unwrap();
        assert_eq!(of_wheel(&program), Some(python));
    }
}
