//! What DescribeTrainingJob answers as a draft. Members that were read are taken out; what is left becomes remarks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stokehold_jobs::{
    Access, Channel, Compression, Decoded, Distribution, EntryPoint, Kind, Metric, Mode, Sharing, Wrapper,
    contract, decode_hyperparameter,
};

use super::{Draft, ImportError, Part, is_toml, said};
use crate::secret::is_secret_hyperparameter;
use crate::section::InstanceGroup;

/// Members that say what became of the job and not what it is.
const ANSWERS: [&str; 22] = [
    "AutoMLJobArn",
    "BillableTimeInSeconds",
    "CreationTime",
    "DebugRuleEvaluationStatuses",
    "FailureReason",
    "FinalMetricDataList",
    "LabelingJobArn",
    "LastModifiedTime",
    "ModelArtifacts",
    "ProfilerRuleEvaluationStatuses",
    "ProfilingStatus",
    "ProgressInfo",
    "SecondaryStatus",
    "SecondaryStatusTransitions",
    "TrainingEndTime",
    "TrainingJobArn",
    "TrainingJobStatus",
    "TrainingStartTime",
    "TrainingTimeInSeconds",
    "TuningJobArn",
    "WarmPoolStatus",
    "OutputModelPackageArn",
];

/// Hyperparameters that are made again of the file's other keys, and that of a tuning job, which the toolkit keeps from scripts.
const MADE: [&str; 4] = [
    "_tuning_objective_metric",
    "sagemaker_job_name",
    "sagemaker_region",
    "sagemaker_instance_type",
];

/// The members of an object that were not read yet.
struct Members(Map<String, Value>);

impl Members {
    fn text(&mut self, name: &str) -> Option<String> {
        let text = self.0.get(name)?.as_str()?.to_owned();
        self.0.remove(name);
        Some(text)
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let number = self.0.get(name)?.as_u64()?;
        self.0.remove(name);
        Some(number)
    }

    fn truth(&mut self, name: &str) -> bool {
        let truth = self.0.get(name).and_then(Value::as_bool);
        if truth.is_some() {
            self.0.remove(name);
        }
        truth == Some(true)
    }

    fn object(&mut self, name: &str) -> Option<Self> {
        match self.0.remove(name)? {
            Value::Object(map) => Some(Self(map)),
            other => {
                self.0.insert(name.to_owned(), other);
                None
            }
        }
    }

    fn list(&mut self, name: &str) -> Vec<Value> {
        match self.0.remove(name) {
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.0.insert(name.to_owned(), other);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let list = self.list(name).into_iter();
        list.filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    }

    /// One of some words; another one stays, and becomes a remark.
    fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let said = self.0.get(name)?.as_str()?;
        let found = words.iter().find(|(word, _)| *word == said)?.1;
        self.0.remove(name);
        Some(found)
    }

    /// Makes remarks of what is left.
    fn rest(self, draft: &mut Draft, part: Part, place: &str) {
        for (name, value) in self.0 {
            let is_nothing = match &value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(values) => values.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            if !is_nothing {
                draft.remark(
                    part,
                    said(
                        &format!("{place}{name}"),
                        &value.to_string(),
                        "has no counterpart",
                    ),
                );
            }
        }
    }
}

pub(super) fn draft(
    description: &Value,
    tags: Option<&BTreeMap<String, String>>,
) -> Result<Draft, ImportError> {
    let none = |reason: &str| ImportError(reason.to_owned());
    let Value::Object(map) = description else {
        return Err(none("it is no object"));
    };
    let mut members = Members(map.clone());
    let name = members
        .text("TrainingJobName")
        .ok_or_else(|| none("it has no TrainingJobName"))?;
    let mut draft = Draft::new();
    head(&mut draft, &name, description);
    for answer in ANSWERS {
        members.0.remove(answer);
    }
    profiler(&mut draft, &mut members);
    draft.sagemaker.role = members.text("RoleArn").unwrap_or_default();
    let mode = algorithm(&mut draft, &mut members);
    hyperparameters(&mut draft, &mut members);
    machines(&mut draft, &mut members);
    time(&mut draft, &mut members);
    channels(&mut draft, &mut members, mode);
    output(&mut draft, &mut members);
    if let Some(mut network) = members.object("VpcConfig") {
        draft.sagemaker.subnets = network.texts("Subnets");
        draft.sagemaker.security_groups = network.texts("SecurityGroupIds");
        network.rest(&mut draft, Part::SageMaker, "VpcConfig.");
    }
    draft.sagemaker.network_isolation = members.truth("EnableNetworkIsolation");
    draft.sagemaker.encrypt_traffic = members.truth("EnableInterContainerTrafficEncryption");
    environment(&mut draft, &mut members);
    labels(&mut draft, tags);
    members.rest(&mut draft, Part::Top, "");
    Ok(draft)
}

/// Labels, but for those that AWS gives itself.
fn labels(draft: &mut Draft, tags: Option<&BTreeMap<String, String>>) {
    let Some(tags) = tags else {
        return draft.remark(Part::SageMaker, "tags: its labels could not be read");
    };
    for (key, value) in tags {
        if key.starts_with("aws:") {
            draft.remark(
                Part::SageMaker,
                format!("label {key} = {value}: AWS gives labels of this name itself"),
            );
        } else {
            draft.label(key, value.clone());
        }
    }
}

fn head(draft: &mut Draft, name: &str, description: &Value) {
    let text = |pointer: &str| description.pointer(pointer).and_then(Value::as_str);
    let arn = text("/TrainingJobArn").unwrap_or_default();
    // arn:aws:sagemaker:REGION:ACCOUNT:training-job/NAME
    let region = arn.split(':').nth(3).filter(|region| !region.is_empty());
    draft.sagemaker.region = region.map(str::to_owned);
    draft.heading.push(format!("Imported from SageMaker: {arn}"));
    if let Some(status) = text("/TrainingJobStatus") {
        draft.heading.push(format!("It is {status} there."));
    }
    if let Some(model) = text("/ModelArtifacts/S3ModelArtifacts") {
        draft.heading.push(format!("Its model: {model}"));
    }
    draft
        .heading
        .push("Comments name what SageMaker has and a job file has not.".to_owned());
    draft.heading.push(String::new());
    draft.remark(
        Part::Top,
        format!("name = \"{name}\": its name on SageMaker, where it is never free again"),
    );
}

/// Returns the mode of channels that name none.
fn algorithm(draft: &mut Draft, members: &mut Members) -> Option<Mode> {
    let mut algorithm = members.object("AlgorithmSpecification")?;
    draft.sagemaker.image = algorithm.text("TrainingImage");
    let mode = algorithm.word("TrainingInputMode", &MODES);
    for metric in algorithm.list("MetricDefinitions") {
        let text = |name: &str| metric[name].as_str().unwrap_or_default().to_owned();
        let metric = Metric {
            name: text("Name"),
            regex: text("Regex"),
        };
        match metric.compile() {
            Ok(_) => draft.job.metrics.push(metric),
            Err(reason) => draft.remark(Part::Metrics, reason),
        }
    }
    algorithm.rest(draft, Part::SageMaker, "AlgorithmSpecification.");
    mode
}

const MODES: [(&str, Mode); 3] = [
    ("File", Mode::File),
    ("FastFile", Mode::FastFile),
    ("Pipe", Mode::Pipe),
];

const SHARINGS: [(&str, Sharing); 2] = [
    ("FullyReplicated", Sharing::FullyReplicated),
    ("ShardedByS3Key", Sharing::ShardedByS3Key),
];

const KINDS: [(&str, Kind); 3] = [
    ("S3Prefix", Kind::S3Prefix),
    ("ManifestFile", Kind::ManifestFile),
    ("AugmentedManifestFile", Kind::AugmentedManifestFile),
];

fn hyperparameters(draft: &mut Draft, members: &mut Members) {
    let Some(Members(encoded)) = members.object("HyperParameters") else {
        return draft.remark(
            Part::Top,
            "the job names no script: its image is the program; put the script here, and its folder as source-dir",
        );
    };
    let mut values = BTreeMap::new();
    for (name, value) in encoded {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let decoded = decode_hyperparameter(&text);
        if matches!(decoded, Decoded::Text(_)) {
            draft.remark(Part::Hyperparameters, format!("{name}: {AS_TEXT}"));
        }
        values.insert(name, decoded.into_value());
    }
    script(draft, &mut values);
    distribution(draft, &mut values);
    for name in MADE {
        values.remove(name);
    }
    if values.get("sagemaker_container_log_level") == Some(&Value::from(20)) {
        values.remove("sagemaker_container_log_level");
    }
    for (name, value) in values {
        keep_hyperparameter(draft, &name, value);
    }
}

const AS_TEXT: &str = "TOML has not all of this value, so it is a text; the script's argument is the same";

/// A hyperparameter; a value that TOML has not becomes the text that the script gets. One that looks like a secret becomes a
/// remark without its value.
fn keep_hyperparameter(draft: &mut Draft, name: &str, value: Value) {
    if is_secret_hyperparameter(name, &value) {
        draft.remark(
            Part::Hyperparameters,
            format!("{name} = \"..\": its value looks like a secret and is not written out; let the script fetch it"),
        );
        draft.lost.push(format!(
            "let the script fetch hyperparameter {name} itself: its value looks like a secret and is not in this file"
        ));
    } else if is_toml(&value) {
        draft.job.hyperparameters.insert(name.to_owned(), value);
    } else {
        draft.remark(Part::Hyperparameters, format!("{name}: {AS_TEXT}"));
        let one = BTreeMap::from([(name.to_owned(), value)]);
        let argument = contract::arguments(&one).pop().unwrap_or_default();
        draft.job.hyperparameters.insert(name.to_owned(), argument.into());
    }
}

fn script(draft: &mut Draft, values: &mut BTreeMap<String, Value>) {
    match values.remove("sagemaker_program") {
        Some(Value::String(program)) => match EntryPoint::parse(&program) {
            Ok(entry) => (draft.job.entry_point, draft.has_entry_point) = (entry, true),
            Err(reason) => draft.remark(Part::Top, format!("entry-point: {reason}")),
        },
        Some(other) => draft.remark(Part::Top, format!("entry-point = {other}: this is no file")),
        None => draft.remark(
            Part::Top,
            "the job names no script: its image is the program; put the script here, and its folder as source-dir",
        ),
    }
    match values.remove("sagemaker_submit_directory") {
        Some(Value::String(place)) if place.starts_with("s3://") => draft.job.source_dir = Some(place.into()),
        Some(other) => draft.remark(
            Part::Top,
            format!("source-dir = {other}: a folder of the image; put a copy beside this file"),
        ),
        None if draft.has_entry_point => {
            draft.remark(
                Part::Top,
                "source-dir: the code is in the image; put a copy beside this file",
            );
        }
        None => {}
    }
}

fn distribution(draft: &mut Draft, values: &mut BTreeMap<String, Value>) {
    // The key of a launcher, and its further options where they are made again.
    let launchers = [
        ("sagemaker_torch_distributed_enabled", Distribution::Torch, None),
        (
            "sagemaker_distributed_dataparallel_enabled",
            Distribution::Smdistributed,
            Some("sagemaker_distributed_dataparallel_custom_mpi_options"),
        ),
        (
            "sagemaker_mpi_enabled",
            Distribution::Mpi,
            Some("sagemaker_mpi_custom_mpi_options"),
        ),
    ];
    for (key, launcher, options) in launchers {
        match values.get(key) {
            Some(Value::Bool(true)) if draft.job.distribution == Distribution::None => {
                draft.job.distribution = launcher;
                values.remove(key);
            }
            Some(Value::Bool(false)) => {
                values.remove(key);
                continue;
            }
            _ => continue,
        }
        if let Some(options) = options.filter(|options| values.get(*options) == Some(&Value::from(""))) {
            values.remove(options);
        }
    }
    for (key, launcher) in [
        ("sagemaker_parameter_server_enabled", "parameter_server"),
        (
            "sagemaker_multi_worker_mirrored_strategy_enabled",
            "multi_worker_mirrored_strategy",
        ),
        ("sagemaker_pytorch_ddp_enabled", "pytorchddp"),
        ("sagemaker_pytorch_xla_multi_worker_enabled", "pytorchxla"),
    ] {
        if values.get(key) == Some(&Value::Bool(true)) {
            draft.remark(Part::Top, format!("{key} = true: it starts nothing here"));
            draft.lost.push(format!(
                "choose how the script is started: distribution {launcher} has no counterpart here"
            ));
        }
    }
    const PROCESSES: &str = "sagemaker_mpi_num_of_processes_per_host";
    if draft.job.distribution != Distribution::None
        && let Some(processes) = values.get(PROCESSES).and_then(Value::as_u64)
        && processes > 0
    {
        draft.job.processes_per_host = usize::try_from(processes).ok();
        values.remove(PROCESSES);
    }
}

fn machines(draft: &mut Draft, members: &mut Members) {
    let Some(mut machines) = members.object("ResourceConfig") else {
        return;
    };
    if let Some(kind) = machines.text("InstanceType") {
        draft.job.instance_type = kind;
    }
    let count = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    if let Some(instances) = count(machines.number("InstanceCount")).filter(|count| *count > 0) {
        draft.job.instances = instances;
    }
    match machines.number("VolumeSizeInGB").map(u32::try_from) {
        Some(Ok(size @ 1..)) => draft.sagemaker.volume_gigabytes = size,
        Some(_) => draft.remark(
            Part::SageMaker,
            "ResourceConfig.VolumeSizeInGB = 0: the machines have disks of their own; a volume has 30 GB here",
        ),
        None => {}
    }
    let keep = machines.number("KeepAlivePeriodInSeconds");
    draft.sagemaker.keep_alive_seconds = keep.and_then(|keep| u32::try_from(keep).ok());
    let groups: Vec<InstanceGroup> = machines
        .list("InstanceGroups")
        .into_iter()
        .map(|group| InstanceGroup {
            name: group["InstanceGroupName"].as_str().unwrap_or_default().to_owned(),
            instance_type: group["InstanceType"].as_str().unwrap_or_default().to_owned(),
            instances: group["InstanceCount"].as_u64().unwrap_or_default() as u32,
            channels: None,
            price: None,
        })
        .collect();
    // Here there are as many instances, of the first group's type.
    if let Some(first) = groups.first() {
        draft.job.instance_type = first.instance_type.clone();
        draft.job.instances = groups.iter().map(|group| group.instances as usize).sum();
        draft.sagemaker.instance_groups = groups;
    }
    draft.sagemaker.volume_kms_key = machines.text("VolumeKmsKeyId").filter(|key| !key.is_empty());
    machines.rest(draft, Part::SageMaker, "ResourceConfig.");
}

fn output(draft: &mut Draft, members: &mut Members) {
    if let Some(mut output) = members.object("OutputDataConfig") {
        draft.job.output = output.text("S3OutputPath");
        draft.sagemaker.kms_key = output.text("KmsKeyId").filter(|key| !key.is_empty());
        if output.0.get("CompressionType") == Some(&Value::from("GZIP")) {
            output.0.remove("CompressionType");
        }
        output.rest(draft, Part::Top, "OutputDataConfig.");
    }
    if let Some(mut checkpoints) = members.object("CheckpointConfig") {
        draft.job.checkpoints = checkpoints.text("S3Uri");
        if let Some(folder) = checkpoints.text("LocalPath")
            && folder.trim_end_matches('/') != CHECKPOINTS
        {
            let reason = "checkpoints are in /opt/ml/checkpoints, which SM_CHECKPOINT_DIR names";
            draft.remark(Part::Top, said("CheckpointConfig.LocalPath", &folder, reason));
            if draft.job.checkpoints.is_some() {
                draft.lost.push(
                    "let the script write its checkpoints to SM_CHECKPOINT_DIR; they were in another folder"
                        .to_owned(),
                );
            }
        }
        checkpoints.rest(draft, Part::Top, "CheckpointConfig.");
        draft.remark(
            Part::Top,
            "checkpoints: a job with this place continues from what is there, here and on SageMaker; give another place to \
             begin anew",
        );
    }
}

/// The folder of checkpoints, which is no other here.
const CHECKPOINTS: &str = "/opt/ml/checkpoints";

fn time(draft: &mut Draft, members: &mut Members) {
    let is_spot = members.truth("EnableManagedSpotTraining");
    let time = members.object("StoppingCondition");
    let mut time = time.unwrap_or_else(|| Members(Map::new()));
    let run = time.number("MaxRuntimeInSeconds").filter(|seconds| *seconds > 0);
    let run = run.unwrap_or(86_400);
    draft.job.max_run_seconds = run;
    let wait = time.number("MaxWaitTimeInSeconds");
    if is_spot {
        if let Some(wait) = wait.filter(|wait| *wait < run) {
            let text =
                format!("max-wait-seconds was {wait}; it includes the run, so it is max-run-seconds now");
            draft.remark(Part::Spot, text);
        }
        draft.spot().max_wait_seconds = wait.map(|wait| wait.max(run));
    }
    time.rest(draft, Part::Top, "StoppingCondition.");
}

fn channels(draft: &mut Draft, members: &mut Members, mode: Option<Mode>) {
    // The groups that get a channel, by its name.
    let mut groups = BTreeMap::new();
    for entry in members.list("InputDataConfig") {
        let text = entry.to_string();
        let Value::Object(map) = entry else {
            draft.remark(Part::Channels, format!("{text}: this is no channel"));
            continue;
        };
        let mut entry = Members(map);
        let name = entry.text("ChannelName").unwrap_or_default();
        let place = format!("channel {name}: ");
        let mut data = entry.object("DataSource").unwrap_or_else(|| Members(Map::new()));
        if let Some(objects) = data.object("S3DataSource") {
            let names = of_bucket(draft, &name, &mut entry, objects, mode);
            if !names.is_empty() {
                groups.insert(name.clone(), names);
            }
        } else if let Some(files) = data.object("FileSystemDataSource") {
            of_file_system(draft, &name, &mut entry, files);
        }
        data.rest(draft, Part::Channels, &format!("{place}DataSource."));
        entry.rest(draft, Part::Channels, &place);
    }
    share(draft, &groups);
}

/// Gives groups their channels; one that gets all names none.
fn share(draft: &mut Draft, groups: &BTreeMap<String, Vec<String>>) {
    if groups.is_empty() {
        return;
    }
    let all: Vec<String> = draft.job.channels.keys().cloned().collect();
    for group in &mut draft.sagemaker.instance_groups {
        let gets = |channel: &String| {
            groups
                .get(channel)
                .is_none_or(|names| names.contains(&group.name))
        };
        let own: Vec<String> = all.iter().filter(|channel| gets(channel)).cloned().collect();
        if own.len() < all.len() {
            group.channels = Some(own);
        }
    }
}

/// Returns the groups that get it.
fn of_bucket(
    draft: &mut Draft,
    name: &str,
    entry: &mut Members,
    mut objects: Members,
    usual: Option<Mode>,
) -> Vec<String> {
    let mode = entry.word("InputMode", &MODES).or(usual).unwrap_or(Mode::File);
    let mut channel = Channel {
        uri: objects.text("S3Uri").unwrap_or_default(),
        mode: (mode != Mode::File).then_some(mode),
        distribution: objects
            .word("S3DataDistributionType", &SHARINGS)
            .unwrap_or_default(),
        kind: objects.word("S3DataType", &KINDS).unwrap_or_default(),
        wrapper: Wrapper::None,
        compression: Compression::None,
        shuffle: None,
        content_type: entry.text("ContentType"),
        access: Access::Ro,
        attributes: objects.texts("AttributeNames"),
    };
    // These two are written out as None, too.
    for member in ["RecordWrapperType", "CompressionType"] {
        if entry.0.get(member) == Some(&Value::from("None")) {
            entry.0.remove(member);
        }
    }
    // A job file has them for pipes alone; elsewhere they become remarks.
    if mode == Mode::Pipe {
        channel.wrapper = entry
            .word("RecordWrapperType", &[("RecordIO", Wrapper::RecordIO)])
            .unwrap_or_default();
        channel.compression = entry
            .word("CompressionType", &[("Gzip", Compression::Gzip)])
            .unwrap_or_default();
        if let Some(mut shuffle) = entry.object("ShuffleConfig") {
            channel.shuffle = shuffle.number("Seed");
            shuffle.rest(draft, Part::Channels, &format!("channel {name}: ShuffleConfig."));
        }
    }
    let groups = objects.texts("InstanceGroupNames");
    objects.rest(
        draft,
        Part::Channels,
        &format!("channel {name}: DataSource.S3DataSource."),
    );
    draft.channel(name, channel, None);
    groups
}

fn of_file_system(draft: &mut Draft, name: &str, entry: &mut Members, mut files: Members) {
    let id = files.text("FileSystemId").unwrap_or_default();
    let folder = files.text("DirectoryPath").unwrap_or_default();
    let scheme = files
        .word("FileSystemType", &[("EFS", "efs"), ("FSxLustre", "fsx")])
        .unwrap_or("efs");
    let access = files
        .word("FileSystemAccessMode", &[("ro", Access::Ro), ("rw", Access::Rw)])
        .unwrap_or_default();
    // A file system has no other mode.
    entry.word("InputMode", &[("File", ())]);
    let folder = folder.trim_start_matches('/');
    let channel = Channel {
        uri: format!("/mnt/{id}/{folder}"),
        mode: None,
        distribution: Sharing::FullyReplicated,
        kind: Kind::Mount,
        wrapper: Wrapper::None,
        compression: Compression::None,
        shuffle: None,
        content_type: entry.text("ContentType"),
        access,
        attributes: Vec::new(),
    };
    draft.remark(
        Part::Channels,
        format!("channel {name}: mount the file system at /mnt/{id}, or say where its data is on this machine (a folder without kind)"),
    );
    draft.channel(name, channel, Some(format!("{scheme}://{id}/{folder}")));
    files.rest(
        draft,
        Part::Channels,
        &format!("channel {name}: DataSource.FileSystemDataSource."),
    );
}

fn profiler(draft: &mut Draft, members: &mut Members) {
    match members.object("ProfilerConfig") {
        None => draft.remark(
            Part::Profiler,
            "the job has no ProfilerConfig; here and on SageMaker it is recorded unless profile = false",
        ),
        Some(mut profiler) => {
            draft.job.profile = !profiler.truth("DisableProfiler");
            let interval = profiler.number("ProfilingIntervalInMilliseconds");
            if let Some(interval) = interval.filter(|interval| draft.job.profile && *interval != 500) {
                draft.profiler().interval = format!("{interval}ms");
            }
            let output = members
                .0
                .get("OutputDataConfig")
                .and_then(|output| output["S3OutputPath"].as_str());
            let bare = |text: &str| text.trim_end_matches('/').to_owned();
            if let Some(place) = profiler.text("S3OutputPath")
                && output.map(bare) != Some(bare(&place))
            {
                draft.remark(
                    Part::Profiler,
                    format!(
                        "ProfilerConfig.S3OutputPath = {place}: a job file has one place for results, output"
                    ),
                );
            }
            profiler.rest(draft, Part::Profiler, "ProfilerConfig.");
        }
    }
    for member in ["ProfilerRuleConfigurations", "DebugRuleConfigurations"] {
        for rule in members.list(member) {
            let asked = rule["RuleParameters"]["rule_to_invoke"].as_str();
            let name = asked
                .or(rule["RuleConfigurationName"].as_str())
                .unwrap_or_default();
            draft.rule(name);
            let options = rule["RuleParameters"].as_object().into_iter().flatten();
            for (option, value) in options.filter(|(option, _)| *option != "rule_to_invoke") {
                let place = format!("rule {name}: {option}");
                draft.remark(
                    Part::Profiler,
                    said(&place, &value.to_string(), "has no counterpart"),
                );
            }
        }
    }
}

fn environment(draft: &mut Draft, members: &mut Members) {
    let Some(Members(map)) = members.object("Environment") else {
        return;
    };
    let mut variables: BTreeMap<String, String> = map
        .into_iter()
        .map(|(name, value)| (name, value.as_str().unwrap_or_default().to_owned()))
        .collect();
    // It is set again.
    if variables.get("SM_CHECKPOINT_DIR").map(String::as_str) == Some("/opt/ml/checkpoints") {
        variables.remove("SM_CHECKPOINT_DIR");
    }
    draft.environment(variables);
}
