//! A file of numbers, followed as a script or a job writes it.

use std::path::PathBuf;

use serde_json::Value;
use stokehold_base::growing::Growing;

use crate::TrialsError;

/// A growing file of JSON lines.
pub(super) struct Followed {
    file: Growing,
    key: String,
    name: Option<String>,
    lines: u64,
}

impl Followed {
    /// Follows the values of a key, in all lines or in those with this `name`.
    pub fn new(path: PathBuf, key: &str, name: Option<&str>) -> Self {
        Self {
            file: Growing::new(path),
            key: key.to_owned(),
            name: name.map(str::to_owned),
            lines: 0,
        }
    }

    /// Skips to the end of the file.
    pub fn pass(&mut self) -> Result<(), TrialsError> {
        self.news()?;
        self.lines = 0;
        Ok(())
    }

    /// Steps and values of the lines written since the last call. The step is the line's `epoch`, or `step`,
    /// or its number.
    pub fn news(&mut self) -> Result<Vec<(u64, f64)>, TrialsError> {
        let mut news = Vec::new();
        while self.take(&mut news)? {}
        Ok(news)
    }

    /// Adds what one look finds. Returns whether there is more.
    fn take(&mut self, news: &mut Vec<(u64, f64)>) -> Result<bool, TrialsError> {
        let written = self.file.look();
        let written = written.map_err(TrialsError::io(self.file.path()))?;
        // A trial that started over has truncated the file.
        if written.anew {
            self.lines = 0;
        }
        for line in written.lines() {
            let Ok(line) = serde_json::from_slice::<Value>(line) else {
                continue;
            };
            if line.get("kind").is_some_and(|kind| kind != "epoch") {
                continue;
            }
            let is_named = |name: &String| line.get("name").is_some_and(|is| is == name);
            if !self.name.as_ref().is_none_or(is_named) {
                continue;
            }
            // Of several instances that print the same metric, the first one's numbers are the steps.
            let first = stokehold_jobs::contract::host(0);
            if line.get("host").is_some_and(|host| *host != first) {
                continue;
            }
            let value = match line.get(&self.key) {
                Some(Value::Null) => f64::NAN,
                Some(Value::String(text)) => match text.parse() {
                    Ok(value) => value,
                    Err(_) => continue,
                },
                Some(Value::Number(number)) => number.as_f64().unwrap_or(f64::NAN),
                _ => continue,
            };
            self.lines += 1;
            let step = ["epoch", "step"]
                .iter()
                .find_map(|name| line.get(*name)?.as_u64());
            news.push((step.unwrap_or(self.lines), value));
        }
        Ok(written.more)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_followed_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut followed = Followed::new(path.clone(), "loss", None);
        assert!(followed.news().unwrap().is_empty(), "it is not there yet");
        fs::write(
            &path,
            "{\"kind\":\"train\",\"loss\":9}\n{\"kind\":\"epoch\",\"epoch\":1,\"loss\":0.5}\n{\"kind\":\"ep",
        )
        .unwrap();
        assert_eq!(followed.news().unwrap(), [(1, 0.5)]);
        fs::write(
            &path,
            "{\"kind\":\"train\",\"loss\":9}\n{\"kind\":\"epoch\",\"epoch\":1,\"loss\":0.5}\n{\"kind\":\"epoch\",\"epoch\":2,\"loss\":0.25}\nnoise\n{\"loss\":7}\n",
        )
        .unwrap();
        assert_eq!(followed.news().unwrap(), [(2, 0.25), (3, 7.0)]);
        fs::write(&path, "{\"loss\":null}\n").unwrap();
        assert!(
            followed.news().unwrap()[0].1.is_nan(),
            "made anew, and not a number"
        );
    }

    #[test]
    fn numbers_of_other_names_are_passed_over_and_those_of_an_earlier_start_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut followed = Followed::new(path.clone(), "value", Some("loss"));
        let first = "{\"name\":\"loss\",\"value\":3}\n{\"name\":\"accuracy\",\"value\":9}\n";
        fs::write(&path, first).unwrap();
        assert_eq!(followed.news().unwrap(), [(1, 3.0)]);
        followed.pass().unwrap();
        let then = "{\"name\":\"loss\",\"value\":\"inf\"}\n{\"name\":\"loss\",\"value\":2,\"step\":7}\n";
        fs::write(&path, format!("{first}{then}")).unwrap();
        assert_eq!(followed.news().unwrap(), [(1, f64::INFINITY), (7, 2.0)]);
    }
}
