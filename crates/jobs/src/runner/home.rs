//! The home folder of an installation and of a script: empty except for parts of the user's home that they
//! need.
//!
//! Installing a package may write into the installing user's home folder; `nvidia-pyindex` rewrites the
//! configuration of pip. So each gets its own home in the job's folder, which is empty again when the job is
//! resumed.
//!
//! | of the user's | in the home |
//! |---|---|
//! | configuration of pip | a copy |
//! | packages (`pip install --user`) | visible; new ones go to this home |
//! | `~/.aws/credentials`, `~/.aws/config`, `~/.netrc` | variables point to them, unless they are set already |

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stokehold_base::there::if_there;

use crate::JobError;

/// A home folder.
pub(crate) struct Home(pub PathBuf);

/// Files that programs look for in the home folder, unless a variable gives their path.
const NAMED: [(&str, &str); 3] = [
    ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ("AWS_CONFIG_FILE", ".aws/config"),
    ("NETRC", ".netrc"),
];

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

impl Home {
    /// Makes the folder, replacing an earlier one.
    pub fn make(&self) -> Result<(), JobError> {
        self.fill().map_err(JobError::io(&self.0))
    }

    fn fill(&self) -> io::Result<()> {
        if_there(fs::remove_dir_all(&self.0))?;
        for folder in [".config/pip", ".pip", ".cache", ".local/share", ".local/state"] {
            fs::create_dir_all(self.0.join(folder))?;
        }
        for (from, to) in self.configurations() {
            if from.is_file() {
                fs::copy(from, to)?;
            }
        }
        let Some(base) = set("PYTHONUSERBASE").or_else(|| Some(std::env::home_dir()?.join(".local"))) else {
            return Ok(());
        };
        let Ok(versions) = fs::read_dir(base.join("lib")) else {
            return Ok(());
        };
        for version in versions.flatten() {
            let packages = version.path().join("site-packages");
            let (Some(outer), true) = (packages.to_str(), packages.is_dir()) else {
                continue;
            };
            let own = self
                .0
                .join(".local/lib")
                .join(version.file_name())
                .join("site-packages");
            fs::create_dir_all(&own)?;
            show_packages(&own, &[outer.to_owned()])?;
        }
        Ok(())
    }

    /// Pip's configuration files of the user, and the paths of their copies.
    fn configurations(&self) -> Vec<(PathBuf, PathBuf)> {
        let mut all = Vec::new();
        let home = std::env::home_dir();
        let config = set("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
        all.extend(config.map(|config| (config.join("pip/pip.conf"), self.0.join(".config/pip/pip.conf"))));
        all.extend(home.map(|home| (home.join(".pip/pip.conf"), self.0.join(".pip/pip.conf"))));
        all.extend(set("PIP_CONFIG_FILE").map(|file| (file, self.given())));
        all
    }

    /// The copy of the configuration file that a variable names.
    fn given(&self) -> PathBuf {
        self.0.join(".config/pip/given.conf")
    }

    /// The variables that point to this home.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut all: Vec<(&str, OsString)> = [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
            ("PYTHONUSERBASE", ".local"),
        ]
        .into_iter()
        .map(|(name, below)| (name, self.0.join(below).into_os_string()))
        .chain([("HOME", self.0.clone().into_os_string())])
        .collect();
        // Other values, such as /dev/null, mean that there is none.
        if set("PIP_CONFIG_FILE").is_some_and(|file| file.is_file()) {
            all.push(("PIP_CONFIG_FILE", self.given().into_os_string()));
        }
        for (name, below) in NAMED {
            let file = std::env::home_dir().map(|home| home.join(below));
            if let Some(file) = file.filter(|file| set(name).is_none() && file.is_file()) {
                all.push((name, file.into_os_string()));
            }
        }
        all
    }
}

/// Makes a folder of packages show others after its own packages.
pub(crate) fn show_packages(inside: &Path, others: &[String]) -> io::Result<()> {
    let mut text = String::new();
    for folder in others {
        // Python runs a line that begins with `import`; with `addsitedir` the `.pth` files of those folders
        // count, too.
        text += &format!(
            "import site; site.addsitedir({})\n",
            crate::runner::python::json(&folder.as_str().into())
        );
    }
    fs::write(inside.join("stokehold_outer.pth"), text)
}
