//! The other side of the contract: what a container finds in `/opt/ml`, and what it does with that.
//!
//! ```text
//! BASE/input/config/*.json ──► Container::read ──► variables, command      as `contract` has them, and SageMaker's toolkit
//! sagemaker_submit_directory ──► Container::fetch ──► BASE/code
//! ```
//!
//! It is what SageMaker's training toolkit does in AWS's images, without Python: for images that do not have the
//! toolkit. One machine runs any script; several find each other by `torch`. MPI over several machines wants a server of
//! SSH, and SageMaker's data parallel library is only in AWS's images; both are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::net::ToSocketAddrs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stokehold_base::there::if_there;

use crate::contract::{self, Instance as Machine};
use crate::data::{archive, source};
use crate::runner::python;
use crate::{Channel, Distribution, EntryPoint, Job, JobError, Mode, Place, decode_hyperparameter};

/// The folder that SageMaker fills.
pub const BASE: &str = "/opt/ml";

/// The variable of the toolkit that names another folder than [`BASE`].
pub const BASE_VARIABLE: &str = "SAGEMAKER_BASE_DIR";

/// The variable of the toolkit that names the entry point where no hyperparameter does.
pub const PROGRAM_VARIABLE: &str = "SAGEMAKER_PROGRAM";

/// The port of the first machine at which the others find it; the toolkit's.
const PORT: u16 = 7777;

/// What a container is to run.
#[derive(Debug, Clone)]
pub struct Container {
    /// The job: script, hyperparameters, channels, machines.
    pub job: Job,
    /// This machine.
    pub instance: Machine,
    /// `resourceconfig.json` and `inputdataconfig.json` as they are.
    resources: Option<Value>,
    channels: Option<Value>,
    /// Where the code is; `BASE/code` already, if none.
    submitted: Option<String>,
}

impl Container {
    /// Reads the configuration below `base`. `variable` is the environment.
    ///
    /// # Errors
    /// There is no configuration, a file cannot be read, no entry point is named, or the job needs what only AWS's images have.
    pub fn read(base: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, JobError> {
        let config = base.join("input/config");
        if !config.is_dir() {
            return input(format!(
                "there is no {}: SageMaker makes it in a container, and `stokehold image DIR --check` makes one",
                config.display()
            ));
        }
        let hyperparameters = object(&config.join("hyperparameters.json"))?.unwrap_or_default();
        let mut decoded = BTreeMap::new();
        for (name, value) in hyperparameters {
            let Value::String(text) = value else {
                return input(format!(
                    "{}: {name} is no string; SageMaker has strings only",
                    config.join("hyperparameters.json").display()
                ));
            };
            decoded.insert(name, decode_hyperparameter(&text).into_value());
        }
        let text = |name: &str| decoded.get(name).and_then(Value::as_str).map(str::to_owned);
        let program = text("sagemaker_program").or_else(|| variable(PROGRAM_VARIABLE));
        let Some(program) = program else {
            return input(format!(
                "nothing says which script runs: neither the hyperparameter sagemaker_program nor the variable {PROGRAM_VARIABLE}"
            ));
        };
        let submitted = text("sagemaker_submit_directory").or_else(|| variable("SAGEMAKER_SUBMIT_DIRECTORY"));
        let mut job = Job::new(EntryPoint::parse(&program).map_err(JobError::Input)?);

        let resources = object(&config.join("resourceconfig.json"))?;
        let hosts = machines(resources.as_ref())?;
        let at = |name: &str| resources.as_ref()?.get(name)?.as_str();
        let host = at("current_host").unwrap_or("algo-1");
        let Some(rank) = hosts.iter().position(|known| known == host) else {
            return input(format!(
                "resourceconfig.json: {host} is none of its hosts, {}",
                hosts.join(", ")
            ));
        };
        job.instances = hosts.len();
        job.instance_type = at("current_instance_type").unwrap_or("local").to_owned();
        job.distribution = distribution(&decoded, hosts.len())?;
        let processes = decoded
            .get("sagemaker_mpi_num_of_processes_per_host")
            .and_then(Value::as_u64);
        job.processes_per_host = processes.and_then(|processes| usize::try_from(processes).ok());
        job.hyperparameters = decoded;

        let channels = object(&config.join("inputdataconfig.json"))?;
        for (name, facts) in channels.iter().flatten() {
            let place = base.join("input/data").join(name);
            let mut channel = Channel::parse(&place.display().to_string()).map_err(JobError::Input)?;
            let mode = facts.get("TrainingInputMode").and_then(Value::as_str);
            channel.mode = Some(match mode {
                Some("Pipe") => Mode::Pipe,
                Some("FastFile") => Mode::FastFile,
                _ => Mode::File,
            });
            job.channels.insert(name.clone(), channel);
        }
        let place = Place::here();
        Ok(Self {
            instance: Machine {
                job: variable("TRAINING_JOB_NAME").unwrap_or_default(),
                rank,
                base: base.to_owned(),
                cpus: place.cores.len(),
                gpus: place.gpus.len(),
                address: hosts[0].clone(),
                port: PORT,
                interface: at("network_interface_name").unwrap_or("eth0").to_owned(),
            },
            job,
            resources: resources.map(Value::Object),
            channels: channels.map(Value::Object),
            submitted,
        })
    }

    /// Brings the code that was submitted with the job into `BASE/code`; `false` if that folder has it already. What an
    /// image has there is replaced.
    ///
    /// # Errors
    /// It cannot be fetched or unpacked, or has no such entry point; `stop` was set.
    pub fn fetch(&self, stop: &AtomicBool) -> Result<bool, JobError> {
        let code = self.instance.code();
        let submitted = self
            .submitted
            .as_deref()
            .map(Path::new)
            .filter(|from| *from != code);
        if let Some(from) = submitted {
            let beside = self.instance.base.join("fetched");
            let found = source::bring(&self.job, from, &beside, stop)?;
            if_there(fs::remove_dir_all(&code)).map_err(JobError::io(&code))?;
            archive::copy_folder(&found, &code, &beside).map_err(JobError::io(&found))?;
            if_there(fs::remove_dir_all(&beside)).map_err(JobError::io(&beside))?;
        }
        let Some(file) = self.job.entry_point.file().map(|file| code.join(file)) else {
            return Ok(submitted.is_some());
        };
        let Ok(facts) = fs::metadata(&file) else {
            return input(format!("the entry point {} is not there", file.display()));
        };
        // Archives may have lost it; the toolkit sets it, too.
        let mode = facts.permissions().mode();
        if mode & 0o111 != 0o111 && !matches!(self.job.entry_point, EntryPoint::Python(_)) {
            fs::set_permissions(&file, Permissions::from_mode(mode | 0o555)).map_err(JobError::io(&file))?;
        }
        Ok(submitted.is_some())
    }

    /// Waits until the names of all machines are known, or until `stop` is set: those that start later come later.
    ///
    /// # Errors
    /// One is not known after `limit`.
    pub fn wait_for_machines(&self, limit: Duration, stop: &AtomicBool) -> Result<(), JobError> {
        let began = Instant::now();
        for host in (1..self.job.instances)
            .map(contract::host)
            .chain([self.instance.address.clone()])
        {
            while self.job.instances > 1 && (host.as_str(), PORT).to_socket_addrs().is_err() {
                if stop.load(Ordering::SeqCst) {
                    return Ok(());
                }
                if began.elapsed() > limit {
                    let text = format!("{host} is not known after {} s", limit.as_secs());
                    return Err(JobError::io(Path::new("the network"))(io::Error::other(text)));
                }
                thread::sleep(Duration::from_millis(500));
            }
        }
        Ok(())
    }

    /// The requirements of the code, if it has some.
    #[must_use]
    pub fn requirements(&self) -> Option<PathBuf> {
        let is_python = matches!(self.job.entry_point, EntryPoint::Python(_));
        let file = self.instance.code().join("requirements.txt");
        (is_python && file.is_file()).then_some(file)
    }

    /// The variables of the script, as the toolkit sets them.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        let mut all = contract::surroundings(&self.job, &self.instance);
        let mut environment: Map<String, Value> = all
            .get("SM_TRAINING_ENV")
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        // As SageMaker wrote them, with what is not known here.
        for (name, value) in [
            ("resource_config", &self.resources),
            ("input_data_config", &self.channels),
        ] {
            if let Some(value) = value {
                all.insert(format!("SM_{}", name.to_uppercase()), python::json(value));
                environment.insert(name.to_owned(), value.clone());
            }
        }
        all.insert(
            "SM_TRAINING_ENV".to_owned(),
            python::json(&Value::Object(environment)),
        );
        all
    }

    /// The command of the script.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        // Only MPI's other machines have none, and those are refused.
        contract::command(&self.job, &self.instance).unwrap_or_default()
    }
}

fn input<T>(reason: String) -> Result<T, JobError> {
    Err(JobError::Input(reason))
}

/// An object of JSON; none if there is no such file.
fn object(path: &Path) -> Result<Option<Map<String, Value>>, JobError> {
    let Some(text) = if_there(fs::read(path)).map_err(JobError::io(path))? else {
        return Ok(None);
    };
    match serde_json::from_slice(&text) {
        Ok(object) => Ok(Some(object)),
        Err(error) => input(format!("{} is no object of JSON: {error}", path.display())),
    }
}

/// The names of all machines.
fn machines(resources: Option<&Map<String, Value>>) -> Result<Vec<String>, JobError> {
    let at = |name: &str| resources?.get(name)?.as_array();
    if at("instance_groups").is_some_and(|groups| groups.len() > 1) {
        return input("this job has several instance groups, which only AWS's own images know".to_owned());
    }
    let Some(named) = at("hosts") else {
        return Ok(vec![contract::host(0)]);
    };
    let hosts: Vec<String> = (0..named.len().max(1)).map(contract::host).collect();
    // In whatever order: SageMaker sorts them as words, algo-10 before algo-2.
    let named: BTreeSet<&str> = named.iter().filter_map(Value::as_str).collect();
    match named.len() == hosts.len() && hosts.iter().all(|host| named.contains(host.as_str())) {
        true => Ok(hosts),
        false => input("resourceconfig.json: the hosts are not algo-1, algo-2, ..".to_owned()),
    }
}

/// How processes find each other, as the toolkit's hyperparameters say it.
fn distribution(
    hyperparameters: &BTreeMap<String, Value>,
    machines: usize,
) -> Result<Distribution, JobError> {
    let is_on = |name: &str| hyperparameters.get(name) == Some(&Value::Bool(true));
    if is_on("sagemaker_distributed_dataparallel_enabled") {
        return input(
            "distribution smdistributed wants SageMaker's library, which only AWS's own images have; take torch".to_owned(),
        );
    }
    match (is_on("sagemaker_mpi_enabled"), is_on("sagemaker_torch_distributed_enabled")) {
        (true, _) if machines > 1 => input(
            "distribution mpi over several machines wants an image with SageMaker's toolkit, which starts a server of SSH; \
             take torch"
                .to_owned(),
        ),
        (true, _) => Ok(Distribution::Mpi),
        (false, true) => Ok(Distribution::Torch),
        (false, false) => Ok(Distribution::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn machines_are_in_the_order_of_their_numbers_and_the_file_in_that_of_words() {
        let of = |hosts: Value| machines(json!({"hosts": hosts}).as_object());
        let words = [
            "algo-1", "algo-10", "algo-2", "algo-3", "algo-4", "algo-5", "algo-6", "algo-7", "algo-8",
            "algo-9",
        ];
        let found = of(json!(words)).unwrap();
        assert_eq!((found.len(), &*found[1], &*found[9]), (10, "algo-2", "algo-10"));
        for wrong in [
            json!(["algo-1", "algo-3"]),
            json!(["algo-1", "algo-1"]),
            json!(["here"]),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
