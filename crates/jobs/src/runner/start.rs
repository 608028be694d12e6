//! What an instance finds when its script starts: folders, code, requirements, configuration, pipes.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use stokehold_base::clock::unix_now as now;
use stokehold_base::there::if_there;

use super::Runner;
use crate::contract::{self, Instance};
use crate::data::{Flow, Found, archive, mount, pipe, source};
use crate::runner::home::Home;
use crate::runner::{standin, venv};
use crate::{Distribution, EntryPoint, JobError, Kept, Mode};

impl Runner<'_> {
    /// Prepares folders, code and configuration of every instance.
    pub(super) fn start(&self, again: bool) -> Result<Vec<Instance>, JobError> {
        self.try_output()?;
        let job = self.job;
        if let (Some(nodes), false) = (&self.nodes, again) {
            self.lines.say(&format!(
                "slurm: {} instances on a node each, the first one on {}; the recording is of that node",
                job.instances, nodes.address
            ));
        }
        let name = job.name.clone().unwrap_or_default();
        // Unmount the views that a killed runner left.
        mount::clear(&self.folder.0).map_err(JobError::io(&self.folder.0))?;
        let port = free_port()?;
        let source = job.source_dir.as_deref();
        let source = source
            .map(|source| source::bring(job, source, &self.folder.0, self.cuts.halt()))
            .transpose()?;
        let mut instances = Vec::new();
        for rank in 0..job.instances {
            // Other nodes are as this one, where Slurm is not asked for different ones.
            let place = match self.nodes {
                Some(_) => self.place.clone(),
                None => self.place.share(rank, job.instances),
            };
            let nodes = self.nodes.as_ref();
            let instance = Instance {
                job: name.clone(),
                rank,
                base: self.folder.file(&contract::host(rank)),
                cpus: place.cores.len(),
                gpus: place.gpus.len(),
                address: nodes.map_or("127.0.0.1", |nodes| &nodes.address).to_owned(),
                port,
                interface: nodes.map_or("lo", |nodes| &nodes.interface).to_owned(),
            };
            self.clear(&instance, again)?;
            for folder in instance.folders() {
                fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
            }
            let config = instance.base.join("input/config");
            for (file, value) in contract::configuration(job, &instance) {
                let path = config.join(file);
                fs::write(&path, value.to_string()).map_err(JobError::io(&path))?;
            }
            self.copy_code(&instance, source.as_deref())?;
            self.home(&instance).make()?;
            instances.push(instance);
        }
        self.install(&instances[0])?;
        if job.distribution == Distribution::Smdistributed {
            standin::write(&self.folder.0)?;
            self.lines.say(&format!(
                "distribution: smdistributed is a stand-in on torch.distributed (gloo on CPUs, NCCL on GPUs), in {}",
                standin::path(&self.folder.0).display()
            ));
        }
        Ok(instances)
    }

    /// Removes what an earlier start left, except data and checkpoints. After an interruption, which took the
    /// machine, it removes everything. Checkpoints that are mirrored to a place are downloaded from there.
    fn clear(&self, instance: &Instance, interrupted: bool) -> Result<(), JobError> {
        let remove = |path: PathBuf| {
            let removed = if_there(fs::remove_dir_all(&path));
            removed.map(drop).map_err(JobError::io(&path))
        };
        if interrupted {
            return remove(instance.base.clone());
        }
        for left in ["code", "model", "output"] {
            remove(instance.base.join(left))?;
        }
        if self.job.checkpoints.is_none() {
            return Ok(());
        }
        let checkpoints = instance.checkpoints();
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if !record.checkpoints.as_ref().is_some_and(Kept::is_behind) || !checkpoints.exists() {
            return remove(checkpoints);
        }
        let aside = self
            .folder
            .file("unsent")
            .join(format!("{}-{:.0}", instance.host(), now()));
        let moved =
            fs::create_dir_all(self.folder.file("unsent")).and_then(|()| fs::rename(&checkpoints, &aside));
        moved.map_err(JobError::io(&aside))?;
        self.lines.say(&format!(
            "checkpoints: what could not be sent before lies in {}",
            aside.display()
        ));
        Ok(())
    }

    /// Installs the requirements of a Python script, as the toolkit does; a shell script can do so itself.
    fn install(&self, instance: &Instance) -> Result<(), JobError> {
        let code = &instance.code();
        let is_python = matches!(
            self.job.entry_point,
            EntryPoint::Python(_) | EntryPoint::Module(_)
        );
        if !is_python || !code.join(venv::REQUIREMENTS).exists() {
            return Ok(());
        }
        let maker = venv::Maker {
            job: self.job,
            jobs: self.jobs(),
            folder: &self.folder.0,
            lines: self.lines,
            home: &self.home(instance),
            stop: self.cuts.halt(),
        };
        let environment = maker.environment(code)?;
        self.environment.get_or_init(|| environment);
        Ok(())
    }

    /// The home folder of an instance. The installation uses the first instance's.
    pub(super) fn home(&self, instance: &Instance) -> Home {
        Home(self.folder.file("home").join(instance.host()))
    }

    /// The folder of all jobs.
    pub(super) fn jobs(&self) -> &Path {
        self.folder.0.parent().unwrap_or(Path::new("/"))
    }

    fn copy_code(&self, instance: &Instance, source: Option<&Path>) -> Result<(), JobError> {
        let (job, code) = (self.job, instance.code());
        if let Some(source) = source {
            archive::copy_folder(source, &code, self.jobs()).map_err(JobError::io(source))?;
        }
        let Some(file) = job.entry_point.file() else {
            return Ok(());
        };
        let inside = code.join(file);
        if !inside.is_file() {
            let source = job.source_dir.as_deref().unwrap_or(Path::new(""));
            return Err(JobError::Input(format!(
                "the entry point {file} is not in {}",
                source.display()
            )));
        }
        let facts = fs::metadata(&inside).map_err(JobError::io(&inside))?;
        let mode = fs::Permissions::from_mode(facts.permissions().mode() | 0o700);
        fs::set_permissions(&inside, mode).map_err(JobError::io(&inside))
    }

    /// Opens the data for the pipes of every instance, and makes the first pipes.
    pub(super) fn pipes(
        &self,
        instances: &[Instance],
        say: &dyn Fn(&str),
    ) -> Result<Vec<(usize, String, Flow)>, JobError> {
        let mut piped = Vec::new();
        for instance in instances {
            for (name, channel) in self
                .job
                .channels
                .iter()
                .filter(|(_, channel)| channel.mode() == Mode::Pipe)
            {
                let failed = |source| JobError::Channel {
                    channel: name.clone(),
                    source,
                };
                let flow = Flow::unless(self.cuts.halt(), self.job, (name, channel), instance.rank, say);
                let flow = flow.map_err(failed)?;
                let data = instance.data();
                pipe::make_first(&data, name).map_err(JobError::io(&data))?;
                piped.push((instance.rank, name.clone(), flow));
            }
        }
        Ok(piped)
    }
}

/// A port that is free now.
fn free_port() -> Result<u16, JobError> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(JobError::io(Path::new("127.0.0.1")))
}
