//! A Python program that makes an estimator of SageMaker's SDK, as a draft. Python's own parser reads it, in a process of its
//! own; the program is never run.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value};
use stokehold_base::fault::Fault;
use stokehold_jobs::{
    Access, Channel, Compression, Distribution, EntryPoint, Framework, InstanceGroup, Mode, Wrapper,
};

use super::description::{
    CHECKPOINTS, KINDS, MODES, SHARINGS, keep_file_system, keep_folder_of_checkpoints, keep_groups,
    keep_hyperparameter, keep_metric, keep_time, share, warn_of_checkpoints,
};
use super::{Draft, ImportError, Part, said};

const READER: &str = include_str!("estimator.py");

/// Why a program's estimator was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EstimatorError {
    /// Python cannot be started, or failed.
    #[error("{}: {reason}; a Python of at least 3.9 has to be there to read the program", python.display())]
    Python {
        /// The interpreter.
        python: PathBuf,
        /// What happened.
        reason: String,
    },
    /// It is no Python.
    #[error("{name}: Python cannot read it: {reason}")]
    Syntax {
        /// The program.
        name: String,
        /// Where and why.
        reason: String,
    },
    /// There is no estimator, or there are several.
    #[error("{name}: {reason}")]
    Estimators {
        /// The program.
        name: String,
        /// What was found, and what to do.
        reason: String,
    },
}

impl Fault for EstimatorError {
    fn is_input(&self) -> bool {
        true
    }
}

/// An expression of the program.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Node {
    Value { value: Value },
    List { list: Vec<Self> },
    Table { table: Vec<(String, Self)> },
    Call(Call),
    Code { code: String },
}

#[derive(Debug, Clone, Deserialize)]
struct Call {
    call: String,
    line: u64,
    code: String,
    args: Vec<Node>,
    keywords: Vec<(String, Node)>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Found {
    Error { error: String },
    Calls(Calls),
}

/// The calls of a program, in their order.
#[derive(Debug, Deserialize)]
struct Calls {
    estimators: Vec<Call>,
    /// Of HyperparameterTuner.
    tuners: Vec<Call>,
    /// Of estimators that are not read.
    others: Vec<Call>,
    fits: Vec<Call>,
    hyperparameters: Vec<Call>,
}

impl Node {
    /// The expression in JSON or Python, for remarks.
    fn said(&self) -> String {
        match self {
            Self::Value { value } => value.to_string(),
            Self::Call(call) => call.code.clone(),
            Self::Code { code } => code.clone(),
            Self::List { list } => {
                let each: Vec<String> = list.iter().map(Self::said).collect();
                format!("[{}]", each.join(", "))
            }
            Self::Table { table } => {
                let each: Vec<String> = table
                    .iter()
                    .map(|(name, node)| format!("{name}: {}", node.said()))
                    .collect();
                format!("{{{}}}", each.join(", "))
            }
        }
    }

    fn value(&self) -> Option<&Value> {
        match self {
            Self::Value { value } => Some(value),
            _ => None,
        }
    }

    fn text(&self) -> Option<String> {
        self.value()?.as_str().map(str::to_owned)
    }

    /// A table's entries, whatever their values are.
    fn entries(&self) -> Option<Vec<(String, Self)>> {
        match self {
            Self::Table { table } => Some(table.clone()),
            Self::Value {
                value: Value::Object(map),
            } => Some(
                map.iter()
                    .map(|(name, value)| (name.clone(), Self::Value { value: value.clone() }))
                    .collect(),
            ),
            _ => None,
        }
    }

    fn items(&self) -> Option<Vec<Self>> {
        match self {
            Self::List { list } => Some(list.clone()),
            Self::Value {
                value: Value::Array(values),
            } => Some(
                values
                    .iter()
                    .map(|value| Self::Value { value: value.clone() })
                    .collect(),
            ),
            _ => None,
        }
    }
}

/// Arguments of a call that were not read yet, by their names.
struct Arguments(BTreeMap<String, Node>);

impl Arguments {
    /// `names` are those of arguments without names, in their order.
    fn of(call: &Call, names: &[&str]) -> Self {
        let mut all = BTreeMap::new();
        for (place, node) in call.args.iter().enumerate() {
            let name = names
                .get(place)
                .map_or_else(|| format!("argument {}", place + 1), |name| (*name).to_owned());
            all.insert(name, node.clone());
        }
        all.extend(call.keywords.iter().cloned());
        // None is what an argument has that is not given.
        all.retain(|_, node| node.value() != Some(&Value::Null));
        Self(all)
    }

    fn take<T>(&mut self, name: &str, read: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
        let read = read(self.0.get(name)?);
        if read.is_some() {
            self.0.remove(name);
        }
        read
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.take(name, Node::text)
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.take(name, |node| node.value()?.as_u64())
    }

    /// The same argument under the name of the SDK's first version.
    fn number_of(&mut self, names: [&str; 2]) -> Option<u64> {
        names.into_iter().find_map(|name| self.number(name))
    }

    fn text_of(&mut self, names: [&str; 2]) -> Option<String> {
        names.into_iter().find_map(|name| self.text(name))
    }

    fn truth(&mut self, name: &str) -> bool {
        self.take(name, |node| node.value()?.as_bool()) == Some(true)
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let read = |node: &Node| {
            let list = node.value()?.as_array()?.iter();
            list.map(|value| value.as_str().map(str::to_owned)).collect()
        };
        self.take(name, read).unwrap_or_default()
    }

    fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        self.take(name, |node| {
            let said = node.text()?;
            words
                .iter()
                .find(|(word, _)| *word == said)
                .map(|(_, value)| *value)
        })
    }

    fn rest(self, draft: &mut Draft, part: Part, place: &str) {
        for (name, node) in self.0 {
            let reason = match node {
                Node::Value { .. } => "has no counterpart",
                _ => "is no literal; see what it is",
            };
            // Such as the password of git_config.
            draft.remark(part, said(&format!("{place}{name}"), &node.said(), reason));
            if name == "**" {
                draft.lost.push(format!(
                    "write what {} gives by **; the program has no literal for it",
                    if place.is_empty() {
                        "the program"
                    } else {
                        place.trim_end()
                    }
                ));
            }
        }
    }

    /// Whether an argument is given, and was not read.
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

pub(super) fn draft(program: &str, name: &str, python: &Path) -> Result<Draft, ImportError> {
    let wrong = |reason: String| EstimatorError::Estimators {
        name: name.to_owned(),
        reason,
    };
    let calls = match read(program, python, LONGEST)? {
        Found::Error { error } => {
            return Err(EstimatorError::Syntax {
                name: name.to_owned(),
                reason: error,
            }
            .into());
        }
        Found::Calls(calls) => calls,
    };
    let lines = |calls: &[Call]| {
        let lines: Vec<String> = calls.iter().map(|call| call.line.to_string()).collect();
        lines.join(", ")
    };
    let estimator = match calls.estimators.as_slice() {
        [one] => one,
        [] => {
            let mut text = "it makes no PyTorch, TensorFlow or Estimator of SageMaker's SDK".to_owned();
            if let Some(other) = calls.others.first() {
                let Call { call, line, .. } = other;
                text += &format!(
                    "; {call} in line {line} is not read: run it, and import the training job that it makes"
                );
            }
            return Err(wrong(text).into());
        }
        several => {
            let text = format!(
                "it makes estimators in lines {}; leave one of them in a copy of it",
                lines(several)
            );
            return Err(wrong(text).into());
        }
    };
    let mut draft = Draft::new();
    draft.heading = vec![
        format!(
            "Imported from {name}, line {}: {}",
            estimator.line, estimator.call
        ),
        "Comments name what the program says and a job file has not, or what is no literal there.".to_owned(),
        String::new(),
    ];
    let mut mode = None;
    make(&mut draft, estimator, &mut mode);
    for call in &calls.hyperparameters {
        for (name, node) in &call.keywords {
            match node.value() {
                Some(value) => keep_hyperparameter(&mut draft, name, value.clone()),
                None => unknown_hyperparameter(&mut draft, name, node),
            }
        }
    }
    for call in &calls.tuners {
        tuner(&mut draft, call);
    }
    match calls.fits.as_slice() {
        [one] => fit(&mut draft, one, mode),
        [] => {
            draft.remark(
                Part::Channels,
                "the program does not call fit, which would name them",
            );
            draft.lost.push(
                "the program calls no fit of its estimator; write the channels that the script reads"
                    .to_owned(),
            );
        }
        several => {
            let text = format!("fit is called in lines {}", lines(several));
            draft.remark(
                Part::Channels,
                format!("{text}; take its inputs from one of them"),
            );
            draft
                .lost
                .push(format!("{text}; write the channels of one of them"));
        }
    }
    Ok(draft)
}

/// Has Python read the program, for so long at most.
fn read(program: &str, python: &Path, longest: Duration) -> Result<Found, EstimatorError> {
    let failed = |reason: String| EstimatorError::Python {
        python: python.to_owned(),
        reason,
    };
    // Isolated: neither the folder nor the user's packages are searched, so nothing but the reader is run.
    let mut child = Command::new(python)
        .args(["-I", "-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    // In threads of their own, so that an interpreter that neither reads nor ends is ended in time.
    let input = child.stdin.take().map(|mut input| {
        let program = program.as_bytes().to_vec();
        // If it is closed before its end, the interpreter says itself why it ended.
        thread::spawn(move || drop(input.write_all(&program)))
    });
    let printed = child.stdout.take().map(read_to_end);
    let said = child.stderr.take().map(read_to_end);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(error.to_string()))? {
            break status;
        }
        if began.elapsed() > longest {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("it has not ended after {} s", longest.as_secs())));
        }
        thread::sleep(Duration::from_millis(5));
    };
    let all = |thread: Option<JoinHandle<Vec<u8>>>| {
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    };
    let (printed, said) = (all(printed), all(said));
    drop(input);
    if !status.success() {
        let said = String::from_utf8_lossy(&said);
        let last = said.trim().lines().last().unwrap_or_default();
        return Err(failed(format!("{status} {last}")));
    }
    serde_json::from_slice(&printed).map_err(|error| failed(error.to_string()))
}

/// How long a program is read, at most; the largest takes a second on a machine that has nothing else to do.
const LONGEST: Duration = Duration::from_secs(60);

fn read_to_end(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        // What was read before an error is all there is.
        let _ = from.read_to_end(&mut all);
        all
    })
}

fn unknown_hyperparameter(draft: &mut Draft, name: &str, node: &Node) {
    let text = said(name, &node.said(), "is no literal; see what it is");
    draft.remark(Part::Hyperparameters, text);
    draft.lost.push(format!(
        "write hyperparameter {name}, if the script reads it; the program has no literal for it"
    ));
}

/// The estimator's arguments.
fn make(draft: &mut Draft, call: &Call, mode: &mut Option<Mode>) {
    let (framework, names): (_, &[&str]) = match call.call.as_str() {
        "PyTorch" => (
            Some(Framework::Pytorch),
            &[
                "entry_point",
                "framework_version",
                "py_version",
                "source_dir",
                "hyperparameters",
                "image_uri",
                "distribution",
            ],
        ),
        "TensorFlow" => (
            Some(Framework::Tensorflow),
            &[
                "py_version",
                "framework_version",
                "model_dir",
                "image_uri",
                "distribution",
            ],
        ),
        _ => (
            None,
            &[
                "image_uri",
                "role",
                "instance_count",
                "instance_type",
                "keep_alive_period_in_seconds",
                "volume_size",
                "volume_kms_key",
                "max_run",
                "input_mode",
                "output_path",
                "output_kms_key",
            ],
        ),
    };
    let mut arguments = Arguments::of(call, names);
    let arguments = &mut arguments;
    script(draft, arguments);
    image(draft, arguments, framework);
    if let Some(role) = arguments.text("role") {
        if !role.starts_with("arn:") {
            draft.remark(
                Part::SageMaker,
                format!("role = \"{role}\": SageMaker's SDK looks for its ARN; write that here"),
            );
        }
        draft.has_role = true;
        draft.sagemaker().role = role;
    }
    let count = arguments.number_of(["instance_count", "train_instance_count"]);
    if let Some(count) = count.and_then(|count| usize::try_from(count).ok()) {
        draft.job.instances = count;
    }
    match arguments.text_of(["instance_type", "train_instance_type"]) {
        Some(kind) if matches!(kind.as_str(), "local" | "local_gpu") => draft.remark(
            Part::Top,
            format!("instance_type = \"{kind}\": run it here, where the script sees what this machine has; for SageMaker write instance-type"),
        ),
        Some(kind) => draft.job.instance_type = kind,
        None => {}
    }
    groups(draft, arguments);
    let volume = arguments.number_of(["volume_size", "train_volume_size"]);
    if let Some(volume) = volume.and_then(|volume| u32::try_from(volume).ok()) {
        draft.sagemaker().volume_gigabytes = volume;
    }
    let keep = arguments.number("keep_alive_period_in_seconds");
    draft.sagemaker().keep_alive_seconds = keep.and_then(|keep| u32::try_from(keep).ok());
    draft.sagemaker().volume_kms_key = arguments.text_of(["volume_kms_key", "train_volume_kms_key"]);
    draft.sagemaker().kms_key = arguments.text("output_kms_key");
    draft.sagemaker().network_isolation = arguments.truth("enable_network_isolation");
    draft.sagemaker().encrypt_traffic = arguments.truth("encrypt_inter_container_traffic");
    let run = arguments.number_of(["max_run", "train_max_run"]);
    let is_spot = arguments.truth("use_spot_instances") || arguments.truth("train_use_spot_instances");
    let wait = arguments.number_of(["max_wait", "train_max_wait"]);
    if let Some(wait) = wait.filter(|_| !is_spot) {
        draft.remark(
            Part::Spot,
            format!("max_wait = {wait}: [spot] max-wait-seconds, if the job runs on spot machines"),
        );
    }
    keep_time(draft, run, is_spot, wait);
    *mode = arguments.word("input_mode", &MODES);
    draft.job.output = arguments.text("output_path");
    if draft.job.output.is_none() && !arguments.has("output_path") {
        draft.remark(
            Part::Top,
            "output: SageMaker's SDK makes a bucket for the account, sagemaker-REGION-ACCOUNT; write one here",
        );
    }
    draft.job.checkpoints = arguments.text("checkpoint_s3_uri");
    if is_spot && arguments.has("checkpoint_s3_uri") {
        draft.lost.push(
            "write checkpoints, where an interrupted script goes on from; the program has no literal for checkpoint_s3_uri"
                .to_owned(),
        );
    }
    let folder = arguments.0.get("checkpoint_local_path").map(Node::said);
    if let Some(folder) = folder {
        let is_usual = arguments.text("checkpoint_local_path").as_deref() == Some(CHECKPOINTS);
        if !is_usual {
            keep_folder_of_checkpoints(draft, "checkpoint_local_path", &folder);
            arguments.0.remove("checkpoint_local_path");
        }
    }
    warn_of_checkpoints(draft);
    hyperparameters(draft, arguments);
    if framework == Some(Framework::Tensorflow) {
        model_dir(draft, arguments);
    }
    metrics(draft, arguments);
    environment(draft, arguments);
    draft.sagemaker().subnets = arguments.texts("subnets");
    draft.sagemaker().security_groups = arguments.texts("security_group_ids");
    tags(draft, arguments);
    distribution(draft, arguments);
    profiler(draft, arguments);
    let level = arguments
        .number("container_log_level")
        .filter(|level| *level != 20);
    if let Some(level) = level {
        keep_hyperparameter(draft, "sagemaker_container_log_level", Value::from(level));
    }
    let rest = Arguments(std::mem::take(&mut arguments.0));
    rest.rest(draft, Part::Top, "");
}

fn script(draft: &mut Draft, arguments: &mut Arguments) {
    if let Some(entry) = arguments.text("entry_point") {
        let path = Path::new(&entry);
        match EntryPoint::parse(&entry) {
            Ok(entry) => (draft.job.entry_point, draft.has_entry_point) = (entry, true),
            // Without source_dir the SDK takes the file from any folder.
            Err(reason) => match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
                (Some(folder), Some(file)) if !arguments.0.contains_key("source_dir") => {
                    if let Ok(entry) = EntryPoint::parse(file) {
                        (draft.job.entry_point, draft.has_entry_point) = (entry, true);
                        draft.job.source_dir = Some(folder.to_owned());
                        let text = "source-dir: the entry point's folder; the SDK sends the file alone";
                        draft.remark(Part::Top, text);
                    }
                }
                _ => draft.remark(Part::Top, format!("entry_point = {reason}")),
            },
        }
    }
    if let Some(source) = arguments.text("source_dir") {
        draft.job.source_dir = Some(source.into());
    }
}

fn image(draft: &mut Draft, arguments: &mut Arguments, framework: Option<Framework>) {
    let image = arguments.text_of(["image_uri", "image_name"]);
    if image.is_some() {
        draft.sagemaker().image = image;
        for name in ["framework_version", "py_version"] {
            if let Some(version) = arguments.text(name) {
                draft.remark(Part::SageMaker, format!("{name} = {version}: the image has it"));
            }
        }
        return;
    }
    let (mut version, python) = (arguments.text("framework_version"), arguments.text("py_version"));
    if let (Some(short), Some(framework)) = (&version, framework)
        && let Some(whole) = whole_version(framework, short)
    {
        let text = format!("framework_version = {short}: SageMaker's SDK takes {whole} for it");
        draft.remark(Part::SageMaker, text);
        version = Some(whole.to_owned());
    }
    let section = draft.sagemaker();
    section.framework = framework;
    section.framework_version = version;
    section.python_version = python;
}

/// The version that SageMaker's Python SDK 2.232.2 takes for one of two parts: `version_aliases` of its lists of images for training.
fn whole_version(framework: Framework, short: &str) -> Option<&'static str> {
    let all: &[(&str, &str)] = match framework {
        Framework::Pytorch => &[
            ("1.2", "1.2.0"),
            ("1.3", "1.3.1"),
            ("1.4", "1.4.0"),
            ("1.5", "1.5.0"),
            ("1.6", "1.6.0"),
            ("1.7", "1.7.1"),
            ("1.8", "1.8.1"),
            ("1.9", "1.9.1"),
            ("1.10", "1.10.2"),
            ("1.11", "1.11.0"),
            ("1.12", "1.12.1"),
            ("1.13", "1.13.1"),
            ("2.0", "2.0.1"),
            ("2.1", "2.1.0"),
            ("2.2", "2.2.0"),
            ("2.3", "2.3.0"),
            ("2.4", "2.4.0"),
        ],
        Framework::Tensorflow => &[
            ("1.14", "1.14.0"),
            ("1.15", "1.15.5"),
            ("2.0", "2.0.4"),
            ("2.1", "2.1.3"),
            ("2.2", "2.2.2"),
            ("2.3", "2.3.2"),
            ("2.4", "2.4.3"),
            ("2.5", "2.5.1"),
            ("2.6", "2.6.3"),
            ("2.7", "2.7.1"),
            ("2.8", "2.8.0"),
            ("2.9", "2.9.2"),
            ("2.10", "2.10.1"),
            ("2.11", "2.11.0"),
            ("2.12", "2.12.0"),
            ("2.13", "2.13.0"),
            ("2.14", "2.14.1"),
            ("2.16", "2.16.2"),
        ],
    };
    all.iter()
        .find(|(known, _)| *known == short)
        .map(|(_, whole)| *whole)
}

/// The groups of machines, if each is a literal.
fn groups(draft: &mut Draft, arguments: &mut Arguments) {
    let groups = arguments.take("instance_groups", |node| {
        let each = node.items()?.into_iter().map(|node| {
            let Node::Call(call) = node else { return None };
            let mut own = Arguments::of(&call, &["instance_group_name", "instance_type", "instance_count"]);
            Some(InstanceGroup {
                name: own.text("instance_group_name")?,
                instance_type: own.text("instance_type")?,
                instances: u32::try_from(own.number("instance_count")?).ok()?,
                channels: None,
                price: None,
            })
        });
        each.collect::<Option<Vec<_>>>()
    });
    keep_groups(draft, groups.unwrap_or_default());
}

fn hyperparameters(draft: &mut Draft, arguments: &mut Arguments) {
    let entries = arguments.take("hyperparameters", Node::entries);
    if arguments.has("hyperparameters") {
        draft
            .lost
            .push("write the hyperparameters; the program has no literal for them".to_owned());
    }
    for (name, node) in entries.unwrap_or_default() {
        match node.value() {
            Some(value) => keep_hyperparameter(draft, &name, value.clone()),
            None => unknown_hyperparameter(draft, &name, &node),
        }
    }
}

/// The SDK gives it to the scripts of TensorFlow, among their hyperparameters.
fn model_dir(draft: &mut Draft, arguments: &mut Arguments) {
    match arguments.0.remove("model_dir") {
        None => draft.remark(
            Part::Hyperparameters,
            "model_dir: SageMaker's SDK gives the script a place in the bucket; write one, if the script reads it",
        ),
        Some(Node::Value {
            value: Value::Bool(false),
        }) => {}
        Some(node) => match node.value() {
            Some(value) => keep_hyperparameter(draft, "model_dir", value.clone()),
            None => unknown_hyperparameter(draft, "model_dir", &node),
        },
    }
}

fn metrics(draft: &mut Draft, arguments: &mut Arguments) {
    let metrics = arguments.take("metric_definitions", |node| node.value()?.as_array().cloned());
    for metric in metrics.unwrap_or_default() {
        let text = |name: &str| metric[name].as_str().unwrap_or_default().to_owned();
        keep_metric(draft, text("Name"), text("Regex"));
    }
}

/// Variables; what is no literal is named without its code, which may have a secret.
fn environment(draft: &mut Draft, arguments: &mut Arguments) {
    let Some(node) = arguments.0.remove("environment") else {
        return;
    };
    let Some(entries) = node.entries() else {
        return draft.remark(Part::Environment, "environment is no literal; see what it is");
    };
    let mut variables = BTreeMap::new();
    for (name, node) in entries {
        match node.text() {
            Some(text) => drop(variables.insert(name, text)),
            None => draft.remark(
                Part::Environment,
                format!("{name} is no literal text; see what it is"),
            ),
        }
    }
    draft.environment(variables);
}

fn tags(draft: &mut Draft, arguments: &mut Arguments) {
    let tags = arguments.take("tags", |node| {
        let mut tags = BTreeMap::new();
        match node.value()? {
            Value::Array(list) => {
                for tag in list {
                    tags.insert(tag["Key"].as_str()?.to_owned(), tag["Value"].as_str()?.to_owned());
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    tags.insert(key.clone(), value.as_str()?.to_owned());
                }
            }
            _ => return None,
        }
        Some(tags)
    });
    for (key, value) in tags.unwrap_or_default() {
        draft.label(&key, value);
    }
}

fn distribution(draft: &mut Draft, arguments: &mut Arguments) {
    let is_on = |map: &Map<String, Value>| map.get("enabled") == Some(&Value::Bool(true));
    let known = arguments.0.get("distribution").and_then(Node::value);
    let Some(map) = known.and_then(Value::as_object).cloned() else {
        if arguments.has("distribution") {
            draft.lost.push(
                "write distribution, how the script is started; the program has no literal for it".to_owned(),
            );
        }
        return;
    };
    arguments.0.remove("distribution");
    for (name, value) in map {
        let options = value.as_object().cloned().unwrap_or_default();
        let inner = options.get("dataparallel").and_then(Value::as_object);
        let launcher = match name.as_str() {
            "torch_distributed" | "pytorchddp" if is_on(&options) => Distribution::Torch,
            "mpi" if is_on(&options) => Distribution::Mpi,
            "smdistributed" if inner.is_some_and(is_on) && options.len() == 1 => Distribution::Smdistributed,
            _ => {
                draft.remark(
                    Part::Top,
                    format!("distribution {name} = {value}: has no counterpart"),
                );
                // What is off starts nothing.
                let is_off = |map: &Map<String, Value>| map.get("enabled") == Some(&Value::Bool(false));
                if !is_off(&options) && !inner.is_some_and(is_off) {
                    draft.lost_launcher(&name);
                }
                continue;
            }
        };
        draft.job.distribution = launcher;
        if name == "pytorchddp" {
            draft.remark(
                Part::Top,
                "distribution pytorchddp: torch is the same processes, started by torchrun",
            );
        }
        let own = if launcher == Distribution::Smdistributed {
            inner
        } else {
            Some(&options)
        };
        for (option, value) in own.into_iter().flatten() {
            match (option.as_str(), value.as_u64()) {
                ("enabled", _) => {}
                ("processes_per_host", Some(processes @ 1..)) => {
                    draft.job.processes_per_host = usize::try_from(processes).ok();
                }
                ("custom_mpi_options", _) if value.as_str() == Some("") => {}
                ("custom_mpi_options", _) => {
                    let key = match launcher {
                        Distribution::Mpi => "sagemaker_mpi_custom_mpi_options",
                        _ => "sagemaker_distributed_dataparallel_custom_mpi_options",
                    };
                    keep_hyperparameter(draft, key, value.clone());
                }
                _ => draft.remark(
                    Part::Top,
                    format!("distribution {name}.{option} = {value}: has no counterpart"),
                ),
            }
        }
    }
}

fn profiler(draft: &mut Draft, arguments: &mut Arguments) {
    draft.job.profile = !arguments.truth("disable_profiler");
    if let Some(Node::Call(call)) = arguments.0.get("profiler_config").cloned()
        && call.call == "ProfilerConfig"
    {
        arguments.0.remove("profiler_config");
        let mut own = Arguments::of(
            &call,
            &[
                "s3_output_path",
                "system_monitor_interval_millis",
                "framework_profile_params",
            ],
        );
        if own.truth("disable_profiler") {
            draft.job.profile = false;
        }
        let interval = own.number("system_monitor_interval_millis");
        if let Some(interval) = interval.filter(|interval| draft.job.profile && *interval != 500) {
            draft.profiler().interval = format!("{interval}ms");
        }
        own.rest(draft, Part::Profiler, "ProfilerConfig ");
    }
    let rules = arguments.take("rules", Node::items).unwrap_or_default();
    for node in rules {
        match rule(&node) {
            Some((name, rest)) => {
                draft.rule(&name);
                for (argument, node) in rest {
                    draft.remark(
                        Part::Profiler,
                        said(
                            &format!("rule {name}: {argument}"),
                            &node.said(),
                            "has no counterpart",
                        ),
                    );
                }
            }
            None => draft.remark(
                Part::Profiler,
                format!("rule {}: has no counterpart", node.said()),
            ),
        }
    }
}

/// The name of `Rule.sagemaker(rule_configs.loss_not_decreasing())`, LossNotDecreasing, and the further arguments.
fn rule(node: &Node) -> Option<(String, BTreeMap<String, Node>)> {
    let Node::Call(outer) = node else { return None };
    if outer.call != "sagemaker" {
        return None;
    }
    let mut own = Arguments::of(outer, &["base_config"]);
    let config = own.0.remove("base_config")?;
    let Node::Call(inner) = config else { return None };
    let words = inner.call.split('_').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    let name = words.collect();
    own.0.extend(Arguments::of(&inner, &[]).0);
    Some((name, own.0))
}

/// What a tuner would change is a study's, and its estimator is read as a job of its own.
fn tuner(draft: &mut Draft, call: &Call) {
    let names = ["estimator", "objective_metric_name", "hyperparameter_ranges"];
    let mut own = Arguments::of(call, &names);
    own.0.remove("estimator");
    let said = |node: Option<Node>| node.map_or_else(|| "?".to_owned(), |node| node.said());
    let goal = said(own.0.remove("objective_metric_name"));
    let ranges = own.0.remove("hyperparameter_ranges");
    let text = format!(
        "line {}: HyperparameterTuner has {goal} for its objective; a study file has one, and ranges",
        call.line
    );
    draft.remark(Part::Hyperparameters, text);
    match ranges.as_ref().and_then(Node::entries) {
        Some(ranges) => {
            for (name, node) in ranges {
                draft.remark(
                    Part::Hyperparameters,
                    format!(
                        "{name} = {}: the tuner chooses it; give one value here, or a range in a study file",
                        node.said()
                    ),
                );
                draft.lost.push(format!(
                    "give hyperparameter {name} a value; the tuner chooses it"
                ));
            }
        }
        None => draft.remark(
            Part::Hyperparameters,
            format!(
                "hyperparameter_ranges = {}: is no literal; see what it is",
                said(ranges)
            ),
        ),
    }
    own.rest(draft, Part::Hyperparameters, "HyperparameterTuner ");
}

/// The channels that fit is given.
fn fit(draft: &mut Draft, call: &Call, usual: Option<Mode>) {
    let mut arguments = Arguments::of(call, &["inputs", "wait", "logs", "job_name", "experiment_config"]);
    // They say how the program waits.
    for name in ["wait", "logs"] {
        arguments.0.remove(name);
    }
    let mut groups = BTreeMap::new();
    match arguments.0.remove("inputs") {
        None => {}
        Some(node) => match node.entries() {
            Some(entries) => {
                for (name, node) in entries {
                    input(draft, &name, &node, usual, &mut groups);
                }
            }
            // The name that the SDK gives to the only one.
            None => input(draft, "training", &node, usual, &mut groups),
        },
    }
    share(draft, &groups);
    arguments.rest(draft, Part::Top, "fit: ");
}

fn input(
    draft: &mut Draft,
    name: &str,
    node: &Node,
    usual: Option<Mode>,
    groups: &mut BTreeMap<String, Vec<String>>,
) {
    let unknown = |draft: &mut Draft| {
        let text = said(name, &node.said(), "is no literal; see what it is");
        draft.remark(Part::Channels, text);
        draft.lost.push(format!(
            "write where the data of channel {name} is; the program has no literal for it"
        ));
    };
    let call = match node {
        Node::Call(call) => call.clone(),
        node if node.text().is_some() => Call {
            call: "TrainingInput".to_owned(),
            line: 0,
            code: String::new(),
            args: vec![node.clone()],
            keywords: Vec::new(),
        },
        _ => return unknown(draft),
    };
    match call.call.as_str() {
        "TrainingInput" | "s3_input" => {
            let mut own = Arguments::of(
                &call,
                &[
                    "s3_data",
                    "distribution",
                    "compression",
                    "content_type",
                    "record_wrapping",
                    "s3_data_type",
                    "instance_groups",
                    "input_mode",
                    "attribute_names",
                ],
            );
            let Some(uri) = own.text("s3_data") else {
                return unknown(draft);
            };
            let names = own.texts("instance_groups");
            if !names.is_empty() {
                groups.insert(name.to_owned(), names);
            }
            let channel = of_bucket(uri, &mut own, usual);
            draft.channel(name, channel, None);
            own.rest(draft, Part::Channels, &format!("channel {name}: "));
        }
        "FileSystemInput" => {
            let mut own = Arguments::of(
                &call,
                &[
                    "file_system_id",
                    "file_system_type",
                    "directory_path",
                    "file_system_access_mode",
                    "content_type",
                ],
            );
            let known = (
                own.text("file_system_id"),
                own.word("file_system_type", &[("EFS", "efs"), ("FSxLustre", "fsx")]),
                own.text("directory_path"),
            );
            let (Some(id), Some(scheme), Some(folder)) = known else {
                return unknown(draft);
            };
            let access = own.word(
                "file_system_access_mode",
                &[("ro", Access::Ro), ("rw", Access::Rw)],
            );
            let content = own.text("content_type");
            keep_file_system(
                draft,
                name,
                scheme,
                &id,
                &folder,
                access.unwrap_or_default(),
                content,
            );
            own.rest(draft, Part::Channels, &format!("channel {name}: "));
        }
        _ => unknown(draft),
    }
}

fn of_bucket(uri: String, own: &mut Arguments, usual: Option<Mode>) -> Channel {
    // file:// and paths are data of this machine, for the SDK's local mode.
    let is_remote = uri.contains("://") && !uri.starts_with("file://");
    let mode = own.word("input_mode", &MODES).or(usual).filter(|_| is_remote);
    let is_pipe = mode == Some(Mode::Pipe);
    let seed = |node: &Node| {
        let Node::Call(call) = node else { return None };
        Arguments::of(call, &["seed"]).number("seed")
    };
    Channel {
        uri,
        mode: mode.filter(|mode| *mode != Mode::File),
        distribution: own.word("distribution", &SHARINGS).unwrap_or_default(),
        kind: own.word("s3_data_type", &KINDS).unwrap_or_default(),
        // A job file has the next three for pipes alone.
        wrapper: if is_pipe {
            own.word("record_wrapping", &[("RecordIO", Wrapper::RecordIO)])
        } else {
            None
        }
        .unwrap_or_default(),
        compression: if is_pipe {
            own.word("compression", &[("Gzip", Compression::Gzip)])
        } else {
            None
        }
        .unwrap_or_default(),
        shuffle: if is_pipe {
            own.take("shuffle_config", seed)
        } else {
            None
        },
        content_type: own.text("content_type"),
        access: Access::Ro,
        attributes: own.texts("attribute_names"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_interpreter_that_does_not_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, "#!/bin/sh\nexec sleep 600\n").unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let began = Instant::now();
        // It does not read either, and a pipe takes less.
        let error = read(&"x = 1\n".repeat(100_000), &python, Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("has not ended after 1 s"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
