//! A batch transform on SageMaker: its settings are those of a job file, its data is in buckets.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_jobs::Job;
use stokehold_objects::Options;
use stokehold_sagemaker::{
    AssembleWith, BatchStrategy, Container, CreateModel, CreateTransformJob, DataProcessing, JobStatus,
    JoinSource, Plan, Resource, SageMakerError, SplitType, Tag, TransformData, TransformInput, TransformJob,
    TransformObjects, TransformOutput, TransformResources, TransformSource, VpcConfig,
};

use super::{Args, JoinName, SplitName};
use crate::asked::{self, Asked};
use crate::commands::job::at_sagemaker::{TRANSFORM, transform_code};
use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};

/// How often SageMaker is asked.
const LOOK: Duration = Duration::from_secs(5);

/// Where a transform runs, if not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// On machines of AWS that SageMaker starts and ends.
    Sagemaker,
}

/// How many records a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Strategy {
    /// As many as --max-payload takes.
    MultiRecord,
    /// One.
    SingleRecord,
}

/// Options of a transform on SageMaker.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "SageMaker")]
pub struct SageMakerArgs {
    /// Run it as a transform job of the account on SageMaker; MODEL, INPUT and OUTPUT are then s3:// URIs, and MODEL is a
    /// model.tar.gz.
    // What is listed has no counterpart there; an error names all of it that is given.
    #[arg(long, value_name = "PLACE", value_enum, requires = "job", requires = "image", conflicts_with_all = [
        "arch", "classes", "pipeline", "exif", "executor", "batch_size", "device", "workers", "gpu_decode", "gpu_memory_budget",
        "topk", "script", "python", "worker", "work", "assemble",
    ])]
    on: Option<On>,
    /// A job file whose section sagemaker has the role, region, network, key and labels, and whose instance-type and instances
    /// are the machines.
    #[arg(long, value_name = "JOB.toml", requires = "on")]
    job: Option<Local>,
    /// The image in a registry that answers requests with the model: a server for inference.
    #[arg(long, value_name = "IMAGE", requires = "on")]
    image: Option<String>,
    /// The transform's name, and the model's [default: made of the model's file and the time].
    #[arg(long, value_name = "NAME", requires = "on")]
    name: Option<String>,
    /// The MIME type of a request [default: application/x-image; with --split line application/jsonlines].
    #[arg(long, value_name = "TYPE", requires = "on")]
    content_type: Option<String>,
    /// With --split line, how many records a request has.
    #[arg(long, value_enum, requires = "on", default_value_t = Strategy::MultiRecord)]
    strategy: Strategy,
    /// Print both requests as JSON and send nothing.
    #[arg(long, requires = "on")]
    dry_run: bool,
}

impl SageMakerArgs {
    /// Whether it runs there.
    pub fn is_wanted(&self) -> bool {
        self.on.is_some()
    }
}

/// Creates the model and the transform, and follows it to its end.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let asked = &args.sagemaker;
    // Clap requires both.
    let (Some(file), Some(image)) = (&asked.job, &asked.image) else {
        return Err(Usage("--on sagemaker wants --job and --image".to_owned()).into());
    };
    let job = Job::read(file)?;
    job.check()?;
    let section = Plan::section(&job)?;
    let client = asked::client(section.region.as_deref(), &Options::default())?;
    stokehold_sagemaker::image_is_of(image, client.region())?;
    let (model, transform) = requests(args, &job, image)?;
    // Both before anything is created.
    model.check().map_err(SageMakerError::from)?;
    transform.check().map_err(SageMakerError::from)?;
    if asked.dry_run {
        writeln!(
            terminal::err(),
            "nothing is sent; it would run in {}",
            client.region()
        )?;
        terminal::json(&serde_json::json!({"CreateModel": model, "CreateTransformJob": transform}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = &transform.transform_job_name;
    let client = Arc::new(client);
    let asked = Asked::new(&client, Resource::TransformJob, name)?;
    client.require_free_transform_job(name)?;
    let arn = asked.create(|client| {
        client.create_model(&model)?;
        client.create_transform_job(&transform).inspect_err(|_| {
            note!("model {name} is there; --name {name} uses it, also after a mend");
        })
    })?;
    writeln!(terminal::err(), "transform {name} is created: {arn}")?;
    loop {
        let job = match client.describe_transform_job(name) {
            Ok(job) => job,
            Err(error) => {
                writeln!(
                    terminal::err(),
                    "transform {name} goes on, unless it has ended; stokehold job wait {TRANSFORM}{name} --on sagemaker --region {} \
                     waits for it",
                    client.region()
                )?;
                return Err(error.into());
            }
        };
        if job.transform_job_status.is_final() {
            return end(&job);
        }
        thread::sleep(LOOK);
    }
}

fn end(job: &TransformJob) -> Result<ExitCode, Box<dyn Error>> {
    let name = &job.transform_job_name;
    let reason = job.failure_reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    writeln!(
        terminal::err(),
        "transform {name} {}{reason}",
        job.transform_job_status
    )?;
    if job.transform_job_status == JobStatus::Completed {
        writeln!(terminal::out(), "{}", job.transform_output.s3_output_path)?;
    }
    Ok(transform_code(job))
}

/// Translates the options and the job file. Asks nobody.
fn requests(
    args: &Args,
    job: &Job,
    image: &str,
) -> Result<(CreateModel, CreateTransformJob), Box<dyn Error>> {
    let (asked, data) = (&args.sagemaker, &args.data);
    let section = Plan::section(job)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (model, input) = (text(args.model.given()), text(&args.input));
    if !model.ends_with(".tar.gz") {
        return Err(Usage(format!(
            "{model}: a model on SageMaker is an archive, s3://BUCKET/../model.tar.gz"
        ))
        .into());
    }
    if job.instance_type == "local" {
        let text =
            "SageMaker wants a type of machine; write instance-type = \"ml.g5.xlarge\" into the job file";
        return Err(Usage(text.to_owned()).into());
    }
    let is_split = data.split == SplitName::Line;
    if asked.strategy == Strategy::SingleRecord && !is_split {
        return Err(Usage("--strategy single-record is for --split line".to_owned()).into());
    }
    let name = asked.name.clone().unwrap_or_else(|| made_name(&model));
    let tags: Vec<Tag> = section
        .tags
        .iter()
        .map(|(key, value)| Tag {
            key: key.clone(),
            value: value.clone(),
        })
        .collect();
    let has_network = !section.subnets.is_empty() || !section.security_groups.is_empty();
    let created = CreateModel {
        model_name: name.clone(),
        primary_container: Container {
            image: image.to_owned(),
            model_data_url: model,
            ..Container::default()
        },
        execution_role_arn: section.role.clone(),
        vpc_config: has_network.then(|| VpcConfig {
            security_group_ids: section.security_groups.clone(),
            subnets: section.subnets.clone(),
        }),
        tags: tags.clone(),
    };
    let is_joined = data.join == JoinName::Input;
    let processing = DataProcessing {
        input_filter: data.input_filter.as_ref().map(ToString::to_string),
        output_filter: data.output_filter.as_ref().map(ToString::to_string),
        join_source: is_joined.then_some(JoinSource::Input),
    };
    let lines = "application/jsonlines";
    let usual = if is_split { lines } else { "application/x-image" };
    let is_list = [".manifest", ".json"].iter().any(|end| input.ends_with(end));
    let transform = CreateTransformJob {
        transform_job_name: name.clone(),
        model_name: name,
        max_concurrent_transforms: args.script.max_concurrent,
        max_payload_in_mb: data.max_payload.map(|mib| mib as u32),
        batch_strategy: is_split.then_some(match asked.strategy {
            Strategy::MultiRecord => BatchStrategy::MultiRecord,
            Strategy::SingleRecord => BatchStrategy::SingleRecord,
        }),
        transform_input: TransformInput {
            data_source: TransformSource {
                objects: TransformObjects {
                    s3_data_type: if is_list {
                        TransformData::ManifestFile
                    } else {
                        TransformData::S3Prefix
                    },
                    s3_uri: input,
                },
            },
            content_type: Some(asked.content_type.clone().unwrap_or_else(|| usual.to_owned())),
            split_type: if is_split {
                SplitType::Line
            } else {
                SplitType::None
            },
        },
        transform_output: TransformOutput {
            s3_output_path: text(&args.output),
            accept: is_split.then(|| lines.to_owned()),
            assemble_with: is_split.then_some(AssembleWith::Line),
            kms_key_id: section.kms_key.clone(),
        },
        transform_resources: TransformResources {
            instance_type: job.instance_type.clone(),
            instance_count: u32::try_from(job.instances)?,
            volume_kms_key_id: section.volume_kms_key.clone(),
        },
        data_processing: (processing != DataProcessing::default()).then_some(processing),
        tags,
    };
    Ok((created, transform))
}

/// `flowers-1-1600000000000`, of `s3://bucket/out/flowers-1/output/model.tar.gz`.
fn made_name(model: &str) -> String {
    let mut parts = model.rsplit('/').skip(1).filter(|part| *part != "output");
    let fine = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = parts
        .next()
        .unwrap_or_default()
        .chars()
        .map(fine)
        .take(40)
        .collect();
    let stem = match stem.trim_matches('-') {
        "" => "transform",
        stem => stem,
    };
    format!("{stem}-{:.0}", stokehold_base::clock::unix_now() * 1e3)
}
