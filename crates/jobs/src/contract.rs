//! The environment of a training script: folders, files, variables, its command line.
//!
//! Pure functions from a [`Job`] and an [`Instance`]: the same input always gives the same files and
//! variables, so tests can compare them with the published toolkit (`sagemaker-training`).
//!
//! ```text
//! BASE/input/config/{hyperparameters,inputdataconfig,resourceconfig,profilerconfig}.json
//! BASE/input/data/<channel>        or <channel>_<epoch> for a pipe
//! BASE/code                        the working folder
//! BASE/model, BASE/output/data     become model.tar.gz and output.tar.gz
//! BASE/output/{success,failure}    how it ended
//! BASE/checkpoints                 kept when the job is resumed; SM_CHECKPOINT_DIR
//! ```
//!
//! BASE is `/opt/ml` in a container. Here it is a folder of the instance, named by `SAGEMAKER_BASE_DIR`,
//! which the script also sees as `/opt/ml`. The variables name the path that is valid outside of the room,
//! too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use stokehold_profile::Settings;

use crate::runner::python;
use crate::{Distribution, EntryPoint, Job};

/// The one group that all instances belong to.
const GROUP: &str = "homogeneousCluster";

/// Hyperparameters that the toolkit consumes. Others that begin with `sagemaker_` belong to the framework.
const TOOLKIT: [&str; 9] = [
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "default_user_module_name",
    "_tuning_objective_metric",
    "sagemaker_s3_output",
];

/// One of the machines that a job seems to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The job's name.
    pub job: String,
    /// Its number, counted from zero: `algo-1` has 0.
    pub rank: usize,
    /// The folder that stands for `/opt/ml`; absolute.
    pub base: PathBuf,
    /// Cores that it may use.
    pub cpus: usize,
    /// GPUs that it may use.
    pub gpus: usize,
    /// The machine of the first instance, by a name or address that all others know.
    pub address: String,
    /// Where the first instance listens for the others, when there are several.
    pub port: u16,
    /// The network interface between the instances.
    pub interface: String,
}

impl Instance {
    /// `algo-1`, `algo-2`, ..
    pub fn host(&self) -> String {
        host(self.rank)
    }

    /// The folder of its code, where the script runs.
    pub fn code(&self) -> PathBuf {
        self.base.join("code")
    }

    /// The folder of its channels.
    pub fn data(&self) -> PathBuf {
        self.base.join("input/data")
    }

    /// The folder of its checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.base.join("checkpoints")
    }

    /// Every folder that has to be there before the script starts.
    pub fn folders(&self) -> Vec<PathBuf> {
        [
            "input/config",
            "input/data",
            "code",
            "model",
            "output/data",
            "output/intermediate",
            "checkpoints",
        ]
        .iter()
        .map(|folder| self.base.join(folder))
        .collect()
    }
}

/// The name of an instance.
pub fn host(rank: usize) -> String {
    format!("algo-{}", rank + 1)
}

fn hosts(job: &Job) -> Vec<String> {
    (0..job.instances).map(host).collect()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// All hyperparameters: the user's, and those that configure the toolkit.
fn all_hyperparameters(job: &Job, instance: &Instance) -> BTreeMap<String, Value> {
    let mut all = job.hyperparameters.clone();
    let mut own = |name: &str, value: Value| {
        // A value that the user has set wins.
        all.entry(name.to_owned()).or_insert(value);
    };
    own("sagemaker_program", json!(job.entry_point.name()));
    own("sagemaker_submit_directory", json!(path(&instance.code())));
    own("sagemaker_container_log_level", json!(20));
    own("sagemaker_job_name", json!(instance.job));
    match job.distribution {
        Distribution::None => {}
        Distribution::Torch => {
            own("sagemaker_torch_distributed_enabled", json!(true));
            own("sagemaker_instance_type", json!(job.instance_type));
        }
        Distribution::Smdistributed => {
            own("sagemaker_distributed_dataparallel_enabled", json!(true));
            own("sagemaker_instance_type", json!(job.instance_type));
        }
        Distribution::Mpi => {
            own("sagemaker_mpi_enabled", json!(true));
            own(
                "sagemaker_mpi_num_of_processes_per_host",
                json!(processes(job, instance)),
            );
        }
    }
    all
}

fn is_withheld(name: &str) -> bool {
    name.starts_with("sagemaker_") || TOOLKIT.contains(&name)
}

/// The hyperparameters that the script sees.
pub fn hyperparameters(job: &Job) -> BTreeMap<String, Value> {
    let seen = job.hyperparameters.iter().filter(|(name, _)| !is_withheld(name));
    seen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// `hyperparameters.json`: every value is a string that holds JSON.
pub fn hyperparameters_json(job: &Job, instance: &Instance) -> Value {
    let strings = all_hyperparameters(job, instance)
        .into_iter()
        .map(|(name, value)| (name, Value::String(python::json(&value))));
    Value::Object(strings.collect())
}

/// `inputdataconfig.json`.
pub fn input_data_config(job: &Job) -> Value {
    let channels = job.channels.iter().map(|(name, channel)| {
        let mut facts = Map::new();
        if let Some(kind) = &channel.content_type {
            facts.insert("ContentType".to_owned(), json!(kind));
        }
        facts.insert("TrainingInputMode".to_owned(), json!(channel.mode().input_mode()));
        facts.insert("S3DistributionType".to_owned(), json!(channel.distribution));
        facts.insert("RecordWrapperType".to_owned(), json!(channel.wrapper));
        (name.clone(), Value::Object(facts))
    });
    Value::Object(channels.collect())
}

/// `resourceconfig.json` of an instance.
pub fn resource_config(job: &Job, instance: &Instance) -> Value {
    json!({
        "current_host": instance.host(),
        "hosts": hosts(job),
        "network_interface_name": instance.interface,
        "current_instance_type": job.instance_type,
        "current_group_name": GROUP,
        "instance_groups": [group(job)],
    })
}

/// `profilerconfig.json`, of the form that the cloud's `CreateTrainingJob` takes.
pub fn profiler_config(job: &Job) -> Value {
    let interval = job.profiling().interval().unwrap_or(Settings::INTERVAL);
    let mut facts = json!({
        "DisableProfiler": !job.profile,
        "ProfilingIntervalInMilliseconds": interval.as_millis() as u64,
        "ProfilingParameters": {},
    });
    if let Some(output) = &job.output {
        facts["S3OutputPath"] = json!(output);
    }
    facts
}

/// The files of `input/config` of an instance, by their names.
pub fn configuration(job: &Job, instance: &Instance) -> [(&'static str, Value); 4] {
    [
        ("hyperparameters.json", hyperparameters_json(job, instance)),
        ("inputdataconfig.json", input_data_config(job)),
        ("resourceconfig.json", resource_config(job, instance)),
        ("profilerconfig.json", profiler_config(job)),
    ]
}

fn group(job: &Job) -> Value {
    json!({"instance_group_name": GROUP, "instance_type": job.instance_type, "hosts": hosts(job)})
}

/// Turns hyperparameters into arguments, sorted by name: `--name value`, or `-x value` for one letter.
pub fn arguments(hyperparameters: &BTreeMap<String, Value>) -> Vec<String> {
    let dashes = |name: &str| if name.chars().count() > 1 { "--" } else { "-" };
    hyperparameters
        .iter()
        .flat_map(|(name, value)| [format!("{}{name}", dashes(name)), python::argument(value)])
        .collect()
}

/// Every `SM_*` variable.
pub fn variables(job: &Job, instance: &Instance) -> BTreeMap<String, String> {
    let seen = hyperparameters(job);
    let framework: Map<String, Value> = all_hyperparameters(job, instance)
        .into_iter()
        .filter(|(name, _)| is_withheld(name) && !TOOLKIT.contains(&name.as_str()))
        .collect();
    let distributed: Vec<&str> = match job.distribution {
        Distribution::None => Vec::new(),
        Distribution::Torch | Distribution::Mpi | Distribution::Smdistributed => vec![GROUP],
    };
    let distribution_hosts = if distributed.is_empty() {
        Vec::new()
    } else {
        hosts(job)
    };
    let channels: Map<String, Value> = job
        .channels
        .keys()
        .map(|name| (name.clone(), json!(path(&instance.data().join(name)))))
        .collect();
    let base = |below: &str| json!(path(&instance.base.join(below)));
    let program = job.entry_point.name();
    let module = program.strip_suffix(".py").unwrap_or(&program);
    let both = [
        ("hosts", json!(hosts(job))),
        ("network_interface_name", json!(instance.interface)),
        ("user_entry_point", json!(program)),
        ("resource_config", resource_config(job, instance)),
        ("input_data_config", input_data_config(job)),
        ("output_data_dir", base("output/data")),
        ("current_host", json!(instance.host())),
        ("current_instance_type", json!(job.instance_type)),
        ("current_instance_group", json!(GROUP)),
        ("current_instance_group_hosts", json!(hosts(job))),
        ("instance_groups", json!([GROUP])),
        ("instance_groups_dict", json!({GROUP: group(job)})),
        ("distribution_instance_groups", json!(distributed)),
        ("is_hetero", json!(false)),
        ("module_name", json!(module)),
        (
            "log_level",
            all_hyperparameters(job, instance)["sagemaker_container_log_level"].clone(),
        ),
        ("framework_module", Value::Null),
        ("input_dir", base("input")),
        ("input_config_dir", base("input/config")),
        ("output_dir", base("output")),
        ("num_cpus", json!(instance.cpus)),
        ("num_gpus", json!(instance.gpus)),
        ("num_neurons", json!(0)),
        ("model_dir", base("model")),
        (
            "module_dir",
            all_hyperparameters(job, instance)["sagemaker_submit_directory"].clone(),
        ),
        ("output_intermediate_dir", base("output/intermediate")),
    ];
    let mut training_env: Map<String, Value> = both
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    for (name, value) in [
        ("additional_framework_parameters", json!(framework)),
        ("channel_input_dirs", json!(channels)),
        ("distribution_hosts", json!(distribution_hosts)),
        ("hyperparameters", json!(seen)),
        ("is_master", json!(instance.rank == 0)),
        ("is_modelparallel_enabled", Value::Null),
        ("is_smddpmprun_installed", json!(false)),
        ("is_smddprun_installed", json!(false)),
        ("job_name", json!(instance.job)),
        ("master_hostname", json!(host(0))),
        ("topology", json!([])),
    ] {
        training_env.insert(name.to_owned(), value);
    }
    let mut all: BTreeMap<String, Value> = both
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    all.insert("hps".to_owned(), json!(seen));
    all.insert("framework_params".to_owned(), json!(framework));
    all.insert(
        "channels".to_owned(),
        json!(job.channels.keys().collect::<Vec<_>>()),
    );
    all.insert("training_env".to_owned(), Value::Object(training_env));
    all.insert("user_args".to_owned(), json!(arguments(&seen)));
    all.extend(
        channels
            .into_iter()
            .map(|(name, path)| (format!("channel_{name}"), path)),
    );
    all.extend(
        seen.into_iter()
            .map(|(name, value)| (format!("hp_{name}"), value)),
    );
    all.into_iter()
        .map(|(name, value)| (format!("SM_{}", name.to_uppercase()), variable(&value)))
        .collect()
}

fn variable(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => python::json(other),
    }
}

/// Environment variables next to [`variables`]. Those that the job itself sets come last and win.
pub fn surroundings(job: &Job, instance: &Instance) -> BTreeMap<String, String> {
    let mut all = variables(job, instance);
    let mut add = |name: &str, value: String| all.insert(name.to_owned(), value);
    add("SAGEMAKER_BASE_DIR", path(&instance.base));
    // In a container it is always /opt/ml/checkpoints, so SageMaker needs no variable.
    add("SM_CHECKPOINT_DIR", path(&instance.checkpoints()));
    add("TRAINING_JOB_NAME", instance.job.clone());
    add("SAGEMAKER_JOB_NAME", instance.job.clone());
    add("CURRENT_HOST", instance.host());
    // So that lines and metrics arrive when they are printed.
    add("PYTHONUNBUFFERED", "1".to_owned());
    let code = path(&instance.code());
    let outer = std::env::var("PYTHONPATH").ok().filter(|outer| !outer.is_empty());
    add(
        "PYTHONPATH",
        outer.map_or_else(|| code.clone(), |outer| format!("{code}:{outer}")),
    );
    if job.distribution != Distribution::None {
        add("GLOO_SOCKET_IFNAME", instance.interface.clone());
        add("NCCL_SOCKET_IFNAME", instance.interface.clone());
    }
    all.extend(job.environment.clone());
    all
}

/// Processes of an instance: one a GPU, or one.
fn processes(job: &Job, instance: &Instance) -> usize {
    job.processes_per_host.unwrap_or(instance.gpus.max(1))
}

/// The command that an instance runs in its code folder; none where another instance starts all processes
/// (MPI).
///
/// Instances on one machine share its address, so the first one is at 127.0.0.1 with a free port, where the
/// cloud has `algo-1` and 7777. On the nodes of Slurm it is at its node's name.
pub fn command(job: &Job, instance: &Instance) -> Option<Vec<String>> {
    let python = job.python.display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let script = match &job.entry_point {
        EntryPoint::Python(file) => words(&[&python, file]),
        EntryPoint::Module(module) => words(&[&python, "-m", module]),
        // The shell runs scripts that have no `#!` line.
        EntryPoint::Shell(file) => words(&["/bin/sh", "-c", "exec \"$0\" \"$@\"", &format!("./{file}")]),
        EntryPoint::Binary(file) => words(&[&format!("./{file}")]),
    };
    let per_host = processes(job, instance).to_string();
    let mut all = match job.distribution {
        Distribution::None => script,
        Distribution::Torch | Distribution::Smdistributed => {
            let nodes = job.instances.to_string();
            let launcher = [
                python.as_str(),
                "-m",
                "torch.distributed.run",
                "--nnodes",
                &nodes,
                "--nproc_per_node",
                &per_host,
            ];
            let mut all = words(&launcher);
            if job.instances > 1 {
                let (port, rank) = (instance.port.to_string(), instance.rank.to_string());
                let address = [
                    "--master_addr",
                    &instance.address,
                    "--master_port",
                    &port,
                    "--node_rank",
                    &rank,
                ];
                all.extend(words(&address));
            }
            // The launcher adds the interpreter.
            all.extend(script.into_iter().skip(1));
            all
        }
        Distribution::Mpi if instance.rank > 0 => return None,
        Distribution::Mpi => {
            let total = (processes(job, instance) * job.instances).to_string();
            let mut all = words(&[
                "mpirun",
                "--allow-run-as-root",
                "--host",
                &format!("localhost:{total}"),
                "-np",
                &total,
            ]);
            all.extend(script);
            all
        }
    };
    all.extend(arguments(&hyperparameters(job)));
    Some(all)
}
