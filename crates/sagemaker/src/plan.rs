//! From a job file to the request: a pure function.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stokehold_base::uri;
use stokehold_jobs::{
    Access, Channel as JobChannel, Compression, Distribution as Launch, EntryPoint, Job, Kind, Mode, Sharing,
    Wrapper,
};
use stokehold_objects::{Location, Options};

use crate::image::image;
use crate::section::{self, OnSageMaker};
use crate::source::is_hidden;
use crate::{
    Channel, CheckpointConfig, Client, CompressionType, CreateTrainingJob, DataSource, Distribution,
    FileSystemAccess, FileSystemDataSource, FileSystemType, InputMode, InstanceGroup, MetricDefinition,
    ProfilerConfig, RecordWrapper, S3DataSource, S3DataType, SageMakerError, ShuffleConfig, Source, Tag,
    VpcConfig, encode_hyperparameters,
};

/// What is sent for a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The request.
    pub request: CreateTrainingJob,
    /// The code.
    pub source: Source,
    /// Where the code goes, or is: `s3://..`.
    pub source_uri: String,
    /// What the file says and SageMaker has no counterpart of, or another one: a sentence each.
    pub notes: Vec<String>,
}

/// Keys of AWS. The role of a job is its credentials, and who may see a job may see its variables.
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

impl Plan {
    /// The job's section `[sagemaker]`.
    ///
    /// # Errors
    /// There is none, or a key of it is wrong, missing or unknown.
    pub fn section(job: &Job) -> Result<OnSageMaker, SageMakerError> {
        match section::of(job) {
            Ok(Some(section)) => Ok(section),
            Ok(None) => input(
                "the job file has no section [sagemaker]; write one with role and image (`stokehold job init` shows its keys)",
            ),
            Err(error) => input(error.to_string()),
        }
    }

    /// Translates a job. `name` is its name there, `region` where it runs. Reads no file and asks no one.
    ///
    /// # Errors
    /// The file lacks what SageMaker wants, or has something that SageMaker has no counterpart of, and that matters.
    pub fn new(job: &Job, name: &str, region: &str) -> Result<Self, SageMakerError> {
        let section = &Self::section(job)?;
        let Some(output) = job.output.as_deref().filter(|output| output.starts_with("s3://")) else {
            return input("SageMaker puts the model into a bucket; write output = \"s3://BUCKET/..\"");
        };
        let output = output.trim_end_matches('/');
        if section.instance_groups.is_empty() && job.instance_type == "local" {
            return input("SageMaker wants a type of machine; write instance-type = \"ml.g5.xlarge\"");
        }
        if let Some(name) = CREDENTIALS
            .iter()
            .find(|name| job.environment.contains_key(**name))
        {
            return input(format!(
                "[environment] has {name}: on SageMaker the role of the job is its credentials, and who may see the job may see \
                 its variables; leave it out"
            ));
        }
        let mut notes = notes(job);
        let mut request = CreateTrainingJob::new(name, &section.role, output);
        request.algorithm_specification.training_image =
            image(section, region, &types(job, section), job.distribution)?;
        request.algorithm_specification.metric_definitions = job
            .metrics
            .iter()
            .map(|metric| MetricDefinition {
                name: metric.name.clone(),
                regex: metric.regex.clone(),
            })
            .collect();
        request.input_data_config = channels(job, section, &mut notes)?;
        say_prefixes(&request.input_data_config, &mut notes);
        request.output_data_config.kms_key_id = section.kms_key.clone();

        let machines = &mut request.resource_config;
        if section.instance_groups.is_empty() {
            machines.instance_type = job.instance_type.clone();
            machines.instance_count = number("instances", job.instances as u64)?;
        } else {
            machines.instance_count = 0;
            machines.instance_groups = groups(job, section)?;
        }
        machines.volume_size_in_gb = section.volume_gigabytes;
        machines.volume_kms_key_id = section.volume_kms_key.clone();
        machines.keep_alive_period_in_seconds = section.keep_alive_seconds;
        let time = &mut request.stopping_condition;
        time.max_runtime_in_seconds = number("max-run-seconds", job.max_run_seconds)?;
        if let Some(spot) = &job.spot {
            let Some(wait) = spot.max_wait_seconds else {
                return input(format!(
                    "[spot] SageMaker wants to know how long to wait for spot machines, the run included; write max-wait-seconds, \
                     more than {}",
                    job.max_run_seconds
                ));
            };
            time.max_wait_time_in_seconds = Some(number("max-wait-seconds", wait)?);
            request.enable_managed_spot_training = true;
        }

        if let Some(place) = &job.checkpoints {
            if !place.starts_with("s3://") {
                return input(format!(
                    "checkpoints = \"{place}\": SageMaker mirrors checkpoints to a bucket; write s3://BUCKET/.."
                ));
            }
            request.checkpoint_config = Some(CheckpointConfig {
                s3_uri: place.clone(),
            });
        }
        request.profiler_config = Some(profiler(job, output)?);
        request.environment = job.environment.clone();
        // Here every script has it; SageMaker's toolkit does not set it.
        let checkpoints = request.environment.entry("SM_CHECKPOINT_DIR".to_owned());
        checkpoints.or_insert_with(|| "/opt/ml/checkpoints".to_owned());
        if !section.subnets.is_empty() || !section.security_groups.is_empty() {
            request.vpc_config = Some(VpcConfig {
                security_group_ids: section.security_groups.clone(),
                subnets: section.subnets.clone(),
            });
        }
        request.enable_network_isolation = section.network_isolation;
        request.enable_inter_container_traffic_encryption = section.encrypt_traffic;
        request.tags = section
            .tags
            .iter()
            .map(|(key, value)| Tag {
                key: key.clone(),
                value: value.clone(),
            })
            .collect();
        let (source, source_uri) = source(job, &format!("{output}/{name}/source/sourcedir.tar.gz"))?;
        // With groups it is different from machine to machine, and the toolkit finds it out.
        let machine = match section.instance_groups.is_empty() {
            true => Some(job.instance_type.as_str()),
            false => None,
        };
        request.hyper_parameters =
            encode_hyperparameters(&hyperparameters(job, machine, name, region, &source_uri)?);
        request.check()?;
        Ok(Self {
            request,
            source,
            source_uri,
            notes,
        })
    }

    /// Uploads the code. If the name is taken, nothing is uploaded.
    ///
    /// # Errors
    /// [`SageMakerError::NameTaken`]; the code cannot be read, or the bucket cannot be written.
    pub fn upload(&self, client: &Client, options: &Options) -> Result<(), SageMakerError> {
        client.require_free(&self.request.training_job_name)?;
        let options = options.in_region(client.region());
        self.source.upload(&self.source_uri, &options).map(drop)
    }

    /// Uploads the code and creates the job; returns its ARN.
    ///
    /// # Errors
    /// As [`upload`](Self::upload), and then no job is created; as [`Client::create`].
    pub fn submit(&self, client: &Client, options: &Options) -> Result<String, SageMakerError> {
        self.upload(client, options)?;
        client.create(&self.request)
    }
}

fn input<T>(reason: impl Into<String>) -> Result<T, SageMakerError> {
    Err(SageMakerError::Input(reason.into()))
}

fn number(key: &str, value: u64) -> Result<u32, SageMakerError> {
    // The API's integers have 32 bits with a sign.
    match i32::try_from(value) {
        Ok(value) => Ok(value.unsigned_abs()),
        Err(_) => input(format!(
            "{key} = {value} is more than SageMaker takes, {}",
            i32::MAX
        )),
    }
}

/// The types of the machines.
fn types<'a>(job: &'a Job, section: &'a OnSageMaker) -> Vec<&'a str> {
    match section.instance_groups.as_slice() {
        [] => vec![&job.instance_type],
        groups => groups.iter().map(|group| group.instance_type.as_str()).collect(),
    }
}

fn groups(job: &Job, section: &OnSageMaker) -> Result<Vec<InstanceGroup>, SageMakerError> {
    let each = section.instance_groups.iter().map(|group| {
        let stray = group.channels.iter().flatten();
        if let Some(stray) = stray.into_iter().find(|name| !job.channels.contains_key(*name)) {
            return input(format!(
                "[sagemaker] instance-groups: group {} gets channel {stray}, and [channels] has none of this name",
                group.name
            ));
        }
        Ok(InstanceGroup {
            instance_group_name: group.name.clone(),
            instance_type: group.instance_type.clone(),
            instance_count: number("instances", u64::from(group.instances))?,
        })
    });
    each.collect()
}

/// The groups that get a channel; none if all do.
fn groups_of(name: &str, section: &OnSageMaker) -> Result<Vec<String>, SageMakerError> {
    let groups = &section.instance_groups;
    let gets = |channels: &Option<Vec<String>>| {
        let mut known = channels.iter().flatten();
        channels.is_none() || known.any(|known| known == name)
    };
    let those: Vec<String> = groups
        .iter()
        .filter(|group| gets(&group.channels))
        .map(|group| group.name.clone())
        .collect();
    match (those.len(), groups.len()) {
        (some, all) if some == all => Ok(Vec::new()),
        (0, _) => input(format!(
            "channel {name}: no group of [sagemaker] instance-groups gets it; add it to the channels of one"
        )),
        _ => Ok(those),
    }
}

/// What the file says and SageMaker has no counterpart of.
fn notes(job: &Job) -> Vec<String> {
    let spot = job.spot.as_ref();
    let profiling = job.profiling();
    let said = [
        (
            "python",
            job.python != Path::new("python3"),
            "the image has its own",
        ),
        (
            "stop-seconds",
            job.stop_seconds != 120,
            "a script that is stopped gets 120 s",
        ),
        (
            "cache-dir and cache-gigabytes",
            job.cache_dir.is_some() || job.cache_gigabytes.is_some(),
            "machines have no cache between jobs",
        ),
        (
            "tensorboard",
            job.tensorboard,
            "the script may write event files to the checkpoints itself",
        ),
        ("opt-ml = false", !job.opt_ml, "a container always has /opt/ml"),
        (
            "[profiler] rules",
            !profiling.rules.is_empty(),
            "`stokehold report` judges the profiler's output afterwards",
        ),
        (
            "[spot] simulate, pause-seconds, price and spot-price",
            spot.is_some_and(|spot| {
                spot.simulate.is_some() || spot.pause_seconds > 0 || spot.price.is_some()
            }),
            "interruptions and prices are real there",
        ),
        (
            "[spot] grace-seconds",
            spot.is_some_and(|spot| spot.grace_seconds != 120),
            "an interrupted script gets 120 s",
        ),
    ];
    let mut notes: Vec<String> = said
        .iter()
        .filter(|(_, is_said, _)| *is_said)
        .map(|(key, _, reason)| format!("{key} has no counterpart on SageMaker: {reason}"))
        .collect();
    if job.checkpoints.is_none() {
        let again = if spot.is_some() {
            ", and an interrupted script begins anew"
        } else {
            ""
        };
        notes.push(format!(
            "checkpoints is not set: what the script writes to SM_CHECKPOINT_DIR stays on its machine{again}"
        ));
    }
    notes
}

/// Says of which channels SageMaker may take more than a folder.
fn say_prefixes(channels: &[Channel], notes: &mut Vec<String>) {
    let open = channels.iter().filter_map(|channel| match &channel.data_source {
        DataSource::S3DataSource(data)
            if data.s3_data_type == S3DataType::S3Prefix && !data.s3_uri.ends_with('/') =>
        {
            Some((channel.channel_name.as_str(), data.s3_uri.as_str()))
        }
        _ => None,
    });
    let (names, uris): (Vec<_>, Vec<_>) = open.unzip();
    if let Some(first) = uris.first() {
        notes.push(format!(
            "channels {}: SageMaker takes every object whose key begins like the URI, such as {first}-old/1.jpg too; end it with / for \
             the folder alone",
            names.join(", ")
        ));
    }
}

fn channels(
    job: &Job,
    section: &OnSageMaker,
    notes: &mut Vec<String>,
) -> Result<Vec<Channel>, SageMakerError> {
    if let Some(name) = section
        .channels
        .keys()
        .find(|name| !job.channels.contains_key(*name))
    {
        return input(format!(
            "[sagemaker.channels] has {name}, and [channels] has not; write it there, too"
        ));
    }
    let each = job.channels.iter().map(|(name, channel)| {
        let place = section.channels.get(name).unwrap_or(&channel.uri);
        match place.split_once("://") {
            Some(("s3", _)) => of_bucket(name, channel, place, groups_of(name, section)?, notes),
            Some((scheme @ ("efs" | "fsx"), rest)) if groups_of(name, section)?.is_empty() => {
                of_file_system(name, channel, scheme, rest)
            }
            Some(("efs" | "fsx", _)) => input(format!(
                "channel {name}: all groups of [sagemaker] instance-groups have a file system; add it to the channels of each"
            )),
            _ => input(format!(
                "channel {name}: SageMaker cannot read {place}; put the data into a bucket or on a file system, and say where: \
                 [sagemaker.channels] {name} = \"s3://BUCKET/..\", \"efs://fs-ID/FOLDER\" or \"fsx://fs-ID/MOUNTNAME/FOLDER\""
            )),
        }
    });
    each.collect()
}

fn of_bucket(
    name: &str,
    channel: &JobChannel,
    uri: &str,
    groups: Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Channel, SageMakerError> {
    let mode = match channel.mode() {
        Mode::File => InputMode::File,
        Mode::FastFile => InputMode::FastFile,
        Mode::Pipe => InputMode::Pipe,
        Mode::Cache if channel.access == Access::Rw => {
            return input(format!(
                "channel {name}: SageMaker writes nothing back to a channel's bucket (mode=Cache, access=rw); let the script \
                 write to SM_MODEL_DIR or SM_CHECKPOINT_DIR"
            ));
        }
        Mode::Cache => {
            notes.push(format!(
                "channel {name}: mode Cache is FastFile on SageMaker: every epoch reads from the bucket"
            ));
            InputMode::FastFile
        }
        Mode::Dir => {
            notes.push(format!(
                "channel {name}: {uri} is copied before the start (File); write mode=FastFile to read it while the script runs"
            ));
            InputMode::File
        }
    };
    let data = DataSource::S3DataSource(S3DataSource {
        s3_data_type: match channel.kind {
            Kind::S3Prefix | Kind::Mount => S3DataType::S3Prefix,
            Kind::ManifestFile => S3DataType::ManifestFile,
            Kind::AugmentedManifestFile => S3DataType::AugmentedManifestFile,
        },
        s3_uri: uri.to_owned(),
        s3_data_distribution_type: match channel.distribution {
            Sharing::FullyReplicated => Distribution::FullyReplicated,
            Sharing::ShardedByS3Key => Distribution::ShardedByS3Key,
        },
        attribute_names: channel.attributes.clone(),
        instance_group_names: groups,
    });
    Ok(Channel {
        content_type: channel.content_type.clone(),
        input_mode: Some(mode),
        compression_type: (channel.compression == Compression::Gzip).then_some(CompressionType::Gzip),
        record_wrapper_type: (channel.wrapper == Wrapper::RecordIO).then_some(RecordWrapper::RecordIo),
        shuffle_config: channel.shuffle.map(|seed| ShuffleConfig { seed }),
        ..Channel::new(name, data)
    })
}

fn of_file_system(
    name: &str,
    channel: &JobChannel,
    scheme: &str,
    rest: &str,
) -> Result<Channel, SageMakerError> {
    let Some((id, folder)) = rest
        .split_once('/')
        .filter(|(id, folder)| id.starts_with("fs-") && !folder.is_empty())
    else {
        return input(format!(
            "channel {name}: {scheme}://{rest} names no folder of a file system; write {scheme}://fs-ID/FOLDER"
        ));
    };
    let is_whole = matches!(channel.mode(), Mode::Dir | Mode::File)
        && matches!(channel.kind, Kind::S3Prefix | Kind::Mount)
        && channel.distribution == Sharing::FullyReplicated;
    if !is_whole {
        return input(format!(
            "channel {name}: a file system is used as it is; mode, kind and distribution are for buckets, so leave them out"
        ));
    }
    let data = DataSource::FileSystemDataSource(FileSystemDataSource {
        file_system_id: id.to_owned(),
        file_system_type: match scheme {
            "efs" => FileSystemType::Efs,
            _ => FileSystemType::FSxLustre,
        },
        file_system_access_mode: match channel.access {
            Access::Ro => FileSystemAccess::ReadOnly,
            Access::Rw => FileSystemAccess::ReadWrite,
        },
        directory_path: format!("/{folder}"),
    });
    Ok(Channel {
        content_type: channel.content_type.clone(),
        ..Channel::new(name, data)
    })
}

fn profiler(job: &Job, output: &str) -> Result<ProfilerConfig, SageMakerError> {
    if !job.profile {
        return Ok(ProfilerConfig {
            disable_profiler: true,
            ..ProfilerConfig::default()
        });
    }
    let text = job.profiling().interval;
    let interval = match humantime::parse_duration(&text) {
        Ok(time) => number("[profiler] interval", time.as_millis() as u64)?,
        Err(error) => return input(format!("[profiler] interval = \"{text}\": {error}")),
    };
    Ok(ProfilerConfig {
        s3_output_path: Some(output.to_owned()),
        profiling_interval_in_milliseconds: Some(interval),
        disable_profiler: false,
    })
}

/// Where the code is, and where it goes.
fn source(job: &Job, place: &str) -> Result<(Source, String), SageMakerError> {
    // A module has no file; it is refused with the hyperparameters.
    let entry_point = PathBuf::from(job.entry_point.file().unwrap_or_default());
    let Some(dir) = &job.source_dir else {
        if job.entry_point.file().is_none() {
            return input("a module has no file of its own; write source-dir");
        }
        check_name(&entry_point)?;
        let file = Source::File {
            path: job.beside.join(&entry_point),
            name: entry_point,
        };
        return Ok((file, place.to_owned()));
    };
    let (path, text) = (dir.clone(), dir.to_string_lossy());
    let is_archive = [".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end));
    match (uri::is_remote(&text), is_archive) {
        (true, true) if text.starts_with("s3://") => Ok((Source::There, text.into_owned())),
        (true, _) => input(format!(
            "source-dir = \"{text}\": SageMaker's toolkit fetches an archive, s3://../sourcedir.tar.gz; give one, or a folder \
             of this machine, which is uploaded"
        )),
        (false, true) => Ok((Source::Archive { path, entry_point }, place.to_owned())),
        (false, false) => {
            check_name(&entry_point)?;
            let places = job.channels.values().map(|channel| Location::parse(&channel.uri));
            let folder = Source::Folder {
                path,
                entry_point,
                channels: places.filter_map(|place| place.ok()?.folder()).collect(),
            };
            Ok((folder, place.to_owned()))
        }
    }
}

/// An entry point that is hidden is not uploaded.
fn check_name(entry_point: &Path) -> Result<(), SageMakerError> {
    match entry_point.iter().any(is_hidden) {
        true => input(format!(
            "entry-point = \"{}\": hidden files are not uploaded; give it a name that does not begin with a dot",
            entry_point.display()
        )),
        false => Ok(()),
    }
}

/// All hyperparameters: the user's, and those that the toolkit takes for itself.
fn hyperparameters(
    job: &Job,
    machine: Option<&str>,
    name: &str,
    region: &str,
    source: &str,
) -> Result<BTreeMap<String, Value>, SageMakerError> {
    if let EntryPoint::Module(module) = &job.entry_point {
        return input(format!(
            "entry-point = \"module:{module}\": SageMaker's toolkit runs files; write a .py file that runs the module \
             (runpy.run_module(\"{module}\", run_name=\"__main__\"))"
        ));
    }
    let mut all = job.hyperparameters.clone();
    let mut own = |name: &str, value: Value| {
        // A value that the user has set wins, as here.
        all.entry(name.to_owned()).or_insert(value);
    };
    own("sagemaker_program", json!(job.entry_point.name()));
    own("sagemaker_submit_directory", json!(source));
    own("sagemaker_container_log_level", json!(20));
    own("sagemaker_job_name", json!(name));
    own("sagemaker_region", json!(region));
    match job.distribution {
        Launch::None => {}
        Launch::Torch => {
            own("sagemaker_torch_distributed_enabled", json!(true));
        }
        Launch::Smdistributed => {
            own("sagemaker_distributed_dataparallel_enabled", json!(true));
            own("sagemaker_distributed_dataparallel_custom_mpi_options", json!(""));
        }
        Launch::Mpi => {
            own("sagemaker_mpi_enabled", json!(true));
            own("sagemaker_mpi_custom_mpi_options", json!(""));
        }
    }
    if let (Launch::Torch | Launch::Smdistributed, Some(machine)) = (job.distribution, machine) {
        own("sagemaker_instance_type", json!(machine));
    }
    if let Some(processes) = job
        .processes_per_host
        .filter(|_| job.distribution != Launch::None)
    {
        // The toolkit reads it for every launcher.
        own("sagemaker_mpi_num_of_processes_per_host", json!(processes));
    }
    Ok(all)
}
