//! From a training job of SageMaker to a job file.
//!
//! ```text
//! DescribeTrainingJob ──► description ──► Draft: a Job, and remarks ──► text ──► read again: what still is wrong
//! ```
//!
//! What has no counterpart becomes a comment at the section that it belongs to; nothing is left out silently.

mod description;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use stokehold_base::fault::Fault;
use stokehold_base::secret::is_secret;
use stokehold_jobs::{Channel, EntryPoint, Job, Profiling, Spot};
use toml::Table;

use crate::Plan;
use crate::section::{self, OnSageMaker};

/// A job file that was made of a training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The file, as TOML.
    pub text: String,
    /// What has to be changed before it runs on this machine or on SageMaker: a sentence each.
    pub problems: Vec<String>,
    /// Whether it runs on this machine as it is: what has to be changed is for SageMaker alone.
    pub runs_here: bool,
    /// How many members had no counterpart, or another one; each is a comment of the file.
    pub remarks: usize,
}

impl Imported {
    /// A job file of what DescribeTrainingJob answers, with the job's labels, if they could be read.
    ///
    /// # Errors
    /// The answer is no description of a training job.
    pub fn of_description(
        description: &Value,
        tags: Option<&BTreeMap<String, String>>,
    ) -> Result<Self, ImportError> {
        description::draft(description, tags).map(Draft::finish)
    }
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
#[error("this is no description of a training job: {0}")]
pub struct ImportError(String);

impl Fault for ImportError {
    fn is_input(&self) -> bool {
        false
    }
}

/// A part of a job file, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The keys before all sections.
    Top,
    Hyperparameters,
    Channels,
    Environment,
    Metrics,
    Profiler,
    Spot,
    SageMaker,
}

/// The sections with their names in the file.
const SECTIONS: [(Part, &str); 7] = [
    (Part::Hyperparameters, "hyperparameters"),
    (Part::Channels, "channels"),
    (Part::Environment, "environment"),
    (Part::Metrics, "metrics"),
    (Part::Profiler, "profiler"),
    (Part::Spot, "spot"),
    (Part::SageMaker, "sagemaker"),
];

/// A job file that is being made.
struct Draft {
    job: Job,
    sagemaker: OnSageMaker,
    /// Whether the job's entry point is known; if not, its key is a comment.
    has_entry_point: bool,
    /// The first lines.
    heading: Vec<String>,
    remarks: Vec<(Part, String)>,
    /// What the job reads or is, and this file does not have: a sentence each, what to write.
    lost: Vec<String>,
}

impl Draft {
    fn new() -> Self {
        Self {
            job: Job::new(EntryPoint::Python("train.py".to_owned())),
            sagemaker: OnSageMaker::default(),
            has_entry_point: false,
            heading: Vec::new(),
            remarks: Vec::new(),
            lost: Vec::new(),
        }
    }

    fn spot(&mut self) -> &mut Spot {
        self.job.spot.get_or_insert_with(Spot::default)
    }

    fn profiler(&mut self) -> &mut Profiling {
        self.job.profiler.get_or_insert_with(Profiling::default)
    }

    fn remark(&mut self, part: Part, text: impl Into<String>) {
        self.remarks.push((part, text.into()));
    }

    /// A channel that a job file may have; else a remark with the reason. `place` is where SageMaker has its data, if that is
    /// elsewhere.
    fn channel(&mut self, name: &str, channel: Channel, place: Option<String>) {
        let is_right = Table::try_from(&channel)
            .map_err(|error| error.to_string())
            .and_then(|table| Channel::deserialize(table).map_err(|error| error.to_string()));
        if let Err(reason) = is_right {
            let text = format!("{name} = {}: {}", channel.uri, reason.trim());
            self.lost.push(format!("write channel {name}: {}", reason.trim()));
            return self.remark(Part::Channels, text);
        }
        self.job.channels.insert(name.to_owned(), channel);
        if let Some(place) = place {
            self.sagemaker.channels.insert(name.to_owned(), place);
        }
    }

    /// A label, unless it looks like a secret.
    fn label(&mut self, key: &str, value: String) {
        if is_secret(key, &value) {
            let text = format!("label {key} = \"..\": its value looks like a secret and is not written out");
            return self.remark(Part::SageMaker, text);
        }
        self.sagemaker.tags.insert(key.to_owned(), value);
    }

    /// Variables; those that look like secrets become remarks without their values.
    fn environment(&mut self, variables: BTreeMap<String, String>) {
        self.job.environment = variables;
        for name in self.job.take_secrets() {
            let text = format!(
                "{name} = \"..\": its value looks like a secret and is not written out; give it here if it is needed"
            );
            self.remark(Part::Environment, text);
        }
    }

    /// Names of Debugger's rules; those that are judged here while a job runs are kept.
    fn rule(&mut self, rule: &str) {
        let known = rule.strip_suffix("Rule").unwrap_or(rule);
        let asked = Profiling {
            rules: vec![known.to_owned()],
            ..Profiling::default()
        };
        match asked.live() {
            Ok(Some(live)) if self.job.profile || !live.wants_recordings() => {
                let rules = &mut self.profiler().rules;
                if !rules.iter().any(|before| before == known) {
                    rules.push(known.to_owned());
                }
            }
            _ => self.remark(
                Part::Profiler,
                format!(
                    "rule {rule}: not judged while a job runs; the report judges the recording afterwards"
                ),
            ),
        }
    }

    /// The file, and what is still wrong with it: it is read as any other job file.
    fn finish(mut self) -> Imported {
        let remarks = self.remarks.len();
        let text = self.text();
        let (here, there) = self.problems(&text);
        let runs_here = here.is_empty();
        let problems: Vec<String> = here.into_iter().chain(there).collect();
        for problem in &problems {
            self.heading.push(format!("To do: {problem}."));
        }
        Imported {
            text: if problems.is_empty() { text } else { self.text() },
            problems,
            runs_here,
            remarks,
        }
    }

    fn text(&self) -> String {
        let mut all = pruned(&self.job, &self.sagemaker);
        let sections: Vec<(Part, &str, Option<toml::Value>)> = SECTIONS
            .iter()
            .map(|(part, name)| (*part, *name, all.remove(*name)))
            .collect();
        let mut text = String::new();
        for line in &self.heading {
            text += &comment(line);
        }
        if !self.has_entry_point {
            all.remove("entry-point");
            text += &comment("entry-point = \"train.py\"");
        }
        // A table whose values are texts, numbers, booleans and tables of them is always TOML.
        text += &toml::to_string(&all).unwrap_or_default();
        text += &self.comments(Part::Top);
        for (part, name, value) in sections {
            let comments = self.comments(part);
            if value.is_none() && comments.is_empty() {
                continue;
            }
            text.push('\n');
            text += &comments;
            if let Some(value) = value {
                let table = Table::from_iter([(name.to_owned(), value)]);
                text += &toml::to_string(&table).unwrap_or_default();
            }
        }
        text
    }

    /// What keeps the file from running here, and what from running on SageMaker.
    fn problems(&self, text: &str) -> (Vec<String>, Option<String>) {
        let mut here = self.lost.clone();
        let mut all: Table = match toml::from_str(text) {
            Ok(all) => all,
            Err(error) => return (vec![error.message().to_owned()], None),
        };
        // With what is missing in its place, so that the rest is judged too.
        if !self.has_entry_point {
            here.insert(
                0,
                "say what runs: entry-point, a script below source-dir".to_owned(),
            );
            all.insert("entry-point".to_owned(), "train.py".into());
        }
        let job = match Job::deserialize(all) {
            Ok(job) => job,
            Err(error) => {
                here.push(error.message().to_owned());
                return (here, None);
            }
        };
        here.extend(section::check(&job).err().map(|error| error.to_string()));
        // Any region will do for the rest.
        let region = self.sagemaker.region.as_deref().unwrap_or("us-east-1");
        let there = Plan::new(&job, "imported", region).err();
        (here, there.map(|error| format!("on SageMaker: {error}")))
    }

    fn comments(&self, part: Part) -> String {
        let own = self.remarks.iter().filter(|(of, _)| *of == part);
        own.map(|(_, text)| comment(text)).collect()
    }
}

/// A remark about something that is not in the file; without its value if that looks like a secret.
fn said(name: &str, value: &str, reason: &str) -> String {
    match is_secret(name, value) || is_secret(value, "") {
        true => format!("{name}: it may have a secret and is not written out; {reason}"),
        false => format!("{name} = {value}: {reason}"),
    }
}

/// A line of comment; characters that TOML does not have in comments are written as escapes.
fn comment(text: &str) -> String {
    let mut line = String::from("#");
    if !text.is_empty() {
        line.push(' ');
    }
    for c in text.chars() {
        match c {
            '\n' | '\r' => line.push(' '),
            '\t' => line.push(c),
            c if c.is_control() => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line.push('\n');
    line
}

/// The job as a table, without keys that have their defaults.
fn pruned(job: &Job, section: &OnSageMaker) -> Table {
    let of = |job: &Job| Table::try_from(job).unwrap_or_default();
    let (mut all, usual) = (of(job), of(&Job::new(job.entry_point.clone())));
    all.retain(|key, value| key == "entry-point" || usual.get(key) != Some(value));
    all.insert(
        "sagemaker".to_owned(),
        Table::try_from(section).unwrap_or_default().into(),
    );
    all.retain(|_, value| !is_empty(value));
    let prune = |table: &mut toml::Value, usual: Table| {
        if let Some(table) = table.as_table_mut() {
            table.retain(|key, value| usual.get(key) != Some(value));
        }
    };
    if let Some(channels) = all.get_mut("channels").and_then(toml::Value::as_table_mut) {
        for (_, channel) in channels.iter_mut() {
            let usual = Channel::parse("usual").ok();
            let mut usual = usual.map_or_else(Table::new, |usual| Table::try_from(usual).unwrap_or_default());
            usual.remove("uri");
            prune(channel, usual);
        }
    }
    if let Some(spot) = all.get_mut("spot") {
        prune(spot, Table::try_from(Spot::default()).unwrap_or_default());
    }
    if let Some(profiler) = all.get_mut("profiler") {
        prune(
            profiler,
            Table::try_from(Profiling::default()).unwrap_or_default(),
        );
    }
    if let Some(section) = all.get_mut("sagemaker").and_then(toml::Value::as_table_mut) {
        section.retain(|_, value| !is_empty(value) && value.as_bool() != Some(false));
    }
    all
}

fn is_empty(value: &toml::Value) -> bool {
    value.as_table().is_some_and(Table::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Whether TOML has this value: it has no null, and whole numbers of 64 bits with a sign.
fn is_toml(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => !number.is_u64() || number.as_i64().is_some(),
        Value::Array(values) => values.iter().all(is_toml),
        Value::Object(map) => map.values().all(is_toml),
        Value::Bool(_) | Value::String(_) => true,
    }
}
