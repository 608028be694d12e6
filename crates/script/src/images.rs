//! What `stokehold.pillow` and `stokehold.decoders` did in the processes of a script.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The counts of all processes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Images {
    /// JPEGs that were opened, or that a decoder was asked for.
    pub asked: u64,
    /// Of these, those that were in the image cache.
    pub cached: u64,
    /// Images whose pixels Stokehold made.
    pub made: u64,
    /// Images that were compared with Pillow's, or with another library's.
    pub compared: u64,
    /// Of these, how many differed; the process went back to them then.
    pub different: u64,
    /// CPU time of the images that were compared, seconds.
    pub own_seconds: f64,
    /// CPU time of Pillow or the library for the same images, seconds.
    pub library_seconds: f64,
    /// Images that Pillow or the library had to make.
    pub left: u64,
    /// Of these, how many for each reason.
    pub reasons: BTreeMap<String, u64>,
    /// Processes that were asked for any.
    #[serde(skip)]
    pub processes: u64,
}

impl Images {
    /// The sum over the files `KIND-PID.json` that the processes have left in a folder: of `images` and of `decoders`. A file that
    /// cannot be read counts nothing.
    pub fn read(folder: &Path, kind: &str) -> Images {
        let mut all = Images::default();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_one = name
                .to_str()
                .and_then(|name| name.strip_prefix(kind))
                .is_some_and(|rest| rest.starts_with('-') && rest.ends_with(".json"));
            if !is_one {
                continue;
            }
            let Some(one) = fs::read(entry.path())
                .ok()
                .and_then(|text| serde_json::from_slice::<Images>(&text).ok())
            else {
                continue;
            };
            all.processes += 1;
            all.asked += one.asked;
            all.cached += one.cached;
            all.made += one.made;
            all.compared += one.compared;
            all.different += one.different;
            all.own_seconds += one.own_seconds;
            all.library_seconds += one.library_seconds;
            all.left += one.left;
            for (reason, count) in one.reasons {
                *all.reasons.entry(reason).or_default() += count;
            }
        }
        all
    }

    /// CPU time that was saved, seconds: what the images that were compared have saved, times as many as there were.
    pub fn saved_seconds(&self) -> Option<f64> {
        let each = (self.library_seconds - self.own_seconds) / self.compared as f64;
        (self.compared > 0).then_some(each * self.made as f64)
    }

    /// The most frequent reasons why Pillow or the library made an image, with their counts.
    pub fn main_reasons(&self) -> Vec<(&str, u64)> {
        let mut reasons: Vec<_> = self
            .reasons
            .iter()
            .map(|(reason, &count)| (reason.as_str(), count))
            .collect();
        reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        reasons.truncate(5);
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_processes_are_summed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Images::read(dir.path(), "images"), Images::default());
        let one = r#"{"asked": 10, "cached": 3, "made": 8, "compared": 2, "different": 1, "own_seconds": 0.5, "library_seconds": 1.5, "left": 1, "reasons": {"a": 1}}"#;
        fs::write(dir.path().join("images-1.json"), one).unwrap();
        fs::write(
            dir.path().join("images-2.json"),
            one.replace(r#""a": 1"#, r#""a": 2, "b": 5"#),
        )
        .unwrap();
        fs::write(dir.path().join("images-3.json"), "{").unwrap();
        fs::write(dir.path().join("made"), "").unwrap();
        let decoded = r#"{"asked": 5, "cached": 0, "made": 3, "compared": 0, "different": 0, "own_seconds": 0, "library_seconds": 0, "left": 2, "reasons": {}}"#;
        fs::write(dir.path().join("decoders-1.json"), decoded).unwrap();
        let decoded = Images::read(dir.path(), "decoders");
        assert_eq!((decoded.asked, decoded.made, decoded.left), (5, 3, 2));
        let all = Images::read(dir.path(), "images");
        assert_eq!(
            (all.processes, all.asked, all.cached, all.made, all.left),
            (2, 20, 6, 16, 2)
        );
        assert_eq!((all.compared, all.different), (4, 2));
        assert_eq!(all.saved_seconds(), Some(8.0));
        assert_eq!(all.main_reasons(), [("b", 5), ("a", 3)]);
        assert_eq!(Images::default().saved_seconds(), None);
    }
}
