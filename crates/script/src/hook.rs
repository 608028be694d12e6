//! The hook's files, and the environment that starts it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::facts::started;

const FILES: [(&str, &str); 3] = [
    ("sitecustomize.py", include_str!("../hook/sitecustomize.py")),
    (
        "_stokehold_system.py",
        include_str!("../hook/_stokehold_system.py"),
    ),
    ("_stokehold_hook.py", include_str!("../hook/_stokehold_hook.py")),
];

/// The variable that has the hook's settings.
const SETTINGS: &str = "STOKEHOLD_HOOK";

/// The folder of the counters in a recording.
pub const FOLDER: &str = "python";

/// What is changed in a script's loaders; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Changes {
    /// `num_workers` of every loader whose samples have numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u64>,
    /// `persistent_workers=True` where there are workers.
    #[serde(skip_serializing_if = "is_false")]
    pub persistent: bool,
    /// `pin_memory=True`.
    #[serde(skip_serializing_if = "is_false")]
    pub pin: bool,
    /// `prefetch_factor` where there are workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u64>,
    /// Stokehold makes the batches of the loaders that it can.
    #[serde(skip_serializing_if = "is_false")]
    pub swap: bool,
    /// `stokehold.pillow` opens the JPEGs, and `stokehold.decoders` decodes those of other libraries.
    #[serde(skip_serializing_if = "is_false")]
    pub images: bool,
    /// The folder in which the processes note whether a change was made, for [`Changes::unmade`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<PathBuf>,
    /// Says of each loader whether Stokehold could make its batches, and how.
    #[serde(skip_serializing_if = "is_false")]
    pub convert: bool,
    /// Fetches some batches with fast images and some without, to tell what these would save.
    #[serde(skip_serializing_if = "is_false")]
    pub compare_images: bool,
    /// Sends the norm of all gradients now and then, as the metric `gradient_norm`.
    #[serde(skip_serializing_if = "is_false")]
    pub gradients: bool,
    /// Ends the script after this many batches that it trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Ends the script when it has trained for so long, and on at least ten batches; several ranks after 50 batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Changes {
    /// After a script: why none of the changes was made, or `None` if one was, or if nothing was noted.
    pub fn unmade(&self) -> Option<String> {
        let folder = self.told.as_deref()?;
        let made = if self.of_loaders() { "made" } else { "made-images" };
        if folder.join(made).exists() {
            return None;
        }
        let nothing = match self.of_loaders() && folder.join("made-images").exists() {
            true => "no loader was changed",
            false => "nothing was changed",
        };
        Some(match fs::read_to_string(folder.join("not-made")) {
            Ok(reasons) if reasons.is_empty() => nothing.to_owned(),
            Ok(reasons) => {
                let reasons: BTreeSet<&str> = reasons.lines().collect();
                let first: Vec<&str> = reasons.into_iter().take(3).collect();
                format!("{nothing}: {}", first.join("; "))
            }
            Err(_) if started(folder) => format!(
                "{nothing}: the script {}",
                match self.of_loaders() {
                    false => "imported neither Pillow nor another library whose JPEGs are served",
                    true => "made no DataLoader",
                }
            ),
            Err(_) => "nothing was changed: the command started no Python with the hook. The hook comes by PYTHONPATH: a wrapper that sets it has to keep \
                 what it holds"
                .to_owned(),
        })
    }

    /// After a script: whether some library or loader was left as it was, which the hook has said.
    pub fn left_some(&self) -> bool {
        self.told
            .as_deref()
            .is_some_and(|folder| folder.join("not-made").exists())
    }

    fn of_loaders(&self) -> bool {
        self.workers.is_some() || self.persistent || self.pin || self.prefetch.is_some() || self.swap
    }

    /// Whether the script is ended before its own end.
    pub fn ends_the_script(&self) -> bool {
        self.steps.is_some() || self.seconds.is_some()
    }
}

/// serde's attribute wants a function of a reference.
fn is_false(value: &bool) -> bool {
    !value
}

/// The hook's files in a folder. Dropping it removes them.
#[derive(Debug)]
pub struct Hook {
    folder: PathBuf,
    settings: String,
}

impl Hook {
    /// Writes the files into the folder, which is created, and may only have this hook's files. Processes make these changes, and put
    /// their counters into `counters`, if it is given, which is created too.
    ///
    /// # Errors
    /// The system's error, and paths that cannot be in the environment: `PYTHONPATH` has none with a colon.
    pub fn new(folder: &Path, changes: &Changes, counters: Option<&Path>) -> io::Result<Self> {
        let mut settings = serde_json::to_value(changes)?;
        if let Some(counters) = counters {
            fs::create_dir_all(counters)?;
            // Processes of the command may change their folder.
            let counters = fs::canonicalize(counters)?;
            let counters = counters.to_str().ok_or_else(|| {
                io::Error::other(format!(
                    "{} is not UTF-8: give another folder",
                    counters.display()
                ))
            })?;
            settings["folder"] = counters.into();
        }
        fs::create_dir_all(folder)?;
        let hook = Self {
            folder: fs::canonicalize(folder)?,
            settings: settings.to_string(),
        };
        env::join_paths([&hook.folder])
            .map_err(|error| io::Error::other(format!("{}: {error}", hook.folder.display())))?;
        for (name, text) in FILES {
            fs::write(hook.folder.join(name), text)?;
        }
        Ok(hook)
    }

    /// Has the Python processes of a command start the hook. Its own `PYTHONPATH`, or else that of this process, stays behind.
    pub fn set(&self, command: &mut Command) {
        let own = command.get_envs().find(|(name, _)| *name == "PYTHONPATH");
        let before = match own {
            Some((_, value)) => value.map(OsStr::to_owned),
            None => env::var_os("PYTHONPATH"),
        };
        let mut paths = self.folder.clone().into_os_string();
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            paths.push(":");
            paths.push(before);
        }
        command
            .env("PYTHONPATH", paths)
            .env(SETTINGS, self.settings_within(env::var(SETTINGS).ok()));
    }

    /// The settings, with those of a command that this one runs in: it may record what this one changes.
    fn settings_within(&self, outer: Option<String>) -> String {
        let outer = outer.and_then(|outer| serde_json::from_str::<Map<String, Value>>(&outer).ok());
        let own = serde_json::from_str::<Map<String, Value>>(&self.settings);
        match (outer, own) {
            (Some(mut all), Ok(own)) => {
                all.extend(own);
                Value::Object(all).to_string()
            }
            _ => self.settings.clone(),
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // A process that starts now has no hook, and says nothing of it: its command has ended.
        for (name, _) in FILES {
            let _ = fs::remove_file(self.folder.join(name));
        }
        let _ = fs::remove_dir_all(self.folder.join("__pycache__"));
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Whether a command is an interpreter of Python, by its name.
pub fn is_python(command: &[OsString]) -> bool {
    let name = command.first().and_then(|program| Path::new(program).file_name());
    name.and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with("python"))
}

/// Why a Python command does not start the hook: its option `-I`, `-E` or `-S`. `None` for other commands.
pub fn starts_no_hook(command: &[OsString]) -> Option<String> {
    forbidden(command).map(|option| {
        let program = command[0].display();
        format!(
            "{program} {option} does not start the hook that sees and changes loaders; leave {option} out"
        )
    })
}

fn forbidden(command: &[OsString]) -> Option<&'static str> {
    let (_, rest) = command.split_first()?;
    if !is_python(command) {
        return None;
    }
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let word = word.to_str()?;
        // The script, or what follows is its own.
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        if letters.starts_with('-') {
            continue;
        }
        for letter in letters.chars() {
            match letter {
                'I' => return Some("-I"),
                'E' => return Some("-E"),
                'S' => return Some("-S"),
                // What follows is the program's.
                'c' | 'm' => return None,
                // With an argument, which may be the next word.
                'W' | 'X' => {
                    if letters.ends_with(letter) {
                        rest.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn pythons_without_a_hook_are_known() {
        for (command, option) in [
            ("python train.py", None),
            ("python3.11 -I train.py", Some("-I")),
            ("/usr/bin/python3 -uS train.py", Some("-S")),
            ("python -u -E -m train", Some("-E")),
            ("python -m train -I", None),
            ("python train.py -I", None),
            ("torchrun -I train.py", None),
            ("python -W ignore -I x", Some("-I")),
            ("python -Wignore -I x", Some("-I")),
            ("python -X dev train.py -I", None),
        ] {
            assert_eq!(forbidden(&words(command)), option, "{command}");
        }
    }

    #[test]
    fn what_pythonpath_had_stays_behind_the_hook() {
        let dir = tempfile::tempdir().unwrap();
        let counters = dir.path().join("counters");
        let changes = Changes {
            workers: Some(4),
            swap: true,
            ..Changes::default()
        };
        let hook = Hook::new(&dir.path().join("hook"), &changes, Some(&counters)).unwrap();
        let mut command = Command::new("true");
        command.env("PYTHONPATH", "/one:/two");
        hook.set(&mut command);
        let set: Vec<_> = command.get_envs().collect();
        let of = |name: &str| {
            let found = set.iter().find(|(own, _)| *own == name).unwrap();
            found.1.unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(of("PYTHONPATH"), format!("{}:/one:/two", hook.folder.display()));
        let counters = fs::canonicalize(counters).unwrap();
        let expected = format!(r#"{{"workers":4,"swap":true,"folder":"{}"}}"#, counters.display());
        assert_eq!(
            serde_json::from_str::<Value>(&of(SETTINGS)).unwrap(),
            serde_json::from_str::<Value>(&expected).unwrap()
        );
        let both: Value =
            serde_json::from_str(&hook.settings_within(Some(r#"{"folder":"/a","pin":true}"#.into())))
                .unwrap();
        assert_eq!((&both["pin"], &both["workers"]), (&true.into(), &4.into()));
        assert_ne!(both["folder"], "/a");
        let folder = hook.folder.clone();
        drop(hook);
        assert!(!folder.exists());
    }
}
