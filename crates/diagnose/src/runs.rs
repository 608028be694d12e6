//! Runs as their folders tell them: what each is, how far it is, its settings and its figures.
//!
//! A run is a folder with the `run.json` of `stokehold train`, or with a recording. Its files are read as JSON and not as the types
//! that wrote them, so that a list of runs needs no trainer, and shows those of other versions as far as they are understood.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stokehold_base::{lock, regular};
use stokehold_profile::{About, FOLDER, ProfileError};

/// The epochs whose times say how long the rest takes.
const RECENT: usize = 3;
/// The end of a run's metrics that is searched for its last epochs, bytes.
const END: u64 = 1 << 20;

/// A run, as far as its folder says.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its folder.
    pub folder: PathBuf,
    /// What its recording says about it.
    pub about: Option<About>,
    /// Whether a process trains or records there now.
    pub in_use: bool,
    /// `run.json` and `summary.json`.
    record: Option<Value>,
    summary: Option<Value>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epochs {
    /// Finished epochs.
    pub done: u64,
    /// The epochs that it was asked for.
    pub of: u64,
    /// Seconds that the others take if they take as long as the last three; `None` before the first.
    pub seconds_left: Option<f64>,
}

impl Run {
    /// The run in a folder; `None` if there is none.
    ///
    /// # Errors
    /// A file of it cannot be read, or has another form.
    pub fn of(folder: &Path) -> Result<Option<Self>, ProfileError> {
        let record = read(&folder.join("run.json"))?;
        let about = About::read(&folder.join(FOLDER))?;
        if record.is_none() && about.is_none() {
            return Ok(None);
        }
        let locks = [folder.join("lock"), folder.join(FOLDER).join("lock")];
        Ok(Some(Self {
            folder: folder.to_owned(),
            summary: read(&folder.join("summary.json"))?,
            record,
            about,
            in_use: locks.iter().any(|path| lock::is_held(path).unwrap_or(false)),
        }))
    }

    /// Whether `stokehold train` made it, and so can continue with it.
    pub fn is_training(&self) -> bool {
        self.record.is_some()
    }

    /// When it began, unix seconds.
    pub fn began(&self) -> Option<f64> {
        let record = self.record.as_ref().and_then(|record| record["created"].as_f64());
        record.or_else(|| self.about.as_ref().map(|about| about.started))
    }

    /// What it runs, in two words: `train resnet18`, `profile python3`.
    pub fn what(&self) -> String {
        match (&self.record, &self.about) {
            (Some(record), _) => {
                format!("train {}", record["config"]["arch"].as_str().unwrap_or_default())
            }
            (None, Some(about)) => {
                let word = about.command.first().map(String::as_str).unwrap_or_default();
                let name = Path::new(word).file_name().unwrap_or_default();
                format!("profile {}", name.to_string_lossy())
            }
            (None, None) => String::new(),
        }
    }

    /// `running`, `finished`, `interrupted`, `failed`, or `cut off` if it ended without a word.
    pub fn state(&self) -> &'static str {
        let asked = self.asked();
        match (&self.record, &self.summary, &self.about) {
            _ if self.in_use => "running",
            (Some(_), Some(summary), _) if summary["interrupted"] == true => "interrupted",
            (Some(_), Some(summary), _) if summary["epochs"].as_u64() < asked => "interrupted",
            (Some(_), Some(_), _) => "finished",
            // Its recording has an end: it was not killed, but ended with an error.
            (Some(_), None, Some(about)) if about.ended.is_some() => "failed",
            (Some(_), None, _) => "cut off",
            (None, _, Some(about)) if about.ended.is_some() => match about.exit_code {
                Some(0) | None => "finished",
                Some(_) => "failed",
            },
            _ => "cut off",
        }
    }

    fn asked(&self) -> Option<u64> {
        self.record.as_ref()?["config"]["epochs"].as_u64()
    }

    /// How far it is; `None` of a command that was profiled.
    pub fn epochs(&self) -> Option<Epochs> {
        let of = self.asked()?;
        let ended = self.summary.as_ref().filter(|_| !self.in_use);
        if let Some(done) = ended.and_then(|summary| summary["epochs"].as_u64()) {
            return Some(Epochs {
                done,
                of,
                seconds_left: None,
            });
        }
        let (mut last, mut within, mut step) = (Vec::new(), 0, 0.0);
        for line in end_of(&self.folder.join("metrics.jsonl")).split(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            let Some(epoch) = line["epoch"].as_u64() else {
                continue;
            };
            step = line["step"].as_f64().unwrap_or(step);
            match line["kind"] == "epoch" {
                true => last.push((epoch, line["seconds"].as_f64().unwrap_or(0.0), step)),
                false => within = epoch.saturating_sub(1),
            }
        }
        let done = last.last().map_or(within, |(epoch, ..)| *epoch);
        let recent = &last[last.len().saturating_sub(RECENT)..];
        let each = recent.iter().map(|(_, seconds, _)| seconds).sum::<f64>() / recent.len() as f64;
        // Of the epoch that continues, as much is done as of the steps of the one before.
        let begun = match last.last() {
            Some((epoch, _, steps)) if *steps > 0.0 && *epoch > 0 => (step - steps) * *epoch as f64 / steps,
            _ => 0.0,
        };
        let epochs_left = of.saturating_sub(done) as f64 - begun.clamp(0.0, 1.0);
        Some(Epochs {
            done,
            of,
            seconds_left: (each > 0.0).then(|| each * epochs_left.max(0.0)),
        })
    }

    /// The figures, by name.
    pub fn results(&self) -> BTreeMap<&'static str, f64> {
        const OF_SUMMARY: [(&str, &str); 5] = [
            ("images/s", "/images_per_second"),
            ("wait share", "/wait_share"),
            ("epochs", "/epochs"),
            ("seconds per epoch", "/seconds_per_epoch"),
            ("training loss", "/train_loss"),
        ];
        const OF_VALIDATION: [(&str, &str); 4] = [
            ("validation loss", "/validation/loss"),
            ("top-1", "/validation/top1"),
            ("top-k", "/validation/topk"),
            ("mIoU", "/validation/miou"),
        ];
        let Some(summary) = &self.summary else {
            let workload = self.about.as_ref().and_then(|about| about.workload.as_ref());
            let figures = workload.map(|workload| {
                let seconds = workload.seconds_per_epoch;
                let seconds = seconds.map(|seconds| ("seconds per epoch", seconds));
                [("wait share", workload.wait_share)].into_iter().chain(seconds)
            });
            return figures.into_iter().flatten().collect();
        };
        let all = OF_SUMMARY.into_iter().chain(OF_VALIDATION);
        all.filter_map(|(name, place)| Some((name, summary.pointer(place)?.as_f64()?)))
            .collect()
    }

    /// The best known score of its model, with its name.
    pub fn score(&self) -> Option<(&'static str, f64)> {
        let results = self.results();
        ["top-1", "mIoU"]
            .into_iter()
            .find_map(|name| Some((name, *results.get(name)?)))
    }

    /// The settings as plain values, by name; of a command that was profiled, the command.
    pub fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = BTreeMap::new();
        let of = |name: &str| self.record.as_ref().map(|record| record[name].clone());
        flatten("", of("config").unwrap_or_default(), &mut settings);
        if let (None, Some(about)) = (&self.record, &self.about) {
            settings.insert("command".to_owned(), about.command.join(" ").into());
        }
        let recorded = || serde_json::to_value(&self.about.as_ref()?.machine).ok();
        flatten(
            "machine",
            of("machine").or_else(recorded).unwrap_or_default(),
            &mut settings,
        );
        settings
    }

    /// All of it, for programs.
    pub fn json(&self) -> Value {
        json!({
            "run": self.folder,
            "what": self.what(),
            "state": self.state(),
            "began": self.began(),
            "results": self.results(),
            "settings": self.settings(),
        })
    }
}

/// What two lists of settings differ in: each name with both values, `None` where one has no such setting. 1 and 1.0 are the same.
pub fn differing<'a>(
    a: &'a BTreeMap<String, Value>,
    b: &'a BTreeMap<String, Value>,
) -> Vec<(&'a str, [Option<&'a Value>; 2])> {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    let pairs = names
        .into_iter()
        .map(|name| (name.as_str(), [a.get(name), b.get(name)]));
    let number = |value: &Option<&Value>| value.and_then(Value::as_f64);
    let is_same = |a, b| a == b || number(&a).is_some_and(|a| number(&b) == Some(a));
    pairs.filter(|(_, [a, b])| !is_same(*a, *b)).collect()
}

/// Adds a value's members with the path to each as their names; lists stay whole, and nothing is left out.
pub fn flatten(name: &str, value: Value, all: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let path = if name.is_empty() {
                    member
                } else {
                    format!("{name}.{member}")
                };
                flatten(&path, value, all);
            }
        }
        Value::Null => {}
        value => {
            all.insert(name.to_owned(), value);
        }
    }
}

/// The end of a file; nothing of one that cannot be read.
fn end_of(path: &Path) -> Vec<u8> {
    let read = || {
        let mut file = regular::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
        let mut bytes = Vec::new();
        file.take(END).read_to_end(&mut bytes).map(|_| bytes)
    };
    read().unwrap_or_default()
}

/// A file of JSON; `None` where it is not there.
fn read(path: &Path) -> Result<Option<Value>, ProfileError> {
    match regular::read_small(path) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(value @ Value::Object(_)) => Ok(Some(value)),
            other => Err(ProfileError::Malformed {
                path: path.to_owned(),
                reason: match other {
                    Ok(_) => "not an object of JSON".to_owned(),
                    Err(error) => format!("no JSON: {error}"),
                },
            }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ProfileError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_run_of_another_version_is_shown_as_far_as_it_is_understood() {
        let dir = written(&[
            (
                "run.json",
                r#"{"created":7,"config":{"arch":"vit_of_tomorrow","epochs":3,"new":{"a":1}},"more":[]}"#,
            ),
            (
                "summary.json",
                r#"{"epochs":3,"wait_share":0.5,"validation":{"loss":1.5,"top1":0.75}}"#,
            ),
        ]);
        let run = Run::of(dir.path()).unwrap().unwrap();
        assert_eq!(
            (run.what().as_str(), run.state()),
            ("train vit_of_tomorrow", "finished")
        );
        assert_eq!(run.score(), Some(("top-1", 0.75)));
        assert_eq!(run.settings()["new.a"], 1);
        assert_eq!(run.began(), Some(7.0));
    }

    #[test]
    fn the_time_that_is_left_is_that_of_the_last_epochs() {
        let lines: String = (1..=5)
            .map(|epoch| {
                format!(
                    "{{\"kind\":\"train\",\"epoch\":{epoch},\"step\":1,\"lr\":1}}\n\
                     {{\"kind\":\"epoch\",\"epoch\":{epoch},\"seconds\":{}}}\n",
                    10 * epoch
                )
            })
            .collect();
        let dir = written(&[
            ("run.json", r#"{"config":{"arch":"resnet18","epochs":8}}"#),
            ("metrics.jsonl", &(lines + "{\"kind\":\"epoch\",\"epo")),
        ]);
        let run = Run::of(dir.path()).unwrap().unwrap();
        assert_eq!(run.state(), "cut off");
        assert_eq!(
            run.epochs(),
            Some(Epochs {
                done: 5,
                of: 8,
                seconds_left: Some(120.0)
            })
        );
        // Half of the sixth epoch.
        let path = dir.path().join("metrics.jsonl");
        let lines = "{\"kind\":\"epoch\",\"epoch\":5,\"step\":50,\"seconds\":40}\n{\"kind\":\"train\",\"epoch\":6,\"step\":55}\n";
        std::fs::write(path, lines).unwrap();
        assert_eq!(run.epochs().unwrap().seconds_left, Some(2.5 * 40.0));
    }

    #[test]
    fn what_is_no_run_is_none_and_what_is_broken_says_so() {
        assert!(Run::of(written(&[]).path()).unwrap().is_none());
        let dir = written(&[("run.json", "{\"config\":")]);
        let error = Run::of(dir.path()).unwrap_err().to_string();
        assert!(error.contains("run.json: no JSON: EOF"), "{error}");
        let dir = written(&[("run.json", "[1]")]);
        assert!(
            Run::of(dir.path())
                .unwrap_err()
                .to_string()
                .contains("not an object")
        );
    }

    #[test]
    fn settings_that_differ_are_named_with_both_values() {
        let of = |text: &str| {
            let mut all = BTreeMap::new();
            flatten("", serde_json::from_str(text).unwrap(), &mut all);
            all
        };
        let (a, b) = (of(r#"{"x":1,"y":{"z":2}}"#), of(r#"{"x":1,"y":{"z":3},"w":[4]}"#));
        assert_eq!(
            differing(&a, &b),
            [
                ("w", [None, Some(&json!([4]))]),
                ("y.z", [Some(&json!(2)), Some(&json!(3))])
            ]
        );
    }
}
