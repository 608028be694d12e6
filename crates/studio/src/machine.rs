//! This machine over the last minutes, as `stokehold top` samples it.
//!
//! A sampler begins when somebody first looks, and continues until the studio ends, so that there is history at the next look. It writes
//! into a temporary folder, of at most 64 MB, which is removed at the end.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_base::clock::unix_now;
use stokehold_diagnose::lately::Lately;
use stokehold_diagnose::report;
use stokehold_profile::{FOLDER, Node, ProfileError, Recording, Sampler, Series, Settings, Tree, dimension};
use tempfile::TempDir;

use crate::places::Places;
use crate::text;

/// How much is shown, seconds.
const WINDOW: f64 = 600.0;
/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most disk space for the samples, bytes.
const BYTES: u64 = 64 << 20;

/// The sampler of this machine.
#[derive(Debug, Default)]
pub struct Here(Mutex<Option<Own>>);

struct Own {
    /// Dropped before the folder: it stops writing before the folder is removed.
    _sampler: Sampler,
    folder: TempDir,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Own {
    fn start() -> Result<Self, ProfileError> {
        let folder = tempfile::Builder::new().prefix("stokehold-studio-").tempdir();
        let folder = folder.map_err(|source| ProfileError::Io {
            path: std::env::temp_dir(),
            source,
        })?;
        let mut settings = Settings::of_this_program(Tree::Machine);
        settings.interval = INTERVAL;
        settings.files.limit = BYTES;
        let sampler = Sampler::start(&folder.path().join(FOLDER), settings)?;
        Ok(Self {
            _sampler: sampler,
            folder,
        })
    }
}

impl Here {
    /// What the page shows. The first call begins to sample, so it has nothing yet.
    ///
    /// # Errors
    /// The machine cannot be sampled, or the samples cannot be read.
    pub fn look(&self, places: &Places) -> Result<Value, ProfileError> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match &mut *own {
            Some(own) => own,
            none => none.insert(Own::start()?),
        };
        let recording = Recording::open_since(own.folder.path(), unix_now() - WINDOW)?;
        let about = recording.about.as_ref();
        let machine = about.map(|about| &about.machine);
        let heat = {
            let mut shown = recording.clone();
            // The map begins with what is shown.
            if let Some(about) = &mut shown.about {
                about.started = recording.extent().map_or(about.started, |extent| extent.0);
            }
            report::heat(&shown, &[], "")
        };
        Ok(json!({
            "machine": machine,
            "lately": Lately::of(&recording),
            "notes": about.map(|about| about.notes.iter().take(5).map(|note| text::short(note, 300)).collect::<Vec<_>>()),
            "charts": recording.nodes.first().map(charts),
            "disks": places.iter().filter_map(|place| disk(&place.path)).collect::<Vec<_>>(),
            "heat": heat,
        }))
    }

    /// Ends the sampler, and removes its folder.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A folder, and how much room its file system has: bytes that are free for this user, and all.
fn disk(folder: &Path) -> Option<Value> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(json!([
        text::short(&folder.display().to_string(), 200),
        about.f_bavail.saturating_mul(about.f_frsize),
        about.f_blocks.saturating_mul(about.f_frsize),
    ]))
}

/// Charts by heading; each has lines, a name and points as `time, step, value` one after the other.
fn charts(node: &Node) -> Vec<Value> {
    const CHARTS: [(&str, &[&str]); 5] = [
        ("Memory, percent", &[dimension::MEMORY, dimension::SWAP]),
        ("GPUs, percent", &[dimension::GPU]),
        ("Memory of GPUs, percent", &[dimension::GPU_MEMORY]),
        ("Disks, bytes a second", &[dimension::DISK]),
        ("Network, bytes a second", &[dimension::NETWORK]),
    ];
    let cores = cores(node)
        .map(|values| json!({"title": "Cores, percent", "lines": [line(node, "all cores", &values)]}));
    let others = CHARTS.iter().filter_map(|(title, dimensions)| {
        let series = dimensions.iter().flat_map(|dimension| node.of(dimension));
        let lines: Vec<Value> = series
            .map(|series| line(node, &named(series), &series.values))
            .collect();
        (!lines.is_empty()).then(|| json!({"title": title, "lines": lines}))
    });
    cores.into_iter().chain(others).collect()
}

/// The mean of all cores at each tick.
fn cores(node: &Node) -> Option<Vec<f32>> {
    let cores: Vec<&Series> = node.of(dimension::CPU).collect();
    let mean = |tick: usize| {
        let known = cores
            .iter()
            .map(|core| core.values[tick])
            .filter(|value| value.is_finite());
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / count
    };
    (!cores.is_empty()).then(|| (0..node.ticks.len()).map(mean).collect())
}

fn line(node: &Node, name: &str, values: &[f32]) -> Value {
    let points = node.ticks.iter().zip(values).flat_map(|(time, value)| {
        let value = Some(f64::from(*value)).filter(|value| value.is_finite());
        [
            json!((time * 10.0).round() / 10.0),
            Value::Null,
            json!(value.map(|value| (value * 10.0).round() / 10.0)),
        ]
    });
    json!({"name": name, "points": points.collect::<Vec<_>>()})
}

/// What a series is, for people: `read`, `gpu0`.
fn named(series: &Series) -> String {
    match series.name.as_str() {
        "MemoryUsedPercent" => "memory".to_owned(),
        "SwapUsedPercent" => "swap".to_owned(),
        "ReadBytesPerSecond" => "read".to_owned(),
        "WriteBytesPerSecond" => "written".to_owned(),
        "ReceiveBytesPerSecond" => "received".to_owned(),
        "TransmitBytesPerSecond" => "sent".to_owned(),
        other => text::short(other, 40),
    }
}
