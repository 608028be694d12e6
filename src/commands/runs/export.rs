//! A run's numbers for other programs: TensorBoard's event files, and the folders of MLflow's file store.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;
use stokehold_base::hash::Fnv;
use stokehold_base::whole;
use stokehold_diagnose::curves::Curve;
use stokehold_diagnose::events;

/// For which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An event file: `tensorboard --logdir DIR`.
    Tensorboard,
    /// An experiment with one run: `mlflow ui --backend-store-uri DIR`.
    Mlflow,
}

/// What is exported.
pub struct Exported<'a> {
    /// The run's name, and its folder.
    pub name: &'a str,
    pub place: &'a Path,
    /// Its begin and its end, unix seconds; no end while it runs.
    pub began: f64,
    pub ended: Option<f64>,
    /// Whether it came to its end, and whether it still runs.
    pub finished: bool,
    pub running: bool,
    pub curves: &'a [Curve],
    pub settings: &'a BTreeMap<String, Value>,
}

impl Exported<'_> {
    /// Another one for each run, and the same for one that is exported again.
    fn id(&self) -> String {
        let key = format!("{} {}", self.place.display(), self.began);
        format!("{:032x}", Fnv::of(key.as_bytes()))
    }
}

/// Writes TensorBoard's event file into a folder, which is created. Returns its path.
///
/// # Errors
/// The system's error.
pub fn tensorboard(exported: &Exported<'_>, folder: &Path) -> io::Result<PathBuf> {
    let mut bytes = events::begin(exported.began);
    for curve in exported.curves {
        for (place, point) in curve.points.iter().enumerate() {
            // Of a number without a step its place is one.
            let step = point.step.unwrap_or(place as u64);
            bytes.extend(events::scalar(&curve.name, step, point.time, point.value));
        }
    }
    std::fs::create_dir_all(folder)?;
    let path = folder.join(events::name(exported.began, &exported.id()[16..]));
    whole::write(&path, &bytes)?;
    Ok(path)
}

/// Writes the folders of MLflow's file store: `DIR/0/meta.yaml`, and the run in `DIR/0/ID` with `meta.yaml`, `metrics/NAME` (a line
/// of milliseconds, value and step for each), `params/NAME` and `tags/NAME`. Returns the run's folder.
///
/// # Errors
/// The system's error.
pub fn mlflow(exported: &Exported<'_>, folder: &Path) -> io::Result<PathBuf> {
    let experiment = folder.join("0");
    let id = exported.id();
    let run = experiment.join(&id);
    for below in ["metrics", "params", "tags", "artifacts"] {
        std::fs::create_dir_all(run.join(below))?;
    }
    let place = std::path::absolute(&experiment)?;
    // Somebody's own experiment keeps its name and its place.
    if !experiment.join("meta.yaml").exists() {
        whole::write(
            &experiment.join("meta.yaml"),
            format!(
                "artifact_location: {}\nexperiment_id: '0'\nlifecycle_stage: active\nname: Default\n",
                quoted(&place.display().to_string())
            ),
        )?;
    }

    let ms = |seconds: f64| (seconds * 1e3).max(0.0) as u64;
    // RunStatus of MLflow: 1 RUNNING, 3 FINISHED, 5 KILLED.
    let status = match (exported.running, exported.finished) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 5,
    };
    let ended = exported
        .ended
        .map_or("null".to_owned(), |ended| ms(ended).to_string());
    whole::write(
        &run.join("meta.yaml"),
        format!(
            "artifact_uri: {}\nend_time: {ended}\nentry_point_name: ''\nexperiment_id: '0'\nlifecycle_stage: active\n\
             run_id: {id}\nrun_name: {}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {status}\n\
             tags: []\nuser_id: ''\n",
            quoted(&place.join(&id).join("artifacts").display().to_string()),
            quoted(exported.name),
            ms(exported.began),
        ),
    )?;
    let mut taken = std::collections::BTreeSet::new();
    for curve in exported.curves {
        let mut text = String::new();
        for (place, point) in curve.points.iter().enumerate() {
            let value = match point.value {
                value if value.is_nan() => "nan".to_owned(),
                value => value.to_string(),
            };
            let _ = writeln!(
                text,
                "{} {value} {}",
                ms(point.time),
                point.step.unwrap_or(place as u64)
            );
        }
        // Two names may be the same as files.
        let mut name = plain(&curve.name);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        whole::write(&run.join("metrics").join(name), text)?;
    }
    for (name, value) in exported.settings {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // MLflow takes no longer ones.
        let text: String = text.chars().take(6000).collect();
        whole::write(&run.join("params").join(plain(name)), text)?;
    }
    whole::write(&run.join("tags").join("mlflow.runName"), exported.name)?;
    Ok(run)
}

/// A name that MLflow takes: letters, digits, `_`, `-`, `.`, space, `/` and `:`; here also one of a file.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_-. ".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    match plain.trim_matches('.') {
        "" => "_".to_owned(),
        _ => plain.chars().take(250).collect(),
    }
}

/// A text of YAML in single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_files() {
        assert_eq!(plain("val/loss: top 1"), "val_loss_ top 1");
        assert_eq!(plain(".."), "_");
        assert_eq!(plain("é"), "_");
    }
}
